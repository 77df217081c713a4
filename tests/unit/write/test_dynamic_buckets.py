"""Keys get their buckets by the hash index, as table-kinds.md §2.2 says."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from paimon_stream.errors import CorruptMetadata, IndexConflict, UnsupportedFeature
from paimon_stream.format.entries import EMPTY_ROW, IndexFileMeta, IndexManifestEntry
from paimon_stream.format.index_manifest import encode_index_manifest
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.snapshot_json import CommitKind, Snapshot, SnapshotId, encode_snapshot
from paimon_stream.format.types import DataField, DataType, TypeRoot
from paimon_stream.options import Options
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.hash_index import index_file
from paimon_stream.table.layout import Layout, manifest_path, snapshot_path
from paimon_stream.write import dynamic_buckets
from paimon_stream.write.dynamic_buckets import Assigner

SCHEMA = TableSchema(
    id=0,
    fields=(DataField(id=0, name="k", type=DataType(root=TypeRoot.INT, nullable=False)),),
    highest_field_id=0,
    primary_keys=("k",),
)


class World:
    """A table whose index is written after each batch, as a commit does it."""

    def __init__(self, target: int = 3, most: int = -1) -> None:
        self.storage = MemoryStorage()
        self.options = Options(
            {"dynamic-bucket.target-row-num": str(target), "dynamic-bucket.max-buckets": str(most)}
        )
        self.layout = Layout.of(SCHEMA, self.options)
        self.entries: dict[int, IndexManifestEntry] = {}
        self.batches = 0
        self.name: str | None = None

    def assigner(self, tasks: int = 1) -> Assigner:
        given = self.storage, self.layout, self.options
        return Assigner(*given, index=self.name, tasks=tasks, uuid=f"u{self.batches}")

    def batch(self, hashes: list[int], tasks: int = 1) -> list[int]:
        """The bucket of each hash. Each task has an assigner of its own."""
        buckets: dict[int, int] = {}
        for task in range(tasks):
            assigner, mine = (
                self.assigner(tasks),
                [one for one in hashes if abs(int(np.fmod(one, tasks))) == task],
            )
            self.batches += 1
            found = [
                assigner.assign(EMPTY_ROW, np.array(mine[at : at + 4], np.int32))
                for at in range(0, len(mine), 4)
            ]
            buckets.update(zip(mine, [int(one) for some in found for one in some], strict=True))
            for bucket in {int(one) for some in found for one in some}:
                for file in assigner.write(EMPTY_ROW, bucket):
                    self.enter(bucket, file)
        self.publish()
        return [buckets[one] for one in hashes]

    def enter(self, bucket: int, file: IndexFileMeta) -> None:
        entry = IndexManifestEntry(partition=EMPTY_ROW, bucket=bucket, file=file)
        self.entries[bucket] = entry

    def publish(self) -> None:
        self.name = f"index-manifest-{self.batches}"
        data = encode_index_manifest(list(self.entries.values()), compression="zstd", level=1)
        self.storage.write(manifest_path(self.name), data)
        snapshot = Snapshot(
            id=SnapshotId(self.batches + 1),
            schema_id=0,
            base_manifest_list="base",
            delta_manifest_list=f"delta-{self.batches}",
            commit_user="me",
            commit_identifier=self.batches,
            commit_kind=CommitKind.APPEND,
            time_millis=0,
            total_record_count=0,
            delta_record_count=0,
            index_manifest=self.name,
        )
        self.storage.write(snapshot_path(snapshot.id), encode_snapshot(snapshot))

    def hashes(self) -> dict[int, list[int]]:
        return {
            bucket: np.frombuffer(self.storage.read(f"index/{one.file.file_name}"), ">i4").tolist()
            for bucket, one in self.entries.items()
        }


def test_new_keys_fill_a_bucket_before_the_next_one_opens_and_known_ones_stay() -> None:
    world = World(target=3)
    assert world.batch([5, -7, 5, 9, 11]) == [0, 0, 0, 0, 1]
    assert world.batch([11, 12, 13, 14, -7]) == [1, 1, 1, 2, 0]
    found = {bucket: sorted(some) for bucket, some in world.hashes().items()}
    assert found == {0: [-7, 5, 9], 1: [11, 12, 13], 2: [14]}
    before = dict(world.entries)
    assert world.batch([14, 5]) == [2, 0]
    assert world.entries == before, "no new key, no new file"


def test_at_the_bound_keys_are_spread_over_the_full_buckets() -> None:
    world = World(target=2, most=3)
    found = world.batch(list(range(60)))
    assert set(found) == {0, 1, 2}
    assert min(found.count(one) for one in range(3)) > 5
    assert world.batch(list(range(60))) == found


def test_more_buckets_than_java_can_count_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_buckets, "MOST_BUCKETS", 2)
    with pytest.raises(UnsupportedFeature, match=r"more than 2 buckets.*target-row-num"):
        World(target=1).batch([1, 2, 3])


@pytest.mark.parametrize("seed", range(20))
def test_any_number_of_tasks_keeps_the_invariants(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random = Random(seed)
    monkeypatch.setattr(dynamic_buckets, "_LARGE", random.randint(1, 6))
    world, known = World(target=random.randint(1, 9)), {}
    for _ in range(8):
        some = [random.randint(-60, 60) for _ in range(random.randint(1, 40))]
        for one, bucket in zip(some, world.batch(some, random.randint(1, 4)), strict=True):
            assert known.setdefault(one, bucket) == bucket
        found = {bucket: sorted(some) for bucket, some in world.hashes().items()}
        assert found == {b: sorted(h for h, at in known.items() if at == b) for b in found}
        assert sum(map(len, found.values())) == len(known)


def test_many_keys_are_kept_apart_and_found() -> None:
    world, numbers = World(target=200_000), np.random.default_rng(0)
    keys = numbers.permutation(np.arange(-150_000, 150_000, dtype=np.int32))
    assigner = world.assigner()
    found = np.concatenate(
        [assigner.assign(EMPTY_ROW, keys[at : at + 50_000]) for at in range(0, len(keys), 50_000)]
    )
    assert np.bincount(found).tolist() == [200_000, 100_000]
    assert (assigner.assign(EMPTY_ROW, keys) == found).all()


def test_an_index_that_has_changed_and_expired_meanwhile_is_a_conflict() -> None:
    """Not damage: the batch is written again."""
    world = World(target=3)
    world.batch([1, 2, 3, 4])
    old, path = world.assigner(), f"index/{world.entries[1].file.file_name}"
    world.batch([5])
    assert world.entries[1].file.file_name not in path
    world.storage.delete(path)
    with pytest.raises(IndexConflict, match="Write the batch again"):
        old.assign(EMPTY_ROW, np.array([1], np.int32))
    assert world.batch([1]) == [0]


def test_a_key_in_two_buckets_and_a_damaged_file_are_errors() -> None:
    world = World(target=3)
    world.batch([1, 2, 3, 4, 5])
    path = f"index/{world.entries[1].file.file_name}"
    whole = world.storage.read(path)
    for content in (whole[:-1], whole + b"1234"):
        world.storage.write(path, content)
        with pytest.raises(CorruptMetadata, match=r"(?s)bytes.*bucket 1.*rebuild-index"):
            world.batch([1])
    world.storage.delete(path)
    with pytest.raises(CorruptMetadata, match=r"(?s)is missing.*bucket 1.*rebuild-index"):
        world.batch([1])
    twice = np.array([4, 5, 2], ">i4").tobytes()
    world.storage.write("index/twice", twice)
    world.enter(1, index_file("twice", twice))
    world.publish()
    with pytest.raises(CorruptMetadata, match=r"a key twice: in bucket 0 and in bucket 1"):
        world.batch([1])


@pytest.mark.parametrize("large", [2, 3])
def test_a_key_that_gets_a_row_is_looked_for_in_all_large_buckets(
    monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    """Bucket 1 has two keys, so it is large or not. The key that is in both buckets gets no row at
    first.
    """
    monkeypatch.setattr(dynamic_buckets, "_LARGE", large)
    world = World(target=3)
    world.batch([1, 2, 3, 4])
    twice = np.array([4, 2], ">i4").tobytes()
    world.storage.write("index/twice", twice)
    world.enter(1, index_file("twice", twice))
    world.publish()
    assert world.batch([1, 4]) == [0, 1]
    with pytest.raises(CorruptMetadata, match=r"a key twice: in bucket 0 and in bucket 1"):
        world.batch([1, 2])


def test_two_indexes_of_a_bucket_are_an_error() -> None:
    world = World(target=3)
    world.batch([1, 2])
    (entry,) = world.entries.values()
    data = encode_index_manifest([entry, entry], compression="zstd", level=1)
    world.storage.write(manifest_path(world.name or ""), data)
    with pytest.raises(
        CorruptMetadata, match=r"bucket-0 has two hash indexes in index-manifest.*rebuild-index"
    ):
        world.batch([1])
