"""Runs all orders of the worlds, without a fault and with one at each change of each thread:
`make orders`.

Prints a line for each world, and each order that breaks a rule with the fewest switches. With
`--page` it writes its table into docs/reliability.md.
"""

from __future__ import annotations

import argparse
import datetime as dt
import gc
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kits.pages import written_into
from tests.orders.page import PAGE, PAIRS, PART, table, table_of_pairs
from tests.orders.tally import FEW, MOST_SECONDS, Part, Tally
from tests.orders.worlds import BY_NAME, WORLDS

PARTS = 12
"""Into how many parts the plans of a world are cut, so that two processes end at the same time."""


def share_of(text: str) -> tuple[int, int]:
    """The share `2/5`, or that of this day: `today/5`."""
    which, _, of = text.partition("/")
    number = dt.date.today().toordinal() if which == "today" else int(which) - 1
    return number % int(of), int(of)


@dataclass(frozen=True)
class Work:
    """A part of a world, run until a time of `time.monotonic` at the latest. A part that is done,
    and in which no rule was broken, is kept in a file of the folder `kept`, if there is one, and is
    not run again.
    """

    world: str
    part: int
    of: int
    faults: int
    until: float
    seconds: float
    few: int
    most_plans: int | None
    kept: Path | None

    def run(self) -> Tally:
        """Runs the part, or reads what it met."""
        file = None if self.kept is None else self.kept / self._title
        if file is not None and file.exists():
            return Tally.decoded(file.read_text())
        part = Part(
            BY_NAME[self.world],
            self.part,
            self.of,
            self.faults,
            self.until,
            self.seconds,
            self.few,
            self.most_plans,
        )
        tally = part.run()
        if file is not None and time.monotonic() < self.until and not tally.found:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(tally.encoded())
        return tally

    @property
    def _title(self) -> str:
        """The name of the file of the part. It says all that its outcome depends on."""
        bounds = f", {self.most_plans} of {self.seconds} s" if self.most_plans is not None else ""
        return f"{self.world}, {self.faults}, {self.part}{bounds}"


def _run(work: Work) -> Tally:
    gc.set_threshold(50_000, 20, 50)  # an order makes many objects, and few cycles
    return work.run()


def _says(tally: Tally) -> str:
    text = f"{tally.name}: {tally.orders:,} orders, {tally.orders_with_fault:,} with a fault"
    text += f" ({tally.plans_run:,} of {tally.plans:,} faults or pairs), {tally.seconds:.0f} s"
    if tally.bounded:
        text += f"; {tally.bounded} of them with few preemptions"
    if tally.cut:
        text += f"; {tally.cut} searches did not end"
    if tally.limits:
        text += f"; {sum(tally.limits.values())} ended at what the pages exclude"
    return text


def bounds_of(given: argparse.Namespace) -> str:
    """The arguments that bound how much is run, as they are written."""
    bounds = f" --seconds {given.seconds:g} --preemptions {given.preemptions}"
    return bounds if given.most is None else f"{bounds} --most {given.most}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns its exit code: 1 if a rule was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", action="append", help="a part of the names of the worlds to run")
    parser.add_argument("--minutes", type=float, help="how long it may take")
    parser.add_argument("--share", default="1/1", help="a share of the work: 2/5, or today/5")
    parser.add_argument("--faults", type=int, default=1, help="how many faults an order has")
    parser.add_argument(
        "--seconds",
        type=float,
        default=MOST_SECONDS,
        help=f"how long all orders of one plan of faults are run ({MOST_SECONDS:.0f})",
    )
    parser.add_argument(
        "--preemptions",
        type=int,
        default=FEW,
        help=f"how many an order has at most where these take longer ({FEW})",
    )
    parser.add_argument(
        "--most", type=int, help="how many faults or pairs of a world are run, spread evenly"
    )
    parser.add_argument("--kept", type=Path, help="a folder of what is done and not run again")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many processes")
    parser.add_argument("--page", action="store_true", help="write the table into reliability.md")
    given = parser.parse_args(arguments)
    wanted = [
        one for one in WORLDS if not given.world or any(part in one.name for part in given.world)
    ]
    until = float("inf") if given.minutes is None else time.monotonic() + 60 * given.minutes
    number, of = share_of(given.share)
    # Each part runs what pairs come on top of, so few pairs are run in one part.
    parts = 1 if given.faults == 0 or given.most is not None else PARTS
    work = [
        Work(
            setting.name,
            part,
            parts,
            given.faults,
            until,
            given.seconds,
            given.preemptions,
            given.most,
            given.kept,
        )
        for part in range(parts)
        for setting in wanted
    ]
    tallies: dict[str, Tally] = {}
    begun = time.monotonic()
    # A world leaves hundreds of MB behind in its process.
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(given.jobs, maxtasksperchild=PARTS) as pool:
        for done in pool.imap_unordered(_run, work[number::of]):
            tallies.setdefault(done.name, Tally(done.name)).add(done)
            print(f"{time.monotonic() - begun:5.0f} s  {_says(done)}", flush=True)
            for one in done.found:
                print(f"FOUND {one}\n", flush=True)
    found = sum(len(one.found) for one in tallies.values())
    orders = sum(one.orders + one.orders_with_fault for one in tallies.values())
    print(f"{orders:,} orders of {len(tallies)} worlds; {found} break a rule.")
    if given.page:
        ordered = [(one, tallies[one.name]) for one in WORLDS if one.name in tallies]
        part, text = (
            (PAIRS, table_of_pairs(ordered, given.preemptions, bounds_of(given)))
            if given.faults > 1
            else (PART, table(ordered))
        )
        PAGE.write_text(written_into(PAGE.read_text(), part, text))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
