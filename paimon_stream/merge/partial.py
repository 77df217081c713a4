"""The engine partial-update: values that are not NULL replace those before, column by column, or sequence
group by sequence group (semantics.md §6.5).

A group's columns change together, by rows whose ordering columns are no smaller than those held; a row whose
ordering columns are all NULL leaves the group as it is. Where a key begins with a -U or -D, its values are
what later rows build on, and so are those of a -D that removes the row (Java has it so).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_stream.errors import InvalidData
from paimon_stream.merge.aggregate import folded, patched
from paimon_stream.merge.folds import picked, valid
from paimon_stream.merge.one_by_one import fold_of
from paimon_stream.merge.order import Flags, Ints, flat, nulls, run_starts, sort_columns
from paimon_stream.merge.runs import Runs
from paimon_stream.merge.spec import KIND, SEQUENCE, ColumnRule, MergeSpec

__all__ = ["partially_updated"]

_INSERT, _DELETE = 0, 3


def partially_updated(spec: MergeSpec, table: pa.Table, runs: Runs) -> list[pa.Array]:
    """The table's columns, one row per key; every key has several rows. Raises `InvalidData`."""
    return _Groups(spec, table, runs).columns() if spec.groups else _plain(spec, table, runs)


def _plain(spec: MergeSpec, table: pa.Table, runs: Runs) -> list[pa.Array]:
    """Without sequence groups."""
    adds = ~runs.retracts
    if not adds.all() and not (spec.ignore_delete or spec.remove_on_delete):
        raise InvalidData(
            f"{spec.table} has the merge engine partial-update and got -U or -D rows, which it does not "
            "accept as it is. Filter them out, or set ignore-delete, or "
            "partial-update.remove-record-on-delete, or sequence groups.",
            table=spec.table,
        )
    counts = adds.copy()
    counts[runs.starts] = True
    newest = runs.ends - 1
    none = np.zeros(len(runs.starts), np.bool_)
    kept = none if adds.all() else runs.last(adds) < 0
    if spec.remove_on_delete:
        begin = runs.last(runs.deletes)
        counts |= runs.deletes
        counts &= np.arange(len(runs.order)) >= begin[runs.run_of]
        kept = kept | runs.deletes[newest]
    elif spec.ignore_delete:
        newest = runs.last(adds)
    columns = []
    for name in table.column_names:
        column = flat(table.column(name))
        if name == KIND:
            columns.append(pa.array(np.where(kept, _DELETE, _INSERT), column.type))
        elif name == SEQUENCE:
            columns.append(picked(column, runs, newest).fill_null(0))
        elif name not in spec.rules:
            columns.append(picked(column, runs, newest))
        else:
            columns.append(picked(column, runs, runs.last(counts & valid(column, runs))))
    return columns


@dataclass(frozen=True, slots=True)
class _Sequence:
    """One group along the order: `there` where its ordering columns are not all NULL, `ranks` that order rows
    by them, `newer` where a row is no older than all rows of its key before."""

    there: Flags
    ranks: Ints
    newer: Flags
    ordering: tuple[str, ...]
    deletes: bool


