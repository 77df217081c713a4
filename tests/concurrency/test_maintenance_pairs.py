"""Each command that deletes stops before each of its storage operations. Another command runs there
from its beginning to its end, and then the first one continues.
"""

from __future__ import annotations

import random

import pytest

from tests.kits.races import Meanwhile, Stopped
from tests.kits.rivals import COMMANDS, Rivals
from tests.kits.seeds import MANY, examples

STEP = 1 if MANY else 61


@pytest.mark.parametrize("expired", [False, True], ids=["all snapshots", "expired to 6"])
@pytest.mark.parametrize("first", [name for name in COMMANDS if name != "append"])
def test_two_commands_that_meet_leave_everything_whole_and_report_the_truth(
    first: str, expired: bool
) -> None:
    for number, second in enumerate(COMMANDS):
        at, met = number % STEP, True
        while met:
            at += STEP if at else 1
            rivals = Rivals.make(expired=expired)
            storage = Meanwhile(rivals.case.bench.storage, at, lambda r=rivals, s=second: r.run(s))
            rivals.run(first, storage)  # type: ignore[arg-type]
            met = storage.happened
            try:
                rivals.audit()
                rivals.lives_on()
            except Exception as wrong:
                raise AssertionError(
                    f"{second} before operation {at} of {first}: {rivals.done}"
                ) from wrong


DELETING = [name for name in COMMANDS if name not in ("append", "abort", "orphans", "tag")]


@pytest.mark.parametrize("first", DELETING)
def test_two_commands_that_stop_for_each_other_leave_everything_whole(first: str) -> None:
    """The first stops before an operation, the second before one of its own, then the first goes on
    to its end, and the second after it.
    """
    for second in DELETING:
        dice = random.Random(first + second)
        for number in range(examples(1, 150)):
            rivals = Rivals.make(expired=number % 3 == 2)
            stops, yields = 1 + dice.randrange(90), 1 + dice.randrange(60)
            one = Stopped(rivals.case.bench.storage, stops, lambda s, r=rivals: r.run(first, s))
            storage = Meanwhile(rivals.case.bench.storage, yields, one.finish)
            rivals.run(second, storage)  # type: ignore[arg-type]
            one.finish()
            try:
                rivals.audit()
                rivals.lives_on()
            except Exception as wrong:
                raise AssertionError(
                    f"{first} to {stops}, {second} to {yields}: {rivals.done}"
                ) from wrong


@pytest.mark.parametrize("written", [False, True], ids=["alone", "with commits after it"])
def test_an_expiry_that_stood_still_for_ten_minutes_notices_a_rollback(written: bool) -> None:
    """The rollback takes the expiry for one that was killed. With commits after it, the ids of the
    snapshots that the expiry knows are those of others.
    """

    def roll_back(rivals: Rivals) -> None:
        rivals.case.bench.clock.advance(600_000)
        rivals.run("rollback to the tag")
        for number in range(5 * written):
            rivals.case.append(700 + number)
        if written:
            rivals.run("append")
            rivals.run("untag")

    at, met = 0, True
    while met:
        at += 1 if MANY else 5
        rivals = Rivals.make(expired=False)
        storage = Meanwhile(rivals.case.bench.storage, at, lambda r=rivals: roll_back(r))
        rivals.run("expire", storage)  # type: ignore[arg-type]
        met = storage.happened
        rivals.audit()
        rivals.lives_on()
