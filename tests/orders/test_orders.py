"""Every order of the storage operations of two processes, in small worlds.

`make orders` runs all worlds, with faults; here are those that end in seconds.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kits.seeds import examples
from tests.orders.execution import Execution, search
from tests.orders.explorer import Event
from tests.orders.faults import LATE, LATE_AND_DEAD, LOST, with_one_more
from tests.orders.page import _row, table_of_pairs
from tests.orders.run import Work, share_of
from tests.orders.setting import Setting
from tests.orders.tally import Part, faults_of
from tests.orders.walks import class_of, walk
from tests.orders.worlds import BY_NAME, WORLDS


@pytest.fixture(autouse=True, scope="module")
def _few_collections() -> Iterator[None]:
    """An order makes many objects, and few cycles."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 50)
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize(
    "setting",
    [pytest.param(one, id=one.name, marks=() if one.quick else pytest.mark.full) for one in WORLDS],
)
def test_no_order_of_a_world_breaks_a_rule(setting: Setting) -> None:
    """And random orders are all among those that were run."""
    known: set[int] = set()

    def watch(execution: Execution, events: list[Event]) -> None:
        known.add(class_of(events))

    outcome = search(setting, most=setting.most, seconds=300, watch=watch)
    assert not outcome.found, outcome.found[0]
    assert setting.limits or not outcome.limits
    assert outcome.complete, "it took longer than it should"
    if setting.most is not None:
        return
    assert len(known) == outcome.orders, "an order was run twice"
    for seed in range(examples(8, 200)):
        execution, events = walk(lambda: Execution(setting, {}), seed)
        assert not execution.rule, f"seed {seed}: {execution.what}"
        assert class_of(events) in known, f"the order of seed {seed} was not explored"


def test_a_share_of_the_work_is_that_of_a_day() -> None:
    assert share_of("2/5") == (1, 5)
    assert share_of("today/90")[0] in range(90)


def test_the_worlds_that_must_be_complete_are() -> None:
    complete = {one.name for one in WORLDS if one.most is None}
    assert complete >= {
        "batch writer × batch writer",
        "stream × batch writer",
        "stream × expiry",
        "stream × compaction",
        "compaction × compaction",
    }


def test_a_fault_comes_at_each_change_that_can_have_it() -> None:
    changes = {"a": {1: {("write", "x")}, 2: {("put", "y")}}}
    assert list(with_one_more({}, changes, (LOST, LATE))) == [
        {"a": {1: LOST}},
        {"a": {2: LOST}},
        {"a": {2: LATE}},
    ]
    assert list(with_one_more({"a": {1: LOST}}, changes, (LATE,))) == [{"a": {1: LOST, 2: LATE}}]


def test_one_fault_in_a_small_world_breaks_no_rule() -> None:
    tally = Part(BY_NAME["expiry × reader"]).run()
    assert not tally.found, tally.found[0]
    assert tally.plans >= 18 and not tally.cut


def test_a_late_snapshot_that_is_replaced_while_a_run_builds_on_it() -> None:
    """A killed run's last put arrives late, and the next run takes it for its base. Then an engine
    without a lock replaces it. The run knows all the same that its base has the batch.
    """
    setting = BY_NAME["stream × Java's writer without a lock"]
    outcome = search(setting, {"stream": {9: LATE_AND_DEAD}})
    assert not outcome.found, outcome.found[0]
    assert outcome.complete and not outcome.limits
    assert ("put", "snapshot/snapshot-2") in outcome.changes["stream"][9]


def test_a_fault_with_too_many_orders_is_searched_with_few_preemptions() -> None:
    setting = replace(BY_NAME["batch writer × expiry"], faults=(LOST,))
    tally = Part(setting, 0, 12, seconds=0.03).run()
    assert tally.bounded and not tally.found
    assert f"but {tally.bounded} faults with 2 preemptions" in _row(setting, tally)


def test_pairs_of_faults_are_run_spread_evenly() -> None:
    part = Part(BY_NAME["expiry × reader"], faults=2, most_plans=10)
    tally = part.run()
    assert not tally.found, tally.found[0]
    assert (tally.plans, tally.plans_run) == (201, 10)
    assert replace(part, most_plans=11).run().plans_run == 201  # few enough to be run as a whole
    text = table_of_pairs([(part.setting, tally)], few=2, bounds=" --most 10")
    assert "| expiry × reader | 201 | 10 |" in text


def test_a_pair_of_faults_is_one_pair_in_whichever_order_it_was_planned() -> None:
    assert faults_of({"a": {1: LOST}, "b": {2: LATE}}) == faults_of(
        {"b": {2: LATE}, "a": {1: LOST}}
    )
    assert faults_of({"a": {1: LOST}}) != faults_of({"b": {1: LOST}})


def test_a_part_that_is_kept_is_not_run_again(tmp_path: Path) -> None:
    work = Work("expiry × reader", 0, 12, 1, float("inf"), 30.0, 2, None, tmp_path)
    first = work.run()
    assert first.orders_with_fault > 0 and first.plans > 0
    assert work.run() == first
    assert replace(work, part=1).run().seconds != first.seconds
    assert len(list(tmp_path.iterdir())) == 2
    replace(work, until=0.0, kept=tmp_path / "cut").run()
    assert not (tmp_path / "cut").exists()
