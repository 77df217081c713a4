"""Writes Parquet files to the storage (format.md §7.4).

A file is like the files that Java Paimon writes. Decimals are integers if they fit. Timestamps are
milliseconds or microseconds, depending on their precision. TIME is adjusted to UTC (if Arrow is new
enough; readers accept both forms). NOT NULL columns are required. The schema has field ids. Columns
get dictionaries if that makes the file smaller. The first rows of this file, or of a file that was
written shortly before, show that.

Timestamps of more than 6 digits are INT96, the only form in which Java reads them. Timestamps of 6
digits or fewer must stay numbers, because Java can filter by numbers. Arrow writes either all
timestamps of a file as INT96 or none. So Arrow gets the longer timestamps as columns of twelve
bytes: eight for the nanoseconds and four for the Julian day. Afterwards, this module corrects the
footer that Arrow has written.

Statistics have the bounds that Java Paimon keeps for a file that it writes (format.md §4.5). A
bound that could be wrong is left out, because readers skip files by their bounds.
"""

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from functools import partial
from itertools import accumulate
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paimon_stream.format.arrow_types import (
    INT96_LAYOUT,
    JULIAN_EPOCH,
    TWELVE_BYTES,
    with_elements,
    with_entries,
)
from paimon_stream.format.file_format import FileFormat, compression
from paimon_stream.format.parquet_footer import TAIL, declare_int96, footer_start
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.stats import NO_STATS, ColumnStats
from paimon_stream.format.types import DataType, TypeRoot
from paimon_stream.options import ZSTD_LEVEL, Options
from paimon_stream.options.option import boolean, positive, size
from paimon_stream.storage.base import Storage
from paimon_stream.write.file_stats import (
    Bounds,
    RowStats,
    file_schema,
    leaf_types,
    merged,
    with_leaves,
)
from paimon_stream.write.output import (
    Dictionaries,
    FileSettings,
    FileWriter,
    file_suffix,
    format_option,
)

_LEVEL: Final = "parquet.compression.codec.zstd.level"
_KNOWN_TO_ARROW: Final = frozenset(inspect.signature(pq.write_table).parameters)
_UTC_TIME: Final = "write_time_adjusted_to_utc"
_PAGE_VERSIONS: Final = {"parquet_1_0": "1.0", "v1": "1.0", "parquet_2_0": "2.0", "v2": "2.0"}
_DAY_NANOS: Final = 86_400_000_000_000
_MICRO_DIGITS: Final = 6
"""Timestamps of more digits are INT96 in Parquet files. INT96 columns have no bounds."""

_MOST_FOOTER_BYTES: Final = 4096
_WIDE: Final = Context(prec=100)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSettings(FileSettings):
    """How the Parquet files of a table are written.

    Attributes:
        arrow: the schema of the rows.
        stored: the schema that Arrow's writer gets.
        int96_leaves: the positions of the leaves of twelve bytes, which are INT96 in the file.
        bounded: the leaves that get bounds in the footer; True for all.
        first_leaves: for each column, the position of its first leaf.
        types: the types of the columns.
        level: the level of compression, if the codec is zstd.
        dictionary: whether columns get dictionaries; None if the rows decide.
        arguments: the other arguments of Arrow's writer, by the names of its parameters.
        choices: the choices of dictionaries, which earlier files may have made.
    """

    most_open = 64  # they hold little memory: written row groups have been passed on to the storage

    arrow: pa.Schema
    stored: pa.Schema
    int96_leaves: frozenset[int]
    bounded: bool | tuple[str, ...]
    first_leaves: tuple[int, ...]
    types: tuple[DataType, ...]
    level: int | None
    dictionary: bool | None
    arguments: tuple[tuple[str, Any], ...]
    choices: Dictionaries = field(default_factory=Dictionaries, compare=False)

    @classmethod
    def of(cls, schema: TableSchema, options: Options) -> "ParquetSettings":
        """The settings that the options ask for. Raises `InvalidOption` and
        `UnsupportedFeature`.
        """
        codec = compression(options, FileFormat.PARQUET)
        arrow_codec = "none" if codec == "uncompressed" else codec
        arrow = file_schema(schema)
        stored = pa.schema([with_leaves(field, _stored_type) for field in arrow])
        # The table's own option comes first, then the option of Parquet's writer, and then the
        # default.
        level: int | None = options.value(ZSTD_LEVEL)
        if not options.is_set(ZSTD_LEVEL):
            level = format_option(options, _LEVEL, int, "parquet-hadoop", level)
        if codec != "zstd":
            level = None  # only this codec has levels
        leaves = _leaves(stored)
        leaf_counts = [len(leaf_types(field)) for field in arrow]
        return cls(
            arrow=arrow,
            stored=stored,
            int96_leaves=frozenset(
                position for position, (_, type_) in enumerate(leaves) if type_.equals(TWELVE_BYTES)
            ),
            bounded=_bounded(leaves),
            first_leaves=(0, *accumulate(leaf_counts[:-1])),
            types=tuple(field.type for field in schema.fields),
            codec=arrow_codec,
            level=level,
            suffix=file_suffix(options, FileFormat.PARQUET, codec),
            dictionary=format_option(
                options, "parquet.enable.dictionary", boolean, "parquet-hadoop"
            ),
            arguments=tuple(_arguments(options)),
        )

    def open(
        self, storage: Storage, path: str, first: pa.Table, row_bytes: float | None
    ) -> "ParquetFile":
        """Opens a file; see `FileSettings`."""
        return ParquetFile(self, storage, path, first)


