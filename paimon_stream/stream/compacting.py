"""Compacts the buckets that a stream's batches touch, behind each batch (compaction.md §12,
RC12.4).

    batch N is published ──► plan its buckets ──► units go to threads ──► wait, at most a share of the interval
                                                                             │
    batch N+1 ◄── publish the units that are done, as COMPACT of batch N ◄───┘    the others go on

Invariants: nothing here fails a batch or delays it beyond the bound. A compaction is published
between batches only, in the stream's thread, with its user and the id of its last published batch.
So the ids of a stream never go back, and a replayed batch finds itself published. Until a unit is
in a commit, its new files belong to nobody, and they are removed if it is given up. A compaction
changes no row, and the run goes on remembering the snapshot with the batch. So a compaction that is
lost is no lost batch.
"""

import atexit
import logging
import os
import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
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
from paimon_stream.runtime import Runtime, system
from paimon_stream.table.live import snapshot_files
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)

EXIT_SECONDS: Final = 10.0
"""How long a process that ends waits for threads that remove their unfinished files, in seconds."""
_MOST_THREADS: Final = 8
_LONGEST_REST: Final = 1024
_AS_LONG_AS_IT_TAKES: Final = 1e6
Count = Callable[[str, int], object]


class Settled(Protocol):
    """A batch that has ended, as the compaction behind it sees it."""

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
        """Whether a batch is known behind which a compaction can be published."""

    def watch(
        self, base: Base | None, partitions: Collection[bytes], below: int | None
    ) -> tuple[Base, WatchedFiles]:
        """See `Committer.watch`."""

    def publish(self, source: ChangeSource) -> Published | None:
        """Publishes these changes as COMPACT of the last published batch. None if nothing was
        published.
        """


@dataclass(frozen=True, slots=True)
class Compacted:
    """What became of the compaction behind a batch: how it was published, if it was, and the number
    of units that lost to others.
    """

    published: Published | None = None
    lost: int = 0


def compacts(table: Table) -> bool:
    """Whether a stream compacts this table: its options ask for that, and this release can. Rows
    that wait for their buckets are for a job.
    """
    return _is_asked_for(table) and not table.is_postponed and refusal(table) is None


def _is_asked_for(table: Table) -> bool:
    mode = table.options.value(opt.STREAM_COMPACT)
    wanted = mode == "minor" or (mode == "auto" and bool(table.schema.primary_keys))
    return wanted and not table.options.value(opt.WRITE_ONLY)


def shows_rows(table: Table) -> bool:
    """Whether rows of the table, or its changelog, are to be seen only after a compaction."""
    options = table.options
    hides = options.value(opt.MERGE_ENGINE) == FIRST_ROW or options.value(opt.DELETION_VECTORS)
    return hides or options.value(opt.CHANGELOG_PRODUCER) in ("lookup", "full-compaction")


@dataclass(slots=True, eq=False)
class _Pending:
    """A unit that is being rewritten, or is done and waits to be published. `fresh` until a batch
    has waited for it.
    """

    unit: Unit
    future: Future[Rewritten]
    rewriter: Rewriter
    full: bool
    fresh: bool = True


