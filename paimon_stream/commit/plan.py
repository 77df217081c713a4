"""Turns commit messages into the changes of snapshots. This module touches no storage.

Invariants: every file of every message becomes exactly one entry, in message order. Written and
compacted files are kept apart, because they become two snapshots. Numbering changes only sequence
numbers. Every row of a bucket gets a number above those of all earlier rows of the bucket.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from paimon_stream.format import entries as records
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import (
    DataFileMeta,
    FileKind,
    IndexFileMeta,
    IndexManifestEntry,
    ManifestEntry,
)
from paimon_stream.format.index_manifest import DELETION_VECTORS
from paimon_stream.format.names import POSTPONE_BUCKET
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.table.row_ids import ROW_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The snapshot on which an attempt builds, with its manifests.

    Attributes:
        snapshot: the latest snapshot. None in an empty table.
        metas: the manifests of that snapshot. Those of its base list come first.
    """

    snapshot: Snapshot | None
    metas: tuple[records.ManifestFileMeta, ...]

    @property
    def id(self) -> int:
        """The id of the base snapshot; 0 in an empty table."""
        if self.snapshot is None:
            return 0
        return self.snapshot.id

    @property
    def index_manifest(self) -> str | None:
        """The name of the base snapshot's index manifest; None if it has none."""
        if self.snapshot is None:
            return None
        return self.snapshot.index_manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexChange:
    """One index file that is added to the table (ADD) or removed from it (DELETE)."""

    kind: FileKind
    entry: IndexManifestEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes of one snapshot, in the order in which they are written.

    Attributes:
        entries: the manifest entries of the snapshot's delta.
        changelog: the manifest entries of the snapshot's changelog, which are ADDs only.
        index: the changes of the snapshot's index files.
    """

    entries: tuple[ManifestEntry, ...] = ()
    changelog: tuple[ManifestEntry, ...] = ()
    index: tuple[IndexChange, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is any change."""
        return bool(self.entries or self.changelog or self.index)

    @property
    def partitions(self) -> frozenset[bytes]:
        """The partitions that the entries touch, as serialized rows."""
        return frozenset(entry.partition for entry in self.entries)

    @property
    def record_count(self) -> int:
        """The rows of added files minus the rows of deleted files (semantics.md §2.3 step 8)."""
        rows = 0
        for entry in self.entries:
            if entry.kind is FileKind.ADD:
                rows += entry.file.row_count
            else:
                rows -= entry.file.row_count
        return rows

    @property
    def changelog_record_count(self) -> int:
        """How many rows the changelog files have."""
        return sum(entry.file.row_count for entry in self.changelog)

    @property
    def takes_away(self) -> bool:
        """Whether readers lose rows that they saw before, because of a DELETE entry or a change of
        deletion vectors. An append with such changes becomes an OVERWRITE (semantics.md §2.2).
        """
        return any(entry.kind is FileKind.DELETE for entry in self.entries) or any(
            change.entry.file.index_type == DELETION_VECTORS for change in self.index
        )


NO_CHANGES = Changes()


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedChanges:
    """The changes that messages ask for. One commit publishes them as two snapshots, in this order
    (semantics.md §1.4).

    Attributes:
        append: the changes by files that were written.
        compact: the changes by files that were compacted.
    """

    append: Changes = NO_CHANGES
    compact: Changes = NO_CHANGES


def collect(messages: Iterable[CommitMessage], *, table_buckets: int) -> CollectedChanges:
    """The changes that the messages ask for. `table_buckets` is the option `bucket`, for messages
    without a bucket count (semantics.md §2.1).
    """
    append = _Half()
    compact = _Half()
    for message in messages:
        _add(append.entries, message, table_buckets, FileKind.ADD, message.new_files)
        if not message.is_more_than_new_files():
            continue
        add = partial(_add, message=message, table_buckets=table_buckets)
        indexes = partial(_index_changes, message)
        add(append.entries, kind=FileKind.DELETE, files=message.deleted_files)
        add(append.changelog, kind=FileKind.ADD, files=message.changelog_files)
        append.index += indexes(FileKind.ADD, message.new_index_files)
        append.index += indexes(FileKind.DELETE, message.deleted_index_files)
        add(compact.entries, kind=FileKind.DELETE, files=message.compact_before)
        add(compact.entries, kind=FileKind.ADD, files=message.compact_after)
        add(compact.changelog, kind=FileKind.ADD, files=message.compact_changelog_files)
        compact.index += indexes(FileKind.ADD, message.compact_new_index_files)
        compact.index += indexes(FileKind.DELETE, message.compact_deleted_index_files)
    return CollectedChanges(append=append.done(), compact=compact.done())


