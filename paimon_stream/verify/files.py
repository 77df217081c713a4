"""The facts that verification knows about a table's files, as whole columns of numbers: which files
exist, and which files are live. Listing every folder costs far less than a request per file. For
each file, a hash of the path and the size are kept. A file that the listing lacks may be newer than
the listing, so it is requested once more before it is reported. Identities are 64-bit hashes.
Anything that looks wrong is looked up by name. So equal hashes can cause additional work, but never
a false finding.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from paimon_stream.errors import NotFound
from paimon_stream.reports import Progress
from paimon_stream.storage.base import Storage
from paimon_stream.storage.read_ahead import pages_of_all
from paimon_stream.table.layout import INDEX_FOLDER, Layout
from paimon_stream.table.searched_folders import SearchedFolders

Longs = npt.NDArray[np.int64]
Signs = npt.NDArray[np.int8]
NONE: Final = np.empty(0, np.int64)
"""No identities."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The data and index files of a table, as they were when `of` listed them."""

    storage: Storage
    _paths: Longs
    """The hashes of the paths, sorted."""
    _sizes: Longs
    """The sizes in bytes, in the order of the paths."""

    @classmethod
    def of(cls, storage: Storage, layout: Layout, progress: Progress) -> "Inventory":
        """Lists all folders. Raises `StorageError`."""
        paths = array("q")
        sizes = array("q")
        searched = SearchedFolders(storage, layout)
        folders = [*(("data", folder) for folder in searched.buckets()), ("index", INDEX_FOLDER)]
        listings = (searched.pages(kind, folder) for kind, folder in folders)
        for number, page in pages_of_all(storage, listings):
            for stat in page:
                if not stat.name.startswith("."):
                    paths.append(hash(stat.path))
                    sizes.append(stat.size)
            progress("folders", number + 1, len(folders))
        hashes = np.frombuffer(paths, dtype=np.int64)  # of the paths
        order = np.argsort(hashes)
        return cls(storage, hashes[order], np.frombuffer(sizes, dtype=np.int64)[order])

    def __len__(self) -> int:
        return len(self._paths)

    def differing(self, paths: Longs, sizes: Longs) -> list[int]:
        """The positions of the files that the listing lacks, or that have another size in it."""
        if not len(paths) or not len(self._paths):
            return list(range(len(paths)))
        # A hash that is larger than all listed hashes is compared with the last one.
        places = np.minimum(np.searchsorted(self._paths, paths), len(self._paths) - 1)
        is_right = (self._paths[places] == paths) & (self._sizes[places] == sizes)
        differing: list[int] = np.flatnonzero(~is_right).tolist()
        return differing

    def size_now(self, path: str) -> int | None:
        """The present size of the file; None if the file does not exist. Raises `StorageError`."""
        try:
            return self.storage.stat(path).size
        except NotFound:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The files that are live after some manifest entries were replayed.

    Attributes:
        live: the identities of the live files, sorted.
        twice: the identities that were added while they were live.
        dangling: the identities that were deleted while they were not live.
    """

    live: Longs
    twice: Longs
    dangling: Longs


def replay(parts: Sequence[tuple[Longs, Signs]]) -> Replayed:
    """Replays entries in order. Each part has identities, and 1 for ADD or -1 for DELETE."""
    ids = np.concatenate([NONE, *(identities for identities, _ in parts)])
    if not len(ids):
        return Replayed(live=NONE, twice=NONE, dangling=NONE)
    signs = np.concatenate([signs_of_part for _, signs_of_part in parts])
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    signs = signs[order]
    is_first = np.concatenate([[True], ids[1:] != ids[:-1]])  # of the entries of an identity
    if is_first.all() and (signs > 0).all():
        return Replayed(live=ids, twice=NONE, dangling=NONE)
    # The number of times that the identity of each entry is live after the entry. To get it, take
    # the sum over all entries up to this one, and subtract the sum before the first entry of the
    # same identity.
    running = np.cumsum(signs, dtype=np.int64)
    starts = np.flatnonzero(is_first)
    before = np.concatenate([[0], running[starts[1:] - 1]])
    running = running - np.repeat(before, np.diff(np.append(starts, len(ids))))
    ends = np.append(starts[1:], len(ids)) - 1
    live = ids[ends[running[ends] > 0]]
    return Replayed(
        live=live, twice=np.unique(ids[running > 1]), dangling=np.unique(ids[running < 0])
    )


def follow(live: Longs, delta: Sequence[tuple[Longs, Signs]]) -> Replayed:
    """Replays entries that come after a state whose live files are known and sorted. Apart from
    copying the state, the cost grows only with the number of entries.
    """
    if not delta:
        return Replayed(live=live, twice=NONE, dangling=NONE)
    # Only the entries of these identities are replayed. First come the identities that are live, as
    # if they were added. Then come the new entries.
    touched = np.unique(np.concatenate([ids for ids, _ in delta]))
    places = np.searchsorted(live, touched)
    is_live = places < len(live)
    is_live[is_live] = live[places[is_live]] == touched[is_live]
    present = touched[is_live]
    after = replay([(present, np.ones(len(present), np.int8)), *delta])
    kept = np.delete(live, places[is_live]) if len(present) else live
    joined = np.insert(kept, np.searchsorted(kept, after.live), after.live)
    return Replayed(live=joined, twice=after.twice, dangling=after.dangling)
