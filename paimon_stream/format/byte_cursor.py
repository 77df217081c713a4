"""A position in bytes that advances as they are read; shared by the readers of Avro, Thrift and ORC."""

from typing import ClassVar

from paimon_stream.errors import FormatError


class ByteCursor:
    """Reads bytes from the beginning. Subclasses define the messages for too few bytes (`cut_off`) and for a
    number that does not end (`damaged`)."""

    cut_off: ClassVar[str]
    damaged: ClassVar[str]

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, size: int) -> bytes:
        """The next `size` bytes. Raises `FormatError`."""
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise self._error(self.cut_off)
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _varint(self) -> int:
        """The next number, stored as seven bits per byte, lowest bits first. Raises `FormatError`."""
        made = shift = 0
        while True:
            byte = self._take(1)[0]
            made |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return made
            if shift > 63:
                raise self._error(self.damaged)

    def _error(self, why: str) -> FormatError:
        return FormatError(why)


def unzigzag(number: int) -> int:
    """A signed number from its zig-zag form."""
    return (number >> 1) ^ -(number & 1)
