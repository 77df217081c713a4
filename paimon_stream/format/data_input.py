"""The primitive encodings of commit messages and committables, as in Java's DataOutput (format.md §8.1):
numbers big endian, text as its length and modified UTF-8.
"""

from __future__ import annotations

import struct
from typing import Final

from paimon_stream.errors import FormatError, InvalidData

__all__ = ["INT", "LONG", "DataInput", "encode_text"]

INT: Final = struct.Struct(">i")
LONG: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">H")
_LONGEST_TEXT: Final = 0xFFFF
_LAST_BMP: Final = "\uffff"
_NUL: Final = b"\xc0\x80"


class DataInput:
    """Bytes being read, and the current position. Every step checks that enough bytes are left before it
    creates anything from them. `what` is for messages."""

    __slots__ = ("_at", "_data", "_what")

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._at = 0
        self._what = what

    @property
    def position(self) -> int:
        """The number of bytes already read."""
        return self._at

    def since(self, position: int) -> bytes:
        """The bytes from an earlier position up to here."""
        return self._data[position : self._at]

    def number(self) -> int:
        """An int32. Raises `FormatError`."""
        at = self._at
        if at + INT.size > len(self._data):
            raise self._cut_off(INT.size)
        self._at = at + INT.size
        value: int = INT.unpack_from(self._data, at)[0]
        return value

    def long(self) -> int:
        """An int64. Raises `FormatError`."""
        value: int = LONG.unpack(self.take(LONG.size))[0]
        return value

    def flag(self) -> bool:
        """A boolean, one byte. Raises `FormatError`."""
        return self.take(1) != b"\0"

    def count(self, smallest: int) -> int:
        """The number of entries that follow. Each has at least `smallest` bytes, so a wrong number is noticed
        at once. Raises `FormatError`."""
        count = self.number()
        if count < 0 or count * smallest > len(self._data) - self._at:
            raise FormatError(f"A {self._what} of {len(self._data)} bytes cannot hold {count} entries.")
        return count

    def take(self, size: int) -> bytes:
        """The next `size` bytes. Raises `FormatError`."""
        start, end = self._at, self._at + size
        if size < 0 or end > len(self._data):
            raise self._cut_off(size)
        self._at = end
        return self._data[start:end]

    def take_if(self, expected: bytes) -> bool:
        """Whether these bytes come next. If so, they are skipped."""
        if not self._data.startswith(expected, self._at):
            return False
        self._at += len(expected)
        return True

    def text(self) -> str:
        """A text. Raises `FormatError` for bytes that Java would not have written."""
        start = self._at
        raw = self.take(_LENGTH.unpack(self.take(_LENGTH.size))[0])
        try:
            units = raw.replace(_NUL, b"\0").decode("utf-8", "surrogatepass")
            if max(units, default="") > _LAST_BMP:
                raise FormatError(f"A {self._what} has a text at byte {start} that is not modified UTF-8.")
            return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            raise FormatError(f"A {self._what} has a text at byte {start} that is not UTF-8.") from None

    def finish(self) -> None:
        """Raises `FormatError` if bytes are left."""
        if self._at != len(self._data):
            raise FormatError(f"{len(self._data) - self._at} bytes follow the end of a {self._what}.")

    def _cut_off(self, size: int) -> FormatError:
        return FormatError(f"A {self._what} is cut off: {size} bytes at {self._at} of {len(self._data)}.")


def encode_text(text: str) -> bytes:
    """A text with its length. Raises `InvalidData` if it has more than 65,535 bytes or has no UTF-8 form."""
    try:
        units = text.encode("utf-16-le")
    except UnicodeEncodeError as why:
        raise InvalidData(f"Text {text[:40]!r} cannot be written: {why}.") from None
    each = "".join(map(chr, struct.unpack(f"<{len(units) // 2}H", units)))
    raw = each.encode("utf-8", "surrogatepass").replace(b"\0", _NUL)
    if len(raw) > _LONGEST_TEXT:
        raise InvalidData(
            f"Text {text[:40]!r}… has {len(raw):,} bytes; a committable holds at most {_LONGEST_TEXT:,}. "
            "Shorten it."
        )
    return _LENGTH.pack(len(raw)) + raw
