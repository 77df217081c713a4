"""The part of `PaimonTable` that maintains a table: expiry, tags, rollback, branches, lost batches,
orphans, compaction, verification, manifests.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from paimon_stream.api.table_reading import LoadedTable
from paimon_stream.compact.job import OF_CALLS, compact
from paimon_stream.compact.publish import CompactReport
from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.maintenance import branches as of_branches
from paimon_stream.maintenance.automatic_tags import AutomaticTagsReport, create_automatic_tags
from paimon_stream.maintenance.expire import ExpireReport, expire_snapshots
from paimon_stream.maintenance.expire_partitions import PartitionExpiryReport, expire_partitions
from paimon_stream.maintenance.lost_files import LostFilesReport, drop_lost_files
from paimon_stream.maintenance.manifest_compaction import (
    ManifestCompactionReport,
    compact_manifests,
)
from paimon_stream.maintenance.orphans import OrphanReport, remove_orphan_files
from paimon_stream.maintenance.rebuild_index import RebuiltIndexReport, rebuild_index
from paimon_stream.maintenance.rollback import RollbackReport, rollback_to
from paimon_stream.maintenance.tags import TagReport, create_tag, delete_tag
from paimon_stream.options import OF_PARTITIONS, Age, Moment
from paimon_stream.reports import Progress, silent
from paimon_stream.spark.active_session import executors_of_session
from paimon_stream.stream.recommit import RecommitReport, recommit
from paimon_stream.table.table import load_table
from paimon_stream.verify.findings import VerifyReport
from paimon_stream.verify.verifying import DEFAULT_SAMPLE, verify

_SORTING: Final = ("order-strategy", "order-by", "sort-compaction.")
"""The beginnings of the names of options that ask for a sorting compaction."""


class TableMaintenance(LoadedTable):
    """Maintains a table: its snapshots and tags, its manifests, and the files to which nothing
    refers.
    """

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
        """Expires old snapshots and deletes the files that only they need. Tags, branches and
        consumers keep the snapshots and files that they need. So does each stream that has a
        journal and was active within the last day. Changelogs that outlive their snapshots keep
        their files, too, and expire by the table's `changelog.*` options.

        Unless `dry_run=True` is given, the call deletes files at once, because the table's metadata
        alone determines what may be deleted (unlike in `remove_orphan_files`). If the storage does
        not answer, or the file of a snapshot cannot be deleted, the run ends with an error, and the
        next run continues it. Any other file that cannot be deleted counts as `left`, and stays
        until `remove_orphan_files` removes it.

        Args:
            retain_max: the most snapshots to keep; by default `snapshot.num-retained.max`.
            retain_min: the fewest snapshots to keep; by default `snapshot.num-retained.min`.
            older_than: snapshots beyond `retain_max` expire at any age, others only if they are
                older than this. It is an age such as `"7 d"` or a `timedelta`, or a time: a
                `datetime`, a text such as `"2026-11-01T12:00Z"`, or epoch milliseconds. By default
                `snapshot.time-retained`.
            max_deletes: the most snapshots that expire now; by default `snapshot.expire.limit`.
            dry_run: only report.
            protect_streams: keep the last snapshot of streams with a journal that were active
                within a day.
            progress: is called with what is done.

        Raises:
            InvalidOption: for an argument or an option with a wrong value.
            UnsupportedFeature: for a table whose snapshots this release does not expire, unless
                `dry_run` is set.
            CommitContended: while a rollback is under way, unless `dry_run` is set.
            CorruptMetadata: if a file that refers to others is damaged.
            StorageError: if the storage fails.
        """
        arguments = self._arguments
        retain_max = arguments.whole("retain_max", retain_max, optional=True)
        retain_min = arguments.whole("retain_min", retain_min, optional=True)
        max_deletes = arguments.whole("max_deletes", max_deletes, optional=True)
        dry_run = arguments.flag("dry_run", dry_run)
        protect_streams = arguments.flag("protect_streams", protect_streams)
        arguments.function("progress", progress)
        return expire_snapshots(
            self._newest(),
            retain_max,
            retain_min,
            older_than,
            max_deletes,
            dry_run=dry_run,
            protect_streams=protect_streams,
            progress=progress,
        )

    def create_tag(
        self,
        name: str,
        snapshot_id: int | None = None,
        time_retained: Age | None = None,
    ) -> TagReport:
        """Keeps a snapshot under a name.

        Args:
            name: the name of the tag.
            snapshot_id: the id of the snapshot; by default the newest.
            time_retained: after this age, any engine may delete the tag. It is a `timedelta` or a
                text such as `"90 d"`; by default the table's `tag.default-time-retained`. If
                neither is set, the tag stays until it is deleted.

        Raises:
            InvalidOption: for an invalid name or age.
            AlreadyExists: if there is such a tag.
            NotFound: if there is no such snapshot, or if it cannot be read or has lost files.
            StorageError: if the storage fails.
        """
        self._arguments.text("name", name, may_be_blank=True)
        snapshot_id = self._arguments.whole("snapshot_id", snapshot_id, optional=True)
        return create_tag(self._newest(), name, snapshot_id, time_retained)

    def create_automatic_tags(self, *, dry_run: bool = False) -> AutomaticTagsReport:
        """Creates the tags that are due by `tag.automatic-creation`, and deletes the oldest
        automatic tags beyond `tag.num-retained-max`. Commits do the same.

        Args:
            dry_run: only report.

        Raises:
            InvalidOption: for an option with a wrong value.
            CommitContended: while a rollback is under way.
            CorruptMetadata: if a file that refers to others is damaged.
            StorageError: if the storage fails.
        """
        return create_automatic_tags(
            self._newest(), dry_run=self._arguments.flag("dry_run", dry_run)
        )

    def delete_tag(self, name: str) -> TagReport:
        """Deletes a tag, and the files that only this tag needed. If the tag cannot be read
        (`unreadable` in the report), or if another snapshot has the id of the tagged one, only the
        tag's own file is deleted. `remove_orphan_files` removes the others later.

        Args:
            name: the name of the tag.

        Returns:
            A report. `found` says whether there was such a tag.

        Raises:
            InvalidOption: for an invalid name.
            CommitContended: while a rollback is under way.
            CorruptMetadata: if a file that refers to others is damaged.
            StorageError: if the storage fails.
        """
        self._arguments.text("name", name, may_be_blank=True)
        return delete_tag(self._newest(), name)

    def rollback_to(
        self,
        target: int | str,
        *,
        dry_run: bool = False,
        take_over: bool = False,
    ) -> RollbackReport:
        """Makes a snapshot or the snapshot of a tag the newest again, and removes later snapshots
        and tags. If a tag's snapshot has expired, it is restored from the tag. Stop the writers
        first; expiry, orphan removal and the deletion of tags may run at the same time. A stream
        that loses batches stops with `TableRolledBack`. Unless `dry_run=True` is given, the call
        acts at once, because the target alone determines what is removed.

        Another call with the same target completes a rollback that was interrupted. Until then,
        nothing expires, and a rollback to another target is refused.

        Args:
            target: the id of a snapshot, or the name of a tag.
            dry_run: only report.
            take_over: give up an interrupted rollback to another target. Make sure first that this
                rollback is not running any more.

        Raises:
            NotFound: for a target that does not exist, is gone, cannot be read or has lost files,
                for a snapshot that a paused writer created again after its id had expired, and for
                a tag whose id another snapshot of the table has by now.
            CommitContended: if another rollback is under way, if an expiry of the target does not
                end, or if a writer keeps committing.
            CorruptMetadata: if a file that refers to others is damaged.
            StorageError: if the storage fails, and if a folder with files to delete is a symbolic
                link.
        """
        if not isinstance(target, str):
            target = self._arguments.whole("target", target)
        dry_run = self._arguments.flag("dry_run", dry_run)
        take_over = self._arguments.flag("take_over", take_over)
        return rollback_to(self._newest(), target, dry_run=dry_run, take_over=take_over)

    # -- branches ---------------------------------------------------------------------------------
    def branches(self) -> dict[str, Snapshot | None]:
        """The branches except main, by name, each with its newest snapshot. Load a branch with
        `PaimonTable.load(location, branch=name)`. Raises `CorruptMetadata`, `StorageError`.
        """
        return of_branches.read_branches(self._storage)

    def create_branch(
        self,
        name: str,
        tag: str | None = None,
    ) -> of_branches.BranchReport:
        """Creates a branch, which keeps the files that it needs. The same call completes a call
        that was interrupted.

        Args:
            name: the name of the branch.
            tag: begin with the snapshot and the schemas of this tag. Without a tag the branch is
                empty and has all schemas.

        Raises:
            InvalidOption: for a name that no branch may have, and if this table is loaded as a
                branch.
            AlreadyExists: if there is such a branch.
            NotFound: for a tag that does not exist or has lost files.
            CommitContended: if another creation or a deletion of the branch was interrupted.
            CorruptMetadata: if a file that refers to others is damaged.
            StorageError: if the storage fails.
        """
        self._arguments.text("name", name, may_be_blank=True)
        self._arguments.text("tag", tag, may_be_blank=True, optional=True)
        return of_branches.create_branch(self._newest(), name, tag)

    def delete_branch(
        self,
        name: str,
        *,
        dry_run: bool = False,
    ) -> of_branches.BranchReport:
        """Deletes a branch with its snapshots, tags and streams. Files that only this branch needed
        stay until `remove_orphan_files` removes them. Stop its writers first. The same call
        completes a call that was interrupted.

        A query that wrote to the branch and later writes to main does not repeat the batches that
        only the branch had. If you want them, fast-forward main to the branch first.

        Args:
            name: the name of the branch.
            dry_run: only report.

        Returns:
            A report. `found` says whether there was such a branch.

        Raises:
            InvalidOption: for a name that no branch may have.
            StorageError: if the storage fails.
        """
        self._arguments.text("name", name, may_be_blank=True)
        return of_branches.delete_branch(
            self._newest(), name, dry_run=self._arguments.flag("dry_run", dry_run)
        )

    def fast_forward(
        self,
        name: str,
        *,
        dry_run: bool = False,
        take_over: bool = False,
    ) -> of_branches.ForwardReport:
        """Replaces the history of main by that of a branch. Main loses the snapshots that the
        branch does not have, with their tags, and gets the snapshots, tags and schemas that only
        the branch has. The branch stays. Stop the writers first. A stream on main that loses
        batches stops with `TableRolledBack`. Unless `dry_run=True` is given, the call acts at once.

        The same call completes a call that was interrupted. Until then main is in a state that main
        or the branch had.

        Args:
            name: the name of the branch.
            dry_run: only report.
            take_over: give up an interrupted rollback to another snapshot, as in `rollback_to`.

        Raises:
            NotFound: for a branch that does not exist or has no snapshot, and as in `rollback_to`.
            IncompatibleSchema: if main and the branch share no snapshot and their schemas differ,
                or if a tag that stays needs a schema that the branch does not have.
            CommitContended: if writers or an expiry of the branch are at work, and as in
                `rollback_to`.
            CorruptMetadata: if a file that refers to others is damaged.
            StorageError: as in `rollback_to`.
        """
        self._arguments.text("name", name, may_be_blank=True)
        dry_run = self._arguments.flag("dry_run", dry_run)
        take_over = self._arguments.flag("take_over", take_over)
        return of_branches.fast_forward(self._newest(), name, dry_run=dry_run, take_over=take_over)

    # -- lost batches, partitions ------------------------------------------------------------------
    def recommit(
        self,
        commit_user: str | None = None,
        batch: int | None = None,
        *,
        snapshot: int | None = None,
        delta_list: str | None = None,
        dry_run: bool = True,
    ) -> RecommitReport:
        """Commits the files of a batch again if another engine replaced the snapshot of the batch
        (`CommitLost`). Nothing is written unless `dry_run` is False. Start the stream again
        afterwards.

        The journal of the stream names the files. If there is no journal, `commit_user`, `batch`,
        `snapshot` and `delta_list` say which commit was lost. The message of `CommitLost` names all
        four. The call can be repeated: a batch that is in the table is left as it is.

        The call is a dry run by default, because a rollback on purpose can look like a loss. If an
        error other than `CommitUnknown` is raised, nothing was published.

        Args:
            commit_user: the commit user of the stream.
            batch: the id of the batch; by default the earliest batch that is not in the table.
            snapshot: the id of the lost snapshot.
            delta_list: the name of the lost snapshot's delta list.
            dry_run: only report.

        Returns:
            A report. `found` says whether the batch was in the table.

        Raises:
            TableRolledBack: if a rollback has removed the batch, or if no snapshot of another
                engine stands in its place.
            HistoryUnknown: if the snapshots are gone that would show whether the batch is in the
                table.
            CheckpointRewound: if the stream has published a later batch since.
            DeletedFiles: if files are gone.
            CommitContended: while orphan files are removed, if no journal has the batch.
            SequenceConflict: if others have used the batch's sequence numbers since.
            NotFound: if no such batch is known; or if files were deleted while the batch was
                published again. The message then names the snapshot.
            InvalidOption: if several streams have lost a batch, and no `commit_user` is given.
            UnsupportedFeature: for a commit that replaced or compacted files.
            PaimonStreamError: the errors of `new_commit().commit`.
        """
        arguments = self._arguments
        arguments.text("commit_user", commit_user, optional=True)
        batch = arguments.whole("batch", batch, optional=True)
        snapshot = arguments.whole("snapshot", snapshot, least=1, optional=True)
        arguments.text("delta_list", delta_list, optional=True)
        dry_run = arguments.flag("dry_run", dry_run)
        return recommit(
            self._newest(),
            commit_user,
            batch,
            snapshot=snapshot,
            delta_list=delta_list,
            dry_run=dry_run,
        )

    def expire_partitions(
        self,
        options: Mapping[str, str] | None = None,
        *,
        dry_run: bool = False,
    ) -> PartitionExpiryReport:
        """Drops the partitions that are older than `partition.expiration-time`, at most
        `partition.expiration-max-num` of them. Earlier snapshots keep the rows until they expire.

        Args:
            options: options of the table that begin with `partition.expiration-` or
                `partition.timestamp-`, for this call alone.
            dry_run: write nothing.

        Raises:
            InvalidOption: for an option with a wrong value, and if the table has no partitions or
                no `partition.expiration-time`.
            PaimonStreamError: the errors of `drop_partitions` and of `delete_tag`. Snapshots that
                were published before stay.
        """
        dry_run = self._arguments.flag("dry_run", dry_run)
        options_of_call = self._of_call(options, OF_PARTITIONS)
        return expire_partitions(load_table(self._storage, options_of_call), dry_run=dry_run)

    # -- keeping it healthy -----------------------------------------------------------------------
    def remove_orphan_files(
        self,
        older_than: Age | None = None,
        dry_run: bool = True,
        *,
        max_paths: int = 1000,
        progress: Progress | None = None,
    ) -> OrphanReport:
        """Finds the files to which nothing refers, and removes them if `dry_run` is False. Unlike
        `expire_snapshots` and `rollback_to`, the call is a dry run by default, because it chooses
        files by their age: a file to which nothing refers may belong to a batch that is still being
        written. If an error is raised, nothing is deleted.

        Args:
            older_than: the least age of the files, a `timedelta` or a text such as `"36 h"`; by
                default one day, and at least one hour. Choose an age above the time that your
                longest batch takes.
            dry_run: only report.
            max_paths: the most files that the report names.
            progress: is called with what is done.

        Raises:
            InvalidOption: for an age below the minimum.
            CorruptMetadata: if anything that refers to files is damaged, or if snapshots are lost.
            UnknownVersion: if anything that refers to files is of a later version.
            StorageError: if anything that refers to files cannot be read.
            CommitContended: while a rollback is under way, while `recommit` commits a batch that no
                journal has, and if snapshots come and go faster than they are read.
        """
        dry_run = self._arguments.flag("dry_run", dry_run)
        max_paths = self._arguments.whole("max_paths", max_paths, least=0)
        self._arguments.function("progress", progress, optional=True)
        return remove_orphan_files(
            self._table,
            older_than,
            dry_run=dry_run,
            max_paths=max_paths,
            progress=progress or silent,
        )

    def verify(
        self,
        *,
        sample: int = DEFAULT_SAMPLE,
        progress: Progress | None = None,
    ) -> VerifyReport:
        """Reads every snapshot, tag, manifest list and manifest, and checks that their content is
        right. Nothing is written. For everything that is broken, there is a finding that says what
        to do.

        Args:
            sample: how many data files, drawn at random, are read in full; 0 for none.
            progress: is called with what is done.

        Raises:
            InvalidOption: for an argument with a wrong value.
            FormatError: if the newest schema is damaged or of a later version.
            StorageError: if the storage fails.
        """
        self._arguments.function("progress", progress, optional=True)
        return verify(self._newest(), sample=sample, progress=progress or silent)

    def compact(
        self,
        full: bool = False,
        partitions: Iterable[Mapping[str, Any]] | None = None,
        options: Mapping[str, str] | None = None,
        *,
        dry_run: bool = False,
        progress: Progress = silent,
    ) -> CompactReport:
        """Rewrites small files into fewer, larger ones; in a table with a primary key, merges rows
        of one key onto higher levels. Rows that wait in bucket -2 get their buckets first.
        Otherwise readers see no change, and streams go on meanwhile. Rewritten files are published
        in snapshots of kind COMPACT, at least every ten minutes. A run after an interrupted run
        goes on where that run ended (docs/compaction.md). If an error is raised, the new files that
        were not published are removed. After `CommitUnknown` these files stay, which does no harm.

        Args:
            full: in fixed buckets, rewrite all files behind the leading large files, instead of
                only the first few small files. With a primary key, merge all files of a bucket onto
                its highest level.
            partitions: specs such as `[{"dt": "2024-02-29"}]`. Only partitions that match one of
                them are compacted.
            options: table options for this call alone. Their keys begin with `compaction.`, or are
                `num-sorted-run.compaction-trigger`, `target-file-size`,
                `source.split.open-file-cost` and `postpone.default-bucket-num`.
            dry_run: write nothing.
            progress: is called with what is done.

        Raises:
            UnsupportedFeature: for a table that this release does not compact.
            InvalidOption: for an option that cannot be set for one call, or has a wrong value.
            IncompatibleSchema: for a partition that the table cannot have.
            InvalidData: for a value that a partition column cannot have.
            CommitUnknown: if it is not known whether the files were published.
            NotFound: if a file is missing.
            FormatError: if a file is broken.
            CorruptMetadata: if a file that refers to others is damaged.
            StorageError: if the storage fails.
            CommitContended: if others keep committing.
            TableRolledBack: if the table is rolled back meanwhile.
        """
        arguments = self._arguments
        full = arguments.flag("full", full)
        dry_run = arguments.flag("dry_run", dry_run)
        arguments.function("progress", progress)
        specs = None
        if partitions is not None:
            example = "a list of partitions such as [{'dt': '2024-02-29'}]"
            specs = arguments.items("partitions", partitions, Mapping, example)
        self._refuse_sorting(options)
        load = partial(load_table, self._storage, self._of_call(options, OF_CALLS))
        executors = executors_of_session(self._table)
        return compact(
            load,
            full=full,
            partitions=specs,
            dry_run=dry_run,
            progress=progress,
            elsewhere=executors,
        )

    def _refuse_sorting(self, options: Mapping[str, str] | None) -> None:
        """Raises `UnsupportedFeature` for options that ask for a compaction that sorts rows, and
        `InvalidOption` if `options` is not a mapping.
        """
        example = "{'compaction.min.file-num': '2'}"
        for key in self._arguments.mapping("options", options, example):
            if key.replace("_", "-").startswith(_SORTING):
                raise UnsupportedFeature(
                    f"{key} asks for a compaction that sorts rows, which this release does not do. "
                    "Leave it out, or sort with Flink or Spark on the JVM (sys.compact).",
                    option=key,
                ).of_table(self.location)

    def compact_manifests(
        self,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> ManifestCompactionReport:
        """Merges the manifests of the newest snapshot, and publishes a new snapshot if anything
        changes.

        Args:
            dry_run: only report.
            progress: is called with what is done.

        Raises:
            CommitContended: if others keep committing.
            DeletedFiles: if the manifests list a file twice, because it was committed twice.
            CorruptMetadata: if a file that refers to others is damaged.
            StorageError: if the storage fails.
            CommitUnknown: if it is not known whether the snapshot was published.
        """
        dry_run = self._arguments.flag("dry_run", dry_run)
        self._arguments.function("progress", progress, optional=True)
        return compact_manifests(self._newest(), dry_run=dry_run, progress=progress or silent)

    def rebuild_index(
        self,
        *,
        dry_run: bool = True,
        progress: Progress = silent,
    ) -> RebuiltIndexReport:
        """Compares the hash index of a table with dynamic buckets to the keys of its files. With
        `dry_run=False`, the wrong parts are written again, in a new snapshot. No row changes. If the
        newest snapshot is no batch of this package, there is a new snapshot in any case. Stop the
        writers of other engines first. The key columns of all files are read. If an error other
        than `CommitUnknown` is raised, nothing was published.

        Args:
            dry_run: only report.
            progress: is called with what is done.

        Raises:
            UnsupportedFeature: for a table without such an index.
            CorruptMetadata: if a key has rows in two buckets, or if a lost index manifest also
                named deletion vectors.
            IndexConflict: if others keep changing the index.
            NotFound: if a file is missing.
            FormatError: if a file is broken.
            PaimonStreamError: the errors of `new_commit().commit`.
        """
        dry_run = self._arguments.flag("dry_run", dry_run)
        self._arguments.function("progress", progress)
        return rebuild_index(self._newest(), dry_run=dry_run, progress=progress)

    def drop_lost_files(
        self,
        *,
        dry_run: bool = True,
        progress: Progress = silent,
    ) -> LostFilesReport:
        """Looks for all data files of the newest snapshot. With `dry_run=False`, a new snapshot
        without the missing files is published, so that the table can be read again. The rows of
        these files are lost; the report says what is known of them. Restore the files instead if
        you can.

        With a primary key, a key whose newest row was in a lost file has its older row again, if
        another file has an older row. The same holds for a key that was deleted. Earlier snapshots
        still name the files. If an error other than `CommitUnknown` is raised, nothing was
        published.

        Args:
            dry_run: only report.
            progress: is called with what is done.

        Raises:
            NotFound: if all files of the table, of one of its external paths, or of a folder behind
                a symbolic link are missing, because a disk may not be mounted.
            UnsupportedFeature: for a table with `data-evolution.enabled` that has lost a file.
            CorruptMetadata: if a manifest, or an index file with deletion vectors, is lost, too.
            PaimonStreamError: the errors of `truncate`.
        """
        dry_run = self._arguments.flag("dry_run", dry_run)
        self._arguments.function("progress", progress)
        return drop_lost_files(self._newest(), dry_run=dry_run, progress=progress)
