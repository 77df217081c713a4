"""Parquet files on their way to the storage (format.md §7.4).

A file is what Java Paimon writes: decimals as integers where they fit, timestamps in milliseconds or
microseconds by their precision, TIME adjusted to UTC (where Arrow is new enough; readers do not mind), NOT
NULL columns required, field ids in the schema.
Dictionary encoding is switched on for the columns where the first rows show that it pays.
"""

from __future__ import annotations

import inspect
import io
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from paimon_stream.format.file_format import FileFormat, compression
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.stats import ColumnStats
from paimon_stream.format.types import DataType
from paimon_stream.options import FILE_SUFFIX_COMPRESSION, ZSTD_LEVEL, Options, boolean, positive, size
from paimon_stream.storage.base import Storage
from paimon_stream.write.dictionary import worth_a_dictionary
from paimon_stream.write.file_schema import file_schema
from paimon_stream.write.old_times import check_old_times, holds_timestamps
from paimon_stream.write.output import CountingStream, Output, format_option
from paimon_stream.write.parquet_stats import MICRO_DIGITS, ParquetStats

__all__ = ["ParquetFile", "ParquetSettings"]

_MOST_OPEN_FILES: Final = 64
_LEVEL: Final = "parquet.compression.codec.zstd.level"
_KNOWN_TO_ARROW: Final = frozenset(inspect.signature(pq.write_table).parameters)
_LAST_OF_1969: Final = struct.pack("<qi", 86_399_999_999_000, 2_440_587)
_DAY_SECONDS: Final = 86_400
_OLD: Final = (
    "with a time of the day, which this version of pyarrow spoils in tables with timestamps of more than 6 "
    "digits. Install a newer pyarrow"
)
_UTC_TIME: Final = "write_time_adjusted_to_utc"
_PAGE_VERSIONS: Final = {"parquet_1_0": "1.0", "v1": "1.0", "parquet_2_0": "2.0", "v2": "2.0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSettings:
    """How the Parquet files of a table are written. `dictionary` is None where the rows decide; `more` are
    further arguments of Arrow's writer; `spoiled` are columns with times before 1970 that it gets wrong."""

    arrow: pa.Schema
    types: tuple[DataType, ...]
    codec: str
    level: int | None
    suffix: str
    int96: bool
    spoiled: tuple[int, ...]
    dictionary: bool | None
    more: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, schema: TableSchema, options: Options) -> ParquetSettings:
        """The settings that the options ask for. Raises `InvalidOption`, `UnsupportedFeature`."""
        codec = compression(options, FileFormat.PARQUET)
        int96 = any(_needs_int96(one.type) for one in schema.fields)
        spoiled = [i for i, one in enumerate(schema.fields) if int96 and holds_timestamps(one.type)]
        level = options.value(ZSTD_LEVEL)
        if not options.is_set(ZSTD_LEVEL):
            level = format_option(options, _LEVEL, int, "parquet-hadoop", level)
        return cls(
            arrow=file_schema(schema),
            types=tuple(one.type for one in schema.fields),
            codec="none" if codec == "uncompressed" else codec,
            level=level if codec == "zstd" else None,
            suffix=f"{codec}.parquet" if options.value(FILE_SUFFIX_COMPRESSION) else "parquet",
            int96=int96,
            spoiled=() if _int96_is_right() else tuple(spoiled),
            dictionary=format_option(options, "parquet.enable.dictionary", boolean, "parquet-hadoop"),
            more=tuple(_more(options)),
        )

    @property
    def most_open(self) -> int:
        """How many files a task keeps open: a row group is in the storage once it is written."""
        return _MOST_OPEN_FILES

    def open(self, storage: Storage, path: str, first: pa.Table, row_bytes: float | None) -> ParquetFile:
        """Opens a file; see `FileSettings`."""
        return ParquetFile(self, storage, path, first)


def _more(options: Options) -> Iterator[tuple[str, Any]]:
    """What `parquet.*` options say that Arrow's writer can do, in this version of it."""
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


def _needs_int96(type_: DataType) -> bool:
    """Whether there is a timestamp of more than 6 digits anywhere in the type: Java reads them as INT96
    only, and takes any other number for something else without notice."""
    if type_.is_timestamp:
        return type_.precision > MICRO_DIGITS
    inner = [one for one in (type_.key, type_.element) if one is not None]
    return any(map(_needs_int96, inner)) or any(_needs_int96(one.type) for one in type_.fields)


@cache
def _int96_is_right() -> bool:
    """Whether this Arrow writes INT96 timestamps before 1970 as the day and the time of the day: the older
    ones leave a negative time."""
    made = io.BytesIO()
    column = pa.array([-1], pa.timestamp("us"))
    plain = {"use_dictionary": False, "compression": "none", "write_statistics": False}
    pq.write_table(pa.table({"t": column}), made, use_deprecated_int96_timestamps=True, **plain)
    return _LAST_OF_1969 in made.getvalue()


class ParquetFile:
    """A Parquet file that is open for writing; see `FileWriter`. Each `write` makes a row group."""

    def __init__(self, settings: ParquetSettings, storage: Storage, path: str, first: pa.Table) -> None:
        """Opens the file. `first` are rows to choose encodings by; they are not written."""
        self.path = path
        self.rows = 0
        self._spoiled = settings.spoiled
        self._footers: list[pq.FileMetaData] = []
        self._stats = ParquetStats(settings.types, settings.arrow, int96=settings.int96)
        dictionary: Any = settings.dictionary
        if dictionary is None:
            dictionary = worth_a_dictionary(first)
        self._output = Output(storage, path)

        def start(stream: CountingStream) -> pq.ParquetWriter:
            return pq.ParquetWriter(
                stream,
                settings.arrow,
                compression=settings.codec,
                compression_level=settings.level,
                use_dictionary=dictionary,
                store_decimal_as_integer=True,
                use_deprecated_int96_timestamps=settings.int96,
                store_schema=False,
                metadata_collector=self._footers,
                **dict(settings.more),
            )

        self._writer = self._output.started_by(start)

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._output.stream.size

    def write(self, rows: pa.Table) -> None:
        """Adds the rows as one row group."""
        for i in self._spoiled:
            for chunk in rows.column(i).chunks:
                check_old_times(rows.column_names[i], chunk, _DAY_SECONDS, _OLD)
        with self._output.checked():
            self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        self._stats.add(rows)
        self.rows += rows.num_rows

    def close(self) -> Sequence[ColumnStats]:
        """Ends the file; see `FileWriter`."""
        self._output.finish(self._writer.close, self._forget)
        return self._stats.columns(self._footers[0])

    def abort(self, why: BaseException) -> None:
        """Gives the file up; see `FileWriter`."""
        self._output.abort(why, self._forget)

    def _forget(self) -> None:
        self._writer.is_open = False
