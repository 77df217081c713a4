"""Rows of 1 MB in a JVM of 1 GB: the job goes on, in the driver and in tasks, after batches of any
kind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import functions as f
from pyspark.sql import types as st

from paimon_stream.spark.map_arrow import row_bytes
from paimon_stream.spark.types import to_data_fields
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
