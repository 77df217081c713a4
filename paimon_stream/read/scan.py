"""Decides which snapshot, columns and files a read covers, and refuses at once what this release
does not read.
"""

import difflib
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import compress, pairwise
from typing import Any, Final, NamedTuple

from paimon_stream import options as opt
from paimon_stream.errors import (
    FormatError,
    IncompatibleSchema,
    InvalidOption,
    NotFound,
    UnsupportedFeature,
    naming,
)
from paimon_stream.format.deletion_vectors import Positions
from paimon_stream.format.entries import DataFileMeta, ManifestEntry, ManifestFileMeta
from paimon_stream.format.json_text import MOST_JSON
from paimon_stream.format.names import shown_name
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.snapshot_json import Snapshot, decode_snapshot
from paimon_stream.format.stats import ColumnStats, decode_stats, partition_bounds
from paimon_stream.format.types import DataField
from paimon_stream.merge.spec import FIRST_ROW, MergeSpec
from paimon_stream.read.condition_text import TypedCondition, condition_in_text
from paimon_stream.read.predicate import Known, Predicate
from paimon_stream.reports import iso
from paimon_stream.runtime import system
from paimon_stream.storage.read_ahead import ReadAhead
from paimon_stream.table.layout import manifest_path, tag_path
from paimon_stream.table.live import live_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_spec import PartitionFilter, PartitionSpec, parse_partition
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table, check_branch_option, check_map_layouts
from paimon_stream.table.vectors import Vector, VectorIndex

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointInTime:
    """Says which snapshot of a table is meant. At most one of the attributes may be set. If none is
    set, the newest snapshot is meant (`find_snapshot`).

    Attributes:
        snapshot_id: the id of the snapshot.
        tag: the name of a tag.
        timestamp: a time in epoch milliseconds. The newest snapshot of this time or earlier is
            meant.
    """

    snapshot_id: int | None = None
    tag: str | None = None
    timestamp: int | None = None

    @classmethod
    def of(
        cls, location: str, snapshot_id: int | None, tag: str | None, timestamp: opt.Moment | None
    ) -> "PointInTime":
        """The point in time that a caller names. An age is counted back from now.

        Args:
            location: where the table is, for messages.
            snapshot_id: the id as the caller gave it; `find_snapshot` refuses everything except
                whole numbers.
            tag: the name of a tag.
            timestamp: an age or a time.

        Raises:
            InvalidOption: the timestamp is neither an age nor a time.
        """
        millis = None
        if timestamp is not None:
            now_millis = system().clock.now_millis()
            millis = opt.moment_millis(timestamp, "timestamp", location, now_millis)
        return cls(snapshot_id=snapshot_id, tag=tag, timestamp=millis)

    @property
    def said_by(self) -> list[str]:
        """The names of the attributes that are set; the list is empty if the newest snapshot is
        meant.
        """
        arguments = {
            "snapshot_id": self.snapshot_id,
            "tag": self.tag,
            "timestamp": self.timestamp,
        }
        return [name for name, value in arguments.items() if value is not None]


NEWEST: Final = PointInTime()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """A planned read.

    Attributes:
        table: the table.
        schema: the schema by which rows are returned.
        columns: the wanted columns.
        snapshot: the snapshot that is read; None if the table is empty.
        files: the live files of the snapshot, in the order in which they are read. If rows are
            merged, in the order of the manifests: then sections are read in the order of keys.
        merge: how rows of one key are merged; None for append tables.
        vectors: the deletion vectors of these files, by the name of the data file.
        deletions: all deleted rows of each file whose vector a compaction is about to change, by
            the name of the data file.
        where: the condition on rows; None for all rows. Files that cannot have a row that fulfils
            it are not among `files`; if rows are merged, only keys and partitions may show that.
        are_changes: whether the files are read one after the other without a merge, because each
            row is a change of its own kind.
        before: for a difference between two snapshots, the scan of the files that only the older
            snapshot has, with their vectors. `files` are then the files that only the newer
            snapshot has. A row that is in both snapshots is left out. None for other reads.
    """

    table: Table
    schema: TableSchema
    columns: tuple[DataField, ...]
    snapshot: Snapshot | None
    files: tuple[ManifestEntry, ...]
    merge: MergeSpec | None = None
    vectors: Mapping[str, Vector] = field(default_factory=dict)
    deletions: dict[str, Positions] = field(default_factory=dict)
    where: Predicate | None = None
    are_changes: bool = False
    before: "Scan | None" = None


