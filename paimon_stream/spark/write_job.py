"""The one Spark action of a batch: every task writes data files and answers with what it wrote.

Rows go to Python as Arrow batches, in the tasks that hold them: no shuffle, no row-at-a-time Python. A
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
from paimon_stream.spark.shuffle import shuffled
from paimon_stream.table.table import Table
from paimon_stream.write.result import TaskFailure, TaskResult, decode_result, encode_result
from paimon_stream.write.task import WriteSpec, with_total, write_task

__all__ = ["run_write_job"]

_COLUMN: Final = "result"
_LIMIT: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT: Final = str(2**31 - 1)
_TASK_FAILURES: Final = "spark.task.maxFailures"


def run_write_job(frame: DataFrame, table: Table, *, wide_rows: bool = False) -> tuple[CommitMessage, ...]:
    """Writes all rows of the DataFrame, which has exactly the table's columns; the messages come in the
    order of Spark's partitions. Nothing is published.

    `wide_rows` keeps Spark's limit of bytes per Arrow batch, which costs time on every row. Where a task
    fails for a reason of ours, the files of the other tasks are removed and its error is raised: those of
    `write_task`. What else fails in the plan is raised as Spark raises it.
    """
    session = frame.sparkSession
    task = _WriteTask(
        spec=WriteSpec(storage=table.storage, schema=table.schema, options=table.options),
        attempts=1 if is_connect(frame) else _attempts(session),
    )
    with _batches_of_any_size(frame, wide_rows):
        rows = shuffled(frame, table).mapInArrow(task, f"{_COLUMN} binary").collect()
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
            written = write_task(self.spec, batches)
        except PaimonStreamError as error:
            if isinstance(error, Unavailable) and attempt + 1 < self.attempts:
                raise
            return TaskFailure(error=error, partition_id=partition, attempt_number=attempt)
        return replace(written, partition_id=partition, attempt_number=attempt)


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
        return None
    return PaimonStreamError(
        f"Spark handed back more than one result for partitions {twice} of a write to {table.location}, so "
        "rows would be there twice. Nothing was published. Restart the query; if it happens again, turn "
        "speculation off and report it.",
        table=table.location,
        partitions=tuple(twice),
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
