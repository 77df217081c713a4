"""Each aggregate function, for many keys at a time, against Java's aggregators on plain values one
by one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_stream.errors import InvalidData, NumericOverflow
from paimon_stream.format.types import arrow_type, parse_type
from paimon_stream.merge.folds import folded
from paimon_stream.merge.lists import equality_numbers
from paimon_stream.merge.merge_order import (
    ADD,
    OUT_OF_ORDER,
    RETRACT,
    SET,
    SKIP,
    OrderedRows,
    RowActions,
)
from paimon_stream.merge.spec import FUNCTIONS, RETRACTABLE, ColumnRule
from tests.kits.merging import WIDE, Refused, fold_steps
from tests.kits.seeds import examples

pytestmark = pytest.mark.lowest

DOES = {"nothing": SKIP, "set": SET, "add": ADD, "older": OUT_OF_ORDER, "back": RETRACT}


def decimals(scale: int, digits: int) -> Callable[[Random], Decimal]:
    large = 10**digits - 1

    def value(r: Random) -> Decimal:
        small = [10**scale * r.choice([1, 2, -2]), r.randint(-50, 50) * 10 ** max(scale - 1, 0)]
        unscaled = r.choice([*small, *small, large, -large, r.randint(-large, large)])
        return Decimal(unscaled).scaleb(-scale, WIDE)

    return value


VALUES: dict[str, tuple[str, Callable[[Random], Any]]] = {
    "t": ("TINYINT", lambda r: r.choice([1, 2, -1, -3, -128, 127])),
    "i": ("INT", lambda r: r.choice([1, 2, 3, -1, -5, 0, -(2**31), 2**31 - 1])),
    "l": ("BIGINT", lambda r: r.choice([1, 2, 7, -1, -(2**63), 2**63 - 1])),
    "d": ("DOUBLE", lambda r: r.choice([0.1, 0.2, -0.3, 1e16, -1e16, 1e200, 0.0])),
    "c4": ("DECIMAL(4, 0)", decimals(0, 4)),
    "c18": ("DECIMAL(18, 3)", decimals(3, 18)),
    "c20": ("DECIMAL(20, 2)", decimals(2, 20)),
    "c38": ("DECIMAL(38, 20)", decimals(20, 38)),
    "s": ("STRING", lambda r: r.choice(["", "a", "b", "a,b", "ä,,a", "b,b,c", ",", "zz"])),
    "b": ("BOOLEAN", lambda r: r.random() < 0.5),
    "ts": (
        "TIMESTAMP(6)",
        lambda r: dt.datetime(2024, 1, 1) + dt.timedelta(seconds=r.randint(0, 5)),
    ),
    "a": ("ARRAY<INT>", lambda r: [r.choice([1, 2, 3, None]) for _ in range(r.randint(0, 4))]),
    "m": (
        "MAP<STRING, INT>",
        lambda r: {r.choice("xyz"): r.choice([1, None, 3]) for _ in range(r.randint(0, 3))},
    ),
}
LARGE = {"c4": 10**4, "c18": 10**15}
"""What sums of small decimals may grow to on the way, but not be in the end."""

NUMBERS = ["t", "i", "l", "d", "c4", "c18", "c20", "c38"]
COLUMNS = {
    "sum": NUMBERS,
    "product": NUMBERS,
    "max": ["t", "d", "c38", "s", "ts"],
    "min": ["l", "c20", "s"],
    "bool_and": ["b"],
    "bool_or": ["b"],
    "listagg": ["s"],
    "collect": ["a"],
    "merge_map": ["m"],
}


def column_of(type_: str, values: list[Any]) -> pa.Array:
    plain = [list(one.items()) if isinstance(one, dict) else one for one in values]
    return pa.array(plain, arrow_type(parse_type(type_)))


Keys = list[list[tuple[str, Any]]]


def random_keys(
    random: Random, function: str, value: Callable[[Random], Any], keys: int, hot: int
) -> Keys:
    """The row kinds and values of a column, for this number of keys. One key has `hot` rows
    more.
    """
    choices = ["add", "add", "add"]
    if random.random() < 0.7:
        choices += ["older", "older", "set", "nothing"]
    if random.random() < (0.7 if function in RETRACTABLE else 0.2):
        choices += ["back", "back"]
    nulls = random.choice([0, 0.2, 0.9])
    sizes = [random.randint(1, 8) for _ in range(keys)]
    sizes[random.randrange(keys)] += hot
    return [
        [
            (random.choice(choices), None if random.random() < nulls else value(random))
            for _ in range(size)
        ]
        for size in sizes
    ]


def as_actions(random: Random, type_: str, keys: Keys) -> tuple[pa.Array, RowActions]:
    """The same as rows of a table in any order, and the actions."""
    rows = [row for key in keys for row in key]
    order = random.sample(range(len(rows)), len(rows))
    values = [rows[place][1] for place in np.argsort(order)]
    starts = np.cumsum([0, *map(len, keys[:-1])])
    does = np.array([DOES[what] for what, _ in rows], np.int8)
    return column_of(type_, values), RowActions(
        OrderedRows(np.array(order), starts, np.zeros_like(does)), does
    )


@pytest.mark.parametrize("function", FUNCTIONS)
@settings(max_examples=examples(12, 400), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 5, 20]), st.sampled_from([0, 0, 0, 100]))
def test_all_keys_at_a_time_become_what_each_becomes_value_by_value(
    function: str, seed: int, keys: int, hot: int
) -> None:
    random = Random(seed)
    name = random.choice(COLUMNS.get(function, sorted(VALUES)))
    type_, value = VALUES[name]
    given_keys = random_keys(random, function, value, keys, hot)
    distinct, ignores = random.random() < 0.5, random.random() < 0.2
    rule = ColumnRule(function=function, distinct=distinct, ignore_retract=ignores)
    own = f"fields.{name}."
    options = {f"{own}aggregate-function": function, f"{own}distinct": str(distinct).lower()}
    options[f"{own}ignore-retract"] = str(ignores).lower()
    column, actions = as_actions(random, type_, given_keys)

    error: type[Exception] | None = None
    try:
        expected = [fold_steps(options, name, type_, key) for key in given_keys]
        if name in ("c4", "c18") and any(
            one is not None and abs(one) >= LARGE[name] for one in expected
        ):
            error = NumericOverflow
    except Refused:
        error = InvalidData
    if error:
        with pytest.raises(error):
            folded("db.t", name, column, rule, actions)
        return
    made = folded("db.t", name, column, rule, actions)
    made.validate(full=True)
    found = made.to_pylist()
    if name == "m":
        found = [one if one is None else dict(one) for one in found]
    assert list(map(repr, found)) == list(map(repr, expected)) if name == "d" else found == expected


@settings(max_examples=examples(15, 500), deadline=None)
@given(st.integers(0, 2**32))
def test_values_of_any_depth_have_one_number_exactly_if_they_are_equal(seed: int) -> None:
    random = Random(seed)

    def value(depth: int) -> Any:
        if random.random() < 0.2:
            return None
        if depth == 0:
            return random.choice([1, 2])
        inner = [value(depth - 1) for _ in range(random.randint(0, 2))]
        return {"x": random.choice("ab"), "y": inner}

    type_ = pa.int32()
    depth = random.randint(0, 2)
    for _ in range(depth):
        type_ = pa.struct([("x", pa.string()), ("y", pa.list_(type_))])
    values = [value(depth) for _ in range(30)]
    numbers = equality_numbers(pa.array([None, *values], type_).slice(1))
    assert all(
        (numbers[i] == numbers[j]) == (values[i] == values[j]) for i in range(30) for j in range(30)
    )


def test_a_sum_with_negative_decimals_that_does_not_fit_the_type_is_an_error() -> None:
    keys = [
        [
            ("add", Decimal(45)),
            ("add", Decimal(-15)),
            ("older", Decimal(43)),
            ("back", Decimal(-9999)),
        ]
    ]
    column, actions = as_actions(Random(0), "DECIMAL(4, 0)", keys)
    with pytest.raises(NumericOverflow, match="is 10072"):
        folded("db.t", "v", column, ColumnRule(function="sum"), actions)


@pytest.mark.parametrize(
    ("ignores", "rows", "expected"),
    [
        (False, [("set", [1, 1]), ("add", [1, 2, 2])], [1, 1, 2]),
        (False, [("set", [1, 1, 3]), ("add", [2]), ("back", [1, 5]), ("add", [1])], [1, 3, 2]),
        (False, [("add", [1, 1]), ("older", [2, 2, 1]), ("back", None)], [1, 2]),
        (
            True,
            [("add", [1, 2]), ("older", [3, 3, 2]), ("back", [1]), ("add", [4])],
            [3, 3, 2, 1, 4],
        ),
        (True, [("add", None), ("back", [1])], None),
    ],
    ids=repr,
)
def test_distinct_lists_of_nested_values_keep_the_elements_that_java_keeps(
    ignores: bool, rows: list[tuple[str, list[int] | None]], expected: list[int] | None
) -> None:
    def nested(values: list[int] | None) -> list[dict[str, int]] | None:
        return None if values is None else [{"x": value} for value in values]

    key = [(what, nested(values)) for what, values in rows]
    other = [("add", nested([7, 7, 8]))]
    column, actions = as_actions(Random(1), "ARRAY<ROW<x INT>>", [key, other])
    rule = ColumnRule(function="collect", distinct=True, ignore_retract=ignores)
    made = folded("db.t", "v", column, rule, actions)
    made.validate(full=True)
    assert made.to_pylist() == [nested(expected), nested([7, 8])]


def test_products_of_decimals_are_rounded_half_up_at_each_step() -> None:
    steps = [
        ([("add", "1.00"), ("back", "8.00")], "0.13"),
        ([("add", "-1.00"), ("back", "8.00")], "-0.13"),
        ([("add", "0.05"), ("add", "0.50")], "0.03"),
        ([("add", "0.05"), ("add", "-0.50")], "-0.03"),
        ([("add", "0.03"), ("back", "8.00")], "0.00"),
        ([("add", "1.00"), ("back", "8.00"), ("add", "10.00")], "1.30"),
    ]
    keys = [[(what, Decimal(text)) for what, text in rows] for rows, _ in steps]
    column, actions = as_actions(Random(0), "DECIMAL(9, 2)", keys)
    found = folded("db.t", "v", column, ColumnRule(function="product"), actions)
    assert found.to_pylist() == [Decimal(text) for _, text in steps]
    model = {"fields.v.aggregate-function": "product"}
    assert found.to_pylist() == [fold_steps(model, "v", "DECIMAL(9, 2)", key) for key in keys]
