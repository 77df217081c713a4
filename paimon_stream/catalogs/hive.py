"""Paimon's Hive catalog. A Hive Metastore knows the databases and tables, and has a copy of each
table's newest schema for other engines (docs/spec/catalogs.md §6).

The files of a table are the truth. Whoever publishes a schema tells the metastore; if that fails,
the next one who opens the table by its name does. The metastore replaces a whole table at once, so
a table is read just before it is changed, and only our fields of it are.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from socket import gethostname
from typing import Any, Final, cast

from paimon_stream import errors
from paimon_stream import options as opt
from paimon_stream.catalogs import hive_partitions, hive_table
from paimon_stream.catalogs.filesystem import (
    OF_DATABASE,
    SYNC_ALL,
    FilesystemCatalog,
    Named,
    delete_table_files,
    names_of,
)
from paimon_stream.catalogs.hive_client import (
    BOOL,
    I32,
    I64,
    LIST,
    STRING,
    STRUCT,
    HiveClient,
    Struct,
    client_of,
    is_stale,
    is_unsent,
    shown_addresses,
    struct_of,
    text_list,
    user_name,
)
from paimon_stream.catalogs.hive_login import OF_LOGIN
from paimon_stream.catalogs.locked import (
    LOCK_TIMEOUT,
    LONGEST_SLEEP,
    PUBLISHED,
    StorageUnderLock,
    is_lock_enabled,
)
from paimon_stream.catalogs.metastore import location_of_server
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import PutResult, Storage
from paimon_stream.storage.hdfs import HdfsStorage
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.location import scheme_of, shown_location
from paimon_stream.storage.uri import storage_options_for
from paimon_stream.table.layout import schema_path
from paimon_stream.table.partition_notes import note_paths, tell_notes
from paimon_stream.table.schema import SchemaStore

_LOG = logging.getLogger(__name__)

_TABLE_NAME: Final = "catalog.table"
"""The storage option that names the table in the metastore."""
_DATABASE_LOCATION: Final = 3
"""The field of a database that has its folder."""
_DATABASE_PARAMETERS: Final = 4
"""The field of a database that has its other properties."""
_NAMED_PROPERTIES: Final = {"comment": 2, "owner": 6}
"""The fields of properties of a database that have a field of their own."""
_AT_ONCE: Final = 300
"""How many tables one request asks for, as in Java."""
_TRIES: Final = 10
"""How often a table is read and changed again if others change it meanwhile."""
_EXCLUSIVE: Final = 3
_OF_TABLE: Final = 2
_ACQUIRED: Final = 1
_WAITING: Final = 2
"""The numbers of the metastore's locks: type, level and states."""
_AGENT_OF_LOCK: Final = 13
"""The field of a shown lock that has the mark of its agent."""
_USED_WITHIN: Final = 60.0
"""Seconds after a lock was asked for, within which it is used. The metastore lets a lock
expire after `hive.txn.timeout`, five minutes.
"""
_TOLD_AGAIN: Final = (
    "Opening the table by its name tells it again. If it refuses the types of columns, set "
    "hive.metastore.disallow.incompatible.col.type.changes = false there."
)
"""What to do if the metastore has an older schema."""


