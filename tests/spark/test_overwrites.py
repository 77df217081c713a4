"""Overwriting from Spark: a stream in output mode complete, and batch DataFrames."""

from __future__ import annotations

import datetime as dt

import pytest
from pyspark.sql import DataFrame, functions

from paimon_stream import errors
from paimon_stream.commit.report import Phase
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind
from tests.kits.spark_jobs import Job
from tests.spark.test_replay import FailAt
from tests.spark.test_sink import seen_by_user

COLUMNS = (("day", "STRING"), ("count", "BIGINT"), ("last", "BIGINT"))


def counts(job: Job, least: int = 0) -> DataFrame:
    found = (
        job.stream()
        .groupBy("day")
        .agg(functions.count("*").alias("count"), functions.max("id").alias("last"))
    )
    return found.where(f"count <= {least}") if least else found


def result(job: Job) -> list[tuple[str, int, int]]:
    return sorted((row["day"], row["count"], row["last"]) for row in job.rows())


def after(files: int) -> list[tuple[str, int, int]]:
    """The counts after this number of source files."""
    return [("d0", 3 * files, 6 * files - 2), ("d1", 3 * files, 6 * files - 1)]


# -- mode="complete"
# ----------------------------------------------------------------------------------


@pytest.mark.spark35
def test_in_complete_mode_each_batch_replaces_the_whole_table(job: Job) -> None:
    job.create(COLUMNS, partition_keys=["day"])
    job.add_files(3)
    query = job.sink(mode="complete").start(
        counts(job), checkpoint=str(job.checkpoint), trigger={"availableNow": True}
    )
    assert query.awaitTermination(900)
    assert result(job) == after(3)
    snapshots = job.load().snapshots()
    assert [one.commit_identifier for one in snapshots] == [0, 1, 2]
    assert {one.commit_kind for one in snapshots} == {CommitKind.OVERWRITE}
    assert [one.total_record_count for one in snapshots] == [2, 2, 2]
    assert sorted(job.load().to_arrow(snapshot_id=1)["count"].to_pylist()) == [3, 3]


@pytest.mark.full
@pytest.mark.parametrize("phase", [Phase.STAGED, Phase.PUBLISHED])
def test_a_killed_batch_in_complete_mode_takes_effect_once(job: Job, phase: Phase) -> None:
    job.create(COLUMNS)
    job.add_files(2)
    text = job.run_failing(
        job.sink(mode="complete", observer=FailAt(phase, 1)),
        frame=counts(job),
        output_mode="complete",
    )
    assert "Failure" in text
    files = job.data_files()
    job.run(job.sink(mode="complete"), frame=counts(job), output_mode="complete")
    assert (
        job.data_files() == files
    )  # what was prepared is used, what was published is not written again
    assert result(job) == after(2)
    assert job.identifiers() == [0, 1]
    assert job.reports[-1].outcome == (
        "already committed" if phase is Phase.PUBLISHED else "committed"
    )
    job.add_files(1)
    job.run(job.sink(mode="complete"), frame=counts(job), output_mode="complete")
    assert result(job) == after(3)


@pytest.mark.full
def test_an_empty_result_clears_the_table_and_is_not_replayed(job: Job) -> None:
    job.create(COLUMNS)
    job.add_files(2)
    asked: list[bool] = []
    for _ in range(2):
        sink = job.sink(
            mode="complete", before_commit=lambda messages: asked.append(bool(messages))
        )
        job.run(sink, frame=counts(job, least=3), output_mode="complete")
        assert result(job) == []
        assert job.identifiers() == [0, 1]
        if job.reports[-1].outcome == "committed":
            job.forget_last_batch()
    assert asked == [True, False]
    assert [report.outcome for report in job.reports] == [
        "committed",
        "committed",
        "already committed",
    ]


def test_the_modes_of_query_and_sink_must_agree(job: Job) -> None:
    job.create(COLUMNS)
    job.add_files(1)
    text = job.run_failing(frame=counts(job), output_mode="complete")
    seen_by_user(text, errors.UnsupportedFeature, "the sink appends", "mode='complete'")
    text = job.run_failing(job.sink(mode="complete"), frame=counts(job), output_mode="update")
    seen_by_user(text, errors.UnsupportedFeature, "would be lost", "outputMode('complete')")
    assert job.load().latest_snapshot() is None


# -- batch DataFrames
# ---------------------------------------------------------------------------------


def ids(job: Job) -> list[tuple[str | None, int]]:
    return sorted((str(row["day"]), row["id"]) for row in job.rows())


@pytest.mark.spark35
def test_a_dataframe_is_appended_and_overwrites_as_session_and_table_say(job: Job) -> None:
    table = job.create(partition_keys=["day"], options={"bucket": "2", "bucket-key": "id"})

    def frame(*days: str) -> DataFrame:
        names = ", ".join(f"'{day}'" for day in days)
        return job.spark.range(len(days) * 2).selectExpr(
            "id", f"array({names})[int(id div 2)] as day"
        )

    report = table.append(frame("a", "b"))
    assert (report.rows, report.identifier) == (4, BATCH_IDENTIFIER)
    table.overwrite(frame("b"))
    assert ids(job) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    mode = "spark.sql.sources.partitionOverwriteMode"
    job.spark.conf.set(mode, "static")
    try:
        table.overwrite(frame("c"))
        assert ids(job) == [("c", 0), ("c", 1)]
        table.overwrite(frame("d"), dynamic=True)
    finally:
        job.spark.conf.unset(mode)
    assert {day for day, _ in ids(job)} == {"c", "d"}
    table.overwrite(frame("x").drop("day"), {"day": "c"})
    assert ids(job) == [("c", 0), ("c", 1), ("d", 0), ("d", 1)]
    with pytest.raises(errors.OutsidePartition, match="day=x"):
        table.overwrite(frame("x"), {"day": "c"})
    with pytest.raises(errors.IncompatibleSchema, match="key column 'day'"):
        table.overwrite(frame("x").drop("day"))
    job.add_files(1)
    with pytest.raises(errors.InvalidOption, match="PaimonSink"):
        table.append(job.stream())
    assert len(table.snapshots()) == 5


def test_columns_that_the_partition_fixes_get_its_values(job: Job) -> None:
    types = {"d": "DATE", "t": "TIMESTAMP(6)", "n": "DECIMAL(20, 3)", "i": "INT"}
    partition = {
        "d": dt.date(1969, 2, 28),
        "t": dt.datetime(1969, 2, 28, 1, 2, 3, 4),
        "n": "12345678901234567.125",
        "i": 7,
    }
    table = job.create([("id", "BIGINT"), *types.items()], partition_keys=list(types))
    for _ in range(2):
        table.overwrite(job.spark.range(1), partition)
    assert table.to_arrow(partition=partition).num_rows == 1
    assert len(table.files()) == 1
