"""Rows moved so that each bucket is in one task, where that is wanted.

Tables with primary keys need all rows of a bucket in one task, sorted by key and, within a key, in the
order the DataFrame has them, for that order decides which row is the newest. Where the rows fit into the
memory of tasks they are packed into few records before Spark moves them, and sorted by who writes them
(`gather_packets`): Spark's own way, row by row, costs several times as much, most of all in the first
batches. Append tables need no shuffle, for rows of a bucket may be in any number of files (spark.md §3). With
`paimon-stream.shuffle = bucket`, and where a batch would leave very many small files (write_plan.py), packets
bring each (partition, bucket) of a batch to one task, too. Buckets without partitions are spread evenly over
the tasks: Spark's own hash of a bucket number would leave tasks idle.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as st

from paimon_stream.errors import InvalidOption
from paimon_stream.format.murmur import hash_bytes
from paimon_stream.format.types import DataType, TypeRoot
from paimon_stream.options import BUCKET, BUCKET_FUNCTION, SHUFFLE
from paimon_stream.spark.bucket_sql import bucket_expression
from paimon_stream.spark.identity import is_connect
from paimon_stream.spark.map_arrow import map_arrow
from paimon_stream.spark.named import named
from paimon_stream.spark.tasks import PackTask
from paimon_stream.table.table import Table
from paimon_stream.write.bucket import assign_buckets
from paimon_stream.write.shuffle_packets import PACKETS
from paimon_stream.write.task import WriteSpec

__all__ = ["check_shuffle", "gather_keys", "gather_packets"]

_BUCKET: Final = "_paimon_stream_bucket"
_ORDER: Final = "_paimon_stream_order"
_OTHER_ORDER: Final = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
"""Spark has -0.0 and 0.0 as one value, and all NaNs."""

_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_TASKS_PER_CORE: Final = 2


def check_shuffle(table: Table) -> None:
    """Raises `InvalidOption` where `paimon-stream.shuffle` asks for buckets that the table does not have, or
    forbids what it cannot do without."""
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
    """The rows of a table with a primary key, all of a (partition, bucket) in one partition of the DataFrame
    and one after the other; and whether those of a bucket come by key, then in the order they had. Else,
    where Spark orders values of a key otherwise than Paimon, they come in the order they had.

    The columns are of the table's types, so text is without collation, and sorts by its bytes. Spark sorts,
    and spills to disk what does not fit into memory.
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


def gather_packets(frame: DataFrame, spec: WriteSpec) -> DataFrame:
    """The rows as shuffle packets (write/shuffle_packets.py): all rows of a (partition, bucket) in
    one partition, in the order they had.

    Spark moves and sorts the packets, which are few, instead of rows. They come out in no order of keys, so
    whoever writes them sorts, with as much memory as he has.
    """
    count = _most_tasks(frame, spec)
    if not (spec.schema.partition_keys or is_connect(frame)):
        # Buckets are spread evenly: a task for each would wait for a core, and each costs its start.
        count = min(count, max(1, frame.sparkSession.sparkContext.defaultParallelism))
    pack = PackTask(spec=spec, shuffle_keys=_keys_of_tasks(count))
    packets = map_arrow(frame, pack, PACKETS).repartition(count, F.col("shuffle_key"))
    return packets.sortWithinPartitions("task", "number")


def _most_tasks(frame: DataFrame, table: Table | WriteSpec) -> int:
    """How many tasks are worth their start."""
    buckets: int = table.options.value(BUCKET)
    most = int(frame.sparkSession.conf.get(_PARTITIONS, "200") or 200)
    if table.schema.partition_keys and not is_connect(frame):
        # More tasks than that only cost their start; the number of partitions in the rows is not known.
        cores = int(frame.sparkSession.sparkContext.defaultParallelism)
        return min(most, max(buckets, _TASKS_PER_CORE * cores))
    return most if table.schema.partition_keys else min(buckets, most)


def _with_bucket(frame: DataFrame, table: Table) -> tuple[DataFrame, Column]:
    """The bucket as an expression; or, where there is none, as a further column that Python computes."""
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
    """For each of `count` partitions an integer that Spark's hash partitioning puts there."""
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
