"""Compacts a table once: plans on the newest snapshot, rewrites several units at a time, and
publishes them (compaction.md §12, RC12.1).

    plan ──► rewrite ──► publish ──► units that others have changed: plan again, three times at most

Invariants: no row changes. Before a unit is published, its new files belong to nobody. They are
removed if the unit is given up, except after a `CommitUnknown`. What was published stays, whatever
happens then, so an interrupted compaction goes on where it ended when it is run again.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from paimon_stream import errors
from paimon_stream.commit.committer import Committer
from paimon_stream.commit.overwrite import static_spec
from paimon_stream.commit.table_commit import batch_user
from paimon_stream.compact.keyed_plan import KeyedThresholds
from paimon_stream.compact.planning import Thresholds, check_compactable, plan_units, rewriter_of
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
_PART_SECONDS: Final = 600
"""What was rewritten is published at least this often. No cleaner of orphans takes files that are
so young, and little is lost if the process is killed.
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
_CHANGED: Final = "Others have changed its files each time. Compact again later."


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
    """Compacts the buckets that need it, of the partitions that match one of the specs if any is
    given. `load` gives the table as it is now, with the options of this call. A dry run writes
    nothing. Threads of this process rewrite the units, unless `elsewhere` takes them.

    Raises `UnsupportedFeature` for a table that this release does not compact, `IncompatibleSchema`
    and `InvalidData` for a partition that the table cannot have, `InvalidOption`,
    `TableRolledBack`, and the errors of reading, writing and committing. Of damaged files the first
    error is raised when all others have been published.
    """
    run = _CompactionCall(
        load, full, partitions, runtime or system(), progress or silent, elsewhere
    )
    changed: dict[Bucket, Unit] | None = None
    with _little_memory():
        for _ in range(_PLANS):
            plan = run.plan(changed or None)
            if dry_run:
                return run.expected(plan)
            changed = run.carry_out(plan)
            if not changed and not plan.distributes:
                break
    if run.failed:
        raise run.failed[0]
    return run.report(list((changed or {}).values()))


