"""Reading tables by `format("paimon_stream")`: the rows of our reader, in splits that tasks read
without planning.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark.sql.datasource", reason="needs Spark 4")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from paimon_stream import PaimonTable, SchemaChange, catalog
from paimon_stream.errors import (
    IncompatibleSchema,
    InvalidData,
    InvalidOption,
    NotFound,
    UnsupportedFeature,
)
from paimon_stream.spark.datasource import register
from paimon_stream.spark.datasource_read import reader_of, schema_of
from paimon_stream.table.manifests import ManifestStore
from tests.kits.params import few

GOLDEN = Path(__file__).parent.parent / "golden"
CASES = [
    "all_types",
    "all_types_avro",
    "all_types_orc",
    "evolved",
    "evolved_pk",
    "pk_partitioned",
    "pk_updates",
    "partition_times",
    "partition_types",
    "kinds/vectors_pk",
    "kinds/vectors_append_bucketed",
    "kinds/data_evolution",
    "compaction/first_row",
    "compaction/partial_update",
    "compaction/deletion_vectors",
]
SHOWN = {"all_types", "evolved", "pk_updates", "compaction/deletion_vectors"}
"""The cases of `make test`."""


def path_of(case: str) -> str:
    return str(GOLDEN / case / "db.db" / "t")


def batches_of(options: dict[str, str]) -> tuple[list[pa.RecordBatch], int]:
    """The batches as Spark's tasks get them, and the number of splits."""
    from pyspark.serializers import CPickleSerializer

    reader = reader_of(options, schema_of(options))
    splits = reader.partitions()
    in_task = CPickleSerializer().loads(CPickleSerializer().dumps(reader))
    return [one for split in splits for one in in_task.read(split)], len(splits)


def expected(table: pa.Table, schema: pa.Schema) -> Counter[str]:
    """The rows as text, with timestamps floored to microseconds and times as numbers."""
    columns = []
    for column, field in zip(table.columns, schema, strict=True):
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
            nanos = [
                None if one is None else one // 1000 for one in column.cast(pa.int64()).to_pylist()
            ]
            column = pa.chunked_array(
                [pa.array(nanos, pa.int64()).cast(pa.timestamp("us")).cast(field.type)]
            )
        elif not column.type.equals(field.type) and not pa.types.is_nested(column.type):
            column = column.cast(field.type)
        columns.append([repr(plain(one.as_py())) for one in column])
    return Counter(map(str, zip(*columns, strict=True)))


def plain(value: Any) -> Any:
    """Without what Arrow's conversion of nested values makes of nanoseconds and times."""
    match value:
        case dt.time():
            return (
                (value.hour * 60 + value.minute) * 60_000
                + value.second * 1000
                + value.microsecond // 1000
            )
        case list() | tuple():
            return [plain(one) for one in value]
        case dict():
            return {key: plain(one) for key, one in value.items()}
        case dt.datetime() if hasattr(value, "nanosecond"):
            return value.to_pydatetime(warn=False)
    return value


@pytest.mark.parametrize("case", few(CASES, SHOWN.__contains__))
def test_tasks_read_every_row_of_java_s_tables(case: str) -> None:
    options = {"path": path_of(case), "split-size": "1 kb"}
    found, splits = batches_of(options)
    whole = PaimonTable.load(path_of(case)).to_arrow()
    rows = pa.Table.from_batches(found)
    rows.validate(full=True)
    assert expected(rows, rows.schema) == expected(whole, rows.schema)
    assert (
        splits > 1
        or len(PaimonTable.load(path_of(case)).files()) == 1
        or "pk" in case
        or "compaction" in case
    )


def frame(spark: SparkSession, path: str, **options: str) -> DataFrame:
    register(spark)
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return spark.read.format("paimon_stream").options(**named).load(path)


