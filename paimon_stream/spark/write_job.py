"""The one Spark action of a batch: every task writes data files and answers with what it wrote.

Rows go to Python as Arrow batches, in the tasks that hold them: no shuffle, unless the table has a primary
key, and no row-at-a-time Python. A
task's answer is one row of typed bytes; Spark hands back exactly one answer per partition, that of the
attempt that succeeded (spark.md §0, §2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from paimon_stream.commit.dead_attempts import data_files, remove_files
from paimon_stream.commit.message import CommitMessage
from paimon_stream.errors import InvalidData, PaimonStreamError, Unavailable
from paimon_stream.spark.identity import is_connect
from paimon_stream.spark.key_defaults import with_key_defaults
from paimon_stream.spark.shuffle import check_shuffle, gather_keys, shuffled
from paimon_stream.table.table import Table
from paimon_stream.write.key_task import write_keyed_task
from paimon_stream.write.result import TaskFailure, TaskResult, decode_result, encode_result
from paimon_stream.write.row_kinds import Operations
from paimon_stream.write.task import WriteSpec, with_total, write_task

__all__ = ["run_write_job"]

_COLUMN: Final = "result"
_LIMIT: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT: Final = str(2**31 - 1)
_TASK_FAILURES: Final = "spark.task.maxFailures"


def run_write_job(
    frame: DataFrame,
    table: Table,
    *,
    wide_rows: bool = False,
    first_sequence: int = 0,
    operations: Operations | None = None,
) -> tuple[CommitMessage, ...]:
    """Writes all rows of the DataFrame, which has exactly the table's columns; the messages come in the
    order of Spark's partitions. Nothing is published.

    For a table with a primary key `first_sequence` is above all sequence numbers in it, and `operations` says
    which column, one more than the table's, tells what each row does. `wide_rows` keeps Spark's limit of
    bytes per Arrow batch, which costs time on every row.

    Where a task fails for a reason of ours, the files of the other tasks are removed and its error is raised:
    those of `write_task` and `write_keyed_task`. What else fails in the plan is raised as Spark raises it.
    """
    check_shuffle(table)
    spec = WriteSpec(storage=table.storage, schema=table.schema, options=table.options)
    attempts = 1 if is_connect(frame) else _attempts(frame.sparkSession)
    task: _WriteTask
    if table.schema.primary_keys:
        placed, is_sorted = gather_keys(with_key_defaults(frame, table), table)
        task = _KeyedTask(
            spec=spec,
            attempts=attempts,
            first_sequence=first_sequence,
            is_sorted=is_sorted,
            operations=operations,
        )
    else:
        placed, task = shuffled(frame, table), _WriteTask(spec=spec, attempts=attempts)
    with _batches_of_any_size(frame, wide_rows):
        rows = placed.mapInArrow(task, f"{_COLUMN} binary").collect()
    answers = sorted((decode_result(bytes(row[_COLUMN])) for row in rows), key=lambda one: one.partition_id)
    results = [answer for answer in answers if isinstance(answer, TaskResult)]
    messages = tuple(message for result in results for message in result.messages)
    trouble = _failure(answers, table)
    if trouble is not None:
        remove_files(table.storage, data_files(table.layout, messages))
        raise trouble
    return messages


@dataclass(frozen=True, slots=True, kw_only=True)
class _WriteTask:
    """What runs in Python beside an executor. `attempts` is how often Spark tries a task."""

    spec: WriteSpec
    attempts: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        answer = self.answer(batches, context.partitionId(), context.attemptNumber())
        yield pa.RecordBatch.from_arrays([pa.array([encode_result(answer)], pa.binary())], names=[_COLUMN])

    def answer(
        self, batches: Iterable[pa.RecordBatch], partition: int, attempt: int
    ) -> TaskResult | TaskFailure:
        """What this attempt at this partition wrote, or why it must not be tried again. Raises
        `Unavailable` where Spark should try the task again, perhaps on another machine."""
        try:
            written = self.write(batches)
        except PaimonStreamError as error:
            if isinstance(error, Unavailable) and attempt + 1 < self.attempts:
                raise
            return TaskFailure(error=error, partition_id=partition, attempt_number=attempt)
        return replace(written, partition_id=partition, attempt_number=attempt)

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskResult:
        """Writes the rows. Raises as `write_task`."""
        return write_task(self.spec, batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeyedTask(_WriteTask):
    """The same for a table with a primary key, all rows of a bucket coming to one task."""

    first_sequence: int
    is_sorted: bool
    operations: Operations | None

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskResult:
        """Writes the rows. Raises as `write_keyed_task`."""
        return write_keyed_task(
            self.spec,
            batches,
            first_sequence=self.first_sequence,
            is_sorted=self.is_sorted,
            operations=self.operations,
        )


def _attempts(session: SparkSession) -> int:
    context = session.sparkContext
    master = context.master
    if master is not None and master.startswith("local"):
        inner = master.partition("[")[2].rstrip("]").partition(",")[2]
        return int(inner) if inner.strip().isdigit() else 1
    return int(context.getConf().get(_TASK_FAILURES, "4") or 4)


def _failure(answers: list[TaskResult | TaskFailure], table: Table) -> PaimonStreamError | None:
    errors = [answer.error for answer in answers if isinstance(answer, TaskFailure)]
    if errors:
        first, *others = errors
        invalid = (error for error in others if isinstance(error, InvalidData))
        return with_total(first, invalid) if isinstance(first, InvalidData) else first
    twice = [one for one, count in Counter(answer.partition_id for answer in answers).items() if count > 1]
    if not twice:
        return _torn_bucket(answers, table) if table.schema.primary_keys else None
    return PaimonStreamError(
        f"Spark handed back more than one result for partitions {twice} of a write to {table.location}, so "
        "rows would be there twice. Nothing was published. Restart the query; if it happens again, turn "
        "speculation off and report it.",
        table=table.location,
        partitions=tuple(twice),
    )


def _torn_bucket(answers: list[TaskResult | TaskFailure], table: Table) -> PaimonStreamError | None:
    """Two tasks number the rows of a bucket alike, so which of two rows is the newer could not be told."""
    results = (answer for answer in answers if isinstance(answer, TaskResult))
    homes = Counter((one.partition, one.bucket) for result in results for one in result.messages)
    torn = [bucket for (_, bucket), count in homes.items() if count > 1]
    if not torn:
        return None
    return PaimonStreamError(
        f"Rows of {len(torn)} buckets of {table.location} came to more than one Spark task, bucket {torn[0]} "
        "among them. Nothing was published. Report it, with the table's keys.",
        table=table.location,
        bucket=torn[0],
    )


@contextmanager
def _batches_of_any_size(frame: DataFrame, wide_rows: bool) -> Iterator[None]:
    """Lifts the limit of bytes per Arrow batch for one action: Spark 4 checks it by asking every vector
    for its size after every row, which triples the cost of the way to Python; only this value skips that
    (spark.md, The finding that matters most). What remains is the limit of rows per batch, as in Spark 3.5.

    A limit the user has set stays. On Connect the session is the user's own, so nothing is changed there;
    in a `foreachBatch` on classic Spark it is the stream's clone.
    """
    conf = frame.sparkSession.conf
    if wide_rows or is_connect(frame) or conf.get(_LIMIT, None) is not None:
        yield
        return
    conf.set(_LIMIT, _NO_LIMIT)
    try:
        yield
    finally:
        conf.unset(_LIMIT)
