"""Converts values of a column from the type it had to the type it has now.

The types of a table's columns may have changed since a file was written. Values are then converted as Java converts
them when it reads (tried on 1.4.2), with the same losses: integers wrap around, decimals that do not fit become NULL,
strings are cut. Conversions that depend on a time zone, or on how Java prints a number, are refused.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.format.types import MAX_LENGTH, DataType, TypeRoot, arrow_type

_INTEGERS: Final = {TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT}
_FLOATS: Final = {TypeRoot.FLOAT, TypeRoot.DOUBLE}
_NUMBERS: Final = _INTEGERS | _FLOATS | {TypeRoot.DECIMAL}
_STRINGS: Final = {TypeRoot.CHAR, TypeRoot.VARCHAR}
_BINARIES: Final = {TypeRoot.BINARY, TypeRoot.VARBINARY}
_TIMESTAMPS: Final = {TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ}
_MILLIS: Final = 3
_DAY_MILLIS: Final = 86_400_000
_ANY_INTEGER: Final = pa.decimal128(20, 0)


def can_cast(source: DataType, target: DataType) -> bool:
    """Whether `cast` can convert between these two types, which are not nested."""
    old, new = source.root, target.root
    if old is new:
        return True
    if old in _NUMBERS and new in _NUMBERS:
        return not (old in _FLOATS and new is TypeRoot.DECIMAL)
    if new in _STRINGS:
        return old in _STRINGS | _INTEGERS | {TypeRoot.BOOLEAN}
    return (
        (old in _BINARIES and new in _BINARIES)
        or (old is TypeRoot.BOOLEAN and new in _INTEGERS)
        or (old in _INTEGERS and new is TypeRoot.BOOLEAN)
        or (old is TypeRoot.DATE and new is TypeRoot.TIMESTAMP)
        or (old is TypeRoot.TIMESTAMP and new is TypeRoot.DATE)
    )


def cast(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """Converts an array from `source`'s Arrow type to `target`'s. Only for types that `can_cast` allows."""
    wanted = arrow_type(target)
    if source.with_nullable(True) == target.with_nullable(True):
        return array
    old, new = source.root, target.root
    if new in _STRINGS:
        return _string(array, source, target)
    if new in _BINARIES:
        return array if target.precision == MAX_LENGTH else pc.binary_slice(array, 0, target.precision)
    if old in _TIMESTAMPS or new in _TIMESTAMPS:
        return _time(array, source, target, wanted)
    if TypeRoot.DECIMAL in (old, new):
        return _decimal(array, source, target, wanted)
    if old in _FLOATS and new in _INTEGERS:
        return _truncated(array, wanted)
    return array.cast(wanted, safe=False)


def _string(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    if source.root not in _STRINGS:
        array = array.cast(pa.string())
    if target.precision == MAX_LENGTH:
        return array
    if source.root not in _STRINGS or source.precision > target.precision:
        array = pc.utf8_slice_codeunits(array, 0, target.precision)
    if target.root is TypeRoot.CHAR and source.root in _STRINGS:
        array = pc.utf8_rpad(array, width=target.precision, padding=" ")
    return array


def _time(array: pa.Array, source: DataType, target: DataType, wanted: pa.DataType) -> pa.Array:
    """Like Java, drops digits beyond milliseconds by rounding down, and digits up to them by rounding towards zero."""
    if source.root is TypeRoot.DATE:
        return array.cast(pa.timestamp("s")).cast(wanted)
    if target.root is TypeRoot.DATE:
        millis = floor_to(array, pa.timestamp("ms"))
        return _numbers(millis, lambda values: _toward_zero(values, _DAY_MILLIS), np.int32).view(pa.date32())
    if target.precision >= source.precision:
        return array.cast(wanted)
    made = floor_to(array, wanted)
    step = 10 ** ({"ms": 3, "us": 6, "ns": 9}[made.type.unit] - target.precision)
    if step == 1:
        return made
    divide = _toward_zero if target.precision < _MILLIS else np.floor_divide
    return _numbers(made, lambda values: divide(values, step) * step, np.int64).view(wanted)


def floor_to(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Timestamps in another unit. Digits that the unit cannot hold are rounded down."""
    scale = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
    step = scale[array.type.unit] // scale[wanted.unit]
    if step <= 1:
        return array.cast(pa.timestamp(wanted.unit, array.type.tz)).view(wanted)
    return _numbers(array, lambda values: np.floor_divide(values, step), np.int64).view(wanted)


def _numbers(array: pa.Array, change: Any, dtype: Any) -> pa.Array:
    """Applies `change` (a numpy function) to the 64-bit values of the array; NULLs stay NULL."""
    values = array.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(change(values).astype(dtype), mask=mask)


def _toward_zero(values: Any, step: int) -> Any:
    return np.sign(values) * (np.abs(values) // step)


def _truncated(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Converts like Java's casts: towards zero, NaN becomes 0, values outside the range of INT or BIGINT
    become the nearest limit; smaller integers take the low bits of an INT."""
    wide = pa.int64() if wanted == pa.int64() else pa.int32()
    limits = np.iinfo(np.int64 if wanted == pa.int64() else np.int32)
    values = array.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
    values = np.trunc(np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf))
    over, under = values >= float(limits.max), values <= float(limits.min)
    whole = np.where(over | under, 0, values).astype(limits.dtype)
    whole[over], whole[under] = limits.max, limits.min
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(whole, wide, mask=mask).cast(wanted, safe=False)


def _decimal(array: pa.Array, source: DataType, target: DataType, wanted: pa.DataType) -> pa.Array:
    if target.root is not TypeRoot.DECIMAL:
        if target.root in _FLOATS:
            return array.cast(wanted)
        whole = pc.trunc(array).cast(pa.decimal128(38, 0), safe=False)
        return _low_bits(whole, wanted)
    if source.root is not TypeRoot.DECIMAL:
        array = array.cast(_ANY_INTEGER)
    if array.type.scale > wanted.scale:
        array = pc.round(array, ndigits=wanted.scale, round_mode="half_towards_infinity")
    limit = pa.scalar(10 ** (wanted.precision - wanted.scale), pa.decimal256(40, 0))
    wide = pa.decimal256(76, max(array.type.scale, wanted.scale))
    fits = pc.less(pc.abs(array.cast(wide)), limit.cast(pa.decimal256(76, wide.scale)))
    return pc.if_else(fits, array.cast(wide), pa.scalar(None, wide)).cast(wanted, safe=False)


def _low_bits(whole: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The low bits of a decimal without fraction. Java keeps these of a decimal that is too large."""
    words = np.frombuffer(whole.buffers()[1], np.int64).reshape(-1, 2)
    low = words[whole.offset : whole.offset + len(whole), 0]
    mask = whole.is_null().to_numpy(zero_copy_only=False) if whole.null_count else None
    return pa.array(low, mask=mask).cast(wanted, safe=False)
