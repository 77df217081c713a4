"""What cross-partition upserts would cost: the map from each key of the table to its partition and
bucket.

    python benchmarks/key_map.py [--keys 1000000,10000000]

A key that may move to another partition needs to be found wherever it is, so a writer holds a map
of all keys of the table, or reads them all again. Paimon keeps such a map on local disk and makes
it anew when a job starts. "made" is the CPU seconds of reading the key and partition columns of all
rows and of making the map from them: a sorted array of 64-bit hashes of the keys, and the number of
each key's partition beside it. No smaller map answers for a whole batch at once. "held" is the
memory of the map, and "peak" the most memory of the process above its memory at the start (VmHWM).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from many_files import in_fresh_process, most_memory  # noqa: E402

from paimon_stream import PaimonTable  # noqa: E402

_PARTITIONS = 100
_MIXER = np.uint64(0x9E3779B97F4A7C15)


def make(location: str, keys: int) -> None:
    """Makes a table with this number of keys in 100 partitions. Each append has a million rows."""
    columns = [("day", "INT NOT NULL"), ("id", "BIGINT NOT NULL"), ("v", "DOUBLE")]
    options = {"bucket": "1", "write-only": "true", "num-sorted-run.stop-trigger": "1000"}
    table = PaimonTable.create(
        location, columns, partition_keys=["day"], primary_keys=["day", "id"], options=options
    )
    dice = np.random.default_rng(1)
    for start in range(0, keys, 1_000_000):
        ids = np.arange(start, min(start + 1_000_000, keys))
        table.append(
            pa.table(
                {"day": (ids % _PARTITIONS).astype(np.int32), "id": ids, "v": dice.random(len(ids))}
            )
        )


def measure(location: str) -> None:
    """Builds the map once, and prints the figures."""
    table = PaimonTable.load(location)
    before = most_memory()
    began = time.process_time()
    hashes, places = [], []
    for batch in table.to_batches(columns=["day", "id"]):
        hashes.append(batch["id"].to_numpy().astype(np.uint64) * _MIXER)
        places.append(batch["day"].to_numpy())
    keys, where = np.concatenate(hashes), np.concatenate(places)
    del hashes, places
    order = np.argsort(keys)
    keys, where = keys[order], where[order]
    del order
    spent = time.process_time() - began
    print(spent, most_memory() - before, (keys.nbytes + where.nbytes) >> 20)


def main() -> None:
    """Prints a line for each size of table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--keys", default="1000000,10000000")
    parser.add_argument("--measure", metavar="TABLE", help="make one run on this table")
    given = parser.parse_args()
    if given.measure:
        measure(given.measure)
        return
    print(f"{'keys':>12} {'made, CPU s':>12} {'held MiB':>9} {'peak MiB':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for keys in map(int, given.keys.split(",")):
            location = str(Path(folder) / f"db.db/t{keys}")
            make(location, keys)
            spent, peak, held = in_fresh_process(__file__, location)
            print(f"{keys:>12,} {spent:>12.2f} {held:>9} {peak:>9.0f}", flush=True)


if __name__ == "__main__":
    main()
