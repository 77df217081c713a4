"""A table as a DataFrame: by Spark's own reader where that gives the same rows, else by tasks in
Python.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession, functions

from paimon_stream import PaimonTable, SchemaChange, catalog
from paimon_stream.errors import IncompatibleSchema, InvalidOption, NotFound, UnsupportedFeature
from paimon_stream.format.types import DataType, TypeRoot
from tests.kits.params import few

GOLDEN = Path(__file__).parent.parent / "golden"


def golden(case: str) -> PaimonTable:
    return PaimonTable.load(str(GOLDEN / case / "db.db" / "t"))


def rows(frame: DataFrame) -> list[str]:
    """The rows as JSON of Spark, which has years that Python has not."""
    return sorted(
        one.row
        for one in frame.select(functions.to_json(functions.struct("*")).alias("row")).collect()
    )


def is_native(frame: DataFrame) -> bool:
    return bool(frame.inputFiles())


def is_not_of_spark(type_: DataType) -> bool:
    """Whether Spark has no such type, or only one of less precision."""
    parts = [*filter(None, (type_.key, type_.element)), *(one.type for one in type_.fields)]
    own = type_.root in (TypeRoot.TIME, TypeRoot.MULTISET) or (
        type_.is_timestamp and type_.precision > 6
    )
    return own or any(map(is_not_of_spark, parts))


@pytest.mark.spark35
@pytest.mark.parametrize(
    ("case", "native"),
    few(
        [
            ("append_partitioned", True),
            ("append_compacted", True),
            ("partition_strings", True),
            ("partition_types", True),
            ("append_orc", False),
            ("append_avro", False),
            ("all_types", False),
            ("evolved", False),
            ("pk_updates", False),
            ("kinds/vectors_append32", False),
            ("kinds/data_evolution", False),
            ("kinds/row_tracking", True),
        ],
        lambda case, native: case in ("append_partitioned", "all_types"),
    ),
)
def test_each_way_gives_the_rows_of_java_s_tables(
    spark_session: SparkSession, case: str, native: bool
) -> None:
    table = golden(case)
    frame, by_tasks = table.to_spark(spark_session), table.to_spark(spark_session, native=False)
    assert is_native(frame) is native
    assert not is_native(by_tasks)
    assert frame.schema == by_tasks.schema
    assert rows(frame) == rows(by_tasks)
    assert by_tasks.count() == table.to_arrow().num_rows
    if not native:
        with pytest.raises(
            UnsupportedFeature, match="cannot be read by Spark's own reader, because"
        ):
            table.to_spark(spark_session, native=True)


@pytest.mark.spark35
def test_spark_reads_each_type_that_it_has_as_tasks_do(spark_session: SparkSession) -> None:
    table = golden("all_types")
    fine = [one.name for one in table.schema.fields if not is_not_of_spark(one.type)]
    frame = table.to_spark(spark_session, fine)
    assert is_native(frame) and len(fine) > 15
    assert rows(frame) == rows(table.to_spark(spark_session, fine, native=False))


def test_a_keyed_table_is_read_natively_once_nothing_has_to_be_merged(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    columns = [("id", "INT NOT NULL"), ("v", "STRING")]
    table = PaimonTable.create(
        str(tmp_path / "t"), columns, primary_keys=["id"], options={"bucket": "2"}
    )
    for start, text in ((0, "old"), (5, "new")):
        ids = pa.array(range(start, start + 10), pa.int32())
        table.append(pa.table({"id": ids, "v": [text] * 10}))
    expected = [(one, "old" if one < 5 else "new") for one in range(15)]
    merged = table.to_spark(spark_session)
    table.compact(full=True)
    compacted = table.to_spark(spark_session)
    assert (is_native(merged), is_native(compacted)) == (False, True)
    assert (
        sorted(map(tuple, merged.collect())) == sorted(map(tuple, compacted.collect())) == expected
    )


@pytest.mark.spark35
def test_each_split_is_a_partition_and_nothing_is_shuffled(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    """A small table is shared among the cores, too, as by Spark's own reader."""
    table = PaimonTable.create(
        str(tmp_path / "t"), [("id", "INT NOT NULL")], primary_keys=["id"], options={"bucket": "8"}
    )
    for _ in range(2):
        table.append(pa.table({"id": pa.array(range(1_000), pa.int32())}))
    frame = table.to_spark(spark_session)
    cores = spark_session.sparkContext.defaultParallelism
    assert cores > 1
    sizes = [len(ids) for ids in frame.rdd.glom().collect()]
    assert min(cores, 8) <= len(sizes) <= 8
    assert min(sizes) > 0 and sum(sizes) == 1_000
    assert "Exchange" not in frame._jdf.queryExecution().executedPlan().toString()


