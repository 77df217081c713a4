"""Renders `docs/scale.md` from the unit costs that `benchmarks/unit_costs.py` wrote.

python -m docs.generators.scale > docs/scale.md

Each cost is a straight line through the ends of the last decade that was measured. The assumptions
are the constants below; no other figure is typed.
"""

from __future__ import annotations

import math
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from docs.generators.options import rows
from paimon_stream.options import SNAPSHOT_TIME_RETAINED
from paimon_stream.storage.together import AT_ONCE

__all__ = ["Point", "UnitCosts", "render"]

ROOT: Final = Path(__file__).parents[2]

STREAMS: Final = 1_000
DRIVERS: Final = 20
BATCH_SECONDS: Final = 60
FILES: Final = 10_000_000
PARTITIONS: Final = 10_000
COMMITS_A_DAY: Final = 1_000_000

TRIP_SECONDS: Final = 0.025
PUTS_A_SECOND: Final = 3_500
DRIVER_MIB: Final = 4_096
DAY_SECONDS: Final = 86_400
STEEPEST: Final = 1.1
"""Above this exponent a reason is needed."""
SHORTEST_SECONDS: Final = 0.02
"""A step that takes less than this at its largest size has no exponent: the clock's ticks decide."""

_PAGES: Final = (
    "system time. Rows of megabytes need buffers larger than those that the allocator keeps, so the kernel takes their pages "
    "back after each use, and hands them out again. The user time grows with the bytes"
)
_SHORT: Final = (
    "it takes some hundredths of a second at the smaller size, so other work on the machine counts. Repeated apart, its "
    "exponent was not above the bound"
)
_COLUMNS_AT_ONCE: Final = (
    "some noise of a busy machine, and system time for the pages of more columns at once. Repeated apart, its user time had 1.10, "
    "and the calls of Python in its main thread 0.92"
)
REASONS: Final[Mapping[tuple[str, str], str]] = {
    ("partitions", "plan"): _SHORT,
    ("partitions", "orphans"): _SHORT,
    ("columns", "compact"): _COLUMNS_AT_ONCE,
    ("row-kilobytes", "append"): _PAGES,
    ("row-kilobytes", "read"): _PAGES,
    ("row-kilobytes", "verify"): _PAGES,
    ("row-kilobytes", "compact"): _PAGES,
}
"""Why a step grows faster than its axis."""

_FEWER_FILES: Final = (
    "larger files by a [compaction](compaction.md) or a longer trigger; a filter on partitions"
)

_START: Final = """\
# Scale

<!-- Generated: python -m docs.generators.scale > docs/scale.md -->
"""

_ABOUT: Final = (
    "This page computes what large installations cost, and names the limit that each meets first. It is for planning. "
    "Measure your own load before you rely on it.",
    "The unit costs are measured: `benchmarks/shapes.py` makes tables of growing shapes and measures each step in a fresh "
    "process, and `benchmarks/unit_costs.py` counts requests. Both wrote `benchmarks/unit-costs.txt` on {measured}, on "
    "{cores} cores of a {system} machine that others used, too ({versions}). A cost at a size is on the straight line through "
    "the last decade that was measured. [Beside a run](#beside-a-run) shows how far such lines go wrong.",
    "What is assumed: a request to the store takes {trip:g} ms, {together} go together, the store takes {puts} PUTs a second, "
    "a driver has one core and {gib:g} GiB for this package, and a stream has one batch in {batch} seconds with one data "
    "file. CPU is that of one core of that machine, and without Spark's own work unless it says so.",
)

_WIDTH: Final = 125


_GROWTH: Final = "The exponent of CPU over the last decade of each axis: 1 is linear, 0 does not grow. Steps below {least:g} ms have none."


class Point(NamedTuple):
    """What a step cost at one size: CPU seconds, and the peak of memory in MiB."""

    size: int
    cpu: float
    memory: float


class Sent(NamedTuple):
    """What was sent for something that was done `times` times."""

    times: int
    trips: int
    kinds: Mapping[str, int]

    @property
    def requests(self) -> int:
        """All requests."""
        return sum(self.kinds.values())


