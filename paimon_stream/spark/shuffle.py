"""If it is necessary, moves rows so that all rows of a bucket are in one task (write_plan.py;
spark.md §3).

Invariant: within a key, the rows keep the order of the DataFrame, because that order decides which
row is the newest. Rows that Spark sorts get a column with their place before the shuffle. The
column is dropped after the sort. Packets are put in the order of the tasks that packed them
(write/shuffle_packets.py).
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as st

from paimon_stream import options as opt
from paimon_stream.errors import InvalidOption
from paimon_stream.format.murmur import hash_bytes
from paimon_stream.format.types import DataField, DataType, TypeRoot
from paimon_stream.spark.identity import is_connect
from paimon_stream.spark.map_arrow import map_arrow
from paimon_stream.spark.tasks import pack_task
from paimon_stream.spark.types import named
from paimon_stream.table.table import Table
from paimon_stream.write.dynamic_buckets import MOST_BUCKETS
from paimon_stream.write.routing import assign_buckets
from paimon_stream.write.shuffle_packets import PACKETS
from paimon_stream.write.task import WriteSpec

_BUCKET: Final = "_paimon_stream_bucket"
_ORDER: Final = "_paimon_stream_order"
_OTHER_ORDER: Final = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
"""For Spark, -0.0 and 0.0 are one value, and so are all NaNs."""

_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_TASKS_PER_CORE: Final = 2
# Each task opens a bucket in each new partition, so more tasks would make small files.
_ASSIGNERS: Final = 8
_INTEGER_BITS: Final = {
    TypeRoot.BOOLEAN: 8,
    TypeRoot.TINYINT: 8,
    TypeRoot.SMALLINT: 16,
    TypeRoot.INT: 32,
    TypeRoot.DATE: 32,
    TypeRoot.BIGINT: 64,
}
_HEADER_BITS: Final = 8
_MOST_FIELDS: Final = 56
"""Rows with more fields have a longer header."""

_SLOT: Final = 8
_INLINE: Final = 7
"""Text of up to 7 bytes is stored in its slot, with its length in the last byte."""


def check_shuffle(table: Table) -> None:
    """Raises `InvalidOption` if `paimon-stream.shuffle` asks for a shuffle by buckets that the
    table does not have, or forbids a shuffle that the table needs.
    """
    choice = table.options.value(opt.SHUFFLE)
    if choice == "none" and table.has_dynamic_buckets:
        raise InvalidOption(
            f"{opt.SHUFFLE.key} is {choice!r} for {table.location}: the rows of a key must come to "
            "one task, which looks up its dynamic bucket. Leave the option out.",
            option=opt.SHUFFLE.key,
            value=choice,
            table=table.location,
        )
    if choice == "bucket" and table.options.value(opt.BUCKET) <= 0:
        raise InvalidOption(
            f"{opt.SHUFFLE.key} is {choice!r} for {table.location}, but the table has no fixed "
            "number of buckets, so rows cannot be grouped by bucket. Leave the option out.",
            option=opt.SHUFFLE.key,
            value=choice,
            table=table.location,
        )


def gather_keys(frame: DataFrame, table: Table) -> tuple[DataFrame, bool]:
    """The rows of a table with a primary key, and whether the rows of a bucket are sorted by key.

    All rows of a (partition, bucket) are in one partition of the DataFrame, one after the other,
    sorted by key. Rows of one key keep their order. If Spark orders the values of a key differently
    from Paimon, rows are not sorted and keep their order. Spark spills to disk what does not fit
    into memory. Text has the table's type, so it sorts by its bytes, without collation.
    """
    schema = table.schema
    keys = [schema.field(name) for name in schema.trimmed_primary_keys]
    is_sorted = not any(key.type.root in _OTHER_ORDER for key in keys)
    with_bucket = _with_bucket(frame.withColumn(_ORDER, F.monotonically_increasing_id()), table)
    sorting = [*map(named, schema.partition_keys), F.col(_BUCKET)]
    if is_sorted:
        sorting += [named(key.name) for key in keys]
    placed = _placed(with_bucket, table).sortWithinPartitions(*sorting, F.col(_ORDER))
    return placed.drop(_BUCKET, _ORDER), is_sorted


def assigners(frame: DataFrame, table: Table) -> int:
    """The number of tasks that give keys their dynamic buckets at the same time (table-kinds.md
    §2.2).
    """
    options = table.options
    if options.is_set(opt.DYNAMIC_PARALLELISM):
        tasks = options.value(opt.DYNAMIC_PARALLELISM)
    elif is_connect(frame):
        tasks = _ASSIGNERS
    else:
        tasks = min(_ASSIGNERS, frame.sparkSession.sparkContext.defaultParallelism)
    if options.is_set(opt.DYNAMIC_INITIAL_BUCKETS):
        tasks = min(tasks, options.value(opt.DYNAMIC_INITIAL_BUCKETS))
    most = options.value(opt.DYNAMIC_MAX_BUCKETS)
    if most <= 0:
        most = MOST_BUCKETS
    return max(1, min(tasks, MOST_BUCKETS, most))


def gather_packets(frame: DataFrame, spec: WriteSpec, *, guarded: bool = False) -> DataFrame:
    """The rows as shuffle packets (write/shuffle_packets.py), so that Spark moves few records
    instead of many. All rows of a (partition, bucket) are in one partition of the DataFrame, in
    their original order. With dynamic buckets, all rows of the keys of one assigner are in one
    partition. The rows are not sorted by key, so the task that writes them sorts them in its own
    memory. `guarded` says whether one more column shows which rows are too wide.
    """
    if spec.is_dynamic:
        fixed = {
            **spec.options,
            opt.BUCKET.key: str(spec.assigners),
            opt.BUCKET_FUNCTION.key: "default",
        }
        spec = replace(spec, options=opt.Options(fixed, location=spec.storage.location))
    count = _most_tasks(frame, spec)
    if not (spec.schema.partition_keys or is_connect(frame)):
        # Buckets are spread evenly. A task for each bucket would wait for a core, and each start
        # has a cost.
        count = min(count, max(1, frame.sparkSession.sparkContext.defaultParallelism))
    pack = partial(pack_task, spec, keys_of_tasks(count), guarded=guarded)
    packets = map_arrow(frame, pack, PACKETS)
    return packets.repartition(count, F.col("shuffle_key")).sortWithinPartitions("task", "number")


def _most_tasks(frame: DataFrame, table: Table | WriteSpec) -> int:
    """The largest number of tasks for which the cost of their start is worthwhile."""
    buckets: int = table.options.value(opt.BUCKET)
    most = int(frame.sparkSession.conf.get(_PARTITIONS, "200") or 200)
    if table.schema.partition_keys and not is_connect(frame):
        # More tasks would only add the cost of their start. The number of partitions with rows is
        # not known.
        cores = int(frame.sparkSession.sparkContext.defaultParallelism)
        return min(most, max(buckets, _TASKS_PER_CORE * cores))
    return most if table.schema.partition_keys else min(buckets, most)


def _with_bucket(frame: DataFrame, table: Table) -> DataFrame:
    """The frame with a column for the bucket. If there is no exact expression, Python adds the
    column.
    """
    buckets = table.options.value(opt.BUCKET)
    function = table.options.value(opt.BUCKET_FUNCTION)
    keys = [table.schema.field(name) for name in table.schema.bucket_keys]
    expression = bucket_expression(keys, buckets, function)
    if expression is not None:
        return frame.withColumn(_BUCKET, expression)
    names = [key.name for key in keys]
    types = [key.type for key in keys]
    assign = partial(_with_assigned_bucket, names, types, buckets, function)
    schema = st.StructType([*frame.schema.fields, st.StructField(_BUCKET, st.IntegerType(), False)])
    return map_arrow(frame, assign, schema)


def _placed(frame: DataFrame, table: Table) -> DataFrame:
    """The frame, in which all rows of a (partition, bucket) are in one partition of Spark."""
    count = _most_tasks(frame, table)
    bucket = F.col(_BUCKET)
    if not table.schema.partition_keys:
        homes = F.array(*(F.lit(key) for key in keys_of_tasks(count)))
        return frame.repartition(
            count, F.element_at(homes, (bucket % F.lit(count)).cast("int") + F.lit(1))
        )
    return frame.repartition(count, *map(named, table.schema.partition_keys), bucket)


@cache
def keys_of_tasks(count: int) -> tuple[int, ...]:
    """For each of `count` partitions, an integer that Spark's hash partitioning puts into it."""
    key_of: dict[int, int] = {}
    key = 0
    while len(key_of) < count:
        key_of.setdefault(hash_bytes(struct.pack("<i", key)) % count, key)
        key += 1
    return tuple(key_of[partition] for partition in range(count))


