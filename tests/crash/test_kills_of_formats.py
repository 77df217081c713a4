"""A stream that goes from `format("paimon_stream")` to `PaimonSink` and back, and is killed with
SIGKILL in between.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest

from paimon_stream import PaimonTable

pytest.importorskip("pyspark.sql.datasource", reason="data sources in Python need pyspark 4.0")
from tests.crash.format_child import HOOK

pytestmark = [pytest.mark.full, pytest.mark.spark]

HERE = Path(__file__).parent
FILES = 5


def run(root: Path, source: str, table: str, door: str, kill_at: str = "") -> None:
    """Runs the job, to its end or until it is killed."""
    (root / "hooks").mkdir(exist_ok=True)
    (root / "hooks" / "sitecustomize.py").write_text(HOOK)
    done = subprocess.run(
        [
            sys.executable,
            str(HERE / "format_child.py"),
            source,
            table,
            str(root / "checkpoint"),
            door,
        ],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(root / "hooks"), str(HERE.parents[1]), *sys.path]),
            "KILL_AT": kill_at,
        },
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == (-signal.SIGKILL if kill_at else 0), done.stderr[-3000:]


def sums(path: Path) -> PaimonTable:
    options = {
        "bucket": "2",
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "write-only": "true",
    }
    columns = [("id", "BIGINT NOT NULL"), ("n", "BIGINT")]
    return PaimonTable.create(str(path), columns, primary_keys=["id"], options=options)


def test_a_checkpoint_goes_from_door_to_door_over_kills(tmp_path: Path, java: Any) -> None:
    table = sums(tmp_path / "t")
    (tmp_path / "source").mkdir()
    for number in range(FILES):
        path = tmp_path / "source" / f"{number}.json"
        path.write_text(
            "".join(json.dumps({"id": i % 7, "n": 10**number}) + "\n" for i in range(21))
        )
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))

    args = (tmp_path, str(tmp_path / "source"), table.location)
    run(*args, "format", "/snapshot/snapshot-2")  # batch 1 is prepared
    assert len(table.snapshots()) == 1
    run(*args, "sink", "/snapshot/snapshot-3")  # batch 1 is published, batch 2 is prepared
    assert len(table.snapshots()) == 2
    run(*args, "format")
    identifiers = [one.commit_identifier for one in table.snapshots()]
    assert (
        identifiers == list(range(FILES))
        and len({one.commit_user for one in table.snapshots()}) == 1
    )
    found = {row["id"]: row["n"] for row in java.read(table.location)}
    assert found == dict.fromkeys(range(7), 33_333)
    assert len(list((tmp_path / "t").rglob("data-*"))) == len(table.files())
    assert table.verify().healthy


@pytest.mark.skipif(
    pyspark.__version__.startswith(("4.0", "4.1")),
    reason="one batch for each snapshot needs Spark 4.2",
)
@pytest.mark.parametrize("door", ["format", "sink"])
def test_a_stream_from_table_to_table_is_killed(door: str, tmp_path: Path, java: Any) -> None:
    columns = [("id", "BIGINT"), ("n", "BIGINT")]
    source, table = PaimonTable.create(str(tmp_path / "source"), columns), sums(tmp_path / "t")
    for number in range(FILES):
        source.append(pa.table({"id": [i % 7 for i in range(21)], "n": [10**number] * 21}))
    args = (tmp_path, source.location, table.location, door)
    run(*args, "/snapshot/snapshot-2")  # batch 1 is prepared
    source.compact(full=True)
    source.append(pa.table({"id": [*range(7)], "n": [10**FILES] * 7}))
    source.expire_snapshots(
        retain_max=1, retain_min=1, older_than="0 s"
    )  # the consumer keeps what is not read
    run(*args, "/snapshot/snapshot-3")  # batch 1 is published, batch 2 is prepared
    run(*args)
    assert {row["id"]: row["n"] for row in java.read(table.location)} == dict.fromkeys(
        range(7), 133_333
    )
    assert len({one.commit_user for one in table.snapshots()}) == 1
    assert table.verify().healthy and source.verify().healthy
