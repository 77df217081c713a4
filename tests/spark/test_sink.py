"""The sink in real queries: what a batch becomes, and what its user learns."""

from __future__ import annotations

import logging
import pickle
import traceback
from typing import Any

import pytest
from pyspark.sql import DataFrame, functions

from paimon_stream import CommitReport, PaimonSink, errors
from paimon_stream.commit.report import Phase
from paimon_stream.stream.batch_summary import BatchSummary
from tests.kits.spark_jobs import Job

NO_PY4J_CAUSE = (
    "direct cause of the following exception",
    "During handling of the above exception",
)


def seen_by_user(text: str, kind: type[errors.PaimonStreamError], *parts: str) -> None:
    """The text names our error and says these things, and nothing in it is chained to our error."""
    assert f"paimon_stream.errors.{kind.__name__}: " in text
    ours = text.partition(f"paimon_stream.errors.{kind.__name__}: ")[2]
    for part in parts:
        assert part in ours
    for chained in NO_PY4J_CAUSE:
        assert chained not in text


# -- batches become snapshots -------------------------------------------------------------------


@pytest.mark.spark35
@pytest.mark.spark4
def test_each_batch_becomes_one_snapshot_of_its_query(job: Job) -> None:
    job.create()
    job.add_files(3)
    query = job.run(name="orders")
    assert job.ids() == list(range(18))
    snapshots = list(job.load().snapshots())
    assert [one.commit_identifier for one in snapshots] == [0, 1, 2]
    assert {one.commit_user for one in snapshots} == {f"paimon-stream_{query.id}"}
    marks = dict(snapshots[2].properties)
    assert len(marks.pop("paimon-stream.offsets-hash")) == 64
    assert marks.pop("paimon-stream.nonce") == snapshots[2].nonce
    assert marks.pop("paimon-stream.previous").startswith("1 batch=1 attempts=1 judge=")
    assert BatchSummary.of(marks).write_millis is not None
    for key in ("write-millis", "bytes"):
        del marks[f"paimon-stream.{key}"]
    assert marks == {
        "paimon-stream.files": "1",
        "paimon-stream.rows": "6",
        "paimon-stream.partitions": "1",
        "paimon-stream.buckets": "1",
        "paimon-stream.query-id": str(query.id),
        "paimon-stream.run-id": str(query.runId),
        "paimon-stream.batch-id": "2",
        "paimon-stream.checkpoint": str(job.checkpoint),
        "paimon-stream.query-name": "orders",
    }


def test_start_sets_mode_checkpoint_trigger_and_name(job: Job) -> None:
    job.create(partition_keys=["day"], options={"bucket": "2", "bucket-key": "id"})
    job.add_files(2)
    sink = job.sink()
    trigger = {"availableNow": True}
    query = sink.start(
        job.stream(), checkpoint=str(job.checkpoint), trigger=trigger, query_name="n"
    )
    assert query.awaitTermination(900)
    assert query.name == "n"
    assert job.ids() == list(range(12))
    assert sink.last_report == job.reports[-1]
    assert sink.last_report.identifier == 1
    metrics = sink.metrics()
    assert (metrics["commitDuration.count"], metrics["lastCommittedSnapshotId"]) == (2, 2)
    assert metrics["lastDeltaRecordsAppended"] == 6


@pytest.mark.spark35
@pytest.mark.parametrize(
    "trigger",
    [
        {"every": "10 seconds"},
        {"availableNow": False},
        {"availableNow": True, "once": True},
        {"processingTime": 10},
        {"processingTime": "often"},
        {"processingTime": "1 month"},
        {"continuous": "10 seconds"},
        {"realTime": "10 minutes"},
    ],
    ids=str,
)
def test_a_trigger_that_spark_does_not_have_is_refused_with_the_list_of_triggers(
    job: Job, trigger: dict[str, Any]
) -> None:
    job.create()
    job.add_files(1)
    with pytest.raises(errors.InvalidOption) as refused:
        job.sink().start(job.stream(), checkpoint=str(job.checkpoint), trigger=trigger)
    assert refused.value.context["option"] == "trigger"
    for part in (repr(trigger), "No query was started", "availableNow", "once", "processingTime"):
        assert part in refused.value.message
    text = "".join(traceback.format_exception(refused.value))
    assert "TypeError" not in text
    assert "pyspark" not in text.lower()
    assert not job.checkpoint.exists()


