"""Reads what a table holds: its data files, partitions, manifests, sizes, and who writes to it.
Nothing is written. Everything is read from one snapshot, or from all snapshots that exist. Nothing
is cached.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from paimon_stream.format.entries import DataFileMeta, ManifestEntry, ManifestFileMeta
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind, Snapshot
from paimon_stream.format.snapshot_marks import Marks, own_properties
from paimon_stream.maintenance.needed import tag_names
from paimon_stream.read.scan import PointInTime, find_snapshot
from paimon_stream.reports import Report, count, html_table, iso
from paimon_stream.stream.batch_summary import NO_SUMMARY, BatchSummary, previous_of
from paimon_stream.table.layout import Layout
from paimon_stream.table.live import snapshot_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_value import partition_by_column
from paimon_stream.table.register import RegisteredWriter, registered_writers
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A live data file.

    Attributes:
        partition: the values of its partition, by column.
        bucket: the bucket in which the file lies.
        path: where the file is.
        meta: the metadata of the file, with sizes in bytes.
    """

    partition: Mapping[str, Any]
    bucket: int
    path: str
    meta: DataFileMeta

    @property
    def row_count(self) -> int:
        """The number of rows in the file."""
        return self.meta.row_count

    @property
    def file_size(self) -> int:
        """The size of the file in bytes."""
        return self.meta.file_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The live files of one partition.

    Attributes:
        values: the values of the partition, by column.
        path: the folder of the partition.
        buckets: how many buckets have files.
        files: how many files all buckets have together.
        rows: the number of rows in these files. With a primary key, a key may have several rows,
            and deletes count as rows.
        bytes: the size of these files in bytes.
    """

    values: Mapping[str, Any]
    path: str
    buckets: int
    files: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics(Report):
    """A table in numbers. The numbers of partitions, buckets, files, rows and manifests are those
    of one snapshot.

    Attributes:
        snapshot: the snapshot; None in an empty table.
        snapshots: how many snapshots exist.
        earliest: the id of the oldest snapshot.
        latest: the id of the newest snapshot.
        tags: how many tags exist.
        schema_id: the schema of the table as it was loaded.
        partitions: how many partitions have files.
        buckets: how many buckets have files, in all partitions.
        files: how many live data files there are.
        primary_keys: the columns of the primary key.
        rows: the number of rows in the files. With a primary key, a key may have several rows until
            the rows are merged.
        delete_rows: how many of the rows are deletes.
        bytes: the size of the files in bytes.
        mean_file_bytes: the mean size of a file; 0 without files.
        manifests: how many manifests the snapshot has.
        manifest_bytes: the size of these manifests in bytes.
    """

    snapshot: Snapshot | None
    snapshots: int
    earliest: int | None
    latest: int | None
    tags: int
    schema_id: int
    partitions: int
    buckets: int
    files: int
    primary_keys: tuple[str, ...]
    rows: int
    delete_rows: int
    bytes: int
    mean_file_bytes: int
    manifests: int
    manifest_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """A stream or another writer: one commit user, and the query behind it if that is known. The
    facts come from the snapshots that still exist.

    Attributes:
        user: the commit user.
        query_id: the id of the query; None if no snapshot names it.
        checkpoint: the location of the query's checkpoint.
        query_name: the name of the query.
        registered: whether this is a stream of this package, registered in the table.
        runs: how many runs of the query have left a snapshot.
        snapshots: how many snapshots the writer has.
        batches: how many batches have a snapshot.
        first_batch: the smallest id of these batches; None for batch commits, and if all snapshots
            have expired.
        last_batch: the largest id of these batches; None for batch commits, and if all snapshots
            have expired.
        gaps: ranges of batch ids, between the first and the last batch, that have no snapshot. A
            batch without rows has no snapshot.
        last_snapshot: the id of the newest snapshot.
        last_millis: the time of the newest snapshot, in epoch milliseconds.
        watermark: the watermark of the newest snapshot, in epoch milliseconds.
        last_story: the summary of the newest batch.
    """

    user: str
    query_id: str | None = None
    checkpoint: str | None = None
    query_name: str | None = None
    registered: bool = False
    runs: int = 0
    snapshots: int = 0
    batches: int = 0
    first_batch: int | None = None
    last_batch: int | None = None
    gaps: tuple[tuple[int, int], ...] = ()
    last_snapshot: int | None = None
    last_millis: int | None = None
    watermark: int | None = None
    last_story: BatchSummary = NO_SUMMARY


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One snapshot: when it was made, what it changed, and who made it.

    Attributes:
        id: the id of the snapshot.
        time: the time of the snapshot, as ISO text in UTC.
        kind: the kind of the commit, such as `APPEND`.
        user: the commit user.
        identifier: the batch id of a stream; None for a batch commit.
        rows_added: the increase of the number of rows in files; negative for a decrease.
        rows: the number of rows in all files of the snapshot.
        marks: which query made the snapshot. The values are None if another engine made the
            snapshot.
        batch: the summary of the batch. The values are None if another engine made the snapshot.
        previous: figures of the stream's previous commit: `batch`, `attempts`, `conflicts` of
            compactions if there were any, and milliseconds by phase; {} if nothing is known.
    """

    id: int
    time: str
    kind: str
    user: str
    identifier: int | None
    rows_added: int
    rows: int
    marks: Marks
    batch: BatchSummary
    previous: Mapping[str, int] = field(default_factory=dict, hash=False)


