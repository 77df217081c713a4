"""Random walks through a world: each meets an order whose class the explorer must have met, too."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from tests.orders.accesses import Access
from tests.orders.explorer import Event, P, clocks, execute, signature

LIKELY = (0.5, 0.15, 0.05)
"""How likely a walk switches after a step. Some walks switch often, others rarely."""


def walk(start: Callable[[], P], seed: int) -> tuple[P, list[Event]]:
    """One random order."""
    dice = random.Random(seed)
    likely = dice.choice(LIKELY)
    last = ""

    def choose(pending: Mapping[str, Access], _: list[Event]) -> str:
        nonlocal last
        if last not in pending or dice.random() < likely:
            last = dice.choice(sorted(pending))
        return last

    program = start()
    return program, execute(program, choose)


def class_of(events: list[Event]) -> int:
    """The class of an order."""
    clocks(events, lambda *_: None)
    return signature(events)
