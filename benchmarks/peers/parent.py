"""The parent's side of a system's process: starts it, sends requests to it, and ends it."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

from .jars import jars_for
from .loads import Load
from .processes import Memory, kill_session

__all__ = ["Died", "Peer"]

HERE = Path(__file__).resolve().parent.parent
_START_LIMIT = 240.0


class Died(RuntimeError):
    """A system has failed, ended or taken too long; the text says why."""


class Peer:
    """One system in a process, a JVM and a session of its own. Call `wait` before the first run.

    `python` is the interpreter that runs it. Its Pythons write samples of their stacks into the
    folder `samples`, if there is one (`sampler/sitecustomize.py`). Raises `Died`, or `Unavailable`
    if its jar is not available.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        python: str,
        memory: str,
        limit: float,
        samples: Path | None = None,
    ) -> None:
        self.name, self.folder, self.limit = name, folder, limit
        self.runs = 0
        jars = map(str, jars_for(name.partition("+")[0], spark_version(python)))
        tree = name.partition("@")[2] or str(HERE.parent)
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SPARK_")},
            "PYTHONPATH": os.pathsep.join([tree, str(HERE)]),
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
            "PYTHONHASHSEED": "0",
            "TMPDIR": str(folder),
            "TZ": "UTC",
        }
        if samples is not None:
            environment["STACK_SAMPLES"] = str(samples)
            environment["PYTHONPATH"] += os.pathsep + str(HERE / "peers" / "sampler")
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            [python, "-m", "peers.child", name, str(folder), memory, *jars],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            cwd=folder,
            start_new_session=True,
            text=True,
        )
        self._answers: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.ready: dict[str, Any] = {}

    @property
    def session(self) -> int:
        """The id of the session to which all its processes belong."""
        return self._process.pid

    def wait(self) -> None:
        """Waits until the Spark session is up. Raises `Died`."""
        self.ready = self._answer(_START_LIMIT)

    def run(self, load: Load, source: Path, *, memory: bool = False) -> dict[str, Any]:
        """Runs the stream once, into a new table. The answer has the measurements and the table's
        name.
        """
        self.runs += 1
        table = f"t{self.runs}"
        order = {
            "do": "run",
            "load": load.as_json(),
            "source": str(source),
            "table": table,
            "checkpoint": str(self.folder / "checkpoints" / table),
        }
        if memory:
            with Memory(self._process.pid) as watch:
                answer = self._ask(order)
            answer["memory"] = watch.peaks
        else:
            answer = self._ask(order)
        answer["table"] = table
        return answer

    def sums(self, table: str) -> dict[str, int] | None:
        """The sums that Spark reads from the table; None if Spark does not read this system's
        tables.
        """
        sums: dict[str, int] | None = self._ask({"do": "check", "table": table}).get("sums")
        return sums

    def place(self, table: str) -> Path:
        """The folder of a Paimon table."""
        return self.folder / "warehouse" / "db.db" / table

    def drop(self) -> None:
        """Removes the files and checkpoints of all runs so far. This is not done after each run,
        because some file systems (ext4 without a journal) create files more slowly if many were
        deleted in the minutes before.
        """
        for table in (f"t{number}" for number in range(1, self.runs + 1)):
            for folder in ("warehouse/db.db", "warehouse/db", "checkpoints"):
                shutil.rmtree(self.folder / folder / table, ignore_errors=True)

    def close(self) -> None:
        """Ends the process and all processes that it has started."""
        kill_session(self._process.pid)
        self._process.wait()
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise Died(f"its process has ended: {self._last_words()}") from error
        return self._answer(self.limit)

    def _answer(self, limit: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=limit)
        except queue.Empty:
            raise Died(f"no answer within {limit:.0f} s") from None
        if line is None:
            raise Died(f"its process has ended: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Died(answer["error"])
        return answer

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def _last_words(self) -> str:
        lines = (self.folder / "log").read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-3:])[-600:] or "it said nothing"


_VERSIONS: dict[str, str] = {}


def spark_version(python: str) -> str:
    """The version of pyspark that the interpreter has. Raises `Died` if it has none."""
    if python not in _VERSIONS:
        command = [python, "-c", "import importlib.metadata as m; print(m.version('pyspark'))"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            raise Died(f"the interpreter has no pyspark: {done.stderr.strip().splitlines()[-1:]}")
        _VERSIONS[python] = done.stdout.strip()
    return _VERSIONS[python]
