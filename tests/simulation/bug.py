"""A planted bug: a small change to the real code that the simulation must catch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.simulation.cast import COMPACTORS, NEWCOMERS, world_of
from tests.simulation.choices import Script
from tests.simulation.real_files import forget_files
from tests.simulation.report import Outcome, run
from tests.simulation.rules import PYTHON_ERROR, RULES
from tests.simulation.world import World

Patch = pytest.MonkeyPatch


class BrokenPlant(Exception):
    """An error of Python ended a schedule, so it says nothing of the change that was meant."""


@dataclass(frozen=True)
class Bug:
    """A change to the code. `what` says in a sentence what goes wrong, `rule` names the rule of
    `rules.py` that this breaks, and `why` says how it follows from the change. No other rule
    counts. It is broken in the schedule of seed `seed`, which goes on to the end, and in which a
    stream and the actors `only` take part. `newcomers` draws these, too. With a `script`, it is
    broken in this schedule.

    If the code has changed since, another schedule shows it: `within` schedules are tried.
    """

    name: str
    what: str
    plant: Callable[[Patch], None]
    rule: str
    why: str
    only: tuple[str, ...] = ()
    seed: int = 0
    within: int = 60
    newcomers: bool = False
    script: Script | None = None

    def __post_init__(self) -> None:
        assert self.rule in RULES, self.rule

    def make(self, seed: int, script: Script | None = None) -> World:
        """A world with those who meet the bug."""
        compactors = bool({"compacting stream", *(one.kind for one in COMPACTORS)} & set(self.only))
        newcomers = self.newcomers or compactors or bool(NEWCOMERS & set(self.only))
        world = world_of(
            seed, script, only=self.only, newcomers=newcomers, compactors=compactors, upkeep=False
        )
        world.to_the_end = world.to_the_end or seed == self.seed
        return world

    def caught(self) -> Outcome | None:
        """The first schedule that breaks the rule of the planted bug; None if none of them does.
        Raises `BrokenPlant`.
        """
        with self.planted():
            for seed in range(self.seed, self.seed + self.within):
                outcome = run(seed, self.script, self.make)
                if outcome.rule == PYTHON_ERROR:
                    raise BrokenPlant(f"{self.name}: the plant is broken. {outcome.what}")
                if outcome.rule == self.rule:
                    return outcome
        return None

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The code with this change. Files with rows are written anew, and not kept: the change may
        be one of their content.
        """
        with pytest.MonkeyPatch.context() as patch:
            self.plant(patch)
            forget_files()
            try:
                yield
            finally:
                forget_files()


BUGS: list[Bug] = []


def bug(
    what: str,
    *only: str,
    rule: str,
    why: str,
    seed: int = 0,
    within: int = 60,
    newcomers: bool = False,
    script: Script | None = None,
) -> Callable[[Callable[[Patch], None]], None]:
    """Adds a change to the list. Its name is that of the function."""

    def add(plant: Callable[[Patch], None]) -> None:
        name = plant.__name__.replace("_", " ")
        BUGS.append(Bug(name, what, plant, rule, why, only, seed, within, newcomers, script))

    return add
