"""Tells what became of a snapshot that was part of a table. The whole package asks this module
(exactly-once.md §8).

The callers remember a snapshot and no longer find it. They are the judgements of a stream, a commit
without Spark, the recommit of a lost batch, a stream read, expiry and the doctor. A snapshot that
is gone counts as expired only if an expiry could have removed it and nothing recorded contradicts
that. The notes of removals (`removals.py`) are read only where a snapshot is gone or is not in the
lineage.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final

from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef
from paimon_stream.storage.together import Request
from paimon_stream.table.lineage import is_replaced
from paimon_stream.table.removals import ROLLBACK, Removals, Removed, read_removals
from paimon_stream.table.snapshots import SnapshotStore

CLOCKS_DIFFER_MILLIS: Final = 5 * 60_000
"""The clocks of two machines are expected to differ by less than this, in milliseconds."""


class Fate(Enum):
    """What became of a snapshot or of a batch.

    Attributes:
        IN_TABLE: the snapshot stands. A removal that has not reached the snapshot may have been
            announced.
        EXPIRED: the snapshot is gone in a way that an expiry could have caused, and no record says
            anything else. The later snapshots were built on it.
        ROLLED_BACK: the snapshot was removed, and its rows are not in the table.
        REPLACED: another snapshot of the lineage has the same id, and no note says why.
        UNKNOWN: records contradict each other, or a note that may name the snapshot cannot be read.
    """

    IN_TABLE = "in the table"
    EXPIRED = "expired"
    ROLLED_BACK = "rolled back"
    REPLACED = "replaced"
    UNKNOWN = "cannot be known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of a snapshot or of a batch, and how that is known.

    Attributes:
        fate: the answer.
        why: the reason, as the end of a sentence; empty where nothing is recorded.
    """

    fate: Fate
    why: str = ""

    @property
    def is_held(self) -> bool | None:
        """Whether the snapshot or batch is part of the table's present history, even if it has
        expired; None if that cannot be known.
        """
        if self.fate is Fate.UNKNOWN:
            return None
        return self.fate in (Fate.IN_TABLE, Fate.EXPIRED)


def _unknown(why: str) -> Answer:
    return Answer(fate=Fate.UNKNOWN, why=why)


def _rolled_back(why: str) -> Answer:
    return Answer(fate=Fate.ROLLED_BACK, why=why)


def fate_of(
    snapshots: SnapshotStore,
    remembered: SnapshotRef,
    latest: Snapshot | None,
    *,
    stood_millis: int | None = None,
    removed_it: Callable[[Removed], bool] = lambda _: False,
) -> Answer:
    """What became of a snapshot that was part of the table. Reads the snapshot's file. If the file
    does not hold the remembered snapshot, also reads the notes of removals, the next snapshot and
    the manifests that show the lineage.

    Args:
        snapshots: the snapshots of the table.
        remembered: the snapshot that was part of the table.
        latest: the table's newest snapshot; None for a table without snapshots.
        stood_millis: a time at which the remembered snapshot stood, in epoch milliseconds. If there
            is such a time, three later things contradict that it has expired: a rollback to an
            older snapshot (such a rollback does not note a snapshot that has expired), a run that
            removed expired snapshots, and the note of another snapshot that was removed together
            with it.
        removed_it: says whether a note is of a snapshot that was removed together with the
            remembered one.

    Raises:
        CorruptMetadata, StorageError, UnknownVersion: a snapshot cannot be read.
    """
    if latest is not None and SnapshotRef.of(latest) == remembered:
        return Answer(fate=Fate.IN_TABLE)
    present = snapshots.find(remembered.id)  # may be another one, which has the id now
    newest = 0 if latest is None else latest.id
    if present is not None and present.nonce == remembered.nonce and newest >= remembered.id:
        return Answer(fate=Fate.IN_TABLE)
    removals, replaced = _removals_and_lineage(snapshots, remembered, latest)
    answer = _by_notes_and_lineage(removals, remembered, newest, replaced)
    if answer.fate is not Fate.EXPIRED:
        return answer
    if present is None and _is_gap(snapshots, remembered):
        return _unknown(
            f"older snapshots of the table still stand, so no expiry has taken snapshot {remembered.id}"
        )
    if stood_millis is None:
        return answer
    remover = _may_have_removed(removals, remembered, stood_millis, removed_it)
    if remover is None:
        return answer
    return _unknown(
        f"{_in_words(remover)}, and may have taken snapshot {remembered.id}, which had expired"
    )


