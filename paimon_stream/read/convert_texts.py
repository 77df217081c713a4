"""Values of a file as text, and text as bytes, by Java's rules (tried on 1.4.2). Each function takes
a whole array; NULL stays NULL.
"""

import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.format.arrow_types import DIGITS_OF_SECOND
from paimon_stream.format.types import MAX_LENGTH, DataType, TypeRoot


def to_string(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """CHAR, VARCHAR or STRING of values of another type. Bytes become text without a change. Texts
    of other values are cut, and for CHAR they are padded.
    """
    if source.is_binary:
        return array.cast(pa.string())
    strings = array if source.is_string else _printed(array, source)
    if target.precision == MAX_LENGTH:
        return strings
    if not source.is_string or source.precision > target.precision:
        strings = pc.utf8_slice_codeunits(strings, 0, target.precision)
    if target.root is TypeRoot.CHAR:
        strings = pc.utf8_rpad(strings, width=target.precision, padding=" ")
    return strings


def to_binary(array: pa.Array, target: DataType) -> pa.Array:
    """BINARY, VARBINARY or BYTES of text or bytes. They are cut, and for BINARY they are padded."""
    content = array.cast(pa.binary())
    if target.precision == MAX_LENGTH:
        return content
    if target.root is TypeRoot.BINARY:
        zeros = pa.scalar(bytes(target.precision), content.type)
        separator = pa.scalar(b"", content.type)
        content = pc.binary_join_element_wise(content, zeros, separator)
    return pc.binary_slice(content, 0, target.precision)


def _printed(array: pa.Array, source: DataType) -> pa.Array:
    """The values as Java prints them, at full length."""
    if source.root is TypeRoot.DECIMAL:
        return _plain_decimals(array)
    printed = array.cast(pa.string())
    if not source.is_timestamp:
        return printed
    # Arrow prints all digits of its unit after the point.
    surplus = DIGITS_OF_SECOND[array.type.unit] - source.precision
    if source.precision == 0:
        surplus += 1  # the point
    if not surplus:
        return printed
    return pc.utf8_slice_codeunits(printed, 0, stop=-surplus)


def _plain_decimals(array: pa.Array) -> pa.Array:
    """All digits of DECIMALs, without an exponent."""
    scale = array.type.scale
    unscaled = array.view(pa.decimal128(array.type.precision, 0))
    if not scale:
        return unscaled.cast(pa.string())
    digits = pc.utf8_lpad(pc.abs(unscaled).cast(pa.string()), width=scale + 1, padding="0")
    sign = pc.if_else(pc.equal(pc.sign(unscaled), -1), "-", "")
    before_point = pc.utf8_slice_codeunits(digits, 0, stop=-scale)
    after_point = pc.utf8_slice_codeunits(digits, -scale)
    integers = pc.binary_join_element_wise(sign, before_point, "")
    return pc.binary_join_element_wise(integers, after_point, ".")
