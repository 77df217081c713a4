"""Checking a commit against the table: gathers what the conflict rules judge on, as little as they need.

Invariants: nothing is written; the rules of one attempt all see one snapshot, the attempt's base. A fresh
append needs the bucket counts and sequence numbers of the partitions it touches, which are kept from
commit to commit; only a commit that asks to be `checked` reads which files are live.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from paimon_stream.commit import conflicts
from paimon_stream.commit.base import Base
from paimon_stream.commit.plan import Changes, renumber
from paimon_stream.commit.request import CommitRequest
from paimon_stream.errors import HistoryUnknown, NotFound
from paimon_stream.format.entries import FileIdentity, FileKind, ManifestEntry
from paimon_stream.format.snapshot_json import CommitKind, Snapshot
from paimon_stream.options import CONFLICT_DETECTION, STRICT_MODE
from paimon_stream.storage.base import Storage
from paimon_stream.table.live import BucketIndex, live_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

__all__ = ["Checker"]


class Checker:
    """Checks the commits of one committer, and numbers their rows."""

    def __init__(
        self, table: Table, storage: Storage, snapshots: SnapshotStore, manifests: ManifestStore
    ) -> None:
        self._table = table
        self._storage = storage
        self._snapshots = snapshots
        self._manifests = manifests
        self._index = BucketIndex(manifests, table.partition_types)
        self._indexed: Snapshot | None = None
        self._has_index = False
        options = table.options
        self._rules_off = options.value(CONFLICT_DETECTION) == "none"
        self._last_safe = options.value(STRICT_MODE) if options.is_set(STRICT_MODE) else None

    def check(self, request: CommitRequest, changes: Changes, base: Base) -> Changes:
        """Runs the conflict rules; returns the changes with their final sequence numbers.

        `conflict-detection-mode = none` leaves out checks 4 and 5, which an append can do without; the
        others always run (semantics.md R3.4). Raises `CommitConflict`, `HistoryUnknown`,
        `CorruptMetadata`, `StorageError`.
        """
        scene = conflicts.Scene(
            location=self._table.location,
            user=request.user,
            identifier=request.identifier,
            partition_name=self._table.layout.partition,
        )
        self._check_strict_mode(scene, base)
        entries = changes.entries
        conflicts.check_each_file_once(scene, entries)
        if request.checked:
            conflicts.check_files_exist(scene, self._missing_files(entries))
        if request.checks_conflicts and not (self._rules_off and request.kind is CommitKind.APPEND):
            live = self.live(base, changes.partitions)
            conflicts.check_not_in_table(scene, live, entries)
            conflicts.check_removed_files_are_there(scene, live, entries)
        return self._check_buckets(scene, request, changes, base)

    def _check_buckets(
        self, scene: conflicts.Scene, request: CommitRequest, changes: Changes, base: Base
    ) -> Changes:
        entries = changes.entries
        if not any(entry.total_buckets > 0 for entry in entries):
            return changes  # without fixed buckets there is neither a count to keep nor an order
        self._index_at(base, changes.partitions)
        totals = {one: self._index.total_buckets(one) for one in changes.partitions}
        present = {one: total for one, total in totals.items() if total is not None}
        conflicts.check_bucket_counts(scene, present, entries, request.kind)
        if not request.renumber:
            return changes
        touched = {(entry.partition, entry.bucket) for entry in entries}
        return renumber(changes, {where: self._index.max_sequence(*where) for where in touched})

    def _check_strict_mode(self, scene: conflicts.Scene, base: Base) -> None:
        if self._last_safe is None:
            return
        if self._last_safe < 0:
            self._last_safe = base.id
        window = self._snapshots.window(self._last_safe, base.id)
        if not window.complete:
            raise HistoryUnknown(
                f"{scene}: snapshots since {self._last_safe}, the last safe one of option "
                f"{STRICT_MODE.key!r}, have expired, so what others did cannot be checked. Nothing was "
                f"published. Set the option to a snapshot that exists, or to -1 for the latest ({base.id}).",
                **scene.facts(),
            )
        conflicts.check_strict_mode(scene, window.snapshots, self._last_safe)
        self._last_safe = base.id

    def _index_at(self, base: Base, partitions: Collection[bytes]) -> None:
        """Brings the index to the base: over others' deltas where it can follow them, else anew."""
        at, latest = self._indexed, base.snapshot
        if at is not None and latest is not None and latest.id > at.id:
            kept = self._snapshots.find(at.id)
            if kept is not None and kept.nonce == at.nonce:
                self._index.follow(self._snapshots.window(at.id, latest.id))
        self._index.load(latest, partitions, base.metas)
        self._indexed, self._has_index = latest, True

    def advance(self, snapshot: Snapshot, base: Base, changes: Changes) -> None:
        """Takes over a commit of our own that was published on top of the base it was checked on."""
        if self._has_index and self._indexed == base.snapshot:
            self._index.advance(snapshot, changes.entries)
            self._indexed = snapshot

    def forget(self) -> None:
        """Keeps nothing of earlier commits."""
        self._index.forget()
        self._indexed, self._has_index = None, False

    def live(self, base: Base, partitions: Collection[bytes]) -> frozenset[FileIdentity]:
        """The files of these partitions that are live at the base. Raises `CorruptMetadata`."""
        types = self._table.partition_types
        return frozenset(e.identity for e in live_files(self._manifests, base.metas, types, partitions))

    def all_live(self, snapshot: Snapshot, files: Collection[FileIdentity]) -> bool:
        """Whether all these files are live in the snapshot. Raises `CorruptMetadata`."""
        base = Base(snapshot=snapshot, metas=self._manifests.base_and_delta(snapshot))
        return self.live(base, {file.partition for file in files}).issuperset(files)

    def _missing_files(self, entries: Sequence[ManifestEntry]) -> list[str]:
        """The paths of added files, extra files too, that are not on storage."""
        layout, missing = self._table.layout, []
        for entry in entries:
            if entry.kind is not FileKind.ADD:
                continue
            for name in (entry.file.file_name, *entry.file.extra_files):
                path = layout.data_file(entry.partition, entry.bucket, name)
                try:
                    self._storage.stat(path)
                except NotFound:
                    missing.append(path)
        return missing
