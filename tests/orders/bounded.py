"""All orders with few *preemptions*: switches away from a task that could go on. For programs that
have too many orders, and to show what was found with the fewest switches.

A switch just before a step that no other task can notice makes the same order as one after it. So
only steps that may depend on another task are such points. Which these are is learned while the
orders are run, and all is run again if more have become known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic

from tests.orders.accesses import Access, dependent
from tests.orders.explorer import Event, P, execute

OF_PROCESS: Final = ", request "
"""What stands between the name of a process and the number of its request."""


@dataclass
class Known:
    """What each task was seen to touch, and which steps are therefore points for a switch."""

    touched: dict[str, set[Access]] = field(default_factory=dict)
    shared: dict[tuple[str, Access], bool] = field(default_factory=dict)

    def add(self, pending: Mapping[str, Access]) -> None:
        for task, access in pending.items():
            there = self.touched.setdefault(task, set())
            if access not in there:
                there.add(access)
                self.shared.clear()

    def is_shared(self, task: str, access: Access) -> bool:
        """Whether another task may notice when this step is taken."""
        found = self.shared.get((task, access))
        if found is None:
            found = self.shared[task, access] = any(
                dependent(access, one)
                for other, theirs in self.touched.items()
                if other != task
                for one in theirs
            )
        return found

    def size(self) -> int:
        return sum(map(len, self.touched.values()))


@dataclass
class Bounded(Generic[P]):
    """All orders with at most `most` preemptions. `look` is as that of `Explorer`."""

    start: Callable[[], P]
    look: Callable[[P, list[Event]], bool]
    most: int
    orders: int = 0
    repeated: int = 0
    steps: int = 0
    complete: bool = False
    known: Known = field(default_factory=Known)

    def run(self) -> Bounded[P]:
        """Runs them all, or until somebody has seen enough."""
        while True:
            size, self.orders = self.known.size(), 0
            self.complete = self._run()
            if not self.complete or self.known.size() == size:
                return self

    def _run(self) -> bool:
        way: list[list[str]] = []  # at each step what is still to be tried, the present one last
        while True:
            if not self._execute(way):
                return False
            while way:
                way[-1].pop()
                if way[-1]:
                    break
                way.pop()
            if not way:
                return True

    def _execute(self, way: list[list[str]]) -> bool:
        preempted, last = 0, ""

        def choose(pending: Mapping[str, Access], events: list[Event]) -> str:
            nonlocal preempted, last
            self.known.add(pending)
            if len(events) == len(way):
                way.append(self._choices(pending, last, preempted))
            chosen = way[len(events)][-1]
            preempted += bool(last) and chosen != self._goes_on(pending, last, chosen)
            last = chosen
            return chosen

        program = self.start()
        events = execute(program, choose)
        self.orders += 1
        self.steps += len(events)
        return self.look(program, events)

    def _goes_on(self, pending: Mapping[str, Access], last: str, otherwise: str) -> str:
        """The task that goes on without a preemption. Requests of one process are one task here:
        another of them goes on where one has ended.
        """
        if last in pending:
            return last
        own = [one for one in pending if owner(one) == owner(last)]
        return min(own, default=otherwise)

    def _choices(self, pending: Mapping[str, Access], last: str, preempted: int) -> list[str]:
        going = self._goes_on(pending, last, "")
        if not going:
            return sorted(pending, reverse=True)
        others = sorted((one for one in pending if one != going), reverse=True)
        may_switch = preempted < self.most and self.known.is_shared(going, pending[going])
        return [*others, going] if may_switch else [going]


def owner(task: str) -> str:
    """The process that a request is of."""
    return task.partition(OF_PROCESS)[0]
