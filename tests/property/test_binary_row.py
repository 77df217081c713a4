"""Binary rows: what is written is read, columns and single rows agree, Java agrees, and no bytes
surprise.
"""

from __future__ import annotations

from typing import Any

import mmh3
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from paimon_stream.errors import FormatError
from paimon_stream.format.binary_columns import column_values, encode_columns
from paimon_stream.format.binary_row import decode_row, deserialize, encode_row, serialize
from paimon_stream.format.murmur import hash_bytes, hash_rows
from paimon_stream.format.types import DataField, DataType, TypeRoot, arrow_type, parse_type
from paimon_stream.write.routing import assign_buckets
from tests.kits.row_strategies import all_types, natural, natural_row, rows, scalar_types
from tests.kits.seeds import examples

pytestmark = pytest.mark.lowest

WITH_JAVA = settings(
    max_examples=examples(15, 500), deadline=None, suppress_health_check=list(HealthCheck)
)
STRING = parse_type("STRING")


def columns_of(types: tuple[DataType, ...], some: list[tuple[Any, ...]]) -> list[pa.Array]:
    """The rows as columns that do not begin at the start of their buffers."""
    return [
        pa.array([None, *(natural(type_, row[i]) for row in some)], arrow_type(type_)).slice(1)
        for i, type_ in enumerate(types)
    ]


@given(rows(all_types()))
@settings(deadline=None)
def test_what_is_written_is_read_back(drawn: Any) -> None:
    types, some = drawn
    for row in some:
        data = encode_row(types, row)
        assert len(data) % 8 == 0
        assert repr(decode_row(types, data)) == repr(row)
        assert repr(deserialize(types, serialize(types, row))) == repr(row)


@given(rows(scalar_types()))
@settings(deadline=None)
def test_columns_make_the_same_rows_as_single_rows(drawn: Any) -> None:
    types, some = drawn
    encoded = encode_columns(columns_of(types, some), types)
    assert [encoded.row(i) for i in range(len(encoded))] == [encode_row(types, row) for row in some]


@given(rows(all_types(), max_columns=2))
@settings(deadline=None)
def test_column_values_are_the_internal_values(drawn: Any) -> None:
    types, some = drawn
    for i, (type_, column) in enumerate(zip(types, columns_of(types, some), strict=True)):
        expected = [row[i] for row in some]
        assert repr(column_values(column, type_)) == repr(expected)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=60))
@example([b"x" * 100_000, b"", b"y" * 9])
@example([b"x" * 5000] * 20)
@settings(deadline=None)
def test_many_hashes_are_those_of_murmur3(texts: list[bytes]) -> None:
    types = (parse_type("BYTES"),)
    encoded = encode_columns([pa.array(texts, pa.binary())], types)
    expected = [mmh3.hash(encode_row(types, (text,)), 42, signed=True) for text in texts]
    assert hash_rows(encoded).tolist() == expected
    assert [hash_bytes(encoded.row(i)) for i in range(len(texts))] == expected


@given(rows(scalar_types().filter(lambda t: not t.is_string and not t.is_binary)))
@settings(deadline=None)
def test_the_hash_of_rows_of_one_size_is_that_of_each_row(drawn: Any) -> None:
    types, some = drawn
    encoded = encode_columns(columns_of(types, some), types)
    assert hash_rows(encoded).tolist() == [hash_bytes(encoded.row(i)) for i in range(len(some))]


@given(rows(all_types()), st.data())
@settings(max_examples=examples(60, 3000), deadline=None)
def test_damaged_rows_are_refused_or_read_but_never_crash(drawn: Any, data: st.DataObject) -> None:
    types, some = drawn
    damaged = bytearray(encode_row(types, some[0]))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    for attempt in (bytes(damaged), cut, data.draw(st.binary(max_size=80))):
        for read in (decode_row, deserialize):
            try:
                read(types, attempt)
            except FormatError:
                continue


