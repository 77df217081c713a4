"""What a server prints is read with a limit of time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers._process import SilentServer, line_of

TALKS_ONCE = (
    "import sys; print('broken', file=sys.stderr, flush=True); print('READY', flush=True); input()"
)


def started(code: str, log: Path) -> subprocess.Popen[str]:
    with open(log, "wb") as said:
        return subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )


def test_a_server_that_prints_no_line_in_time_is_killed_and_its_log_is_in_the_error(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    with started(TALKS_ONCE, log) as child:
        assert line_of(child, log) == "READY\n"
        with pytest.raises(SilentServer, match=r"printed no line within 0.01 s: broken"):
            line_of(child, log, seconds=0.01)
        assert child.returncode is not None


def test_a_server_that_has_ended_gives_an_empty_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with started("print('READY')", log) as child:
        assert line_of(child, log) == "READY\n"
        assert line_of(child, log) == ""
