"""Statistics: modes, bounds, dense rows, and what a manifest may contain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_stream.errors import FormatError, InvalidOption
from paimon_stream.format.binary_row import deserialize, serialize
from paimon_stream.format.entries import EMPTY_ROW, EMPTY_STATS, SimpleStats
from paimon_stream.format.stats import (
    NO_STATS,
    ColumnStats,
    StatsMode,
    decode_stats,
    encode_stats,
    parse_mode,
    partition_stats,
)
from paimon_stream.format.types import DataField, DataType, parse_type
from paimon_stream.table.partition_spec import PartitionFilter

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.text(
    "\U0010ffff\ud7ffa", max_size=9
)
INT, STRING, DOUBLE = parse_type("INT"), parse_type("STRING"), parse_type("DOUBLE")
FIELDS = (DataField(id=0, name="a", type=INT), DataField(id=1, name="b", type=STRING))


def stats(low: Any, high: Any, nulls: int | None = 0) -> ColumnStats:
    return ColumnStats(min=low, max=high, null_count=nulls)


def rows(*values: Any, types: Sequence[Any] = (STRING,)) -> list[bytes]:
    return [serialize(types, (value,)) for value in values]


def may_contain(types: Sequence[DataType], stats: SimpleStats, partition: bytes) -> bool:
    return PartitionFilter(types, rows=[partition]).may_be_in(stats)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("none", StatsMode(kind="none")),
        ("Counts", StatsMode(kind="counts")),
        (" FULL ", StatsMode(kind="full")),
        ("truncate(16)", StatsMode(kind="truncate", length=16)),
        ("TRUNCATE(1)", StatsMode(kind="truncate", length=1)),
    ],
)
def test_modes_are_read(text: str, mode: StatsMode) -> None:
    assert parse_mode(text) == mode


@pytest.mark.parametrize(
    "text", ["", "some", "truncate", "truncate(0)", "truncate(-1)", "truncate(1", "full()"]
)
def test_what_is_no_mode_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="not a statistics mode"):
        parse_mode(text)


@given(TEXT, st.integers(1, 20))
@settings(deadline=None)
def test_cut_bounds_still_enclose_the_value(value: str, length: int) -> None:
    mode = StatsMode(kind="truncate", length=length)
    cut = mode.apply(ColumnStats(min=value, max=value, null_count=0))
    if cut.max is None:
        assert cut.min is None
        assert set(value[:length]) == {"\U0010ffff"}
    else:
        assert cut.min.encode() <= value.encode() <= cut.max.encode()
        assert len(cut.min) <= length
        assert len(cut.max) <= length


def test_a_value_without_an_upper_bound_has_no_lower_one_either() -> None:
    got = parse_mode("truncate(2)").apply(stats("a", "\U0010ffff" * 3, 4))
    assert got == stats(None, None, 4)


def test_each_mode_keeps_what_it_says() -> None:
    exact = stats("abc", "abd", 2)
    assert parse_mode("none").apply(exact) == NO_STATS
    assert parse_mode("counts").apply(exact) == stats(None, None, 2)
    assert parse_mode("full").apply(exact) == exact
    assert parse_mode("truncate(1)").apply(exact) == stats("a", "b", 2)
    assert parse_mode("truncate(1)").apply(stats(10, 20)) == stats(10, 20)


def test_dense_statistics_leave_out_unknown_columns() -> None:
    got, names = encode_stats(FIELDS, [NO_STATS, stats("x", "y", 1)], dense=True)
    assert names == ("b",)
    assert deserialize([STRING], got.min_values) == ("x",)
    assert got.null_counts == (1,)
    assert decode_stats(FIELDS, got, names) == {"b": stats("x", "y", 1)}


def test_statistics_without_any_column_are_empty() -> None:
    got, names = encode_stats(FIELDS, [NO_STATS, NO_STATS], dense=True)
    assert (got, names) == (EMPTY_STATS, ())
    assert decode_stats(FIELDS, got, names) == {}


def test_dense_statistics_of_all_columns_name_none() -> None:
    known = [stats(1, 2), stats(None, None, 3)]
    got, names = encode_stats(FIELDS, known, dense=True)
    assert names is None
    assert decode_stats(FIELDS, got) == dict(zip("ab", known, strict=True))


def test_statistics_that_are_not_dense_hold_every_column() -> None:
    got, names = encode_stats(FIELDS, [NO_STATS, stats("x", "y", 1)], dense=False)
    assert names is None
    assert got.null_counts == (None, 1)
    assert decode_stats(FIELDS, got) == {"a": NO_STATS, "b": stats("x", "y", 1)}


def test_statistics_of_unknown_columns_are_refused() -> None:
    got, _ = encode_stats(FIELDS, [stats(1, 2), stats("x", "y")], dense=True)
    with pytest.raises(FormatError, match="nope"):
        decode_stats(FIELDS, got, ("a", "nope"))
    with pytest.raises(FormatError):
        decode_stats(FIELDS[:1], got)
    short = SimpleStats(min_values=got.min_values, max_values=got.max_values, null_counts=(1,))
    with pytest.raises(FormatError, match="1 null counts"):
        decode_stats(FIELDS, short)


def test_partitions_are_bounded_by_the_bytes_of_their_text() -> None:
    got = partition_stats([STRING], rows("b", "\uffff", "\U00010000", "b", None, None))
    assert deserialize([STRING], got.min_values) == ("b",)
    assert deserialize([STRING], got.max_values) == ("\U00010000",)
    assert got.null_counts == (2,)


def test_floats_are_ordered_as_java_orders_them() -> None:
    got = partition_stats([DOUBLE], rows(0.0, -0.0, types=[DOUBLE]))
    assert str(deserialize([DOUBLE], got.min_values)[0]) == "-0.0"
    assert str(deserialize([DOUBLE], got.max_values)[0]) == "0.0"
    got = partition_stats([DOUBLE], rows(float("nan"), float("inf"), types=[DOUBLE]))
    assert str(deserialize([DOUBLE], got.max_values)[0]) == "nan"
    (nan,) = rows(float("nan"), types=[DOUBLE])
    assert may_contain([DOUBLE], got, nan)


def test_a_table_without_partitions_has_empty_statistics() -> None:
    assert partition_stats([], [EMPTY_ROW, EMPTY_ROW]) == EMPTY_STATS
    assert may_contain([], EMPTY_STATS, EMPTY_ROW)


@given(st.lists(st.none() | TEXT, min_size=1, max_size=8), st.none() | TEXT)
@settings(deadline=None)
def test_a_manifest_is_never_left_out_wrongly(held: list[str | None], asked: str | None) -> None:
    got = partition_stats([STRING], rows(*held))
    (row,) = rows(asked)
    if asked in held:
        assert may_contain([STRING], got, row)


def test_a_manifest_is_left_out_where_its_bounds_say_so() -> None:
    got = partition_stats([STRING], rows("b", "d"))
    asked = {
        text: may_contain([STRING], got, rows(text)[0]) for text in ("a", "b", "c", "d", "e", None)
    }
    assert [text for text, there in asked.items() if there] == ["b", "c", "d"]


def test_a_manifest_without_statistics_may_contain_anything() -> None:
    (row,) = rows("x")
    assert may_contain([STRING], EMPTY_STATS, row)
    (null,) = rows(None)
    unknown = SimpleStats(min_values=null, max_values=null, null_counts=(None,))
    assert may_contain([STRING], unknown, row) and may_contain([STRING], unknown, null)
