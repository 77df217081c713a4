"""The lineage of a table consists of the newest snapshot, the snapshot on which that one was built,
and so on downwards.

A put that was on its way for a long time may create a snapshot's file again after that snapshot has
expired. Such a file lies beside the lineage: the newest snapshot was not built on it, so its rows
are not in the table. Yet it looks like the oldest snapshot, because the ids have no gap.

A writer of this package deletes such a snapshot. Java does not check, and points LATEST to the
snapshot. So Java's next commits follow that snapshot, until they reach an id that exists. All of
these snapshots lie beside the lineage, although each was built on the one below. Only the last of
these snapshots shows that: the snapshot above was not built on it.

Invariant: a conclusion may be drawn from an old snapshot only if it lies in the lineage
(exactly-once.md §2).
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Final, cast

from paimon_stream.errors import CorruptMetadata
from paimon_stream.format.entries import FileIdentity, FileKind, ManifestFileMeta
from paimon_stream.format.snapshot_json import ManifestListRef, Snapshot, SnapshotRef
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.snapshots import SnapshotStore, Window

_PARTS: Final = 4
"""Into how many parts `in_lineage` splits steps of which no manifest is a proof."""


def carries_on(snapshots: SnapshotStore, snapshot: Snapshot, latest: Snapshot) -> bool | None:
    """Whether an existing snapshot is the latest one, or the next snapshot was built on it. None if
    that cannot be told.

    A snapshot that changed no data file leaves no trace in the next one. Such a snapshot counts as
    part of the lineage if the next one has the same manifests. If the manifests were merged, the
    next one must be built on as many rows. If a manifest list cannot be read, an existing snapshot
    below is the proof, because that snapshot would have expired first. Without a snapshot below,
    the answer is None. Reads two manifest lists, and manifests only if the next commit merged them.
    Raises `StorageError`.
    """
    if snapshot.id >= latest.id:
        return True
    following = latest if latest.id == snapshot.id + 1 else snapshots.find(snapshot.id + 1)
    if following is None:
        return False  # expiry deletes upwards, so no snapshot outlives the next one
    return _is_link(snapshots, snapshot, following)


def in_lineage(snapshots: SnapshotStore, snapshot: Snapshot, latest: Snapshot) -> bool | None:
    """Whether a snapshot that exists lies in the lineage: each snapshot above it was built on the
    one below. None if that cannot be told. Raises `StorageError`.

    If a later snapshot has a manifest of the snapshot's delta list, that proves all steps between
    the two. So only two manifest lists are read if the latest snapshot has such a manifest.
    Otherwise writers have merged the manifests since then, as they do after some dozens of commits.
    In that case the steps are split into parts, and all parts are checked in the same trips.
    """
    ends: dict[int, Snapshot] = {snapshot.id: snapshot, latest.id: latest}
    parts: list[tuple[int, int]] = []
    if snapshot.id < latest.id:
        parts = [(snapshot.id, latest.id)]
    while parts:
        new_ids = [snapshot_id for part in parts for snapshot_id in part if snapshot_id not in ends]
        reads = [partial(snapshots.find, snapshot_id) for snapshot_id in dict.fromkeys(new_ids)]
        for end in snapshots.storage.together(reads):
            if end is None:
                return False  # expiry deletes upwards, and has taken one above
            ends[end.id] = end
        unproven = _without_manifest(snapshots, [(ends[low], ends[high]) for low, high in parts])
        steps = [(below, above) for below, above in unproven if above.id == below.id + 1]
        checks = [partial(_is_link, snapshots, below, above) for below, above in steps]
        for linked in snapshots.storage.together(checks):
            if not linked:
                return cast("bool | None", linked)
        parts = []
        for below, above in unproven:
            if above.id > below.id + 1:
                parts += _split(below.id, above.id)
    return True


def walk_lineage(snapshots: SnapshotStore, latest: Snapshot) -> Iterator[Snapshot]:
    """The snapshots of the lineage, from the latest downwards.

    A step down is checked by manifests only if the two snapshots raise a doubt: their times go
    back, or their counts of rows do not add up. If several snapshots lie beside the lineage, the
    last of them raises a doubt, because it was made after the snapshot above. A single snapshot
    beside the lineage raises no doubt. Several raise none if their writer's clock is behind and all
    have as many rows. They also raise none if another engine forwards main to a branch whose first
    snapshots have expired. So a caller that draws a conclusion from the last snapshot of the walk
    asks `in_lineage`.
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
    """The newest snapshot of the lineage for which `wanted` is true, and the lowest id that was
    looked at. If no such snapshot was found, and that id is above 1, such a snapshot may have
    expired. Raises `StorageError`, `CorruptMetadata`.
    """
    lowest = latest
    for lowest in walk_lineage(snapshots, latest):
        if wanted(lowest):
            break
    is_wanted = wanted(lowest)
    if (is_wanted or lowest.id == 1) and not in_lineage(snapshots, lowest, latest):
        return None, lowest.id + 1
    if not is_wanted:
        return None, lowest.id
    return lowest, lowest.id


