"""`ls` and `head`, and tables that are found by their names in a warehouse."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("click")
pytest.importorskip("rich")

from click.testing import CliRunner, Result

from paimon_stream import catalog
from paimon_stream.cli.app import cli

COLUMNS = [("id", "BIGINT NOT NULL"), ("note", "STRING"), ("at", "TIMESTAMP(9)"), ("price", "DECIMAL(10, 2)")]
SECOND = 1_000_000_000


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    found = catalog({"warehouse": str(tmp_path)})
    found.create_database("empty")
    found.create_database("shop")
    orders = found.create_table("shop.orders", COLUMNS, primary_keys=["id"], options={"bucket": "1"})
    first = [[1, 2], ["one", None], pa.array([1, SECOND], pa.timestamp("ns")), [Decimal("1.20"), None]]
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
    assert [line.split()[:2] for line in lines] == [["database", "table"], ["empty", "-"], ["shop", "orders"]]
    of_one = json.loads(run("ls", "--json", "--database", "shop", warehouse).stdout)
    location = f"{warehouse}/shop.db/orders"
    assert of_one == {"warehouse": warehouse, "tables": [{"database": "shop", "table": "orders", "location": location}]}


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
    assert [one["note"] for one in rows("--snapshot", "1", "--columns", "note", location)] == ["one", None]
    now = dt.datetime.now(dt.timezone.utc).isoformat()
    assert rows("--as-of", now, location) == rows(location)
    assert run("head", "--as-of", "2001-01-01", location).exit_code == 3


def test_no_rows_are_a_sentence(warehouse: str) -> None:
    assert run("head", "--where", "id = 7", f"{warehouse}/shop.db/orders").stdout == "No row fulfils the condition.\n"


def test_a_name_is_found_in_the_warehouse_and_a_folder_is_not_looked_for(warehouse: str) -> None:
    named = {"PAIMON_STREAM_WAREHOUSE": warehouse}
    assert rows("shop.orders", env=named) == rows("--warehouse", warehouse, "shop.orders")
    assert rows(f"{warehouse}/shop.db/orders", env=named) == rows("shop.orders", env=named)
    assert json.loads(run("ls", "--json", env=named).stdout)["warehouse"] == warehouse
    assert run("snapshots", "--json", "shop.orders", env=named).exit_code == 0


@pytest.mark.parametrize(("table", "code"), [("orders", 1), ("shop.nothing", 3), ("shop.orders$snapshots", 1)])
def test_a_name_that_is_no_table_is_one_clear_error(warehouse: str, table: str, code: int) -> None:
    done = run("head", "--warehouse", warehouse, table)
    assert done.exit_code == code
    assert len(done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr
