"""The order of serialized rows, the same as in Java's generated comparators (format.md §7.3). Fields are compared in
turn: numbers and decimals by value, false before true, texts and binaries by unsigned bytes, dates and times by
instant, -0.0 before 0.0, NaN after all numbers, NULL before all values."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.binary_row import FIXED, deserialize
from paimon_stream.format.types import DataType, TypeRoot

RowOrder = Callable[[bytes], Any]
"""Maps a serialized row to a value that sorts as the row does."""

_ROW_OF_ONE: Final = (1).to_bytes(4, "big")
_NUMBER_AT: Final = 12  # after the arity and a header of eight bytes
_WHOLE: Final = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.DATE, TypeRoot.BIGINT)
_FLOATING: Final = (TypeRoot.FLOAT, TypeRoot.DOUBLE)


def row_order(types: Sequence[DataType]) -> RowOrder:
    """The order of serialized rows of these types. Raises `UnsupportedFeature` for types without an order. The returned
    function raises `FormatError` for bytes that are not such a row."""
    for one in types:
        if one.is_nested:
            raise UnsupportedFeature(f"Rows of {one} have no order, so they cannot be keys.", type=str(one))
    number = FIXED[types[0].root] if len(types) == 1 and types[0].root in _WHOLE else None

    def order(row: bytes) -> Any:
        # The header's second byte has the null bit of the first column.
        if number is not None and row[:4] == _ROW_OF_ONE and len(row) == _NUMBER_AT + 8 and not row[5] & 1:
            return ((True, number.unpack_from(row, _NUMBER_AT)[0]),)
        return tuple(map(value_order, types, deserialize(types, row)))

    return order


def value_order(type_: DataType, value: Any) -> Any:
    """Something that sorts as the value of that type does."""
    if value is None:
        return (False,)
    if type_.is_string:
        return (True, value.encode())
    if type_.root in _FLOATING:
        is_nan = math.isnan(value)
        return (True, is_nan, 0.0 if is_nan else value, math.copysign(1.0, value) if not is_nan else 1.0)
    return (True, value)
