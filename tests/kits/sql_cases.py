"""Values of SQL text, with what Spark computes of them in ANSI mode: a test beside Spark keeps this
list true, and one without Spark compares ours.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal as D
from typing import Any, Final

import pyarrow as pa

NAN: Final = float("nan")
INF: Final = float("inf")
ERROR: Final = "error"
"""Computing the value of these rows is an error."""
BIG: Final = 2**63 - 1

ROWS: Final = pa.table(
    {
        "i": pa.array([7, -7, None, 0], pa.int32()),
        "j": pa.array([2, 2, 3, -5], pa.int32()),
        "b": pa.array([BIG, -(2**63), 5, None], pa.int64()),
        "y": pa.array([127, -128, 3, None], pa.int8()),
        "d": pa.array([2.675, NAN, -0.0, None]),
        "e": pa.array([2.5, NAN, 0.0, INF]),
        "f": pa.array([0.5, 1.5, NAN, None], pa.float32()),
        "m": pa.array([D("1.25"), D("-2.35"), None, D("99999999.99")], pa.decimal128(10, 2)),
        "n": pa.array([D("3.000"), D("7.000"), D("0.125"), D("-0.001")], pa.decimal128(9, 3)),
        "w": pa.array([D("1.5"), D("-7"), D("0"), None], pa.decimal128(38, 18)),
        "s": ["abc", " Äß ", None, ""],
        "t": ["12", "-3", "+4", None],
        "u": ["a%c", "zz", "A", "abc"],
        "o": [True, False, None, True],
        "day": pa.array([dt.date(2024, 2, 29), dt.date(1969, 12, 31), None, dt.date(2024, 3, 1)]),
        "ts": pa.array(
            [
                dt.datetime(2024, 2, 29, 10, 30),
                dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
                None,
                dt.datetime(2024, 3, 1),
            ],
            pa.timestamp("us"),
        ),
        "r": [{"x": 1, "z": "p"}, {"x": None, "z": "q"}, None, {"x": 4, "z": None}],
    }
)

CASES: Final[dict[str, Any]] = {}
