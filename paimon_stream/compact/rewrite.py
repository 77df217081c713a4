"""Rewrites the files of one unit in threads (compaction.md §2.2, §3.2), so that no file of a unit
that is given up stays. Files of tables with a primary key are merged (§5, RC5.7). One call may
carry out two picks, the second planned on what the first has made; what it merges again is removed,
and is in no snapshot.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import Any, Final

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
_NULL_CURE: Final = "They are older than the constraint, or deletes took their values. Make the column nullable, then compact again."
_WAITING_BYTES: Final = 64 * 2**20
"""The rows that a thread holds while it distributes them to their buckets."""


class Stopped(Exception):
    """Another unit has failed, so this one is given up."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A unit and the files that replace its files, in reading order. A file that only changes its
    level is in both. `changelog` are the files that tell what has changed. `vectors` are the
    deletion vectors of the files from which the unit was planned, by the name of the data file.
    With a primary key, `index` is the bucket's new index file if these have changed. `homes` are
    the buckets of files with rows that have waited.
    """

    unit: Unit
    files: tuple[DataFileMeta, ...]
    changelog: tuple[DataFileMeta, ...] = ()
    vectors: Mapping[str, Vector] = field(default_factory=dict)
    index: tuple[IndexFileMeta, ...] = ()
    homes: Mapping[str, int] = field(default_factory=dict)

    @property
    def written(self) -> list[DataFileMeta]:
        """The files that are new, but for the changelog."""
        old = {one.file.file_name for one in self.unit.files}
        return [one for one in self.files if one.file_name not in old]

    def deleted(self) -> list[ManifestEntry]:
        """The unit's files as DELETEs."""
        return [replace(one, kind=FileKind.DELETE) for one in self.unit.files]

    def index_changes(self) -> Iterator[IndexChange]:
        """The new index file as an ADD."""
        partition, bucket, _ = self.unit.bucket
        for file in self.index:
            entry = records.IndexManifestEntry(partition=partition, bucket=bucket, file=file)
            yield IndexChange(kind=FileKind.ADD, entry=entry)

    def placed(self, files: Iterable[DataFileMeta]) -> list[ManifestEntry]:
        """New files, or those of the changelog, as ADDs."""
        first = replace(self.unit.files[0], kind=FileKind.ADD)
        if not isinstance(self.unit, WaitingUnit):
            return [replace(first, file=file) for file in files]
        first = replace(first, total_buckets=self.unit.buckets)
        return [replace(first, file=file, bucket=self.homes[file.file_name]) for file in files]


