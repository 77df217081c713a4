"""A stream that goes from `format("paimon_stream")` to `PaimonSink` and back, and is killed with SIGKILL in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paimon_stream import PaimonTable

pytest.importorskip("pyspark.sql.datasource", reason="data sources in Python need pyspark 4.0")
from tests.crash.format_child import HOOK

pytestmark = pytest.mark.long

HERE = Path(__file__).parent
FILES = 5


def test_a_checkpoint_goes_from_door_to_door_over_kills(tmp_path: Path, java: Any) -> None:
    options = {"bucket": "2", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "write-only": "true"}
    table = PaimonTable.create(
        str(tmp_path / "t"), [("id", "BIGINT NOT NULL"), ("n", "BIGINT")], primary_keys=["id"], options=options
    )
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "sitecustomize.py").write_text(HOOK)
    (tmp_path / "source").mkdir()
    for number in range(FILES):
        path = tmp_path / "source" / f"{number}.json"
        path.write_text("".join(json.dumps({"id": i % 7, "n": 10**number}) + "\n" for i in range(21)))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))

    def run(door: str, kill_at: str = "") -> None:
        paths = [str(tmp_path / "source"), table.location, str(tmp_path / "checkpoint")]
        done = subprocess.run(
            [sys.executable, str(HERE / "format_child.py"), *paths, door],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(tmp_path / "hooks"), str(HERE.parents[1]), *sys.path]),
                "KILL_AT": kill_at,
            },
            start_new_session=True,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == (-signal.SIGKILL if kill_at else 0), done.stderr[-3000:]

    run("format", "/snapshot/snapshot-2")  # batch 1 is prepared
    assert len(table.snapshots()) == 1
    run("sink", "/snapshot/snapshot-3")  # batch 1 is published, batch 2 is prepared
    assert len(table.snapshots()) == 2
    run("format")
    identifiers = [one.commit_identifier for one in table.snapshots()]
    assert identifiers == list(range(FILES)) and len({one.commit_user for one in table.snapshots()}) == 1
    found = {row["id"]: row["n"] for row in java.read(table.location)}
    assert found == dict.fromkeys(range(7), 33_333)
    assert len(list((tmp_path / "t").rglob("data-*"))) == len(table.files())
    assert table.verify().healthy
