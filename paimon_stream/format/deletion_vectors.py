"""Deletion vectors: which rows of a data file are deleted (table-kinds.md §1.1). Nothing in one is
believed: a vector that cannot be read is an error, because without it deleted rows would come back.
"""

import struct
from typing import Final, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt

from paimon_stream.errors import CorruptMetadata
from paimon_stream.format.entries import DeletionRange
from paimon_stream.format.raw_bytes import ByteCursor

Positions: TypeAlias = npt.NDArray[np.int64]
"""Row positions in a data file, ascending."""

VERSION: Final = b"\x01"
"""The first byte of an index file with vectors."""

_MAGIC_32: Final = struct.pack(">i", 1581511376)
_MAGIC_64: Final = struct.pack("<i", 1681511377)
_WITHOUT_RUNS: Final = 12346
_WITH_RUNS: Final = 12347
_OFFSETS_FROM: Final = 4
"""Bitmaps with runs have offsets from this number of containers on."""
_MOST_IN_ARRAY: Final = 4096


def deleted_positions(data: bytes, one: DeletionRange, rows: int, path: str) -> Positions:
    """The deleted rows of a data file with `rows` rows. `data` is the whole index file, `path` is
    for messages. Raises `CorruptMetadata` for anything but a vector of this file.
    """
    try:
        return _positions(data, one, rows)
    except (ValueError, IndexError, struct.error) as why:
        raise _unreadable(one, path, str(why)) from None


def _unreadable(one: DeletionRange, path: str, why: str) -> CorruptMetadata:
    text = (
        f"{path}: the deletion vector of {one.data_file} cannot be read ({why}). Without it, deleted rows would "
        "come back. Restore the file from a backup, or roll the table back to before it."
    )
    return CorruptMetadata(text, path=path, file=one.data_file)


def encode_vector(positions: Positions, *, bits64: bool) -> tuple[bytes, int]:
    """The record of one data file, and the length that its entry has. `positions` ascend, each
    once.
    """
    if bits64:
        parts = _split(positions, 32)
        pieces = [_MAGIC_64, struct.pack("<q", len(parts))]
        for high, low in parts:
            pieces += [struct.pack("<I", high), _encode_bitmap(low)]
        record = b"".join(pieces)
    else:
        record = _MAGIC_32 + _encode_bitmap(positions)
    return struct.pack(">i", len(record)) + record + struct.pack(">I", crc32(record)), len(
        record
    ) + 8 * bits64


def _encode_bitmap(values: Positions) -> bytes:
    """A 32-bit roaring bitmap in its portable form, without runs."""
    containers = _split(values, 16)
    header, offsets, data = [], [], []
    at = 8 + 8 * len(containers)
    for key, low in containers:
        header.append(struct.pack("<HH", key, len(low) - 1))
        offsets.append(struct.pack("<I", at))
        if len(low) <= _MOST_IN_ARRAY:
            data.append(low.astype("<u2").tobytes())
        else:
            bits = np.zeros(1 << 16, bool)
            bits[low] = True
            data.append(np.packbits(bits, bitorder="little").tobytes())
        at += len(data[-1])
    return b"".join([struct.pack("<II", _WITHOUT_RUNS, len(containers)), *header, *offsets, *data])


def _split(values: Positions, bits: int) -> list[tuple[int, Positions]]:
    """The values by their upper bits, each group with the lower `bits`."""
    highs, starts = np.unique(values >> bits, return_index=True)
    lows = np.split(values & ((1 << bits) - 1), starts[1:])
    return list(zip(highs.tolist(), lows, strict=len(highs) > 0))


def record_of(data: bytes, one: DeletionRange, path: str) -> bytes:
    """The whole record of a vector, as it is in the index file `data`. Raises `CorruptMetadata` if
    it is cut off.
    """
    record = data[one.offset : one.offset + max(one.length, 0) + 8]
    size = 8 + int.from_bytes(record[:4], "big")
    if len(record) < size or size < 16 or data[:1] != VERSION:
        raise _unreadable(one, path, "it is cut off")
    return record[:size]


