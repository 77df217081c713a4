"""Columns that Spark has no type for, and nested ones, reach tables of every file format."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream.errors import PaimonStreamError
from tests.kits.files import same
from tests.kits.params import few
from tests.kits.spark_jobs import Job

UTC = dt.timezone.utc
COLUMNS = [
    ("id", "BIGINT NOT NULL"),
    ("t", "TIME(3)"),
    ("m", "MULTISET<STRING>"),
    ("c", "CHAR(4)"),
    ("v", "VARCHAR(3)"),
    ("b", "BINARY(2)"),
    ("s3", "TIMESTAMP(3)"),
    ("z6", "TIMESTAMP_LTZ(6)"),
    ("r", "ROW<a BIGINT, n ARRAY<ROW<k MAP<STRING, INT>, d DECIMAL(10, 2)>>>"),
]
SPARK = (
    "id bigint, t int, m map<string, int>, c string, v string, b binary, s3 timestamp_ntz, z6 timestamp, "
    "r struct<a: int, n: array<struct<k: map<string, int>, d: decimal(10, 2)>>>"
)
MOMENT = dt.datetime(2024, 2, 29, 1, 2, 3, 4000)
ROWS: list[tuple[Any, ...]] = [
    (
        1,
        3_723_004,
        {"x": 2},
        "ab",
        "äöü",
        b"\x00\xff",
        MOMENT,
        MOMENT.replace(tzinfo=UTC),
        {"a": 5, "n": [{"k": {"y": 1, "z": None}, "d": Decimal("1.50")}, None]},
    ),
    (2, None, None, None, None, None, None, None, None),
    (3, 0, {}, "", "", b"", MOMENT, None, {"a": None, "n": []}),
]


def source() -> pa.Table:
    inner = pa.struct([("k", pa.map_(pa.string(), pa.int32())), ("d", pa.decimal128(10, 2))])
    row = pa.struct([("a", pa.int32()), ("n", pa.list_(inner))])
    types = [
        pa.int64(),
        pa.int32(),
        pa.map_(pa.string(), pa.int32()),
        pa.string(),
        pa.string(),
        pa.binary(),
        pa.timestamp("us"),
        pa.timestamp("us", "UTC"),
        row,
    ]
    columns = [pa.array([_pairs(one[i]) for one in ROWS], type_) for i, type_ in enumerate(types)]
    return pa.table(columns, names=[name for name, _ in COLUMNS])


def _pairs(value: Any) -> Any:
    """Maps as Arrow takes them."""
    if isinstance(value, dict) and "a" in value:
        inner = [one and {**one, "k": list(one["k"].items())} for one in value["n"]]
        return {**value, "n": inner}
    return list(value.items()) if isinstance(value, dict) else value


@pytest.mark.spark35
@pytest.mark.parametrize(
    "format_", few(["parquet", "orc", "avro"], lambda format_: format_ == "parquet")
)
def test_rows_from_spark_are_read_by_java(job: Job, java: Any, format_: str) -> None:
    job.schema = SPARK
    options = {"file.format": format_, "orc.timestamp-ltz.legacy.type": "false"}
    job.create(COLUMNS, options=options)
    job.write_source(0, source())
    job.run(job.sink())
    expected = [
        (
            row[0],
            row[1] and (dt.datetime(1, 1, 1) + dt.timedelta(milliseconds=row[1])).time(),
            *row[2:],
        )
        for row in ROWS
    ]
    expected[2] = (3, dt.time(0), *ROWS[2][2:])
    assert same(COLUMNS, java.read(job.table), expected)


@pytest.mark.full
def test_a_value_that_is_too_long_ends_the_query_with_our_error(job: Job) -> None:
    job.schema = "id bigint, day string"
    job.create([("id", "BIGINT"), ("day", "VARCHAR(1)")])
    job.add_files(1)
    with pytest.raises(
        Exception, match=r"VARCHAR\(1\), but the value is longer in 6 rows"
    ) as ended:
        job.run(job.sink())
    assert "ValueTooLong" in str(ended.value) or isinstance(ended.value, PaimonStreamError)
    assert job.load().latest_snapshot is None or not job.load().snapshots()
