"""What trigger, file size, buckets and parallelism change for streams into our tables, measured in
one run.

    python benchmarks/tuning.py --out build/tuning.json                 # about 15 minutes on two quiet cores
    python benchmarks/tuning.py --parts trigger,buckets --rounds 5 --out build/tuning.json
    python benchmarks/tuning.py --small --rounds 1                      # a smoke run, whose figures say nothing
    python benchmarks/tuning.py --draw build/tuning.json docs           # docs/tuning-trigger.svg and so on
    python benchmarks/tuning.py --fill build/tuning.json docs/tuning.md # the tables of that page

trigger: batches of 1,000 to 1,000,000 rows, into an append table, into a table with a primary key
(4 buckets, half of the rows update earlier keys), and into a sink that does nothing. files:
`PaimonTable.append` writes the same rows with different values of `target-file-size`, and in many
batches. Each table is read as a whole, and a hundredth of it by a filter on the column `id`, which
rises with time. buckets: the same upserts into tables with different numbers of buckets, compacted
by the stream, as is the default. parallelism: the same rows in DataFrames of 1 to 64 partitions.
The batches are too large for the driver to write. streams: several streams at once append batches
of 1,000 rows to one table, as fast as they can. Only the time in which all of them commit counts.

One session of Spark, local[2], runs the streams. A round runs every case of every part once, in an
order that rotates. The figures are medians of the rounds, but times are the shortest, because other
work on a machine only lengthens them. A stream's first batches are not measured. CPU is that of the
driver, the JVM and the Python workers. A process of its own writes or reads each table of the part
`files`, and reads those of `buckets`; its memory is the peak of its resident set. After each
stream, the rows and sums of the table are compared with those of its source. If the file of `--out`
is there, the rounds are added to those that it has. `--draw` needs matplotlib. `--fill` replaces the
table below each comment `<!-- figures: trigger -->` and so on, and the line below
`<!-- figures: conditions -->`; the text around them stays, so read it again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from peers.data import expected, make_data, sums_of  # noqa: E402
from peers.loads import DDL, Load  # noqa: E402
from peers.machine import machine, today  # noqa: E402
from peers.processes import cpu_seconds  # noqa: E402
from peers.systems import System, make_system  # noqa: E402
from write_task import COLUMNS, Source  # noqa: E402

from paimon_stream import PaimonSink, PaimonTable  # noqa: E402

Figures = dict[str, float]
Case = tuple[dict[str, Any], Callable[[], Figures]]
"""What is varied, and what measures it once."""

_TRIGGER = ((1_000, 2, 20), (10_000, 2, 15), (100_000, 2, 8), (1_000_000, 1, 2))
"""Rows of a batch, batches that are not measured, and batches that are."""

_TARGETS = ("4 mb", "16 mb", "64 mb", "256 mb")
_BUCKETS = (1, 2, 4, 8, 16, 64, 0)
_PARTITIONS = (1, 2, 4, 8, 16, 64)
_KEYED_PARTITIONS = (2, 8, 64)
_KEYED_BUCKETS = (2, 8)
_UNSHUFFLED = "8 buckets, not shuffled"
_STREAMS = ((1, "auto"), (2, "auto"), (4, "auto"), (8, "auto"), (1, "off"), (8, "off"))
_SMALL = "paimon-stream.small-batch"
_BATCH = 10_000
_STREAM = Load(name="tuning", title="a stream")


class Streams:
    """One session of Spark, in the process that leads the session of all processes."""

    def __init__(self, folder: Path) -> None:
        from peers.child import session_of

        self.folder, self.number = folder, 0
        self.spark = session_of(make_system("noop", folder), folder, "2g", [])

    def warm(self, load: Load) -> None:
        """Runs one stream of each kind, so that the JVM has compiled what the first cases need."""
        for system, keyed in (("ours", False), ("ours", True), ("noop", False)):
            self.run(system, replace(load, keyed=keyed, buckets=4 * keyed, compacted=keyed))

    def run(self, system: str, load: Load, *, merged: bool = False) -> Figures:
        """Runs one stream into a new table, whose files are counted and removed. `merged` also
        reads it.
        """
        from peers.child import run

        source, made, name = self._prepared(system, load)
        order = {
            "table": name,
            "source": str(source),
            "checkpoint": str(self.folder / "checkpoint"),
        }
        found = run(self.spark, made, load, order)
        assert found["rows"] == load.all_rows, (
            f"the stream read {found['rows']} rows, not {load.all_rows}"
        )
        million = 1e6 / load.rows
        figures = {
            "cpu": found["cpu"] * million,
            "wall": found["wall"] * million,
            "rows": load.rows,
        }
        figures["p50"] = statistics.median(found["batch_ms"])
        if system != "noop":
            table = PaimonTable.load(str(made.location(name)))
            assert sums_of(table.to_arrow(columns=["id", "quantity", "amount"])) == expected(source)
            figures |= _files_of(table, load.warm_up)
            figures |= (
                {f"read_{name}": value for name, value in alone(read, table.location).items()}
                if merged
                else {}
            )
        return figures

    def _prepared(self, system: str, load: Load) -> tuple[Path, System, str]:
        """The folder of the source, the system, and the name of a new table. Removes what the last
        stream left.
        """
        for place in ("warehouse", "checkpoint"):
            shutil.rmtree(self.folder / place, ignore_errors=True)
        self.number += 1
        self.spark.conf.set(
            "spark.sql.files.minPartitionNum", load.files_per_batch
        )  # one partition for each file
        source = make_data(load, self.folder / "data")
        return source, make_system(system, self.folder / "warehouse"), f"t{self.number}"

    def together(self, count: int, small_batch: str, load: Load) -> Figures:
        """Runs `count` streams at once, which append the same rows to one table."""
        source, made, name = self._prepared("ours", load)
        made.create(self.spark, name, load)
        location, seen, lock = str(made.location(name)), [], threading.Lock()

        def note(stream: int, report: Any) -> None:
            with lock:
                seen.append(
                    (time.perf_counter(), stream, report.attempts, cpu_seconds(os.getsid(0)))
                )

        queries = []
        for stream in range(count):
            rows = self.spark.readStream.schema(DDL).option(
                "maxFilesPerTrigger", load.files_per_batch
            )
            sink = PaimonSink(
                location, options={_SMALL: small_batch}, on_commit=partial(note, stream)
            )
            checkpoint = str(self.folder / "checkpoint" / str(stream))
            queries.append(
                sink.start(
                    rows.parquet(str(source)), checkpoint=checkpoint, trigger={"availableNow": True}
                )
            )
        for query in queries:
            query.awaitTermination()
        assert PaimonTable.load(location).to_arrow(columns=["id"]).num_rows == count * load.all_rows
        of_each = [[one for one in seen if one[1] == stream] for stream in range(count)]
        first = max(some[load.warm_up - 1] for some in of_each)
        last = min(some[-1] for some in of_each)
        between = sorted(one for one in seen if first < one <= last)
        used = [one[3] for one in sorted(seen) if first <= one <= last]
        batches = [
            one["durationMs"] for query in queries for one in query.recentProgress[load.warm_up :]
        ]
        return {
            "commits_a_second": len(between) / (last[0] - first[0]),
            "attempts": statistics.mean(one[2] for one in between),
            "most_attempts": max(one[2] for one in between),
            # Spark may end an idle worker, whose seconds are then missing.
            "batch_cpu": sum(max(0.0, now - before) for before, now in pairwise(used))
            / len(between),
            "p50": statistics.median(
                one["triggerExecution"] for one in batches if "addBatch" in one
            ),
        }


def _files_of(table: PaimonTable, warm_up: int) -> Figures:
    """The files that a batch added, and those that are there in the end. A run is a file of level
    0, or a level.
    """
    batches = [
        one.batch
        for one in table.history()
        if one.kind == "APPEND" and (one.identifier or 0) >= warm_up
    ]
    files, size = sum(one.files or 0 for one in batches), sum(one.bytes or 0 for one in batches)
    runs: dict[int, set[object]] = {}
    for file in table.files():
        runs.setdefault(file.bucket, set()).add(file.meta.level or file.meta.file_name)
    return {
        "files_a_batch": files / len(batches),
        "kb_a_file": size / files / 1000,
        "files": len(table.files()),
        "runs": max(map(len, runs.values())),
        "buckets": len(runs),
    }


def alone(function: Callable[..., Figures], *arguments: Any) -> Figures:
    """Calls the function in a process of its own, which has not done anything else."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def _peak() -> float:
    """The peak of this process's memory in MiB."""
    line = next(
        one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM")
    )
    return int(line.split()[1]) / 1024


