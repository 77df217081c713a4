"""Commit users have folders in `_paimon_stream`, and notes are files there. No name of the one is a
name of the other.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_stream.errors import AlreadyExists, CommitContended, NotFound
from paimon_stream.maintenance.branches import create_branch, delete_branch, read_branches
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.expiring import ExpiringNotes, note_path
from paimon_stream.storage.branch import branch_note, branch_storage, older_branch_note
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.layout import OWN_FOLDER, manifest_path, snapshot_path, user_folder
from paimon_stream.table.table import load_table
from tests.kits.commits import Bench
from tests.kits.streams import Stream


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """On a disk, where a file and a folder cannot have one name."""
    return Bench(storage=LocalStorage(str(tmp_path / "t")))


@pytest.mark.parametrize(
    "user", ["dev", "branch-dev", "branch.dev", "expiring-1", "clock-1", ".", "ü"]
)
def test_no_folder_of_a_user_has_a_dot_and_each_note_has_one(user: str) -> None:
    assert "." not in user_folder(user)
    for note in (branch_note("dev"), note_path(1)):
        assert "." in note.removeprefix(f"{OWN_FOLDER}/")


def test_a_stream_whose_user_is_named_like_an_older_note_of_a_branch_goes_on(bench: Bench) -> None:
    stream = Stream(bench, user="branch-dev")
    stream.batch()
    create_branch(bench.table, "dev", runtime=bench.runtime)
    load_table(branch_storage(bench.storage, "dev"))
    stream.batch()
    with pytest.raises(AlreadyExists):
        create_branch(bench.table, "dev", runtime=bench.runtime)
    assert delete_branch(bench.table, "dev").found
    stream.start()
    assert stream.batch().outcome == "committed"
    assert bench.storage.exists(f"{user_folder('branch-dev')}/writer")


def test_a_stream_begins_under_such_a_user_while_the_branch_exists(bench: Bench) -> None:
    create_branch(bench.table, "dev", runtime=bench.runtime)
    Stream(bench, user="branch-dev").batch()
    load_table(branch_storage(bench.storage, "dev"))
    assert list(read_branches(bench.storage)) == ["dev"]


@pytest.mark.parametrize("content", [b"create", b"delete"])
def test_the_note_of_an_earlier_release_still_says_that_a_branch_is_half_made(
    bench: Bench, content: bytes
) -> None:
    create_branch(bench.table, "dev", runtime=bench.runtime)
    bench.storage.write(older_branch_note("dev"), content)
    with pytest.raises(NotFound, match="its creation or deletion was interrupted"):
        load_table(branch_storage(bench.storage, "dev"))
    assert read_branches(bench.storage) == {}
    if content == b"create":
        create_branch(bench.table, "dev", runtime=bench.runtime)  # completes it
        assert list(read_branches(bench.storage)) == ["dev"]
    else:
        with pytest.raises(CommitContended, match="delete_branch"):
            create_branch(bench.table, "dev", runtime=bench.runtime)
        delete_branch(bench.table, "dev")
        assert read_branches(bench.storage) == {}
    assert not bench.storage.exists(older_branch_note("dev"))


def test_an_expiry_that_an_earlier_release_has_begun_is_finished() -> None:
    bench = Bench()
    Stream(bench).batches(4)
    first, second = bench.snapshots.get(1), bench.snapshots.get(2)
    ExpiringNotes(bench.storage).write(first, second)
    older = f"{OWN_FOLDER}/expiring-1"
    bench.storage.write(older, bench.storage.read(note_path(1)))
    bench.storage.delete(note_path(1))
    bench.storage.delete(snapshot_path(1))  # and then its run was killed
    assert ExpiringNotes(bench.storage).any_begun(bench.snapshots, 0)
    report = expire_snapshots(bench.table, retain_max=10, runtime=bench.runtime)
    assert report.complete
    assert not bench.storage.exists(older) and not bench.storage.exists(note_path(1))
    assert not bench.storage.exists(manifest_path(first.base_manifest_list))


def test_a_branch_is_not_taken_for_half_made_by_the_note_of_another(bench: Bench) -> None:
    for name in ("a", "a.b", "b"):
        create_branch(bench.table, name, runtime=bench.runtime)
    bench.storage.write(branch_note("a.b"), b"delete")
    assert list(read_branches(bench.storage)) == ["a", "b"]
