"""Random filters on every table that Java wrote: the rows are those that pyarrow keeps of a full
read.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.read import rows as reading
from tests.kits.filters import assert_same, random_filter
from tests.kits.params import one_in
from tests.kits.seeds import examples

HERE = Path(__file__).parent.parent / "golden"
TABLES = sorted(
    str(one.parent.relative_to(HERE))
    for one in HERE.glob("**/db.db/t/schema")
    if "external" not in str(one)
)
_FILTERS = examples(3, 8)


def test_there_are_tables() -> None:
    assert len(TABLES) > 50


@pytest.mark.parametrize("name", one_in(4, TABLES))
def test_random_filters_keep_what_a_full_read_keeps(name: str) -> None:
    table = PaimonTable.load(str(HERE / name))
    whole = table.to_arrow()
    random = Random(name)
    for _ in range(_FILTERS if whole.num_rows else 0):
        where = random_filter(random, whole)
        assert_same(table.to_arrow(filter=where), whole.filter(where), str(where))


@pytest.mark.parametrize("case", one_in(3, ["all_types", "all_types_avro", "all_types_orc"]))
def test_every_value_of_every_type_is_found_where_it_is_a_bound(case: str) -> None:
    table = PaimonTable.load(str(HERE / case / "db.db" / "t"))
    whole = table.to_arrow()
    for name in whole.column_names:
        column = whole[name]
        if pa.types.is_nested(column.type) or column.null_count == len(column):
            continue
        for value in (pc.min(column), pc.max(column)):
            for where in (
                pc.field(name) == value,
                pc.field(name) <= value,
                pc.field(name) >= value,
            ):
                assert_same(table.to_arrow(filter=where), whole.filter(where), str(where))


COLUMNS = [
    ("id", "INT NOT NULL"),
    ("n", "BIGINT"),
    ("s", "STRING"),
    ("c", "CHAR(5)"),
    ("b", "BOOLEAN"),
    ("day", "DATE"),
    ("d", "DECIMAL(9, 2)"),
    ("big", "DECIMAL(30, 5)"),
    ("at", "TIMESTAMP(3)"),
    ("fine", "TIMESTAMP(9)"),
    ("x", "DOUBLE"),
    ("zoned", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    ("raw", "BYTES"),
]
PROVEN = ["id", "n", "s", "c", "d", "day", "at", "zoned"]


def row(one: int) -> dict[str, Any]:
    """The values ascend. Two of three are NULL in some columns."""
    start = dt.datetime(1969, 6, 1)
    return {
        "id": one - 200,
        "n": None if one % 3 else one * 2**40 - 2**48,
        "s": None if one % 3 else chr(0x41 + one * 50) * (one % 40 + 1),
        "c": f"é{one:03}",
        "b": one >= 300,
        "d": Decimal(one - 200) / 4,
        "big": Decimal(one) * 10**20,
        "day": start.date() + dt.timedelta(days=one),
        "at": start + dt.timedelta(hours=12 * one),
        "fine": start + dt.timedelta(hours=12 * one),
        "x": float("nan") if one % 7 == 0 else one - 200.5,
        "zoned": (start + dt.timedelta(hours=12 * one)).replace(tzinfo=dt.timezone.utc),
        "raw": bytes([one // 3]),
    }


@pytest.mark.parametrize("keyed", one_in(2, [True, False]))
def test_row_groups_that_java_wrote_are_skipped(
    keyed: bool, tmp_path: Path, java: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"bucket": "1", "bucket-key": "id", "write-only": "true", "file.block-size": "1 kb"}
    java.create_table(
        tmp_path / "t", COLUMNS, primary_keys=["id"] if keyed else [], options=options
    )
    java.write(tmp_path / "t", list(map(row, range(600))), "w", 1)
    (file,) = (tmp_path / "t").rglob("data-*.parquet")
    groups = pq.ParquetFile(file).num_row_groups
    assert groups > 3
    table = PaimonTable.load(str(tmp_path / "t"))
    whole, skipped, file_chunks = table.to_arrow(), 0, reading.file_chunks

    def counted(*arguments: Any) -> Any:
        nonlocal skipped
        for chunk in file_chunks(*arguments):
            skipped += chunk.skipped
            yield chunk

    monkeypatch.setattr(reading, "file_chunks", counted)
    for name in whole.column_names:
        skipped = 0
        where = pc.field(name) == whole[name][300]
        assert_same(table.to_arrow(filter=where), whole.filter(where), name)
        assert (
            skipped == groups - 1
            if name in PROVEN
            else skipped <= (groups - 1 if name == "b" else 0)
        ), name
    random = Random(0)
    for _ in range(examples(15, 60)):
        where = random_filter(random, whole)
        assert_same(table.to_arrow(filter=where), whole.filter(where), str(where))