class HiveCatalog(FilesystemCatalog):
    """The databases and tables that a Hive Metastore knows. `storage_options` are all options of
    the catalog. No request is sent before the first method is called. All methods raise
    `InvalidOption`, `StorageError`, and `MissingExtra` if thrift is not installed.
    """

    @property
    def _client(self) -> HiveClient:
        return client_of(self.storage_options)

    @property
    def _shown(self) -> str:
        return f"the Hive Metastore {shown_addresses(self.storage_options['uri'])}"

    def found(self, identifier: Named) -> tuple[str, Mapping[str, str]]:
        """The location of a table, or of its branch, and the storage options that open it. If the
        metastore's copy of the schema is older than the table's, it is renewed. Raises `NotFound`.
        """
        database, name, branch = self._names(identifier)
        stored = self._stored(database, name)
        if stored is None:
            raise self._no_table(database, name)
        location = _location(stored)
        options = self._options_of(identifier)
        schema = self._renew(database, name, self.opened(location, options), stored)
        if hive_table.partition_columns(schema):
            tell_partitions(self.opened(f"{location}{branch}", options))
        return f"{location}{branch}", options

    def location(self, identifier: Named) -> str:
        """The folder of a table, which the metastore is asked for. If there is no such table, it is
        the folder in which it would be created. Raises `NotFound` if there is no such database.
        """
        database, name, branch = self._names(identifier)
        stored = self._stored(database, name)
        if stored is not None:
            return f"{_location(stored)}{branch}"
        return f"{location_of_server(self._new_folder(database, name))}{branch}"

    def list_databases(self) -> list[str]:
        """The names of the databases, sorted."""
        _, names = self._client.ask("get_all_databases", Struct())
        return sorted(name.decode() for name in names)

    def create_database(
        self,
        name: str,
        ignore_if_exists: bool = False,
    ) -> None:
        """Creates an empty database, in the warehouse or, without one, in that of the metastore.
        Raises `AlreadyExists` if there is such a database and `ignore_if_exists` is not set.
        """
        ignored = opt.Arguments(self._shown).flag("ignore_if_exists", ignore_if_exists)
        self._check_case(name)
        if self._has(name):
            if ignored:
                return
            raise errors.AlreadyExists(
                f"There is a database {name!r} in {self._shown}. "
                "Use it, or pass ignore_if_exists=True.",
                database=name,
            )
        database = struct_of({1: name})
        if self.warehouse:
            if not scheme_of(self.warehouse) and not self.warehouse.startswith("/"):
                raise errors.InvalidOption(
                    f"Option 'warehouse' is {self.warehouse!r}, and the metastore takes no relative "
                    "path. Give it from the root.",
                    option="warehouse",
                )
            scheme = "" if scheme_of(self.warehouse) else "file:"
            database.set_text(_DATABASE_LOCATION, f"{scheme}{self.warehouse.rstrip('/')}/{name}.db")
        database.set_texts(_DATABASE_PARAMETERS, {})
        self._client.ask("create_database", Struct({1: (STRUCT, database)}))

    def alter_database(
        self,
        name: str,
        changes: Mapping[str, str | None],
    ) -> None:
        """Sets and removes properties of a database, as `FilesystemCatalog.alter_database` does. The
        properties `comment` and `owner` are those that Java has, too. What others keep there stays.
        Raises `UnsupportedFeature` if the metastore does not take a property, such as a comment in
        Hive 2.3.
        """
        wanted = self._changed_properties(name, changes)
        if "location" in wanted:
            raise errors.InvalidOption(
                f"The location of the database {name} cannot be changed, because its tables stay "
                "where they are. Leave 'location' out.",
                option="changes",
            )
        database = self._database(name)
        _set_properties(database, wanted)
        arguments = _texts(name)
        arguments.fields[2] = STRUCT, database
        self._client.ask("alter_database", arguments)
        kept = _properties(self._database(name))
        refused = sorted(key for key, value in wanted.items() if kept.get(key) != value)
        if refused:
            raise errors.UnsupportedFeature(
                f"{self._shown} did not take these properties of the database {name}: "
                f"{', '.join(refused)}. All others were changed. Leave these out.",
                database=name,
            )

    def list_tables(self, database: str) -> list[str]:
        """The names of the tables of Paimon in a database, sorted. Raises `NotFound` if there is no
        such database.
        """
        self._database(database)  # raises if there is no such database
        tables = self._tables_of(database)
        return sorted(
            table.text(hive_table.NAME) for table in tables if hive_table.is_paimon(table)
        )

    def drop_database(
        self,
        name: str,
        ignore_if_not_exists: bool = False,
        cascade: bool = False,
    ) -> None:
        """Deletes a database, as `FilesystemCatalog.drop_database` does. Raises
        `UnsupportedFeature` if it has tables or views of Hive. Nothing is deleted then.
        """
        self._check_case(name)
        of_hive = [table for table in self._tables_of(name) if not hive_table.is_paimon(table)]
        if of_hive:
            raise errors.UnsupportedFeature(
                f"The database {name} in {self._shown} has {len(of_hive):,} tables or views of Hive, "
                f"such as {of_hive[0].text(hive_table.NAME)}. Drop them in Hive first.",
                database=name,
            )
        super().drop_database(name, ignore_if_not_exists, cascade)

    def drop_table(
        self,
        identifier: Named,
        ignore_if_not_exists: bool = False,
    ) -> None:
        """Deletes a table: first in the metastore, and then its files. The files of an external
        table stay. Raises `NotFound`.
        """
        ignored = opt.Arguments(self._shown).flag("ignore_if_not_exists", ignore_if_not_exists)
        database, name, _ = self._names(identifier, main=True)
        stored = self._stored(database, name)
        if stored is None:
            if ignored:
                return
            raise self._no_table(database, name)
        drop = _texts(database, name)
        drop.fields[3] = BOOL, False  # whether the metastore deletes the files, too
        if hive_table.is_external(stored):
            self._client.ask("drop_table", drop)
            return
        location = _location(stored)
        parent, _, folder = location.rpartition("/")
        options = self._options_of(identifier)
        in_parent = {key: value for key, value in options.items() if key != _TABLE_NAME}
        # What cannot be opened is an error now. The metastore would not find the table again.
        table, storage = self.opened(location, options), self.opened(parent, in_parent)
        self._client.ask("drop_table", drop)
        if SchemaStore(table).ids():
            delete_table_files(table, storage, folder)

    def rename_table(
        self,
        source: Named,
        target: Named,
    ) -> None:
        """Renames a table. The metastore moves the folder of a table that is not external.

        Args:
            source: the present name of the table.
            target: the new name of the table.

        Raises:
            NotFound: there is no such table or database.
            AlreadyExists: the target exists.
            UnsupportedFeature: the folder would be moved in an object store. There, each file would
                be copied, and others could see half a table.
        """
        database, name, _ = self._names(source, main=True)
        new_database, new_name, _ = self._names(target, main=True)
        location, options = self.found(source)
        self._database(new_database)
        if self._stored(new_database, new_name) is not None:
            raise errors.AlreadyExists(
                f"There is a table {new_database}.{new_name} in {self._shown}. Take another name.",
                table=f"{new_database}.{new_name}",
            )
        storage = getattr(self.opened(location, options), "wrapped", None)
        stored = self._stored(database, name)
        is_moved = stored is not None and not hive_table.is_external(stored)
        if is_moved and not isinstance(storage, LocalStorage | HdfsStorage):
            raise errors.UnsupportedFeature(
                f"The table {database}.{name} at {shown_location(location)} cannot be renamed in "
                "one step. Write its rows into a new one.",
                option="target",
            )

        def rename(table: Struct) -> bool:
            table.set_text(hive_table.NAME, new_name)
            table.set_text(hive_table.DATABASE, new_database)
            return True

        change_table(self._client, database, name, rename)

    def _keep(self, identifier: Named, schema: TableSchema, *, new: bool) -> None:
        """Registers a new table. A table that was changed has told the metastore itself."""
        if not new:
            return
        database, name, branch = self._names(identifier)
        if branch:
            return
        runtime = system()
        folder = self._new_folder(database, name)
        table = hive_table.new_table(
            database,
            name,
            schema,
            location=folder,
            owner=user_name(),
            seconds=runtime.clock.now_millis() // 1000,
            external=self._makes_external(schema),
            all_options=_all_options(self.storage_options),
        )
        try:
            self._client.ask("create_table", Struct({1: (STRUCT, table)}))
        except errors.AlreadyExists:
            self._stored(database, name)  # raises if the other table is none of Paimon
        except errors.StorageError as refused:
            raise type(refused)(
                f"{refused} If {database}.{name} is not listed now, its files are in "
                f"{shown_location(location_of_server(folder))}, and no name leads there. Delete that "
                "folder, or remove the cause and create the table with ignore_if_exists=True.",
                **refused.context,
            ) from None

    def check_folder(self, identifier: Named, *, ignore_if_exists: bool) -> None:
        """Raises `AlreadyExists` if a name is not registered, and its folder is another table's or,
        without `ignore_if_exists`, has the files of one that is not registered either. An external
        table keeps its folder when it is renamed. Two names of one folder would be one table, and
        dropping either would delete the files of both.
        """
        database, name, _ = self._names(identifier)
        location = self.location((database, name))
        if not SchemaStore(self.opened(location, self.storage_options)).ids():
            return
        if self._stored(database, name) is not None:
            return
        for other in self.list_databases():
            for table in self._tables_of(other):
                if _location(table) == location:
                    owner = f"{other}.{table.text(hive_table.NAME)}"
                    raise errors.AlreadyExists(
                        f"{database}.{name} would be in {shown_location(location)}, which is the folder "
                        f"of the table {owner} in {self._shown}. Use that table, or take another name.",
                        table=owner,
                    )
        if not ignore_if_exists:
            raise errors.AlreadyExists(
                f"{shown_location(location)} has the files of a table that {self._shown} does not "
                f"know, such as those of a creation or a drop that was interrupted. Delete that folder, "
                f"or pass ignore_if_exists=True to have them as {database}.{name}.",
                path=location,
            )

    def _makes_external(self, schema: TableSchema) -> bool:
        """Whether the files of a new table stay when the table is dropped."""
        of_table = schema.options.get("EXTERNAL", schema.options.get("external", ""))
        kind = self.storage_options.get("table.type", "managed").lower()
        return kind == "external" or of_table.lower() == "true"

    def _options_of(self, identifier: Named) -> Mapping[str, str]:
        database, name, _ = self._names(identifier)
        return {**self.storage_options, _TABLE_NAME: f"{database}.{name}"}

    def _renew(self, database: str, name: str, storage: Storage, stored: Struct) -> TableSchema:
        """Gives the metastore the newest schema, if its copy is another one, and returns the
        schema. Warns if the metastore does not take it. Raises `NotFound` if the folder of the
        table is gone.
        """
        try:
            schema, removed = _newest(SchemaStore(storage))
        except errors.NotFound:
            raise errors.NotFound(
                f"The table {database}.{name} of {self._shown} should be in {storage.location}, but "
                "no table is there. Bring its files back, or drop the table: "
                f"drop_table('{database}.{name}').",
                path=storage.location,
                table=f"{database}.{name}",
            ) from None
        all_options = _all_options(self.storage_options)
        if hive_table.follow_schema(stored, schema, removed=removed, all_options=all_options):
            tell_metastore(self._client, f"{database}.{name}", storage, all_options=all_options)
        return schema

    def _names(self, identifier: Named, *, main: bool = False) -> tuple[str, str, str]:
        """The database, the table, and the end of the location for a branch: `$branch_b`, or
        empty. Raises the errors of `names_of`, and `InvalidOption` for upper case.
        """
        database, table = names_of(identifier, main=main)
        name, mark, branch = table.partition("$")
        self._check_case(f"{database}.{name}")
        return database, name, f"{mark}{branch}"

    def _check_case(self, name: str) -> None:
        """Raises `InvalidOption` for a name with upper case, which the metastore does not keep."""
        if name != name.lower():
            raise errors.InvalidOption(
                f"{name!r} has letters in upper case, which a Hive Metastore does not keep. "
                f"Give {name.lower()!r}.",
                option="identifier",
            )

    def _no_table(self, database: str, name: str) -> errors.NotFound:
        return errors.NotFound(
            f"There is no table '{database}.{name}' in {self._shown}. "
            "Correct the name, or create the table first.",
            table=f"{database}.{name}",
        )

    def _stored(self, database: str, name: str) -> Struct | None:
        """The table in the metastore, if there is one. Raises `UnsupportedFeature` if it is none of
        Paimon.
        """
        table = stored_table(self._client, database, name)
        if table is not None and not hive_table.is_paimon(table):
            raise errors.UnsupportedFeature(
                f"{database}.{name} in {self._shown} is a table or view of Hive, and no table of "
                "Paimon. Give the name of another table.",
                table=f"{database}.{name}",
            )
        return table

    def _tables_of(self, database: str) -> list[Struct]:
        """All tables of a database, also those that are none of Paimon."""
        _, all_names = self._client.ask("get_all_tables", _texts(database))
        names = [name.decode() for name in all_names]
        tables: list[Struct] = []
        for first in range(0, len(names), _AT_ONCE):
            tables += self._tables(database, names[first : first + _AT_ONCE])
        return tables

    def _tables(self, database: str, names: list[str]) -> list[Struct]:
        """The tables of these names."""
        try:
            arguments = Struct({1: (STRING, database.encode()), 2: text_list(names)})
            _, tables = self._client.ask("get_table_objects_by_name", arguments)
            return list(tables)
        except errors.UnsupportedFeature:  # newer metastores have only the second method
            request = Struct({1: (STRING, database.encode()), 2: text_list(names)})
            result = self._client.ask(
                "get_table_objects_by_name_req", Struct({1: (STRUCT, request)})
            )
            return list(result.items(1))

    def _new_folder(self, database: str, name: str) -> str:
        """The folder of a new table, as the metastore spells it."""
        folder = self._database(database).text(_DATABASE_LOCATION)
        return f"{folder.rstrip('/')}/{name}"

    def _database(self, name: str) -> Struct:
        """The database in the metastore. Raises `NotFound`."""
        self._check_case(name)
        try:
            database: Struct = self._client.ask("get_database", _texts(name))
        except errors.NotFound:
            raise errors.NotFound(
                f"There is no database {name!r} in {self._shown}. "
                "Correct the name, or create it first.",
                database=name,
            ) from None
        return database

    def _folder(self, database: str) -> str:
        return self._database(database).text(_DATABASE_LOCATION)

    def _finds(self, database: str) -> bool:
        return database in self.list_databases()

    def _forget(self, name: str) -> None:
        """Drops a database that has no tables. Its folder goes only if it has no file: those of an
        external table stay when that table is dropped.
        """
        location = location_of_server(self._folder(name))
        try:
            has_files = any(self.opened(location, self.storage_options).list_below(""))
        except errors.ConfigError:  # a bucket alone, or a scheme that is not known here
            has_files = True
        if has_files:
            _LOG.warning(
                "%s: the database %s is dropped from the Hive Metastore, and its folder stays, because "
                "files may be there, such as those of an external table. Delete it by hand.",
                shown_location(location),
                name,
            )
        arguments = _texts(name)
        arguments.fields[2] = BOOL, not has_files  # whether the folder is deleted
        arguments.fields[3] = BOOL, False  # tables of others are not
        self._client.ask("drop_database", arguments)


