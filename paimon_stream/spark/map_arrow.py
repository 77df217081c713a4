"""`DataFrame.mapInArrow` for columns with any names, and Arrow batches whose size fits into the
JVM. The size of a row as Arrow has a part that the column types fix. The rest is a Spark
expression.

To keep its limit of bytes, Spark 4 asks each column for its size after each row. That takes a tenth
to a third of the time to move rows to Python, and only the largest possible value switches it off
(docs/performance.md). Without the limit, and on Spark 3.5, which does not have it, the number of
rows in a batch is limited instead. Rows whose width is not fixed are guarded then (`guarded`).

In a `foreachBatch` on classic Spark, the session is a clone that belongs to the stream. A batch
write changes the user's own session and then restores it; on Spark 4 it does so only if rows are
known to be narrow. On Connect nothing is changed, because the session may be the user's, with other
work in it. Nor is anything changed where the user has set one of these values.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any, Final

import pyspark
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as st

from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, DataType, TypeRoot, arrow_type
from paimon_stream.spark.hadoop_options import unlogged
from paimon_stream.spark.identity import is_connect
from paimon_stream.spark.tasks import ArrowTask, with_names
from paimon_stream.spark.types import named
from paimon_stream.spark.write_plan import ArrowBatches
from paimon_stream.write.arrow_batches import NULL_BYTES, OFFSET_BYTES, fixed_width

_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT: Final = str(2**31 - 1)
_RECORDS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_SPARK_LIMITS_BYTES: Final = int(pyspark.__version__.split(".", 1)[0]) >= 4
_ROW: Final = "row"
_TOO_WIDE: Final = "_paimon_stream_too_wide"


def map_arrow(frame: DataFrame, task: ArrowTask, schema: st.StructType | str) -> DataFrame:
    """The rows that the task makes of the frame's rows, partition by partition.

    PySpark parses each column name as an expression: a dot is the path into a struct, and a
    backtick is a syntax error. So columns with such names are renamed to `c0`, `c1`, … for the
    transfer, and the task gets their original names.
    """
    names = tuple(frame.columns)
    if any("." in name or "`" in name for name in names):
        task = partial(with_names, task, names)
        frame = frame.toDF(*(f"c{place}" for place in range(len(names))))
    with unlogged():
        return frame.mapInArrow(task, schema)


@contextmanager
def arrow_batches_of(size: ArrowBatches, frame: DataFrame) -> Iterator[None]:
    """A context in which Spark makes Arrow batches of that size for one action, if the sink may
    choose it. The module's text says what that costs, and whose session is changed.
    """
    if not may_choose(frame) or (_SPARK_LIMITS_BYTES and size.bytes_limited):
        yield
        return
    wanted = {_RECORDS: str(size.records)}
    if _SPARK_LIMITS_BYTES:
        wanted[_BYTES] = _NO_LIMIT
    conf = frame.sparkSession.conf
    for key, value in wanted.items():
        conf.set(key, value)
    try:
        yield
    finally:
        for key in wanted:
            conf.unset(key)


def may_choose(frame: DataFrame) -> bool:
    """Whether the sink may choose the size of Arrow batches: not on Connect, and not if the user
    has set one of the values.
    """
    if is_connect(frame):
        return False
    conf = frame.sparkSession.conf
    keys = (_RECORDS, _BYTES) if _SPARK_LIMITS_BYTES else (_RECORDS,)
    return all(conf.get(key, None) is None for key in keys)


def narrow_row(fields: Sequence[DataField], most: int | Column) -> Column:
    """The row with these columns as a struct, which is NULL if the row has more bytes than
    `most`.
    """
    row = F.struct(*(named(field.name) for field in fields))
    return F.when(row_bytes(fields) <= most, row).alias(_ROW)


def may_guard(schema: TableSchema) -> bool:
    """Whether rows of the table may be guarded (`guarded`). To add up the elements of arrays and maps
    costs more than Spark's own limit of bytes, unless all of them have the same size
    (docs/performance.md).
    """
    return not any(_adds_up_elements(field.type) for field in schema.fields)


def guarded(fields: Sequence[DataField], most: int) -> list[Column]:
    """These columns without what is too wide for an Arrow batch: of a row of more than `most`
    bytes, the columns whose values differ in size are NULL. One more column, the last one, says
    whether a row is too wide (`tasks.unguarded`). Structs as of `narrow_row` would cost
    more, because Spark makes an object of each value in them (docs/performance.md).
    """
    is_wide = row_bytes(fields) > most
    columns = []
    for field in fields:
        value = named(field.name)
        columns.append(F.when(~is_wide, value).alias(field.name) if _varies(field.type) else value)
    return [*columns, is_wide.alias(_TOO_WIDE)]


def fixed_row_bytes(schema: TableSchema) -> int | None:
    """The size of each row of the table in bytes; None if the values of a column differ in size."""
    if any(_varies(field.type) for field in schema.fields):
        return None
    return sum(_fixed(field.type) for field in schema.fields)


def row_bytes(fields: Sequence[DataField]) -> Column:
    """The size of a row with these columns in bytes, a BIGINT. It is slightly more than Arrow
    needs.
    """
    fixed = F.lit(sum(_fixed(field.type) for field in fields)).cast("long")
    varying = [_varying(named(field.name), field.type) for field in fields if _varies(field.type)]
    return reduce(Column.__add__, varying, fixed)


def _varies(type_: DataType) -> bool:
    """Whether values of the type differ in size."""
    if type_.root is TypeRoot.ROW:
        return any(_varies(member.type) for member in type_.fields)
    return _width(type_) is None


def _adds_up_elements(type_: DataType) -> bool:
    """Whether the size of a value is known only from its elements, one by one."""
    match type_:
        case DataType(root=TypeRoot.ROW):
            return any(_adds_up_elements(member.type) for member in type_.fields)
        case DataType(root=TypeRoot.ARRAY, element=DataType() as element):
            return _varies(element)
        case DataType(root=TypeRoot.MAP | TypeRoot.MULTISET):
            return any(map(_varies, type_.entry))
    return False


def _fixed(type_: DataType) -> int:
    """The bytes that each value takes, even if it is NULL."""
    if type_.root is TypeRoot.ROW:
        return NULL_BYTES + sum(_fixed(member.type) for member in type_.fields)
    return NULL_BYTES + (_width(type_) or OFFSET_BYTES)


def _width(type_: DataType) -> int | None:
    """The bytes that Arrow takes for each value; None if that depends on the value."""
    return fixed_width(arrow_type(type_))


def _varying(value: Any, type_: DataType) -> Column:
    """The bytes that the value takes in addition to the fixed ones."""
    match type_:
        case DataType(root=TypeRoot.ROW):
            sizes = [
                _varying(value.getField(member.name), member.type)
                for member in type_.fields
                if _varies(member.type)
            ]
            return reduce(Column.__add__, sizes)
        case DataType(root=TypeRoot.ARRAY, element=DataType() as element):
            return _of_elements(value, element)
        case DataType(root=TypeRoot.MAP | TypeRoot.MULTISET):
            key, element = type_.entry
            return _of_elements(F.map_keys(value), key) + _of_elements(F.map_values(value), element)
    return F.coalesce(F.octet_length(value).cast("long"), F.lit(0).cast("long"))


def _of_elements(values: Column, element: DataType) -> Column:
    zero = F.lit(0).cast("long")
    fixed = F.coalesce(F.array_size(values).cast("long"), zero) * F.lit(_fixed(element))
    if not _varies(element):
        return fixed
    varying = F.aggregate(values, zero, lambda total, value: total + _varying(value, element))
    return fixed + F.coalesce(varying, zero)
