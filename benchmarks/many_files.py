"""What the maintenance benchmarks share: a table of very many files, a run in a fresh process, and
Java.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from paimon_stream.api.table import PaimonTable
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import DataFileMeta, SimpleStats
from paimon_stream.format.types import parse_type
from paimon_stream.runtime import system

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "oracle"))

TYPES = [parse_type(text) for text in ("BIGINT", "STRING", "STRING")]
LONG_AGO = 1_600_000_000
COMMITS = 50
PARTITIONS = 20
BUCKETS = 10


def make_table(location: Path, files: int, orphans: int, commits: int = COMMITS) -> PaimonTable:
    """Makes a table with `files` data files in 200 buckets, and `orphans` orphans among them. Each
    file has four bytes and is years old.
    """
    table = PaimonTable.create(
        str(location),
        schema=[("id", "BIGINT"), ("name", "STRING"), ("dt", "STRING")],
        partition_keys=["dt"],
        options={"bucket": str(BUCKETS), "bucket-key": "id"},
    )
    commit = table.new_commit("benchmark")
    each, places = files // commits, PARTITIONS * BUCKETS
    for number in range(commits):
        messages = []
        for place in range(places):
            wanted = range((place - number * each) % places, each, places)
            if wanted:
                messages.append(_message(location, number, place, wanted))
        commit.commit(number, messages)
    for n in range(orphans):
        _write(
            location
            / f"dt=p{n % PARTITIONS}"
            / f"bucket-{n % BUCKETS}"
            / f"data-orphan-{n}.parquet"
        )
    for path in (location / "manifest").iterdir():
        os.utime(path, (LONG_AGO, LONG_AGO))
    return table


def _message(location: Path, commit: int, place: int, numbers: range) -> CommitMessage:
    partition, bucket = place // BUCKETS, place % BUCKETS
    made = []
    for n in numbers:
        name = f"data-{commit * 2654435761 % 2**32:08x}-aaaa-bbbb-cccc-{n:012d}-0.parquet"
        _write(location / f"dt=p{partition}" / f"bucket-{bucket}" / name)
        made.append(file_of(name, n))
    return CommitMessage(
        partition=serialize([TYPES[2]], [f"p{partition}"]),
        bucket=bucket,
        total_buckets=BUCKETS,
        new_files=tuple(made),
    )


def file_of(name: str, n: int) -> DataFileMeta:
    """The description of a file with ten rows, whose statistics depend on its number."""
    low, high = ([n, f"name-{n}", "p"], [n + 9, f"name-{n + 9}", "p"])
    return DataFileMeta(
        file_name=name,
        file_size=4,
        row_count=10,
        value_stats=SimpleStats(
            min_values=serialize(TYPES, low),
            max_values=serialize(TYPES, high),
            null_counts=(0, 0, 0),
        ),
        min_sequence_number=0,
        max_sequence_number=9,
        schema_id=0,
        creation_time=system().clock.local_millis(),
    )


def _write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"data")
    os.utime(path, (LONG_AGO, LONG_AGO))


def in_fresh_process(script: str, location: Path) -> tuple[float, float, int]:
    """Has the script measure one table. Returns seconds, MiB of memory above the start of the
    process, and the number that it found.
    """
    command = [sys.executable, script, "--measure", str(location)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, memory, found = done.stdout.split()
    return float(seconds), float(memory), int(found)


def most_memory() -> float:
    """The peak memory of this process so far, in MiB. Unlike `ru_maxrss`, it does not count the
    memory that the parent had when it started this process.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def java() -> Any:
    """Java Paimon. The caller warms it up."""
    import java_paimon

    return java_paimon.shared()
