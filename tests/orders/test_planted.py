"""Each planted bug is caught, with an order of few switches. One that is not means that the
explorer, or what it checks, has become blind there.
"""

from __future__ import annotations

import pytest

from tests.orders.execution import Finding, search, shortest
from tests.orders.planted import BUGS, Bug
from tests.orders.worlds import BY_NAME


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, id=bug.name, marks=() if bug.often else pytest.mark.full) for bug in BUGS],
)
def test_an_order_with_few_switches_shows_a_planted_bug(bug: Bug) -> None:
    setting = BY_NAME[bug.world]
    setting.tasks()  # what happened before, without the bug
    with bug.planted():
        outcome = search(setting, bug.plan, most=setting.most, seconds=60)
        assert outcome.found, f"{outcome.orders} orders do not break {bug.rule!r}"
        found: Finding | None = outcome.found[0]
        if found.rule != bug.rule or found.switches > bug.switches:
            found = shortest(setting, bug.plan, bug.rule, most=2)
    assert found is not None, f"other rules were broken: {outcome.found[0]}"
    assert found.switches <= bug.switches
    assert all(": " in line for line in found.trace)
    print(found)


def test_each_bug_is_planted_once() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS)
