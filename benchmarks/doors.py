"""What Spark pays for the ways to read a table: `to_spark`, `format("paimon_stream")` and its own
Parquet reader; and what a catalog pays to list tables.

    python benchmarks/doors.py
    python benchmarks/doors.py --rows 200000 --rounds 3
    python benchmarks/doors.py --spark35 .venv-spark35/bin/python        # beside Paimon's own jar
    python benchmarks/streams.py --loads L1,L4,L5 --systems noop,ours,format      # what the ways to write cost

An append table and a table with a primary key hold `--rows` rows of 8 columns in four files. The
second one is read after a compaction, which leaves nothing to merge, and before, when half of its
rows have an older version. One session of Spark, local[2], reads in turns, all columns into the
sink `noop`. The figures are the medians of the CPU seconds of the JVM and of Python's processes,
and their ratio to Spark's own reader of the same files. The last one is in seconds.

With `--spark35`, an interpreter that has pyspark 3.5, Paimon's jar 0.9.0 reads the same rows to be
merged, in turn with ours, in a process and a JVM of its own. It has no release for Spark 4, and
Spark 3.5 has no data sources in Python.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from peers.jars import jars_for  # noqa: E402
from peers.processes import cpu_seconds, kill_session  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402

from paimon_stream import PaimonTable, catalog, register  # noqa: E402

COLUMNS = [
    ("id", "BIGINT NOT NULL"),
    ("customer", "INT"),
    ("amount", "DOUBLE"),
    ("note", "STRING"),
    ("day", "STRING"),
    ("price", "DECIMAL(12, 2)"),
    ("at", "TIMESTAMP(6)"),
    ("flag", "BOOLEAN"),
]
FILES = 4


def rows_of(ids: np.ndarray[Any, Any]) -> pa.Table:
    """Rows with these ids."""
    dice, count = np.random.default_rng(int(ids[0])), len(ids)
    notes = pa.array([f"a note of some length, number {n}" for n in range(5_000)])
    days = pa.array([f"2026-11-{day:02}" for day in range(1, 31)])
    cents = (
        pa.array(dice.integers(0, 10**8, count))
        .cast(pa.decimal128(19, 0))
        .cast(pa.decimal128(12, 2))
    )
    values = [
        pa.array(ids),
        pa.array(dice.integers(0, 10**6, count, dtype=np.int32)),
        pa.array(dice.random(count)),
        notes.take(pa.array(dice.integers(0, len(notes), count))),
        days.take(pa.array(dice.integers(0, len(days), count))),
        cents,
        pa.array(dice.integers(0, 2**50, count)).cast(pa.timestamp("us")),
        pa.array(dice.random(count) < 0.5),
    ]
    return pa.table(values, names=[name for name, _ in COLUMNS])


JAR_READS = """
import sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.extraClassPath", sys.argv[1]).config("spark.driver.memory", "2g")
spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
print("ready", flush=True)
for path in sys.stdin:
    spark.read.format("paimon").load(path.strip()).write.format("noop").mode("overwrite").save()
    print("read", flush=True)
