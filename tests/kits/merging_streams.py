"""Streams whose batches are merged into the rows of a table, without Spark."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from paimon_stream import Merge, PaimonTable
from paimon_stream.commit.report import NO_OBSERVER, BatchObserver, CommitReport
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import Storage
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.merged_batch import MergeSource
from paimon_stream.stream.verdicts import Batch
from paimon_stream.stream.writer import StreamWriter


@dataclass
class MergingStream:
    """A stream that merges each of its batches. Like a checkpoint, it remembers the batch to run
    next; a batch that fails is run again.
    """

    table: PaimonTable
    merge: Merge | None
    user: str = "me"
    options: dict[str, str] = field(default_factory=dict)
    runtime: Runtime = field(default_factory=system)
    next_batch: int = 0
    runs: int = 0
    reads: int = 0
    drained: int = 0
    writer: StreamWriter | None = None

    def start(self, observer: BatchObserver = NO_OBSERVER, storage: Storage | None = None) -> None:
        """Begins a new run. The earlier run is dead."""
        self.runs += 1
        self.writer = StreamWriter(
            storage=storage or self.table._table.storage,
            identity=WriterIdentity(
                user=self.user,
                query_id="q",
                run_id=f"{self.user}-run-{self.runs}",
                checkpoint="/ck",
                token=f"{self.user}-sink",
            ),
            options=dict(self.options),
            merge=self.merge,
            runtime=self.runtime,
            observer=observer,
        )

    def batch(self, rows: pa.Table) -> CommitReport:
        """Runs the next batch, whose source has these rows, in the current run or in a new one."""
        if self.writer is None:
            self.start()
        assert self.writer is not None
        batch = Batch(batch_id=self.next_batch, offsets_hash=f"offsets-{self.next_batch}")

        def read() -> pa.Table:
            self.reads += 1
            return rows

        def drain() -> None:
            self.drained += 1

        report = self.writer.write(batch, MergeSource(read=read, drain=drain)).report
        self.next_batch += 1
        return report
