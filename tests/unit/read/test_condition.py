"""A condition shows its parts, and a shorter one keeps the same rows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_stream import PaimonTable
from paimon_stream.read.condition import Condition
from paimon_stream.read.predicate import Predicate
from tests.kits.filters import random_filter
from tests.kits.params import one_in

A, B = pc.field("a"), pc.field("b")
SCHEMA = pa.schema({"a": pa.int32(), "b": pa.string(), "f": pa.float64()})


def any_of(column: pc.Expression, values: Any) -> pc.Expression:
    return reduce(or_, [column == value for value in values])


def none_of(column: pc.Expression, values: Any) -> pc.Expression:
    return reduce(and_, [column != value for value in values])


def folded(where: pc.Expression, schema: pa.Schema = SCHEMA) -> pc.Expression:
    condition = Condition.of(where)
    assert condition is not None
    return condition.folded(schema)


def is_in(name: str, values: Any) -> pc.Expression:
    return pc.field(name).isin(pa.array(values, SCHEMA.field(name).type))


@pytest.mark.parametrize(
    ("where", "shorter"),
    [
        (any_of(A, [1, 2, 3]), is_in("a", [1, 2, 3])),
        ((A == 1) | ((A == 2) | ((pc.scalar(3) == A) | (A == 4))), is_in("a", [1, 2, 3, 4])),
        (any_of(B, ["x", "", "'\nend: 'z"]), is_in("b", ["x", "", "'\nend: 'z"])),
        (none_of(A, [1, 2, 3]), A.is_valid() & ~is_in("a", [1, 2, 3])),
        (~any_of(A, [1, 2, 3]), A.is_valid() & ~is_in("a", [1, 2, 3])),
        (~none_of(A, [1, 2, 3]), is_in("a", [1, 2, 3])),
        (
            ~(any_of(A, [1, 2, 3]) | (B > "x")),
            A.is_valid() & ~is_in("a", [1, 2, 3]) & ~(B > "x"),
        ),
        (any_of(A, [1, 2, 3]) | (B > "x"), is_in("a", [1, 2, 3]) | (B > "x")),
        (
            (B > "x") & (any_of(A, [1, 2, 3]) | B.isin(["q"])),
            (B > "x") & (is_in("a", [1, 2, 3]) | B.isin(["q"])),
        ),
        (
            any_of(A, [1, 2, 3]) | any_of(B, ["x", "y", "z"]),
            is_in("a", [1, 2, 3]) | is_in("b", ["x", "y", "z"]),
        ),
    ],
    ids=str,
)
def test_comparisons_of_one_column_become_an_isin(
    where: pc.Expression, shorter: pc.Expression
) -> None:
    assert folded(where).equals(shorter)


@pytest.mark.parametrize(
    "where",
    [
        (A == 1) | (A == 2),
        any_of(A, [1, 2, 3]).is_null(),
        any_of(pc.field("f"), [0.0, 1.0, 2.0]),
        any_of(A, [2**40, 2**41, 2**42]),
        any_of(A, [1.0, 2.0, 3.5]),
        any_of(A, [pa.scalar(None, pa.int32())] * 3),
        none_of(A, [1, 2, 3]) == (B == "x"),
        pc.or_(pc.or_(A == 1, A == 2), A == 3),
        any_of(pc.field("s", "a"), [1, 2, 3]),
    ],
    ids=str,
)
def test_other_conditions_stay_as_they_are(where: pc.Expression) -> None:
    assert folded(where).equals(where)


@pytest.mark.parametrize(
    ("where", "names"),
    [
        (pc.scalar(True), ()),
        (A.is_valid() & (pc.field("s", "a", "b") == B), ("a", "b", "s")),
        (pc.field("'\nfield: 'a") == "'\nfield_ref: 'b", ("'\nfield: 'a",)),
        (pc.field("") == 1, ("",)),
        (pc.starts_with(pc.field("b"), "x") & A.isin([1]), ("a", "b")),
    ],
    ids=str,
)
def test_a_condition_names_its_columns(where: pc.Expression, names: tuple[str, ...]) -> None:
    condition = Condition.of(where)
    assert condition is not None
    assert condition.columns == set(names)


def test_a_name_that_looks_like_a_part_leaves_a_condition_without_parts() -> None:
    name = "'\nfield_ref: 'a"
    assert Condition.of(pc.field(name) == 1) is None
    table = PaimonTable.create("memory://condition/db.db/t", [(name, "INT"), ("a", "INT")])
    table.append(pa.table({name: pa.array([1, 2], pa.int32()), "a": pa.array([3, 4], pa.int32())}))
    predicate = Predicate.of(pc.field(name) == 2, table.schema, table.location)
    assert [column.name for column in predicate.columns] == [name]
    assert table.to_arrow(filter=predicate.where)["a"].to_pylist() == [4]


@pytest.mark.parametrize("seed", one_in(10, range(20)))
def test_a_shorter_condition_keeps_the_same_rows(seed: int) -> None:
    random = Random(seed)
    rows = pa.table(
        {
            "id": pa.array([random.choice([None, *range(20)]) for _ in range(60)], pa.int32()),
            "text": [random.choice([None, "", "a", "ab", "é"]) for _ in range(60)],
            "price": pa.array(
                [random.choice([None, Decimal("1.10"), Decimal(2)]) for _ in range(60)],
                pa.decimal128(9, 2),
            ),
            "at": pa.array(
                [random.choice([None, dt.datetime(2024, 1, 1 + n % 9)]) for n in range(60)],
                pa.timestamp("ms"),
            ),
            "day": [random.choice([None, dt.date(2024, 1, 1 + n % 9)]) for n in range(60)],
            "real": [random.choice([None, 0.0, -0.0, float("nan"), 1.5]) for _ in range(60)],
        }
    )
    numbered = rows.append_column("n", pa.array(range(60)))
    literals = {
        name: [value.as_py() for value in rows[name].unique()] for name in rows.schema.names
    }
    literals["id"] += [99, 2**40]
    literals["price"] += [Decimal("1.1"), Decimal("1.105"), Decimal("12345678901")]
    literals["at"] += [dt.datetime(2024, 1, 1, 0, 0, 0, 1)]
    for _ in range(20):
        where = random_filter(random, rows)
        for _ in range(random.randrange(1, 4)):
            name = random.choice(rows.schema.names)
            values = [value for value in literals[name] if value is not None]
            some = random.choices(values, k=random.randrange(2, 8))
            part = random.choice([any_of, none_of])(pc.field(name), some)
            where = random.choice([where | part, part & where, ~(part | where), ~part | where])
        condition = Condition.of(where)
        if condition is not None:
            shorter = condition.folded(rows.schema)
            assert numbered.filter(shorter)["n"].equals(numbered.filter(where)["n"]), where


def test_a_long_condition_is_one_comparison_per_row() -> None:
    """Its cost is that of an `isin`: no term is left that Arrow computes by itself."""
    for terms in (100, 800):
        values = [3 * number for number in range(terms)]
        table = PaimonTable.create(f"memory://terms-{terms}/db.db/t", [("a", "INT")])
        predicate = Predicate.of(any_of(A, values), table.schema, table.location)
        assert predicate._shorter.equals(is_in("a", values))


@pytest.mark.parametrize(
    ("where", "is_limited"),
    [
        (A == 1, True),
        (pc.scalar(1) == A, True),
        (A.isin([1, 2]), True),
        ((A == 1) & (B == "x"), True),
        ((B == "x") & ((A == 1) | (A == 2)), True),
        ((A == 1) | (B == "x"), False),
        (~(A == 1), False),
        (A > 1, False),
        (A == B, False),
        (B == "x", False),
        (pc.scalar(True), False),
    ],
)
def test_it_is_known_whether_a_condition_lists_values_of_a_column(
    where: pc.Expression, is_limited: bool
) -> None:
    condition = Condition.of(where)
    assert condition is not None
    assert condition.limits({"a"}) is is_limited
