"""`merge_rows` merges rows to one row per key, by the same rules in every flush, read and
compaction.

If a key has a single row, the row stays as it is, whatever its kind is. The merge engine is not
used for it (Java's ReducerMergeFunctionWrapper). A row that is merged from several rows has the
sequence number of the last of these rows that counted.

In a partial update, the columns of a sequence group change together. A row changes these columns if
its ordering columns are not smaller than those of the merged row. A row whose ordering columns are
all NULL leaves the group unchanged. If the first row of a key is a -U or -D, later rows build on
its values. As in Java, they also build on the values of a -D that removes the row.

A `Comparison` merges rows for a compaction that looks up older values or writes a changelog
(compaction.md §6-§8). The input also has rows of levels above the compaction's own level, so that
they can be looked up. They are merged with the other rows of their keys, but are not written
themselves. (With deletion vectors, such a row has to be marked as deleted.) The old row of a key is
its row on the lowest level that readers of the changelog have seen.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from paimon_stream.errors import InvalidData
from paimon_stream.format.arrow_types import from_flags, from_numbers, to_numbers
from paimon_stream.merge import merge_order
from paimon_stream.merge import spec as specs
from paimon_stream.merge.folds import merged_columns
from paimon_stream.merge.lists import equality_numbers
from paimon_stream.merge.merge_order import (
    Flags,
    Ints,
    OrderedRows,
    RowActions,
    flat,
    in_merge_order,
    nulls,
    sort_columns,
)
from paimon_stream.merge.spec import (
    AGGREGATION,
    DELETE,
    FIRST_ROW,
    KIND,
    PARTIAL_UPDATE,
    ColumnRule,
    MergeSpec,
    SequenceGroup,
)


def partially_updated(spec: MergeSpec, table: pa.Table, ordered: OrderedRows) -> list[pa.Array]:
    """The table's columns after a partial update, with one row per key. Every key has several input
    rows. Raises `InvalidData`.
    """
    adds = ~ordered.retracts
    accepts_deletes = spec.ignore_delete or spec.remove_on_delete or bool(spec.groups)
    if not accepts_deletes and not adds.all():
        raise InvalidData(
            "has the merge engine partial-update and got -U or -D rows, which it does not accept as it is. "
            "Filter them out, or set ignore-delete, or partial-update.remove-record-on-delete, or sequence groups."
        ).of_table(spec.table, subject=True)
    arrays = {name: flat(table.column(name)) for name in table.column_names}
    groups = {
        position: _group(group, arrays, ordered)
        for position, group in enumerate(spec.groups)
        if all(name in arrays for name in group.ordering)
    }
    is_counted = adds if spec.ignore_delete else np.ones_like(adds)
    newest = ordered.last(is_counted)
    if spec.remove_on_delete:
        is_removing = ordered.kinds == DELETE
    elif spec.ignore_delete:
        is_removing = np.zeros_like(adds)
    else:
        is_removing = _removing(groups.values(), ordered)
    deleted = (ordered.last(adds) < 0) | (is_removing[newest] & (newest >= 0))
    update = _PartialUpdate(ordered, is_counted, is_removing)
    actions_of_groups = {position: update.of_group(group) for position, group in groups.items()}
    actions_without_group = update.actions(np.where(adds, merge_order.ADD, merge_order.SKIP))

    def actions_of(name: str, rule: ColumnRule) -> RowActions:
        if rule.group is None:
            return actions_without_group
        return _actions_of(name, rule, groups[rule.group], actions_of_groups[rule.group])

    return merged_columns(spec, arrays, ordered, newest, deleted, actions_of)


@dataclass(frozen=True, slots=True)
class _Group:
    """A sequence group, and what its ordering columns say about the rows, in merge order.

    Attributes:
        ordering: the names of the ordering columns.
        deletes: as in `SequenceGroup`.
        is_there: for each row, whether at least one of its ordering columns is not NULL.
        ranks: for each row, its rank by these columns, from 1 on.
    """

    ordering: tuple[str, ...]
    deletes: bool
    is_there: Flags
    ranks: Ints


def _group(group: SequenceGroup, arrays: dict[str, pa.Array], ordered: OrderedRows) -> _Group:
    is_empty = np.ones(len(ordered.order), np.bool_)
    columns = []
    for name in group.ordering:
        is_null = nulls(arrays[name])
        if is_null is None:
            is_empty[:] = False
        else:
            is_empty &= is_null[ordered.order]
        columns += [column[ordered.order] for column in sort_columns(arrays[name])]
    return _Group(group.ordering, group.deletes, ~is_empty, merge_order.dense_ranks(columns) + 1)


def _newer(group: _Group, ordered: OrderedRows, resets: Flags) -> Flags:
    """Says for each row whether it is at least as new as the newest earlier row of its key. Rows
    before the key's last reset are not compared. `resets` says which rows replace the whole row.
    """
    begins = resets.copy()
    begins[ordered.starts] = True
    # The ranks of a later section get a larger offset. So a running maximum never finds a rank of
    # an earlier section.
    offset = np.cumsum(begins) * (len(resets) + 1)
    newest_rank = np.maximum.accumulate(offset + np.where(group.is_there, group.ranks, 0)) - offset
    rank_before = np.zeros(len(newest_rank), np.int64)
    rank_before[1:] = newest_rank[:-1]
    rank_before[ordered.starts] = 0
    return group.is_there & (group.ranks >= rank_before)


def _removing(groups: Iterable[_Group], ordered: OrderedRows) -> Flags:
    """Says which -D rows remove the row of their key. Such a row is not older than the others in a
    group with `deletes`. If there is one such group, the first pass finds all removals. If there
    are several, a removal resets the other groups, so the later rows are checked again. Each pass
    makes at least one more removal of every key certain, and usually a few passes are enough.
    """
    deleting = [group for group in groups if group.deletes]
    removals = np.zeros(len(ordered.order), np.bool_)
    while deleting:
        newer = [_newer(group, ordered, removals) for group in deleting]
        next_removals: Flags = (ordered.kinds == DELETE) & np.logical_or.reduce(newer)
        if (next_removals == removals).all():
            break
        removals = next_removals
    return removals


class _GroupActions(NamedTuple):
    """The actions of rows on the columns of a sequence group."""

    of_functions: RowActions
    """For columns with a function."""

    of_others: RowActions
    """For columns without one. Older rows do not change them."""


class _PartialUpdate:
    """The actions of rows in a partial update. If a key's first row retracts, its values are set
    before they are retracted, so this row has two actions.
    """

    def __init__(self, ordered: OrderedRows, counted: Flags, removing: Flags) -> None:
        """`counted` says which rows are not ignored. `removing` says which rows remove the row of
        their key.
        """
        self._ordered = ordered
        self._counted = counted
        self._removing = removing
        is_doubled = np.zeros(len(ordered.order), np.bool_)
        is_doubled[ordered.starts] = ordered.retracts[ordered.starts] & ~removing[ordered.starts]
        self._places = np.repeat(np.arange(len(is_doubled)), np.where(is_doubled, 2, 1))
        self._first_of_doubled = np.flatnonzero(is_doubled) + np.arange(is_doubled.sum())
        doubled_before: Ints = np.cumsum(is_doubled)[ordered.starts] - is_doubled[ordered.starts]
        self._doubled = OrderedRows(
            ordered.order[self._places],
            ordered.starts + doubled_before,
            ordered.kinds[self._places],
        )

    def actions(self, codes: merge_order.ActionCodes) -> RowActions:
        """The row actions with these codes. A row that removes the row of its key has `SET` instead
        of its code. A row that has two actions has `SET` first, and then its code.
        """
        codes = np.where(self._removing, merge_order.SET, codes)[self._places]
        codes[self._first_of_doubled] = merge_order.SET
        return RowActions(self._doubled, codes)

    def of_group(self, group: _Group) -> _GroupActions:
        """The row actions for the columns of a group."""
        ordered = self._ordered
        is_newer = _newer(group, ordered, self._removing)
        changes_group = group.is_there & self._counted
        additions = np.where(is_newer, merge_order.ADD, merge_order.OUT_OF_ORDER)
        changes = np.where(ordered.retracts, merge_order.RETRACT, additions)
        codes = np.where(changes_group, changes, merge_order.SKIP)
        codes_of_newer = np.where(is_newer, codes, merge_order.SKIP)
        return _GroupActions(
            of_functions=self.actions(codes), of_others=self.actions(codes_of_newer)
        )


def _actions_of(name: str, rule: ColumnRule, group: _Group, actions: _GroupActions) -> RowActions:
    if rule.function != "of_group":
        return actions.of_functions
    others = actions.of_others
    if name in group.ordering:
        return RowActions(others.ordered, np.where(others.retracts, merge_order.ADD, others.codes))
    return others


class MergedRows(NamedTuple):
    """The result of a merge for a compaction. The rows are sorted by key.

    Attributes:
        rows: the rows to write.
        changelog: the rows of the changelog; None if there is no changelog.
        looked_up: the positions, in the input, of the rows that were looked up.
    """

    rows: pa.Table
    changelog: pa.Table | None
    looked_up: Ints


def merge_rows(
    spec: MergeSpec,
    rows: pa.Table | Iterable[pa.RecordBatch],
    *,
    keep_deletes: bool,
    levels: Ints | None = None,
) -> pa.Table:
    """Merges rows of one bucket to one row per key.

    Args:
        spec: how rows are merged.
        rows: the rows, in any order. They have the columns `_SEQUENCE_NUMBER` and `_VALUE_KIND` and
            at least the table's columns in `spec.needed`. If rows have equal sequence fields and
            numbers, the row that comes *first* wins, as in Java (semantics.md §6.4).
        keep_deletes: whether the result of a key stays if it is a -U or -D row. It stays in a
            flush, and in a compaction above older levels. Otherwise the key is left out.
        levels: the levels of the rows' files, which a spec with `lookup` needs; None if all are on
            level 0. Of a key's rows above level 0, only those on the lowest level count.

    Returns:
        The merged rows, sorted by key, with the same columns. Columns that are not the table's come
        from the last row that counted.

    Raises:
        InvalidData: if the table's merge engine does not accept a delete.
    """
    table = _as_table(rows)
    ordered = in_merge_order(spec, table)
    if not len(ordered.order):
        return table
    # The engine merges the rows of these keys, even if only one of the rows counts.
    has_several = ordered.sizes > 1
    if spec.lookup and levels is not None and has_several.any():
        ordered = ordered.of_lowest_levels(levels)
    merged, _ = results(spec, table, ordered, has_several)
    return merged if keep_deletes else without_deletes(merged)


def without_deletes(rows: pa.Table) -> pa.Table:
    """The rows that are neither -U nor -D."""
    adds = adding(rows)
    return rows if adds.all() else rows.filter(from_flags(adds))


def adding(rows: pa.Table) -> Flags:
    """Says for each row whether it is +I or +U."""
    kinds = to_numbers(flat(rows.column(KIND)))
    is_adding: Flags = (kinds == specs.INSERT) | (kinds == specs.UPDATE_AFTER)
    return is_adding


def sort_rows(spec: MergeSpec, rows: pa.Table | Iterable[pa.RecordBatch]) -> pa.Table:
    """All rows in merge order, without a merge. A changelog file of `changelog-producer = input`
    holds its rows in this form.
    """
    table = _as_table(rows)
    return _rows_at(table, in_merge_order(spec, table).order)


def one_chunk(rows: pa.Table | Iterable[pa.RecordBatch]) -> pa.Table:
    """The rows as one table, in which each column is one array. This copies all rows of several
    batches, so it is for those who take rows of the table several times.
    """
    return _as_table(rows).combine_chunks()


def _as_table(rows: pa.Table | Iterable[pa.RecordBatch]) -> pa.Table:
    return rows if isinstance(rows, pa.Table) else pa.Table.from_batches(rows)


def _rows_at(table: pa.Table, positions: Ints) -> pa.Table:
    """The rows at these positions, in their order. Rows that lie one behind the other are not
    copied: where files share few keys, most rows of a merge do.
    """
    if len(positions) and positions[-1] - positions[0] == len(positions) - 1:
        first = int(positions[0])
        if bool((positions == np.arange(first, first + len(positions))).all()):
            return table.slice(first, len(positions))
    return table.take(from_numbers(positions))


def results(
    spec: MergeSpec, table: pa.Table, ordered: OrderedRows, is_merged: Flags
) -> tuple[pa.Table, Ints]:
    """Merges the rows of each key.

    Args:
        spec: how rows are merged.
        table: the rows.
        ordered: the same rows in merge order.
        is_merged: for each key, whether the engine merges its rows. The result of any other key is
            its only row.

    Returns:
        One row for each key that has a result, in key order, and the positions of these keys.

    Raises:
        InvalidData: if the table's merge engine does not accept a delete.
    """
    if not is_merged.any():
        return _rows_at(table, ordered.order[ordered.starts]), np.arange(len(is_merged))
    if spec.engine in (AGGREGATION, PARTIAL_UPDATE):
        return _folded(spec, one_chunk(table), ordered, is_merged), np.arange(len(is_merged))
    if spec.engine == FIRST_ROW:
        chosen = _first_rows(spec, ordered, is_merged)
    else:
        chosen = _last_rows(spec, ordered, is_merged)
    keys = np.flatnonzero(chosen >= 0)
    return _rows_at(table, ordered.order[chosen[keys]]), keys


def _folded(spec: MergeSpec, table: pa.Table, ordered: OrderedRows, is_merged: Flags) -> pa.Table:
    """One row per key, in key order. The row of a key that is not merged stays as it is."""
    merge_columns = _aggregated if spec.engine == AGGREGATION else partially_updated
    columns = merge_columns(spec, table, ordered.select(is_merged[ordered.key_of]))
    unmerged = table.take(pa.array(ordered.order[ordered.starts[~is_merged]]))
    positions = np.empty(len(is_merged), np.int64)
    positions[~is_merged] = np.arange(unmerged.num_rows)
    positions[is_merged] = unmerged.num_rows + np.arange(len(is_merged) - unmerged.num_rows)
    rows = pa.concat_tables([unmerged, pa.Table.from_arrays(columns, schema=table.schema)])
    return rows.combine_chunks().take(pa.array(positions))


def _last_rows(spec: MergeSpec, ordered: OrderedRows, is_merged: Flags) -> Ints:
    """The place of each key's last row, for the deduplicate engine."""
    if not spec.ignore_delete or not ordered.retracts.any():
        return ordered.ends - 1
    return np.where(is_merged, ordered.last(~ordered.retracts), ordered.starts)


