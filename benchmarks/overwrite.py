"""A dynamic overwrite of 1 of 1,000 partitions: ours compared with Java's in the same run, and its
memory.

python benchmarks/overwrite.py [--partitions 1000] [--files 1] [--rounds 15]

Two copies of one table get the same commit messages. Only the commit is timed, with a committer
that exists already. The data files are not written, because a committer never reads them. Our
commit makes every file durable before it continues; Java's makes none durable. The second line
shows ours without syncs as well. Needs the Java oracle of the tests.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
import tracemalloc
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "oracle")]

from paimon_stream.api.table import PaimonTable  # noqa: E402
from paimon_stream.commit.table_commit import TableCommit  # noqa: E402
from paimon_stream.format.binary_row import serialize  # noqa: E402
from paimon_stream.format.commit_message import CommitMessage  # noqa: E402
from paimon_stream.format.entries import DataFileMeta, SimpleStats  # noqa: E402
from paimon_stream.format.types import parse_type  # noqa: E402
from paimon_stream.runtime import system  # noqa: E402
from paimon_stream.storage.local import LocalStorage  # noqa: E402
from paimon_stream.table.table import load_table  # noqa: E402

COLUMNS = [("id", "BIGINT"), ("name", "STRING"), ("amount", "DOUBLE"), ("dt", "STRING")]
TYPES = [parse_type(text) for _, text in COLUMNS]
COMMITS = 20


def message(partition: int, names: Sequence[str]) -> CommitMessage:
    """New files of one partition, with statistics of all columns."""
    dt = f"d{partition:05d}"
    files = tuple(
        DataFileMeta(
            file_name=f"data-{name}.parquet",
            file_size=100_000,
            row_count=5_000,
            min_sequence_number=0,
            max_sequence_number=4_999,
            schema_id=0,
            creation_time=system().clock.local_millis(),
            value_stats=SimpleStats(
                min_values=serialize(TYPES, [partition, "name-0", 0.5, dt]),
                max_values=serialize(TYPES, [partition + 1, "name-9", 9.5, dt]),
                null_counts=(0, 0, 0, 0),
            ),
        )
        for name in names
    )
    row = serialize([TYPES[3]], [dt])
    return CommitMessage(partition=row, bucket=0, total_buckets=-1, new_files=files)


def fill(path: Path, partitions: int, files: int) -> None:
    """Gives every partition its files, over several commits."""
    PaimonTable.create(
        str(path), schema=COLUMNS, partition_keys=["dt"], options={"write-only": "true"}
    )
    commit = TableCommit(load_table(LocalStorage(str(path))), "filler")
    for number in range(COMMITS):
        some = range(number, partitions, COMMITS)
        commit.commit(
            number, [message(p, [f"old-{p:05d}-{n}" for n in range(files)]) for p in some]
        )


def main() -> None:
    """Prints the milliseconds and the ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--files", type=int, default=1, help="files in each partition")
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    import java_paimon

    java = java_paimon.shared()
    root = Path(tempfile.mkdtemp(prefix="bench-overwrite-"))
    try:
        mine, theirs = root / "mine.db" / "t", root / "theirs.db" / "t"
        fill(mine, given.partitions, given.files)
        shutil.copytree(mine, theirs)
        print(
            f"{given.partitions:,} partitions of {given.files} files, {given.rounds} overwrites of one"
        )
        print(f"{'':<28}{'ours':>10}{'Java':>10}{'ratio':>8}")
        for what, sync in (
            ("both as they are", os.fsync),
            ("ours without syncs, like Java", lambda file: None),
        ):
            with patch("os.fsync", sync):
                times = compare(java, mine, theirs, given.partitions, given.rounds)
            one, other = map(statistics.median, times)
            print(f"{what:<28}{one:>7.1f} ms{other:>7.1f} ms{one / other:>8.2f}")
        assert len(java.files(mine)) == len(java.files(theirs))
        print(f"memory of ours {peak(mine, given.partitions) / 2**20:.1f} MiB")
    finally:
        shutil.rmtree(root)


def compare(
    java: Any, mine: Path, theirs: Path, partitions: int, rounds: int
) -> tuple[list[float], list[float]]:
    """Milliseconds of each round after ten rounds of warm-up. Ours and Java's take turns."""
    ours: list[float] = []
    others: list[float] = []
    commit = TableCommit(load_table(LocalStorage(str(mine))), "bench")
    table = java._table(theirs)
    for number in range(-10, rounds):
        one = message(number % partitions, [f"new-{uuid.uuid4()}"])
        decoded = [java._deserialize(one.serialize(), None)]
        began = time.perf_counter()
        commit.overwrite(None, [one])
        between = time.perf_counter()
        java._commit(table, f"bench-{uuid.uuid4()}", 2**63 - 1, decoded, {}, True, None)
        ended = time.perf_counter()
        if number >= 0:
            ours.append((between - began) * 1000)
            others.append((ended - between) * 1000)
    return ours, others


def peak(path: Path, partitions: int) -> int:
    """The peak memory, in bytes, of one more overwrite."""
    commit = TableCommit(load_table(LocalStorage(str(path))), "memory")
    tracemalloc.start()
    commit.overwrite(None, [message(partitions // 2, ["memory"])])
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return used


if __name__ == "__main__":
    main()
