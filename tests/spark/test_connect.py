"""The sink on Spark Connect, where a batch function lives in another process and knows no query."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

pytestmark = [pytest.mark.spark4, pytest.mark.long]

HERE = Path(__file__).parent


def test_on_connect_a_replay_is_skipped_and_a_second_sink_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
    if pyspark.__version__.startswith("3."):
        pytest.skip("pyspark 3.5 from pip has no Connect server")
    done = subprocess.run(
        [sys.executable, str(HERE / "connect_child.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), *sys.path])},
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == 10, done.stderr[-3000:]
    once, replayed, named, named_again, copied, shared, *keyed = lines
    assert once == replayed == named == named_again == {"rows": [5, 10], "error": ""}
    assert copied == {
        "copied": [[*range(10), 77]] * 2,
        "error": "",
    }  # from table to table, replayed and read on
    assert shared["rows"] == [5]
    assert "paimon_stream.errors.DuplicateWriter: Batch 0" in shared["error"]
    for report, kept in (keyed[:2], keyed[2:]):
        assert report["error"] == "" and kept == {"keys": [0, 2, 3], "healthy": True}
