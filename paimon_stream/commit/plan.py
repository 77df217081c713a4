"""From commit messages to the changes of one snapshot. Pure: no storage is touched.

Invariants: every file of every message becomes exactly one ADD entry, in message order; nothing that
this release cannot commit is dropped in silence; numbering changes sequence numbers only, and gives
every row of a bucket a number above all numbers that were there before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from paimon_stream.commit.message import CommitMessage
from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.entries import FileKind, ManifestEntry

__all__ = ["Changes", "collect", "renumber"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The delta of one snapshot: its manifest entries, in the order they are written."""

    entries: tuple[ManifestEntry, ...]

    @property
    def partitions(self) -> frozenset[bytes]:
        """The partitions the entries touch, as serialized rows."""
        return frozenset(entry.partition for entry in self.entries)

    @property
    def record_count(self) -> int:
        """Rows added minus rows deleted (semantics.md 2.3 step 8)."""
        return sum(
            entry.file.row_count if entry.kind is FileKind.ADD else -entry.file.row_count
            for entry in self.entries
        )


def collect(messages: Iterable[CommitMessage], *, table_buckets: int, location: str) -> Changes:
    """The changes the messages ask for; `table_buckets` is the option `bucket`, for messages without a
    bucket count (semantics.md 2.1).

    Raises `UnsupportedFeature` for messages with deletes, changelogs, indexes or a compaction.
    """
    entries: list[ManifestEntry] = []
    for message in messages:
        _check_supported(message, location)
        total = table_buckets if message.total_buckets is None else message.total_buckets
        entries.extend(
            ManifestEntry(
                kind=FileKind.ADD,
                partition=message.partition,
                bucket=message.bucket,
                total_buckets=total,
                file=file,
            )
            for file in message.new_files
        )
    return Changes(entries=tuple(entries))


_UNSUPPORTED: Mapping[str, str] = {
    "deleted_files": "deleted files",
    "changelog_files": "changelog files",
    "new_index_files": "index files",
    "deleted_index_files": "deleted index files",
    "compact_before": "a compaction",
    "compact_after": "a compaction",
    "compact_changelog_files": "changelog files of a compaction",
    "compact_new_index_files": "index files of a compaction",
    "compact_deleted_index_files": "deleted index files of a compaction",
}


def _check_supported(message: CommitMessage, location: str) -> None:
    for attribute, what in _UNSUPPORTED.items():
        if getattr(message, attribute):
            raise UnsupportedFeature(
                f"{location}: a commit message for bucket {message.bucket} carries {what}, which this "
                "release does not commit. Nothing was committed. Commit it with the engine that made it.",
                table=location,
                bucket=message.bucket,
                part=attribute,
            )


def renumber(changes: Changes, highest: Mapping[tuple[bytes, int], int]) -> Changes:
    """The same changes with the final sequence numbers of fixed-bucket files.

    `highest` has the highest number of each (partition, bucket) that has files. Writers number each
    bucket from 0; here the numbers move up behind those in use, in entry order (semantics.md 6.3).
    """
    following = dict(highest)
    entries: list[ManifestEntry] = []
    for entry in changes.entries:
        if entry.total_buckets <= 0:
            entries.append(entry)
            continue
        where, file = (entry.partition, entry.bucket), entry.file
        first = following.get(where, -1) + 1
        last = first + file.max_sequence_number - file.min_sequence_number
        following[where] = last
        numbered = replace(file, min_sequence_number=first, max_sequence_number=last)
        entries.append(replace(entry, file=numbered))
    return Changes(entries=tuple(entries))
