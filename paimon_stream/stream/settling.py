"""The last step of a batch (exactly-once.md §4, §6): what dead attempts left in the journal and in
files is cleared, and the run remembers how it stands. Files of dead attempts go only if no attempt
can publish them any more. The entries of the run's own earlier batches, except the newest of them,
have gone with the commit (`CommitJournal.trim`).
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from paimon_stream.commit.report import CommitReport, Phase
from paimon_stream.commit.request import Nothing, Published
from paimon_stream.errors import StorageError
from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.options import JOURNAL
from paimon_stream.stream.dead_attempts import remove_dead_attempts, snapshots_of_batch
from paimon_stream.stream.memory import Memory
from paimon_stream.stream.own_history import with_rows
from paimon_stream.stream.run import StreamRun
from paimon_stream.stream.standing import Standing
from paimon_stream.stream.steps import JudgedBatch, PublishedBatch, SettledBatch, WrittenBatch
from paimon_stream.stream.verdicts import AlreadyCommitted, Fresh, Reuse
from paimon_stream.table.journal import PreviousBatch

_LOG = logging.getLogger(__name__)


def settle(published: PublishedBatch) -> SettledBatch:
    """Ends a batch that this run has published, or that had nothing to publish. Raises
    `StorageError`.
    """
    written = published.written
    outcome = published.outcome
    judged = written.judged
    run = judged.run
    batch = judged.batch
    removed_files, goes_back = _clear_journal(published)
    report = CommitReport.of(
        location=run.storage.location,
        user=run.identity.user,
        identifier=batch.batch_id,
        messages=written.messages,
        outcome=outcome,
        phases={**written.phases, "journal": published.journal_millis},
        reused=isinstance(written.verdict, Reuse),
        removed_files=removed_files,
    ).measured(judged.meter)
    if written.change is not None:
        counts = written.change.counts
        report = replace(
            report,
            rows_updated=counts.updated,
            rows_deleted=counts.deleted,
            rows_inserted=counts.inserted,
        )
    run.observer.reached(Phase.FINISHED, batch.batch_id)
    changes = None
    if isinstance(outcome, Published):
        changes = outcome.changes
    return SettledBatch(
        run=run,
        standing=_standing_after(written, outcome, report, goes_back=goes_back),
        report=report,
        changes=changes,
    )


def _standing_after(
    written: WrittenBatch, outcome: Published | Nothing, report: CommitReport, *, goes_back: bool
) -> Standing:
    """How the run stands after a batch that it has published, or that had nothing to publish.
    `goes_back` says whether the journal has batches that the checkpoint runs again.
    """
    batch = written.judged.batch
    before = written.judged.standing
    if isinstance(outcome, Nothing):
        memory = Memory(
            batch_id=batch.batch_id,
            own=written.verdict.own,
            seen=written.verdict.seen,
            own_stood_millis=_own_stood(written, written.verdict.own),
        )
        return replace(
            before,
            memory=memory,
            outlook=replace(before.outlook, goes_back=goes_back),
            last_report=report,
            conflicts=0,
        )
    seen = SnapshotRef.of(outcome.newest)
    own = PreviousBatch(batch_id=batch.batch_id, snapshot=seen)
    memory = Memory(
        batch_id=batch.batch_id, own=own, seen=seen, own_stood_millis=_own_stood(written, own)
    )
    return replace(
        before,
        memory=memory,
        # An earlier run that is still alive sees this snapshot, and stops.
        outlook=replace(before.outlook, goes_back=goes_back, follows=False),
        newest=outcome.newest,
        marks=written.judged.run.identity.properties(batch.batch_id, batch.offsets_hash),
        last_report=report,
        conflicts=0,
    )


def settle_found(judged: JudgedBatch, verdict: AlreadyCommitted) -> SettledBatch:
    """Ends a batch that an earlier run has committed, and removes what dead attempts at it left.
    Raises `StorageError`, `FormatError`.
    """
    run = judged.run
    batch = judged.batch
    own = None
    snapshot_id = None
    removed_files = 0
    marks = judged.standing.marks
    if verdict.snapshot is not None:
        snapshot_id = verdict.snapshot.id
        snapshot_with_rows = with_rows(run.snapshots, verdict.snapshot)
        own = PreviousBatch(batch_id=batch.batch_id, snapshot=SnapshotRef.of(snapshot_with_rows))
        marks = run.identity.properties(batch.batch_id, batch.offsets_hash)
        if verdict.dead is not None:
            published, complete = snapshots_of_batch(run.snapshots, verdict.dead, verdict.snapshot)
            removed_files = remove_dead_attempts(
                judged.table, verdict.dead, published, run.runtime, complete=complete
            )
    memory = Memory(
        batch_id=batch.batch_id,
        own=own,
        seen=verdict.seen,
        own_stood_millis=judged.began_millis,
        has_expired=verdict.snapshot is None and not judged.knows_none_later,
    )
    run.observer.reached(Phase.FINISHED, batch.batch_id)
    report = CommitReport(
        location=run.storage.location,
        user=run.identity.user,
        identifier=batch.batch_id,
        outcome="already committed",
        snapshot_id=snapshot_id,
        removed_files=removed_files,
    ).measured(judged.meter)
    standing = replace(judged.standing, memory=memory, marks=marks)
    return SettledBatch(run=run, standing=standing, report=report, changes=None)


def _clear_journal(published: PublishedBatch) -> tuple[int, bool]:
    """Removes the journal's entries that are no longer needed. If all snapshots since the batch's
    judgement were seen, also removes what dead attempts at the batch left. Returns the number of
    removed files, and whether entries of batches that the checkpoint runs again could not be
    removed.
    """
    judged = published.written.judged
    entry = published.entry
    outcome = published.outcome
    run = judged.run
    removed_files = 0
    goes_back = False
    if isinstance(outcome, Published):
        if published.saw_all and len(entry.stage_uuids) > 1:
            removed_files = remove_dead_attempts(
                judged.table,
                entry,
                (outcome.snapshot, outcome.newest),
                run.runtime,
                complete=outcome.compact_failed is None,
            )
    elif published.written.verdict.dead is not None or published.journalled:
        run.journal.remove(entry.batch_id)
    if judged.standing.memory is None and not judged.table.options.value(JOURNAL):
        # The entries are not removed earlier, because the entry of a dead attempt may show that the
        # attempt was published.
        _removed(run, run.journal.clear)  # else the next run tries again
    elif judged.standing.outlook.goes_back and run.claims.holds():
        # The entries are not removed earlier, because the checkpoint may be exchanged before the
        # batch has ended. After a batch without rows, the entry of its id belongs to a batch that
        # was rolled back. So that entry is removed, too.
        last = entry.batch_id - 1
        if isinstance(outcome, Published):
            last = entry.batch_id
        goes_back = not _removed(run, partial(run.journal.remove_later, last))
    return removed_files, goes_back


def _removed(run: StreamRun, remove: Callable[[], None]) -> bool:
    """Removes old entries of the journal by calling `remove`. Returns whether that succeeded. A
    failure is only logged, because the batch is done.
    """
    try:
        remove()
    except StorageError as error:
        _LOG.warning("%s: old entries of the journal stay: %s", run.storage.location, error)
        return False
    return True


def _own_stood(written: WrittenBatch, own: PreviousBatch | None) -> int | None:
    """A time at which the last snapshot of this stream was part of the table (epoch milliseconds).
    If the judgement of this batch saw the snapshot, or if this batch published it, this is the time
    at which the judgement began. Otherwise, it is the remembered time.
    """
    verdict = written.verdict
    remembered = written.judged.standing.memory
    stands = isinstance(verdict, Fresh) and verdict.own_stands
    if remembered is None or remembered.own != own or stands:
        return written.judged.began_millis
    return remembered.own_stood_millis
