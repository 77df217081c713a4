"""Computes the hash of rows: Murmur3 x86 32-bit with seed 42, over words of 32 bits (format.md
§5.3). The length of a row is a multiple of 8 bytes, so its hash has no tail. Results are signed, as
in Java.
"""

import struct
from typing import Final

import numpy as np
import numpy.typing as npt

from paimon_stream.format.binary_columns import FEW_ROWS, EncodedRows, Ints

_SEED: Final = 42
_C1: Final = 0xCC9E2D51
_C2: Final = 0x1B873593
_ADDED: Final = 0xE6546B64
_FINAL_1: Final = 0x85EBCA6B
_FINAL_2: Final = 0xC2B2AE35
_MASK: Final = 0xFFFFFFFF

Hashes = npt.NDArray[np.uint32]
_Words = npt.NDArray[np.uint32]


def hash_bytes(data: bytes, seed: int = _SEED) -> int:
    """The hash of one row without arity, or of any bytes."""
    tail_start = len(data) & ~3  # where the bytes begin that fill no whole word
    hash_ = seed
    for word in struct.unpack(f"<{tail_start // 4}I", data[:tail_start]):
        hash_ = _round(hash_, word)
    hash_ ^= _mixed(int.from_bytes(data[tail_start:], "little")) ^ len(data)
    hash_ = (hash_ ^ hash_ >> 16) * _FINAL_1 & _MASK
    hash_ = (hash_ ^ hash_ >> 13) * _FINAL_2 & _MASK
    hash_ ^= hash_ >> 16
    return hash_ - (1 << 32) if hash_ >> 31 else hash_


def hash_rows(rows: EncodedRows) -> npt.NDArray[np.int32]:
    """The hash of every row."""
    words = rows.data.view(np.uint32)
    counts = (np.diff(rows.offsets) // 4).astype(np.int64)
    if len(rows) and (counts == counts[0]).all():
        return _hash_equal_rows(words, len(rows), int(counts[0]))
    return _hash_unequal_rows(words, rows.offsets[:-1] // 4, counts)


def _hash_equal_rows(words: _Words, rows: int, count: int) -> npt.NDArray[np.int32]:
    """The hashes of rows of `count` words each, which lie one directly after the other."""
    hashes = np.full(rows, _SEED, np.uint32)
    for column in words.reshape(rows, -1).T:
        _rounds(hashes, column.copy())
    hashes ^= np.uint32(4 * count)
    return _finished(hashes).view(np.int32)


def _hash_unequal_rows(words: _Words, starts: Ints, counts: Ints) -> npt.NDArray[np.int32]:
    """The hashes of rows of different sizes.

    Args:
        words: the words of all rows.
        starts: the position of each row's first word.
        counts: how many words each row has.
    """
    # The longest rows come first. So for every k, the rows that have a k-th word come first.
    sortable = counts.astype(np.uint16) if len(counts) and counts.max() < 1 << 16 else counts
    order = np.argsort(sortable, kind="stable")[::-1]
    counts = counts[order]
    starts = starts[order]
    ascending = counts[::-1]
    hashes = np.full(len(counts), _SEED, np.uint32)
    k = 0
    unfinished = _more_than(ascending, k)
    while unfinished >= FEW_ROWS:
        _rounds(hashes[:unfinished], words[starts[:unfinished] + k])
        k += 1
        unfinished = _more_than(ascending, k)
    for i in range(unfinished):
        hash_ = int(hashes[i])
        for word in words[starts[i] + k : starts[i] + counts[i]].tolist():
            hash_ = _round(hash_, word)
        hashes[i] = hash_
    hashes ^= (counts * 4).astype(np.uint32)
    result = np.empty(len(counts), np.int32)
    result[order] = _finished(hashes).view(np.int32)
    return result


def _more_than(ascending: Ints, k: int) -> int:
    """The number of values in `ascending` that are greater than `k`."""
    return len(ascending) - int(np.searchsorted(ascending, k, "right"))


def _round(hash_: int, word: int) -> int:
    hash_ ^= _mixed(word)
    return ((((hash_ << 13) | (hash_ >> 19)) & _MASK) * 5 + _ADDED) & _MASK


def _mixed(word: int) -> int:
    word = word * _C1 & _MASK
    return (((word << 15) | (word >> 17)) * _C2) & _MASK


def _rounds(hashes: Hashes, words: _Words) -> None:
    """Runs one round of the hash for many rows. Both arrays are overwritten."""
    words *= np.uint32(_C1)
    shifted = words >> np.uint32(17)
    words <<= np.uint32(15)
    words |= shifted
    words *= np.uint32(_C2)
    hashes ^= words
    np.right_shift(hashes, np.uint32(19), out=shifted)
    hashes <<= np.uint32(13)
    hashes |= shifted
    hashes *= np.uint32(5)
    hashes += np.uint32(_ADDED)


def _finished(hashes: Hashes) -> Hashes:
    """Runs the last steps of the hash for many rows, after the size was mixed in. The array is
    overwritten.
    """
    for shift, factor in ((16, _FINAL_1), (13, _FINAL_2)):
        hashes ^= hashes >> np.uint32(shift)
        hashes *= np.uint32(factor)
    hashes ^= hashes >> np.uint32(16)
    return hashes
