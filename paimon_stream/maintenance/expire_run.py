"""One run of snapshot expiry: what is deleted with each snapshot, and in which order (semantics.md §8).

Snapshots are expired one at a time, oldest first. For snapshot K, a note is written and K's own file is
deleted; only then are the tags read. After that, these are deleted in this order: the data files that the
next snapshot deleted; K's changelog files; the manifests, lists, index files and statistics that the next
snapshot does not use; the note. No file is deleted that a tag, a branch or a journal refers to. At the end
EARLIEST is set.

Before each of these steps the history is looked at again, because a rollback may have changed it. No snapshot
is begun while a rollback has a pin (`pins.py`), or after the newest snapshot that the range was computed from
has gone. Files are deleted only while K is gone and the next snapshot exists. If K's own file was deleted
after a rollback to K, K is restored.

So at every moment each existing snapshot and tag is whole. A kill at any point leaves files that nothing
refers to, and a note: the next run finishes the work (`expiring.py`). Names are never reused, so deleting
twice is harmless.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from paimon_stream.errors import CorruptMetadata, FormatError
from paimon_stream.format.entries import FileKind, ManifestEntry, ManifestFileMeta
from paimon_stream.format.snapshot_json import Snapshot, encode_snapshot
from paimon_stream.maintenance.expiring import ExpiringNotes
from paimon_stream.maintenance.needed import (
    branch_snapshots,
    live_entries,
    manifest_names,
    metadata_names,
)
from paimon_stream.maintenance.pins import read_pins
from paimon_stream.maintenance.removal import Remover
from paimon_stream.storage.base import FileStat, Storage, parents
from paimon_stream.table.layout import TAG_FOLDER, manifest_path, snapshot_path, statistics_path
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.references import NameSet, branches, journalled_names, read_tag
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

__all__ = ["Begun", "Cleaner"]

_LOG = logging.getLogger(__name__)
_CHUNK = 1000


class Begun(Enum):
    """What became of the beginning of a snapshot's expiry."""

    YES = "its file is deleted"
    TAKEN = "another expirer took it"
    STOPPED = "the history changed, or a rollback is under way: nothing further may expire"


class _HistoryChanged(Exception):
    """A rollback or another expirer changed the history, so nothing more may be deleted for a snapshot."""


