"""Where the CPU of a stream goes: the parts of each system's processes, side by side.

    python benchmarks/threads.py                        # L1: noop, drop, parquet and ours, after four streams
    python benchmarks/threads.py --load L3 --systems ours,jar --spark-python .venv-spark35/bin/python
    python benchmarks/threads.py --json threads.json

Loads and systems are those of `benchmarks/streams.py`. Each system runs the stream several times in
a JVM of its own, in turn. The figures are medians of the last rounds. CPU seconds are read from
/proc for each thread before and after a stream. A thread that has ended counts among "the JVM's
other threads".
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from peers.data import make_data  # noqa: E402
from peers.loads import LOADS, Load  # noqa: E402
from peers.machine import machine, today  # noqa: E402
from peers.parent import Peer  # noqa: E402
from peers.processes import TICKS, members, stat_of  # noqa: E402

PARTS = (
    "the JVM's other threads",
    "Python workers",
    "Python driver",
    "just-in-time compiler",
    "garbage collector",
    "commands that Hadoop starts",
)
REST = PARTS[0]
THREADS = {
    "just-in-time compiler": re.compile(r"C[12] Compiler|Sweeper"),
    "garbage collector": re.compile(r"GC Thread|G1 |VM Thread"),
}
Parts = dict[str, float]


def main() -> None:
    """Measures, prints the chart, and writes the JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--load", default="L1", choices=LOADS)
    parser.add_argument("--systems", default="noop,drop,parquet,ours")
    parser.add_argument(
        "--dropped", type=int, default=4, help="dropped streams of each system before (4)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="measured streams (3)")
    parser.add_argument(
        "--spark-python", default=sys.executable, help="the interpreter of the systems"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the result goes")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="bench-threads-"))
    peers: dict[str, Peer] = {}
    try:
        for name in given.systems.split(","):
            place = Path(tempfile.mkdtemp(dir=folder))
            peers[name] = Peer(name, place, python=given.spark_python, memory="2g", limit=300)
            peers[name].wait()
        found = measured(LOADS[given.load], peers, folder, given.dropped, given.rounds)
    finally:
        for peer in peers.values():
            peer.close()
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(picture(found)))
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(found, indent=1) + "\n")


def measured(
    load: Load, peers: dict[str, Peer], folder: Path, dropped: int, rounds: int
) -> dict[str, Any]:
    """Runs all rounds. Returns the medians of the parts for each system."""
    source = make_data(load, folder / "data")
    taken: dict[str, list[Parts]] = {name: [] for name in peers}
    for number in range(dropped + rounds):
        for name, peer in peers.items():
            before = parts(peer.session)
            peer.run(load, source)
            after = parts(peer.session)
            if number >= dropped:
                taken[name].append({part: after[part] - before[part] for part in PARTS})
    spark = next(iter(peers.values())).ready["versions"]["pyspark"]
    return {
        "kind": "parts",
        "date": today(),
        "machine": machine(),
        "title": f"{load.name}: {load.title}; {load.all_rows:,} rows in {load.all_batches} batches, Spark "
        f"{spark}; CPU seconds of a stream after {dropped} others, medians of {rounds}",
        "systems": {
            name: {part: statistics.median(one[part] for one in all_) for part in PARTS}
            for name, all_ in taken.items()
        },
    }


def parts(session: int) -> Parts:
    """The CPU seconds so far of each part of a session's processes."""
    found: Parts = collections.defaultdict(float)
    for member in members(session):
        process = Path(f"/proc/{member.pid}")
        if member.pid == session:
            found["Python driver"] += member.ticks / TICKS
        elif member.name != "java":
            found["Python workers"] += member.ticks / TICKS
        else:
            jvm = stat_of(process)
            found["commands that Hadoop starts"] += jvm.of_children / TICKS
            known = threads_of(process)
            for part, ticks in known.items():
                found[part] += ticks / TICKS
            found[REST] += (jvm.own - sum(known.values())) / TICKS
    return found


def threads_of(process: Path) -> dict[str, int]:
    """The CPU ticks of those parts of a JVM whose threads are known by their names."""
    found: collections.Counter[str] = collections.Counter()
    for thread in (process / "task").iterdir():
        try:
            stat = stat_of(thread)
            for part, pattern in THREADS.items():
                if pattern.match(stat.name):
                    found[part] += stat.own
        except OSError:
            continue  # the thread has ended
    return found


def picture(found: dict[str, Any]) -> Iterator[str]:
    """A bar chart with a line for each part of each system."""
    most = max(max(values.values()) for values in found["systems"].values())
    yield found["title"]
    for name, values in found["systems"].items():
        yield f"\n{name}: {sum(values.values()):.1f}"
        for part, seconds in values.items():
            yield f"  {part:<34}{seconds:6.1f}  {'█' * round(seconds / most * 40)}"


if __name__ == "__main__":
    main()
