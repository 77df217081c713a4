"""DataFrames that are written by `format("paimon_stream")`."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import paimon_stream
from tests.kits.spark_jobs import Job

pytestmark = pytest.mark.spark4

pytest.importorskip("pyspark.sql.datasource", reason="data sources in Python need pyspark 4.0")

KEYED = [("id", "BIGINT NOT NULL"), ("v", "BIGINT")]


@pytest.fixture(autouse=True)
def _registered(spark_session: SparkSession) -> None:
    paimon_stream.register(spark_session)


def save(job: Job, rows: DataFrame, mode: str = "append", **options: str) -> None:
    given = {key.replace("_", "-"): value for key, value in options.items()}
    rows.write.format("paimon_stream").mode(mode).options(**given).save(str(job.table))


def test_rows_are_appended_once_each_key_by_its_last_row(job: Job, java: Any) -> None:
    job.create(KEYED, primary_keys=["id"], options={"bucket": "2"})
    for first in (0, 30):
        save(job, job.spark.range(first, first + 30, 1, 3).selectExpr("id % 5 as id", "id as v"))
    found = {row["id"]: row["v"] for row in java.read(job.table)}
    assert found == {key: 55 + key for key in range(5)}
    assert {row["id"]: row["v"] for row in job.load().to_arrow().to_pylist()} == found
    assert job.load().verify().healthy
    once = {"commit_user": "job", "commit_identifier": "1"}
    for _ in range(2):
        save(job, job.spark.sql("select 9L as id, 9L as v"), **once)
    assert len(job.load().snapshots()) == 3


def test_an_overwrite_replaces_the_table_or_the_partitions_of_its_rows(job: Job, java: Any) -> None:
    job.create([("id", "BIGINT"), ("day", "STRING")], partition_keys=["day"])
    days = "concat('d', id % 2) as day"
    save(job, job.spark.range(4).selectExpr("id", days))
    save(
        job,
        job.spark.range(8, 12).selectExpr("id", "'d0' as day"),
        "overwrite",
        dynamic_partition_overwrite="true",
    )
    assert sorted(row["id"] for row in java.read(job.table)) == [1, 3, 8, 9, 10, 11]
    save(job, job.spark.range(3).selectExpr("id", "'d1' as day"), "overwrite")
    assert sorted(row["id"] for row in java.read(job.table)) == [0, 1, 2]
    save(job, job.spark.range(0).selectExpr("id", "'d1' as day"), "overwrite")
    assert java.read(job.table) == []


def test_sql_inserts_into_a_temporary_view(job: Job) -> None:
    job.create([("id", "BIGINT")])
    spark = job.spark
    spark.sql(
        f"CREATE TEMPORARY VIEW numbers(id bigint) USING paimon_stream OPTIONS (path '{job.table}')"
    )
    try:
        spark.sql("INSERT INTO numbers SELECT * FROM range(3)")
    finally:
        spark.catalog.dropTempView("numbers")
    assert job.ids() == [0, 1, 2]


def test_a_mistake_is_named_and_leaves_no_file(job: Job) -> None:
    job.create([("id", "BIGINT NOT NULL")])
    rows = job.spark.range(3)

    def told(frame: DataFrame, **options: str) -> str:
        with pytest.raises(PySparkException) as caught:
            save(job, frame, **options)
        return str(caught.value)

    assert "paimon_stream.errors.InvalidOption: " in told(rows, target_file_sise="1 mb")
    assert "paimon_stream.errors.IncompatibleSchema: " in told(rows.selectExpr("id as key"))
    assert "paimon_stream.errors.NullInNotNull: " in told(rows.selectExpr("nullif(id, 1) as id"))
    with pytest.raises(PySparkException, match="partitioning"):  # Spark's own
        rows.write.partitionBy("id").format("paimon_stream").mode("append").save(str(job.table))
    with pytest.raises(
        PySparkException, match=r"paimon_stream\.errors\.InvalidOption.*(?s:.)*TEMPORARY VIEW"
    ):
        rows.write.format("paimon_stream").mode("append").save()
    assert job.data_files() == set()
