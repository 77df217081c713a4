"""The index files of a snapshot: deletion vectors, and hash indexes of dynamic buckets (table-kinds.md §1, §2.1)."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from paimon_stream.errors import CorruptMetadata, UnsupportedFeature
from paimon_stream.format.entries import HASH, DeletionRange, IndexFileMeta, IndexManifestEntry
from paimon_stream.format.index_manifest import DELETION_VECTORS
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.storage.base import Storage, read_if_there
from paimon_stream.table.layout import Layout
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.table import Table

Vector: TypeAlias = tuple[IndexManifestEntry, DeletionRange]
"""Where a deletion vector is: the index file and the place in it."""


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """The index files with deletion vectors of a snapshot."""

    table: Table
    snapshot: Snapshot | None
    entries: tuple[IndexManifestEntry, ...]

    @classmethod
    def of(cls, table: Table, snapshot: Snapshot | None) -> "VectorIndex":
        """Reads the snapshot's index manifest, if it has one. Raises `CorruptMetadata` for an index without places,
        `UnsupportedFeature` for an index file outside the table."""
        if snapshot is None:
            return cls(table, snapshot, ())
        entries = ManifestStore(table.storage).index_entries(snapshot.index_manifest)
        found = cls(table, snapshot, tuple(one for one in entries if one.file.index_type == DELETION_VECTORS))
        for one in found.entries:
            if one.file.deletions is None:
                text = (
                    f"Snapshot {snapshot.id} of {table.location}: the entry of the index file {one.file.file_name} "
                    "does not say where its deletion vectors are. Roll the table back to before it."
                )
                raise CorruptMetadata(text, table=table.location, file=one.file.file_name)
        return found

    def vectors(self, names: Collection[str]) -> dict[str, Vector]:
        """The deletion vectors of the data files of these names. Index files may also have those of files that were
        replaced. Raises `UnsupportedFeature` for a second vector of a file."""
        found: dict[str, Vector] = {}
        for entry in self.entries:
            for one in entry.file.deletions or ():
                if one.data_file in names:
                    if one.data_file in found:
                        snapshot, file = self.snapshot and self.snapshot.id, entry.file.file_name
                        raise UnsupportedFeature(
                            f"the deletion vectors in {file} of snapshot {snapshot} hold a second one for "
                            f"{one.data_file}. Read the table with the engine that wrote it.",
                            file=file,
                        ).of_table(self.table.location)
                    found[one.data_file] = entry, one
        return found


class IndexFiles:
    """Reads a table's index files, and keeps the last: vectors needed one after the other are mostly in one."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._last = ("", b"")

    def path(self, entry: IndexManifestEntry) -> str:
        """The full path, for messages."""
        return f"{self._table.location}/{self._relative(entry)}"

    def read(self, entry: IndexManifestEntry) -> bytes:
        """All bytes. Raises `NotFound`, `StorageError`."""
        path = self._relative(entry)
        if self._last[0] != path:
            self._last = path, self._table.storage.read(path)
        return self._last[1]

    def _relative(self, entry: IndexManifestEntry) -> str:
        return self._table.layout.index_file(entry.partition, entry.bucket, entry.file)


Hashes = npt.NDArray[np.int32]

NO_HASHES: Final = np.zeros(0, np.int32)


def index_file(name: str, content: bytes) -> IndexFileMeta:
    """The entry of an index file with this content: hashes, four bytes each."""
    return IndexFileMeta(index_type=HASH, file_name=name, file_size=len(content), row_count=len(content) // 4)


def read_index_file(storage: Storage, layout: Layout, partition: bytes, bucket: int, file: IndexFileMeta) -> bytes:
    """The hashes of a bucket's keys, four bytes each, big endian. Raises `CorruptMetadata` if the file is missing or
    has another size than its entry says, and `StorageError`."""
    path = layout.index_file(partition, bucket, file)
    data = read_if_there(storage.read, path)
    if data is None or not len(data) == file.file_size == 4 * file.row_count:
        raise CorruptMetadata(
            f"{storage.location}/{path} {'is missing' if data is None else f'has {len(data):,} bytes'}; its entry says "
            f"{file.file_size:,} bytes and {file.row_count:,} hashes. It is the hash index of bucket {bucket}: without "
            "it, keys would be written a second time. Nothing was written. Run `paimon-stream rebuild-index`, which "
            "makes the index anew from the table's files.",
            path=path,
        )
    return data


def hashes_of(data: bytes) -> Hashes:
    """The hashes in an index file."""
    return np.frombuffer(data, ">i4").astype(np.int32)


def in_several(buckets: Iterable[Hashes]) -> Hashes:
    """The hashes that more than one bucket has."""
    every = np.sort(np.concatenate([NO_HASHES, *map(np.unique, buckets)]))
    return np.unique(every[1:][every[1:] == every[:-1]])
