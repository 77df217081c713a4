"""Reads and writes the Avro object container file: header, blocks and codecs, with any kind of
records (format.md §4.1). Arrow and the standard library compress the blocks, so fastavro needs no
packages of codecs.
"""

import bz2
import hashlib
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from paimon_stream.errors import CorruptMetadata, InvalidOption, UnsupportedFeature
from paimon_stream.format.raw_bytes import CODECS, RAW_DEFLATE, ByteCursor, decompressed, unzigzag

MOST_PLAIN: Final = 16 << 20
"""The most plain bytes in a block of a metadata file. Java ends a block after 64 KB, and this
package after 8 MiB at the latest; only the last record can be beyond that.
"""

_MOST_PLAIN_IN_FILE: Final = 256 << 20
_PLAIN_PER_BYTE: Final = 2048
"""All blocks of a metadata file together have at most `_MOST_PLAIN_IN_FILE` plain bytes, and
`_PLAIN_PER_BYTE` more for each byte of the file. Statistics of 5,000 columns compress 300 to 1 if
20 columns have values, and 2,600 to 1 if no column has any.
"""

_MOST_DATA: Final = 1 << 30
"""The most plain bytes in a block of a data file, where one row may be as large as a column of
Arrow.
"""

_MOST_RECORDS: Final = 100_000
"""A metadata file has at most this number of records, and one more for each of its bytes. Java
writes some hundred in a block. A record takes several bytes even if it compresses well, because it
holds names.
"""

_MAGIC: Final = b"Obj\x01"
SYNC_SIZE: Final = 16

# Numbers of 14 bits, as bytes. A number in the list `_MIDDLE` is two bytes in the middle of a
# longer number. The other list has the one or two bytes at the end of a number.
_PAIR: Final = 1 << 14
_BYTES: Final = [bytes((byte,)) for byte in range(256)]
_MIDDLE: Final = [low + high for high in _BYTES[128:] for low in _BYTES[128:]]
_END: Final = _BYTES[:128] + [low + high for high in _BYTES[1:128] for low in _BYTES[128:]]


class AvroBlock(NamedTuple):
    """A block of an Avro file.

    Attributes:
        records: the number of records in the block.
        data: the bytes of the records: compressed in a file, plain after reading.
    """

    records: int
    data: bytes


class Compressor(NamedTuple):
    """A way to compress blocks.

    Attributes:
        codec: the name of the codec in the header of a file.
        compress: compresses the bytes of a block.
    """

    codec: str
    compress: Callable[[bytes], bytes]


@lru_cache(64)
def compressor(compression: str, level: int) -> Compressor:
    """The compressor for a value of `manifest.compression`. Each compressor is made once, because
    every commit asks for compressors several times.

    Args:
        compression: `zstd` (Avro's `zstandard`) or the name of another codec of Avro.
        level: the level of zstd.

    Raises:
        InvalidOption: Java cannot read files with this codec, for example `none` or `lz4`
            (format.md §4.1).
    """
    word = compression.strip().lower()
    if word in ("zstd", "zstandard"):
        zstd = pa.Codec("zstd", compression_level=level)
        return Compressor(codec="zstandard", compress=partial(zstd.compress, asbytes=True))
    if word in _COMPRESS:
        return Compressor(codec=word, compress=_COMPRESS[word])
    raise InvalidOption(
        f"Option 'manifest.compression' is {compression!r}, which no engine could read back. "
        "Set it to one of zstd, snappy, deflate, bzip2, xz, null.",
        option="manifest.compression",
        value=compression,
    )


def _snappy(data: bytes) -> bytes:
    # In Avro, a checksum of the plain bytes follows the compressed bytes.
    packed: bytes = pa.Codec("snappy").compress(data, asbytes=True)
    return packed + zlib.crc32(data).to_bytes(4, "big")


def _deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=RAW_DEFLATE)
    return stream.compress(data) + stream.flush()


_COMPRESS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "null": bytes,
    "deflate": _deflate,
    "snappy": _snappy,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}


