"""Paimon's JDBC catalog. A table is a row in a database and a folder in a warehouse (catalogs.md
§4).

The catalog has a lock, which is a row. Each put that publishes a snapshot or a schema holds the
lock, because Java publishes in two steps. Only the lock and the catalog's own methods use the
database, so executors need no access.
"""

import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, cast
from urllib.parse import parse_qsl, unquote

from paimon_stream import errors
from paimon_stream import options as opt
from paimon_stream.catalogs.filesystem import (
    OF_DATABASE,
    SYNC_ALL,
    FilesystemCatalog,
    Named,
    names_of,
)
from paimon_stream.catalogs.locked import (
    LOCK_TIMEOUT,
    LONGEST_SLEEP,
    StorageUnderLock,
    is_lock_enabled,
)
from paimon_stream.extras import require
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import Storage
from paimon_stream.storage.location import shown_location

_LOG = logging.getLogger(__name__)

_NAME: Final = "VARCHAR(255) NOT NULL"
_ROW: Final = f"catalog_key {_NAME}, database_name {_NAME}"
# This text opens the parenthesis of the primary key. The texts that use it add the last columns.
_VALUE: Final = "property_value VARCHAR(1000), PRIMARY KEY (catalog_key, database_name"
_TABLES: Final = {
    "paimon_tables": f"{_ROW}, table_name {_NAME}, "
    "PRIMARY KEY (catalog_key, database_name, table_name)",
    "paimon_database_properties": f"{_ROW}, property_key VARCHAR(255), {_VALUE}, property_key)",
    "paimon_table_properties": f"{_ROW}, table_name {_NAME}, property_key {_NAME}, "
    f"{_VALUE}, table_name, property_key)",
    "paimon_distributed_locks": f"lock_id {_NAME}, "
    "acquired_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP NOT NULL, "
    "expire_time_seconds BIGINT DEFAULT 0 NOT NULL, PRIMARY KEY (lock_id)",
}
_LOCKS: Final = "paimon_distributed_locks WHERE lock_id = :lock"
_TABLE, _DATABASE, _OPTIONS = list(_TABLES)[:3]
_OF_DATABASE: Final = "catalog_key = :key AND database_name = :db"
_OF_TABLE: Final = f"{_OF_DATABASE} AND table_name = :t"


class _Kind(NamedTuple):
    """A kind of database.

    Attributes:
        driver: the module of the database's driver.
        dialect: the name of the database's dialect in SQLAlchemy.
        age: SQL for the age of a lock in seconds, by the database's own clock.
    """

    driver: str
    dialect: str
    age: str


_KINDS: Final = {
    "sqlite": _Kind("sqlite3", "sqlite", "strftime('%s', 'now') - strftime('%s', acquired_at)"),
    "mysql": _Kind("pymysql", "mysql+pymysql", "TIMESTAMPDIFF(SECOND, acquired_at, NOW())"),
    "postgresql": _Kind(
        "psycopg", "postgresql+psycopg", "EXTRACT(EPOCH FROM AGE(NOW(), acquired_at))"
    ),
}
_URI: Final = re.compile(
    r"jdbc:(\w+):(?://([^/:?@,]+)(?::([0-9]{1,5}))?/)?(?!//)([^?]+)(?:\?(.*))?"
)
_FOLDER: Final = re.compile(r"([^/]+)\.db/+([^/]+)/*\Z")
# A put may take this long. So a lock is not used if less time than this is left before it expires.
_LAST_SECONDS: Final = 60


