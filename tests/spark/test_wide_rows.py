"""Rows of 1 MB in a JVM of 1 GB: the job goes on, in the driver and in tasks, after batches of any
kind.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyspark
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as st
from pyspark.sql.functions import udtf

from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.spark import write_job
from paimon_stream.spark.map_arrow import (
    arrow_batches_of,
    map_arrow,
    may_choose,
    may_guard,
    row_bytes,
    runs_python,
)
from paimon_stream.spark.types import to_data_fields
from paimon_stream.spark.write_plan import ArrowBatches
from tests.kits.spark_jobs import Job
from tests.spark.test_write_job import ROWS, one_struct

HERE = Path(__file__).parent
MOST_GROWN = 256
"""MB that the driver's Python process may grow by: what it may collect, and as much again to write
it.
"""
MOST_TO_COMPACT = 2_400
"""The same where two threads of it merge five files of wide rows each, and a dictionary hides how
wide they are.
"""


@pytest.mark.full
def test_wide_rows_are_written_by_a_jvm_of_1_gb(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "wide_rows_child.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), *sys.path])},
        capture_output=True,
        text=True,
        timeout=900,
    )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"case"')]
    assert {one["case"]: one["rows"] for one in found} == {
        "append": [1300],
        "first_batch_keys": [1300, 6],
        "burst_after_small_batches": [6, 6, 1300, 6],
        "burst_in_tasks": [6, 1300, 6],
        "burst_after_narrow_rows": [20_000, 20_000, 1300, 20_000],
        "burst_below_the_bound": [20_000, 20_000, 20_001, 20_000],
        "compacted_keys": [1300, 6],
    }, done.stderr[-3000:]
    grown = {one["case"]: one["grown"] for one in found}
    assert grown.pop("compacted_keys") < MOST_TO_COMPACT
    assert max(grown.values()) < MOST_GROWN


def test_one_row_that_is_too_wide_for_the_driver_sends_the_batch_to_the_tasks(job: Job) -> None:
    job.create()
    job.add_files(4)
    text = "if(id in (13, 20), repeat('x', if(id = 13, 20000000, 1000000)), 'y')"
    job.run(frame=job.stream().repartition(2).selectExpr("id", f"{text} day"))
    assert [report.files for report in job.reports] == [2, 1, 2, 2]
    assert job.ids() == list(range(24))


def test_the_size_of_a_row_is_what_arrow_needs_and_little_more(job: Job) -> None:
    inner = st.StructType(
        [st.StructField("m", st.StringType()), st.StructField("n", st.ByteType())]
    )
    schema = st.StructType(
        [
            *one_struct().fields,
            st.StructField("list", st.ArrayType(st.LongType())),
            st.StructField("texts", st.ArrayType(st.StringType())),
            st.StructField("map", st.MapType(st.StringType(), st.ArrayType(st.StringType()))),
            st.StructField("a.b", inner),
            st.StructField("all", st.ArrayType(inner)),
        ]
    )
    nested = [
        (
            [1, None] * 50,
            ["ä" * 99, None],
            {"k" * 70: ["v" * 80, None]},
            ("z" * 60, 1),
            [("y" * 50, 2), None],
        ),
        (None, None, None, None, None),
        ([], [], {}, (None, None), []),
    ]
    rows = [(*plain, *more) for plain, more in zip(ROWS, nested, strict=True)] * 40
    frame = job.spark.createDataFrame(rows, schema).coalesce(1)
    total = f.sum(row_bytes(to_data_fields(schema))).alias("total")
    (estimate,) = frame.select(total).collect()[0]
    actual = sum(batch.nbytes for batch in frame._collect_as_arrow())
    assert 0.9 * actual < estimate < 1.5 * actual


# -- rows that are known to be narrow
# -------------------------------------------------------------------------------

OFF = {"paimon-stream.small-batch": "off"}
ROWS_OF_BATCH = 20_000
LIMITS = tuple(f"spark.sql.execution.arrow.{name}PerBatch" for name in ("maxBytes", "maxRecords"))


def narrow_batches(job: Job, count: int, *, wide: int | None = None) -> DataFrame:
    """A stream of batches of short texts, in one partition each. The row with the id `wide` has a
    text of 100,000 characters, and is the last one of its batch.
    """
    for number in range(count):
        ids = range(number * ROWS_OF_BATCH, (number + 1) * ROWS_OF_BATCH)
        job.write_source(number, pa.table({"id": ids, "day": [f"d{id_ % 9}" for id_ in ids]}))
    text = f"if(id = {wide}, repeat('x', 100000), day)" if wide is not None else "day"
    return job.stream().coalesce(1).selectExpr("id", f"{text} day")


@pytest.fixture
def arrow_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, Any]]:
    """For each job that writes: a folder with an empty file for each Arrow batch that a task gets,
    and Spark's limits for them.
    """
    jobs: list[tuple[Path, Any]] = []

    def counting(frame: DataFrame, task: Any, schema: Any) -> DataFrame:
        folder = tmp_path / f"arrow-batches-{len(jobs)}"
        folder.mkdir()
        jobs.append((folder, [frame.sparkSession.conf.get(key, None) for key in LIMITS]))

        def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            def seen() -> Iterator[pa.RecordBatch]:
                for batch in batches:
                    (folder / str(uuid4())).touch()
                    yield batch

            yield from task(seen())

        return map_arrow(frame, counted, schema)

    monkeypatch.setattr(write_job, "map_arrow", counting)
    return jobs


@pytest.mark.spark35
@pytest.mark.spark4
def test_narrow_rows_come_in_few_arrow_batches_without_a_limit_of_bytes(
    job: Job, arrow_batches: list[tuple[Path, Any]]
) -> None:
    job.create()
    job.run(job.sink(options=OFF), frame=narrow_batches(job, 3))
    assert [report.rows for report in job.reports] == [ROWS_OF_BATCH] * 3
    most = ROWS_OF_BATCH / 8_192 + 2
    first, *others = arrow_batches
    assert first[1] == [None, None] or first[1] == [None, "128"]
    for folder, limits in others:
        assert len(list(folder.iterdir())) <= most
        assert limits[1] == "8192"
        assert limits[0] in (str(2**31 - 1), None)
    assert [job.spark.conf.get(key, None) for key in LIMITS] == [None, None]


@pytest.mark.spark35
def test_rows_of_fixed_width_come_so_in_the_first_batch_and_in_a_batch_write(
    job: Job, arrow_batches: list[tuple[Path, Any]]
) -> None:
    table = job.create([("id", "BIGINT")])
    job.run(job.sink(options=OFF), frame=narrow_batches(job, 1).select("id"))
    table.append(job.spark.range(0, ROWS_OF_BATCH, 1, 1))
    assert len(arrow_batches) == 2
    for folder, _ in arrow_batches:
        assert len(list(folder.iterdir())) <= ROWS_OF_BATCH / 8_192 + 2


@pytest.mark.spark35
@pytest.mark.parametrize("keyed", [False, True])
def test_a_batch_with_a_row_that_is_too_wide_is_written_again_in_the_safe_way(
    job: Job,
    arrow_batches: list[tuple[Path, Any]],
    caplog: pytest.LogCaptureFixture,
    keyed: bool,
) -> None:
    if keyed:
        job.create(
            [("id", "BIGINT NOT NULL"), ("day", "STRING")],
            primary_keys=["id"],
            options={"bucket": "2", "write-only": "true"},
        )
    else:
        job.create()
    caplog.set_level(logging.INFO, "paimon_stream")
    # The two narrow batches after the first one are not written twice.
    frame = narrow_batches(job, 5, wide=4 * ROWS_OF_BATCH - 1)
    job.run(job.sink(options={**OFF, "paimon-stream.shuffle": "auto"}), frame=frame)
    assert [report.rows for report in job.reports] == [ROWS_OF_BATCH] * 5
    lines = [line for line in caplog.messages if "written once more" in line]
    assert len(lines) == 1
    assert len(arrow_batches) == 6
    records = [limits[1] for _, limits in arrow_batches]
    narrow = "1024" if keyed else "8192"
    assert records[1:4] == [narrow] * 3
    assert narrow not in records[4:]
    rows = job.load().to_arrow().sort_by("id")
    assert rows["id"].to_pylist() == list(range(5 * ROWS_OF_BATCH))
    assert len(rows["day"][4 * ROWS_OF_BATCH - 1].as_py()) == 100_000
    assert job.data_files() == {Path(file.path).name for file in job.load().files()}


@pytest.mark.parametrize("reason", ["state", "lists of texts"])
def test_rows_are_not_guarded_where_spark_must_not_read_them_twice_or_the_guard_is_dear(
    job: Job, arrow_batches: list[tuple[Path, Any]], reason: str
) -> None:
    frame = narrow_batches(job, 3, wide=2 * ROWS_OF_BATCH - 1)
    if reason == "state":
        job.create()
        frame = frame.dropDuplicates(["id", "day"])
    else:
        job.create([("id", "BIGINT"), ("days", "ARRAY<STRING>")])
        frame = frame.selectExpr("id", "array(day, 'x') days")
    job.run(job.sink(options=OFF), frame=frame)
    assert len(arrow_batches) == 3
    assert {limits[1] for _, limits in arrow_batches} <= {None, "128"}
    assert job.ids() == list(range(3 * ROWS_OF_BATCH))


def lengths(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A function of the user, which gets wide rows and gives narrow ones."""
    for batch in batches:
        texts = pc.cast(pc.binary_length(batch["text"]), pa.int64())
        yield pa.record_batch({"id": texts})


