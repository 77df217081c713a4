"""Two processes run commands that delete on one table at the same time, again and again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations_with_replacement

import pytest

from tests.kits.rivals import COMMANDS, Arena
from tests.kits.seeds import examples

pytestmark = pytest.mark.long
TRIES = examples(3, 400)
HARMLESS = {"abort", "orphans", "tag"}
NAMES = [name for name in COMMANDS if name != "append"]
PAIRS = [pair for pair in combinations_with_replacement(NAMES, 2) if not set(pair) <= HARMLESS]


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    made = Arena(tmp_path_factory.mktemp("arena"))
    yield made
    made.close()


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_two_processes_that_meet_leave_everything_whole_and_report_the_truth(
    pair: tuple[str, str], arena: Arena
) -> None:
    dice = random.Random(" ".join(pair))
    for number in range(TRIES):
        ahead = (dice.randrange(40), dice.randrange(40))
        met = arena.meet(pair, expired=number % 2 == 1, ahead=ahead)
        try:
            met.audit()
            met.lives_on()
        except Exception as wrong:
            raise AssertionError(f"try {number} of {pair}: {met.done}") from wrong
