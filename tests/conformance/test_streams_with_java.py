"""Streams into tables that Java Paimon reads, writes, compacts, expires and alters, and into tables
that it made.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as st

from paimon_stream import PaimonTable
from paimon_stream.format.types import arrow_type
from paimon_stream.spark.types import spark_type
from tests.kits.params import few
from tests.kits.spark_jobs import Job

pytestmark = pytest.mark.long

UTC = dt.timezone.utc
ALL_SCALARS = [
    ("k", "BIGINT NOT NULL"),
    ("yes", "BOOLEAN"),
    ("tiny", "TINYINT"),
    ("small", "SMALLINT"),
    ("number", "INT"),
    ("big", "BIGINT"),
    ("single", "FLOAT"),
    ("double", "DOUBLE"),
    ("money", "DECIMAL(9, 2)"),
    ("long_money", "DECIMAL(18, 4)"),
    ("huge", "DECIMAL(38, 10)"),
    ("text", "STRING"),
    ("raw", "BYTES"),
    ("day", "DATE"),
    ("at", "TIMESTAMP(6)"),
    ("seen", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
]
NAMES = [name for name, _ in ALL_SCALARS]


def scalar_row(k: int) -> dict[str, Any]:
    """Ordinary values, each a little different."""
    moment = dt.datetime(2024, 2, 29, 1, 2, 3, 456789) + dt.timedelta(days=k, microseconds=k)
    values = (
        k,
        k % 2 == 0,
        k % 100,
        -k,
        k * 1000,
        k * 2**40,
        k / 4,
        k / 3,
        Decimal(k) / 100,
        Decimal(-k) / 10000,
        Decimal(k) * 10**15,
        f"row {k} – ünï",
        bytes([k % 256]) * (k % 5),
        moment.date(),
        moment,
        moment.replace(tzinfo=UTC),
    )
    return dict(zip(NAMES, values, strict=True))


EXTREMES = [
    (
        -(2**63),
        False,
        -128,
        -(2**15),
        -(2**31),
        -(2**63),
        -math.inf,
        -math.inf,
        Decimal("-9999999.99"),
        Decimal("-99999999999999.9999"),
        Decimal("-" + "9" * 28 + "." + "9" * 10),
        "",
        b"",
        dt.date(1, 1, 1),
        dt.datetime(1, 1, 1),
        dt.datetime(1, 1, 1, tzinfo=UTC),
    ),
    (
        2**63 - 1,
        True,
        127,
        2**15 - 1,
        2**31 - 1,
        2**63 - 1,
        math.nan,
        math.nan,
        Decimal("9999999.99"),
        Decimal("99999999999999.9999"),
        Decimal("9" * 28 + "." + "9" * 10),
        "\U0001f600" * 20,
        bytes(range(256)),
        dt.date(9999, 12, 31),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ),
    (0, None, None, None, None, None, None, None, None, None, None, None, None, None, None, None),
    (
        1,
        True,
        0,
        0,
        0,
        0,
        -0.0,
        -0.0,
        Decimal("0.00"),
        Decimal("0.0000"),
        Decimal(0).scaleb(-10),
        "\x00 ",
        b"\x00",
        dt.date(1969, 12, 31),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ),
]


@pytest.fixture
def streams(spark_session: SparkSession, tmp_path: Path) -> Callable[[Path | None], Job]:
    """Makes the job that streams into a table. `feed` chooses what it writes."""
    spark_session.sparkContext.setLogLevel("OFF")

    class TableJob(Job):
        at: Path | None = None

        @property
        def table(self) -> Path:
            return self.at or self.root / "shop.db" / "orders"

        def stream(self) -> DataFrame:
            # Spark 3.5 asks what it should make of old dates, in files that do not say who wrote
            # them.
            reader = self.spark.readStream.schema(self.schema).option(
                "datetimeRebaseMode", "CORRECTED"
            )
            return reader.option("maxFilesPerTrigger", 1).parquet(str(self.root / "source"))

    def make(table: Path | None = None) -> Job:
        job = TableJob(spark=spark_session, root=tmp_path)
        job.at = table
        return job

    return make


def feed(job: Job, rows: Iterable[dict[str, Any]]) -> None:
    """One more source file, with the columns of the table: the next batch."""
    fields = job.load().schema.fields
    schema = pa.schema([(one.name, arrow_type(one.type)) for one in fields])
    number = len(list((job.root / "source").iterdir())) if (job.root / "source").exists() else 0
    job.write_source(number, pa.Table.from_pylist(list(rows), schema))
    job.schema = st.StructType([st.StructField(one.name, spark_type(one.type)) for one in fields])  # type: ignore[assignment]


def same(java: Any, schema: Any, found: Iterable[Any], expected: Iterable[Any]) -> None:
    import java_paimon

    assert java_paimon.canonical(schema, found) == java_paimon.canonical(schema, expected)


# -- Java reads ours ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partition_keys", "options"),
    [
        pytest.param([], {}, id="plain"),
        pytest.param([], {"bucket": "3", "bucket-key": "k"}, id="buckets", marks=pytest.mark.full),
        pytest.param(
            ["day"], {"bucket": "2", "bucket-key": "text,huge,at"}, id="partitions and buckets"
        ),
        pytest.param(["tiny", "yes"], {}, id="partitions", marks=pytest.mark.full),
    ],
)
def test_java_reads_every_scalar_type_row_by_row_and_bucket_by_bucket(
    streams: Any, java: Any, partition_keys: list[str], options: dict[str, str]
) -> None:
    job = streams()
    job.create(ALL_SCALARS, partition_keys=partition_keys, options=options)
    rows = [dict(zip(NAMES, values, strict=True)) for values in EXTREMES]
    rows += [scalar_row(k) for k in range(2, 20)]
    feed(job, rows[::2])
    feed(job, rows[1::2])
    job.run()
    same(java, ALL_SCALARS, java.read(job.table), rows)
    assert java.schema(job.table)["options"].get("bucket") == options.get("bucket")
    for partition, bucket, placed in java.read_buckets(job.table):
        assert placed
        assert all(row[key] == partition[key] for row in placed for key in partition_keys)
        if "bucket" in options:
            assert set(java.buckets(placed, path=job.table)) == {bucket}
        else:
            assert bucket == 0
    assert sum(file["rowCount"] for file in java.files(job.table)) == len(rows)


# -- Java changes the table under the stream ----------------------------------------------------

PAIRS = [("id", "BIGINT"), ("day", "STRING")]


def pairs(start: int, count: int = 6) -> list[dict[str, Any]]:
    return [{"id": i, "day": f"d{i % 3}"} for i in range(start, start + count)]


@pytest.mark.parametrize(
    "buckets", [{}, {"bucket": "2", "bucket-key": "id"}], ids=["no buckets", "buckets"]
)
def test_a_stream_and_java_write_compact_and_expire_in_turns(
    streams: Any, java: Any, buckets: dict[str, str]
) -> None:
    job = streams()
    job.create(PAIRS, partition_keys=["day"], options=buckets)
    expected: list[dict[str, Any]] = []

    def stream(start: int) -> None:
        feed(job, pairs(start))
        job.run()
        expected.extend(pairs(start))
        same(java, PAIRS, java.read(job.table), expected)

    def write(start: int) -> None:
        java.write(job.table, pairs(start), commit_identifier=start)
        expected.extend(pairs(start))

    stream(0)
    write(100)
    stream(6)
    write(200)
    java.compact(job.table)
    assert java.snapshots(job.table)[-1]["commitKind"] == "COMPACT"
    stream(12)
    assert java.expire_snapshots(job.table, retain_max=1) > 0
    stream(18)
    stream(24)
    java.compact(job.table)
    java.expire_snapshots(job.table, retain_max=1)
    assert java.remove_orphans(job.table, dry_run=True) == []
    job.forget_last_batch()
    # Its snapshot has expired and its files are compacted away: nobody can say that it was
    # committed.
    assert "HistoryUnknown" in job.run_failing()
    same(java, PAIRS, java.read(job.table), expected)
    _ranges_do_not_overlap(java, job)


def _ranges_do_not_overlap(java: Any, job: Job) -> None:
    """Sequence numbers of the files of a bucket, as readers that keep the order need them."""
    if java.schema(job.table)["options"].get("bucket", "-1") == "-1":
        return
    by_bucket: dict[Any, list[tuple[int, int]]] = {}
    for file in java.files(job.table):
        span = (file["minSequenceNumber"], file["maxSequenceNumber"])
        by_bucket.setdefault((str(file["partition"]), file["bucket"]), []).append(span)
    for spans in by_bucket.values():
        ordered = sorted(spans)
        assert all(one[1] < two[0] for one, two in itertools.pairwise(ordered)), ordered


def test_rows_of_a_bucket_are_read_in_the_order_they_were_written(streams: Any, java: Any) -> None:
    job = streams()
    job.create(PAIRS, options={"bucket": "1", "bucket-key": "id"})
    for start in (0, 6):
        feed(job, pairs(start))
    job.run()
    java.write(job.table, pairs(12), commit_identifier=1)
    feed(job, pairs(18))
    job.run()
    ((_, _, rows),) = java.read_buckets(job.table)
    assert [row["id"] for row in rows] == list(range(24))


def test_a_stream_follows_a_schema_that_java_changes(streams: Any, java: Any) -> None:
    job = streams()
    job.create(PAIRS)
    feed(job, pairs(0))
    job.run()
    java.alter_table(job.table, ("add", "note", "STRING"), ("set", "target-file-size", "1 mb"))
    feed(job, pairs(6))
    job.run()
    schema = [*PAIRS, ("note", "STRING")]
    rows = [{**row, "note": None} for row in pairs(0, 12)]
    same(java, schema, java.read(job.table), rows)
    assert [snapshot["schemaId"] for snapshot in java.snapshots(job.table)] == [0, 1]


def test_java_finds_the_batches_of_a_stream_by_its_commit_user(streams: Any, java: Any) -> None:
    job = streams()
    job.create(PAIRS)
    for start in (0, 6, 12):
        feed(job, pairs(start))
    job.run(job.sink(commit_user="etl"))
    assert java.last_commit_of(job.table, "etl") == 2
    assert java.read_delta(job.table, 2) == [("+I", row) for row in pairs(6)]


# -- tables that Java made ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    few(
        [
            "append_plain",
            "append_partitioned",
            "append_bucketed",
            "append_compacted",
            "many_commits",
            "overwritten",
            "partition_strings",
            "partition_types",
            "partition_types_named",
        ],
        lambda name: name in ("append_bucketed", "overwritten", "partition_types"),
    ),
)
def test_a_stream_appends_to_a_table_that_java_made(
    streams: Any, java: Any, golden: Any, name: str
) -> None:
    """Its own rows again, so that every partition and bucket of it is met."""
    table, expected = golden(name)
    job = streams(table)
    schema = [tuple(column) for column in expected["schema"]]
    before = java.read(table)
    places = {(str(partition), bucket) for partition, bucket, _ in java.read_buckets(table)}
    latest = java.snapshots(table)[-1]["id"]
    feed(job, before)
    job.run()
    same(java, schema, java.read(table), [*before, *before])
    assert {(str(partition), bucket) for partition, bucket, _ in java.read_buckets(table)} == places
    assert java.snapshots(table)[-1]["id"] == latest + 1
    same(java, schema, java.read(table, latest), before)
    _ranges_do_not_overlap(java, job)
    java.write(table, before[:1], commit_identifier=10**6)
    assert len(java.read(table)) == 2 * len(before) + 1
    assert PaimonTable.load(str(table)).latest_snapshot().id == latest + 2
