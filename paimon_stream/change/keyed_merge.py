"""Merges rows of a source into a table with a primary key, in one snapshot: the rows that are updated
come with their new values, deleted ones go, and inserted ones come (`keyed.py`).
"""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.change.anew import RowCounts
from paimon_stream.change.keyed import (
    Decision,
    KeyedChange,
    KeyedRows,
    Wanted,
    refuse_operations,
)
from paimon_stream.change.merge_clauses import (
    TARGET,
    Action,
    MergePlan,
    MergeWords,
    When,
    plan_merge,
)
from paimon_stream.change.merge_rows import MergeRows, source_rows
from paimon_stream.errors import naming
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import TypeRoot
from paimon_stream.merge.changing import Operation, has_key
from paimon_stream.reports import Progress
from paimon_stream.runtime import Runtime
from paimon_stream.table.table import Table
from paimon_stream.write.conform import ColumnPlan


class KeyedMerge(KeyedChange):
    """A merge into a table with a primary key.

    Attributes:
        updated: how many rows are updated, after a computation.
        deleted: how many rows are deleted.
        inserted: how many rows are inserted.
    """

    def __init__(
        self,
        load: Callable[[], Table],
        source: pa.Table,
        words: MergeWords,
        runtime: Runtime,
        progress: Progress,
    ) -> None:
        """Prepares the merge.

        Args:
            load: returns the table as it is at the time of the call.
            source: the rows of the source.
            words: the merge as the caller described it.
            runtime: the clock and the ids.
            progress: is told how many bytes of files were read.
        """
        super().__init__(load, runtime)
        self._source = source
        self._words = words
        self._progress = progress
        self.updated = 0
        self.deleted = 0
        self.inserted = 0

    @property
    def counts(self) -> RowCounts:
        """How many rows the last computation changes."""
        return RowCounts(updated=self.updated, deleted=self.deleted, inserted=self.inserted)

    def wanted(self, rows: KeyedRows) -> Wanted:
        """The rows that the merge deletes and updates go; those that it updates and inserts come.
        Raises `UnsupportedFeature` for what cannot be done in this table, and the errors of
        `MergeRows`.
        """
        table = rows.table
        source, types = source_rows(self._source, table.schema, table.location)
        with naming(table.location):
            plan = plan_merge(self._words, table.schema, types)
        refuse_operations(table, _operations(plan))
        merge = MergeRows(plan, source, table.location)
        where = plan.concerned(merge.possible_keys())
        decision = Decision(plan.deciding_columns, merge.concerns)
        target = rows.matching(
            pc.scalar(True) if where is None else where, self._progress, decision
        )
        merged = merge.of_target(target)
        if plan.of(When.NOT_MATCHED):  # a deletion of a match makes its source row one to insert
            rows.note_keys(target.take(pa.array(merged.met_at)))
        inserted = merge.inserted()
        old = target.take(pa.array(merged.updated_at))
        updating = ColumnPlan.of(table.schema.without_defaults, table.location)
        new = pa.Table.from_batches(map(updating.conform, merged.updated.to_batches()), old.schema)
        new = _with_stored_keys(table.schema, old, new)
        keys = table.schema.primary_keys
        if not has_key(new.select(keys), old.select(keys)).all():  # an old key goes
            refuse_operations(table, [(Operation.MOVE, None)])
        adding = ColumnPlan.of(table.schema, table.location)
        added = pa.Table.from_batches(map(adding.conform, inserted.to_batches()), old.schema)
        places = np.concatenate([merged.updated_at, merged.deleted_at])
        self.updated = merge.updated
        self.deleted = merge.deleted
        self.inserted = inserted.num_rows
        return Wanted(before=target.take(pa.array(places)), after=pa.concat_tables([new, added]))


def _with_stored_keys(schema: TableSchema, old: pa.Table, new: pa.Table) -> pa.Table:
    """The new rows of the old ones. A CHAR of the key that differs from the stored one only by blanks
    at its end stays as it is stored: the values are equal, so the row does not move.
    """
    for name in schema.primary_keys:
        if schema.field(name).type.root is TypeRoot.CHAR:
            stored = old.column(name)
            wanted = new.column(name)
            is_equal = pc.equal(
                pc.utf8_rtrim(stored, characters=" "), pc.utf8_rtrim(wanted, characters=" ")
            )
            place = new.column_names.index(name)
            new = new.set_column(place, new.field(name), pc.if_else(is_equal, stored, wanted))
    return new


def _operations(plan: MergePlan) -> Iterator[tuple[Operation, str | None]]:
    """What the clauses do, apart from giving rows other keys."""
    keys = plan.schema.primary_keys
    for planned in plan.clauses:
        if planned.clause.action is Action.DELETE:
            yield Operation.DELETE, None
        elif planned.clause.action is Action.INSERT:
            yield Operation.INSERT, None
        else:
            for name, value in planned.values.items():
                if name not in keys and not value.equals(pc.field(TARGET + name)):
                    yield Operation.SET, name
