"""Writes rows by `format("paimon_stream")`. This module has the writers, and the code of each task.
A picture in `datasource.py` shows the processes.

Spark asks for a writer in a process on the driver and pickles it for the tasks. The writer makes
the plan that the tasks need, and the pickle contains the plan. Spark commits in another process. In
that process, Spark makes a new writer for each batch of a stream. The plan and the commit are in
datasource_commit.py, which no worker loads.

The plan is made before the judgement, so it may be wrong: its first number may be too low, or the
batch may have been committed since. The judgement detects both. If other commits have used the
plan's numbers, the commit raises `SequenceConflict`.

Rows of a table with a primary key are not shuffled. Task p numbers its rows from the plan's first
number plus p · 2^26 (`NUMBERS` in tasks.py). So the files of a batch may overlap in keys, but not
in numbers, and among rows of a key the later row of the DataFrame wins.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from paimon_stream.errors import IdentityUnknown
from paimon_stream.extras import require
from paimon_stream.spark.datasource_task import Plan, TaskAnswer
from paimon_stream.spark.tasks import begin_task
from paimon_stream.write.task import encode_result

_IDS: Final = ("sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId")
"""Local properties of Spark that name the query, the run and the batch of a task."""

_CHECKPOINTS: Final = "spark.sql.streaming.checkpointLocation"
"""The session's folder of checkpoints. Spark's SQL passes it to tasks, like its other settings."""

_PLANS: Final = "pyspark.sql.worker.write_into_data_source"
"""A module of the processes in which Spark plans a write."""


class _RowWriter:
    """The part of a writer that makes the plan and runs in tasks. The plan is made by `__init__` in
    a process in which Spark plans, else by `__getstate__`, when Spark pickles the writer. `options`
    are the options as Spark passes them.
    """

    is_stream = False

    def __init__(self, options: dict[str, str], columns: st.StructType, overwrite: bool) -> None:
        self._arguments = {"options": options, "overwrite": overwrite, "is_stream": self.is_stream}
        self._columns = columns
        self._plan: Plan | None = None
        # Wrong options are an error here, before the tasks.
        _commit_module().settings_of(**self._arguments)
        if _PLANS in sys.modules:
            # Spark shows all lines of an error that is raised in this process. If the error is
            # raised while Spark pickles a writer, Spark shows only one line.
            self._planned()

    def __getstate__(self) -> dict[str, Any]:
        self._planned()  # once: Spark pickles each writer twice
        return vars(self)

    def _planned(self) -> Plan:
        if self._plan is None:
            self._plan = _commit_module().plan(self._columns, **self._arguments)
        return self._plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes the rows of one task. A failure that Spark need not retry is returned as an
        answer, so that `commit` removes the files of the other tasks. Raises `Unavailable`,
        `IdentityUnknown`.
        """
        context = begin_task()
        plan = self._planned()
        task = plan.task
        answer = TaskAnswer(None, plan.for_commit)
        if self.is_stream:
            query_id, run_id, batch = map(context.getLocalProperty, _IDS)
            if not (query_id and run_id and batch):
                raise IdentityUnknown(
                    "Spark does not tell its tasks which batch they write, so a replay could not "
                    "be recognised. Nothing was published. Use PaimonSink with foreachBatch."
                ).of_table(task.spec.storage.location)
            checkpoints = context.getLocalProperty(_CHECKPOINTS)
            answer = TaskAnswer(None, plan.for_commit, query_id, run_id, checkpoints)
            user = plan.user.replace("{}", query_id)
            if plan.recent.get((user, query_id)) == int(batch):
                for _ in iterator:  # state stores must see the rows
                    pass
                return answer
            task = replace(task, spec=replace(task.spec, user=user))
        result = task.answer(plan.rows(iterator), context.partitionId(), context.attemptNumber())
        return replace(answer, result=encode_result(result))

    def abort(self, messages: Sequence[TaskAnswer | None], *batch: int) -> None:
        """Removes the files of a write that was never committed. For a stream, Spark also passes
        the id of the batch, which is not used.
        """
        _commit_module().abort(messages, **self._arguments)


def _commit_module() -> Any:
    """The module `datasource_commit.py`, which is imported only on the driver."""
    return require("paimon_stream.spark.datasource_commit", "spark", "A write")


class TableWriter(_RowWriter, DataSourceArrowWriter):  # type: ignore[misc]
    """Appends a DataFrame, or replaces the table by it."""

    def commit(self, messages: Sequence[TaskAnswer | None]) -> None:
        """Publishes the rows as one snapshot. Raises the errors of `TableCommit`."""
        _commit_module().commit_rows(self._planned(), messages, **self._arguments)


class StreamTableWriter(_RowWriter, DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[misc]
    """Appends each batch of a query, or replaces the table by it. Spark 4.0 passes Arrow batches
    only to a `DataSourceArrowWriter`.
    """

    is_stream = True

    def commit(self, messages: Sequence[TaskAnswer | None], batchId: int) -> None:
        """Publishes the batch, unless the table has it already. Raises what `PaimonSink` raises."""
        _commit_module().commit_batch(messages, batchId, **self._arguments)
