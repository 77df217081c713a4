"""BinaryRow, the row format of partitions, keys, statistics, bucket hashes and commit messages
(format.md §5).

Values have one *internal* form for each type: BOOLEAN bool; integers int; FLOAT and DOUBLE float;
DECIMAL `decimal.Decimal`; CHAR and VARCHAR str; BINARY and VARBINARY bytes; DATE int days since
1970-01-01; TIME int milliseconds of the day; both TIMESTAMPs int nanoseconds since 1970-01-01T00:00
(an unbounded Python int); ARRAY list; MAP and MULTISET list of pairs; ROW tuple; NULL None.
`encode_columns` encodes whole columns to the same bytes.
"""

import struct
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any, Final

from paimon_stream.errors import FormatError, InvalidData
from paimon_stream.format.binary_columns import (
    COMPACT_DECIMAL,
    COMPACT_TIMESTAMP,
    INLINE,
    header_size,
    is_reserved,
)
from paimon_stream.format.types import DataType, TypeRoot

_NANOS_PER_MILLI: Final = 1_000_000
_MARK: Final = 0x80
_DECIMAL_BYTES: Final = 16
_EXACT: Final = Context(prec=100)

_FORMS: Final = {
    TypeRoot.BOOLEAN: "?",
    TypeRoot.TINYINT: "b",
    TypeRoot.SMALLINT: "h",
    TypeRoot.INT: "i",
    TypeRoot.DATE: "i",
    TypeRoot.TIME: "i",
    TypeRoot.BIGINT: "q",
    TypeRoot.FLOAT: "f",
    TypeRoot.DOUBLE: "d",
}
FIXED: Final = {root: struct.Struct(f"<{form}") for root, form in _FORMS.items()}
_SLOT: Final = struct.Struct("<ii")
_LONG: Final = struct.Struct("<q")
_INT: Final = struct.Struct("<i")
_ARITY: Final = struct.Struct(">i")
_NAN: Final = float("nan")
_SHOWN: Final = 64
"""How many bytes of a partition a message shows."""


def encode_row(types: Sequence[DataType], values: Sequence[Any], kind: int = 0) -> bytes:
    """The bytes of a row (format.md §5.1, §5.2).

    Args:
        types: the types of the columns.
        values: the values of the columns.
        kind: 0 for +I, 1 for -U, 2 for +U, 3 for -D.

    Raises:
        InvalidData: a type cannot hold its value.
    """
    if len(types) != len(values):
        raise InvalidData(f"A row of {len(types)} columns got {len(values)} values.")
    first_slot = header_size(len(types))
    row = bytearray(first_slot + 8 * len(types))
    row[0] = kind
    for i, (type_, value) in enumerate(zip(types, values, strict=True)):
        slot = first_slot + 8 * i
        if value is None:
            # The null bits follow the 8 bits of the row kind in the row's header.
            row[(i + 8) >> 3] |= 1 << ((i + 8) & 7)
            if is_reserved(type_):
                size = _DECIMAL_BYTES if type_.root is TypeRoot.DECIMAL else 8
                _SLOT.pack_into(row, slot, 0, len(row))
                row.extend(bytes(size))
        else:
            _put(row, slot, type_, value)
    return bytes(row)


def serialize(types: Sequence[DataType], values: Sequence[Any]) -> bytes:
    """The bytes of a row after its arity, as manifests have them (format.md §5.6). Raises
    `InvalidData`.
    """
    return _ARITY.pack(len(types)) + encode_row(types, values)


def decode_row(types: Sequence[DataType], data: bytes) -> tuple[Any, ...]:
    """The values of a row without arity. Raises `FormatError` if the bytes are not a row of these
    types.
    """
    try:
        return _row(types, memoryview(data))
    except UnicodeDecodeError:
        raise FormatError(
            f"A row of {len(data)} bytes holds text that is not UTF-8.", size=len(data)
        ) from None
    except (struct.error, IndexError, OverflowError) as error:
        raise FormatError(
            f"{len(data)} bytes are not a row of {len(types)} columns: {error}.", size=len(data)
        ) from None


def deserialize(types: Sequence[DataType], data: bytes) -> tuple[Any, ...]:
    """The values of a row preceded by its arity. Raises `FormatError` if the arity is not that of
    `types`, or if the bytes are not a row of these types.
    """
    if len(data) < _ARITY.size:
        raise FormatError(
            f"{len(data)} bytes are too short for a row with its arity.", size=len(data)
        )
    (arity,) = _ARITY.unpack_from(data)
    if arity != len(types):
        raise FormatError(
            f"The row has {arity} columns, expected are {len(types)}.", size=len(data)
        )
    return decode_row(types, data[_ARITY.size :])


def deserialize_partition(types: Sequence[DataType], partition: bytes) -> tuple[Any, ...]:
    """The values of the partition of a manifest entry or commit message. Raises `FormatError`,
    whose message says what to do.
    """
    try:
        return deserialize(types, partition)
    except FormatError as error:
        raise FormatError(
            f"The partition {partition[:_SHOWN].hex()} of an entry "
            f"is not one of the table: {error} Its writer was wrong. "
            "Run verify, which names such entries, and roll the table back to before them.",
            partition=partition.hex(),
        ) from None


