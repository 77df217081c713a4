"""Runs independent requests, one after the other or at the same time, and counts them by kind.

A *trip* is a request, or several that are in flight at once. Trips are counted in each thread.
Requests that are sent together begin in the trip after the last one of the thread that sends them.

Requests that do not depend on each other are sent together: in an object store and in HDFS by the
threads of one pool, in other storages one after the other. Apart from that, storages do not differ.
A steady batch in a store takes four trips (docs/stores.md).
"""

import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, thread
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

AT_ONCE: Final = 32
"""How many requests a process has in flight, apart from those of the threads that wait for them."""

KINDS: Final = ("GET", "PUT", "HEAD", "LIST", "DELETE")
"""The kinds of requests."""

Request = Callable[[], Any]

_POOLS: Final[dict[int, ThreadPoolExecutor]] = {}
"""The pools by process, because a fork leaves no threads."""


class _Thread(threading.local):
    trip: int = 0
    """The number of trips of this thread so far."""


_HERE: Final = _Thread()


class EndedRequest(NamedTuple):
    """The outcome of a request that has ended.

    Attributes:
        result: the value that the request returned; None if it failed.
        error: the error that the request raised; None if it raised none.
        trip: the trip in which the request ended.
    """

    result: Any
    error: BaseException | None
    trip: int


class RequestTally:
    """Counts the requests that one storage object has sent, by kind (GET, PUT, HEAD, LIST, DELETE).
    Safe to use from many threads. A request that the client repeats by itself is counted once.
    """

    __slots__ = ("_counts", "_lock")

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, kind: str) -> int:
        """Counts a request. Returns the number of its trip in this thread."""
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
    """The requests that a storage has sent since the meter was made, by kind, and the trips of this
    thread. For a storage without a tally, no requests are counted.
    """

    __slots__ = ("_counts_before", "_tally", "_trip")

    def __init__(self, storage: object) -> None:
        self._tally = tally_of(storage)
        self._counts_before = {} if self._tally is None else self._tally.requests()
        self._trip = RequestTally.trip()

    def requests(self) -> Mapping[str, int]:
        """The number of requests of each kind since the meter was made."""
        counts = {} if self._tally is None else self._tally.requests()
        new = {kind: count - self._counts_before.get(kind, 0) for kind, count in counts.items()}
        return {kind: count for kind, count in new.items() if count}

    def trips(self) -> int:
        """The number of trips of this thread since the meter was made."""
        return RequestTally.trip() - self._trip


def tally_of(storage: object) -> RequestTally | None:
    """The storage's tally; None for a storage that does not count, such as the local disk."""
    tally = getattr(storage, "tally", None)
    return tally if isinstance(tally, RequestTally) else None


def in_turn(requests: Sequence[Request]) -> list[Any]:
    """The results of the requests, which run one after the other. After a failure, no further
    request is begun.
    """
    return [request() for request in requests]


def each_from_here(requests: Sequence[Request]) -> list[Callable[[], EndedRequest]]:
    """The requests as functions that return their outcomes. Each request begins in the trip after
    this thread's last one, even if another thread runs it.
    """
    start = _HERE.trip

    def outcome(request: Request) -> EndedRequest:
        before = _HERE.trip
        _HERE.trip = start
        try:
            return EndedRequest(request(), None, _HERE.trip)
        except BaseException as failed:  # noqa: BLE001  it is raised when all have ended
            return EndedRequest(None, failed, _HERE.trip)
        finally:
            _HERE.trip = before

    return [partial(outcome, request) for request in requests]


def ended(outcomes: Sequence[EndedRequest]) -> list[Any]:
    """The results of requests that `each_from_here` returned and that have all ended. Raises the
    first error.
    """
    _HERE.trip = max([_HERE.trip, *(outcome.trip for outcome in outcomes)])
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    return [outcome.result for outcome in outcomes]


def at_once(requests: Sequence[Request]) -> list[Any]:
    """The results of the requests, which run in this thread and in the threads of one pool. The
    first error is raised when all have ended. A request may itself call this function. In that
    case, its thread runs the inner requests that no other thread has begun. When the interpreter
    ends, the pool's threads begin nothing more, because the interpreter waits for them.
    """
    if len(requests) < 2:
        return in_turn(requests)
    outcomes: list[Any] = [None] * len(requests)
    waiting = iter(enumerate(each_from_here(requests)))

    def run_waiting(goes_on: Callable[[], bool]) -> None:
        while goes_on() and (numbered := next(waiting, None)) is not None:
            number, request = numbered
            outcomes[number] = request()

    pool = _pool()
    helpers = []
    with suppress(RuntimeError):  # raised when the interpreter ends; this thread then runs all
        for _ in range(min(len(requests) - 1, AT_ONCE)):
            helpers.append(pool.submit(run_waiting, _interpreter_goes_on))
    run_waiting(lambda: True)
    for helper in helpers:
        # A helper that has not begun is cancelled, because no request is left for it. The other
        # helpers are waited for.
        if not helper.cancel():
            helper.result()
    return ended(outcomes)


def _interpreter_goes_on() -> bool:
    return not getattr(thread, "_shutdown", False)


def _pool() -> ThreadPoolExecutor:
    """The pool of threads of this process. A forked child has none of its parent's threads. No lock
    is used, because a fork could leave a lock locked for ever.
    """
    pid = os.getpid()
    pool = _POOLS.get(pid)
    if pool is None:
        # Threads begin only when they are needed, so a second pool that is dropped costs nothing.
        new = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="paimon-stream-requests")
        pool = _POOLS.setdefault(pid, new)
    return pool
