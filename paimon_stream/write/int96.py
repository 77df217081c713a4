"""Writes timestamps of more than 6 digits as Parquet's INT96, the only form in which Java reads them.

Arrow writes either all timestamps of a file as INT96 or none. Timestamps of 6 digits or fewer must stay
numbers, because Java can filter by those (format.md §7.4). So Arrow gets the longer ones as columns of twelve
bytes, eight for the nanoseconds and four for the Julian day, and the footer that it writes is corrected.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from paimon_stream.format.parquet_footer import TAIL, declare_int96, footer_start

__all__ = ["as_int96", "int96_leaf_columns", "stored_field", "with_int96"]

_BYTES: Final = pa.binary(12)
_JULIAN_EPOCH: Final = 2_440_588
_DAY_NANOS: Final = 86_400_000_000_000
_LAYOUT: Final = np.dtype([("nanos", "<i8"), ("day", "<i4")])


def stored_field(field: pa.Field) -> pa.Field:
    """The field with twelve bytes in place of timestamps in nanoseconds, at any depth."""
    return field.with_type(_stored(field.type))


def _stored(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_map(type_):
        return pa.map_(stored_field(type_.key_field), stored_field(type_.item_field))
    if pa.types.is_list(type_):
        return pa.list_(stored_field(type_.value_field))
    if pa.types.is_struct(type_):
        return pa.struct([stored_field(one) for one in type_])
    return _BYTES if pa.types.is_timestamp(type_) and type_.unit == "ns" else type_


def int96_leaf_columns(stored: pa.Schema) -> frozenset[int]:
    """The positions, among all leaves in file order, of those that are twelve bytes."""
    leaves = [one for field in stored for one in _leaves(field.type)]
    return frozenset(i for i, one in enumerate(leaves) if one.equals(_BYTES))


def _leaves(type_: pa.DataType) -> Iterator[pa.DataType]:
    if pa.types.is_map(type_):
        yield from _leaves(type_.key_type)
        yield from _leaves(type_.item_type)
    elif pa.types.is_list(type_):
        yield from _leaves(type_.value_type)
    elif pa.types.is_struct(type_):
        for one in type_:
            yield from _leaves(one.type)
    else:
        yield type_


def as_int96(array: pa.Array, stored: pa.DataType) -> pa.Array:
    """The array in its stored type. An array that already has it is returned unchanged."""
    if array.type.equals(stored):
        return array
    if pa.types.is_map(stored):
        keys = as_int96(array.keys, stored.key_type)
        items = as_int96(array.items, stored.item_type)
        entries = pa.StructArray.from_arrays([keys, items], fields=[stored.key_field, stored.item_field])
        return _with_children(array, stored, entries)
    if pa.types.is_list(stored):
        return _with_children(array, stored, as_int96(array.values, stored.value_type))
    if pa.types.is_struct(stored):
        members = [as_int96(array.field(i), one.type) for i, one in enumerate(stored)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(members, fields=list(stored), mask=mask)
    return _of_nanos(array) if stored.equals(_BYTES) else array.cast(stored)


def _with_children(array: pa.Array, stored: pa.DataType, child: pa.Array) -> pa.Array:
    """The same lists with other elements; offsets and NULLs are shared, not copied."""
    return pa.Array.from_buffers(
        stored, len(array), array.buffers()[:2], array.null_count, array.offset, [child]
    )


def _of_nanos(array: pa.Array) -> pa.Array:
    nanos = array.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    made = np.empty(len(array), _LAYOUT)
    made["day"] = nanos // _DAY_NANOS + _JULIAN_EPOCH
    made["nanos"] = nanos % _DAY_NANOS
    valid = array.is_valid().buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(_BYTES, len(array), [valid, pa.py_buffer(made)], array.null_count)


def with_int96(end: bytes, leaves: frozenset[int]) -> bytes:
    """The last bytes of a Parquet file, including its footer, with these leaves declared as INT96."""
    start = footer_start(len(end), end[-TAIL:])
    return end[:start] + declare_int96(end[start:-TAIL], leaves)