def plan_scan(
    table: Table,
    *,
    at: PointInTime = NEWEST,
    columns: Sequence[str] | None = None,
    filter: object = None,
    partition: Mapping[str, Any] | str | None = None,
    specs: Sequence[PartitionSpec] | None = None,
    hidden: bool = False,
) -> Scan:
    """Plans a read. Without a point in time, the columns are those of the table's newest schema.
    With a point in time, they are the columns of the snapshot's schema, as in Java.

    Args:
        table: the table.
        at: which snapshot is read.
        columns: the names of the wanted columns; None for all.
        filter: a condition on rows, a `pyarrow.compute.Expression` or a `TypedCondition`.
            Partitions and files without such rows are left out (`predicate.py`).
        partition: the wanted partition; None for all.
        specs: given instead of `partition`. Partitions that match at least one of them are read.
        hidden: whether files are also read that readers do not see before a compaction.

    Raises:
        UnsupportedFeature: this release does not read the table or an option of it.
        NotFound: the snapshot or the tag does not exist.
        IncompatibleSchema: a column is unknown or named twice, the table cannot have the partition,
            or `filter` does not fit the columns.
        InvalidData: `partition` has values that the partition columns cannot have.
        InvalidOption: `find_snapshot` refuses the point in time, `filter` is not an expression,
            names a column by its position, or has a text that is not a condition on the columns,
            or the table's merge options contradict each other.
        CorruptMetadata, StorageError: metadata cannot be read.
    """
    if hidden:
        _check_readable(table)
    else:
        check_open_to_readers(table)
    snapshot = find_snapshot(table, at)
    schema = table.schema
    if snapshot is not None and at != NEWEST:
        schema = SchemaStore(table.storage).get(snapshot.schema_id)
    wanted = columns_of(table, schema, columns)
    if partition is not None:
        specs = specs_of(table, schema, partition)
    scan = scan_without_files(table, schema, wanted, snapshot, filter)
    if snapshot is None:
        return scan
    return with_files(scan, snapshot, specs, hidden=hidden)


def check_open_to_readers(table: Table) -> None:
    """Raises `UnsupportedFeature` if this release does not read the table."""
    _check_readable(table, opt.FALLBACK_BRANCH, opt.PRIMARY_BRANCH, opt.QUERY_AUTH)


def specs_of(
    table: Table, schema: TableSchema, partition: Mapping[str, Any] | str
) -> list[PartitionSpec]:
    """The partition that a caller names, as a list with one item. Raises `InvalidData` and
    `IncompatibleSchema`.
    """
    default_name = table.options.value(opt.PARTITION_DEFAULT_NAME)
    fields = schema.partition_fields
    return [parse_partition(fields, partition, default_name, table=table.location)]


def scan_without_files(
    table: Table,
    schema: TableSchema,
    columns: tuple[DataField, ...],
    snapshot: Snapshot | None,
    filter: object,
) -> Scan:
    """A scan that has no files yet. Raises `InvalidOption` and `IncompatibleSchema` if the filter
    is not a condition on the columns.
    """
    merge = _merge_of(table, schema) if schema.primary_keys else None
    if isinstance(filter, TypedCondition):
        with naming(table.location):
            filter = condition_in_text(filter.text, schema, filter.option)
    where = None if filter is None else Predicate.of(filter, schema, table.location, name="filter")
    return Scan(
        table=table,
        schema=schema,
        columns=columns,
        snapshot=snapshot,
        files=(),
        merge=merge,
        where=where,
    )


