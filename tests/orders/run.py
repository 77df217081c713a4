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

from tests.kits.pages import written_into
from tests.orders.page import PAGE, PART, table
from tests.orders.tally import FEW, Part, Tally
from tests.orders.worlds import BY_NAME, WORLDS

PARTS = 12
"""Into how many parts the plans of a world are cut, so that two processes end at the same time."""


def share_of(text: str) -> tuple[int, int]:
    """The share `2/5`, or that of this day: `today/5`."""
    which, _, of = text.partition("/")
    number = dt.date.today().toordinal() if which == "today" else int(which) - 1
    return number % int(of), int(of)


def _run(given: tuple[str, int, int, float]) -> Tally:
    gc.set_threshold(50_000, 20, 50)  # an order makes many objects, and few cycles
    name, number, faults, until = given
    return Part(BY_NAME[name], number, PARTS, faults, until).run()


def _says(tally: Tally) -> str:
    text = f"{tally.name}: {tally.orders:,} orders, {tally.orders_with_fault:,} with a fault"
    text += f" ({tally.plans:,} faults), {tally.seconds:.0f} s"
    if tally.bounded:
        text += f"; {tally.bounded} faults with {FEW} preemptions"
    if tally.cut:
        text += f"; {tally.cut} searches did not end"
    if tally.limits:
        text += f"; {sum(tally.limits.values())} ended at what the pages exclude"
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns its exit code: 1 if a rule was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", action="append", help="a part of the names of the worlds to run")
    parser.add_argument("--minutes", type=float, help="how long it may take")
    parser.add_argument("--share", default="1/1", help="a share of the work: 2/5, or today/5")
    parser.add_argument("--faults", type=int, default=1, help="how many faults an order has")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many processes")
    parser.add_argument("--page", action="store_true", help="write the table into reliability.md")
    given = parser.parse_args(arguments)
    wanted = [
        one for one in WORLDS if not given.world or any(part in one.name for part in given.world)
    ]
    until = float("inf") if given.minutes is None else time.monotonic() + 60 * given.minutes
    number, of = share_of(given.share)
    parts = range(PARTS if given.faults else 1)
    work = [(one.name, part, given.faults, until) for part in parts for one in wanted]
    work = work[number::of]
    tallies: dict[str, Tally] = {}
    begun = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        for done in pool.imap_unordered(_run, work):
            plans = max(done.plans, tallies.setdefault(done.name, Tally(done.name)).plans)
            tallies[done.name].add(done)
            tallies[done.name].plans = plans
            print(f"{time.monotonic() - begun:5.0f} s  {_says(done)}", flush=True)
            for one in done.found:
                print(f"FOUND {one}\n", flush=True)
    found = sum(len(one.found) for one in tallies.values())
    orders = sum(one.orders + one.orders_with_fault for one in tallies.values())
    print(f"{orders:,} orders of {len(tallies)} worlds; {found} break a rule.")
    if given.page:
        ordered = [(one, tallies[one.name]) for one in WORLDS if one.name in tallies]
        text = table(ordered, time.monotonic() - begun, given.jobs)
        PAGE.write_text(written_into(PAGE.read_text(), PART, text))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