def _put(out: bytearray, slot: int, type_: DataType, value: Any) -> None:
    """Puts a value other than None into its slot of 8 bytes. A value that does not fit into the
    slot goes to the end of the row.
    """
    try:
        _PUT[type_.root](out, slot, type_, value)
    except (
        struct.error,
        UnicodeEncodeError,
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
    ) as error:
        raise InvalidData(
            f"{value!r:.80} is not a value of {type_}: {error}.", type=str(type_)
        ) from None


def _put_fixed(out: bytearray, slot: int, type_: DataType, value: Any) -> None:
    if value != value:
        value = _NAN  # Java has a single NaN, whatever the bits were
    FIXED[type_.root].pack_into(out, slot, value)


def _put_decimal(out: bytearray, slot: int, type_: DataType, value: Any) -> None:
    scaled = value.scaleb(type_.scale, _EXACT)
    unscaled = int(scaled)
    if unscaled != scaled or abs(unscaled) >= 10**type_.precision:
        raise ValueError("too many digits")
    if type_.precision <= COMPACT_DECIMAL:
        _LONG.pack_into(out, slot, unscaled)
        return
    # In two's complement, a negative number needs as many bytes as its bitwise inverse.
    magnitude = ~unscaled if unscaled < 0 else unscaled
    digits = unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)
    _SLOT.pack_into(out, slot, len(digits), len(out))
    out.extend(digits.ljust(_DECIMAL_BYTES, b"\0"))


def _put_timestamp(out: bytearray, slot: int, type_: DataType, value: Any) -> None:
    millis, nanos = divmod(value, _NANOS_PER_MILLI)
    if type_.precision <= COMPACT_TIMESTAMP:
        _LONG.pack_into(out, slot, millis)
    else:
        _SLOT.pack_into(out, slot, nanos, len(out))
        out.extend(_LONG.pack(millis))


def _put_bytes(out: bytearray, slot: int, type_: DataType, value: Any) -> None:
    if len(value) <= INLINE:
        out[slot : slot + len(value)] = value
        out[slot + 7] = _MARK | len(value)
    else:
        _append(out, slot, bytes(value))


def _put_map(out: bytearray, slot: int, type_: DataType, value: Any) -> None:
    key_type, value_type = type_.entry
    key_array = _array_bytes(key_type, [key for key, _ in value])
    value_array = _array_bytes(value_type, [item for _, item in value])
    size_of_keys = _INT.pack(len(key_array))
    _append(out, slot, size_of_keys + key_array + value_array)


def _append(out: bytearray, slot: int, piece: bytes) -> None:
    """Puts a piece at the end of the row, filled up to a multiple of 8 bytes, and its size and
    offset into the slot.
    """
    _SLOT.pack_into(out, slot, len(piece), len(out))
    out.extend(piece)
    out.extend(bytes(-len(piece) % 8))


def _array_bytes(element: DataType, values: Sequence[Any]) -> bytes:
    """The bytes of a BinaryArray (format.md §5.4). Unlike a row, an array reserves no space for
    NULL.
    """
    head, width = _array_form(element, len(values))
    size = head + width * len(values)
    out = bytearray(size + -size % 8)
    _INT.pack_into(out, 0, len(values))
    for i, value in enumerate(values):
        if value is None:
            out[4 + (i >> 3)] |= 1 << (i & 7)
        else:
            _put(out, head + width * i, element, value)
    return bytes(out)


def _array_form(element: DataType, count: int) -> tuple[int, int]:
    """Where the elements of an array begin, and the size of an element, both in bytes. The elements
    follow the count in 4 bytes, and the null bits in words of 4 bytes.
    """
    width = FIXED[element.root].size if element.root in FIXED else 8
    head = 4 + (count + 31) // 32 * 4
    return head, width


def _row(types: Sequence[DataType], data: memoryview) -> tuple[Any, ...]:
    first_slot = header_size(len(types))
    if len(data) < first_slot + 8 * len(types):
        raise FormatError(f"A row of {len(types)} columns is cut off after {len(data)} bytes.")
    values: list[Any] = []
    for i, type_ in enumerate(types):
        if (data[(i + 8) >> 3] >> ((i + 8) & 7)) & 1:
            values.append(None)
        else:
            values.append(_GET[type_.root](data, first_slot + 8 * i, type_))
    return tuple(values)


def _get_decimal(data: memoryview, slot: int, type_: DataType) -> Decimal:
    if type_.precision <= COMPACT_DECIMAL:
        unscaled = _LONG.unpack_from(data, slot)[0]
    else:
        digits = _piece(data, slot)
        if not 0 < len(digits) <= _DECIMAL_BYTES:
            raise FormatError(f"A {type_} has {len(digits)} bytes.")
        unscaled = int.from_bytes(digits, "big", signed=True)
    if abs(unscaled) >= 10**type_.precision:
        raise FormatError(f"A {type_} has the digits {unscaled}.")
    return Decimal(unscaled).scaleb(-type_.scale, _EXACT)


