"""A table of PostgreSQL, through Debezium and Kafka, and a stream that is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.full
@pytest.mark.parametrize("kills", [0, 4])
def test_the_table_has_the_rows_of_the_database_after_kills(kills: int) -> None:
    command = [sys.executable, str(EXAMPLES / "debezium.py"), "--kills", str(kills)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    if "cannot run here" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert f"Kills of the stream: {kills}, of Debezium: 1." in done.stdout
