"""One test for each conflict rule and its exceptions."""

from __future__ import annotations

import pytest

from paimon_stream.commit import conflicts
from paimon_stream.errors import BucketCountChanged, DeletedFiles, StrictModeViolated
from paimon_stream.format.entries import FileKind, ManifestEntry
from paimon_stream.format.snapshot_json import CommitKind, Snapshot, SnapshotId
from tests.commitkit import data_file

SCENE = conflicts.Scene(
    location="/w/db.db/t", user="me", identifier=7, partition_name=lambda row: f"dt={row.decode()}"
)


def entry(
    name: str, *, kind: FileKind = FileKind.ADD, partition: bytes = b"p", total: int = 4
) -> ManifestEntry:
    return ManifestEntry(kind=kind, partition=partition, bucket=0, total_buckets=total, file=data_file(name))


def snapshot(id_: int, user: str, kind: CommitKind) -> Snapshot:
    return Snapshot(
        id=SnapshotId(id_),
        schema_id=0,
        base_manifest_list="b",
        delta_manifest_list=f"d{id_}",
        commit_user=user,
        commit_identifier=id_,
        commit_kind=kind,
        time_millis=0,
        total_record_count=0,
        delta_record_count=0,
    )


def test_the_same_bucket_count_as_the_partition_has_passes() -> None:
    conflicts.check_bucket_counts(SCENE, {b"p": 4}, [entry("f")], CommitKind.APPEND)


def test_another_bucket_count_than_the_partition_has_is_refused() -> None:
    with pytest.raises(BucketCountChanged, match=r"dt=p.* has 4 buckets.* f was written for 8") as caught:
        conflicts.check_bucket_counts(SCENE, {b"p": 4}, [entry("f", total=8)], CommitKind.APPEND)
    assert caught.value.context["expected"] == 4
    assert caught.value.context["found"] == 8
    assert caught.value.context["batch"] == 7
    assert caught.value.context["table"] == "/w/db.db/t"


def test_two_bucket_counts_for_a_new_partition_in_one_commit_are_refused() -> None:
    with pytest.raises(BucketCountChanged):
        conflicts.check_bucket_counts(SCENE, {}, [entry("f"), entry("g", total=8)], CommitKind.APPEND)


def test_bucket_counts_of_different_partitions_may_differ() -> None:
    entries = [entry("f"), entry("g", total=8, partition=b"q")]
    conflicts.check_bucket_counts(SCENE, {b"p": 4, b"q": 8}, entries, CommitKind.APPEND)


@pytest.mark.parametrize(("present", "total"), [(4, -1), (-1, 4), (-1, -1)])
def test_files_without_fixed_buckets_have_no_bucket_count_to_conflict_with(present: int, total: int) -> None:
    conflicts.check_bucket_counts(SCENE, {b"p": present}, [entry("f", total=total)], CommitKind.APPEND)


def test_an_overwrite_may_change_the_bucket_count() -> None:
    conflicts.check_bucket_counts(SCENE, {b"p": 4}, [entry("f", total=8)], CommitKind.OVERWRITE)


def test_a_commit_that_adds_a_file_twice_is_refused() -> None:
    with pytest.raises(DeletedFiles, match="1 of its files appear twice in this one commit: f"):
        conflicts.check_each_file_once(SCENE, [entry("f"), entry("g"), entry("f")])


def test_a_commit_that_adds_and_deletes_the_same_file_is_refused() -> None:
    with pytest.raises(DeletedFiles):
        conflicts.check_each_file_once(SCENE, [entry("f"), entry("f", kind=FileKind.DELETE)])


def test_the_same_name_in_two_partitions_is_two_files() -> None:
    conflicts.check_each_file_once(SCENE, [entry("f"), entry("f", partition=b"q")])


def test_adding_a_file_that_is_in_the_table_is_refused() -> None:
    with pytest.raises(DeletedFiles, match="in the table already: f"):
        conflicts.check_not_in_table(SCENE, {entry("f").identity}, [entry("f")])


def test_adding_a_file_that_is_not_in_the_table_passes() -> None:
    conflicts.check_not_in_table(SCENE, {entry("f").identity}, [entry("g")])
    conflicts.check_not_in_table(SCENE, {entry("f").identity}, [entry("f", kind=FileKind.DELETE)])


def test_deleting_a_file_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(DeletedFiles, match="not in the table any more: f"):
        conflicts.check_removed_files_are_there(SCENE, set(), [entry("f", kind=FileKind.DELETE)])


def test_deleting_a_file_that_is_in_the_table_passes() -> None:
    delete = entry("f", kind=FileKind.DELETE)
    conflicts.check_removed_files_are_there(SCENE, {entry("f").identity}, [delete, entry("g")])


def test_files_that_are_gone_from_storage_are_refused_with_their_number_and_some_names() -> None:
    with pytest.raises(DeletedFiles, match=r"7 of its files have been deleted: f0.*f4 and 2 more") as caught:
        conflicts.check_files_exist(SCENE, [f"f{n}" for n in range(7)])
    assert caught.value.context["count"] == 7


def test_no_missing_file_passes() -> None:
    conflicts.check_files_exist(SCENE, [])


@pytest.mark.parametrize("kind", [CommitKind.COMPACT, CommitKind.OVERWRITE])
def test_strict_mode_refuses_what_rewrote_files_since_the_last_safe_snapshot(kind: CommitKind) -> None:
    with pytest.raises(StrictModeViolated, match=rf"snapshot 3 of user 'you' is of kind {kind.value}"):
        conflicts.check_strict_mode(SCENE, [snapshot(3, "you", kind)], 2)


def test_strict_mode_lets_appends_and_own_snapshots_pass() -> None:
    since = [snapshot(3, "you", CommitKind.APPEND), snapshot(4, "me", CommitKind.OVERWRITE)]
    conflicts.check_strict_mode(SCENE, since, 2)
