"""The sequence numbers of tables with primary keys: the first number of a batch, and whether its
numbers are still valid at the commit (docs/format-notes.md says where the table's largest number is
kept).

Invariants: a number handed out is above all numbers of the table at the snapshot at which it was
taken. A batch is not published if others have meanwhile used its numbers in a bucket of it, or if
that is not known (semantics.md R6.2). Rows of a key are merged in the order of their numbers, so a
batch with such numbers might lose against rows that were committed before it. The same holds for
the files that a killed run has prepared.
"""

from dataclasses import dataclass
from typing import Final

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
    """The numbers of one batch. They begin at `first`, which is above all numbers of the table at
    `base`. `base` is None if the table was empty then. `index` is its index manifest, by which keys
    get dynamic buckets. If they `may_be_shared`, the commit is made although others have used these
    numbers: an operator has decided that it does not matter which of two rows of a key wins.
    """

    base: SnapshotRef | None
    first: int = 0
    index: str | None = None
    may_be_shared: bool = False


class Sequences:
    """The sequence numbers of one table, as one committer knows them."""

    def __init__(self, table: Table, cache: TableCache) -> None:
        self._location = table.location
        self._snapshots = cache.snapshots
        self._cache = cache
        options = table.options
        ordered_by_user = bool(options.value(SEQUENCE_FIELD).strip())
        # rows that wait have no numbers yet
        self._checks = not (ordered_by_user or table.is_postponed)
        self._for_java = options.value(SEQUENCE_INIT_MODE) == "snapshot"
        self._partition_of = table.layout.partition
        self._is_dynamic = table.has_dynamic_buckets
        self._is_indexed = not self._is_dynamic  # or it was checked

    # -- numbers
    # ------------------------------------------------------------------------------------
    def next(self, known: Snapshot | None = None, *, replaces: bool = False) -> Numbering:
        """Numbers for a batch that is about to be written, above those of a snapshot that is known
        to be the latest, or of the one that is the latest now. A batch that `replaces` what is
        there gets no index: keys that go do not keep their buckets. Raises `CorruptMetadata`, also
        for a bucket without its index, `StorageError`.
        """
        while True:
            latest, known = known or self._snapshots.latest(), None
            try:
                highest = self._cache.highest_at(latest)
                if latest is not None and not (replaces or self._is_indexed):
                    self._check_indexed(latest)
            except (NotFound, CorruptMetadata):
                if self._snapshots.latest() == latest:
                    raise
                continue  # it expired meanwhile
            if latest is None:
                return Numbering(base=None, first=highest + 1)
            index = None if replaces else latest.index_manifest
            return Numbering(base=SnapshotRef.of(latest), first=highest + 1, index=index)

    def _check_indexed(self, latest: Snapshot) -> None:
        """Raises `CorruptMetadata` if a bucket has files and no hash index: its keys would be
        written a second time (table-kinds.md K1.5). Reads all manifests, once in a run.
        """
        lacking = self._cache.manifests.unindexed(latest)
        if lacking:
            (partition, bucket), others = lacking[0], len(lacking) - 1
            raise CorruptMetadata(
                f"bucket {bucket} of partition {self._partition_of(partition) or '()'} has files, and "
                f"{latest.index_manifest or 'no index manifest'} of snapshot {latest.id} names no hash index for "
                f"it{f', nor for {others:,} other buckets' * bool(others)}: keys would be written a second time. "
                "Nothing was written. Run `paimon-stream rebuild-index`, which makes it anew from the table's files.",
                snapshot=latest.id,
            ).of_table(self._location)
        self._is_indexed = True

    def properties(self, changes: Changes, base: Base) -> dict[str, str]:
        """The properties with the largest sequence number, for the snapshot of these changes on
        this base. Empty if finding the number would mean reading the whole table.
        """
        knows = self._cache.knows_highest(base.snapshot)
        if not knows and not self._for_java:
            return {}
        highest = max(self._cache.highest_at(base.snapshot), highest_of(changes.entries))
        if highest < 0:
            return {}
        recorded = {MAX_SEQUENCE: str(highest)}
        return {**recorded, _GENERATED: str(highest)} if self._for_java else recorded

    # -- conflicts
    # ----------------------------------------------------------------------------------
    def check(self, numbering: Numbering | None, changes: Changes, base: Snapshot | None) -> None:
        """Raises `SequenceConflict` if others have added rows with such numbers to a bucket of
        these changes since they were taken: it would be unknown which row of a key is newer. Reads
        each delta committed since only once.
        """
        if numbering is None:
            return
        if self._is_dynamic:
            self._check_index(numbering, changes, base)
        if not self._checks or numbering.may_be_shared:
            return
        lowest: dict[_Bucket, int] = {}
        for entry in changes.entries:
            if entry.kind is FileKind.ADD:
                where, number = (entry.partition, entry.bucket), entry.file.min_sequence_number
                lowest[where] = min(number, lowest.get(where, number))
        since = self._since(numbering.base, base)
        for snapshot in () if since is None else since:
            try:
                added = self._cache.added(snapshot)
            except (NotFound, CorruptMetadata):
                if self._snapshots.find(snapshot.id) is not None:
                    raise
                since = None  # it has expired meanwhile
                break
            for where in lowest.keys() & added.keys():
                if added[where] >= lowest[where]:
                    raise self._reached(snapshot, where[1], added[where], lowest[where])
        if since is None:
            raise SequenceConflict(
                f"this batch was numbered on snapshot {0 if numbering.base is None else numbering.base.id}, and some "
                "later snapshots are gone. So it is not known whether another writer has used the batch's sequence "
                "numbers. Nothing was published. Keep snapshots longer than a batch may take."
            ).of_table(self._location)

    def _check_index(self, numbering: Numbering, changes: Changes, base: Snapshot | None) -> None:
        """Raises `IndexConflict` if, since keys got their buckets, others have changed the hash
        index of a partition of these changes (table-kinds.md K1.4). A key could then be in two
        buckets.
        """
        now = None if base is None else SnapshotRef.of(base)
        if now == numbering.base:
            return
        if (
            not changes.entries
        ):  # an index that was made anew: a batch with older keys does not change the index
            raise self._assigned_anew("others have committed since")
        then = None if numbering.base is None else self._snapshots.find(numbering.base.id)
        if numbering.base is not None and (then is None or SnapshotRef.of(then) != numbering.base):
            why = (
                f"snapshot {numbering.base.id}, by which it did so, is gone: keep snapshots longer"
            )
            raise self._assigned_anew(why)
        if (then and then.index_manifest) == (base and base.index_manifest):
            return
        try:
            before = self._index_files(then)
        except (NotFound, CorruptMetadata):
            raise self._assigned_anew(
                f"snapshot {numbering.base and numbering.base.id} has expired"
            ) from None
        after = self._index_files(base)
        touched = {entry.partition for entry in changes.entries if entry.kind is FileKind.ADD}
        touched |= {change.entry.partition for change in changes.index}
        for where in before.keys() | after.keys():
            if where[0] in touched and before.get(where) != after.get(where):
                raise self._assigned_anew(
                    f"another writer has changed the index of bucket {where[1]} since"
                )

    def _index_files(self, snapshot: Snapshot | None) -> dict[_Bucket, str]:
        """The hash index file of each bucket."""
        entries = self._cache.manifests.index_entries(
            None if snapshot is None else snapshot.index_manifest
        )
        return {
            (one.partition, one.bucket): one.file.file_name
            for one in entries
            if one.file.index_type == HASH
        }

    def _assigned_anew(self, why: str) -> IndexConflict:
        cure = "A key could be in two buckets. Nothing was published. Write the batch again."
        text = f"this batch has given its keys their buckets by the hash index, and {why}. {cure}"
        return IndexConflict(text).of_table(self._location)

    def _reached(self, snapshot: Snapshot, bucket: int, theirs: int, ours: int) -> SequenceConflict:
        text = (
            f"snapshot {snapshot.id} of user {snapshot.commit_user!r} has added rows to bucket {bucket} with sequence "
            f"numbers up to {theirs}, and this batch, numbered before that, begins at {ours} there. It is not certain "
            "that its rows would replace older ones. Nothing was published. Let only one writer write to a bucket, "
            f"set 'sequence.field' on the table, or see {ON_SEQUENCE_CONFLICT.key}."
        )
        return SequenceConflict(text, snapshot=snapshot.id, bucket=bucket).of_table(self._location)

    def _since(
        self, numbered: SnapshotRef | None, latest: Snapshot | None
    ) -> tuple[Snapshot, ...] | None:
        """The snapshots after the one at which the numbers were taken; None if some are missing."""
        after = 0 if numbered is None else numbered.id
        if latest is None or latest.id <= after:
            same = numbered is None or (latest is not None and SnapshotRef.of(latest) == numbered)
            return () if same else None
        if numbered is not None:
            kept = self._snapshots.find(after)
            if kept is not None and kept.nonce != numbered.nonce:
                return None
        window = published_after(self._snapshots, numbered, latest)
        return window.snapshots if window.complete else None
