"""Removes orphans, the files in the table's folders to which nothing refers (semantics.md §9,
stores.md §8). In `_paimon_stream` and wherever else metadata lies, only temporary files of killed
writers are removed. Unlike Java, only folders with exactly the names of buckets and partitions are
searched (`table/searched_folders.py`).

Invariant: a file that may still become part of the table is never removed.

1. Candidates are listed first. After that, the names in use are read (`table/references.py`). A
   file that is committed in the meantime is either young, or in a journal.
2. Candidates are older than the cutoff, by the storage's own clock if that clock is behind the
   local one. If a full disk prevents asking that clock, candidates are at least a day old.
   Candidates are looked at again just before they are deleted. They stay if anything about them has
   changed.
3. The age is at least an hour. Committers publish nothing that they staged more than half an hour
   ago (`commit/committer.py`). They reuse prepared files only with a journal, and the names in a
   journal count as used. They also check that files which may be older than half an hour exist
   (`commit/checks.py`). There is one exception: `recommit` also commits a batch again that no
   journal has. It and a removal keep each other away (`table/recommit_notes.py`).
4. Nothing is removed if snapshots seem to be lost (`hints.py`), because their files would look
   unused.
5. No removal begins while a rollback has a pin (`pins.py`).

Orphans are deleted in groups. Their order does not matter, because nothing refers to any of them.
All files of a group are looked at before the first of them is deleted. That is as safe as a look
before each deletion. A candidate is safe to delete because of its age, and no file gets younger in
the seconds between. Only a file that is written again would be young, and names are used once.
"""

import logging
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import chain, compress, groupby
from operator import itemgetter
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from paimon_stream.errors import (
    CorruptMetadata,
    InvalidOption,
    NoSpace,
    PaimonStreamError,
    StorageError,
)
from paimon_stream.format.mentions import PREFIX_BYTES, Mentions
from paimon_stream.maintenance.hints import lost_history
from paimon_stream.maintenance.pins import refuse_while_pinned
from paimon_stream.options import Age, age_of
from paimon_stream.reports import Progress, Report, silent
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import FileStat, Storage
from paimon_stream.storage.branch import whole_of
from paimon_stream.storage.external import shown
from paimon_stream.storage.read_ahead import in_groups, pages_of_all
from paimon_stream.table.consumers import CONSUMER_FOLDER
from paimon_stream.table.layout import (
    CHANGELOG_FOLDER,
    OWN_FOLDER,
    SCHEMA_FOLDER,
    SNAPSHOT_FOLDER,
    TAG_FOLDER,
)
from paimon_stream.table.recommit_notes import RemovalNote, removing_orphans
from paimon_stream.table.references import References, branches, histories, name_hash
from paimon_stream.table.searched_folders import SearchedFolders
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)

DEFAULT_AGE: Final = timedelta(days=1)
"""By default, files younger than this are left alone."""
LEAST_AGE: Final = timedelta(hours=1)
"""No file younger than this is ever removed."""

_HINTS: Final = ("LATEST", "EARLIEST")
_GROUP: Final = 1000
"""How many orphans are deleted at once: as many as S3 deletes with one request."""
_CLOCK: Final = "clock."
_OLDER_CLOCK: Final = "clock-"
"""The prefix up to release 0.1.0. The name of a commit user's folder may also begin with it."""
_TEMPORARY: Final = re.compile(
    r"\.(?:.*\.)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.tmp", re.DOTALL
)
"""The name of a file that is renamed when its content is complete. Java names such files alike."""
_WITH_TEMPORARY: Final = ("", SCHEMA_FOLDER, TAG_FOLDER, CONSUMER_FOLDER)
"""The folders of metadata in which only temporary files are searched; "" is the table's own."""
_Longs: TypeAlias = npt.NDArray[np.int64]
_DAY: Final = DEFAULT_AGE // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanReport(Report):
    """The orphans that were found. They were removed unless `dry_run` is set.

    Attributes:
        location: the location of the table.
        dry_run: whether nothing was removed.
        cutoff_millis: only older files were removed (epoch milliseconds).
        listed: how many files were checked.
        roots: how many snapshots, tags and changelogs were read.
        files: how many orphans there are, by kind: data, manifest, index, statistics, snapshot,
            changelog, stream, temporary.
        sizes: the bytes of the orphans, by kind.
        paths: the paths of the orphans, at most `max_paths`. They are relative to the table.
            Outside the table, they are full paths.
        failed: how many files could not be deleted.
        folders: how many empty folders were removed.
        skipped: the paths that were not searched, at most `max_paths`. They are symbolic links, and
            folders named almost like a bucket or partition.
    """

    also_in_json = ("count", "bytes", "paths_cut")

    location: str
    dry_run: bool
    cutoff_millis: int
    listed: int
    roots: int
    files: Mapping[str, int]
    sizes: Mapping[str, int]
    paths: tuple[str, ...]
    failed: int
    folders: int
    skipped: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """The number of orphans that were found."""
        return sum(self.files.values())

    @property
    def bytes(self) -> int:
        """The total size of the orphans, in bytes."""
        return sum(self.sizes.values())

    @property
    def paths_cut(self) -> bool:
        """Whether there are more orphans than `paths` names."""
        return len(self.paths) < self.count


