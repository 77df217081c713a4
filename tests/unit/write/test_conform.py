"""Incoming batches are made to fit the table, or refused with the column and the count."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream.errors import IncompatibleSchema, InvalidData, NullInNotNull, NumericOverflow
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.write.conform import ColumnPlan
from paimon_stream.write.file_stats import file_schema


def table(*columns: tuple[str, str]) -> TableSchema:
    fields = tuple(
        DataField(id=i, name=name, type=parse_type(sql)) for i, (name, sql) in enumerate(columns)
    )
    return TableSchema(id=0, fields=fields, highest_field_id=len(fields) - 1)


def written(sql: str, column: pa.Array) -> pa.Array:
    return (
        ColumnPlan.of(table(("c", sql)), "/w/t").conform(pa.record_batch({"c": column})).column(0)
    )


def test_a_fitting_batch_is_not_copied() -> None:
    batch = pa.record_batch({"a": pa.array([1, 2], pa.int32()), "b": ["x", None]})
    fitted = ColumnPlan.of(table(("a", "INT NOT NULL"), ("b", "STRING"))).conform(batch)
    assert fitted.column(0).buffers()[1].address == batch.column(0).buffers()[1].address
    assert fitted.column(1).buffers()[2].address == batch.column(1).buffers()[2].address


def test_columns_are_put_in_table_order_by_name() -> None:
    batch = pa.record_batch({"b": ["x"], "a": pa.array([1], pa.int32())})
    plan = ColumnPlan.of(table(("a", "INT"), ("b", "STRING")))
    assert plan.conform(batch).to_pydict() == {"a": [1], "b": ["x"]}


def test_the_file_schema_carries_ids_and_not_null() -> None:
    made = file_schema(table(("a", "INT NOT NULL"), ("b", "STRING")))
    assert [field.nullable for field in made] == [False, True]
    assert [field.metadata[b"PARQUET:field_id"] for field in made] == [b"0", b"1"]


@pytest.mark.parametrize(
    ("names", "column", "word"),
    [
        (["a"], "b", "lack"),
        (["a", "b", "c"], "c", "does not have"),
        (["a", "b", "a"], "a", "more than once"),
        (["a", "B"], "b", "lack"),
    ],
)
def test_missing_unknown_and_repeated_columns_are_named(
    names: list[str], column: str, word: str
) -> None:
    batch = pa.record_batch([pa.array([1], pa.int32()) for _ in names], names=names)
    with pytest.raises(IncompatibleSchema, match=word) as refused:
        ColumnPlan.of(table(("a", "INT"), ("b", "INT")), "/w/t").conform(batch)
    assert refused.value.context == {"table": "/w/t", "column": column}


KEPT: list[tuple[str, pa.Array, list[Any]]] = [
    ("INT", pa.array([1, -(2**31), None]), [1, -(2**31), None]),
    ("TINYINT", pa.array([127, -128], pa.int64()), [127, -128]),
    ("BIGINT", pa.array([2**63 - 1], pa.uint64()), [2**63 - 1]),
    ("DECIMAL(38, 10)", pa.array([2**62]), [Decimal(2**62)]),
    ("DECIMAL(5, 2)", pa.array([Decimal("-999.9")]), [Decimal("-999.90")]),
    ("BIGINT", pa.array([Decimal(7)], pa.decimal128(30, 0)), [7]),
    ("DOUBLE", pa.array([2**31 - 1], pa.int32()), [2.0**31 - 1]),
    ("DOUBLE", pa.array([1.5], pa.float32()), [1.5]),
    ("STRING", pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
    ("STRING", pa.array(["ü"], pa.large_string()), ["ü"]),
    (
        "STRING",
        pa.array(["a string that is no prefix"], pa.string_view()),
        ["a string that is no prefix"],
    ),
    ("BYTES", pa.array([b"\xff\x00"], pa.binary(2)), [b"\xff\x00"]),
    ("INT", pa.nulls(2), [None, None]),
]


@pytest.mark.parametrize(
    ("sql", "column", "expected"), KEPT, ids=[f"{c.type} to {s}" for s, c, _ in KEPT]
)
def test_conversions_that_keep_every_value_are_made(
    sql: str, column: pa.Array, expected: list[Any]
) -> None:
    assert written(sql, column).to_pylist() == expected


def test_any_time_zone_becomes_utc_with_the_same_instant() -> None:
    made = written(
        "TIMESTAMP(6) WITH LOCAL TIME ZONE", pa.array([-7], pa.timestamp("us", "Asia/Tokyo"))
    )
    assert made.type == pa.timestamp("us", "UTC")
    assert made.cast(pa.int64()).to_pylist() == [-7]


def test_milliseconds_become_microseconds_before_1970_too() -> None:
    made = written("TIMESTAMP(6)", pa.array([-1], pa.timestamp("ms")))
    assert made.cast(pa.int64()).to_pylist() == [-1000]


@pytest.mark.parametrize(
    ("sql", "column", "count"),
    [
        ("INT", pa.array([2**31, -(2**31) - 1, 5, None]), 2),
        ("BIGINT", pa.array([2**63, 1], pa.uint64()), 1),
        ("DECIMAL(5, 2)", pa.array([1000, 999, -1000, -999]), 2),
        ("DECIMAL(38, 38)", pa.array([1, 0]), 1),
        ("DECIMAL(4, 2)", pa.array([Decimal("100.0"), Decimal("99.9")]), 1),
        (
            "DECIMAL(37, 0)",
            pa.array([Decimal("9" * 38), Decimal("9" * 37)], pa.decimal128(38, 0)),
            1,
        ),
        ("BIGINT", pa.array([Decimal(2**63), Decimal(-(2**63))], pa.decimal128(38, 0)), 1),
    ],
)
def test_numbers_out_of_range_are_counted(sql: str, column: pa.Array, count: int) -> None:
    with pytest.raises(NumericOverflow) as refused:
        written(sql, column)
    assert refused.value.context == {"table": "/w/t", "column": "c", "count": count}
    assert "'c'" in refused.value.message


@pytest.mark.parametrize(
    ("sql", "column", "count"),
    [
        ("TIMESTAMP(6)", pa.array([1000, 1001, -1], pa.timestamp("ns")), 2),
        ("TIMESTAMP(6)", pa.array([2**60, 1], pa.timestamp("s")), 1),
        ("TIMESTAMP(6)", pa.array([1], pa.timestamp("us", "UTC")), 1),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", pa.array([1], pa.timestamp("us")), 1),
        ("DECIMAL(5, 2)", pa.array([Decimal("1.555")]), 1),
        ("FLOAT", pa.array([1.5, None]), 1),
        ("FLOAT", pa.array([1], pa.int32()), 1),
        ("INT", pa.array([1.0]), 1),
        ("INT", pa.array(["1"]), 1),
        ("STRING", pa.array([1]), 1),
        ("BOOLEAN", pa.array([1]), 1),
        ("DATE", pa.array([1], pa.timestamp("us")), 1),
        ("BYTES", pa.array(["a"]), 1),
    ],
)
def test_conversions_that_could_lose_something_are_refused(
    sql: str, column: pa.Array, count: int
) -> None:
    with pytest.raises(IncompatibleSchema) as refused:
        written(sql, column)
    assert refused.value.context["column"] == "c"
    assert refused.value.context["count"] == count


def test_null_in_not_null_names_table_column_and_count() -> None:
    with pytest.raises(NullInNotNull) as refused:
        written("INT NOT NULL", pa.array([1, None, None], pa.int32()))
    assert refused.value.context == {"table": "/w/t", "column": "c", "count": 2}
    assert "/w/t" in refused.value.message and "is NULL in 2 rows." in refused.value.message


BROKEN = pa.array(
    [b"ok", b"\xff\xfe", None, b"\xc3", b"\xed\xa0\x80", "größer 😀 漢字".encode()], pa.binary()
)
TEXTS = BROKEN.view(pa.string())


@pytest.mark.parametrize(
    ("sql", "column", "path", "amount"),
    [
        ("STRING", TEXTS, "c", "3 rows"),
        ("VARCHAR(20)", TEXTS.slice(1), "c", "3 rows"),
        ("CHAR(9)", TEXTS.slice(3, 1), "c", "1 row"),
        ("STRING", BROKEN.cast(pa.large_binary()).view(pa.large_string()), "c", "3 rows"),
        ("STRING", pa.DictionaryArray.from_arrays([1, 0, 1], TEXTS), "c", "2 rows"),
        ("ARRAY<STRING>", pa.ListArray.from_arrays([0, 4, 6], TEXTS), "c.element", "3 places"),
        ("ROW<m STRING>", pa.StructArray.from_arrays([TEXTS], ["m"]), "c.m", "3 places"),
        (
            "MAP<INT, STRING>",
            pa.MapArray.from_arrays([0, 2], pa.array([1, 2], pa.int32()), TEXTS.slice(0, 2)),
            "c.value",
            "1 place",
        ),
    ],
    ids=str,
)
def test_text_that_is_not_utf8_is_refused_with_column_and_count(
    sql: str, column: pa.Array, path: str, amount: str
) -> None:
    with pytest.raises(
        InvalidData, match=rf"Column '{path}' of /w/t is .* not UTF-8 in {amount}\."
    ) as refused:
        written(sql, column)
    assert refused.value.context == {
        "table": "/w/t",
        "column": path,
        "count": int(amount.split()[0]),
    }


def test_bytes_of_a_null_are_not_judged() -> None:
    nothing = pa.Array.from_buffers(pa.string(), 6, [pa.py_buffer(b"\0"), *BROKEN.buffers()[1:]])
    assert written("STRING", nothing).to_pylist() == [None] * 6
    assert written("BYTES", BROKEN).to_pylist() == BROKEN.to_pylist()


def test_null_is_found_behind_a_dictionary_too() -> None:
    with pytest.raises(NullInNotNull):
        written("STRING NOT NULL", pa.array(["a", None]).dictionary_encode())


def test_a_plan_serves_many_batches() -> None:
    plan = ColumnPlan.of(table(("a", "INT")))
    batches = [pa.record_batch({"a": pa.array([i], pa.int32())}) for i in range(3)]
    assert [plan.conform(batch).column(0).to_pylist() for batch in batches] == [[0], [1], [2]]
