"""Writes the files of a change of an append table: the rows that stay of files whose other rows are
deleted, and the new rows of an update. What was written for an earlier computation of the same
change is used again, if its source files and their matching rows are still the same.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from paimon_stream.change.matching import FileMatch, FoundRows
from paimon_stream.commit.vectors import DataFile
from paimon_stream.compact.rewrite import Rewriter, Rewritten
from paimon_stream.compact.units import Unit
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.deletion_vectors import Positions
from paimon_stream.format.entries import DataFileMeta, FileSource
from paimon_stream.read.rows import deleted_rows, rows_with_positions
from paimon_stream.reports import silent
from paimon_stream.runtime import Runtime
from paimon_stream.storage.base import Storage
from paimon_stream.table.message_files import data_files, remove_files
from paimon_stream.table.table import Table
from paimon_stream.table.vectors import Vector
from paimon_stream.write.data_file import target_bytes
from paimon_stream.write.task import WriteSpec, write_task

_THREADS: Final = 4

NewRows = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Returns the new rows for rows that are updated. Both have all columns of the table."""


class _SourceFile(NamedTuple):
    """A file, as it was when something was written for its matching rows.

    Attributes:
        name: the name of the file.
        schema_id: the schema of the table.
        vector: its deletion vector.
        positions: the matching rows.
    """

    name: str
    schema_id: int
    vector: Vector | None
    positions: Positions

    @classmethod
    def of(cls, found: FoundRows, match: FileMatch) -> "_SourceFile":
        """A file with matching rows, as it is now."""
        name = match.entry.file.file_name
        return cls(name, found.scan.schema.id, found.vector_of(match), match.positions)

    def is_same(self, other: "_SourceFile | None") -> bool:
        """Whether nothing has changed since then."""
        return (
            other is not None
            and self[:3] == other[:3]
            and np.array_equal(self.positions, other.positions)
        )


class _WrittenRest(NamedTuple):
    """The rows that stay of one file, in new files. `rest` is None if no row stays."""

    source: _SourceFile
    rest: Rewritten | None


