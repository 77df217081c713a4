"""The third step of a batch: after its rows are written, it becomes one snapshot, or nothing
(exactly-once.md §4, §5). Before a snapshot with files can be put, the journal gets an entry of the
batch, unless the journal is off. This step removes files only if no attempt can publish them any
more.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from paimon_stream import errors
from paimon_stream.change.anew import ANEW, ComputedChange
from paimon_stream.commit.overwrite import plan_overwrite
from paimon_stream.commit.report import Phase
from paimon_stream.commit.request import CommitRequest, Nothing, Published, Superseded
from paimon_stream.commit.sequence import Numbering
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.snapshot_json import CommitKind, SnapshotRef
from paimon_stream.options import JOURNAL
from paimon_stream.storage.together import Request
from paimon_stream.stream.batch_summary import BatchSummary, previous_commit
from paimon_stream.stream.batch_write import Replaced
from paimon_stream.stream.fence import RunFence
from paimon_stream.stream.memory import superseded
from paimon_stream.stream.prepared import PreparedEntry, journal_entry
from paimon_stream.stream.sequence_conflicts import prepared_numbering
from paimon_stream.stream.steps import PublishedBatch, WrittenBatch
from paimon_stream.stream.verdicts import Fresh, Reuse
from paimon_stream.table.journalled import live_files_of
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.message_files import data_files, remove_files

BeforeCommit = Callable[[tuple[CommitMessage, ...]], object]


def publish_batch(
    written: WrittenBatch, before_commit: BeforeCommit | None = None
) -> PublishedBatch:
    """Publishes the batch as one snapshot, or nothing if it has no rows, only appends, and the
    table has no snapshots of empty batches. Raises `CommitVetoed`, `CommitConflict`,
    `CommitContended`, `CommitUnknown`, `SharedCheckpoint`, `DuplicateWriter`, `TableReplaced`,
    `TableRolledBack`, `StorageError`. After none of these errors is half a batch visible.

    Args:
        written: the batch, with its files.
        before_commit: the user's function, which may veto the commit.
    """
    judged = written.judged
    verdict = written.verdict
    run = judged.run
    batch = judged.batch
    table = judged.table
    run.observer.reached(Phase.WRITTEN, batch.batch_id)
    if before_commit is not None and written.has_changes:
        _ask(written, before_commit)
    entry = journal_entry(written)
    prepared = PreparedEntry(
        journal=run.journal,
        entry=entry,
        observer=run.observer,
        clock=run.runtime.clock,
        wanted=_is_journalled(written),
    )
    fence = RunFence(
        claims=run.claims,
        refuse=run.refusals(batch, table),
        seen=verdict.seen,
        attempted=verdict.dead is not None or judged.standing.outlook.follows,
        live=lambda: live_files_of(table, run.snapshots.latest(), verdict.dead),
    )
    # The commit calls back. This list keeps what the fence was asked.
    gaps: list[SnapshotRef | None] = []
    request = _request(written, prepared, partial(_ask_fence, fence, gaps))
    outcome = _commit(written, request, prepared)
    return PublishedBatch(
        written=written,
        entry=entry,
        outcome=outcome,
        journalled=prepared.wanted,
        journal_millis=prepared.millis,
        saw_all=not gaps,
    )


def discard(written: WrittenBatch) -> None:
    """Removes the files of a batch that can never be published."""
    table = written.judged.table
    remove_files(table.storage, data_files(table.layout, written.messages))


def _is_journalled(written: WrittenBatch) -> bool:
    """Whether the attempt is recorded in the journal before it can be published."""
    return written.has_changes and written.judged.table.options.value(JOURNAL)


def _ask(written: WrittenBatch, before_commit: BeforeCommit) -> None:
    """Calls the user's function, which may veto the commit. Raises `CommitVetoed`."""
    if written.buffered is not None:
        written.buffered.flush()  # the function may read the files
    try:
        before_commit(written.messages)
    except Exception as veto:
        location = written.judged.run.storage.location
        batch_id = written.judged.batch.batch_id
        if isinstance(written.verdict, Fresh):
            discard(written)
            message = (
                f"{location}, batch {batch_id}: before_commit raised {veto!r}. Nothing was "
                "published, and its files were removed. Spark runs the batch again when the query "
                "is restarted."
            )
        else:
            message = (
                f"{location}, batch {batch_id}: before_commit raised {veto!r}. Nothing was "
                "published, and the files that an earlier run had prepared stay for the next run. "
                "Spark runs the batch again when the query is restarted."
            )
        raise errors.CommitVetoed(message, table=location, batch=batch_id) from veto


def _ask_fence(fence: RunFence, gaps: list[SnapshotRef | None]) -> bool:
    """Adds to `gaps` the snapshot above which snapshots are missing, and asks the fence about the
    missing ones. Raises what the fence raises.
    """
    gaps.append(fence.seen)
    return fence()


