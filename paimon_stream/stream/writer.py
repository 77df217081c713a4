"""One batch of a stream, without Spark: judge, journal, commit, clean up.

`StreamWriter` is bound to one run of one streaming writer and holds the memory of that run. The caller writes
the data files between `judge` and `commit`. Everything that makes the batch take effect exactly once is here
and in the imported modules (exactly-once.md).

A batch that fails leaves either nothing, or files that its journal entry names and that the next run commits
or removes. Files are deleted here only if no attempt can publish them any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from paimon_stream.commit.committer import Committer
from paimon_stream.commit.observer import NO_OBSERVER, BatchObserver, Phase
from paimon_stream.commit.report import CommitReport
from paimon_stream.commit.request import Nothing, Published, Superseded
from paimon_stream.commit.sequence import Numbering
from paimon_stream.errors import CommitConflict, CommitLost, CommitUnknown, NoSpace, PaimonStreamError
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.journal_entry import JournalEntry, PreviousBatch
from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.options import COMMIT_GUARD, JOURNAL, ON_CHECKPOINT_RESET, ON_TABLE_CHANGE
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import Storage
from paimon_stream.storage.probe import probe_atomic_create
from paimon_stream.stream.batch_summary import BatchSummary
from paimon_stream.stream.claims import Claims
from paimon_stream.stream.dead_attempts import live_files_of, remove_beside, remove_dead_attempts
from paimon_stream.stream.evidence import Batch, FirstJudgement, gather, journal_since, judge
from paimon_stream.stream.fence import RunFence
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.later_batches import Memory, judge_next, require_unpublished, superseded
from paimon_stream.stream.ledger import AlreadyCommitted, Evidence, Fresh, Reuse, Verdict
from paimon_stream.stream.prepared import commit_request, journal_entry, replacing_all, veto_error
from paimon_stream.stream.replay_errors import ReplayErrors
from paimon_stream.stream.unsupported_options import warn_of_work_left
from paimon_stream.stream.writable import (
    check_writable,
    warn_of_compaction,
    warn_of_earlier_batches,
    warn_of_late_deletes,
)
from paimon_stream.table.journal import Journal
from paimon_stream.table.layout import SNAPSHOT_FOLDER
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.message_files import data_files, remove_files
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.schema_change import Merge, evolve
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table, load_table

__all__ = ["Batch", "BeforeCommit", "StreamWriter"]

_LOG = logging.getLogger(__name__)

BeforeCommit = Callable[[tuple[CommitMessage, ...]], object]


class StreamWriter:
    """Commits the batches of one run of one streaming writer, each exactly once."""

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
        """With `overwrites`, each batch replaces the whole table, and a batch without rows clears it."""
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
        self._follows = True  # whether an earlier run may be at the batches of this one
        self._digest = ""
        self._numbering: Numbering | None = None

    @property
    def table(self) -> Table:
        """The table as of the newest judgement. Raises `ValueError` before the first."""
        if self._table is None:
            raise ValueError("judge() comes first")
        return self._table

    # -- judging ----------------------------------------------------------------------------------

    def judge(self, batch: Batch) -> Verdict:
        """Decides what to do with the batch, on the table as it is now.

        Raises a `ReplayError` if exactly-once cannot be proven, `UnsupportedFeature` for tables that
        cannot be written, `StorageError`, `FormatError`.
        """
        self._observer.reached(Phase.BATCH_STARTED, batch.batch_id)
        self._numbering = None
        self._refresh()
        refuse = self._refusals(batch)
        claimed = self._memory is None or self._claims.holds()  # before the digest: a new table has no claims
        if self._memory is not None and self._digest != self._schemas.first_digest():
            refuse.table_replaced("the table's first schema changed while the stream was running")
            self._memory = self._table = None  # an operator lets it continue, as a new stream of that table
            self._refresh()
        if self._memory is None:
            verdict = self._judge_first(batch, refuse)
        else:
            verdict = judge_next(
                self._snapshots, self._memory, batch.batch_id, refuse, follows=self._follows
            ) or self._judge_again(batch, refuse)
            if not claimed:
                raise refuse.later_run_began()
        self._observer.reached(Phase.JUDGED, batch.batch_id)
        return verdict

    def _judge_first(self, batch: Batch, refuse: ReplayErrors) -> Verdict:
        if self.table.options.value(COMMIT_GUARD) == "probe":
            probe_atomic_create(self._storage, SNAPSHOT_FOLDER, self._runtime.ids)
        ended = self._claims.acquire()
        evidence = gather(self.table, self._identity, batch, runtime=self._runtime)
        self._follows = ended or evidence.has_earlier_run
        self._digest = evidence.schema_digest
        judged = self._judge_from_storage(batch, evidence, refuse)
        # What a later run has left since the evidence was gathered may have expired before it was judged.
        if self._claims.is_ended():
            raise refuse.later_run_began()
        self._claims.register(self._digest, journal_since(self.table, evidence, judged.verdict))
        entries = (evidence.entry, evidence.last_entry)
        if any(one is not None and one.schema_digest != self._digest for one in entries):
            self._journal.remove_other_tables(self._digest)
        warn_of_compaction(self.table)
        warn_of_late_deletes(self.table)
        if not self._overwrites:
            warn_of_earlier_batches(self.table, evidence, judged.verdict)
        warn_of_work_left(self.table)
        return judged.verdict

    def _judge_again(self, batch: Batch, refuse: ReplayErrors) -> Verdict:
        """Judges a later batch whose run remembers snapshots that are not part of the table any more."""
        require_unpublished(self._snapshots, self._identity, batch.batch_id, refuse)
        evidence = gather(self.table, self._identity, batch, runtime=self._runtime)
        verdict = self._judge_from_storage(batch, evidence, refuse).verdict
        if isinstance(verdict, AlreadyCommitted):
            raise refuse.published_by_earlier_run()
        return verdict

    def _judge_from_storage(self, batch: Batch, evidence: Evidence, refuse: ReplayErrors) -> FirstJudgement:
        judged = judge(
            self.table, self._snapshots, evidence, refuse, self._runtime, overwrites=self._overwrites
        )
        if refuse.accepted & {ON_TABLE_CHANGE.key, ON_CHECKPOINT_RESET.key} and self._claims.holds():
            self._journal.clear()  # it is of batches that the table lost, or that are written again
        if judged.written_again:
            _LOG.info("Batch %d is written again: %s.", batch.batch_id, judged.written_again)
        return judged

    def _refresh(self) -> None:
        """Reads the table's newest schema and options. Caches are kept while the schema stays the same."""
        table = load_table(self._storage, self._overrides)
        check_writable(table)
        self._adopt(table)

    def _adopt(self, table: Table, digest: str | None = None) -> None:
        if self._table is None or self._table.schema != table.schema:
            self._table = table
            self._committer = Committer(
                table, self._storage, self._runtime, self._observer, self._snapshots, digest
            )

    def _refusals(self, batch: Batch) -> ReplayErrors:
        return ReplayErrors(
            location=self._storage.location,
            user=self._identity.user,
            batch_id=batch.batch_id,
            options=self.table.options,
        )

    # -- the schema -------------------------------------------------------------------------------

    def evolve(self, merge: Merge) -> Table:
        """Publishes the schema that `merge` makes of the table's newest one, if they differ. Called between
        `judge` and the writing of rows. Returns the table with the new schema.

        If the batch then fails, this does no harm: the next attempt finds the new schema. Raises the errors
        of `schema_change.evolve`.
        """
        self._adopt(evolve(self.table, merge, self._overrides, self._digest), self._digest)
        return self.table

    # -- sequence numbers -------------------------------------------------------------------------

    def first_sequence(self) -> int:
        """The first sequence number for the rows that are about to be written; 0 for a table without primary
        key. Called after `judge`, or after a `SequenceConflict`, and before `commit`. Raises
        `CorruptMetadata`, `StorageError`."""
        assert self._committer is not None
        self._numbering = self._committer.numbers()
        return 0 if self._numbering is None else self._numbering.first

    def again(self, verdict: Fresh | Reuse) -> Fresh:
        """The verdict on a batch that is to be written again, after a `SequenceConflict`."""
        return Fresh(seen=verdict.seen, own=verdict.own, dead=verdict.dead)

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

        `phases` are the milliseconds that the caller has spent, for the report. Raises `CommitVetoed`,
        `CommitConflict`, `CommitContended`, `CommitUnknown`, `SharedCheckpoint`, `DuplicateWriter`,
        `TableReplaced`, `TableRolledBack`, `StorageError`; none leaves half a batch visible.
        """
        batch_id = batch.batch_id
        started = self._runtime.clock.monotonic()
        self._observer.reached(Phase.WRITTEN, batch_id)
        self._ask(before_commit, verdict, messages, batch_id)
        entry = journal_entry(
            batch,
            verdict,
            messages,
            identity=self._identity,
            table=self.table,
            schema_digest=self._digest,
            overwrites=self._overwrites,
            runtime=self._runtime,
        )
        journalled = self._write_journal(verdict, entry)
        self._observer.reached(Phase.JOURNALED, batch_id)
        journal_millis = (self._runtime.clock.monotonic() - started) * 1000
        summary = BatchSummary.of_messages(
            messages, write_millis=(phases or {}).get("write"), reused=isinstance(verdict, Reuse)
        )
        fence = RunFence(
            self._claims,
            self._refusals(batch),
            seen=verdict.seen,
            attempted=verdict.dead is not None or self._follows,
            live=lambda: live_files_of(self.table, self._snapshots.latest(), verdict.dead),
        )
        outcome = self._publish(batch, verdict, entry, journalled, summary, fence)
        removed_files = self._settle(verdict, entry, outcome, whole=not fence.gap_seen)
        report = CommitReport.of(
            location=self._storage.location,
            user=self._identity.user,
            identifier=batch_id,
            messages=messages,
            outcome=outcome,
            phases={**(phases or {}), "journal": journal_millis},
            reused=isinstance(verdict, Reuse),
            removed_files=removed_files,
        )
        self._observer.reached(Phase.FINISHED, batch_id)
        return report

    def already(self, batch: Batch, verdict: AlreadyCommitted) -> CommitReport:
        """Records that an earlier run has committed the batch, and removes what dead attempts at it left."""
        own, removed_files = None, 0
        if verdict.snapshot is not None:
            own = PreviousBatch(batch_id=batch.batch_id, snapshot=SnapshotRef.of(verdict.snapshot))
            removed_files = remove_beside(
                self.table, self._snapshots, verdict.dead, verdict.snapshot, self._runtime
            )
        self._memory = Memory(batch_id=batch.batch_id, own=own, seen=verdict.seen)
        self._observer.reached(Phase.FINISHED, batch.batch_id)
        return CommitReport.already_committed(
            location=self._storage.location,
            user=self._identity.user,
            identifier=batch.batch_id,
            snapshot_id=None if own is None else own.snapshot.id,
            removed_files=removed_files,
        )

    def discard(self, messages: tuple[CommitMessage, ...]) -> None:
        """Removes the files of a write that failed before its commit."""
        remove_files(self._storage, data_files(self.table.layout, messages))

    def _ask(
        self,
        before_commit: BeforeCommit | None,
        verdict: Fresh | Reuse,
        messages: tuple[CommitMessage, ...],
        batch_id: int,
    ) -> None:
        if before_commit is None or not (messages or self._overwrites):
            return
        try:
            before_commit(messages)
        except Exception as veto:
            if fresh := isinstance(verdict, Fresh):
                self.discard(messages)
            raise veto_error(veto, self._storage.location, batch_id, removed=fresh) from veto

    def _write_journal(self, verdict: Fresh | Reuse, entry: JournalEntry) -> bool:
        """Records the attempt in the journal before it can be published. Returns whether it did."""
        publishes = bool(entry.messages) or self._overwrites
        if not (publishes and self.table.options.value(JOURNAL)):
            return False
        try:
            self._journal.write(entry)
        except NoSpace:  # it proves that nothing was recorded, and each restart would leave more files
            self._give_up(verdict, entry, journalled=False, conflict=False)
            raise
        return True

    def _publish(
        self,
        batch: Batch,
        verdict: Fresh | Reuse,
        entry: JournalEntry,
        journalled: bool,
        summary: BatchSummary,
        fence: RunFence,
    ) -> Published | Nothing:
        request = commit_request(
            batch,
            verdict,
            entry,
            identity=self._identity,
            table=self.table,
            numbering=self._numbering,
            summary=summary,
            fence=fence,
            is_newest=self._claims.holds,
        )
        if self._overwrites:
            manifests = ManifestStore(self._storage)
            request = replacing_all(request, self.table, manifests)
        assert self._committer is not None
        try:
            outcome = self._committer.commit(request)
        except CommitUnknown:
            raise  # it may be published, so no file may be removed
        except (CommitConflict, PaimonStreamError) as failed:
            # After CommitLost the files still fit, and the entry shows what was lost.
            conflict = isinstance(failed, CommitConflict) and not isinstance(failed, CommitLost)
            self._give_up(verdict, entry, journalled=journalled, conflict=conflict)
            raise
        if isinstance(outcome, Superseded):
            raise superseded(outcome.snapshot, self._identity, self._refusals(batch))
        return outcome

    def _give_up(
        self, verdict: Fresh | Reuse, entry: JournalEntry, *, journalled: bool, conflict: bool
    ) -> None:
        """After a definite failure, keeps the files that a restart can use and removes the others.

        After a conflict these files will never fit, and without a journal nobody would find them. Files that
        an earlier run prepared stay, because that run may still be alive.
        """
        if isinstance(verdict, Reuse) or (journalled and not conflict):
            return
        if journalled:
            self._journal.remove(entry.batch_id)
        self.discard(entry.messages)

    # -- afterwards -------------------------------------------------------------------------------

    def _settle(
        self, verdict: Fresh | Reuse, entry: JournalEntry, outcome: Published | Nothing, *, whole: bool
    ) -> int:
        """Remembers the outcome, and removes what dead attempts at this batch left if all snapshots since its
        judgement were seen (`whole`). Returns the number of removed files."""
        removed_files = 0
        own, seen = verdict.own, verdict.seen
        if isinstance(outcome, Published):
            seen = SnapshotRef.of(outcome.newest)
            own = PreviousBatch(batch_id=entry.batch_id, snapshot=seen)
            self._follows = False  # an earlier run that is still alive sees this snapshot, and stops
            if whole and len(entry.stage_uuids) > 1:
                of_batch = (outcome.snapshot, outcome.newest)
                complete = outcome.compact_failed is None
                removed_files = remove_dead_attempts(
                    self.table, entry, of_batch, self._runtime, complete=complete
                )
        else:
            self._journal.remove(entry.batch_id)
        if self._memory is None and not self.table.options.value(JOURNAL):
            self._journal.clear()  # not before: the entry of a dead attempt may show that it was published
        self._memory = Memory(batch_id=entry.batch_id, own=own, seen=seen)
        return removed_files
