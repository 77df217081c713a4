"""Merges rows for a compaction that looks up older values, or that writes a changelog (compaction.md §6-§8).

The rows of higher levels than the compaction's own come along to be looked up. They take part in the merging
of their keys, and are not written themselves. (With deletion vectors, such a row is one to be marked.) What a
key was before is its row on the lowest level that readers of the changelog have seen.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_stream.merge.key_runs import KeyRuns, sorted_runs
from paimon_stream.merge.lists import equals
from paimon_stream.merge.order import Flags, Ints, flat
from paimon_stream.merge.rows import adding, one_chunk, results, without_deletes
from paimon_stream.merge.spec import FIRST_ROW, KIND, MergeSpec

_INSERT, _UPDATE_BEFORE, _UPDATE_AFTER, _DELETE = range(4)

Changes = tuple[pa.Table, pa.Table | None]
"""Rows to write, one per key, and the rows of the changelog, both by key. None: there is no changelog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How rows are merged onto `level` and compared with what was before.

    With `looks_up`, rows of higher levels are there to be looked up, and the engine also merges a key that
    has one row, as in Java. The rows on the lowest level from `known` on are what was before; a key without a
    row below that level has not changed. `compared` are the columns that must differ for an update to be one;
    None: every update counts. Without `logs`, there is no changelog.
    """

    spec: MergeSpec
    level: int
    known: int
    looks_up: bool
    logs: bool
    compared: tuple[str, ...] | None = None

    def merged(self, rows: Iterable[pa.RecordBatch], levels: Ints, *, keep_deletes: bool) -> Changes:
        """Merges rows as `merge_rows` does. `levels` are those of the rows' files. Raises `InvalidData`."""
        table = one_chunk(rows)
        runs = sorted_runs(self.spec, table)
        if self.looks_up:
            runs = runs.select(runs.any(levels[runs.order] <= self.level)[runs.key_of])
        if not len(runs.order):
            return table.slice(0, 0), None
        before = runs.of_level(levels, self.known)
        changed = runs.any(levels[runs.order] < self.known)
        if self.spec.engine == FIRST_ROW and self.looks_up:
            merged, new = self._first_rows(table, runs, levels, before)
            return merged, new if self.logs else None
        whole = runs.of_lowest_levels(levels) if self.spec.lookup else runs
        merged, keys = results(self.spec, table, whole, (runs.sizes > 1) | self.looks_up)
        log = self._log(table, merged, keys, before, changed) if self.logs else None
        return merged if keep_deletes else without_deletes(merged), log

    def _first_rows(self, table: pa.Table, runs: KeyRuns, levels: Ints, before: Ints) -> tuple[pa.Table, pa.Table]:
        """The first rows of all keys that are not on a higher level, and those that are new."""
        own = runs.select(levels[runs.order] <= self.level)
        merged, keys = results(self.spec, table, own, np.ones(len(own.starts), np.bool_))
        before = before[keys]
        written = (before < 0) | (levels[before] <= self.level)
        return merged.filter(pa.array(written)), merged.filter(pa.array(before < 0))

    def _log(self, table: pa.Table, merged: pa.Table, keys: Ints, before: Ints, changed: Flags) -> pa.Table:
        """For each changed key -U and +U, or +I, or -D, or nothing. `keys` are the keys of the merged rows."""
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
        kinds = np.concatenate((np.where(now[less], _UPDATE_BEFORE, _DELETE), np.where(was[more], _UPDATE_AFTER, 0)))
        both = [table.take(pa.array(before[less])), merged.take(pa.array(at[more]))]
        order = np.argsort(np.concatenate((2 * less, 2 * more + 1)))
        rows = pa.concat_tables(both).combine_chunks().take(pa.array(order))
        place, column = table.schema.get_field_index(KIND), pa.array(kinds[order], table.schema.field(KIND).type)
        return rows.set_column(place, table.schema.field(KIND), column)


def _differ(old: pa.Table, new: pa.Table, columns: Iterable[str]) -> Flags:
    """For each row, whether it has two values in one of these columns."""
    rows = old.num_rows
    found = np.zeros(rows, np.bool_)
    for name in columns:
        numbers = equals(pa.concat_arrays([flat(old.column(name)), flat(new.column(name))]), plain=True)
        found |= numbers[:rows] != numbers[rows:]
    return found
