"""All orders of one world, without a fault and with one, counted."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.orders.bounded import Known
from tests.orders.execution import Outcome, search, shortest
from tests.orders.faults import DIES, LATE_AND_DEAD, Changes, Plan, with_one_more
from tests.orders.setting import Setting

MOST_SHOWN = 3
"""How many findings of a world are shown with their orders."""

MOST_SECONDS = 30.0
"""How long all orders of one plan are run; those without a fault twenty times as long."""

FEW = 2
"""How many preemptions an order has where all orders of a plan take longer. Where the answer of a
lock got lost, say, all ask for it again and again until they give up.
"""


@dataclass
class Tally:
    """What the orders of a world met.

    Attributes:
        name: the world.
        orders: the orders without a fault.
        steps: the steps of these, added up.
        plans: the plans of faults that there are.
        plans_run: those of them that were run.
        orders_with_fault: the orders of these, and of the plans that they come on top of.
        bounded: the plans with too many orders, of which those with few preemptions were run.
        cut: the searches that did not end in time.
        seconds: of the processor.
        days: the first and the last day on which a part was run, as ISO dates; empty before.
        limits: how often an order ended at what the pages exclude, by the limit.
        found: the orders that break a rule, for people.
    """

    name: str
    orders: int = 0
    steps: int = 0
    plans: int = 0
    plans_run: int = 0
    orders_with_fault: int = 0
    bounded: int = 0
    cut: int = 0
    seconds: float = 0.0
    days: tuple[str, ...] = ()
    limits: Counter[str] = field(default_factory=Counter)
    found: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Takes over what another part of the world met."""
        self.orders += other.orders
        self.steps += other.steps
        self.plans = max(self.plans, other.plans)
        self.plans_run += other.plans_run
        self.orders_with_fault += other.orders_with_fault
        self.bounded += other.bounded
        self.cut += other.cut
        self.seconds += other.seconds
        both = sorted({*self.days, *other.days})
        self.days = tuple(dict.fromkeys((both[0], both[-1]))) if both else ()
        self.limits += other.limits
        self.found += other.found

    @property
    def operations(self) -> int:
        """The steps of an order without a fault, on average."""
        return round(self.steps / max(1, self.orders))

    def encoded(self) -> str:
        """The tally as one line of JSON."""
        return json.dumps(vars(self))

    @classmethod
    def decoded(cls, line: str) -> Tally:
        """What `encoded` gave."""
        values = json.loads(line)
        return cls(**{**values, "days": tuple(values["days"]), "limits": Counter(values["limits"])})


_WHOLE: Final = 20
"""A world that has at most this many times the plans that are wanted is run as a whole."""


def evenly(plans: Sequence[Plan], most: int | None) -> Sequence[Plan]:
    """At most this number of plans, spread evenly over all of them. All plans if these are few."""
    if most is None or len(plans) <= _WHOLE * most:
        return plans
    return [plans[place * len(plans) // most] for place in range(most)]


def faults_of(plan: Plan) -> frozenset[tuple[str, int, str]]:
    """The faults of a plan, in whichever order they were added to it."""
    return frozenset(
        (task, at, kind) for task, planned in plan.items() for at, kind in planned.items()
    )


@dataclass
class Part:
    """A part of a world.

    Attributes:
        setting: the world.
        number: which part this is. The first has all orders without a fault, the others only those
            that show which changes there are.
        of: how many parts there are. Of the plans of faults, each part runs each `of`th.
        faults: how many faults a plan has.
        until: when it ends at the latest, by `time.monotonic`.
        seconds: how long all orders of one plan are run.
        few: how many preemptions an order has at most where these take longer.
        most_plans: how many plans of faults are run at most. They are spread evenly over all.
    """

    setting: Setting
    number: int = 0
    of: int = 1
    faults: int = 1
    until: float = float("inf")
    seconds: float = MOST_SECONDS
    few: int = FEW
    most_plans: int | None = None

    def run(self) -> Tally:
        """Runs the orders."""
        self._tally, self._known = Tally(self.setting.name), Known()
        begun = time.process_time()
        bases = self._bases()
        if self.faults > 0:
            self._run_plans([plan for base in bases for plan in self._plans(*base, self.faults)])
        self._tally.seconds = time.process_time() - begun
        self._tally.days = (dt.date.today().isoformat(),)
        return self._tally

    def _bases(self) -> Sequence[tuple[Plan, Changes]]:
        """Runs the orders without a fault. Returns the plans on top of which faults come."""
        outcome = self._search({}, self.setting.most if self.number == 0 else 1)
        if not self.setting.kills:
            self._count(outcome)
            return [({}, outcome.changes)]
        bases: list[tuple[Plan, Changes]] = []
        for plan in with_one_more({}, outcome.changes, (DIES, LATE_AND_DEAD)):
            outcome = self._search(plan, self.setting.most)
            self._count(outcome)
            bases.append((plan, outcome.changes))
        return bases

    def _plans(self, base: Plan, changes: Changes, more: int) -> list[Plan]:
        """The plans that have so many faults more than the base, each of them once. The orders of
        the plans with fewer faults are run for this: they show which changes there are.
        """
        plans = list(with_one_more(base, changes, self.setting.faults))
        if more == 1:
            return plans
        with_more: dict[frozenset[tuple[str, int, str]], Plan] = {}
        for plan in plans:
            if self._is_late():
                break
            outcome = self._search(plan, self.setting.most_with_fault)
            if self.number == 0:
                self._count_with_fault(outcome)
            for longer in self._plans(plan, outcome.changes, more - 1):
                with_more.setdefault(faults_of(longer), longer)
        return list(with_more.values())

    def _run_plans(self, plans: Sequence[Plan]) -> None:
        self._tally.plans = len(plans)
        chosen = evenly(plans, self.most_plans)
        for plan in chosen[self.number :: self.of]:
            if self._is_late():
                return
            self._count_with_fault(self._search(plan, self.setting.most_with_fault))
            self._tally.plans_run += 1

    def _is_late(self) -> bool:
        """Whether the time is up. What is left out then is counted as one search."""
        late = time.monotonic() > self.until
        self._tally.cut += late
        return late

    def _count_with_fault(self, outcome: Outcome) -> None:
        self._tally.orders_with_fault += outcome.orders
        self._judge(outcome)

    def _count(self, outcome: Outcome) -> None:
        if self.number == 0:
            self._tally.orders += outcome.orders
            self._tally.steps += round(outcome.steps * outcome.orders / max(1, outcome.executions))
            self._judge(outcome)

    def _search(self, plan: Plan, most: int | None) -> Outcome:
        longest = self.seconds if plan else 20 * MOST_SECONDS
        outcome = self._within(longest, plan, most)
        if plan and most is None and not outcome.complete and not outcome.found:
            outcome = self._within(4 * MOST_SECONDS, plan, self.few)
            self._tally.bounded += 1
        return outcome

    def _within(self, longest: float, plan: Plan, most: int | None) -> Outcome:
        seconds = min(longest, max(1.0, self.until - time.monotonic()))
        return search(self.setting, plan, most=most, seconds=seconds, known=self._known)

    def _judge(self, outcome: Outcome) -> None:
        tally = self._tally
        tally.limits += outcome.limits
        tally.cut += not outcome.complete and not outcome.found
        for found in outcome.found:
            if len(tally.found) < MOST_SHOWN:
                few = shortest(self.setting, found.plan, found.rule, most=2)
                tally.found.append(f"{self.setting.name}: {few or found}")
            else:
                tally.found.append(f"{self.setting.name}: {str(found).partition(chr(10))[0]}")
