"""How many random examples a test runs.

By default a test runs few. With `TEST_SEEDS=many`, which `make test-full` sets, it runs many.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import count
from typing import Final

MANY: Final = os.environ.get("TEST_SEEDS") == "many"


def seeds(few: int, many: int) -> range:
    """The seeds for a test that is parametrized by seeds."""
    return range(examples(few, many))


def examples(few: int, many: int) -> int:
    """The number of examples for a property test with hypothesis."""
    return many if MANY else few


def tries(few: int, seconds: int) -> Iterator[int]:
    """The numbers of the tries of a test: few, or with many seeds as many as begin in these
    seconds.
    """
    end = time.monotonic() + seconds
    for number in count():
        if (time.monotonic() >= end and number >= few) if MANY else number == few:
            return
        yield number
