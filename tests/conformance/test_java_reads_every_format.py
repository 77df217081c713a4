"""Every type in every file format: Java reads our rows back, and keeps the same statistics of
them.
"""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.kits.files import Columns, Row, commit, same, stats, write
from tests.kits.params import each_once, one_in

UTC = dt.timezone.utc
ORC = {"file.format": "orc", "orc.timestamp-ltz.legacy.type": "false"}
FORMATS = {"parquet": {"file.format": "parquet"}, "orc": ORC, "avro": {"file.format": "AVRO"}}

COLUMNS: Columns = [
    ("bo", "BOOLEAN"),
    ("ti", "TINYINT"),
    ("sm", "SMALLINT"),
    ("it", "INT"),
    ("bi", "BIGINT NOT NULL"),
    ("fl", "FLOAT"),
    ("do", "DOUBLE"),
    ("d9", "DECIMAL(9, 2)"),
    ("d18", "DECIMAL(18, 4)"),
    ("d38", "DECIMAL(38, 18)"),
    ("ch", "CHAR(3)"),
    ("vc", "VARCHAR(5)"),
    ("st", "STRING NOT NULL"),
    ("bf", "BINARY(2)"),
    ("vb", "VARBINARY(4)"),
    ("by", "BYTES"),
    ("da", "DATE"),
    ("t0", "TIME(0)"),
    ("t3", "TIME(3)"),
    ("s0", "TIMESTAMP(0)"),
    ("s1", "TIMESTAMP(1)"),
    ("s3", "TIMESTAMP(3)"),
    ("s4", "TIMESTAMP(4)"),
    ("s6", "TIMESTAMP(6) NOT NULL"),
    ("z0", "TIMESTAMP_LTZ(0)"),
    ("z3", "TIMESTAMP_LTZ(3)"),
    ("z6", "TIMESTAMP_LTZ(6)"),
]
FINE: Columns = [
    ("s7", "TIMESTAMP(7)"),
    ("s9", "TIMESTAMP(9)"),
    ("z9", "TIMESTAMP_LTZ(9)"),
    ("t9", "TIME(9)"),
]
BEFORE = dt.datetime(1902, 3, 4, 5, 6, 7)
AFTER = dt.datetime(2200, 1, 1, 23, 59, 59)
LOW: Row = (
    False,
    -128,
    -(2**15),
    -(2**31),
    -(2**63),
    -1.5,
    -1e300,
    Decimal("-9999999.99"),
    Decimal("-99999999999999.9999"),
    Decimal("-99999999999999999999.999999999999999999"),
    "",
    "",
    "",
    b"",
    b"",
    b"",
    dt.date(1583, 1, 1),
    dt.time(0),
    dt.time(0, 0, 0, 1000),
    BEFORE,
    BEFORE.replace(microsecond=900_000),
    BEFORE.replace(microsecond=891_000),
    BEFORE.replace(microsecond=891_200),
    BEFORE.replace(microsecond=891_234),
    BEFORE.replace(tzinfo=UTC),
    BEFORE.replace(microsecond=1000, tzinfo=UTC),
    BEFORE.replace(microsecond=999_999, tzinfo=UTC),
)
HIGH: Row = (
    True,
    127,
    2**15 - 1,
    2**31 - 1,
    2**63 - 1,
    3.25,
    1e300,
    Decimal("9999999.99"),
    Decimal("99999999999999.9999"),
    Decimal("99999999999999999999.999999999999999999"),
    "é😀z",
    "größe",
    "größer 😀 als alles andere 漢字",
    b"\xff\xff",
    b"\xff\x00\x01\x02",
    b"\xff\x00",
    dt.date(9999, 12, 31),
    dt.time(23, 59, 59),
    dt.time(23, 59, 59, 999_000),
    AFTER,
    AFTER.replace(microsecond=900_000),
    AFTER.replace(microsecond=999_000),
    AFTER.replace(microsecond=999_900),
    AFTER.replace(microsecond=999_999),
    AFTER.replace(tzinfo=UTC),
    AFTER.replace(microsecond=999_000, tzinfo=UTC),
    AFTER.replace(microsecond=999_999, tzinfo=UTC),
)
MIDDLE: dict[str, Any] = {"BIGINT": 5, "STRING": "m", "TIMESTAMP(6)": dt.datetime(1970, 1, 1)}
NULLS: Row = tuple(
    MIDDLE[sql.partition(" NOT")[0]] if "NOT NULL" in sql else None for _, sql in COLUMNS
)
FINE_LOW: Row = (
    "1902-03-04T05:06:07.123456700",
    "1969-12-31T23:59:59.999999999",
    "1902-03-04T05:06:07.000000001",
    dt.time(0, 0, 0, 1000),
)
FINE_HIGH: Row = (
    "2200-01-01T00:00:00.999999900",
    "2200-01-01T00:00:00.999999999",
    "2024-02-29T23:59:59.123456789",
    dt.time(23, 59, 59, 999_000),
)

