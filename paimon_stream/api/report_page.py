"""`PaimonTable.report`: a page about a table, with plots and their numbers, that needs no network
(docs/monitoring.md). A part that cannot be read says so, and the others are drawn.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from operator import attrgetter
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

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

_MOST_LISTS: Final = 40
_MOST_GROUPS: Final = 40
_MOST_ROWS: Final = 100
_LINES: Final = "lines+markers"
_TOP: Final = {"t": 10, "b": 60, "l": 60, "r": 20}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSection:
    """A part of the page: a plot in Plotly's form, and a table with its numbers. `about` says what
    they show, or why there is nothing to show.
    """

    title: str
    about: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    traces: Sequence[Mapping[str, Any]] = ()
    layout: Mapping[str, Any] = field(default_factory=dict)

    def html(self, name: str) -> str:
        """The section. What its plot shows is in the element `name`, for the page's script."""
        figure = json.dumps(
            {"data": self.traces, "layout": {"margin": _TOP, **self.layout}}
        ).replace("<", "\\u003c")
        plot = (
            f'<div class="plot" id="{name}"></div><script type="application/json">{figure}</script>'
        )
        shown = self.rows[:_MOST_ROWS]
        of = f", {len(shown):,} of {len(self.rows):,}" if len(shown) < len(self.rows) else ""
        table = f"<details><summary>Numbers{of}</summary>{_table(self.header, shown)}</details>"
        inside = (plot if self.traces else "") + (
            table if self.traces else _table(self.header, shown)
        ) * bool(shown)
        return (
            f"<section><h3>{escape(self.title)}</h3><p>{escape(self.about)}</p>{inside}</section>"
        )


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    def cell(one: object) -> str:
        number = isinstance(one, int | float)
        text = "" if one is None else f"{one:,}" if number else escape(str(one))
        return f"<td{' class=n' if number else ''}>{text}</td>"

    titles = "".join(f"<th>{escape(one)}</th>" for one in header)
    body = "".join(f"<tr>{''.join(map(cell, one))}</tr>" for one in rows)
    return f'<div class="wide"><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'


@dataclass(frozen=True, slots=True)
class ReportPage:
    """A page: an overview, and tables by their locations, each with its sections. A notebook shows
    it.
    """

    title: str
    tables: Mapping[str, Sequence[PageSection]]
    overview: PageSection | None = None

    def html(self) -> str:
        """The page, with all that it needs. Raises `MissingExtra` without plotly."""
        plotly = require("plotly.offline", "report", "A report").get_plotlyjs()
        body = "" if self.overview is None else self.overview.html("overview")
        for number, (location, sections) in enumerate(self.tables.items()):
            inside = "".join(
                one.html(f"plot-{number}-{place}") for place, one in enumerate(sections)
            )
            opened = " open" * (len(self.tables) == 1)
            body += f"<details class=table{opened}><summary><h2>{escape(location)}</h2></summary>{inside}</details>"
        made = iso(system().clock.now_millis())
        head = f"<h1>{escape(self.title)}</h1><p>Made by paimon-stream at {made}.</p>"
        return _PAGE.format(
            title=escape(self.title), style=_STYLE, plotly=plotly, script=_SCRIPT, body=head + body
        )

    def save(self, path: str | Path) -> None:
        """Writes the page to a file. Raises `InvalidOption` if that cannot be written, and
        `MissingExtra`.
        """
        text = self.html()
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as why:
            text = f"The report cannot be written to {path}: {why.strerror}. Give another file."
            raise errors.InvalidOption(text, option="path") from None

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
    """The sections about a table: its newest `snapshots`, its files, and what `verify` finds with
    `sample` data files. Raises no error of this package.
    """
    store = SnapshotStore(table.storage)
    wrong: list[str] = []

    def found(snapshot_id: int) -> Snapshot | None:
        try:
            return store.find(snapshot_id)
        except errors.FormatError as damaged:
            wrong.append(damaged.message)
            return None

    def history() -> list[Snapshot]:
        reads = [partial(found, one) for one in store.ids()[-snapshots:]]
        return [one for one in table.storage.together(reads) if one is not None]

    newest = _tried([], history, wrong)
    entries = History.of(newest)
    live = _tried([], lambda: snapshot_files(table, store.latest()), wrong)
    made: list[tuple[str, Callable[[], PageSection]]] = [
        ("Commits by phase", lambda: _phases(entries)),
        ("Batches", lambda: _batches(entries)),
        ("Attempts and conflicts", lambda: _attempts(entries)),
        ("Writers", lambda: _writers(entries)),
        ("Manifests", lambda: _manifests(table, newest)),
        ("Sizes of files", lambda: _sizes(table, live)),
        ("Files of level 0", lambda: _levels(table, live)),
        ("Read amplification", lambda: _amplification(table)),
        ("Findings of verify", lambda: _findings(table, sample)),
    ]
    damaged = [PageSection(title="Not readable", about=one) for one in dict.fromkeys(wrong)]
    return [*damaged, *(_tried_section(title, make) for title, make in made)]


