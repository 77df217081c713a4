"""Each command that deletes stops before each of its storage operations. Another command runs there from
its beginning to its end, and then the first one continues."""

from __future__ import annotations

import pytest

from tests.kits.races import Meanwhile
from tests.kits.rivals import COMMANDS, Rivals
from tests.kits.seeds import MANY

STEP = 1 if MANY else 31


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
                raise AssertionError(f"{second} before operation {at} of {first}: {rivals.done}") from wrong