def test_renamed_added_and_dropped_columns_are_found_in_older_files(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    shop = catalog({"warehouse": str(tmp_path)})
    shop.create_database("db")
    table = shop.create_table(
        "db.t {1}", [("id", "INT"), ("a.b", "STRING"), ("gone", "INT"), ("w", "INT")]
    )
    table.append(pa.table({"id": pa.array([1], pa.int32()), "a.b": ["x"], "gone": [7], "w": [1]}))
    before = [SchemaChange.rename_column("a.b", "b"), SchemaChange.drop_column("gone")]
    shop.alter_table("db.t {1}", [*before, SchemaChange.add_column("gone", "STRING")])
    table = shop.get_table("db.t {1}")
    table.append(pa.table({"id": pa.array([2], pa.int32()), "b": ["y"], "w": [2], "gone": ["z"]}))
    assert not is_native(
        table.to_spark(spark_session)
    )  # Spark would take the name of the folder for a pattern
    shop.rename_table("db.t {1}", "db.t")
    table = shop.get_table("db.t")
    frame = table.to_spark(spark_session)
    assert is_native(frame)
    assert rows(frame) == rows(table.to_spark(spark_session, native=False))
    assert sorted(map(tuple, frame.select("id", "b", "gone").collect())) == [
        (1, "x", None),
        (2, "y", "z"),
    ]
    assert sorted(map(tuple, table.to_spark(spark_session, ["gone"]).collect()), key=str) == [
        ("z",),
        (None,),
    ]
    shop.alter_table("db.t", [SchemaChange.update_column_type("w", "BIGINT")])
    wider = shop.get_table("db.t")
    assert not is_native(wider.to_spark(spark_session))
    assert is_native(wider.to_spark(spark_session, ["id"]))


@pytest.mark.full
def test_rows_with_nan_are_found_whatever_the_bounds_in_a_file_say(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    columns = [("id", "INT"), ("d", "DOUBLE"), ("f", "FLOAT"), ("n", "ROW<x DOUBLE>")]
    table = PaimonTable.create(str(tmp_path / "t"), columns)
    nan, ids = float("nan"), pa.array([1, 2], pa.int32())
    floats = pa.array([nan, 0.0], pa.float32())
    table.append(pa.table({"id": ids, "d": [nan, 0.0], "f": floats, "n": [{"x": nan}, {"x": 0.0}]}))
    flat = table.to_spark(spark_session, columns=["id", "d", "f"])
    assert is_native(flat)
    assert flat.dtypes == [("id", "int"), ("d", "double"), ("f", "float")]
    for frame, names in ((flat, ("d", "f")), (table.to_spark(spark_session), ("d", "f", "n.x"))):
        for condition in (
            f"{name} {text}" for name in names for text in ("> 1", "= double('NaN')", "> 1e300")
        ):
            assert [one.id for one in frame.where(condition).collect()] == [1], condition


@pytest.mark.spark35
def test_the_snapshot_and_the_columns_are_chosen_when_it_is_made(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    table = PaimonTable.create(
        str(tmp_path / "t"), [("id", "INT"), ("p", "STRING")], partition_keys=["p"]
    )
    empty = table.to_spark(spark_session)
    table.append(pa.table({"id": pa.array([1, 2], pa.int32()), "p": ["a", None]}))
    table.create_tag("first")
    newest = table.to_spark(spark_session)
    table.append(pa.table({"id": pa.array([3], pa.int32()), "p": ["a"]}))
    assert empty.columns == ["id", "p"] and empty.collect() == []
    assert sorted(map(tuple, newest.collect())) == [(1, "a"), (2, None)]
    for chosen in ({"tag": "first"}, {"snapshot_id": 1}):
        assert rows(table.to_spark(spark_session, **chosen)) == rows(newest)
    assert [
        tuple(one) for one in table.to_spark(spark_session, ["id"], partition={"p": None}).collect()
    ] == [(2,)]
    table.create_branch("side", "first")
    branch = PaimonTable.load(table.location, branch="side")
    assert rows(branch.to_spark(spark_session)) == rows(newest)


def test_wrong_arguments_are_refused_by_name(spark_session: SparkSession, tmp_path: Path) -> None:
    table = PaimonTable.create(str(tmp_path / "t"), [("id", "INT")])
    with pytest.raises(InvalidOption, match="native"):
        table.to_spark(spark_session, native="yes")
    with pytest.raises(IncompatibleSchema, match="no column 'nope'"):
        table.to_spark(spark_session, ["nope"])
    with pytest.raises(NotFound, match="no tag 'gone'"):
        table.to_spark(spark_session, tag="gone")
    with pytest.raises(InvalidOption, match="spark"):
        table.to_spark(None)


def test_other_readers_of_spark_find_nan_in_our_files(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    """Spark holds NaN for the greatest number, and passes over row groups by the bounds in their
    footers.
    """
    columns = [
        ("id", "INT"),
        ("d", "DOUBLE"),
        ("f", "FLOAT"),
        ("n", "ROW<x DOUBLE, i INT>"),
        ("a", "ARRAY<FLOAT>"),
    ]
    table = PaimonTable.create(str(tmp_path / "t"), columns)
    nan = float("nan")
    rows = {
        "id": pa.array([1, 2], pa.int32()),
        "d": [nan, 0.0],
        "f": pa.array([nan, 0.0], pa.float32()),
        "n": [{"x": nan, "i": 1}, {"x": 0.0, "i": 2}],
        "a": pa.array([[nan], [0.0]], pa.list_(pa.float32())),
    }
    table.append(pa.table(rows))
    (file,) = table.files()
    read = spark_session.read.parquet(file.path)
    for condition in ("d > 1", "f > 1", "n.x > 1", "isnan(d)", "d = double('nan')"):
        assert [row.id for row in read.where(condition).collect()] == [1], condition
    group = pq.ParquetFile(file.path).metadata.row_group(0)
    bounded = {
        group.column(i).path_in_schema: bool(group.column(i).statistics)
        for i in range(group.num_columns)
    }
    assert {name for name, found in bounded.items() if found} == {"id", "n.i"}
    assert (
        file.meta.value_stats.min_values != file.meta.value_stats.max_values
    )  # the manifest still has bounds
