"""`watch`: lines for programs and people, and the live view of a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import shlex
import signal
import socket
import struct
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("click")
pytest.importorskip("rich")
pytest.importorskip("pandas")

import click
import pyarrow as pa
from click.testing import CliRunner, Result

from paimon_stream import PaimonTable, catalog
from paimon_stream.cli.app import cli
from paimon_stream.cli.command import Session
from paimon_stream.cli.compact import CompactionAdvice
from paimon_stream.cli.watch import Watched
from paimon_stream.commit.report import Phase
from paimon_stream.storage.local import LocalStorage
from tests.kits.commits import Bench
from tests.kits.streams import At, PowerCut, Stream
from tests.servers.rest_double import RestDouble

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*may lead to deadlocks in the child:DeprecationWarning"
)


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Two tables of one database: `orders` has a stream, `parts` has none. The stream's clock is in
    2023.
    """
    for name, batches in (("orders", 3), ("parts", 0)):
        bench = Bench(storage=LocalStorage(str(tmp_path / f"shop.db/{name}")))
        Stream(bench).batches(batches)
    return tmp_path


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, ["watch", *map(str, words)])


def test_json_is_one_line_for_each_table_and_round(warehouse: Path) -> None:
    done = run("--json", "--rounds", 2, "--interval", 0.1, warehouse)
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [Path(line["table"]).name for line in lines] == ["orders", "parts"] * 2
    orders, parts = lines[:2]
    assert (orders["state"], orders["batch"], orders["rows"], orders["attempts"]) == (
        "silent",
        2,
        10,
        1,
    )
    assert orders["previous"]["batch"] == 1
    assert orders["time"].startswith("2023-11-")
    assert (parts["state"], parts["batch"]) == ("no stream", None)


def test_what_is_no_terminal_gets_one_listing_the_sick_first(warehouse: Path) -> None:
    lines = run(warehouse).stdout.splitlines()
    assert lines[0].split()[:3] == ["table", "state", "batch"]
    assert [line.split()[:2] for line in lines[1:]] == [
        ["shop.db/orders", "silent"],
        ["shop.db/parts", "no"],
    ]


def test_tables_warehouses_and_columns_are_chosen(warehouse: Path) -> None:
    found = run(
        "--columns", "table,why", warehouse / "shop.db/orders", warehouse / "shop.db/parts"
    ).stdout
    assert [line.split()[0] for line in found.splitlines()] == [
        "table",
        "shop.db/orders",
        "shop.db/parts",
    ]
    assert "the query has stopped" in found


def test_a_damaged_table_is_first_and_the_others_are_shown(warehouse: Path) -> None:
    (warehouse / "shop.db/parts/schema/schema-0").write_text("{")
    lines = run("--columns", "table,state", warehouse).stdout.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["shop.db/parts", "unreadable"],
        ["shop.db/orders", "silent"],
    ]


