"""`branch list`, `create`, `delete` and `fast-forward`, and `--branch`, which every command
takes.
"""

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

ROWS = pa.table({"id": pa.array([1, 2], pa.int32())})


def run(*args: str) -> Any:
    return CliRunner().invoke(cli, args)


@pytest.fixture
def location(tmp_path: Any) -> str:
    """A table with the tag `t` and a branch `x` of it that has a snapshot more."""
    table = PaimonTable.create(made := str(tmp_path / "db.db" / "t"), [("id", "INT")])
    table.append(ROWS)
    table.create_tag("t")
    assert (
        "Branch x begins with snapshot 1."
        in run("branch", "create", "--tag", "t", made, "x").output
    )
    PaimonTable.load(made, branch="x").append(ROWS)
    return made


def test_branches_are_listed_with_their_newest_snapshots(location: str) -> None:
    assert "Branch empty is empty." in run("branch", "create", location, "empty").output
    shown = json.loads(run("branch", "list", location, "--json").stdout)["branches"]
    assert [(one["name"], one["rows"]) for one in shown] == [("empty", None), ("x", 4)]
    assert run("branch", "list", location).exit_code == 0


def test_every_command_works_on_a_branch(location: str) -> None:
    for given in ((location, "--branch", "x"), (f"{location}$branch_x",)):
        document = json.loads(run("snapshots", *given, "--json").stdout)
        assert document["table"] == f"{location}$branch_x"
        assert [one["id"] for one in document["snapshots"]] == [2, 1]
        assert run("verify", *given).exit_code == 0
    assert "Its branches: x" in " ".join(run("snapshots", location, "--branch", "y").output.split())


def test_a_fast_forward_is_shown_first(location: str) -> None:
    PaimonTable.load(location).append(ROWS)
    shown = run("branch", "fast-forward", location, "x")
    assert shown.exit_code == 5
    assert "1 snapshot would be removed: 2 to 2." in shown.output
    assert "1 snapshot would be added: 2 to 2." in shown.output
    newest = PaimonTable.load(location).latest_snapshot()
    assert run("branch", "fast-forward", "--yes", location, "x").exit_code == 0
    forwarded = PaimonTable.load(location).latest_snapshot()
    assert forwarded == PaimonTable.load(location, branch="x").latest_snapshot() != newest
    assert run("branch", "fast-forward", location, "x").exit_code == 0


def test_a_deletion_is_shown_first(location: str) -> None:
    shown = run("branch", "delete", location, "x")
    assert (shown.exit_code, list(PaimonTable.load(location).branches())) == (5, ["x"])
    assert "Branch x is deleted." in run("branch", "delete", "--yes", location, "x").output
    assert PaimonTable.load(location).branches() == {}
    assert "has no branch 'x'" in run("branch", "delete", "--yes", location, "x").output
