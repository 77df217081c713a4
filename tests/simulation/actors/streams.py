"""Streams: drivers with a checkpoint that judge, write and commit batch after batch, and the operator who
does what their errors advise."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from paimon_stream.commit.observer import Phase
from paimon_stream.commit.report import CommitReport
from paimon_stream.errors import (
    CheckpointReset,
    CheckpointRewound,
    CommitLost,
    CorruptMetadata,
    DuplicateWriter,
    HistoryUnknown,
    PaimonStreamError,
    SequenceConflict,
    SharedCheckpoint,
    TableReplaced,
    TableRolledBack,
)
from paimon_stream.maintenance.hints import repair_hints
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.ledger import AlreadyCommitted, Reuse
from paimon_stream.stream.writer import Batch, StreamWriter
from tests.simulation.actors.base import Actor, Work
from tests.simulation.actors.checkpoints import Checkpoint
from tests.simulation.actors.doctor import check_admitted, check_refused, diagnose
from tests.simulation.state import Limit, State, Token, Violation, stream_of

REWRITES = 4
UNTIL_JOURNALLED = (None, Phase.BATCH_STARTED, Phase.JUDGED, Phase.WRITTEN)
LOSSES = (TableRolledBack, CommitLost, TableReplaced)
RESETS = (CheckpointReset, CheckpointRewound)
ANSWERS: dict[type[PaimonStreamError], str] = {
    TableRolledBack: "paimon-stream.on-table-change",
    CommitLost: "paimon-stream.on-table-change",
    TableReplaced: "paimon-stream.on-table-change",
    HistoryUnknown: "paimon-stream.on-unknown-history",
}


@dataclass(eq=False)
class Stream(Actor):
    """A driver. Two of them on one checkpoint are twins."""

    checkpoint: Checkpoint = field(default_factory=lambda: Checkpoint("a"))
    options: dict[str, str] = field(default_factory=dict)
    overwrites: bool = False
    kind = "stream"
    writes = True

    def __post_init__(self) -> None:
        self.writer: StreamWriter | None = None
        self.answers: set[str] = set()
        self.next_batch = 0
        self.at = 0
        self.last: State | None = None
        self.owed: set[Token] = set()
        self.upsets = 0
        self.repair = False
        self.dropped = False
        self.unjournalled = False
        self.run_options: dict[str, str] = {}
        self.starts = False
        self.whole = False

    def copied(self, checkpoint: Checkpoint) -> Stream:
        """The same query, started on a copy of the checkpoint."""
        return replace(self, name=f"a copy of {self.name}", checkpoint=checkpoint)

    @property
    def rows(self) -> str:
        """Whose rows these are, whatever the commit user is."""
        return stream_of(self.user)

    @property
    def user(self) -> str:
        return self.checkpoint.user

    @property
    def exposed(self) -> bool:
        process = self.process
        return self.unjournalled or process is None or process.phase in UNTIL_JOURNALLED

    def begin(self) -> Work | None:
        if self.writer is None or self.process is None or self.process.dead or self.world.choices.once_in(8):
            self.start()
        if self.repair:
            self.repair, self.doing = False, "repair of the hints"
            table, process = self.world.table, self.ready()
            return lambda: repair_hints(table, storage=process.storage, runtime=process.runtime)
        self.at = self.next_batch
        self.doing = f"batch {self.at}"
        if ANSWERS[TableReplaced] in self.answers:
            self.checkpoint.known_drops = self.world.truth.drops
        self.owed = self.tellable()
        self.upsets = self.world.truth.upsets
        self.dropped = self.world.truth.drops > self.checkpoint.heard_drops and self.next_batch > 0
        self.whole = self.world.asks_doctor and self.starts and self.checkpoint.planned >= 0
        self.starts = False
        if self.whole:
            self.doing += " after the doctor was asked"
        return self.examined_batch if self.whole else self.batch

    def start(self) -> None:
        """Begins a new run, with the operator's answers to the errors since the last batch."""
        process = self.restart()
        options = dict(self.options)
        if not self.world.choices.once_in(8):
            options.pop("paimon-stream.journal", None)
        self.unjournalled = options.get("paimon-stream.journal") == "false"
        if not self.world.choices.once_in(8):
            options["paimon-stream.commit.guard"] = "trust"
        if self.world.choices.once_in(6):
            options["paimon-stream.journal.reuse"] = "false"
        options |= dict.fromkeys(sorted(self.answers), "continue")
        self.checkpoint.runs += 1
        self.next_batch = self.checkpoint.first_batch
        self.last = None
        self.run_options, self.starts = options, True
        self.writer = StreamWriter(
            storage=process.storage,
            identity=WriterIdentity(
                user=self.user,
                query_id=self.checkpoint.query,
                run_id=f"run-{self.checkpoint.name}-{self.checkpoint.runs}",
                checkpoint=self.checkpoint.path,
                token="sink",
            ),
            options=options,
            overwrites=self.overwrites,
            runtime=process.runtime,
            observer=self,
        )

    def examined_batch(self) -> CommitReport:
        """The first batch of a run, at once after the doctor was asked what it would do."""
        diagnosis = diagnose(self)
        try:
            report = self.batch()
        except PaimonStreamError as error:
            check_refused(self.name, diagnosis, error, self.world.truth.head)
            raise
        check_admitted(self.name, diagnosis)
        return report

    def batch(self) -> CommitReport:
        """One batch, as spark/batch.py does it."""
        writer = self.writer
        assert writer is not None
        batch = Batch(
            batch_id=self.at,
            offsets_hash=self.checkpoint.plan(self.at, self.world.operations),
            previous_done_millis=self.checkpoint.done_before(self.at),
        )
        rows = 0 if self.at % 5 == 4 else 3
        verdict = writer.judge(batch)
        for _ in range(REWRITES):
            if isinstance(verdict, AlreadyCommitted):
                return writer.already(batch, verdict)
            try:
                if isinstance(verdict, Reuse):
                    return writer.commit(batch, verdict, verdict.entry.messages)
                dt, first = "xy"[self.at % 2], writer.first_sequence()
                messages = (
                    (self.message(writer.table, self.user, self.at, dt=dt, first=first, rows=rows),)
                    if rows
                    else ()
                )
                return writer.commit(batch, verdict, messages)
            except SequenceConflict as conflict:
                last = conflict
                verdict = writer.again(verdict)
        raise last

    # -- what became of it ------------------------------------------------------------------------

    def succeeded(self, result: object) -> None:
        if not isinstance(result, CommitReport):
            return
        truth, token = self.world.truth, (self.rows, self.at)
        still = self.owed & self.tellable()  # before and after: an expiry may have hidden it meanwhile
        if still and not self.answers and truth.beside:
            raise Limit("a run saw the snapshot of a writer that slept through a rollback")
        if still and not self.answers:
            raise Violation(
                "losses are reported", f"{self.name} goes on with {self.at} after {sorted(still)}"
            )
        if self.dropped and not self.answers and truth.drops > self.checkpoint.heard_drops:
            if truth.beside:
                raise Limit("a run saw the snapshot of a writer that slept through a rollback")
            raise Violation("losses are reported", f"{self.name} goes on with {self.at} in another table")
        if self.at % 5 != 4:
            truth.acknowledge(token, self.ready())
        if result.snapshot_id is not None and (found := truth.there.get(result.snapshot_id)) is not None:
            self.last = found
        if self.at % 5 != 4:  # a batch without rows leaves no trace, so the next run asks again
            self.forgive()
            if self.answers:
                self.answers, self.writer = set(), None  # the next run has no answer any more
        if truth.drops > self.ready().drops:  # Spark notes it after the new table was made: nobody can know
            self.checkpoint.known_drops = truth.drops
        self.checkpoint.done(self.at, self.ready().clock.now_millis())
        self.next_batch = self.at + 1

    def failed(self, error: PaimonStreamError) -> None:
        self.writer = None
        self.last = None
        truth = self.world.truth
        reset = self.checkpoint.tampered and isinstance(error, (*RESETS, HistoryUnknown))
        if reset and self.checkpoint.put_back(other=isinstance(error, RESETS)):
            return
        if isinstance(error, LOSSES):
            known = truth.upsets == self.checkpoint.known_upsets
            if known and not (self.checkpoint.shared or self.checkpoint.tampered):
                if truth.beside:
                    raise Limit("a run saw the snapshot of a writer that slept through a rollback")
                raise Violation("no false alarm", f"{self.name}, batch {self.at}: {error}")
            self.answers.add(ANSWERS[type(error)])
            self.checkpoint.known_drops = truth.drops
        elif isinstance(error, CorruptMetadata):
            self.repair = "repair-hints" in error.message
        elif isinstance(error, HistoryUnknown):
            live = truth.head.tokens() if truth.head is not None else set()
            if (self.rows, self.at) in live:  # the operator looks, and moves the source past it
                self.checkpoint.next_batch = max(self.checkpoint.next_batch, self.at + 1)
            else:
                truth.excused.add((self.rows, self.at))
                self.answers.add(ANSWERS[HistoryUnknown])
        elif isinstance(error, (SharedCheckpoint, DuplicateWriter, CheckpointRewound)):
            others = self.checkpoint.shared or self.checkpoint.tampered
            if not (others or self.user in self.world.landed):
                raise Violation("no false alarm", f"{self.name}, batch {self.at}: {error}")
        elif isinstance(error, CheckpointReset):
            raise Violation("no false alarm", f"{self.name}, batch {self.at}: {error}")

    def killed(self) -> None:
        self.writer = None
        self.last = None

    def forgive(self) -> None:
        """The operator knows everything that was removed so far."""
        known = self.checkpoint
        known.known_upsets, known.known_drops = self.upsets, self.ready().drops
        for token in [one for one in self.world.truth.taken if one[0] == self.rows]:
            if self.world.truth.taken[token] != "overwrite":
                self.world.truth.acked.discard(token)

    def tellable(self) -> set[Token]:
        """The acknowledged batches of this run that were taken away, if the run can know: the snapshot of its
        last batch is gone and no expiry explains that, or another one has its id."""
        truth, last = self.world.truth, self.last
        if last is None or truth.head is None:
            return set()
        there = truth.there.get(last.id)
        if (there is None and truth.head.id > last.id) or (there is not None and there.nonce == last.nonce):
            return set()
        return {
            one
            for one, why in truth.taken.items()
            if one in truth.acked and one[0] == self.rows and why in ("rollback", "replaced")
        }
