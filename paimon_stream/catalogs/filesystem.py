"""Paimon's filesystem catalog. It finds tables by their folders,
`<warehouse>/<database>.db/<table>` (catalogs.md §2).
"""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypedDict

from paimon_stream import errors
from paimon_stream import options as opt
from paimon_stream.catalogs.hive_login import OF_LOGIN
from paimon_stream.catalogs.metastore import metastore_of
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.options.store_names import (
    is_of_another,
    recommended_names,
    refusal_of,
    store_option,
)
from paimon_stream.options.store_options import PREFIXES
from paimon_stream.storage.base import Storage, delete_below
from paimon_stream.storage.external import shown_root
from paimon_stream.storage.hdfs import HdfsStorage
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.location import shown_location
from paimon_stream.storage.uri import open_folder, storage_options_for
from paimon_stream.table.layout import SCHEMA_FOLDER, SNAPSHOT_FOLDER, schema_path
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.table import Table, load_table

_LOG = logging.getLogger(__name__)

_NAMED: Final = re.compile(r"(?:`([^`]+)`|([^`.]+))\.(?:`([^`]+)`|([^`.]+))")
_NO_NAME: Final = re.compile(r"[\0/\\]|\A\s*\Z|\A\.|\Asys\Z")
_ENDING: Final = ".db"
_MARKER: Final = ".database"
_DEFAULTS: Final = "table-default."
OF_DATABASE: Final = re.compile(
    "(metastore|uri|warehouse|catalog-key|sync-all-properties)|(jdbc|lock)[.-].+"
)
"""The options of a JDBC catalog itself. They travel with the storage options of its tables."""
SYNC_ALL: Final = opt.Option(
    "sync-all-properties", opt.boolean, "true", "Whether the catalog holds the options of tables."
)
_OF_OTHERS: Final = {
    *("uri", "token", "token.provider", "lock.type", "catalog-key", "hive-conf-dir"),
    *("hive.metastore.sasl.enabled", "hive.metastore.kerberos.principal"),
}
"""Options of catalogs of other kinds."""
_OF_PAIMON: Final = {
    *("warehouse", "metastore", "table.type", "lock.enabled", "lock-check-max-sleep"),
    *("lock-acquire-timeout", "lock-key-max-length", "client-pool-size", "cache-enabled"),
    *("cache.expire-after-access", "cache.expire-after-write", "cache.partition.max-num"),
    *("cache.manifest.small-file-memory", "cache.manifest.small-file-threshold"),
    *("cache.manifest.max-memory", "cache.snapshot.max-num-per-table"),
    *("cache.deletion-vectors.max-num", "case-sensitive", "sync-all-properties"),
    *("format-table.enabled", "resolving-file-io.enabled", "file-io.allow-cache"),
    *("io-cache.enabled", "io-cache.whitelist-path", "io-cache.policy", "default-database"),
    *("type", "fs.allow-hadoop-fallback", opt.UNSAFE_SINGLE_WRITER.key),
}
"""Options of a catalog that Paimon knows. Options among them that have no effect here would change
no rows.
"""
_OF_STORES: Final = {option.key for option in opt.store_options()}
_MISSPELT: Final = 0.8
"""A name with at least this similarity to an option of a store counts as a misspelling of that
option. Names of Hadoop's own options have a similarity of at most 0.7.
"""
_HIVE_FILES: Final = ("hive-conf-dir", "hadoop-conf-dir", "location-in-properties")
"""Options of Java's Hive catalog that would change where tables are, and that nothing here reads."""

Named = str | tuple[str, str]
"""The name of a table: `"db.t"`, with backticks around a name that has dots, or `("db", "t")`."""


