"""Tiny batches, written by the driver: an action without Python workers takes half the time of one with.

The rows come to the driver as Arrow and go through the very functions that a task runs, so files, messages
and errors are those of `write_job`. Which batches come so is decided by those before: all of the last few
must have been small, and one that was not sends the stream back to its tasks.

What is not known beforehand is how large the next batch is, and it must not hurt the driver. So each
partition hands over one row more than may come in all: if no more came in all than may, nothing was cut off,
and that one action was the only one. Else what came is dropped before any of it is written, and the tasks
write the batch from their own evaluation of the plan: the rows of a batch are never of two. How much can come
at most follows from the number of partitions, which is asked of the plan; where that is too much for a
driver, fewer rows may come, or the tasks write the batch. The cut is a filter by the place of a row in its
partition, for that

- evaluates all partitions to their end and side by side, as a write does. A limit would leave partitions
  out, or bring all into one task, however costly the plan;
- keeps the order of rows, which decides between those of one key. A limit over several partitions shuffles;
- is made of public functions, and costs a third of what caching the batch would, which alone could save the
  second evaluation of a batch that was too large.

A query that keeps state is never written so, for its operators must see a batch once; nor is one of which
that is not known, nor any on Spark Connect, where the rows would go through the server's channel to its
clients. Rows that have become very wide since the last batch are held back by `spark.driver.maxResultSize`,
as those of any collected result; such a batch goes to the tasks, too.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import monotonically_increasing_id

from paimon_stream.errors import Unavailable
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.spark.give_back import give_back
from paimon_stream.spark.identity import NOT_AS_KNOWN
from paimon_stream.spark.key_defaults import with_key_defaults
from paimon_stream.spark.shuffle import check_shuffle
from paimon_stream.spark.tasks import WriteTask
from paimon_stream.spark.write_job import messages_of, write_task_of
from paimon_stream.table.table import Table
from paimon_stream.write.result import TaskFailure, TaskResult, decode_result, encode_result
from paimon_stream.write.row_kinds import Operations

__all__ = ["BatchSizes", "partitions_of", "write_small"]

_LOG = logging.getLogger(__name__)

_MOST_ROWS: Final = 2**16
_MOST_GROUPED_ROWS: Final = 2**18
"""Of a table with partitions, buckets or a primary key. Each of its tasks writes files of its own for them,
or the rows go to Python, to other tasks and to Python again; the driver writes the fewest files there can be,
in about the same time (docs/performance.md)."""

_MOST_BYTES: Final = 16 * 2**20
"""Of a batch's files."""

_MOST_BURST_BYTES: Final = 128 * 2**20
"""Of rows as Arrow, that may come to the driver if each partition has as many as it may hand over."""

_INFLATED: Final = 4
"""So many bytes as Arrow are guessed to be one of a file, until it is known."""

_LEAST_ROWS: Final = 1_000  # the next power of two, as all between
_GROWTH: Final = 4
_REMEMBERED: Final = 8
_PLACE_BITS: Final = 2**33 - 1
"""Of `monotonically_increasing_id`: how many rows of its partition are before a row."""

_NARROW: Final = frozenset({"Project", "Filter"})
"""Of Spark's operators those that do not change the number of partitions, and are common here."""

_TOO_MUCH: Final = "spark.driver.maxResultSize"


@dataclass(slots=True)
class BatchSizes:
    """How large the newest batches of a run were: rows, or None for one that was not small. `grouped` says
    that the table has partitions, buckets or a primary key; `cuts` are the conditions of the numbers of rows
    that came so far, for Spark takes one that is there in half the time."""

    grouped: bool = False
    cuts: dict[int, Column] = field(default_factory=dict)
    _newest: deque[int | None] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    _row_bytes: float = 0.0

    def most_rows(self) -> int | None:
        """So many rows the driver takes of the next batch; None where tasks are to write it."""
        largest = self._largest()
        if largest is None:
            return None
        return min(_power_of_two(max(largest * _GROWTH - 1, _LEAST_ROWS)), self._most)

    def most_rows_of(self, partitions: int) -> int | None:
        """The same for a batch of so many partitions, each of which may hand over so many rows."""
        largest, most = self._largest(), self.most_rows()
        if largest is None or most is None:
            return None
        affordable = int(_MOST_BURST_BYTES / max(1.0, self._row_bytes) / max(1, partitions))
        if affordable < most:
            most = _power_of_two(affordable + 1) >> 1
        return most if most >= largest else None

    def _largest(self) -> int | None:
        largest = 0
        for rows in self._newest:
            if rows is None:
                return None
            largest = max(largest, rows)
        return largest if self._newest else None

    @property
    def _most(self) -> int:
        return _MOST_GROUPED_ROWS if self.grouped else _MOST_ROWS

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
        if rows and not self._row_bytes:
            self._row_bytes = _INFLATED * size / rows
        self._newest.append(rows if rows <= self._most and size <= _MOST_BYTES else None)

    def note_collected(self, rows: int, size: int) -> None:
        """Notes that so many rows took so many bytes as Arrow."""
        if rows:
            self._row_bytes = size / rows

    def note_large(self) -> None:
        """Notes that the batch was too large for the driver."""
        self._newest.append(None)


