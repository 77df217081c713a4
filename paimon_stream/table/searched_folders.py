"""The folders of a table in which every file must be referred to: only those with exactly the names
that Paimon gives to buckets and partitions (`format/names.py`), unlike in Java, which also searches
folders that are named almost so. Symbolic links are not followed: what is behind them may belong to
others. stores.md §8 has the listing in stores.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from paimon_stream.format.names import is_bucket_folder, is_partition_folder
from paimon_stream.storage.base import FileStat, Storage, files_of
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
