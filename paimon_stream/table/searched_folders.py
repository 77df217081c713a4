"""Finds the folders of a table in which every file must be referred to. Only folders with exactly
the names that Paimon gives to buckets and partitions are searched (`format/names.py`). Java also
searches folders with slightly different names. Symbolic links are not followed, because the files
behind them may belong to somebody else. How object stores are listed is in stores.md §8.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from paimon_stream.format.names import is_bucket_folder, is_partition_folder
from paimon_stream.storage.base import FileStat, Storage
from paimon_stream.storage.external import shown, split_root
from paimon_stream.table.layout import INDEX_FOLDER, MANIFEST_FOLDER, STATISTICS_FOLDER, Layout

_MOST_KNOWN: Final = 10_000

_OF_METADATA: Final = (
    ("manifest", MANIFEST_FOLDER),
    ("index", INDEX_FOLDER),
    ("statistics", STATISTICS_FOLDER),
)


@dataclass(slots=True)
class SearchedFolders:
    """The folders of one table in which files are searched.

    Attributes:
        storage: the table.
        layout: where the files of the table are.
        most_skipped: the largest number of paths in `skipped`.
        skipped: the paths that were found and not searched: symbolic links, and folders that are
            named almost like a bucket or partition.
    """

    storage: Storage
    layout: Layout
    most_skipped: int = 0
    skipped: dict[str, None] = field(default_factory=dict, init=False)
    # Whether the files of a folder are searched, by the folder.
    _known: dict[str, bool] = field(default_factory=dict, init=False)

    def all(self) -> Iterator[tuple[str, str]]:
        """The folders that `pages` lists in one call, each after the kind of its files. Raises
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
            yield from self.storage.list_pages(folder)
            return
        for page in self.storage.list_below(folder):
            yield [
                file
                for file in page
                if self._is_searched(kind, folder, file.path.rpartition("/")[0])
            ]

    def _is_searched(self, kind: str, listed: str, folder: str) -> bool:
        """Whether the files of `folder` are searched. The folder was found below the folder
        `listed`, in a storage that has no folders of its own.
        """
        is_searched = self._known.get(folder)
        if is_searched is None:
            if kind == "data":
                is_searched = self.layout.holds(f"{folder}/file")
                if not is_searched:
                    self._note_if_almost(folder)
            else:
                is_searched = folder == listed
            if len(self._known) < _MOST_KNOWN:
                self._known[folder] = is_searched
        return is_searched

    def _note_if_almost(self, folder: str) -> None:
        """Notes a folder as skipped if it is named almost like a bucket or partition."""
        *partitions, name = folder[len(self.layout.directory) :].lstrip("/").split("/")
        keys = self.layout.partition_keys
        is_partition = len(partitions) < len(keys) and is_partition_folder(
            name, keys[len(partitions)]
        )
        if not is_partition and ("=" in name or name.startswith("bucket-")):
            self._skip(folder)

    def skips_link(self, path: str) -> bool:
        """Whether the path is a symbolic link or lies behind one. If so, it is added to the skipped
        paths.
        """
        is_link = self.storage.is_link(path)
        if is_link:
            self._skip(path)
        return is_link

    def _below(self, folder: str, keys: Sequence[str]) -> list[str]:
        """The folders of buckets below a folder that has partitions of these keys or, without keys,
        buckets. In a storage that has no folders of its own, returns the first partition folders
        instead.
        """
        folders = [folder]
        levels = (*keys, None) if self.storage.has_folders else (*keys, None)[:1]
        for key in levels:
            folders = list(self._of_level(folders, key))
        return folders

    def _of_level(self, above: Sequence[str], key: str | None) -> Iterator[str]:
        """The folders of the partitions of a key, or of buckets if `key` is None, directly in the
        folders `above`, which are listed together.
        """
        list_folders = self.storage.list_folders
        listed = self.storage.together([partial(list_folders, folder) for folder in above])
        for folder, names in zip(above, listed, strict=True):
            for name in names:
                if key is not None:
                    is_almost = "=" in name
                    is_named_so = is_partition_folder(name, key)
                else:
                    is_almost = name.startswith("bucket-")
                    is_named_so = is_bucket_folder(name)
                path = f"{folder}/{name}" if folder else name
                if is_almost and not is_named_so:
                    self._skip(path)
                elif is_almost and not self.skips_link(path):
                    yield path

    def _skip(self, path: str) -> None:
        if len(self.skipped) < self.most_skipped:
            self.skipped[shown(path)] = None
