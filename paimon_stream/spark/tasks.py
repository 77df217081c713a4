"""The code that runs in Python workers beside an executor. Each worker imports this module before
its first row, so it imports only what is needed to write files: no Avro, no manifests, nothing for
the driver alone. Most of what only tables with a primary key need, or packets, is imported by their
tasks.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext

from paimon_stream.errors import PaimonStreamError, Unavailable, UnsupportedFeature
from paimon_stream.format.arrow_types import from_bytes
from paimon_stream.spark.reused_worker import prepare_worker
from paimon_stream.write.arrow_batches import (
    JOINED_BYTES,
    JOINED_ROWS,
    RowTooWide,
    widest_row,
)
from paimon_stream.write.task import (
    Answer,
    TaskFailure,
    TaskResult,
    TaskTooWide,
    WriteSpec,
    encode_result,
    write_task,
)

if TYPE_CHECKING:
    from paimon_stream.write.row_kinds import Operations

ANSWER: Final = "result"
"""The name of the column with a task's answer."""

_NUMBERS_OF_TASK: Final = 2**28
"""How many sequence numbers each task has where several tasks may write to a bucket, so that their
files have no number in common.
"""
NUMBERS: Final = 2**26
"""The same where no shuffle gathers the rows. At one batch a second with 200 tasks, the sequence
numbers of a table last for more than ten years.
"""


def merged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in larger batches, because writing a batch costs as much as writing a thousand
    rows. The larger batches hold a few more megabytes of rows in memory.
    """
    waiting: list[pa.RecordBatch] = []
    rows = 0
    size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= JOINED_ROWS or size >= JOINED_BYTES:
            yield from _combined(waiting)
            waiting = []
            rows = 0
            size = 0
    if waiting:
        yield from _combined(waiting)


def _combined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The same rows as a list of one batch; an empty list if there are no rows."""
    if len(batches) == 1:
        return batches
    combined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return combined


def begin_task() -> TaskContext:
    """Prepares the worker of this process for a task that begins. Returns Spark's context of the
    task.
    """
    prepare_worker()
    context = TaskContext.get()
    assert context is not None
    return context


ArrowTask = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def with_names(
    task: ArrowTask, names: tuple[str, ...], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Runs a task on rows whose columns were renamed for the transfer. The task gets the columns
    under their original names, `names`.
    """
    return task(pa.RecordBatch.from_arrays(batch.columns, names=names) for batch in batches)


def unguarded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows without the last column, which says whether the row is too wide
    (`map_arrow.guarded`). Raises `RowTooWide` if a row is too wide.
    """
    for batch in batches:
        *columns, is_wide = batch.columns
        if is_wide.true_count:
            raise RowTooWide
        yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names[:-1])


def discard(batches: Iterator[object]) -> None:
    """Reads the remaining rows. Spark ends a worker that leaves rows unread, and starts another
    worker.
    """
    for _ in batches:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTask:
    """Writes the rows of one task, in Python beside an executor.

    Attributes:
        spec: the description of the table for the task.
        attempts: the number of times that Spark tries a task.
        packed: whether the rows come as packets.
        guarded: whether one more column says which rows are too wide.
        first_sequence: for tables with a primary key, a number above all sequence numbers in the
            table.
        is_sorted: whether the rows of a bucket come sorted by key.
        operations: the column that says what each row does; None if there is none.
        numbers: how many sequence numbers each task has, in the order of tasks, if several tasks
            may write to one bucket. None if only one task may.
    """

    spec: WriteSpec
    attempts: int
    packed: bool = False
    guarded: bool = False
    first_sequence: int = 0
    is_sorted: bool = False
    operations: "Operations | None" = None
    numbers: int | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs the task. Returns its answer in the form that Spark expects."""
        context = begin_task()
        answer = self.answer(batches, context.partitionId(), context.attemptNumber())
        yield pa.RecordBatch.from_arrays([from_bytes(encode_result(answer))], names=[ANSWER])

    def answer(self, batches: Iterable[pa.RecordBatch], partition: int, attempt: int) -> Answer:
        """The answer of one attempt of the task. It says what was written for this partition, that
        a row is too wide, or why the task must not be tried again. Raises `Unavailable` if Spark
        should try the task again, perhaps on another machine.
        """
        incoming = iter(batches)
        row_bytes = 0  # the largest mean row size of a batch, at least 1 if there is a row
        widest = 0
        rows = 0

        def measured() -> Iterator[pa.RecordBatch]:
            nonlocal row_bytes, widest, rows
            for batch in merged(self._rows(incoming)):
                if batch.num_rows:
                    row_bytes = max(row_bytes, 1, batch.nbytes // batch.num_rows)
                    widest = max(widest, widest_row(batch))
                rows += batch.num_rows
                if self.numbers is not None and rows > self.numbers:
                    raise UnsupportedFeature(
                        f"partition {partition} of the DataFrame has more than {self.numbers:,} "
                        "rows, the most that one task may write here. Nothing was published. "
                        "Spread them: .repartition(n) before writing."
                    ).of_table(self.spec.storage.location)
                yield batch

        try:
            written = self.write(measured(), partition)
        except RowTooWide:
            discard(incoming)
            return TaskTooWide(partition_id=partition)
        except PaimonStreamError as error:
            if isinstance(error, Unavailable) and attempt + 1 < self.attempts:
                raise
            return TaskFailure(error=error, partition_id=partition)
        return replace(written, row_bytes=row_bytes, widest_row=widest, partition_id=partition)

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, with the columns of the table."""
        if self.packed:
            from paimon_stream.write.shuffle_packets import unpack

            return unpack(batches)
        return unguarded(batches) if self.guarded else batches

    def write(self, batches: Iterable[pa.RecordBatch], partition: int) -> TaskResult:
        """Writes the rows. Raises what `write_task` and `write_keyed_task` raise."""
        if not self.spec.schema.primary_keys:
            return write_task(self.spec, batches)
        from paimon_stream.write.key_task import write_keyed_task

        first = self.first_sequence
        if self.numbers is not None:
            first += partition * self.numbers
        elif self.spec.assigners > 1:
            # Several tasks may write older keys of a bucket, but they never write the same key.
            first += partition * _NUMBERS_OF_TASK
        return write_keyed_task(
            self.spec,
            batches,
            first_sequence=first,
            is_sorted=self.is_sorted,
            operations=self.operations,
        )


def pack_task(
    spec: WriteSpec,
    shuffle_keys: tuple[int, ...],
    batches: Iterable[pa.RecordBatch],
    *,
    guarded: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Packs rows into packets, in Python beside an executor. `guarded` says whether one more column
    shows which rows are too wide.
    """
    from paimon_stream.write.shuffle_packets import pack

    context = begin_task()
    incoming = iter(batches)
    rows = unguarded(incoming) if guarded else incoming
    yield from pack(spec, merged(rows), shuffle_keys=shuffle_keys, task=context.partitionId())
    discard(incoming)