class Rewriter:
    """Rewrites these units of one scan, several at a time if it is called in several threads.
    `scan` has all columns of the schema with which the new files are written. This class is for
    append tables.
    """

    def __init__(
        self, scan: Scan, runtime: Runtime, progress: Progress, units: Iterable[Unit]
    ) -> None:
        """Raises `ConfigError`s."""
        self._progress, self._size, self._done = progress, sum(one.size for one in units), 0.0
        self._lock = threading.Lock()
        self._scan = scan
        self._storage = scan.table.storage
        self._runtime = runtime
        self._layout = scan.table.layout
        schema, self._write_columns = scan.schema, None
        if scan.table.options.value(ROW_TRACKING):
            schema = tracked(scan.schema)
            self._scan, self._write_columns = (
                replace(scan, columns=schema.fields),
                schema.field_names,
            )
        self._settings = DataFileSettings.of(schema, scan.table.options, scan.table.location)
        self._stopped = threading.Event()

    def rewrite(self, unit: Unit) -> Rewritten:
        """Writes the unit's rows to new files, which are durable on return. Before any error is
        raised, they are removed (best effort). Raises `Stopped`, and the errors of reading and
        writing.
        """
        partition, bucket, _ = unit.bucket
        folder = self._layout.bucket_folder(partition, bucket)
        writer = BucketWriter(self._settings, self._storage, self._runtime, folder)
        try:
            batches = read_batches(replace(self._scan, files=unit.files))
            for batch in self._watched(batches, unit.size, unit.rows):
                writer.add(pa.RecordBatch.from_arrays(batch.columns, schema=self._settings.arrow))
            files = writer.close()
        except BaseException as why:
            self._remove(writer.abort(why))
            raise
        made = _numbered(files, unit.files[0].file.min_sequence_number, self._write_columns)
        return Rewritten(unit, made, vectors=self._applied(unit))

    def _applied(self, unit: Unit) -> dict[str, Vector]:
        """The deletion vectors of the files from which the unit was planned."""
        names = (one.file.file_name for one in unit.known)
        return {name: self._scan.vectors[name] for name in names if name in self._scan.vectors}

    def stop(self) -> None:
        """Ends the rewriting in all threads."""
        self._stopped.set()

    def remove(self, made: Iterable[Rewritten]) -> None:
        """Removes the new files, which will not be published, and no others (RC11.4)."""
        for one in made:
            new = one.placed((*one.written, *one.changelog))
            self._remove(map(self._layout.file_of, new))
            self._remove(self._layout.index_file(*one.unit.bucket[:2], file) for file in one.index)

    def _watched(
        self, batches: Iterable[pa.RecordBatch], size: int, rows: int
    ) -> Iterator[pa.RecordBatch]:
        """The batches, checked and counted: `rows` of files with `size` bytes. Raises `Stopped`,
        `NullInNotNull`.
        """
        told = 0.0
        for batch in batches:
            if self._stopped.is_set():
                raise Stopped
            self._check_nulls(batch)
            yield batch
            told += size * batch.num_rows / rows
            self._report(size * batch.num_rows / rows)
        self._report(size - told)

    def _check_nulls(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Raises `NullInNotNull`. A column's default is for new rows only."""
        for column in self._scan.schema.fields:
            place = Place(table=self._scan.table.location, column=column.name)
            check_nulls(rows.column(column.name), column.type, place, _NULL_CURE)

    def _report(self, size: float) -> None:
        with self._lock:
            self._done += size
            self._progress("bytes", round(self._done), self._size)

    def _remove(self, paths: Iterable[str]) -> None:
        for path, why in self._storage.delete_all(list(paths)).items():
            _LOG.warning("%s of a compaction that was given up stays as an orphan: %s", path, why)


def _numbered(
    files: Iterable[DataFileMeta], first: int, columns: tuple[str, ...] | None
) -> tuple[DataFileMeta, ...]:
    """The files with sequence numbers that run on over all of them from the first input's (RC3.2).
    `columns` are their written columns, if these are not the table's.
    """
    made = []
    for file in files:
        last = first + file.row_count - 1
        made.append(
            replace(file.numbered(first, last), file_source=FileSource.COMPACT, write_cols=columns)
        )
        first = last + 1
    return tuple(made)


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
        """Raises `ConfigError`s."""
        super().__init__(scan, runtime, progress, units)
        assert scan.merge is not None
        self._spec, self._limits = scan.merge, limits
        self._types = [scan.schema.field(name).type for name in scan.merge.keys]
        self._settings_of = cache(self._of_level)  # two threads may make equal ones
        self._fewer, self._open_runs = threading.Condition(), 0
        for one in units:
            self._settings_of(one.level)

    def rewrite(self, unit: Unit) -> Rewritten:
        """Carries out the unit, then what is due in its bucket after that. See
        `Rewriter.rewrite`.
        """
        assert isinstance(unit, KeyedUnit)
        live = {one.identity: one for one in unit.in_bucket}
        written: list[str] = []
        changelog: list[DataFileMeta] = []
        scan = replace(self._scan, marked={})
        try:
            self._carry_out(unit, scan, live, written, changelog, share=1)
            second = next_unit(
                list(live.values()), self._spec, self._types, self._limits, full=False
            )
            if second is not None:
                self._carry_out(second, scan, live, written, changelog, share=0)
            index = self._index(unit, scan, live.values())
        except BaseException:
            self._remove(written)
            raise
        old = {one.identity for one in unit.in_bucket}
        files = tuple(one.file for identity, one in live.items() if identity not in old)
        replaced = tuple(one for one in unit.in_bucket if one.identity not in live)
        kept = {one.file_name for one in (*files, *changelog)}
        self._remove(path for path in written if path.rpartition("/")[2] not in kept)
        upgrades = tuple(one for one in replaced if one.file.file_name in kept)
        unit = replace(unit, files=replaced, upgrades=upgrades)
        return Rewritten(unit, files, tuple(changelog), self._applied(unit), index)

    def _index(
        self, unit: KeyedUnit, scan: Scan, live: Iterable[ManifestEntry]
    ) -> tuple[IndexFileMeta, ...]:
        """The bucket's new index file, durable, if its `live` files have other deletion vectors
        than before, or if it names other files (RC9.1). A rewritten file has none any more, and one
        that only changes its level keeps its.
        """
        where, names = unit.bucket[:2], {one.file.file_name for one in live}
        entries = {entry.file.file_name: entry for entry, _ in self._applied(unit).values()}
        if not (entries or scan.marked):
            return ()
        known = {one.data_file for entry in entries.values() for one in entry.file.deletions or ()}
        gone = {(*where, one) for one in known - names}
        changes = VectorChanges(self._scan.table, self._runtime.ids.uuid())
        with changes.owned():
            new = {(*where, one): scan.marked[one] for one in sorted(names & scan.marked.keys())}
            made = changes.at(entries.values(), gone, new)
        return tuple(one.entry.file for one in made)

    def _carry_out(
        self,
        unit: KeyedUnit,
        scan: Scan,
        live: dict[FileIdentity, ManifestEntry],
        written: list[str],
        changelog: list[DataFileMeta],
        *,
        share: int,
    ) -> None:
        """Carries out one pick, which changes the live files and the rows that are marked in the
        scan. Adds the paths of new files to `written`, and the changelog. With `share` 0, the
        progress does not count its bytes.
        """
        made = [replace(one, file=replace(one.file, level=unit.level)) for one in unit.upgrades]
        self._report(share * size_of(unit.upgrades))
        for merge in unit.merges:
            new, log = self._merged(unit, merge, scan, written, share)
            first = merge.files[0]
            made += (
                replace(first, file=replace(one, file_source=FileSource.COMPACT)) for one in new
            )
            changelog += log
        for one in unit.files:
            del live[one.identity]
        live.update((one.identity, one) for one in made)

    def _of_level(self, level: int) -> tuple[KeyValueSettings, KeyValueSettings]:
        """Those for data files and for changelog files."""
        schema, table, older = self._scan.schema, self._scan.table, self._limits.older
        data = KeyValueSettings.of(schema, table.options, table.location, level=level)
        if not (older.logs or older.full):
            return data, data
        return data, KeyValueSettings.of(
            schema, table.options, table.location, level=level, changelog=True
        )

    def _merged(
        self, unit: KeyedUnit, merge: Merge, scan: Scan, written: list[str], share: int
    ) -> list[list[DataFileMeta]]:
        files = merge.files
        first, rows = files[0], sum(one.file.row_count for one in files)
        folder = self._layout.bucket_folder(first.partition, first.bucket)
        settings = self._settings_of(unit.level)
        data, log = (KeyValueWriter(one, self._storage, self._runtime, folder) for one in settings)
        size = share * size_of(files) if merge.writes else 0
        runs = max((len(one.runs) + len(one.looked_up) for one in merge.sections), default=0)
        try:
            with self._few_runs(runs):
                for batch in self._watched(self._batches(merge, scan, log.add_rows), size, rows):
                    if merge.writes:
                        data.add_rows(batch)
            made = [
                [replace(one, level=unit.level) for one in writer.close()] for writer in (data, log)
            ]
        except BaseException as why:
            self._remove([*data.abort(why), *log.abort(why)])
            raise
        written += (*data.paths, *log.paths)
        return made

    @contextmanager
    def _few_runs(self, runs: int) -> Iterator[None]:
        """Waits until another thread merges no runs, or so few that these may be merged beside
        them. Memory grows with the runs of all threads.
        """
        with self._fewer:
            self._fewer.wait_for(lambda: not self._open_runs or self._open_runs + runs <= MOST_RUNS)
            self._open_runs += runs
        try:
            yield
        finally:
            with self._fewer:
                self._open_runs -= runs
                self._fewer.notify_all()

    def _batches(
        self, merge: Merge, scan: Scan, log: Callable[[pa.Table], None]
    ) -> Iterator[pa.RecordBatch]:
        """The merged rows. The rows of the changelog are passed to `log`."""
        kept = None if self._limits.expiry is None else self._limits.expiry.fresh
        if merge.comparison is None:
            yield from section_batches(
                scan, merge.sections, keep_deletes=merge.keep_deletes, kept=kept
            )
            return
        for rows, changes in section_changes(
            scan, merge.sections, merge.comparison, keep_deletes=merge.keep_deletes, kept=kept
        ):
            if changes is not None:
                self._check_nulls(changes)
                log(changes)
            yield from rows.to_batches()


class Distributor(Rewriter):
    """Gives rows that wait their buckets: writes them as any other rows are written (table-kinds.md
    §4.3).
    """

    def rewrite(self, unit: Unit) -> Rewritten:
        """See `Rewriter.rewrite`."""
        assert isinstance(unit, WaitingUnit)
        table, schema = self._scan.table, self._scan.schema
        fields = tuple(
            replace(one, default_value=None) for one in schema.fields
        )  # a default is for new rows only
        spec = WriteSpec(
            storage=self._storage,
            schema=replace(schema, fields=fields),
            options=Options(table.options, {BUCKET.key: str(unit.buckets)}, table.location),
            runtime=self._runtime,
            buffer_bytes=_WAITING_BYTES,
        )
        waiting = replace(
            self._scan, files=unit.files, columns=(*self._scan.columns, KIND_COLUMN), merge=None
        )
        batches = self._watched(read_batches(waiting), unit.size, unit.rows)
        messages = write_keyed_task(spec, batches, first_sequence=unit.first).messages
        files, logs = (
            [getattr(one, name) for one in messages] for name in ("new_files", "changelog_files")
        )
        homes = {name: one.bucket for one in messages for name in one.file_names()}
        return Rewritten(
            unit, tuple(chain.from_iterable(files)), tuple(chain.from_iterable(logs)), homes=homes
        )


class DaemonThreads(Executor):
    """Runs at most `most` calls at a time. Unlike those of a `ThreadPoolExecutor`, its threads end
    with the process, and there is none while nothing is to be done.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._threads = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See `Executor.submit`. Raises `RuntimeError` if a thread is needed and none can begin."""
        future: Future[Any] = Future()
        with self._lock:
            self._calls.append((future, lambda: fn(*args, **kwargs)))
            begins = self._threads < self._most
            self._threads += begins
        if begins:
            try:
                threading.Thread(
                    target=self._work, name="paimon-stream-compact", daemon=True
                ).start()
            except RuntimeError:  # the system has no more threads now
                future.cancel()
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
            except BaseException as why:  # noqa: BLE001  whoever asks for the result judges it
                future.set_exception(why)
            else:
                future.set_result(result)
