"""Small batches: the driver writes them, and they are otherwise like those that tasks write.

A batch of two partitions becomes two files if tasks write it, and one file if the driver does. So
the tests find out who wrote it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from paimon_stream import PaimonSink, errors
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.spark.limit_expressions import LimitExpressions
from paimon_stream.spark.small_batch import partitions_of
from paimon_stream.spark.types import to_data_fields
from paimon_stream.spark.write_plan import Share
from tests.kits.spark_jobs import Job
from tests.spark.test_sink import seen_by_user

OFF = {"paimon-stream.small-batch": "off"}
AUTO = {"paimon-stream.small-batch": "auto"}
TOO_MANY = 25_000
PLAIN: dict[str, Any] = {"partition_keys": ["day"], "options": {"bucket": "2", "bucket-key": "id"}}
KEYED: dict[str, Any] = {
    "primary_keys": ["id"],
    "options": {"bucket": "2", "sequence.field": "at", "changelog-producer": "input"},
}


def batches(job: Job, *sizes: int) -> DataFrame:
    """Files of this number of rows, and a stream of them in which each batch has two partitions."""
    job.schema = "id bigint, day string, at int, op string"
    for number, size in enumerate(sizes):
        ids = range(size)
        rows = {
            "id": [one % 7 if size < TOO_MANY else one for one in ids],
            "day": [f"d{(one + number) % 3}" for one in ids],
            "at": pa.array([(one * 5 + number) % 11 for one in ids], pa.int32()),
            "op": ["-D" if one % 4 == 3 else "+U" for one in ids],
        }
        job.write_source(number, pa.table(rows))
    return job.stream().repartition(2)


def files_of_batches(job: Job) -> list[int]:
    return [report.files for report in job.reports]


def read_back(job: Job, java: Any) -> tuple[list[Any], dict[Any, int]]:
    """What Java finds in the table, and how many rows the files of each bucket hold."""
    buckets: dict[Any, int] = {}
    for file in java.files(job.table):
        key = (str(file["partition"]), file["bucket"])
        buckets[key] = buckets.get(key, 0) + file["rowCount"]
    rows = sorted(tuple(row.values()) for row in java.read(job.table))
    assert rows == sorted(tuple(row.values()) for row in job.load().to_arrow().to_pylist())
    return rows, buckets


@pytest.mark.parametrize(
    "kind",
    [pytest.param("partitions and buckets", marks=pytest.mark.full), "primary key"],
)
def test_the_driver_writes_what_the_tasks_would(job: Job, java: Any, kind: str) -> None:
    keyed = kind == "primary key"
    columns = [("id", "BIGINT NOT NULL"), ("day", "STRING NOT NULL"), ("at", "INT")]
    frame = batches(job, 20, 30, 10).coalesce(
        1
    )  # coalesced, the tasks see rows in the same order each time
    options = {"paimon-stream.operation-column": "op"} if keyed else {}
    found = []
    for choice in (OFF, AUTO):
        one = replace(job, root=job.root / choice["paimon-stream.small-batch"], reports=[])
        one.create(columns, **(KEYED if keyed else PLAIN))
        one.run(one.sink(options=choice | options), frame=frame if keyed else frame.drop("op"))
        assert [report.rows for report in one.reports] == ([7] * 3 if keyed else [20, 30, 10])
        found.append(read_back(one, java))
    assert found[0] == found[1]


def test_a_burst_goes_to_the_tasks_and_each_row_is_there_once(job: Job) -> None:
    job.create()
    frame = batches(job, 6, 6, TOO_MANY, 6).select("id", "day")
    job.run(frame=frame)
    assert files_of_batches(job) == [2, 1, 2, 2]
    assert [report.rows for report in job.reports] == [6, 6, TOO_MANY, 6]
    assert len(set(job.ids())) == TOO_MANY


@pytest.mark.spark35
def test_the_partitions_of_a_batch_are_counted_whatever_was_made_of_it(job: Job) -> None:
    counted: list[tuple[int | None, int]] = []

    def count(batch: DataFrame, _batch_id: int) -> None:
        narrow = batch.where("id > 2").select("id")
        for frame in (
            batch,
            narrow,
            batch.repartition(3),
            batch.union(batch),
            batch.coalesce(1).select("id"),
        ):
            counted.append(
                (partitions_of(frame, frame.where("id < 9")), frame.rdd.getNumPartitions())
            )

    job.run(count, frame=batches(job, 6))
    assert counted == [(2, 2), (2, 2), (3, 3), (4, 4), (1, 1)]


@pytest.mark.spark35
@pytest.mark.spark4
@pytest.mark.parametrize(("rows", "steps"), [(4, ["select"]), (20_000, ["filter", "select"])])
def test_a_small_share_is_one_step_of_the_frame_and_each_share_has_null_for_a_wide_row(
    job: Job, monkeypatch: pytest.MonkeyPatch, rows: int, steps: list[str]
) -> None:
    frame = job.spark.range(0, 20, 1, 2).selectExpr("id", "repeat('x', if(id = 11, 900, 1)) text")
    fields = tuple(to_data_fields(frame.schema))
    schema = TableSchema(id=0, fields=fields, highest_field_id=len(fields))
    share = Share(rows=rows, usual=2, usual_bytes=100, other_bytes=50)
    expressions = LimitExpressions()
    expressions.within_share(frame, share, schema, None)
    client = job.spark.sparkContext._gateway._gateway_client
    methods: list[str] = []

    def counted(command: str, *others: object, **named: object) -> object:
        methods.append(command.split("\n")[2])
        return send(command, *others, **named)

    send = client.send_command
    monkeypatch.setattr(client, "send_command", counted)
    within_share = expressions.within_share(frame, share, schema, None)
    monkeypatch.undo()
    assert [method for method in methods if method in ("select", "filter", "where")] == steps
    structs = [row for batch in within_share._collect_as_arrow() for row in batch.to_pylist()]
    ids = [None if row is None else row["id"] for (row,) in (row.values() for row in structs)]
    in_share = [id_ for id_ in range(20) if id_ % 10 <= rows]
    assert ids == [None if id_ == 11 else id_ for id_ in in_share]


def test_with_the_option_off_and_with_state_tasks_write_every_batch(job: Job) -> None:
    job.create()
    frame = batches(job, 6, 6).select("id", "day")
    job.run(job.sink(options=OFF), frame=frame)
    job.run(frame=frame.dropDuplicates(["id", "day"]), checkpoint=job.root / "other")
    assert files_of_batches(job) == [2, 2, 2, 2]
    assert len(job.ids()) == 12 + 12


@pytest.mark.full
def test_rows_that_cannot_be_written_are_reported_alike(job: Job) -> None:
    job.create([("id", "BIGINT NOT NULL"), ("day", "STRING")])
    job.add_files(1)
    job.write_source(
        1, pa.table({"id": pa.array([7, None, 8, None], pa.int64()), "day": ["a"] * 4})
    )
    said = []
    for name, options in (("off", OFF), ("auto", AUTO)):
        sink: PaimonSink = job.sink(options=options, name=name)
        text = job.run_failing(sink, checkpoint=job.root / name)
        seen_by_user(text, errors.NullInNotNull, "id", "2")
        said.append(text.partition("NullInNotNull: ")[2].splitlines()[0])
    assert said[0] == said[1]
    assert len(job.data_files()) == 2