def with_files(
    scan: Scan, snapshot: Snapshot, specs: Sequence[PartitionSpec] | None, *, hidden: bool = False
) -> Scan:
    """The scan with its files and their deletion vectors. `specs` and `hidden` are as in
    `plan_scan`.
    """
    files = _files(scan, snapshot, specs, hidden=hidden)
    if scan.table.options.value(opt.DATA_EVOLUTION):
        files = _by_rows(scan.table, files)
    return replace(scan, files=tuple(files), vectors=_vectors(scan.table, snapshot, files))


def _merge_of(table: Table, schema: TableSchema) -> MergeSpec:
    """How rows are merged for one of the table's schemas. The table's options of today decide. If
    they name columns that this schema does not have, the schema's own options decide.
    """
    try:
        return MergeSpec.of(schema, table.options, table=table.location)
    except InvalidOption:
        if schema.id == table.schema.id:
            raise
        return MergeSpec.of(
            schema, opt.Options(schema.options, location=table.location), table=table.location
        )


def scan_of(table: Table, snapshot: Snapshot, files: Sequence[ManifestEntry]) -> Scan:
    """A scan of all columns for live files that are already known. Raises the errors of `plan_scan`
    other than `NotFound`.
    """
    _check_readable(table)
    schema = table.schema
    merge = None
    if schema.primary_keys:
        merge = _merge_of(table, schema)
    return Scan(
        table=table,
        schema=schema,
        columns=schema.fields,
        snapshot=snapshot,
        files=tuple(files),
        merge=merge,
        vectors=_vectors(table, snapshot, files),
    )


def _vectors(table: Table, snapshot: Snapshot, files: Iterable[ManifestEntry]) -> dict[str, Vector]:
    """The deletion vectors of these files, by the name of the data file."""
    return VectorIndex.of(table, snapshot).vectors({entry.file.file_name for entry in files})


def find_snapshot(table: Table, at: PointInTime) -> Snapshot | None:
    """The snapshot that `at` means; None if the table has no snapshot.

    Raises:
        NotFound: the snapshot or the tag does not exist.
        InvalidOption: the id is not a whole number, the tag is not text, or several attributes are
            set.
        CorruptMetadata, StorageError: a snapshot or a tag cannot be read.
    """
    arguments = opt.Arguments(table.location)
    snapshot_id = arguments.whole("snapshot_id", at.snapshot_id, optional=True)
    arguments.text("tag", at.tag, may_be_blank=True, optional=True)  # raises for another type
    store = SnapshotStore(table.storage)
    arguments_set = at.said_by
    if len(arguments_set) > 1:
        raise InvalidOption(
            f"{' and '.join(arguments_set)} are both given. Give one of them.",
            option=arguments_set[1],
        ).of_table(table.location)
    if at.tag is not None:
        return _tagged(table, at.tag)
    if at.timestamp is not None:
        return _at(table, store, at.timestamp)
    if snapshot_id is None:
        return store.latest()
    snapshot = store.find(snapshot_id)
    if snapshot is None:
        ids = store.ids()
        existing = f"There are {ids[0]} to {ids[-1]}" if ids else "The table has none yet"
        raise NotFound(
            f"has no snapshot {snapshot_id}: it expired, was rolled back, or never existed. "
            f"{existing}.",
            snapshot=snapshot_id,
        ).of_table(table.location, subject=True)
    return snapshot


def _at(table: Table, store: SnapshotStore, millis: int) -> Snapshot:
    """The newest snapshot that is not newer than a time in epoch milliseconds. The times of
    snapshots ascend with their ids.
    """
    ids = store.ids()
    place = bisect_right(ids, millis, key=lambda id_: store.get(id_).time_millis)
    if place == 0:
        oldest = "there is none"
        if ids:
            oldest = f"the oldest one left is of {iso(store.get(ids[0]).time_millis)}"
        raise NotFound(
            f"has no snapshot of {iso(millis)} or before: {oldest}. Give a later time, or a tag.",
            timestamp=millis,
        ).of_table(table.location, subject=True)
    return store.get(ids[place - 1])


