"""Checks what Java Paimon finds in a table and what the user of a failed query reads. Also damages
tables.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from paimon_stream import errors
from paimon_stream.api.doctor import examine
from paimon_stream.commit.report import Phase
from paimon_stream.storage.local import LocalStorage
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.verdicts import AlreadyCommitted, Reuse
from paimon_stream.stream.writer import Batch, StreamWriter
from paimon_stream.write.task import WriteSpec, write_task
from tests.kits.spark_jobs import ROWS_PER_FILE, Job

FOREIGN = "someone-else"
CHAINED = ("direct cause of the following exception", "During handling of the above exception")


def ids_of(*files: int) -> list[int]:
    """The ids that `Job.add_files` puts into these source files."""
    return sorted(n * ROWS_PER_FILE + i for n in files for i in range(ROWS_PER_FILE))


def java_ids(java: Any, job: Job) -> list[int]:
    """The ids that Java Paimon reads, including duplicates."""
    return sorted(row["id"] for row in java.read(job.table))


def doctor(job: Job, options: Mapping[str, str] | None = None) -> str:
    """The doctor's verdict on what a restart of the query will do."""
    storage = LocalStorage(str(job.table))
    (diagnosis,) = examine(storage, checkpoint=str(job.checkpoint), options=options)
    return diagnosis.verdict


def failing(job: Job, function: Any = None, **arguments: Any) -> StreamingQueryException:
    """Runs a query that must fail. Returns the error that its user catches."""
    with pytest.raises(StreamingQueryException) as caught:
        job.run(function, **arguments)
    return caught.value


def assert_reports(
    error: StreamingQueryException,
    kind: type[errors.PaimonStreamError],
    *parts: object,
    caused_by: str | None = None,
) -> None:
    """Checks that the error names our error class and contains these parts, and that no other error
    than `caused_by` is chained to it.
    """
    text, marker = str(error), f"paimon_stream.errors.{kind.__name__}: "
    assert marker in text, text
    ours = text.rpartition(marker)[2]
    for part in parts:
        assert str(part) in ours, ours
    chained = [one for one in CHAINED if one in text]
    if caused_by is None:
        assert not chained, text
    else:
        assert caused_by in text.partition(chained[0])[0], text
    assert "Py4J" not in ours, ours
    assert "fastavro" not in text, text
    link: BaseException | None = error
    while link is not None:
        assert type(link).__module__.partition(".")[0] == "pyspark", f"{type(link)}: {link}"
        link = link.__cause__


@dataclass
class At:
    """An observer that acts once, at one phase of one batch."""

    phase: Phase
    batch: int
    action: Callable[[], object]
    acted: bool = field(default=False, init=False)

    def reached(self, phase: Phase, identifier: int) -> None:
        if (phase, identifier) == (self.phase, self.batch) and not self.acted:
            self.acted = True
            self.action()


@dataclass
class SecondDriver:
    """Another driver with the job's checkpoint: the same query in another run. It does not need
    Spark.
    """

    job: Job
    writer: StreamWriter | None = None

    def replay(self, batch_id: int) -> str:
        """Does what a driver does with that batch. Returns the outcome."""
        checkpoint = self.job.checkpoint
        query_id = json.loads((checkpoint / "metadata").read_text())["id"]
        identity = WriterIdentity(
            user=f"paimon-stream_{query_id}",
            query_id=query_id,
            run_id="second-run",
            checkpoint=str(checkpoint),
            token="second-driver",
        )
        storage = LocalStorage(str(self.job.table))
        self.writer = self.writer or StreamWriter(storage=storage, identity=identity, options={})
        writer = self.writer
        offsets = (checkpoint / "offsets" / str(batch_id)).read_bytes()
        batch = Batch(batch_id=batch_id, offsets_hash=hashlib.sha256(offsets).hexdigest())
        verdict = writer.judge(batch)
        if isinstance(verdict, AlreadyCommitted):
            return writer.already(batch, verdict).outcome
        if isinstance(verdict, Reuse):
            return writer.commit(batch, verdict, verdict.entry.messages).outcome
        table = writer.table
        spec = WriteSpec(storage=storage, schema=table.schema, options=table.options)
        rows = pq.read_table(self.job.root / "source" / f"{batch_id:04d}.parquet")
        return writer.commit(batch, verdict, write_task(spec, rows.to_batches()).messages).outcome


def replace_table(job: Job, **arguments: Any) -> None:
    """Drops the table and creates it again."""
    shutil.rmtree(job.table)
    job.create(**arguments)


def expire_ours(java: Any, job: Job) -> None:
    """Writes a snapshot of another user, and has Java expire all other snapshots."""
    java.write(job.table, [{"id": -1, "day": "x"}], commit_user=FOREIGN, commit_identifier=1)
    java.expire_snapshots(job.table, retain_max=1)
    users = {snapshot["commitUser"] for snapshot in java.snapshots(job.table)}
    assert users == {FOREIGN}


def names_in(folder: Path) -> set[str]:
    """The relative paths of all files below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
