"""`PaimonTable.report` and `paimon-stream report`: a page about tables, with their health, plots and numbers
(docs/monitoring.md). The page needs no network. Its plots are drawn by the browser alone, without a script.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from paimon_stream import errors
from paimon_stream.api.plots import PLOT_STYLE, Ranges, TimePlot, spark_line
from paimon_stream.api.streams import State, StreamState
from paimon_stream.reports import count, iso, span
from paimon_stream.runtime import system

_MOST_ROWS: Final = 100
"""The most rows that a table of numbers has."""
_MOST_OPEN_ROWS: Final = 10
"""A table of numbers with more rows is folded."""
_SIGNS: Final[Mapping[str, str]] = {
    "damaged": "✕",
    "unreadable": "✕",
    "stuck": "✕",
    "contended": "▲",
    "silent": "▲",
    "starting": "○",
    "no stream": "○",
    "well": "✓",
}
"""The states of tables with their signs, so that no state is said by its colour alone."""
_COMMANDS: Final[Mapping[State, str]] = {
    "unreadable": "verify",
    "stuck": "doctor",
    "silent": "doctor",
    "contended": "query",
}
"""The commands that say more about a stream that needs an operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSection:
    """A part of the page: a plot, and a table with its numbers. `about` is a text that says what
    the plot and the table show, or why there is nothing to show.
    """

    title: str
    about: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    plot: TimePlot | Ranges | None = None

    def html(self) -> str:
        """The HTML of the section."""
        plot = "" if self.plot is None else self.plot.html()
        return f"<section><h3>{escape(self.title)}</h3><p>{escape(self.about)}</p>{plot}{self._numbers_html()}</section>"

    def _numbers_html(self) -> str:
        """The HTML of the table with the section's first rows. Below a plot, and if they are many,
        the rows are folded.
        """
        rows = self.rows[:_MOST_ROWS]
        if not rows:
            return ""
        table = _table(self.header, rows)
        if self.plot is None and len(self.rows) <= _MOST_OPEN_ROWS:
            return table
        share = f"{len(self.rows):,}"
        if len(rows) < len(self.rows):
            share = f"{len(rows):,} of {len(self.rows):,}"
        return f"<details><summary>Numbers, {share}</summary>{table}</details>"


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
class Problem:
    """Why a table needs an operator, and the command that says more or helps."""

    state: str
    reason: str
    command: str

    def html(self) -> str:
        """The HTML of the problem."""
        return f"<p class=why>{escape(self.reason)} <code>{escape(self.command)}</code></p>"


def command_for(name: str, location: str) -> str:
    """A command about the table at this location, as one types it."""
    return f"paimon-stream {name} {shlex.quote(location)}"


def problem_of(state: StreamState) -> Problem | None:
    """What is wrong with a stream; None if nothing is."""
    if state.state not in _COMMANDS:
        return None
    return Problem(state.state, state.why, command_for(_COMMANDS[state.state], state.location))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHealth:
    """How a table and its stream are. A number that is not known is None.

    Attributes:
        stream: the state of the table's newest stream.
        problems: why the table needs an operator, the worst first.
        advice: what would make the table faster to read.
        day_rows: the rows that streams wrote in the last 24 hours.
        small_files: how many data files are smaller than compactions leave them.
        files: how many data files there are.
        batch_rows: the rows of the newest batches, the oldest first.
    """

    stream: StreamState
    problems: Sequence[Problem] = ()
    advice: Sequence[Problem] = ()
    day_rows: int | None = None
    small_files: int | None = None
    files: int | None = None
    batch_rows: Sequence[int] = ()

    @classmethod
    def of(cls, stream: StreamState) -> "TableHealth":
        """The health of a table of which only the state of its stream is known."""
        problem = problem_of(stream)
        return cls(stream=stream, problems=[] if problem is None else [problem])

    @property
    def name(self) -> str:
        """The name of the table's database and of the table."""
        return "/".join(self.stream.location.rstrip("/").rsplit("/", 2)[-2:])

    @property
    def state(self) -> str:
        """The state of the worst problem, or of the stream."""
        return self.problems[0].state if self.problems else self.stream.state

    @property
    def lag_millis(self) -> int | None:
        """The time since the stream's newest batch; None without a stream."""
        if self.stream.batch is None or self.stream.last_millis is None:
            return None
        return max(0, system().clock.now_millis() - self.stream.last_millis)

    def badge(self) -> str:
        """The HTML of the state."""
        look = "sick" if self.problems else "well" if self.state == "well" else "calm"
        return (
            f'<span class="badge {look}">{_SIGNS.get(self.state, "✕")} {escape(self.state)}</span>'
        )

    def verdict(self) -> str:
        """How the table is, in one sentence for a headline."""
        if self.problems:
            return f"{self.name} needs you"
        return f"{self.name} {_VERDICTS.get(self.state, 'is readable')}"

    def figures(self) -> list[tuple[str, str]]:
        """What is counted, as pairs of a number with its unit and of what it says."""
        lag = self.lag_millis
        return [
            ("–" if self.day_rows is None else f"{self.day_rows:,}", "rows in 24 h"),
            ("–" if lag is None else span(lag), "since the last batch"),
            ("–" if self.small_files is None else f"{self.small_files:,}", "small files"),
            ("–" if self.files is None else f"{self.files:,}", "files"),
        ]

    def row_html(self, link: str | None) -> str:
        """The HTML of the table's line in the overview. `link` is the anchor of the table's part of
        the page.
        """
        name = f"<b>{escape(self.name)}</b>"
        if link is not None:
            name = f'<a href="#{link}">{name}</a>'
        spark = spark_line(self.batch_rows, f"Rows of the last {len(self.batch_rows)} batches")
        figures = "".join(
            f"<span class=figure><b>{number}</b> {text}</span>"
            for number, text in self.figures()[:3]
        )
        problems = "".join(problem.html() for problem in self.problems)
        return f"<li>{self.badge()}<span class=name>{name}</span><span>{spark}</span>{figures}{problems}</li>"


