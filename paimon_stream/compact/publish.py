"""Publishes rewritten units as one COMPACT snapshot, except the units that others have changed
(compaction.md §11.3, RC11.2). Also reports what a compaction has done or would do.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from paimon_stream._version import __version__
from paimon_stream.commit.committer import Committer
from paimon_stream.commit.plan import Base, Changes, IndexChange
from paimon_stream.commit.request import CommitRequest, Published
from paimon_stream.commit.vectors import VectorChanges
from paimon_stream.commit.watched_files import WatchedFiles
from paimon_stream.compact.rewrite import Rewritten
from paimon_stream.compact.units import Bucket, KeyedUnit, WaitingUnit, bucket_of
from paimon_stream.format.entries import DataFileMeta, FileIdentity, FileKind, ManifestEntry
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind, Snapshot, SnapshotRef
from paimon_stream.format.snapshot_marks import VERSION_MARK
from paimon_stream.options import DELETION_VECTORS
from paimon_stream.reports import Report
from paimon_stream.table.live import live_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_spec import PartitionFilter
from paimon_stream.table.table import Table
from paimon_stream.table.vectors import Vector, VectorIndex, same_vectors

Watch = Callable[[Base, Collection[bytes]], WatchedFiles]


class CompactionSource:
    """The changes of a compaction on any base snapshot: a `ChangeSource`. A unit is left out if one
    of its files is no longer live. The rows of that file are then in other files, or were deleted.
    """

    def __init__(
        self,
        table: Table,
        planned: Snapshot | None,
        rewritten: Sequence[Rewritten],
        uuid: str,
        watch: Watch | None = None,
    ) -> None:
        """Takes the results of a rewriter.

        Args:
            table: the table in which they will be published.
            planned: the snapshot on which the units were planned. None if there are several.
            rewritten: the units and their new files.
            uuid: the part that all names of new index files contain.
            watch: gives the live files of some partitions in a base snapshot. If it is None, the
                manifests are read.
        """
        self._table = table
        self._manifests = ManifestStore(table.storage)
        self._planned = planned
        self._results = rewritten
        self._uuid = uuid
        self._watch = watch
        self.vectors = VectorChanges(table, uuid)

    def at(self, base: Base) -> Changes:
        """A DELETE for each file of the remaining units, then an ADD for each new file, and the
        changelog of these units. Raises `CorruptMetadata`, `StorageError`.
        """
        rewritten = self._results
        table = self._table
        keyed = bool(table.schema.primary_keys)
        is_other_base = base.snapshot != self._planned
        if is_other_base:
            live = self._live(base)
            rewritten = [result for result in rewritten if _fits(result, live)]
        index: tuple[IndexChange, ...] = ()
        if not keyed or (is_other_base and table.options.value(DELETION_VECTORS)):
            index_now = VectorIndex.of(table, base.snapshot)
            if is_other_base:
                vectors_now = index_now.vectors(
                    {entry.file.file_name for result in rewritten for entry in result.unit.known}
                )
                rewritten = [
                    result for result in rewritten if self._is_as_read(result, vectors_now)
                ]
            if not keyed and any(result.vectors for result in rewritten):
                replaced = [entry for result in rewritten for entry in result.unit.files]
                gone = {(entry.partition, entry.bucket, entry.file.file_name) for entry in replaced}
                index = self.vectors.at(index_now.entries, gone)
        deletes = [entry for result in rewritten for entry in result.deleted()]
        adds = [entry for result in rewritten for entry in result.placed(result.files)]
        changelog = tuple(
            entry for result in rewritten for entry in result.placed(result.changelog)
        )
        index += tuple(change for result in rewritten for change in result.index_changes())
        return Changes(entries=(*deletes, *adds), changelog=changelog, index=index)

    def publish_rewritten(
        self, committer: Committer, planned: Snapshot, user: str
    ) -> "PublishedUnits":
        """Publishes the changes as one COMPACT snapshot.

        Args:
            committer: the committer that publishes the snapshot.
            planned: the snapshot whose files were rewritten.
            user: the commit user. No other writer may use it, because the snapshot must not count
                as a commit of a stream (RC11.1).

        Returns:
            What was published.

        Raises:
            PaimonStreamError: see `Committer.commit`. Only after a `CommitUnknown` may anything be
                published.
        """
        request = CommitRequest(
            user=user,
            identifier=BATCH_IDENTIFIER,
            source=self,
            kind=CommitKind.COMPACT,
            properties={VERSION_MARK: __version__},
            seen=SnapshotRef.of(planned),
            stage_uuid=self._uuid,
        )
        with self.vectors.owned():
            outcome = committer.commit(request)
        if not isinstance(outcome, Published):
            return PublishedUnits()
        return PublishedUnits(
            outcome.snapshot, landed(outcome, self._results), is_open=outcome.is_open
        )

    def _is_as_read(self, result: Rewritten, vectors_now: Mapping[str, Vector]) -> bool:
        """Whether the files from which the unit was planned still have the deletion vectors that
        were read. A vector that was only moved to another index file counts as the same. With a
        primary key, others may have marked rows of any of these files in the meantime (RC9.2).
        """
        names = {entry.file.file_name for entry in result.unit.known}
        present = {name: vectors_now[name] for name in names & vectors_now.keys()}
        return same_vectors(self._table, result.vectors, present)

    def _live(self, base: Base) -> dict[Bucket, dict[FileIdentity, DataFileMeta]]:
        """The live files of the units' buckets, by bucket. If files are not watched, the result
        also has other buckets of the units' partitions.
        """
        types = self._table.partition_types
        buckets = {result.unit.bucket for result in self._results}
        partitions = {partition for partition, _, _ in buckets}
        by_bucket: dict[Bucket, dict[FileIdentity, DataFileMeta]] = {}
        if self._watch is not None:
            watched = self._watch(base, partitions)
            places = {(partition, number) for partition, number, _ in buckets}
            live: Iterable[ManifestEntry] = (
                entry for partition, number in places for entry in watched.of(partition, number)
            )
        else:
            live = live_files(
                self._manifests, base.metas, types, PartitionFilter(types, rows=partitions)
            )
        for entry in live:
            by_bucket.setdefault(bucket_of(entry), {})[entry.identity] = entry.file
        return by_bucket


def _fits(result: Rewritten, live: Mapping[Bucket, Mapping[FileIdentity, DataFileMeta]]) -> bool:
    """Whether the unit's files are live, and no other file has the place that the new files
    need.
    """
    in_bucket = live.get(result.unit.bucket, {})
    replaced = {entry.identity for entry in result.unit.files}
    if not replaced <= in_bucket.keys():
        return False
    if isinstance(result.unit, KeyedUnit):
        return _is_alone(result.unit, in_bucket)
    if isinstance(result.unit, WaitingUnit):
        return not any(map(result.unit.is_behind, live.keys(), live.values()))
    if result.unit.bucket.total_buckets <= 0 or not result.files:
        return True  # sequence numbers order the files of fixed buckets only
    # If another file begins within the new numbers, its rows would come between rows of the unit.
    # If the other file begins exactly at `first`, its rows come before all rows of the unit. Files
    # with the same number are read in the order of the manifests, in which the new files are last.
    first = result.files[0].min_sequence_number
    last = result.files[-1].max_sequence_number
    other_numbers = (
        file.min_sequence_number for identity, file in in_bucket.items() if identity not in replaced
    )
    return not any(first < number <= last for number in other_numbers)


def _is_alone(unit: KeyedUnit, live: Iterable[FileIdentity]) -> bool:
    """Whether nobody else has compacted the bucket. A new file above level 0 could have keys of the
    unit, on the level of the unit or on an older one. If rows were looked up in other files, these
    files must still be there, too.
    """
    planned = {entry.identity for entry in unit.in_bucket if entry.file.level > 0}
    live_above = {identity for identity in live if identity.level > 0}
    if unit.looks_up:
        return live_above == planned
    return live_above <= planned


class PublishedUnits(NamedTuple):
    """What a compaction has published.

    Attributes:
        snapshot: the snapshot; None if nothing was published.
        positions: the positions of the units that are in the snapshot.
        is_open: whether a tag may have the files of the other units (`Published.is_open`).
    """

    snapshot: Snapshot | None = None
    positions: Collection[int] = ()
    is_open: bool = False


def landed(outcome: Published, rewritten: Sequence[Rewritten]) -> set[int]:
    """The positions of the units that are in the published snapshot."""
    deleted = {
        entry.identity for entry in outcome.compact_changes.entries if entry.kind is FileKind.DELETE
    }
    return {
        number
        for number, result in enumerate(rewritten)
        if result.unit.files[0].identity in deleted
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedBucket(Report):
    """What a compaction does with the files of one bucket.

    Attributes:
        partition: the values of the partition by column.
        bucket: the number of the bucket.
        files: how many files are replaced.
        rows: the rows of these files.
        bytes: the bytes of these files.
        reads_before: the files that a reader opens before the compaction. With a primary key, the
            sorted runs that the reader merges in the bucket.
        reads_after: the same after the compaction.
        skipped: why the files were left as they are. None if they were compacted.
    """

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
    """The numbers of one compaction. *Before* counts the files that were replaced, and *after* the
    new files. In a dry run, *after* is an estimate. A merge may leave out rows, but a dry run does
    not know that.

    Attributes:
        location: the location of the table.
        dry_run: whether nothing was written.
        snapshot_id: the id of the last snapshot of the compaction. None if there was nothing to do,
            and in a dry run.
        files_before: how many files were replaced.
        files_after: how many files replace them.
        files_upgraded: how many files of a table with a primary key only changed their level. Such
            files are not counted in the other numbers, except in `buckets`.
        rows_before: the rows of the files that were replaced.
        rows_after: the rows of the new files.
        changelog_rows: the rows of changelog files. Compactions write such files for the changelog
            producers lookup and full-compaction. 0 in a dry run.
        bytes_before: the bytes of the files that were replaced.
        bytes_after: the bytes of the new files.
        conflicts: how many times files could not be replaced because others had just changed them.
        buckets: what was compacted or skipped, by bucket.
    """

    location: str
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
    def compacted(self) -> tuple[CompactedBucket, ...]:
        """The buckets that were not skipped."""
        return tuple(bucket for bucket in self.buckets if bucket.skipped is None)

    @property
    def read_amplification(self) -> float:
        """How many files or sorted runs a reader opened in the compacted buckets before the
        compaction, for each one that it opens afterwards. 1 if nothing was compacted.
        """
        reads_before = sum(bucket.reads_before for bucket in self.compacted)
        reads_after = sum(bucket.reads_after for bucket in self.compacted)
        return round(reads_before / reads_after, 2) if reads_after else 1.0
