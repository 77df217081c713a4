"""Streams whose rows or whose table change their columns: the change is followed from batch to
batch, or refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as st

from paimon_stream import PaimonTable, errors
from paimon_stream.spark.align import align, project
from paimon_stream.spark.schema_fit import check_rows, fit_rows
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import Table, evolve, load_table
from tests.kits.spark_jobs import Job

ADD = {"paimon-stream.merge-schema": "add"}
WIDEN = {"write.merge-schema": "true"}
NULL = {"paimon-stream.missing-columns": "null"}


def changed_by(
    job: Job, sink: Any, *shapes: Callable[[DataFrame], DataFrame]
) -> Callable[..., None]:
    """A foreachBatch function that gives each batch the columns of the next shape."""

    def write(frame: DataFrame, batch_id: int) -> None:
        sink(shapes[batch_id](frame), batch_id)

    return write


def schema_ids(job: Job) -> list[int]:
    return [snapshot.schema_id for snapshot in job.load().snapshots()]


def types_of(job: Job) -> dict[str, str]:
    return {one.name: str(one.type) for one in job.load().schema.fields}


@pytest.mark.spark35
def test_rows_add_and_widen_columns_of_a_running_stream_and_java_reads_all(
    job: Job, java: Any
) -> None:
    job.create([("id", "INT"), ("Day", "VARCHAR(2)")], options={"bucket": "2", "bucket-key": "id"})
    job.add_files(4)
    write = changed_by(
        job,
        job.sink(options=WIDEN | NULL),
        lambda rows: rows.selectExpr("cast(id as int) id", "day"),
        lambda rows: rows.selectExpr("cast(id as int) id", "day", "named_struct('x', 1) as n"),
        lambda rows: rows.selectExpr("cast(id as int) id", "named_struct('y', day, 'X', id) as n"),
        lambda rows: rows.selectExpr("cast(id as smallint) id", "null as n", "day"),
    )
    job.run(write)
    assert types_of(job) == {"id": "INT", "Day": "STRING", "n": "ROW<x BIGINT, y STRING>"}
    assert schema_ids(job) == [1, 2, 3, 3]
    expected = [
        {
            "id": n,
            "Day": None if 12 <= n < 18 else f"d{n % 2}",
            "n": {"x": 1, "y": None}
            if 6 <= n < 12
            else {"x": n, "y": f"d{n % 2}"}
            if 12 <= n < 18
            else None,
        }
        for n in range(24)
    ]
    assert sorted(java.read(job.table), key=lambda row: row["id"]) == expected
    ours = job.load().to_arrow().to_pylist()
    assert sorted(ours, key=lambda row: row["id"]) == expected


@pytest.mark.full
def test_what_java_alters_under_a_running_query_holds_from_the_next_batch_on(
    job: Job, java: Any
) -> None:
    job.create([("id", "BIGINT"), ("day", "STRING"), ("r", "ROW<x INT>")])
    job.add_files(4)
    alterations: list[list[tuple[str, ...]]] = [
        [],
        [("add", "note", "STRING"), ("set", "file.format", "orc")],
        [("drop", "r")],
        [("type", "id", "DECIMAL(20, 0)"), ("unset", "file.format")],
    ]
    sink = job.sink(options=NULL)

    def write(rows: DataFrame, batch_id: int) -> None:
        if alterations[batch_id]:
            java.alter_table(job.table, *alterations[batch_id])
        columns = ["id", "day", "named_struct('x', 1) r", "'n' note"]
        wanted = [columns[:3], columns, [*columns[:2], columns[3]], columns[:2]][batch_id]
        sink(rows.selectExpr(*wanted), batch_id)

    job.run(write)
    assert schema_ids(job) == [0, 1, 2, 3]
    names = [Path(file.path).suffix for file in job.load().files()]
    assert sorted(names) == [".orc", ".orc", ".parquet", ".parquet"]
    rows = sorted(java.read(job.table), key=lambda row: row["id"])
    assert [row["note"] for row in rows] == [None] * 6 + ["n"] * 12 + [None] * 6
    assert [int(row["id"]) for row in rows] == list(range(24))


@pytest.mark.full
def test_rows_without_a_column_of_the_table_are_refused_unless_null_is_asked_for(job: Job) -> None:
    job.create([("id", "BIGINT"), ("day", "STRING"), ("note", "STRING")])
    job.add_files(2)
    text = job.run_failing()
    for part in (
        "IncompatibleSchema",
        "lacks column 'note' (STRING)",
        "paimon-stream.missing-columns = null",
    ):
        assert part in text
    with pytest.raises(errors.IncompatibleSchema, match="lacks column 'day'"):
        job.load().append(job.spark.range(1))
    assert not job.load().snapshots()
    job.run(job.sink(options=NULL))
    job.load().append(job.spark.range(90, 91), missing_columns="null")
    assert sorted((row["id"], row["note"]) for row in job.rows()) == [
        *((n, None) for n in range(12)),
        (90, None),
    ]


@pytest.mark.full
def test_a_column_that_java_dropped_is_refused_while_rows_have_it_and_comes_back_where_asked(
    job: Job, java: Any
) -> None:
    job.create()
    job.add_files(2)
    sink = job.sink()

    def write(rows: DataFrame, batch_id: int) -> None:
        if batch_id == 1:
            java.alter_table(job.table, ("drop", "day"))
        sink(rows, batch_id)

    text = job.run_failing(write)
    for part in ("IncompatibleSchema", "no column 'day'", "paimon-stream.merge-schema = add"):
        assert part in text
    assert schema_ids(job) == [0] and job.load().schema.id == 1
    job.run(job.sink(options=ADD))
    assert schema_ids(job) == [0, 2]
    rows = sorted(java.read(job.table), key=lambda row: row["id"])
    assert [row["day"] for row in rows] == [None] * 6 + [f"d{n % 2}" for n in range(6, 12)]


@pytest.mark.full
def test_another_number_of_buckets_stops_the_stream_with_a_cure(job: Job, java: Any) -> None:
    job.create(options={"bucket": "2", "bucket-key": "id"})
    job.add_files(2)
    sink = job.sink()

    def write(rows: DataFrame, batch_id: int) -> None:
        if batch_id == 1:
            java.alter_table(job.table, ("set", "bucket", "3"))
        sink(rows, batch_id)

    text = job.run_failing(write)
    assert "BucketCountChanged" in text and "bucket" in text
    assert job.ids() == list(range(6))
    java.alter_table(job.table, ("set", "bucket", "2"))
    job.run()
    assert job.ids() == list(range(12))


@pytest.mark.full
def test_rows_that_do_not_fit_leave_the_schema_as_it_is(job: Job) -> None:
    job.create(
        [("id", "BIGINT"), ("day", "STRING NOT NULL")], options={"bucket": "1", "bucket-key": "id"}
    )
    job.add_files(1)
    for options, columns, parts in (
        (ADD, ["id", "day", "1 new", "interval 1 day gap"], ["'gap'", "interval"]),
        (ADD, ["id", "1 new"], ["lacks column 'day'"]),
        (
            ADD,
            ["cast(id as decimal(20, 0)) id", "day", "1 new"],
            ["'id'", "bucket key", "BIGINT", "DECIMAL"],
        ),
        (ADD, ["id", "day", "1 new", "2 NEW"], ["one name here"]),
        (WIDEN, ["id", "array(day) day"], ["'day'", "STRING", "ARRAY<STRING>"]),
        (ADD, ["id", "day", "1 _KEY_x"], ["Paimon's own"]),
    ):
        write = changed_by(
            job, job.sink(options=options), lambda rows, c=columns: rows.selectExpr(*c)
        )
        text = job.run_failing(write)
        for part in parts:
            assert part in text, (columns, text)
    assert job.load().schema.id == 0 and not job.data_files() and not job.identifiers()


@pytest.mark.full
def test_a_column_that_is_too_wide_names_the_option_that_widens(job: Job) -> None:
    job.create([("id", "INT"), ("day", "STRING")])
    job.add_files(1)
    text = job.run_failing(job.sink(options=ADD))
    assert "column 'id' is INT in the table and BIGINT in the rows" in text
    assert "paimon-stream.merge-schema = widen would widen it to BIGINT" in text
    job.run(job.sink(options={"paimon-stream.merge-schema": "WIDEN"}))
    assert types_of(job)["id"] == "BIGINT" and schema_ids(job) == [1]


def test_a_query_that_starts_is_checked_without_changing_the_schema(job: Job) -> None:
    job.create([("id", "BIGINT")])
    job.add_files(1)
    with pytest.raises(errors.IncompatibleSchema, match="no column 'day'"):
        job.sink().start(job.stream(), checkpoint=str(job.checkpoint))
    check_rows(job.stream(), load_table(LocalStorage(str(job.table)), ADD))
    assert job.load().schema.id == 0
    query = job.sink(options=ADD).start(
        job.stream(), checkpoint=str(job.checkpoint), trigger={"availableNow": True}
    )
    query.awaitTermination(900)
    assert types_of(job) == {"id": "BIGINT", "day": "STRING"}


@pytest.mark.full
def test_a_replayed_batch_finds_its_schema_there(job: Job) -> None:
    job.create([("id", "BIGINT")])
    job.add_files(1)

    def veto(_: object) -> None:
        raise ValueError("not yet")

    job.run_failing(job.sink(options=ADD, before_commit=veto))
    assert job.load().schema.id == 1 and not job.identifiers()
    job.run(job.sink(options=ADD))
    job.forget_last_batch()
    job.run(job.sink(options=ADD))
    assert job.load().schema.id == 1 and job.identifiers() == [0] and schema_ids(job) == [1]


# -- without a stream -----------------------------------------------------------------------------


@contextmanager
def case_sensitive(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        yield
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def grown(frame: DataFrame, path: Path, **options: str) -> tuple[Table, DataFrame]:
    table = load_table(LocalStorage(str(path)), options)
    return fit_rows(frame, table, lambda merge: evolve(table, merge, options))


def test_new_columns_join_a_table_and_the_operation_column_does_not(job: Job) -> None:
    job.create([("id", "INT NOT NULL")], primary_keys=["id"], options={"bucket": "1"})
    frame = job.spark.createDataFrame([], "id int, Op string, n int")
    table, rows = grown(frame, job.table, **ADD, **{"paimon-stream.operation-column": "op"})
    assert table.schema.field_names == ("id", "n")
    assert rows.columns == ["id", "n", "op"]


@pytest.mark.spark35
def test_with_case_sensitivity_another_case_is_a_new_column(job: Job) -> None:
    job.create([("a", "INT")])
    frame = job.spark.createDataFrame([(1,)], "A int")
    assert grown(frame, job.table, **ADD)[0].schema.id == 0
    with case_sensitive(job.spark):
        table, rows = grown(frame, job.table, **ADD, **NULL)
        assert rows.columns == ["a", "A"] and table.schema.field_names == ("a", "A")


def test_new_columns_are_nullable_in_all_their_parts_and_keep_their_comments(job: Job) -> None:
    job.create([("a", "INT")])
    inner = st.StructType([st.StructField("x", st.IntegerType(), False)])
    struct = st.StructType(
        [
            st.StructField("a", st.IntegerType(), False),
            st.StructField("n", st.ArrayType(inner, False), False, {"comment": "many"}),
            st.StructField("m", st.MapType(st.StringType(), inner, False), False),
        ]
    )
    table, _ = grown(job.spark.createDataFrame([], struct), job.table, **ADD)
    assert [str(one.type) for one in table.schema.fields] == [
        "INT",
        "ARRAY<ROW<x INT>>",
        "MAP<STRING NOT NULL, ROW<x INT>>",
    ]
    assert table.schema.field("n").description == "many"


@pytest.mark.spark35
def test_members_of_structs_match_by_name_at_any_depth_and_what_lacks_is_null(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    PaimonTable.create(
        str(tmp_path / "t"),
        schema=[
            ("r", "ROW<a INT, b ROW<c BIGINT, d STRING>, e DATE>"),
            ("l", "ARRAY<ROW<x INT, y BIGINT>>"),
            ("m", "MAP<BIGINT NOT NULL, ROW<x INT, y BIGINT>>"),
        ],
    )
    schema = load_table(LocalStorage(str(tmp_path / "t"))).schema
    frame = spark_session.sql(
        "select named_struct('b', named_struct('d', 's', 'C', 1), 'A', cast(2 as short)) r, "
        "array(named_struct('y', 3), null) l, map(4, named_struct('y', 5)) m "
        "union all select null, null, null"
    )
    alignment = align(frame.schema, schema, case_sensitive=False, location="t")
    rows = project(frame, alignment)
    full, empty = rows.collect()
    assert full.asDict(recursive=True) == {
        "r": {"a": 2, "b": {"c": 1, "d": "s"}, "e": None},
        "l": [{"x": None, "y": 3}, None],
        "m": {4: {"x": None, "y": 5}},
    }
    assert tuple(empty) == (None, None, None)
    bad = spark_session.sql("select named_struct('a', 1, 'z', 2, 'e', true) r")
    with pytest.raises(errors.IncompatibleSchema) as caught:
        align(bad.schema, schema, case_sensitive=False, location="t", missing_are_null=True)
    assert caught.value.context["columns"] == ("r.z", "r.e")


@pytest.mark.full
def test_a_stream_of_arrow_types_that_spark_up_casts_keeps_the_tables_types(job: Job) -> None:
    job.create([("id", "BIGINT"), ("day", "STRING"), ("v", "DECIMAL(20, 2)"), ("d", "DOUBLE")])
    job.schema = "id bigint, day string, v decimal(5,2), d float"
    job.write_source(
        0,
        pa.table(
            {
                "id": [1],
                "day": ["x"],
                "v": pa.array([1], pa.decimal128(5, 2)),
                "d": pa.array([0.5], pa.float32()),
            }
        ),
    )
    job.run(job.sink(options=WIDEN))
    assert schema_ids(job) == [0]


def test_columns_that_the_merge_engine_could_not_merge_leave_the_schema_as_it_is(
    job: Job, java: Any
) -> None:
    options = {
        "bucket": "1",
        "merge-engine": "aggregation",
        "fields.default-aggregate-function": "sum",
    }
    table = job.create([("id", "INT NOT NULL"), ("n", "INT")], primary_keys=["id"], options=options)
    with pytest.raises(errors.InvalidOption, match=r"'late' .* is STRING"):
        table.append(job.spark.sql("select 1 id, 2 n, 'x' late"), merge_schema="add")
    with pytest.raises(errors.InvalidOption, match=r"'late' .* is STRING"):
        check_rows(
            job.spark.sql("select 1 id, 2 n, 'x' late"),
            load_table(LocalStorage(str(job.table)), ADD),
        )
    assert job.load().schema.id == 0
    table.append(job.spark.sql("select 1 id, 2 n, 0.5d late"), merge_schema="add")
    java.write(job.table, [{"id": 1, "n": 3, "late": 1.0}], commit_identifier=1)
    assert (
        java.read(job.table)
        == job.load().to_arrow().to_pylist()
        == [{"id": 1, "n": 5, "late": 1.5}]
    )


def test_batch_writes_add_and_widen_columns_where_asked_to(job: Job, java: Any) -> None:
    table = job.create([("id", "INT"), ("day", "STRING")], partition_keys=["day"])
    one, two = (
        job.spark.createDataFrame([(2**40, day, 1)], "id bigint, day string, new int")
        for day in "ab"
    )
    with pytest.raises(errors.IncompatibleSchema, match="no column 'new'"):
        table.append(one)
    with pytest.raises(errors.InvalidOption, match="off, add, widen"):
        table.append(one, merge_schema="yes")
    with pytest.raises(errors.UnsupportedFeature, match="Arrow"):
        table.append(pa.table({"id": [1], "day": ["a"]}), merge_schema="add")
    assert job.load().schema.id == 0 and not job.data_files()
    table.append(one, merge_schema="widen")
    report = table.overwrite(two.drop("day"), {"day": "b"}, merge_schema="widen")
    assert report.rows == 1 and job.load().schema.id == 1
    rows = sorted(java.read(job.table), key=lambda row: row["day"])
    assert rows == [{"id": 2**40, "day": day, "new": 1} for day in "ab"]
