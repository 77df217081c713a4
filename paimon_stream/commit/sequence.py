"""Chooses the sequence numbers of batches in tables with primary keys, and checks at the commit
whether they are still valid. docs/format-notes.md says where the table's largest number is kept.

Invariants: a number that a batch gets is above all numbers that the table had at the snapshot at
which the number was taken. Other commits may have used these or higher numbers in a bucket of the
batch meanwhile. If so, or if that is not known, the batch is not published (semantics.md R6.2).
Rows of a key are merged in the order of their numbers, so the batch might lose against rows that
were committed before it. The same holds for the files that a killed run has prepared.
"""

from dataclasses import dataclass, replace
from typing import Final

from paimon_stream.commit.index_losses import IndexLosses
from paimon_stream.commit.plan import Base, Changes
from paimon_stream.commit.table_cache import MAX_SEQUENCE, TableCache, highest_of
from paimon_stream.errors import CorruptMetadata, IndexConflict, NotFound, SequenceConflict
from paimon_stream.format.entries import HASH, FileKind
from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef
from paimon_stream.options import ON_SEQUENCE_CONFLICT, SEQUENCE_FIELD, SEQUENCE_INIT_MODE
from paimon_stream.table.lineage import published_after
from paimon_stream.table.table import Table

MOST_REWRITES: Final = 5
"""How often a batch is written again because others have used its numbers."""

_GENERATED: Final = "sequence.generation.max-sequence-number"

