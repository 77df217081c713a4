"""The live files of a table, and what a writer must know about them (semantics.md §3.4, §3.5)."""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from paimon_stream.errors import BucketCountChanged, DeletedFiles
from paimon_stream.format.entries import FileIdentity, FileKind, ManifestEntry, ManifestFileMeta
from paimon_stream.format.names import POSTPONE_BUCKET
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.format.types import DataType
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_spec import PartitionFilter
from paimon_stream.table.table import Table


def merge_entries(entries: Iterable[ManifestEntry]) -> dict[FileIdentity, ManifestEntry]:
    """Merges manifest entries in order, for the checks of a commit and for the merging of
    manifests. An ADD and a later DELETE of a file cancel out. A DELETE without an ADD stays: its
    ADD may be in an earlier manifest. Raises `DeletedFiles` for an ADD of a file that is already
    present: such a table has rows twice, and Java fails to merge it (semantics.md §3.5).
    """
    merged: dict[FileIdentity, ManifestEntry] = {}
    for entry in entries:
        identity = entry.identity
        present = merged.get(identity)
        if present is not None and entry.kind is FileKind.ADD:
            state = "added" if present.kind is FileKind.ADD else "deleted"
            raise DeletedFiles(
                f"File {identity.file_name} (bucket {identity.bucket}, level {identity.level}) is added, but it was "
                f"{state} before: it was committed twice. Remove the second commit by rolling the table back to the "
                "snapshot before it.",
                file=identity.file_name,
                bucket=identity.bucket,
            )
        if present is not None and present.kind is FileKind.ADD:
            del merged[identity]
        else:
            merged[identity] = entry
    return merged


def live_files(
    manifests: ManifestStore,
    metas: Iterable[ManifestFileMeta],
    types: Sequence[DataType],
    partitions: PartitionFilter | Collection[bytes] | None = None,
) -> list[ManifestEntry]:
    """The ADD entries of all live files, as readers see them. A file is live if no DELETE names it,
    before or after its ADD (semantics.md §3.5).

    Args:
        manifests: reads the manifests.
        metas: the manifests of a snapshot.
        types: the types of the partition columns.
        partitions: limits the result to these partitions, given as a filter or as serialized rows.
            Manifests whose partition statistics allow none of them are not read.

    Raises:
        CorruptMetadata: a manifest is missing or broken.
    """
    if isinstance(partitions, PartitionFilter):
        chosen = partitions
    elif partitions is not None and not partitions:
        return []
    else:
        chosen = PartitionFilter(types, rows=partitions)
    takes_all = chosen.is_everything
    added: list[ManifestEntry] = []
    deleted: set[FileIdentity] = set()
    for meta in metas:
        if not chosen.may_be_in(meta.partition_stats):
            continue
        for entry in manifests.read(meta):
            if not takes_all and not chosen.holds(entry.partition):
                continue
            if entry.kind is FileKind.ADD:
                added.append(entry)
            else:
                deleted.add(entry.identity)
    if not deleted:
        return added
    return [entry for entry in added if entry.identity not in deleted]


def snapshot_files(
    table: Table, snapshot: Snapshot | None, partitions: PartitionFilter | None = None
) -> list[ManifestEntry]:
    """The live files of a snapshot of the table, as `live_files` returns them. If the snapshot is
    None, there are none.
    """
    manifests = ManifestStore(table.storage)
    metas = () if snapshot is None else manifests.base_and_delta(snapshot)
    return live_files(manifests, metas, table.partition_types, partitions)


