"""What the command line shows: tables and blocks by the width of the terminal, partitions, the
wording of errors, and completion in a shell.
"""

from __future__ import annotations

import ast
import datetime as dt
import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click", reason="the extra cli is not installed")
pytest.importorskip("rich", reason="the extra cli is not installed")

import click
import pyarrow as pa
from click.testing import CliRunner, Result

from paimon_stream import PaimonTable
from paimon_stream.cli.app import cli
from paimon_stream.cli.output import (
    Column,
    Listing,
    choose,
    json_of,
    listing_lines,
    pair_lines,
    sentence_lines,
)
from paimon_stream.cli.text import COMMAND_OF, in_commands, partition_of, partition_text
from paimon_stream.errors import InvalidData
from tests.kits.tables import append

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "paimon_stream"
Golden = Callable[[str], tuple[Path, dict[str, Any]]]

COLUMNS: tuple[Column[dict[str, Any]], ...] = (
    Column("name", lambda one: one["name"]),
    Column("row_count", lambda one: one["rows"], "rows", number=True),
    Column("id", lambda one: one["id"], ident=True),
    Column("secret", lambda one: "only if it is asked for", extra=True),
    Column("what", lambda one: one["what"], prose=True),
)
ROWS = [
    {"name": "short", "rows": 1234567, "id": 1234567, "what": "one word after the other " * 4},
    {"name": "名前", "rows": None, "id": None, "what": "e\u0301"},
]


def laid_out(width: int | None, names: list[str] | None = None) -> list[str]:
    return [line.plain for line in listing_lines(Listing(COLUMNS, ROWS, "None."), width, names)]


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(one) for one in arguments])


# -- tables and blocks
# ----------------------------------------------------------------------------------


def test_without_a_terminal_each_row_is_one_line_and_none_ends_in_blanks() -> None:
    lines = laid_out(None)
    assert len(lines) == 1 + len(ROWS)
    assert lines[0].split() == ["name", "rows", "id", "what"]
    assert lines[1].split()[:3] == ["short", "1,234,567", "1234567"]
    assert lines == [line.rstrip() for line in lines]


def test_no_help_is_wider_than_80_columns() -> None:
    def helps(command: click.Command, words: list[str]) -> Iterator[str]:
        yield CliRunner().invoke(cli, [*words, "--help"], terminal_width=80).output
        if isinstance(command, click.Group):
            for name in command.list_commands(click.Context(command)):
                inner = command.get_command(click.Context(command), name)
                assert inner is not None
                yield from helps(inner, [*words, name])

    shown = list(helps(cli, []))
    assert len(shown) > 20
    assert [line for text in shown for line in text.splitlines() if len(line) > 80] == []


def test_prose_gives_way_before_a_table_becomes_blocks() -> None:
    lines = laid_out(70)
    assert max(map(len, lines)) <= 70
    assert lines[0].split() == ["name", "rows", "id", "what"]
    assert len(lines) == 1 + 3 + 1


def test_a_row_that_does_not_fit_becomes_a_block_of_names_and_values() -> None:
    lines = laid_out(48)
    assert lines[0] == "name:  short"
    assert lines[1] == "rows:  1,234,567"
    assert lines.count("") == len(ROWS) - 1
    assert max(map(len, lines)) <= 48
    assert lines[-1] == "what:  e\u0301"


NARROWER: tuple[Column[dict[str, Any]], ...] = (
    Column("at", lambda one: one["at"], short=lambda one: one["at"][:10]),
    Column("user", lambda one: one["user"], long_name=True),
    Column("row_count", lambda one: one["rows"], "rows", number=True),
    Column("change", lambda one: one["rows"], number=True, wide=True),
    Column("schema", lambda one: one["rows"], number=True, wide=True),
)
LONG = [
    {
        "at": "2026-11-21T08:04:55Z",
        "user": f"3f2a81c0-{number}-0b54-4a91",
        "rows": number * 1_000_000,
    }
    for number in (1, 2)
]


