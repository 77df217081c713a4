"""The sections of a report about one table (docs/monitoring.md), and what they say of its health. If a part cannot be
read, its section says why, and the other parts are drawn.
"""

import datetime as dt
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import quantiles
from typing import Any, Final, TypeVar

from paimon_stream import errors
from paimon_stream.api.inspection import History, HistoryEntry
from paimon_stream.api.plots import Line, Panel, RangeRow, Ranges, TimePlot, gaps_of, lanes
from paimon_stream.api.report_page import (
    PageSection,
    Problem,
    TableHealth,
    TablePage,
    command_for,
    problem_of,
)
from paimon_stream.api.streams import LEAST_SILENCE_MILLIS, StreamState
from paimon_stream.compact.job import compact
from paimon_stream.compact.publish import CompactReport
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.reports import count, iso, silent, size, span
from paimon_stream.runtime import system
from paimon_stream.stream.batch_summary import phases_of
from paimon_stream.table.live import snapshot_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_value import partition_by_column
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table
from paimon_stream.verify.findings import VerifyReport
from paimon_stream.verify.verifying import verify
from paimon_stream.write.data_file import small_below, target_bytes

T = TypeVar("T")

_MOST_LISTS: Final = 40
"""The manifest lists of about this many snapshots are read."""
_MOST_GROUPS: Final = 40
"""The most partitions, buckets or writers that a plot shows."""
_MOST_MOMENTS: Final = 300
"""The most moments that a plot shows. Of more, each group of neighbours is shown by its largest."""
_MOST_SPARKS: Final = 60
"""The most batches of a line in the overview."""
_SLOW_READS: Final = 5
"""A compaction is advised above the table's plots if readers open this number of files for each one that they need."""
_DAY_MILLIS: Final = 86_400_000
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_MILLISECOND: Final = dt.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class _Failed:
    """A part of a report that could not be read."""

    error: errors.PaimonStreamError


def _outcome(read: Callable[[], T]) -> T | _Failed:
    try:
        return read()
    except errors.PaimonStreamError as error:
        return _Failed(error)


def _result(outcome: T | _Failed) -> T:
    """The result of a part. Raises the error of a part that could not be read."""
    if isinstance(outcome, _Failed):
        raise outcome.error
    return outcome


def table_page(
    table: Table,
    stream: StreamState,
    *,
    snapshots: int = 500,
    sample: int = 0,
) -> TablePage:
    """The part of a page about a table: its health, its newest `snapshots`, its files, and the
    findings of `verify` with `sample` data files. Raises no error of this package.
    """
    failures: list[str] = []
    newest = _newest_snapshots(table, snapshots, failures)
    history_of_table = History.of(newest)
    live = _read_or_empty(
        lambda: snapshot_files(table, SnapshotStore(table.storage).latest()), failures
    )
    verified = _outcome(lambda: verify(table, sample=sample, progress=silent))
    compaction = _outcome(
        lambda: compact(lambda: table, full=not table.schema.primary_keys, dry_run=True)
    )
    builders: list[tuple[str, Callable[[], PageSection]]] = [
        ("Findings of verify", lambda: _findings(_result(verified))),
        ("Read amplification", lambda: _amplification(_result(compaction), table.location)),
        ("Batches", lambda: _batches(history_of_table)),
        ("Commits by phase", lambda: _phases(history_of_table)),
        ("Attempts and conflicts", lambda: _attempts(history_of_table)),
        ("Writers", lambda: _writers(history_of_table)),
        ("Sizes of files", lambda: _sizes(table, live)),
        ("Files of level 0", lambda: _levels(table, live)),
        ("Manifests", lambda: _manifests(table, newest)),
    ]
    sections = [_built_section(title, build) for title, build in builders]
    damaged = [
        PageSection(title="Not readable", about=message) for message in dict.fromkeys(failures)
    ]
    health = _health(table, stream, history_of_table, live)
    health = replace(
        health, problems=_problems(stream, verified), advice=_advice(table, compaction)
    )
    return TablePage(health, [*damaged, *sections])


