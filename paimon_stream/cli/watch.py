"""The command `watch`, which shows the streams of tables and warehouses repeatedly."""

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count as endless
from typing import Any, Final

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from paimon_stream.api.catalog import PaimonCatalog, catalog
from paimon_stream.api.streams import STATES, StreamState, StreamWatch
from paimon_stream.cli.command import (
    COUNT,
    FOUND_IN,
    Session,
    TableCommand,
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
from paimon_stream.cli.text import count, in_commands, iso, plain, size, span
from paimon_stream.errors import NotFound, PaimonStreamError
from paimon_stream.options import STORE_MAX_OUTAGE
from paimon_stream.runtime import system
from paimon_stream.storage.together import AT_ONCE
from paimon_stream.stream.batch_summary import phases_of

_LISTED_EVERY: Final = 12
"""After this many rounds, the tables of a warehouse are listed again."""
_QUICK: Final = {STORE_MAX_OUTAGE.key: "0 s"}  # an outage is shown at once, not waited for
_FEWEST: Final = 2
"""The number of columns that the narrowest terminal shows: the table and its state."""
_STYLES: Final = {
    "unreadable": "red",
    "stuck": "red",
    "contended": "yellow",
    "silent": "yellow",
    "starting": "cyan",
    "well": "green",
}
_DETAILS: Final[tuple[tuple[TableCommand, dict[str, Any]], ...]] = (
    (stats, {"snapshot": None}),
    (
        doctor,
        {
            "checkpoint": None,
            "user": None,
            "names": (),
            "mode": "append",
            "query_name": None,
            "sink_option": (),
            "read_only": True,
        },
    ),
    (query, {"user": None}),
)
"""The commands whose answers an opened table shows, each with the values of its options."""
_NAMES: Final = {b"\x1b[A": "up", b"\x1b[B": "down", b"\n": "enter", b"\r": "enter", b"\x1b": "esc"}
_KEYS: Final = "↑ ↓ choose, Enter opens, Esc closes, s sorts, q ends"


def _age(state: StreamState) -> int | None:
    """The milliseconds since the stream's last batch; None if the stream has no batch."""
    if state.last_millis is None:
        return None
    return max(0, system().clock.now_millis() - state.last_millis)


def _number(
    key: str,
    value: Callable[[StreamState], Any],
    title: str = "",
    with_unit: Callable[[Any], str] | None = None,
    *,
    extra: bool = False,
) -> Column[StreamState]:
    """A column of numbers. `with_unit` turns a number into the text that people see."""
    if with_unit is None:
        return Column(key, value, title, number=True, extra=extra)
    write = with_unit

    def for_people(state: StreamState) -> str | None:
        number = value(state)
        return None if number is None else write(number)

    return Column(key, value, title, for_people, number=True, extra=extra)


COLUMNS: Final[tuple[Column[StreamState], ...]] = (
    Column(
        "table",
        lambda state: state.location,
        for_people=lambda state: "/".join(state.location.rsplit("/", 2)[-2:]),
    ),
    Column("state", lambda state: state.state),
    Column("batch", lambda state: state.batch, ident=True),
    _number("age", _age, with_unit=span),
    _number("interval", lambda state: state.interval, "every", span),
    _number("running", lambda state: state.running, with_unit=span),
    _number("rows", lambda state: state.story.rows),
    _number("rows_per_second", lambda state: state.rows_per_second, "rows/s", "{:,.0f}".format),
    _number("rows_updated", lambda state: state.story.rows_updated, extra=True),
    _number("rows_deleted", lambda state: state.story.rows_deleted, extra=True),
    _number("rows_inserted", lambda state: state.story.rows_inserted, extra=True),
    _number("bytes", lambda state: state.story.bytes, "size", size, extra=True),
    _number("files", lambda state: state.story.files, extra=True),
    _number("write_millis", lambda state: state.story.write_millis, "write", span),
    _number("commit_millis", lambda state: state.commit_millis, "commit", span),
    _number("attempts", lambda state: state.previous.get("attempts"), "tries"),
    Column("previous", lambda state: dict(state.previous), extra=True),
    Column("time", lambda state: iso(state.last_millis), extra=True),
    Column("snapshot", lambda state: state.snapshot, ident=True, extra=True),
    Column("user", lambda state: state.user, extra=True),
    Column("query", lambda state: state.query_name, extra=True),
    Column("why", lambda state: state.why or None, prose=True, extra=True),
)


def _without_waiting(catalog_options: Mapping[str, str]) -> Mapping[str, str]:
    """The options of a catalog, changed so that an outage is shown at once. Without this change,
    requests would wait for its end. {} if there is no catalog.
    """
    return {**catalog_options, **_QUICK} if catalog_options else {}


class Watched:
    """The tables of some places, with the last state of each. A place is the folder of a table or
    of a warehouse, the name of a table in the session's catalog, or None for the whole catalog.
    """

    def __init__(self, session: Session, places: Sequence[str | None]) -> None:
        self._session = replace(session, catalog_options=_without_waiting(session.catalog_options))
        self._places = places
        self._tables: dict[str, Callable[[], Session]] = {}
        """The functions that open the tables of the last listing, by the location under which each
        is listed.
        """
        self._opened: dict[str, tuple[Session, StreamWatch]] = {}
        """The tables that were opened, by the same locations."""

    def look(self, number: int) -> list[StreamState]:
        """The present states of the streams. `number` is the number of the round; the first round
        is 0. As long as no table is known, raises the errors of listing a warehouse.
        """
        if number % _LISTED_EVERY == 0:
            try:
                self._tables = dict(
                    table for place in self._places for table in self._tables_at(place)
                )
            except PaimonStreamError:
                if not self._tables:
                    raise
        with ThreadPoolExecutor(AT_ONCE) as threads:
            return list(threads.map(self._look, self._tables))

    def session(self, location: str) -> Session:
        """A session for other commands about the table whose state has this location. Raises the
        errors of loading a table.
        """
        # A warehouse may be given as a relative path or as an address. A table that was opened
        # knows its whole path.
        listed_as = {opened.raw.location: key for key, (opened, _) in self._opened.items()}
        return self._tables[listed_as.get(location, location)]()

    def _look(self, location: str) -> StreamState:
        try:
            if location not in self._opened:
                session = self._tables[location]()
                watch = StreamWatch(session.raw.storage, session.stores)
                self._opened[location] = session, watch
        except PaimonStreamError as error:
            return StreamState(location=location, state="unreadable", why=error.message)
        _, watch = self._opened[location]
        return watch.look(system().clock.now_millis())

    def _tables_at(self, place: str | None) -> Iterator[tuple[str, Callable[[], Session]]]:
        """The tables of a place by their locations, each with the function that opens it. Raises
        `NotFound` if there is no table.
        """
        if place is None:
            yield from self._tables_in(self._session.catalog, self._session.catalog_options)
            return
        storage_options = self._session.storage_options
        open_table = partial(
            Session, place, storage_options, catalog_options=_catalog_options_for(place)
        )
        try:
            location = open_table().raw.location
        except NotFound:
            # The place is not a table. If it has databases, it is a warehouse.
            warehouse = catalog({"warehouse": place, **storage_options})
            if not warehouse.list_databases():
                raise
            yield from self._tables_in(warehouse, {"warehouse": place})
        else:
            yield location, open_table

    def _tables_in(
        self, warehouse: PaimonCatalog, catalog_options: Mapping[str, str]
    ) -> Iterator[tuple[str, Callable[[], Session]]]:
        """The tables of a warehouse, in the form of `_tables_at`. Each table is opened with these
        options of the catalog.
        """
        for database in warehouse.list_databases():
            for table in warehouse.list_tables(database):
                open_table = partial(
                    Session,
                    f"`{database}`.`{table}`",
                    self._session.storage_options,
                    catalog_options=catalog_options,
                )
                yield warehouse.location((database, table)), open_table


def _catalog_options_for(place: str) -> Mapping[str, str]:
    """The options of the catalog that has a table of this name; {} if the place is a folder."""
    is_name = "/" not in place and not os.path.exists(place)
    if not is_name:
        return {}
    params = click.get_current_context().params
    return _without_waiting(catalog_options(params["catalog_name"], params.get("found_in")))


_SORT_KEYS: Final[Mapping[str, Callable[[StreamState], Any]]] = {
    "state": lambda state: (STATES.index(state.state), state.location),
    "table": lambda state: state.location,
    "age": lambda state: -(_age(state) or 0),
    "rows": lambda state: -(state.story.rows or 0),
}
_SORTS: Final = tuple(_SORT_KEYS)


def sick_first(states: list[StreamState], by: str = "state") -> list[StreamState]:
    """The states sorted by `by`, one of `_SORTS`. By default, the states that need an operator come
    first.
    """
    return sorted(states, key=_SORT_KEYS[by])


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
            "Look this number of times, then end. By default, on a terminal, look until you quit; "
            "elsewhere look once.",
            type=COUNT,
        ),
        FOUND_IN,
    ),
)
def watch(
    session: Session, others: tuple[str, ...], interval: float, rounds: int | None
) -> CommandAnswer:
    """Shows the streams of tables and warehouses. Streams that need an operator come first. For
    each stream it shows the last batch and its age, the usual time between batches, how long Spark
    has been at a batch that is not done, rows, and how long the last write and the commit before it
    took. On a terminal, keys choose and sort tables, and open a table to show its writers, its
    files and what doctor would say. With --json, each look prints one line for each table. A stream
    is `stuck` if Spark has been at one batch for five times the usual interval, and `silent` if it
    has committed nothing for that time; both take at least five minutes. It is `starting` while it
    has committed no batch yet. It is `contended` if the commit before its last one took five
    attempts or more. The exit code is 0 whatever is shown.
    """
    context = click.get_current_context()
    console = Console(highlight=False)
    is_live = sys.stdout.isatty() and not console.is_dumb_terminal
    watched = Watched(session, [context.params["warehouse"], *others])
    numbers = _round_numbers(rounds, endlessly=is_live)
    shown = context.params["shown_columns"]
    names = None if shown is None else shown.split(",")
    if context.params["as_json"]:
        return CommandAnswer(document={}, pieces=_rounds(watched, numbers, interval, _json_lines))
    if not is_live:
        lines = partial(_table_lines, names=names)
        return CommandAnswer(document={}, pieces=_rounds(watched, numbers, interval, lines))
    screen = _Screen(watched, console, names)
    screen.run(numbers, interval)
    # The live view has its own screen, which disappears when the view ends. So the last round is
    # also printed to the terminal's usual screen, unless the user has pressed q.
    left = "" if screen.is_left else "".join(f"{line.plain}\n" for line in screen.overview())
    return CommandAnswer(document={}, pieces=(left,))