def narrowed(width: int, names: list[str] | None = None, wide: int = 0) -> list[list[str]]:
    """The cells of each line at this width, with texts that make the rows longer."""
    rows = [{**row, "user": row["user"] + "x" * wide} for row in LONG]
    lines = [line.plain for line in listing_lines(Listing(NARROWER, rows, ""), width, names)]
    assert max(map(len, lines)) <= width or names
    return [line.split() for line in lines]


def test_a_narrow_table_has_short_cells_and_cuts_long_names_in_the_middle() -> None:
    titles, first, second = narrowed(70)
    assert titles == ["at", "user", "rows", "change", "schema"]
    assert first == ["2026-11-21", "3f2a81c0-1-0b54-4a91", *["1,000,000"] * 3]
    titles, first, second = narrowed(70, wide=30)
    assert first[0] == "2026-11-21" and titles[-1] == "schema"
    beginning, _, end = first[1].partition("…")
    assert LONG[0]["user"].startswith(beginning) and (LONG[0]["user"] + "x" * 30).endswith(end)
    assert second[1] != first[1], "what differs at the beginning can be told apart"


def test_a_narrow_table_leaves_out_the_last_columns_that_may_be_left_out() -> None:
    many = [{**row, "rows": 10**15} for row in LONG]
    lines = [line.plain for line in listing_lines(Listing(NARROWER, many, ""), 70)]
    assert lines[0].split() == ["at", "user", "rows", "change"]
    lines = [line.plain for line in listing_lines(Listing(NARROWER, many, ""), 60)]
    assert lines[0].split() == ["at", "user", "rows"]
    assert len(lines) == 1 + len(many)


def test_below_60_columns_and_for_named_columns_nothing_is_cut() -> None:
    assert narrowed(59)[0] == ["at:", LONG[0]["at"]]
    assert narrowed(60, ["at", "user", "rows", "change"])[0] == ["at:", LONG[0]["at"]]


def test_wide_prints_whole_rows_on_a_narrow_terminal(golden: Golden) -> None:
    path, _ = golden("append_partitioned")
    narrow = on_a_terminal(80, "files", str(path))
    assert len(narrow) == 1 + 12 and "…" in narrow[1]
    wide = on_a_terminal(80, "files", "--wide", str(path))
    assert len(wide) == 1 + 12 and "…" not in "".join(wide)
    assert max(map(len, wide)) > 80


def test_wide_letters_are_counted_as_the_terminal_shows_them() -> None:
    table = laid_out(None, ["name", "id"])
    assert table == ["name        id", "short  1234567", "名前         -"]


def test_the_columns_that_are_named_are_shown_in_their_order() -> None:
    assert laid_out(None, ["secret", "row-count", " ID "])[0].split() == ["secret", "rows", "id"]
    assert [one.key for one in choose(COLUMNS, ["all"])] == [one.key for one in COLUMNS]
    assert [one.key for one in choose(COLUMNS, ["id", "all"])][:2] == ["id", "name"]
    with pytest.raises(
        click.UsageError, match=r"There is no column 'nope'\. The columns are: name, rows, id"
    ):
        choose(COLUMNS, ["nope"])


def test_the_json_has_every_column_whatever_is_shown() -> None:
    assert list(json_of(COLUMNS, ROWS[0])) == ["name", "row_count", "id", "secret", "what"]


def test_a_sentence_is_broken_between_words_and_a_path_stays_whole() -> None:
    path = "/a/long/path/to/a/file/that/is/wider"
    lines = [line.plain for line in sentence_lines(f"Look at {path} now.", 20)]
    assert lines == ["Look at", path, "now."]
    assert [line.plain for line in sentence_lines("a b", None)] == ["a b"]


def test_a_name_in_a_sentence_begins_no_line_and_moves_no_cursor() -> None:
    lines = [
        line.plain for line in sentence_lines("The users are me\nforged 7 and \x1b[2J\u202e.", None)
    ]
    assert lines == [r"The users are me\x0aforged 7 and \x1b[2J\x202e."]


