"""Writes small batches in the driver. An action without Python workers takes half the time of an
action with them. The driver gets the rows as Arrow data and calls the functions of tasks, so files,
messages and errors are those of `write_job`. The plan (write_plan.py) chooses the batches that the
driver writes.

The size of the next batch is not known before it is read, and it must not overload the driver. So
each partition returns only a share: at most one row more than the whole batch may have, and rows of
a limited size. With more partitions, each returns fewer rows. NULL stands for a row that is too
wide. If the batch has no more rows than allowed, and no row was too wide, then the driver has all
rows. Otherwise it drops them before it writes any, and the tasks write the batch from their own
evaluation of Spark's plan. The tasks also write the batch if the shares would be too small.

Invariant: the rows of a batch never come from two evaluations of Spark's plan. So the driver never
writes the batches of a query that keeps state, because its operators must see a batch only once.
The same holds if it is not known whether a query keeps state, and on Spark Connect, where the rows
would go through the server's channel to its clients.

The place of a row in its partition says whether the row is beyond the share, so that it is left out
(docs/decisions/0004-small-batches-in-the-driver.md gives the reasons).
`spark.driver.maxResultSize` does not bound the rows, because Spark collects them into the driver's
memory before it counts them.
"""

import ctypes
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from paimon_stream.commit.sequence import first_number
from paimon_stream.errors import Unavailable
from paimon_stream.spark.align import with_key_defaults
from paimon_stream.spark.limit_expressions import LimitExpressions
from paimon_stream.spark.shuffle import check_shuffle
from paimon_stream.spark.tasks import WriteTask
from paimon_stream.spark.write_job import (
    WriteOrder,
    partitions_of,
    spec_of,
    task_attempts,
    written_by,
)
from paimon_stream.spark.write_plan import Way, Written
from paimon_stream.table.table import Table
from paimon_stream.write.task import Answer, TaskResult, decode_result, encode_result

_LOG = logging.getLogger(__name__)

_TOO_MUCH: Final = "spark.driver.maxResultSize"
_WORTH_IT: Final = 2**20


def write_small(
    frame: DataFrame,
    table: Table,
    order: WriteOrder,
    *,
    limit_expressions: LimitExpressions,
    target: Table | None = None,
) -> Written | None:
    """Writes all rows of a DataFrame in the driver, and raises the same errors as `run_write_job`.

    Args:
        frame: the rows, in exactly the table's columns.
        table: the table.
        order: how the rows are written.
        limit_expressions: Spark's expressions that earlier batches of the run have used.
        target: the table, with another storage to which the files are written; None if they are
            written to the storage of `table`.

    Returns:
        The messages, in the order of Spark's partitions. None if nothing is written: the batch is
            larger than the plan allows, or this Spark does not report partitions or cannot return
            Arrow. In that case, the plan learns that the driver has refused the batch.
    """
    check_shuffle(table)
    rows = _collected(frame, table, order, limit_expressions)
    if rows is None:
        order.plan.refused()
        return None
    task = WriteTask(
        spec=spec_of(target or table, order.user, order.numbering),
        attempts=task_attempts(frame.sparkSession),
        first_sequence=first_number(order.numbering),
        operations=order.operations,
    )
    answer = _answer(task, rows)
    size = sum(batch.get_total_buffer_size() for batch in rows)
    del rows
    release_memory(size)
    written = written_by([answer], table)
    order.plan.learn(Way.DRIVER, written, table)
    return written


def _collected(
    frame: DataFrame, table: Table, order: WriteOrder, limit_expressions: LimitExpressions
) -> Sequence[pa.RecordBatch] | None:
    """All rows, in the order of Spark's partitions; None if there are more than the plan allows, if
    a row is too wide, or if the rows cannot be collected.
    """
    if table.schema.primary_keys:
        frame = with_key_defaults(frame, table)
    plan = order.plan
    operation = None if order.operations is None else order.operations.column
    expected = plan.share(table, limit_expressions.partitions) or plan.share(table, 1)
    if expected is None:
        return None
    within_share = limit_expressions.within_share(frame, expected, table.schema, operation)
    partitions = partitions_of(frame, within_share)
    share = None if partitions is None else plan.share(table, partitions)
    if share is None or partitions is None:
        return None
    if share != expected:
        limit_expressions.partitions = partitions
        within_share = limit_expressions.within_share(frame, share, table.schema, operation)
    batches = as_arrow(within_share)
    if batches is None:
        return None
    if limit_expressions.narrow_rows(share, table.schema, operation) is not None:
        if any(batch.column(0).null_count for batch in batches):
            return None
        batches = [pa.RecordBatch.from_struct_array(batch.column(0)) for batch in batches]
    return batches if sum(batch.num_rows for batch in batches) <= share.rows else None


def as_arrow(frame: Any) -> Sequence[pa.RecordBatch] | None:
    """Runs the frame. Returns its rows; None if Spark refuses to collect this many bytes, or cannot
    return Arrow.
    """
    try:
        # On classic Spark, `toArrow` calls this method. Spark 3.5 has the method, but not
        # `toArrow`.
        if hasattr(frame, "_collect_as_arrow"):
            batches: Sequence[pa.RecordBatch] = frame._collect_as_arrow()
            return batches
        return frame.toArrow().to_batches() if hasattr(frame, "toArrow") else None
    except PySparkException as error:
        if _TOO_MUCH in str(error):
            return None
        raise


def _answer(task: WriteTask, rows: Sequence[pa.RecordBatch]) -> Answer:
    """The answer of the task, which runs in the driver. The task is tried as often as Spark would
    try it, and its errors are the same as on an executor.
    """
    for attempt in range(task.attempts):
        try:
            answer = task.answer(rows, 0, attempt)
        except Unavailable:
            continue
        return answer if isinstance(answer, TaskResult) else decode_result(encode_result(answer))
    raise AssertionError("the last attempt answers")


def release_memory(size: int) -> None:
    """Returns the freed memory of rows of `size` bytes to the operating system, if `size` is at
    least 1 MiB. The thread that held the rows must call this function after it has dropped them.

    Each query calls its sink in a thread of its own. Both allocators, Arrow's and the C library's,
    keep the memory that a thread has freed for the same thread. That is about 40 MB after a batch
    of 100,000 rows. With many streams in one driver, that adds up to gigabytes of unused memory. A
    call takes one to five milliseconds.
    """
    if size >= _WORTH_IT:
        pa.default_memory_pool().release_unused()
        if _trim is not None:
            _trim(0)


_trim: Callable[[int], Any] | None = None
"""Runs without Python's global lock."""
with suppress(OSError, AttributeError, TypeError):
    _trim = ctypes.CDLL(None).malloc_trim  # only glibc has it
