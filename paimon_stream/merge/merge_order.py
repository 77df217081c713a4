"""Puts rows in merge order: by key, then by the sequence fields, then by sequence number. If rows
are equal in all of these, the row that comes first in the input is last in the merge order, so this
row wins. It is the row of the file that was committed earlier, as in Java (semantics.md §6.4). Rows
are ordered as in Java: numbers and decimals by value, text (UTF-8) and bytes by unsigned bytes,
times by instant.

*Row actions* say what each row of a key does to one column, for all keys at once. Row actions
depend only on row kinds and sequence groups, never on the column's values. So they are known before
any value is read. The rows of a key before its last `SET` matter only to functions that remember
their first value.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.arrow_types import from_numbers, to_flags, to_numbers
from paimon_stream.merge.spec import DELETE, KIND, SEQUENCE, UPDATE_BEFORE, MergeSpec

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
SortColumn = npt.NDArray[Any]
"""One number per row, of any width. Several such columns, compared one after the other, order rows.
"""

_SMALL_DECIMAL = 18
"""Decimals of at most this many digits fit into 64 bits."""


def flat(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column as a single array."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        return pa.concat_arrays(combined.chunks)
    return combined


def nulls(column: pa.Array) -> Flags | None:
    """Says for each row whether the column is NULL; None if no row is NULL."""
    if not column.null_count:
        return None
    return to_flags(column.is_null())


def sort_columns(column: pa.Array, *, descending: bool = False) -> list[SortColumn]:
    """Columns that order rows in the same way as the given column. NULL comes first.

    Args:
        column: values of any type that is not nested.
        descending: whether the largest value comes first. NULL still comes before all values.

    Raises:
        UnsupportedFeature: for nested types.
    """
    is_null = nulls(column)
    numbers = _sort_numbers(column, exact=False)
    if descending:
        numbers = [~number for number in numbers]
    if is_null is None:
        return numbers
    for number in numbers:
        number[is_null] = 0
    return [~is_null, *numbers]


def ranks(column: pa.Array) -> Ints:
    """One number per row. The numbers have the same order as the column. Equal values have equal
    numbers. The number of a NULL has no meaning.
    """
    columns = _sort_numbers(column, exact=True)
    if len(columns) == 1 and columns[0].dtype != np.uint64:
        return columns[0].astype(np.int64)
    return dense_ranks(columns)


def dense_ranks(columns: Sequence[SortColumn]) -> Ints:
    """One number per row, beginning with 0. The numbers order rows by these columns. Rows that are
    equal in all columns have equal numbers.
    """
    order = np.lexsort(columns[::-1])  # the last of its arrays counts first
    dense = np.empty(len(order), np.int64)
    steps = np.zeros(len(order), np.int64)
    steps[starts_of_equal([column[order] for column in columns])[1:]] = 1
    dense[order] = np.cumsum(steps)
    return dense


def starts_of_equal(columns: Sequence[SortColumn]) -> Ints:
    """The places at which equal rows begin, in one or more sorted columns."""
    rows = len(columns[0])
    if not rows:
        return np.zeros(0, np.int64)
    is_changed = np.zeros(rows, np.bool_)
    is_changed[0] = True
    for column in columns:
        is_changed[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(is_changed)


def _sort_numbers(column: pa.Array, *, exact: bool) -> list[SortColumn]:
    """New arrays of integers that sort as the column does. The number for a NULL is arbitrary. If
    `exact` is set, -0.0 is below 0.0, as `max` and `min` require.
    """
    type_ = column.type
    if pa.types.is_boolean(type_):
        return [to_flags(column).astype(np.int8)]
    if pa.types.is_temporal(type_):
        integer = pa.int64() if type_.bit_width == 64 else pa.int32()
        column = column.view(integer)
    if pa.types.is_integer(column.type):
        return [to_numbers(column).copy()]
    if pa.types.is_floating(type_):
        return [_float_bits(column, exact=exact)]
    if pa.types.is_decimal128(type_):
        return _decimal_words(column)
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return [_text_ranks(column)]
    raise UnsupportedFeature(f"Values of type {type_} cannot be ordered.", type=str(type_))


def _float_bits(column: pa.Array, *, exact: bool) -> SortColumn:
    """The bits of floats, changed so that they sort as the numbers do. Only if `exact` is set, -0.0
    is below 0.0.
    """
    floats = to_numbers(column).copy()
    if not exact:
        floats += 0.0  # turns -0.0 into 0.0
    floats[np.isnan(floats)] = np.nan
    integer = np.int64 if pa.types.is_float64(column.type) else np.int32
    bits = floats.view(integer)
    if np.isnan(floats).any():
        bits = np.where(np.isnan(floats), np.iinfo(bits.dtype).max, bits)  # above all numbers
    # The bits of negative numbers ascend while the numbers descend. So all bits of these numbers
    # are inverted, except the sign.
    ordered: SortColumn = np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)
    return ordered


def _decimal_words(column: pa.Array) -> list[SortColumn]:
    """The 64-bit words of decimals. Each decimal has 128 bits. For small decimals, the lower word
    is enough.
    """
    data = column.buffers()[1]
    words = np.frombuffer(data, np.int64, 2 * (column.offset + len(column)))
    pairs = words[2 * column.offset :].reshape(-1, 2)
    if column.type.precision <= _SMALL_DECIMAL:
        return [pairs[:, 0].copy()]
    return [pairs[:, 1].copy(), pairs[:, 0].copy().view(np.uint64)]


def _text_ranks(column: pa.Array) -> SortColumn:
    """Dense ranks of texts. Each distinct text is compared only once. Arrow compares texts byte by
    byte.
    """
    if column.null_count == len(column):
        return np.zeros(len(column), np.int64)
    encoded = column.dictionary_encode()
    ranked = pc.rank(encoded.dictionary, sort_keys="ascending", tiebreaker="dense")
    text_of_row = to_numbers(encoded.indices)
    is_null = nulls(encoded.indices)
    if is_null is not None:
        text_of_row = np.where(is_null, 0, text_of_row)
    rank_of_row: Ints = to_numbers(ranked).astype(np.int64)[text_of_row]
    return rank_of_row


ActionCodes = npt.NDArray[np.int8]
"""For each row, one of the five codes below."""

SKIP: Final = np.int8(0)
"""The row does not change this column."""

SET: Final = np.int8(1)
"""The row's value replaces the held value, even if it is NULL."""

