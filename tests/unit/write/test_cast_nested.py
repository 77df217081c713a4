"""Lengths, digits, times and nested columns: what is kept, and what is refused with path and
count.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream.errors import (
    IncompatibleSchema,
    NullInNotNull,
    NumericOverflow,
    UnsupportedFeature,
    ValueTooLong,
)
from paimon_stream.format.schema_json import TableSchema, reassign_ids
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.write.conform import ColumnPlan
from paimon_stream.write.file_stats import file_schema


def table(sql: str, default: str | None = None) -> TableSchema:
    fields, highest = reassign_ids(
        (DataField(id=0, name="c", type=parse_type(sql), default_value=default),)
    )
    return TableSchema(id=0, fields=fields, highest_field_id=highest)


def fitted(sql: str, column: pa.Array, default: str | None = None) -> pa.Array:
    made = (
        ColumnPlan.of(table(sql, default), "/w/t").conform(pa.record_batch({"c": column})).column(0)
    )
    made.validate(full=True)
    return made


ROWS = pa.struct([("b", pa.large_string()), ("a", pa.int64())])
PAIRS = pa.map_(pa.string(), pa.int64())
KEPT: list[tuple[str, pa.Array, list[Any]]] = [
    ("CHAR(3)", pa.array(["é😀z", "", None]), ["é😀z", "", None]),
    ("VARCHAR(2)", pa.array(["ab", "漢字"]), ["ab", "漢字"]),
    ("BINARY(2)", pa.array([b"ab", b"a"]), [b"ab", b"a"]),
    ("TIME(3)", pa.array([0, 86_399_999, None]), [dt.time(0), dt.time(23, 59, 59, 999_000), None]),
    ("TIME(0)", pa.array([1], pa.time32("s")), [dt.time(0, 0, 1)]),
    ("TIME(9)", pa.array([1_000_000], pa.time64("ns")), [dt.time(0, 0, 0, 1000)]),
    ("TIMESTAMP(0)", pa.array([-1], pa.timestamp("s")), [dt.datetime(1969, 12, 31, 23, 59, 59)]),
    (
        "TIMESTAMP(3)",
        pa.array([-1000], pa.timestamp("us")),
        [dt.datetime(1969, 12, 31, 23, 59, 59, 999_000)],
    ),
    ("TIMESTAMP(9)", pa.array([1], pa.timestamp("us")), [dt.datetime(1970, 1, 1, 0, 0, 0, 1)]),
    ("ARRAY<INT>", pa.array([[1, None], None, []], pa.list_(pa.int64())), [[1, None], None, []]),
    ("ARRAY<INT>", pa.array([[1], None], pa.large_list(pa.int8())), [[1], None]),
    ("ARRAY<INT>", pa.array([[1, 2], None], pa.list_(pa.int32(), 2)), [[1, 2], None]),
    ("ARRAY<STRING>", pa.array([["a"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))), [["a"]]),
    ("ARRAY<TIME(3)>", pa.array([[5]]), [[dt.time(0, 0, 0, 5000)]]),
    ("MAP<STRING, INT>", pa.array([[("a", 1)], None, []], PAIRS), [[("a", 1)], None, []]),
    ("MULTISET<STRING>", pa.array([[("a", 1)]], PAIRS), [[("a", 1)]]),
    (
        "ROW<a INT, b STRING>",
        pa.array([{"a": 1, "b": "x"}, None], ROWS),
        [{"a": 1, "b": "x"}, None],
    ),
    ("ROW<a INT NOT NULL, b STRING>", pa.array([None, None], ROWS), [None, None]),
    ("ARRAY<ROW<a INT, b STRING>>", pa.array([[None], None], pa.list_(ROWS)), [[None], None]),
    ("MAP<STRING, ARRAY<INT>>", pa.nulls(2), [None, None]),
]


@pytest.mark.parametrize(
    ("sql", "column", "expected"), KEPT, ids=[f"{c.type} to {s}" for s, c, _ in KEPT]
)
def test_what_fits_is_kept(sql: str, column: pa.Array, expected: list[Any]) -> None:
    made = fitted(sql, column)
    assert made.type == file_schema(table(sql)).field(0).type
    assert made.to_pylist() == expected


@pytest.mark.parametrize(
    ("sql", "column", "expected"), KEPT, ids=[f"{c.type} to {s}" for s, c, _ in KEPT]
)
def test_a_part_of_a_column_is_taken_alone(sql: str, column: pa.Array, expected: list[Any]) -> None:
    assert fitted(sql, column.slice(1)).to_pylist() == expected[1:]
    assert fitted(sql, column.slice(0, 0)).to_pylist() == []


REFUSED: list[tuple[str, pa.Array, type[Exception], str, int]] = [
    ("CHAR(2)", pa.array(["abc", "ab", "xyz"]), ValueTooLong, "c", 2),
    ("VARCHAR(1)", pa.array(["😀", "漢字"]), ValueTooLong, "c", 1),
    ("BINARY(2)", pa.array(["é", "éa"]).cast(pa.binary()), ValueTooLong, "c", 1),
    ("VARBINARY(1)", pa.array([b"ab"]), ValueTooLong, "c", 1),
    ("ARRAY<VARCHAR(1)>", pa.array([["a", "bb"], ["cc"]]), ValueTooLong, "c.element", 2),
    ("TIME(3)", pa.array([-1, 86_400_000, 0, None]), NumericOverflow, "c", 2),
    ("TIME(3)", pa.array([1, 1000], pa.time64("us")), IncompatibleSchema, "c", 1),
    ("TIME(3)", pa.array([1.5]), IncompatibleSchema, "c", 1),
    ("TIMESTAMP(0)", pa.array([1, 1000, -1], pa.timestamp("ms")), IncompatibleSchema, "c", 2),
    ("TIMESTAMP(4)", pa.array([1, 100], pa.timestamp("us")), IncompatibleSchema, "c", 1),
    ("TIMESTAMP(8)", pa.array([1], pa.timestamp("ns")), IncompatibleSchema, "c", 1),
    ("TIMESTAMP(9)", pa.array([2**62], pa.timestamp("us")), IncompatibleSchema, "c", 1),
    ("ARRAY<INT NOT NULL>", pa.array([[1, None]]), NullInNotNull, "c.element", 1),
    ("ARRAY<TINYINT>", pa.array([[1, 128], [-129]]), NumericOverflow, "c.element", 2),
    ("MAP<STRING, TINYINT>", pa.array([[("a", 200)]], PAIRS), NumericOverflow, "c.value", 1),
    ("MAP<STRING, INT NOT NULL>", pa.array([[("a", None)]], PAIRS), NullInNotNull, "c.value", 1),
    ("MULTISET<STRING>", pa.array([[("a", None)]], PAIRS), NullInNotNull, "c.value", 1),
    ("MAP<VARCHAR(1), INT>", pa.array([[("ab", 1)]], PAIRS), ValueTooLong, "c.key", 1),
    ("ROW<a INT NOT NULL, b STRING>", pa.array([{"a": None}, None], ROWS), NullInNotNull, "c.a", 1),
    ("ROW<a TINYINT, b STRING>", pa.array([{"a": 999}], ROWS), NumericOverflow, "c.a", 1),
    ("ROW<a INT>", pa.array([{"a": 1}], ROWS), IncompatibleSchema, "c", 1),
    ("ROW<a INT, x STRING>", pa.array([{"a": 1}], ROWS), IncompatibleSchema, "c", 1),
    ("ARRAY<INT>", pa.array([1]), IncompatibleSchema, "c", 1),
    ("MAP<STRING, INT>", pa.array([["a"]]), IncompatibleSchema, "c", 1),
    ("INT", pa.array([[1]]), IncompatibleSchema, "c", 1),
]


@pytest.mark.parametrize(
    ("sql", "column", "kind", "path", "count"),
    REFUSED,
    ids=[f"{s} {k.__name__}" for s, _, k, _, _ in REFUSED],
)
def test_what_does_not_fit_is_refused_with_path_and_count(
    sql: str, column: pa.Array, kind: type[Exception], path: str, count: int
) -> None:
    with pytest.raises(kind) as refused:
        fitted(sql, column)
    context = refused.value.context  # type: ignore[attr-defined]
    assert (context["table"], context["column"], context["count"]) == ("/w/t", path, count)
    assert repr(path) in str(refused.value) and "/w/t" in str(refused.value)


def test_what_lies_under_null_is_not_judged() -> None:
    elements = pa.array(["much too long", "a", None], pa.string())
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3]), elements)
    hidden = pa.ListArray.from_arrays(pa.array([0, None, 3], pa.int32()), elements)
    assert fitted("ARRAY<VARCHAR(13)>", lists).to_pylist() == [["much too long", "a"], [None]]
    masked = pa.Array.from_buffers(
        lists.type, 2, [pa.py_buffer(b"\x00"), lists.buffers()[1]], children=[elements]
    )
    assert fitted("ARRAY<VARCHAR(1) NOT NULL>", masked).to_pylist() == [None, None]
    assert hidden.null_count == 1
    members = pa.StructArray.from_arrays(
        [pa.array(["too long", None])], names=["a"], mask=pa.array([True, True])
    )
    assert fitted("ROW<a VARCHAR(1) NOT NULL>", members).to_pylist() == [None, None]


def test_inner_ids_are_derived_from_the_field_around_them() -> None:
    made = file_schema(
        TableSchema(
            id=0,
            fields=(
                DataField(id=24, name="a", type=parse_type("ARRAY<INT>")),
                DataField(id=32, name="m", type=parse_type("MAP<STRING, ARRAY<INT>>")),
            ),
            highest_field_id=32,
        )
    )
    ids = [
        made.field(0).type.value_field,
        made.field(1).type.key_field,
        made.field(1).type.item_field,
    ]
    ids.append(made.field(1).type.item_type.value_field)
    assert [int(one.metadata[b"PARQUET:field_id"]) for one in ids] == [
        536895488,
        536838142,
        536903680,
        536903681,
    ]


def test_nulls_become_the_default() -> None:
    assert fitted("INT NOT NULL", pa.array([None, 1], pa.int32()), "7").to_pylist() == [7, 1]
    assert fitted("VARCHAR(3)", pa.nulls(2), "'abc'").to_pylist() == ["abc", "abc"]
    assert fitted("TIME(3)", pa.nulls(1), "01:02:03").to_pylist() == [dt.time(1, 2, 3)]


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("INT", "x"),
        ("TINYINT", "300"),
        ("CHAR(2)", "abc"),
        ("BOOLEAN", "maybe"),
        ("ARRAY<INT>", "[1]"),
    ],
)
def test_a_default_that_is_no_value_is_refused(sql: str, text: str) -> None:
    with pytest.raises(UnsupportedFeature) as refused:
        fitted(sql, pa.nulls(1), text)
    assert refused.value.context["column"] == "c"
