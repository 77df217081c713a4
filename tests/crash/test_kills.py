"""A real streaming job, killed with SIGKILL at each crash window of semantics.md §10, and
restarted.

One job goes through all windows: it is killed in batch after batch, and after each kill Java reads
the table and must find the rows of the batches that were published, each once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paimon_stream import PaimonTable

pytestmark = [pytest.mark.long, pytest.mark.spark]

CHILD = Path(__file__).with_name("stream_child.py")
ROWS_PER_FILE = 40
SCHEMA = [("id", "BIGINT"), ("day", "STRING")]


@dataclass(frozen=True)
class Job:
    """A source of JSON files, a table, and a checkpoint."""

    root: Path
    columns: str = "id bigint, day string"
    mode: str = "append"

    @property
    def table(self) -> Path:
        return self.root / "db.db" / "t"

    def make(
        self, files: int, options: dict[str, str], partition_keys: tuple[str, ...] = ("day",)
    ) -> None:
        PaimonTable.create(
            str(self.table), schema=SCHEMA, partition_keys=partition_keys, options=options
        )
        (self.root / "source").mkdir()
        for number in range(files):
            self.add_file(number)

    def add_file(self, number: int) -> None:
        path = self.root / "source" / f"{number:04d}.json"
        rows = [{"id": i, "day": f"d{i % 3}"} for i in rows_of(number)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(
            path, (1_700_000_000 + number, 1_700_000_000 + number)
        )  # the source reads oldest first

    def start(
        self, where: str, batch: int = -1, checkpoint: str = "checkpoint"
    ) -> subprocess.Popen[str]:
        paths = [str(self.root / "source"), str(self.table), str(self.root / checkpoint)]
        return subprocess.Popen(
            [sys.executable, str(CHILD), *paths, where, str(batch), self.columns, self.mode],
            start_new_session=True,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(self, where: str, batch: int = -1) -> None:
        """Runs the job. It must die at the given point, or end well."""
        child = self.start(where, batch)
        output, _ = child.communicate(timeout=900)
        wanted = 0 if where == "never" else -signal.SIGKILL
        assert child.returncode == wanted, (
            f"{where} in batch {batch}: {child.returncode}\n{output[-4000:]}"
        )


def rows_of(number: int) -> range:
    return range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE)


def ids(java: Any, job: Job) -> list[int]:
    return sorted(row["id"] for row in java.read(job.table))


def files_on_disk(job: Job) -> set[str]:
    return {path.name for path in job.table.rglob("data-*") if path.is_file()}


def live_files(java: Any, job: Job) -> set[str]:
    return {file["fileName"] for file in java.files(job.table)}


# Window of semantics.md §10, where the job dies, and whether the batch is public then.
WINDOWS = [
    ("W1 before any data file", "judged", False),
    ("W2 while executors write", "worker", False),
    ("W2 while the driver writes a small batch", "data", False),
    ("W3 after the files, before the journal", "written", False),
    ("W3 after the journal, before manifests", "journaled", False),
    ("W4 while writing manifests", "manifest", False),
    ("W4 after the lists", "staged", False),
    ("W5 temporary snapshot written, not linked", "link", False),
    ("W11 the answer to the link never arrives", "answer", True),
    ("W6 snapshot linked, before LATEST", "published", True),
    ("W10 after all, before Spark's commit log", "finished", True),
]


@pytest.mark.spark35
@pytest.mark.parametrize("options", [{"bucket": "2", "bucket-key": "id"}], ids=["bucketed"])
def test_killed_in_every_window_each_row_is_there_once(
    tmp_path: Path, java: Any, options: dict[str, str]
) -> None:
    job = Job(tmp_path)
    job.make(len(WINDOWS) + 1, options)
    for batch, (window, where, public) in enumerate(WINDOWS):
        job.run(where, batch)
        expected = range((batch + public) * ROWS_PER_FILE)
        found = ids(java, job) if expected else []
        assert found == list(expected), window
    job.run("never")
    assert ids(java, job) == list(range((len(WINDOWS) + 1) * ROWS_PER_FILE))
    table = PaimonTable.load(str(job.table))
    identifiers = [snapshot.commit_identifier for snapshot in table.snapshots()]
    assert identifiers == list(range(len(WINDOWS) + 1)), "one snapshot for each batch"
    # What W2 and W3 left before the journal knew it are orphans; all else was reused or removed.
    orphans = files_on_disk(job) - live_files(java, job)
    written_blind = 2 * 3 * 2 * 2  # two kills, up to two tasks, three days, two buckets
    assert len(orphans) <= written_blind
    staged = {path.name for path in (job.table / "manifest").iterdir()}
    assert not [
        path for path in (job.table / "snapshot").iterdir() if path.name.startswith("manifest")
    ]
    assert staged, "manifests are there"


def wait_until_stopped(child: subprocess.Popen[str]) -> None:
    """Waits until the child has stopped itself, as the kernel reports it. Nothing is timed."""
    while True:
        pid, status = os.waitpid(child.pid, os.WUNTRACED)
        assert pid == child.pid
        assert os.WIFSTOPPED(status), (
            f"the child ended instead of stopping: {status}\n{child.stdout.read()}"
        )  # type: ignore[union-attr]
        return


def test_a_paused_driver_that_wakes_up_after_its_successor_publishes_nothing(
    tmp_path: Path, java: Any
) -> None:
    """W12: the first driver is stopped with everything staged. A second one replays the batch and
    continues."""
    job = Job(tmp_path)
    job.make(3, {"bucket": "-1"})
    sleeper = job.start("pause:staged", 1)
    wait_until_stopped(sleeper)
    job.run("never")
    os.kill(sleeper.pid, signal.SIGCONT)
    output, _ = sleeper.communicate(timeout=900)
    assert sleeper.returncode != 0
    assert "SharedCheckpoint" in output
    assert ids(java, job) == list(range(3 * ROWS_PER_FILE))


def test_a_hint_written_late_never_points_to_an_expired_snapshot(tmp_path: Path, java: Any) -> None:
    """W13: the driver is stopped between publishing and its hint. Others commit and expire its
    snapshot.
    """
    job = Job(tmp_path)
    job.make(1, {"bucket": "-1"})
    sleeper = job.start("pause:confirmed", 0)
    wait_until_stopped(sleeper)
    for identifier in range(3):
        java.write(job.table, [{"id": -1 - identifier, "day": "d0"}], commit_identifier=identifier)
    java.expire_snapshots(job.table, retain_max=1)
    os.kill(sleeper.pid, signal.SIGCONT)
    output, _ = sleeper.communicate(timeout=900)
    assert sleeper.returncode == 0, output[-4000:]
    assert ids(java, job) == [-3, -2, -1, *rows_of(0)]
    assert (job.table / "snapshot" / "LATEST").read_text() == "4"
