"""Every order of the storage operations of two processes, in small worlds.

`make orders` runs all worlds, with faults; here are those that end in seconds.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.kits.seeds import examples
from tests.orders.execution import Execution, search
from tests.orders.explorer import Event
from tests.orders.setting import Setting
from tests.orders.walks import class_of, walk
from tests.orders.worlds import WORLDS


@pytest.fixture(autouse=True, scope="module")
def _few_collections() -> Iterator[None]:
    """An order makes many objects, and few cycles."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 50)
    yield
    gc.set_threshold(*before)


def each(marked: bool = True) -> list[object]:
    """Each world; those that take long are run by `make test-full` and by `make orders`."""
    return [
        pytest.param(one, id=one.name, marks=() if one.quick or not marked else pytest.mark.full)
        for one in WORLDS
    ]


@pytest.mark.parametrize("setting", each())
def test_no_order_of_a_world_breaks_a_rule(setting: Setting) -> None:
    outcome = search(setting, setting.bases[0], most=setting.most, seconds=300)
    assert not outcome.found, outcome.found[0]
    assert not outcome.limits
    assert outcome.complete, "it took longer than it should"


@pytest.mark.parametrize(
    "setting", [pytest.param(one, id=one.name) for one in WORLDS if one.quick and one.most is None]
)
def test_random_orders_of_a_world_are_all_known(setting: Setting) -> None:
    known: list[int] = []

    def watch(execution: Execution, events: list[Event]) -> None:
        known.append(class_of(events))

    outcome = search(setting, watch=watch)
    assert outcome.complete
    assert len(set(known)) == len(known), "an order was run twice"
    for seed in range(examples(25, 400)):
        execution, events = walk(lambda: Execution(setting, {}), seed)
        assert not execution.rule, f"seed {seed}: {execution.what}"
        assert class_of(events) in known, f"the order of seed {seed} was not explored"
