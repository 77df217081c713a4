"""The committer's cache of table state, kept from attempt to attempt and from commit to commit.
With the cache, the cost of a commit depends on what the commit changes, not on the size of the
table (semantics.md §3.4).

Invariants: the cache is valid at one snapshot, the cached one. The cache moves to a later snapshot
as a whole. It reads each delta on the way once, and all must be in one lineage. If that is not
possible, the cache is emptied. After an OVERWRITE by another writer, it forgets buckets and files,
because such a snapshot may replace files that its delta does not name (R3.4). After a failure, the
cache is emptied. Partitions that no commit touches are never read. The size of the cache is
bounded.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from paimon_stream.commit.plan import Base
from paimon_stream.commit.watched_files import CheckedFiles, KnownFiles, WatchedFiles
from paimon_stream.errors import BucketCountChanged, CorruptMetadata, NotFound
from paimon_stream.format.entries import FileKind, ManifestEntry
from paimon_stream.format.snapshot_json import CommitKind, Snapshot
from paimon_stream.format.snapshot_marks import own_properties
from paimon_stream.options import CONFLICT_DETECTION
from paimon_stream.table.layout import id_in_name
from paimon_stream.table.live import BucketIndex, live_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_spec import PartitionFilter
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

MAX_SEQUENCE: Final = "paimon-stream.max-sequence"
"""The snapshot property that stores the largest sequence number of the table."""

_MOST_WALKED: Final = 200
"""The maximum number of snapshots whose deltas are read instead of the table's manifests."""

_Bucket = tuple[bytes, int]


