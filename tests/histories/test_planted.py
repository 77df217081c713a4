"""Each planted bug is shown by a history that is as short as the one that is named here. One that is
not means that the histories have become blind there.
"""

from __future__ import annotations

import pytest

from tests.histories.events import in_words
from tests.histories.planted import BUGS, Bug


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, id=bug.name, marks=() if bug.often else pytest.mark.full) for bug in BUGS],
)
def test_a_short_history_shows_a_planted_bug(bug: Bug) -> None:
    finding = bug.caught()
    assert finding is not None, f"no history of {len(bug.shortest)} events breaks {bug.rule!r}"
    assert in_words(finding.history) == in_words(bug.shortest)
    print(finding)


def test_each_bug_is_planted_once() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS)
