"""`delete` and `update`: conditions and values as they are typed, and what is shown."""

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
    assert done.exit_code == 0 and "1 row of 1 file was deleted, in snapshot 2." in done.output
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


def test_rows_are_counted_first_and_then_updated(tmp_path: Any) -> None:
    location = str(tmp_path / "t")
    table = PaimonTable.create(
        location,
        [("id", "BIGINT"), ("a b", "STRING"), ("amount", "INT"), ("c", "CHAR(4)")],
        options=VECTORS,
    )
    amounts = pa.array([10, 20, 30], pa.int32())
    table.append(
        pa.table(
            {"id": [1, 2, 3], "a b": ["x", None, "z"], "amount": amounts, "c": ["u", "v", "w"]}
        )
    )
    words = ["--set", "amount=amount * 2 + 1", "--set", "a b = 'a=b'", "--where", "id >= 2"]
    before = table.to_arrow().to_pylist()
    dry = run("update", *words, location)
    assert dry.exit_code == 5
    assert "2 rows of 1 file would be updated. Nothing was changed. Give --yes" in " ".join(
        dry.output.split()
    )
    assert PaimonTable.load(location).to_arrow().to_pylist() == before
    done = run("update", "--json", "--yes", *words, location)
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert (document["table"], document["rows"], document["snapshot_id"]) == (location, 2, 2)
    rows = PaimonTable.load(location).to_arrow().sort_by("id").to_pylist()
    assert [(row["a b"], row["amount"]) for row in rows] == [("x", 10), ("a=b", 41), ("a=b", 61)]
    one = run("update", "--yes", "--set", "amount=NULL", "--where", "c = 'u'", location)
    assert "1 row of 1 file was updated, in snapshot 3." in one.output
    nothing = run("update", "--set", "amount=1", "--where", "id > 7", location)
    assert nothing.exit_code == 0 and "No row fulfils the condition." in nothing.output
    every = run("update", "--yes", "--set", "amount=1", "--where", "true", location)
    assert "3 rows of" in every.output, every.output


def test_rows_of_a_table_with_a_primary_key_are_updated_by_newer_rows(tmp_path: Any) -> None:
    location = str(tmp_path / "t")
    keyed = PaimonTable.create(
        location,
        [("id", "BIGINT NOT NULL"), ("n", "BIGINT")],
        primary_keys=["id"],
        options={"bucket": "1"},
    )
    keyed.append(pa.table({"id": [1, 2, 3], "n": [1, 2, 3]}))
    words = ["--set", "n=n + id", "--where", "id < 3", location]
    assert "2 rows would be updated" in run("update", *words).output
    done = run("update", "--yes", *words)
    assert done.exit_code == 0 and "2 rows were updated, in snapshot 2" in done.output
    assert keyed.to_arrow().sort_by("id").column("n").to_pylist() == [2, 4, 3]


@pytest.mark.parametrize(
    ("assignments", "exit_code", "text"),
    [
        ([], 2, "Missing option '--set'"),
        (["amount"], 2, "--set takes COLUMN=SQL"),
        (["=1"], 2, "--set takes COLUMN=SQL"),
        (["nix=1"], 2, "--set names a column 'nix', which the table does not have"),
        (["amount=1", "amount=2"], 2, "--set names the column 'amount' twice"),
        (["amount="], 2, "--set amount ends too early"),
        (["amount=nix + 1"], 2, "--set amount names a column 'nix'"),
        (["amount='x'"], 2, "--set amount"),
        (["amount=(SELECT 1)"], 1, "--set amount"),
        (["amount=uuid()"], 1, "--set amount"),
    ],
)
def test_an_assignment_with_a_slip_is_refused(
    assignments: list[str], exit_code: int, text: str, tmp_path: Any
) -> None:
    location = str(tmp_path / "t")
    PaimonTable.create(location, [("id", "INT"), ("amount", "INT")], options=VECTORS)
    words = [word for assignment in assignments for word in ("--set", assignment)]
    answer = run("update", "--yes", *words, "--where", "id = 1", location)
    assert answer.exit_code == exit_code, answer.output
    assert text in " ".join(answer.output.split())