def names_of(
    identifier: Named,
    *,
    main: bool = False,
) -> tuple[str, str]:
    """The database and the table that an identifier names. A branch of a table is named
    `t$branch_b`.

    Args:
        identifier: the name of the table.
        main: whether a branch is refused.

    Raises:
        InvalidOption: `identifier` does not name a table, or names a branch although branches are
            refused.
        UnsupportedFeature: a system table is named, such as `db.t$snapshots`.
    """
    parts: object = identifier
    match = _NAMED.fullmatch(identifier) if isinstance(identifier, str) else None
    if match is not None:
        parts = tuple(name for name in match.groups() if name)
    if not isinstance(parts, tuple) or len(parts) != 2 or not all(map(_is_name, parts)):
        raise errors.InvalidOption(
            f"{identifier!r} is not the name of a table. Give it as 'database.table', or as "
            "(database, table) if a name has dots.",
            option="identifier",
        )
    database, table_or_branch = parts
    table, mark, suffix = table_or_branch.partition("$")
    is_branch = suffix.startswith("branch_") and "$" not in suffix
    is_refused = main or not is_branch
    if mark and is_refused:
        kind = errors.InvalidOption if is_branch else errors.UnsupportedFeature
        raise kind(
            f"{identifier!r} is not a table, but a branch or a system table. Give "
            f"{database}.{table}."
        )
    return database, table_or_branch


