"""Buckets gathered in tasks: the SQL expression is Java's function, and a bucket of a batch is one
file.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from paimon_stream import PaimonTable, errors
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.spark.shuffle import bucket_expression
from tests.kits.params import few
from tests.kits.spark_jobs import Job

BUCKETS = 17
EDGES: dict[str, Sequence[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, -1, 0, 1, 127],
    "SMALLINT": [-(2**15), -1, 0, 2**15 - 1],
    "INT": [-(2**31), -1, 0, 1, 255, 2**31 - 1],
    "BIGINT": [-(2**63), -1, 0, 1, 128, 2**32, 2**63 - 1],
    "DATE": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(9999, 12, 31)],
    "STRING": [
        "",
        "a",
        "1234567",
        "12345678",
        "ünïcödé",
        "漢字漢字",
        "😀",
        "0" * 16,
        "x" * 100,
        "a\0b",
    ],
    "VARCHAR(9)": ["", "a", "1234567", "123456789"],
    "CHAR(3)": ["abc", "äöü"],
}
KEYS = [
    *[(one,) for one in EDGES],
    ("STRING", "STRING"),
    ("DATE", "STRING", "BIGINT", "STRING"),
    ("BOOLEAN", "TINYINT", "SMALLINT", "INT"),
]


@pytest.fixture(scope="module")
def expected(java: Any) -> Any:
    def ask(types: Sequence[str], rows: list[tuple[Any, ...]], function: str) -> list[int]:
        schema = [(f"c{i}", type_) for i, type_ in enumerate(types)]
        options = {
            "bucket": str(BUCKETS),
            "bucket-key": ",".join(name for name, _ in schema),
            "bucket-function.type": function,
        }
        found: list[int] = java.buckets(rows, schema=schema, options=options)
        return found

    return ask


@pytest.mark.spark35
def test_the_expression_is_javas_function_for_every_key_it_is_used_for(
    spark_session: SparkSession, expected: Any
) -> None:
    chance = random.Random(5)
    keys: list[tuple[Sequence[str], str, list[tuple[Any, ...]]]] = []
    for types in KEYS:
        rows = [tuple(chance.choice([None, *EDGES[type_]]) for type_ in types) for _ in range(60)]
        if len(set(types)) == 1:
            rows += [tuple(value for _ in types) for value in EDGES[types[0]]]
        keys.append((types, "default", rows))
    keys += [
        ((type_,), "mod", [(value,) for value in [None, *EDGES[type_]]])
        for type_ in ("INT", "BIGINT")
    ]
    for (types, function, rows), buckets in zip(
        keys, sql_buckets(spark_session, keys), strict=True
    ):
        assert buckets == expected(types, rows, function), (types, function)


def sql_buckets(
    spark: SparkSession, keys: Sequence[tuple[Sequence[str], str, Sequence[tuple[Any, ...]]]]
) -> list[list[int]]:
    """The buckets of the rows of each key. All keys are columns of one frame, so Spark runs one job;
    the rows of a key that has fewer than another are filled up with NULL.
    """
    columns, expressions = [], []
    for number, (types, function, _) in enumerate(keys):
        fields = [
            DataField(id=i, name=f"k{number}_c{i}", type=parse_type(type_))
            for i, type_ in enumerate(types)
        ]
        columns += [
            f"{field.name} {'STRING' if 'CHAR' in type_ else type_}"
            for field, type_ in zip(fields, types, strict=True)
        ]
        expression = bucket_expression(fields, BUCKETS, function)
        assert expression is not None
        expressions.append(expression)
    longest = max(len(rows) for _, _, rows in keys)
    padded = [[*rows, *[(None,) * len(types)] * (longest - len(rows))] for types, _, rows in keys]
    frame = spark.createDataFrame(
        [tuple(chain.from_iterable(parts)) for parts in zip(*padded, strict=True)],
        ", ".join(columns),
    )
    answers = frame.select(*expressions).collect()
    return [
        [row[number] for row in answers[: len(rows)]] for number, (_, _, rows) in enumerate(keys)
    ]


@pytest.mark.parametrize("type_", ["DECIMAL(9, 2)", "DOUBLE", "TIMESTAMP(3)", "BYTES", "TIME(0)"])
def test_there_is_no_expression_where_it_is_not_exact(type_: str) -> None:
    fields = [DataField(id=0, name="c", type=parse_type(type_))]
    assert bucket_expression(fields, 4, "default") is None
    assert bucket_expression([DataField(id=0, name="c", type=parse_type("INT"))], 4, "hive") is None


@pytest.mark.parametrize(
    ("key", "partitioned"),
    few(
        [("id", False), ("price", False), ("id", True), ("price", True)],
        lambda key, partitioned: partitioned is (key == "price"),
    ),
)
def test_each_bucket_of_a_batch_becomes_one_file(job: Job, key: str, partitioned: bool) -> None:
    job.create(
        [("id", "BIGINT"), ("price", "DECIMAL(9, 2)"), ("dt", "STRING")],
        options={"bucket": "5", "bucket-key": key},
        partition_keys=["dt"] if partitioned else [],
    )
    rows = [(i, Decimal(i) / 4, f"d{i % 2}") for i in range(400)]
    frame = job.spark.createDataFrame(
        rows, "id bigint, price decimal(9, 2), dt string"
    ).repartition(3)
    job.sink(options={"paimon-stream.shuffle": "bucket"}, commit_user="me")(frame, 0)
    files = job.load().files()
    assert len(files) == (10 if partitioned else 5)
    assert job.load().to_arrow().sort_by("id").column("id").to_pylist() == list(range(400))


@pytest.mark.parametrize("bucketed", few([True, False], bool))
def test_rows_that_would_leave_many_small_files_are_gathered_in_the_next_batch(
    job: Job, java: Any, bucketed: bool
) -> None:
    table: dict[str, Any] = {"partition_keys": ["day"]}
    job.create(**({"options": {"bucket": "2", "bucket-key": "id"}} if bucketed else table))
    frame = job.spark.createDataFrame(
        [(i, f"d{i % 2}") for i in range(400)], "id bigint, day string"
    )
    sink = job.sink(options={"paimon-stream.small-batch": "off"}, commit_user="me")
    for batch in range(3):
        sink(frame.repartition(5), batch)
    assert [report.files for report in job.reports] == [10, 2, 2]
    assert sorted(row["id"] for row in java.read(job.table)) == sorted(3 * list(range(400)))
    none = {"paimon-stream.small-batch": "off", "paimon-stream.shuffle": "none"}
    sink = job.sink(options=none, commit_user="other")
    for batch in range(2):
        sink(frame.repartition(5), batch)
    assert [report.files for report in job.reports][3:] == [10, 10]


def test_what_cannot_be_gathered_is_refused(tmp_path: Path, job: Job) -> None:
    job.create()
    frame = job.spark.createDataFrame([(1, "a")], "id bigint, day string")
    with pytest.raises(errors.InvalidOption, match="no fixed number of buckets"):
        job.sink(options={"paimon-stream.shuffle": "bucket"}, commit_user="me")(frame, 0)
    assert PaimonTable.load(str(job.table)).latest_snapshot() is None