def remove_orphan_files(
    table: Table,
    older_than: Age | None = None,
    *,
    dry_run: bool = True,
    max_paths: int = 1000,
    progress: Progress = silent,
    runtime: Runtime | None = None,
) -> OrphanReport:
    """Finds the files to which nothing refers, and removes them unless `dry_run` is set. Raises the
    errors of `PaimonTable.remove_orphan_files`. A file that cannot be deleted is counted and
    logged.
    """
    table = replace(table, storage=whole_of(table.storage))
    running = runtime or system()
    storage = table.storage
    age = _age(older_than, storage.location)
    if not dry_run:
        for history in histories(storage):
            refuse_while_pinned(history, "nothing was removed")
    now = running.clock.now_millis()
    if not dry_run:
        for root in ("", *table.layout.roots):
            by_storage = _storage_clock(storage, running, root)
            if by_storage is None:
                age = max(age, _DAY)
            else:
                now = min(now, by_storage)
    searched = SearchedFolders(storage, table.layout, max_paths)
    with nullcontext() if dry_run else removing_orphans(storage, running) as note:
        deletion = _Deletion(searched=searched, note=note, max_paths=max_paths, progress=progress)
        return _OrphanRemoval(
            table=table,
            runtime=running,
            cutoff=now - age,
            progress=progress,
            searched=searched,
            deletion=deletion,
        ).run()


def _age(older_than: Age | None, location: str) -> int:
    """The least age of the files to remove, in milliseconds."""
    age = DEFAULT_AGE
    if older_than is not None:
        age = age_of(older_than, "older_than", location)
    if age < LEAST_AGE:
        raise InvalidOption(
            f"older_than is {older_than!s}, less than an hour: files that a writer is about to "
            "commit would count as orphans. Nothing was deleted. Give an age of an hour or more, "
            "longer than your longest batch takes.",
            option="older_than",
            value=str(older_than),
        ).of_table(location)
    return age // timedelta(milliseconds=1)


def _storage_clock(storage: Storage, runtime: Runtime, root: str) -> int | None:
    """The time in epoch milliseconds by the clock that gives files below `root` their times. None
    if there is no space even for an empty file, because deleting must work on a full disk.
    """
    path = f"{root}{OWN_FOLDER}/{_CLOCK}{runtime.ids.uuid()}"
    try:
        storage.write(path, b"")
        return storage.stat(path).modified_millis
    except NoSpace as error:
        _LOG.warning(
            "%s: the clock of the storage cannot be asked. Files younger than a day stay: %s",
            storage.location,
            error,
        )
        return None
    finally:
        try:
            storage.delete(path)
        except StorageError as error:
            _LOG.warning(
                "%s: could not remove %s, it stays as an orphan: %s", storage.location, path, error
            )


