"""Reads the CPU seconds and memory of a session of processes from /proc, and ends all of its
processes.

A measured system is a process that leads a session of its own. Its JVM and its Python workers
belong to the session, even if they change their process group. The times of ended children are
included in those of their parents.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["TICKS", "Memory", "Start", "cpu_seconds", "kill_session", "members", "stat_of"]

TICKS = os.sysconf("SC_CLK_TCK")
"""Clock ticks per second."""


@dataclass(frozen=True, slots=True)
class Stat:
    """A process or thread: its name, its session, and the CPU ticks used by itself and by its ended
    children."""

    name: str
    session: int
    own: int
    of_children: int


@dataclass(frozen=True, slots=True)
class Member:
    """One process: its id, its name, and the CPU ticks used by itself and its ended children."""

    pid: int
    name: str
    ticks: int


def stat_of(place: Path) -> Stat:
    """Reads the figures in the folder `place` of /proc. Raises `OSError` if the process or thread
    has ended.
    """
    head, _, tail = (place / "stat").read_text(errors="replace").rpartition(")")
    fields = tail.split()
    user, system, ended_user, ended_system = map(int, fields[11:15])
    return Stat(head.partition("(")[2], int(fields[3]), user + system, ended_user + ended_system)


def members(session: int) -> list[Member]:
    """The processes of a session, including those that have ended but were not waited for."""
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            stat = stat_of(Path(entry.path))
        except OSError:
            continue  # the process has ended
        if stat.session == session:
            found.append(Member(int(entry.name), stat.name, stat.own + stat.of_children))
    return found


def cpu_seconds(session: int) -> float:
    """The user and system time of a session so far, including ended children."""
    return sum(member.ticks for member in members(session)) / TICKS


def kill_session(session: int) -> None:
    """Kills all processes of a session."""
    for member in members(session):
        with contextlib.suppress(ProcessLookupError):
            os.kill(member.pid, signal.SIGKILL)


@dataclass
class _Watch:
    """Runs `_watch`, which observes a session, in a thread while the `with` block runs."""

    session: int
    _ended: threading.Event = field(default_factory=threading.Event, init=False)

    def __enter__(self) -> Any:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        raise NotImplementedError


@dataclass
class Start(_Watch):
    """The start of a measurement: the wall clock, the CPU seconds of a session, and the sizes of
    files.

    They are taken when the file `after` appears, or at once if `after` is None. Checks every two
    milliseconds.
    """

    after: Path | None
    sizes_of_files: Callable[[], list[int]]
    wall: float = 0.0
    cpu: float = 0.0
    sizes: list[int] = field(default_factory=list)

    def __enter__(self) -> Any:
        self._note()
        return super().__enter__()

    def _watch(self) -> None:
        if self.after is None:
            return
        while not self.after.exists():
            if self._ended.wait(0.002):
                return
        self._note()

    def _note(self) -> None:
        self.wall, self.cpu = time.perf_counter(), cpu_seconds(self.session)
        self.sizes = self.sizes_of_files()


@dataclass
class Memory(_Watch):
    """The peaks of a session's memory in MiB, for the driver, the JVM and the Python workers.

    Pages that processes share count in proportion (PSS). `with Memory(session):` measures every 0.2
    seconds.
    """

    peaks: dict[str, float] = field(default_factory=dict)

    def _watch(self) -> None:
        while not self._ended.wait(0.2):
            self._look()

    def _look(self) -> None:
        now: dict[str, float] = {}
        for member in members(self.session):
            size = _proportional_size(member.pid)
            if size is not None:
                name = "driver" if member.pid == self.session else _kind(member.pid)
                now[name] = now.get(name, 0.0) + size
        now["together"] = sum(now.values())
        for name, size in now.items():
            self.peaks[name] = max(self.peaks.get(name, 0.0), size)


def _kind(pid: int) -> str:
    """The kind of a process. A worker runs Python. Any other process is the JVM, or a command that
    it starts.
    """
    try:
        return (
            "workers" if "python" in os.readlink(f"/proc/{pid}/exe").rpartition("/")[2] else "jvm"
        )
    except OSError:
        return "jvm"


def _proportional_size(pid: int) -> float | None:
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return None
    line = next((one for one in rollup.splitlines() if one.startswith("Pss:")), None)
    return None if line is None else int(line.split()[1]) / 1024
