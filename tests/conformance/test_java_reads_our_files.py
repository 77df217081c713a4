"""Java Paimon reads the files of a write task row by row, and keeps the same statistics of such
rows.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.schema_json import TableSchema, decode_schema
from paimon_stream.format.types import arrow_type
from paimon_stream.options import Options
from paimon_stream.storage.local import LocalStorage
from paimon_stream.write import cast_scalar
from paimon_stream.write.task import TaskResult, WriteSpec, write_task
from tests.kits.params import each_once, few

NAN = float("nan")
UTC = dt.timezone.utc
Rows = list[tuple[Any, ...]]

ALL_TYPES = [
    ("bo", "BOOLEAN"),
    ("ti", "TINYINT"),
    ("sm", "SMALLINT"),
    ("it", "INT"),
    ("bi", "BIGINT NOT NULL"),
    ("fl", "FLOAT"),
    ("do", "DOUBLE"),
    ("d1", "DECIMAL(1, 0)"),
    ("d9", "DECIMAL(9, 2)"),
    ("d10", "DECIMAL(10, 10)"),
    ("d18", "DECIMAL(18, 4)"),
    ("d19", "DECIMAL(19, 0)"),
    ("d38", "DECIMAL(38, 18)"),
    ("st", "STRING"),
    ("by", "BYTES"),
    ("da", "DATE"),
    ("ts", "TIMESTAMP(6)"),
    ("tz", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
]
LOW = (
    False,
    -128,
    -(2**15),
    -(2**31),
    -(2**63),
    -1.5,
    -1e300,
    Decimal(-9),
    Decimal("-9999999.99"),
    Decimal("-0.9999999999"),
    Decimal("-99999999999999.9999"),
    Decimal("-9999999999999999999"),
    Decimal("-99999999999999999999.999999999999999999"),
    "",
    b"",
    dt.date(1582, 1, 1),
    dt.datetime(1902, 3, 4, 5, 6, 7, 891_234),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
)
HIGH = (
    True,
    127,
    2**15 - 1,
    2**31 - 1,
    2**63 - 1,
    3.25,
    1e300,
    Decimal(9),
    Decimal("9999999.99"),
    Decimal("0.9999999999"),
    Decimal("99999999999999.9999"),
    Decimal("9999999999999999999"),
    Decimal("99999999999999999999.999999999999999999"),
    "größer 😀 als alles andere 漢字",
    b"\xff\x00",
    dt.date(9999, 12, 31),
    dt.datetime(2200, 1, 1, 0, 0, 0, 1),
    dt.datetime(2024, 2, 29, tzinfo=UTC),
)
NULLS = tuple(5 if sql.endswith("NOT NULL") else None for _, sql in ALL_TYPES)


def opened(path: Path) -> WriteSpec:
    storage = LocalStorage(str(path))
    schema = decode_schema(storage.read("schema/schema-0"), "schema/schema-0")
    return WriteSpec(storage=storage, schema=schema, options=Options(schema.options))


def batch_of(schema: TableSchema, rows: Rows) -> pa.RecordBatch:
    columns = [
        pa.array([row[i] for row in rows], arrow_type(one.type))
        for i, one in enumerate(schema.fields)
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(schema.field_names))


def write(path: Path, rows: Rows, batch_rows: int = 1000) -> TaskResult:
    spec = opened(path)
    chunks = [rows[i : i + batch_rows] for i in range(0, len(rows), batch_rows)]
    return write_task(spec, [batch_of(spec.schema, chunk) for chunk in chunks])


def commit(java: Any, path: Path, result: TaskResult) -> None:
    java.commit_messages(path, [message.serialize() for message in result.messages], "ours", 1)


def same(java: Any, schema: list[tuple[str, str]], left: Any, right: Any) -> bool:
    import java_paimon

    return bool(java_paimon.canonical(schema, left) == java_paimon.canonical(schema, right))


def test_java_reads_every_type_back(java: Any, tmp_path: Path) -> None:
    table = tmp_path / "db.db" / "t"
    java.create_table(table, ALL_TYPES)
    rows = [LOW, NULLS, HIGH, NULLS]
    commit(java, table, write(table, rows))
    assert same(java, ALL_TYPES, java.read(table), rows)


@pytest.mark.full
@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "lz4", "none", "uncompressed"])
def test_java_reads_every_compression(java: Any, tmp_path: Path, compression: str) -> None:
    table = tmp_path / "db.db" / "t"
    schema = [("a", "INT"), ("s", "STRING")]
    java.create_table(table, schema, options={"file.compression": compression})
    rows: Rows = [(i, f"text {i % 7}") for i in range(3000)]
    commit(java, table, write(table, rows))
    assert same(java, schema, java.read(table), rows)


def test_java_finds_every_row_in_the_bucket_it_expects(java: Any, tmp_path: Path) -> None:
    table = tmp_path / "db.db" / "t"
    schema = [("dt", "DATE"), ("k", "BIGINT"), ("s", "STRING"), ("m", "DECIMAL(20, 2)")]
    java.create_table(table, schema, ["dt", "s"], [], {"bucket": "4", "bucket-key": "m,k"})
    rows: Rows = [
        (
            dt.date(1969, 12, 30) + dt.timedelta(days=i % 3),
            i - 50 if i % 11 else None,
            ["a", None, "", "x/y=ü"][i % 4],
            Decimal(i).scaleb(-2) if i % 5 else None,
        )
        for i in range(500)
    ]
    result = write(table, rows, batch_rows=70)
    commit(java, table, result)
    assert same(java, schema, java.read(table), rows)
    placed = 0
    for partition, bucket, found in java.read_buckets(table):
        assert {(row["dt"], row["s"]) for row in found} == {(partition["dt"], partition["s"])}
        assert set(java.buckets(found, path=table)) == {bucket}
        placed += len(found)
    assert placed == 500
    assert {file["totalBuckets"] for file in java.files(table)} == {4}


def test_rolled_files_are_all_read(java: Any, tmp_path: Path) -> None:
    table = tmp_path / "db.db" / "t"
    schema = [("a", "BIGINT"), ("s", "STRING")]
    java.create_table(table, schema, options={"target-file-size": "16 kb"})
    rows: Rows = [(i * 7919 % 10_007, f"{i * 31 % 5003}") for i in range(20_000)]
    result = write(table, rows)
    assert len(result.messages[0].new_files) > 3
    commit(java, table, result)
    assert same(java, schema, java.read(table), rows)


def stats(java: Any, path: Path) -> str:
    (file,) = java.files(path)
    return json.dumps([file["valueStats"], file["valueStatsCols"], file["rowCount"]], default=repr)


LONG = "x" * 5000
CASES: dict[str, tuple[list[tuple[str, str]], Rows]] = {
    "all types": (ALL_TYPES, [LOW, NULLS, HIGH]),
    "one row": (ALL_TYPES, [HIGH]),
    "only nulls": ([*ALL_TYPES], [NULLS, NULLS]),
    "NaN": ([("f", "FLOAT"), ("d", "DOUBLE"), ("e", "DOUBLE")], [(NAN, NAN, 1.0), (1.5, NAN, NAN)]),
    "NaN beside zero": ([("f", "FLOAT"), ("d", "DOUBLE")], [(NAN, -0.0), (0.0, NAN), (None, None)]),
    "positive zero": ([("f", "FLOAT"), ("d", "DOUBLE")], [(0.0, 0.0), (1.0, -1.0)]),
    "negative zero": ([("f", "FLOAT"), ("d", "DOUBLE")], [(-0.0, -0.0), (1.0, -1.0)]),
    "both zeros": ([("f", "FLOAT"), ("d", "DOUBLE")], [(-0.0, 0.0), (0.0, -0.0), (None, None)]),
    "infinities": (
        [("f", "FLOAT"), ("d", "DOUBLE")],
        [(math.inf, -math.inf), (-math.inf, math.inf)],
    ),
    "extreme numbers": (
        [("f", "FLOAT"), ("d", "DOUBLE")],
        [(1e-45, 5e-324), (1.5 * 2**127, 1.7e308)],
    ),
    "empty strings": ([("s", "STRING"), ("t", "STRING")], [("", ""), (None, " ")]),
    "16 code points": ([("s", "STRING")], [("é" * 16,), ("😀" * 16,)]),
    "17 code points": ([("s", "STRING")], [("é" * 17,), ("😀" * 17,)]),
    "last code points": ([("s", "STRING")], [("a\U0010ffff" + "\U0010ffff" * 20,)]),
    "no upper bound": ([("s", "STRING")], [("a",), ("\U0010ffff" * 17,)]),
    "byte order": ([("s", "STRING")], [("\uffee",), ("😀",), ("z",), ("Z",)]),
    "beyond 4 KiB": (
        [("s", "STRING"), ("t", "STRING")],
        [(LONG, "a"), ("a" + LONG, LONG), (None, None)],
    ),
    "just 4 KiB": ([("s", "STRING")], [("b" * 4096,), ("a" * 4097,)]),
    "bytes": ([("b", "BYTES"), ("i", "INT")], [(b"\x00", 1), (None, None), (b"\xff", 3)]),
}


@pytest.mark.parametrize(
    ("mode", "case"),
    each_once(
        [None, "full"],
        CASES,
        keep=lambda mode, case: mode is None or case in ("all types", "beyond 4 KiB"),
    ),
)
def test_statistics_equal_those_java_keeps_of_the_same_rows(
    java: Any, tmp_path: Path, case: str, mode: str | None
) -> None:
    schema, rows = CASES[case]
    ours, theirs = tmp_path / "db.db" / "ours", tmp_path / "db.db" / "theirs"
    for table in (ours, theirs):
        java.create_table(
            table, schema, options={} if mode is None else {"metadata.stats-mode": mode}
        )
    commit(java, ours, write(ours, rows))
    java.write(theirs, rows)
    assert stats(java, ours) == stats(java, theirs)
    (mine,), (its,) = java.files(ours), java.files(theirs)
    described = (
        "minKey",
        "maxKey",
        "keyStats",
        "level",
        "deleteRowCount",
        "fileSource",
        "writeCols",
    )
    assert {key: mine[key] for key in described} == {key: its[key] for key in described}


@pytest.mark.parametrize("part", few([0, 1, 2], lambda part: part == 1))
def test_decimal_statistics_equal_those_of_java_for_every_precision(
    java: Any, tmp_path: Path, part: int
) -> None:
    ours, theirs = tmp_path / "db.db" / "ours", tmp_path / "db.db" / "theirs"
    types = [(precision, precision * part // 2) for precision in range(1, 39)]
    schema = [(f"d{precision}", f"DECIMAL({precision}, {scale})") for precision, scale in types]
    rows: Rows = [
        tuple(
            None if sign is None else Decimal(f"{sign * int('9' * p)}E-{scale}")
            for p, scale in types
        )
        for sign in (1, -1, 0, None)
    ]
    for table in (ours, theirs):
        java.create_table(table, schema)
    commit(java, ours, write(ours, rows))
    java.write(theirs, rows)
    assert stats(java, ours) == stats(java, theirs)
    assert same(java, schema, java.read(ours), java.read(theirs))


@pytest.mark.parametrize(
    "options",
    [
        {"metadata.stats-mode": "none"},
        {"metadata.stats-mode": "counts"},
        {"metadata.stats-mode": "truncate(1)"},
        {"metadata.stats-mode": "none", "fields.s.stats-mode": "full"},
        {"metadata.stats-mode": "none", "metadata.stats-dense-store": "false"},
        {"metadata.stats-keep-first-n-columns": "2"},
        {"metadata.stats-keep-first-n-columns": "0"},
        {"metadata.stats-keep-first-n-columns": "2", "fields.a.stats-mode": "none"},
        {"metadata.stats-keep-first-n-columns": "2", "fields.d.stats-mode": "full"},
        {"metadata.stats-keep-first-n-columns": "1", "metadata.stats-dense-store": "false"},
        {"fields.Mixed.stats-mode": "counts"},
    ],
    ids=lambda options: ", ".join(f"{key}={value}" for key, value in options.items()),
)
def test_statistics_modes_equal_those_of_java(
    java: Any, tmp_path: Path, options: dict[str, str]
) -> None:
    schema = [("a", "INT"), ("s", "STRING"), ("Mixed", "DOUBLE"), ("d", "DATE")]
    rows: Rows = [(1, "y" * 30, 1.5, dt.date(1969, 1, 1)), (None, None, None, dt.date(2024, 1, 1))]
    ours, theirs = tmp_path / "db.db" / "ours", tmp_path / "db.db" / "theirs"
    for table in (ours, theirs):
        java.create_table(table, schema, options=options)
    commit(java, ours, write(ours, rows))
    java.write(theirs, rows)
    assert stats(java, ours) == stats(java, theirs)


def test_bounds_cover_all_row_groups(java: Any, tmp_path: Path) -> None:
    table = tmp_path / "db.db" / "t"
    schema = [("i", "INT"), ("f", "DOUBLE"), ("s", "STRING"), ("n", "INT")]
    java.create_table(table, schema, options={"file.block-size": "1 kb"})
    rows: Rows = [
        (i - 500, float(500 - i), f"{i:04}" + ("y" * 5000 if i == 7 else ""), None)
        for i in range(1000)
    ]
    rows[400] = (None, NAN, None, None)
    commit(java, table, write(table, rows, batch_rows=50))
    (file,) = java.files(table)
    assert file["valueStats"]["i"] == {"min": -500, "max": 499, "nullCount": 1}
    assert file["valueStats"]["f"]["min"] == -499.0 and math.isnan(file["valueStats"]["f"]["max"])
    assert file["valueStats"]["s"] == {"min": "0000", "max": "0999", "nullCount": 1}
    assert file["valueStats"]["n"] == {"min": None, "max": None, "nullCount": 1000}


def test_java_keeps_text_that_is_not_utf8_as_it_is(
    tmp_path: Path, java: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So its tables may hold such text. We refuse to write it, and say where it is when we read
    it.
    """
    monkeypatch.setattr(cast_scalar, "_check_text", lambda *_: None)
    table = tmp_path / "db.db" / "t"
    java.create_table(table, [("s", "STRING")])
    broken = pa.array([b"ok", b"\xff\xfe"]).cast(pa.binary()).view(pa.string())
    result = write_task(opened(table), [pa.record_batch({"s": broken})])
    commit(java, table, result)
    (file,) = java.files(table)
    assert file["valueStats"]["s"] == {"min": None, "max": None, "nullCount": 0}
    assert java.read(table) == [{"s": "ok"}, {"s": "\ufffd\ufffd"}]


def test_java_writes_our_messages_again_to_the_same_bytes(java: Any, tmp_path: Path) -> None:
    table = tmp_path / "db.db" / "t"
    java.create_table(table, ALL_TYPES, ["st"], [], {"bucket": "3", "bucket-key": "bi"})
    result = write(table, [LOW, HIGH, NULLS])
    for message in result.messages:
        data = message.serialize()
        assert java.reserialize(data, CommitMessage.VERSION) == data
