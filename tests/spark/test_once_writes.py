"""Batch DataFrames of Spark that are written with an identity."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame

from paimon_stream import errors
from tests.kits.spark_jobs import Job


@pytest.mark.spark35
def test_a_dataframe_takes_effect_once_for_its_identity(job: Job) -> None:
    table = job.create(partition_keys=["day"])

    def frame(day: str, rows: int = 4) -> DataFrame:
        return job.spark.range(rows).selectExpr("id", f"'{day}' as day")

    for outcome in ("committed", "already committed"):
        assert table.append(frame("a"), identity="load a").outcome == outcome
        assert table.overwrite(frame("b"), {"day": "b"}, identity="load b").outcome == outcome
    assert job.ids() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len(job.data_files()) == len(table.files())  # a repeated call runs no Spark job
    with pytest.raises(errors.IdentityUsed, match="other columns; the difference is 'more'"):
        table.append(frame("a").selectExpr("*", "1 as more"), identity="load a")
    job.add_files(1)
    with pytest.raises(errors.InvalidOption, match="PaimonSink"):
        table.append(job.stream(), identity="stream")


def test_columns_are_merged_once_for_an_identity(job: Job) -> None:
    table = job.create()
    frame = job.spark.range(2).selectExpr("id", "'a' as day", "id * 2 as twice")
    for outcome in ("committed", "already committed"):
        report = table.append(frame, identity="load", merge_schema="add")
        assert report.outcome == outcome
    assert table.to_arrow()["twice"].to_pylist() == [0, 2]
