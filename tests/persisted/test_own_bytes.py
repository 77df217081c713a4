"""Journal entries, claims, registers and snapshot properties have the bytes they had in each
release.

Where one of these tests fails, a release would not understand what users have on their disks. Do
not change the files: keep reading them, and give a new form a new version number
(docs/operations.md, Upgrades).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from paimon_stream.errors import CommitContended
from paimon_stream.format.snapshot_json import encode_snapshot
from paimon_stream.format.snapshot_marks import Marks
from paimon_stream.maintenance.branches import create_branch, delete_branch
from paimon_stream.maintenance.expiring import ExpiringNotes
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import branch_note, branch_storage, older_branch_note
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.stream.batch_summary import BatchSummary, previous_of
from paimon_stream.stream.claims import Claims
from paimon_stream.table.journal import Journal
from paimon_stream.table.layout import snapshot_path
from paimon_stream.table.register import RegisteredWriter
from paimon_stream.table.removals import read_removals
from paimon_stream.table.snapshots import SnapshotStore
from tests.persisted import values
from tests.persisted.archive import own_files, releases, stored_own_files
from tests.persisted.values import Values

OLDER_NOTE = re.compile(r"\b_paimon_stream/(branch|expiring)-")
"""The names that notes had until their form got a dot (exactly-once.md)."""

RELEASES = pytest.mark.parametrize("release", releases(), ids=lambda release: release.name)


def storage_of(release: Path) -> MemoryStorage:
    storage = MemoryStorage()
    for path, data in stored_own_files(release).items():
        storage.write(path, data)
    return storage


def parts_of(release: Path) -> list[tuple[Storage, Values]]:
    """What the table has, and what its branch has, each with the values that are expected there."""
    storage, whole = storage_of(release), values.OF_FOLDER[release.name]
    parts: list[tuple[Storage, Values]] = [(storage, whole)]
    if whole.of_branch is not None:
        parts.append((branch_storage(storage, values.BRANCH), whole.of_branch))
    return parts


def stored_properties(release: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads((release / "own" / "properties.json").read_text())
    return found


def test_the_same_values_give_the_bytes_of_the_newest_release() -> None:
    assert list(values.OF_FOLDER) == [release.name for release in releases()]
    assert list(values.OF_FOLDER.values())[-1] is values.NEWEST
    storage = MemoryStorage()
    values.NEWEST.write(storage)
    wanted = stored_own_files(releases()[-1])
    assert len(wanted) == 20
    written = own_files(storage)
    newer = {path for path in written if "/removed." in path}
    assert len(newer) == sum(bool(part.rolled_back) for _, part in parts_of(releases()[-1]))
    assert {path: written[path] for path in written if path not in newer} == {
        OLDER_NOTE.sub(r"_paimon_stream/\1.", path): data for path, data in wanted.items()
    }
    assert values.NEWEST.properties == stored_properties(releases()[-1])


@RELEASES
def test_journal_entries_of_each_release_are_read(release: Path) -> None:
    for storage, expected in parts_of(release):
        for user, entries in expected.entries.items():
            journal = Journal(storage, user)
            assert [journal.read(batch) for batch in journal.batches()] == list(entries)


@RELEASES
def test_registers_of_each_release_are_read(release: Path) -> None:
    for storage, expected in parts_of(release):
        for identity, digest, journal_since in expected.registered:
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
    for storage, expected in parts_of(release):
        for identity, _, _ in expected.registered:
            claims = Claims(storage, identity)
            assert claims.holds()
            claims.acquire()  # by the same writer, so it is no second one
            assert claims.holds()


@RELEASES
def test_notes_of_rollbacks_of_each_release_are_read(release: Path) -> None:
    for storage, expected in parts_of(release):
        found = read_removals(storage)
        nonces = [removed.snapshot and removed.snapshot.nonce for removed in found.removed]
        assert nonces == list(expected.rolled_back)
        assert not found.doubts


@RELEASES
def test_expiries_that_a_release_began_are_finished(release: Path) -> None:
    for storage, expected in parts_of(release):
        for _, following in expected.expiring:
            storage.write(snapshot_path(following.id), encode_snapshot(following))
        found = list(ExpiringNotes(storage).unfinished(SnapshotStore(storage)))
        assert found == [([oldest], following) for oldest, following in expected.expiring]


@RELEASES
def test_branches_that_a_release_began_to_make_or_delete_are_completed(release: Path) -> None:
    stored, names = storage_of(release), values.OF_FOLDER[release.name].branches
    table = values.table_with_killed_branches()
    for name, text in names.items():
        assert stored.read(older_branch_note(name)) == text.encode()
        table.storage.delete(branch_note(name))
        table.storage.write(older_branch_note(name), stored.read(older_branch_note(name)))
        create = text.startswith("create")
        tag = values.TAG if text.endswith(values.TAG) else None
        other = None if tag or not create else values.TAG
        with pytest.raises(CommitContended):
            create_branch(table, name, other)
        if create:
            assert create_branch(table, name, tag).found
        else:
            assert delete_branch(table, name).found
        assert not table.storage.exists(older_branch_note(name))
        assert not table.storage.exists(branch_note(name))


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
    assert previous_of(found.get("previous", {})) == (
        values.PREVIOUS if "previous" in found else {}
    )


@RELEASES
def test_each_own_file_names_its_version(release: Path) -> None:
    notes = [older_branch_note(name) for name in values.OF_FOLDER[release.name].branches]
    for path, data in stored_own_files(release).items():
        if path in notes:
            continue  # its text is all that it has
        header = data.partition(b"\n")[0].split()
        assert header[0] == b"paimon-stream", path
        assert header[2] == b"1", path
        assert header[1] != b"journal" or b'"messageVersion": 11' in data
