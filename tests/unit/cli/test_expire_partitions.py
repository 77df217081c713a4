"""`expire-partitions`: what it shows, and that it needs --yes."""

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


def run(*args: str) -> Any:
    return CliRunner().invoke(cli, ["expire-partitions", *args])


@pytest.fixture
def location(tmp_path: Any) -> str:
    made = str(tmp_path / "db.db" / "t")
    table = PaimonTable.create(made, [("id", "INT"), ("dt", "STRING")], partition_keys=["dt"])
    table.append(
        pa.table(
            {"id": pa.array([1, 2, 3], pa.int32()), "dt": ["20000101", "20000102", "99990101"]}
        )
    )
    return made


GIVEN = (
    "--option",
    "partition.expiration-time=7 d",
    "--option",
    "partition.timestamp-formatter=yyyyMMdd",
)


def test_it_shows_first_and_then_drops(location: str) -> None:
    shown = run(location, *GIVEN)
    assert shown.exit_code == 5
    assert (
        "2 partitions with 2 files and 2 rows would expire: dt=20000101 and dt=20000102."
        in shown.output
    )
    assert PaimonTable.load(location).to_arrow().num_rows == 3
    done = run(location, *GIVEN, "--yes")
    assert done.exit_code == 0 and "rows expired: dt=20000101 and dt=20000102." in done.output
    assert PaimonTable.load(location).to_arrow()["id"].to_pylist() == [3]
    again = run(location, *GIVEN)
    assert (again.exit_code, again.output.strip()) == (0, "No partition has to expire.")


def test_its_json_names_the_partitions_by_column(location: str) -> None:
    document = json.loads(run(location, *GIVEN, "--yes", "--json").stdout)
    assert document == {
        "table": location,
        "partitions": [{"dt": "20000101"}, {"dt": "20000102"}],
        "files": 2,
        "rows": 2,
        "snapshots": [2],
        "dry_run": False,
    }


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((), "no partition columns, or no 'partition.expiration-time'"),
        (("--option", "partition.expiration-tim=7 d"), "Did you mean 'partition.expiration-time'?"),
        (("--option", "partition.expiration-time=soon"), "not a duration such as '10 min'"),
        ((*GIVEN[:3], "partition.timestamp-formatter=yyyyMMMdd"), "'MMM' is not read here"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    location: str, given: tuple[str, ...], text: str
) -> None:
    answer = run(location, *given, "--yes")
    assert answer.exit_code == 1
    assert text in answer.stderr and location in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
    assert PaimonTable.load(location).to_arrow().num_rows == 3
