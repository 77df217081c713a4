"""Prepares the rows that a task gets from Spark: merges small batches, measures rows, restores names.

Each Python worker imports this module, so it needs only Arrow.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

_FEW_ROWS: Final = 8_192
_FEW_BYTES: Final = 4 * 2**20


def merged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, with small batches merged into larger ones, because each batch costs as much to write as
    a thousand rows. Holds one batch and a few megabytes more in memory."""
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
    """Measures batches while they pass. `row_bytes` is the largest mean row size of a batch so far, at least
    1; it is 0 before the first row."""

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
    """A task whose rows come under other column names. `names` are the original names."""

    task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs the task on the rows under their original names."""
        return self.task(pa.RecordBatch.from_arrays(batch.columns, names=self.names) for batch in batches)
