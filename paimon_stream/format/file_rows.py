"""Encodes data files and index files as BinaryRows, the form that they have in commit messages
(format.md §4.4, §8.2). A commit carries thousands of data files, so one call of `struct` encodes or
decodes all slots of a row. The bytes are the same as those of the general `format/binary_row.py`.
Index files are few, so they are encoded by that general module.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

from paimon_stream.errors import FormatError, InvalidData
from paimon_stream.format import entries
from paimon_stream.format.avro_unknown import LONGS, field_of_longs, longs_of
from paimon_stream.format.binary_row import decode_row, encode_row
from paimon_stream.format.types import parse_type
from paimon_stream.format.unknown_fields import names_of

_FIELDS: Final = 20
_SLOTS: Final = struct.Struct(f"<{1 + _FIELDS}q")
_WITH_SEQUENCES: Final = 13
"""The first version in which a data file has one more field, `_WRITE_COLS_SEQUENCES`. This release
does not know what it says, and carries it as an unknown field of the manifest entry.
"""
_SEQUENCES: Final = ("_FILE", "_WRITE_COLS_SEQUENCES")
"""The path of that field in a manifest entry."""
_MORE_SLOTS: Final = struct.Struct(f"<{2 + _FIELDS}q")
_NO_SEQUENCES: Final = 1 << 8 + _FIELDS
"""The null bit of that field."""
_STATS_SLOTS: Final = struct.Struct("<4q")
_COUNT: Final = struct.Struct("<i")
_NEVER_NULL: Final = sum(1 << (8 + field) for field in range(12))
"""The null bits of the fields that are NOT NULL."""

_INLINE: Final = 7
_MARK_SHIFT: Final = 56
_LOW_WORD: Final = 0xFFFFFFFF


class _Row:
    """A row that is being built.

    Attributes:
        slots: the slots, as numbers of 64 bits.
        bits: the null bits, with the row kind in the lowest byte.
        pieces: the variable part, in field order.
        end: the position where the variable part ends, in bytes.
    """

    __slots__ = ("bits", "end", "pieces", "slots")

    def __init__(self, fields: int) -> None:
        self.slots: list[int] = []
        self.bits = 0
        self.pieces: list[bytes] = []
        self.end = 8 + 8 * fields

    def data(self, value: bytes) -> None:
        """Adds bytes to the row. They are stored in the slot itself if they fit."""
        if len(value) > _INLINE:
            self.piece(value)
        else:
            marked = int.from_bytes(value, "little") | (0x80 | len(value)) << _MARK_SHIFT
            self.slots.append(marked - (1 << 64))

    def piece(self, value: bytes) -> None:
        """Adds a value that is always stored in the variable part."""
        size = len(value)
        padding = -size & 7
        self.slots.append(self.end << 32 | size)
        self.pieces.append(value)
        if padding:
            self.pieces.append(bytes(padding))
        self.end += size + padding

    def done(self, slots: struct.Struct) -> bytes:
        """The bytes of the finished row. `slots` is the format of its null bits and slots."""
        return slots.pack(self.bits, *self.slots) + b"".join(self.pieces)


def encode_data_file(file: entries.DataFileMeta, version: int = 11) -> bytes:
    """The row that describes a data file in a message of the given version. Raises `InvalidData` if
    a number is too large for its column, or if the message has no room for an unknown field.
    """
    sequences = _sequences_of(file, version)
    has_sequences = version >= _WITH_SEQUENCES
    row = _Row(_FIELDS + has_sequences)
    try:
        for value, (_, null_bit, write, _) in zip(_VALUES(file), _COLUMNS, strict=True):
            if value is None:
                row.bits |= null_bit
                row.slots.append(0)
            else:
                write(row, value)
        if not has_sequences:
            return row.done(_SLOTS)
        if sequences is None:
            row.bits |= _NO_SEQUENCES
            row.slots.append(0)
        else:
            row.piece(_array_of_longs(sequences))
        return row.done(_MORE_SLOTS)
    except (struct.error, UnicodeEncodeError, OverflowError) as error:
        raise InvalidData(
            f"Data file {file.file_name!r} does not fit into a commit message: {error}."
        ) from None


def _sequences_of(file: entries.DataFileMeta, version: int) -> tuple[int, ...] | None:
    """The `_WRITE_COLS_SEQUENCES` of a data file; None if the file has none. Raises `InvalidData`
    if a message of this version has no room for an unknown field.
    """
    if not file.unknown:
        return None
    first, *others = file.unknown
    is_sequences = not others and (first.path, first.type) == (_SEQUENCES, LONGS)
    if is_sequences and version >= _WITH_SEQUENCES:
        return longs_of(first)
    raise InvalidData(
        f"Data file {file.file_name!r} has {names_of(file.unknown)}, which this release does not know "
        f"and a commit message of version {version} cannot hold."
    )


def _put_names(row: _Row, names: tuple[str, ...]) -> None:
    """Adds an array of texts to the row. Its bytes are the variable part of a row with one such
    column, whose header and slot take 16 bytes.
    """
    if names:
        row.piece(encode_row((_ARRAY_OF_NAMES,), (names,))[16:])
    else:
        row.piece(bytes(8))


def _narrow(value: int, bits: int) -> int:
    """A number without sign extension, for a slot. Raises `OverflowError` if the number needs more
    than `bits` bits.
    """
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise OverflowError(f"{value} does not fit into {bits} bits")
    return value & (1 << bits) - 1


def _stats_row(stats: entries.SimpleStats) -> bytes:
    return _NO_STATS if stats == entries.EMPTY_STATS else _built_stats_row(stats)


def _built_stats_row(stats: entries.SimpleStats) -> bytes:
    row = _Row(3)
    row.data(stats.min_values)
    row.data(stats.max_values)
    row.piece(_array_of_longs(stats.null_counts))
    return row.done(_STATS_SLOTS)


def _array_of_longs(values: Sequence[int | None]) -> bytes:
    """The bytes of an array of numbers. None stands for NULL."""
    numbers = [0 if value is None else value for value in values]
    null_bits = sum(1 << i for i, value in enumerate(values) if value is None)
    head = _COUNT.pack(len(values)) + null_bits.to_bytes((len(values) + 31) // 32 * 4, "little")
    # The numbers may begin at any multiple of 4 bytes. The array is padded at the end, and its size
    # includes the padding.
    return head + struct.pack(f"<{len(values)}q", *numbers) + bytes(-len(head) & 7)


_NO_STATS: Final = _built_stats_row(entries.EMPTY_STATS)


def decode_data_file(data: bytes, version: int = 11) -> entries.DataFileMeta:
    """The data file that a row in a message of the given version describes. Raises `FormatError` if
    the bytes are not such a row.
    """
    sequences_slot = 0
    try:
        if version >= _WITH_SEQUENCES:
            header, *slots, sequences_slot = _MORE_SLOTS.unpack_from(data)
        else:
            header, *slots = _SLOTS.unpack_from(data)
            header |= _NO_SEQUENCES
        if header & _NEVER_NULL:
            raise FormatError(
                f"The row of a data file has NULL in a NOT NULL field (bits {header:#x})."
            )
        values: dict[str, Any] = {
            name: None if header & null_bit else read(data, slot)
            for slot, (name, null_bit, _, read) in zip(slots, _COLUMNS, strict=True)
        }
        if not header & _NO_SEQUENCES:
            sequences = _sequence_numbers(data, sequences_slot)
            values["unknown"] = (field_of_longs(_SEQUENCES, sequences),)
        return entries.DataFileMeta(**values)
    except (struct.error, UnicodeDecodeError) as error:
        raise FormatError(f"{len(data)} bytes are not the row of a data file: {error}.") from None


def _signed(slot: int, bits: int) -> int:
    value = slot & (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def _piece(data: bytes, slot: int) -> bytes:
    """The bytes of a value whose slot has its size and offset."""
    length = slot & _LOW_WORD
    offset = slot >> 32
    if offset < 0 or offset + length > len(data):
        raise FormatError(
            f"{length} bytes at offset {offset} are outside a row of {len(data)} bytes."
        )
    return data[offset : offset + length]


def _bytes(data: bytes, slot: int) -> bytes:
    """The bytes of a value that is in its slot if it is short, and at the end of the row
    otherwise.
    """
    if slot >= 0:
        return _piece(data, slot)
    length = slot >> _MARK_SHIFT & 0x7F
    if length > _INLINE:
        raise FormatError(f"A value of {length} bytes claims to be inside a slot of 8 bytes.")
    return (slot & (1 << 8 * length) - 1).to_bytes(length, "little")


def _text(data: bytes, slot: int) -> str:
    return _bytes(data, slot).decode()


def _stats(data: bytes, slot: int) -> entries.SimpleStats:
    row = _piece(data, slot)
    if row == _NO_STATS:
        return entries.EMPTY_STATS
    header, low, high, counts = _STATS_SLOTS.unpack_from(row)
    if header & 0x700:  # the null bits of the three fields
        raise FormatError("The statistics of a data file have NULL in a NOT NULL field.")
    null_counts = _optional_longs(_piece(row, counts), "null counts")
    return entries.SimpleStats(_bytes(row, low), _bytes(row, high), null_counts)


def _array_head(array: bytes, what: str) -> tuple[int, int]:
    """The number of elements of an array, and the position where they begin. `what` names the
    elements in messages.
    """
    (count,) = _COUNT.unpack_from(array)
    head = 4 + (count + 31) // 32 * 4
    if count < 0 or head + 8 * count > len(array):
        raise FormatError(f"An array of {count} {what} is cut off after {len(array)} bytes.")
    return count, head


def _sequence_numbers(data: bytes, slot: int) -> list[int]:
    """The sequence numbers in an array, whose elements are NOT NULL."""
    values = _optional_longs(_piece(data, slot), "sequence numbers")
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        raise FormatError("An array of sequence numbers has NULL elements.")
    return numbers


def _optional_longs(array: bytes, what: str) -> tuple[int | None, ...]:
    """The numbers in an array. None stands for NULL."""
    count, head = _array_head(array, what)
    values: tuple[int, ...] = struct.unpack_from(f"<{count}q", array, head)
    nulls = int.from_bytes(array[4:head], "little")
    if not nulls:
        return values
    return tuple(None if nulls >> i & 1 else value for i, value in enumerate(values))


def _names(data: bytes, slot: int) -> tuple[str, ...]:
    array = _piece(data, slot)
    count, head = _array_head(array, "names")
    if any(array[4:head]):
        raise FormatError("An array of names has NULL elements.")
    slots = struct.unpack_from(f"<{count}q", array, head)
    # Without this check, overlapping names would let a small message claim any amount of memory.
    if sum(slot & _LOW_WORD for slot in slots if slot >= 0) > len(array):
        raise FormatError(f"An array of {count} names holds more than its {len(array)} bytes.")
    return tuple(_text(array, slot) for slot in slots)


_Form = tuple[Callable[[_Row, Any], None], Callable[[bytes, int], Any]]
_LONG: Final[_Form] = (lambda row, value: row.slots.append(value), lambda _, slot: slot)
_INT: Final[_Form] = (
    lambda row, value: row.slots.append(_narrow(value, 32)),
    lambda _, slot: _signed(slot, 32),
)
_BYTE: Final[_Form] = (
    lambda row, value: row.slots.append(_narrow(value, 8)),
    lambda _, slot: _signed(slot, 8),
)
_DATA: Final[_Form] = _Row.data, _bytes
_TEXT: Final[_Form] = (lambda row, value: row.data(value.encode()), _text)
_STATS: Final[_Form] = (lambda row, value: row.piece(_stats_row(value)), _stats)
_TEXTS: Final[_Form] = _put_names, _names
_FORMS: Final[dict[str, _Form]] = {
    "file_name": _TEXT,
    "file_size": _LONG,
    "row_count": _LONG,
    "min_key": _DATA,
    "max_key": _DATA,
    "key_stats": _STATS,
    "value_stats": _STATS,
    "min_sequence_number": _LONG,
    "max_sequence_number": _LONG,
    "schema_id": _LONG,
    "level": _INT,
    "extra_files": _TEXTS,
    "creation_time": _LONG,
    "delete_row_count": _LONG,
    "embedded_file_index": _DATA,
    "file_source": _BYTE,
    "value_stats_cols": _TEXTS,
    "external_path": _TEXT,
    "first_row_id": _LONG,
    "write_cols": _TEXTS,
}
"""How each attribute of a `DataFileMeta` is written and read."""

_COLUMNS: Final = [
    (attribute.name, 1 << 8 + i, *_FORMS[attribute.name])
    for i, attribute in enumerate(fields(entries.DataFileMeta)[:_FIELDS])
]
"""The name of each attribute, its null bit, and how it is written and read."""

_VALUES: Final = attrgetter(*(name for name, *_ in _COLUMNS))


_ARRAY_OF_NAMES: Final = parse_type("ARRAY<STRING NOT NULL>")
_DELETIONS: Final = "ARRAY<ROW<f0 STRING, f1 INT, f2 INT, f3 BIGINT>>"
_BEFORE_GLOBAL_INDEX: Final = ("STRING", "STRING", "BIGINT", "BIGINT", _DELETIONS, "STRING")
_GLOBAL_INDEX: Final = "f0 BIGINT, f1 BIGINT, f2 INT, f3 ARRAY<INT>, f4 BYTES"
_SOURCE_META_VERSION: Final = 12
"""From this version on, the index files of a message have the source metadata of a global index."""

_INDEX_TYPES: Final = {
    11: tuple(map(parse_type, (*_BEFORE_GLOBAL_INDEX, f"ROW<{_GLOBAL_INDEX}>"))),
    _SOURCE_META_VERSION: tuple(
        map(parse_type, (*_BEFORE_GLOBAL_INDEX, f"ROW<{_GLOBAL_INDEX}, f5 BYTES>"))
    ),
}
"""The types of an index file's values, by the first version of messages that has these types."""


