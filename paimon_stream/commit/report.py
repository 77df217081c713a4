"""The named points of a batch, and the report of one commit, for people, log lines and metrics."""

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal, Protocol, runtime_checkable

from paimon_stream.commit.plan import NO_CHANGES, Changes
from paimon_stream.commit.request import Nothing, Published
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import FileKind, ManifestEntry
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER
from paimon_stream.storage.together import Meter


class Phase(Enum):
    """The named points, in the order in which a batch reaches them. If files of a batch may be old,
    its journal entry is written before the batch is checked. DISCARDED is reached after a lost
    attempt, before BASE_READ of the next one. Tests stop, interleave or kill a writer exactly at
    such a point.
    """

    BATCH_STARTED = "batch-started"
    JUDGED = "judged"
    WRITTEN = "written"
    BASE_READ = "base-read"
    CHECKED = "checked"
    JOURNALED = "journaled"
    STAGED = "staged"
    PUBLISHED = "published"
    DISCARDED = "discarded"
    CONFIRMED = "confirmed"
    HINTED = "hinted"
    FINISHED = "finished"


@runtime_checkable
class BatchObserver(Protocol):
    """Is called at each point of a batch, in the working thread. `identifier` is the commit
    identifier of the batch.
    """

    def reached(
        self,
        phase: Phase,
        identifier: int,
    ) -> None:
        """Is called at the point `phase`. It may block, raise or kill the process."""


class _NoObserver:
    def reached(self, phase: Phase, identifier: int) -> None:
        return None


NO_OBSERVER: BatchObserver = _NoObserver()
"""The observer of production: does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The changes of one commit's snapshots, counted like Java's metrics (semantics.md §14).
    *Appended* files are those that were written, including those that an overwrite deletes.
    *Compacted* files are the input and output of a compaction.

    Attributes:
        files_added: data files that were added, by writing or by a compaction.
        files_deleted: data files that were deleted.
        files_appended: data files that were added or deleted by writing.
        files_compacted: data files that were added or deleted by a compaction.
        changelog_files_appended: changelog files that were added by writing.
        changelog_files_compacted: changelog files that were added by a compaction.
        records_appended: the rows of `files_appended`, including deleted files.
        records_compacted: the rows of `files_compacted`, including deleted files.
        changelog_records_appended: the rows of `changelog_files_appended`.
        changelog_records_compacted: the rows of `changelog_files_compacted`.
        partitions: the partitions with data files that were added or deleted.
        buckets: the buckets with such files, in all partitions.
        compaction_input_bytes: the bytes of the files that a compaction deleted.
        compaction_output_bytes: the bytes of the files that a compaction added.
    """

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
    def of(
        cls,
        append: Changes = NO_CHANGES,
        compact: Changes = NO_CHANGES,
    ) -> "Counts":
        """The counts of a commit. `append` has the changes by writing, and `compact` those by a
        compaction.
        """
        both = (*append.entries, *compact.entries)
        added = [entry for entry in both if entry.kind is FileKind.ADD]
        output = [entry for entry in compact.entries if entry.kind is FileKind.ADD]
        input_ = [entry for entry in compact.entries if entry.kind is FileKind.DELETE]
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
            compaction_input_bytes=_bytes(input_),
            compaction_output_bytes=_bytes(output),
        )


NO_COUNTS = Counts()


def _rows(entries: Iterable[ManifestEntry]) -> int:
    return sum(entry.file.row_count for entry in entries)


def _bytes(entries: Iterable[ManifestEntry]) -> int:
    return sum(entry.file.file_size for entry in entries)


