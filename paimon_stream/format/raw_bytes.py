"""Reads bytes of any origin safely. Blocks are decompressed up to a limit, even if they claim to be
larger. The readers of Avro, Thrift and ORC use one class of cursors, which never goes beyond the
bytes that exist.
"""

import bz2
import lzma
import zlib
from collections.abc import Iterator
from typing import ClassVar, Final, Protocol

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
"""The bytes of a dictionary's id, by the lowest two bits of a frame's descriptor."""


def decompressed(codec: str, packed: bytes, limit: int) -> bytes:
    """The plain bytes of a block. Little more than `limit` bytes is in memory at a time.

    Args:
        codec: one of `CODECS`; `snappy` is Snappy's own format, without Avro's checksum.
        packed: the compressed bytes.
        limit: the largest number of plain bytes that a block may have.

    Raises:
        ValueError: the block has more plain bytes, or is damaged.
        LookupError: the codec is unknown.
    """
    try:
        match codec:
            case "null":
                plain = packed
            case "deflate":
                # Some writers leave a part of a checksum after the end of the block.
                plain, _ = _streamed(zlib.decompressobj(wbits=RAW_DEFLATE), packed, limit)
            case "zstandard":
                plain = _zstd(packed, limit)
            case "snappy":
                size = ByteCursor(packed).varint()
                _check(size, limit)
                plain = pa.Codec("snappy").decompress(packed, decompressed_size=size, asbytes=True)
            case "bzip2":
                plain = _streamed_alone(bz2.BZ2Decompressor(), packed, limit)
            case "xz":
                plain = _streamed_alone(lzma.LZMADecompressor(memlimit=_XZ_MEMORY), packed, limit)
            case _:
                raise LookupError(codec)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, FormatError) as error:
        raise ValueError("does not decompress") from error
    _check(len(plain), limit)
    return plain


def _check(size: int, limit: int) -> None:
    if size > limit:
        raise ValueError(f"holds more than {limit:,} bytes")


class _Stream(Protocol):
    """The interface of the decompressors in the standard library."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _streamed(stream: _Stream, packed: bytes, limit: int) -> tuple[bytes, bytes]:
    """The plain bytes, and the bytes that follow the compressed bytes. If there are more than
    `limit` plain bytes, only `limit` + 1 bytes are returned, and the caller refuses these. Raises
    `EOFError` if the compressed bytes do not end.
    """
    plain = stream.decompress(packed, limit + 1)
    if not stream.eof and len(plain) <= limit:
        raise EOFError
    return plain, stream.unused_data


def _streamed_alone(stream: _Stream, packed: bytes, limit: int) -> bytes:
    """The plain bytes of a block, as `_streamed` returns them. Also raises `EOFError` if bytes
    follow the compressed bytes.
    """
    plain, unused = _streamed(stream, packed, limit)
    if unused:
        raise EOFError
    return plain


def _zstd(packed: bytes, limit: int) -> bytes:
    size = _zstd_size(packed)
    if size is not None:
        _check(size, limit)
        try:
            plain: bytes = pa.Codec("zstd").decompress(packed, decompressed_size=size, asbytes=True)
            return plain
        except OSError:
            pass  # several frames, or a damaged one
    stream = pa.CompressedInputStream(pa.BufferReader(packed), "zstd")
    pieces: list[bytes] = []
    remaining = limit
    while remaining >= 0 and (piece := stream.read(_PIECE)):
        pieces.append(piece)
        remaining -= len(piece)
    return b"".join(pieces)


def _zstd_size(packed: bytes) -> int | None:
    """The size of the content according to the header of the first frame; None if the header has no
    size (RFC 8878, chapter 3.1).
    """
    # A header has at most 18 bytes. A frame that is shorter is streamed, even if its header has a
    # size.
    if len(packed) < 18 or packed[:4] != _ZSTD_MAGIC:
        return None
    descriptor = packed[4]
    single_segment = (descriptor >> 5) & 1
    width = 1 << (descriptor >> 6)
    if not single_segment and width == 1:
        return None
    # A frame of more than one segment has a byte for the size of its window.
    start = 6 - single_segment + _ZSTD_DICTIONARY[descriptor & 3]
    size = int.from_bytes(packed[start : start + width], "little")
    return size + 256 if width == 2 else size  # two bytes hold sizes from 256 on


class ByteCursor:
    """Reads bytes from the beginning. The messages of this class are about a footer. Subclasses may
    have other messages.

    Attributes:
        cut_off: the message for too few bytes. It may contain `{size}`, `{at}` and `{length}`.
        damaged: the message for a number without an end.
        raw: the bytes.
        at: the position of the next byte.
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
        number = 0
        shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number
            if shift > 63:
                raise self._error(self.damaged)

    def varints(self) -> Iterator[int]:
        """All numbers up to the end of the bytes. Raises `FormatError`."""
        while self.at < len(self.raw):
            yield self.varint()

    def _error(self, reason: str) -> FormatError:
        return FormatError(reason)


def unzigzag(number: int) -> int:
    """A signed number from its zig-zag form."""
    return (number >> 1) ^ -(number & 1)
