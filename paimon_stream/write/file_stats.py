"""What a Parquet footer says of the columns of a file, as the statistics its manifest entry carries.

The bounds are the ones Java Paimon reads from a footer of its own (format.md §4.5). Where a bound could
be wrong there is none: readers leave out files by it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow.parquet as pq

from paimon_stream.format.entries import SimpleStats
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.stats import ColumnStats, StatsMode, encode_stats, parse_mode
from paimon_stream.format.types import DataField, DataType, TypeRoot
from paimon_stream.options import STATS_DENSE, STATS_FIRST_N, STATS_MODE, Options

__all__ = ["StatsPlan"]

_MOST_BOUND_BYTES: Final = 4096
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

    def describe(
        self, footer: pq.FileMetaData, nan_columns: Collection[int]
    ) -> tuple[SimpleStats, tuple[str, ...] | None]:
        """The statistics of the file with that footer, and the columns they cover (None for all).

        `nan_columns` are positions of columns with a NaN, which have no bounds: the footer does not tell.
        """
        groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
        columns = []
        for position, (one, mode) in enumerate(zip(self.fields, self.modes, strict=True)):
            chunks = [group.column(position).statistics for group in groups]
            bounded = position not in nan_columns and not one.type.is_binary
            columns.append(mode.apply(_column_stats(chunks, one.type, bounded)))
        return encode_stats(self.fields, columns, self.dense)


def _column_stats(chunks: Sequence[Any], type_: DataType, bounded: bool) -> ColumnStats:
    """One column over all row groups. Every row group with a value must have bounds, else there are none."""
    if not all(chunk is not None and chunk.has_null_count for chunk in chunks):
        return ColumnStats(min=None, max=None, null_count=None)
    nulls = sum(chunk.null_count for chunk in chunks)
    valued = [chunk for chunk in chunks if chunk.num_values]
    if not (bounded and valued and all(_has_bounds(chunk) for chunk in valued)):
        return ColumnStats(min=None, max=None, null_count=nulls)
    try:
        low = min(_value(chunk.min_raw, type_) for chunk in valued)
        high = max(_value(chunk.max_raw, type_) for chunk in valued)
        return ColumnStats(min=_internal(low, type_), max=_internal(high, type_), null_count=nulls)
    except UnicodeDecodeError:
        return ColumnStats(min=None, max=None, null_count=nulls)


def _has_bounds(chunk: Any) -> bool:
    """Whether the row group has bounds that Java would have written, too: together below 4 KiB."""
    if not chunk.has_min_max:
        return False
    low, high = chunk.min_raw, chunk.max_raw
    return not isinstance(low, bytes) or len(low) + len(high) < _MOST_BOUND_BYTES


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
