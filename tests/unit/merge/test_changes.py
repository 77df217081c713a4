"""When two rows are equal for the changelog, as Java 1.4.2 says it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_stream.merge.rows import Comparison
from paimon_stream.merge.spec import KIND, SEQUENCE, MergeSpec

NAN = math.nan
ROW = pa.struct([("x", pa.int32()), ("y", pa.float64())])
MAP = pa.map_(pa.string(), pa.int32())


@pytest.mark.parametrize(
    ("type_", "before", "after", "equal"),
    [
        (pa.int64(), 1, 1, True),
        (pa.int64(), 1, 2, False),
        (pa.int64(), None, None, True),
        (pa.int64(), None, 0, False),
        (pa.string(), "a", "a", True),
        (pa.string(), "a", "b", False),
        (pa.float64(), 0.0, -0.0, True),
        (pa.float64(), NAN, NAN, False),
        (pa.float32(), NAN, NAN, False),
        (pa.float32(), 1.5, 1.5, True),
        (pa.list_(pa.float64()), [0.0, 1.0], [-0.0, 1.0], True),
        (pa.list_(pa.float64()), [NAN], [NAN], False),
        (pa.list_(pa.int32()), [1, None], [1, None], False),
        (pa.list_(pa.int32()), [1], [1, 1], False),
        (pa.list_(ROW), [{"x": 1, "y": NAN}], [{"x": 1, "y": NAN}], False),
        (ROW, {"x": 1, "y": -0.0}, {"x": 1, "y": 0.0}, True),
        (ROW, {"x": None, "y": None}, None, False),
        (ROW, {"x": 1, "y": NAN}, {"x": 1, "y": NAN}, False),
        (MAP, [("x", 1), ("y", 2)], [("y", 2), ("x", 1)], True),
        (MAP, [("x", 1)], [("x", 2)], False),
        (MAP, [("x", None)], [("x", None)], False),
        (MAP, [], [], True),
        (MAP, None, None, True),
    ],
)
def test_an_update_counts_if_a_value_differs_for_java(
    type_: pa.DataType, before: Any, after: Any, equal: bool
) -> None:
    spec = MergeSpec(table="t", engine="deduplicate", keys=("k",), lookup=True, rules={})
    how = Comparison(
        spec=spec, level=5, old_from_level=1, looks_up=True, logs=True, compared=("k", "v")
    )
    schema = pa.schema([("k", pa.int32()), ("v", type_), (SEQUENCE, pa.int64()), (KIND, pa.int8())])
    rows = pa.table([[1, 1], pa.array([before, after], type_), [0, 1], [0, 0]], schema=schema)
    _, log, _ = how.merged(rows.to_batches(), np.array([5, 0]), keep_deletes=False)
    assert log is not None
    assert log.column(KIND).to_pylist() == ([] if equal else [1, 2])
    assert log.column(SEQUENCE).to_pylist() == ([] if equal else [0, 1])