def encode_index_file(file: entries.IndexFileMeta, version: int = 11) -> bytes:
    """The row that describes an index file in a message of the given version. Raises `InvalidData`
    if that version has no room for a value.
    """
    if version >= _SOURCE_META_VERSION:
        *values, _ = index_values(file)
        return encode_row(_INDEX_TYPES[_SOURCE_META_VERSION], (*values, file.global_index))
    if file.global_index is not None and file.global_index.source_meta is not None:
        raise InvalidData(
            f"Index file {file.file_name!r} has source metadata, which messages of version 11 lack. "
            "Write version 12 or later."
        )
    return encode_row(_INDEX_TYPES[11], index_values(file))


def index_values(file: entries.IndexFileMeta) -> tuple[Any, ...]:
    """The values of an index file, as arguments of `index_file_of`. The source metadata of a global
    index is left out.
    """
    global_index = None if file.global_index is None else file.global_index[:-1]
    return (
        file.index_type,
        file.file_name,
        file.file_size,
        file.row_count,
        file.deletions,
        file.external_path,
        global_index,
    )


def decode_index_file(data: bytes, version: int) -> entries.IndexFileMeta:
    """The index file that a row in a message of the given version describes. Raises
    `FormatError`.
    """
    values = decode_row(_INDEX_TYPES[min(version, _SOURCE_META_VERSION)], data)
    try:
        return index_file_of(*values)
    except ValueError as error:
        raise FormatError(str(error)) from None


