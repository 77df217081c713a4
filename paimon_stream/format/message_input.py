"""The bytes of commit messages, read piece by piece (format.md §8): numbers are big endian, as in Java's DataOutput."""

import struct
from typing import Final

from paimon_stream.errors import FormatError, UnknownVersion

INT: Final = struct.Struct(">i")
_READABLE: Final = (11, 12)


class MessageInput:
    """Bytes that hold messages of one version, and the current position. Every step checks that enough bytes are left
    before it creates anything from them. Raises `UnknownVersion` for a version that cannot be read."""

    __slots__ = ("_at", "_data", "version")

    def __init__(self, data: bytes, version: int) -> None:
        if version not in _READABLE:
            raise UnknownVersion(
                f"Commit messages of version {version} cannot be read; versions 11 and 12 can. Commit them "
                "with the release that made them.",
                version=version,
            )
        self.version = version
        self._data = data
        self._at = 0

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

    def flag(self) -> bool:
        """A boolean, one byte. Raises `FormatError`."""
        return self.take(1) != b"\0"

    def count(self, smallest: int) -> int:
        """The number of entries that follow. Each has at least `smallest` bytes, so a wrong number is noticed
        at once. Raises `FormatError`."""
        count = self.number()
        if count < 0 or count * smallest > len(self._data) - self._at:
            raise FormatError(f"A commit message of {len(self._data)} bytes cannot hold {count} entries.")
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

    def rows(self, smallest: int) -> list[bytes]:
        """A list of rows of at least `smallest` bytes, each with its length. Raises `FormatError`."""
        return [self.take(self.number()) for _ in range(self.count(smallest))]

    def finish(self) -> None:
        """Raises `FormatError` if bytes are left."""
        if self._at != len(self._data):
            raise FormatError(f"{len(self._data) - self._at} bytes follow the end of a commit message.")

    def _cut_off(self, size: int) -> FormatError:
        return FormatError(f"A commit message is cut off: {size} bytes at {self._at} of {len(self._data)}.")
