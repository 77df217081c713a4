"""Standard output and standard error: one answer on the one, everything else on the other."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TextIO

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from paimon_stream.cli.text import plain

__all__ = ["Answer", "Column", "Lines", "Listing", "say", "show"]

_NO_TERMINAL_WIDTH: Final = 100_000


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a listing: its title, and whether it holds numbers, which stand to the right."""

    title: str
    number: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows below titles; `empty` is said where there are none."""

    columns: Sequence[Column]
    rows: Iterable[Sequence[object]]
    empty: str


@dataclass(frozen=True, slots=True)
class Lines:
    """Names and values, one pair a line."""

    pairs: Sequence[tuple[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command answers: to programs, to people, and by its exit code. Each of `parts` is a
    sentence, a `Listing` or `Lines`."""

    document: Mapping[str, Any]
    parts: Sequence[str | Listing | Lines] = field(default=())
    code: int = 0


def show(answer: Answer, *, as_json: bool) -> None:
    """Writes the answer to standard output, as one JSON document or as text."""
    if as_json:
        sys.stdout.write(json.dumps(answer.document, indent=2) + "\n")
    else:
        console = _console(sys.stdout)
        for part in answer.parts:
            _print(console, part)
    sys.stdout.flush()


def say(text: str) -> None:
    """A line on standard error."""
    _console(sys.stderr).print(Text(f"paimon-stream: {plain(text)}"), soft_wrap=True)


def _console(stream: TextIO) -> Console:
    width = None if stream.isatty() else _NO_TERMINAL_WIDTH
    return _Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leaves it to the program how it ends; rich would end it with 1."""
        raise BrokenPipeError


def _print(console: Console, part: str | Listing | Lines) -> None:
    match part:
        case str():
            console.print(Text(plain(part)), soft_wrap=True)
        case Lines(pairs):
            grid = Grid(box=None, show_header=False, pad_edge=False)
            grid.add_column(no_wrap=True, style="bold")
            grid.add_column(overflow="fold")
            for name, value in pairs:
                grid.add_row(name, Text(plain(value)))
            console.print(grid)
        case Listing(columns, rows, empty):
            grid = Grid(box=None, pad_edge=False, header_style="bold")
            for column in columns:
                grid.add_column(column.title, justify="right" if column.number else "left", overflow="fold")
            for row in rows:
                grid.add_row(*(Text(plain(cell)) for cell in row))
            console.print(grid if grid.row_count else Text(empty))