def _properties(database: Struct) -> dict[str, str]:
    """The properties of a database, as Java shows them."""
    named = {key: database.text(field) for key, field in _NAMED_PROPERTIES.items()}
    return {**database.texts(_DATABASE_PARAMETERS), **{k: v for k, v in named.items() if v}}


def _set_properties(database: Struct, changes: Mapping[str, str | None]) -> None:
    """Sets and removes properties of a database, which is changed."""
    parameters = database.texts(_DATABASE_PARAMETERS)
    for key, value in changes.items():
        if key in _NAMED_PROPERTIES:
            database.set_text(_NAMED_PROPERTIES[key], value)
        elif value is None:
            parameters.pop(key, None)
        else:
            parameters[key] = value
    database.set_texts(_DATABASE_PARAMETERS, parameters)


def stored_table(client: HiveClient, database: str, name: str) -> Struct | None:
    """The table in the metastore, also one that is none of Paimon. None if there is none. Raises
    `StorageError`.
    """
    try:
        try:
            table: Struct = client.ask("get_table", _texts(database, name))
            return table
        except errors.UnsupportedFeature:  # newer metastores have only the second method
            request = Struct({1: (STRUCT, _texts(database, name))})
            return cast(Struct, client.ask("get_table_req", request).struct(1))
    except errors.NotFound:
        return None


