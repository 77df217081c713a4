"""Finds the deletion vectors of a snapshot (table-kinds.md §1)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from paimon_stream.errors import CorruptMetadata, NotFound, UnsupportedFeature
from paimon_stream.format.deletion_vectors import record_of
from paimon_stream.format.entries import DeletionRange, IndexManifestEntry
from paimon_stream.format.index_manifest import DELETION_VECTORS
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.table import Table

Vector: TypeAlias = tuple[IndexManifestEntry, DeletionRange]
"""Where a deletion vector is: the index file and the place in it."""


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """The index files with deletion vectors of a snapshot.

    Attributes:
        table: the table.
        snapshot: the snapshot; None for an empty table.
        entries: the entries of these index files in the snapshot's index manifest.
    """

    table: Table
    snapshot: Snapshot | None
    entries: tuple[IndexManifestEntry, ...]

    @classmethod
    def of(cls, table: Table, snapshot: Snapshot | None) -> "VectorIndex":
        """Reads the snapshot's index manifest, if it has one. Raises `CorruptMetadata` if an entry
        does not say where the vectors are in its file, and what `ManifestStore.index_entries`
        raises.
        """
        if snapshot is None:
            return cls(table, snapshot, ())
        entries = tuple(
            entry
            for entry in ManifestStore(table.storage).index_entries(snapshot.index_manifest)
            if entry.file.index_type == DELETION_VECTORS
        )
        for entry in entries:
            if entry.file.deletions is None:
                raise CorruptMetadata(
                    f"Snapshot {snapshot.id} of {table.location}: the entry of the index file "
                    f"{entry.file.file_name} does not say where its deletion vectors are. "
                    "Roll the table back to before it.",
                    table=table.location,
                    file=entry.file.file_name,
                )
        return cls(table, snapshot, entries)

    def vectors(self, names: Collection[str]) -> dict[str, Vector]:
        """The deletion vectors of the data files with these names. Index files may also have
        vectors of files that were replaced. Raises `UnsupportedFeature` for a second vector of a
        file.
        """
        vectors: dict[str, Vector] = {}
        for entry in self.entries:
            for place in entry.file.deletions or ():
                if place.data_file not in names:
                    continue
                if place.data_file in vectors:
                    snapshot_id = None if self.snapshot is None else self.snapshot.id
                    raise UnsupportedFeature(
                        f"the deletion vectors in {entry.file.file_name} of snapshot {snapshot_id} "
                        f"hold a second one for {place.data_file}. "
                        "Read the table with the engine that wrote it.",
                        file=entry.file.file_name,
                    ).of_table(self.table.location)
                vectors[place.data_file] = entry, place
        return vectors


class IndexFiles:
    """Reads a table's index files. The last file stays in memory, because vectors that are needed
    one after the other are mostly in the same file. Several threads may use one `IndexFiles`.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._last = ("", b"")  # its path and its bytes

    def path(self, entry: IndexManifestEntry) -> str:
        """The full path of an index file, for messages."""
        return f"{self._table.location}/{self._relative(entry)}"

    def read(self, entry: IndexManifestEntry) -> bytes:
        """All bytes of an index file. Raises `NotFound`, `StorageError`."""
        path = self._relative(entry)
        last = self._last  # another thread may replace it meanwhile
        if last[0] != path:
            last = path, self._table.storage.read(path)
            self._last = last
        return last[1]

    def _relative(self, entry: IndexManifestEntry) -> str:
        return self._table.layout.index_file(entry.partition, entry.bucket, entry.file)


def same_vectors(table: Table, before: Mapping[str, Vector], now: Mapping[str, Vector]) -> bool:
    """Whether the same data files have the same deletion vectors. A vector that was only moved to
    another index file counts as the same. False if an index file of `before` has expired. Raises
    `CorruptMetadata`, `StorageError`.
    """
    if before.keys() != now.keys():
        return False
    moved = {name for name, vector in now.items() if vector != before[name]}
    try:
        return _records(table, now, moved) == _records(table, before, moved)
    except NotFound:
        return False


def _records(
    table: Table, vectors: Mapping[str, Vector], names: Collection[str]
) -> dict[str, bytes]:
    """The bytes of these vectors. Each index file is read once."""
    files = IndexFiles(table)
    chosen = [(name, *vectors[name]) for name in names]
    # In this order, vectors of the same index file are next to each other.
    chosen.sort(key=lambda vector: vector[1].file.file_name)
    return {
        name: record_of(files.read(entry), place, files.path(entry))
        for name, entry, place in chosen
    }
