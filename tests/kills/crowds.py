"""Many writers on one table: processes of ours on a disk, and beside threads of Java on S3. Nobody is
killed here. Every row that was acknowledged is there once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paimon_stream import PaimonTable, catalog
from tests.kits.java_catalogs import JavaJdbcCatalog
from tests.kits.store_writers import COLUMNS, FAR, Crowd, Written, append, opened

PATIENT = {"commit.max-retries": "10000", "commit.max-retry-wait": "1 s", "commit.timeout": "1 h"}
SHORT_SLEEPS = {"lock-check-max-sleep": "50 ms", "lock-acquire-timeout": "1 h"}
WRITERS, COMMITS = 64, 50
BESIDE_JAVA, JAVAS, COMMITS_BESIDE_JAVA = 16, 4, 10


@dataclass
class Crowded:
    """What the writers `who` did in `seconds`. `attempts` counts the snapshots that ours have
    tried for their commits, `by_java` the commits of Java.
    """

    who: str
    commits: int
    attempts: int
    by_java: int
    seconds: float


def on_a_disk(location: str, java: Any, writers: int, commits: int) -> Crowded:
    """Each writer is a process that appends a row in each commit. Raises `AssertionError`."""
    PaimonTable.create(location, COLUMNS, options=PATIENT)
    began = time.monotonic()
    written = _written(location, {}, writers, commits)
    seconds = time.monotonic() - began
    rows = java.read(location)
    attempts = _audited(PaimonTable.load(location), rows, written, [], writers * commits)
    who = f"{writers} processes, {commits} commits each, on a disk"
    return Crowded(who, writers * commits, attempts, 0, round(seconds))


def beside_java(
    java: Any, own: Mapping[str, str], s3: Mapping[str, str], writers: int, javas: int, commits: int
) -> Crowded:
    """Processes of ours and threads of one JVM, all of which take the lock of a catalog. `own` are
    the options of the catalog, `s3` those of the store. Raises `AssertionError`.
    """
    options = {**own, **s3, **SHORT_SLEEPS}
    ours = catalog(options)
    ours.create_database("db")
    ours.create_table("db.t", COLUMNS, options=PATIENT)
    began = time.monotonic()
    threads = [
        _Java(JavaJdbcCatalog(java, options), writers + 1 + n, commits) for n in range(javas)
    ]
    for thread in threads:
        thread.start()
    written = _written("db.t", options, writers, commits)
    for thread in threads:
        thread.join()
        assert thread.failed is None, str(thread.failed)
    seconds = time.monotonic() - began
    by_java = [row for thread in threads for row in thread.acknowledged]
    rows = JavaJdbcCatalog(java, options).read("db.t")
    every = (writers + javas) * commits
    attempts = _audited(opened("db.t", options), rows, written, by_java, every)
    who = f"{writers} processes and {javas} threads of a JVM, {commits} commits each, on S3"
    return Crowded(who, writers * commits, attempts, len(by_java), round(seconds))


def _written(
    location: str, options: dict[str, str], writers: int, commits: int
) -> Sequence[Written]:
    tasks = [(location, options, 1 + number, 1, commits) for number in range(writers)]
    with Crowd(writers) as crowd:
        return crowd.run(append, tasks)


class _Java(threading.Thread):
    """Commits rows by Java's catalog, so with its lock, in a thread of the JVM."""

    def __init__(self, javas: JavaJdbcCatalog, number: int, commits: int) -> None:
        super().__init__(daemon=True)
        self.javas, self.number, self.commits = javas, number, commits
        self.acknowledged: list[int] = []
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            for turn in range(self.commits):
                row = FAR * self.number + turn
                self.javas.write("db.t", [{"id": row, "name": f"n{row}"}], row)
                self.acknowledged.append(row)
        except Exception as failed:  # noqa: BLE001  whoever waits for the thread reports it
            self.failed = failed


def _audited(
    table: PaimonTable,
    java_rows: list[dict[str, Any]],
    written: Sequence[Written],
    by_java: Sequence[int],
    every: int,
) -> int:
    """Each row is there once, by the package and by Java, and each commit is one snapshot. Returns
    the number of attempts.
    """
    assert not [one.errors for one in written if one.errors]
    acknowledged = sorted([*by_java, *(row for one in written for row in one.acknowledged)])
    assert len(acknowledged) == every
    assert sorted(table.to_arrow()["id"].to_pylist()) == acknowledged
    assert sorted(row["id"] for row in java_rows) == acknowledged
    assert [one.id for one in table.snapshots()] == list(range(1, every + 1))
    assert table.verify().healthy
    return sum(one.attempts for one in written)
