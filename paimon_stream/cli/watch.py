"""`watch`: the streams of tables and warehouses, again and again."""

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count as endless
from itertools import islice
from typing import Any, Final

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from paimon_stream.api.catalog import catalog
from paimon_stream.api.streams import STATES, StreamState, StreamWatch
from paimon_stream.cli.command import (
    COUNT,
    Session,
    catalog_options,
    folders,
    option,
    table_command,
)
from paimon_stream.cli.doctor import doctor
from paimon_stream.cli.exits import before_late_end
from paimon_stream.cli.files import stats
from paimon_stream.cli.output import (
    Column,
    CommandAnswer,
    Listing,
    Part,
    choose,
    json_of,
    listing_lines,
    part_lines,
)
from paimon_stream.cli.snapshots import query
from paimon_stream.cli.text import count, in_commands, iso, plain, size
from paimon_stream.errors import NotFound, PaimonStreamError
from paimon_stream.options import STORE_MAX_OUTAGE
from paimon_stream.runtime import system
from paimon_stream.storage.together import AT_ONCE
from paimon_stream.stream.batch_summary import phases_of

_LISTED_EVERY: Final = 12
"""After this many rounds, the tables of a warehouse are listed again."""
_QUICK: Final = {STORE_MAX_OUTAGE.key: "0 s"}  # an outage is shown, and not waited for
_SORTS: Final = ("state", "table", "age", "rows")
_STYLES: Final = {
    "unreadable": "red",
    "stuck": "red",
    "contended": "yellow",
    "silent": "yellow",
    "well": "green",
}
_DETAILS: Final[tuple[tuple[click.Command, dict[str, Any]], ...]] = (
    (stats, {"snapshot": None}),
    (
        doctor,
        {
            "user": None,
            "names": (),
            "sink_option": (),
            "checkpoint": None,
            "mode": "append",
            "query_name": None,
        },
    ),
    (query, {"user": None}),
)
"""What an opened table shows."""
_NAMES: Final = {b"\x1b[A": "up", b"\x1b[B": "down", b"\n": "enter", b"\r": "enter", b"\x1b": "esc"}
_KEYS: Final = "↑ ↓ choose, Enter opens, Esc closes, s sorts, q ends"


def _age(one: StreamState) -> int | None:
    return (
        None if one.last_millis is None else max(0, system().clock.now_millis() - one.last_millis)
    )


def _span(millis: float) -> str:
    """A time for people, of at most six characters: `95 ms`, `12 s`, `3 min`, `40 h`, `9 d`."""
    if millis < 1000:
        return f"{millis:.0f} ms"
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if millis >= 2 * length:
            return f"{millis / length:.0f} {unit}"
    return f"{millis / 1000:.0f} s"


def _number(
    key: str, value: Callable[[StreamState], Any], title: str = "", shown: Any = None, **how: bool
) -> Column[StreamState]:
    """A column of numbers, with their text for people."""
    text = None if shown is None else lambda one: None if value(one) is None else shown(value(one))
    return Column(key, value, title, text=text, number=True, **how)


COLUMNS: Final[tuple[Column[StreamState], ...]] = (
    Column(
        "table",
        lambda one: one.location,
        text=lambda one: "/".join(one.location.rsplit("/", 2)[-2:]),
    ),
    Column("state", lambda one: one.state),
    Column("batch", lambda one: one.batch, ident=True),
    _number("age", _age, shown=_span),
    _number("interval", lambda one: one.interval, "every", _span),
    _number("running", lambda one: one.running, shown=_span),
    _number("rows", lambda one: one.story.rows),
    _number("rows_per_second", lambda one: one.rows_per_second, "rows/s", "{:,.0f}".format),
    _number("bytes", lambda one: one.story.bytes, "size", size, extra=True),
    _number("files", lambda one: one.story.files, extra=True),
    _number("write_millis", lambda one: one.story.write_millis, "write", _span),
    _number("commit_millis", lambda one: one.commit_millis, "commit", _span),
    _number("attempts", lambda one: one.previous.get("attempts"), "tries"),
    Column("previous", lambda one: dict(one.previous), extra=True),
    Column("time", lambda one: iso(one.last_millis), extra=True),
    Column("snapshot", lambda one: one.snapshot, ident=True, extra=True),
    Column("user", lambda one: one.user, extra=True),
    Column("query", lambda one: one.query_name, extra=True),
    Column("why", lambda one: one.why or None, prose=True, extra=True),
)


