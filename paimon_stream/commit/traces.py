"""What a snapshot leaves in the ones after it, by which it is told whether they were built upon it.

Invariants: False is answered only where the later snapshot shows that it was not built upon ours. A
snapshot that changed no file and no index leaves no trace, and takes nothing away if it is not part of the
table: it counts as held.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from paimon_stream.commit.base import Base
from paimon_stream.commit.stage import Staged
from paimon_stream.format.entries import FileIdentity, FileKind
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.table.manifests import ManifestStore

__all__ = ["Live", "Traces"]

Live = Callable[[Base, Collection[bytes]], frozenset[FileIdentity]]
"""The live files of some partitions."""


class Traces:
    """Looks for traces in the snapshots of one table."""

    def __init__(self, manifests: ManifestStore, live: Live) -> None:
        self._manifests = manifests
        self._live = live

    def in_base_of(self, following: Snapshot, staged: Staged) -> bool:
        """Whether the snapshot that follows was built on ours: its base list has our delta manifests; or, in
        manifests that were merged since, our files, or no more the files we took away.

        Raises `NotFound` or `CorruptMetadata` where it expires meanwhile.
        """
        if not staged.delta_names:
            return self._index_in(following, staged)
        metas = self._manifests.read_list(following.base_manifest_list, following.base_manifest_list_size)
        if any(meta.file_name in staged.delta_names for meta in metas):
            return True
        if not staged.added:
            removed = staged.removed
            present = self._live(Base(snapshot=following, metas=metas), {file.partition for file in removed})
            return present.isdisjoint(removed)
        known = {meta.file_name for meta in staged.metas}
        one_of_ours = next(iter(staged.added))
        return any(
            entry.identity == one_of_ours
            for meta in metas
            if meta.file_name not in known
            for entry in self._manifests.read(meta)
        )

    def all_live(self, latest: Snapshot, staged: Staged) -> bool:
        """Whether there are files that ours added, and all are live in a later snapshot: nobody else can have
        added them. Raises `CorruptMetadata`."""
        if not staged.added:
            return False
        base = Base(snapshot=latest, metas=self._manifests.base_and_delta(latest))
        return self._live(base, {file.partition for file in staged.added}).issuperset(staged.added)

    def _index_in(self, following: Snapshot, staged: Staged) -> bool:
        changes = staged.changes.index
        if not changes or following.index_manifest == staged.snapshot.index_manifest:
            return True
        name = following.index_manifest
        present = () if name is None else self._manifests.index_entries(name)
        there = {entry.file.file_name for entry in present}
        added = {change.entry.file.file_name for change in changes if change.kind is FileKind.ADD}
        removed = {change.entry.file.file_name for change in changes if change.kind is FileKind.DELETE}
        if added & there:
            return True
        before = staged.base.snapshot
        inherited = name == (None if before is None else before.index_manifest)
        return not inherited and not removed & there
