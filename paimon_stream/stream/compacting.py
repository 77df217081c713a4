"""Compacts the buckets that a stream writes to, behind each of its batches (compaction.md §12,
RC12.4).

    batch N is published ──► plan its buckets ──► units go to threads ──► wait, at most a share of the interval
                                                                             │
    batch N+1 ◄── publish the units that are done, as COMPACT of batch N ◄───┘    the others go on

Invariants: no compaction fails a batch or delays it beyond the bound. A compaction is published
between batches only, in the stream's thread. Its commit has the stream's user and the id of the
stream's last published batch. So the ids of a stream never go back, and a replayed batch finds
itself published. Until a unit is in a commit, its new files belong to nobody, and they are removed
if the unit is given up. A compaction changes no row, and the run continues to remember the snapshot
that has the batch. So if a compaction is lost, no batch is lost.
"""

import atexit
import logging
import os
import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from paimon_stream import options as opt
from paimon_stream.commit.checks import stop_trigger
from paimon_stream.commit.overwrite import top_level
from paimon_stream.commit.plan import Base, Changes
from paimon_stream.commit.request import ChangeSource, Published
from paimon_stream.commit.watched_files import WatchedFiles
from paimon_stream.compact.keyed_plan import asks
from paimon_stream.compact.planning import (
    Thresholds,
    keyed_limits,
    plan_units,
    refusal,
    rewriter_of,
    why_left_as_is,
)
from paimon_stream.compact.publish import CompactionSource, landed
from paimon_stream.compact.rewrite import DaemonThreads, Rewriter, Rewritten
from paimon_stream.compact.units import Bucket, Unit, bucket_of, depth
from paimon_stream.errors import CommitUnknown, PaimonStreamError
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.merge.spec import FIRST_ROW
from paimon_stream.read.scan import Scan, scan_of
from paimon_stream.reports import silent
from paimon_stream.runtime import Clock, Runtime, system
from paimon_stream.table.live import snapshot_files
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)

EXIT_SECONDS: Final = 10.0
"""How long a process that ends waits for threads that remove their unfinished files, in seconds."""
_MOST_THREADS: Final = 8
_LONGEST_REST: Final = 1024
"""How many batches a bucket rests at most after a failure."""
_AS_LONG_AS_IT_TAKES: Final = 1e6
"""A wait that ends when all units are done, in seconds."""
Count = Callable[[str, int], object]


class Settled(Protocol):
    """A batch that has ended, as the compaction behind it sees it: a `SettledBatch` (`steps.py`),
    which publishes the compaction.
    """

    @property
    def batch_id(self) -> int:
        """The id of the batch."""

    @property
    def changes(self) -> Changes | None:
        """The changes of the batch; None if this run did not publish any."""

    @property
    def table(self) -> Table:
        """The table as of the batch."""

    @property
    def has_published(self) -> bool:
        """Whether the stream has a published batch behind which a compaction can be published."""

    def watch(
        self, base: Base | None, partitions: Collection[bytes], below: int | None
    ) -> tuple[Base, WatchedFiles]:
        """See `Committer.watch`."""

    def publish_compaction(self, source: ChangeSource) -> Published | None:
        """Publishes these changes as COMPACT of the last published batch. Returns None if nothing
        was published.
        """


@dataclass(frozen=True, slots=True)
class Compacted:
    """What became of the compaction behind a batch.

    Attributes:
        published: the published compaction; None if nothing was published.
        lost: the number of units that did not fit what other writers had committed.
    """

    published: Published | None = None
    lost: int = 0


def compacts(table: Table) -> bool:
    """Whether a stream compacts the table. It does if the table's options ask for it and this
    release can compact the table. A table whose rows wait for their buckets is left to a job.
    """
    return _is_asked_for(table) and not table.is_postponed and refusal(table) is None


def _is_asked_for(table: Table) -> bool:
    mode = table.options.value(opt.STREAM_COMPACT)
    if table.options.value(opt.WRITE_ONLY):
        return False
    return mode == "minor" or (mode == "auto" and bool(table.schema.primary_keys))


def shows_rows(table: Table) -> bool:
    """Whether readers see rows of the table, or its changelog, only after a compaction."""
    options = table.options
    if options.value(opt.MERGE_ENGINE) == FIRST_ROW or options.value(opt.DELETION_VECTORS):
        return True
    return options.value(opt.CHANGELOG_PRODUCER) in ("lookup", "full-compaction")


