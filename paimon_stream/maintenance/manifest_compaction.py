"""Merges all manifests at once, as Java's `compactManifest` does (semantics.md §4, R4.3). The merge
is the full merge of a commit, with both thresholds set to one.

Invariants: the live files are the same before and after. Nothing is deleted; expiry removes the old
manifests. If nothing would change, nothing is published. The snapshot has a commit user of its own,
because under the user of a stream, all batches of that stream would seem to be committed (R1.2).
The snapshot keeps the properties of its base, as in Java, except those in which a stream identifies
itself and describes its batch.
"""

from dataclasses import dataclass, field

from paimon_stream._version import __version__
from paimon_stream.commit.committer import Committer
from paimon_stream.commit.plan import NO_CHANGES, Base, Changes
from paimon_stream.commit.request import CommitRequest, Published
from paimon_stream.commit.table_commit import batch_user
from paimon_stream.format import snapshot_json
from paimon_stream.format.entries import ManifestFileMeta
from paimon_stream.format.snapshot_marks import MARK_PREFIX, VERSION_MARK
from paimon_stream.options import MANIFEST_TARGET_SIZE
from paimon_stream.reports import Progress, Report, silent
from paimon_stream.runtime import Runtime, system
from paimon_stream.table.layout import NameSource
from paimon_stream.table.manifest_merge import ManifestJoiner, Merged, MergeLimits, merge_manifests
from paimon_stream.table.manifests import ManifestStore, ManifestWriter
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestCompactionReport(Report):
    """What was merged, or would be merged in a dry run.

    Attributes:
        location: the location of the table.
        snapshot_id: the snapshot with the merged manifests; None if there was nothing to merge, and
            in a dry run.
        dry_run: whether nothing was published.
        merged: how many manifests were merged into others.
        manifests_before: the number of manifests before the merge.
        manifests_after: the number of manifests after the merge.
        bytes_before: the size of the manifests before the merge.
        bytes_after: the size of the manifests after the merge.
    """

    location: str
    snapshot_id: int | None
    dry_run: bool
    merged: int
    manifests_before: int
    manifests_after: int
    bytes_before: int
    bytes_after: int


def compact_manifests(
    table: Table,
    *,
    dry_run: bool = False,
    progress: Progress = silent,
    runtime: Runtime | None = None,
) -> ManifestCompactionReport:
    """Merges the manifests of the newest snapshot. Raises the errors of
    `PaimonTable.compact_manifests`. `DeletedFiles` means that a file was committed twice. After an
    error nothing is published. Only after `CommitUnknown` the snapshot may have been published,
    which does no harm.
    """
    running = runtime or system()
    latest = SnapshotStore(table.storage, running).latest()
    if latest is None:
        return _report(table, Merged(before=(), after=()), snapshot_id=None, dry_run=dry_run)
    # With these thresholds, a merge is due as soon as anything can be merged.
    limits = MergeLimits(
        target_size=table.options.value(MANIFEST_TARGET_SIZE), full_size=1, min_count=1
    )
    progress("manifests", 0, None)
    if dry_run:
        merged = _merged(table, running, latest, limits)
        progress("manifests", len(merged.before), len(merged.before))
        return _report(table, merged, snapshot_id=None, dry_run=True)
    source = _CarriedOver()
    outcome = Committer(table, runtime=running).commit(
        CommitRequest(
            user=batch_user(table.options, running.ids),
            identifier=snapshot_json.BATCH_IDENTIFIER,
            source=source,
            kind=snapshot_json.CommitKind.COMPACT,
            properties=source.properties,
            merge=limits,
            seen=snapshot_json.SnapshotRef.of(latest),
            stage_uuid=running.ids.uuid(),
        )
    )
    before = source.manifests
    progress("manifests", len(before), len(before))
    if not isinstance(outcome, Published):
        return _report(table, Merged(before=before, after=before), snapshot_id=None, dry_run=False)
    published = outcome.snapshot
    after = ManifestStore(table.storage).read_list(
        published.base_manifest_list, published.base_manifest_list_size
    )
    return _report(
        table, Merged(before=before, after=after), snapshot_id=published.id, dry_run=False
    )


class _Nowhere:
    """A sink for files in a dry run. It accepts files and writes none."""

    def write(self, path: str, data: bytes) -> None:
        """Accepts a file and writes nothing."""


def _merged(
    table: Table, runtime: Runtime, latest: snapshot_json.Snapshot, limits: MergeLimits
) -> Merged:
    """The result of the merge, computed without writing anything."""
    manifests = ManifestStore(table.storage)
    nowhere = _Nowhere()
    names = NameSource(runtime.ids.uuid())
    writer = ManifestWriter(nowhere, table.options, table.partition_types, table.schema.id)
    joiner = ManifestJoiner(table.storage, table.options, table.partition_types, manifests, nowhere)
    return merge_manifests(manifests.base_and_delta(latest), limits, joiner.access(writer, names))


@dataclass(slots=True)
class _CarriedOver:
    """The changes of a snapshot that changes no file, on any base. For each attempt, it records
    which properties the snapshot keeps of its base.
    """

    properties: dict[str, str] = field(default_factory=dict)
    manifests: tuple[ManifestFileMeta, ...] = ()

    def at(self, base: Base) -> Changes:
        """Records the base's properties that the snapshot keeps. There are no changes."""
        self.properties.clear()
        carried = {} if base.snapshot is None else base.snapshot.properties
        self.properties.update(
            (key, value) for key, value in carried.items() if not key.startswith(MARK_PREFIX)
        )
        self.properties[VERSION_MARK] = __version__
        self.manifests = base.metas
        return NO_CHANGES


def _report(
    table: Table, merged: Merged, *, snapshot_id: int | None, dry_run: bool
) -> ManifestCompactionReport:
    return ManifestCompactionReport(
        location=table.location,
        snapshot_id=snapshot_id,
        dry_run=dry_run,
        merged=merged.count,
        manifests_before=len(merged.before),
        manifests_after=len(merged.after),
        bytes_before=sum(meta.file_size for meta in merged.before),
        bytes_after=sum(meta.file_size for meta in merged.after),
    )
