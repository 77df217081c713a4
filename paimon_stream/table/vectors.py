"""Where the deletion vectors of a snapshot are (table-kinds.md §1)."""

from collections.abc import Collection
from typing import TypeAlias

from paimon_stream.errors import CorruptMetadata, UnsupportedFeature
from paimon_stream.format.entries import DeletionRange, IndexManifestEntry
from paimon_stream.format.index_manifest import DELETION_VECTORS
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.table import Table

Vector: TypeAlias = tuple[IndexManifestEntry, DeletionRange]
"""Where a deletion vector is: the index file and the place in it."""


def vector_entries(table: Table, snapshot: Snapshot | None) -> list[IndexManifestEntry]:
    """The index files with vectors of a snapshot. Raises `CorruptMetadata` for an index without places,
    `UnsupportedFeature` for an index file outside the table."""
    if snapshot is None or snapshot.index_manifest is None:
        return []
    entries = ManifestStore(table.storage).index_entries(snapshot.index_manifest)
    found = [one for one in entries if one.file.index_type == DELETION_VECTORS]
    for one in found:
        if one.file.external_path is not None:
            raise _unread(table, snapshot, one, "lie outside the table")
        if one.file.deletions is None:
            raise CorruptMetadata(
                f"Snapshot {snapshot.id} of {table.location}: the entry of the index file {one.file.file_name} does "
                "not say where its deletion vectors are. Roll the table back to before it.",
                table=table.location,
                file=one.file.file_name,
            )
    return found


def vectors_of(table: Table, snapshot: Snapshot | None, names: Collection[str]) -> dict[str, Vector]:
    """The deletion vectors of the data files of these names. Index files may also have those of files that were
    replaced. Raises as `vector_entries`, and `UnsupportedFeature` for a second vector of a file."""
    found: dict[str, Vector] = {}
    for entry in vector_entries(table, snapshot):
        for one in entry.file.deletions or ():
            if one.data_file in names:
                if one.data_file in found:
                    assert snapshot is not None
                    raise _unread(table, snapshot, entry, f"hold a second one for {one.data_file}")
                found[one.data_file] = entry, one
    return found


def _unread(table: Table, snapshot: Snapshot, entry: IndexManifestEntry, why: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"Snapshot {snapshot.id} of {table.location}: the deletion vectors in {entry.file.file_name} {why}. "
        "Read the table with the engine that wrote it.",
        table=table.location,
        file=entry.file.file_name,
    )