@pytest.mark.spark4
@pytest.mark.parametrize("case", ["all_types", pytest.param("pk_updates", marks=pytest.mark.full)])
def test_spark_takes_the_batches_of_every_type(spark_session: SparkSession, case: str) -> None:
    read = frame(spark_session, path_of(case))
    whole = PaimonTable.load(path_of(case)).to_arrow()
    batches, _ = batches_of({"path": path_of(case)})
    assert read.columns == whole.column_names
    assert expected(read.toArrow().cast(batches[0].schema), batches[0].schema) == expected(
        whole, batches[0].schema
    )


@pytest.mark.spark4
def test_options_choose_snapshot_columns_and_partitions(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    table = PaimonTable.create(
        str(tmp_path / "t"), [("id", "INT"), ("p", "STRING")], partition_keys=["p"]
    )
    empty = frame(spark_session, table.location)
    assert empty.collect() == []
    for start in (0, 3):
        table.append(
            pa.table({"id": pa.array(range(start, start + 3), pa.int32()), "p": ["a", "b", "a"]})
        )
    table.create_tag("first", 1)
    table.create_branch("side", "first")
    path, at = table.location, table.snapshots()[0].time_millis

    def ids(read: DataFrame) -> list[int]:
        return sorted(one.id for one in read.collect())

    assert ids(frame(spark_session, path)) == [0, 1, 2, 3, 4, 5]
    assert ids(frame(spark_session, path, tag="first", columns="id")) == [0, 1, 2]
    assert ids(frame(spark_session, path, branch="side")) == [0, 1, 2]
    narrow = (
        spark_session.read.format("paimon_stream")
        .schema("id int")
        .option("partition", "p=b")
        .load(path)
    )
    assert narrow.columns == ["id"]
    assert ids(narrow.where("id > 1")) == [4]
    for options in (
        {"scan.snapshot-id": "1"},
        {"scan.tag-name": "first"},
        {"scan.timestamp-millis": str(at)},
    ):
        given = {"path": path, **options}
        assert sum(one.num_rows for one in batches_of(given)[0]) in (
            3,
            6 if "millis" in str(options) else 3,
        )


def test_tasks_open_no_manifest_and_read_the_snapshot_that_was_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"bucket": "2", "write-only": "true"}
    table = PaimonTable.create(
        str(tmp_path / "t"), [("id", "INT NOT NULL")], primary_keys=["id"], options=options
    )
    for start in (0, 5):
        table.append(pa.table({"id": pa.array(range(start, start + 10), pa.int32())}))
    given = {"path": table.location, "split-size": "1 b"}
    reader = reader_of(given, schema_of(given))
    splits = reader.partitions()
    assert len(splits) == 2  # one for each bucket
    table.append(pa.table({"id": pa.array([99], pa.int32())}))
    monkeypatch.setattr(ManifestStore, "read", None)
    assert sorted(
        one for split in splits for rows in reader.read(split) for one in rows["id"].to_pylist()
    ) == [*range(15)]
    assert list(reader.read(InputPartition(None))) == list(reader.read(None)) == []


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"snapshot-id": "1", "tag": "x"}, InvalidOption, "snapshot_id and tag are both given"),
        ({"snapshot-id": "1", "scan.snapshot-id": "1"}, InvalidOption, "mean the same"),
        ({"snapshot-id": "one"}, InvalidOption, "snapshot_id is 'one'"),
        ({"split-size": "big"}, InvalidOption, "split-size is not a size"),
        ({"timestamp": "soon"}, InvalidOption, "timestamp is 'soon'"),
        ({"where": "nope = 1"}, InvalidOption, "where names a column 'nope'"),
        ({"where": "id IS 1"}, InvalidOption, "where is not understood from"),
        ({"columns": "nope"}, IncompatibleSchema, "no column 'nope'"),
        ({"snapshott-id": "1"}, InvalidOption, "Unknown option 'snapshott-id'"),
        ({"tag": "gone"}, NotFound, "no tag 'gone'"),
    ],
)
def test_wrong_options_are_refused_by_name(
    options: dict[str, str], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        schema_of({"path": path_of("append_plain"), **options})


def test_a_condition_closes_files_and_is_exact(tmp_path: Path) -> None:
    table = PaimonTable.create(str(tmp_path / "t"), [("id", "BIGINT"), ("note", "STRING")])
    for start in (0, 10, 20):
        ids = list(range(start, start + 10))
        table.append(pa.table({"id": ids, "note": [f"note {number}" for number in ids]}))
    options = {"path": table.location, "where": "id < 8 AND id != 3", "split-size": "1 kb"}
    batches, splits = batches_of({**options, "columns": "note"})
    assert splits == 1
    assert pa.Table.from_batches(batches).to_pydict() == {
        "note": [f"note {number}" for number in (0, 1, 2, 4, 5, 6, 7)]
    }


def test_a_condition_sees_the_merged_rows_of_a_key(tmp_path: Path) -> None:
    columns = [("id", "BIGINT NOT NULL"), ("v", "INT")]
    options = {"bucket": "1", "write-only": "true"}
    table = PaimonTable.create(str(tmp_path / "t"), columns, primary_keys=["id"], options=options)
    table.append(pa.table({"id": [1, 2], "v": pa.array([10, 10], pa.int32())}))
    table.append(pa.table({"id": [2], "v": pa.array([20], pa.int32())}))
    batches, _ = batches_of({"path": table.location, "where": "v = 10"})
    assert pa.Table.from_batches(batches).to_pydict() == {"id": [1], "v": [10]}


def test_rows_in_external_paths_are_read(tmp_path: Path) -> None:
    options = {
        "data-file.external-paths": f"file://{tmp_path}/outside",
        "data-file.external-paths.strategy": "round-robin",
    }
    table = PaimonTable.create(str(tmp_path / "t"), [("id", "BIGINT")], options=options)
    table.append(pa.table({"id": [1, 2]}))
    batches, _ = batches_of({"path": table.location})
    assert pa.Table.from_batches(batches).to_pydict() == {"id": [1, 2]}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (SchemaChange.drop_column("s"), {"id", "s"}),
        (SchemaChange.add_column("x", "INT"), {"id", "s"}),
        (SchemaChange.rename_column("s", "t"), {"id", "s"}),
    ],
)
def test_a_mode_does_not_hide_the_columns_of_an_older_snapshot(
    change: SchemaChange, named: set[str], tmp_path: Path
) -> None:
    paimon = catalog({"warehouse": str(tmp_path)})
    paimon.create_database("d")
    table = paimon.create_table("d.t", [("id", "BIGINT"), ("s", "STRING")])
    table.append(pa.table({"id": [1], "s": ["a"]}))
    paimon.alter_table("d.t", [change])
    options = {"path": table.location, "scan.snapshot-id": "1"}
    batches, _ = batches_of(options)
    assert set(batches[0].schema.names) == named
    with pytest.raises(InvalidOption, match=r"Leave scan\.mode out, or name columns"):
        batches_of({**options, "scan.mode": "from-snapshot"})
    batches, _ = batches_of({**options, "scan.mode": "from-snapshot", "columns": "id"})
    assert batches[0].to_pydict() == {"id": [1]}


