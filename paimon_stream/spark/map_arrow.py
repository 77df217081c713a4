"""`DataFrame.mapInArrow` for columns with any names, and Arrow batches whose size fits into the
JVM. A part of the size of a row in Arrow follows from the column types alone. A Spark expression
computes the other part.

To keep its limit of bytes, Spark 4 asks each column for its size after each row. That takes a tenth
to a third of the time to move rows to Python, and only the largest possible value of the limit
avoids that (docs/performance.md). Without the limit, and on Spark 3.5, which does not have it, the
number of rows in a batch is limited instead. In that case, rows whose width is not fixed are
guarded (`guarded`).

In a `foreachBatch` on classic Spark, the session is a clone that belongs to the stream. A batch
write changes the user's own session and then restores it; on Spark 4 it does so only if rows are
known to be narrow. On Connect nothing is changed, because the session may be the user's, with other
work in it. If the user has set one of these values, nothing is changed either. The values hold for
the whole action. So if Python functions of the user make the rows, the size of the sink's rows says
nothing about the rows of these functions. Batches then stay as small as for rows of unknown width.

Threads of one program may write to several tables in one session at once. In that case, each of
them gets the smallest of the sizes, because Spark reads the values at an unknown time while the
action runs.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from threading import Lock
from typing import Any, Final

import pyspark
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as st

from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, DataType, TypeRoot, arrow_type
from paimon_stream.spark.hadoop_options import unlogged
from paimon_stream.spark.identity import NOT_AS_KNOWN, is_connect
from paimon_stream.spark.tasks import ArrowTask, with_names
from paimon_stream.spark.types import named
from paimon_stream.spark.write_plan import ArrowBatches
from paimon_stream.write.arrow_batches import NULL_BYTES, OFFSET_BYTES, fixed_width

_LOG: Final = logging.getLogger(__name__)

_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT: Final = str(2**31 - 1)
_RECORDS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_SPARK_LIMITS_BYTES: Final = int(pyspark.__version__.split(".", 1)[0]) >= 4
_LOCK: Final = Lock()
_SIZES: Final[dict[Any, list[ArrowBatches]]] = {}
"""The sizes for the actions that run now, by the JVM's session. `_LOCK` guards this mapping, and
the values in the sessions.
"""

_MOST_GUARDED: Final = 16
"""The most values of a row that the guard adds up. With 20 texts, the guard still saves more than
it costs. With 32 texts, a write takes half as much time again as with batches of 128 rows and no
guard.
"""

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
    """A context for one action in which Spark makes Arrow batches of at most the size `size`, if
    the sink may choose the size. The module's docstring says what that costs, and whose session is
    changed.
    """
    if not may_choose(frame):
        yield
        return
    session = _session_of(frame)
    with _LOCK:
        sizes = _SIZES.get(session, [])
        _change(frame, _limits(sizes), _limits([*sizes, size]))
        _SIZES[session] = [*sizes, size]
    try:
        yield
    finally:
        with _LOCK:
            sizes = _SIZES.pop(session)
            others = [*sizes]
            others.remove(size)
            if others:
                _SIZES[session] = others
            _change(frame, _limits(sizes), _limits(others))


def may_choose(frame: DataFrame) -> bool:
    """Whether the sink may choose the size of Arrow batches. It may not on Spark Connect, and not
    if the user has set one of Spark's limits for such batches.
    """
    if is_connect(frame):
        return False
    with _LOCK:
        if _SIZES.get(_session_of(frame)):
            return True  # the values are ours, set for another thread
        conf = frame.sparkSession.conf
        keys = (_RECORDS, _BYTES) if _SPARK_LIMITS_BYTES else (_RECORDS,)
        return all(conf.get(key, None) is None for key in keys)


def runs_python(frame: DataFrame) -> bool:
    """Whether Spark runs Python functions of the user to make the rows of the frame. Also True if
    that cannot be known. These functions get Arrow batches of the same size as the sink, and their
    rows may be wider.
    """
    if is_connect(frame):
        return True
    try:
        plan = frame._jdf.queryExecution().analyzed()
        session: Any = frame.sparkSession
        patterns = session._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
        if plan.containsPattern(patterns.PYTHON_UDF()):
            return True
        if not plan.containsPattern(patterns.GENERATOR()):
            return False
        # Only the optimized plan distinguishes table functions in Python from others.
        optimized = frame._jdf.queryExecution().optimizedPlan()
        return bool(optimized.containsPattern(patterns.EVAL_PYTHON_UDTF()))
    except NOT_AS_KNOWN:
        _LOG.debug("The plan of a batch cannot be read.", exc_info=True)
        return True


def _session_of(frame: DataFrame) -> Any:
    """The frame's session in the JVM. Python may have several objects for one session, which are
    equal.
    """
    return frame.sparkSession._jsparkSession


def _limits(sizes: Sequence[ArrowBatches]) -> dict[str, str]:
    """The settings of Spark for several actions at once, with Arrow batches of these sizes. For a
    setting that is left out, Spark's default holds. On Spark 4, the default limits the bytes of a
    batch.
    """
    without_limit = [size for size in sizes if not (_SPARK_LIMITS_BYTES and size.bytes_limited)]
    if not without_limit:
        return {}
    limits = {_RECORDS: str(min(size.records for size in without_limit))}
    if _SPARK_LIMITS_BYTES and len(without_limit) == len(sizes):
        limits[_BYTES] = _NO_LIMIT
    return limits


def _change(frame: DataFrame, before: dict[str, str], after: dict[str, str]) -> None:
    """Changes Spark's limits for Arrow batches in the session. The limit of bytes is restored
    before more rows are allowed. This limit is removed only after the number of rows is limited.
    """
    conf = frame.sparkSession.conf
    for key in reversed(before):
        if key not in after:
            conf.unset(key)
    for key, value in after.items():
        if before.get(key) != value:
            conf.set(key, value)


def narrow_row(fields: Sequence[DataField], most: int | Column) -> Column:
    """An expression for a struct of these columns. It is NULL for a row that has more bytes than
    `most`.
    """
    row = F.struct(*(named(field.name) for field in fields))
    return F.when(row_bytes(fields) <= most, row).alias(_ROW)


def may_guard(schema: TableSchema) -> bool:
    """Whether rows of the table may be guarded (`guarded`). Adding up the elements of arrays and
    maps costs more than Spark's own limit of bytes, unless all elements have the same size. The
    cost of each value also grows with the number of values whose size differs
    (docs/performance.md).
    """
    if any(_adds_up_elements(field.type) for field in schema.fields):
        return False
    return sum(_varying_values(field.type) for field in schema.fields) <= _MOST_GUARDED


def _varying_values(type_: DataType) -> int:
    """The number of values of variable size in a value of the type; an array or a map counts as
    one.
    """
    if type_.root is TypeRoot.ROW:
        return sum(_varying_values(member.type) for member in type_.fields)
    return 1 if _varies(type_) else 0


def guarded(fields: Sequence[DataField], most: int) -> list[Column]:
    """Expressions for these columns, with NULL in place of values that are too wide for an Arrow
    batch. In a row of more than `most` bytes, the columns whose values differ in size are NULL. One
    more column, the last one, says whether a row is too wide (`tasks.unguarded`). A struct, as
    `narrow_row` makes it, would cost more, because Spark makes an object of each value in it
    (docs/performance.md).
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
    """An expression for the size of a row with these columns in bytes, a BIGINT. The size is
    slightly larger than Arrow needs.
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
    """The bytes that each value of the type takes, even a value that is NULL."""
    if type_.root is TypeRoot.ROW:
        return NULL_BYTES + sum(_fixed(member.type) for member in type_.fields)
    return NULL_BYTES + (_width(type_) or OFFSET_BYTES)


def _width(type_: DataType) -> int | None:
    """The bytes that Arrow takes for each value; None if the number depends on the value."""
    return fixed_width(arrow_type(type_))


def _varying(value: Any, type_: DataType) -> Column:
    """An expression for the bytes that a value takes in addition to the fixed bytes of its type."""
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
