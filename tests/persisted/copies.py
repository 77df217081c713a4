"""Copies of a stream's folder. `kill -9` leaves what is on disk at that moment, so a copy that is
taken while the stream waits at a point of a batch is what a kill there would leave.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paimon_stream.commit.report import Phase

BATCHES = (0, 1)
STOPPED = f"{len(BATCHES)}-{Phase.BATCH_STARTED.value}"
"""The point at which all of these batches are done, and nothing of the next one is in the table."""


@dataclass
class Copies:
    """Copies the folder `root` at each point of its batches, the first time that the point is
    reached.

    Points are the observer's phases, and `linked`: the snapshot is public, and the storage has not
    answered. The copy is `kills/<batch>-<point>`, or `kills/<batch>-<point>.<sink>` for a sink with
    a name.
    """

    root: Path
    batch: int = -1
    sink: str | None = None
    copying: bool = False

    @property
    def kills(self) -> Path:
        """The folder of the copies."""
        return self.root.parent / "kills"

    def of_sink(self, name: str | None) -> OfSink:
        """The observer of one sink."""
        return OfSink(self, name)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Python's own audit events."""
        name = str(arguments[0]) if arguments else ""
        if (
            event == "os.remove"
            and name.startswith(str(self.root))
            and "/snapshot/.snapshot-" in name
        ):
            self.copy("linked")

    def copy(self, where: str) -> None:
        """Takes the copy, unless there is one of this point, or none is wanted."""
        name = f"{self.batch}-{where}" + ("" if self.sink is None else f".{self.sink}")
        wanted = self.batch in BATCHES or name == STOPPED
        if self.copying or not wanted or (self.kills / name).exists():
            return
        self.copying = True
        shutil.copytree(self.root, self.kills / name)
        self.copying = False


@dataclass(frozen=True)
class OfSink:
    """Takes copies at the phases of one sink."""

    copies: Copies
    name: str | None

    def reached(self, phase: Phase, identifier: int) -> None:
        """A point of a batch."""
        self.copies.batch, self.copies.sink = identifier, self.name
        self.copies.copy(phase.value)
