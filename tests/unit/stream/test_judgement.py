"""The rows of the judgement, walked with boxes of facts: every combination meets a row, rows of one
step do not contradict each other, and what is said of the facts independently of the rows holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import combinations, groupby

import pytest

from paimon_stream.stream.facts import FIRST_BATCH, LATER_BATCH, LastHeld, OwnStands, TableCreated
from paimon_stream.stream.judgement import NEXT_ROWS, ROWS, NextStep, Outcome, Row, Step, decide
from tests.kits.boxes import any_left, common, ends, every, size
from tests.kits.judged_facts import IMPOSSIBLE, IMPOSSIBLE_NEXT, LAWS, NEXT_LAWS, Impossible, Law
from tests.kits.params import few


@dataclass(frozen=True)
class Judged:
    """Rows, the facts that they decide on, and what is said of these."""

    rows: tuple[Row, ...]
    facts: tuple[type[Enum], ...]
    steps: type[Step | NextStep]
    impossible: tuple[Impossible, ...]
    laws: tuple[Law, ...]


FIRST = Judged(ROWS, FIRST_BATCH, Step, IMPOSSIBLE, LAWS)
LATER = Judged(NEXT_ROWS, LATER_BATCH, NextStep, IMPOSSIBLE_NEXT, NEXT_LAWS)
BOTH = pytest.mark.parametrize("judged", [FIRST, LATER], ids=["first batch", "later batch"])


def defects(judged: Judged) -> Iterator[str]:
    """What is wrong with the rows."""
    yield from defects_of_order(judged)
    boxes = [one.box for one in judged.impossible]
    everything = every(judged.facts)
    served = set[int]()
    for end in ends(judged.rows, judged.facts, boxes):
        if any_left(end.box, boxes) is None:
            continue
        served.update(id(row) for row in end.met)
        if end.outcome is None:
            yield f"no row fits {said(end.box, everything)}"
        for law in judged.laws:
            about = common(end.box, law.box)
            if about is not None and any_left(about, boxes) is not None and not law.holds(end):
                yield f"not so: {law.name}: {said(about, everything)}: {end.outcome}"
    for row in judged.rows:
        if id(row) not in served:
            yield f"only what is impossible meets the row of {row.step}: {row.why}"


def defects_of_order(judged: Judged) -> Iterator[str]:
    """Rows out of their step's place, and rows of one step that contradict each other."""
    steps = list(judged.steps)
    if [step for step, _ in groupby(row.step for row in judged.rows)] != steps:
        yield "the rows are not in the order of the steps"
    for row in judged.rows:
        if isinstance(row.then, (Step, NextStep)) and steps.index(row.then) <= steps.index(
            row.step
        ):
            yield f"{row.step} goes back to {row.then}"
        if (row.then is None) != (row.outcome.is_verdict or row.outcome in RAISED):
            yield f"{row.step}: what follows {row.outcome} is not clear"
    boxes = [one.box for one in judged.impossible]
    for one, other in combinations(judged.rows, 2):
        shared = common({**every(judged.facts), **one.when}, other.when)
        agree = (one.outcome, one.then) == (other.outcome, other.then)
        if one.step is not other.step or agree or shared is None:
            continue
        if any_left(shared, boxes) is not None:
            yield f"two rows of {one.step} contradict each other: {one.why} {other.why}"


RAISED = (Outcome.DUPLICATE_WRITER, Outcome.SHARED_CHECKPOINT)


def said(
    box: Mapping[type[Enum], frozenset[Enum]], everything: Mapping[type[Enum], frozenset[Enum]]
) -> str:
    return ", ".join(
        f"{fact.__name__} {'|'.join(sorted(one.name for one in values))}"
        for fact, values in box.items()
        if values != everything[fact]
    )


@BOTH
def test_the_rows_have_no_defect(judged: Judged) -> None:
    assert list(defects(judged)) == []


@BOTH
def test_the_walk_meets_every_combination_once(judged: Judged) -> None:
    """Also the impossible ones. What an operator lets in is walked twice."""
    met = [end for end in ends(judged.rows, judged.facts) if not end.is_let_in]
    assert sum(size(end.box) for end in met) == size(every(judged.facts))