class Limit(NamedTuple):
    """How much of something fits, what ends it, and what moves that limit."""

    most: float
    what: str
    moved_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitCosts:
    """What `benchmarks/unit-costs.txt` says.

    Attributes:
        steps: the points of each step of an axis, by size.
        requests: what was sent, by what was done.
        seconds_of_batch: CPU seconds of a batch of a stream that goes on.
        bytes_of_manifest: bytes of manifests for each live file.
        measured: the days.
        versions: names and versions.
        machine: the number of cores, and the system.
    """

    steps: Mapping[tuple[str, str], Sequence[Point]]
    requests: Mapping[str, Sequence[Sent]]
    seconds_of_batch: float
    bytes_of_manifest: float
    measured: Sequence[str]
    versions: Sequence[str]
    machine: tuple[str, str]

    @classmethod
    def parse(cls, text: str) -> UnitCosts:
        """The unit costs in a text. Raises `ValueError` for a line of an unknown kind."""
        steps: dict[tuple[str, str], list[Point]] = {}
        requests: dict[str, list[Sent]] = {}
        lines: dict[str, list[list[str]]] = {}
        for line in text.splitlines()[1:]:
            kind, *values = line.split("\t")
            lines.setdefault(kind, []).append(values)
        for axis, step, size, cpu, memory in lines.pop("step"):
            steps.setdefault((axis, step), []).append(Point(int(size), float(cpu), float(memory)))
        for what, count, trips, *kinds in lines.pop("requests"):
            by_kind = {name: int(number) for name, number in (kind.split("=") for kind in kinds)}
            requests.setdefault(what, []).append(Sent(int(count), int(trips), by_kind))
        ((_, batches, seconds),) = lines.pop("seconds")
        ((_, files, size),) = lines.pop("bytes")
        ((cores, system),) = lines.pop("machine")
        measured = [day for (day,) in lines.pop("measured")]
        versions = [f"{name} {version}" for name, version in lines.pop("version")]
        if lines:
            raise ValueError(f"unit-costs.txt has lines of unknown kinds: {', '.join(lines)}")
        return cls(
            steps=steps,
            requests=requests,
            seconds_of_batch=float(seconds) / int(batches),
            bytes_of_manifest=int(size) / int(files),
            measured=measured,
            versions=versions,
            machine=(cores, system),
        )

    def decade(self, axis: str, step: str, *, below: int | None = None) -> tuple[Point, Point]:
        """The ends of the last decade that was measured; with `below`, of those sizes only."""
        points = [point for point in self.steps[axis, step] if below is None or point.size < below]
        last = max(points)
        return min(point for point in points if point.size * 10 >= last.size), last

    def cpu(self, axis: str, step: str, size: int, *, below: int | None = None) -> float:
        """CPU seconds at a size, on the line through a decade."""
        first, last = self.decade(axis, step, below=below)
        return last.cpu + self._slope(first, last, first.cpu, last.cpu) * (size - last.size)

    def memory(self, axis: str, step: str, size: int, *, below: int | None = None) -> float:
        """The peak of memory at a size, in MiB, likewise."""
        first, last = self.decade(axis, step, below=below)
        return last.memory + self._slope(first, last, first.memory, last.memory) * (
            size - last.size
        )

    def cpu_of_each(self, axis: str, step: str) -> float:
        """CPU seconds of each further unit of an axis."""
        first, last = self.decade(axis, step)
        return self._slope(first, last, first.cpu, last.cpu)

    def memory_of_each(self, axis: str, step: str) -> float:
        """MiB of each further unit of an axis."""
        first, last = self.decade(axis, step)
        return self._slope(first, last, first.memory, last.memory)

    def exponent(self, axis: str, step: str) -> float | None:
        """How the CPU of a step grows in the last decade: 1 is linear. None if a step is too short
        to tell.
        """
        first, last = self.decade(axis, step)
        if last.cpu < SHORTEST_SECONDS or first.size == last.size:
            return None
        return math.log(last.cpu / max(first.cpu, 1e-4)) / math.log(last.size / first.size)

    def largest(self, axis: str) -> int:
        """The largest size of an axis that was measured."""
        return max(max(points).size for (of, _), points in self.steps.items() if of == axis)

    def each(self, what: str) -> float:
        """The requests of each further one of what was done at two counts."""
        few, many = self.requests[what]
        return (many.requests - few.requests) / (many.times - few.times)

    @staticmethod
    def _slope(first: Point, last: Point, start: float, end: float) -> float:
        if first.size == last.size:
            return 0.0
        return max(0.0, (end - start) / (last.size - first.size))


