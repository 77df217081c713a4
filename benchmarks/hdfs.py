"""What HDFS costs: calls of the name node, and time beside Java Paimon on the same server.

    python benchmarks/hdfs.py
    python benchmarks/hdfs.py --batches 60 --rounds 3 --json hdfs.json
    python benchmarks/hdfs.py --files 100000

Each system writes one data file of 100 rows and commits it, again and again, to an append table of its
own, as in `store_peers.py`. The systems take turns. One JVM on loopback has the name node and the data
nodes. Calls are those that the name node has counted; data nodes' own are left out. A client has to ask
the name node again if it closes a file before the data node has told of it: then Java waits for 0.4 s.
So the times of Java fall into groups, and the table has their minimum, median and maximum. The systems
take turns within a round, so what disturbs the machine disturbs all of them; each round is printed
when it ends, with its ratios to Java, and all rounds together at the end.

With `--files` it lists a folder of that many empty files instead: seconds, calls, and the most memory of
Python objects.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), str(ROOT / "tests" / "oracle")]

import java_paimon  # noqa: E402
from store_peers import Run, commit_run, java_run, new_table, stream_run  # noqa: E402

from tests.kits.hdfs import MiniHdfs  # noqa: E402

WARM = 3
JAVA = f"Java {java_paimon.PAIMON_VERSION}"
WRITERS = 16
"""How many files are created at once, for the listing."""

Batches = list[tuple[float, float, Counter[str]]]
"""The seconds of each batch, those of its commit alone, and its calls."""


def measured(hdfs: MiniHdfs, systems: dict[str, Run], numbers: range) -> dict[str, Batches]:
    """The batches with these numbers, by system."""
    took: dict[str, Batches] = {name: [] for name in systems}
    for number in numbers:
        for name, run in systems.items():
            before = hdfs.calls()
            seconds, alone = run(number)
            took[name].append((seconds, alone, hdfs.calls() - before))
    return took


def shown(title: str, took: dict[str, Batches]) -> dict[str, Any]:
    """Prints the table of these batches. Returns its figures."""
    print(f"{title}, ms; x is the ratio of the medians to Java's")
    print(f"{'':<17}{'batch':^27}{'commit alone':^27}")
    print(f"{'':<17}" + f"{'min':>7}{'p50':>7}{'max':>7}{'x':>6}" * 2)
    figures = {name: _figures(batches) for name, batches in took.items()}
    for name, figure in figures.items():
        line = f"{name:<17}"
        for what in ("batch", "commit"):
            ratio = figure[what][1] / figures[JAVA][what][1]
            line += "".join(f"{1000 * each:>7.0f}" for each in figure[what]) + f"{ratio:>6.2f}"
        calls = ", ".join(f"{kind} {count}" for kind, count in figure["calls"].items())
        print(f"{line}\n  {sum(figure['calls'].values())} calls: {calls}", flush=True)
    return figures


def _figures(batches: Batches) -> dict[str, Any]:
    calls = sorted((batch[2] for batch in batches), key=Counter.total)[len(batches) // 2]
    spread = {
        what: [f(batch[at] for batch in batches) for f in (min, statistics.median, max)]
        for at, what in enumerate(("batch", "commit"))
    }
    return {**spread, "calls": dict(calls.most_common())}


def beside_java(hdfs: MiniHdfs, batches: int, rounds: int) -> dict[str, Any]:
    """The table of each round, and that of all rounds. Returns the figures of the last."""
    with java_paimon.JavaPaimonByLocation({}, quick_start=False) as java:
        systems = {
            "ours, stream": stream_run(new_table(*hdfs.place())[1]),
            "ours, new_commit": commit_run(new_table(*hdfs.place())[1]),
            JAVA: java_run(java, new_table(*hdfs.place())[0]),
        }
        measured(hdfs, systems, range(WARM))
        every: dict[str, Batches] = {name: [] for name in systems}
        for turn in range(rounds):
            first = WARM + turn * batches
            took = measured(hdfs, systems, range(first, first + batches))
            shown(f"round {turn + 1}: {batches} batches of one file", took)
            for name, more in took.items():
                every[name] += more
    return shown(f"all {rounds} rounds", every)


def listed(hdfs: MiniHdfs, files: int) -> dict[str, Any]:
    """Lists a folder of this number of files in each way. Prints and returns what each costs."""
    storage = hdfs.storage()
    _create(hdfs, f"{storage.settings.prefix}/bucket-0", files)  # type: ignore[attr-defined]
    name = f"data-{0:032}-0.parquet"
    ways: dict[str, Callable[[], int]] = {
        "list_pages": lambda: sum(map(len, storage.list_pages("bucket-0"))),
        "list_below": lambda: sum(map(len, storage.list_below(""))),
        "list_files, all": lambda: len(storage.list_files("bucket-0")),
        "list_files, one": lambda: len(storage.list_files("bucket-0", name)),
    }
    figures = {}
    for way, count in ways.items():
        before, began = hdfs.calls(), time.perf_counter()
        number, seconds = count(), time.perf_counter() - began
        calls = (hdfs.calls() - before).total()
        tracemalloc.start()
        count()
        peak = tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
        print(
            f"{way:<17}{number:>8} files {seconds:>7.2f} s {calls:>5} calls {peak:>7.1f} MB",
            flush=True,
        )
        figures[way] = {"files": number, "seconds": seconds, "calls": calls, "peak MB": peak}
    return figures


def _create(hdfs: MiniHdfs, folder: str, files: int) -> None:
    import hdfs_native

    client = hdfs_native.Client(hdfs.url)
    options = hdfs_native.WriteOptions(create_parent=True)

    def create(number: int) -> None:
        client.create(f"{folder}/data-{number:032}-0.parquet", options).close()

    began = time.perf_counter()
    with ThreadPoolExecutor(WRITERS) as pool:
        for _ in pool.map(create, range(files)):
            pass
    print(f"created {files} files in {time.perf_counter() - began:.0f} s", flush=True)


def main() -> None:
    """Measures, prints, and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=20, help="of each system in a round")
    parser.add_argument("--rounds", type=int, default=1, help="of the systems")
    parser.add_argument("--data-nodes", type=int, default=1, help="of the server")
    parser.add_argument("--files", type=int, help="list a folder of this number of files instead")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    given = parser.parse_args()
    with MiniHdfs(data_nodes=given.data_nodes, heap="512m") as hdfs:
        step = (
            partial(listed, files=given.files)
            if given.files
            else partial(beside_java, batches=given.batches, rounds=given.rounds)
        )
        figures = step(hdfs)
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
