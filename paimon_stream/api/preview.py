"""Shows what clearing a table or some of its partitions would remove. Nothing is written."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from paimon_stream.commit.overwrite import plan_drop, plan_overwrite
from paimon_stream.commit.plan import Base
from paimon_stream.stream.writable import check_writable
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_value import partition_by_column
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """What would no longer be in the table: partitions, files, rows and bytes. `partitions` are folders, and
    `values` are each partition's values by column."""

    partitions: tuple[str, ...] = ()
    values: tuple[Mapping[str, Any], ...] = ()
    files: int = 0
    rows: int = 0
    bytes: int = 0


def preview_clearing(table: Table, partitions: Iterable[Mapping[str, Any]] | None = None) -> Cleared:
    """What `truncate` would clear or, if `partitions` is given, what `drop_partitions` would clear. Raises what these
    raise, except the errors of a commit."""
    check_writable(table)
    manifests = ManifestStore(table.storage)
    if partitions is None:
        planned = plan_overwrite(table, manifests, (), partition={})
    else:
        planned = plan_drop(table, manifests, partitions)
    latest = SnapshotStore(table.storage).latest()
    planned.source.at(Base(snapshot=latest, metas=() if latest is None else manifests.base_and_delta(latest)))
    gone = planned.source.gone
    rows = sorted((table.layout.partition(one), one) for one in {entry.partition for entry in gone})
    return Cleared(
        partitions=tuple(sorted({folder for folder, _ in rows})),
        values=tuple(partition_by_column(table.layout, row) for _, row in rows),
        files=len(gone),
        rows=sum(entry.file.row_count for entry in gone),
        bytes=sum(entry.file.file_size for entry in gone),
    )
