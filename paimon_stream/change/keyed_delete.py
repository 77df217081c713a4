"""Deletes rows of tables with a primary key by -D rows, in one snapshot."""

from collections.abc import Callable
from typing import Any

from paimon_stream.change.keyed import KeyedChange, KeyedRows, Wanted, refuse_operations
from paimon_stream.merge.changing import Operation
from paimon_stream.reports import Progress, silent
from paimon_stream.runtime import Runtime
from paimon_stream.table.table import Table


class KeyedDeletion(KeyedChange):
    """Deletes the rows that fulfil a condition."""

    def __init__(
        self,
        load: Callable[[], Table],
        where: Any,
        runtime: Runtime,
        progress: Progress = silent,
    ) -> None:
        """Prepares the deletion.

        Args:
            load: returns the table as it is at the time of the call.
            where: the condition, as an expression of Arrow or as SQL text.
            runtime: the clock and the ids.
            progress: is told how many bytes of files were read.
        """
        super().__init__(load, runtime)
        self._where = where
        self._progress = progress

    def wanted(self, rows: KeyedRows) -> Wanted:
        """The rows that fulfil the condition go. Raises `UnsupportedFeature` for a table in which a
        row cannot be deleted.
        """
        refuse_operations(rows.table, [(Operation.DELETE, None)])
        return Wanted(before=rows.matching(self._where, self._progress), after=rows.empty)