def _removals_and_lineage(
    snapshots: SnapshotStore, remembered: SnapshotRef, latest: Snapshot | None
) -> tuple[Removals, bool | None]:
    """The notes of removals, and whether the snapshot is replaced (`is_replaced`), in one trip."""
    looks: list[Request] = [
        partial(read_removals, snapshots.storage),
        partial(is_replaced, snapshots, remembered, latest),
    ]
    removals, replaced = snapshots.storage.together(looks)
    return removals, replaced


def _by_notes_and_lineage(
    removals: Removals, remembered: SnapshotRef, newest: int, replaced: bool | None
) -> Answer:
    """What the notes of removals and the table's lineage say of a snapshot whose file is gone or
    holds another snapshot.

    Args:
        removals: the notes.
        remembered: the snapshot.
        newest: the id of the newest snapshot, 0 if there is none.
        replaced: whether another snapshot of the lineage has its id; None if that is not known.
    """
    noted = judge_notes(removals, removals.of_nonce(remembered.nonce))
    if noted.fate is Fate.ROLLED_BACK:
        return noted
    if newest <= remembered.id and not replaced:
        if not newest:
            return _rolled_back("the table has no snapshot")
        return _rolled_back(f"snapshot {newest} is the newest one")
    if replaced:
        return Answer(fate=Fate.REPLACED)
    if noted.fate is not Fate.EXPIRED:
        return noted
    if replaced is None:
        return _unknown(
            "manifest lists are missing that would show whether the snapshot with its id replaced it"
        )
    return noted


def _may_have_removed(
    removals: Removals,
    remembered: SnapshotRef,
    stood_millis: int,
    removed_it: Callable[[Removed], bool],
) -> Removed | None:
    """The first note since `stood_millis` of a run that may have removed the snapshot although it
    had expired; None if there is none.
    """
    for removed in removals.removed:
        if removed.millis is None or is_before(removed, stood_millis):
            continue
        went_below = removed.target is not None and removed.target.id < remembered.id
        if went_below or removed.removed_expired or removed_it(removed):
            return removed
    return None


def fate_of_batch(
    removals: Removals,
    uuids: Sequence[str],
    attempted_millis: int,
    removed_it: Callable[[Removed], bool] = lambda _: False,
) -> Answer:
    """What the notes of removals say of a published batch whose snapshot is gone.

    A note of the newest attempt contradicts that the batch has expired. A note of an earlier
    attempt does not contradict that if the newest attempt was made after the note: the batch was
    published again. Clocks of two machines may differ by five minutes; where the order cannot be
    told, the answer is `UNKNOWN`.

    Args:
        removals: the notes.
        uuids: the attempts at the batch, the newest first.
        attempted_millis: when the newest attempt was made, in epoch milliseconds.
        removed_it: says whether a note is of another snapshot whose removal also removed the batch.
            That is the snapshot of an earlier batch, or a snapshot of a `recommit` that also has
            the batch.
    """
    newest, *earlier = uuids
    removed = removals.of_uuid(newest)
    if removed is not None:
        return judge_notes(removals, removed)
    of_earlier = [removals.of_uuid(uuid) for uuid in earlier]
    for removed in (*of_earlier, *filter(removed_it, removals.removed)):
        if removed is not None and not is_before(removed, attempted_millis):
            return _unknown(
                f"{_in_words(removed)}, and whether the batch was published again after that is not known"
            )
    return judge_notes(removals, None)