def _get_timestamp(data: memoryview, slot: int, type_: DataType) -> int:
    if type_.precision <= COMPACT_TIMESTAMP:
        return int(_LONG.unpack_from(data, slot)[0]) * _NANOS_PER_MILLI
    nanos, offset = _SLOT.unpack_from(data, slot)
    if not 0 <= nanos < _NANOS_PER_MILLI or offset < 0:
        raise FormatError(f"A {type_} has {nanos} nanoseconds at offset {offset}.")
    millis: int = _LONG.unpack_from(data, offset)[0]
    return millis * _NANOS_PER_MILLI + int(nanos)


def _get_map(data: memoryview, slot: int, type_: DataType) -> list[tuple[Any, Any]]:
    key_type, value_type = type_.entry
    piece = _piece(data, slot)
    (size_of_keys,) = _INT.unpack_from(piece)
    if not 0 <= size_of_keys <= len(piece) - 4:
        raise FormatError(f"The keys of a map have {size_of_keys} of {len(piece)} bytes.")
    keys = _array(key_type, piece[4 : 4 + size_of_keys])
    values = _array(value_type, piece[4 + size_of_keys :])
    if len(keys) != len(values):
        raise FormatError(f"A map has {len(keys)} keys and {len(values)} values.")
    return list(zip(keys, values, strict=True))


def _inline_or_piece(data: memoryview, slot: int) -> memoryview:
    """The bytes of a value that is in its slot if it is short, and at the end of the row
    otherwise.
    """
    mark = data[slot + 7]
    if not mark & _MARK:
        return _piece(data, slot)
    length = mark & ~_MARK
    if length > INLINE:
        raise FormatError(f"A value of {length} bytes claims to be inside a slot of 8 bytes.")
    return data[slot : slot + length]


def _piece(data: memoryview, slot: int) -> memoryview:
    """The bytes of a value whose slot has its size and offset."""
    length, offset = _SLOT.unpack_from(data, slot)
    if length < 0 or offset < 0 or offset + length > len(data):
        raise FormatError(
            f"{length} bytes at offset {offset} are outside a row of {len(data)} bytes."
        )
    return data[offset : offset + length]


def _array(element: DataType, data: memoryview) -> list[Any]:
    (count,) = _INT.unpack_from(data)
    head, width = _array_form(element, count)
    if count < 0 or head + width * count > len(data):
        raise FormatError(f"An array of {count} elements is cut off after {len(data)} bytes.")
    if element.is_nested or element.is_string or element.is_binary:
        # Without this check, overlapping pieces would let a few bytes claim any amount of memory.
        pieces = _SLOT.iter_unpack(data[head : head + width * count])
        if sum(max(size, 0) for size, offset in pieces if offset >= 0) > len(data):
            raise FormatError(
                f"An array of {count} elements holds more than its {len(data)} bytes."
            )
    get = _GET[element.root]
    return [
        None if (data[4 + (i >> 3)] >> (i & 7)) & 1 else get(data, head + width * i, element)
        for i in range(count)
    ]


_Put = Callable[[bytearray, int, DataType, Any], None]
_Get = Callable[[memoryview, int, DataType], Any]
_CODECS: Final[tuple[tuple[tuple[TypeRoot, ...], _Put, _Get], ...]] = (
    (
        tuple(FIXED),
        _put_fixed,
        lambda data, slot, type_: FIXED[type_.root].unpack_from(data, slot)[0],
    ),
    ((TypeRoot.DECIMAL,), _put_decimal, _get_decimal),
    (
        (TypeRoot.CHAR, TypeRoot.VARCHAR),
        lambda out, slot, type_, value: _put_bytes(out, slot, type_, value.encode()),
        lambda data, slot, _: str(_inline_or_piece(data, slot), "utf-8"),
    ),
    (
        (TypeRoot.BINARY, TypeRoot.VARBINARY),
        _put_bytes,
        lambda data, slot, _: bytes(_inline_or_piece(data, slot)),
    ),
    ((TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ), _put_timestamp, _get_timestamp),
    (
        (TypeRoot.ARRAY,),
        lambda out, slot, type_, value: _append(out, slot, _array_bytes(type_.items, value)),
        lambda data, slot, type_: _array(type_.items, _piece(data, slot)),
    ),
    ((TypeRoot.MAP, TypeRoot.MULTISET), _put_map, _get_map),
    (
        (TypeRoot.ROW,),
        lambda out, slot, type_, value: _append(
            out, slot, encode_row([member.type for member in type_.fields], value)
        ),
        lambda data, slot, type_: _row(
            [member.type for member in type_.fields], _piece(data, slot)
        ),
    ),
)
"""How the values of types are put into their slots, and got from there."""
_PUT: Final = {root: put for roots, put, _ in _CODECS for root in roots}
_GET: Final = {root: get for roots, _, get in _CODECS for root in roots}