def change_table(
    client: HiveClient, database: str, name: str, change: Callable[[Struct], bool]
) -> None:
    """Changes a table in the metastore. The table is read just before, so what others have changed
    is kept. If others change it meanwhile, it is read and changed again.

    Args:
        client: the metastore.
        database: the name of the database.
        name: the name of the table.
        change: a function that changes the object, and returns whether anything is new.

    Raises:
        NotFound: there is no such table.
        StorageError: the metastore refused, or others keep changing the table.
    """
    for last in (*[False] * (_TRIES - 1), True):
        table = stored_table(client, database, name)
        if table is None:
            raise errors.NotFound(f"There is no table {database}.{name} in the Hive Metastore.")
        parameters = table.texts(hive_table.PARAMETERS)
        changed_at = parameters.get(hive_table.CHANGED_AT)
        if not change(table):
            return
        parameters = table.texts(hive_table.PARAMETERS)
        parameters.pop(hive_table.CHANGED_AT, None)  # the metastore sets the present time
        table.set_texts(hive_table.PARAMETERS, parameters)
        context = Struct()
        how = {"CASCADE": "true", "DO_NOT_UPDATE_STATS": "true"}
        if changed_at is not None:
            how["expected_parameter_key"] = hive_table.CHANGED_AT
            how["expected_parameter_value"] = changed_at
        context.set_texts(1, how)
        arguments = _texts(database, name)
        arguments.fields |= {3: (STRUCT, table), 4: (STRUCT, context)}
        try:
            client.ask("alter_table_with_environment_context", arguments)
            return
        except errors.StorageError as failed:
            if last or not is_stale(failed):
                raise


