"""Memory that rows have left in the driver goes back to the operating system."""

from __future__ import annotations

import os
import platform
import resource
import threading

import pytest

pytest.importorskip("pyspark", reason="needs pyspark")

from paimon_stream.spark.small_batch import release_memory

PIECE, PIECES = 100_000, 800


def in_memory() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or not os.path.exists("/proc/self/statm"), reason="glibc"
)
def test_what_a_thread_has_freed_is_handed_back_where_it_was_much() -> None:
    sizes: list[int] = []

    def work() -> None:
        pieces = [b"x" * PIECE for _ in range(PIECES)]
        kept = pieces[:: PIECES // 20]  # so that the holes between them do not close by themselves
        del pieces
        sizes.append(in_memory())
        release_memory(1_000)
        sizes.append(in_memory())
        release_memory(PIECE * PIECES)
        sizes.append(in_memory())
        del kept

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    freed, after_few, after_many = sizes
    whole = PIECE * PIECES
    assert after_few > freed - whole // 10
    assert after_many < freed - whole // 2
