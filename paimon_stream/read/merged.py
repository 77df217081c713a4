"""Merges rows when they are read: decides which files of a bucket are merged with each other, and
in what order. A *section* is a set of files whose key ranges overlap, directly or through other
files. So no key is in two sections, and a section of one file is read without a merge.

This module merges the sorted files of a section piece by piece. A run is a sequence of files in key
order. One piece of every run is in memory, however large the files are. Each piece has a last key.
No run can have further rows up to the smallest of these last keys. So all rows up to that key are
merged and returned. If there are more than `MOST_RUNS` runs, and more files of level 0 than that,
these files are first joined into longer runs (compaction.md RC5.3).
"""

import heapq
import math
import os
import tempfile
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count, pairwise
from typing import IO, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from paimon_stream.errors import FormatError
from paimon_stream.format.binary_row import deserialize
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.types import DataType
from paimon_stream.merge.merge_order import Ints, in_key_order
from paimon_stream.merge.rows import merge_rows
from paimon_stream.merge.spec import MergeSpec
from paimon_stream.storage.os_files import writing

Key = tuple[Any, ...]
"""A key in a form that compares as its rows do."""

_NAN: Final = (1, 0.0)
"""NaN in a key; it is greater than all numbers (`_comparable`)."""


@dataclass(frozen=True, slots=True)
class Section:
    """Files that are merged together.

    Attributes:
        runs: the files, as runs in key order.
        ages: each file's place in the order of commits, oldest first, by the file's name.
        looked_up: runs of higher levels, in which a compaction looks up the keys of `runs`.
    """

    runs: tuple[tuple[ManifestEntry, ...], ...]
    ages: dict[str, int]
    looked_up: tuple[tuple[ManifestEntry, ...], ...] = ()

    @property
    def files(self) -> list[ManifestEntry]:
        """The section's files, without those that are looked up."""
        return [entry for run in self.runs for entry in run]

    @property
    def files_looked_up(self) -> list[ManifestEntry]:
        """The files of higher levels in which keys are looked up."""
        return [entry for run in self.looked_up for entry in run]

    @property
    def single(self) -> ManifestEntry | None:
        """The section's only file; None if it has several."""
        files = self.files
        return files[0] if len(files) == 1 else None


class _Range(NamedTuple):
    """The keys of a file.

    Attributes:
        first: the first key.
        last: the last key.
        age: the file's place in the order of commits.
        entry: the file.
    """

    first: Key
    last: Key
    age: int
    entry: ManifestEntry


class _RunInMaking(NamedTuple):
    """A run to which files are added. Such runs are sorted by their last keys.

    Attributes:
        last: the last key of the files so far.
        number: decides between runs with the same last key.
        files: the files so far, in key order.
    """

    last: Key
    number: int
    files: list[ManifestEntry]


def files_of_buckets(
    files: Iterable[ManifestEntry],
) -> dict[tuple[bytes, int], list[ManifestEntry]]:
    """The files of each bucket, by partition and bucket. Buckets are in the order in which their
    first files appear.
    """
    by_bucket: dict[tuple[bytes, int], list[ManifestEntry]] = {}
    for entry in files:
        by_bucket.setdefault((entry.partition, entry.bucket), []).append(entry)
    return by_bucket


def buckets(files: Iterable[ManifestEntry]) -> list[list[ManifestEntry]]:
    """The files of each bucket. Buckets are in the order in which their first files appear."""
    return list(files_of_buckets(files).values())


def sections(files: Sequence[ManifestEntry], types: Sequence[DataType]) -> list[Section]:
    """The sections of a bucket, in key order. `files` are in commit order. Raises `FormatError` for
    broken keys.
    """
    # Files on higher levels are older. The sort keeps the order of commits within a level.
    oldest_first = sorted(files, key=lambda entry: -entry.file.level)
    ages = {id(entry): age for age, entry in enumerate(oldest_first)}
    ranges = [_range(types, entry, ages[id(entry)]) for entry in files]
    ranges.sort(key=lambda range_: (range_.first, range_.last, range_.age))
    in_order: list[Section] = []
    overlapping: list[_Range] = []
    bound: Key = ()
    for range_ in ranges:
        if overlapping and range_.first > bound:
            in_order.append(_section(overlapping))
            overlapping = []
        bound = max(bound, range_.last) if overlapping else range_.last
        overlapping.append(range_)
    if overlapping:
        in_order.append(_section(overlapping))
    return in_order