class Watched:
    """The tables of some places, with what was seen last. A place is the folder of a table or of a
    warehouse, the name of a table in the catalog that was given, or None for all of that.
    """

    def __init__(self, given: Session, places: Sequence[str | None]) -> None:
        self._given = replace(
            given, catalog_options=given.catalog_options and {**given.catalog_options, **_QUICK}
        )
        self._places = places
        self._tables: dict[str, Callable[[], Session]] = {}
        self._opened: dict[str, tuple[Session, StreamWatch]] = {}

    def look(self, number: int) -> list[StreamState]:
        """The states now, in this round. Raises what listing a warehouse raises, in the first round
        only.
        """
        if number % _LISTED_EVERY == 0:
            try:
                self._tables = {key: one for place in self._places for key, one in self._at(place)}
            except PaimonStreamError:
                if not self._tables:
                    raise
        with ThreadPoolExecutor(AT_ONCE) as threads:
            return list(threads.map(self._look, self._tables))

    def session(self, name: str) -> Session:
        """The table of that name as other commands take it. Raises what loading a table raises."""
        return self._tables[name]()

    def _look(self, name: str) -> StreamState:
        try:
            if name not in self._opened:
                session = self.session(name)
                self._opened[name] = session, StreamWatch(session.raw.storage, session.stores)
        except PaimonStreamError as why:
            return StreamState(location=name, state="unreadable", why=why.message)
        return self._opened[name][1].look(system().clock.now_millis())

    def _at(self, place: str | None) -> Iterator[tuple[str, Callable[[], Session]]]:
        """The tables of a place by their locations, each with what opens it. Raises `NotFound` if
        there are none.
        """
        options, warehouse = self._given.storage_options, None
        if place is not None:
            is_name = "/" not in place and not os.path.exists(place)
            known = (
                catalog_options(click.get_current_context().params["named"], None)
                if is_name
                else {}
            )
            known = known and {**known, **_QUICK}
            try:
                where = Session(place, options, None, known).raw.location
            except NotFound:
                warehouse = catalog({"warehouse": place, **options})
                if not warehouse.list_databases():
                    raise
            else:
                yield where, partial(Session, place, options, None, known)
                return
        warehouse = warehouse or self._given.catalog
        in_it = {"warehouse": place} if place else self._given.catalog_options
        for database in warehouse.list_databases():
            for table in warehouse.list_tables(database):
                named = partial(Session, f"`{database}`.`{table}`", options, None, in_it)
                yield warehouse.location((database, table)), named


def sick_first(states: list[StreamState], by: str = "state") -> list[StreamState]:
    """The states in the order in which an operator wants to see them, or sorted by something else
    (`_SORTS`).
    """
    keys: dict[str, Callable[[StreamState], Any]] = {
        "state": lambda one: (STATES.index(one.state), one.location),
        "table": lambda one: one.location,
        "age": lambda one: -(_age(one) or 0),
        "rows": lambda one: -(one.story.rows or 0),
    }
    return sorted(states, key=keys[by])


