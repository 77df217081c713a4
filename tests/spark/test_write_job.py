"""The one Spark action of a batch: rows of every type arrive, each answer counts once."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as st

from paimon_stream import PaimonTable, errors
from paimon_stream.spark.tasks import WriteTask
from paimon_stream.spark.write_job import (
    _failure,
    attempts_of,
    of_context,
    task_attempts,
    written_by,
)
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import load_table
from paimon_stream.write.arrow_batches import RowTooWide
from paimon_stream.write.task import TaskFailure, TaskResult, TaskTooWide, WriteSpec
from tests.kits.spark_jobs import Job

UTC = datetime.timezone.utc
TYPES = {
    "id": st.LongType(),
    "flag": st.BooleanType(),
    "tiny": st.ByteType(),
    "small": st.ShortType(),
    "num": st.IntegerType(),
    "single": st.FloatType(),
    "real": st.DoubleType(),
    "price": st.DecimalType(9, 2),
    "long_price": st.DecimalType(18, 4),
    "huge": st.DecimalType(38, 10),
    "text": st.StringType(),
    "bytes": st.BinaryType(),
    "day": st.DateType(),
    "at": st.TimestampType(),
    "local": st.TimestampNTZType(),
}
ROWS: list[tuple[Any, ...]] = [
    (
        1,
        True,
        -128,
        -32768,
        2**31 - 1,
        1.5,
        -2.25,
        decimal.Decimal("1234567.89"),
        decimal.Decimal("-99999999999999.9999"),
        decimal.Decimal("1234567890123456789012345678.0123456789"),
        "grüße 🎈",
        bytearray(b"\x00\xff"),
        datetime.date(1969, 12, 31),
        datetime.datetime(2021, 3, 4, 5, 6, 7, 891011, tzinfo=UTC),
        datetime.datetime(1960, 1, 1, 0, 0, 0, 1),
    ),
    (2, *[None] * 14),
    (3, False, 127, 32767, -(2**31), float("inf"), 0.0, *[None] * 3, "", bytearray(), *[None] * 3),
]


def one_struct() -> st.StructType:
    return st.StructType(
        [st.StructField(name, type_, name != "id") for name, type_ in TYPES.items()]
    )


@pytest.mark.spark35
def test_rows_of_every_type_are_read_back_by_spark_and_by_java(job: Job, java: Any) -> None:
    schema = one_struct()
    PaimonTable.create(str(job.table), schema, options={"bucket": "2", "bucket-key": "id"})
    source = str(job.root / "all")
    job.spark.createDataFrame(ROWS, schema).repartition(2).write.parquet(source)
    job.run(frame=job.spark.readStream.schema(schema).parquet(source))
    paths = [file.path for file in job.load().files()]
    read = job.spark.read.schema(schema).parquet(*paths).orderBy("id").collect()
    assert [tuple(row) for row in read] == [
        tuple(v.replace(tzinfo=None) if getattr(v, "tzinfo", None) else v for v in row)
        for row in ROWS
    ]
    found = sorted(java.read(job.table), key=lambda row: row["id"])
    assert [row["id"] for row in found] == [1, 2, 3]
    assert [row["text"] for row in found] == ["grüße 🎈", None, ""]
    assert [row["num"] for row in found] == [2**31 - 1, None, -(2**31)]


def table_of(job: Job) -> Any:
    job.create()
    return load_table(LocalStorage(str(job.table)))


def test_a_partition_that_answers_twice_stops_the_batch(job: Job) -> None:
    result = TaskResult(messages=(), partition_id=3)
    table = table_of(job)
    assert _failure([result, replace(result, partition_id=4)], table, gathered=True) is None
    trouble = _failure([result, replace(result, row_bytes=1)], table, gathered=True)
    assert trouble is not None
    assert trouble.context["partitions"] == (3,)


def test_the_error_of_a_failed_task_goes_before_all_else(job: Job) -> None:
    result = TaskResult(messages=())
    error = errors.NullInNotNull("no", column="id", count=1)
    assert (
        _failure([result, TaskFailure(error=error, partition_id=1)], table_of(job), gathered=True)
        is error
    )


def test_only_a_storage_that_may_recover_is_tried_again_and_not_the_last_time(job: Job) -> None:
    table = table_of(job)

    def rows(error: errors.PaimonStreamError) -> Iterator[Any]:
        raise error
        yield

    spec = WriteSpec(storage=table.storage, schema=table.schema, options=table.options)
    task = WriteTask(spec=spec, attempts=2)
    with pytest.raises(errors.Unavailable):
        task.answer(rows(errors.Unavailable("time-out")), 5, 0)
    for error, attempt in ((errors.Unavailable("time-out"), 1), (errors.NoSpace("full"), 0)):
        answer = task.answer(rows(error), 5, attempt)
        assert answer == TaskFailure(error=error, partition_id=5)


def test_a_row_that_is_too_wide_is_an_answer_and_the_files_and_other_rows_of_the_task_go(
    job: Job,
) -> None:
    table = table_of(job)
    spec = WriteSpec(storage=table.storage, schema=table.schema, options=table.options)
    is_wide = [False, False, True, False]
    batches = iter(
        pa.record_batch({"id": [number], "day": ["x"], "wide": [wide]})
        for number, wide in enumerate(is_wide)
    )
    answer = WriteTask(spec=spec, attempts=4, guarded=True).answer(batches, 5, 0)
    assert answer == TaskTooWide(partition_id=5)
    assert list(batches) == [], "Spark ends a worker that leaves rows unread"
    assert job.data_files() == set()
    narrow = pa.record_batch({"id": [1], "day": ["x" * 90], "wide": [False]})
    written = WriteTask(spec=spec, attempts=4, guarded=True).answer([narrow], 6, 0)
    assert isinstance(written, TaskResult)
    assert 90 < written.widest_row < 120
    with pytest.raises(RowTooWide):
        written_by([written, answer], table)
    assert job.data_files() == set()


@pytest.mark.spark35
def test_the_error_of_a_user_function_in_the_plan_stays_as_spark_raises_it(job: Job) -> None:
    job.create()
    job.add_files(1)

    def burst(batches: Any) -> Any:
        yield from batches
        raise ValueError("the user's own")

    text = job.run_failing(frame=job.stream().mapInArrow(burst, "id bigint, day string"))
    assert "ValueError: the user's own" in text
    assert "paimon_stream.errors" not in text
    assert job.data_files() == set()


@pytest.mark.spark35
@pytest.mark.parametrize(
    ("limit", "wide"),
    [
        pytest.param(None, False, marks=pytest.mark.full),
        pytest.param(None, True, marks=pytest.mark.full),
        ("64m", False),
    ],
)
def test_wide_rows_and_a_users_own_limit_are_written_like_any(
    job: Job, limit: str | None, wide: bool
) -> None:
    job.create()
    job.add_files(2)
    key = "spark.sql.execution.arrow.maxBytesPerBatch"
    frame = job.stream()
    if wide:
        frame = frame.selectExpr("id", "cast(repeat(uuid(), 2000) as string) day")
    if limit is not None:
        job.spark.conf.set(key, limit)
    try:
        job.run(frame=frame)
    finally:
        job.spark.conf.unset(key)
    assert job.ids() == list(range(12))


@pytest.mark.parametrize(
    ("master", "failures", "attempts"),
    [
        ("local", None, 1),
        ("local[2]", "9", 1),
        ("local[*, 3]", "9", 3),
        ("local-cluster[2,1,1024]", None, 4),
        ("local-cluster[2,1,1024]", "2", 2),
        ("spark://host:7077", "2", 2),
        ("yarn", None, 4),
    ],
)
def test_the_master_or_a_setting_says_how_often_a_task_is_tried(
    master: str, failures: str | None, attempts: int
) -> None:
    assert attempts_of(master, failures) == attempts


def test_what_a_builder_tells_a_running_spark_does_not_change_how_often_a_task_is_tried(
    job: Job,
) -> None:
    key = "spark.task.maxFailures"
    session = job.spark.newSession()
    session._jsparkSession.sessionState().conf().setConfString(key, "9")  # as getOrCreate does it
    assert session.conf.get(key) == "9"
    assert of_context(session, key) == session.sparkContext.getConf().get(key) != "9"


def test_to_learn_how_often_a_task_is_tried_takes_a_few_calls_of_the_jvm(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = job.spark.sparkContext._gateway._gateway_client
    calls: list[str] = []

    def counted(command: str, *others: object, **named: object) -> object:
        calls.append(command)
        return send(command, *others, **named)

    send = client.send_command
    monkeypatch.setattr(client, "send_command", counted)
    assert task_attempts(job.spark) == attempts_of(job.spark.sparkContext.master, None)
    assert len([command for command in calls if not command.startswith("m\nd\n")]) <= 4
