"""Expiry of partitions beside Java: the same texts name the same times, and the same partitions
go.
"""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from paimon_stream import PaimonTable
from paimon_stream.maintenance.expire_partitions import nanos_of
from paimon_stream.options import Options

EPOCH = dt.datetime(1970, 1, 1)
TEXTS = (
    "2024-02-29",
    "2024-02-31",
    "2023-2-29",
    "2024-13-01",
    "2024-0-0",
    "2024-1-32",
    "2024-1-2 3:4:5",
    "2024-01-01 24:00:00",
    "2024-01-01 24:00:01",
    "2024-01-01 99:61:61",
    "2024-01-01 10:00",
    "2024-01-01T10:00:00",
    "2024-1-1 1:1:1.123456789",
    "2024-1-1 1:1:1.1234567890",
    "2024-1-1 1:1:1.1",
    "2024-1-1 1:1:1.",
    "0001-1-1",
    "9999-12-31",
    "9999999999-1-1",
    "2024-01-01 ",
    "20240101",
    "20240229",
    "20240231",
    "20241301",
    "120240231",
    "2024229",
    "240229",
    "2024022924",
    "2024022913",
    "2024022925",
    "202402291261",
    "20241-1",
    "1/2/2024",
    "01.02.2024 001:1",
    "2024-001-01",
    "2024-01-01 10:30",
    "2024-01-01 10:30:59",
    "20240101101112123",
    "'2024'0101",
    "it's 20240101",
    "0000-01-01",
    "",
    "1970-01-01",
    "1969-12-31 23:59:59",
    "2024-01-01 30",
    "2024-01-01 10 10",
    "19782",
    "soon",
    "２０２４-01-01",
)
PATTERNS = (
    None,
    "yyyyMMdd",
    "yyyy-MM-dd",
    "uuuu-M-d",
    "yyyyMMddHH",
    "yyyyMMddHHmm",
    "yyyyMMddHHmmssSSS",
    "yyMMdd",
    "yMMdd",
    "yM-d",
    "M/d/yyyy",
    "dd.MM.yyyy H:m",
    "yyyy-MM-dd[ HH:mm[:ss]]",
    "yyyy-MM-dd'T'HH:mm:ss",
    "''yyyy''MMdd",
    "'it''s' yyyyMMdd",
    "yyyy-MM-dd mm",
    "yyyy-MM-dd HH ss",
    "yyyy-MM",
    "yyy-MM-dd",
    "yyyyy-MM-dd",
    "yyyy-MM-dd H[:m]",
    "",
)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_same_texts_name_the_same_times(java: Any, pattern: str | None) -> None:
    theirs = dict(zip(TEXTS, java.partition_times(TEXTS, None, pattern), strict=True))
    options = Options({} if pattern is None else {"partition.timestamp-formatter": pattern})
    assert {text: nanos_of(text, options) for text in TEXTS} == theirs


def java_expires(java: Any, path: Path) -> list[dict[str, str]]:
    """Java's expiry now: the partitions that it drops."""
    table = java._table(path, {"partition.expiration-check-interval": "0 ms"})
    found = table.store().newPartitionExpire("java", table).expire(2**63 - 1)
    return [dict(one) for one in found or ()]


def day(days_ago: int, form: str = "%Y-%m-%d") -> str:
    return f"{dt.datetime.now() - dt.timedelta(days=days_ago):{form}}"


TABLES: dict[str, tuple[str, Sequence[Any], dict[str, str]]] = {
    "default form": (
        "STRING",
        [
            "2000-01-01",
            "2000-2-31",
            day(8),
            day(6),
            "9999-01-01",
            None,
            "soon",
            "",
            "2000-01-01 10:11:12.5",
            "0-1-1",
        ],
        {},
    ),
    "pattern": (
        "STRING",
        ["20000101", "20000231", day(8, "%Y%m%d"), day(6, "%Y%m%d"), "2000-01-01"],
        {"partition.timestamp-formatter": "yyyyMMdd"},
    ),
    "numbers": (
        "INT",
        [20000101, int(day(6, "%Y%m%d")), 7, None],
        {"partition.timestamp-formatter": "yyyyMMdd"},
    ),
    "dates": ("DATE", [dt.date(2000, 1, 1), dt.date(1970, 1, 1)], {}),
    "two columns": (
        "STRING",
        ["2000-01-01", day(6), None],
        {"partition.timestamp-pattern": "$dt $hour:00:00"},
    ),
    "first of all": (
        "STRING",
        [f"2000-01-{one}" for one in (20, 9, 10, 2, 1)],
        {"partition.expiration-max-num": "3"},
    ),
    "batches": (
        "STRING",
        [f"2000-01-{one}" for one in (20, 9, 10, 2, 1)],
        {"partition.expiration-batch-size": "2"},
    ),
    "update time": (
        "STRING",
        ["a", None, "9999-01-01"],
        {
            "partition.expiration-strategy": "update-time",
            "partition.expiration-time": "1 ms",
        },
    ),
    "update time, young": (
        "STRING",
        ["a", "2000-01-01"],
        {"partition.expiration-strategy": "update-time"},
    ),
}


@pytest.mark.parametrize("what", TABLES)
def test_the_same_partitions_go_as_with_java(java: Any, tmp_path: Path, what: str) -> None:
    type_, values, options = TABLES[what]
    ours, theirs = tmp_path / "db.db" / "t", tmp_path / "db.db" / "u"
    schema = [("id", "INT"), ("dt", type_), ("hour", "INT")]
    java.create_table(
        ours, schema, ["dt", "hour"], [], {"partition.expiration-time": "7 d", **options}
    )
    hours = (1, None, 23) if what == "two columns" else (1,)
    java.write(
        ours, [{"id": n, "dt": one, "hour": hour} for n, one in enumerate(values) for hour in hours]
    )
    shutil.copytree(ours, theirs)
    table = PaimonTable.load(str(ours))
    report = table.expire_partitions()
    gone = java_expires(java, theirs)
    assert len(report.partitions) == len(gone)
    assert java.read(ours) == java.read(theirs)
    kinds = [(one["commitKind"], one["deltaRecordCount"]) for one in java.snapshots(ours)]
    assert kinds == [(one["commitKind"], one["deltaRecordCount"]) for one in java.snapshots(theirs)]
    named = [[str(one) for one in of.values() if one is not None] for of in report.partitions]
    if type_ == "STRING":
        assert named == [
            [one for one in of.values() if one != "__DEFAULT_PARTITION__"] for of in gone
        ]
    assert table.verify().findings == ()
    java.write(ours, [{"id": 100, "dt": values[0], "hour": 1}])
    assert len(java.read(ours)) == len(java.read(theirs)) + 1


def test_java_and_we_expire_by_turns(java: Any, tmp_path: Path) -> None:
    path = tmp_path / "db.db" / "t"
    options = {"partition.expiration-time": "7 d", "bucket": "1"}
    java.create_table(path, [("id", "INT"), ("dt", "STRING")], ["dt"], ["id", "dt"], options)
    for turn in range(4):
        java.write(path, [{"id": turn, "dt": "2000-01-01"}, {"id": turn, "dt": day(0)}], "me", turn)
        if turn % 2:
            assert java_expires(java, path) == [{"dt": "2000-01-01"}]
        else:
            assert PaimonTable.load(str(path)).expire_partitions().partitions == (
                {"dt": "2000-01-01"},
            )
    assert sorted(row["id"] for row in java.read(path)) == [0, 1, 2, 3]
    assert PaimonTable.load(str(path)).verify().findings == ()
