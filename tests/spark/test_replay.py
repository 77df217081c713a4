"""Restarts: a committed batch is never written again, another batch is, and doubt is an error."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession

from paimon_stream import errors
from paimon_stream.commit.report import Phase
from tests.kits.spark_jobs import Job, copy_folder, forget
from tests.spark.test_sink import seen_by_user


class Failure(Exception):
    """What a test lets happen."""


class FailAt:
    """Fails one batch at one phase."""

    def __init__(self, phase: Phase, batch: int) -> None:
        self.phase, self.batch = phase, batch

    def reached(self, phase: Phase, identifier: int) -> None:
        if (phase, identifier) == (self.phase, self.batch):
            raise Failure(phase.value)


@pytest.mark.spark35
def test_a_batch_that_spark_replays_is_not_written_again(job: Job) -> None:
    job.create()
    job.add_files(2)
    job.run()
    assert job.forget_last_batch() == 1
    files = job.data_files()
    query = job.run()
    assert job.data_files() == files
    assert job.ids() == list(range(12))
    assert [report.outcome for report in job.reports] == ["committed"] * 2 + ["already committed"]
    assert job.reports[-1].snapshot_id == 2
    assert not job.spark.sparkContext.statusTracker().getJobIdsForGroup(str(query.runId))
    job.add_files(1)
    job.run()
    assert job.ids() == list(range(18))


@pytest.fixture
def cut_plans(spark_session: SparkSession) -> Iterator[None]:
    """Spark cuts the texts of its plans, so that they do not show whether a query keeps state."""
    spark_session.conf.set("spark.sql.maxPlanStringLength", "60")
    yield
    spark_session.conf.unset("spark.sql.maxPlanStringLength")


@pytest.mark.spark35
@pytest.mark.usefixtures("cut_plans")
@pytest.mark.parametrize(
    "done",
    [
        pytest.param(True, id="committed"),
        pytest.param(False, id="prepared", marks=pytest.mark.full),
    ],
)
def test_a_replayed_batch_of_a_stateful_query_still_feeds_its_state(job: Job, done: bool) -> None:
    job.create([("key", "BIGINT")])
    job.add_files(3)
    frame = (
        job.stream().selectExpr("id div 4 as key").dropDuplicates()
    )  # some keys are in two batches
    if done:
        job.run(frame=frame)
        assert job.forget_last_batch() == 2
    else:
        assert "Failure" in job.run_failing(job.sink(observer=FailAt(Phase.STAGED, 2)), frame=frame)
    job.add_files(1)
    job.run(frame=frame)
    assert job.reports[-2].outcome == ("already committed" if done else "committed")
    assert job.reports[-2].reused is not done
    assert sorted(row["key"] for row in job.rows()) == list(range(6))


@pytest.mark.spark35
@pytest.mark.parametrize(
    "phase", [pytest.param(Phase.JOURNALED, marks=pytest.mark.full), Phase.STAGED]
)
def test_files_that_a_failed_run_had_prepared_are_committed_not_written_again(
    job: Job, phase: Phase
) -> None:
    job.create()
    job.add_files(2)
    assert "Failure" in job.run_failing(job.sink(observer=FailAt(phase, 1)))
    files = job.data_files()
    job.run()
    assert job.data_files() == files
    assert job.reports[-1].reused
    assert job.ids() == list(range(12))
    assert job.identifiers() == [0, 1]


@pytest.mark.full
def test_without_reuse_they_are_written_again_and_the_old_ones_removed(job: Job) -> None:
    job.create()
    job.add_files(1)
    job.run_failing(job.sink(observer=FailAt(Phase.STAGED, 0)))
    left = job.data_files()
    job.run(job.sink(options={"paimon-stream.journal.reuse": "false"}))
    assert job.ids() == list(range(6))
    assert job.data_files().isdisjoint(left)
    assert len(job.data_files()) == 1


@pytest.mark.parametrize(
    "phase", [Phase.PUBLISHED, pytest.param(Phase.FINISHED, marks=pytest.mark.full)]
)
def test_a_batch_that_failed_after_it_was_public_is_not_written_again(
    job: Job, phase: Phase
) -> None:
    job.create()
    job.add_files(2)
    job.run_failing(job.sink(observer=FailAt(phase, 0)))
    job.run()
    assert [report.outcome for report in job.reports] == ["already committed", "committed"]
    assert job.ids() == list(range(12))


@pytest.mark.full
def test_a_wiped_checkpoint_is_noticed(job: Job) -> None:
    job.create()
    job.add_files(2)
    job.run()
    shutil.rmtree(job.checkpoint)
    text = job.run_failing()
    seen_by_user(text, errors.CheckpointReset, str(job.table), "on-checkpoint-reset")
    assert job.ids() == list(range(12))
    job.run(job.sink(options={"paimon-stream.on-checkpoint-reset": "continue"}))
    assert job.ids() == sorted([*range(12), *range(12)])


@pytest.mark.full
def test_a_named_user_with_a_new_checkpoint_is_noticed_not_swallowed(job: Job) -> None:
    job.create()
    job.add_files(2)
    job.run(job.sink(commit_user="etl"))
    text = job.run_failing(job.sink(commit_user="etl"), checkpoint=job.root / "other")
    seen_by_user(text, errors.CheckpointReset, "'etl'")
    assert job.ids() == list(range(12))


@pytest.mark.full
def test_a_named_query_with_a_new_checkpoint_is_noticed(job: Job) -> None:
    job.create()
    job.add_files(1)
    job.run(name="orders")
    text = job.run_failing(checkpoint=job.root / "other", name="orders")
    seen_by_user(text, errors.CheckpointReset)
    assert job.ids() == list(range(6))


@pytest.mark.full
def test_a_rewound_checkpoint_is_noticed(job: Job) -> None:
    job.create()
    job.add_files(3)
    job.run()
    for _ in range(2):
        forget(job.checkpoint / "commits")
        forget(job.checkpoint / "offsets")
    seen_by_user(job.run_failing(), errors.CheckpointRewound, "batch 1")
    assert job.ids() == list(range(18))


@pytest.mark.full
def test_of_two_copies_of_a_checkpoint_the_second_is_noticed(job: Job) -> None:
    job.create()
    job.add_files(1)
    job.run()
    copy_folder(job.checkpoint, job.root / "copy")
    job.add_files(2)
    job.run()
    text = job.run_failing(checkpoint=job.root / "copy")
    assert "CheckpointRewound" in text
    assert job.ids() == list(range(18))


@pytest.mark.full
def test_a_table_created_anew_under_the_stream_is_noticed(job: Job) -> None:
    job.create()
    job.add_files(2)
    job.run()
    shutil.rmtree(job.table)
    job.create()
    job.add_files(1)
    seen_by_user(job.run_failing(), errors.TableReplaced, "on-table-change")
    assert job.load().latest_snapshot() is None


@pytest.mark.spark35
def test_the_error_in_a_plain_thread_says_how_to_keep_its_query(job: Job) -> None:
    job.create()
    job.add_files(1)
    sink = job.sink()

    def in_thread(kind: type[threading.Thread]) -> Any:
        def write(df: DataFrame, batch_id: int) -> None:
            failed: list[Exception] = []

            def work() -> None:
                try:
                    sink(df, batch_id)
                except errors.PaimonStreamError as error:
                    failed.append(error)

            thread = kind(target=work)
            thread.start()
            thread.join()
            if failed:
                raise failed[0]

        return write

    text = job.run_failing(in_thread(threading.Thread))
    seen_by_user(text, errors.IdentityUnknown, "InheritableThread", "commit_user", "Batch 0")
    assert job.load().latest_snapshot() is None
    job.run(in_thread(InheritableThread))
    assert job.ids() == list(range(6))


@pytest.mark.full
def test_a_naive_sink_doubles_what_ours_does_not(job: Job) -> None:
    """The same steps on a sink that appends every batch it gets, as those of the peers do."""
    job.create()
    job.add_files(2)
    plain = str(job.root / "plain")

    def naive(df: DataFrame, batch_id: int) -> None:
        df.write.mode("append").parquet(plain)

    for function, checkpoint in ((naive, job.root / "naive"), (job.sink(), job.checkpoint)):
        job.run(function, checkpoint=checkpoint)
        forget(checkpoint / "commits")
        job.run(function, checkpoint=checkpoint)
    assert job.spark.read.parquet(plain).count() == 18
    assert job.ids() == list(range(12))
