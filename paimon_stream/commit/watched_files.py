"""The live files of the partitions that a stream compacts, by bucket and with their whole entries.

They are read once, and then follow the commits of the table (`commit/table_cache.py`). So neither the plan of a
compaction nor its check reads the table's manifests, however large or old the table is.
"""

from collections.abc import Collection, Iterable
from typing import Final

from paimon_stream.commit.base_files import KnownFiles, LiveFile
from paimon_stream.format.entries import FileIdentity, FileKind, ManifestEntry

_Bucket = tuple[bytes, int]


class WatchedFiles:
    """Files by partition and bucket, in the order of commits. `below` limits the size of those that are kept, in
    bytes. The memory is bounded: if there are more than `MOST`, all are forgotten."""

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
        """The given partitions that are not watched. All are, if files of other sizes are wanted from now on or
        there are too many."""
        if below != self.below or self.too_many:
            self.forget()
            self.below = below
        return [one for one in dict.fromkeys(partitions) if one not in self._files]

    def add(self, partitions: Iterable[bytes], live: Iterable[ManifestEntry]) -> None:
        """Begins to watch partitions with these live files."""
        self._files.update((one, {}) for one in partitions)
        self.take(live)

    def take(self, entries: Iterable[ManifestEntry]) -> None:
        """Takes in the entries of a commit. Those of other partitions are skipped."""
        for entry in entries:
            buckets = self._files.get(entry.partition)
            if buckets is None or not (self.below is None or entry.file.file_size < self.below):
                continue
            files, identity = buckets.setdefault(entry.bucket, {}), entry.identity
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

    def known(self, buckets: Collection[_Bucket]) -> KnownFiles | None:
        """What the conflict rules need to know of these buckets. None if one of them is not watched."""
        if not all(partition in self._files for partition, _ in buckets):
            return None
        live = {one.identity: LiveFile.of(one) for where in buckets for one in self.of(*where)}
        return KnownFiles(live, set(), self._twice & live.keys())

    def forget(self) -> None:
        """Forgets everything."""
        self._files, self._twice, self._count = {}, set(), 0
