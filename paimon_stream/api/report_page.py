"""`PaimonTable.report`: a page about a table, with plots and their numbers, that needs no network
(docs/monitoring.md). If a part cannot be read, its section says why, and the other parts are drawn.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from pathlib import Path
from statistics import quantiles
from typing import Any, Final, TypeVar

from paimon_stream import errors
from paimon_stream.api.inspection import History, HistoryEntry
from paimon_stream.compact.job import compact
from paimon_stream.extras import require
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.reports import count, iso, silent, size
from paimon_stream.runtime import system
from paimon_stream.stream.batch_summary import phases_of
from paimon_stream.table.live import snapshot_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_value import partition_by_column
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table
from paimon_stream.verify.verifying import verify

T = TypeVar("T")

_MOST_LISTS: Final = 40
"""The manifest lists of about this many snapshots are read."""
_MOST_GROUPS: Final = 40
"""The most partitions, buckets or writers that a plot shows."""
_MOST_ROWS: Final = 100
"""The most rows that a table of numbers has."""
_LINES: Final = "lines+markers"
_TOP: Final = {"t": 10, "b": 60, "l": 60, "r": 20}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSection:
    """A part of the page: a plot in Plotly's form, and a table with its numbers. `about` is a text
    that says what the plot and the table show, or why there is nothing to show.
    """

    title: str
    about: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    traces: Sequence[Mapping[str, Any]] = ()
    layout: Mapping[str, Any] = field(default_factory=dict)

    def html(self, name: str) -> str:
        """The HTML of the section. The data of the plot are in the element `name`, where the page's
        script finds them.
        """
        plot = self._plot_html(name) if self.traces else ""
        return f"<section><h3>{escape(self.title)}</h3><p>{escape(self.about)}</p>{plot}{self._numbers_html()}</section>"

    def _plot_html(self, name: str) -> str:
        spec = {"data": self.traces, "layout": {"margin": _TOP, **self.layout}}
        figure = json.dumps(spec).replace("<", "\\u003c")
        return (
            f'<div class="plot" id="{name}"></div><script type="application/json">{figure}</script>'
        )

    def _numbers_html(self) -> str:
        """The HTML of the table with the section's first rows. Below a plot, the rows are
        folded.
        """
        rows = self.rows[:_MOST_ROWS]
        if not rows:
            return ""
        table = _table(self.header, rows)
        if not self.traces:
            return table
        share = f", {len(rows):,} of {len(self.rows):,}" if len(rows) < len(self.rows) else ""
        return f"<details><summary>Numbers{share}</summary>{table}</details>"


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    titles = "".join(f"<th>{escape(title)}</th>" for title in header)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(value: object) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, int | float):
        return f"<td class=n>{value:,}</td>"
    return f"<td>{escape(str(value))}</td>"


@dataclass(frozen=True, slots=True)
class ReportPage:
    """A page with an overview, and with sections for each table, by the tables' locations.
    Notebooks show the page.
    """

    title: str
    tables: Mapping[str, Sequence[PageSection]]
    overview: PageSection | None = None

    def html(self) -> str:
        """The HTML of the page, including its script and data. Raises `MissingExtra` if plotly is
        not installed.
        """
        plotly = require("plotly.offline", "report", "A report").get_plotlyjs()
        now = iso(system().clock.now_millis())
        body = f"<h1>{escape(self.title)}</h1><p>Made by paimon-stream at {now}.</p>"
        if self.overview is not None:
            body += self.overview.html("overview")
        # A page about one table shows this table at once.
        state = " open" if len(self.tables) == 1 else ""
        for number, (location, sections) in enumerate(self.tables.items()):
            inside = "".join(
                section.html(f"plot-{number}-{place}") for place, section in enumerate(sections)
            )
            body += f"<details class=table{state}><summary><h2>{escape(location)}</h2></summary>{inside}</details>"
        return _PAGE.format(
            title=escape(self.title), style=_STYLE, plotly=plotly, script=_SCRIPT, body=body
        )

    def save(self, path: str | Path) -> None:
        """Writes the page to a file. Raises `MissingExtra` if plotly is not installed, and
        `InvalidOption` if the file cannot be written.
        """
        page = self.html()
        try:
            Path(path).write_text(page, encoding="utf-8")
        except OSError as error:
            raise errors.InvalidOption(
                f"The report cannot be written to {path}: {error.strerror}. Give another file.",
                option="path",
            ) from None

    def __repr__(self) -> str:
        return f"ReportPage({self.title!r}, {count(len(self.tables), 'table')})"

    def _repr_html_(self) -> str:
        frame = 'style="width: 100%; height: 60em; border: 0" sandbox="allow-scripts"'
        return f'<iframe {frame} srcdoc="{escape(self.html())}"></iframe>'


def sections_of(
    table: Table,
    *,
    snapshots: int = 500,
    sample: int = 0,
) -> list[PageSection]:
    """The sections about a table: its newest `snapshots`, its files, and the findings of `verify`
    with `sample` data files. Raises no error of this package.
    """
    store = SnapshotStore(table.storage)
    failures: list[str] = []

    def readable(snapshot_id: int) -> Snapshot | None:
        try:
            return store.find(snapshot_id)
        except errors.FormatError as error:
            failures.append(error.message)
            return None

    def history() -> list[Snapshot]:
        reads = [partial(readable, snapshot_id) for snapshot_id in store.ids()[-snapshots:]]
        return [snapshot for snapshot in table.storage.together(reads) if snapshot is not None]

    newest = _read_or_empty(history, failures)
    history_of_table = History.of(newest)
    live = _read_or_empty(lambda: snapshot_files(table, store.latest()), failures)
    builders: list[tuple[str, Callable[[], PageSection]]] = [
        ("Commits by phase", lambda: _phases(history_of_table)),
        ("Batches", lambda: _batches(history_of_table)),
        ("Attempts and conflicts", lambda: _attempts(history_of_table)),
        ("Writers", lambda: _writers(history_of_table)),
        ("Manifests", lambda: _manifests(table, newest)),
        ("Sizes of files", lambda: _sizes(table, live)),
        ("Files of level 0", lambda: _levels(table, live)),
        ("Read amplification", lambda: _amplification(table)),
        ("Findings of verify", lambda: _findings(table, sample)),
    ]
    sections = [_built_section(title, build) for title, build in builders]
    damaged = [
        PageSection(title="Not readable", about=message) for message in dict.fromkeys(failures)
    ]
    return [*damaged, *sections]


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


def _named(partition: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in partition.items())


def _trace(
    kind: str, name: str, x: Sequence[object], y: Sequence[object], **more: object
) -> dict[str, Any]:
    return {"type": kind, "name": name, "x": x, "y": y, **more}


def _of_streams(history: History) -> list[HistoryEntry]:
    """The snapshots with the rows of a stream's batch, the oldest first."""
    return [snapshot for snapshot in reversed(history) if snapshot.batch.rows is not None]


