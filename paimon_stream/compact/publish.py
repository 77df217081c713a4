"""Publishes rewritten units as one COMPACT snapshot, without those that others have changed
(compaction.md §11.3, RC11.2), and reports what a compaction has done, or would do.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paimon_stream._version import __version__
from paimon_stream.commit.committer import Committer
from paimon_stream.commit.plan import Base, Changes, IndexChange
from paimon_stream.commit.request import CommitRequest, Published
from paimon_stream.commit.vectors import VectorChanges
from paimon_stream.commit.watched_files import WatchedFiles
from paimon_stream.compact.rewrite import Rewritten
from paimon_stream.compact.units import Bucket, KeyedUnit, WaitingUnit, bucket_of
from paimon_stream.errors import NotFound
from paimon_stream.format.deletion_vectors import record_of
from paimon_stream.format.entries import DataFileMeta, FileIdentity, FileKind, ManifestEntry
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind, Snapshot, SnapshotRef
from paimon_stream.format.snapshot_marks import VERSION_MARK
from paimon_stream.options import DELETION_VECTORS
from paimon_stream.reports import Report
from paimon_stream.table.live import live_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_spec import PartitionFilter
from paimon_stream.table.table import Table
from paimon_stream.table.vectors import IndexFiles, Vector, VectorIndex

Watch = Callable[[Base, Collection[bytes]], WatchedFiles]


class CompactionSource:
    """The changes of a compaction on any base: a `ChangeSource`. A unit is left out if one of its
    files is not live any more, because then its rows are elsewhere or gone.
    """

    def __init__(
        self,
        table: Table,
        planned: Snapshot | None,
        made: Sequence[Rewritten],
        uuid: str,
        watch: Watch | None = None,
    ) -> None:
        """The units were planned on the snapshot `planned`, or on several. `uuid` is for the names
        of index files. `watch` gives the live files of some partitions at a base; without it they
        are read.
        """
        self._table = table
        self._manifests = ManifestStore(table.storage)
        self._planned = planned
        self._made = made
        self._uuid = uuid
        self._watch = watch
        self.vectors = VectorChanges(table, uuid)

    def at(self, base: Base) -> Changes:
        """A DELETE for each file of the remaining units, then an ADD for each new file, and their
        changelog. Raises `CorruptMetadata`, `StorageError`.
        """
        made, table = self._made, self._table
        keyed, changed = bool(table.schema.primary_keys), base.snapshot != self._planned
        if changed:
            live = self._live(base)
            made = [one for one in made if _fits(one, live)]
        index: tuple[IndexChange, ...] = ()
        if not keyed or (changed and table.options.value(DELETION_VECTORS)):
            there = VectorIndex.of(table, base.snapshot)
            if changed:
                now = there.vectors(
                    {file.file.file_name for one in made for file in one.unit.known}
                )
                made = [one for one in made if self._is_as_read(one, now)]
            if not keyed and any(one.vectors for one in made):
                files = [file for one in made for file in one.unit.files]
                names = {(file.partition, file.bucket, file.file.file_name) for file in files}
                index = self.vectors.at(there.entries, names)
        gone = [entry for one in made for entry in one.deleted()]
        entries = (*gone, *(entry for one in made for entry in one.placed(one.files)))
        changelog = tuple(entry for one in made for entry in one.placed(one.changelog))
        index += tuple(change for one in made for change in one.index_changes())
        return Changes(entries=entries, changelog=changelog, index=index)

    def publish(
        self, committer: Committer, planned: Snapshot, user: str
    ) -> tuple[Snapshot | None, set[int]]:
        """Publishes the changes as a snapshot of its own. `planned` is the snapshot whose files
        were rewritten. Nobody else may have the `user`: it must not count as a commit of a stream
        (RC11.1). Returns the new snapshot, None if there is none, and the positions of the units in
        it. Raises the errors of `Committer.commit`. Only after a `CommitUnknown` may anything be
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
            return None, set()
        return outcome.snapshot, landed(outcome, self._made)

    def _is_as_read(self, made: Rewritten, now: Mapping[str, Vector]) -> bool:
        """Whether the deletion vectors of the files from which the unit was planned are those that
        were read. They may be in another index file meanwhile. With a primary key, others may so
        have marked rows of any file (RC9.2).
        """
        names = {one.file.file_name for one in made.unit.known}
        there = {name: now[name] for name in names & now.keys()}
        if there.keys() != made.vectors.keys():
            return False
        moved = {name for name, one in there.items() if one != made.vectors[name]}
        try:
            return self._records(there, moved) == self._records(made.vectors, moved)
        except NotFound:
            return False  # the index file that was read has expired

    def _records(self, vectors: Mapping[str, Vector], names: Collection[str]) -> dict[str, bytes]:
        """The bytes of these vectors. Each index file is read once."""
        files = IndexFiles(self._table)
        chosen = sorted(names, key=lambda name: vectors[name][0].file.file_name)
        found = ((name, *vectors[name]) for name in chosen)
        return {
            name: record_of(files.read(entry), place, files.path(entry))
            for name, entry, place in found
        }

    def _live(self, base: Base) -> dict[Bucket, dict[FileIdentity, DataFileMeta]]:
        """The live files by bucket."""
        types, partitions = self._table.partition_types, {one.unit.bucket[0] for one in self._made}
        found: dict[Bucket, dict[FileIdentity, DataFileMeta]] = {}
        if self._watch is not None:
            watched, where = (
                self._watch(base, partitions),
                {one.unit.bucket[:2] for one in self._made},
            )
            live: Iterable[ManifestEntry] = (one for bucket in where for one in watched.of(*bucket))
        else:
            live = live_files(
                self._manifests, base.metas, types, PartitionFilter(types, rows=partitions)
            )
        for one in live:
            found.setdefault(bucket_of(one), {})[one.identity] = one.file
        return found


