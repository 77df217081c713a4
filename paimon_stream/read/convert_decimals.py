"""DECIMALs of a file as numbers of today's type, by Java's rules (tried on 1.4.2). Each function
takes a whole array; NULL stays NULL.
"""

from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.merge.key_runs import nulls

_COMPACT: Final = 18
"""Java holds DECIMALs of at most this many digits as 64-bit numbers, and computes with those."""
_MOST_DIGITS: Final = 76
_ANY_INTEGER: Final = pa.decimal128(20, 0)


def to_decimal(array: pa.Array, wanted: pa.Decimal128Type) -> pa.Array:
    """Integers, BOOLEANs or DECIMALs as DECIMALs of another precision and scale. Digits beyond the scale are
    rounded half up, away from zero. NULL for what does not fit.
    """
    if not pa.types.is_decimal(array.type):
        array = array.cast(pa.int64()).cast(_ANY_INTEGER)
    # A value that is rounded up may have one digit more, so its own precision is too small for it.
    wide = array.cast(pa.decimal256(_MOST_DIGITS, array.type.scale))
    if array.type.scale > wanted.scale:
        wide = pc.round(wide, ndigits=wanted.scale, round_mode="half_towards_infinity")
    rescaled = wide.cast(pa.decimal256(_MOST_DIGITS, wanted.scale))
    limit = Decimal((0, (1, *(0,) * wanted.precision), -wanted.scale))
    fits = pc.less(pc.abs(rescaled), pa.scalar(limit, rescaled.type))
    return pc.if_else(fits, rescaled, pa.scalar(None, rescaled.type)).cast(wanted)


def to_float(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """DECIMALs as DOUBLE: the nearest number. FLOAT is made from that, so it is rounded twice. Up
    to 18 digits Java divides two DOUBLEs, which is the nearest number below 2^53.
    """
    if array.type.precision > _COMPACT:
        doubles = array.cast(pa.string()).cast(pa.float64())
    else:
        quotients = _low_words(array).astype(np.float64) / 10.0**array.type.scale
        doubles = pa.array(quotients, mask=nulls(array))
    return doubles.cast(wanted)


def to_integer(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """DECIMALs as integers, rounded towards zero. Of a number that is too large, the low bits."""
    whole = pc.trunc(array).cast(pa.decimal128(38, 0), safe=False)
    return pa.array(_low_words(whole), mask=nulls(whole)).cast(wanted, safe=False)


def _low_words(array: pa.Array) -> npt.NDArray[Any]:
    """The low 64 bits of each unscaled value; whatever the buffer holds where it is NULL."""
    words = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)
    return words[array.offset : array.offset + len(array), 0]