@pytest.mark.spark4
def test_a_condition_holds_for_its_own_read_alone(spark_session: SparkSession) -> None:
    path = path_of("append_plain")
    everything = frame(spark_session, path)
    name = everything.columns[0]
    value = everything.agg({name: "max"}).collect()[0][0]
    less = frame(spark_session, path, where=f"`{name}` < {value}")
    rows = everything.where(f"`{name}` < {value}").collect()
    assert 0 < len(rows) < everything.count()
    assert Counter(map(str, less.collect())) == Counter(map(str, rows))
    both = everything.union(less).union(everything)
    assert both.count() == 2 * everything.count() + len(rows)


@pytest.mark.spark4
def test_a_condition_on_nan_means_what_it_means_in_spark(spark_session: SparkSession) -> None:
    path = path_of("all_types_orc")
    name = "c_double"
    comparisons = (
        "> 0",
        ">= 0.1",
        "< 0.1",
        "!= 0.1",
        "= NaN",
        "!= NaN",
        "< NaN",
        ">= NaN",
        "> NaN",
    )
    in_spark = [
        f"count_if(c_double {text.replace('NaN', chr(39) + 'NaN' + chr(39))})"
        for text in comparisons
    ]
    expected_counts = list(frame(spark_session, path).selectExpr(*in_spark).collect()[0])
    counts = [
        sum(one.num_rows for one in batches_of({"path": path, "where": f"{name} {text}"})[0])
        for text in comparisons
    ]
    assert counts == expected_counts
    assert counts[comparisons.index("= NaN")] > 0