def with_older(
    newer: Iterable[Section], older: Iterable[ManifestEntry], types: Sequence[DataType]
) -> Iterator[Section]:
    """The `newer` sections, each together with the `older` files that may have keys of that
    section. The older files are on higher levels. On one such level, no two files have the same
    keys. Raises `FormatError` for keys that cannot be decoded.
    """
    levels: defaultdict[int, list[_Range]] = defaultdict(list)
    for entry in older:
        level = entry.file.level
        levels[level].append(_range(types, entry, -level))
    for ranges in levels.values():
        ranges.sort(key=lambda range_: range_.first)
    for section in newer:
        first = min(_key(types, entry.file.min_key) for entry in section.files)
        last = max(_key(types, entry.file.max_key) for entry in section.files)
        runs = []
        ages = dict(section.ages)
        for ranges in levels.values():
            start = bisect_left(ranges, first, key=lambda range_: range_.last)
            end = bisect_right(ranges, last, key=lambda range_: range_.first)
            overlapping = ranges[start:end]
            if overlapping:
                runs.append(tuple(range_.entry for range_ in overlapping))
                ages |= {range_.entry.file.file_name: range_.age for range_ in overlapping}
        yield replace(section, ages=ages, looked_up=tuple(runs))


def _section(ranges: Sequence[_Range]) -> Section:
    """The section of these ranges, which are in key order. Each file is added to the run whose last
    key is the smallest, if the file begins after that key. Otherwise the file starts a new run.
    """
    runs: list[_RunInMaking] = []  # a heap: the run that ends first is at its front
    numbers = count()
    for range_ in ranges:
        if runs and runs[0].last < range_.first:
            ends_first = heapq.heappop(runs)
            ends_first.files.append(range_.entry)
            heapq.heappush(runs, ends_first._replace(last=range_.last))
        else:
            heapq.heappush(runs, _RunInMaking(range_.last, next(numbers), [range_.entry]))
    return Section(
        tuple(tuple(run.files) for run in runs),
        {range_.entry.file.file_name: range_.age for range_ in ranges},
    )


def _range(types: Sequence[DataType], entry: ManifestEntry, age: int) -> _Range:
    file = entry.file
    return _Range(_key(types, file.min_key), _key(types, file.max_key), age, entry)


def _key(types: Sequence[DataType], row: bytes) -> Key:
    return tuple(map(_comparable, deserialize(types, row)))


def _comparable(value: Any) -> Any:
    """A value of a key in a form that compares as Java orders such values. A float becomes a pair:
    0 and the number, or `_NAN`.
    """
    if isinstance(value, float):
        return _NAN if math.isnan(value) else (0, value)
    return value


def _scalar(scalar: Any) -> Any:
    """The value of an Arrow scalar in the form that `_comparable` returns. Moments, days and times
    become numbers.
    """
    type_ = scalar.type
    if pa.types.is_timestamp(type_) or pa.types.is_date32(type_) or pa.types.is_time32(type_):
        return scalar.value
    return _comparable(scalar.as_py())


PIECE_ROWS: Final = (4_096, 65_536, 524_288)
"""How many rows are read from a run at a time: the minimum, the maximum, and the maximum for all
runs together.
"""

PIECE_BYTES: Final = 2**23
"""About how many bytes are read from all runs together at a time, as they are in the files. This
limits the memory where rows are wide.
"""

MOST_RUNS: Final = 64
"""If a section has more runs than this, its files of level 0 are joined into at most this many."""

_FEWEST_ROWS: Final = 64
_SPILLED_BYTES: Final = 2**20
"""Bytes of a piece in the temporary file, before they are compressed."""
_SPILLED: Final = pa.ipc.IpcWriteOptions(compression="lz4")


class Piece(NamedTuple):
    """Rows in key order.

    Attributes:
        entry: the file that they come from.
        rows: the rows.
    """

    entry: ManifestEntry
    rows: pa.RecordBatch


ReadFile = Callable[[ManifestEntry, int], Iterator[pa.RecordBatch]]
"""Returns the rows of a file in batches; the number is the most rows of a batch."""


def merged_batches(
    spec: MergeSpec, section: Section, read: ReadFile, *, keep_deletes: bool = False
) -> Iterator[pa.RecordBatch]:
    """The rows of a section, one per key, sorted by key. Among rows of a key with equal sequence
    fields and numbers, the row of the oldest file wins, as in Java: the pieces come oldest first,
    and in `merge_rows` the first of equal rows wins (semantics.md §6.4). Deleted rows are left out,
    unless `keep_deletes` is set. Raises what `whole_keys` raises, and `InvalidData` for rows that
    cannot be merged.
    """
    for pieces in whole_keys(spec, section, read):
        levels = levels_of(pieces) if spec.lookup else None
        rows = (piece.rows for piece in pieces)
        yield from merge_rows(spec, rows, keep_deletes=keep_deletes, levels=levels).to_batches()