def render() -> str:
    """The whole page, in Markdown."""
    costs = UnitCosts.parse((ROOT / "benchmarks" / "unit-costs.txt").read_text())
    figures = {
        "measured": " and ".join(costs.measured),
        "cores": costs.machine[0],
        "system": costs.machine[1],
        "versions": ", ".join(costs.versions),
        "trip": TRIP_SECONDS * 1_000,
        "together": AT_ONCE,
        "puts": number(PUTS_A_SECOND),
        "gib": DRIVER_MIB / 1_024,
        "batch": BATCH_SECONDS,
    }
    about = (paragraph(text.format(**figures)) for text in _ABOUT)
    scenarios = (fleet(costs), files(costs), partitions(costs), commits(costs))
    return "".join((_START, *about, *scenarios, runs(costs), growth(costs)))


def fleet(costs: UnitCosts) -> str:
    """The section of many streams."""
    (batch,) = costs.requests["a steady batch"]
    batches = STREAMS / BATCH_SECONDS
    streams = STREAMS // DRIVERS
    cpu = costs.seconds_of_batch
    memory = costs.memory_of_each("streams", "commit")
    spark = seconds_of_spark()
    puts = batch.kinds["PUT"] + 1
    table = [
        ("batches a second", number(batches), number(batches / DRIVERS)),
        ("requests a second", number(batches * (batch.requests + 1)), number(batches * (batch.requests + 1) / DRIVERS)),
        ("of them PUTs", number(batches * puts), number(batches * puts / DRIVERS)),
        ("cores of this package", number(batches * cpu), number(batches * cpu / DRIVERS)),
        ("cores with Spark's work for small batches", number(batches * spark), number(batches * spark / DRIVERS)),
        ("MiB of this package's writers", number(STREAMS * memory), number(streams * memory)),
    ]  # fmt: skip
    limits = [
        Limit(BATCH_SECONDS / spark, "Spark's CPU for a batch", "a longer trigger, or more cores for the drivers"),
        Limit(BATCH_SECONDS / cpu, "this package's CPU for a commit", "a longer trigger"),
        Limit(per(DRIVER_MIB, memory), "the memory of the writers", "more memory"),
        Limit(PUTS_A_SECOND * BATCH_SECONDS / puts, "the store's PUTs, if all tables share one prefix", "tables in several buckets"),
    ]  # fmt: skip
    return (
        f"\n## {number(STREAMS)} streams on {DRIVERS} drivers\n"
        + paragraph(
            f"Each driver runs {streams} streams, each into a table of its own. A commit takes {batch.trips} trips, so "
            f"{number(batch.trips * TRIP_SECONDS * 1_000)} ms at that store."
        )
        + rows(("", "all", "a driver"), table)
        + limits_of("streams on a driver", limits)
        + paragraph(
            "Spark's work is the figure of [tuning](tuning.md#parallelism) for a batch of one stream that the driver writes. "
            "Streams that share a table also lose races for it, which that page measures."
        )
    )


def files(costs: UnitCosts) -> str:
    """The section of a table of many files."""
    manifests = costs.bytes_of_manifest * FILES
    table = [
        (step, number(costs.cpu("files", step, FILES)), number(costs.memory("files", step, FILES) / 1_024))
        for step in ("plan", "plan by filter", "commit", "verify", "orphans")
    ]  # fmt: skip
    limits = [
        Limit(per(DRIVER_MIB, costs.memory_of_each("files", "plan")), "the memory of a plan of the whole table", _FEWER_FILES),
        Limit(per(BATCH_SECONDS, costs.cpu_of_each("files", "plan by filter")), f"a plan by a filter on a column in {BATCH_SECONDS} s", _FEWER_FILES),
        Limit(per(DRIVER_MIB, costs.memory_of_each("files", "verify")), "the memory of `verify`", _FEWER_FILES),
        Limit(per(DRIVER_MIB, costs.memory_of_each("files", "orphans")), "the memory of the removal of orphans", _FEWER_FILES),
        Limit(per(BATCH_SECONDS, costs.cpu_of_each("files", "plan")), f"a plan of the whole table in {BATCH_SECONDS} s", _FEWER_FILES),
    ]  # fmt: skip
    return (
        f"\n## A table of {number(FILES)} files\n"
        + paragraph(
            f"Its live manifests have {number(manifests / 1_000_000)} MB, {number(costs.bytes_of_manifest)} bytes a file. A "
            f"listing of all files takes {number(FILES / 1_000)} LIST requests, one for each 1,000. The batches of a running "
            "stream do not grow with the table ([performance](performance.md#as-a-table-grows)). A new writer of a table with "
            "fixed buckets reads the entries of the partitions that it writes to: that is the step `commit`. The filter of "
            "`plan by filter` is on a column that is no partition key, so the plan looks at the statistics of each file."
        )
        + rows(("step", "CPU s", "GiB"), table)
        + limits_of("files", limits)
    )


