"""Deletes the files of expired snapshots. This module says which files are deleted with each
snapshot, and in which order (semantics.md §8). `Remover` in `expiring.py` deletes the files.

Invariants: at every moment each existing snapshot and tag is whole. No file is deleted that a tag's
rows need, or to which a branch or a journal refers. A kill at any point leaves files that nothing
refers to, and notes, from which the next run finishes the work (`expiring.py`). Names are never
reused, so deleting twice is harmless.

Snapshots expire in groups of consecutive ones, oldest first (`expire.py`). For each group, in this
order:

1. A note is written for each snapshot. `own_files.py` has this step and the next two.
2. If changelogs outlive their snapshots, the changelogs of the group are written.
3. The snapshots' own files are deleted, one after the other. After that, nobody can tag one of
   them.
4. The tags and the other branches are read.
5. Data files are deleted: those that a later snapshot of the group, or the snapshot that follows
   the group, removed from the table. Then the changelog files are deleted, unless changelogs
   outlive their snapshots.
6. Manifests and index files are deleted if neither the following snapshot nor a tag or branch uses
   them. After that, the lists and index manifests that named these files are deleted, and the
   statistics.
7. The notes are removed. If another expirer has removed the whole group, the notes stay until the
   group is finished by one of the two.

At the end of the run EARLIEST is set (`expire.py`). A snapshot below a gap in the ids is beside the
lineage. The snapshot is removed, but the data files that it replaced stay, because they may be live
(`_linked`). Changelogs that outlive their snapshots expire at the end of the run, in groups, too.
The changelogs' own files are removed last, so that after a kill the next run finds the rest without
a note.

Before each step the history is looked at again, because a rollback may have changed it. Files are
deleted only while the group is gone and the following snapshot exists.

A group can expire as safely as single snapshots, for these reasons:

- The snapshots' own files are deleted one after the other, behind all notes (`own_files.py`).
- The tags are read when all of the group is gone. A process that makes a tag checks afterwards
  whether the tag's snapshot stands, and otherwise removes the tag (`tags.py`). So only the tags
  that are read then can ever keep a file of the group. Each later step spares the files of these
  tags.
- A file that two snapshots of the group share is unused if neither the following snapshot nor a tag
  up to that snapshot uses it. The files of one step refer to nothing in the same step: a list is
  deleted after its manifests, and manifests are deleted after the data files. So within a step the
  order does not matter, and after a kill the next run still finds what is left.
- One look holds for up to 1,000 data files, changelog files or manifests, and for all index files,
  lists, index manifests or statistics of a group. Only a rollback to the group could make these
  files needed again. Their deletion takes seconds, and the notes hold off a rollback for five
  minutes.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final, TypeVar

from paimon_stream.errors import CorruptMetadata, FormatError
from paimon_stream.format.entries import FileKind, FileSource, ManifestEntry, ManifestFileMeta
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.maintenance import needed
from paimon_stream.maintenance.expiring import ExpiringNotes, Remover
from paimon_stream.maintenance.files_of_tags import FilesOfTags
from paimon_stream.maintenance.kept_files import ChangelogRetention, KeptFiles
from paimon_stream.maintenance.own_files import OwnFiles
from paimon_stream.maintenance.pins import read_pins
from paimon_stream.options import (
    CLEAN_EMPTY_DIRECTORIES,
    FILE_OPERATION_THREADS,
)
from paimon_stream.runtime import Clock, system
from paimon_stream.storage.base import Storage, parents
from paimon_stream.storage.external import split_root
from paimon_stream.storage.read_ahead import ReadAhead, in_groups
from paimon_stream.table.layout import (
    manifest_path,
    statistics_path,
)
from paimon_stream.table.lineage import carries_on
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.references import NameSet
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_Of = TypeVar("_Of")
_T = TypeVar("_T")

_LOG = logging.getLogger(__name__)
_CHUNK: Final = 1000
"""For how many files one look at the history holds."""
_ALL_LISTS: Final = 3
"""A snapshot's lists are those of its base, of its delta and of its changelog, in this order."""
_WITHOUT_CHANGELOG: Final = 2


class _HistoryChanged(Exception):
    """The history has changed because of a rollback or another expirer. So no further file of a
    snapshot may be deleted.
    """


@dataclass(frozen=True, slots=True)
class _GuardedRemover:
    """Deletes files, as long as the history is the one in which the files were found to be
    unused.
    """

    remover: Remover
    has_changed: Callable[[], bool]
    """Whether files that were found unused may be needed again."""

    def remove(self, kind: str, paths: Iterable[str]) -> None:
        """Deletes files. Raises `_HistoryChanged` if the history has changed, and `Unavailable`."""
        wanted = list(paths)
        if wanted and not self.remover.dry_run and self.has_changed():
            raise _HistoryChanged
        self.remover.remove(kind, wanted)


