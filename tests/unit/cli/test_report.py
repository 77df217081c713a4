"""`report`: the page of a table, and of the tables of a warehouse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("click")
pytest.importorskip("rich")

from click.testing import CliRunner, Result

from paimon_stream.cli.app import cli
from paimon_stream.storage.local import LocalStorage
from tests.kits.commits import Bench
from tests.kits.streams import Stream


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    for name, batches in (("orders", 3), ("parts", 0), ("users", 1)):
        Stream(Bench(storage=LocalStorage(str(tmp_path / f"wh/shop.db/{name}")))).batches(batches)
    return tmp_path / "wh"


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, ["report", *map(str, words)])


def test_a_table_gets_a_page(warehouse: Path, tmp_path: Path) -> None:
    output = tmp_path / "orders.html"
    done = run("-o", output, "--json", warehouse / "shop.db/orders")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {
        "output": str(output),
        "tables": [str(warehouse / "shop.db/orders")],
    }
    text = output.read_text()
    assert "<details class=table" not in text
    assert "<h1>shop.db/orders needs you</h1>" in text
    assert "<h3>Commits by phase</h3>" in text
    assert "<ul class=streams>" not in text


def test_a_warehouse_gets_an_overview_and_its_sick_tables(warehouse: Path, tmp_path: Path) -> None:
    (warehouse / "shop.db/users/schema/schema-0").write_text("{")
    output = tmp_path / "all.html"
    assert run("-o", output, "--tables", 2, warehouse).exit_code == 0
    text = output.read_text()
    assert (
        text.index("<b>shop.db/users</b>")
        < text.index("<b>shop.db/orders</b>")
        < text.index("<b>shop.db/parts</b>")
    )
    assert "The plots of 1 other table are left out." in text
    assert text.count("<details class=table>") == 2
    assert "<h3>Not readable</h3>" in text


def test_mistakes_end_in_one_line(warehouse: Path, tmp_path: Path) -> None:
    assert run(warehouse).exit_code == 2
    done = run("-o", tmp_path / "no/folder.html", warehouse)
    assert done.exit_code == 1
    assert len(done.stderr.splitlines()) == 1
    assert "cannot be written" in done.stderr
    assert run("-o", tmp_path / "x.html", tmp_path / "nothing").exit_code == 3


@pytest.mark.parametrize(
    "words",
    [["wh"], ["file:{folder}/wh"], ["--warehouse", "wh"], ["--warehouse", "{folder}/wh"]],
)
def test_a_warehouse_is_found_however_it_is_written(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(warehouse.parent)
    done = run("-o", "all.html", "--json", *(word.format(folder=Path.cwd()) for word in words))
    assert done.exit_code == 0, done.output
    tables = json.loads(done.stdout)["tables"]
    assert sorted(tables) == [
        f"{warehouse}/shop.db/{name}" for name in ("orders", "parts", "users")
    ]
    assert "<h3>Commits by phase</h3>" in Path("all.html").read_text()


def test_a_table_is_found_by_its_name_in_the_warehouse(warehouse: Path, tmp_path: Path) -> None:
    output = tmp_path / "orders.html"
    done = run("-o", output, "--json", "--warehouse", warehouse, "shop.orders")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["tables"] == [f"{warehouse}/shop.db/orders"]
    done = run("-o", output, "--warehouse", warehouse, warehouse / "shop.db/orders")
    assert done.exit_code == 2
    assert "TABLE has a slash" in done.stderr