@contextmanager
def _little_memory() -> Iterator[None]:
    """Has Arrow take memory from jemalloc for the time of a run, unless the process has chosen:
    mimalloc, Arrow's default, keeps about 100 MiB more of what was given back (docs/compaction.md).
    Meanwhile jemalloc keeps nothing.
    """
    before, there = pa.default_memory_pool(), "jemalloc" in pa.supported_memory_backends()
    if there:
        pa.jemalloc_set_decay_ms(0)
        if before.backend_name == "mimalloc" and _POOL not in os.environ:
            pa.set_memory_pool(pa.jemalloc_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)
        if there:
            pa.jemalloc_set_decay_ms(_DECAY_MILLIS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CompactionPlan:
    """What one look at the table asks for. `stale` are units with files of a schema that is newer
    than the table that was loaded: their rows would lose what is new in it. With `distributes`,
    rows that wait get their buckets, which are then planned.
    """

    scan: Scan
    limits: Thresholds | KeyedThresholds
    units: list[Unit]
    stale: list[Unit]
    distributes: bool


@dataclass(slots=True)
class _CompactionCall:
    """One call: what it has done so far."""

    load: Callable[[], Table]
    full: bool
    partitions: Sequence[Mapping[str, Any]] | None
    runtime: Runtime
    progress: Progress
    elsewhere: Elsewhere | None = None
    location: str = ""
    layout: Layout | None = None
    snapshot: Snapshot | None = None
    conflicts: int = 0
    done: list[Rewritten] = field(default_factory=list)
    failed: list[errors.PaimonStreamError] = field(default_factory=list)
    counted: list[CompactedBucket] = field(default_factory=list)
    user: str = ""
    target: int = 1
    distributed: bool = False

    def plan(self, only: Collection[Bucket] | None) -> _CompactionPlan:
        """Plans on the newest snapshot and schema; with `only`, just these buckets."""
        table = self.load()
        check_compactable(table)
        self.location, self.layout = table.location, table.layout
        specs = (
            None
            if self.partitions is None
            else [static_spec(table, one) for one in self.partitions]
        )
        scan = plan_scan(table, specs=specs, hidden=True)
        how = {"full": self.full, "waiting": not self.distributed}
        limits, found = plan_units(scan, self.runtime, self._wrong, only=only, **how)
        units = [one for one in found if one.newest_schema <= scan.schema.id]
        stale = [one for one in found if one.newest_schema > scan.schema.id]
        self.target = limits.target
        waits = any(isinstance(one, WaitingUnit) for one in found)
        return _CompactionPlan(
            scan=scan, limits=limits, units=units, stale=stale, distributes=waits
        )

    def _wrong(self, why: errors.PaimonStreamError, file: ManifestEntry) -> None:
        """Makes the run fail at its end."""
        self.failed.append(self.named(why, file))

    def named(self, why: errors.PaimonStreamError, file: ManifestEntry) -> errors.PaimonStreamError:
        """The error, with the file's bucket if it names no file."""
        if "path" in why.context:
            return why
        assert self.layout is not None
        folder = self.layout.bucket_folder(file.partition, file.bucket)
        text = f"{self.location}/{folder} was not compacted: {why.message}"
        return type(why)(text, **{**why.context, "path": folder})

    def carry_out(self, plan: _CompactionPlan) -> dict[Bucket, Unit]:
        """Rewrites and publishes. Returns the units that others have changed, by bucket."""
        changed = plan.stale
        if plan.units:
            table = plan.scan.table
            self.user = self.user or batch_user(table.options, self.runtime.ids)
            part = _UnitsOfPlan(self, plan)
            changed = changed + part.carry_out(*self._rewriter(plan))
            self.done += part.landed
            self.counted += _counted(table.layout, [one.unit for one in part.landed], self.target)
        self.conflicts += len(changed)
        self.distributed |= not changed
        return {unit.bucket: unit for unit in changed}

    def _rewriter(self, plan: _CompactionPlan) -> tuple[Rewriter, int]:
        there = (
            0 if self.elsewhere is None or plan.distributes else self.elsewhere.at_once(plan.units)
        )
        if self.elsewhere is None or not there:
            own = rewriter_of(plan.scan, plan.limits, plan.units, self.runtime, self.progress)
            return own, min(_MOST_THREADS, os.cpu_count() or 1)
        table = plan.scan.table
        spec = WriteSpec(
            storage=table.storage, schema=table.schema, options=table.options, runtime=self.runtime
        )
        task = UnitTask(spec=spec, limits=plan.limits, full=self.full)
        return RemoteRewriter(plan.scan, task, self.progress, plan.units, self.elsewhere), there

    def expected(self, plan: _CompactionPlan) -> CompactReport:
        """What a run would do with these units. New files are about as large as the target. Raises
        the first error of the plan, and what keeps the new files from being written.
        """
        if self.failed:
            raise self.failed[0]
        rewriter_of(plan.scan, plan.limits, plan.units, self.runtime, silent)
        units = plan.units + plan.stale
        report = self._counts_before(units, dry_run=True)
        vectors = (plan.scan.vectors.get(one.file.file_name) for one in _rewritten(units))
        deleted = sum(one[1].cardinality or 0 for one in vectors if one is not None)
        return replace(
            report,
            files_after=sum(one.files_after(plan.limits.target) for one in units),
            rows_after=report.rows_before - deleted,
            bytes_after=report.bytes_before,
            buckets=tuple(_counted(plan.scan.table.layout, units, self.target)),
        )

    def report(self, given_up: Sequence[Unit]) -> CompactReport:
        """What was done. The units in `given_up` were not compacted."""
        assert self.layout is not None
        left = _counted(self.layout, given_up, self.target, _CHANGED)
        after = [file for one in self.done for file in one.written]
        return replace(
            self._counts_before([one.unit for one in self.done], dry_run=False),
            snapshot_id=None if self.snapshot is None else self.snapshot.id,
            files_after=len(after),
            rows_after=sum(file.row_count for file in after),
            bytes_after=sum(file.file_size for file in after),
            changelog_rows=sum(file.row_count for one in self.done for file in one.changelog),
            conflicts=self.conflicts,
            buckets=(*self.counted, *left),
        )

    def _counts_before(self, units: Sequence[Unit], *, dry_run: bool) -> CompactReport:
        before = _rewritten(units)
        return CompactReport(
            table=self.location,
            dry_run=dry_run,
            files_before=len(before),
            files_upgraded=sum(len(one.upgrades) for one in units),
            rows_before=sum(one.file.row_count for one in before),
            bytes_before=size_of(before),
        )


def _rewritten(units: Iterable[Unit]) -> list[ManifestEntry]:
    """The files of the units that do not just change their level."""
    kept = {file.identity for one in units for file in one.upgrades}
    return [file for one in units for file in one.files if file.identity not in kept]


def _counted(
    layout: Layout, units: Sequence[Unit], target: int, skipped: str | None = None
) -> list[CompactedBucket]:
    found: dict[Bucket, list[Unit]] = {}
    for one in units:
        found.setdefault(one.bucket, []).append(one)
    return [
        CompactedBucket(
            partition=partition_by_column(layout, partition),
            bucket=bucket,
            files=sum(len(one.files) for one in some),
            rows=sum(one.rows for one in some),
            bytes=sum(one.size for one in some),
            reads_before=sum(one.reads(target)[0] for one in some),
            reads_after=sum(one.reads(target)[1] for one in some),
            skipped=skipped,
        )
        for (partition, bucket, _), some in found.items()
    ]


class _UnitsOfPlan:
    """Rewrites the units of one plan in threads, and publishes what is done."""

    def __init__(self, run: _CompactionCall, plan: _CompactionPlan) -> None:
        assert plan.scan.snapshot is not None
        self.landed: list[Rewritten] = []
        self._run = run
        self._plan = plan
        self._planned = plan.scan.snapshot
        self._committer = Committer(plan.scan.table, runtime=run.runtime)
        self._waiting: dict[int, Rewritten] = {}
        self._changed: list[Unit] = []
        self._live: tuple[int, set[FileIdentity]] | None = None

    def carry_out(self, rewriter: Rewriter, at_once: int) -> list[Unit]:
        """Returns the units that others have changed. Files that are not published are removed,
        except after a `CommitUnknown` and after what is no error of ours, because a snapshot may
        name them then.
        """
        units, clock = self._plan.units, self._run.runtime.clock
        running: dict[Future[Rewritten], int] = {}
        with ThreadPoolExecutor(
            min(at_once, len(units)), thread_name_prefix="paimon-stream-compact"
        ) as pool:
            try:
                for number, unit in enumerate(units):
                    running[pool.submit(rewriter.rewrite, unit)] = number
                begun = clock.monotonic()
                while running:
                    left = max(0.0, _PART_SECONDS - (clock.monotonic() - begun))
                    for future in wait(running, left, FIRST_COMPLETED).done:
                        self._take(future, running[future])
                        del running[future]
                    if clock.monotonic() - begun >= _PART_SECONDS:
                        self._publish(rewriter)
                        begun = clock.monotonic()
                self._publish(rewriter)
            finally:
                rewriter.stop()
                pool.shutdown(cancel_futures=True)
                ended = [one for one in running if not one.cancelled() and one.exception() is None]
                rewriter.remove([*(one.result() for one in ended), *self._waiting.values()])
        return self._changed

    def _take(self, future: Future[Rewritten], number: int) -> None:
        """Takes what was rewritten. A unit whose files are damaged is left out, and the others are
        published.
        """
        unit = self._plan.units[number]
        try:
            self._waiting[number] = future.result()
        except (errors.NotFound, *_DAMAGED) as why:
            if isinstance(why, errors.NotFound) and not self._is_live(unit):
                self._changed.append(unit)
            else:
                self._run.failed.append(self._run.named(why, unit.files[0]))

    def _is_live(self, unit: Unit) -> bool:
        """Whether all files of the unit are in the newest snapshot. If not, an expiry may have
        removed them after somebody else had replaced them (RC11.3).
        """
        table = self._plan.scan.table
        latest = SnapshotStore(table.storage).latest()
        if latest is None:
            return False
        if self._live is None or self._live[0] != latest.id:
            self._live = latest.id, {one.identity for one in snapshot_files(table, latest)}
        return all(one.identity in self._live[1] for one in unit.files)

    def _publish(self, rewriter: Rewriter) -> None:
        """Publishes what waits, in the order of the plan. The new files of units that were left out
        are removed.
        """
        made = [self._waiting[number] for number in sorted(self._waiting)]
        self._waiting.clear()
        if not made:
            return
        run, before = self._run, ""
        if run.snapshot is not None:
            before = (
                f" What was compacted before stays, in snapshot {run.snapshot.id} and earlier ones."
            )
        try:
            source = CompactionSource(
                self._plan.scan.table, self._planned, made, run.runtime.ids.uuid()
            )
            snapshot, landed = source.publish(self._committer, self._planned, run.user)
        except errors.CommitUnknown as why:
            raise errors.CommitUnknown(
                f"{run.location}: whether a compaction of {len(made)} groups of files was published is not "
                f"known, and no file was removed. No row has changed.{before} Compact again.",
                **why.context,
            ) from why
        except errors.TableRolledBack as why:
            rewriter.remove(made)
            cure = "The new files that were not published were removed. Compact again."
            text = f"{run.location} was rolled back while it was compacted. {cure}"
            raise errors.TableRolledBack(text, **why.context) from why
        except errors.PaimonStreamError:
            rewriter.remove(made)
            raise
        run.snapshot = snapshot or run.snapshot
        left_out = [one for number, one in enumerate(made) if number not in landed]
        self.landed += [one for number, one in enumerate(made) if number in landed]
        rewriter.remove(left_out)
        self._changed += [one.unit for one in left_out]
