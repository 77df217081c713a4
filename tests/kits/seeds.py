"""How many random examples a test runs.

By default a test runs few. With `TEST_SEEDS=many`, which `make test-full` sets, it runs many.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any, Final

import pytest

MANY: Final = os.environ.get("TEST_SEEDS") == "many"


def seeds(few: int, many: int) -> range:
    """The seeds for a test that is parametrized by seeds."""
    return range(examples(few, many))


def examples(few: int, many: int) -> int:
    """The number of examples for a property test with hypothesis."""
    return many if MANY else few


def few(cases: Iterable[Any], chosen: Callable[..., bool]) -> list[Any]:
    """The cases of a parametrized test. Those that are not `chosen` run in `make test-full` only.
    A case of several parameters is a tuple, and `chosen` gets them one by one.
    """
    return [
        pytest.param(*one, marks=() if chosen(*one) else pytest.mark.full)
        for one in (case if isinstance(case, tuple) else (case,) for case in cases)
    ]


def tries(few: int, seconds: int) -> Iterator[int]:
    """The numbers of the tries of a test: few, or with many seeds as many as begin in these
    seconds.
    """
    end = time.monotonic() + seconds
    for number in count():
        if (time.monotonic() >= end and number >= few) if MANY else number == few:
            return
        yield number