@pytest.mark.full
@pytest.mark.parametrize(
    ("write_only", "left"),
    [("false", [3, 4]), ("true", [1, 2, 3, 4])],
)
def test_batches_expire_old_snapshots_unless_other_jobs_do(
    job: Job, write_only: str, left: list[int]
) -> None:
    few = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"}
    job.create(options={**few, "write-only": write_only})
    job.add_files(4)
    sink = job.sink()
    job.run(sink)
    assert [one.id for one in job.load().snapshots()] == left
    assert job.ids() == list(range(24))
    metrics = sink.metrics()
    assert (metrics["expiredSnapshots"], metrics["failedExpiries"]) == (4 - len(left), 0)


def test_a_query_on_a_clock_writes_what_arrives(job: Job) -> None:
    job.create()
    job.add_files(2)
    query = job.sink().start(
        job.stream(), checkpoint=str(job.checkpoint), trigger={"processingTime": "0 seconds"}
    )
    try:
        query.processAllAvailable()
        job.add_files(1)
        query.processAllAvailable()
    finally:
        query.stop()
    assert job.ids() == list(range(18))
    assert job.identifiers() == [0, 1, 2]


@pytest.mark.spark35
@pytest.mark.spark4
def test_a_restarted_query_goes_on_with_the_same_sink(job: Job) -> None:
    job.create()
    job.add_files(1)
    sink = job.sink()
    job.run(sink)
    job.add_files(1)
    job.run(sink)
    assert job.ids() == list(range(12))
    assert job.identifiers() == [0, 1]


@pytest.mark.full
def test_a_batch_without_rows_makes_no_snapshot(job: Job) -> None:
    job.create()
    job.add_files(2)
    job.run(frame=job.stream().where("id >= 6"))
    assert job.identifiers() == [1]
    assert [report.outcome for report in job.reports] == ["empty", "committed"]


@pytest.mark.spark35
@pytest.mark.spark4
def test_each_batch_is_one_spark_action(job: Job) -> None:
    job.create()
    job.add_files(3)
    query = job.run()
    jobs = job.spark.sparkContext.statusTracker().getJobIdsForGroup(str(query.runId))
    assert len(jobs) == 3