def _tagged(table: Table, tag: str) -> Snapshot:
    path = tag_path(tag)
    full = f"{table.location}/{path}"
    try:
        return decode_snapshot(table.storage.read(path, MOST_JSON), full)
    except NotFound:
        raise NotFound(
            f"has no tag {tag!r}: it was deleted, has expired, or never existed. Look at "
            "PaimonTable.tags().",
            tag=tag,
            path=full,
        ).of_table(table.location, subject=True) from None


def columns_of(
    table: Table, schema: TableSchema, names: Sequence[str] | None
) -> tuple[DataField, ...]:
    """The columns with these names, in the order of the names. All columns if `names` is None.
    Raises `IncompatibleSchema`.
    """
    if names is None:
        return schema.fields
    if not isinstance(names, str) and isinstance(names, Iterable):
        names = tuple(names)
    if not isinstance(names, tuple) or not names:
        raise IncompatibleSchema(
            f"columns is {names!r}. Give a list with at least one column of {table.location}.",
            table=table.location,
        )
    columns = []
    for name in names:
        if name not in schema.by_name:
            advice = f"Its columns: {', '.join(schema.field_names)}."
            near = difflib.get_close_matches(name, schema.field_names, n=1)
            if near:
                advice = f"Did you mean {near[0]!r}?"
            raise IncompatibleSchema(
                f"has no column {shown_name(str(name))} (schema {schema.id}). {advice}",
                column=name,
                schema=schema.id,
            ).of_table(table.location, subject=True)
        columns.append(schema.field(name))
    if len(set(names)) < len(names):
        raise IncompatibleSchema(
            f"Columns are named twice: {', '.join(names)}. Name each once.", table=table.location
        )
    return tuple(columns)


def _files(
    scan: Scan, snapshot: Snapshot, specs: Sequence[PartitionSpec] | None, *, hidden: bool
) -> list[ManifestEntry]:
    """The live files that may have wanted rows, in the order of the manifests. If an append table
    has fixed buckets, the files of a bucket are in the order of their sequence numbers
    (`bucket-append-ordered`). `specs` and `hidden` are as in `plan_scan`.
    """
    table = scan.table
    where = scan.where
    ahead = ReadAhead(table.storage)
    manifests = ManifestStore(ahead)
    types = table.partition_types
    wanted = PartitionFilter(types, specs=specs)
    metas = manifests.base_and_delta(snapshot)
    if where is not None:
        known_of_metas = (_known_of_manifest(scan, meta) for meta in metas)
        metas = tuple(compress(metas, where.possible(known_of_metas)))
    if specs is None:  # with specs, some of the manifests are not read
        ahead.expect((manifest_path(meta.file_name), meta.file_size) for meta in metas)
    entries = live_files(manifests, metas, types, wanted)
    if where is not None:
        is_possible = where.possible(known_of(scan, entries, where))
        entries = list(compress(entries, is_possible))
    if scan.merge is not None:
        return entries if hidden else _visible(table, scan.merge, entries)
    if any(entry.total_buckets > 0 for entry in entries):
        entries.sort(
            key=lambda entry: (entry.partition, entry.bucket, entry.file.min_sequence_number)
        )
    return entries


def _known_of_manifest(scan: Scan, meta: ManifestFileMeta) -> Known:
    """The bounds of the partitions of a manifest's files. Nothing else is known about the rows of
    these files.
    """
    bounds = partition_bounds(scan.table.partition_types, meta.partition_stats)
    if bounds is None:
        return {}, None
    return dict(zip(scan.schema.partition_keys, bounds, strict=False)), None


def schemas_of(scan: Scan) -> Callable[[int], TableSchema]:
    """A function that returns the schema with an id. The function reads each schema once, and
    raises `NotFound`, `CorruptMetadata` and `StorageError`.
    """
    schema = scan.schema
    store = SchemaStore(scan.table.storage)

    @cache
    def schema_of(schema_id: int) -> TableSchema:
        return schema if schema_id == schema.id else store.get(schema_id)

    return schema_of


