"""One run of snapshot expiry: what is deleted with each snapshot, and in which order (semantics.md
§8).

Invariants: at every moment each existing snapshot and tag is whole. No file is deleted that a tag,
a branch or a journal refers to. A kill at any point leaves files that nothing refers to, and notes,
by which the next run finishes the work (`expiring.py`). Names are never reused, so deleting twice
is harmless.

Snapshots expire in groups of consecutive ones, oldest first (`expire.py`). For each group, in this
order:

1. A note is written for each snapshot.
2. Where changelogs outlive their snapshots, the changelogs of the group are written.
3. The snapshots' own files are deleted, one after the other. From then on nobody can tag one of
   them.
4. The tags and the other branches are read.
5. Data files are deleted: those that the group's snapshots after the first, and the one that
   follows the group, removed from the table. Then the changelog files are deleted, unless
   changelogs outlive their snapshots.
6. Manifests and index files are deleted if neither the following snapshot nor a tag or branch uses
   them. Then the lists and index manifests that named them, and the statistics.
7. The notes are removed. Where another expirer has removed the whole group, the notes stay until
    the group is finished by one of the two.

At the end of the run EARLIEST is set (`expire.py`). A snapshot below a gap in the ids is beside the
lineage. It is removed, but not the data files that it replaced, because these may be live
(`_linked`). Changelogs that outlive their snapshots expire at the end of the run, in groups, too.
Their own files are removed last, so that after a kill the next run finds the rest without a note.

Before each step the history is looked at again, because a rollback may have changed it. No snapshot
is begun while a rollback has a pin (`pins.py`), or after the newest snapshot that the range was
computed from has gone. Files are deleted only while the group is gone and the following snapshot
exists. If a rollback to the last snapshot of a group had ended just before that snapshot's own file
was deleted, the file is put back (`_was_newest`).

Why a group is as safe as its snapshots one by one:

- The order of the snapshots' own files matters: readers conclude from a snapshot that exists that
  all later ones exist. So these files are never deleted together. The look before a deletion is
  sent together with the previous deletion. A look that began more than a minute ago is repeated.
- All notes are written before the first look at the pins. A rollback writes its pin first, and does
  not begin while a note of its target, or of a later snapshot, is younger than five minutes. So
  either the rollback sees the notes, or the look sees the pin. On a full disk there is no note. Two
  protections remain then: the rollback restores its target before each deletion, and the last own
  file is put back.
- The tags are read when all of the group is gone. Whoever makes a tag checks afterwards whether its
  snapshot stands, and otherwise removes the tag (`tags.py`). So no tag other than those that are
  read here will ever keep a file of the group, and each later step spares their files.
- A file that two snapshots of the group share is unused if the following snapshot and the tags up
  to there do not use it. The files of one step refer to nothing in the same step: a list is deleted
  after its manifests, and manifests are deleted after the data files. So within a step the order
  does not matter, and after a kill the next run still finds what is left.
- One look holds for up to 1,000 data files, changelog files or manifests, and for all index files,
  lists, index manifests or statistics of a group. Only a rollback to the group could make them
  needed again. Their deletion takes seconds, and the notes hold off a rollback for five minutes.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeVar

from paimon_stream.errors import CorruptMetadata, FormatError
from paimon_stream.format.entries import FileKind, FileSource, ManifestEntry, ManifestFileMeta
from paimon_stream.format.snapshot_json import Snapshot, encode_snapshot
from paimon_stream.maintenance import needed
from paimon_stream.maintenance.expiring import ExpiringNotes, Remover
from paimon_stream.maintenance.kept_files import ChangelogRetention, KeptFiles
from paimon_stream.maintenance.pins import read_pins
from paimon_stream.options import (
    CLEAN_EMPTY_DIRECTORIES,
    FILE_OPERATION_THREADS,
)
from paimon_stream.runtime import Clock, system
from paimon_stream.storage.base import parents
from paimon_stream.storage.read_ahead import ReadAhead, in_groups
from paimon_stream.storage.uri import split_root
from paimon_stream.table.layout import (
    CHANGELOG_FOLDER,
    manifest_path,
    snapshot_path,
    statistics_path,
)
from paimon_stream.table.lineage import in_lineage
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.references import NameSet
from paimon_stream.table.removals import read_removals
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_Of = TypeVar("_Of")
_T = TypeVar("_T")

_LOG = logging.getLogger(__name__)
_CHUNK: Final = 1000
"""For how many files one look at the history holds."""
_SMALL: Final = 1 << 16
"""Up to how many bytes a list is read while the group's own files are deleted."""
_ALL_LISTS: Final = 3
"""A snapshot's lists are those of its base, of its delta and of its changelog, in this order."""
_WITHOUT_CHANGELOG: Final = 2
_READERS: Final = 4
"""How many threads read the lists of a group while its own files are deleted. In a store, where that
is one trip after another, expiry takes 1.8 times as long without them (500 snapshots, 25 ms for each
request); on a disk there is nothing to read ahead.
"""
_FRESH_SECONDS: Final = 60
"""How long ago a look may have begun. Far less than the five minutes of notes (`expiring.py`)."""