class JdbcCatalog(FilesystemCatalog):
    """The databases and tables of a warehouse, as rows of a JDBC database. Methods raise the errors
    of `FilesystemCatalog`. They also raise `Unavailable` if the database fails, other
    `StorageError`s if there is no connection, and `MissingExtra` if SQLAlchemy or the driver is not
    installed.
    """

    def list_databases(self) -> list[str]:
        """The names of the databases, sorted."""
        names = " UNION ".join(
            f"SELECT database_name FROM {table} WHERE catalog_key = :key"
            for table in (_TABLE, _DATABASE)
        )
        return sorted(row[0] for row in ask(self.storage_options, names))

    def create_database(
        self,
        name: str,
        ignore_if_exists: bool = False,
    ) -> None:
        """Creates an empty database. Raises `AlreadyExists` if there is such a database and
        `ignore_if_exists` is not set.
        """
        if not self._has(name):
            insert = (
                f"INSERT INTO {_DATABASE} VALUES "
                "(:key, :db, 'exists', 'true'), (:key, :db, 'location', :at)"
            )
            with suppress(errors.AlreadyExists):  # somebody else was first
                ask(self.storage_options, insert, db=name, at=f"{self.warehouse}/{name}.db")
                return
        super().create_database(name, ignore_if_exists)

    def list_tables(self, database: str) -> list[str]:
        """The names of the tables of a database, sorted. Raises `NotFound` if there is no such
        database.
        """
        self._folder(database)  # raises if there is no such database
        names = f"SELECT table_name FROM {_TABLE} WHERE {_OF_DATABASE}"
        return sorted(row[0] for row in ask(self.storage_options, names, db=database))

    def found(self, identifier: Named) -> tuple[str, Mapping[str, str]]:
        """The location of a table, or of its branch, and the storage options that open it. Raises
        `NotFound`.
        """
        database, table = names_of(identifier)
        if table.partition("$")[0] in self.list_tables(database):
            return super().found(identifier)
        raise errors.NotFound(
            f"There is no table '{database}.{table}' in the catalog. "
            "Correct the name, or create the table first.",
            path=self.location(identifier),
        )

    def drop_table(
        self,
        identifier: Named,
        ignore_if_not_exists: bool = False,
    ) -> None:
        """Deletes a table. Its row is deleted first, and then its files. Raises `NotFound`."""
        database, table = names_of(identifier, main=True)
        if not ignore_if_not_exists or table in self.list_tables(database):
            self.found(identifier)  # raises if there is no such table
            deletes = [f"DELETE FROM {rows} WHERE {_OF_TABLE}" for rows in (_TABLE, _OPTIONS)]
            ask(self.storage_options, *deletes, db=database, t=table)
            super().drop_table(identifier, ignore_if_not_exists=True)

    def rename_table(
        self,
        source: Named,
        target: Named,
    ) -> None:
        """Renames the rows and the folder of a table. Raises the errors of `FilesystemCatalog`."""
        database, table = names_of(source, main=True)
        new_database, new_table = names_of(target, main=True)
        self.found(source)  # raises if there is no such table
        rename_folder = partial(super().rename_table, source, target)
        new_names = "database_name = :new, table_name = :name"
        updates = [
            f"UPDATE {rows} SET {new_names} WHERE {_OF_TABLE}" for rows in (_TABLE, _OPTIONS)
        ]
        ask(
            self.storage_options,
            *updates,
            then=rename_folder,
            db=database,
            t=table,
            new=new_database,
            name=new_table,
        )

    def _forget(self, name: str) -> None:
        ask(self.storage_options, f"DELETE FROM {_DATABASE} WHERE {_OF_DATABASE}", db=name)

    def _finds(self, database: str) -> bool:
        return database in self.list_databases()

    def _keep(self, identifier: Named, schema: TableSchema, *, new: bool) -> None:
        """Writes the row of a new table. Also writes the rows of its options and keys, which Java
        copies, too.
        """
        database, table = names_of(identifier)
        if new:
            insert = f"INSERT INTO {_TABLE} VALUES (:key, :db, :t)"
            with suppress(errors.AlreadyExists):
                ask(self.storage_options, insert, db=database, t=table)
        if "$" in table or not opt.Options(self.storage_options).value(SYNC_ALL):
            return
        bucket_keys = [name for name in schema.primary_keys if name not in schema.partition_keys]
        keys = {
            "primary-key": schema.primary_keys,
            "partition": schema.partition_keys,
            "bucket-key": bucket_keys,
        }
        properties = {name: ",".join(columns) for name, columns in keys.items() if columns}
        properties |= schema.options
        statements = [f"DELETE FROM {_OPTIONS} WHERE {_OF_TABLE}"]
        values: dict[str, Any] = {}
        for number, (name, value) in enumerate(properties.items()):
            statements.append(
                f"INSERT INTO {_OPTIONS} VALUES (:key, :db, :t, :n{number}, :v{number})"
            )
            values |= {f"n{number}": name, f"v{number}": value}
        # If the row is already there, somebody altered the table at the same time and wrote the
        # row.
        with suppress(errors.AlreadyExists):
            ask(self.storage_options, *statements, db=database, t=table, **values)


