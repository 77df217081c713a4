"""The statistics of a data file: which statistics its manifest entry carries, and how they are
computed from the rows, column by column. Bounds are in the internal form of `format/binary_row.py`.
The bounds follow Java's order (format.md §4.5): text is ordered by its bytes, -0.0 is below 0.0,
and NaN is above all numbers. The Arrow schema of data files, with Parquet's field ids, is also made
in this module (§7.1).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.format.arrow_types import from_numbers
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
"""The least and the greatest value of a column, in the internal form; None for no bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsPlan:
    """Which statistics the manifest entry of a file carries.

    Attributes:
        fields: the columns.
        modes: the statistics mode of each column.
        dense: whether columns without statistics are left out (`metadata.stats-dense-store`).
    """

    fields: tuple[DataField, ...]
    modes: tuple[StatsMode, ...]
    dense: bool

    @classmethod
    def of(cls, schema: TableSchema, options: Options) -> "StatsPlan":
        """The plan that the options ask for (format.md §4.5). Raises `InvalidOption`."""
        general = parse_mode(options.value(STATS_MODE))
        first_n = options.value(STATS_FIRST_N)
        none = parse_mode("none")
        modes = []
        for position, field in enumerate(schema.fields):
            column_mode = options.get(f"fields.{field.name}.stats-mode")
            if column_mode is not None:
                modes.append(parse_mode(column_mode))
            elif first_n < 0 or position < first_n:  # a negative number means all columns
                modes.append(general)
            else:
                modes.append(none)
        return cls(fields=schema.fields, modes=tuple(modes), dense=options.value(STATS_DENSE))

    @property
    def wanted(self) -> tuple[bool, ...]:
        """For each column, whether it gets any statistics."""
        return tuple(mode.kind != "none" for mode in self.modes)

    def describe(
        self, columns: Sequence[ColumnStats]
    ) -> tuple[SimpleStats, tuple[str, ...] | None]:
        """The statistics that the manifest entry of a file carries.

        Args:
            columns: the statistics of all columns of the file.

        Returns:
            The statistics of the entry, and the names of the columns that they cover. The names are
            None
            if the statistics cover all columns.
        """
        reduced = [mode.apply(stats) for mode, stats in zip(self.modes, columns, strict=True)]
        return encode_stats(self.fields, reduced, dense=self.dense)


class RowStats:
    """Collects the statistics of a file's rows.

    Attributes:
        bounds: for each column, the bounds that were added so far.
    """

    def __init__(
        self, types: Sequence[DataType], wanted: Sequence[bool], longest_text: int | None = None
    ) -> None:
        """Begins with the statistics of no rows.

        Args:
            types: the types of the columns.
            wanted: for each column, whether it gets statistics.
            longest_text: the largest size in bytes of a text that may be a bound; None for no
                limit.
        """
        self._longest_text = longest_text
        self._types = types
        self._wanted = wanted
        self._nulls = [0] * len(types)
        self.bounds: list[list[Bounds]] = [[] for _ in types]

    def add(self, rows: pa.Table) -> None:
        """Adds the rows to the statistics."""
        for position, column in enumerate(rows.columns):
            if self._wanted[position]:
                self._nulls[position] += column.null_count
                self.bound(position, column)

    def bound(self, position: int, column: pa.ChunkedArray) -> None:
        """Adds the bounds of the column at this position."""
        bounds = column_bounds(column, self._types[position])
        if bounds is not None:
            self.bounds[position].append(bounds)

    def columns(self) -> list[ColumnStats]:
        """The statistics of all rows; `NO_STATS` for columns that are not wanted."""
        columns = []
        for position, (type_, is_wanted) in enumerate(zip(self._types, self._wanted, strict=True)):
            if not is_wanted:
                columns.append(NO_STATS)
                continue
            low, high = merged(self.bounds[position], type_, self._longest_text)
            columns.append(ColumnStats(min=low, max=high, null_count=self._nulls[position]))
        return columns


def column_bounds(column: pa.ChunkedArray, type_: DataType) -> Bounds | None:
    """The smallest and the largest value, with text as bytes. None if there are no values, or if
    the type has no order.
    """
    if type_.is_nested or type_.is_binary:
        return None
    if type_.is_float:
        low, high = _float_bounds(column)
    elif type_.is_string:
        low, high = _min_max(column.cast(pa.binary()))
    else:
        ends = pc.min_max(column)
        low, high = column_values(pa.array([ends["min"], ends["max"]], column.type), type_)
    return None if low is None else (low, high)


def _min_max(column: pa.ChunkedArray) -> Bounds:
    ends = pc.min_max(column)
    return ends["min"].as_py(), ends["max"].as_py()


def _float_bounds(column: pa.ChunkedArray) -> Bounds:
    """The bounds in Java's order. In this order, -0.0 is below 0.0, and NaN is above all
    numbers.
    """
    low, high = _min_max(column)
    if low == 0:
        low = -0.0 if _has_negative_zero(column) else 0.0
    if high == 0:
        high = 0.0 if _has_positive_zero(column) else -0.0
    if pc.any(pc.is_nan(column)).as_py():
        high = math.nan
    return low, high


def _has_positive_zero(column: pa.ChunkedArray) -> bool:
    return _has_bits(column, 0)