def partitions(costs: UnitCosts) -> str:
    """The section of a batch into many partitions."""
    (batch,) = costs.requests["a steady batch"]
    cpu = costs.cpu("partitions", "append", PARTITIONS)
    memory = costs.memory("partitions", "append", PARTITIONS)
    of_store = PARTITIONS / AT_ONCE * TRIP_SECONDS
    a_day = PARTITIONS * DAY_SECONDS / BATCH_SECONDS
    table = [
        ("requests", number(PARTITIONS + batch.requests)),
        ("seconds of the store for the data files", number(of_store)),
        ("CPU s of the append", number(cpu)),
        ("GiB at the peak", number(memory / 1_024)),
        ("data files a day", number(a_day)),
    ]
    limits = [
        Limit(FILES / DAY_SECONDS * BATCH_SECONDS, f"the files of the table, {number(FILES)} after a day", "a longer trigger, coarser partitions, and a compaction each hour"),
        Limit(per(BATCH_SECONDS, costs.cpu_of_each("partitions", "append")), "the CPU of one task", "more tasks, each with partitions of its own"),
        Limit(BATCH_SECONDS / TRIP_SECONDS * AT_ONCE, "the PUTs that one task has at once", "more tasks"),
        Limit(per(DRIVER_MIB, costs.memory_of_each("partitions", "append")), "the memory of one task", "more tasks"),
    ]  # fmt: skip
    return (
        f"\n## A batch into {number(PARTITIONS)} partitions\n"
        + paragraph(
            "Each partition gets one data file of a few rows, and one task writes all of them. Where several tasks have rows "
            "of a partition, each writes a file there."
        )
        + rows(("of a batch", ""), table)
        + limits_of("partitions of a batch each minute", limits)
    )


def commits(costs: UnitCosts) -> str:
    """The section of many commits."""
    (batch,) = costs.requests["a steady batch"]
    kept_millis = SNAPSHOT_TIME_RETAINED.parse(str(SNAPSHOT_TIME_RETAINED.default))
    kept = COMMITS_A_DAY * kept_millis / 1_000 / DAY_SECONDS
    cpu = costs.seconds_of_batch
    _, begun = costs.requests["the first batch of a run"]
    read = begun.requests + costs.each("the first batch of a run") * (kept - begun.times)
    table = [
        ("requests a day for commits", number(COMMITS_A_DAY * (batch.requests + 1))),
        ("requests a day for expiry", number(COMMITS_A_DAY * costs.each("expiry"))),
        ("CPU hours a day for commits", number(COMMITS_A_DAY * cpu / 3_600)),
        ("snapshots that are kept", number(kept)),
        ("requests when a new stream begins", number(read)),
        ("seconds of the store for these", number(read / AT_ONCE * TRIP_SECONDS)),
    ]
    limits = [
        Limit(DAY_SECONDS / (batch.trips * TRIP_SECONDS), "the trips of a commit, one commit after another", "a store that answers sooner, a longer trigger, or several tables"),
        Limit(DAY_SECONDS / cpu, "the CPU of one core", "a longer trigger, or several tables"),
        Limit(PUTS_A_SECOND * DAY_SECONDS / (batch.kinds["PUT"] + 1), "the store's PUTs", "several tables in several prefixes"),
    ]  # fmt: skip
    return (
        f"\n## {number(COMMITS_A_DAY)} commits a day to one table\n"
        + paragraph(
            f"That is one commit in {number(DAY_SECONDS / COMMITS_A_DAY * 1_000)} ms. Snapshots are kept for "
            f"`snapshot.time-retained`, by default {SNAPSHOT_TIME_RETAINED.default}."
        )
        + rows(("", ""), table)
        + limits_of("commits a day", limits)
        + paragraph(
            "A new stream reads each snapshot that is kept, once: any of them may be of its query. No manifest is read for that "
            "where this package made the snapshots ([exactly once](spec/exactly-once.md))."
        )
    )


def limits_of(unit: str, limits: Iterable[Limit]) -> str:
    """The limits, the first one first."""
    ordered = sorted(limits)
    first = ordered[0]
    cells = [(limit.what, number(limit.most), limit.moved_by) for limit in ordered]
    return paragraph(
        f"**The first limit is {first.what}, at {number(first.most)} {unit}.** What moves it: {first.moved_by}."
    ) + rows(("limit", unit, "what moves it"), cells)


