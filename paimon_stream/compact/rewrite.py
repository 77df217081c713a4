"""Carries out units: reads the files of each unit, and writes their rows into new files that
replace them (compaction.md §2.2, §3.2). Several threads may work at the same time, each on a
different unit. If a unit is given up, its new files are removed.

Files of tables with a primary key are merged (§5, RC5.7). One call may carry out two picks: the
second is planned on the result of the first. A new file that the second pick merges again is
removed, and no snapshot names it.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, NamedTuple

import pyarrow as pa

from paimon_stream.commit.plan import IndexChange
from paimon_stream.commit.vectors import VectorChanges
from paimon_stream.compact.keyed_plan import KeyedThresholds, next_unit
from paimon_stream.compact.units import KeyedUnit, Merge, Unit, WaitingUnit, size_of
from paimon_stream.format import entries as records
from paimon_stream.format.entries import (
    DataFileMeta,
    FileIdentity,
    FileKind,
    FileSource,
    IndexFileMeta,
    ManifestEntry,
)
from paimon_stream.merge.spec import KIND_COLUMN
from paimon_stream.options import BUCKET, ROW_TRACKING, Options
from paimon_stream.read.merged import MOST_RUNS
from paimon_stream.read.rows import read_batches, section_batches, section_changes
from paimon_stream.read.scan import Scan
from paimon_stream.reports import Progress
from paimon_stream.runtime import Runtime
from paimon_stream.table.row_ids import tracked
from paimon_stream.table.vectors import Vector
from paimon_stream.write.cast_scalar import Place, check_nulls
from paimon_stream.write.data_file import BucketWriter, DataFileSettings
from paimon_stream.write.key_task import write_keyed_task
from paimon_stream.write.key_value import KeyValueSettings, KeyValueWriter
from paimon_stream.write.task import WriteSpec

_LOG: Final = logging.getLogger(__name__)
_NULL_ADVICE: Final = "They are older than the constraint, or deletes took their values. Make the column nullable, then compact again."
_WAITING_BYTES: Final = 64 * 2**20
"""The rows that a thread holds while it distributes them to their buckets."""


class Stopped(Exception):
    """Another unit has failed, so this one is given up."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A unit and the files that replace its files.

    Attributes:
        unit: the files that are replaced. A file that only changes its level is also in `files`.
        files: the files that replace them, in the order in which they are read.
        changelog: the changelog files.
        vectors: the deletion vectors of the files from which the unit was planned, by the name of
            the data file.
        index: the bucket's new index file if the vectors have changed. It is empty without a
            primary key.
        homes: the bucket of each new file, by the name of the file, if the unit's rows waited for a
            bucket.
    """

    unit: Unit
    files: tuple[DataFileMeta, ...]
    changelog: tuple[DataFileMeta, ...] = ()
    vectors: Mapping[str, Vector] = field(default_factory=dict)
    index: tuple[IndexFileMeta, ...] = ()
    homes: Mapping[str, int] = field(default_factory=dict)

    @property
    def written(self) -> list[DataFileMeta]:
        """The new data files."""
        replaced_names = {entry.file.file_name for entry in self.unit.files}
        return [file for file in self.files if file.file_name not in replaced_names]

    def deleted(self) -> list[ManifestEntry]:
        """The unit's files as DELETEs."""
        return [replace(entry, kind=FileKind.DELETE) for entry in self.unit.files]

    def index_changes(self) -> Iterator[IndexChange]:
        """The new index file as an ADD."""
        partition, bucket, _ = self.unit.bucket
        for file in self.index:
            entry = records.IndexManifestEntry(partition=partition, bucket=bucket, file=file)
            yield IndexChange(kind=FileKind.ADD, entry=entry)

    def placed(self, files: Iterable[DataFileMeta]) -> list[ManifestEntry]:
        """New data files or changelog files as ADDs."""
        first = replace(self.unit.files[0], kind=FileKind.ADD)
        if not isinstance(self.unit, WaitingUnit):
            return [replace(first, file=file) for file in files]
        first = replace(first, total_buckets=self.unit.buckets)
        return [replace(first, file=file, bucket=self.homes[file.file_name]) for file in files]


