"""Streams that are Spark queries. Each run has a JVM and Python workers, which die with it or notice
that it is gone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.kills.deaths import NEVER, Death, Diary
from tests.kills.driver import CHECKPOINT, DIARY, ERROR
from tests.kills.machine import PATIENCE, Machine
from tests.kills.spark_child import BEGUN
from tests.kits.costs import seconds_of
from tests.servers._process import die_with_parent

DRIVER = "the driver and its JVM"
ALL = "all processes of the query"
BATCHES = 4
"""The batches that a run has before it. It is killed before it has done them."""


class Query(Machine):
    """A stream that a Spark query writes. `pace` is how many seconds a batch took lately, as far as is
    known. A busy machine takes longer.
    """

    pace = 1.0

    def killed(self, death: Death) -> None:
        """A run that is killed some time after one of its batches was planned. The kinds of `death`
        are for drivers without Spark. A run that is faster than its death is no kill.
        """
        how = self.dice.choice([DRIVER, ALL])
        self.add_files()
        process = self.start(NEVER)
        if process.stdout.readline().strip() != BEGUN:
            process.communicate(timeout=PATIENCE)
            raise self.wrong(f"run {self.runs} ended {process.returncode} before it began")
        first = self.done()
        self.wait_for(process, first + self.dice.randrange(BATCHES - 1))
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=self.dice.uniform(0, 1.5 * self.pace))
        if process.returncode is None:
            self.kill(process, everybody=how == ALL)
        if process.returncode != -signal.SIGKILL:
            if process.returncode:
                raise self.wrong(f"run {self.runs} ended {process.returncode}")
            return
        self.outcome.kills[how] += 1
        self.outcome.moments[Diary.last_words(self.root / DIARY)] += 1

    def wait_for(self, process: subprocess.Popen[str], batch: int) -> None:
        """Returns when a batch was planned, or the process has ended. Learns the pace from batches
        that follow one of the same run: the first one waits for the query to begin.
        """
        offsets, last = self.root / CHECKPOINT / "offsets", time.monotonic()
        before = seen = len(list(offsets.glob("[0-9]*")))
        while not (offsets / str(batch)).exists() and process.poll() is None:
            time.sleep(0.01)  # the kill comes some time later anyway
            planned = len(list(offsets.glob("[0-9]*")))
            if planned > seen > before:
                self.pace = time.monotonic() - last
            if planned > seen:
                last, seen = time.monotonic(), planned

    def kill(self, process: subprocess.Popen[str], *, everybody: bool) -> None:
        """Kills the driver and its JVM, which are one group, and perhaps the workers, too, which
        have groups of their own in the same session.
        """
        members = session_of(process.pid)
        for member in members:
            with suppress(OSError):
                # Nobody waits for what the driver has started, so nobody else counts it.
                self.outcome.seconds += seconds_of(member) if member != process.pid else 0
        os.killpg(process.pid, signal.SIGKILL)
        for member in members if everybody else ():
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        process.communicate(timeout=PATIENCE)

    def expected(self, batches: int) -> list[dict[str, Any]]:
        """The rows of a table that has this number of batches. A query that died between the choice of a file
        and the note of its batch takes that file and the next one into one batch, so a batch has all
        files up to the offset of its note.
        """
        note = self.root / CHECKPOINT / "offsets" / str(batches - 1)
        if not note.exists():  # it is not planned yet, so nothing of it can be there
            return super().expected(batches)
        return super().expected(json.loads(note.read_text().splitlines()[-1])["logOffset"] + 1)

    def last_run(self) -> None:
        """A run that comes to the end of its source."""
        self.add_files()
        process = self.start(NEVER)
        process.communicate(timeout=PATIENCE)
        if process.returncode:
            raise self.wrong(f"the last run ended {process.returncode}")

    def start(self, death: Death, batches: int | None = None) -> subprocess.Popen[str]:
        """A new run, in a session of its own. What it says of errors goes to a file."""
        self.runs += 1
        task = {
            "door": self.stream.door,
            "source": str(self.root / "source"),
            "location": self.location,
            "storage_options": self.storage_options,
            "options": dict(self.stream.kind.sink_options),
            "checkpoint": str(self.root / CHECKPOINT),
            "diary": str(self.root / DIARY),
        }
        paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        with open(self.root / ERROR, "w") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.kills.spark_child", json.dumps(task)],
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": sys.executable,
                    "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                },
                start_new_session=True,
                preexec_fn=die_with_parent,
                text=True,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def add_files(self) -> None:
        """Adds what is missing to the files that a run has before it. Each is a batch."""
        folder = self.root / "source"
        folder.mkdir(exist_ok=True)
        for batch in range(len(list(folder.iterdir())), self.done() + BATCHES):
            path = folder / f"{batch:06d}.json"
            rows = [json.dumps(row) for _, row in self.stream.kind.changes(batch)]
            path.write_text("\n".join(rows))
            os.utime(path, (1_700_000_000 + batch,) * 2)  # the source reads the oldest first


def session_of(leader: int) -> list[int]:
    """The processes of a session, as /proc has them."""
    members = []
    for process in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        with suppress(OSError):
            fields: Any = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader:
                members.append(process)
    return members
