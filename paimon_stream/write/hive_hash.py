"""The hash of `bucket-function.type = hive` (format.md §6.3), for whole columns.

It is taken from the binary form of each column alone: NULL is there all zeros, and hashes to 0 as it must.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.binary_columns import FEW_ROWS, EncodedRows, encode_columns, fixed_words
from paimon_stream.format.types import DataType, TypeRoot

__all__ = ["hive_hashes"]

Hashes = npt.NDArray[np.uint32]
Words = npt.NDArray[np.uint64]

_FACTOR: Final = np.uint32(31)
_HALF: Final = np.uint64(32)
_MASK: Final = 0xFFFFFFFF
_LOW: Final = np.uint64(_MASK)
_SIGNED: Final = {TypeRoot.TINYINT: (np.uint8, np.int8), TypeRoot.SMALLINT: (np.uint16, np.int16)}
_PLAIN: Final = (TypeRoot.BOOLEAN, TypeRoot.INT, TypeRoot.DATE, TypeRoot.TIME)


def hive_hashes(columns: Sequence[pa.Array], types: Sequence[DataType]) -> Hashes:
    """The hash of every row of these columns.

    Raises `UnsupportedFeature` for timestamps and nested types, `InvalidData` for columns that do not fit
    their type.
    """
    h = np.zeros(len(columns[0]) if columns else 0, np.uint32)
    for column, type_ in zip(columns, types, strict=True):
        h *= _FACTOR
        h += _column(column, type_)
    return h


def _column(column: pa.Array, type_: DataType) -> Hashes:
    if type_.is_timestamp:
        raise UnsupportedFeature(
            f"bucket-function.type = hive does not take {type_} as bucket key.", type=str(type_)
        )
    words = fixed_words([column], [type_])
    if words is None:
        return _text(encode_columns([column], [type_]))
    slot, *tail = (np.asarray(word, np.uint64) for word in words[1:])
    if type_.root in _PLAIN:
        return slot.astype(np.uint32)
    if type_.root in _SIGNED:
        stored, meant = _SIGNED[type_.root]
        return slot.astype(stored).view(meant).astype(np.int32).view(np.uint32)
    if type_.root is TypeRoot.DECIMAL:
        return _decimal(slot, tail, type_.scale)
    if type_.root is TypeRoot.FLOAT:
        slot = np.where(slot == np.uint64(1 << 31), np.uint64(0), slot)
        return slot.astype(np.uint32)
    if type_.root is TypeRoot.DOUBLE:
        slot = np.where(slot == np.uint64(1 << 63), np.uint64(0), slot)
    folded: Words = slot ^ slot >> _HALF
    return folded.astype(np.uint32)


def _text(rows: EncodedRows) -> Hashes:
    """Of the bytes, which are signed: h = 31 * h + byte."""
    slot = rows.data.view(np.uint64)[rows.offsets[:-1] // 8 + 1]
    mark = (slot >> np.uint64(56)).astype(np.int64)
    inline = mark >= 0x80
    lengths = np.where(inline, mark & 0x7F, (slot & _LOW).astype(np.int64))
    starts = rows.offsets[:-1] + np.where(inline, 8, 16)
    values = rows.data.view(np.int8)
    h = np.zeros(len(rows), np.uint32)
    going = np.flatnonzero(lengths > 0)
    done = 0
    while len(going) >= FEW_ROWS:
        h[going] = h[going] * _FACTOR + values[starts[going] + done].astype(np.uint32)
        done += 1
        going = going[lengths[going] > done]
    for row in going.tolist():
        rest = values[starts[row] + done : starts[row] + lengths[row]].astype(np.uint32)
        powers = np.cumprod(np.full(len(rest), _FACTOR, np.uint32), dtype=np.uint32)
        # The last byte counts once, the one before 31 times, and what came before all of them most.
        weights = np.concatenate((powers[-2::-1], np.ones(1, np.uint32)))
        total = int(h[row]) * int(powers[-1]) + int((rest * weights).sum(dtype=np.uint32))
        h[row] = total & _MASK
    return h


def _decimal(slot: Words, tail: Sequence[Words], scale: int) -> Hashes:
    """`BigDecimal.hashCode` of the value without zeros at the end of its fraction."""
    low, high = _from_digits(slot, *tail) if tail else (slot, (slot.view(np.int64) >> 63).view(np.uint64))
    sign = (high.view(np.int64) >> 63).view(np.uint64)
    negative = sign > 0
    low, high = (low ^ sign) + negative.astype(np.uint64), high ^ sign
    high += negative & (low == 0)
    limbs = np.stack((high >> _HALF, high & _LOW, low >> _HALF, low & _LOW))
    scales = np.where(limbs.any(axis=0), np.int64(scale), 0)
    _strip_zeros(limbs, scales)
    h = np.zeros(len(slot), np.uint32)
    for limb in limbs:
        h *= _FACTOR
        h += limb.astype(np.uint32)
    h = np.where(negative, np.uint32(0) - h, h)
    h *= _FACTOR
    h += scales.astype(np.uint32)
    return h


def _from_digits(slot: Words, first: Words, second: Words) -> tuple[Words, Words]:
    """The low and high words of numbers of which the digits stand at the front, big endian."""
    first, second = first.byteswap(), second.byteswap()
    size = (slot & _LOW).astype(np.int64)
    shift = np.where(size > 0, (16 - size) * 8, 0)
    across, within = shift >= 64, shift % 64
    sign = first.view(np.int64) >> 63
    top = np.where(across, sign, first.view(np.int64)) >> within
    below, above = np.where(across, first, second), np.where(across, sign.view(np.uint64), first)
    carried = np.where(within > 0, above << (64 - np.maximum(within, 1)).astype(np.uint64), np.uint64(0))
    return below >> within.astype(np.uint64) | carried, top.view(np.uint64)


def _strip_zeros(limbs: npt.NDArray[Any], scales: npt.NDArray[np.int64]) -> None:
    """Divides by ten, in place, as long as nothing is lost and there is a fraction."""
    going = np.flatnonzero(scales > 0)
    while len(going):
        divided = limbs[:, going]
        rest = np.zeros(len(going), np.uint64)
        for i, limb in enumerate(divided):
            number = rest << _HALF | limb
            divided[i], rest = np.divmod(number, np.uint64(10))
        even = rest == 0
        going = going[even]
        limbs[:, going] = divided[:, even]
        scales[going] -= 1
        going = going[scales[going] > 0]