def _fits(made: Rewritten, live: Mapping[Bucket, Mapping[FileIdentity, DataFileMeta]]) -> bool:
    """Whether the unit's files are live, and no other file is where the new ones are to be."""
    there = live.get(made.unit.bucket, {})
    old = {one.identity for one in made.unit.files}
    if not old <= there.keys():
        return False
    if isinstance(made.unit, KeyedUnit):
        return _is_alone(made.unit, there)
    if isinstance(made.unit, WaitingUnit):
        return not any(map(made.unit.is_behind, live.keys(), live.values()))
    if made.unit.bucket[2] <= 0 or not made.files:
        return True
    # The rows of a file that begins within the new numbers would come after some of the unit's.
    first, last = made.files[0].min_sequence_number, made.files[-1].max_sequence_number
    others = (file.min_sequence_number for identity, file in there.items() if identity not in old)
    return not any(first < number <= last for number in others)


def _is_alone(unit: KeyedUnit, there: Iterable[FileIdentity]) -> bool:
    """Whether nobody else has compacted the bucket. A new file from level 1 on could have keys of
    the unit's, on its level or on an older one. What was looked up must still be there, too.
    """
    known = {one.identity for one in unit.in_bucket if one.file.level > 0}
    now = {one for one in there if one.level > 0}
    return known == now if unit.looks_up else now <= known


def landed(outcome: Published, made: Sequence[Rewritten]) -> set[int]:
    """The positions of the units that are in the published snapshot."""
    gone = {one.identity for one in outcome.compact_changes.entries if one.kind is FileKind.DELETE}
    return {number for number, one in enumerate(made) if one.unit.files[0].identity in gone}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedBucket(Report):
    """The files of one bucket that a compaction takes: their partition, number, rows and bytes.
    *Reads* count the files that a reader opens in place of these before and after, or with a
    primary key the sorted runs that it merges in the bucket. `skipped` says why the files were left
    as they are, if they were.
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
    """The numbers of one compaction. `snapshot_id` is that of its last snapshot, None if there was
    nothing to do, and in a dry run. *Before* and *after* count the files that were replaced and the
    new ones; in a dry run, *after* is what is to be expected, without the rows that merging leaves
    out. `files_upgraded` counts the files of tables with a primary key that only changed their
    level; they are not counted elsewhere but in the buckets. `changelog_rows` counts the rows of
    changelog files, which the changelog producers lookup and full-compaction have compactions
    write; it is 0 in a dry run. `conflicts` counts how often files could not be replaced because
    others had just changed them.
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
        """How many files or sorted runs a reader goes through in these buckets for one that it
        needs, before the compaction. 1 where nothing is compacted.
        """
        before, after = (
            sum(one.reads_before for one in self.buckets),
            sum(one.reads_after for one in self.buckets),
        )
        return round(before / after, 2) if after else 1.0
