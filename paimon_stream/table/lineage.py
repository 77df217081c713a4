"""The lineage of a table consists of the newest snapshot, the snapshot on which that one was built,
and so on downwards.

A put that was on its way for a long time may create a snapshot's file again after that snapshot has
expired. Such a file lies beside the lineage: the newest snapshot was not built on it, so its rows
are not in the table. Yet it looks like the oldest snapshot, because the ids have no gap.

A writer of this package deletes such a snapshot. Java does not check, and points LATEST to the
snapshot. So Java's next commits follow that snapshot, until they reach an id that exists. All of
these snapshots lie beside the lineage, although each was built on the one below. Only the last of
these snapshots shows that: the snapshot above was not built on it.

A snapshot of this package names the nonce of its base among its properties. Nonces are never used
again, so this proves the step from the snapshot down to its base, and no other file is read for it.
Snapshots of other engines name none. Their steps are proven by manifests.

Invariant: a conclusion may be drawn from an old snapshot only if it lies in the lineage
(exactly-once.md §2).
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import islice, pairwise, starmap
from typing import Final, NamedTuple, cast

from paimon_stream.errors import CorruptMetadata
from paimon_stream.format.entries import FileIdentity, FileKind, ManifestFileMeta
from paimon_stream.format.snapshot_json import ManifestListRef, Snapshot, SnapshotRef
from paimon_stream.format.snapshot_marks import names_as_base
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.snapshots import SnapshotStore, Window

_PARTS: Final = 4
"""Into how many parts steps are split of which no manifest is a proof."""


class _Steps(NamedTuple):
    """Steps of a walk down.

    Attributes:
        lower: the snapshot at which the lowest step ends.
        upper: the snapshot at which the highest step begins.
    """

    lower: Snapshot
    upper: Snapshot

    @property
    def is_single(self) -> bool:
        """Whether this is one step."""
        return self.upper.id == self.lower.id + 1


def carries_on(snapshots: SnapshotStore, snapshot: Snapshot, latest: Snapshot) -> bool | None:
    """Whether an existing snapshot is the latest one, or the next snapshot was built on it. None if
    that cannot be told.

    A snapshot that changed no data file leaves no trace in the next one. Such a snapshot counts as
    part of the lineage if the next one has the same manifests. If the manifests were merged, the
    next one must be built on as many rows. If a manifest list cannot be read, an existing snapshot
    below is the proof, because that snapshot would have expired first. Without a snapshot below,
    the answer is None. Nothing is read if the next snapshot names this one as its base. Otherwise
    two manifest lists are read, and manifests only if the next commit merged them. Raises
    `StorageError`.
    """
    if snapshot.id >= latest.id:
        return True
    following = latest if latest.id == snapshot.id + 1 else snapshots.find(snapshot.id + 1)
    if following is None:
        return False  # expiry deletes upwards, so no snapshot outlives the next one
    return _is_link(snapshots, snapshot, following)


def in_lineage(snapshots: SnapshotStore, snapshot: Snapshot, latest: Snapshot) -> bool | None:
    """Whether a snapshot that exists lies in the lineage: each snapshot above it was built on the
    one below. None if that cannot be told. The snapshots between the two are not known to the
    caller; a `Descent` has seen them, and needs fewer reads. Raises `StorageError`.
    """
    if snapshot.id >= latest.id:
        return True
    return _are_proven(snapshots, [_Steps(snapshot, latest)])


class Descent:
    """A walk down the lineage, from the latest snapshot.

    A step whose lower snapshot the upper one names is proven. Any other one is checked by manifests
    only where the snapshots raise a doubt: their times go back, or their counts of rows do not add
    up. Several snapshots beside the lineage raise one at the last of them, because it was made
    after the snapshot above had been published and others had expired. A single one raises none,
    and none do if their writer's clock is behind and all have as many rows, or if another engine
    forwards main to a branch whose first snapshots have expired. So a caller that draws a
    conclusion from the last snapshot of the walk asks `ends_in_lineage`.
    """

    def __init__(self, snapshots: SnapshotStore, latest: Snapshot) -> None:
        self._snapshots = snapshots
        self._latest = latest
        self._unmarked: list[_Steps] = []

    def __iter__(self) -> Iterator[Snapshot]:
        """The snapshots of the lineage, from the latest downwards."""
        self._unmarked = []
        following: Snapshot | None = None
        for snapshot in self._snapshots.walk_down(self._latest):
            if following is not None:
                if not _seems_link(self._snapshots, snapshot, following):
                    return
                _add_unmarked(self._unmarked, snapshot, following)
            yield snapshot
            following = snapshot

    def ends_in_lineage(self) -> bool | None:
        """Whether the last snapshot that the walk has shown lies in the lineage. None if that
        cannot be told. Reads nothing where each snapshot above it names its base. Raises
        `StorageError`.
        """
        return _are_proven(self._snapshots, self._unmarked)


def newest_of(
    snapshots: SnapshotStore, latest: Snapshot, wanted: Callable[[Snapshot], bool]
) -> tuple[Snapshot | None, int]:
    """The newest snapshot of the lineage for which `wanted` is true, and the id from which on all
    snapshots were looked at. If no such snapshot was found, and that id is above 1, such a snapshot
    may have expired. Raises `StorageError`, `CorruptMetadata`.
    """
    lowest = latest
    descent = Descent(snapshots, latest)
    for lowest in descent:
        if wanted(lowest):
            break
    is_wanted = wanted(lowest)
    if (is_wanted or lowest.id == 1) and not descent.ends_in_lineage():
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
    unmarked: list[_Steps] = []
    for below, following in reversed(list(pairwise(window.snapshots))):
        _add_unmarked(unmarked, below, following)
    begins_in_lineage = _are_proven(snapshots, unmarked)
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


def _add_unmarked(collected: list[_Steps], below: Snapshot, following: Snapshot) -> None:
    """Adds the step from `following` down to `below` if no name proves it. A step right below the
    last one is added to that one.
    """
    if names_as_base(following, below):
        return
    upper = following
    if collected and collected[-1].lower is following:
        upper = collected.pop().upper
    collected.append(_Steps(below, upper))


def _are_proven(snapshots: SnapshotStore, unproven: Sequence[_Steps]) -> bool | None:
    """Whether in each of these steps the upper snapshot was built on the lower one. None if that
    cannot be told. The steps are in descending order. Raises `StorageError`.

    A later snapshot with a manifest of an earlier one's delta proves all steps between the two. So
    this reads two manifest lists where the uppermost snapshot has such a manifest. Otherwise
    writers have merged the manifests since, which they do after some dozens of commits. Then the
    steps are split into parts, and those of all parts are looked at together.
    """
    if len(unproven) > 1:
        ends = _Steps(unproven[-1].lower, unproven[0].upper)
        if not _without_manifest(snapshots, [ends]):
            return True
    while unproven:
        unproven = _without_manifest(snapshots, unproven)
        single = [steps for steps in unproven if steps.is_single]
        checks = [partial(_is_link, snapshots, below, above) for below, above in single]
        for is_link in snapshots.storage.together(checks):
            if not is_link:
                return cast("bool | None", is_link)
        split = _split(snapshots, [steps for steps in unproven if not steps.is_single])
        if split is None:
            return False  # expiry deletes upwards, and has taken one above
        unproven = [steps for steps in split if not names_as_base(steps.upper, steps.lower)]
    return True


def _split(snapshots: SnapshotStore, unproven: Sequence[_Steps]) -> list[_Steps] | None:
    """Each of these steps as parts, of which each begins where the one below ends. None if a
    snapshot is missing at which one would. Raises `StorageError`.
    """
    cuts: list[Sequence[int]] = []
    for lower, upper in unproven:
        size = -(-(upper.id - lower.id) // _PARTS)  # rounded up
        cuts.append(range(lower.id + size, upper.id, size))
    reads = [partial(snapshots.find, snapshot_id) for ids in cuts for snapshot_id in ids]
    between = iter(snapshots.storage.together(reads))
    parts: list[_Steps] = []
    for (lower, upper), ids in zip(unproven, cuts, strict=True):
        ends = [lower, *islice(between, len(ids)), upper]
        if None in ends:
            return None
        parts += starmap(_Steps, pairwise(ends))
    return parts


def _without_manifest(snapshots: SnapshotStore, unproven: Sequence[_Steps]) -> list[_Steps]:
    """Those steps whose upper snapshot has no manifest that the lower one added, or where a list is
    gone that would show it.
    """
    manifests = ManifestStore(snapshots.storage)
    added = [partial(_names_in, manifests, steps.lower.manifest_lists[1]) for steps in unproven]
    known = [partial(_names_in, manifests, steps.upper.manifest_lists[0]) for steps in unproven]
    names = snapshots.storage.together([*added, *known])
    of_both = zip(unproven, names[: len(added)], names[len(added) :], strict=True)
    return [steps for steps, below, above in of_both if below.isdisjoint(above)]


def _names_in(manifests: ManifestStore, listed: ManifestListRef) -> frozenset[str]:
    """The names of the manifests in a list. There are none if the list is missing."""
    try:
        return frozenset(meta.file_name for meta in manifests.read_list(listed.name, listed.size))
    except CorruptMetadata:
        return frozenset()


def _is_link(snapshots: SnapshotStore, snapshot: Snapshot, following: Snapshot) -> bool | None:
    """Whether the next snapshot was built on this one. None if that cannot be told."""
    if names_as_base(following, snapshot):
        return True
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
