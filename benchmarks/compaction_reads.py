"""How long it takes to read a table that a stream of small batches has written, with and without
compaction.

    python benchmarks/compaction_reads.py --out build/compaction-reads.json
    python benchmarks/compaction_reads.py --batches 10 50 --rows 500
    python benchmarks/compaction_reads.py --draw build/compaction-reads.json docs/compaction-reads.svg

An append table in two partitions gets batches of `--rows` new rows. A table with a primary key and
two buckets gets batches of as many rows, half of which update earlier keys. After 10, 50, 200 and
500 batches, a copy of each is compacted (`compact(full=True)`), and both are read as a whole in
turn (`to_arrow`), each in a process of its own, `--rounds` times. The figures are the medians of
the seconds, the CPU seconds of the reader, and the number of files. `--draw` needs matplotlib,
which nothing else here does.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_stream import PaimonTable

_BATCHES = (10, 50, 200, 500)
_COLUMNS = [
    ("id", "BIGINT NOT NULL"),
    ("customer", "INT"),
    ("amount", "DOUBLE"),
    ("note", "STRING"),
    ("day", "STRING NOT NULL"),
]
_KINDS: dict[str, dict[str, Any]] = {
    "append": {"partition_keys": ["day"]},
    "primary key": {"primary_keys": ["id"], "options": {"bucket": "2", "write-only": "true"}},
}
_READ = """
import sys, time
from paimon_stream import PaimonTable
table = PaimonTable.load(sys.argv[1])
table.to_arrow()
wall, cpu = time.perf_counter(), time.process_time()
rows = table.to_arrow().num_rows
print(time.perf_counter() - wall, time.process_time() - cpu, rows)
"""


def batch(number: int, rows: int, *, keyed: bool) -> pa.Table:
    """The rows of one batch. With keys, half of them are new and half are drawn from the earlier
    ones.
    """
    dice = np.random.default_rng(number)
    ids = np.arange(number * rows, (number + 1) * rows)
    if keyed:
        old = dice.choice(max(1, number) * rows, rows // 2, replace=number == 0)
        ids = np.unique(np.concatenate([ids[: rows // 2], old]))
    count = len(ids)
    columns = [
        ids,
        dice.integers(0, 100_000, count).astype(np.int32),
        dice.integers(0, 100_000, count) / 100,
        [one.tobytes().hex() for one in dice.integers(0, 256, (count, 12), np.uint8)],
        [f"2026-11-{20 + one}" for one in dice.integers(0, 2, count)],
    ]
    return pa.table(dict(zip([name for name, _ in _COLUMNS], map(pa.array, columns), strict=True)))


def read(path: Path, rounds: int) -> dict[str, float]:
    """The medians of some reads."""
    found = []
    for _ in range(rounds):
        done = subprocess.run(
            [sys.executable, "-c", _READ, str(path)], stdout=subprocess.PIPE, text=True, check=True
        )
        found.append([float(one) for one in done.stdout.split()])
    wall, cpu, rows = (statistics.median(column) for column in zip(*found, strict=True))
    return {
        "wall": wall,
        "cpu": cpu,
        "rows": int(rows),
        "files": len(PaimonTable.load(str(path)).files()),
    }


def measured(
    kind: str, batches: list[int], rows: int, rounds: int, folder: Path
) -> list[dict[str, Any]]:
    """The figures of one kind of table, after each of the numbers of batches."""
    path, copy = folder / "db.db" / "t", folder / "db.db" / "copy"
    table = PaimonTable.create(str(path), _COLUMNS, **_KINDS[kind])
    found, done = [], 0
    for wanted in sorted(batches):
        for number in range(done, wanted):
            table.append(batch(number, rows, keyed=kind != "append"))
        done = wanted
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(path, copy)
        PaimonTable.load(str(copy)).compact(full=True)
        one = {
            "kind": kind,
            "batches": wanted,
            "without": read(path, rounds),
            "with": read(copy, rounds),
        }
        assert one["without"]["rows"] == one["with"]["rows"], "a compaction changes no row"
        print(json.dumps(one), flush=True)
        found.append(one)
    return found


def table_of(found: list[dict[str, Any]]) -> str:
    """The figures as a table of Markdown."""
    lines = [
        "| table | batches | files | read (s) | CPU (s) | files, compacted | read (s) | CPU (s) |",
        "|---" * 8 + "|",
    ]
    for one in found:
        some = (
            f"{part['files']:,} | {part['wall']:.2f} | {part['cpu']:.2f}"
            for part in (one["without"], one["with"])
        )
        lines.append(f"| {one['kind']} | {one['batches']} | {' | '.join(some)} |")
    return "\n".join(lines)


def draw(source: str, target: str) -> None:
    """Draws the CPU seconds of the readers."""
    import matplotlib
    import matplotlib.pyplot as plt

    matplotlib.rcParams.update(
        {"svg.hashsalt": "compaction", "svg.fonttype": "none", "font.family": "sans-serif"}
    )
    found = json.loads(Path(source).read_text())
    figure, both = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    for axes, kind in zip(both, _KINDS, strict=True):
        some = [one for one in found if one["kind"] == kind]
        batches = [one["batches"] for one in some]
        for how, colour, mark in (("without", "#c0392b", "o"), ("with", "#1f6f8b", "s")):
            seconds = [one[how]["cpu"] for one in some]
            axes.plot(batches, seconds, color=colour, marker=mark, label=f"{how} compaction")
            axes.annotate(
                f"{seconds[-1]:.2f} s",
                (batches[-1], seconds[-1]),
                (0, 6),
                textcoords="offset points",
                ha="right",
            )
        axes.margins(y=0.15)
        axes.set(title=kind, xlabel="batches", ylim=(0, None))
        axes.grid(alpha=0.3)
    both[0].set_ylabel("CPU seconds to read the table")
    both[0].legend(loc="upper left", frameon=False)
    figure.savefig(target, metadata={"Date": None})


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--batches", type=int, nargs="+", default=list(_BATCHES))
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", help="write the figures to this file, for --draw")
    parser.add_argument(
        "--draw", nargs=2, metavar=("FIGURES", "PICTURE"), help="draw figures, and measure nothing"
    )
    given = parser.parse_args()
    if given.draw:
        draw(*given.draw)
        return
    found = []
    for kind in _KINDS:
        with tempfile.TemporaryDirectory() as folder:
            found += measured(kind, given.batches, given.rows, given.rounds, Path(folder))
    if given.out:
        Path(given.out).write_text(json.dumps(found, indent=1) + "\n")
    print(table_of(found))


if __name__ == "__main__":
    main()
