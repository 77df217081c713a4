"""The order of serialized rows is that of their values."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest

from paimon_stream.errors import FormatError, UnsupportedFeature
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.stats import row_order
from paimon_stream.format.types import parse_type

NAN = float("nan")
INFINITE = float("inf")
ASCENDING: dict[str, list[Any]] = {
    "BOOLEAN": [False, True],
    "TINYINT": [-128, -1, 0, 1, 127],
    "SMALLINT": [-300, -1, 0, 255, 256],
    "INT": [-(2**31), -1, 0, 255, 256, 65536],
    "BIGINT": [-(2**63), -256, -1, 0, 1, 256, 2**63 - 1],
    "FLOAT": [-INFINITE, -1.5, -0.0, 0.0, 1.5, INFINITE, NAN],
    "DOUBLE": [-INFINITE, -1e300, -0.0, 0.0, 1e-300, INFINITE, NAN],
    "DECIMAL(9, 2)": [Decimal("-10.01"), Decimal("-9"), Decimal(0), Decimal("0.01"), Decimal(10)],
    "DECIMAL(30, 2)": [
        Decimal("-10.01"),
        Decimal("-9"),
        Decimal(0),
        Decimal("0.01"),
        Decimal(10) ** 20,
    ],
    "STRING": ["", "A", "B", "a", "a\0", "aa", "longer than a slot", "ä", "\uffff", "\U00010000"],
    "CHAR(3)": ["a", "b"],
    "BYTES": [b"", b"\0", b"\x01", b"\x7f", b"\x80", b"\xff", b"\xff\0longer than a slot"],
    "DATE": [-1, 0, 1, 20000],
    "TIME(3)": [0, 1, 86_399_999],
    "TIMESTAMP(3)": [-1_000_000, 0, 1_000_000],
    "TIMESTAMP(9)": [-1, 0, 1, 10**18, 10**18 + 1],
    "TIMESTAMP_LTZ(6)": [-1000, 0, 1000],
}


@pytest.mark.parametrize("name", ASCENDING)
def test_rows_of_one_column_are_ordered_as_their_values_with_null_first(name: str) -> None:
    types = (parse_type(name),)
    rows = [serialize(types, (value,)) for value in (None, *ASCENDING[name])]
    keys = list(map(row_order(types), rows))
    assert all(low < high for low, high in pairwise(keys))
    assert all(keys[i] == row_order(types)(rows[i]) for i in range(len(rows)))


def test_rows_of_several_columns_are_ordered_by_the_first_that_differs() -> None:
    types = tuple(map(parse_type, ("INT", "STRING", "DOUBLE")))
    values = [(-1, "z", 9.0), (1, "a", 9.0), (1, "b", -1.0), (1, "b", None), (1, "b", 2.0)]
    rows = [
        serialize(types, row) for row in (values[0], values[1], values[3], values[2], values[4])
    ]
    keys = list(map(row_order(types), rows))
    assert all(low < high for low, high in pairwise(keys))


@pytest.mark.parametrize("types", [("INT",), ("INT", "INT")])
def test_bytes_that_are_no_such_row_have_no_place_in_the_order(types: tuple[str, ...]) -> None:
    order = row_order(tuple(map(parse_type, types)))
    for data in (b"", b"\0\0\0\x01", serialize((parse_type("INT"),) * 3, (1, 2, 3))):
        with pytest.raises(FormatError):
            order(data)


def test_nested_types_have_no_order() -> None:
    with pytest.raises(UnsupportedFeature, match="ARRAY"):
        row_order((parse_type("ARRAY<INT>"),))