def _tried(nothing: Any, read: Callable[[], Any], wrong: list[str]) -> Any:
    try:
        return read()
    except errors.PaimonStreamError as why:
        wrong.append(why.message)
        return nothing


def _tried_section(title: str, make: Callable[[], PageSection]) -> PageSection:
    try:
        return make()
    except errors.PaimonStreamError as why:
        return PageSection(title=title, about=f"This cannot be shown: {why.message}")


def _named(partition: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in partition.items())


def _trace(
    kind: str, name: str, x: Sequence[object], y: Sequence[object], **more: object
) -> dict[str, Any]:
    return {"type": kind, "name": name, "x": x, "y": y, **more}


def _of_streams(entries: History) -> list[HistoryEntry]:
    """The snapshots with the rows of a stream's batch, the oldest first."""
    return [one for one in reversed(entries) if one.batch.rows is not None]


def _phases(entries: History) -> PageSection:
    known = [one for one in _of_streams(entries) if one.previous]
    names = list(dict.fromkeys(name for one in known for name in phases_of(one.previous)))
    times = [one.time for one in known]
    traces = [
        _trace("bar", name, times, [one.previous.get(name, 0) for one in known]) for name in names
    ]
    about = (
        "Milliseconds of each commit by step, at the time of the commit after it, which says so."
    )
    none = "No snapshot says how the commit before it went: they were made by another engine or an earlier release."
    return PageSection(
        title="Commits by phase",
        about=about if known else none,
        header=("batch", "attempts", *names),
        rows=[
            [one.previous.get(name) for name in ("batch", "attempts", *names)]
            for one in reversed(known)
        ],
        traces=traces,
        layout={"barmode": "stack", "yaxis": {"title": {"text": "ms"}}},
    )


def _batches(entries: History) -> PageSection:
    found, shown = _of_streams(entries), ("rows", "bytes", "files")
    times = [one.time for one in found]
    traces = [
        _trace(
            "scatter",
            name,
            times,
            [getattr(one.batch, name) for one in found],
            mode=_LINES,
            yaxis=f"y{place + 1}",
        )
        for place, name in enumerate(shown)
    ]
    axes = {
        f"yaxis{place + 1}": {
            "title": {"text": name},
            "domain": [0.7 - 0.35 * place, 1 - 0.35 * place],
        }
        for place, name in enumerate(shown)
    }
    return PageSection(
        title="Batches",
        about=f"Rows, bytes and files of {count(len(found), 'batch')} of streams.",
        header=("batch", "time", *shown, "write ms"),
        rows=[
            (
                one.identifier,
                one.time,
                one.batch.rows,
                one.batch.bytes,
                one.batch.files,
                one.batch.write_millis,
            )
            for one in reversed(found)
        ],
        traces=traces if found else (),
        layout={**axes, "xaxis": {"anchor": "y3"}, "height": 520},
    )


