"""Every order of the steps of a program whose tasks meet only in what `accesses.py` describes.

Orders that differ only in steps which do not depend on each other are one order: of each such
class one is executed, from the start. Which ones remain is found as in "Optimal dynamic partial
order reduction" by Abdulla, Aronis, Jonsson and Sagonas (2014): wherever two dependent steps could
have come the other way round, *source sets* say what must begin there instead, and *sleep sets*
leave out what was tried. Nothing is kept of a state, so a program need not be copied: it is run
again from its start.

This module knows nothing of tables. `test_explorer.py` compares it with all orders of small
programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from tests.orders.accesses import LIST, NONE, Access, dependent


@dataclass(slots=True)
class Event:
    """A step that was taken. `follows` are the numbers of the steps that came right before it in
    its own task, or in that which began it, or in those that it waited for. `clock` says for each
    task which is its last step that happened before this one.
    """

    task: str
    access: Access
    words: str
    follows: tuple[int, ...] = ()
    clock: dict[str, int] = field(default_factory=dict)


class Program(Protocol):
    """One execution of a program. It does the same whenever it is given the same orders."""

    def pending(self) -> Mapping[str, Access]:
        """The tasks that can go on, and all that the next step of each may touch."""

    def step(self, task: str, number: int) -> Event:
        """The next step of a task, which is step `number` of the execution. Raises `Stopped`."""

    def ended(self) -> None:
        """No task can go on. Raises `Stopped`."""

    def close(self) -> None:
        """Ends what still runs."""


P = TypeVar("P", bound=Program)


class Stopped(Exception):
    """The execution ends here. `event` is the step that was under way, if one was."""

    def __init__(self, event: Event | None = None) -> None:
        super().__init__()
        self.event = event


def execute(
    program: Program, choose: Callable[[Mapping[str, Access], list[Event]], str | None]
) -> list[Event]:
    """Runs a program from its start. `choose` is given what can go on and the steps so far, and
    names the task that does; with None the execution is broken off. Returns the steps.
    """
    events: list[Event] = []
    try:
        while pending := program.pending():
            chosen = choose(pending, events)
            if chosen is None:
                return events
            events.append(program.step(chosen, len(events)))
        program.ended()
    except Stopped as stopped:
        if stopped.event is not None:
            events.append(stopped.event)
    finally:
        program.close()
    return events


@dataclass(slots=True)
class Node:
    """A state on the way: what could go on there, what need not be tried, what was, and what must
    be. Of what was tried, and of what need not be, it is known what the step does there.
    """

    pending: Mapping[str, Access]
    asleep: Mapping[str, Access]
    chosen: str
    tried: dict[str, Access] = field(default_factory=dict)
    wanted: set[str] = field(default_factory=set)

    def next(self) -> str | None:
        """What is to be tried next."""
        return min(self.wanted - self.tried.keys() - self.asleep.keys(), default=None)


@dataclass
class Explorer(Generic[P]):
    """A search. `start` begins an execution, and `look` is told of each that has ended, with its
    steps; it returns whether the search goes on. `orders` counts the executions, `repeated` those
    that sleep sets broke off.
    """

    start: Callable[[], P]
    look: Callable[[P, list[Event]], bool]
    orders: int = 0
    repeated: int = 0
    steps: int = 0
    complete: bool = False

    def run(self) -> Explorer[P]:
        """Searches until all orders are known, or somebody has seen enough."""
        way: list[Node] = []
        while True:
            goes_on = self._execute(way)
            while way:
                node = way[-1]
                node.tried.setdefault(node.chosen, node.pending[node.chosen])
                found = node.next()
                if found is not None:
                    node.chosen = found
                    break
                way.pop()
            if not way:
                self.complete = True
                return self
            if not goes_on:
                return self

    def _execute(self, way: list[Node]) -> bool:
        """Goes the way that is chosen, and on to an end. Returns whether the search goes on."""
        first = max(0, len(way) - 1)
        known = False

        def choose(pending: Mapping[str, Access], events: list[Event]) -> str | None:
            nonlocal known
            if len(events) == len(way):
                node = _node(pending, way, events)
                if node is None:
                    known = True
                    return None
                way.append(node)
            return way[len(events)].chosen

        program = self.start()
        events = execute(program, choose)
        for node, event in zip(way[first:], events[first:], strict=False):
            node.tried[node.chosen] = event.access
        self.steps += len(events)
        self.orders += not known
        self.repeated += known
        _find_races(events, way, first)
        return known or self.look(program, events)


def _node(pending: Mapping[str, Access], way: list[Node], events: list[Event]) -> Node | None:
    """The state after these steps. None if all that can go on there was tried elsewhere."""
    asleep: dict[str, Access] = {}
    if way:
        before, last = way[-1], events[-1]
        for known in (before.asleep, before.tried):
            for one, access in known.items():
                if one in pending and one != last.task and not dependent(access, last.access):
                    asleep[one] = access
    awake = [one for one in pending if one not in asleep]
    if not awake:
        return None
    same = events[-1].task if events else ""
    chosen = same if same in awake else awake[0]  # few switches are easy to read
    return Node(pending, asleep, chosen, wanted={chosen})


# -- what happened before what
# ----------------------------------------------------------------------------------


def clocks(events: list[Event], race: Callable[[int, int], None]) -> None:
    """Gives each step its clock, and tells of each two steps that could have come the other way
    round: those that depend on each other, with nothing between them that forces their order.
    """
    on_path: dict[str, list[int]] = {}
    listings: list[int] = []
    changes: list[int] = []
    for number, event in enumerate(events):
        event.clock = clock = _of_own_task(events, event)
        accesses = (event.access, *event.access.also)
        earlier: set[int] = set()
        for one in accesses:
            if one.kind == LIST:
                earlier.update(changes)
            elif one.kind != NONE:
                earlier.update(on_path.get(one.path, ()))
                if one.changes:
                    earlier.update(listings)
        for at in sorted(earlier, reverse=True):
            other = events[at]
            if clock.get(other.task, -1) >= at or not dependent(other.access, event.access):
                continue
            race(at, number)
            _join(clock, other.clock)
            clock[other.task] = at
        for one in accesses:
            if one.kind == LIST:
                listings.append(number)
            elif one.kind != NONE:
                on_path.setdefault(one.path, []).append(number)
        if event.access.changes:
            changes.append(number)


def _of_own_task(events: list[Event], event: Event) -> dict[str, int]:
    """What happened before a step because of its own task alone."""
    clock: dict[str, int] = {}
    for before in event.follows:
        _join(clock, events[before].clock)
        clock[events[before].task] = max(before, clock.get(events[before].task, -1))
    return clock


def _join(clock: dict[str, int], other: Mapping[str, int]) -> None:
    for task, at in other.items():
        if clock.get(task, -1) < at:
            clock[task] = at


def _find_races(events: list[Event], way: list[Node], first: int) -> None:
    """Says at each state what must be tried there, too. Races among older steps are known."""

    def race(at: int, number: int) -> None:
        if number >= first and at < len(way):
            _want(events, way[at], at, number)

    clocks(events, race)


def _want(events: list[Event], node: Node, at: int, number: int) -> None:
    """Steps `at` and `number` are to come the other way round. One of the *initials* is to be
    tried at the state before `at`: the tasks that can begin what does not need step `at`.
    """
    last, task = events[number], events[at].task
    between = [k for k in range(at + 1, number) if events[k].clock.get(task, -1) < at]
    initials: set[str] = set()
    seen: set[str] = set()
    for k in between:
        one = events[k]
        if one.task not in seen:
            seen.add(one.task)
            if not _follows_any(events, between, k, one.clock):
                initials.add(one.task)
    if last.task not in seen:
        own = _of_own_task(events, last)
        forced = any(dependent(events[m].access, last.access) for m in between)
        if not forced and not _follows_any(events, between, number, own):
            initials.add(last.task)
    initials &= set(node.pending)
    if not initials:
        node.wanted |= set(node.pending)
    elif not initials & (node.wanted | node.tried.keys()):
        node.wanted.add(last.task if last.task in initials else min(initials))


def _follows_any(
    events: list[Event], steps: Iterable[int], number: int, clock: Mapping[str, int]
) -> bool:
    """Whether one of the steps happened before step `number`."""
    return any(m < number and clock.get(events[m].task, -1) >= m for m in steps)


def signature(events: list[Event]) -> int:
    """The same for two orders that differ only in steps which do not depend on each other. The
    steps must have their clocks.
    """
    counts: dict[str, int] = {}
    names: list[tuple[str, int]] = []
    for event in events:
        counts[event.task] = counts.get(event.task, 0) + 1
        names.append((event.task, counts[event.task]))
    parts = [
        (names[at], event.words, tuple(sorted(names[one] for one in event.clock.values())))
        for at, event in enumerate(events)
    ]
    return hash(tuple(sorted(parts)))
