"""Verifying a table of 100,000 files, compared with Java in one run; and memory as the table grows.

    python benchmarks/verify.py [--files 100000]

Java has no verification. The nearest operation is a dry run of its orphan cleaning. It reads every
snapshot, list and manifest once and lists all files, but it compares no sizes, counts or bounds.
Ours compares all of them, and also replays every manifest. Ours runs in a fresh process each time.
Java's JVM is warm. On both sides the fastest of three runs counts. MiB is the peak memory of the
process (VmHWM) above its memory at the start.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from many_files import in_fresh_process, java, make_table, most_memory

from paimon_stream.api.table import PaimonTable


def measure(location: str) -> None:
    """Runs one verification, and prints seconds, MiB and the number of findings."""
    table = PaimonTable.load(location)
    before = most_memory()
    start = time.perf_counter()
    report = table.verify(sample=0)
    spent = time.perf_counter() - start
    print(spent, most_memory() - before, len(report.findings))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--measure", metavar="TABLE", help="make one run of ours on this table")
    given = parser.parse_args()
    if given.measure:
        measure(given.measure)
        return
    print(f"{'files':>9} {'ours s':>8} {'ours MiB':>9} {'Java s':>8} {'ours/Java':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for files in (given.files // 10, given.files * 2 // 5, given.files):
            location = Path(folder) / f"db.db/t{files}"
            make_table(location, files, 0)
            runs = [in_fresh_process(__file__, location) for _ in range(3)]
            theirs = [_java(java(), location) for _ in range(3)]
            assert not any(found for _, _, found in runs)
            ours = min(seconds for seconds, _, _ in runs)
            memory = max(mebibytes for _, mebibytes, _ in runs)
            ratio = ours / min(theirs)
            print(
                f"{files:>9,} {ours:>8.2f} {memory:>9.1f} {min(theirs):>8.2f} {ratio:>10.2f}",
                flush=True,
            )


def _java(paimon: Any, location: Path) -> float:
    """The seconds of a dry run."""
    start = time.perf_counter()
    paimon.remove_orphans(location, dry_run=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
