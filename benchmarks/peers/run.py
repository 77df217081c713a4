"""Runs all rounds of the loads: starts the systems, runs them in turn, checks what they wrote, and
keeps the results.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from paimon_stream import PaimonTable
from paimon_stream.errors import PaimonStreamError

from .data import expected, make_data, sums_of
from .figures import cold_figures_of, cold_table_of, figures_of, goals_of, table_of
from .jars import Unavailable
from .loads import Load
from .machine import machine, today
from .parent import Died, Peer

__all__ = ["Run"]


class Run:
    """The processes of the systems, and the results so far."""

    def __init__(self, given: argparse.Namespace, folder: Path) -> None:
        self.given, self.folder = given, folder
        self.pythons = dict(one.split("=", 1) for one in given.python)
        self.peers: dict[str, Peer] = {}
        self.missing: dict[str, str] = {}
        self.versions: dict[str, dict[str, str]] = {}
        self.failed = False
        self.results: dict[str, dict[str, Any]] = {}
        self.began = time.monotonic()

    def measure(self, load: Load) -> None:
        """Runs all rounds of a load, and prints its table."""
        asked = self.given.systems.split(",")
        names = [name for name in asked if name not in load.without]
        source = make_data(load, self.folder / "data")
        self._say(f"{load.name}: {load.title}; {load.all_rows:,} rows made")
        self._start(names)
        missing = {name: "it has no such tables" for name in asked if name in load.without}
        rounds: dict[str, list[dict[str, Any]]] = {}
        checked: dict[str, str] = {}
        for number in range(self.given.dropped + self.given.rounds):
            shift = number % len(names)
            for name in names[shift:] + names[:shift]:
                if name not in self.missing:
                    last = number == self.given.dropped + self.given.rounds - 1
                    answer = self._round(load, name, source, number, last, checked)
                    rounds.setdefault(name, []).extend([answer] if answer else [])
        for peer in self.peers.values():
            peer.drop()
        missing |= {name: why for name, why in self.missing.items() if name in names}
        figures = {
            name: figures_of(load, rounds[name][self.given.dropped :], rounds[name][0])
            for name in names
            if name not in self.missing and len(rounds.get(name, [])) > self.given.dropped
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

    def measure_cold(self, load: Load) -> None:
        """Measures the first batch of a process. Each round starts new processes, and no round is
        dropped.
        """
        names = [name for name in self.given.systems.split(",") if name not in self.missing]
        source = make_data(load, self.folder / "data")
        self.close()
        found: dict[str, list[dict[str, Any]]] = {}
        for number in range(self.given.starts):
            shift = number % len(names)
            for name in names[shift:] + names[:shift]:
                self._start([name])
                if name in self.peers:
                    answer = self._round(load, name, source, self.given.dropped + number, False, {})
                    if answer:
                        answer["session_s"] = self.peers[name].ready["session_s"]
                        found.setdefault(name, []).append(answer)
                self.close()
        figures = {name: cold_figures_of(rounds) for name, rounds in found.items()}
        self.results[load.name] = {
            "title": load.title,
            "batches": load.batches,
            "rows_per_batch": load.rows_per_batch,
            "rounds": self.given.starts,
            "systems": figures,
            "missing": dict(self.missing),
            "goals": goals_of(load, figures, {}),
            "checked": {},
        }
        print(f"\n{cold_table_of(load, self.results[load.name])}\n", flush=True)
        self._write()

    def _start(self, names: list[str]) -> None:
        """Starts the processes that are not running yet, at the same time."""
        starting = [name for name in names if name not in self.peers and name not in self.missing]
        for name in starting:
            self._launch(name)
        for name in starting:
            self._wait(name)

    def _launch(self, name: str) -> None:
        python = self.pythons.get(name, self.given.spark_python)
        # The path is not resolved, because the link of a virtual environment leads out of it.
        python = os.path.abspath(python) if os.sep in python else shutil.which(python) or python
        place = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            self.peers[name] = Peer(
                name, place, python=python, memory=self.given.memory, limit=self.given.limit
            )
        except (Unavailable, Died, OSError) as why:
            self._lose(name, str(why))

    def _wait(self, name: str) -> None:
        if name not in self.peers:
            return
        try:
            self.peers[name].wait()
        except Died as why:
            self._lose(name, str(why))
            return
        versions = self.peers[name].ready["versions"]
        self.versions[name] = versions
        self._say(f"{name}: Spark {versions['pyspark']} is up")

    def _round(
        self, load: Load, name: str, source: Path, number: int, last: bool, checked: dict[str, str]
    ) -> dict[str, Any] | None:
        peer = self.peers[name]
        try:
            answer = peer.run(load, source, memory=number == 0)
            checked[name] = self._check(peer, load, source, answer, java=last)
        except (RuntimeError, OSError, ValueError, KeyError, PaimonStreamError) as why:
            self._lose(name, f"round {number} of {load.name}: {type(why).__name__}: {why}")
            return None
        measured = number + 1 - self.given.dropped
        what = f"round {measured}" if measured > 0 else "dropped"
        self._say(
            f"{load.name} {what:<8} {name:<10} {answer['cpu']:6.2f} CPU s {answer['wall']:6.2f} s"
        )
        return answer

    def _check(
        self, peer: Peer, load: Load, source: Path, answer: dict[str, Any], java: bool
    ) -> str:
        """Compares what the table holds with what it must hold. Returns how the table was read."""
        want = expected(source)
        if answer["batches"] != load.all_batches:
            raise Died(f"it ran {answer['batches']} batches, not {load.all_batches}")
        plain = peer.name.partition("@")[0].split("+")[0]
        if plain in ("noop", "drop"):
            if answer["rows"] != load.all_rows:
                raise Died(f"it read {answer['rows']} rows, not {load.all_rows}")
            return "nothing to read; Spark counted the rows"
        if plain in ("ours", "format", "pypaimon"):
            place = peer.place(answer["table"])
            found = sums_of(
                PaimonTable.load(str(place)).to_arrow(columns=["id", "quantity", "amount"])
            )
            how = "rows and sums by paimon_stream"
            if java and plain in ("ours", "format"):
                how += self._java(place, want["rows"])
        else:
            found = peer.sums(answer["table"]) or {}
            how = "rows and sums by Spark"
        if found != want:
            raise Died(f"the table holds {found}; it must hold {want}")
        return how

    def _java(self, place: Path, rows: int) -> str:
        """Has Java count the rows, in a JVM that ends right after."""
        if self.given.no_java:
            return ""
        from java_paimon import JavaPaimon, OracleUnavailable

        try:
            with JavaPaimon() as paimon:
                found = paimon.count(place)
        except OracleUnavailable as why:
            return f"; Java is not available: {str(why).splitlines()[0]}"
        if found != rows:
            raise Died(f"Java counts {found} rows, not {rows}")
        return f"; Java counts {found:,} rows"

    def _lose(self, name: str, why: str) -> None:
        self._say(f"{name}: not measured: {why}")
        self.missing[name] = why
        self.failed = self.failed or name.startswith(("ours", "format"))
        if name in self.peers:
            self.peers.pop(name).close()

    def _say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:5.0f} s] {text}", flush=True)

    def _write(self) -> None:
        if self.given.json is None:
            return
        found = {
            "kind": "streams",
            "date": today(),
            "machine": machine(),
            "memory": self.given.memory,
            "versions": self.versions,
            "loads": self.results,
        }
        self.given.json.parent.mkdir(parents=True, exist_ok=True)
        self.given.json.write_text(json.dumps(found, indent=1) + "\n")

    def close(self) -> None:
        """Ends all processes."""
        while self.peers:
            self.peers.popitem()[1].close()
