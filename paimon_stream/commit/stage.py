"""Staging: makes everything that a snapshot refers to, before the snapshot itself.

Invariants: nothing staged is visible before the snapshot is published. Every name is new, and is
drawn from the commit's `NameSource` before its file is written, so that `NameSource.drawn` covers
all files that may exist. The resulting snapshot refers only to durable files, and takes over from
its base what the commit does not change (semantics.md §1.5, §2.3 steps 6-11).

The files of one staging are in one bundle, so the committer can write them together, in the trip of
its journal step.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

from paimon_stream.commit.attempts import Attempts
from paimon_stream.commit.index_changes import apply_index_changes
from paimon_stream.commit.plan import Base, Changes, with_row_ids
from paimon_stream.commit.request import CommitRequest
from paimon_stream.commit.staged import Staged
from paimon_stream.errors import CorruptMetadata, NotFound
from paimon_stream.format.entries import ManifestFileMeta
from paimon_stream.format.json_text import MOST_JSON
from paimon_stream.format.snapshot_json import Snapshot, SnapshotId, encode_snapshot
from paimon_stream.format.snapshot_marks import marked
from paimon_stream.format.stats import schema_of_statistics
from paimon_stream.options import ROW_TRACKING
from paimon_stream.runtime import Clock
from paimon_stream.storage.base import Bundle
from paimon_stream.table.layout import NameSource, statistics_path
from paimon_stream.table.manifest_merge import (
    ManifestJoiner,
    Merged,
    MergeLimits,
    merge_manifests,
)
from paimon_stream.table.manifests import ManifestStore, ManifestWriter
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _WrittenMetadata:
    """The metadata that was written for a new snapshot: the name and the bytes of each manifest
    list, the manifests that are new in the lists, and the name of the index manifest. The
    changelog's list is None if there is no changelog, and the index manifest is None if there is no
    index.
    """

    base: str
    base_size: int
    delta: str
    delta_size: int
    delta_metas: tuple[ManifestFileMeta, ...]
    changelog: str | None
    changelog_size: int | None
    changelog_metas: tuple[ManifestFileMeta, ...]
    index_manifest: str | None


class Stager:
    """Stages the commits to one table."""

    def __init__(self, table: Table, manifests: ManifestStore, clock: Clock) -> None:
        self._storage = table.storage
        self._manifests = manifests
        self._clock = clock
        self._options = table.options
        self._partition_types = table.partition_types
        self._limits = MergeLimits.of(table.options)
        self._tracked = table.options.value(ROW_TRACKING)
        self._bucketed = not table.is_bucket_unaware
        self._joiner = ManifestJoiner(
            table.storage, table.options, table.partition_types, manifests
        )

    def stage(
        self,
        base: Base,
        changes: Changes,
        request: CommitRequest,
        attempts: Attempts,
        schema_id: int,
        files: Bundle,
    ) -> Staged | None:
        """Makes manifests and lists, and the snapshot that follows `base`. The snapshot may be
        published only after `files` were flushed.

        Args:
            base: the snapshot on which the new snapshot is built.
            changes: what changes.
            request: the commit.
            attempts: the attempts of the commit.
            schema_id: the id of the newest schema, which the snapshot names, whatever the schema of
                the files is (semantics.md §2.3 step 10).
            files: gets the manifests and lists.

        Returns:
            The staged snapshot. None if the request was only to merge manifests and no merge was
            due.

        Raises:
            StorageError, FormatError, DeletedFiles: something cannot be written. The files written
                so far are among `names.drawn`.
        """
        since_millis = self._clock.now_millis()
        writer = ManifestWriter(files, self._options, self._partition_types, schema_id)
        merged = self._merged(base, request, attempts, writer)
        base_metas = merged.onto(base.metas)
        if request.merge is not None and not changes and base_metas == base.metas:
            return None
        changes, next_row_id = self._with_row_ids(base, changes)
        written = self._write(base, base_metas, changes, writer, attempts.names)
        snapshot = self._following(base, changes, request, written, schema_id, next_row_id)
        return Staged(
            snapshot=snapshot,
            content=encode_snapshot(snapshot),
            base=base,
            changes=changes,
            metas=(*base_metas, *written.delta_metas),
            delta_names=frozenset(meta.file_name for meta in written.delta_metas),
            changelog_metas=written.changelog_metas,
            merged=merged,
            since_millis=since_millis,
        )

    def _merged(
        self, base: Base, request: CommitRequest, attempts: Attempts, writer: ManifestWriter
    ) -> Merged:
        """The merge of the base's manifests: the merge of an earlier attempt or, if there is none,
        a new merge. `writer` writes the manifests of a new merge.
        """
        if attempts.merge is not None:
            return attempts.merge.merged
        access = self._joiner.access(writer, attempts.names)
        return merge_manifests(base.metas, request.merge or self._limits, access)

    def _following(
        self,
        base: Base,
        changes: Changes,
        request: CommitRequest,
        written: _WrittenMetadata,
        schema_id: int,
        next_row_id: int,
    ) -> Snapshot:
        """The snapshot that follows the base. `next_row_id` is the first row id that is free after
        the changes.
        """
        previous = base.snapshot
        total_before = 0
        if previous is not None:
            total_before = previous.total_record_count
        added = changes.record_count
        changelog_record_count = None
        if changes.changelog:
            changelog_record_count = changes.changelog_record_count
        return Snapshot(
            id=SnapshotId(base.id + 1),
            schema_id=schema_id,
            base_manifest_list=written.base,
            base_manifest_list_size=written.base_size,
            delta_manifest_list=written.delta,
            delta_manifest_list_size=written.delta_size,
            changelog_manifest_list=written.changelog,
            changelog_manifest_list_size=written.changelog_size,
            index_manifest=written.index_manifest,
            commit_user=request.user,
            commit_identifier=request.identifier,
            commit_kind=request.kind,
            time_millis=self._clock.now_millis(),
            total_record_count=total_before + added,
            delta_record_count=added,
            changelog_record_count=changelog_record_count,
            watermark=_watermark(request, previous),
            statistics=request.statistics or self._statistics(previous, schema_id),
            properties=MappingProxyType(marked(request.properties, written.delta, previous)),
            next_row_id=next_row_id,
        )

    def _with_row_ids(self, base: Base, changes: Changes) -> tuple[Changes, int]:
        """The changes, in which new rows have row ids if the table tracks rows, and the first row
        id that is free after the changes.
        """
        next_row_id = 0
        if base.snapshot is not None and base.snapshot.next_row_id is not None:
            next_row_id = base.snapshot.next_row_id
        if not self._tracked:
            return changes, next_row_id
        return with_row_ids(changes, next_row_id, base.id + 1)

    def _write(
        self,
        base: Base,
        base_metas: Sequence[ManifestFileMeta],
        changes: Changes,
        writer: ManifestWriter,
        names: NameSource,
    ) -> _WrittenMetadata:
        """Writes the manifests of these changes, the base list (`base_metas`), the delta list and,
        if needed, the changelog list and the index manifest.
        """
        delta_metas = writer.write(changes.entries, names)
        base_list = names.next("manifest-list")
        delta_list = names.next("manifest-list")
        base_size = writer.write_list(base_list, base_metas)
        delta_size = writer.write_list(delta_list, delta_metas)
        changelog_metas = writer.write(changes.changelog, names)
        changelog_list = None
        changelog_size = None
        if changes.changelog:
            changelog_list = names.next("manifest-list")
            changelog_size = writer.write_list(changelog_list, changelog_metas)
        return _WrittenMetadata(
            base=base_list,
            base_size=base_size,
            delta=delta_list,
            delta_size=delta_size,
            delta_metas=delta_metas,
            changelog=changelog_list,
            changelog_size=changelog_size,
            changelog_metas=changelog_metas,
            index_manifest=self._index_manifest(base, changes, writer, names),
        )

    def _index_manifest(
        self, base: Base, changes: Changes, writer: ManifestWriter, names: NameSource
    ) -> str | None:
        """The base's index manifest, or a new one if index files change."""
        if not changes.index:
            return base.index_manifest
        present = self._manifests.index_entries(base.index_manifest)
        live = apply_index_changes(
            present, changes.index, bucketed=self._bucketed, location=self._storage.location
        )
        name = names.next("index-manifest")
        writer.write_index(name, live)
        return name

    def _statistics(self, previous: Snapshot | None, schema_id: int) -> str | None:
        """The base's table statistics, if they belong to the new snapshot's schema."""
        if previous is None or previous.statistics is None:
            return None
        path = statistics_path(previous.statistics)
        try:
            schema_of_file = schema_of_statistics(self._storage.read(path, MOST_JSON), path)
        except (NotFound, CorruptMetadata) as error:
            _LOG.warning("%s: dropped the statistics %s: %s", self._storage.location, path, error)
            return None
        if schema_of_file != schema_id:
            return None
        return previous.statistics


def _watermark(request: CommitRequest, previous: Snapshot | None) -> int | None:
    """The watermark of the new snapshot. Watermarks never go back (semantics.md §1.5)."""
    if previous is None or previous.watermark is None:
        return request.watermark
    if request.watermark is None:
        return previous.watermark
    return max(request.watermark, previous.watermark)
