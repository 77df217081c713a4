"""Runs schedules of fresh seeds for as long as asked, on all cores: `make torture MINUTES=60
SEED=1`.

Prints a line of progress, and each failure as its shortest schedule. With `--page` it writes the
figures of the run into docs/reliability.md. With `--java 20`, Java reads twenty tables at the end.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.kits.pages import written_into
from tests.oracle.java_paimon import JavaPaimon
from tests.simulation.cast import world_of
from tests.simulation.limits import DOCUMENTED
from tests.simulation.page import PART, figures
from tests.simulation.planted import BUGS
from tests.simulation.real_files import columns_of, counted, stored
from tests.simulation.remembered import forget
from tests.simulation.report import Outcome, run, shortest

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
CHUNK = 25
MOST_SHOWN = 10
QUIET_SECONDS = 120
"""How long a run whose output is a file prints nothing."""


@dataclass
class Tally:
    """What some schedules met. `failed` are seeds with the steps of their shortest schedules."""

    schedules: int = 0
    seconds: float = 0.0
    operations: int = 0
    steps: int = 0
    faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    meetings: Counter[tuple[str, str]] = field(default_factory=Counter)
    limits: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Takes over what other schedules met."""
        self.schedules += other.schedules
        self.seconds += other.seconds
        self.operations += other.operations
        self.steps += other.steps
        self.faults += other.faults
        self.meetings += other.meetings
        self.limits += other.limits
        self.failed += other.failed

    def of(self, outcome: Outcome) -> None:
        """Counts one schedule."""
        world = outcome.world
        self.schedules += 1
        self.operations += world.operations
        self.steps += len(world.choices.made)
        self.faults += world.faults_met
        self.meetings += world.met
        if outcome.limit is not None:
            self.limits[outcome.limit] += 1


class _WithoutPandas(MetaPathFinder):
    """Says that pandas is not installed."""

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("schedules run without pandas", name=fullname)


def begin() -> None:
    """What each process does first: it leaves pandas out. pyarrow would import it when the first
    list becomes an array, and no schedule has anything of pandas.
    """
    sys.meta_path.insert(0, _WithoutPandas())


def chunk(first: int) -> Tally:
    """Runs some schedules, one seed after another."""
    gc.disable()  # a schedule makes many objects, and few cycles
    tally = Tally()
    begun = time.process_time()
    for seed in range(first, first + CHUNK):
        _tell_of(seed, tally)
        forget()
        gc.collect()  # a world has cycles; memory that is soon used again is still in the caches
        gc.freeze()  # what the decoders remember stays, and need not be looked at again
    tally.seconds = time.process_time() - begun
    return tally


def _tell_of(seed: int, tally: Tally) -> None:
    """Runs the schedule of a seed, and counts it. When this returns, nothing holds its world."""
    outcome = run(seed, strict=False)
    tally.of(outcome)
    if outcome.rule is not None:
        tally.failed.append((seed, str(shortest(outcome, strict=False))))


def caught(number: int) -> int | None:
    """The seed at which the planted bug with that number breaks its rule."""
    outcome = BUGS[number].caught()
    return None if outcome is None else outcome.seed


def read_by_java(first: int, tables: int) -> list[str]:
    """Writes so many tables whose files are real to the disk, as schedules from this seed on leave
    them, and has Java and fastavro read them. Half of them have a primary key. Returns what differs.
    """
    wrong: list[str] = []
    left = {False: tables - tables // 2, True: tables // 2}
    with JavaPaimon() as java, TemporaryDirectory() as folder:
        for seed in count(first):
            if not any(left.values()):
                return wrong
            world = world_of(seed)
            if not world.real or not left[world.keyed]:
                continue
            outcome = run(seed, strict=False)
            place = Path(folder, str(seed))
            kept = None if outcome.rule or outcome.limit else stored(outcome.world, place)
            if kept is None or not kept[0]:
                continue
            left[world.keyed] -= 1
            rows, in_files = kept
            columns = columns_of(outcome.world)
            read = sorted(tuple(one[name] for name in columns) for one in java.read(place))
            counts = java.count(place), counted(place)
            if read != rows or counts != (len(rows), in_files):
                wrong.append(f"seed {seed}: {len(rows)} rows, Java and fastavro count {counts}")
    raise AssertionError("there are always more seeds")


def torture(minutes: float, seed: int, processes: int) -> Tally:
    """Runs schedules until the time is over."""
    total, said = Tally(), time.monotonic()
    until = said + 60 * minutes
    with multiprocessing.get_context("spawn").Pool(processes, initializer=begin) as pool:
        starts = iter(range(seed, sys.maxsize, CHUNK))
        pending = [pool.apply_async(chunk, (next(starts),)) for _ in range(2 * processes)]
        while pending:
            done = pending.pop(0).get()
            if time.monotonic() < until:
                pending.append(pool.apply_async(chunk, (next(starts),)))
            for number, steps in done.failed[: max(0, MOST_SHOWN - len(total.failed))]:
                print(f"\n{steps}\n(again: make torture SEED={number} MINUTES=0)", flush=True)
            total.add(done)
            left = max(0.0, until - time.monotonic())
            rate = 60 * total.schedules / max(1e-9, total.seconds)
            line = f"{total.schedules} schedules, {rate:.0f} a minute and core, {len(total.failed)} failed"
            if sys.stdout.isatty():
                print(f"\r{line}, {left / 60:.1f} min left  ", end="", flush=True)
            elif time.monotonic() - said > QUIET_SECONDS:
                said = time.monotonic()
                print(f"{line}, {left / 60:.1f} min left", flush=True)
    print(f"\r{line}")
    for limit, times in total.limits.most_common():
        share, sentence = 100 * times / total.schedules, DOCUMENTED[limit]
        print(f"{times:6} ({share:.2f} %) ended early: {limit} (docs/reliability.md: {sentence!r})")
    return total


def main() -> int:
    """Runs the schedules, and returns 1 if one has failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--page", action="store_true", help="write the figures into docs/reliability.md"
    )
    parser.add_argument("--java", type=int, default=0, help="how many tables Java reads at the end")
    given = parser.parse_args()
    today = time.strftime("%Y%m%d")
    seed = int(today) * 1_000_000 if given.seed is None else given.seed
    print(f"Seeds from {seed} on (SEED={seed} repeats this run).", flush=True)
    tally, blind = torture(given.minutes, seed, given.processes), []
    if given.page:
        with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
            bugs = list(zip(BUGS, pool.map(caught, range(len(BUGS)), chunksize=1), strict=True))
        text = figures(tally, bugs, seed, given.minutes)
        PAGE.write_text(written_into(PAGE.read_text(), PART, text))
        blind = [bug.name for bug, seed in bugs if seed is None]
        print(f"Planted bugs that were not caught: {', '.join(blind) or 'none'}.")
    differ = read_by_java(seed, given.java) if given.java else []
    if given.java:
        print(f"Java and fastavro have read {given.java} tables; {len(differ)} differ.")
    print(*differ, sep="\n", end="\n" if differ else "")
    return 1 if tally.failed or blind or differ else 0


if __name__ == "__main__":
    sys.exit(main())
