"""What may go wrong with a change, and the plans of all single faults and of pairs of them."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Final

from tests.simulation.faults import Fault

DIES: Final = "dies"
LOST: Final = "answer lost"
FAILS: Final = "fails"
LATE: Final = "late"
LATE_AND_DEAD: Final = "late and dead"
REFUSED: Final = "refused"

KINDS: Final[Mapping[str, Fault]] = {
    DIES: Fault.DIES_BEFORE,
    LOST: Fault.ANSWER_LOST,
    FAILS: Fault.FAILS_BEFORE,
    LATE: Fault.LATE,
    LATE_AND_DEAD: Fault.LATE_AND_DEAD,
    REFUSED: Fault.CONFLICT,
}
"""By its name in a plan. A change that is `refused` is a put which the store's client has repeated
in vain because of other requests, though nothing is there.
"""

WITHOUT_EFFECT: Final = frozenset(
    {Fault.DIES_BEFORE, Fault.FAILS_BEFORE, Fault.LATE, Fault.LATE_AND_DEAD, Fault.CONFLICT}
)
"""With these a change does nothing now."""

MOST_CHANGES: Final = 80
"""More changes than any task makes."""

Plan = Mapping[str, Mapping[int, str]]
"""For each task, which of its changes has which fault. The first change is number 1."""


def happens(kind: str, verb: str, path: str) -> Fault | None:
    """What happens to this change. None if such a change cannot have that fault."""
    if kind in (LATE, LATE_AND_DEAD) and not (
        verb in ("put", "commit") or (verb == "write" and path.endswith("/LATEST"))
    ):
        return None
    if kind == REFUSED and verb != "put":
        return None
    if kind == REFUSED and "/" not in path:
        return None
    return KINDS[kind]


def in_words(plan: Plan) -> str:
    """A plan, for people."""
    parts = [
        f"change {at} of {task}: {kind}"
        for task, given in plan.items()
        for at, kind in given.items()
    ]
    return "; ".join(parts) or "no fault"


def single(
    tasks: Sequence[str], kinds: Sequence[str], base: Plan | None = None
) -> Generator[Plan, tuple[int, bool], None]:
    """The plans with one fault more than `base`. Whoever asks for the next one says how many
    changes the task with the fault has made at most, and whether the fault came about.
    """
    given = dict(base or {})
    for task in tasks:
        for kind in kinds:
            for at in range(1, MOST_CHANGES):
                if at in given.get(task, {}):
                    continue
                changes, _ = yield {**given, task: {**given.get(task, {}), at: kind}}
                if changes < at:
                    break