def _round_numbers(rounds: int | None, *, endlessly: bool) -> Iterable[int]:
    """The numbers of the rounds, beginning with 0. If `rounds` is None, there is one round. With
    `endlessly`, there is then no last round.
    """
    if rounds is None and endlessly:
        return endless()
    return range(rounds or 1)


def _rounds(
    watched: Watched,
    numbers: Iterable[int],
    interval: float,
    lines: Callable[[list[StreamState]], list[str]],
) -> Iterator[str]:
    """The text of each round. It is written before the next round begins."""
    for number in numbers:
        if number:
            system().clock.sleep(interval)
        yield "".join(f"{line}\n" for line in lines(sick_first(watched.look(number))))
        sys.stdout.flush()


def _json_lines(states: list[StreamState]) -> list[str]:
    return [json.dumps(json_of(COLUMNS, state), ensure_ascii=False) for state in states]


def _table_lines(states: list[StreamState], *, names: Sequence[str] | None) -> list[str]:
    return [line.plain for line in listing_lines(_listing(states), None, names)]


def _listing(states: Sequence[StreamState]) -> Listing[StreamState]:
    return Listing(COLUMNS, states, "There are no tables.")


class _Screen:
    """The live view of a terminal: all tables, or the table that is opened."""

    def __init__(self, watched: Watched, console: Console, names: Sequence[str] | None) -> None:
        """`names` are the columns to show. None means all columns that have a value in at least one
        row.
        """
        self._watched = watched
        self._console = console
        self._names = names
        self._states: list[StreamState] = []  # the states of the newest round
        self._sort = 0  # the position in `_SORTS`
        self._place = 0  # the position of the chosen table
        self._open: str | None = None  # the location of the opened table
        self._inside: list[Text] = []  # the lines of the opened table; none if it is gone
        self._top = 0  # the first of these lines that is shown
        self.is_left = False  # whether somebody has pressed q

    def run(self, numbers: Iterable[int], interval: float) -> None:
        """Shows the rounds until q is pressed."""
        clock = system().clock
        with _keys() as key, Live(console=self._console, screen=True, auto_refresh=False) as live:
            for number in numbers:
                self._states = self._watched.look(number)
                self._look_into()
                live.update(self._view(), refresh=True)
                end = clock.monotonic() + interval
                while (left := end - clock.monotonic()) > 0:
                    pressed = key(left)
                    if pressed == "q":
                        self.is_left = True
                        return
                    if pressed is not None:
                        self._take(pressed)
                        live.update(self._view(), refresh=True)

    def _take(self, key: str) -> None:
        """Does what this key means."""
        step = {"up": -1, "k": -1, "down": 1, "j": 1}.get(key)
        if step is not None and self._open is not None:
            self._top = max(self._top + 5 * step, 0)  # each key press scrolls five lines
        elif step is not None:
            self._place = max(min(self._place + step, len(self._states) - 1), 0)
        elif key == "s":
            self._sort = (self._sort + 1) % len(_SORTS)
        elif key == "enter" and self._states:
            self._open = self._ordered()[self._place].location
            self._top = 0
            self._look_into()
        elif key in ("esc", "b"):
            self._open = None

    def _ordered(self) -> list[StreamState]:
        self._place = min(self._place, max(len(self._states) - 1, 0))
        return sick_first(self._states, _SORTS[self._sort])

    def _look_into(self) -> None:
        """Reads the opened table. This is done only once in a round, because it may take a long
        time.
        """
        self._inside = []
        for state in self._states:
            if state.location == self._open:
                self._inside = self._table_view(state)
                return

    def overview(self) -> list[Text]:
        """The lines about all tables that fit on the terminal, as of the newest round."""
        return self._overview(self._ordered())

    def _view(self) -> Group:
        is_inside = self._open is not None and bool(self._inside)
        lines = self._inside[self._top :] if is_inside else self.overview()
        for line in lines:
            line.no_wrap = True
            line.overflow = "ellipsis"
        return Group(*lines[: self._console.height])

    def _overview(self, states: list[StreamState]) -> list[Text]:
        """The tables around the chosen table, as many as fit. On a narrow terminal, the last
        columns are left out. If the rest is still too wide, it is cut off.
        """
        names = self._names or [
            column.key
            for column in choose(COLUMNS)
            if any(column.value(state) is not None for state in states)
        ]
        titles, *rows = listing_lines(_listing(states), None, names)
        while not self._names and len(names) > _FEWEST and titles.cell_len > self._console.width:
            names = names[:-1]
            titles, *rows = listing_lines(_listing(states), None, names)
        # If there are no tables, the title says so, and there are no rows.
        for place, (row, state) in enumerate(zip(rows, states, strict=False)):
            style = _STYLES.get(state.state, "")
            if place == self._place:
                style = "reverse"
            row.stylize(style)
        room = max(self._console.height - 3, 1)  # without the summary, the titles and the last line
        first = min(max(self._place - room // 2, 0), max(len(rows) - room, 0))
        sick = sum(state.state not in ("starting", "well", "no stream") for state in states)
        starting = sum(state.state == "starting" for state in states)
        begun = f", {starting:,} starting" if starting else ""
        summary = (
            f"{count(len(states), 'table')}, {sick:,} not well{begun}, by {_SORTS[self._sort]}"
        )
        reason = states[self._place].why if states else ""
        return [
            Text(summary, style="bold"),
            titles,
            *rows[first : first + room],
            Text(plain(reason or _KEYS), style="dim"),
        ]

    def _table_view(self, state: StreamState) -> list[Text]:
        """What the commands `query`, `stats` and `doctor` say of the table, below its state."""
        phases = ", ".join(
            f"{phase} {span(millis)}" for phase, millis in phases_of(state.previous).items()
        )
        parts: list[Part] = [f"{state.location}: {state.state}. {state.why}".strip(), _KEYS]
        if phases:
            parts.append(f"The commit before: {phases}.")
        try:
            session = self._watched.session(state.location)
            for command, arguments in _DETAILS:
                parts += ["", *command.ask(session, **arguments).parts]
        except PaimonStreamError as error:
            parts.append(in_commands(error.message))
        return [line for part in parts for line in part_lines(part, self._console.width)]


@contextmanager
def _keys() -> Iterator[Callable[[float], str | None]]:
    """A context with a function that waits for a key for some seconds. The function returns the
    name of the key; None if no key was pressed. Inside the context, the terminal passes on each key
    at once, and does not show it.
    """
    # SIGTERM ends the program in the same way as an error, so the terminal is restored.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if sys.stdin is None or not sys.stdin.isatty():
        yield lambda seconds: system().clock.sleep(seconds)
        return
    import select
    import termios
    import tty

    stream = sys.stdin.fileno()
    waiting: list[bytes] = []  # keys that were read and not yet returned
    settings = termios.tcgetattr(stream)
    give_back = partial(termios.tcsetattr, stream, termios.TCSADRAIN, settings)
    screen = sys.stderr  # rich replaces `sys.stderr` while its screen is shown

    def leave_screen() -> None:
        screen.write("\x1b[?1049l")
        screen.flush()

    before_late_end[:] = [give_back, leave_screen]

    def key(seconds: float) -> str | None:
        if not waiting and not select.select([stream], [], [], seconds)[0]:
            return None
        if not waiting:  # the end of the input counts as q
            waiting.extend(re.findall(rb"\x1b\[.|.", os.read(stream, 64), re.DOTALL) or [b"q"])
        pressed = waiting.pop(0)
        return _NAMES.get(pressed, pressed[:1].decode("ascii", "replace").lower())

    try:
        tty.setcbreak(stream)
        yield key
    finally:
        give_back()
