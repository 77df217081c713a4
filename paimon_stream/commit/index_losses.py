"""Notices keys that another engine has taken out of the hash index (table-kinds.md K1.6).

Java's writers hold the whole index of a bucket in memory, and put it over the bucket's index file
when they publish. So if one of them writes at the same time as this package, the keys that we have
added since it read the index are gone. Such a key could get a second row in another bucket. If
Java has written it, too, it may have that row already, and the index has it in the other bucket.

Invariants: a key of a live index file stays in the index of its bucket, unless an overwrite
removes it, or unless this package does. What other engines publish is compared once in a run. The
first look of a run begins at the newest batch of this package (`begins_search`), because each batch
looks before its rows are written, and again at the base of its snapshot. A stream knows the snapshot
of its newest batch, and looks down to it. Another run that finds no batch among the newest thousand
snapshots misses a loss, and so does each run if the newest batch has expired.
`verify` finds it then, if it samples the files of the key. A lost key need not have a row any more. `rebuild-index` reads the rows, and publishes a snapshot from which the next run looks.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np

from paimon_stream.commit.table_cache import TableCache
from paimon_stream.errors import CorruptMetadata, NotFound
from paimon_stream.format.entries import HASH, IndexFileMeta
from paimon_stream.format.snapshot_json import CommitKind, Snapshot, SnapshotRef
from paimon_stream.format.snapshot_marks import is_ours
from paimon_stream.storage.together import AT_ONCE
from paimon_stream.table.hash_index import NO_HASHES, Hashes, hashes_of, read_index_file
from paimon_stream.table.table import Table

_MOST_LOOKED_BACK: Final = 1000
"""How many snapshots the first look of a run reads to find a batch of this package, if the run knows
none. Each of them is read once, because the next run begins at the batch that this one publishes.
The bound keeps the look of a run short in a table that others have filled, and that expires nothing.
"""

_BUCKETS_AT_ONCE: Final = AT_ONCE // 2
"""How many buckets are compared together. Two files are read for each of them."""

_Index = dict[tuple[bytes, int], IndexFileMeta]
"""The hash index file of each partition and bucket."""


class IndexLosses:
    """Looks for lost keys in what others have published, for the committer of one table."""

    def __init__(self, table: Table, cache: TableCache) -> None:
        self._table = table
        self._snapshots = cache.snapshots
        self._manifests = cache.manifests
        self._checked: Snapshot | None = None
        """The newest snapshot up to which nothing is lost; None before the first look."""

    def check(self, latest: Snapshot, own: SnapshotRef | None = None) -> None:
        """Compares the indexes of the snapshots since the last look, up to the latest one.

        Args:
            latest: the latest snapshot.
            own: the snapshot of the caller's newest batch, if the caller knows it.

        Raises:
            CorruptMetadata: keys are lost.
            StorageError: something cannot be read.
        """
        for start, end in _spans_of_others(self._since(latest, own)):
            self._compare(start, end, latest)
        self._checked = latest

    def _since(self, latest: Snapshot, own: SnapshotRef | None) -> Sequence[Snapshot]:
        """The snapshots to look at, ascending. The first of them was looked at before, or is the
        newest batch of this package. There are none if that is not known.
        """
        checked = self._checked
        if checked is not None and checked.id <= latest.id:
            window = self._snapshots.window(checked.id, latest)
            if window.complete:
                return (checked, *window.snapshots)
        lowest = latest.id - _MOST_LOOKED_BACK
        if own is not None:
            lowest = min(lowest, own.id)
        descending: list[Snapshot] = []
        for snapshot in self._snapshots.walk_down(latest):
            descending.append(snapshot)
            if begins_search(snapshot):
                return descending[::-1]
            if snapshot.id <= lowest:
                break
        return ()  # There is nothing of this package to lose.

    def _compare(self, start: Snapshot, end: Snapshot, latest: Snapshot) -> None:
        """Raises `CorruptMetadata` if the index of `latest` lacks keys that the index of `start`
        has, and that of `end` has not. Nothing is known if files have expired meanwhile or are
        damaged. Whoever assigns keys then reports the damage.
        """
        if start.index_manifest == end.index_manifest:
            return
        try:
            lost = self._lost(self._index(start), self._index(end), self._index(latest))
        except (NotFound, CorruptMetadata):
            return
        if lost is not None and self._snapshots.stands(start):
            raise self._error(*lost, end)

    def _lost(self, before: _Index, after: _Index, now: _Index) -> tuple[bytes, int, int] | None:
        """The partition and the number of the first bucket of `before` that has keys which this
        bucket has neither in `after` nor in `now`, and how many. Only files that differ are read,
        several buckets at once. Raises `CorruptMetadata`.
        """
        changed = [bucket for bucket, file in before.items() if after.get(bucket) != file]
        for start in range(0, len(changed), _BUCKETS_AT_ONCE):
            buckets = changed[start : start + _BUCKETS_AT_ONCE]
            reads = [
                partial(self._hashes, bucket, index)
                for bucket in buckets
                for index in (before, after)
            ]
            hashes = self._table.storage.together(reads)
            for bucket, was, present in zip(buckets, hashes[::2], hashes[1::2], strict=True):
                lost = np.setdiff1d(was, present)
                if len(lost):
                    lost = np.setdiff1d(lost, self._hashes(bucket, now))
                if len(lost):
                    return (*bucket, len(lost))
        return None

    def _hashes(self, bucket: tuple[bytes, int], index: _Index) -> Hashes:
        """The hashes that an index has of a bucket. Raises `CorruptMetadata`."""
        file = index.get(bucket)
        if file is None:
            return NO_HASHES
        table = self._table
        return hashes_of(read_index_file(table.storage, table.layout, *bucket, file))

    def _index(self, snapshot: Snapshot) -> _Index:
        index: _Index = {}
        for entry in self._manifests.index_entries(snapshot.index_manifest):
            if entry.file.index_type == HASH:
                index[entry.partition, entry.bucket] = entry.file
        return index

    def _error(self, partition: bytes, bucket: int, count: int, end: Snapshot) -> CorruptMetadata:
        return CorruptMetadata(
            f"the hash index of bucket {bucket} of partition {self._table.layout.partition(partition) or '()'} lacks "
            f"{count:,} keys that it had before snapshot {end.id} of user {end.commit_user!r}: another engine has written "
            "the table at the same time, and has put its own index over the one that this package had published. These "
            "keys could get a second row, or have one already. Nothing was written. Stop the other writer, run "
            "`paimon-stream rebuild-index TABLE --yes`, which rebuilds the index from the table's files or names keys "
            "that have two rows, and let only one of the two write from then on.",
            snapshot=end.id,
        ).of_table(self._table.location)


def begins_search(snapshot: Snapshot) -> bool:
    """Whether a run may take for granted that nothing is lost at this snapshot. This package has
    looked at the index before such a snapshot, or has just rebuilt it. It makes no look before it
    compacts or overwrites.
    """
    return is_ours(snapshot) and snapshot.commit_kind is CommitKind.APPEND


def _spans_of_others(snapshots: Iterable[Snapshot]) -> Iterator[tuple[Snapshot, Snapshot]]:
    """The first and the last snapshot of each span within which keys can only be added: all
    snapshots of the span but the first are of other engines, and are no overwrites.
    """
    start = end = None
    for snapshot in snapshots:
        may_remove = is_ours(snapshot) or snapshot.commit_kind is CommitKind.OVERWRITE
        if start is None or may_remove:
            if start is not None and end is not None and end is not start:
                yield start, end
            start = snapshot
        end = snapshot
    if start is not None and end is not None and end is not start:
        yield start, end
