"""Random conditions on the rows of an Arrow table, and comparing what they keep."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_COMPARE = ["==", "!=", "<", "<=", ">", ">="]


def random_filter(random: Random, rows: pa.Table, depth: int = 2) -> pc.Expression:
    """A condition on columns of the table, with values that it has, and neighbours of them."""
    if depth and random.random() < 0.6:
        left, right = (random_filter(random, rows, depth - 1) for _ in range(2))
        return random.choice([left & right, left & right, left | right, ~left])
    name = random.choice(rows.column_names)
    column, field = rows[name], pc.field(name)
    if (
        pa.types.is_nested(column.type)
        or random.random() < 0.15
        or column.null_count == len(column)
    ):
        return random.choice([field.is_null(), field.is_valid()])
    present = column.drop_null()
    places = [random.randrange(len(present)) for _ in range(3)]
    some = [present[one] for one in places]
    if pa.types.is_boolean(column.type):
        return random.choice([field, ~field, field == some[0]])
    if random.random() < 0.2:
        return field.isin(present.take(places).combine_chunks())
    value = some[0]
    if pa.types.is_integer(column.type) and random.random() < 0.4:
        value = pa.scalar(random.choice([value.as_py() // 2, value.as_py() // 2 + 1]), column.type)
    elif pa.types.is_string(column.type) and random.random() < 0.4:
        value = pa.scalar(value.as_py()[:16] + random.choice(["", "!", "~"]), column.type)
    return {
        "==": field == value,
        "!=": field != value,
        "<": field < value,
        "<=": field <= value,
        ">": field > value,
        ">=": field >= value,
    }[random.choice(_COMPARE)]


def assert_same(got: pa.Table, wanted: pa.Table, what: Any = "") -> None:
    """Checks that both have the same columns and the same rows, in any order."""
    assert got.schema == wanted.schema
    if got.num_rows != wanted.num_rows or not got.equals(wanted):
        assert counted(got) == counted(wanted), what


def counted(rows: pa.Table) -> Counter[str]:
    """How often each row comes, as text."""
    texts = [[repr(one) for one in column] for column in rows.columns]
    return Counter(map(str, zip(*texts, strict=True)))
