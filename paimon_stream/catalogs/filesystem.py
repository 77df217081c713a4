"""Paimon's filesystem catalog: tables known by their folders, `<warehouse>/<database>.db/<table>`
(catalogs.md §2).
"""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from paimon_stream import errors
from paimon_stream import options as opt
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.storage.base import Storage, delete_below, files_of
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.location import KIND_OF, scheme_of, shown_location, store_location
from paimon_stream.storage.store_sources import options_for
from paimon_stream.storage.uri import open_folder, shown_root
from paimon_stream.table.layout import SCHEMA_FOLDER, SNAPSHOT_FOLDER, schema_path
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.table import load_table

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
# Options of catalogs of other kinds, and what to do instead of using such a catalog.
_OF_OTHERS: Final = {"uri", "token", "token.provider", "lock.type", "catalog-key", "hive-conf-dir"}
_OTHER_KINDS: Final = {"hive": "give the tables' locations"}

Named = str | tuple[str, str]
"""What names a table: `"db.t"`, with backticks around a name that has dots, or `("db", "t")`."""


def names_of(
    named: Named,
    *,
    main: bool = False,
) -> tuple[str, str]:
    """The database and the table, or a branch as `t$branch_b`. Raises `InvalidOption`, with `main`
    also for a branch, and `UnsupportedFeature` for a system table such as `db.t$snapshots`.
    """
    found = _NAMED.fullmatch(named) if isinstance(named, str) else None
    parts = named if found is None else tuple(one for one in found.groups() if one)
    if not isinstance(parts, tuple) or len(parts) != 2 or not all(map(_is_name, parts)):
        text = f"The table is {named!r}. Give it as 'database.table', or, if a name has dots, (database, table)."
        raise errors.InvalidOption(text, option="identifier")
    table, mark, rest = parts[1].partition("$")
    is_branch = rest.startswith("branch_") and "$" not in rest
    if mark and (main or not is_branch):
        kind = errors.InvalidOption if is_branch else errors.UnsupportedFeature
        raise kind(
            f"{named!r} is no table, but a branch or a system table. Give {parts[0]}.{table}."
        )
    return parts[0], parts[1]