@pytest.mark.spark4
def test_a_schema_of_other_types_is_refused(spark_session: SparkSession) -> None:
    table = PaimonTable.load(path_of("append_plain"))
    name = table.schema.fields[0].name
    register(spark_session)
    read = (
        spark_session.read.format("paimon_stream").schema(f"`{name}` binary").load(table.location)
    )
    with pytest.raises(Exception, match=f"IncompatibleSchema.*column {name!r} is"):
        read.collect()


def test_null_in_a_column_that_is_not_null_in_spark_is_refused_with_a_cure(
    spark_session: SparkSession,
) -> None:
    table = PaimonTable.create("memory://null-in-spark/db.db/t", [("a", "INT"), ("b", "STRING")])
    table.append(pa.table({"a": pa.array([1, 2], pa.int32()), "b": ["x", None]}))
    given = {"path": table.location}
    for text, fails in (
        ("a int not null", False),
        ("b string not null", True),
        ("b string", False),
    ):
        reader = reader_of(given, StructType.fromDDL(text))
        if not fails:
            assert (
                sum(one.num_rows for split in reader.partitions() for one in reader.read(split))
                == 2
            )
            continue
        with pytest.raises(
            InvalidData,
            match=r"column 'b' is NOT NULL in Spark, but some of its rows hold NULL.*\.schema",
        ):
            [list(reader.read(split)) for split in reader.partitions()]


@pytest.mark.parametrize(
    "options",
    [
        {"scan.version": "1"},
        {"scan.watermark": "1"},
        {"scan.file-creation-time-millis": "1"},
        {"consumer-id": "x"},
        {"scan.mode": "from-snapshot"},
        {"scan.mode": "from-timestamp", "scan.snapshot-id": "1"},
        {"scan.mode": "latest", "scan.snapshot-id": "1"},
        {"scan.mode": "compacted-full"},
        {"scan.mode": "incremental"},
        {"scan.mode": "latest", "incremental-between": "0,1"},
        {"scan.ignore-lost-files": "true"},
    ],
    ids=str,
)
def test_an_option_that_chooses_other_rows_is_refused_by_a_batch_read(
    spark_session: SparkSession, tmp_path: Path, options: dict[str, str]
) -> None:
    location = str(tmp_path / "t")
    PaimonTable.create(location, [("id", "BIGINT")]).append(pa.table({"id": [1]}))
    with pytest.raises(InvalidOption, match=r"Nothing was read|scan\.mode"):
        batches_of({"path": location, **options})


