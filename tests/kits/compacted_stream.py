"""A stream without Spark that compacts the buckets it writes to, and pools whose units a test lets
go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import Any

from paimon_stream import PaimonTable
from paimon_stream.commit.report import NO_OBSERVER, BatchObserver, CommitReport
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import Storage
from paimon_stream.storage.local import LocalStorage
from paimon_stream.stream.compacting import StreamCompaction
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.steps import JudgedBatch, SettledBatch
from paimon_stream.stream.verdicts import Batch
from paimon_stream.stream.writer import StreamWriter
from tests.kits import steps
from tests.kits.keyed import Change, write_changes
from tests.kits.tables import write_rows


class Held(Executor):
    """A pool that carries out a unit when the test says so; with `at_once`, as soon as it comes."""

    def __init__(self, *, at_once: bool = False) -> None:
        self.at_once = at_once
        self.calls: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls.append((Future(), lambda: fn(*args, **kwargs)))
        future = self.calls[-1][0]
        if self.at_once:
            self.go_on()
        return future

    def go_on(self) -> int:
        """Carries out what has come. Returns how many units this were."""
        calls, self.calls = self.calls, []
        for future, call in calls:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except Exception as why:  # noqa: BLE001  whoever asks for the result judges it
                    future.set_exception(why)
        return len(calls)


@dataclass
class CompactedStream:
    """Writes its batches to a table, each as one file of every bucket that it touches."""

    table: PaimonTable
    storage: Storage | None = None
    options: dict[str, str] = field(default_factory=dict)
    pool: Executor = field(default_factory=lambda: Held(at_once=True))
    runtime: Runtime = field(default_factory=system)
    user: str = "me"
    next_batch: int = 0
    runs: int = 0
    writer: StreamWriter | None = None
    compaction: StreamCompaction | None = None
    settled: SettledBatch | None = None
    reports: list[CommitReport] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def start(
        self, observer: BatchObserver = NO_OBSERVER, storage: Storage | None = None
    ) -> StreamCompaction:
        """Begins a new run. The earlier one is dead."""
        self.runs += 1
        identity = WriterIdentity(
            user=self.user, query_id="q", run_id=f"r{self.runs}", token=f"t{self.runs}"
        )
        used = storage or self.storage or LocalStorage(self.table.location)
        self.writer = StreamWriter(
            storage=used,
            identity=identity,
            options=self.options,
            runtime=self.runtime,
            observer=observer,
        )
        self.counts = Counter()
        self.compaction = StreamCompaction(self.runtime, self.pool, self._count)
        return self.compaction

    def _count(self, name: str, count: int) -> None:
        self.counts[name] += count

    def batch(self, rows: Sequence[dict[str, Any]] | Sequence[Change] = ()) -> CommitReport:
        """Runs the next batch, with what follows it. Rows of tables with keys are changes."""
        compaction = self.compaction or self.start()
        writer = self.writer
        assert writer is not None
        batch = Batch(batch_id=self.next_batch, offsets_hash=f"offsets-{self.next_batch}")
        of_batch = steps.rows(lambda judged: self._written(judged, rows))
        self.settled = settled = writer.write(batch, of_batch)
        self.reports.append(settled.report)
        writer.compact(compaction, settled)
        self.next_batch += 1
        return settled.report

    def _written(self, judged: JudgedBatch, rows: Any) -> Any:
        table = replace(judged.table, storage=LocalStorage(self.table.location))
        if not rows:
            return ()
        if not table.schema.primary_keys:
            return write_rows(table, rows)
        numbering, first, _ = steps.numbered(judged)
        made = write_changes(table, rows, first_sequence=first).messages
        return judged.written(made, numbering=numbering)
