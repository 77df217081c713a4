"""Reads and writes deletion vectors. A deletion vector says which rows of a data file are deleted
(table-kinds.md §1.1). All bytes of a vector are checked. A vector that cannot be read is an error,
because without it deleted rows would come back.
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

_SIZE_BYTES: Final = 4
_CHECKSUM_BYTES: Final = 4
"""A record has its size, the magic number, the bitmap, and a CRC-32. The size counts the bytes of
the magic number and of the bitmap.
"""

_MAGIC_32: Final = struct.pack(">i", 1581511376)
_MAGIC_64: Final = struct.pack("<i", 1681511377)
_WITHOUT_RUNS: Final = 12346
_WITH_RUNS: Final = 12347
_OFFSETS_FROM: Final = 4
"""Bitmaps with runs have offsets from this number of containers on."""
_MOST_IN_ARRAY: Final = 4096


def deleted_positions(data: bytes, place: DeletionRange, rows: int, path: str) -> Positions:
    """The positions of the deleted rows of a data file.

    Args:
        data: the whole index file.
        place: the place of the data file's vector in the index file.
        rows: how many rows the data file has.
        path: the index file, for messages.

    Raises:
        CorruptMetadata: the bytes are not a vector of this data file.
    """
    try:
        return _positions(data, place, rows)
    except (ValueError, IndexError, struct.error) as error:
        raise _unreadable(place, path, str(error)) from None


def _unreadable(place: DeletionRange, path: str, reason: str) -> CorruptMetadata:
    return CorruptMetadata(
        f"{path}: the deletion vector of {place.data_file} cannot be read ({reason}). "
        "Without it, deleted rows would come back. "
        "Restore the file from a backup, or roll the table back to before it.",
        path=path,
        file=place.data_file,
    )


def encode_vector_32(positions: Positions) -> tuple[bytes, int]:
    """The record of one data file, with positions of 32 bits.

    Args:
        positions: the deleted rows, ascending, each once.

    Returns:
        The record, and the length in bytes that its entry in the index manifest has.
    """
    content = _MAGIC_32 + _encode_bitmap(positions)
    return _record(content), len(content)


def encode_vector_64(positions: Positions) -> tuple[bytes, int]:
    """The record of one data file, with positions of 64 bits. As `encode_vector_32`, but the length
    in the entry is that of the whole record.
    """
    parts = _split(positions, 32)
    pieces = [_MAGIC_64, struct.pack("<q", len(parts))]
    for high, low in parts:
        pieces += [struct.pack("<I", high), _encode_bitmap(low)]
    record = _record(b"".join(pieces))
    return record, len(record)


def _record(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content + struct.pack(">I", crc32(content))


def _encode_bitmap(values: Positions) -> bytes:
    """The bytes of a 32-bit roaring bitmap in its portable form, without runs."""
    containers = _split(values, 16)
    header: list[bytes] = []
    offsets: list[bytes] = []
    contents: list[bytes] = []
    offset = 8 + 8 * len(containers)
    for key, low in containers:
        if len(low) <= _MOST_IN_ARRAY:
            content = low.astype("<u2").tobytes()
        else:
            bits = np.zeros(1 << 16, bool)
            bits[low] = True
            content = np.packbits(bits, bitorder="little").tobytes()
        header.append(struct.pack("<HH", key, len(low) - 1))
        offsets.append(struct.pack("<I", offset))
        contents.append(content)
        offset += len(content)
    cookie = struct.pack("<II", _WITHOUT_RUNS, len(containers))
    return b"".join([cookie, *header, *offsets, *contents])


def _split(values: Positions, bits: int) -> list[tuple[int, Positions]]:
    """The values in groups with the same upper bits. Each group has these upper bits, and the lower
    `bits` of its values.
    """
    if not len(values):
        return []
    highs, starts = np.unique(values >> bits, return_index=True)
    lows = np.split(values & ((1 << bits) - 1), starts[1:])
    return list(zip(highs.tolist(), lows, strict=True))


def record_of(data: bytes, place: DeletionRange, path: str) -> bytes:
    """The whole record of a deletion vector in an index file.

    Args:
        data: the whole index file.
        place: the place of the vector in the index file.
        path: the index file, for messages.

    Raises:
        CorruptMetadata: the record is cut off.
    """
    around_content = _SIZE_BYTES + _CHECKSUM_BYTES
    record = data[place.offset : place.offset + max(place.length, 0) + around_content]
    size = around_content + int.from_bytes(record[:_SIZE_BYTES], "big")
    is_whole = 16 <= size <= len(record)
    if not is_whole or data[:1] != VERSION:
        raise _unreadable(place, path, "it is cut off")
    return record[:size]


def _positions(data: bytes, place: DeletionRange, rows: int) -> Positions:
    """The positions of the deleted rows. Raises `ValueError` or `struct.error` if the bytes are not
    a vector.
    """
    content = _checked_content(data, place)
    magic = content[:4]
    source = _Source(content[4:])
    if magic == _MAGIC_32:
        positions = _bitmap(source, rows)
    elif magic == _MAGIC_64:
        positions = _bitmaps(source, rows)
    else:
        raise ValueError(f"it begins with {magic.hex()}")
    count = len(positions)
    is_beyond_file = count > 0 and positions[-1] >= rows
    fits_entry = place.cardinality is None or place.cardinality == count
    if source.remaining or is_beyond_file or not fits_entry:
        raise ValueError(f"it marks {count} rows of {rows}, and its entry says {place.cardinality}")
    return positions


def _checked_content(data: bytes, place: DeletionRange) -> bytes:
    """The magic number and the bitmap in a record, after a check of its size and checksum."""
    if data[:1] != VERSION:
        raise ValueError(f"the version of the file is {data[:1].hex() or 'missing'}, not 01")
    (size,) = struct.unpack_from(">i", data, place.offset)
    start = place.offset + _SIZE_BYTES
    content = data[start : start + max(0, size)]
    is_whole = size >= 8 and len(content) == size
    # For a vector with 64 bits, the entry counts the bytes of the whole record.
    fits_entry = place.length in (size, size + _SIZE_BYTES + _CHECKSUM_BYTES)
    if not is_whole or not fits_entry:
        raise ValueError(f"{size} bytes do not fit the {place.length} of its entry, or the file")
    if struct.unpack_from(">I", data, start + size)[0] != crc32(content):
        raise ValueError("its checksum is wrong")
    return content


def _bitmaps(source: "_Source", rows: int) -> Positions:
    """The values of a 64-bit bitmap. It consists of 32-bit bitmaps. Each follows the upper 32 bits
    of its values.
    """
    pieces = [np.empty(0, np.int64)]
    previous_high = -1
    remaining_rows = rows
    for _ in range(source.number("<q")):
        high = source.number("<I")
        if high <= previous_high or high << 32 >= rows:
            raise ValueError("its parts are not in order, or beyond the rows of the file")
        values = _bitmap(source, remaining_rows) + (high << 32)
        pieces.append(values)
        previous_high = high
        remaining_rows -= len(values)
    return np.concatenate(pieces)


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
    keys = header[:, 0]
    sizes = header[:, 1] + 1
    if (np.diff(keys) <= 0).any() or sizes.sum() > rows:
        raise ValueError(f"its bitmap marks {sizes.sum()} rows of {rows}, or is not in order")
    if not len(runs) or count >= _OFFSETS_FROM:
        source.take(4 * count)  # where the containers begin; they follow one after the other
    pieces = [np.empty(0, np.int64)]
    for i, (key, size) in enumerate(zip(keys.tolist(), sizes.tolist(), strict=True)):
        if len(runs) and runs[i]:
            low = _of_runs(source.shorts(2 * source.number("<H")).reshape(-1, 2), size)
        elif size <= _MOST_IN_ARRAY:
            low = source.shorts(size)
        else:
            low = np.flatnonzero(
                np.unpackbits(np.frombuffer(source.take(8192), np.uint8), bitorder="little")
            )
        is_ascending = (np.diff(low) > 0).all()
        if len(low) != size or low[-1] >= 1 << 16 or not is_ascending:
            raise ValueError("one of its containers has other values than it says")
        pieces.append(low + (key << 16))
    return np.concatenate(pieces)


def _of_runs(runs: Positions, size: int) -> Positions:
    """The values of runs. A run is given as its first value and the number of values after the
    first.
    """
    lengths = runs[:, 1] + 1
    if lengths.sum() != size:
        raise ValueError("its runs have another length than they say")
    # Each value is the first of its run plus its place in the run. That place is computed from the
    # places among all values.
    offsets = np.cumsum(lengths) - lengths
    return np.repeat(runs[:, 0] - offsets, lengths) + np.arange(size)


class _Source(ByteCursor):
    """The bytes of a bitmap, and the current position."""

    cut_off = "it is cut off"

    @property
    def remaining(self) -> int:
        """How many bytes are left."""
        return len(self.raw) - self.at

    def number(self, form: str) -> int:
        """The next number, in the format `form` of the module `struct`."""
        return int(struct.unpack(form, self.take(struct.calcsize(form)))[0])

    def shorts(self, count: int) -> Positions:
        """The next numbers of two bytes."""
        return np.frombuffer(self.take(2 * count), "<u2").astype(np.int64)

    def _error(self, reason: str) -> ValueError:  # type: ignore[override]
        return ValueError(reason)
