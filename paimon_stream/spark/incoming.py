"""Rows as they come to a task from Spark: merged into batches worth a call, measured, under their own names.

Imported by each Python worker, so it needs Arrow and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

__all__ = ["MeasuredRows", "Renamed", "merged"]

_FEW_ROWS: Final = 8_192
_FEW_BYTES: Final = 4 * 2**20


def merged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in larger batches, where they come in small ones: to write a batch costs what a thousand
    rows cost. Holds some megabytes besides one batch."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _FEW_ROWS or size >= _FEW_BYTES:
            yield from _as_one(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield from _as_one(waiting)


def _as_one(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) == 1:
        return batches
    found: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return found


class MeasuredRows:
    """Batches that are measured while they pass. `row_bytes` is the mean size of a row in the batch whose
    mean is largest so far, at least 1; 0 before the first row."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.row_bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if batch.num_rows:
                self.row_bytes = max(self.row_bytes, 1, batch.nbytes // batch.num_rows)
            yield batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    """A task whose rows come under other names than their own, which are `names`."""

    task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What the task makes of the rows under their own names."""
        return self.task(pa.RecordBatch.from_arrays(batch.columns, names=self.names) for batch in batches)
