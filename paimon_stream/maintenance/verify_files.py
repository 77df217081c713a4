"""The folders of a table in which every file must be referred to: only those with exactly the names
that Paimon gives to buckets and partitions (`format/names.py`), unlike in Java, which also searches
folders that are named almost so. And what verification knows of a table's files, as whole columns
of numbers: which exist, and which are live. Listing every folder costs far less than a request per
file; a hash of the path and the size are kept. A file that the listing lacks may be younger, so it
is requested once more before it is reported. Identities are 64-bit hashes, and anything odd is
looked up by name: equal hashes can cause work, but never a false finding.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from paimon_stream.errors import NotFound
from paimon_stream.format.names import is_bucket_folder, is_partition_folder
from paimon_stream.reports import Progress
from paimon_stream.storage.base import FileStat, Storage, files_of
from paimon_stream.storage.read_ahead import pages_of_all
from paimon_stream.storage.uri import shown, split_root
from paimon_stream.table.layout import INDEX_FOLDER, MANIFEST_FOLDER, STATISTICS_FOLDER, Layout

_MOST_KNOWN: Final = 10_000

_OF_METADATA: Final = (
    ("manifest", MANIFEST_FOLDER),
    ("index", INDEX_FOLDER),
    ("statistics", STATISTICS_FOLDER),
)


@dataclass(slots=True)
class SearchedFolders:
    """The folders of one table. `skipped` are the paths, at most `most` of them, that were met and
    not looked into: symbolic links, and folders that are named almost like a bucket or partition.
    """

    storage: Storage
    layout: Layout
    most: int = 0
    skipped: dict[str, None] = field(default_factory=dict, init=False)
    _known: dict[str, bool] = field(default_factory=dict, init=False)

    def all(self) -> Iterator[tuple[str, str]]:
        """What `pages` lists at once: each folder after the kind of its files. Raises
        `StorageError`.
        """
        for kind, folder in _OF_METADATA:
            if not self.skips_link(folder):
                yield kind, folder
        for bucket in self.buckets():
            yield "data", bucket

    def buckets(self) -> Iterator[str]:
        """The folders of all buckets of all partitions. Raises `StorageError`."""
        for root in ("", *self.layout.roots):
            start = f"{root}{self.layout.directory}".rstrip("/")
            if not (self.layout.directory and self.skips_link(start)):
                yield from self._below(start, self.layout.partition_keys)

    def pages(self, kind: str, folder: str) -> Iterator[list[FileStat]]:
        """All files of a folder that `all` found, and of the searched folders below it. Raises
        `StorageError`.
        """
        if self.storage.has_folders and not split_root(folder)[0]:
            yield files_of(self.storage, folder)
            return
        for page in self.storage.list_below(folder):
            yield [
                one for one in page if self._is_searched(kind, folder, one.path.rpartition("/")[0])
            ]

    def _is_searched(self, kind: str, listed: str, folder: str) -> bool:
        """Whether the files of a folder without folders of its own are searched."""
        found = self._known.get(folder)
        if found is None:
            found = self.layout.holds(f"{folder}/file") if kind == "data" else folder == listed
            if kind == "data" and not found:
                self._note(folder[len(self.layout.directory) :].lstrip("/").split("/"), folder)
            if len(self._known) < _MOST_KNOWN:
                self._known[folder] = found
        return found

    def _note(self, parts: Sequence[str], folder: str) -> None:
        *partitions, bucket = parts
        keys = self.layout.partition_keys
        is_partition = len(parts) <= len(keys) and is_partition_folder(
            bucket, keys[len(partitions)]
        )
        if not is_partition and ("=" in bucket or bucket.startswith("bucket-")):
            self._skip(folder)

    def skips_link(self, path: str) -> bool:
        """Whether the path is a symbolic link or lies behind one; it is then among the skipped."""
        is_link = self.storage.is_link(path)
        if is_link:
            self._skip(path)
        return is_link

    def _below(self, folder: str, keys: Sequence[str]) -> Iterator[str]:
        for name in self.storage.list_folders(folder):
            if not ("=" in name if keys else name.startswith("bucket-")):
                continue
            path = f"{folder}/{name}" if folder else name
            if not (is_partition_folder(name, keys[0]) if keys else is_bucket_folder(name)):
                self._skip(path)
            elif self.skips_link(path):
                continue
            elif keys and self.storage.has_folders:
                yield from self._below(path, keys[1:])
            else:
                yield path

    def _skip(self, path: str) -> None:
        if len(self.skipped) < self.most:
            self.skipped[shown(path)] = None


Longs = npt.NDArray[np.int64]
Signs = npt.NDArray[np.int8]
NONE: Final = np.empty(0, np.int64)
"""No identities."""


@dataclass(slots=True)
class Inventory:
    """The data and index files of a table, as of `take`."""

    storage: Storage
    _paths: Longs = field(default_factory=lambda: NONE)
    _sizes: Longs = field(default_factory=lambda: NONE)

    def take(self, layout: Layout, progress: Progress) -> int:
        """Lists all folders and returns the number of files. Raises `StorageError`."""
        paths, sizes = array("q"), array("q")
        searched = SearchedFolders(self.storage, layout)
        folders = [*(("data", one) for one in searched.buckets()), ("index", INDEX_FOLDER)]
        listings = (searched.pages(kind, folder) for kind, folder in folders)
        for number, page in pages_of_all(self.storage, listings):
            for stat in page:
                if not stat.name.startswith("."):
                    paths.append(hash(stat.path))
                    sizes.append(stat.size)
            progress("folders", number + 1, len(folders))
        found = np.frombuffer(paths, dtype=np.int64)
        order = np.argsort(found)
        self._paths, self._sizes = found[order], np.frombuffer(sizes, dtype=np.int64)[order]
        return len(found)

    def differing(self, paths: Longs, sizes: Longs) -> list[int]:
        """The positions of the files that the listing lacks or has with another size."""
        if not len(paths) or not len(self._paths):
            return list(range(len(paths)))
        at = np.minimum(np.searchsorted(self._paths, paths), len(self._paths) - 1)
        good = (self._paths[at] == paths) & (self._sizes[at] == sizes)
        missed: list[int] = np.flatnonzero(~good).tolist()
        return missed

    def size_now(self, path: str) -> int | None:
        """The present size of the file, None if it does not exist. Raises `StorageError`."""
        try:
            return self.storage.stat(path).size
        except NotFound:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The live identities, sorted; those added while live; those deleted while not live."""

    live: Longs
    twice: Longs
    dangling: Longs


