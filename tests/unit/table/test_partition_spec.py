"""Partitions in the forms that users give become the values of partition rows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from paimon_stream.errors import IncompatibleSchema, InvalidData
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.table.partition_spec import parse_partition

DEFAULT = "__DEFAULT_PARTITION__"
UTC = dt.timezone.utc


def fields(*types: str) -> tuple[DataField, ...]:
    return tuple(DataField(id=i, name=f"p{i}", type=parse_type(one)) for i, one in enumerate(types))


@pytest.mark.parametrize(
    ("type_", "given", "internal"),
    [
        ("BOOLEAN", True, True),
        ("BOOLEAN", "false", False),
        ("TINYINT", "-128", -128),
        ("BIGINT", np.int32(7), 7),
        ("FLOAT", 0.1, float(np.float32(0.1))),
        ("DOUBLE", "1.0E10", 1e10),
        ("DECIMAL(8, 3)", "1.5", Decimal("1.500")),
        ("DECIMAL(8, 3)", 2, Decimal("2.000")),
        ("STRING", "", ""),
        ("STRING", DEFAULT, DEFAULT),
        ("INT", DEFAULT, None),
        ("INT", None, None),
        ("DATE", dt.date(2024, 2, 29), 19782),
        ("DATE", "2024-02-29", 19782),
        ("DATE", "2932897", 2_932_897),
        ("DATE", "+10000-01-01", 2_932_897),
        ("TIME(3)", dt.time(1, 2, 3, 4000), 3723004),
        ("TIME(3)", "01:02:03.004", 3723004),
        ("TIME(3)", "3723004", 3723004),
        ("TIMESTAMP(3)", dt.datetime(1969, 12, 31, 23, 59, 59, 999000), -1_000_000),
        ("TIMESTAMP(9)", "2024-02-29T12:34", 1709210040_000_000_000),
        ("TIMESTAMP(9)", "2024-02-29 12:34:00.000000001", 1709210040_000_000_001),
        ("TIMESTAMP(6)", np.datetime64("1970-01-01T00:00:00.000001"), 1000),
        ("TIMESTAMP(6)", "2024-02-29", 1709164800_000_000_000),
        (
            "TIMESTAMP_LTZ(3)",
            dt.datetime(1970, 1, 1, 9, tzinfo=dt.timezone(dt.timedelta(hours=9))),
            0,
        ),
        ("TIMESTAMP_LTZ(6)", "2024-02-29T00:00:00+00:00", 1709164800_000_000_000),
        ("TIMESTAMP_LTZ(6)", "1969-12-31T23:59:59.999999+00:00", -1000),
        ("TIMESTAMP_LTZ(6)", "1970-01-01T00:00Z", 0),
        ("TIMESTAMP_LTZ(6)", "1970-01-01 09:00+09:00", 0),
        ("TIMESTAMP_LTZ(6)", "1969-12-31T18:30-05:30", 0),
        ("TIMESTAMP_LTZ(6)", "1970-01-01T00:00", 0),
    ],
)
def test_a_value_or_its_text_becomes_the_internal_value(
    type_: str, given: Any, internal: Any
) -> None:
    columns = fields(type_)
    spec = parse_partition(columns, {"p0": given}, DEFAULT, table="/w/t")
    assert spec.row == serialize([columns[0].type], [internal])
    assert spec.matches([internal])


@pytest.mark.parametrize(
    ("type_", "given"),
    [
        ("BOOLEAN", "yes"),
        ("BOOLEAN", 1),
        ("TINYINT", 128),
        ("TINYINT", "128"),
        ("INT", True),
        ("INT", "1.5"),
        ("INT", 1.5),
        ("DECIMAL(4, 2)", "1.234"),
        ("DECIMAL(4, 2)", 100),
        ("STRING", 5),
        ("DATE", dt.datetime(2024, 1, 1)),
        ("DATE", "yesterday"),
        ("DATE", "today"),
        ("DATE", "now"),
        ("DATE", "NaT"),
        ("DATE", ""),
        ("DATE", "2024"),
        ("DATE", "19782"),
        ("DATE", "99999999999"),
        ("DATE", "2024-02"),
        ("DATE", "2024-02-30"),
        ("DATE", "2023-02-29"),
        ("DATE", "2024-2-9"),
        ("DATE", " 2024-02-29"),
        ("DATE", "2024-02-29T10"),
        ("DATE", "+999999999-01-01"),
        ("TIME(3)", "25:"),
        ("TIME(3)", "24:00"),
        ("TIME(3)", "10:60"),
        ("TIME(3)", "10:00:60"),
        ("TIME(3)", "10:00:00.0005"),
        ("TIME(3)", dt.time(10, 0, 0, 500)),
        ("TIME(3)", "86400000"),
        ("TIME(3)", "-1"),
        ("TIMESTAMP(6)", "2024-02"),
        ("TIMESTAMP(6)", "today"),
        ("TIMESTAMP(6)", "NaT"),
        ("TIMESTAMP(6)", np.datetime64("NaT")),
        ("TIMESTAMP(6)", np.datetime64("3000-01-01", "D")),
        ("TIMESTAMP(6)", "1700000000000"),
        ("TIMESTAMP(6)", "2024-02-29T"),
        ("TIMESTAMP(6)", "2024-02-29T24:00"),
        ("TIMESTAMP(6)", "2024-02-29T25:00"),
        ("TIMESTAMP(6)", "2024-02-29T10:61"),
        ("TIMESTAMP(6)", "2024-02-29T10:00:60"),
        ("TIMESTAMP(6)", "2024-02-29T10:00Z"),
        ("TIMESTAMP(6)", "2024-02-29T10:00+00:00"),
        ("TIMESTAMP(3)", "2024-02-29T10:00:00.0005"),
        ("TIMESTAMP(3)", dt.datetime(2024, 2, 29, 10, 0, 0, 500)),
        ("TIMESTAMP(6)", "+999999999-01-01T00:00"),
        ("TIMESTAMP_LTZ(6)", "2024-02-29T10:00+24:00"),
        ("TIMESTAMP_LTZ(6)", "2024-02-29T10:00+00:60"),
        ("TIMESTAMP_LTZ(6)", "2024-02-29T25:00Z"),
        ("TIMESTAMP_LTZ(6)", "2024-02-29Z"),
        ("INT", "٣"),
        ("DOUBLE", "1_0"),
        ("DECIMAL(4, 2)", "1_0"),
        ("DECIMAL(4, 2)", "٣"),
        ("TIMESTAMP(3)", dt.datetime(2024, 1, 1, tzinfo=UTC)),
        ("TIMESTAMP_LTZ(3)", dt.datetime(2024, 1, 1)),
        ("TIMESTAMP(3)", "noon"),
    ],
)
def test_what_is_no_value_of_the_column_is_refused(type_: str, given: Any) -> None:
    with pytest.raises(InvalidData) as refused:
        parse_partition(fields(type_), {"p0": given}, DEFAULT, table="/w/t")
    assert (refused.value.context["column"], refused.value.context["table"]) == ("p0", "/w/t")


@pytest.mark.parametrize(
    ("type_", "given", "form"),
    [
        ("DATE", "2024", "YYYY-MM-DD, such as 2024-02-29"),
        ("TIME(3)", "25:00", "HH:MM[:SS[.fraction]], such as 10:30:00"),
        ("TIMESTAMP(6)", "2024-02-29T25:00", "such as 2024-02-29T10:30:00, without a time zone"),
        ("TIMESTAMP_LTZ(6)", "2024-02-29T25:00Z", "such as 2024-02-29T10:30:00Z"),
    ],
)
def test_a_refused_time_names_the_expected_form(type_: str, given: str, form: str) -> None:
    with pytest.raises(InvalidData) as refused:
        parse_partition(fields(type_), {"p0": given}, DEFAULT, table="/w/t")
    assert str(refused.value).startswith("/w/t: partition column 'p0' is ")
    assert repr(given) in str(refused.value) and form in str(refused.value)


@pytest.mark.parametrize(
    ("type_", "folder", "internal"),
    [
        ("DATE", "2024", 2024),
        ("DATE", "-1", -1),
        ("DATE", "2024-02-29", 19782),
        ("DATE", "-0001-01-01", -719_893),
        ("TIMESTAMP(6)", "2024-02-29T12%3A34", 1709210040_000_000_000),
        ("TIMESTAMP_LTZ(6)", "2024-02-29T12%3A34", 1709210040_000_000_000),
    ],
)
def test_a_folder_may_count_the_days_of_a_date(type_: str, folder: str, internal: int) -> None:
    columns = fields(type_)
    spec = parse_partition(columns, f"p0={folder}", DEFAULT, table="/w/t")
    assert spec.row == serialize([columns[0].type], [internal])


def test_a_path_with_a_column_twice_is_refused() -> None:
    with pytest.raises(IncompatibleSchema, match=r"/w/t: 'p0=1/p0=2' names the column 'p0' twice"):
        parse_partition(fields("INT"), "p0=1/p0=2", DEFAULT, table="/w/t")


def test_a_name_that_is_no_partition_column_is_refused() -> None:
    with pytest.raises(IncompatibleSchema, match=r"/w/t: 'day' is not a partition column.*p0, p1"):
        parse_partition(fields("INT", "INT"), {"day": 1}, DEFAULT, table="/w/t")


@pytest.mark.parametrize("given", [{"x" * 70_000: 1}, "x" * 70_000, "p0=1/p0=" + "x" * 70_000])
def test_a_refused_name_is_not_repeated_in_full(given: Any) -> None:
    with pytest.raises(IncompatibleSchema) as refused:
        parse_partition(fields("INT"), given, DEFAULT, table="/w/t")
    assert len(str(refused.value)) < 1_000


def test_columns_left_out_may_have_any_value() -> None:
    spec = parse_partition(fields("STRING", "INT"), {"p1": 3}, DEFAULT, table="/w/t")
    assert spec.row is None
    assert spec.matches(["a", 3]) and spec.matches([None, 3])
    assert not spec.matches(["a", 4]) and not spec.matches(["a", None])


def test_a_path_names_the_partitions_of_its_folder() -> None:
    columns = fields("STRING", "DATE")
    spec = parse_partition(columns, "p0=a%2Fb%25/p1=19782/", DEFAULT, table="/w/t")
    assert spec.row == serialize([one.type for one in columns], ["a/b%", 19782])
    of_null = parse_partition(columns, f"p0={DEFAULT}/p1={DEFAULT}", DEFAULT, table="/w/t")
    for value in (None, "", "  ", DEFAULT):
        assert of_null.matches([value, None])
    assert not of_null.matches(["x", None]) and not of_null.matches([None, 1])


@pytest.mark.parametrize("path", ["", "p0", "=1", "p0/p1"])
def test_a_text_that_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(IncompatibleSchema, match=r"/w/t: .*does not name a partition"):
        parse_partition(fields("INT"), path, DEFAULT, table="/w/t")