class Run(NamedTuple):
    """A step at the largest size that was measured."""

    axis: str
    step: str
    words: str


_RUNS: Final = (
    Run("streams", "commit", "a commit of each of {size} streams"),
    Run("files", "plan", "a plan of {size} files"),
    Run("files", "verify", "`verify` of {size} files"),
    Run("partitions", "append", "an append into {size} partitions"),
    Run("snapshots", "verify", "`verify` of {size} snapshots"),
    Run("snapshots", "orphans", "the removal of orphans from {size} snapshots"),
)


def runs(costs: UnitCosts) -> str:
    """The section that compares computed costs with runs."""
    table = []
    for axis, step, words in _RUNS:
        points = costs.steps[axis, step]
        largest = max(points)
        table.append(
            (
                words.format(size=number(largest.size)),
                number(costs.cpu(axis, step, largest.size, below=largest.size)),
                number(largest.cpu),
                number(costs.memory(axis, step, largest.size, below=largest.size)),
                number(largest.memory),
            )
        )
    head = ("at the largest size", "CPU s, computed", "run", "MiB, computed", "run")
    return (
        "\n## Beside a run\n"
        + paragraph(
            "Each line is one run at the largest size that was measured. *Computed* is the line through the decade below it, "
            "which does not know of that run."
        )
        + rows(head, table)
    )


def growth(costs: UnitCosts) -> str:
    """The section of exponents. Raises `ValueError` if a steep one has no reason."""
    exponents = {pair: costs.exponent(*pair) for pair in costs.steps}
    axes = list(dict.fromkeys(axis for axis, _ in exponents))
    table = [
        (step, *(cell(costs, axis, step) for axis in axes))
        for step in dict.fromkeys(step for _, step in exponents)
    ]
    steep = {
        pair: exponent
        for pair, exponent in exponents.items()
        if exponent is not None and round(exponent, 2) > STEEPEST
    }
    unexplained = [pair for pair in steep if pair not in REASONS]
    if unexplained:
        raise ValueError(
            f"these steps grow faster than {STEEPEST}, without a reason in REASONS: {unexplained}"
        )
    reasons = [
        f"- **{step}** by {axis}, {exponent:.2f}: {REASONS[axis, step]}.\n"
        for (axis, step), exponent in steep.items()
    ]
    head = ("", *(f"{axis}, to {number(costs.largest(axis))}" for axis in axes))
    return "".join(
        (
            "\n## How each step grows\n",
            paragraph(_GROWTH.format(least=SHORTEST_SECONDS * 1_000)),
            rows(head, table),
            paragraph(f"Above {STEEPEST}:" if reasons else f"None is above {STEEPEST}."),
            "\n" if reasons else "",
            *reasons,
        )
    )


def cell(costs: UnitCosts, axis: str, step: str) -> str:
    """The exponent of a step in the table, with its largest size if others have a larger one."""
    exponent = costs.exponent(axis, step) if (axis, step) in costs.steps else None
    if exponent is None:
        return "–"
    _, last = costs.decade(axis, step)
    if last.size == costs.largest(axis):
        return f"{exponent:.2f}"
    return f"{exponent:.2f} to {number(last.size)}"


def paragraph(text: str) -> str:
    """A paragraph of the page, with an empty line above it."""
    lines = textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n" + "\n".join(lines) + "\n"


def seconds_of_spark() -> float:
    """CPU seconds of a small batch with Spark's own work, from the page about tuning."""
    page = (ROOT / "docs" / "tuning.md").read_text()
    line = re.search(r"^\| 1 \| the driver \| [\d.]+ \| ([\d.]+) \|", page, re.MULTILINE)
    if line is None:
        raise ValueError(
            "docs/tuning.md has no line for one stream whose batches the driver writes"
        )
    return float(line[1])


def per(capacity: float, each: float) -> float:
    """How many fit into a capacity."""
    return math.inf if each <= 0 else capacity / each


def number(value: float) -> str:
    """A figure with two digits, or three from 100 on."""
    if math.isinf(value):
        return "no limit measured"
    digits = 3 if abs(value) >= 100 else 2
    if value == int(value):
        return f"{value:,.0f}"
    if abs(value) >= 10:
        places = digits - 1 - math.floor(math.log10(abs(value)))
        return f"{round(value, places):,.0f}"
    return f"{value:.2g}"


if __name__ == "__main__":
    sys.stdout.write(render())
