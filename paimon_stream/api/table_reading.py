"""The part of `PaimonTable` that reads: snapshots, files, tags, schemas and rows. All parts of
`PaimonTable` share `LoadedTable`: the table as it was loaded, and how it is loaded again.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from paimon_stream.api.inspection import History, TableFile, table_file
from paimon_stream.api.report_page import ReportPage
from paimon_stream.api.report_sections import table_page
from paimon_stream.api.streams import StreamWatch
from paimon_stream.errors import InvalidOption, naming
from paimon_stream.extras import require
from paimon_stream.format.arrow_types import arrow_schema
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.maintenance.tags import read_tags
from paimon_stream.merge.spec import ROW_KIND
from paimon_stream.options import (
    PARTITION_DEFAULT_NAME,
    Arguments,
    Moment,
    Option,
    check_sink_options,
    did_you_mean,
)
from paimon_stream.options.option import SINK_PREFIX
from paimon_stream.read.changes import CHANGE_OPTIONS, READ_CHANGELOG, plan_read
from paimon_stream.read.rows import BATCH_ROWS, read_batches
from paimon_stream.read.scan import PointInTime, Scan, find_snapshot
from paimon_stream.runtime import system
from paimon_stream.storage.base import Storage
from paimon_stream.table.live import snapshot_files
from paimon_stream.table.partition_spec import PartitionFilter, parse_partition
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table, load_table, table_of


class LoadedTable:
    """The table as it was when it was last used: its location, schema, keys and options. Each read
    and write of rows looks for the newest schema first.
    """

    __slots__ = ("_table",)

    _table: Table

    @property
    def location(self) -> str:
        """The table's folder, without credentials."""
        return self._table.location

    @property
    def schema(self) -> TableSchema:
        """The schema: its `fields` (each with `name`, `type` and `description`), keys, options and
        `id`.
        """
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

    def _newest(self, **sink_options: str | None) -> Table:
        """The table as it is now, with some options of a sink. The arguments are these options,
        under their names in Python. Options that are None are left out.
        """
        return self._newest_with(self._sink_options(**sink_options))

    def _sink_options(self, **sink_options: str | None) -> dict[str, str]:
        """The given options of a sink, by their keys, after a check. The arguments are the options,
        under their names in Python.
        """
        options = {}
        for name, value in sink_options.items():
            self._arguments.text(name, value, optional=True)
            if value is not None:
                options[SINK_PREFIX + name.replace("_", "-")] = value
        with naming(self.location):
            check_sink_options(options)
        return options

    def _newest_with(self, options: Mapping[str, str]) -> Table:
        """The table as it is now, with the options of one call."""
        table = load_table(self._storage, options)
        # The options of one call do not belong to the table, so they are not kept.
        self._table = table_of(self._storage, table.schema) if options else table
        return table

    def _of_call(
        self, options: Mapping[str, str] | None, allowed: Sequence[Option[Any]]
    ) -> dict[str, str]:
        """The options of one call. Raises `InvalidOption` for an option that is not allowed."""
        keys = [option.key for option in allowed]
        example = f"{{{keys[0]!r}: {allowed[0].default or '2'!r}}}"
        options_of_call = self._arguments.mapping("options", options, example, texts=True)
        for key in options_of_call:
            if key not in keys:
                advice = did_you_mean(key, keys) or f"Such options are {', '.join(keys)}."
                raise InvalidOption(
                    f"{self.location}: option {key!r} cannot be set for one call. {advice}",
                    table=self.location,
                    option=key,
                )
        return options_of_call

    @property
    def _arguments(self) -> Arguments:
        """The object that checks the arguments of a call."""
        return Arguments(self.location)

    @property
    def _storage(self) -> Storage:
        return self._table.storage