class Rewriter:
    """Rewrites units of one scan. Several threads may call it at the same time. This class is for
    append tables.
    """

    def __init__(
        self, scan: Scan, runtime: Runtime, progress: Progress, units: Iterable[Unit]
    ) -> None:
        """Prepares the rewriting. No file is read yet.

        Args:
            scan: a scan with all columns of the schema that the new files will have.
            runtime: the clock and the ids.
            progress: shows how many bytes of the units are done.
            units: the units that will be rewritten.

        Raises:
            ConfigError: the table's options do not allow its files to be written.
        """
        self._progress = progress
        self._size = sum(unit.size for unit in units)
        """The bytes of all units."""
        self._done = 0.0
        """The bytes that all threads have done so far."""
        self._lock = threading.Lock()  # of `_done`
        self._scan = scan
        self._storage = scan.table.storage
        self._runtime = runtime
        self._layout = scan.table.layout
        schema = scan.schema
        self._write_columns: tuple[str, ...] | None = None
        if scan.table.options.value(ROW_TRACKING):
            schema = tracked(scan.schema)
            self._scan = replace(scan, columns=schema.fields)
            self._write_columns = schema.field_names
        self._settings = DataFileSettings.of(schema, scan.table.options, scan.table.location)
        self._stopped = threading.Event()

    def rewrite(self, unit: Unit) -> Rewritten:
        """Writes the unit's rows to new files, which are durable when this method returns. Before
        any error is raised, those files are removed (best effort). Raises `Stopped`, and the errors
        of reading and writing.
        """
        partition, bucket, _ = unit.bucket
        folder = self._layout.bucket_folder(partition, bucket)
        writer = BucketWriter(self._settings, self._storage, self._runtime, folder)
        try:
            batches = read_batches(replace(self._scan, files=unit.files))
            for batch in self._watched(batches, unit.size, unit.rows):
                writer.add(pa.RecordBatch.from_arrays(batch.columns, schema=self._settings.arrow))
            files = writer.close()
        except BaseException as error:
            self._remove(writer.abort(error))
            raise
        numbered = _numbered(files, unit.files[0].file.min_sequence_number, self._write_columns)
        return Rewritten(unit, numbered, vectors=self._applied(unit))

    def _applied(self, unit: Unit) -> dict[str, Vector]:
        """The deletion vectors of the files from which the unit was planned."""
        names = (entry.file.file_name for entry in unit.known)
        return {name: self._scan.vectors[name] for name in names if name in self._scan.vectors}

    def stop(self) -> None:
        """Ends the rewriting in all threads."""
        self._stopped.set()

    def remove(self, results: Iterable[Rewritten]) -> None:
        """Removes the new files of these results, and no other files (RC11.4). The results will not
        be published.
        """
        for result in results:
            entries = result.placed((*result.written, *result.changelog))
            self._remove(map(self._layout.file_of, entries))
            bucket = result.unit.bucket
            self._remove(
                self._layout.index_file(bucket.partition, bucket.number, file)
                for file in result.index
            )

    def _watched(
        self, batches: Iterable[pa.RecordBatch], size: int, rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Passes the batches on. Each batch is checked, and is counted for the progress. All
        batches together have `rows` rows, and their files have `size` bytes. Raises `Stopped`,
        `NullInNotNull`.
        """
        reported = 0.0
        for batch in batches:
            if self._stopped.is_set():
                raise Stopped
            self._check_nulls(batch)
            yield batch
            share = size * batch.num_rows / rows
            reported += share
            self._report(share)
        self._report(size - reported)

    def _check_nulls(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Raises `NullInNotNull` for NULLs in columns that are NOT NULL. Default values do not
        replace such NULLs, because defaults are only for new rows.
        """
        for column in self._scan.schema.fields:
            place = Place(table=self._scan.table.location, column=column.name)
            check_nulls(rows.column(column.name), column.type, place, _NULL_ADVICE)

    def _report(self, size: float) -> None:
        with self._lock:
            self._done += size
            self._progress("bytes", round(self._done), self._size)

    def _remove(self, paths: Iterable[str]) -> None:
        for path, error in self._storage.delete_all(list(paths)).items():
            _LOG.warning("%s of a compaction that was given up stays as an orphan: %s", path, error)


def _numbered(
    files: Iterable[DataFileMeta], first: int, columns: tuple[str, ...] | None
) -> tuple[DataFileMeta, ...]:
    """The files with consecutive sequence numbers (RC3.2).

    Args:
        files: the files in the order in which they are read.
        first: the first number. It is the first number of the first file that was rewritten.
        columns: the written columns of the files. None if these are the table's columns.
    """
    numbered = []
    for file in files:
        last = first + file.row_count - 1
        numbered.append(
            replace(file.numbered(first, last), file_source=FileSource.COMPACT, write_cols=columns)
        )
        first = last + 1
    return tuple(numbered)


class _LevelSettings(NamedTuple):
    """How the files of a level are written.

    Attributes:
        data: how the data files are written.
        changelog: how the changelog files are written.
    """

    data: KeyValueSettings
    changelog: KeyValueSettings


class _NewFiles(NamedTuple):
    """The files that a merge has written.

    Attributes:
        data: the data files.
        changelog: the changelog files.
    """

    data: list[DataFileMeta]
    changelog: list[DataFileMeta]


@dataclass(slots=True, kw_only=True)
class _BucketWork:
    """What the picks of one call have done in a bucket with a primary key.

    Attributes:
        scan: the scan by which rows are read. A merge adds to it the rows that the merge marks as
            deleted.
        live: the files of the bucket after the picks, by identity.
        written: the paths of all new files.
        changelog: the new changelog files.
    """

    scan: Scan
    live: dict[FileIdentity, ManifestEntry]
    written: list[str] = field(default_factory=list)
    changelog: list[DataFileMeta] = field(default_factory=list)


class KeyedRewriter(Rewriter):
    """Carries out units of tables with primary keys."""

    def __init__(
        self,
        scan: Scan,
        runtime: Runtime,
        progress: Progress,
        units: Sequence[KeyedUnit],
        limits: KeyedThresholds,
    ) -> None:
        """See `Rewriter`. `limits` are used to plan the bucket again after the first unit."""
        super().__init__(scan, runtime, progress, units)
        assert scan.merge is not None
        self._spec = scan.merge
        self._limits = limits
        self._types = [scan.schema.field(name).type for name in scan.merge.keys]
        self._settings_of = cache(self._settings_of_level)  # two threads may make equal settings
        self._runs_end = threading.Condition()
        self._open_runs = 0
        """How many sorted runs all threads together are reading. Guarded by `_runs_end`."""
        for unit in units:
            self._settings_of(unit.level)

    def rewrite(self, unit: Unit) -> Rewritten:
        """Carries out the unit. If the bucket then has a next unit, carries it out, too. See
        `Rewriter.rewrite`.
        """
        assert isinstance(unit, KeyedUnit)
        work = _BucketWork(
            scan=replace(self._scan, deletions={}),
            live={entry.identity: entry for entry in unit.in_bucket},
        )
        try:
            self._carry_out(unit, work, share=1)
            second = next_unit(
                list(work.live.values()), self._spec, self._types, self._limits, full=False
            )
            if second is not None:
                self._carry_out(second, work, share=0)
            index = self._write_index(unit, work)
        except BaseException:
            self._remove(work.written)
            raise
        before = {entry.identity for entry in unit.in_bucket}
        files = tuple(entry.file for identity, entry in work.live.items() if identity not in before)
        replaced = tuple(entry for entry in unit.in_bucket if entry.identity not in work.live)
        kept_names = {file.file_name for file in (*files, *work.changelog)}
        self._remove(path for path in work.written if path.rpartition("/")[2] not in kept_names)
        upgrades = tuple(entry for entry in replaced if entry.file.file_name in kept_names)
        unit = replace(unit, files=replaced, upgrades=upgrades)
        return Rewritten(unit, files, tuple(work.changelog), self._applied(unit), index)

    def _write_index(self, unit: KeyedUnit, work: _BucketWork) -> tuple[IndexFileMeta, ...]:
        """Writes the bucket's new index file, which is durable when this method returns. A new
        index file is written if the live files have other deletion vectors than before, or if the
        old index file names files that no longer exist (RC9.1). A rewritten file has no vector any
        more. A file that only changes its level keeps its vector.
        """
        place = (unit.bucket.partition, unit.bucket.number)
        deletions = work.scan.deletions
        names = {entry.file.file_name for entry in work.live.values()}
        entries = {entry.file.file_name: entry for entry, _ in self._applied(unit).values()}
        if not (entries or deletions):
            return ()
        changed_names = {
            vector.data_file for entry in entries.values() for vector in entry.file.deletions or ()
        }
        gone = {(*place, name) for name in changed_names - names}
        changes = VectorChanges(self._scan.table, self._runtime.ids.uuid())
        with changes.owned():
            new_vectors = {
                (*place, name): deletions[name] for name in sorted(names & deletions.keys())
            }
            changed = changes.at(entries.values(), gone, new_vectors)
        return tuple(change.entry.file for change in changed)

    def _carry_out(self, unit: KeyedUnit, work: _BucketWork, *, share: int) -> None:
        """Carries out one pick. If `share` is 1, the bytes of the pick are counted as progress. If
        it is 0, they are not counted.
        """
        placed = [
            replace(entry, file=replace(entry.file, level=unit.level)) for entry in unit.upgrades
        ]
        self._report(share * size_of(unit.upgrades))
        for merge in unit.merges:
            new_files = self._merge(unit.level, merge, work, share)
            first = merge.files[0]
            placed += (
                replace(first, file=replace(file, file_source=FileSource.COMPACT))
                for file in new_files.data
            )
            work.changelog += new_files.changelog
        for entry in unit.files:
            del work.live[entry.identity]
        work.live.update((entry.identity, entry) for entry in placed)

    def _settings_of_level(self, level: int) -> _LevelSettings:
        """How the files of a level are written. If there is no changelog, the settings of the
        changelog are not used.
        """
        schema = self._scan.schema
        table = self._scan.table
        older = self._limits.older
        data = KeyValueSettings.of(schema, table.options, table.location, level=level)
        if not (older.logs or older.full):
            return _LevelSettings(data, data)
        changelog = KeyValueSettings.of(
            schema, table.options, table.location, level=level, changelog=True
        )
        return _LevelSettings(data, changelog)

    def _merge(self, level: int, merge: Merge, work: _BucketWork, share: int) -> _NewFiles:
        """Carries out a merge onto this level. See `_carry_out` for `share`."""
        files = merge.files
        first = files[0]
        rows = sum(entry.file.row_count for entry in files)
        folder = self._layout.bucket_folder(first.partition, first.bucket)
        settings = self._settings_of(level)
        data, changelog = (
            KeyValueWriter(setting, self._storage, self._runtime, folder) for setting in settings
        )
        size = share * size_of(files) if merge.writes else 0
        run_counts = [len(section.runs) + len(section.looked_up) for section in merge.sections]
        batches = self._batches(merge, work.scan, changelog.add_rows)
        try:
            with self._reading_runs(max(run_counts, default=0)):
                for batch in self._watched(batches, size, rows):
                    if merge.writes:
                        data.add_rows(batch)
            new_files = _NewFiles(
                data=[replace(file, level=level) for file in data.close()],
                changelog=[replace(file, level=level) for file in changelog.close()],
            )
        except BaseException as error:
            self._remove([*data.abort(error), *changelog.abort(error)])
            raise
        work.written += (*data.paths, *changelog.paths)
        return new_files

    @contextmanager
    def _reading_runs(self, runs: int) -> Iterator[None]:
        """A context in which `runs` runs are read at the same time. The context first waits until
        all threads together would read at most `MOST_RUNS` runs, or until no other thread reads
        any, because the memory grows with the runs of all threads.
        """
        with self._runs_end:
            self._runs_end.wait_for(
                lambda: not self._open_runs or self._open_runs + runs <= MOST_RUNS
            )
            self._open_runs += runs
        try:
            yield
        finally:
            with self._runs_end:
                self._open_runs -= runs
                self._runs_end.notify_all()

    def _batches(
        self, merge: Merge, scan: Scan, take_changes: Callable[[pa.Table], None]
    ) -> Iterator[pa.RecordBatch]:
        """Yields the merged rows. Passes the rows of the changelog to `take_changes`."""
        fresh_rows = None if self._limits.expiry is None else self._limits.expiry.fresh
        if merge.comparison is None:
            yield from section_batches(
                scan, merge.sections, keep_deletes=merge.keep_deletes, row_filter=fresh_rows
            )
            return
        for rows, changes in section_changes(
            scan,
            merge.sections,
            merge.comparison,
            keep_deletes=merge.keep_deletes,
            row_filter=fresh_rows,
        ):
            if changes is not None:
                self._check_nulls(changes)
                take_changes(changes)
            yield from rows.to_batches()


class Distributor(Rewriter):
    """Gives buckets to rows that wait for a bucket. These rows are written like new rows
    (table-kinds.md §4.3).
    """

    def rewrite(self, unit: Unit) -> Rewritten:
        """See `Rewriter.rewrite`."""
        assert isinstance(unit, WaitingUnit)
        table = self._scan.table
        schema = self._scan.schema
        spec = WriteSpec(
            storage=self._storage,
            schema=schema.without_defaults,
            options=Options(table.options, {BUCKET.key: str(unit.buckets)}, table.location),
            runtime=self._runtime,
            buffer_bytes=_WAITING_BYTES,
        )
        waiting = replace(
            self._scan, files=unit.files, columns=(*self._scan.columns, KIND_COLUMN), merge=None
        )
        batches = self._watched(read_batches(waiting), unit.size, unit.rows)
        messages = write_keyed_task(spec, batches, first_sequence=unit.first).messages
        return Rewritten(
            unit,
            tuple(file for message in messages for file in message.new_files),
            tuple(file for message in messages for file in message.changelog_files),
            homes={name: message.bucket for message in messages for name in message.file_names()},
        )


class DaemonThreads(Executor):
    """Runs at most `most` calls at a time. Unlike the threads of a `ThreadPoolExecutor`, its
    threads end with the process, and no thread exists while there is nothing to do.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._threads = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See `Executor.submit`. Raises `RuntimeError` if a thread is needed but cannot be
        started.
        """
        future: Future[Any] = Future()
        with self._lock:
            self._calls.append((future, lambda: fn(*args, **kwargs)))
            needs_thread = self._threads < self._most
            if needs_thread:
                self._threads += 1
        if needs_thread:
            try:
                threading.Thread(
                    target=self._work, name="paimon-stream-compact", daemon=True
                ).start()
            except RuntimeError:  # the system has no more threads now
                future.cancel()  # the call stays queued, and `_work` passes over it
                with self._lock:
                    self._threads -= 1
                raise
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._calls:
                    self._threads -= 1
                    return
                future, call = self._calls.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001  the caller of `result` judges it
                future.set_exception(error)
            else:
                future.set_result(result)
