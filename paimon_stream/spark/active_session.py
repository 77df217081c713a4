"""Opens storages in a process where Spark may run. Does not import Spark, unless somebody else has."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from os import PathLike
from typing import Any

from paimon_stream.storage.base import Storage
from paimon_stream.storage.location import KIND_OF, scheme_of
from paimon_stream.storage.uri import open_storage

__all__ = ["open_beside_spark"]


def open_beside_spark(
    location: str | PathLike[str], storage_options: Mapping[str, str] | None = None
) -> Storage:
    """The storage at a location, as `open_storage` opens it. For an object store, the active Spark session
    says what the storage options do not say."""
    spark: Mapping[str, str] = {}
    if scheme_of(str(location)) in KIND_OF:
        session = _active_session()
        if session is not None:
            from paimon_stream.spark.hadoop_options import hadoop_options

            spark = hadoop_options(session)
    return open_storage(location, storage_options, spark=spark)


def _active_session() -> Any:
    module: Any = sys.modules.get("pyspark.sql")
    try:
        return None if module is None else module.SparkSession.getActiveSession()
    except Exception:  # noqa: BLE001 - without a session to ask, storage options and environment decide
        return None