@BOTH
def test_all_that_is_called_impossible_is_needed_or_named_once(judged: Judged) -> None:
    boxes = [one.box for one in judged.impossible]
    assert all(one.why for one in judged.impossible)
    assert all(common(every(judged.facts), box) is not None for box in boxes)
    for number, box in enumerate(boxes):
        whole = {**every(judged.facts), **box}
        assert any_left(whole, boxes[:number] + boxes[number + 1 :]), judged.impossible[number]


def test_facts_are_asked_only_until_the_answer_is_known() -> None:
    asked = []
    good = {fact: next(iter(fact)) for fact in FIRST_BATCH}
    good[OwnStands] = OwnStands.THIS_BATCH

    def ask(fact: type[Enum]) -> Enum:
        asked.append(fact.__name__)
        return good[fact]

    row = decide(ask, ROWS)
    assert row.outcome is Outcome.COMMITTED
    assert "LastHeld" not in asked
    assert "FilesLive" not in asked
    assert "EarlierElsewhere" not in asked


# -- the defects that are looked for are found
# ------------------------------------------------------------------------------------


def without(rows: Sequence[Row], row: Row) -> tuple[Row, ...]:
    return tuple(one for one in rows if one is not row)


def with_outcome(rows: Sequence[Row], row: Row, outcome: Outcome) -> tuple[Row, ...]:
    then = None if outcome.is_verdict else row.then
    return tuple(replace(one, outcome=outcome, then=then) if one is row else one for one in rows)


def row_of(step: Step, value: Enum) -> Row:
    return next(row for row in ROWS if row.step is step and value in row.when[type(value)])


PLANTED = {
    "a later batch of ours is overlooked": without(ROWS, row_of(Step.OWN, OwnStands.ABOVE)),
    "a lost batch is overlooked": without(ROWS, row_of(Step.LAST, LastHeld.ROLLED_BACK)),
    "the last row is missing": ROWS[:-1],
    "a lost batch is only warned of": with_outcome(
        ROWS, row_of(Step.OWN_LAST, LastHeld.ROLLED_BACK), Outcome.WARNING
    ),
    "a younger table counts as committed": with_outcome(
        ROWS, row_of(Step.AGE, TableCreated.LATER), Outcome.COMMITTED
    ),
    "the steps are in another order": (*ROWS[1:], ROWS[0]),
    "two rows of a step contradict each other": (
        ROWS[0],
        replace(ROWS[0], outcome=Outcome.COMMIT_LOST),
        *ROWS[1:],
    ),
    "a row serves only what is impossible": (
        *ROWS[:-1],
        replace(ROWS[-1], when={**ROWS[-1].when, OwnStands: frozenset({OwnStands.BELOW})}),
        ROWS[-1],
    ),
    "a refusal goes back": (replace(ROWS[0], then=Step.TABLE), *ROWS[1:]),
}


@pytest.mark.parametrize("what", few(PLANTED, lambda what: "impossible" not in what))
def test_a_planted_defect_is_found(what: str) -> None:
    rows = PLANTED[what]
    assert next(defects_of_order(replace(FIRST, rows=rows)), None) or next(
        defects(replace(FIRST, rows=rows)), None
    )


@pytest.mark.full
@BOTH
@pytest.mark.parametrize("change", ["without it", "only warned of", "refused"])
def test_no_row_can_be_changed_unnoticed(judged: Judged, change: str) -> None:
    """Each row in turn."""
    unnoticed = []
    for row in judged.rows:
        rows = without(judged.rows, row)
        if change == "only warned of":
            if row.outcome.is_verdict or row.outcome is Outcome.WARNING or row.then is None:
                continue
            rows = with_outcome(judged.rows, row, Outcome.WARNING)
        if change == "refused":
            if not row.outcome.is_verdict:
                continue
            refused = replace(row, outcome=Outcome.HISTORY_UNKNOWN, then=Outcome.FRESH)
            rows = tuple(refused if one is row else one for one in judged.rows)
        if next(defects(replace(judged, rows=rows)), None) is None:
            unnoticed.append((row.step, row.why))
    assert unnoticed == []
