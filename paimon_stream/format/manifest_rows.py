"""Decodes the entries of a manifest as rows of values, from a block of Avro bytes whose schema is
Java's (format.md §4.4, https://avro.apache.org/docs/1.11.1/specification/#binary-encoding).

A generic reader makes a dictionary of every record. The schema that Java writes is fixed, so one
function reads its fields in order. Fields that rarely change are compared with the bytes of the
previous entry. Fields that newer writers have added at the end are skipped, and are kept as bytes.

Invariant: `read_entries` returns what a generic reader returns, or raises `ValueError` or
`IndexError`. It raises these if the bytes do not fit the schema, have an allowed but unusual
encoding, or have another version. After such an error, the caller reads the block with the generic
reader.
"""

from collections.abc import Callable
from typing import Any, Final

PATHS: Final = (
    "_PARTITION",
    "_KIND",
    "_BUCKET",
    "_TOTAL_BUCKETS",
    "_FILE._FILE_NAME",
    "_FILE._FILE_SIZE",
    "_FILE._ROW_COUNT",
    "_FILE._MIN_KEY",
    "_FILE._MAX_KEY",
    "_FILE._KEY_STATS._MIN_VALUES",
    "_FILE._KEY_STATS._MAX_VALUES",
    "_FILE._KEY_STATS._NULL_COUNTS",
    "_FILE._VALUE_STATS._MIN_VALUES",
    "_FILE._VALUE_STATS._MAX_VALUES",
    "_FILE._VALUE_STATS._NULL_COUNTS",
    "_FILE._MIN_SEQUENCE_NUMBER",
    "_FILE._MAX_SEQUENCE_NUMBER",
    "_FILE._SCHEMA_ID",
    "_FILE._LEVEL",
    "_FILE._EXTRA_FILES",
    "_FILE._CREATION_TIME",
    "_FILE._DELETE_ROW_COUNT",
    "_FILE._EMBEDDED_FILE_INDEX",
    "_FILE._FILE_SOURCE",
    "_FILE._VALUE_STATS_COLS",
    "_FILE._EXTERNAL_PATH",
    "_FILE._FIRST_ROW_ID",
    "_FILE._WRITE_COLS",
)
"""The fields of an entry, in the order of a row's values."""

_RUN: Final = 64
"""How many null counts are read at once if they are equal, as most are."""

_CHEAPER: Final = 8
"""Null counts that are read at once spend their bytes divided by this number."""


