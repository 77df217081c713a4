"""Tiny batches, written by the driver: an action without Python workers takes half the time of one with.

The rows come to the driver as Arrow and go through the very functions that a task runs, so files, messages
and errors are those of `write_job`. Which batches come so is decided by those before: all of the last few
must have been small, and one that was not sends the stream back to its tasks.

What is not known beforehand is how large the next batch is, and it must not hurt the driver. So each
partition hands over one row more than may come in all: if no more came in all than may, nothing was cut off,
and that one action was the only one. Else what came is dropped before any of it is written, and the tasks
write the batch from their own evaluation of the plan: the rows of a batch are never of two. The cut is a
filter by the place of a row in its partition, for that

- evaluates all partitions to their end and side by side, as a write does. A limit would leave partitions
  out, or bring all into one task, however costly the plan;
- keeps the order of rows, which decides between those of one key. A limit over several partitions shuffles;
- is made of public functions, and costs a third of what caching the batch would, which alone could save the
  second evaluation of a batch that was too large.

A query that keeps state is never written so, for its operators must see a batch once; nor is one of which
that is not known, nor any on Spark Connect, where the rows would go through the server's channel to its
clients. Rows that have become very wide are held back by `spark.driver.maxResultSize`, as those of any
collected result; such a batch goes to the tasks, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from paimon_stream.commit.message import CommitMessage
from paimon_stream.errors import Unavailable
from paimon_stream.spark.key_defaults import with_key_defaults
from paimon_stream.spark.shuffle import check_shuffle
from paimon_stream.spark.tasks import WriteTask
from paimon_stream.spark.write_job import messages_of, write_task_of
from paimon_stream.table.table import Table
from paimon_stream.write.result import TaskFailure, TaskResult, decode_result, encode_result
from paimon_stream.write.row_kinds import Operations

__all__ = ["BatchSizes", "write_small"]

_MOST_ROWS: Final = 20_000
_MOST_KEYED_ROWS: Final = 2**17
"""Of a table with a primary key, whose rows would else go to Python, to other tasks and to Python again: with
100,000 rows in a batch the driver takes about half the time of the tasks (docs/performance.md)."""

_MOST_BYTES: Final = 8 * 2**20
_LEAST_ROWS: Final = 1_000  # the next power of two, as all between
_GROWTH: Final = 4
_REMEMBERED: Final = 8
_PLACE: Final = f"(monotonically_increasing_id() & {2**33 - 1})"
"""How many rows of its partition are before a row, in Spark's SQL: as text it takes one call, not six."""

_TOO_MUCH: Final = "spark.driver.maxResultSize"


@dataclass(slots=True)
class BatchSizes:
    """How large the newest batches of a run were: rows, or None for one that was not small. `keyed` says that
    the table has a primary key."""

    keyed: bool = False
    _newest: deque[int | None] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def most_rows(self) -> int | None:
        """So many rows the driver takes of the next batch; None where tasks are to write it."""
        largest = 0
        for rows in self._newest:
            if rows is None:
                return None
            largest = max(largest, rows)
        if not self._newest:
            return None
        # Few different numbers: Spark compiles the cut anew for each.
        return min(1 << max(largest * _GROWTH - 1, _LEAST_ROWS).bit_length(), self._most)

    @property
    def _most(self) -> int:
        return _MOST_KEYED_ROWS if self.keyed else _MOST_ROWS

    def note(self, messages: Iterable[CommitMessage]) -> None:
        """Notes the batch that these messages are of. Rows merged away count, too: their numbers tell."""
        rows = size = 0
        for message in messages:
            files = message.new_files
            if files:
                first = min(file.min_sequence_number for file in files)
                last = max(file.max_sequence_number for file in files)
                rows += max(sum(file.row_count for file in files), last - first + 1)
                size += sum(file.file_size for file in files)
        self._newest.append(rows if rows <= self._most and size <= _MOST_BYTES else None)

    def note_large(self) -> None:
        """Notes that the batch was too large for the driver."""
        self._newest.append(None)


def write_small(
    frame: DataFrame,
    table: Table,
    *,
    most_rows: int,
    first_sequence: int = 0,
    operations: Operations | None = None,
) -> tuple[CommitMessage, ...] | None:
    """What `run_write_job` does, by the driver: None if the batch has more than `most_rows` rows, or takes
    more room than Spark's driver gives a result, or this Spark cannot hand over Arrow; nothing is written
    then. Raises as `run_write_job`."""
    check_shuffle(table)
    given = with_key_defaults(frame, table) if table.schema.primary_keys else frame
    rows = _collected(given, most_rows)
    if rows is None:
        return None
    task = write_task_of(frame, table, first_sequence=first_sequence, is_sorted=False, operations=operations)
    return messages_of([_answer(task, rows)], table)


def _collected(frame: DataFrame, most_rows: int) -> Sequence[pa.RecordBatch] | None:
    """All rows, in the order of Spark's partitions; None if there are more."""
    cut: Any = frame.where(f"{_PLACE} <= {most_rows}")
    try:
        if hasattr(cut, "_collect_as_arrow"):  # what toArrow does on classic Spark, and there in 3.5, too
            batches = cut._collect_as_arrow()
        elif hasattr(cut, "toArrow"):
            batches = cut.toArrow().to_batches()
        else:
            return None
    except PySparkException as error:
        if _TOO_MUCH in str(error):
            return None
        raise
    return batches if sum(batch.num_rows for batch in batches) <= most_rows else None


def _answer(task: WriteTask, rows: Sequence[pa.RecordBatch]) -> TaskResult | TaskFailure:
    """What the task answers, tried as often as Spark would try it; an error is what would come from afar."""
    for attempt in range(task.attempts):
        try:
            answer = task.answer(rows, 0, attempt)
        except Unavailable:
            continue
        return answer if isinstance(answer, TaskResult) else decode_result(encode_result(answer))
    raise AssertionError("the last attempt answers")
