"""Converts DECIMALs to and from other numbers by Java's rules (tried on 1.4.2). Each function takes
a whole array; NULL stays NULL.
"""

from decimal import Decimal
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.merge.merge_order import nulls

_COMPACT: Final = 18
"""Java holds DECIMALs of at most this many digits as 64-bit numbers, and computes with those."""
_MOST_DIGITS: Final = 76
"""The most digits that a 256-bit DECIMAL of Arrow has."""
_ANY_INTEGER: Final = pa.decimal128(20, 0)
"""Holds all 64-bit integers."""
_FROM_ONE: Final = pa.decimal256(_MOST_DIGITS, 38)
"""Holds the shortest text of each DOUBLE from 1 to below 1e38."""
_BELOW_ONE: Final = pa.decimal256(_MOST_DIGITS, 57)
"""Holds the shortest text of each DOUBLE from 1e-40 to below 1, which has at most 17 digits."""
_TOO_LARGE: Final = 1e38
"""From here on, a number does not fit into any DECIMAL."""
_TOO_SMALL: Final = 1e-40
"""Below this, every DECIMAL of a number is 0."""


def to_decimal(array: pa.Array, wanted: pa.Decimal128Type) -> pa.Array:
    """Integers, BOOLEANs or DECIMALs as DECIMALs of another precision and scale. Digits beyond the
    scale are rounded half up, away from zero. Numbers that do not fit become NULL.
    """
    if not pa.types.is_decimal(array.type):
        array = array.cast(pa.int64()).cast(_ANY_INTEGER)
    # A value that is rounded up may have one digit more than its type allows.
    wide = array.cast(pa.decimal256(_MOST_DIGITS, array.type.scale))
    if array.type.scale > wanted.scale:
        wide = pc.round(wide, ndigits=wanted.scale, round_mode="half_towards_infinity")
    rescaled = wide.cast(pa.decimal256(_MOST_DIGITS, wanted.scale))
    # The limit is a 1 followed by as many zeros as the precision. It has one digit too many for the
    # type.
    digits = (1, *[0] * wanted.precision)
    limit = Decimal((0, digits, -wanted.scale))
    fits = pc.less(pc.abs(rescaled), pa.scalar(limit, rescaled.type))
    return pc.if_else(fits, rescaled, pa.scalar(None, rescaled.type)).cast(wanted)


def float_to_decimal(array: pa.Array, wanted: pa.Decimal128Type) -> pa.Array:
    """Finite FLOATs or DOUBLEs as DECIMALs. As in Java, a FLOAT is a DOUBLE first, and the shortest
    text of the DOUBLE is rounded half up. Numbers that do not fit become NULL.
    """
    doubles = array.cast(pa.float64())
    sizes = pc.abs(doubles)
    doubles = pc.if_else(pc.less(sizes, _TOO_SMALL), 0.0, doubles)
    doubles = pc.if_else(pc.less(sizes, _TOO_LARGE), doubles, pa.scalar(None, pa.float64()))
    is_below_one = pc.less(sizes, 1.0)
    below_one = pc.if_else(is_below_one, doubles, 0.0).cast(pa.string()).cast(_BELOW_ONE)
    from_one = pc.if_else(is_below_one, 0.0, doubles).cast(pa.string()).cast(_FROM_ONE)
    return pc.if_else(is_below_one, to_decimal(below_one, wanted), to_decimal(from_one, wanted))


def to_float(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """DECIMALs as DOUBLE or FLOAT (`wanted`), as in Java. A DECIMAL of more than 18 digits becomes
    the nearest DOUBLE. For another DECIMAL, two DOUBLEs are divided, which gives the nearest DOUBLE
    only if the unscaled value is below 2^53. A FLOAT is made from that DOUBLE, so it is rounded
    twice.
    """
    if array.type.precision > _COMPACT:
        doubles = array.cast(pa.string()).cast(pa.float64())
    else:
        quotients = _low_words(array).astype(np.float64) / 10.0**array.type.scale
        doubles = pa.array(quotients, mask=nulls(array))
    return doubles.cast(wanted)


def to_integer(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """DECIMALs as integers, rounded towards zero. A number that is too large becomes its low
    bits.
    """
    truncated = pc.trunc(array).cast(pa.decimal128(38, 0), safe=False)
    low_words = pa.array(_low_words(truncated), mask=nulls(truncated))
    return low_words.cast(wanted, safe=False)


def _low_words(array: pa.Array) -> npt.NDArray[np.int64]:
    """The low 64 bits of each unscaled value. For a NULL, the result is whatever the buffer
    holds.
    """
    words = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)
    return words[array.offset : array.offset + len(array), 0]
