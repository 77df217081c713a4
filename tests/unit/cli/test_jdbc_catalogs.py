"""Commands on tables of a JDBC catalog."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("click")
pytest.importorskip("rich")
pytest.importorskip("sqlalchemy")

from click.testing import CliRunner

from paimon_stream import catalog
from paimon_stream.cli.app import cli


def test_commands_find_tables_in_the_database_and_take_the_lock(tmp_path: Path) -> None:
    options = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/c.db", "lock.enabled": "true"}
    warehouse = str(tmp_path / "wh")
    shop = catalog({**options, "warehouse": warehouse})
    shop.create_database("shop")
    shop.create_table("shop.orders", [("id", "BIGINT")]).append(pa.table({"id": [1]}))
    given = [part for one in options.items() for part in ("--storage-option", "=".join(one))]

    def run(*words: str) -> str:
        done = CliRunner().invoke(cli, [*words, *given])
        assert done.exit_code == 0, done.output
        return done.output

    assert "orders" in run("ls", warehouse)
    named = ["shop.orders", "--warehouse", warehouse]
    assert "id" in run("schema", *named)
    with sqlite3.connect(f"{tmp_path}/c.db") as connection:
        connection.execute("CREATE TABLE taken(id TEXT)")
        note = "BEGIN INSERT INTO taken VALUES (new.lock_id); END"
        connection.execute(f"CREATE TRIGGER note AFTER INSERT ON paimon_distributed_locks {note}")
    run("truncate", *named, "--yes")
    with sqlite3.connect(f"{tmp_path}/c.db") as connection:
        assert connection.execute("SELECT * FROM taken").fetchall() == [("jdbc.shop.orders",)]
    missing = CliRunner().invoke(cli, ["schema", "shop.none", "--warehouse", warehouse, *given])
    assert missing.exit_code != 0
    assert "no table 'shop.none' in the catalog" in missing.output
