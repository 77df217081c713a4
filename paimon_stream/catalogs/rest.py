"""Paimon's REST catalog. A server knows the tables and publishes their snapshots
(docs/spec/catalogs.md §4). A table's storage options include the options of the catalog, as
`catalog.<option>`. So other processes need nothing else to open the table. urllib3 is imported when
the first request is sent. No message holds a token or a header.
"""

import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, cast
from urllib.parse import quote, urlencode

from paimon_stream import errors
from paimon_stream import options as opt
from paimon_stream.catalogs.filesystem import FilesystemCatalog, Named, names_of
from paimon_stream.catalogs.metastore import location_of_server
from paimon_stream.extras import require
from paimon_stream.options.store_names import store_option
from paimon_stream.runtime import Clock, system
from paimon_stream.storage.base import MOST_BYTES, FileStat, PutResult, Storage
from paimon_stream.storage.branch import PathPlace, StorageView
from paimon_stream.storage.location import KIND_OF, scheme_of, shown_location, store_location
from paimon_stream.storage.store_sources import options_for
from paimon_stream.storage.together import AT_ONCE
from paimon_stream.storage.uri import storage_options_for
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
"""The methods of a storage that change files."""
_OWNED: Final = re.compile(
    r"snapshot/(?!(LATEST|EARLIEST)\Z)|(schema|tag|branch)/|_paimon_stream/(branch|removed)\."
)
"""The files that only the server writes or deletes."""
_REMEMBERED: Final = 64
"""How many snapshots a process remembers that it has sent, or that the server has shown."""
_RENEWED_BEFORE_MILLIS: Final = 3_600_000
"""How long before its end a data token is renewed."""
_ASKED_EVERY_MILLIS: Final = 60_000
"""The server is asked for a data token at most this often."""
COMMIT_SECONDS: Final = 60.0
"""How long the answer to a commit may take."""
_TRIES: Final = 5
"""The most times that GET is sent to a server that does not answer, if no outage is waited for."""
_POOLS: Final[dict[int, Any]] = {}
"""The connections by process, because a forked child would share those of its parent."""
_ANSWERED: Final = set[str]()
"""The addresses at which a server has answered this process or its driver. Other addresses may be
wrong.
"""

_ERRORS: Final[Mapping[int, type[errors.PaimonStreamError]]] = {
    400: errors.InvalidOption,
    401: errors.PermissionDenied,
    403: errors.PermissionDenied,
    404: errors.NotFound,
    409: errors.AlreadyExists,
    501: errors.UnsupportedFeature,
}
"""The error for each status of an answer. Any other status is `Unavailable`."""