class Begun(NamedTuple):
    """What became of the beginning of a group's expiry.

    Attributes:
        gone: how many snapshots of the group are gone.
        removed: the snapshots that this run removed. Another expirer removed the others.
        stopped: whether the history changed, or a rollback is under way.
    """

    gone: int
    removed: list[Snapshot]
    stopped: bool = False


class _Looked(NamedTuple):
    """What a look before a deletion has shown.

    Attributes:
        is_history: whether no rollback is under way or has changed the history.
        is_there: whether the snapshot to delete exists.
        at: when the look began, by the monotonic clock, in seconds.
    """

    is_history: bool
    is_there: bool
    at: float


class _HistoryChanged(Exception):
    """A rollback or another expirer changed the history, so nothing more may be deleted for a
    snapshot.
    """


@dataclass(frozen=True, slots=True)
class _GuardedRemover:
    """Deletes files while the history is still the one in which they were found unused."""

    remover: Remover
    has_changed: Callable[[], bool]
    """Whether files that were found unused may be needed again."""

    def remove(self, kind: str, paths: Iterable[str]) -> None:
        """Deletes files. Raises `_HistoryChanged`, `Unavailable`."""
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
        """Notes that a file of this folder is going to be deleted."""
        self._folders.add(folder)

    def clean(self) -> None:
        """If the options say so, deletes those of the folders that are empty, then the empty
        partition folders above them, deepest first. Forgets all of them.
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
    """Removes what only expired snapshots need, in the order of this module. Each run has its
    own.
    """

    def __init__(
        self,
        table: Table,
        snapshots: SnapshotStore,
        dry_run: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.table = table
        self.snapshots = snapshots
        self.dry_run = dry_run
        self.clock = clock or system().clock
        self.storage = table.storage
        self.remover = Remover(self.storage, dry_run, table.options.value(FILE_OPERATION_THREADS))
        """Counts and deletes."""
        self.notes = ExpiringNotes(self.storage)
        """The notes of snapshots whose expiry has begun."""
        self.changelogs = needed.ChangelogStore(self.storage)
        """The long-lived changelogs."""
        self.manifests = ManifestStore(self.storage)
        self._retention = ChangelogRetention.of(table.schema)
        """By the table's own options: a writer's must not take away what those keep."""
        self._ahead = ReadAhead(self.storage)
        """Reads lists and manifests before they are needed."""
        self._lists: dict[str, tuple[str, ...]] = {}
        """The manifests in the lists that were read, by the name of the list."""
        self.kept = KeptFiles(table, self.manifests, self.changelogs, self._lists)
        """What must stay."""
        self._emptied = _EmptiedFolders(table, self.remover)

    def begin(self, group: Sequence[Snapshot], newest: Snapshot) -> Begun:
        """Removes the snapshots' own files. From then on nobody can tag the snapshots, so their
        tags can be read. If this was stopped, nothing further may expire.

        Args:
            group: the snapshots, and last the one that follows them and stays.
            newest: the newest snapshot of the history when the range was computed.

        Raises:
            StorageError: the storage fails. Each snapshot or its note exists then.
        """
        if self.dry_run:
            for snapshot in group[:-1]:
                self.remover.remove_first("snapshot", snapshot_path(snapshot.id))
            return Begun(len(group) - 1, list(group[:-1]))
        self.storage.together([partial(self.notes.write, *pair) for pair in pairwise(group)])
        lists = [path for snapshot in group[-2::-1] for path in self._small_lists(snapshot)]
        removal = partial(self._remove_own, group, newest, lists)
        reading = partial(self._hold_all, lists)
        removal_ended, *_ = self.storage.together([removal, *[reading] * _READERS])
        gone, removed = removal_ended
        last = removed[-1] if removed else None
        if last is group[gone - 1] and not (
            self.snapshots.stands(group[gone]) or self.snapshots.stands(newest)
        ):
            gone -= 1
            removed.pop()
            if self._was_newest(last):
                self.storage.put_if_absent(snapshot_path(last.id), encode_snapshot(last))
        noted = gone if removed else self._left_to_others(group)
        self.notes.drop(*(snapshot.id for snapshot in group[noted:-1]))
        return Begun(gone, removed, gone < len(group) - 1 and not self._overtaken(newest))

    def finish(
        self, gone: Sequence[Snapshot], following: Snapshot, *, resumed: bool = False
    ) -> None:
        """Removes what only these snapshots needed. If the history changes, this stops, and the
        next run judges the notes.

        Args:
            gone: consecutive snapshots whose own files are gone.
            following: the snapshot after them.
            resumed: whether another run, interrupted or at work, may have removed a part.

        Raises:
            StorageError: the storage fails. The next run deletes what is left, except single files
                that could not be deleted (`Remover`).
        """
        guarded = _GuardedRemover(self.remover, partial(self._is_back, gone, following))
        try:
            self.kept.refresh_tags()
            metadata_of_changelogs, files_of_changelogs = self.kept.older_changelogs()
            replaced = self._replaced_files(
                _linked([*gone, following]),
                gone if resumed else (),
                files_of_changelogs,
                appended_stay=self._retention.with_appended,
            )
            self._remove_rows(guarded, replaced, () if self._retention.outlive else gone)
            kept = self.kept.names_kept(gone, following)
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
        if not self.dry_run:
            self.notes.drop(*(snapshot.id for snapshot in gone))

    def finish_changelogs(
        self, gone: Sequence[Snapshot], following: Snapshot, earliest: Snapshot
    ) -> None:
        """Removes long-lived changelogs, and before them what only they need. Their own files are
        removed last, so the next run finishes a run that was killed. Only a rollback to a tag could
        make data files needed again, and the tag itself keeps those.

        Args:
            gone: the changelogs, consecutive ones.
            following: the changelog after them.
            earliest: the oldest snapshot.

        Raises:
            StorageError: the storage fails.
        """
        guarded = _GuardedRemover(self.remover, lambda: bool(read_pins(self.storage)))
        try:
            self.kept.refresh_tags()
            kept = self.kept.names_kept(gone, earliest)
            if kept is None:
                return
            metadata, _ = needed.changelog_needs(self.storage, self.manifests, following)
            kept |= metadata
            # A changelog beside the lineage may have replaced files that are live.
            linked = [
                changelog
                for changelog, after in pairwise([*gone, following])
                if in_lineage(self.changelogs, changelog, after) is not False
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
        """How many of a snapshot's lists expire with it (`_ALL_LISTS`)."""
        if self._retention.with_appended:
            return 0
        return _WITHOUT_CHANGELOG if self._retention.outlive else _ALL_LISTS

    def _remove_rows(
        self, guarded: _GuardedRemover, replaced: Iterator[str], gone: Sequence[Snapshot]
    ) -> None:
        """Removes data files, then the changelog files of some snapshots, then folders that are
        empty.
        """
        for kind, files in (("data", replaced), ("changelog", self._changelog_files(gone))):
            for paths in in_groups(files, _CHUNK):
                guarded.remove(kind, paths)
        self._emptied.clean()

    def _left_to_others(self, group: Sequence[Snapshot]) -> int:
        """How many snapshots of a group have notes that the next run needs, in case the other
        expirer that removed the snapshots is killed before it is done. That expirer was done if
        neither the following snapshot nor a note of it exists.
        """
        ids = self.snapshots.ids()
        gone = next(
            (place for place, snapshot in enumerate(group[:-1]) if snapshot.id in ids),
            len(group) - 1,
        )
        following = group[gone]
        leads_on = self.snapshots.stands(following) or self.notes.has(following.id)
        return gone if leads_on else 0

    def _keep_changelogs(self, group: Sequence[Snapshot]) -> None:
        """Writes the changelogs of a group that expires, except those below a gap."""
        pairs = [
            (snapshot, after) for snapshot, after in pairwise(group) if after.id == snapshot.id + 1
        ]
        self.storage.together([partial(self.changelogs.keep, *pair) for pair in pairs])
        if pairs:
            self.storage.write(f"{CHANGELOG_FOLDER}/LATEST", str(pairs[-1][0].id).encode())

    def _remove_own(
        self, group: Sequence[Snapshot], newest: Snapshot, lists: list[str]
    ) -> tuple[int, list[Snapshot]]:
        """Removes the snapshots' own files, one after the other. Returns how many of them are gone,
        and which of them this run removed. Afterwards `lists` holds the lists whose reads were
        begun.
        """
        gone = 0
        removed = []
        try:
            looked = self._look(group[0], newest)
            if self._retention.outlive and looked.is_history:
                self._keep_changelogs(group)
            for snapshot, following in pairwise(group):
                if self.clock.monotonic() - looked.at > _FRESH_SECONDS:
                    looked = self._look(snapshot, newest)
                if not looked.is_history:
                    break
                steps: list[Callable[[], Any]] = [partial(self._look, following, newest)]
                if looked.is_there:
                    removed.append(snapshot)
                    steps.append(
                        partial(self.remover.remove_first, "snapshot", snapshot_path(snapshot.id))
                    )
                looked = self.storage.together(steps[::-1])[-1]
                gone += 1
        finally:
            lists.clear()
        return gone, removed

    def _hold_all(self, lists: list[str]) -> None:
        """Reads lists from the end, until none is left."""
        with suppress(IndexError):
            while True:
                self._ahead.hold(lists.pop())

    def _small_lists(self, snapshot: Snapshot) -> Iterator[str]:
        """The lists of a snapshot that are read while the group's own files are deleted: `finish`
        needs them, and their content never changes. Large lists are left out, because those of a
        group would not fit into memory together.
        """
        for name, size in snapshot.manifest_lists[:2]:
            is_small = size is not None and 0 < size <= _SMALL
            if self._ahead.helps and name not in self._lists and is_small:
                yield manifest_path(name)

    def _overtaken(self, newest: Snapshot) -> bool:
        """Whether other expirers have expired the whole range, `newest` included."""
        left = self.snapshots.ids()
        return bool(left) and left[0] > newest.id and not read_pins(self.storage)

    def _was_newest(self, last: Snapshot) -> bool:
        """Whether a rollback to `last` ended before the file of `last` was deleted. In that case
        all snapshots below `last` had expired, and those that exist were created again by a paused
        writer. Two other cases look alike and do not count. A rollback went below `last`, as tags or
        its note show. Or the table was dropped and created, and there are younger snapshots.
        """
        ids = self.snapshots.ids()
        if not ids or ids[-1] >= last.id:
            return not ids
        self.kept.refresh_tags()
        kept = self.kept.tagged_nonces()
        below = [snapshot for snapshot in map(self.snapshots.find, ids) if snapshot is not None]
        are_expired = all(
            snapshot.nonce not in kept and snapshot.time_millis <= last.time_millis
            for snapshot in below
        )
        return are_expired and read_removals(self.storage).of_nonce(last.nonce) is None

    def _look(self, oldest: Snapshot, newest: Snapshot) -> _Looked:
        """Whether no rollback is under way or has changed the history since it was read. Rollbacks
        remove the newest snapshot first. If `oldest` is gone, another expirer may have removed it.
        """
        began = self.clock.monotonic()
        pins, present, stands = self.storage.together(
            [
                partial(read_pins, self.storage),
                partial(self.snapshots.find, oldest.id),
                partial(self.snapshots.stands, newest),
            ]
        )
        is_same = present is None or present.nonce == oldest.nonce
        return _Looked(
            is_history=not pins and is_same and stands,
            is_there=present is not None,
            at=began,
        )

    def _is_back(self, gone: Sequence[Snapshot], following: Snapshot) -> bool:
        """Whether one of these ids exists again, or the following snapshot no longer exists."""
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
        """Whether a rollback has a pin, or has brought back the snapshot of a deleted tag."""
        pins, stands = self.storage.together(
            [partial(read_pins, self.storage), partial(self.snapshots.stands, tag)]
        )
        return bool(pins) or stands

    def remove_tagged(self, tag: Snapshot, neighbours: Sequence[Snapshot]) -> None:
        """Removes what only a tag needed. Stops where a rollback has begun that may still have a
        pin of the tag's snapshot.

        Args:
            tag: the tagged snapshot, which has expired. The tag's file is gone.
            neighbours: the tags or snapshots before and after it. A file that no neighbour has is
                in no other root either.

        Raises:
            CorruptMetadata: the neighbours cannot be read. Nothing was deleted.
            StorageError: the storage fails.
        """
        guarded = _GuardedRemover(self.remover, partial(self._is_wanted, tag))
        self.kept.refresh_tags()
        kept = self.kept.branches.metadata
        for neighbour in neighbours:
            kept |= needed.metadata_names(self.storage, self.manifests, neighbour)
        live = self.kept.live_names_of(neighbours)
        ids = self.changelogs.ids()
        nearest = next(
            (place for place, changelog_id in enumerate(ids, 1) if changelog_id > tag.id), None
        )
        # The nearest changelog above has what the tag and later changelogs share.
        for changelog in filter(None, map(self.changelogs.find, ids[:nearest])):
            names, files = needed.changelog_needs(self.storage, self.manifests, changelog)
            kept |= names
            live.add(files)
        sets = (live, self.kept.journal_names(), self.kept.branches.live_names())

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
        gone: Sequence[Snapshot],
        of_changelogs: NameSet,
        *,
        appended_stay: bool,
    ) -> Iterator[str]:
        """The data files that snapshots deleted and that nothing else needs. A file that one of
        these snapshots added again, on another level, is live.

        Args:
            followings: the snapshots.
            gone: those of them whose lists and manifests an interrupted run may have deleted.
            of_changelogs: data files that long-lived changelogs need.
            appended_stay: whether all appended files stay with their changelogs.
        """
        self._ahead.expect(
            [(manifest_path(snapshot.delta_manifest_list), 0) for snapshot in followings]
        )
        deltas = [
            (snapshot, self._delta(snapshot, may_be_gone=snapshot in gone))
            for snapshot in followings
        ]
        changed = [metas for _, metas in deltas if any(meta.num_deleted_files for meta in metas)]
        self._ahead.expect(
            (manifest_path(meta.file_name), meta.file_size) for metas in changed for meta in metas
        )
        for snapshot, metas in deltas:
            if any(meta.num_deleted_files for meta in metas):
                try:
                    protected = self.kept.protected(snapshot.id - 1, of_changelogs)
                    for entry in self._deleted_entries(metas):
                        is_appended = entry.file.file_source != FileSource.COMPACT
                        if appended_stay and is_appended:
                            continue
                        if not protected(entry.file.file_name):
                            yield from self._paths(entry)
                except CorruptMetadata as error:
                    names = [meta.file_name for meta in metas]
                    self._left(snapshot, error, names, may_be_gone=snapshot in gone)

    def _delta(self, following: Snapshot, *, may_be_gone: bool) -> tuple[ManifestFileMeta, ...]:
        """The manifests of a snapshot's changes; none if they cannot be read. `may_be_gone` says
        that an interrupted run may have deleted the list.
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
        with these names: that run had already deleted the data files. `may_be_gone` says whether a
        run may have deleted some.
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
        """The entries of files that these manifests delete and do not add."""
        manifests = ManifestStore(self._ahead)
        added = NameSet()
        entries: list[ManifestEntry] = []
        for meta in metas:
            if meta.num_added_files:
                entries = manifests.read(meta)
                added.add(entry.file.file_name for entry in entries if entry.kind is FileKind.ADD)
        for meta in metas:
            if meta.num_deleted_files:
                # The entries of a single manifest with added files were just read.
                if len(metas) > 1 or not meta.num_added_files:
                    entries = manifests.read(meta)
                for entry in entries:
                    if entry.kind is FileKind.DELETE and entry.file.file_name not in added:
                        yield entry

    def _paths(self, entry: ManifestEntry) -> Iterator[str]:
        """The paths of a file and of its extra files, apart from those that the table cannot
        have.
        """
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
        """The changelog files of these snapshots that no other branch needs."""
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
            guarded: deletes them.
            gone: the snapshots that had them.
            kept: the names of those that stay.
            lists_of_each: how many of each snapshot's lists expire (`_ALL_LISTS`).
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
        wanted = (snapshot.index_manifest for snapshot in gone)
        indexes = [name for name in dict.fromkeys(wanted) if name is not None and name not in kept]
        guarded.remove(
            "index", [path for name in indexes for path in self._index_files(name, kept)]
        )
        guarded.remove("manifest list", [manifest_path(name) for name in lists if name not in kept])
        guarded.remove("index manifest", map(manifest_path, indexes))
        statistics = dict.fromkeys(snapshot.statistics for snapshot in gone)
        unused = (name for name in statistics if name is not None and name not in kept)
        guarded.remove("statistics", map(statistics_path, unused))

    def _manifests_of(self, lists: Sequence[str], kept: frozenset[str]) -> Iterator[str]:
        """The manifests in these lists that are not kept, each once."""
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
    """What `read` returns for the `source`. If the metadata is gone or broken, the result is empty,
    and the files that the metadata names stay as orphans.
    """
    try:
        return read(source)
    except CorruptMetadata:
        return ()


def _linked(consecutive: Sequence[Snapshot]) -> Sequence[Snapshot]:
    """The snapshots that were built on the previous one. The lineage's ids have no gap, so a
    snapshot below a gap is beside the lineage: it may be a put that came after its id had expired.
    Files that such a snapshot deleted may be live.
    """
    gaps = [
        place
        for place, (snapshot, after) in enumerate(pairwise(consecutive), 1)
        if after.id != snapshot.id + 1
    ]
    return consecutive[max(gaps, default=0) + 1 :]
