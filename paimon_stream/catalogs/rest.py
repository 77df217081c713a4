"""Paimon's REST catalog: a server knows the tables and publishes their snapshots
(docs/spec/catalogs.md §4). A table's storage options hold those of the catalog, as
`catalog.<option>`. So other processes need nothing else to open it. urllib3 is imported when the
first request is sent. No message holds a token or a header.
"""

import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, cast
from urllib.parse import quote, urlencode

from paimon_stream import errors
from paimon_stream import options as opt
from paimon_stream.catalogs.filesystem import FilesystemCatalog, Named, names_of
from paimon_stream.extras import require
from paimon_stream.options.store_names import store_option
from paimon_stream.runtime import Clock, system
from paimon_stream.storage.base import MOST_BYTES, FileStat, PutResult, Storage
from paimon_stream.storage.branch import StorageView
from paimon_stream.storage.location import KIND_OF, scheme_of, shown_location, store_location
from paimon_stream.storage.store_sources import options_for
from paimon_stream.storage.together import AT_ONCE
from paimon_stream.table.layout import SNAPSHOT_FOLDER, id_in_name, snapshot_path
from paimon_stream.table.schema_change import SchemaChange, type_of

_LOG = logging.getLogger(__name__)

_CATALOG: Final = "catalog."
OF_SERVER: Final = re.compile(
    r"metastore|uri|warehouse|prefix|token(\..*)?|header\..*|data-token\.enabled|dlf\..*"
)
_VERSION: Final = re.compile(r"snapshot/(?:snapshot-([0-9]+)|LATEST|EARLIEST)")
_CHANGING: Final = (
    "write",
    "write_hint",
    "write_all",
    "put_if_absent",
    "delete",
    "delete_all",
    "open_output",
)
_OWNED: Final = re.compile(
    r"snapshot/(?!(LATEST|EARLIEST)\Z)|(schema|tag|branch)/|_paimon_stream/(branch|removed)\."
)
_REMEMBERED: Final = 64
COMMIT_SECONDS: Final = 60.0
_TRIES: Final = 5
_POOLS: Final[dict[int, Any]] = {}
"""By process: a forked child would share the connections of its parent."""
_ANSWERED: Final = set[str]()
"""The addresses at which a server has answered this process, or the one that it works for. Others
may be wrong.
"""

