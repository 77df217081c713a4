"""`DataFrame.mapInArrow` for columns of any name, with Arrow batches of a size that fits into the JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame
from pyspark.sql import types as st

from paimon_stream.spark.identity import is_connect
from paimon_stream.spark.incoming import Renamed
from paimon_stream.spark.write_plan import ArrowBatches

__all__ = ["arrow_batches_of", "map_arrow"]

_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT: Final = str(2**31 - 1)
_RECORDS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_SPARK_LIMITS_BYTES: Final = int(pyspark.__version__.split(".", 1)[0]) >= 4

ArrowTask = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_arrow(frame: DataFrame, task: ArrowTask, schema: st.StructType | str) -> DataFrame:
    """The rows that the task makes of the frame's rows, partition by partition.

    PySpark takes each name of the frame's columns for an expression: a dot in it is the way into a struct, a
    backtick a syntax error. Columns with such names travel as `c0`, `c1`, …; the task gets their own names.
    """
    names = tuple(frame.columns)
    if any("." in name or "`" in name for name in names):
        task = Renamed(task=task, names=names)
        frame = frame.toDF(*(f"c{place}" for place in range(len(names))))
    return frame.mapInArrow(task, schema)


@contextmanager
def arrow_batches_of(size: ArrowBatches, frame: DataFrame) -> Iterator[None]:
    """Has Spark make Arrow batches of that size for one action. Values that the user has set stay.

    Spark 4 keeps a limit of bytes by asking each column for its size after each row, which costs a tenth to a
    third of the way to Python; only the largest value switches that off (docs/performance.md). Then, and on
    Spark 3.5, which has no such limit, the rows of a batch are limited.

    In a `foreachBatch` on classic Spark the session is the stream's clone. A batch write changes the user's
    own session, and changes it back; on Spark 4 only where rows are known to be narrow. On Connect nothing is
    changed: the session may be the user's, and others may be at work in it.
    """
    if is_connect(frame) or (_SPARK_LIMITS_BYTES and size.bytes_limited):
        yield
        return
    wanted = {_RECORDS: str(size.records)}
    if _SPARK_LIMITS_BYTES:
        wanted[_BYTES] = _NO_LIMIT
    conf = frame.sparkSession.conf
    changed = [key for key in wanted if conf.get(key, None) is None]
    if _SPARK_LIMITS_BYTES and _BYTES not in changed:
        changed = []  # the user has chosen a limit of bytes, which Spark keeps
    for key in changed:
        conf.set(key, wanted[key])
    try:
        yield
    finally:
        for key in changed:
            conf.unset(key)