def index_file_of(
    index_type: Any,
    name: Any,
    size: Any,
    rows: Any,
    deletions: Sequence[Sequence[Any] | None] | None,
    path: str | None,
    global_index: Sequence[Any] | None,
) -> entries.IndexFileMeta:
    """Makes an index file from values that were not checked yet.

    Args:
        index_type: the type of the index, text.
        name: the name of the file, text.
        size: the size of the file in bytes.
        rows: the row count of the file (format.md §4.6).
        deletions: the values of each deletion range; None if the file has no such ranges.
        path: the path of a file outside of the table.
        global_index: the values of a global index, in message version 12 with the source metadata.

    Raises:
        ValueError: a value that must not be NULL is None.
    """
    _require("index file", index_type, name, size, rows)
    ranges = None if deletions is None else tuple(map(_deletion_range, deletions))
    index = None if global_index is None else _global_index(global_index)
    return entries.IndexFileMeta(
        index_type=index_type,
        file_name=name,
        file_size=size,
        row_count=rows,
        deletions=ranges,
        external_path=path,
        global_index=index,
    )


def _deletion_range(values: Sequence[Any] | None) -> entries.DeletionRange:
    if not values:
        raise _null_in("deletion vector")
    data_file, offset, length, cardinality = values
    _require("deletion vector", data_file, offset, length)
    return entries.DeletionRange(data_file, offset, length, cardinality)


def _global_index(values: Sequence[Any]) -> entries.GlobalIndexMeta:
    start, end, field_id, extra_field_ids, *metas = values
    _require("global index", start, end, field_id, *(extra_field_ids or ()))
    extra = None if extra_field_ids is None else tuple(extra_field_ids)
    return entries.GlobalIndexMeta(start, end, field_id, extra, *metas)


def _require(what: str, *values: Any) -> None:
    """Raises `ValueError` if one of the values is None. `what` says to what the values belong, for
    the message.
    """
    if None in values:
        raise _null_in(what)


def _null_in(what: str) -> ValueError:
    return ValueError(f"The row of a {what} has NULL in a NOT NULL field.")
