"""Encodes whole Arrow columns as BinaryRows: many rows at once with numpy, without Python code per
row. The bytes are the same as those of `binary_row.encode_row`. A row is treated as 64-bit
little-endian words: header, one slot per column, then the variable part. Only columns of text and
bytes give rows different sizes. Layout and rules: format.md §5.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_stream.errors import InvalidData, UnsupportedFeature
from paimon_stream.format.types import DataType, TypeRoot, arrow_type

Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_WordColumn = int | Words
"""One word of every row: a single number if it is the same in all rows, else one number per row."""

FEW_ROWS: Final = 16
"""With fewer rows than this, a numpy call for each word does not pay. When only so few rows are
left, which are the longest, they are finished one by one.
"""

_NANOS_PER: Final = {"ms": 1_000_000, "us": 1_000, "ns": 1}
COMPACT_DECIMAL: Final = 18
"""The highest precision of a DECIMAL that a slot holds."""
COMPACT_TIMESTAMP: Final = 3
"""The highest precision of a timestamp that a slot holds."""
INLINE: Final = 7
"""The most bytes of a text that a slot holds."""
_LARGE: Final = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
_LOW_BYTES: Final = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)
"""For each n, a mask of the lowest n bytes of a word."""
_SHORT_TEXT: Final = np.array([0x80 | n for n in range(8)], np.uint64) << np.uint64(56)
"""For each n, the mark of a text of n bytes in a slot: its highest byte."""
_NAN: Final = {TypeRoot.FLOAT: 0x7FC00000, TypeRoot.DOUBLE: 0x7FF8000000000000}
"""The bits of Java's only NaN."""
_VIEWED: Final = {
    TypeRoot.TINYINT: np.uint8,
    TypeRoot.SMALLINT: np.uint16,
    TypeRoot.INT: np.uint32,
    TypeRoot.DATE: np.uint32,
    TypeRoot.TIME: np.uint32,
    TypeRoot.BIGINT: np.uint64,
    TypeRoot.FLOAT: np.float32,
    TypeRoot.DOUBLE: np.float64,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRows:
    """Encoded rows, one directly after the other, without arity. Row i is
    `data[offsets[i]:offsets[i + 1]]`, a multiple of 8 bytes.
    """

    data: npt.NDArray[np.uint8]
    offsets: Ints

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, i: int) -> bytes:
        """The bytes of row i."""
        return self.data[self.offsets[i] : self.offsets[i + 1]].tobytes()


def header_size(columns: int) -> int:
    """The number of bytes for the row kind and the null bits, a multiple of 8 (format.md §5.1). The
    row kind has 8 bits, and each column has one bit.
    """
    return (columns + 71) // 64 * 8


def is_reserved(type_: DataType) -> bool:
    """Whether a row reserves space in its variable part even for a NULL of this type (format.md
    §5.2).
    """
    if type_.root is TypeRoot.DECIMAL:
        return type_.precision > COMPACT_DECIMAL
    return type_.is_timestamp and type_.precision > COMPACT_TIMESTAMP


class _Texts(NamedTuple):
    """The texts of a column.

    Attributes:
        raw: the bytes of all texts, followed by 8 zeros.
        near: for each position in `raw`, the 8 bytes that begin there, as one word.
        starts: where the text of each row begins in `raw`.
        lengths: the number of bytes of each row's text; 0 for NULL.
    """

    raw: npt.NDArray[np.uint8]
    near: Words
    starts: Ints
    lengths: Ints


class _Part(NamedTuple):
    """One column, encoded as words of 64 bits.

    Attributes:
        slot: the slot of each row. Offsets into the variable part are still missing.
        null: which rows are NULL; None if no row is.
        tail: the words that every row has in the variable part.
        texts: what rows have in the variable part if the column is text or bytes.
    """

    slot: Words
    null: Flags | None
    tail: tuple[Words, ...] = ()
    texts: _Texts | None = None