def _phases(history: History) -> PageSection:
    commits = [snapshot for snapshot in _of_streams(history) if snapshot.previous]
    phases = list(
        dict.fromkeys(name for snapshot in commits for name in phases_of(snapshot.previous))
    )
    times = [snapshot.time for snapshot in commits]
    traces = [
        _trace("bar", phase, times, [snapshot.previous.get(phase, 0) for snapshot in commits])
        for phase in phases
    ]
    about = (
        "Milliseconds of each commit by phase. The next commit records them, so they are shown at "
        "its time."
    )
    if not commits:
        about = "No snapshot says how the commit before it went: they were made by another engine or an earlier release."
    header = ("batch", "attempts", *phases)
    return PageSection(
        title="Commits by phase",
        about=about,
        header=header,
        rows=[[snapshot.previous.get(name) for name in header] for snapshot in reversed(commits)],
        traces=traces,
        layout={"barmode": "stack", "yaxis": {"title": {"text": "ms"}}},
    )


def _batches(history: History) -> PageSection:
    batches = _of_streams(history)
    times = [snapshot.time for snapshot in batches]
    measures = ("rows", "bytes", "files")
    traces = []
    axes = {}
    for place, measure in enumerate(measures):
        values = [getattr(snapshot.batch, measure) for snapshot in batches]
        axis = f"y{place + 1}"
        traces.append(_trace("scatter", measure, times, values, mode=_LINES, yaxis=axis))
        axes[f"yaxis{place + 1}"] = {
            "title": {"text": measure},
            "domain": [0.7 - 0.35 * place, 1 - 0.35 * place],  # one plot below the other
        }
    return PageSection(
        title="Batches",
        about=f"Rows, bytes and files of {count(len(batches), 'batch')} of streams.",
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
        traces=traces if batches else (),
        layout={**axes, "xaxis": {"anchor": "y3"}, "height": 520},
    )