@udtf(returnType="id bigint")
class OneMore:
    """A table function of the user."""

    def eval(self, number: int) -> Iterator[tuple[int]]:
        yield (number + 1,)


@pytest.mark.spark35
@pytest.mark.spark4
@pytest.mark.parametrize("streaming", [False, True])
def test_python_functions_of_the_user_may_get_wide_rows_in_the_same_action(
    job: Job, arrow_batches: list[tuple[Path, Any]], streaming: bool
) -> None:
    table = job.create([("id", "BIGINT")])
    if streaming:
        sink = job.sink(options=OFF)
        frame = narrow_batches(job, 2).selectExpr("day text")
        job.run(
            lambda rows, number: sink(rows.mapInArrow(lengths, "id bigint"), number), frame=frame
        )
    else:
        wide = job.spark.range(0, 2, 1, 1).selectExpr("repeat('x', 1000000) text")
        table.append(wide.mapInArrow(lengths, "id bigint"))
        assert job.ids() == [1_000_000, 1_000_000]
    records = {limits[1] for _, limits in arrow_batches}
    assert records <= {None, "128"}
    assert len(arrow_batches) == (2 if streaming else 1)


@pytest.mark.spark35
@pytest.mark.spark4
def test_the_plan_says_whether_python_functions_make_the_rows(job: Job) -> None:
    plain = job.spark.range(3)
    as_text = f.udf(str)
    assert not runs_python(plain)
    assert not runs_python(plain.selectExpr("id + 1 id").where("id > 1").repartition(2))
    assert runs_python(plain.select(as_text("id")).where("true"))
    assert runs_python(plain.withColumn("text", as_text("id")).join(plain, "id"))
    assert runs_python(plain.selectExpr("'x' text").mapInArrow(lengths, "id bigint"))
    assert runs_python(OneMore(f.lit(1)).union(plain))
    assert not runs_python(plain.selectExpr("explode(array(id, id)) id"))


