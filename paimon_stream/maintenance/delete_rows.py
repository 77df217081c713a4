"""Deletes rows of append tables by deletion vectors, in one snapshot (table-kinds.md §1.4).

    plan on the newest snapshot ──► find the rows ──► publish, with the vectors of then ──► files gone: plan again

Invariants: no data file changes. A row that other writers have deleted stays deleted: the new
vector of a file also has the positions of the vector that the table has at the time of publishing.
If others have replaced a file meanwhile, everything is planned again. So a row is never deleted by
a position that means another row.
"""

import shlex
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from paimon_stream._version import __version__
from paimon_stream.commit.committer import Committer
from paimon_stream.commit.plan import Base, Changes
from paimon_stream.commit.request import CommitRequest, Published
from paimon_stream.commit.table_commit import batch_user
from paimon_stream.commit.vectors import DataFile, VectorChanges
from paimon_stream.errors import DeletedFiles, InvalidData, UnsupportedFeature
from paimon_stream.format.deletion_vectors import Positions
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind, Snapshot, SnapshotRef
from paimon_stream.format.snapshot_marks import VERSION_MARK
from paimon_stream.options import DATA_EVOLUTION, DELETION_VECTORS
from paimon_stream.read.predicate import Predicate
from paimon_stream.read.rows import RowsOf, deleted_rows, rows_with_positions
from paimon_stream.read.scan import Scan, plan_scan
from paimon_stream.reports import Progress, Report, silent
from paimon_stream.runtime import Runtime, system
from paimon_stream.table.live import live_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_spec import PartitionFilter
from paimon_stream.table.table import Table, check_table_kind
from paimon_stream.table.vectors import VectorIndex

_PLANS: Final = 5
_THREADS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteReport(Report):
    """What a deletion has deleted, or would delete in a dry run.

    Attributes:
        table: the location of the table.
        snapshot_id: the snapshot in which the rows are deleted; None if there was no row to delete,
            and in a dry run.
        dry_run: whether nothing was written.
        rows: how many rows are deleted.
        files: how many data files have rows to delete.
        files_read: how many data files were read.
    """

    table: str
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
) -> DeleteReport:
    """Deletes the rows that fulfil the condition `where`. `load` returns the table as it is at the
    time of the call. Raises the errors of `PaimonTable.delete`.
    """
    running = runtime or system()
    plans = 0
    while True:
        plans += 1
        plan = _DeletionPlan.of(load(), where, progress)
        report = DeleteReport(
            table=plan.table.location,
            dry_run=dry_run,
            rows=plan.rows,
            files=len(plan.deletions),
            files_read=plan.files_read,
        )
        if dry_run or not plan.deletions:
            return report
        try:
            return replace(report, snapshot_id=_publish_deletion(plan, running))
        except DeletedFiles:
            if plans == _PLANS:
                raise


def _refuse_other_tables(table: Table) -> None:
    """Refuses a table whose rows cannot be deleted by deletion vectors."""
    check_table_kind(table)
    if table.schema.primary_keys:
        raise UnsupportedFeature(
            "has a primary key, so rows are deleted by key. Append rows with these keys and an "
            "operation column that says -D."
        ).of_table(table.location, subject=True)
    if table.options.value(DATA_EVOLUTION):
        raise UnsupportedFeature(
            f"has {DATA_EVOLUTION.key} = true, and this release does not delete rows whose columns are in several "
            "files. Overwrite the partitions without these rows, or delete them with an engine on the JVM.",
            option=DATA_EVOLUTION.key,
        ).of_table(table.location, subject=True)
    if not table.options.value(DELETION_VECTORS):
        switched_on = ["deletion-vectors.modifiable=true", f"{DELETION_VECTORS.key}=true"]
        sets = [word for option in switched_on for word in ("--set", option)]
        command = shlex.join(["paimon-stream", "alter", *sets, "--yes", table.location])
        raise UnsupportedFeature(
            "has no deletion vectors, and this release does not rewrite files to delete rows. Nothing was "
            f"deleted. Switch them on, which changes no row: {command} (or alter_table of its catalog). "
            "Then delete again.",
            option=DELETION_VECTORS.key,
        ).of_table(table.location, subject=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _DeletionPlan:
    """The rows that a deletion deletes, found on one snapshot.

    Attributes:
        table: the table at the time of planning.
        snapshot: the newest snapshot at that time; None in an empty table.
        deletions: for each data file, the positions of matching rows that are not deleted yet.
        files_read: how many data files were read.
    """

    table: Table
    snapshot: Snapshot | None
    deletions: Mapping[DataFile, Positions]
    files_read: int

    @property
    def rows(self) -> int:
        return sum(map(len, self.deletions.values()))

    @classmethod
    def of(cls, table: Table, where: Any, progress: Progress) -> "_DeletionPlan":
        """Finds the rows that fulfil the condition. Reads the condition's columns from all files
        that may have such rows.
        """
        predicate = Predicate.of(where, table.schema, table.location)
        _refuse_other_tables(table)
        scan = plan_scan(table, filter=where)  # the filter leaves out files
        rows_of = rows_with_positions(replace(scan, columns=predicate.columns))
        bytes_in_all = sum(entry.file.file_size for entry in scan.files)
        bytes_read = 0
        deletions = {}
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="paimon-stream-delete") as pool:
            try:
                matches = pool.map(partial(_matching_rows, scan, predicate, rows_of), scan.files)
                for entry, rows in zip(scan.files, matches, strict=True):
                    if len(rows):
                        deletions[entry.partition, entry.bucket, entry.file.file_name] = rows
                    bytes_read += entry.file.file_size
                    progress("bytes", bytes_read, bytes_in_all)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return cls(
            table=table, snapshot=scan.snapshot, deletions=deletions, files_read=len(scan.files)
        )