def test_the_message_of_a_wrong_start_names_what_is_needed_and_what_was_set(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    location = str(tmp_path / "t")
    PaimonTable.create(location, [("id", "BIGINT")]).append(pa.table({"id": [1]}))
    said = (
        r"scan\.mode = from-snapshot needs a snapshot id \(scan\.snapshot-id\) or a tag "
        r"\(scan\.tag-name\), but the options name a time \(scan\.timestamp-millis\)\."
    )
    with pytest.raises(InvalidOption, match=said):
        batches_of({"path": location, "scan.mode": "from-snapshot", "timestamp": "1h"})


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"scan.ignore-lost-files": "false", "batch-scan-mode": "NONE"}, 2),
        ({"incremental-between": "0,2", "scan.mode": "incremental"}, 2),
        ({"incremental-between": "1,2", "incremental-between-scan-mode": "diff"}, 1),
        ({"scan.mode": "from-snapshot", "scan.snapshot-id": "1"}, 1),
        ({"scan.mode": "latest"}, 2),
        ({"scan.mode": "default", "scan.snapshot-id": "1"}, 1),
    ],
    ids=str,
)
def test_a_batch_read_follows_the_scan_mode(
    spark_session: SparkSession, tmp_path: Path, options: dict[str, str], rows: int
) -> None:
    table = PaimonTable.create(str(tmp_path / "t"), [("id", "BIGINT")])
    for number in range(2):
        table.append(pa.table({"id": [number]}))
    batches, _ = batches_of({"path": table.location, **options})
    assert sum(batch.num_rows for batch in batches) == rows


@pytest.mark.spark4
@pytest.mark.parametrize("mode", ["delta", "diff"])
def test_spark_reads_what_has_changed_by_both_doors(
    spark_session: SparkSession, tmp_path: Path, mode: str
) -> None:
    columns = [("k", "BIGINT NOT NULL"), ("v", "STRING")]
    table = PaimonTable.create(
        str(tmp_path / "t"), columns, primary_keys=["k"], options={"bucket": "2"}
    )
    table.append(pa.table({"k": range(50), "v": ["old"] * 50}))
    table.append(pa.table({"k": [3, 60], "v": ["new"] * 2}))
    register(spark_session)
    changes = {"incremental-between": "1,2", "incremental-between-scan-mode": mode}
    kinds = {**changes, "read.changelog": "true"}
    for rows in (
        frame(spark_session, table.location, **changes),
        table.to_spark(spark_session, options=changes),
    ):
        assert sorted(rows.collect()) == [(3, "new"), (60, "new")]
    for rows in (
        frame(spark_session, table.location, **kinds),
        table.to_spark(spark_session, options=kinds),
    ):
        assert rows.columns == ["rowkind", "k", "v"]
        assert sorted(rows.collect()) == [("+I", 3, "new"), ("+I", 60, "new")]
    with pytest.raises(UnsupportedFeature, match="what has changed is read"):
        table.to_spark(spark_session, options=changes, native=True)


@pytest.mark.parametrize("in_schema", [True, False])
def test_the_kinds_of_rows_are_where_columns_name_them(in_schema: bool, tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    kinds = {"read.changelog": "true"}
    table = PaimonTable.create(location, [("id", "BIGINT")], options=kinds if in_schema else {})
    table.append(pa.table({"id": [1]}))
    table.append(pa.table({"id": [2]}))
    changes = {"path": location, "incremental-between": "1,2", **({} if in_schema else kinds)}
    for names, columns in (
        ("", ["rowkind", "id"]),
        ("id,rowkind", ["id", "rowkind"]),
        ("rowkind", ["rowkind"]),
    ):
        options = {"columns": names} if names else {}
        batches, _ = batches_of({**changes, **options})
        assert [batch.schema.names for batch in batches] == [columns]
        assert [batch.num_rows for batch in batches] == [1]
    if in_schema:  # a snapshot is all inserts
        batches, _ = batches_of({"path": location, "snapshot-id": "1"})
        assert [batch.to_pylist() for batch in batches] == [[{"rowkind": "+I", "id": 1}]]


def test_an_option_of_writers_is_named_by_a_read(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    location = str(tmp_path / "t")
    PaimonTable.create(location, [("id", "BIGINT")]).append(pa.table({"id": [1]}))
    with pytest.warns(UserWarning, match="without effect on reads here: target-file-size"):
        batches_of({"path": location, "target-file-size": "1 mb"})
