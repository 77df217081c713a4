"""The tasks of an execution: an actor with its pieces of work, and a request that is on its way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.orders.accesses import MAKE, NOTHING, Access
from tests.orders.bounded import OF_PROCESS
from tests.orders.explorer import Event
from tests.orders.faults import WITHOUT_EFFECT, happens
from tests.orders.operations import Key, Operation, PointedProcess
from tests.orders.stage import Stage
from tests.simulation.actors.base import Actor
from tests.simulation.actors.streams import Stream
from tests.simulation.catalogs import LOCK_SECONDS
from tests.simulation.faults import CHANGES, CONFLICT_MILLIS, Fault
from tests.simulation.truth import Truth

TRIES = 3
"""How often somebody begins a piece of work that fails."""

Pending = dict[str, Access]


class Thread:
    """An actor with a number of pieces of work. It waits before each operation, and before each piece
    of work begins and ends: there a stream uses its checkpoint, which a twin may share. `plan` says
    which of its changes has which fault: the one with that number, or the first one whose path
    begins so. `log` has what became of each piece of work, and `made` the changes.
    """

    def __init__(
        self,
        stage: Stage,
        actor: Actor,
        works: int = 1,
        plan: Mapping[int | str, str] | None = None,
        tries: int = TRIES,
    ) -> None:
        self.stage, self.actor, self.works, self.tries = stage, actor, works, tries
        self.plan = dict(plan or {})
        self.name = actor.name
        self.changes = self.fired = 0
        self.at = "begin" if works else "done"
        self.last: tuple[int, ...] = ()
        self.log: list[str] = []
        self.made: list[tuple[str, str]] = []
        self.barred = False
        stage.place_of(actor.name)

    @property
    def process(self) -> PointedProcess:
        process = self.actor.process
        assert isinstance(process, PointedProcess)
        return process

    def pending(self) -> Pending:
        """The steps that can be taken next, by the name of the thread, or of its request."""
        if self.at == "done":
            return {}
        if self.at != "work":
            return {self.name: self._of_checkpoint()}
        waiting = self.process.waiting
        return {
            _name_of(self.name, key): one.possible()
            for key, one in waiting.items()
            if not (self.barred and one.verb == "lock" and self._is_locked())
        }

    def _of_checkpoint(self) -> Access:
        if isinstance(self.actor, Stream):
            return Access(MAKE, f"//{self.actor.checkpoint.name}")
        return NOTHING

    def _is_locked(self) -> bool:
        """Whether it is in vain to ask for the lock now: its holder will release it."""
        holder = None if self.stage.locks is None else self.stage.locks.holder
        return holder is not None and holder is not self.process and holder.alive_at_work

    def step(self, task: str, number: int) -> Event:
        """Takes a step."""
        if self.at == "work":
            key = next(one for one in self.process.waiting if _name_of(self.name, one) == task)
            return self._operation(key, number)
        access, follows, self.last = self._of_checkpoint(), self.last, (number,)
        words = self._begin(number) if self.at == "begin" else self._end()
        return Event(self.name, access, words, follows)

    # -- a piece of work --------------------------------------------------------------------------

    def _begin(self, number: int) -> str:
        stage, actor = self.stage, self.actor
        holder = None if stage.locks is None else stage.locks.holder
        if holder is not None and not holder.alive_at_work:
            stage.millis += 1000 * (LOCK_SECONDS + 1)  # nobody releases it, so it has to expire
        work = None
        while work is None and self.works > 0:
            actor.ready()
            stage.now = self.process
            work = actor.begin()
            self.works -= work is None
        stage.now = None
        if work is None:
            self.at = "done"
            return "has nothing to do"
        process = self.process
        process.begun_millis = stage.millis
        process.drops, process.upsets = actor.truth.drops, actor.truth.upsets
        process.start(work)
        self._go((), number, Fault.NONE)
        return f"begins {actor.doing}"

    def _operation(self, key: Key, number: int) -> Event:
        process, stage = self.process, self.stage
        operation = process.waiting[key]
        fault = self._fault(operation)
        follows = process.last.get(key, self.last)
        before = _is_there(stage, operation)
        self._go(key, number, fault)
        access = operation.real(before=before, after=_is_there(stage, operation))
        if operation.verb in ("lock", "unlock"):
            self.barred = self._is_locked()
        if fault in WITHOUT_EFFECT:
            access = NOTHING
        words = f"{operation.verb} {operation.path}"
        if fault is not Fault.NONE:
            words += f" ({fault.value})"
        return Event(_name_of(self.name, key), access, words, follows)

    def _fault(self, operation: Operation) -> Fault:
        """What happens to the operation, by the plan."""
        if operation.verb not in CHANGES:
            return Fault.NONE
        self.made.append((operation.verb, operation.path))
        self.changes += 1
        kind = self.plan.get(self.changes) or self._by_path(operation)
        fault = None if kind is None else happens(kind, operation.verb, operation.path)
        if fault is None:
            return Fault.NONE
        self.fired += 1
        if fault is Fault.CONFLICT:
            self.process.own_clock.slept += CONFLICT_MILLIS
            return Fault.FAILS_BEFORE  # the same for whoever asked, but for the time
        return fault

    def _by_path(self, operation: Operation) -> str | None:
        for key in [one for one in self.plan if isinstance(one, str)]:
            if operation.path.startswith(key):
                return self.plan.pop(key)
        return None

    def _go(self, key: Key, number: int, fault: Fault) -> None:
        process, stage = self.process, self.stage
        stage.now = process
        process.go(key, number, fault)
        stage.now = None
        self.at = "work" if process.busy else "end"
        if not process.busy:
            self.last = process.last.get((), (number,))

    def _end(self) -> str:
        stage, actor, process = self.stage, self.actor, self.process
        stage.now = process
        died, error = process.dead, process.error
        said = actor.ended()
        stage.now = None
        if died or error is not None:
            self.tries -= 1
        else:
            self.works -= 1
        self.log.append(said)
        self.at = "begin" if self.works > 0 and self.tries > 0 else "done"
        return said

    def close(self) -> None:
        """Ends its process."""
        if self.actor.process is not None:
            self.actor.process.kill()


def _name_of(thread: str, key: Key) -> str:
    return thread if not key else f"{thread}{OF_PROCESS}{'.'.join(str(one + 1) for one in key)}"


def _is_there(stage: Stage, operation: Operation) -> bool:
    if operation.verb in ("lock", "unlock"):
        return stage.locks is not None and stage.locks.holder is not None
    return operation.path in stage.truth.paths


Late = tuple[PointedProcess, str, str, Callable[[], Any]]


@dataclass(eq=False)
class LateRequest:
    """A request whose sender got no answer, or is dead. It arrives whenever it is chosen."""

    stage: Stage
    name: str
    late: Late
    follows: tuple[int, ...]
    at: str = field(default="work", init=False)
    log: tuple[str, ...] = ()

    def pending(self) -> Pending:
        if self.at == "done":
            return {}
        return {self.name: self._operation.possible()}

    @property
    def _operation(self) -> Operation:
        _, verb, path, _ = self.late
        return Operation(verb, path)

    def step(self, task: str, number: int) -> Event:
        process, verb, path, effect = self.late
        self.at = "done"
        stage, operation = self.stage, self._operation
        before = _is_there(stage, operation)
        stage.late.remove(self.late)
        stage.landed.add(getattr(process.actor, "user", ""))
        truth: Truth = stage.truth
        truth.change(process, verb, path, effect, late=True)
        if process.dead or not process.busy:
            process.actor.truth.writer_ended(process)
        access = operation.real(before=before, after=_is_there(stage, operation))
        return Event(self.name, access, f"the late {verb} of {path} arrives", self.follows)

    def close(self) -> None:
        """There is nothing to end."""
