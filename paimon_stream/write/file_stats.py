"""The statistics of a data file: which ones its manifest entry carries, and those of its rows,
computed by column. Bounds, in the internal form of `format/binary_row.py`, follow Java's order:
text by its bytes; of floats, -0.0 is below 0.0 and NaN above all numbers (format.md §4.5). Also the
Arrow schema of data files, with Parquet's field ids (§7.1).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.format.binary_columns import column_values
from paimon_stream.format.entries import SimpleStats
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.stats import (
    NO_STATS,
    ColumnStats,
    StatsMode,
    encode_stats,
    parse_mode,
    value_order,
)
from paimon_stream.format.types import DataField, DataType, TypeRoot, arrow_type
from paimon_stream.options import STATS_DENSE, STATS_FIRST_N, STATS_MODE, Options

Bounds = tuple[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsPlan:
    """The statistics mode of each column; whether columns without any are left out
    (`metadata.stats-dense-store`).
    """

    fields: tuple[DataField, ...]
    modes: tuple[StatsMode, ...]
    dense: bool

    @classmethod
    def of(cls, schema: TableSchema, options: Options) -> "StatsPlan":
        """The plan that follows from the options (format.md §4.5). Raises `InvalidOption`."""
        general = parse_mode(options.value(STATS_MODE))
        first_n = options.value(STATS_FIRST_N)
        none = parse_mode("none")
        modes = []
        for position, one in enumerate(schema.fields):
            own = options.get(f"fields.{one.name}.stats-mode")
            default = general if first_n < 0 or position < first_n else none
            modes.append(default if own is None else parse_mode(own))
        return cls(fields=schema.fields, modes=tuple(modes), dense=options.value(STATS_DENSE))

    @property
    def wanted(self) -> tuple[bool, ...]:
        """For each column, whether it gets any statistics."""
        return tuple(mode.kind != "none" for mode in self.modes)

    def describe(
        self, columns: Sequence[ColumnStats]
    ) -> tuple[SimpleStats, tuple[str, ...] | None]:
        """The statistics of a file with these columns, and the names of the columns covered (None:
        all).
        """
        kept = [mode.apply(stats) for mode, stats in zip(self.modes, columns, strict=True)]
        return encode_stats(self.fields, kept, self.dense)


class RowStats:
    """Collects the statistics of a file's rows for the `wanted` columns, without bounds above
    `longest_text` bytes.
    """

    def __init__(
        self, types: Sequence[DataType], wanted: Sequence[bool], longest_text: int | None = None
    ) -> None:
        self._longest_text = longest_text
        self._types = types
        self._wanted = wanted
        self._nulls = [0] * len(types)
        self.bounds: list[list[Bounds]] = [[] for _ in types]

    def add(self, rows: pa.Table) -> None:
        """Adds the rows to the statistics."""
        for i, column in enumerate(rows.columns):
            if self._wanted[i]:
                self._nulls[i] += column.null_count
                self.bound(i, column)

    def bound(self, i: int, column: pa.ChunkedArray) -> None:
        """Takes in the bounds of a column."""
        bounds = column_bounds(column, self._types[i])
        if bounds is not None:
            self.bounds[i].append(bounds)

    def columns(self) -> list[ColumnStats]:
        """The statistics of all rows; `NO_STATS` for columns that are not wanted."""
        made = []
        for i, (type_, wanted) in enumerate(zip(self._types, self._wanted, strict=True)):
            low, high = merged(self.bounds[i], type_, self._longest_text)
            made.append(
                ColumnStats(min=low, max=high, null_count=self._nulls[i]) if wanted else NO_STATS
            )
        return made


def column_bounds(column: pa.ChunkedArray, type_: DataType) -> Bounds | None:
    """The least and greatest value, text as bytes. None if there are no values or the type has no
    order.
    """
    if type_.is_nested or type_.is_binary:
        return None
    if type_.is_float:
        found = _float_bounds(column)
    elif type_.is_string:
        found = _min_max(column.cast(pa.binary()))
    else:
        ends = pc.min_max(column)
        found = tuple(column_values(pa.array([ends["min"], ends["max"]], column.type), type_))
    return None if found[0] is None else found


def _min_max(column: pa.ChunkedArray) -> Bounds:
    found = pc.min_max(column)
    return found["min"].as_py(), found["max"].as_py()


def _float_bounds(column: pa.ChunkedArray) -> Bounds:
    low, high = _min_max(column)
    if low == 0:
        low = -0.0 if _holds_bits(column, negative=True) else 0.0
    if high == 0:
        high = 0.0 if _holds_bits(column, negative=False) else -0.0
    return low, math.nan if pc.any(pc.is_nan(column)).as_py() else high


def _holds_bits(column: pa.ChunkedArray, *, negative: bool) -> bool:
    width = column.type.bit_width
    wanted = pa.scalar(
        -(2 ** (width - 1)) if negative else 0, pa.int64() if width == 64 else pa.int32()
    )
    return any(pc.any(pc.equal(chunk.view(wanted.type), wanted)).as_py() for chunk in column.chunks)


def merged(bounds: Sequence[Bounds], type_: DataType, longest_text: int | None = None) -> Bounds:
    """The bounds over all of `bounds`, with text decoded; no bounds if the text is not UTF-8."""
    if not bounds:
        return None, None
    order = partial(value_order, type_) if type_.is_float else None
    low = min((one[0] for one in bounds), key=order)
    high = max((one[1] for one in bounds), key=order)
    if not type_.is_string:
        return low, high
    try:
        return _text(low, longest_text), _text(high, longest_text)
    except UnicodeDecodeError:
        return None, None


def _text(raw: bytes, longest: int | None) -> str | None:
    text = raw.decode()
    return text if longest is None or len(raw) <= longest else None


_INNER_IDS: Final = 536870911
_IDS_PER_FIELD: Final = 1024


def file_schema(schema: TableSchema) -> pa.Schema:
    """The columns in table order, each with its field id; NOT NULL columns are not nullable.
    Members of ROWs have field ids of their own. The ids of elements, keys and values are derived
    from the field around them.
    """
    return pa.schema([_with_id(one.name, one.type, one.id, one.id, 1) for one in schema.fields])


def _with_id(name: str, type_: DataType, id_: int, field: int, depth: int) -> pa.Field:
    """A field with this id, inside the field whose id is `field`; `depth` counts nested collections
    from 1.
    """

    def inner(part: str, of: DataType) -> pa.Field:
        away = _IDS_PER_FIELD * field + depth
        return _with_id(part, of, _INNER_IDS + (-away if part == "key" else away), field, depth + 1)

    if type_.root is TypeRoot.ROW:
        made = pa.struct([_with_id(one.name, one.type, one.id, one.id, 1) for one in type_.fields])
    else:
        made = arrow_type(type_, inner)
    return pa.field(
        name, made, nullable=type_.nullable, metadata={b"PARQUET:field_id": str(id_).encode()}
    )


def with_leaves(field: pa.Field, change: Callable[[pa.DataType], pa.DataType]) -> pa.Field:
    """The field with the type of each leaf changed, at any depth."""
    type_ = field.type
    if pa.types.is_map(type_):
        made = pa.map_(with_leaves(type_.key_field, change), with_leaves(type_.item_field, change))
    elif pa.types.is_list(type_):
        made = pa.list_(with_leaves(type_.value_field, change))
    elif pa.types.is_struct(type_):
        made = pa.struct([with_leaves(one, change) for one in type_])
    else:
        made = change(type_)
    return field.with_type(made)


def leaf_types(field: pa.Field) -> list[tuple[str, pa.DataType]]:
    """The leaves of such a column, with their paths in Parquet files, in file order."""
    return [(path, leaf.type) for path, leaf in leaf_columns(field.name, pa.nulls(0, field.type))]


def leaf_columns(name: str, column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Each leaf of the column for these rows, in file order, with its path. Members of NULL rows
    may hold anything.
    """
    type_ = column.type
    if pa.types.is_map(type_):
        yield from leaf_columns(f"{name}.key_value.key", own_elements(column, column.keys))
        yield from leaf_columns(f"{name}.key_value.value", own_elements(column, column.items))
    elif pa.types.is_list(type_):
        yield from leaf_columns(f"{name}.list.element", own_elements(column, column.values))
    elif pa.types.is_struct(type_):
        for position, one in enumerate(type_):
            yield from leaf_columns(f"{name}.{one.name}", column.field(position))
    else:
        yield name, column


def own_elements(column: pa.Array, children: pa.Array) -> pa.Array:
    """The elements, out of those of the whole array, that belong to these rows of lists or maps."""
    if not len(column):
        return children.slice(0, 0)
    start = column.offsets[0].as_py()
    return children.slice(start, column.offsets[len(column)].as_py() - start)
