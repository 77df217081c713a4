"""The sequence numbers of tables with primary keys: where a batch begins, and whether they still hold when it
is committed.

One number serves all buckets of a batch: the largest of the table and one more. Numbers then grow with every
batch in every bucket, and gaps are normal (docs/format-notes.md). What is known of a table is kept from
batch to batch and brought forward by the deltas of the snapshots that others publish; a run that begins looks
for the newest snapshot that tells the number, and reads the whole table's manifests only where none does.

Invariants: a number handed out is above all numbers of the table at the snapshot it was taken at; a batch
whose numbers others have reached meanwhile, in a bucket it writes to, is not published, nor is one of which
that cannot be known (semantics.md §6.4, R6.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from paimon_stream.commit.plan import Base, Changes
from paimon_stream.commit.table_cache import MAX_SEQUENCE, TableCache, highest_of
from paimon_stream.errors import CorruptMetadata, NotFound, SequenceConflict
from paimon_stream.format.entries import FileKind
from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef
from paimon_stream.options import ON_SEQUENCE_CONFLICT, SEQUENCE_FIELD, SEQUENCE_INIT_MODE
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

__all__ = ["MOST_REWRITES", "Numbering", "Sequences", "rewrites"]

MOST_REWRITES: Final = 5
"""So many times is a batch written again whose numbers others have reached."""

_GENERATED: Final = "sequence.generation.max-sequence-number"

_Bucket = tuple[bytes, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """The numbers of one batch: they begin at `first`, above all that the table had at `base`, None where it
    was empty then."""

    base: SnapshotRef | None
    first: int = 0


def rewrites(table: Table) -> bool:
    """Whether a batch whose numbers others have reached is written again."""
    return table.options.value(ON_SEQUENCE_CONFLICT) == "rewrite"


class Sequences:
    """The sequence numbers of one table, as one committer knows them."""

    def __init__(self, table: Table, snapshots: SnapshotStore, cache: TableCache) -> None:
        self._location = table.location
        self._snapshots = snapshots
        self._cache = cache
        options = table.options
        ordered_by_user = bool(options.value(SEQUENCE_FIELD).strip())
        self._checks = not ordered_by_user and options.value(ON_SEQUENCE_CONFLICT) != "ignore"
        self._tells_java = options.value(SEQUENCE_INIT_MODE) == "snapshot"

    # -- numbers ------------------------------------------------------------------------------------

    def next(self) -> Numbering:
        """Numbers for a batch that is about to be written. Raises `CorruptMetadata`, `StorageError`."""
        while True:
            latest = self._snapshots.latest()
            try:
                highest = self._cache.highest_at(latest)
            except (NotFound, CorruptMetadata):
                if self._snapshots.latest() == latest:
                    raise
                continue  # it expired meanwhile
            return Numbering(base=None if latest is None else SnapshotRef.of(latest), first=highest + 1)

    def properties(self, changes: Changes, base: Base) -> dict[str, str]:
        """What the snapshot of these changes on this base tells of its numbers; nothing where finding them
        out would mean reading the table."""
        knows = self._cache.knows_highest(base.snapshot)
        if not knows and not self._tells_java:
            return {}
        highest = max(self._cache.highest_at(base.snapshot), highest_of(changes.entries))
        if highest < 0:
            return {}
        told = {MAX_SEQUENCE: str(highest)}
        return {**told, _GENERATED: str(highest)} if self._tells_java else told

    # -- conflicts ----------------------------------------------------------------------------------

    def check(self, numbering: Numbering | None, changes: Changes, base: Snapshot | None) -> None:
        """Raises `SequenceConflict` where somebody has added to a bucket of these changes, since their
        numbers were taken, rows with such numbers: which of two rows of a key is the newer could not be told.

        Reads what was committed since, once.
        """
        if numbering is None or not self._checks:
            return
        lowest: dict[_Bucket, int] = {}
        for entry in changes.entries:
            if entry.kind is FileKind.ADD:
                where, number = (entry.partition, entry.bucket), entry.file.min_sequence_number
                lowest[where] = min(number, lowest.get(where, number))
        since = self._since(numbering.base, base)
        for snapshot in () if since is None else since:
            added = self._adds_if_there(snapshot)
            if added is None:
                since = None
                break
            for where in lowest.keys() & added.keys():
                if added[where] >= lowest[where]:
                    raise self._reached(snapshot, where[1], added[where], lowest[where])
        if since is None:
            raise SequenceConflict(
                f"{self._location}: the snapshots since the one on which this batch was numbered, "
                f"{0 if numbering.base is None else numbering.base.id}, are not all there, so whether "
                "another writer has used its sequence numbers cannot be told. Nothing was published. Keep "
                "snapshots longer than a batch may take.",
                table=self._location,
            )

    def _reached(self, snapshot: Snapshot, bucket: int, theirs: int, ours: int) -> SequenceConflict:
        return SequenceConflict(
            f"{self._location}: snapshot {snapshot.id} of user {snapshot.commit_user!r} has added rows to "
            f"bucket {bucket} with sequence numbers up to {theirs}, and this batch, numbered before that, "
            f"begins at {ours} there: its rows would not replace older ones for certain. Nothing was "
            "published. Let one writer write to a bucket, set 'sequence.field' on the table, or see "
            f"{ON_SEQUENCE_CONFLICT.key}.",
            table=self._location,
            snapshot=snapshot.id,
            bucket=bucket,
        )

    def _adds_if_there(self, snapshot: Snapshot) -> Mapping[_Bucket, int] | None:
        """What it has added to each bucket; None where the snapshot has expired meanwhile."""
        try:
            return self._cache.added(snapshot)
        except (NotFound, CorruptMetadata):
            if self._snapshots.find(snapshot.id) is not None:
                raise
            return None

    def _since(self, numbered: SnapshotRef | None, latest: Snapshot | None) -> tuple[Snapshot, ...] | None:
        """The snapshots after the one the numbers were taken at, None where some are missing."""
        after = 0 if numbered is None else numbered.id
        if latest is None or latest.id <= after:
            same = numbered is None or (latest is not None and SnapshotRef.of(latest) == numbered)
            return () if same else None
        if numbered is not None:
            kept = self._snapshots.find(after)
            if kept is not None and kept.nonce != numbered.nonce:
                return None
        window = self._snapshots.window(after, latest.id)
        return window.snapshots if window.complete else None
