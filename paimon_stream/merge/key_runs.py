"""Rows in merge order: by key, then by the sequence fields, then by sequence number. If rows are
equal in all of these, the row that was given first comes last and so wins. That is the row of the
file that was committed earlier, as in Java (semantics.md §6.4). Rows are ordered as in Java:
numbers and decimals by value, text (UTF-8) and bytes by unsigned bytes, times by instant.

*Row actions* say what each row of a key does to one column, for all keys at once. They depend only
on row kinds and sequence groups, never on the column's values. So they are known before any value
is read. The rows of a key before its last `SET` matter only to functions that remember their first
value.
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
from paimon_stream.merge.spec import DELETE, KIND, SEQUENCE, UPDATE_BEFORE, MergeSpec

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Part = npt.NDArray[Any]
"""Numbers of any width, one per row."""

_SMALL_DECIMAL = 18


def flat(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column as one array."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    made = column.combine_chunks()
    return pa.concat_arrays(made.chunks) if isinstance(made, pa.ChunkedArray) else made


def nulls(column: pa.Array) -> Flags | None:
    """Where the column is NULL; None if nowhere."""
    if not column.null_count:
        return None
    found: Flags = column.is_null().to_numpy(zero_copy_only=False)
    return found


def sort_columns(column: pa.Array, *, descending: bool = False) -> list[Part]:
    """Arrays that, compared one by one, order rows as the column does. Raises `UnsupportedFeature`
    for nested types.
    """
    null = nulls(column)
    parts = _parts(column, exact=False)
    if descending:
        parts = [~part for part in parts]
    if null is None:
        return parts
    for part in parts:
        part[null] = 0
    return [~null, *parts]


def ranks(column: pa.Array) -> Ints:
    """One number per row, in the order of the column; equal if the values are. For NULL, it has no
    meaning.
    """
    parts = _parts(column, exact=True)
    if len(parts) == 1 and parts[0].dtype != np.uint64:
        return parts[0].astype(np.int64)
    return dense_ranks(parts)


def dense_ranks(parts: Sequence[Part]) -> Ints:
    """One number per row, from 0, that orders rows by these parts. Rows with equal parts have equal
    numbers.
    """
    order = np.lexsort(parts[::-1])
    made = np.empty(len(order), np.int64)
    starts = np.zeros(len(order), np.int64)
    starts[run_starts([part[order] for part in parts])[1:]] = 1
    made[order] = np.cumsum(starts)
    return made


def run_starts(parts: Sequence[Part]) -> Ints:
    """The places where runs of equal rows begin, in one or more sorted columns."""
    rows = len(parts[0])
    if not rows:
        return np.zeros(0, np.int64)
    changed = np.zeros(rows, np.bool_)
    changed[0] = True
    for part in parts:
        changed[1:] |= part[1:] != part[:-1]
    return np.flatnonzero(changed)


def _parts(column: pa.Array, exact: bool) -> list[Part]:
    """New arrays of integers, with anything for NULL. With `exact`, -0.0 is below 0.0, as `max` and
    `min` require.
    """
    type_ = column.type
    if pa.types.is_boolean(type_):
        return [column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int8)]
    if pa.types.is_temporal(type_):
        column = column.view(pa.int64() if type_.bit_width == 64 else pa.int32())
    if pa.types.is_integer(column.type):
        return [np.array(column.fill_null(0).to_numpy(zero_copy_only=False))]
    if pa.types.is_floating(type_):
        return [_float_bits(column, exact)]
    if pa.types.is_decimal128(type_):
        return _decimal_words(column)
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return [_text_ranks(column)]
    raise UnsupportedFeature(f"Values of type {type_} cannot be ordered.", type=str(type_))


def _float_bits(column: pa.Array, exact: bool) -> Part:
    """The bits of floats, changed so that they sort as the numbers do."""
    wide = pa.types.is_float64(column.type)
    floats = np.array(column.fill_null(0.0).to_numpy(zero_copy_only=False))
    if not exact:
        floats += 0.0
    floats[np.isnan(floats)] = np.nan
    bits = floats.view(np.int64 if wide else np.int32)
    if np.isnan(floats).any():
        bits = np.where(np.isnan(floats), np.iinfo(bits.dtype).max, bits)
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _decimal_words(column: pa.Array) -> list[Part]:
    data = column.buffers()[1]
    pairs = np.frombuffer(data, np.int64, 2 * (column.offset + len(column)))[
        2 * column.offset :
    ].reshape(-1, 2)
    if column.type.precision <= _SMALL_DECIMAL:
        return [pairs[:, 0].copy()]
    return [pairs[:, 1].copy(), pairs[:, 0].copy().view(np.uint64)]


def _text_ranks(column: pa.Array) -> Part:
    """Dense ranks of texts. Each distinct text is compared only once. Arrow compares texts by
    bytes.
    """
    if column.null_count == len(column):
        return np.zeros(len(column), np.int64)
    found = column.dictionary_encode()
    ranked = pc.rank(found.dictionary, sort_keys="ascending", tiebreaker="dense")
    places = found.indices.fill_null(0).to_numpy(zero_copy_only=False)
    made: Ints = ranked.to_numpy(zero_copy_only=False).astype(np.int64)[places]
    return made


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
class KeyRuns:
    """Rows of a table in merge order. `order` are their positions in the table, `starts` the places
    in it where a key begins, `kinds` the row kinds along it.
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
        """For each row along `order`, the position of its key in `starts`."""
        return np.repeat(np.arange(len(self.starts)), self.sizes)

    @cached_property
    def retracts(self) -> Flags:
        """For each row along `order`, whether it is -U or -D."""
        made: Flags = (self.kinds == UPDATE_BEFORE) | (self.kinds == DELETE)
        return made

    def last(self, wanted: Flags) -> Ints:
        """For each key, the last place along `order` where `wanted` is true, or -1 if there is
        none.
        """
        return np.maximum.reduceat(np.where(wanted, np.arange(len(wanted)), -1), self.starts)

    def first(self, wanted: Flags) -> Ints:
        """For each key, the first place along `order` where `wanted` is true, or -1 if there is
        none.
        """
        rows = len(wanted)
        found: Ints = np.minimum.reduceat(np.where(wanted, np.arange(rows), rows), self.starts)
        return np.where(found == rows, -1, found)

    def select(self, wanted: Flags) -> "KeyRuns":
        """The rows for which `wanted`, along `order`, is true. Keys without such a row are gone."""
        order, key_of = self.order[wanted], self.key_of[wanted]
        return KeyRuns(order, run_starts([key_of]), self.kinds[wanted])

    def of_lowest_levels(self, levels: Ints) -> "KeyRuns":
        """Without a key's rows on levels from 1 on, except those on its lowest such level. `levels`
        has one per row.
        """
        wanted = (levels[self.order] <= 0) | self._on_lowest(levels, 1)
        return self if wanted.all() else self.select(wanted)

    def of_level(self, levels: Ints, least: int) -> Ints:
        """For each key, the position in the table of its row on the lowest level from `least` on,
        or -1.
        """
        places = self.last(self._on_lowest(levels, least))
        return np.where(places < 0, -1, self.order[places])

    def _on_lowest(self, levels: Ints, least: int) -> Flags:
        along = levels[self.order]
        above = np.where(along >= least, along, np.iinfo(along.dtype).max)
        made: Flags = (along >= least) & (
            along == np.minimum.reduceat(above, self.starts)[self.key_of]
        )
        return made

    def any(self, wanted: Flags) -> Flags:
        """For each key, whether `wanted`, along `order`, is true for one of its rows."""
        return np.logical_or.reduceat(wanted, self.starts)


