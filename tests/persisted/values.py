"""What we persist ourselves, as values: the files in `<version>/own` are their bytes.

Never change a value here: a release that persists something new adds values, and makes a folder of
    its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from paimon_stream.format.binary_row import serialize
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import DataFileMeta, FileSource, SimpleStats
from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.format.types import parse_type
from paimon_stream.storage.base import Storage
from paimon_stream.stream.claims import BatchSummary, Claims, WriterIdentity
from paimon_stream.table.journal import Journal, JournalEntry, PreviousBatch

MILLIS: Final = 1_700_000_000_000
BASE: Final = SnapshotRef(id=4, nonce="manifest-list-6f1c4c2e-6a1d-4b8e-9a27-0c5c1f0c9d11-1")
EMPTY: Final = serialize([], [])

IDENTITY: Final = WriterIdentity(
    user="paimon-stream_0b6f3a52-5a0e-4d5e-8e57-9d8c1c1f6a10",
    query_id="0b6f3a52-5a0e-4d5e-8e57-9d8c1c1f6a10",
    run_id="7c2d9a4e-1f63-4e0b-8a55-2d6b7f0e3c21",
    checkpoint="/data/checkpoints/orders",
    query_name="Bestellungen für Zürich",
    token="e1a3c5f7-0b2d-4c6e-8f9a-1b3d5f7a9c0e",
)
ODD: Final = WriterIdentity(
    user="a/b ü.%", query_id=None, run_id=None, token="2f4a6c8e-1b3d-4f5a-9c7e-0d2b4f6a8c1e"
)
"""A user whose name is no file name, of whom Spark said nothing."""


def _file(name: str, **more: object) -> DataFileMeta:
    values: dict[str, object] = {
        "file_name": name,
        "file_size": 1234,
        "row_count": 40,
        "value_stats": SimpleStats(
            min_values=serialize([parse_type("BIGINT")], [1]),
            max_values=serialize([parse_type("BIGINT")], [40]),
            null_counts=(0,),
        ),
        "min_sequence_number": 0,
        "max_sequence_number": 39,
        "schema_id": 2,
        "creation_time": MILLIS,
        **more,
    }
    return DataFileMeta(**values)  # type: ignore[arg-type]


APPENDED: Final = CommitMessage(
    partition=serialize([parse_type("STRING")], ["d1"]),
    bucket=1,
    total_buckets=2,
    new_files=(
        _file("data-11111111-2222-4333-8444-555555555555-0.parquet", file_source=FileSource.APPEND),
    ),
)
KEYED: Final = CommitMessage(
    partition=EMPTY,
    bucket=0,
    total_buckets=1,
    new_files=(
        _file(
            "data-66666666-7777-4888-9999-aaaaaaaaaaaa-0.parquet",
            min_key=serialize([parse_type("BIGINT")], [1]),
            max_key=serialize([parse_type("BIGINT")], [40]),
            key_stats=SimpleStats(
                min_values=serialize([parse_type("BIGINT")], [1]),
                max_values=serialize([parse_type("BIGINT")], [40]),
                null_counts=(0,),
            ),
            min_sequence_number=100,
            max_sequence_number=139,
            delete_row_count=3,
            file_source=FileSource.APPEND,
        ),
    ),
)

FIRST: Final = JournalEntry(
    batch_id=0,
    messages=(APPENDED,),
    stage_uuids=("0f0e0d0c-0b0a-4908-8706-050403020100",),
    query_id=IDENTITY.query_id,
    run_id=IDENTITY.run_id,
    checkpoint=IDENTITY.checkpoint,
    query_name=IDENTITY.query_name,
    offsets_hash="9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    schema_digest="2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
    schema_id=2,
    total_buckets=2,
    base=None,
    previous=None,
    prepared_millis=MILLIS,
)
SECOND_ATTEMPT: Final = replace(
    FIRST,
    batch_id=8,
    messages=(KEYED, APPENDED),
    stage_uuids=("f0e0d0c0-b0a0-4980-8760-504030201000", *FIRST.stage_uuids),
    abandoned=("day=d1/bucket-1/data-dead-0.parquet", "day=ü/bucket-0/data-dead-1.parquet"),
    base=BASE,
    previous=PreviousBatch(batch_id=7, snapshot=BASE),
)
OVERWRITE: Final = replace(
    FIRST,
    batch_id=9,
    messages=(),
    base=BASE,
    previous=PreviousBatch(batch_id=8, snapshot=BASE),
    overwrites=True,
)
UNKNOWN: Final = replace(
    FIRST,
    batch_id=0,
    query_id=None,
    run_id=None,
    checkpoint=None,
    query_name=None,
    offsets_hash=None,
)

ENTRIES: Final = {
    IDENTITY.user: (SECOND_ATTEMPT, OVERWRITE),
    "first": (FIRST,),
    ODD.user: (UNKNOWN,),
}
REGISTERED: Final = ((IDENTITY, FIRST.schema_digest, 3), (ODD, FIRST.schema_digest, None))
SUMMARY: Final = BatchSummary(
    files=3, rows=120, bytes=3702, partitions=2, buckets=3, write_millis=812, reused=1
)


def persist(storage: Storage) -> None:
    """Writes all of it into the storage, as a sink does."""
    for identity, digest, journal_since in REGISTERED:
        claims = Claims(storage, identity)
        claims.acquire()
        claims.register(digest, journal_since)
    for user, entries in ENTRIES.items():
        for entry in entries:
            Journal(storage, user).write(entry)


def properties() -> dict[str, dict[str, str]]:
    """The properties of two snapshots: with everything that a stream knows, and with the least."""
    return {
        "all": {**SUMMARY.properties(), **IDENTITY.properties(8, SECOND_ATTEMPT.offsets_hash)},
        "least": {**BatchSummary().properties(), **ODD.properties(0, None)},
    }
