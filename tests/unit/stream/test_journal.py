"""The private files beside a table: checksummed text, the journal, claims and registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from paimon_stream.errors import CorruptMetadata, DuplicateWriter, UnknownVersion
from paimon_stream.format.json_text import decode_checksummed, encode_checksummed
from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.storage.together import Request
from paimon_stream.stream.claims import Claims
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.table.journal import (
    Journal,
    PreviousBatch,
    decode_journal_entry,
    encode_journal_entry,
)
from paimon_stream.table.layout import user_folder
from paimon_stream.table.register import registered_writers
from tests.kits.commits import Bench
from tests.kits.faults import Fault, FaultyStorage, Killed
from tests.kits.streams import Stream
from tests.unit.stream.test_ledger import ME, entry

BASE = SnapshotRef(id=4, nonce="manifest-list-a-1")


def test_an_entry_comes_back_as_it_was_written() -> None:
    journal = Journal(MemoryStorage(), "me")
    previous = PreviousBatch(batch_id=2, snapshot=BASE)
    written = entry(
        3, BASE, previous=previous, abandoned=("bucket-0/data-a-0.parquet",), query_name="ü"
    )
    upon_newer = replace(written, newest=SnapshotRef(id=7, nonce="manifest-list-b-1"))
    for one in (written, upon_newer, replace(written, reused_millis=5)):
        journal.write(one)
        assert journal.read(3) == one
    assert journal.read(2) is None


def test_only_an_entry_of_files_that_were_taken_over_has_a_key_that_older_releases_do_not_know() -> (
    None
):
    plain, reused = (
        decode_checksummed("journal", encode_journal_entry(one), "j")
        for one in (entry(3), replace(entry(3), reused_millis=5))
    )
    assert reused.keys() - plain.keys() == {"reusedMillis"}
    assert decode_journal_entry(encode_checksummed("journal", plain), "j").attempted_millis == 0


def test_the_last_two_entries_are_kept() -> None:
    journal = Journal(MemoryStorage(), "me")
    for batch in (0, 1, 2, 5):
        journal.write(entry(batch))
        journal.trim(batch)
    assert journal.batches() == [2, 5]


def test_a_paused_run_that_records_its_batch_late_leaves_the_entries_of_later_ones() -> None:
    storage = MemoryStorage()
    later, paused = Journal(storage, "me"), Journal(storage, "me")
    for batch in (8, 9):
        later.write(entry(batch))
        later.trim(batch)
    paused.write(entry(3))
    paused.trim(3)
    assert later.batches() == [3, 8, 9]
    newest = Journal(storage, "me")
    newest.write(entry(10))
    newest.trim(10)
    assert later.batches() == [9, 10]


def test_users_have_journals_of_their_own_whatever_they_are_called() -> None:
    storage = MemoryStorage()
    users = ["a/b", "..", ".", "a", "ä b", "%2F"]
    for number, user in enumerate(users):
        Journal(storage, user).write(entry(number))
    assert [Journal(storage, user).batches() for user in users] == [[n] for n in range(len(users))]


@pytest.mark.parametrize("place", [0, 20, 45, 200, -3])
def test_a_changed_byte_is_not_believed(place: int) -> None:
    data = bytearray(encode_checksummed("journal", {"a": "x" * 300}))
    data[place] ^= 1
    with pytest.raises((CorruptMetadata, UnknownVersion), match="p/1"):
        decode_checksummed("journal", bytes(data), "p/1")


def test_a_file_cut_off_anywhere_is_not_believed() -> None:
    data = encode_checksummed("journal", {"a": [1, 2, 3]})
    for length in range(len(data) - 1):
        with pytest.raises(CorruptMetadata):
            decode_checksummed("journal", data[:length], "p")


def test_a_newer_version_is_distinguished_from_a_broken_file() -> None:
    data = encode_checksummed("journal", {}).replace(b"journal 1 ", b"journal 2 ")
    with pytest.raises(UnknownVersion, match="upgrade"):
        decode_checksummed("journal", data, "p")


def test_a_file_of_another_kind_is_not_believed() -> None:
    with pytest.raises(CorruptMetadata):
        decode_checksummed("journal", encode_checksummed("writer", {}), "p")


def test_the_second_sink_of_a_run_finds_the_claim_taken() -> None:
    storage = MemoryStorage()
    Claims(storage, ME).acquire()
    with pytest.raises(DuplicateWriter, match="name="):
        Claims(storage, replace(ME, token="other")).acquire()


def test_claiming_again_is_no_second_sink() -> None:
    claims = Claims(MemoryStorage(), ME)
    claims.acquire()
    claims.acquire()
    assert claims.holds()


def test_a_new_run_ends_the_claims_of_older_ones() -> None:
    storage = MemoryStorage()
    old, new = Claims(storage, ME), Claims(storage, replace(ME, run_id="run-3", token="t3"))
    assert old.acquire() == frozenset()
    assert new.acquire() == {old.run}
    assert new.runs() == {new.run}
    assert (old.holds(), new.holds()) == (False, True)


def test_a_register_without_a_run_is_read() -> None:
    storage = MemoryStorage()
    claims = Claims(storage, ME)
    claims.register("d", 3)
    path = next(
        stat.path
        for stat in storage.list_files(f"_paimon_stream/{ME.user}")
        if stat.name == "writer"
    )
    body = decode_checksummed("writer", storage.read(path), path)
    assert body.pop("run") == claims.run
    storage.write(path, encode_checksummed("writer", body))
    own = claims.own()
    assert own is not None
    assert (own.journal_since, own.run) == (3, None)


def test_registers_are_found_by_user_and_by_others() -> None:
    storage = MemoryStorage()
    other: WriterIdentity = replace(ME, user="other", query_name="n")
    mine, theirs = Claims(storage, ME), Claims(storage, other)
    assert mine.own() is None
    mine.register("d", None)
    theirs.register("d", 3)
    own = mine.own()
    assert own is not None
    assert (own.user, own.query_id, own.journal_since) == (ME.user, "q1", None)
    (other_one,) = registered_writers(storage, leave_out=user_folder(ME.user))
    assert (other_one.user, other_one.query_name, other_one.journal_since) == ("other", "n", 3)


class LastFirst(FaultyStorage):
    """A store in which the last request of a trip arrives first: nothing orders them."""

    def together(self, requests: Sequence[Request]) -> list[Any]:
        return super().together(requests[::-1])[::-1]


@pytest.mark.parametrize("verb", ["write", "delete"])
def test_a_run_that_dies_while_it_ends_the_claim_before_takes_no_proof_away(verb: str) -> None:
    bench = Bench()
    stream = Stream(bench)
    stream.batches(2)
    stream.batch(0)
    for _ in range(2):
        bench.committer().commit(bench.request(0, [bench.message("other")], user="another"))
    newest = bench.snapshots.latest()
    assert newest is not None
    bench.expire(newest.id - 1)
    for _ in range(2):
        fault = Fault(at=1, verb=verb, path=user_folder(stream.user), stop=True)
        stream.start(storage=LastFirst(bench.storage, [fault]))
        with pytest.raises(Killed):
            stream.batch()
    stream.writer = None
    assert stream.batch().outcome == "committed"
