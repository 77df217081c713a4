"""`delete`: the condition as it is typed, and what is shown."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("click", reason="the extra cli is not installed")
pytest.importorskip("rich", reason="the extra cli is not installed")

from click.testing import CliRunner

from paimon_stream import PaimonTable
from paimon_stream.cli.app import cli

VECTORS = {"deletion-vectors.enabled": "true"}


def run(*args: str) -> Any:
    return CliRunner().invoke(cli, args)


def test_the_command_counts_first_and_then_deletes(tmp_path: Any) -> None:
    location = str(tmp_path / "db.db" / "t")
    columns = [
        ("id", "INT"),
        ("a b", "STRING"),
        ("d", "DATE"),
        ("ok", "BOOLEAN"),
        ("n", "ARRAY<INT>"),
    ]
    table = PaimonTable.create(location, columns, options=VECTORS)
    days = pa.array([20_000, 20_001, None, 20_003], pa.int32()).cast(pa.date32())
    some = {"id": pa.array([1, 2, 3, 4], pa.int32()), "a b": ["it's", "y", "z", None], "d": days}
    table.append(
        pa.table({**some, "ok": [True, False, None, True], "n": pa.array([[1], None, [], [2]])})
    )
    for where, rows in (
        ("id = 1", 1),
        ("id<>1", 3),
        ("`a b` = 'it''s'", 1),
        ("`a b` is null", 1),
        ("d > 2024-10-04", 2),
        ("d>='2024-10-04' and id != 1", 2),
        ("ok = true AND n IS NOT NULL", 2),
        ("id >= 2 AND id <= 3", 2),
        ("id < -5", 0),
    ):
        answer = run("delete", "--json", "--where", where, location)
        assert json.loads(answer.stdout)["rows"] == rows, (where, answer.output)
    done = run("delete", "--yes", "--where", "id = 2", location)
    assert done.exit_code == 0 and "1 row of 1 file were deleted, in snapshot 2." in done.output
    assert sorted(PaimonTable.load(location).to_arrow()["id"].to_pylist()) == [1, 3, 4]


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("nix = 1", "names a column 'nix'"),
        ("id = x", "names a column 'x'"),
        ("id = 'x'", "is not a value of id"),
        ("id = 1 OR id", "has id after OR, and its type is INT"),
        ("id ~ 1", "Write COLUMN OP VALUE"),
        ("", "ends too early"),
        ("p = a", "A text is in single quotes"),
        ("id = 1 AND", "ends too early"),
    ],
)
def test_a_condition_with_a_slip_is_a_usage_error(where: str, text: str, tmp_path: Any) -> None:
    location = str(tmp_path / "db.db" / "t")
    PaimonTable.create(location, [("id", "INT"), ("p", "STRING")], options=VECTORS)
    answer = run("delete", "--where", where, location)
    assert answer.exit_code == 2 and text in " ".join(answer.output.split())


def test_rows_of_a_table_without_deletion_vectors_are_deleted_too(tmp_path: Any) -> None:
    location = str(tmp_path / "t")
    table = PaimonTable.create(location, [("id", "BIGINT")])
    table.append(pa.table({"id": [1, 2]}))
    done = run("delete", "--yes", "--where", "id = 1", location)
    assert done.exit_code == 0, done.output
    assert PaimonTable.load(location).to_arrow().column("id").to_pylist() == [2]


def test_deletion_vectors_that_are_switched_on_too_simply_name_the_way_out(tmp_path: Any) -> None:
    location = str(tmp_path / "t")
    PaimonTable.create(location, [("id", "BIGINT")]).append(pa.table({"id": [1]}))
    refused = run("alter", "--set", "deletion-vectors.enabled=true", "--yes", location)
    assert refused.exit_code != 0
    assert "Set 'deletion-vectors.modifiable' to 'true' in the same change" in refused.stderr


def test_rows_of_a_table_with_a_primary_key_are_deleted_by_key(tmp_path: Any) -> None:
    location = str(tmp_path / "t")
    keyed = PaimonTable.create(
        location, [("id", "BIGINT NOT NULL")], primary_keys=["id"], options={"bucket": "1"}
    )
    keyed.append(pa.table({"id": [1, 2, 3]}))
    dry = run("delete", "--where", "id < 3", location)
    assert "2 rows would be deleted" in dry.output
    done = run("delete", "--yes", "--where", "id < 3", location)
    assert "2 rows were deleted, in snapshot 2" in done.output
    assert keyed.to_arrow().column("id").to_pylist() == [3]
