"""How many random examples a test runs.

By default a test runs few. With `TEST_SEEDS=many`, which `make test-full` sets, it runs many.
"""

from __future__ import annotations

import os
from typing import Final

MANY: Final = os.environ.get("TEST_SEEDS") == "many"


def seeds(few: int, many: int) -> range:
    """The seeds for a test that is parametrized by seeds."""
    return range(examples(few, many))


def examples(few: int, many: int) -> int:
    """The number of examples for a property test with hypothesis."""
    return many if MANY else few