@dataclass(frozen=True, slots=True)
class _Decision:
    """Whether the stream compacts a table.

    Attributes:
        table: the table as it was loaded. If the table is loaded again, `compacts` is decided
            again.
        compacts: whether the stream compacts it.
    """

    table: Table
    compacts: bool


@dataclass(frozen=True, slots=True)
class _Mode:
    """How a bucket is compacted.

    Attributes:
        full: whether it is a full compaction.
        early: whether `compaction.optimization-interval` has passed.
    """

    full: bool
    early: bool


@dataclass(slots=True, eq=False)
class _Task:
    """A unit that is being rewritten, or is done and waits to be published.

    Attributes:
        unit: the files that are replaced.
        future: the result of the rewriting.
        rewriter: rewrites the files of the unit. If the unit is given up, it removes the new files.
        full: whether the unit belongs to a full compaction.
        fresh: True until a batch has waited for the unit.
    """

    unit: Unit
    future: Future[Rewritten]
    rewriter: Rewriter
    full: bool
    fresh: bool = True


class _DueBuckets:
    """The buckets that are to be compacted, and when. Time is counted in calls: the compaction is
    called once after each batch.
    """

    def __init__(self) -> None:
        self.calls = 0
        self._full: dict[Bucket, bool] = {}  # the due buckets, and whether each is due in full
        self._touched_since_turn: set[Bucket] = set()
        self._failures: Counter[Bucket] = Counter()
        self._rest_ends: dict[Bucket, int] = {}  # the first call for which a bucket is ready again

    @property
    def is_empty(self) -> bool:
        """Whether no bucket is waiting to be compacted."""
        return not self._full

    def ready(self, busy: Collection[Bucket]) -> list[Bucket]:
        """The buckets that are to be compacted now. Busy buckets, and those that rest after a
        failure, are left out.
        """
        return [
            bucket
            for bucket in self._full
            if bucket not in busy and self._rest_ends.get(bucket, 0) <= self.calls
        ]

    def take(self, buckets: Iterable[Bucket]) -> dict[Bucket, bool]:
        """Takes buckets out, because their compaction begins. Returns for each bucket whether it
        was due for a full compaction.
        """
        return {bucket: self._full.pop(bucket) for bucket in buckets}

    def add(self, bucket: Bucket, *, full: bool) -> None:
        """Notes that the bucket is to be compacted. `full` says whether by a full compaction."""
        self._full[bucket] = full

    def add_touched(self, buckets: Iterable[Bucket], batches_between_full: int) -> None:
        """Notes that the buckets are to be compacted, because they have new files. A bucket that
        was due for a full compaction stays so.
        """
        touched = dict.fromkeys(buckets, False)
        self._full = touched | self._full
        if batches_between_full:
            self._touched_since_turn |= touched.keys()

    def add_turn(self, batch_id: int, batches_between_full: int) -> None:
        """If a full compaction comes behind this batch, notes it for all buckets that got files
        since the last full compaction.
        """
        if batches_between_full and (batch_id + 1) % batches_between_full == 0:
            self._full.update(dict.fromkeys(self._touched_since_turn, True))
            self._touched_since_turn.clear()

    def rest(self, bucket: Bucket, *, full: bool) -> None:
        """Lets the bucket be compacted again after some batches. Each failure doubles the number of
        these batches. The failure may pass, as an outage or another writer's compaction does, or
        may stay, as damage does. `full` says whether the failed compaction was a full one. If so,
        the next one is full, too.
        """
        self._failures[bucket] += 1
        self._rest_ends[bucket] = self.calls + min(_LONGEST_REST, 2 ** self._failures[bucket])
        self._full[bucket] = full or self._full.get(bucket, False)

    def forget_failures(self, bucket: Bucket) -> None:
        """Lets the next failure of the bucket count as its first one."""
        self._failures.pop(bucket, None)

    def clear(self) -> None:
        """Notes that no bucket is to be compacted any more."""
        self._full.clear()