ADD: Final = np.int8(2)
"""The row's value is added after the held value."""

OUT_OF_ORDER: Final = np.int8(3)
"""The row's value is added before the held value, because its sequence group has seen a newer
row.
"""

RETRACT: Final = np.int8(4)
"""The row's value is retracted."""


@dataclass(frozen=True)
class OrderedRows:
    """Rows of a table in merge order. The rows of a key are next to each other, the oldest first. A
    *place* is an index into `order`.

    Attributes:
        order: the positions of the rows in the table.
        starts: the places at which a key begins.
        kinds: the row kinds in the order of `order`.
    """

    order: Ints
    starts: Ints
    kinds: npt.NDArray[np.int8]

    @cached_property
    def ends(self) -> Ints:
        """The place in `order` after the last row of each key."""
        return np.append(self.starts[1:], len(self.order))

    @cached_property
    def sizes(self) -> Ints:
        """The number of rows of each key."""
        return self.ends - self.starts

    @cached_property
    def key_of(self) -> Ints:
        """For each row in `order`, the position of its key in `starts`."""
        return np.repeat(np.arange(len(self.starts)), self.sizes)

    @cached_property
    def retracts(self) -> Flags:
        """Says for each row in `order` whether it is -U or -D."""
        is_retracting: Flags = (self.kinds == UPDATE_BEFORE) | (self.kinds == DELETE)
        return is_retracting

    def last(self, wanted: Flags) -> Ints:
        """For each key, the last place in `order` where `wanted` is true; -1 if there is no such
        place.
        """
        return np.maximum.reduceat(np.where(wanted, np.arange(len(wanted)), -1), self.starts)

    def first(self, wanted: Flags) -> Ints:
        """For each key, the first place in `order` where `wanted` is true; -1 if there is no such
        place.
        """
        rows = len(wanted)
        places: Ints = np.minimum.reduceat(np.where(wanted, np.arange(rows), rows), self.starts)
        return np.where(places == rows, -1, places)

    def select(self, wanted: Flags) -> "OrderedRows":
        """The rows for which `wanted` is true. `wanted` has one value for each place in `order`.
        Keys without such a row are left out.
        """
        return OrderedRows(
            self.order[wanted], starts_of_equal([self.key_of[wanted]]), self.kinds[wanted]
        )

    def of_lowest_levels(self, levels: Ints) -> "OrderedRows":
        """All rows on level 0, and some rows of higher levels: for each key, its rows on the lowest
        of its higher levels. `levels` has the level of each row of the table.
        """
        wanted = (levels[self.order] <= 0) | self._on_lowest(levels, from_level=1)
        return self if wanted.all() else self.select(wanted)

    def of_level(self, levels: Ints, from_level: int) -> Ints:
        """For each key, the position in the table of one of its rows: of the key's rows on
        `from_level` and higher levels, the row on the lowest level. -1 if the key has no such row.
        `levels` has the level of each row of the table.
        """
        places = self.last(self._on_lowest(levels, from_level))
        return np.where(places < 0, -1, self.order[places])

    def _on_lowest(self, levels: Ints, from_level: int) -> Flags:
        """Says for each row in `order` whether it is on the lowest level of its key. Only
        `from_level` and higher levels are considered.
        """
        level_of = levels[self.order]
        counted = np.where(level_of >= from_level, level_of, np.iinfo(level_of.dtype).max)
        lowest = np.minimum.reduceat(counted, self.starts)
        is_lowest: Flags = (level_of >= from_level) & (level_of == lowest[self.key_of])
        return is_lowest

    def any(self, wanted: Flags) -> Flags:
        """Says for each key whether `wanted` is true for at least one of its rows. `wanted` has one
        value for each place in `order`.
        """
        return np.logical_or.reduceat(wanted, self.starts)


