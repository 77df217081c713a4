"""Reads in bounded memory what a snapshot needs: the names of its metadata files, and its live data
files.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

from paimon_stream.errors import CorruptMetadata, NotFound, UnknownVersion
from paimon_stream.format.avro_records import read_records
from paimon_stream.format.entries import (
    FileIdentity,
    FileKind,
    FileSource,
    ManifestEntry,
    ManifestFileMeta,
)
from paimon_stream.format.json_text import MOST_JSON
from paimon_stream.format.names import checked_name
from paimon_stream.format.snapshot_json import Snapshot, decode_snapshot, encode_snapshot
from paimon_stream.maintenance.pins import Pin, is_pin
from paimon_stream.storage.base import FileStat, PutResult, Storage, read_if_there
from paimon_stream.storage.branch import whole_of
from paimon_stream.storage.read_ahead import ReadAhead
from paimon_stream.table.layout import CHANGELOG_FOLDER, TAG_FOLDER, manifest_path
from paimon_stream.table.lineage import carries_on
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.references import NameSet, list_roots
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_TAG: Final = "tag-"
_NAME_ONLY: Final = b"""{"type": "record", "name": "record", "fields": [
    {"name": "_VERSION", "type": "int"}, {"name": "_FILE_NAME", "type": "string"}]}"""
_LIST_VERSION: Final = 2


def manifest_names(storage: Storage | ReadAhead, list_name: str) -> tuple[str, ...]:
    """The names of the manifests in a list, in order; () if the list is missing. Only the names in
    the list are decoded. Raises `StorageError`, and `CorruptMetadata` for a list that cannot be
    understood.
    """
    path = manifest_path(list_name)
    data = read_if_there(storage.read, path)
    if data is None:
        return ()
    records = read_records(data, f"{storage.location}/{path}", _NAME_ONLY, _LIST_VERSION)
    return tuple([checked_name(record["_FILE_NAME"], path) for record in records])


def metadata_names(
    storage: Storage,
    manifests: ManifestStore,
    snapshot: Snapshot,
    lists: dict[str, tuple[str, ...]] | None = None,
) -> frozenset[str]:
    """The names of all files in `manifest/`, `index/` and `statistics/` that a snapshot needs,
    without its changelog. `lists` has the manifest lists that were read before, by name. Lists that
    are read now are added to `lists`. Raises `StorageError`, and `CorruptMetadata` if a list or
    index manifest is gone or broken.
    """
    known = {} if lists is None else lists
    names = {snapshot.base_manifest_list, snapshot.delta_manifest_list}
    for list_name in (snapshot.base_manifest_list, snapshot.delta_manifest_list):
        in_list = known.get(list_name)
        if in_list is None:
            in_list = manifest_names(storage, list_name)
            if not in_list:
                # An empty list and a missing list look the same. The call raises an error if the
                # list is missing.
                manifests.read_list(list_name)
            known[list_name] = in_list
        names.update(in_list)
    if snapshot.index_manifest is not None:
        names.add(snapshot.index_manifest)
        names.update(
            entry.file.file_name for entry in manifests.index_entries(snapshot.index_manifest)
        )
    if snapshot.statistics is not None:
        names.add(snapshot.statistics)
    return frozenset(names)


def live_entries(manifests: ManifestStore, *snapshots: Snapshot) -> Iterator[ManifestEntry]:
    """The ADD entries of the files that are live in any of the snapshots, one manifest at a time. A
    manifest that several snapshots have is read once. Besides that manifest, memory holds only the
    identities of deleted files, for each snapshot. Raises `CorruptMetadata`, `StorageError`.
    """
    metas: dict[str, ManifestFileMeta] = {}
    deleted_in: dict[str, list[set[FileIdentity]]] = {}
    for snapshot in snapshots:
        deleted: set[FileIdentity] = set()
        for meta in manifests.base_and_delta(snapshot):
            metas[meta.file_name] = meta
            deleted_in.setdefault(meta.file_name, []).append(deleted)
    for name, meta in metas.items():
        if meta.num_deleted_files:
            entries = manifests.read(meta)
            gone = [entry.identity for entry in entries if entry.kind is FileKind.DELETE]
            for deleted in deleted_in[name]:
                deleted.update(gone)
    for name, meta in metas.items():
        if meta.num_added_files:
            for entry in manifests.read(meta):
                if entry.kind is FileKind.ADD and any(
                    not deleted or entry.identity not in deleted for deleted in deleted_in[name]
                ):
                    yield entry


def entries_above(
    store: SnapshotStore, manifests: ManifestStore, below: Snapshot | None, snapshot: Snapshot
) -> Iterator[ManifestEntry]:
    """Entries of a snapshot. Among them are the ADD entries of all live files that are not live in
    the snapshot `below`. If the snapshot was built on that one, only the entries of its own changes
    are read. Raises `CorruptMetadata`, `StorageError`.
    """
    if below is None or snapshot.id != below.id + 1 or not carries_on(store, below, snapshot):
        yield from live_entries(manifests, snapshot)
        return
    for meta in manifests.delta(snapshot):
        yield from manifests.read(meta)


def refuse_missing(table: Table, snapshot: Snapshot, *, data: bool = True) -> None:
    """Checks that the lists and manifests of a snapshot can be read, and that its data files exist.
    If `data` is False, no data file is looked for. Raises `CorruptMetadata`, `NotFound`,
    `StorageError`.
    """
    for entry in live_entries(ManifestStore(table.storage), snapshot):
        if data:
            table.storage.stat(table.layout.file_of(entry))  # raises if the file is missing


def refuse_beside(snapshots: SnapshotStore, wanted: Snapshot, pins: Sequence[Pin]) -> None:
    """Raises `NotFound` for a snapshot that a paused writer has created again after its id had
    expired. That writer is about to delete the snapshot. If the next snapshot cannot be read, such
    a case is not noticed. A snapshot with a pin is accepted, because an interrupted rollback
    restored it below snapshots that were still to be removed. Raises `StorageError`.
    """
    if any(pin.snapshot is not None and pin.snapshot.nonce == wanted.nonce for pin in pins):
        return
    try:
        following = snapshots.find(wanted.id + 1)
    except (CorruptMetadata, UnknownVersion):
        return
    if following is None:  # expiry deletes upwards, so no snapshot is left below an expired id
        ids = snapshots.ids()
        is_oldest = bool(ids) and ids[0] == wanted.id
        # The next snapshot may have been published since it was looked for.
        is_stray = is_oldest and ids[-1] > wanted.id and wanted.id + 1 not in ids
    else:
        is_stray = carries_on(snapshots, wanted, following) is False
    if is_stray:
        later = "" if following is None else f" Take snapshot {following.id} or a later one."
        raise NotFound(
            f"snapshot {wanted.id} is not part of the table. The next one was not built on it: a "
            f"paused writer created it again after its id had expired. Nothing was changed.{later}",
            snapshot=wanted.id,
        ).of_table(snapshots.location)


def without_changelog(snapshot: Snapshot) -> Snapshot:
    """The snapshot without its changelog, as a tag keeps it. The changelog expires with the
    snapshot's own file (semantics.md §8).
    """
    return replace(
        snapshot,
        changelog_manifest_list=None,
        changelog_manifest_list_size=None,
        changelog_record_count=None,
    )


class ChangelogStore(SnapshotStore):
    """The changelogs that outlive their snapshots. Their files hold what the files of expired
    snapshots held (semantics.md §8).
    """

    folder = CHANGELOG_FOLDER

    def keep(self, snapshot: Snapshot, following: Snapshot) -> None:
        """Writes the changelog of a snapshot that expires. Another changelog may have the same id,
        because a rollback missed it. That changelog is replaced if the snapshot is part of the
        table. Otherwise a paused writer created the snapshot again, and the changelog stays. Raises
        `StorageError`.
        """
        differs = self.create_snapshot(snapshot) is PutResult.EXISTS and not self.stands(snapshot)
        if differs and carries_on(SnapshotStore(self.storage), snapshot, following):
            self.storage.write(self.path(snapshot.id), encode_snapshot(snapshot))


def changelog_needs(
    storage: Storage, manifests: ManifestStore, changelog: Snapshot
) -> tuple[set[str], set[str]]:
    """The names of the metadata that a long-lived changelog has, and of the data files whose rows
    are its changes. Metadata that has expired is left out. Raises `StorageError`, and
    `CorruptMetadata` for a broken list.
    """
    names = {
        name
        for list_name, _ in changelog.manifest_lists
        for name in (list_name, *manifest_names(storage, list_name))
    }
    files: set[str] = set()
    if changelog.changelog_manifest_list is not None:
        return names, files  # the changes are in files of their own, which nobody else has
    with suppress(CorruptMetadata):
        for meta in manifests.delta(changelog):
            for entry in manifests.read(meta):
                if entry.kind is FileKind.ADD and entry.file.file_source != FileSource.COMPACT:
                    files.update((entry.file.file_name, *entry.file.extra_files))
    return names, files


def tag_names(storage: Storage) -> list[str]:
    """The names of all tags except pins."""
    names = (name[len(_TAG) :] for name in storage.list_names(TAG_FOLDER, _TAG))
    return [name for name in names if not is_pin(name)]


class OtherBranches:
    """The snapshots, tags and long-lived changelogs of all branches, main included, other than the
    branch at work. The branches share all files. No file may be deleted that a root of another
    branch needs. A snapshot, tag or changelog that was seen once keeps its files, even if it
    expires meanwhile.

    Attributes:
        metadata: the names of files in `manifest/`, `index/` and `statistics/` that the other
            branches need.
    """

    def __init__(self, storage: Storage, manifests: ManifestStore) -> None:
        self._storage = storage
        self._manifests = manifests
        self._table_storage = whole_of(storage)
        """The storage of all branches."""
        self._roots: dict[FileStat, tuple[str, Snapshot]] = {}
        """The folder of each root, and its snapshot."""
        self._unread: set[FileStat] = set()
        """The roots whose live files were not read yet."""
        self._live = NameSet()
        """The names of the live files that were read."""
        self.metadata: frozenset[str] = frozenset()

    def look(self) -> None:
        """Reads the snapshots, tags and changelogs of other branches that are new since the last
        call. Raises `CorruptMetadata`, `StorageError`.
        """
        for root in list_roots(self._storage, others=True):
            stat = root.stat
            if stat in self._roots:
                continue
            with self._unless_gone(stat):
                snapshot = decode_snapshot(
                    self._table_storage.read(stat.path, MOST_JSON), stat.path
                )
                if root.folder == CHANGELOG_FOLDER:
                    names, files = changelog_needs(self._storage, self._manifests, snapshot)
                    self.metadata |= names
                    self._live.add(files)
                else:
                    self.metadata |= metadata_names(self._storage, self._manifests, snapshot)
                    self._unread.add(stat)
                self._roots[stat] = (root.branch + root.folder, snapshot)

    def live_names(self) -> NameSet:
        """The names of all data files and extra files that the snapshots, tags and changelogs of
        other branches need. If a snapshot was built on the one below it in its branch, only the
        entries of its own changes are read. Raises `CorruptMetadata`, `StorageError`.
        """
        store = SnapshotStore(self._table_storage)
        below: tuple[str, int] | None = None
        snapshot_below: Snapshot | None = None
        by_folder = sorted(self._roots.items(), key=lambda root: (root[1][0], root[1][1].id))
        for stat, (folder, snapshot) in by_folder:
            if below != (folder, snapshot.id - 1):
                snapshot_below = None
            if stat in self._unread:
                with self._unless_gone(stat):
                    for entry in entries_above(store, self._manifests, snapshot_below, snapshot):
                        if entry.kind is FileKind.ADD:
                            self._live.add((entry.file.file_name, *entry.file.extra_files))
                    self._unread.discard(stat)
            is_read = stat not in self._unread
            below = (folder, snapshot.id) if is_read else None
            snapshot_below = snapshot if is_read else None
        return self._live

    def changelogs(self) -> set[str]:
        """The changelog lists of the snapshots in other branches, if the branch at work is not
        main. In main, a changelog list expires with its snapshot.
        """
        if self._table_storage is self._storage:
            return set()
        return {
            snapshot.changelog_manifest_list
            for _, snapshot in self._roots.values()
            if snapshot.changelog_manifest_list
        }

    @contextmanager
    def _unless_gone(self, stat: FileStat) -> Iterator[None]:
        """A context that ignores a snapshot or tag which was deleted since the listing. The files
        of such a snapshot or tag may be gone, too.
        """
        try:
            yield
        except (NotFound, CorruptMetadata):
            if self._table_storage.exists(stat.path):
                raise
