"""Partitions as people name them become the values of partition rows."""

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
        ("DATE", "19782", 19782),
        ("TIME(3)", dt.time(1, 2, 3, 4000), 3723004),
        ("TIME(3)", "01:02:03.004", 3723004),
        ("TIME(3)", "3723004", 3723004),
        ("TIMESTAMP(3)", dt.datetime(1969, 12, 31, 23, 59, 59, 999000), -1_000_000),
        ("TIMESTAMP(9)", "2024-02-29T12:34", 1709210040_000_000_000),
        ("TIMESTAMP(9)", "2024-02-29 12:34:00.000000001", 1709210040_000_000_001),
        ("TIMESTAMP(6)", np.datetime64("1970-01-01T00:00:00.000001"), 1000),
        ("TIMESTAMP_LTZ(3)", dt.datetime(1970, 1, 1, 9, tzinfo=dt.timezone(dt.timedelta(hours=9))), 0),
    ],
)
def test_a_value_or_its_text_becomes_the_internal_value(type_: str, given: Any, internal: Any) -> None:
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
        ("TIME(3)", "25:"),
        ("TIMESTAMP(3)", dt.datetime(2024, 1, 1, tzinfo=UTC)),
        ("TIMESTAMP_LTZ(3)", dt.datetime(2024, 1, 1)),
        ("TIMESTAMP(3)", "noon"),
    ],
)
def test_what_is_no_value_of_the_column_is_refused(type_: str, given: Any) -> None:
    with pytest.raises(InvalidData) as refused:
        parse_partition(fields(type_), {"p0": given}, DEFAULT, table="/w/t")
    assert (refused.value.context["column"], refused.value.context["table"]) == ("p0", "/w/t")


def test_a_name_that_is_no_partition_column_is_refused() -> None:
    with pytest.raises(IncompatibleSchema, match=r"/w/t: 'day' is not a partition column.*p0, p1"):
        parse_partition(fields("INT", "INT"), {"day": 1}, DEFAULT, table="/w/t")


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
