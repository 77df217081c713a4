"""What tests of streams without Spark share: a stream on a `Bench`, its runs and its batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from paimon_stream.commit.report import NO_OBSERVER, BatchObserver, CommitReport, Phase
from paimon_stream.storage.base import Storage
from paimon_stream.stream.batch_write import WHOLE_TABLE
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.steps import JudgedBatch
from paimon_stream.stream.verdicts import Batch
from paimon_stream.stream.writer import StreamWriter
from tests.kits.commits import Bench
from tests.kits.steps import Messages, run_batch


class PowerCut(BaseException):
    """Kills a run."""


@dataclass
class At:
    """An observer that calls `action` when a phase is reached for the first time."""

    phase: Phase
    action: Callable[[], object]
    done: bool = False

    def reached(self, phase: Phase, identifier: int) -> None:
        if phase is self.phase and not self.done:
            self.done = True
            self.action()


@dataclass
class AtBatch:
    """An observer that hears of one batch only."""

    batch: int
    at: At

    def reached(self, phase: Phase, identifier: int) -> None:
        if identifier == self.batch:
            self.at.reached(phase, identifier)


@dataclass
class Stream:
    """A stream that writes one file per batch. Like a checkpoint, it remembers the batch to run
    next. Another `plan` gives its batches other source offsets.
    """

    bench: Bench
    user: str = "me"
    query_id: str = "q1"
    checkpoint: str = "/ck/a"
    options: dict[str, str] = field(default_factory=dict)
    next_batch: int = 0
    runs: int = 0
    written: int = 0
    writer: StreamWriter | None = None
    overwrites: bool = False
    done_millis: int | None = None
    plan: str = ""

    @staticmethod
    def cut() -> None:
        """Kills the run."""
        raise PowerCut

    def start(self, observer: BatchObserver = NO_OBSERVER, storage: Storage | None = None) -> None:
        """Begins a new run. The earlier run is dead."""
        self.runs += 1
        identity = WriterIdentity(
            user=self.user,
            query_id=self.query_id,
            run_id=f"{self.query_id}-run-{self.runs}",
            checkpoint=self.checkpoint,
            token=f"{self.query_id}-sink",
        )
        self.writer = StreamWriter(
            storage=storage or self.bench.storage,
            identity=identity,
            options=dict(self.options),
            replaced=WHOLE_TABLE if self.overwrites else None,
            runtime=self.bench.runtime,
            observer=observer,
        )

    def batch(self, rows: int = 10, *, dt: str | None = None) -> CommitReport:
        """Runs the next batch in the current run, or in a new one. Without rows it writes no
        file.
        """
        if self.writer is None:
            self.start()
        assert self.writer is not None
        batch = Batch(
            batch_id=self.next_batch,
            offsets_hash=f"{self.query_id}-{self.next_batch}{self.plan}",
            previous_done_millis=self.done_millis,
        )

        def written(judged: JudgedBatch) -> Messages:
            self.written += 1
            name = f"{self.user}-{batch.batch_id}-{self.written}"
            return (self.bench.message(name, rows=rows, dt=dt),) if rows else ()

        report = run_batch(self.writer, batch, written)
        self.next_batch += 1
        self.done_millis = self.bench.clock.now_millis()
        return report

    def batches(self, count: int) -> None:
        """Runs `count` batches."""
        for _ in range(count):
            self.batch()
