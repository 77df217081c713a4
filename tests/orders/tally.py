"""All orders of one world, without a fault and with one, counted."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.orders.bounded import Known
from tests.orders.execution import Outcome, search, shortest
from tests.orders.faults import DIES, LATE_AND_DEAD, Changes, Plan, with_one_more
from tests.orders.setting import Setting

MOST_SHOWN = 3
"""How many findings of a world are shown with their orders."""

MOST_SECONDS = 30.0
"""How long all orders of one plan are run; those without a fault twenty times as long. A plan that
has more has its orders with `FEW` preemptions run: where the answer of a lock got lost, say, all
ask for it again and again until they give up.
"""

FEW = 2


@dataclass
class Tally:
    """What the orders of a world met. `bounded` counts the plans with too many orders, of which
    those with few preemptions were run, and `cut` the searches that did not end in time.
    """

    name: str
    orders: int = 0
    steps: int = 0
    plans: int = 0
    orders_with_fault: int = 0
    bounded: int = 0
    cut: int = 0
    seconds: float = 0.0
    limits: Counter[str] = field(default_factory=Counter)
    found: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Takes over what another part of the world met."""
        self.orders += other.orders
        self.steps += other.steps
        self.plans += other.plans
        self.orders_with_fault += other.orders_with_fault
        self.bounded += other.bounded
        self.cut += other.cut
        self.seconds += other.seconds
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
        return cls(**{**values, "limits": Counter(values["limits"])})


@dataclass
class Part:
    """Part `number` of `of` of a world: of its plans of faults each `of`th. The first part has all
    orders without a fault, the others only those that show which changes there are. `until` is when
    it ends at the latest, by `time.monotonic`.
    """

    setting: Setting
    number: int = 0
    of: int = 1
    faults: int = 1
    until: float = float("inf")

    def run(self) -> Tally:
        """Runs the orders."""
        self._tally, self._known = Tally(self.setting.name), Known()
        begun = time.process_time()
        for base, changes in self._bases():
            if self.faults > 0:
                self._with_one_more(base, changes, self.faults)
        self._tally.seconds = time.process_time() - begun
        return self._tally

    def _bases(self) -> Sequence[tuple[Plan, Changes]]:
        """Runs the orders without a fault. Returns the plans on top of which faults come."""
        first = self.setting.most if self.number == 0 else 1
        outcome = self._search({}, first)
        if not self.setting.kills:
            self._count(outcome)
            return [({}, outcome.changes)]
        found: list[tuple[Plan, Changes]] = []
        for plan in with_one_more({}, outcome.changes, (DIES, LATE_AND_DEAD)):
            outcome = self._search(plan, self.setting.most)
            self._count(outcome)
            found.append((plan, outcome.changes))
        return found

    def _with_one_more(self, base: Plan, changes: Changes, left: int) -> None:
        for plan in with_one_more(base, changes, self.setting.faults):
            if left == 1:
                self._tally.plans += 1
                if self._tally.plans % self.of != self.number:
                    continue
            if time.monotonic() > self.until:
                self._tally.cut += 1
                return
            outcome = self._search(plan, self.setting.most_with_fault)
            if left == 1 or self.number == 0:  # each part runs what further faults come on top of
                self._tally.orders_with_fault += outcome.orders
                self._judge(outcome)
            if left > 1:
                self._with_one_more(plan, outcome.changes, left - 1)

    def _count(self, outcome: Outcome) -> None:
        if self.number == 0:
            self._tally.orders += outcome.orders
            self._tally.steps += round(outcome.steps * outcome.orders / max(1, outcome.executions))
            self._judge(outcome)

    def _search(self, plan: Plan, most: int | None) -> Outcome:
        longest = MOST_SECONDS if plan else 20 * MOST_SECONDS
        outcome = self._within(longest, plan, most)
        if plan and most is None and not outcome.complete and not outcome.found:
            outcome = self._within(4 * MOST_SECONDS, plan, FEW)
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