class RestFiles:
    """The files that take the place of those with matching rows: they have the rows that stay."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._written: dict[str, _WrittenRest] = {}
        self._rewriter: Rewriter | None = None

    def write(self, found: FoundRows) -> dict[DataFile, tuple[DataFileMeta, ...]]:
        """Writes the rows that stay. Returns the new files of each file with matching rows. Files
        of an earlier call that are not used again are removed. Raises the errors of reading and
        writing.
        """
        sources = {
            match.entry.file.file_name: _SourceFile.of(found, match) for match in found.matches
        }
        outdated = [
            name
            for name, written in self._written.items()
            if not written.source.is_same(sources.get(name))
        ]
        self._remove(outdated)
        missing = [
            match for match in found.matches if match.entry.file.file_name not in self._written
        ]
        self._rewrite(found, missing, sources)
        return {match.data_file: self._files(match.entry.file.file_name) for match in found.matches}

    def abandon(self) -> None:
        """Removes all new files."""
        self._remove(list(self._written))

    def _files(self, name: str) -> tuple[DataFileMeta, ...]:
        rest = self._written[name].rest
        if rest is None:
            return ()
        return tuple(replace(file, file_source=FileSource.APPEND) for file in rest.files)

    def _rewrite(
        self, found: FoundRows, matches: list[FileMatch], sources: dict[str, _SourceFile]
    ) -> None:
        """Writes the rows that stay of these files, of several files at a time."""
        entries = [match.entry for match in matches]
        before = deleted_rows(found.scan, entries)
        gone = {
            match.entry.file.file_name: np.union1d(match.positions, deleted)
            for match, deleted in zip(matches, before, strict=True)
        }
        scan = replace(found.scan, columns=found.scan.schema.fields, where=None, deletions=gone)
        units = [Unit((entry,)) for entry in entries]
        rewriter = Rewriter(scan, self._runtime, silent, units)
        self._rewriter = rewriter

        def rewritten(unit: Unit) -> None:
            (entry,) = unit.files
            name = entry.file.file_name
            rest = None
            if len(gone[name]) < entry.file.row_count:
                rest = rewriter.rewrite(unit)
            self._written[name] = _WrittenRest(sources[name], rest)

        with ThreadPoolExecutor(_THREADS, thread_name_prefix="paimon-stream-change") as pool:
            try:
                for _ in pool.map(rewritten, units):
                    pass
            except BaseException:
                rewriter.stop()
                pool.shutdown(cancel_futures=True)
                raise

    def _remove(self, names: Iterable[str]) -> None:
        rests = [self._written.pop(name).rest for name in names]
        if self._rewriter is not None:
            self._rewriter.remove(rest for rest in rests if rest is not None)


class _UpdatedPart(NamedTuple):
    """Updated rows of some files, in new files."""

    sources: tuple[_SourceFile, ...]
    messages: tuple[CommitMessage, ...]


class UpdatedRows:
    """The new rows of an update. They are written in parts, of as many source files as fill a new
    file, so that a compaction of one source file does not make all others be written again.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._parts: list[_UpdatedPart] = []
        self._table: Table | None = None

    def write(self, found: FoundRows, new_rows: NewRows) -> tuple[CommitMessage, ...]:
        """Writes the new rows of all matching rows. Files of an earlier call that are not used
        again are removed. Raises the errors of reading and writing, and those of `new_rows`.
        """
        self._table = found.table
        waiting = {match.entry.file.file_name: match for match in found.matches}
        sources = {name: _SourceFile.of(found, match) for name, match in waiting.items()}
        kept = []
        outdated = []
        for part in self._parts:
            if all(source.is_same(sources.get(source.name)) for source in part.sources):
                kept.append(part)
                for source in part.sources:
                    del waiting[source.name]
            else:
                outdated.append(part)
        self._parts = kept
        self._remove(outdated)
        for matches in _filling(found, waiting.values()):
            messages = self._write_part(found, matches, new_rows)
            part_sources = tuple(sources[match.entry.file.file_name] for match in matches)
            self._parts.append(_UpdatedPart(part_sources, messages))
        return tuple(message for part in self._parts for message in part.messages)

    def abandon(self) -> None:
        """Removes all new files."""
        self._remove(self._parts)
        self._parts = []

    def _write_part(
        self, found: FoundRows, matches: Iterable[FileMatch], new_rows: NewRows
    ) -> tuple[CommitMessage, ...]:
        table = found.table
        spec = WriteSpec(
            storage=table.storage,
            schema=table.schema.without_defaults,
            options=table.options,
            runtime=self._runtime,
        )
        return write_task(spec, map(new_rows, _matching_rows(found, matches))).messages

    def _remove(self, parts: Iterable[_UpdatedPart]) -> None:
        messages = tuple(message for part in parts for message in part.messages)
        if self._table is not None and messages:
            storage: Storage = self._table.storage
            remove_files(storage, data_files(self._table.layout, messages))


def _matching_rows(found: FoundRows, matches: Iterable[FileMatch]) -> Iterator[pa.RecordBatch]:
    """The matching rows with all columns, file by file."""
    rows_of = rows_with_positions(replace(found.scan, columns=found.scan.schema.fields))
    for match in matches:
        for batch, positions in rows_of(match.entry):
            is_matching = np.isin(positions, match.positions, assume_unique=True)
            if is_matching.any():
                yield batch.filter(pa.array(is_matching))


def _filling(found: FoundRows, matches: Iterable[FileMatch]) -> Iterator[list[FileMatch]]:
    """The files in groups. The matching rows of a group fill about one new file."""
    target = target_bytes(found.table.options, keyed=False)
    group: list[FileMatch] = []
    size = 0
    for match in matches:
        file = match.entry.file
        group.append(match)
        size += file.file_size * len(match.positions) // file.row_count
        if size >= target:
            yield group
            group = []
            size = 0
    if group:
        yield group
