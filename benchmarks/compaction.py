"""What a compaction costs, compared with Java's dedicated compaction in the same run.

    python benchmarks/compaction.py
    python benchmarks/compaction.py --files 200 --rounds 1
    python benchmarks/compaction.py --format orc
    python benchmarks/compaction.py --engine deduplicate
    python benchmarks/compaction.py --engine aggregation --files 80 --rounds 1

Without `--engine`, an append table of many files of about 1 MB is compacted into files of 128 MB.
With it, a table with a primary key and 4 buckets is compacted as a whole. Each of its commits has
added a file of 100,000 rows to each bucket. Most of their keys are in other files, too.

Each round compacts two copies of the table in turn, one with Java Paimon 1.4.2 and one with this
package, each in a process of its own. CPU seconds are those of the whole process tree from the call
to its return, without the start of Python or of the JVM, which is warm from a smaller table. The
peak is that of the memory (PSS) of these processes. Java needs its jar (see tests/oracle). Without
it, only ours is measured.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream import PaimonTable

sys.path.insert(0, str(Path(__file__).parent))
from peers.processes import Memory, cpu_seconds

_COLUMNS = [
    ("id", "BIGINT"),
    ("customer", "INT"),
    ("product", "STRING"),
    ("amount", "DOUBLE"),
    ("at", "TIMESTAMP(3)"),
    ("note", "STRING"),
]
_ROWS = 48_000
_TARGET = "128 mb"
_BUCKETS = 4
_KEYED_ROWS = 100_000 * _BUCKETS
_ENGINES = {
    "deduplicate": {},
    "partial-update": {},
    "aggregation": {
        "fields.amount.aggregate-function": "sum",
        "fields.at.aggregate-function": "max",
        "fields.default-aggregate-function": "last_non_null_value",
    },
}


def rows(seed: int, count: int) -> pa.Table:
    """Rows of orders. A file of 48,000 of them has about 1 MB."""
    dice = np.random.default_rng(seed)
    first = dt.datetime(2026, 1, 1) + dt.timedelta(hours=seed)
    at = np.datetime64(first, "ms") + dice.integers(0, 3_600_000, count).astype("timedelta64[ms]")
    columns = [
        np.arange(seed * count, (seed + 1) * count),
        dice.integers(0, 100_000, count).astype(np.int32),
        [f"product-{one}" for one in dice.integers(0, 2000, count)],
        dice.integers(0, 100_000, count) / 100,
        np.sort(at),
        [one.tobytes().hex() for one in dice.integers(0, 256, (count, 9), np.uint8)],
    ]
    return pa.table(dict(zip([name for name, _ in _COLUMNS], map(pa.array, columns), strict=True)))


def build(path: Path, files: int, count: int, fmt: str) -> PaimonTable:
    """Makes a table of this number of files, each in a commit of its own."""
    options = {
        "target-file-size": _TARGET,
        "file.format": fmt,
        "snapshot.num-retained.min": "100000",
    }
    table = PaimonTable.create(str(path), _COLUMNS, options=options)
    for number in range(files):
        table.append(rows(number, count))
    return table


def build_keyed(path: Path, commits: int, count: int, fmt: str, engine: str) -> PaimonTable:
    """Makes a table with a primary key. Each commit adds a file to each bucket; of the keys that
    there are after all of them, each commit has one in eight, and a third of its other values are
    NULL.
    """
    options = {
        "bucket": str(_BUCKETS),
        "write-only": "true",
        "target-file-size": _TARGET,
        "file.format": fmt,
    }
    columns = [("id", "BIGINT NOT NULL"), *_COLUMNS[1:]]
    options |= {"merge-engine": engine, "snapshot.num-retained.min": "100000", **_ENGINES[engine]}
    table = PaimonTable.create(str(path), columns, primary_keys=["id"], options=options)
    for number in range(commits):
        dice = np.random.default_rng(number)
        made = rows(number, count)
        keys = pa.array(dice.choice(count * 8, count, replace=False))
        values = [
            pc.if_else(pa.array(dice.integers(0, 3, count) > 0), one, None)
            for one in made.columns[1:]
        ]
        table.append(pa.table([keys, *values], schema=made.schema))
    return table


def child(system: str, warm: str, path: str) -> None:
    """Compacts the first table, then measures the second. Prints the figures."""
    if system == "java":
        sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "oracle"))
        import java_paimon

        compact = java_paimon.JavaPaimon().compact
    else:

        def compact(location: str) -> object:
            table = PaimonTable.load(location)
            return table.compact(full=bool(table.schema.primary_keys))

    compact(warm)
    session = os.getsid(0)
    cpu, wall = cpu_seconds(session), time.perf_counter()
    compact(path)
    figures = {"cpu": cpu_seconds(session) - cpu, "wall": time.perf_counter() - wall}
    print(json.dumps(figures), flush=True)
    os._exit(0)


def measured(system: str, folder: Path, number: int) -> dict[str, float] | None:
    """The figures of one run on copies of the tables; None if the system is not installed."""
    copies = [folder / f"{system}-{number}-{name}" for name in ("warm", "large")]
    for copy in copies:
        shutil.copytree(folder / copy.name.rpartition("-")[2], copy)
    command = [
        sys.executable,
        __file__,
        "--child",
        system,
        *(str(one / "db.db" / "t") for one in copies),
    ]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    with Memory(running.pid) as memory:
        printed, _ = running.communicate()
    if running.returncode:
        return None
    table = PaimonTable.load(str(copies[1] / "db.db" / "t"))
    figures = json.loads(printed.splitlines()[-1]) | {"MB": memory.peaks["together"]}
    figures["files"] = len(table.files())
    figures["rows"] = table.to_arrow().num_rows
    for copy in copies:
        shutil.rmtree(copy)
    return figures


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--files", type=int, help="1000; with --engine the files of all buckets, 80"
    )
    parser.add_argument("--engine", choices=tuple(_ENGINES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--format", default="parquet", choices=("parquet", "orc", "avro"))
    parser.add_argument("--folder", help="where to make the tables (default: the temporary folder)")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(*given.child)
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        places = [folder / one / "db.db" / "t" for one in ("warm", "large")]
        if given.engine:
            files = given.files or 20 * _BUCKETS
            build_keyed(places[0], 6, 4000, given.format, given.engine)
            large = build_keyed(
                places[1], files // _BUCKETS, _KEYED_ROWS, given.format, given.engine
            )
        else:
            files = given.files or 1000
            build(places[0], 20, 2000, given.format)
            large = build(places[1], files, _ROWS, given.format)
        size, count = sum(one.meta.file_size for one in large.files()), large.to_arrow().num_rows
        print(f"{files} {given.format} files of {size / files / 1e6:.2f} MB, target {_TARGET}")
        print(f"{'system':8}{'round':>6}{'CPU s':>9}{'wall s':>9}{'peak MB':>9}{'files':>7}")
        spent: dict[str, list[float]] = {"ours": [], "java": []}
        for number in range(given.rounds):
            for system in ("java", "ours") if number % 2 else ("ours", "java"):
                found = measured(system, folder, number)
                if found is None:
                    continue
                assert found["rows"] == count
                spent[system].append(found["cpu"])
                line = f"{system:8}{number:>6}{found['cpu']:>9.2f}{found['wall']:>9.2f}{found['MB']:>9.0f}"
                print(f"{line}{found['files']:>7}", flush=True)
        if spent["java"]:
            ratios = [
                mine / other for mine, other in zip(spent["ours"], spent["java"], strict=True)
            ]
            print(
                f"ours / java, CPU: median {statistics.median(ratios):.2f}, worst {max(ratios):.2f}"
            )


if __name__ == "__main__":
    main()