def levels_of(pieces: Sequence[Piece]) -> Ints:
    """The level of each row of these pieces."""
    levels = [piece.entry.file.level for piece in pieces]
    return np.repeat(levels, [piece.rows.num_rows for piece in pieces])


def whole_keys(spec: MergeSpec, section: Section, read: ReadFile) -> Iterator[list[Piece]]:
    """Yields the rows of a section in key order. Each list holds all rows of some keys, the oldest
    piece first.

    Args:
        spec: how rows are merged.
        section: the files.
        read: returns the columns in `spec.needed`, `_SEQUENCE_NUMBER` and `_VALUE_KIND`.

    Raises:
        FormatError: a file is not sorted by key.
        StorageError: a temporary file cannot be written.
    """
    fewest_rows, most_rows, most_rows_in_all = PIECE_ROWS
    runs_at_once = min(len(section.runs), MOST_RUNS) + len(section.looked_up)
    piece_rows = max(fewest_rows, min(most_rows, most_rows_in_all // runs_at_once))
    piece_bytes = PIECE_BYTES // runs_at_once

    def pieces_of(files: Iterable[ManifestEntry]) -> Iterator[Piece]:
        for entry in files:
            for batch in read(entry, min(piece_rows, _rows_in(entry, piece_bytes))):
                yield Piece(entry, batch)

    def run_of(files: Iterable[ManifestEntry]) -> "_Run":
        return _Run(spec, pieces_of(files))

    looked_up = [run_of(files) for files in section.looked_up]
    if len(section.runs) <= MOST_RUNS:
        yield from _steps(section, [run_of(files) for files in section.runs], looked_up)
        return
    new = [entry for entry in reading_order(section) if not entry.file.level]
    of_higher_levels = [[entry for entry in files if entry.file.level] for files in section.runs]
    with _spill(spec, section) as spill:
        # Level 0 is read first. If it has more than `MOST_RUNS` files, all rows of these files go
        # to the temporary file before any row is returned.
        joined = spill.in_few_runs([run_of([entry]) for entry in new])
        runs = [run_of(files) for files in of_higher_levels if files]
        yield from _steps(section, [*runs, *joined], looked_up)


def side_by_side(spec: MergeSpec, *sides: Iterator[Piece]) -> Iterator[list[list[pa.RecordBatch]]]:
    """Reads the rows of several sides, each sorted by key, in parts. A part has all rows of some
    keys: for each side, a list of batches. Raises `FormatError` for a side that is not sorted.
    """
    runs = [_Run(spec, side) for side in sides]
    while True:
        holds_rows = [run.fill() for run in runs]
        if not any(holds_rows):
            return
        bound = min((run.last_key for run in runs if not run.ended), default=None)
        yield [[piece.rows for piece in run.take(bound)] for run in runs]


def reading_order(section: Section) -> list[ManifestEntry]:
    """The section's files in about the order in which `whole_keys` opens them."""
    files = section.files
    if len(section.runs) > MOST_RUNS:
        files.sort(key=lambda entry: (entry.file.level > 0, section.ages[entry.file.file_name]))
    return [*files, *section.files_looked_up]


def _steps(
    section: Section, runs: "list[_Run]", looked_up: "Sequence[_Run]" = ()
) -> Iterator[list[Piece]]:
    """Reads all rows up to a key, then all rows up to the next such key, and so on. Each step
    returns pieces, the oldest first. Rows that are looked up are returned only together with rows
    of the other runs.
    """
    # `fill` reads the next piece of each run that holds no rows. Runs that have ended are removed.
    while runs := [run for run in runs if run.fill()]:
        looked_up = [run for run in looked_up if run.fill()]
        bounds = [run.last_key for run in (*runs, *looked_up) if not run.ended]
        bound = min(bounds) if bounds else None
        pieces = [piece for run in runs for piece in run.take(bound)]
        pieces_looked_up = [piece for run in looked_up for piece in run.take(bound)]
        if pieces:
            yield sorted(
                [*pieces, *pieces_looked_up],
                key=lambda piece: section.ages[piece.entry.file.file_name],
            )


@contextmanager
def _spill(spec: MergeSpec, section: Section) -> Iterator["_Spill"]:
    """A context that provides a temporary file for a section."""
    name = f"a temporary file in {tempfile.gettempdir()}"
    with writing(name):
        file = tempfile.TemporaryFile()  # noqa: SIM115 – closed below
    try:
        yield _Spill(spec, section, file, name)
    finally:
        with suppress(OSError):  # what could not be written has been reported
            file.close()


class _Spill:
    """A temporary file with runs that were joined. The rows of one key are not merged, and stay in
    the order of their files, because only a merge of all rows of a key is right for all merge
    engines.
    """

    def __init__(self, spec: MergeSpec, section: Section, file: IO[bytes], name: str) -> None:
        """`name` is the name of the file in messages."""
        self._spec = spec
        self._section = section
        self._file = file
        self._name = name

    def in_few_runs(self, runs: "list[_Run]") -> "list[_Run]":
        """Joins these runs, which are in the order of commits, until there are at most `MOST_RUNS`
        runs.
        """
        while len(runs) > MOST_RUNS:
            groups = [runs[at : at + MOST_RUNS] for at in range(0, len(runs), MOST_RUNS)]
            runs = [self._joined(group) for group in groups]
        return runs

    def _joined(self, runs: "list[_Run]") -> "_Run":
        """One run with the rows of these runs. Each piece of it has the age of one of the joined
        files. So no other file may be older than one joined file and younger than another.
        """
        places: list[tuple[ManifestEntry, int]] = []
        for pieces in _steps(self._section, runs):
            oldest = pieces[0].entry
            rows = pa.Table.from_batches([piece.rows for piece in pieces])
            ordered, starts = in_key_order(self._spec, rows)
            piece_rows = max(_FEWEST_ROWS, _SPILLED_BYTES * rows.num_rows // max(1, rows.nbytes))
            wanted = np.arange(0, rows.num_rows, piece_rows)
            # All rows of a key must be in one piece. So each cut moves back to the first row of its
            # key.
            cuts = np.unique(starts[np.searchsorted(starts, wanted, side="right") - 1]).tolist()
            for start, end in pairwise([*cuts, rows.num_rows]):
                places.append((oldest, self._write(ordered.slice(start, end - start))))
        return _Run(self._spec, (Piece(entry, self._read(place)) for entry, place in places))

    def _write(self, rows: pa.Table) -> int:
        """Writes the rows to the file. Returns the position in the file at which they begin."""
        with writing(self._name):
            place = self._file.seek(0, os.SEEK_END)
            with pa.ipc.new_stream(self._file, rows.schema, options=_SPILLED) as stream:
                stream.write_table(rows.combine_chunks())
            self._file.flush()
        return place

    def _read(self, place: int) -> pa.RecordBatch:
        self._file.seek(place)
        return pa.ipc.open_stream(self._file).read_next_batch()


class _Run:
    """One run: the pieces of its files, one after the other.

    Attributes:
        ended: whether all pieces were read. Some of them may still be held.
        last_key: the key of the last row that was read; empty before the first.
    """

    def __init__(self, spec: MergeSpec, pieces: Iterator[Piece]) -> None:
        self._keys = spec.keys
        self._table = spec.table
        self._source = pieces
        self._held: deque[Piece] = deque()
        """The pieces that were read and not taken yet."""
        self.ended = False
        self.last_key: Key = ()

    def fill(self) -> bool:
        """Reads more rows if no rows are held. Returns False at the end of the run."""
        while not self._held and not self.ended:
            piece = next(self._source, None)
            if piece is None:
                self.ended = True
                break
            if piece.rows.num_rows:
                self.last_key = self._checked_last_key(piece)
                self._held.append(piece)
        return bool(self._held)

    def _checked_last_key(self, piece: Piece) -> Key:
        """The last key of a piece. Raises `FormatError` if the piece does not begin after the last
        key that was read before it.
        """
        key_at = self._key_at(piece.rows)
        if self.last_key and key_at(0) <= self.last_key:
            file_name = piece.entry.file.file_name
            raise FormatError(
                f"File {file_name} of {self._table} is not sorted by its key, or "
                "overlaps with what its manifest says is before it. Roll the table back to before "
                "that file.",
                table=self._table,
                file=file_name,
            )
        return key_at(piece.rows.num_rows - 1)

    def take(self, bound: Key | None) -> Iterator[Piece]:
        """Removes and returns the held rows up to the bound, or all held rows if there is no
        bound.
        """
        while self._held:
            entry, rows = self._held.popleft()
            taken = rows.num_rows
            if bound is not None:
                taken = bisect_right(range(taken), bound, key=self._key_at(rows))
            if taken:
                yield Piece(entry, rows.slice(0, taken))
            if taken < rows.num_rows:
                self._held.appendleft(Piece(entry, rows.slice(taken)))
                return

    def _key_at(self, batch: pa.RecordBatch) -> Callable[[int], Key]:
        """A function that returns the key of a row, in a form in which keys can be compared."""
        columns = [batch.column(name) for name in self._keys]
        return lambda row: tuple(_scalar(column[row]) for column in columns)


def _rows_in(entry: ManifestEntry, size: int) -> int:
    """How many rows of average width take `size` bytes of this file; at least `_FEWEST_ROWS`."""
    file_rows = max(1, entry.file.row_count)
    file_bytes = max(1, entry.file.file_size)
    return max(_FEWEST_ROWS, size * file_rows // file_bytes)
