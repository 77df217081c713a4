"""Updates rows of tables with a primary key by upserts, in one snapshot. A row whose key changes
goes, and comes with its new key.
"""

from collections.abc import Callable, Collection
from typing import Any

import pyarrow as pa

from paimon_stream.change.keyed import KeyedChange, KeyedRows, Wanted, refuse_operations
from paimon_stream.merge.changing import Operation
from paimon_stream.runtime import Runtime
from paimon_stream.table.table import Table

Assign = Callable[[pa.Table], pa.Table]
"""Returns rows with new values in some columns, in their order."""


class KeyedUpdate(KeyedChange):
    """Sets columns of the rows that fulfil a condition."""

    def __init__(
        self,
        load: Callable[[], Table],
        where: Any,
        columns: Collection[str],
        assign: Assign,
        runtime: Runtime,
    ) -> None:
        """Prepares the update.

        Args:
            load: as for `KeyedChange`.
            where: the condition; None for all rows.
            columns: the columns that are set.
            assign: sets them.
            runtime: the clock and the ids.
        """
        super().__init__(load, runtime)
        self._where = where
        self._columns = columns
        self._assign = assign

    def wanted(self, rows: KeyedRows) -> Wanted:
        """The rows that fulfil the condition go, and come with their new values. Raises
        `UnsupportedFeature` for a column that cannot be set in this table.
        """
        keys = rows.table.schema.primary_keys
        refuse_operations(
            rows.table,
            [
                (Operation.MOVE, None) if column in keys else (Operation.SET, column)
                for column in self._columns
            ],
        )
        before = rows.matching(self._where)
        return Wanted(before=before, after=self._assign(before))