def write(location: str, target: str, rows: int, commits: int) -> Figures:
    """Appends the rows in this number of commits. The CPU seconds do not include the time to make
    the rows.
    """
    table = PaimonTable.create(location, list(COLUMNS), options={"target-file-size": target})
    size = min(_BATCH, rows // commits)
    source = Source(rows, size, 1)
    schema = next(iter(Source(1, 1, 1))).schema
    batches: Iterator[pa.RecordBatch] = iter(source)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(commits):
        table.append(
            pa.RecordBatchReader.from_batches(schema, islice(batches, rows // commits // size))
        )
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    files = [file.file_size for file in table.files()]
    mean = sum(files) / len(files) / 1e6
    return {
        "write_cpu": cpu - source.cpu,
        "write_wall": wall,
        "files": len(files),
        "mb_a_file": mean,
        "memory": _peak(),
    }


def read(location: str, share: float = 1.0) -> Figures:
    """Reads all rows, or this share of them by a filter on `id`."""
    table = PaimonTable.load(location)
    rows = sum(file.row_count for file in table.files())
    table.to_arrow(filter=pc.field("id") < 0)  # imports what reading needs
    first, last = int(rows * 0.4), int(rows * (0.4 + share))
    chosen = None if share == 1 else (pc.field("id") >= first) & (pc.field("id") < last)
    wall, cpu = time.perf_counter(), time.process_time()
    found = table.to_arrow(filter=chosen).num_rows
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert chosen is None or found == last - first
    return {"cpu": cpu, "wall": wall, "memory": _peak()}


def of_files(folder: Path, target: str, rows: int, commits: int) -> Figures:
    """Writes one table, and reads it in both ways."""
    location = str(folder / "files.db" / "t")
    written = alone(write, location, target, rows, commits)
    whole, some = alone(read, location), alone(read, location, 0.01)
    shutil.rmtree(location)
    names = [("", written), ("read_", whole), ("filter_", some)]
    return {f"{start}{name}": value for start, part in names for name, value in part.items()}


def one_round(part: str, cases: list[Case], found: list[dict[str, Any]], turn: int) -> None:
    """Measures all cases once. The order depends on the round."""
    for number in range(len(cases)):
        what, measure = cases[(turn + number) % len(cases)]
        figures = measure()
        next(case for case in found if {**case, **what} == case)["rounds"].append(figures)
        shown = " ".join(f"{name} {value:.4g}" for name, value in figures.items())
        print(f"{part} {turn + 1}: {' '.join(map(str, what.values()))}: {shown}", flush=True)


def cases_of(part: str, streams: Streams, *, small: bool) -> list[Case]:
    """The cases of a part."""
    run, cut = streams.run, 50 if small else 1
    if part == "trigger":
        found: list[Case] = []
        for rows, warm_up, batches in _TRIGGER:
            load = replace(
                _STREAM,
                rows_per_batch=max(200, rows // cut),
                warm_up=warm_up,
                batches=max(2, batches // cut),
            )
            keyed = replace(load, keyed=True, buckets=4, compacted=True)
            of_each = {
                "append": ("ours", load),
                "primary key": ("ours", keyed),
                "noop": ("noop", load),
            }
            found += [
                ({"table": kind, "rows": rows}, partial(run, *some))
                for kind, some in of_each.items()
            ]
        return found
    if part == "files":
        rows = 8_000_000 // cut
        of_target = [
            ({"written": one, "commits": 1}, partial(of_files, streams.folder, one, rows, 1))
            for one in _TARGETS
        ]
        many = 400 // cut
        return [
            *of_target,
            (
                {"written": "256 mb", "commits": many},
                partial(of_files, streams.folder, "256 mb", rows, many),
            ),
        ]
    if part == "buckets":
        load = replace(
            _STREAM, rows_per_batch=100_000 // cut, batches=8, keyed=True, compacted=True
        )
        tables = [(count or "dynamic", replace(load, buckets=count)) for count in _BUCKETS]
        return [({"buckets": name}, partial(run, "ours", one, merged=True)) for name, one in tables]
    if part == "parallelism":
        load = replace(_STREAM, rows_per_batch=192_000 // cut, batches=6)
        keyed = replace(
            load, rows_per_batch=384_000 // cut, batches=2, warm_up=1, keyed=True, compacted=True
        )
        gathered = "ours+paimon-stream.shuffle=bucket"
        kinds = [
            ("append", "ours", load, _PARTITIONS),
            *(
                (f"{n} buckets", gathered, replace(keyed, buckets=n), _KEYED_PARTITIONS)
                for n in _KEYED_BUCKETS
            ),
            (
                _UNSHUFFLED,
                "ours+paimon-stream.shuffle=none",
                replace(keyed, buckets=8),
                _KEYED_PARTITIONS,
            ),
        ]
        return [
            (
                {"table": kind, "partitions": count},
                partial(run, system, replace(one, files_per_batch=count)),
            )
            for kind, system, one, counts in kinds
            for count in counts
        ]
    load = replace(
        _STREAM, rows_per_batch=1_000 // min(cut, 5), batches=20 // min(cut, 5), warm_up=4
    )
    written_by = {"auto": "the driver", "off": "tasks"}
    return [
        (
            {"streams": count, "written by": written_by[how]},
            partial(streams.together, count, how, load),
        )
        for count, how in _STREAMS
    ]


PARTS = ("trigger", "files", "buckets", "parallelism", "streams")

_TITLES = {
    "cpu": ("CPU s for a million rows", 1),
    "wall": ("s for a million rows", 1),
    "p50": ("ms of a batch (p50)", 0),
    "files_a_batch": ("files of a batch", 1),
    "kb_a_file": ("KB of a file", 0),
    "files": ("files at the end", 0),
    "runs": ("runs of the deepest bucket", 0),
    "read_cpu": ("CPU s to read all", 2),
    "read_wall": ("s to read all", 2),
    "filter_cpu": ("CPU s to read 1 %", 2),
    "filter_wall": ("s to read 1 %", 2),
    "mb_a_file": ("MB of a file", 1),
    "write_cpu": ("CPU s to write", 1),
    "memory": ("MiB of the writer", 0),
    "commits_a_second": ("commits a second", 1),
    "batch_cpu": ("CPU s of a batch", 2),
    "attempts": ("attempts of a commit", 2),
    "most_attempts": ("most of one", 0),
}
"""What a figure is called, and how many digits of it are shown."""

_SHOWN = {
    "trigger": ("cpu", "p50", "files_a_batch", "kb_a_file"),
    "files": (
        "write_cpu",
        "memory",
        "files",
        "mb_a_file",
        "read_cpu",
        "read_wall",
        "filter_cpu",
        "filter_wall",
    ),
    "buckets": (
        "cpu",
        "p50",
        "files_a_batch",
        "kb_a_file",
        "files",
        "runs",
        "read_cpu",
        "read_wall",
    ),
    "parallelism": ("cpu", "wall", "files_a_batch", "kb_a_file"),
    "streams": ("commits_a_second", "batch_cpu", "p50", "attempts", "most_attempts"),
}
"""The columns of each part's table."""


def middle(case: dict[str, Any], name: str) -> float | None:
    """A figure of a case: the median of its rounds, of times the best. None if the case does not
    have it.
    """
    values = [one[name] for one in case["rounds"] if name in one]
    if not values:
        return None
    if name.endswith(("wall", "p50")):
        return min(values)
    return (
        max(values) if name in ("commits_a_second", "most_attempts") else statistics.median(values)
    )


def table_of(part: str, cases: list[dict[str, Any]]) -> str:
    """The figures of a part as a table of Markdown, with the range of the first one."""
    names, what = _SHOWN[part], [name for name in cases[0] if name != "rounds"]
    head = [*what, *(_TITLES[name][0] for name in names), "least – most of the first"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(what)}{'--:|' * (len(names) + 1)}"]
    for case in cases:
        cells = [f"{case[name]:,}" if isinstance(case[name], int) else case[name] for name in what]
        for name in names:
            value = middle(case, name)
            cells.append("" if value is None else f"{value:,.{_TITLES[name][1]}f}")
        of_first = [one[names[0]] for one in case["rounds"]]
        lines.append(f"| {' | '.join(cells)} | {min(of_first):,.2f} – {max(of_first):,.2f} |")
    return "\n".join(lines)


def fill(source: str, page: str) -> None:
    """Puts the tables and conditions of the figures into a page."""
    figures = json.loads(Path(source).read_text())
    facts = figures["machine"]
    rounds = [len(case["rounds"]) for cases in figures["parts"].values() for case in cases]
    conditions = (
        f"Measured {figures['date']} on {facts['cores']} cores and {facts['memory_gib']} GiB of memory, "
        f"pyspark {figures['versions']['pyspark']}; {min(rounds)} rounds or more.\n"
    )
    blocks = {part: f"{table_of(part, cases)}\n" for part, cases in figures["parts"].items()}
    text = Path(page).read_text()
    for name, block in {"conditions": conditions, **blocks}.items():
        mark = f"<!-- figures: {name} -->\n\n"
        before, found, after = text.partition(mark)
        if not found:
            sys.exit(f"{page} has no line {mark.strip()}.")
        end = after.index("\n\n")
        text = f"{before}{mark}{block.rstrip()}{after[end:]}"
    Path(page).write_text(text)


_RED, _BLUE, _GREY = "#d1573f", "#3a87ad", "#767b81"


def draw(source: str, folder: str) -> None:
    """Draws a picture of each part, for pages that are light or dark."""
    import matplotlib
    import matplotlib.pyplot as plt

    matplotlib.rcParams.update(
        {"svg.hashsalt": "tuning", "svg.fonttype": "none", "font.family": "sans-serif"}
    )
    matplotlib.rcParams.update(
        {f"{name}color": _GREY for name in ("text.", "axes.label", "xtick.", "ytick.", "axes.edge")}
    )
    matplotlib.rcParams.update(
        {
            "font.size": 11,
            "axes.titlesize": 11,
            "xtick.labelsize": 9.5,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )
    parts = json.loads(Path(source).read_text())["parts"]
    drawn = (
        ("trigger", _draw_trigger),
        ("files", _draw_files),
        ("buckets", _draw_buckets),
        ("parallelism", _draw_tasks),
    )
    for part, into in drawn:
        if part in parts and (part != "parallelism" or "streams" in parts):
            figure, both = plt.subplots(1, 2, figsize=(8, 3.1), layout="constrained")
            into(parts, *both)
            for axes in both:
                axes.grid(axis="y", color=_GREY, alpha=0.25)
                axes.set_axisbelow(True)
            figure.savefig(
                Path(folder) / f"tuning-{part}.svg", metadata={"Date": None}, transparent=True
            )


def _draw_trigger(parts: dict[str, Any], left: Any, right: Any) -> None:
    rows = sorted({case["rows"] for case in parts["trigger"]})
    for kind, colour, mark in (
        ("append", _BLUE, "o"),
        ("primary key", _RED, "s"),
        ("noop", _GREY, "^"),
    ):
        cases = [case for case in parts["trigger"] if case["table"] == kind]
        for axes, name in ((left, "cpu"), (right, "kb_a_file")):
            values = [middle(case, name) for case in cases]
            if None not in values:
                axes.plot(
                    [case["rows"] for case in cases], values, color=colour, marker=mark, label=kind
                )
    for axes in (left, right):
        axes.set(xscale="log", yscale="log", xlabel="rows of a batch")
        axes.set_xticks(rows, [f"{one:,}" for one in rows])
        low, high = axes.get_ylim()
        marks = [
            step * 10**power
            for power in range(6)
            for step in (1, 3)
            if low <= step * 10**power <= high
        ]
        axes.set_yticks(marks, [f"{one:,}" for one in marks])
        axes.minorticks_off()
    left.set_title("CPU seconds for a million rows")
    right.set_title("KB of a file")
    left.legend(frameon=False)


def _draw_files(parts: dict[str, Any], left: Any, right: Any) -> None:
    cases = parts["files"]
    names = [
        case["written"].upper() if case["commits"] == 1 else f"{case['commits']}\nbatches"
        for case in cases
    ]
    _bars(
        left,
        names,
        {
            "write": [middle(case, "write_cpu") for case in cases],
            "read all": [middle(case, "read_cpu") for case in cases],
        },
    )
    _bars(right, names, {"": [middle(case, "filter_cpu") for case in cases]})
    left.set_title("CPU seconds for all rows")
    right.set_title("CPU seconds to read 1 % by a filter")
    left.legend(frameon=False)


def _draw_buckets(parts: dict[str, Any], left: Any, right: Any) -> None:
    cases = parts["buckets"]
    names = [str(case["buckets"]) for case in cases]
    _bars(left, names, {"": [middle(case, "cpu") for case in cases]})
    _bars(right, names, {"": [middle(case, "read_cpu") for case in cases]})
    left.set(title="CPU seconds for a million upserts", xlabel="buckets")
    right.set(title="CPU seconds to read the table", xlabel="buckets")


def _draw_tasks(parts: dict[str, Any], left: Any, right: Any) -> None:
    for kind, colour, mark in (
        ("append", _BLUE, "o"),
        ("2 buckets", _RED, "s"),
        ("8 buckets", _GREY, "^"),
    ):
        cases = [case for case in parts["parallelism"] if case["table"] == kind]
        left.plot(
            [case["partitions"] for case in cases],
            [middle(case, "cpu") for case in cases],
            color=colour,
            marker=mark,
            label=kind,
        )
    ticks = [case["partitions"] for case in parts["parallelism"] if case["table"] == "append"]
    left.set(
        xscale="log",
        ylim=(0, None),
        title="CPU seconds for a million rows",
        xlabel="partitions of the DataFrame",
    )
    left.set_xticks(ticks, map(str, ticks))
    left.minorticks_off()
    left.legend(frameon=False)
    cases = [case for case in parts["streams"] if case["written by"] == "the driver"]
    _bars(
        right,
        [str(case["streams"]) for case in cases],
        {"": [middle(case, "attempts") for case in cases]},
    )
    right.set(title="attempts of a commit", xlabel="streams into one table, at once")


def _bars(axes: Any, names: list[str], series: dict[str, list[Any]]) -> None:
    """Bars with their values above them, side by side."""
    width = 0.8 / len(series)
    for number, (label, values) in enumerate(series.items()):
        places = [place + (number - (len(series) - 1) / 2) * width for place in range(len(names))]
        drawn = axes.bar(places, values, width * 0.95, color=(_BLUE, _RED)[number], label=label)
        axes.bar_label(
            drawn,
            [f"{value:.1f}" if value >= 2 else f"{value:.2f}" for value in values],
            padding=2,
            fontsize=9,
        )
    axes.set_xticks(range(len(names)), names)
    axes.margins(y=0.15)


def measure(given: argparse.Namespace, folder: Path) -> None:
    """Measures the parts in turns, and keeps what is done after each."""
    streams = Streams(folder)
    names = given.parts.split(",")
    cases = {part: cases_of(part, streams, small=given.small) for part in names}
    parts: dict[str, Any] = (
        json.loads(given.out.read_text())["parts"] if given.out and given.out.exists() else {}
    )
    for part in names:
        parts.setdefault(part, [{**what, "rounds": []} for what, _ in cases[part]])
    streams.warm(
        replace(
            _STREAM,
            rows_per_batch=2_000 if given.small else 50_000,
            batches=2 if given.small else 8,
        )
    )
    for turn in range(given.rounds):
        for part in names:
            began = time.monotonic()
            one_round(part, cases[part], parts[part], turn)
            print(
                f"\n{part}, {time.monotonic() - began:.0f} s\n\n{table_of(part, parts[part])}\n",
                flush=True,
            )
            if given.out:
                versions = {"pyspark": streams.spark.version, "pyarrow": pa.__version__}
                found = {
                    "date": today(),
                    "machine": machine(),
                    "versions": versions,
                    "parts": parts,
                }
                given.out.parent.mkdir(parents=True, exist_ok=True)
                given.out.write_text(json.dumps(found, indent=1) + "\n")
    streams.spark.stop()


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each part (3)")
    parser.add_argument("--small", action="store_true", help="few rows, for a smoke run")
    parser.add_argument("--out", type=Path, help="write the figures to this file, for --draw")
    parser.add_argument(
        "--draw", nargs=2, metavar=("FIGURES", "FOLDER"), help="draw figures, and measure nothing"
    )
    parser.add_argument(
        "--fill", nargs=2, metavar=("FIGURES", "PAGE"), help="fill a page, and measure nothing"
    )
    given = parser.parse_args()
    if given.draw:
        draw(*given.draw)
    if given.fill:
        fill(*given.fill)
    if given.draw or given.fill:
        return
    if unknown := set(given.parts.split(",")) - set(PARTS):
        parser.error(
            f"There is no part {', '.join(sorted(unknown))}. The parts are {', '.join(PARTS)}."
        )
    if os.getsid(0) != os.getpid():  # the processes that are measured are those of a session
        os.execvp("setsid", ["setsid", "-w", sys.executable, *sys.argv])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    folder = Path(tempfile.mkdtemp(prefix="bench-tuning-"))
    try:
        measure(given, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
