"""Plots as inline SVG, for pages that need no script and no network. A plot stretches to the width of the page: shapes
are SVG without a fixed ratio, and texts are HTML beside them, so that they stay readable on a phone. Each mark has its
numbers as a title, which a browser shows under the pointer.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from statistics import median
from typing import Final

from paimon_stream.reports import iso

_WIDE: Final = 1000
"""The width of a drawing in its own units."""
_COLOURS: Final = 7
"""How many colours `PLOT_STYLE` has."""
_OUTLIERS: Final = 20
"""One of this number of values, and at least one, may be cut off."""
_CUT_ABOVE: Final = 2.5
"""Values are cut off if the largest is more than this multiple of the largest of the others."""
_TIME_STEPS: Final = (
    *(1_000 * seconds for seconds in (1, 2, 5, 10, 20, 30)),
    *(60_000 * minutes for minutes in (1, 2, 5, 10, 20, 30)),
    *(3_600_000 * hours for hours in (1, 2, 4, 6, 12)),
    *(86_400_000 * days for days in (1, 2, 7, 14, 30, 90, 365)),
)
_DAY: Final = 86_400_000
_MOST_TICKS: Final = 5


@dataclass(frozen=True, slots=True)
class Line:
    """A line or bars over time.

    Attributes:
        name: what is shown.
        values: a value for each moment of the plot; None leaves a moment out.
    """

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One drawing of a `TimePlot`.

    Attributes:
        title: the name of the panel, with its unit.
        lines: what is drawn.
        form: `bars` stacks the lines, `line` draws each, and `dots` has a dot for each value.
        write: makes the text of a value.
        height: the height in pixels.
        thousand: the factor between a unit and the next larger one.
    """

    title: str
    lines: Sequence[Line]
    form: str = "line"
    write: Callable[[float], str] = "{:,.0f}".format
    height: int = 120
    thousand: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePlot:
    """Panels below each other, with one axis of time.

    Attributes:
        moments: the times of the values, ascending, in epoch milliseconds.
        panels: the drawings.
        titles: for each moment, the text that the pointer shows.
        gaps: the times in which nothing ran. No line is drawn through them.
    """

    moments: Sequence[int]
    panels: Sequence[Panel]
    titles: Sequence[str] = ()
    gaps: Sequence[tuple[int, int]] = ()

    def html(self) -> str:
        """The HTML of the plot."""
        axis = _TimeAxis.of(self.moments)
        drawings = "".join(self._panel_html(panel, axis) for panel in self.panels)
        return f'<figure class="plot">{drawings}{axis.html()}</figure>'

    def _panel_html(self, panel: Panel, axis: "_TimeAxis") -> str:
        scale = _Scale.of(panel)
        if panel.form == "bars":
            shapes = _bars(panel, axis, scale, self.moments)
        elif panel.form == "dots":
            shapes = _dots(panel, axis, scale, self.moments)
        else:
            shapes = _lines(panel, axis, scale, self.moments, self.gaps)
        svg = (
            f'<svg viewBox="0 0 {_WIDE} {panel.height}" preserveAspectRatio="none" style="height:{panel.height}px">'
            f"{axis.grid(panel.height)}{scale.grid(panel.height)}{self._gaps_svg(axis, panel.height)}{shapes}"
            f"{self._hover(axis, panel.height)}</svg>"
        )
        texts = _lane_names(panel) if panel.form == "dots" else scale.html(panel)
        return f'<div class="panel">{_legend(panel)}<div class="area">{svg}{texts}</div></div>'

    def _gaps_svg(self, axis: "_TimeAxis", height: int) -> str:
        return "".join(
            f'<rect class="gap" x="{axis.x(start):.0f}" y="0" width="{max(axis.x(end) - axis.x(start), 2):.0f}" '
            f'height="{height}"/>'
            for start, end in self.gaps
        )

    def _hover(self, axis: "_TimeAxis", height: int) -> str:
        """Areas that nobody sees. Each has the text of the moment in its middle."""
        if not self.titles:
            return ""
        places = [axis.x(moment) for moment in self.moments]
        borders = [0.0, *((left + right) / 2 for left, right in pairwise(places)), float(_WIDE)]
        return (
            '<g class="hover">'
            + "".join(
                f'<rect x="{left:.1f}" width="{right - left:.1f}" height="{height}"><title>{escape(title)}</title></rect>'
                for (left, right), title in zip(pairwise(borders), self.titles, strict=True)
            )
            + "</g>"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRow:
    """A row of `Ranges`.

    Attributes:
        name: whose values these are.
        values: one value makes a bar from zero. Five are the smallest, the quartiles and the largest.
        text: the values for people.
    """

    name: str
    values: Sequence[float]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """A row for each name, with a bar from zero, or with the range of its values on a logarithmic scale."""

    rows: Sequence[RangeRow]

    def html(self) -> str:
        """The HTML of the plot."""
        return f'<div class="ranges">{"".join(map(self._row_html, self.rows))}</div>'

    def _row_html(self, row: RangeRow) -> str:
        shapes = self._bar(row.values[0]) if len(row.values) == 1 else self._box(row.values)
        return (
            f'<span title="{escape(row.name)}">{escape(row.name)}</span>'
            f'<svg viewBox="0 0 {_WIDE} 16" preserveAspectRatio="none">{shapes}</svg><b>{escape(row.text)}</b>'
        )

    def _bar(self, value: float) -> str:
        largest = max(row.values[0] for row in self.rows) or 1
        return f'<rect class="c0" x="0" y="3" width="{_WIDE * value / largest:.0f}" height="10"/>'

    def _box(self, values: Sequence[float]) -> str:
        lowest = math.log(max(min(row.values[0] for row in self.rows), 1))
        highest = math.log(max(*(row.values[-1] for row in self.rows), 2))
        span = max(highest - lowest, 1e-9)
        least, quarter, half, most_of, most = (
            8 + (_WIDE - 16) * (math.log(max(value, 1)) - lowest) / span for value in values
        )
        return (
            f'<path class="whisker" d="M{least:.0f} 8H{most:.0f}"/>'
            f'<rect class="c0" x="{quarter:.0f}" y="3" width="{max(most_of - quarter, 4):.0f}" height="10"/>'
            f'<path class="half" d="M{half:.0f} 1V15"/>'
        )


def spark_line(values: Sequence[float], title: str) -> str:
    """The HTML of a line as small as a word; empty for fewer than two values."""
    if len(values) < 2:
        return ""
    top = max(values) or 1
    points = " ".join(
        f"{100 * place / (len(values) - 1):.1f},{19 - 18 * value / top:.1f}"
        for place, value in enumerate(values)
    )
    return (
        f'<svg class="spark" viewBox="0 0 100 20" preserveAspectRatio="none"><title>{escape(title)}</title>'
        f'<polyline points="{points}"/></svg>'
    )


def gaps_of(moments: Sequence[int], least: int) -> list[tuple[int, int]]:
    """The times between two moments that are longer than `least` milliseconds and than five times the usual one."""
    times = list(pairwise(moments))
    if not times:
        return []
    longest = max(least, 5 * median(end - start for start, end in times))
    return [(start, end) for start, end in times if end - start > longest]


@dataclass(frozen=True, slots=True)
class _TimeAxis:
    start: int
    end: int

    @classmethod
    def of(cls, moments: Sequence[int]) -> "_TimeAxis":
        first = min(moments)
        last = max(moments)
        # The texts of the values stand in the left margin.
        margin = max((last - first) // 60, 500)
        return cls(first - 6 * margin, last + margin)

    def x(self, moment: int) -> float:
        return _WIDE * (moment - self.start) / (self.end - self.start)

    def ticks(self) -> list[int]:
        span = self.end - self.start
        step = next(
            (step for step in _TIME_STEPS if span / step <= _MOST_TICKS), span // _MOST_TICKS
        )
        first = -(-self.start // step) * step
        return list(range(first, self.end, step))

    def grid(self, height: int) -> str:
        path = "".join(f"M{self.x(tick):.0f} 0V{height}" for tick in self.ticks())
        return f'<path class="grid" d="{path}"/>'

    def html(self) -> str:
        texts = []
        day = ""
        for tick in self.ticks():
            time = iso(tick) or ""
            today = time[:10]
            clock = time[11:19] if self.end - self.start < 300_000 else time[11:16]
            if self.end - self.start >= 4 * _DAY:
                clock = ""
            label = f"{clock}<br>{today}" if today != day else clock
            day = today
            texts.append(
                f'<span style="left:{self.x(tick) / 10:.1f}%">{label.removeprefix("<br>")}</span>'
            )
        return f'<div class="times">{"".join(texts)}</div>'


@dataclass(frozen=True, slots=True)
class _Scale:
    """The values from 0 to `top`. `thousand` is that of the panel."""

    top: float
    thousand: int

    @classmethod
    def of(cls, panel: Panel) -> "_Scale":
        if panel.form == "dots":
            return cls(len(panel.lines), panel.thousand)
        if panel.form == "bars":
            values = [sum(column) for column in _columns(panel)]
        else:
            values = [value for line in panel.lines for value in line.values if value is not None]
        ordered = sorted(values, reverse=True) or [1.0]
        outliers = max(len(ordered) // _OUTLIERS, 1)
        is_cut = len(ordered) > 4 and ordered[0] > _CUT_ABOVE * ordered[outliers] > 0
        top = ordered[outliers] if is_cut else ordered[0]
        return cls(1.1 * top or 1, panel.thousand)

    def share(self, value: float) -> float:
        """The height of a value, from 0 to 1."""
        return min(value / self.top, 1)

    def ticks(self) -> list[float]:
        unit = 1
        while self.top >= 2 * unit * self.thousand:
            unit *= self.thousand
        rough = self.top / unit / 4
        power = 10.0 ** math.floor(math.log10(rough))
        step = next((factor * power for factor in (1, 2, 5) if factor * power >= rough), 10 * power)
        step = max(step * unit, 1)
        return [step * number for number in range(int(self.top / step) + 1)]

    def grid(self, height: int) -> str:
        path = "".join(f"M0 {height * (1 - self.share(tick)):.1f}H{_WIDE}" for tick in self.ticks())
        return f'<path class="grid" d="{path}"/>'

    def html(self, panel: Panel) -> str:
        texts = dict.fromkeys((panel.write(tick), tick) for tick in self.ticks())
        return "".join(
            f'<span class="value" style="bottom:{100 * self.share(tick):.1f}%">{escape(text)}</span>'
            for text, tick in texts
        )


def _columns(panel: Panel) -> list[list[float]]:
    """The values of all lines by moment. A value that is missing is 0."""
    return [
        [value or 0 for value in column]
        for column in zip(*(line.values for line in panel.lines), strict=True)
    ]


def _legend(panel: Panel) -> str:
    if panel.form == "dots":
        return f"<p class=legend><b>{escape(panel.title)}</b></p>"
    names = ""
    if len(panel.lines) > 1:
        names = "".join(
            f'<i class="c{place % _COLOURS}"></i>{escape(line.name)} '
            for place, line in enumerate(panel.lines)
        )
    return f"<p class=legend><b>{escape(panel.title)}</b> {names}</p>"


def _bars(panel: Panel, axis: _TimeAxis, scale: _Scale, moments: Sequence[int]) -> str:
    """Bars on top of each other, one path for each line."""
    places = [axis.x(moment) for moment in moments]
    closest = min((right - left for left, right in pairwise(places)), default=12.0)
    width = min(max(0.75 * closest, 2.0), 12.0)
    paths = [""] * len(panel.lines)
    cut = ""
    for place, column in zip(places, _columns(panel), strict=True):
        below = 0.0
        for number, value in enumerate(column):
            bottom, top = (
                panel.height * (1 - scale.share(height)) for height in (below, below + value)
            )
            if bottom - top >= 0.1:
                paths[number] += (
                    f"M{place - width / 2:.1f} {bottom:.1f}V{top:.1f}h{width:.1f}V{bottom:.1f}z"
                )
            below += value
        if below > scale.top:
            cut += _cut_mark(place, panel.write(below))
    shapes = "".join(
        f'<path class="c{number % _COLOURS}" d="{path}"/>' for number, path in enumerate(paths)
    )
    return shapes + cut


def _cut_mark(place: float, text: str) -> str:
    """A mark at the upper edge for a value that the scale does not reach."""
    return f'<path class="cut" d="M{place - 7:.1f} 9L{place:.1f} 0L{place + 7:.1f} 9z"><title>{escape(text)}</title></path>'


def _lines(
    panel: Panel,
    axis: _TimeAxis,
    scale: _Scale,
    moments: Sequence[int],
    gaps: Iterable[tuple[int, int]],
) -> str:
    """A path for each line, without a stroke through a gap, and dots where they are few."""
    after_gap = {end for _, end in gaps}
    shapes = ""
    for number, line in enumerate(panel.lines):
        stroke = ""
        dots = ""
        cut = ""
        move = "M"
        for moment, value in zip(moments, line.values, strict=True):
            if value is None:
                continue
            place = axis.x(moment)
            top = panel.height * (1 - scale.share(value))
            stroke += f"{'M' if moment in after_gap else move}{place:.1f} {top:.1f}"
            dots += f"M{place:.1f} {top:.1f}h0"
            move = "L"
            if value > scale.top:
                cut += _cut_mark(place, panel.write(value))
        colour = f"s{number % _COLOURS}"
        shapes += f'<path class="line {colour}" d="{stroke}"/>'
        if len(moments) <= 150:
            shapes += f'<path class="dot {colour}" d="{dots}"/>'
        shapes += cut
    return shapes


def _dots(panel: Panel, axis: _TimeAxis, scale: _Scale, moments: Sequence[int]) -> str:
    """A lane for each line, with its name, and a dot for each value."""
    lane = panel.height / max(scale.top, 1)
    shapes = ""
    for number, line in enumerate(panel.lines):
        dots = "".join(
            f"M{axis.x(moment):.1f} {lane * (number + 0.5):.1f}h0"
            for moment, value in zip(moments, line.values, strict=True)
            if value is not None
        )
        shapes += f'<path class="dot s{number % _COLOURS}" d="{dots}"/>'
    return shapes


def _lane_names(panel: Panel) -> str:
    share = 100 / max(len(panel.lines), 1)
    return "".join(
        f'<span class="value" style="top:{share * (number + 0.5):.1f}%">{escape(line.name)}</span>'
        for number, line in enumerate(panel.lines)
    )


def lanes(
    title: str,
    lines: Sequence[Line],
) -> Panel:
    """A panel with a lane of dots for each line."""
    return Panel(title=title, lines=lines, form="dots", height=26 * max(len(lines), 1))


PLOT_STYLE: Final = """
:root { --c0: #0072b2; --c1: #e69f00; --c2: #009e73; --c3: #cc79a7; --c4: #56b4e9; --c5: #d55e00; --c6: #8a8a8a; --grid: #00000018; }
@media (prefers-color-scheme: dark) { :root { --c0: #56b4e9; --c4: #f0e442; --grid: #ffffff1f; } }
@media print { :root { --c0: #0072b2; --c4: #56b4e9; --grid: #00000018; } }
.plot { margin: 0; } .panel { margin-bottom: 0.9em; } .area { position: relative; }
.area svg { display: block; width: 100%; border-bottom: 1px solid var(--soft); print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.legend { margin: 0 0 0.3em; font-size: 0.85em; color: var(--soft); } .legend b { color: var(--ink); margin-right: 0.6em; }
.legend i { display: inline-block; width: 0.8em; height: 0.8em; margin: 0 0.3em 0 0.7em; background: currentColor; border-radius: 2px;
  print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.value, .times span { position: absolute; font-size: 11px; line-height: 13px; color: var(--soft); pointer-events: none; white-space: nowrap; }
.value { left: 2px; transform: translateY(50%); background: color-mix(in srgb, var(--paper) 75%, transparent); padding: 0 2px; }
.value[style^="top"] { transform: translateY(-50%); } .value[style="bottom:0.0%"] { display: none; }
.times { position: relative; height: 28px; } .times span { transform: translateX(-50%); text-align: center; top: 2px; }
.grid { stroke: var(--grid); fill: none; vector-effect: non-scaling-stroke; } .gap { fill: var(--soft); opacity: 0.15; }
.hover rect { fill: transparent; } .hover rect:hover { fill: var(--soft); opacity: 0.2; }
.line, .dot { fill: none; stroke-width: 1.6; vector-effect: non-scaling-stroke; stroke-linejoin: round; stroke-linecap: round; } .dot { stroke-width: 5; }
.cut { fill: var(--ink); stroke: var(--paper); vector-effect: non-scaling-stroke; }
.spark { width: 100%; height: 22px; display: block; } .spark polyline { fill: none; stroke: var(--c0); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
.ranges { display: grid; grid-template-columns: fit-content(40%) 1fr auto; gap: 1px 0.8em; align-items: center; font-size: 0.85em; }
.ranges span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; } .ranges svg { width: 100%; height: 16px; }
.ranges b { font-weight: 400; text-align: right; font-variant-numeric: tabular-nums; }
.whisker, .half { stroke: var(--ink); fill: none; vector-effect: non-scaling-stroke; } .half { stroke-width: 2; }
""" + "".join(
    f".c{number} {{ fill: var(--c{number}); color: var(--c{number}); }} .s{number} {{ stroke: var(--c{number}); }}\n"
    for number in range(_COLOURS)
)
"""The style of plots: the colours of Okabe and Ito, which the colour-blind tell apart, on light and dark paper. The
page gives the variables `--ink`, `--soft` and `--paper`."""