def open_table(
    location: str,
    options: Mapping[str, str],
    opened: Callable[..., Storage],
) -> Storage:
    """The files of a table in a JDBC catalog. If Java uses the catalog's lock (by default, on
    object stores), the result is a view that also uses the lock. No request is sent. The warehouse
    itself is opened without the lock.

    Args:
        location: the table's folder, or the warehouse.
        options: the options of the catalog and of the store.
        opened: a function that opens the store at a location, with the options of the store.

    Raises:
        InvalidOption: the location is not the folder of a table, or the options are wrong.
    """
    of_catalog = {
        key.lower(): value for key, value in options.items() if OF_DATABASE.fullmatch(key.lower())
    }
    of_store = {key: value for key, value in options.items() if key.lower() not in of_catalog}
    storage = opened(location, of_store)
    is_warehouse = location.rstrip("/") == of_catalog.get("warehouse", "").rstrip("/")
    if is_warehouse or not is_lock_enabled(location, of_catalog):
        return storage
    names = _FOLDER.search(location)
    if names is None:
        raise errors.InvalidOption(
            f"{storage.location} is not a table of a JDBC catalog. Give a table in "
            "<warehouse>/<database>.db/<table>.",
            option="metastore",
        )
    lock_name = f"{of_catalog.get('catalog-key', 'jdbc')}.{names[1]}.{names[2]}"
    return cast(Storage, LockedStorage(storage, of_catalog, lock_name))


class LockedStorage(StorageUnderLock):
    """The files of a table, with the lock of a JDBC catalog.

    Attributes:
        wrapped: the storage of the files.
        options: the options of the catalog.
        lock_name: the name of the lock of branch main.
        runtime: the runtime, whose clock measures the wait for the lock.
    """

    __slots__ = ("lock_name", "options", "runtime")

    def __init__(
        self,
        wrapped: Storage,
        options: Mapping[str, str],
        lock_name: str,
        runtime: Runtime | None = None,
    ) -> None:
        self.wrapped = wrapped
        self.options = options
        self.lock_name = lock_name
        self.runtime = runtime or system()

    def __reduce__(self) -> tuple[Any, ...]:
        return LockedStorage, (self.wrapped, self.options, self.lock_name)

    @contextmanager
    def _lock_of_branch(self, branch: str | None) -> Iterator[None]:
        """A context in which this process has the lock of a branch. `branch` is None for main.
        Raises `CommitContended`.
        """
        lock = f"{self.lock_name}$branch_{branch}" if branch else self.lock_name
        acquired = self._acquire(lock)
        try:
            yield
        finally:
            # Only our own row is deleted. It may have expired, so the lock may now belong to
            # another writer.
            release = f"DELETE FROM {_LOCKS} AND acquired_at = :at"
            try:
                ask(self.options, release, lock=lock, at=acquired)
            except errors.StorageError as failed:  # what was put stays
                _LOG.warning(
                    "%s: the lock %r was not released, and expires by itself: %s",
                    self.location,
                    lock,
                    failed,
                )

    def _acquire(self, lock: str) -> Any:
        """Acquires the lock as Java does. Returns the time at which it was acquired, by the clock
        of the database. Raises `CommitContended`.
        """
        clock = self.runtime.clock
        options = opt.Options(self.options, location=self.location)
        seconds = options.value(LOCK_TIMEOUT) / 1000
        longest_wait = options.value(LONGEST_SLEEP) / 1000
        insert = (
            "INSERT INTO paimon_distributed_locks (lock_id, expire_time_seconds) "
            "VALUES (:lock, :seconds)"
        )
        select = f"SELECT acquired_at FROM {_LOCKS}"
        delete_expired = f"DELETE FROM {_LOCKS} AND {{age}} > expire_time_seconds"
        began = clock.monotonic()
        wait = 0.1
        while True:
            tried = clock.monotonic()
            acquired = None
            ask(self.options, delete_expired, lock=lock)
            with suppress(errors.AlreadyExists):
                [(acquired,)] = ask(self.options, insert, select, lock=lock, seconds=int(seconds))
            usable_seconds = seconds - min(_LAST_SECONDS, seconds / 2)
            if acquired is not None and clock.monotonic() - tried < usable_seconds:
                return acquired
            # Another writer has the lock. Or this process acquired the lock, and then paused for so
            # long that too little of the lock's time is left. In that case, the lock is not used,
            # and expires.
            if clock.monotonic() - began > seconds:
                raise errors.CommitContended(
                    f"The lock {lock!r} of the JDBC catalog was another writer's for "
                    f"{seconds:,.0f} s. Nothing was published, and it is safe to try again. "
                    "If that writer is dead, its row in paimon_distributed_locks expires by "
                    "itself. If not, raise 'lock-acquire-timeout'.",
                    option=LOCK_TIMEOUT.key,
                ).of_table(self.location)
            clock.sleep(wait)
            wait = min(2 * wait, longest_wait)


