"""Writes Parquet files to the storage (format.md §7.4).

A file is what Java Paimon writes: decimals are integers where they fit, timestamps are milliseconds or microseconds by
their precision, TIME is adjusted to UTC (if Arrow is new enough; readers accept both), NOT NULL columns are required,
and the schema has field ids. Dictionary encoding is switched on for the columns where it pays, as shown by the first
rows of this file or of one written shortly before.
"""

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from paimon_stream.format.arrow_types import TWELVE_BYTES
from paimon_stream.format.file_format import FileFormat, compression
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.stats import ColumnStats
from paimon_stream.format.types import DataType
from paimon_stream.options import ZSTD_LEVEL, Options
from paimon_stream.options.option import boolean, positive, size
from paimon_stream.storage.base import Storage
from paimon_stream.write.dictionary import Dictionaries
from paimon_stream.write.file_schema import file_schema, leaf_types, with_leaves
from paimon_stream.write.int96 import as_int96, stored_type, with_int96
from paimon_stream.write.output import CountingStream, FileSettings, FileWriter, file_suffix, format_option
from paimon_stream.write.parquet_stats import ParquetStats

_LEVEL: Final = "parquet.compression.codec.zstd.level"
_KNOWN_TO_ARROW: Final = frozenset(inspect.signature(pq.write_table).parameters)
_UTC_TIME: Final = "write_time_adjusted_to_utc"
_PAGE_VERSIONS: Final = {"parquet_1_0": "1.0", "v1": "1.0", "parquet_2_0": "2.0", "v2": "2.0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSettings(FileSettings):
    """How the Parquet files of a table are written.

    `dictionary` is None if the rows decide. `more` are further arguments of Arrow's writer. `stored` is the
    schema that Arrow is given. `leaves` are the positions, in the file, of the leaves that are twelve bytes
    in `stored` and INT96 in the file.
    """

    most_open = 64  # they hold little memory: written row groups have been passed on to the storage

    arrow: pa.Schema
    stored: pa.Schema
    leaves: frozenset[int]
    types: tuple[DataType, ...]
    level: int | None
    dictionary: bool | None
    more: tuple[tuple[str, Any], ...]
    choices: Dictionaries = field(default_factory=Dictionaries, compare=False)

    @classmethod
    def of(cls, schema: TableSchema, options: Options) -> "ParquetSettings":
        """The settings that follow from the options. Raises `InvalidOption` and `UnsupportedFeature`."""
        codec = compression(options, FileFormat.PARQUET)
        arrow = file_schema(schema)
        stored = pa.schema([with_leaves(one, stored_type) for one in arrow])
        level = options.value(ZSTD_LEVEL)
        if not options.is_set(ZSTD_LEVEL):
            level = format_option(options, _LEVEL, int, "parquet-hadoop", level)
        return cls(
            arrow=arrow,
            stored=stored,
            leaves=frozenset(i for i, (_, one) in enumerate(_leaves(stored)) if one.equals(TWELVE_BYTES)),
            types=tuple(one.type for one in schema.fields),
            codec="none" if codec == "uncompressed" else codec,
            level=level if codec == "zstd" else None,
            suffix=file_suffix(options, FileFormat.PARQUET, codec),
            dictionary=format_option(options, "parquet.enable.dictionary", boolean, "parquet-hadoop"),
            more=tuple(_more(options)),
        )

    @property
    def bounded(self) -> bool | list[str]:
        """The leaves of which Arrow keeps bounds. The order of twelve bytes is not the order in time."""
        if not self.leaves:
            return True
        return [path for i, (path, _) in enumerate(_leaves(self.stored)) if i not in self.leaves]

    def open(self, storage: Storage, path: str, first: pa.Table, row_bytes: float | None) -> "ParquetFile":
        """Opens a file; see `FileSettings`."""
        return ParquetFile(self, storage, path, first)


def _leaves(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [leaf for one in schema for leaf in leaf_types(one)]


def _more(options: Options) -> Iterator[tuple[str, Any]]:
    """The arguments of Arrow's writer for those `parquet.*` options that this version of it supports."""
    if _UTC_TIME in _KNOWN_TO_ARROW:
        yield _UTC_TIME, True
    for key, argument, parse in (
        ("parquet.page.size", "data_page_size", size),
        ("parquet.dictionary.page.size", "dictionary_pagesize_limit", size),
        ("parquet.page.row.count.limit", "max_rows_per_page", positive),
        ("parquet.writer.version", "data_page_version", lambda text: _PAGE_VERSIONS[text.strip().lower()]),
    ):
        found = format_option(options, key, parse, "parquet-hadoop")
        if found is not None and argument in _KNOWN_TO_ARROW:
            yield argument, found


class ParquetFile(FileWriter):
    """A Parquet file that is open for writing; see `FileWriter`. Each `write` makes a row group."""

    def __init__(self, settings: "ParquetSettings", storage: Storage, path: str, first: pa.Table) -> None:
        """Opens the file. `first` are rows to choose encodings by. They are not written."""
        self._stored = settings.stored
        self._leaves = settings.leaves
        self._footers: list[pq.FileMetaData] = []
        self._stats = ParquetStats(settings.types, settings.arrow)
        dictionary: Any = settings.dictionary
        if dictionary is None:
            dictionary = settings.choices.choose(first)
        super().__init__(storage, path)

        def start(stream: CountingStream) -> pq.ParquetWriter:
            return pq.ParquetWriter(
                stream,
                settings.stored,
                compression=settings.codec,
                compression_level=settings.level,
                use_dictionary=dictionary,
                store_decimal_as_integer=True,
                store_schema=False,
                write_statistics=settings.bounded,
                metadata_collector=self._footers,
                **dict(settings.more),
            )

        self._writer = self.started_by(start)

    def write(self, rows: pa.Table) -> None:
        """Adds the rows as one row group."""
        with self.checked():
            self._writer.write_table(self._as_stored(rows), row_group_size=max(1, rows.num_rows))
        self._stats.add(rows)
        self.rows += rows.num_rows

    def _as_stored(self, rows: pa.Table) -> pa.Table:
        if not self._leaves:
            return rows
        columns = [
            pa.chunked_array([as_int96(chunk, one.type) for chunk in column.chunks], one.type)
            for one, column in zip(self._stored, rows.columns, strict=True)
        ]
        return pa.table(columns, schema=self._stored)

    def end(self) -> None:
        """Writes the footer."""
        if not self._leaves:
            self._writer.close()
            return
        with self.stream.held() as end:
            self._writer.close()
        self.stream.write(with_int96(bytes(end), self._leaves))

    def columns(self) -> Sequence[ColumnStats]:
        """The statistics that the footer and the rows give."""
        return self._stats.columns(self._footers[0])

    def forget(self) -> None:
        """Keeps Arrow's writer from writing the rest."""
        self._writer.is_open = False