def known_of(
    scan: Scan, files: Iterable[ManifestEntry], where: Predicate, *, values: bool = False
) -> Iterator[Known]:
    """What is known about the rows in each of these files: their partition, and the statistics of
    the columns that `where` reads.

    Statistics are not used for a column whose type has changed since, for timestamps in ORC files,
    and for tables with data evolution.

    Where rows are merged, only the statistics of the key are used. So a file is left out only if
    none of its keys can fulfil the condition. Older rows of such keys in other files are filtered
    out later, because they have the same keys.

    Args:
        scan: the read.
        files: the files, which belong to this read.
        where: the condition, which says which columns matter.
        values: whether the statistics of all columns are used even where rows are merged. This is
            right only if no other file has any of their keys, so that their rows are final.

    Raises:
        NotFound, CorruptMetadata, StorageError: a schema cannot be read.
    """
    schema_of = schemas_of(scan)
    layout = scan.table.layout
    partition_of = cache(
        lambda row: dict(zip(layout.partition_keys, layout.partition_values(row), strict=True))
    )
    in_parts = scan.table.options.value(opt.DATA_EVOLUTION)
    decode = _value_stats if scan.merge is None or values else _key_stats
    for entry in files:
        file = entry.file
        stats: dict[str, ColumnStats] = {}
        if not in_parts:
            stats = _stats_of_columns(where.columns, file, schema_of(file.schema_id), decode)
        partition = of_partition(partition_of(entry.partition), file.row_count)
        yield stats | partition, file.row_count


def _key_stats(file: DataFileMeta, written: TableSchema) -> dict[str, ColumnStats]:
    """The statistics of a file's key columns. The columns have the names that they had in the
    schema of the file.
    """
    key = [written.field(name) for name in written.trimmed_primary_keys]
    return decode_stats(key, file.key_stats)


def _value_stats(file: DataFileMeta, written: TableSchema) -> dict[str, ColumnStats]:
    """The statistics of a file's columns. The columns have the names that they had in the schema of
    the file.
    """
    return decode_stats(written.fields, file.value_stats, file.value_stats_cols)


def _stats_of_columns(
    columns: Iterable[DataField],
    file: DataFileMeta,
    written: TableSchema,
    decode: Callable[[DataFileMeta, TableSchema], dict[str, ColumnStats]],
) -> dict[str, ColumnStats]:
    """The statistics of a file, by the names that columns have today.

    Args:
        columns: the wanted columns of today.
        file: the file.
        written: the schema that the file was written with.
        decode: a function that returns the statistics by the names in that schema. If it raises
            `FormatError`, the file counts as a file without statistics.
    """
    try:
        stats_as_written = decode(file, written)
    except FormatError:
        return {}
    columns_as_written = {column.id: column for column in written.fields}
    stats = {}
    for column in columns:
        if column.type.is_timestamp and file.file_name.endswith(".orc"):
            # In ORC files, the time zone of Java's process may be included in the bounds, or
            # missing from the values.
            continue
        old = columns_as_written.get(column.id)
        if old is None or old.name not in stats_as_written:
            continue
        if old.type.with_nullable(column.type.nullable) == column.type:
            stats[column.name] = stats_as_written[old.name]
    return stats


def of_partition(values: Mapping[str, Any], rows: int) -> dict[str, ColumnStats]:
    """The statistics of partition columns for rows of one partition.

    Args:
        values: the values of the partition, by the names of the columns; None is NULL.
        rows: how many rows there are.
    """
    stats = {}
    for name, value in values.items():
        null_count = rows if value is None else 0
        stats[name] = ColumnStats(min=value, max=value, null_count=null_count)
    return stats


def lowest_visible_level(table: Table, merge: MergeSpec) -> int:
    """The lowest level whose files readers of a table with a primary key see (semantics.md §6.6).
    It is 1 with first-row, and with deletion vectors that are not merged on read, because only a
    compaction makes the rows of level 0 final.
    """
    has_vectors = table.options.value(opt.DELETION_VECTORS)
    merges_on_read = table.options.value(opt.DELETION_VECTORS_MERGE_ON_READ)
    needs_compaction = merge.engine == FIRST_ROW or (has_vectors and not merges_on_read)
    return 1 if needs_compaction else 0


