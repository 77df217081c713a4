"""The judgement of a later batch of a run, from the memory of the run and one or two snapshot files. The memory is
believed only while its snapshots are part of the table's lineage. After a rollback, ids are used again, so the batch is
judged from storage once more (exactly-once.md §2). Nothing here writes."""

from dataclasses import dataclass

from paimon_stream.commit.lineage import is_held
from paimon_stream.errors import PaimonStreamError
from paimon_stream.format.journal_entry import PreviousBatch
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, Marks, Snapshot, SnapshotRef
from paimon_stream.stream.claims import duplicate_writer
from paimon_stream.stream.identity import WriterIdentity, is_own
from paimon_stream.stream.ledger import Fresh
from paimon_stream.stream.replay_errors import ReplayErrors
from paimon_stream.table.lineage import is_replaced, newest_of, published_after
from paimon_stream.table.snapshots import SnapshotStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a run remembers between batches: the last batch that it finished, the last batch of its stream
    that became a snapshot, and the snapshot up to which it knows who published what. With `has_expired`, the
    last batch had been committed, and its snapshot has expired: later batches may have been, too."""

    batch_id: int
    own: PreviousBatch | None
    seen: SnapshotRef | None
    has_expired: bool = False


def judge_next(
    snapshots: SnapshotStore, memory: Memory, refuse: ReplayErrors, *, latest: Snapshot | None, follows: bool = False
) -> Fresh | None:
    """Judges a later batch of a run on the latest snapshot. The batch must be new, our last snapshot must still be in
    the lineage, and nobody else may have published the batch since the run last looked. Also raises `CommitLost`.

    None if the memory no longer fits the table or says nothing of later batches, so that storage must decide. If
    snapshots since the run last looked have expired, storage must decide, too, while an earlier run may be at this
    batch (`follows`). Otherwise `seen` stays where it was, and the commit checks the fence."""
    batch_id = refuse.batch_id
    if batch_id <= memory.batch_id:
        raise duplicate_writer(refuse.location, refuse.user)
    if memory.has_expired or not _is_remembered_rightly(snapshots, memory, latest, refuse):
        return None
    seen, newest = None if latest is None else SnapshotRef.of(latest), None
    after = 0 if memory.seen is None else memory.seen.id
    if latest is not None and latest.id > after:
        window = published_after(snapshots, memory.seen, latest)
        for snapshot in window.snapshots:
            identifier = snapshot.commit_identifier
            if snapshot.commit_user == refuse.user and batch_id <= identifier < BATCH_IDENTIFIER:
                raise refuse.shared_checkpoint(snapshot)
        if not window.complete:
            if follows:
                return None
            seen, newest = memory.seen, seen
    return Fresh(seen=seen, newest=newest, own=memory.own)


def require_unpublished(snapshots: SnapshotStore, identity: WriterIdentity, refuse: ReplayErrors) -> None:
    """Raises `SharedCheckpoint` if a run of this stream has the batch or a later one in the table's lineage."""
    latest = snapshots.latest()
    found = latest and newest_of(snapshots, latest, lambda one: is_own(one, identity))[0]
    if found and found.commit_identifier >= refuse.batch_id:
        raise refuse.shared_checkpoint(found)


def superseded(snapshot: Snapshot, identity: WriterIdentity, refuse: ReplayErrors) -> PaimonStreamError:
    """The error for a batch that somebody else published as this snapshot after it was judged."""
    run_id = Marks.of(snapshot.properties).run_id
    if run_id is not None and run_id == identity.run_id:
        return duplicate_writer(refuse.location, refuse.user)
    return refuse.shared_checkpoint(snapshot)


def _is_remembered_rightly(
    snapshots: SnapshotStore, memory: Memory, latest: Snapshot | None, refuse: ReplayErrors
) -> bool:
    """Whether the snapshots that the run remembers are part of the table's lineage, or have expired. Raises
    if our last one is not, unless an operator has decided to continue."""
    own, seen = memory.own, memory.seen
    if own is not None:
        if not _is_in_lineage(snapshots, own, latest, refuse):
            return False
        if seen == own.snapshot:
            return True
    return seen is None or is_held(snapshots, seen, latest) is True


def _is_in_lineage(snapshots: SnapshotStore, own: PreviousBatch, latest: Snapshot | None, refuse: ReplayErrors) -> bool:
    if latest is not None and SnapshotRef.of(latest) == own.snapshot:
        return True  # even if it has expired since
    kept, newest = snapshots.find(own.snapshot.id), 0 if latest is None else latest.id
    replaced = is_replaced(snapshots, own.snapshot, latest)
    if kept is not None and replaced is not False:
        refuse.commit_lost(own, kept, snapshots.storage, proven=replaced is True)
    elif kept is None and newest <= own.snapshot.id:  # else it has expired
        refuse.table_rolled_back(
            f"snapshot {own.snapshot.id}, the last one of this stream (batch {own.batch_id}), is gone, and "
            + (f"snapshot {newest} is the newest one" if newest else "the table has no snapshot")
        )
    else:
        return True
    return False
