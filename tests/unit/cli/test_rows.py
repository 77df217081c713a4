"""`ls`, `head` and `cat`, and tables that are found by their names in a warehouse."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("click")
pytest.importorskip("rich")

from click.testing import CliRunner, Result

from paimon_stream import PaimonTable, catalog
from paimon_stream.cli.app import cli

COLUMNS = [
    ("id", "BIGINT NOT NULL"),
    ("note", "STRING"),
    ("at", "TIMESTAMP(9)"),
    ("price", "DECIMAL(10, 2)"),
]
SECOND = 1_000_000_000


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    found = catalog({"warehouse": str(tmp_path)})
    found.create_database("empty")
    found.create_database("shop")
    orders = found.create_table(
        "shop.orders", COLUMNS, primary_keys=["id"], options={"bucket": "1"}
    )
    first = [
        [1, 2],
        ["one", None],
        pa.array([1, SECOND], pa.timestamp("ns")),
        [Decimal("1.20"), None],
    ]
    orders.append(pa.table(first, names=[name for name, _ in COLUMNS]))
    orders.create_tag("before")
    second = [[2], ["a\nb"], pa.array([None], pa.timestamp("ns")), [Decimal("3.00")]]
    orders.append(pa.table(second, names=[name for name, _ in COLUMNS]))
    return str(tmp_path)


def run(*words: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(cli, list(words), env=env)


def rows(*words: str, env: dict[str, str] | None = None) -> list[dict[str, object]]:
    done = run("head", "--json", *words, env=env)
    assert done.exit_code == 0, done.output
    found: list[dict[str, object]] = json.loads(done.stdout)["rows"]
    return found


def test_a_warehouse_is_listed_with_its_empty_databases(warehouse: str) -> None:
    lines = run("ls", warehouse).stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["database", "table"],
        ["empty", "-"],
        ["shop", "orders"],
    ]
    of_one = json.loads(run("ls", "--json", "--database", "shop", warehouse).stdout)
    location = f"{warehouse}/shop.db/orders"
    assert of_one == {
        "warehouse": warehouse,
        "tables": [{"database": "shop", "table": "orders", "location": location}],
    }


def test_a_database_that_is_missing_ends_with_its_own_code(warehouse: str) -> None:
    assert run("ls", "--database", "shpo", warehouse).exit_code == 3


def test_rows_are_merged_and_values_are_whole(warehouse: str) -> None:
    found = rows(f"{warehouse}/shop.db/orders")
    assert found == [
        {"id": 1, "note": "one", "at": "1970-01-01 00:00:00.000000001", "price": "1.20"},
        {"id": 2, "note": "a\nb", "at": None, "price": "3.00"},
    ]


def test_a_row_takes_one_line_and_a_missing_value_is_null(warehouse: str) -> None:
    lines = run("head", "--columns", "note,at", f"{warehouse}/shop.db/orders").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["note", "one", "a\\x0ab"]
    assert lines[2].split()[1] == "NULL"


def test_rows_are_chosen_by_number_condition_and_time(warehouse: str) -> None:
    location = f"{warehouse}/shop.db/orders"
    assert len(rows("--limit", "1", location)) == 1
    assert [one["id"] for one in rows("--where", "note IS NOT NULL AND id > 1", location)] == [2]
    assert [one["note"] for one in rows("--tag", "before", location)] == ["one", None]
    assert [one["note"] for one in rows("--snapshot", "1", "--columns", "note", location)] == [
        "one",
        None,
    ]
    now = dt.datetime.now(dt.timezone.utc).isoformat()
    assert rows("--as-of", now, location) == rows(location)
    assert run("head", "--as-of", "2001-01-01", location).exit_code == 3


def test_no_rows_are_a_sentence(warehouse: str) -> None:
    assert (
        run("head", "--where", "id = 7", f"{warehouse}/shop.db/orders").stdout
        == "No row fulfils the condition.\n"
    )


def test_a_name_is_found_in_the_warehouse_and_a_folder_is_not_looked_for(warehouse: str) -> None:
    named = {"PAIMON_STREAM_WAREHOUSE": warehouse}
    assert rows("shop.orders", env=named) == rows("--warehouse", warehouse, "shop.orders")
    assert rows(f"{warehouse}/shop.db/orders", env=named) == rows("shop.orders", env=named)
    assert json.loads(run("ls", "--json", env=named).stdout)["warehouse"] == warehouse
    assert run("snapshots", "--json", "shop.orders", env=named).exit_code == 0


@pytest.mark.parametrize(
    ("table", "code"), [("orders", 1), ("shop.nothing", 3), ("shop.orders$snapshots", 1)]
)
def test_a_name_that_is_no_table_is_one_clear_error(warehouse: str, table: str, code: int) -> None:
    done = run("head", "--warehouse", warehouse, table)
    assert done.exit_code == code
    assert len(done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr


# -- rows for other programs
# ------------------------------------------------------------------------------

KINDS = [
    ("id", "INT"),
    ("s", "STRING"),
    ("d", "DECIMAL(10, 2)"),
    ("b", "BYTES"),
    ("l", "ARRAY<INT>"),
    ("r", "ROW<a INT, w STRING>"),
    ("m", "MAP<STRING, INT>"),
    ("t", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
]


@pytest.fixture
def kinds(tmp_path: Path) -> str:
    """A table with values of all kinds, a row of NULL, and an empty text."""
    table = PaimonTable.create(str(tmp_path / "kinds"), KINDS)
    schema = table.to_arrow().schema
    at = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)
    values = [
        1,
        'a"b,\nc',
        Decimal("1.20"),
        b"hi\xff",
        [1, None],
        {"a": 1, "w": "x"},
        [("k", 1)],
        at,
    ]
    nothing = dict.fromkeys(schema.names)
    first = dict(zip(schema.names, values, strict=True))
    table.append(pa.Table.from_pylist([first, nothing, {**nothing, "id": 3, "s": ""}], schema))
    return table.location


def test_csv_is_read_as_what_it_was(kinds: str) -> None:
    done = run("cat", kinds)
    assert (done.exit_code, done.stderr) == (0, "")
    header, first, empty, last = csv.reader(io.StringIO(done.stdout))
    assert header == [name for name, _ in KINDS]
    assert first[:6] == ["1", 'a"b,\nc', "1.20", "aGn/", "[1, null]", '{"a": 1, "w": "x"}']
    assert first[6:] == ['[["k", 1]]', "2024-01-01 00:00:00.000Z"]
    assert empty == [""] * 8 and last[:2] == ["3", ""]
    assert done.stdout.endswith(
        f"{',' * 7}\n" + '3,""' + "," * 6 + "\n"
    )  # NULL has no quotes, and a text has


def test_json_is_an_object_on_each_line(kinds: str) -> None:
    first, empty, last = map(json.loads, run("cat", "--format", "json", kinds).stdout.splitlines())
    assert (first["l"], first["r"], first["d"]) == ([1, None], {"a": 1, "w": "x"}, "1.20")
    assert set(empty.values()) == {None} and last["s"] == ""


def test_all_rows_are_one_document_and_the_same_as_those_of_head(kinds: str) -> None:
    document = json.loads(run("cat", "--json", kinds).stdout)
    assert document == json.loads(run("head", "--json", kinds).stdout)
    assert (document["table"], len(document["rows"])) == (kinds, 3)
    assert json.loads(run("cat", "--json", "--where", "id = 9", kinds).stdout)["rows"] == []


def test_head_writes_some_rows_and_cat_all(tmp_path: Path) -> None:
    table = PaimonTable.create(str(tmp_path / "t"), [("id", "INT")])
    for start in range(0, 24, 8):
        table.append(pa.table({"id": pa.array(range(start, start + 8), pa.int32())}))
    for form, more in (("csv", 1), ("json", 0), ("table", 1)):
        assert len(run("head", "--format", form, table.location).stdout.splitlines()) == 10 + more
        assert (
            len(run("head", "--format", form, "--limit", "20", table.location).stdout.splitlines())
            == 20 + more
        )
        assert len(run("cat", "--format", form, table.location).stdout.splitlines()) == 24 + more
        assert (
            len(run("cat", "--format", form, "--limit", "9", table.location).stdout.splitlines())
            == 9 + more
        )
    assert run("cat", "--where", "id >= 22", table.location).stdout == '"id"\n22\n23\n'


def test_no_rows_have_their_columns_in_csv(kinds: str) -> None:
    assert run("cat", "--where", "id = 9", "--columns", "s,id", kinds).stdout == '"s","id"\n'
    assert run("cat", "--where", "id = 9", "--format", "json", kinds).stdout == ""


def test_an_error_amid_the_rows_is_a_line_and_a_code(kinds: str) -> None:
    (file,) = Path(kinds).glob("bucket-*/data-*")
    file.unlink()
    done = run("cat", kinds)
    assert done.exit_code == 4
    assert len(done.stderr.splitlines()) == 1 and file.name in done.stderr


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    table = PaimonTable.create(str(tmp_path / "t"), [("id", "INT")])
    for _ in range(3):
        table.append(pa.table({"id": pa.array(range(50_000), pa.int32())}))
    command = f"'{sys.executable}' -m paimon_stream cat '{table.location}'"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | head -n 1"],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", '"id"\n')


def test_values_cannot_move_the_cursor_of_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = PaimonTable.create(str(tmp_path / "t"), [("s", "STRING")])
    table.append(pa.table({"s": ["\x1b[2J"]}))
    assert run("cat", table.location).stdout == '"s"\n"\x1b[2J"\n'
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    assert run("cat", table.location).stdout == '"s"\n"\\x1b[2J"\n'


def test_the_rows_can_be_those_that_have_changed(warehouse: str) -> None:
    table = f"{warehouse}/shop.db/orders"
    changed = ("--option", "incremental-between=1,2")
    assert [row["id"] for row in rows(table, *changed)] == [2]
    (row,) = rows(table, *changed, "--option", "read.changelog=true", "--columns", "id")
    assert row == {"rowkind": "+I", "id": 2}
    wrong = run("head", table, "--option", "incremental-between=2,1")
    assert wrong.exit_code and "Exchange the two" in wrong.stderr


@pytest.mark.parametrize(("alias", "name"), [("history", "snapshots"), ("describe", "schema")])
def test_other_names_of_a_command_do_the_same(kinds: str, alias: str, name: str) -> None:
    assert run(alias, "--json", kinds).stdout == run(name, "--json", kinds).stdout
    assert f"also: {alias}" in run("--help").stdout
    assert f"Usage: paimon-stream {alias}" in run(alias, "--help").stdout
