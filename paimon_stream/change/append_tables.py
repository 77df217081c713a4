"""Deletes and updates rows of append tables, in one snapshot (table-kinds.md §1.4).

    find the rows on the newest snapshot ──► write what replaces them ──► publish (`anew.py`)

With deletion vectors, no data file changes: vectors mark the rows that are deleted, and the new rows
of an update are appended. Without them, each file that has such rows is removed, and the rows that
stay are written to a new file, with the newest schema.

Invariants: each row of the table keeps its values, unless it fulfils the condition. In a table with
row tracking, the rows that stay keep their ids; an updated row is a new row, with a new id.
"""

import shlex
from collections.abc import Callable
from typing import Any

from paimon_stream.change.anew import ComputedChange, RowChange, carry_out
from paimon_stream.change.files import FileChanges
from paimon_stream.change.matching import FoundRows, MatchingRows
from paimon_stream.change.rewriting import NewRows, RestFiles, UpdatedRows
from paimon_stream.commit.request import Published
from paimon_stream.commit.table_commit import AfterPublishing
from paimon_stream.compact.planning import check_indexes
from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.options import CLUSTERING_INCREMENTAL, DATA_EVOLUTION, DELETION_VECTORS
from paimon_stream.reports import Progress
from paimon_stream.runtime import Runtime
from paimon_stream.table.table import Table, check_table_kind


def check_append_table(table: Table) -> None:
    """Raises `UnsupportedFeature` for a table whose rows are not deleted and updated here."""
    check_table_kind(table)
    if table.options.value(DATA_EVOLUTION):
        raise UnsupportedFeature(
            f"has {DATA_EVOLUTION.key} = true, and this release does not change rows whose columns are in several "
            "files. Overwrite the partitions with the rows as they shall be, or use an engine on the JVM.",
            option=DATA_EVOLUTION.key,
        ).of_table(table.location, subject=True)
    rewrites = not table.options.value(DELETION_VECTORS)
    if rewrites and table.options.value(CLUSTERING_INCREMENTAL):
        switched_on = ["deletion-vectors.modifiable=true", f"{DELETION_VECTORS.key}=true"]
        sets = [word for option in switched_on for word in ("--set", option)]
        command = shlex.join(["paimon-stream", "alter", *sets, "--yes", table.location])
        raise UnsupportedFeature(
            f"has {CLUSTERING_INCREMENTAL.key} = true, and this release does not rewrite sorted files. Nothing was "
            f"changed. Switch on deletion vectors, which changes no row: {command} (or alter_table of its catalog).",
            option=CLUSTERING_INCREMENTAL.key,
        ).of_table(table.location, subject=True)


class AppendTableChange(RowChange):
    """A deletion or an update of the rows of an append table that fulfil a condition.

    Attributes:
        found: the rows that the last computation has found; None before the first one.
    """

    def __init__(
        self,
        load: Callable[[], Table],
        where: Any,
        *,
        runtime: Runtime,
        progress: Progress,
        new_rows_of: Callable[[Table], NewRows] | None = None,
    ) -> None:
        """Prepares the change.

        Args:
            load: returns the table as it is at the time of the call.
            where: the condition, as an expression of Arrow or as SQL text.
            runtime: the clock and the ids.
            progress: is told how many bytes of files are searched.
            new_rows_of: returns the function that makes the new rows of an update. It is called
                with the table of each computation, whose columns may have changed. None for a
                deletion.
        """
        self.found: FoundRows | None = None
        self._load = load
        self._matching = MatchingRows(where, progress)
        self._runtime = runtime
        self._rest = RestFiles(runtime)
        self._updated: UpdatedRows | None = None
        self._new_rows_of = new_rows_of
        if new_rows_of is not None:
            self._updated = UpdatedRows(runtime)

    def find(self) -> tuple[FoundRows, NewRows | None]:
        """Finds the rows on the newest snapshot, and returns the function that makes their new
        values. Nothing is written.
        """
        table = self._load()
        check_append_table(table)
        new_rows = None if self._new_rows_of is None else self._new_rows_of(table)
        self.found = self._matching.find(table)
        return self.found, new_rows

    def compute(self) -> ComputedChange | None:
        """See `RowChange.compute`."""
        found, new_rows = self.find()
        if not found.matches:
            self.abandon()
            return None
        table = found.table
        marks = table.options.value(DELETION_VECTORS)
        messages: tuple[CommitMessage, ...] = ()
        if self._updated is not None and new_rows is not None:
            messages = self._updated.write(found, new_rows)
        uuid = self._runtime.ids.uuid()
        if marks:
            marked = {match.data_file: match.positions for match in found.matches}
            changes = FileChanges(table, uuid, marked=marked, messages=messages)
        else:
            check_indexes(table, found.scan.snapshot)
            replaced = self._rest.write(found)
            changes = FileChanges(table, uuid, replaced=replaced, messages=messages)
        # A deletion by vectors keeps what others have deleted, so their vectors do not matter.
        is_deletion_by_marks = marks and self._updated is None
        fixed_vectors = () if is_deletion_by_marks else found.matches
        return ComputedChange(
            table=table,
            premises=self._matching.premises(found, fixed_vectors),
            uuid=uuid,
            source=changes,
            owned=changes.vectors.owned,
        )

    def abandon(self) -> None:
        """See `RowChange.abandon`."""
        self._rest.abandon()
        if self._updated is not None:
            self._updated.abandon()


def change_matching_rows(
    change: AppendTableChange,
    runtime: Runtime,
    *,
    dry_run: bool,
    after_commit: AfterPublishing | None,
) -> tuple[FoundRows, Published | None]:
    """Carries out a change, or only finds its rows in a dry run. Returns the rows, and what was
    published. Raises the errors of `carry_out`.
    """
    published = None
    if dry_run:
        change.find()
    else:
        published = carry_out(change, runtime, after_commit)
    assert change.found is not None
    return change.found, published