def _first_rows(spec: MergeSpec, ordered: OrderedRows, is_merged: Flags) -> Ints:
    """The place of each key's first row that adds, for the first-row engine. It is -1 if the key
    has no such row.
    """
    has_deletes = (ordered.retracts & is_merged[ordered.key_of]).any()
    if has_deletes and not spec.ignore_delete:
        raise InvalidData(
            "has the merge engine first-row and got -U or -D rows, which it does not accept. "
            "Filter them out, or set the option ignore-delete."
        ).of_table(spec.table, subject=True)
    return np.where(is_merged, ordered.first(~ordered.retracts), ordered.starts)


def _aggregated(spec: MergeSpec, table: pa.Table, ordered: OrderedRows) -> list[pa.Array]:
    """The table's columns, with one row per key. Each column is merged by its function
    (semantics.md §6.5). Every key has several input rows. With
    `aggregation.remove-record-on-delete`, a -D row replaces everything before it with its own
    values, and later rows build on them, as in Java. Raises `InvalidData`.
    """
    newest = ordered.ends - 1
    codes = np.where(ordered.retracts, merge_order.RETRACT, merge_order.ADD)
    deleted = np.zeros(len(ordered.starts), np.bool_)
    if spec.remove_on_delete:
        codes[ordered.kinds == DELETE] = merge_order.SET
        deleted = ordered.kinds[newest] == DELETE
    actions = RowActions(ordered, codes)
    arrays = {name: flat(table.column(name)) for name in table.column_names}
    # The actions are the same for every column.
    return merged_columns(spec, arrays, ordered, newest, deleted, lambda *_: actions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How rows are merged onto a level and compared with the rows that were there before.

    Attributes:
        spec: how rows are merged.
        level: the level that the merged rows are written to.
        old_from_level: rows on this level and on higher levels are old. The changelog already has
            them. The old row of a key is its row on the lowest of these levels. A key without a row
            on a lower level has not changed.
        looks_up: whether the input has rows of higher levels that are looked up. In this case, the
            engine also merges a key that has only one row, as in Java.
        logs: whether there is a changelog.
        compared: an update is logged only if one of these columns differs; None if every update is
            logged.
        deletes_older: whether the rows that were looked up must be marked as deleted in their
            files.
    """

    spec: MergeSpec
    level: int
    old_from_level: int
    looks_up: bool
    logs: bool
    compared: tuple[str, ...] | None = None
    deletes_older: bool = False

    def merged(
        self, rows: Iterable[pa.RecordBatch], levels: Ints, *, keep_deletes: bool
    ) -> MergedRows:
        """Merges rows as `merge_rows` does, and compares them with the rows that were there before.

        Args:
            rows: the rows of a bucket, in any order.
            levels: the levels of the rows' files.
            keep_deletes: whether the result of a key stays if it is a -U or -D row.

        Raises:
            InvalidData: if the table's merge engine does not accept a delete.
        """
        table = one_chunk(rows)
        ordered = in_merge_order(self.spec, table)
        if self.looks_up:
            ordered = ordered.select(
                ordered.any(levels[ordered.order] <= self.level)[ordered.key_of]
            )
        if not len(ordered.order):
            return MergedRows(table.slice(0, 0), None, ordered.order)
        looked_up = ordered.order[:0]
        if self.looks_up:
            looked_up = ordered.order[levels[ordered.order] > self.level]
        before = ordered.of_level(levels, self.old_from_level)
        is_changed = ordered.any(levels[ordered.order] < self.old_from_level)
        changelog = None
        if self.spec.engine == FIRST_ROW and self.looks_up:
            merged, new = self._first_rows(table, ordered, levels, before)
            if self.logs:
                changelog = new
            return MergedRows(merged, changelog, looked_up)
        counted = ordered.of_lowest_levels(levels) if self.spec.lookup else ordered
        merged, keys = results(self.spec, table, counted, (ordered.sizes > 1) | self.looks_up)
        if self.logs:
            changelog = self._log(table, merged, keys, before, is_changed)
        if not keep_deletes:
            merged = without_deletes(merged)
        return MergedRows(merged, changelog, looked_up)

    def _first_rows(
        self, table: pa.Table, ordered: OrderedRows, levels: Ints, before: Ints
    ) -> tuple[pa.Table, pa.Table]:
        """For the first-row engine, the merged rows of keys that have no row on a higher level.
        Also, for the changelog, the merged rows of keys that had no row before.
        """
        merging = ordered.select(levels[ordered.order] <= self.level)
        has_several = np.ones(len(merging.starts), np.bool_)
        merged, keys = results(self.spec, table, merging, has_several)
        before = before[keys]
        is_written = (before < 0) | (levels[before] <= self.level)
        return merged.filter(pa.array(is_written)), merged.filter(pa.array(before < 0))

    def _log(
        self, table: pa.Table, merged: pa.Table, keys: Ints, before: Ints, changed: Flags
    ) -> pa.Table:
        """The changelog. In it, a changed key has a -U and a +U, or a +I, or a -D, or no row.

        Args:
            table: all rows.
            merged: the merged rows.
            keys: the positions of their keys.
            before: for each key, the position of its old row in `table`; -1 if the key had no old
                row.
            changed: for each key, whether it may have changed.
        """
        merged_of_key = np.full(len(before), -1)
        merged_of_key[keys] = np.arange(len(keys))
        has_row = np.zeros(len(before), np.bool_)
        has_row[keys] = adding(merged)
        had_row = before >= 0
        # If the old row of a key is a delete, the key had no row.
        had_row[had_row] = adding(table.select([KIND]).take(pa.array(before[had_row])))
        is_update = changed & had_row & has_row
        if self.compared is not None:
            old = table.take(pa.array(before[is_update]))
            new = merged.take(pa.array(merged_of_key[is_update]))
            # An update stays only if it changes at least one of these columns.
            is_update[is_update] = differ(old, new, self.compared)
        is_delete = changed & had_row & ~has_row
        is_insert = changed & has_row & ~had_row
        retracted = np.flatnonzero(is_update | is_delete)
        added = np.flatnonzero(is_update | is_insert)
        kinds = np.concatenate(
            (
                np.where(has_row[retracted], specs.UPDATE_BEFORE, DELETE),
                np.where(had_row[added], specs.UPDATE_AFTER, specs.INSERT),
            )
        )
        rows = pa.concat_tables(
            [
                table.take(pa.array(before[retracted])),
                merged.take(pa.array(merged_of_key[added])),
            ]
        )
        # The rows are sorted by key. The retracted row of a key comes before its added row.
        order = np.argsort(np.concatenate((2 * retracted, 2 * added + 1)))
        rows = rows.combine_chunks().take(pa.array(order))
        field = table.schema.field(KIND)
        position = table.schema.get_field_index(KIND)
        return rows.set_column(position, field, pa.array(kinds[order], field.type))


class Difference:
    """Finds the rows of a bucket that are new, part by part, in the order of keys
    (streaming-reads.md §7).

    The old row and the new row of a key may be equally new. Then the row that leaves Java's loser
    tree last counts as newer. It is the row of the side that advanced last. This depends on the
    previous key. If only one side had that key, that side advanced last. If both sides had it, the
    side whose row came first advanced last.
    """

    def __init__(self, spec: MergeSpec) -> None:
        """`spec` says which columns are the key, and which of two rows is newer."""
        self._spec = spec
        self._old_moves_last = True

    def changed(self, old: pa.Table, new: pa.Table) -> pa.Table:
        """The new rows whose key has no old row, and the new rows that are newer than the old row
        of their key and differ from it. They are sorted by key. Both tables have the same columns,
        and at most one row per key, as `merge_rows` returns them.
        """
        table = one_chunk(pa.concat_tables([old, new]))
        ordered = in_merge_order(self._spec, table)
        first = ordered.order[ordered.starts]
        last = ordered.order[ordered.ends - 1]
        is_new = np.maximum(first, last) >= old.num_rows
        has_both = ordered.sizes > 1
        if has_both.any():
            # If rows are equally new, the row that comes first in the input is last in the order.
            turned = in_merge_order(self._spec, one_chunk(pa.concat_tables([new, old])))
            is_new_last = turned.order[turned.ends - 1] < new.num_rows
            is_old_last = last < old.num_rows
            is_tie = has_both & is_old_last & is_new_last
            is_old_last = np.where(
                is_tie, self._old_in_ties(is_tie, has_both, is_old_last), is_old_last
            )
            is_update = has_both & ~is_old_last
            is_new[has_both] = False
            columns = [name for name in table.column_names if name not in (specs.SEQUENCE, KIND)]
            is_new[is_update] = differ(
                table.take(pa.array(np.minimum(first, last)[is_update])),
                table.take(pa.array(np.maximum(first, last)[is_update])),
                columns,
                as_rows=False,
            )
        elif len(last):
            self._old_moves_last = bool(last[-1] < old.num_rows)
        return table.take(pa.array(np.maximum(first, last)[is_new]))

    def _old_in_ties(self, is_tie: Flags, has_both: Flags, is_old_last: Flags) -> Flags:
        """For each key, whether the old row would come last if both rows were equally new. Keeps
        the result for the next part.
        """
        keys = np.arange(len(is_tie))
        last_without_tie = np.maximum.accumulate(np.where(is_tie, -1, keys))
        ties = np.cumsum(is_tie)
        ties_since: Ints = ties - np.where(last_without_tie < 0, 0, ties[last_without_tie])
        moves_last = np.where(
            last_without_tie < 0,
            self._old_moves_last,
            (is_old_last ^ has_both)[last_without_tie],
        ) ^ (ties_since % 2 == 1)
        before = np.concatenate(([self._old_moves_last], moves_last[:-1]))
        self._old_moves_last = bool(moves_last[-1])
        return before


def differ(old: pa.Table, new: pa.Table, columns: Iterable[str], *, as_rows: bool = True) -> Flags:
    """Says for each row whether its values in the two tables differ in at least one of these
    columns. `as_rows` is as in `equality_numbers`.
    """
    rows = old.num_rows
    is_different = np.zeros(rows, np.bool_)
    for name in columns:
        values = pa.concat_arrays([flat(old.column(name)), flat(new.column(name))])
        numbers = equality_numbers(values, as_rows=as_rows)
        is_different |= numbers[:rows] != numbers[rows:]
    return is_different