def _power_of_two(above: int) -> int:
    """The least one that is larger, for few different numbers: Spark compiles the cut anew for each."""
    return 1 << above.bit_length()


def write_small(
    frame: DataFrame,
    table: Table,
    *,
    sizes: BatchSizes,
    first_sequence: int = 0,
    operations: Operations | None = None,
) -> tuple[CommitMessage, ...] | None:
    """What `run_write_job` does, by the driver: None if the batch has more rows than `sizes` allows, or takes
    more room than Spark's driver gives a result, or this Spark does not count its partitions or cannot hand
    over Arrow; nothing is written then. Raises as `run_write_job`."""
    check_shuffle(table)
    given = with_key_defaults(frame, table) if table.schema.primary_keys else frame
    rows = _collected(given, sizes)
    if rows is None:
        return None
    task = write_task_of(frame, table, first_sequence=first_sequence, is_sorted=False, operations=operations)
    answer, size = _answer(task, rows), _bytes_of(rows)
    del rows
    give_back(size)
    return messages_of([answer], table)


def _collected(frame: DataFrame, sizes: BatchSizes) -> Sequence[pa.RecordBatch] | None:
    """All rows, in the order of Spark's partitions; None if there are more than may come."""
    most = sizes.most_rows()
    if most is None:
        return None
    cut: Any = _cut(frame, most, sizes.cuts)
    partitions = partitions_of(frame, cut)
    allowed = None if partitions is None else sizes.most_rows_of(partitions)
    if allowed is None:
        return None
    if allowed < most:
        most, cut = allowed, _cut(frame, allowed, sizes.cuts)
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
    rows = sum(batch.num_rows for batch in batches)
    sizes.note_collected(rows, _bytes_of(batches))
    return batches if rows <= most else None


def _bytes_of(batches: Iterable[pa.RecordBatch]) -> int:
    return sum(batch.get_total_buffer_size() for batch in batches)


def _cut(frame: DataFrame, most: int, cuts: dict[int, Column]) -> DataFrame:
    """One row more than `most` of each partition."""
    if most not in cuts:
        cuts[most] = monotonically_increasing_id().bitwiseAND(_PLACE_BITS) <= most
    return frame.where(cuts[most])


def partitions_of(frame: Any, cut: Any) -> int | None:
    """So many has the frame at most; None where Spark does not tell. Spark gives each batch as an RDD that
    knows; of another plan the one tells that Spark will run, though that costs some milliseconds."""
    try:
        plan = frame._jdf.queryExecution().analyzed()
        while (name := plan.nodeName()) in _NARROW:
            plan = plan.child()
        rdd = plan.rdd() if name == "LogicalRDD" else cut._jdf.queryExecution().toRdd()
        return int(rdd.getNumPartitions())
    except NOT_AS_KNOWN:
        _LOG.debug("The partitions of a batch cannot be counted.", exc_info=True)
        return None


def _answer(task: WriteTask, rows: Sequence[pa.RecordBatch]) -> TaskResult | TaskFailure:
    """What the task answers, tried as often as Spark would try it; an error is what would come from afar."""
    for attempt in range(task.attempts):
        try:
            answer = task.answer(rows, 0, attempt)
        except Unavailable:
            continue
        return answer if isinstance(answer, TaskResult) else decode_result(encode_result(answer))
    raise AssertionError("the last attempt answers")
