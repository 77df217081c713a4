"""The official sink and ours by the same steps: three batches, the newest entry of Spark's commit
log removed, a restart. Its jar (Maven's newest for Spark 3.5) needs Spark 3.5, so this runs there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from paimon_stream import PaimonTable
from paimon_stream.cli.app import cli

pytestmark = [pytest.mark.spark35, pytest.mark.spark]

HERE = Path(__file__).parent
VERSION = "0.9.0"
ARTIFACT = "paimon-spark-3.5"


def official_jar() -> Path:
    """The jar from the local Maven repository, fetched there if need be."""
    repository = Path.home() / ".m2" / "repository"
    jar = repository / "org/apache/paimon" / ARTIFACT / VERSION / f"{ARTIFACT}-{VERSION}.jar"
    if not jar.is_file() and shutil.which("mvn"):
        subprocess.run(
            [
                "mvn",
                "-q",
                "dependency:get",
                f"-Dartifact=org.apache.paimon:{ARTIFACT}:{VERSION}",
                "-Dtransitive=false",
                f"-Dmaven.repo.local={repository}",
            ],
            capture_output=True,
            check=False,
        )
    if not jar.is_file():
        reason = f"{jar.name} is not in the local Maven repository, and mvn could not fetch it"
        if os.environ.get("PAIMON_REQUIRE_ORACLE") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return jar


@pytest.fixture
def source(tmp_path: Path) -> Path:
    pyspark = pytest.importorskip("pyspark")
    if not pyspark.__version__.startswith("3.5"):
        pytest.skip(f"the official sink's jar is for Spark 3.5, this is {pyspark.__version__}")
    folder = tmp_path / "source"
    folder.mkdir()
    for number in range(3):
        add_file(folder, number)
    return folder


def forget_the_last_batch(checkpoint: Path, batch: int = 2) -> None:
    """What a kill between the sink's publishing and Spark's commit log leaves."""
    for name in (f"{batch}", f".{batch}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)


def add_file(source: Path, number: int) -> None:
    """The rows of one batch."""
    path = source / f"{number}.json"
    rows = ({"id": i, "day": "d"} for i in range(number * 10, number * 10 + 10))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def run(*command: object) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_the_official_sink_doubles_a_replayed_batch(tmp_path: Path, source: Path) -> None:
    command = (HERE / "official_child.py", official_jar(), source, tmp_path / "wh", tmp_path / "ck")
    assert "rows=30 sum=435" in run(*command)
    forget_the_last_batch(tmp_path / "ck")
    assert "rows=40 sum=680" in run(*command), (
        "the official sink no longer doubles rows: change the README"
    )


def test_ours_does_not(tmp_path: Path, source: Path) -> None:
    table, checkpoint = tmp_path / "wh/db.db/t", tmp_path / "ck"
    PaimonTable.create(str(table), schema=[("id", "BIGINT"), ("day", "STRING")])
    command = (HERE / "stream_child.py", source, table, checkpoint, "never")
    run(*command)
    forget_the_last_batch(checkpoint)
    run(*command)
    latest = PaimonTable.load(str(table)).latest_snapshot()
    assert latest is not None
    assert (latest.id, latest.total_record_count) == (3, 30)


def told(code: int, *command: object) -> dict[str, Any]:
    """The answer of a command, which must end with this code."""
    result = CliRunner().invoke(cli, [*map(str, command), "--json"])
    assert result.exit_code == code, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_a_query_moves_from_the_official_sink_to_ours_and_back(
    tmp_path: Path, source: Path, java: Any, killed: bool
) -> None:
    """By the steps of docs/migration.md, with the answers that the page promises."""
    table, checkpoint = tmp_path / "wh/db.db/t", tmp_path / "ck"
    theirs = (HERE / "official_child.py", official_jar(), source, tmp_path / "wh", checkpoint)
    ours = (HERE / "stream_child.py", source, table, checkpoint, "never")
    assert "rows=30 sum=435" in run(*theirs)
    if killed:
        forget_the_last_batch(checkpoint, 2)
        planned = (checkpoint / "offsets" / "2").stat().st_mtime
        newest = told(0, "snapshots", table)["snapshots"][:2]
        assert [one["time_millis"] / 1000 > planned for one in newest] == [True, False], (
            "batch 2 is in the table"
        )
        told(0, "rollback", "--yes", table, newest[1]["id"])
    told(0, "verify", table)
    (judged,) = told(1, "doctor", "--checkpoint", checkpoint, table)["streams"]
    assert (judged["verdict"], judged["next_batch"]) == ("fresh", 2 if killed else 3)
    assert "a stream into another table" in judged["explanation"]

    add_file(source, 3)
    run(*ours)
    told(0, "verify", table)
    newest = told(0, "snapshots", table)["snapshots"][0]
    assert (newest["batch"], newest["total_records"]) == (3, 40)
    told(0, "doctor", "--checkpoint", checkpoint, table)
    if killed:
        forget_the_last_batch(checkpoint, 3)
        run(*ours)
    assert (checkpoint / "commits" / "3").is_file()

    add_file(source, 4)
    assert f"rows=50 sum={sum(range(50))}" in run(*theirs)
    told(0, "verify", table)
    assert sorted(row["id"] for row in java.read(table)) == list(range(50))
