"""Takes the statistics of columns from a Parquet footer.

The bounds are those that Java Paimon keeps for a file that it writes (format.md §4.5). A bound that could be
wrong is left out, because readers skip files by their bounds.
"""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paimon_stream.format.stats import NO_STATS, ColumnStats
from paimon_stream.format.types import DataType, TypeRoot
from paimon_stream.write.file_schema import leaf_types
from paimon_stream.write.file_stats import Bounds, RowStats, column_bounds, merged

MICRO_DIGITS: Final = 6
"""Timestamps of more digits are INT96 in Parquet files. INT96 columns have no bounds."""

_MOST_FOOTER_BYTES: Final = 4096
_FLOATS: Final = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
_WIDE: Final = Context(prec=100)
_MILLI_DIGITS: Final = 3


class ParquetStats:
    """The statistics of one file. They come from its footer, and from the rows where Java's differ from it.

    FLOAT and DOUBLE: Arrow ignores NaN and widens zeros to -0.0 and 0.0. Text: Arrow keeps no bounds in a row
    group with a bound above 4 KiB. Timestamps of more than 6 digits have no bounds.
    """

    def __init__(self, types: Sequence[DataType], arrow: pa.Schema) -> None:
        self._types = types
        leaves = [len(leaf_types(one)) for one in arrow]
        self._leaf = [sum(leaves[:i]) for i in range(len(leaves))]
        self._always = [i for i, one in enumerate(types) if one.root in _FLOATS]
        self._int96 = [one.is_timestamp and one.precision > MICRO_DIGITS for one in types]
        self._rows = RowStats(types, self._int96)
        self._texts = [i for i, one in enumerate(types) if one.is_string]
        self._bounds: dict[int, list[Bounds]] = {}

    def add(self, rows: pa.Table) -> None:
        """Adds the rows of one row group."""
        self._rows.add(rows)
        for i in self._always:
            self._keep(i, rows)
        for i in self._texts:
            if (pc.max(pc.binary_length(rows.column(i))).as_py() or 0) > _MOST_FOOTER_BYTES:
                self._keep(i, rows)

    def _keep(self, i: int, rows: pa.Table) -> None:
        bounds = column_bounds(rows.column(i), self._types[i])
        if bounds is not None:
            self._bounds.setdefault(i, []).append(bounds)

    def columns(self, footer: pq.FileMetaData) -> list[ColumnStats]:
        """The statistics of the file with that footer; `NO_STATS` for nested columns."""
        rows = self._rows.columns()
        groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
        made = []
        for i, type_ in enumerate(self._types):
            if type_.is_nested:
                made.append(NO_STATS)
            elif self._int96[i]:
                made.append(replace(rows[i], min=None, max=None))
            else:
                made.append(self._column([group.column(self._leaf[i]) for group in groups], i, type_))
        return made

    def _column(self, chunks: Sequence[Any], i: int, type_: DataType) -> ColumnStats:
        """One column over all row groups. It has bounds only if every row group with a value has them."""
        statistics = [chunk.statistics for chunk in chunks]
        if not all(one is not None and one.has_null_count for one in statistics):
            return NO_STATS
        nulls = sum(one.null_count for one in statistics)
        valued = [one for one in statistics if one.num_values]
        observed = self._bounds.get(i, [])
        from_footer = [] if i in self._always else [one for one in valued if one.has_min_max]
        bounds = [(_value(one.min_raw, type_), _value(one.max_raw, type_)) for one in from_footer]
        low, high = None, None
        if not type_.is_binary and len(bounds) + len(observed) == len(valued):
            low, high = merged(bounds + observed, type_)
        return ColumnStats(min=low, max=high, null_count=nulls)


def _value(raw: Any, type_: DataType) -> Any:
    """A bound from the footer in the internal form, with text as bytes."""
    if type_.root is TypeRoot.DECIMAL:
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
        return Decimal(unscaled).scaleb(-type_.scale, _WIDE)
    if type_.is_timestamp:
        return raw * (1_000_000 if type_.precision <= _MILLI_DIGITS else 1_000)
    return raw
