"""How many random examples a test takes.

Few of them run each time; `TEST_SEEDS=many`, which `make test-full` sets, runs many.
"""

from __future__ import annotations

import os
from typing import Final

MANY: Final = os.environ.get("TEST_SEEDS") == "many"


def seeds(few: int, many: int) -> range:
    """The seeds of a test that is parametrized by them."""
    return range(examples(few, many))


def examples(few: int, many: int) -> int:
    """The number of examples of a property, for hypothesis."""
    return many if MANY else few
