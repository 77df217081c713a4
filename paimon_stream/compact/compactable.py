"""Which tables this release compacts (compaction.md RC12.3)."""

from typing import Final

from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.entries import HASH
from paimon_stream.format.index_manifest import DELETION_VECTORS as VECTORS_INDEX
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.options import CHAIN_TABLE, CLUSTERING_INCREMENTAL, LOOKUP_REMOTE_FILES
from paimon_stream.options.option import Option
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.table import Table, check_table_kind

_REFUSED: Final[tuple[tuple[Option[bool], bool, str], ...]] = (
    (CLUSTERING_INCREMENTAL, False, "so a compaction has to sort its rows"),
    (CHAIN_TABLE, True, "so deletes have to stay for the partitions that build on them"),
    (LOOKUP_REMOTE_FILES, True, "so a compaction has to keep files for look-ups"),
)
"""Options of tables that are not compacted, and whether they matter only with a primary key."""


def check_compactable(table: Table) -> None:
    """Raises `UnsupportedFeature` for a table that this release does not compact, and what
    `check_table_kind` raises. Nothing is read."""
    for option, only_keyed, why in _REFUSED:
        if table.options.value(option) and (table.schema.primary_keys or not only_keyed):
            value = table.options[option.key]
            raise UnsupportedFeature(
                f"has {option.key} = {value}, {why}. This release does not. Compact it with Flink or Spark on the JVM.",
                option=option.key,
                value=value,
            ).of_table(table.location, subject=True)
    check_table_kind(table)


def refusal(table: Table) -> UnsupportedFeature | None:
    """Why this release does not compact the table. None if it does."""
    try:
        check_compactable(table)
    except UnsupportedFeature as why:
        return why
    return None


def check_indexes(table: Table, snapshot: Snapshot | None) -> None:
    """Raises `UnsupportedFeature` if the snapshot has an index that would have to follow the compacted files, and what
    reading its index manifest raises."""
    if snapshot is None or snapshot.index_manifest is None:
        return
    for one in ManifestStore(table.storage).index_entries(snapshot.index_manifest):
        if one.file.index_type not in (VECTORS_INDEX, HASH):
            raise UnsupportedFeature(
                f"Snapshot {snapshot.id} of {table.location} has an index of type {one.file.index_type} "
                f"({one.file.file_name}), which this release does not know. After a compaction it would name files "
                "that are gone. Compact the table with the engine that made the index, or drop the index there.",
                table=table.location,
                snapshot=snapshot.id,
                index=one.file.index_type,
            )
