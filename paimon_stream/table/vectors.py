"""Where the deletion vectors of a snapshot are (table-kinds.md §1)."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

from paimon_stream.errors import CorruptMetadata, UnsupportedFeature
from paimon_stream.format.entries import DeletionRange, IndexManifestEntry
from paimon_stream.format.index_manifest import DELETION_VECTORS
from paimon_stream.format.snapshot_json import Snapshot
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
        """Reads the snapshot's index manifest, if it has one. Raises `CorruptMetadata` for an index
        without places, `UnsupportedFeature` for an index file outside the table.
        """
        if snapshot is None:
            return cls(table, snapshot, ())
        entries = ManifestStore(table.storage).index_entries(snapshot.index_manifest)
        found = cls(
            table,
            snapshot,
            tuple(one for one in entries if one.file.index_type == DELETION_VECTORS),
        )
        for one in found.entries:
            if one.file.deletions is None:
                text = (
                    f"Snapshot {snapshot.id} of {table.location}: the entry of the index file {one.file.file_name} "
                    "does not say where its deletion vectors are. Roll the table back to before it."
                )
                raise CorruptMetadata(text, table=table.location, file=one.file.file_name)
        return found

    def vectors(self, names: Collection[str]) -> dict[str, Vector]:
        """The deletion vectors of the data files of these names. Index files may also have those of
        files that were replaced. Raises `UnsupportedFeature` for a second vector of a file.
        """
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
    """Reads a table's index files, and keeps the last: vectors needed one after the other are
    mostly in one.
    """

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