def _newest_snapshots(table: Table, number: int, failures: list[str]) -> list[Snapshot]:
    """At most this number of snapshots, the newest ones. What cannot be read is told to
    `failures`.
    """
    store = SnapshotStore(table.storage)

    def readable(snapshot_id: int) -> Snapshot | None:
        try:
            return store.find(snapshot_id)
        except errors.FormatError as error:
            failures.append(error.message)
            return None

    def read() -> list[Snapshot]:
        reads = [partial(readable, snapshot_id) for snapshot_id in store.ids()[-number:]]
        return [snapshot for snapshot in table.storage.together(reads) if snapshot is not None]

    return _read_or_empty(read, failures)


def _health(
    table: Table,
    stream: StreamState,
    history: History,
    live: Sequence[ManifestEntry],
) -> TableHealth:
    batches = _of_streams(history)
    since = system().clock.now_millis() - _DAY_MILLIS
    keyed = bool(table.schema.primary_keys)
    small = small_below(target_bytes(table.options, keyed=keyed), table.options)
    return TableHealth(
        stream=stream,
        day_rows=sum(batch.batch.rows or 0 for batch in batches if _millis(batch) >= since),
        small_files=sum(entry.file.file_size < small for entry in live),
        files=len(live),
        batch_rows=[batch.batch.rows or 0 for batch in batches[-_MOST_SPARKS:]],
    )


def _problems(
    stream: StreamState,
    verified: VerifyReport | _Failed,
) -> list[Problem]:
    """Why the table needs an operator: first the stream, then what `verify` calls an error."""
    problem = problem_of(stream)
    problems = [] if problem is None else [problem]
    if isinstance(verified, _Failed):
        reasons = [verified.error.message]
    else:
        reasons = [finding.message for finding in verified.findings if finding.severity == "error"]
    if reasons and stream.state != "unreadable":
        more = f" verify found {count(len(reasons), 'error')}." if len(reasons) > 1 else ""
        command = command_for("verify", stream.location)
        problems.append(Problem("damaged", f"{reasons[0]}{more}", command))
    return problems


def _advice(
    table: Table,
    compaction: CompactReport | _Failed,
) -> list[Problem]:
    """What would make the table faster to read."""
    if isinstance(compaction, _Failed) or compaction.read_amplification < _SLOW_READS:
        return []
    reason = f"Readers open {compaction.read_amplification:.0f} files for each one that they need."
    return [Problem("slow", reason, command_for("compact", table.location))]


def _read_or_empty(read: Callable[[], list[T]], failures: list[str]) -> list[T]:
    """The result of `read`. If it fails, the result is empty, and the message is added to
    `failures`.
    """
    try:
        return read()
    except errors.PaimonStreamError as error:
        failures.append(error.message)
        return []


def _built_section(title: str, build: Callable[[], PageSection]) -> PageSection:
    """The section that `build` returns. If something cannot be read, a section that says why."""
    try:
        return build()
    except errors.PaimonStreamError as error:
        return PageSection(title=title, about=f"This cannot be shown: {error.message}")


def _millis(entry: HistoryEntry) -> int:
    """The time of a snapshot, in epoch milliseconds; 0 if Python has no such time."""
    if not entry.time:
        return 0
    time = dt.datetime.fromisoformat(entry.time.replace("Z", "+00:00"))
    return (time - _EPOCH) // _MILLISECOND


def _second(time: str) -> str:
    """A time of ISO 8601 for people, without parts of a second."""
    return time[:19].replace("T", " ")


def _thinned(
    entries: Sequence[HistoryEntry],
    weight: Callable[[HistoryEntry], float],
) -> list[HistoryEntry]:
    """At most about `_MOST_MOMENTS` of the entries. Of each group of neighbours, the one with the largest
    weight stays, so that no peak is lost. The result is sorted by time.
    """
    step = math.ceil(len(entries) / _MOST_MOMENTS) or 1
    groups = (entries[start : start + step] for start in range(0, len(entries), step))
    return sorted((max(group, key=weight) for group in groups), key=_millis)


def _thinned_note(entries: Sequence[HistoryEntry], shown: Sequence[HistoryEntry]) -> str:
    if len(shown) == len(entries):
        return ""
    return f" The plot shows {len(shown):,} of them: of each group of neighbours the largest."


