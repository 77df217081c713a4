"""A storage that counts round trips as an object store has them: requests that are in flight
together share a trip. It is in memory and runs them one after the other, so the counts are exact
and the same each time.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from paimon_stream.storage.base import Storage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.storage.together import Request, RequestTally, each_from_here, ended
from tests.kits.faults import Fault, FaultyStorage, Operation

_KINDS: Final = {
    "read": "GET",
    "open_input": "GET",
    "write": "PUT",
    "put_if_absent": "PUT",
    "output.close": "PUT",
    "list_files": "LIST",
    "list_folders": "LIST",
    "stat": "HEAD",
    "delete": "DELETE",
}


@dataclass(frozen=True, slots=True)
class Sent:
    """One request. `trip` counts from 1; None for one from another thread than the one that is
    measured.
    """

    trip: int | None
    kind: str
    path: str


@dataclass
class Trips:
    """What was sent inside the block of `TripStorage.counted`."""

    sent: list[Sent] = field(default_factory=list)

    @property
    def trips(self) -> int:
        """The round trips of the thread that was measured."""
        return max((one.trip or 0 for one in self.sent), default=0)

    @property
    def requests(self) -> int:
        """The requests of all threads."""
        return len(self.sent)

    @property
    def kinds(self) -> Counter[str]:
        return Counter(one.kind for one in self.sent)

    def __str__(self) -> str:
        lines = (f"{one.trip or '-':>3} {one.kind:<6} {one.path}" for one in self.sent)
        return "\n".join((f"{self.trips} trips, {self.requests} requests", *lines))


class TripStorage(FaultyStorage):
    """A storage whose requests are counted."""

    def __init__(self, inner: Storage | None = None, plan: Sequence[Fault] = ()) -> None:
        super().__init__(inner or MemoryStorage(), plan)
        self.tally = RequestTally()
        self._open: Trips | None = None
        self._start = 0
        self._thread = 0

    @contextmanager
    def counted(self) -> Iterator[Trips]:
        """Counts what is sent inside the block."""
        self._open = found = Trips()
        self._start, self._thread = self.tally.trip(), threading.get_ident()
        try:
            yield found
        finally:
            self._open = None

    def write_all(self, files: Sequence[tuple[str, bytes]]) -> None:
        self.together([lambda one=one: self.write(*one) for one in files])  # type: ignore[misc]

    def is_link(self, path: str) -> bool:
        return False

    def together(self, requests: Sequence[Request]) -> list[Any]:
        return ended([one() for one in each_from_here(requests)])

    def _due(self, operation: Operation) -> Fault | None:
        kind = _KINDS.get(operation.verb)
        if kind is not None:
            trip = self.tally.add(kind) - self._start
            if self._open is not None:
                here = threading.get_ident() == self._thread
                self._open.sent.append(Sent(trip if here else None, kind, operation.path))
        return super()._due(operation)