NESTED: Columns = [
    ("id", "INT NOT NULL"),
    ("ai", "ARRAY<INT>"),
    ("an", "ARRAY<STRING NOT NULL> NOT NULL"),
    ("mp", "MAP<STRING, BIGINT>"),
    ("mi", "MAP<INT NOT NULL, STRING>"),
    ("ms", "MULTISET<STRING>"),
    ("ro", "ROW<a INT, b STRING NOT NULL, c ROW<d DECIMAL(10, 2), e TIME(3)>>"),
    ("de", "ARRAY<ROW<k MAP<STRING, ARRAY<TIMESTAMP(3)>>, t ARRAY<ARRAY<DOUBLE>>>>"),
    ("mm", "MAP<VARCHAR(3), MAP<BIGINT, ROW<x BYTES, y DECIMAL(30, 3)>>>"),
    ("rn", "ROW<m ROW<n INT NOT NULL, o ARRAY<INT> NOT NULL> NOT NULL>"),
]
MOMENT = dt.datetime(2024, 2, 29, 23, 59, 59, 987_000)
NESTED_ROWS: list[Row] = [
    (
        1,
        [1, None, -1],
        ["a", ""],
        {"": None, "a": 1},
        {1: "x", -5: None},
        {"e": 2, "f": 1},
        (1, "x", (Decimal("9.99"), dt.time(1, 2, 3, 4000))),
        [({"k": [MOMENT, None], "l": None}, [[1.5, None], None, []]), None, (None, None)],
        {"abc": {1: (b"\x00", Decimal("1.234")), 2: None}, "": {}},
        ((5, [1]),),
    ),
    (2, None, [], None, None, None, None, None, None, None),
    (3, [], ["z"] * 40, {}, {}, {}, (None, "", (None, None)), [], {"x": None}, ((0, []),)),
    (
        4,
        [2**31 - 1],
        ["q"],
        {"k" * 300: 2**62},
        {7: ""},
        {"": 9},
        (2, "y", None),
        [({}, [])],
        {},
        None,
    ),
]


def storable(format_: str, row: Row) -> Row:
    """Without what ORC files cannot hold: fractions of seconds before 1970."""
    if format_ != "orc":
        return row
    return tuple(_whole_before_1970(value) for value in row)


def _whole_before_1970(value: Any) -> Any:
    if isinstance(value, dt.datetime) and value.year < 1970:
        return value.replace(microsecond=0)
    return value[:19] + ".000000000" if isinstance(value, str) and value[:2] == "19" else value


def made(java: Any, path: Path, columns: Columns, options: dict[str, str]) -> Path:
    java.create_table(path, columns, options=options)
    return path


@pytest.mark.parametrize("format_", FORMATS)
def test_java_reads_every_scalar_type_back(java: Any, tmp_path: Path, format_: str) -> None:
    table = made(java, tmp_path / "t", COLUMNS, FORMATS[format_])
    rows = [storable(format_, LOW), NULLS, HIGH, NULLS]
    result = write(table, rows)
    assert result.messages[0].new_files[0].file_name.endswith(f".{format_}")
    commit(java, table, result)
    assert same(COLUMNS, java.read(table), rows)


@pytest.mark.parametrize("format_", ["parquet", "orc"])
def test_java_reads_fine_timestamps_beside_coarse_ones(
    java: Any, tmp_path: Path, format_: str
) -> None:
    columns = COLUMNS + FINE
    table = made(java, tmp_path / "t", columns, FORMATS[format_])
    rows = [storable(format_, LOW + FINE_LOW), NULLS + (None,) * 4, HIGH + FINE_HIGH]
    commit(java, table, write(table, rows))
    assert same(columns, java.read(table), rows)


@pytest.mark.parametrize("format_", FORMATS)
def test_java_reads_nested_types_back(java: Any, tmp_path: Path, format_: str) -> None:
    table = made(java, tmp_path / "t", NESTED, FORMATS[format_])
    commit(java, table, write(table, NESTED_ROWS))
    assert same(NESTED, java.read(table), NESTED_ROWS)


