"""Merges rows of a source into a table, in one snapshot. This is how it is done in an append table;
`keyed_merge.py` does it in a table with a primary key.

    read the files that may have matches ──► write new rows ──► publish, if the premises hold (`anew.py`)

The rows that meet a row of the source, and what becomes of them, are found file by file
(`merge_rows.py`). Old rows are then deleted as `append_tables.py` deletes them; new rows are appended.

Invariants: the source is read once, however often the merge is computed. A file that others add
meanwhile is a conflict if one of its rows has a key of the source, or if a clause about rows without
a match holds for one. So no source row is inserted beside a row of its key that was not looked at.
With a not-matched clause, the deletion vectors of all files that were read must stay, because a
deleted row is no match.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.change.anew import ComputedChange, RowChange, RowCounts, carry_out
from paimon_stream.change.append_tables import check_append_table
from paimon_stream.change.files import FileChanges
from paimon_stream.change.keyed import change_keys
from paimon_stream.change.keyed_merge import KeyedMerge
from paimon_stream.change.matching import FileMatch, FoundRows
from paimon_stream.change.merge_clauses import MergePlan, MergeWords, When, plan_merge
from paimon_stream.change.merge_hashes import DistantRows
from paimon_stream.change.merge_keys import Ints
from paimon_stream.change.merge_rows import MergeRows, source_rows
from paimon_stream.change.rewriting import RestFiles
from paimon_stream.commit.premises import Premises
from paimon_stream.commit.table_commit import AfterPublishing
from paimon_stream.commit.vectors import DataFile
from paimon_stream.compact.planning import check_indexes
from paimon_stream.errors import NotFound, naming
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import DataFileMeta, ManifestEntry
from paimon_stream.format.snapshot_json import CommitKind
from paimon_stream.options import BUCKET, DELETION_VECTORS
from paimon_stream.read.predicate import Predicate
from paimon_stream.read.rows import BATCH_ROWS, rows_with_positions
from paimon_stream.read.scan import Scan, known_of, plan_scan
from paimon_stream.reports import Progress, Report, silent
from paimon_stream.runtime import Runtime, system
from paimon_stream.table.message_files import data_files, remove_files
from paimon_stream.table.table import Table
from paimon_stream.write.task import WriteSpec, write_task

_MOST_ROWS: Final = 1_000_000
"""The most rows of a file that are compared with the source at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeReport(Report):
    """What a merge has changed, or would change in a dry run.

    Attributes:
        location: the location of the table.
        snapshot_id: the snapshot in which the rows are changed; None if there was no row to change,
            and in a dry run.
        dry_run: whether nothing was written.
        source_rows: how many rows the source has.
        rows_updated: how many rows are updated.
        rows_deleted: how many rows are deleted.
        rows_inserted: how many rows are inserted.
        files: how many data files of an append table have rows to update or delete.
        files_read: how many data files may have rows that matter, and were read.
    """

    location: str
    snapshot_id: int | None = None
    dry_run: bool
    source_rows: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    rows_inserted: int = 0
    files: int = 0
    files_read: int = 0


def merge_into(
    load: Callable[[], Table],
    source: pa.Table,
    words: MergeWords,
    *,
    dry_run: bool = False,
    progress: Progress = silent,
    runtime: Runtime | None = None,
    after_commit: AfterPublishing | None = None,
) -> MergeReport:
    """Merges the rows of `source`. `load` returns the table as it is at the time of the call, and
    `after_commit` is called after publishing. Raises the errors of `TableMerge.execute`.
    """
    running = runtime or system()
    if load().schema.primary_keys:
        keyed = KeyedMerge(load, source, words, running, progress)
        read, keyed_published = change_keys(
            keyed, running, dry_run=dry_run, after_commit=after_commit
        )
        return MergeReport(
            location=read.table.location,
            snapshot_id=None if keyed_published is None else keyed_published.snapshot.id,
            dry_run=dry_run,
            source_rows=source.num_rows,
            rows_updated=keyed.updated,
            rows_deleted=keyed.deleted,
            rows_inserted=keyed.inserted,
            files_read=read.files_read,
        )
    merge = AppendTableMerge(load, source, words, runtime=running, progress=progress)
    return carried_out(merge, running, dry_run=dry_run, after_commit=after_commit)


def carried_out(
    merge: "AppendTableMerge",
    runtime: Runtime,
    *,
    dry_run: bool,
    after_commit: AfterPublishing | None,
) -> MergeReport:
    """Carries out a merge into an append table, or only counts its rows in a dry run. Raises the
    errors of `carry_out`.
    """
    if dry_run:
        return merge.tried()
    published = carry_out(merge, runtime, after_commit)
    report = merge.report(dry_run=False)
    return report if published is None else replace(report, snapshot_id=published.snapshot.id)


