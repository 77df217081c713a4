"""Reads Parquet files, batch by batch (format.md §7.4).

Arrow turns INT96 timestamps into 64 bits, and a value that does not fit becomes another date. After
that, it is impossible to tell whether a moment was in 1716 or in 2300, because Java writes a moment
before 1970 as a day and *negative* nanoseconds. So this module gives Arrow a footer that declares
such columns as values of twelve bytes. It decodes these bytes itself: eight bytes of nanoseconds,
four bytes of the Julian day.

The statistics in the footer show which row groups can be left out, as `predicate.py` leaves out
files. Why no row is lost:

- Only files whose rows are final are read in part. Skipped rows are still counted: deletion
  vectors, row ids and the check of the number of rows need positions in the file.
- Many writers make footers. Bounds are used only if Arrow, or parquet-mr from 1.10 on, wrote them.
  Both always write two bounds or none, and bounds of text in the order of bytes (older releases
  compared bytes as signed numbers).
- The column must be stored as its type asks: an integer of any signed width, a date, a time of
  milliseconds, a timestamp in 64 bits in any unit, text, or a decimal in 32 or 64 bits. Bounds go
  through the same conversion as values, which keeps the order for these types and for no others: a
  number read as text does not keep it.
- An upper bound of text that is empty may be one that was too long to be written. For all other
  types, INT96 among them, only the number of NULLs counts. For a nested column nothing counts: a
  footer has only its members, and a path that equals its name belongs to another column.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paimon_stream.errors import FormatError
from paimon_stream.format.arrow_types import INT96_LAYOUT, JULIAN_EPOCH, PER_SECOND, TWELVE_BYTES
from paimon_stream.format.binary_columns import column_values
from paimon_stream.format.json_text import BROKEN
from paimon_stream.format.parquet_footer import MAGIC, TAIL, declare_twelve_bytes, footer_start
from paimon_stream.format.stats import NO_STATS, ColumnStats
from paimon_stream.format.types import DataField, DataType, TypeRoot, arrow_type
from paimon_stream.read.convert import (
    Chunk,
    Leaf,
    moments,
    normalize,
    nothing_but_rows,
    out_of_range,
)
from paimon_stream.read.predicate import Known

_INT96: Final = "INT96"
_NUMBERS: Final = ("BOOLEAN", "INT32", "INT64")
_INTEGERS: Final = {pa.int8(), pa.int16(), pa.int32(), pa.int64()}
_BATCH_BYTES: Final = 16 << 20
"""About the most bytes of a batch."""
_BUFFER: Final = 64 << 10
_RANGE: Final = 1 << 20
"""Bytes of a column that are read at a time: of a local file, and of one in a store."""
_ALONE: Final = 65_536
"""A caller that asks for batches of fewer rows has many files open."""
_FEW: Final = 10_000
"""The most rows that are decoded before other threads have begun to."""
_SAMPLE: Final = 16
"""Rows that show how wide rows are if dictionaries make them small in the file."""
_TRUSTED: Final = re.compile(r"parquet-cpp-arrow version |parquet-mr version 1\.[1-9]\d")
"""The writers whose footers have bounds that hold."""

Chosen = tuple[Mapping[str, DataField], Callable[[Iterable[Known]], list[bool]]] | None
"""The columns of a file that a condition reads, by today's names, and the function that says by
their statistics which row groups are read. None if all are read.
"""


def read_parquet(
    source: Any, path: str, fields: Sequence[DataField], batch_rows: int, chosen: Chosen = None
) -> Iterator[Chunk]:
    """Reads those columns of `fields` that the file has, by name. One row group is in memory at a
    time. If the file is local, or many files are open, only some pages of the row group are in
    memory.

    Args:
        source: the opened file.
        path: its path, for errors.
        fields: the wanted columns, from the schema that the file was written with.
        batch_rows: the most rows that a chunk may have.
        chosen: which row groups are read. The rows of the other row groups are only counted.

    Raises:
        UnsupportedFeature: a timestamp of precision 7 to 9 is beyond Arrow's nanoseconds.
        FormatError: the file is broken. On a broken file, Arrow may raise its own errors, too.
    """
    buffer_size = _buffer_size(source, len(fields), batch_rows)
    file = pq.ParquetFile(source, pre_buffer=False, buffer_size=buffer_size)
    leaf: Leaf = normalize
    leaves = file.schema
    if any(leaves.column(position).physical_type == _INT96 for position in range(len(leaves))):
        file = pq.ParquetFile(
            source, metadata=_with_twelve_bytes(source), pre_buffer=False, buffer_size=buffer_size
        )
        leaf = _with_int96(path)
    # Arrow converts the types of all columns each time that it is asked for this schema.
    stored = file.schema_arrow
    names = [field.name for field in fields if stored.get_field_index(field.name) >= 0]
    if not names:
        yield from nothing_but_rows(file.metadata.num_rows, batch_rows)
        return
    is_wanted = [True] * file.num_row_groups
    if chosen and _TRUSTED.match(file.metadata.created_by or ""):
        filter_columns, may_have_rows = chosen
        is_wanted = may_have_rows(_known(file, stored, filter_columns))
    # If Arrow read all row groups at once, its batches would span row groups.
    for number in range(file.num_row_groups):
        group_rows = file.metadata.row_group(number).num_rows
        if not is_wanted[number]:
            yield Chunk(group_rows, MappingProxyType({}), leaf, skipped=True)
            continue
        batches = file.iter_batches(
            _rows_at_once(file, number, names, batch_rows),
            row_groups=[number],
            columns=names,
            use_threads=group_rows > _FEW,
        )
        for batch in batches:
            yield Chunk(batch.num_rows, {name: batch.column(name) for name in names}, leaf)


def _known(
    file: pq.ParquetFile, stored: pa.Schema, columns: Mapping[str, DataField]
) -> Iterator[Known]:
    """What the footer says about these columns in each row group. Nested columns are left out. A
    column is also left out if its name occurs twice among the paths, because one path may belong to
    a member of a ROW. `stored` has the types that Arrow gives the columns of the file.
    """
    leaves = file.schema
    positions = defaultdict[str, list[int]](list)
    for position in range(len(leaves)):
        positions[leaves.column(position).path].append(position)
    told = {
        name: (positions[field.name][0], field.type, stored.field(field.name).type)
        for name, field in columns.items()
        if not field.type.is_nested
        and stored.get_field_index(field.name) >= 0
        and len(positions[field.name]) == 1
    }
    for group in map(file.metadata.row_group, range(file.num_row_groups)):
        stats = {
            name: _stats(group.column(position).statistics, type_, stored_type)
            for name, (position, type_, stored_type) in told.items()
        }
        yield stats, group.num_rows


def _stats(statistics: pq.Statistics | None, type_: DataType, stored: pa.DataType) -> ColumnStats:
    """What the statistics of a row group prove about all values of a column: their bounds and the
    number of NULLs. `type_` is the type in the file's schema, `stored` the type that Arrow gives
    the column.
    """
    if statistics is None:
        return NO_STATS
    lower = None
    upper = None
    # Bounds that cannot be read count as unknown, so the row group is read.
    with suppress(FormatError, pa.ArrowException, *BROKEN):
        if _has_bounds(statistics, type_, stored):
            raw = [statistics.min_raw, statistics.max_raw]
            if type_.root is TypeRoot.DECIMAL:
                # The file stores unscaled values.
                raw = [Decimal(bound).scaleb(-stored.scale) for bound in raw]
            lower, upper = column_values(normalize(pa.array(raw, stored), type_), type_)
    nulls = statistics.null_count if statistics.has_null_count else None
    return ColumnStats(lower, upper, nulls)


def _has_bounds(statistics: pq.Statistics, type_: DataType, stored: pa.DataType) -> bool:
    """Whether the bounds may be used to leave out row groups, by the rules in the module's
    docstring.
    """
    wanted = arrow_type(type_)
    if stored.id != wanted.id and not {stored, wanted} <= _INTEGERS:
        return False
    if not statistics.has_min_max:
        return False
    if statistics.physical_type in _NUMBERS:
        return True
    return bool(type_.is_string and statistics.max_raw)


def _buffer_size(source: Any, columns: int, batch_rows: int) -> int:
    """The size of the buffers for columns. 0 means that a column of a row group is read in one
    request.
    """
    is_local = isinstance(source, pa.OSFile)
    if not is_local and batch_rows >= _ALONE:
        return 0
    size = _BUFFER if is_local else _RANGE
    return size if source.size() > 2 * columns * size else 0


def _rows_at_once(file: pq.ParquetFile, number: int, names: Sequence[str], most: int) -> int:
    """How many rows of a row group make a batch. The number depends on the size of the row group,
    or on the row group's first rows if a large value may repeat.
    """
    group = file.metadata.row_group(number)
    most = min(most, max(1, group.num_rows * _BATCH_BYTES // max(1, group.total_byte_size)))
    if min(most, group.num_rows) * group.total_byte_size <= 64 * _BATCH_BYTES:
        # With a dictionary, many rows may repeat a value that the file has only once. No value is
        # larger than the whole row group, so even then the batch is not too large.
        return most
    sample = next(file.iter_batches(_SAMPLE, row_groups=[number], columns=names), None)
    if sample is not None:
        most = min(most, max(1, sample.num_rows * _BATCH_BYTES // max(1, sample.nbytes)))
    return most


def _with_int96(path: str) -> Leaf:
    """A function that turns columns into values, and INT96 columns into timestamps."""

    def leaf(array: pa.Array, type_: DataType) -> pa.Array:
        if not type_.is_timestamp or not array.type.equals(TWELVE_BYTES):
            return normalize(array, type_)
        try:
            return _as_timestamps(array, arrow_type(type_).unit).view(arrow_type(type_))
        except OverflowError:
            raise out_of_range(
                f"A column of type {type_} in {path}", path, type=str(type_)
            ) from None

    return leaf


def _as_timestamps(array: pa.Array, unit: str) -> pa.Array:
    """INT96 values (twelve bytes each) as timestamps in this unit, without a time zone. Raises what
    `moments` raises.
    """
    raw = array.buffers()[1]
    if raw is None:
        return pa.nulls(len(array), pa.timestamp(unit))
    parts = np.frombuffer(raw, INT96_LAYOUT)[array.offset : array.offset + len(array)]
    missing = array.is_null().to_numpy(zero_copy_only=False)
    days = np.where(missing, JULIAN_EPOCH, parts["day"]).astype(np.int64) - JULIAN_EPOCH
    nanos = np.where(missing, 0, parts["nanos"])
    seconds, nanos = np.divmod(nanos, PER_SECOND["ns"])
    values = moments(days * 86_400 + seconds, nanos, unit)
    mask = missing if array.null_count else None
    return pa.array(values, mask=mask).view(pa.timestamp(unit))


def _with_twelve_bytes(source: Any) -> pq.FileMetaData:
    """The footer of the Parquet file with its INT96 columns declared as twelve bytes. Raises
    `FormatError`.
    """
    size = source.size()
    source.seek(size - TAIL)
    start = footer_start(size, source.read(TAIL))
    source.seek(start)
    return pq.read_metadata(
        pa.BufferReader(MAGIC + declare_twelve_bytes(source.read(size - TAIL - start)))
    )
