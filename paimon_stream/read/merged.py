"""Merge on read: the sorted files of a section are merged a few rows of each at a time.

One piece of every run is held. No run can have more rows up to the smallest of the pieces' last keys, so all
rows up to that key are merged and returned. Memory holds one piece of every run, however large the files are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from paimon_stream.errors import FormatError
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.merge.rows import merge_rows
from paimon_stream.merge.spec import MergeSpec
from paimon_stream.read.keyed import Key, Section, key_at

PIECE_ROWS: Final = (4_096, 65_536, 524_288)
"""Rows read from a run at a time: the minimum, the maximum, and the maximum of all runs together."""

PIECE_BYTES: Final = 2**23
"""Bytes read from all runs together at a time, compressed as in the files, because rows may be wide."""

_FEWEST_ROWS: Final = 64

ReadFile = Callable[[ManifestEntry, int], Iterator[pa.RecordBatch]]
"""Returns the rows of a file in batches; the number is the most rows of a batch."""


def merged_batches(
    spec: MergeSpec,
    section: Section,
    read: ReadFile,
    piece_rows: tuple[int, int, int] = PIECE_ROWS,
    *,
    keep_deletes: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The rows of a section, one per key, sorted by key. Deleted rows are left out, but for `keep_deletes`.

    `read` returns the columns in `spec.needed`, `_SEQUENCE_NUMBER` and `_VALUE_KIND`. Raises `FormatError`
    for a file that is not sorted by key, `InvalidData` for rows that cannot be merged.
    """
    least, most, together = piece_rows
    rows = max(least, min(most, together // len(section.runs)))
    share = PIECE_BYTES // len(section.runs)
    runs = [_Run(spec, run, read, rows, share) for run in section.runs]
    while runs := [run for run in runs if run.fill()]:
        bounds = [run.last_key for run in runs if not run.ended]
        bound = min(bounds) if bounds else None
        pieces = [piece for run in runs for piece in run.take(bound)]
        pieces.sort(key=lambda piece: section.ages[piece[0].file.file_name])
        if pieces:
            batches = [batch for _, batch in pieces]
            levels = None
            if spec.lookup:
                levels = np.repeat(
                    [entry.file.level for entry, _ in pieces], [one.num_rows for one in batches]
                )
            merged = merge_rows(spec, batches, keep_deletes=keep_deletes, levels=levels)
            yield from merged.to_batches()


class _Run:
    """One run: the pieces of its files, one file after the other, each with its file."""

    def __init__(
        self, spec: MergeSpec, files: Sequence[ManifestEntry], read: ReadFile, rows: int, share: int
    ) -> None:
        self._keys = spec.keys
        self._table = spec.table
        self._source = ((one, batch) for one in files for batch in read(one, min(rows, _rows_in(one, share))))
        self._held: deque[tuple[ManifestEntry, pa.RecordBatch]] = deque()
        self.ended = False
        self.last_key: Key = ()

    def fill(self) -> bool:
        """Reads more if nothing is held. Returns False at the end."""
        while not self._held and not self.ended:
            found = next(self._source, None)
            if found is None:
                self.ended = True
                break
            entry, batch = found
            if batch.num_rows:
                self._check_order(entry, batch)
                self._held.append((entry, batch))
        return bool(self._held)

    def _check_order(self, entry: ManifestEntry, batch: pa.RecordBatch) -> None:
        key = self._key_at(batch)
        if self.last_key and key(0) <= self.last_key:
            raise FormatError(
                f"File {entry.file.file_name} of {self._table} is not sorted by its key, or overlaps with "
                "what its manifest says is before it. Roll the table back to before that file.",
                table=self._table,
                file=entry.file.file_name,
            )
        self.last_key = key(batch.num_rows - 1)

    def take(self, bound: Key | None) -> Iterator[tuple[ManifestEntry, pa.RecordBatch]]:
        """Removes and returns the held rows up to the bound, or all held rows if there is no bound."""
        while self._held:
            entry, batch = self._held.popleft()
            cut = batch.num_rows
            if bound is not None:
                cut = bisect_right(range(cut), bound, key=self._key_at(batch))
            if cut:
                yield entry, batch.slice(0, cut)
            if cut < batch.num_rows:
                self._held.appendleft((entry, batch.slice(cut)))
                return

    def _key_at(self, batch: pa.RecordBatch) -> Callable[[int], Key]:
        return key_at([batch.column(name) for name in self._keys])


def _rows_in(entry: ManifestEntry, size: int) -> int:
    """How many rows of average width make up `size` bytes of this file."""
    return max(_FEWEST_ROWS, size * max(1, entry.file.row_count) // max(1, entry.file.file_size))
