"""Standard output gets the answer; standard error gets everything else."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TextIO, TypeAlias

from rich.console import Console
from rich.text import Text

from paimon_stream.cli.columns import Listing
from paimon_stream.cli.layout import listing_lines, pair_lines, sentence_lines
from paimon_stream.cli.text import jsonable

_UNLIMITED: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Lines:
    """Names and values, one pair per line."""

    pairs: Sequence[tuple[str, object]]


Part: TypeAlias = "str | Listing[Any] | Lines"
"""A piece of an answer to people. A plain text is a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command answers: to programs (`document`, which becomes JSON when it is shown), to people, and
    by its exit code."""

    document: Mapping[str, Any]
    parts: Sequence[Part] = field(default=())
    code: int = 0


def show(answer: Answer, *, as_json: bool, columns: Sequence[str] | None = None) -> None:
    """Writes the answer to standard output, as one JSON document or as text. `columns` are the names of the
    columns to show in listings."""
    if as_json:
        sys.stdout.write(json.dumps(jsonable(answer.document), indent=2) + "\n")
    else:
        width = _width(sys.stdout)
        _print(sys.stdout, (line for part in answer.parts for line in _lines(part, width, columns)))
    sys.stdout.flush()


def say(text: str) -> None:
    """Prints a line to standard error. On a terminal, a long line is broken between words."""
    _print(sys.stderr, sentence_lines(f"paimon-stream: {text}", _width(sys.stderr)))


def _lines(part: Part, width: int | None, columns: Sequence[str] | None) -> Iterable[Text]:
    match part:
        case Lines(pairs):
            return pair_lines(pairs, width)
        case Listing():
            return listing_lines(part, width, columns)
    return sentence_lines(part, width)


def _width(stream: TextIO) -> int | None:
    """The width of the terminal in columns. None if the stream is not a terminal, because a file or a pipe
    gets one line per row."""
    return Console(file=stream).width if stream.isatty() else None


def _print(stream: TextIO, lines: Iterable[Text]) -> None:
    console = _Console(file=stream, width=_UNLIMITED, highlight=False, markup=False, emoji=False)
    for line in lines:
        console.print(line, soft_wrap=True)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Called by rich. Lets the program decide the exit code; rich would end the process with 1."""
        raise BrokenPipeError