@dataclass(slots=True)
class _Attempts:
    """How often a batch was tried. `attempts` and `conflicts` are known from the snapshot of the
    stream's next batch.

    Attributes:
        batch: the id of the batch.
        time: the time of the batch's snapshot.
        restarts: 1 if a run of the query began with the batch, otherwise 0.
        reused: 1 if an earlier run, which was killed, had written the files, otherwise 0.
        attempts: how many attempts the commit took; None if no later snapshot says that.
        conflicts: how many compactions conflicted with the commit; None if no later snapshot says
            that.
    """

    batch: int | None
    time: str
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
    times = [batch.time for batch in batches]
    # Zeros become None, and None is not drawn. So a batch without conflicts has no mark.
    columns = {
        name: [batch.numbers()[place] or None for batch in batches]
        for place, name in enumerate(_ATTEMPT_NUMBERS)
    }
    totals = {name: sum(filter(None, numbers)) for name, numbers in columns.items()}
    commits = len(list(filter(None, columns["attempts"])))
    lost_attempts = totals["attempts"] - commits
    largest = max((number or 0 for batch in batches for number in batch.numbers()), default=0)
    return PageSection(
        title="Attempts and conflicts",
        about=f"Other writers were faster at {count(lost_attempts, 'attempt')}, and {count(totals['conflicts'], 'compaction')} lost to "
        f"them. The query was restarted {totals['restarts']:,} times, and reused the files of a killed run {totals['reused']:,} times. A "
        "batch that failed and was never run again left no snapshot, so it is not shown.",
        header=("batch", "time", *_ATTEMPT_NUMBERS),
        rows=[[batch.batch, batch.time, *batch.numbers()] for batch in batches],
        traces=[
            _trace(
                "scatter",
                name,
                times,
                numbers,
                mode=_LINES if name == "attempts" else "markers",
                marker={"size": 12 - 2 * place},
            )
            for place, (name, numbers) in enumerate(columns.items())
            if any(numbers)
        ],
        layout={"yaxis": {"rangemode": "tozero", "dtick": 1 + largest // 8}},
    )


def _writers(history: History) -> PageSection:
    grouped: dict[tuple[str, str], list[HistoryEntry]] = defaultdict(list)
    for snapshot in history:
        grouped[snapshot.marks.query_name or snapshot.user, snapshot.kind].append(snapshot)
    traces = []
    rows = []
    for (writer, kind), snapshots in grouped.items():
        label = writer[-30:]
        times = [snapshot.time for snapshot in snapshots]
        labels = [label] * len(snapshots)
        ids = [f"snapshot {snapshot.id}" for snapshot in snapshots]
        traces.append(_trace("scatter", f"{label} {kind}", times, labels, mode="markers", text=ids))
        rows.append((writer, kind, len(snapshots), snapshots[-1].time, snapshots[0].time))
    return PageSection(
        title="Writers",
        about="Who made which snapshot, and when.",
        header=("writer", "kind", "snapshots", "first", "last"),
        rows=rows,
        traces=traces[:_MOST_GROUPS],
        layout={"margin": {**_TOP, "l": 200}, "yaxis": {"type": "category"}},
    )


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
    times = [time for _, time, _, _ in rows]
    numbers = [number for _, _, number, _ in rows]
    sizes = [total_bytes for _, _, _, total_bytes in rows]
    traces = [
        _trace("scatter", "manifests", times, numbers, mode=_LINES, yaxis="y"),
        _trace("scatter", "bytes", times, sizes, mode=_LINES, yaxis="y2"),
    ]
    about = "There are no snapshots."
    if snapshots:
        ids = [snapshot.id for snapshot in snapshots]
        about = f"{count(len(ids), 'snapshot')}, {min(ids)} to {max(ids)}."
    return PageSection(
        title="Manifests",
        about=f"{about} A commit reads the manifests that a snapshot has, so they should be few.",
        header=("snapshot", "time", "manifests", "bytes"),
        rows=rows,
        traces=traces if rows else (),
        layout={
            "yaxis": {"title": {"text": "manifests"}},
            "yaxis2": {
                "title": {"text": "bytes"},
                "overlaying": "y",
                "side": "right",
                "showgrid": False,
            },
            "margin": {**_TOP, "r": 90},
        },
    )


def _sizes(table: Table, live: list[ManifestEntry]) -> PageSection:
    grouped: dict[str, list[int]] = defaultdict(list)
    for entry in live:
        partition = _named(partition_by_column(table.layout, entry.partition)) or "all"
        grouped[partition].append(entry.file.file_size)
    by_number = sorted(grouped.items(), key=lambda group: -len(group[1]))
    rows = [_sizes_of_partition(partition, sizes) for partition, sizes in by_number]
    drawn = rows[:_MOST_GROUPS]
    positions = (("lowerfence", 3), ("q1", 4), ("median", 5), ("q3", 6), ("upperfence", 7))
    box = {
        "type": "box",
        "x": [row[0] for row in drawn],
        **{key: [row[position] for row in drawn] for key, position in positions},
    }
    total = sum(map(sum, grouped.values()))
    share = f" The {len(drawn)} with most files are drawn." if len(drawn) < len(rows) else ""
    return PageSection(
        title="Sizes of files",
        about=f"{count(len(live), 'file')} of {size(total, 'bytes')} in {count(len(rows), 'partition')}.{share}",
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
        traces=[box] if rows else (),
        layout={
            "yaxis": {"type": "log", "title": {"text": "bytes"}},
            "xaxis": {"type": "category"},
        },
    )


def _sizes_of_partition(partition: str, sizes: Sequence[int]) -> tuple[object, ...]:
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
    names = [f"{partition} {bucket}".strip() for partition, bucket, _ in drawn]
    bars = _trace("bar", "files", names, [files for _, _, files in drawn])
    return PageSection(
        title="Files of level 0",
        about="New files that no compaction has merged yet. A reader merges all those of a bucket. Buckets with the most files come first.",
        header=("partition", "bucket", "files"),
        rows=rows,
        traces=[bars] if rows else (),
        layout={"xaxis": {"type": "category", "title": {"text": "bucket"}}},
    )


def _amplification(table: Table) -> PageSection:
    report = compact(lambda: table, full=not table.schema.primary_keys, dry_run=True)
    buckets = sorted(report.compacted, key=lambda bucket: bucket.reads_after - bucket.reads_before)
    drawn = buckets[:_MOST_GROUPS]
    names = [f"{_named(bucket.partition)} {bucket.bucket}".strip() for bucket in drawn]
    traces = [
        _trace("bar", "now", names, [bucket.reads_before for bucket in drawn]),
        _trace("bar", "after a compaction", names, [bucket.reads_after for bucket in drawn]),
    ]
    advice = "Run: paimon-stream compact" if buckets else "Nothing needs a compaction."
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
        traces=traces if buckets else (),
        layout={"barmode": "group", "xaxis": {"type": "category"}},
    )


def _findings(table: Table, sample: int) -> PageSection:
    report = verify(table, sample=sample, progress=silent)
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


_PAGE: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width"><meta http-equiv="Content-Security-Policy"
content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">
<style>{style}</style><script>{plotly}</script></head><body>{body}<script>{script}</script></body></html>"""

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1f2328; --paper: #ffffff; --line: #d0d7de; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --line: #30363d; } }
@media print { :root { --ink: #000000; --paper: #ffffff; } section { break-inside: avoid; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2em auto;
  max-width: 70em; padding: 0 1em; }
h2 { display: inline; font-size: 1.2em; overflow-wrap: anywhere; } h3 { margin-bottom: 0; } summary { cursor: pointer; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.9em; }
th, td { border-bottom: 1px solid var(--line); padding: 0.2em 0.8em 0.2em 0; text-align: left; vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
"""

# The plots of a table are drawn when the table is opened, because drawing the plots of all tables
# at once would take long.
_SCRIPT: Final = """
const ink = () => getComputedStyle(document.body).color;
const look = () => ({ "font.color": ink(), paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" });
const grid = { gridcolor: "rgba(128,128,128,0.25)", zerolinecolor: "rgba(128,128,128,0.5)" };
const template = { layout: { xaxis: grid, yaxis: grid } };
const hidden = (plot) => { const table = plot.closest("details.table"); return table && !table.open; };
function draw() {
  for (const plot of document.querySelectorAll(".plot")) {
    if (plot.dataset.drawn || hidden(plot)) continue;
    const spec = JSON.parse(plot.nextElementSibling.textContent);
    const layout = { height: 340, legend: { orientation: "h" }, template, ...spec.layout };
    Plotly.newPlot(plot, spec.data, layout, { responsive: true, displayModeBar: false })
      .then(() => Plotly.relayout(plot, look()));
    plot.dataset.drawn = "yes";
  }
}
const again = () => document.querySelectorAll(".plot[data-drawn]").forEach((plot) => Plotly.relayout(plot, look()));
document.querySelectorAll("details.table").forEach((one) => one.addEventListener("toggle", draw));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
addEventListener("beforeprint", () => {
  document.querySelectorAll("details").forEach((one) => { one.open = true; });
  draw();
  again();
});
draw();
"""
