"""A Python worker of Spark that runs many tasks sets its modules aside from the search for garbage, once."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from paimon_stream.spark.worker import Worker


@pytest.fixture(autouse=True)
def _nothing_stays_frozen() -> Iterator[None]:
    yield
    gc.unfreeze()


class _Knot:
    def __init__(self) -> None:
        self.self = self


def test_what_a_worker_holds_is_set_aside_in_its_second_task_and_only_then() -> None:
    worker = Worker()
    before = gc.get_freeze_count()
    worker.begins_a_task()
    assert gc.get_freeze_count() == before
    worker.begins_a_task()
    frozen = gc.get_freeze_count()
    assert frozen > before + 1000
    for _ in range(3):
        worker.begins_a_task()
        assert gc.get_freeze_count() <= frozen


def test_no_garbage_is_set_aside_and_later_garbage_is_collected() -> None:
    worker = Worker()
    worker.begins_a_task()
    old = weakref.ref(_Knot())
    worker.begins_a_task()
    assert old() is None
    new = weakref.ref(_Knot())
    gc.collect()
    assert new() is None
