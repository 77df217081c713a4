"""The records of many manifest entries at once, as Avro bytes.

A record is a row of numbers with pieces of bytes in between. What all entries have in common is encoded
once; the other numbers are encoded together with numpy, and the pieces put between them, so that little is
done in Python per entry. Entries of one commit are mostly of one *shape*: as many null counts, no extra
files, a creation time. Those of another shape, or few, are made one by one (`format/manifest_records.py`).
The bytes are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise, repeat
from operator import attrgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from paimon_stream.format.avro_file import zigzag
from paimon_stream.format.entries import DataFileMeta, ManifestEntry, SimpleStats
from paimon_stream.format.manifest_records import RECORD_VERSION, entry_bytes, tail_bytes

__all__ = ["entries_bytes"]

_FEW: Final = 12
"""So few entries are not worth the calls of numpy."""

_ENTRY: Final = attrgetter("kind", "partition", "bucket", "total_buckets", "file")
_FILE: Final = attrgetter(
    "file_name", "file_size", "row_count", "min_key", "max_key", "key_stats", "value_stats",
    "min_sequence_number", "max_sequence_number", "schema_id", "level", "extra_files", "creation_time",
)  # fmt: skip
_TAIL: Final = attrgetter(
    "delete_row_count", "embedded_file_index", "file_source", "value_stats_cols", "external_path",
    "first_row_id", "write_cols",
)  # fmt: skip
_STATS: Final = attrgetter("min_values", "max_values", "null_counts")

_Numbers = npt.NDArray[np.int64]


def entries_bytes(entries: Sequence[ManifestEntry]) -> bytes:
    """The records of these entries, in order."""
    if len(entries) > _FEW:
        try:
            return _columns_bytes(entries)
        except _OtherShape:
            pass
    return b"".join(map(entry_bytes, entries))


class _OtherShape(Exception):
    """The entries are not all of one shape."""


def _columns_bytes(entries: Sequence[ManifestEntry]) -> bytes:
    """Raises `_OtherShape`."""
    kinds, partitions, buckets, totals, files = zip(*map(_ENTRY, entries), strict=True)
    (
        file_names, sizes, rows, min_keys, max_keys, key_stats, value_stats, first, last, schemas, levels,
        extra, created,
    ) = zip(*map(_FILE, files), strict=True)  # fmt: skip
    if any(extra) or None in created:
        raise _OtherShape
    names = [name.encode() for name in file_names]
    record = _Record(len(entries))
    record.numbers(RECORD_VERSION).column(kinds).piece(partitions)
    record.column(buckets).column(totals).piece(names)
    record.column(sizes).column(rows).piece(min_keys).piece(max_keys)
    _stats(record, key_stats)
    _stats(record, value_stats)
    record.column(first).column(last).column(schemas).column(levels)
    record.numbers(0, 1).column(created)
    return record.done(_tails(files))


class _Record:
    """The columns of records being put together: what all have in common, runs of numbers, and pieces of
    bytes with their length before."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._common: list[bytes] = []
        self._columns: list[Any] = []
        self._starts: list[int] = []
        self._in_run = False
        self._parts: list[Iterable[bytes] | None] = []

    def numbers(self, *numbers: int) -> _Record:
        """The same numbers in each record."""
        self._common.extend(map(zigzag, numbers))
        return self

    def column(self, numbers: Sequence[int]) -> _Record:
        """A number for each record."""
        if numbers.count(numbers[0]) == self._count:
            return self.numbers(numbers[0])
        if self._common or not self._in_run:
            self._end_run()
            self._starts.append(len(self._columns))
            self._parts.append(None)
            self._in_run = True
        self._columns.append(numbers)
        return self

    def piece(self, pieces: Sequence[bytes]) -> _Record:
        """A piece of bytes for each record."""
        self.column(list(map(len, pieces)))
        if pieces.count(pieces[0]) == self._count:
            self._common.append(pieces[0])
        else:
            self._end_run()
            self._parts.append(pieces)
        return self

    def _end_run(self) -> None:
        self._in_run = False
        if self._common:
            self._parts.append(repeat(b"".join(self._common), self._count))
            self._common = []

    def done(self, tails: Iterable[bytes]) -> bytes:
        """The records, with these bytes at their ends. Raises `_OtherShape` for numbers above 64 bits."""
        self._end_run()
        runs = self._runs()
        parts = [next(runs) if part is None else part for part in self._parts]
        return b"".join(chain.from_iterable(zip(*parts, tails, strict=True)))

    def _runs(self) -> Iterator[list[bytes]]:
        """The runs of numbers, each a column of bytes."""
        if not self._starts:
            return
        table = np.empty((self._count, len(self._columns)), np.int64)
        try:
            for at, column in enumerate(self._columns):
                table[:, at] = column
        except (OverflowError, TypeError):
            raise _OtherShape from None
        data, sizes = _zigzag(table)
        ends = np.add.reduceat(sizes, self._starts, axis=1).ravel().cumsum().tolist()
        made = [data[start:end] for start, end in pairwise([0, *ends])]
        for at in range(len(self._starts)):
            yield made[at :: len(self._starts)]


def _stats(record: _Record, stats: Sequence[SimpleStats]) -> None:
    low, high, nulls = zip(*map(_STATS, stats), strict=True)
    record.piece(low).piece(high).numbers(1)
    width = len(nulls[0])
    if width:
        record.numbers(width)
    try:
        for counts in zip(*nulls, strict=True):
            record.numbers(1).column(counts)
    except (ValueError, TypeError):
        raise _OtherShape from None  # not all as many, or unknown
    record.numbers(0)


def _tails(files: Sequence[DataFileMeta]) -> list[bytes]:
    """What stands behind the creation times; mostly the same from file to file."""
    known: dict[Any, bytes] = {}
    tails = []
    for file in files:
        key = _TAIL(file)
        tail = known.get(key)
        if tail is None:
            tail = known[key] = tail_bytes(file)
        tails.append(tail)
    return tails


def _zigzag(table: _Numbers) -> tuple[bytes, _Numbers]:
    """Numbers as Avro writes them, row by row, and how many bytes each has."""
    left = ((table << 1) ^ (table >> 63)).view(np.uint64)
    width = max(1, -(-int(left.max()).bit_length() // 7))
    digits = np.empty((*table.shape, width), np.uint8)
    sizes = np.ones(table.shape, np.int64)
    for at in range(width):
        digits[:, :, at] = left & np.uint64(0x7F)
        left = left >> np.uint64(7)
        more = left != 0
        digits[:, :, at] |= more.view(np.uint8) << np.uint8(7)
        sizes += more
    return digits[np.arange(width) < sizes[:, :, None]].tobytes(), sizes