class _Groups:
    """A partial update with sequence groups."""

    def __init__(self, spec: MergeSpec, table: pa.Table, runs: Runs) -> None:
        self._spec = spec
        self._table = table
        self._runs = runs
        self._arrays = {name: flat(table.column(name)) for name in table.column_names}
        self._sequences = {
            position: self._sequence(group.ordering, group.deletes)
            for position, group in enumerate(spec.groups)
            if all(name in self._arrays for name in group.ordering)
        }

    def columns(self) -> list[pa.Array]:
        runs = self._runs
        made = {name: self._column(name) for name in self._arrays}
        stepwise = np.flatnonzero(np.logical_or.reduceat(runs.retracts, runs.starts))
        if len(stepwise):
            for name, values in self._step_by_step(stepwise).items():
                made[name] = patched(made[name], stepwise, values)
        return list(made.values())

    # -- many keys at a time ----------------------------------------------------------------------

    def _sequence(self, ordering: tuple[str, ...], deletes: bool) -> _Sequence:
        runs = self._runs
        empty = np.ones(len(runs.order), np.bool_)
        parts = []
        for name in ordering:
            null = nulls(self._arrays[name])
            empty &= False if null is None else null[runs.order]
            parts += [part[runs.order] for part in sort_columns(self._arrays[name])]
        order = np.lexsort(parts[::-1])
        steps = np.zeros(len(order), np.int64)
        steps[run_starts([part[order] for part in parts])] = 1
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.cumsum(steps)
        there = ~empty
        numbers = runs.run_of * (len(order) + 1) + np.where(there, ranks, 0)
        newer = there & (numbers == np.maximum.accumulate(numbers))
        return _Sequence(there, ranks, newer, ordering, deletes)

    def _column(self, name: str) -> pa.Array:
        runs, column, rule = self._runs, self._arrays[name], self._spec.rules.get(name)
        if name == KIND:
            return pa.array(np.full(len(runs.starts), _INSERT), column.type)
        if name == SEQUENCE or rule is None or rule.function == "key":
            return picked(column, runs, runs.ends - 1)
        if rule.group is None:
            return picked(column, runs, runs.last(valid(column, runs)))
        sequence = self._sequences[rule.group]
        if rule.function in ("of_group", "last_value"):
            return picked(column, runs, runs.last(sequence.newer))
        return self._aggregate(name, column, rule, sequence)

    def _aggregate(self, name: str, column: pa.Array, rule: ColumnRule, sequence: _Sequence) -> pa.Array:
        """Rows that are older than what is held go in front of it, the last of them first; sums, lists and
        such are made as the rows come."""
        runs = Runs(self._runs.order, self._runs.starts, np.zeros_like(self._runs.kinds))
        keys = runs.run_of[sequence.there]
        chosen = runs.select(sequence.there)
        if not len(keys):
            return pa.nulls(len(runs.starts), column.type)
        newer = sequence.newer[sequence.there]
        if rule.function not in ("sum", "product", "collect"):
            places = np.arange(len(keys))
            order = np.lexsort((np.where(newer, places, -places), newer, keys))
            chosen = Runs(chosen.order[order], chosen.starts, chosen.kinds)
        made, unsure = folded(self._spec.table, name, column, rule, chosen)
        if rule.function == "first_non_null_value":
            unsure = unsure | ~np.logical_and.reduceat(newer, chosen.starts)
        if unsure.any():
            at = np.flatnonzero(unsure)
            made = patched(made, at, self._fold(name, column, rule, sequence, keys[chosen.starts[at]]))
        places = np.full(len(runs.starts), -1)
        places[keys[chosen.starts]] = np.arange(len(chosen.starts))
        return made.take(pa.array(places, mask=places < 0))

    def _fold(
        self, name: str, column: pa.Array, rule: ColumnRule, sequence: _Sequence, which: Ints
    ) -> pa.Array:
        runs, fold, made = self._runs, fold_of(self._spec.table, name, column, rule), []
        for run in which:
            fold.reset()
            held: Any = None
            for place in range(runs.starts[run], runs.ends[run]):
                if sequence.there[place]:
                    add = fold.add if sequence.newer[place] else fold.add_older
                    held = add(held, fold.value(runs.order[place]))
            made.append(held)
        return fold.build(made)

    # -- keys with deletes, row by row ------------------------------------------------------------

    def _step_by_step(self, which: Ints) -> dict[str, pa.Array]:
        spec, runs = self._spec, self._runs
        names = [name for name in self._arrays if name in spec.rules]
        rows = _Row(self, names)
        results = [rows.merge(range(runs.starts[run], runs.ends[run])) for run in which]
        made = {name: rows.folds[name].build([result[2][name] for result in results]) for name in names}
        made[KIND] = pa.array([result[0] for result in results], pa.int8())
        last = pa.array([result[1] for result in results], pa.int64())
        for name in self._arrays:
            if name != KIND and name not in spec.rules:
                made[name] = self._arrays[name].take(last)
        made[SEQUENCE] = made[SEQUENCE].fill_null(0)
        return made


