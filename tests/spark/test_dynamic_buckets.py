"""Streams and batch writes of Spark into tables with dynamic buckets, and Java's writer after
them.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from paimon_stream import PaimonTable
from paimon_stream.commit.report import Phase
from tests.kits.kinds import faults
from tests.kits.spark_jobs import Job
from tests.spark.test_keyed_sink import changes, merged
from tests.spark.test_replay import FailAt

COLUMNS = (("id", "BIGINT NOT NULL"), ("day", "STRING"))
SMALL = {"dynamic-bucket.target-row-num": "3"}


def test_a_table_that_was_made_without_options_is_written(job: Job, kinds: Any) -> None:
    """The first batch is written by tasks, the others by the driver, and Java goes on."""
    job.create(COLUMNS, primary_keys=["id"], options=SMALL)
    for start in (0, 5, 10):
        changes(job, *((one, f"{start}") for one in range(start, start + 10)))
    job.run()
    assert sorted(merged(job, kinds)) == [(one, f"{min(one // 5 * 5, 10)}") for one in range(20)]
    assert faults(kinds, job.table) == []
    buckets = {file.bucket for file in job.load().files()}
    assert len(buckets) >= 20 // 3
    kinds.write_dynamic(job.table, [(one, "java") for one in range(15, 25)])
    changes(job, (24, "ours"), (25, "ours"))
    job.run()
    assert sorted(merged(job, kinds))[-3:] == [(23, "java"), (24, "ours"), (25, "ours")]
    assert faults(kinds, job.table) == []
    assert not [one for one in job.load().verify().findings if one.severity != "info"]


@pytest.mark.full
@pytest.mark.parametrize("phase", [Phase.CHECKED, Phase.STAGED, Phase.PUBLISHED])
@pytest.mark.parametrize("reuse", ["true", "false"])
def test_a_batch_that_died_is_in_the_table_once(
    job: Job, kinds: Any, phase: Phase, reuse: str
) -> None:
    job.create(COLUMNS, primary_keys=["id"], options=SMALL)
    changes(job, (1, "a"), (2, "b"), (3, "c"), (4, "d"))
    job.run()
    changes(job, (4, "e"), (5, "f"), (6, "g"), (7, "h"))
    options = {"paimon-stream.journal.reuse": reuse}
    job.run_failing(job.sink(observer=FailAt(phase, 1), options=options))
    kinds.write_dynamic(job.table, [(7, "java"), (8, "java")])  # may have given 7 another bucket
    job.run(job.sink(options=options))
    last = "java" if phase is Phase.PUBLISHED else "h"
    expected = [(1, "a"), (2, "b"), (3, "c"), (4, "e"), (5, "f"), (6, "g"), (7, last), (8, "java")]
    assert sorted(merged(job, kinds)) == expected
    assert faults(kinds, job.table) == []


def test_several_tasks_write_a_frame_and_complete_results_begin_anew(
    spark_session: SparkSession, job: Job, kinds: Any
) -> None:
    table = job.create(
        COLUMNS, primary_keys=["id"], options={"dynamic-bucket.assigner-parallelism": "3"}
    )
    frame = spark_session.range(0, 3000, numPartitions=4).selectExpr("id", "'x' as day")
    table.append(frame)
    table.append(spark_session.range(2000, 4000, numPartitions=3).selectExpr("id", "'y' as day"))
    assert sorted(merged(job, kinds)) == [(one, "x" if one < 2000 else "y") for one in range(4000)]
    assert faults(kinds, job.table) == []
    assert {file.bucket for file in job.load().files()} == {0, 1, 2}
    table.append(pa.table({"id": range(4000, 4010), "day": ["z"] * 10}))
    table.append(spark_session.range(0, 5000, numPartitions=3).selectExpr("id", "'w' as day"))
    assert sorted(merged(job, kinds)) == [(one, "w") for one in range(5000)]
    assert faults(kinds, job.table) == []
    assert not [one for one in job.load().verify().findings if one.severity != "info"]
    PaimonTable.load(str(job.table)).overwrite(
        spark_session.range(10, numPartitions=3).selectExpr("id", "'v' as day")
    )
    assert sorted(merged(job, kinds)) == [(one, "v") for one in range(10)]
    assert sum(len(entry["hashes"]) for entry in kinds.index(job.table)) == 10
    assert faults(kinds, job.table) == []
