"""The histories on a pure model: its facts are those of the real code, and no facts that fit a lost
or doubled batch let a batch go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import pytest

from paimon_stream.stream.facts import (
    AttemptsJournalled,
    BaseHeld,
    EarlierNoted,
    HistoryWhole,
    LastHeld,
    LaterPrepared,
    OwnStands,
    PreviousHeld,
    RememberedHeld,
)
from paimon_stream.stream.judgement import NextStep, Outcome, Row, Step
from tests.histories import model
from tests.histories.compared import compare
from tests.histories.events import OF_THE_ISSUE, in_words
from tests.histories.limits import beyond
from tests.histories.model import MODEL_EVENTS
from tests.histories.model_walk import tell
from tests.histories.world import (
    ALL_SETTINGS,
    DOUBLED,
    IN_VAIN,
    LOST,
    OFF,
    ON,
    SLOW_OFF,
    Setting,
)

ALL = tuple(MODEL_EVENTS)
SHORT = tuple(one for one in OF_THE_ISSUE if one in MODEL_EVENTS)
full = pytest.mark.full


@pytest.mark.parametrize(
    ("alphabet", "most", "setting"),
    [
        pytest.param(SHORT, 3, ON, id="short"),
        pytest.param(ALL, 2, SLOW_OFF, id="all, no journal"),
        *(
            pytest.param(SHORT, 4, setting, marks=full, id=f"short, {setting}")
            for setting in ALL_SETTINGS
        ),
        *(
            pytest.param(ALL, 3, setting, marks=full, id=f"all, {setting}")
            for setting in ALL_SETTINGS
        ),
    ],
)
def test_the_facts_of_the_model_are_those_of_the_real_code(
    alphabet: Sequence[str], most: int, setting: Setting
) -> None:
    compared = compare(alphabet, most, setting)
    print(compared.lengths)
    assert set(compared.lengths) == set(range(most + 1))
    assert not compared.differences, "\n".join(compared.differences[:10])


@pytest.mark.parametrize(
    ("alphabet", "most", "setting"),
    [
        pytest.param(ALL, 3, ON, id="all"),
        pytest.param(SHORT, 4, SLOW_OFF, id="short, no journal"),
        *(
            pytest.param(SHORT, 6, setting, marks=full, id=f"short, {setting}")
            for setting in ALL_SETTINGS
        ),
        *(
            pytest.param(ALL, 4, setting, marks=full, id=f"all, {setting}")
            for setting in ALL_SETTINGS
        ),
        *(
            pytest.param(ALL, 5, setting, marks=full, id=f"all of five, {setting}")
            for setting in (ON, OFF)
        ),
    ],
)
def test_no_facts_that_fit_a_lost_or_doubled_batch_let_one_go_on(
    alphabet: Sequence[str], most: int, setting: Setting
) -> None:
    """And a plain outage stops nobody, but for the limits of the pages."""
    told = tell(alphabet, most, setting)
    print(told.lengths, len(told.combinations))
    assert set(told.lengths) == set(range(most + 1))
    failed = beyond(told.findings)
    assert not failed, "\n".join(map(str, failed[:10]))


@dataclass(frozen=True)
class Needed:
    """A row of the judgement that refuses a value of a fact in a step, and the shortest history that
    breaks a rule where the row lets the batch go on.
    """

    step: Step | NextStep
    value: Enum
    rule: str
    shortest: Sequence[str]
    setting: Setting = ON


NEEDED = (
    Needed(Step.OWN, OwnStands.ABOVE, DOUBLED, ("checkpoint put back", "checkpoint put back")),
    Needed(Step.OWN_LAST, LastHeld.ROLLED_BACK, LOST, ("rollback by one",)),
    Needed(Step.OWN_GAP, EarlierNoted.REMOVED, LOST, ("rollback by one",), OFF),
    Needed(Step.OWN_GAP, EarlierNoted.MAY_BE_REMOVED, LOST, ("outage", "rollback to the tag"), OFF),
    Needed(
        Step.LATER,
        LaterPrepared.PREPARED,
        DOUBLED,
        ("checkpoint put back", "checkpoint put back", "outage"),
    ),
    Needed(
        Step.ATTEMPT_PREVIOUS,
        PreviousHeld.ROLLED_BACK,
        LOST,
        ("batch, not published", "forward to the branch", "expiry"),
    ),
    Needed(
        Step.ATTEMPT_BASE,
        BaseHeld.ROLLED_BACK,
        LOST,
        ("checkpoint put back", "rollback to the tag", "rollback by one"),
    ),
    Needed(
        Step.ATTEMPT_LAST,
        LastHeld.ROLLED_BACK,
        LOST,
        ("batch, not published", "forward to the branch", "outage"),
    ),
    Needed(Step.LAST, LastHeld.ROLLED_BACK, LOST, ("forward to the branch", "expiry")),
    Needed(Step.NOTED, EarlierNoted.REMOVED, LOST, ("rollback to the tag", "rollback by one"), OFF),
    Needed(
        NextStep.REMEMBERED,
        RememberedHeld.ROLLED_BACK,
        LOST,
        ("empty batch", "forward to the branch"),
    ),
    Needed(
        NextStep.REMEMBERED,
        AttemptsJournalled.JOURNALLED,
        LOST,
        ("empty batch", "forward to the branch", "outage"),
    ),
    Needed(
        NextStep.REMEMBERED,
        RememberedHeld.REPLACED,
        LOST,
        ("empty batch", "outage", "forward to the branch"),
        OFF,
    ),
    Needed(Step.NEW, HistoryWhole.EXPIRED, DOUBLED, ("batch, not noted", "outage"), OFF),
)


@pytest.mark.parametrize(
    "needed",
    [
        pytest.param(
            one,
            id=f"{one.step.name} {one.value.name}",
            marks=() if len(one.shortest) < 3 else full,
        )
        for one in NEEDED
    ],
)
def test_a_short_history_shows_that_a_row_is_needed(
    needed: Needed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the row, a batch goes on where one is lost or doubled."""
    name = "ROWS" if isinstance(needed.step, Step) else "NEXT_ROWS"
    rows: tuple[Row, ...] = getattr(model, name)
    meant = [
        row
        for row in rows
        if row.step is needed.step and needed.value in row.when.get(type(needed.value), ())
    ]
    assert len(meant) == 1
    changed = [replace(row, outcome=Outcome.WARNING) if row in meant else row for row in rows]
    if isinstance(needed.step, NextStep):  # else storage would decide after it
        changed = [row for row in rows if row not in meant]
    monkeypatch.setattr(model, name, tuple(changed))
    broken = [
        one
        for one in tell(ALL, len(needed.shortest), needed.setting).findings
        if one.rule != IN_VAIN
    ]
    assert min(len(one.history) for one in broken) == len(needed.shortest)
    assert (needed.rule, in_words(needed.shortest)) in [
        (one.rule, in_words(one.history)) for one in broken
    ]
