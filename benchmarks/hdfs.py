"""What HDFS costs: calls of the name node, and time beside Java Paimon on the same server.

    python benchmarks/hdfs.py
    python benchmarks/hdfs.py --batches 60 --json hdfs.json

Each system writes one data file of 100 rows and commits it, again and again, to an append table of its
own, as in `store_peers.py`. The systems take turns. One JVM on loopback has the name node and the data
nodes. Calls are those that the name node has counted; data nodes' own are left out. A client has to ask
the name node again if it closes a file before the data node has told of it: then Java waits for 0.4 s.
So the times of Java fall into groups, and the table has their minimum, median and maximum.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), str(ROOT / "tests" / "oracle")]

import java_paimon  # noqa: E402
from store_peers import Run, commit_run, java_run, new_table, stream_run  # noqa: E402

from tests.kits.hdfs import MiniHdfs  # noqa: E402

WARM = 3


def measured(
    hdfs: MiniHdfs, systems: dict[str, Run], batches: int
) -> dict[str, list[tuple[float, float, Counter[str]]]]:
    """The seconds of each batch, those of its commit alone, and its calls, by system."""
    took: dict[str, list[tuple[float, float, Counter[str]]]] = {name: [] for name in systems}
    for number in range(WARM + batches):
        for name, run in systems.items():
            before = hdfs.calls()
            seconds, alone = run(number)
            if number >= WARM:
                took[name].append((seconds, alone, hdfs.calls() - before))
    return took


def shown(name: str, batches: list[tuple[float, float, Counter[str]]]) -> dict[str, Any]:
    """Prints the lines of a system. Returns its figures."""
    spread = {
        what: [f(batch[at] for batch in batches) for f in (min, statistics.median, max)]
        for at, what in enumerate(("batch", "commit"))
    }
    calls = sorted((batch[2] for batch in batches), key=Counter.total)[len(batches) // 2]
    columns = "".join(
        f"{1000 * seconds:>7.0f}" for seconds in (*spread["batch"], *spread["commit"])
    )
    print(f"{name:<17}{columns}\n  {calls.total()} calls: {dict(calls.most_common())}", flush=True)
    return {**spread, "calls": dict(calls)}


def main() -> None:
    """Measures, prints, and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=20, help="of each system")
    parser.add_argument("--data-nodes", type=int, default=1, help="of the server")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    given = parser.parse_args()
    with (
        MiniHdfs(data_nodes=given.data_nodes, heap="512m") as hdfs,
        java_paimon.JavaPaimonByLocation({}, quick_start=False) as java,
    ):
        systems = {
            "ours, stream": stream_run(new_table(*hdfs.place())[1]),
            "ours, new_commit": commit_run(new_table(*hdfs.place())[1]),
            f"Java {java_paimon.PAIMON_VERSION}": java_run(java, new_table(*hdfs.place())[0]),
        }
        took = measured(hdfs, systems, given.batches)
    print(f"{given.batches} batches of one file, ms")
    print(f"{'':<17}{'batch':^21}{'commit alone':^21}")
    print(f"{'':<17}" + f"{'min':>7}{'p50':>7}{'max':>7}" * 2)
    figures = {name: shown(name, batches) for name, batches in took.items()}
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
