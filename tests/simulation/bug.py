"""A planted bug: a small change to the real code that the simulation must catch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.simulation.cast import COMPACTORS, NEWCOMERS, world_of
from tests.simulation.choices import Script
from tests.simulation.report import Outcome, run
from tests.simulation.world import World

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Bug:
    """A change to the code. `what` says in a sentence what goes wrong. It is caught within `within`
    schedules from seed `seed` on, in which a stream and the actors `only` take part. `newcomers`
    draws these, too. With a `script`, it is caught in this schedule.
    """

    name: str
    what: str
    plant: Callable[[Patch], None]
    only: tuple[str, ...] = ()
    seed: int = 0
    within: int = 60
    newcomers: bool = False
    script: Script | None = None

    def make(self, seed: int, script: Script | None = None) -> World:
        """A world with those who meet the bug."""
        compactors = bool({"compacting stream", *(one.kind for one in COMPACTORS)} & set(self.only))
        newcomers = self.newcomers or compactors or bool(NEWCOMERS & set(self.only))
        return world_of(
            seed, script, only=self.only, newcomers=newcomers, compactors=compactors, upkeep=False
        )

    def runs(self) -> Iterator[Outcome]:
        """Its schedules, one after another."""
        for seed in range(self.seed, self.seed + self.within):
            yield run(seed, self.script, self.make)

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The code with this change."""
        with pytest.MonkeyPatch.context() as patch:
            self.plant(patch)
            yield


BUGS: list[Bug] = []


def bug(
    what: str,
    *only: str,
    seed: int = 0,
    within: int = 60,
    newcomers: bool = False,
    script: Script | None = None,
) -> Callable[[Callable[[Patch], None]], None]:
    """Adds a change to the list. Its name is that of the function."""

    def add(plant: Callable[[Patch], None]) -> None:
        BUGS.append(
            Bug(
                plant.__name__.replace("_", " "), what, plant, only, seed, within, newcomers, script
            )
        )

    return add
