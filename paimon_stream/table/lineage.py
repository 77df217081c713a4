"""The lineage of a table: the newest snapshot, the one on which it was built, and so on downwards.

A put that was on its way for a long time may create a snapshot's file again after that snapshot has
expired. Such a file lies beside the lineage: the newest snapshot was not built on it, so its rows
are not in the table. Yet it looks like the oldest snapshot, because the ids have no gap.

A writer of this package takes such a snapshot back. Java does not look, and points LATEST to it. So
its next commits follow that snapshot, until they reach an id that exists. All of these snapshots
lie beside the lineage, although each was built on the one below. Only the last of them shows it:
the snapshot above was not built on that one.

Invariant: a conclusion may be drawn from an old snapshot only if it lies in the lineage
(exactly-once.md §2).
"""

from collections.abc import Callable, Collection, Iterator
from itertools import pairwise

from paimon_stream.errors import CorruptMetadata
from paimon_stream.format.entries import FileIdentity, FileKind, ManifestFileMeta
from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.snapshots import SnapshotStore, Window


def carries_on(snapshots: SnapshotStore, snapshot: Snapshot, latest: Snapshot) -> bool | None:
    """Whether a snapshot that exists is the latest, or the next one was built on it. None if that
    cannot be told.

    A snapshot that changed no data file leaves no trace in the next one. It counts as part of the
    lineage if the next one has its manifests or, where these were merged, was built on as many
    rows. If a list of one of the two cannot be read, an existing snapshot below is the proof,
    because it would have expired first. Without a snapshot below, the answer is None. Reads two
    manifest lists, and manifests only if the next commit merged them. Raises `StorageError`.
    """
    if snapshot.id >= latest.id:
        return True
    following = latest if latest.id == snapshot.id + 1 else snapshots.find(snapshot.id + 1)
    if following is None:
        return False  # expiry deletes upwards, so no snapshot outlives the next one
    return _is_link(snapshots, snapshot, following)


def in_lineage(snapshots: SnapshotStore, snapshot: Snapshot, latest: Snapshot) -> bool | None:
    """Whether a snapshot that exists lies in the lineage: each snapshot above it was built on the
    one below. None if that cannot be told. Reads all snapshots above it, and two manifest lists of
    each, so it is for what was published during one commit. Raises `StorageError`.
    """
    above = snapshots.window(snapshot.id, latest)
    if not above.complete:
        return False  # expiry deletes upwards, and has taken one above
    for below, following in pairwise((snapshot, *above.snapshots)):
        linked = _is_link(snapshots, below, following)
        if not linked:
            return linked
    return True


def walk_lineage(snapshots: SnapshotStore, latest: Snapshot) -> Iterator[Snapshot]:
    """The snapshots of the lineage, from the latest downwards.

    A step down is checked by manifests where the snapshots raise a doubt: their times go back, or
    their counts of rows do not add up. Several snapshots beside the lineage raise one at the last
    of them, because it was made after the snapshot above had been published and others had
    expired. A single one raises none. So a caller that draws a conclusion from the last snapshot
    of the walk asks `carries_on`.
    """
    following: Snapshot | None = None
    for snapshot in snapshots.walk_down(latest):
        if following is not None and not _seems_link(snapshots, snapshot, following):
            return
        yield snapshot
        following = snapshot


def newest_of(
    snapshots: SnapshotStore, latest: Snapshot, wanted: Callable[[Snapshot], bool]
) -> tuple[Snapshot | None, int]:
    """The newest wanted snapshot of the lineage, and the id from which on every snapshot was looked
    at. If this id is above 1 and no wanted snapshot was found, one may have expired. Raises
    `StorageError`, `CorruptMetadata`.
    """
    lowest = latest
    for lowest in walk_lineage(snapshots, latest):
        if wanted(lowest):
            break
    is_wanted = wanted(lowest)
    if (is_wanted or lowest.id == 1) and not carries_on(snapshots, lowest, latest):
        return None, lowest.id + 1
    if not is_wanted:
        return None, lowest.id
    return lowest, lowest.id


