"""Converts values of a file to text, and text to bytes, by Java's rules (tried on 1.4.2). Each
function takes a whole array; NULL stays NULL.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.format.arrow_types import DIGITS_OF_SECOND, with_elements
from paimon_stream.format.types import MAX_LENGTH, DataType, TypeRoot

_NULL: Final = "null"
"""The text of a NULL inside a nested value."""


def to_string(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """Converts values of another type to CHAR, VARCHAR or STRING. Bytes become text without a
    change. The texts of other values are cut to the type's length. For CHAR, they are also padded
    to it.
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
    """Converts text or bytes to BINARY, VARBINARY or BYTES. The values are cut to the type's
    length. For BINARY, they are also padded to it.
    """
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
    if source.root is TypeRoot.TIME:
        return _short_clock(printed, source.precision)
    if not source.is_timestamp:
        return printed
    # Arrow prints all digits of its unit after the point.
    surplus = DIGITS_OF_SECOND[array.type.unit] - source.precision
    if source.precision == 0:
        surplus += 1  # the point
    if not surplus:
        return printed
    return pc.utf8_slice_codeunits(printed, 0, stop=-surplus)


def _short_clock(printed: pa.Array, precision: int) -> pa.Array:
    """The text of a TIME without zeros at the end. If `precision` is not 0, at least one digit
    stays after the point.

    Args:
        printed: the text of a TIME, with three digits after the point.
        precision: the most digits that stay.
    """
    if precision == 0:
        return pc.utf8_slice_codeunits(printed, 0, len("00:00:00"))
    cut = pc.utf8_slice_codeunits(printed, 0, len("00:00:00.") + precision)
    return pc.replace_substring_regex(cut, r"(\.[0-9][0-9]*?)0+\z", r"\1")


def nested_to_string(array: pa.Array) -> pa.Array:
    """The text of lists, maps and structs whose innermost values are text."""
    if pa.types.is_string(array.type):
        return array
    if pa.types.is_struct(array.type):
        return _text_of_structs(array)
    if pa.types.is_map(array.type):
        keys = _text_inside(array.keys)
        elements = pc.binary_join_element_wise(keys, _text_inside(array.items), " -> ")
        opening = "{"
        closing = "}"
    else:
        elements = _text_inside(array.values)
        opening = "["
        closing = "]"
    lists = with_elements(array, pa.list_(elements.type), elements)
    return pc.binary_join_element_wise(opening, pc.binary_join(lists, ", "), closing, "")


def _text_inside(array: pa.Array) -> pa.Array:
    return nested_to_string(array).fill_null(_NULL)


def _text_of_structs(array: pa.Array) -> pa.Array:
    members = [_text_inside(array.field(place)) for place in range(array.type.num_fields)]
    joined = pa.repeat("", len(array))
    if members:
        joined = pc.binary_join_element_wise(*members, ", ")
    bracketed = pc.binary_join_element_wise("{", joined, "}", "")
    return pc.if_else(array.is_valid(), bracketed, pa.scalar(None, pa.string()))


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
