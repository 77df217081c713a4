"""Parquet's INT96 timestamps, exactly.

Arrow turns INT96 into 64 bits, and what does not fit comes out as another date: it cannot be told any more
whether a moment was in 1716 or in 2300, for Java writes moments before 1970 as a day and *negative*
nanoseconds. So a file with such columns is shown to Arrow with a footer that calls them twelve bytes, which
is what they are, and the bytes are read here: eight of nanoseconds, four of the Julian day (format.md §7.4).
"""

from __future__ import annotations

import io
from typing import Any, Final

import numpy as np
import pyarrow as pa

from paimon_stream.errors import FormatError

__all__ = ["BYTES", "as_timestamps", "as_twelve_bytes"]

BYTES: Final = pa.binary(12)
"""The Arrow type of INT96 columns in files opened by `as_twelve_bytes`."""

_INT96: Final = 3
_FIXED_LENGTH: Final = 7
_WIDTH: Final = 12
_TAIL: Final = 8
_MAGIC: Final = b"PAR1"
_JULIAN_EPOCH: Final = 2_440_588
_DAY_SECONDS: Final = 86_400
_BILLION: Final = 1_000_000_000
_FIRST_SECOND: Final = -(2**63) // _BILLION + 1
_LAST_SECOND: Final = 2**63 // _BILLION - 1
_LAYOUT: Final = np.dtype([("nanos", "<i8"), ("day", "<i4")])

# Types of the Thrift compact protocol, and the numbers of the fields that matter in Parquet's footer.
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
_INTEGERS: Final = (4, 5, 6)
_I32: Final = 5
_SCHEMA, _ROW_GROUPS, _COLUMNS, _META_DATA, _TYPE, _TYPE_LENGTH, _STATISTICS = 2, 4, 1, 3, 1, 2, 12

Struct = dict[int, tuple[int, Any]]


def as_timestamps(array: pa.Array, unit: str) -> pa.Array:
    """INT96 values, given as twelve bytes each, in that unit, without time zone; digits that it lacks are
    dropped. Raises `OverflowError` where nanoseconds cannot hold a value."""
    raw = array.buffers()[1]
    if raw is None:
        return pa.nulls(len(array), pa.timestamp(unit))
    parts = np.frombuffer(raw, _LAYOUT)[array.offset : array.offset + len(array)]
    missing = array.is_null().to_numpy(zero_copy_only=False)
    days = np.where(missing, _JULIAN_EPOCH, parts["day"]).astype(np.int64) - _JULIAN_EPOCH
    nanos = np.where(missing, 0, parts["nanos"])
    seconds = days * _DAY_SECONDS + np.floor_divide(nanos, _BILLION)
    nanos = np.remainder(nanos, _BILLION)
    if unit == "ns" and bool(((seconds < _FIRST_SECOND) | (seconds > _LAST_SECOND)).any()):
        raise OverflowError("nanoseconds end in 2262")
    per_second = {"ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    moments = seconds * per_second + nanos // (_BILLION // per_second)
    return pa.array(moments, mask=missing if array.null_count else None).view(pa.timestamp(unit))


def as_twelve_bytes(source: Any) -> io.RawIOBase:
    """The Parquet file, its INT96 columns declared as twelve bytes. Raises `FormatError`."""
    size = source.size()
    source.seek(size - _TAIL)
    tail = source.read(_TAIL)
    length = int.from_bytes(tail[:4], "little")
    start = size - _TAIL - length
    if tail[4:] != _MAGIC or start < len(_MAGIC):
        raise FormatError("it does not end like a Parquet file")
    source.seek(start)
    footer = _Reader(source.read(length)).struct()
    for element in _structs(footer, _SCHEMA):
        _declare(element)
        if element.get(_TYPE) == (_I32, _FIXED_LENGTH) and _TYPE_LENGTH not in element:
            element[_TYPE_LENGTH] = (_I32, _WIDTH)
    for group in _structs(footer, _ROW_GROUPS):
        for chunk in _structs(group, _COLUMNS):
            if _META_DATA in chunk and _declare(chunk[_META_DATA][1]):
                chunk[_META_DATA][1].pop(_STATISTICS, None)
    made = bytearray()
    _write(made, footer)
    return _Patched(source, start, bytes(made) + len(made).to_bytes(4, "little") + _MAGIC)


def _structs(struct: Struct, field: int) -> list[Struct]:
    found = struct.get(field, (_LIST, (_STRUCT, [])))[1]
    if not isinstance(found, tuple) or found[0] != _STRUCT:
        raise FormatError("its footer is damaged")
    items: list[Struct] = found[1]
    return items


def _declare(struct: Struct) -> bool:
    """Turns the type INT96 into twelve bytes; returns whether it was that."""
    if struct.get(_TYPE) != (_I32, _INT96):
        return False
    struct[_TYPE] = (_I32, _FIXED_LENGTH)
    return True


class _Patched(io.RawIOBase):
    """A file with another end."""

    def __init__(self, source: Any, start: int, end: bytes) -> None:
        self._source = source
        self._start = start
        self._end = end
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        """The size in bytes."""
        return self._start + len(self._end)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size()}[whence]
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        until = self.size() if size < 0 else min(self.size(), self._at + size)
        made = b""
        if self._at < self._start:
            self._source.seek(self._at)
            made = self._source.read(min(until, self._start) - self._at)
        if until > self._start:
            made += self._end[max(0, self._at - self._start) : until - self._start]
        self._at += len(made)
        return made


class _Reader:
    """Reads Thrift's compact protocol, whatever the structs mean."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self) -> Struct:
        made: Struct = {}
        field = 0
        while (head := self._take(1)[0]) != _STOP:
            kind = head & 15
            field = field + (head >> 4) if head >> 4 else _unzigzag(self._varint())
            made[field] = (kind, None if kind in (_TRUE, _FALSE) else self._value(kind))
        return made

    def _value(self, kind: int) -> Any:
        if kind in _INTEGERS:
            return _unzigzag(self._varint())
        match kind:
            case 1 | 2 | 3:
                return self._take(1)
            case 7:
                return self._take(8)
            case 8:
                return self._take(self._varint())
            case 9 | 10:
                head = self._take(1)[0]
                count = self._varint() if head >> 4 == 15 else head >> 4
                return head & 15, [self._value(head & 15) for _ in range(count)]
            case 12:
                return self.struct()
        raise FormatError("its footer is damaged")  # Parquet's footer has no maps

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise FormatError("its footer is cut off")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _varint(self) -> int:
        made = shift = 0
        while True:
            byte = self._take(1)[0]
            made |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return made
            if shift > 63:
                raise FormatError("its footer is damaged")


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


def _unzigzag(number: int) -> int:
    return (number >> 1) ^ -(number & 1)
