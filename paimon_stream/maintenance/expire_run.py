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
   follows the group, removed from the table. Then the changelog files, unless changelogs outlive
   their snapshots.
6. Manifests and index files are deleted if neither the following snapshot nor a tag or branch uses
   them. Then the lists and index manifests that named them, and the statistics.
7. The notes are removed.

At the end of the run EARLIEST is set (`expire.py`). What lies below a gap in the ids is beside the
lineage. It goes, but not the data files that it replaced, because these may be live (`_linked`).
Changelogs that outlive their snapshots expire at the end of the run, in groups, too. Their own
files go last, so a run that was killed needs no note to find the rest.

Before each step the history is looked at again, because a rollback may have changed it. No snapshot
is begun while a rollback has a pin (`pins.py`), or after the newest snapshot that the range was
computed from has gone. Files are deleted only while the group is gone and the following snapshot
exists. If a rollback to the last snapshot of a group had ended just before that snapshot's own file
was deleted, the file is put back (`_was_newest`).

Why a group is as safe as its snapshots one by one:

- The order of the snapshots' own files matters: readers conclude from a snapshot that exists that
  all later ones exist. So these files are never deleted together. The look before each is sent with
  the deletion of the one before. It must have begun within a minute, else it is repeated.
- All notes are written before the first look at the pins. A rollback writes its pin first, and then
  is not begun while a note of its target, or of a later snapshot, is younger than five minutes. So
  either the rollback sees the notes, or the look sees the pin. Without space there is no note. Then
  it remains that the rollback restores its target before each deletion, and that the last own file
  is put back.
- The tags are read when all of the group is gone. Whoever makes a tag looks again whether its
  snapshot stands, and else takes the tag back (`tags.py`). So the tags that are read are all that
  will ever keep a file of the group, and each later step spares their files.
- A file that two snapshots of the group share is unused if the following snapshot and the tags up
  to there do not use it. The files of one step refer to nothing in the same step: a list goes after
  its manifests, and manifests go after the data files. So within a step the order does not matter,
  and after a kill the next run still finds what is left.
- One look holds for up to 1,000 data files, changelog files or manifests, and for all index files,
  lists, index manifests or statistics of a group. What would make them needed again is a rollback
  to the group. Their deletion takes seconds, and the notes hold off a rollback for five minutes.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeVar

from paimon_stream.errors import CorruptMetadata, FormatError
from paimon_stream.format.entries import FileKind, FileSource, ManifestEntry, ManifestFileMeta
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.snapshot_json import Snapshot, encode_snapshot
from paimon_stream.maintenance import needed
from paimon_stream.maintenance.expiring import ExpiringNotes, Remover
from paimon_stream.maintenance.pins import read_pins
from paimon_stream.options import (
    CHANGELOG_PRODUCER,
    CLEAN_EMPTY_DIRECTORIES,
    FILE_OPERATION_THREADS,
    Options,
)
from paimon_stream.runtime import Clock, system
from paimon_stream.storage.base import FileStat, parents
from paimon_stream.storage.read_ahead import ReadAhead, in_groups
from paimon_stream.storage.uri import split_root
from paimon_stream.table.layout import (
    CHANGELOG_FOLDER,
    TAG_FOLDER,
    manifest_path,
    snapshot_path,
    statistics_path,
)
from paimon_stream.table.lineage import in_lineage
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.option_rules import changelog_outlives
from paimon_stream.table.references import NameSet, journalled_names, read_tag
from paimon_stream.table.removals import read_removals
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_Of = TypeVar("_Of")
_T = TypeVar("_T")

_LOG = logging.getLogger(__name__)
_CHUNK: Final = 1000
_SMALL: Final = 1 << 16
_READERS: Final = 4
"""How many threads read the lists of a group while its own files are deleted."""
_FRESH_SECONDS: Final = 60
"""How long ago a look may have begun. Far less than the five minutes of notes (`expiring.py`)."""


class Begun(NamedTuple):
    """What became of the beginning of a group's expiry: how many of it are gone, and those that
    this run removed. Others were removed by another expirer. `stopped`: the history changed, or a
    rollback is under way.
    """

    gone: int
    removed: list[Snapshot]
    stopped: bool = False


class _Looked(NamedTuple):
    """What a look before a deletion found, and when it began."""

    is_history: bool
    is_there: bool
    at: float