def encode_columns(columns: Sequence[pa.Array], types: Sequence[DataType]) -> EncodedRows:
    """Encodes columns as rows. If necessary, a column is cast to the Arrow type that its Paimon
    type has in memory.

    Args:
        columns: the columns, of equal lengths.
        types: the types of the columns, which are atomic.

    Raises:
        InvalidData: a cast would change a value.
        UnsupportedFeature: a type is nested.
    """
    parts = [_part(column, type_) for column, type_ in zip(columns, types, strict=True)]
    header = _header(parts)
    offsets_in_row, size = _offsets_in_row(parts, 8 * (len(header) + len(parts)))
    rows = _RowWords(len(columns[0]) if columns else 0, size)
    for i, word in enumerate(header):
        rows.put(i, word)
    for i, (part, offset) in enumerate(zip(parts, offsets_in_row, strict=True), start=len(header)):
        # The upper half of a slot that points into the variable part has the offset in that part.
        pointer = np.asarray(offset, np.uint64) << np.uint64(32)
        if part.texts is not None:
            rows.put(i, np.where(part.texts.lengths > INLINE, part.slot | pointer, part.slot))
            rows.put_texts(offset // 8, part.texts)
        elif part.tail:
            rows.put(i, part.slot | pointer)
            for k, tail in enumerate(part.tail):
                rows.put(offset // 8 + k, tail)
        else:
            rows.put(i, part.slot)
    return EncodedRows(data=rows.words.view(np.uint8), offsets=rows.offsets)


def _offsets_in_row(parts: Sequence[_Part], start: int) -> tuple[list[int | Ints], int | Ints]:
    """The position in a row where the variable part of each column begins, and the size of a row,
    in bytes. Each result is one number if all rows have the same; otherwise it is an array with one
    number per row. The first variable part begins at `start`.
    """
    offsets: list[int | Ints] = []
    end: int | Ints = start
    for part in parts:
        offsets.append(end)
        if part.texts is None:
            end = end + 8 * len(part.tail)
        else:
            # A text that does not fit into its slot takes whole words.
            end = end + np.where(part.texts.lengths > INLINE, part.texts.lengths + 7 & -8, 0)
    return offsets, end


class _RowWords:
    """Rows that lie one directly after the other. They are filled word by word, for all rows at
    once.

    Attributes:
        words: the words of all rows.
        offsets: where each row begins, in bytes, and where the last one ends.
    """

    def __init__(self, rows: int, size: int | Ints) -> None:
        """Allocates the rows. `size` is the number of bytes of a row: one number for all rows, or
        one per row if there are texts.
        """
        self._size = size
        if isinstance(size, int):
            self.offsets = np.arange(rows + 1, dtype=np.int64) * size
            self.words = np.empty(self.offsets[-1] // 8, np.uint64)
            self._starts = np.empty(0, np.int64)  # of rows that differ in size
        else:
            self.offsets = np.append(0, np.cumsum(size))
            self.words = np.zeros(self.offsets[-1] // 8, np.uint64)
            self._starts = self.offsets[:-1] // 8

    def put(self, position: int | Ints, column: _WordColumn) -> None:
        """Writes a word of every row. `position` is its place in the row, counted in words."""
        if isinstance(self._size, int):
            self.words[slice(position, None, self._size // 8)] = column
        else:
            self.words[self._starts + position] = column

    def put_texts(self, position: int | Ints, texts: _Texts) -> None:
        """Writes the texts that do not fit into a slot. `position` is the word of the row where its
        text begins, which may differ between rows.
        """
        _scatter(self.words, self._starts + position, texts)


def _header(parts: Sequence[_Part]) -> list[_WordColumn]:
    header: list[_WordColumn] = [0] * (header_size(len(parts)) // 8)
    for i, part in enumerate(parts):
        if part.null is not None:
            word, bit = divmod(i + 8, 64)  # the first 8 bits are the row kind: 0, an insert
            header[word] = part.null.astype(np.uint64) << np.uint64(bit) | np.asarray(
                header[word], np.uint64
            )
    return header


def _scatter(words: Words, targets: Ints, texts: _Texts) -> None:
    """Writes the texts that do not fit into a slot into `words`. `targets` says at which word the
    text of each row begins. Each step of the loop writes the next word of all texts that are long
    enough.
    """
    rows = np.flatnonzero(texts.lengths > INLINE)
    sources = texts.starts[rows]
    targets = targets[rows]
    remaining = texts.lengths[rows]
    while len(remaining) >= FEW_ROWS:
        words[targets] = texts.near[sources] & _LOW_BYTES[np.minimum(remaining, 8)]
        sources = sources + 8
        targets = targets + 1
        remaining = remaining - 8
        if remaining.min() <= 0:
            unfinished = remaining > 0
            sources = sources[unfinished]
            targets = targets[unfinished]
            remaining = remaining[unfinished]
    data = words.view(np.uint8)
    for source, target, length in zip(
        sources.tolist(), targets.tolist(), remaining.tolist(), strict=True
    ):
        data[8 * target : 8 * target + length] = texts.raw[source : source + length]


# -- columns to words -----------------------------------------------------------------------------
def _cast(column: pa.Array, type_: DataType) -> pa.Array:
    """The column, cast to the Arrow type that the Paimon type has in memory."""
    wanted = arrow_type(type_)
    if column.type in (wanted, _LARGE.get(wanted, wanted)):
        return column
    try:
        return column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidData(
            f"Arrow {column.type} does not fit into {type_}: {error}", type=str(type_)
        ) from None


def _part(column: pa.Array, type_: DataType) -> _Part:
    """Encodes a column as words. Raises `InvalidData`, and `UnsupportedFeature` for a nested
    type.
    """
    if type_.is_nested:
        raise UnsupportedFeature(f"{type_} cannot be part of a key.", type=str(type_))
    column = _cast(column, type_)
    null = np.asarray(column.is_null()) if column.null_count else None
    if type_.is_string or type_.is_binary:
        return _text_part(column, null)
    if type_.root is TypeRoot.DECIMAL:
        return _decimal_part(column, type_, null)
    if type_.is_timestamp:
        return _timestamp_part(column, type_, null)
    if type_.root is TypeRoot.BOOLEAN:
        values = np.asarray(column.fill_null(False).cast(pa.uint8()))
        return _Part(slot=values.astype(np.uint64), null=null)
    values = _raw(column, _VIEWED[type_.root])
    if type_.root in _NAN:
        bits = values.view(np.uint32 if type_.root is TypeRoot.FLOAT else np.uint64)
        values = np.where(np.isnan(values), bits.dtype.type(_NAN[type_.root]), bits)
    return _Part(slot=_zeroed(values.astype(np.uint64, copy=False), null), null=null)


def _raw(column: pa.Array, dtype: Any, per_row: int = 1) -> npt.NDArray[Any]:
    """The values of a column as they lie in memory. The values of NULLs are undefined. Each row has
    `per_row` values.
    """
    if not len(column):
        return np.empty(0, dtype)
    start = column.offset * per_row
    end = (column.offset + len(column)) * per_row
    return np.frombuffer(column.buffers()[1], dtype, end)[start:]


def _zeroed(values: Words, null: Flags | None) -> Words:
    """The values, with 0 for NULL."""
    return values if null is None else np.where(null, np.uint64(0), values)


def _timestamp_part(column: pa.Array, type_: DataType, null: Flags | None) -> _Part:
    """Encodes a column of timestamps. The slot has milliseconds. If the type is finer, the
    milliseconds are in the variable part, and the slot has the nanoseconds within the millisecond.
    """
    values = _raw(column, np.int64)
    nanos_per = _NANOS_PER[column.type.unit]
    per_milli = 1_000_000 // nanos_per
    millis = values // per_milli if per_milli > 1 else values
    stored = _zeroed(millis.view(np.uint64), null)
    if not is_reserved(type_):
        return _Part(slot=stored, null=null)
    nanos = (values - millis * per_milli) * nanos_per
    return _Part(slot=_zeroed(nanos.view(np.uint64), null), null=null, tail=(stored,))


def _decimal_part(column: pa.Array, type_: DataType, null: Flags | None) -> _Part:
    pairs = _raw(column, np.uint64, 2).reshape(-1, 2)
    low = pairs[:, 0]
    high = pairs[:, 1]
    if not is_reserved(type_):
        # A short DECIMAL has no tail, because its low word has the whole number.
        return _Part(slot=_zeroed(low, null), null=null)
    # All bits are 1 for a negative number, and 0 for other numbers. XOR with them turns a negative
    # number into a non-negative one that needs as many bytes.
    sign = (high.view(np.int64) >> 63).view(np.uint64)
    size = _byte_length(low ^ sign, high ^ sign)
    # The digits are moved to the front, big endian. They are shifted up as one number of 128 bits,
    # first by a whole word if necessary, and then within the words. After that, the bytes are
    # swapped.
    shift = (16 - size) * 8
    by_a_word = shift >= 64
    bits = (shift % 64).astype(np.uint64)
    upper = np.where(by_a_word, low, high)
    lower = np.where(by_a_word, np.uint64(0), low)
    # These bits move from the lower word into the upper word. If nothing is shifted, there are no
    # such bits. `maximum` only keeps numpy from shifting by 64, which is undefined.
    carried = np.where(bits > 0, lower >> (np.uint64(64) - np.maximum(bits, 1)), np.uint64(0))
    first_word = ((upper << bits) | carried).byteswap()
    second_word = (lower << bits).byteswap()
    return _Part(
        slot=_zeroed(size.astype(np.uint64), null),
        null=null,
        tail=(_zeroed(first_word, null), _zeroed(second_word, null)),
    )


def _byte_length(low: Words, high: Words) -> Ints:
    """The number of bytes in the shortest two's complement form of non-negative numbers, each given
    by its low and its high word.
    """
    size = np.ones(len(low), np.int64)
    for bits in range(7, 64, 8):
        size += (low >= np.uint64(1 << bits)) | (high > 0)
    for bits in range(7, 63, 8):
        size += high >= np.uint64(1 << bits)
    return size


def _text_part(column: pa.Array, null: Flags | None) -> _Part:
    texts = _texts(column, null)
    inline_lengths = np.minimum(texts.lengths, INLINE)
    inline = texts.near[texts.starts] & _LOW_BYTES[inline_lengths] | _SHORT_TEXT[inline_lengths]
    slot = np.where(texts.lengths <= INLINE, inline, texts.lengths.view(np.uint64))
    return _Part(slot=_zeroed(slot, null), null=null, texts=texts)


def _texts(column: pa.Array, null: Flags | None) -> _Texts:
    bounds = _text_bounds(column)
    start = int(bounds[0])
    end = int(bounds[-1])
    raw = np.zeros(end - start + 8, np.uint8)
    if end > start:
        raw[:-8] = np.frombuffer(column.buffers()[2], np.uint8, end)[start:]
    # This is a view with a stride of one byte, so that a word begins at each position.
    near = np.ndarray((end - start + 1,), np.uint64, raw, 0, (1,))
    lengths = np.diff(bounds).astype(np.int64)
    if null is not None:
        lengths[null] = 0
    return _Texts(raw=raw, near=near, starts=bounds[:-1].astype(np.int64) - start, lengths=lengths)


def _text_bounds(column: pa.Array) -> npt.NDArray[np.signedinteger[Any]]:
    """The position in the column's buffer where each row's text begins, and where the last text
    ends.
    """
    if not len(column):
        return np.zeros(1, np.int64)
    is_large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    dtype = np.int64 if is_large else np.int32
    count = column.offset + len(column) + 1
    return np.frombuffer(column.buffers()[1], dtype, count)[column.offset :]


def column_values(column: pa.Array, type_: DataType) -> list[Any]:
    """The column as values in the internal form (see `binary_row`), for any type. This runs Python
    code for each value. So it is used for partitions, keys and statistics, and not for data. Raises
    `InvalidData`.
    """
    column = _cast(column, type_)
    match type_.root:
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            nanos = _NANOS_PER[column.type.unit]
            counts = column.view(pa.int64()).to_pylist()
            return [None if count is None else count * nanos for count in counts]
        case TypeRoot.DATE | TypeRoot.TIME:
            return list(column.view(pa.int32()).to_pylist())
        case TypeRoot.ARRAY:
            elements = column_values(column.values, type_.items)
            return [None if span is None else elements[span] for span in _spans(column)]
        case TypeRoot.MAP | TypeRoot.MULTISET:
            key_type, value_type = type_.entry
            keys = column_values(column.keys, key_type)
            values = column_values(column.items, value_type)
            pairs = list(zip(keys, values, strict=True))
            return [None if span is None else pairs[span] for span in _spans(column)]
        case TypeRoot.ROW:
            members = [
                column_values(part, member.type)
                for part, member in zip(column.flatten(), type_.fields, strict=True)
            ]
            rows = zip(*members, strict=True) if members else iter([()] * len(column))
            validity = column.is_valid().to_pylist()
            return [row if valid else None for row, valid in zip(rows, validity, strict=True)]
        case _:
            return list(column.to_pylist())


def value_scalar(value: Any, type_: DataType) -> pa.Scalar:
    """An atomic value in internal form as an Arrow scalar. Raises `pyarrow.ArrowInvalid` for a
    timestamp that is finer than its type.
    """
    wanted = arrow_type(type_)
    match type_.root:
        case TypeRoot.DATE | TypeRoot.TIME:
            return pa.array([value], pa.int32()).view(wanted)[0]
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            if value is not None:
                value, lost_nanos = divmod(value, _NANOS_PER[wanted.unit])
                if lost_nanos:
                    raise pa.ArrowInvalid(
                        f"A value of {type_} has digits that the type does not have."
                    )
            return pa.array([value], pa.int64()).view(wanted)[0]
    return pa.scalar(value, wanted)


def _spans(column: pa.Array) -> Iterator[slice | None]:
    """The position of each row's elements among the elements of all rows; None for NULL."""
    bounds = column.offsets.to_pylist()
    for i, valid in enumerate(column.is_valid().to_pylist()):
        yield slice(bounds[i], bounds[i + 1]) if valid else None
