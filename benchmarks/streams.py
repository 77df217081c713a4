r"""Streams of Spark into tables: ours beside its peers, in one run.

    python benchmarks/streams.py                                      # all loads: noop, parquet, ours
    python benchmarks/streams.py --loads L1,L3 --systems noop,parquet,ours --rounds 5
    python benchmarks/streams.py --systems noop,parquet,ours,iceberg,delta,jar,pypaimon \
        --spark-python .venv-spark35/bin/python --python pypaimon=.venv-bench35/bin/python   # on Spark 3.5
    python benchmarks/streams.py --loads L5 --systems noop,ours,ours+OPTION=VALUE,ours@/other/checkout

Loads: L1 append; L2 append into 5 partitions; L3 append into 8 buckets; L4 upserts, half of them updates, 4
buckets; L5 200 batches of 1,000 rows. 8 columns, fixed seed, Parquet files in the OS's cache.

Every system has a process and a JVM of its own, started once: local[2], the same memory, the same settings,
all data files Parquet with zstd at level 1. A first round of each load is dropped; the other rounds are
interleaved, in an order that rotates. A round is one stream from a fresh checkpoint into a new table until
all files are read. CPU: of the driver, the JVM and the Python workers, from /proc. Memory: PSS, looked at
five times a second in the round that is dropped. "early" and "late" are the median batches of the 20 after
the first 20, and of the last 20. Every round is read back and its rows and sums compared: what the
JVM's sinks wrote by Spark, the tables of ours and of pypaimon by paimon_stream, and once per load by Java.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests/oracle"), str(ROOT / "benchmarks")]

from peers.data import expected, make_data, sums_of  # noqa: E402
from peers.figures import figures_of, goals_of, table_of  # noqa: E402
from peers.jars import Unavailable  # noqa: E402
from peers.loads import LOADS, Load  # noqa: E402
from peers.parent import Died, Peer, own_python, spark_version  # noqa: E402

from paimon_stream import PaimonTable  # noqa: E402

SYSTEMS = ("noop", "parquet", "ours", "iceberg", "delta", "jar", "pypaimon")


def main() -> None:
    """Measures, prints a table per load, and writes the JSON."""
    given = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="bench-streams-"))
    run = Run(given, folder)
    try:
        for name in given.loads.split(","):
            run.measure(sized(LOADS[name], given))
    finally:
        run.close()
        shutil.rmtree(folder, ignore_errors=True)
    if run.failed:
        sys.exit(1)


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--systems", default="noop,parquet,ours", help=f"of {', '.join(SYSTEMS)}")
    parser.add_argument("--rounds", type=int, default=5, help="after the one that is dropped (5)")
    parser.add_argument("--batches", type=int, help="cut the rows of L1–L3 into so many batches, such as 50")
    parser.add_argument("--rows", type=int, help="rows of a whole stream, of any load")
    parser.add_argument("--large", action="store_true", help="L4 with 10 × 1,000,000 rows")
    parser.add_argument("--spark-python", default=own_python(), help="the interpreter of the systems")
    parser.add_argument("--python", action="append", default=[], metavar="SYSTEM=INTERPRETER")
    parser.add_argument("--memory", default="2g", help="heap of each JVM (2g)")
    parser.add_argument("--limit", type=float, default=300, help="seconds that a stream may take (300)")
    parser.add_argument("--no-java", action="store_true", help="do not have Java count our tables")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the result goes")
    given = parser.parse_args()
    for name in given.loads.split(","):
        if name not in LOADS:
            parser.error(f"no load {name}; there are {', '.join(LOADS)}")
    for name in given.systems.split(","):
        if name.partition("@")[0].split("+")[0] not in SYSTEMS:
            parser.error(f"no system {name}; there are {', '.join(SYSTEMS)}")
    return given


def sized(load: Load, given: argparse.Namespace) -> Load:
    """The load, made larger or smaller, or cut otherwise."""
    rows = given.rows or (load.rows * 10 if given.large and load.keyed else load.rows)
    batches = given.batches if given.batches and load.name in ("L1", "L2", "L3") else load.batches
    return replace(load, batches=batches, rows_per_batch=max(load.files_per_batch, rows // batches))


class Run:
    """The processes of the systems, and the results so far."""

    def __init__(self, given: argparse.Namespace, folder: Path) -> None:
        self.given, self.folder = given, folder
        self.pythons = dict(one.split("=", 1) for one in given.python)
        self.peers: dict[str, Peer] = {}
        self.missing: dict[str, str] = {}
        self.failed = False
        self.results: dict[str, dict[str, Any]] = {}
        self.began = time.monotonic()

    def measure(self, load: Load) -> None:
        """All rounds of a load; prints its table."""
        asked = self.given.systems.split(",")
        names = [name for name in asked if name not in load.without]
        source = make_data(load, self.folder / "data")
        self._say(f"{load.name}: {load.title}; {load.rows:,} rows made")
        self._start(names)
        missing = {name: "there is no such thing in this system" for name in asked if name in load.without}
        rounds: dict[str, list[dict[str, Any]]] = {}
        checked: dict[str, str] = {}
        for number in range(self.given.rounds + 1):
            shift = number % len(names)
            for name in names[shift:] + names[:shift]:
                if name not in self.missing:
                    last = number == self.given.rounds
                    answer = self._round(load, name, source, number, last, checked)
                    rounds.setdefault(name, []).extend([answer] if answer else [])
        missing |= {name: why for name, why in self.missing.items() if name in names}
        figures = {
            name: figures_of(load, rounds[name][1:], rounds[name][0])
            for name in names
            if name not in self.missing and len(rounds.get(name, [])) > 1
        }
        others = {name: result["systems"] for name, result in self.results.items()}
        self.results[load.name] = {
            "title": load.title,
            "batches": load.batches,
            "rows_per_batch": load.rows_per_batch,
            "rounds": self.given.rounds,
            "systems": figures,
            "missing": missing,
            "goals": goals_of(load, figures, others),
            "checked": checked,
            "all_rounds": {name: rounds[name] for name in figures},
        }
        print(f"\n{table_of(load, self.results[load.name])}\n", flush=True)
        self._write()

    def _start(self, names: list[str]) -> None:
        """Starts the processes that are not there yet, side by side."""
        starting = [name for name in names if name not in self.peers and name not in self.missing]
        with ThreadPoolExecutor(max(1, len(starting))) as pool:
            list(pool.map(self._start_one, starting))

    def _start_one(self, name: str) -> None:
        python = self.pythons.get(name, self.given.spark_python)
        # The path stays as it is: resolved, the link of a virtual environment would lead out of it.
        python = os.path.abspath(python) if os.sep in python else shutil.which(python) or python
        place = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            peer = Peer(name, place, python=python, memory=self.given.memory, limit=self.given.limit)
        except (Unavailable, Died, OSError) as why:
            self._lose(name, str(why))
            return
        self.peers[name] = peer
        self._say(f"{name}: Spark {spark_version(python)} is up")

    def _round(
        self, load: Load, name: str, source: Path, number: int, last: bool, checked: dict[str, str]
    ) -> dict[str, Any] | None:
        peer = self.peers[name]
        try:
            answer = peer.run(load, source, memory=number == 0)
            checked[name] = self._check(peer, load, source, answer, java=last)
            peer.drop(answer["table"])
        except Died as why:
            self._lose(name, f"round {number} of {load.name}: {why}")
            return None
        what = "dropped" if number == 0 else f"round {number}"
        self._say(f"{load.name} {what:<8} {name:<10} {answer['cpu']:6.2f} CPU s {answer['wall']:6.2f} s")
        return answer

    def _check(self, peer: Peer, load: Load, source: Path, answer: dict[str, Any], java: bool) -> str:
        """Compares what the table holds with what it must hold; says who has read it."""
        want = expected(source)
        if answer["rows"] != load.rows or len(answer["batch_ms"]) != load.batches:
            raise Died(f"{answer['rows']} rows in {len(answer['batch_ms'])} batches, not {load.rows}")
        plain = peer.name.partition("@")[0].split("+")[0]
        if plain == "noop":
            return "nothing to read; Spark counted the rows"
        if plain in ("ours", "pypaimon"):
            place = peer.place(answer["table"])
            found = sums_of(PaimonTable.load(str(place)).to_arrow(columns=["id", "quantity", "amount"]))
            how = "rows and sums by paimon_stream"
            if java and plain == "ours":
                how += self._java(place, want["rows"])
        else:
            found = peer.sums(answer["table"]) or {}
            how = "rows and sums by Spark"
        if found != want:
            raise Died(f"the table holds {found}, and should hold {want}")
        return how

    def _java(self, place: Path, rows: int) -> str:
        """Has Java count the rows, by a JVM that ends at once."""
        if self.given.no_java:
            return ""
        from java_paimon import JavaPaimon, OracleUnavailable

        try:
            with JavaPaimon() as paimon:
                found = paimon.count(place)
        except OracleUnavailable as why:
            return f"; Java could not be asked: {str(why).splitlines()[0]}"
        if found != rows:
            raise Died(f"Java counts {found} rows, not {rows}")
        return f"; Java counts {found:,} rows"

    def _lose(self, name: str, why: str) -> None:
        self._say(f"{name}: not measured: {why}")
        self.missing[name] = why
        self.failed = self.failed or name.startswith("ours")
        if name in self.peers:
            self.peers.pop(name).close()

    def _say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:5.0f} s] {text}", flush=True)

    def _write(self) -> None:
        if self.given.json is None:
            return
        versions = {name: peer.ready["versions"] for name, peer in self.peers.items()}
        found = {
            "kind": "streams",
            "date": datetime.date.today().isoformat(),
            "machine": machine(),
            "memory": self.given.memory,
            "versions": versions,
            "loads": self.results,
        }
        self.given.json.parent.mkdir(parents=True, exist_ok=True)
        self.given.json.write_text(json.dumps(found, indent=1) + "\n")

    def close(self) -> None:
        """Ends all processes."""
        for peer in self.peers.values():
            peer.close()


def machine() -> dict[str, Any]:
    """What the figures depend on, and nothing that tells whose machine it is."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"{platform.system()} {platform.machine()}"
    return {"cores": os.cpu_count(), "memory_gib": round(memory), "system": system}


if __name__ == "__main__":
    main()
