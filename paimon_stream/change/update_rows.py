"""Updates the rows of a table that fulfil a condition, in one snapshot."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from paimon_stream.change.append_tables import AppendTableChange, change_matching_rows
from paimon_stream.change.keyed import change_keys
from paimon_stream.change.keyed_update import Assignments, KeyedUpdate
from paimon_stream.change.new_values import NewValues
from paimon_stream.commit.table_commit import AfterPublishing
from paimon_stream.reports import Progress, Report, silent
from paimon_stream.runtime import Runtime, system
from paimon_stream.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReport(Report):
    """What an update has changed, or would change in a dry run.

    Attributes:
        location: the location of the table.
        snapshot_id: the snapshot in which the rows have their new values; None if there was no row
            to update, and in a dry run.
        dry_run: whether nothing was written.
        rows: how many rows are updated.
        files: how many data files have rows to update; 0 in a table with a primary key, where new
            rows replace them.
        files_read: how many data files may have such rows, and were read.
    """

    location: str
    snapshot_id: int | None = None
    dry_run: bool
    rows: int = 0
    files: int = 0
    files_read: int = 0


def update_rows(
    load: Callable[[], Table],
    where: Any,
    *,
    updates: Mapping[str, Any] | None = None,
    new_values: Mapping[str, Any] | None = None,
    dry_run: bool = False,
    progress: Progress = silent,
    runtime: Runtime | None = None,
    after_commit: AfterPublishing | None = None,
) -> UpdateReport:
    """Updates the rows that fulfil the condition `where`. `load` returns the table as it is at the
    time of the call, and `after_commit` is called after publishing. Raises the errors of
    `PaimonTable.update`.
    """
    running = runtime or system()
    if load().schema.primary_keys:
        keyed = KeyedUpdate(load, where, _assignments(updates, new_values), running, progress)
        read, published = change_keys(keyed, running, dry_run=dry_run, after_commit=after_commit)
        return UpdateReport(
            location=read.table.location,
            snapshot_id=None if published is None else published.snapshot.id,
            dry_run=dry_run,
            rows=keyed.rows,
            files_read=read.files_read,
        )
    change = AppendTableChange(
        load,
        where,
        runtime=running,
        progress=progress,
        new_rows_of=lambda table: NewValues.of(table, updates, new_values),
    )
    matching, published = change_matching_rows(
        change, running, dry_run=dry_run, after_commit=after_commit
    )
    return UpdateReport(
        location=matching.table.location,
        snapshot_id=None if published is None else published.snapshot.id,
        dry_run=dry_run,
        rows=matching.rows,
        files=len(matching.matches),
        files_read=len(matching.scan.files),
    )


def _assignments(updates: object, new_values: object) -> Callable[[Table], Assignments]:
    """The function that checks the arguments of an update, which are those of `NewValues.of`, for a
    table.
    """

    def assignments_of(table: Table) -> Assignments:
        values = NewValues.of(table, updates, new_values)
        return Assignments([*values.expressions, *values.scalars], values)

    return assignments_of
