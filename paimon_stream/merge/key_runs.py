"""Rows in merge order: by key, then by the sequence fields, then by sequence number. If rows are equal in all of these,
the row that was given first comes last and so wins (semantics.md §6.4). *Row actions* say what each row of a key does
to one column (docs/architecture.md, "Merging rows")."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_stream.merge.functions import DELETE, UPDATE_BEFORE
from paimon_stream.merge.order import Flags, Ints, Part, flat, nulls, run_starts, sort_columns
from paimon_stream.merge.spec import KIND, SEQUENCE, MergeSpec

ActionCodes = npt.NDArray[np.int8]
"""For each row, one of the five codes below."""

SKIP: Final = np.int8(0)
"""The row does not change this column."""

SET: Final = np.int8(1)
"""The row's value replaces the held value, even if it is NULL."""

ADD: Final = np.int8(2)
"""The row's value is added after the held value."""

OUT_OF_ORDER: Final = np.int8(3)
"""The row's value is added before the held value, because its sequence group has seen a newer row."""

RETRACT: Final = np.int8(4)
"""The row's value is retracted."""


@dataclass(frozen=True)
class KeyRuns:
    """Rows of a table in merge order. `order` are their positions in the table, `starts` the places in it where a key
    begins, `kinds` the row kinds along it."""

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

    @cached_property
    def deletes(self) -> Flags:
        """For each row along `order`, whether it is -D."""
        made: Flags = self.kinds == DELETE
        return made

    def last(self, wanted: Flags) -> Ints:
        """For each key, the last place along `order` where `wanted` is true, or -1 if there is none."""
        return np.maximum.reduceat(np.where(wanted, np.arange(len(wanted)), -1), self.starts)

    def first(self, wanted: Flags) -> Ints:
        """For each key, the first place along `order` where `wanted` is true, or -1 if there is none."""
        rows = len(wanted)
        found: Ints = np.minimum.reduceat(np.where(wanted, np.arange(rows), rows), self.starts)
        return np.where(found == rows, -1, found)

    def select(self, wanted: Flags) -> "KeyRuns":
        """The rows for which `wanted`, along `order`, is true. Keys without such a row are gone."""
        order, key_of = self.order[wanted], self.key_of[wanted]
        starts = run_starts([key_of]) if len(key_of) else np.zeros(0, np.int64)
        return KeyRuns(order, starts, self.kinds[wanted])

    def of_lowest_levels(self, levels: Ints) -> "KeyRuns":
        """Without a key's rows on levels from 1 on, except those on its lowest such level. `levels` has one per row."""
        wanted = (levels[self.order] <= 0) | self._on_lowest(levels, 1)
        return self if wanted.all() else self.select(wanted)

    def of_level(self, levels: Ints, least: int) -> Ints:
        """For each key, the position in the table of its row on the lowest level from `least` on, or -1."""
        places = self.last(self._on_lowest(levels, least))
        return np.where(places < 0, -1, self.order[places])

    def _on_lowest(self, levels: Ints, least: int) -> Flags:
        along = levels[self.order]
        above = np.where(along >= least, along, np.iinfo(along.dtype).max)
        made: Flags = (along >= least) & (along == np.minimum.reduceat(above, self.starts)[self.key_of])
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
    """The rows by key, those of one key in the given order, and the places where the rows of each key begin."""
    keys = [part for name in spec.keys for part in sort_columns(flat(table.column(name)))]
    order = np.lexsort(keys[::-1])
    return table.take(pa.array(order)), run_starts([part[order] for part in keys])


def _order(parts: list[Part], sequence: Ints) -> Ints:
    """The sorted order. The sort is stable, so sequence numbers that already ascend need no sorting."""
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
        """For each row along the order, whether its value is added, before or after the held value."""
        made: Flags = (self.codes == ADD) | (self.codes == OUT_OF_ORDER)
        return made

    @cached_property
    def retracts(self) -> Flags:
        """For each row along the order, whether its value is retracted."""
        made: Flags = self.codes == RETRACT
        return made

    def valid(self, column: pa.Array) -> Flags:
        """For each row along the order, whether a value that is not NULL is set, added or retracted."""
        null = nulls(column)
        counts: Flags = self.codes != SKIP
        if null is not None:
            counts &= ~null[self.runs.order]
        return counts

    def previous(self, wanted: Flags) -> Ints:
        """For each row along the order, the last earlier place of its key where `wanted` is true, or -1."""
        found = np.full(len(wanted), -1)
        np.maximum.accumulate(np.where(wanted, np.arange(len(wanted)), -1)[:-1], out=found[1:])
        return np.where(found < self.runs.starts[self.runs.key_of], -1, found)


def picked(column: pa.Array, runs: KeyRuns, places: Ints) -> pa.Array:
    """The values at these places along the order; NULL for -1."""
    missing = places < 0
    rows = runs.order[places]
    return column.take(pa.array(rows, mask=missing) if missing.any() else pa.array(rows))