def _has_negative_zero(column: pa.ChunkedArray) -> bool:
    """Whether a value is -0.0. In the bits of -0.0, only the sign is set."""
    return _has_bits(column, -(2 ** (column.type.bit_width - 1)))


def _has_bits(column: pa.ChunkedArray, bits: int) -> bool:
    """Whether one of the floats has these bits, which are given as an integer."""
    integer = np.int64 if column.type.bit_width == 64 else np.int32
    wanted = from_numbers(np.array([bits], integer))[0]
    return any(pc.any(pc.equal(chunk.view(wanted.type), wanted)).as_py() for chunk in column.chunks)


def merged(bounds: Sequence[Bounds], type_: DataType, longest_text: int | None = None) -> Bounds:
    """The smallest and the largest value among all of `bounds`, with text decoded. Both are None if
    `bounds` is empty, or if a text is not UTF-8.

    Args:
        bounds: the bounds of parts of a column, with text as bytes.
        type_: the type of the column.
        longest_text: the largest size in bytes of a text that may be a bound; None for no limit.
    """
    if not bounds:
        return None, None
    order = partial(value_order, type_) if type_.is_float else None
    low = min((lowest for lowest, _ in bounds), key=order)
    high = max((highest for _, highest in bounds), key=order)
    if not type_.is_string:
        return low, high
    try:
        return _decoded(low, longest_text), _decoded(high, longest_text)
    except UnicodeDecodeError:
        return None, None


def _decoded(encoded: bytes, longest: int | None) -> str | None:
    """The decoded text; None if it has more than `longest` bytes. Raises `UnicodeDecodeError`."""
    decoded = encoded.decode()
    if longest is not None and len(encoded) > longest:
        return None
    return decoded


_INNER_IDS: Final = 536870911
"""The field ids of elements and values are above this number, those of keys below it."""
_IDS_PER_FIELD: Final = 1024


def file_schema(schema: TableSchema) -> pa.Schema:
    """The columns in table order, each with its field id and the nullability of its type. Members
    of ROWs have their own field ids. The ids of elements, keys and values are derived from the
    field around them.
    """
    return pa.schema([_root_field(field) for field in schema.fields])


def _root_field(field: DataField) -> pa.Field:
    """The Arrow field of a column, or of a member of a ROW."""
    return _field_with_id(field.name, field.type, field.id, field.id, 1)


def _field_with_id(name: str, type_: DataType, id_: int, root_id: int, depth: int) -> pa.Field:
    """An Arrow field.

    Args:
        name: the name of the field.
        type_: the type of the field.
        id_: the id of the field.
        root_id: the id of the column or ROW member that the field belongs to, or that the field
            itself is.
        depth: how many collections are around the elements of this field, including the field
            itself.
    """

    def inner(part: str, part_type: DataType) -> pa.Field:
        distance = _IDS_PER_FIELD * root_id + depth
        part_id = _INNER_IDS - distance if part == "key" else _INNER_IDS + distance
        return _field_with_id(part, part_type, part_id, root_id, depth + 1)

    if type_.root is TypeRoot.ROW:
        arrow = pa.struct([_root_field(member) for member in type_.fields])
    else:
        arrow = arrow_type(type_, inner)
    metadata = {b"PARQUET:field_id": str(id_).encode()}
    return pa.field(name, arrow, nullable=type_.nullable, metadata=metadata)


def with_leaves(field: pa.Field, change: Callable[[pa.DataType], pa.DataType]) -> pa.Field:
    """A copy of the field in which the type of each leaf is changed, at any depth."""
    type_ = field.type
    if pa.types.is_map(type_):
        key = with_leaves(type_.key_field, change)
        changed = pa.map_(key, with_leaves(type_.item_field, change))
    elif pa.types.is_list(type_):
        changed = pa.list_(with_leaves(type_.value_field, change))
    elif pa.types.is_struct(type_):
        changed = pa.struct([with_leaves(member, change) for member in type_])
    else:
        changed = change(type_)
    return field.with_type(changed)


def leaf_types(field: pa.Field) -> list[tuple[str, pa.DataType]]:
    """The leaves of a column, with their paths in Parquet files, in the order of the file."""
    return [(path, leaf.type) for path, leaf in leaf_columns(field.name, pa.nulls(0, field.type))]


def leaf_columns(name: str, column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Each leaf of the column, with its path, in the order of the file. Members of NULL rows may
    hold any value.
    """
    type_ = column.type
    if pa.types.is_map(type_):
        yield from leaf_columns(f"{name}.key_value.key", used_elements(column, column.keys))
        yield from leaf_columns(f"{name}.key_value.value", used_elements(column, column.items))
    elif pa.types.is_list(type_):
        yield from leaf_columns(f"{name}.list.element", used_elements(column, column.values))
    elif pa.types.is_struct(type_):
        for position, member in enumerate(type_):
            yield from leaf_columns(f"{name}.{member.name}", column.field(position))
    else:
        yield name, column


def used_elements(column: pa.Array, children: pa.Array) -> pa.Array:
    """The elements that belong to these lists or maps. The column may be a slice, and `children`
    are the elements of the array that the slice was cut from.
    """
    if not len(column):
        return children.slice(0, 0)
    start = column.offsets[0].as_py()
    return children.slice(start, column.offsets[len(column)].as_py() - start)
