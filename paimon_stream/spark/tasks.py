"""The code that runs in Python workers beside an executor.

Each Python worker imports this module before its first row. So the module imports only what is needed to
write files: no Avro, no manifests, and nothing that only the driver needs.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark import TaskContext

from paimon_stream.errors import PaimonStreamError, Unavailable
from paimon_stream.spark.incoming import MeasuredRows, merged
from paimon_stream.spark.worker import settle
from paimon_stream.write.key_task import write_keyed_task
from paimon_stream.write.result import TaskFailure, TaskResult, encode_result
from paimon_stream.write.row_kinds import Operations
from paimon_stream.write.shuffle_packets import pack, unpack
from paimon_stream.write.task import WriteSpec, write_task

ANSWER: Final = "result"
"""The name of the column with a task's answer."""

_NUMBERS_OF_TASK: Final = 2**28
"""The sequence numbers of each task where several may write a bucket, so that their files have none in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTask:
    """Writes the rows of one task, in Python beside an executor.

    `attempts` is how often Spark tries a task. `packed` says that the rows come as packets. The other fields
    are for tables with a primary key, as for `write_keyed_task`.
    """

    spec: WriteSpec
    attempts: int
    packed: bool = False
    first_sequence: int = 0
    is_sorted: bool = False
    operations: Operations | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs the task. Returns its answer in the form that Spark expects."""
        settle()
        context = TaskContext.get()
        assert context is not None
        answer = self.answer(batches, context.partitionId(), context.attemptNumber())
        yield pa.RecordBatch.from_arrays([pa.array([encode_result(answer)], pa.binary())], names=[ANSWER])

    def answer(self, batches: Iterable[pa.RecordBatch], partition: int, attempt: int) -> TaskResult | TaskFailure:
        """What this attempt wrote for this partition, or why the task must not be tried again. Raises
        `Unavailable` if Spark should try the task again, perhaps on another machine."""
        rows = MeasuredRows(unpack(batches) if self.packed else batches)
        try:
            written = self.write(merged(rows), partition)
        except PaimonStreamError as error:
            if isinstance(error, Unavailable) and attempt + 1 < self.attempts:
                raise
            return TaskFailure(error=error, partition_id=partition, attempt_number=attempt)
        return replace(written, row_bytes=rows.row_bytes, partition_id=partition, attempt_number=attempt)

    def write(self, batches: Iterable[pa.RecordBatch], partition: int) -> TaskResult:
        """Writes the rows. Raises what `write_task` and `write_keyed_task` raise."""
        if not self.spec.schema.primary_keys:
            return write_task(self.spec, batches)
        first = self.first_sequence
        if self.spec.assigners > 1:  # several tasks may write older keys of a bucket, but never the same key
            first += partition * _NUMBERS_OF_TASK
        return write_keyed_task(
            self.spec, batches, first_sequence=first, is_sorted=self.is_sorted, operations=self.operations
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PackTask:
    """Packs rows in Python beside an executor."""

    spec: WriteSpec
    shuffle_keys: tuple[int, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows as packets."""
        settle()
        context = TaskContext.get()
        assert context is not None
        return pack(self.spec, merged(batches), shuffle_keys=self.shuffle_keys, task=context.partitionId())
