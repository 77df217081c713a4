"""The last step of a batch: what it has left is put in order, and the run remembers how it stands
(exactly-once.md §4, §6). Files of dead attempts go only if no attempt can publish them any more.
"""

from dataclasses import replace

from paimon_stream.commit.report import CommitReport, Phase
from paimon_stream.commit.request import Published
from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.options import JOURNAL
from paimon_stream.stream.dead_attempts import remove_dead_attempts, snapshots_of_batch
from paimon_stream.stream.memory import Memory
from paimon_stream.stream.own_history import with_rows
from paimon_stream.stream.steps import JudgedBatch, PublishedBatch, SettledBatch, WrittenBatch
from paimon_stream.stream.verdicts import AlreadyCommitted, Fresh, Reuse
from paimon_stream.table.journal import PreviousBatch


def settle(published: PublishedBatch) -> SettledBatch:
    """Ends a batch that this run has published, or that had nothing to publish. Raises
    `StorageError`.
    """
    written, outcome = published.written, published.outcome
    judged = written.judged
    run, batch, standing = judged.run, judged.batch, judged.standing
    removed_files = _clear_journal(published)
    own, seen, newest = written.verdict.own, written.verdict.seen, standing.newest
    outlook = replace(standing.outlook, goes_back=False)
    changes, marks = None, standing.marks
    if isinstance(outcome, Published):
        newest, seen = outcome.newest, SnapshotRef.of(outcome.newest)
        own = PreviousBatch(batch_id=batch.batch_id, snapshot=seen)
        # An earlier run that is still alive sees this snapshot, and stops.
        outlook = replace(outlook, follows=False)
        changes = outcome.changes
        marks = run.identity.properties(batch.batch_id, batch.offsets_hash)
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
    run.observer.reached(Phase.FINISHED, batch.batch_id)
    memory = Memory(
        batch_id=batch.batch_id, own=own, seen=seen, own_stood_millis=_own_stood(written, own)
    )
    after = replace(
        standing,
        memory=memory,
        outlook=outlook,
        newest=newest,
        marks=marks,
        last=report,
        conflicts=0,
    )
    return SettledBatch(run=run, standing=after, report=report, changes=changes)


def settle_found(judged: JudgedBatch, verdict: AlreadyCommitted) -> SettledBatch:
    """Ends a batch that an earlier run has committed, and removes what dead attempts at it left.
    Raises `StorageError`, `FormatError`.
    """
    run, batch, standing = judged.run, judged.batch, judged.standing
    own, removed_files, marks = None, 0, standing.marks
    if verdict.snapshot is not None:
        rows = with_rows(run.snapshots, verdict.snapshot)
        own = PreviousBatch(batch_id=batch.batch_id, snapshot=SnapshotRef.of(rows))
        marks = run.identity.properties(batch.batch_id, batch.offsets_hash)
        if dead := verdict.dead:
            some, complete = snapshots_of_batch(run.snapshots, dead, verdict.snapshot)
            removed_files = remove_dead_attempts(
                judged.table, dead, some, run.runtime, complete=complete
            )
    memory = Memory(
        batch_id=batch.batch_id,
        own=own,
        seen=verdict.seen,
        own_stood_millis=judged.began_millis,
        has_expired=verdict.snapshot is None and not judged.knows_later,
    )
    run.observer.reached(Phase.FINISHED, batch.batch_id)
    report = CommitReport(
        location=run.storage.location,
        user=run.identity.user,
        identifier=batch.batch_id,
        outcome="already committed",
        snapshot_id=None if verdict.snapshot is None else verdict.snapshot.id,
        removed_files=removed_files,
    ).measured(judged.meter)
    after = replace(standing, memory=memory, marks=marks)
    return SettledBatch(run=run, standing=after, report=report, changes=None)


def _clear_journal(published: PublishedBatch) -> int:
    """Removes the journal's entries that say nothing any more. Removes what dead attempts at this
    batch left if all snapshots since its judgement were seen. Returns the number of removed files.
    """
    judged, entry, outcome = published.written.judged, published.entry, published.outcome
    run, standing, removed_files = judged.run, judged.standing, 0
    if isinstance(outcome, Published):
        if published.whole and len(entry.stage_uuids) > 1:
            of_batch = (outcome.snapshot, outcome.newest)
            complete = outcome.compact_failed is None
            removed_files = remove_dead_attempts(
                judged.table, entry, of_batch, run.runtime, complete=complete
            )
    elif published.written.verdict.dead is not None or published.journalled:
        run.journal.remove(entry.batch_id)
    if standing.memory is None and not judged.table.options.value(JOURNAL):
        # Not before: the entry of a dead attempt may show that it was published.
        run.journal.clear()
    elif standing.outlook.goes_back and run.claims.holds():
        # Not before: until then the checkpoint may be exchanged. A batch without rows would leave
        # the entry of one that was rolled back.
        run.journal.remove_later(entry.batch_id)
    return removed_files


def _own_stood(written: WrittenBatch, own: PreviousBatch | None) -> int | None:
    """A time at which the last snapshot of this stream stood: when the judgement of this batch
    began, which found it or published it later, or what is remembered.
    """
    verdict, known = written.verdict, written.judged.standing.memory
    is_there = isinstance(verdict, Fresh) and verdict.own_stands
    if known is None or known.own != own or is_there:
        return written.judged.began_millis
    return known.own_stood_millis
