"""The memory that a full compaction of one large bucket takes, for buckets of several sizes.

    python benchmarks/compaction_memory.py [--sizes 250,1000,4000] [--buckets 1] [--commits 60] [--folder …]

Each table has a primary key. Each commit makes one sorted run of each bucket, as long as its rows
fit into a writer's memory (3.5 million rows). The number of runs is shown, because memory grows
with it. Half of the keys of a run are in other runs, too. Each table is compacted by a process of
its own. The peak is that of the process's memory (PSS), with Python and its libraries; "idle" is
that of a process that has compacted a small table.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from peers.processes import Memory  # noqa: E402

from paimon_stream import PaimonTable  # noqa: E402

_ROW_BYTES = 26
_COLUMNS = [
    ("id", "BIGINT NOT NULL"),
    ("customer", "INT"),
    ("product", "STRING"),
    ("amount", "DOUBLE"),
    ("at", "TIMESTAMP(3)"),
    ("note", "STRING"),
]
_CHILD = "import sys; from paimon_stream import PaimonTable; PaimonTable.load(sys.argv[1]).compact(full=True)"


def rows(seed: int, count: int, keys: int) -> pa.Table:
    """Rows of orders; about 26 bytes of a Parquet file each."""
    dice = np.random.default_rng(seed)
    products = pa.array([f"product-{n}" for n in range(2000)])
    at = np.datetime64("2026-01-01", "ms") + np.sort(dice.integers(0, 10**9, count)).astype(
        "timedelta64[ms]"
    )
    columns = [
        dice.integers(0, keys, count),
        dice.integers(0, 100_000, count).astype(np.int32),
        products.take(pa.array(dice.integers(0, 2000, count))),
        dice.integers(0, 100_000, count) / 100,
        at,
        pc.cast(pa.array(dice.integers(0, 2**62, count)), pa.string()),
    ]
    return pa.table(dict(zip([name for name, _ in _COLUMNS], map(pa.array, columns), strict=True)))


def build(path: Path, count: int, buckets: int, commits: int) -> tuple[int, int]:
    """Makes a table of `count` rows. Returns the bytes of its files, and the most files of a
    bucket.
    """
    options = {"bucket": str(buckets), "write-only": "true", "target-file-size": "1 gb"}
    table = PaimonTable.create(str(path), _COLUMNS, primary_keys=["id"], options=options)
    for number in range(commits):
        table.append(rows(number, count // commits, 2 * count // 3))
    files = table.files()
    return sum(one.meta.file_size for one in files), max(
        Counter(one.bucket for one in files).values()
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sizes", default="250,1000,4000", help="of the tables, in MB")
    parser.add_argument("--buckets", type=int, default=1)
    parser.add_argument("--commits", type=int, default=60, help="that make the runs")
    parser.add_argument("--folder", help="where to make the tables (default: the temporary folder)")
    given = parser.parse_args()
    print(f"{'MB':>6} {'rows':>12} {'runs':>5} {'files':>6} {'seconds':>8} {'peak MiB':>9}")
    for megabytes in (1, *map(int, given.sizes.split(","))):
        with tempfile.TemporaryDirectory(dir=given.folder) as name:
            path = Path(name) / "db.db" / "t"
            count = megabytes * 1_000_000 // _ROW_BYTES
            size, runs = build(path, count, given.buckets, given.commits)
            began = time.perf_counter()
            running = subprocess.Popen(
                [sys.executable, "-c", _CHILD, str(path)], start_new_session=True
            )
            with Memory(running.pid) as memory:
                if running.wait():
                    sys.exit(f"The compaction of {size / 1e6:.0f} MB failed.")
            spent, files = time.perf_counter() - began, len(PaimonTable.load(str(path)).files())
            what = "idle" if megabytes == 1 else f"{size / 1e6:.0f}"
            print(
                f"{what:>6} {count:>12,} {runs:>5} {files:>6} {spent:>8.1f} {memory.peaks['together']:>9.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
