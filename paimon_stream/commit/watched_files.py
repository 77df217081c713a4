"""Remembers live files: the facts that the conflict rules need about a commit's partitions
(semantics.md §3.4), and whole entries for the partitions that a stream compacts. Watched files are
read once, and are then kept up to date with the commits of the table (`commit/table_cache.py`). So
neither the plan of a compaction nor its check reads manifests.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from paimon_stream.format.entries import FileIdentity, FileKind, ManifestEntry
from paimon_stream.format.unknown_fields import UnknownFields


@dataclass(frozen=True, slots=True)
class LiveFile:
    """The facts that the conflict rules need about a live file.

    Attributes:
        min_key: the smallest key of the file, as a serialized row.
        max_key: the largest key of the file.
        max_sequence_number: the largest sequence number of the file.
        unknown: the unknown fields of the file's entry. The entry that removes the file repeats
            them.
    """

    min_key: bytes
    max_key: bytes
    max_sequence_number: int
    unknown: UnknownFields = ()

    @classmethod
    def of(cls, entry: ManifestEntry) -> "LiveFile":
        """The facts about an entry's file."""
        file = entry.file
        return cls(file.min_key, file.max_key, file.max_sequence_number, file.unknown)


@dataclass(slots=True)
class KnownFiles:
    """The files of one or more partitions.

    Attributes:
        live: the live files.
        removed: the files that were removed, as far as manifests still name them.
        twice: the files that are listed twice. No table should have any (semantics.md §3.5).
    """

    live: dict[FileIdentity, LiveFile] = field(default_factory=dict)
    removed: set[FileIdentity] = field(default_factory=set)
    twice: set[FileIdentity] = field(default_factory=set)

    @classmethod
    def of(cls, parts: "Sequence[KnownFiles]") -> "KnownFiles":
        """The files of several parts together."""
        if len(parts) == 1:
            return parts[0]
        together = cls()
        for part in parts:
            together.live.update(part.live)
            together.removed.update(part.removed)
            together.twice.update(part.twice)
        return together

    def replay(self, entry: ManifestEntry) -> None:
        """Adds an entry. Entries come in the order of their snapshots. After a DELETE, the file is
        never live again, even if an ADD follows, because readers do not see it again. A live file
        that is added again goes to `twice`.
        """
        identity = entry.identity
        if entry.kind is FileKind.DELETE:
            self.live.pop(identity, None)
            self.removed.add(identity)
        elif identity in self.live:
            self.twice.add(identity)
        elif identity not in self.removed:
            self.live[identity] = LiveFile.of(entry)

    def with_unknown(self, entries: Iterable[ManifestEntry]) -> tuple[ManifestEntry, ...]:
        """The entries of a commit, in which each DELETE has the unknown fields of the ADD that it
        cancels (format.md §1.5). The commit message of a caller may lack these fields.
        """
        return tuple(map(self._as_added, entries))

    def _as_added(self, entry: ManifestEntry) -> ManifestEntry:
        if entry.kind is not FileKind.DELETE:
            return entry
        added = self.live.get(entry.identity)
        if added is None or added.unknown == entry.file.unknown:
            return entry
        return replace(entry, file=replace(entry.file, unknown=added.unknown))

    @classmethod
    def replaced_by(cls, entries: Iterable[ManifestEntry]) -> "KnownFiles":
        """The files that must have been live before an overwrite with these entries, because an
        overwrite removes every live file that it has found.
        """
        known = cls()
        for entry in entries:
            if entry.kind is FileKind.DELETE:
                known.replay(replace(entry, kind=FileKind.ADD))
        return known

    def __len__(self) -> int:
        return len(self.live) + len(self.removed)


