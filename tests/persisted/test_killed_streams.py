"""Streams of each release that were killed at each point of a batch continue with the present code.

Each row is in the table once, and each batch is one snapshot. These tests need no Spark;
`tests/spark/test_persisted_checkpoints.py` restarts the same checkpoints with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from paimon_stream import PaimonTable
from paimon_stream.commit.report import CommitReport
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.runtime import Runtime, SimulatedClock
from paimon_stream.spark.checkpoint import open_checkpoint
from paimon_stream.storage.local import LocalStorage
from paimon_stream.stream.claims import WriterIdentity
from paimon_stream.stream.ledger import AlreadyCommitted, Batch, Reuse
from paimon_stream.stream.writer import StreamWriter
from tests.kits.keyed import write_changes
from tests.kits.tables import write_rows
from tests.persisted.archive import Killed, all_killed
from tests.persisted.streams import FILES, STREAMS, Stream, ordered

BEFORE_JOURNAL = {"batch-started", "judged", "written"}
PREPARED = {"journaled", "base-read", "checked", "staged"}
PUBLIC = {"linked", "published", "confirmed", "hinted", "finished"}


@dataclass
class Restart:
    """A new run of a killed stream, at some time after the kill."""

    root: Path
    stream: Stream
    later: timedelta

    def __post_init__(self) -> None:
        self.checkpoint = open_checkpoint(str(self.root / "checkpoint"))
        newest = max(path.stat().st_mtime_ns for path in self.root.rglob("*") if path.is_file())
        clock = SimulatedClock(newest // 10**6 + int(self.later.total_seconds() * 1000))
        query_id = self.checkpoint.query_id()
        self.writer = StreamWriter(
            storage=LocalStorage(str(self.root / "table")),
            identity=WriterIdentity(
                user=f"paimon-stream_{query_id}",
                query_id=query_id,
                run_id="a-new-run",
                checkpoint=self.checkpoint.root,
                token="a-new-sink",
            ),
            options={},
            overwrites=self.stream.mode == "complete",
            runtime=Runtime(clock=clock),
        )

    def to_the_end(self) -> Iterator[CommitReport]:
        """All batches that Spark would run."""
        done = self.checkpoint.done_batch()
        for number in range(0 if done is None else done + 1, FILES):
            yield self.run(number)

    def run(self, number: int) -> CommitReport:
        batch = Batch(
            batch_id=number,
            offsets_hash=self.checkpoint.offsets_hash(number) or f"planned anew: {number}",
            watermark=self.checkpoint.watermark(number),
            previous_done_millis=self.checkpoint.done_millis(number - 1),
        )
        verdict = self.writer.judge(batch)
        match verdict:
            case AlreadyCommitted():
                return self.writer.already(batch, verdict)
            case Reuse(entry=entry):
                return self.writer.commit(batch, verdict, entry.messages)
            case _:
                return self.writer.commit(batch, verdict, self.write(number))

    def write(self, number: int) -> tuple[CommitMessage, ...]:
        table, rows = self.writer.table, self.stream.batch(number)
        first = self.writer.first_sequence()
        if not self.stream.primary_keys:
            return write_rows(table, rows)
        changes = [("+I", row) for row in rows]
        return write_changes(table, changes, first_sequence=first).messages

    def data_files(self) -> set[str]:
        """The data files on disk, by name."""
        return {path.name for path in (self.root / "table").rglob("data-*")}


@pytest.mark.parametrize(
    "later", [timedelta(minutes=1), timedelta(days=30)], ids=["soon", "a month later"]
)
@pytest.mark.parametrize("killed", all_killed(), ids=lambda killed: killed.name)
def test_a_stream_that_a_release_was_killed_in_goes_on(
    killed: Killed, later: timedelta, tmp_path: Path
) -> None:
    stream = STREAMS[killed.stream]
    kills = killed.unpack(tmp_path)
    assert len(kills) == 2 * len(BEFORE_JOURNAL | PREPARED | PUBLIC)
    for root in kills:
        batch, _, where = root.name.partition("-")
        restart = Restart(root, stream, later)
        prepared = restart.data_files()
        first, *rest = restart.to_the_end()
        assert first.identifier == int(batch)
        assert first.outcome == ("already committed" if where in PUBLIC else "committed"), where
        assert first.reused is (where in PREPARED and later < timedelta(hours=12)), where
        assert [report.outcome for report in rest] == ["committed"] * (FILES - 1 - int(batch))

        table = PaimonTable.load(str(root / "table"))
        assert [snapshot.commit_identifier for snapshot in table.snapshots()] == list(range(FILES))
        assert ordered(table.to_arrow().to_pylist()) == stream.expected(FILES), root.name
        assert prepared - restart.data_files() == set() or (
            where in PREPARED and not first.reused
        ), where
        if (
            stream.mode == "append" and where != "written"
        ):  # what no journal names is left to orphans
            assert restart.data_files() == {Path(file.path).name for file in table.files()}, where