_LOOK: Final = "Look whether it was done, and try again."
_CHECK: Final = "Check what was asked for, and the options 'uri', 'warehouse' and 'token'."


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RestClient:
    """The server that the options of a catalog name.

    Pickles of the client contain the server's token; `repr` and messages do not. If the server has
    answered before, requests wait for the end of an outage, as requests to a store do.

    Attributes:
        uri: the server's address, without a slash at its end.
        prefix: the beginning of each path; empty if there is none.
        headers: the headers of each request, with the login.
        max_outage_millis: how many milliseconds a request waits for the end of an outage.
        clock: the clock that measures and waits; None for the clock of this machine.
    """

    uri: str
    prefix: str
    headers: Mapping[str, str]
    max_outage_millis: int = 0
    clock: Clock | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "RestClient":
        """The server that the options of a catalog name. Raises `InvalidOption`, and
        `UnsupportedFeature` for a login that does not use a bearer token.
        """
        uri = options.get("uri", "")
        provider = options.get("token.provider", "bear")
        token = options.get("token")
        if not uri.lower().startswith(("http://", "https://")):
            raise errors.InvalidOption(
                f"Option 'uri' is {shown_location(uri)!r}. "
                "Set it to the server's address, https://host:port.",
                option="uri",
            )
        if provider != "bear":
            raise errors.UnsupportedFeature(
                f"Option 'token.provider' is {provider!r}, which is not supported. "
                "Use 'bear' with a 'token'.",
                option="token.provider",
                value=provider,
            )
        if token is None and "token.provider" in options:
            raise errors.InvalidOption(
                "Option 'token.provider' is 'bear'. Set 'token', too.", option="token"
            )
        headers = {
            key.removeprefix("header."): value
            for key, value in options.items()
            if key.startswith("header.")
        }
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
        body: Mapping[str, Any] | None = None,
        *,
        seconds: float = 20,
        patient: bool = True,
    ) -> dict[str, Any]:
        """The answer to one request; {} for an empty answer. Only GET is repeated.

        Args:
            verb: the HTTP method.
            path: the path of the resource, below the prefix.
            body: the JSON that is sent; None for no body.
            seconds: how long an answer may take.
            patient: whether the request waits for the end of an outage. If False, GET is sent at
                most `_TRIES` times.

        Raises:
            PaimonStreamError: the error of the answer's status (`_ERRORS`). The context of the
                error has the `status`. If a thing was not found, it has the kind of this thing as
                `resource`.
            Unavailable: it is unknown whether the request was carried out.
        """
        if self.prefix:
            path = f"{quote(self.prefix)}/{path}"
        clock = self.clock or system().clock
        tries = 1
        began = clock.monotonic()
        while True:
            try:
                answer = self._send(verb, path, body, seconds)
                _ANSWERED.add(self.uri)
                return answer
            except errors.Unavailable as failure:
                left = 0.0
                if patient and self.uri in _ANSWERED:
                    left = self.max_outage_millis / 1000 - clock.monotonic() + began
                may_try_again = tries < _TRIES or left > 0
                if verb != "GET" or not may_try_again:
                    raise
                _wait_before_try(clock, failure, tries, left)
                tries += 1

    def names(
        self,
        path: str,
        key: str,
    ) -> Iterator[str]:
        """The names that a listing has under `key`, from all of its pages. Raises the errors of
        `ask`.
        """
        token = ""
        seen = set[str]()
        while token not in seen:
            seen.add(token)
            query = f"?{urlencode({'pageToken': token})}" if token else ""
            page = self.ask("GET", f"{path}{query}")
            yield from map(str, page.get(key) or ())
            token = str(page.get("nextPageToken") or "")

    def _send(
        self, verb: str, path: str, body: Mapping[str, Any] | None, seconds: float
    ) -> dict[str, Any]:
        """Sends one request once, and returns the answer."""
        urllib3 = require("urllib3", "rest", "A REST catalog")
        process = os.getpid()
        pool = _POOLS.get(process) or _POOLS.setdefault(
            process, urllib3.PoolManager(maxsize=AT_ONCE)
        )
        encoded = None
        if body is not None:
            encoded = json.dumps(body).encode()
        content = b""
        status = 0
        retry_after = ""
        answer: Any
        try:
            response = pool.request(
                verb,
                f"{self.uri}/v1/{path}",
                body=encoded,
                headers={"Content-Type": "application/json", **self.headers},
                timeout=urllib3.Timeout(connect=10, read=seconds),
                retries=False,
                redirect=False,
            )
            content = response.data
            status = response.status
            retry_after = response.headers.get("Retry-After", "")
            answer = json.loads(content) if content else {}
        except (urllib3.exceptions.HTTPError, OSError) as broken:
            # The text of the error may hold parts of the address.
            answer = type(broken).__name__
        except ValueError:
            answer = content.decode("utf-8", "replace")
        if 200 <= status < 300 and isinstance(answer, dict):
            return answer
        raise self._failure(f"{verb} {path}", status, answer, retry_after)

    def _failure(
        self, request: str, status: int, answer: Any, retry_after: str
    ) -> errors.PaimonStreamError:
        """The error of a request that failed.

        Args:
            request: the verb and the path.
            status: the status of the answer; 0 if there was none.
            answer: the JSON of the answer, or its text if it is not JSON. If there was no answer,
                the reason.
            retry_after: the header of that name; empty if there is none.
        """
        message = answer
        resource = None
        if isinstance(answer, dict):
            message = answer.get("message")
            resource = answer.get("resourceType")
        kind = _ERRORS.get(status, errors.Unavailable)
        answered = f"answered {status}" if status else "gave no answer"
        advice = _LOOK if kind is errors.Unavailable else _CHECK
        shown = shown_location(self.uri)
        context: dict[str, Any] = {"uri": shown, "status": status, "resource": resource}
        context["wait"] = float(retry_after) if retry_after.isdecimal() else 0.0
        if resource in ("DATABASE", "TABLE"):
            context[resource.lower()] = request.partition(" ")[2]
        return kind(
            f"The catalog's server {shown} {answered} to {request}: "
            f"{self._without_secrets(str(message or ''))[:300]}. {advice}",
            **context,
        )

    def _without_secrets(self, text: str) -> str:
        """The text, in which the values of headers are replaced by stars."""
        secrets = {value.removeprefix("Bearer ") for value in self.headers.values()} - {""}
        # The longest value comes first, because one secret may be a part of another.
        hidden = "|".join(map(re.escape, sorted(secrets, key=len, reverse=True)))
        return re.sub(hidden, "***", text) if hidden else text


