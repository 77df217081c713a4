"""Readers that share no code with us, Python's official one and the one in Rust, read what we
write.
"""

from __future__ import annotations

import atexit
import datetime as dt
import functools
import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.merge.spec import KIND
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import load_table
from tests.kits.tables import batch_of

READERS = Path(
    os.environ.get("PAIMON_READERS", Path(__file__).parents[2] / ".venv-readers/bin/python")
)
READ: dict[str, str] = {
    "pypaimon": """
from pypaimon.table.file_store_table import FileStoreTable
def found(path):
    builder = FileStoreTable.from_path(path).new_read_builder()
    return builder.new_read().to_arrow(builder.new_scan().plan().splits())
""",
    "pypaimon_rust": """
from pypaimon_rust.datafusion import PaimonCatalog
def found(path):
    warehouse, database, name = path.rsplit("/", 2)
    catalog = PaimonCatalog({"warehouse": warehouse})
    table = catalog.get_table(database.removesuffix(".db") + "." + name)
    builder = table.new_read_builder()
    batches = list(builder.new_read().read_arrow(builder.new_scan().plan().splits()))
    return pa.Table.from_batches(batches)
""",
}
CHILD = """
import json, sys, traceback
import pyarrow as pa
%s
answers, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    path, out = json.loads(line)
    try:
        rows = found(path)
        with pa.OSFile(out, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
        answer = None
    except BaseException:
        answer = traceback.format_exc()
    print(json.dumps(answer), file=answers, flush=True)
"""
"""It takes the paths of a table and of a file for its rows, and answers with an error or null."""
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


@functools.cache
def child(reader: str) -> tuple[subprocess.Popen[str], Path]:
    """The process of a reader, which all tests share, and what it has written to its log."""
    with tempfile.NamedTemporaryFile(prefix=f"{reader}-", suffix=".log", delete=False) as log:
        process = subprocess.Popen(
            [READERS, "-c", CHILD % READ[reader]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    atexit.register(process.communicate)  # it ends where its input ends
    return process, Path(log.name)


def rows_found_by(reader: str, path: Path, out: Path) -> pa.Table:
    """What a reader finds in a table on the local disk, in a process of its own."""
    if not READERS.exists():
        pytest.skip("other readers have a venv of their own: make .venv-readers/.ready")
    process, log = child(reader)
    assert process.stdin is not None and process.stdout is not None
    print(json.dumps([str(path), str(out)]), file=process.stdin, flush=True)
    answer = process.stdout.readline()
    assert answer, f"{reader} has ended: {log.read_text()[-2000:]}"
    assert json.loads(answer) is None, json.loads(answer)
    with pa.OSFile(str(out)) as source:
        return pa.ipc.open_file(source).read_all()


@pytest.mark.parametrize("reader", READ)
@pytest.mark.parametrize("name", TABLES)
def test_other_readers_find_the_rows_we_find(tmp_path: Path, name: str, reader: str) -> None:
    path, out = tmp_path / "db.db" / "t", tmp_path / "rows.arrow"
    table = TABLES[name](path)
    theirs, ours = rows_found_by(reader, path, out), table.to_arrow()
    assert ours.num_rows == (22 if "keys" in name else 20)
    assert comparable(theirs.select(ours.schema.names).cast(ours.schema)) == comparable(ours)


def comparable(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.sort_by("k").to_pylist()))
