"""Values of changed columns, with what Java 1.4.2 reads there; the whole matrix runs beside Java in
`tests/conformance`.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream.errors import IncompatibleSchema, UnsupportedFeature
from paimon_stream.format.types import arrow_type, parse_type
from paimon_stream.read.convert import check_evolution, convert, normalize

CLOCK = dt.time(1, 2, 3, 450_000)
CASES: list[tuple[str, str, Any, Any]] = [
    ("DOUBLE", "DECIMAL(10, 2)", 1.005, Decimal("1.01")),
    ("DOUBLE", "DECIMAL(10, 2)", -0.005, Decimal("-0.01")),
    ("DOUBLE", "DECIMAL(38, 0)", 2e23, Decimal(2 * 10**23)),
    ("DOUBLE", "DECIMAL(38, 38)", 5e-39, Decimal("1e-38")),
    ("DOUBLE", "DECIMAL(38, 38)", 1.2345678901234567e-40, Decimal(0)),
    ("DOUBLE", "DECIMAL(38, 0)", 9.9e37, Decimal(99 * 10**36)),
    ("DOUBLE", "DECIMAL(38, 0)", 1e300, None),
    ("DOUBLE", "DECIMAL(3, 0)", 999.5, None),
    ("FLOAT", "DECIMAL(10, 9)", 0.1, Decimal("0.100000001")),
    ("TIME(3)", "STRING", CLOCK, "01:02:03.45"),
    ("TIME(0)", "STRING", CLOCK, "01:02:03"),
    ("TIME(3)", "STRING", dt.time(0), "00:00:00.0"),
    ("TIME(3)", "TIMESTAMP(0)", CLOCK, dt.datetime(1970, 1, 1, 1, 2, 3, 450_000)),
    ("TIMESTAMP(6)", "TIME(0)", dt.datetime(2024, 2, 29, 1, 2, 3, 450_999), CLOCK),
    ("STRING", "TIME(0)", "1:02:3.4496", CLOCK),
    ("STRING", "TIME(0)", "3723450", CLOCK),
    ("STRING", "DATE", "-1", dt.date(1969, 12, 31)),
    ("STRING", "TIMESTAMP(0)", "-1", dt.datetime(1969, 12, 31, 23, 59, 59)),
    ("STRING", "TIMESTAMP(6)", "1000001", dt.datetime(1970, 1, 1, 0, 0, 1, 1)),
    ("ARRAY<INT>", "CHAR(3)", [1, None, -2], "[1, null, -2]"),
    (
        "ARRAY<ARRAY<DATE>>",
        "STRING",
        [[dt.date(2024, 2, 29)], [], None],
        "[[2024-02-29], [], null]",
    ),
    ("MAP<STRING, BOOLEAN>", "STRING", [("a", True), ("b", None)], "{a -> true, b -> null}"),
    ("ROW<a INT, b BYTES>", "STRING", {"a": None, "b": b"x"}, "{null, x}"),
]


@pytest.mark.parametrize(("old", "new", "value", "expected"), CASES)
def test_a_value_becomes_the_one_that_java_reads(
    old: str, new: str, value: Any, expected: Any
) -> None:
    source, target = parse_type(old), parse_type(new)
    check_evolution("c", source, target)
    stored = pa.array([None, value, None], arrow_type(source))
    for array in (stored, stored.slice(1)):
        converted = convert(array, source, target, normalize, "c")
        assert converted.type == arrow_type(target)
        values = converted.to_pylist()
        assert values[-2:] == [expected, None]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("DOUBLE", "STRING", "because the text of the number depends on the version of Java"),
        ("ARRAY<FLOAT>", "STRING", "because the text of the number"),
        ("DATE", "TIMESTAMP(3) WITH LOCAL TIME ZONE", "because it depends on the time zone"),
        ("ROW<a TIMESTAMP_LTZ(3)>", "STRING", "because it depends on the time zone"),
        ("ROW<a MULTISET<INT>>", "STRING", r"between them\. Select"),
        ("BOOLEAN", "DATE", r"between them\. Select"),
    ],
)
def test_what_is_refused_says_why(old: str, new: str, why: str) -> None:
    with pytest.raises(UnsupportedFeature, match=f"{why}.* an engine on the JVM"):
        check_evolution("c", parse_type(old), parse_type(new))


def test_a_text_that_became_nested_after_loading_asks_to_load_again() -> None:
    for old, new in (("ARRAY<INT>", "STRING"), ("STRING", "ARRAY<INT>")):
        with pytest.raises(IncompatibleSchema, match="Load the table again"):
            check_evolution("c", parse_type(old), parse_type(new), later=True)
