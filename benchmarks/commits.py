"""What a commit costs, compared with Java Paimon and pypaimon in the same run.

    python benchmarks/commits.py                                 # 200 and 10,000 messages, 1,000 in a row
    python benchmarks/commits.py --only 10000 --rounds 3
    python benchmarks/commits.py --systems ours --kind keyed     # checked | buckets | keyed | append
    python benchmarks/commits.py --json commits.json

Messages are prepared in advance. Each has one new data file with statistics of eight columns, in
one of a hundred partitions. Only a checked commit checks whether the files exist. In every round,
each system in turn commits the messages to a fresh copy of a table of 100 snapshots. Then come many
commits of one message each, one after the other. Times are medians over the rounds; the first round
is dropped. CPU is that of the process. After each round, Java and this package count the files and
rows of each system's table. Waiting messages are excluded from Python's garbage collection, here
and in pypaimon's process. The tables stay until the end, because some file systems (ext4 without a
journal) create files more slowly if many were deleted in the minutes before.

Java runs in a JVM of its own through tests/oracle, with both compilers, and times itself inside the
JVM. pypaimon runs in a Python of its own (--pypaimon, made by `make .venv-readers/.ready`).
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

from paimon_stream.commit.committer import CommitRequest, Committer
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import DataFileMeta, SimpleStats
from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.runtime import Runtime
from paimon_stream.storage.base import Storage
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.live import live_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table, create_table, load_table

HERE = Path(__file__).parent
COLUMNS = (
    ("id", "BIGINT NOT NULL"),
    ("name", "STRING"),
    ("total", "DECIMAL(12, 2)"),
    ("price", "DOUBLE"),
    ("at", "TIMESTAMP(6)"),
    ("quantity", "INT"),
    ("note", "STRING"),
    ("dt", "STRING NOT NULL"),
)
TYPES = tuple(parse_type(text) for _, text in COLUMNS)
PARTITIONS, BUCKETS, ROWS, SNAPSHOTS = 100, 16, 5_000, 100
KINDS = MappingProxyType(
    {
        "append": {},
        "checked": {},
        "buckets": {"bucket": str(BUCKETS), "bucket-key": "id"},
        "keyed": {"bucket": str(BUCKETS), "write-only": "true"},
    }
)
GOALS = MappingProxyType({"200": 12.0, "row": 5.0})
"""The most milliseconds. Of the commit of 10,000 messages, a warm Java takes the most."""

Timed = tuple[float, float]

CHILD = """
import gc, json, sys, time
from pypaimon.table.file_store_table import FileStoreTable
from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.write.commit_message import CommitMessage

def load(path):
    table = FileStoreTable.from_path(path)
    snapshot = table.snapshot_manager().get_latest_snapshot()
    manifests, made = ManifestFileManager(table), {}
    for meta in ManifestListManager(table).read_all(snapshot):
        for entry in manifests.read(meta.file_name, drop_stats=False):
            total = entry.total_buckets if entry.total_buckets > 0 else None
            made[entry.file.file_name] = CommitMessage(
                tuple(entry.partition.values), entry.bucket, [entry.file], total_buckets=total)
    return [made[name] for name in sorted(made)]

for line in sys.stdin:
    verb, *args = json.loads(line)
    if verb == "load":
        messages = load(args[0])
        gc.collect()
        gc.freeze()
        answer = len(messages)
    elif verb == "open":
        commit = FileStoreTable.from_path(args[0]).new_stream_write_builder().new_commit()
        answer = None
    else:
        identifier, first, count = args
        given = messages[first:first + count]
        wall, cpu = time.perf_counter(), time.process_time()
        commit.commit(given, identifier)
        answer = [time.perf_counter() - wall, time.process_time() - cpu]
    print(json.dumps(answer), flush=True)