def in_merge_order(spec: MergeSpec, table: pa.Table) -> OrderedRows:
    """The rows of a table in merge order. All of the rows are in one bucket."""
    keys = _key_columns(spec, table)
    sequence_fields = [
        sort_column
        for name in spec.sequence_fields
        for sort_column in sort_columns(flat(table.column(name)), descending=spec.descending)
    ]
    sequence = to_numbers(flat(table.column(SEQUENCE)))
    order = _order([*keys, *sequence_fields], sequence)
    starts = starts_of_equal([key[order] for key in keys])
    # Rows can be equal only if a key has several rows and the numbers do not all ascend.
    has_several = len(starts) < len(order)
    if has_several:
        all_ascend = (sequence[1:] > sequence[:-1]).all()
        if not all_ascend:
            order = _first_given_last(order, [*keys, *sequence_fields, sequence])
    return OrderedRows(order, starts, to_numbers(flat(table.column(KIND)))[order])


def in_key_order(spec: MergeSpec, table: pa.Table) -> tuple[pa.Table, Ints]:
    """The rows sorted by key. The rows of one key keep the order that they have in the table.

    Returns:
        The rows, and the places at which the rows of each key begin.
    """
    keys = _key_columns(spec, table)
    order = np.lexsort(keys[::-1])
    return table.take(from_numbers(order)), starts_of_equal([key[order] for key in keys])


def _key_columns(spec: MergeSpec, table: pa.Table) -> list[SortColumn]:
    """The columns that order the rows of a table by key."""
    return [
        sort_column for name in spec.keys for sort_column in sort_columns(flat(table.column(name)))
    ]


def _order(columns: list[SortColumn], sequence: Ints) -> Ints:
    """The order of rows by these columns, then by sequence number. The sort is stable, so sequence
    numbers that already ascend need no sorting.
    """
    is_ascending = len(sequence) < 2 or bool((sequence[1:] >= sequence[:-1]).all())
    if not is_ascending:
        columns = [*columns, sequence]
    if len(columns) == 1:
        return np.argsort(columns[0], kind="stable")
    return np.lexsort(columns[::-1])


def _first_given_last(order: Ints, columns: list[SortColumn]) -> Ints:
    """Reverses the order of rows that are equal in all columns."""
    is_same = np.ones(max(len(order) - 1, 0), np.bool_)
    for column in columns:
        ordered = column[order]
        is_same &= ordered[1:] == ordered[:-1]
        if not is_same.any():
            return order
    tie_of_row = np.concatenate(([0], np.cumsum(~is_same)))
    return order[np.lexsort((-np.arange(len(order)), tie_of_row))]


@dataclass(frozen=True)
class RowActions:
    """What each row of a table does to one column.

    Attributes:
        ordered: the rows in merge order.
        codes: the action of each row, in merge order.
    """

    ordered: OrderedRows
    codes: ActionCodes

    @cached_property
    def since_set(self) -> "RowActions":
        """The same actions, except that rows before a key's last `SET` are skipped."""
        is_set = self.codes == SET
        if not is_set.any():
            return self
        is_live = np.arange(len(is_set)) >= self.ordered.last(is_set)[self.ordered.key_of]
        return RowActions(self.ordered, np.where(is_live, self.codes, SKIP))

    @cached_property
    def adds(self) -> Flags:
        """Says for each row in merge order whether its value is added, before or after the held
        value.
        """
        is_added: Flags = (self.codes == ADD) | (self.codes == OUT_OF_ORDER)
        return is_added

    @cached_property
    def retracts(self) -> Flags:
        """Says for each row in merge order whether its value is retracted."""
        is_retracted: Flags = self.codes == RETRACT
        return is_retracted

    def valid(self, column: pa.Array) -> Flags:
        """Says for each row in merge order whether a value that is not NULL is set, added or
        retracted.
        """
        is_null = nulls(column)
        is_valid: Flags = self.codes != SKIP
        if is_null is not None:
            is_valid &= ~is_null[self.ordered.order]
        return is_valid

    def previous(self, wanted: Flags) -> Ints:
        """For each row in merge order, the last earlier place of its key where `wanted` is true; -1
        if there is no such place.
        """
        # The running maximum of the wanted places is moved by one row, so that a row does not find
        # itself. The place that is found may belong to an earlier key.
        places = np.full(len(wanted), -1)
        np.maximum.accumulate(np.where(wanted, np.arange(len(wanted)), -1)[:-1], out=places[1:])
        return np.where(places < self.ordered.starts[self.ordered.key_of], -1, places)


def picked(column: pa.Array, ordered: OrderedRows, places: Ints) -> pa.Array:
    """The values at these places of the merge order; NULL for -1."""
    is_missing = places < 0
    rows = ordered.order[places]
    mask = is_missing if is_missing.any() else None
    return column.take(pa.array(rows, mask=mask))