def test_a_long_value_goes_on_below_itself() -> None:
    lines = [line.plain for line in pair_lines([("name", "word " * 10), ("n", None)], 40)]
    assert lines == ["name  word word word word word word word", "      word word word", "n     -"]


def test_a_line_end_in_a_name_makes_no_second_line() -> None:
    column: Column[str] = Column("name", lambda one: one)
    lines = [line.plain for line in listing_lines(Listing([column], ["a\nb\x1b"], ""), None)]
    assert lines == ["name", "a\\x0ab\\x1b"]


@pytest.mark.parametrize(("width", "first"), [(59, "user:"), (80, "user "), (200, "user ")])
def test_a_terminal_gets_what_fits_its_width(golden: Golden, width: int, first: str) -> None:
    path, _ = golden("append_plain")
    lines = on_a_terminal(width, "query", str(path))
    assert lines[0].startswith(first)
    assert max(map(len, lines)) <= width


def test_a_pipe_gets_one_line_for_each_row_whatever_columns_says(golden: Golden) -> None:
    path, _ = golden("append_partitioned")
    done = subprocess.run(
        [sys.executable, "-m", "paimon_stream", "files", str(path)],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "COLUMNS": "20"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1 + 12


def on_a_terminal(width: int, *arguments: str) -> list[str]:
    """The lines that the command shows on a terminal of that width, without colours."""
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    environment = {
        key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "paimon_stream", *arguments],
        stdout=there,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        env={**environment, "TERM": "xterm"},
    )
    os.close(there)
    shown = b"".join(pieces(here))
    assert process.wait(900) == 0
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", shown.decode()).splitlines()