def tell_metastore(client: HiveClient, table: str, storage: Storage, *, all_options: bool) -> None:
    """Gives the metastore the newest schema of a table. Warns if it does not take it: the files of
    the table are the truth, and the next one who opens the table by its name tries again.

    Args:
        client: the metastore.
        table: the names of the database and the table.
        storage: the files of the table.
        all_options: whether the metastore holds the options of the table.
    """
    database, _, name = table.partition(".")

    def follow(stored: Struct) -> bool:
        schema, removed = _newest(SchemaStore(storage))
        return hive_table.follow_schema(stored, schema, removed=removed, all_options=all_options)

    try:
        change_table(client, database, name, follow)
    except errors.PaimonStreamError as failed:
        _LOG.warning(
            "%s: the Hive Metastore still has an older schema of %s, which engines may read the "
            "table by. %s %s",
            storage.location,
            table,
            failed,
            _TOLD_AGAIN,
        )


def _newest(schemas: SchemaStore) -> tuple[TableSchema, set[str]]:
    """The newest schema, and the keys of the options that it no longer has."""
    schema = schemas.latest()
    removed = set[str]()
    if schema.id and schemas.exists(schema.id - 1):
        removed = set(schemas.get(schema.id - 1).options) - set(schema.options)
    return schema, removed


