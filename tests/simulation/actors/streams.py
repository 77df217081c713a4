"""Streams: drivers with a checkpoint that judge, write and commit batch after batch, and the
operator who does what their errors advise.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from paimon_stream.api.doctor import Diagnosis
from paimon_stream.change.merge_clauses import MergeWords
from paimon_stream.commit.report import CommitReport, Phase
from paimon_stream.commit.request import ChangeSource, Published
from paimon_stream.errors import (
    CheckpointReset,
    CheckpointRewound,
    CommitLost,
    CorruptMetadata,
    DeletedFiles,
    DuplicateWriter,
    HistoryUnknown,
    NotFound,
    PaimonStreamError,
    ReplayError,
    SequenceConflict,
    SharedCheckpoint,
    TableReplaced,
    TableRolledBack,
    UnsupportedFeature,
)
from paimon_stream.maintenance.hints import repair_hints
from paimon_stream.stream.batch_write import WHOLE_TABLE
from paimon_stream.stream.compacting import StreamCompaction
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.merged_batch import MergeSource
from paimon_stream.stream.one_batch import Rows
from paimon_stream.stream.recommit import RecommitReport
from paimon_stream.stream.steps import JudgedBatch, SettledBatch, WrittenBatch
from paimon_stream.stream.verdicts import Batch
from paimon_stream.stream.writer import StreamWriter
from paimon_stream.table.removals import read_removals
from tests.kits.steps import numbered, rows
from tests.simulation import rules
from tests.simulation.actors.advice import (
    NEVER,
    Recommit,
    asks_for_checkpoint,
    asks_for_repair,
    command_of,
    option_of,
)
from tests.simulation.actors.advice import RULE as ADVICE
from tests.simulation.actors.base import Actor, Work
from tests.simulation.actors.checkpoints import Checkpoint
from tests.simulation.actors.doctor import check_admitted, check_refused, diagnose
from tests.simulation.limits import CLOCK_HID_DROP, Limit
from tests.simulation.rewriting import PoolBeside
from tests.simulation.scheduler import MINUTE
from tests.simulation.state import State, Token, Violation, stream_of

UNTIL_JOURNALLED = (None, Phase.BATCH_STARTED, Phase.JUDGED, Phase.WRITTEN)
BESIDE_MANIFESTS = (Phase.BASE_READ, Phase.CHECKED)
"""Where a batch's first attempt has not written its journal entry yet: it goes with the
manifests.
"""
COMPACTING = {
    "paimon-stream.compact": "minor",
    "write-only": "false",
    "compaction.min.file-num": "2",
    "num-sorted-run.compaction-trigger": "2",
    "full-compaction.delta-commits": "4",
}
"""With these options a stream compacts soon, whatever its table is."""
LOSSES = (TableRolledBack, CommitLost, TableReplaced)
REFUSED = (
    CheckpointRewound,
    DeletedFiles,
    HistoryUnknown,
    NotFound,
    SequenceConflict,
    TableReplaced,
    TableRolledBack,
    UnsupportedFeature,
)
"""What `recommit` raises if it cannot commit the files again."""
NONE_STANDS = "no snapshot of another engine stands in place of its own"
"""How `recommit` refuses a batch that no other engine has replaced."""
REMOVED = "a rollback has removed its snapshot"
"""How it refuses a batch of which a note says that a rollback took it."""
RESETS = (CheckpointReset, CheckpointRewound)
ON_TABLE_CHANGE = "paimon-stream.on-table-change"
ON_UNKNOWN_HISTORY = "paimon-stream.on-unknown-history"
Reports = dict[str, CommitReport]
"""What each sink of a stream reported, by its commit user."""


@dataclass(frozen=True)
class PromisingBatch:
    """A batch that has ended, whose published compactions are promised: they are pieces of work."""

    settled: SettledBatch
    stream: Stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.settled, name)

    def publish_compaction(self, source: ChangeSource) -> Published | None:
        """As that of the batch."""
        stream = self.stream
        stream.compacted += 1
        stream.owes = True
        try:
            outcome = self.settled.publish_compaction(source)
        finally:
            stream.owes = False
        if outcome is not None:
            stream.promised.append(stream.commit)
        return outcome


@dataclass(eq=False)
class Stream(Actor):
    """A driver. Two of them on one checkpoint are twins. Its batch function calls the sinks `names`
    one after another; one sink needs no name. `answers` are the options that the operator gives to
    each sink, by its commit user, each with the batch that asked for it. With `loses_answers` its driver sometimes dies before Spark has
    recorded a batch that is done. A `quiet` one has rows in few batches.
    `compacted` counts its compactions, and `promised` has those that were reported since the batch
    began.
    """

    checkpoint: Checkpoint = field(default_factory=lambda: Checkpoint("a"))
    options: dict[str, str] = field(default_factory=dict)
    overwrites: bool = False
    names: tuple[str, ...] = ("",)
    compacts: bool = False
    loses_answers: bool = False
    quiet: bool = False
    kind = "stream"
    writes = True
    remembers = True
    expects = (ReplayError, CommitLost, SequenceConflict, UnsupportedFeature)

    def __post_init__(self) -> None:
        self.writers: dict[str, StreamWriter] = {}
        self.compactions: dict[str, StreamCompaction] = {}
        self.compacting = False
        self.compacted = 0
        self.promised: list[Token] = []
        self.answers: dict[str, dict[str, int]] = {}
        self.answered: set[str] = set()
        self.next_batch = 0
        self.at = 0
        self.last: dict[str, State] = {}
        self.owed: set[Token] = set()
        self.upsets = 0
        self.repair = False
        self.dropped = False
        self.unjournalled = False
        self.run_options: dict[str, str] = {}
        self.diagnosis: Diagnosis | None = None
        self.starts = False
        self.dies = False
        self.forgone: set[Token] = set()
        """The earlier batches that its table lacked when an operator let it continue."""
        self.whole = False
        self.began_with = 0
        self.retired = False
        self.command: Recommit | None = None
        self.tried: set[str] = set()
        self.rolled_back = False
        self.lost: Token | None = None
        self.left: set[Token] = set()
        self.skipped: set[Token] = (
            set()
        )  # another sink of the stream does not have what he moved past

    def copied(self, checkpoint: Checkpoint) -> Stream:
        """The same query, started on a copy of the checkpoint."""
        return replace(self, name=f"a copy of {self.name}", checkpoint=checkpoint)

    @property
    def merge(self) -> MergeWords | None:
        """How its batches are merged into the rows of the table; None if they are appended."""
        return None

    @property
    def users(self) -> list[str]:
        """The commit users of its sinks."""
        return [f"{self.user}_{name}" if name else self.user for name in self.names]

    @property
    def rows(self) -> set[str]:
        """Whose rows its sinks write, whatever the commit users are."""
        return {stream_of(user) for user in self.users}

    @property
    def commit(self) -> Token:
        """The present compaction."""
        return f"compaction by {self.name}", self.compacted

    @property
    def user(self) -> str:
        return self.checkpoint.user

    @property
    def exposed(self) -> bool:
        process = self.process
        if (
            self.unjournalled
            or self.compacting
            or process is None
            or process.phase in UNTIL_JOURNALLED
        ):
            return True
        return process.phase in BESIDE_MANIFESTS and not self._is_noted()

    def _is_noted(self) -> bool:
        """Whether the journal has the batch."""
        return all(
            self.world.disk.exists(f"_paimon_stream/{user}/{self.at}") for user in self.users
        )

    def begin(self) -> Work | None:
        if self.retired or (self.branch and not self.world.exists(self.branch)):
            return None
        if (
            not self.writers
            or self.process is None
            or self.process.dead
            or self.world.choices.once_in(8)
        ):
            self.start()
        if self.command is not None:
            command, process = self.command, self.ready()
            self.doing, self.unjournalled = "recommit", True
            table = replace(self.world.table, storage=process.storage)
            return lambda: command(table, runtime=process.runtime)
        if self.repair:
            self.repair, self.doing = False, "repair of the hints"
            table, process = self.world.table, self.ready()
            return lambda: repair_hints(
                replace(table, storage=process.storage), runtime=process.runtime
            )
        self.at = self.next_batch
        self.promised.clear()
        self.doing = f"batch {self.at}"
        if any(ON_TABLE_CHANGE in given for given in self.answers.values()):
            self.checkpoint.known_drops = self.truth.drops
        self.owed = self.tellable()
        self.upsets = self.truth.upsets
        heard = self.truth.drops <= self.checkpoint.heard_drops
        done = self.checkpoint.done_millis is not None
        self.dropped = not heard and done and not self._has_all_rows()
        self.dies = self.loses_answers and not self.world.at_rest and self.world.choices.once_in(4)
        asks = self.world.asks_doctor and self.names == ("",)
        self.whole = asks and self.starts and self.checkpoint.planned >= 0
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
        if self.compacts and not (
            self.overwrites and self.world.vectors
        ):  # complete results are not compacted
            options |= COMPACTING
        self.compactions, self.compacting = {}, False
        if not self.world.choices.once_in(8):
            options["paimon-stream.commit.guard"] = "trust"
        if self.world.choices.once_in(6):
            options["paimon-stream.journal.reuse"] = "false"
        for user in self.answered:  # an answer is for one start
            self.answers.pop(user, None)
        self.answered, self.diagnosis = set(), None
        self.checkpoint.runs += 1
        self.next_batch = self.checkpoint.first_batch
        for given in self.answers.values():
            # He has looked for the rows of one batch. A twin may have moved the checkpoint past it.
            if given.get(ON_UNKNOWN_HISTORY, self.next_batch) != self.next_batch:
                del given[ON_UNKNOWN_HISTORY]
        self.last, self.starts = {}, True
        self.began_with = self.checkpoint.restored
        for user in self.users:
            answers = dict.fromkeys(sorted(self.answers.get(user, ())), "continue")
            self.run_options = options | answers
            identity = WriterIdentity(
                user=user,
                query_id=self.checkpoint.query,
                run_id=f"run-{self.checkpoint.name}-{self.checkpoint.runs}",
                checkpoint=self.checkpoint.path,
                token=f"sink {user}",
            )
            process.marks[user] = {
                "query-id": identity.query_id,
                "run-id": identity.run_id,
                "checkpoint": identity.checkpoint or "",
            }
            self.writers[user] = StreamWriter(
                storage=self.storage(),
                identity=identity,
                options=self.run_options,
                replaced=WHOLE_TABLE if self.overwrites else None,
                merge=self.merge,
                runtime=process.runtime,
                observer=self,
            )
            if self.compacts and not self.overwrites:
                pool = PoolBeside(self.world)
                self.compactions[user] = StreamCompaction(process.runtime, pool)

    def examined_batch(self) -> Reports:
        """The first batch of a run, at once after the doctor was asked what it would do."""
        self.diagnosis = diagnosis = diagnose(self)
        try:
            report = self.batch()
        except PaimonStreamError as error:
            check_refused(self.name, diagnosis, error, self.truth.head)
            raise
        self.diagnosis = None
        check_admitted(self.name, diagnosis)
        return report

    def batch(self) -> Reports:
        """One call of the batch function."""
        reports: Reports = {}
        for user, writer in self.writers.items():
            compaction = self.compactions.get(user)
            try:
                settled = self.batch_of(user, writer)
            except PaimonStreamError:
                if compaction is not None:
                    compaction.close()
                raise
            reports[user] = settled.report
            if self.has_rows:
                self.answered.add(user)
            if compaction is not None:
                self.compacting = True
                writer.compact(compaction, PromisingBatch(settled, self))
                self.compacting = False
        return reports

    @property
    def has_rows(self) -> bool:
        """A batch without rows leaves no trace, so the next run asks again."""
        return self.rows_in(self.at)

    def rows_in(self, batch: int) -> bool:
        """Whether that batch has rows."""
        return batch % 4 == 3 if self.quiet else batch % 5 != 4

    def _has_all_rows(self) -> bool:
        """Whether the table has all batches before this one, though it is another table."""
        live = self.truth.head.tokens() if self.truth.head is not None else set()
        return self.before() <= live | self.forgone

    def before(self) -> set[Token]:
        """The batches before this one that have rows."""
        before = [one for one in range(self.at) if self.rows_in(one)]
        return {(row, one) for row in self.rows for one in before}

    def batch_of(self, user: str, writer: StreamWriter) -> SettledBatch:
        """One batch of one sink, with the compaction behind it."""
        batch = Batch(
            batch_id=self.at,
            offsets_hash=self.checkpoint.plan(self.at, self.world.operations),
            previous_done_millis=self.checkpoint.done_millis,
        )

        return writer.write(batch, self.rows_of_batch(user))

    def rows_of_batch(self, user: str) -> Rows | MergeSource:
        """Writes the rows of the present batch of a sink."""

        def written(judged: JudgedBatch) -> WrittenBatch:
            numbering, first, index = numbered(judged)
            given = {"dt": "xy"[self.at % 2], "first": first, "index": index}
            made = self.messages(judged.table, user, self.at, **given) if self.has_rows else ()
            return judged.written(made, numbering=numbering)

        return rows(written)

    # -- what became of it ------------------------------------------------------------------------

    def succeeded(self, result: object) -> None:
        if isinstance(result, RecommitReport):
            self.command = (
                None if result.found else self.command
            )  # he runs it again: it must find the batch
            self.writers = {}
            self.check_rollback_stands(result)
        if not isinstance(result, dict):
            return
        truth, answered = self.truth, any(self.answers.values())
        for token in self.promised:
            truth.acknowledge(token, self.ready())
        still = (
            self.owed & self.tellable()
        )  # before and after: an expiry may have hidden it meanwhile
        if still and not answered:
            truth.excuse_sleepers()
            raise Violation(
                rules.LOSSES_REPORTED, f"{self.name} goes on with {self.at} after {sorted(still)}"
            )
        if self.dropped and not answered and truth.drops > self.checkpoint.heard_drops:
            truth.excuse_sleepers()
            if self.checkpoint.done_skew > 5 * MINUTE:
                raise Limit(CLOCK_HID_DROP)
            raise Violation(
                rules.LOSSES_REPORTED, f"{self.name} goes on with {self.at} in another table"
            )
        if self.dies:
            if answered:
                self.give_up()
            if self.has_rows and answered:
                self.forgive()  # the answer stands, though Spark has not noted the batch
            self.ready().kill()
            self.killed()
            return
        for user, report in result.items():
            if self.has_rows:
                truth.acknowledge((stream_of(user), self.at), self.ready())
            found = None if report.snapshot_id is None else truth.there.get(report.snapshot_id)
            if found is not None:
                self.last[user] = found
        if self.has_rows:
            self.forgive()
            self.tried.clear()
            if answered:
                self.give_up()
                self.answers, self.writers = {}, {}  # the next run has no answer any more
        elif answered:
            self.give_up()  # the register keeps the answer, though the batch leaves no trace
        if (
            truth.drops > self.ready().drops
        ):  # Spark notes it after the new table was made: nobody can know
            self.checkpoint.known_drops = truth.drops
        self.checkpoint.done(self.at, self.ready().clock.now_millis())
        self.checkpoint.done_skew = self.ready().clock.skew
        self.next_batch = self.at + 1

    def failed(self, error: PaimonStreamError) -> None:
        self.writers, self.last = {}, {}
        truth = self.truth
        if (
            self.command is not None
        ):  # then the batch is lost, and the operator lets the stream continue
            self.check_not_refused(error)
            self.command = None if isinstance(error, REFUSED) else self.command
            return
        user = str(error.context.get("user", self.user))
        said, cure = self.diagnosis, None
        if said is not None and said.verdict == type(error).__name__:
            cure = said.cure
        if self.began_with != self.checkpoint.restored and isinstance(
            error, (*RESETS, HistoryUnknown)
        ):
            return  # this run began with a checkpoint that the operator has replaced since
        reset = isinstance(error, RESETS)
        if reset and not asks_for_checkpoint(error):
            raise Violation(ADVICE, f"no checkpoint is asked for: {error}")
        if (
            self.checkpoint.tampered
            and (reset or isinstance(error, HistoryUnknown))
            and self.checkpoint.put_back(other=reset)
        ):
            return
        if isinstance(error, TableReplaced) and self.checkpoint.done_skew < -5 * MINUTE:
            raise Limit(CLOCK_HID_DROP)
        if isinstance(error, LOSSES):
            known = truth.upsets == self.checkpoint.known_upsets and not self.skipped
            if known and not (self.checkpoint.shared or self.checkpoint.tampered):
                truth.excuse_sleepers()
                raise Violation(rules.NO_FALSE_ALARM, f"{self.name}, batch {self.at}: {error}")
            self.repair = asks_for_repair(error)
            lost = (
                stream_of(user),
                int(error.context.get("lost_batch", error.context.get("batch", -1))),
            )
            forgotten = truth.taken.get(lost) == "rollback" and self.world.forgetful
            if (truth.taken.get(lost) == "replaced" or forgotten) and user not in self.tried:
                self.command = command_of(
                    error
                )  # it was no rollback, and he knows, or has forgotten it
                self.tried.add(user)
                self.rolled_back = forgotten and bool(read_removals(self.world.disk).removed)
                self.lost = lost
            if self.command is None:
                self.answer(user, option_of(error, cure))
            self.checkpoint.known_drops = truth.drops
        elif isinstance(error, CorruptMetadata):
            self.repair = asks_for_repair(error)
        elif isinstance(error, HistoryUnknown):
            live = truth.head.tokens() if truth.head is not None else set()
            token = stream_of(user), self.at
            if token in live:  # the operator looks, and moves the source past it
                # The batch's file in the checkpoint's folder of commits is his, with its time.
                clock = self.ready().clock
                self.checkpoint.next_batch = max(self.checkpoint.next_batch, self.at + 1)
                self.checkpoint.done_millis = clock.now_millis()
                self.checkpoint.done_skew = clock.skew
                self.skipped |= {(stream_of(one), self.at) for one in self.users} - live
            else:
                truth.excused.add(token)
                self.answer(user, option_of(error, cure))
        elif isinstance(error, (SharedCheckpoint, DuplicateWriter, CheckpointRewound)):
            others = self.checkpoint.shared or self.checkpoint.tampered
            if not (others or self.user in self.world.landed):
                raise Violation(rules.NO_FALSE_ALARM, f"{self.name}, batch {self.at}: {error}")
            if isinstance(error, CheckpointRewound) and self.checkpoint.name == "copy":
                self.retired = (
                    True  # no other copy is left to try, so he ends the second of the two queries
                )
        elif isinstance(error, CheckpointReset):
            raise Violation(rules.NO_FALSE_ALARM, f"{self.name}, batch {self.at}: {error}")

    def check_rollback_stands(self, report: RecommitReport) -> None:
        """What a rollback took is not committed again, if the rollback could note it."""
        brought_back = self.rolled_back and not report.found
        self.rolled_back = False
        if brought_back:
            raise Violation(rules.ROLLBACK_STANDS, f"{self.name}: {report} is there again")

    def check_not_refused(self, error: PaimonStreamError) -> None:
        """The command for a batch that another engine's snapshot has replaced is not refused as if
        that snapshot did not stand there, and none is named for a batch of which a note says that a
        rollback took it, unless more was taken away since.
        """
        lost, truth = self.lost, self.truth
        if lost is None or not isinstance(error, TableRolledBack):
            return
        taken = truth.taken.get(lost)
        is_wrong = taken == "replaced" and NONE_STANDS in error.message
        is_in_vain = taken == "rollback" and REMOVED in error.message
        if (is_wrong or is_in_vain) and truth.taken_at[lost] == truth.upsets:
            raise Violation(ADVICE, f"{self.name}: what the error of {lost} names ends in {error}")

    def answer(self, user: str, option: str | None) -> None:
        """Gives that option to a sink from the next start on."""
        if option == NEVER:
            self.retired = True
            if not self.checkpoint.foreign:
                raise Violation(ADVICE, f"{self.name} is taken for a stream of another table")
        elif option is not None:
            self.answers.setdefault(user, {})[option] = self.at

    def killed(self) -> None:
        self.writers, self.last = {}, {}

    def forgive(self) -> None:
        """The operator knows everything that was removed so far."""
        known = self.checkpoint
        known.known_upsets, known.known_drops = self.upsets, self.ready().drops
        self.skipped.clear()
        self.left = set()
        live = self.truth.head.tokens() if self.truth.head is not None else set()
        self.forgone = self.before() - live
        for token in [one for one in self.truth.taken if one[0] in self.rows]:
            if self.truth.taken[token] != "overwrite":
                self.truth.acked.discard(token)

    def give_up(self) -> None:
        """He has let the stream go on over a loss. That counts for all batches above the newest one
        that a snapshot of the table shows, as the register says from then on.
        """
        shown = [
            one.snapshot.commit_identifier
            for one in self.truth.there.values()
            if one.snapshot.commit_user in self.users and one.snapshot.commit_identifier < self.at
        ]
        self.truth.acked -= {one for one in self.before() if one[1] > max(shown, default=-1)}

    def tellable(self) -> set[Token]:
        """The acknowledged batches of this run that were taken away, if the run can know: the
        snapshot of its last batch is gone and no expiry explains that, or another one has its id.
        """
        truth, rows = self.truth, set()
        for user, last in self.last.items() if truth.head is not None else ():
            there = truth.there.get(last.id)
            expired = there is None and truth.head is not None and truth.head.id > last.id
            if not expired and (there is None or there.nonce != last.nonce):
                rows.add(stream_of(user))
        told = {
            one
            for one, why in truth.taken.items()
            if one in truth.acked and one[0] in rows and why in ("rollback", "replaced")
        }
        noted = truth.noted if self.world.history else set()
        return told | {one for one in noted & truth.acked if one[0] in self.rows} | self._behind()

    def moved_to(self, branch: str) -> None:
        """Points the stream to a branch, which may lack batches that it has written."""
        if self.process is not None:
            self.process.kill()
        self.killed()
        acked, self.branch = self.truth.acked, branch
        own = {one.snapshot.commit_user for one in self.truth.there.values()} & set(self.users)
        self.left = acked if own else set()  # a branch without its snapshots cannot tell
        self.checkpoint.known_upsets, self.checkpoint.known_drops = -1, self.truth.drops

    def _behind(self) -> set[Token]:
        """The acknowledged batches that the branch lacks to which the stream was pointed, if one of
        its snapshots stands there.
        """
        own = [one for one in self.truth.there.values() if one.snapshot.commit_user == self.user]
        live = self.truth.head.tokens() if own and self.truth.head is not None else self.left
        return {one for one in self.left - live if one[0] in self.rows}
