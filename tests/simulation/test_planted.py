"""Each planted bug is caught. One that is not caught means that the simulation has become blind
there.
"""

from __future__ import annotations

import pytest

from tests.simulation.planted import BUGS, Bug
from tests.simulation.report import run


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    with bug.planted():
        outcome = next((one for one in bug.runs() if one.rule is not None), None)
    assert outcome is not None, f"{bug.within} schedules see nothing of this: {bug.what}"
    assert run(outcome.seed, bug.script, bug.make).rule is None, (
        "without the bug this schedule is fine"
    )


def test_there_are_enough_of_them() -> None:
    assert len(BUGS) >= 30
    assert len({bug.name for bug in BUGS}) == len(BUGS)