def _inside(location: str) -> str:
    return re.sub(r"\A(?:[\w+.-]+:)?/*", "", location)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and not _NO_NAME.search(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesystemCatalog:
    """The databases and tables of a warehouse. All methods raise `InvalidOption` and
    `StorageError`.
    """

    warehouse: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    table_defaults: Mapping[str, str] = field(default_factory=dict, repr=False)
    opened: Callable[[str, Mapping[str, str]], Storage] = field(
        default=open_folder, repr=False, compare=False
    )

    def location(self, identifier: Named) -> str:
        """The folder of a table, or of its branch. Asks nothing."""
        database, table = names_of(identifier)
        return f"{self.warehouse}/{database}{_ENDING}/{table}"

    def found(self, identifier: Named) -> tuple[str, Mapping[str, str]]:
        """The location of a table, or of its branch, and the storage options that open it. Asks
        nothing.
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
        """Creates an empty database, which a file keeps: stores have no empty folders. Raises
        `AlreadyExists`.
        """
        or_not = opt.Arguments(self.warehouse).flag("ignore_if_exists", ignore_if_exists)
        if not self._has(name):
            self._storage.put_if_absent(f"{name}{_ENDING}/{_MARKER}", b"")
        elif not or_not:
            text = f"There is a database {name!r} in {self.warehouse}. Use it, or pass ignore_if_exists=True."
            raise errors.AlreadyExists(text, path=self.warehouse)

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
        if given.flag("ignore_if_not_exists", ignore_if_not_exists) and not self._has(name):
            return
        tables = self.list_tables(name)
        if not given.flag("cascade", cascade) and tables:
            text = f"Database {name!r} has {len(tables):,} tables. Drop them first, or pass cascade=True."
            raise errors.InvalidOption(text, option="cascade", path=self.warehouse)
        for table in tables:
            self.drop_table((name, table))
        self._forget(name)

    def _forget(self, name: str) -> None:
        """Removes what is left of a database without tables."""
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
        folder, storage = self._folder(database), self._storage
        names = storage.list_folders(folder)
        wanted = [partial(storage.exists, f"{folder}/{name}/{schema_path(0)}") for name in names]
        return [name for name, there in zip(names, storage.together(wanted), strict=True) if there]

    def drop_table(
        self,
        identifier: Named,
        ignore_if_not_exists: bool = False,
    ) -> None:
        """Deletes a table with its external paths. If that is cut short, it can be repeated. Raises
        `NotFound`.
        """
        folder, location = self._table_folder(identifier), self.location(identifier)
        storage, table = self._storage, self.opened(location, self.storage_options)
        if (
            opt.Arguments(location).flag("ignore_if_not_exists", ignore_if_not_exists)
            and not SchemaStore(table).ids()
        ):
            return
        try:
            loaded = load_table(table)
            for root in () if loaded.layout.external is None else loaded.layout.external.earlier():
                if f"{_inside(table.location)}/".startswith(f"{_inside(root)}/"):
                    text = "%s lies in its own external path %s, with what else is there: only the table's folder goes"
                    _LOG.warning(text, location, root)
                    continue
                for name in loaded.storage.list_folders(shown_root(root)[:-1]):
                    delete_below(loaded.storage, f"{shown_root(root)}{name}")
        except (errors.ConfigError, errors.FormatError) as why:
            _LOG.warning(
                "%s cannot be understood, and is dropped without its external paths: %s",
                location,
                why,
            )
        # So what is left of half a drop is no whole table, and no table can be created over it
        # (catalogs.md §2).
        delete_below(storage, folder, last=(SNAPSHOT_FOLDER, SCHEMA_FOLDER))

    def rename_table(
        self,
        source: Named,
        target: Named,
    ) -> None:
        """Renames the folder of a table, in one step. Raises `StorageError` if it is missing or the
        target exists, and `UnsupportedFeature` in a store, where each file would be copied and
        others could see half a table.
        """
        storage, old, new = self._storage, self._table_folder(source), self._table_folder(target)
        if not isinstance(storage, LocalStorage):
            cure = f"Write the rows of {source} into a new one."
            text = f"Tables in {self.warehouse} cannot be renamed in one step. {cure}"
            raise errors.UnsupportedFeature(text, option="target")
        SchemaStore(
            self.opened(self.location(source), self.storage_options)
        ).first_digest()  # there is a table
        storage.rename(old, new)

    def _table_folder(self, identifier: Named) -> str:
        """The folder below the warehouse of a table in a database that exists. Raises
        `NotFound`.
        """
        database, table = names_of(identifier, main=True)
        return f"{self._folder(database)}/{table}"

    def _keep(self, identifier: Named, schema: TableSchema, *, new: bool) -> None:
        """Notes a table that was created or altered, if this catalog has more than files."""

    def _has(self, database: str) -> bool:
        if not _is_name(database):
            text = f"{database!r} cannot be a database: its name is a folder's, and not 'sys'. Give another name."
            raise errors.InvalidOption(text, option="database")
        return self._finds(database)

    def _finds(self, database: str) -> bool:
        folder, storage = f"{database}{_ENDING}", self._storage
        return (
            bool(files_of(storage, folder) or storage.list_folders(folder))
            or database in self.list_databases()
        )

    def _folder(self, database: str) -> str:
        """The folder of a database below the warehouse. Raises `NotFound` if there is no such
        database.
        """
        if self._has(database):
            return f"{database}{_ENDING}"
        text = f"There is no database {database!r} in {self.warehouse}. Correct the name, or create it first."
        raise errors.NotFound(text, path=self.warehouse, database=database)

    @property
    def _storage(self) -> Storage:
        return self.opened(self.warehouse, self.storage_options)


def catalog_arguments(options: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of the catalog that has these options, which are Paimon's, with those of the
    warehouse's store. A REST catalog takes all. Raises `InvalidOption`, `UnsupportedFeature` for a
    `metastore` that is not supported.
    """
    given = {str(key).strip().lower(): str(value).strip() for key, value in options.items()}
    kind, warehouse = given.get("metastore", "filesystem").lower(), given.get("warehouse", "")
    if kind in _OTHER_KINDS:
        text = (
            f"Catalogs with metastore = {kind!r} are not supported. Instead, {_OTHER_KINDS[kind]}."
        )
        raise errors.UnsupportedFeature(text, option="metastore", value=kind)
    if kind not in ("filesystem", "jdbc", "rest") or not warehouse:
        cure = "'filesystem', 'jdbc' or 'rest'" if warehouse else "the folder of the databases"
        option = "metastore" if warehouse else "warehouse"
        raise errors.InvalidOption(
            f"Option {option!r} is {given.get(option)!r}. Set it to {cure}.", option=option
        )
    defaults = {
        key[len(_DEFAULTS) :]: one for key, one in given.items() if key.startswith(_DEFAULTS)
    }
    if kind == "rest":
        return {
            "warehouse": warehouse,
            "storage_options": given | {"metastore": kind},
            "table_defaults": defaults,
        }
    taken = {
        key: one for key, one in given.items() if kind == "jdbc" and OF_DATABASE.fullmatch(key)
    }
    for key in given.keys() & _OF_OTHERS - taken.keys():
        _LOG.warning(
            "%s: this catalog takes no lock, and does not use %s.", shown_location(warehouse), key
        )
    in_store = scheme_of(warehouse) in KIND_OF
    own = {key: one for key, one in given.items() if key not in _OF_OTHERS}
    known = options_for(store_location(f"{warehouse}/x"), own) if in_store else {}
    known |= taken | {key: one for key, one in given.items() if key == opt.UNSAFE_SINGLE_WRITER.key}
    return {
        "warehouse": warehouse.rstrip("/"),
        "storage_options": known,
        "table_defaults": defaults,
    }
