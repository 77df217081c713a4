"""What a stream into a table with dynamic buckets costs, beside fixed buckets and Paimon's own sink
in the same run.

    python benchmarks/kinds.py --spark-python .venv-spark35/bin/python
    python benchmarks/kinds.py --batches 20 --rows 50000

100 batches of 200,000 upserts, half of them new keys, make 10 million keys. "fixed" has 4 buckets,
"dynamic" has `bucket` = -1 and opens a bucket for two million keys. Nothing compacts. Each system
has a process and a JVM of its own, one after the other. CPU is that of the driver, the JVM and the
Python workers; "first" and "last" are the CPU seconds of a batch, as means of the first and the
last batches. "assign" is what a process needs to look up the keys of a batch and to place the new
ones by an index of that many keys, with the memory that it takes.

"read" is an append table of ten files of a million rows, read in turns as it was before and after
every tenth row was deleted by deletion vectors: the CPU seconds, as the medians of seven readings
each, and their ratio.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from compacted_streams import figures, parsed  # noqa: E402
from peers.data import make_data  # noqa: E402
from peers.jars import Unavailable  # noqa: E402
from peers.loads import COMPACTED  # noqa: E402
from peers.parent import Died  # noqa: E402

from paimon_stream import PaimonTable  # noqa: E402
from paimon_stream.storage.local import LocalStorage  # noqa: E402
from paimon_stream.table.table import load_table  # noqa: E402
from paimon_stream.write.dynamic_buckets import Assigner  # noqa: E402


def assign(location: str, keys: int) -> tuple[float, float]:
    """CPU seconds and MiB of looking up 100,000 known hashes and placing 100,000 new ones, by an
    index of `keys`.
    """
    PaimonTable.create(location, [("id", "BIGINT NOT NULL")], primary_keys=["id"])
    table = load_table(LocalStorage(location))
    dice = np.random.default_rng(1)
    hashes = np.unique(
        dice.integers(-(2**31), 2**31, keys + keys // 100, dtype=np.int64).astype(np.int32)
    )
    dice.shuffle(hashes)
    partition = b"\0" * 12
    first = Assigner(table.storage, table.layout, table.options, index=None, tasks=1, uuid="first")
    first.assign(partition, hashes[:keys])
    files = {bucket: first.write(partition, bucket)[0] for bucket in range(-(-keys // 2_000_000))}
    wanted = np.concatenate([hashes[:100_000], np.arange(100_000, dtype=np.int32)])
    again = Assigner(table.storage, table.layout, table.options, index=None, tasks=1, uuid="again")
    again._files = {partition: files}
    del first, hashes
    tracemalloc.start()
    began = time.process_time()
    again.assign(partition, wanted)
    spent = time.process_time() - began
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return spent, peak / 2**20


def read_with_vectors(location: str) -> tuple[float, float]:
    """CPU seconds of reading a table without deletion vectors, and with them."""
    options = {"deletion-vectors.enabled": "true"}
    columns = [("id", "BIGINT"), ("customer", "INT"), ("amount", "DOUBLE"), ("note", "STRING")]
    table = PaimonTable.create(location, columns, options=options)
    dice = np.random.default_rng(1)
    notes = pa.array([f"a note of some length, number {n}" for n in range(5_000)])
    for number in range(10):
        ids = np.arange(number * 1_000_000, (number + 1) * 1_000_000)
        values = [ids, dice.integers(0, 10**6, len(ids), dtype=np.int32), dice.random(len(ids))]
        taken = notes.take(pa.array(dice.integers(0, len(notes), len(ids))))
        table.append(pa.table([*values, taken], names=[name for name, _ in columns]))
    whole = table.latest_snapshot().id
    number = pc.field("id").cast(pa.float64()) / 10
    table.delete(pc.floor(number) == number)
    spent = [(_read(table, whole), _read(table, whole + 1)) for _ in range(7)]
    without, vectors = (sorted(some)[3] for some in zip(*spent, strict=True))
    return without, vectors


def _read(table: PaimonTable, snapshot_id: int) -> float:
    began = time.process_time()
    rows = sum(batch.num_rows for batch in table.to_batches(snapshot_id=snapshot_id))
    assert rows in (9_000_000, 10_000_000), rows
    return time.process_time() - began


def main() -> None:
    """Measures each, and prints a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", default="ours fixed,ours dynamic,jar dynamic")
    parser.add_argument("--batches", type=int, default=100, help="0: only what one process does")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of a batch")
    given = parsed(parser)
    warm = min(COMPACTED.warm_up, given.batches // 4)
    load = replace(
        COMPACTED,
        batches=given.batches - warm,
        warm_up=warm,
        rows_per_batch=given.rows,
        compacted=False,
        buckets=0,
    )
    folder = Path(tempfile.mkdtemp(prefix="bench-kinds-", dir=given.folder))
    try:
        for keys in (1_000_000, 10_000_000):
            spent, memory = assign(str(folder / f"assign-{keys}" / "t"), keys)
            print(f"assign, {keys:>11,} keys: {spent:.2f} CPU s, {memory:.0f} MiB", flush=True)
        without, vectors = read_with_vectors(str(folder / "vectors" / "t"))
        print(
            f"read: {without:.2f} CPU s without vectors, {vectors:.2f} with, {vectors / without:.2f} x",
            flush=True,
        )
        if not given.batches:
            return
        source = make_data(load, folder / "data")
        print(
            f"{load.all_batches} batches of {load.rows_per_batch:,} rows: upserts, half of them new keys"
        )
        print(f"{'run':14}{'CPU s':>9}{'wall s':>9}{'first':>8}{'last':>8}{'files':>7}{'read':>8}")
        for name in given.runs.split(","):
            system, kind = name.split()
            try:
                one = figures(
                    system,
                    replace(load, buckets=4 if kind == "fixed" else 0),
                    source,
                    folder,
                    given,
                )
            except (Died, Unavailable) as why:
                print(f"{name:14} {why}")
                continue
            line = f"{name:14}{one['cpu']:>9.1f}{one['wall']:>9.1f}{one['first']:>8.3f}{one['last']:>8.3f}"
            print(f"{line}{one['files']:>7}{one['read']:>8.2f}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