def _positions(data: bytes, one: DeletionRange, rows: int) -> Positions:
    if data[:1] != VERSION:
        raise ValueError(f"the version of the file is {data[:1].hex() or 'missing'}, not 01")
    (size,) = struct.unpack_from(">i", data, one.offset)
    record, end = data[one.offset + 4 : one.offset + 4 + max(0, size)], one.offset + 4 + size
    if size < 8 or len(record) != size or one.length not in (size, size + 8):
        raise ValueError(f"{size} bytes do not fit the {one.length} of its entry, or the file")
    if struct.unpack_from(">I", data, end)[0] != crc32(record):
        raise ValueError("its checksum is wrong")
    source = _Source(record[4:])
    if record[:4] == _MAGIC_32:
        found = _bitmap(source, rows)
    elif record[:4] == _MAGIC_64:
        pieces, before, left = [np.empty(0, np.int64)], -1, rows
        for _ in range(source.number("<q")):
            high = source.number("<I")
            if high <= before or high << 32 >= rows:
                raise ValueError("its parts are not in order, or beyond the rows of the file")
            pieces.append(_bitmap(source, left) + (high << 32))
            before, left = high, left - len(pieces[-1])
        found = np.concatenate(pieces)
    else:
        raise ValueError(f"it begins with {record[:4].hex()}")
    if (
        source.left
        or (len(found) and found[-1] >= rows)
        or one.cardinality not in (None, len(found))
    ):
        raise ValueError(
            f"it marks {len(found)} rows of {rows}, and its entry says {one.cardinality}"
        )
    return found


def _bitmap(source: "_Source", rows: int) -> Positions:
    """The values of a 32-bit roaring bitmap in its portable form. It has at most `rows` values."""
    cookie = source.number("<I")
    runs = np.zeros(0, bool)
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        runs = np.unpackbits(
            np.frombuffer(source.take((count + 7) // 8), np.uint8), bitorder="little"
        ).astype(bool)
    elif cookie == _WITHOUT_RUNS:
        count = source.number("<I")
    else:
        raise ValueError(f"its bitmap begins with {cookie}")
    header = source.shorts(2 * count).reshape(-1, 2)
    keys, sizes = header[:, 0], header[:, 1] + 1
    if (np.diff(keys) <= 0).any() or sizes.sum() > rows:
        raise ValueError(f"its bitmap marks {sizes.sum()} rows of {rows}, or is not in order")
    if not len(runs) or count >= _OFFSETS_FROM:
        source.take(4 * count)  # where the containers begin, which is one after the other
    pieces = [np.empty(0, np.int64)]
    for number, (key, size) in enumerate(zip(keys.tolist(), sizes.tolist(), strict=True)):
        if len(runs) and runs[number]:
            low = _of_runs(source.shorts(2 * source.number("<H")).reshape(-1, 2), size)
        elif size <= _MOST_IN_ARRAY:
            low = source.shorts(size)
        else:
            low = np.flatnonzero(
                np.unpackbits(np.frombuffer(source.take(8192), np.uint8), bitorder="little")
            )
        if len(low) != size or low[-1] >> 16 or (np.diff(low) <= 0).any():
            raise ValueError("one of its containers has other values than it says")
        pieces.append(low + (key << 16))
    return np.concatenate(pieces)


def _of_runs(runs: Positions, size: int) -> Positions:
    """The values of runs, each given as its first value and the number of those that follow."""
    lengths = runs[:, 1] + 1
    if lengths.sum() != size:
        raise ValueError("its runs have another length than they say")
    offsets = np.cumsum(lengths) - lengths
    return np.repeat(runs[:, 0] - offsets, lengths) + np.arange(size)


class _Source(ByteCursor):
    cut_off = "it is cut off"

    @property
    def left(self) -> int:
        return len(self.raw) - self.at

    def number(self, form: str) -> int:
        return int(struct.unpack(form, self.take(struct.calcsize(form)))[0])

    def shorts(self, count: int) -> Positions:
        return np.frombuffer(self.take(2 * count), "<u2").astype(np.int64)

    def _error(self, why: str) -> ValueError:  # type: ignore[override]
        return ValueError(why)
