"""Paimon's JDBC catalog: tables are rows of a database, and folders of a warehouse (catalogs.md
§4). Its lock, a row, is taken around what publishes a snapshot or a schema, because Java does so in
two steps. Only the lock and the catalog's own methods ask the database, so executors need no
access.
"""

import logging
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Final, cast
from urllib.parse import parse_qsl, unquote

from paimon_stream import errors
from paimon_stream import options as opt
from paimon_stream.catalogs.filesystem import OF_DATABASE, FilesystemCatalog, Named, names_of
from paimon_stream.extras import require
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.options.option import duration
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import PutResult, Storage
from paimon_stream.storage.branch import Place, StorageView
from paimon_stream.storage.location import KIND_OF, scheme_of, shown_location

_LOG = logging.getLogger(__name__)

_NAME: Final = "VARCHAR(255) NOT NULL"
_ROW: Final = f"catalog_key {_NAME}, database_name {_NAME}"
_VALUE: Final = "property_value VARCHAR(1000), PRIMARY KEY (catalog_key, database_name"
_TABLES: Final = {
    "paimon_tables": f"{_ROW}, table_name {_NAME}, PRIMARY KEY (catalog_key, database_name, table_name)",
    "paimon_database_properties": f"{_ROW}, property_key VARCHAR(255), {_VALUE}, property_key)",
    "paimon_table_properties": f"{_ROW}, table_name {_NAME}, property_key {_NAME}, {_VALUE}, table_name, property_key)",
    "paimon_distributed_locks": f"lock_id {_NAME}, acquired_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP NOT NULL, "
    "expire_time_seconds BIGINT DEFAULT 0 NOT NULL, PRIMARY KEY (lock_id)",
}
_LOCKS: Final = "paimon_distributed_locks WHERE lock_id = :lock"
_TABLE, _DATABASE, _OPTIONS = list(_TABLES)[:3]
_ONE: Final = "catalog_key = :key AND database_name = :db"
# The driver, its name for SQLAlchemy, and the age of a lock in seconds by the database's own clock.
_KINDS: Final = {
    "sqlite": ("sqlite3", "sqlite", "strftime('%s', 'now') - strftime('%s', acquired_at)"),
    "mysql": ("pymysql", "mysql+pymysql", "TIMESTAMPDIFF(SECOND, acquired_at, NOW())"),
    "postgresql": ("psycopg", "postgresql+psycopg", "EXTRACT(EPOCH FROM AGE(NOW(), acquired_at))"),
}
_URI: Final = re.compile(
    r"jdbc:(\w+):(?://([^/:?@,]+)(?::([0-9]{1,5}))?/)?(?!//)([^?]+)(?:\?(.*))?"
)
_MAX_SLEEP: Final = opt.Option(
    "lock-check-max-sleep", duration, "8 s", "The longest wait between two looks."
)
_TIMEOUT: Final = opt.Option(
    "lock-acquire-timeout", duration, "8 min", "How long a lock is waited for, and lasts."
)
_SYNC: Final = opt.Option(
    "sync-all-properties", opt.boolean, "true", "Whether rows hold the options of tables."
)
_PUBLISHED: Final = re.compile(
    r"(?:branch/branch-([^/]+)/)?(?:snapshot/snapshot|schema/schema)-\d+"
)
_FOLDER: Final = re.compile(r"([^/]+)\.db/+([^/]+)/*\Z")
_LAST_SECONDS: Final = 60  # a put may take as long, so a lock that expires sooner is not used


