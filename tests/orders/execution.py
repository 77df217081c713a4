"""One order of a world, from its start to its end, and the search for all of them."""

from __future__ import annotations

import logging
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from paimon_stream.errors import PaimonStreamError
from tests.orders.accesses import Access
from tests.orders.bounded import Bounded, Known
from tests.orders.checks import check_deletions, check_end
from tests.orders.explorer import Event, Explorer, Stopped, clocks
from tests.orders.faults import Plan, in_words
from tests.orders.setting import Setting
from tests.orders.threads import Late, LateRequest, Thread
from tests.simulation.catalogs import answering
from tests.simulation.limits import Limit
from tests.simulation.remembered import remembered
from tests.simulation.rewriting import rewriting
from tests.simulation.rules import NO_REASON, PYTHON_ERROR
from tests.simulation.state import Violation


@dataclass(frozen=True)
class Finding:
    """An order in which a rule is broken."""

    rule: str
    what: str
    plan: Plan
    trace: tuple[str, ...]
    switches: int

    def __str__(self) -> str:
        return "\n".join([f"{self.rule} ({in_words(self.plan)}): {self.what}", *self.trace])


class Execution:
    """One order. It is a `Program` of the explorer."""

    def __init__(self, setting: Setting, plan: Plan) -> None:
        self.setting, self.plan = setting, plan
        self.stage, threads = setting.begin(plan)
        self.threads: dict[str, Thread | LateRequest] = {one.name: one for one in threads}
        self.rule, self.what, self.limit = "", "", ""
        self._owner: dict[str, str] = {}
        self._seen: dict[str, Access] = {}
        self._sent: list[Late] = []
        self._around = ExitStack()
        self._around.enter_context(rewriting())
        if setting.catalog:
            self._around.enter_context(answering(self.stage))

    def pending(self) -> dict[str, Access]:
        found: dict[str, Access] = {}
        for name, thread in self.threads.items():
            for task, access in thread.pending().items():
                found[task] = access
                self._owner[task] = name
        self._seen = found
        return found

    def step(self, task: str, number: int) -> Event:
        thread = self.threads[self._owner[task]]
        try:
            event = thread.step(task, number)
            if self.stage.verdict is not None:
                raise self.stage.verdict
            if event.access.changes or getattr(thread, "at", "") != "work":
                self.stage.check()
        except Exception as error:  # noqa: BLE001  it is judged here
            self._stop(error)
            access = self._seen[task]
            raise Stopped(Event(task, access, "… this breaks the rule")) from None
        for late in self.stage.late:
            if late not in self._sent:
                self._sent.append(late)  # type: ignore[arg-type]
                name = f"late request {len(self._sent)} of {late[0].actor.name}"
                self.threads[name] = LateRequest(self.stage, name, late, (number,))  # type: ignore[arg-type]
        return event

    def ended(self) -> None:
        try:
            threads = [one for one in self.threads.values() if isinstance(one, Thread)]
            check_end(self.stage, threads, self.setting.may)
        except Exception as error:  # noqa: BLE001  it is judged here
            self._stop(error)
            raise Stopped from None

    def _stop(self, error: Exception) -> None:
        if isinstance(error, Limit):
            self.limit = str(error)
        elif isinstance(error, Violation):
            self.rule, self.what = error.rule, str(error)
        elif isinstance(error, PaimonStreamError):
            self.rule, self.what = NO_REASON, f"{type(error).__name__}: {error}"
        else:
            at = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(at.filename).name}:{at.lineno}"
            self.rule, self.what = PYTHON_ERROR, f"{type(error).__name__} in {place}: {error}"

    def close(self) -> None:
        self.stage.now = None
        for one in self.threads.values():
            one.close()
        self._around.close()


@dataclass
class Outcome:
    """What a search met. `fired` says in how many orders a planned fault came about, and `changes`
    what the changes of each thread were.
    """

    plan: Plan
    orders: int = 0
    repeated: int = 0
    steps: int = 0
    complete: bool = False
    seconds: float = 0.0
    fired: int = 0
    changes: dict[str, dict[int, set[tuple[str, str]]]] = field(default_factory=dict)
    limits: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    found: list[Finding] = field(default_factory=list)

    @property
    def executions(self) -> int:
        """How often the world was run, also to learn about it."""
        return sum(self.ends.values()) + sum(self.limits.values()) + len(self.found)


Watch = Callable[[Execution, list[Event]], None]


def search(
    setting: Setting,
    plan: Plan | None = None,
    *,
    most: int | None = None,
    seconds: float | None = None,
    stop: bool = True,
    watch: Watch | None = None,
    known: Known | None = None,
) -> Outcome:
    """Runs all orders of a world with the faults of a plan, or those with at most `most`
    preemptions. Ends early after `seconds` of this process, and at the first order that
    breaks a rule unless it is not to `stop` there. `watch` is told of each order. `known` is what
    an earlier search with few preemptions has learned of the world.
    """
    outcome = Outcome(plan or {})
    begun = time.process_time()

    def start() -> Execution:
        return Execution(setting, outcome.plan)

    def look(execution: Execution, events: list[Event]) -> bool:
        if not execution.rule and not execution.limit:
            if most is not None:
                clocks(events, lambda *_: None)
            try:
                check_deletions(execution.stage, events)
            except Violation as broken:
                execution.rule, execution.what = broken.rule, str(broken)
        _note(outcome, execution, events)
        if watch is not None:
            watch(execution, events)
        late = seconds is not None and time.process_time() - begun > seconds
        return not late and not (stop and outcome.found)

    searcher: Explorer[Execution] | Bounded[Execution]
    if most is None:
        searcher = Explorer(start, look)
    else:
        searcher = Bounded(start, look, most, known=Known() if known is None else known)
    logging.disable(logging.CRITICAL)
    try:
        with remembered():
            searcher.run()
    finally:
        logging.disable(logging.NOTSET)
    outcome.orders, outcome.repeated = searcher.orders, searcher.repeated
    outcome.steps, outcome.complete = searcher.steps, searcher.complete
    outcome.seconds = time.process_time() - begun
    return outcome


def _note(outcome: Outcome, execution: Execution, events: list[Event]) -> None:
    threads = [one for one in execution.threads.values() if isinstance(one, Thread)]
    outcome.fired += any(one.fired for one in threads)
    for one in threads:
        changes = outcome.changes.setdefault(one.name, {})
        for at, change in enumerate(one.made, 1):
            changes.setdefault(at, set()).add(change)
    if execution.limit:
        outcome.limits[execution.limit] += 1
    if execution.rule:
        tasks = [one.task for one in events]
        switches = sum(one != other for one, other in pairwise(tasks))
        trace = tuple(f"{one.task}: {one.words}" for one in events)
        found = Finding(execution.rule, execution.what, outcome.plan, trace, switches)
        outcome.found.append(found)
    elif not execution.limit:
        outcome.ends["; ".join(f"{one.name} {', '.join(one.log)}" for one in threads)] += 1


def shortest(setting: Setting, plan: Plan, rule: str, *, most: int = 4) -> Finding | None:
    """An order that breaks the rule with the fewest preemptions; None if none of few does."""
    for preemptions in range(most + 1):
        outcome = search(setting, plan, most=preemptions, stop=False)
        match = [one for one in outcome.found if one.rule == rule]
        if match:
            return min(match, key=lambda one: one.switches)
    return None