_ERRORS: Final[Mapping[int, type[errors.PaimonStreamError]]] = {
    400: errors.InvalidOption,
    401: errors.PermissionDenied,
    403: errors.PermissionDenied,
    404: errors.NotFound,
    409: errors.AlreadyExists,
    501: errors.UnsupportedFeature,
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RestClient:
    """A server, as the options of a catalog name it. Pickles hold its token; `repr` and messages do
    not. If it has answered before, its outage is waited for, up to `max_outage_millis`, as that of
    a store.
    """

    uri: str
    prefix: str
    headers: Mapping[str, str]
    max_outage_millis: int = 0
    clock: Clock | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "RestClient":
        """Raises `InvalidOption`, and `UnsupportedFeature` for a login other than by a bearer
        token.
        """
        uri, provider, token = (
            options.get("uri", ""),
            options.get("token.provider", "bear"),
            options.get("token"),
        )
        if not uri.lower().startswith(("http://", "https://")):
            text = f"Option 'uri' is {shown_location(uri)!r}. Set it to the server's address, https://host:port."
            raise errors.InvalidOption(text, option="uri")
        if provider != "bear":
            text = f"Option 'token.provider' is {provider!r}, which is not supported. Use 'bear' with a 'token'."
            raise errors.UnsupportedFeature(text, option="token.provider", value=provider)
        if token is None and "token.provider" in options:
            raise errors.InvalidOption(
                "Option 'token.provider' is 'bear'. Set 'token', too.", option="token"
            )
        headers = {key[7:]: one for key, one in options.items() if key.startswith("header.")}
        login = {} if token is None else {"Authorization": f"Bearer {token}"}
        return cls(
            uri=uri.rstrip("/"),
            prefix=options.get("prefix", ""),
            headers={**headers, **login},
            max_outage_millis=opt.Options(options).value(opt.STORE_MAX_OUTAGE),
        )

    def ask(
        self,
        verb: str,
        path: str,
        body: Any = None,
        *,
        seconds: float = 20,
        patient: bool = True,
    ) -> dict[str, Any]:
        """The answer to one request below the prefix, {} for an empty one. Only GET is repeated: a
        few times, and if `patient` as long as an outage is waited for. The errors of a status are
        those of `_ERRORS`, with `status`, and as `resource` the kind of what was not found.
        `Unavailable`: it is unknown whether it was done.
        """
        path, tries, clock = (
            f"{quote(self.prefix)}/{path}" if self.prefix else path,
            1,
            self.clock or system().clock,
        )
        began = clock.monotonic()
        while True:
            try:
                node = self._once(verb, path, body, seconds)
                _ANSWERED.add(self.uri)
                return node
            except errors.Unavailable as why:
                left = self.max_outage_millis / 1000 - clock.monotonic() + began
                left = left if patient and self.uri in _ANSWERED else 0
                if verb != "GET" or (tries >= _TRIES and left <= 0):
                    raise
                if tries == _TRIES:
                    _LOG.warning(
                        "%s It is asked for %.0f s more (%s).", why, left, opt.STORE_MAX_OUTAGE.key
                    )
                clock.sleep(min(why.context["wait"] or 0.1 * 2 ** min(tries, 7), 10))
                tries += 1

    def names(
        self,
        path: str,
        key: str,
    ) -> Iterator[str]:
        """What a listing has under `key`, from all of its pages. Raises as `ask`."""
        token, seen = "", set[str]()
        while token not in seen:
            seen.add(token)
            node = self.ask("GET", f"{path}?{urlencode({'pageToken': token})}" if token else path)
            yield from map(str, node.get(key) or ())
            token = str(node.get("nextPageToken") or "")

    def _once(self, verb: str, path: str, body: Any, seconds: float) -> dict[str, Any]:
        urllib3 = require("urllib3", "rest", "A REST catalog")
        pool = _POOLS.get(os.getpid()) or _POOLS.setdefault(
            os.getpid(), urllib3.PoolManager(maxsize=AT_ONCE)
        )
        said, status, wait = b"", 0, ""
        try:
            answer = pool.request(
                verb,
                f"{self.uri}/v1/{path}",
                body=None if body is None else json.dumps(body).encode(),
                headers={"Content-Type": "application/json", **self.headers},
                timeout=urllib3.Timeout(connect=10, read=seconds),
                retries=False,
                redirect=False,
            )
            said, status, wait = answer.data, answer.status, answer.headers.get("Retry-After", "")
            node = json.loads(said) if said else {}
        except (
            urllib3.exceptions.HTTPError,
            OSError,
        ) as broken:  # its text may hold what the uri holds
            node = type(broken).__name__
        except ValueError:
            node = said.decode("utf-8", "replace")
        if 200 <= status < 300 and isinstance(node, dict):
            return node
        message, resource = (
            (node.get("message"), node.get("resourceType"))
            if isinstance(node, dict)
            else (node, None)
        )
        secrets = {one.removeprefix("Bearer ") for one in self.headers.values()} - {
            ""
        }  # one may be a part of another
        hidden = "|".join(map(re.escape, sorted(secrets, key=len, reverse=True))) or "(?!)"
        text, kind = (
            re.sub(hidden, "***", str(message or "")),
            _ERRORS.get(status, errors.Unavailable),
        )
        cure = "Check what was asked for, and the options 'uri', 'warehouse' and 'token'."
        cure = "Look whether it was done, and try again." if kind is errors.Unavailable else cure
        answered, shown = (
            f"answered {status}" if status else "gave no answer",
            shown_location(self.uri),
        )
        seconds = float(wait) if wait.isdecimal() else 0.0
        text = f"The catalog's server {shown} {answered} to {verb} {path}: {text[:300]}. {cure}"
        named = {resource.lower(): path} if resource in ("DATABASE", "TABLE") else {}
        raise kind(text, uri=shown, status=status, resource=resource, wait=seconds, **named)


def path_of(*names: str) -> str:
    """The path of a database, or of a table in it."""
    return "/tables/".join(
        (f"databases/{quote(names[0], safe='')}", *(quote(one, safe="") for one in names[1:]))
    )


class RestCatalog(FilesystemCatalog):
    """The databases and tables that a server knows. `storage_options` are all options of the
    catalog. Nothing is asked before the first method is called. All methods raise `InvalidOption`
    and `StorageError`.
    """

    @property
    def _options(self) -> Mapping[str, str]:
        """The options in force: those of the server below and above the given ones."""
        return _negotiated(self.warehouse, tuple(sorted(self.storage_options.items())))

    @property
    def _client(self) -> RestClient:
        return RestClient.of(self._options)

    def found(self, identifier: Named) -> tuple[str, Mapping[str, str]]:
        """The location of a table, and the storage options that open it. Raises `NotFound`."""
        names = _names(identifier)
        node, options = self._client.ask("GET", path_of(*names)), self._options
        path = str(node.get("path") or "")
        if scheme_of(path) == "file":
            path = "/" + path.partition(":")[2].lstrip("/")
        if node.get("isExternal"):  # the server does not commit to it (docs/spec/catalogs.md §4)
            return path, _of_store(path, options)
        given = {
            f"{_CATALOG}{key}" if OF_SERVER.fullmatch(key) else key: one
            for key, one in options.items()
        }
        of_table = {"identifier": path_of(*names), "table-id": str(node.get("id"))}
        return path, {
            **given,
            "metastore": "rest",
            **{_CATALOG + key: one for key, one in of_table.items()},
        }

    def location(self, identifier: Named) -> str:
        """The folder of a table. Asks the server."""
        return self.found(identifier)[0]

    def list_databases(self) -> list[str]:
        """The names of the databases, sorted."""
        return sorted(self._client.names("databases", "databases"))

    def create_database(
        self,
        name: str,
        ignore_if_exists: bool = False,
    ) -> None:
        """Creates an empty database. Raises `AlreadyExists`."""
        ignored = opt.Arguments(self.warehouse).flag("ignore_if_exists", ignore_if_exists)
        self._ask(
            "POST",
            "databases",
            {"name": _name(name), "options": {}},
            but=errors.AlreadyExists,
            ignored=ignored,
        )

    def drop_database(
        self,
        name: str,
        ignore_if_not_exists: bool = False,
        cascade: bool = False,
    ) -> None:
        """Deletes a database and, with `cascade`, its tables. Raises `NotFound`, `InvalidOption` if
        it has tables.
        """
        given = opt.Arguments(self.warehouse)
        ignored, whole = (
            given.flag("ignore_if_not_exists", ignore_if_not_exists),
            given.flag("cascade", cascade),
        )
        if ignored and name not in self.list_databases():
            return
        if not whole and (tables := self.list_tables(name)):
            text = f"Database {name!r} has {len(tables):,} tables. Drop them first, or pass cascade=True."
            raise errors.InvalidOption(text, option="cascade", path=self.warehouse)
        self._ask("DELETE", path_of(_name(name)), but=errors.NotFound, ignored=ignored)

    def list_tables(self, database: str) -> list[str]:
        """The names of the tables of a database, sorted. Raises `NotFound` if there is no such
        database.
        """
        return sorted(self._client.names(f"{path_of(_name(database))}/tables", "tables"))

    def drop_table(
        self,
        identifier: Named,
        ignore_if_not_exists: bool = False,
    ) -> None:
        """Lets the server drop a table. Raises `NotFound`."""
        ignored = opt.Arguments(self.warehouse).flag("ignore_if_not_exists", ignore_if_not_exists)
        self._ask("DELETE", path_of(*_names(identifier)), but=errors.NotFound, ignored=ignored)

    def rename_table(
        self,
        source: Named,
        target: Named,
    ) -> None:
        """Lets the server rename a table. Raises `NotFound`, and `AlreadyExists` if the target
        exists.
        """
        named = (
            dict(zip(("database", "object"), _names(one), strict=True)) for one in (source, target)
        )
        self._client.ask(
            "POST", "tables/rename", dict(zip(("source", "destination"), named, strict=True))
        )

    def post_table(
        self,
        identifier: Named,
        schema: Mapping[str, Any],
        ignored: bool,
    ) -> None:
        """Lets the server create a table. `schema` is the JSON of its first schema. Raises
        `AlreadyExists`.
        """
        database, table = _names(identifier)
        kept = {
            key: schema.get(key)
            for key in ("fields", "partitionKeys", "primaryKeys", "options", "comment")
        }
        body = {"identifier": {"database": database, "object": table}, "schema": kept}
        self._ask(
            "POST", f"{path_of(database)}/tables", body, but=errors.AlreadyExists, ignored=ignored
        )

    def post_changes(
        self,
        identifier: Named,
        changes: Sequence[SchemaChange],
    ) -> None:
        """Lets the server change a schema. Raises `NotFound`, `InvalidOption` if it refuses."""
        self._client.ask(
            "POST", path_of(*_names(identifier)), {"changes": [*map(change_json, changes)]}
        )

    def _ask(
        self,
        verb: str,
        path: str,
        body: Any = None,
        *,
        but: type[errors.StorageError],
        ignored: bool,
    ) -> None:
        try:
            self._client.ask(verb, path, body)
        except but:
            if not ignored:
                raise


def change_json(change: SchemaChange) -> dict[str, Any]:
    """A change as Paimon's REST API has it. Raises `IncompatibleSchema` for a type that is none."""
    action, value = change.action, change.value
    if action in ("addColumn", "updateColumnType"):
        value = type_of(change).to_json()
    more: dict[str, Any] = {
        "setOption": {"key": change.target, "value": value},
        "removeOption": {"key": change.target},
        "updateComment": {"comment": value},
        "addColumn": {"dataType": value, "comment": change.comment, "move": None},
        "renameColumn": {"newName": value},
        "updateColumnType": {"newDataType": value, "keepNullability": True},
        "updateColumnNullability": {"newNullability": value},
        "updateColumnComment": {"newComment": value},
    }.get(action, {})
    column = {"fieldNames": [change.target]} if "Column" in action else {}
    return {"action": action, **column, **more}


@lru_cache
def _negotiated(warehouse: str, options: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    node = RestClient.of({**dict(options), "prefix": ""}).ask(
        "GET", f"config?{urlencode({'warehouse': warehouse})}"
    )
    texts = [
        {str(key): str(one) for key, one in (node.get(kind) or {}).items()}
        for kind in ("defaults", "overrides")
    ]
    return {**texts[0], **dict(options), **texts[1]}


_names: Final = partial(names_of, main=True)  # branches are not opened


def _name(database: str) -> str:
    return names_of((database, "t"))[0]


def _of_store(
    location: str, options: Mapping[str, str], token: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The options of the store of a table. A `token` replaces all of its login."""
    given = {key: one for key, one in options.items() if not OF_SERVER.fullmatch(key)}
    kind = KIND_OF.get(scheme_of(location))
    if kind is None:
        return {key: one for key, one in given.items() if key == opt.UNSAFE_SINGLE_WRITER.key}
    if token is not None:
        if endpoint := options.get("dlf.oss-endpoint"):
            token = {**token, "fs.oss.endpoint": endpoint}
        named = {one.option.key for key in token if (one := store_option(kind, key))}
        old = {key: one.option for key in given if (one := store_option(kind, key))}
        gone = {key for key, option in old.items() if option.login or option.key in named}
        given = {key: one for key, one in given.items() if key not in gone} | dict(token)
    return options_for(store_location(location), given)


def open_table(
    location: str,
    options: Mapping[str, str],
    opened: Callable[..., Storage],
) -> Storage:
    """The storage of a table whose snapshots the server publishes. `opened` opens the store, by a
    location and its options. Raises `InvalidOption` for options that no `RestCatalog.found` has
    made.
    """
    if f"{_CATALOG}table-id" not in options:
        text = f"{location} is of a REST catalog. Open it by its name: catalog(options).get_table('database.table')."
        raise errors.InvalidOption(text, option="metastore", location=location)
    return cast(Storage, RestStorage(location.rstrip("/"), options, opened))


class RestStorage(StorageView):
    """The files of a table, whose snapshots are those that the server shows. To create one is to
    ask the server for it. Callers see it as a `Storage`. If the server gives data tokens, the store
    is opened with one, in each process.
    """

    __slots__ = (
        "_asked",
        "_client",
        "_id",
        "_opened",
        "_options",
        "_path",
        "_posted",
        "_until",
        "_uuids",
        "location",
    )
    served = True

    def __init__(
        self,
        location: str,
        options: Mapping[str, str],
        opened: Callable[..., Storage],
    ) -> None:
        own = {
            key[len(_CATALOG) :]: one for key, one in options.items() if key.startswith(_CATALOG)
        }
        self.location, self._options, self._opened = location, options, opened
        waits = {key: one for key, one in options.items() if key == opt.STORE_MAX_OUTAGE.key}
        self._client, self._path, self._id = (
            RestClient.of(own | waits),
            own["identifier"],
            own["table-id"],
        )
        self._posted: dict[
            str, tuple[bytes, dict[str, Any]]
        ] = {}  # what was sent, by nonce: snapshot, and request
        self._uuids: dict[int, Any] = {}  # those of the snapshots that the server has shown
        self._asked = 0
        _ANSWERED.add(self._client.uri)  # only a server gives a table's id
        self._until: int | None = 0 if own.get("data-token.enabled", "").lower() == "true" else None
        if self._until is None:
            self.whole = opened(location, _of_store(location, options))

    def __reduce__(self) -> tuple[Any, ...]:
        if self._until is None:
            return _reopened, (self.location, self._options, self.whole)
        spark = getattr(self._opened, "keywords", {}).get("spark")
        opened = (
            self._opened if spark is None else partial(self._opened, spark=partial(dict, spark()))
        )
        return RestStorage, (self.location, self._options, opened)

    def __getattr__(self, name: str) -> Any:
        if name == "whole":  # the slot is empty before the first token
            self._renew()
            return self.whole
        call = super().__getattr__(name)
        if name not in _CHANGING and (self._until is None or not callable(call)):
            return call

        def checked(given: Any, *more: Any, **named: Any) -> Any:
            if name in _CHANGING:
                items = [given] if isinstance(given, str) else given
                paths = [one if isinstance(one, str) else one[0] for one in items]
                refused = {one: why for one in paths if (why := self._refusal(one)) is not None}
                if name == "delete_all":
                    return {**call([one for one in given if one not in refused]), **refused}
                for why in refused.values():
                    raise why
                if isinstance(given, str) and given.startswith("snapshot/"):
                    return None  # hints are the server's
            used = self.whole
            try:
                return call(given, *more, **named)
            except errors.PermissionDenied:
                if not self._renew(refused=used):
                    raise
                return call(given, *more, **named)

        return checked if name != "together" else call

    def _there(self, path: str) -> tuple[Storage, str, str]:
        self._renew()
        return self.whole, "", ""

    def _refusal(self, path: str) -> errors.UnsupportedFeature | None:
        """Why a file is not written or deleted here; None for one that is."""
        if not _OWNED.match(path):
            return None
        text = (
            f"{self.location}/{path} is not changed, because a REST catalog's server owns it. Change the schema by the "
            "catalog's alter_table. Expire, roll back, and make tags and branches by the server or another engine."
        )
        return errors.UnsupportedFeature(text, table=self.location, path=path)

    def _renew(self, *, refused: Storage | None = None) -> bool:
        """Opens the store with a new token if the last one ends within an hour, or its store
        `refused` it. Threads that need one at once may all ask: a lock would add up their waits. At
        most once a minute it is asked for again.
        """
        now, until = system().clock.now_millis(), self._until
        if until is None or (refused is None and until - now > 3_600_000):
            return False
        if until and now - self._asked < 60_000:
            return (
                refused is not None and refused is not self.whole
            )  # another thread has opened it anew
        try:
            node = self._client.ask(
                "GET", f"{self._path}/token", patient=refused is not None or until <= now
            )
        except errors.Unavailable:
            self._asked = now
            if until <= now:
                raise
            return False  # the last one still opens the store
        token = {str(key): str(one) for key, one in (node.get("token") or {}).items()}
        own = {key.removeprefix(_CATALOG): one for key, one in self._options.items()}
        self.whole = self._opened(self.location, _of_store(self.location, own, token))
        self._until, self._asked = (
            int(node.get("expiresAtMillis") or now),
            now,
        )  # last: others read it first
        return True

    def read(
        self,
        path: str,
        limit: int = MOST_BYTES,
    ) -> bytes:
        """As of a storage. Of a snapshot that this process has sent, its own bytes: the server
        writes others.
        """
        found = _VERSION.fullmatch(path)
        if found is None:
            return cast(bytes, self.__getattr__("read")(path, limit))
        node = self._shown(found[1] or path.rpartition("/")[2])
        if node is None:
            text = (
                f"{self.location}/{path} is not there: the catalog's server shows no such snapshot."
            )
            raise errors.NotFound(text, path=path)
        if found[1] is None:
            return str(node["id"]).encode()
        sent = self._posted.get(str(node.get("deltaManifestList")))
        return json.dumps(node).encode() if sent is None else sent[0]

    def exists(self, path: str) -> bool:
        """As of a storage."""
        found = _VERSION.fullmatch(path)
        if found is None:
            return bool(self.__getattr__("exists")(path))
        return self._shown(found[1] or path.rpartition("/")[2]) is not None

    def list_files(
        self,
        folder: str,
        prefix: str = "",
    ) -> list[FileStat]:
        """As of a storage. No snapshot is above the latest one of the server, and that one is
        there.
        """
        files = cast(list[FileStat], self.__getattr__("list_files")(folder, prefix))
        if folder != SNAPSHOT_FOLDER:
            return files
        latest = self._shown("LATEST")
        newest = 0 if latest is None else int(latest["id"])
        kept = {
            one.path: one for one in files if (id_in_name(one.name, "snapshot-") or 0) <= newest
        }
        path = snapshot_path(newest)
        if latest is not None and path.startswith(f"{folder}/{prefix}"):
            kept.setdefault(
                path,
                FileStat(path=path, size=0, modified_millis=int(latest.get("timeMillis") or 0)),
            )
        return sorted(kept.values(), key=lambda one: one.path)

    def list_names(
        self,
        folder: str,
        prefix: str = "",
    ) -> list[str]:
        """As of a storage."""
        if folder != SNAPSHOT_FOLDER:
            return cast(list[str], self.__getattr__("list_names")(folder, prefix))
        return [one.name for one in self.list_files(folder, prefix)]

    def _shown(self, version: str) -> dict[str, Any] | None:
        """A snapshot by its id, LATEST or EARLIEST; None if there is none. Raises `TableReplaced`
        without a table.
        """
        path = (
            f"{self._path}/snapshot" if version == "LATEST" else f"{self._path}/snapshots/{version}"
        )
        try:
            node = self._client.ask("GET", path).get("snapshot")
        except errors.NotFound as gone:
            if gone.context["resource"] == "SNAPSHOT":
                return None
            odd = errors.Unavailable(gone.message, **gone.context)  # a gateway's 404 names no kind
            raise (self._replaced(gone) if gone.context["resource"] else odd) from None
        node = node.get("snapshot") if version == "LATEST" and isinstance(node, dict) else node
        if not isinstance(node, dict) or not isinstance(node.get("id"), int):
            raise errors.CorruptMetadata(
                f"The catalog's server shows no snapshot at {path}.", path=path
            )
        _remember(self._uuids, node["id"], node.get("uuid"))
        return node

    def _replaced(self, gone: errors.PaimonStreamError) -> errors.TableReplaced:
        text = f"{self.location}: the catalog has no such table, or another one of its name. Nothing was published. "
        return errors.TableReplaced(
            f"{text}Start the query again to decide. {gone.message}", table=self.location
        )

    def put_if_absent(
        self,
        path: str,
        data: bytes,
    ) -> PutResult:
        """As of a storage. For a snapshot, EXISTS is no proof, as everywhere: who holds the id is
        to be read.
        """
        found = _VERSION.fullmatch(path)
        if found is None or found[1] is None:
            return cast(PutResult, self.__getattr__("put_if_absent")(path, data))
        snapshot, number = json.loads(data), int(found[1])
        nonce = snapshot["deltaManifestList"]
        if sent := self._posted.get(
            nonce
        ):  # an answer was lost: look first, because the id may be free again by now
            body = sent[1]
            if self._shown(found[1]) is not None:
                return PutResult.EXISTS
            latest = self._shown("LATEST")
            if latest is not None and latest["id"] > number:
                raise errors.NotFound(
                    f"snapshot {number} is gone, and there are later ones", path=path
                )
        else:
            base = number - 1
            if base and base not in self._uuids and self._shown(str(base)) is None:
                raise errors.NotFound(
                    f"snapshot {base}, on which {number} is built, is gone. Run it again.",
                    path=path,
                )
            shown = {**snapshot, "uuid": system().ids.uuid()}
            body = {
                "tableId": self._id,
                "baseSnapshotUuid": self._uuids.get(base),
                "snapshot": shown,
                "statistics": [],
            }
            _remember(self._posted, nonce, (data, body))
        return self._commit(body)

    def _commit(self, body: dict[str, Any]) -> PutResult:
        """What the server says to a commit. `Unavailable`: unknown; other errors: nothing was done
        (§4).
        """
        why: errors.PaimonStreamError
        try:
            success = self._client.ask(
                "POST", f"{self._path}/commit", body, seconds=COMMIT_SECONDS
            ).get("success")
            if isinstance(success, bool):
                return PutResult.CREATED if success else PutResult.EXISTS
            why = errors.Unavailable(
                f"{self.location}: the catalog's server does not say whether it committed."
            )
        except errors.InvalidOption as refused:
            raise errors.StorageError(refused.message, **refused.context) from None
        except (errors.NotFound, errors.AlreadyExists, errors.UnsupportedFeature) as odd:
            if isinstance(odd, errors.NotFound) and odd.context["resource"] is not None:
                raise self._replaced(odd) from None
            why = odd
        raise errors.Unavailable(why.message, **why.context)


def _remember(known: dict[Any, Any], key: Any, value: Any) -> None:
    """In place, because other threads remember, too."""
    known[key] = value
    for old in list(known)[:-_REMEMBERED]:
        known.pop(old, None)


def _reopened(location: str, options: Mapping[str, str], store: Storage) -> RestStorage:
    return RestStorage(location, options, lambda *_: store)
