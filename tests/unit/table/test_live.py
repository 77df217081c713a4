"""Live files, replay of entries, and what a writer keeps in mind of the buckets it touches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from paimon_stream.errors import BucketCountChanged, DeletedFiles
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.entries import DataFileMeta, FileKind, ManifestEntry, ManifestFileMeta
from paimon_stream.format.snapshot_json import CommitKind, Snapshot, SnapshotId
from paimon_stream.format.types import parse_type
from paimon_stream.options import Options
from paimon_stream.storage.faults import FaultyStorage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.layout import NameSource
from paimon_stream.table.live import BucketIndex, live_files, merge_entries
from paimon_stream.table.manifests import ManifestStore, ManifestWriter
from paimon_stream.table.snapshots import Window

TYPES = (parse_type("STRING"),)
A, B, C = (serialize(TYPES, (name,)) for name in "abc")


def add(
    name: str, partition: bytes = A, bucket: int = 0, last: int = 9, total: int = 4, **file: Any
) -> ManifestEntry:
    return ManifestEntry(
        kind=FileKind.ADD,
        partition=partition,
        bucket=bucket,
        total_buckets=total,
        file=DataFileMeta(
            file_name=name,
            file_size=1,
            row_count=10,
            min_sequence_number=0,
            max_sequence_number=last,
            schema_id=0,
            creation_time=0,
            **file,
        ),
    )


def delete(entry: ManifestEntry) -> ManifestEntry:
    return replace(entry, kind=FileKind.DELETE)


@dataclass
class History:
    """Commits to a table in memory, each a list of entries, and a log of the manifests that are read."""

    storage: FaultyStorage = field(default_factory=lambda: FaultyStorage(MemoryStorage()))
    snapshots: list[Snapshot] = field(default_factory=list)
    metas: list[ManifestFileMeta] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = ManifestStore(self.storage, Options({}))
        self.names = NameSource("u")

    def commit(self, entries: Sequence[ManifestEntry], kind: CommitKind = CommitKind.APPEND) -> Snapshot:
        write = ManifestWriter(self.storage, Options({}), TYPES, 0)
        base, delta = self.names.manifest_list(), self.names.manifest_list()
        write.write_list(base, self.metas)
        new = write.write(entries, self.names)
        write.write_list(delta, new)
        self.metas += new
        snapshot = Snapshot(
            id=SnapshotId(len(self.snapshots) + 1),
            schema_id=0,
            base_manifest_list=base,
            delta_manifest_list=delta,
            commit_user="u",
            commit_identifier=0,
            commit_kind=kind,
            time_millis=0,
            total_record_count=0,
            delta_record_count=0,
        )
        self.snapshots.append(snapshot)
        return snapshot

    def index(self) -> BucketIndex:
        return BucketIndex(self.store, TYPES)

    def window(self, after: int, *, complete: bool = True) -> Window:
        return Window(snapshots=tuple(self.snapshots[after:]), complete=complete)

    def reads(self) -> int:
        return sum(operation.verb == "read" for operation in self.storage.operations)


# -- replay ---------------------------------------------------------------------------------------


def test_an_add_and_its_delete_cancel_out() -> None:
    one, two = add("1"), add("2")
    assert list(merge_entries([one, two, delete(one)]).values()) == [two]


def test_a_delete_without_its_add_stays_and_so_does_the_order() -> None:
    one, two, three = add("1"), add("2"), add("3")
    assert list(merge_entries([delete(three), one, two, delete(one)]).values()) == [delete(three), two]
    assert list(merge_entries([delete(one), delete(one)]).values()) == [delete(one)]


@pytest.mark.parametrize("before", [FileKind.ADD, FileKind.DELETE])
def test_a_file_that_is_added_again_is_refused(before: FileKind) -> None:
    one = add("data-1.parquet")
    with pytest.raises(DeletedFiles, match=r"data-1\.parquet .*committed twice") as caught:
        merge_entries([replace(one, kind=before), one])
    assert caught.value.context["file"] == "data-1.parquet"


def test_the_same_name_elsewhere_is_another_file() -> None:
    files = [add("x"), add("x", B), add("x", bucket=1), add("x", level=1), add("x", extra_files=("i",))]
    assert len(merge_entries(files)) == len(files)


# -- live files -----------------------------------------------------------------------------------


def test_live_files_are_the_adds_that_no_delete_names_in_any_order() -> None:
    history = History()
    one, two, three = add("1"), add("2", B), add("3", B)
    history.commit([delete(three), one])
    history.commit([two, three])
    history.commit([delete(one)])
    assert live_files(history.store, history.metas, TYPES) == [two]


def test_asked_for_partitions_only_their_manifests_are_read() -> None:
    history = History()
    history.commit([add("1", A)])
    history.commit([add("2", C)])
    history.commit([add("3", A), add("4", C)])
    before = history.reads()
    assert [e.file.file_name for e in live_files(history.store, history.metas, TYPES, [B, A])] == ["1", "3"]
    assert history.reads() - before == 2
    assert live_files(history.store, history.metas, TYPES, []) == []


# -- the index ------------------------------------------------------------------------------------


def test_the_index_knows_each_bucket_of_the_partitions_asked_for() -> None:
    history = History()
    history.commit([add("1", A, 0, last=9), add("2", A, 0, last=4), add("3", A, 1, last=0), add("4", B, 2)])
    latest = history.commit([add("5", A, 0, last=30, total=4)])
    index = history.index()
    index.load(latest, [A, C])
    assert [index.max_sequence(A, bucket) for bucket in range(3)] == [30, 0, -1]
    assert (index.total_buckets(A), index.max_sequence(C, 0), index.total_buckets(C)) == (4, -1, None)
    for ask in (lambda: index.max_sequence(B, 2), lambda: index.total_buckets(B)):
        with pytest.raises(KeyError):
            ask()


def test_an_empty_table_needs_no_reading() -> None:
    history = History()
    index = history.index()
    index.load(None, [A])
    assert (index.max_sequence(A, 0), index.total_buckets(A), history.reads()) == (-1, None, 0)


def test_deleted_files_do_not_count() -> None:
    history = History()
    one = add("1", last=50, total=8)
    history.commit([one])
    latest = history.commit([delete(one), add("2", last=7)], CommitKind.OVERWRITE)
    index = history.index()
    index.load(latest, [A])
    assert (index.max_sequence(A, 0), index.total_buckets(A)) == (7, 4)


def test_on_our_own_commit_nothing_is_read() -> None:
    history = History()
    index = history.index()
    index.load(None, [A])
    for n in range(1, 4):
        mine = [add(str(n), A, last=10 * n)]
        snapshot = history.commit(mine)
        before = history.reads()
        index.advance(snapshot, mine)
        index.load(snapshot, [A])
        assert index.max_sequence(A, 0) == 10 * n
        assert history.reads() == before
    assert index.total_buckets(A) == 4


def test_partitions_that_come_later_are_read_then() -> None:
    history = History()
    first = history.commit([add("1", A, last=1), add("2", B, last=2)])
    index = history.index()
    index.load(first, [A])
    mine = [add("3", A, last=3), add("4", B, last=4)]
    second = history.commit(mine)
    index.advance(second, mine)
    index.load(second, [A, B], history.metas)
    assert (index.max_sequence(A, 0), index.max_sequence(B, 0)) == (3, 4)


def test_commits_of_others_are_followed_by_their_deltas_alone() -> None:
    history = History()
    for n in range(20):
        first = history.commit([add(f"old-{n}", A)])
    index = history.index()
    index.load(first, [A])
    history.commit([add("theirs", A, 1, last=77), add("elsewhere", C)])
    last = history.commit([add("more", A, 2, last=5)], CommitKind.COMPACT)
    before = history.reads()
    index.follow(history.window(20))
    index.load(last, [A])
    assert [index.max_sequence(A, bucket) for bucket in range(3)] == [9, 77, 5]
    assert history.reads() - before == 4  # two lists and two manifests, not the twenty before


@pytest.mark.parametrize("why", ["gap", "overwrite", "not the next", "no following at all"])
def test_what_does_not_follow_on_is_forgotten_and_read_anew(why: str) -> None:
    history = History()
    one = add("1", A, last=50, total=8)
    first = history.commit([one])
    index = history.index()
    index.load(first, [A])
    kind = CommitKind.OVERWRITE if why == "overwrite" else CommitKind.APPEND
    history.commit([delete(one)], kind)
    last = history.commit([add("2", A, last=3, total=2)])
    if why == "gap":
        index.follow(replace(history.window(2), complete=False))
    elif why == "overwrite":
        index.follow(history.window(1))
    elif why == "not the next":
        index.follow(history.window(2))
    index.load(last, [A])
    assert (index.max_sequence(A, 0), index.total_buckets(A)) == (3, 2)


def test_another_snapshot_of_the_same_id_is_another_position() -> None:
    history = History()
    index = history.index()
    index.load(history.commit([add("1", A, last=5)]), [A])
    history.snapshots.clear()  # the table is rolled back, and written anew
    history.metas.clear()
    replaced = history.commit([add("9", A, last=99)])
    assert replaced.id == 1
    index.load(replaced, [A])
    assert index.max_sequence(A, 0) == 99


def test_our_own_overwrite_makes_it_forget() -> None:
    history = History()
    one = add("1", A, last=50)
    index = history.index()
    index.load(history.commit([one]), [A])
    mine = [delete(one), add("2", A, last=0)]
    snapshot = history.commit(mine, CommitKind.OVERWRITE)
    index.advance(snapshot, mine)
    index.load(snapshot, [A])
    assert index.max_sequence(A, 0) == 0


def test_a_partition_of_two_bucket_counts_is_refused() -> None:
    history = History()
    history.commit([add("1", A, total=4)])
    latest = history.commit([add("2", A, total=8), add("3", B, total=8)])
    index = history.index()
    index.load(latest, [B])
    with pytest.raises(BucketCountChanged, match="for 4 and for 8 buckets") as caught:
        index.load(latest, [A])
    assert (caught.value.context["expected"], caught.value.context["actual"]) == (4, 8)


def test_files_without_fixed_buckets_have_no_count() -> None:
    history = History()
    index = history.index()
    index.load(history.commit([add("1", A, total=-1)]), [A])
    assert index.total_buckets(A) is None


def test_the_index_does_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BucketIndex, "MAX_PARTITIONS", 2)
    history = History()
    latest = history.commit([add("1", A, last=1), add("2", B, last=2), add("3", C, last=3)])
    index = history.index()
    index.load(latest, [A, B])
    index.load(latest, [B, C])
    assert (index.max_sequence(B, 0), index.max_sequence(C, 0)) == (2, 3)
    with pytest.raises(KeyError):
        index.max_sequence(A, 0)
