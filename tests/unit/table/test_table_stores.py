"""Schemas and snapshots in storage: hints, gaps, half-written and foreign files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from paimon_stream.errors import CorruptMetadata, NotFound, PermissionDenied, UnknownVersion
from paimon_stream.format.schema_json import TableSchema, encode_schema
from paimon_stream.format.snapshot_json import CommitKind, Snapshot, SnapshotId, encode_snapshot
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.runtime import SimulatedClock, simulated
from paimon_stream.storage.base import PutResult
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from tests.kits.faults import Fault, FaultyStorage

SCHEMA = TableSchema(
    id=0, fields=(DataField(id=0, name="a", type=parse_type("INT")),), highest_field_id=0
)


def snapshot(snapshot_id: int, user: str = "me") -> Snapshot:
    return Snapshot(
        id=SnapshotId(snapshot_id),
        schema_id=0,
        base_manifest_list=f"base-{snapshot_id}",
        delta_manifest_list=f"delta-{user}-{snapshot_id}",
        commit_user=user,
        commit_identifier=snapshot_id,
        commit_kind=CommitKind.APPEND,
        time_millis=0,
        total_record_count=0,
        delta_record_count=0,
    )


def table_of(*ids: int, latest: str | None = None, earliest: str | None = None) -> MemoryStorage:
    storage = MemoryStorage()
    for snapshot_id in ids:
        storage.write(f"snapshot/snapshot-{snapshot_id}", encode_snapshot(snapshot(snapshot_id)))
    for name, text in (("LATEST", latest), ("EARLIEST", earliest)):
        if text is not None:
            storage.write(f"snapshot/{name}", text.encode())
    return storage


def store_of(storage: MemoryStorage) -> SnapshotStore:
    return SnapshotStore(storage, simulated(1))


# -- schemas --------------------------------------------------------------------------------------


def test_a_missing_table_is_named_with_its_cure() -> None:
    storage = MemoryStorage()
    for ask in (SchemaStore(storage).latest, SchemaStore(storage).first_digest):
        with pytest.raises(NotFound, match=r"no Paimon table at .*PaimonTable\.create") as caught:
            ask()
        assert caught.value.context["table"] == storage.location
    assert SchemaStore(storage).latest_id() is None


def test_the_first_schema_is_created_once() -> None:
    storage = MemoryStorage()
    schemas = SchemaStore(storage)
    assert schemas.create(SCHEMA)
    assert not schemas.create(replace(SCHEMA, comment="another"))
    assert schemas.latest() == SCHEMA


def test_the_newest_schema_has_the_largest_id_not_the_last_name() -> None:
    storage = MemoryStorage()
    for schema_id in range(11):
        storage.write(f"schema/schema-{schema_id}", encode_schema(replace(SCHEMA, id=schema_id)))
    storage.write("schema/schema-99.tmp", b"not a schema")
    storage.write("schema/schema-x", b"nor this")
    assert SchemaStore(storage).latest().id == 10


def test_the_digest_is_that_of_schema_0() -> None:
    storage = MemoryStorage()
    schemas = SchemaStore(storage)
    schemas.create(SCHEMA)
    digest = schemas.first_digest()
    assert digest == hashlib.sha256(encode_schema(SCHEMA)).hexdigest()
    storage.write("schema/schema-1", encode_schema(replace(SCHEMA, id=1)))
    assert schemas.first_digest() == digest
    storage.write("schema/schema-0", encode_schema(replace(SCHEMA, time_millis=5)))
    assert schemas.first_digest() != digest


def test_missing_broken_and_misplaced_schemas_are_corrupt() -> None:
    storage = MemoryStorage()
    schemas = SchemaStore(storage)
    storage.write("schema/schema-1", encode_schema(SCHEMA))
    storage.write("schema/schema-2", encode_schema(SCHEMA)[:40])
    for ask in (lambda: schemas.get(0), schemas.first_digest):
        with pytest.raises(CorruptMetadata, match=r"schema-0 is missing.*backup"):
            ask()
    with pytest.raises(CorruptMetadata, match="schema-1 holds schema 0"):
        schemas.get(1)
    with pytest.raises(CorruptMetadata, match=f"{storage.location}/schema/schema-2"):
        schemas.latest()


# -- the newest snapshot (R2.1) -------------------------------------------------------------------


def test_an_empty_table_has_no_snapshot() -> None:
    store = store_of(MemoryStorage())
    assert (store.latest(), store.latest_id(), store.earliest_id(), store.ids()) == (
        None,
        None,
        None,
        [],
    )
    assert list(store.walk_down(3)) == []


@pytest.mark.parametrize(
    ("ids", "hint", "newest"),
    [
        ((1, 2, 3), "3", 3),
        ((1, 2, 3), " 3\n", 3),
        ((1, 2, 3), None, 3),
        ((1, 2, 3), "2", 3),
        ((1, 2, 3), "abc", 3),
        ((1, 2, 3), "", 3),
        ((1, 2, 3), "0", 3),
        ((1, 2, 3), "-1", 3),
        ((1, 2, 3), "9" * 40, 3),
        ((1, 2, 3), "999", 3),  # Java believes it and fails
        ((5, 6, 7), "1", 7),  # so here, after expiry
        ((9, 10), "9", 10),
        ((8, 9, 10, 11), None, 11),
    ],
)
def test_the_newest_snapshot_is_found_whatever_the_hint_says(
    ids: tuple[int, ...], hint: str | None, newest: int
) -> None:
    store = store_of(table_of(*ids, latest=hint))
    found = store.latest()
    assert found is not None and found.id == newest
    assert store.latest_id() == newest


def verbs(storage: FaultyStorage, ask: Callable[[], object]) -> list[str]:
    """The verbs of the operations that a call makes."""
    before = len(storage.operations)
    ask()
    return [operation.verb for operation in storage.operations[before:]]


def test_a_proven_hint_saves_the_listing() -> None:
    storage = FaultyStorage(table_of(1, 2, 3, latest="3"))
    store = SnapshotStore(storage, simulated(1))
    assert verbs(storage, store.latest) == ["read", "list_files", "read"], (
        "nothing proves the first hint"
    )
    assert verbs(storage, store.latest) == ["stat", "read"], (
        "the newest known one stands, and none follows"
    )


def test_a_hint_is_proven_over_what_others_commit_while_the_snapshot_we_know_stands() -> None:
    storage = FaultyStorage(table_of(1, 2, 3, latest="3"))
    store = SnapshotStore(storage, simulated(1))
    store.latest()
    for id_ in (4, 5):
        storage.inner.write(f"snapshot/snapshot-{id_}", encode_snapshot(snapshot(id_)))
    storage.inner.write("snapshot/LATEST", b"5")
    assert verbs(storage, store.latest) == ["stat", "read", "read", "stat", "read", "read"]
    assert store.latest_id() == 5


@pytest.mark.parametrize("hint", ["5", "2", "99", "x", None])
def test_a_hint_to_an_expired_snapshot_that_was_created_again_is_never_believed(
    hint: str | None,
) -> None:
    storage = table_of(*range(11, 21), latest="20")
    store = store_of(storage)
    assert store.latest_id() == 20
    storage.write("snapshot/snapshot-5", encode_snapshot(snapshot(5)))
    if hint is None:
        storage.delete("snapshot/LATEST")
    else:
        storage.write("snapshot/LATEST", hint.encode())
    assert store.latest_id() == 20, "known to a store that has looked before"
    assert store_of(storage).latest_id() == 20, "found by a new one"


def test_a_hint_above_a_snapshot_that_has_expired_since_is_not_believed() -> None:
    storage = table_of(11, latest="11")
    store = store_of(storage)
    assert store.latest_id() == 11
    for id_ in (15, *range(18, 21)):  # 12 to 17 came and went, and 15 was created again
        storage.write(f"snapshot/snapshot-{id_}", encode_snapshot(snapshot(id_)))
    storage.delete("snapshot/snapshot-11")
    storage.write("snapshot/LATEST", b"15")
    assert store.latest_id() == 20


def test_a_hint_to_a_snapshot_that_was_rolled_back_and_written_again_is_looked_up() -> None:
    storage = FaultyStorage(table_of(1, 2, 3, latest="3"))
    store = SnapshotStore(storage, simulated(1))
    store.latest()
    storage.inner.write("snapshot/snapshot-3", encode_snapshot(snapshot(3, "another")))
    assert "list_files" in verbs(storage, store.latest)
    assert "list_files" not in verbs(storage, store.latest)


def test_the_snapshots_are_listed_again_after_many_hints() -> None:
    storage = FaultyStorage(table_of(1, 2, latest="2"))
    store = SnapshotStore(storage, simulated(1))
    listed = ["list_files" in verbs(storage, store.latest) for _ in range(600)]
    assert [at for at, once in enumerate(listed) if once] == [0, 257, 514]


def test_a_stale_hint_that_other_engines_believe_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = table_of(5, *range(11, 21), latest="5")
    store = store_of(storage)
    for _ in range(3):
        store.latest()
    (record,) = caplog.records
    assert "LATEST names snapshot 5, but snapshot 20 is the newest" in record.message
    assert "repair-hints" in record.message


def test_a_listing_that_overlooks_a_new_snapshot_makes_no_hint_stale(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A folder is not listed in one moment. With many writers, a file may be missing and the next
    one be there.
    """

    class Overlooking(MemoryStorage):
        def list_names(self, folder: str, prefix: str = "") -> list[str]:
            return [one for one in super().list_names(folder, prefix) if one != "snapshot-19"]

    storage = Overlooking()
    for snapshot_id in range(11, 21):
        storage.write(f"snapshot/snapshot-{snapshot_id}", encode_snapshot(snapshot(snapshot_id)))
    storage.write("snapshot/LATEST", b"18")
    assert store_of(storage).latest_id() == 20
    assert caplog.records == []