_VERDICTS: Final[Mapping[str, str]] = {
    "well": "streams well",
    "starting": "begins its first batch",
    "no stream": "has no stream, and nothing is wrong",
}


@dataclass(frozen=True, slots=True)
class TablePage:
    """What the page says of one table."""

    health: TableHealth
    sections: Sequence[PageSection]

    def html(self, link: str, *, alone: bool) -> str:
        """The HTML of the table's part. It is folded unless the page is about this table alone."""
        health = self.health
        cards = _cards(health.figures())
        problems = "".join(problem.html() for problem in (*health.problems, *health.advice))
        sections = "".join(section.html() for section in self.sections)
        inside = f'<div id="{link}">{cards}{problems}{sections}</div>'
        if alone:
            return inside
        title = f"<h2>{health.badge()} {escape(health.name)}</h2>"
        place = f"<p class=place>{escape(health.stream.location)}</p>"
        return f"<details class=table><summary>{title}</summary>{place}{inside}</details>"


def _cards(figures: Iterable[tuple[str, str]]) -> str:
    cards = "".join(f"<div><b>{escape(number)}</b>{escape(text)}</div>" for number, text in figures)
    return f"<div class=cards>{cards}</div>"


@dataclass(frozen=True, slots=True)
class ReportPage:
    """A page with a headline, a line for each table, and a part for each table by its location.
    `others` are tables that have a line only. Notebooks show the page.
    """

    title: str
    tables: Mapping[str, TablePage]
    others: Sequence[TableHealth] = ()

    def html(self) -> str:
        """The HTML of the page."""
        now = iso(system().clock.now_millis()) or ""
        origin = (
            f"<p class=place>{escape(self.title)} · {now[:10]} {now[11:16]} UTC · paimon-stream</p>"
        )
        parts = list(self.tables.values())
        if len(parts) == 1 and not self.others:
            badge = f"<p>{parts[0].health.badge()}</p>"
            headline = parts[0].health.verdict()
            body = f"{badge}{parts[0].html('table-0', alone=True)}"
        else:
            headline = self._headline()
            body = self._overview_html() + "".join(
                part.html(f"table-{number}", alone=False) for number, part in enumerate(parts)
            )
        return _PAGE.format(
            title=escape(headline),
            style=_STYLE + PLOT_STYLE,
            script=_SCRIPT,
            body=f"<h1>{escape(headline)}</h1>{origin}{body}",
        )

    def _healths(self) -> list[TableHealth]:
        return [*(part.health for part in self.tables.values()), *self.others]

    def _headline(self) -> str:
        healths = self._healths()
        sick = sum(bool(health.problems) for health in healths)
        if sick:
            return (
                f"{sick:,} of {count(len(healths), 'table')} {'needs' if sick == 1 else 'need'} you"
            )
        streams = sum(health.stream.batch is not None for health in healths)
        return f"All is well: {count(len(healths), 'table')}, {count(streams, 'stream')}"

    def _overview_html(self) -> str:
        """The HTML of the sums over all tables, and of the line of each. Tables that need an
        operator come first.
        """
        lines = [
            (health, f"table-{number}")
            for number, health in enumerate(part.health for part in self.tables.values())
        ]
        rows = "".join(
            health.row_html(link)
            for health, link in sorted(lines, key=lambda line: not line[0].problems)
        )
        rows += "".join(health.row_html(None) for health in self.others)
        about = ""
        if self.others:
            about = f"<p>The plots of {count(len(self.others), 'other table')} are left out.</p>"
        return f"{_cards(self._sums())}<ul class=streams>{rows}</ul>{about}"

    def _sums(self) -> list[tuple[str, str]]:
        healths = self._healths()
        lags = [health.lag_millis for health in healths if health.lag_millis is not None]
        day_rows = sum(health.day_rows or 0 for health in healths)
        small_files = sum(health.small_files or 0 for health in healths)
        return [
            (f"{len(healths):,}", "table" if len(healths) == 1 else "tables"),
            (f"{day_rows:,}", "rows in 24 h"),
            (span(max(lags)) if lags else "–", "since the last batch of the slowest stream"),
            (f"{small_files:,}", "small files"),
        ]

    def save(self, path: str | Path) -> None:
        """Writes the page to a file. Raises `InvalidOption` if the file cannot be written."""
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