@pytest.mark.parametrize(("batch_rows", "format_"), each_once([1, 3], FORMATS))
def test_java_reads_nested_rows_of_many_batches_and_files(
    java: Any, tmp_path: Path, format_: str, batch_rows: int
) -> None:
    table = made(java, tmp_path / "t", NESTED, {**FORMATS[format_], "target-file-size": "2 kb"})
    rows = [(i, *NESTED_ROWS[i % 4][1:]) for i in range(200)]
    result = write(table, rows, batch_rows)
    assert len(result.messages[0].new_files) > 1
    commit(java, table, result)
    assert same(NESTED, java.read(table), rows)


@pytest.mark.parametrize(
    ("format_", "compression"),
    one_in(
        3,
        [
            *(
                ("parquet", one)
                for one in ("zstd", "snappy", "gzip", "lz4", "none", "UNCOMPRESSED")
            ),
            *(("orc", one) for one in ("zstd", "snappy", "zlib", "lz4", "none")),
            *(("avro", one) for one in ("ZSTD", "snappy", "deflate", "null")),
        ],
    ),
)
def test_java_reads_every_compression(
    java: Any, tmp_path: Path, format_: str, compression: str
) -> None:
    columns = [("a", "INT"), ("s", "STRING")]
    options = {"file.compression": compression, "file.suffix.include.compression": "true"}
    table = made(java, tmp_path / "t", columns, {**FORMATS[format_], **options})
    rows: list[Row] = [(i, f"text {i % 7}") for i in range(500)]
    result = write(table, rows)
    assert result.messages[0].new_files[0].file_name.endswith(f"-0.{compression.lower()}.{format_}")
    commit(java, table, result)
    assert same(columns, java.read(table), rows)


CASES: dict[str, tuple[Columns, list[Row]]] = {
    "scalars": (COLUMNS, [LOW, NULLS, HIGH]),
    "one row": (COLUMNS, [HIGH]),
    "only nulls": (COLUMNS, [NULLS, NULLS]),
    "nested": ([(n, t.removesuffix(" NOT NULL")) for n, t in NESTED], NESTED_ROWS),
    "fine": (COLUMNS + FINE, [LOW + FINE_LOW, NULLS + (None,) * 4, HIGH + FINE_HIGH]),
    "long text": (
        [("s", "STRING"), ("t", "STRING")],
        [("a", "b" * 1024), ("x" * 1025, "y" * 9), (None, "a")],
    ),
    "longer text": (
        [("s", "STRING"), ("t", "STRING")],
        [("a" * 2000, "c"), ("x", "y" * 5000), (None, "")],
    ),
    "strings": ([("s", "STRING")], [("é" * 17,), ("😀" * 17,), ("\uffee",), ("Z",)]),
    "no upper bound": ([("s", "STRING")], [("a",), ("\U0010ffff" * 17,)]),
    "short char": ([("c", "CHAR(2)")], [("ab",), ("zz",), (None,)]),
}


@pytest.mark.parametrize(
    ("format_", "mode", "case"),
    each_once(
        FORMATS,
        [None, "full", "counts"],
        CASES,
        keep=lambda _, mode, case: mode is None and case in ("scalars", "nested"),
    ),
)
def test_statistics_equal_those_java_keeps_of_the_same_rows(
    java: Any, tmp_path: Path, format_: str, case: str, mode: str | None
) -> None:
    columns, rows = CASES[case][0], [storable(format_, row) for row in CASES[case][1]]
    if format_ == "avro" and case == "fine":
        pytest.skip("Avro has no such types")
    options = {**FORMATS[format_], **({} if mode is None else {"metadata.stats-mode": mode})}
    ours = made(java, tmp_path / "ours", columns, options)
    theirs = made(java, tmp_path / "theirs", columns, options)
    commit(java, ours, write(ours, rows))
    java.write(theirs, rows)
    mine, its = json.loads(stats(java, ours)), json.loads(stats(java, theirs))
    if format_ == "orc":  # docs/format-notes.md: Java's bounds of CHAR are padded, and wrong for it
        for name, sql in columns:
            if sql.startswith("CHAR"):
                bounds = its[0][name]
                its[0][name] = {
                    k: v.rstrip() if isinstance(v, str) else v for k, v in bounds.items()
                }
    assert mine == its
