"""What a Parquet footer says of the columns of a file, as the statistics its manifest entry carries.

The bounds are the ones Java Paimon keeps of a file of its own (format.md §4.5). Where a bound could be
wrong there is none: readers leave out files by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paimon_stream.format.entries import SimpleStats
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.stats import ColumnStats, StatsMode, encode_stats, parse_mode
from paimon_stream.format.types import DataField, DataType, TypeRoot
from paimon_stream.options import STATS_DENSE, STATS_FIRST_N, STATS_MODE, Options

__all__ = ["StatsPlan"]

_MOST_FOOTER_BYTES: Final = 4096
_FLOATS: Final = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
_WIDE: Final = Context(prec=100)
_NANOS_PER_MICRO: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsPlan:
    """Which statistics the files of a table get: a mode for each column, and whether columns without any
    are left out (`metadata.stats-dense-store`)."""

    fields: tuple[DataField, ...]
    modes: tuple[StatsMode, ...]
    dense: bool

    @classmethod
    def of(cls, schema: TableSchema, options: Options) -> StatsPlan:
        """The plan that the options ask for (format.md §4.5). Raises `InvalidOption`."""
        general = parse_mode(options.value(STATS_MODE))
        first_n = options.value(STATS_FIRST_N)
        none = parse_mode("none")
        modes = []
        for position, one in enumerate(schema.fields):
            own = options.get(f"fields.{one.name}.stats-mode")
            if own is not None:
                modes.append(parse_mode(own))
            else:
                modes.append(general if first_n < 0 or position < first_n else none)
        return cls(fields=schema.fields, modes=tuple(modes), dense=options.value(STATS_DENSE))

    def observer(self) -> ObservedBounds:
        """What to show each row group of a new file to, before `describe`."""
        return ObservedBounds(self.fields)

    def describe(
        self, footer: pq.FileMetaData, observed: ObservedBounds
    ) -> tuple[SimpleStats, tuple[str, ...] | None]:
        """The statistics of the file with that footer, and the columns they cover (None for all)."""
        groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
        columns = []
        for position, (one, mode) in enumerate(zip(self.fields, self.modes, strict=True)):
            chunks = [group.column(position).statistics for group in groups]
            columns.append(mode.apply(_column_stats(chunks, one.type, observed.of(position))))
        return encode_stats(self.fields, columns, self.dense)


class ObservedBounds:
    """The bounds that footers do not tell as Java tells them, taken from the rows themselves.

    FLOAT and DOUBLE: Arrow leaves NaN out and widens zeros to -0.0 and 0.0, Java orders them -0.0, 0.0,
    numbers, NaN. STRING: Arrow keeps no bounds in a row group with a bound above 4 KiB, Java does.
    """

    def __init__(self, fields: Sequence[DataField]) -> None:
        self._floats = [i for i, one in enumerate(fields) if one.type.root in _FLOATS]
        self._texts = [i for i, one in enumerate(fields) if one.type.is_string]
        self._bounds: dict[int, list[tuple[Any, Any]]] = {}

    def add(self, rows: pa.Table) -> None:
        """Takes note of the rows of one row group."""
        for i in self._floats:
            self._keep(i, _float_bounds(rows.column(i)))
        for i in self._texts:
            column = rows.column(i)
            if (pc.max(pc.binary_length(column)).as_py() or 0) > _MOST_FOOTER_BYTES:
                self._keep(i, _min_max(column.cast(pa.binary())))

    def of(self, position: int) -> Sequence[tuple[Any, Any]]:
        """(least, greatest) of each row group for which the footer does not count."""
        return self._bounds.get(position, ())

    def _keep(self, position: int, bounds: tuple[Any, Any]) -> None:
        if bounds[0] is not None:
            self._bounds.setdefault(position, []).append(bounds)


def _min_max(column: pa.ChunkedArray) -> tuple[Any, Any]:
    found = pc.min_max(column)
    return found["min"].as_py(), found["max"].as_py()


def _float_bounds(column: pa.ChunkedArray) -> tuple[Any, Any]:
    low, high = _min_max(column)
    if low == 0:
        low = -0.0 if _holds_bits(column, negative=True) else 0.0
    if high == 0:
        high = 0.0 if _holds_bits(column, negative=False) else -0.0
    return low, math.nan if pc.any(pc.is_nan(column)).as_py() else high


def _holds_bits(column: pa.ChunkedArray, *, negative: bool) -> bool:
    """Whether there is a zero of that sign."""
    width = column.type.bit_width
    wanted = pa.scalar(-(2 ** (width - 1)) if negative else 0, pa.int64() if width == 64 else pa.int32())
    return any(pc.any(pc.equal(chunk.view(wanted.type), wanted)).as_py() for chunk in column.chunks)


def _column_stats(chunks: Sequence[Any], type_: DataType, observed: Sequence[tuple[Any, Any]]) -> ColumnStats:
    """One column over all row groups. Every row group with a value must have bounds, else there are none."""
    if not all(chunk is not None and chunk.has_null_count for chunk in chunks):
        return ColumnStats(min=None, max=None, null_count=None)
    nulls = sum(chunk.null_count for chunk in chunks)
    valued = [chunk for chunk in chunks if chunk.num_values]
    told = [] if type_.root in _FLOATS else [chunk for chunk in valued if chunk.has_min_max]
    bounds = [(_value(chunk.min_raw, type_), _value(chunk.max_raw, type_)) for chunk in told] + list(observed)
    if type_.is_binary or not bounds or len(bounds) != len(valued):
        return ColumnStats(min=None, max=None, null_count=nulls)
    order = _java_order if type_.root in _FLOATS else None
    low = min((bound[0] for bound in bounds), key=order)
    high = max((bound[1] for bound in bounds), key=order)
    try:
        return ColumnStats(min=_internal(low, type_), max=_internal(high, type_), null_count=nulls)
    except UnicodeDecodeError:
        return ColumnStats(min=None, max=None, null_count=nulls)


def _java_order(value: float) -> tuple[bool, float, float]:
    """The order of Double.compare: -0.0 below 0.0, NaN above everything."""
    nan = math.isnan(value)
    return nan, 0.0 if nan else value, math.copysign(1.0, value)


def _value(raw: Any, type_: DataType) -> Any:
    """The bound in a form whose order is the column's: strings stay bytes, wide decimals become numbers."""
    if type_.root is TypeRoot.DECIMAL and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


def _internal(value: Any, type_: DataType) -> Any:
    """The bound as `format/binary_row.py` takes it."""
    if type_.root is TypeRoot.DECIMAL:
        return Decimal(value).scaleb(-type_.scale, _WIDE)
    if type_.is_string:
        return value.decode()
    if type_.is_timestamp:
        return value * _NANOS_PER_MICRO
    return value
