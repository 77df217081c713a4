"""What a table holds: its data files, partitions, manifests, sizes, and who writes to it. Nothing
is written. Everything is read from one snapshot, or from all snapshots that are left. Nothing is
cached.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from paimon_stream.format.entries import DataFileMeta, ManifestEntry, ManifestFileMeta
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind, Snapshot
from paimon_stream.format.snapshot_marks import Marks, own_properties
from paimon_stream.maintenance.needed import tag_names
from paimon_stream.read.scan import find_snapshot
from paimon_stream.reports import Report, count, html_table, iso
from paimon_stream.stream.batch_summary import NO_SUMMARY, BatchSummary, previous_of
from paimon_stream.stream.register import RegisteredWriter, registered_writers
from paimon_stream.table.layout import Layout
from paimon_stream.table.live import snapshot_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_value import partition_by_column
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A live data file: the partition's values by column, the bucket, the path, and its metadata
    (sizes in bytes).
    """

    partition: Mapping[str, Any]
    bucket: int
    path: str
    meta: DataFileMeta

    @property
    def row_count(self) -> int:
        """Rows in the file."""
        return self.meta.row_count

    @property
    def file_size(self) -> int:
        """Bytes of the file."""
        return self.meta.file_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The live files of one partition: its values by column, and its folder. Sizes are bytes.
    `rows` counts rows in files: with a primary key, a key may have several rows, and deletes are
    rows, too.
    """

    values: Mapping[str, Any]
    path: str
    buckets: int
    files: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics(Report):
    """A table in numbers. The numbers of files are those of live files in one snapshot. Sizes are
    bytes. `earliest` and `latest` are snapshot ids. `rows` counts the rows in the files: with a
    primary key, a key may have several rows until they are merged. `delete_rows` of these are
    deletes. `mean_file_bytes` is 0 without files.
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
    """A stream or another writer: one commit user, and its query if that is known. The facts come
    from the snapshots that are left. `batches` is the number of batches that have a snapshot.
    `gaps` are ranges of batch ids, between the first and the last, without a snapshot (a batch
    without rows creates none). The batch ids are None for batch commits, and if all snapshots have
    expired. Times are epoch milliseconds. `registered` says that this is a stream of this package,
    registered in the table. `last_story` is the summary of the newest batch.
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
    """One snapshot: when (ISO text in UTC), what and by whom. `identifier` is the batch id of a
    stream, None for a batch commit. `rows_added` may be negative; both counts are of rows in files.
    `marks` say which query made it, and `batch` sums up what it added; their values are None if
    another engine made it. `previous` says how the stream's commit before went: `batch`,
    `attempts`, `conflicts` of compactions if there were any, and milliseconds by phase; {} if
    nothing is known.
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
    """Snapshots, the newest first; a table in notebooks."""

    __slots__ = ()

    @classmethod
    def of(cls, snapshots: Iterable[Snapshot]) -> "History":
        """The history of these snapshots, which are in ascending order."""
        return cls(
            HistoryEntry(
                id=one.id,
                time=iso(one.time_millis) or "",
                kind=one.commit_kind.value,
                user=one.commit_user,
                identifier=None
                if one.commit_identifier == BATCH_IDENTIFIER
                else one.commit_identifier,
                rows_added=one.delta_record_count,
                rows=one.total_record_count,
                marks=Marks.of(own_properties(one)),
                batch=BatchSummary.of(own_properties(one)),
                previous=previous_of(own_properties(one)),
            )
            for one in reversed(tuple(snapshots))
        )

    def __repr__(self) -> str:
        """How many there are, and the newest."""
        newest = f", the newest {self[0].id} of {self[0].time}" if self else ""
        return f"History({count(len(self), 'snapshot')}{newest})"

    def _repr_html_(self) -> str:
        names = ("id", "time", "kind", "user", "identifier", "rows_added", "rows")
        return html_table(
            repr(self), names, ([getattr(one, name) for name in names] for one in self)
        )


def table_file(
    location: str,
    layout: Layout,
    entry: ManifestEntry,
) -> TableFile:
    """The file that a manifest entry of the table at `location` describes. Raises `FormatError`."""
    partition, path = (
        partition_by_column(layout, entry.partition),
        layout.whole_path(location, entry),
    )
    return TableFile(partition=partition, bucket=entry.bucket, path=path, meta=entry.file)


