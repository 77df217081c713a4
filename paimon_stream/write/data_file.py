"""Writes the data files of one (partition, bucket). It writes row groups, and begins a new file
when a file is full.

Rows wait until there are enough of them for a row group. That is 256k rows. It is fewer if the rows
are wide, or if the open file reaches `target-file-size` earlier. The number of rows is computed
from the size of the row groups already written. So files with a small target size also end near it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import pyarrow as pa

from paimon_stream.format.entries import DataFileMeta
from paimon_stream.format.file_format import FileFormat, check_columns, file_format
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.stats import ColumnStats
from paimon_stream.options import (
    COMPACTION_SMALL_RATIO,
    DATA_FILE_PREFIX,
    FILE_BLOCK_SIZE,
    TARGET_FILE_SIZE,
    Options,
)
from paimon_stream.runtime import Runtime
from paimon_stream.storage.base import Storage
from paimon_stream.storage.external import external_path
from paimon_stream.table.layout import ExternalPaths
from paimon_stream.write.file_stats import StatsPlan, file_schema
from paimon_stream.write.output import FileSettings, FileWriter
from paimon_stream.write.parquet_file import ParquetSettings

_ROW_GROUP_ROWS: Final = 256 * 1024
_ROW_GROUP_BYTES: Final = 128 * 2**20
_APPEND_TARGET_BYTES: Final = 256 * 2**20
_KEYED_TARGET_BYTES: Final = 128 * 2**20
_FULL_SHARE: Final = 0.92
"""A file is full when it has reached this share of its target size."""

_PROBE_SHARE: Final = 0.5
"""The most bytes in memory of a bucket's first row group, as a share of the target size."""

_TELLING_ROWS: Final = 1000
"""The fewest rows whose mean size says something about other rows."""

