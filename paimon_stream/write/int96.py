"""Writes timestamps of more than 6 digits as Parquet's INT96, the only form in which Java reads them.

Arrow writes either all timestamps of a file as INT96 or none. Timestamps of 6 digits or fewer must stay
numbers, because Java can filter by those (format.md §7.4). So Arrow gets the longer ones as columns of twelve
bytes, eight for the nanoseconds and four for the Julian day, and the footer that it writes is corrected.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from paimon_stream.format.arrow_types import INT96_LAYOUT, JULIAN_EPOCH, TWELVE_BYTES, with_elements, with_entries
from paimon_stream.format.parquet_footer import TAIL, declare_int96, footer_start

_DAY_NANOS: Final = 86_400_000_000_000


def stored_type(type_: pa.DataType) -> pa.DataType:
    """What a leaf of this type is given to Arrow as: twelve bytes for timestamps in nanoseconds."""
    return TWELVE_BYTES if pa.types.is_timestamp(type_) and type_.unit == "ns" else type_


def as_int96(array: pa.Array, stored: pa.DataType) -> pa.Array:
    """The array in its stored type. An array that already has it is returned unchanged."""
    if array.type.equals(stored):
        return array
    if pa.types.is_map(stored):
        keys = as_int96(array.keys, stored.key_type)
        items = as_int96(array.items, stored.item_type)
        return with_entries(array, stored, keys, items)
    if pa.types.is_list(stored):
        return with_elements(array, stored, as_int96(array.values, stored.value_type))
    if pa.types.is_struct(stored):
        members = [as_int96(array.field(i), one.type) for i, one in enumerate(stored)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(members, fields=list(stored), mask=mask)
    return _of_nanos(array) if stored.equals(TWELVE_BYTES) else array.cast(stored)


def _of_nanos(array: pa.Array) -> pa.Array:
    nanos = array.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    made = np.empty(len(array), INT96_LAYOUT)
    made["day"] = nanos // _DAY_NANOS + JULIAN_EPOCH
    made["nanos"] = nanos % _DAY_NANOS
    valid = array.is_valid().buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(TWELVE_BYTES, len(array), [valid, pa.py_buffer(made)], array.null_count)


def with_int96(end: bytes, leaves: frozenset[int]) -> bytes:
    """The last bytes of a Parquet file, including its footer, with these leaves declared as INT96."""
    start = footer_start(len(end), end[-TAIL:])
    return end[:start] + declare_int96(end[start:-TAIL], leaves)
