"""Runs one schedule, and describes its outcome in words."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from paimon_stream.errors import PaimonStreamError
from tests.simulation.cast import world_of
from tests.simulation.catalogs import answering
from tests.simulation.choices import Script
from tests.simulation.limits import DISTURBED, Limit
from tests.simulation.remembered import remembered
from tests.simulation.rewriting import rewriting
from tests.simulation.rules import NO_REASON, PYTHON_ERROR
from tests.simulation.shrink import shrink
from tests.simulation.state import Violation
from tests.simulation.world import World

MakeWorld = Callable[[int, "Script | None"], World]


@dataclass(frozen=True)
class Outcome:
    """A schedule that was run. `rule` is the rule that was broken, None if all is well, and
    `PYTHON_ERROR` if the code or the simulation is broken; `limit` says why the schedule ended
    early.
    """

    seed: int
    world: World
    rule: str | None = None
    what: str = ""
    limit: str | None = None

    def __str__(self) -> str:
        steps = [f"{number:4}. {line}" for number, line in enumerate(self.world.log, 1)]
        return "\n".join([f"seed {self.seed}: {self.what}", *steps])


def run(
    seed: int, script: Script | None = None, make: MakeWorld = world_of, *, strict: bool = True
) -> Outcome:
    """Runs the schedule of a seed, or a changed one. If it is not `strict`, a broken rule is a
    limit where somebody rolled back or dropped the table beside a writer at work, which the pages
    exclude.
    """
    world = make(seed, script)
    try:
        with _silence(), remembered(world.written), rewriting(), answering(world):
            world.run()
    except Limit as limit:
        return Outcome(seed, world, limit=str(limit))
    except Violation as broken:
        if world.disturbed and not strict:
            return Outcome(seed, world, limit=DISTURBED)
        return Outcome(seed, world, broken.rule, str(broken))
    except PaimonStreamError as error:
        return Outcome(seed, world, NO_REASON, f"{NO_REASON}: {type(error).__name__}: {error}")
    except Exception as error:  # noqa: BLE001  whatever it is, the test says it
        at = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__} in {Path(at.filename).name}:{at.lineno}: {error}"
        return Outcome(seed, world, PYTHON_ERROR, what)
    return Outcome(seed, world)


@contextmanager
def _silence() -> Iterator[None]:
    """Nobody reads the warnings of a schedule."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def shortest(outcome: Outcome, make: MakeWorld = world_of, *, strict: bool = True) -> Outcome:
    """The same failure after as few steps as were found."""

    def again(script: Script) -> Outcome:
        return run(outcome.seed, script, make, strict=strict)

    return again(shrink(outcome.world.choices.made, lambda one: again(one).rule == outcome.rule))
