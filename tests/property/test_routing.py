"""Routing whole columns gives every row the group that the rules give it one by one."""

from __future__ import annotations

from decimal import Decimal
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_stream.errors import UnsupportedFeature, ValueTooLong
from paimon_stream.format.binary_columns import column_values
from paimon_stream.format.binary_row import encode_row, serialize
from paimon_stream.format.murmur import hash_bytes
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, arrow_type, parse_type
from paimon_stream.options import Options
from paimon_stream.write.conform import ColumnPlan
from paimon_stream.write.routing import Group, Router, split

pytestmark = pytest.mark.lowest

TEXTS = st.one_of(st.none(), st.sampled_from(["", " ", "a", "b", "größer", "%", "x" * 40]))
DOUBLES = st.one_of(st.none(), st.sampled_from([0.0, -0.0, float("nan"), float("-inf"), 1.5]))
NUMBERS = st.one_of(st.none(), st.integers(-3, 3), st.sampled_from([2**63 - 1, -(2**63)]))
DECIMALS = st.one_of(
    st.none(), st.sampled_from([Decimal("1.50"), Decimal("-0.01"), Decimal("0.00")])
)
ROWS = st.lists(st.tuples(TEXTS, DOUBLES, NUMBERS, DECIMALS, TEXTS), min_size=1, max_size=60)
COLUMNS = (
    ("s", "STRING"),
    ("d", "DOUBLE"),
    ("n", "BIGINT"),
    ("m", "DECIMAL(20, 2)"),
    ("t", "STRING"),
)


def schema(
    partition: tuple[str, ...], keys: tuple[str, ...] = (), buckets: int = -1
) -> TableSchema:
    fields = tuple(DataField(id=i, name=n, type=parse_type(t)) for i, (n, t) in enumerate(COLUMNS))
    options = (
        {"bucket": str(buckets), "bucket-key": ",".join(keys)} if keys else {"bucket": str(buckets)}
    )
    return TableSchema(
        id=0,
        fields=fields,
        highest_field_id=4,
        partition_keys=partition,
        options=MappingProxyType(options),
    )


def batch_of(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    table = schema(())
    columns = [
        pa.array([row[i] for row in rows], arrow_type(one.type))
        for i, one in enumerate(table.fields)
    ]
    return ColumnPlan.of(table).conform(pa.record_batch(columns, names=list(table.field_names)))


def one_by_one(batch: pa.RecordBatch, table: TableSchema, buckets: int) -> list[Group]:
    def rows(names: tuple[str, ...]) -> list[tuple[Any, ...]]:
        if not names:
            return [()] * batch.num_rows
        columns = [column_values(batch.column(name), table.field(name).type) for name in names]
        return list(zip(*columns, strict=True))

    partition_types = [one.type for one in table.partition_fields]
    key_types = [table.field(name).type for name in table.bucket_keys]
    groups = []
    for partition, key in zip(rows(table.partition_keys), rows(table.bucket_keys), strict=True):
        bucket = (
            abs(int(np.fmod(hash_bytes(encode_row(key_types, key)), buckets))) if key_types else 0
        )
        groups.append(Group(serialize(partition_types, partition), bucket))
    return groups


@pytest.mark.parametrize(
    ("partition", "keys", "buckets"),
    [
        ((), (), -1),
        (("s",), (), -1),
        (("d", "s"), (), -1),
        (("m", "n", "s", "d"), (), -1),
        ((), ("n",), 3),
        ((), ("t", "n"), 5),
        (("s", "m"), ("t", "d"), 4),
        (("t",), ("n",), 70_000),
    ],
)
@given(data=st.data())
def test_routing_equals_the_rules_row_by_row(
    partition: tuple[str, ...], keys: tuple[str, ...], buckets: int, data: st.DataObject
) -> None:
    table = schema(partition, keys, buckets)
    router = Router(table, Options(table.options))
    for _ in range(2):
        batch = batch_of(data.draw(ROWS))
        numbers = router.assign(batch)
        of_rows = [numbers] * batch.num_rows if isinstance(numbers, int) else numbers.tolist()
        assert [router.groups[number] for number in of_rows] == one_by_one(batch, table, buckets)
        assert isinstance(numbers, int) == (len(set(of_rows)) == 1)


@given(numbers=st.lists(st.sampled_from([0, 1, 2, 5, 70_000]), min_size=1, max_size=80))
def test_split_keeps_every_row_and_the_order_inside_a_group(numbers: list[int]) -> None:
    batch = pa.record_batch(
        {"row": np.arange(len(numbers)), "text": [str(i) for i in range(len(numbers))]}
    )
    parts = list(split(batch, np.array(numbers, dtype=np.int64)))
    expected = {
        number: [i for i, of in enumerate(numbers) if of == number]
        for number in sorted(set(numbers))
    }
    assert [number for number, _ in parts] == list(expected)
    assert {number: part.column("row").to_pylist() for number, part in parts} == expected
    assert all(part.column("text").to_pylist() == list(map(str, expected[n])) for n, part in parts)


def test_a_part_does_not_keep_the_whole_batch_in_memory() -> None:
    batch = pa.record_batch({"row": np.arange(10_000)})
    numbers = np.zeros(10_000, dtype=np.int64)
    numbers[7] = 1
    _, (_, small) = split(batch, numbers)
    assert small.get_total_buffer_size() < 1000


def test_many_partition_columns_of_many_values_do_not_overflow() -> None:
    table = TableSchema(
        id=0,
        fields=tuple(DataField(id=i, name=f"p{i}", type=parse_type("INT")) for i in range(8)),
        highest_field_id=7,
        partition_keys=tuple(f"p{i}" for i in range(8)),
    )
    values = np.arange(500, dtype=np.int32)
    router = Router(table, Options({}))
    numbers = router.assign(
        ColumnPlan.of(table).conform(pa.record_batch({f"p{i}": values for i in range(8)}))
    )
    assert not isinstance(numbers, int)
    assert numbers.tolist() == list(range(500))
    assert router.groups[499].partition == serialize([parse_type("INT")] * 8, [499] * 8)


@pytest.mark.parametrize(
    ("value", "too_long"),
    [
        ("x" * 253, None),
        ("x" * 254, 256),
        ("é" * 126, None),
        ("é" * 127, 256),
        ("/" * 84, None),
        ("/" * 85, 257),
        ("漢" * 85, 257),
    ],
    ids=lambda one: str(one)[:3],
)
def test_a_partition_value_may_be_as_long_as_the_name_of_its_folder(
    value: str, too_long: int | None
) -> None:
    table = schema(("s",))
    rest = batch_of([("x", None, None, None, None)] * 5)
    column = pa.array(["ok", value, None, value, value + "y"])
    batch = pa.RecordBatch.from_arrays([column, *rest.columns[1:]], schema=rest.schema)
    router = Router(table, Options({}), "/w/t")
    if too_long is None:
        router.assign(batch.slice(0, 4))
        assert len(router.groups) == 3
        return
    with pytest.raises(
        ValueTooLong, match=rf"'s' of /w/t .* in 3 rows .* the longest would have {too_long + 1}"
    ) as raised:
        router.assign(batch)
    assert raised.value.context == {"table": "/w/t", "column": "s", "count": 3}


@pytest.mark.parametrize("buckets", [0, -2])
def test_other_bucket_modes_are_refused(buckets: int) -> None:
    with pytest.raises(UnsupportedFeature):
        Router(schema((), (), buckets), Options({"bucket": str(buckets)}))
