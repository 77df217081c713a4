"""`register_views` gives the tables of a catalog names in Spark SQL (docs/spark-sql.md).

Spark's catalog does not pass the options of a table to a data source in Python. So each table gets
a data source of its own, whose class holds the options
(docs/decisions/0021-a-class-for-each-name.md).

Invariants:

- Nothing in Spark can delete files of a table. A name is an external table of Spark's catalog,
  whose files DROP TABLE leaves alone. DROP DATABASE deletes the folder that Spark has for the
  database, so that folder must not hold the tables.
- A name in Spark's catalog that belongs to another table is never replaced.
"""

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from paimon_stream import options as opt
from paimon_stream.catalogs.filesystem import FilesystemCatalog
from paimon_stream.catalogs.metastore import metastore_of
from paimon_stream.errors import InvalidOption, NotFound, PaimonStreamError, UnsupportedFeature
from paimon_stream.extras import require
from paimon_stream.spark.active_session import catalog_of, options_of_catalog
from paimon_stream.storage.location import scheme_of, shown_location
from paimon_stream.storage.uri import place_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_LOG = logging.getLogger(__name__)

_SQL_NAME: Final = re.compile(r"[A-Za-z0-9_]+")
"""What Spark's own catalog takes as a name."""

_PROVIDER: Final = re.compile(r"^Provider: (.*)$", re.MULTILINE)
_LOCATION: Final = re.compile(r"^Location: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SqlName:
    """A table of the catalog, with its name in Spark SQL.

    Attributes:
        database: the database.
        table: the table's name in the database.
        location: the table's folder.
        place: values that distinguish the table from all others, without credentials.
    """

    database: str
    table: str
    location: str
    place: tuple[str, ...]

    @property
    def shown(self) -> str:
        return f"{self.database}.{self.table}"

    @property
    def quoted(self) -> str:
        return f"`{self.database}`.`{self.table}`"

    @property
    def word(self) -> str:
        """The word for `format()` that means this table. A table with the same name elsewhere has
        another word. Otherwise a session that has registered that other table would read it under
        the name that Spark's catalog has for this table.
        """
        digest = hashlib.sha256(json.dumps(self.place).encode()).hexdigest()
        return f"{self.words}{digest[:16]}"

    @property
    def words(self) -> str:
        """The beginning of the word for `format()` (see `word`). It is the same for all tables with
        this name. Spark compares such words in lower case.
        """
        return f"paimon_stream.{self.database}.{self.table}.".lower()


@dataclass(frozen=True, slots=True)
class _Holder:
    """The table or view that Spark's catalog has under a name.

    Attributes:
        word: the name of its data source.
        folder: its folder, as Spark shows it.
    """

    word: str
    folder: str


def register_views(
    spark: "SparkSession",
    catalog: Mapping[str, str] | FilesystemCatalog | str,
    *,
    databases: Iterable[str] | None = None,
) -> list[str]:
    """Makes each table of a catalog readable and writable as `database.table` in Spark SQL. Each
    query reads the newest snapshot. Call this function again for tables and columns that are new.

    As with `register`, a classic session becomes the active session of the calling thread.

    Tables that cannot be read, or whose names Spark does not take, are left out with a warning.

    Args:
        spark: the session, classic or Connect, in which the names hold.
        catalog: a warehouse's folder, a catalog's options, its name in the session, or what
            `catalog` returns.
        databases: the databases whose tables get names. None: all databases.

    Returns:
        The names, sorted.

    Raises:
        UnsupportedFeature: Spark is earlier than 4.0.
        NotFound: there is no such database, or the warehouse has no database.
        InvalidOption: an argument is wrong, or Spark keeps its own database in the folder of the
            tables.
        StorageError: the catalog cannot be read.
    """
    source = _source()
    options = _options_of(spark, catalog)
    paimon = catalog_of(options)
    chosen: Iterable[str] = paimon.list_databases()
    if databases is not None:
        arguments = opt.Arguments(shown_location(paimon.warehouse))
        chosen = arguments.items("databases", databases, str, "names such as ['shop']")
    elif not chosen:
        raise NotFound(
            f"There is no database in {shown_location(paimon.warehouse)}. Correct the warehouse: it "
            "is the folder that holds <database>.db/<table>.",
            path=shown_location(paimon.warehouse),
        )
    views = _Views(spark, source, options, paimon)
    return sorted(name for database in chosen for name in views.register(database))


def _source() -> Any:
    """The module of the data source."""
    try:
        return require("paimon_stream.spark.datasource", "spark", "register_views")
    except UnsupportedFeature:
        raise UnsupportedFeature(
            "register_views needs pyspark 4.0 or later: earlier versions have no name that reads "
            "the newest snapshot in each query. Before each query, make a temporary view: "
            "PaimonTable.load(location).to_spark(spark).createOrReplaceTempView('orders')."
        ) from None


def _options_of(spark: Any, catalog: Any) -> dict[str, str]:
    """The options of the catalog. The path of the warehouse is a full path, because other processes
    read it.
    """
    if isinstance(catalog, FilesystemCatalog):
        options = {"warehouse": catalog.warehouse, **catalog.storage_options}
    elif isinstance(catalog, os.PathLike) or (isinstance(catalog, str) and "/" in catalog):
        options = {"warehouse": os.fspath(catalog)}
    else:
        options = options_of_catalog(catalog, spark)
    warehouse = options.get("warehouse", "")
    if warehouse and not scheme_of(warehouse) and metastore_of(options) != "rest":
        options["warehouse"] = os.path.abspath(warehouse)
    return options


@dataclass(frozen=True, slots=True)
class _Views:
    """Registers the tables of databases.

    Attributes:
        spark: the session.
        source: the module of the data source.
        options: the options of the catalog, with secrets.
        paimon: the catalog.
    """

    spark: Any
    source: Any
    options: Mapping[str, str]
    paimon: FilesystemCatalog

    def register(self, database: str) -> list[str]:
        """Gives the tables of a database their names, and returns the names. Names of tables that
        are gone are dropped.
        """
        tables = self.paimon.list_tables(database)
        if not _SQL_NAME.fullmatch(database):
            _leave_out(f"all {len(tables):,} tables of database {database!r}", _NOT_TAKEN)
            return []
        names = self._names_of(database, tables)
        self._check_folder(database, tables, names)
        if not self._create_database(database):
            return []
        holders = self._holders(database)
        registered = [name.shown for name in names if self._register(name, holders)]
        for table in holders.keys() - {table.lower() for table in tables}:
            self._forget(database, table, holders[table])
        return registered

    def _names_of(self, database: str, tables: Iterable[str]) -> list[_SqlName]:
        """The names of the tables that can have a name in Spark SQL."""
        names: dict[str, _SqlName] = {}
        for table in tables:
            shown = f"{database}.{table}"
            if not _SQL_NAME.fullmatch(table):
                _leave_out(shown, _NOT_TAKEN)
            elif table.lower() in names:
                _leave_out(shown, f"Spark does not tell it from {names[table.lower()].shown}")
            else:
                names[table.lower()] = self._name_of(database, table)
        return list(names.values())

    def _name_of(self, database: str, table: str) -> _SqlName:
        """The name of a table. Raises `NotFound` if a server does not have the table."""
        location = self.paimon.location((database, table))
        options = self.paimon.storage_options
        place = place_of(location, options)
        if metastore_of(self.options) == "rest":  # it may give the endpoint of its store later
            server = shown_location(options.get("uri", "")).rpartition("@")[2]
            place = ("rest", server.rstrip("/"), shown_location(self.paimon.warehouse), *place)
        return _SqlName(database=database, table=table, location=location, place=place)

    def _check_folder(
        self, database: str, tables: Iterable[str], names: Iterable[_SqlName]
    ) -> None:
        """Raises `InvalidOption` if Spark's folder of the database is the folder of the tables, or
        one is within the other. In that case DROP DATABASE would delete the tables.
        """
        spark_folder = self._spark_folder(database)
        # DESCRIBE DATABASE writes a space as %20, and spark.sql.warehouse.dir does not.
        readings = {_plain(spark_folder), _plain(unquote(spark_folder))}
        for folder in self._folders(database, tables, names):
            if any(_overlap(reading, _plain(folder)) for reading in readings):
                raise InvalidOption(
                    f"The folder of Spark's database {database!r}, {spark_folder}, and "
                    f"{shown_location(folder)} overlap, so DROP DATABASE would delete tables. No "
                    f"table of {database} was registered. Start Spark with another "
                    "spark.sql.warehouse.dir than the warehouse, or first run CREATE DATABASE "
                    f"{database} LOCATION '<elsewhere>'.",
                    option="spark.sql.warehouse.dir",
                    path=spark_folder,
                )

    def _spark_folder(self, database: str) -> str:
        """The folder that Spark has for a database, or would create for it."""
        if self.spark.catalog.databaseExists(database):
            rows = self.spark.sql(f"DESCRIBE DATABASE `{database}`").collect()
            return str(next(row[1] for row in rows if row[0] == "Location"))
        conf = self.spark.conf
        is_exact = conf.get("spark.sql.caseSensitive").lower() == "true"
        name = database if is_exact else database.lower()
        return f"{conf.get('spark.sql.warehouse.dir')}/{name}.db"

    def _folders(
        self, database: str, tables: Iterable[str], names: Iterable[_SqlName]
    ) -> list[str]:
        """The folders of the tables of a database, also of tables without a name in Spark SQL and
        of future tables. A server says only where its present tables are.
        """
        if metastore_of(self.options) not in ("hive", "rest"):
            return [f"{self.paimon.warehouse}/{database}.db"]
        known = {name.table: name.location for name in names}
        return [known.get(table) or self.paimon.location((database, table)) for table in tables]

    def _create_database(self, database: str) -> bool:
        """Creates the database in Spark's catalog. Returns whether Spark takes the name of the
        database. It does not take `global_temp`.
        """
        from pyspark.errors import AnalysisException

        try:
            self.spark.sql(f"CREATE DATABASE IF NOT EXISTS `{database}`")
        except AnalysisException as refused:
            _leave_out(f"database {database!r}", f"Spark refuses it: {_first_line(refused)}")
            return False
        return True

    def _holders(self, database: str) -> dict[str, _Holder]:
        """The tables and views that Spark's catalog has in a database, by their names in lower
        case.
        """
        rows = self.spark.sql(f"SHOW TABLE EXTENDED IN `{database}` LIKE '*'").collect()
        return {
            row["tableName"].lower(): _Holder(
                _value_in(_PROVIDER, row["information"]),
                _value_in(_LOCATION, row["information"]),
            )
            for row in rows
            if not row["isTemporary"]
        }

    def _register(self, name: _SqlName, holders: Mapping[str, _Holder]) -> bool:
        """Gives a table its name. Returns whether the table has the name now."""
        holder = holders.get(name.table.lower())
        if holder is not None and holder.word != name.word:
            self._let_it_be_dropped(name, holder.word)
            _leave_out(name.shown, "Spark has another table or view of this name. Drop that first")
            return False
        of_name = {"path": name.quoted, self.source.CATALOG: json.dumps(self.options)}
        read = require("paimon_stream.spark.datasource_read", "spark", "A read")
        try:
            columns = read.schema_of(of_name)
        except PaimonStreamError as failed:
            _leave_out(name.shown, f"it cannot be read: {failed}")
            return False
        self._enter(name.word, of_name)
        if holder is None or self.spark.table(name.quoted).schema != columns:
            return self._create(name, columns)
        return True

    def _let_it_be_dropped(self, name: _SqlName, word: str) -> None:
        """Makes the data source of a table of another warehouse known to the session, unless it is
        known already. A session that has also registered that other warehouse can still read the
        table.
        """
        if not word.startswith(name.words):
            return
        try:
            _ = self.spark.table(name.quoted).schema
        except Exception as failed:  # noqa: BLE001 - py4j's own error, or that of Spark Connect
            if "DATA_SOURCE_NOT_FOUND" in str(failed):
                self._enter(word, {})

    def _enter(self, word: str, of_name: Mapping[str, str]) -> None:
        """Makes the data source of a table known to the session. Spark cannot even drop a name if
        the session does not know its data source.
        """
        attributes = {"word": word, "of_name": of_name}
        base = self.source.PaimonDataSource
        self.source.enter(self.spark, type("PaimonTableSource", (base,), attributes))

    def _create(self, name: _SqlName, columns: "StructType") -> bool:
        """Puts the name of a table into Spark's catalog. An earlier name of the same table is
        replaced. Returns whether Spark takes the name. It does not if two columns differ in case
        only.
        """
        from pyspark.errors import AnalysisException

        self.spark.sql(f"DROP TABLE IF EXISTS {name.quoted}")
        folder = shown_location(name.location)
        try:
            self.spark.catalog.createTable(
                name.quoted, path=folder, source=name.word, schema=columns
            )
        except AnalysisException as refused:
            _leave_out(name.shown, f"Spark refuses it: {_first_line(refused)}")
            return False
        return True

    def _forget(self, database: str, table: str, holder: _Holder) -> None:
        """Drops the name of a table that is no longer in the catalog. `table` is in lower case."""
        exact = holder.folder.rpartition("/")[2]
        if exact.lower() != table:
            return
        try:
            name = self._name_of(database, exact)
        except NotFound:  # a server says where a table is only while it has it
            return
        if holder.word == name.word:
            self._enter(holder.word, {})
            self.spark.sql(f"DROP TABLE IF EXISTS `{database}`.`{table}`")
            _LOG.info("%s.%s is no longer in the catalog. Its name is dropped.", database, table)


_NOT_TAKEN: Final = "names in Spark's catalog have letters a to z, digits and _ only"


def _leave_out(tables: str, reason: str) -> None:
    _LOG.warning("register_views leaves out %s: %s.", tables, reason.rstrip("."))


def _first_line(refused: Exception) -> str:
    return str(refused).splitlines()[0]


def _overlap(folder: str, other: str) -> bool:
    """Whether the folders are the same, or one is within the other."""
    return f"{folder}/".startswith(f"{other}/") or f"{other}/".startswith(f"{folder}/")


def _value_in(pattern: re.Pattern[str], information: str) -> str:
    match = pattern.search(information)
    return "" if match is None else match[1].strip()


def _plain(location: str) -> str:
    """The path of a folder without its scheme, in a form in which paths can be compared."""
    is_local = scheme_of(location) in ("", "file")
    shown = location if is_local else shown_location(location)  # a local path may have '#' and '?'
    path = re.sub(r"\A[\w+.-]+:/*", "", shown).strip("/")
    return os.path.realpath(f"/{path}")[1:] if is_local else path