def read_entries(
    data: bytes,
    count: int,
    version: int,
    wants: Callable[[bytes], bool] | None,
    spend: Callable[[int], None],
    rest: Callable[[bytes, int], int] | None = None,
) -> list[tuple[Any, ...]]:
    """The values at `PATHS` of the entries of a block.

    This is one function, because all its parts move the same position. With a class that has the
    position, and the parts as its methods, decoding took 1.08 times as long.

    Args:
        data: the plain bytes of the block.
        count: how many entries the block has.
        version: the value that `_VERSION` must have.
        wants: says of a partition whether its entries are wanted; None for all.
        spend: counts the bytes of arrays and of unknown fields, and raises if there are too many.
        rest: skips the unknown fields at the end of an entry. Their bytes become the last value of
            the entry's row. None if the entries have no such fields.

    Raises:
        ValueError: the bytes are not such entries in their usual encoding.
        IndexError: the bytes are cut off.
    """
    at = 0

    def number() -> int:
        nonlocal at
        byte = data[at]
        at += 1
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1)
        bits = byte & 0x7F
        shift = 7
        while (byte := data[at]) > 0x7F:
            bits |= (byte & 0x7F) << shift
            shift += 7
            at += 1
            if shift > 63:
                raise ValueError
        at += 1
        bits |= byte << shift
        if bits >> 64:
            raise ValueError
        return (bits >> 1) ^ -(bits & 1)

    def piece() -> bytes:
        nonlocal at
        size = number()
        if size < 0:
            raise ValueError
        at += size
        return data[at - size : at]

    def text() -> str:
        return piece().decode()

    def optional(read: Callable[[], Any]) -> Any:
        branch = number()
        if branch not in (0, 1):
            raise ValueError
        return read() if branch else None

    def size_of_array() -> int:
        size = number()
        # The size of the block in bytes follows a negative count. Java never writes a negative
        # count, so the generic reader handles it.
        if size < 0:
            raise ValueError
        return size

    def texts() -> list[str]:
        values: list[str] = []
        while size := size_of_array():
            spend(size)
            start = at
            values += [text() for _ in range(size)]
            spend(at - start)
        return values

    def null_counts() -> list[int | None] | None:
        nonlocal at
        branch = number()
        if branch not in (0, 1):
            raise ValueError
        if not branch:
            return None
        counts: list[int | None] = []
        while remaining := size_of_array():
            unspent = 0
            while remaining:
                start = at
                value = None
                branch = data[at]
                at += 1
                if branch == 2:
                    value = number()
                elif branch:
                    raise ValueError
                counts.append(value)
                remaining -= 1
                unspent += at - start
                run = data[start:at] * _RUN if remaining >= _RUN else b""
                while remaining >= _RUN and data.startswith(run, at):
                    at += len(run)
                    counts += [value] * _RUN
                    remaining -= _RUN
                    unspent += len(run) // _CHEAPER
                if unspent > _RUN:
                    spend(unspent)
                    unspent = 0
            spend(unspent)
        return counts

    rows = []
    # These are the fields that rarely change, as values and as bytes. The first entry matches none
    # of them, because these bytes are longer than the whole block.
    unmatched = bytes(len(data) + 1)
    place: tuple[Any, ...] = ()
    place_bytes = unmatched
    keys: tuple[Any, ...] = ()
    key_bytes = unmatched
    value_nulls: list[int | None] | None = None
    value_null_bytes = unmatched
    schema_and_level: tuple[Any, ...] = ()
    schema_and_level_bytes = unmatched
    tail: tuple[Any, ...] = ()
    tail_bytes = unmatched
    rests: tuple[bytes, ...] = ()
    for _ in range(count):
        if data.startswith(place_bytes, at):
            at += len(place_bytes)
        else:
            start = at
            if number() != version:
                raise ValueError
            kind = number()
            partition = piece()
            place = partition, kind, number(), number()
            place_bytes = data[start:at]
        name = piece()
        size = number()
        row_count = number()
        if data.startswith(key_bytes, at):
            at += len(key_bytes)
        else:
            start = at
            keys = piece(), piece(), piece(), piece(), null_counts()
            key_bytes = data[start:at]
        low = piece()
        high = piece()
        if data.startswith(value_null_bytes, at):
            at += len(value_null_bytes)
        else:
            start = at
            value_nulls = null_counts()
            value_null_bytes = data[start:at]
        min_sequence_number = number()
        max_sequence_number = number()
        if data.startswith(schema_and_level_bytes, at):
            at += len(schema_and_level_bytes)
        else:
            start = at
            schema_and_level = number(), number(), texts()
            schema_and_level_bytes = data[start:at]
        creation_time = optional(number)
        if data.startswith(tail_bytes, at):
            at += len(tail_bytes)
        else:
            start = at
            tail = (
                optional(number),
                optional(piece),
                optional(number),
                optional(texts),
                optional(text),
                optional(number),
                optional(texts),
            )
            tail_bytes = data[start:at]
        if rest is not None:
            start = at
            at = rest(data, at)
            spend(at - start)
            rests = (data[start:at],)
        if wants is None or wants(place[0]):
            rows.append(
                (
                    *place,
                    name.decode(),
                    size,
                    row_count,
                    *keys,
                    low,
                    high,
                    value_nulls,
                    min_sequence_number,
                    max_sequence_number,
                    *schema_and_level,
                    creation_time,
                    *tail,
                    *rests,
                )
            )
    if at != len(data):
        raise ValueError
    return rows
