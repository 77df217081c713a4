"""The table of the worlds, as a part of docs/reliability.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.orders.planted import BUGS
from tests.orders.setting import Setting
from tests.orders.tally import FEW, Tally

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
PART = "orders"
PAIRS = "pairs of faults"
NOT_RUN = "not run"


def table(tallies: Sequence[tuple[Setting, Tally]]) -> str:
    """The worlds in Markdown."""
    minutes = sum(one.seconds for _, one in tallies) / 60
    orders = sum(one.orders for _, one in tallies)
    faulty = sum(one.orders_with_fault for _, one in tallies)
    how = "make orders PAGE=--page" if faulty else "python -m tests.orders.run --faults 0 --page"
    lines = [
        f"{_run_on(tallies)} by `{how}`: {orders:,} orders without a "
        f"fault and {faulty:,} with one, in {minutes:.0f} minutes of processors.",
        "",
        "| world | operations | orders | bound | faults | orders with one fault | bound | planted bugs |",
        "|---|---|---|---|---|---|---|---|",
        *(_row(setting, tally) for setting, tally in tallies),
    ]
    return "\n".join(lines)


def table_of_pairs(tallies: Sequence[tuple[Setting, Tally]], few: int, bounds: str) -> str:
    """The worlds that were run with two faults, in Markdown.

    Args:
        tallies: what each of the worlds met.
        few: how many preemptions an order has where all orders of a pair take too long.
        bounds: the arguments of the command that say how much is run.
    """
    minutes = sum(tally.seconds for _, tally in tallies) / 60
    pairs = sum(tally.plans for _, tally in tallies)
    pairs_run = sum(tally.plans_run for _, tally in tallies)
    orders = sum(tally.orders_with_fault for _, tally in tallies)
    lines = [
        f"{_run_on(tallies)} by `python -m tests.orders.run --faults 2{bounds} --page`: "
        f"{pairs_run:,} of {pairs:,} pairs of faults and {orders:,} orders with one or two, "
        f"in {minutes:.0f} minutes of processors.",
        "",
        "| world | pairs of faults | run | orders with one or two faults | bound |",
        "|---|---|---|---|---|",
        *(
            f"| {setting.name} | {tally.plans:,} | {tally.plans_run:,} | {tally.orders_with_fault:,} | "
            f"{_bound(setting.most_with_fault)}{_cut(tally, few)} |"
            for setting, tally in tallies
        ),
    ]
    return "\n".join(lines)


def _run_on(tallies: Sequence[tuple[Setting, Tally]]) -> str:
    """The days on which the parts were run, some of which may have been kept."""
    days = sorted({day for _, tally in tallies for day in tally.days})
    return f"Run on {days[0]}" if len(days) == 1 else f"Run from {days[0]} to {days[-1]}"


def _row(setting: Setting, tally: Tally) -> str:
    bugs = ", ".join(one.name for one in BUGS if one.world == setting.name)
    cut = _cut(tally, FEW)
    cells = [
        setting.name,
        str(tally.operations),
        f"{tally.orders:,}",
        _bound(setting.most) + ("" if tally.plans else cut),
        f"{tally.plans:,}" if tally.plans else NOT_RUN,
        f"{tally.orders_with_fault:,}" if tally.plans else NOT_RUN,
        _bound(setting.most_with_fault) + (cut if tally.plans else ""),
        bugs,
    ]
    return f"| {' | '.join(cells)} |"


def _cut(tally: Tally, few: int) -> str:
    """What of a world was run with few preemptions only, or did not end."""
    cut = (
        f", but {_counted(tally.bounded, 'fault')} with {_counted(few, 'preemption')}"
        if tally.bounded
        else ""
    )
    return cut + (f", {_counted(tally.cut, 'search')} cut" if tally.cut else "")


def _counted(number: int, what: str) -> str:
    """A number with its noun."""
    plural = f"{what}es" if what.endswith("ch") else f"{what}s"
    return f"{number:,} {what if number == 1 else plural}"


def _bound(most: int | None) -> str:
    if most is None:
        return "all"
    return _counted(most, "preemption")
