"""`merge_rows` merges rows to one row per key, by the same rules in every flush, read and
compaction.

If a key has a single row, the row stays as it is, whatever its kind; the engine is not involved
(Java's ReducerMergeFunctionWrapper). A row merged from several has the sequence number of the last
row that counted.

In a partial update, the columns of a sequence group change together. A row changes them if its
ordering columns are not smaller than the held ones. A row whose ordering columns are all NULL
leaves the group unchanged. If the first row of a key is a -U or -D, later rows build on its values.
As in Java, they also build on the values of a -D that removes the row.

A `Comparison` merges rows for a compaction that looks up older values or writes a changelog
(compaction.md §6-§8). The rows of higher levels than the compaction's own come along to be looked
up. They take part in the merging of their keys, and are not written themselves. (With deletion
vectors, such a row is one to be marked.) What a key was before is its row on the lowest level that
readers of the changelog have seen.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_stream.errors import InvalidData
from paimon_stream.merge import key_runs
from paimon_stream.merge import spec as specs
from paimon_stream.merge.folds import merged_columns
from paimon_stream.merge.key_runs import (
    Flags,
    Ints,
    KeyRuns,
    RowActions,
    flat,
    nulls,
    sort_columns,
    sorted_runs,
)
from paimon_stream.merge.lists import equals
from paimon_stream.merge.spec import (
    AGGREGATION,
    DELETE,
    FIRST_ROW,
    KIND,
    PARTIAL_UPDATE,
    ColumnRule,
    MergeSpec,
)


def partially_updated(spec: MergeSpec, table: pa.Table, runs: KeyRuns) -> list[pa.Array]:
    """The table's columns, with one row per key. Every key has several input rows. Raises
    `InvalidData`.
    """
    adds = ~runs.retracts
    if not (adds.all() or spec.ignore_delete or spec.remove_on_delete or spec.groups):
        cure = "Filter them out, or set ignore-delete, or partial-update.remove-record-on-delete, or sequence groups."
        text = f"has the merge engine partial-update and got -U or -D rows, which it does not accept as it is. {cure}"
        raise InvalidData(text).of_table(spec.table, subject=True)
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
        removing = runs.kinds == DELETE
    deleted = (runs.last(adds) < 0) | removing[newest] & (newest >= 0)
    changes = _Changes(runs, counts, removing)
    of_groups = {position: changes.of_group(group) for position, group in groups.items()}
    alone = changes.actions(np.where(adds, key_runs.ADD, key_runs.SKIP))

    def actions_of(name: str, rule: ColumnRule) -> RowActions:
        return (
            alone
            if rule.group is None
            else _actions_of(name, rule, groups[rule.group], of_groups[rule.group])
        )

    return merged_columns(spec, arrays, runs, newest, deleted, actions_of)


@dataclass(frozen=True, slots=True)
class _Group:
    """A sequence group along the order. `there` says where its ordering columns are not all NULL.
    `ranks`, from 1 on, order the rows by these columns.
    """

    ordering: tuple[str, ...]
    deletes: bool
    there: Flags
    ranks: Ints


def _ranks(
    arrays: dict[str, pa.Array], runs: KeyRuns, ordering: tuple[str, ...]
) -> tuple[Flags, Ints]:
    empty = np.ones(len(runs.order), np.bool_)
    parts = []
    for name in ordering:
        null = nulls(arrays[name])
        empty &= False if null is None else null[runs.order]
        parts += [part[runs.order] for part in sort_columns(arrays[name])]
    return ~empty, key_runs.dense_ranks(parts) + 1


def _newer(group: _Group, runs: KeyRuns, resets: Flags) -> Flags:
    """Whether a row is not older than the newest earlier row of its key since the last that
    replaced the whole row.
    """
    begins = resets.copy()
    begins[runs.starts] = True
    stretch = np.cumsum(begins) * (len(resets) + 1)
    held = np.maximum.accumulate(stretch + np.where(group.there, group.ranks, 0)) - stretch
    before = np.zeros(len(held), np.int64)
    before[1:] = held[:-1]
    before[runs.starts] = 0
    return group.there & (group.ranks >= before)


def _removing(groups: Iterable[_Group], runs: KeyRuns) -> Flags:
    """Which -D rows remove their row: those that are not older in a group with `deletes`. With one
    such group, the first pass finds all removals. With several, a removal resets the other groups,
    so the rows after it are checked again. Each pass makes at least one more removal of every key
    certain, and usually a few passes are enough.
    """
    deleting = [group for group in groups if group.deletes]
    resets = np.zeros(len(runs.order), np.bool_)
    while deleting:
        newer = [_newer(group, runs, resets) for group in deleting]
        found: Flags = (runs.kinds == DELETE) & np.logical_or.reduce(newer)
        if (found == resets).all():
            break
        resets = found
    return resets


class _Changes:
    """The actions of rows. If a key's first row retracts, its values are set before they are
    retracted.
    """

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

    def actions(self, codes: key_runs.ActionCodes) -> RowActions:
        """The row actions with these codes, but `SET` for rows that remove the row or begin a
        key.
        """
        codes = np.where(self._removing, key_runs.SET, codes)[self._places]
        codes[self._begins] = key_runs.SET
        return RowActions(self._doubled, codes)

    def of_group(self, group: _Group) -> tuple[RowActions, RowActions]:
        """The row actions for columns with a function, and for those without, which older rows do
        not change.
        """
        runs = self._runs
        newer = _newer(group, runs, self._removing)
        there = group.there & self._counts
        codes = np.where(
            runs.retracts, key_runs.RETRACT, np.where(newer, key_runs.ADD, key_runs.OUT_OF_ORDER)
        )
        codes = np.where(there, codes, key_runs.SKIP)
        return self.actions(codes), self.actions(np.where(newer, codes, key_runs.SKIP))


def _actions_of(
    name: str, rule: ColumnRule, group: _Group, actions: tuple[RowActions, RowActions]
) -> RowActions:
    with_function, without = actions
    if rule.function != "of_group":
        return with_function
    if name in group.ordering:
        return RowActions(without.runs, np.where(without.retracts, key_runs.ADD, without.codes))
    return without


Changes = tuple[pa.Table, pa.Table | None, Ints]
"""Rows to write and those of the changelog (None: there is none), by key; and the positions of
looked-up rows.
"""


def merge_rows(
    spec: MergeSpec,
    rows: pa.Table | Iterable[pa.RecordBatch],
    *,
    keep_deletes: bool,
    levels: Ints | None = None,
) -> pa.Table:
    """Merges rows of one bucket, in any order, to one row per key, sorted by key. Raises
    `InvalidData` for deletes that the table's engine does not accept.

    The rows have the columns `_SEQUENCE_NUMBER` and `_VALUE_KIND` and at least the table's columns
    in `spec.needed`. The result has the same columns; those that are not the table's are taken from
    the last row that counted. Of rows with equal sequence numbers, the one given *first* is the
    newer. With `keep_deletes`, a key whose result is a -U or -D row keeps it (for a flush, and for
    a compaction above older levels); else the key is left out. `levels` are those of the rows'
    files, needed by a spec with `lookup`; without them all are of level 0. Of a key's rows from
    level 1 on, only that of the lowest level counts.
    """
    table = one_chunk(rows)
    runs = sorted_runs(spec, table)
    if not len(runs.order):
        return table
    several = runs.sizes > 1  # the engine merges these keys, even if only one of their rows counts
    if spec.lookup and levels is not None and several.any():
        runs = runs.of_lowest_levels(levels)
    merged, _ = results(spec, table, runs, several)
    return merged if keep_deletes else without_deletes(merged)


def without_deletes(rows: pa.Table) -> pa.Table:
    """The rows that are neither -U nor -D."""
    adds = adding(rows)
    return rows if adds.all() else rows.filter(pa.array(adds))


def adding(rows: pa.Table) -> Flags:
    """For each row, whether it is +I or +U."""
    kinds = flat(rows.column(KIND)).to_numpy(zero_copy_only=False)
    made: Flags = (kinds == 0) | (kinds == 2)
    return made


def sort_rows(spec: MergeSpec, rows: pa.Table | Iterable[pa.RecordBatch]) -> pa.Table:
    """All rows in merge order, unmerged, as a changelog file of `changelog-producer = input` holds
    them.
    """
    table = one_chunk(rows)
    return table.take(pa.array(sorted_runs(spec, table).order))


def one_chunk(rows: pa.Table | Iterable[pa.RecordBatch]) -> pa.Table:
    """The rows as one table, in which each column is one array."""
    return (rows if isinstance(rows, pa.Table) else pa.Table.from_batches(rows)).combine_chunks()


def results(
    spec: MergeSpec, table: pa.Table, runs: KeyRuns, several: Flags
) -> tuple[pa.Table, Ints]:
    """One row for each key that has a result, in key order, and the positions of these keys. Only
    keys with `several` are merged by the engine; of each other key, its only row is the result.
    Raises `InvalidData`.
    """
    if not several.any():
        return table.take(pa.array(runs.order[runs.starts])), np.arange(len(several))
    if spec.engine in (AGGREGATION, PARTIAL_UPDATE):
        return _folded(spec, table, runs, several), np.arange(len(several))
    chosen = (
        _first_rows(spec, runs, several)
        if spec.engine == FIRST_ROW
        else _last_rows(spec, runs, several)
    )
    keys = np.flatnonzero(chosen >= 0)
    return table.take(pa.array(runs.order[chosen[keys]])), keys


def _folded(spec: MergeSpec, table: pa.Table, runs: KeyRuns, several: Flags) -> pa.Table:
    """One row per key, in key order. Rows of keys that have only one stay as they are."""
    engine = _aggregated if spec.engine == AGGREGATION else partially_updated
    made = engine(spec, table, runs.select(several[runs.key_of]))
    alone = table.take(pa.array(runs.order[runs.starts[~several]]))
    places = np.empty(len(several), np.int64)
    places[~several] = np.arange(alone.num_rows)
    places[several] = alone.num_rows + np.arange(len(several) - alone.num_rows)
    both = [alone, pa.Table.from_arrays(made, schema=table.schema)]
    return pa.concat_tables(both).combine_chunks().take(pa.array(places))


def _last_rows(spec: MergeSpec, runs: KeyRuns, several: Flags) -> Ints:
    """Deduplicate: the place of each key's last row."""
    if not spec.ignore_delete or not runs.retracts.any():
        return runs.ends - 1
    return np.where(several, runs.last(~runs.retracts), runs.starts)


