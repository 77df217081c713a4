"""The table of one execution, and its copy for the next one. It is the world of the simulation
without dice: whoever asks for a choice gets the plainest one, and each process has its own ids.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from paimon_stream.runtime import simulated
from paimon_stream.storage.memory import MemoryStorage
from tests.orders.operations import PointedProcess
from tests.simulation.actors.base import Actor
from tests.simulation.actors.checkpoints import Checkpoint
from tests.simulation.archive import Archive
from tests.simulation.catalogs import JDBC, Locks
from tests.simulation.choices import Choices
from tests.simulation.state import State
from tests.simulation.truth import Truth
from tests.simulation.world import World

APART = 1000
"""How many numbers of files each actor has for itself."""


class _OfProcess:
    """The ids and the dice of the process that is at work."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self._own = stage, simulated(7)

    def uuid(self) -> str:
        now = self._stage.now
        return (self._own.ids if now is None else now.ids).uuid()

    def below(self, bound: int) -> int:
        now = self._stage.now
        return (self._own.rng if now is None else now.dice).below(bound)


@dataclass(eq=False)
class Stage(World):
    """A world whose steps somebody else chooses. `now` is the process at work, and `counts` has
    what was counted of each actor: nothing that gets a number depends on what others do.
    """

    seed: int = 0
    now: PointedProcess | None = None
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    places: dict[str, int] = field(default_factory=dict)
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._summed: State | None = None
        self.choices = Choices(0, [[], []])
        self.dice = self.ids = _OfProcess(self)  # type: ignore[assignment]
        self.locks: Locks | None = None
        self.branches: dict[str, Truth] = {}
        self._idle = random.Random("values")

    def count(self, what: str, who: str) -> int:
        """How many of these this actor has now."""
        self.counts[what, who] += 1
        return self.counts[what, who]

    def place_of(self, name: str) -> int:
        """The place of an actor in the order in which they came."""
        return self.places.setdefault(name, len(self.places))

    def _actor(self) -> str:
        return "" if self.now is None else self.now.actor.name

    # Names of files and of tags have numbers, which count what their own actor has made.

    @property
    def files(self) -> int:
        return APART * self.place_of(self._actor()) + self.counts["files", self._actor()]

    @files.setter
    def files(self, _: int) -> None:
        if hasattr(self, "counts"):
            self.count("files", self._actor())

    @property
    def serial(self) -> int:
        return APART * self.place_of(self._actor()) + self.counts["serial", self._actor()]

    @serial.setter
    def serial(self, _: int) -> None:
        if hasattr(self, "counts"):
            self.count("serial", self._actor())

    @property
    def operations(self) -> int:
        return 0

    @operations.setter
    def operations(self, _: int) -> None:
        pass

    @property
    def source(self) -> random.Random:  # type: ignore[override]
        """The dice for values of rows."""
        return self._idle if self.now is None else self.now.source

    def checkpoint(self, name: str, *, shared: bool = False) -> Checkpoint:
        """The checkpoint of this name."""
        if name not in self.checkpoints:
            self.checkpoints[name] = Checkpoint(name, shared=shared)
        return self.checkpoints[name]

    def in_catalog(self, kind: str) -> None:
        """Puts the table into a catalog."""
        self.catalog = kind
        self.locks = Locks(self) if kind == JDBC else None

    def spawn(self, actor: Actor) -> PointedProcess:
        number = APART * self.place_of(actor.name) + self.count("spawned", actor.name)
        name = f"{actor.name} (process {self.counts['spawned', actor.name]})"
        process = PointedProcess(self, name, actor=actor, number=number)
        self.processes = [one for one in self.processes if not one.dead]
        self.processes.append(process)
        return process

    def is_refused(self, actor: Actor) -> bool:
        return False

    # -- the copy for the next execution ----------------------------------------------------------

    def renewed(self) -> Stage:
        """A stage of its own with the same table. Nobody is at work on either of them."""
        new = copy.copy(self)
        new.counts, new.places = Counter(self.counts), dict(self.places)
        new.values = {name: dict(one) for name, one in self.values.items()}
        new.asked = {name: set(one) for name, one in self.asked.items()}
        new.changes, new.stored_rows = dict(self.changes), dict(self.stored_rows)
        new.rows = dict(self.rows)
        new.log, new.late, new.processes, new.actors = [], [], [], []
        new.met, new.faults_met, new.landed = Counter(), Counter(), set(self.landed)
        new.checkpoints = {
            name: replace(one, plans=dict(one.plans), copies=[], tried=[])
            for name, one in self.checkpoints.items()
        }
        new.choices = Choices(0, [[], []])
        new.dice = new.ids = _OfProcess(new)  # type: ignore[assignment]
        new.disk = MemoryStorage(clock=new)  # type: ignore[arg-type]
        new.disk._store.folders = {
            folder: dict(files) for folder, files in self.disk._store.folders.items()
        }
        new.table = replace(self.table, storage=new.disk)
        new._idle = random.Random("values")
        if self.catalog == JDBC:
            new.locks = Locks(new)
        paths, states = set(self.truth.paths), dict[int, State]()
        archive = _copy_of(self.truth.archive)
        parts = {name: dict(one) for name, one in self.truth.parts.items()}
        new.truth = _renewed(self.truth, new, paths, states)
        new.branches = {
            name: _renewed(one, new, paths, states) for name, one in self.branches.items()
        }
        for truth in (new.truth, *new.branches.values()):
            truth.archive, truth.parts, truth.states = archive, parts, new.truth.states
        return new


def _copy_of(archive: Archive) -> Archive:
    new = Archive()
    for name in (one.name for one in fields(Archive)):
        setattr(new, name, dict(getattr(archive, name)))
    return new


def _renewed(truth: Truth, stage: Stage, paths: set[str], states: dict[int, State]) -> Truth:
    """The same truth for another stage. What changes in a state is not shared."""

    def again(state: State) -> State:
        return states.setdefault(id(state), copy.copy(state))

    def each(given: Mapping[Any, State]) -> dict[Any, State]:
        return {key: again(state) for key, state in given.items()}

    new = truth.copied(paths)
    new.world = stage
    new.head = None if truth.head is None else again(truth.head)
    for name in ("there", "history", "states", "branches", "suspects"):
        setattr(new, name, each(getattr(truth, name)))
    new.tags = {path: (again(state), maker) for path, (state, maker) in truth.tags.items()}
    return new
