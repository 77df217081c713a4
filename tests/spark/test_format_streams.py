"""Streams that write by `format("paimon_stream")`: each batch once, and no file is left over."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import paimon_stream
from paimon_stream.format.snapshot_json import CommitKind
from tests.kits.spark_jobs import TIMEOUT_SECONDS, Job

pytest.importorskip("pyspark.sql.datasource", reason="data sources in Python need pyspark 4.0")


@pytest.fixture(autouse=True)
def _registered(spark_session: SparkSession) -> None:
    paimon_stream.register(spark_session)


def run(job: Job, frame: DataFrame | None = None, *, mode: str = "append", **options: str) -> None:
    """Runs a query over all files of the job, to its end."""
    given = {
        "checkpointLocation": str(job.checkpoint),
        **{key.replace("_", "-"): one for key, one in options.items()},
    }
    writer = (
        (job.stream() if frame is None else frame)
        .writeStream.format("paimon_stream")
        .outputMode(mode)
    )
    query = writer.options(**given).trigger(availableNow=True).start(str(job.table))
    try:
        assert query.awaitTermination(TIMEOUT_SECONDS), "the query hangs"
    finally:
        query.stop()


def failing(job: Job, *arguments: Any, **options: str) -> str:
    with pytest.raises(StreamingQueryException) as caught:
        run(job, *arguments, **options)
    return str(caught.value)


@pytest.mark.spark4
def test_a_stream_begins_in_a_thread_that_has_registered_the_session(job: Job) -> None:
    job.create()
    job.add_files(1)

    def registered() -> None:
        paimon_stream.register(job.spark)
        run(job)

    with ThreadPoolExecutor(1) as threads:
        with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
            threads.submit(run, job).result()
        threads.submit(registered).result()
    assert job.load().to_arrow().num_rows == 6


@pytest.mark.spark4
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


def test_several_tasks_write_to_one_bucket_of_a_table_with_a_primary_key(
    job: Job, java: Any
) -> None:
    sums = {"bucket": "2", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    sums["num-sorted-run.compaction-trigger"] = "2"
    job.create([("id", "BIGINT NOT NULL"), ("n", "BIGINT")], primary_keys=["id"], options=sums)
    job.schema = "id bigint, n bigint"
    for number in range(3):
        job.write_source(number, pa.table({"id": [*range(9)] * 2, "n": [1, 10] * 9}))
    run(job, job.stream().repartition(3))
    job.forget_last_batch()
    files = job.data_files()
    run(job, job.stream().repartition(3))
    assert job.data_files() == files
    found = {row["id"]: row["n"] for row in java.read(job.table)}
    assert (
        found
        == dict.fromkeys(range(9), 33)
        == {row["id"]: row["n"] for row in job.load().to_arrow().to_pylist()}
    )
    kinds = [one.commit_kind for one in job.load().snapshots()]
    assert kinds.count(CommitKind.APPEND) == 3 and CommitKind.COMPACT in kinds  # behind the batches
    assert job.load().verify().healthy


@pytest.mark.full
def test_each_batch_of_complete_mode_replaces_the_table(job: Job, java: Any) -> None:
    job.create([("day", "STRING"), ("count", "BIGINT")])
    job.add_files(2)
    run(job, job.stream().groupBy("day").count(), mode="complete")
    assert {row["day"]: row["count"] for row in java.read(job.table)} == {"d0": 6, "d1": 6}
    assert job.identifiers() == [0, 1]
    job.add_files(1)
    assert "does not support Update mode" in failing(
        job, job.stream().groupBy("day").count(), mode="update"
    )


@pytest.mark.full
def test_both_doors_share_a_checkpoint(job: Job, java: Any) -> None:
    job.create(
        primary_keys=["id"],
        columns=[("id", "BIGINT NOT NULL"), ("day", "STRING")],
        options={"bucket": "1"},
    )
    for way in range(4):
        job.add_files(1)
        if way % 2:
            job.run(job.sink())
            assert [one.outcome for one in job.reports[-2:]] == ["already committed", "committed"]
        else:
            run(job)
        job.forget_last_batch()
    assert sorted(row["id"] for row in java.read(job.table)) == list(range(24))
    appended = [one for one in job.load().snapshots() if one.commit_kind == CommitKind.APPEND]
    assert [one.commit_identifier for one in appended] == [0, 1, 2, 3]
    assert len({one.commit_user for one in appended}) == 1


@pytest.mark.full
def test_a_batch_that_is_refused_leaves_no_file(job: Job) -> None:
    job.create()
    job.add_files(2)
    run(job, commit_user="me")
    files, checkpoint = job.data_files(), job.checkpoint
    job.forget_last_batch()
    (checkpoint / "offsets" / "1").unlink()
    assert job.forget_last_batch() == 0
    assert "paimon_stream.errors.CheckpointRewound: " in failing(job, commit_user="me")
    (job.root / "other").mkdir()
    checkpoint.rename(job.root / "other" / "checkpoint")
    assert "paimon_stream.errors.CheckpointReset: " in failing(job, commit_user="me")
    assert job.data_files() == files


@pytest.mark.spark4
def test_the_error_of_a_task_is_shown_and_the_files_of_the_others_go(job: Job) -> None:
    job.create([("id", "BIGINT"), ("day", "STRING NOT NULL")])
    job.write_source(0, pa.table({"id": list(range(8)), "day": ["a"] * 8}))
    rows = job.stream().repartition(4)
    told = failing(job, rows.selectExpr("id", "if(id = 5, null, day) as day"))
    assert "paimon_stream.errors.NullInNotNull: Batch 0" in told and "'day'" in told
    assert job.data_files() == set()
    assert "broken" in failing(
        job, rows.selectExpr("id", "if(id = 5, raise_error('broken'), day) as day")
    )
    assert not job.load().snapshots()
    run(job, rows)
    assert job.ids() == list(range(8))


@pytest.mark.full
def test_mistakes_are_named_before_a_task_runs(job: Job) -> None:
    job.create()
    job.add_files(1)
    assert (
        "paimon_stream.errors.InvalidOption: Unknown option 'commit-usr'. Did you mean 'commit-user'?"
        in failing(job, commit_usr="x")
    )
    assert "paimon_stream.errors.IncompatibleSchema: " in failing(job, job.stream().drop("day"))
    assert job.data_files() == set()


CHECKPOINTS = "spark.sql.streaming.checkpointLocation"


def run_of_session(job: Job) -> None:
    """Runs a query whose checkpoint lies below the session's folder."""
    job.spark.conf.set(CHECKPOINTS, str(job.checkpoint))
    try:
        writer = job.stream().writeStream.format("paimon_stream").queryName("ticks")
        query = writer.trigger(availableNow=True).start(str(job.table))
        assert query.awaitTermination(TIMEOUT_SECONDS), "the query hangs"
    finally:
        job.spark.conf.unset(CHECKPOINTS)


@pytest.mark.spark4
def test_the_checkpoint_is_found_below_the_folder_of_the_session(job: Job) -> None:
    job.create()
    for _ in range(2):
        job.add_files(1)
        run_of_session(job)
    place = str(job.checkpoint / "ticks")
    assert {one.properties["paimon-stream.checkpoint"] for one in job.load().snapshots()} == {place}
    shutil.rmtree(job.table)
    job.create()
    job.add_files(1)
    with pytest.raises(StreamingQueryException, match=r"paimon_stream\.errors\.TableReplaced: "):
        run_of_session(job)
    assert job.data_files() == set()
