"""A table of a Hive catalog in an object store, whose commits take the metastore's lock. The
metastore answers inside the process: the requests of the real client come here.

Locks wait in the order in which they were asked for. The metastore's housekeeping removes a lock
that nobody has asked for within five minutes, with the simulated time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from paimon_stream import errors
from paimon_stream.catalogs import hive, hive_client
from paimon_stream.catalogs.hive import HiveStorage
from paimon_stream.catalogs.hive_client import I32, I64, LIST, STRING, STRUCT, HiveClient, Struct
from paimon_stream.storage.base import PutResult
from tests.simulation import rules
from tests.simulation.faults import LATE_MILLIS, METASTORE_LOCK, Fault, ProcessStorage
from tests.simulation.in_flight import wait_until_chosen
from tests.simulation.state import Violation

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.world import World

HIVE: Final = "Hive catalog"
"""Its name among those who take part."""
FROM: Final = 20261201_000000
"""From this seed on, a draw decides whether a table is in it. Earlier seeds keep their meaning."""
LOCK_SECONDS: Final = 300
"""How long the metastore keeps a lock for which nobody asks: Hive's `hive.txn.timeout`."""
_SCHEME: Final = "thrift://"


class Served(HiveStorage):
    """A table of a Hive catalog, with what the rewriting of rows keeps here."""

    given: Any = ()

    def __init__(self, process: Process, plain: ProcessStorage) -> None:
        options = {"uri": f"{_SCHEME}{process.number}", hive._TABLE_NAME: "db.t"}
        super().__init__(plain, options, takes_lock=True, runtime=process.runtime)  # type: ignore[arg-type]
        self.process = process

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        self.process.under_lock = 0
        return super().put_if_absent(path, data)

    def write(self, path: str, data: bytes) -> None:
        self.process.under_lock = 0
        super().write(path, data)


@dataclass(eq=False)
class Lock:
    """A lock in the metastore. The first of all is acquired, and the others wait.

    Attributes:
        number: its id.
        owner: the process that has asked for it.
        agent: the mark that the request had.
        seen_millis: when somebody last asked for it.
        is_forgiven: whether a failure has kept its owner from giving it back.
    """

    number: int
    owner: Process
    agent: str
    seen_millis: int
    is_forgiven: bool = False


class Metastore:
    """The locks of a Hive Metastore."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._locks: list[Lock] = []
        self._last = 0

    def ask(self, client: HiveClient, method: str, arguments: Struct) -> Any:
        """In place of `HiveClient.ask`. The metastore answers questions about its lock only: a
        schema that it is not told of is the truth, too.
        """
        number = int(client.uri.removeprefix(_SCHEME))
        process = next(other for other in self.world.processes if other.number == number)
        if not process.dead:
            wait_until_chosen()
        if not hasattr(self, f"_{method}"):
            raise errors.Unavailable(f"The metastore gives no answer to {method}.")
        fault = process.reached("unlock" if method == "unlock" else "lock", METASTORE_LOCK)
        if fault is Fault.DIES_BEFORE:
            raise process.die()
        if fault in (Fault.FAILS_BEFORE, Fault.ANSWER_LOST) and method in ("unlock", "show_locks"):
            self._forgive(process)
        if fault is Fault.FAILS_BEFORE:
            raise errors.Unavailable("No way to the metastore.", problem=hive_client._UNREACHED)
        self._clean()
        answer = getattr(self, f"_{method}")(process, arguments)
        if fault is Fault.DIES_AFTER:
            raise process.die()
        if fault is Fault.ANSWER_LOST:
            raise errors.Unavailable("The answer of the metastore is lost.")
        if fault is Fault.LATE_ANSWER:
            self.world.millis += LATE_MILLIS
            self._clean()
        if method in ("lock", "check_lock") and self._holder is process:
            process.under_lock = self.world.millis
        return answer

    @property
    def is_of_the_dead(self) -> bool:
        """Whether a process that is dead has the lock."""
        self._clean()
        return self._holder is not None and self._holder.dead

    def check(self, process: Process, path: str) -> None:
        """What holds when a process publishes a snapshot. Its lock may have expired since it got
        it: a process may pause at any time.
        """
        self._clean()
        if self._holder is not process and not process.under_lock:
            self._broken(rules.UNDER_LOCK, f"{process.name} puts {path} without the lock")

    @property
    def _holder(self) -> Process | None:
        return self._locks[0].owner if self._locks else None

    def _clean(self) -> None:
        """The metastore's housekeeping."""
        oldest = self.world.millis - 1000 * LOCK_SECONDS
        self._locks = [lock for lock in self._locks if lock.seen_millis >= oldest]

    def _forgive(self, process: Process) -> None:
        for lock in self._locks:
            lock.is_forgiven = lock.is_forgiven or lock.owner is process

    def _lock(self, process: Process, arguments: Struct) -> Struct:
        is_java = process.actor.kind.startswith("Java")
        for lock in self._locks:
            if lock.owner is process and not (lock.is_forgiven or is_java):
                self._broken(
                    rules.LOCK_GIVEN_BACK,
                    f"{process.name} asks for a lock, and has not given back lock {lock.number}",
                )
        self._last += 1
        agent = arguments.struct(1).text(5)
        self._locks.append(Lock(self._last, process, agent, self.world.millis))
        return self._state(self._locks[-1])

    def _check_lock(self, process: Process, arguments: Struct) -> Struct:
        lock = self._lock_of(arguments)
        lock.seen_millis = self.world.millis
        return self._state(lock)

    def _unlock(self, process: Process, arguments: Struct) -> None:
        lock = self._lock_of(arguments)
        if lock.owner is not process:
            self._broken(rules.HOLDERS_LOCK, f"{process.name} ends the lock of {lock.owner.name}")
        self._locks.remove(lock)
        process.under_lock = 0

    def _show_locks(self, process: Process, arguments: Struct) -> Struct:
        shown = [
            Struct({1: (I64, lock.number), 13: (STRING, lock.agent.encode())})
            for lock in self._locks
        ]
        return Struct({1: (LIST, (STRUCT, shown))})

    def _state(self, lock: Lock) -> Struct:
        state = hive._ACQUIRED if self._locks[0] is lock else hive._WAITING
        return Struct({1: (I64, lock.number), 2: (I32, state)})

    def _lock_of(self, arguments: Struct) -> Lock:
        number = arguments.struct(1).number(1)
        for lock in self._locks:
            if lock.number == number:
                return lock
        raise errors.NotFound(f"The metastore has no lock {number}.")

    def _broken(self, rule: str, what: str) -> None:
        self.world.verdict = Violation(rule, what)
        raise self.world.verdict
