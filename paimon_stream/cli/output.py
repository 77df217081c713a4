"""The answers of commands, and how they are printed. The answer goes to standard output, everything
else to standard error. Each column of a listing is declared once, for the JSON and for people.

A listing is printed as a table if it fits into the width. Otherwise, it is printed as a block of
lines for each row. Widths are terminal columns: a Chinese character takes two, and a combining
accent takes none.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final, Generic, TextIO, TypeAlias, TypeVar

import click
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from paimon_stream.cli.text import jsonable, plain

T = TypeVar("T")

_GAP: Final = "  "
"""The text between two columns."""
_NARROWEST_PROSE: Final = 30
"""The width below which prose is not narrowed."""


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column of a listing: a fact about each listed thing.

    Attributes:
        key: the column's name in the JSON.
        value: a function that returns the value in the JSON.
        title: the name for people; by default, the key.
        for_people: a function that returns what people see; by default, the value.
        number: whether the column is a number, which is aligned to the right and has commas.
        ident: whether the column is a number that names something, such as a snapshot. Such a
            number has no commas.
        prose: whether the text may be broken into lines.
        extra: whether people see the column only if `--columns` names it. The JSON always has it.
    """

    key: str
    value: Callable[[T], Any]
    title: str = ""
    for_people: Callable[[T], object] | None = None
    number: bool = False
    ident: bool = False
    prose: bool = False
    extra: bool = False

    @property
    def name(self) -> str:
        """The name for people, as a title and for `--columns`."""
        return self.title or self.key.replace("_", " ")

    def cell(self, thing: T) -> object:
        """What people see in this column for one thing."""
        read = self.for_people or self.value
        content = read(thing)
        return str(content) if self.ident and content is not None else content


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """Things, and the columns that show them. `empty` is printed if there are no things."""

    columns: Sequence[Column[T]]
    rows: Sequence[T]
    empty: str


def json_of(columns: Sequence[Column[T]], thing: T) -> dict[str, Any]:
    """The JSON of one thing. It has all columns, including those that are not shown to people."""
    return {column.key: column.value(thing) for column in columns}


def choose(
    columns: Sequence[Column[T]], names: Sequence[str] | None = None
) -> tuple[Column[T], ...]:
    """The columns to show. They are the columns with these titles or keys, in this order. Without
    names, they are all columns that are not extra. `all` stands for all columns. Raises a usage
    error for an unknown name.
    """
    if names is None:
        return tuple(column for column in columns if not column.extra)
    by_name: Mapping[str, Column[T]] = {
        _folded(name): column for column in columns for name in (column.key, column.name)
    }
    chosen: list[Column[T]] = []
    for name in names:
        if _folded(name) == "all":
            chosen += columns
        elif _folded(name) in by_name:
            chosen.append(by_name[_folded(name)])
        else:
            all_names = ", ".join(column.name.replace(" ", "_") for column in columns)
            raise click.UsageError(
                f"There is no column {name.strip()!r}. The columns are: {all_names}."
            )
    return tuple(dict.fromkeys(chosen))


