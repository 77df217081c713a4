"""The entries of a manifest as rows of values, decoded from a block of Avro bytes whose schema is
Java's (format.md §4.4, https://avro.apache.org/docs/1.11.1/specification/#binary-encoding).

A generic reader makes a dictionary of every record. The schema that Java writes is fixed, so one
function reads its fields in order, and compares those that rarely change with the bytes of the
entry before.

Invariant: `read_entries` returns what a generic reader returns, or raises `ValueError` or
`IndexError` (the bytes do not fit the schema, use an allowed but unusual encoding, or have another
version). The caller then reads the block with the generic reader, which judges it.
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
_CHEAPER: Final = 8
"""As many null counts are read at once if they are equal, as most are, and count as this part of
their bytes.
"""


def read_entries(
    data: bytes,
    count: int,
    version: int,
    wants: Callable[[bytes], bool] | None,
    spend: Callable[[int], None],
) -> list[tuple[Any, ...]]:
    """The values at `PATHS` of the `count` entries of a block; `wants` limits them by their
    partition. `spend` is called with the bytes of the arrays and raises if there are too many.
    """
    at = 0

    def number() -> int:
        nonlocal at
        byte = data[at]
        at += 1
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1)
        left, shift = byte & 0x7F, 7
        while (byte := data[at]) > 0x7F:
            left |= (byte & 0x7F) << shift
            shift += 7
            at += 1
            if shift > 63:
                raise ValueError
        at += 1
        left |= byte << shift
        if left >> 64:
            raise ValueError
        return (left >> 1) ^ -(left & 1)

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
        if (
            size < 0
        ):  # after a negative count comes the size of the block in bytes, which is unusual
            raise ValueError
        return size

    def texts() -> list[str]:
        made: list[str] = []
        while size := size_of_array():
            spend(size)
            start = at
            made += [text() for _ in range(size)]
            spend(at - start)
        return made

    def null_counts() -> list[int | None] | None:
        nonlocal at
        branch = number()
        if branch not in (0, 1):
            raise ValueError
        if not branch:
            return None
        made: list[int | None] = []
        while left := size_of_array():
            spent = 0
            while left:
                start, value = at, None
                branch = data[at]
                at += 1
                if branch == 2:
                    value = number()
                elif branch:
                    raise ValueError
                made.append(value)
                left -= 1
                spent += at - start
                same = data[start:at] * _RUN if left >= _RUN else b""
                while left >= _RUN and data.startswith(same, at):
                    at += len(same)
                    made += [value] * _RUN
                    left -= _RUN
                    spent += len(same) // _CHEAPER
                if spent > _RUN:
                    spend(spent)
                    spent = 0
            spend(spent)
        return made

    rows = []
    place: tuple[Any, ...] = ()
    nulls: list[int | None] | None = None
    keys: tuple[Any, ...] = ()
    middle: tuple[Any, ...] = ()
    tail: tuple[Any, ...] = ()
    place_bytes = key_bytes = null_bytes = middle_bytes = tail_bytes = (
        b"\xff" * 20
    )  # matches no field
    for _ in range(count):
        if data.startswith(place_bytes, at):
            at += len(place_bytes)
        else:
            start = at
            if number() != version:
                raise ValueError
            kind, partition = number(), piece()
            place = partition, kind, number(), number()
            place_bytes = data[start:at]
        name, size, row_count = piece(), number(), number()
        if data.startswith(key_bytes, at):
            at += len(key_bytes)
        else:
            start = at
            keys = piece(), piece(), piece(), piece(), null_counts()
            key_bytes = data[start:at]
        low, high = piece(), piece()
        if data.startswith(null_bytes, at):
            at += len(null_bytes)
        else:
            start = at
            nulls = null_counts()
            null_bytes = data[start:at]
        first, last = number(), number()
        if data.startswith(middle_bytes, at):
            at += len(middle_bytes)
        else:
            start = at
            middle = number(), number(), texts()
            middle_bytes = data[start:at]
        created = optional(number)
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
        if wants is None or wants(place[0]):
            head = *place, name.decode(), size, row_count
            rows.append((*head, *keys, low, high, nulls, first, last, *middle, created, *tail))
    if at != len(data):
        raise ValueError
    return rows
