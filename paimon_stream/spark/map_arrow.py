"""`DataFrame.mapInArrow` for columns with any names, and Arrow batches whose size fits into the JVM."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame
from pyspark.sql import types as st

from paimon_stream.spark.hadoop_options import unlogged
from paimon_stream.spark.identity import is_connect
from paimon_stream.spark.tasks import Renamed
from paimon_stream.spark.write_plan import ArrowBatches

_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT: Final = str(2**31 - 1)
_RECORDS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_SPARK_LIMITS_BYTES: Final = int(pyspark.__version__.split(".", 1)[0]) >= 4

ArrowTask = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_arrow(frame: DataFrame, task: ArrowTask, schema: st.StructType | str) -> DataFrame:
    """The rows that the task makes of the frame's rows, partition by partition.

    PySpark parses each column name as an expression: a dot is the path into a struct, and a backtick is a syntax error.
    So columns with such names are renamed to `c0`, `c1`, … for the transfer, and the task gets their original names.
    """
    names = tuple(frame.columns)
    if any("." in name or "`" in name for name in names):
        task = Renamed(task=task, names=names)
        frame = frame.toDF(*(f"c{place}" for place in range(len(names))))
    with unlogged():
        return frame.mapInArrow(task, schema)


@contextmanager
def arrow_batches_of(size: ArrowBatches, frame: DataFrame) -> Iterator[None]:
    """Has Spark make Arrow batches of that size for one action. Values that the user has set stay.

    To keep its limit of bytes, Spark 4 asks each column for its size after each row. That takes a tenth to a third of
    the time to move rows to Python, and only the largest possible value switches it off (docs/performance.md). Without
    the limit, and on Spark 3.5, which does not have it, the number of rows in a batch is limited instead.

    In a `foreachBatch` on classic Spark, the session is a clone that belongs to the stream. A batch write
    changes the user's own session and then restores it; on Spark 4 it does so only if rows are known to be
    narrow. On Connect nothing is changed, because the session may be the user's, with other work in it.
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
        changed = []  # the user has set a limit of bytes, and Spark applies it
    for key in changed:
        conf.set(key, wanted[key])
    try:
        yield
    finally:
        for key in changed:
            conf.unset(key)