class _HistoryChanged(Exception):
    """A rollback or another expirer changed the history, so nothing more may be deleted for a
    snapshot.
    """


class Cleaner:
    """Removes what only expired snapshots need. Each run has its own; `remover` counts and
    deletes.
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
        self.notes = ExpiringNotes(self.storage)
        self.changelogs = needed.ChangelogStore(self.storage)
        # A writer's own options must not take away what the table's options keep.
        self._outlives, self._appended_stay = _kept_of_changelogs(table.schema)
        self._of_changelogs = NameSet()
        self.manifests = ManifestStore(self.storage)
        self.branches = needed.OtherBranches(self.storage, self.manifests)
        self._tags: dict[FileStat, Snapshot] = {}
        self._tag_names: dict[str, frozenset[str]] = {}
        self._tag_files: tuple[int, str, NameSet] | None = None
        self._lists: dict[str, tuple[str, ...]] = {}
        self._journalled: NameSet | None = None
        self._folders: set[str] = set()
        self._changed: Callable[[], bool] = bool  # whether files found unused may be needed again
        self._ahead = ReadAhead(self.storage)

    def begin(self, group: Sequence[Snapshot], newest: Snapshot) -> Begun:
        """Removes the files of all snapshots in the group but the last, which follows them. From
        then on nobody can tag them, so their tags can be read. `newest` is the newest snapshot of
        the history when the range was computed. If it was stopped, nothing further may expire.
        Raises `StorageError`; then each snapshot or its note exists.
        """
        if self.dry_run:
            for snapshot in group[:-1]:
                self.remover.remove_first("snapshot", snapshot_path(snapshot.id))
            return Begun(len(group) - 1, list(group[:-1]))
        self.storage.together([partial(self.notes.write, *pair) for pair in pairwise(group)])
        lists = [path for snapshot in group[-2::-1] for path in self._small_lists(snapshot)]
        removal = partial(self._remove_own, group, newest, lists)
        gone, removed = self.storage.together(
            [removal, *[partial(self._hold_all, lists)] * _READERS]
        )[0]
        last = removed[-1] if removed else None
        if last is group[gone - 1] and not (
            self.snapshots.stands(group[gone]) or self.snapshots.stands(newest)
        ):
            gone -= 1
            removed.pop()
            if self._was_newest(last):
                self.storage.put_if_absent(snapshot_path(last.id), encode_snapshot(last))
        self.notes.drop(*(snapshot.id for snapshot in group[gone if removed else 0 : -1]))
        return Begun(gone, removed, gone < len(group) - 1 and not self._overtaken(newest))

    def finish(
        self, gone: Sequence[Snapshot], following: Snapshot, *, resumed: bool = False
    ) -> None:
        """Removes what only the snapshots in `gone` needed, consecutive ones whose own files are
        gone. If the history changes, it stops, and the next run judges the notes. `resumed`: an
        interrupted run may have removed a part. Raises `StorageError`; the next run then deletes
        what was not deleted.
        """
        self._changed = partial(self._is_back, gone, following)
        try:
            self.refresh_tags()
            older, self._of_changelogs = self._older_changelogs()
            replaced = self._replaced_files(_linked([*gone, following]), gone if resumed else ())
            self._remove_rows(replaced, () if self._outlives else gone)
            kept = self._names_kept(gone, following)
            if kept is not None:  # of manifest lists, the third is the changelog's
                kept |= older
                self._delete_metadata(
                    gone, kept, 0 if self._appended_stay else 2 if self._outlives else 3
                )
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
        """Removes long-lived changelogs, and before them what only they need. `following` is the
        next one, `earliest` the oldest snapshot. Their own files go last, so the next run finishes
        one that was killed. What could make data files needed again is a rollback to a tag, which
        keeps them itself. Raises `StorageError`.
        """
        self._changed = lambda: bool(read_pins(self.storage))
        self._appended_stay = False
        self._of_changelogs = NameSet()
        try:
            self.refresh_tags()
            kept = self._names_kept(gone, earliest)
            if kept is None:
                return
            kept |= needed.changelog_needs(self.storage, self.manifests, following)[0]
            pairs = pairwise(
                [*gone, following]
            )  # what lies beside the lineage may have replaced files that are live
            linked = [
                changelog
                for changelog, after in pairs
                if in_lineage(self.changelogs, changelog, after) is not False
            ]
            self._remove_rows(self._replaced_files(linked, gone), gone)
            self._delete_metadata(gone, kept, 3)
            self._remove(
                "long-lived changelog", [self.changelogs.path(changelog.id) for changelog in gone]
            )
        except _HistoryChanged:
            return
        finally:
            self._ahead.forget()

    def _remove_rows(self, replaced: Iterator[str], gone: Sequence[Snapshot]) -> None:
        """Removes data files, then the changelog files of some snapshots, then folders that are
        empty.
        """
        for kind, files in (("data", replaced), ("changelog", self._changelog_files(gone))):
            for paths in in_groups(files, _CHUNK):
                self._remove(kind, paths)
        self._clean_folders()

    def _keep_changelogs(self, group: Sequence[Snapshot]) -> None:
        """Writes the changelogs of a group that expires, but for what lies below a gap."""
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
        and those that this run removed. At the end it takes what is left in `lists` from their
        readers.
        """
        gone = 0
        removed = []
        try:
            looked = self._look(group[0], newest)
            if self._outlives and looked.is_history:
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
        needs them, and their content never changes. A group's large ones would not fit into memory
        together.
        """
        for name, size in snapshot.manifest_lists[:2]:
            if self._ahead.helps and name not in self._lists and (size or _SMALL + 1) <= _SMALL:
                yield manifest_path(name)

    def _overtaken(self, newest: Snapshot) -> bool:
        """Whether other expirers have expired the whole range with `newest`."""
        left = self.snapshots.ids()
        return bool(left) and left[0] > newest.id and not read_pins(self.storage)

    def _was_newest(self, last: Snapshot) -> bool:
        """Whether a rollback to `last` ended before its file was deleted. All below it had expired.
        What is there was created again by a paused writer, unless a rollback went below `last`, as
        tags or its note show, or the table was dropped and created. Then younger snapshots are
        there.
        """
        ids = self.snapshots.ids()
        if not ids or ids[-1] >= last.id:
            return not ids
        self.refresh_tags()
        kept = {tag.nonce for tag in self._tags.values()}
        below = [snapshot for snapshot in map(self.snapshots.find, ids) if snapshot is not None]
        older = all(
            snapshot.nonce not in kept and snapshot.time_millis <= last.time_millis
            for snapshot in below
        )
        return older and read_removals(self.storage).of_nonce(last.nonce) is None

    def _look(self, oldest: Snapshot, newest: Snapshot) -> _Looked:
        """Whether no rollback is under way or has changed the history since it was read. Rollbacks
        remove the newest snapshot first. `oldest` may be gone: another expirer took it.
        """
        began = self.clock.monotonic()
        find = partial(self.snapshots.find, oldest.id)
        stand = partial(self.snapshots.stands, newest)
        pins, there, stands = self.storage.together([partial(read_pins, self.storage), find, stand])
        is_same = there is None or there.nonce == oldest.nonce
        return _Looked(not pins and is_same and stands, there is not None, began)

    def _remove(self, kind: str, paths: Iterable[str]) -> None:
        """Deletes files, if the history is still the one in which they were found unused."""
        wanted = list(paths)
        if wanted and not self.dry_run and self._changed():
            raise _HistoryChanged
        self.remover.remove(kind, wanted)

    def _is_back(self, gone: Sequence[Snapshot], following: Snapshot) -> bool:
        """Whether one of these ids exists again, or what followed does not exist any more."""
        store = self.snapshots
        ids = {snapshot.id for snapshot in gone}
        look = (
            partial(store.exists, *ids)
            if len(ids) == 1
            else lambda: not ids.isdisjoint(store.ids())
        )
        there, stands = self.storage.together([look, partial(store.stands, following)])
        return there or not stands

    def _is_wanted(self, tag: Snapshot) -> bool:
        """Whether a rollback has a pin, or has brought back the snapshot of a deleted tag."""
        return any(
            self.storage.together(
                [partial(read_pins, self.storage), partial(self.snapshots.stands, tag)]
            )
        )

    def remove_tagged(self, tag: Snapshot, neighbours: Sequence[Snapshot]) -> None:
        """Removes what a tag needed whose file is gone and whose snapshot has expired. `neighbours`
        are the tag or snapshot before it and the one after it: a file that neither has, no other
        has. Raises `CorruptMetadata` if they cannot be read, and nothing was deleted;
        `StorageError`. Stops where a rollback has begun that may still have a pin of the tag's
        snapshot.
        """
        self._changed = partial(self._is_wanted, tag)
        self.refresh_tags()
        kept = self.branches.metadata
        for neighbour in neighbours:
            kept |= needed.metadata_names(self.storage, self.manifests, neighbour)
        live = self._live_names(neighbours)
        ids = self.changelogs.ids()
        nearest = next(
            (place for place, changelog_id in enumerate(ids, 1) if changelog_id > tag.id), None
        )
        for changelog in filter(
            None, map(self.changelogs.find, ids[:nearest])
        ):  # what the tag and later ones share it has
            names, files = needed.changelog_needs(self.storage, self.manifests, changelog)
            kept |= names
            live.add(files)
        sets = (live, self._journal_names(), self.branches.live_names())
        gone = (
            path
            for entry in needed.live_entries(self.manifests, tag)
            if not any(entry.file.file_name in names for names in sets)
            for path in self._paths(entry)
        )
        try:
            self._remove_rows(gone, ())
            self._delete_metadata([tag], kept, 2)
        except _HistoryChanged:
            _LOG.warning(
                "%s: a rollback began, so files of a deleted tag stay as orphans.",
                self.storage.location,
            )

    def refresh_tags(self) -> None:
        """Reads which branches and tags exist now: one may have been made since the last snapshot
        was removed. Raises `CorruptMetadata`, `UnknownVersion`, `StorageError`.
        """
        self.branches.look()
        before = self._tags
        self._tags = {}
        for stat in self.storage.list_files(TAG_FOLDER, "tag-"):
            tag = before.get(stat) or read_tag(self.storage, stat.path)
            if tag is not None:
                self._tags[stat] = tag

    def _older_changelogs(self) -> tuple[frozenset[str], NameSet]:
        """The names of metadata, and of data files, that long-lived changelogs need which were
        written while the table had other options, so that their changes are the files of a delta.
        Usually there are none.
        """
        kept = frozenset[str]()
        files = NameSet()
        if (
            self.table.schema.id
            and not self._appended_stay
            and (ids := self.changelogs.ids())
            and self._appended_stayed
        ):
            for changelog in filter(None, map(self.changelogs.find, ids)):
                if changelog.changelog_manifest_list is None:
                    names, of_delta = needed.changelog_needs(
                        self.storage, self.manifests, changelog
                    )
                    kept |= names
                    files.add(of_delta)
        return kept, files

    @cached_property
    def _appended_stayed(self) -> bool:
        """Whether the options of any schema keep appended files with changelogs. They are read once
        in a run.
        """
        schemas = SchemaStore(self.storage)
        return any(_kept_of_changelogs(schemas.get(schema_id))[1] for schema_id in schemas.ids())

    def _tag_at(self, snapshot_id: int) -> Snapshot | None:
        """The tagged snapshot with the largest id up to this one. It has everything that an older
        tag shares with a snapshot that exists now.
        """
        below = [tag for tag in self._tags.values() if tag.id <= snapshot_id]
        return max(below, key=lambda tag: tag.id, default=None)

    def _tag_above(self, snapshot_id: int) -> Snapshot | None:
        """The tagged snapshot with the smallest id above this one."""
        above = [tag for tag in self._tags.values() if tag.id > snapshot_id]
        return min(above, key=lambda tag: tag.id, default=None)

    def _names_kept(self, gone: Sequence[Snapshot], following: Snapshot) -> frozenset[str] | None:
        """The metadata that is kept when all from the first of `gone` up to `following` is removed;
        None if that cannot be determined. The tags in between count, and those next to them, for
        snapshots may lie beside the lineage. The tag below counts also where the first one's id is
        tagged: a paused writer may have created that id again after the tagged snapshot expired.
        """
        first = gone[0].id
        tags = [tag for tag in self._tags.values() if first <= tag.id < following.id]
        neighbours = (
            self._tag_at(first - 1),
            *(self._tag_above(snapshot.id) for snapshot in gone),
        )
        tags += [tag for tag in neighbours if tag is not None]
        try:
            kept = (
                needed.metadata_names(self.storage, self.manifests, following, self._lists)
                | self.branches.metadata
            )
            before = self._tag_names
            self._tag_names = {}
            for tag in {tag.nonce: tag for tag in tags}.values():
                if tag.nonce not in self._tag_names:
                    names = before.get(tag.nonce) or needed.metadata_names(
                        self.storage, self.manifests, tag
                    )
                    self._tag_names[tag.nonce] = names
                    kept |= names
            return kept
        except CorruptMetadata as error:
            _LOG.warning(
                "%s: metadata of the snapshot before %d stays as orphans; what "
                "is needed cannot be read: %s",
                self.storage.location,
                following.id,
                error,
            )
            return None

    def _protected(self, snapshot_id: int) -> Callable[[str], bool]:
        """A function that checks whether a tag, branch or journal refers to a data file that a
        snapshot deleted.
        """
        sets = [self._journal_names(), self.branches.live_names(), self._of_changelogs]
        tag = self._tag_at(snapshot_id)
        if tag is not None:
            if self._tag_files is None or self._tag_files[:2] != (tag.id, tag.nonce):
                self._tag_files = (tag.id, tag.nonce, self._live_names([tag]))
            sets.append(self._tag_files[2])
        return lambda name: any(name in names for names in sets)

    def _live_names(self, snapshots: Sequence[Snapshot]) -> NameSet:
        names = NameSet()
        for snapshot in snapshots:
            for entry in needed.live_entries(self.manifests, snapshot):
                names.add((entry.file.file_name, *entry.file.extra_files))
        return names

    def _journal_names(self) -> NameSet:
        if (
            self._journalled is None
        ):  # a cached_property has one lock for all tables before Python 3.12
            names = NameSet()
            names.add(journalled_names(self.storage))
            self._journalled = names
        return self._journalled

    def _replaced_files(
        self, followings: Sequence[Snapshot], gone: Sequence[Snapshot]
    ) -> Iterator[str]:
        """The data files that these snapshots deleted. A file that one of them added again, on
        another level, is live. An interrupted run may have deleted the lists of those in `gone`.
        """
        self._ahead.expect(
            [(manifest_path(snapshot.delta_manifest_list), 0) for snapshot in followings]
        )
        deltas = [(snapshot, self._delta(snapshot, snapshot in gone)) for snapshot in followings]
        changed = [metas for _, metas in deltas if any(meta.num_deleted_files for meta in metas)]
        self._ahead.expect(
            (manifest_path(meta.file_name), meta.file_size) for metas in changed for meta in metas
        )
        for snapshot, metas in deltas:
            if any(meta.num_deleted_files for meta in metas):
                try:
                    yield from self._replaced_by(snapshot, metas)
                except CorruptMetadata as error:
                    self._left(snapshot, error)

    def _delta(self, following: Snapshot, may_be_gone: bool) -> tuple[ManifestFileMeta, ...]:
        try:
            metas = ManifestStore(self._ahead).delta(following)
        except CorruptMetadata as error:
            if not (
                may_be_gone
                and not self.storage.exists(manifest_path(following.delta_manifest_list))
            ):
                self._left(
                    following, error
                )  # else the interrupted run was done with the data files
            return ()
        self._lists[following.delta_manifest_list] = tuple(meta.file_name for meta in metas)
        return metas

    def _left(self, following: Snapshot, why: CorruptMetadata) -> None:
        _LOG.warning(
            "%s: data files that snapshot %d replaced stay as orphans, because "
            "it cannot be read: %s",
            self.storage.location,
            following.id,
            why,
        )

    def _replaced_by(self, following: Snapshot, metas: Sequence[ManifestFileMeta]) -> Iterator[str]:
        manifests = ManifestStore(self._ahead)
        protected = self._protected(following.id - 1)
        added = NameSet()
        entries: list[ManifestEntry] = []
        for meta in metas:
            if meta.num_added_files:
                entries = manifests.read(meta)
                added.add(entry.file.file_name for entry in entries if entry.kind is FileKind.ADD)
        for meta in metas:
            if meta.num_deleted_files:
                if len(metas) > 1 or not meta.num_added_files:
                    entries = manifests.read(meta)
                for entry in entries:
                    name = entry.file.file_name
                    stays = self._appended_stay and entry.file.file_source != FileSource.COMPACT
                    if (
                        entry.kind is FileKind.DELETE
                        and not stays
                        and name not in added
                        and not protected(name)
                    ):
                        yield from self._paths(entry)

    def _paths(self, entry: ManifestEntry) -> Iterator[str]:
        """The file and the files beside it. None for one that the table cannot have."""
        layout = self.table.layout
        try:
            folder = layout.bucket_folder(entry.partition, entry.bucket, entry.file.external_path)
        except FormatError as error:
            self.remover.pass_over(error)
            return
        self._folders.add(folder)
        for name in (entry.file.file_name, *entry.file.extra_files):
            try:
                yield layout.in_folder(folder, name)
            except CorruptMetadata as error:
                self.remover.pass_over(error)

    def _changelog_files(self, gone: Sequence[Snapshot]) -> Iterator[str]:
        for name in filter(None, (snapshot.changelog_manifest_list for snapshot in gone)):
            if name in self.branches.changelogs():
                continue
            for meta in _if_whole(self.manifests.read_list, name):
                for entry in _if_whole(self.manifests.read, meta):
                    if entry.kind is FileKind.ADD:
                        yield from self._paths(entry)

    def _clean_folders(self) -> None:
        """If the options say so, deletes empty bucket folders, then empty partition folders above,
        deepest first.
        """
        emptied = sorted(self._folders)
        self._folders = set()
        if not (self.table.options.value(CLEAN_EMPTY_DIRECTORIES) and self.storage.has_folders):
            return
        above: set[str] = set()
        keep = {self.table.layout.directory, *parents(self.table.layout.directory)}
        for folder in emptied:
            self.remover.remove_uncounted(folder)
            root, inner = split_root(folder)
            above.update(root + parent for parent in parents(inner) if parent not in keep)
        for folder in sorted(above, key=lambda folder: (-folder.count("/"), folder)):
            self.remover.remove_uncounted(folder)

    def _delete_metadata(
        self, gone: Sequence[Snapshot], kept: frozenset[str], lists_of_each: int
    ) -> None:
        shared = self.branches.changelogs()
        lists = [
            name
            for snapshot in gone
            for name, _ in snapshot.manifest_lists[:lists_of_each]
            if name not in shared
        ]
        self._ahead.expect([(manifest_path(name), 0) for name in lists if name not in self._lists])
        for paths in in_groups(map(manifest_path, self._manifests_of(lists, kept)), _CHUNK):
            self._remove("manifest", paths)
        wanted = (snapshot.index_manifest for snapshot in gone)
        indexes = [name for name in dict.fromkeys(wanted) if name is not None and name not in kept]
        self._remove("index", [path for name in indexes for path in self._index_files(name, kept)])
        self._remove("manifest list", [manifest_path(name) for name in lists if name not in kept])
        self._remove("index manifest", map(manifest_path, indexes))
        statistics = dict.fromkeys(snapshot.statistics for snapshot in gone)
        unused = (name for name in statistics if name is not None and name not in kept)
        self._remove("statistics", map(statistics_path, unused))

    def _manifests_of(self, lists: Sequence[str], kept: frozenset[str]) -> Iterator[str]:
        """The manifests in these lists that are not kept, each once."""
        seen: set[str] = set()
        for name in lists:
            named = self._lists.get(name) or _if_whole(
                partial(needed.manifest_names, self._ahead), name
            )
            fresh = [
                manifest for manifest in named if manifest not in kept and manifest not in seen
            ]
            seen.update(fresh)
            yield from fresh

    def _index_files(self, name: str, kept: frozenset[str]) -> Iterator[str]:
        for entry in _if_whole(self.manifests.index_entries, name):
            if entry.file.file_name in kept:
                continue
            try:
                yield self.table.layout.index_file(entry.partition, entry.bucket, entry.file)
            except FormatError as error:
                self.remover.pass_over(error)


def _if_whole(read: Callable[[_Of], Sequence[_T]], source: _Of) -> Sequence[_T]:
    """What `read` finds; nothing in metadata that is gone or broken, so what it names stays as an
    orphan.
    """
    try:
        return read(source)
    except CorruptMetadata:
        return ()


def _kept_of_changelogs(schema: TableSchema) -> tuple[bool, bool]:
    """Whether the options keep changelogs longer than snapshots, and appended files with them."""
    options = Options(schema.options)
    outlives = changelog_outlives(options)
    return outlives, outlives and options.value(CHANGELOG_PRODUCER) == "none"


def _linked(run: Sequence[Snapshot]) -> Sequence[Snapshot]:
    """The snapshots that were built on the one before them. Ids have no gap, so what lies below a
    gap is beside the lineage, such as a put that came after its id had expired. What that deleted
    may be live.
    """
    gaps = [
        place for place, (snapshot, two) in enumerate(pairwise(run), 1) if two.id != snapshot.id + 1
    ]
    return run[max(gaps, default=0) + 1 :]