class _EmptiedFolders:
    """The bucket folders from which files are deleted, until they are cleaned."""

    def __init__(self, table: Table, remover: Remover) -> None:
        self._table = table
        self._remover = remover
        self._folders: set[str] = set()

    def add(self, folder: str) -> None:
        """Notes that a file in the folder is going to be deleted."""
        self._folders.add(folder)

    def clean(self) -> None:
        """Deletes the noted folders that are empty, if the options say so, and then the empty
        partition folders above them, deepest first. Forgets all folders.
        """
        table = self._table
        emptied = sorted(self._folders)
        self._folders.clear()
        if not (table.options.value(CLEAN_EMPTY_DIRECTORIES) and table.storage.has_folders):
            return
        above: set[str] = set()
        keep = {table.layout.directory, *parents(table.layout.directory)}
        for folder in emptied:
            self._remover.remove_uncounted(folder)
            root, inner = split_root(folder)
            above.update(root + parent for parent in parents(inner) if parent not in keep)
        for folder in sorted(above, key=lambda folder: (-folder.count("/"), folder)):
            self._remover.remove_uncounted(folder)


class Cleaner:
    """Removes the files that only expired snapshots need, in the order that this module describes.
    Each run has its own `Cleaner`.
    """

    def __init__(
        self,
        table: Table,
        snapshots: SnapshotStore,
        *,
        dry_run: bool = False,
        clock: Clock | None = None,
        of_tags: FilesOfTags | None = None,
    ) -> None:
        """Prepares a run.

        Args:
            table: the table.
            snapshots: its snapshots.
            dry_run: only counts what would be deleted.
            clock: measures how old a look at the history is. None: that of the system.
            of_tags: what earlier runs have read of the tags. None: nothing.
        """
        self.table = table
        self.snapshots = snapshots
        self.remover = Remover(self.storage, dry_run, table.options.value(FILE_OPERATION_THREADS))
        """Counts and deletes."""
        self.notes = ExpiringNotes(self.storage)
        """The notes of snapshots whose expiry has begun."""
        self.changelogs = needed.ChangelogStore(self.storage)
        """The long-lived changelogs."""
        self.manifests = ManifestStore(self.storage)
        self._retention = ChangelogRetention.of(table.schema)
        """Follows the table's own options. A writer's options must not delete what the table's
        options keep.
        """
        self._ahead = ReadAhead(self.storage)
        """Reads lists and manifests before they are needed."""
        self._lists: dict[str, tuple[str, ...]] = {}
        """The manifests in the lists that were read, by the name of the list."""
        self.kept = KeptFiles(
            table, self.manifests, self.changelogs, self._lists, of_tags or FilesOfTags()
        )
        """What must stay."""
        self._emptied = _EmptiedFolders(table, self.remover)
        kept_changelogs = self.changelogs if self._retention.outlive else None
        self.own_files = OwnFiles(
            snapshots,
            self.remover,
            self.kept,
            self._ahead,
            self._lists,
            clock or system().clock,
            kept_changelogs,
        )
        """Removes the snapshots' own files, before the rest."""

    @property
    def storage(self) -> Storage:
        """The storage of the table."""
        return self.table.storage

    def finish(
        self, gone: Sequence[Snapshot], following: Snapshot, *, resumed: bool = False
    ) -> None:
        """Removes the files that only the snapshots `gone` needed. If the history changes, the
        removal stops, and the next run acts on the notes.

        Args:
            gone: consecutive snapshots whose own files are gone.
            following: the snapshot after these.
            resumed: whether another run, which was interrupted or is at work, may have removed some
                files.

        Raises:
            StorageError: the storage fails. The next run deletes what is left, except single files
                that could not be deleted (`Remover`).
        """
        guarded = _GuardedRemover(self.remover, partial(self._is_back, gone, following))
        try:
            self.kept.refresh_tags()
            metadata_of_changelogs, files_of_changelogs = self.kept.older_changelogs()
            may_be_gone = gone if resumed else ()
            replaced = self._replaced_files(
                _linked([*gone, following]),
                may_be_gone,
                files_of_changelogs,
                appended_stay=self._retention.with_appended,
            )
            without_changelogs = () if self._retention.outlive else gone
            self._remove_rows(guarded, replaced, without_changelogs)
            kept = self.kept.names_kept(following)
            if kept is not None:
                kept |= metadata_of_changelogs
                self._delete_metadata(guarded, gone, kept, self._expiring_lists)
        except _HistoryChanged:
            return
        finally:
            self._ahead.forget()
        for snapshot in gone:
            for name in (snapshot.base_manifest_list, snapshot.delta_manifest_list):
                self._lists.pop(name, None)
        if not self.remover.dry_run:
            self.notes.drop(*(snapshot.id for snapshot in gone))

    def finish_changelogs(
        self, gone: Sequence[Snapshot], following: Snapshot, earliest: Snapshot
    ) -> None:
        """Removes long-lived changelogs, after the files that only these need. The changelogs' own
        files are removed last, so that the next run can finish a run that was killed. Only a
        rollback to a tag could make data files needed again, and the tag itself keeps these files.

        Args:
            gone: the changelogs, which are consecutive.
            following: the changelog after these.
            earliest: the oldest snapshot.

        Raises:
            StorageError: the storage fails.
        """
        guarded = _GuardedRemover(self.remover, lambda: bool(read_pins(self.storage)))
        try:
            self.kept.refresh_tags()
            kept = self.kept.names_kept(earliest)
            if kept is None:
                return
            metadata, _ = needed.changelog_needs(self.storage, self.manifests, following)
            kept |= metadata
            # A changelog beside the lineage may have replaced files that are live.
            linked = [
                changelog
                for changelog, after in pairwise([*gone, following])
                if carries_on(self.changelogs, changelog, after) is not False
            ]
            replaced = self._replaced_files(linked, gone, NameSet(), appended_stay=False)
            self._remove_rows(guarded, replaced, gone)
            self._delete_metadata(guarded, gone, kept, _ALL_LISTS)
            guarded.remove(
                "long-lived changelog", [self.changelogs.path(changelog.id) for changelog in gone]
            )
        except _HistoryChanged:
            return
        finally:
            self._ahead.forget()

    @property
    def _expiring_lists(self) -> int:
        """The number of a snapshot's manifest lists that expire with the snapshot
        (`_ALL_LISTS`).
        """
        if self._retention.with_appended:
            return 0
        return _WITHOUT_CHANGELOG if self._retention.outlive else _ALL_LISTS

    def _remove_rows(
        self, guarded: _GuardedRemover, replaced: Iterator[str], gone: Sequence[Snapshot]
    ) -> None:
        """Removes the data files `replaced`, the changelog files of the snapshots `gone`, and
        folders that are empty after that.
        """
        for kind, files in (("data", replaced), ("changelog", self._changelog_files(gone))):
            for paths in in_groups(files, _CHUNK):
                guarded.remove(kind, paths)
        self._emptied.clean()

    def _is_back(self, gone: Sequence[Snapshot], following: Snapshot) -> bool:
        """Whether one of the snapshots `gone` exists again, or the following snapshot no longer
        exists.
        """
        store = self.snapshots
        ids = {snapshot.id for snapshot in gone}

        def any_exists() -> bool:
            if len(ids) == 1:
                return store.exists(*ids)
            return not ids.isdisjoint(store.ids())

        looks: list[Callable[[], bool]] = [any_exists, partial(store.stands, following)]
        is_back, stands = self.storage.together(looks)
        return is_back or not stands

    def _is_wanted(self, tag: Snapshot) -> bool:
        """Whether a rollback has a pin, or has restored the snapshot of a deleted tag."""
        pins, stands = self.storage.together(
            [partial(read_pins, self.storage), partial(self.snapshots.stands, tag)]
        )
        return bool(pins) or stands

    def remove_tagged(self, tag: Snapshot, history: Sequence[Snapshot]) -> None:
        """Removes the files that only a deleted tag needed. Stops if a rollback has a pin, or has
        restored the tag's snapshot.

        Args:
            tag: the tagged snapshot, which has expired. The tag's file is gone.
            history: the snapshots of the table, ascending. Those that have expired meanwhile are
                left out.

        Raises:
            CorruptMetadata: a snapshot or another tag cannot be read. Nothing was deleted.
            StorageError: the storage fails.
        """
        guarded = _GuardedRemover(self.remover, partial(self._is_wanted, tag))
        self.kept.refresh_tags()
        kept = self.kept.branches.metadata | self.kept.metadata_of_tags()
        metadata_of_history, live = self.kept.files_of_history(self.snapshots, history)
        kept |= metadata_of_history
        for changelog in filter(None, map(self.changelogs.find, self.changelogs.ids())):
            names, files = needed.changelog_needs(self.storage, self.manifests, changelog)
            kept |= names
            live.add(files)
        sets = (
            live,
            self.kept.live_names_of_tags(),
            self.kept.journal_names(),
            self.kept.branches.live_names(),
        )

        def unused() -> Iterator[str]:
            for entry in needed.live_entries(self.manifests, tag):
                if not any(entry.file.file_name in names for names in sets):
                    yield from self._paths(entry)

        try:
            self._remove_rows(guarded, unused(), ())
            self._delete_metadata(guarded, [tag], kept, _WITHOUT_CHANGELOG)
        except _HistoryChanged:
            _LOG.warning(
                "%s: a rollback began, so files of a deleted tag stay as orphans.",
                self.storage.location,
            )

    def _replaced_files(
        self,
        followings: Sequence[Snapshot],
        may_be_gone: Sequence[Snapshot],
        of_changelogs: NameSet,
        *,
        appended_stay: bool,
    ) -> Iterator[str]:
        """The data files that snapshots deleted and that nothing else needs. A file that one of
        these snapshots added again, on another level, is left out, because it is live.

        Args:
            followings: the snapshots that deleted the files.
            may_be_gone: the snapshots among these whose lists and manifests an interrupted run may
                have deleted.
            of_changelogs: data files that long-lived changelogs need.
            appended_stay: whether all appended files stay with their changelogs.
        """
        self._ahead.expect(
            [(manifest_path(snapshot.delta_manifest_list), 0) for snapshot in followings]
        )
        deltas: list[tuple[Snapshot, tuple[ManifestFileMeta, ...]]] = []
        for snapshot in followings:
            metas = self._delta(snapshot, may_be_gone=snapshot in may_be_gone)
            if any(meta.num_deleted_files for meta in metas):
                deltas.append((snapshot, metas))
        self._ahead.expect(
            (manifest_path(meta.file_name), meta.file_size) for _, metas in deltas for meta in metas
        )
        if not deltas:
            return
        try:
            protected = self.kept.protected(of_changelogs)
        except CorruptMetadata as error:
            _LOG.warning(
                "%s: data files that snapshots %d to %d replaced stay as orphans; what is needed "
                "cannot be read: %s",
                self.storage.location,
                deltas[0][0].id,
                deltas[-1][0].id,
                error,
            )
            return
        for snapshot, metas in deltas:
            try:
                for entry in self._deleted_entries(metas):
                    is_appended = entry.file.file_source != FileSource.COMPACT
                    if appended_stay and is_appended:
                        continue
                    if not protected(entry.file.file_name):
                        yield from self._paths(entry)
            except CorruptMetadata as error:
                names = [meta.file_name for meta in metas]
                self._left(snapshot, error, names, may_be_gone=snapshot in may_be_gone)

    def _delta(self, following: Snapshot, *, may_be_gone: bool) -> tuple[ManifestFileMeta, ...]:
        """The manifests of a snapshot's changes. There are none if the list cannot be read.
        `may_be_gone` says whether an interrupted run may have deleted the list.
        """
        try:
            metas = ManifestStore(self._ahead).delta(following)
        except CorruptMetadata as error:
            names = [following.delta_manifest_list]
            self._left(following, error, names, may_be_gone=may_be_gone)
            return ()
        self._lists[following.delta_manifest_list] = tuple(meta.file_name for meta in metas)
        return metas

    def _left(
        self,
        following: Snapshot,
        error: CorruptMetadata,
        names: Sequence[str],
        *,
        may_be_gone: bool,
    ) -> None:
        """Warns of orphans, unless an interrupted run has deleted one of the lists or manifests
        with these names: such a run had already deleted the data files. `may_be_gone` says whether
        there may have been such a run.
        """
        if may_be_gone and not all(self.storage.exists(manifest_path(name)) for name in names):
            return
        _LOG.warning(
            "%s: data files that snapshot %d replaced stay as orphans, because it cannot be read: "
            "%s",
            self.storage.location,
            following.id,
            error,
        )

    def _deleted_entries(self, metas: Sequence[ManifestFileMeta]) -> Iterator[ManifestEntry]:
        """The entries of the files that the manifests delete, without files that the manifests also
        add.
        """
        manifests = ManifestStore(self._ahead)
        added = NameSet()
        entries: list[ManifestEntry] = []
        for meta in metas:
            if meta.num_added_files:
                entries = manifests.read(meta)
                added.add(entry.file.file_name for entry in entries if entry.kind is FileKind.ADD)
        for meta in metas:
            if meta.num_deleted_files:
                # A single manifest with added files was just read, so its entries are known.
                if len(metas) > 1 or not meta.num_added_files:
                    entries = manifests.read(meta)
                for entry in entries:
                    if entry.kind is FileKind.DELETE and entry.file.file_name not in added:
                        yield entry

    def _paths(self, entry: ManifestEntry) -> Iterator[str]:
        """The paths of an entry's file and of its extra files, if the table can have such paths."""
        layout = self.table.layout
        try:
            folder = layout.bucket_folder(entry.partition, entry.bucket, entry.file.external_path)
        except FormatError as error:
            self.remover.pass_over(error)
            return
        self._emptied.add(folder)
        for name in (entry.file.file_name, *entry.file.extra_files):
            try:
                yield layout.in_folder(folder, name)
            except CorruptMetadata as error:
                self.remover.pass_over(error)

    def _changelog_files(self, gone: Sequence[Snapshot]) -> Iterator[str]:
        """The changelog files of the snapshots `gone`, without those that another branch needs."""
        for name in filter(None, (snapshot.changelog_manifest_list for snapshot in gone)):
            if name in self.kept.branches.changelogs():
                continue
            for meta in _unless_broken(self.manifests.read_list, name):
                for entry in _unless_broken(self.manifests.read, meta):
                    if entry.kind is FileKind.ADD:
                        yield from self._paths(entry)

    def _delete_metadata(
        self,
        guarded: _GuardedRemover,
        gone: Sequence[Snapshot],
        kept: frozenset[str],
        lists_of_each: int,
    ) -> None:
        """Removes manifests, index files, lists, index manifests and statistics, in this order.

        Args:
            guarded: deletes the files.
            gone: the snapshots that had these files.
            kept: the names of the files that stay.
            lists_of_each: the number of each snapshot's lists that expire (`_ALL_LISTS`).
        """
        shared = self.kept.branches.changelogs()
        lists = [
            name
            for snapshot in gone
            for name, _ in snapshot.manifest_lists[:lists_of_each]
            if name not in shared
        ]
        self._ahead.expect([(manifest_path(name), 0) for name in lists if name not in self._lists])
        for paths in in_groups(map(manifest_path, self._manifests_of(lists, kept)), _CHUNK):
            guarded.remove("manifest", paths)
        index_manifests = dict.fromkeys(snapshot.index_manifest for snapshot in gone)
        indexes = [name for name in index_manifests if name is not None and name not in kept]
        guarded.remove(
            "index", [path for name in indexes for path in self._index_files(name, kept)]
        )
        guarded.remove("manifest list", [manifest_path(name) for name in lists if name not in kept])
        guarded.remove("index manifest", map(manifest_path, indexes))
        statistics = dict.fromkeys(snapshot.statistics for snapshot in gone)
        unused = (name for name in statistics if name is not None and name not in kept)
        guarded.remove("statistics", map(statistics_path, unused))

    def _manifests_of(self, lists: Sequence[str], kept: frozenset[str]) -> Iterator[str]:
        """The names of the manifests in the lists, each once, without the names in `kept`."""
        seen: set[str] = set()
        for name in lists:
            named = self._lists.get(name) or _unless_broken(
                partial(needed.manifest_names, self._ahead), name
            )
            fresh = [
                manifest for manifest in named if manifest not in kept and manifest not in seen
            ]
            seen.update(fresh)
            yield from fresh

    def _index_files(self, name: str, kept: frozenset[str]) -> Iterator[str]:
        for entry in _unless_broken(self.manifests.index_entries, name):
            if entry.file.file_name in kept:
                continue
            try:
                yield self.table.layout.index_file(entry.partition, entry.bucket, entry.file)
            except FormatError as error:
                self.remover.pass_over(error)


def _unless_broken(read: Callable[[_Of], Sequence[_T]], source: _Of) -> Sequence[_T]:
    """The result of `read` for the `source`, which is metadata that names files. If the metadata is
    gone or broken, the result is empty, and the files that the metadata names stay as orphans.
    """
    try:
        return read(source)
    except CorruptMetadata:
        return ()


def _linked(consecutive: Sequence[Snapshot]) -> Sequence[Snapshot]:
    """The snapshots that were built on the previous snapshot. The lineage's ids have no gap, so a
    snapshot below a gap is beside the lineage. A late put may have created it after its id had
    expired. Files that such a snapshot deleted may be live.
    """
    gaps = [
        place
        for place, (snapshot, after) in enumerate(pairwise(consecutive), 1)
        if after.id != snapshot.id + 1
    ]
    return consecutive[max(gaps, default=0) + 1 :]