def _gaps(moments: Sequence[int]) -> tuple[list[tuple[int, int]], str]:
    """The times in which the stream was down, and a sentence about them."""
    gaps = gaps_of(moments, LEAST_SILENCE_MILLIS)
    if not gaps:
        return [], ""
    total = span(sum(end - start for start, end in gaps))
    return (
        gaps,
        f" Nothing was committed in {count(len(gaps), 'long pause')} (grey), {total} together.",
    )


def _named(partition: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in partition.items())


def _of_streams(history: History) -> list[HistoryEntry]:
    """The snapshots with the rows of a stream's batch, the oldest first."""
    return [snapshot for snapshot in reversed(history) if snapshot.batch.rows is not None]


def _phases(history: History) -> PageSection:
    commits = [snapshot for snapshot in _of_streams(history) if snapshot.previous]
    phases = list(
        dict.fromkeys(name for snapshot in commits for name in phases_of(snapshot.previous))
    )
    header = ("batch", "attempts", *(f"{phase} ms" for phase in phases))
    if not commits:
        return PageSection(
            title="Commits by phase",
            about="No snapshot says how the commit before it went: they were made by another engine or an earlier release.",
        )
    shown = _thinned(commits, lambda snapshot: sum(phases_of(snapshot.previous).values()))
    lines = [Line(name, [entry.previous.get(name, 0) for entry in shown]) for name in phases]
    plot = TimePlot(
        moments=[_millis(snapshot) for snapshot in shown],
        panels=[Panel(title="Time of a commit", lines=lines, form="bars", write=span, height=200)],
        titles=[_phases_title(snapshot.previous) for snapshot in shown],
        gaps=_gaps([_millis(snapshot) for snapshot in shown])[0],
    )
    return PageSection(
        title="Commits by phase",
        about="How long each commit took. The next commit records that, so it is shown at its time. A mark at the upper "
        f"edge is a commit that took much longer than the others.{_thinned_note(commits, shown)}",
        header=header,
        rows=[
            [snapshot.previous.get(name) for name in ("batch", "attempts", *phases)]
            for snapshot in reversed(commits)
        ],
        plot=plot,
    )


def _phases_title(previous: Mapping[str, int]) -> str:
    phases = phases_of(previous)
    parts = ", ".join(f"{name} {span(millis)}" for name, millis in phases.items())
    return f"batch {previous.get('batch')}: {span(sum(phases.values()))} ({parts})"


def _batches(history: History) -> PageSection:
    batches = _of_streams(history)
    shown = _thinned(batches, lambda snapshot: snapshot.batch.rows or 0)
    moments = [_millis(snapshot) for snapshot in shown]
    gaps, pauses = _gaps(moments)
    panels = [
        Panel(
            title=title,
            lines=[Line(title, [getattr(entry.batch, name) for entry in shown])],
            write=write,
            thousand=1024 if name == "bytes" else 1000,
        )
        for title, name, write in (
            ("Rows of a batch", "rows", "{:,.0f}".format),
            ("Size of its files", "bytes", _rounded_size),
            ("Files", "files", "{:,.0f}".format),
        )
    ]
    plot = TimePlot(
        moments=moments,
        panels=[panel for panel in panels if _varies(panel)],
        titles=[_batch_title(snapshot) for snapshot in shown],
        gaps=gaps,
    )
    same = "".join(
        f" {panel.title}: always {panel.write(panel.lines[0].values[0] or 0)}."
        for panel in panels
        if batches and not _varies(panel)
    )
    measures = ("rows", "bytes", "files")
    return PageSection(
        title="Batches",
        about=f"{count(len(batches), 'batch')} of streams.{same}{pauses}{_thinned_note(batches, shown)}",
        header=("batch", "time", *measures, "updated", "deleted", "inserted", "write ms"),
        rows=[
            (
                snapshot.identifier,
                snapshot.time,
                snapshot.batch.rows,
                snapshot.batch.bytes,
                snapshot.batch.files,
                snapshot.batch.rows_updated,
                snapshot.batch.rows_deleted,
                snapshot.batch.rows_inserted,
                snapshot.batch.write_millis,
            )
            for snapshot in reversed(batches)
        ],
        plot=plot if plot.moments and plot.panels else None,
    )


def _varies(panel: Panel) -> bool:
    """Whether a panel of one line shows more than one value."""
    return len(set(panel.lines[0].values)) > 1


def _rounded_size(bytes_: float) -> str:
    return size(round(bytes_))