class Computation(NamedTuple):
    """One computation of a merge.

    Attributes:
        table: the table at that time.
        scan: what is read: the files that may have rows that matter, with the columns to read.
        plan: the merge as expressions.
        source_rows: how many rows the source has.
        rows: merges them.
        matches: the files with rows that are updated or deleted, and these rows.
    """

    table: Table
    scan: Scan
    plan: MergePlan
    source_rows: int
    rows: MergeRows | DistantRows
    matches: list[FileMatch]


class AppendTableMerge(RowChange):
    """A merge into an append table."""

    def __init__(
        self,
        load: Callable[[], Table],
        source: pa.Table,
        words: MergeWords,
        *,
        runtime: Runtime,
        progress: Progress,
    ) -> None:
        """Prepares the merge.

        Args:
            load: returns the table as it is at the time of the call.
            source: the rows of the source.
            words: the merge as the caller described it.
            runtime: the clock and the ids.
            progress: is told how many bytes of files are read.
        """
        self._load = load
        self._source = source
        self._words = words
        self._runtime = runtime
        self._progress = progress
        self._rest = RestFiles(runtime)
        self._computed: Computation | None = None
        self._inserted = 0
        self._messages: tuple[CommitMessage, ...] = ()

    def tried(self) -> MergeReport:
        """What the merge would do. Nothing is written."""
        self._count(self._begun())
        return self.report(dry_run=True)

    def report(self, *, dry_run: bool) -> MergeReport:
        """What the last computation does."""
        computation = self._computed
        assert computation is not None
        return MergeReport(
            location=computation.table.location,
            dry_run=dry_run,
            source_rows=computation.source_rows,
            rows_updated=computation.rows.updated,
            rows_deleted=computation.rows.deleted,
            rows_inserted=self._inserted,
            files=len(computation.matches),
            files_read=len(computation.scan.files),
        )

    def bytes_to_read(self) -> int:
        """How many bytes the files have that may have rows that matter."""
        return sum(entry.file.file_size for entry in self._begun().scan.files)

    def compute(self) -> ComputedChange | None:
        """See `RowChange.compute`."""
        self._remove_new_rows()
        computation = self._begun()
        table = computation.table
        self._write(computation)
        if not self._messages and not computation.matches:
            self.abandon()
            return None
        found = _found(computation)
        uuid = self._runtime.ids.uuid()
        replaced: Mapping[DataFile, tuple[DataFileMeta, ...]] = {}
        if table.options.value(DELETION_VECTORS):
            marked = {match.data_file: match.positions for match in computation.matches}
            changes = FileChanges(table, uuid, marked=marked, messages=self._messages)
        else:
            check_indexes(table, computation.scan.snapshot)
            replaced = self._rest.write(found)
            changes = FileChanges(table, uuid, replaced=replaced, messages=self._messages)
        return ComputedChange(
            table=table,
            premises=self._premises(computation, found),
            uuid=uuid,
            messages=(*self._messages, *_messages_of(replaced, table)),
            source=changes,
            kind=CommitKind.OVERWRITE if computation.matches else CommitKind.APPEND,
            counts=RowCounts(
                updated=computation.rows.updated,
                deleted=computation.rows.deleted,
                inserted=self._inserted,
            ),
            owned=changes.vectors.owned,
        )

    def abandon(self) -> None:
        """See `RowChange.abandon`."""
        self._remove_new_rows()
        self._rest.abandon()

    def _begun(self) -> Computation:
        """A computation on the newest snapshot that has read no row yet."""
        table = self._load()
        check_append_table(table)
        source, types = source_rows(self._source, table.schema, table.location)
        with naming(table.location):
            plan = plan_merge(self._words, table.schema, types)
        rows = self._rows(plan, source, table.location)
        scan = plan_scan(table, filter=plan.concerned(rows.possible_keys()))
        self._inserted = 0
        self._computed = Computation(
            table=table,
            scan=replace(scan, columns=plan.target_columns),
            plan=plan,
            source_rows=self._source_rows,
            rows=rows,
            matches=[],
        )
        return self._computed

    @property
    def _source_rows(self) -> int:
        """How many rows the source has."""
        rows: int = self._source.num_rows
        return rows

    def _rows(self, plan: MergePlan, source: pa.Table, location: str) -> MergeRows | DistantRows:
        """What merges the rows of the source. Raises `InvalidData`."""
        return MergeRows(plan, source, location)

    def _count(self, computation: Computation) -> None:
        """Finds out what the merge would do."""
        for _ in self._updated(computation):
            pass
        self._inserted = self._inserted_rows(computation).num_rows

    def _inserted_rows(self, computation: Computation) -> pa.Table:
        assert isinstance(computation.rows, MergeRows)
        return computation.rows.inserted()

    def _write(self, computation: Computation) -> None:
        """Writes the updated rows and the inserted ones."""
        table = computation.table
        spec = WriteSpec(
            storage=table.storage,
            schema=table.schema,
            options=table.options,
            runtime=self._runtime,
        )
        updating = replace(spec, schema=table.schema.without_defaults)
        self._messages = write_task(updating, self._updated(computation)).messages
        inserted = self._inserted_rows(computation)
        self._inserted = inserted.num_rows
        batches = inserted.to_batches(max_chunksize=BATCH_ROWS)
        self._messages += write_task(spec, batches).messages

    def _updated(self, computation: Computation) -> Iterator[pa.RecordBatch]:
        """The new values of updated rows. Notes in `matches` which rows are updated or deleted."""
        merge = computation.rows
        assert isinstance(merge, MergeRows)
        scan = computation.scan
        bytes_in_all = sum(entry.file.file_size for entry in scan.files)
        bytes_read = 0
        for entry in scan.files:
            changed: list[Ints] = []
            for rows, positions in _parts(scan, entry, computation.source_rows):
                merged = merge.of_target(rows)
                changed += [positions[merged.updated_at], positions[merged.deleted_at]]
                yield from merged.updated.to_batches(max_chunksize=BATCH_ROWS)
            at = np.sort(np.concatenate([np.empty(0, np.int64), *changed]))
            if len(at):
                computation.matches.append(FileMatch(entry, at))
            bytes_read += entry.file.file_size
            self._progress("bytes", bytes_read, bytes_in_all)

    def _premises(self, computation: Computation, found: FoundRows) -> Premises:
        scan = computation.scan
        must_stay = [match.entry for match in computation.matches]
        if computation.plan.of(When.NOT_MATCHED):
            must_stay = list(scan.files)
        names = [entry.file.file_name for entry in must_stay]
        return Premises(
            computation.table,
            scan.snapshot,
            read=scan.files,
            may_hold=partial(_may_hold, computation),
            changed=[match.entry for match in found.matches],
            vectors={name: scan.vectors.get(name) for name in names},
        )

    def _remove_new_rows(self) -> None:
        if self._messages and self._computed is not None:
            table = self._computed.table
            remove_files(table.storage, data_files(table.layout, self._messages))
        self._messages = ()