"""


def prepared(count: int, kind: str, name: str = "data") -> list[CommitMessage]:
    """Messages of one file each, whose name begins with `name`. The file names sort in the order of
    the messages.
    """
    made = []
    now = Runtime().clock.local_millis()
    for n in range(count):
        dt = f"2024-{n % PARTITIONS:03d}"
        low = [n, f"name-{n}", Decimal(n), 0.5 * n, n * 10**10, n, "a" * 16, dt]
        high = [
            n + 7,
            f"name-{n + 7}",
            Decimal(n + 9),
            0.7 * n,
            n * 10**10 + 9,
            n + 5,
            "z" * 16,
            dt,
        ]
        key = SimpleStats(
            min_values=serialize(TYPES[:1], [n]),
            max_values=serialize(TYPES[:1], [n + 7]),
            null_counts=(0,),
        )
        keyed = {"min_key": key.min_values, "max_key": key.max_values, "key_stats": key}
        file = DataFileMeta(
            file_name=f"{name}-{n:012d}-7d44-4aaa-9bbb-0123456789ab-0.parquet",
            file_size=100_000 + n,
            row_count=ROWS,
            value_stats=SimpleStats(
                min_values=serialize(TYPES, low),
                max_values=serialize(TYPES, high),
                null_counts=(0, n % 7, 0, 0, 0, n % 3, 0, 0),
            ),
            min_sequence_number=0,
            max_sequence_number=ROWS - 1,
            schema_id=0,
            creation_time=now,
            **(keyed if kind == "keyed" else {}),  # type: ignore[arg-type]
        )
        fixed = kind in ("buckets", "keyed")
        made.append(
            CommitMessage(
                partition=serialize(TYPES[7:], [dt]),
                bucket=n // PARTITIONS % BUCKETS if fixed else 0,
                total_buckets=BUCKETS if fixed else -1,
                new_files=(file,),
            )
        )
    return made


def make_table(storage: Storage, kind: str) -> Table:
    """An empty table."""
    fields = tuple(
        DataField(id=i, name=name, type=type_)
        for i, ((name, _), type_) in enumerate(zip(COLUMNS, TYPES, strict=True))
    )
    table = create_table(
        storage,
        fields,
        partition_keys=("dt",),
        primary_keys=("id", "dt") if kind == "keyed" else (),
        options=dict(KINDS[kind]),
    )
    assert table is not None
    return table


class Ours:
    """This package. It keeps its committer from commit to commit, as a stream does."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def load(self, messages: list[CommitMessage], _file: Path, _source: Path) -> None:
        """Takes the messages."""
        self._messages = messages

    def open(self, path: Path) -> None:
        """Opens the table for the next commits. The files of the messages count as fresh again,
        because a commit looks for files that are older than half an hour.
        """
        now = Runtime().clock.local_millis()
        self._messages = [
            replace(
                one, new_files=tuple(replace(file, creation_time=now) for file in one.new_files)
            )
            for one in self._messages
        ]
        gc.collect()
        gc.freeze()
        self._table = load_table(LocalStorage(str(path)))
        self._commit = TableCommit(self._table, "bench")
        self._checked = Committer(self._table)
        self._snapshots = SnapshotStore(self._table.storage)

    def commit(self, identifier: int, first: int, count: int) -> Timed:
        """Commits `count` messages. Returns seconds of wall clock and CPU."""
        given = tuple(self._messages[first : first + count])
        wall, cpu = time.perf_counter(), time.process_time()
        if self._kind == "checked":
            latest = self._snapshots.latest()
            seen = None if latest is None else SnapshotRef.of(latest)
            self._checked.commit(
                CommitRequest(
                    user="bench",
                    identifier=identifier,
                    messages=given,
                    seen=seen,
                    stage_uuid=f"{identifier:032x}",
                    checked=True,
                )
            )
        else:
            self._commit.commit(identifier, given)
        return time.perf_counter() - wall, time.process_time() - cpu


class Java:
    """Java Paimon, which times itself."""

    def __init__(self) -> None:
        sys.path.insert(0, str(HERE.parent / "tests" / "oracle"))
        import java_paimon

        self.paimon = java_paimon.JavaPaimon(max_heap="2g", quick_start=False)
        self._timer = self.paimon.compiled((HERE / "CommitTimer.java").read_text(), "CommitTimer")

    def load(self, _messages: list[CommitMessage], file: Path, _source: Path) -> None:
        """Takes the messages."""
        self._timer.load(str(file))

    def open(self, path: Path) -> None:
        """Opens the table for the next commits."""
        self._timer.open(self.paimon.table(path), "bench")

    def commit(self, identifier: int, first: int, count: int) -> Timed:
        """Commits `count` messages. Returns seconds of wall clock and CPU."""
        wall, cpu = self._timer.commit(identifier, first, count).split()
        return int(wall) / 1e9, int(cpu) / 1e9

    def live(self, path: Path) -> tuple[int, int]:
        """Files and rows of the newest snapshot."""
        files, rows = self._timer.live(self.paimon.table(path)).split()
        return int(files), int(rows)