def _batch_title(snapshot: HistoryEntry) -> str:
    batch = snapshot.batch
    figures = f"{count(batch.rows or 0, 'row')}, {size(batch.bytes or 0)}, {count(batch.files or 0, 'file')}"
    return f"batch {snapshot.identifier}, {_second(snapshot.time)}: {figures}"


@dataclass(slots=True)
class _Attempts:
    """How often a batch was tried. `attempts` and `conflicts` are known from the snapshot of the
    stream's next batch.

    Attributes:
        batch: the id of the batch.
        time: the time of the batch's snapshot.
        millis: the same in epoch milliseconds.
        restarts: 1 if a run of the query began with the batch, otherwise 0.
        reused: 1 if an earlier run, which was killed, had written the files, otherwise 0.
        attempts: how many attempts the commit took; None if no later snapshot says that.
        conflicts: how many compactions conflicted with the commit; None if no later snapshot says
            that.
    """

    batch: int | None
    time: str
    millis: int
    restarts: int
    reused: int
    attempts: int | None = None
    conflicts: int | None = None

    def numbers(self) -> list[int | None]:
        """The numbers of attempts, in the order of `_ATTEMPT_NUMBERS`."""
        return [self.attempts, self.conflicts, self.restarts, self.reused]


_ATTEMPT_NUMBERS: Final = ("attempts", "conflicts", "restarts", "reused")


def _attempts_of(history: History) -> list[_Attempts]:
    """The batches of all streams, the newest first."""
    batches: dict[tuple[str, int | None], _Attempts] = {}
    runs: dict[str, str | None] = {}
    for snapshot in _of_streams(history):
        run_id = snapshot.marks.run_id
        is_restart = runs.get(snapshot.user, run_id) != run_id
        runs[snapshot.user] = run_id
        batches[snapshot.user, snapshot.identifier] = _Attempts(
            batch=snapshot.identifier,
            time=snapshot.time,
            millis=_millis(snapshot),
            restarts=int(is_restart),
            reused=snapshot.batch.reused or 0,
        )
        before = batches.get((snapshot.user, snapshot.previous.get("batch")))
        if snapshot.previous and before is not None:
            before.attempts = snapshot.previous.get("attempts", 1)
            before.conflicts = snapshot.previous.get("conflicts", 0)
    return list(reversed(batches.values()))


def _attempts(history: History) -> PageSection:
    batches = _attempts_of(history)
    columns = dict(
        zip(
            _ATTEMPT_NUMBERS,
            zip(*(batch.numbers() for batch in batches), strict=True),
            strict=False,
        )
    )
    totals = {name: sum(filter(None, columns.get(name, ()))) for name in _ATTEMPT_NUMBERS}
    commits = len(list(filter(None, columns.get("attempts", ()))))
    lost_attempts = totals["attempts"] - commits
    events = [
        # The first attempt is no event. So a batch whose commit went at once has no mark.
        (
            "more than one attempt",
            [number if number and number > 1 else None for number in columns.get("attempts", ())],
        ),
        ("conflict of a compaction", [number or None for number in columns.get("conflicts", ())]),
        ("restart of the query", [number or None for number in columns.get("restarts", ())]),
        ("files of a killed run reused", [number or None for number in columns.get("reused", ())]),
    ]
    drawn = [Line(name, numbers[::-1]) for name, numbers in events if any(numbers)]
    plot = None
    if drawn:
        plot = TimePlot(
            moments=[batch.millis for batch in reversed(batches)],
            panels=[lanes("Batches with an event", drawn)],
            titles=[f"batch {batch.batch}, {_second(batch.time)}" for batch in reversed(batches)],
        )
        about = (
            f"Other writers were faster at {count(lost_attempts, 'attempt')}, and {count(totals['conflicts'], 'compaction')} lost to "
            f"them. The query was restarted {_times(totals['restarts'])}, and reused the files of a killed run {_times(totals['reused'])}. A "
            "batch that failed and was never run again left no snapshot, so it is not shown."
        )
    elif batches:
        about = "Each commit needed one attempt, no compaction lost to another writer, and the query was not restarted."
    else:
        about = "There are no batches of streams."
    return PageSection(
        title="Attempts and conflicts",
        about=about,
        header=("batch", "time", *_ATTEMPT_NUMBERS) if drawn else (),
        rows=[[batch.batch, batch.time, *batch.numbers()] for batch in batches] if drawn else (),
        plot=plot,
    )


