"""Independent requests: one after the other, or in flight at once. And how many of each kind there
were. A *trip* is a request, or several that are in flight at once. Trips are counted in each
thread. Requests that are sent together begin in the trip after the last one of the thread that
sends them.
"""

import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, thread
from contextlib import suppress
from typing import Any, Final

AT_ONCE: Final = 32
"""How many requests a process has in flight, apart from those of the threads that wait for them."""

KINDS: Final = ("GET", "PUT", "HEAD", "LIST", "DELETE")
"""The kinds of requests."""

Request = Callable[[], Any]

_POOLS: Final[dict[int, ThreadPoolExecutor]] = {}


class _Thread(threading.local):
    trip: int = 0


_HERE: Final = _Thread()


class RequestTally:
    """Counts the requests that one storage object has sent, by kind (GET, PUT, HEAD, LIST, DELETE).
    Safe to use from many threads. What a client repeats by itself is counted once.
    """

    __slots__ = ("_counts", "_lock")

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, kind: str) -> int:
        """Counts a request. Returns the trip of this thread that it belongs to."""
        with self._lock:
            self._counts[kind] += 1
        _HERE.trip += 1
        return _HERE.trip

    @staticmethod
    def trip() -> int:
        """The number of trips of this thread so far."""
        return _HERE.trip

    def requests(self) -> Mapping[str, int]:
        """The number of requests of each kind so far."""
        with self._lock:
            return dict(self._counts)


class Meter:
    """The requests that a storage has sent, by kind, and the trips of this thread; none if it does
    not count.
    """

    __slots__ = ("_begun", "_tally", "_trip")

    def __init__(self, storage: object) -> None:
        self._tally = tally_of(storage)
        self._begun = {} if self._tally is None else self._tally.requests()
        self._trip = RequestTally.trip()

    def requests(self) -> Mapping[str, int]:
        """The number of requests of each kind."""
        now = {} if self._tally is None else self._tally.requests()
        return {
            kind: new for kind, count in now.items() if (new := count - self._begun.get(kind, 0))
        }

    def trips(self) -> int:
        """The number of trips."""
        return RequestTally.trip() - self._trip


def tally_of(storage: object) -> RequestTally | None:
    """The storage's tally; None for a storage that does not count, such as the local disk."""
    found = getattr(storage, "tally", None)
    return found if isinstance(found, RequestTally) else None


def in_turn(requests: Sequence[Request]) -> list[Any]:
    """The results of the requests, which run one after the other. If one fails, the rest is not
    begun.
    """
    return [request() for request in requests]


def each_from_here(requests: Sequence[Request]) -> list[Request]:
    """The same requests. Each begins in the trip after this thread's last one, in whichever thread
    it runs, and returns its result and the trip in which it ends.
    """
    start = _HERE.trip

    def counted(request: Request) -> tuple[Any, BaseException | None, int]:
        before, _HERE.trip = _HERE.trip, start
        try:
            return request(), None, _HERE.trip
        except BaseException as failed:  # noqa: BLE001  it is raised when all have ended
            return None, failed, _HERE.trip
        finally:
            _HERE.trip = before

    return [lambda request=request: counted(request) for request in requests]  # type: ignore[misc]


def ended(outcomes: Sequence[tuple[Any, BaseException | None, int]]) -> list[Any]:
    """The results of requests of `each_from_here` that have all ended. Raises the first error."""
    _HERE.trip = max([_HERE.trip, *(trip for _, _, trip in outcomes)])
    for _, failed, _ in outcomes:
        if failed is not None:
            raise failed
    return [result for result, _, _ in outcomes]


def at_once(requests: Sequence[Request]) -> list[Any]:
    """The results of the requests, which run in this thread and in those of one pool. The first
    error is raised when all have ended. A request may itself have others run so: this thread does
    what no other has begun. When the interpreter ends, the pool's threads begin nothing more,
    because it waits for them.
    """
    if len(requests) < 2:
        return in_turn(requests)
    outcomes: list[Any] = [None] * len(requests)
    left = iter(enumerate(each_from_here(requests)))

    def run(goes_on: Callable[[], bool]) -> None:
        while goes_on() and (found := next(left, None)) is not None:
            outcomes[found[0]] = found[1]()

    pool, helpers = _pool(), []
    with suppress(RuntimeError):  # the interpreter ends
        for _ in range(min(len(requests) - 1, AT_ONCE)):
            helpers.append(pool.submit(run, lambda: not getattr(thread, "_shutdown", False)))
    run(lambda: True)
    for helper in helpers:
        if not helper.cancel():
            helper.result()
    return ended(outcomes)


def _pool() -> ThreadPoolExecutor:
    """The threads of this process; a fork leaves none. There is no lock: a fork could leave it held
    for ever.
    """
    pid = os.getpid()
    found = _POOLS.get(pid)
    if (
        found is None
    ):  # threads begin when they are needed, so a second pool that is dropped costs nothing
        made = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="paimon-stream-requests")
        found = _POOLS.setdefault(pid, made)
    return found
