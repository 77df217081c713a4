"""Histories that are drawn at random, and made short where they fail."""

from __future__ import annotations

import inspect
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from tests.histories.scene import Ends, Scene
from tests.histories.world import Broken

Step = tuple[str, tuple[int, ...]]
"""The name of a method of `Scene`, and its numbers."""
WEIGHTS: Final[Mapping[str, int]] = {
    "batch": 30,
    "commit_of_others": 4,
    "plain_writer": 4,
    "expiry": 2,
    "outage": 6,
    "tag": 6,
    "untag": 2,
    "rollback": 6,
    "branch": 7,
    "unbranch": 2,
    "forward": 5,
    "point": 5,
    "rename": 5,
    "switch_journal": 1,
    "compaction": 1,
    "manifests": 2,
    "time": 3,
    "end": 4,
}
_LENGTHS: Final = (10, 20, 30)


@dataclass(frozen=True)
class Drawn:
    """A history that was drawn: how its scene begins, and its steps."""

    seed: int
    journal: bool
    two_sinks: bool
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Failed:
    """The rule that a history breaks, and what happened until then."""

    rule: str
    what: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([*self.trace, self.what])


def drawn(seed: int, weights: Mapping[str, int] = WEIGHTS) -> Drawn:
    """The history of a seed."""
    dice = random.Random(seed)
    names = dice.choices(list(weights), list(weights.values()), k=dice.choice(_LENGTHS))
    numbers = {name: len(inspect.signature(getattr(Scene, name)).parameters) - 1 for name in names}
    steps = [(name, tuple(dice.randrange(10_000) for _ in range(numbers[name]))) for name in names]
    return Drawn(
        seed=seed, journal=dice.random() < 0.8, two_sinks=dice.random() < 0.3, steps=tuple(steps)
    )


def played(history: Drawn) -> Failed | None:
    """What the history breaks; None if nothing."""
    scene = Scene(journal=history.journal, two_sinks=history.two_sinks, seed=history.seed)
    try:
        for name, numbers in history.steps:
            getattr(scene, name)(*numbers)
    except Ends:
        return None
    except Broken as broken:
        return Failed(broken.rule, str(broken), tuple(scene.trace))
    return None


def shrunk(history: Drawn, failed: Failed) -> tuple[Drawn, Failed]:
    """A shorter history that breaks the same rule. Steps are left out, from the end on and several at
    a time first, as long as it does.
    """
    size = max(1, len(history.steps) // 2)
    while size:
        start = len(history.steps) - size
        while start >= 0:
            steps = (*history.steps[:start], *history.steps[start + size :])
            candidate = replace(history, steps=steps)
            again = played(candidate)
            if again is not None and again.rule == failed.rule:
                history, failed = candidate, again
            start -= size
        size //= 2
    return history, failed
