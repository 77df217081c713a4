"""What expiry of many snapshots costs, compared with Java in the same run, and how much memory it
takes.

    python benchmarks/expiry.py
    python benchmarks/expiry.py --snapshots 2000 --files 20 --rounds 1
    python benchmarks/expiry.py --memory            # our memory only, at growing numbers of data files

Each round expires two copies of one table on the local disk in turn, one with Java Paimon 1.4.2 and
one with this package. All snapshots but the newest expire. Every tenth commit of the table is a
compaction, so data files are deleted as well. Java needs its jar (see tests/oracle). Without it,
only our time is measured.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from paimon_stream.commit.committer import Committer
from paimon_stream.commit.request import CommitRequest, Published
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import EMPTY_ROW, DataFileMeta
from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.runtime import SimulatedClock, simulated
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import create_table, load_table

MERGED_EVERY = 10


class QuickStorage(LocalStorage):
    """Writes without syncing, to make a large table quickly."""

    def write(self, path: str, data: bytes) -> None:
        """Creates or replaces the file."""
        full = Path(self.root, path)
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_bytes(data)

    def write_all(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Writes each in turn."""
        for path, data in files:
            self.write(path, data)


def build(path: Path, snapshots: int, files: int) -> None:
    """Makes a table of `snapshots` snapshots. Each adds `files` data files without real content."""
    storage = QuickStorage(str(path))
    runtime = simulated(7, SimulatedClock())
    table = create_table(
        storage, (DataField(id=0, name="id", type=parse_type("BIGINT")),), runtime=runtime
    )
    assert table is not None
    committer = Committer(table, runtime)
    pending: list[DataFileMeta] = []
    seen: SnapshotRef | None = None
    for number in range(snapshots):
        message = CommitMessage(partition=EMPTY_ROW, bucket=0, total_buckets=-1)
        if number % MERGED_EVERY == MERGED_EVERY - 1:
            merged = tuple(new_files(storage, runtime, 1))
            message = replace(message, compact_before=tuple(pending), compact_after=merged)
            pending = []
        else:
            added = tuple(new_files(storage, runtime, files))
            pending.extend(added)
            message = replace(message, new_files=added)
        outcome = committer.commit(
            CommitRequest(
                user="bench",
                identifier=number,
                messages=(message,),
                seen=seen,
                stage_uuid=runtime.ids.uuid(),
            )
        )
        assert isinstance(outcome, Published)
        seen = SnapshotRef.of(outcome.newest)


def new_files(storage: QuickStorage, runtime, count: int) -> list[DataFileMeta]:
    """Makes data files without real content, and returns their manifest metadata."""
    uuid = runtime.ids.uuid()
    made = []
    for number in range(count):
        name = f"data-{uuid}-{number}.parquet"
        storage.write(f"bucket-0/{name}", b"nothing")
        made.append(
            DataFileMeta(
                file_name=name,
                file_size=7,
                row_count=1,
                min_sequence_number=0,
                max_sequence_number=0,
                schema_id=0,
                creation_time=runtime.clock.local_millis(),
                value_stats_cols=(),
            )
        )
    return made


def ours(path: Path) -> float:
    """The seconds that our expiry takes."""
    started = time.perf_counter()
    report = expire_snapshots(load_table(LocalStorage(str(path))), 1, 1, dt.timedelta(0), 10**6)
    seconds = time.perf_counter() - started
    assert report.left == 0
    return seconds


def theirs(java, path: Path) -> float:
    """The seconds that Java's expiry takes."""
    started = time.perf_counter()
    java.expire_snapshots(path, retain_max=1)
    return time.perf_counter() - started


def listing(path: Path) -> set[str]:
    """All files of a table."""
    return {
        str(one.relative_to(path))
        for one in path.rglob("*")
        if one.is_file() and one.suffix != ".crc"
    }


def oracle():
    """Java Paimon, None if it is not installed."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "oracle"))
    import java_paimon

    try:
        return java_paimon.JavaPaimon()
    except java_paimon.OracleUnavailable as why:
        print(f"Java is left out: {str(why).splitlines()[0]}", file=sys.stderr)
        return None


def compare(snapshots: int, files: int, rounds: int, where: str | None) -> None:
    """Expires copies of one table, with Java and with this package in turn."""
    java = oracle()
    with tempfile.TemporaryDirectory(dir=where) as folder:
        original = Path(folder, "original", "db.db", "t")
        build(original, snapshots, files)
        print(f"{snapshots} snapshots of {files} files, {len(listing(original))} files in total")
        times: dict[str, list[float]] = {"java": [], "ours": []}
        for number in range(rounds + 1):
            left = {}
            for who in ("java", "ours") if number % 2 else ("ours", "java"):
                if who == "java" and java is None:
                    continue
                copy = Path(folder, f"{who}-{number}", "db.db", "t")
                shutil.copytree(original, copy)
                seconds = ours(copy) if who == "ours" else theirs(java, copy)
                left[who] = listing(copy)
                if number:  # the first round warms up
                    times[who].append(seconds)
                shutil.rmtree(copy.parents[1])
            assert len({frozenset(one) for one in left.values()}) == 1, "they left different files"
    best = statistics.median(times["ours"])
    print(f"{'ours':6}{best:9.3f} s   {1e3 * best / snapshots:7.3f} ms for each snapshot")
    if times["java"]:
        other = statistics.median(times["java"])
        print(f"{'java':6}{other:9.3f} s   {1e3 * other / snapshots:7.3f} ms for each snapshot")
        print(f"ours / java = {best / other:.2f}")
        java.close()


def memory(snapshots: int) -> None:
    """Prints how much the peak memory of a process grows while it expires tables of more and more
    files.
    """
    print(f"{'files':>10}{'MB more':>10}")
    for files in (10, 100, 1000):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "db.db", "t")
            build(path, snapshots, files)
            child = os.fork()
            if child == 0:
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                ours(path)
                grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
                print(f"{snapshots * files:>10}{grown:>10.1f}", flush=True)
                os._exit(0)
            os.waitpid(child, 0)


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--snapshots", type=int, default=1000)
    parser.add_argument("--files", type=int, default=5, help="data files of each commit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="where to make the tables (default: the temporary folder)")
    parser.add_argument("--memory", action="store_true")
    given = parser.parse_args()
    if given.memory:
        memory(min(given.snapshots, 100))
    else:
        compare(given.snapshots, given.files, given.rounds, given.folder)


if __name__ == "__main__":
    main()
