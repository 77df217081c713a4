"""Schedules of all actors, as their seeds make them. A failing seed is shrunk, and printed as steps."""

from __future__ import annotations

from functools import partial

import pytest

from tests.kits.seeds import seeds
from tests.simulation.cast import world_of
from tests.simulation.report import run, shortest
from tests.simulation.shrink import shrink
from tests.simulation.world import World

FOUND = {
    "a rollback beside an expiry loses the snapshot that it keeps": 40,
    "expiry counts a snapshot that is about to be removed": 122,
    "a snapshot created again stops the removal of orphans for ever": 195,
    "a checkpoint behind its journal writes a batch twice": 248,
    "a late hint in a table created again stops every stream": 253,
    "a run sees the snapshot of a writer that slept through a rollback": 292,
    "an expired id created again is taken for a commit": 477,
    "a run of which an earlier one wakes up writes a batch twice": 497,
}
"""Seeds that found something, and what it was."""


@pytest.mark.parametrize("what", FOUND)
def test_what_was_found_once_is_not_found_again(what: str) -> None:
    outcome = run(FOUND[what], make=partial(world_of, newcomers=False))
    assert outcome.rule is None, str(outcome)


@pytest.mark.parametrize("start", seeds(4, 40))
def test_schedules_lose_and_double_nothing(start: int) -> None:
    for seed in range(50 * start, 50 * start + 50):
        outcome = run(seed)
        if outcome.rule is not None:
            pytest.fail(str(shortest(outcome)))


def ran(seed: int) -> World:
    return run(seed).world


@pytest.mark.parametrize("seed", [3, 11, 12])
def test_a_seed_gives_the_same_run_to_the_byte(seed: int) -> None:
    one, two = ran(seed), ran(seed)
    assert one.log == two.log
    assert one.choices.made == two.choices.made
    assert [(path, one.disk.read(path)) for path in sorted(one.all_paths())] == [
        (path, two.disk.read(path)) for path in sorted(two.all_paths())
    ]
    assert one.operations > 100


def test_a_schedule_is_replayed_from_its_choices() -> None:
    first = ran(7)
    again = run(7, first.choices.made).world
    assert again.log == first.log


def test_a_failing_schedule_is_shrunk_to_the_choices_that_matter() -> None:
    script = [[9], [1], *([n % 3, n] for n in range(60))]
    found = shrink(script, lambda one: [2, 41] in one and sum(step[0] for step in one) > 3)
    assert found == [[2], [0], [2, 41]]
