"""One batch of a stream, without Spark: judge, journal, commit, clean up (exactly-once.md). The
caller writes the data files between `judge` and `commit`. Files are deleted here only if no attempt
can publish them any more. docs/architecture.md (What a stream keeps) says what else lies on the
storage.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import cast

from paimon_stream import errors
from paimon_stream.commit.committer import Committer
from paimon_stream.commit.guard import guard_stream
from paimon_stream.commit.overwrite import plan_overwrite
from paimon_stream.commit.plan import Base, Changes
from paimon_stream.commit.report import NO_OBSERVER, BatchObserver, CommitReport, Phase
from paimon_stream.commit.request import (
    ChangeSource,
    CommitRequest,
    Judged,
    Nothing,
    Published,
    Superseded,
)
from paimon_stream.commit.sequence import Numbering
from paimon_stream.commit.watched_files import WatchedFiles
from paimon_stream.compact.in_stream import compacts
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.snapshot_json import CommitKind, Snapshot, SnapshotRef
from paimon_stream.options import (
    COMMIT_GUARD,
    JOURNAL,
    ON_CHECKPOINT_RESET,
    ON_TABLE_CHANGE,
    sink_options_among,
)
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import HeldOutputs, Storage
from paimon_stream.storage.store_client import probe_atomic_create
from paimon_stream.storage.together import Meter, Request, tally_of
from paimon_stream.stream.admission import given_up, journal_since, passed_over
from paimon_stream.stream.batch_summary import BatchSummary, previous_commit
from paimon_stream.stream.claims import Claims
from paimon_stream.stream.dead_attempts import (
    remove_dead_attempts,
    snapshots_of_batch,
)
from paimon_stream.stream.evidence import Evidence
from paimon_stream.stream.fence import RunFence
from paimon_stream.stream.gather import gather
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.ledger import with_rows
from paimon_stream.stream.memory import Memory, judge_next, require_absent, superseded
from paimon_stream.stream.prepared import Note, journal_entry
from paimon_stream.stream.replay_errors import ReplayErrors
from paimon_stream.stream.reuse import judge
from paimon_stream.stream.verdicts import AlreadyCommitted, Batch, Fresh, Reuse, Verdict
from paimon_stream.stream.writable import (
    check_writable,
    warn_of_earlier_batches,
    warn_of_merging,
    warn_of_sink_options,
    warn_of_work_left,
)
from paimon_stream.table.branch_identity import BranchIdentity, read_identity
from paimon_stream.table.journal import Journal, JournalEntry, PreviousBatch
from paimon_stream.table.journalled import live_files_of
from paimon_stream.table.layout import SNAPSHOT_FOLDER
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.message_files import data_files, remove_files
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Merge, Table, evolve, load_table, table_of

__all__ = ["Batch", "BeforeCommit", "StreamWriter"]

_LOG = logging.getLogger(__name__)

BeforeCommit = Callable[[tuple[CommitMessage, ...]], object]


class StreamWriter:
    """Commits the batches of one run of one streaming writer, each exactly once. `newest` is the
    last snapshot that it has published.
    """

    def __init__(
        self,
        *,
        storage: Storage,
        identity: WriterIdentity,
        options: Mapping[str, str],
        overwrites: bool = False,
        runtime: Runtime | None = None,
        observer: BatchObserver = NO_OBSERVER,
    ) -> None:
        """With `overwrites`, each batch replaces the whole table, and a batch without rows clears
        it.
        """
        self._storage = storage
        self._overwrites = overwrites
        self._identity = identity
        self._overrides = dict(options)
        self._runtime = runtime or system()
        self._observer = observer
        self._schemas = SchemaStore(storage)
        self._snapshots = SnapshotStore(storage, self._runtime)
        self._claims = Claims(storage, identity)
        self._journal = Journal(storage, identity.user)
        self._table: Table | None = None
        self._committer: Committer | None = None
        self._memory: Memory | None = None
        self._knows_later = False  # whether the journal shows that no later batch was published
        self._follows = True  # whether an earlier run may be at the batches of this one
        self._is_renamed = False  # whether its earlier batches may be those of another name
        self._goes_back = False  # whether the journal has batches that the checkpoint runs again
        self._digest = ""
        self._branch: BranchIdentity | None = None  # of the branch that is written, if it has one
        self._numbering: Numbering | None = None
        self._judged: Judged | None = (
            None  # what was seen when the batch was judged, to commit on it
        )
        self._meter = Meter(storage)
        self._held: HeldOutputs | None = None  # files of the batch that are not sent yet
        self.newest: Snapshot | None = None
        self.changes: Changes | None = None  # of the last batch; None if it made no snapshot
        self._marks: Mapping[str, str] = {}  # of the last batch that made one
        self._last: CommitReport | None = None  # of the batch before, for the next snapshot
        self.conflicts = 0  # units of compactions behind it that lost to others
        self._judged_millis = 0  # the time at which the judgement of the batch began
        self._undisturbed = True  # whether nobody else has committed between the last two batches

    @property
    def table(self) -> Table:
        """The table as of the newest judgement. Raises `ValueError` before the first."""
        if self._table is None:
            raise ValueError("judge() comes first")
        return self._table

    # -- judging ----------------------------------------------------------------------------------
    def judge(self, batch: Batch) -> Verdict:
        """Decides what to do with the batch, on the table as it is now. Raises a `ReplayError` if
        exactly-once cannot be proven, `UnsupportedFeature` for tables that cannot be written,
        `StorageError`, `FormatError`.
        """
        self._meter = Meter(self._storage)
        self._judged_millis = self._runtime.clock.now_millis()
        self._observer.reached(Phase.BATCH_STARTED, batch.batch_id)
        self._numbering = self._judged = self._held = None
        if self._memory is None:
            self._refresh()
            verdict = self._judge_first(batch, self._refusals(batch))
        else:
            verdict = self._judge_next(batch, self._memory)
        self._observer.reached(Phase.JUDGED, batch.batch_id)
        return verdict

    def _judge_next(self, batch: Batch, memory: Memory) -> Verdict:
        """Judges a later batch of the run. In one trip, unless somebody else has written
        meanwhile.
        """
        since = self._runtime.clock.now_millis()
        newest = partial(self._schemas.newest, self.table.schema)
        looks: list[Request] = [
            newest,
            self._schemas.first_digest,
            self._snapshots.latest,
            self._claims.holds,
            partial(read_identity, self._storage),
        ]
        schema, digest, latest, claimed, branch = self._storage.together(looks)
        if schema != self.table.schema:
            self._take(table_of(self._storage, schema, self._overrides), digest)
        refuse = self._refusals(batch)
        if digest != self._digest or branch != self._branch:
            what = "table's first schema" if digest != self._digest else "branch's identity"
            refuse.table_replaced(f"the {what} changed while the stream was running")
            self._memory = self._table = (
                None  # an operator lets it continue, as a new stream of that table
            )
            self._refresh()
            return self._judge_first(batch, refuse)
        # Batches of an old name may go while this run has none that it could miss.
        follows = self._follows or (self._is_renamed and memory.own is None)
        fresh = judge_next(self._snapshots, memory, refuse, latest=latest, follows=follows)
        verdict = fresh or self._judge_again(batch, refuse)
        alone = latest is not None and SnapshotRef.of(latest) == memory.seen
        # What a later run has published since the claim was looked for may have expired before the
        # snapshots were read. Where there is nothing new, it has published nothing.
        if not (claimed and alone) and self._claims.is_ended():
            raise refuse.later_run_began()
        if alone and self._undisturbed:
            self._judged = Judged(latest=latest, schema_id=schema.id, since_millis=since)
        self._undisturbed = alone
        return verdict

    def _judge_first(self, batch: Batch, refuse: ReplayErrors) -> Verdict:
        def claim_and_gather() -> tuple[bool, Evidence]:
            ended = self._claims.acquire()
            found = gather(self.table, self._identity, batch, snapshots=self._snapshots, runs=ended)
            return bool(ended), found

        seen_millis = self._runtime.clock.now_millis()
        probe = partial(probe_atomic_create, self._storage, SNAPSHOT_FOLDER, self._runtime.ids)
        guards = [] if self.table.options.value(COMMIT_GUARD) == "trust" else [probe]
        *_, (ended, evidence) = self._storage.together([*guards, claim_and_gather])
        self._follows = ended or evidence.has_earlier_run
        self._knows_later = evidence.knows_later
        self._digest, self._branch = evidence.schema_digest, evidence.branch
        verdict = self._judge_from_storage(batch, evidence, refuse)
        self._is_renamed = not self._follows and any(
            not evidence.claimed(sibling.user) for sibling in evidence.siblings
        )
        is_newest = not isinstance(verdict, AlreadyCommitted) or verdict.snapshot is not None
        self._goes_back = evidence.later_entry is not None and is_newest
        looks: list[Request] = [self._claims.is_ended]
        if verdict.seen is not None:
            looks.append(
                partial(
                    guard_stream, self.table, self._snapshots, verdict.seen.id, self._runtime.clock
                )
            )
        # What a later run has left since the evidence was gathered may have expired before it was
        # judged.
        if self._storage.together(looks)[0]:
            raise refuse.later_run_began()
        self._register(evidence, verdict, refuse, anew=self._gives_up_earlier(refuse))
        entries = (evidence.entry, evidence.last_entry)
        if any(one is not None and one.schema_digest != self._digest for one in entries):
            self._journal.remove_other_tables(self._digest)
        warn_of_merging(self.table, in_stream=not self._overwrites)
        if not self._overwrites:
            warn_of_earlier_batches(self.table, evidence, verdict)
        warn_of_work_left(self.table)
        self._judged = Judged(
            latest=evidence.latest, schema_id=self.table.schema.id, since_millis=seen_millis
        )
        return verdict

    def _judge_again(self, batch: Batch, refuse: ReplayErrors) -> Verdict:
        """Judges a later batch whose run remembers snapshots that are not part of the table any
        more.
        """
        require_absent(self._snapshots, self._identity, refuse)
        evidence = gather(
            self.table, self._identity, batch, snapshots=self._snapshots, runs=frozenset()
        )
        verdict = self._judge_from_storage(batch, evidence, refuse)
        if self._gives_up_earlier(refuse):
            self._register(evidence, verdict, refuse, anew=True)
        if isinstance(verdict, AlreadyCommitted):
            raise refuse.published_by_earlier_run()
        return verdict

    def _register(
        self, evidence: Evidence, verdict: Verdict, refuse: ReplayErrors, *, anew: bool
    ) -> None:
        """Records that the stream was admitted. With `anew`, an operator has decided: the register
        says what is given up, and only then the journal goes.
        """
        reset = ON_CHECKPOINT_RESET.key in refuse.accepted
        self._claims.register(
            evidence.schema_digest,
            journal_since(self.table, evidence, verdict, anew=anew),
            evidence.registered,
            given_up=given_up(
                evidence,
                verdict,
                lost=anew and not reset,
                proven=refuse.accepted == {ON_TABLE_CHANGE.key},
            ),
            passed_over=passed_over(evidence, reset=anew and reset),
        )
        if anew:
            self._journal.clear()

    def _gives_up_earlier(self, refuse: ReplayErrors) -> bool:
        """Whether an operator has let the stream go on although the table lost batches, or writes
        them again. The journal is of these then.
        """
        accepted = refuse.accepted & {ON_TABLE_CHANGE.key, ON_CHECKPOINT_RESET.key}
        return bool(accepted or refuse.given_up) and self._claims.holds()

    def _judge_from_storage(
        self, batch: Batch, evidence: Evidence, refuse: ReplayErrors
    ) -> Verdict:
        verdict = judge(self.table, evidence, refuse, self._runtime, overwrites=self._overwrites)
        if isinstance(verdict, Fresh) and verdict.written_again:
            _LOG.info("Batch %d is written again: %s.", batch.batch_id, verdict.written_again)
        return verdict

    def _refresh(self) -> None:
        """Reads the table's newest schema and options. Caches are kept while the schema stays the
        same.
        """
        load = partial(load_table, self._storage, self._overrides)
        self._take(*self._storage.together([load, self._schemas.first_digest]))

    def _take(self, table: Table, digest: str) -> None:
        check_writable(table, in_stream=not self._overwrites)
        self._adopt(table, digest)

    def _adopt(self, table: Table, digest: str) -> None:
        if self._table is None or self._table.schema != table.schema:
            known = table if self._table is None else self._table
            if sink_options_among(table.schema.options) != sink_options_among(known.schema.options):
                warn_of_sink_options(table)
            self._table = table
            own = compacts(table) and not self._overwrites
            given = self._runtime, self._observer, self._snapshots, digest
            self._committer = Committer(table, *given, compacts=own)

    def _refusals(self, batch: Batch) -> ReplayErrors:
        where, user = self._storage.location, self._identity.user
        return ReplayErrors(
            location=where, user=user, batch_id=batch.batch_id, options=self.table.options
        )

    # -- the schema -------------------------------------------------------------------------------
    def evolve(self, merge: Merge) -> Table:
        """Publishes the schema that `merge` makes of the table's newest one, if they differ;
        returns the table with it. Called between `judge` and the writing of rows. If the batch then
        fails, the next attempt finds the new schema. Raises as `evolve` in `table/table.py`.
        """
        table = evolve(self.table, merge, self._overrides, self._digest)
        if table.schema != self.table.schema:
            self._judged = None  # it knows the old schema
        self._adopt(table, self._digest)
        return self.table

    # -- sequence numbers -------------------------------------------------------------------------
    def first_sequence(self) -> int:
        """The first sequence number for the rows to be written; 0 without primary key. Called after
        `judge`, or after a `SequenceConflict`, and before `commit`. Raises `CorruptMetadata`,
        `StorageError`.
        """
        assert self._committer is not None
        known = None if self._judged is None else self._judged.latest
        self._numbering = self._committer.numbers(known, replaces=self._overwrites)
        return 0 if self._numbering is None else self._numbering.first

    def take_rows(self, digest: str, numbering: Numbering | None) -> None:
        """Takes what tasks knew before `judge`: the digest of the table that they write, and the
        start of their numbers. Called before `commit`. Raises `TableReplaced`.
        """
        if digest != self._digest:
            cure = "Restart the query, if the new table may have them."
            text = f"the table was dropped and created again while the rows were written. Nothing was published. {cure}"
            raise errors.TableReplaced(text).of_table(self._storage.location)
        self._numbering = numbering

    @property
    def index(self) -> str | None:
        """The index manifest by which keys get their dynamic buckets. None if there is none, or if
        each batch replaces the whole table. Called after `first_sequence`.
        """
        return None if self._numbering is None else self._numbering.index

    def again(self, verdict: Fresh | Reuse) -> Fresh:
        """The verdict on a batch that is to be written again, after a `SequenceConflict`."""
        self._judged = self._held = None  # others are writing
        if isinstance(verdict, Fresh):
            return verdict
        return Fresh(seen=verdict.seen, own=verdict.own, dead=verdict.dead)

    def table_for_driver(self) -> Table:
        """The table for a driver that itself writes the rows of this batch, in this process. Where
        requests take long, its new files are sent by `commit`, with the manifests.
        """
        if tally_of(self._storage) is None:
            return self.table
        self._held = HeldOutputs(self._storage)
        return replace(self.table, storage=cast("Storage", self._held))

    # -- committing -------------------------------------------------------------------------------
    def commit(
        self,
        batch: Batch,
        verdict: Fresh | Reuse,
        messages: tuple[CommitMessage, ...],
        before_commit: BeforeCommit | None = None,
        phases: Mapping[str, float] | None = None,
    ) -> CommitReport:
        """Publishes the batch as one snapshot, or nothing if it has no rows and only appends.
        `phases` are the milliseconds that the caller has spent, for the report. Raises
        `CommitVetoed`, `CommitConflict`, `CommitContended`, `CommitUnknown`, `SharedCheckpoint`,
        `DuplicateWriter`, `TableReplaced`, `TableRolledBack`, `StorageError`; none leaves half a
        batch visible.
        """
        self._observer.reached(Phase.WRITTEN, batch.batch_id)
        self._ask(before_commit, verdict, messages, batch.batch_id)
        phases, reused = phases or {}, isinstance(verdict, Reuse)
        entry = journal_entry(
            batch,
            verdict,
            messages,
            self._identity,
            self.table,
            self._digest,
            self._overwrites,
            self._runtime,
        )
        if self._numbering and self._numbering.base != verdict.seen:
            entry = replace(
                entry, offsets_hash=None
            )  # its rows are numbered on another snapshot: no run may use it
        note = Note(
            self._journal, entry, self._observer, self._runtime.clock, wanted=self._journals(entry)
        )
        summary = BatchSummary.of_messages(messages, millis=phases.get("write"), reused=reused)
        fence = RunFence(
            claims=self._claims,
            refuse=self._refusals(batch),
            seen=verdict.seen,
            attempted=verdict.dead is not None or self._follows,
            live=lambda: live_files_of(self.table, self._snapshots.latest(), verdict.dead),
        )
        outcome = self._publish(batch, verdict, note, summary, fence)
        self.changes = None
        if isinstance(outcome, Published):
            self.changes, self._marks = (
                outcome.changes,
                self._identity.properties(batch.batch_id, batch.offsets_hash),
            )
        removed_files = self._settle(verdict, entry, outcome, whole=not fence.gap_seen)
        report = CommitReport.of(
            location=self._storage.location,
            user=self._identity.user,
            identifier=batch.batch_id,
            messages=messages,
            outcome=outcome,
            phases={**phases, "journal": note.millis},
            reused=reused,
            removed_files=removed_files,
        ).measured(self._meter)
        self._last, self.conflicts = report, 0
        self._observer.reached(Phase.FINISHED, batch.batch_id)
        return report

    def already(self, batch: Batch, verdict: AlreadyCommitted) -> CommitReport:
        """Records that an earlier run has committed the batch, and removes what dead attempts at it
        left.
        """
        own, removed_files, self.changes = None, 0, None
        if verdict.snapshot is not None:
            rows = with_rows(self._snapshots, verdict.snapshot)
            own = PreviousBatch(batch_id=batch.batch_id, snapshot=SnapshotRef.of(rows))
            self._marks = self._identity.properties(batch.batch_id, batch.offsets_hash)
            if dead := verdict.dead:
                some, complete = snapshots_of_batch(self._snapshots, dead, verdict.snapshot)
                removed_files = remove_dead_attempts(
                    self.table, dead, some, self._runtime, complete=complete
                )
        self._memory = Memory(
            batch_id=batch.batch_id,
            own=own,
            seen=verdict.seen,
            own_stood_millis=self._judged_millis,
            has_expired=verdict.snapshot is None and not self._knows_later,
        )
        self._observer.reached(Phase.FINISHED, batch.batch_id)
        return CommitReport(
            location=self._storage.location,
            user=self._identity.user,
            identifier=batch.batch_id,
            outcome="already committed",
            snapshot_id=None if verdict.snapshot is None else verdict.snapshot.id,
            removed_files=removed_files,
        ).measured(self._meter)

    def discard(self, messages: tuple[CommitMessage, ...]) -> None:
        """Removes the files of a write that failed before its commit."""
        remove_files(self.table.storage, data_files(self.table.layout, messages))

    # -- compaction -------------------------------------------------------------------------------
    @property
    def has_published(self) -> bool:
        """Whether this run has published or found a batch, so that a compaction can be published
        behind it.
        """
        return self._memory is not None and self._memory.own is not None and bool(self._marks)

    def watch(
        self, base: Base | None, partitions: Collection[bytes], below: int | None
    ) -> tuple[Base, WatchedFiles]:
        """See `Committer.watch`. Called after `commit`. Raises `CorruptMetadata`,
        `StorageError`.
        """
        assert self._committer is not None
        return self._committer.watch(base, partitions, below)

    def publish_compaction(self, source: ChangeSource) -> Published | None:
        """Publishes a compaction behind the last batch that this run has published or found, under
        its id and with its marks. None if it was not published: the changes do not fit, or another
        run began. A batch that is run again finds this snapshot, too, and remembers its first one,
        with the rows. Raises what `Committer.commit` raises.
        """
        memory = self._memory
        assert self._committer is not None
        if memory is None or memory.own is None or not self._marks or not self._claims.holds():
            return None
        request = CommitRequest(
            user=self._identity.user,
            identifier=memory.own.batch_id,
            source=source,
            kind=CommitKind.COMPACT,
            properties=self._marks,
            seen=memory.seen,
            stage_uuid=self._runtime.ids.uuid(),
            is_newest=self._claims.holds,
        )
        outcome = self._committer.commit(request)
        if not isinstance(outcome, Published):
            return None
        self.newest = outcome.snapshot
        self._memory = replace(memory, seen=SnapshotRef.of(outcome.snapshot))
        return outcome

    def _ask(
        self,
        before: BeforeCommit | None,
        verdict: Fresh | Reuse,
        messages: tuple[CommitMessage, ...],
        batch_id: int,
    ) -> None:
        if before is None or not (messages or self._overwrites):
            return
        if self._held is not None:
            self._held.flush()  # the caller may read them
        try:
            before(messages)
        except Exception as veto:
            left = "the files an earlier run had prepared stay for the next one"
            if isinstance(verdict, Fresh):
                self.discard(messages)
                left = "its files were removed"
            cure = f"Nothing was published, and {left}. The batch comes again when the query is restarted."
            text = (
                f"{self._storage.location}, batch {batch_id}: before_commit raised {veto!r}. {cure}"
            )
            raise errors.CommitVetoed(text, table=self._storage.location, batch=batch_id) from veto

    def _journals(self, entry: JournalEntry) -> bool:
        """Whether the attempt is recorded in the journal before it can be published."""
        return bool(entry.messages or self._overwrites) and self.table.options.value(JOURNAL)

    def _publish(
        self,
        batch: Batch,
        verdict: Fresh | Reuse,
        note: Note,
        summary: BatchSummary,
        fence: RunFence,
    ) -> Published | Nothing:
        entry, numbering = note.entry, self._numbering
        if isinstance(verdict, Reuse) and self.table.schema.primary_keys:
            # The journal has only the snapshot on which the files were judged, which is not later
            # than the one on which they were numbered.
            numbering = Numbering(base=verdict.entry.base)
        request = CommitRequest(
            user=self._identity.user,
            identifier=batch.batch_id,
            messages=entry.messages,
            watermark=batch.watermark,
            properties={
                **summary.properties(),
                **previous_commit(self._last, self.conflicts),
                **self._identity.properties(batch.batch_id, batch.offsets_hash),
            },
            renumber=True,
            numbering=numbering,
            checked=isinstance(verdict, Reuse),
            seen=verdict.seen,
            judged=self._judged,
            beside=(*(() if self._held is None else (self._held.flush,)), note.write),
            after=(note.trim,),
            stage_uuid=entry.stage_uuids[0],
            fence=fence,
            is_newest=self._claims.holds,
        )
        if self._overwrites:
            planned = plan_overwrite(
                self.table, ManifestStore(self._storage), entry.messages, partition={}
            )
            request = replace(
                request, messages=planned.messages, source=planned.source, kind=CommitKind.OVERWRITE
            )
            request = replace(request, renumber=False, force_snapshot=planned.always)
        assert self._committer is not None
        try:
            outcome = self._committer.commit(request)
        except errors.CommitUnknown:
            raise  # it may be published, so no file may be removed
        except (errors.CommitConflict, errors.PaimonStreamError) as failed:
            # After CommitLost the files still fit, and the entry shows what was lost.
            conflict = isinstance(failed, errors.CommitConflict) and not isinstance(
                failed, errors.CommitLost
            )
            self._give_up(verdict, entry, journalled=note.may_be_there, conflict=conflict)
            raise
        if isinstance(outcome, Superseded):
            raise superseded(outcome.snapshot, self._identity, self._refusals(batch))
        return outcome

    def _give_up(
        self, verdict: Fresh | Reuse, entry: JournalEntry, *, journalled: bool, conflict: bool
    ) -> None:
        """After a definite failure, keeps the files that a restart can use and removes the others.
        After a conflict these files will never fit, and without a journal nobody would find them.
        Files that an earlier run prepared stay, because that run may still be alive.
        """
        if isinstance(verdict, Reuse) or (journalled and not conflict):
            return
        if journalled:
            self._journal.remove(entry.batch_id)
        self.discard(entry.messages)

    # -- afterwards -------------------------------------------------------------------------------
    def _settle(
        self,
        verdict: Fresh | Reuse,
        entry: JournalEntry,
        outcome: Published | Nothing,
        *,
        whole: bool,
    ) -> int:
        """Remembers the outcome, and removes what dead attempts at this batch left if all snapshots
        since its judgement were seen (`whole`). Returns the number of removed files.
        """
        removed_files = 0
        own, seen = verdict.own, verdict.seen
        if isinstance(outcome, Published):
            self.newest = outcome.newest
            seen = SnapshotRef.of(self.newest)
            own = PreviousBatch(batch_id=entry.batch_id, snapshot=seen)
            self._follows = (
                False  # an earlier run that is still alive sees this snapshot, and stops
            )
            if whole and len(entry.stage_uuids) > 1:
                of_batch = (outcome.snapshot, outcome.newest)
                complete = outcome.compact_failed is None
                removed_files = remove_dead_attempts(
                    self.table, entry, of_batch, self._runtime, complete=complete
                )
        elif verdict.dead is not None or self._journals(entry):
            self._journal.remove(entry.batch_id)
        if self._memory is None and not self.table.options.value(JOURNAL):
            # not before: the entry of a dead attempt may show that it was published
            self._journal.clear()
        elif self._goes_back and self._claims.holds():
            # Not before: until then the checkpoint may be exchanged. A batch without rows would
            # leave the entry of one that was rolled back.
            self._journal.remove_later(entry.batch_id)
        self._goes_back = False
        self._memory = Memory(
            batch_id=entry.batch_id,
            own=own,
            seen=seen,
            own_stood_millis=self._own_stood(verdict, own),
        )
        return removed_files

    def _own_stood(self, verdict: Fresh | Reuse, own: PreviousBatch | None) -> int | None:
        """A time at which the last snapshot of this stream stood: when the judgement of this batch
        began, which found it or published it later, or what is remembered.
        """
        known = self._memory
        is_there = isinstance(verdict, Fresh) and verdict.own_stands
        if known is None or known.own != own or is_there:
            return self._judged_millis
        return known.own_stood_millis