def _leaves(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """All leaves with their paths, in the order of the file."""
    return [leaf for field in schema for leaf in leaf_types(field)]


def _bounded(leaves: Sequence[tuple[str, pa.DataType]]) -> bool | tuple[str, ...]:
    """The leaves that get bounds in the footer; True for all. Values of twelve bytes get none,
    because their order is not the order in time. Floating-point numbers get none, because their
    bounds would leave NaN out.
    """
    bounded = [
        leaf
        for leaf, type_ in leaves
        if not (type_.equals(TWELVE_BYTES) or pa.types.is_floating(type_))
    ]
    return len(bounded) == len(leaves) or tuple(bounded)


def _page_version(value: str) -> str:
    return _PAGE_VERSIONS[value.strip().lower()]


def _arguments(options: Options) -> Iterator[tuple[str, Any]]:
    """Yields arguments for Arrow's writer: `_UTC_TIME`, and the arguments that the set `parquet.*`
    options ask for. Arguments that the installed Arrow does not know are left out.
    """
    if _UTC_TIME in _KNOWN_TO_ARROW:
        yield _UTC_TIME, True
    for key, argument, parse in (
        ("parquet.page.size", "data_page_size", size),
        ("parquet.dictionary.page.size", "dictionary_pagesize_limit", size),
        ("parquet.page.row.count.limit", "max_rows_per_page", positive),
        ("parquet.writer.version", "data_page_version", _page_version),
    ):
        value = format_option(options, key, parse, "parquet-hadoop")
        if value is not None and argument in _KNOWN_TO_ARROW:
            yield argument, value


class _ParquetStats:
    """The statistics of one file. They come from the file's footer. If Java would write other
    statistics than the footer has, they come from the rows:

    - FLOAT and DOUBLE: the footer has no bounds. Arrow's bounds leave NaN out. For Spark, NaN is
      the greatest number, so Spark would skip rows with NaN.
    - Text: Arrow writes no bounds for a row group if a bound is larger than 4 KiB.
    - Timestamps of more than 6 digits have no bounds.
    """

    def __init__(self, settings: ParquetSettings, footers: Sequence[pq.FileMetaData]) -> None:
        """Begins with the statistics of no rows.

        Args:
            settings: how the file is written.
            footers: a list to which the footer is added when the file is complete.
        """
        self._footers = footers
        self._types = types = settings.types
        self._first_leaf = settings.first_leaves
        self._is_int96 = [type_.is_timestamp and type_.precision > _MICRO_DIGITS for type_ in types]
        is_collected = [
            type_.is_float or is_int96
            for type_, is_int96 in zip(types, self._is_int96, strict=True)
        ]
        self._rows = RowStats(types, is_collected)
        self._texts = [position for position, type_ in enumerate(types) if type_.is_string]

    def add(self, rows: pa.Table) -> None:
        self._rows.add(rows)
        for position in self._texts:
            column = rows.column(position)
            longest = pc.max(pc.binary_length(column)).as_py()
            if longest is not None and longest > _MOST_FOOTER_BYTES:
                self._rows.bound(position, column)

    def columns(self) -> list[ColumnStats]:
        """The statistics of the complete file; `NO_STATS` for nested columns."""
        of_rows = self._rows.columns()
        footer = self._footers[0]
        groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
        columns = []
        for position, type_ in enumerate(self._types):
            if type_.is_nested:
                columns.append(NO_STATS)
            elif self._is_int96[position]:
                columns.append(of_rows[position]._replace(min=None, max=None))
            elif type_.is_float:
                columns.append(of_rows[position])
            else:
                leaf = self._first_leaf[position]
                chunks = [group.column(leaf) for group in groups]
                columns.append(_column_stats(chunks, type_, self._rows.bounds[position]))
        return columns


def _column_stats(
    chunks: Sequence[pq.ColumnChunkMetaData], type_: DataType, row_bounds: list[Bounds]
) -> ColumnStats:
    """The statistics of a column over all row groups. The column has bounds only if every row group
    with a value has bounds. `row_bounds` are the bounds of those row groups for which the footer
    has none.
    """
    statistics = [chunk.statistics for chunk in chunks]
    if any(stats is None or not stats.has_null_count for stats in statistics):
        return NO_STATS
    nulls = sum(stats.null_count for stats in statistics)
    with_values = [stats for stats in statistics if stats.num_values]
    bounds = [
        (_footer_value(stats.min_raw, type_), _footer_value(stats.max_raw, type_))
        for stats in with_values
        if stats.has_min_max
    ]
    low = None
    high = None
    all_have_bounds = len(bounds) + len(row_bounds) == len(with_values)
    if all_have_bounds and not type_.is_binary:
        low, high = merged(bounds + row_bounds, type_)
    return ColumnStats(min=low, max=high, null_count=nulls)


def _footer_value(raw: Any, type_: DataType) -> Any:
    """A bound from the footer in the internal form, with text as bytes."""
    if type_.root is TypeRoot.DECIMAL:
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
        return Decimal(unscaled).scaleb(-type_.scale, _WIDE)
    if type_.is_timestamp:
        nanos_per_unit = 1_000_000 if type_.precision <= 3 else 1_000
        return raw * nanos_per_unit
    return raw


class ParquetFile(FileWriter):
    """A Parquet file that is open for writing; see `FileWriter`. Each `write` makes a row group."""

    def __init__(
        self, settings: "ParquetSettings", storage: Storage, path: str, first: pa.Table
    ) -> None:
        self._stored = settings.stored
        self._int96_leaves = settings.int96_leaves
        footers: list[pq.FileMetaData] = []
        self.stats = _ParquetStats(settings, footers)
        dictionary: bool | list[str] | None = settings.dictionary
        if dictionary is None:
            dictionary = settings.choices.choose(first)
        super().__init__(storage, path)
        write_statistics: bool | list[str] = True
        if not isinstance(settings.bounded, bool):
            write_statistics = list(settings.bounded)
        start = partial(
            pq.ParquetWriter,
            schema=settings.stored,
            compression=settings.codec,
            compression_level=settings.level,
            use_dictionary=dictionary,
            store_decimal_as_integer=True,
            store_schema=False,
            write_statistics=write_statistics,
            metadata_collector=footers,
            **dict(settings.arguments),
        )
        self.writer = self.started_by(start)

    def put(self, rows: pa.Table) -> None:
        """Writes the rows as one row group."""
        if self._int96_leaves:
            columns = [
                pa.chunked_array(
                    [_as_stored(chunk, field.type) for chunk in column.chunks], field.type
                )
                for field, column in zip(self._stored, rows.columns, strict=True)
            ]
            rows = pa.table(columns, schema=self._stored)
        self.writer.write_table(rows, row_group_size=max(1, rows.num_rows))

    def end(self) -> None:
        """Writes the footer."""
        if not self._int96_leaves:
            self.writer.close()
            return
        with self.stream.held() as held:
            self.writer.close()
        end = bytes(held)
        footer = footer_start(len(end), end[-TAIL:])
        self.stream.write(end[:footer] + declare_int96(end[footer:-TAIL], self._int96_leaves))


def _stored_type(type_: pa.DataType) -> pa.DataType:
    """The type in which a leaf is given to Arrow. It is twelve bytes for timestamps in nanoseconds,
    and the same type for all others.
    """
    if pa.types.is_timestamp(type_) and type_.unit == "ns":
        return TWELVE_BYTES
    return type_


def _as_stored(array: pa.Array, stored: pa.DataType) -> pa.Array:
    """The array in its stored type. An array that already has this type is returned unchanged."""
    if array.type.equals(stored):
        return array
    if pa.types.is_map(stored):
        keys = _as_stored(array.keys, stored.key_type)
        items = _as_stored(array.items, stored.item_type)
        return with_entries(array, stored, keys, items)
    if pa.types.is_list(stored):
        return with_elements(array, stored, _as_stored(array.values, stored.value_type))
    if pa.types.is_struct(stored):
        members = [
            _as_stored(array.field(position), member.type) for position, member in enumerate(stored)
        ]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(members, fields=list(stored), mask=mask)
    return _as_int96(array) if stored.equals(TWELVE_BYTES) else array.cast(stored)


def _as_int96(array: pa.Array) -> pa.Array:
    """Timestamps in nanoseconds as twelve bytes each."""
    nanos = array.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    int96 = np.empty(len(array), INT96_LAYOUT)
    int96["day"] = nanos // _DAY_NANOS + JULIAN_EPOCH
    int96["nanos"] = nanos % _DAY_NANOS
    validity = array.is_valid().buffers()[1] if array.null_count else None
    buffers = [validity, pa.py_buffer(int96)]
    return pa.Array.from_buffers(TWELVE_BYTES, len(array), buffers, array.null_count)
