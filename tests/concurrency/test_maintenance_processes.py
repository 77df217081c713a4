"""Two processes run maintenance commands, or a command and a stream, on one table at the same time,
again and again. With `TEST_SEEDS=many`, each pair does so for a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from itertools import combinations_with_replacement

import pytest

from tests.kits.arena import Hall
from tests.kits.rivals import COMMANDS
from tests.kits.seeds import examples

pytestmark = pytest.mark.long
FEW, SECONDS = 3, 60
AT_ONCE = examples(2, 6)
HARMLESS = {"abort", "orphans", "tag"}
NAMES = [name for name in COMMANDS if name != "append"]
PAIRS = [pair for pair in combinations_with_replacement(NAMES, 2) if not set(pair) <= HARMLESS]
PAIRS += [("stream", name) for name in NAMES]
OFTEN = PAIRS[::12]


@pytest.fixture(scope="module")
def meetings(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Future[int]]]:
    """The meetings of every pair that has a test in this run. They begin at once, several at a
    time.
    """
    names = {item.name for item in request.session.items}
    asked = [one for one in PAIRS if any(f"[{' and '.join(one)}]" in name for name in names)]
    hall = Hall(tmp_path_factory.mktemp("hall"), AT_ONCE)
    yield {pair: hall.begin(pair, FEW, SECONDS) for pair in asked}
    hall.close()


@pytest.mark.parametrize(
    "pair",
    [pytest.param(pair, marks=() if pair in OFTEN else pytest.mark.full) for pair in PAIRS],
    ids=" and ".join,
)
def test_two_processes_that_meet_leave_everything_whole_and_report_the_truth(
    pair: tuple[str, str], meetings: dict[tuple[str, str], Future[int]]
) -> None:
    made = meetings[pair].result()
    print(f"{made} tries")
    assert made >= FEW