def _times(number: int) -> str:
    return count(number, "time")


def _writers(history: History) -> PageSection:
    grouped: dict[tuple[str, str], list[HistoryEntry]] = defaultdict(list)
    for snapshot in history:
        grouped[snapshot.marks.query_name or snapshot.user, snapshot.kind].append(snapshot)
    rows = [
        (writer, kind, len(snapshots), snapshots[-1].time, snapshots[0].time)
        for (writer, kind), snapshots in grouped.items()
    ]
    plot = None
    if len(grouped) > 1:
        shown = _thinned(history[::-1], lambda _: 0)
        lines = [
            Line(
                f"{writer[-30:]} {kind}",
                [1 if _is_by(snapshot, writer, kind) else None for snapshot in shown],
            )
            for writer, kind in list(grouped)[:_MOST_GROUPS]
        ]
        plot = TimePlot(
            moments=[_millis(snapshot) for snapshot in shown],
            panels=[lanes("Snapshots by writer", lines)],
            titles=[f"snapshot {snapshot.id}, {_second(snapshot.time)}" for snapshot in shown],
        )
    return PageSection(
        title="Writers",
        about="Who made which snapshots, and when.",
        header=("writer", "kind", "snapshots", "first", "last"),
        rows=rows,
        plot=plot,
    )


def _is_by(snapshot: HistoryEntry, writer: str, kind: str) -> bool:
    return (snapshot.marks.query_name or snapshot.user) == writer and snapshot.kind == kind


def _manifests(table: Table, snapshots: list[Snapshot]) -> PageSection:
    store = ManifestStore(table.storage)
    # The loop begins at the newest snapshot. Its steps are large enough that at most `_MOST_LISTS`
    # lists are read.
    step = max(math.ceil(len(snapshots) / _MOST_LISTS), 1)
    rows: list[tuple[int, str, int, int]] = []
    for snapshot in snapshots[::-step]:
        manifests = store.base_and_delta(snapshot)
        total_bytes = sum(manifest.file_size for manifest in manifests)
        rows.append((snapshot.id, iso(snapshot.time_millis) or "", len(manifests), total_bytes))
    about = "There are no snapshots."
    if snapshots:
        ids = [snapshot.id for snapshot in snapshots]
        about = f"{count(len(ids), 'snapshot')}, {min(ids)} to {max(ids)}."
    plot = None
    if len(rows) > 1:
        # A damaged snapshot is left out, so the times are taken from the rows.
        times: dict[int, int] = {snapshot.id: snapshot.time_millis for snapshot in snapshots}
        drawn = sorted(rows, key=lambda row: times[row[0]])
        plot = TimePlot(
            moments=[times[row[0]] for row in drawn],
            panels=[
                Panel(title="Manifests", lines=[Line("manifests", [row[2] for row in drawn])]),
                Panel(
                    title="Their size",
                    lines=[Line("bytes", [row[3] for row in drawn])],
                    write=_rounded_size,
                    thousand=1024,
                ),
            ],
            gaps=_gaps([times[row[0]] for row in drawn])[0],
            titles=[
                f"snapshot {row[0]}: {count(row[2], 'manifest')}, {size(row[3])}" for row in drawn
            ],
        )
    return PageSection(
        title="Manifests",
        about=f"{about} A commit reads the manifests that a snapshot has, so they should be few.",
        header=("snapshot", "time", "manifests", "bytes"),
        rows=rows,
        plot=plot,
    )


def _sizes(table: Table, live: list[ManifestEntry]) -> PageSection:
    grouped: dict[str, list[int]] = defaultdict(list)
    for entry in live:
        partition = _named(partition_by_column(table.layout, entry.partition)) or "all"
        grouped[partition].append(entry.file.file_size)
    by_number = sorted(grouped.items(), key=lambda group: -len(group[1]))
    rows = [_sizes_of_partition(partition, sizes) for partition, sizes in by_number]
    drawn = rows[:_MOST_GROUPS]
    ranges = [
        RangeRow(name=str(row[0]), values=row[3:], text=f"{count(row[1], 'file')}, {size(row[2])}")
        for row in drawn
    ]
    total = sum(map(sum, grouped.values()))
    share = f" The {len(drawn)} with most files are drawn." if len(drawn) < len(rows) else ""
    return PageSection(
        title="Sizes of files",
        about=f"{count(len(live), 'file')} of {size(total, 'bytes')} in {count(len(rows), 'partition')}.{_spread(live)}{share}",
        header=(
            "partition",
            "files",
            "bytes",
            "smallest",
            "quarter",
            "half",
            "three quarters",
            "largest",
        ),
        rows=rows,
        plot=Ranges(rows=ranges) if rows else None,
    )