@dataclass(slots=True)
class _Half:
    """The changes of one of the two snapshots, while they are collected."""

    entries: list[ManifestEntry] = field(default_factory=list)
    changelog: list[ManifestEntry] = field(default_factory=list)
    index: list[IndexChange] = field(default_factory=list)

    def done(self) -> Changes:
        """The collected changes."""
        return Changes(
            entries=tuple(self.entries), changelog=tuple(self.changelog), index=tuple(self.index)
        )


def _add(
    entries: list[ManifestEntry],
    message: CommitMessage,
    table_buckets: int,
    kind: FileKind,
    files: Iterable[DataFileMeta],
) -> None:
    """Adds an entry for each of these files of the message to `entries`."""
    total_buckets = table_buckets if message.total_buckets is None else message.total_buckets
    for file in files:
        entries.append(
            ManifestEntry(
                kind=kind,
                partition=message.partition,
                bucket=message.bucket,
                total_buckets=total_buckets,
                file=file,
            )
        )


def _index_changes(
    message: CommitMessage, kind: FileKind, files: Iterable[IndexFileMeta]
) -> list[IndexChange]:
    """A change for each of these index files of the message."""
    entries = (
        IndexManifestEntry(partition=message.partition, bucket=message.bucket, file=file)
        for file in files
    )
    return [IndexChange(kind=kind, entry=entry) for entry in entries]


def timed(changes: Changes, newest: Mapping[bytes, int]) -> Changes:
    """These changes, with new creation times for the files that go to bucket -2. In a partition,
    each time is later than the one before, and than the partition's `newest` time, even if clocks
    differ. A compaction merges the rows of a key in the order of these times (table-kinds.md §4.1).
    """
    last = dict(newest)
    entries: list[ManifestEntry] = []
    for entry in changes.entries:
        if entry.bucket == POSTPONE_BUCKET and entry.kind is FileKind.ADD:
            last[entry.partition] = max(last[entry.partition] + 1, entry.file.creation_time or 0)
            entry = replace(entry, file=replace(entry.file, creation_time=last[entry.partition]))
        entries.append(entry)
    return replace(changes, entries=tuple(entries))


def renumber(changes: Changes, highest: Mapping[tuple[bytes, int], int]) -> Changes:
    """These changes, with the final sequence numbers of new files in fixed buckets (semantics.md
    §6.3). Writers count each bucket from 0. The numbers are moved above the `highest` number in
    use, which is given by partition and bucket. The numbers follow the order of the entries.
    """
    following = dict(highest)
    entries: list[ManifestEntry] = []
    for entry in changes.entries:
        if entry.total_buckets <= 0 or entry.kind is FileKind.DELETE:
            entries.append(entry)
            continue
        place = (entry.partition, entry.bucket)
        file = entry.file
        first = following.get(place, -1) + 1
        last = first + file.max_sequence_number - file.min_sequence_number
        following[place] = last
        entries.append(replace(entry, file=file.numbered(first, last)))
    return replace(changes, entries=tuple(entries))


def with_row_ids(changes: Changes, first: int, snapshot: int) -> tuple[Changes, int]:
    """These changes with row ids, for a table with row tracking, and the first id that is free
    after these rows (table-kinds.md §5.1). `snapshot` is the id of the new snapshot. New rows get
    ids from `first` on, in the order of the entries. They get the snapshot's id as their sequence
    number. Compacted rows keep their ids.
    """
    entries: list[ManifestEntry] = []
    for entry in changes.entries:
        file = entry.file
        is_new = entry.kind is FileKind.ADD and file.file_source == records.FileSource.APPEND
        if is_new and file.first_row_id is None and ROW_ID not in (file.write_cols or ()):
            entry = replace(
                entry, file=replace(file.numbered(snapshot, snapshot), first_row_id=first)
            )
            first += file.row_count
        entries.append(entry)
    return replace(changes, entries=tuple(entries)), first
