"""Processes that run two of `rivals.CONTENDERS` on one table at the same time, again and again."""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

from paimon_stream.runtime import SimulatedClock, system
from paimon_stream.storage.local import LocalStorage
from tests.kits.maintained import Case, built
from tests.kits.rivals import Done, Rivals
from tests.kits.seeds import tries

__all__ = ["Arena", "Hall"]

AHEAD: Final = 40
"""A command begins after as many reads, at most."""

AHEAD_OF_STREAM: Final = 1500
"""The same for a command that meets a stream, which takes longer than any command."""

_POLITE: Final = 10
"""Arenas take all that the machine has, and tests beside them have deadlines."""

_SHARED_MEMORY: Final = Path("/dev/shm")


class Hall:
    """Several arenas, each in a process of its own, in which pairs meet at the same time."""

    def __init__(self, folder: Path, arenas: int) -> None:
        """Tables are in memory if the machine offers that, else in `folder`."""
        quick = _SHARED_MEMORY.is_dir() and os.access(_SHARED_MEMORY, os.W_OK)
        self._folder = tempfile.TemporaryDirectory(dir=_SHARED_MEMORY if quick else folder)
        self._workers = ProcessPoolExecutor(
            arenas, multiprocessing.get_context("spawn"), _enter_hall, (self._folder.name,)
        )

    def begin(self, pair: tuple[str, str], few: int, seconds: int) -> Future[int]:
        """Lets a pair meet as often as `seeds.tries` says. The result is the number of meetings. It
        raises `AssertionError` if one of them left something that may not be.
        """
        return self._workers.submit(_meetings, pair, few, seconds)

    def close(self) -> None:
        """Ends all processes."""
        self._workers.shutdown(cancel_futures=True)
        self._folder.cleanup()


def _enter_hall(folder: str) -> None:
    global _ARENA
    os.nice(_POLITE)
    _ARENA = Arena(Path(tempfile.mkdtemp(dir=folder)))


def _meetings(pair: tuple[str, str], few: int, seconds: int) -> int:
    assert _ARENA is not None
    dice = random.Random(" ".join(pair))
    made = 0
    for number in tries(few, seconds):
        ahead = [
            dice.randrange(AHEAD_OF_STREAM if pair[0] == "stream" != one else AHEAD) for one in pair
        ]
        met = _ARENA.meet(pair, expired=number % 2 == 1, ahead=ahead)
        try:
            met.audit()
            met.lives_on()
        except Exception as wrong:
            raise AssertionError(
                f"try {number} of {pair}, {ahead} reads ahead: {met.done}"
            ) from wrong
        made += 1
    return made


class Arena:
    """Two processes that run commands on one table at the same time."""

    def __init__(self, folder: Path) -> None:
        """Makes the tables that `meet` copies, in a folder."""
        spawn = multiprocessing.get_context("spawn")
        self._pool = spawn.Pool(2, _enter, (spawn.Barrier(2),))
        self._folder = folder
        for expired in (False, True):
            storage = LocalStorage(str(self._template(expired)))
            for path, data in built().items():
                storage.write(path, data)
            Rivals(Case.on(storage, SimulatedClock(1_700_000_100_000))).prepare(expired=expired)
            for path in self._template(expired).rglob("*"):
                os.utime(path, (1_600_000_000, 1_600_000_000))

    def meet(self, names: Sequence[str], *, expired: bool, ahead: Sequence[int]) -> Rivals:
        """Runs two commands at once on a new copy. Each waits for as many reads as `ahead` says."""
        table = self._folder / "t"
        shutil.rmtree(table, ignore_errors=True)
        shutil.copytree(self._template(expired), table)
        tasks = [(str(table), name, reads) for name, reads in zip(names, ahead, strict=True)]
        done = self._pool.starmap(_fight, tasks, chunksize=1)
        return Rivals(Case.on(LocalStorage(str(table)), SimulatedClock(1_800_000_000_000)), done)

    def _template(self, expired: bool) -> Path:
        return self._folder / f"template-{expired}"


def _enter(barrier: Any) -> None:
    global _BARRIER
    _BARRIER = barrier
    logging.disable(logging.CRITICAL)


_ARENA: Arena | None = None
_BARRIER: Any = None


def _fight(folder: str, name: str, reads: int) -> Done:
    storage = LocalStorage(folder)
    rivals = Rivals(Case.on(storage, SimulatedClock(1_800_000_000_000)))
    rivals.case.bench.runtime = system()
    _BARRIER.wait(900)
    for _ in range(reads):
        storage.read("schema/schema-0")
    rivals.run(name)
    return rivals.done[0]