class TableReading(LoadedTable):
    """Reads what a table holds. Each call reads the storage again."""

    __slots__ = ()

    def snapshots(self) -> tuple[Snapshot, ...]:
        """All snapshots that exist, oldest first. Raises `CorruptMetadata`, `StorageError`."""
        store = SnapshotStore(self._storage)
        return tuple(filter(None, map(store.find, store.ids())))

    def report(
        self,
        *,
        snapshots: int = 500,
        sample: int = 0,
    ) -> ReportPage:
        """A page of plots and numbers, which a notebook shows and `save` writes: the health of the
        stream, what `verify` finds, read amplification, batches, commits by phase, writers, sizes
        of files, levels and manifests. The page says which parts cannot be read.

        Args:
            snapshots: how many of the newest snapshots the page shows.
            sample: how many data files are read in full.

        Raises:
            InvalidOption: for an argument with a wrong value.
        """
        snapshots = self._arguments.whole("snapshots", snapshots, least=1)
        sample = self._arguments.whole("sample", sample, least=0)
        stream = StreamWatch(self._storage).look(system().clock.now_millis())
        part = table_page(self._table, stream, snapshots=snapshots, sample=sample)
        return ReportPage(self.location, {self.location: part})

    def history(self) -> History:
        """All snapshots, newest first, each with the summary of its batch. Raises
        `CorruptMetadata`, `StorageError`.
        """
        return History.of(self.snapshots())

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot; None in an empty table. Raises `CorruptMetadata`, `StorageError`."""
        return SnapshotStore(self._storage).latest()

    def files(
        self,
        snapshot_id: int | None = None,
        partition: Mapping[str, Any] | str | None = None,
    ) -> tuple[TableFile, ...]:
        """The live data files of a snapshot; () in an empty table.

        Args:
            snapshot_id: the id of the snapshot; by default the newest.
            partition: list only the files of these partitions, in the form that `to_arrow` takes.

        Raises:
            NotFound: if there is no such snapshot.
            IncompatibleSchema: for a partition that the table cannot have.
            InvalidData: for a value that a partition column cannot have.
            CorruptMetadata: if a file that refers to others is damaged.
            StorageError: if the storage fails.
        """
        table = self._newest()
        with naming(self.location):
            snapshot = find_snapshot(table, PointInTime(snapshot_id=snapshot_id))
        if snapshot is None:
            return ()
        specs = None
        if partition is not None:
            default_name = table.options.value(PARTITION_DEFAULT_NAME)
            fields = table.schema.partition_fields
            specs = [parse_partition(fields, partition, default_name, table=table.location)]
        partitions = PartitionFilter(table.partition_types, specs=specs)
        entries = snapshot_files(table, snapshot, partitions)
        return tuple(table_file(table.folder, table.layout, entry) for entry in entries)

    def tags(self) -> dict[str, Snapshot]:
        """The tags by name, each with its snapshot. The pin of a rollback is not among them. Raises
        `CorruptMetadata`, `UnknownVersion`, `StorageError`.
        """
        return read_tags(self._storage)

    def schemas(self) -> tuple[TableSchema, ...]:
        """All schemas that the table has had, oldest first. Raises `CorruptMetadata`,
        `UnknownVersion`, `StorageError`.
        """
        store = SchemaStore(self._storage)
        return tuple(map(store.get, store.ids()))

    def to_arrow(
        self,
        snapshot_id: int | None = None,
        columns: Sequence[str] | None = None,
        partition: Mapping[str, Any] | str | None = None,
        *,
        tag: str | None = None,
        timestamp: Moment | None = None,
        filter: Any = None,
        options: Mapping[str, str] | None = None,
    ) -> pa.Table:
        """Reads the rows of a snapshot into memory. This is the newest snapshot, unless
        `snapshot_id`, `tag`, `timestamp` or an option in the table's schema names another one
        (docs/reading.md). In a table with a primary key, the merge engine makes one row per key,
        and the rows of a bucket are sorted by key.

        Args:
            snapshot_id: read the snapshot with this id. If `snapshot_id`, `tag` or `timestamp` is
                given, the columns are those of the snapshot's schema.
            columns: the names of the wanted columns, in the wanted order; by default all columns.
            partition: read only these partitions: values by column, such as `{"dt": value}`, where
                a value is a Python object or a text, or the path of a partition's folder, such as
                `"dt=19782/region=x"`. Columns that are left out may have any value.
            tag: read the snapshot of this tag.
            timestamp: read the newest snapshot that is not younger than this time or age. A time is
                a `datetime`, ISO text or epoch milliseconds. An age is a text such as `"36 h"`, or
                a `timedelta`.
            filter: a `pyarrow.compute.Expression`, such as `pc.field("id") > 7`. Only rows for
                which it is true are returned. Files without such rows are not read if partitions or
                statistics show that (docs/reading.md).
            options: read what has changed instead of a snapshot: `{"incremental-between": "3,7"}`
                (docs/reading.md, "What has changed").

        Raises:
            UnsupportedFeature: for a table, an option, a type conversion or a file that this
                release cannot read.
            NotFound: for a snapshot, tag or data file that does not exist.
            IncompatibleSchema: for a column that is unknown or named twice, for a partition that
                the table cannot have, and for a `filter` that does not fit the columns.
            InvalidOption: if two of `snapshot_id`, `tag`, `timestamp` and a range in `options` are
                given, for a `timestamp` that is neither a time nor an age, for a `filter` that is
                not an expression or names a column by its position, for merge options of the table
                that contradict each other, and for changes that the table does not tell.
            InvalidData: for a partition value that its column cannot have, for a value in a file
                that its column cannot have now, for a value for which `filter` cannot be computed,
                and for deletes that the merge engine does not accept. In a table with a primary
                key, `filter` may also meet the values of a row that was replaced or deleted, if it
                rules out the row's key by another column.
            FormatError: for a broken file.
            StorageError: if the storage fails.
        """
        at = PointInTime.of(self.location, snapshot_id, tag, timestamp)
        scan = self._scan(at, columns, partition, filter, options)
        return pa.Table.from_batches(read_batches(scan), schema=arrow_schema(scan.columns))

    def to_pandas(
        self,
        *args: Any,
        **arguments: Any,
    ) -> Any:
        """The rows of `to_arrow` as a `pandas.DataFrame`.

        Args:
            *args: the arguments of `to_arrow`.
            **arguments: the arguments of `to_arrow`.

        Raises:
            MissingExtra: if pandas is not installed.
            PaimonStreamError: the errors of `to_arrow`.
        """
        require("pandas", None, "PaimonTable.to_pandas")
        return self.to_arrow(*args, **arguments).to_pandas()

    def to_polars(
        self,
        *args: Any,
        **arguments: Any,
    ) -> Any:
        """The rows of `to_arrow` as a `polars.DataFrame`.

        Args:
            *args: the arguments of `to_arrow`.
            **arguments: the arguments of `to_arrow`.

        Raises:
            MissingExtra: if polars is not installed.
            PaimonStreamError: the errors of `to_arrow`.
        """
        polars = require("polars", None, "PaimonTable.to_polars")
        return polars.from_arrow(self.to_arrow(*args, **arguments))

    def to_duckdb(
        self,
        *args: Any,
        connection: Any = None,
        **arguments: Any,
    ) -> Any:
        """The rows of `to_arrow` as a relation of DuckDB.

        Args:
            *args: the arguments of `to_arrow`.
            connection: a connection of DuckDB; by default DuckDB's default connection.
            **arguments: the arguments of `to_arrow`.

        Raises:
            MissingExtra: if DuckDB is not installed.
            InvalidOption: if `connection` is not a connection of DuckDB.
            PaimonStreamError: the errors of `to_arrow`.
        """
        duckdb = require("duckdb", None, "PaimonTable.to_duckdb")
        if not isinstance(connection, duckdb.DuckDBPyConnection | None):
            raise self._arguments.wrong(
                "connection", connection, "a connection of duckdb, or leave it out"
            )
        rows = self.to_arrow(*args, **arguments)
        return duckdb.from_arrow(rows, connection=connection or duckdb.default_connection())

    def to_spark(
        self,
        spark: Any,
        columns: Sequence[str] | None = None,
        snapshot_id: int | None = None,
        *,
        tag: str | None = None,
        timestamp: Moment | None = None,
        partition: Mapping[str, Any] | str | None = None,
        native: bool | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Any:
        """The rows of `to_arrow` as a lazy `pyspark.sql.DataFrame`. The snapshot is chosen when
        this method is called.

        Args:
            spark: the session.
            columns: as for `to_arrow`.
            snapshot_id: as for `to_arrow`.
            tag: as for `to_arrow`.
            timestamp: as for `to_arrow`.
            partition: as for `to_arrow`.
            native: whether Spark's own Parquet reader reads the files. By default, that reader
                reads local files that hold rows in their final form. False forbids it, and True
                demands it.
            options: as for `to_arrow`.

        Raises:
            MissingExtra: if pyspark is not installed.
            UnsupportedFeature: if `native=True` is given and Spark's own reader cannot read the
                rows.
            PaimonStreamError: the errors of `to_arrow`.
        """
        if not hasattr(spark, "createDataFrame"):
            raise self._arguments.wrong("spark", spark, "a SparkSession")
        native = self._arguments.flag("native", native, optional=True)
        at = PointInTime.of(self.location, snapshot_id, tag, timestamp)
        scan = self._scan(at, columns, partition, None, options)
        to_spark = require("paimon_stream.spark.to_spark", "spark", "PaimonTable.to_spark")
        return to_spark.frame_of(spark, scan, native)

    def to_batches(
        self,
        snapshot_id: int | None = None,
        columns: Sequence[str] | None = None,
        partition: Mapping[str, Any] | str | None = None,
        *,
        tag: str | None = None,
        timestamp: Moment | None = None,
        filter: Any = None,
        options: Mapping[str, str] | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """Reads the rows of `to_arrow` as record batches, file by file, in bounded memory. For a
        table with a primary key, the memory holds some rows of each file whose keys overlap with
        those of other files in its bucket. Errors in the arguments are raised at once. Errors of a
        data file are raised when that file is read.

        Args:
            snapshot_id: as for `to_arrow`.
            columns: as for `to_arrow`.
            partition: as for `to_arrow`.
            tag: as for `to_arrow`.
            timestamp: as for `to_arrow`.
            filter: as for `to_arrow`.
            options: as for `to_arrow`.
            batch_rows: the most rows of a batch.

        Raises:
            PaimonStreamError: the errors of `to_arrow`.
        """
        batch_rows = self._arguments.whole("batch_rows", batch_rows, least=1)
        at = PointInTime.of(self.location, snapshot_id, tag, timestamp)
        scan = self._scan(at, columns, partition, filter, options)
        return read_batches(scan, batch_rows)

    def _scan(
        self,
        at: PointInTime,
        columns: Sequence[str] | None,
        partition: Mapping[str, Any] | str | None,
        filter: Any,
        options: Mapping[str, str] | None = None,
    ) -> Scan:
        """The plan of a read. All arguments but the first, and the errors, are those of
        `to_arrow`.
        """
        asked = self._of_call(options, CHANGE_OPTIONS)
        with naming(self.location):
            table = self._newest_with(asked)
            shows_kinds = bool(asked) and table.options.value(READ_CHANGELOG)
            if shows_kinds and isinstance(columns, list | tuple) and ROW_KIND not in columns:
                columns = [ROW_KIND, *columns]
            return plan_read(
                table,
                at=at,
                asked=asked,
                columns=columns,
                partition=partition,
                filter=filter,
            )