class JdbcCatalog(FilesystemCatalog):
    """The tables of a warehouse that are in a database. Also raises `Unavailable` if the database
    fails, other `StorageError`s if there is no connection, `MissingExtra` without SQLAlchemy or the
    driver.
    """

    def list_databases(self) -> list[str]:
        """The names of the databases, sorted."""
        named = [
            f"SELECT database_name FROM {rows} WHERE catalog_key = :key"
            for rows in (_TABLE, _DATABASE)
        ]
        return sorted(one[0] for one in ask(self.storage_options, " UNION ".join(named)))

    def create_database(
        self,
        name: str,
        ignore_if_exists: bool = False,
    ) -> None:
        """Creates an empty database. Raises `AlreadyExists`."""
        if not self._has(name):
            added = f"INSERT INTO {_DATABASE} VALUES (:key, :db, 'exists', 'true'), (:key, :db, 'location', :at)"
            with suppress(errors.AlreadyExists):  # somebody else was first
                ask(self.storage_options, added, db=name, at=f"{self.warehouse}/{name}.db")
                return
        super().create_database(name, ignore_if_exists)

    def list_tables(self, database: str) -> list[str]:
        """The names of the tables of a database, sorted. Raises `NotFound` if there is no such
        database.
        """
        self._folder(database)
        found = ask(
            self.storage_options, f"SELECT table_name FROM {_TABLE} WHERE {_ONE}", db=database
        )
        return sorted(one[0] for one in found)

    def found(self, identifier: Named) -> tuple[str, Mapping[str, str]]:
        """The location of a table, or of its branch, and the storage options that open it. Raises
        `NotFound`.
        """
        database, table = names_of(identifier)
        if table.partition("$")[0] in self.list_tables(database):
            return super().found(identifier)
        text = f"There is no table '{database}.{table}' in the catalog. Correct the name, or create the table first."
        raise errors.NotFound(text, path=self.location(identifier))

    def drop_table(
        self,
        identifier: Named,
        ignore_if_not_exists: bool = False,
    ) -> None:
        """Deletes a table: its row, and then its files. Raises `NotFound`."""
        database, table = names_of(identifier, main=True)
        if not ignore_if_not_exists or table in self.list_tables(database):
            self.found(identifier)
            rows = [
                f"DELETE FROM {rows} WHERE {_ONE} AND table_name = :t"
                for rows in (_TABLE, _OPTIONS)
            ]
            ask(self.storage_options, *rows, db=database, t=table)
            super().drop_table(identifier, True)

    def rename_table(
        self,
        source: Named,
        target: Named,
    ) -> None:
        """Renames the rows and the folder of a table. Raises the errors of `FilesystemCatalog`."""
        (db, t), (new, name) = names_of(source, main=True), names_of(target, main=True)
        self.found(source)
        moved = f"SET database_name = :new, table_name = :name WHERE {_ONE} AND table_name = :t"
        then = partial(super().rename_table, source, target)
        rows = [f"UPDATE {rows} {moved}" for rows in (_TABLE, _OPTIONS)]
        ask(self.storage_options, *rows, then=then, db=db, t=t, new=new, name=name)

    def _forget(self, name: str) -> None:
        ask(self.storage_options, f"DELETE FROM {_DATABASE} WHERE {_ONE}", db=name)

    def _finds(self, database: str) -> bool:
        return database in self.list_databases()

    def _keep(self, identifier: Named, schema: TableSchema, *, new: bool) -> None:
        """The row of a new table, and its options and keys, as Java copies them."""
        db, t = names_of(identifier)
        if new:
            with suppress(errors.AlreadyExists):
                ask(
                    self.storage_options, f"INSERT INTO {_TABLE} VALUES (:key, :db, :t)", db=db, t=t
                )
        if "$" in t or not opt.Options(self.storage_options).value(_SYNC):
            return
        keys = {"primary-key": schema.primary_keys, "partition": schema.partition_keys}
        keys["bucket-key"] = tuple(
            name for name in schema.primary_keys if name not in schema.partition_keys
        )
        found = {
            **{name: ",".join(columns) for name, columns in keys.items() if columns},
            **schema.options,
        }
        added = [
            f"INSERT INTO {_OPTIONS} VALUES (:key, :db, :t, :n{i}, :v{i})"
            for i in range(len(found))
        ]
        pairs = {
            f"{'nv'[j]}{i}": text
            for i, pair in enumerate(found.items())
            for j, text in enumerate(pair)
        }
        gone = f"DELETE FROM {_OPTIONS} WHERE {_ONE} AND table_name = :t"
        with suppress(
            errors.AlreadyExists
        ):  # the copy of somebody who altered the table at the same time
            ask(self.storage_options, gone, *added, db=db, t=t, **pairs)