def tell_partitions(storage: Storage) -> None:
    """Tells the metastore what is in notes of partitions that commits and changes of tags have left
    in a table or branch. Warns if it does not take that: the next one who opens the table tries
    again.
    """
    try:
        tell_notes(storage)
    except errors.PaimonStreamError as failed:
        _LOG.warning(
            "%s: the partitions in the Hive Metastore may not be those of the table. Opening the "
            "table by its name tells it again. %s",
            storage.location,
            failed,
        )


def _all_options(options: Mapping[str, str]) -> bool:
    return opt.Options(options).value(SYNC_ALL)


def _location(table: Struct) -> str:
    """The folder of a table, as this package spells it."""
    return location_of_server(table.struct(hive_table.STORAGE).text(hive_table.LOCATION)).rstrip(
        "/"
    )


def _texts(*texts: str) -> Struct:
    """Arguments that are texts."""
    return struct_of(dict(enumerate(texts, start=1)))


def open_table(
    location: str,
    options: Mapping[str, str],
    opened: Callable[..., Storage],
) -> Storage:
    """The files of a table in a Hive catalog. The result is a view that tells the metastore of new
    schemas and, if Java takes the metastore's lock, takes it, too. No request is sent. A folder that
    the options do not name as a table is opened as it is.

    Args:
        location: the table's folder, or another folder of the catalog.
        options: the options of the catalog and of the store.
        opened: a function that opens the store at a location, with the options of the store.
    """
    lowered = {key.lower(): value for key, value in options.items()}
    storage = opened(location, _of_store(location, lowered))
    if _TABLE_NAME not in lowered:
        return storage
    of_catalog = {
        key: value
        for key, value in lowered.items()
        if OF_DATABASE.fullmatch(key) or key in (_TABLE_NAME, *OF_LOGIN)
    }
    return cast(Storage, HiveStorage(storage, of_catalog, is_lock_enabled(location, of_catalog)))


def _of_store(location: str, options: Mapping[str, str]) -> dict[str, str]:
    """Those options of a catalog that the store of a table needs."""
    own = {key: value for key, value in options.items() if key == opt.UNSAFE_SINGLE_WRITER.key}
    rest = {
        key: value
        for key, value in options.items()
        if not OF_DATABASE.fullmatch(key) and key != _TABLE_NAME
    }
    return {**own, **storage_options_for(location, rest)}