class History(tuple[HistoryEntry, ...]):
    """Snapshots, the newest one first. Notebooks show them as a table."""

    __slots__ = ()

    @classmethod
    def of(cls, snapshots: Iterable[Snapshot]) -> "History":
        """The history of these snapshots, which are in ascending order."""
        return cls(_history_entry(snapshot) for snapshot in reversed(tuple(snapshots)))

    def __repr__(self) -> str:
        """The number of snapshots, and the newest one."""
        newest = f", the newest {self[0].id} of {self[0].time}" if self else ""
        return f"History({count(len(self), 'snapshot')}{newest})"

    def _repr_html_(self) -> str:
        names = ("id", "time", "kind", "user", "identifier", "rows_added", "rows")
        rows = ([getattr(entry, name) for name in names] for entry in self)
        return html_table(repr(self), names, rows)


def _history_entry(snapshot: Snapshot) -> HistoryEntry:
    identifier = None
    if snapshot.commit_identifier != BATCH_IDENTIFIER:
        identifier = snapshot.commit_identifier
    properties = own_properties(snapshot)
    return HistoryEntry(
        id=snapshot.id,
        time=iso(snapshot.time_millis) or "",
        kind=snapshot.commit_kind.value,
        user=snapshot.commit_user,
        identifier=identifier,
        rows_added=snapshot.delta_record_count,
        rows=snapshot.total_record_count,
        marks=Marks.of(properties),
        batch=BatchSummary.of(properties),
        previous=previous_of(properties),
    )


def table_file(
    location: str,
    layout: Layout,
    entry: ManifestEntry,
) -> TableFile:
    """The file that a manifest entry of the table at `location` describes. Raises `FormatError`."""
    return TableFile(
        partition=partition_by_column(layout, entry.partition),
        bucket=entry.bucket,
        path=layout.whole_path(location, entry),
        meta=entry.file,
    )


def partitions_of(
    table: Table,
    snapshot_id: int | None = None,
) -> tuple[Partition, ...]:
    """The partitions of a snapshot, sorted by folder. A table without partitions has one
    `Partition`, with the path "". Raises `CorruptMetadata`, `StorageError`, and `NotFound` if there
    is no such snapshot.
    """
    grouped: dict[bytes, list[ManifestEntry]] = {}
    snapshot = find_snapshot(table, PointInTime(snapshot_id=snapshot_id))
    for entry in snapshot_files(table, snapshot):
        grouped.setdefault(entry.partition, []).append(entry)
    partitions = (
        Partition(
            values=partition_by_column(table.layout, partition),
            path=table.layout.partition(partition),
            buckets=len({entry.bucket for entry in entries}),
            files=len(entries),
            rows=sum(entry.file.row_count for entry in entries),
            bytes=sum(entry.file.file_size for entry in entries),
        )
        for partition, entries in grouped.items()
    )
    return tuple(sorted(partitions, key=lambda partition: partition.path))


def manifests_of(
    table: Table,
    snapshot_id: int | None = None,
) -> tuple[tuple[str, ManifestFileMeta], ...]:
    """The manifests of a snapshot, in the order in which they apply, each after the base, delta or
    changelog list that names it. () for an empty table. Raises `CorruptMetadata`, `StorageError`,
    and `NotFound` if there is no such snapshot.
    """
    snapshot = find_snapshot(table, PointInTime(snapshot_id=snapshot_id))
    if snapshot is None:
        return ()
    store = ManifestStore(table.storage)
    base = store.read_list(snapshot.base_manifest_list, snapshot.base_manifest_list_size)
    lists = (
        ("base", base),
        ("delta", store.delta(snapshot)),
        ("changelog", store.changelog(snapshot)),
    )
    return tuple((name, meta) for name, metas in lists for meta in metas)


