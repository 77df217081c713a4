"""How many rows an Arrow batch from the JVM to Python should have on this machine, and what it costs
to keep wide rows out of it.

    python benchmarks/arrow_batches.py                                  # about three minutes on two quiet cores
    python benchmarks/arrow_batches.py --rows 2000000 --rounds 5 --columns 4,8,20 --widths 50,200,1000
    python benchmarks/arrow_batches.py --kinds text,lists,maps --records 8192 --limits none,spark,guard
    python benchmarks/arrow_batches.py --records 128,8192 --limits spark,none --driver-memory 1g

One session of Spark, local[2], reads Parquet files and passes their rows to Python workers, which
join Arrow batches as a write does, count the rows and drop them. So the figures hold what depends
on Arrow batches, and no more. A half of the columns is BIGINT, the others are what --kinds says:
text, lists of four texts, or maps of four texts. A row has about as many bytes as --widths says.

Limits: "none" limits only the rows of a batch. "spark" is Spark's own limit of bytes, on Spark 4.
"guard" marks rows that are too wide and leaves their values out, as the sink does.

All cases of a kind, width and number of columns take turns. The figures are the medians of the CPU
seconds of the JVM and of Python's processes, for a million rows. The knee is the least number of
rows that takes at most 5 % more than the best one, without a limit.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from peers.processes import cpu_seconds  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402

from paimon_stream.spark.map_arrow import guarded, map_arrow  # noqa: E402
from paimon_stream.spark.tasks import merged, unguarded  # noqa: E402
from paimon_stream.spark.types import to_data_fields  # noqa: E402

RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
NO_LIMIT = str(2**31 - 1)
KNEE = 1.05
ELEMENTS = 4


class Case(NamedTuple):
    """The rows of an Arrow batch, and what limits its bytes."""

    records: int
    limit: str


def count(is_guarded: bool, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a worker does: it joins Arrow batches and counts their rows."""
    rows = merged(unguarded(batches) if is_guarded else batches)
    yield pa.record_batch({"rows": pa.array([sum(batch.num_rows for batch in rows)], pa.int64())})


def source(
    spark: SparkSession, folder: Path, rows: int, kind: str, columns: int, width: int
) -> DataFrame:
    """Rows of this kind, read from two Parquet files."""
    numbers = max(1, columns // 2)
    texts = max(1, columns - numbers)
    size = max(1, (width - 8 * numbers) // texts)
    part = max(1, size // ELEMENTS)
    digits = "sha2(cast(id as string), 256)"
    value = {
        "text": f"rpad({digits}, {size}, 'a row of this table ')",
        "lists": f"array_repeat(rpad({digits}, {part}, 'x'), {ELEMENTS})",
        "maps": "map_from_arrays(array('a', 'b', 'c', 'd'), "
        f"array_repeat(rpad({digits}, {max(1, part - 1)}, 'x'), {ELEMENTS}))",
    }[kind]
    expressions = [f"id + {place} n{place}" for place in range(numbers)]
    expressions += [f"{value} v{place}" for place in range(texts)]
    path = str(folder / f"{kind}-{columns}-{width}")
    spark.range(0, rows, 1, 2).selectExpr(*expressions).write.parquet(path)
    return spark.read.parquet(path)


def spent(frame: DataFrame, case: Case, rows: int) -> float:
    """The CPU seconds of one action, for a million rows."""
    conf = frame.sparkSession.conf
    conf.set(RECORDS, str(case.records))
    if case.limit == "spark":
        conf.unset(BYTES)
    else:
        conf.set(BYTES, NO_LIMIT)
    is_guarded = case.limit == "guard"
    if is_guarded:
        frame = frame.select(*guarded(to_data_fields(frame.schema), 2**26 // case.records))
    began = cpu_seconds(os.getsid(0))
    counted = map_arrow(frame, partial(count, is_guarded), "rows bigint").collect()
    took = cpu_seconds(os.getsid(0)) - began
    assert sum(row.rows for row in counted) == rows
    return took * 1e6 / rows


def sweep(frame: DataFrame, cases: list[Case], rows: int, rounds: int) -> dict[Case, float]:
    """The median of each case. The first turn, which compiles, does not count."""
    figures: dict[Case, list[float]] = {case: [] for case in cases}
    for turn in range(rounds + 1):
        start = turn % len(cases)
        for case in cases[start:] + cases[:start]:
            took = spent(frame, case, rows)
            if turn:
                figures[case].append(took)
    return {case: statistics.median(took) for case, took in figures.items()}


def report(title: str, figures: dict[Case, float], records: list[int], limits: list[str]) -> None:
    """Prints a line for each number of rows, and the knee."""
    print(f"\n{title}\n{'rows a batch':>14}" + "".join(f"{limit:>10}" for limit in limits))
    for number in records:
        line = "".join(f"{figures[Case(number, limit)]:10.2f}" for limit in limits)
        print(f"{number:14,}{line}", flush=True)
    if "none" in limits:
        free = {number: figures[Case(number, "none")] for number in records}
        best = min(free.values())
        knee = min(number for number, took in free.items() if took <= best * KNEE)
        print(f"the knee: {knee:,} rows")


def main() -> None:
    """Measures, and prints a table for each shape of rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=500_000, help="rows of an action")
    parser.add_argument("--rounds", type=int, default=3, help="measured actions of each case")
    parser.add_argument("--records", default="128,1024,8192", help="rows of an Arrow batch")
    parser.add_argument("--limits", default="none,spark,guard", help="of none, spark, guard")
    parser.add_argument("--kinds", default="text", help="of text, lists, maps")
    parser.add_argument("--columns", default="8", help="columns of a row")
    parser.add_argument("--widths", default="200,1000", help="bytes of a row")
    parser.add_argument("--driver-memory", default="2g", help="heap of the JVM")
    arguments = parser.parse_args()
    if os.getsid(0) != os.getpid():  # the processes that are measured are those of a session
        os.execvp("setsid", ["setsid", "-w", sys.executable, *sys.argv])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    records = [int(number) for number in arguments.records.split(",")]
    limits = arguments.limits.split(",")
    cases = [Case(number, limit) for number in records for limit in limits]
    folder = Path(tempfile.mkdtemp(prefix="bench-arrow-"))
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.driver.memory", arguments.driver_memory).getOrCreate()
    try:
        print(f"CPU seconds for a million rows, Spark {spark.version}, {os.cpu_count()} cores")
        for kind in arguments.kinds.split(","):
            for columns in map(int, arguments.columns.split(",")):
                for width in map(int, arguments.widths.split(",")):
                    frame = source(spark, folder, arguments.rows, kind, columns, width)
                    figures = sweep(frame, cases, arguments.rows, arguments.rounds)
                    report(f"{columns} columns, {kind}, {width} bytes", figures, records, limits)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
