"""The choices that make one schedule. They are drawn from a seed, or replayed from a list.

A schedule is a list of steps, and a step is a list of small numbers. Zero is always the plainest
choice: no fault, no pause, no waiting. So a schedule stays valid if a step is left out or a number
becomes zero. That is how failures are shrunk (`shrink.py`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
Script = list[list[int]]


WORLD, END = 0, 1
"""The first two lists of a script: the choices of the world, and those after the last step."""


class Choices:
    """Draws numbers and keeps them by step. Without a script they come from the seed."""

    def __init__(self, seed: int, script: Sequence[Sequence[int]] | None = None) -> None:
        self.source = random.Random(f"schedule {seed}")
        self.script = script
        self.made: Script = [[], []]
        self.at = WORLD

    def begin_step(self) -> None:
        """The numbers drawn from now on belong to the next step."""
        self.made.append([])
        self.at = len(self.made) - 1

    def begin_end(self) -> None:
        """The numbers drawn from now on belong to the time after the last step."""
        self.at = END

    def below(self, bound: int) -> int:
        """A number in [0, bound)."""
        now = self.made[self.at]
        if self.script is None:
            value = self.source.randrange(bound)
        else:
            step = self.script[self.at] if self.at < len(self.script) else ()
            value = step[len(now)] % bound if len(now) < len(step) else 0
        now.append(value)
        return value

    def once_in(self, of: int) -> bool:
        """True once in `of` times. Zero means no."""
        return self.below(of) == of - 1

    def pick(self, options: Sequence[T]) -> T:
        """One of the options. The first is the plainest."""
        return options[self.below(len(options))]
