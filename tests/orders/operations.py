"""The storage and the process of this package's doubles, with a point for the explorer before each
operation. Requests that are in flight together are points of their own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from greenlet import getcurrent, greenlet

from paimon_stream.runtime import Runtime, simulated
from paimon_stream.storage.base import FileStat
from paimon_stream.storage.together import Request, in_turn
from tests.orders.accesses import (
    BELOW,
    FILES,
    FOLDERS,
    LIST,
    LOOK,
    MAKE,
    NAMES,
    NONE,
    READ,
    REMOVE,
    REPLACE,
    Access,
)
from tests.simulation.catalogs import storage_of
from tests.simulation.faults import Fault, ProcessStorage, dead
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.orders.stage import Stage

Key = tuple[int, ...]
"""A request of a process that is in flight with others: its place in its group, below that of who
sent them. The process itself has no place.
"""

SNAPSHOTS: Final = Access(LIST, "snapshot", FILES)
"""What the server of a REST catalog looks at."""
LOCK: Final = "//lock"
SERVER: Final = frozenset({"commit", "show"})


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation that is about to happen. `sees` says what it asks for, if the verb does not."""

    verb: str
    path: str
    sees: str = ""
    prefix: str = ""

    def possible(self) -> Access:
        """All that it may touch, before that is known."""
        verb, path = self.verb, self.path
        if verb == "list":
            return Access(LIST, path, self.sees, self.prefix)
        if verb == "read":
            return Access(READ, path)
        if verb == "stat":
            return Access(self.sees or READ, path)
        if verb == "show":
            return Access(NONE, "") if path == "token" else SNAPSHOTS
        if verb == "commit":
            return Access(MAKE, path, also=(SNAPSHOTS,))
        return Access(MAKE, LOCK if verb in ("lock", "unlock") else path)

    def real(self, *, before: bool, after: bool) -> Access:
        """What it has done, by whether the file was there and whether it is. A lock that is asked
        for in vain, or has not expired, was looked at.
        """
        verb, path = self.verb, self.path
        if verb in ("lock", "unlock") and before == after:
            return Access(LOOK, LOCK)
        if verb == "put":
            return Access(LOOK if before else MAKE, path)
        if verb == "write":
            return Access(REPLACE if before else MAKE, path)
        if verb == "delete":
            return Access(REMOVE if before else LOOK, path)
        if verb == "commit" and before == after:
            return SNAPSHOTS
        return self.possible()


@dataclass(slots=True)
class OwnClock:
    """The clock of one process: the world's, and what it has slept. So nobody else's time passes
    while it waits.
    """

    stage: Stage
    skew: int = 0
    slept: int = 0

    def now_millis(self) -> int:
        return self.stage.millis + self.skew + self.slept

    def local_millis(self) -> int:
        return self.now_millis()

    def monotonic(self) -> float:
        return self.now_millis() / 1000

    def sleep(self, seconds: float) -> None:
        self.slept += max(1, round(seconds * 1000))


class _Request(greenlet):
    """A request that is in flight with others. Its parent is who sent it."""

    key: Key = ()


class PointedStorage(ProcessStorage):
    """The table's storage as one process sees it. It says what a listing covers, and whether only
    the existence of a file is asked for. Files that are written together are whole.
    """

    _process: PointedProcess

    def list_files(self, folder: str, prefix: str = "") -> list[FileStat]:
        self._process.says(FILES, prefix)
        return super().list_files(folder, prefix)

    def list_names(self, folder: str, prefix: str = "") -> list[str]:
        self._process.says(NAMES, prefix)
        return super().list_names(folder, prefix)

    def list_folders(self, folder: str) -> list[str]:
        self._process.says(FOLDERS)
        return super().list_folders(folder)

    def list_below(self, folder: str) -> Iterator[list[FileStat]]:
        self._process.says(BELOW)
        yield from super().list_below(folder)

    def exists(self, path: str) -> bool:
        self._process.says(LOOK)
        return super().exists(path)

    def write_all(self, files: Sequence[tuple[str, bytes]]) -> None:
        for path, data in files:
            self.write(path, data)

    def together(self, requests: Sequence[Request]) -> list[Any]:
        if not self._process.world.in_flight or len(requests) < 2:
            return in_turn(requests)
        return self._process.send_together(requests)