@dataclass(slots=True, kw_only=True)
class _Deletion:
    """Deletes orphans, and counts them.

    Attributes:
        searched: the folders in which the orphans were found.
        note: keeps `recommit` away; None if orphans are only counted.
        max_paths: how many paths are listed at most.
        files: how many orphans there are, by kind. This and the other attributes are those of
            `OrphanReport`.
    """

    searched: SearchedFolders
    note: RemovalNote | None
    max_paths: int
    progress: Progress
    files: dict[str, int] = field(default_factory=dict, init=False)
    sizes: dict[str, int] = field(default_factory=dict, init=False)
    paths: list[str] = field(default_factory=list, init=False)
    failed: int = field(default=0, init=False)
    folders: int = field(default=0, init=False)

    @property
    def dry_run(self) -> bool:
        """Whether orphans are only counted."""
        return self.note is None

    @property
    def _storage(self) -> Storage:
        return self.searched.storage

    def remove(self, kind: str, stats: Iterable[FileStat]) -> None:
        """Removes files of a kind, and counts those that were removed. In a dry run, files are only
        counted. Files behind links are left out, as `SearchedFolders.skips_link` says.
        """
        in_folders = (stat for stat in stats if not self.searched.skips_link(stat.path))
        for group in in_groups(in_folders, _GROUP):
            counted = group
            if self.note is not None:
                self.note.check()
                counted = self._deleted(group)
            for stat in counted:
                self.files[kind] = self.files.get(kind, 0) + 1
                self.sizes[kind] = self.sizes.get(kind, 0) + stat.size
                if len(self.paths) < self.max_paths:
                    self.paths.append(shown(stat.path))
            how_many_in_all = None  # the orphans are found one group after the other
            self.progress("orphans", sum(self.files.values()), how_many_in_all)

    def _deleted(self, group: Sequence[FileStat]) -> list[FileStat]:
        """Deletes the files that are as they were listed. Returns those that are gone."""
        looks = self._storage.together([partial(self._look_again, stat) for stat in group])
        same = [stat for stat, look in zip(group, looks, strict=True) if look is True]
        failures = {
            stat.path: look
            for stat, look in zip(group, looks, strict=True)
            if isinstance(look, PaimonStreamError)
        }
        failures.update(self._storage.delete_all([stat.path for stat in same]))
        for path, error in failures.items():
            self.failed += 1
            _LOG.warning(
                "%s: could not remove the orphan %s: %s", self._storage.location, path, error
            )
        return [stat for stat in same if stat.path not in failures]

    def _look_again(self, stat: FileStat) -> bool | PaimonStreamError:
        """Whether the file is still as it was listed. Returns the error if that is not known."""
        try:
            return self._storage.stat(stat.path) == stat
        except PaimonStreamError as error:
            return error

    def remove_empty(self, bucket: str) -> None:
        """After orphans were removed from a bucket, removes its folder and those of its partition,
        if they are empty. A writer whose folder is removed creates it again. In a dry run, and in a
        storage without folders, it does nothing.
        """
        if self.dry_run or not self._storage.has_folders:
            return
        path = bucket
        for _ in range(1 + len(self.searched.layout.partition_keys)):
            try:
                if any(self._storage.list_pages(path)) or self._storage.list_folders(path):
                    return
                self._storage.delete(path)
                above, _, name = path.rpartition("/")
                if name in self._storage.list_folders(above):
                    return  # something is in it that is not listed
            except PaimonStreamError as error:
                _LOG.warning(
                    "%s: could not remove the folder %s: %s", self._storage.location, path, error
                )
                return
            self.folders += 1
            path = above


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidates:
    """The old files in the searched folders.

    Attributes:
        folders: the kind and path of each listed folder. The position of a folder is its number.
        pages: for each page of the listings, the number of the folder, and the position in `hashes`
            where the old files of the page end.
        hashes: the hashes of the names of the old files, in the order of the pages.
        prefixes: the prefixes of the names of old files.
    """

    folders: Sequence[tuple[str, str]]
    pages: Sequence[tuple[int, int]]
    hashes: _Longs
    prefixes: set[bytes]

    def folders_with(self, orphans: _Longs) -> list[int]:
        """The numbers of the folders with files whose names have one of the hashes `orphans`."""
        start = 0
        numbers = dict[int, None]()
        for number, end in self.pages:
            if number not in numbers and np.isin(self.hashes[start:end], orphans).any():
                numbers[number] = None
            start = end
        return list(numbers)


