"""Truncates the bounds of columns, which are in the internal form of `format/binary_row.py`, and
encodes them as rows (format.md §4.5). Readers skip files and manifests by these statistics, so a
bound that could be wrong is left out.
"""

import math
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from paimon_stream.errors import FormatError, InvalidOption, UnsupportedFeature
from paimon_stream.format.binary_row import FIXED, deserialize, deserialize_partition, serialize
from paimon_stream.format.entries import SimpleStats
from paimon_stream.format.json_text import integer, parse_json, understanding
from paimon_stream.format.types import DataField, DataType, TypeRoot

RowOrder = Callable[[bytes], Any]
"""Maps a serialized row to a value that sorts as the row does."""

_ROW_OF_ONE: Final = (1).to_bytes(4, "big")
_NUMBER_AT: Final = 12  # after the arity and a header of eight bytes
_INTEGERS: Final = (
    TypeRoot.TINYINT,
    TypeRoot.SMALLINT,
    TypeRoot.INT,
    TypeRoot.DATE,
    TypeRoot.BIGINT,
)


def row_order(types: Sequence[DataType]) -> RowOrder:
    """A function that returns a key by which serialized rows of these types are sorted. The
    function raises `FormatError` if the bytes are not such a row. For types without an order,
    `row_order` raises `UnsupportedFeature`.
    """
    for type_ in types:
        if type_.is_nested:
            raise UnsupportedFeature(
                f"Rows of {type_} have no order, so they cannot be keys.", type=str(type_)
            )

    def order(row: bytes) -> Any:
        return tuple(map(value_order, types, deserialize(types, row)))

    if len(types) == 1 and types[0].root in _INTEGERS:
        return _order_of_integer(FIXED[types[0].root], order)
    return order


def _order_of_integer(number: struct.Struct, general_order: RowOrder) -> RowOrder:
    """A function that returns the sort key of a row of one integer. The key is that of
    `general_order`, but is computed several times faster.
    """

    def order(row: bytes) -> Any:
        has_shape = row[:4] == _ROW_OF_ONE and len(row) == _NUMBER_AT + 8
        # The second byte of the header has the null bit of the first column.
        if has_shape and not row[5] & 1:
            (value,) = number.unpack_from(row, _NUMBER_AT)
            return ((True, value),)
        return general_order(row)

    return order


def value_order(type_: DataType, value: Any) -> Any:
    """A key that sorts like the values of the type."""
    if value is None:
        return (False,)
    if type_.is_string:
        return (True, value.encode())
    if type_.is_float:
        # NaN comes last, and -0.0 before 0.0.
        if math.isnan(value):
            return (True, True, 0.0, 1.0)
        return (True, False, value, math.copysign(1.0, value))
    return (True, value)


_MAX_CODE_POINT: Final = 0x10FFFF
_FIRST_SURROGATE: Final = 0xD800
_AFTER_SURROGATES: Final = 0xE000
_TRUNCATE: Final = re.compile(r"truncate\(([0-9]{1,9})\)")


class ColumnStats(NamedTuple):
    """Statistics of one column's values. A part that is not known is None.

    Attributes:
        min: the smallest value.
        max: the largest value.
        null_count: the number of NULLs.
    """

    min: Any
    max: Any
    null_count: int | None


