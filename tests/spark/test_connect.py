"""The sink on Spark Connect, where a batch function lives in another process and knows no query."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyspark
import pytest

pytestmark = [pytest.mark.spark4, pytest.mark.long]

HERE = Path(__file__).parent
PACKAGE = f"{HERE.parents[1]}/paimon_stream/"
STACK = re.compile(r"\(most recent call first\):\n((?:  File .*\n)*)")
"""The frames of one thread, as Python prints them when it is aborted. The innermost is the first."""
FRAME = re.compile(r'  File "(.*)", line \d+ in ')
MOST_SECONDS = 240
"""How long the job may take. It takes less than a minute if nothing else runs."""


def test_on_connect_a_replay_is_skipped_and_a_second_sink_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
    if pyspark.__version__.startswith("3."):
        pytest.skip("pyspark 3.5 from pip has no Connect server")
    output, errors, hangs = _job(tmp_path / "first")
    if hangs:
        # Now and then Spark's own server or client waits for the other one for ever, also in a call
        # of this package to Spark. If a thread waits in this package, its stack says so.
        assert not _waits_in_the_package(errors), errors
        print(errors[-20_000:], file=sys.stderr)
        output, errors, hangs = _job(tmp_path / "second")
    assert not hangs, errors
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert len(lines) == 10, errors[-3000:]
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


def _job(folder: Path) -> tuple[str, str, bool]:
    """Runs the job in a folder. Returns what it wrote to its two outputs, and whether it hangs. If
    it does, the stacks of its processes are in the second text.
    """
    job = subprocess.Popen(
        [sys.executable, str(HERE / "connect_child.py"), str(folder)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), *sys.path]),
            "PYTHONFAULTHANDLER": "1",  # Python prints its stacks when it is aborted
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = job.communicate(timeout=MOST_SECONDS)
        return output, errors, False
    except subprocess.TimeoutExpired:
        pass
    _signal(job.pid, {"java": signal.SIGQUIT})  # Java prints its stacks, and goes on
    _signal(job.pid, {"python": signal.SIGABRT})
    try:
        output, errors = job.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        _signal(job.pid, {"": signal.SIGKILL})
        output, errors = job.communicate()
    return output, f"{output}\n{errors}", True


def _waits_in_the_package(stacks: str) -> bool:
    """Whether a frame of this package is the innermost of a thread, but for Python's own modules."""
    libraries = tuple(folder for folder in sys.path if folder.endswith("site-packages"))
    for stack in STACK.findall(stacks):
        for file in FRAME.findall(stack):
            if file.startswith(PACKAGE):
                return True
            if file.startswith(libraries):
                break
    return False


def test_a_stack_tells_who_waits() -> None:
    own = f'  File "{PACKAGE}spark/sink.py", line 1 in run\n'
    of_python = f'  File "{threading.__file__}", line 1 in wait\n'
    of_spark = f'  File "{pyspark.__file__}", line 1 in config\n'
    head = "Thread 0x1 (most recent call first):\n"
    assert _waits_in_the_package(head + of_spark + own + head + of_python + own)
    assert not _waits_in_the_package(head + of_python + of_spark + own)


def _signal(session: int, signals: dict[str, signal.Signals]) -> None:
    """Sends signals to the processes of a session whose commands begin with these names."""
    listed = subprocess.run(
        ["ps", "-eo", "pid=,sess=,comm="], capture_output=True, text=True, check=True
    )
    for line in listed.stdout.splitlines():
        pid, of_session, command = line.split(maxsplit=2)
        for name, number in signals.items():
            if of_session == str(session) and command.startswith(name):
                with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                    os.kill(int(pid), number)
