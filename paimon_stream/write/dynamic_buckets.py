"""Which bucket a key gets in a table with dynamic buckets, and the hash index that says so
(table-kinds.md §2).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from paimon_stream.errors import CorruptMetadata, IndexConflict, UnsupportedFeature
from paimon_stream.format.entries import HASH, IndexFileMeta
from paimon_stream.options import DYNAMIC_MAX_BUCKETS, DYNAMIC_TARGET_ROWS, Options
from paimon_stream.storage.base import Storage
from paimon_stream.table.hash_index import Hashes, index_file, read_index_file
from paimon_stream.table.layout import Layout

Numbers = npt.NDArray[np.int32]
Pairs = npt.NDArray[np.int64]

MOST_BUCKETS: Final = 32_767
"""Java holds the number of a dynamic bucket in 16 bits."""

_BITS: Final = 16
_BUCKET: Final = (1 << _BITS) - 1

_LITTLE: Final = 1 << 16
"""New keys are kept apart from the older ones until they are this many, or an eighth of the older
ones.
"""

_LARGE: Final = 1 << 20
"""Buckets with as many keys are sorted and searched by themselves, in half the time and memory."""

_NO_PAIRS: Final[Pairs] = np.zeros(0, np.int64)


# Hashes with their buckets are sorted numbers of 64 bits, each a hash and, in the lowest 16 bits,
# its bucket. Numpy sorts numbers ten times as fast as it sorts the places of numbers.


def _pairs(hashes: Hashes, buckets: Numbers | int) -> Pairs:
    return (hashes.astype(np.int64) << _BITS) | buckets


def _find(pairs: Pairs, hashes: Hashes) -> Numbers:
    """The bucket of each hash, -1 for one that is not known."""
    if not len(pairs):
        return np.full(len(hashes), -1, np.int32)
    found = pairs[np.minimum(np.searchsorted(pairs, _pairs(hashes, 0)), len(pairs) - 1)]
    return np.where(found >> _BITS == hashes, found & _BUCKET, -1).astype(np.int32)


def _first_twice(pairs: Pairs) -> Pairs:
    """The first two pairs of a hash that is there more than once; none if there is no such hash."""
    for start in range(0, len(pairs), _LITTLE):
        some = pairs[start : start + _LITTLE + 1]
        at = np.flatnonzero(some[1:] >> _BITS == some[:-1] >> _BITS)
        if len(at):
            return some[at[0] : at[0] + 2]
    return pairs[:0]


@dataclass(slots=True)
class _Partition:
    """The keys of one partition: the sorted hashes of each large bucket, and those of all others.
    `fill` is the number of hashes in each bucket, `files` its index file, and `new` the hashes that
    it gets now.
    """

    large: dict[int, Hashes] = field(default_factory=dict)
    old: Pairs = field(default_factory=lambda: _NO_PAIRS)
    recent: Pairs = field(default_factory=lambda: _NO_PAIRS)
    fill: dict[int, int] = field(default_factory=dict)
    files: dict[int, IndexFileMeta] = field(default_factory=dict)
    new: dict[int, list[Hashes]] = field(default_factory=dict)

    def find(self, hashes: Hashes) -> Iterator[Numbers]:
        """The bucket of each hash, -1 where it is not known, as each part of the index has it."""
        yield np.maximum(_find(self.old, hashes), _find(self.recent, hashes))
        for bucket, known in self.large.items():
            there = known[np.minimum(np.searchsorted(known, hashes), len(known) - 1)] == hashes
            yield np.where(there, np.int32(bucket), np.int32(-1))

    def learn(self, hashes: Hashes, buckets: Numbers) -> None:
        self.recent = np.sort(np.concatenate([self.recent, _pairs(hashes, buckets)]))
        if len(self.recent) > max(_LITTLE, len(self.old) >> 3):
            self.old, self.recent = np.sort(np.concatenate([self.old, self.recent])), _NO_PAIRS


class Assigner:
    """Gives each key its bucket, by the index in the index manifest `index`; None if there is none,
    or if the rows replace all that is in their partitions. `tasks` of them assign keys at once.
    Holds four bytes for each key of the partitions that get rows, and eight for one in a bucket
    that is not large.
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
        self._storage, self._layout, self._uuid = storage, layout, uuid
        self._index, self._tasks, self._written = index, tasks, 0
        self._target = options.value(DYNAMIC_TARGET_ROWS)
        most = options.value(DYNAMIC_MAX_BUCKETS)
        self._most = MOST_BUCKETS if most < 1 else min(most, MOST_BUCKETS)
        self._read = partial(read_index_file, storage, layout)
        self._partitions: dict[bytes, _Partition] = {}
        self._listed: dict[bytes, dict[int, IndexFileMeta]] | None = None

    def assign(self, partition: bytes, hashes: Hashes) -> Numbers:
        """The bucket of each key. Raises `UnsupportedFeature` (too many buckets),
        `CorruptMetadata`, `StorageError`.
        """
        known = self._partition(partition)
        distinct, where = np.unique(hashes, return_inverse=True)
        buckets = np.full(len(distinct), -1, np.int32)
        for found in known.find(distinct):
            twice = np.flatnonzero((found >= 0) & (buckets >= 0))
            if len(twice):
                raise self._twice(partition, buckets[twice[0]], found[twice[0]])
            buckets = np.maximum(buckets, found)
        new = np.flatnonzero(buckets < 0)
        if len(new):
            buckets[new] = self._place(known, distinct[new])
            known.learn(distinct[new], buckets[new])
        return buckets[where]

    def write(self, partition: bytes, bucket: int) -> tuple[IndexFileMeta, ...]:
        """Writes the bucket's next index file, with the older hashes and the new ones. Writes
        nothing if there are no new ones. Raises `CorruptMetadata`, `StorageError`.
        """
        known = self._partition(partition)
        new = known.new.get(bucket)
        if not new:
            return ()
        old = known.files.get(bucket)
        before = b"" if old is None else self._still(partial(self._read, partition, bucket, old))
        content = before + np.concatenate(new).astype(">i4").tobytes()
        meta = index_file(f"index-{self._uuid}-{self._written}", content)
        self._written += 1
        with self._storage.open_output(self._layout.index_file(partition, bucket, meta)) as output:
            output.write(content)
        return (meta,)

    def _partition(self, partition: bytes) -> _Partition:
        found = self._partitions.get(partition)
        if found is None:
            found = self._partitions[partition] = self._still(partial(self._load, partition))
        return found

    def _still(self, read: Callable[[], Any]) -> Any:
        """What it returns. Raises `IndexConflict` if the index has changed meanwhile and its old
        files have expired.
        """
        try:
            return read()
        except CorruptMetadata:
            from paimon_stream.table.snapshots import SnapshotStore

            latest = SnapshotStore(self._storage).latest()
            if latest is not None and latest.index_manifest == self._index:
                raise
            place = self._storage.location
            text = "the hash index by which this batch assigns its keys has changed and expired meanwhile. Nothing was"
            raise IndexConflict(f"{text} published. Write the batch again.").of_table(
                place
            ) from None

    def _load(self, partition: bytes) -> _Partition:
        files = self._files().get(partition, {})
        wanted = [partial(self._read, partition, bucket, file) for bucket, file in files.items()]
        known = _Partition(
            files=files, fill={bucket: file.row_count for bucket, file in files.items()}
        )
        pairs = [_NO_PAIRS]
        for bucket, data in zip(files, self._storage.together(wanted), strict=True):
            hashes = np.frombuffer(data, ">i4").astype(np.int32)
            if len(hashes) < _LARGE:
                pairs.append(_pairs(hashes, bucket))
            else:
                known.large[bucket] = np.sort(hashes)
        known.old = np.sort(np.concatenate(pairs))
        twice = (_first_twice(known.old) & _BUCKET).tolist()
        if twice:
            raise self._twice(partition, *twice)
        return known

    def _twice(self, partition: bytes, one: int, other: int) -> CorruptMetadata:
        """A hash that is in two buckets gives its key two rows (table-kinds.md D1). Large buckets
        are compared in the hashes that get rows.
        """
        named = self._layout.partition(partition)
        return CorruptMetadata(
            f"the hash index of partition {named or '()'} has a key twice: in bucket {min(one, other)} and in bucket "
            f"{max(one, other)}. Two writers have assigned keys at once, and such keys may have two rows. Nothing was "
            "written. Run `paimon-stream verify`.",
            partition=named,
        ).of_table(self._storage.location)

    def _files(self) -> Mapping[bytes, dict[int, IndexFileMeta]]:
        if self._listed is None:
            # Imported here, because most tasks need no Avro.
            from paimon_stream.table.manifests import ManifestStore

            self._listed = {}
            for entry in ManifestStore(self._storage).index_entries(self._index):
                if entry.file.index_type == HASH:
                    listed = self._listed.setdefault(entry.partition, {})
                    if listed.setdefault(entry.bucket, entry.file) is not entry.file:
                        place = f"{self._storage.location}/{self._layout.bucket_folder(entry.partition, entry.bucket)}"
                        text = f"{place} has two hash indexes in {self._index}. Nothing was written. Run `paimon-stream"
                        raise CorruptMetadata(
                            f"{text} rebuild-index`, which makes the index anew.", path=place
                        )
        return self._listed

    def _place(self, known: _Partition, hashes: Hashes) -> Numbers:
        """Buckets for new hashes, which are distinct."""
        found = np.zeros(len(hashes), np.int32)
        tasks = np.abs(np.fmod(hashes, np.int32(self._tasks)))
        for task in np.unique(tasks).tolist():
            left = np.flatnonzero(tasks == task)
            for bucket, room in self._places(known, task, len(left)):
                some, left = left[:room], left[room:]
                found[some] = bucket
                known.fill[bucket] = known.fill.get(bucket, 0) + len(some)
                known.new.setdefault(bucket, []).append(hashes[some])
                if not len(left):
                    break
        return found

    def _places(self, known: _Partition, task: int, count: int) -> Iterator[tuple[int, int]]:
        """The room in a task's buckets, then in those it may open; if that is none, all share the
        rest of `count`.
        """
        own = sorted(bucket for bucket in known.fill if bucket % self._tasks == task)
        may_open = (one for one in range(task, self._most, self._tasks) if one not in known.fill)
        for bucket in chain(own, may_open):
            room = self._target - known.fill.get(bucket, 0)
            if room > 0:
                count -= room
                yield bucket, room
        own = sorted(
            (one for one in known.fill if one % self._tasks == task), key=known.fill.__getitem__
        )
        if self._most == MOST_BUCKETS:
            cure = (
                f"Raise {DYNAMIC_TARGET_ROWS.key!r}, the keys of a bucket ({self._target:,} now)."
            )
            text = f"a partition would have more than {self._most:,} buckets. Nothing was written. {cure}"
            raise UnsupportedFeature(text, option=DYNAMIC_TARGET_ROWS.key).of_table(
                self._storage.location
            )
        yield from ((bucket, -(-count // len(own))) for bucket in own)