def replay(parts: Sequence[tuple[Longs, Signs]]) -> Replayed:
    """Replays entries in order. Each part has identities, and 1 for ADD or -1 for DELETE."""
    ids = np.concatenate([NONE, *(one for one, _ in parts)])
    if not len(ids):
        return Replayed(live=NONE, twice=NONE, dangling=NONE)
    signs = np.concatenate([one for _, one in parts])
    order = np.argsort(ids, kind="stable")
    ids, signs = ids[order], signs[order]
    first = np.concatenate([[True], ids[1:] != ids[:-1]])
    if first.all() and (signs > 0).all():
        return Replayed(live=ids, twice=NONE, dangling=NONE)
    running = np.cumsum(signs, dtype=np.int64)
    starts = np.flatnonzero(first)
    before = np.concatenate([[0], running[starts[1:] - 1]])
    running = running - np.repeat(before, np.diff(np.append(starts, len(ids))))
    ends = np.append(starts[1:], len(ids)) - 1
    live = ids[ends[running[ends] > 0]]
    return Replayed(
        live=live, twice=np.unique(ids[running > 1]), dangling=np.unique(ids[running < 0])
    )


def follow(live: Longs, delta: Sequence[tuple[Longs, Signs]]) -> Replayed:
    """Replays entries that come after a state whose live files are known and sorted. Apart from
    copying these, the cost grows only with the number of entries.
    """
    if not delta:
        return Replayed(live=live, twice=NONE, dangling=NONE)
    touched = np.unique(np.concatenate([ids for ids, _ in delta]))
    places = np.searchsorted(live, touched)
    found = places < len(live)
    found[found] = live[places[found]] == touched[found]
    present = touched[found]
    after = replay([(present, np.ones(len(present), np.int8)), *delta])
    kept = np.delete(live, places[found]) if len(present) else live
    joined = np.insert(kept, np.searchsorted(kept, after.live), after.live)
    return Replayed(live=joined, twice=after.twice, dangling=after.dangling)