def _matching_rows(
    scan: Scan, predicate: Predicate, rows_of: RowsOf, entry: ManifestEntry
) -> Positions:
    """The positions of the rows in a file that fulfil the condition and are not deleted, ascending.
    Deleted rows are skipped, because their values may not fit the present types of the columns.
    """
    matching = [np.empty(0, np.int64)]
    try:
        for batch, positions in rows_of(entry):
            matching.append(positions[predicate.positions(batch)])
    except pa.ArrowException as error:
        raise InvalidData(
            f"the condition {predicate.where} cannot be computed for a row of "
            f"{entry.file.file_name}: {str(error).splitlines()[0].rstrip('.')}. Nothing was "
            "deleted.",
            file=entry.file.file_name,
        ).of_table(scan.table.location) from None
    return np.concatenate(matching)


class _DeleteSource:
    """The changes of one deletion on any base: a `ChangeSource`."""

    def __init__(self, plan: _DeletionPlan, uuid: str) -> None:
        self.vectors = VectorChanges(plan.table, uuid)
        self._plan = plan

    def at(self, base: Base) -> Changes:
        """The new vectors of the files. They also mark the rows that are already deleted at the
        base. A faulty writer may have left vectors of files that are gone; these vectors are
        removed. Raises `CorruptMetadata`, `StorageError`, and `DeletedFiles` if one of the files is
        not live any more.
        """
        table = self._plan.table
        deletions = self._plan.deletions
        touched = {partition for partition, _, _ in deletions}
        types = table.partition_types
        files = live_files(
            ManifestStore(table.storage), base.metas, types, PartitionFilter(types, rows=touched)
        )
        live = {(entry.partition, entry.bucket, entry.file.file_name): entry for entry in files}
        gone = deletions.keys() - live.keys()
        if gone:
            raise DeletedFiles(
                f"other writers have replaced {len(gone)} of the {len(deletions)} data files whose "
                "rows were to be deleted, in each attempt. Nothing was deleted. Delete again later.",
                files=tuple(sorted(name for *_, name in gone)),
            ).of_table(table.location)
        index = VectorIndex.of(table, base.snapshot)
        scan = Scan(
            table=table,
            schema=table.schema,
            columns=(),
            snapshot=base.snapshot,
            files=(),
            vectors=index.vectors({name for *_, name in deletions}),
        )
        before = deleted_rows(scan, map(live.__getitem__, deletions))
        merged = {
            file: np.union1d(new, old)
            for (file, new), old in zip(deletions.items(), before, strict=True)
        }
        named = {
            (entry.partition, entry.bucket, vector.data_file)
            for entry in index.entries
            for vector in entry.file.deletions or ()
        }
        stale = {file for file in named - live.keys() if file[0] in touched}
        return Changes(index=self.vectors.at(index.entries, stale, merged))


def _publish_deletion(plan: _DeletionPlan, runtime: Runtime) -> int | None:
    """Publishes the deletion. Returns the id of its snapshot. Raises the errors of
    `Committer.commit`.
    """
    assert plan.snapshot is not None
    uuid = runtime.ids.uuid()
    source = _DeleteSource(plan, uuid)
    request = CommitRequest(
        user=batch_user(plan.table.options, runtime.ids),
        identifier=BATCH_IDENTIFIER,
        source=source,
        kind=CommitKind.OVERWRITE,
        properties={VERSION_MARK: __version__},
        seen=SnapshotRef.of(plan.snapshot),
        stage_uuid=uuid,
    )
    with source.vectors.owned():
        outcome = Committer(plan.table, runtime=runtime).commit(request)
    assert isinstance(outcome, Published)
    return outcome.snapshot.id
