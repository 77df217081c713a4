"""Opens storages and finds executors in a process where Spark may run. Imports Spark only if somebody else has."""

import sys
from collections.abc import Mapping
from os import PathLike
from typing import Any

from paimon_stream.compact.remote import Elsewhere
from paimon_stream.storage.base import Storage
from paimon_stream.storage.uri import open_storage
from paimon_stream.table.table import Table


def open_beside_spark(location: str | PathLike[str], storage_options: Mapping[str, str] | None = None) -> Storage:
    """The storage at a location, as `open_storage` opens it. For an object store, the thread's active Spark
    session says what the storage options do not say; where a thread has none, the process's."""
    return open_storage(location, storage_options, spark=_options_of_session)


def executors_of_session(table: Table) -> Elsewhere | None:
    """Spark's executors, to compact the table. None without a session, on Spark Connect, where the client
    cannot see what they have, and for a table in the memory of this process."""
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