@dataclass(slots=True, kw_only=True)
class Cleaner:
    """Removes what only expired snapshots need. Each run has its own; `remover` counts and deletes."""

    table: Table
    storage: Storage
    snapshots: SnapshotStore
    manifests: ManifestStore
    remover: Remover
    clean_folders: bool = False
    notes: ExpiringNotes = field(init=False)
    _tags: dict[FileStat, Snapshot] = field(default_factory=dict)
    _tag_names: dict[str, frozenset[str]] = field(default_factory=dict)
    _tag_files: tuple[int, str, NameSet] | None = None
    _lists: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _branches: list[Snapshot] = field(default_factory=list)
    _branches_read: list[str] = field(default_factory=lambda: [""])  # the table's own folder
    _branch_names: frozenset[str] = frozenset()
    _branch_files: NameSet | None = None
    _journalled: NameSet | None = None
    _folders: set[str] = field(default_factory=set)
    _at: tuple[Snapshot, Snapshot] | None = None  # what expires, and what follows

    def __post_init__(self) -> None:
        self.notes = ExpiringNotes(self.storage)

    def begin(self, oldest: Snapshot, following: Snapshot, newest: Snapshot) -> Begun:
        """Removes the file of the snapshot `oldest`; `following` is the next snapshot that exists. From then
        on nobody can tag `oldest`, so the set of its tags can be read. `newest` is the newest snapshot of the
        history that the range was computed from.

        Raises `StorageError`; then the snapshot exists, or its note does.
        """
        path = snapshot_path(oldest.id)
        if self.remover.dry_run:
            self.remover.remove_first("snapshot", path)
            return Begun.YES
        if not self.snapshots.exists(oldest.id):
            return Begun.TAKEN
        self.notes.write(oldest, following)
        if read_pins(self.storage) or not self._is_history(oldest, newest):
            self.notes.drop(oldest.id)
            return Begun.STOPPED
        self.remover.remove_first("snapshot", path)
        if self.snapshots.stands(following) or self.snapshots.stands(newest):
            return Begun.YES
        if not self.snapshots.ids():  # a rollback to `oldest` ended in the meantime
            self.storage.put_if_absent(path, encode_snapshot(oldest))
        self.notes.drop(oldest.id)
        return Begun.STOPPED

    def finish(self, oldest: Snapshot, following: Snapshot) -> bool:
        """Removes what only `oldest` needed. Its own file is already gone. Returns whether all of it was
        removed; otherwise the history changed, and the next run judges the note.

        Raises `StorageError`; the next run then deletes what was not deleted.
        """
        self._at = (oldest, following)
        try:
            self.refresh_tags()
            self._delete_replaced_files(following)
            if oldest.changelog_manifest_list is not None:
                self._delete_changelog(oldest.changelog_manifest_list)
            if self.clean_folders:
                self._clean_folders()
            kept = self._names_kept(oldest, following)
            if kept is not None:
                self._delete_metadata(oldest, kept)
        except _HistoryChanged:
            return False
        finally:
            self._at = None
        for name in (oldest.base_manifest_list, oldest.delta_manifest_list):
            self._lists.pop(name, None)
        if not self.remover.dry_run:
            self.notes.drop(oldest.id)
        return True

    def _is_history(self, oldest: Snapshot, newest: Snapshot) -> bool:
        """Whether no rollback has changed the history since it was read. Rollbacks remove the newest snapshot
        first. `oldest` may be gone: another expirer took it."""
        there = self.snapshots.find(oldest.id)
        return (there is None or there.nonce == oldest.nonce) and self.snapshots.stands(newest)

    def _remove(self, kind: str, paths: Iterable[str]) -> None:
        """Deletes files, if the history is still the one in which they were found unused."""
        wanted = list(paths)
        if wanted and self._at is not None and not self.remover.dry_run:
            oldest, following = self._at
            if self.snapshots.exists(oldest.id) or not self.snapshots.stands(following):
                raise _HistoryChanged
        self.remover.remove(kind, wanted)

    def remove_tagged(self, tag: Snapshot, neighbours: Sequence[Snapshot]) -> None:
        """Removes what a tag needed whose file is gone and whose snapshot has expired. `neighbours` are the
        tag or snapshot before it and the one after it: a file that neither has, no other has.

        Raises `CorruptMetadata` if they cannot be read, and nothing was deleted; `StorageError`.
        """
        self.refresh_tags()
        kept = self._branch_names
        for one in neighbours:
            kept |= metadata_names(self.storage, self.manifests, one)
        live = self._live_names(neighbours)
        sets = (live, self._journal_names(), self._files_of_branches())
        gone = (
            path
            for entry in live_entries(self.manifests, tag)
            if not any(entry.file.file_name in names for names in sets)
            for path in self._paths(entry)
        )
        for paths in _chunked(gone):
            self._remove("data", paths)
        if self.clean_folders:
            self._clean_folders()
        self._delete_metadata(dataclasses.replace(tag, changelog_manifest_list=None), kept)

    # -- what others refer to ---------------------------------------------------------------------

    def refresh_tags(self) -> None:
        """Reads which branches and tags exist now: one may have been made since the last snapshot was
        removed. Raises `CorruptMetadata`, `UnknownVersion`, `StorageError`."""
        named = branches(self.storage)
        if named != self._branches_read:
            self._branches_read, self._branches = named, branch_snapshots(self.storage)
            self._branch_files, self._branch_names = None, frozenset()
            for one in self._branches:
                self._branch_names |= metadata_names(self.storage, self.manifests, one)
        before, self._tags = self._tags, {}
        for stat in self.storage.list_files(TAG_FOLDER, "tag-"):
            found = before.get(stat) or read_tag(self.storage, stat.path)
            if found is not None:
                self._tags[stat] = found

    def _tag_at(self, snapshot_id: int) -> Snapshot | None:
        """The tagged snapshot with the largest id up to this one. It has everything that an older tag shares
        with a snapshot that exists now."""
        below = [one for one in self._tags.values() if one.id <= snapshot_id]
        return max(below, key=lambda one: one.id, default=None)

    def _tag_above(self, snapshot_id: int) -> Snapshot | None:
        """The tagged snapshot with the smallest id above this one."""
        above = [one for one in self._tags.values() if one.id > snapshot_id]
        return min(above, key=lambda one: one.id, default=None)

    def _names_kept(self, oldest: Snapshot, following: Snapshot) -> frozenset[str] | None:
        """The metadata that is kept when all from `oldest` up to `following` is removed; None if that cannot
        be determined. The tags next to `oldest` count as well, for it may lie beside the lineage."""
        tags = self._tag_at(oldest.id), self._tag_above(oldest.id), self._tag_at(following.id - 1)
        try:
            kept = metadata_names(self.storage, self.manifests, following, self._lists) | self._branch_names
            before, self._tag_names = self._tag_names, {}
            for tag in tags:
                if tag is not None and tag.nonce not in self._tag_names:
                    names = before.get(tag.nonce) or metadata_names(self.storage, self.manifests, tag)
                    self._tag_names[tag.nonce] = names
                    kept |= names
            return kept
        except CorruptMetadata as why:
            _LOG.warning(
                "%s: metadata of the snapshot before %d stays as orphans; what is needed cannot be read: %s",
                self.storage.location,
                following.id,
                why,
            )
            return None

    def _protected(self, snapshot_id: int) -> Callable[[str], bool]:
        """Returns a function that checks whether a tag, branch or journal refers to a data file that a
        snapshot deleted."""
        sets = [self._journal_names(), self._files_of_branches()]
        tag = self._tag_at(snapshot_id)
        if tag is not None:
            if self._tag_files is None or self._tag_files[:2] != (tag.id, tag.nonce):
                self._tag_files = (tag.id, tag.nonce, self._live_names([tag]))
            sets.append(self._tag_files[2])
        return lambda name: any(name in one for one in sets)

    def _live_names(self, snapshots: Sequence[Snapshot]) -> NameSet:
        names = NameSet()
        for snapshot in snapshots:
            for entry in live_entries(self.manifests, snapshot):
                names.add((entry.file.file_name, *entry.file.extra_files))
        return names

    def _files_of_branches(self) -> NameSet:
        if self._branch_files is None:
            self._branch_files = self._live_names(self._branches)
        return self._branch_files

    def _journal_names(self) -> NameSet:
        if self._journalled is None:
            self._journalled = NameSet()
            self._journalled.add(journalled_names(self.storage))
        return self._journalled

    # -- what goes --------------------------------------------------------------------------------

    def _delete_replaced_files(self, following: Snapshot) -> None:
        """Deletes the data files that `following` deleted. A file that it added again, on another level, is
        live."""
        try:
            metas = self.manifests.delta(following)
            self._lists[following.delta_manifest_list] = tuple(one.file_name for one in metas)
            if not any(meta.num_deleted_files for meta in metas):
                return
            protected = self._protected(following.id - 1)
            added = NameSet()
            for meta in metas:
                if meta.num_added_files:
                    entries = self.manifests.read(meta)
                    added.add(one.file.file_name for one in entries if one.kind is FileKind.ADD)
            for paths in _chunked(self._deleted_paths(metas, added, protected)):
                self._remove("data", paths)
        except CorruptMetadata as why:
            _LOG.warning(
                "%s: data files that snapshot %d replaced stay as orphans, because it cannot be read: %s",
                self.storage.location,
                following.id,
                why,
            )

    def _deleted_paths(
        self, metas: Sequence[ManifestFileMeta], added: NameSet, protected: Callable[[str], bool]
    ) -> Iterator[str]:
        for meta in metas:
            if not meta.num_deleted_files:
                continue
            for entry in self.manifests.read(meta):
                name = entry.file.file_name
                if entry.kind is FileKind.DELETE and name not in added and not protected(name):
                    yield from self._paths(entry)

    def _paths(self, entry: ManifestEntry) -> Iterator[str]:
        """The file and the files beside it. None for a file outside the table, which is kept, and for one
        that the table cannot have."""
        if entry.file.external_path is not None:
            return
        layout = self.table.layout
        try:
            folder = layout.bucket_folder(entry.partition, entry.bucket)
        except FormatError as why:
            self.remover.pass_over(why)
            return
        self._folders.add(folder)
        for name in (entry.file.file_name, *entry.file.extra_files):
            try:
                yield layout.in_folder(folder, name)
            except CorruptMetadata as why:
                self.remover.pass_over(why)

    def _delete_changelog(self, list_name: str) -> None:
        """Deletes the changelog files of a snapshot."""
        try:
            metas = self.manifests.read_list(list_name)
        except CorruptMetadata:
            metas = ()
        for meta in metas:
            try:
                entries = self.manifests.read(meta)
            except CorruptMetadata:
                continue
            added = (path for one in entries if one.kind is FileKind.ADD for path in self._paths(one))
            self._remove("changelog", added)

    def _clean_folders(self) -> None:
        """Deletes empty bucket folders, then the empty partition folders above them, deepest first."""
        above: set[str] = set()
        keep = {self.table.layout.directory, *parents(self.table.layout.directory)}
        for folder in sorted(self._folders):
            self.remover.remove_uncounted(folder)
            above.update(one for one in parents(folder) if one not in keep)
        for folder in sorted(above, key=lambda one: (-one.count("/"), one)):
            self.remover.remove_uncounted(folder)
        self._folders.clear()

    def _delete_metadata(self, oldest: Snapshot, kept: frozenset[str]) -> None:
        lists = [oldest.base_manifest_list, oldest.delta_manifest_list]
        if oldest.changelog_manifest_list is not None:
            lists.append(oldest.changelog_manifest_list)
        gone: set[str] = set()
        for name in lists:
            try:
                named = self._lists.get(name) or manifest_names(self.storage, name)
                found = [one for one in named if one not in kept]
            except CorruptMetadata:
                found = []
            wanted = [one for one in found if one not in gone]
            gone.update(wanted)
            self._remove("manifest", map(manifest_path, wanted))
            if name not in kept:
                self._remove("manifest list", [manifest_path(name)])
        self._delete_index(oldest, kept)
        if oldest.statistics is not None and oldest.statistics not in kept:
            self._remove("statistics", [statistics_path(oldest.statistics)])

    def _delete_index(self, oldest: Snapshot, kept: frozenset[str]) -> None:
        if oldest.index_manifest is None or oldest.index_manifest in kept:
            return
        try:
            entries = self.manifests.index_entries(oldest.index_manifest)
        except CorruptMetadata:
            entries = ()
        paths = []
        for entry in entries:
            name = entry.file.file_name
            if name in kept or entry.file.external_path is not None:
                continue
            try:
                paths.append(self.table.layout.index_file(entry.partition, entry.bucket, entry.file))
            except FormatError as why:
                self.remover.pass_over(why)
        self._remove("index", paths)
        self._remove("index manifest", [manifest_path(oldest.index_manifest)])


def _chunked(paths: Iterator[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    for path in paths:
        chunk.append(path)
        if len(chunk) >= _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
