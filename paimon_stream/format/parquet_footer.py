"""Reads, changes and writes the footer of a Parquet file without knowing all of its fields. Arrow
writes and reads Parquet. It cannot say that twelve bytes are an INT96, nor the reverse, so this
module changes that (format.md §7.4). A footer is encoded in Thrift's compact protocol and is kept
as numbered fields.
"""

from collections.abc import Callable
from typing import Any, Final

from paimon_stream.errors import FormatError
from paimon_stream.format.raw_bytes import ByteCursor, unzigzag

TAIL: Final = 8
"""Bytes at the end of a Parquet file: the length of the footer, and the magic number."""

MOST_FOOTER: Final = 64 << 20
"""The most bytes in a footer that is changed here. Each column of each row group has some 60 bytes
in it.
"""
_DEEPEST: Final = 32
"""How deep the values of a footer may be nested. Parquet's own nest 8 deep."""

_INT96: Final = 3
_FIXED_LENGTH: Final = 7
MAGIC: Final = b"PAR1"

# Types of the Thrift compact protocol, and the numbers of the fields that matter in Parquet's
# footer.
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = (
    0,
    1,
    2,
    3,
    7,
    8,
    9,
    10,
    11,
    12,
)
_INTEGERS: Final = (4, 5, 6)
_I32: Final = 5
_SCHEMA, _ROW_GROUPS, _COLUMNS, _META_DATA, _TYPE, _TYPE_LENGTH, _STATISTICS = 2, 4, 1, 3, 1, 2, 12
_CHILDREN: Final = 5

Struct = dict[int, tuple[int, Any]]


def footer_start(size: int, tail: bytes) -> int:
    """Where the footer begins in a file of `size` bytes with `tail` as its last `TAIL` bytes.
    Raises `FormatError`.
    """
    start = size - TAIL - int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or start < 0 or size - TAIL - start > MOST_FOOTER:
        raise FormatError("it does not end like a Parquet file")
    return start


def declare_twelve_bytes(footer: bytes) -> bytes:
    """The end of a file, from its footer on, with INT96 columns declared as twelve bytes. Raises
    `FormatError`.
    """
    return _retyped(footer, lambda _, struct: struct.get(_TYPE) == (_I32, _INT96), _FIXED_LENGTH)


def declare_int96(footer: bytes, columns: frozenset[int]) -> bytes:
    """The end of a file, from its footer on, with these columns of twelve bytes declared as INT96.
    `columns` are numbers of leaves, in file order. Raises `FormatError`.
    """
    return _retyped(footer, lambda leaf, _: leaf in columns, _INT96)


def _retyped(footer: bytes, chosen: Callable[[int, Struct], bool], type_: int) -> bytes:
    """Changes the type of the schema's leaves, and of their column chunks, that are `chosen` by
    number and struct.
    """
    known = _ThriftReader(footer).struct()
    leaves = [element for element in _structs(known, _SCHEMA) if _CHILDREN not in element]
    for i, element in enumerate(leaves):
        if chosen(i, element):
            element[_TYPE] = (_I32, type_)
            element.pop(_TYPE_LENGTH, None)
            if type_ == _FIXED_LENGTH:
                element[_TYPE_LENGTH] = (_I32, 12)
    for group in _structs(known, _ROW_GROUPS):
        for i, chunk in enumerate(_structs(group, _COLUMNS)):
            kind, meta = chunk.get(_META_DATA, (_STRUCT, {}))
            if kind != _STRUCT:
                raise FormatError("its footer is damaged")
            if meta and chosen(i, meta):
                meta[_TYPE] = (_I32, type_)
                meta.pop(_STATISTICS, None)
    made = bytearray()
    _write(made, known)
    return bytes(made) + len(made).to_bytes(4, "little") + MAGIC


def _structs(struct: Struct, field: int) -> list[Struct]:
    found = struct.get(field, (_LIST, (_STRUCT, [])))[1]
    if not isinstance(found, tuple) or found[0] != _STRUCT:
        raise FormatError("its footer is damaged")
    items: list[Struct] = found[1]
    return items


class _ThriftReader(ByteCursor):
    """Reads Thrift's compact protocol without knowing what the structs mean."""

    def struct(self, depth: int = 0) -> Struct:
        made: Struct = {}
        field = 0
        while (head := self.take(1)[0]) != _STOP:
            kind = head & 15
            field = field + (head >> 4) if head >> 4 else unzigzag(self.varint())
            made[field] = (kind, None if kind in (_TRUE, _FALSE) else self._value(kind, depth))
        return made

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise FormatError(self.damaged)
        if kind in _INTEGERS:
            return unzigzag(self.varint())
        match kind:
            case 1 | 2 | 3:
                return self.take(1)
            case 7:
                return self.take(8)
            case 8:
                return self.take(self.varint())
            case 9 | 10:
                head = self.take(1)[0]
                count = self.varint() if head >> 4 == 15 else head >> 4
                return head & 15, [self._value(head & 15, depth + 1) for _ in range(count)]
            case 12:
                return self.struct(depth + 1)
        raise FormatError(self.damaged)  # Parquet's footer has no maps


def _write(out: bytearray, struct: Struct) -> None:
    last = 0
    for field in sorted(struct):
        kind, value = struct[field]
        if 0 < field - last < 16:
            out.append(field - last << 4 | kind)
        else:
            out.append(kind)
            _write_varint(out, field << 1 ^ field >> 63)
        last = field
        if kind not in (_TRUE, _FALSE):
            _write_value(out, kind, value)
    out.append(_STOP)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in _INTEGERS:
        _write_varint(out, value << 1 ^ value >> 63)
    elif kind == _STRUCT:
        _write(out, value)
    elif kind in (_LIST, _SET):
        inner, items = value
        out.append(min(len(items), 15) << 4 | inner)
        if len(items) >= 15:
            _write_varint(out, len(items))
        for item in items:
            _write_value(out, inner, item)
    else:
        if kind == _BINARY:
            _write_varint(out, len(value))
        out += value


def _write_varint(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
