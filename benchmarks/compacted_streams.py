"""What a stream costs that compacts its table with a primary key, beside Paimon's own sink in the
same run.

    python benchmarks/compacted_streams.py --spark-python .venv-spark35/bin/python
    python benchmarks/compacted_streams.py --systems ours --batches 50 --rows 20000

200 batches of 100,000 upserts, half of them updates, go into a table with 4 buckets and
`write-only` = `false`. Each system has a process and a JVM of its own (see streams.py), one after
the other. CPU is that of the driver, the JVM and the Python workers. "first" and "last" are the CPU
seconds of a batch, as the mean of twenty batches each: those after the warm-up of 5 batches, and
the last ones. A batch ends when Spark has noted it in its checkpoint. "runs" are the sorted runs of
the deepest bucket in the end. "read" are the CPU seconds in which a new process of this package
reads the whole table.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from peers.data import expected, make_data, sums_of  # noqa: E402
from peers.jars import Unavailable  # noqa: E402
from peers.loads import COMPACTED, Load  # noqa: E402
from peers.parent import Died, Peer  # noqa: E402
from peers.processes import cpu_seconds  # noqa: E402

from paimon_stream import PaimonTable  # noqa: E402

_SOME = 20
_READ = """
import resource, sys
from paimon_stream import PaimonTable
table = PaimonTable.load(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF)
table.to_arrow()
after = resource.getrusage(resource.RUSAGE_SELF)
print(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
"""


class Batches:
    """The CPU seconds of a session at the end of each batch of a checkpoint."""

    def __init__(self, session: int, checkpoint: Path) -> None:
        self.cpu: list[float] = []
        self._session, self._noted = session, checkpoint / "commits"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Batches:
        self._thread.start()
        return self

    def __exit__(self, *given: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.02):
            if (self._noted / str(len(self.cpu))).exists():
                self.cpu.append(cpu_seconds(self._session))

    def each(self, first: int, last: int) -> float:
        """CPU seconds of a batch, from the end of batch `first` to the end of batch `last`."""
        return (self.cpu[last] - self.cpu[first]) / (last - first)


def figures(
    name: str, load: Load, source: Path, folder: Path, given: argparse.Namespace
) -> dict[str, Any]:
    """Runs one system. Raises `Died` and `Unavailable`."""
    place = Path(tempfile.mkdtemp(dir=folder))
    peer = Peer(name, place, python=given.spark_python, memory=given.memory, limit=given.limit)
    try:
        peer.wait()
        with Batches(peer.session, place / "checkpoints" / "t1") as batches:
            found = peer.run(load, source)
        batches.cpu.append(cpu_seconds(peer.session))
        table = PaimonTable.load(str(peer.place("t1")))
        assert sums_of(table.to_arrow(columns=["id", "quantity", "amount"])) == expected(source)
        runs: dict[int, set[object]] = {}
        for file in table.files():
            runs.setdefault(file.bucket, set()).add(file.meta.level or file.meta.file_name)
        read = subprocess.run(
            [sys.executable, "-c", _READ, table.location],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        some, last, warm = min(_SOME, load.batches // 2), load.all_batches - 2, load.warm_up
        compactions = sum(one.commit_kind.value == "COMPACT" for one in table.snapshots())
        return {
            "cpu": found["cpu"],
            "wall": found["wall"],
            "first": batches.each(warm, warm + some),
            "last": batches.each(last - some, last),
            "runs": max(map(len, runs.values())),
            "files": len(table.files()),
            "read": float(read.stdout),
            "compactions": compactions,
        }
    finally:
        peer.close()


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments, with those that `figures` needs."""
    parser.add_argument(
        "--spark-python", default=sys.executable, help="the interpreter of the systems"
    )
    parser.add_argument("--memory", default="2g", help="heap of each JVM (2g)")
    parser.add_argument(
        "--limit", type=float, default=3600, help="seconds that a stream may take (3600)"
    )
    parser.add_argument("--folder", help="where to make the tables (default: the temporary folder)")
    given = parser.parse_args()
    given.spark_python = str(Path(given.spark_python).absolute())
    return given


def main() -> None:
    """Measures each system, and prints a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--systems", default="ours,jar", help="also ours+OPTION=VALUE")
    parser.add_argument("--batches", type=int, default=COMPACTED.all_batches)
    parser.add_argument(
        "--rows", type=int, default=COMPACTED.rows_per_batch, help="rows of a batch"
    )
    parser.add_argument(
        "--files",
        type=int,
        default=COMPACTED.files_per_batch,
        help="files of a batch, one for a task",
    )
    given = parsed(parser)
    sizes = {"rows_per_batch": given.rows, "files_per_batch": given.files}
    load = replace(COMPACTED, batches=given.batches - COMPACTED.warm_up, **sizes)
    folder = Path(tempfile.mkdtemp(prefix="bench-compacted-", dir=given.folder))
    try:
        source = make_data(load, folder / "data")
        print(f"{load.all_batches} batches of {load.rows_per_batch:,} rows: {load.title}")
        print(
            f"{'system':10}{'CPU s':>9}{'wall s':>9}{'first':>8}{'last':>8}{'runs':>6}{'files':>7}{'read':>8}"
        )
        found: dict[str, dict[str, Any]] = {}
        for name in given.systems.split(","):
            try:
                one = found[name] = figures(name, load, source, folder, given)
            except (Died, Unavailable) as why:
                print(f"{name:10} {why}")
                continue
            line = f"{name:10}{one['cpu']:>9.1f}{one['wall']:>9.1f}{one['first']:>8.3f}{one['last']:>8.3f}"
            print(f"{line}{one['runs']:>6}{one['files']:>7}{one['read']:>8.2f}", flush=True)
        print(json.dumps(found))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
