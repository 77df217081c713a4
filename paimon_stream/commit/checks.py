"""Checks a commit against the table: reads the facts that the conflict rules need, and no others.

Invariants: nothing is written. All rules of one attempt see one snapshot, its base. Only the
partitions that the commit touches are read. The live files are read only if they may conflict with
the commit (`Checker._is_compared`). A commit that asks to be `checked` may have messages that were
published before. The files of a fresh batch are new, and no other batch has their names.

A table that names a missing file cannot be read. From a certain age on, an orphan cleaner may
delete a file to which nothing refers yet. By default, that age is a day, for our cleaner and for
Java's. Our cleaner can be told to use an hour. So a commit checks that files which may be older
than half an hour exist (semantics.md R9.1). Only a slow writer has the cost of that check. The age
is the time since the file's `_CREATION_TIME`, which is the writer's wall clock in the writer's zone
(format.md §4.4). The creation time is compared with the committer's wall clock in the committer's
zone, as in Java. A time far in the future says nothing about the age. The writer may be in a zone
further east. So files with such a time are checked, too.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from paimon_stream import options as opt
from paimon_stream.commit import conflicts
from paimon_stream.commit.conflicts import CommitContext
from paimon_stream.commit.plan import Base, Changes, renumber, timed
from paimon_stream.commit.request import CommitRequest, Fixed
from paimon_stream.commit.table_cache import TableCache
from paimon_stream.commit.watched_files import KnownFiles
from paimon_stream.errors import HistoryUnknown
from paimon_stream.format.entries import FileKind, ManifestEntry
from paimon_stream.format.names import POSTPONE_BUCKET
from paimon_stream.format.snapshot_json import CommitKind, Snapshot
from paimon_stream.format.stats import RowOrder, row_order
from paimon_stream.reports import is_news
from paimon_stream.runtime import Clock
from paimon_stream.storage.base import Storage
from paimon_stream.storage.external import shown
from paimon_stream.table.layout import Layout
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.table import Table

LONGEST_UNCHECKED_MILLIS: Final = 30 * 60_000
"""Younger files need no check: the snapshot is published within another half hour, and our orphan
cleaner deletes no file that is younger than an hour.
"""


def missing_files(
    storage: Storage, layout: Layout, *changes: Changes, now: int | None = None
) -> list[str]:
    """The paths of added files that do not exist: data, changelog and index files, and their extra
    files. Makes one request to the storage per file. Files that a commit removes need not exist.

    Args:
        storage: where the files are.
        layout: returns the paths of files.
        changes: the changes that add the files.
        now: the local time, in milliseconds. Only files that may be older than
            `LONGEST_UNCHECKED_MILLIS` at this time are looked for. An index file has no time, and
            counts as old as the oldest data file of the same changes. None: all files are looked
            for.

    Raises:
        StorageError: the storage does not answer.
    """
    paths = chain.from_iterable(_added(layout, part, now) for part in changes)
    return [shown(path) for path in paths if not storage.exists(path)]


def adds_old_files(layout: Layout, clock: Clock, changes: Changes) -> bool:
    """Whether `missing_files` would look for any file at the present time."""
    return any(True for _ in _added(layout, changes, clock.local_millis()))


def _added(layout: Layout, changes: Changes, now: int | None = None) -> Iterator[str]:
    """The paths of the files that the changes add. If there is a time `now`, only the paths of
    files that may be old at that time.
    """
    files = [
        entry for entry in (*changes.entries, *changes.changelog) if entry.kind is FileKind.ADD
    ]
    chosen = [entry for entry in files if _may_be_old(entry, now)]
    for entry in chosen:
        for name in (entry.file.file_name, *entry.file.extra_files):
            yield layout.data_file(entry.partition, entry.bucket, name, entry.file.external_path)
    if chosen or not files:
        for change in changes.index:
            if change.kind is FileKind.ADD:
                yield layout.index_file(
                    change.entry.partition, change.entry.bucket, change.entry.file
                )


def _may_be_old(entry: ManifestEntry, now: int | None) -> bool:
    """Whether a file may be older than `LONGEST_UNCHECKED_MILLIS`. True if `now` or the creation
    time is None.
    """
    created = entry.file.creation_time
    return now is None or created is None or abs(now - created) > LONGEST_UNCHECKED_MILLIS


_LOG = logging.getLogger(__name__)

_DEEP: Final = (
    "%s: bucket %d has %d files of level 0, more than num-sorted-run.stop-trigger (%d), "
    "and every reader merges them all. Run a job that compacts, and set write-only = true."
)


class Checker:
    """Checks the commits of one committer, and numbers their rows."""

    def __init__(
        self, table: Table, cache: TableCache, clock: Clock, *, compacts: bool = False
    ) -> None:
        """`compacts` says whether the committer also compacts. If so, no warning is logged when a
        bucket has many sorted runs.
        """
        self._table = table
        self._clock = clock
        self._cache = cache
        options = table.options
        self._rules_off = options.value(opt.CONFLICT_DETECTION) == "none"
        self._discards_duplicates = options.value(opt.DISCARD_DUPLICATES)
        # Check 1 applies to tables that have deletion vectors, but neither buckets nor a primary
        # key.
        self._has_vectors = table.is_bucket_unaware and options.value(opt.DELETION_VECTORS)
        self._key_order = _key_order(table)
        self._most_runs: int | None = None
        """How many files of level 0 a bucket may have before a warning names it. None where nobody is
        warned.
        """
        somebody_compacts = compacts or options.value(opt.WRITE_ONLY)
        if table.schema.primary_keys and not somebody_compacts:
            self._most_runs = stop_trigger(options)
        self._last_safe: int | None = None
        """The id of the snapshot above which the strict mode looks at what others did; None without
        that mode. −1 stands for the latest until the first check.
        """
        if options.is_set(opt.STRICT_MODE):
            self._last_safe = options.value(opt.STRICT_MODE)
        self._schemas = SchemaStore(table.storage)
        self._known_schemas = {table.schema.id}
        """The ids of schemas that were seen to exist."""
        self._warned_of_append = False
        """Whether a warning has said that rules are left out."""
        self._warned_of_others = False
        """Whether a warning has said that rules are not left out."""

    def check(self, request: CommitRequest, changes: Changes, base: Base) -> Changes:
        """Runs the conflict rules in Java's order.

        Args:
            request: the commit.
            changes: the changes of the commit on this base.
            base: the snapshot on which the commit is built.

        Returns:
            The changes to publish, with their final sequence numbers, and with the unknown fields
            of removed files. Files that the table has already are left out if the table's options
            ask for that.

        Raises:
            CommitConflict: a rule is broken.
            HistoryUnknown: a snapshot that the strict mode needs has expired.
            FormatError, StorageError: the files of the table, or the keys of a file, cannot be
            read.
        """
        context = self._context(request, base)
        self._check_strict(context, base)
        self._check_files_exist(context, request, changes)
        self._check_schemas(context, changes.entries)
        discards = self._discards_duplicates and request.kind is CommitKind.APPEND
        is_compared = self._is_compared(request, changes)
        files = KnownFiles()
        if is_compared or discards:
            files = self._files_at(request, changes, base)
        if discards:
            changes = _without_duplicates(changes, files)
        if is_compared and self._has_vectors and not _looks_itself(request):
            self._check_vectors(context, changes, base, files)
        self._check_buckets(context, request, changes, base)
        if is_compared:
            conflicts.check_listed_once(context, files.twice)
        if not self._leaves_out_rules(request):
            conflicts.check_each_file_once(context, changes.entries)
        if is_compared:
            self._check_entries(context, files, changes.entries)
            changes = replace(changes, entries=files.with_unknown(changes.entries))
        if self._table.is_postponed and request.kind is not CommitKind.COMPACT:
            changes = self._timed(changes, base)
        return self._numbered(request, changes, files)

    def _context(self, request: CommitRequest, base: Base) -> CommitContext:
        """The description of this commit for the errors of the rules."""
        return CommitContext(
            location=self._table.location,
            user=request.user,
            identifier=request.identifier,
            partition_name=self._table.layout.partition,
            kind=request.kind,
            base=base.snapshot,
        )

    def _check_files_exist(
        self, context: CommitContext, request: CommitRequest, changes: Changes
    ) -> None:
        """Raises `DeletedFiles` if an added file does not exist. For a commit that asks to be
        checked, all added files are looked for. For any other commit, only old files are.
        """
        only_old_at = None
        if not request.checked:
            only_old_at = self._clock.local_millis()
        missing = missing_files(self._table.storage, self._table.layout, changes, now=only_old_at)
        conflicts.check_files_exist(context, missing)

    def _check_entries(
        self, context: CommitContext, files: KnownFiles, entries: Sequence[ManifestEntry]
    ) -> None:
        """Compares entries with the files of the table: each added file is new, each removed file
        is there, and the key ranges of a level stay disjoint. Raises `CommitConflict`.
        """
        conflicts.check_not_in_table(context, files, entries)
        expiration = self._table.options.get(opt.PARTITION_EXPIRATION_TIME.key)
        conflicts.check_removed_files_are_there(context, files.live, entries, expiration)
        if self._key_order is not None:
            conflicts.check_key_ranges(context, files.live, entries, self._key_order)

    def _timed(self, changes: Changes, base: Base) -> Changes:
        """The changes with new creation times for files that wait for a bucket. The function
        `timed` computes these times.
        """
        buckets = self._cache.buckets_at(base, changes.partitions)
        newest = {
            # For the files in bucket -2, this is the newest creation time.
            partition: buckets.max_sequence(partition, POSTPONE_BUCKET)
            for partition in changes.partitions
        }
        return timed(changes, newest)

    # -- which rules ------------------------------------------------------------------------------
    def _is_compared(self, request: CommitRequest, changes: Changes) -> bool:
        """Whether the changes are compared with the files of the table (semantics.md §2.2,
        R3.1).
        """
        if self._leaves_out_rules(request):
            return False
        adds_runs = self._key_order is not None and any(
            entry.kind is FileKind.ADD and entry.file.level > 0 for entry in changes.entries
        )
        asks = request.checked or request.kind in (CommitKind.OVERWRITE, CommitKind.COMPACT)
        discards = self._discards_duplicates and request.kind is CommitKind.APPEND
        return asks or changes.takes_away or adds_runs or discards

    def _leaves_out_rules(self, request: CommitRequest) -> bool:
        """Whether checks 3 to 6 are left out. `conflict-detection-mode = none` leaves them out for
        appends. A commit that removes files is always checked, because rows could be duplicated
        (semantics.md R3.4).
        """
        if not self._rules_off:
            return False
        if request.kind is CommitKind.APPEND:
            self._warn_of_append()
            return True
        if not self._warned_of_others:
            self._warned_of_others = True
            _LOG.warning(
                "%s: %s = none applies only to appends; this commit of kind %s is checked anyway.",
                self._table.location,
                opt.CONFLICT_DETECTION.key,
                request.kind.value,
            )
        return False

    def _warn_of_append(self) -> None:
        """Warns at the first append. A committer that only numbers rows warns of nothing."""
        if self._warned_of_append:
            return
        self._warned_of_append = True
        _LOG.warning(
            "%s: %s = none: appends are not checked for files that are already in the table or appear "
            "twice in one commit. Rows may be duplicated, and Java may fail on the table later.",
            self._table.location,
            opt.CONFLICT_DETECTION.key,
        )

    # -- the rules --------------------------------------------------------------------------------
    def _files_at(self, request: CommitRequest, changes: Changes, base: Base) -> KnownFiles:
        """The files of the touched partitions. They are read anew for each commit, and later
        attempts read only what others have committed since.

        With the conflict detection mode `row_incremental`, later commits also read only what others
        have committed since (R3.4). If a source of changes has just read the files of this base,
        they are not read again.
        """
        if _looks_itself(request):
            return KnownFiles.replaced_by(changes.entries)
        if request.kind is CommitKind.COMPACT and not changes.index:
            watched = self._cache.watched_at(base, changes.entries)
            if watched is not None:
                return watched
        touched = {change.entry.partition for change in changes.index}
        return self._cache.files_at(base, changes.partitions | touched, request)

    def _check_vectors(
        self, context: CommitContext, changes: Changes, base: Base, files: KnownFiles
    ) -> None:
        vectors = conflicts.vectors_of(self._cache.manifests.index_entries(base.index_manifest))
        conflicts.check_deletion_vectors(context, files.live, vectors, changes)

    def _check_schemas(self, context: CommitContext, entries: Iterable[ManifestEntry]) -> None:
        added = {entry.file.schema_id for entry in entries if entry.kind is FileKind.ADD}
        if not added <= self._known_schemas:
            self._known_schemas.update(self._schemas.ids())
        conflicts.check_schemas(context, self._known_schemas, entries)

    def _check_buckets(
        self, context: CommitContext, request: CommitRequest, changes: Changes, base: Base
    ) -> None:
        entries = changes.entries
        if request.kind is CommitKind.OVERWRITE or not _has_buckets(entries):
            return  # An overwrite may change the count. Without fixed buckets there is no count.
        buckets = self._cache.buckets_at(base, changes.partitions)
        totals = {partition: buckets.total_buckets(partition) for partition in changes.partitions}
        present = {partition: total for partition, total in totals.items() if total is not None}
        conflicts.check_bucket_counts(context, present, entries)

    def _numbered(self, request: CommitRequest, changes: Changes, files: KnownFiles) -> Changes:
        """The changes with their final sequence numbers. The numbers of an overwrite continue after
        those of the files that it does not remove.
        """
        entries = changes.entries
        if not request.renumber or not _has_buckets(entries):
            return changes
        if request.kind is not CommitKind.OVERWRITE:
            touched = {(entry.partition, entry.bucket) for entry in entries}
            in_use = {bucket: self._cache.buckets.max_sequence(*bucket) for bucket in touched}
            return renumber(changes, in_use)
        removed = {entry.identity for entry in entries if entry.kind is FileKind.DELETE}
        highest: dict[tuple[bytes, int], int] = {}
        for identity, file in files.live.items():
            if identity not in removed:
                bucket = (identity.partition, identity.bucket)
                highest[bucket] = max(file.max_sequence_number, highest.get(bucket, -1))
        return renumber(changes, highest)

    # -- strict mode ------------------------------------------------------------------------------
    def _check_strict(self, context: CommitContext, base: Base) -> None:
        """Checks what others did since the last safe snapshot, which the option
        `commit.strict-mode.last-safe-snapshot` names (semantics.md §2.9). −1 stands for the
        snapshot that is the latest at the first commit. After a check, the base becomes the last
        safe snapshot, unless the last safe one is later. Raises `StrictModeViolated`. Raises
        `HistoryUnknown` if a snapshot after the last safe one has expired.
        """
        if self._last_safe is None:
            return
        if self._last_safe < 0:
            self._last_safe = base.id
        window = self._cache.snapshots.window(self._last_safe, base.snapshot or base.id)
        if not window.complete:
            raise HistoryUnknown(
                f"{context}: snapshots since {self._last_safe}, the last safe one of option "
                f"{opt.STRICT_MODE.key!r}, have expired, so what others did cannot be checked. Nothing was "
                f"published. Set the option to a snapshot that exists, or to -1 for the latest ({base.id}).",
                **context.facts(),
            )
        conflicts.check_strict_mode(context, window.snapshots, self._last_safe, self._adds_files)
        self._last_safe = max(self._last_safe, base.id)

    def _adds_files(self, snapshot: Snapshot) -> bool:
        """Whether the delta of a snapshot has files in real buckets, which are numbered from 0 up.
        Postponed files are in no real bucket.
        """
        return any(
            meta.num_added_files + meta.num_deleted_files > 0
            and (meta.max_bucket is None or meta.max_bucket >= 0)
            for meta in self._cache.manifests.delta(snapshot)
        )

    # -- afterwards -------------------------------------------------------------------------------
    def warn_of_deep_buckets(self, changes: Changes) -> None:
        """Warns before readers become slow, if a bucket that our commit has touched has more files of
        level 0 than Java would allow (semantics.md §6.6). A process warns once of a table, and again
        when a bucket has twice as many. Nothing is read for this.
        """
        most = self._most_runs
        if most is None:
            return
        touched = {(entry.partition, entry.bucket) for entry in changes.entries}
        depths = ((self._cache.buckets.depth(*place), place[1]) for place in touched)
        depth, bucket = max(depths, default=(0, 0))
        if depth > most and is_news(self._table.location, _DEEP, depth):
            _LOG.warning(_DEEP, self._table.location, bucket, depth, most)


def _without_duplicates(changes: Changes, files: KnownFiles) -> Changes:
    """The changes without the files that the table has already (semantics.md §2.3 step 5)."""
    entries = tuple(entry for entry in changes.entries if entry.identity not in files.live)
    return replace(changes, entries=entries)


def _looks_itself(request: CommitRequest) -> bool:
    """Whether the commit's source of changes has just read the files and the vectors of the
    base.
    """
    return request.kind is CommitKind.OVERWRITE and not isinstance(request.source, Fixed | None)


def _has_buckets(entries: Iterable[ManifestEntry]) -> bool:
    return any(entry.total_buckets > 0 for entry in entries)


def _key_order(table: Table) -> RowOrder | None:
    """The order of the table's keys. None for a table without keys, and for a table whose levels
    are not sorted by key.
    """
    if not table.schema.primary_keys or table.options.value(opt.PK_CLUSTERING_OVERRIDE):
        return None
    return row_order([table.schema.field(name).type for name in table.schema.trimmed_primary_keys])


def stop_trigger(options: opt.Options) -> int:
    """The number of sorted runs above which Java's writers wait for a compaction. By default it is
    3 more than the number that starts a compaction.
    """
    if options.is_set(opt.STOP_TRIGGER):
        return options.value(opt.STOP_TRIGGER)
    return options.value(opt.COMPACTION_TRIGGER) + 3
