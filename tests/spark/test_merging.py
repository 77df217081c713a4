"""Merging DataFrames: this process and Spark's tasks give the same rows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal as D
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from paimon_stream import PaimonTable
from paimon_stream.api.merging import TableMerge
from paimon_stream.change import merge_distant
from paimon_stream.errors import AmbiguousMerge, InvalidData, InvalidOption
from tests.kits.params import one_in
from tests.unit.change.test_update_rows import SMALL, VECTORS, assert_no_orphans

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


@pytest.mark.parametrize("case", one_in(3, CASES))
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


COLUMNS = [("k", "INT"), ("v", "INT"), ("p", "STRING")]
ARROW = pa.schema([("k", pa.int32()), ("v", pa.int32()), ("p", pa.string())])


def filled(folder: Path, options: dict[str, str]) -> PaimonTable:
    """A table with the keys from 0 to 29, ten in each commit. `v` is ten times `k`."""
    table = PaimonTable.create(str(folder / "t"), COLUMNS, options=options, partition_keys=["p"])
    for start in (0, 10, 20):
        keys = range(start, start + 10)
        rows = [{"k": key, "v": 10 * key, "p": "ab"[key % 2]} for key in keys]
        table.append(pa.Table.from_pylist(rows, ARROW))
    return table


def values(table: PaimonTable) -> dict[int | None, int]:
    assert not [each for each in table.verify().findings if each.severity != "info"]
    read = table.to_arrow().to_pylist()
    by_key = {row["k"]: row["v"] for row in read}
    assert len(by_key) == len(read)
    return by_key


def all_clauses(table: PaimonTable, source: DataFrame) -> TableMerge:
    return (
        table.merge(source, on="source.k = target.k AND target.v < 250")
        .when_matched_delete("source.v IS NULL")
        .when_matched_update({"v": "target.v + source.v"})
        .when_not_matched_insert_all()
        .when_not_matched_by_source_update({"v": "-1"}, "target.k = 29")
        .when_not_matched_by_source_delete("target.k = 28")
    )


@each_kind
def test_both_ways_carry_out_all_clauses(
    spark_session: SparkSession, tmp_path: Path, way: str, options: dict[str, str]
) -> None:
    table = filled(tmp_path, options)
    before = table.latest_snapshot()
    source = spark_session.createDataFrame(
        [(3, 1, "a"), (14, None, "b"), (40, 7, "a"), (None, 8, "b")], "k int, v int, p string"
    )
    merge = all_clauses(table, source)
    tried = merge.execute(dry_run=True)
    assert table.latest_snapshot() == before
    done = merge.execute()
    for report in (tried, done):
        assert (report.rows_updated, report.rows_deleted, report.rows_inserted) == (2, 2, 2)
    expected: dict[int | None, int] = {key: 10 * key for key in range(30) if key not in (14, 28)}
    assert values(table) == expected | {3: 31, 29: -1, 40: 7, None: 8}
    assert table.latest_snapshot().id == before.id + 1
    assert_no_orphans(table)


@each_kind
def test_what_others_do_meanwhile_is_taken_into_account(
    spark_session: SparkSession, tmp_path: Path, way: str, options: dict[str, str]
) -> None:
    """Another row of a key is a conflict, and a row of another key is none."""
    table = filled(tmp_path, options)
    source = spark_session.range(3, 5).selectExpr("int(id) k", "1 v", "'a' p")
    computed: list[int] = []

    def act(what: str, done: int, of: int | None) -> None:
        computed.append(done)
        if len(computed) == 1:
            table.append(pa.Table.from_pylist([{"k": 4, "v": 1000, "p": "z"}], ARROW))
        if len(computed) == 2 and way == "by tasks":
            table.append(pa.Table.from_pylist([{"k": 77, "v": 77, "p": "z"}], ARROW))

    merge = table.merge(source, on=["k"])
    merge.when_matched_update({"v": "target.v + source.v"}).when_not_matched_insert_all()
    report = merge.execute(progress=act)
    assert (report.rows_updated, report.rows_inserted) == (3, 0)
    read = sorted(row["v"] for row in table.to_arrow().to_pylist() if row["k"] in (3, 4))
    assert read == [31, 41, 1001]
    if way == "by tasks":
        assert len(computed) == 2
    assert_no_orphans(table)


def test_errors_of_tasks_are_those_of_this_process(
    spark_session: SparkSession, tmp_path: Path, way: str
) -> None:
    table = filled(tmp_path, VECTORS)
    twice = spark_session.createDataFrame([(3, 1, "a"), (3, 2, "a")], "k int, v int, p string")
    with pytest.raises(AmbiguousMerge, match="The keys of such rows: 3"):
        table.merge(twice, on=["k"]).when_matched_update_all().execute()
    zero = spark_session.createDataFrame([(3, 0, "a"), (50, 0, "b")], "k int, v int, p string")
    merge = table.merge(zero, on=["k"]).when_not_matched_insert_all()
    with pytest.raises(InvalidData, match="cannot be computed for a row"):
        merge.when_matched_update({"v": "1 / source.v"}).execute()
    with pytest.raises(InvalidData, match="on cannot be computed for a row"):
        table.merge(zero, on="target.k = 1 / source.v").when_matched_delete().execute()
    assert values(table) == {key: 10 * key for key in range(30)}
    assert_no_orphans(table)


def test_a_source_is_evaluated_once(spark_session: SparkSession, tmp_path: Path, way: str) -> None:
    """A source with other rows each time is merged as one of them."""
    table = PaimonTable.create(str(tmp_path / "t"), [("k", "DOUBLE"), ("v", "DOUBLE")])
    source = spark_session.range(100).selectExpr("rand() k", "0D v").selectExpr("k", "k v")
    merge = table.merge(source, on=["k"]).when_not_matched_insert_all()
    merge.when_matched_update({"v": "-1"})
    assert merge.execute().rows_inserted == 100
    report = merge.execute()
    assert (report.rows_updated, report.rows_inserted) == (100, 0)


def test_a_streaming_source_is_refused(spark_session: SparkSession, tmp_path: Path) -> None:
    table = filled(tmp_path, VECTORS)
    stream = spark_session.readStream.format("rate").load().selectExpr("int(value) k")
    with pytest.raises(InvalidOption, match="is a streaming DataFrame"):
        table.merge(stream, on=["k"]).when_matched_delete().execute()
