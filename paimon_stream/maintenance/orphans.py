"""Removing orphans: files in the table's folders that nothing refers to (semantics.md §9).

Orphans come from killed tasks, abandoned commits and interrupted expiry. The same places as in Java are
searched: `manifest`, `index`, `statistics`, the buckets of all partitions, and in `snapshot` and `changelog`
all files that are neither snapshots nor hints. All other folders are left alone, above all `schema`, `tag`,
`consumer` and `branch`. In `_paimon_stream` only temporary files are removed. Unlike Java, only folders with
exactly the names of buckets and partitions are searched, and symbolic links are neither followed nor deleted
(`searched_folders.py`).

A file that may still become part of the table is never removed:

1. Candidates are listed first. Only then are the names in use read (`table/references.py`). A file that is
   committed in the meantime is either young, or in a journal.
2. Candidates are older than the cutoff, by the storage's own clock if that is behind the local one. Their age
   is checked again just before each is deleted.
3. The age is at least an hour: committers publish nothing that was staged longer ago than half of that, and
   they reuse prepared files only with a journal, whose files are never candidates.
4. Nothing is removed if snapshots seem to be lost (`lost_history.py`), because their files would look unused.

Memory: eight bytes for each file older than the cutoff and for each name in use, plus the listing of one
folder. A folder is listed a second time only if it has an orphan.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import numpy as np
import numpy.typing as npt

from paimon_stream.errors import CorruptMetadata, InvalidOption, NoSpace, PaimonStreamError, StorageError
from paimon_stream.format.mentions import PREFIX_BYTES, Mentions
from paimon_stream.maintenance.ages import Age, age_of
from paimon_stream.maintenance.lost_history import lost_history
from paimon_stream.maintenance.pins import refuse_while_pinned
from paimon_stream.maintenance.progress import Progress, silent
from paimon_stream.maintenance.report import Report
from paimon_stream.maintenance.searched_folders import SearchedFolders
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import FileStat, Storage
from paimon_stream.table.layout import OWN_FOLDER, SNAPSHOT_FOLDER
from paimon_stream.table.references import CHANGELOG_FOLDER, References, branches, name_hash
from paimon_stream.table.table import Table

__all__ = ["DEFAULT_AGE", "LEAST_AGE", "OrphanReport", "remove_orphan_files"]

_LOG = logging.getLogger(__name__)

DEFAULT_AGE: Final = timedelta(days=1)
"""By default, files younger than this are left alone."""
LEAST_AGE: Final = timedelta(hours=1)
"""No file younger than this is ever removed."""

_HINTS: Final = ("LATEST", "EARLIEST")
_CLOCK: Final = "clock-"
_DAY: Final = DEFAULT_AGE // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanReport(Report):
    """What was found, and removed unless `dry_run`. `files` and `sizes` (bytes) are by kind: data, manifest,
    index, statistics, snapshot, changelog, stream. `paths` are relative to the table, at most `max_paths` of
    them. `listed` counts all checked files, `roots` the snapshots, tags and changelogs that were read,
    `failed` the files that could not be deleted, `folders` the empty folders that were removed. `skipped` are
    the paths, at most `max_paths` of them, that were left without a look inside: symbolic links, and folders
    that are named almost like a bucket or partition. `cutoff_millis` is epoch milliseconds.
    """

    also_in_json = ("count", "bytes", "paths_cut")

    table: str
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
        """The number of orphans found."""
        return sum(self.files.values())

    @property
    def bytes(self) -> int:
        """The total size of the orphans, in bytes."""
        return sum(self.sizes.values())

    @property
    def paths_cut(self) -> bool:
        """Whether there are more orphans than `paths`."""
        return len(self.paths) < self.count


def remove_orphan_files(
    table: Table,
    older_than: Age | None = None,
    dry_run: bool = True,
    *,
    max_paths: int = 1000,
    progress: Progress | None = None,
    storage: Storage | None = None,
    runtime: Runtime | None = None,
) -> OrphanReport:
    """Finds the files that nothing refers to, and removes them unless `dry_run`.

    It is a dry run by default. `expire_snapshots` and `rollback_to` are not, because the table's own metadata
    decide what they delete. Here the candidates are guesses by age: a file that nothing refers to is either
    an orphan, or part of a batch that takes longer than `older_than`.

    `older_than` is an age: a `timedelta` or a text such as `"36 h"`. The default is a day, the minimum an
    hour. Batches that take longer than that to write would lose files.

    Raises `InvalidOption` for a smaller age. Raises `CorruptMetadata`, `UnknownVersion`, `StorageError`, with
    nothing deleted, if any snapshot, tag, changelog, branch, list, manifest or journal cannot be read or
    snapshots are lost; and `CommitContended`, also while a rollback is under way. A file that cannot be
    deleted is counted and logged.
    """
    used = storage or table.storage
    running = runtime or system()
    age = _age(older_than, used.location)
    if not dry_run:
        refuse_while_pinned(used, "nothing was removed")
    now = running.clock.now_millis()
    if not dry_run:
        by_storage = _storage_clock(used, running)
        now, age = (now, max(age, _DAY)) if by_storage is None else (min(now, by_storage), age)
    return _Cleaner(
        table=table,
        storage=used,
        runtime=running,
        cutoff=now - age,
        dry_run=dry_run,
        max_paths=max_paths,
        progress=progress or silent,
    ).run()


def _age(older_than: Age | None, location: str) -> int:
    """The age in milliseconds."""
    age = DEFAULT_AGE if older_than is None else age_of(older_than, "older_than", location)
    if age < LEAST_AGE:
        raise InvalidOption(
            f"{location}: older_than is {older_than!s}, less than an hour: files that a writer is about to "
            "commit would count as orphans. Nothing was deleted. Give an age of an hour or more, longer "
            "than your longest batch takes.",
            option="older_than",
            value=str(older_than),
            table=location,
        )
    return age // timedelta(milliseconds=1)


def _storage_clock(storage: Storage, runtime: Runtime) -> int | None:
    """The time in epoch milliseconds by the clock that gives files their modification times. None if not even
    an empty file has space; deleting must work then, too."""
    path = f"{OWN_FOLDER}/{_CLOCK}{runtime.ids.uuid()}"
    try:
        storage.write(path, b"")
        return storage.stat(path).modified_millis
    except NoSpace as why:
        _LOG.warning(
            "%s: the clock of the storage cannot be asked. Files younger than a day stay: %s",
            storage.location,
            why,
        )
        return None
    finally:
        _remove_clock(storage, path)


def _remove_clock(storage: Storage, path: str) -> None:
    try:
        storage.delete(path)
    except StorageError as why:
        _LOG.warning("%s: could not remove %s, it stays as an orphan: %s", storage.location, path, why)


@dataclass(slots=True)
class _Folder:
    """A folder that was listed. The hashes of its old files are the ones up to `end`."""

    path: str
    kind: str
    end: int


@dataclass(slots=True, kw_only=True)
class _Cleaner:
    """One run."""

    table: Table
    storage: Storage
    runtime: Runtime
    cutoff: int
    dry_run: bool
    max_paths: int
    progress: Progress
    listed: int = 0
    failed: int = 0
    removed_folders: int = 0
    files: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)
    searched: SearchedFolders = field(init=False)

    def __post_init__(self) -> None:
        self.searched = SearchedFolders(self.storage, self.table.layout, self.max_paths)

    def run(self) -> OrphanReport:
        folders, hashes, prefixes = self._candidates()
        references = References(
            storage=self.storage,
            runtime=self.runtime,
            mentions=Mentions(prefixes),
            progress=self.progress,
        )
        orphans = np.setdiff1d(hashes, references.read())
        self._refuse_lost_history()
        strays = list(self._strays())  # judged only by their names, and only after everything could be read
        if orphans.size:
            self._remove_orphans(folders, hashes, orphans, references.protected)
        for kind, stat in strays:
            self._remove(kind, stat)
        return self._report(references.roots)

    def _refuse_lost_history(self) -> None:
        why = lost_history(self.storage, in_doubt=True)
        if why is not None:
            raise CorruptMetadata(
                f"{self.storage.location}: {why}. Snapshots seem to be lost, and then the files of their "
                "rows would count as orphans. Nothing was deleted. Restore the snapshot files from a "
                "backup; if only the hint is wrong, run repair-hints.",
                path=f"{self.storage.location}/{SNAPSHOT_FOLDER}",
                table=self.storage.location,
            )

    # -- 1: candidates ----------------------------------------------------------------------------

    def _candidates(self) -> tuple[list[_Folder], npt.NDArray[np.int64], set[bytes]]:
        """The folders, the hashes of the old files in them, and the prefixes of the names of data files."""
        hashes = array("q")
        folders: list[_Folder] = []
        prefixes: set[bytes] = set()
        for kind, path in self.searched.all():
            for stat in self._list(path):
                self.listed += 1
                if stat.modified_millis < self.cutoff:
                    hashes.append(name_hash(stat.name))
                    if kind == "data":
                        prefixes.add(stat.name[:PREFIX_BYTES].encode("utf-8", "surrogatepass")[:PREFIX_BYTES])
            folders.append(_Folder(path, kind, len(hashes)))
            self.progress("files", self.listed, None)
        return folders, np.frombuffer(hashes, dtype=np.int64), prefixes

    def _list(self, folder: str) -> Iterator[FileStat]:
        """All files of a folder, including hidden ones."""
        yield from self.storage.list_files(folder)
        yield from self.storage.list_files(folder, ".")

    def _strays(self) -> Iterator[tuple[str, FileStat]]:
        """Old files of any origin that do not belong where they are, including the temporary files of killed
        writers."""
        for branch in branches(self.storage):
            for kind, prefix in ((SNAPSHOT_FOLDER, "snapshot-"), (CHANGELOG_FOLDER, "changelog-")):
                for stat in self._old(self._list(f"{branch}{kind}")):
                    if not stat.name.startswith(prefix) and stat.name not in _HINTS:
                        yield kind, stat
        for stat in self._old(iter(self.storage.list_files(OWN_FOLDER, _CLOCK))):
            yield "stream", stat
        for user in ("", *self.storage.list_folders(OWN_FOLDER)):
            folder = f"{OWN_FOLDER}/{user}".rstrip("/")
            for stat in self._old(iter(self.storage.list_files(folder, "."))):
                if stat.name.endswith(".tmp"):
                    yield "stream", stat

    def _old(self, stats: Iterator[FileStat]) -> Iterator[FileStat]:
        for stat in stats:
            self.listed += 1
            if stat.modified_millis < self.cutoff:
                yield stat

    # -- 2: what is left of them ------------------------------------------------------------------

    def _remove_orphans(
        self,
        folders: list[_Folder],
        hashes: npt.NDArray[np.int64],
        orphans: npt.NDArray[np.int64],
        protected: set[str],
    ) -> None:
        start = 0
        for folder in folders:
            mine = hashes[start : folder.end]
            start = folder.end
            left = {int(one) for one in mine[np.isin(mine, orphans)]}
            if not left:
                continue
            for stat in self._list(folder.path):
                young = stat.modified_millis >= self.cutoff
                if not young and name_hash(stat.name) in left and not _is_of(stat.name, protected):
                    self._remove(folder.kind, stat)
            if folder.kind == "data" and not self.dry_run:
                self._remove_empty(folder.path)

    def _remove(self, kind: str, stat: FileStat) -> None:
        if self.searched.skips_link(stat.path):
            return
        if not self.dry_run and not self._deleted(stat):
            return
        self.files[kind] = self.files.get(kind, 0) + 1
        self.sizes[kind] = self.sizes.get(kind, 0) + stat.size
        if len(self.paths) < self.max_paths:
            self.paths.append(stat.path)
        self.progress("orphans", sum(self.files.values()), None)

    def _deleted(self, stat: FileStat) -> bool:
        try:
            if self.storage.stat(stat.path) != stat:
                return False  # the file was written again
            self.storage.delete(stat.path)
        except PaimonStreamError as why:
            self.failed += 1
            _LOG.warning("%s: could not remove the orphan %s: %s", self.storage.location, stat.path, why)
            return False
        return True

    def _remove_empty(self, bucket: str) -> None:
        """Removes the folder of a bucket that orphans were removed from, and those of its partition, if they
        are empty. A writer whose folder is removed creates it again."""
        path = bucket
        for _ in range(1 + len(self.table.layout.partition_keys)):
            try:
                if self.storage.list_folders(path) or any(True for _ in self._list(path)):
                    return
                self.storage.delete(path)
                above, _, name = path.rpartition("/")
                if name in self.storage.list_folders(above):
                    return  # something is in it that is not listed
            except PaimonStreamError as why:
                _LOG.warning("%s: could not remove the folder %s: %s", self.storage.location, path, why)
                return
            self.removed_folders += 1
            path = above

    def _report(self, roots: int) -> OrphanReport:
        return OrphanReport(
            table=self.storage.location,
            dry_run=self.dry_run,
            cutoff_millis=self.cutoff,
            listed=self.listed,
            roots=roots,
            files=dict(sorted(self.files.items())),
            sizes=dict(sorted(self.sizes.items())),
            paths=tuple(self.paths),
            failed=self.failed,
            folders=self.removed_folders,
            skipped=tuple(self.searched.skipped),
        )


def _is_of(name: str, uuids: set[str]) -> bool:
    """Whether the name is metadata of one of these stagings (`manifest-<uuid>-<n>`)."""
    return any(uuid in name for uuid in uuids)
