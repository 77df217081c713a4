"""The times that values of partitions name. What Java says of the same texts is in
tests/conformance/test_partition_expiry_beside_java.py."""

from __future__ import annotations

import datetime as dt

import pytest

from paimon_stream.maintenance.expire_partitions import nanos_of
from paimon_stream.options import Options
from paimon_stream.options.option import time_form

EPOCH = dt.datetime(1970, 1, 1)


def named(pattern: str | None, text: str) -> str | None:
    nanos = nanos_of(
        text, Options({} if pattern is None else {"partition.timestamp-formatter": pattern})
    )
    return (
        None if nanos is None else (EPOCH + dt.timedelta(microseconds=nanos // 1000)).isoformat(" ")
    )


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2024-02-29", "2024-02-29 00:00:00"),
        ("2024-2-9", "2024-02-09 00:00:00"),
        ("2024-01-02 3:4:5", "2024-01-02 03:04:05"),
        ("2024-1-1 1:1:1.123456", "2024-01-01 01:01:01.123456"),
        ("2024-1-1 1:1:1.5", "2024-01-01 01:01:01.500000"),
        ("2024-02-31", "2024-03-02 00:00:00"),
        ("2023-02-29", "2023-03-01 00:00:00"),
        ("2024-13-01", "2025-01-01 00:00:00"),
        ("2024-0-0", "2023-11-30 00:00:00"),
        ("2024-01-01 24:61:61", "2024-01-02 01:02:01"),
        ("1969-12-31 23:59:59", "1969-12-31 23:59:59"),
    ],
)
def test_the_default_form_is_lenient(text: str, time: str) -> None:
    assert named(None, text) == time


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2024-01-01 10:00",
        "2024-01-01T10:00:00",
        "2024-1-1 1:1:1.1234567890",
        "20240101",
        "19782",
        " 2024-01-01",
        "2024-01-01 ",
        "2024-001-1",
        "9999999999-1-1",
        "２０２４-01-01",
        "-5-1-1",
        "2024-01-01\n",
    ],
)
def test_other_texts_name_no_time(text: str) -> None:
    assert named(None, text) is None


def test_years_that_python_does_not_have() -> None:
    assert nanos_of("0-1-1", Options({})) == -62_167_219_200 * 10**9
    assert nanos_of("12345-1-1", Options({})) == 327_403_382_400 * 10**9
    assert nanos_of("999999999-12-31", Options({})) == 365_241_780_471 * 86_400 * 10**9


@pytest.mark.parametrize(
    ("pattern", "text", "time"),
    [
        ("yyyyMMdd", "20240229", "2024-02-29 00:00:00"),
        ("yyyyMMdd", "20240231", "2024-02-29 00:00:00"),
        ("yyyyMMdd", "120240231", None),
        ("yyyyMMdd", "2024229", None),
        ("yyyyMMdd", "20241301", None),
        ("yyyyMMddHH", "2024022913", "2024-02-29 13:00:00"),
        ("yyyyMMddHH", "2024022924", "2024-03-01 00:00:00"),
        ("yyyyMMddHHmm", "202401012460", None),
        ("yyyyMMddHHmm", "202401012401", None),
        ("yyyyMMddHHmmssSSS", "20240101101112123", "2024-01-01 10:11:12.123000"),
        ("yyMMdd", "240229", "2024-02-29 00:00:00"),
        ("yMMdd", "20240229", "2024-02-29 00:00:00"),
        ("yM-d", "20241-1", None),
        ("yyyy-MM-dd[ HH:mm[:ss]]", "2024-01-01 10:00:01", "2024-01-01 10:00:01"),
        ("yyyy-MM-dd[ HH:mm[:ss]]", "2024-01-01 10:00", "2024-01-01 10:00:00"),
        ("yyyy-MM-dd[ HH:mm[:ss]]", "2024-01-01", "2024-01-01 00:00:00"),
        ("yyyy-MM-dd'T'HH:mm", "2024-01-01T10:30", "2024-01-01 10:30:00"),
        ("''yyyy''MMdd", "'2024'0101", "2024-01-01 00:00:00"),
        ("'it''s' yyyyMMdd", "it's 20240101", "2024-01-01 00:00:00"),
        ("M/d/uuuu", "1/2/2024", "2024-01-02 00:00:00"),
        ("yyyy.MM.dd", "2024-01-01", None),
        ("yyyy-MM-dd", "0000-01-01", None),
        ("yyyy-MM-dd mm", "2024-01-01 30", "2024-01-01 00:00:00"),
        ("yyyy-MM-dd HH ss", "2024-01-01 10 10", "2024-01-01 00:00:00"),
        ("yyyy-MM", "2024-01", None),
        ("HH", "10", None),
        ("", "x", None),
        ("dd.MM.yyyy H:m", "01.02.2024 001:1", "2024-02-01 01:01:00"),
    ],
)
def test_a_pattern_is_read_as_java_reads_it(pattern: str, text: str, time: str | None) -> None:
    assert named(pattern, text) == time


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("yyyy-MMM-dd", "'MMM' is not read here"),
        ("yyyy-MM-dd hh", "'hh'"),
        ("yyyy-DDD", "'DDD'"),
        ("YYYY-MM-dd", "'YYYY'"),
        ("yyyy-MM-ddd", "'ddd'"),
        ("yyyyMMddSSSSSSSSSS", "'SSSSSSSSSS'"),
        ("yyyy-MM-dd'", '"\'" is not read'),
        ("yyyy{MMdd", "'{' is not read"),
        ("yyyy-MM-dd]", "is not closed or opened"),
        ("[yyyy-MM-dd", "is not closed or opened"),
        ("[ ]" * 40 + "yyyy-MM-dd", "more than 10 sections"),
        ("[" * 3000 + "]" * 3000, "more than 10 sections"),
        ("yyyy-MM-dd[ HH:mm][ HH:mm:ss]", "a letter comes twice"),
    ],
)
def test_what_is_not_read_of_a_pattern_is_named(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=why.replace("[", r"\[").replace("{", r"\{")):
        time_form(pattern)
