"""The committer's cache of table state, kept from attempt to attempt and from commit to commit. It
makes the cost of a commit depend on what it changes, not on the size of the table (semantics.md
§3.4).

Invariants: the cache is valid at one snapshot, the *position*. It moves as a whole, over complete
deltas in one lineage, reading each once, or is emptied. An OVERWRITE by others may replace files
without a delta that says so (R3.4), so buckets and files are then forgotten. After a failure
everything is. Partitions that no commit touches are never read. The size of the cache is bounded.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from paimon_stream.commit.plan import Base
from paimon_stream.commit.watched_files import KnownFiles, WatchedFiles
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
    """The state of one table that one committer has cached. `buckets` are those at the position."""

    MAX_FILES: Final = 200_000
    """The maximum number of files that are kept from one commit to the next."""

    def __init__(self, table: Table, snapshots: SnapshotStore) -> None:
        self.snapshots = snapshots
        self.manifests = ManifestStore(table.storage)
        self._types = table.partition_types
        self._keeps_files = table.options.value(CONFLICT_DETECTION) == "row_incremental"
        self._own: Base | None = None
        self._at: Snapshot | None = None
        self.buckets = BucketIndex()
        self._files: dict[bytes, KnownFiles] = {}
        self._files_of: object = None
        self._watched = WatchedFiles()
        self._highest: int | None = None
        self._added: dict[str, Mapping[_Bucket, int]] = {}

    # -- moving
    # -------------------------------------------------------------------------------------
    def advance(self, base: Base, published: Base, entries: Collection[ManifestEntry]) -> None:
        """Moves over a commit of our own: `published` was made on the base with these entries. If
        the position is an earlier snapshot than the base, it stays there until the next query.
        """
        self._own = published
        self._added.clear()
        self._files_of = None
        if not self._keeps_files or sum(map(len, self._files.values())) > self.MAX_FILES:
            self._files = {}
        snapshot = published.snapshot
        if self._at != base.snapshot or snapshot is None:
            return
        if snapshot.commit_kind is CommitKind.OVERWRITE:
            self.buckets.forget()
        self._take(entries)
        if self._highest is not None:
            self._highest = max(self._highest, highest_of(entries))
        self._at = snapshot

    def forget(self) -> None:
        """Empties the cache."""
        self._own = self._at = None
        self._drop()
        self._added.clear()

    def _drop(self) -> None:
        self.buckets.forget()
        self._watched.forget()
        self._files, self._files_of, self._highest = {}, None, None

    def _move(self, latest: Snapshot | None) -> None:
        """Moves the position to this snapshot, or empties the cache. Raises `StorageError`."""
        if latest == self._at:
            return
        if (
            self.buckets.partitions
            or self._files
            or self._watched.partitions
            or self._highest is not None
        ):
            try:
                known = self._follow(latest)
            except (NotFound, CorruptMetadata):
                known = (
                    False  # it expired while it was read, or a later read reports what is broken
                )
            if not known:
                self._drop()
        self._at = latest

    def _follow(self, latest: Snapshot | None) -> bool:
        """Takes in what was committed since. False if some of it is missing or not in one
        lineage.
        """
        at = self._at
        if latest is None or (
            at is not None and (latest.id <= at.id or not self.snapshots.stands(at))
        ):
            return False
        window = self.snapshots.window(0 if at is None else at.id, latest)
        if not window.complete:
            return False
        since = window.snapshots
        recorded = recorded_number(latest)
        replaced = any(one.commit_kind is CommitKind.OVERWRITE for one in since)
        if replaced:
            self.buckets.forget()
            self._watched.forget()
            self._files = {}
        highest = self._highest
        if highest is not None:
            adds = () if recorded is not None else since
            highest = max(
                [highest, *(number for one in adds for number in self.added(one).values())]
            )
        partitions = {*self._files, *self.buckets.partitions, *self._watched.partitions}
        if partitions:
            metas = (meta for one in since for meta in self.manifests.delta(one))
            self._take(
                list(
                    self.manifests.entries_of(metas, PartitionFilter(self._types, rows=partitions))
                )
            )
        self._highest = highest if recorded is None or highest is None else recorded
        return True

    def _take(self, entries: Collection[ManifestEntry]) -> None:
        """Takes in the entries of commits, in their order."""
        self._watched.take(entries)
        for entry in entries:
            if entry.partition in self._files:
                self._files[entry.partition].replay(entry)
        try:
            self.buckets.take(entries)
        except BucketCountChanged:
            # the next query for that partition reads it anew and reports this
            self.buckets.forget()

    # -- our own last commit, manifests
    # --------------------------------------------------------------
    @property
    def last(self) -> Snapshot | None:
        """Our own last snapshot; None if it was forgotten."""
        return None if self._own is None else self._own.snapshot

    def base(self, latest: Snapshot | None) -> Base:
        """The snapshot with its manifests. Those of our own last snapshot are known and are not
        read. Raises `CorruptMetadata`, `StorageError`.
        """
        if latest is None:
            return Base(snapshot=None, metas=())
        if self._own is not None and self._own.snapshot == latest:
            return self._own
        return Base(snapshot=latest, metas=self.manifests.base_and_delta(latest))

    # -- buckets and files
    # --------------------------------------------------------------------------
    def buckets_at(self, base: Base, partitions: Collection[bytes]) -> BucketIndex:
        """The buckets of these partitions, and of others in the cache, at the base. Raises
        `BucketCountChanged` if a partition has files for different bucket counts,
        `CorruptMetadata`, `StorageError`.
        """
        self._move(base.snapshot)
        missing = self.buckets.missing(partitions)
        if missing:
            self.buckets.add(missing, live_files(self.manifests, base.metas, self._types, missing))
        return self.buckets

    def files_at(self, base: Base, partitions: Collection[bytes], commit: object) -> KnownFiles:
        """The files of these partitions at the base, not to be changed or kept. Those that an
        earlier commit has read are read anew, unless `conflict-detection-mode` is
        `row_incremental`. After `CorruptMetadata` or `StorageError` the cache is as before.
        """
        if not self._keeps_files and self._files_of is not commit:
            self._files = {}
        self._files_of = commit
        self._move(base.snapshot)
        fresh = {
            partition: KnownFiles() for partition in frozenset(partitions) - self._files.keys()
        }
        if fresh:
            for entry in self.manifests.entries_of(
                base.metas, PartitionFilter(self._types, rows=fresh.keys())
            ):
                if entry.partition in fresh:  # others may have committed rows of any bytes
                    fresh[entry.partition].replay(entry)
        self._files |= fresh
        return KnownFiles.of([self._files[partition] for partition in partitions])

    def watch(self, base: Base, partitions: Collection[bytes], below: int | None) -> WatchedFiles:
        """The live files of these partitions at the base, each with its whole entry; only those of
        less than `below` bytes if that is given. From then on they follow every commit, and no
        manifest of the table is read again for them. Raises `CorruptMetadata`, `StorageError`.
        """
        self._move(base.snapshot)
        missing = self._watched.missing(partitions, below)
        if missing:
            self._watched.add(missing, live_files(self.manifests, base.metas, self._types, missing))
        return self._watched

    def watched_at(self, base: Base, entries: Collection[ManifestEntry]) -> KnownFiles | None:
        """The files of the buckets of these entries at the base. None if they are not watched.
        Raises `CorruptMetadata`, `StorageError`.
        """
        if not self._watched.partitions:
            return None
        self._move(base.snapshot)
        return self._watched.known({(entry.partition, entry.bucket) for entry in entries})

    # -- sequence numbers
    # ---------------------------------------------------------------------------
    def knows_highest(self, latest: Snapshot | None) -> bool:
        """Whether the number at that snapshot is cached, or stored in the snapshot itself."""
        if latest is None or recorded_number(latest) is not None:
            return True
        return self._highest is not None and self._at is not None and self._at.id <= latest.id

    def highest_at(self, latest: Snapshot | None) -> int:
        """The largest sequence number of the table at a snapshot, -1 if there is none. Raises
        `NotFound`, `CorruptMetadata`, `StorageError`.
        """
        if latest is None:
            return -1
        self._move(latest)
        if self._highest is None:
            self._highest = self._found(latest)
        return self._highest

    def added(self, snapshot: Snapshot) -> Mapping[_Bucket, int]:
        """The largest number that a snapshot has added to each bucket. Each snapshot is read only
        once between two commits of our own. Raises `NotFound`, `CorruptMetadata`, `StorageError`.
        """
        found = self._added.get(snapshot.nonce)
        if found is None:
            highest: dict[_Bucket, int] = {}
            for meta in self.manifests.delta(snapshot):
                for entry in self.manifests.read(meta):
                    if entry.kind is FileKind.ADD:
                        where, number = (
                            (entry.partition, entry.bucket),
                            entry.file.max_sequence_number,
                        )
                        highest[where] = max(number, highest.get(where, number))
            found = self._added[snapshot.nonce] = highest
        return found

    def _found(self, latest: Snapshot) -> int:
        """Walks down to a snapshot that stores its number, then takes in the deltas above it. Reads
        the whole table if there is no such snapshot.
        """
        above: list[Snapshot] = []
        for snapshot in self.snapshots.walk_down(latest):
            known = recorded_number(snapshot)
            if known is None:
                above.append(snapshot)
                known = -1 if snapshot.id == 1 else None
            if known is not None:
                try:
                    return max(
                        [known, *(number for one in above for number in self.added(one).values())]
                    )
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
    """The largest sequence number in a snapshot's own properties; None if it is not stored. One
    that another engine copied may be too small.
    """
    return id_in_name(own_properties(snapshot).get(MAX_SEQUENCE, ""), "")


def highest_of(entries: Iterable[ManifestEntry]) -> int:
    """The largest sequence number of added files, -1 if there are none."""
    added = (entry.file.max_sequence_number for entry in entries if entry.kind is FileKind.ADD)
    return max(added, default=-1)