def open_table(
    location: str,
    options: Mapping[str, str],
    opened: Callable[..., Storage],
) -> Storage:
    """The files of a table in a JDBC catalog, as a view that takes its lock if Java does: by
    default on object stores. Asks nothing. Raises `InvalidOption`. The warehouse itself is opened
    without the catalog.
    """
    own = {
        key.lower(): value for key, value in options.items() if OF_DATABASE.fullmatch(key.lower())
    }
    whole = opened(
        location, {key: value for key, value in options.items() if key.lower() not in own}
    )
    wanted = opt.Option(
        "lock.enabled", opt.boolean, str(scheme_of(location) in KIND_OF), "Whether there is a lock."
    )
    if location.rstrip("/") == own.get("warehouse", "").rstrip("/") or not opt.Options(own).value(
        wanted
    ):
        return whole
    if (named := _FOLDER.search(location)) is None:
        text = f"{whole.location} is no table of a JDBC catalog. Name a table in <warehouse>/<database>.db/<table>."
        raise errors.InvalidOption(text, option="metastore")
    return cast(
        Storage,
        LockedStorage(whole, own, f"{own.get('catalog-key', 'jdbc')}.{named[1]}.{named[2]}"),
    )


class LockedStorage(StorageView):
    """The files of a table. Callers see it as a `Storage`, which puts snapshots and schemas under
    the lock.
    """

    __slots__ = ("named", "options", "runtime")
    takes_lock = True

    def __init__(
        self,
        whole: Storage,
        options: Mapping[str, str],
        named: str,
        runtime: Runtime | None = None,
    ) -> None:
        self.whole, self.options, self.named, self.runtime = (
            whole,
            options,
            named,
            runtime or system(),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return LockedStorage, (self.whole, self.options, self.named)

    def _place(self, path: str) -> Place:
        return Place(self.whole)

    def put_if_absent(
        self,
        path: str,
        data: bytes,
    ) -> PutResult:
        """See `Storage.put_if_absent`. Raises `CommitContended`, with nothing done, if the lock
        stays another's.
        """
        published = _PUBLISHED.fullmatch(path)
        if published is None:
            return self.whole.put_if_absent(path, data)
        lock = self.named + (f"$branch_{published[1]}" if published[1] else "")
        taken = self._taken(lock)
        try:
            return self.whole.put_if_absent(path, data)
        finally:
            try:  # only our own row: it may have expired, and the lock be another's
                ask(
                    self.options, f"DELETE FROM {_LOCKS} AND acquired_at = :at", lock=lock, at=taken
                )
            except errors.StorageError as why:  # what was put stays
                _LOG.warning(
                    "%s: the lock %r was not released, and expires by itself: %s",
                    self.location,
                    lock,
                    why,
                )

    def _taken(self, lock: str) -> Any:
        """Takes the lock as Java does. The time at which the database says that this was."""
        clock, options = self.runtime.clock, opt.Options(self.options, location=self.location)
        seconds, longest = options.value(_TIMEOUT) / 1000, options.value(_MAX_SLEEP) / 1000
        began, wait, seen = clock.monotonic(), 0.1, f"SELECT acquired_at FROM {_LOCKS}"
        added = "INSERT INTO paimon_distributed_locks (lock_id, expire_time_seconds) VALUES (:lock, :seconds)"
        while True:
            tried, taken = clock.monotonic(), None
            ask(self.options, f"DELETE FROM {_LOCKS} AND {{age}} > expire_time_seconds", lock=lock)
            with suppress(errors.AlreadyExists):
                [(taken,)] = ask(self.options, added, seen, lock=lock, seconds=int(seconds))
            if taken is not None and clock.monotonic() - tried < seconds - min(
                _LAST_SECONDS, seconds / 2
            ):
                return taken  # one that a pause made old is left to expire
            if clock.monotonic() - began > seconds:
                raise errors.CommitContended(
                    f"The lock {lock!r} of the JDBC catalog was another writer's for {seconds:,.0f} s. Nothing was "
                    "published, and it is safe to try again. If that writer is dead, its row in "
                    "paimon_distributed_locks expires by itself. If not, raise 'lock-acquire-timeout'.",
                    option=_TIMEOUT.key,
                ).of_table(self.location)
            clock.sleep(wait)
            wait = min(2 * wait, longest)


def ask(
    options: Mapping[str, str],
    *statements: str,
    then: Any = list,
    **values: Any,
) -> Any:
    """The rows of the last statement of one transaction in a catalog's database. `then` is done in
    it, too. Raises `AlreadyExists` for a row that is there, `Unavailable`, other `StorageError`s if
    there is no connection.
    """
    given = {
        key: value
        for key, value in options.items()
        if key in ("uri", "catalog-key") or key.startswith("jdbc.")
    }
    shown = shown_location(given.get("uri", "").removeprefix("jdbc:"))
    sql, kind = require("sqlalchemy", "jdbc", f"The catalog in {shown}"), errors.StorageError
    try:
        clock = (
            system().clock
        )  # the database keeps local times, and Java's sessions have the zone of its machine
        away = round(
            (clock.local_millis() - clock.now_millis()) / 60_000
        )  # another one in summer than in winter
        engine, age = _engine(os.getpid(), away, tuple(sorted(given.items())))
        kind, values["key"] = errors.Unavailable, given.get("catalog-key", "jdbc")
        with engine.begin() as rows:
            found = [
                rows.execute(sql.text(one.replace("{age}", age)), values) for one in statements
            ][-1]
            answer = found.all() if found.returns_rows else []
            then()
        return answer
    except sql.exc.IntegrityError:
        raise errors.AlreadyExists(
            f"The row is already in the catalog in {shown}.", path=shown
        ) from None
    except sql.exc.SQLAlchemyError as failed:  # its text may hold values
        was = getattr(failed, "orig", None)
        codes = [
            getattr(was, "sqlstate", 0),
            *(one for one in getattr(was, "args", ()) if isinstance(one, int)),
        ]
        codes = [type(failed).__name__, getattr(was, "sqlite_errorname", 0), *codes]
        why = ", ".join(str(one) for one in codes if one)
        text = f"The catalog's database, {shown}, failed ({why}). See that it runs, and that 'uri', 'jdbc.user' and "
        text = f"{text}'jdbc.password' are right and may read, write and create its tables."
        if isinstance(failed, sql.exc.DataError):
            kind, text = (
                errors.StorageError,
                f"The catalog's database, {shown}, refused a value ({why}). Take shorter",
            )
            text += " names: those of catalog, database and table have at most 253 letters together, options 1,000."
        raise kind(text, path=shown) from None


@lru_cache(maxsize=64)
def _engine(pid: int, away: int, options: tuple[tuple[str, str], ...]) -> tuple[Any, str]:
    """The connections of a process to a database that has the catalog's tables, and the age of a
    lock in its SQL. `away` are the minutes from UTC to local time.
    """
    uri = dict(options).get("uri", "")
    found, shown = _URI.fullmatch(uri), shown_location(uri.removeprefix("jdbc:"))
    if found is None or found[1] not in _KINDS:
        text = "Give jdbc:postgresql://host/database, jdbc:mysql://… or jdbc:sqlite:/path."
        raise errors.InvalidOption(
            f"Option 'uri' has another form, and is not shown, as it may hold a password. {text}",
            option="uri",
        )
    kind, host, port, name, query = found.groups()
    driver, dialect, age = _KINDS[kind]
    sql = require("sqlalchemy", "jdbc", f"The catalog in {shown}")
    require(driver, None, f"The catalog in {shown}")
    given = dict(parse_qsl(query or "")) | {
        key[5:]: value for key, value in options if key.startswith("jdbc.")
    }
    given, more = {key.lower(): value for key, value in given.items()}, {}
    if kind == "postgresql":
        zone = f"-c TimeZone=UTC{'+-'[away >= 0]}{abs(away) // 60}:{abs(away) % 60:02}"
        more = {
            key: given.pop(key)
            for key in ("sslmode", "sslrootcert", "sslcert", "sslkey")
            if key in given
        }
        more["client_encoding"] = "utf8"
        more["options"] = zone + (
            f" -c search_path={given['currentschema']}" if "currentschema" in given else ""
        )
    if refused := [key for key in given if "ssl" in key.lower()]:
        text = f"The property {refused[0]!r} is not known, and without it others could read along. Leave it out."
        raise errors.UnsupportedFeature(
            f"{text} With PostgreSQL, set 'jdbc.sslmode'.", option=refused[0]
        )
    login = (
        {"username": given.get("user"), "password": given.get("password")}
        if kind != "sqlite"
        else {}
    )
    url = sql.URL.create(
        dialect, host=host, port=port and int(port), database=unquote(name), **login
    )
    engine = sql.create_engine(url, connect_args=more, hide_parameters=True, pool_pre_ping=True)
    for one in _TABLES:
        try:
            if not sql.inspect(engine).has_table(one):
                with engine.begin() as rows:
                    rows.execute(sql.text(f"CREATE TABLE {one} ({_TABLES[one]})"))
        except sql.exc.SQLAlchemyError:  # maybe another process has just made it
            if not sql.inspect(engine).has_table(one):
                raise
    return engine, age