def ask(
    options: Mapping[str, str],
    *statements: str,
    then: Callable[[], object] = list,
    **values: Any,
) -> Any:
    """Runs these statements in one transaction in a catalog's database.

    Args:
        options: the options of the catalog.
        statements: SQL. `{age}` stands for the age of a lock in seconds.
        then: a function that is called in the transaction, after the statements. By default, it
            does nothing.
        values: the values for placeholders such as `:name` in the statements, by name. `:key`
            stands for the catalog's key.

    Returns:
        The rows of the last statement; empty if that statement is not a query.

    Raises:
        AlreadyExists: a row to be inserted is already there.
        Unavailable: the database failed.
        StorageError: there is no connection, or a value is too long.
    """
    settings = {
        key: value
        for key, value in options.items()
        if key in ("uri", "catalog-key") or key.startswith("jdbc.")
    }
    shown = shown_location(settings.get("uri", "").removeprefix("jdbc:"))
    sql = require("sqlalchemy", "jdbc", f"The catalog in {shown}")
    # The database stores local times, and Java's sessions have the time zone of the machine that
    # runs Java. The offset of a zone may differ between summer and winter.
    clock = system().clock
    utc_offset = round((clock.local_millis() - clock.now_millis()) / 60_000)
    with _in_our_words(sql, shown, errors.StorageError):
        engine, age = _engine(os.getpid(), utc_offset, tuple(sorted(settings.items())))
    values["key"] = settings.get("catalog-key", "jdbc")
    with _in_our_words(sql, shown, errors.Unavailable), engine.begin() as connection:
        results = [
            connection.execute(sql.text(statement.replace("{age}", age)), values)
            for statement in statements
        ]
        rows = results[-1].all() if results[-1].returns_rows else []
        then()
    return rows


@contextmanager
def _in_our_words(sql: Any, shown: str, kind: type[errors.StorageError]) -> Iterator[None]:
    """Replaces errors of SQLAlchemy by errors of this package, without the values that SQLAlchemy's
    errors may hold.

    Args:
        sql: the module `sqlalchemy`.
        shown: the location of the database, for messages.
        kind: the class of the error that is raised if the database failed.
    """
    try:
        yield
    except sql.exc.IntegrityError:
        raise errors.AlreadyExists(
            f"The row is already in the catalog in {shown}.", path=shown
        ) from None
    except sql.exc.DataError as failed:
        raise errors.StorageError(
            f"The catalog's database, {shown}, refused a value ({_codes(failed)}). "
            "Take shorter names: those of catalog, database and table have at most 253 letters "
            "together, options 1,000.",
            path=shown,
        ) from None
    except sql.exc.SQLAlchemyError as failed:
        raise kind(
            f"The catalog's database, {shown}, failed ({_codes(failed)}). Check that it runs, that "
            "'uri', 'jdbc.user' and 'jdbc.password' are right, and that this user may create, read "
            "and write the catalog's tables.",
            path=shown,
        ) from None