def _with_assigned_bucket(
    names: list[str],
    types: list[DataType],
    buckets: int,
    function: str,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The rows with a column for the bucket, which is computed from the columns `names`. This runs
    in Python beside an executor.
    """
    for batch in batches:
        of_rows = assign_buckets(batch.select(names), types, buckets, function)
        columns = [*batch.columns, pa.array(of_rows, pa.int32())]
        yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, _BUCKET])


def bucket_expression(keys: Sequence[DataField], num_buckets: int, function: str) -> Column | None:
    """The bucket of each row of a DataFrame with the table's columns, an INT from 0 to
    `num_buckets` - 1.

    Spark's `hash` of bytes is Paimon's hash of a serialized row (format.md §6.3), so the expression
    builds the bytes of the row.

    Args:
        keys: the bucket key columns, in order.
        num_buckets: the number of buckets.
        function: the table's `bucket-function.type`.

    Returns:
        The expression; None if there is none. There is an expression for keys of BOOLEAN, TINYINT,
            SMALLINT, INT, BIGINT, DATE, CHAR, VARCHAR and STRING, including NULLs, and for the
            function `mod`. `write/routing.py` computes the buckets of all other keys.
    """
    if (
        function == "mod"
        and len(keys) == 1
        and keys[0].type.root in (TypeRoot.INT, TypeRoot.BIGINT)
    ):
        return F.pmod(
            F.coalesce(named(keys[0].name).cast("long"), F.lit(0)), F.lit(num_buckets)
        ).cast("int")
    if function != "default" or not 0 < len(keys) <= _MOST_FIELDS:
        return None
    if not all(key.type.root in _INTEGER_BITS or key.type.is_string for key in keys):
        return None
    return F.abs(F.hash(_row(keys)) % F.lit(num_buckets)).cast("int")


def _row(keys: Sequence[DataField]) -> Column:
    """The bytes of a BinaryRow of the keys: the NULL bits, a slot for each key, then the longer
    texts.
    """
    nulls = F.lit(0).cast("long")
    for position, field in enumerate(keys):
        bit = F.lit(1 << (_HEADER_BITS + position)).cast("long")
        nulls = nulls + F.when(named(field.name).isNull(), bit).otherwise(F.lit(0).cast("long"))
    slots = [_eight_bytes(nulls)]
    texts = []
    offset = F.lit(_SLOT + _SLOT * len(keys)).cast("long")
    for field in keys:
        if field.type.is_string:
            data = F.coalesce(named(field.name).cast("binary"), F.lit(b""))
            length = F.length(data)
            is_long = length > F.lit(_INLINE)
            # A longer text follows the slots, padded to whole slots. The slot of the text has its
            # place in the upper 32 bits, and its length in the lower 32 bits.
            padded = (F.ceil(length / F.lit(_SLOT)) * F.lit(_SLOT)).cast("int")
            place = F.shiftleft(offset, 32).bitwiseOR(length.cast("long"))
            last = F.unhex(F.hex((length + F.lit(0x80)).cast("long")))  # from 128 to 255, one byte
            inline = F.concat(_padded(data, F.lit(_INLINE)), last)
            kept = F.when(is_long, _eight_bytes(place)).otherwise(inline)
            slots.append(F.when(named(field.name).isNull(), F.lit(bytes(_SLOT))).otherwise(kept))
            texts.append(F.when(is_long, _padded(data, padded)).otherwise(F.lit(b"")))
            offset = offset + F.when(is_long, padded).otherwise(F.lit(0)).cast("long")
        else:
            slots.append(_eight_bytes(_number(field)))
    return F.concat(*slots, *texts)


def _number(field: DataField) -> Column:
    """An expression for the bits of a value as a long; zero for NULL."""
    column = named(field.name)
    if field.type.root is TypeRoot.BIGINT:
        return F.coalesce(column.cast("long"), F.lit(0).cast("long"))
    value = F.unix_date(column) if field.type.root is TypeRoot.DATE else column.cast("int")
    number = F.coalesce(value.cast("long"), F.lit(0).cast("long"))
    mask = (1 << _INTEGER_BITS[field.type.root]) - 1
    return number.bitwiseAND(F.lit(mask).cast("long"))


def _eight_bytes(value: Column) -> Column:
    """An expression for a long as eight bytes, little endian."""
    turned = F.lit(0).cast("long")
    for byte in range(_SLOT):
        lowest = F.shiftright(value, 8 * byte).bitwiseAND(F.lit(0xFF).cast("long"))
        turned = turned.bitwiseOR(F.shiftleft(lowest, 8 * (_SLOT - 1 - byte)))
    return F.unhex(F.lpad(F.hex(turned), 2 * _SLOT, "0"))


def _padded(data: Column, size: Column) -> Column:
    return F.call_function("rpad", data, size, F.lit(b"\0"))