def _first_rows(spec: MergeSpec, runs: KeyRuns, several: Flags) -> Ints:
    if not spec.ignore_delete and (runs.retracts & several[runs.key_of]).any():
        text = "has the merge engine first-row and got -U or -D rows, which it does not accept. Filter them out, or set"
        raise InvalidData(f"{text} the option ignore-delete.").of_table(spec.table, subject=True)
    return np.where(several, runs.first(~runs.retracts), runs.starts)


def _aggregated(spec: MergeSpec, table: pa.Table, runs: KeyRuns) -> list[pa.Array]:
    """The table's columns, with one row per key, each merged by its function (semantics.md §6.5).
    Every key has several input rows. With `aggregation.remove-record-on-delete`, a -D row replaces
    everything before it with its own values, and later rows build on them, as in Java. Raises
    `InvalidData`.
    """
    newest = runs.ends - 1
    codes = np.where(runs.retracts, key_runs.RETRACT, key_runs.ADD)
    deleted = np.zeros(len(runs.starts), np.bool_)
    if spec.remove_on_delete:
        codes[runs.kinds == DELETE] = key_runs.SET
        deleted = runs.kinds[newest] == DELETE
    actions = RowActions(runs, codes)
    arrays = {name: flat(table.column(name)) for name in table.column_names}
    return merged_columns(spec, arrays, runs, newest, deleted, lambda *_: actions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How rows are merged onto `level` and compared with what was before. With `looks_up`, rows of
    higher levels are there to be looked up, and the engine also merges a key that has one row, as
    in Java. The rows on the lowest level from `known` on are what was before; a key without a row
    below that level has not changed. `compared` are the columns that must differ for an update to
    be one (None: every update counts). Without `logs`, there is no changelog. With `marks`, the
    rows that were looked up are to be marked as deleted.
    """

    spec: MergeSpec
    level: int
    known: int
    looks_up: bool
    logs: bool
    compared: tuple[str, ...] | None = None
    marks: bool = False

    def merged(
        self, rows: Iterable[pa.RecordBatch], levels: Ints, *, keep_deletes: bool
    ) -> Changes:
        """Merges rows as `merge_rows` does. `levels` are those of the rows' files. Raises
        `InvalidData`.
        """
        table = one_chunk(rows)
        runs = sorted_runs(self.spec, table)
        if self.looks_up:
            runs = runs.select(runs.any(levels[runs.order] <= self.level)[runs.key_of])
        if not len(runs.order):
            return table.slice(0, 0), None, runs.order
        older = runs.order[levels[runs.order] > self.level] if self.looks_up else runs.order[:0]
        before = runs.of_level(levels, self.known)
        changed = runs.any(levels[runs.order] < self.known)
        if self.spec.engine == FIRST_ROW and self.looks_up:
            merged, new = self._first_rows(table, runs, levels, before)
            return merged, new if self.logs else None, older
        whole = runs.of_lowest_levels(levels) if self.spec.lookup else runs
        merged, keys = results(self.spec, table, whole, (runs.sizes > 1) | self.looks_up)
        log = self._log(table, merged, keys, before, changed) if self.logs else None
        return merged if keep_deletes else without_deletes(merged), log, older

    def _first_rows(
        self, table: pa.Table, runs: KeyRuns, levels: Ints, before: Ints
    ) -> tuple[pa.Table, pa.Table]:
        """The first rows of all keys that are not on a higher level, and those that are new."""
        own = runs.select(levels[runs.order] <= self.level)
        merged, keys = results(self.spec, table, own, np.ones(len(own.starts), np.bool_))
        before = before[keys]
        written = (before < 0) | (levels[before] <= self.level)
        return merged.filter(pa.array(written)), merged.filter(pa.array(before < 0))

    def _log(
        self, table: pa.Table, merged: pa.Table, keys: Ints, before: Ints, changed: Flags
    ) -> pa.Table:
        """For each changed key -U and +U, or +I, or -D, or nothing. `keys` are the keys of the
        merged rows.
        """
        at = np.full(len(before), -1)
        at[keys] = np.arange(len(keys))
        now = np.zeros(len(before), np.bool_)
        now[keys] = adding(merged)
        was = before >= 0
        was[was] = adding(table.select([KIND]).take(pa.array(before[was])))
        updates = changed & was & now
        if self.compared is not None:
            old, new = (table.take(pa.array(before[updates])), merged.take(pa.array(at[updates])))
            updates[updates] = _differ(old, new, self.compared)
        less = np.flatnonzero(updates | (changed & was & ~now))
        more = np.flatnonzero(updates | (changed & now & ~was))
        taken = np.where(now[less], specs.UPDATE_BEFORE, DELETE)
        kinds = np.concatenate((taken, np.where(was[more], specs.UPDATE_AFTER, 0)))
        both = [table.take(pa.array(before[less])), merged.take(pa.array(at[more]))]
        order = np.argsort(np.concatenate((2 * less, 2 * more + 1)))
        rows = pa.concat_tables(both).combine_chunks().take(pa.array(order))
        place, column = (
            table.schema.get_field_index(KIND),
            pa.array(kinds[order], table.schema.field(KIND).type),
        )
        return rows.set_column(place, table.schema.field(KIND), column)


def _differ(old: pa.Table, new: pa.Table, columns: Iterable[str]) -> Flags:
    """For each row, whether it has two values in one of these columns."""
    rows = old.num_rows
    found = np.zeros(rows, np.bool_)
    for name in columns:
        numbers = equals(
            pa.concat_arrays([flat(old.column(name)), flat(new.column(name))]), plain=True
        )
        found |= numbers[:rows] != numbers[rows:]
    return found
