"""Histories that are drawn at random, with kills, branches, names that change and two sinks. One that
fails is printed as short as it can be made.
"""

from __future__ import annotations

import pytest

from tests.histories import planted
from tests.histories.at_random import drawn, played, shrunk
from tests.kits.seeds import seeds

_SEEDS_OF_A_TEST = 5


@pytest.mark.parametrize("seed", seeds(3, 400))
def test_a_random_history_loses_and_doubles_no_batch(seed: int) -> None:
    for each in range(seed * _SEEDS_OF_A_TEST, (seed + 1) * _SEEDS_OF_A_TEST):
        history = drawn(each)
        failed = played(history)
        if failed is not None:
            history, failed = shrunk(history, failed)
            pytest.fail(f"seed {each}: {history}\n{failed}")


@pytest.mark.full
def test_a_random_history_shows_a_planted_bug_and_is_made_short() -> None:
    with planted.BY_NAME["notes of removals are not read"].planted():
        history, failed = next(
            (history, failed)
            for history in map(drawn, range(100))
            if (failed := played(history)) is not None
        )
        short, still = shrunk(history, failed)
    assert still.rule == failed.rule
    assert len(short.steps) < len(history.steps)
    assert len(short.steps) <= 8
    assert "rollback" in str(still) or "forward" in str(still)