def merge_of(
    load: Callable[[], Table],
    source: pa.Table,
    words: MergeWords,
    runtime: Runtime,
    progress: Progress = silent,
) -> RowChange:
    """A merge into the table that `load` returns, as a change that can be carried out."""
    if load().schema.primary_keys:
        return KeyedMerge(load, source, words, runtime, progress)
    return AppendTableMerge(load, source, words, runtime=runtime, progress=progress)


def _messages_of(
    replaced: Mapping[DataFile, tuple[DataFileMeta, ...]], table: Table
) -> Iterator[CommitMessage]:
    """The messages that name the files which take the places of others."""
    for (partition, bucket, _), files in replaced.items():
        if files:
            yield CommitMessage(
                partition=partition,
                bucket=bucket,
                total_buckets=table.options.value(BUCKET),
                new_files=files,
            )


def _found(computation: Computation) -> FoundRows:
    """The rows that are updated or deleted, as `RestFiles` takes them."""
    table = computation.table
    every = Predicate.of(pc.scalar(True), table.schema, table.location)
    predicate = computation.scan.where or every
    return FoundRows(scan=computation.scan, predicate=predicate, matches=tuple(computation.matches))


def _parts(scan: Scan, entry: ManifestEntry, source_rows: int) -> Iterator[tuple[pa.Table, Ints]]:
    """The rows of a file that are not deleted, with their positions, in parts. A part has about as
    many rows as the source, because the source's keys are looked up for each part.
    """
    least = min(max(source_rows, BATCH_ROWS), _MOST_ROWS)
    batches: list[pa.RecordBatch] = []
    positions: list[Ints] = []
    count = 0
    for batch, at in rows_with_positions(scan)(entry):
        batches.append(batch)
        positions.append(at)
        count += batch.num_rows
        if count >= least:
            yield pa.Table.from_batches(batches), np.concatenate(positions)
            batches = []
            positions = []
            count = 0
    if count:
        yield pa.Table.from_batches(batches), np.concatenate(positions)


def _may_hold(computation: Computation, added: Sequence[ManifestEntry]) -> bool:
    """Whether one of the files that others have added has a row that the merge would have changed,
    or a row with a key of the source. A file whose partition and statistics do not exclude that is
    read.
    """
    scan = computation.scan
    if any(entry.file.schema_id > scan.schema.id for entry in added):
        return True  # the merge has to be computed with the newer columns
    entries = list(added)
    if scan.where is not None:
        possible = scan.where.possible(known_of(scan, added, scan.where))
        entries = [entry for entry, is_possible in zip(added, possible, strict=True) if is_possible]
    searched = replace(scan, columns=computation.plan.deciding_columns, vectors={})
    try:
        return any(
            computation.rows.concerns(rows)
            for entry in entries
            for rows, _ in _parts(searched, entry, computation.source_rows)
        )
    except NotFound:
        return True  # the file has been replaced and removed meanwhile