def test_a_place_without_tables_is_an_error_with_its_code(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.exit_code == 3
    assert "There is no Paimon table" in done.stderr
    assert run().exit_code == 2
    assert run("--interval", 0, tmp_path).exit_code == 2


# -- on a terminal ------------------------------------------------------------------------------


SCREEN, SCREEN_BEFORE = "\x1b[?1049h", "\x1b[?1049l"


class Terminal:
    """The command in a terminal of its own."""

    def __init__(
        self, columns: int, rows: int, *words: object, term: str = "xterm", stdin: bool = True
    ) -> None:
        self.shown = ""
        self.child, self.stream = pty.fork()
        if not self.child:
            os.environ["TERM"] = term
            for name in ("COLUMNS", "LINES", "NO_COLOR", "PYTHONUNBUFFERED"):
                os.environ.pop(name, None)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            if not stdin:
                os.close(0)
            os.execv(
                sys.executable, [sys.executable, "-m", "paimon_stream", "watch", *map(str, words)]
            )

    def until(self, wanted: str) -> None:
        """Reads what is shown until this text comes, within a minute."""
        while wanted not in self.shown:
            assert select.select([self.stream], [], [], 60)[0], (
                f"{wanted!r} is not in {self.shown!r}"
            )
            try:
                self.shown += os.read(self.stream, 65536).decode("utf-8", "replace")
            except OSError:
                pytest.fail(f"the command has ended without {wanted!r}: {self.shown!r}")

    def press(self, keys: bytes) -> None:
        self.shown = ""
        os.write(self.stream, keys)

    def is_given_back(self) -> bool:
        """Whether the terminal waits for whole lines, and shows the screen before."""
        return (
            bool(termios.tcgetattr(self.stream)[3] & termios.ICANON)
            and self.shown.count(SCREEN_BEFORE) == 1
        )

    def ended(self) -> int:
        """The exit code, after all is read."""
        try:
            while data := os.read(self.stream, 65536):
                self.shown += data.decode("utf-8", "replace")
        except OSError:
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    begun: list[Terminal] = []

    def begin(*given: object, **more: object) -> Terminal:
        begun.append(Terminal(*given, **more))  # type: ignore[arg-type]
        return begun[-1]

    yield begin
    for one in begun:
        os.close(one.stream)


def test_keys_choose_sort_open_and_end(warehouse: Path, terminal: Callable[..., Terminal]) -> None:
    screen = terminal(100, 30, "--interval", 60, warehouse)
    screen.until("2 tables, 1 not well, by state")
    screen.press(b"s")
    screen.until("by table")
    screen.press(b"\x1b[B")
    screen.until("↑ ↓ choose")
    screen.press(b"\r")
    screen.until("shop.db/parts: no")
    screen.until("No stream is registered in")
    screen.press(b"\x1b")
    screen.until("2 tables")
    screen.press(b"q")
    assert screen.ended() == 0


def test_a_table_of_a_relative_warehouse_opens(
    warehouse: Path, terminal: Callable[..., Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(warehouse.parent)
    screen = terminal(100, 30, "--interval", 60, warehouse.name)
    screen.until("2 tables, 1 not well")
    screen.press(b"\r")
    screen.until("the source delivers nothing")
    screen.press(b"q")
    assert screen.ended() == 0


def test_a_key_before_there_are_tables_does_not_keep_the_first_from_being_chosen(
    tmp_path: Path, terminal: Callable[..., Terminal]
) -> None:
    (tmp_path / "shop.db").mkdir()
    screen = terminal(100, 24, "--interval", 0.1, tmp_path)
    screen.until("0 tables")
    screen.press(b"\x1b[B")
    screen.until("0 tables")
    Stream(Bench(storage=LocalStorage(str(tmp_path / "shop.db/orders")))).batches(1)
    screen.until("1 table,")
    screen.until("shop.db/orders")
    assert "\x1b[7mshop.db/orders" in screen.shown
    screen.press(b"q")
    assert screen.ended() == 0


def test_a_narrow_terminal_shows_what_fits(
    warehouse: Path, terminal: Callable[..., Terminal]
) -> None:
    screen = terminal(40, 5, "--interval", 60, warehouse)
    screen.until("2 tables, 1 not well")
    screen.until("shop.db/orders")
    screen.press(b"q")
    assert screen.ended() == 0


def test_ctrl_c_ends_and_gives_the_terminal_back(
    warehouse: Path, terminal: Callable[..., Terminal]
) -> None:
    screen = terminal(80, 24, "--interval", 60, warehouse)
    screen.until("2 tables")
    screen.press(b"\x03")
    screen.until(SCREEN_BEFORE)
    assert screen.ended() == 130


def test_a_table_that_vanishes_is_shown_and_the_others_go_on(
    warehouse: Path, terminal: Callable[..., Terminal]
) -> None:
    screen = terminal(100, 24, "--interval", 0.2, warehouse)
    screen.until("2 tables, 1 not well")
    (warehouse / "shop.db/parts").rename(warehouse / "gone")
    screen.until("2 tables, 2 not well")
    screen.until("The table no longer exists.")
    screen.press(b"q")
    assert screen.ended() == 0


def test_a_kill_gives_the_terminal_back(warehouse: Path, terminal: Callable[..., Terminal]) -> None:
    screen = terminal(80, 24, "--interval", 60, warehouse)
    screen.until("2 tables")
    os.kill(screen.child, signal.SIGTERM)
    assert screen.ended() == 143
    assert screen.is_given_back()


def test_ctrl_c_gives_the_terminal_back_where_a_store_never_answers(
    terminal: Callable[..., Terminal],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = [
            f"s3.endpoint=http://127.0.0.1:{silent.getsockname()[1]}",
            "s3.access-key=a",
            "s3.secret-key=b",
        ]
        words = [word for one in options for word in ("--storage-option", one)]
        screen = terminal(80, 24, *words, "s3://bucket/warehouse")
        silent.accept()
        screen.until(SCREEN)
        screen.press(b"\x03")
        assert screen.ended() == 130
    assert screen.is_given_back()


def test_a_terminal_that_cannot_move_its_cursor_gets_one_listing(
    warehouse: Path, terminal: Callable[..., Terminal]
) -> None:
    screen = terminal(80, 24, warehouse, term="dumb")
    assert screen.ended() == 0
    assert "shop.db/orders  silent" in screen.shown


def test_a_pipe_gets_one_listing_where_colours_are_forced(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert run(warehouse).stdout.startswith("table  ")


def test_a_closed_standard_input_gives_no_keys(
    warehouse: Path, terminal: Callable[..., Terminal]
) -> None:
    screen = terminal(80, 24, "--rounds", 1, "--interval", 0.1, warehouse, stdin=False)
    assert screen.ended() == 0
    assert "2 tables" in screen.shown


def test_no_name_commands_the_terminal(warehouse: Path, terminal: Callable[..., Terminal]) -> None:
    evil = warehouse / "shop.db/a\x1b]0;b\x07/schema/schema-0"
    evil.parent.mkdir(parents=True)
    evil.write_text("{")
    screen = terminal(80, 24, "--rounds", 1, "--interval", 1, warehouse)
    assert screen.ended() == 0
    assert "3 tables" in screen.shown
    assert "\x1b]0" not in screen.shown


def test_keys_that_come_together_all_count(
    warehouse: Path, terminal: Callable[..., Terminal]
) -> None:
    screen = terminal(80, 24, "--interval", 60, warehouse)
    screen.until("by state")
    screen.press(b"\x1b[B\x1b[Bssq")
    assert screen.ended() == 0
    assert "by age" in screen.shown


def test_a_table_is_found_by_its_name_in_the_catalog_that_is_given(
    warehouse: Path, tmp_path: Path
) -> None:
    (tmp_path / "catalogs.toml").write_text(f'[catalog.prod]\nwarehouse = "{warehouse}"\n')
    (tmp_path / "catalogs.toml").chmod(0o600)
    env = {
        "PAIMON_STREAM_CONFIG": str(tmp_path / "catalogs.toml"),
        "PAIMON_STREAM_WAREHOUSE": str(warehouse),
    }
    for words in (
        ["shop.orders"],
        ["--catalog", "prod", "shop.orders"],
        ["--catalog", "prod", "shop.parts", "shop.orders"],
    ):
        done = CliRunner().invoke(cli, ["watch", "--columns", "table,state", *words], env=env)
        assert done.exit_code == 0, done.output
        lines = [line.split()[0] for line in done.stdout.splitlines()[1:]]
        assert (
            lines
            == ["shop.db/orders", "shop.db/parts"][: len(words) - words.count("--catalog") * 2]
        )
    assert (
        CliRunner().invoke(cli, ["watch", "--catalog", "prod", "shop.missing"], env=env).exit_code
        == 3
    )


@pytest.mark.parametrize("place", [None, "db.t"])
def test_a_servers_outage_is_shown_and_not_waited_for(
    tmp_path: Path, place: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("urllib3")
    monkeypatch.setenv("PAIMON_STREAM_CONFIG", str(tmp_path / "catalogs.toml"))
    with RestDouble(f"file://{tmp_path}") as server, click.Context(cli) as context:
        made, options = catalog(server.options()), server.options().items()
        made.create_database("db")
        made.create_table("db.t", [("id", "BIGINT")])
        lines = "".join(f'"{key}" = "{value}"\n' for key, value in options)
        (tmp_path / "catalogs.toml").write_text(f"[catalog.prod]\n{lines}")
        (tmp_path / "catalogs.toml").chmod(0o600)
        context.params = {"catalog_name": "prod"}
        watched = Watched(Session("", catalog_options=server.options()), [place])
        assert [one.state for one in watched.look(0)] == ["no stream"]
        [(session, _)] = watched._opened.values()
        assert session.raw.storage._client.max_outage_millis == 0


def test_a_stream_in_its_first_batch_is_starting(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path / "shop.db/orders"))
    stream = Stream(Bench(storage=storage))
    stream.start(At(Phase.JUDGED, Stream.cut))
    with pytest.raises(PowerCut):
        stream.batch()
    assert ["shop.db/orders", "starting"] in [
        line.split()[:2] for line in run(tmp_path).stdout.splitlines()
    ]


@pytest.mark.parametrize("columns", [44, 60, 80])
def test_no_number_is_cut_on_a_narrow_terminal(
    tmp_path: Path, terminal: Callable[..., Terminal], columns: int
) -> None:
    location = tmp_path / "shop.db/orders_of_customers"
    Stream(Bench(storage=LocalStorage(str(location)))).batches(3)
    screen = terminal(columns, 24, "--interval", 60, tmp_path)
    screen.until("the source deliv")
    rows = [line for line in screen.shown.splitlines() if "orders_of_customers" in line]
    assert rows
    assert not any("…" in row for row in rows)
    screen.press(b"q")
    assert screen.ended() == 0


def test_the_last_round_stays_on_the_terminal(
    warehouse: Path, terminal: Callable[..., Terminal]
) -> None:
    screen = terminal(100, 24, "--rounds", 1, "--interval", 0.1, warehouse)
    assert screen.ended() == 0
    left = screen.shown.partition(SCREEN_BEFORE)[2]
    assert "2 tables, 1 not well" in left
    assert "shop.db/orders  silent" in left


def test_the_command_of_an_opened_table_compacts_it(tmp_path: Path) -> None:
    location = tmp_path / "wh/shop.db/orders"
    table = PaimonTable.create(str(location), [("id", "BIGINT")])
    for number in range(6):
        table.append(pa.table({"id": [number]}))
    with click.Context(cli) as context:
        context.params = {"catalog_name": None}
        watched = Watched(Session("", catalog_options={}), [str(tmp_path / "wh")])
        (state,) = watched.look(0)
        command = CompactionAdvice(watched.session(state.location)).command
    words = shlex.split(command)
    assert words[0] == "paimon-stream"
    done = CliRunner().invoke(cli, words[1:])
    assert done.exit_code == 0, done.output
    assert len(table.files()) == 1
