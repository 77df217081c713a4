"""What a compaction has done, or would do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paimon_stream.reports import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedBucket(Report):
    """The files of one bucket that a compaction takes: their partition, number, rows and bytes. *Reads* count
    the files that a reader opens in place of these before and after, or with a primary key the sorted runs
    that it merges in the bucket. `skipped` says why the files were left as they are, if they were."""

    partition: Mapping[str, Any] = field(hash=False)
    bucket: int
    files: int
    rows: int
    bytes: int
    reads_before: int
    reads_after: int
    skipped: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactReport(Report):
    """The numbers of one compaction. `snapshot_id` is that of its last snapshot, None if there was nothing to do, and
    in a dry run. *Before* and *after* count the files that were replaced and the new ones; in a dry run, *after* is
    what is to be expected, without the rows that merging leaves out. `files_upgraded` counts the files of tables with a
    primary key that only changed their level; they are not counted elsewhere but in the buckets. `changelog_rows`
    counts the rows of changelog files, which the changelog producers lookup and full-compaction have compactions write;
    it is 0 in a dry run. `conflicts` counts how often files could not be replaced because others had just changed them.
    """

    table: str
    dry_run: bool
    snapshot_id: int | None = None
    files_before: int = 0
    files_after: int = 0
    files_upgraded: int = 0
    rows_before: int = 0
    rows_after: int = 0
    changelog_rows: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    conflicts: int = 0
    buckets: tuple[CompactedBucket, ...] = ()

    also_in_json = ("read_amplification",)

    @property
    def read_amplification(self) -> float:
        """How many files or sorted runs a reader goes through in these buckets for one that it needs, before
        the compaction. 1 where nothing is compacted."""
        before, after = (sum(one.reads_before for one in self.buckets), sum(one.reads_after for one in self.buckets))
        return round(before / after, 2) if after else 1.0
