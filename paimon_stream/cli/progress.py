"""Progress of long work on standard error. A terminal shows a bar with the rate and the time left.
Otherwise plain lines are printed.
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
    columns = (
        rich_progress.SpinnerColumn(),
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.BarColumn(),
        _Done(),
        _Rate(),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=console, transient=True) as bars:
        yield _Bars(bars)


class _Bars:
    """A bar for each kind of work."""

    def __init__(self, bars: rich_progress.Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, rich_progress.TaskID] = {}

    def __call__(self, work: str, done: int, total: int | None) -> None:
        if work not in self._tasks:
            self._tasks[work] = self._bars.add_task(plain(work), total=total)
        self._bars.update(self._tasks[work], completed=done, total=total)


class _Done(rich_progress.ProgressColumn):
    def render(self, task: rich_progress.Task) -> Text:
        total = "?" if task.total is None else _amount(task.description, task.total)
        return Text(f"{_amount(task.description, task.completed)} of {total}")


class _Rate(rich_progress.ProgressColumn):
    def render(self, task: rich_progress.Task) -> Text:
        speed = task.finished_speed or task.speed
        if speed is None:
            return Text("")
        return Text(f"{_amount(task.description, speed)}/s")


def _amount(work: str, number: float) -> str:
    """A number of things as text. A number of bytes is shown as a size."""
    return size(round(number)) if work == "bytes" else f"{number:,.0f}"


class _PlainLines:
    """Prints at most one line per `_SECONDS_BETWEEN_LINES`, and a last line at the end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._printed_at = self._began
        self._pending: str | None = None  # the progress since the last line

    def __call__(self, work: str, done: int, total: int | None) -> None:
        share = "" if total is None else f" of {_amount(work, total)}"
        self._pending = f"{work}: {_amount(work, done)}{share}"
        now = self._clock.monotonic()
        if now - self._printed_at < _SECONDS_BETWEEN_LINES:
            return
        rate = done / (now - self._began)
        time_left = ""
        if total is not None and rate:
            time_left = f", {max(0, total - done) / rate:,.0f} s left"
        say(f"{self._pending}, {_amount(work, rate)}/s{time_left}")
        self._printed_at = now
        self._pending = None

    def end(self) -> None:
        """Prints the last progress, if the work was long enough for earlier lines."""
        if self._pending is not None and self._printed_at > self._began:
            say(self._pending)
