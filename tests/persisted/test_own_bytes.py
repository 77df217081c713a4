"""Journal entries, claims, registers and snapshot properties have the bytes they had in each
release.

Where one of these tests fails, a release would not understand what users have on their disks. Do
not change the files: keep reading them, and give a new form a new version number
(docs/operations.md, Upgrades).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paimon_stream.format.snapshot_json import Marks
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.stream.claims import BatchSummary, Claims, RegisteredWriter
from paimon_stream.table.journal import Journal
from tests.persisted import values
from tests.persisted.archive import own_files, releases, stored_own_files

RELEASES = pytest.mark.parametrize("release", releases(), ids=lambda release: release.name)


def storage_of(release: Path) -> MemoryStorage:
    storage = MemoryStorage()
    for path, data in stored_own_files(release).items():
        storage.write(path, data)
    return storage


def stored_properties(release: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads((release / "own" / "properties.json").read_text())
    return found


def test_the_same_values_give_the_bytes_of_the_newest_release() -> None:
    storage = MemoryStorage()
    values.persist(storage)
    wanted = stored_own_files(releases()[-1])
    assert len(wanted) == 8
    assert own_files(storage) == wanted
    assert values.properties() == stored_properties(releases()[-1])


@RELEASES
def test_journal_entries_of_each_release_are_read(release: Path) -> None:
    storage = storage_of(release)
    for user, entries in values.ENTRIES.items():
        journal = Journal(storage, user)
        assert [journal.read(batch) for batch in journal.batches()] == list(entries)


@RELEASES
def test_registers_of_each_release_are_read(release: Path) -> None:
    storage = storage_of(release)
    for identity, digest, journal_since in values.REGISTERED:
        assert Claims(storage, identity).own() == RegisteredWriter(
            user=identity.user,
            query_id=identity.query_id,
            checkpoint=identity.checkpoint,
            query_name=identity.query_name,
            schema_digest=digest,
            journal_since=journal_since,
            run=Claims(storage, identity).run,
        )


@RELEASES
def test_claims_of_each_release_hold(release: Path) -> None:
    storage = storage_of(release)
    for identity, _, _ in values.REGISTERED:
        claims = Claims(storage, identity)
        assert claims.holds()
        claims.acquire()  # by the same writer, so it is no second one
        assert claims.holds()


@RELEASES
def test_snapshot_properties_of_each_release_are_understood(release: Path) -> None:
    found = stored_properties(release)
    identity, entry = values.IDENTITY, values.SECOND_ATTEMPT
    assert Marks.of(found["all"]) == Marks(
        query_id=identity.query_id,
        run_id=identity.run_id,
        checkpoint=identity.checkpoint,
        query_name=identity.query_name,
        offsets_hash=entry.offsets_hash,
    )
    assert BatchSummary.of(found["all"]) == values.SUMMARY
    assert BatchSummary.of(found["least"]) == BatchSummary()
    assert Marks.of(found["least"]).query_id is None


@RELEASES
def test_each_own_file_names_its_version(release: Path) -> None:
    for path, data in stored_own_files(release).items():
        header = data.partition(b"\n")[0].split()
        assert header[0] == b"paimon-stream", path
        assert header[2] == b"1", path
        assert header[1] != b"journal" or b'"messageVersion": 11' in data
