"""The scheduler: runs one process at a time, from one of its storage operations to another.

Each process is a greenlet, so there are no threads and no races. A schedule is decided by its
choices alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from greenlet import getcurrent, greenlet

from paimon_stream.commit.report import Phase
from paimon_stream.runtime import Runtime
from paimon_stream.storage.branch import is_served
from tests.kits.faults import Killed
from tests.simulation.catalogs import storage_of
from tests.simulation.faults import CHANGES, SENDS, Fault, ProcessStorage, dead
from tests.simulation.hdfs import HdfsProcessStorage

if TYPE_CHECKING:
    from tests.simulation.actors.base import Actor
    from tests.simulation.world import World

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR

LONGEST_MILLIS = 50 * MINUTE
"""How long work may take whose files only their age protects. Orphan cleaners choose an hour and
more.
"""

APART = (0, 0, -149_000, 149_000)
"""By how much clocks are wrong that are less than five minutes apart, in milliseconds."""

JUMPS = (0, 90_000, -90_000, 20 * MINUTE, -20 * MINUTE, 5 * HOUR, -5 * HOUR)
"""What a clock is wrong by after a jump, in milliseconds."""

WAITS = (0, 0, 0, 0, 0, 0, 1, 1, 400, 2000, 2000, 70_000, 20 * MINUTE, 2 * HOUR, 13 * HOUR, 3 * DAY)
"""How long everybody waits before a step, in milliseconds."""


@dataclass(slots=True)
class ProcessClock:
    """The world's clock, as one machine reads it."""

    world: World
    skew: int = 0

    def now_millis(self) -> int:
        return self.world.millis + self.skew

    def local_millis(self) -> int:
        return self.now_millis()

    def monotonic(self) -> float:
        return self.world.millis / 1000

    def sleep(self, seconds: float) -> None:
        self.world.millis += max(1, round(seconds * 1000))


@dataclass(frozen=True, slots=True)
class Burst:
    """How far a process goes: a number of operations, or up to its next change, or its next
    operation on a snapshot's file or its lock. With 0 operations it goes on to its end.
    """

    operations: int = 0
    changes: bool = False
    snapshots: bool = False


TO_ITS_END: Final = Burst()

BURSTS = (
    *(TO_ITS_END,) * 8,
    *(Burst(snapshots=True),) * 4,
    *(Burst(changes=True),) * 4,
    *(Burst(operations=n) for n in (1, 2, 3, 5, 8, 13, 21, 34)),
)


@dataclass(eq=False)
class Process:
    """A running process. It is dead for good once it was killed. `marks` are what its snapshots must
    say of a run, by commit user. `newest_schema` is the id of the schema that was the newest when
    its present work began, and `schemas_then` has that of the work that has sent each snapshot: a late
    one may arrive in the work after it.
    """

    world: World
    name: str
    actor: Actor
    dead: bool = False
    phase: Phase | None = None
    pending: tuple[str, str] | None = None
    fault: Fault = Fault.NONE
    burst: Burst = field(default_factory=Burst)
    done: int = 0
    begun_millis: int = 0
    drops: int = 0
    upsets: int = 0
    result: object = None
    error: BaseException | None = None
    putting: Any = None
    number: int = 0
    under_lock: int = 0
    marks: dict[str, dict[str, str]] = field(default_factory=dict)
    newest_schema: int = 0
    schemas_then: dict[str, int] = field(default_factory=dict)
    began_in_peace: bool = False
    _greenlet: greenlet | None = None
    _stopped: greenlet | None = None  # the one of its greenlets that is in front of an operation

    def __post_init__(self) -> None:
        skews = APART if self.world.history else (0, 0, 0, 0, -90_000, 90_000)
        self.clock = ProcessClock(self.world, self.world.choices.pick(skews))
        self.runtime = Runtime(clock=self.clock, rng=self.world.dice, ids=self.world.ids)
        self.plain = HdfsProcessStorage(self) if self.world.on_hdfs else ProcessStorage(self)
        self.storage = storage_of(self, self.plain)
        self._opened_drops = self.actor.truth.drops

    @property
    def opened_another_table(self) -> bool:
        """Whether the catalog gave it a table that was dropped since. The table's id is part of
        what a REST catalog gives.
        """
        return is_served(self.storage) and self._opened_drops != self.actor.truth.drops

    @property
    def may_expire(self) -> bool:
        return self.actor.may_expire

    @property
    def may_roll_back(self) -> bool:
        return self.actor.may_roll_back

    @property
    def busy(self) -> bool:
        return self._greenlet is not None

    @property
    def alive_at_work(self) -> bool:
        """Whether it is in the middle of a piece of work, and can go on."""
        return self.busy and not self.dead

    def start(self, work: Callable[[], object]) -> None:
        """Begins a piece of work. It runs when the process is resumed."""
        self.result = self.error = self.pending = None
        self.newest_schema = self.actor.truth.newest_schema
        self.actor.works += 1

        def run() -> None:
            try:
                self.result = work()
            except BaseException as raised:  # noqa: BLE001  the scheduler judges it
                self.error = raised

        self._greenlet = greenlet(run)

    def resume(self, burst: Burst, fault: Fault) -> None:
        """Lets the process go on; `fault` happens to the operation before which it waits. Returns
        when it stops again or has ended.
        """
        assert self._greenlet is not None
        self.burst, self.fault, self.done = burst, fault, 0
        self._greenlet.parent = getcurrent()
        stopped, self._stopped = self._stopped or self._greenlet, None
        stopped.switch()
        if self._greenlet.dead:
            self._greenlet = self.pending = None
            self.phase = None

    def reached(self, verb: str, path: str) -> Fault:
        """An operation is about to happen: perhaps the process stops here. Returns what happens to
        it.
        """
        if self.dead:
            raise dead()
        self.world.operations += 1
        if verb in SENDS:
            self.schemas_then[path] = self.newest_schema
        if self.burst is not TO_ITS_END and self._is_due(verb, path):
            self.pending = (verb, path)
            self._stop()
            self.pending = None
            fault, self.fault = self.fault, Fault.NONE
            if self.dead:
                raise dead()
            self.done = 1
            return fault
        self.done += 1
        return Fault.NONE

    def pause_here(self) -> None:
        """Stops at the next operation."""
        self.burst = Burst(operations=1)
        self.done = 1

    def die(self) -> Killed:
        """The process is dead from now on."""
        self.dead = True
        return dead()

    def kill(self) -> None:
        """Ends the process where it is."""
        self.dead = True
        if self._greenlet is not None:
            self.resume(TO_ITS_END, Fault.NONE)

    def _is_due(self, verb: str, path: str) -> bool:
        burst = self.burst
        if burst.changes:
            return verb in CHANGES and self.done > 0
        if burst.snapshots:
            published = verb in ("put", "commit", "delete") and "snapshot-" in path
            return (published or verb in ("lock", "unlock")) and self.done > 0
        return burst.operations > 0 and self.done >= burst.operations

    def _stop(self) -> None:
        assert self._greenlet is not None
        assert self._greenlet.parent is not None
        self._stopped = getcurrent()
        self._greenlet.parent.switch()