class Pypaimon:
    """pypaimon in a Python of its own."""

    def __init__(self, python: Path) -> None:
        self._process = subprocess.Popen(
            [python, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def load(self, _messages: list[CommitMessage], _file: Path, source: Path) -> None:
        """Reads the messages from a table that has their files."""
        self._ask("load", str(source))

    def open(self, path: Path) -> None:
        """Opens the table for the next commits."""
        self._ask("open", str(path))

    def commit(self, identifier: int, first: int, count: int) -> Timed:
        """Commits `count` messages. Returns seconds of wall clock and CPU."""
        wall, cpu = self._ask("commit", identifier, first, count)
        return wall, cpu

    def _ask(self, *words: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def our_live(path: Path) -> tuple[int, int]:
    """Files and rows of the newest snapshot, as this package reads them."""
    table = load_table(LocalStorage(str(path)))
    manifests = ManifestStore(table.storage)
    latest = SnapshotStore(table.storage).latest()
    assert latest is not None
    entries = live_files(manifests, manifests.base_and_delta(latest), table.partition_types)
    return len(entries), sum(entry.file.row_count for entry in entries)


class Bench:
    """One run: the systems, their tables, and the rows of its result."""

    def __init__(self, folder: Path, systems: dict[str, Any], kind: str, count: int) -> None:
        self.folder, self.systems, self.kind, self.round = folder, systems, kind, 0
        self.messages = prepared(count, kind)
        file, source = folder / "messages", folder / "db.db" / "source"
        with file.open("wb") as out:
            out.write(struct.pack(">i", count))
            for message in self.messages:
                data = message.serialize()
                out.write(struct.pack(">i", len(data)) + data)
        TableCommit(make_table(LocalStorage(str(source)), kind), "source").commit(0, self.messages)
        self.template = folder / "db.db" / "template"
        grown = TableCommit(make_table(LocalStorage(str(self.template)), kind), "grown")
        for number, message in enumerate(prepared(SNAPSHOTS, kind, "grown")):
            grown.commit(number, [message])
        for system in systems.values():
            system.load(self.messages, file, source)
        gc.collect()
        gc.freeze()

    def tables(self, template: Path | None) -> dict[str, Path]:
        """Makes a fresh table for each system and opens it there."""
        self.round += 1
        paths = {}
        for name, system in self.systems.items():
            path = self.folder / "db.db" / f"{name}_{self.round}"
            if template is None:
                make_table(LocalStorage(str(path)), self.kind)
            else:
                shutil.copytree(template, path)
            if self.kind == "checked":
                self._put_files(path)
            system.open(path)
            paths[name] = path
        return paths

    def _put_files(self, path: Path) -> None:
        layout = load_table(LocalStorage(str(path))).layout
        for message in self.messages:
            file = path / layout.data_file(message.partition, 0, message.new_files[0].file_name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()

    def check(self, paths: dict[str, Path], files: int) -> None:
        """Checks that all tables have `files` files, as counted by this package and by Java."""
        for name, path in paths.items():
            counts = [our_live(path)]
            if "java" in self.systems:
                counts.append(self.systems["java"].live(path))
            assert set(counts) == {(files, files * ROWS)}, (name, counts)

    def at_once(self, count: int, rounds: int) -> dict[str, list[Timed]]:
        """Times commits of `count` messages onto 100 snapshots."""
        times: dict[str, list[Timed]] = {name: [] for name in self.systems}
        for number in range(rounds + 1):
            paths = self.tables(self.template)
            for name, system in self.systems.items():
                system.commit(1000, 0, 1)  # from now on the committer knows the table
                timed = system.commit(1001, 1, count)
                if number:
                    times[name].append(timed)
            if number in (0, rounds):
                self.check(paths, SNAPSHOTS + 1 + count)
        return times

    def in_a_row(self, count: int, rounds: int) -> dict[str, list[list[Timed]]]:
        """Times `count` commits of one message each. Each system makes fifty commits in turn."""
        runs: dict[str, list[list[Timed]]] = {name: [] for name in self.systems}
        for _ in range(rounds):
            paths = self.tables(None)
            for name in self.systems:
                runs[name].append([])
            for start in range(0, count, 50):
                for name, system in self.systems.items():
                    for at in range(start, start + 50):
                        runs[name][-1].append(system.commit(at, at, 1))
            self.check(paths, count)
        return runs


def median_ms(times: list[Timed], which: int) -> float:
    """The median in milliseconds: of wall clock if `which` is 0, of CPU if it is 1."""
    return 1000 * statistics.median(time[which] for time in times)


def goal_of(count: int, measured: dict[str, dict[str, float]]) -> tuple[str, float | None]:
    """The goal of a commit of this number of messages as text, and the most milliseconds by it; None if
    Java is not in this run.
    """
    most = GOALS.get(str(count))
    if most is not None:
        return f"≤ {most:.0f} ms", most
    return "at most the time of a warm Java", measured.get("java", {}).get("wall")


def rows_of(
    what: str, goal: str, met: bool | None, measured: dict[str, dict[str, float]], note: str
) -> dict[str, Any]:
    """Makes one row of the result, and prints it."""
    for name, values in measured.items():
        ratio = next(iter(values.values())) / max(next(iter(measured["ours"].values())), 1e-9)
        figures = "  ".join(f"{key} {value:8.2f}" for key, value in values.items())
        print(f"{what:34} {name:9} {figures}  {ratio:6.2f} x ours")
    return {"name": what, "unit": "ms", "systems": measured, "goal": goal, "met": met, "note": note}


def measure(
    bench: Bench, only: str | None, rounds: int, row_rounds: int, commits: int
) -> Iterator[dict[str, Any]]:
    """Makes all rows of the result."""
    for count in (200, 10_000):
        if only in (None, str(count)):
            # Small commits are fast, so they need more rounds for a reliable median.
            times = bench.at_once(count, rounds * 3 if count == 200 else rounds)
            measured = {
                name: {
                    "wall": median_ms(one, 0),
                    "cpu": median_ms(one, 1),
                    "slowest": 1000 * max(one)[0],
                }
                for name, one in times.items()
            }
            note = (
                f"{count} messages of kind {bench.kind} onto {SNAPSHOTS} snapshots, {rounds} rounds"
            )
            goal, most = goal_of(count, measured)
            met = None if most is None else measured["ours"]["wall"] <= most
            yield rows_of(f"commit of {count:,} messages", goal, met, measured, note)
    if only in (None, "row"):
        runs, most = bench.in_a_row(commits, row_rounds), GOALS["row"]
        measured = {name: ends_of(one) for name, one in runs.items()}
        ours = measured["ours"]
        ends = max(ours["p50 of first 100"], ours["p50 of last 100"])
        yield rows_of(
            f"{commits:,} commits in a row",
            f"≤ {most:.0f} ms at both ends, p99 at most 5 times p50",
            ends <= most and ours["p99"] <= 5 * ours["p50"],
            measured,
            f"one message each, kind {bench.kind}, {row_rounds} rounds, fifty of each system in turn",
        )


def ends_of(runs: list[list[Timed]]) -> dict[str, float]:
    """Medians, over the runs, of the figures for a run's first, last and slowest commits."""

    def over(what: Callable[[list[Timed]], float]) -> float:
        return statistics.median(map(what, runs))

    return {
        "p50 of last 100": over(lambda run: median_ms(run[-100:], 0)),
        "p50 of first 100": over(lambda run: median_ms(run[:100], 0)),
        "p50": over(lambda run: median_ms(run, 0)),
        "p99": over(lambda run: 1000 * sorted(run)[int(len(run) * 0.99)][0]),
        "slowest": over(lambda run: 1000 * max(run)[0]),
        "cpu": over(lambda run: median_ms(run, 1)),
    }


def main() -> None:
    """Runs once, and prints a line for each measure and system."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--systems", default="ours,java,pypaimon", help="the systems, separated by commas"
    )
    parser.add_argument(
        "--kind", choices=KINDS, default="append", help="the kind of table and commit"
    )
    parser.add_argument("--only", choices=("200", "10000", "row"), help="one measure only")
    parser.add_argument("--rounds", type=int, default=5, help="rounds for commits of many messages")
    parser.add_argument("--row-rounds", type=int, default=3, help="rounds for commits in a row")
    parser.add_argument("--commits", type=int, default=1_000, help="commits in a row")
    parser.add_argument("--pypaimon", type=Path, default=HERE.parent / ".venv-readers/bin/python")
    parser.add_argument("--folder", type=Path, help="where the tables are made")
    parser.add_argument("--json", type=Path, help="file for the rows")
    given = parser.parse_args()
    makers: dict[str, Callable[[], Any]] = {
        "ours": lambda: Ours(given.kind),
        "java": Java,
        "pypaimon": lambda: Pypaimon(given.pypaimon),
    }
    systems = {name: makers[name]() for name in given.systems.split(",")}
    count = {"200": 201, "row": given.commits}.get(given.only, 10_001)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        bench = Bench(Path(folder), systems, given.kind, count)
        rows = list(measure(bench, given.only, given.rounds, given.row_rounds, given.commits))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
