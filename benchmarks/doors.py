"""What Spark pays for the ways to read a table: `to_spark`, `format("paimon_stream")` and its own Parquet reader; and
what a catalog pays to list tables.

    python benchmarks/doors.py
    python benchmarks/doors.py --rows 200000 --rounds 3
    python benchmarks/streams.py --loads L1,L4,L5 --systems noop,ours,format      # what the ways to write cost

An append table and a table with a primary key hold `--rows` rows of 8 columns in four files. The second one is read
after a compaction, which leaves nothing to merge, and before, when half of its rows have an older version. One session
of Spark, local[2], reads in turns, all columns into the sink `noop`. The figures are the medians of the CPU seconds of
the JVM and of Python's processes, and their ratio to Spark's own reader of the same files. The last one is in seconds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from peers.processes import cpu_seconds  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402

from paimon_stream import PaimonTable, catalog, register  # noqa: E402

COLUMNS = [
    ("id", "BIGINT NOT NULL"), ("customer", "INT"), ("amount", "DOUBLE"), ("note", "STRING"), ("day", "STRING"),
    ("price", "DECIMAL(12, 2)"), ("at", "TIMESTAMP(6)"), ("flag", "BOOLEAN"),
]  # fmt: skip
FILES = 4


def rows_of(ids: np.ndarray[Any, Any]) -> pa.Table:
    """Rows with these ids."""
    dice, count = np.random.default_rng(int(ids[0])), len(ids)
    notes = pa.array([f"a note of some length, number {n}" for n in range(5_000)])
    days = pa.array([f"2026-11-{day:02}" for day in range(1, 31)])
    cents = pa.array(dice.integers(0, 10**8, count)).cast(pa.decimal128(19, 0)).cast(pa.decimal128(12, 2))
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


def spent_on(frame: Callable[[], DataFrame]) -> float:
    """The CPU seconds of reading all rows of a DataFrame, planning included."""
    began = cpu_seconds(os.getsid(0))
    frame().write.format("noop").mode("overwrite").save()
    return cpu_seconds(os.getsid(0)) - began


def compare(title: str, ways: dict[str, Callable[[], DataFrame]], rounds: int) -> None:
    """Prints a line for each way. The first one is what the others are compared with."""
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, frame in ways.items():
            took = spent_on(frame)
            if turn:  # the first turn compiles
                spent[name].append(took)
    base = statistics.median(spent[next(iter(ways))])
    for name, figures in spent.items():
        middle = statistics.median(figures)
        print(f"{title:34}{name:24}{middle:8.2f}{middle / base:8.2f} x", flush=True)


def scans(spark: SparkSession, folder: Path, rows: int, rounds: int) -> None:
    """Reads the tables in each way."""
    register(spark)
    per_file = rows // FILES

    def door(table: PaimonTable) -> DataFrame:
        return spark.read.format("paimon_stream").load(table.location)

    def files(table: PaimonTable) -> DataFrame:
        return spark.read.schema(table.to_spark(spark).schema).parquet(*(one.path for one in table.files()))

    append = PaimonTable.create(str(folder / "append"), COLUMNS)
    for number in range(FILES):
        append.append(rows_of(np.arange(number * per_file, (number + 1) * per_file)))
    ways = {
        "Spark's Parquet reader": lambda: files(append),
        "to_spark": lambda: append.to_spark(spark),
        "format": lambda: door(append),
    }
    compare(f"append, {rows:,} rows", ways, rounds)
    narrow = {name: lambda frame=frame: frame().where("id < 1000").select("note") for name, frame in ways.items()}
    compare("append, a filter and one column", narrow, rounds)
    options = {"bucket": str(FILES), "write-only": "true"}
    keyed = PaimonTable.create(str(folder / "keyed"), COLUMNS, primary_keys=["id"], options=options)
    for start in (0, rows // 2):
        keyed.append(rows_of(np.arange(start, start + rows)))
    merged: dict[str, Callable[[], DataFrame]] = {
        "format": lambda: door(keyed),
        "to_spark": lambda: keyed.to_spark(spark),
    }
    compare("primary key, to be merged", merged, rounds)
    keyed.compact(full=True)
    ways = {
        "Spark's Parquet reader": lambda: files(keyed),
        "to_spark": lambda: keyed.to_spark(spark),
        "format": lambda: door(keyed),
    }
    compare("primary key, compacted", ways, rounds)


def listing(folder: Path, tables: int) -> None:
    """Lists the tables of a database."""
    found = catalog({"warehouse": str(folder)})
    found.create_database("many")
    for number in range(tables):
        found.create_table(f"many.t{number}", [("id", "INT")])
    began = time.perf_counter()
    assert len(found.list_tables("many")) == tables
    print(f"catalog.list_tables, {tables:,} tables: {time.perf_counter() - began:.3f} s", flush=True)


def main() -> None:
    """Measures, and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows of a table")
    parser.add_argument("--rounds", type=int, default=5, help="measured readings of each way")
    parser.add_argument("--tables", type=int, default=1_000, help="tables to list")
    given = parser.parse_args()
    if os.getsid(0) != os.getpid():  # the processes that are measured are those of a session
        os.execvp("setsid", ["setsid", "-w", sys.executable, *sys.argv])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder = Path(tempfile.mkdtemp(prefix="bench-doors-"))
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.driver.memory", "2g").getOrCreate()
    try:
        print(f"{'table':34}{'read by':24}{'CPU s':>8}{'ratio':>10}")
        scans(spark, folder, given.rows, given.rounds)
        listing(folder / "warehouse", given.tables)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