_Bucket = tuple[bytes, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """The sequence numbers of one batch.

    Attributes:
        numbered_on: the snapshot at which the numbers were taken. None if the table was empty then.
        first: the first number, which is above all numbers of the table at that snapshot.
        index: the index manifest of that snapshot, by which keys get dynamic buckets.
        may_be_shared: whether the commit is made even if other commits have used these numbers. If
            so, an operator has decided that it does not matter which of two rows of a key wins.
    """

    numbered_on: SnapshotRef | None
    first: int = 0
    index: str | None = None
    may_be_shared: bool = False


def first_number(numbering: Numbering | None) -> int:
    """The first number of rows with this numbering. 0 for rows without a numbering, which get no
    numbers now.
    """
    if numbering is None:
        return 0
    return numbering.first


class Sequences:
    """The sequence numbers of one table, as one committer knows them."""

    def __init__(self, table: Table, cache: TableCache) -> None:
        self._location = table.location
        self._snapshots = cache.snapshots
        self._cache = cache
        options = table.options
        ordered_by_user = bool(options.value(SEQUENCE_FIELD).strip())
        self._checks = not (ordered_by_user or table.is_postponed)
        """Whether numbers must be above those of others. Rows that wait for a bucket have none."""
        self._for_java = options.value(SEQUENCE_INIT_MODE) == "snapshot"
        self._partition_of = table.layout.partition
        self._is_dynamic = table.has_dynamic_buckets
        self._is_indexed = not self._is_dynamic
        """Whether each bucket has the hash index that it needs. With dynamic buckets that is not
        known before it was checked (`_check_indexed`).
        """
        self._index_losses = IndexLosses(table, cache)

    # -- numbers ----------------------------------------------------------------------------------
    def next(
        self,
        known: Snapshot | None = None,
        *,
        own: SnapshotRef | None = None,
        replaces: bool = False,
    ) -> Numbering:
        """Sequence numbers for a batch that is about to be written.

        Args:
            known: the latest snapshot, as the caller knows it. None: the latest snapshot is looked
                up. The new numbers are above all numbers at this snapshot.
            own: the snapshot of the caller's newest batch, if the caller knows it.
            replaces: whether the batch replaces what is in the table. If so, the numbering has no
                hash index, because the removed keys do not keep their buckets.

        Raises:
            CorruptMetadata: metadata cannot be read, a bucket has no index, or another engine has
                taken keys out of the index.
            StorageError: something cannot be read.
        """
        latest = known or self._snapshots.latest()
        while True:
            try:
                highest = self._cache.highest_at(latest)
                if latest is not None and self._is_dynamic and not replaces:
                    self._check_indexed(latest)
                    self._index_losses.check(latest, own)
            except (NotFound, CorruptMetadata):
                is_still_latest = self._snapshots.latest() == latest
                if is_still_latest:
                    raise
                latest = self._snapshots.latest()  # the one before expired meanwhile
                continue
            if latest is None:
                return Numbering(numbered_on=None, first=highest + 1)
            numbering = Numbering(numbered_on=SnapshotRef.of(latest), first=highest + 1)
            if replaces:
                return numbering
            return replace(numbering, index=latest.index_manifest)

    def _check_indexed(self, latest: Snapshot) -> None:
        """Raises `CorruptMetadata` if a bucket has files and no hash index. The keys of such a
        bucket would be written a second time (table-kinds.md K1.5). All manifests are read for
        this, once in a run.
        """
        if self._is_indexed:
            return
        lacking = self._cache.manifests.unindexed(latest)
        if lacking:
            partition, bucket = lacking[0]
            others = ""
            if len(lacking) > 1:
                others = f", nor for {len(lacking) - 1:,} other buckets"
            raise CorruptMetadata(
                f"bucket {bucket} of partition {self._partition_of(partition) or '()'} has files, and "
                f"{latest.index_manifest or 'no index manifest'} of snapshot {latest.id} names no hash index for "
                f"it{others}: keys would be written a second time. Nothing was written. Run `paimon-stream "
                "rebuild-index`, which rebuilds it from the table's files.",
                snapshot=latest.id,
            ).of_table(self._location)
        self._is_indexed = True

    def properties(self, changes: Changes, base: Base) -> dict[str, str]:
        """The properties that keep the table's largest sequence number, for a snapshot with these
        changes on the base. There are none if the number could be found only by reading the whole
        table.
        """
        knows = self._cache.knows_highest(base.snapshot)
        if not knows and not self._for_java:
            return {}
        highest = max(self._cache.highest_at(base.snapshot), highest_of(changes.entries))
        if highest < 0:
            return {}
        recorded = {MAX_SEQUENCE: str(highest)}
        if self._for_java:
            recorded[_GENERATED] = str(highest)
        return recorded

    # -- conflicts --------------------------------------------------------------------------------
    def check(self, numbering: Numbering | None, changes: Changes, base: Snapshot | None) -> None:
        """Raises `SequenceConflict` if other commits have added rows with the same or higher
        numbers to a bucket of these changes since the numbers were taken. In that case it would not
        be known which row of a key is newer. Also raises `SequenceConflict` if snapshots since then
        are missing. Raises `IndexConflict` if `_check_index` does, and `CorruptMetadata` if another
        engine has taken keys out of the index. Each later delta is read only once.
        """
        if numbering is None:
            return
        if self._is_dynamic:
            self._check_index(numbering, changes, base)
            is_on_later = SnapshotRef.of_optional(base) != numbering.numbered_on
            if is_on_later and base is not None and numbering.index is not None:
                self._index_losses.check(base)  # the next run looks above this batch only
        if not self._checks or numbering.may_be_shared:
            return
        lowest: dict[_Bucket, int] = {}
        for entry in changes.entries:
            if entry.kind is FileKind.ADD:
                place = (entry.partition, entry.bucket)
                number = entry.file.min_sequence_number
                lowest[place] = min(number, lowest.get(place, number))
        since = self._since(numbering.numbered_on, base)
        if since is None:
            raise self._unknown(numbering)
        for snapshot in since:
            try:
                added = self._cache.added(snapshot)
            except (NotFound, CorruptMetadata):
                if self._snapshots.find(snapshot.id) is not None:
                    raise
                raise self._unknown(numbering) from None  # the snapshot has expired meanwhile
            for place in lowest.keys() & added.keys():
                if added[place] >= lowest[place]:
                    raise self._reached(snapshot, place[1], added[place], lowest[place])

    def _check_index(self, numbering: Numbering, changes: Changes, base: Snapshot | None) -> None:
        """Raises `IndexConflict` if other commits have changed the hash index of a partition of
        these changes since the keys got their buckets (table-kinds.md K1.4). Otherwise a key could
        be in two buckets.
        """
        numbered_on = numbering.numbered_on
        if SnapshotRef.of_optional(base) == numbered_on:
            return
        if not changes.entries:
            # This commit only rebuilds the index. It could not see rows of known keys that were
            # committed since, because such rows do not change the index.
            raise self._assigned_anew("others have committed since")
        then = None
        if numbered_on is not None:
            then = self._snapshots.find(numbered_on.id)
            if SnapshotRef.of_optional(then) != numbered_on:
                raise self._assigned_anew(
                    f"snapshot {numbered_on.id}, which has that index, is gone: keep snapshots longer"
                )
        manifest_then = _index_manifest(then)
        manifest_now = _index_manifest(base)
        if manifest_then == manifest_now:
            return
        try:
            index_then = self._index_files(manifest_then)
        except (NotFound, CorruptMetadata):
            if then is None:
                raise
            raise self._assigned_anew(f"snapshot {then.id} has expired") from None
        index_now = self._index_files(manifest_now)
        touched = {entry.partition for entry in changes.entries if entry.kind is FileKind.ADD}
        touched |= {change.entry.partition for change in changes.index}
        for place in index_then.keys() | index_now.keys():
            if place[0] in touched and index_then.get(place) != index_now.get(place):
                raise self._assigned_anew(
                    f"another writer has changed the index of bucket {place[1]} since"
                )

    def _index_files(self, index_manifest: str | None) -> dict[_Bucket, str]:
        """The hash index file of each bucket that an index manifest names."""
        entries = self._cache.manifests.index_entries(index_manifest)
        return {
            (entry.partition, entry.bucket): entry.file.file_name
            for entry in entries
            if entry.file.index_type == HASH
        }

    def _assigned_anew(self, change: str) -> IndexConflict:
        """The error for a batch that gave its keys their buckets by a hash index that the table no
        longer has. `change` says what has happened to the index.
        """
        return IndexConflict(
            f"this batch has assigned its keys to buckets by the hash index, and {change}. A key "
            "could be in two buckets. Nothing was published. Write the batch again."
        ).of_table(self._location)

    def _unknown(self, numbering: Numbering) -> SequenceConflict:
        """The error for a batch if some snapshots after the snapshot of its numbering are gone."""
        numbered_id = 0 if numbering.numbered_on is None else numbering.numbered_on.id
        return SequenceConflict(
            f"the sequence numbers of this batch were chosen at snapshot {numbered_id}, and some later snapshots are "
            "gone. So it is not known whether another writer has used the batch's sequence numbers. Nothing was "
            "published. Keep snapshots longer than a batch may take."
        ).of_table(self._location)

    def _reached(self, snapshot: Snapshot, bucket: int, theirs: int, ours: int) -> SequenceConflict:
        """The error for a batch whose numbers, from `ours` on, are not above `theirs`, the highest
        number that the snapshot has added to the bucket.
        """
        return SequenceConflict(
            f"snapshot {snapshot.id} of user {snapshot.commit_user!r} has added rows to bucket {bucket} with sequence "
            f"numbers up to {theirs}, and this batch, whose numbers were chosen before that, begins at {ours} there. "
            "So its rows might not replace older ones. Nothing was published. Let only one writer write to a bucket, "
            f"set 'sequence.field' on the table, or see {ON_SEQUENCE_CONFLICT.key}.",
            snapshot=snapshot.id,
            bucket=bucket,
        ).of_table(self._location)

    def _since(
        self, numbered: SnapshotRef | None, latest: Snapshot | None
    ) -> tuple[Snapshot, ...] | None:
        """The snapshots after the one at which the numbers were taken; None if some are missing."""
        numbered_id = 0 if numbered is None else numbered.id
        if latest is None or latest.id <= numbered_id:
            if numbered is None or (latest is not None and SnapshotRef.of(latest) == numbered):
                return ()
            return None
        if numbered is not None:
            numbered_now = self._snapshots.find(numbered_id)
            if numbered_now is not None and numbered_now.nonce != numbered.nonce:
                return None
        window = published_after(self._snapshots, numbered, latest)
        if not window.complete:
            return None
        return window.snapshots


def _index_manifest(snapshot: Snapshot | None) -> str | None:
    """The name of a snapshot's index manifest. None if it has none."""
    if snapshot is None:
        return None
    return snapshot.index_manifest