def statistics_of(
    table: Table,
    snapshot_id: int | None = None,
) -> Statistics:
    """The statistics of a snapshot, by default of the newest one. Raises `CorruptMetadata`,
    `StorageError`, and `NotFound` if there is no such snapshot.
    """
    snapshot = find_snapshot(table, PointInTime(snapshot_id=snapshot_id))
    metas = [] if snapshot is None else [meta for _, meta in manifests_of(table, snapshot.id)]
    entries = snapshot_files(table, snapshot)
    ids = SnapshotStore(table.storage).ids()
    size = sum(entry.file.file_size for entry in entries)
    earliest = None
    latest = None
    if ids:
        earliest = ids[0]
        latest = ids[-1]
    mean_file_bytes = 0
    if entries:
        mean_file_bytes = size // len(entries)
    return Statistics(
        snapshot=snapshot,
        snapshots=len(ids),
        earliest=earliest,
        latest=latest,
        tags=len(tag_names(table.storage)),
        schema_id=table.schema.id,
        partitions=len({entry.partition for entry in entries}),
        buckets=len({(entry.partition, entry.bucket) for entry in entries}),
        files=len(entries),
        primary_keys=table.schema.primary_keys,
        rows=sum(entry.file.row_count for entry in entries),
        delete_rows=sum(entry.file.delete_row_count or 0 for entry in entries),
        bytes=size,
        mean_file_bytes=mean_file_bytes,
        manifests=len(metas),
        manifest_bytes=sum(meta.file_size for meta in metas),
    )


def writers_of(table: Table) -> tuple[Writer, ...]:
    """The writers of the table, the last one first. Streams without a snapshot come at the end.
    Reads every snapshot, and the register of every stream. Raises `CorruptMetadata`,
    `StorageError`.
    """
    store = SnapshotStore(table.storage)
    grouped: dict[tuple[str, str | None], list[Snapshot]] = {}
    for snapshot in filter(None, map(store.find, store.ids())):
        query_id = Marks.of(own_properties(snapshot)).query_id
        grouped.setdefault((snapshot.commit_user, query_id), []).append(snapshot)
    registered = {writer.user: writer for writer in registered_writers(table.storage)}
    writers = [
        _writer(user, query_id, snapshots, registered.get(user))
        for (user, query_id), snapshots in grouped.items()
    ]
    writers.sort(key=lambda writer: -(writer.last_snapshot or 0))
    without_snapshot = [
        writer for writer in registered.values() if (writer.user, writer.query_id) not in grouped
    ]
    without_snapshot.sort(key=lambda writer: writer.user)
    return (*writers, *map(_silent_writer, without_snapshot))


def _silent_writer(writer: RegisteredWriter) -> Writer:
    """Describes a registered stream that has no snapshot."""
    return Writer(
        user=writer.user,
        query_id=writer.query_id,
        checkpoint=writer.checkpoint,
        query_name=writer.query_name,
        registered=True,
    )


def _writer(
    user: str,
    query_id: str | None,
    snapshots: Sequence[Snapshot],
    registered: RegisteredWriter | None,
) -> Writer:
    """Describes the writer of some snapshots, which are in ascending order. `registered` is the
    stream that is registered for the user; None if there is none.
    """
    last = snapshots[-1]
    last_with_rows = next(
        (
            snapshot
            for snapshot in reversed(snapshots)
            if snapshot.commit_kind is not CommitKind.COMPACT
        ),
        last,
    )
    marks = [Marks.of(own_properties(snapshot)) for snapshot in snapshots]
    batches = sorted({snapshot.commit_identifier for snapshot in snapshots} - {BATCH_IDENTIFIER})
    first_batch = None
    last_batch = None
    if batches:
        first_batch = batches[0]
        last_batch = batches[-1]
    return Writer(
        user=user,
        query_id=query_id,
        checkpoint=marks[-1].checkpoint,
        query_name=marks[-1].query_name,
        registered=registered is not None and registered.query_id == query_id,
        runs=len({mark.run_id for mark in marks if mark.run_id is not None}),
        snapshots=len(snapshots),
        batches=len(batches),
        first_batch=first_batch,
        last_batch=last_batch,
        gaps=tuple((low + 1, high - 1) for low, high in pairwise(batches) if high - low > 1),
        last_snapshot=last.id,
        last_millis=last.time_millis,
        watermark=last.watermark,
        last_story=BatchSummary.of(own_properties(last_with_rows)),
    )