def _visible(table: Table, merge: MergeSpec, entries: list[ManifestEntry]) -> list[ManifestEntry]:
    """The files of a table with a primary key that readers see (semantics.md §6.6). Files of bucket
    -2 are left out. With first-row, and with deletion vectors that are not merged on read, files
    that no compaction has processed are also left out.
    """
    waiting = sum(entry.bucket < 0 for entry in entries)
    if waiting and table.options.value(opt.POSTPONE_MERGE_ON_READ):
        _LOG.warning(
            "%s has %s = true, and rows of %d files wait in bucket -2. They are shown after a compaction only.",
            table.location,
            opt.POSTPONE_MERGE_ON_READ.key,
            waiting,
        )
    lowest_level = lowest_visible_level(table, merge)
    return [entry for entry in entries if entry.bucket >= 0 and entry.file.level >= lowest_level]


def _by_rows(table: Table, entries: list[ManifestEntry]) -> list[ManifestEntry]:
    """The files in the order of their rows. Files with the same rows are next to each other, the
    newest first. Raises `UnsupportedFeature`, and `FormatError` for files that overlap only in
    part.
    """
    for entry in entries:
        name = entry.file.file_name
        if name.endswith(".blob") or ".vector." in name or entry.file.first_row_id is None:
            raise UnsupportedFeature(
                f"{name} holds BLOBs, vectors, or rows without ids, which this release does not "
                f"read where {opt.DATA_EVOLUTION.key} is set. Read the table with an engine that "
                "does.",
                file=name,
            ).of_table(table.location)
    ordered = sorted(
        entries, key=lambda entry: (*row_range(entry), -entry.file.max_sequence_number)
    )
    for first, second in pairwise(ordered):
        if _overlap_in_part(row_range(first), row_range(second)):
            first_name = first.file.file_name
            second_name = second.file.file_name
            raise FormatError(
                f"the files {first_name} and {second_name} have some rows in common, but not all. No "
                "engine can join their columns. Roll the table back to the snapshot before the "
                "second one came.",
                files=(first_name, second_name),
            ).of_table(table.location)
    return ordered


class RowRange(NamedTuple):
    """Which rows a file has.

    Attributes:
        partition: the partition as a serialized row.
        bucket: the bucket's number.
        first_id: the id of the first row.
        rows: how many rows there are. Their ids follow one another.
    """

    partition: bytes
    bucket: int
    first_id: int
    rows: int


def row_range(entry: ManifestEntry) -> RowRange:
    """Which rows a file has. If the rows have no ids, the id of the first row counts as 0."""
    file = entry.file
    return RowRange(entry.partition, entry.bucket, file.first_row_id or 0, file.row_count)


def _overlap_in_part(before: RowRange, after: RowRange) -> bool:
    """Whether two ranges have some ids in common, but not all. `before` is the range that begins
    first.
    """
    are_of_one_bucket = (before.partition, before.bucket) == (after.partition, after.bucket)
    end_of_before = before.first_id + before.rows
    return are_of_one_bucket and before != after and after.first_id < end_of_before


def _check_readable(table: Table, *also: opt.Option[Any]) -> None:
    """Raises `UnsupportedFeature` if an option is set that this release does not read. `also` are
    further options that this read does not support.
    """
    check_branch_option(table)
    check_map_layouts(table)
    refused: tuple[opt.Option[Any], ...] = (
        opt.TABLE_TYPE,
        opt.SNAPSHOT_ORDERING,
        opt.PK_CLUSTERING_OVERRIDE,
        opt.PRIMARY_KEY_NULLABLE,
        *also,
    )
    for option in refused:
        if table.options.differs(option):
            value = table.options[option.key]
            raise UnsupportedFeature(
                f"has {option.key} = {value!r}, which this release does not read. Read it with an "
                "engine that does.",
                option=option.key,
                value=value,
            ).of_table(table.location, subject=True)
