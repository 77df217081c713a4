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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from paimon_stream.commit.plan import Base, Changes
from paimon_stream.errors import CorruptMetadata, NotFound, SequenceConflict
from paimon_stream.format.entries import FileKind, ManifestEntry
from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef
from paimon_stream.options import ON_SEQUENCE_CONFLICT, SEQUENCE_FIELD, SEQUENCE_INIT_MODE
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

__all__ = ["MAX_SEQUENCE", "MOST_REWRITES", "Numbering", "Sequences", "rewrites"]

MAX_SEQUENCE: Final = "paimon-stream.max-sequence"
"""The property of a snapshot that tells the largest sequence number of the table."""

MOST_REWRITES: Final = 5
"""So many times is a batch written again whose numbers others have reached."""

_GENERATED: Final = "sequence.generation.max-sequence-number"
_MOST_WALKED: Final = 200
"""So many snapshots' deltas are read at most in place of the table's manifests."""

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

    def __init__(self, table: Table, snapshots: SnapshotStore, manifests: ManifestStore) -> None:
        self._location = table.location
        self._snapshots = snapshots
        self._manifests = manifests
        options = table.options
        ordered_by_user = bool(options.value(SEQUENCE_FIELD).strip())
        self._checks = not ordered_by_user and options.value(ON_SEQUENCE_CONFLICT) != "ignore"
        self._tells_java = options.value(SEQUENCE_INIT_MODE) == "snapshot"
        self._at: SnapshotRef | None = None
        self._highest: int | None = None
        self._added: dict[str, Mapping[_Bucket, int]] = {}

    # -- numbers ------------------------------------------------------------------------------------

    def next(self) -> Numbering:
        """Numbers for a batch that is about to be written. Raises `CorruptMetadata`, `StorageError`."""
        while True:
            latest = self._snapshots.latest()
            try:
                highest = self._highest_at(latest)
            except (NotFound, CorruptMetadata):
                if self._snapshots.latest() == latest:
                    raise
                continue  # it expired meanwhile
            return Numbering(base=None if latest is None else SnapshotRef.of(latest), first=highest + 1)

    def properties(self, changes: Changes, base: Base) -> dict[str, str]:
        """What the snapshot of these changes on this base tells of its numbers; nothing where finding them
        out would mean reading the table."""
        knows = self._knows(base.snapshot)
        if not knows and not self._tells_java:
            return {}
        highest = max(self._highest_at(base.snapshot), _highest_of(changes.entries))
        if highest < 0:
            return {}
        told = {MAX_SEQUENCE: str(highest)}
        return {**told, _GENERATED: str(highest)} if self._tells_java else told

    def advance(self, snapshot: Snapshot, changes: Changes, base: Base) -> None:
        """Moves over a commit of our own."""
        self._added.clear()
        if self._knows(base.snapshot):
            highest = max(self._highest_at(base.snapshot), _highest_of(changes.entries))
            self._at, self._highest = SnapshotRef.of(snapshot), highest

    def forget(self) -> None:
        """Knows nothing any more, as if new."""
        self._at = self._highest = None
        self._added.clear()

    def _knows(self, latest: Snapshot | None) -> bool:
        """Whether the number at that snapshot is known, or told by the snapshot itself."""
        if latest is None or _told(latest) is not None:
            return True
        return self._highest is not None and self._at is not None and self._at.id <= latest.id

    def _highest_at(self, latest: Snapshot | None) -> int:
        """The largest number of the table at its latest snapshot, -1 where there is none."""
        if latest is None:
            return -1
        at = SnapshotRef.of(latest)
        if self._highest is None or self._at != at:
            self._highest = self._found(latest)
            self._at = at
        return self._highest

    def _found(self, latest: Snapshot) -> int:
        """Walks down to a snapshot whose number is known, then takes in the deltas above it; reads the whole
        table where there is none."""
        above: list[Snapshot] = []
        for snapshot in self._snapshots.walk_down(latest.id):
            known = self._known_at(snapshot)
            if known is None:
                above.append(snapshot)
                known = -1 if snapshot.id == 1 else None
            if known is not None:
                try:
                    return self._with_deltas(known, above)
                except (NotFound, CorruptMetadata):
                    break  # one of them has expired meanwhile
            if len(above) == _MOST_WALKED:
                break
        entries = (
            entry for meta in self._manifests.base_and_delta(latest) for entry in self._manifests.read(meta)
        )
        return _highest_of(entries)

    def _known_at(self, snapshot: Snapshot) -> int | None:
        told = _told(snapshot)
        if told is None and self._at == SnapshotRef.of(snapshot):
            return self._highest
        return told

    def _with_deltas(self, known: int, above: Iterable[Snapshot]) -> int:
        for snapshot in above:
            known = max(known, *self._adds(snapshot).values(), -1)
        return known

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
        """As `_adds`; None where the snapshot has expired meanwhile."""
        try:
            return self._adds(snapshot)
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

    def _adds(self, snapshot: Snapshot) -> Mapping[_Bucket, int]:
        """The largest number that a snapshot has added to each bucket."""
        found = self._added.get(snapshot.nonce)
        if found is None:
            highest: dict[_Bucket, int] = {}
            for meta in self._manifests.delta(snapshot):
                for entry in self._manifests.read(meta):
                    if entry.kind is FileKind.ADD:
                        where, number = (entry.partition, entry.bucket), entry.file.max_sequence_number
                        highest[where] = max(number, highest.get(where, number))
            found = self._added[snapshot.nonce] = highest
        return found


def _told(snapshot: Snapshot) -> int | None:
    """The number that the snapshot's own properties tell."""
    text = snapshot.properties.get(MAX_SEQUENCE, "")
    return int(text) if text.isascii() and text.isdigit() else None


def _highest_of(entries: Iterable[ManifestEntry]) -> int:
    added = (entry.file.max_sequence_number for entry in entries if entry.kind is FileKind.ADD)
    return max(added, default=-1)