def test_there_is_a_report_and_one_log_line_for_each_batch(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    job.create()
    job.add_files(2)
    with caplog.at_level(logging.INFO, "paimon_stream"):
        job.run()
    report = job.reports[1]
    assert (report.rows, report.snapshot_id, report.attempts, report.outcome) == (
        6,
        2,
        1,
        "committed",
    )
    assert report.files == 1
    assert report.bytes > 0
    assert {"judge", "write", "journal"} <= set(report.phases)
    lines = [
        one for one in caplog.records if one.name == "paimon_stream" and one.levelno == logging.INFO
    ]
    assert [line.paimon_batch for line in lines] == [0, 1]


@pytest.mark.spark35
@pytest.mark.spark4
def test_the_session_keeps_its_limit_of_bytes_per_arrow_batch(job: Job) -> None:
    job.create()
    job.add_files(1)
    key, seen = "spark.sql.execution.arrow.maxBytesPerBatch", []

    class Watching:
        def reached(self, phase: Phase, identifier: int) -> None:
            if phase is Phase.WRITTEN:
                seen.append(inner[0].sparkSession.conf.get(key, None))

    inner: list[DataFrame] = []
    sink = job.sink(observer=Watching())

    def write(df: DataFrame, batch_id: int) -> None:
        inner.append(df)
        sink(df, batch_id)

    before = job.spark.conf.get(key, None)
    job.run(write)
    assert seen == [before]
    assert job.spark.conf.get(key, None) == before


# -- two sinks, two queries ---------------------------------------------------------------------


def both(first: PaimonSink, second: PaimonSink) -> Any:
    def write(df: DataFrame, batch_id: int) -> None:
        first(df, batch_id)
        second(df, batch_id)

    return write


@pytest.mark.full
def test_two_named_sinks_in_one_query_both_write_the_table(job: Job) -> None:
    job.create()
    job.add_files(2)
    job.run(both(job.sink(name="one"), job.sink(name="two")))
    assert job.ids() == sorted([*range(12), *range(12)])
    users = {snapshot.commit_user.rpartition("_")[2] for snapshot in job.load().snapshots()}
    assert users == {"one", "two"}


def test_two_sinks_without_names_in_one_query_are_refused(job: Job) -> None:
    job.create()
    job.add_files(1)
    text = job.run_failing(both(job.sink(), job.sink()))
    seen_by_user(text, errors.DuplicateWriter, str(job.table), "name='first'")
    assert job.ids() == list(range(6))


@pytest.mark.full
def test_one_sink_called_twice_for_a_batch_is_refused(job: Job) -> None:
    job.create()
    job.add_files(1)
    sink = job.sink()
    seen_by_user(job.run_failing(both(sink, sink)), errors.DuplicateWriter)
    assert job.ids() == list(range(6))


def test_one_sink_in_two_queries_writes_for_both(job: Job) -> None:
    job.create()
    job.add_files(2)
    sink = job.sink()
    trigger = {"availableNow": True}
    queries = [
        sink.start(job.stream(), checkpoint=str(job.root / name), trigger=trigger)
        for name in ("ck1", "ck2")
    ]
    for query in queries:
        assert query.awaitTermination(900)
    assert job.ids() == sorted([*range(12), *range(12)])
    assert len({snapshot.commit_user for snapshot in job.load().snapshots()}) == 2


# -- hooks --------------------------------------------------------------------------------------


def test_before_commit_sees_the_messages_and_may_veto(job: Job) -> None:
    job.create()
    job.add_files(1)
    seen: list[int] = []

    def veto(messages: Any) -> None:
        seen.append(sum(file.row_count for message in messages for file in message.new_files))
        raise ValueError("quota")

    text = job.run_failing(job.sink(before_commit=veto))
    assert seen == [6]
    assert "paimon_stream.errors.CommitVetoed: " in text
    assert "batch 0" in text
    assert "ValueError('quota')" in text
    assert job.load().latest_snapshot() is None
    assert job.data_files() == set()
    job.run()
    assert job.ids() == list(range(6))


@pytest.mark.spark35
@pytest.mark.spark4
@pytest.mark.parametrize(
    "stop", [KeyboardInterrupt, pytest.param(SystemExit, marks=pytest.mark.full)]
)
def test_an_exit_inside_a_batch_ends_the_query_instead_of_hanging_it(
    job: Job, stop: type[BaseException]
) -> None:
    job.create()
    job.add_files(1)

    def leave(messages: Any) -> None:
        raise stop

    text = job.run_failing(job.sink(before_commit=leave))
    seen_by_user(text, errors.WriteInterrupted, "Batch 0", str(job.table), stop.__name__)
    assert job.load().latest_snapshot() is None
    job.run()
    assert job.ids() == list(range(6))


def test_an_on_commit_that_fails_after_each_batch_is_logged_once_and_changes_nothing(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    job.create()
    job.add_files(2)

    def broken(report: CommitReport) -> None:
        raise RuntimeError("dashboard is down")

    job.run(job.sink(on_commit=broken))
    assert job.ids() == list(range(12))
    assert [one.exc_info[1].args for one in caplog.records if one.exc_info] == [
        ("dashboard is down",)
    ]


# -- what is wrong is said ----------------------------------------------------------------------


@pytest.mark.full
def test_null_in_a_not_null_column_names_table_batch_column_and_count(job: Job) -> None:
    job.create([("id", "BIGINT NOT NULL"), ("day", "STRING")])
    job.add_files(2)
    sometimes = functions.when(functions.col("id") < 10, functions.col("id"))
    text = job.run_failing(frame=job.stream().withColumn("id", sometimes))
    seen_by_user(text, errors.NullInNotNull, "Batch 1", str(job.table), "'id'", "NULL in 2 rows.")
    assert job.ids() == list(range(6))


@pytest.mark.spark35
@pytest.mark.spark4
def test_a_failed_task_leaves_no_files_of_the_others(job: Job) -> None:
    job.create([("id", "BIGINT NOT NULL"), ("day", "STRING")])
    job.add_files(1)
    sometimes = functions.when(functions.col("id") != 5, functions.col("id"))
    frame = job.stream().withColumn("id", sometimes)

    def spread(df: DataFrame, batch_id: int) -> None:
        sink(df.repartition(3), batch_id)

    sink = job.sink()
    seen_by_user(job.run_failing(spread, frame=frame), errors.NullInNotNull)
    assert job.data_files() == set()
    assert job.load().latest_snapshot() is None


@pytest.mark.full
def test_columns_that_do_not_fit_are_refused_before_any_work(job: Job) -> None:
    job.create([("id", "INT"), ("day", "STRING"), ("shop", "STRING NOT NULL")])
    job.add_files(1)
    text = job.run_failing()
    seen_by_user(
        text, errors.IncompatibleSchema, "Batch 0", "'id' is bigint", "lacks column 'shop'"
    )
    with pytest.raises(errors.IncompatibleSchema):
        job.sink().start(job.stream(), checkpoint=str(job.checkpoint))


@pytest.mark.spark35
def test_a_query_that_updates_rows_is_refused(job: Job) -> None:
    job.create([("day", "STRING"), ("count", "BIGINT")])
    job.add_files(1)
    text = job.run_failing(frame=job.stream().groupBy("day").count(), output_mode="update")
    seen_by_user(text, errors.UnsupportedFeature, "'update'", "outputMode('append')")
    assert job.load().latest_snapshot() is None


def test_a_table_that_is_not_there_is_said_before_and_in_the_query(job: Job) -> None:
    job.add_files(1)
    with pytest.raises(errors.NotFound, match="orders"):
        job.sink().start(job.stream(), checkpoint=str(job.checkpoint))
    seen_by_user(job.run_failing(), errors.NotFound, "Batch 0", str(job.table))
    assert not job.table.exists()


def test_updates_of_a_table_without_primary_key_are_refused(job: Job) -> None:
    job.create()
    job.add_files(1)
    with pytest.raises(errors.UnsupportedFeature, match="needs a primary key"):
        job.sink(mode="update").start(job.stream(), checkpoint=str(job.checkpoint))
    text = job.run_failing(job.sink(mode="update"), output_mode="update")
    seen_by_user(text, errors.UnsupportedFeature, "needs a primary key", "mode='complete'")
    assert job.load().latest_snapshot() is None


def test_start_needs_a_stream_and_a_checkpoint(job: Job) -> None:
    job.create()
    job.add_files(1)
    with pytest.raises(errors.InvalidOption, match="readStream"):
        job.sink().start(job.spark.range(1), checkpoint=str(job.checkpoint))
    with pytest.raises(errors.InvalidOption, match="checkpoint="):
        job.sink().start(job.stream())


def test_wrong_arguments_are_refused_when_the_sink_is_made() -> None:
    with pytest.raises(errors.InvalidOption, match="upsert"):
        PaimonSink("t", mode="upsert")
    with pytest.raises(errors.InvalidOption, match="on-checkpoint-reset"):
        PaimonSink("t", options={"paimon-stream.on-checkpoint-rest": "fail"})
    with pytest.raises(errors.InvalidOption, match="commit_user"):
        PaimonSink("t", commit_user=" ")
    with pytest.raises(errors.UnsupportedFeature, match="cosn"):
        PaimonSink("cosn://name/t")
    with pytest.raises(errors.InvalidOption, match=r"s3\.secret-key.*storage_options"):
        PaimonSink("t", options={"s3.secret-key": "x"})


@pytest.mark.spark35
def test_a_sink_pickles_without_what_it_remembers(job: Job) -> None:
    job.create()
    job.add_files(1)
    sink = PaimonSink(str(job.table), options={"target-file-size": "1 mb"})
    job.run(sink)
    assert sink.last_report is not None
    copy = pickle.loads(pickle.dumps(sink))
    assert copy.last_report is None
    assert repr(copy) == repr(sink) == f"PaimonSink({str(job.table)!r})"
