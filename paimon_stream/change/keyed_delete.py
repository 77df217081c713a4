"""Deletes rows of tables with a primary key by -D rows, in one snapshot."""

from collections.abc import Callable
from typing import Any

from paimon_stream.change.anew import carry_out
from paimon_stream.change.keyed import KeyedChange, KeyedRows, Wanted, refuse_operations
from paimon_stream.commit.request import Published
from paimon_stream.commit.table_commit import AfterPublishing
from paimon_stream.merge.changing import Operation
from paimon_stream.runtime import Runtime
from paimon_stream.table.table import Table


class KeyedDeletion(KeyedChange):
    """Deletes the rows that fulfil a condition."""

    def __init__(self, load: Callable[[], Table], where: Any, runtime: Runtime) -> None:
        """`load` is that of `KeyedChange`; `where` is the condition."""
        super().__init__(load, runtime)
        self._where = where

    def wanted(self, rows: KeyedRows) -> Wanted:
        """The rows that fulfil the condition go. Raises `UnsupportedFeature` for a table in which a
        row cannot be deleted.
        """
        refuse_operations(rows.table, [(Operation.DELETE, None)])
        return Wanted(before=rows.matching(self._where), after=rows.empty)


def delete_keyed_rows(
    load: Callable[[], Table],
    where: Any,
    *,
    dry_run: bool,
    runtime: Runtime,
    after_commit: AfterPublishing | None = None,
) -> tuple[KeyedChange, Published | None]:
    """Deletes the rows that fulfil the condition. Returns what was computed, and what was
    published. Raises the errors of `PaimonTable.delete`.
    """
    deletion = KeyedDeletion(load, where, runtime)
    if dry_run:
        deletion.plan()
        return deletion, None
    return deletion, carry_out(deletion, runtime, after_commit)
