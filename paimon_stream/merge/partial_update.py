"""The merge engine partial-update: values that are not NULL replace earlier values, column by column or sequence group
by sequence group (semantics.md §6.5; docs/architecture.md, "Merging rows")."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_stream.errors import InvalidData
from paimon_stream.merge.folds import merged_columns
from paimon_stream.merge.functions import ColumnRule
from paimon_stream.merge.key_runs import ADD, OUT_OF_ORDER, RETRACT, SET, SKIP, ActionCodes, KeyRuns, RowActions
from paimon_stream.merge.order import Flags, Ints, dense_ranks, flat, nulls, sort_columns
from paimon_stream.merge.spec import MergeSpec


def partially_updated(spec: MergeSpec, table: pa.Table, runs: KeyRuns) -> list[pa.Array]:
    """The table's columns, with one row per key. Every key has several input rows. Raises `InvalidData`."""
    adds = ~runs.retracts
    if not (adds.all() or spec.ignore_delete or spec.remove_on_delete or spec.groups):
        raise InvalidData(
            "has the merge engine partial-update and got -U or -D rows, which it does not accept as it is. Filter "
            "them out, or set ignore-delete, or partial-update.remove-record-on-delete, or sequence groups."
        ).of_table(spec.table, subject=True)
    arrays = {name: flat(table.column(name)) for name in table.column_names}
    groups = {
        position: _Group(group.ordering, group.deletes, *_ranks(arrays, runs, group.ordering))
        for position, group in enumerate(spec.groups)
        if all(name in arrays for name in group.ordering)
    }
    counts = adds if spec.ignore_delete else np.ones_like(adds)
    newest = runs.last(counts)
    removing = np.zeros_like(adds) if spec.ignore_delete else _removing(groups.values(), runs)
    if spec.remove_on_delete:
        removing = runs.deletes
    deleted = (runs.last(adds) < 0) | removing[newest] & (newest >= 0)
    changes = _Changes(runs, counts, removing)
    of_groups = {position: changes.of_group(group) for position, group in groups.items()}
    alone = changes.actions(np.where(adds, ADD, SKIP))

    def actions_of(name: str, rule: ColumnRule) -> RowActions:
        return alone if rule.group is None else _actions_of(name, rule, groups[rule.group], of_groups[rule.group])

    return merged_columns(spec, arrays, runs, newest, deleted, actions_of)


# -- sequence groups --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Group:
    """A sequence group along the order. `there` says for which rows its ordering columns are not all NULL. `ranks`,
    which begin at 1, order the rows by these columns."""

    ordering: tuple[str, ...]
    deletes: bool
    there: Flags
    ranks: Ints


def _ranks(arrays: dict[str, pa.Array], runs: KeyRuns, ordering: tuple[str, ...]) -> tuple[Flags, Ints]:
    empty = np.ones(len(runs.order), np.bool_)
    parts = []
    for name in ordering:
        null = nulls(arrays[name])
        empty &= False if null is None else null[runs.order]
        parts += [part[runs.order] for part in sort_columns(arrays[name])]
    return ~empty, dense_ranks(parts) + 1


def _newer(group: _Group, runs: KeyRuns, resets: Flags) -> Flags:
    """Whether a row is not older than the newest earlier row of its key since the last that replaced the whole row."""
    begins = resets.copy()
    begins[runs.starts] = True
    stretch = np.cumsum(begins) * (len(resets) + 1)
    held = np.maximum.accumulate(stretch + np.where(group.there, group.ranks, 0)) - stretch
    before = np.zeros(len(held), np.int64)
    before[1:] = held[:-1]
    before[runs.starts] = 0
    return group.there & (group.ranks >= before)


def _removing(groups: Iterable[_Group], runs: KeyRuns) -> Flags:
    """Which -D rows remove their row: those that are not older in a group with `deletes`. With one such group, the
    first pass finds all removals. With several, a removal resets the other groups, so the rows after it are checked
    again. Each pass makes at least one more removal of every key certain, and usually a few passes are enough."""
    deleting = [group for group in groups if group.deletes]
    resets = np.zeros(len(runs.order), np.bool_)
    while deleting:
        newer = [_newer(group, runs, resets) for group in deleting]
        found: Flags = runs.deletes & np.logical_or.reduce(newer)
        if (found == resets).all():
            break
        resets = found
    return resets


class _Changes:
    """The actions of rows. If a key's first row retracts, its values are set before they are retracted."""

    def __init__(self, runs: KeyRuns, counts: Flags, removing: Flags) -> None:
        self._runs = runs
        self._counts = counts
        self._removing = removing
        begins = np.zeros(len(runs.order), np.bool_)
        begins[runs.starts] = runs.retracts[runs.starts] & ~removing[runs.starts]
        self._places = np.repeat(np.arange(len(begins)), 1 + begins)
        self._begins = np.flatnonzero(begins) + np.arange(begins.sum())
        starts = runs.starts + np.cumsum(begins)[runs.starts] - begins[runs.starts]
        self._doubled = KeyRuns(runs.order[self._places], starts, runs.kinds[self._places])

    def actions(self, codes: ActionCodes) -> RowActions:
        """The row actions with these codes, but `SET` for rows that remove the row or begin a key."""
        codes = np.where(self._removing, SET, codes)[self._places]
        codes[self._begins] = SET
        return RowActions(self._doubled, codes)

    def of_group(self, group: _Group) -> tuple[RowActions, RowActions]:
        """The row actions for columns with a function, and for those without, which older rows do not change."""
        runs = self._runs
        newer = _newer(group, runs, self._removing)
        there = group.there & self._counts
        codes = np.where(runs.retracts, RETRACT, np.where(newer, ADD, OUT_OF_ORDER))
        return self.actions(np.where(there, codes, SKIP)), self.actions(np.where(there & newer, codes, SKIP))


def _actions_of(name: str, rule: ColumnRule, group: _Group, actions: tuple[RowActions, RowActions]) -> RowActions:
    with_function, without = actions
    if rule.function != "of_group":
        return with_function
    if name in group.ordering:
        return RowActions(without.runs, np.where(without.retracts, ADD, without.codes))
    return without