class BucketIndex:
    """What is known of the partitions that a writer touches: the largest sequence number and the
    number of level 0 files of each bucket, and each partition's bucket count.
    `commit/table_cache.py` decides which snapshot the index describes, and limits its size. Deleted
    files lower no sequence number: gaps are normal, repeats are not (format.md §7.2).
    """

    MAX_PARTITIONS: Final = 20_000

    def __init__(self) -> None:
        # The largest sequence number of each bucket, by partition and bucket.
        self._sequences: dict[bytes, dict[int, int]] = {}
        # The bucket count of each partition.
        self._totals: dict[bytes, int] = {}
        # The number of level 0 files of each bucket, by partition and bucket.
        self._depths: dict[tuple[bytes, int], int] = {}

    @property
    def partitions(self) -> Collection[bytes]:
        """The partitions of which the index knows the buckets."""
        return self._sequences.keys()

    def missing(self, partitions: Collection[bytes]) -> list[bytes]:
        """The partitions of `partitions` that the index does not know. If these and the known
        partitions are more than `MAX_PARTITIONS` together, the index first forgets those that it
        knows.
        """
        wanted = list(dict.fromkeys(partitions))
        missing = [partition for partition in wanted if partition not in self._sequences]
        if missing and len(self._sequences) + len(missing) > self.MAX_PARTITIONS:
            self.forget()
            return wanted
        return missing

    def add(self, partitions: Iterable[bytes], live: Iterable[ManifestEntry]) -> None:
        """Adds partitions to the index, from their live files. Raises `BucketCountChanged`; in that
        case nothing is added.
        """
        sequences: dict[bytes, dict[int, int]] = {partition: {} for partition in partitions}
        totals: dict[bytes, int] = {}
        self._absorb(sequences, totals, [entry for entry in live if entry.partition in sequences])
        self._sequences |= sequences
        self._totals |= totals

    def take(self, entries: Iterable[ManifestEntry]) -> None:
        """Adds the entries of a commit to the index. Entries of partitions that the index does not
        know are skipped. Raises `BucketCountChanged`; in that case the caller must make the index
        forget everything.
        """
        known = [entry for entry in entries if entry.partition in self._sequences]
        self._absorb(self._sequences, self._totals, known)

    def max_sequence(self, partition: bytes, bucket: int) -> int:
        """The largest sequence number of the bucket's files, or the newest creation time of files
        that wait in bucket -2; −1 if the bucket has no files. Raises `KeyError` for an unknown
        partition.
        """
        return self._sequences[partition].get(bucket, -1)

    def depth(self, partition: bytes, bucket: int) -> int:
        """The number of files of the bucket that no compaction has processed: those on level 0. 0
        for a partition that the index does not know.
        """
        return self._depths.get((partition, bucket), 0)

    def total_buckets(self, partition: bytes) -> int | None:
        """The bucket count that the partition's files were written for; None if the partition has
        no files. Raises `KeyError` for a partition that the index does not know.
        """
        if partition not in self._sequences:
            raise KeyError(partition)
        return self._totals.get(partition)

    def forget(self) -> None:
        """Forgets all partitions."""
        self._sequences.clear()
        self._totals.clear()
        self._depths.clear()

    def _absorb(
        self,
        sequences: dict[bytes, dict[int, int]],
        totals: dict[bytes, int],
        entries: Sequence[ManifestEntry],
    ) -> None:
        """Adds entries to the given sequence numbers and bucket counts, and to the numbers of level
        0 files. Raises `BucketCountChanged`; in that case the numbers of level 0 files are
        unchanged.
        """
        for entry in entries:
            if entry.kind is not FileKind.ADD:
                continue
            buckets = sequences[entry.partition]
            if entry.bucket == POSTPONE_BUCKET:
                number = entry.file.creation_time or 0
            else:
                number = entry.file.max_sequence_number
            buckets[entry.bucket] = max(buckets.get(entry.bucket, -1), number)
            if entry.total_buckets <= 0:
                continue  # no fixed buckets
            total = totals.setdefault(entry.partition, entry.total_buckets)
            if total != entry.total_buckets:
                raise BucketCountChanged(
                    f"A partition has files for {total} and for {entry.total_buckets} buckets (file "
                    f"{entry.file.file_name}): a writer with another 'bucket' option has appended to it. Rewrite "
                    "the partition with INSERT OVERWRITE, or roll the table back to before that commit.",
                    partition=entry.partition.hex(),
                    expected=total,
                    actual=entry.total_buckets,
                )
        for entry in entries:
            if entry.file.level == 0 and entry.bucket >= 0:
                place = (entry.partition, entry.bucket)
                change = 1 if entry.kind is FileKind.ADD else -1
                self._depths[place] = self._depths.get(place, 0) + change
