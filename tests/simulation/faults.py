"""The storage of one simulated process. Each operation is a point where the scheduler may stop the
process, let it fail, or end it.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from paimon_stream.errors import NoSpace, PaimonStreamError, PermissionDenied, Unavailable
from paimon_stream.storage.base import MOST_BYTES, FileStat, PutResult, Storage, delete_each
from paimon_stream.storage.together import Request, RequestTally, in_turn
from tests.kits.faults import Killed
from tests.simulation.in_flight import in_any_order, wait_until_chosen
from tests.simulation.limits import Limit
from tests.simulation.state import Violation

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process


class Fault(Enum):
    """What happens to one operation."""

    NONE = "works"
    DIES_BEFORE = "the process dies before it"
    DIES_AFTER = "the process dies after it"
    FAILS_BEFORE = "fails without effect"
    ANSWER_LOST = "takes effect, but the answer is lost"
    LATE = "is delayed, and its process gets no answer"
    LATE_AND_DEAD = "is delayed, and its process dies"
    NO_SPACE = "finds no space"
    SLOW = "lists one half of the folder now and the other half later"
    CONFLICT = "is refused again and again because of other requests, and nothing is there"
    STORM = "is refused, as are the next requests of all processes"
    FAILS_AFTER = "takes effect, but the server answers that it failed"
    TWICE = "arrives twice, and the second answer counts"
    AGAIN_LATER = "arrives twice, and the second time later"
    TOKEN_EXPIRED = "is refused, because a token has expired"
    LATE_ANSWER = "takes effect, and its process pauses before it has the answer"


_DEATHS: Final = (Fault.DIES_BEFORE, Fault.DIES_AFTER)
_FAILURES: Final = (Fault.FAILS_BEFORE, Fault.ANSWER_LOST)
CHANGES: Final = frozenset({"put", "write", "delete", "commit", "lock", "unlock"})
SENDS: Final = frozenset({"put", "write", "commit"})
"""By which a snapshot is published."""


STORM = 40
"""How many requests fail while a store is overloaded."""
LATE_MILLIS = 400_000
"""How long a process pauses in front of an answer: longer than a metastore keeps its lock."""
METASTORE_LOCK: Final = "hive.db.t"
"""The lock of a Hive Metastore, in place of a path."""
CONFLICT_MILLIS = 1600
"""How long a store's client repeats a put that is refused because of other requests
(docs/stores.md).
"""


def possible(
    verb: str,
    path: str,
    *,
    on_store: bool = False,
    on_hdfs: bool = False,
    token: bool = False,
) -> tuple[Fault, ...]:
    """The faults that such an operation may have on a disk, `on_store`, an object store, or `on_hdfs`,
    opened with a `token`.

    A put may arrive after its writer is dead, and so may a write of a hint. On a store this may
    happen to any file that is written. Deletions that arrive late are no promise of any storage
    that this package accepts.
    """
    faults = (Fault.NONE, *_DEATHS, *_FAILURES)
    if verb in ("lock", "unlock"):
        return (*faults, Fault.LATE_ANSWER) if path == METASTORE_LOCK else faults
    if verb == "show":
        return (*faults, Fault.TOKEN_EXPIRED, Fault.STORM)
    if verb == "commit":
        late = (Fault.LATE, Fault.LATE_AND_DEAD) * 2
        return (
            *faults,
            *late,
            Fault.FAILS_AFTER,
            Fault.TWICE,
            Fault.AGAIN_LATER,
            Fault.TOKEN_EXPIRED,
            Fault.STORM,
        )
    if verb == "put" or (verb == "write" and path.endswith("/LATEST")):
        faults += (Fault.LATE, Fault.LATE_AND_DEAD) * 2
    if verb in ("put", "write", "open"):
        faults += (Fault.NO_SPACE,)
    if on_hdfs and verb in ("put", "write"):
        faults += (Fault.TWICE,) * 2
    if verb == "list":
        faults += (Fault.SLOW,)
    if on_store:
        faults += (Fault.STORM,)
        if verb == "put":
            faults += (Fault.CONFLICT,)
        elif verb == "write":
            faults += (Fault.LATE, Fault.LATE_AND_DEAD)
    return (*faults, Fault.TOKEN_EXPIRED) if token else faults


class ProcessStorage:
    """The table's storage as one process sees it."""

    location = "memory://table"
    has_folders = False
    answers_late = True

    def __init__(self, process: Process) -> None:
        self._process = process
        self._disk = process.world.disk
        self.world = process.world
        self.given: Sequence[object] = ()  # what was read last stands for (rewriting.py)
        if process.world.in_flight:
            self.tally = RequestTally()  # a storage that counts its requests has several in flight

    def read(self, path: str, limit: int = MOST_BYTES) -> bytes:
        return self._run("read", path, self._disk.read, limit)

    def write(self, path: str, data: bytes) -> None:
        self._run("write", path, self._disk.write, data)

    def write_all(self, files: Sequence[tuple[str, bytes]]) -> None:
        """The files are sent to a store at once. So those that land before a fault may be any of
        them, and others may land although one fails. On a disk, a death leaves the first ones, and
        a half of the next.
        """
        process, world = self._process, self._process.world
        is_parallel = world.on_store or world.on_hdfs
        first = world.choices.below(len(files)) if is_parallel and files else 0
        waiting = [*files[first:], *files[:first]]
        try:
            while waiting:
                self.write(*waiting[0])
                waiting.pop(0)
        except (Killed, PaimonStreamError):
            if is_parallel:
                dice = random.Random(f"of several {world.seed} {world.operations}")
                left = [one for one in waiting[1:] if dice.randrange(2)]
            else:
                left = [
                    (path, data[: len(data) // 2]) for path, data in waiting[:1] if process.dead
                ]
            for path, data in left:
                if path not in world.truth.paths:
                    self.take_effect("write", path, partial(self._disk.write, path, data))
            there = sum(path in world.truth.paths for path, _ in files)
            world.faults_met["write of several", "SOME_ARE_THERE"] += 0 < there < len(files)
            raise

    def write_hint(self, path: str, data: bytes) -> None:
        self.write(path, data)

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        return self._run("put", path, self._disk.put_if_absent, data)

    def list_files(self, folder: str, prefix: str = "") -> list[FileStat]:
        return self._list(
            folder, lambda: self._disk.list_files(folder, prefix), lambda one: one.name
        )

    def list_names(self, folder: str, prefix: str = "") -> list[str]:
        return self._list(folder, lambda: self._disk.list_names(folder, prefix), str)

    def list_folders(self, folder: str) -> list[str]:
        return self._run("list", folder, self._disk.list_folders)

    def list_pages(self, folder: str) -> Iterator[list[FileStat]]:
        return Storage.list_pages(cast("Storage", self), folder)

    def list_below(self, folder: str) -> Iterator[list[FileStat]]:
        def look() -> list[FileStat]:
            found = [one for page in self._disk.list_below(folder) for one in page]
            return sorted(found, key=lambda one: one.path)

        yield self._list(folder, look, lambda one: one.path)

    def stat(self, path: str) -> FileStat:
        return self._run("stat", path, self._disk.stat)

    def exists(self, path: str) -> bool:
        return self._run("stat", path, self._disk.exists)

    def is_link(self, path: str) -> bool:
        return self._disk.is_link(path)

    def delete(self, path: str) -> None:
        self._run("delete", path, self._disk.delete)

    def delete_all(self, paths: Sequence[str]) -> dict[str, PaimonStreamError]:
        return delete_each(self.delete, paths)

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        output = io.BytesIO()
        yield output
        self.write(path, output.getvalue())

    def open_input(self, path: str) -> AbstractContextManager[Any]:
        return self._run("read", path, self._disk.open_input)

    def together(self, requests: Sequence[Request]) -> list[Any]:
        if not self._process.world.in_flight or len(requests) < 2:
            return in_turn(requests)
        return in_any_order(requests, self._process.world.choices)

    def _run(self, verb: str, path: str, operation: Callable[..., Any], *others: Any) -> Any:
        """Does an operation on a path, with these other arguments, unless a fault happens to it."""
        process, world = self._process, self.world
        if world.in_flight and not process.dead:
            wait_until_chosen()
        fault = process.reached(verb, path)
        if fault is Fault.NONE and world.storm == 0 and verb not in CHANGES:
            return operation(path, *others)
        effect = partial(operation, path, *others)
        if fault is Fault.STORM:
            world.storm = STORM
        if fault is Fault.CONFLICT:
            world.millis += CONFLICT_MILLIS
        if world.is_refused(process.actor):
            fault = Fault.FAILS_BEFORE
        if (
            world.locks is not None
            and verb in ("put", "write")
            and path.startswith("snapshot/snapshot-")
        ):
            world.locks.check(process, path)
        if fault is Fault.NONE or fault is Fault.SLOW:
            return self.take_effect(verb, path, effect)
        text = f"{verb} of {path!r}: {fault.value}"
        if fault is Fault.TOKEN_EXPIRED:
            raise PermissionDenied(text, path=path)
        if fault is Fault.DIES_BEFORE:
            raise process.die()
        if fault in (Fault.FAILS_BEFORE, Fault.CONFLICT):
            raise Unavailable(text, path=path)
        if fault is Fault.NO_SPACE:
            raise NoSpace(text, path=path)
        if fault in (Fault.LATE, Fault.LATE_AND_DEAD):
            world.late.append((process, verb, path, effect))
        else:
            self.take_effect(verb, path, effect)
        if fault in (Fault.DIES_AFTER, Fault.LATE_AND_DEAD):
            raise process.die()
        raise Unavailable(text, path=path)

    def take_effect(self, verb: str, path: str, effect: Callable[[], Any]) -> Any:
        """Does what an operation asks for."""
        if verb not in CHANGES:
            return effect()
        try:
            return self._process.world.truth.change(self._process, verb, path, effect)
        except (Limit, Violation) as verdict:
            self._process.world.verdict = (
                verdict  # whoever is at work may take it for a failure of the storage
            )
            raise

    def _list(
        self, folder: str, look: Callable[[], list[Any]], name: Callable[[Any], str]
    ) -> list[Any]:
        process = self._process
        if self.world.in_flight and not process.dead:
            wait_until_chosen()
        fault = process.reached("list", folder)
        if fault is Fault.NONE and self.world.storm == 0:
            return look()
        if fault is Fault.DIES_BEFORE or fault is Fault.DIES_AFTER:
            raise process.die()
        if fault is Fault.STORM:
            process.world.storm = STORM
        if fault in _FAILURES or process.world.is_refused(process.actor):
            raise Unavailable(f"list of {folder!r}: {fault.value}", path=folder)
        if fault is not Fault.SLOW:
            return look()
        before = look()
        upto = name(before[len(before) // 2]) if before else ""
        process.pause_here()
        process.reached("list", folder)
        return [one for one in before if name(one) < upto] + [
            one for one in look() if name(one) >= upto
        ]


def dead() -> Killed:
    """What a dead process gets from its storage."""
    return Killed("the process is dead")
