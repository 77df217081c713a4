"""The files of the partitions a commit touches, as of the snapshot it builds on (semantics.md §3.4).

Invariants: what is known is true of one snapshot, the *position*, and is changed as a whole or not at all.
It is brought forward over deltas that are seen whole and in one lineage; an OVERWRITE by others, which may
replace files without a delta that says so, or a gap, makes it read the touched partitions anew. Partitions
that no commit touches are never looked into, and what is kept has a bound.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from paimon_stream.commit.plan import Base
from paimon_stream.format.entries import FileIdentity, FileKind, ManifestEntry, ManifestFileMeta
from paimon_stream.format.snapshot_json import CommitKind, Snapshot
from paimon_stream.format.types import DataType
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_filter import PartitionFilter
from paimon_stream.table.snapshots import SnapshotStore, Window

__all__ = ["BaseFiles", "LiveFile", "KnownFiles", "window_since"]


@dataclass(frozen=True, slots=True)
class LiveFile:
    """What the conflict rules need to know of a live file."""

    min_key: bytes
    max_key: bytes
    max_sequence_number: int

    @classmethod
    def of(cls, entry: ManifestEntry) -> LiveFile:
        """That of an entry's file."""
        return cls(entry.file.min_key, entry.file.max_key, entry.file.max_sequence_number)


@dataclass(slots=True)
class KnownFiles:
    """The files of one partition or several: those that are live; those that were, as far as manifests still
    say so; and those that are listed twice, which no table should have (semantics.md §3.5)."""

    live: dict[FileIdentity, LiveFile] = field(default_factory=dict)
    removed: set[FileIdentity] = field(default_factory=set)
    twice: set[FileIdentity] = field(default_factory=set)

    @classmethod
    def of(cls, parts: Sequence[KnownFiles]) -> KnownFiles:
        """The files of all these partitions."""
        if len(parts) == 1:
            return parts[0]
        whole = cls()
        for part in parts:
            whole.live.update(part.live)
            whole.removed.update(part.removed)
            whole.twice.update(part.twice)
        return whole

    def replay(self, entry: ManifestEntry) -> None:
        """Takes in an entry; they come in the order of their snapshots. As for readers, a file that a DELETE
        names is not live, even where an ADD follows."""
        identity = entry.identity
        if entry.kind is FileKind.DELETE:
            self.live.pop(identity, None)
            self.removed.add(identity)
        elif identity in self.live:
            self.twice.add(identity)
        elif identity not in self.removed:
            self.live[identity] = LiveFile.of(entry)

    @classmethod
    def replaced_by(cls, entries: Iterable[ManifestEntry]) -> KnownFiles:
        """What must have been live where these entries are those of an overwrite, which removes whatever it
        has found live."""
        known = cls()
        for entry in entries:
            if entry.kind is FileKind.DELETE:
                known.replay(replace(entry, kind=FileKind.ADD))
        return known

    def copy(self) -> KnownFiles:
        """The same, to be changed apart."""
        return KnownFiles(dict(self.live), set(self.removed), set(self.twice))

    def __len__(self) -> int:
        return len(self.live) + len(self.removed)


class BaseFiles:
    """The files of the partitions that the checked commits of one committer touch."""

    MAX_FILES: Final = 200_000
    """So many files are kept from one commit to the next, at most."""

    def __init__(self, snapshots: SnapshotStore, manifests: ManifestStore, types: Sequence[DataType]) -> None:
        self._snapshots = snapshots
        self._manifests = manifests
        self._types = tuple(types)
        self._position: Snapshot | None = None
        self._known: dict[bytes, KnownFiles] = {}

    def at(self, base: Base, partitions: Collection[bytes]) -> KnownFiles:
        """The files of these partitions at the base; not to be changed, nor kept.

        Partitions known from an earlier base are brought forward by what was committed since, all others
        are read. Raises `CorruptMetadata`, `StorageError`, and knows then what it knew before.
        """
        known = self._brought_to(base)
        missing = frozenset(partitions) - known.keys()
        fresh = {partition: KnownFiles() for partition in missing}
        self._replay(fresh, base.metas)
        self._known = known | fresh
        self._position = base.snapshot
        return KnownFiles.of([self._known[partition] for partition in partitions])

    def advance(self, snapshot: Snapshot, base: Base, entries: Iterable[ManifestEntry]) -> None:
        """Moves over a commit of our own on top of the base, with these entries. What is known of an earlier
        snapshot than the base stays as it is, to be brought forward when it is needed."""
        if sum(map(len, self._known.values())) > self.MAX_FILES:
            self.forget()
        if self._position != base.snapshot:
            return
        for entry in entries:
            if entry.partition in self._known:
                self._known[entry.partition].replay(entry)
        self._position = snapshot

    def forget(self) -> None:
        """Knows nothing any more, as if new."""
        self._position = None
        self._known = {}

    def _brought_to(self, base: Base) -> dict[bytes, KnownFiles]:
        """What is known of earlier, as of the base; nothing where it cannot be brought there."""
        at, latest = self._position, base.snapshot
        if not self._known or at == latest:
            return self._known
        window = window_since(self._snapshots, at, latest)
        if window is None or any(one.commit_kind is CommitKind.OVERWRITE for one in window.snapshots):
            return {}
        known = {partition: files.copy() for partition, files in self._known.items()}
        for snapshot in window.snapshots:
            self._replay(known, self._manifests.delta(snapshot))
        return known

    def _replay(self, into: Mapping[bytes, KnownFiles], metas: Iterable[ManifestFileMeta]) -> None:
        """Reads those manifests that can have entries of these partitions."""
        if not into:
            return
        wanted = PartitionFilter(self._types, rows=into.keys())
        for meta in metas:
            if wanted.may_be_in(meta.partition_stats):
                for entry in self._manifests.read_of(meta, wanted):
                    into[entry.partition].replay(entry)


def window_since(snapshots: SnapshotStore, at: Snapshot | None, latest: Snapshot | None) -> Window | None:
    """The snapshots in (at, latest], where all of them are there and `at` is still what they follow on;
    None else."""
    if latest is None or (at is not None and latest.id <= at.id):
        return None
    if at is not None:
        kept = snapshots.find(at.id)
        if kept is None or kept.nonce != at.nonce:
            return None
    window = snapshots.window(0 if at is None else at.id, latest.id)
    return window if window.complete else None