def sorted_runs(spec: MergeSpec, table: pa.Table) -> "KeyRuns":
    """The rows of a table, all of one bucket, in merge order."""
    keys = [part for name in spec.keys for part in sort_columns(flat(table.column(name)))]
    newest = [
        part
        for name in spec.sequence_fields
        for part in sort_columns(flat(table.column(name)), descending=spec.descending)
    ]
    sequence = flat(table.column(SEQUENCE)).to_numpy(zero_copy_only=False)
    order = _order([*keys, *newest], sequence)
    starts = run_starts([part[order] for part in keys])
    if len(starts) < len(order) and not (sequence[1:] > sequence[:-1]).all():
        order = _older_last(order, [*keys, *newest, sequence])
    return KeyRuns(order, starts, flat(table.column(KIND)).to_numpy(zero_copy_only=False)[order])


def in_key_order(spec: MergeSpec, table: pa.Table) -> tuple[pa.Table, Ints]:
    """The rows by key, those of one key in the given order, and the places where the rows of each
    key begin.
    """
    keys = [part for name in spec.keys for part in sort_columns(flat(table.column(name)))]
    order = np.lexsort(keys[::-1])
    return table.take(pa.array(order)), run_starts([part[order] for part in keys])


def _order(parts: list[Part], sequence: Ints) -> Ints:
    """The sorted order. The sort is stable, so sequence numbers that already ascend need no
    sorting.
    """
    rising = len(sequence) < 2 or bool((sequence[1:] >= sequence[:-1]).all())
    columns = parts if rising else [*parts, sequence]
    return np.argsort(columns[0], kind="stable") if len(columns) == 1 else np.lexsort(columns[::-1])


