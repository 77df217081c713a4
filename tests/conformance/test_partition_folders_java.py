"""Java Paimon writes partitions to the folders that we name."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.format.partition_path import partition_path
from paimon_stream.format.types import parse_type

EPOCH = dt.datetime(1970, 1, 1)
NUMBERS = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    100.0,
    0.001,
    0.00099,
    0.0123,
    9999999.0,
    12345678.0,
    1e7,
    1e-5,
    123456.789,
    0.1,
    1 / 3,
    1e22,
    3.4e38,
    5e-324,
    1.4e-45,
    2.2250738585072014e-308,
    1.7976931348623157e308,
    4503599627370497.5,
    float("inf"),
    float("-inf"),
    float("nan"),
]
MOMENTS = [
    EPOCH,
    dt.datetime(1, 1, 1),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),
    dt.datetime(2024, 2, 29, 12, 34, 56, 789_123),
    dt.datetime(2024, 2, 29, 12, 0),
    dt.datetime(2024, 2, 29, 0, 0, 56),
    dt.datetime(1969, 12, 31, 23, 59, 59, 1),
    dt.datetime(1900, 3, 1, 1, 2, 3, 100_000),
    dt.datetime(2000, 2, 29, 1, 2, 3, 120_000),
]
TIMES = [
    dt.time(0),
    dt.time(12, 34, 56),
    dt.time(12, 34, 56, 789_000),
    dt.time(1, 0, 0, 100_000),
    dt.time(23, 59, 59, 50_000),
]
ALL_ASCII = [chr(code) for code in range(1, 0x80)]
WHITESPACE = list("\x85\xa0\u1680\u180e\u2000\u2007\u200a\u200b\u2028\u202f\u205f\u3000\ufeff")
CASES: list[tuple[str, list[Any], bool]] = [
    ("DOUBLE", NUMBERS, True),
    (
        "FLOAT",
        [n for n in NUMBERS if n in (float("inf"), float("-inf")) or abs(n) < 3.5e38 or n != n],
        True,
    ),
    ("TIMESTAMP(6)", MOMENTS, True),
    ("TIMESTAMP(6)", MOMENTS, False),
    (
        "TIMESTAMP(3)",
        [one.replace(microsecond=one.microsecond // 1000 * 1000) for one in MOMENTS],
        False,
    ),
    ("TIMESTAMP(0)", [one.replace(microsecond=0) for one in MOMENTS], False),
    ("TIMESTAMP_LTZ(6)", [one.replace(tzinfo=dt.timezone.utc) for one in MOMENTS], True),
    ("DATE", [one.date() for one in MOMENTS], True),
    ("DATE", [one.date() for one in MOMENTS], False),
    ("TIME(3)", TIMES, True),
    ("TIME(3)", TIMES, False),
    ("TIME(0)", TIMES[:2], False),
    ("TIME(1)", TIMES, False),
    ("TIME(2)", TIMES, False),
    (
        "DECIMAL(20, 5)",
        [Decimal(0), Decimal("-0.00001"), Decimal("999999999999999.99999"), Decimal(7)],
        True,
    ),
    ("BIGINT", [-(2**63), 2**63 - 1, 0], False),
    ("BOOLEAN", [True, False, None], False),
    ("STRING", [*ALL_ASCII, "a b", "", " \t", "x\u2007", "😀/é", "%41", "..", None], True),
    ("STRING", WHITESPACE, True),
]


@pytest.mark.parametrize(("text", "values", "legacy"), CASES, ids=lambda one: str(one)[:20])
def test_partitions_are_in_the_folders_of_java(
    java: Any, tmp_path: Path, text: str, values: list[Any], legacy: bool
) -> None:
    table = tmp_path / "db.db" / "t"
    options = {"partition.legacy-name": str(legacy).lower(), "write-only": "true"}
    java.create_table(table, [("id", "INT"), ("p", text)], ["p"], options=options)
    java.write(table, [{"id": i, "p": value} for i, value in enumerate(values)])
    type_ = parse_type(text)
    expected = {path_of(file["path"]) for file in java.files(table)}
    ours = {partition_path(["p"], [type_], [internal(value)], legacy=legacy) for value in values}
    assert ours == expected


SPELLED = [
    ("DOUBLE", [2e23, 8.41e21, 0.5, -2e23]),
    ("FLOAT", [2.0**-126, 2.0**-44, 0.5]),
]


@pytest.mark.parametrize(("text", "values"), SPELLED, ids=["double", "float"])
def test_floats_that_versions_of_java_spell_otherwise_are_found_in_the_folders_of_java(
    java: Any, tmp_path: Path, text: str, values: list[float]
) -> None:
    """We write into the folders of Java, so Java finds our rows, and expires our files."""
    path = tmp_path / "db.db" / "t"
    options = {"bucket": "-1", "compaction.min.file-num": "2"}
    java.create_table(path, [("id", "INT"), ("p", text)], ["p"], options=options)
    java.write(path, [(number, value) for number, value in enumerate(values)])
    folders = sorted(one.name for one in path.glob("p=*"))
    table = PaimonTable.load(str(path))
    kind = pa.float64() if text == "DOUBLE" else pa.float32()
    ids = pa.array(range(10, 10 + len(values)), pa.int32())
    table.append(pa.table({"id": ids, "p": pa.array(values, kind)}))
    java.write(path, [(20, values[0])])
    for read in (table.to_arrow().to_pylist(), java.read(path)):
        assert sorted(row["id"] for row in read) == sorted(
            [*range(len(values)), *ids.to_pylist(), 20]
        )
    assert sorted(one.name for one in path.glob("p=*")) == folders
    assert not table.verify(sample=100).findings
    table.compact(full=True)
    table.drop_partitions([{"p": values[0]}])
    left = sorted([*range(1, len(values)), *ids.to_pylist()[1:]])
    assert sorted(row["id"] for row in java.read(path)) == left
    java.expire_snapshots(path, 1)
    assert not table.verify(sample=100).findings
    assert table.remove_orphan_files(older_than=dt.timedelta(hours=1)).count == 0
    assert sorted(row["id"] for row in table.to_arrow().to_pylist()) == left
    dropped = [one for one in path.glob("p=*/bucket-0/*") if float(one.parts[-3][2:]) == values[0]]
    assert dropped == []


def path_of(bucket_path: str) -> str:
    return bucket_path.removesuffix("/bucket-0")


def internal(value: Any) -> Any:
    """What the oracle takes, in the internal form of rows."""
    match value:
        case dt.datetime():
            since = value.replace(tzinfo=None) - EPOCH
            return since // dt.timedelta(microseconds=1) * 1000
        case dt.date():
            return (value - EPOCH.date()).days
        case dt.time():
            return (
                value.hour * 3600 + value.minute * 60 + value.second
            ) * 1000 + value.microsecond // 1000
        case _:
            return value
