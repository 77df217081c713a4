"""Merging DataFrames: this process and Spark's tasks give the same rows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal as D
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from paimon_stream import PaimonTable
from paimon_stream.api.merging import TableMerge
from paimon_stream.change import merge_distant
from tests.unit.change.test_update_rows import SMALL, VECTORS

pytestmark = [pytest.mark.spark35, pytest.mark.spark4]

NAN = float("nan")
KINDS = {"vectors": VECTORS, "rewritten": SMALL}
each_kind = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)


@pytest.fixture(params=["here", "by tasks"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the merge is carried out."""
    chosen: str = request.param
    if chosen == "by tasks":
        monkeypatch.setattr(merge_distant, "MOST_HERE", -1)
    return chosen


def upsert(table: PaimonTable, source: Any, on: Any = "k") -> TableMerge:
    """Matched rows get the source's value, others are inserted."""
    merge = table.merge(source, on=[on] if on == "k" else on)
    return merge.when_matched_update({"v": "source.v"}).when_not_matched_insert_all()


STAMP = dt.datetime(2026, 11, 1, 12, 0, 0, 123456)
CASES: dict[str, tuple[str, str, list[Any], list[Any], Any, int]] = {
    # the type of the table's key and Spark's for the source's, the keys of both, the condition, how
    # many rows of the table match
    "NULL matches nothing": ("INT", "int", [None, 1], [None, 1], "k", 1),
    "NULL matches NULL": ("INT", "int", [None, 1], [None, 1], "source.k <=> target.k", 2),
    "NaN": ("DOUBLE", "double", [NAN, 1.0], [NAN], "k", 1),
    "-0.0": ("DOUBLE", "double", [-0.0, 1.0], [0.0], "k", 1),
    "FLOAT beside DOUBLE": ("FLOAT", "double", [0.5, 0.1], [0.5, 0.1], "k", 1),
    "decimals": (
        "DECIMAL(10, 2)",
        "decimal(20, 4)",
        [D("1.50"), D("2")],
        [D("1.5"), D("3")],
        "k",
        1,
    ),
    "wide decimals": ("DECIMAL(38, 10)", "decimal(38, 10)", [D("1e20"), D(1)], [D("1e20")], "k", 1),
    "integers of two sizes": ("SMALLINT", "bigint", [1, 2], [2, 2**40], "k", 1),
    "CHAR": ("CHAR(5)", "string", ["a", "b    "], ["a  ", "b"], "k", 2),
    "texts": (
        "STRING",
        "string",
        ["", "e\u0301", "\u00e9", "x" * 40],
        ["", "\u00e9", "x" * 40],
        "k",
        3,
    ),
    "bytes": ("BYTES", "binary", [b"\0", b"\0\0", b"a"], [b"\0", b"a"], "k", 2),
    "timestamps": ("TIMESTAMP(6)", "timestamp_ntz", [STAMP, dt.datetime(1, 1, 1)], [STAMP], "k", 1),
    "dates": ("DATE", "date", [dt.date(2026, 1, 1), dt.date(1, 1, 1)], [dt.date(1, 1, 1)], "k", 1),
    "booleans": ("BOOLEAN", "boolean", [True, False], [True], "k", 1),
}


@pytest.mark.parametrize("case", CASES)
def test_both_ways_match_the_same_rows(
    spark_session: SparkSession, tmp_path: Path, way: str, case: str
) -> None:
    ours, sparks, held, given, on, matches = CASES[case]
    table = PaimonTable.create(
        str(tmp_path / "t"),
        [("k", ours), ("v", "INT"), ("at", "ROW<x INT, l ARRAY<STRING>>")],
        options=VECTORS,
    )
    rows = [{"k": key, "v": 0, "at": {"x": 1, "l": ["a", None]}} for key in held]
    schema = table.to_arrow().schema
    table.append(pa.Table.from_pylist(rows, schema))
    source = spark_session.createDataFrame(
        [(key, place + 1, (place, ["b"])) for place, key in enumerate(given)],
        f"k {sparks}, v int, at struct<x: int, l: array<string>>",
    )
    merge = table.merge(source, on=[on] if on == "k" else on)
    merge.when_matched_update({"v": "source.v", "at": "source.at"})
    report = merge.execute()
    assert (report.rows_updated, report.source_rows) == (matches, len(given))
    read = table.to_arrow().to_pylist()
    assert len(read) == len(held) and len([row for row in read if row["v"]]) == matches
    assert all(row["at"]["l"] == (["b"] if row["v"] else ["a", None]) for row in read)
    assert all(row["at"]["x"] == max(row["v"] - 1, 0) or not row["v"] for row in read)
