"""Reads the metadata of an ORC file that `orc_rows.py` needs to decode timestamps (ORC
specification v1, https://orc.apache.org/specification).
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from paimon_stream.errors import FormatError, UnsupportedFeature
from paimon_stream.format.raw_bytes import ByteCursor, decompressed, unzigzag

TIMESTAMP: Final = 9
TIMESTAMP_INSTANT: Final = 18
_MAGIC: Final = b"ORC"
_TAIL: Final = 256
_CODECS: Final = {0: "null", 1: "deflate", 2: "snappy", 4: "lz4_raw", 5: "zstandard"}
_CHUNK_HEADER: Final = 3

_MOST_CHUNK: Final = 1 << 23
"""The most bytes in a chunk: its length has 23 bits."""
_MOST_FOOTER: Final = 32 << 20
"""The most bytes in a footer of a file or stripe, as stored and decompressed."""
_MOST_STREAM: Final = 1 << 30
"""The most bytes in a stream of one column of a stripe, as stored and decompressed."""


class OrcType(NamedTuple):
    """A type: its kind, its child columns, and their names if it is a struct."""

    kind: int
    children: tuple[int, ...]
    names: tuple[str, ...]


class OrcStripe(NamedTuple):
    """The position of a stripe, in bytes, and its number of rows."""

    offset: int
    index_length: int
    data_length: int
    footer_length: int
    rows: int


class Stream(NamedTuple):
    """A stream of a stripe: its kind, its column, and its position in the file."""

    kind: int
    column: int
    offset: int
    length: int


class StripeFooter(NamedTuple):
    """The footer of a stripe.

    Attributes:
        streams: the streams of the stripe.
        encodings: the encoding of each column.
        time_zone: the writer's time zone; empty if it is not known.
    """

    streams: tuple[Stream, ...]
    encodings: tuple[int, ...]
    time_zone: str


class OrcFooter(NamedTuple):
    """The footer of a file.

    Attributes:
        types: the types of the columns by their numbers; number 0 is the row.
        stripes: the stripes.
        millis: the bounds of timestamp columns in milliseconds, by the numbers of the columns.
        codec: the codec of streams and footers.
    """

    types: tuple[OrcType, ...]
    stripes: tuple[OrcStripe, ...]
    millis: dict[int, tuple[int, int]]
    codec: str

    @classmethod
    def read(cls, source: Any) -> "OrcFooter":
        """Reads the tail of a file. Raises `FormatError` if the file is not an ORC file, and
        `UnsupportedFeature` for a codec that is not read here.
        """
        # The last byte is the size of the postscript, which comes before it. The numbers below are
        # the numbers of fields in ORC's specification.
        size = source.size()
        tail = _read_at(source, max(0, size - _TAIL), min(size, _TAIL))
        if len(tail) < 2:
            raise FormatError("it is cut off")
        tail_size = tail[-1] + 1
        if tail_size > len(tail):
            raise FormatError("it is cut off")
        postscript = Message(tail[-tail_size:-1])
        if postscript.data(8000) != _MAGIC:
            raise FormatError("it does not end like an ORC file")
        codec = _CODECS.get(postscript.number(2))
        if codec is None:
            raise UnsupportedFeature(f"it is compressed with ORC's codec {postscript.number(2)}")
        length = postscript.number(1)
        end = size - tail_size
        if length > end:
            raise FormatError("it is cut off")
        footer = Message(_plain(source, end - length, length, codec, _MOST_FOOTER))
        types = tuple(_type(Message(data)) for data in footer.all(4))
        children = [child for type_ in types for child in type_.children]
        if not types or any(child >= len(types) for child in children):
            raise FormatError("its types contradict each other")
        stripes = tuple(
            OrcStripe(*map(Message(data).number, range(1, 6))) for data in footer.all(3)
        )
        return cls(types=types, stripes=stripes, millis=dict(_statistics(footer)), codec=codec)

    def columns(self) -> dict[str, int]:
        """The numbers of the row's columns, by name."""
        return dict(zip(self.types[0].names, self.types[0].children, strict=False))

    def is_timestamp(self, column: int) -> bool:
        """Whether the column is a timestamp, with or without a time zone."""
        return self.types[column].kind in (TIMESTAMP, TIMESTAMP_INSTANT)

    def below(self, column: int) -> Iterator[int]:
        """The column and all columns below it, each once."""
        waiting = [column]
        seen = {column}
        while waiting:
            column = waiting.pop()
            yield column
            for child in self.types[column].children:
                # Children have higher numbers than their parent. Otherwise, a crafted file could
                # contain a cycle.
                if child > column and child not in seen:
                    seen.add(child)
                    waiting.append(child)

    def stripe_footer(self, source: Any, stripe: OrcStripe) -> StripeFooter:
        """Reads the footer of a stripe. Raises what `plain_bytes` raises."""
        start = stripe.offset + stripe.index_length + stripe.data_length
        message = Message(_plain(source, start, stripe.footer_length, self.codec, _MOST_FOOTER))
        streams = []
        offset = stripe.offset
        for stream in map(Message, message.all(1)):
            length = stream.number(3)
            streams.append(Stream(stream.number(1), stream.number(2), offset, length))
            offset += length
        encodings = tuple(Message(data).number(1) for data in message.all(2))
        return StripeFooter(tuple(streams), encodings, message.data(3).decode("utf-8", "replace"))

    def stream(self, source: Any, stream: Stream) -> bytes:
        """The content of a stream, decompressed. Raises what `plain_bytes` raises."""
        return _plain(source, stream.offset, stream.length, self.codec, _MOST_STREAM)


