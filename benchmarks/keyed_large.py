"""One large batch of upserts into a table with a primary key and 8 buckets, on local[2]: rows per
second, and the peak memory of each process.

    python benchmarks/keyed_large.py [--rows 1000000] [--buckets 8] [--driver-memory 2g] [--payload 40]

A third of the rows repeat earlier keys, so the batch has several rows for some keys. Spark does the
shuffling, sorting and spilling. paimon_stream itself counts what the table holds afterwards.
20,000,000 rows take minutes, and a few GB of disk for the shuffle.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from pyspark.sql import SparkSession  # noqa: E402
from pyspark.sql import functions as F  # noqa: E402

from paimon_stream import PaimonTable  # noqa: E402

COLUMNS = [("id", "BIGINT NOT NULL"), ("n", "BIGINT"), ("payload", "STRING")]
_TICK = 0.2


@dataclass
class Memory:
    """The peak resident memory of this process and its descendants, in MB by kind of process."""

    peaks: dict[str, float] = field(default_factory=dict)
    together: float = 0.0
    ended: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Measures repeatedly until `ended` is set."""
        while not self.ended.wait(_TICK):
            self.look()

    def look(self) -> None:
        """Measures once."""
        now: dict[str, float] = {}
        for pid in _below(os.getpid()):
            found = _resident(pid)
            if found is not None:
                what, size = found
                name = "driver" if pid == os.getpid() else what
                now[name] = now.get(name, 0.0) + size
        self.together = max(self.together, sum(now.values()))
        for name, size in now.items():
            self.peaks[name] = max(self.peaks.get(name, 0.0), size)


def _below(pid: int) -> list[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # the process has ended
            children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def _resident(pid: int) -> tuple[str, float] | None:
    """The kind of a process, and its memory in MB. Pages that processes share count in
    proportion.
    """
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return None
    size = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return ("JVM" if name == "java" else "Python workers"), size / 1024


def main() -> None:
    """Writes the batch, and prints the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--buckets", type=int, default=8)
    parser.add_argument("--driver-memory", default="2g")
    parser.add_argument("--payload", type=int, default=40, help="characters of text in a row")
    arguments = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder = Path(tempfile.mkdtemp(prefix="keyed-large-"))
    try:
        run(arguments, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(arguments: argparse.Namespace, folder: Path) -> None:
    """Writes one batch, and prints the figures."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", arguments.driver_memory)
        .config("spark.local.dir", str(folder / "shuffle"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    table = PaimonTable.create(
        str(folder / "db.db" / "t"),
        COLUMNS,
        primary_keys=["id"],
        options={"bucket": str(arguments.buckets)},
    )
    keys = max(1, arguments.rows * 2 // 3)
    rows = spark.range(arguments.rows).select(
        # Keys come in no order, and a third of the rows repeat a key.
        ((F.col("id") % keys) * 1_000_003 % keys).alias("id"),
        F.col("id").alias("n"),
        F.substring(F.sha2(F.col("id").cast("string"), 256), 1, arguments.payload).alias("payload"),
    )
    memory = Memory()
    watcher = threading.Thread(target=memory.watch, daemon=True)
    watcher.start()
    started = time.monotonic()
    report = table.append(rows)
    seconds = time.monotonic() - started
    memory.ended.set()
    watcher.join()
    spark.stop()
    found = sum(batch.num_rows for batch in table.to_batches())
    assert found == report.rows <= keys, (found, report.rows, keys)
    sizes = [file.file_size for file in table.files()]
    print(f"{arguments.rows:,} rows, {found:,} keys, {arguments.buckets} buckets, local[2]")
    print(f"{'seconds':<28}{seconds:>12,.1f}")
    print(f"{'rows per second':<28}{arguments.rows / seconds:>12,.0f}")
    print(f"{'files':<28}{len(sizes):>12,}  of up to {max(sizes) / 2**20:,.0f} MB")
    for name, size in sorted(memory.peaks.items()):
        print(f"{'peak MB, ' + name:<28}{size:>12,.0f}")
    print(f"{'peak MB, together':<28}{memory.together:>12,.0f}")


if __name__ == "__main__":
    main()
