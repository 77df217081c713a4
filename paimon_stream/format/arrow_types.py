"""Arrow schemas and arrays for Paimon types, and the Paimon types of the Arrow columns of a new
table (format.md §2.5).

`pa.array`, `pa.scalar` and `to_numpy` import pandas if it is installed, whatever they get. That
takes a process a quarter of a CPU second and 45 MB. Workers of Spark do without it: they use
`from_numbers`, `from_flags`, `from_bytes`, `to_numbers` and `to_flags`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.types import MAX_LENGTH, PLAIN, DataField, DataType, TypeRoot, arrow_type

TWELVE_BYTES: Final = pa.binary(12)
"""The Arrow type of an INT96 column while its values are bytes."""

PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""How many of a timestamp's units make up a second."""

DIGITS_OF_SECOND: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""The precision of timestamps, by their Arrow unit."""

INT96_LAYOUT: Final = np.dtype([("nanos", "<i8"), ("day", "<i4")])
JULIAN_EPOCH: Final = 2_440_588

_WITH_PRECISION: Final = (
    TypeRoot.CHAR,
    TypeRoot.VARCHAR,
    TypeRoot.BINARY,
    TypeRoot.VARBINARY,
    TypeRoot.TIME,
)
_PLAIN: Final = {arrow: root for root, arrow in PLAIN.items() if root not in _WITH_PRECISION}


def arrow_schema(fields: Sequence[DataField]) -> pa.Schema:
    """The Arrow schema of rows with these columns."""
    return pa.schema(
        [
            pa.field(field.name, arrow_type(field.type), nullable=field.type.nullable)
            for field in fields
        ]
    )


def from_arrow(type_: pa.DataType, *, nullable: bool = True) -> DataType:
    """The Paimon type that a new table gets for an Arrow column (format.md §2.5).

    Args:
        type_: the Arrow type of the column.
        nullable: whether the column may have NULLs.

    Raises:
        UnsupportedFeature: the Arrow type has no counterpart (unsigned integers, intervals, …).
    """
    paimon_type = partial(DataType, nullable=nullable)
    if type_ in _PLAIN:
        return paimon_type(root=_PLAIN[type_])
    if pa.types.is_decimal128(type_) and type_.scale >= 0:
        return paimon_type(root=TypeRoot.DECIMAL, precision=type_.precision, scale=type_.scale)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return paimon_type(root=TypeRoot.VARCHAR, precision=MAX_LENGTH)
    if pa.types.is_fixed_size_binary(type_):
        return paimon_type(root=TypeRoot.BINARY, precision=type_.byte_width)
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return paimon_type(root=TypeRoot.VARBINARY, precision=MAX_LENGTH)
    if pa.types.is_time(type_):
        return paimon_type(root=TypeRoot.TIME)
    if pa.types.is_timestamp(type_):
        root = TypeRoot.TIMESTAMP_LTZ if type_.tz else TypeRoot.TIMESTAMP
        return paimon_type(root=root, precision=DIGITS_OF_SECOND[type_.unit])
    if pa.types.is_dictionary(type_):
        return from_arrow(type_.value_type, nullable=nullable)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return paimon_type(root=TypeRoot.ARRAY, element=_of_arrow_field(type_.value_field))
    if pa.types.is_map(type_):
        element = _of_arrow_field(type_.item_field)
        key = from_arrow(type_.key_type, nullable=False)
        return paimon_type(root=TypeRoot.MAP, key=key, element=element)
    if pa.types.is_struct(type_):
        members = tuple(
            DataField(id=i, name=member.name, type=_of_arrow_field(member))
            for i, member in enumerate(type_)
        )
        return paimon_type(root=TypeRoot.ROW, fields=members)
    raise UnsupportedFeature(f"Arrow type {type_} has no Paimon type.", type=str(type_))


def _of_arrow_field(field: pa.Field) -> DataType:
    return from_arrow(field.type, nullable=field.nullable)


_DTYPES: Final = {
    pa.from_numpy_dtype(np.dtype(code)): np.dtype(code)
    for code in ("i1", "i2", "i4", "i8", "u8", "f4", "f8")
}
"""The types in NumPy of Arrow's integers and floats that occur. `to_pandas_dtype` would need pandas to
be installed, in Arrow 18.
"""


def from_numbers(numbers: npt.NDArray[Any]) -> pa.Array:
    """The numbers as an Arrow array without NULL, which shares their memory."""
    numbers = np.ascontiguousarray(numbers)
    type_ = pa.from_numpy_dtype(numbers.dtype)
    return pa.Array.from_buffers(type_, len(numbers), [None, pa.py_buffer(numbers)])


def from_flags(flags: npt.NDArray[np.bool_]) -> pa.Array:
    """The flags as an Arrow array of booleans without NULL."""
    bits = pa.py_buffer(np.packbits(flags, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(flags), [None, bits])


def from_bytes(value: bytes) -> pa.Array:
    """An Arrow array with this value alone, of type binary."""
    ends = pa.py_buffer(np.array([0, len(value)], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(value)])


def to_numbers(array: pa.Array) -> npt.NDArray[Any]:
    """The integers or floats of an Arrow array, which share its memory. Those of NULLs are
    undefined.
    """
    dtype = _DTYPES[array.type]
    if not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, array.offset + len(array))[array.offset :]


def to_flags(array: pa.Array) -> npt.NDArray[np.bool_]:
    """The booleans of an Arrow array. Those of NULLs are undefined."""
    if not len(array):
        return np.empty(0, np.bool_)
    bits = np.frombuffer(array.buffers()[1], np.uint8)
    end = array.offset + len(array)
    return np.unpackbits(bits, count=end, bitorder="little")[array.offset :].view(np.bool_)


def with_elements(array: pa.Array, wanted: pa.DataType, elements: pa.Array) -> pa.Array:
    """The lists of `array` with other elements. Offsets and NULLs are shared, and not copied.

    Args:
        array: the lists.
        wanted: the type of the result.
        elements: the elements of all lists, one list after the other.
    """
    return pa.Array.from_buffers(
        wanted, len(array), array.buffers()[:2], array.null_count, array.offset, [elements]
    )


def with_entries(array: pa.Array, wanted: pa.DataType, keys: pa.Array, items: pa.Array) -> pa.Array:
    """The maps of `array` with other keys and values (`items`), as type `wanted`. Offsets and NULLs
    are shared, and not copied.
    """
    entries = pa.StructArray.from_arrays(
        [keys, items], fields=[wanted.key_field, wanted.item_field]
    )
    return with_elements(array, wanted, entries)


# Spark, Arrow and Java Paimon accept other bytes as text, but readers fail on them.
_UTF8: Final = (
    r"\A(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|\xed[\x80-\x9f][\x80-\xbf]"
    r"|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}"
    r"|\xf4[\x80-\x8f][\x80-\xbf]{2})*\z"
)
"""UTF-8 (RFC 3629, chapter 4) as a regular expression over bytes."""


def _is_ascii(column: pa.Array) -> bool:
    """Whether all bytes of a column of text or bytes are below 128; False, too, for encodings in
    which values do not lie one behind the other. Bytes of NULL count.
    """
    if column.type not in (pa.string(), pa.binary()):
        return False
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return True
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    # As signed numbers, bytes from 128 on are negative.
    stored = np.frombuffer(data, np.int8)[ends[0] : ends[-1]]
    return not stored.size or bool(stored.min() >= 0)


def count_not_utf8(column: pa.Array) -> int:
    """The number of values that are not UTF-8 in a column of text or bytes. Bytes below 128 are
    UTF-8 however they are divided into values, and to look at all bytes at once costs a tenth of a
    look at each value. Else Arrow checks each value when it casts bytes to text. The values are
    counted only if that cast fails, because counting costs much more.
    """
    if _is_ascii(column):
        return 0
    raw = column.cast(pa.binary())
    try:
        raw.cast(pa.string())
    except pa.ArrowInvalid:
        return int(pc.sum(pc.invert(pc.match_substring_regex(raw, _UTF8))).as_py())
    return 0