def _without_scheme(location: str) -> str:
    """The location without its scheme and the slashes at its beginning."""
    return re.sub(r"\A(?:[\w+.-]+:)?/*", "", location)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and not _NO_NAME.search(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesystemCatalog:
    """The databases and tables of a warehouse. All methods raise `InvalidOption` and
    `StorageError`.

    Attributes:
        warehouse: the folder of the databases.
        storage_options: the storage options that open the warehouse.
        table_defaults: options that each new table gets.
        opened: a function that opens the storage at a location, with storage options.
    """

    warehouse: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    table_defaults: Mapping[str, str] = field(default_factory=dict, repr=False)
    opened: Callable[[str, Mapping[str, str]], Storage] = field(
        default=open_folder, repr=False, compare=False
    )

    def location(self, identifier: Named) -> str:
        """The folder of a table, or of its branch. No request is sent."""
        database, table = names_of(identifier)
        return f"{self.warehouse}/{database}{_ENDING}/{table}"

    def found(self, identifier: Named) -> tuple[str, Mapping[str, str]]:
        """The location of a table, or of its branch, and the storage options that open it. No
        request is sent.
        """
        return self.location(identifier), self.storage_options

    def list_databases(self) -> list[str]:
        """The names of the databases, sorted."""
        names = self._storage.list_folders("")
        return [
            name.removesuffix(_ENDING)
            for name in names
            if name.endswith(_ENDING) and name != _ENDING
        ]

    def create_database(
        self,
        name: str,
        ignore_if_exists: bool = False,
    ) -> None:
        """Creates an empty database. Its folder gets a hidden file, because object stores have no
        empty folders.

        Args:
            name: the name of the database.
            ignore_if_exists: do nothing if there is such a database.

        Raises:
            AlreadyExists: there is such a database.
        """
        ignored = opt.Arguments(self.warehouse).flag("ignore_if_exists", ignore_if_exists)
        if not self._has(name):
            self._storage.put_if_absent(f"{name}{_ENDING}/{_MARKER}", b"")
        elif not ignored:
            raise errors.AlreadyExists(
                f"There is a database {name!r} in {self.warehouse}. "
                "Use it, or pass ignore_if_exists=True.",
                path=self.warehouse,
            )

    def alter_database(
        self,
        name: str,
        changes: Mapping[str, str | None],
    ) -> None:
        """Sets and removes properties of a database.

        Args:
            name: the name of the database.
            changes: the new value of each property, such as `{"team": "sales"}`; None removes it.

        Raises:
            NotFound: there is no such database.
            UnsupportedFeature: this catalog has no properties of databases that are changed here.
        """
        self._changed_properties(name, changes)
        raise errors.UnsupportedFeature(
            f"The database {name!r} has no properties that this package changes. Only those of a "
            "Hive catalog are changed. Nothing was changed.",
            database=name,
        )

    def _changed_properties(self, name: str, changes: Any) -> dict[str, str | None]:
        """The checked argument of `alter_database`. Raises `NotFound`, `InvalidOption`."""
        arguments = opt.Arguments(self.warehouse)
        checked: dict[str, str | None] = arguments.mapping("changes", changes, "{'team': 'sales'}")
        arguments.mapping(
            "changes",
            {key: value for key, value in checked.items() if value is not None},
            "{'team': 'sales'}",
            texts=True,
        )
        if not self._has(name):
            raise errors.NotFound(
                f"There is no database {name!r}. Correct the name, or create it first.",
                database=name,
            )
        return checked

    def drop_database(
        self,
        name: str,
        ignore_if_not_exists: bool = False,
        cascade: bool = False,
    ) -> None:
        """Deletes a database.

        Args:
            name: the name of the database.
            ignore_if_not_exists: do nothing if there is no such database.
            cascade: delete the database's tables, too.

        Raises:
            NotFound: there is no such database.
            InvalidOption: the database has tables, and `cascade` is false.
        """
        arguments = opt.Arguments(self.warehouse)
        ignored = arguments.flag("ignore_if_not_exists", ignore_if_not_exists)
        if ignored and not self._has(name):
            return
        tables = self.list_tables(name)  # raises `NotFound` if there is no such database
        drops_tables = arguments.flag("cascade", cascade)
        if tables and not drops_tables:
            raise errors.InvalidOption(
                f"Database {name!r} has {len(tables):,} tables. "
                "Drop them first, or pass cascade=True.",
                option="cascade",
                path=self.warehouse,
            )
        for table in tables:
            self.drop_table((name, table))
        self._forget(name)

    def _forget(self, name: str) -> None:
        """Removes the remaining files of a database that has no tables."""
        delete_below(self._storage, f"{name}{_ENDING}")
        if self._has(name):  # obstore cannot delete a key that ends in a slash
            _LOG.warning(
                "%s: the empty key %s.db/ of another engine stays. Delete it by hand.",
                self.warehouse,
                name,
            )

    def list_tables(self, database: str) -> list[str]:
        """The names of the tables of a database, sorted. Raises `NotFound` if there is no such
        database.
        """
        folder = self._folder(database)
        storage = self._storage
        names = storage.list_folders(folder)
        requests = [partial(storage.exists, f"{folder}/{name}/{schema_path(0)}") for name in names]
        are_tables = storage.together(requests)
        return [name for name, is_table in zip(names, are_tables, strict=True) if is_table]

    def drop_table(
        self,
        identifier: Named,
        ignore_if_not_exists: bool = False,
    ) -> None:
        """Deletes a table, including its files on external paths. If the call is interrupted, it
        can be repeated.

        Args:
            identifier: the name of the table.
            ignore_if_not_exists: do nothing if there is no such table.

        Raises:
            NotFound: there is no such database or table.
        """
        folder = self._table_folder(identifier)
        location = self.location(identifier)
        storage = self._storage
        table = self.opened(location, self.storage_options)
        ignored = opt.Arguments(location).flag("ignore_if_not_exists", ignore_if_not_exists)
        if ignored and not SchemaStore(table).ids():
            return
        delete_table_files(table, storage, folder)

    def rename_table(
        self,
        source: Named,
        target: Named,
    ) -> None:
        """Renames the folder of a table, in one step.

        Args:
            source: the present name of the table.
            target: the new name of the table. The database may be another one.

        Raises:
            StorageError: the table or a database is missing, or the target exists.
            UnsupportedFeature: the warehouse is in an object store. In a store, each file would be
                copied, and others could see half a table.
        """
        storage = self._storage
        old_folder = self._table_folder(source)
        new_folder = self._table_folder(target)
        if not isinstance(storage, (LocalStorage, HdfsStorage)):
            raise errors.UnsupportedFeature(
                f"Tables in {self.warehouse} cannot be renamed in one step. "
                f"Write the rows of {source} into a new one.",
                option="target",
            )
        table = self.opened(self.location(source), self.storage_options)
        SchemaStore(table).first_digest()  # raises an error if there is no table
        storage.rename(old_folder, new_folder)

    def _table_folder(self, identifier: Named) -> str:
        """The folder of a table, below the warehouse. Raises `NotFound` if there is no such
        database.
        """
        database, table = names_of(identifier, main=True)
        return f"{self._folder(database)}/{table}"

    def _keep(self, identifier: Named, schema: TableSchema, *, new: bool) -> None:
        """Records a table that was created (`new`) or altered. In this catalog, the files
        themselves are the record.
        """

    def _options_of(self, identifier: Named) -> Mapping[str, str]:
        """The storage options that open a table or create it. No request is sent."""
        return self.storage_options

    def _has(self, database: str) -> bool:
        """Whether there is such a database. Raises `InvalidOption` for a name that no folder can
        have, and for `sys`, which Java uses for its system tables.
        """
        if not _is_name(database):
            raise errors.InvalidOption(
                f"{database!r} cannot be the name of a database: it must be the name of a folder, "
                "and 'sys' is reserved for system tables. Give another name.",
                option="database",
            )
        return self._finds(database)

    def _finds(self, database: str) -> bool:
        folder = f"{database}{_ENDING}"
        storage = self._storage
        if any(storage.list_pages(folder)) or storage.list_folders(folder):
            return True
        return database in self.list_databases()

    def _folder(self, database: str) -> str:
        """The folder of a database below the warehouse. Raises `NotFound` if there is no such
        database.
        """
        if self._has(database):
            return f"{database}{_ENDING}"
        raise errors.NotFound(
            f"There is no database {database!r} in {self.warehouse}. "
            "Correct the name, or create it first.",
            path=self.warehouse,
            database=database,
        )

    @property
    def _storage(self) -> Storage:
        return self.opened(self.warehouse, self.storage_options)


def delete_table_files(table: Storage, parent: Storage, folder: str) -> None:
    """Deletes the files of a table, including those on external paths.

    Args:
        table: the storage of the table.
        parent: a storage that has the folder of the table.
        folder: the folder of the table, in `parent`.

    Raises:
        NotFound: there is no table.
    """
    location = table.location
    try:
        _delete_external_paths(load_table(table), location)
    except (errors.ConfigError, errors.FormatError) as failed:
        _LOG.warning(
            "%s cannot be understood, and is dropped without its external paths: %s",
            location,
            failed,
        )
    # The schemas and snapshots are deleted last. So an interrupted drop leaves no complete
    # table, and no table can be created over the remains (catalogs.md §2).
    delete_below(parent, folder, last=(SNAPSHOT_FOLDER, SCHEMA_FOLDER))


def _delete_external_paths(table: Table, location: str) -> None:
    """Deletes the folders of the table below its external paths."""
    external = table.layout.external
    roots = () if external is None else external.earlier()
    for root in roots:
        inside = _without_scheme(table.storage.location)
        if f"{inside}/".startswith(f"{_without_scheme(root)}/"):
            _LOG.warning(
                "%s is inside its own external path %s, where other files may be: only the table's "
                "folder is deleted",
                location,
                root,
            )
            continue
        for name in table.storage.list_folders(shown_root(root)[:-1]):  # without its last slash
            delete_below(table.storage, f"{shown_root(root)}{name}")


class CatalogArguments(TypedDict):
    """The arguments of a catalog. They are fields of `FilesystemCatalog`."""

    warehouse: str
    storage_options: dict[str, str]
    table_defaults: dict[str, str]


def catalog_arguments(options: Mapping[str, str]) -> CatalogArguments:
    """The arguments of the catalog that Paimon's options describe. The storage options among them
    are the options that the store of the warehouse needs. For a Hive or REST catalog, they are all options.
    Raises `InvalidOption`, and `UnsupportedFeature` for a `metastore` that is not supported.
    """
    cleaned = {str(key).strip().lower(): str(value).strip() for key, value in options.items()}
    kind = metastore_of(options)
    warehouse = cleaned.get("warehouse", "")
    if kind == "hive":
        _check_hive(cleaned)
    elif not warehouse:
        raise errors.InvalidOption(
            f"Option 'warehouse' is {cleaned.get('warehouse')!r}. "
            "Set it to the folder of the databases.",
            option="warehouse",
        )
    if kind not in ("filesystem", "hive", "jdbc", "rest"):
        raise errors.InvalidOption(
            f"Option 'metastore' is {cleaned.get('metastore')!r}. "
            "Set it to 'filesystem', 'hive', 'jdbc' or 'rest'.",
            option="metastore",
        )
    if kind != "rest":  # a server may have options of its own
        of_login = OF_LOGIN if kind == "hive" else ()
        _check_names(warehouse, {key: cleaned[key] for key in cleaned if key not in of_login})
    defaults = {
        key.removeprefix(_DEFAULTS): value
        for key, value in cleaned.items()
        if key.startswith(_DEFAULTS)
    }
    if kind in ("hive", "rest"):
        return {
            "warehouse": warehouse,
            "storage_options": cleaned | {"metastore": kind},
            "table_defaults": defaults,
        }
    return {
        "warehouse": warehouse.rstrip("/"),
        "storage_options": _storage_options(kind, warehouse, cleaned),
        "table_defaults": defaults,
    }


def _check_hive(options: Mapping[str, str]) -> None:
    """Raises `InvalidOption` if a Hive catalog has no address, and `UnsupportedFeature` for an
    option whose effect would be missing.
    """
    if not options.get("uri"):
        raise errors.InvalidOption(
            "Option 'uri' is not set. Set it to the address of the Hive Metastore, "
            "thrift://host:9083.",
            option="uri",
        )
    refused = [key for key in _HIVE_FILES if options.get(key, "false") != "false"]
    if options.get("hive.metastore.use.ssl", "false").lower() != "false":
        refused.append("hive.metastore.use.ssl")
    if refused:
        raise errors.UnsupportedFeature(
            f"Option {refused[0]!r} of a Hive catalog is not supported. Set 'uri', 'warehouse', "
            "'hive.metastore.sasl.enabled' and 'hive.metastore.kerberos.principal' for a login with "
            "Kerberos, and the options of the store, and use a metastore without TLS.",
            option=refused[0],
        )


def unknown_options(warehouse: str, options: Mapping[str, str]) -> list[str]:
    """The sorted keys of options that are unknown to the filesystem catalog, to the JDBC catalog
    and to all stores. The keys of `options` are in lower case.
    """
    return [
        key
        for key in sorted(options)
        if not (
            key in _OF_PAIMON
            or key in _OF_OTHERS
            or key in _OF_STORES
            or OF_DATABASE.fullmatch(key)
            or key.startswith((_DEFAULTS, "hadoop."))
            or _is_of_store(key)
            or storage_options_for(f"{warehouse}/x", {key: ""})
        )
    ]


def _is_of_store(key: str) -> bool:
    """Whether the key is the name of an option of a store, with the prefix of that store."""
    kind = _kind_of_store(key)
    if kind is None:
        return False
    return bool(store_option(kind, key) or refusal_of(kind, key) or is_of_another(kind, key))


def _kind_of_store(key: str) -> str | None:
    """The kind of store whose prefix is at the beginning of the key."""
    return next((kind for kind, begins in PREFIXES.items() if key.startswith(begins)), None)


def _check_names(warehouse: str, options: Mapping[str, str]) -> None:
    """Raises `InvalidOption` for an unknown option that looks like a misspelt option of a store.
    Without this error, the store would be used with other settings. Warns of other unknown options.
    Java's stores have many options for tuning, such as `s3.connection.maximum`. Messages contain no
    values, because a value may be a secret.
    """
    shown = shown_location(warehouse)
    for key in unknown_options(warehouse, options):
        kind = _kind_of_store(key)
        names_of_store = recommended_names(kind) if kind else ()
        near = opt.did_you_mean(key, [*_OF_PAIMON, *names_of_store])
        is_misspelt = opt.did_you_mean(key, names_of_store, _MISSPELT) != ""
        if key.startswith(opt.SINK_PREFIX) or (is_misspelt and not key.startswith("fs.")):
            raise errors.InvalidOption(
                f"{shown}: the catalog's option {key!r} is not known. {near}".rstrip(), option=key
            )
        _LOG.warning(
            "%s: the catalog's option %r is not known, and has no effect. %s", shown, key, near
        )


def _storage_options(kind: str, warehouse: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options of a catalog that its tables need. Warns of options that have no effect."""
    of_database = {}
    if kind == "jdbc":
        of_database = {key: value for key, value in options.items() if OF_DATABASE.fullmatch(key)}
    for key in options.keys() & _OF_OTHERS - of_database.keys():
        _LOG.warning(
            "%s: this catalog takes no lock, and does not use %s.", shown_location(warehouse), key
        )
    of_store = {key: value for key, value in options.items() if key not in _OF_OTHERS}
    needed = storage_options_for(f"{warehouse}/x", of_store)
    needed |= of_database
    if opt.UNSAFE_SINGLE_WRITER.key in options:
        needed[opt.UNSAFE_SINGLE_WRITER.key] = options[opt.UNSAFE_SINGLE_WRITER.key]
    return needed