class HiveStorage(StorageUnderLock):
    """The files of a table in a Hive catalog.

    Attributes:
        wrapped: the storage of the files.
        options: the options of the catalog, and the name of the table.
        takes_lock: whether snapshots and schemas are put under the lock.
        runtime: the runtime, whose clock measures the wait for the lock.
    """

    __slots__ = ("options", "runtime", "takes_lock")

    def __init__(
        self,
        wrapped: Storage,
        options: Mapping[str, str],
        takes_lock: bool,
        runtime: Runtime | None = None,
    ) -> None:
        self.wrapped = wrapped
        self.options = options
        self.takes_lock = takes_lock
        self.runtime = runtime or system()

    def __reduce__(self) -> tuple[Any, ...]:
        return HiveStorage, (self.wrapped, self.options, self.takes_lock)

    @property
    def _client(self) -> HiveClient:
        return client_of(self.options)

    def put_if_absent(
        self,
        path: str,
        data: bytes,
    ) -> PutResult:
        """See `Storage.put_if_absent`. The metastore is told of a new schema of branch main. Raises
        `CommitContended` if another writer keeps the lock. Nothing is written then.
        """
        result = super().put_if_absent(path, data)
        published = PUBLISHED.fullmatch(path)
        is_new = result is PutResult.CREATED and path != "schema/schema-0"
        if published and is_new and published[1] is None and path.startswith("schema/"):
            tell_metastore(
                self._client,
                self.options[_TABLE_NAME],
                self.wrapped,
                all_options=_all_options(self.options),
            )
        return result

    def untold(self) -> tuple[str, ...]:
        """Texts about what the metastore does not know of this table or branch, each with what to
        do. Nothing is changed there.
        """
        table = self.options[_TABLE_NAME]
        texts = [
            f"{path}: the Hive Metastore may not have the partitions of {table} that this note names. "
            "Opening the table by its name tells it."
            for path in note_paths(self.wrapped)
        ]
        try:
            stored = self._table()
        except errors.PaimonStreamError as failed:
            return (*texts, f"What the Hive Metastore has of {table} is not known: {failed}")
        schema, removed = _newest(SchemaStore(self.wrapped))
        all_options = _all_options(self.options)
        if hive_table.follow_schema(stored, schema, removed=removed, all_options=all_options):
            texts.append(
                f"{schema_path(schema.id)}: the Hive Metastore has an older schema of {table}, which "
                f"engines may read the table by. {_TOLD_AGAIN}"
            )
        return tuple(texts)

    def add_partitions(self, folders: Sequence[str]) -> None:
        """Adds partitions to the table in the metastore, which may have some of them.

        Args:
            folders: the folders of the partitions, relative to the table.

        Raises:
            NotFound: the metastore has no such table.
            UnsupportedFeature: the metastore's table has no partition columns.
            StorageError: the metastore refused.
        """
        seconds = self.runtime.clock.now_millis() // 1000
        hive_partitions.add_partitions(self._client, self._table(), folders, seconds)

    def drop_partitions(self, folders: Sequence[str]) -> None:
        """Drops partitions of the table in the metastore, some of which it may lack. Files stay.
        Raises `NotFound` if the metastore has no such table, and `StorageError`.
        """
        hive_partitions.drop_partitions(self._client, self._table(), folders)

    def _table(self) -> Struct:
        """The table in the metastore. Raises `NotFound`, `StorageError`."""
        database, _, name = self.options[_TABLE_NAME].partition(".")
        table = stored_table(self._client, database, name)
        if table is None:
            raise errors.NotFound(f"There is no table {database}.{name} in the Hive Metastore.")
        return table

    @contextmanager
    def _lock_of_branch(self, branch: str | None) -> Iterator[None]:
        if not self.takes_lock:
            yield
            return
        database, _, table = self.options[_TABLE_NAME].partition(".")
        name = f"{table}$branch_{branch}" if branch else table
        lock = self._acquire(database, name)
        try:
            yield
        finally:
            self._release(lock, f"{database}.{name}")

    def _acquire(self, database: str, name: str) -> int:
        """Acquires the lock as Java does. Returns its id. Raises `CommitContended`."""
        began = self.runtime.clock.monotonic()
        answer = self._asked(database, name)
        lock: int = answer.number(1)
        try:
            if self._is_granted(lock, answer.number(2), began):
                return lock
        except errors.NotFound:  # the metastore has removed it, because nobody looked for long
            pass
        except BaseException:  # a lock that waits, and that nobody releases, stops all others
            self._release(lock, f"{database}.{name}")
            raise
        else:
            self._release(lock, f"{database}.{name}")
        raise errors.CommitContended(
            f"The lock of {database}.{name} in the Hive Metastore was another writer's for "
            f"{self.runtime.clock.monotonic() - began:,.0f} s, came too late or has expired. Nothing "
            "was published, and it is safe to try again. If that writer is dead, its lock expires after "
            "hive.txn.timeout, where the metastore's housekeeping runs. If it is alive, raise "
            "'lock-acquire-timeout'.",
            option=LOCK_TIMEOUT.key,
        ).of_table(self.location)

    def _asked(self, database: str, name: str) -> Struct:
        """The metastore's answer to the request for the lock. If there is none, the lock that it may
        have created is found by a mark of its own, and is released: it would stop all writers.
        """
        mark = f"paimon-stream {self.runtime.ids.uuid()}"
        request = _lock_request(database, name, mark)
        try:
            answer: Struct = self._client.ask("lock", Struct({1: (STRUCT, request)}))
            return answer
        except BaseException as failed:  # also Ctrl-C
            if not is_unsent(failed):
                self._release_marked(database, name, mark)
            raise

    def _release_marked(self, database: str, name: str, mark: str) -> None:
        """Releases a lock with this mark, if there is one. Warns if the metastore cannot say so."""
        wanted = Struct({1: (STRUCT, _texts(database, name))})
        try:
            locks = self._client.ask("show_locks", wanted).items(1)
        except errors.PaimonStreamError as failed:
            _LOG.warning(
                "%s: whether a lock of %s.%s was asked for is not known. If it stops all writers, "
                "release the one of the agent %r, or wait until it expires: %s",
                self.location,
                database,
                name,
                mark,
                failed,
            )
            return
        for lock in locks:
            if lock.text(_AGENT_OF_LOCK) == mark:
                self._release(lock.number(1), f"{database}.{name}")

    def _is_granted(self, lock: int, state: int, began: float) -> bool:
        """Whether a lock that was asked for is ours in time. Waits for it. Raises `NotFound` if the
        metastore does not have the lock any more.

        Args:
            lock: the id of the lock.
            state: the state of the lock.
            began: when the lock was asked for.
        """
        clock = self.runtime.clock
        options = opt.Options(self.options, location=self.location)
        seconds = options.value(LOCK_TIMEOUT) / 1000
        longest_wait = options.value(LONGEST_SLEEP) / 1000
        asked = began
        wait = 0.1
        while state == _WAITING and clock.monotonic() - began <= seconds:
            clock.sleep(wait)
            wait = min(2 * wait, longest_wait)
            asked = clock.monotonic()
            check = Struct({1: (STRUCT, Struct({1: (I64, lock)}))})
            state = self._client.ask("check_lock", check).number(2)
        return state == _ACQUIRED and clock.monotonic() - asked < _USED_WITHIN

    def _release(self, lock: int, name: str) -> None:
        """Releases a lock. Warns if it could not be released: it expires by itself."""
        try:
            self._client.ask("unlock", Struct({1: (STRUCT, Struct({1: (I64, lock)}))}))
        except errors.PaimonStreamError as failed:  # what was put stays
            _LOG.warning(
                "%s: the lock of %s was not released, and expires by itself: %s",
                self.location,
                name,
                failed,
            )


def _lock_request(database: str, name: str, mark: str) -> Struct:
    """The request for the exclusive lock of a table, as Java sends it, with a mark for its agent."""
    component = Struct({1: (I32, _EXCLUSIVE), 2: (I32, _OF_TABLE)})
    component.set_text(3, database)
    component.set_text(4, name)
    request = struct_of({3: user_name(), 4: gethostname(), 5: mark})
    request.fields[1] = LIST, (STRUCT, [component])
    return request
