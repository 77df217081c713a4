"""Reads, changes and writes the footer of a Parquet file without knowing all of its fields. Arrow
writes and reads Parquet. Arrow cannot declare columns of twelve bytes as INT96, or INT96 columns as
twelve bytes, so this module does that (format.md §7.4). A footer is encoded in Thrift's compact
protocol and is kept as numbered fields.
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

# Types of the Thrift compact protocol.
_STOP: Final = 0
_TRUE: Final = 1
_FALSE: Final = 2
_BYTE: Final = 3
_I32: Final = 5
_DOUBLE: Final = 7
_BINARY: Final = 8
_LIST: Final = 9
_SET: Final = 10
_STRUCT: Final = 12
_INTEGERS: Final = (4, _I32, 6)

# The numbers of fields in Parquet's footer.
_SCHEMA: Final = 2  # of the file: the elements of its schema
_ROW_GROUPS: Final = 4  # of the file
_TYPE: Final = 1  # of an element of the schema, and of the metadata of a column chunk
_TYPE_LENGTH: Final = 2  # of an element of the schema
_CHILDREN: Final = 5  # of an element of the schema: how many elements it has inside
_COLUMNS: Final = 1  # of a row group: its column chunks
_META_DATA: Final = 3  # of a column chunk
_STATISTICS: Final = 12  # of the metadata of a column chunk

Struct = dict[int, tuple[int, Any]]
"""The fields of a struct by their numbers: each with its type and its value."""


def footer_start(size: int, tail: bytes) -> int:
    """The position where the footer begins in a file of `size` bytes. `tail` has the last `TAIL`
    bytes of the file. Raises `FormatError`.
    """
    footer_size = int.from_bytes(tail[:4], "little")
    start = size - TAIL - footer_size
    if tail[4:] != MAGIC or start < 0 or footer_size > MOST_FOOTER:
        raise FormatError("it does not end like a Parquet file")
    return start


def declare_twelve_bytes(footer: bytes) -> bytes:
    """The end of a file, from its footer on, in which INT96 columns are declared as twelve bytes.
    Raises `FormatError`.
    """
    return _retyped(footer, lambda _, struct: struct.get(_TYPE) == (_I32, _INT96), _FIXED_LENGTH)


def declare_int96(footer: bytes, columns: frozenset[int]) -> bytes:
    """The end of a file, from its footer on, in which the columns `columns` of twelve bytes are
    declared as INT96. They are given by their numbers among the leaves of the schema, in file
    order. Raises `FormatError`.
    """
    return _retyped(footer, lambda leaf, _: leaf in columns, _INT96)


def _retyped(footer: bytes, chosen: Callable[[int, Struct], bool], type_: int) -> bytes:
    """The end of a file, from its footer on, in which some columns are declared with another type.

    Args:
        footer: the end of the file.
        chosen: says whether a column is changed. It gets the column's number among the leaves, and
            either the column's element of the schema or the metadata of one of its chunks.
        type_: the new type.
    """
    metadata = _ThriftReader(footer).struct()
    leaves = [element for element in _structs(metadata, _SCHEMA) if _CHILDREN not in element]
    for i, element in enumerate(leaves):
        if chosen(i, element):
            element[_TYPE] = (_I32, type_)
            element.pop(_TYPE_LENGTH, None)
            if type_ == _FIXED_LENGTH:
                element[_TYPE_LENGTH] = (_I32, 12)
    for group in _structs(metadata, _ROW_GROUPS):
        for i, chunk in enumerate(_structs(group, _COLUMNS)):
            kind, chunk_metadata = chunk.get(_META_DATA, (_STRUCT, {}))
            if kind != _STRUCT:
                raise FormatError("its footer is damaged")
            if chunk_metadata and chosen(i, chunk_metadata):
                chunk_metadata[_TYPE] = (_I32, type_)
                # Bounds of the old type are in another order, so they are removed.
                chunk_metadata.pop(_STATISTICS, None)
    changed = bytearray()
    _write(changed, metadata)
    return bytes(changed) + len(changed).to_bytes(4, "little") + MAGIC


def _structs(struct: Struct, field: int) -> list[Struct]:
    """The structs in a field that is a list of structs. There are none if the field is missing."""
    if field not in struct:
        return []
    _, value = struct[field]
    if not isinstance(value, tuple):
        raise FormatError("its footer is damaged")
    item_kind, items = value
    if item_kind != _STRUCT:
        raise FormatError("its footer is damaged")
    structs: list[Struct] = items
    return structs


class _ThriftReader(ByteCursor):
    """Reads Thrift's compact protocol without knowing what the structs mean."""

    def struct(self, depth: int = 0) -> Struct:
        """Reads the next struct, which is inside `depth` other structs."""
        fields: Struct = {}
        field = 0
        while (head := self.take(1)[0]) != _STOP:
            kind = head & 15
            step = head >> 4  # from the last field; 0 if the field's number follows in full
            field = field + step if step else unzigzag(self.varint())
            value = None if kind in (_TRUE, _FALSE) else self._value(kind, depth)
            fields[field] = (kind, value)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise FormatError(self.damaged)
        if kind in _INTEGERS:
            return unzigzag(self.varint())
        if kind in (_TRUE, _FALSE, _BYTE):
            return self.take(1)
        if kind == _DOUBLE:
            return self.take(8)
        if kind == _BINARY:
            return self.take(self.varint())
        if kind in (_LIST, _SET):
            head = self.take(1)[0]
            item_kind = head & 15
            # 15 means that the count follows.
            count = self.varint() if head >> 4 == 15 else head >> 4
            return item_kind, [self._value(item_kind, depth + 1) for _ in range(count)]
        if kind == _STRUCT:
            return self.struct(depth + 1)
        raise FormatError(self.damaged)  # Parquet's footer has no maps


def _write(out: bytearray, struct: Struct) -> None:
    previous = 0
    for field in sorted(struct):
        kind, value = struct[field]
        step = field - previous
        if 0 < step < 16:
            out.append((step << 4) | kind)
        else:
            out.append(kind)
            _write_varint(out, _zigzag(field))
        previous = field
        if kind not in (_TRUE, _FALSE):
            _write_value(out, kind, value)
    out.append(_STOP)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in _INTEGERS:
        _write_varint(out, _zigzag(value))
    elif kind == _STRUCT:
        _write(out, value)
    elif kind in (_LIST, _SET):
        item_kind, items = value
        out.append((min(len(items), 15) << 4) | item_kind)
        if len(items) >= 15:
            _write_varint(out, len(items))
        for item in items:
            _write_value(out, item_kind, item)
    else:
        if kind == _BINARY:
            _write_varint(out, len(value))
        out += value


def _zigzag(number: int) -> int:
    """A number of 64 bits in zig-zag form. This is the reverse of `unzigzag`."""
    return (number << 1) ^ (number >> 63)


def _write_varint(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    out.append(number)