NO_STATS: Final = ColumnStats(min=None, max=None, null_count=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsMode:
    """A mode of `metadata.stats-mode`.

    Attributes:
        kind: `none`, `counts`, `truncate` or `full`.
        length: for truncate, the number of code points of a bound that are kept.
    """

    kind: str
    length: int = 0

    def apply(self, stats: ColumnStats) -> ColumnStats:
        """The part of exact statistics that this mode keeps. Only strings are truncated."""
        match self.kind:
            case "none":
                return NO_STATS
            case "counts":
                return stats._replace(min=None, max=None)
            case "truncate" if isinstance(stats.min, str) or isinstance(stats.max, str):
                upper = None if stats.max is None else _truncate_upper(stats.max, self.length)
                has_both_bounds = upper is not None and stats.min is not None
                lower = stats.min[: self.length] if has_both_bounds else None
                return ColumnStats(min=lower, max=upper, null_count=stats.null_count)
            case _:
                return stats


def parse_mode(mode: str) -> StatsMode:
    """Reads `none`, `counts`, `full` or `truncate(16)`, in any letter case. Raises
    `InvalidOption`.
    """
    word = mode.strip().lower()
    truncate = _TRUNCATE.fullmatch(word)
    if truncate and int(truncate[1]) > 0:
        return StatsMode(kind="truncate", length=int(truncate[1]))
    if word in ("none", "counts", "full"):
        return StatsMode(kind=word)
    raise InvalidOption(
        f"{mode!r} is not a statistics mode. "
        "Use none, counts, full or truncate(n) with n of 1 or more.",
        option="metadata.stats-mode",
        value=mode,
    )


def _truncate_upper(value: str, length: int) -> str | None:
    """An upper bound of at most `length` code points; None if there is no such bound. Of the first
    `length` code points, the last one that can be increased is increased, and the code points after
    it are cut. Surrogates are skipped. Java does not skip them, so its bound is too small.
    """
    if len(value) <= length:
        return value
    for end in range(length, 0, -1):
        following = ord(value[end - 1]) + 1
        if following == _FIRST_SURROGATE:
            following = _AFTER_SURROGATES
        if following <= _MAX_CODE_POINT:
            return value[: end - 1] + chr(following)
    return None


def encode_stats(
    fields: Sequence[DataField], column_stats: Sequence[ColumnStats], *, dense: bool
) -> tuple[SimpleStats, tuple[str, ...] | None]:
    """Encodes the statistics of columns in the form in which they are stored.

    Args:
        fields: the columns.
        column_stats: the statistics of each column.
        dense: whether columns without any statistics are left out (`metadata.stats-dense-store`).

    Returns:
        The statistics, and the names of the columns that they cover (None for all).
    """
    pairs = list(zip(fields, column_stats, strict=True))
    names: tuple[str, ...] | None = None
    if dense and NO_STATS in column_stats:
        pairs = [(column, stats) for column, stats in pairs if stats != NO_STATS]
        names = tuple(column.name for column, _ in pairs)
    types = [column.type for column, _ in pairs]
    return _simple_stats(types, [stats for _, stats in pairs]), names


def _simple_stats(types: Sequence[DataType], column_stats: Sequence[ColumnStats]) -> SimpleStats:
    return SimpleStats(
        min_values=serialize(types, [stats.min for stats in column_stats]),
        max_values=serialize(types, [stats.max for stats in column_stats]),
        null_counts=tuple(stats.null_count for stats in column_stats),
    )


def decode_stats(
    fields: Sequence[DataField], stats: SimpleStats, columns: Sequence[str] | None = None
) -> dict[str, ColumnStats]:
    """The statistics of each column, by name. Columns without statistics are left out.

    Args:
        fields: the columns of the schema with which the file was written.
        stats: the statistics of the file.
        columns: the names of the columns that the statistics cover (`value_stats_cols` of the
            file); None for all.

    Raises:
        FormatError: the statistics do not fit the columns.
    """
    covered = list(fields)
    if columns is not None:
        by_name = {column.name: column for column in fields}
        unknown = [name for name in columns if name not in by_name]
        if unknown:
            raise FormatError(
                f"Statistics name columns that the schema lacks: {', '.join(unknown)}."
            )
        covered = [by_name[name] for name in columns]
    # Rows without columns mean that there are no statistics.
    if stats.min_values[:4] == bytes(4) and not stats.null_counts:
        return {}
    column_stats = _column_stats([column.type for column in covered], stats)
    names = [column.name for column in covered]
    return dict(zip(names, column_stats, strict=True))


def _column_stats(types: Sequence[DataType], stats: SimpleStats) -> list[ColumnStats]:
    smallest = deserialize(types, stats.min_values)
    largest = deserialize(types, stats.max_values)
    null_counts = stats.null_counts or (None,) * len(types)
    if len(null_counts) != len(types):
        raise FormatError(
            f"Statistics of {len(types)} columns have {len(null_counts)} null counts."
        )
    return list(map(ColumnStats, smallest, largest, null_counts))


def schema_of_statistics(data: bytes, path: str) -> int:
    """The id of the schema of a file of table statistics, to which the attribute `statistics` of a
    snapshot refers. Raises `CorruptMetadata`.
    """
    with understanding(path, len(data), "a file of table statistics", "Run ANALYZE again."):
        return integer(parse_json(data)["schemaId"])


def partition_stats(types: Sequence[DataType], partitions: Iterable[bytes]) -> SimpleStats:
    """The exact statistics of partitions. A partition may come several times: once for each entry
    of a manifest, or as often as a `Counter` says. Raises `FormatError`.
    """
    rows = [
        (deserialize_partition(types, partition), count)
        for partition, count in Counter(partitions).items()
    ]
    columns = []
    for i, type_ in enumerate(types):
        values = [row[i] for row, _ in rows if row[i] is not None]
        nulls = sum(count for row, count in rows if row[i] is None)
        if not values or type_.is_nested or type_.is_binary:
            columns.append(ColumnStats(min=None, max=None, null_count=nulls))
            continue
        values.sort(key=partial(value_order, type_))
        columns.append(ColumnStats(min=values[0], max=values[-1], null_count=nulls))
    return _simple_stats(types, columns)


def partition_bounds(types: Sequence[DataType], stats: SimpleStats) -> list[ColumnStats] | None:
    """The statistics of each partition column in a manifest; None if the manifest has none. Raises
    `FormatError`.
    """
    if not types or stats.min_values[:4] == bytes(4):
        return None
    return _column_stats(types, stats)


def may_hold(type_: DataType, stats: ColumnStats, value: Any) -> bool:
    """Whether a column with these statistics can have the value. Also True if the statistics do not
    show that.
    """
    if value is None:
        return stats.null_count is None or stats.null_count > 0
    if stats.min is None or stats.max is None:
        return True
    return bool(
        value_order(type_, stats.min) <= value_order(type_, value) <= value_order(type_, stats.max)
    )
