"""The answers of commands, and how they are printed. The answer goes to standard output, everything
else to standard error. Each column of a listing is declared once, for the JSON and for people.

A listing is printed as a table if it fits into the width. If it does not, and the terminal has at
least 60 columns, it is printed as a narrow table: a row is still one line, with short cells, and
without the columns that matter least. On a terminal that is narrower still, it is printed as a
block of lines for each row. Widths are terminal columns: a Chinese character takes two, and a
combining accent takes none.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final, Generic, TextIO, TypeAlias, TypeVar

import click
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from paimon_stream.cli.text import jsonable, plain

T = TypeVar("T")

_GAP: Final = "  "
"""The text between two columns."""
_NARROWEST_PROSE: Final = 30
"""The width below which prose is not narrowed."""
_NARROWEST_NAME: Final = 12
"""The width below which a long name is not cut: its beginning and its end can be recognised."""
_NARROWEST_TABLE: Final = 60
"""The width of a terminal below which a listing is never made narrower to be a table."""
_ELLIPSIS: Final = "…"


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
        short: a function that returns what people see in a narrow table; by default, the same as in
            any other.
        long_name: whether the text is a name that a narrow table may cut in the middle.
        wide: whether a narrow table may leave the column out. The last such column is left out
            first.
    """

    key: str
    value: Callable[[T], Any]
    title: str = ""
    for_people: Callable[[T], object] | None = None
    number: bool = False
    ident: bool = False
    prose: bool = False
    extra: bool = False
    short: Callable[[T], object] | None = None
    long_name: bool = False
    wide: bool = False

    @property
    def name(self) -> str:
        """The name for people, as a title and for `--columns`."""
        return self.title or self.key.replace("_", " ")

    @property
    def is_narrower_in_a_narrow_table(self) -> bool:
        """Whether a narrow table shows less of this column than any other table."""
        return self.short is not None or self.long_name or self.wide

    def cell(self, thing: T) -> object:
        """What people see in this column for one thing."""
        return self._shown((self.for_people or self.value)(thing))

    def short_cell(self, thing: T) -> object:
        """What people see in this column of a narrow table for one thing."""
        return self.cell(thing) if self.short is None else self._shown(self.short(thing))

    def _shown(self, content: object) -> object:
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
    the table is wider than `width` (None: no limit). `names` are the columns to show, in this
    order. Columns that are named are shown whole, so a table of them is never made narrower.
    """
    if not listing.rows:
        yield from sentence_lines(listing.empty, width)
        return
    columns = choose(listing.columns, names)
    rows = [[plain(column.cell(row)) for column in columns] for row in listing.rows]
    table = _fitting(columns, rows, width, may_cut=False)
    if table is None and names is None and width is not None and width >= _NARROWEST_TABLE:
        table = _narrow_table(columns, listing.rows, width)
    if table is not None:
        yield from table
        return
    for position, row in enumerate(rows):
        if position:
            yield Text()
        pairs = [(column.name, cell) for column, cell in zip(columns, row, strict=True)]
        yield from pair_lines(pairs, width, colon=":")


def _narrow_table(
    columns: Sequence[Column[T]], things: Sequence[T], width: int
) -> Iterator[Text] | None:
    """A table of short cells, without as many of the last wide columns as do not fit. None if the
    other columns alone do not fit.
    """
    kept = list(columns)
    while True:
        rows = [[plain(column.short_cell(thing)) for column in kept] for thing in things]
        table = _fitting(kept, rows, width, may_cut=True)
        wide = [column for column in kept if column.wide]
        if table is not None or not wide:
            return table
        kept.remove(wide[-1])


def _fitting(
    columns: Sequence[Column[T]],
    rows: Sequence[Sequence[str]],
    width: int | None,
    *,
    may_cut: bool,
) -> Iterator[Text] | None:
    """The table, or None if it is wider than `width`. Prose becomes narrower in a table that is too
    wide, and so do long names if they may be cut.
    """
    widths = [
        max(cell_len(column.name), *(cell_len(row[i]) for row in rows))
        for i, column in enumerate(columns)
    ]
    if width is None:
        return _table(columns, rows, widths)
    narrowest = [
        _NARROWEST_PROSE
        if column.prose
        else max(_NARROWEST_NAME, cell_len(column.name))
        if column.long_name and may_cut
        else widths[i]
        for i, column in enumerate(columns)
    ]
    too_wide = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    while too_wide > 0:
        flexible = [i for i in range(len(columns)) if widths[i] > narrowest[i]]
        if not flexible:
            return None
        widest = max(flexible, key=lambda i: widths[i])
        narrower = max(narrowest[widest], widths[widest] - too_wide)
        if len(flexible) > 1:
            # The widest column is not made narrower than the second widest one in one step. So
            # several columns become narrower together.
            second = max(widths[i] for i in flexible if i != widest)
            next_width = second if second < widths[widest] else widths[widest] - 1
            narrower = max(narrower, next_width)
        too_wide -= widths[widest] - narrower
        widths[widest] = narrower
    return _table(columns, rows, widths)


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
            broken.append(_broken(cell, width) if column.prose else [_cut(cell, width)])
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


def _cut(text: str, width: int) -> str:
    """The text, with an ellipsis in the place of its middle if it is wider than `width`."""
    if cell_len(text) <= width:
        return text
    end = ""
    for letter in reversed(text):
        if cell_len(letter + end) > (width - cell_len(_ELLIPSIS)) // 2:
            break
        end = letter + end
    beginning = set_cell_size(text, width - cell_len(_ELLIPSIS) - cell_len(end)).rstrip()
    return f"{beginning}{_ELLIPSIS}{end}"


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


def show(
    answer: CommandAnswer,
    *,
    as_json: bool,
    columns: Sequence[str] | None = None,
    wide: bool = False,
) -> None:
    """Writes the answer to standard output, as a JSON document or as text.

    Args:
        answer: the answer of the command.
        as_json: whether it is written as JSON.
        columns: the names of the columns of a listing; None for the usual ones.
        wide: whether a listing is a whole table, however wide the terminal is.
    """
    if answer.pieces is not None:
        for piece in answer.pieces:
            if sys.stdout.isatty():
                piece = "\n".join(map(plain, piece.split("\n")))
            sys.stdout.write(piece)
    elif as_json:
        sys.stdout.write(json.dumps(jsonable(answer.document), indent=2) + "\n")
    else:
        width = None if wide else _width(sys.stdout)
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
