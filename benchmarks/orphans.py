"""Finding orphans in a table of 100,000 files, compared with Java in one run; and memory as the
table grows.

    python benchmarks/orphans.py [--files 100000] [--orphans 1000]

Ours runs in a fresh process each time. Java's JVM is warm, and the fastest of its three runs
counts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from many_files import LONG_AGO, in_fresh_process, java, make_table, most_memory

from paimon_stream.api.table import PaimonTable


def measure(location: str) -> None:
    """Makes one dry run, and prints seconds, MiB and the number of orphans."""
    table = PaimonTable.load(location)
    before = most_memory()
    start = time.perf_counter()
    report = table.remove_orphan_files()
    spent = time.perf_counter() - start
    print(spent, most_memory() - before, report.count)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--orphans", type=int, default=1_000)
    parser.add_argument("--measure", metavar="TABLE", help="make one run of ours on this table")
    given = parser.parse_args()
    if given.measure:
        measure(given.measure)
        return
    print(f"{'files':>9} {'ours s':>8} {'ours MiB':>9} {'Java s':>8} {'ours/Java':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for files in (given.files // 10, given.files):
            location = Path(folder) / f"db.db/t{files}"
            make_table(location, files, given.orphans)
            runs = [in_fresh_process(__file__, location) for _ in range(3)]
            paimon, theirs = java(), []
            for _ in range(3):
                start = time.perf_counter()
                found = paimon.remove_orphans(location, (LONG_AGO + 86_400) * 1000, dry_run=True)
                theirs.append(time.perf_counter() - start)
            assert len(found) == runs[0][2] == given.orphans
            ours = min(seconds for seconds, _, _ in runs)
            memory = max(mebibytes for _, mebibytes, _ in runs)
            ratio = ours / min(theirs)
            print(
                f"{files:>9,} {ours:>8.2f} {memory:>9.1f} {min(theirs):>8.2f} {ratio:>10.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
