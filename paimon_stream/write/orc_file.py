"""Writes ORC files to the storage (format.md §7.5). TIME is stored as an int. Every other type is
stored as its own ORC type. CHAR and VARCHAR are stored as strings of their actual length. Arrow's
writer keeps rows in memory until a stripe is full, so the size of an open file is an estimate.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc

from paimon_stream.errors import InvalidData
from paimon_stream.format.arrow_types import PER_SECOND, arrow_schema
from paimon_stream.format.file_format import FileFormat, compression
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataType
from paimon_stream.options import FILE_BLOCK_SIZE, Options
from paimon_stream.options.option import one_of, positive, size
from paimon_stream.storage.base import Storage
from paimon_stream.write.file_stats import RowStats, leaf_columns, with_leaves
from paimon_stream.write.output import (
    FileSettings,
    FileWriter,
    file_suffix,
    format_option,
    worth_a_dictionary,
)

_STRIPE_BYTES: Final = 64 * 2**20
_BLOCK_BYTES: Final = 256 * 2**10
_BLOCK_STEP: Final = 64 * 2**10
"""Arrow requires the size of compression blocks to be a multiple of this."""

_SAMPLE_ROWS: Final = 4096
_DICTIONARY_SHARE: Final = 0.4
_LONGEST_BOUND: Final = 1024
"""Bytes. Java's ORC keeps no bound of longer text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrcSettings(FileSettings):
    """How the ORC files of a table are written.

    Attributes:
        arrow: the schema of the file.
        types: the types of the columns.
        wanted: for each column, whether it gets statistics.
        dictionary: the share of distinct values up to which a column gets a dictionary; None if the
            rows decide.
        arguments: the other arguments of Arrow's writer, by the names of its parameters.
    """

    most_open = 16  # each of them holds up to one stripe in memory

    arrow: pa.Schema
    types: tuple[DataType, ...]
    wanted: tuple[bool, ...]
    dictionary: float | None
    arguments: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, schema: TableSchema, options: Options, wanted: tuple[bool, ...]) -> "OrcSettings":
        """The settings that the options ask for. Raises `InvalidOption` and
        `UnsupportedFeature`.
        """
        codec = compression(options, FileFormat.ORC)
        arrow_codec = "uncompressed" if codec == "none" else codec
        fields = arrow_schema(schema.fields)
        return cls(
            arrow=pa.schema([with_leaves(field, _stored_type) for field in fields]),
            types=tuple(field.type for field in schema.fields),
            wanted=wanted,
            codec=arrow_codec,
            suffix=file_suffix(options, FileFormat.ORC, codec),
            dictionary=format_option(options, "orc.dictionary.key.threshold", float, "ORC"),
            arguments=tuple(_arguments(options)),
        )

    def open(
        self, storage: Storage, path: str, first: pa.Table, row_bytes: float | None
    ) -> "OrcFile":
        """Opens a file; see `FileSettings`."""
        return OrcFile(self, storage, path, first, row_bytes)

    def in_file(self, rows: pa.Table) -> pa.Table:
        """The rows with the types of the file. Only parts of structs are copied. Raises what
        `_check_fractions` raises.
        """
        for name, column in zip(self.arrow.names, rows.columns, strict=True):
            for chunk in column.chunks:
                _check_fractions(name, chunk)
        rows = _without_cut_structs(rows)
        if rows.schema.equals(self.arrow):
            return rows
        columns = [
            _viewed(column, field.type)
            for column, field in zip(rows.columns, self.arrow, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self.arrow)

    def writer(self, stream: Any, first: pa.Table) -> orc.ORCWriter:
        """Arrow's writer for a file that begins with rows like `first`."""
        threshold = self.dictionary
        if threshold is None:
            texts = {
                name
                for name, type_ in zip(first.column_names, self.types, strict=True)
                if type_.is_string
            }
            any_repeats = not texts.isdisjoint(worth_a_dictionary(first))
            threshold = _DICTIONARY_SHARE if any_repeats else 0.0
        return orc.ORCWriter(
            stream,
            compression=self.codec,
            dictionary_key_size_threshold=threshold,
            **dict(self.arguments),
        )


def _viewed(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """The column in another type of the same width. Nothing is copied."""
    if column.type.equals(type_):
        return column
    return pa.chunked_array([chunk.view(type_) for chunk in column.chunks], type_)


def _check_fractions(name: str, column: pa.Array) -> None:
    """Raises `InvalidData` if a time before 1970 has a fraction of a second. Arrow's writer stores
    such a time in a way that Java reads wrongly.
    """
    for path, leaf in leaf_columns(name, column):
        if not pa.types.is_timestamp(leaf.type):
            continue
        values = leaf.view(pa.int64())
        per_second = PER_SECOND[leaf.type.unit]
        without_fraction = pc.multiply(pc.divide(values, per_second), per_second)
        is_full_second = pc.equal(without_fraction, values)
        count = pc.sum(pc.and_not(pc.less(values, 0), is_full_second)).as_py() or 0
        if count:
            raise InvalidData(
                f"Column {path!r} has {count:,} timestamps before 1970 with fractions of seconds, which cannot be "
                "written to ORC files so that Java reads them. Cut the fractions off, or set file.format to parquet.",
                column=path,
                count=count,
            )


def _without_cut_structs(rows: pa.Table) -> pa.Table:
    """The rows, with a copy of each column that has slices of structs. Arrow's writer would take
    the NULLs of a slice from the start of the whole array.
    """
    for position, column in enumerate(rows.columns):
        if any(map(_has_cut_struct, column.chunks)):
            copies = [pa.concat_arrays([chunk]) for chunk in column.chunks]
            field = rows.schema.field(position)
            rows = rows.set_column(position, field, pa.chunked_array(copies, column.type))
    return rows


def _has_cut_struct(array: pa.Array) -> bool:
    """Whether the array is a slice of structs, or has such a slice inside."""
    type_ = array.type
    if pa.types.is_struct(type_):
        members = (array.field(position) for position in range(type_.num_fields))
        return array.offset > 0 or any(map(_has_cut_struct, members))
    if pa.types.is_map(type_):
        return _has_cut_struct(array.keys) or _has_cut_struct(array.items)
    return pa.types.is_list(type_) and _has_cut_struct(array.values)


def _stored_type(type_: pa.DataType) -> pa.DataType:
    """The type that a leaf has in ORC files."""
    return pa.int32() if pa.types.is_time(type_) else type_


class _Argument(NamedTuple):
    """How an option sets a parameter of Arrow's writer.

    Attributes:
        key: the option.
        parameter: the parameter.
        parse: a function that parses the value of the option.
        default: the value if the option is not set; None leaves the choice to Arrow.
    """

    key: str
    parameter: str
    parse: Callable[[str], int | str]
    default: int | str | None = None


def _compression_block(value: str) -> int:
    """The size of compression blocks, rounded up to a size that Arrow accepts."""
    blocks = -(-size(value) // _BLOCK_STEP)
    return max(1, blocks) * _BLOCK_STEP


def _arguments(options: Options) -> Iterator[tuple[str, Any]]:
    """The arguments of Arrow's writer for those `orc.*` options that it supports."""
    stripe_bytes = _STRIPE_BYTES
    if options.is_set(FILE_BLOCK_SIZE):
        stripe_bytes = options.value(FILE_BLOCK_SIZE)
    strategy = one_of("speed", "compression")
    arguments = (
        _Argument("orc.stripe.size", "stripe_size", size, max(1, stripe_bytes)),
        _Argument("orc.compress.size", "compression_block_size", _compression_block, _BLOCK_BYTES),
        _Argument("orc.row.index.stride", "row_index_stride", positive),
        _Argument("orc.write.batch-size", "batch_size", positive),
        _Argument("orc.compression.strategy", "compression_strategy", strategy),
    )
    for argument in arguments:
        value = format_option(options, argument.key, argument.parse, "ORC", argument.default)
        if value is not None:
            yield argument.parameter, value


class OrcFile(FileWriter):
    """An ORC file that is open for writing; see `FileWriter`."""

    def __init__(
        self,
        settings: "OrcSettings",
        storage: Storage,
        path: str,
        first: pa.Table,
        row_bytes: float | None,
    ) -> None:
        self._settings = settings
        self.stats = RowStats(settings.types, settings.wanted, _LONGEST_BOUND)
        self._row_bytes = _sampled(settings, first) if row_bytes is None else row_bytes
        super().__init__(storage, path)
        self.writer = self.started_by(lambda stream: settings.writer(stream, first))

    @property
    def size(self) -> int:
        """The number of bytes written so far, including an estimate for rows that are still in
        memory. After `close`, it is exact.
        """
        written = self.stream.size
        if not self.writer.is_open:
            return written
        return max(written, int(self.rows * self._row_bytes))

    def put(self, rows: pa.Table) -> None:
        """Adds the rows to the current stripe."""
        self.writer.write(self._settings.in_file(rows))


def _sampled(settings: "OrcSettings", first: pa.Table) -> float:
    """About how many bytes a row needs. Some of these rows are written to a file in memory. The
    size of this file is compared with the size of a file without rows.
    """
    sample = first.slice(0, _SAMPLE_ROWS)
    sizes = []
    for rows in (sample, sample.slice(0, 0)):
        sink = pa.BufferOutputStream()
        writer = settings.writer(sink, first)
        writer.write(settings.in_file(rows))
        writer.close()
        sizes.append(sink.getvalue().size)
    with_rows, without_rows = sizes
    return float(max(1, with_rows - without_rows) / max(1, sample.num_rows))