@pytest.mark.parametrize("hint", ["20", "19", "3", "99", "x", None])
def test_a_hint_that_misleads_nobody_is_not_reported(
    hint: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    store_of(table_of(*range(11, 21), latest=hint)).latest()
    assert caplog.records == []


@pytest.mark.parametrize(("hint", "oldest"), [("4", 4), ("2", 4), (None, 4), ("x", 4), ("5", 5)])
def test_the_oldest_snapshot_is_found(hint: str | None, oldest: int) -> None:
    assert store_of(table_of(4, 5, 6, earliest=hint)).earliest_id() == oldest


def test_an_unreadable_hint_is_no_hint_but_an_unreadable_snapshot_is_an_error() -> None:
    storage = FaultyStorage(table_of(1, 2, latest="1"), [Fault(at=1, error=PermissionDenied)])
    found = SnapshotStore(storage, simulated(1)).latest()
    assert found is not None and found.id == 2
    storage = FaultyStorage(table_of(1, 2, latest="2"), [Fault(at=2, error=PermissionDenied)])
    with pytest.raises(PermissionDenied):
        SnapshotStore(storage, simulated(1)).latest()


# -- reading --------------------------------------------------------------------------------------


def test_a_snapshot_that_is_not_there_is_corrupt_or_none() -> None:
    store = store_of(table_of(3))
    assert store.find(2) is None and store.raw(2) is None
    with pytest.raises(CorruptMetadata, match=r"Snapshot 2 does not exist .*snapshot-2") as caught:
        store.get(2)
    assert caught.value.context["snapshot"] == 2


def test_a_half_written_snapshot_is_read_again_until_it_is_whole() -> None:
    storage = table_of(1)
    whole = storage.read("snapshot/snapshot-1")
    storage.write("snapshot/snapshot-1", whole[: len(whole) // 2])

    class Completing(SimulatedClock):
        def sleep(self, seconds: float) -> None:
            SimulatedClock.sleep(self, seconds)
            if self.millis >= start + 600:
                storage.write("snapshot/snapshot-1", whole)

    clock = Completing()
    start = clock.millis
    assert SnapshotStore(storage, simulated(1, clock)).get(1) == snapshot(1)
    assert clock.millis - start == 600


@pytest.mark.parametrize("content", [b"", b"{", b'{"version": 3}', b"\xff\xfe"])
def test_a_snapshot_that_stays_broken_is_corrupt_after_two_seconds(content: bytes) -> None:
    storage = table_of(1)
    storage.write("snapshot/snapshot-1", content)
    clock = SimulatedClock()
    start = clock.millis
    with pytest.raises(CorruptMetadata, match=f"{storage.location}/snapshot/snapshot-1"):
        SnapshotStore(storage, simulated(1, clock)).get(1)
    assert 1500 <= clock.millis - start <= 2500


def test_a_snapshot_of_a_later_version_fails_at_once() -> None:
    storage = table_of(1)
    storage.write("snapshot/snapshot-1", encode_snapshot(replace(snapshot(1), version=4)))
    clock = SimulatedClock()
    start = clock.millis
    with pytest.raises(UnknownVersion):
        SnapshotStore(storage, simulated(1, clock)).latest()
    assert clock.millis == start


def test_a_snapshot_under_another_name_is_corrupt() -> None:
    storage = table_of(1)
    storage.write("snapshot/snapshot-2", storage.read("snapshot/snapshot-1"))
    store = store_of(storage)
    assert store.get(1) == snapshot(1)
    for _ in range(2):  # parsed, and known
        with pytest.raises(CorruptMetadata, match="snapshot-2 holds snapshot 1"):
            store.latest()


def test_what_is_written_over_a_snapshot_is_seen() -> None:
    storage = table_of(1)
    store = store_of(storage)
    assert store.get(1) == snapshot(1)
    storage.write("snapshot/snapshot-1", encode_snapshot(snapshot(1, "another")))
    assert store.get(1) == snapshot(1, "another")


def test_any_text_may_stand_in_a_snapshot() -> None:
    odd = replace(snapshot(1, 'a "user"\\\n\u2028é'), properties={'k"\t': "ü\\", "": ""})
    storage = MemoryStorage()
    storage.write("snapshot/snapshot-1", encode_snapshot(odd))
    assert store_of(storage).get(1) == odd
    assert json.loads(encode_snapshot(odd))["properties"] == {'k"\t': "ü\\", "": ""}


def test_walking_down_ends_at_the_first_gap() -> None:
    store = store_of(table_of(1, 2, 4, 5, 6))
    assert [one.id for one in store.walk_down(6)] == [6, 5, 4]
    assert [one.id for one in store.walk_down(2)] == [2, 1]
    assert [one.id for one in store.walk_down(7)] == []


@pytest.mark.parametrize(
    ("after", "upto", "ids", "complete"),
    [
        (3, 6, [4, 5, 6], True),
        (0, 2, [1, 2], True),
        (6, 6, [], True),
        (7, 6, [], True),
        (1, 6, [4, 5, 6], False),
        (6, 8, [], False),
        (5, 7, [], False),
    ],
)
def test_a_window_says_whether_it_is_complete(
    after: int, upto: int, ids: list[int], complete: bool
) -> None:
    window = store_of(table_of(1, 2, 4, 5, 6)).window(after, upto)
    assert [one.id for one in window.snapshots] == ids
    assert window.complete is complete


def test_a_walk_from_a_snapshot_that_is_held_does_not_read_it_again() -> None:
    """An engine without a lock may have replaced its file since."""
    storage = table_of(1, 2, 3)
    store = store_of(storage)
    held = store.get(3)
    storage.write("snapshot/snapshot-3", encode_snapshot(snapshot(3, user="another engine")))
    assert list(store.walk_down(held)) == [held, store.get(2), store.get(1)]
    assert store.window(1, held).snapshots == (store.get(2), held)
    assert store.window(2, held).complete and not store.window(3, held).snapshots
    assert store.window(2, 3).snapshots[0].commit_user == "another engine"


# -- writing --------------------------------------------------------------------------------------


def test_a_snapshot_is_published_once() -> None:
    store = store_of(MemoryStorage())
    assert store.create_snapshot(snapshot(1)) is PutResult.CREATED
    assert store.create_snapshot(snapshot(1, user="other")) is PutResult.EXISTS
    assert store.get(1) == snapshot(1)


@pytest.mark.parametrize(
    ("ids", "before", "to", "after"),
    [
        ((1,), None, 1, "1"),
        ((1, 2), "1", 2, "2"),
        ((1, 2, 3), "3", 2, "3"),  # a newer one owns the hint
        ((1, 2, 3), "1", 2, "1"),
        ((1, 2), "2", 3, "2"),  # there is no snapshot 3
        ((2,), "77", 2, "2"),  # a hint to nothing is set right
        ((1, 3), "3", 1, "3"),  # never backwards
        ((1,), "junk", 1, "1"),
    ],
)
def test_the_hint_never_goes_back_nor_to_nothing(
    ids: tuple[int, ...], before: str | None, to: int, after: str
) -> None:
    storage = table_of(*ids, latest=before)
    moved = store_of(storage).write_latest_hint(to)
    assert storage.read("snapshot/LATEST").decode() == after
    assert moved is (after == str(to))


def test_only_the_very_same_bytes_are_removed() -> None:
    storage = table_of(1, 2)
    store = store_of(storage)
    ours = storage.read("snapshot/snapshot-2")
    assert not store.remove_if_equal(2, ours + b" ")
    assert not store.remove_if_equal(3, ours)
    assert store.ids() == [1, 2]
    assert store.remove_if_equal(2, ours)
    assert store.ids() == [1]
