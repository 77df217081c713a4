"""The hash of rows: Murmur3 x86 32-bit with seed 42, over words of 32 bits (format.md §5.3). The
length of a row is a multiple of 8 bytes, so its hash has no tail. Results are signed, as in Java.
"""

import struct
from typing import Final

import numpy as np
import numpy.typing as npt

from paimon_stream.format.binary_columns import FEW_ROWS, EncodedRows

_SEED: Final = 42
_C1: Final = 0xCC9E2D51
_C2: Final = 0x1B873593
_ADDED: Final = 0xE6546B64
_FINAL_1: Final = 0x85EBCA6B
_FINAL_2: Final = 0xC2B2AE35
_MASK: Final = 0xFFFFFFFF

Hashes = npt.NDArray[np.uint32]


def hash_bytes(data: bytes, seed: int = _SEED) -> int:
    """The hash of one row without arity, or of any bytes."""
    h, whole = seed, len(data) & ~3
    for k in struct.unpack(f"<{whole // 4}I", data[:whole]):
        h = _round(h, k)
    h ^= _mixed(int.from_bytes(data[whole:], "little")) ^ len(data)
    h = (h ^ h >> 16) * _FINAL_1 & _MASK
    h = (h ^ h >> 13) * _FINAL_2 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def hash_rows(rows: EncodedRows) -> npt.NDArray[np.int32]:
    """The hash of every row."""
    words = rows.data.view(np.uint32)
    count = (np.diff(rows.offsets) // 4).astype(np.int64)
    if len(rows) and (count == count[0]).all():  # rows of the same size
        h = np.full(len(rows), _SEED, np.uint32)
        for column in words.reshape(len(rows), -1).T:
            _rounds(h, column.copy())
        h ^= np.uint32(4 * count[0])
        return _finished(h).view(np.int32)
    # Longest first: for every k, the rows that have a k-th word then come first.
    sortable = count.astype(np.uint16) if len(count) and count.max() < 1 << 16 else count
    order = np.argsort(sortable, kind="stable")[::-1]
    count, start = count[order], (rows.offsets[:-1] // 4)[order]
    h = np.full(len(rows), _SEED, np.uint32)
    ascending = count[::-1]
    k = 0
    while (left := len(count) - int(np.searchsorted(ascending, k, "right"))) >= FEW_ROWS:
        _rounds(h[:left], words[start[:left] + k])
        k += 1
    for i in range(left):
        one = int(h[i])
        for word in words[start[i] + k : start[i] + count[i]].tolist():
            one = _round(one, word)
        h[i] = one
    h ^= (count * 4).astype(np.uint32)
    result = np.empty(len(rows), np.int32)
    result[order] = _finished(h).view(np.int32)
    return result


def _round(h: int, k: int) -> int:
    h ^= _mixed(k)
    return ((h << 13 | h >> 19) & _MASK) * 5 + _ADDED & _MASK


def _mixed(k: int) -> int:
    k = k * _C1 & _MASK
    return (k << 15 | k >> 17) * _C2 & _MASK


def _rounds(h: Hashes, k: Hashes) -> None:
    """One round for many rows. Both arrays are overwritten."""
    k *= np.uint32(_C1)
    high = k >> np.uint32(17)
    k <<= np.uint32(15)
    k |= high
    k *= np.uint32(_C2)
    h ^= k
    np.right_shift(h, np.uint32(19), out=high)
    h <<= np.uint32(13)
    h |= high
    h *= np.uint32(5)
    h += np.uint32(_ADDED)


def _finished(h: Hashes) -> Hashes:
    """The last steps for many rows, after the size was mixed in. The array is overwritten."""
    for shift, factor in ((16, _FINAL_1), (13, _FINAL_2)):
        h ^= h >> np.uint32(shift)
        h *= np.uint32(factor)
    h ^= h >> np.uint32(16)
    return h
