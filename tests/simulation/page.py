"""The figures of a torture run, as a part of docs/reliability.md."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.bug import Bug
    from tests.simulation.torture import Tally

PART = "figures"


def figures(tally: Tally, bugs: Sequence[tuple[Bug, int | None]], seed: int, minutes: float) -> str:
    """The figures in Markdown."""
    rate = 60 * tally.schedules / max(1e-9, tally.seconds)
    steps, operations = (
        round(number / max(1, tally.schedules)) for number in (tally.steps, tally.operations)
    )
    verbs, faults = _sides(tally.faults)
    phases, actors = _sides(tally.meetings)
    lines = [
        f"Written on {time.strftime('%Y-%m-%d')} by `make torture MINUTES={minutes:g} SEED={seed} PAGE=--page`.",
        "",
        "| figure | value |",
        "|---|---|",
        f"| schedules | {tally.schedules:,} |",
        f"| steps in a schedule, on average | {steps} |",
        f"| storage operations in a schedule, on average | {operations:,} |",
        f"| schedules a minute and core | {rate:.0f} |",
        f"| schedules that failed | {len(tally.failed)} |",
        f"| schedules that ended at a limit | {sum(tally.limits.values())} |",
        f"| pairs of operation and fault that occurred | {len(tally.faults)} "
        f"({len(verbs)} operations, {len(faults)} faults) |",
        f"| pairs of a phase in which one waits and an actor who goes on meanwhile | {len(tally.meetings)} "
        f"({len(phases)} phases, {len(actors)} actors) |",
        f"| planted bugs caught | {sum(1 for _, at in bugs if at is not None)} of {len(bugs)} |",
        "",
        *_table("Limits", "limit", "schedules", sorted(tally.limits.items())),
        *_pairs("Faults by operation", tally.faults),
        *_pairs("Actors by phase", tally.meetings),
        "### Planted bugs",
        "",
        "Each must break the rule that its declaration names. The last column says which schedule does.",
        "",
        "| bug | what it does | rule that it breaks | schedule |",
        "|---|---|---|---|",
        *(f"| {bug.name} | {bug.what} | {bug.rule} | {_schedule(bug, at)} |" for bug, at in bugs),
    ]
    return "\n".join(lines)


def _schedule(bug: Bug, at: int | None) -> str:
    if at is None:
        return "not caught"
    return f"seed {at}" if bug.script is None else "its own"


def _sides(pairs: Iterable[tuple[str, str]]) -> tuple[list[str], list[str]]:
    listed = list(pairs)
    return sorted({one for one, _ in listed}), sorted({other for _, other in listed})


def _table(title: str, left: str, right: str, rows: Iterable[tuple[str, int]]) -> list[str]:
    return [
        f"### {title}",
        "",
        f"| {left} | {right} |",
        "|---|---|",
        *(f"| {one} | {n} |" for one, n in rows),
        "",
    ]


def _pairs(title: str, met: Counter[tuple[str, str]]) -> list[str]:
    rows, columns = _sides(met)
    return [
        f"### {title}",
        "",
        f"| | {' | '.join(rows)} |",
        f"|---|{'---|' * len(rows)}",
        *(f"| {one} | {' | '.join(str(met[row, one]) for row in rows)} |" for one in columns),
        "",
    ]
