"""Moves rows so that each bucket is in one task, if that is needed (write_plan.py).

Tables with primary keys need all rows of a bucket in one task, sorted by key. Within a key, the rows keep the
order of the DataFrame, because that order decides which row is the newest. Spark's own shuffle, row by row,
costs several times as much as packets (`gather_packets`), especially in the first batches.

Append tables need no shuffle, because the rows of a bucket may be in any number of files (spark.md §3). If
packets are used for them, buckets without partitions are spread evenly over the tasks, because Spark's own
hash of a bucket number would leave tasks idle.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as st

from paimon_stream.errors import InvalidOption
from paimon_stream.format.murmur import hash_bytes
from paimon_stream.format.types import DataType, TypeRoot
from paimon_stream.options import (
    BUCKET,
    BUCKET_FUNCTION,
    DYNAMIC_INITIAL_BUCKETS,
    DYNAMIC_MAX_BUCKETS,
    DYNAMIC_PARALLELISM,
    SHUFFLE,
    Options,
)
from paimon_stream.spark.bucket_sql import bucket_expression
from paimon_stream.spark.identity import is_connect
from paimon_stream.spark.map_arrow import map_arrow
from paimon_stream.spark.tasks import PackTask
from paimon_stream.spark.types import named
from paimon_stream.table.table import Table
from paimon_stream.write.bucket import assign_buckets
from paimon_stream.write.dynamic_buckets import MOST_BUCKETS
from paimon_stream.write.shuffle_packets import PACKETS
from paimon_stream.write.task import WriteSpec

_BUCKET: Final = "_paimon_stream_bucket"
_ORDER: Final = "_paimon_stream_order"
_OTHER_ORDER: Final = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
"""For Spark, -0.0 and 0.0 are one value, and so are all NaNs."""

_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_TASKS_PER_CORE: Final = 2
_ASSIGNERS: Final = 8  # each opens a bucket in each new partition, so more would make small files


def check_shuffle(table: Table) -> None:
    """Raises `InvalidOption` if `paimon-stream.shuffle` needs buckets that the table does not have, or
    forbids a shuffle that the table needs."""
    choice = table.options.value(SHUFFLE)
    if choice == "none" and table.schema.primary_keys:
        raise _unfit(table, choice, "a table with primary keys needs all rows of a key in one task")
    if choice == "bucket" and table.options.value(BUCKET) <= 0:
        raise _unfit(table, choice, "the table has no fixed buckets, so there is nothing to gather rows by")


def _unfit(table: Table, choice: str, why: str) -> InvalidOption:
    return InvalidOption(
        f"{SHUFFLE.key} is {choice!r} for {table.location}: {why}. Leave the option out.",
        option=SHUFFLE.key,
        value=choice,
        table=table.location,
    )


def gather_keys(frame: DataFrame, table: Table) -> tuple[DataFrame, bool]:
    """The rows of a table with a primary key, and whether the rows of a bucket are sorted by key.

    All rows of a (partition, bucket) are in one partition of the DataFrame, one after the other. They are
    sorted by key, and rows of one key keep their order. If Spark orders the values of a key differently from
    Paimon, they are not sorted and keep their order.

    The columns have the table's types, so text has no collation and sorts by its bytes. Spark sorts, and
    spills to disk what does not fit into memory.
    """
    schema = table.schema
    keys = [schema.field(name) for name in schema.trimmed_primary_keys]
    by_key = not any(one.type.root in _OTHER_ORDER for one in keys)
    ordered = frame.withColumn(_ORDER, F.monotonically_increasing_id())
    with_bucket, bucket = _with_bucket(ordered, table)
    if with_bucket is ordered:
        with_bucket, bucket = ordered.withColumn(_BUCKET, bucket), F.col(_BUCKET)
    names = (*schema.partition_keys, *(one.name for one in keys if by_key))
    sorting = [named(name) for name in names]
    sorting.insert(len(schema.partition_keys), bucket)
    placed = _placed(with_bucket, table, bucket).sortWithinPartitions(*sorting, F.col(_ORDER))
    return placed.drop(_BUCKET, _ORDER), by_key


def assigners(frame: DataFrame, table: Table) -> int:
    """How many tasks give keys their dynamic buckets at once (table-kinds.md §2.2)."""
    options = table.options
    if options.is_set(DYNAMIC_PARALLELISM):
        tasks = options.value(DYNAMIC_PARALLELISM)
    else:
        tasks = min(_ASSIGNERS, _ASSIGNERS if is_connect(frame) else frame.sparkSession.sparkContext.defaultParallelism)
    if options.is_set(DYNAMIC_INITIAL_BUCKETS):
        tasks = min(tasks, options.value(DYNAMIC_INITIAL_BUCKETS))
    most = options.value(DYNAMIC_MAX_BUCKETS)
    return max(1, min(tasks, MOST_BUCKETS, most if most > 0 else MOST_BUCKETS))


def gather_packets(frame: DataFrame, spec: WriteSpec) -> DataFrame:
    """The rows as shuffle packets (write/shuffle_packets.py). All rows of a (partition, bucket) are in one
    partition, in their original order.

    Spark moves and sorts a few packets instead of many rows. The rows do not come sorted by key, so the task
    that writes them sorts them in its own memory. With dynamic buckets, the rows of the keys of one assigner are
    together instead.
    """
    if spec.is_dynamic:
        fixed = {**spec.options, BUCKET.key: str(spec.assigners), BUCKET_FUNCTION.key: "default"}
        spec = replace(spec, options=Options(fixed, location=spec.storage.location))
    count = _most_tasks(frame, spec)
    if not (spec.schema.partition_keys or is_connect(frame)):
        # Buckets are spread evenly. A task for each bucket would wait for a core, and each start has a cost.
        count = min(count, max(1, frame.sparkSession.sparkContext.defaultParallelism))
    pack = PackTask(spec=spec, shuffle_keys=_keys_of_tasks(count))
    packets = map_arrow(frame, pack, PACKETS).repartition(count, F.col("shuffle_key"))
    return packets.sortWithinPartitions("task", "number")


def _most_tasks(frame: DataFrame, table: Table | WriteSpec) -> int:
    """The number of tasks that are worth their start."""
    buckets: int = table.options.value(BUCKET)
    most = int(frame.sparkSession.conf.get(_PARTITIONS, "200") or 200)
    if table.schema.partition_keys and not is_connect(frame):
        # More tasks only cost their start. The number of partitions in the rows is not known.
        cores = int(frame.sparkSession.sparkContext.defaultParallelism)
        return min(most, max(buckets, _TASKS_PER_CORE * cores))
    return most if table.schema.partition_keys else min(buckets, most)


def _with_bucket(frame: DataFrame, table: Table) -> tuple[DataFrame, Column]:
    """The frame and the bucket as an expression. If there is no exact expression, Python adds a column."""
    buckets = table.options.value(BUCKET)
    function = table.options.value(BUCKET_FUNCTION)
    keys = [table.schema.field(name) for name in table.schema.bucket_keys]
    expression = bucket_expression(keys, buckets, function)
    if expression is not None:
        return frame, expression
    names = tuple(one.name for one in keys)
    assign = _Assign(names=names, types=tuple(one.type for one in keys), buckets=buckets, function=function)
    schema = st.StructType([*frame.schema.fields, st.StructField(_BUCKET, st.IntegerType(), False)])
    return map_arrow(frame, assign, schema), F.col(_BUCKET)


def _placed(frame: DataFrame, table: Table, bucket: Column) -> DataFrame:
    count = _most_tasks(frame, table)
    if not table.schema.partition_keys:
        homes = F.array(*(F.lit(key) for key in _keys_of_tasks(count)))
        return frame.repartition(count, F.element_at(homes, (bucket % F.lit(count)).cast("int") + F.lit(1)))
    names = (named(name) for name in table.schema.partition_keys)
    return frame.repartition(count, *names, bucket)


@cache
def _keys_of_tasks(count: int) -> tuple[int, ...]:
    """For each of `count` partitions, an integer that Spark's hash partitioning puts there."""
    found: dict[int, int] = {}
    key = 0
    while len(found) < count:
        found.setdefault(hash_bytes(struct.pack("<i", key)) % count, key)
        key += 1
    return tuple(found[one] for one in range(count))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assign:
    """Adds the bucket to each row, in Python beside an executor."""

    names: tuple[str, ...]
    types: tuple[DataType, ...]
    buckets: int
    function: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            keys = batch.select(list(self.names))
            found = assign_buckets(keys, self.types, self.buckets, self.function)
            columns = [*batch.columns, pa.array(found, pa.int32())]
            yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, _BUCKET])
