"""Columns whose names are expressions to PySpark: with a dot, or a backtick."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.kits.params import few
from tests.kits.spark_jobs import Job

COLUMNS = [
    ("user.id", "BIGINT NOT NULL"),
    ("a`b", "STRING"),
    ("user", "ROW<`x.y` INT>"),
    ("d.p", "STRING"),
]
KINDS: dict[str, dict[str, Any]] = {
    "append": {},
    "bucketed": {"options": {"bucket": "2", "bucket-key": "user.id"}},
    "partitioned and gathered": {
        "partition_keys": ["d.p"],
        "options": {"bucket": "2", "bucket-key": "a`b,user.id"},
    },
    "primary key": {"primary_keys": ["user.id"], "options": {"bucket": "2"}},
    "primary key in Python": {"primary_keys": ["d.k"], "options": {"bucket": "2"}},
}
EXPRESSIONS = [
    "id as `user.id`",
    "day as `a``b`",
    "named_struct('x.y', cast(id as int)) as user",
    "'p' as `d.p`",
    "cast(id as double) as `d.k`",
]


@pytest.mark.spark35
@pytest.mark.parametrize("kind", few(KINDS, lambda kind: kind == "partitioned and gathered"))
def test_columns_of_any_name_are_written_by_driver_and_tasks_in_streams_and_batches(
    job: Job, kind: str
) -> None:
    table = job.create([*COLUMNS, ("d.k", "DOUBLE NOT NULL")], **KINDS[kind])
    job.add_files(3)
    gathered = {"paimon-stream.shuffle": "bucket"} if "gathered" in kind else {}
    sink = job.sink(options=gathered)
    job.run(sink, frame=job.stream().repartition(2).selectExpr(*EXPRESSIONS))
    source = job.spark.range(18, 20).selectExpr("id", "'e' as day")
    table.append(source.selectExpr(*EXPRESSIONS))
    rows = sorted(job.load().to_arrow().to_pylist(), key=lambda row: row["user.id"])
    assert [row["user.id"] for row in rows] == list(range(20))
    assert [row["a`b"] for row in rows] == [f"d{n % 2}" for n in range(18)] + ["e", "e"]
    assert [row["user"] for row in rows] == [{"x.y": n} for n in range(20)]
    assert [row["d.k"] for row in rows] == [float(n) for n in range(20)]


def test_the_column_that_says_what_rows_do_may_have_a_dot(job: Job) -> None:
    table = job.create([("id", "BIGINT NOT NULL")], primary_keys=["id"], options={"bucket": "1"})
    table.append(pa.table({"id": [1, 2]}))
    frame = job.spark.range(1, 2).selectExpr("id", "'-D' as `my.op`")
    table.append(frame, operation_column="my.op")
    assert job.load().to_arrow().to_pylist() == [{"id": 2}]