class CheckedFiles:
    """The files of the partitions against which commits were checked. All attempts of one commit
    use them. If files are kept, the next commits use them, too, and each commit updates them. The
    memory is bounded: more than `MOST` files are not kept.
    """

    MOST: Final = 200_000

    def __init__(self, *, are_kept: bool) -> None:
        self._are_kept = are_kept
        self._files: dict[bytes, KnownFiles] = {}
        self._commit: object = None
        """The commit that is being checked; None between commits."""

    @property
    def partitions(self) -> Collection[bytes]:
        """The partitions whose files are known."""
        return self._files.keys()

    def begin(self, commit: object) -> None:
        """Notes that the check of a commit begins. Files that another commit has read are
        forgotten, unless files are kept.
        """
        if not self._are_kept and self._commit is not commit:
            self._files = {}
        self._commit = commit

    def end(self) -> None:
        """Notes that the commit that was checked last was published."""
        self._commit = None
        if not self._are_kept or sum(map(len, self._files.values())) > self.MOST:
            self._files = {}

    def missing(self, partitions: Iterable[bytes]) -> frozenset[bytes]:
        """The partitions among the given ones whose files are not known."""
        return frozenset(partitions) - self._files.keys()

    def add(self, partitions: Iterable[bytes], entries: Iterable[ManifestEntry]) -> None:
        """Adds partitions with all entries of their files. Entries of other partitions are skipped,
        because other engines may have committed any bytes as partition rows. If reading the entries
        fails, no partition is added.
        """
        fresh = {partition: KnownFiles() for partition in partitions}
        for entry in entries:
            if entry.partition in fresh:
                fresh[entry.partition].replay(entry)
        self._files |= fresh

    def take(self, entries: Iterable[ManifestEntry]) -> None:
        """Adds the entries of a commit. Entries of partitions whose files are not known are
        skipped.
        """
        for entry in entries:
            if entry.partition in self._files:
                self._files[entry.partition].replay(entry)

    def of(self, partitions: Iterable[bytes]) -> KnownFiles:
        """The files of the given partitions, which must be known. The caller must not change or
        keep the result.
        """
        return KnownFiles.of([self._files[partition] for partition in partitions])

    def forget(self) -> None:
        """Forgets all files."""
        self._files = {}


class WatchedFiles:
    """Files by partition and bucket, in the order of commits. Only files of less than `below` bytes
    are kept; None: all files are kept. The memory is bounded: if there are more than `MOST` files,
    all are forgotten.
    """

    MOST: Final = 100_000

    def __init__(self) -> None:
        self._files: dict[bytes, dict[int, dict[FileIdentity, ManifestEntry]]] = {}
        self._twice: set[FileIdentity] = set()
        self._count = 0
        self.below: int | None = None

    @property
    def partitions(self) -> Collection[bytes]:
        """The watched partitions."""
        return self._files.keys()

    @property
    def too_many(self) -> bool:
        """Whether there are too many files to watch them."""
        return self._count > self.MOST

    def missing(self, partitions: Collection[bytes], below: int | None) -> list[bytes]:
        """The given partitions that are not watched. From now on, files of less than `below` bytes
        are kept; None: all files. If that limit has changed, or there are too many files, all
        partitions are forgotten first.
        """
        if below != self.below or self.too_many:
            self.forget()
            self.below = below
        return [
            partition for partition in dict.fromkeys(partitions) if partition not in self._files
        ]

    def add(self, partitions: Iterable[bytes], live: Iterable[ManifestEntry]) -> None:
        """Begins to watch partitions. `live` has the entries of their live files."""
        self._files.update((partition, {}) for partition in partitions)
        self.take(live)

    def take(self, entries: Iterable[ManifestEntry]) -> None:
        """Adds the entries of a commit. Entries of partitions that are not watched are skipped."""
        for entry in entries:
            buckets = self._files.get(entry.partition)
            is_small = self.below is None or entry.file.file_size < self.below
            if buckets is None or not is_small:
                continue
            files = buckets.setdefault(entry.bucket, {})
            identity = entry.identity
            before = len(files)
            if entry.kind is FileKind.DELETE:
                files.pop(identity, None)
            elif identity in files:
                self._twice.add(identity)
            else:
                files[identity] = entry
            self._count += len(files) - before

    def of(self, partition: bytes, bucket: int) -> Collection[ManifestEntry]:
        """The files of a bucket of a watched partition."""
        return self._files.get(partition, {}).get(bucket, {}).values()

    def known(self, buckets: Collection[tuple[bytes, int]]) -> KnownFiles | None:
        """The facts that the conflict rules need about the files of some buckets. None if one of
        the buckets is not watched.
        """
        if not all(partition in self._files for partition, _ in buckets):
            return None
        live = {
            entry.identity: LiveFile.of(entry) for bucket in buckets for entry in self.of(*bucket)
        }
        return KnownFiles(live, set(), self._twice & live.keys())

    def forget(self) -> None:
        """Forgets all files."""
        self._files = {}
        self._twice = set()
        self._count = 0
