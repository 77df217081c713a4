"""Deletes the rows of a table that fulfil a condition, in one snapshot."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paimon_stream.change.append_tables import AppendTableChange, change_matching_rows
from paimon_stream.change.keyed import change_keys
from paimon_stream.change.keyed_delete import KeyedDeletion
from paimon_stream.commit.table_commit import AfterPublishing
from paimon_stream.reports import Progress, Report, silent
from paimon_stream.runtime import Runtime, system
from paimon_stream.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteReport(Report):
    """What a deletion has deleted, or would delete in a dry run.

    Attributes:
        location: the location of the table.
        snapshot_id: the snapshot in which the rows are deleted; None if there was no row to delete,
            and in a dry run.
        dry_run: whether nothing was written.
        rows: how many rows are deleted.
        files: how many data files have rows to delete; 0 in a table with a primary key, where new
            rows delete them.
        files_read: how many data files may have such rows, and were read.
    """

    location: str
    snapshot_id: int | None = None
    dry_run: bool
    rows: int = 0
    files: int = 0
    files_read: int = 0


def delete_rows(
    load: Callable[[], Table],
    where: Any,
    *,
    dry_run: bool = False,
    progress: Progress = silent,
    runtime: Runtime | None = None,
    after_commit: AfterPublishing | None = None,
) -> DeleteReport:
    """Deletes the rows that fulfil the condition `where`. `load` returns the table as it is at the
    time of the call, and `after_commit` is called after publishing. Raises the errors of
    `PaimonTable.delete`.
    """
    running = runtime or system()
    if load().schema.primary_keys:
        deletion = KeyedDeletion(load, where, running, progress)
        read, published = change_keys(deletion, running, dry_run=dry_run, after_commit=after_commit)
        return DeleteReport(
            location=read.table.location,
            snapshot_id=None if published is None else published.snapshot.id,
            dry_run=dry_run,
            rows=0 if deletion.changed is None else deletion.changed.deleted,
            files_read=read.files_read,
        )
    change = AppendTableChange(load, where, runtime=running, progress=progress)
    matching, published = change_matching_rows(
        change, running, dry_run=dry_run, after_commit=after_commit
    )
    return DeleteReport(
        location=matching.table.location,
        snapshot_id=None if published is None else published.snapshot.id,
        dry_run=dry_run,
        rows=matching.rows,
        files=len(matching.matches),
        files_read=len(matching.scan.files),
    )