def _attempts(entries: History) -> PageSection:
    made, runs = dict[tuple[str, int | None], list[Any]](), dict[str, str | None]()
    for one in _of_streams(entries):
        restarted = runs.get(one.user, one.marks.run_id) != one.marks.run_id
        runs[one.user] = one.marks.run_id
        made[one.user, one.identifier] = [
            one.identifier,
            one.time,
            None,
            None,
            int(restarted),
            one.batch.reused or 0,
        ]
        if one.previous and (before := made.get((one.user, one.previous.get("batch")))):
            before[2:4] = one.previous.get("attempts", 1), one.previous.get("conflicts", 0)
    rows, names = list(made.values())[::-1], ("attempts", "conflicts", "restarts", "reused")
    times, columns = (
        [row[1] for row in rows],
        [[row[at] or None for row in rows] for at in range(2, 6)],
    )
    tries, conflicts, restarts, reused = (sum(filter(None, numbers)) for numbers in columns)
    lost, most = (
        tries - len([*filter(None, columns[0])]),
        max((one or 0 for row in rows for one in row[2:]), default=0),
    )
    return PageSection(
        title="Attempts and conflicts",
        about=f"Other writers were faster at {count(lost, 'attempt')}, and {count(conflicts, 'compaction')} lost to "
        f"them. The query began anew {restarts:,} times, and {reused:,} times it had files of a run that was killed. "
        "A batch that failed and was never run again left no snapshot, and is not here.",
        header=("batch", "time", *names),
        rows=rows,
        traces=[
            _trace(
                "scatter",
                name,
                times,
                column,
                mode="markers" if at else _LINES,
                marker={"size": 12 - 2 * at},
            )
            for at, (name, column) in enumerate(zip(names, columns, strict=True))
            if any(column)
        ],
        layout={"yaxis": {"rangemode": "tozero", "dtick": 1 + most // 8}},
    )


def _writers(entries: History) -> PageSection:
    grouped: dict[tuple[str, str], list[HistoryEntry]] = defaultdict(list)
    for one in entries:
        grouped[one.marks.query_name or one.user, one.kind].append(one)
    traces = []
    for (who, kind), made in grouped.items():
        name, texts = who[-30:], [f"snapshot {one.id}" for one in made]
        times = [one.time for one in made]
        traces.append(
            _trace(
                "scatter", f"{name} {kind}", times, [name] * len(made), mode="markers", text=texts
            )
        )
    return PageSection(
        title="Writers",
        about="Who made which snapshot, and when.",
        header=("writer", "kind", "snapshots", "first", "last"),
        rows=[
            (who, kind, len(made), made[-1].time, made[0].time)
            for (who, kind), made in grouped.items()
        ],
        traces=traces[:_MOST_GROUPS],
        layout={"margin": {**_TOP, "l": 200}, "yaxis": {"type": "category"}},
    )


def _manifests(table: Table, snapshots: list[Snapshot]) -> PageSection:
    manifests, rows = ManifestStore(table.storage), list[tuple[int, str, int, int]]()
    for one in snapshots[:: -max(-(-len(snapshots) // _MOST_LISTS), 1)]:
        metas = manifests.base_and_delta(one)
        rows.append(
            (one.id, iso(one.time_millis) or "", len(metas), sum(meta.file_size for meta in metas))
        )
    times = [row[1] for row in rows]
    traces = [
        _trace("scatter", name, times, [row[at] for row in rows], mode=_LINES, yaxis=axis)
        for name, at, axis in (("manifests", 2, "y"), ("bytes", 3, "y2"))
    ]
    ids = [one.id for one in snapshots]
    about = (
        f"{count(len(ids), 'snapshot')}, {min(ids)} to {max(ids)}."
        if ids
        else "There are no snapshots."
    )
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
    for one in live:
        grouped[_named(partition_by_column(table.layout, one.partition)) or "all"].append(
            one.file.file_size
        )
    rows, most = list[tuple[object, ...]](), sorted(grouped.items(), key=lambda item: -len(item[1]))
    for name, sizes in most:
        low, middle, high = (
            quantiles(sizes, n=4, method="inclusive") if len(sizes) > 1 else sizes * 3
        )
        rows.append(
            (
                name,
                len(sizes),
                sum(sizes),
                min(sizes),
                round(low),
                round(middle),
                round(high),
                max(sizes),
            )
        )
    keys = (("lowerfence", 3), ("q1", 4), ("median", 5), ("q3", 6), ("upperfence", 7))
    shown = rows[:_MOST_GROUPS]
    box = {
        "type": "box",
        "x": [row[0] for row in shown],
        **{key: [row[at] for row in shown] for key, at in keys},
    }
    total = sum(map(sum, grouped.values()))
    few = f" The {len(shown)} with most files are drawn." if len(shown) < len(rows) else ""
    return PageSection(
        title="Sizes of files",
        about=f"{count(len(live), 'file')} of {size(total, 'bytes')} in {count(len(rows), 'partition')}.{few}",
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


def _levels(table: Table, live: list[ManifestEntry]) -> PageSection:
    if not table.schema.primary_keys:
        return PageSection(
            title="Files of level 0",
            about="The table has no primary key, so its files have no levels.",
        )
    depth = Counter((one.partition, one.bucket) for one in live if one.file.level == 0)
    found = (
        (partition_by_column(table.layout, one), bucket, files)
        for (one, bucket), files in depth.most_common()
    )
    rows = [(_named(partition), bucket, files) for partition, bucket, files in found]
    names = [f"{partition} {bucket}".strip() for partition, bucket, _ in rows[:_MOST_GROUPS]]
    bars = _trace("bar", "files", names, [row[2] for row in rows[:_MOST_GROUPS]])
    return PageSection(
        title="Files of level 0",
        about="New files that no compaction has merged yet. Readers merge all of a bucket. The deepest come first.",
        header=("partition", "bucket", "files"),
        rows=rows,
        traces=[bars] if rows else (),
        layout={"xaxis": {"type": "category", "title": {"text": "bucket"}}},
    )


def _amplification(table: Table) -> PageSection:
    report = compact(lambda: table, full=not table.schema.primary_keys, dry_run=True)
    found = sorted(report.buckets, key=lambda one: one.reads_after - one.reads_before)
    facts = attrgetter("bucket", "files", "bytes", "reads_before", "reads_after")
    rows = [(_named(one.partition), *facts(one)) for one in found]
    shown, bars = rows[:_MOST_GROUPS], (("now", 4), ("after a compaction", 5))
    names = [f"{row[0]} {row[1]}".strip() for row in shown]
    traces = [_trace("bar", name, names, [row[at] for row in shown]) for name, at in bars]
    advice = "Run: paimon-stream compact" if rows else "Nothing needs a compaction."
    return PageSection(
        title="Read amplification",
        about=f"What a reader opens for one file that it needs: {report.read_amplification:.1f}. {advice}",
        header=("partition", "bucket", "files", "bytes", "read now", "then"),
        rows=rows,
        traces=traces if rows else (),
        layout={"barmode": "group", "xaxis": {"type": "category"}},
    )


def _findings(table: Table, sample: int) -> PageSection:
    found = verify(table, sample=sample, progress=silent)
    looked_at = ", ".join(f"{what} {number:,}" for what, number in found.checked.items())
    return PageSection(
        title="Findings of verify",
        about=f"{'Nothing is wrong.' if not found.findings else ''} Looked at: {looked_at}.".strip(),
        header=("severity", "code", "file", "what", "what to do"),
        rows=[(one.severity, one.code, one.path, one.message, one.cure) for one in found.findings],
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

# A table's plots are drawn when it is opened, because those of all tables at once would take long.
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