def is_replaced(snapshots: SnapshotStore, ref: SnapshotRef, latest: Snapshot | None) -> bool | None:
    """Whether another snapshot of the lineage has the id of a snapshot that was part of the table.
    A writer that does not publish atomically may have replaced that snapshot, or the snapshot was
    rolled back and its id was used again. None if it cannot be told whether the other snapshot lies
    in the lineage. Raises `StorageError`.
    """
    kept = snapshots.find(ref.id)
    if kept is None or kept.nonce == ref.nonce:
        return False
    if latest is None:
        return True
    return in_lineage(snapshots, kept, latest)


def published_after(snapshots: SnapshotStore, seen: SnapshotRef | None, latest: Snapshot) -> Window:
    """The snapshots of the lineage after `seen`, which is None for the empty table. If `seen` has
    expired, the snapshots that follow it may also have expired, and their files may have been
    created again. In that case the window is not complete, and begins above these snapshots. If the
    manifest lists that would show this are missing, `complete` is None. Raises `StorageError`.
    """
    seen_id = 0 if seen is None else seen.id
    window = snapshots.window(seen_id, latest)
    if not window.snapshots or (seen is not None and window.complete and snapshots.stands(seen)):
        return window
    above = _above_break(window, partial(_seems_link, snapshots))
    if above is not None:
        return Window(snapshots=above, complete=False)
    if not window.complete:
        return window
    begins_in_lineage = in_lineage(snapshots, window.snapshots[0], latest)
    if begins_in_lineage:
        return window
    above = _above_break(window, partial(_is_link, snapshots))
    if above is None:
        above = window.snapshots[1:]
    return Window(snapshots=above, complete=begins_in_lineage)


def has_file(
    manifests: ManifestStore,
    metas: Collection[ManifestFileMeta],
    known: Collection[str],
    file: FileIdentity,
) -> bool:
    """Whether one of the manifests that are not `known` has an entry of the file. Raises
    `CorruptMetadata`.
    """
    unknown = (meta for meta in metas if meta.file_name not in known)
    return any(entry.identity == file for meta in unknown for entry in manifests.read(meta))


def _above_break(
    window: Window, is_link: Callable[[Snapshot, Snapshot], bool | None]
) -> tuple[Snapshot, ...] | None:
    """The snapshots of a window above the highest break. A break is a snapshot on which the next
    one was not built. None if there is no break.
    """
    for below, following in reversed(list(pairwise(window.snapshots))):
        if not is_link(below, following):
            return tuple(snapshot for snapshot in window.snapshots if snapshot.id > below.id)
    return None


def _split(low: int, high: int) -> list[tuple[int, int]]:
    """Divides the ids from `low` to `high` into parts. Each part begins at the id with which the
    part below ends.
    """
    step = -(-(high - low) // _PARTS)  # rounded up
    return list(pairwise([*range(low, high, step), high]))


def _without_manifest(
    snapshots: SnapshotStore, parts: Sequence[tuple[Snapshot, Snapshot]]
) -> list[tuple[Snapshot, Snapshot]]:
    """The parts whose upper snapshot has no manifest that the lower snapshot added. Parts for which
    a missing manifest list leaves this open are among them.
    """
    manifests = ManifestStore(snapshots.storage)
    added = [partial(_names_in, manifests, below.manifest_lists[1]) for below, _ in parts]
    known = [partial(_names_in, manifests, above.manifest_lists[0]) for _, above in parts]
    names = snapshots.storage.together([*added, *known])
    of_both = zip(parts, names[: len(parts)], names[len(parts) :], strict=True)
    return [part for part, below, above in of_both if below.isdisjoint(above)]


def _names_in(manifests: ManifestStore, listed: ManifestListRef) -> frozenset[str]:
    """The names of the manifests in a list. There are none if the list is missing."""
    try:
        return frozenset(meta.file_name for meta in manifests.read_list(listed.name, listed.size))
    except CorruptMetadata:
        return frozenset()


def _is_link(snapshots: SnapshotStore, snapshot: Snapshot, following: Snapshot) -> bool | None:
    """Whether the snapshot `following` was built on `snapshot`. None if that cannot be told."""
    try:
        return _built_on(ManifestStore(snapshots.storage), following, snapshot)
    except CorruptMetadata:
        # A manifest list is missing. The file of an expired snapshot is created again only if all
        # snapshots below have expired, too.
        return snapshots.exists(snapshot.id - 1) or None


def _seems_link(snapshots: SnapshotStore, snapshot: Snapshot, following: Snapshot) -> bool:
    """Whether nothing shows that the snapshot `following` was not built on `snapshot`. Manifests
    are read only if the times or the counts of rows raise a doubt.
    """
    times_go_back = following.time_millis < snapshot.time_millis
    if not times_go_back and _counts_on(following, snapshot):
        return True
    return bool(_is_link(snapshots, snapshot, following))


def _built_on(manifests: ManifestStore, following: Snapshot, snapshot: Snapshot) -> bool:
    """Whether the snapshot `following` was built on `snapshot`, according to their manifests."""
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
    """Whether the snapshot `following` was built on as many rows as `snapshot` has."""
    return (
        following.total_record_count - following.delta_record_count == snapshot.total_record_count
    )