def pieces(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            piece = os.read(descriptor, 65_536)
        except OSError:  # Linux says so at the end
            break
        if not piece:
            break
        yield piece
    os.close(descriptor)


# -- partitions
# -----------------------------------------------------------------------------------------

VALUES = [
    "é/ö",
    "é%2Fö",
    "e\u0301/ö",
    "a, b=c",
    '"',
    "NULL",
    None,
    "",
    " ",
    "-",
    "x\ty",
    "ok",
    "2024-01-01",
    "1",
]


def test_no_two_partitions_look_alike_and_what_is_shown_can_be_typed() -> None:
    shown = [partition_text({"dt": value, "hr": 3}) for value in VALUES]
    assert len(set(shown)) == len(VALUES)
    assert all(text.isprintable() for text in shown)
    assert [partition_of(text) for text in shown] == [{"dt": value, "hr": "3"} for value in VALUES]
    assert (partition_text({"dt": None}), partition_text({"dt": "ok"}), partition_text({})) == (
        "dt=NULL",
        "dt=ok",
        "-",
    )


@pytest.mark.parametrize("typed", ["", "dt", "=1", "dt=1,", "dt=1,hr", 'dt="a', 'dt="a"b', ",dt=1"])
def test_what_is_no_partition_is_a_usage_error(typed: str) -> None:
    with pytest.raises(click.UsageError, match="names no partition"):
        partition_of(typed)


def test_a_column_given_twice_is_a_usage_error() -> None:
    for typed in ("dt=a,dt=b", "dt=a, dt=a", "dt=a,hr=1,dt=NULL"):
        with pytest.raises(click.UsageError, match=f"{typed!r} gives the column 'dt' twice"):
            partition_of(typed)


@pytest.mark.parametrize(
    ("type_", "there", "typed"),
    [
        ("TIMESTAMP(6)", dt.datetime(2024, 3, 1, 1), "2024-02-29T25:00"),
        ("DATE", dt.date(2024, 2, 29), "2024-02-29T10"),
        ("DATE", dt.date(1975, 7, 18), "2024"),
        ("DATE", dt.date(1975, 7, 18), "NaT"),
    ],
)
def test_a_typed_value_that_is_no_value_selects_nothing(
    tmp_path: Path, type_: str, there: Any, typed: str
) -> None:
    path = tmp_path / "t"
    table = PaimonTable.create(
        str(path), schema=[("id", "INT"), ("dt", type_)], partition_keys=["dt"]
    )
    table.append(pa.table({"id": pa.array([1], pa.int32()), "dt": [there]}))
    for arguments in (
        ("drop-partition", "--yes", path, f"dt={typed}"),
        ("files", path, f"--partition=dt={typed}"),
    ):
        refused = run(*arguments)
        assert (refused.exit_code, repr(typed) in refused.output) == (1, True), refused.output
    for call in (
        lambda: table.drop_partitions([{"dt": typed}]),
        lambda: table.overwrite(table.to_arrow(), partition={"dt": typed}),
    ):
        with pytest.raises(InvalidData, match=re.escape(f"{typed!r} is not a value of it")):
            call()
    assert table.to_arrow().num_rows == 1


def test_a_shown_time_with_a_zone_can_be_typed(tmp_path: Path) -> None:
    path = tmp_path / "t"
    columns = [("id", "INT"), ("dt", "TIMESTAMP(6) WITH LOCAL TIME ZONE")]
    table = PaimonTable.create(str(path), schema=columns, partition_keys=["dt"])
    there = pa.array([dt.datetime(2024, 2, 29, tzinfo=dt.timezone.utc)], pa.timestamp("us", "UTC"))
    table.append(pa.table({"id": pa.array([1], pa.int32()), "dt": there}))
    shown = "dt=2024-02-29T00:00:00+00:00"
    assert shown in run("partitions", path).stdout
    for typed in (shown, "dt=2024-02-29T09:00+09:00", "dt=2024-02-29T00:00Z"):
        assert run("drop-partition", path, typed).stdout.splitlines()[0] == shown


def test_partitions_that_look_alike_are_distinct_in_every_command(tmp_path: Path) -> None:
    path = tmp_path / "t"
    PaimonTable.create(str(path), schema=[("id", "INT"), ("dt", "STRING")], partition_keys=["dt"])
    append(path, [{"id": 1, "dt": "é/ö"}, {"id": 2, "dt": "é%2Fö"}, {"id": 3, "dt": None}])
    for command in ("files", "partitions"):
        shown = run(command, path).stdout
        assert all(text in shown for text in ('dt="é/ö"', 'dt="é%2Fö"', "dt=NULL")), command
    for typed in ('dt="é/ö"', 'dt="é%2Fö"', "dt=NULL"):
        assert run("drop-partition", path, typed).stdout.splitlines()[0] == typed
        assert len(run("files", path, "--partition", typed).stdout.splitlines()) == 2


# -- wording
# --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("verify() finds which", "`paimon-stream verify` finds which"),
        ("Run compact_manifests, which", "Run `paimon-stream compact-manifests`, which"),
        ("call expire_snapshots(older_than='1 d') or", "call `paimon-stream expire` or"),
        ("older_than is 3, less", "--older-than is 3, less"),
        ("raise retain_max (3)", "raise --retain-max (3)"),
        ("/data/tags/files truncate(n), snapshots", "/data/tags/files truncate(n), snapshots"),
    ],
)
def test_methods_become_commands(said: str, read: str) -> None:
    assert in_commands(said) == read


def test_no_message_names_a_method_that_a_command_can_do() -> None:
    method = re.compile(rf"PaimonTable\.({'|'.join(COMMAND_OF)})\b|\b({'|'.join(COMMAND_OF)})\(\)")
    texts = [text for path in sorted(PACKAGE.rglob("*.py")) for text in literals(path)]
    assert any(method.search(text) for text in texts)
    assert not [text for text in texts if method.search(in_commands(text))]


def literals(path: Path) -> Iterator[str]:
    """The texts in a module, formatted ones with `x` for each value, without docstrings."""
    tree = ast.parse(path.read_text())
    left_out = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [one.value if isinstance(one, ast.Constant) else "x" for one in node.values]
            left_out |= {id(one) for one in node.values}
            yield "".join(map(str, parts))
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in left_out
        ):
            yield node.value


