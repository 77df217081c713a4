"""What a committer knows of its table: it is true of one snapshot, and it advances over the deltas
of other writers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from paimon_stream.commit.plan import Base
from paimon_stream.commit.table_cache import MAX_SEQUENCE, TableCache
from paimon_stream.errors import BucketCountChanged
from paimon_stream.format.entries import EMPTY_ROW, ManifestEntry
from paimon_stream.format.snapshot_json import CommitKind, Snapshot, encode_snapshot
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.table.layout import snapshot_path
from paimon_stream.table.live import BucketIndex
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import create_table
from tests.unit.table.test_live import A, B, C, History, add, delete

COLUMNS = (DataField(id=0, name="p", type=parse_type("STRING")),)


@dataclass
class Known(History):
    """The history of a table, and what a committer knows of it."""

    options: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        table = create_table(self.storage, COLUMNS, partition_keys=["p"], options=self.options)
        assert table is not None
        self.cache = TableCache(table, SnapshotStore(self.storage))

    @property
    def base(self) -> Base:
        return (
            Base(snapshot=self.snapshots[-1], metas=tuple(self.metas)) if self.snapshots else EMPTY
        )

    def buckets(self, *partitions: bytes) -> BucketIndex:
        """The buckets of these partitions now."""
        return self.cache.buckets_at(self.base, partitions)

    def files(self, *partitions: bytes, commit: object = "one") -> set[str]:
        """The live files of these partitions now."""
        return {one.file_name for one in self.cache.files_at(self.base, partitions, commit).live}

    def commit_ours(
        self, entries: Sequence[ManifestEntry], kind: CommitKind = CommitKind.APPEND
    ) -> Snapshot:
        base = self.base
        snapshot = self.commit(entries, kind)
        self.cache.advance(base, self.base, entries)
        return snapshot

    def expire(self, snapshot: Snapshot) -> None:
        self.storage.delete(snapshot_path(snapshot.id))

    def reads_of(self, act: Callable[[], object]) -> int:
        """The number of manifests and lists that the call reads."""
        before = len(self.storage.operations)
        act()
        done = self.storage.operations[before:]
        return sum(one.verb == "read" and one.path.startswith("manifest/") for one in done)


EMPTY = Base(snapshot=None, metas=())


# -- buckets
# ----------------------------------------------------------------------------------------


def test_each_bucket_of_the_partitions_asked_for_is_known() -> None:
    known = Known()
    known.commit(
        [add("1", A, 0, last=9), add("2", A, 0, last=4), add("3", A, 1, last=0), add("4", B, 2)]
    )
    known.commit([add("5", A, 0, last=30, total=4)])
    index = known.buckets(A, C)
    assert [index.max_sequence(A, bucket) for bucket in range(3)] == [30, 0, -1]
    assert (index.total_buckets(A), index.max_sequence(C, 0), index.total_buckets(C)) == (
        4,
        -1,
        None,
    )
    for ask in (lambda: index.max_sequence(B, 2), lambda: index.total_buckets(B)):
        with pytest.raises(KeyError):
            ask()


def test_an_empty_table_needs_no_reading() -> None:
    known = Known()
    assert known.reads_of(lambda: known.buckets(A)) == 0
    index = known.buckets(A)
    assert (index.max_sequence(A, 0), index.total_buckets(A)) == (-1, None)


def test_deleted_files_do_not_count() -> None:
    known = Known()
    one = add("1", last=50, total=8)
    known.commit([one])
    known.commit([delete(one), add("2", last=7)], CommitKind.OVERWRITE)
    index = known.buckets(A)
    assert (index.max_sequence(A, 0), index.total_buckets(A)) == (7, 4)


def test_on_our_own_commit_nothing_is_read() -> None:
    known = Known()
    known.buckets(A)
    for n in range(1, 4):
        known.commit_ours([add(str(n), A, last=10 * n)])
        assert known.reads_of(lambda: known.buckets(A)) == 0
        assert known.buckets(A).max_sequence(A, 0) == 10 * n
    assert known.buckets(A).total_buckets(A) == 4


def test_partitions_that_come_later_are_read_then() -> None:
    known = Known()
    known.commit([add("1", A, last=1), add("2", B, last=2)])
    known.buckets(A)
    known.commit_ours([add("3", A, last=3), add("4", B, last=4)])
    index = known.buckets(A, B)
    assert (index.max_sequence(A, 0), index.max_sequence(B, 0)) == (3, 4)


def test_commits_of_others_are_followed_by_their_deltas_alone() -> None:
    known = Known()
    for n in range(20):
        known.commit([add(f"old-{n}", A)])
    known.buckets(A)
    known.commit([add("theirs", A, 1, last=77), add("elsewhere", C)])
    known.commit([add("more", A, 2, last=5)], CommitKind.COMPACT)
    assert (
        known.reads_of(lambda: known.buckets(A)) == 4
    )  # two lists and two manifests, not the twenty before
    assert [known.buckets(A).max_sequence(A, bucket) for bucket in range(3)] == [9, 77, 5]


@pytest.mark.parametrize("why", ["gap", "overwrite", "expired position"])
def test_what_does_not_follow_on_is_forgotten_and_read_anew(why: str) -> None:
    known = Known()
    one = add("1", A, last=50, total=8)
    first = known.commit([one])
    known.buckets(A)
    between = known.commit(
        [delete(one)], CommitKind.OVERWRITE if why == "overwrite" else CommitKind.APPEND
    )
    known.commit([add("2", A, last=3, total=2)])
    if why != "overwrite":
        known.expire(first)
    if why == "gap":
        known.expire(between)
    index = known.buckets(A)
    assert (index.max_sequence(A, 0), index.total_buckets(A)) == (3, 2)


def test_another_snapshot_of_the_same_id_is_another_position() -> None:
    known = Known()
    known.commit([add("1", A, last=5)])
    known.buckets(A)
    known.snapshots.clear()  # the table is rolled back, and written anew
    known.metas.clear()
    replaced = known.commit([add("9", A, last=99)])
    assert replaced.id == 1
    assert known.buckets(A).max_sequence(A, 0) == 99


def test_our_own_overwrite_makes_it_forget_the_buckets() -> None:
    known = Known()
    one = add("1", A, last=50)
    known.commit([one])
    known.buckets(A)
    known.commit_ours([delete(one), add("2", A, last=0)], CommitKind.OVERWRITE)
    assert known.buckets(A).max_sequence(A, 0) == 0


def test_a_partition_of_two_bucket_counts_is_refused() -> None:
    known = Known()
    known.commit([add("1", A, total=4)])
    known.commit([add("2", A, total=8), add("3", B, total=8)])
    known.buckets(B)
    for _ in range(2):
        with pytest.raises(BucketCountChanged, match="for 4 and for 8 buckets") as caught:
            known.buckets(A)
        assert (caught.value.context["expected"], caught.value.context["actual"]) == (4, 8)


def test_another_bucket_count_of_others_is_refused_where_its_partition_is_asked_for() -> None:
    known = Known()
    known.commit([add("1", A, total=4), add("2", B, total=4)])
    known.buckets(A, B)
    known.commit([add("3", A, total=8)])
    assert known.buckets(B).total_buckets(B) == 4
    with pytest.raises(BucketCountChanged, match="for 4 and for 8 buckets"):
        known.buckets(A)


def test_a_file_of_a_partition_that_the_table_cannot_have_does_not_count() -> None:
    known = BucketIndex()
    known.add([EMPTY_ROW], [add("1", EMPTY_ROW, last=5), add("2", A, last=8)])
    assert (known.max_sequence(EMPTY_ROW, 0), list(known.partitions)) == (5, [EMPTY_ROW])


def test_the_largest_number_counts_whatever_the_order_of_the_files() -> None:
    known = BucketIndex()
    known.add([A], [add("1", A, last=5), add("2", A, last=9), add("3", A, last=7)])
    assert known.max_sequence(A, 0) == 9
    known.take([add("4", A, last=8)])
    assert known.max_sequence(A, 0) == 9


def test_files_without_fixed_buckets_have_no_count() -> None:
    known = Known()
    known.commit([add("1", A, total=-1)])
    assert known.buckets(A).total_buckets(A) is None


def test_the_partitions_that_are_known_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BucketIndex, "MAX_PARTITIONS", 2)
    known = Known()
    known.commit([add("1", A, last=1), add("2", B, last=2), add("3", C, last=3)])
    known.buckets(A, B)
    index = known.buckets(B, C)
    assert (index.max_sequence(B, 0), index.max_sequence(C, 0)) == (2, 3)
    with pytest.raises(KeyError):
        index.max_sequence(A, 0)


# -- one position ----------------------------------------------------------------------------------


def test_all_that_is_known_moves_over_the_deltas_of_others_at_once() -> None:
    known = Known(options={"conflict-detection-mode": "row_incremental"})
    known.commit([add("1", A, last=5)])
    known.buckets(A)
    known.files(A)
    known.commit([add("2", A, last=8)])
    assert known.reads_of(lambda: known.buckets(A)) == 2  # the delta's list and its manifest
    assert known.reads_of(lambda: known.files(A)) == 0
    assert (known.buckets(A).max_sequence(A, 0), known.files(A)) == (8, {"1", "2"})


def test_the_largest_sequence_number_moves_with_buckets_and_files() -> None:
    known = Known()
    known.commit([add("1", A, last=5)])
    assert known.cache.highest_at(known.base.snapshot) == 5
    known.buckets(A)
    theirs = known.commit([add("2", B, last=80)])
    known.buckets(A)
    assert known.reads_of(lambda: known.cache.highest_at(theirs)) == 0
    assert known.cache.highest_at(theirs) == 80
    known.commit_ours([add("3", A, last=90)])
    assert known.reads_of(lambda: known.cache.highest_at(known.base.snapshot)) == 0
    assert known.cache.highest_at(known.base.snapshot) == 90


@pytest.mark.parametrize("text", ["9" * 5000, "9" * 19, "²", "-1", ""])
def test_a_recorded_number_that_is_none_is_found_in_the_files(text: str) -> None:
    known = Known()
    latest = known.commit([add("1", A, last=5)])
    wrong = replace(latest, properties={**latest.properties, MAX_SEQUENCE: text})
    known.storage.write(snapshot_path(latest.id), encode_snapshot(wrong))
    assert known.cache.highest_at(wrong) == 5


def test_a_commit_on_a_later_base_than_the_position_is_taken_in_with_what_came_between() -> None:
    known = Known()
    known.commit([add("1", A, last=5)])
    known.buckets(A)
    known.commit([add("theirs", A, last=6)])
    known.commit_ours([add("ours", A, last=7)])  # nothing was asked of the base
    assert known.buckets(A).max_sequence(A, 0) == 7
    assert known.files(A) == {"1", "theirs", "ours"}


def test_files_are_read_anew_for_each_commit_but_not_for_each_attempt() -> None:
    known = Known()
    known.commit([add("1", A)])
    first = known.reads_of(lambda: known.files(A, commit="one"))
    assert first > 0
    assert known.reads_of(lambda: known.files(A, commit="one")) == 0
    assert known.reads_of(lambda: known.files(A, commit="two")) == first


def test_a_delta_that_is_gone_ends_the_knowledge_and_what_is_asked_for_is_read_anew() -> None:
    known = Known()
    known.commit([add("1", A, last=5)])
    known.buckets(A)
    theirs = known.commit([add("2", A, last=6)])
    known.storage.delete(f"manifest/{theirs.delta_manifest_list}")
    assert known.buckets(A).max_sequence(A, 0) == 6


def test_the_manifests_of_our_own_last_snapshot_are_known_until_all_is_forgotten() -> None:
    known = Known()
    ours = known.commit_ours([add("1", A)])
    assert known.cache.last == ours
    assert known.reads_of(lambda: known.cache.base(ours)) == 0
    known.cache.forget()
    assert known.cache.last is None
    assert known.reads_of(lambda: known.cache.base(ours)) == 2
