"""Compacts on the executors of Spark: each unit is a job with one task."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from paimon_stream.compact.remote import UnitTask
from paimon_stream.compact.units import Unit
from paimon_stream.errors import WriteInterrupted
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.runtime import system
from paimon_stream.spark.map_arrow import map_arrow
from paimon_stream.spark.tasks import ANSWER, WriteTask
from paimon_stream.spark.write_job import answers_of, is_local, of_context, task_attempts
from paimon_stream.table.table import Table
from paimon_stream.write.task import TaskResult

_LEAST_UNITS: Final = 3
_LEAST_BYTES: Final = 256 * 2**20
_LEAST_BYTES_OF_UNIT: Final = 32 * 2**20
_AT_ONCE_IF_SPARK_GROWS: Final = 32
_GROWS: Final = "spark.dynamicAllocation.enabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactTask(WriteTask):
    """Rewrites the files of a unit, in Python beside an executor."""

    unit: UnitTask

    def write(self, batches: Iterable[pa.RecordBatch], partition: int) -> TaskResult:
        """Rewrites the unit, and returns its message. Spark passes one row that has no meaning. The
        row is read only because Spark requires that.
        """
        for _ in batches:
            pass
        return TaskResult(messages=(self.unit(),))


class SparkExecutors:
    """The executors of a session, which compact units. This class implements `Elsewhere`. Each unit
    is a Spark job with one task. So the driver can publish the units that are done while others
    fail, and Spark retries each unit separately. Only `at_once` units are in Spark's queue at a
    time. A stream in the same session therefore waits for one unit at most.
    """

    def __init__(self, session: SparkSession, table: Table) -> None:
        self._session = session
        self._table = table
        self._context = session.sparkContext
        self._group = f"paimon-stream-compact-{system().ids.uuid()}"

    def at_once(self, units: Sequence[Unit]) -> int:
        """The number of units that the executors compact at once: one for each core. 0 if the
        driver is as quick. That is so in local mode, and if the units are too few or too small
        (`pays`).
        """
        if is_local(self._context.master) or not pays([unit.size for unit in units]):
            return 0
        return self.cores()

    def cores(self) -> int:
        """The number of tasks that run at once: one for each core, but at least
        `_AT_ONCE_IF_SPARK_GROWS` if Spark may add executors. Spark adds them only if there are more
        tasks than cores.
        """
        cores = int(self._context.defaultParallelism)
        grows = of_context(self._session, _GROWS) == "true"
        if grows:
            return max(cores, _AT_ONCE_IF_SPARK_GROWS)
        return max(cores, 1)

    def run(self, task: UnitTask) -> CommitMessage:
        """Compacts a unit on an executor, as `Elsewhere.run` says. Raises `WriteInterrupted` if
        Spark cancels the unit.
        """
        self._context.setJobGroup(
            self._group, f"Compacts {self._table.location}", interruptOnCancel=True
        )
        work = CompactTask(spec=task.spec, unit=task, attempts=task_attempts(self._session))
        frame = map_arrow(self._session.range(0, 1, 1, 1), work, f"{ANSWER} binary")
        try:
            return answers_of(frame, self._table).messages[0]
        except PySparkException as failed:
            raise WriteInterrupted(
                "Spark gave up the task of a compaction, and none of its files were published. If "
                "an executor ran out of memory, give it more (spark.executor.memoryOverhead). "
                f"Spark says: {str(failed).strip()[:500]}",
                table=self._table.location,
            ) from failed

    def cancel(self) -> None:
        """Cancels the units that are being compacted, as `Elsewhere.cancel` says."""
        self._context.cancelJobGroup(self._group)


def pays(sizes: Sequence[int]) -> bool:
    """Whether units of these sizes, in bytes, are large enough for Spark jobs. A job costs 0.2 s of
    CPU, as much as rewriting 8 MiB.
    """
    return len(sizes) >= _LEAST_UNITS and sum(sizes) >= max(
        _LEAST_BYTES, len(sizes) * _LEAST_BYTES_OF_UNIT
    )
