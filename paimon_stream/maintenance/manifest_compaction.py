"""Merging all manifests at once, as Java's `compactManifest` does (semantics.md §4, R4.3).

Every commit merges manifests when enough have gathered; a table that is read far more often than written, or
that was written by engines that never merge, is served sooner by doing it now. The merge is the full one
with its thresholds at one: whatever holds deletes or is smaller than `manifest.target-file-size` is
rewritten, without a single delete.

Invariants: the live files are the same before and after; where nothing would change, nothing is published;
the snapshot is of kind COMPACT with an empty delta, under a user that nobody else has (a stream's own user
would make it look as if all of its batches were committed, R1.2), and carries over what its base carries,
properties too. Expiry removes the old manifests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from paimon_stream.commit.committer import Committer
from paimon_stream.commit.plan import NO_CHANGES, Base, Changes
from paimon_stream.commit.request import CommitRequest, Published
from paimon_stream.commit.table_commit import batch_user
from paimon_stream.format.entries import ManifestFileMeta
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind, SnapshotRef
from paimon_stream.maintenance.progress import Progress, silent
from paimon_stream.options import MANIFEST_TARGET_SIZE
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import Storage
from paimon_stream.table.manifest_merge import MergeLimits
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

__all__ = ["ManifestCompactionReport", "compact_manifests"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestCompactionReport:
    """What became of the manifests: how many there were and are, and their bytes. `snapshot_id` is None
    where there was nothing to merge; then nothing was published."""

    table: str
    snapshot_id: int | None
    manifests_before: int
    manifests_after: int
    bytes_before: int
    bytes_after: int

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "table": self.table,
            "snapshot_id": self.snapshot_id,
            "manifests_before": self.manifests_before,
            "manifests_after": self.manifests_after,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
        }


def compact_manifests(
    table: Table,
    *,
    progress: Progress | None = None,
    storage: Storage | None = None,
    runtime: Runtime | None = None,
) -> ManifestCompactionReport:
    """Merges the manifests of the newest snapshot, and publishes the result as a snapshot of its own.

    Raises, with nothing published: `CommitContended`, `DeletedFiles` for a table in which a file was
    committed twice, `CorruptMetadata`, `StorageError`; and `CommitUnknown` where it may be published, which
    harms nobody.
    """
    used, running = storage or table.storage, runtime or system()
    tell = progress or silent
    snapshots = SnapshotStore(used, running)
    latest = snapshots.latest()
    if latest is None:
        return _report(used.location, None, (), ())
    source = _CarriedOver()
    tell("manifests", 0, None)
    outcome = Committer(table, used, running).commit(
        CommitRequest(
            user=batch_user(table.options, running.ids),
            identifier=BATCH_IDENTIFIER,
            source=source,
            kind=CommitKind.COMPACT,
            properties=source.properties,
            merge=MergeLimits(
                target_size=table.options.value(MANIFEST_TARGET_SIZE), full_size=1, min_count=1
            ),
            seen=SnapshotRef.of(latest),
            stage_uuid=running.ids.uuid(),
        )
    )
    before = source.manifests
    tell("manifests", len(before), len(before))
    if not isinstance(outcome, Published):
        return _report(used.location, None, before, before)
    published = outcome.snapshot
    after = ManifestStore(used, table.options, running).read_list(
        published.base_manifest_list, published.base_manifest_list_size
    )
    return _report(used.location, published.id, before, after)


@dataclass(slots=True)
class _CarriedOver:
    """No changes, on whatever base: what a snapshot keeps of its base is noted for every attempt anew."""

    properties: dict[str, str] = field(default_factory=dict)
    manifests: tuple[ManifestFileMeta, ...] = ()

    def at(self, base: Base) -> Changes:
        """Nothing changes."""
        self.properties.clear()
        if base.snapshot is not None:
            self.properties.update(base.snapshot.properties)
        self.manifests = base.metas
        return NO_CHANGES


def _report(
    location: str,
    snapshot_id: int | None,
    before: tuple[ManifestFileMeta, ...],
    after: tuple[ManifestFileMeta, ...],
) -> ManifestCompactionReport:
    return ManifestCompactionReport(
        table=location,
        snapshot_id=snapshot_id,
        manifests_before=len(before),
        manifests_after=len(after),
        bytes_before=sum(meta.file_size for meta in before),
        bytes_after=sum(meta.file_size for meta in after),
    )
