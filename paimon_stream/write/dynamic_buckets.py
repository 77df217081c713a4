"""Decides which bucket a key gets in a table with dynamic buckets, and keeps the hash index that
records this (table-kinds.md §2).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from paimon_stream.errors import CorruptMetadata, IndexConflict, UnsupportedFeature
from paimon_stream.format.entries import HASH, IndexFileMeta
from paimon_stream.options import DYNAMIC_MAX_BUCKETS, DYNAMIC_TARGET_ROWS, Options
from paimon_stream.storage.base import Storage
from paimon_stream.table.hash_index import Hashes, index_file, read_index_file
from paimon_stream.table.layout import Layout

Numbers = npt.NDArray[np.int32]
"""Numbers of buckets, or hashes of keys."""

Pairs = npt.NDArray[np.int64]
"""Sorted numbers of 64 bits, each a hash and, in the lowest 16 bits, its bucket. Numpy sorts
numbers ten times as fast as it sorts the places of numbers.
"""

MOST_BUCKETS: Final = 32_767
"""Java holds the number of a dynamic bucket in 16 bits."""

_BITS: Final = 16
_BUCKET: Final = (1 << _BITS) - 1

_LITTLE: Final = 1 << 16
"""New keys are held apart from the older keys as long as there are at most this number of them, or
at most an eighth as many as older keys.
"""

_LARGE: Final = 1 << 20
"""A bucket with at least this number of keys is sorted and searched by itself. This takes half the
time and memory.
"""

_T = TypeVar("_T")

_NO_PAIRS: Final[Pairs] = np.zeros(0, np.int64)


def _pairs(hashes: Hashes, buckets: Numbers | int) -> Pairs:
    """The pairs of these hashes and buckets, in the same order."""
    return (hashes.astype(np.int64) << _BITS) | buckets


def _find(pairs: Pairs, hashes: Hashes) -> Numbers:
    """The bucket of each hash; -1 for an unknown hash."""
    if not len(pairs):
        return np.full(len(hashes), -1, np.int32)
    # A hash that is larger than all hashes in the pairs would be beyond the last pair. Such a hash
    # is compared with the last pair instead.
    positions = np.minimum(np.searchsorted(pairs, _pairs(hashes, 0)), len(pairs) - 1)
    nearest = pairs[positions]
    nearest_hashes = nearest >> _BITS
    nearest_buckets = nearest & _BUCKET
    return np.where(nearest_hashes == hashes, nearest_buckets, -1).astype(np.int32)


def _first_twice(pairs: Pairs) -> Pairs:
    """Two pairs with the same hash. The result is empty if all hashes differ."""
    for start in range(0, len(pairs), _LITTLE):
        # The piece overlaps the next piece by one pair, so that all neighbours are compared.
        piece = pairs[start : start + _LITTLE + 1]
        hashes = piece >> _BITS
        repeats = np.flatnonzero(hashes[1:] == hashes[:-1])
        if len(repeats):
            first = repeats[0]
            return piece[first : first + 2]
    return pairs[:0]


@dataclass(slots=True)
class _Partition:
    """The keys of one partition.

    Attributes:
        large: the sorted hashes of each large bucket.
        old: the pairs of all other buckets, except the pairs in `recent`.
        recent: the pairs that were added last.
        fill: the number of hashes in each bucket.
        files: the index file of each bucket.
        new: the hashes that this batch has put into each bucket.
    """

    large: dict[int, Hashes] = field(default_factory=dict)
    old: Pairs = field(default_factory=lambda: _NO_PAIRS)
    recent: Pairs = field(default_factory=lambda: _NO_PAIRS)
    fill: dict[int, int] = field(default_factory=dict)
    files: dict[int, IndexFileMeta] = field(default_factory=dict)
    new: dict[int, list[Hashes]] = field(default_factory=dict)

    def find(self, hashes: Hashes) -> Iterator[Numbers]:
        """The bucket of each hash, once for each part of the index. It is -1 for a hash that this
        part does not have.
        """
        yield np.maximum(_find(self.old, hashes), _find(self.recent, hashes))
        for bucket, known in self.large.items():
            # As in `_find`, a hash that is larger than all known hashes is compared with the last
            # one.
            positions = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            is_known = known[positions] == hashes
            yield np.where(is_known, np.int32(bucket), np.int32(-1))

    def learn(self, hashes: Hashes, buckets: Numbers) -> None:
        """Adds new hashes with their buckets."""
        self.recent = np.sort(np.concatenate([self.recent, _pairs(hashes, buckets)]))
        if len(self.recent) > max(_LITTLE, len(self.old) // 8):
            self.old = np.sort(np.concatenate([self.old, self.recent]))
            self.recent = _NO_PAIRS

    def put(self, bucket: int, hashes: Hashes) -> None:
        """Puts new hashes into a bucket."""
        self.fill[bucket] = self.fill.get(bucket, 0) + len(hashes)
        self.new.setdefault(bucket, []).append(hashes)


class Assigner:
    """Gives each key its bucket, by the hash index of the table. The assigner holds the keys of
    those partitions that get rows in memory: four bytes for a key in a large bucket, eight for any
    other key, and four more for a new key.
    """

    def __init__(
        self,
        storage: Storage,
        layout: Layout,
        options: Options,
        *,
        index: str | None,
        tasks: int,
        uuid: str,
    ) -> None:
        """Does not read any file yet.

        Args:
            storage: the storage of the table.
            layout: where the table's files are.
            options: the table's options.
            index: the index manifest; None if there is none, or if the rows replace everything in
                their partitions.
            tasks: how many tasks assign keys at once, each with an assigner of its own.
            uuid: the part that all names of new index files contain.
        """
        self._storage = storage
        self._layout = layout
        self._uuid = uuid
        self._index = index
        self._tasks = tasks
        self._written = 0
        """How many index files were written. It is part of the next name."""
        self._target = options.value(DYNAMIC_TARGET_ROWS)
        most_by_option = options.value(DYNAMIC_MAX_BUCKETS)
        self._most_buckets = MOST_BUCKETS
        if most_by_option >= 1:  # a lower number sets no limit
            self._most_buckets = min(most_by_option, MOST_BUCKETS)
        self._read = partial(read_index_file, storage, layout)
        self._partitions: dict[bytes, _Partition] = {}

    def assign(self, partition: bytes, hashes: Hashes) -> Numbers:
        """Finds the bucket of each key. A new key is given a bucket.

        Args:
            partition: the partition to which all of these keys belong.
            hashes: the hashes of the keys.

        Returns:
            The bucket of each key.

        Raises:
            UnsupportedFeature: if the partition would get too many buckets.
            CorruptMetadata: if the index is broken.
            IndexConflict: if the index has changed in the meantime.
            StorageError: if the storage fails.
        """
        keys = self._partition(partition)
        distinct, position_of_key = np.unique(hashes, return_inverse=True)
        buckets = np.full(len(distinct), -1, np.int32)
        for part in keys.find(distinct):
            twice = np.flatnonzero((part >= 0) & (buckets >= 0))
            if len(twice):
                first = twice[0]
                raise self._twice(partition, buckets[first], part[first])
            buckets = np.maximum(buckets, part)
        new = np.flatnonzero(buckets < 0)
        if len(new):
            buckets[new] = self._place(keys, distinct[new])
            keys.learn(distinct[new], buckets[new])
        return buckets[position_of_key]

    def write(self, partition: bytes, bucket: int) -> tuple[IndexFileMeta, ...]:
        """Writes the bucket's next index file, with the older hashes and the new hashes. Writes
        nothing if there are no new hashes. Raises `CorruptMetadata`, `StorageError`.
        """
        keys = self._partition(partition)
        new = keys.new.get(bucket)
        if not new:
            return ()
        older_hashes = b""
        file = keys.files.get(bucket)
        if file is not None:
            older_hashes = self._read_current(partial(self._read, partition, bucket, file))
        content = older_hashes + np.concatenate(new).astype(">i4").tobytes()
        meta = index_file(f"index-{self._uuid}-{self._written}", content)
        self._written += 1
        with self._storage.open_output(self._layout.index_file(partition, bucket, meta)) as output:
            output.write(content)
        return (meta,)

    def _partition(self, partition: bytes) -> _Partition:
        """The keys of a partition. They are read at the first call."""
        keys = self._partitions.get(partition)
        if keys is None:
            keys = self._read_current(partial(self._load, partition))
            self._partitions[partition] = keys
        return keys

    def _read_current(self, read: Callable[[], _T]) -> _T:
        """The result of `read`. Raises `IndexConflict` if the index has changed in the meantime and
        its old files have expired.
        """
        try:
            return read()
        except CorruptMetadata:
            from paimon_stream.table.snapshots import SnapshotStore

            latest = SnapshotStore(self._storage).latest()
            if latest is not None and latest.index_manifest == self._index:
                raise
            raise IndexConflict(
                "the hash index by which this batch assigns its keys has changed and expired meanwhile. "
                "Nothing was published. Write the batch again."
            ).of_table(self._storage.location) from None

    def _load(self, partition: bytes) -> _Partition:
        """Reads all index files of a partition."""
        files = self._files.get(partition, {})
        reads = [partial(self._read, partition, bucket, file) for bucket, file in files.items()]
        keys = _Partition(
            files=files, fill={bucket: file.row_count for bucket, file in files.items()}
        )
        pairs = [_NO_PAIRS]
        for bucket, data in zip(files, self._storage.together(reads), strict=True):
            hashes = np.frombuffer(data, ">i4").astype(np.int32)
            if len(hashes) < _LARGE:
                pairs.append(_pairs(hashes, bucket))
            else:
                keys.large[bucket] = np.sort(hashes)
        keys.old = np.sort(np.concatenate(pairs))
        buckets_of_same_hash = (_first_twice(keys.old) & _BUCKET).tolist()
        if buckets_of_same_hash:
            raise self._twice(partition, *buckets_of_same_hash)
        return keys

    def _twice(self, partition: bytes, bucket: int, other_bucket: int) -> CorruptMetadata:
        """The error for a hash that is in two buckets. The key of such a hash could get two rows
        (table-kinds.md D1). In large buckets, only the hashes of keys that get rows are compared.
        """
        lower = min(bucket, other_bucket)
        higher = max(bucket, other_bucket)
        name = self._layout.partition(partition)
        return CorruptMetadata(
            f"the hash index of partition {name or '()'} has a key twice: in bucket {lower} and in bucket "
            f"{higher}. Two writers have assigned keys at once, and such keys may have two rows. Nothing was "
            "written. Run `paimon-stream verify`.",
            partition=name,
        ).of_table(self._storage.location)

    @cached_property
    def _files(self) -> Mapping[bytes, dict[int, IndexFileMeta]]:
        """The index file of each bucket in each partition. Raises `CorruptMetadata`,
        `StorageError`.
        """
        # The import is here because most tasks do not need Avro.
        from paimon_stream.table.manifests import ManifestStore

        files: dict[bytes, dict[int, IndexFileMeta]] = {}
        for entry in ManifestStore(self._storage).index_entries(self._index):
            if entry.file.index_type != HASH:
                continue
            of_partition = files.setdefault(entry.partition, {})
            if entry.bucket in of_partition:
                folder = self._layout.bucket_folder(entry.partition, entry.bucket)
                path = f"{self._storage.location}/{folder}"
                raise CorruptMetadata(
                    f"{path} has two hash indexes in {self._index}. Nothing was written. Run `paimon-stream "
                    "rebuild-index`, which rebuilds the index.",
                    path=path,
                )
            of_partition[entry.bucket] = entry.file
        return files

    def _place(self, keys: _Partition, hashes: Hashes) -> Numbers:
        """Puts new hashes, which are all different, into buckets. Returns the bucket of each
        hash.
        """
        buckets = np.zeros(len(hashes), np.int32)
        # As in Java, the remainder has the sign of the hash, and its absolute value is the task.
        task_of_hash = np.abs(np.fmod(hashes, np.int32(self._tasks)))
        for task in np.unique(task_of_hash).tolist():
            left = np.flatnonzero(task_of_hash == task)
            # Each bucket is filled before the next bucket is requested, because the choice of the
            # next bucket depends on how full the buckets are.
            for bucket, room in self._rooms(keys, task, len(left)):
                placed = left[:room]
                left = left[room:]
                buckets[placed] = bucket
                keys.put(bucket, hashes[placed])
                if not len(left):
                    break
        return buckets

    def _rooms(self, keys: _Partition, task: int, count: int) -> Iterator[tuple[int, int]]:
        """Yields buckets of a task until `count` hashes have a bucket. Each bucket comes with the
        number of hashes that it gets. The first ones are the task's buckets that are not full. Then
        come the buckets that the task may open. If all of these are full, the task's buckets share
        the remaining hashes.
        """
        opened = sorted(bucket for bucket in keys.fill if self._is_of_task(bucket, task))
        unopened = (
            bucket
            for bucket in range(task, self._most_buckets, self._tasks)
            if bucket not in keys.fill
        )
        remaining = count
        for bucket in chain(opened, unopened):
            room = self._target - keys.fill.get(bucket, 0)
            if room > 0:
                remaining -= room
                yield bucket, room
        if self._most_buckets == MOST_BUCKETS:
            raise UnsupportedFeature(
                f"a partition would have more than {self._most_buckets:,} buckets. Nothing was written. "
                f"Raise {DYNAMIC_TARGET_ROWS.key!r}, the keys of a bucket ({self._target:,} now).",
                option=DYNAMIC_TARGET_ROWS.key,
            ).of_table(self._storage.location)
        # Buckets that the caller has opened in the loop above are included.
        least_filled_first = sorted(
            (bucket for bucket in keys.fill if self._is_of_task(bucket, task)),
            key=lambda bucket: keys.fill[bucket],
        )
        for bucket in least_filled_first:
            yield bucket, -(-remaining // len(least_filled_first))  # an equal share, rounded up

    def _is_of_task(self, bucket: int, task: int) -> bool:
        return bucket % self._tasks == task
