"""One test for each conflict rule and its exceptions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from paimon_stream.commit import conflicts
from paimon_stream.commit.plan import Changes, IndexChange
from paimon_stream.commit.watched_files import KnownFiles, LiveFile
from paimon_stream.errors import (
    BucketCountChanged,
    DeletedFiles,
    KeyRangeOverlap,
    SchemaChanged,
    StrictModeViolated,
)
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.entries import (
    EMPTY_ROW,
    DeletionRange,
    FileIdentity,
    FileKind,
    IndexFileMeta,
    IndexManifestEntry,
    ManifestEntry,
)
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind, Snapshot, SnapshotId
from paimon_stream.format.stats import row_order
from paimon_stream.format.types import parse_type
from tests.kits.commits import data_file

SCENE = conflicts.CommitContext(
    location="/w/db.db/t", user="me", identifier=7, partition_name=lambda row: f"dt={row.decode()}"
)


def entry(
    name: str, *, kind: FileKind = FileKind.ADD, partition: bytes = b"p", total: int = 4
) -> ManifestEntry:
    return ManifestEntry(
        kind=kind, partition=partition, bucket=0, total_buckets=total, file=data_file(name)
    )


def present(name: str) -> KnownFiles:
    return KnownFiles({entry(name).identity: LiveFile.of(entry(name))})


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
    conflicts.check_bucket_counts(SCENE, {b"p": 4}, [entry("f")])


def test_another_bucket_count_than_the_partition_has_is_refused() -> None:
    with pytest.raises(
        BucketCountChanged, match=r"dt=p.* has 4 buckets.* f was written for 8"
    ) as caught:
        conflicts.check_bucket_counts(SCENE, {b"p": 4}, [entry("f", total=8)])
    assert caught.value.context["expected"] == 4
    assert caught.value.context["found"] == 8
    assert caught.value.context["batch"] == 7
    assert caught.value.context["table"] == "/w/db.db/t"


def test_two_bucket_counts_for_a_new_partition_in_one_commit_are_refused() -> None:
    with pytest.raises(BucketCountChanged):
        conflicts.check_bucket_counts(SCENE, {}, [entry("f"), entry("g", total=8)])


def test_bucket_counts_of_different_partitions_may_differ() -> None:
    entries = [entry("f"), entry("g", total=8, partition=b"q")]
    conflicts.check_bucket_counts(SCENE, {b"p": 4, b"q": 8}, entries)


@pytest.mark.parametrize(("present", "total"), [(4, -1), (-1, 4), (-1, -1)])
def test_files_without_fixed_buckets_have_no_bucket_count_to_conflict_with(
    present: int, total: int
) -> None:
    conflicts.check_bucket_counts(SCENE, {b"p": present}, [entry("f", total=total)])


def test_an_overwrite_may_change_the_bucket_count() -> None:
    conflicts.check_bucket_counts(
        replace(SCENE, kind=CommitKind.OVERWRITE), {b"p": 4}, [entry("f", total=8)]
    )


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
        conflicts.check_not_in_table(SCENE, present("f"), [entry("f")])


def test_adding_a_file_that_is_not_in_the_table_passes() -> None:
    conflicts.check_not_in_table(SCENE, present("f"), [entry("g")])
    conflicts.check_not_in_table(SCENE, present("f"), [entry("f", kind=FileKind.DELETE)])


def test_deleting_a_file_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(DeletedFiles, match="no longer in the table: f"):
        conflicts.check_removed_files_are_there(SCENE, set(), [entry("f", kind=FileKind.DELETE)])


def test_deleting_a_file_that_is_in_the_table_passes() -> None:
    delete = entry("f", kind=FileKind.DELETE)
    conflicts.check_removed_files_are_there(SCENE, {entry("f").identity}, [delete, entry("g")])


def test_files_that_are_gone_from_storage_are_refused_with_their_number_and_some_names() -> None:
    with pytest.raises(
        DeletedFiles, match=r"7 of its files have been deleted: f0.*f4 and 2 more"
    ) as caught:
        conflicts.check_files_exist(SCENE, [f"f{n}" for n in range(7)])
    assert caught.value.context["count"] == 7


def test_no_missing_file_passes() -> None:
    conflicts.check_files_exist(SCENE, [])


@pytest.mark.parametrize("kind", [CommitKind.COMPACT, CommitKind.OVERWRITE])
def test_strict_mode_refuses_what_rewrote_files_since_the_last_safe_snapshot(
    kind: CommitKind,
) -> None:
    with pytest.raises(
        StrictModeViolated, match=rf"snapshot 3 of user 'you' is of kind {kind.value}"
    ):
        conflicts.check_strict_mode(SCENE, [snapshot(3, "you", kind)], 2, lambda one: True)


def test_strict_mode_lets_appends_and_own_snapshots_pass() -> None:
    since = [snapshot(3, "you", CommitKind.APPEND), snapshot(4, "me", CommitKind.OVERWRITE)]
    conflicts.check_strict_mode(SCENE, since, 2, lambda one: True)


# -- who, what, on what ----------------------------------------------------------------------------


def test_a_conflict_says_who_committed_what_on_top_of_whose_snapshot() -> None:
    base = snapshot(3, "you", CommitKind.OVERWRITE)
    context = replace(SCENE, kind=CommitKind.COMPACT, base=base)
    with pytest.raises(DeletedFiles) as caught:
        conflicts.check_files_exist(context, ["f"])
    assert (
        "/w/db.db/t, commit 7 of user 'me' (COMPACT on snapshot 3, OVERWRITE of user 'you'):"
        in str(caught.value)
    )
    assert caught.value.context["base_snapshot"] == 3
    assert caught.value.context["commit_kind"] == "COMPACT"
    assert "batch commit of user 'me' (COMPACT" in str(
        replace(context, identifier=BATCH_IDENTIFIER)
    )


# -- files that were, files that are listed twice, duplicates --------------------------------------


def test_adding_a_file_that_was_in_the_table_and_has_been_removed_is_refused() -> None:
    with pytest.raises(DeletedFiles, match="compacted or overwritten since: f"):
        conflicts.check_not_in_table(SCENE, KnownFiles(removed={entry("f").identity}), [entry("f")])
    conflicts.check_not_in_table(
        SCENE, KnownFiles(removed={entry("f").identity}), [entry("f", kind=FileKind.DELETE)]
    )


def test_a_partition_that_lists_a_file_twice_takes_no_checked_commit_until_it_is_repaired() -> None:
    conflicts.check_listed_once(SCENE, [])
    with pytest.raises(
        DeletedFiles, match=r"1 files in the .* listed twice .* f\. .*Roll the table"
    ):
        conflicts.check_listed_once(SCENE, [entry("f").identity])


def test_files_of_partitions_that_have_expired_are_refused_with_that_cure() -> None:
    stray = entry("f", kind=FileKind.DELETE)
    with pytest.raises(
        DeletedFiles, match=r"dt=p.*drops partitions after 7 d .*filter such late rows out"
    ):
        conflicts.check_removed_files_are_there(SCENE, {}, [stray], "7 d")
    for live, expiration in (({entry("g").identity}, "7 d"), (set[FileIdentity](), None)):
        with pytest.raises(DeletedFiles, match="run the job again"):
            conflicts.check_removed_files_are_there(SCENE, live, [stray], expiration)


# -- schemas ---------------------------------------------------------------------------------------


def test_files_of_a_schema_the_table_does_not_have_are_refused() -> None:
    with pytest.raises(SchemaChanged, match=r"with schema 0.* its newest is 4.*to another table"):
        conflicts.check_schemas(SCENE, {3, 4}, [entry("f")])


def test_files_of_an_older_schema_pass_and_so_do_removed_ones_of_any() -> None:
    conflicts.check_schemas(SCENE, {0, 1, 2}, [entry("f")])
    conflicts.check_schemas(SCENE, {1}, [entry("f", kind=FileKind.DELETE)])


# -- ranges of keys --------------------------------------------------------------------------------

KEY = (parse_type("INT"),)
BY_KEY = row_order(KEY)


def run(
    name: str,
    low: int,
    high: int,
    *,
    level: int = 5,
    bucket: int = 0,
    partition: bytes = b"p",
    kind: FileKind = FileKind.ADD,
) -> ManifestEntry:
    keys = {"min_key": serialize(KEY, (low,)), "max_key": serialize(KEY, (high,))}
    made = replace(entry(name, kind=kind, partition=partition), bucket=bucket)
    return replace(made, file=replace(made.file, level=level, **keys))  # type: ignore[arg-type]


def live(*entries: ManifestEntry) -> dict[FileIdentity, LiveFile]:
    return {one.identity: LiveFile.of(one) for one in entries}


def check_keys(present: Iterable[ManifestEntry], entries: Iterable[ManifestEntry]) -> None:
    conflicts.check_key_ranges(SCENE, live(*present), list(entries), BY_KEY)


def test_overlapping_keys_in_one_level_of_a_bucket_are_refused_with_both_files_and_the_place() -> (
    None
):
    with pytest.raises(
        KeyRangeOverlap, match=r"a and b .*level 5 of bucket 0 of partition 'dt=p'"
    ) as caught:
        check_keys([run("a", -5, 10)], [run("b", 10, 20)])
    assert caught.value.context["files"] == ("a", "b")
    assert (caught.value.context["level"], caught.value.context["bucket"]) == (5, 0)


def test_overlapping_keys_within_one_commit_are_refused() -> None:
    with pytest.raises(KeyRangeOverlap):
        check_keys([], [run("a", 0, 9), run("b", 20, 29), run("c", 3, 4)])


def test_keys_beside_one_another_pass_in_whatever_order_they_come() -> None:
    check_keys([run("a", 300, 400), run("b", -9, 0)], [run("c", 1, 255), run("d", 256, 299)])


@pytest.mark.parametrize("elsewhere", [{"level": 4}, {"bucket": 1}, {"partition": b"q"}])
def test_keys_may_overlap_between_levels_buckets_and_partitions(elsewhere: dict[str, int]) -> None:
    check_keys([run("a", 0, 9)], [run("b", 0, 9, **elsewhere)])  # type: ignore[arg-type]


def test_keys_may_overlap_in_level_zero() -> None:
    check_keys([run("a", 0, 9, level=0)], [run("b", 0, 9, level=0)])


def test_files_that_the_commit_removes_no_longer_overlap() -> None:
    check_keys([run("a", 0, 9)], [run("a", 0, 9, kind=FileKind.DELETE), run("b", 0, 9)])


def test_levels_that_the_commit_adds_nothing_to_are_not_judged() -> None:
    check_keys(
        [run("a", 0, 9), run("b", 0, 9)],
        [run("c", 0, 9, level=4), run("x", 0, 1, kind=FileKind.DELETE)],
    )


# -- deletion vectors ------------------------------------------------------------------------------


def vectors(name: str, *files: str, kind: FileKind = FileKind.ADD) -> IndexChange:
    ranges = tuple(DeletionRange(data_file=one, offset=1, length=2, cardinality=1) for one in files)
    file = IndexFileMeta(
        index_type="DELETION_VECTORS", file_name=name, file_size=1, row_count=1, deletions=ranges
    )
    return IndexChange(
        kind=kind, entry=IndexManifestEntry(partition=EMPTY_ROW, bucket=0, file=file)
    )


def check_vectors(
    present: dict[str, str], *index: IndexChange, entries: tuple[ManifestEntry, ...] = ()
) -> None:
    files = [entry("f").identity, entry("g").identity]
    changes = Changes(entries=entries, index=index)
    conflicts.check_deletion_vectors(SCENE, files, present, changes)


def test_a_first_deletion_vector_of_a_live_file_passes() -> None:
    check_vectors({}, vectors("v1", "f"))


def test_a_deletion_vector_replaced_by_who_knows_it_passes() -> None:
    check_vectors(
        {"f": "v1", "g": "v1"},
        vectors("v1", "f", "g", kind=FileKind.DELETE),
        vectors("v2", "f", "g"),
    )


def test_a_file_removed_with_its_deletion_vector_passes() -> None:
    removed = entry("f", kind=FileKind.DELETE)
    check_vectors(
        {"f": "v1"}, vectors("v1", "f", kind=FileKind.DELETE), entries=(removed, entry("h"))
    )
    check_vectors({"g": "v1"}, entries=(removed, entry("h")))


def test_a_new_file_may_come_with_its_deletion_vector() -> None:
    check_vectors({}, vectors("v1", "h"), entries=(entry("h"),))


def test_a_second_first_deletion_vector_of_a_file_is_refused() -> None:
    with pytest.raises(DeletedFiles, match=r"deletion vectors of 1 data files are not those .*: f"):
        check_vectors({"f": "v1"}, vectors("v2", "f"))


def test_a_deletion_vector_that_somebody_replaced_meanwhile_is_refused() -> None:
    with pytest.raises(DeletedFiles):
        check_vectors({"f": "v2"}, vectors("v1", "f", kind=FileKind.DELETE), vectors("v3", "f"))


def test_a_file_removed_without_the_deletion_vector_it_has_got_meanwhile_is_refused() -> None:
    with pytest.raises(DeletedFiles):
        check_vectors({"f": "v1"}, entries=(entry("f", kind=FileKind.DELETE), entry("h")))


@pytest.mark.parametrize("entries", [(), (entry("f", kind=FileKind.DELETE),)])
def test_a_deletion_vector_of_a_file_that_is_not_live_is_refused(
    entries: tuple[ManifestEntry, ...],
) -> None:
    with pytest.raises(DeletedFiles):
        check_vectors({}, vectors("v1", "f" if entries else "never"), entries=entries)


# -- strict mode of overwrites ---------------------------------------------------------------------


def test_strict_mode_refuses_an_overwrite_after_an_append_of_files_by_others() -> None:
    since = [snapshot(3, "me", CommitKind.APPEND), snapshot(4, "you", CommitKind.APPEND)]
    overwrite = replace(SCENE, kind=CommitKind.OVERWRITE)
    conflicts.check_strict_mode(overwrite, since, 2, lambda one: False)
    with pytest.raises(StrictModeViolated, match="snapshot 4 of user 'you' has appended files"):
        conflicts.check_strict_mode(overwrite, since, 2, lambda one: True)