class StreamCompaction:
    """The compaction by one run of one stream. It is called after each batch."""

    def __init__(
        self,
        runtime: Runtime | None = None,
        pool: Executor | None = None,
        count: Count = lambda *_: None,
    ) -> None:
        """`pool` carries out the units. Without it, threads of the driver do. `count` is called
        with the name of a metric and what is added to it.
        """
        self._count = count
        self._runtime = runtime or system()
        self._clock = self._runtime.clock
        self._pool = pool or DaemonThreads(min(_MOST_THREADS, os.cpu_count() or 1))
        self._wanted: tuple[Table, bool] | None = None
        self._due: dict[Bucket, bool] = {}  # whether in full
        self._shallow: set[Bucket] = (
            set()
        )  # touched since the last batch whose turn for full compactions it was
        self._pending: list[_Pending] = []
        self._lock = threading.Lock()  # of `_pending`: another thread may close
        self._failed: Counter[Bucket] = Counter()
        self._rests: dict[Bucket, int] = {}  # until which call
        self._optimized: dict[
            Bucket, int
        ] = {}  # when all runs were merged for compaction.optimization-interval
        self._deep: set[Bucket] = set()
        self._calls = 0
        self._knows_earlier = False
        self._ended = self._clock.monotonic()
        _OPEN.add(self)

    def after_batch(self, settled: Settled) -> Compacted:
        """Does what the changes of a batch ask for, and publishes what is done. Never raises an
        `Exception`.
        """
        interval = self._clock.monotonic() - self._ended
        table, compacted = settled.table, Compacted()
        try:
            if not self._is_wanted(table):
                self.close()
                return compacted
            self._calls += 1
            shows = shows_rows(table)
            self._note(table, () if settled.changes is None else settled.changes.entries)
            if (
                shows and not self._knows_earlier and self._calls.bit_count() == 1
            ):  # if it fails, ever less often
                self._note_earlier(table)
            self._note_turn(settled.batch_id, table)
            if self._due and settled.has_published:
                self._plan(settled)
            if self._pending:
                self._wait(
                    _AS_LONG_AS_IT_TAKES
                    if shows
                    else table.options.value(opt.STREAM_COMPACT_SHARE) * interval
                )
                compacted = self._publish(settled)
                self._warn(settled)
        except Exception as why:  # noqa: BLE001  whatever fails here, the batch stands
            self._report(table, why)
        finally:
            self._ended = self._clock.monotonic()
        return compacted

    def follows(self, millis: int) -> None:
        """Another process has committed the batch before, at that time (epoch milliseconds)."""
        self._ended -= max(0, self._clock.now_millis() - millis) / 1000

    def close(self) -> list[Future[Rewritten]]:
        """Gives up what is pending. New files are removed, here or by the threads that write them.
        Returns the units that had begun. Any thread may call it.
        """
        with self._lock:
            pending, self._pending = self._pending, []
        self._due.clear()
        begun = [one for one in pending if not one.future.cancel()]
        for one in pending:
            one.rewriter.stop()
        for one in begun:
            one.future.add_done_callback(partial(_remove, one.rewriter))
        return [one.future for one in begun]

    def _is_wanted(self, table: Table) -> bool:
        """Whether the stream compacts this table. Why it does not is logged once."""
        if self._wanted is None or self._wanted[0] is not table:
            self._wanted = table, compacts(table)
            if _is_asked_for(table) and (why := refusal(table)) is not None:
                _LOG.warning("The stream does not compact: %s", why.message)
        return self._wanted[1]

    # -- plan
    # -----------------------------------------------------------------------------------------
    def _note(self, table: Table, entries: Iterable[ManifestEntry]) -> None:
        """The buckets of these files are due."""
        touched = dict.fromkeys(map(bucket_of, entries), False)
        self._due = touched | self._due
        if _batches_between_full(table):
            self._shallow |= touched.keys()

    def _note_turn(self, batch_id: int, table: Table) -> None:
        """If it is the turn of this batch, what was touched since the last turn is due for a full
        compaction.
        """
        every = _batches_between_full(table)
        if every and (batch_id + 1) % every == 0:
            self._due.update(dict.fromkeys(self._shallow, True))
            self._shallow.clear()

    def _note_earlier(self, table: Table) -> None:
        """The buckets with files that no compaction has processed are due: an earlier run may have
        ended before that. Reads the manifests of the newest snapshot, once in a run. Raises
        `CorruptMetadata`, `StorageError`.
        """
        files = snapshot_files(table, SnapshotStore(table.storage).latest())
        below = (
            top_level(table.options)
            if table.options.value(opt.CHANGELOG_PRODUCER) == "full-compaction"
            else 1
        )
        self._note(table, (one for one in files if one.bucket >= 0 and one.file.level < below))
        self._knows_earlier = True

    def _plan(self, settled: Settled) -> None:
        """Hands the units of the buckets that are due to the threads. A bucket waits while one of
        its units is pending, or while it rests after a failure.
        """
        table, busy = settled.table, {one.unit.bucket for one in self._pending}
        wanted = [
            one for one in self._due if one not in busy and self._rests.get(one, 0) <= self._calls
        ]
        if not wanted:
            return
        partitions = {partition for partition, _, _ in wanted}
        base, watched = settled.watch(None, partitions, _below(table))
        if base.snapshot is None:
            return
        if watched.too_many and partitions >= set(watched.partitions):
            self._wanted = table, False
            text = "%s: a batch touches partitions with more than %d files. The stream compacts no more; run a job."
            _LOG.warning(text, table.location, watched.MOST)
            return
        due = {one: self._due.pop(one) for one in wanted}
        try:
            self._ask(table, base.snapshot, due, watched)
        except Exception:
            for bucket, full in due.items():
                self._rest(bucket, full=full)
            raise

    def _ask(
        self, table: Table, snapshot: Snapshot, due: Mapping[Bucket, bool], watched: WatchedFiles
    ) -> None:
        """Begins what is to be done in these buckets, each in full or not."""
        asking: dict[tuple[bool, bool], list[ManifestEntry]] = defaultdict(list)
        limits = (
            keyed_limits(scan_of(table, snapshot, ()), self._runtime)
            if table.schema.primary_keys
            else None
        )
        for bucket, full in due.items():
            early, files = self._is_early(bucket, table), watched.of(*bucket[:2])
            if full or limits is None or asks(files, replace(limits, always_full=early)):
                asking[full, early] += files
        for (full, early), files in asking.items():
            self._begin(scan_of(table, snapshot, files), full=full, early=early)

    def _is_early(self, bucket: Bucket, table: Table) -> bool:
        """Whether `compaction.optimization-interval` has passed for the bucket, as far as this run
        knows.
        """
        if not table.options.is_set(opt.COMPACTION_INTERVAL):
            return False
        last = self._optimized.get(bucket)
        return last is None or self._clock.now_millis() - last >= table.options.value(
            opt.COMPACTION_INTERVAL
        )

    def _begin(self, scan: Scan, *, full: bool, early: bool) -> None:
        def wrong(why: PaimonStreamError, file: ManifestEntry) -> None:
            self._fail(scan.table, bucket_of(file), why, full=full)

        limits, units = plan_units(scan, self._runtime, wrong, full=full, early=early)
        ready = [one for one in units if one.newest_schema <= scan.schema.id]
        self._due.update((one.bucket, full) for one in units if one.newest_schema > scan.schema.id)
        if not ready:
            return
        rewriter = rewriter_of(scan, limits, ready, self._runtime, silent)
        begun = [
            _Pending(one, self._pool.submit(rewriter.rewrite, one), rewriter, full) for one in ready
        ]
        with self._lock:
            self._pending += begun
        if early:
            self._optimized.update((one.bucket, self._clock.now_millis()) for one in ready)

    # -- wait, publish
    # ----------------------------------------------------------------------------------
    def _wait(self, seconds: float) -> None:
        """Waits for new units, and for those of deep buckets. The others have had their time."""
        until = self._clock.monotonic() + seconds
        waited = [one for one in self._pending if one.fresh or one.unit.bucket in self._deep]
        while (running := [one.future for one in waited if not one.future.done()]) and (
            left := until - self._clock.monotonic()
        ) > 0:
            wait(running, left, FIRST_COMPLETED)
        for one in waited:
            one.fresh = False

    def _publish(self, settled: Settled) -> Compacted:
        """Publishes what is done. Units that do not fit any more are given up. Raises the errors of
        the commit.
        """
        table = settled.table
        with self._lock:
            done = [one for one in self._pending if one.future.done()]
            self._pending = [
                one for one in self._pending if one not in done
            ]  # others may be done by now
        made: list[tuple[_Pending, Rewritten]] = []
        for one in done:
            why = one.future.exception()
            if why is None:
                made.append((one, one.future.result()))
            else:
                self._fail(table, one.unit.bucket, why, full=one.full)
        if not made:
            return Compacted()
        units = [unit for _, unit in made]
        below = _below(table)
        uuid = self._runtime.ids.uuid()
        source = CompactionSource(
            table, None, units, uuid, lambda base, some: settled.watch(base, some, below)[1]
        )
        try:
            with source.vectors.owned():
                outcome = settled.publish(source)
        except PaimonStreamError as why:
            self._give_up(
                made, remove=not isinstance(why, CommitUnknown)
            )  # else a snapshot may name the files
            raise
        there = set() if outcome is None else landed(outcome, units)
        lost = [one for number, one in enumerate(made) if number not in there]
        self._count("compactionConflicts", len(lost))
        self._give_up(lost)
        if outcome is not None:
            self._count("compactions", 1)
            for number in there:
                self._failed.pop(units[number].unit.bucket, None)
            before = sum(len(units[number].unit.files) for number in there)
            after = sum(len(units[number].files) for number in there)
            text = "%s: snapshot %d is a compaction: files before %d, after %d."
            _LOG.info(text, table.location, outcome.snapshot.id, before, after)
        return Compacted(outcome, len(lost))

    def _give_up(self, lost: Sequence[tuple[_Pending, Rewritten]], *, remove: bool = True) -> None:
        """Removes the new files of units that are in no snapshot. Their buckets are planned
        again.
        """
        for one, rewritten in lost:
            one.rewriter.remove([rewritten] if remove else [])
            self._rest(one.unit.bucket, full=one.full)

    # -- failures
    # ---------------------------------------------------------------------------------------
    def _rest(self, bucket: Bucket, *, full: bool) -> None:
        """The bucket is due again after some batches, after more each time: an outage passes,
        others end their compaction, and what is damaged stays damaged.
        """
        self._failed[bucket] += 1
        self._rests[bucket] = self._calls + min(_LONGEST_REST, 2 ** self._failed[bucket])
        self._due[bucket] = full or self._due.get(bucket, False)

    def _fail(self, table: Table, bucket: Bucket, why: BaseException, *, full: bool) -> None:
        """A file that somebody else has compacted away may be gone. The next plan knows that."""
        self._rest(bucket, full=full)
        self._report(table, why, f" of {table.layout.bucket_folder(*bucket[:2])}")

    def _report(self, table: Table, why: BaseException, where: str = "") -> None:
        self._count("failedCompactions", 1)
        text = "%s: the compaction%s behind a batch failed (%s: %s). The batch stands. A later one tries again."
        _LOG.warning(text, table.location, where, type(why).__name__, why)

    def _warn(self, settled: Settled) -> None:
        """Warns of each bucket that stays too deep, once until it is not any more."""
        table = settled.table
        pending = {one.unit.bucket for one in self._pending if table.schema.primary_keys}
        _, watched = settled.watch(None, {bucket[0] for bucket in pending}, _below(table))
        most = stop_trigger(table.options)
        deep = {one: runs for one in pending if (runs := depth(watched.of(*one[:2]))) > most}
        for bucket in deep.keys() - self._deep:
            text = (
                "%s: %s has %d sorted runs, more than num-sorted-run.stop-trigger (%d), and its compaction goes "
                "on beside the stream. Readers merge them all. Raise %s, use more buckets, or leave the compaction to "
                "a job and set write-only = true."
            )
            folder, share = table.layout.bucket_folder(*bucket[:2]), opt.STREAM_COMPACT_SHARE.key
            _LOG.warning(text, table.location, folder, deep[bucket], most, share)
        self._deep = set(deep)


def _batches_between_full(table: Table) -> int:
    """After how many batches their buckets are compacted in full; 0 for never."""
    options = table.options
    if options.is_set(opt.FULL_COMPACTION_COMMITS):
        return options.value(opt.FULL_COMPACTION_COMMITS)
    return 1 if options.value(opt.CHANGELOG_PRODUCER) == "full-compaction" else 0


def _below(table: Table) -> int | None:
    """In a table without buckets only small files matter."""
    return Thresholds.of(table.options).small if table.is_bucket_unaware else None


def _remove(rewriter: Rewriter, ended: Future[Rewritten]) -> None:
    """Removes the files of a unit that was given up before it ended."""
    if not ended.cancelled() and ended.exception() is None:
        rewriter.remove([ended.result()])


_OPEN: Final[weakref.WeakSet[StreamCompaction]] = weakref.WeakSet()
os.register_at_fork(after_in_child=_OPEN.clear)  # the files are the parent's


@atexit.register
def _close() -> None:
    """The threads end with the process. They get some time to remove what they have not
    finished.
    """
    wait([future for one in list(_OPEN) for future in one.close()], EXIT_SECONDS)
