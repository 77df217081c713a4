"""Whether commits, starts and expiry stay fast while a table grows to 10,000 snapshots and 100,000
files.

    python benchmarks/growth.py
    python benchmarks/growth.py --snapshots 2000 --files 10 --marks 100,1000,2000
    python benchmarks/growth.py --json growth.json

One committer makes a table on local storage, commit by commit. The data files themselves are left
out, because no commit reads them. At each mark the benchmark reports:

- how long a commit takes, and what it reads, writes and lists;
- how long the first commit of a new committer takes;
- how long a restarted stream needs to judge its first batch, and how long a new stream needs, which
  reads every snapshot;
- how long expiry takes for each of the oldest snapshots.

Writes are not synced, so that the table is made quickly. The number of syncs in a commit does not
grow.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paimon_stream.commit.committer import CommitRequest, Committer
from paimon_stream.commit.request import Published
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import DataFileMeta, SimpleStats
from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.runtime import system
from paimon_stream.storage.base import MOST_BYTES, FileStat, PutResult
from paimon_stream.storage.local import LocalStorage
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.judging import judge_batch
from paimon_stream.stream.verdicts import Batch
from paimon_stream.stream.writer import StreamWriter
from paimon_stream.table.table import Table, create_table

FIELDS = (
    DataField(id=0, name="id", type=parse_type("BIGINT")),
    DataField(id=1, name="dt", type=parse_type("STRING NOT NULL")),
)
TYPES = [one.type for one in FIELDS]
PARTITIONS = 50
USER = "bench"
EXPIRED = 10
STARTS = 5
COUNTED = ("read", "write", "put", "list")


class Counting(LocalStorage):
    """Local storage that does not sync, and counts operations by objects and bytes."""

    objects: dict[str, int] = dict.fromkeys(COUNTED, 0)
    bytes: dict[str, int] = dict.fromkeys(COUNTED, 0)

    def _count(self, what: str, size: int) -> None:
        self.objects[what] += 1
        self.bytes[what] += size

    def read(self, path: str, limit: int = MOST_BYTES) -> bytes:
        """The whole content, of at most `limit` bytes."""
        data = super().read(path, limit)
        self._count("read", len(data))
        return data

    def write(self, path: str, data: bytes) -> None:
        """Creates or replaces the file."""
        self._count("write", len(data))
        self.write_hint(path, data)

    def write_all(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Writes each in turn."""
        for path, data in files:
            self.write(path, data)

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        """Creates the file."""
        self._count("put", len(data))
        return super().put_if_absent(path, data)

    def list_files(self, folder: str, prefix: str = "") -> list[FileStat]:
        """The files in the folder."""
        found = super().list_files(folder, prefix)
        self._count("list", len(found))
        return found

    def list_names(self, folder: str, prefix: str = "") -> list[str]:
        """The names of the files in the folder. Each name counts as one byte."""
        found = super().list_names(folder, prefix)
        self._count("list", len(found))
        return found


def message(number: int, files: int, partition: bytes) -> CommitMessage:
    """New files of one partition."""
    made = tuple(
        DataFileMeta(
            file_name=f"data-{number:08d}-7d44-4aaa-9bbb-0123456789ab-{n}.parquet",
            file_size=100_000 + n,
            row_count=1_000,
            value_stats=SimpleStats(
                min_values=serialize(TYPES, [number, "a"]),
                max_values=serialize(TYPES, [number + 1, "b"]),
                null_counts=(0, 0),
            ),
            min_sequence_number=0,
            max_sequence_number=999,
            schema_id=0,
            creation_time=system().clock.local_millis(),
        )
        for n in range(files)
    )
    return CommitMessage(partition=partition, bucket=0, total_buckets=-1, new_files=made)


def identity_of(query: str) -> WriterIdentity:
    """The identity of a run of the query with that name."""
    ids = system().ids
    return WriterIdentity(user=query, query_id=query, run_id=ids.uuid(), token=ids.uuid())


