"""Requests that are in flight at once, and the trips that they count."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.storage.together import AT_ONCE, RequestTally, at_once, in_turn, tally_of
from tests.kits.trips import TripStorage


def test_results_come_in_the_order_of_the_requests() -> None:
    assert at_once([lambda n=n: n * n for n in range(50)]) == [n * n for n in range(50)]  # type: ignore[misc]
    assert at_once([]) == []


def test_requests_are_under_way_at_once() -> None:
    meeting = threading.Barrier(AT_ONCE)  # breaks unless all of them wait for each other
    at_once([lambda: meeting.wait(900)] * AT_ONCE)


def test_the_first_error_is_raised_when_all_have_ended() -> None:
    done: list[int] = []

    def failing(number: int) -> Callable[[], None]:
        def request() -> None:
            done.append(number)
            raise KeyError(number)

        return request

    with pytest.raises(KeyError, match="1"):
        at_once([lambda: done.append(0), failing(1), failing(2), lambda: done.append(3)])
    assert sorted(done) == [0, 1, 2, 3]
    with pytest.raises(KeyError, match="1"):
        in_turn([failing(1), failing(2)])
    assert done[4:] == [1]


def test_requests_within_requests_end_however_many_there_are() -> None:
    def within(depth: int) -> int:
        return 1 if depth == 0 else sum(at_once([lambda: within(depth - 1)] * 4))

    assert within(5) == 4**5


@pytest.mark.parametrize("nested", [False, True])
def test_requests_that_are_in_flight_at_once_share_a_trip(nested: bool) -> None:
    tally = RequestTally()
    ends: list[int] = []

    def two() -> None:
        tally.add("GET")
        ends.append(tally.add("GET"))

    def both() -> None:
        at_once([two, two])

    before = tally.trip()
    at_once([both, two] if nested else [two, lambda: tally.add("PUT")])
    assert tally.trip() == before + 2
    assert set(ends) == {before + 2}
    assert sum(tally.requests().values()) == (6 if nested else 3)


def test_the_double_counts_as_threads_do() -> None:
    storage = TripStorage()
    with storage.counted() as found:
        storage.write_all([("a/1", b"1"), ("a/2", b"2")])
        storage.together(
            [lambda: storage.read("a/1"), lambda: (storage.exists("b"), storage.read("a/2"))]
        )
        storage.put_if_absent("a/3", b"3")
    assert (found.trips, found.requests) == (4, 6)
    assert [one.trip for one in found.sent] == [1, 1, 2, 2, 3, 4]
    assert found.kinds == {"PUT": 3, "GET": 2, "HEAD": 1}
    assert tally_of(storage) is storage.tally


def test_disk_and_memory_run_them_in_turn(tmp_path: os.PathLike[str]) -> None:
    for storage in (MemoryStorage(), LocalStorage(str(tmp_path))):
        here: list[int] = []
        storage.together([lambda seen=here: seen.append(threading.get_ident())] * 3)  # type: ignore[misc]
        assert here == [threading.get_ident()] * 3
        assert tally_of(storage) is None


_FORKED = """
import os, sys
from paimon_stream.storage.together import at_once
at_once([lambda: None] * 8)
child = os.fork()
if child == 0:
    os._exit(0 if at_once([lambda: 7] * 8) == [7] * 8 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_has_threads_of_its_own() -> None:
    subprocess.run([sys.executable, "-c", _FORKED], check=True, timeout=900)


_ENDING = """
import os, threading
from concurrent.futures import ThreadPoolExecutor
from paimon_stream.storage.together import AT_ONCE, at_once

probe, begun, has_ended = ThreadPoolExecutor(1), threading.Semaphore(0), threading.Event()

def ends():
    try:
        probe.submit(int)
    except RuntimeError:
        return True
    return False

def request():
    if ends():
        has_ended.wait()  # for ever: the process must not wait for this
    os.write(1, b".")
    begun.release()
    while not ends():
        pass

threading.Thread(target=at_once, args=([request] * 250,), daemon=True).start()
for _ in range(AT_ONCE + 1):  # the threads of the pool, and the one that waits for them
    begun.acquire()
"""


def test_a_process_that_ends_waits_only_for_the_requests_in_flight() -> None:
    """An expiry after a commit runs in a daemon thread. What it has not begun must not delay the
    end.
    """
    ended = subprocess.run(
        [sys.executable, "-c", _ENDING], check=True, timeout=900, stdout=subprocess.PIPE
    )
    assert len(ended.stdout) <= AT_ONCE + 1


_AFTER_THE_END = """
import threading
from paimon_stream.storage.together import at_once

def late():
    threading.main_thread().join()
    print(at_once([lambda n=n: n for n in range(40)]) == list(range(40)))

threading.Thread(target=late).start()
"""


def test_a_thread_that_outlives_the_main_thread_may_still_send_requests() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _AFTER_THE_END], check=True, timeout=900, stdout=subprocess.PIPE
    )
    assert ended.stdout.strip() == b"True"