def _wait_before_try(clock: Clock, failure: errors.Unavailable, tries: int, left: float) -> None:
    """Waits after this many tries. Warns once, when the server is asked on only because an outage
    may last for `left` more seconds.
    """
    if tries == _TRIES:
        _LOG.warning(
            "%s It is asked for %.0f s more (%s).",
            failure,
            left,
            opt.STORE_MAX_OUTAGE.key,
        )
    wait = failure.context["wait"] or 0.1 * 2 ** min(tries, 7)
    clock.sleep(min(wait, 10))


def path_of(*names: str) -> str:
    """The path of a database, or of a table in it."""
    database, *tables = [quote(name, safe="") for name in names]
    return "/tables/".join((f"databases/{database}", *tables))


class RestCatalog(FilesystemCatalog):
    """The databases and tables that a server knows. `storage_options` are all options of the
    catalog. No request is sent before the first method is called. All methods raise
    `InvalidOption`, `StorageError`, and `UnsupportedFeature` if the server does not support the
    call.
    """

    @property
    def _options(self) -> Mapping[str, str]:
        """The options that are used (`_negotiated`). The server is asked for its own options."""
        return _negotiated(self.warehouse, tuple(sorted(self.storage_options.items())))

    @property
    def _client(self) -> RestClient:
        return RestClient.of(self._options)

    def found(self, identifier: Named) -> tuple[str, Mapping[str, str]]:
        """The location of a table, and the storage options that open it. Raises `NotFound`."""
        path_in_catalog = path_of(*_names(identifier))
        table = self._client.ask("GET", path_in_catalog)
        location = location_of_server(str(table.get("path") or ""))
        if table.get("isExternal"):  # the server does not commit to it (docs/spec/catalogs.md §4)
            return location, _of_store(location, self._options)
        return location, {
            **{_key_for_storage(key): value for key, value in self._options.items()},
            "metastore": "rest",
            f"{_CATALOG}identifier": path_in_catalog,
            f"{_CATALOG}table-id": str(table.get("id")),
        }

    def location(self, identifier: Named) -> str:
        """The folder of a table. The server is asked for the folder."""
        location, _ = self.found(identifier)
        return location

    def list_databases(self) -> list[str]:
        """The names of the databases, sorted."""
        return sorted(self._client.names("databases", "databases"))

    def create_database(
        self,
        name: str,
        ignore_if_exists: bool = False,
    ) -> None:
        """Creates an empty database. Raises `AlreadyExists` if there is such a database and
        `ignore_if_exists` is not set.
        """
        ignored = opt.Arguments(self.warehouse).flag("ignore_if_exists", ignore_if_exists)
        self._ask(
            "POST",
            "databases",
            {"name": _name(name), "options": {}},
            failure=errors.AlreadyExists,
            ignored=ignored,
        )

    def drop_database(
        self,
        name: str,
        ignore_if_not_exists: bool = False,
        cascade: bool = False,
    ) -> None:
        """Deletes a database and, with `cascade`, its tables. Raises `NotFound`, and
        `InvalidOption` if the database has tables and `cascade` is not set.
        """
        arguments = opt.Arguments(self.warehouse)
        ignored = arguments.flag("ignore_if_not_exists", ignore_if_not_exists)
        with_tables = arguments.flag("cascade", cascade)
        if ignored and name not in self.list_databases():
            return
        # With `cascade`, the server drops the tables.
        tables = [] if with_tables else self.list_tables(name)
        if tables:
            raise errors.InvalidOption(
                f"Database {name!r} has {len(tables):,} tables. "
                "Drop them first, or pass cascade=True.",
                option="cascade",
                path=self.warehouse,
            )
        self._ask("DELETE", path_of(_name(name)), failure=errors.NotFound, ignored=ignored)

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
        """Asks the server to drop a table. Raises `NotFound`."""
        ignored = opt.Arguments(self.warehouse).flag("ignore_if_not_exists", ignore_if_not_exists)
        self._ask("DELETE", path_of(*_names(identifier)), failure=errors.NotFound, ignored=ignored)

    def rename_table(
        self,
        source: Named,
        target: Named,
    ) -> None:
        """Asks the server to rename a table. Raises `NotFound`, and `AlreadyExists` if the target
        exists.
        """
        names = {"source": _names(source), "destination": _names(target)}
        body = {
            role: {"database": database, "object": table}
            for role, (database, table) in names.items()
        }
        self._client.ask("POST", "tables/rename", body)

    def post_table(
        self,
        identifier: Named,
        schema: Mapping[str, Any],
        *,
        ignored: bool,
    ) -> None:
        """Asks the server to create a table.

        Args:
            identifier: the name of the table.
            schema: the JSON of the table's first schema.
            ignored: whether nothing is done if there is such a table.

        Raises:
            AlreadyExists: there is such a table, and `ignored` is not set.
        """
        database, table = _names(identifier)
        sent = {
            key: schema.get(key)
            for key in ("fields", "partitionKeys", "primaryKeys", "options", "comment")
        }
        body = {"identifier": {"database": database, "object": table}, "schema": sent}
        self._ask(
            "POST",
            f"{path_of(database)}/tables",
            body,
            failure=errors.AlreadyExists,
            ignored=ignored,
        )

    def post_changes(
        self,
        identifier: Named,
        changes: Sequence[SchemaChange],
    ) -> None:
        """Asks the server to change a schema. Raises `NotFound`, and `InvalidOption` if the server
        refuses.
        """
        self._client.ask(
            "POST", path_of(*_names(identifier)), {"changes": [*map(change_json, changes)]}
        )

    def _ask(
        self,
        verb: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        failure: type[errors.StorageError],
        ignored: bool,
    ) -> None:
        """Asks the server. An error of the class `failure` is not raised if `ignored` is set."""
        try:
            self._client.ask(verb, path, body)
        except failure:
            if not ignored:
                raise


