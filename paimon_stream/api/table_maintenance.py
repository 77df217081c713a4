"""The part of `PaimonTable` that maintains: expiry, tags, rollback, orphans, verification, manifests."""

from __future__ import annotations

from paimon_stream.api.loaded_table import LoadedTable
from paimon_stream.maintenance.ages import Age, Moment
from paimon_stream.maintenance.expire import ExpireReport, expire_snapshots
from paimon_stream.maintenance.findings import VerifyReport
from paimon_stream.maintenance.manifest_compaction import ManifestCompactionReport, compact_manifests
from paimon_stream.maintenance.orphans import OrphanReport, remove_orphan_files
from paimon_stream.maintenance.progress import Progress, silent
from paimon_stream.maintenance.rollback import RollbackReport, rollback_to
from paimon_stream.maintenance.tags import TagReport, create_tag, delete_tag
from paimon_stream.maintenance.verify import DEFAULT_SAMPLE, verify

__all__ = ["TableMaintenance"]


class TableMaintenance(LoadedTable):
    """Maintains a table: its snapshots and tags, its manifests, and the files that nothing refers to."""

    __slots__ = ()

    # -- snapshots, tags --------------------------------------------------------------------------

    def expire_snapshots(
        self,
        retain_max: int | None = None,
        retain_min: int | None = None,
        older_than: Moment | None = None,
        max_deletes: int | None = None,
        dry_run: bool = False,
        *,
        protect_streams: bool = True,
        progress: Progress = silent,
    ) -> ExpireReport:
        """Expires old snapshots and deletes the files that only they need. Tags, branches, consumers, and
        streams that were active within a day keep the snapshots and files that they need.

        The table's options decide what is not given (`snapshot.num-retained.max`, `.min`,
        `snapshot.time-retained`, `snapshot.expire.limit`). `older_than` is an age such as `"7 d"` or a
        `timedelta`, or a time (`datetime`, text such as `"2026-11-01T12:00Z"`, epoch milliseconds).

        Unless `dry_run=True` is given it acts at once, because the table's metadata determines what may be
        deleted. `remove_orphan_files` must guess by age and is therefore a dry run by default.

        Raises `InvalidOption`, `UnsupportedFeature` for a table whose changelog outlives its snapshots,
        `CorruptMetadata`, `StorageError`. The next run deletes what was not deleted then.
        """
        given = self._given
        retain_max = given.whole("retain_max", retain_max, optional=True)
        retain_min = given.whole("retain_min", retain_min, optional=True)
        max_deletes = given.whole("max_deletes", max_deletes, optional=True)
        dry_run = given.flag("dry_run", dry_run)
        protect_streams = given.flag("protect_streams", protect_streams)
        given.function("progress", progress)
        return expire_snapshots(
            self._newest(),
            retain_max,
            retain_min,
            older_than,
            max_deletes,
            dry_run,
            protect_streams=protect_streams,
            progress=progress,
        )

    def create_tag(
        self, name: str, snapshot_id: int | None = None, time_retained: Age | None = None
    ) -> TagReport:
        """Keeps a snapshot, by default the newest, under a name. After `time_retained`, any engine may delete
        the tag. `time_retained` is an age such as `"90 d"` or a `timedelta`, by default the table's
        `tag.default-time-retained`. If neither is set, the tag stays until it is deleted.

        Raises `InvalidOption` for an invalid name, `AlreadyExists`, `NotFound` for a snapshot that does not
        exist, `StorageError`.
        """
        self._given.text("name", name, blank=True)
        snapshot_id = self._given.whole("snapshot_id", snapshot_id, optional=True)
        return create_tag(self._newest(), name, snapshot_id, time_retained)

    def delete_tag(self, name: str) -> TagReport:
        """Deletes a tag, and the files that only it needed. `found` in the report says whether it existed.
        Of a tag that cannot be read (`unreadable`), only its own file is deleted.

        Raises `InvalidOption`, `CommitContended` while a rollback is under way, `CorruptMetadata`,
        `StorageError`.
        """
        self._given.text("name", name, blank=True)
        return delete_tag(self._newest(), name)

    def rollback_to(
        self, target: int | str, *, dry_run: bool = False, take_over: bool = False
    ) -> RollbackReport:
        """Makes a snapshot (given by id) or the snapshot of a tag (given by name) the newest again, and
        removes later snapshots and tags. Stop the writers first; expiry may run beside it. A stream that
        loses batches stops with `TableRolledBack`.

        Unless `dry_run=True` is given it acts at once, because the target alone determines what is removed.

        A rollback that was interrupted is completed by another one to the same target. Until then, nothing
        expires, and a rollback to another target is refused. `take_over=True` gives the interrupted one up;
        make sure first that it runs no more.

        Raises `NotFound` for a target that does not exist, is gone or has lost files, `CommitContended` if
        another rollback is under way, an expiry of the target does not end or a writer keeps committing,
        `CorruptMetadata`, `StorageError`.
        """
        if not isinstance(target, str):
            target = self._given.whole("target", target)
        dry_run = self._given.flag("dry_run", dry_run)
        take_over = self._given.flag("take_over", take_over)
        return rollback_to(self._newest(), target, dry_run=dry_run, take_over=take_over)

    # -- keeping it healthy -----------------------------------------------------------------------

    def remove_orphan_files(
        self,
        older_than: Age | None = None,
        dry_run: bool = True,
        *,
        max_paths: int = 1000,
        progress: Progress | None = None,
    ) -> OrphanReport:
        """Finds the files that nothing refers to, and removes them if `dry_run` is False.

        It is a dry run by default, unlike `expire_snapshots` and `rollback_to`, which act at once. The
        candidates are chosen by age, and a file that nothing refers to may be part of a batch that is still
        being written.

        `older_than` is an age, a `timedelta` or a text such as `"36 h"`. The default is one day, and the
        minimum one hour. Choose an age above the time that your longest batch takes.

        Raises `InvalidOption` for an age below the minimum. Raises `CorruptMetadata`, `UnknownVersion` or
        `StorageError` if anything that refers to files cannot be read, and `CommitContended`; then nothing is
        deleted.
        """
        dry_run = self._given.flag("dry_run", dry_run)
        max_paths = self._given.whole("max_paths", max_paths, least=0)
        self._given.function("progress", progress, optional=True)
        return remove_orphan_files(self._table, older_than, dry_run, max_paths=max_paths, progress=progress)

    def verify(self, *, sample: int = DEFAULT_SAMPLE, progress: Progress | None = None) -> VerifyReport:
        """Reads every snapshot, tag, manifest list and manifest, and checks that their content is right.

        `sample` data files, drawn at random, are read in full; 0 reads none. Nothing is written. Everything
        that is broken becomes a finding, with its cure. Raises only `InvalidOption` and `StorageError`.
        """
        self._given.function("progress", progress, optional=True)
        return verify(self._table, sample=sample, progress=progress)

    def compact_manifests(
        self, *, dry_run: bool = False, progress: Progress | None = None
    ) -> ManifestCompactionReport:
        """Merges the manifests of the newest snapshot and publishes the result as a new snapshot, if anything
        changes. A dry run writes nothing and reports what the merge would do.

        Raises `CommitContended`, `DeletedFiles`, `CorruptMetadata`, `StorageError`, `CommitUnknown`.
        """
        dry_run = self._given.flag("dry_run", dry_run)
        self._given.function("progress", progress, optional=True)
        return compact_manifests(self._table, dry_run=dry_run, progress=progress)