@given(rows(all_types(), max_columns=4))
@WITH_JAVA
def test_java_writes_the_same_rows(java: Any, drawn: Any) -> None:
    types, some = drawn
    # Java's map has no order that could be given to it; with one entry there is nothing to order.
    some = [tuple(map(one_entry, types, row)) for row in some]
    expected = java.binary_rows(
        [str(type_) for type_ in types], [natural_row(types, row) for row in some]
    )
    assert [encode_row(types, row).hex() for row in some] == [bytes(row).hex() for row in expected]


def one_entry(type_: DataType, value: Any) -> Any:
    """The value with all maps in it cut to one entry."""
    if value is None or not type_.is_nested:
        return value
    match type_.root:
        case TypeRoot.ARRAY:
            assert type_.element is not None
            return [one_entry(type_.element, one) for one in value]
        case TypeRoot.MAP:
            assert type_.element is not None
            return [(key, one_entry(type_.element, one)) for key, one in value[:1]]
        case _:
            return tuple(
                one_entry(field.type, one) for field, one in zip(type_.fields, value, strict=True)
            )


@given(rows(scalar_types()), st.integers(1, 1000))
@WITH_JAVA
def test_java_puts_rows_into_the_same_buckets(java: Any, drawn: Any, count: int) -> None:
    types, some = drawn
    names = [f"f{i}" for i in range(len(types))]
    expected = java.buckets(
        [natural_row(types, row) for row in some],
        schema=[(name, str(type_)) for name, type_ in zip(names, types, strict=True)],
        options={"bucket": str(count), "bucket-key": ",".join(names)},
    )
    batch = pa.record_batch(columns_of(types, some), names=names)
    assert assign_buckets(batch, types, count).tolist() == expected


@given(rows(scalar_types().filter(lambda t: not t.is_timestamp)), st.integers(1, 1000))
@WITH_JAVA
def test_java_puts_rows_into_the_same_hive_buckets(java: Any, drawn: Any, count: int) -> None:
    types, some = drawn
    names = [f"f{i}" for i in range(len(types))]
    expected = java.buckets(
        [natural_row(types, row) for row in some],
        schema=[(name, str(type_)) for name, type_ in zip(names, types, strict=True)],
        options={
            "bucket": str(count),
            "bucket-key": ",".join(names),
            "bucket-function.type": "hive",
        },
    )
    batch = pa.record_batch(columns_of(types, some), names=names)
    assert assign_buckets(batch, types, count, "hive").tolist() == expected


@given(st.sampled_from(["INT", "BIGINT"]), st.data(), st.integers(1, 1000))
@WITH_JAVA
def test_java_puts_numbers_into_the_same_mod_buckets(
    java: Any, text: str, data: st.DataObject, count: int
) -> None:
    bits = 31 if text == "INT" else 63
    some = data.draw(st.lists(st.none() | st.integers(-(2**bits), 2**bits - 1), min_size=1))
    expected = java.buckets(
        [(value,) for value in some],
        schema=[("k", text)],
        options={"bucket": str(count), "bucket-key": "k", "bucket-function.type": "mod"},
    )
    type_ = parse_type(text)
    batch = pa.record_batch([pa.array(some, arrow_type(type_))], names=["k"])
    assert assign_buckets(batch, [type_], count, "mod").tolist() == expected


def test_wide_rows_have_a_longer_header() -> None:
    types = [parse_type("INT")] * 200
    values = [i if i % 3 else None for i in range(200)]
    data = encode_row(types, values)
    assert len(data) == 32 + 200 * 8
    assert list(decode_row(types, data)) == values
    columns = [pa.array([value], pa.int32()) for value in values]
    assert encode_columns(columns, types).row(0) == data


def test_rows_in_rows_are_read_back() -> None:
    inner = DataType(
        root=TypeRoot.ROW,
        fields=tuple(DataField(id=i, name=f"f{i}", type=STRING) for i in range(60)),
    )
    value = tuple(f"text number {i}" if i % 2 else None for i in range(60))
    assert decode_row([inner], encode_row([inner], [value])) == (value,)
