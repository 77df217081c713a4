"""Opens storages and finds executors in a process where Spark may run. Imports Spark only if
somebody else has.
"""

import sys
from collections.abc import Mapping
from os import PathLike
from typing import Any

from paimon_stream.catalogs.filesystem import FilesystemCatalog, catalog_arguments
from paimon_stream.catalogs.jdbc import JdbcCatalog
from paimon_stream.catalogs.opening import open_storage, open_table_folder
from paimon_stream.catalogs.rest import RestCatalog
from paimon_stream.compact.remote import Elsewhere
from paimon_stream.options import Arguments
from paimon_stream.storage.base import Storage
from paimon_stream.table.table import Table


def open_beside_spark(
    location: str | PathLike[str], storage_options: Mapping[str, str] | None = None
) -> Storage:
    """The storage at a location, as `open_storage` opens it. For an object store, the thread's
    active Spark session says what the storage options do not say; where a thread has none, the
    process's.
    """
    return open_storage(location, storage_options, spark=_options_of_session)


def in_catalog(
    location: Any, catalog: Mapping[str, str] | str | None
) -> tuple[Any, Mapping[str, str]]:
    """The location of the table of that name in a catalog, and the storage options that open it;
    what is given, without a catalog. Asks Spark's session, and a catalog's database or server.
    Raises `InvalidOption`, `UnsupportedFeature`, `StorageError`.
    """
    if catalog is None:
        return location, {}
    arguments = catalog_arguments(options_of_catalog(catalog))
    kinds: dict[str, type[FilesystemCatalog]] = {"jdbc": JdbcCatalog, "rest": RestCatalog}
    kind = kinds.get(arguments["storage_options"].get("metastore", ""), FilesystemCatalog)
    return kind(**arguments, opened=open_table_folder).found(location)


def options_of_catalog(catalog: Any, session: Any = None) -> dict[str, str]:
    """The given options of a catalog, or those of the one of this name in Spark's session. Raises
    `InvalidOption`.
    """
    if not isinstance(catalog, str):
        return Arguments("The catalog").mapping(
            "catalog", catalog, "{'warehouse': 's3://bucket/path'}", texts=True
        )
    session, prefix, found = (
        session or _session(),
        f"spark.sql.catalog.{catalog}.",
        dict[str, str](),
    )
    if session is not None:
        from paimon_stream.spark.hadoop_options import unlogged

        with (
            unlogged()
        ):  # SET lists all names, and hides secrets, so values are asked for one by one
            names = [row[0] for row in session.sql("SET").collect() if row[0].startswith(prefix)]
            found = {name.removeprefix(prefix): str(session.conf.get(name)) for name in names}
    if not found:
        raise Arguments("The catalog").wrong(
            "catalog", catalog, "a name with options spark.sql.catalog.<name>.*"
        )
    return found


def executors_of_session(table: Table) -> Elsewhere | None:
    """Spark's executors, to compact the table. None without a session, on Spark Connect, where the
    client cannot see what they have, and for a table in the memory of this process.
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
    """The thread's active session, or else the process's; None if there is none."""
    module: Any = sys.modules.get("pyspark.sql")
    try:
        return None if module is None else module.SparkSession.active()
    except Exception:  # noqa: BLE001 - without a session to ask, storage options and environment decide
        return None
