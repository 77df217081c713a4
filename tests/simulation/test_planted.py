"""Each planted bug breaks the rule that its declaration names. One that does not means that the
simulation has become blind there.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_stream.stream.writer import StreamWriter
from tests.simulation.bug import BrokenPlant, Patch
from tests.simulation.planted import BUGS, Bug
from tests.simulation.report import run
from tests.simulation.rules import ONCE, STREAMS_END

OFTEN = frozenset(
    {
        "a gap counts as nothing",
        "a held lock has expired",
        "a lost commit is followed",
        "a snapshot is replaced",
        "a stale merge is published",
        "a waiting lock is acquired",
        "copied marks count",
        "damaged notes count as none",
        "an expired file is damage",
        "an overwrite looks once",
        "an unknown deletion is done",
        "properties are lost",
        "the base list has one byte",
        "the first rows are not read",
        "the first schema stays",
        "the hint is one behind",
        "the least partition is the greatest",
        "the total count is too large",
        "the vanished temporary file is not asked",
        "a renamed sink forgets its batches",
        "notes of removals are not read",
        "numbers begin at zero",
        "older hashes are left out",
        "recommit knows manifests by name",
        "rows change places",
        "the first snapshot has no lineage",
        "the lock is released too early",
        "the next id stays",
        "upgraded files go with their unit",
        "vectors are forgotten",
        "vectors of other files are lost",
    }
)
"""These run with every change, one for each kind of rule."""


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(bug, id=bug.name, marks=() if bug.name in OFTEN else pytest.mark.full)
        for bug in BUGS
    ],
)
def test_a_planted_bug_breaks_its_rule(bug: Bug) -> None:
    outcome = bug.caught()
    assert outcome is not None, f"{bug.within} schedules do not break {bug.rule!r}: {bug.what}"
    assert run(outcome.seed, bug.script, bug.make).rule is None, (
        "without the bug this schedule is fine"
    )


def test_there_are_enough_of_them() -> None:
    assert len(BUGS) >= 30
    assert len({bug.name for bug in BUGS}) == len(BUGS)
    assert all(bug.why for bug in BUGS)
    assert {bug.name for bug in BUGS} >= OFTEN


def test_an_error_of_python_is_no_rule_and_says_that_the_plant_is_broken() -> None:
    def plant(patch: Patch) -> None:
        patch.setattr(StreamWriter, "write", lambda self: None)

    bug = Bug("rotten", "write has another signature.", plant, STREAMS_END, "It never commits.")
    with pytest.raises(BrokenPlant, match=r"the plant is broken\. TypeError"):
        bug.caught()


def test_a_planted_bug_that_breaks_another_rule_is_not_caught() -> None:
    found = next(one for one in BUGS if one.name == "a staging is too old at once")
    other = replace(found, rule=ONCE, within=1)
    assert other.rule != found.rule
    assert other.caught() is None
