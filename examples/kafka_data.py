"""The records that `kafka.py` sends: events as JSON, and some records that are none."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa

EVENTS = 12_000
DAYS = 10
PER_BATCH = 2_500
_BAD = 100
"""After this number of events comes a record that is no event."""

ARROW_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("user", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
    ]
)
"""The columns of an event in the table, without its place in Kafka."""

REJECTED = (
    None,
    b"",
    b"not JSON",
    b'{"id": 1, "at": "2026-11-20T10:00:00Z"',
    b'{"id": "one", "at": "2026-11-20T10:00:00Z"}',
    b'{"id": 1, "at": "soon"}',
    b'{"id": 1, "amount": 123456789012, "at": "2026-11-20T10:00:00Z"}',
    b'{"user": "ann", "at": "2026-11-20T10:00:00Z"}',
    b'{"id": 1}',
    b"{}",
    b"null",
    b'[{"id": 1, "at": "2026-11-20T10:00:00Z"}]',
    b'{"id": 1, "at": "2026-11-20T10:00:00Z"}\n{"id": 2, "at": "2026-11-20T10:00:00Z"}',
    b"\x00\x00\x00\x00\x01Avro",
    b"\xff\xfe",
    b'{"at": "2026-11-20T10:00:00Z", "id": 1, "user": "\xff"}',
    b'{"id": 1, "at": "2026-11-20T10:00:00Z"}} and more',
    b'{"id": 1, "at": "2026-11-20T10:00:00Z", "id": 2}',
)
"""Values of records that are no events."""


def event(number: int) -> dict[str, object]:
    """An event, as the table must have it. It comes in the order of its time."""
    at = dt.datetime(2026, 11, 1, tzinfo=dt.timezone.utc)
    at += dt.timedelta(seconds=number * (DAYS * 86_400 // EVENTS))
    amount = Decimal(number * 37 % 1_000_000) / 100
    user = f"user {number % 977}" if number % 13 else None
    return {"id": number, "user": user, "amount": amount, "at": at, "day": at.date()}


def events() -> pa.Table:
    """All events, as the table must have them."""
    return pa.Table.from_pylist([event(number) for number in range(EVENTS)], ARROW_SCHEMA)


def records() -> Iterator[tuple[bytes | None, bytes | None]]:
    """The key and the value of each record, in the order in which they are sent."""
    for row in events().to_pylist():
        sent = {
            "id": row["id"],
            "user": row["user"],
            "amount": float(row["amount"]),
            "at": row["at"].isoformat(),
        }
        yield str(row["user"]).encode(), json.dumps(sent).encode()
        if row["id"] % _BAD == 0:
            yield None, REJECTED[row["id"] // _BAD % len(REJECTED)]
