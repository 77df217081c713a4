"""What a run remembers between batches, and how it judges a later batch by that and by one or two
snapshot files (exactly-once.md §2). Nothing here writes.
"""

from dataclasses import dataclass

from paimon_stream.commit.lineage import is_held
from paimon_stream.errors import PaimonStreamError
from paimon_stream.format.snapshot_json import (
    BATCH_IDENTIFIER,
    Marks,
    Snapshot,
    SnapshotRef,
    own_properties,
)
from paimon_stream.options import JOURNAL
from paimon_stream.stream.claims import duplicate_writer
from paimon_stream.stream.identity import WriterIdentity, is_own
from paimon_stream.stream.replay_errors import ReplayErrors
from paimon_stream.stream.verdicts import Fresh
from paimon_stream.table.fate import Fate, fate_of
from paimon_stream.table.journal import PreviousBatch
from paimon_stream.table.lineage import newest_of, published_after
from paimon_stream.table.removals import Removed
from paimon_stream.table.snapshots import SnapshotStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a run remembers between batches: the last batch that it finished, the last batch of its
    stream that became a snapshot, and the snapshot up to which it knows who published what. The
    snapshot of that last batch stood at `own_stood_millis` (epoch milliseconds), None if there is
    none. With `has_expired`, the last batch had been committed, and its snapshot has expired: later
    batches may have been, too.
    """

    batch_id: int
    own: PreviousBatch | None
    seen: SnapshotRef | None
    own_stood_millis: int | None = None
    has_expired: bool = False


def judge_next(
    snapshots: SnapshotStore,
    memory: Memory,
    refuse: ReplayErrors,
    *,
    latest: Snapshot | None,
    follows: bool = False,
) -> Fresh | None:
    """Judges a later batch of a run on the latest snapshot. The batch must be new, our last
    snapshot must still be in the lineage, and nobody else may have published the batch since the
    run last looked. Also raises `CommitLost`. None if the memory no longer fits the table or says
    nothing of later batches, so that storage must decide. If snapshots since the run last looked
    have expired, storage must decide, too, while an earlier run may be at this batch (`follows`).
    Otherwise `seen` stays where it was, and the commit checks the fence. A run that `follows`
    others and has nothing of its own could not miss what the table has lost of them, so storage
    decides, too, once what it has seen is gone.
    """
    batch_id = refuse.batch_id
    if batch_id <= memory.batch_id:
        raise duplicate_writer(refuse.location, refuse.user)
    if memory.has_expired:
        return None
    fate = _fate_of_own(snapshots, memory, latest, refuse)
    if fate is None or not _has_seen(snapshots, memory, latest):
        return None
    if follows and memory.own is None and not _still_sees(snapshots, memory.seen, latest):
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
    return Fresh(seen=seen, newest=newest, own=memory.own, own_stands=fate is Fate.IN_TABLE)


def require_absent(
    snapshots: SnapshotStore, identity: WriterIdentity, refuse: ReplayErrors
) -> None:
    """Raises `SharedCheckpoint` if a run of this stream has the batch or a later one in the table's
    lineage.
    """
    latest = snapshots.latest()
    found = latest and newest_of(snapshots, latest, lambda one: is_own(one, identity))[0]
    if found and found.commit_identifier >= refuse.batch_id:
        raise refuse.shared_checkpoint(found)


def superseded(
    snapshot: Snapshot, identity: WriterIdentity, refuse: ReplayErrors
) -> PaimonStreamError:
    """The error for a batch that somebody else published as this snapshot after it was judged."""
    run_id = Marks.of(own_properties(snapshot)).run_id
    if run_id is not None and run_id == identity.run_id:
        return duplicate_writer(refuse.location, refuse.user)
    return refuse.shared_checkpoint(snapshot)


def _has_seen(snapshots: SnapshotStore, memory: Memory, latest: Snapshot | None) -> bool:
    """Whether the newest snapshot that the run has seen is part of the table's lineage, or has
    expired.
    """
    own, seen = memory.own, memory.seen
    if seen is None or (own is not None and seen == own.snapshot):
        return True
    return is_held(snapshots, seen, latest) is True


def _still_sees(
    snapshots: SnapshotStore, seen: SnapshotRef | None, latest: Snapshot | None
) -> bool:
    """Whether the newest snapshot that a run has seen stands, so that nothing below it was taken
    away.
    """
    if seen is None or (latest is not None and SnapshotRef.of(latest) == seen):
        return True
    return snapshots.stands(seen)


def _fate_of_own(
    snapshots: SnapshotStore, memory: Memory, latest: Snapshot | None, refuse: ReplayErrors
) -> Fate | None:
    """Whether our last snapshot is part of the table's lineage, or has expired, as it is without
    one. None where storage must judge, because a note says that it was removed, or may have been,
    and a file of the batch may still show that the batch is there, or because an operator has
    decided to continue. Raises if our last one is not part of it.
    """
    own = memory.own
    if own is None:
        return Fate.EXPIRED

    def took_it(removed: Removed) -> bool:
        """Whether an earlier batch of this stream was removed, and so all that followed."""
        batch = removed.identifier
        is_ours = removed.user == refuse.user and removed.is_of_stream
        return is_ours and batch is not None and batch <= own.batch_id

    stood_millis = memory.own_stood_millis
    answer = fate_of(snapshots, own.snapshot, latest, stood_millis=stood_millis, took_it=took_it)
    newest = 0 if latest is None else latest.id
    if answer.is_held:
        return answer.fate
    if answer.fate is Fate.REPLACED:
        kept = snapshots.find(own.snapshot.id)
        if kept is not None:
            refuse.commit_lost(own, kept, snapshots.storage)
    elif newest <= own.snapshot.id:
        refuse.table_rolled_back(
            f"snapshot {own.snapshot.id}, the last one of this stream (batch {own.batch_id}), is gone, and "
            + (f"snapshot {newest} is the newest one" if newest else "the table has no snapshot")
        )
    elif not refuse.options.value(JOURNAL):  # storage has nothing of the batch
        refuse.gone(own.batch_id, answer)
    return None