def _older_last(order: Ints, parts: list[Part]) -> Ints:
    """Reverses the order of rows that are equal in all columns of `parts`."""
    same = np.ones(max(len(order) - 1, 0), np.bool_)
    for part in parts:
        ordered = part[order]
        same &= ordered[1:] == ordered[:-1]
        if not same.any():
            return order
    tied = np.concatenate(([0], np.cumsum(~same)))
    return order[np.lexsort((-np.arange(len(order)), tied))]


@dataclass(frozen=True)
class RowActions:
    """Rows of a table in the order of `runs`, and the action of each."""

    runs: KeyRuns
    codes: ActionCodes

    @cached_property
    def since_set(self) -> "RowActions":
        """The same actions, but rows before a key's last `SET` are skipped."""
        sets = self.codes == SET
        if not sets.any():
            return self
        live = np.arange(len(sets)) >= self.runs.last(sets)[self.runs.key_of]
        return RowActions(self.runs, np.where(live, self.codes, SKIP))

    @cached_property
    def adds(self) -> Flags:
        """For each row along the order, whether its value is added, before or after the held
        value.
        """
        made: Flags = (self.codes == ADD) | (self.codes == OUT_OF_ORDER)
        return made

    @cached_property
    def retracts(self) -> Flags:
        """For each row along the order, whether its value is retracted."""
        made: Flags = self.codes == RETRACT
        return made

    def valid(self, column: pa.Array) -> Flags:
        """For each row along the order, whether a value that is not NULL is set, added or
        retracted.
        """
        null = nulls(column)
        counts: Flags = self.codes != SKIP
        if null is not None:
            counts &= ~null[self.runs.order]
        return counts

    def previous(self, wanted: Flags) -> Ints:
        """For each row along the order, the last earlier place of its key where `wanted` is true,
        or -1.
        """
        found = np.full(len(wanted), -1)
        np.maximum.accumulate(np.where(wanted, np.arange(len(wanted)), -1)[:-1], out=found[1:])
        return np.where(found < self.runs.starts[self.runs.key_of], -1, found)


def picked(column: pa.Array, runs: KeyRuns, places: Ints) -> pa.Array:
    """The values at these places along the order; NULL for -1."""
    missing = places < 0
    rows = runs.order[places]
    return column.take(pa.array(rows, mask=missing) if missing.any() else pa.array(rows))