def change_json(change: SchemaChange) -> dict[str, Any]:
    """A change in the form of Paimon's REST API. Raises `IncompatibleSchema` for a type that does
    not exist.
    """
    action = change.action
    value: Any = change.value
    if action in ("addColumn", "updateColumnType"):
        value = type_of(change).to_json()
    details: dict[str, Any] = {
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
    return {"action": action, **column, **details}


@lru_cache
def _negotiated(warehouse: str, options: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """The options that are used. The catalog's options override the server's defaults. The server's
    overrides come over both.
    """
    answer = RestClient.of({**dict(options), "prefix": ""}).ask(
        "GET", f"config?{urlencode({'warehouse': warehouse})}"
    )
    return {**_texts(answer, "defaults"), **dict(options), **_texts(answer, "overrides")}


def _texts(answer: Mapping[str, Any], key: str) -> dict[str, str]:
    """The mapping of texts that an answer has under a key; {} if the answer does not have the
    key.
    """
    return {str(name): str(value) for name, value in (answer.get(key) or {}).items()}


_names: Final = partial(names_of, main=True)  # branches are not opened


def _name(database: str) -> str:
    """The name of a database. Raises `InvalidOption` for a name that no database can have."""
    checked, _ = names_of((database, "t"))
    return checked


def _key_for_storage(key: str) -> str:
    """The key under which the storage gets an option of the catalog. Options of the server get a
    prefix, which distinguishes them from options of the object store.
    """
    return f"{_CATALOG}{key}" if OF_SERVER.fullmatch(key) else key


def _of_store(
    location: str, options: Mapping[str, str], token: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The options of the store of a table. If there is a data `token`, it replaces the login in
    these options.
    """
    of_store = {key: value for key, value in options.items() if not OF_SERVER.fullmatch(key)}
    kind = KIND_OF.get(scheme_of(location))
    if kind is None:
        unsafe = opt.UNSAFE_SINGLE_WRITER.key
        own = {key: value for key, value in of_store.items() if key == unsafe}
        return {**own, **storage_options_for(location, of_store)}
    if token is not None:
        if endpoint := options.get("dlf.oss-endpoint"):
            token = {**token, "fs.oss.endpoint": endpoint}
        replaced = {name.option.key for key in token if (name := store_option(kind, key))}
        stays = {
            key: value for key, value in of_store.items() if not _is_of_login(kind, key, replaced)
        }
        of_store = {**stays, **token}
    return options_for(store_location(location), of_store)


def _is_of_login(kind: str, key: str, replaced: set[str]) -> bool:
    """Whether an option of a store is a part of the login, or is one of the `replaced` options."""
    name = store_option(kind, key)
    return name is not None and (name.option.login or name.option.key in replaced)


def open_table(
    location: str,
    options: Mapping[str, str],
    opened: Callable[..., Storage],
) -> Storage:
    """The storage of a table whose snapshots the server publishes.

    Args:
        location: the table's folder.
        options: the storage options that `RestCatalog.found` returned.
        opened: a function that opens the store at a location, with the options of the store.

    Raises:
        InvalidOption: the options do not come from `RestCatalog.found`.
    """
    if f"{_CATALOG}table-id" not in options:
        raise errors.InvalidOption(
            f"{location} is a table of a REST catalog. Open it by its name: "
            "catalog(options).get_table('database.table').",
            option="metastore",
            location=location,
        )
    return cast(Storage, RestStorage(location.rstrip("/"), options, opened))


class _PostedSnapshot(NamedTuple):
    """A snapshot that was sent to the server.

    Attributes:
        data: the bytes of the snapshot's file.
        body: the body of the request that sent the snapshot.
    """

    data: bytes
    body: dict[str, Any]


class _Token(NamedTuple):
    """The times of the last data token.

    Attributes:
        ends: when the token ends, in epoch milliseconds; 0 before the first token.
        asked: when the server was last asked for a token, in epoch milliseconds.
    """

    ends: int
    asked: int


class RestStorage(StorageView):
    """The files of a table. The table's snapshots are those that the server shows, and only the
    server creates snapshots. Callers use this class as a `Storage`. If the server gives data
    tokens, each process opens the store with such a token.

    Attributes:
        location: the table's folder.
        wrapped: the store of the files. It is unset before the first token.
    """

    __slots__ = (
        "_client",
        "_id",
        "_opened",
        "_options",
        "_path",
        "_posted",
        "_token",
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
        of_catalog = {
            key.removeprefix(_CATALOG): value
            for key, value in options.items()
            if key.startswith(_CATALOG)
        }
        waits = {key: value for key, value in options.items() if key == opt.STORE_MAX_OUTAGE.key}
        self.location = location
        self._options = options
        self._opened = opened
        self._client = RestClient.of(of_catalog | waits)
        self._path = of_catalog["identifier"]
        self._id = of_catalog["table-id"]
        # The snapshots that were sent, by their nonces.
        self._posted: dict[str, _PostedSnapshot] = {}
        # The UUIDs of the snapshots that the server has shown, by their ids.
        self._uuids: dict[int, Any] = {}
        _ANSWERED.add(self._client.uri)  # only a server gives a table's id
        self._token: _Token | None = None  # None if the server gives no tokens
        if of_catalog.get("data-token.enabled", "").lower() == "true":
            self._token = _Token(ends=0, asked=0)
        else:
            self.wrapped = opened(location, _of_store(location, options))

    def __reduce__(self) -> tuple[Any, ...]:
        if self._token is None:
            return _reopened, (self.location, self._options, self.wrapped)
        opened = self._opened
        spark = getattr(opened, "keywords", {}).get("spark")
        if spark is not None:
            opened = partial(opened, spark=partial(dict, spark()))
        return RestStorage, (self.location, self._options, opened)

    def __getattr__(self, name: str) -> Any:
        if name == "wrapped":  # the slot is empty before the first token
            self._renew()
            return self.wrapped
        call = super().__getattr__(name)
        if name not in _CHANGING and (self._token is None or not callable(call)):
            return call

        def checked(target: Any, *others: Any, **named: Any) -> Any:
            if name in _CHANGING:
                items = [target] if isinstance(target, str) else target
                refused = self._refusals(items)
                if name == "delete_all":
                    return {**call([path for path in target if path not in refused]), **refused}
                if refused:
                    raise next(iter(refused.values()))
                if isinstance(target, str) and target.startswith("snapshot/"):
                    return None  # hints are the server's
            used = self.wrapped  # another thread may replace the store meanwhile
            try:
                return call(target, *others, **named)
            except errors.PermissionDenied:
                if not self._renew(refused=used):
                    raise
                return call(target, *others, **named)

        return checked if name != "together" else call

    def _place(self, path: str) -> PathPlace:
        self._renew()
        return PathPlace(self.wrapped)

    def _refusals(self, items: Sequence[Any]) -> dict[str, errors.UnsupportedFeature]:
        """The error for each path that this class does not write or delete. Each item is a path, or
        a pair of a path and its content.
        """
        paths = [item if isinstance(item, str) else item[0] for item in items]
        return {path: self._refusal(path) for path in paths if _OWNED.match(path)}

    def _refusal(self, path: str) -> errors.UnsupportedFeature:
        return errors.UnsupportedFeature(
            f"{self.location}/{path} was not changed, because a REST catalog's server owns it. "
            "Change the schema with the catalog's alter_table. Expire snapshots, roll back, and "
            "make tags and branches on the server or with another engine.",
            table=self.location,
            path=path,
        )

    def _renew(self, *, refused: Storage | None = None) -> bool:
        """Opens the store with a new token if the last one ends within an hour. `refused` is a
        store that has refused its token. This token is then also renewed. Returns whether `wrapped`
        is another store now.

        Threads that need a token at the same time may all ask for one. With a lock, they would wait
        one after the other. Within a minute, the server is not asked again.
        """
        last = self._token
        if last is None:
            return False
        now = system().clock.now_millis()
        has_ended = last.ends <= now
        if refused is None and last.ends - now > _RENEWED_BEFORE_MILLIS:
            return False
        if last.ends and now - last.asked < _ASKED_EVERY_MILLIS:
            # Another thread may have replaced the store.
            return refused is not None and refused is not self.wrapped
        try:
            answer = self._client.ask(
                "GET", f"{self._path}/token", patient=refused is not None or has_ended
            )
        except errors.Unavailable:
            self._token = last._replace(asked=now)
            if has_ended:
                raise
            return False  # the last token still opens the store
        options = {key.removeprefix(_CATALOG): value for key, value in self._options.items()}
        login = _texts(answer, "token")
        self.wrapped = self._opened(self.location, _of_store(self.location, options, login))
        # The times are set last, because other threads that see them assume that the store is open.
        self._token = _Token(ends=int(answer.get("expiresAtMillis") or now), asked=now)
        return True

    def read(
        self,
        path: str,
        limit: int = MOST_BYTES,
    ) -> bytes:
        """See `Storage.read`. For a snapshot that this process has sent, returns the bytes that
        were sent, because the server writes other bytes.
        """
        version = _version_at(path)
        if version is None:
            return cast(bytes, self.__getattr__("read")(path, limit))
        snapshot = self._shown(version)
        if snapshot is None:
            raise errors.NotFound(
                f"{self.location}/{path} is not there: "
                "the catalog's server shows no such snapshot.",
                path=path,
            )
        if not version.isdecimal():
            return str(snapshot["id"]).encode()
        posted = self._posted.get(str(snapshot.get("deltaManifestList")))
        return json.dumps(snapshot).encode() if posted is None else posted.data

    def exists(self, path: str) -> bool:
        """See `Storage.exists`."""
        version = _version_at(path)
        if version is None:
            return bool(self.__getattr__("exists")(path))
        return self._shown(version) is not None

    def list_files(
        self,
        folder: str,
        prefix: str = "",
    ) -> list[FileStat]:
        """See `Storage.list_files`. Snapshots above the server's latest one are not shown. The
        latest one is always shown.
        """
        files = cast(list[FileStat], self.__getattr__("list_files")(folder, prefix))
        if folder != SNAPSHOT_FOLDER:
            return files
        latest = self._shown("LATEST")
        newest = 0 if latest is None else int(latest["id"])
        shown = {
            file.path: file for file in files if (id_in_name(file.name, "snapshot-") or 0) <= newest
        }
        path = snapshot_path(newest)
        if latest is not None and path.startswith(f"{folder}/{prefix}"):
            millis = int(latest.get("timeMillis") or 0)
            shown.setdefault(path, FileStat(path=path, size=0, modified_millis=millis))
        return sorted(shown.values(), key=lambda file: file.path)

    def list_names(
        self,
        folder: str,
        prefix: str = "",
    ) -> list[str]:
        """See `Storage.list_names`."""
        if folder != SNAPSHOT_FOLDER:
            return cast(list[str], self.__getattr__("list_names")(folder, prefix))
        return [file.name for file in self.list_files(folder, prefix)]

    def _shown(self, version: str) -> dict[str, Any] | None:
        """A snapshot by its id, LATEST or EARLIEST; None if there is none. Raises `TableReplaced`
        if the server no longer has the table.
        """
        is_latest = version == "LATEST"
        path = f"{self._path}/snapshot" if is_latest else f"{self._path}/snapshots/{version}"
        try:
            snapshot = self._client.ask("GET", path).get("snapshot")
        except errors.NotFound as missing:
            resource = missing.context["resource"]
            if resource == "SNAPSHOT":
                return None
            if resource:
                raise self._replaced(missing) from None
            # A gateway may also answer 404. Such an answer names no kind of resource.
            raise errors.Unavailable(missing.message, **missing.context) from None
        if is_latest and isinstance(snapshot, dict):
            snapshot = snapshot.get("snapshot")
        if not isinstance(snapshot, dict) or not isinstance(snapshot.get("id"), int):
            raise errors.CorruptMetadata(
                f"The catalog's server shows no snapshot at {path}.", path=path
            )
        _remember(self._uuids, snapshot["id"], snapshot.get("uuid"))
        return snapshot

    def _replaced(self, missing: errors.PaimonStreamError) -> errors.TableReplaced:
        return errors.TableReplaced(
            f"{self.location}: the catalog no longer has this table, or it has another table with "
            "this name. Nothing was published. Start the query again: if the table was replaced, "
            f"its error says how to continue. {missing.message}",
            table=self.location,
        )

    def put_if_absent(
        self,
        path: str,
        data: bytes,
    ) -> PutResult:
        """See `Storage.put_if_absent`. For a snapshot, EXISTS does not prove who wrote it, as with
        all storages. The caller reads the snapshot that has the id.
        """
        version = _version_at(path)
        if version is None or not version.isdecimal():
            return cast(PutResult, self.__getattr__("put_if_absent")(path, data))
        snapshot = json.loads(data)
        nonce = snapshot["deltaManifestList"]
        posted = self._posted.get(nonce)
        if posted is None:
            body = self._new_commit(int(version), snapshot, path)
            _remember(self._posted, nonce, _PostedSnapshot(data, body))
            return self._commit(body)
        # An answer was lost. The server is asked for the snapshot first, because its id may be free
        # again now.
        if self._shown(version) is not None:
            return PutResult.EXISTS
        latest = self._shown("LATEST")
        if latest is not None and latest["id"] > int(version):
            raise errors.NotFound(
                f"snapshot {int(version)} is gone, and there are later ones", path=path
            )
        return self._commit(posted.body)

    def _new_commit(self, number: int, snapshot: dict[str, Any], path: str) -> dict[str, Any]:
        """The body of the request that commits a snapshot. Raises `NotFound` if the snapshot before
        it no longer exists.
        """
        base = number - 1
        if base and base not in self._uuids and self._shown(str(base)) is None:
            raise errors.NotFound(
                f"snapshot {base}, on which {number} is built, is gone. Run it again.",
                path=path,
            )
        return {
            "tableId": self._id,
            "baseSnapshotUuid": self._uuids.get(base),
            "snapshot": {**snapshot, "uuid": system().ids.uuid()},
            "statistics": [],
        }

    def _commit(self, body: dict[str, Any]) -> PutResult:
        """Sends a commit, and returns the server's answer. After `Unavailable` it is unknown
        whether the snapshot was published. After any other error, nothing was done (§4).
        """
        try:
            success = self._client.ask(
                "POST", f"{self._path}/commit", body, seconds=COMMIT_SECONDS
            ).get("success")
        except errors.InvalidOption as refused:
            raise errors.StorageError(refused.message, **refused.context) from None
        except (errors.NotFound, errors.AlreadyExists, errors.UnsupportedFeature) as odd:
            if isinstance(odd, errors.NotFound) and odd.context["resource"] is not None:
                raise self._replaced(odd) from None
            raise errors.Unavailable(odd.message, **odd.context) from None
        if isinstance(success, bool):
            return PutResult.CREATED if success else PutResult.EXISTS
        raise errors.Unavailable(
            f"{self.location}: the catalog's server does not say whether it committed."
        )


def _version_at(path: str) -> str | None:
    """The version of the snapshot whose file is at a path: an id, LATEST or EARLIEST. None for the
    path of any other file.
    """
    version = _VERSION.fullmatch(path)
    if version is None:
        return None
    return version[1] or path.rpartition("/")[2]


def _remember(known: dict[Any, Any], key: Any, value: Any) -> None:
    """Adds a value in place, because other threads also add values. The oldest values are
    dropped.
    """
    known[key] = value
    for old in list(known)[:-_REMEMBERED]:
        known.pop(old, None)


def _reopened(location: str, options: Mapping[str, str], store: Storage) -> RestStorage:
    return RestStorage(location, options, lambda *_: store)