@dataclass
class Growth:
    """The table that grows, and its committer."""

    storage: Counting
    table: Table
    files: int
    done: int = 0
    seen: SnapshotRef | None = None
    committer: Committer = field(init=False)

    def __post_init__(self) -> None:
        self.committer = Committer(self.table)
        self.partitions = [serialize(TYPES[1:], [f"2024-{n:03d}"]) for n in range(PARTITIONS)]
        self.marks = identity_of(USER)

    def commit(self, committer: Committer | None = None) -> float:
        """Makes one commit. Returns the milliseconds that it took."""
        given = message(self.done, self.files, self.partitions[self.done % PARTITIONS])
        request = CommitRequest(
            user=USER,
            identifier=self.done,
            messages=(given,),
            properties=self.marks.properties(self.done, None),
            seen=self.seen,
            stage_uuid=system().ids.uuid(),
        )
        start = time.perf_counter()
        outcome = (committer or self.committer).commit(request)
        took = 1000 * (time.perf_counter() - start)
        assert isinstance(outcome, Published)
        self.seen, self.done = SnapshotRef.of(outcome.snapshot), self.done + 1
        return took

    def start(self, user: str) -> float:
        """Milliseconds until a run of a stream has judged its first batch."""
        start = time.perf_counter()
        writer = StreamWriter(storage=self.storage, identity=identity_of(user), options={})
        batch = Batch(batch_id=self.done if user == USER else 0)
        judge_batch(writer.run, writer.standing, batch)
        return 1000 * (time.perf_counter() - start)

    def first_commit(self) -> float:
        """Milliseconds that the first commit of a new committer takes."""
        start = time.perf_counter()
        committer = Committer(self.table)
        return 1000 * (time.perf_counter() - start) + self.commit(committer)

    def expire(self) -> float:
        """Milliseconds that expiry takes for each of the ten oldest snapshots."""
        start = time.perf_counter()
        report = expire_snapshots(
            self.table,
            retain_max=1,
            retain_min=1,
            older_than=0,
            max_deletes=EXPIRED,
            protect_streams=False,
        )
        took = 1000 * (time.perf_counter() - start)
        assert len(report.snapshots) == EXPIRED, report
        return took / EXPIRED

    def look(self, commits: int) -> dict[str, float]:
        """What each operation costs now."""
        before = dict(self.storage.objects), dict(self.storage.bytes)
        times = [self.commit() for _ in range(commits)]
        found = {
            "commit p50, ms": statistics.median(times),
            "commit p99, ms": sorted(times)[int(0.99 * commits)],
            "slowest, ms": max(times),
        }
        for what in COUNTED:
            found[f"{what}s a commit"] = (self.storage.objects[what] - before[0][what]) / commits
        for what in ("read", "write"):
            found[f"bytes {what} a commit"] = (self.storage.bytes[what] - before[1][what]) / commits
        found["names listed a commit"] = (self.storage.bytes["list"] - before[1]["list"]) / commits
        found["first commit of a committer, ms"] = median(self.first_commit)
        found["restart of a stream, ms"] = median(lambda: self.start(USER))
        found["start of a new stream, ms"] = median(
            lambda: self.start(f"new-{system().ids.uuid()}"), 1
        )
        found["expiry of a snapshot, ms"] = median(self.expire, 3)
        return found


def median(work: Callable[[], float], times: int = STARTS) -> float:
    """The median of the results of `work`."""
    return statistics.median(work() for _ in range(times))


def main() -> None:
    """Makes the table, and prints a column for each mark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--snapshots", type=int, default=10_000, help="commits in total")
    parser.add_argument("--files", type=int, default=10, help="new files in each commit")
    parser.add_argument(
        "--marks", default="200,1000,3000,10000", help="commits after which it measures"
    )
    parser.add_argument(
        "--window", type=int, default=150, help="commits that are measured at each mark"
    )
    parser.add_argument("--folder", type=Path, help="where the table is made")
    parser.add_argument("--json", type=Path, help="file for the rows")
    given = parser.parse_args()
    marks = [int(mark) for mark in given.marks.split(",") if int(mark) <= given.snapshots]
    folder = tempfile.mkdtemp(dir=given.folder)
    try:
        storage = Counting(f"{folder}/db.db/t")
        options = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1000000"}
        table = create_table(storage, FIELDS, partition_keys=("dt",), options=options)
        assert table is not None
        growth = Growth(storage, table, given.files)
        looks: dict[int, dict[str, float]] = {}
        for mark in marks:
            while growth.done < mark - given.window:
                growth.commit()
            looks[mark] = growth.look(given.window)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{'number of commits':34}" + "".join(f"{mark:>14,}" for mark in marks))
    print(f"{'files':34}" + "".join(f"{mark * given.files:>14,}" for mark in marks))
    rows: list[dict[str, Any]] = []
    for name in looks[marks[0]]:
        print(f"{name:34}" + "".join(f"{looks[mark][name]:14,.2f}" for mark in marks))
        values = {str(mark): looks[mark][name] for mark in marks}
        unit = "ms" if name.endswith("ms") else "count"
        rows.append(
            {"name": name, "unit": unit, "systems": {"ours": values}, "goal": "flat", "note": ""}
        )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