@dataclass(eq=False)
class PointedProcess(Process):
    """A process that waits before each operation until it is chosen. `waiting` are the operations
    before which it waits, and `last` the numbers of the steps that came right before each of them.
    Its ids and dice are its own, so its next operation depends only on what it has read.
    """

    world: Stage
    waiting: dict[Key, Operation] = field(default_factory=dict)
    last: dict[Key, tuple[int, ...]] = field(default_factory=dict)
    chosen: Key = ()

    def __post_init__(self) -> None:
        who = self.actor.name
        own = simulated(random.Random(f"{who} {self.world.count('process', who)}").getrandbits(60))
        self.own_clock = OwnClock(self.world)
        self.clock = self.own_clock  # type: ignore[assignment]
        self.dice, self.ids = own.rng, own.ids
        self.source = random.Random(f"values of {self.name}")
        self.runtime = Runtime(clock=self.clock, rng=own.rng, ids=own.ids)
        self.plain = PointedStorage(self)
        self.storage = storage_of(self, self.plain)
        self._opened_drops = self.actor.truth.drops
        self._said = ("", "")

    def says(self, sees: str, prefix: str = "") -> None:
        """What the next operation asks for."""
        self._said = (sees, prefix)

    def go(self, key: Key, number: int, fault: Fault) -> None:
        """Lets one request go on, as step `number`. It stops before its next operation."""
        assert self._greenlet is not None
        self.chosen, self.fault = key, fault
        self.last[key] = (number,)
        self._switch()

    def kill(self) -> None:
        """Ends the process where it is."""
        self.dead = True
        if self._greenlet is not None:
            self._switch()

    def _switch(self) -> None:
        assert self._greenlet is not None
        self._greenlet.parent = getcurrent()
        self._greenlet.switch()
        if self._greenlet.dead:
            self._greenlet = self.phase = None
            self.waiting.clear()

    def reached(self, verb: str, path: str) -> Fault:
        """An operation is about to happen: the request waits here until it is chosen."""
        if self.dead:
            raise dead()
        here = getcurrent()
        key = here.key if isinstance(here, _Request) else ()
        (sees, prefix), self._said = self._said, ("", "")
        self.waiting[key] = Operation(verb, path, sees, prefix)
        self._stop()
        self.waiting.pop(key, None)
        fault, self.fault = self.fault, Fault.NONE
        if self.dead:
            raise dead()
        self.done = 1
        return fault

    def _stop(self) -> None:
        parent = getcurrent().parent
        assert parent is not None
        parent.switch()

    def send_together(self, requests: Sequence[Request]) -> list[Any]:
        """The results of requests in their order. Raises the first error, after all have ended."""
        results: list[Any] = [None] * len(requests)
        errors: list[BaseException | None] = [None] * len(requests)
        here = getcurrent()
        sender: Key = here.key if isinstance(here, _Request) else ()
        begun = self.last.get(sender, ())

        def sent(place: int) -> _Request:
            def run() -> None:
                try:
                    results[place] = requests[place]()
                except BaseException as raised:  # noqa: BLE001  raised when all have ended
                    errors[place] = raised

            made = _Request(run, here)
            made.key = (*sender, place)
            self.last[made.key] = begun
            return made

        group = [sent(place) for place in range(len(requests))]
        for one in group:
            one.switch()  # to its first operation
        while alive := [one for one in group if not one.dead]:
            if not self.dead:
                self._stop()
            chosen = self.chosen[: len(sender) + 1]
            next_one = alive[0] if self.dead else next(one for one in alive if one.key == chosen)
            next_one.switch()
        ends = {number for one in group for number in self.last.pop(one.key)}
        self.last[sender] = tuple(sorted(ends)) or begun
        for error in errors:
            if error is not None:
                raise error
        return results
