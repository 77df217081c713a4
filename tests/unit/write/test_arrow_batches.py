"""The widest row of an Arrow batch, of any types."""

from __future__ import annotations

import pyarrow as pa
import pytest

from paimon_stream.write.arrow_batches import widest_row

WIDE = 1_000
COLUMNS = {
    "text": pa.array(["a", None, "x" * WIDE, ""]),
    "large text": pa.array(["a", None, "x" * WIDE, ""], pa.large_string()),
    "bytes": pa.array([b"a", None, b"x" * WIDE, b""], pa.binary()),
    "list": pa.array([[1], None, [0] * (WIDE // 8), []], pa.list_(pa.int64())),
    "list of text": pa.array([["a"], None, ["x" * 600, "y" * 400], []], pa.list_(pa.string())),
    "map": pa.array([[("a", 1)], None, [("k" * WIDE, 2)], []], pa.map_(pa.string(), pa.int32())),
    "struct": pa.array([{"t": "a"}, None, {"t": "x" * WIDE}, {"t": None}]),
    "list of structs": pa.array([[{"t": "a"}], None, [{"t": "x" * 500}, {"t": "y" * 500}], []]),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_the_widest_row_is_found_in_columns_of_any_type(kind: str) -> None:
    batch = pa.record_batch({"id": pa.array(range(4), pa.int64()), "value": COLUMNS[kind]})
    assert WIDE + 8 < widest_row(batch) < 1.3 * WIDE
    assert WIDE + 8 < widest_row(batch.slice(1, 2)) < 1.3 * WIDE
    assert widest_row(batch.slice(0, 2)) < 50
    assert widest_row(batch.slice(3)) < 50


def test_a_row_is_as_wide_as_all_its_columns_together() -> None:
    texts = {
        f"t{place}": ["x" * 300 if row == place else "" for row in range(3)] for place in (0, 1)
    }
    batch = pa.record_batch({**texts, "both": ["", "y" * 200, ""]})
    assert 500 < widest_row(batch) < 520


def test_rows_of_fixed_width_are_all_alike_and_no_rows_have_none() -> None:
    batch = pa.record_batch(
        {"a": pa.array([1, 2], pa.int64()), "b": pa.array([True, None]), "c": pa.nulls(2)}
    )
    assert widest_row(batch) == 8 + 1 + 3
    assert widest_row(batch.slice(0, 0)) == 0
