"""New runs of streams that were killed or stopped, without Spark: each sink's writer judges, writes
and commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from paimon_stream import PaimonTable
from paimon_stream.catalogs.opening import open_storage
from paimon_stream.commit.report import CommitReport
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.runtime import Runtime, SimulatedClock
from paimon_stream.spark.checkpoint import open_checkpoint
from paimon_stream.stream.batch_write import WHOLE_TABLE
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.steps import JudgedBatch, WrittenBatch
from paimon_stream.stream.verdicts import Batch
from paimon_stream.stream.writer import StreamWriter
from tests.kits.keyed import write_changes
from tests.kits.steps import numbered, run_batch
from tests.kits.tables import write_rows
from tests.persisted.streams import FILES, Stream


@dataclass
class Restart:
    """A new run of the stream in the folder `root`, at some time after its end. `options` are those
    of its sinks.
    """

    root: Path
    stream: Stream
    later: timedelta
    options: Mapping[str, str] = field(default_factory=dict)
    run_id: str = "a-new-run"

    def __post_init__(self) -> None:
        self.checkpoint = open_checkpoint(str(self.root / "checkpoint"))
        newest = max(path.stat().st_mtime_ns for path in self.root.rglob("*") if path.is_file())
        self.clock = SimulatedClock(newest // 10**6 + int(self.later.total_seconds() * 1000))
        self.users = {sink: self._user(sink) for sink in self.stream.sinks}
        self.writers = {sink: self._writer(sink) for sink in self.stream.sinks}

    def _user(self, sink: str | None) -> str:
        return f"paimon-stream_{self.checkpoint.query_id()}" + ("" if sink is None else f"_{sink}")

    def _writer(self, sink: str | None) -> StreamWriter:
        return StreamWriter(
            storage=open_storage(self.stream.location(self.root)),
            identity=WriterIdentity(
                user=self.users[sink],
                query_id=self.checkpoint.query_id(),
                run_id=self.run_id,
                checkpoint=self.checkpoint.root,
                token=f"a new sink: {sink}",
            ),
            options=self.options,
            replaced=WHOLE_TABLE if self.stream.mode == "complete" else None,
            runtime=Runtime(clock=self.clock),
        )

    @property
    def first_batch(self) -> int:
        """The batch that Spark would run first."""
        done = self.checkpoint.done_batch()
        return 0 if done is None else done + 1

    def to_the_end(self) -> Iterator[list[CommitReport]]:
        """All batches that Spark would run. Yields the reports of the sinks for each."""
        for number in range(self.first_batch, FILES):
            yield self.run(number)

    def run(self, number: int) -> list[CommitReport]:
        """One batch, by one sink after the other."""
        return [self._run(number, sink) for sink in self.stream.sinks]

    def _run(self, number: int, sink: str | None) -> CommitReport:
        writer = self.writers[sink]
        batch = Batch(
            batch_id=number,
            offsets_hash=self.checkpoint.offsets_hash(number) or f"planned anew: {number}",
            watermark=self.checkpoint.watermark(number),
            previous_done_millis=self.checkpoint.last_done_millis(number),
        )
        rows = self.stream.batch(number, sink)
        return run_batch(writer, batch, lambda judged: self._write(judged, rows))

    def _write(self, judged: JudgedBatch, rows: list[dict[str, Any]]) -> WrittenBatch:
        numbering, first, index = numbered(judged)
        if not self.stream.primary_keys:
            return judged.written(write_rows(judged.table, rows))
        changes = [("+I", row) for row in rows]
        made = write_changes(judged.table, changes, first_sequence=first, index=index).messages
        return judged.written(made, numbering=numbering)

    def table(self) -> PaimonTable:
        """What the stream has written to."""
        return PaimonTable.load(self.stream.location(self.root))

    def snapshots(self, sink: str | None) -> list[Snapshot]:
        """Those that a sink has published, the oldest first."""
        return [one for one in self.table().snapshots() if one.commit_user == self.users[sink]]

    def data_files(self) -> set[str]:
        """The data files on disk, by name."""
        return {path.name for path in (self.root / "table").rglob("data-*")}
