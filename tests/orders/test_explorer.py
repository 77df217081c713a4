"""The search itself, on small programs of which all orders can be listed."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from tests.kits.seeds import seeds
from tests.orders.accesses import (
    FILES,
    LIST,
    LOOK,
    MAKE,
    NAMES,
    READ,
    REMOVE,
    REPLACE,
    Access,
    dependent,
)
from tests.orders.bounded import Bounded
from tests.orders.explorer import Event, Explorer, clocks, signature

Step = tuple[str, str]
"""A verb and a path."""


class Toy:
    """Tasks that are lists of operations on a few files. The second half of a task depends on what
    it has read.
    """

    def __init__(self, tasks: Mapping[str, list[Step]]) -> None:
        self.left = {name: list(steps) for name, steps in tasks.items()}
        self.files: dict[str, str] = {}
        self.last: dict[str, int] = {}
        self.seen: dict[str, str] = dict.fromkeys(tasks, "")

    def pending(self) -> dict[str, Access]:
        return {name: self._static(*steps[0]) for name, steps in self.left.items() if steps}

    def _static(self, verb: str, path: str) -> Access:
        kinds = {"read": READ, "look": LOOK, "list": LIST}
        return Access(kinds.get(verb, MAKE), path, NAMES if verb == "list" else "")

    def step(self, task: str, number: int) -> Event:
        verb, path = self.left[task].pop(0)
        access, there = self._static(verb, path), path in self.files
        said = ""
        if verb == "put":
            access = Access(LOOK if there else MAKE, path)
            said = str(there)
            self.files.setdefault(path, task)
        elif verb == "write":
            access = Access(REPLACE if there else MAKE, path)
            self.files[path] = f"{task} {number_of(self.seen[task])}"
        elif verb == "delete":
            access = Access(REMOVE if there else LOOK, path)
            self.files.pop(path, None)
        elif verb == "read":
            said = self.files.get(path, "")
        elif verb == "look":
            said = str(there)
        else:
            said = " ".join(sorted(one for one in self.files if one.startswith(path)))
        self.seen[task] += f"{verb} {path}: {said}; "
        if verb == "read" and said and len(self.left[task]) == 1:
            self.left[task].append(("write", "d/z"))
        follows = (self.last[task],) if task in self.last else ()
        self.last[task] = number
        return Event(task, access, f"{verb} {path}: {said}", follows)

    def ended(self) -> None:
        pass

    def close(self) -> None:
        pass


def number_of(text: str) -> int:
    return len(text)


def all_orders(tasks: Mapping[str, list[Step]]) -> dict[int, Toy]:
    """The end of each order, by the signature of its class."""
    found: dict[int, Toy] = {}

    def go(way: list[str]) -> None:
        toy = Toy(tasks)
        events = [toy.step(one, number) for number, one in enumerate(way)]
        pending = toy.pending()
        if not pending:
            clocks(events, lambda *_: None)
            found[signature(events)] = toy
        for one in pending:
            go([*way, one])

    go([])
    return found


def drawn(seed: int) -> dict[str, list[Step]]:
    dice = random.Random(seed)
    verbs = ("put", "write", "delete", "read", "look", "list")
    tasks: dict[str, list[Step]] = {}
    for name in "abc"[: dice.choice((2, 2, 3))]:
        steps = [(dice.choice(verbs), dice.choice(("d/x", "d/y"))) for _ in range(3)]
        tasks[name] = [(verb, "d" if verb == "list" else path) for verb, path in steps]
    return tasks


@pytest.mark.parametrize("seed", seeds(25, 300))
def test_each_class_of_orders_is_met_once(seed: int) -> None:
    tasks = drawn(seed)
    met: list[int] = []
    states: set[str] = set()

    def look(toy: Toy, events: list[Event]) -> bool:
        met.append(signature(events))
        states.add(str((sorted(toy.files.items()), toy.seen)))
        return True

    explorer = Explorer(lambda: Toy(tasks), look).run()
    wanted = all_orders(tasks)
    assert explorer.complete
    assert set(met) == wanted.keys()
    assert len(met) == len(set(met)), "an order was run twice"
    assert states == {str((sorted(one.files.items()), one.seen)) for one in wanted.values()}


@pytest.mark.parametrize("seed", seeds(6, 60))
def test_with_enough_preemptions_the_bounded_search_meets_each_class(seed: int) -> None:
    tasks = drawn(seed)
    met: set[int] = set()

    def look(toy: Toy, events: list[Event]) -> bool:
        clocks(events, lambda *_: None)
        met.add(signature(events))
        return True

    assert Bounded(lambda: Toy(tasks), look, most=9).run().complete
    assert met == all_orders(tasks).keys()


def test_what_depends_on_each_other() -> None:
    put, there = Access(MAKE, "d/x"), Access(REPLACE, "d/x")
    assert dependent(put, Access(READ, "d/x"))
    assert dependent(Access(LIST, "d", NAMES), put)
    assert dependent(Access(LIST, "d", FILES), there)
    assert not dependent(Access(LIST, "d", NAMES), there)
    assert not dependent(Access(LIST, "d", FILES, "y"), put)
    assert not dependent(Access(LOOK, "d/x"), there)
    assert not dependent(Access(READ, "d/x"), Access(READ, "d/x"))
    assert not dependent(Access(LIST, "e", FILES), put)
    both = Access(READ, "d/y", also=(Access(LIST, "d", FILES),))
    assert dependent(both, put) and not both.changes