class _Row:
    """The row that a key's rows build, one after the other."""

    def __init__(self, groups: _Groups, names: list[str]) -> None:
        self._spec = groups._spec
        self._runs = groups._runs
        self._sequences = groups._sequences
        self.folds = {
            name: fold_of(self._spec.table, name, groups._arrays[name], self._spec.rules[name])
            for name in names
        }
        self._members = {
            position: [name for name in names if self._spec.rules[name].group == position]
            for position in self._sequences
        }
        self._alone = [name for name in names if self._spec.rules[name].group is None]
        self._held: dict[str, Any] = {}
        self._ranks: dict[int, int] = {}

    def merge(self, places: range) -> tuple[int, int | None, dict[str, Any]]:
        """The row kind, the row of the table that counted last, and the values."""
        self._held = dict.fromkeys(self.folds)
        self._ranks = dict.fromkeys(self._sequences, -1)
        for fold in self.folds.values():
            fold.reset()
        begun = inserted = deleted = False
        last: int | None = None
        for place in places:
            deleted = False
            if not self._runs.retracts[place]:
                self._add(place)
                begun = inserted = True
            else:
                if not begun:
                    self._begin(place)
                    begun = True
                if self._spec.ignore_delete:
                    continue
                deleted = self._retract(place)
            last = int(self._runs.order[place])
        kind = _DELETE if deleted or not inserted else _INSERT
        return kind, last, dict(self._held)

    def _begin(self, place: int) -> None:
        row = self._runs.order[place]
        self._held = {name: fold.value(row) for name, fold in self.folds.items()}
        self._ranks = {
            position: self._rank(sequence, place) for position, sequence in self._sequences.items()
        }

    @staticmethod
    def _rank(sequence: _Sequence, place: int) -> int:
        return int(sequence.ranks[place]) if sequence.there[place] else -1

    def _add(self, place: int) -> None:
        row = self._runs.order[place]
        for name in self._alone:
            fold = self.folds[name]
            self._held[name] = fold.add(self._held[name], fold.value(row))
        for position, sequence in self._sequences.items():
            rank = self._rank(sequence, place)
            if rank < 0:
                continue
            newer = rank >= self._ranks[position]
            for name in self._members[position]:
                fold = self.folds[name]
                if newer:
                    self._held[name] = fold.add(self._held[name], fold.value(row))
                elif self._aggregates(name):
                    self._held[name] = fold.add_older(self._held[name], fold.value(row))
            if newer:
                self._ranks[position] = rank

    def _retract(self, place: int) -> bool:
        """Takes a row back; True if it deletes the whole row."""
        row = self._runs.order[place]
        newer = {
            position: rank >= self._ranks[position]
            for position, sequence in self._sequences.items()
            if (rank := self._rank(sequence, place)) >= 0
        }
        if self._runs.deletes[place] and any(
            self._sequences[position].deletes for position, is_newer in newer.items() if is_newer
        ):
            self._begin(place)
            return True
        for position, is_newer in newer.items():
            sequence = self._sequences[position]
            for name in self._members[position]:
                fold = self.folds[name]
                if self._aggregates(name):
                    self._held[name] = fold.retract(self._held[name], fold.value(row))
                elif is_newer:
                    self._held[name] = fold.value(row) if name in sequence.ordering else None
            if is_newer:
                self._ranks[position] = self._rank(sequence, place)
        return False

    def _aggregates(self, name: str) -> bool:
        return self._spec.rules[name].function != "of_group"