@pytest.mark.parametrize(
    ("columns", "guards"),
    [
        ({"text": "STRING", "n": "BIGINT"}, True),
        ({f"t{place}": "STRING" for place in range(16)}, True),
        ({f"t{place}": "STRING" for place in range(17)}, False),
        ({f"n{place}": "BIGINT" for place in range(90)} | {"t": "BYTES"}, True),
        ({f"r{place}": "ROW<a STRING, b INT, c STRING>" for place in range(8)}, True),
        ({f"r{place}": "ROW<a STRING, b INT, c STRING>" for place in range(9)}, False),
        ({"list": "ARRAY<BIGINT>", "map": "MAP<INT, DATE>"}, True),
        ({"list": "ARRAY<STRING>"}, False),
        ({"row": "ROW<map MAP<STRING, INT>>"}, False),
    ],
)
def test_rows_are_guarded_only_where_that_costs_little(
    columns: Mapping[str, str], guards: bool
) -> None:
    fields = tuple(
        DataField(id=place, name=name, type=parse_type(type_))
        for place, (name, type_) in enumerate(columns.items())
    )
    schema = TableSchema(id=0, fields=fields, highest_field_id=len(fields))
    assert may_guard(schema) is guards


# -- several writes in one session
# ---------------------------------------------------------------------------------

