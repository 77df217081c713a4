"""How a process dies: by SIGKILL at a storage operation, a system call or a point of a batch that a
seed has drawn, or from outside after a while.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from paimon_stream.commit.report import Phase
from paimon_stream.storage.base import Storage
from tests.kits.faults import Fault, FaultyStorage, Moment, Operation

NOT_STARTED = "before the first batch"
BETWEEN = "between batches"
COMPACTING = "in the compaction"
MOST_BATCHES = 6
"""After so many batches a process kills itself, if what it waits for has not come."""


class Diary:
    """A file that says what its process did last. It is written over in one system call, so it
    can be read when the process is dead.
    """

    _WIDTH = 100

    def __init__(self, path: Path, last_point: int | None = None) -> None:
        """At the point with the number `last_point` the process dies."""
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY)
        self._finished, self._points, self._last_point = False, 0, last_point
        self.write(NOT_STARTED)

    def write(self, words: str) -> None:
        """Replaces what the file says."""
        os.pwrite(self._file, words.encode()[: self._WIDTH].ljust(self._WIDTH), 0)

    def reached(self, phase: Phase, identifier: int) -> None:
        """Notes the phase of a batch, as an observer of the writer."""
        if phase is Phase.BATCH_STARTED:
            self._finished = False
        if phase is Phase.FINISHED:
            self._finished = True
            self.write(BETWEEN)
        else:
            self.write(COMPACTING if self._finished else f"after {phase.value}")
        self._points += 1
        if self._points == self._last_point:
            die()

    @classmethod
    def last_words(cls, path: Path) -> str:
        """What a dead process has written last."""
        return path.read_text().strip() if path.exists() else NOT_STARTED


def die() -> None:
    """Ends this process at once. No handler, no `finally` and no exit function runs."""
    os.kill(os.getpid(), signal.SIGKILL)


class Sigkill(Fault):
    """Kills the process at the operation, before or after its effect, or in the middle of it."""

    def raised(self, operation: Operation) -> BaseException:
        """Does not return."""
        die()
        raise AssertionError("SIGKILL has not ended the process")


@dataclass(frozen=True)
class Death:
    """One way to die. `at` counts operations, system calls or points; `verb`, `path` and `cut` are
    those of a `Fault`. After `seconds` somebody else kills the process.
    """

    how: str
    at: int = 0
    verb: str = ""
    path: str = ""
    cut: int | None = None
    seconds: float | None = None

    @classmethod
    def drawn(cls, dice: Random, place: str) -> Death:
        """A death that fits the place. System calls are those of a disk."""
        hows = [*OPERATIONS, *OPERATIONS, IN_A_WRITE, *2 * [AT_A_POINT, AFTER_A_WHILE]]
        how = dice.choice([*hows, SYSTEM_CALL, SYSTEM_CALL] if place == "disk" else hows)
        if how == AFTER_A_WHILE:
            return cls(how, seconds=dice.uniform(0, 1 if place == "disk" else 3))
        if how == SYSTEM_CALL:
            return cls(how, dice.randrange(1, 300))
        if how == AT_A_POINT:
            return cls(how, dice.randrange(1, 36))
        if how == IN_A_WRITE:
            return cls(how, dice.randrange(1, 150), "output.write", cut=dice.randrange(1500))
        verb, path, most = dice.choice(TARGETS)
        return cls(how, dice.randrange(1, most), verb, path)

    def arm(self, storage: Storage) -> Storage:
        """The storage with which this process dies, if it is to die by itself."""
        if self.how == SYSTEM_CALL:
            _die_at_system_call(storage.location, self.at)
        if self.how not in (*OPERATIONS, IN_A_WRITE):
            return storage
        after = self.how == AFTER_AN_OPERATION
        moment = Moment.AFTER if after else Moment.BEFORE
        how = {"verb": self.verb, "path": self.path, "cut": self.cut}
        return FaultyStorage(storage, [Sigkill(at=self.at, moment=moment, **how)])


BEFORE_AN_OPERATION = "before an operation"
AFTER_AN_OPERATION = "after an operation"
OPERATIONS = (BEFORE_AN_OPERATION, AFTER_AN_OPERATION)
IN_A_WRITE = "in a write"
AT_A_POINT = "at a point of a batch"
SYSTEM_CALL = "before a system call"
AFTER_A_WHILE = "after a while"
NEVER = Death("never")
TARGETS = [
    ("", "", 250),
    ("read", "", 60),
    ("list_files", "", 30),
    ("stat", "", 20),
    ("put_if_absent", "", 8),
    ("put_if_absent", "snapshot/", 6),
    ("write", "", 30),
    ("write", "_paimon_stream/", 8),
    ("open_output", "", 12),
    ("output.close", "", 12),
    ("delete", "", 12),
]
"""Operations: verb, path, and a bound of the number at which a process dies."""

_CALLS = {"os.link", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.scandir", "open"}


def _die_at_system_call(folder: str, at: int) -> None:
    """Python's own audit events come before the system calls."""
    left = [at]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _CALLS and any(folder in str(path) for path in arguments[:2]):
            left[0] -= 1
            if not left[0]:
                die()

    sys.addaudithook(hook)
