"""Streams and batch writes of Spark into postponed tables: each row waits once, in the order of its
key, and Java's compaction and ours show the same rows.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from pyspark.sql import SparkSession

from paimon_stream.commit.report import Phase
from tests.kits import waiting as kit
from tests.kits.spark_jobs import Job
from tests.spark.test_keyed_sink import changes, merged
from tests.spark.test_replay import FailAt

COLUMNS = (("id", "BIGINT NOT NULL"), ("day", "STRING"))
WRITER = re.compile(r"-u-(.+?)-s-(\d+)-w-")


def create(job: Job, **options: str) -> None:
    job.create(COLUMNS, primary_keys=["id"], options={"bucket": "-2", **options})


def shown(job: Job, kinds: Any) -> list[tuple[Any, ...]]:
    """The rows after a compaction of ours, as Java and we read them."""
    report = job.load().compact(options={"postpone.default-bucket-num": "3"})
    assert report.buckets
    assert not [one for one in job.load().verify().findings if one.severity != "info"]
    return sorted(merged(job, kinds))


def test_all_ways_of_a_stream_make_rows_wait(
    job: Job, kinds: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Tasks write the first batch, the driver the others."""
    create(job)
    changes(job, *((one, "first") for one in range(10)), operations="c" * 10)
    changes(job, (1, "second"), (2, "second"), (1, "third"), (3, ""), operations="uucd")
    changes(job, (4, "fourth"), operations="u")
    job.run(job.sink(options={"paimon-stream.operation-column": "op"}))
    assert (
        len(
            [
                one
                for one in caplog.messages
                if "rows are invisible to readers until a compaction" in one
            ]
        )
        == 1
    )
    assert merged(job, kinds) == []
    found = kit.waiting(job.table)
    assert sum(one.file.row_count for one in found) == 15
    writers = {WRITER.search(one.file.file_name).groups() for one in found}  # type: ignore[union-attr]
    assert [user for user, _ in writers] == [job.load().latest_snapshot().commit_user]  # type: ignore[union-attr]
    expected = dict.fromkeys(range(10), "first") | {1: "third", 2: "second", 4: "fourth"}
    del expected[3]
    assert shown(job, kinds) == sorted(expected.items())


@pytest.mark.full
@pytest.mark.parametrize("phase", [Phase.CHECKED, Phase.STAGED, Phase.PUBLISHED])
@pytest.mark.parametrize("reuse", ["true", "false"])
def test_a_batch_that_died_waits_once(job: Job, kinds: Any, phase: Phase, reuse: str) -> None:
    """Java writes and a compaction runs before the batch is run again."""
    create(job)
    changes(job, (1, "a"), (2, "b"))
    job.run()
    changes(job, (2, "c"), (3, "d"))
    options = {"paimon-stream.journal.reuse": reuse}
    job.run_failing(job.sink(observer=FailAt(phase, 1), options=options))
    kinds.write(job.table, [(3, "java"), (4, "java")], "java", commit_identifier=1)
    if reuse == "true":
        kinds.compact_postpone(job.table, 2)
    job.run(job.sink(options=options))
    assert job.identifiers().count(1) >= 1
    rows = sum(one.file.row_count for one in kit.waiting(job.table))
    assert rows == (6 if reuse == "false" else 0 if phase is Phase.PUBLISHED else 2)
    changes(job, (5, "e"))
    job.run(job.sink(options=options))
    last = "java" if phase is Phase.PUBLISHED else "d"
    assert shown(job, kinds) == [(1, "a"), (2, "c"), (3, last), (4, "java"), (5, "e")]


def test_several_tasks_keep_the_order_of_the_frame(
    spark_session: SparkSession, job: Job, kinds: Any
) -> None:
    create(job)
    table = job.load()
    for start in (0, 1):
        frame = spark_session.range(0, 4000, numPartitions=4)
        table.append(frame.selectExpr("id % 100 as id", f"cast(id + {start} as string) as day"))
    assert len(kit.waiting(job.table)) == 8
    assert shown(job, kinds) == sorted((one, str(3900 + one + 1)) for one in range(100))
    table.append(spark_session.range(3).selectExpr("id", "'x' as day"))
    table.overwrite(spark_session.range(2).selectExpr("id", "'y' as day"))
    assert merged(job, kinds) == []
    assert shown(job, kinds) == [(0, "y"), (1, "y")]


@pytest.mark.full
def test_complete_results_replace_what_waits(job: Job, kinds: Any) -> None:
    create(job)
    changes(job, (1, "a"), (2, "a"))
    changes(job, (3, "b"))
    frame = job.stream().groupBy("day").count().selectExpr("count as id", "day")
    job.run(job.sink(mode="complete"), frame=frame, output_mode="complete")
    assert shown(job, kinds) == [(1, "b"), (2, "a")]
