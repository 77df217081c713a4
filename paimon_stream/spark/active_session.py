"""Opens storages in a process where Spark may run. Does not import Spark, unless somebody else has."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from os import PathLike
from typing import Any

from paimon_stream.storage.base import Storage
from paimon_stream.storage.uri import open_storage


def open_beside_spark(location: str | PathLike[str], storage_options: Mapping[str, str] | None = None) -> Storage:
    """The storage at a location, as `open_storage` opens it. For an object store, the thread's active Spark
    session says what the storage options do not say; where a thread has none, the process's."""
    return open_storage(location, storage_options, spark=_options_of_session)


def _options_of_session() -> Mapping[str, str]:
    module: Any = sys.modules.get("pyspark.sql")
    try:
        session = None if module is None else module.SparkSession.active()
    except Exception:  # noqa: BLE001 - without a session to ask, storage options and environment decide
        session = None
    if session is None:
        return {}
    from paimon_stream.spark.hadoop_options import hadoop_options

    return hadoop_options(session)