def is_replaced(snapshots: SnapshotStore, ref: SnapshotRef, latest: Snapshot | None) -> bool | None:
    """Whether the id of a snapshot that was part of the table exists in the lineage with another
    nonce: a writer that does not publish atomically replaced it, or it was rolled back and its id
    used again. None if another snapshot has the id, and it cannot be told whether that one lies in
    the lineage. Raises `StorageError`.
    """
    kept = snapshots.find(ref.id)
    if kept is None or kept.nonce == ref.nonce:
        return False
    if latest is None:
        return True
    is_reached = any(snapshot.id <= kept.id for snapshot in walk_lineage(snapshots, latest))
    return carries_on(snapshots, kept, latest) if is_reached else False


def published_after(snapshots: SnapshotStore, seen: SnapshotRef | None, latest: Snapshot) -> Window:
    """The snapshots of the lineage after `seen`, which is None for the empty table. If `seen` has
    expired, those that follow it may also have expired, and been created again. Then the window is
    not complete, and begins above them. If the lists that would show this are missing, `complete`
    is None. Raises `StorageError`.
    """
    seen_id = 0 if seen is None else seen.id
    window = snapshots.window(seen_id, latest)
    if not window.snapshots or (seen is not None and window.complete and snapshots.stands(seen)):
        return window
    for below, following in reversed(list(pairwise(window.snapshots))):
        if not _seems_link(snapshots, below, following):
            above = [snapshot for snapshot in window.snapshots if snapshot.id > below.id]
            return Window(snapshots=tuple(above), complete=False)
    if not window.complete:
        return window
    begins_in_lineage = carries_on(snapshots, window.snapshots[0], latest)
    if begins_in_lineage:
        return window
    return Window(snapshots=window.snapshots[1:], complete=begins_in_lineage)


def has_file(
    manifests: ManifestStore,
    metas: Collection[ManifestFileMeta],
    known: Collection[str],
    file: FileIdentity,
) -> bool:
    """Whether a manifest that is not `known` has an entry of this file. Raises
    `CorruptMetadata`.
    """
    unknown = (meta for meta in metas if meta.file_name not in known)
    return any(entry.identity == file for meta in unknown for entry in manifests.read(meta))


def _is_link(snapshots: SnapshotStore, snapshot: Snapshot, following: Snapshot) -> bool | None:
    """Whether the next snapshot was built on this one. None if that cannot be told."""
    try:
        return _built_on(ManifestStore(snapshots.storage), following, snapshot)
    except CorruptMetadata:
        # A list is gone. An id is created again only where all below has expired.
        return snapshots.exists(snapshot.id - 1) or None


def _seems_link(snapshots: SnapshotStore, snapshot: Snapshot, following: Snapshot) -> bool:
    """Whether nothing shows that the next snapshot was not built on this one. Manifests are read
    only if the times or the counts of rows raise a doubt.
    """
    times_go_back = following.time_millis < snapshot.time_millis
    if not times_go_back and _counts_on(following, snapshot):
        return True
    return bool(_is_link(snapshots, snapshot, following))


def _built_on(manifests: ManifestStore, following: Snapshot, snapshot: Snapshot) -> bool:
    """Whether the next snapshot was built on this one, by their manifests."""
    delta = manifests.delta(snapshot)
    base = manifests.read_list(following.base_manifest_list, following.base_manifest_list_size)
    names = {meta.file_name for meta in base}
    if not delta:
        known = manifests.read_list(snapshot.base_manifest_list, snapshot.base_manifest_list_size)
        return names == {meta.file_name for meta in known} or _counts_on(following, snapshot)
    if not names.isdisjoint(meta.file_name for meta in delta):
        return True
    entries = [entry for meta in delta for entry in manifests.read(meta)]
    added = next((entry.identity for entry in entries if entry.kind is FileKind.ADD), None)
    if added is None:
        changed = {entry.identity for entry in entries}
        mentioned: set[FileIdentity] = set()
        deleted: set[FileIdentity] = set()
        for meta in base:
            for entry in manifests.read(meta):
                if entry.identity in changed:
                    mentioned.add(entry.identity)
                    if entry.kind is FileKind.DELETE:
                        deleted.add(entry.identity)
        return mentioned == deleted and _counts_on(following, snapshot)
    known = manifests.read_list(snapshot.base_manifest_list, snapshot.base_manifest_list_size)
    return has_file(manifests, base, {meta.file_name for meta in known}, added)


def _counts_on(following: Snapshot, snapshot: Snapshot) -> bool:
    """Whether the next snapshot was built on as many rows as this one has."""
    return (
        following.total_record_count - following.delta_record_count == snapshot.total_record_count
    )
