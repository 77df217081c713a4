"""Compacts a table once: plans on the newest snapshot, rewrites several units at a time, and
publishes them (compaction.md §12, RC12.1).

    plan ──► rewrite ──► publish ──► units that others have changed: plan again, three times at most

Invariants: no row changes. Before a unit is published, no snapshot names its new files. The new
files are removed if the unit is not published, except after a `CommitUnknown`. Published units
stay, whatever happens after that. So if a compaction was interrupted, the next run continues where
it ended.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple

import pyarrow as pa

from paimon_stream import errors
from paimon_stream.commit.committer import Committer
from paimon_stream.commit.overwrite import static_spec
from paimon_stream.commit.table_commit import batch_user
from paimon_stream.compact.keyed_plan import KeyedThresholds
from paimon_stream.compact.planning import (
    Thresholds,
    check_compactable,
    plan_units,
    rewriter_of,
    why_left_as_is,
)
from paimon_stream.compact.publish import CompactedBucket, CompactionSource, CompactReport
from paimon_stream.compact.remote import Elsewhere, RemoteRewriter, UnitTask
from paimon_stream.compact.rewrite import Rewriter, Rewritten
from paimon_stream.compact.units import Bucket, Unit, WaitingUnit, size_of
from paimon_stream.format.entries import FileIdentity, ManifestEntry
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.options import POSTPONE_BUCKETS, TARGET_FILE_SIZE, compaction_options
from paimon_stream.read.scan import Scan, plan_scan
from paimon_stream.reports import Progress, silent
from paimon_stream.runtime import Runtime, system
from paimon_stream.table.layout import Layout
from paimon_stream.table.live import snapshot_files
from paimon_stream.table.partition_value import partition_by_column
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table
from paimon_stream.write.task import WriteSpec

_PLANS: Final = 4
"""The most plans of a run. Units that others have changed are planned again, and so are the buckets
to which waiting rows went.
"""
_PART_SECONDS: Final = 600
"""What was rewritten is published at least this often. No cleaner takes such young files for
orphans, and little is lost if the process is killed.
"""
_MOST_THREADS: Final = 8
_DECAY_MILLIS: Final = 1000
"""How long jemalloc keeps memory that was given back, as Arrow sets it."""
_POOL: Final = "ARROW_DEFAULT_MEMORY_POOL"
OF_CALLS: Final = (*compaction_options(), TARGET_FILE_SIZE, POSTPONE_BUCKETS)
"""The options that one call may set."""

_DAMAGED: Final = (
    errors.FormatError,
    errors.InvalidData,
    errors.UnsupportedFeature,
    errors.WriteInterrupted,
)
_SKIPPED: Final = "Others have changed its files each time. Compact again later."


def compact(
    load: Callable[[], Table],
    *,
    full: bool = False,
    partitions: Sequence[Mapping[str, Any]] | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    runtime: Runtime | None = None,
    elsewhere: Elsewhere | None = None,
) -> CompactReport:
    """Compacts the buckets of a table that need it.

    Args:
        load: a function that loads the table as it is at that moment, with the options of this
            compaction.
        full: whether this is a full compaction.
        partitions: only partitions that match one of these specs are compacted. None for all.
        dry_run: whether nothing is written. If so, the report says what a real run is expected to
            do.
        progress: shows how many bytes are done.
        runtime: the clock and the ids. None for the system's clock and ids.
        elsewhere: other processes that rewrite units. If it is None, or if they accept no unit,
            threads of this process rewrite the units.

    Returns:
        A report of what was done.

    Raises:
        UnsupportedFeature: this release does not compact such a table.
        IncompatibleSchema, InvalidData: the table cannot have a partition of `partitions`.
        InvalidOption: an option of the table cannot be used.
        TableRolledBack: somebody has rolled the table back in the meantime.
        PaimonStreamError: the errors of reading, writing and committing. If files are damaged, the
            first such error is raised after all other units have been published.
    """
    call = _CompactionCall(
        load=load,
        full=full,
        partitions=partitions,
        runtime=runtime or system(),
        progress=progress or silent,
        elsewhere=elsewhere,
    )
    with _little_memory():
        if dry_run:
            return call.expected(call.plan(None, distributes=True))
        plan, changed = call.carry_out_all()
    if call.done.failed:
        raise call.done.failed[0]
    return call.report(plan, changed)


@contextmanager
def _little_memory() -> Iterator[None]:
    """Lets Arrow allocate from jemalloc during a run, unless the process has chosen a pool.
    mimalloc, which is Arrow's default, keeps about 100 MiB more of the memory that was freed
    (docs/compaction.md). jemalloc keeps none during the run.
    """
    pool_before = pa.default_memory_pool()
    has_jemalloc = "jemalloc" in pa.supported_memory_backends()
    if has_jemalloc:
        pa.jemalloc_set_decay_ms(0)
        if pool_before.backend_name == "mimalloc" and _POOL not in os.environ:
            pa.set_memory_pool(pa.jemalloc_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(pool_before)
        if has_jemalloc:
            pa.jemalloc_set_decay_ms(_DECAY_MILLIS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CompactionPlan:
    """The units that a run works on. They are planned on one snapshot of the table.

    Attributes:
        scan: the live files.
        limits: the thresholds that decide which files are rewritten.
        units: the units that are rewritten.
        stale: units that are not rewritten now. Some of their files have a newer schema than the
            one that was loaded. Rows of such files would lose the new columns.
        distributes: whether the plan gives buckets to rows that wait for one. Those buckets are
            planned afterwards.
    """

    scan: Scan
    limits: Thresholds | KeyedThresholds
    units: list[Unit]
    stale: list[Unit]
    distributes: bool


@dataclass(slots=True)
class _CompactedSoFar:
    """What one call of `compact` has done so far, over all its plans.

    Attributes:
        user: the commit user of the snapshots. It is empty before the first plan with units.
        snapshot: the last snapshot that the call has published.
        rewritten: what was published.
        counted: a report of the published units, by bucket.
        conflicts: how many times a unit was not published because others had changed it.
        failed: the errors of damaged files, in the order in which they were found.
        left_as_is: the units that are not rewritten because of unknown fields, by bucket.
    """

    user: str = ""
    snapshot: Snapshot | None = None
    rewritten: list[Rewritten] = field(default_factory=list)
    counted: list[CompactedBucket] = field(default_factory=list)
    conflicts: int = 0
    failed: list[errors.PaimonStreamError] = field(default_factory=list)
    left_as_is: dict[Bucket, Unit] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CompactionCall:
    """One call of `compact`.

    Attributes:
        load: see `compact`.
        full: see `compact`.
        partitions: see `compact`.
        runtime: the clock and the ids.
        progress: see `compact`.
        elsewhere: see `compact`.
        done: what the call has done so far.
    """

    load: Callable[[], Table]
    full: bool
    partitions: Sequence[Mapping[str, Any]] | None
    runtime: Runtime
    progress: Progress
    elsewhere: Elsewhere | None
    done: _CompactedSoFar = field(default_factory=_CompactedSoFar, init=False)

    def plan(self, only: Collection[Bucket] | None, *, distributes: bool) -> _CompactionPlan:
        """Plans on the newest snapshot and schema.

        Args:
            only: the buckets that are planned. None for all.
            distributes: whether the plan gives buckets to rows that wait for one.
        """
        table = self.load()
        check_compactable(table)
        specs = None
        if self.partitions is not None:
            specs = [static_spec(table, spec) for spec in self.partitions]
        scan = plan_scan(table, specs=specs, hidden=True)

        def fail_at_end(error: errors.PaimonStreamError, file: ManifestEntry) -> None:
            self.done.failed.append(_naming_bucket(error, table, file))

        planned = plan_units(
            scan,
            self.runtime,
            fail_at_end,
            full=self.full,
            only=only,
            waiting=distributes,
        )
        self.done.left_as_is.update((unit.bucket, unit) for unit in planned.left_as_is)
        units = [unit for unit in planned.units if unit.newest_schema <= scan.schema.id]
        stale = [unit for unit in planned.units if unit.newest_schema > scan.schema.id]
        waits = any(isinstance(unit, WaitingUnit) for unit in planned.units)
        return _CompactionPlan(
            scan=scan, limits=planned.limits, units=units, stale=stale, distributes=waits
        )

    def carry_out_all(self) -> tuple[_CompactionPlan, list[Unit]]:
        """Plans and carries out, again and again, until nothing is left to do, or others have
        changed units each time. Returns the last plan, and the units that others have changed.
        """
        changed: dict[Bucket, Unit] = {}
        is_distributed = False
        for _ in range(_PLANS):
            plan = self.plan(changed or None, distributes=not is_distributed)
            changed = self.carry_out(plan)
            if not changed:
                if not plan.distributes:
                    break
                is_distributed = True
        return plan, list(changed.values())

    def carry_out(self, plan: _CompactionPlan) -> dict[Bucket, Unit]:
        """Rewrites and publishes the units of a plan. Returns the units that others have changed,
        by bucket.
        """
        done = self.done
        changed = plan.stale
        if plan.units:
            table = plan.scan.table
            done.user = done.user or batch_user(table.options, self.runtime.ids)
            units_of_plan = _UnitsOfPlan(plan, done, self.runtime)
            rewriter, most_threads = self._rewriter(plan)
            changed = changed + units_of_plan.carry_out(rewriter, most_threads)
            done.rewritten += units_of_plan.landed
            landed_units = [result.unit for result in units_of_plan.landed]
            done.counted += _counted(table.layout, landed_units, plan.limits.target)
        done.conflicts += len(changed)
        return {unit.bucket: unit for unit in changed}

    def _rewriter(self, plan: _CompactionPlan) -> tuple[Rewriter, int]:
        """The rewriter of the units, and how many units it rewrites at the same time."""
        units_at_once = 0
        if self.elsewhere is not None and not plan.distributes:
            units_at_once = self.elsewhere.at_once(plan.units)
        if self.elsewhere is None or not units_at_once:
            rewriter = rewriter_of(plan.scan, plan.limits, plan.units, self.runtime, self.progress)
            return rewriter, min(_MOST_THREADS, os.cpu_count() or 1)
        table = plan.scan.table
        spec = WriteSpec(
            storage=table.storage, schema=table.schema, options=table.options, runtime=self.runtime
        )
        task = UnitTask(spec=spec, limits=plan.limits, full=self.full)
        remote = RemoteRewriter(plan.scan, task, self.progress, plan.units, self.elsewhere)
        return remote, units_at_once

    def expected(self, plan: _CompactionPlan) -> CompactReport:
        """The report of what a run would do with these units. It assumes that new files are as
        large as the target. Raises the first error of the plan, and a `ConfigError` if the new
        files could not be written.
        """
        if self.done.failed:
            raise self.done.failed[0]
        # The rewriter is not used. It is made only to check whether new files could be written.
        rewriter_of(plan.scan, plan.limits, plan.units, self.runtime, silent)
        units = plan.units + plan.stale
        table = plan.scan.table
        target = plan.limits.target
        report = _counts_before(table, units, dry_run=True)
        file_names = (entry.file.file_name for entry in _rewritten(units))
        vectors = filter(None, map(plan.scan.vectors.get, file_names))
        deleted = sum(place.cardinality or 0 for _, place in vectors)
        return replace(
            report,
            files_after=sum(unit.files_after(target) for unit in units),
            rows_after=report.rows_before - deleted,
            bytes_after=report.bytes_before,
            buckets=(*_counted(table.layout, units, target), *self._skipped(plan)),
        )

    def report(self, plan: _CompactionPlan, given_up: Sequence[Unit]) -> CompactReport:
        """The report of what was done. `plan` is the last plan, and the units in `given_up` were
        not compacted.
        """
        table = plan.scan.table
        done = self.done
        skipped = _counted(table.layout, given_up, plan.limits.target, _SKIPPED)
        snapshot_id = None if done.snapshot is None else done.snapshot.id
        new_files = [file for result in done.rewritten for file in result.written]
        changelog = [file for result in done.rewritten for file in result.changelog]
        return replace(
            _counts_before(table, [result.unit for result in done.rewritten], dry_run=False),
            snapshot_id=snapshot_id,
            files_after=len(new_files),
            rows_after=sum(file.row_count for file in new_files),
            bytes_after=sum(file.file_size for file in new_files),
            changelog_rows=sum(file.row_count for file in changelog),
            conflicts=done.conflicts,
            buckets=(*done.counted, *skipped, *self._skipped(plan)),
        )

    def _skipped(self, plan: _CompactionPlan) -> Iterator[CompactedBucket]:
        """The units that are left as they are, by bucket."""
        for unit in self.done.left_as_is.values():
            yield from _counted(
                plan.scan.table.layout, [unit], plan.limits.target, why_left_as_is(unit)
            )


def _naming_bucket(
    error: errors.PaimonStreamError, table: Table, file: ManifestEntry
) -> errors.PaimonStreamError:
    """The error. If it names no file, the bucket of `file` is added to it."""
    if "path" in error.context:
        return error
    folder = table.layout.bucket_folder(file.partition, file.bucket)
    return type(error)(
        f"{table.location}/{folder} was not compacted: {error.message}",
        **{**error.context, "path": folder},
    )


def _counts_before(table: Table, units: Sequence[Unit], *, dry_run: bool) -> CompactReport:
    """A report of the files that the units replace, without the new files."""
    replaced = _rewritten(units)
    return CompactReport(
        location=table.location,
        dry_run=dry_run,
        files_before=len(replaced),
        files_upgraded=sum(len(unit.upgrades) for unit in units),
        rows_before=sum(entry.file.row_count for entry in replaced),
        bytes_before=size_of(replaced),
    )


def _rewritten(units: Iterable[Unit]) -> list[ManifestEntry]:
    """The files of the units that are rewritten. The other files only change their level."""
    upgraded = {file.identity for unit in units for file in unit.upgrades}
    return [file for unit in units for file in unit.files if file.identity not in upgraded]


def _counted(
    layout: Layout, units: Sequence[Unit], target: int, skipped: str | None = None
) -> list[CompactedBucket]:
    """A report of these units by bucket. `target` is the size of a new file in bytes. If the units
    were left as they are, `skipped` says why.
    """
    by_bucket: dict[Bucket, list[Unit]] = {}
    for unit in units:
        by_bucket.setdefault(unit.bucket, []).append(unit)
    return [
        CompactedBucket(
            partition=partition_by_column(layout, partition),
            bucket=bucket,
            files=sum(len(unit.files) for unit in units_of_bucket),
            rows=sum(unit.rows for unit in units_of_bucket),
            bytes=sum(unit.size for unit in units_of_bucket),
            reads_before=sum(unit.reads(target).before for unit in units_of_bucket),
            reads_after=sum(unit.reads(target).after for unit in units_of_bucket),
            skipped=skipped,
        )
        for (partition, bucket, _), units_of_bucket in by_bucket.items()
    ]


def _base_unknown(error: errors.HistoryUnknown, location: str) -> errors.HistoryUnknown:
    """The error of a commit that does not know what became of the snapshot on which it was built,
    in words about a compaction, which has no rows of its own.
    """
    return errors.HistoryUnknown(
        f"{location}: whether snapshot {error.context['snapshot']}, on which the compaction was planned, has expired "
        f"or was rolled back is not known: {error.context['why']}. No row has changed, and the new files that were "
        "not published were removed. Compact again.",
        **error.context,
    )


def _unknown(
    error: errors.CommitUnknown, location: str, groups: int, earlier: Snapshot | None
) -> errors.CommitUnknown:
    """The error for `groups` groups of files that may be published. `earlier` is the last snapshot
    of the compaction, if there is one.
    """
    if earlier is None:
        message = (
            f"{location}: whether a compaction of {groups} groups of files was published is not "
            "known, and no file was removed. No row has changed. Compact again."
        )
    else:
        message = (
            f"{location}: whether a compaction of {groups} groups of files was published is not "
            "known, and no file was removed. No row has changed. What was compacted before stays, "
            f"in snapshot {earlier.id} and earlier ones. Compact again."
        )
    return errors.CommitUnknown(message, **error.context)


def _all_in(
    finished: "SimpleQueue[Future[Rewritten]]", seconds: float
) -> Iterator[Future[Rewritten]]:
    """What is in the queue. If the queue is empty, waits for the next result, for at most
    `seconds`.
    """
    with suppress(Empty):
        yield finished.get(timeout=seconds)
        while True:
            yield finished.get_nowait()


class _LiveFiles(NamedTuple):
    """The live files of a snapshot.

    Attributes:
        snapshot_id: the id of the snapshot.
        files: the files.
    """

    snapshot_id: int
    files: set[FileIdentity]


class _UnitsOfPlan:
    """Rewrites the units of one plan in threads, and publishes the units that are done.

    Attributes:
        landed: the units that were published.
    """

    def __init__(self, plan: _CompactionPlan, done: _CompactedSoFar, runtime: Runtime) -> None:
        assert plan.scan.snapshot is not None
        self.landed: list[Rewritten] = []
        self._plan = plan
        self._done = done
        """Has the commit user. Gets the snapshots and the errors of damaged files."""
        self._runtime = runtime
        self._planned = plan.scan.snapshot
        self._committer = Committer(plan.scan.table, runtime=runtime)
        self._waiting: dict[int, Rewritten] = {}
        """What was rewritten and is not published yet, by the place of its unit in the plan."""
        self._changed: list[Unit] = []
        """The units that others have changed."""
        self._live: _LiveFiles | None = None
        """What `_is_live` has read last."""

    def carry_out(self, rewriter: Rewriter, at_once: int) -> list[Unit]:
        """Rewrites the units, `at_once` of them at the same time, and publishes them. Returns the
        units that others have changed.

        Files that are not published are removed. They stay only after a `CommitUnknown`, after an
        exception that is no `PaimonStreamError`, and if the commit is open (`Published.is_open`),
        because a snapshot or tag may then name these files.
        """
        units = self._plan.units
        clock = self._runtime.clock
        running: dict[Future[Rewritten], int] = {}
        finished: SimpleQueue[Future[Rewritten]] = SimpleQueue()
        with ThreadPoolExecutor(
            min(at_once, len(units)), thread_name_prefix="paimon-stream-compact"
        ) as pool:
            try:
                begun = clock.monotonic()
                for number, unit in enumerate(units):
                    future = pool.submit(rewriter.rewrite, unit)
                    running[future] = number
                    future.add_done_callback(finished.put)
                while running:
                    seconds_left = max(0.0, _PART_SECONDS - (clock.monotonic() - begun))
                    for future in _all_in(finished, seconds_left):
                        self._take(future, running[future])
                        del running[future]
                    if clock.monotonic() - begun >= _PART_SECONDS:
                        self._publish_waiting_units(rewriter)
                        begun = clock.monotonic()
                self._publish_waiting_units(rewriter)
            finally:
                rewriter.stop()
                pool.shutdown(cancel_futures=True)
                not_accepted = [
                    future.result()
                    for future in running
                    if not future.cancelled() and future.exception() is None
                ]
                rewriter.remove([*not_accepted, *self._waiting.values()])
        return self._changed

    def _take(self, future: Future[Rewritten], number: int) -> None:
        """Accepts the result of a unit. A unit whose files are damaged is left out, and the other
        units are published.
        """
        unit = self._plan.units[number]
        try:
            self._waiting[number] = future.result()
        except (errors.NotFound, *_DAMAGED) as error:
            others_replaced_files = isinstance(error, errors.NotFound) and not self._is_live(unit)
            if others_replaced_files:
                self._changed.append(unit)
            else:
                table = self._plan.scan.table
                self._done.failed.append(_naming_bucket(error, table, unit.files[0]))

    def _is_live(self, unit: Unit) -> bool:
        """Whether all files of the unit are in the newest snapshot. If a file is missing there,
        somebody else has replaced it, and an expiry may have removed it since then (RC11.3).
        """
        table = self._plan.scan.table
        latest = SnapshotStore(table.storage).latest()
        if latest is None:
            return False
        if self._live is None or self._live.snapshot_id != latest.id:
            files = {entry.identity for entry in snapshot_files(table, latest)}
            self._live = _LiveFiles(latest.id, files)
        return all(entry.identity in self._live.files for entry in unit.files)

    def _publish_waiting_units(self, rewriter: Rewriter) -> None:
        """Publishes the rewritten units that wait, in the order of the plan. Removes the new files
        of units that others had changed.
        """
        rewritten = [self._waiting[number] for number in sorted(self._waiting)]
        self._waiting.clear()
        if not rewritten:
            return
        done = self._done
        table = self._plan.scan.table
        try:
            source = CompactionSource(table, self._planned, rewritten, self._runtime.ids.uuid())
            published = source.publish_rewritten(self._committer, self._planned, done.user)
        except errors.CommitUnknown as error:
            raise _unknown(error, table.location, len(rewritten), done.snapshot) from error
        except errors.TableRolledBack as error:
            rewriter.remove(rewritten)
            raise errors.TableRolledBack(
                f"{table.location} was rolled back while it was compacted. "
                "The new files that were not published were removed. Compact again.",
                **error.context,
            ) from error
        except errors.HistoryUnknown as error:
            rewriter.remove(rewritten)
            if "why" not in error.context:  # it is not about the base
                raise
            raise _base_unknown(error, table.location) from error
        except errors.PaimonStreamError:
            rewriter.remove(rewritten)
            raise
        if published.snapshot is not None:
            done.snapshot = published.snapshot
        left_out: list[Rewritten] = []
        for number, result in enumerate(rewritten):
            if number in published.positions:
                self.landed.append(result)
            else:
                left_out.append(result)
        if not published.is_open:
            rewriter.remove(left_out)
        self._changed += [result.unit for result in left_out]
