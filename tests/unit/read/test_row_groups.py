"""Row groups of Parquet files: those without wanted rows are skipped by the footer's statistics."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from paimon_stream import PaimonTable, SchemaChange
from paimon_stream.errors import FormatError
from paimon_stream.merge.spec import SEQUENCE_COLUMN
from paimon_stream.read import rows as reading
from paimon_stream.read.rows import read_batches
from paimon_stream.read.scan import plan_scan
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.row_ids import ROW_ID_COLUMN
from paimon_stream.table.table import alter_table
from tests.kits.filters import assert_same, random_filter
from tests.kits.seeds import examples

GROUP = 10
GROUPS = 8
ROWS = GROUP * GROUPS
TIME = dt.datetime(1969, 12, 30)
NAN = float("nan")

Seen = list[tuple[int, bool]]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """The chunks that reads get from files: how many rows, and whether they were skipped."""
    found: Seen = []
    whole = reading.file_chunks

    def noted(*arguments: Any) -> Any:
        for chunk in whole(*arguments):
            found.append((chunk.rows, chunk.skipped))
            yield chunk

    monkeypatch.setattr(reading, "file_chunks", noted)
    return found


def skipped(seen: Seen) -> int:
    """How many row groups were skipped since the last call."""
    some = [one for _, one in seen]
    seen.clear()
    return sum(some)


def names_of(table: PaimonTable) -> list[Path]:
    return sorted(Path(table.location).rglob("data-*.parquet"))


def in_groups(table: PaimonTable, rows: pa.Table | None = None, **how: Any) -> PaimonTable:
    """The same table. Its only file is written again by pyarrow, in several row groups, with other
    settings.
    """
    (file,) = names_of(table)
    rows = pq.ParquetFile(file).read() if rows is None else rows
    pq.write_table(rows, file, **{"row_group_size": GROUP, **how})
    return table


def made(path: Path, columns: list[tuple[str, str]], **more: Any) -> PaimonTable:
    return PaimonTable.create(str(path / "db.db" / "t"), columns, **more)


# -- every type -----------------------------------------------------------------------------------

# The values ascend, from below zero, and each comes once, but for BOOLEAN.
VALUES: dict[str, Any] = {
    "BOOLEAN": lambda one: one >= ROWS // 2,
    "TINYINT": lambda one: one - 40,
    "SMALLINT": lambda one: one * 300 - 9_000,
    "INT": lambda one: one - 40,
    "BIGINT": lambda one: (one - 40) * 2**40,
    "DECIMAL(9, 2)": lambda one: Decimal(one - 40) / 4,
    "DECIMAL(18, 3)": lambda one: Decimal(one - 40) * 1_000_000_000_001 / 8,
    "DECIMAL(30, 5)": lambda one: Decimal(one - 40) * 10**20,
    "CHAR(4)": lambda one: f"é{one:02}",
    "VARCHAR(9)": lambda one: chr(0x20 + one * 600) + "x",
    "STRING": lambda one: f"{one:03}" * 30,
    "BYTES": lambda one: bytes([one]),
    "DATE": lambda one: TIME.date() + dt.timedelta(days=one - 40),
    "TIME": lambda one: dt.time(one // 4, 1, 2, 3_000 * (one % 4)),
    "TIMESTAMP(3)": lambda one: TIME + dt.timedelta(hours=one),
    "TIMESTAMP(6)": lambda one: TIME + dt.timedelta(microseconds=one - 40),
    "TIMESTAMP(9)": lambda one: TIME + dt.timedelta(microseconds=one),
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": lambda one: TIME + dt.timedelta(hours=one),
    "FLOAT": lambda one: one - 40.5,
    "DOUBLE": lambda one: one - 40.5,
}
BY_BOUNDS = [one for one in VALUES if one not in ("DECIMAL(30, 5)", "BYTES", "FLOAT", "DOUBLE")]
COLUMNS = [(f"c{i}", type_) for i, type_ in enumerate(VALUES)]


def every_type(tmp_path: Path, nulls: bool = False) -> PaimonTable:
    """A table of all types in one file. With `nulls`, two rows of three are NULL, and one row group
    is all NULL.
    """
    table = made(tmp_path, COLUMNS)
    places = [None if nulls and (one % 3 or 20 <= one < 30) else one for one in range(ROWS)]
    schema = table.to_arrow().schema
    columns = [
        pa.array([None if one is None else value(one) for one in places], field.type)
        for value, field in zip(VALUES.values(), schema, strict=True)
    ]
    table.append(pa.Table.from_arrays(columns, schema=schema))
    return table


def twisted(rows: pa.Table, change: dict[pa.DataType, pa.DataType]) -> pa.Table:
    """The rows with some types stored as others."""
    return rows.cast(
        pa.schema([pa.field(one.name, change.get(one.type, one.type)) for one in rows.schema])
    )


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "whole decimals": {"store_decimal_as_integer": True},
    "microseconds": {"coerce_timestamps": "us", "allow_truncated_timestamps": True},
    "int96": {"use_deprecated_int96_timestamps": True},
    "version 1": {"version": "1.0", "use_dictionary": False},
    "pages 2": {"data_page_version": "2.0", "data_page_size": 64},
    "no statistics": {"write_statistics": False},
    "some statistics": {"write_statistics": ["c3", "c10"]},
    "one row": {"row_group_size": 1},
}


@pytest.mark.parametrize("how", SETTINGS)
def test_random_filters_keep_what_a_full_read_keeps(how: str, tmp_path: Path, seen: Seen) -> None:
    table = in_groups(every_type(tmp_path, nulls=how != "one row"), **SETTINGS[how])
    whole, random = table.to_arrow(), Random(how)
    assert skipped(seen) == 0
    for _ in range(examples(12, 200)):
        where = random_filter(random, whole)
        assert_same(table.to_arrow(filter=where), whole.filter(where), str(where))
    assert bool(skipped(seen)) == (how != "no statistics")


@pytest.mark.parametrize(
    "change",
    [
        {pa.string(): pa.dictionary(pa.int32(), pa.string())},
        {pa.string(): pa.large_string()},
        {pa.string(): pa.binary()},
        {
            pa.int8(): pa.int32(),
            pa.int16(): pa.int64(),
            pa.int32(): pa.int8(),
            pa.timestamp("us"): pa.timestamp("ns"),
        },
        {
            pa.timestamp("ms"): pa.timestamp("ns"),
            pa.decimal128(9, 2): pa.decimal128(12, 2),
            pa.date32(): pa.date64(),
        },
    ],
    ids=str,
)
def test_columns_that_are_stored_as_another_type_are_read_right(
    change: dict[pa.DataType, pa.DataType], tmp_path: Path, seen: Seen
) -> None:
    table = every_type(tmp_path, nulls=True)
    whole, random = table.to_arrow(), Random(str(change))
    in_groups(table, twisted(whole, change))
    names = [one.name for one in whole.schema if one.type in change]
    for _ in range(examples(10, 100)):
        where = random_filter(random, whole.select(names))
        assert_same(table.to_arrow(filter=where), whole.filter(where), str(where))


@pytest.mark.parametrize("whole_decimals", [True, False])
def test_one_value_is_looked_for_in_one_row_group(
    whole_decimals: bool, tmp_path: Path, seen: Seen
) -> None:
    table = in_groups(every_type(tmp_path), store_decimal_as_integer=whole_decimals)
    whole = table.to_arrow()
    seen.clear()
    for (name, type_), column in zip(COLUMNS, whole.columns, strict=True):
        where = pc.field(name) == column[45]
        assert_same(
            table.to_arrow(filter=where, columns=[name]), whole.filter(where).select([name]), type_
        )
        proven = type_ in BY_BOUNDS and (whole_decimals or "DECIMAL" not in type_)
        wanted = {"BOOLEAN": GROUPS // 2}.get(type_, GROUPS - 1) if proven else 0
        assert skipped(seen) == wanted, type_


def test_null_counts_skip_in_every_type(tmp_path: Path, seen: Seen) -> None:
    table = in_groups(every_type(tmp_path, nulls=True))
    whole = table.to_arrow()
    seen.clear()
    for name, type_ in COLUMNS:
        for where, groups in ((pc.field(name).is_valid(), 1), (pc.field(name).is_null(), 0)):
            assert_same(
                table.to_arrow(filter=where, columns=["c0"]), whole.filter(where).select(["c0"])
            )
            assert skipped(seen) == groups, type_


# -- footers that prove nothing -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("writer", "known"),
    [
        (b"parquet-cpp-arrow version ", True),
        (b"parquet-mr version 1.16.0 ", True),
        (b"parquet-mr version 1.10.9 ", True),
        (b"parquet-mr version 1.9.99 ", False),
        (b"parquet-cpp version 1.5.1-", False),
        (b"some-other-one version 9.9", False),
    ],
)
def test_only_footers_of_known_writers_count(
    writer: bytes, known: bool, tmp_path: Path, seen: Seen
) -> None:
    table = in_groups(every_type(tmp_path))
    (file,) = names_of(table)
    data = file.read_bytes()
    assert data.count(b"parquet-cpp-arrow version ") == 1
    file.write_bytes(data.replace(b"parquet-cpp-arrow version ", writer))
    for name in ("c3", "c10"):
        assert table.to_arrow(filter=pc.field(name) == table.to_arrow()[name][5]).num_rows == 1
    assert skipped(seen) == 2 * (GROUPS - 1) * known


def test_text_without_an_upper_bound_is_read(tmp_path: Path, seen: Seen) -> None:
    """A footer may leave out a long bound and keep the other one."""
    table = made(tmp_path, [("s", "STRING")])
    texts = [
        "",
        *["x" * 5_000] * (GROUP - 1),
        *["a"] * GROUP,
        *["\U0001f600"] * GROUP,
        *["\uffff"] * GROUP,
    ]
    table.append(pa.table({"s": texts}))
    in_groups(table)
    whole = table.to_arrow()
    seen.clear()
    for text, groups in (
        ("x" * 5_000, 3),
        ("a", 2),
        ("\uffff", 2),
        ("\U0001f600", 2),
        ("", 3),
        ("b", 3),
    ):
        for where in (pc.field("s") == text, pc.field("s") >= text, pc.field("s") <= text):
            assert_same(table.to_arrow(filter=where), whole.filter(where), str(where))
        seen.clear()
        table.to_arrow(filter=pc.field("s") == text)
        assert skipped(seen) <= groups, text


def test_nan_is_found_beyond_all_bounds(tmp_path: Path, seen: Seen) -> None:
    table = made(tmp_path, [("x", "DOUBLE")])
    table.append(pa.table({"x": [1.0, NAN, 2.0, 3.0, NAN, NAN, 0.0, -0.0, None, None]}))
    in_groups(table, row_group_size=2)
    whole = table.to_arrow()
    for where in (
        pc.field("x").is_null(nan_is_null=True),
        pc.is_nan(pc.field("x")),
        pc.field("x") > 2.5,
        pc.field("x") != 1.0,
        pc.field("x").isin([-0.0]),
        pc.divide(pc.scalar(1.0), pc.field("x")) < 0,
        pc.field("x").is_null(),
    ):
        assert_same(table.to_arrow(filter=where), whole.filter(where), str(where))


def test_a_column_with_a_dot_is_not_taken_for_a_member_of_a_row(tmp_path: Path, seen: Seen) -> None:
    table = made(tmp_path, [("a", "ROW<b INT>"), ("a.b", "INT"), ("c", "INT")])
    schema = table.to_arrow().schema
    numbers = list(range(GROUP * 2))
    columns = {"a": [{"b": one + 1_000} for one in numbers], "a.b": numbers, "c": numbers}
    table.append(pa.table(columns, schema=schema))
    in_groups(table)
    assert table.to_arrow(filter=pc.field("a.b") == 15)["c"].to_pylist() == [15]
    assert table.to_arrow(filter=pc.field(("a", "b")) == 1_015)["c"].to_pylist() == [15]
    assert skipped(seen) == 0
    assert table.to_arrow(filter=pc.field("c") == 15)["a.b"].to_pylist() == [15]
    assert skipped(seen) == 1


@pytest.mark.parametrize(
    ("other", "empty", "name"),
    [("ROW<b INT>", {"b": None}, "a.b"), ("ARRAY<INT>", [None], "a.list.element")],
)
def test_a_row_with_a_dot_in_its_name_is_not_taken_for_a_member(
    other: str, empty: Any, name: str, tmp_path: Path
) -> None:
    table = made(tmp_path, [("a", other), (name, "ROW<c INT>")])
    table.append(
        pa.table({"a": [empty] * 2, name: [{"c": 1}, {"c": 2}]}, schema=table.to_arrow().schema)
    )
    assert table.to_arrow(filter=pc.field(name).is_valid()).num_rows == 2


# -- positions ------------------------------------------------------------------------------------


def numbered(path: Path, **options: str) -> PaimonTable:
    """Eighty rows in eight row groups, whose numbers ascend."""
    table = made(path, [("id", "INT"), ("v", "STRING")], options=options)
    table.append(
        pa.table({"id": pa.array(range(ROWS), pa.int32()), "v": [f"v{one}" for one in range(ROWS)]})
    )
    return in_groups(table)


def test_deletion_vectors_still_mark_the_same_rows(tmp_path: Path, seen: Seen) -> None:
    table = numbered(tmp_path, **{"deletion-vectors.enabled": "true"})
    table.delete(pc.field("id").isin([*range(0, ROWS, 7), 44]))
    seen.clear()
    for low, high in ((0, 1), (40, 50), (44, 47), (15, 62), (70, 80)):
        where = (pc.field("id") >= low) & (pc.field("id") < high)
        wanted = [one for one in range(low, high) if one % 7 and one != 44]
        assert sorted(table.to_arrow(filter=where)["id"].to_pylist()) == wanted
        assert [
            one
            for rows in table.to_batches(filter=where, batch_rows=3)
            for one in rows["id"].to_pylist()
        ] == wanted
        assert skipped(seen) == 2 * (GROUPS - (-(-high // GROUP) - low // GROUP))


def test_row_ids_are_those_of_a_full_read(tmp_path: Path, seen: Seen) -> None:
    table = numbered(tmp_path, **{"row-tracking.enabled": "true"})
    scan = plan_scan(table._table, filter=pc.field("id") >= 55, columns=["id"])
    scan = replace(scan, columns=(*scan.columns, ROW_ID_COLUMN, SEQUENCE_COLUMN))
    ids, row_ids, _ = pa.Table.from_batches(read_batches(scan)).columns
    assert ids.to_pylist() == row_ids.to_pylist() == list(range(55, ROWS))
    assert skipped(seen) == 5


def test_a_file_with_other_rows_than_its_manifest_says_is_still_found_out(
    tmp_path: Path, seen: Seen
) -> None:
    table = numbered(tmp_path)
    (file,) = names_of(table)
    in_groups(table, pq.ParquetFile(file).read().slice(0, ROWS - 1))
    with pytest.raises(FormatError, match="holds 79 rows; its manifest says 80"):
        table.to_arrow(filter=pc.field("id") == 5)
    assert skipped(seen) == GROUPS - 1


# -- which files, and which columns ---------------------------------------------------------------


def test_only_files_whose_rows_are_final_are_read_in_part(tmp_path: Path, seen: Seen) -> None:
    options = {"bucket": "1", "write-only": "true"}
    table = made(
        tmp_path, [("id", "INT NOT NULL"), ("n", "INT")], primary_keys=["id"], options=options
    )
    ids = pa.array(range(ROWS), pa.int32())
    table.append(pa.table({"id": ids, "n": ids}))
    in_groups(table)
    where = pc.field("n") == 45
    assert table.to_arrow(filter=where).to_pylist() == [{"id": 45, "n": 45}]
    assert skipped(seen) == GROUPS - 1
    table.append(
        pa.table({"id": pa.array([45, 46], pa.int32()), "n": pa.array([0, 45], pa.int32())})
    )
    assert table.to_arrow(filter=where).to_pylist() == [{"id": 46, "n": 45}]
    assert skipped(seen) == 0  # an old row of a key would come back


def test_columns_are_found_by_id_and_only_in_today_s_type(tmp_path: Path, seen: Seen) -> None:
    table = made(
        tmp_path,
        [("a", "INT"), ("b", "INT"), ("c", "INT"), ("d", "INT"), ("p", "STRING")],
        partition_keys=["p"],
    )
    numbers = pa.array(range(ROWS), pa.int32())
    table.append(pa.table({**dict.fromkeys("abcd", numbers), "p": ["x"] * ROWS}))
    in_groups(table)
    changes = [
        SchemaChange.rename_column("a", "was_a"),
        SchemaChange.rename_column("b", "a"),
        SchemaChange.update_column_type("c", "BIGINT"),
        SchemaChange.drop_column("d"),
    ]
    alter_table(LocalStorage(table.location), changes)
    alter_table(LocalStorage(table.location), [SchemaChange.add_column("d", "INT")])
    table = PaimonTable.load(table.location)
    for where, rows, groups in (
        (pc.field("was_a") == 45, 1, GROUPS - 1),
        (pc.field("a") < 15, 15, GROUPS - 2),
        (pc.field("c") == 45, 1, 0),
        (pc.field("d").is_null(), ROWS, 0),
        (pc.field("d") == 45, 0, 0),
        ((pc.field("p") == "x") & (pc.field("a") == 45), 1, GROUPS - 1),
        ((pc.field("p") == "y") | (pc.field("a") == 45), 1, GROUPS - 1),
        (pc.field("p").is_null() | (pc.field("a") == 45), 1, GROUPS - 1),
    ):
        assert table.to_arrow(filter=where, columns=["p"]).num_rows == rows, str(where)
        assert skipped(seen) == groups, str(where)


def test_a_large_file_of_ours_is_read_in_part(tmp_path: Path, seen: Seen) -> None:
    table = made(
        tmp_path,
        [("id", "BIGINT"), ("at", "TIMESTAMP(9)"), ("s", "STRING")],
        options={"bucket": "-1"},
    )
    rows = 550_000
    numbers = np.arange(rows)
    table.append(
        pa.table(
            {
                "id": numbers,
                "at": pa.array(numbers, pa.timestamp("ns")),
                "s": pa.array(numbers).cast("string"),
            }
        )
    )
    (file,) = names_of(table)
    groups = pq.ParquetFile(file).num_row_groups
    assert groups > 2
    assert table.to_arrow(filter=pc.field("id") == rows - 1)["s"].to_pylist() == [str(rows - 1)]
    assert skipped(seen) == groups - 1
