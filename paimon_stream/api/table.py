"""`PaimonTable`: create a table, look into it, maintain it, and commit to it without Spark."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from paimon_stream.api.batch_write import Rows, append_rows, batch_commit, overwrite_rows
from paimon_stream.api.table_file import TableFile, table_file
from paimon_stream.commit.report import CommitReport
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import (
    AlreadyExists,
    ConfigError,
    CorruptMetadata,
    IncompatibleSchema,
    InvalidOption,
    NotFound,
    UnsupportedFeature,
    naming,
)
from paimon_stream.extras import require
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.snapshot_json import Snapshot, decode_snapshot
from paimon_stream.format.types import DataField, from_arrow, parse_type
from paimon_stream.maintenance.after_commit import AfterCommit
from paimon_stream.maintenance.ages import Age, Moment
from paimon_stream.maintenance.expire import ExpireReport, expire_snapshots
from paimon_stream.maintenance.findings import VerifyReport
from paimon_stream.maintenance.manifest_compaction import ManifestCompactionReport, compact_manifests
from paimon_stream.maintenance.orphans import OrphanReport, remove_orphan_files
from paimon_stream.maintenance.progress import Progress, silent
from paimon_stream.maintenance.rollback import RollbackReport, rollback_to
from paimon_stream.maintenance.tags import TagReport, create_tag, delete_tag
from paimon_stream.maintenance.verify import DEFAULT_SAMPLE, verify
from paimon_stream.options import (
    MERGE_SCHEMA,
    MISSING_COLUMNS,
    OPERATION_COLUMN,
    OPERATION_MAPPING,
    PARTITION_DEFAULT_NAME,
    check_mapping,
    check_sink_options,
)
from paimon_stream.read.rows import BATCH_ROWS, arrow_schema, read_batches
from paimon_stream.read.scan import find_snapshot, plan_scan
from paimon_stream.storage.base import Storage
from paimon_stream.storage.uri import open_storage
from paimon_stream.stream.unsupported_options import warn_of_work_left
from paimon_stream.stream.writable import check_writable
from paimon_stream.table.layout import TAG_FOLDER
from paimon_stream.table.live import live_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_filter import PartitionFilter
from paimon_stream.table.partition_spec import parse_partition
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table, create_table, load_table

if TYPE_CHECKING:
    from paimon_stream.spark.types import SparkStruct

__all__ = ["PaimonTable"]

_TAG_PREFIX = "tag-"


class PaimonTable:
    """A Paimon table, made by `PaimonTable.create` or `PaimonTable.load`.

    The schema is the newest at the time of the call; load the table again to see a later one. Snapshots,
    files and tags are read on each call.

    >>> t = PaimonTable.create(
    ...     "memory://docs/sales.db/orders",
    ...     schema=[("id", "BIGINT NOT NULL"), ("amount", "DECIMAL(10, 2)"), ("dt", "STRING")],
    ...     partition_keys=["dt"],
    ... )
    >>> t
    PaimonTable('memory://docs/sales.db/orders', 3 columns, partitioned by dt)
    >>> [f"{column.name} {column.type}" for column in t.schema.fields]
    ['id BIGINT NOT NULL', 'amount DECIMAL(10, 2)', 'dt STRING']
    >>> t.latest_snapshot() is None, t.files()
    (True, ())
    """

    __slots__ = ("_table",)

    def __init__(self, table: Table) -> None:
        """Use `create` or `load`."""
        self._table = table

    # -- coming to be -----------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        location: str,
        schema: SparkStruct | pa.Schema | Sequence[tuple[str, str]],
        *,
        partition_keys: Sequence[str] = (),
        primary_keys: Sequence[str] = (),
        options: Mapping[str, object] | None = None,
        comment: str = "",
        if_not_exists: bool = False,
        storage_options: Mapping[str, str] | None = None,
    ) -> PaimonTable:
        """Creates a table atomically in the folder `location`, `<warehouse>/<database>.db/<table>`.

        `schema` is a Spark `StructType`, a `pyarrow.Schema`, or pairs of name and Paimon type such as
        `("id", "BIGINT NOT NULL")`. `options` are Paimon's. With `if_not_exists`, an existing table is loaded
        unchanged, whatever its schema (format.md §2.2).

        Raises `AlreadyExists`, `IncompatibleSchema`, `UnsupportedFeature` for a type that Paimon does not
        have, `InvalidOption`, `StorageError`.
        """
        storage = open_storage(location, storage_options or {})
        with naming(storage.location):
            check_mapping(options, "options")
            created = create_table(
                storage,
                _fields_of(schema),
                partition_keys=partition_keys,
                primary_keys=primary_keys,
                options=options,
                comment=comment,
            )
        if created is not None:
            _warn_if_unwritable(created)
            return cls(created)
        if if_not_exists:
            return cls(load_table(storage))
        raise AlreadyExists(
            f"There is already a table at {storage.location}. Load it with PaimonTable.load, pass "
            "if_not_exists=True, or create the new one elsewhere.",
            path=storage.location,
            table=storage.location,
        )

    @classmethod
    def load(cls, location: str, *, storage_options: Mapping[str, str] | None = None) -> PaimonTable:
        """Loads the table in the folder `location`.

        Raises `NotFound` if there is none, `CorruptMetadata`, `UnknownVersion`, `StorageError`.
        """
        return cls(load_table(open_storage(location, storage_options or {})))

    # -- what it is -------------------------------------------------------------------------------

    @property
    def location(self) -> str:
        """The table's folder, without credentials."""
        return self._table.location

    @property
    def schema(self) -> TableSchema:
        """The schema: `fields` (each with `name`, `type`, `description`), keys, options, `id`."""
        return self._table.schema

    @property
    def options(self) -> Mapping[str, str]:
        """The table's own options, as stored. Options that are not set have Paimon's defaults."""
        return self._table.schema.options

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """The partition columns, in order; empty for a table without partitions."""
        return self._table.schema.partition_keys

    @property
    def primary_keys(self) -> tuple[str, ...]:
        """The primary key columns, in order; empty for an append table."""
        return self._table.schema.primary_keys

    def __repr__(self) -> str:
        """Location, number of columns, keys; no credentials."""
        parts = [repr(self.location), f"{len(self.schema.fields)} columns"]
        if self.partition_keys:
            parts.append(f"partitioned by {', '.join(self.partition_keys)}")
        if self.primary_keys:
            parts.append(f"primary key {', '.join(self.primary_keys)}")
        return f"PaimonTable({', '.join(parts)})"

    # -- what it holds ----------------------------------------------------------------------------

    def snapshots(self) -> tuple[Snapshot, ...]:
        """All snapshots that exist, oldest first. Raises `CorruptMetadata`, `StorageError`."""
        store = SnapshotStore(self._storage)
        found = (store.find(snapshot_id) for snapshot_id in store.ids())
        return tuple(snapshot for snapshot in found if snapshot is not None)

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot, None in an empty table. Raises `CorruptMetadata`, `StorageError`."""
        return SnapshotStore(self._storage).latest()

    def files(
        self, snapshot_id: int | None = None, partition: Mapping[str, Any] | str | None = None
    ) -> tuple[TableFile, ...]:
        """The live data files of a snapshot, by default the newest; () in an empty table. `partition` has the
        same forms as in `to_arrow`.

        Raises `NotFound` if there is no such snapshot, `IncompatibleSchema` and `InvalidData` for a partition
        that the table cannot have, `CorruptMetadata`, `StorageError`.
        """
        table, specs = self._table, None
        with naming(self.location):
            snapshot = find_snapshot(table, snapshot_id, None)
        if snapshot is None:
            return ()
        if partition is not None:
            default_name = table.options.value(PARTITION_DEFAULT_NAME)
            fields = table.schema.partition_fields
            specs = [parse_partition(fields, partition, default_name, table=table.location)]
        meant = PartitionFilter(table.partition_types, specs=specs)
        manifests = ManifestStore(self._storage, table.options)
        metas = [m for m in manifests.base_and_delta(snapshot) if meant.may_be_in(m.partition_stats)]
        entries = live_files(manifests, metas, table.partition_types)
        return tuple(table_file(self.location, table.layout, e) for e in entries if meant.holds(e.partition))

    def tags(self) -> dict[str, Snapshot]:
        """The tags by name, with the snapshot that each keeps. Raises `CorruptMetadata`, `StorageError`."""
        found = {}
        for stat in self._storage.list_files(TAG_FOLDER, _TAG_PREFIX):
            try:
                data = self._storage.read(stat.path)
            except NotFound:
                continue  # deleted since the listing
            found[stat.name[len(_TAG_PREFIX) :]] = decode_snapshot(data, f"{self.location}/{stat.path}")
        return found

    def schemas(self) -> tuple[TableSchema, ...]:
        """All schemas the table has had, oldest first. Raises `CorruptMetadata`, `StorageError`."""
        store = SchemaStore(self._storage)
        return tuple(map(store.get, store.ids()))

    # -- reading ----------------------------------------------------------------------------------

    def to_arrow(
        self,
        snapshot_id: int | None = None,
        columns: Sequence[str] | None = None,
        partition: Mapping[str, Any] | str | None = None,
        *,
        tag: str | None = None,
    ) -> pa.Table:
        """Reads all rows of a snapshot into memory. Without a snapshot id or a tag it reads the newest one.

        `columns` are the names of the columns, in the order wanted. `partition` is `{"dt": value}`, where a
        value is a Python object or text, or the path of a partition's folder, `"dt=19782/region=x"`. Columns
        left out may have any value. If a snapshot or tag is given, the columns are those of the table then.

        For a table with a primary key, the rows are merged by its merge engine: one row per key, sorted by
        key within a bucket.

        Raises `UnsupportedFeature`, `NotFound` for a snapshot, tag or data file that does not exist,
        `IncompatibleSchema` for unknown columns, `InvalidData` for a partition value of another type and for
        deletes that the merge engine does not accept, `FormatError` for a broken file, `StorageError`.
        """
        with naming(self.location):
            scan = plan_scan(
                self._table, snapshot_id=snapshot_id, tag=tag, columns=columns, partition=partition
            )
        return pa.Table.from_batches(read_batches(scan), schema=arrow_schema(scan.columns))

    def to_batches(
        self,
        snapshot_id: int | None = None,
        columns: Sequence[str] | None = None,
        partition: Mapping[str, Any] | str | None = None,
        *,
        tag: str | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """Reads the rows of `to_arrow` as record batches of at most `batch_rows` rows, file by file, in
        bounded memory. For a table with a primary key, the memory holds some rows of each file that overlaps
        with others in its bucket.

        Errors in the arguments are raised at once, errors of a data file when that file is read.
        """
        with naming(self.location):
            if not isinstance(batch_rows, int) or batch_rows < 1:
                raise InvalidOption(
                    f"batch_rows is {batch_rows!r}. Give a whole number of at least 1.", option="batch_rows"
                )
            scan = plan_scan(
                self._table, snapshot_id=snapshot_id, tag=tag, columns=columns, partition=partition
            )
        return read_batches(scan, batch_rows)

    # -- writing ----------------------------------------------------------------------------------

    def append(
        self,
        df: Rows,
        *,
        merge_schema: str | None = None,
        operation_column: str | None = None,
        operation_mapping: str | None = None,
        missing_columns: str | None = None,
    ) -> CommitReport:
        """Appends the rows of a Spark DataFrame (not a streaming one), or of a `pyarrow.Table`, `RecordBatch`
        or `RecordBatchReader`, in one snapshot. Without rows there is no snapshot.

        Columns match by name. The table's newest schema and options apply. This is a batch commit: if you
        repeat it, a table without a primary key has the rows twice. In a table with a primary key, each row
        replaces the row with its key or is merged into it. Among given rows with the same key, the last one
        counts.

        - `missing_columns` (see `paimon-stream.missing-columns`) is `error` by default: rows that lack one of
          the table's columns are refused. With `null` the rows may lack nullable columns.
        - `merge_schema` (see `paimon-stream.merge-schema`), only for a DataFrame, is `off`, `add` or `widen`.
        - `operation_column` (see `paimon-stream.operation-column`), only for a table with a primary key,
          names a column of the rows that says what each row does. The table does not have this column.
          `operation_mapping`, such as `"new=+I,gone=-D"`, says what its values mean.

        Raises `IncompatibleSchema`, `InvalidData`, `UnsupportedFeature`, `StorageError`, `CommitConflict`,
        `CommitContended`; then nothing is in the table, and the written files are removed. The same holds for
        `SequenceConflict`, raised when others kept writing to the same buckets of a table with a primary key
        during each attempt. Raises `CommitUnknown` if the rows may be in the table. Other errors in Spark's
        plan are raised as Spark raises them.
        """
        options = {
            MERGE_SCHEMA.key: merge_schema,
            OPERATION_COLUMN.key: operation_column,
            OPERATION_MAPPING.key: operation_mapping,
            MISSING_COLUMNS.key: missing_columns,
        }
        return append_rows(self._newest(options), df)

    def overwrite(
        self,
        df: Rows,
        partition: Mapping[str, Any] | None = None,
        dynamic: bool | None = None,
        *,
        merge_schema: str | None = None,
        missing_columns: str | None = None,
    ) -> CommitReport:
        """Replaces rows of the table with the given rows, in one snapshot. `append` says which rows it takes.

        - With a `partition` such as `{"dt": "2024-02-29"}` it replaces all matching partitions; `{}` matches
          the whole table. The rows may leave out the columns of `partition`; otherwise their values must
          agree with it. Without rows, the matching partitions are cleared.
        - With `dynamic=True` it replaces the partitions that get rows. Without rows, nothing happens.
        - With `dynamic=False` it replaces the whole table.
        - With neither, Spark's `spark.sql.sources.partitionOverwriteMode` decides if it is set, else the
          table's option `dynamic-partition-overwrite`. A table without partitions is replaced as a whole.

        Earlier snapshots keep their rows until they expire. The new files may have another bucket count.
        `merge_schema` and `missing_columns` are the same as for `append`.

        Raises `InvalidOption` if both `partition` and `dynamic` are given, `OutsidePartition` for rows of
        other partitions, and the errors of `append`.
        """
        options = {MERGE_SCHEMA.key: merge_schema, MISSING_COLUMNS.key: missing_columns}
        return overwrite_rows(self._newest(options), df, partition, dynamic)

    def truncate(self) -> CommitReport:
        """Clears the whole table in one snapshot. Raises the errors of `append`."""
        return batch_commit(self._newest()).truncate()

    def drop_partitions(self, partitions: Sequence[Mapping[str, Any]]) -> CommitReport:
        """Clears in one snapshot all partitions that match one of the specs, such as
        `[{"dt": "2024-02-29"}]`. Raises `InvalidOption` if no spec is given, and the errors of
        `overwrite`."""
        return batch_commit(self._newest()).drop_partitions(partitions)

    def _newest(self, options: Mapping[str, str | None] = MappingProxyType({})) -> Table:
        """The table as it is now, with options for the operation."""
        asked = {key: value for key, value in options.items() if value is not None}
        with naming(self.location):
            check_sink_options(asked)
        return load_table(self._storage, asked)

    # -- committing -------------------------------------------------------------------------------

    def new_commit(self, commit_user: str) -> TableCommit:
        """A `TableCommit`, which commits files under this commit user, without Spark."""
        warn_of_work_left(self._table)
        return TableCommit(self._table, commit_user, after_commit=AfterCommit())

    # -- snapshots, tags --------------------------------------------------------------------------

    def expire_snapshots(
        self,
        retain_max: int | None = None,
        retain_min: int | None = None,
        older_than: Moment | None = None,
        max_deletes: int | None = None,
        dry_run: bool = False,
        *,
        protect_streams: bool = True,
        progress: Progress = silent,
    ) -> ExpireReport:
        """Expires old snapshots and deletes the files that only they need. Tags, branches, consumers, and
        streams that were active within a day keep the snapshots and files that they need.

        The table's options decide what is not given (`snapshot.num-retained.max`, `.min`,
        `snapshot.time-retained`, `snapshot.expire.limit`). `older_than` is an age such as `"7 d"` or a
        `timedelta`, or a time (`datetime`, text such as `"2026-11-01T12:00Z"`, epoch milliseconds).

        Unless `dry_run=True` is given it acts at once, because the table's metadata determines what may be
        deleted. `remove_orphan_files` must guess by age and is therefore a dry run by default.

        Raises `InvalidOption`, `UnsupportedFeature` for a table whose changelog outlives its snapshots,
        `CorruptMetadata`, `StorageError`. The next run deletes what was not deleted then.
        """
        return expire_snapshots(
            self._newest(),
            retain_max,
            retain_min,
            older_than,
            max_deletes,
            dry_run,
            protect_streams=protect_streams,
            progress=progress,
        )

    def create_tag(
        self, name: str, snapshot_id: int | None = None, time_retained: Age | None = None
    ) -> TagReport:
        """Keeps a snapshot, by default the newest, under a name. After `time_retained`, any engine may delete
        the tag. `time_retained` is an age such as `"90 d"` or a `timedelta`, by default the table's
        `tag.default-time-retained`. If neither is set, the tag stays until it is deleted.

        Raises `InvalidOption` for an invalid name, `AlreadyExists`, `NotFound` for a snapshot that does not
        exist, `StorageError`.
        """
        return create_tag(self._newest(), name, snapshot_id, time_retained)

    def delete_tag(self, name: str) -> TagReport:
        """Deletes a tag, and the files that only it needed. `found` in the report says whether it existed.

        Raises `InvalidOption`, `CorruptMetadata`, `StorageError`.
        """
        return delete_tag(self._newest(), name)

    def rollback_to(self, target: int | str, *, dry_run: bool = False) -> RollbackReport:
        """Makes a snapshot (given by id) or the snapshot of a tag (given by name) the newest again, and
        removes later snapshots and tags. Stop the writers first. A stream that loses batches stops with
        `TableRolledBack`.

        Unless `dry_run=True` is given it acts at once, because the target alone determines what is removed.

        Raises `NotFound`, `CommitContended` if a writer keeps committing, `CorruptMetadata`, `StorageError`.
        """
        return rollback_to(self._newest(), target, dry_run=dry_run)

    # -- keeping it healthy -----------------------------------------------------------------------

    def remove_orphan_files(
        self,
        older_than: Age | None = None,
        dry_run: bool = True,
        *,
        max_paths: int = 1000,
        progress: Progress | None = None,
    ) -> OrphanReport:
        """Finds the files that nothing refers to, and removes them if `dry_run` is False.

        It is a dry run by default, unlike `expire_snapshots` and `rollback_to`, which act at once. The
        candidates are chosen by age, and a file that nothing refers to may be part of a batch that is still
        being written.

        `older_than` is an age, a `timedelta` or a text such as `"36 h"`. The default is one day, and the
        minimum one hour. Choose an age above the time that your longest batch takes.

        Raises `InvalidOption` for an age below the minimum. Raises `CorruptMetadata`, `UnknownVersion` or
        `StorageError` if anything that refers to files cannot be read, and `CommitContended`; then nothing is
        deleted.
        """
        return remove_orphan_files(self._table, older_than, dry_run, max_paths=max_paths, progress=progress)

    def verify(self, *, sample: int = DEFAULT_SAMPLE, progress: Progress | None = None) -> VerifyReport:
        """Reads every snapshot, tag, manifest list and manifest, and checks that their content is right.

        `sample` data files, drawn at random, are read in full; 0 reads none. Nothing is written. Raises only
        `StorageError`: everything that is broken becomes a finding, with its cure.
        """
        return verify(self._table, sample=sample, progress=progress)

    def compact_manifests(
        self, *, dry_run: bool = False, progress: Progress | None = None
    ) -> ManifestCompactionReport:
        """Merges the manifests of the newest snapshot and publishes the result as a new snapshot, if anything
        changes. A dry run writes nothing and reports what the merge would do.

        Raises `CommitContended`, `DeletedFiles`, `CorruptMetadata`, `StorageError`, `CommitUnknown`.
        """
        return compact_manifests(self._table, dry_run=dry_run, progress=progress)

    @property
    def _storage(self) -> Storage:
        return self._table.storage


def _fields_of(schema: Any) -> tuple[DataField, ...]:
    """The columns that the user described, with their positions as ids."""
    if isinstance(schema, pa.Schema):
        return tuple(_field_of_arrow(position, column) for position, column in enumerate(schema))
    if type(schema).__module__.partition(".")[0] == "pyspark":
        types = require("paimon_stream.spark.types", "spark", "A schema of Spark")
        fields: tuple[DataField, ...] = types.to_data_fields(schema)
        return fields
    pairs = list(schema) if isinstance(schema, (list, tuple)) else []
    if not pairs or not all(_is_pair(one) for one in pairs):
        raise IncompatibleSchema(
            f"A schema is a Spark StructType, a pyarrow.Schema, or pairs such as ('id', 'BIGINT'), not "
            f"{schema!r}."
        )
    return tuple(_field_of(position, *pair) for position, pair in enumerate(pairs))


def _warn_if_unwritable(table: Table) -> None:
    """A table that was created and cannot be written here is for other engines, or a mistake."""
    try:
        check_writable(table)
    except ConfigError as why:
        warnings.warn(f"The table was created, but this release cannot write it. {why}", stacklevel=3)


def _is_pair(one: Any) -> bool:
    return isinstance(one, (list, tuple)) and len(one) == 2 and all(isinstance(part, str) for part in one)


def _field_of_arrow(position: int, column: pa.Field) -> DataField:
    try:
        type_ = from_arrow(column.type, column.nullable)
    except UnsupportedFeature as wrong:
        raise UnsupportedFeature(
            f"Column {column.name!r}: {wrong.message} Cast the column to another type.",
            column=column.name,
            **wrong.context,
        ) from None
    return DataField(id=position, name=column.name, type=type_)


def _field_of(position: int, name: str, text: str) -> DataField:
    try:
        return DataField(id=position, name=name, type=parse_type(text))
    except CorruptMetadata as wrong:
        raise IncompatibleSchema(
            f"Column {name!r}: {wrong.message} Types are written as in SQL: BIGINT, STRING NOT NULL, "
            "DECIMAL(10, 2), TIMESTAMP(6).",
            column=name,
        ) from None