@table_command(
    example="watch /data/warehouse",
    columns=COLUMNS,
    of_warehouse=True,
    params=(
        click.Argument(["others"], nargs=-1, metavar="[TABLE|WAREHOUSE]…", shell_complete=folders),
        option(
            "--interval",
            "Look again after this number of seconds.",
            type=click.FloatRange(min=0.1),
            default=5.0,
        ),
        option(
            "--rounds",
            "Look this number of times, then end. On a terminal without end; else once.",
            type=COUNT,
        ),
    ),
)
def watch(
    session: Session, others: tuple[str, ...], interval: float, rounds: int | None
) -> CommandAnswer:
    """Shows the streams of tables and warehouses, the sick ones first: the last batch and its age,
    the usual time between batches, how long Spark has been at a batch that is not done, rows, and
    the times of writing and of the commit before. On a terminal, keys choose, sort and open a
    table, which shows its writers, files and what doctor would say. With --json, each look prints
    one line for each table. A stream is `stuck` if Spark has been at one batch for five times the
    usual interval, and `silent` if it has committed nothing for so long; both take at least five
    minutes. It is `contended` if its last commit was tried five times. The exit code is 0 whatever
    is shown.
    """
    console, context = Console(highlight=False), click.get_current_context()
    watched = Watched(session, [context.params["warehouse"], *others])
    is_live = sys.stdout.isatty() and not console.is_dumb_terminal
    numbers = range(rounds) if rounds is not None else endless() if is_live else range(1)
    chosen = None if context.params["shown"] is None else context.params["shown"].split(",")

    def lines(states: list[StreamState]) -> list[str]:
        if context.params["as_json"]:
            return [json.dumps(json_of(COLUMNS, one), ensure_ascii=False) for one in states]
        return [line.plain for line in listing_lines(_listing(states), None, chosen)]

    if context.params["as_json"] or not is_live:
        return CommandAnswer(document={}, text=_rounds(watched, numbers, interval, lines))
    _Screen(watched, console, chosen).run(numbers, interval)
    return CommandAnswer(document={}, text=())


def _rounds(
    watched: Watched, numbers: Any, interval: float, shown: Callable[..., list[str]]
) -> Iterator[str]:
    """The text of each round, which is written before the next one begins."""
    for number in numbers:
        if number:
            system().clock.sleep(interval)
        yield "".join(f"{line}\n" for line in shown(sick_first(watched.look(number))))
        sys.stdout.flush()


def _listing(states: Sequence[StreamState]) -> Listing[StreamState]:
    return Listing(COLUMNS, states, "There are no tables.")


