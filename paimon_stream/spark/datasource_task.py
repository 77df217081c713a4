"""What a task of the data source is given, and what it answers."""

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

    `columns` are the names of the table's columns, each with the column of the rows, or None if
    they lack it. In `user`, the commit user, `{}` stands for the query id. `recent` has the newest
    batch of each stream among the last snapshots, by commit user and query id. `basis` is for the
    commit, in the driver's own form.
    """

    task: WriteTask
    columns: tuple[tuple[str, str | None], ...]
    user: str
    recent: Mapping[tuple[str, str | None], int]
    basis: bytes

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows in the table's columns, NULL where they lack one. Types are converted when rows
        are written.
        """
        names = [name for name, _ in self.columns]
        for batch in batches:
            made = [
                pa.nulls(batch.num_rows) if one is None else batch.column(one)
                for _, one in self.columns
            ]
            yield pa.RecordBatch.from_arrays(made, names=names)


@dataclass(frozen=True)
class TaskAnswer(WriterCommitMessage):  # type: ignore[misc]
    """What a task sends to the driver: an encoded `TaskResult` or `TaskFailure`, the plan's basis,
    and in a stream the ids of query and run, and the session's folder of checkpoints, if it has
    one. The result is None if the batch is in the table already, so that no file was written.
    """

    result: bytes | None
    basis: bytes
    query_id: str = ""
    run_id: str = ""
    checkpoints: str | None = None
