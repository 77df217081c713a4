"""Conditions as people type them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable, SchemaChange, catalog
from paimon_stream.errors import InvalidOption
from paimon_stream.read.condition_text import TypedCondition


def ids(table: PaimonTable, text: str, snapshot_id: int | None = None) -> list[int]:
    condition = TypedCondition(text, "where")
    kept: list[int] = table.to_arrow(filter=condition, snapshot_id=snapshot_id)["id"].to_pylist()
    return kept


def test_an_older_snapshot_has_the_columns_of_its_time(tmp_path: Path) -> None:
    paimon = catalog({"warehouse": str(tmp_path)})
    paimon.create_database("d")
    columns = [("id", "BIGINT"), ("old", "INT"), ("f", "FLOAT"), ("s", "STRING")]
    table = paimon.create_table("d.t", columns)
    row = {"id": [1], "old": pa.array([10], pa.int32()), "f": pa.array([0.1], pa.float32())}
    table.append(pa.table({**row, "s": ["a"]}))
    changes = [
        SchemaChange.rename_column("old", "new"),
        SchemaChange.update_column_type("f", "DOUBLE"),
        SchemaChange.drop_column("s"),
    ]
    paimon.alter_table("d.t", changes)
    paimon.alter_table("d.t", [SchemaChange.add_column("s", "INT")])
    for text in ("old = 10", "f = 0.1", "s = 'a'"):
        assert ids(table, text, 1) == [1], text
    assert ids(table, "new = 10") == [1]
    with pytest.raises(InvalidOption, match=r"names a column 'new'\. The columns: id, old, f, s\."):
        ids(table, "new = 10", 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nanos < '9999-12-31'", "with '9999-12-31', which is beyond the moments"),
        ("micros < '+300000-01-01'", "which is beyond the moments"),
        ("raw = 'x'", r"its type is BYTES\. Ask only IS NULL\."),
    ],
)
def test_what_cannot_be_compared_is_refused(text: str, message: str, tmp_path: Path) -> None:
    columns = [("nanos", "TIMESTAMP(9)"), ("micros", "TIMESTAMP(6)"), ("raw", "BYTES")]
    table = PaimonTable.create(str(tmp_path / "t"), columns)
    with pytest.raises(InvalidOption, match=message) as refused:
        table.to_arrow(filter=TypedCondition(text, "where"))
    assert table.location in str(refused.value)


@pytest.mark.parametrize("type_", ["FLOAT", "DOUBLE"])
def test_nan_equals_nan_and_is_above_all_numbers(type_: str, tmp_path: Path) -> None:
    """As in Spark, which a test of its reads shows."""
    table = PaimonTable.create(str(tmp_path / "t"), [("id", "BIGINT"), ("f", type_)])
    values = {1: 1.0, 2: float("nan"), 3: None, 4: float("inf")}
    arrow_type = pa.float32() if type_ == "FLOAT" else pa.float64()
    table.append(pa.table({"id": list(values), "f": pa.array(values.values(), arrow_type)}))
    kept = {
        "f > 1": [2, 4],
        "f >= 1": [1, 2, 4],
        "f < 2": [1],
        "f != 1": [2, 4],
        "f = NaN": [2],
        "f == nan": [2],
        "f != NaN": [1, 4],
        "f <> NaN": [1, 4],
        "f < NaN": [1, 4],
        "f <= NaN": [1, 2, 4],
        "f > NaN": [],
        "f >= NaN": [2],
        "f IS NULL": [3],
    }
    assert {text: ids(table, text) for text in kept} == kept
