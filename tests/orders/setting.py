"""How a world is declared: its table, what happened before, who takes part, and what may fail."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tests.orders.faults import DIES, FAILS, LATE, LATE_AND_DEAD, LOST, REFUSED, Plan
from tests.orders.stage import Stage
from tests.orders.threads import Thread
from tests.simulation.actors.base import Actor
from tests.simulation.catalogs import answering
from tests.simulation.rewriting import rewriting

ALL_FAULTS = (DIES, LOST, FAILS, LATE, LATE_AND_DEAD, REFUSED)

Cast = Callable[[Stage], Sequence["tuple[Actor, int]"]]
"""Who takes part, each with the number of his pieces of work."""


@dataclass(frozen=True)
class Setting:
    """A world. `before` is what happened before, `cast` who takes part. `options`, `table` and
    `flags` are those of its table. Without `most` all its orders are run, else those with at most
    that number of preemptions; `most_with_fault` says the same of orders with a fault. Without a
    fault nobody gets an error but those that they `may`, or any if that is None. Where it `kills`,
    somebody dies in each order, and a fault comes on top of that. Where it has `limits`, some
    orders end at what the pages exclude. A `quick` world is part of `make test`.
    """

    name: str
    says: str
    cast: Cast
    before: Callable[[Stage], None] = lambda stage: None
    options: Mapping[str, str] = field(default_factory=dict)
    table: Mapping[str, bool] = field(default_factory=dict)
    flags: Mapping[str, Any] = field(default_factory=dict)
    catalog: str = ""
    faults: Sequence[str] = ALL_FAULTS
    tries: int = 3
    most: int | None = None
    most_with_fault: int | None = None
    may: Collection[str] | None = ()
    kills: bool = False
    limits: bool = False
    quick: bool = False

    @cached_property
    def _prepared(self) -> Stage:
        """The table after what happened before. It is made once."""
        stage = Stage()
        for name, value in self.flags.items():
            setattr(stage, name, value)
        stage.create(dict(self.options), **self.table)
        stage.in_catalog(self.catalog)
        with rewriting(), answering(stage):
            self.before(stage)
        stage.end()
        return stage

    def begin(self, plan: Plan) -> tuple[Stage, list[Thread]]:
        """A table for one execution, and the threads."""
        stage = self._prepared.renewed()
        threads = [
            Thread(stage, actor, works, plan.get(actor.name), self.tries)
            for actor, works in self.cast(stage)
        ]
        stage.actors = [one.actor for one in threads]
        return stage, threads

    def tasks(self) -> list[str]:
        """The names of those who take part."""
        return [one.name for one in self.begin({})[1]]


def settle(thread: Thread) -> Thread:
    """Runs a thread alone, to its end."""
    number = 0
    while pending := thread.pending():
        thread.step(next(iter(pending)), number)
        number += 1
        thread.stage.check()
    thread.close()
    return thread