def _spread(live: Sequence[ManifestEntry]) -> str:
    """What the ranges of sizes mean, with the ends of their scale."""
    if not live:
        return ""
    sizes = [entry.file.file_size for entry in live]
    return (
        f" Each line goes from the smallest to the largest file, the bar has the middle half, and the stroke is the median. "
        f"The scale goes from {size(min(sizes))} to {size(max(sizes))} and is logarithmic."
    )


def _sizes_of_partition(partition: str, sizes: Sequence[int]) -> tuple[Any, ...]:
    """A row of the section: the partition, the number of files, their total size, then the smallest
    size, the quartiles and the largest size. All sizes are in bytes.
    """
    quartiles = [sizes[0]] * 3
    if len(sizes) > 1:
        quartiles = [round(quartile) for quartile in quantiles(sizes, n=4, method="inclusive")]
    return (partition, len(sizes), sum(sizes), min(sizes), *quartiles, max(sizes))


def _levels(table: Table, live: list[ManifestEntry]) -> PageSection:
    if not table.schema.primary_keys:
        return PageSection(
            title="Files of level 0",
            about="The table has no primary key, so its files have no levels.",
        )
    depths = Counter((entry.partition, entry.bucket) for entry in live if entry.file.level == 0)
    rows = [
        (_named(partition_by_column(table.layout, partition)), bucket, files)
        for (partition, bucket), files in depths.most_common()
    ]
    drawn = rows[:_MOST_GROUPS]
    bars = [
        RangeRow(
            name=f"{partition} bucket {bucket}".strip(), values=[files], text=count(files, "file")
        )
        for partition, bucket, files in drawn
    ]
    return PageSection(
        title="Files of level 0",
        about="New files that no compaction has merged yet. A reader merges all those of a bucket. Buckets with the most files come first.",
        header=("partition", "bucket", "files"),
        rows=rows,
        plot=Ranges(rows=bars) if rows else None,
    )


def _amplification(report: CompactReport, location: str) -> PageSection:
    buckets = sorted(report.compacted, key=lambda bucket: bucket.reads_after - bucket.reads_before)
    bars = [
        RangeRow(
            name=f"{_named(bucket.partition)} bucket {bucket.bucket}".strip(),
            values=[bucket.reads_before],
            text=f"{bucket.reads_before:,} → {bucket.reads_after:,}",
        )
        for bucket in buckets[:_MOST_GROUPS]
    ]
    advice = "Nothing needs a compaction."
    if buckets:
        advice = (
            f"Run: {command_for('compact', location)}. The bars are the files that a reader opens now, and the numbers "
            "those before and after a compaction."
        )
    return PageSection(
        title="Read amplification",
        about=f"Files that a reader opens for each file that it needs: {report.read_amplification:.1f}. {advice}",
        header=("partition", "bucket", "files", "bytes", "read now", "then"),
        rows=[
            (
                _named(bucket.partition),
                bucket.bucket,
                bucket.files,
                bucket.bytes,
                bucket.reads_before,
                bucket.reads_after,
            )
            for bucket in buckets
        ],
        plot=Ranges(rows=bars) if bars else None,
    )


def _findings(report: VerifyReport) -> PageSection:
    looked_at = ", ".join(f"{thing} {number:,}" for thing, number in report.checked.items())
    verdict = "" if report.findings else "Nothing is wrong. "
    return PageSection(
        title="Findings of verify",
        about=f"{verdict}Looked at: {looked_at}.",
        header=("severity", "code", "file", "what", "what to do"),
        rows=[
            (finding.severity, finding.code, finding.path, finding.message, finding.cure)
            for finding in report.findings
        ],
    )
