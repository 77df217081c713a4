"""Expiry of partitions: drops those that are older than `partition.expiration-time` (table-kinds.md §9).

Invariant: a partition that expires by the age of its newest file stays if others write to it before it is dropped.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from paimon_stream.commit.overwrite import OverwriteSource
from paimon_stream.commit.plan import Base, Changes
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import InvalidOption
from paimon_stream.format.entries import FileKind, ManifestEntry
from paimon_stream.maintenance.partition_times import java_texts, partitions_before
from paimon_stream.maintenance.pins import refuse_while_pinned
from paimon_stream.options import PARTITION_BATCH_SIZE, PARTITION_EXPIRATION_TIME, PARTITION_MAX_NUM, PARTITION_STRATEGY
from paimon_stream.reports import Report
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.read_ahead import in_groups
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_spec import PartitionFilter
from paimon_stream.table.partition_value import partition_by_column
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_NEVER: Final = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionExpiryReport(Report):
    """What expired, or would in a dry run: `partitions`, each as its values by column, with `files` data files of
    `rows` rows. `snapshots` are the ids of the snapshots that dropped them. `left` more partitions are as old."""

    location: str
    partitions: tuple[Mapping[str, Any], ...] = field(hash=False)
    files: int
    rows: int
    left: int
    snapshots: tuple[int, ...]
    dry_run: bool


def expire_partitions(table: Table, *, dry_run: bool = False, runtime: Runtime | None = None) -> PartitionExpiryReport:
    """Expires partitions, as `PaimonTable.expire_partitions` says. Raises the same errors."""
    options, commit = table.options, TableCommit(table, "", runtime=runtime)
    if not (table.schema.partition_keys and options.is_set(PARTITION_EXPIRATION_TIME)):
        raise InvalidOption(
            f"{table.location}: partitions expire only in a table that has partition columns and the option "
            f"{PARTITION_EXPIRATION_TIME.key!r}, such as '7 d'. Nothing was changed.",
            option=PARTITION_EXPIRATION_TIME.key,
            table=table.location,
        )
    if not dry_run:
        refuse_while_pinned(table.storage, "no partition expired")
    manifests, latest = ManifestStore(table.storage), SnapshotStore(table.storage, runtime).latest()
    base = Base(snapshot=latest, metas=() if latest is None else manifests.base_and_delta(latest))
    cutoff = (runtime or system()).clock.local_millis() - options.value(PARTITION_EXPIRATION_TIME)
    newest, by_update = _newest_files(manifests, base), options.value(PARTITION_STRATEGY) == "update-time"
    old = [row for row, at in newest.items() if at < cutoff] if by_update else partitions_before(table, newest, cutoff)
    null = table.layout.default_name
    old.sort(
        key=lambda row: ",".join(null if one is None else one for one in java_texts(table, row)).encode("utf-16-be")
    )
    chosen = old[: options.value(PARTITION_MAX_NUM)]
    size = options.value(PARTITION_BATCH_SIZE) if options.is_set(PARTITION_BATCH_SIZE) else 0
    gone: list[ManifestEntry] = []
    snapshots: list[int | None] = []
    for some in in_groups(chosen, size if size > 0 else len(old) + 1):
        source = _Expired(table, manifests, some, cutoff if by_update else _NEVER + 1)
        if dry_run:
            source.at(base)
        else:
            snapshots.append(commit.clear(source).snapshot_id)
        gone += source.gone
    dropped = {entry.partition for entry in gone}
    return PartitionExpiryReport(
        location=table.location,
        partitions=tuple(partition_by_column(table.layout, row) for row in chosen if row in dropped),
        files=len(gone),
        rows=sum(entry.file.row_count for entry in gone),
        left=len(old) - len(chosen),
        snapshots=tuple(one for one in snapshots if one is not None),
        dry_run=dry_run,
    )


class _Expired(OverwriteSource):
    """Drops partitions, except those with a file that was created at `since` (local milliseconds) or later.
    `gone` are the files that the newest attempt drops."""

    def __init__(self, table: Table, manifests: ManifestStore, rows: Collection[bytes], since: int) -> None:
        super().__init__(manifests, PartitionFilter(table.partition_types, rows=rows), Changes())
        self._since = since
        self.gone: tuple[ManifestEntry, ...] = ()

    def at(self, base: Base) -> Changes:
        changes = super().at(base)
        fresh = {entry.partition for entry in changes.entries if _created(entry) >= self._since}
        self.gone = tuple(entry for entry in changes.entries if entry.partition not in fresh)
        index = tuple(one for one in changes.index if one.entry.partition not in fresh)
        return replace(changes, entries=self.gone, index=index)


def _created(entry: ManifestEntry) -> int:
    return _NEVER if entry.file.creation_time is None else entry.file.creation_time


def _newest_files(manifests: ManifestStore, base: Base) -> dict[bytes, int]:
    """The partitions with files in real buckets, each with the newest creation time that the manifests have."""
    files: Counter[bytes] = Counter()
    newest: dict[bytes, int] = {}
    for meta in base.metas:
        for one in manifests.read(meta):
            files[one.partition] += (one.bucket >= 0) * (1 if one.kind is FileKind.ADD else -1)
            newest[one.partition] = max(newest.get(one.partition, 0), _created(one))
    return {row: millis for row, millis in newest.items() if files[row] > 0}
