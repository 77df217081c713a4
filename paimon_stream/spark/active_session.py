"""Opens storages and finds executors in a process where Spark may run. Spark is imported only if
the process has imported it already.
"""

import sys
from collections.abc import Mapping
from os import PathLike
from typing import Any, Final

from paimon_stream.catalogs.filesystem import FilesystemCatalog, catalog_arguments
from paimon_stream.catalogs.hive import HiveCatalog
from paimon_stream.catalogs.jdbc import JdbcCatalog
from paimon_stream.catalogs.metastore import metastore_of
from paimon_stream.catalogs.opening import open_storage, open_table_folder
from paimon_stream.catalogs.rest import RestCatalog
from paimon_stream.compact.remote import Elsewhere
from paimon_stream.options import Arguments
from paimon_stream.storage.base import Storage
from paimon_stream.table.table import Table

_CATALOGS: Final = "spark.sql.catalog."
_WAREHOUSE: Final = ".warehouse"
_METASTORE: Final = ".metastore"
_PAIMON: Final = "org.apache.paimon."


def open_beside_spark(
    location: str | PathLike[str], storage_options: Mapping[str, str] | None = None
) -> Storage:
    """The storage at a location, as `open_storage` opens it. For an object store, settings that the
    storage options lack are taken from a Spark session: the active session of the thread or, if
    there is none, that of the process.
    """
    return open_storage(location, storage_options, spark=_options_of_session)


def in_catalog(
    location: Any, catalog: Mapping[str, str] | str | None
) -> tuple[Any, Mapping[str, str]]:
    """The location of a table, and the storage options that open it. With a catalog, both are
    looked up in Spark's session and in the catalog's database or server.

    Args:
        location: the table's name in the catalog. Without a catalog it is returned as it is.
        catalog: the options of a catalog, or its name in Spark's session.

    Raises:
        InvalidOption, UnsupportedFeature, MissingExtra, StorageError: the errors of the catalog.
    """
    if catalog is None:
        return location, {}
    return catalog_of(options_of_catalog(catalog)).found(location)


def catalog_of(options: Mapping[str, str]) -> FilesystemCatalog:
    """The catalog with these options. No server or database is asked. Raises `InvalidOption`,
    `UnsupportedFeature`.
    """
    arguments = catalog_arguments(options)
    kinds: dict[str, type[FilesystemCatalog]] = {
        "hive": HiveCatalog,
        "jdbc": JdbcCatalog,
        "rest": RestCatalog,
    }
    kind = kinds.get(metastore_of(arguments["storage_options"]), FilesystemCatalog)
    return kind(**arguments, opened=open_table_folder)


def options_of_catalog(catalog: Any, session: Any = None) -> dict[str, str]:
    """The options of a catalog.

    Args:
        catalog: the options, or the name of a catalog in Spark's session.
        session: the session that has the catalog; None for the session of the thread or of the
            process.

    Raises:
        InvalidOption: `catalog` is neither a mapping of texts nor a name, or the session has no
            options for this name.
    """
    if not isinstance(catalog, str):
        return Arguments("The catalog").mapping(
            "catalog", catalog, "{'warehouse': 's3://bucket/path'}", texts=True
        )
    options = _options_in_session(session or _session(), f"{_CATALOGS}{catalog}.")
    if not options:
        raise Arguments("The catalog").wrong(
            "catalog", catalog, "a name with options spark.sql.catalog.<name>.*"
        )
    return options


def catalogs_in(session: Any) -> dict[str, dict[str, str]]:
    """The options of the session's catalogs, with secrets, by the names of the catalogs. Only
    catalogs with a warehouse or a metastore count. Their class must be Paimon's, or missing.
    """
    options = _options_in_session(session, _CATALOGS)
    names = {
        key.removesuffix(ending)
        for key in options
        for ending in (_WAREHOUSE, _METASTORE)
        if key.endswith(ending)
    }
    return {
        name: {
            key.removeprefix(f"{name}."): value
            for key, value in options.items()
            if key.startswith(f"{name}.")
        }
        for name in sorted(names)
        if "." not in name and options.get(name, _PAIMON).startswith(_PAIMON)
    }


def _options_in_session(session: Any, prefix: str) -> dict[str, str]:
    """The session's options whose names begin with this prefix. The names in the result lack the
    prefix. The result is empty if there is no session.
    """
    if session is None:
        return {}
    from paimon_stream.spark.hadoop_options import unlogged

    with unlogged():
        # SET lists all names, but hides secrets. So the value of each name is asked for separately.
        names = [row[0] for row in session.sql("SET").collect() if row[0].startswith(prefix)]
        return {name.removeprefix(prefix): str(session.conf.get(name)) for name in names}


def executors_of_session(table: Table) -> Elsewhere | None:
    """Spark's executors, which can compact the table. None without a session, and for a table in
    the memory of this process. None on Spark Connect, too, where the client cannot see how many
    cores the executors have.
    """
    session = _session()
    if not hasattr(session, "_jsparkSession") or table.location.startswith("memory:"):
        return None
    from paimon_stream.spark.compaction import SparkExecutors

    return SparkExecutors(session, table)


def _options_of_session() -> Mapping[str, str]:
    session = _session()
    if session is None:
        return {}
    from paimon_stream.spark.hadoop_options import hadoop_options

    return hadoop_options(session)


def _session() -> Any:
    """The active session of the thread or, if there is none, that of the process. None if neither
    has one.
    """
    module: Any = sys.modules.get("pyspark.sql")
    try:
        return None if module is None else module.SparkSession.active()
    except Exception:  # noqa: BLE001 - without a session to ask, storage options and environment decide
        return None