def test_errors_at_a_terminal_cite_commands(golden: Golden) -> None:
    path, _ = golden("append_plain")
    for arguments in (
        ["rollback", path, "9"],
        ["rollback", path, "nobody"],
        ["stats", path.parent],
    ):
        said = run(*arguments).stderr
        assert "PaimonTable" not in said
        assert "tags()" not in said
    assert "`paimon-stream tag list`" in run("rollback", path, "9").stderr
    assert "--older-than is" in run("orphans", path, "--older-than", "1 min").stderr


def test_who_has_no_snapshot_is_named_together_with_those_who_have(golden: Golden) -> None:
    path, _ = golden("append_plain")
    for command in ("snapshots", "query"):
        said = run(command, path, "--user", "nobody").stdout
        assert "of commit user 'nobody'" in said
        assert "The only commit user here is golden." in said


# -- completion
# -----------------------------------------------------------------------------------------


def completed(shell: str, words: str, current: int) -> str:
    environment = {"COMP_WORDS": words, "COMP_CWORD": str(current)}
    if shell == "fish":
        environment["COMP_CWORD"] = words.split(" ")[current]
    result = CliRunner().invoke(
        cli, env={**environment, "_PAIMON_STREAM_COMPLETE": f"{shell}_complete"}
    )
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_asks_for_completions(shell: str) -> None:
    result = CliRunner().invoke(cli, env={"_PAIMON_STREAM_COMPLETE": f"{shell}_source"})
    assert result.exit_code == 0
    assert f"_PAIMON_STREAM_COMPLETE={shell}_complete" in result.stdout
    assert "drop-partition" in completed(shell, "paimon-stream dr", 1)


def test_an_unknown_shell_is_a_usage_error() -> None:
    result = CliRunner().invoke(cli, env={"_PAIMON_STREAM_COMPLETE": "tcsh_source"})
    assert result.exit_code == 2
    assert "bash_source" in result.stderr


def test_a_name_that_would_begin_a_line_is_not_offered(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    table = PaimonTable.create(
        path, schema=[("id", "INT")], options={"commit.force-create-snapshot": "true"}
    )
    for number, user in enumerate(("me", "evil\nplain,forged")):
        table.new_commit(user).commit(number, [])
    assert completed("bash", f"paimon-stream snapshots {path} --user ", 4) == "plain,me\n"


def test_what_a_table_knows_is_offered(golden: Golden) -> None:
    path, _ = golden("append_plain")
    table = PaimonTable.load(str(path))
    table.create_tag("month-end", 1)
    table.create_branch("test", tag="month-end")
    PaimonTable.load(f"{path}$branch_test").create_tag("of-branch", 1)
    assert completed("bash", f"paimon-stream snapshots {path} --branch t", 4) == "plain,test\n"
    assert completed("bash", f"paimon-stream branch delete {path} t", 4) == "plain,test\n"
    assert (
        completed("bash", f"paimon-stream tag delete --branch test {path} of", 6)
        == "plain,of-branch\n"
    )
    assert completed("bash", f"paimon-stream snapshots {path} --user g", 4) == "plain,golden\n"
    assert completed("bash", f"paimon-stream tag delete {path} m", 4) == "plain,month-end\n"
    assert "plain,month-end" in completed("bash", f"paimon-stream rollback {path} ", 3)
    assert (
        completed("bash", f"paimon-stream snapshots {path} --columns id,ki", 4) == "plain,id,kind\n"
    )
    assert completed("bash", "paimon-stream snapshots /da", 2).startswith("dir,")
    assert completed("bash", "paimon-stream snapshots /nowhere --user g", 4).strip() == ""


@pytest.mark.full
def test_bash_itself_completes_a_command(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    starter = tmp_path / "paimon-stream"
    starter.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m paimon_stream "$@"\n')
    starter.chmod(0o755)
    script = (
        'eval "$(_PAIMON_STREAM_COMPLETE=bash_source paimon-stream)"\n'
        "COMP_WORDS=(paimon-stream comp); COMP_CWORD=1\n"
        '_paimon_stream_completion paimon-stream\necho "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        [bash, "--norc", "-c", script],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert (done.stdout, done.returncode) == ("compact compact-manifests\n", 0), done.stderr
