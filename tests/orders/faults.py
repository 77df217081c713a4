"""What may go wrong with a change, and the plans of all single faults and of pairs of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
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

Plan = Mapping[str, Mapping[int, str]]
"""For each task, which of its changes has which fault. The first change is number 1."""

Changes = Mapping[str, Mapping[int, Collection[tuple[str, str]]]]
"""For each task, what each of its changes was in some order: its verb and its path."""


def happens(kind: str, verb: str, path: str) -> Fault | None:
    """What happens to this change. None if such a change cannot have that fault."""
    if kind in (LATE, LATE_AND_DEAD) and not (
        verb in ("put", "commit") or (verb == "write" and path.endswith("/LATEST"))
    ):
        return None
    if kind == REFUSED and verb != "put":
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


def with_one_more(plan: Plan, changes: Changes, kinds: Sequence[str]) -> Iterator[Plan]:
    """The plans with one fault more, after all that is planned, at each of these changes that can
    have it. `changes` are those of all orders with the faults of the plan: up to the new fault
    every order is one of them.
    """
    for task, made in changes.items():
        for kind in kinds:
            for at, what in sorted(made.items()):
                own = plan.get(task, {})
                if all(at > one for one in own) and any(happens(kind, *one) for one in what):
                    yield {**plan, task: {**own, at: kind}}
