"""A place in bytes that moves as they are read: what readers of Thrift and of ORC's runs have in common."""

from __future__ import annotations

from typing import ClassVar

from paimon_stream.errors import FormatError

__all__ = ["ByteCursor", "unzigzag"]


class ByteCursor:
    """Reads bytes from the first on. Subclasses say what is wrong where there are too few of them, or a
    number does not end."""

    cut_off: ClassVar[str]
    damaged: ClassVar[str]

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, size: int) -> bytes:
        """The next `size` bytes. Raises `FormatError`."""
        end = self._at + size
        if end > len(self._data):
            raise FormatError(self.cut_off)
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _varint(self) -> int:
        """The next number of seven bits a byte, the lowest first. Raises `FormatError`."""
        made = shift = 0
        while True:
            byte = self._take(1)[0]
            made |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return made
            if shift > 63:
                raise FormatError(self.damaged)


def unzigzag(number: int) -> int:
    """A signed number from its zig-zag form."""
    return (number >> 1) ^ -(number & 1)
