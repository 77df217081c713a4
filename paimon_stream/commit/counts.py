"""What a commit changed, counted as Java's metrics count it (semantics.md §14). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paimon_stream.commit.plan import NO_CHANGES, Changes
from paimon_stream.format.entries import FileKind, ManifestEntry

__all__ = ["NO_COUNTS", "Counts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The changes of one commit's snapshots. *Appended* is what was written, deletes of an overwrite
    included; *compacted* what a compaction took and gave. Records are the rows of the files, those of
    deleted files too; sizes are bytes."""

    files_added: int = 0
    files_deleted: int = 0
    files_appended: int = 0
    files_compacted: int = 0
    changelog_files_appended: int = 0
    changelog_files_compacted: int = 0
    records_appended: int = 0
    records_compacted: int = 0
    changelog_records_appended: int = 0
    changelog_records_compacted: int = 0
    partitions: int = 0
    buckets: int = 0
    compaction_input_bytes: int = 0
    compaction_output_bytes: int = 0

    @classmethod
    def of(cls, append: Changes = NO_CHANGES, compact: Changes = NO_CHANGES) -> Counts:
        """The counts of a commit with these two halves."""
        both = (*append.entries, *compact.entries)
        added = [entry for entry in both if entry.kind is FileKind.ADD]
        given = [entry for entry in compact.entries if entry.kind is FileKind.ADD]
        taken = [entry for entry in compact.entries if entry.kind is FileKind.DELETE]
        return cls(
            files_added=len(added),
            files_deleted=len(both) - len(added),
            files_appended=len(append.entries),
            files_compacted=len(compact.entries),
            changelog_files_appended=len(append.changelog),
            changelog_files_compacted=len(compact.changelog),
            records_appended=_rows(append.entries),
            records_compacted=_rows(compact.entries),
            changelog_records_appended=append.changelog_record_count,
            changelog_records_compacted=compact.changelog_record_count,
            partitions=len({entry.partition for entry in both}),
            buckets=len({(entry.partition, entry.bucket) for entry in both}),
            compaction_input_bytes=_bytes(taken),
            compaction_output_bytes=_bytes(given),
        )


NO_COUNTS = Counts()


def _rows(entries: Iterable[ManifestEntry]) -> int:
    return sum(entry.file.row_count for entry in entries)


def _bytes(entries: Iterable[ManifestEntry]) -> int:
    return sum(entry.file.file_size for entry in entries)
