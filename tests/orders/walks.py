"""Random walks through a world: each meets an order whose class the explorer must have met, too."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.orders.explorer import Event, P, Stopped, clocks, signature

LIKELY = (0.5, 0.15, 0.05)
"""How likely a walk switches after a step. Some walks switch often, others rarely."""


def walk(start: Callable[[], P], seed: int) -> tuple[P, list[Event]]:
    """One random order."""
    dice = random.Random(seed)
    likely = dice.choice(LIKELY)
    program, events, last = start(), list[Event](), ""
    try:
        while pending := sorted(program.pending()):
            if last not in pending or dice.random() < likely:
                last = dice.choice(pending)
            events.append(program.step(last, len(events)))
        program.ended()
    except Stopped as stopped:
        if stopped.event is not None:
            events.append(stopped.event)
    finally:
        program.close()
    return program, events


def class_of(events: list[Event]) -> int:
    """The class of an order."""
    clocks(events, lambda *_: None)
    return signature(events)
