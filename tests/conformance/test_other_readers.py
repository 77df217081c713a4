"""Readers that share no code with us, Python's official one and the one in Rust, read what we
write.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.merge.spec import KIND
from paimon_stream.options import is_known
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import load_table
from tests.kits.other_engines import ENGINES, answered_by, rows_found_by
from tests.kits.tables import batch_of

SCALARS = [
    ("k", "INT NOT NULL"),
    ("b", "BOOLEAN"),
    ("t", "TINYINT"),
    ("l", "BIGINT"),
    ("f", "FLOAT"),
    ("d", "DOUBLE"),
    ("n", "DECIMAL(9, 2)"),
    ("w", "DECIMAL(38, 10)"),
    ("s", "STRING"),
    ("y", "BYTES"),
    ("day", "DATE"),
    ("at", "TIMESTAMP(3)"),
    ("fine", "TIMESTAMP(6)"),
    ("dt", "STRING NOT NULL"),
]
NESTED = [("a", "ARRAY<INT>"), ("m", "MAP<STRING, BIGINT>"), ("r", "ROW<x INT, y STRING>")]


def row(k: int, **more: Any) -> dict[str, Any]:
    stamp = dt.datetime(2024, 2, 29, 1, 2, 3, 4000)
    values = (
        k,
        k % 2 == 0,
        k - 3,
        10**12 + k,
        1.5,
        -2.25,
        Decimal("12.50"),
        Decimal("1.5") + k,
        "grüße 🎈",
        b"\x00\xff",
        dt.date(2024, 2, 29),
        stamp,
        stamp.replace(microsecond=k),
        f"d{k % 2}",
    )
    made = dict(zip((name for name, _ in SCALARS), values, strict=True))
    if k == 5:
        made.update({name: None for name, type_ in SCALARS if "NOT NULL" not in type_})
    return {**made, "a": [1, None, k], "m": {"x": k}, "r": (k, None), **more}


def append_only(path: Path, format_: str, nested: bool) -> PaimonTable:
    columns = SCALARS + (NESTED if nested else [])
    options = {"file.format": format_, "bucket": "2", "bucket-key": "k"}
    table = PaimonTable.create(str(path), columns, partition_keys=["dt"], options=options)
    for start in (0, 10):
        add(table, [row(start + i) for i in range(10)])
    return table


def keyed(path: Path, format_: str) -> PaimonTable:
    options = {"file.format": format_, "bucket": "2"}
    table = PaimonTable.create(
        str(path), SCALARS, primary_keys=["dt", "k"], partition_keys=["dt"], options=options
    )
    add(table, [row(i) for i in range(20)])
    add(table, [row(i, s="newer") for i in range(5, 25)])
    add(table, [row(i) for i in (0, 7, 24)], kind=3)
    return table


def add(table: PaimonTable, rows: list[dict[str, Any]], kind: int | None = None) -> None:
    batch = batch_of(load_table(LocalStorage(table.location)).schema, rows)
    if kind is not None:
        batch = batch.append_column(KIND, pa.array(np.full(len(rows), kind, np.int8)))
    table.append(batch)


TABLES: dict[str, Callable[[Path], PaimonTable]] = {
    "parquet": lambda path: append_only(path, "parquet", nested=True),
    "orc": lambda path: append_only(path, "orc", nested=True),
    "avro": lambda path: append_only(path, "avro", nested=False),
    "keys in parquet": lambda path: keyed(path, "parquet"),
    "keys in orc": lambda path: keyed(path, "orc"),
}


def test_every_option_of_pypaimon_is_one_that_we_know(tmp_path: Path) -> None:
    keys = answered_by("pypaimon", "options", tmp_path, tmp_path)["key"].to_pylist()
    assert len(keys) > 100
    assert [key for key in keys if not is_known(key)] == []


@pytest.mark.parametrize("reader", ENGINES)
@pytest.mark.parametrize("name", TABLES)
def test_other_readers_find_the_rows_we_find(tmp_path: Path, name: str, reader: str) -> None:
    path = tmp_path / "db.db" / "t"
    table = TABLES[name](path)
    theirs, ours = rows_found_by(reader, path, tmp_path), table.to_arrow()
    assert ours.num_rows == (22 if "keys" in name else 20)
    assert comparable(theirs.select(ours.schema.names).cast(ours.schema)) == comparable(ours)


def comparable(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.sort_by("k").to_pylist()))