def _folded(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def sentence_lines(sentence: str, width: int | None) -> Iterator[Text]:
    """A sentence, broken between words to fit `width` (None: no limit). Line ends in names are
    escaped, so no name begins a new line.
    """
    return (Text(line) for line in _broken(plain(sentence), width))


def pair_lines(
    pairs: Sequence[tuple[str, object]], width: int | None, *, colon: str = ""
) -> Iterator[Text]:
    """Names and values, one pair per line. A long value continues below its beginning."""
    widest = max((cell_len(name) for name, _ in pairs), default=0) + len(colon)
    inside = None if width is None else max(width - widest - len(_GAP), _NARROWEST_PROSE)
    for name, value in pairs:
        first, *others = _broken(plain(value), inside) or [""]
        yield Text(_left(name + colon, widest), style="bold") + Text(f"{_GAP}{first}".rstrip())
        yield from (Text(" " * (widest + len(_GAP)) + line) for line in others)


def listing_lines(
    listing: Listing[T], width: int | None, names: Sequence[str] | None = None
) -> Iterator[Text]:
    """The rows below the titles of their columns, or each row as a block of `name: value` lines if
    the table is wider than `width`. `names` are the columns to show, in this order.
    """
    columns = choose(listing.columns, names)
    rows = [[plain(column.cell(row)) for column in columns] for row in listing.rows]
    if not rows:
        yield from sentence_lines(listing.empty, width)
        return
    widths = _widths(columns, rows, width)
    if widths is not None:
        yield from _table(columns, rows, widths)
        return
    for position, row in enumerate(rows):
        if position:
            yield Text()
        pairs = [(column.name, cell) for column, cell in zip(columns, row, strict=True)]
        yield from pair_lines(pairs, width, colon=":")


def _widths(
    columns: Sequence[Column[T]], rows: Sequence[Sequence[str]], width: int | None
) -> list[int] | None:
    """The columns' widths. Prose becomes narrower if the table is too wide. The result is None if
    the table still does not fit.
    """
    widths = [
        max(cell_len(column.name), *(cell_len(row[i]) for row in rows))
        for i, column in enumerate(columns)
    ]
    if width is None:
        return widths
    too_wide = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    while too_wide > 0:
        prose = [
            i for i, column in enumerate(columns) if column.prose and widths[i] > _NARROWEST_PROSE
        ]
        if not prose:
            return None
        widest = max(prose, key=lambda i: widths[i])
        narrower = max(_NARROWEST_PROSE, widths[widest] - too_wide)
        if len(prose) > 1:
            # The widest column is not made narrower than the second widest one in one step. So
            # several columns of prose become narrower together.
            second = max(widths[i] for i in prose if i != widest)
            next_width = second if second < widths[widest] else widths[widest] - 1
            narrower = max(narrower, next_width)
        too_wide -= widths[widest] - narrower
        widths[widest] = narrower
    return widths


def _table(
    columns: Sequence[Column[T]], rows: Sequence[Sequence[str]], widths: Sequence[int]
) -> Iterator[Text]:
    def line(cells: Sequence[str]) -> str:
        aligned = []
        for column, cell, width in zip(columns, cells, widths, strict=True):
            align = _right if column.number or column.ident else _left
            aligned.append(align(cell, width))
        return _GAP.join(aligned).rstrip()

    yield Text(line([column.name for column in columns]), style="bold")
    for row in rows:
        broken = []
        for column, cell, width in zip(columns, row, widths, strict=True):
            lines = [cell]
            if column.prose:
                lines = _broken(cell, width)
            broken.append(lines)
        for cells in zip_longest(*broken, fillvalue=""):
            yield Text(line(cells))


def _broken(text: str, width: int | None) -> list[str]:
    """The text in lines of this width, broken between words. A longer word stays whole, so that it
    can be copied.
    """
    if width is None or cell_len(text) <= width:
        return [text]
    lines = [""]
    for word in text.rstrip(" ").split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _left(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def _right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text


_UNLIMITED: Final = 1_000_000
"""The width that rich gets, so that it breaks no line itself."""
Part: TypeAlias = "str | Listing[Any] | list[tuple[str, object]]"
"""A part of an answer for people: a sentence, a listing, or pairs of names and values, each on a
line of its own.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAnswer:
    """The answer of a command.

    Attributes:
        document: the answer for programs, which becomes JSON.
        parts: the answer for people.
        code: the exit code.
        pieces: a text in pieces, which is printed instead of `document` and `parts`.
    """

    document: Mapping[str, Any]
    parts: Sequence[Part] = field(default=())
    code: int = 0
    pieces: Iterable[str] | None = None


def show(answer: CommandAnswer, *, as_json: bool, columns: Sequence[str] | None = None) -> None:
    """Writes the answer to standard output, as a JSON document or as text with the columns of these
    names.
    """
    if answer.pieces is not None:
        for piece in answer.pieces:
            if sys.stdout.isatty():
                piece = "\n".join(map(plain, piece.split("\n")))
            sys.stdout.write(piece)
    elif as_json:
        sys.stdout.write(json.dumps(jsonable(answer.document), indent=2) + "\n")
    else:
        width = _width(sys.stdout)
        lines = (line for part in answer.parts for line in part_lines(part, width, columns))
        _print(sys.stdout, lines)
    sys.stdout.flush()


def say(text: str) -> None:
    """Prints a line to standard error. On a terminal, a long line is broken between words."""
    _print(sys.stderr, sentence_lines(f"paimon-stream: {text}", _width(sys.stderr)))


def part_lines(
    part: Part, width: int | None, columns: Sequence[str] | None = None
) -> Iterable[Text]:
    """The lines of a part of an answer. `columns` are the columns of a listing to show; None for
    the usual columns.
    """
    if isinstance(part, Listing):
        return listing_lines(part, width, columns)
    if isinstance(part, str):
        return sentence_lines(part, width)
    return pair_lines(part, width)


def _width(stream: TextIO) -> int | None:
    """The terminal's width in columns. None if the stream is a file or a pipe. A file or a pipe
    gets one line per row.
    """
    return Console(file=stream).width if stream.isatty() else None


def _print(stream: TextIO, lines: Iterable[Text]) -> None:
    console = _Console(file=stream, width=_UNLIMITED, highlight=False, markup=False, emoji=False)
    for line in lines:
        console.print(line, soft_wrap=True)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Lets the program decide the exit code, because rich would end the process with 1. rich
        calls this method.
        """
        raise BrokenPipeError
