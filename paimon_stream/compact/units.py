"""A unit is a group of files of one bucket that are replaced together."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from paimon_stream.format.entries import DataFileMeta, FileIdentity, ManifestEntry
from paimon_stream.merge.rows import Comparison
from paimon_stream.read.merged import Section


class Bucket(NamedTuple):
    """A bucket of a table. Files that were written for different bucket counts are in different
    buckets.

    Attributes:
        partition: the partition as a serialized row.
        number: the number of the bucket.
        total_buckets: the bucket count that its files were written for.
    """

    partition: bytes
    number: int
    total_buckets: int


class Reads(NamedTuple):
    """How many files a reader opens. With a primary key, sorted runs are counted instead.

    Attributes:
        before: before the compaction.
        after: after the compaction.
    """

    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Unit:
    """Files of one bucket that are replaced together.

    Attributes:
        files: all of these files, in the order in which they are read.
        upgrades: the files among them that are not rewritten, because only their level changes.
    """

    files: tuple[ManifestEntry, ...]
    upgrades: tuple[ManifestEntry, ...] = ()

    @property
    def known(self) -> tuple[ManifestEntry, ...]:
        """All files that the plan of the unit was based on."""
        return self.files

    @property
    def bucket(self) -> Bucket:
        """The bucket that holds the files."""
        return bucket_of(self.files[0])

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return size_of(self.files)

    @property
    def rows(self) -> int:
        """The number of rows in all files."""
        return sum(entry.file.row_count for entry in self.files)

    @property
    def newest_schema(self) -> int:
        """The newest schema of all files that may be rewritten."""
        return max(entry.file.schema_id for entry in self.known)

    def files_after(self, target: int) -> int:
        """About how many files of `target` bytes replace the rewritten files."""
        return math.ceil(self.size / target)

    def reads(self, target: int) -> Reads:
        """How many files a reader opens. `target` is the size of a new file in bytes."""
        return Reads(before=len(self.files), after=self.files_after(target))


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Neighbouring sections that are merged into new files.

    Attributes:
        sections: the sections that are merged.
        keep_deletes: whether rows that delete are also written.
        comparison: how older values are looked up, or a changelog is written. None if neither of
            the two is done.
        writes: whether the merged rows are written. If not, the file only changes its level.
    """

    sections: tuple[Section, ...]
    keep_deletes: bool
    comparison: Comparison | None = None
    writes: bool = True

    @property
    def files(self) -> list[ManifestEntry]:
        """The files that are merged."""
        return [entry for section in self.sections for entry in section.files]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedUnit(Unit):
    """Files of a bucket with a primary key that are placed on one level.

    Attributes:
        level: where the new files and the upgraded files are placed.
        merges: the merges that rewrite files.
        in_bucket: all files of the bucket, in the order of commits.
    """

    level: int
    merges: tuple[Merge, ...]
    in_bucket: tuple[ManifestEntry, ...]

    @property
    def known(self) -> tuple[ManifestEntry, ...]:
        """See `Unit`."""
        return self.in_bucket

    @property
    def looks_up(self) -> bool:
        """Whether rows are compared with older rows of the bucket, to look them up or to write a
        changelog.
        """
        return any(merge.comparison is not None for merge in self.merges)

    def files_after(self, target: int) -> int:
        """See `Unit`."""
        return sum(
            math.ceil(size_of(merge.files) / target) for merge in self.merges if merge.writes
        )

    def reads(self, target: int) -> Reads:
        """See `Unit`."""
        replaced = {entry.identity for entry in self.files}
        levels = {entry.file.level for entry in self.in_bucket if entry.identity not in replaced}
        return Reads(before=depth(self.in_bucket), after=len({*levels, self.level}))


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingUnit(Unit):
    """The files of a partition that wait in bucket -2.

    Attributes:
        buckets: the number of buckets to which their rows go.
        first: the first sequence number of their rows.
    """

    buckets: int
    first: int

    def reads(self, target: int) -> Reads:
        """See `Unit`. Readers do not see rows that wait."""
        return Reads(before=0, after=self.buckets)

    def is_behind(self, bucket: Bucket, files: Mapping[FileIdentity, DataFileMeta]) -> bool:
        """Whether a bucket of this partition has changed since the plan was made. Then it has newer
        rows or another bucket count.

        Args:
            bucket: the bucket in which the files are.
            files: the live files of that bucket.
        """
        if bucket.partition != self.bucket.partition or bucket.number < 0:
            return False
        newest = max(file.max_sequence_number for file in files.values())
        return newest >= self.first or bucket.total_buckets != self.buckets


def bucket_of(entry: ManifestEntry) -> Bucket:
    """The bucket of a file. In a table without buckets, each file is in bucket 0 of −1 buckets."""
    return Bucket(entry.partition, entry.bucket, entry.total_buckets)


def depth(files: Iterable[ManifestEntry]) -> int:
    """The number of sorted runs of a bucket."""
    levels = [entry.file.level for entry in files]
    higher_levels = {level for level in levels if level > 0}
    return levels.count(0) + len(higher_levels)


def size_of(files: Iterable[ManifestEntry]) -> int:
    """The size of all files in bytes."""
    return sum(entry.file.file_size for entry in files)