class _PendingTasks:
    """The units that threads rewrite, and those that are done and wait to be published. Units
    begin, and are taken out, in the stream's thread. Any thread may call `close`.
    """

    def __init__(self, pool: Executor, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._tasks: list[_Task] = []
        self._lock = threading.Lock()  # of `_tasks`

    @property
    def is_empty(self) -> bool:
        """Whether no unit is pending."""
        return not self._tasks

    @property
    def buckets(self) -> set[Bucket]:
        """The buckets of the units that are pending."""
        return {task.unit.bucket for task in self._tasks}

    def begin(self, units: Iterable[Unit], rewriter: Rewriter, *, full: bool) -> None:
        """Hands units to the threads. `full` says whether they belong to a full compaction."""
        tasks = [
            _Task(unit, self._pool.submit(rewriter.rewrite, unit), rewriter, full) for unit in units
        ]
        with self._lock:
            self._tasks += tasks

    def wait(self, seconds: float, always: Collection[Bucket]) -> None:
        """Waits for new units, and for all units of the buckets `always`. For the other units, an
        earlier batch has already waited.

        Args:
            seconds: the longest wait.
            always: the buckets whose units are waited for each time.
        """
        deadline = self._clock.monotonic() + seconds
        awaited = [task for task in self._tasks if task.fresh or task.unit.bucket in always]
        for task in awaited:
            seconds_left = deadline - self._clock.monotonic()
            if seconds_left <= 0:
                break
            wait([task.future], seconds_left)
        for task in awaited:
            task.fresh = False

    def take_done(self) -> list[_Task]:
        """Takes out the units that are done, or have failed."""
        done: list[_Task] = []
        running: list[_Task] = []
        with self._lock:
            for task in self._tasks:
                # Each future is asked only once, because the unit may end between two questions.
                if task.future.done():
                    done.append(task)
                else:
                    running.append(task)
            self._tasks = running
        return done

    def close(self) -> list[Future[Rewritten]]:
        """Gives up all units. New files are removed, here or by the threads that write them.
        Returns the futures of the units that had begun.
        """
        with self._lock:
            given_up = self._tasks
            self._tasks = []
        begun = [task for task in given_up if not task.future.cancel()]
        for task in given_up:
            task.rewriter.stop()
        for task in begun:
            task.future.add_done_callback(partial(_remove_files, task.rewriter))
        return [task.future for task in begun]


class StreamCompaction:
    """The compaction by one run of one stream. It is called after each batch."""

    def __init__(
        self,
        runtime: Runtime | None = None,
        pool: Executor | None = None,
        count: Count = lambda *_: None,
    ) -> None:
        """Prepares the compaction, and reads nothing.

        Args:
            runtime: the clock and the ids. None: those of the system.
            pool: the threads that rewrite the units. None: threads of the driver.
            count: is called with the name of a metric and the number that is added to the metric.
        """
        self._count = count
        self._runtime = runtime or system()
        self._clock = self._runtime.clock
        self._decision: _Decision | None = None
        """The decision at the last batch; None before the first."""
        self._due = _DueBuckets()
        threads = pool or DaemonThreads(min(_MOST_THREADS, os.cpu_count() or 1))
        self._pending = _PendingTasks(threads, self._clock)
        self._optimized_millis: dict[Bucket, int] = {}
        """When all runs of a bucket were merged for compaction.optimization-interval, in epoch
        milliseconds.
        """
        self._deep: set[Bucket] = set()
        """The buckets that were too deep after the last batch. Each has been warned about."""
        self._left_as_is: set[Bucket] = set()
        """The buckets with files that this run leaves to other releases (`_note_left_as_is`)."""
        self._knows_earlier = False
        """Whether this run has read which buckets an earlier run left to compact
        (`_note_earlier`).
        """
        self._last_end = self._clock.monotonic()
        """When the compaction behind the last batch ended, in seconds."""
        _OPEN.add(self)

    def after_batch(self, settled: Settled) -> Compacted:
        """Compacts what the changes of a batch make necessary, and publishes the units that are
        done. Never raises an `Exception`.
        """
        interval = self._clock.monotonic() - self._last_end
        table = settled.table
        compacted = Compacted()
        try:
            if not self._is_wanted(table):
                self.close()
                return compacted
            self._note_batch(settled)
            if not self._due.is_empty and settled.has_published:
                self._plan(settled)
            if not self._pending.is_empty:
                self._pending.wait(_longest_wait(table, interval), self._deep)
                compacted = self._publish_done_units(settled)
                self._warn(settled)
        except Exception as error:  # noqa: BLE001  whatever fails here, the batch stands
            self._report(table, error)
        finally:
            self._last_end = self._clock.monotonic()
        return compacted

    def follows(self, millis: int) -> None:
        """Records that another process committed the previous batch at `millis` (epoch
        milliseconds).
        """
        self._last_end -= max(0, self._clock.now_millis() - millis) / 1000

    def close(self) -> list[Future[Rewritten]]:
        """Gives up the pending units. Their new files are removed, here or by the threads that
        write them. Returns the futures of the units that had begun. Any thread may call this.
        """
        self._due.clear()
        return self._pending.close()

    def _is_wanted(self, table: Table) -> bool:
        """Whether the stream compacts the table. If it does not, logs the reason once."""
        if self._decision is not None and self._decision.table is table:
            return self._decision.compacts
        self._decision = _Decision(table, compacts(table))
        if _is_asked_for(table):
            reason = refusal(table)
            if reason is not None:
                _LOG.warning("The stream does not compact: %s", reason.message)
        return self._decision.compacts

    # -- plan -------------------------------------------------------------------------------------
    def _note_batch(self, settled: Settled) -> None:
        """Notes the buckets that are to be compacted because a batch has touched them, and those
        whose full compaction comes behind it. Raises the errors of `_note_earlier`.
        """
        table = settled.table
        self._due.calls += 1
        must_compact = shows_rows(table)
        if settled.changes is None:
            self._note_files(table, ())
        else:
            self._note_files(table, settled.changes.entries)
        if must_compact and not self._knows_earlier:
            # After a failure, the manifests are read again at the calls 2, 4, 8 and so on.
            is_power_of_two = self._due.calls.bit_count() == 1
            if is_power_of_two:
                self._note_earlier(table)
        self._due.add_turn(settled.batch_id, _batches_between_full(table))

    def _note_files(self, table: Table, entries: Iterable[ManifestEntry]) -> None:
        """Notes that the buckets of the files in these entries are to be compacted."""
        self._due.add_touched(map(bucket_of, entries), _batches_between_full(table))

    def _note_earlier(self, table: Table) -> None:
        """Notes that the buckets with files that no compaction has processed are to be compacted.
        An earlier run may have ended before it compacted them. Reads the manifests of the newest
        snapshot, once in a run. Raises `CorruptMetadata`, `StorageError`.
        """
        entries = snapshot_files(table, SnapshotStore(table.storage).latest())
        processed_level = 1
        if table.options.value(opt.CHANGELOG_PRODUCER) == "full-compaction":
            processed_level = top_level(table.options)
        unprocessed = (
            entry for entry in entries if entry.bucket >= 0 and entry.file.level < processed_level
        )
        self._note_files(table, unprocessed)
        self._knows_earlier = True

    def _plan(self, settled: Settled) -> None:
        """Plans the buckets that are to be compacted, and hands their units to the threads. A
        bucket waits while one of its units is pending, and while it rests after a failure.
        """
        table = settled.table
        ready = self._due.ready(self._pending.buckets)
        if not ready:
            return
        partitions = {partition for partition, _, _ in ready}
        base, watched = settled.watch(None, partitions, _watched_below(table))
        if base.snapshot is None:
            return
        if watched.too_many and partitions >= set(watched.partitions):
            self._decision = _Decision(table, compacts=False)
            _LOG.warning(
                "%s: a batch touches partitions with more than %d files. The stream no longer "
                "compacts; run a job that does.",
                table.location,
                watched.MOST,
            )
            return
        due = self._due.take(ready)
        try:
            self._begin_due(table, base.snapshot, due, watched)
        except Exception:
            for bucket, full in due.items():
                self._due.rest(bucket, full=full)
            raise

    def _begin_due(
        self, table: Table, snapshot: Snapshot, due: Mapping[Bucket, bool], watched: WatchedFiles
    ) -> None:
        """Begins the compaction of the `due` buckets. The value of each bucket says whether it is
        compacted in full. A bucket in which a minor compaction has nothing to do is left out.
        """
        files_by_mode: dict[_Mode, list[ManifestEntry]] = defaultdict(list)
        limits = None
        if table.schema.primary_keys:
            limits = keyed_limits(scan_of(table, snapshot, ()), self._runtime)
        for bucket, full in due.items():
            mode = _Mode(full, early=self._is_early(bucket, table))
            partition, number, _ = bucket
            files = watched.of(partition, number)
            if full or limits is None or asks(files, replace(limits, always_full=mode.early)):
                files_by_mode[mode] += files
        for mode, mode_files in files_by_mode.items():
            self._begin(scan_of(table, snapshot, mode_files), mode)

    def _is_early(self, bucket: Bucket, table: Table) -> bool:
        """Whether `compaction.optimization-interval` has passed for the bucket, as far as this run
        knows.
        """
        if not table.options.is_set(opt.COMPACTION_INTERVAL):
            return False
        last_millis = self._optimized_millis.get(bucket)
        if last_millis is None:
            return True
        passed_millis = self._clock.now_millis() - last_millis
        return passed_millis >= table.options.value(opt.COMPACTION_INTERVAL)

    def _begin(self, scan: Scan, mode: _Mode) -> None:
        """Plans the units of the files in a scan, and hands them to the threads."""

        def skip_bucket(error: PaimonStreamError, entry: ManifestEntry) -> None:
            self._fail(scan.table, bucket_of(entry), error, full=mode.full)

        planned = plan_units(scan, self._runtime, skip_bucket, full=mode.full, early=mode.early)
        self._note_left_as_is(scan.table, planned.left_as_is)
        ready: list[Unit] = []
        for unit in planned.units:
            if unit.newest_schema <= scan.schema.id:
                ready.append(unit)
            else:  # the stream has not loaded the schema of these files yet
                self._due.add(unit.bucket, full=mode.full)
        if not ready:
            return
        rewriter = rewriter_of(scan, planned.limits, ready, self._runtime, silent)
        self._pending.begin(ready, rewriter, full=mode.full)
        if mode.early:
            for unit in ready:
                self._optimized_millis[unit.bucket] = self._clock.now_millis()

    def _note_left_as_is(self, table: Table, units: Iterable[Unit]) -> None:
        """Counts each bucket whose files are left as they are because they have unknown fields. A
        bucket is counted once in a run. Only the first bucket is logged, because a writer that adds
        such fields adds them to all files.
        """
        for unit in units:
            if unit.bucket in self._left_as_is:
                continue
            if not self._left_as_is:
                partition, number, _ = unit.bucket
                _LOG.warning(
                    "%s: the stream leaves files of %s as they are. %s "
                    "The metric bucketsLeftAsIs counts such buckets.",
                    table.location,
                    table.layout.bucket_folder(partition, number),
                    why_left_as_is(unit),
                )
            self._left_as_is.add(unit.bucket)
            self._count("bucketsLeftAsIs", 1)

    # -- publish ----------------------------------------------------------------------------------
    def _publish_done_units(self, settled: Settled) -> Compacted:
        """Publishes the units that are done. Those that no longer fit are given up. Raises the
        errors of the commit.
        """
        table = settled.table
        tasks = self._take_rewritten(table)
        if not tasks:
            return Compacted()
        results = [task.future.result() for task in tasks]
        below = _watched_below(table)

        def watch(base: Base, partitions: Collection[bytes]) -> WatchedFiles:
            _, watched = settled.watch(base, partitions, below)
            return watched

        source = CompactionSource(table, None, results, self._runtime.ids.uuid(), watch)
        try:
            with source.vectors.owned():
                outcome = settled.publish_compaction(source)
        except CommitUnknown:
            # A snapshot may name the new files, so they are not removed.
            self._give_up(tasks, remove=False)
            raise
        except PaimonStreamError:
            self._give_up(tasks)
            raise
        landed_positions: set[int] = set()
        if outcome is not None:
            landed_positions = landed(outcome, results)
        lost = [task for position, task in enumerate(tasks) if position not in landed_positions]
        self._count("compactionConflicts", len(lost))
        self._give_up(lost, remove=outcome is None or not outcome.is_open)
        if outcome is not None:
            landed_results = [results[position] for position in landed_positions]
            self._note_published(table, outcome, landed_results)
        return Compacted(outcome, len(lost))

    def _take_rewritten(self, table: Table) -> list[_Task]:
        """Takes out the units that are done. Returns those that have not failed."""
        rewritten: list[_Task] = []
        for task in self._pending.take_done():
            error = task.future.exception()
            if error is None:
                rewritten.append(task)
            else:
                self._fail(table, task.unit.bucket, error, full=task.full)
        return rewritten

    def _note_published(
        self, table: Table, outcome: Published, results: Sequence[Rewritten]
    ) -> None:
        """Counts and logs a published compaction. `results` are the units that it consists of."""
        self._count("compactions", 1)
        for result in results:
            self._due.forget_failures(result.unit.bucket)
        _LOG.info(
            "%s: snapshot %d is a compaction: files before %d, after %d.",
            table.location,
            outcome.snapshot.id,
            sum(len(result.unit.files) for result in results),
            sum(len(result.files) for result in results),
        )

    def _give_up(self, tasks: Iterable[_Task], *, remove: bool = True) -> None:
        """Plans the buckets of units that were not published again. `remove` says whether their new
        files are removed. They stay if a snapshot or tag may name them.
        """
        for task in tasks:
            if remove:
                task.rewriter.remove([task.future.result()])
            self._due.rest(task.unit.bucket, full=task.full)

    # -- failures ---------------------------------------------------------------------------------
    def _fail(self, table: Table, bucket: Bucket, error: BaseException, *, full: bool) -> None:
        """Lets a bucket rest after one of its units has failed. Another writer may have compacted
        one of the unit's files away. The next plan reads the files anew, so it fits again.
        """
        self._due.rest(bucket, full=full)
        partition, number, _ = bucket
        folder = table.layout.bucket_folder(partition, number)
        self._count("failedCompactions", 1)
        _LOG.warning(
            "%s: the compaction of %s behind a batch failed (%s: %s). "
            "The batch stands. A later one tries again.",
            table.location,
            folder,
            type(error).__name__,
            error,
        )

    def _report(self, table: Table, error: Exception) -> None:
        """Counts and logs an error that ends the compaction behind this batch."""
        self._count("failedCompactions", 1)
        _LOG.warning(
            "%s: the compaction behind a batch failed (%s: %s). "
            "The batch stands. A later one tries again.",
            table.location,
            type(error).__name__,
            error,
        )

    def _warn(self, settled: Settled) -> None:
        """Warns of each bucket that has too many sorted runs. While a bucket stays so, the warning
        is not repeated.
        """
        table = settled.table
        pending: set[Bucket] = set()
        if table.schema.primary_keys:
            pending = self._pending.buckets
        partitions = {partition for partition, _, _ in pending}
        _, watched = settled.watch(None, partitions, _watched_below(table))
        most_runs = stop_trigger(table.options)
        deep: dict[Bucket, int] = {}
        for bucket in pending:
            partition, number, _ = bucket
            runs = depth(watched.of(partition, number))
            if runs > most_runs:
                deep[bucket] = runs
        for bucket in deep.keys() - self._deep:
            partition, number, _ = bucket
            _LOG.warning(
                "%s: %s has %d sorted runs, more than num-sorted-run.stop-trigger (%d), and its "
                "compaction goes on beside the stream. Readers merge them all. Raise %s, use more "
                "buckets, or leave the compaction to a job and set write-only = true.",
                table.location,
                table.layout.bucket_folder(partition, number),
                deep[bucket],
                most_runs,
                opt.STREAM_COMPACT_SHARE.key,
            )
        self._deep = set(deep)


def _longest_wait(table: Table, interval: float) -> float:
    """How long a batch waits for its units, in seconds. `interval` is the time since the previous
    batch, in seconds.
    """
    if shows_rows(table):
        return _AS_LONG_AS_IT_TAKES
    return table.options.value(opt.STREAM_COMPACT_SHARE) * interval


def _batches_between_full(table: Table) -> int:
    """The number of batches after which the touched buckets are compacted in full; 0 for never."""
    options = table.options
    if options.is_set(opt.FULL_COMPACTION_COMMITS):
        return options.value(opt.FULL_COMPACTION_COMMITS)
    if options.value(opt.CHANGELOG_PRODUCER) == "full-compaction":
        return 1
    return 0


def _watched_below(table: Table) -> int | None:
    """The size in bytes below which files are watched; None for all files. In a table without
    buckets only small files matter.
    """
    if not table.is_bucket_unaware:
        return None
    return Thresholds.of(table.options).small


def _remove_files(rewriter: Rewriter, future: Future[Rewritten]) -> None:
    """Removes the files of a unit that was given up while a thread was rewriting it."""
    if not future.cancelled() and future.exception() is None:
        rewriter.remove([future.result()])


_OPEN: Final[weakref.WeakSet[StreamCompaction]] = weakref.WeakSet()
os.register_at_fork(after_in_child=_OPEN.clear)  # the files are the parent's


@atexit.register
def _close() -> None:
    """Closes the compaction at the end of the process. The threads get some time to remove the
    files that they have not finished.
    """
    futures = [future for compaction in list(_OPEN) for future in compaction.close()]
    wait(futures, EXIT_SECONDS)
