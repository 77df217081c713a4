"""Engines that share no code with us: each is a process that all tests share, and that reads and
writes tables on the local disk (`tests/oracle/other_engine.py`).
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

TESTS = Path(__file__).parents[1]
PYTHON = Path(os.environ.get("PAIMON_READERS", TESTS.parent / ".venv-readers/bin/python"))
ENGINES = ("pypaimon", "pypaimon_rust")


def require_engines() -> None:
    """Skips the test where the environment of the other engines is missing."""
    if not PYTHON.exists():
        pytest.skip("other readers have a venv of their own: make .venv-readers/.ready")


@functools.cache
def process_of(engine: str) -> tuple[subprocess.Popen[str], Path]:
    """The process of an engine, and what it has written to its log."""
    with tempfile.NamedTemporaryFile(prefix=f"{engine}-", suffix=".log", delete=False) as log:
        process = subprocess.Popen(
            [PYTHON, TESTS / "oracle" / "other_engine.py", engine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    atexit.register(process.communicate)  # it ends where its input ends
    return process, Path(log.name)


def asked(engine: str, action: str, path: Path, rows: Path, *arguments: Any) -> None:
    """Lets the engine do something with a table. Fails with the engine's own error.

    Args:
        engine: one of `ENGINES`.
        action: the name of a method of its class in `tests/oracle/other_engine.py`.
        path: the table.
        rows: the file of the rows.
        arguments: what else the method takes.
    """
    require_engines()
    process, log = process_of(engine)
    assert process.stdin is not None and process.stdout is not None
    line = json.dumps([action, str(path), str(rows), *arguments])
    print(line, file=process.stdin, flush=True)
    answer = process.stdout.readline()
    assert answer, f"{engine} has ended: {log.read_text()[-2000:]}"
    assert json.loads(answer) is None, json.loads(answer)


def rows_found_by(engine: str, path: Path, folder: Path) -> pa.Table:
    """The rows that an engine finds in a table. `folder` is for a file."""
    return answered_by(engine, "read", path, folder)


def answered_by(engine: str, action: str, path: Path, folder: Path) -> pa.Table:
    """The rows that an engine answers with. `folder` is for a file."""
    rows = folder / "found.arrow"
    asked(engine, action, path, rows)
    with pa.OSFile(str(rows)) as source:
        return pa.ipc.open_file(source).read_all()


def written_by(
    engine: str, action: str, path: Path, folder: Path, data: pa.Table, *more: Any
) -> None:
    """Lets an engine write these rows. `folder` is for a file, `more` as in `asked`."""
    rows = folder / "written.arrow"
    with pa.OSFile(str(rows), "wb") as sink, pa.ipc.new_file(sink, data.schema) as writer:
        writer.write_table(data)
    asked(engine, action, path, rows, *more)