def zigzag(number: int) -> bytes:
    """A number as Avro writes an int or long: zig-zag, then seven bits per byte, lowest bits
    first.
    """
    bits = (number << 1) ^ (number >> 63)
    if bits < _PAIR:
        return _END[bits]
    if bits < _PAIR**2:  # as most sizes and counts of rows
        return _MIDDLE[bits % _PAIR] + _END[bits // _PAIR]
    encoded = _MIDDLE[bits % _PAIR]
    bits //= _PAIR
    while bits >= _PAIR:
        encoded += _MIDDLE[bits % _PAIR]
        bits //= _PAIR
    return encoded + _END[bits]


def encode_file(schema: bytes, codec: str, blocks: Iterable[AvroBlock]) -> bytes:
    """A whole file. The sync marker of the file is a hash of the content. So the same content
    always has the same bytes.

    Args:
        schema: the schema of the records, in JSON.
        codec: the name of the codec, as the header has it.
        blocks: the blocks, compressed. Blocks without records are left out.
    """
    filled = [block for block in blocks if block.records]
    digest = _digest_of(schema).copy()
    for block in filled:
        digest.update(block.data)
    sync = digest.digest()
    return b"".join(
        [encode_header(schema, codec, sync), *(encode_block(block, sync) for block in filled)]
    )


@lru_cache(16)
def _digest_of(schema: bytes) -> "hashlib.blake2b":
    """The digest of a schema, to which the blocks are added. It is cached: there are few schemas,
    and each has as many bytes as a small manifest.
    """
    return hashlib.blake2b(schema, digest_size=SYNC_SIZE)


def encode_header(schema: bytes, codec: str, sync: bytes) -> bytes:
    """The beginning of a file; `sync` is the 16-byte marker that ends the header and each block."""
    return _header_before_sync(schema, codec) + sync


@lru_cache(16)
def _header_before_sync(schema: bytes, codec: str) -> bytes:
    """The beginning of a file, up to its sync marker. It is cached, because a commit writes several
    files with the same schema and codec.
    """
    parts = [_MAGIC, zigzag(2)]
    for key, value in ((b"avro.schema", schema), (b"avro.codec", codec.encode())):
        parts += [zigzag(len(key)), key, zigzag(len(value)), value]
    return b"".join([*parts, zigzag(0)])


def encode_block(block: AvroBlock, sync: bytes) -> bytes:
    """The bytes of a block that is already compressed."""
    return b"".join([zigzag(block.records), zigzag(len(block.data)), block.data, sync])


def blocks_of(data: bytes, path: str) -> tuple[str, Iterator[AvroBlock]]:
    """The schema of a metadata file in any of Avro's codecs, and its blocks, decompressed one at a
    time.

    Args:
        data: the bytes of the file.
        path: the file, for messages.

    Raises, also while the blocks are iterated:
        CorruptMetadata: the bytes are not a whole Avro file, or its plain content would be far
            larger than its size allows.
        UnsupportedFeature: the codec is unknown.
    """
    opened = _opened(_Cursor(data, path))
    return opened.schema, _metadata_blocks(opened)


def packed_blocks_of(data: bytes, path: str) -> tuple[str, str, list[AvroBlock]]:
    """The schema and the codec of a file, and its blocks, still compressed. `data` has the bytes of
    the file; `path` is for messages. Raises `CorruptMetadata`.
    """
    opened = _opened(_Cursor(data, path))
    return opened.schema, opened.codec, list(_packed(opened))


def decompress(codec: str, data: bytes, path: str) -> bytes:
    """The plain bytes of a block of a metadata file. `path` is for messages. Raises
    `CorruptMetadata`, and `UnsupportedFeature` for an unknown codec.
    """
    return _plain(codec, data, _Cursor(data, path), MOST_PLAIN)


def open_file(source: Any, path: str) -> tuple[str, Iterator[AvroBlock]]:
    """The schema of a data file, and its blocks, decompressed one at a time. `source` is an Arrow
    file, and `path` is for messages. Raises what `blocks_of` raises, also while the blocks are
    iterated.
    """
    opened = _opened(_FileCursor(source, path))
    return opened.schema, _data_blocks(opened)


class _OpenedFile(NamedTuple):
    """A file whose header has been read.

    Attributes:
        schema: the schema of its records, in JSON.
        codec: the codec of its blocks.
        cursor: the position of the first block.
        sync: the marker that ends each block.
    """

    schema: str
    codec: str
    cursor: "_Cursor"
    sync: bytes


def _opened(cursor: "_Cursor") -> _OpenedFile:
    if cursor.take(len(_MAGIC)) != _MAGIC:
        raise cursor.corrupt("it is not an Avro file")
    header = _read_header(cursor)
    sync = cursor.take(SYNC_SIZE)
    codec = header.get(b"avro.codec", b"null").decode("utf-8", "replace")
    try:
        schema = header[b"avro.schema"].decode()
    except (KeyError, UnicodeDecodeError):
        raise cursor.corrupt("its header holds no schema") from None
    return _OpenedFile(schema=schema, codec=codec, cursor=cursor, sync=sync)


def _metadata_blocks(file: _OpenedFile) -> Iterator[AvroBlock]:
    """The plain blocks of a metadata file. Raises `CorruptMetadata` if they exceed `MOST_PLAIN`,
    `_MOST_PLAIN_IN_FILE` or `_MOST_RECORDS`.
    """
    cursor = file.cursor
    remaining_bytes = _MOST_PLAIN_IN_FILE + _PLAIN_PER_BYTE * cursor.size
    remaining_records = _MOST_RECORDS + cursor.size
    for block in _packed(file):
        remaining_records -= block.records
        if remaining_records < 0:
            raise cursor.corrupt("it claims more records than a file of its size can hold")
        plain = _plain(file.codec, block.data, cursor, min(remaining_bytes, MOST_PLAIN))
        remaining_bytes -= len(plain)
        yield AvroBlock(block.records, plain)


def _data_blocks(file: _OpenedFile) -> Iterator[AvroBlock]:
    """The plain blocks of a data file. Raises `CorruptMetadata` for a block of more than
    `_MOST_DATA` bytes. The same error is raised for a block that has more than `_MOST_RECORDS`
    records and more records than bytes.
    """
    for block in _packed(file):
        plain = _plain(file.codec, block.data, file.cursor, _MOST_DATA)
        if block.records > max(len(plain), _MOST_RECORDS):
            raise file.cursor.corrupt(
                f"a block of {len(plain)} bytes claims {block.records} records"
            )
        yield AvroBlock(block.records, plain)


def _packed(file: _OpenedFile) -> Iterator[AvroBlock]:
    """The compressed blocks of a file."""
    cursor = file.cursor
    while cursor.at < cursor.size:
        count = cursor.long()
        packed = cursor.take(cursor.long())
        if cursor.take(SYNC_SIZE) != file.sync:
            raise cursor.corrupt(f"the block that ends at byte {cursor.at} is damaged")
        if count < 0:
            raise cursor.corrupt(f"a block claims {count} records")
        yield AvroBlock(count, packed)


class _Cursor(ByteCursor):
    """A position in the bytes of a file. The subclass `_FileCursor` is a position in an Arrow
    file.
    """

    cut_off = "it is cut off or damaged"
    damaged = "a number in it is too long"

    def __init__(self, data: bytes, path: str) -> None:
        super().__init__(data)
        self.path = path
        self.size = len(data)

    def long(self) -> int:
        """The next number in the file."""
        return unzigzag(self.varint())

    def corrupt(self, reason: str) -> CorruptMetadata:
        return corrupt(self.path, self.size, reason)

    _error = corrupt


class _FileCursor(_Cursor):
    """A position in an Arrow file. It reads only the bytes that are taken, and never beyond the end
    of the file.
    """

    def __init__(self, source: Any, path: str) -> None:
        super().__init__(b"", path)
        self.size = int(source.size())
        self._source = source

    def take(self, size: int) -> bytes:
        remaining = self.size - self.at
        if not 0 <= size <= remaining:
            raise self.corrupt(self.cut_off)
        taken: bytes = self._source.read(size)
        if len(taken) != size:
            raise self.corrupt(self.cut_off)
        self.at += size
        return taken


def _read_header(cursor: "_Cursor") -> dict[bytes, bytes]:
    header: dict[bytes, bytes] = {}
    while count := cursor.long():
        if count < 0:
            cursor.long()  # a negative count is followed by the size of the block in bytes
        for _ in range(abs(count)):
            key = cursor.take(cursor.long())
            header[key] = cursor.take(cursor.long())
    return header


def _plain(codec: str, packed: bytes, cursor: "_Cursor", limit: int) -> bytes:
    """The plain bytes of a block, up to `limit` bytes."""
    if codec not in CODECS:
        raise UnsupportedFeature(
            f"{cursor.path} is compressed with {codec!r:.80}, which is not an Avro codec. "
            "Set manifest.compression to zstd "
            "and rewrite the manifests with the engine that wrote it.",
            path=cursor.path,
            codec=codec,
        )
    try:
        if codec != "snappy":
            return decompressed(codec, packed, limit)
        # A CRC-32 of the plain bytes follows the compressed bytes, big endian.
        plain = decompressed(codec, packed[:-4], limit)
    except ValueError as error:
        raise cursor.corrupt(f"the block that ends at byte {cursor.at} {error}") from None
    if zlib.crc32(plain).to_bytes(4, "big") != packed[-4:]:
        raise cursor.corrupt("the checksum of a block is wrong")
    return plain


def corrupt(path: str, size: int, reason: str) -> CorruptMetadata:
    """The error for a metadata file of `size` bytes that cannot be read. `reason` is a clause, such
    as "it is not an Avro file".
    """
    return CorruptMetadata(
        f"{path} cannot be read: {reason} ({size} bytes). "
        "Restore the file from a backup, "
        "or roll the table back to a snapshot that does not use it.",
        path=path,
    )
