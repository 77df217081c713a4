r"""Spark streams into tables: ours compared with its peers in one run.

    python benchmarks/streams.py                                      # all loads: noop, parquet, ours
    python benchmarks/streams.py --loads L1,L3 --systems noop,parquet,ours --rounds 5
    python benchmarks/streams.py --systems noop,parquet,ours,iceberg,delta,jar,pypaimon \
        --spark-python .venv-spark35/bin/python --python pypaimon=.venv-bench35/bin/python   # on Spark 3.5
    python benchmarks/streams.py --loads L5 --systems noop,ours,ours+OPTION=VALUE,ours@/other/checkout
    python benchmarks/streams.py --loads L1,L2,L6 --systems noop,drop,parquet,ours,pypaimon --python pypaimon=PYTHON
    python benchmarks/streams.py --loads L1,L4,L5 --systems noop,ours,format    # both doors: sink and data source

Loads: L1 append; L2 append into 5 partitions; L3 append into 8 buckets; L4 upserts, half of them
updates, 4 buckets; L5 200 batches of 1,000 rows; L6 append, 20 columns of text, decimals and nested
values; cold: the first batch of a new process. The other loads have 8 columns. Fixed seed, Parquet
files in the OS's cache.

The systems "noop" and "drop" write nothing: Spark drops the rows in the JVM, or passes them to
Python workers that drop them.

Every system has a process and a JVM of its own, started once: local[2], the same memory, the same
settings, and Parquet data files with zstd at level 1. The first rounds of each load are dropped.
The rounds of all systems are interleaved, in an order that rotates. A round is one stream from a
fresh checkpoint into a new table, until all files are read. Its first two batches are not measured,
because Spark ends Python workers that were idle for a minute; the load `cold` shows what a start
costs. CPU is that of the driver, the JVM and the Python workers, from /proc. Memory is PSS, read
five times a second in the first round. "early" is the median of the 20 batches after the first 20,
"late" that of the last 20. After every round, the table is read and its rows and sums are compared:
Spark reads what the JVM's sinks wrote, paimon_stream reads the tables of ours and of pypaimon, and
Java counts the rows of ours once per load.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests/oracle"), str(ROOT / "benchmarks")]

from peers.loads import COLD, LOADS, Load  # noqa: E402
from peers.run import Run  # noqa: E402

SYSTEMS = ("noop", "drop", "parquet", "ours", "format", "iceberg", "delta", "jar", "pypaimon")


def main() -> None:
    """Measures, prints a table for each load, and writes the JSON."""
    given = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="bench-streams-"))
    run = Run(given, folder)
    try:
        for name in given.loads.split(","):
            if name == COLD.name:
                run.measure_cold(COLD)
            else:
                run.measure(sized(LOADS[name], given))
    finally:
        run.close()
        shutil.rmtree(folder, ignore_errors=True)
    if run.failed:
        sys.exit(1)


def arguments() -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--loads", default=",".join([*LOADS, COLD.name]))
    parser.add_argument("--systems", default="noop,parquet,ours", help=f"of {', '.join(SYSTEMS)}")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds (5)")
    parser.add_argument("--dropped", type=int, default=2, help="dropped rounds before them (2)")
    parser.add_argument("--starts", type=int, default=3, help="rounds of the load `cold` (3)")
    parser.add_argument(
        "--batches", type=int, help="number of batches for the rows of L1–L3, such as 50"
    )
    parser.add_argument("--rows", type=int, help="rows of a whole stream, for every load")
    parser.add_argument("--large", action="store_true", help="L4 with 10 × 1,000,000 rows")
    parser.add_argument(
        "--spark-python", default=sys.executable, help="the interpreter of the systems"
    )
    parser.add_argument("--python", action="append", default=[], metavar="SYSTEM=INTERPRETER")
    parser.add_argument("--memory", default="2g", help="heap of each JVM (2g)")
    parser.add_argument(
        "--limit", type=float, default=300, help="seconds that a stream may take (300)"
    )
    parser.add_argument("--no-java", action="store_true", help="do not have Java count our tables")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the result goes")
    given = parser.parse_args()
    for name in given.loads.split(","):
        if name not in LOADS and name != COLD.name:
            parser.error(
                f"There is no load {name}. The loads are {', '.join(LOADS)} and {COLD.name}."
            )
    for name in given.systems.split(","):
        if name.partition("@")[0].split("+")[0] not in SYSTEMS:
            parser.error(f"There is no system {name}. The systems are {', '.join(SYSTEMS)}.")
    return given


def sized(load: Load, given: argparse.Namespace) -> Load:
    """The load with the numbers of rows and batches that the command line asks for."""
    rows = given.rows or (load.rows * 10 if given.large and load.keyed else load.rows)
    batches = given.batches if given.batches and load.name in ("L1", "L2", "L3") else load.batches
    per_file = max(1, rows // batches // load.files_per_batch)
    return replace(load, batches=batches, rows_per_batch=per_file * load.files_per_batch)


if __name__ == "__main__":
    main()