NARROW = ArrowBatches(records=8_192, bytes_limited=False)
FEW = ArrowBatches(records=128, bytes_limited=False)
LIMITED = ArrowBatches(records=128, bytes_limited=True)
SPARK_LIMITS_BYTES = int(pyspark.__version__.split(".", 1)[0]) >= 4


def limits_of(frame: DataFrame) -> tuple[bool, str | None]:
    """Whether Spark limits the bytes of Arrow batches, and the number of their rows that is set."""
    in_bytes, records = (frame.sparkSession.conf.get(key, None) for key in LIMITS)
    return in_bytes is None, records


@pytest.mark.spark35
@pytest.mark.spark4
@pytest.mark.parametrize("ends_first", [0, 1])
@pytest.mark.parametrize("order", [(NARROW, FEW), (FEW, NARROW), (NARROW, NARROW)])
def test_of_writes_at_once_in_one_session_each_has_the_fewest_rows(
    job: Job, order: tuple[ArrowBatches, ...], ends_first: int
) -> None:
    frame = job.spark.range(1)
    unset = limits_of(frame)
    writes = [arrow_batches_of(size, frame) for size in order]
    for write in writes:
        assert may_choose(frame), "the other write has set the values, not the user"
        write.__enter__()
    _, records = limits_of(frame)
    assert records == str(min(size.records for size in order))
    writes.pop(ends_first).__exit__(None, None, None)
    _, records = limits_of(frame)
    assert records == str(order[1 - ends_first].records)
    writes.pop().__exit__(None, None, None)
    assert limits_of(frame) == unset == (True, None)


@pytest.mark.spark35
@pytest.mark.spark4
@pytest.mark.parametrize("order", [(NARROW, LIMITED), (LIMITED, NARROW)])
def test_a_write_of_narrow_rows_does_not_lift_the_limit_of_another_one_in_its_session(
    job: Job, order: tuple[ArrowBatches, ...]
) -> None:
    frame = job.spark.range(1)
    with arrow_batches_of(order[0], frame), arrow_batches_of(order[1], frame):
        is_limited, records = limits_of(frame)
        assert is_limited
        assert records == ("8192" if SPARK_LIMITS_BYTES else "128")
    assert limits_of(frame) == (True, None)


def test_values_that_the_user_has_set_stay(job: Job) -> None:
    frame = job.spark.range(1)
    frame.sparkSession.conf.set(LIMITS[1], "500")
    try:
        assert not may_choose(frame)
        with arrow_batches_of(NARROW, frame):
            assert limits_of(frame) == (True, "500")
        assert limits_of(frame) == (True, "500")
    finally:
        frame.sparkSession.conf.unset(LIMITS[1])
