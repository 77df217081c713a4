"""Values of a file as text, and text as bytes, by Java's rules (tried on 1.4.2). Each function takes
a whole array; NULL stays NULL.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.format.types import MAX_LENGTH, DataType, TypeRoot

_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def to_string(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """CHAR, VARCHAR or STRING. Bytes are the text as they are; other values are cut, and padded to
    CHAR.
    """
    if source.is_binary:
        return array.cast(pa.string())
    text = array if source.is_string else _text(array, source)
    if target.precision == MAX_LENGTH:
        return text
    if not source.is_string or source.precision > target.precision:
        text = pc.utf8_slice_codeunits(text, 0, target.precision)
    if target.root is TypeRoot.CHAR:
        text = pc.utf8_rpad(text, width=target.precision, padding=" ")
    return text


def to_binary(array: pa.Array, target: DataType) -> pa.Array:
    """BINARY, VARBINARY or BYTES, of text or bytes, which are cut, and padded to BINARY."""
    array = array.cast(pa.binary())
    if target.precision == MAX_LENGTH:
        return array
    if target.root is TypeRoot.BINARY:
        zeros = pa.scalar(bytes(target.precision), array.type)
        array = pc.binary_join_element_wise(array, zeros, pa.scalar(b"", array.type))
    return pc.binary_slice(array, 0, target.precision)


def _text(array: pa.Array, source: DataType) -> pa.Array:
    if source.root is TypeRoot.DECIMAL:
        return _plain(array)
    text = array.cast(pa.string())
    if not source.is_timestamp:
        return text
    more = _DIGITS[array.type.unit] - source.precision
    if source.precision == 0:
        more += 1  # the point
    return pc.utf8_slice_codeunits(text, 0, stop=-more) if more else text


def _plain(array: pa.Array) -> pa.Array:
    """All digits of DECIMALs, without an exponent."""
    scale = array.type.scale
    whole = array.view(pa.decimal128(array.type.precision, 0))
    if not scale:
        return whole.cast(pa.string())
    digits = pc.utf8_lpad(pc.abs(whole).cast(pa.string()), width=scale + 1, padding="0")
    sign = pc.if_else(pc.equal(pc.sign(whole), -1), "-", "")
    before = pc.utf8_slice_codeunits(digits, 0, stop=-scale)
    after = pc.utf8_slice_codeunits(digits, -scale)
    return pc.binary_join_element_wise(pc.binary_join_element_wise(sign, before, ""), after, ".")
