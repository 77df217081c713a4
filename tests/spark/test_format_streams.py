"""Streams that write by `format("paimon_stream")`: each batch once, and no file is left over."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import paimon_stream
from tests.kits.spark_jobs import TIMEOUT_SECONDS, Job

pytest.importorskip("pyspark.sql.datasource", reason="data sources in Python need pyspark 4.0")


@pytest.fixture(autouse=True)
def _registered(spark_session: SparkSession) -> None:
    paimon_stream.register(spark_session)


def run(job: Job, frame: DataFrame | None = None, *, mode: str = "append", **options: str) -> None:
    """Runs a query over all files of the job, to its end."""
    given = {"checkpointLocation": str(job.checkpoint), **{key.replace("_", "-"): one for key, one in options.items()}}
    writer = (job.stream() if frame is None else frame).writeStream.format("paimon_stream").outputMode(mode)
    query = writer.options(**given).trigger(availableNow=True).start(str(job.table))
    try:
        assert query.awaitTermination(TIMEOUT_SECONDS), "the query hangs"
    finally:
        query.stop()


def failing(job: Job, *arguments: Any, **options: str) -> str:
    with pytest.raises(StreamingQueryException) as caught:
        run(job, *arguments, **options)
    return str(caught.value)


def test_a_table_gets_each_batch_once_and_a_replay_writes_no_file(job: Job, java: Any) -> None:
    job.create(partition_keys=["day"])
    job.add_files(2)
    run(job)
    assert job.forget_last_batch() == 1
    files = job.data_files()
    job.add_files(1)
    run(job)
    assert len(job.data_files()) == len(files) + 2 and files <= job.data_files()
    assert sorted(row["id"] for row in java.read(job.table)) == list(range(18))
    snapshots = job.load().snapshots()
    assert [one.commit_identifier for one in snapshots] == [0, 1, 2]
    assert len({one.commit_user for one in snapshots}) == 1
    assert job.load().verify().healthy


def test_several_tasks_write_to_one_bucket_of_a_table_with_a_primary_key(job: Job, java: Any) -> None:
    job.schema = "id bigint, day string"
    job.create([("id", "BIGINT NOT NULL"), ("day", "STRING")], primary_keys=["id"], options={"bucket": "2"})
    for number in range(3):
        job.write_source(number, pa.table({"id": [*range(9)] * 2, "day": [f"{number}.{i}" for i in range(18)]}))
    run(job, job.stream().repartition(3))
    found = sorted(row["id"] for row in job.load().to_arrow().to_pylist())
    assert found == list(range(9))
    assert sorted(row["id"] for row in java.read(job.table)) == found
    assert {row["day"][0] for row in java.read(job.table)} == {"2"}