def commit_millis(phases: Mapping[str, float]) -> float:
    """The milliseconds of a commit itself: all phases except judging the batch and writing its
    rows.
    """
    return sum(millis for name, millis in phases.items() if name not in ("judge", "write"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReport:
    """The report of one commit.

    Attributes:
        location: the table.
        user: the commit user.
        identifier: the commit identifier.
        outcome: `already committed` if an earlier run made the commit, and `empty` if there was
            nothing to publish.
        snapshot_id: the snapshot with the written files. None if there is none, or if it has
            expired.
        attempts: how often publishing was tried.
        rows: the rows that were published: all that the files have. If a merge writes files again
            because of a few rows, that includes the other rows.
        rows_updated: the rows of the table that a merge has updated; 0 without a merge.
        rows_deleted: the rows of the table that a merge has deleted.
        rows_inserted: the rows that a merge has inserted.
        files: the files that were published.
        bytes: the bytes of these files.
        phases: milliseconds by step.
        reused: whether an earlier run, which was killed, had prepared the files.
        counts: the numbers of files and rows that the commit changed.
        compact_snapshot_id: the snapshot of the commit's compaction. None without one.
        compact_failed: the reason why the compaction was left out. None if it was not.
        manifests_merged: how many manifests were merged into others.
        removed_files: how many files of dead attempts were removed.
        requests: in an object store or in HDFS, the number of requests that the driver sent for
            this batch, by kind (GET, PUT, HEAD, LIST, DELETE). Requests of tasks are not counted.
        trips: the round trips of these requests. Requests in flight together are one trip.
    """

    location: str
    user: str
    identifier: int
    outcome: Literal["committed", "already committed", "empty"]
    snapshot_id: int | None = None
    attempts: int = 0
    rows: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    rows_inserted: int = 0
    files: int = 0
    bytes: int = 0
    phases: Mapping[str, float] = field(default_factory=dict, hash=False)
    reused: bool = False
    counts: Counts = NO_COUNTS
    compact_snapshot_id: int | None = None
    compact_failed: str | None = None
    manifests_merged: int = 0
    removed_files: int = 0
    requests: Mapping[str, int] = field(default_factory=dict, hash=False)
    trips: int = 0

    @classmethod
    def of(
        cls,
        *,
        location: str,
        user: str,
        identifier: int,
        messages: Iterable[CommitMessage],
        outcome: Published | Nothing,
        phases: Mapping[str, float] | None = None,
        reused: bool = False,
        removed_files: int = 0,
    ) -> "CommitReport":
        """The report of a commit.

        Args:
            location: the table.
            user: the commit user.
            identifier: the commit identifier.
            messages: the committed messages.
            outcome: the outcome of the commit.
            phases: the milliseconds that the caller used before and after the commit, by step.
            reused: whether an earlier run, which was killed, had prepared the files.
            removed_files: how many files of dead attempts were removed.
        """
        empty = cls(
            location=location,
            user=user,
            identifier=identifier,
            outcome="empty",
            phases=dict(phases or {}),
        )
        if outcome.compact_failed is not None:
            empty = replace(empty, compact_failed=str(outcome.compact_failed))
        if isinstance(outcome, Nothing):
            return empty
        files = [file for message in messages for file in message.new_files]
        with_files = replace(
            empty,
            rows=sum(file.row_count for file in files),
            files=len(files),
            bytes=sum(file.file_size for file in files),
            reused=reused,
            removed_files=removed_files,
        )
        return with_files._committed(outcome)

    def _committed(self, outcome: Published) -> "CommitReport":
        """This report, with the snapshots that the commit has made and their numbers."""
        compact_snapshot_id = None
        if outcome.compact is not None:
            compact_snapshot_id = outcome.compact.id
        return replace(
            self,
            outcome="committed",
            snapshot_id=outcome.snapshot.id,
            attempts=outcome.attempts,
            phases={**self.phases, **outcome.phases},
            counts=Counts.of(outcome.changes, outcome.compact_changes),
            compact_snapshot_id=compact_snapshot_id,
            manifests_merged=outcome.manifests_merged,
        )

    def measured(self, meter: Meter) -> "CommitReport":
        """This report, with the requests and trips since the meter was made."""
        return replace(self, requests=meter.requests(), trips=meter.trips())

    @property
    def merged_rows(self) -> str:
        """How many rows a merge has updated, deleted and inserted, as text; empty if it was none,
        and without a merge.
        """
        counts = (self.rows_updated, self.rows_deleted, self.rows_inserted)
        if not any(counts):
            return ""
        return "{:,} updated, {:,} deleted, {:,} inserted".format(*counts)

    @property
    def millis(self) -> float:
        """The milliseconds of all phases together."""
        return sum(self.phases.values())

    @property
    def commit_millis(self) -> float:
        """The milliseconds of the commit itself: all phases except judging the batch and writing
        its rows.
        """
        return commit_millis(self.phases)

    @property
    def snapshots(self) -> int:
        """The number of snapshots that the commit made: one for the written files, one for a
        compaction.
        """
        if self.outcome != "committed":
            return 0
        return len({self.snapshot_id, self.compact_snapshot_id} - {None})

    @property
    def newest_snapshot_id(self) -> int | None:
        """The newest snapshot of the commit."""
        return self.compact_snapshot_id or self.snapshot_id

    def __repr__(self) -> str:
        commit = str(self.identifier)
        if self.identifier == BATCH_IDENTIFIER:
            commit = "batch write"
        snapshot = ""
        if self.snapshot_id is not None:
            snapshot = f" as snapshot {self.snapshot_id}"
        rows = ""
        if self.files:
            rows = f", {self.rows} rows in {self.files} files, {self.bytes} bytes"
        if self.merged_rows:
            rows += f", {self.merged_rows}"
        return f"<CommitReport {commit} {self.outcome}{snapshot}{rows}, {self.millis:.0f} ms>"

    def _repr_html_(self) -> str:
        """The report as a table, for notebooks."""
        snapshot: object = self.snapshot_id
        if snapshot is None:
            snapshot = "none"
        left_out = None
        if self.compact_failed:
            left_out = f"left out: {self.compact_failed}"
        reused = "no"
        if self.reused:
            reused = "yes"
        requests = None
        trips = None
        if self.requests:
            counts = sorted(self.requests.items())
            requests = ", ".join(f"{count} {kind}" for kind, count in counts)
            trips = self.trips
        rows: list[tuple[str, object]] = [
            ("table", self.location),
            ("commit user", self.user),
            ("identifier", self.identifier),
            ("outcome", self.outcome),
            ("snapshot", snapshot),
            ("attempts", self.attempts),
            ("compaction", self.compact_snapshot_id),
            ("compaction", left_out),
            ("rows", f"{self.rows:,}"),
            ("rows by the merge", self.merged_rows or None),
            ("files", f"{self.files:,}"),
            ("bytes", f"{self.bytes:,}"),
            ("prepared files reused", reused),
            *((f"{name}, ms", f"{millis:.1f}") for name, millis in self.phases.items()),
            ("requests", requests),
            ("round trips", trips),
        ]
        shown = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>"
            for name, value in rows
            if value is not None
        )
        return f"<table>{shown}</table>"
