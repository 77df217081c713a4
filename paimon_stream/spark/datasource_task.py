"""What a task of the data source receives, and what it sends back."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    WriterCommitMessage,
)

from paimon_stream.spark.tasks import WriteTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is known of a batch before its tasks begin.

    Attributes:
        task: writes the rows of a task.
        columns: the names of the table's columns, each with the name of the rows' column, or None
            if the rows lack it.
        user: the commit user, in which `{}` stands for the query id.
        recent: the newest batch of each stream among the last snapshots, by commit user and query
            id.
        for_commit: what the commit needs of the plan, encoded by the driver.
    """

    task: WriteTask
    columns: tuple[tuple[str, str | None], ...]
    user: str
    recent: Mapping[tuple[str, str | None], int]
    for_commit: bytes

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, with the columns of the table. A column that the rows lack is NULL. Types are
        converted when rows are written.
        """
        names = [name for name, _ in self.columns]
        for batch in batches:
            arrays = [
                pa.nulls(batch.num_rows) if source is None else batch.column(source)
                for _, source in self.columns
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=names)


@dataclass(frozen=True)
class TaskAnswer(WriterCommitMessage):  # type: ignore[misc]
    """What a task sends to the driver.

    Attributes:
        result: an encoded `TaskResult` or `TaskFailure`. None if the batch is in the table already,
            so that no file was written.
        for_commit: what the commit needs of the plan, encoded.
        query_id: in a stream, Spark's id of the query.
        run_id: in a stream, Spark's id of this run of the query.
        checkpoints: in a stream, the session's folder of checkpoints, if it has one.
    """

    result: bytes | None
    for_commit: bytes
    query_id: str = ""
    run_id: str = ""
    checkpoints: str | None = None
