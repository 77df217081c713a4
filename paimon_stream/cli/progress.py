"""Progress of long work on standard error: on a terminal a bar with rate and time left, else plain
lines.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich import progress as rich_progress
from rich.console import Console
from rich.text import Text

from paimon_stream.cli.output import say
from paimon_stream.cli.text import plain, size
from paimon_stream.reports import Progress as Reporter
from paimon_stream.runtime import Clock, system

_SECONDS_BETWEEN_LINES: Final = 5.0


@contextmanager
def progress(console: Console | None = None) -> Iterator[Reporter]:
    """A callable that shows the progress of long work on the console, by default standard error."""
    console = console or Console(file=sys.stderr)
    if not console.is_terminal:
        lines = _PlainLines(system().clock)
        yield lines
        lines.end()
        return
    shown = (
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.BarColumn(),
        _Done(),
        _Rate(),
    )
    columns = (rich_progress.SpinnerColumn(), *shown, rich_progress.TimeRemainingColumn())
    with rich_progress.Progress(*columns, console=console, transient=True) as bars:
        yield _Bars(bars)


class _Bars:
    def __init__(self, bars: rich_progress.Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, rich_progress.TaskID] = {}

    def __call__(self, what: str, done: int, total: int | None) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._bars.add_task(plain(what), total=total)
        self._bars.update(self._tasks[what], completed=done, total=total)


class _Done(rich_progress.ProgressColumn):
    def render(self, task: rich_progress.Task) -> Text:
        total = "?" if task.total is None else _amount(task.description, task.total)
        return Text(f"{_amount(task.description, task.completed)} of {total}")


class _Rate(rich_progress.ProgressColumn):
    def render(self, task: rich_progress.Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{_amount(task.description, speed)}/s")


def _amount(what: str, number: float) -> str:
    """A number of things; of bytes, their size."""
    return size(round(number)) if what == "bytes" else f"{number:,.0f}"


class _PlainLines:
    """At most one line per `_SECONDS_BETWEEN_LINES`, and a last one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said_at = self._began = clock.monotonic()
        self._unsaid: str | None = None

    def __call__(self, what: str, done: int, total: int | None) -> None:
        of = "" if total is None else f" of {_amount(what, total)}"
        self._unsaid = f"{what}: {_amount(what, done)}{of}"
        now = self._clock.monotonic()
        if now - self._said_at >= _SECONDS_BETWEEN_LINES:
            rate = done / (now - self._began)
            left = (
                "" if total is None or not rate else f", {max(0, total - done) / rate:,.0f} s left"
            )
            say(f"{self._unsaid}, {_amount(what, rate)}/s{left}")
            self._said_at, self._unsaid = now, None

    def end(self) -> None:
        """Prints the last progress, if the work was long enough for earlier lines."""
        if self._unsaid is not None and self._said_at > self._began:
            say(self._unsaid)
