"""Updates rows of tables with a primary key by upserts, in one snapshot. A row whose key changes
goes, and comes with its new key.
"""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import pyarrow as pa

from paimon_stream.change.keyed import KeyedChange, KeyedRows, Wanted, refuse_operations
from paimon_stream.merge.changing import Operation
from paimon_stream.reports import Progress, silent
from paimon_stream.runtime import Runtime
from paimon_stream.table.table import Table
from paimon_stream.write.conform import ColumnPlan


class Assignments(NamedTuple):
    """The new values of some columns.

    Attributes:
        columns: the columns.
        assign: returns rows with their new values, in their order.
    """

    columns: Collection[str]
    assign: Callable[[pa.RecordBatch], pa.RecordBatch]


class KeyedUpdate(KeyedChange):
    """Sets columns of the rows that fulfil a condition.

    Attributes:
        rows: how many rows fulfil the condition, after a computation.
    """

    def __init__(
        self,
        load: Callable[[], Table],
        where: Any,
        assignments_of: Callable[[Table], Assignments],
        runtime: Runtime,
        progress: Progress = silent,
    ) -> None:
        """Prepares the update.

        Args:
            load: returns the table as it is at the time of the call.
            where: the condition, as an expression of Arrow or as SQL text.
            assignments_of: returns the new values. It is called with the table of each
                computation, whose columns may have changed.
            runtime: the clock and the ids.
            progress: is told how many bytes of files were read.
        """
        super().__init__(load, runtime)
        self._where = where
        self._assignments_of = assignments_of
        self._progress = progress
        self.rows = 0

    def wanted(self, rows: KeyedRows) -> Wanted:
        """The rows that fulfil the condition go, and come with their new values. Raises
        `UnsupportedFeature` for a column that cannot be set in this table, and `InvalidData` for a
        value that its column cannot have.
        """
        table = rows.table
        assignments = self._assignments_of(table)
        refuse_operations(
            table,
            [
                (Operation.MOVE, None)
                if column in table.schema.primary_keys
                else (Operation.SET, column)
                for column in assignments.columns
            ],
        )
        before = rows.matching(self._where, self._progress)
        self.rows = before.num_rows
        plan = ColumnPlan.of(table.schema.without_defaults, table.location)
        after = [plan.conform(assignments.assign(batch)) for batch in before.to_batches()]
        return Wanted(before=before, after=pa.Table.from_batches(after, rows.empty.schema))