def _commit(
    written: WrittenBatch, request: CommitRequest, prepared: PreparedEntry
) -> Published | Nothing:
    """Commits the request. After a definite failure, removes the files that no restart can use."""
    run = written.judged.run
    owned = nullcontext() if written.change is None else written.change.owned()
    try:
        with owned:
            outcome = written.judged.target.committer.commit(request)
    except errors.CommitUnknown:
        raise  # it may be published, so no file may be removed
    except errors.PaimonStreamError as error:
        if written.change is not None and isinstance(error, ANEW):
            raise  # the merge knows its files, and its next attempt replaces the journal's entry
        is_conflict = isinstance(error, errors.CommitConflict)
        # After `CommitLost` the files still fit the table, and the journal entry shows what was
        # lost.
        if is_conflict and not isinstance(error, errors.CommitLost):
            _discard_for_good(written, prepared)
        else:
            _discard_unless_journalled(written, prepared)
        raise
    if isinstance(outcome, Superseded):
        if not outcome.is_open:
            # Nobody else knows the names of files that no journal has, so the snapshot that came
            # first does not refer to them. Files in the journal are left to the next run, which
            # compares them with what is published (`dead_attempts.py`).
            _discard_unless_journalled(written, prepared)
        refuse = run.refusals(written.judged.batch, written.judged.table)
        raise superseded(outcome.snapshot, run.identity, refuse)
    return outcome


def _request(
    written: WrittenBatch,
    prepared: PreparedEntry,
    fence: Callable[[], bool],
) -> CommitRequest:
    """The request to commit the batch.

    Args:
        written: the batch, with its files.
        prepared: the entry of the journal, which is written beside the manifests.
        fence: asked where snapshots are missing.
    """
    judged = written.judged
    run = judged.run
    batch = judged.batch
    send_files: Request | None = None
    if written.buffered is not None:
        send_files = written.buffered.flush
    request = CommitRequest(
        user=run.identity.user,
        identifier=batch.batch_id,
        messages=written.messages,
        watermark=batch.watermark,
        properties={
            **_summary_of(written).properties(),
            **previous_commit(judged.standing.last_report, judged.standing.conflicts),
            **run.identity.properties(batch.batch_id, batch.offsets_hash),
        },
        renumber=True,
        numbering=_numbering_of(written),
        checked=isinstance(written.verdict, Reuse),
        seen=written.verdict.seen,
        sight=judged.sight,
        send_files=send_files,
        journal=prepared,
        stage_uuid=prepared.entry.stage_uuids[0],
        fence=fence,
        is_newest=run.claims.holds,
    )
    if written.change is not None:
        return _as_change(request, written.change)
    if run.replaced is None:
        return request
    return _as_overwrite(written, request, run.replaced)


def _summary_of(written: WrittenBatch) -> BatchSummary:
    """What the snapshot of the batch says of it."""
    summary = BatchSummary.of_messages(
        written.messages,
        millis=written.phases.get("write"),
        reused=isinstance(written.verdict, Reuse),
    )
    if written.change is None:
        return summary
    counts = written.change.counts
    return replace(
        summary,
        rows_updated=counts.updated,
        rows_deleted=counts.deleted,
        rows_inserted=counts.inserted,
    )


def _as_change(request: CommitRequest, change: ComputedChange) -> CommitRequest:
    """The request, changed so that it publishes what a merge of the batch's rows does."""
    return replace(
        request,
        messages=change.messages if change.source is None else (),
        source=change.source,
        kind=change.kind,
        renumber=False,
        numbering=change.numbering,
        sight=None,  # the merge was computed on a later snapshot
        premises=change.premises,
    )


def _as_overwrite(
    written: WrittenBatch, request: CommitRequest, replaced: Replaced
) -> CommitRequest:
    """The request, changed so that the batch replaces rows of the table."""
    table = written.judged.table
    manifests = ManifestStore(written.judged.run.storage)
    planned = plan_overwrite(
        table,
        manifests,
        written.messages,
        partition=replaced.partition,
        dynamic=replaced.dynamic,
    )
    return replace(
        request,
        messages=planned.messages,
        source=planned.source,
        kind=CommitKind.OVERWRITE,
        renumber=False,
        force_snapshot=planned.always,
    )


def _numbering_of(written: WrittenBatch) -> Numbering | None:
    """The numbering of the batch's rows, which this run has written, or an earlier run that
    prepared the files.
    """
    if isinstance(written.verdict, Reuse):
        return prepared_numbering(written.judged.table, written.verdict.entry.base)
    return written.numbering


def _discard_unless_journalled(written: WrittenBatch, prepared: PreparedEntry) -> None:
    """After a definite failure, removes the files if no restart would find them, because the
    journal does not name them. Files that an earlier run prepared stay, because that run may still
    be alive.
    """
    if isinstance(written.verdict, Reuse) or prepared.may_be_there:
        return
    discard(written)


def _discard_for_good(written: WrittenBatch, prepared: PreparedEntry) -> None:
    """Removes files that will never fit, as after a conflict, and their entry in the journal. Files
    that an earlier run prepared stay, because that run may still be alive.
    """
    if isinstance(written.verdict, Reuse):
        return
    if prepared.may_be_there:
        written.judged.run.journal.remove(written.judged.batch.batch_id)
    discard(written)