_LEAST_ROW_BYTES: Final = 1 / 1024
"""The least mean size of a row that is noted, so that it is never 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFileSettings:
    """What all data files of a table have in common.

    Attributes:
        format: how files of the table's format are written.
        arrow: the schema of the rows.
        stats: which statistics the manifest entry of a file carries.
        schema_id: the id of the table's schema.
        prefix: the beginning of the names of files.
        target_bytes: the size in bytes at which a file is closed.
        row_group_bytes: the size in memory, in bytes, at which waiting rows are written.
        external: the paths outside of the table that files may be written to.
    """

    format: FileSettings
    arrow: pa.Schema
    stats: StatsPlan
    schema_id: int
    prefix: str
    target_bytes: int
    row_group_bytes: int
    external: ExternalPaths

    @classmethod
    def of(cls, schema: TableSchema, options: Options, table: str = "") -> "DataFileSettings":
        """The settings of a table (format.md §7.1, §9.2); `table` is for messages. Raises
        `ConfigError`s.
        """
        row_group_bytes = _ROW_GROUP_BYTES
        if options.is_set(FILE_BLOCK_SIZE):
            row_group_bytes = options.value(FILE_BLOCK_SIZE)
        stats = StatsPlan.of(schema, options)
        return cls(
            format=file_settings(schema, options, stats.wanted, table),
            arrow=file_schema(schema),
            stats=stats,
            schema_id=schema.id,
            prefix=options.value(DATA_FILE_PREFIX),
            target_bytes=max(1, target_bytes(options, keyed=bool(schema.primary_keys))),
            row_group_bytes=max(1, row_group_bytes),
            external=ExternalPaths.of(options) or ExternalPaths(),
        )


def target_bytes(options: Options, *, keyed: bool) -> int:
    """The size in bytes at which a data file is closed. `keyed` says whether the table has a
    primary key.
    """
    if options.is_set(TARGET_FILE_SIZE):
        target: int = options.value(TARGET_FILE_SIZE)
        return target
    return _KEYED_TARGET_BYTES if keyed else _APPEND_TARGET_BYTES


def small_below(target: int, options: Options) -> int:
    """The size in bytes below which compactions treat a file as small (compaction.md). `target` is
    the size in bytes at which such files are closed.
    """
    if options.is_set(COMPACTION_SMALL_RATIO):
        return int(target * options.value(COMPACTION_SMALL_RATIO))
    return target // 10 * 7  # as Java computes it


def file_settings(
    schema: TableSchema, options: Options, wanted: tuple[bool, ...], table: str = ""
) -> FileSettings:
    """How the data files of a table are written.

    Args:
        schema: the columns of the files.
        options: the options of the table.
        wanted: for each column, whether it gets statistics.
        table: the table, for messages.

    Raises:
        InvalidOption: for option values that the format does not have.
        UnsupportedFeature: if the format cannot do what the options or columns require.
    """
    format_ = file_format(options)
    check_columns(format_, schema.fields, options, table)
    match format_:
        case FileFormat.PARQUET:
            return ParquetSettings.of(schema, options)
        case FileFormat.ORC:
            from paimon_stream.write.orc_file import OrcSettings

            return OrcSettings.of(schema, options, wanted)
        case FileFormat.AVRO:
            from paimon_stream.write.avro_data import AvroSettings

            return AvroSettings.of(schema, options, wanted)


class _WaitingRows:
    """The rows of a bucket that wait in memory for a row group.

    Attributes:
        rows: the number of these rows.
        bytes: the size of these rows in memory.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = 0
        self.bytes = 0
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds rows without a copy."""
        self._batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes

    def take(self, rows: int) -> pa.Table:
        """Removes and returns this number of rows, the oldest first."""
        table = pa.Table.from_batches(self._batches, self._schema)
        rest = table.slice(rows)
        self._batches = rest.to_batches()
        self.rows = rest.num_rows
        self.bytes = sum(batch.nbytes for batch in self._batches)
        return table.slice(0, rows)

    def clear(self) -> None:
        """Drops all rows."""
        self._batches.clear()
        self.rows = 0
        self.bytes = 0


class _RowSizes:
    """How many bytes a row takes in a bucket's files.

    Attributes:
        row_bytes: the mean size of a row in the row group or file written last; None before the
            first one.
        of_files: the mean size of a row in the file closed last; None before the first one.
    """

    def __init__(self) -> None:
        self.row_bytes: float | None = None
        self.of_files: float | None = None

    def note_row_group(self, size: int, rows: int) -> None:
        """Notes the size of a row group in bytes. The size of a few rows counts only if nothing
        better is known.
        """
        if self.row_bytes is None or rows >= _TELLING_ROWS:
            self.row_bytes = max(size / rows, _LEAST_ROW_BYTES)

    def note_file(self, size: int, rows: int) -> None:
        """Notes the size of a closed file in bytes."""
        if rows >= _TELLING_ROWS:
            self.row_bytes = size / rows
            self.of_files = self.row_bytes


class BucketWriter:
    """Writes the rows of one (partition, bucket) to files in `folder`. The rows keep their order.
    `add` writes only when enough rows wait for a row group; `write_all` writes all waiting rows.
    Sequence numbers begin with 0. The last call is `close` or `abort`.

    Attributes:
        paths: the complete files.
        storage: where the next file is written.
    """

    def __init__(
        self, settings: "DataFileSettings", storage: Storage, runtime: Runtime, folder: str
    ) -> None:
        self.paths: list[str] = []
        self._settings = settings
        self.storage = storage
        self._runtime = runtime
        self._folder = folder
        self._uuid = runtime.ids.uuid()
        self._waiting = _WaitingRows(settings.arrow)
        self._file: FileWriter | None = None
        """The open file. The first row group opens it."""
        self._sizes = _RowSizes()
        self._named_files = 0
        """How many files were named so far. This number is part of the next name."""
        self._next_sequence = 0
        """The sequence number of the first row of the file that ends next."""
        self._done: list[DataFileMeta] = []
        """The complete files, oldest first."""

    @property
    def waiting_bytes(self) -> int:
        """The size of the rows in memory."""
        return self._waiting.bytes

    @property
    def is_open(self) -> bool:
        """Whether a file is open."""
        return self._file is not None

    def add(self, batch: pa.RecordBatch) -> None:
        """Keeps the rows without a copy. As long as enough rows wait for a row group, writes row
        groups.
        """
        self._waiting.add(batch)
        while self._waiting.rows and self._is_due():
            self._write_row_group()

    def write_all(self) -> None:
        """Writes all waiting rows."""
        while self._waiting.rows:
            self._write_row_group()

    def end_file(self) -> None:
        """Closes the open file, if there is one, and adds it to the result."""
        if self._file is None:
            return
        file = self._file
        self._file = None
        columns = file.close()
        self._sizes.note_file(file.size, file.rows)
        self._done.append(self._describe(file, columns))
        self.paths.append(file.path)

    def close(self) -> tuple[DataFileMeta, ...]:
        """Writes all waiting rows and closes the last file. Returns all files, oldest first."""
        self.write_all()
        self.end_file()
        return tuple(self._done)

    def abort(self, error: BaseException) -> tuple[str, ...]:
        """Drops the waiting rows and removes the open file. Returns the paths of the complete
        files, which the caller deletes.
        """
        self._waiting.clear()
        if self._file is not None:
            file = self._file
            self._file = None
            file.abort(error)
        return tuple(self.paths)

    def _is_due(self) -> bool:
        """Whether enough rows wait for a row group."""
        waiting = self._waiting
        if waiting.rows >= _ROW_GROUP_ROWS or waiting.bytes >= self._settings.row_group_bytes:
            return True
        rows_to_target = self._rows_to_target()
        if rows_to_target is None:
            return waiting.bytes >= self._settings.target_bytes
        return waiting.rows >= rows_to_target

    def _rows_to_target(self) -> int | None:
        """About how many more rows fit into the open file, or into a new file if no file is open.
        None if nothing has been written yet.
        """
        row_bytes = self._sizes.row_bytes
        if row_bytes is None:
            return None
        written = 0 if self._file is None else self._file.size
        return max(1, math.ceil((self._settings.target_bytes - written) / row_bytes))

    def _row_group_rows(self) -> int:
        """How many of the waiting rows go into the next row group."""
        settings = self._settings
        rows = self._waiting.rows
        waiting_bytes = max(1, self._waiting.bytes)
        if waiting_bytes > settings.row_group_bytes:
            rows = rows * settings.row_group_bytes // waiting_bytes
        rows_to_target = self._rows_to_target()
        if rows_to_target is None:
            # The first row group shows how small rows become in a file. If the target size is
            # small, this row group must not make the file much larger than the target.
            probed_rows = self._waiting.rows * _PROBE_SHARE
            rows_to_target = int(probed_rows * settings.target_bytes / waiting_bytes)
        return max(1, min(rows, rows_to_target))

    def _write_row_group(self) -> None:
        rows = self._waiting.take(self._row_group_rows())
        if self._file is None:
            self._file = self._settings.format.open(
                self.storage, self._choose_path(), rows, self._sizes.of_files
            )
        size_before = self._file.size
        self._file.write(rows)
        self._note(rows)
        self._sizes.note_row_group(self._file.size - size_before, rows.num_rows)
        if self._file.size >= _FULL_SHARE * self._settings.target_bytes:
            self.end_file()

    def _choose_path(self) -> str:
        """Chooses where the next file is written. Each call returns another path."""
        settings = self._settings
        name = f"{settings.prefix}{self._uuid}-{self._named_files}.{settings.format.suffix}"
        # External paths are used in turn. Different writers begin with different paths.
        turn = crc32(self._uuid.encode()) + self._named_files
        self._named_files += 1
        return settings.external.place(self._folder, name, turn)

    def _note(self, rows: pa.Table) -> None:
        """Is called with the rows that were written to the open file. Subclasses may override this
        method.
        """

    def _describe(self, file: FileWriter, columns: Sequence[ColumnStats]) -> DataFileMeta:
        """Describes a complete file for its manifest entry. `columns` are the statistics of the
        file. The rows of the file get the next sequence numbers.
        """
        first_sequence = self._next_sequence
        self._next_sequence += file.rows
        stats, stats_columns = self._settings.stats.describe(columns)
        return DataFileMeta(
            file_name=file.path.rpartition("/")[2],
            file_size=file.size,
            row_count=file.rows,
            value_stats=stats,
            value_stats_cols=stats_columns,
            min_sequence_number=first_sequence,
            max_sequence_number=self._next_sequence - 1,
            schema_id=self._settings.schema_id,
            external_path=external_path(file.path),
            creation_time=self._runtime.clock.local_millis(),
        )
