"""Buckets: what is refused, and that blocks of rows have no effect."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import paimon_stream
from paimon_stream.errors import InvalidOption, UnsupportedFeature
from paimon_stream.format.binary_row import encode_row
from paimon_stream.format.murmur import hash_bytes
from paimon_stream.format.types import parse_type
from paimon_stream.write.routing import assign_buckets

INT, STRING, DOUBLE = parse_type("INT"), parse_type("STRING"), parse_type("DOUBLE")


def batch_of(*columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch(list(columns), names=[f"f{i}" for i in range(len(columns))])


def test_the_bucket_is_the_absolute_value_of_the_remainder() -> None:
    batch = batch_of(pa.array([0], pa.int32()))
    assert hash_bytes(encode_row([INT], [0])) == -300363099
    assert assign_buckets(batch, [INT], 4).tolist() == [300363099 % 4]


def test_types_may_be_given_as_paimon_writes_them() -> None:
    batch = batch_of(pa.array(["a", "b"]), pa.array([1, 2], pa.int32()))
    buckets = paimon_stream.assign_buckets(batch, ["STRING NOT NULL", "INT"], 97)
    assert buckets.tolist() == assign_buckets(batch, [STRING, INT], 97).tolist()


@pytest.mark.parametrize("function", ["default", "mod", "hive"])
def test_a_large_batch_has_the_buckets_of_its_rows(function: str) -> None:
    values = np.arange(-50_000, 50_000, dtype=np.int32)
    whole = assign_buckets(batch_of(pa.array(values)), [INT], 7, function)
    some = slice(32_700, 32_800)
    part = assign_buckets(batch_of(pa.array(values[some])), [INT], 7, function)
    assert whole.dtype == np.int32 and len(whole) == len(values)
    assert whole[some].tolist() == part.tolist()
    assert set(whole.tolist()) == set(range(7))


@pytest.mark.parametrize("function", ["default", "hive"])
def test_long_and_short_strings_lie_side_by_side(function: str) -> None:
    texts = ["", "a", "x" * 7, "y" * 8, "é" * 3000, None, "z" * 100_000] * 3
    together = assign_buckets(batch_of(pa.array(texts)), [STRING], 97, function)
    alone = [
        assign_buckets(batch_of(pa.array([t], pa.string())), [STRING], 97, function)[0]
        for t in texts
    ]
    assert together.tolist() == alone


@pytest.mark.parametrize("function", ["default", "hive"])
def test_every_nan_lies_in_one_bucket(function: str) -> None:
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001], np.uint64)
    found = assign_buckets(batch_of(pa.array(bits.view(np.float64))), [DOUBLE], 1000, function)
    assert len(set(found.tolist())) == 1


def test_an_empty_batch_has_no_buckets() -> None:
    for function in ("default", "mod", "hive"):
        assert assign_buckets(batch_of(pa.array([], pa.int32())), [INT], 3, function).tolist() == []


def test_mod_takes_one_whole_number() -> None:
    with pytest.raises(InvalidOption, match="not STRING"):
        assign_buckets(batch_of(pa.array(["a"])), [STRING], 2, "mod")
    numbers = pa.array([1], pa.int32())
    with pytest.raises(InvalidOption, match="INT, INT"):
        assign_buckets(batch_of(numbers, numbers), [INT, INT], 2, "mod")


def test_hive_takes_no_timestamps() -> None:
    stamp = parse_type("TIMESTAMP(6)")
    with pytest.raises(UnsupportedFeature, match="hive"):
        assign_buckets(batch_of(pa.array([1], pa.timestamp("us"))), [stamp], 2, "hive")
