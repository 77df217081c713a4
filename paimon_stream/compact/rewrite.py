"""Rewrites the files of one unit (compaction.md §2.2, §3.2): in threads, with progress, and so that no file
of a unit that is given up stays."""

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from paimon_stream.compact.units import Unit
from paimon_stream.format.entries import DataFileMeta, FileKind, FileSource, ManifestEntry
from paimon_stream.read.rows import read_batches
from paimon_stream.read.scan import Scan
from paimon_stream.reports import Progress
from paimon_stream.runtime import Runtime
from paimon_stream.table.vectors import Vector
from paimon_stream.write.cast_scalar import Place, check_nulls
from paimon_stream.write.data_file import BucketWriter, DataFileSettings

_LOG: Final = logging.getLogger(__name__)
_NULL_CURE: Final = (
    "They are older than the constraint, or deletes have taken their values away. Make the column nullable, "
    "then compact again."
)


class Stopped(Exception):
    """Another unit has failed, so this one is given up."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A unit and the files that replace its files, in reading order. A file that only changes its level is
    in both. `changelog` are the files that tell what has changed. `vectors` are the deletion vectors that were
    applied, by the name of the data file."""

    unit: Unit
    files: tuple[DataFileMeta, ...]
    changelog: tuple[DataFileMeta, ...] = ()
    vectors: Mapping[str, Vector] = field(default_factory=dict)

    @property
    def written(self) -> list[DataFileMeta]:
        """The files that are new, but for the changelog."""
        old = {one.file.file_name for one in self.unit.files}
        return [one for one in self.files if one.file_name not in old]

    def entries(self, kind: FileKind) -> list[ManifestEntry]:
        """The unit's files as DELETEs, or the new ones as ADDs."""
        if kind is FileKind.DELETE:
            return [replace(one, kind=kind) for one in self.unit.files]
        return self._added(self.files)

    def changelog_entries(self) -> list[ManifestEntry]:
        """The changelog's files as ADDs."""
        return self._added(self.changelog)

    def _added(self, files: Iterable[DataFileMeta]) -> list[ManifestEntry]:
        first = self.unit.files[0]
        return [replace(first, kind=FileKind.ADD, file=file) for file in files]


class Rewriter:
    """Rewrites these units of one scan, several at a time if it is called in several threads. `scan` has all
    columns of the schema with which the new files are written. This class is for append tables."""

    def __init__(self, scan: Scan, runtime: Runtime, progress: Progress, units: Iterable[Unit]) -> None:
        """Raises `ConfigError`s."""
        self._progress, self._size, self._done = progress, sum(one.size for one in units), 0.0
        self._lock = threading.Lock()
        self._scan = scan
        self._storage = scan.table.storage
        self._runtime = runtime
        self._layout = scan.table.layout
        self._settings = DataFileSettings.of(scan.schema, scan.table.options, scan.table.location)
        self._stopped = threading.Event()

    def rewrite(self, unit: Unit) -> Rewritten:
        """Writes the unit's rows to new files, which are durable on return. Before any error is raised, they
        are removed (best effort). Raises `Stopped`, and the errors of reading and writing."""
        partition, bucket, _ = unit.bucket
        folder = self._layout.bucket_folder(partition, bucket)
        writer = BucketWriter(self._settings, self._storage, self._runtime, folder)
        try:
            batches = read_batches(replace(self._scan, files=unit.files))
            for batch in self._watched(batches, unit.size, unit.rows):
                writer.add(pa.RecordBatch.from_arrays(batch.columns, schema=self._settings.arrow))
                writer.write_due()
            files = writer.close()
        except BaseException as why:
            self._remove(writer.abort(why))
            raise
        return Rewritten(unit, _numbered(files, unit.files[0].file.min_sequence_number), vectors=self._applied(unit))

    def _applied(self, unit: Unit) -> dict[str, Vector]:
        """The deletion vectors of the unit's files."""
        names = (one.file.file_name for one in unit.files)
        return {name: self._scan.vectors[name] for name in names if name in self._scan.vectors}

    def stop(self) -> None:
        """Ends the rewriting in all threads."""
        self._stopped.set()

    def remove(self, made: Iterable[Rewritten]) -> None:
        """Removes the new files, which will not be published, and no others (RC11.4)."""
        for one in made:
            folder = self._layout.bucket_folder(*one.unit.bucket[:2])
            self._remove(f"{folder}/{file.file_name}" for file in (*one.written, *one.changelog))

    def _watched(self, batches: Iterable[pa.RecordBatch], size: int, rows: int) -> Iterator[pa.RecordBatch]:
        """The batches, checked and counted: `rows` of files with `size` bytes. Raises `Stopped`, and
        `NullInNotNull`."""
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


def _numbered(files: Iterable[DataFileMeta], first: int) -> tuple[DataFileMeta, ...]:
    """The files with sequence numbers that run on over all of them from the first input's (RC3.2)."""
    made = []
    for file in files:
        last = first + file.row_count - 1
        made.append(replace(file.numbered(first, last), file_source=FileSource.COMPACT))
        first = last + 1
    return tuple(made)
