"""What we persist ourselves, as values: the files in `<folder>/own` are their bytes.

Never change a value here: a release that persists something new adds values, and makes a folder of
its own. `Values` says what a folder has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import pyarrow as pa

from paimon_stream.api.table import PaimonTable
from paimon_stream.commit.report import CommitReport
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import HASH, DataFileMeta, FileSource, IndexFileMeta, SimpleStats
from paimon_stream.format.snapshot_json import CommitKind, Snapshot, SnapshotId, SnapshotRef
from paimon_stream.format.snapshot_marks import RECOMMITTED_MARK, VERSION_MARK
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.maintenance.branches import create_branch, delete_branch
from paimon_stream.maintenance.expiring import ExpiringNotes
from paimon_stream.maintenance.tags import create_tag
from paimon_stream.runtime import simulated
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import branch_folder, branch_note, branch_storage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.stream.batch_summary import BatchSummary, previous_commit
from paimon_stream.stream.claims import Claims
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.table.journal import Journal, JournalEntry, PreviousBatch
from paimon_stream.table.removals import RemovalNotes, Removed
from paimon_stream.table.table import Table, create_table
from tests.kits.faults import Fault, FaultyStorage, Killed

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

SUMMARY: Final = BatchSummary(
    files=3, rows=120, bytes=3702, partitions=2, buckets=3, write_millis=812, reused=1
)

# -- since 0.1.0-2026-11 --------------------------------------------------------------------------

WHOLE_FILE: Final = _file(
    "data-bbbbbbbb-cccc-4ddd-8eee-ffffffffffff-0.parquet",
    extra_files=("data-bbbbbbbb-cccc-4ddd-8eee-ffffffffffff-0.parquet.index",),
    embedded_file_index=b"index",
    value_stats_cols=("id", "n"),
    external_path="s3://elsewhere/data-bbbbbbbb-cccc-4ddd-8eee-ffffffffffff-0.parquet",
    first_row_id=1200,
    write_cols=("id", "n"),
    level=0,
)
"""A data file with everything that a message can say of one."""

INDEXED: Final = replace(
    KEYED,
    new_files=(*KEYED.new_files, WHOLE_FILE),
    changelog_files=(_file("changelog-12121212-3434-4565-8787-909090909090-0.parquet"),),
    new_index_files=(
        IndexFileMeta(
            index_type=HASH,
            file_name="index-6f1c4c2e-6a1d-4b8e-9a27-0c5c1f0c9d11-1",
            file_size=160,
            row_count=40,
        ),
    ),
)
"""What a stream writes to a dynamic bucket of a table with a changelog."""

AFTER_A_GAP: Final = replace(
    FIRST,
    batch_id=5,
    messages=(INDEXED,),
    base=BASE,
    newest=SnapshotRef(id=17, nonce="manifest-list-0d9c8b7a-6f5e-4d3c-8b2a-190817263544-1"),
    previous=PreviousBatch(batch_id=4, snapshot=BASE),
)
"""When it was judged, snapshots after its base had expired."""

OF_SINK: Final = replace(IDENTITY, user=f"{IDENTITY.user}_first")
"""The first of two sinks of one query."""

BRANCH: Final = "dev"
TAG: Final = "v1"
ROLLED_BACK: Final = ("manifest-list-c-1", "manifest-list-b-1", "manifest-list-a-1")
"""The nonces of snapshots that rollbacks have removed, the newest first. They are noted in two
steps.
"""

EXPIRING: Final = Snapshot(
    id=SnapshotId(3),
    schema_id=0,
    base_manifest_list="manifest-list-3-0",
    base_manifest_list_size=1120,
    delta_manifest_list="manifest-list-3-1",
    delta_manifest_list_size=1121,
    commit_user=IDENTITY.user,
    commit_identifier=2,
    commit_kind=CommitKind.APPEND,
    time_millis=MILLIS,
    total_record_count=120,
    delta_record_count=40,
    properties=IDENTITY.properties(2, FIRST.offsets_hash),
)
FOLLOWING: Final = replace(
    EXPIRING, id=SnapshotId(4), delta_manifest_list=BASE.nonce, commit_identifier=3
)

REPORT: Final = CommitReport(
    location="/data/t",
    user=IDENTITY.user,
    identifier=7,
    outcome="committed",
    attempts=2,
    phases={"judge": 5.4, "write": 210.0, "journal": 3.0, "base-read": 1.2, "staged": 12.0},
    compact_failed="another writer has compacted these files",
)
PREVIOUS: Final = {
    "batch": 7,
    "attempts": 2,
    "conflicts": 2,
    "judge": 5,
    "write": 210,
    "journal": 3,
    "base-read": 1,
    "staged": 12,
}


def table_with_killed_branches() -> Table:
    """A table in memory. Making the branch `made`, making `made-of-tag` and deleting `gone` were
    killed.
    """
    storage = MemoryStorage()
    table = create_table(storage, [DataField(id=0, name="id", type=parse_type("BIGINT"))])
    assert table is not None
    PaimonTable(table).append(pa.table({"id": [1]}))
    create_tag(table, TAG)
    create_branch(table, "gone")
    for name, call in (
        ("made", create_branch),
        ("made-of-tag", partial(create_branch, tag=TAG)),
        ("gone", delete_branch),
    ):
        killed = Fault(at=1, path=branch_folder(name), stop=True)
        with suppress(Killed):
            call(replace(table, storage=FaultyStorage(storage, [killed])), name)
        assert storage.exists(branch_note(name)), name
    return table


# -- what a folder has -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Values:
    """The values that are persisted. `branches` are those whose making or deletion was killed, each
    with what its note says. `of_branch` are the values in the branch `BRANCH`.
    """

    entries: Mapping[str, Sequence[JournalEntry]]
    registered: Sequence[tuple[WriterIdentity, str, int | None]]
    rolled_back: Sequence[str] = ()
    expiring: Sequence[tuple[Snapshot, Snapshot]] = ()
    branches: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    of_branch: Values | None = None

    def write(self, storage: Storage) -> None:
        """Writes all of it but the properties, as sinks and maintenance do."""
        for identity, digest, journal_since in self.registered:
            claims = Claims(storage, identity)
            claims.acquire()
            claims.register(digest, journal_since)
        for user, entries in self.entries.items():
            for entry in entries:
                Journal(storage, user).write(entry)
        if self.rolled_back:
            notes = RemovalNotes(storage, simulated(0), "rollback", BASE)
            notes.announce(
                [
                    Removed(
                        snapshot=SnapshotRef(id=BASE.id + 1, nonce=nonce),
                        user=IDENTITY.user,
                        identifier=8,
                    )
                    for nonce in self.rolled_back
                ]
            )
            notes.complete()
        for oldest, following in self.expiring:
            ExpiringNotes(storage).write(oldest, following)
        for name in self.branches:
            storage.write(
                branch_note(name), table_with_killed_branches().storage.read(branch_note(name))
            )
        if self.of_branch is not None:
            self.of_branch.write(branch_storage(storage, BRANCH))


_ENTRIES: Final = {
    IDENTITY.user: (SECOND_ATTEMPT, OVERWRITE),
    "first": (FIRST,),
    ODD.user: (UNKNOWN,),
}
_REGISTERED: Final = ((IDENTITY, FIRST.schema_digest, 3), (ODD, FIRST.schema_digest, None))
_PROPERTIES: Final = {
    "all": {**SUMMARY.properties(), **IDENTITY.properties(8, SECOND_ATTEMPT.offsets_hash)},
    "least": {**BatchSummary().properties(), **ODD.properties(0, None)},
}
_OF_0_1_0: Final = Values(entries=_ENTRIES, registered=_REGISTERED, properties=_PROPERTIES)
NEWEST: Final = Values(
    entries={**_ENTRIES, OF_SINK.user: (AFTER_A_GAP,)},
    registered=(*_REGISTERED, (OF_SINK, FIRST.schema_digest, 5)),
    rolled_back=ROLLED_BACK,
    expiring=((EXPIRING, FOLLOWING),),
    branches={"made": "create", "made-of-tag": f"create from {TAG}", "gone": "delete"},
    properties={
        **_PROPERTIES,
        "previous": previous_commit(REPORT, conflicts=1),
        "recommitted": {**IDENTITY.properties(8, None), RECOMMITTED_MARK: BASE.nonce},
        "batch": {VERSION_MARK: "0.1.0"},
    },
    of_branch=Values(
        entries={IDENTITY.user: (AFTER_A_GAP,)},
        registered=((IDENTITY, FIRST.schema_digest, 4),),
        rolled_back=ROLLED_BACK,
    ),
)
OF_FOLDER: Final = {"0.1.0": _OF_0_1_0, "0.1.0-2026-11": NEWEST}
