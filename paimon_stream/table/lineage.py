"""The lineage of a table: the newest snapshot, the one on which it was built, and so on downwards.

A put that was on its way for a long time may create a snapshot's file again after that snapshot has
expired. Such a file lies beside the lineage: no later snapshot was built on it, so its rows are not
in the table. Yet it looks like the oldest snapshot, because the ids have no gap.

Invariant: a conclusion may be drawn from an old snapshot only if it lies in the lineage
(exactly-once.md §2).
"""

from collections.abc import Callable, Collection

from paimon_stream.errors import CorruptMetadata
from paimon_stream.format.entries import FileIdentity, FileKind, ManifestFileMeta
from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.snapshots import SnapshotStore, Window


def in_lineage(snapshots: SnapshotStore, snapshot: Snapshot, latest: Snapshot) -> bool | None:
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
    try:
        return _built_on(ManifestStore(snapshots.storage), following, snapshot)
    except CorruptMetadata:
        # A list is gone. An id is created again only where all below has expired.
        return snapshots.exists(snapshot.id - 1) or None


def newest_of(
    snapshots: SnapshotStore, latest: Snapshot, wanted: Callable[[Snapshot], bool]
) -> tuple[Snapshot | None, int]:
    """The newest wanted snapshot of the lineage, and the id from which on every snapshot was looked
    at. If this id is above 1 and no wanted snapshot was found, one may have expired. Raises
    `StorageError`, `CorruptMetadata`.
    """
    lowest = latest
    for lowest in snapshots.walk_down(latest):
        if wanted(lowest):
            break
    is_wanted = wanted(lowest)
    if (is_wanted or lowest.id == 1) and not in_lineage(snapshots, lowest, latest):
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
    return latest is None or in_lineage(snapshots, kept, latest)


def published_after(snapshots: SnapshotStore, seen: SnapshotRef | None, latest: Snapshot) -> Window:
    """The snapshots of the lineage after `seen`, which is None for the empty table. If `seen` has
    expired, the next one may also have expired, and been created again. Then the window is not
    complete. If the lists that would show this are missing, `complete` is None. Raises
    `StorageError`.
    """
    seen_id = 0 if seen is None else seen.id
    window = snapshots.window(seen_id, latest)
    if not window.complete or not window.snapshots:
        return window
    if seen is not None and snapshots.stands(seen):
        return window
    begins_in_lineage = in_lineage(snapshots, window.snapshots[0], latest)
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