"""


class Jar:
    """Paimon's own reader, in a session of processes of its own."""

    def __init__(self, python: str) -> None:
        jars = ":".join(map(str, jars_for("jar", "3.5")))
        path = str(Path(python).absolute())
        self._process = subprocess.Popen(
            [path, "-c", JAR_READS, jars],
            env={**os.environ, "PYSPARK_PYTHON": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._wait()

    def _wait(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError("The process of Paimon's jar has ended.")

    def spent_on(self, location: str) -> float:
        """The CPU seconds of reading all rows of the table, planning included."""
        assert self._process.stdin is not None
        began = cpu_seconds(self._process.pid)
        print(location, file=self._process.stdin, flush=True)
        self._wait()
        return cpu_seconds(self._process.pid) - began

    def close(self) -> None:
        """Ends its processes."""
        kill_session(self._process.pid)
        self._process.wait()


def spent_on(frame: Callable[[], DataFrame]) -> float:
    """The CPU seconds of reading all rows of a DataFrame, planning included."""
    began = cpu_seconds(os.getsid(0))
    frame().write.format("noop").mode("overwrite").save()
    return cpu_seconds(os.getsid(0)) - began


def reads(ways: dict[str, Callable[[], DataFrame]]) -> dict[str, Callable[[], float]]:
    """What measures each way to make a DataFrame."""
    return {name: partial(spent_on, frame) for name, frame in ways.items()}


def compare(title: str, ways: dict[str, Callable[[], float]], rounds: int) -> None:
    """Prints a line for each way, given as what reads and returns the CPU seconds. The first one is
    what the others are compared with.
    """
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, read in ways.items():
            took = read()
            if turn:  # the first turn compiles
                spent[name].append(took)
    base = statistics.median(spent[next(iter(ways))])
    for name, figures in spent.items():
        middle = statistics.median(figures)
        print(f"{title:34}{name:24}{middle:8.2f}{middle / base:8.2f} x", flush=True)


def scans(spark: SparkSession, folder: Path, rows: int, rounds: int, jar: Jar | None) -> None:
    """Reads the tables in each way."""
    register(spark)
    per_file = rows // FILES

    def door(table: PaimonTable, **options: str) -> DataFrame:
        return spark.read.format("paimon_stream").options(**options).load(table.location)

    def files(table: PaimonTable) -> DataFrame:
        return spark.read.schema(table.to_spark(spark).schema).parquet(
            *(one.path for one in table.files())
        )

    append = PaimonTable.create(str(folder / "append"), COLUMNS)
    for number in range(FILES):
        append.append(rows_of(np.arange(number * per_file, (number + 1) * per_file)))
    ways = {
        "Spark's Parquet reader": lambda: files(append),
        "to_spark": lambda: append.to_spark(spark),
        "format": lambda: door(append),
    }
    compare(f"append, {rows:,} rows", reads(ways), rounds)
    column = {name: lambda frame=frame: frame().select("note") for name, frame in ways.items()}
    column["format, its option"] = lambda: door(append, columns="note")
    compare("append, one column", reads(column), rounds)
    narrow = {
        name: lambda frame=frame: frame().where("id < 1000").select("note")
        for name, frame in ways.items()
    }
    narrow["format, its options"] = lambda: door(append, columns="note", where="id < 1000")
    compare("append, a filter and one column", reads(narrow), rounds)
    options = {"bucket": str(FILES), "write-only": "true"}
    keyed = PaimonTable.create(str(folder / "keyed"), COLUMNS, primary_keys=["id"], options=options)
    for start in (0, rows // 2):
        keyed.append(rows_of(np.arange(start, start + rows)))
    beside = (
        {} if jar is None else {"Paimon's jar, Spark 3.5": partial(jar.spent_on, keyed.location)}
    )
    merged = reads({"format": lambda: door(keyed), "to_spark": lambda: keyed.to_spark(spark)})
    compare("primary key, to be merged", {**beside, **merged}, rounds)
    keyed.compact(full=True)
    ways = {
        "Spark's Parquet reader": lambda: files(keyed),
        "to_spark": lambda: keyed.to_spark(spark),
        "format": lambda: door(keyed),
    }
    compare("primary key, compacted", reads(ways), rounds)


def listing(folder: Path, tables: int) -> None:
    """Lists the tables of a database."""
    found = catalog({"warehouse": str(folder)})
    found.create_database("many")
    for number in range(tables):
        found.create_table(f"many.t{number}", [("id", "INT")])
    began = time.perf_counter()
    assert len(found.list_tables("many")) == tables
    print(
        f"catalog.list_tables, {tables:,} tables: {time.perf_counter() - began:.3f} s", flush=True
    )


def main() -> None:
    """Measures, and prints a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows of a table")
    parser.add_argument("--rounds", type=int, default=5, help="measured readings of each way")
    parser.add_argument(
        "--spark35",
        metavar="PYTHON",
        help="an interpreter with pyspark 3.5, to read by Paimon's jar",
    )
    parser.add_argument("--tables", type=int, default=1_000, help="tables to list")
    given = parser.parse_args()
    if os.getsid(0) != os.getpid():  # the processes that are measured are those of a session
        os.execvp("setsid", ["setsid", "-w", sys.executable, *sys.argv])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder = Path(tempfile.mkdtemp(prefix="bench-doors-"))
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.session.timeZone", "UTC").config(
        "spark.ui.showConsoleProgress", "false"
    )
    spark = builder.config("spark.driver.memory", "2g").getOrCreate()
    jar = Jar(given.spark35) if given.spark35 else None
    try:
        print(f"{'table':34}{'read by':24}{'CPU s':>8}{'ratio':>10}")
        scans(spark, folder, given.rows, given.rounds, jar)
        listing(folder / "warehouse", given.tables)
    finally:
        if jar is not None:
            jar.close()
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