@dataclass(slots=True, kw_only=True)
class _OrphanRemoval:
    """One removal of orphans. It lists the folders, and removes the orphans in a fixed order.

    Attributes:
        table: the table, with the storage of all its branches.
        runtime: gives ids and times.
        cutoff: a time in epoch milliseconds. Files that are not older stay.
        progress: is called with what is being done, how much of it was done, and how much there is;
            None if that is not known.
        searched: lists the folders with orphans.
        deletion: deletes the orphans.
        listed: how many files were checked so far.
    """

    table: Table
    runtime: Runtime
    cutoff: int
    progress: Progress
    searched: SearchedFolders
    deletion: _Deletion
    listed: int = field(default=0, init=False)

    def run(self) -> OrphanReport:
        """Finds the orphans and removes them. Returns the report."""
        storage = self.table.storage
        candidates = self._candidates()
        mentions = Mentions(candidates.prefixes)
        references = References(storage, self.runtime, mentions, self.progress)
        orphans = np.setdiff1d(candidates.hashes, references.read())
        for history in histories(storage):
            evidence = lost_history(history, in_doubt=True)
            if evidence is not None:
                raise CorruptMetadata(
                    f"{evidence}. Snapshots seem to be lost, and then the files of their rows "
                    "would count as orphans. Nothing was deleted. Restore the snapshot files from "
                    "a backup. If only the hint is wrong, run repair-hints. If no commit has been "
                    "made yet, remove orphans after the first one.",
                    path=f"{history.location}/{SNAPSHOT_FOLDER}",
                ).of_table(history.location)
        # Strays are recognized by their names alone, so they are removed only after everything
        # could be read.
        strays = list(self._strays())
        if orphans.size:
            self._remove_orphans(candidates, orphans, references.protected)
        deletion = self.deletion
        for kind, group in groupby(strays, key=itemgetter(0)):
            deletion.remove(kind, [stat for _, stat in group])
        return OrphanReport(
            location=storage.location,
            dry_run=deletion.dry_run,
            cutoff_millis=self.cutoff,
            listed=self.listed,
            roots=references.roots,
            files=dict(sorted(deletion.files.items())),
            sizes=dict(sorted(deletion.sizes.items())),
            paths=tuple(deletion.paths),
            failed=deletion.failed,
            folders=deletion.folders,
            skipped=tuple(self.searched.skipped),
        )

    def _candidates(self) -> _Candidates:
        """Lists all old files in the searched folders."""
        folders = list(self.searched.all())
        hashes = array("q")
        pages: list[tuple[int, int]] = []
        prefixes: set[bytes] = set()
        for number, page in self._pages(folders, range(len(folders))):
            for stat in page:
                self.listed += 1
                if stat.modified_millis < self.cutoff:
                    hashes.append(name_hash(stat.name))
                    beginning = stat.name[:PREFIX_BYTES].encode("utf-8", "surrogatepass")
                    prefixes.add(beginning[:PREFIX_BYTES])
            pages.append((number, len(hashes)))
            self.progress("files", self.listed, None)
        return _Candidates(
            folders=folders,
            pages=pages,
            hashes=np.frombuffer(hashes, dtype=np.int64),
            prefixes=prefixes,
        )

    def _pages(
        self, folders: Sequence[tuple[str, str]], numbers: Sequence[int]
    ) -> Iterator[tuple[int, list[FileStat]]]:
        """The pages of the folders with the given numbers. Each page comes after the number of its
        folder.
        """
        sources = (self.searched.pages(*folders[number]) for number in numbers)
        return ((numbers[at], page) for at, page in pages_of_all(self.table.storage, sources))

    def _strays(self) -> Iterator[tuple[str, FileStat]]:
        """Old files that do not belong where they are, each with its kind: foreign files in the
        folders of snapshots and changelogs, and temporary files of killed writers.
        """
        storage = self.table.storage
        for branch in branches(storage):
            for kind, prefix in ((SNAPSHOT_FOLDER, "snapshot-"), (CHANGELOG_FOLDER, "changelog-")):
                files = chain.from_iterable(storage.list_pages(f"{branch}{kind}"))
                for stat in self._old(files):
                    if not stat.name.startswith(prefix) and stat.name not in _HINTS:
                        yield kind, stat
        for root in ("", *self.table.layout.roots):
            for stat in self._old(storage.list_files(f"{root}{OWN_FOLDER}", "clock")):
                if stat.name.startswith((_CLOCK, _OLDER_CLOCK)):
                    yield "stream", stat
        for branch in branches(storage):
            for user in ("", *storage.list_folders(f"{branch}{OWN_FOLDER}")):
                folder = f"{branch}{OWN_FOLDER}/{user}".rstrip("/")
                for stat in self._old(storage.list_files(folder, ".")):
                    if stat.name.endswith(".tmp"):
                        yield "stream", stat
        places = [
            f"{branch}{folder}".rstrip("/")
            for branch in branches(storage)
            for folder in _WITH_TEMPORARY
        ]
        listed = storage.together([partial(storage.list_files, place, ".") for place in places])
        for stat in self._old(chain.from_iterable(listed)):
            if _TEMPORARY.fullmatch(stat.name):
                yield "temporary", stat

    def _old(self, stats: Iterable[FileStat]) -> Iterator[FileStat]:
        """The listed files that are older than the cutoff."""
        for stat in stats:
            self.listed += 1
            if stat.modified_millis < self.cutoff:
                yield stat

    def _remove_orphans(
        self, candidates: _Candidates, orphans: _Longs, protected: set[str]
    ) -> None:
        """Lists the folders with orphans again, and removes the orphans.

        Args:
            candidates: the old files.
            orphans: the hashes of the names to which nothing refers.
            protected: uuids. Files stay if their names contain one of these.
        """
        numbers = candidates.folders_with(orphans)
        for number, page in self._pages(candidates.folders, numbers):
            kind, folder = candidates.folders[number]
            old = [stat for stat in page if stat.modified_millis < self.cutoff]
            hashes_of_old = np.fromiter((name_hash(stat.name) for stat in old), np.int64, len(old))
            unused = compress(old, np.isin(hashes_of_old, orphans))
            removable = [stat for stat in unused if not _has_uuid(stat.name, protected)]
            self.deletion.remove(kind, removable)
            if kind == "data":
                self.deletion.remove_empty(folder)


def _has_uuid(name: str, uuids: Iterable[str]) -> bool:
    """Whether the name of a file contains one of these uuids."""
    return any(uuid in name for uuid in uuids)