_PAGE: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta http-equiv="Content-Security-Policy"
content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:">
<style>{style}</style></head><body>{body}<script>{script}</script></body></html>"""

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #59636e; --paper: #ffffff; --card: #f6f8fa; --line: #d0d7de;
  --good: #00664b; --bad: #a33c00; --edge: #d55e00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9aa4af; --paper: #0d1117; --card: #161b22;
  --line: #30363d; --good: #3fc9a0; --bad: #ff9c5a; } }
@media print { :root { color-scheme: light; --ink: #000000; --soft: #444444; --paper: #ffffff; --card: #ffffff;
  --line: #cccccc; --good: #00664b; --bad: #a33c00; } section { break-inside: avoid; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 62em; padding: 1.5em 1em 3em; }
h1 { font-size: 1.9em; line-height: 1.2; margin: 0; overflow-wrap: anywhere; } h2 { display: inline; font-size: 1.15em; }
h3 { font-size: 1.05em; margin: 0; } section { margin: 2em 0; } section > p { margin: 0.1em 0 0.6em; color: var(--soft); }
a { color: inherit; } summary { cursor: pointer; } code { background: var(--card); border: 1px solid var(--line);
  border-radius: 4px; padding: 0.05em 0.35em; font-size: 0.9em; overflow-wrap: anywhere; }
.place { color: var(--soft); font-size: 0.9em; margin: 0.2em 0 1em; overflow-wrap: anywhere; }
.badge { display: inline-block; border: 1px solid currentColor; border-radius: 1em; padding: 0 0.6em; font-size: 0.85rem;
  font-weight: 400; white-space: nowrap; color: var(--soft); } .badge.well { color: var(--good); } .badge.sick { color: var(--bad); font-weight: 600; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9em, 1fr)); gap: 0.6em; margin: 1em 0; }
.cards div { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 0.5em 0.8em; color: var(--soft); font-size: 0.85em; }
.cards b { display: block; font-size: 1.7rem; line-height: 1.25; color: var(--ink); font-variant-numeric: tabular-nums; }
.why { border-left: 3px solid var(--edge); padding-left: 0.7em; margin: 0.4em 0; overflow-wrap: anywhere; }
.streams { list-style: none; padding: 0; margin: 1em 0 2em; }
.streams li { display: grid; grid-template-columns: 7em minmax(8em, 1fr) 7em 11.5em 12em 8em; gap: 0 0.6em; align-items: center;
  padding: 0.5em 0; border-bottom: 1px solid var(--line); }
.streams .badge { justify-self: start; } .streams .name { overflow-wrap: anywhere; } .streams .why { grid-column: 1 / -1; }
.figure { font-size: 0.85em; color: var(--soft); font-variant-numeric: tabular-nums; } .figure b { color: var(--ink); }
details.table { border-top: 1px solid var(--line); padding: 0.7em 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.9em; }
td { min-width: 4.5em; } th, td { border-bottom: 1px solid var(--line); padding: 0.2em 0.8em 0.2em 0; text-align: left; vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
@media (max-width: 700px) { .streams li { grid-template-columns: 1fr 1fr; gap: 0.2em 0.8em; } .cards { grid-template-columns: 1fr 1fr; }
  h1 { font-size: 1.5em; } .cards b { font-size: 1.3rem; } }
"""

# A link of the overview opens the table's part. On paper everything is open.
_SCRIPT: Final = """
function unfold() {
  const part = location.hash && document.getElementById(location.hash.slice(1));
  const folded = part && part.closest("details");
  if (folded) { folded.open = true; folded.scrollIntoView(); }
}
addEventListener("hashchange", unfold);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
unfold();
"""