def judge_notes(removals: Removals, removed: Removed | None) -> Answer:
    """What the notes of removals say of a snapshot or batch that is gone. `removed` is the note
    that names it; None if no readable note names it.
    """
    if removed is not None and removed.is_proven:
        return _rolled_back(_in_words(removed))
    if removed is not None and not removed.ended:
        return _unknown(
            f"{_in_words(removed)}, but did not end, so whether that snapshot went is not known"
        )
    if removed is not None:  # it ended, so it is not `certain`
        return _unknown(f"{_in_words(removed)}, but where the branch was made is not known")
    if removals.doubts:
        return _unknown(
            f"a note of removed snapshots cannot be read: {removals.doubts[0]}".rstrip(".")
        )
    return Answer(fate=Fate.EXPIRED)


def is_before(removed: Removed, attempted_millis: int) -> bool:
    """Whether the removal was surely made before an attempt at `attempted_millis`."""
    return removed.millis is not None and removed.millis + CLOCKS_DIFFER_MILLIS < attempted_millis


def cut_below(
    snapshots: SnapshotStore,
    removals: Removals,
    gone: SnapshotRef,
    latest: Snapshot | None,
    *,
    stood_millis: int | None = None,
) -> SnapshotRef | None:
    """The lowest target of the rollback that removed a snapshot and of all later rollbacks. Up to
    this target, the table is still what that snapshot was built on. None if that is not known, as
    after a fast forward. Raises what `fate_of` raises.

    Args:
        snapshots: the snapshots of the table.
        removals: the notes.
        gone: the snapshot that was removed.
        latest: the table's newest snapshot; None for a table without snapshots.
        stood_millis: a time at which the snapshot was part of the table, in epoch milliseconds. If
            the snapshot had expired before the rollback, a later rollback to a snapshot below it
            counts as the one that removed it.
    """

    def removed_it(removed: Removed) -> bool:
        if removed.snapshot is not None and removed.snapshot.nonce == gone.nonce:
            return True
        is_below = removed.target is not None and removed.target.id < gone.id
        return stood_millis is not None and is_below and not is_before(removed, stood_millis)

    noted = [
        (removed.millis, removed) for removed in removals.removed if removed.millis is not None
    ]
    since = min((millis for millis, removed in noted if removed_it(removed)), default=None)
    if since is None:
        return None
    targets: list[SnapshotRef] = []
    for millis, removed in noted:
        if millis < since:
            continue
        if removed.by != ROLLBACK or removed.target is None:
            return None
        targets.append(removed.target)
    lowest = min(targets, key=lambda target: target.id)
    if not fate_of(snapshots, lowest, latest).is_held:
        return None
    return lowest


def _in_words(removed: Removed) -> str:
    """A clause for messages that says what the note of a removal records."""
    if removed.snapshot is None and removed.ended:
        return f"a {removed.by} has taken away what was published of it"
    if removed.snapshot is None:
        return f"a {removed.by} had begun to take away what was published of it"
    snapshot = "its snapshot"
    if removed.snapshot.id:
        snapshot = f"snapshot {removed.snapshot.id}"
    if removed.ended:
        return f"a rollback or fast forward has removed {snapshot}"
    return f"a rollback or fast forward had begun to remove {snapshot}"


def _is_gap(snapshots: SnapshotStore, remembered: SnapshotRef) -> bool:
    """Whether the snapshot before the remembered one exists, and an older snapshot of the table
    stands. Expiry removes the oldest snapshots first, so in that case expiry has not removed the
    remembered one. A snapshot that a paused writer created again proves nothing.
    """
    if not snapshots.exists(remembered.id - 1):
        return False
    older = [snapshot_id for snapshot_id in snapshots.ids() if snapshot_id < remembered.id]
    return snapshots.rolled_back_to(older)