def _type(message: "Message") -> OrcType:
    names = tuple(name.decode("utf-8", "replace") for name in message.all(3))
    return OrcType(kind=message.number(1), children=tuple(message.numbers(2)), names=names)


def _statistics(footer: "Message") -> Iterator[tuple[int, tuple[int, int]]]:
    """The bounds of each timestamp column in milliseconds."""
    for column, statistics in enumerate(footer.all(7)):
        of_timestamps = Message(statistics).data(9)
        if not of_timestamps:
            continue
        bounds = Message(of_timestamps)
        # Bounds are in UTC (fields 3 and 4) or in the writer's zone (fields 1 and 2). These two
        # differ by at most a day. The caller allows for that.
        for low, high in ((3, 4), (1, 2)):
            if {low, high} <= bounds.fields.keys():
                yield column, (unzigzag(bounds.number(low)), unzigzag(bounds.number(high)))
                break


def _read_at(source: Any, offset: int, length: int) -> bytes:
    if offset < 0 or length < 0 or offset + length > source.size():
        raise FormatError("it is cut off or damaged")
    source.seek(offset)
    data: bytes = source.read(length)
    if len(data) != length:
        raise FormatError("it is cut off")
    return data


def _plain(source: Any, offset: int, length: int, codec: str, most: int) -> bytes:
    if length > most:
        raise FormatError(f"a part of it claims {length:,} bytes")
    return plain_bytes(_read_at(source, offset, length), codec, most)


def plain_bytes(data: bytes, codec: str, most: int) -> bytes:
    """The plain bytes of a stream or footer, which consists of chunks. `most` limits how many plain
    bytes are returned. Raises `FormatError`, and `UnsupportedFeature` for a compressed chunk whose
    codec is not read here.
    """
    if codec == "null":
        return data
    parts = []
    remaining = most
    at = 0
    while at < len(data):
        # The header of a chunk holds the length of the chunk. Its lowest bit says whether the chunk
        # is plain.
        header = int.from_bytes(data[at : at + _CHUNK_HEADER], "little")
        length = header >> 1
        is_plain = header & 1
        at += _CHUNK_HEADER
        chunk = data[at : at + length]
        if len(chunk) != length:
            raise FormatError("a chunk in it is cut off")
        at += length
        plain = chunk if is_plain else _decompressed(codec, chunk)
        parts.append(plain)
        remaining -= len(plain)
        if remaining < 0:
            raise FormatError("a part of it decompresses to more than it can hold")
    return b"".join(parts)


def _decompressed(codec: str, chunk: bytes) -> bytes:
    try:
        return decompressed(codec, chunk, _MOST_CHUNK)
    except ValueError as wrong:
        raise FormatError(f"a chunk in it {wrong}") from None
    except LookupError:
        raise UnsupportedFeature(f"its timestamps are compressed with {codec}") from None


class Message(ByteCursor):
    """The fields of a protobuf message by number, undecoded. Raises `FormatError` if the bytes are
    not such a message.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.fields: dict[int, list[int | bytes]] = {}
        while self.at < len(data):
            tag = self.varint()
            self.fields.setdefault(tag >> 3, []).append(self._value(tag & 7))

    def _value(self, kind: int) -> int | bytes:
        """The next value of the message, which has this wire type of protobuf."""
        match kind:
            case 0:
                return self.varint()
            case 1:
                return self.take(8)
            case 5:
                return self.take(4)
            case 2:
                return self.take(self.varint())
        raise FormatError(self.damaged)

    def number(self, field: int) -> int:
        """The last value of a number field; 0 if there is none."""
        value = self.fields.get(field, [0])[-1]
        if not isinstance(value, int):
            raise FormatError(self.damaged)
        return value

    def data(self, field: int) -> bytes:
        """The last value of a text or message field; empty if there is none."""
        return self.all(field)[-1] if field in self.fields else b""

    def all(self, field: int) -> Sequence[bytes]:
        """The values of a repeated text or message field."""
        values = self.fields.get(field, [])
        data = [value for value in values if isinstance(value, bytes)]
        if len(data) != len(values):
            raise FormatError(self.damaged)
        return data

    def numbers(self, field: int) -> list[int]:
        """The values of a repeated number field, packed or not."""
        numbers = []
        for value in self.fields.get(field, []):
            if isinstance(value, int):
                numbers.append(value)
            else:
                numbers += ByteCursor(value).varints()
        return numbers