def partitions_of(
    table: Table,
    snapshot_id: int | None = None,
) -> tuple[Partition, ...]:
    """The partitions of a snapshot, sorted by folder. A table without partitions has one, with the
    path "". Raises `NotFound` if there is no such snapshot, `CorruptMetadata`, `StorageError`.
    """
    grouped: dict[bytes, list[ManifestEntry]] = {}
    snapshot = find_snapshot(table, snapshot_id, None)
    for entry in snapshot_files(table, snapshot):
        grouped.setdefault(entry.partition, []).append(entry)
    found = (
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
    return tuple(sorted(found, key=lambda one: one.path))


def manifests_of(
    table: Table,
    snapshot_id: int | None = None,
) -> tuple[tuple[str, ManifestFileMeta], ...]:
    """The manifests of a snapshot, in the order in which they apply, each after the base, delta or
    changelog list that names it. () for an empty table. Raises `NotFound` for an unknown snapshot,
    `CorruptMetadata`, `StorageError`.
    """
    snapshot = find_snapshot(table, snapshot_id, None)
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
    """The numbers of a snapshot, by default the newest. Raises `NotFound`, `CorruptMetadata`,
    `StorageError`.
    """
    snapshot = find_snapshot(table, snapshot_id, None)
    metas = [] if snapshot is None else [meta for _, meta in manifests_of(table, snapshot.id)]
    entries = snapshot_files(table, snapshot)
    ids, size = SnapshotStore(table.storage).ids(), sum(entry.file.file_size for entry in entries)
    return Statistics(
        snapshot=snapshot,
        snapshots=len(ids),
        earliest=ids[0] if ids else None,
        latest=ids[-1] if ids else None,
        tags=len(tag_names(table.storage)),
        schema_id=table.schema.id,
        partitions=len({entry.partition for entry in entries}),
        buckets=len({(entry.partition, entry.bucket) for entry in entries}),
        files=len(entries),
        primary_keys=table.schema.primary_keys,
        rows=sum(entry.file.row_count for entry in entries),
        delete_rows=sum(entry.file.delete_row_count or 0 for entry in entries),
        bytes=size,
        mean_file_bytes=size // len(entries) if entries else 0,
        manifests=len(metas),
        manifest_bytes=sum(meta.file_size for meta in metas),
    )


def writers_of(table: Table) -> tuple[Writer, ...]:
    """Who has written to the table. The last writer comes first; streams without a snapshot come
    last. Reads every snapshot, and the register of every stream. Raises `CorruptMetadata`,
    `StorageError`.
    """
    store = SnapshotStore(table.storage)
    grouped: dict[tuple[str, str | None], list[Snapshot]] = {}
    for snapshot in filter(None, map(store.find, store.ids())):
        query_id = Marks.of(own_properties(snapshot)).query_id
        grouped.setdefault((snapshot.commit_user, query_id), []).append(snapshot)
    registers = {one.user: one for one in registered_writers(table.storage)}
    found = [_writer(user, query_id, made, registers) for (user, query_id), made in grouped.items()]
    found.sort(key=lambda one: -(one.last_snapshot or 0))
    seen = {(one.user, one.query_id) for one in found}
    silent = (one for one in registers.values() if (one.user, one.query_id) not in seen)
    names, left = (
        ("user", "query_id", "checkpoint", "query_name"),
        sorted(silent, key=lambda one: one.user),
    )
    return (
        *found,
        *(Writer(**{name: getattr(one, name) for name in names}, registered=True) for one in left),
    )


def _writer(
    user: str, query_id: str | None, made: list[Snapshot], registers: Mapping[str, RegisteredWriter]
) -> Writer:
    last = made[-1]
    with_rows = next(
        (one for one in reversed(made) if one.commit_kind is not CommitKind.COMPACT), last
    )
    marks = [Marks.of(own_properties(snapshot)) for snapshot in made]
    batches = {one.commit_identifier for one in made if one.commit_identifier != BATCH_IDENTIFIER}
    register = registers.get(user)
    return Writer(
        user=user,
        query_id=query_id,
        checkpoint=marks[-1].checkpoint,
        query_name=marks[-1].query_name,
        registered=register is not None and register.query_id == query_id,
        runs=len({one.run_id for one in marks if one.run_id is not None}),
        snapshots=len(made),
        batches=len(batches),
        first_batch=min(batches, default=None),
        last_batch=max(batches, default=None),
        gaps=tuple(
            (low + 1, high - 1) for low, high in pairwise(sorted(batches)) if high - low > 1
        ),
        last_snapshot=last.id,
        last_millis=last.time_millis,
        watermark=last.watermark,
        last_story=BatchSummary.of(own_properties(with_rows)),
    )