class _Screen:
    """The live view of a terminal: all tables, or the one that is opened."""

    def __init__(self, watched: Watched, console: Console, chosen: Sequence[str] | None) -> None:
        self._watched, self._console, self._shown = watched, console, chosen
        self._sort, self._place, self._top = 0, 0, 0
        self._open: str | None = None
        self._states: list[StreamState] = []
        self._inside: list[Text] = []  # the lines of the opened table; none if it is gone

    def run(self, numbers: Any, interval: float) -> None:
        """Shows the rounds until q is pressed."""
        with _keys() as key, Live(console=self._console, screen=True, auto_refresh=False) as live:
            for number in numbers:
                self._states = self._watched.look(number)
                self._look_into()
                live.update(self._view(), refresh=True)
                clock = system().clock
                end = clock.monotonic() + interval
                while (left := end - clock.monotonic()) > 0:
                    pressed = key(left)
                    if pressed == "q":
                        return
                    live.update(self._view(), refresh=True) if self._take(pressed) else None

    def _take(self, key: str | None) -> bool:
        """Acts on a key. Returns whether there is something else to show."""
        step = {"up": -1, "k": -1, "down": 1, "j": 1}.get(key or "")
        if step is not None and self._open is not None:
            self._top = max(self._top + 5 * step, 0)
        elif step is not None:
            self._place = min(max(self._place + step, 0), len(self._states) - 1)
        elif key == "s":
            self._sort = (self._sort + 1) % len(_SORTS)
        elif key == "enter" and self._states:
            self._open, self._top = self._ordered()[self._place].location, 0
            self._look_into()
        elif key in ("esc", "b"):
            self._open = None
        return key is not None

    def _ordered(self) -> list[StreamState]:
        self._place = min(self._place, max(len(self._states) - 1, 0))
        return sick_first(self._states, _SORTS[self._sort])

    def _look_into(self) -> None:
        """Reads the opened table, once in a round, because that may take long."""
        opened = (self._of_one(one) for one in self._states if one.location == self._open)
        self._inside = next(opened, [])

    def _view(self) -> Group:
        is_inside = self._open is not None and bool(self._inside)
        lines = self._inside[self._top :] if is_inside else self._of_all(self._ordered())
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis"
        return Group(*lines[: self._console.height])

    def _of_all(self, states: list[StreamState]) -> list[Text]:
        """The tables around the chosen one, as many as fit. On a narrow terminal, what does not fit
        is cut off.
        """
        known = [
            one.key
            for one in choose(COLUMNS)
            if any(one.value(state) is not None for state in states)
        ]
        header, *rows = list(listing_lines(_listing(states), None, self._shown or known))
        for number, (row, one) in enumerate(zip(rows, states, strict=False)):
            row.stylize("reverse" if number == self._place else _STYLES.get(one.state, ""))
        room = max(self._console.height - 3, 1)
        first = min(max(self._place - room // 2, 0), max(len(rows) - room, 0))
        sick = sum(one.state not in ("well", "no stream") for one in states)
        head = Text(
            f"{count(len(states), 'table')}, {sick:,} not well, by {_SORTS[self._sort]}",
            style="bold",
        )
        why = next((one.why for one in states[self._place : self._place + 1]), "")
        return [
            head,
            header,
            *islice(rows, first, first + room),
            Text(plain(why or _KEYS), style="dim"),
        ]

    def _of_one(self, state: StreamState) -> list[Text]:
        """What the commands `query`, `stats` and `doctor` say of the table, below its state."""
        before = ", ".join(
            f"{name} {_span(one)}" for name, one in phases_of(state.previous).items()
        )
        parts: list[Part] = [f"{state.location}: {state.state}. {state.why}".strip(), _KEYS]
        parts += [f"The commit before: {before}."] if before else []
        try:
            session = self._watched.session(state.location)
            for command, asked in _DETAILS:
                parts += ["", *command.ask(session, **asked).parts]  # type: ignore[attr-defined]
        except PaimonStreamError as why:
            parts.append(in_commands(why.message))
        return [line for part in parts for line in part_lines(part, self._console.width)]


@contextmanager
def _keys() -> Iterator[Callable[[float], str | None]]:
    """A function that waits for a key for some seconds, and returns its name; None if none was
    pressed. While it is used, the terminal hands over each key at once, and does not show it.
    """
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # so the terminal is given back
    if sys.stdin is None or not sys.stdin.isatty():
        yield lambda seconds: system().clock.sleep(seconds)
        return
    import select
    import termios
    import tty

    stream, waiting = sys.stdin.fileno(), list[bytes]()
    before = termios.tcgetattr(stream)
    give_back = partial(termios.tcsetattr, stream, termios.TCSADRAIN, before)
    shown_on = sys.stderr  # rich puts another object in its place while its screen is shown

    def leave_screen() -> None:
        shown_on.write("\x1b[?1049l")
        shown_on.flush()

    before_late_end[:] = give_back, leave_screen

    def key(seconds: float) -> str | None:
        if not waiting and not select.select([stream], [], [], seconds)[0]:
            return None
        if not waiting:  # at the end of the input, q
            waiting.extend(re.findall(rb"\x1b\[.|.", os.read(stream, 64), re.DOTALL) or [b"q"])
        pressed = waiting.pop(0)
        return _NAMES.get(pressed, pressed[:1].decode("ascii", "replace").lower())

    try:
        tty.setcbreak(stream)
        yield key
    finally:
        give_back()
