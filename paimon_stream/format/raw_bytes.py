"""Bytes of any origin: blocks are decompressed up to a bound, whatever they claim to hold, and a
cursor, which the readers of Avro, Thrift and ORC share, advances over what is there.
"""

import bz2
import lzma
import zlib
from collections.abc import Iterator
from typing import Any, ClassVar, Final

import pyarrow as pa

from paimon_stream.errors import FormatError

CODECS: Final = ("null", "deflate", "zstandard", "snappy", "bzip2", "xz")
"""The codecs by their names in Avro files."""

_XZ_MEMORY: Final = 128 << 20
"""The most memory of xz in bytes. Its highest preset needs 65 MiB; a header can ask for 4 GiB."""

_PIECE: Final = 1 << 16
RAW_DEFLATE: Final = -15
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_DICTIONARY: Final = (0, 1, 2, 4)


def decompressed(codec: str, packed: bytes, limit: int) -> bytes:
    """The plain bytes of a block; `snappy` is Snappy's own format, without Avro's checksum. Holds
    not much more than `limit` bytes. Raises `ValueError` for a block with more, or a damaged one,
    `LookupError` for an unknown codec.
    """
    try:
        match codec:
            case "null":
                plain = packed
            case "deflate":
                plain = _streamed(zlib.decompressobj(wbits=RAW_DEFLATE), packed, limit, alone=False)
            case "zstandard":
                plain = _zstd(packed, limit)
            case "snappy":
                size = ByteCursor(packed).varint()
                _check(size, limit)
                plain = pa.Codec("snappy").decompress(packed, decompressed_size=size, asbytes=True)
            case "bzip2":
                plain = _streamed(bz2.BZ2Decompressor(), packed, limit)
            case "xz":
                plain = _streamed(lzma.LZMADecompressor(memlimit=_XZ_MEMORY), packed, limit)
            case _:
                raise LookupError(codec)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, FormatError) as wrong:
        raise ValueError("does not decompress") from wrong
    _check(len(plain), limit)
    return plain


def _check(size: int, limit: int) -> None:
    if size > limit:
        raise ValueError(f"holds more than {limit:,} bytes")


def _streamed(stream: Any, packed: bytes, limit: int, *, alone: bool = True) -> bytes:
    """If `alone`, nothing may come after the end. Some writers of deflate leave part of a checksum
    there.
    """
    plain: bytes = stream.decompress(packed, limit + 1)
    if (not stream.eof and len(plain) <= limit) or (alone and stream.eof and stream.unused_data):
        raise EOFError
    return plain


def _zstd(packed: bytes, limit: int) -> bytes:
    size = _zstd_size(packed)
    if size is not None:
        _check(size, limit)
        try:
            whole: bytes = pa.Codec("zstd").decompress(packed, decompressed_size=size, asbytes=True)
            return whole
        except OSError:
            pass  # several frames, or a damaged one
    stream, pieces, left = pa.CompressedInputStream(pa.BufferReader(packed), "zstd"), [], limit
    while left >= 0 and (piece := stream.read(_PIECE)):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _zstd_size(packed: bytes) -> int | None:
    """The size that the first frame notes for its content, None if it notes none (RFC 8878, chapter
    3.1).
    """
    if len(packed) < 18 or packed[:4] != _ZSTD_MAGIC:
        return None
    kind = packed[4]
    single, width = kind >> 5 & 1, 1 << (kind >> 6)
    if not single and width == 1:
        return None
    start = 6 - single + _ZSTD_DICTIONARY[kind & 3]
    size = int.from_bytes(packed[start : start + width], "little")
    return size + 256 if width == 2 else size


class ByteCursor:
    """Reads bytes from the beginning. `cut_off` and `damaged` are the messages for too few bytes
    and an endless number, here of a footer; subclasses may have their own. `cut_off` may say where:
    `{size}` bytes at `{at}` of `{length}`.
    """

    cut_off: ClassVar[str] = "its footer is cut off"
    damaged: ClassVar[str] = "its footer is damaged"

    def __init__(self, data: bytes) -> None:
        self.raw = data
        self.at = 0

    def take(self, size: int) -> bytes:
        """The next `size` bytes. Raises `FormatError`."""
        end = self.at + size
        if size < 0 or end > len(self.raw):
            raise self._error(self.cut_off.format(size=size, at=self.at, length=len(self.raw)))
        taken = self.raw[self.at : end]
        self.at = end
        return taken

    def varint(self) -> int:
        """The next number, stored as seven bits per byte, lowest bits first. Raises
        `FormatError`.
        """
        made = shift = 0
        while True:
            byte = self.take(1)[0]
            made |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return made
            if shift > 63:
                raise self._error(self.damaged)

    def varints(self) -> Iterator[int]:
        """All numbers up to the end. Raises `FormatError`."""
        while self.at < len(self.raw):
            yield self.varint()

    def _error(self, why: str) -> FormatError:
        return FormatError(why)


def unzigzag(number: int) -> int:
    """A signed number from its zig-zag form."""
    return (number >> 1) ^ -(number & 1)