class TableCache:
    """The state of one table that one committer has cached.

    Attributes:
        snapshots: the snapshots of the table.
        manifests: reads the manifests of the table.
        buckets: the buckets at the cached snapshot.
    """

    def __init__(self, table: Table, snapshots: SnapshotStore) -> None:
        self.snapshots = snapshots
        self.manifests = ManifestStore(table.storage)
        self._types = table.partition_types
        self._own_last: Base | None = None
        """Our own last snapshot, until `forget`. The cached snapshot may be another one."""
        self._cached_at: Snapshot | None = None
        """The snapshot at which the buckets, files and the largest sequence number hold. None for
        the empty table.
        """
        self.buckets = BucketIndex()
        are_kept = table.options.value(CONFLICT_DETECTION) == "row_incremental"
        self._checked = CheckedFiles(are_kept=are_kept)
        self._watched = WatchedFiles()
        self._highest: int | None = None
        """The largest sequence number of the table; None if it is not known."""
        self._added: dict[str, Mapping[_Bucket, int]] = {}
        """The largest sequence numbers that snapshots have added, by their nonces (`added`), until
        our next commit.
        """

    # -- moving -----------------------------------------------------------------------------------
    def advance(self, base: Base, published: Base, entries: Collection[ManifestEntry]) -> None:
        """Moves the cache to a snapshot that this committer has published.

        Args:
            base: the snapshot on which the new one was built. If the cached snapshot is older than
                this base, the cache stays where it is until the next query.
            published: the new snapshot.
            entries: the delta entries of the new snapshot.
        """
        self._own_last = published
        self._added.clear()
        self._checked.end()
        snapshot = published.snapshot
        if self._cached_at != base.snapshot or snapshot is None:
            return
        if snapshot.commit_kind is CommitKind.OVERWRITE:
            self.buckets.forget()
        self._take(entries)
        if self._highest is not None:
            self._highest = max(self._highest, highest_of(entries))
        self._cached_at = snapshot

    def forget(self) -> None:
        """Empties the cache."""
        self._own_last = None
        self._cached_at = None
        self._drop()
        self._added.clear()

    def _drop(self) -> None:
        """Forgets all values that hold at the cached snapshot."""
        self.buckets.forget()
        self._checked.forget()
        self._watched.forget()
        self._highest = None

    def _move(self, latest: Snapshot | None) -> None:
        """Moves the cache to the snapshot `latest`, or empties the cache. Raises `StorageError`."""
        if latest == self._cached_at:
            return
        if (
            self.buckets.partitions
            or self._checked.partitions
            or self._watched.partitions
            or self._highest is not None
        ):
            try:
                follows = self._follow(latest)
            except (NotFound, CorruptMetadata):
                # The snapshot expired while it was read, or it is broken. A later read reports a
                # broken snapshot.
                follows = False
            if not follows:
                self._drop()
        self._cached_at = latest

    def _follow(self, latest: Snapshot | None) -> bool:
        """Adds the snapshots between the cached one and `latest` to the cache. Returns False if a
        snapshot is missing, or if they are not in one lineage.
        """
        if latest is None:
            return False
        cached = self._cached_at
        if cached is not None and (latest.id <= cached.id or not self.snapshots.stands(cached)):
            return False
        cached_id = 0
        if cached is not None:
            cached_id = cached.id
        window = self.snapshots.window(cached_id, latest)
        if not window.complete:
            return False
        since = window.snapshots
        if any(snapshot.commit_kind is CommitKind.OVERWRITE for snapshot in since):
            self.buckets.forget()
            self._checked.forget()
            self._watched.forget()
        highest = self._highest_after(since, latest)
        partitions = {
            *self._checked.partitions,
            *self.buckets.partitions,
            *self._watched.partitions,
        }
        if partitions:
            metas = (meta for snapshot in since for meta in self.manifests.delta(snapshot))
            wanted = PartitionFilter(self._types, rows=partitions)
            self._take(list(self.manifests.entries_of(metas, wanted)))
        self._highest = highest
        return True

    def _highest_after(self, since: Iterable[Snapshot], latest: Snapshot) -> int | None:
        """The largest sequence number at `latest`, after the snapshots in `since`. None if the
        number at the cached snapshot is not known. Raises what `added` raises.
        """
        if self._highest is None:
            return None
        recorded = recorded_number(latest)
        if recorded is not None:
            return recorded
        return self._with_added(self._highest, since)

    def _with_added(self, highest: int, snapshots: Iterable[Snapshot]) -> int:
        """The largest of the number `highest` and the sequence numbers that the snapshots have
        added.
        """
        for snapshot in snapshots:
            highest = max([highest, *self.added(snapshot).values()])
        return highest

    def _take(self, entries: Collection[ManifestEntry]) -> None:
        """Adds the entries of commits to the cache, in their order."""
        self._checked.take(entries)
        self._watched.take(entries)
        try:
            self.buckets.take(entries)
        except BucketCountChanged:
            # The next query for that partition reads the partition again, and reports the error.
            self.buckets.forget()

    # -- our own last commit, manifests -----------------------------------------------------------
    @property
    def last(self) -> Snapshot | None:
        """The last snapshot that this committer has published. None if it was forgotten."""
        if self._own_last is None:
            return None
        return self._own_last.snapshot

    def base(self, latest: Snapshot | None) -> Base:
        """The base `latest`, a snapshot with its manifests. The manifests of this committer's last
        snapshot are known, and are not read. Raises `CorruptMetadata`, `StorageError`.
        """
        if latest is None:
            return Base(snapshot=None, metas=())
        if self._own_last is not None and self._own_last.snapshot == latest:
            return self._own_last
        return Base(snapshot=latest, metas=self.manifests.base_and_delta(latest))

    # -- buckets and files ------------------------------------------------------------------------
    def buckets_at(self, base: Base, partitions: Collection[bytes]) -> BucketIndex:
        """The buckets of the given partitions, and of other partitions in the cache, at the base.
        Raises `CorruptMetadata`, `StorageError`, and `BucketCountChanged` if a partition has files
        for different bucket counts.
        """
        self._move(base.snapshot)
        missing = self.buckets.missing(partitions)
        if missing:
            self.buckets.add(missing, live_files(self.manifests, base.metas, self._types, missing))
        return self.buckets

    def files_at(self, base: Base, partitions: Collection[bytes], commit: object) -> KnownFiles:
        """The files of the given partitions at the base. The caller must not change or keep the
        result.

        Args:
            base: the snapshot, with its manifests.
            partitions: the partitions whose files are returned.
            commit: the commit that asks. Files that an earlier commit has read are read again,
                unless `conflict-detection-mode` is `row_incremental`.

        Raises:
            CorruptMetadata, StorageError: a manifest cannot be read. In that case no partition was
                added to the cache.
        """
        self._checked.begin(commit)
        self._move(base.snapshot)
        missing = self._checked.missing(partitions)
        if missing:
            wanted = PartitionFilter(self._types, rows=missing)
            self._checked.add(missing, self.manifests.entries_of(base.metas, wanted))
        return self._checked.of(partitions)

    def watch(self, base: Base, partitions: Collection[bytes], below: int | None) -> WatchedFiles:
        """The live files of the given partitions at the base, each with its whole entry. After
        that, the result follows every commit, and no manifest is read again for these partitions.
        Only files of less than `below` bytes are returned. Raises `CorruptMetadata`,
        `StorageError`.
        """
        self._move(base.snapshot)
        missing = self._watched.missing(partitions, below)
        if missing:
            self._watched.add(missing, live_files(self.manifests, base.metas, self._types, missing))
        return self._watched

    def watched_at(self, base: Base, entries: Collection[ManifestEntry]) -> KnownFiles | None:
        """The files at the base in the buckets of the given entries. None if one of these buckets
        is not watched. Raises `CorruptMetadata`, `StorageError`.
        """
        if not self._watched.partitions:
            return None
        self._move(base.snapshot)
        return self._watched.known({(entry.partition, entry.bucket) for entry in entries})

    # -- sequence numbers -------------------------------------------------------------------------
    def knows_highest(self, latest: Snapshot | None) -> bool:
        """Whether the largest sequence number at a snapshot is cached, or stored in the snapshot
        itself.
        """
        if latest is None or recorded_number(latest) is not None:
            return True
        if self._highest is None or self._cached_at is None:
            return False
        return self._cached_at.id <= latest.id

    def highest_at(self, latest: Snapshot | None) -> int:
        """The largest sequence number of the table at a snapshot. -1 if there is no number. Raises
        `NotFound`, `CorruptMetadata`, `StorageError`.
        """
        if latest is None:
            return -1
        self._move(latest)
        if self._highest is None:
            self._highest = self._read_highest(latest)
        return self._highest

    def added(self, snapshot: Snapshot) -> Mapping[_Bucket, int]:
        """The largest sequence number that a snapshot has added to each bucket. Each snapshot is
        read only once between two commits of our own. Raises `NotFound`, `CorruptMetadata`,
        `StorageError`.
        """
        added = self._added.get(snapshot.nonce)
        if added is not None:
            return added
        highest: dict[_Bucket, int] = {}
        for meta in self.manifests.delta(snapshot):
            for entry in self.manifests.read(meta):
                if entry.kind is FileKind.ADD:
                    bucket = (entry.partition, entry.bucket)
                    number = entry.file.max_sequence_number
                    highest[bucket] = max(number, highest.get(bucket, number))
        self._added[snapshot.nonce] = highest
        return highest

    def _read_highest(self, latest: Snapshot) -> int:
        """Finds the largest sequence number at a snapshot. Walks down to a snapshot that stores its
        number, and then reads the deltas above that snapshot. Reads all manifests of the table if
        there is no such snapshot.
        """
        above: list[Snapshot] = []
        for snapshot in self.snapshots.walk_down(latest):
            highest = recorded_number(snapshot)
            if highest is None:
                above.append(snapshot)
                if snapshot.id == 1:
                    highest = -1  # nothing was there before
            if highest is not None:
                try:
                    return self._with_added(highest, above)
                except (NotFound, CorruptMetadata):
                    break  # one of them has expired meanwhile
            if len(above) == _MOST_WALKED:
                break
        entries = (
            entry
            for meta in self.manifests.base_and_delta(latest)
            for entry in self.manifests.read(meta)
        )
        return highest_of(entries)


def recorded_number(snapshot: Snapshot) -> int | None:
    """The largest sequence number in a snapshot's own properties. None if no number is stored.
    Properties that were copied from an earlier snapshot do not count, because another engine may
    have copied a number that is too small now.
    """
    return id_in_name(own_properties(snapshot).get(MAX_SEQUENCE, ""), "")


def highest_of(entries: Iterable[ManifestEntry]) -> int:
    """The largest sequence number of added files. -1 if there are none."""
    added = (entry.file.max_sequence_number for entry in entries if entry.kind is FileKind.ADD)
    return max(added, default=-1)
