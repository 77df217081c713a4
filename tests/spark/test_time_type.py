"""Spark's TIME, which Spark has from 4.1 on, in columns of Paimon's TIME."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import paimon_stream
from paimon_stream import PaimonSink, PaimonTable
from paimon_stream.errors import IncompatibleSchema
from paimon_stream.spark.types import SPARK_TIME
from tests.kits.spark_jobs import Job

pytestmark = [
    pytest.mark.spark4,
    pytest.mark.skipif(not SPARK_TIME, reason="Spark has no TIME before 4.1"),
]

CLOCK = dt.time(1, 2, 3, 456_000)
TIMES = "named_struct('inner', time'01:02:03.456') as r, array(time'01:02:03.456') as a"


@pytest.fixture(autouse=True)
def _registered(spark_session: SparkSession) -> None:
    paimon_stream.register(spark_session)


def save(job: Job, rows: DataFrame) -> None:
    rows.write.format("paimon_stream").mode("append").save(str(job.table))


def test_times_of_spark_are_written_by_the_sink_and_by_the_format(job: Job, java: Any) -> None:
    schema = [("k", "INT"), ("t", "TIME(3)"), ("r", "ROW<inner TIME(3)>"), ("a", "ARRAY<TIME(0)>")]
    job.create(schema)
    rows = job.spark.sql(f"SELECT 1 AS k, time'01:02:03.456' AS t, {TIMES}")
    save(job, rows)
    PaimonSink(str(job.table), commit_user="u")(rows, 0)
    job.load().append(job.spark.sql("SELECT 1 AS k, 3723456 AS t, NULL AS r, NULL AS a"))
    expected = [{"k": 1, "t": CLOCK, "r": {"inner": CLOCK}, "a": [CLOCK]}] * 2
    expected.append({"k": 1, "t": CLOCK, "r": None, "a": None})
    read = job.load().to_arrow().to_pylist()
    assert sorted(read, key=str) == sorted(java.read(job.table), key=str)
    assert sorted(read, key=str) == sorted(expected, key=str)


def test_a_new_table_takes_times_of_spark(job: Job) -> None:
    rows = job.spark.sql("SELECT time'01:02:03.456' AS t")
    table = PaimonTable.create(str(job.table), schema=rows.schema)
    assert str(table.schema.fields[0].type) == "TIME(3) NOT NULL"
    table.append(rows)
    assert table.to_arrow()["t"].to_pylist() == [CLOCK]


def test_microseconds_and_keys_are_refused_by_name(job: Job) -> None:
    job.create([("k", "INT"), ("t", "TIME(3)")])
    rows = job.spark.sql("SELECT 1 AS k, time'01:02:03.456789' AS t")
    with pytest.raises(IncompatibleSchema, match=r"'t' of .* is TIME.* without loss"):
        job.load().append(rows)
    with pytest.raises(PySparkException, match=r"(?s)IncompatibleSchema: Column 't'"):
        save(job, rows)
    keyed = str(job.table.with_name("keyed"))
    PaimonTable.create(keyed, [("k", "INT"), ("t", "TIME(3) NOT NULL")], primary_keys=["t"])
    with pytest.raises(
        IncompatibleSchema, match=r"key column 't' is time.*milliseconds of the day"
    ):
        PaimonSink(keyed, commit_user="u")(rows, 0)