def _codes(failed: Exception) -> str:
    """The kind of an error of SQLAlchemy, and the codes of the driver. The text of the error is
    left out, because it may hold values.
    """
    cause = getattr(failed, "orig", None)
    codes = [
        type(failed).__name__,
        getattr(cause, "sqlite_errorname", 0),
        getattr(cause, "sqlstate", 0),
        *(argument for argument in getattr(cause, "args", ()) if isinstance(argument, int)),
    ]
    return ", ".join(str(code) for code in codes if code)


@lru_cache(maxsize=64)
def _engine(pid: int, utc_offset: int, options: tuple[tuple[str, str], ...]) -> tuple[Any, str]:
    """The connections to a database, and the SQL for the age of a lock in this database. Creates
    the tables of the catalog in the database if it does not have them.

    Args:
        pid: the id of the process to which the connections belong.
        utc_offset: how many minutes local time is ahead of UTC.
        options: the options of the catalog.
    """
    uri = dict(options).get("uri", "")
    parts = _URI.fullmatch(uri)
    shown = shown_location(uri.removeprefix("jdbc:"))
    if parts is None or parts[1] not in _KINDS:
        raise errors.InvalidOption(
            "Option 'uri' has another form, and is not shown, as it may hold a password. "
            "Give jdbc:postgresql://host/database, jdbc:mysql://… or jdbc:sqlite:/path.",
            option="uri",
        )
    name_of_kind, host, port, database, query = parts.groups()
    kind = _KINDS[name_of_kind]
    sql = require("sqlalchemy", "jdbc", f"The catalog in {shown}")
    require(kind.driver, None, f"The catalog in {shown}")
    properties = _properties(query or "", options)
    driver_arguments = {}
    if name_of_kind == "postgresql":
        driver_arguments = _take_postgresql_arguments(properties, utc_offset)
    _refuse_insecure(properties)
    login = {}
    if name_of_kind != "sqlite":
        login = {"username": properties.get("user"), "password": properties.get("password")}
    url = sql.URL.create(
        kind.dialect,
        host=host,
        port=int(port) if port else None,
        database=unquote(database),
        **login,
    )
    engine = sql.create_engine(
        url, connect_args=driver_arguments, hide_parameters=True, pool_pre_ping=True
    )
    _create_tables(sql, engine)
    return engine, kind.age


def _properties(query: str, options: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The properties of the connection, by their keys in lower case: those in the query of the URI,
    then those among the options.
    """
    properties = dict(parse_qsl(query))
    properties |= {
        key.removeprefix("jdbc."): value for key, value in options if key.startswith("jdbc.")
    }
    return {key.lower(): value for key, value in properties.items()}


def _refuse_insecure(properties: Collection[str]) -> None:
    """Raises `UnsupportedFeature` for a property about TLS that nothing here follows."""
    insecure = [key for key in properties if "ssl" in key.lower()]
    if insecure:
        raise errors.UnsupportedFeature(
            f"The property {insecure[0]!r} is not known, and without it others could read along. "
            "Leave it out. With PostgreSQL, set 'jdbc.sslmode'.",
            option=insecure[0],
        )


def _take_postgresql_arguments(properties: dict[str, str], utc_offset: int) -> dict[str, str]:
    """The arguments of PostgreSQL's driver. Arguments about TLS are removed from the properties."""
    arguments: dict[str, str] = {
        key: properties.pop(key)
        for key in ("sslmode", "sslrootcert", "sslcert", "sslkey")
        if key in properties
    }
    # In POSIX names of time zones, the sign is the opposite of the usual sign.
    sign = "-" if utc_offset >= 0 else "+"
    hours, minutes = divmod(abs(utc_offset), 60)
    zone = f"UTC{sign}{hours}:{minutes:02}"
    arguments["client_encoding"] = "utf8"
    arguments["options"] = f"-c TimeZone={zone}"
    if "currentschema" in properties:
        arguments["options"] += f" -c search_path={properties['currentschema']}"
    return arguments


def _create_tables(sql: Any, engine: Any) -> None:
    """Creates those tables of the catalog that the database does not have."""
    for table, columns in _TABLES.items():
        try:
            if not sql.inspect(engine).has_table(table):
                with engine.begin() as connection:
                    connection.execute(sql.text(f"CREATE TABLE {table} ({columns})"))
        except sql.exc.SQLAlchemyError:  # another process may have just made the table
            if not sql.inspect(engine).has_table(table):
                raise
