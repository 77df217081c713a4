"""We and Java read the values that pypaimon writes, in every format and kind of partition, and we
compact them without changing one.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import load_table
from tests.conformance.test_other_readers import NESTED, SCALARS, comparable, row
from tests.kits.other_engines import asked, require_engines, rows_found_by, written_by
from tests.kits.params import few
from tests.kits.reading import assert_rows, java_rows
from tests.kits.tables import batch_of

PARTITIONS: dict[str, Any] = {
    "BIGINT": 10**12,
    "BOOLEAN": True,
    "CHAR(3)": "abc",
    "DATE": dt.date(2024, 2, 29),
    "DECIMAL(10, 2)": Decimal("1.50"),
    "DOUBLE": 1.5,
    "FLOAT": 0.1,
    "INT": -5,
    "STRING": "a b/c=d:é%",
    "TIMESTAMP(3)": dt.datetime(2024, 2, 29, 1, 2, 3, 4000),
    "TIMESTAMP(6)": dt.datetime(2024, 2, 29, 1, 2, 3, 4001),
}


def rows_for(path: Path, rows: list[dict[str, Any]]) -> pa.Table:
    schema = load_table(LocalStorage(str(path))).schema
    return pa.Table.from_batches([batch_of(schema, rows)])


def same_to_all(java: Any, path: Path, folder: Path, key: str) -> pa.Table:
    """The rows that all three find in the table."""
    table = PaimonTable.load(str(path))
    rows = table.to_arrow()
    assert_rows(rows, table.schema.fields, java_rows(java, table))
    theirs = rows_found_by("pypaimon", path, folder).select(rows.schema.names)
    assert comparable(theirs.cast(rows.schema), key) == comparable(rows, key)
    assert not table.verify(sample=100).findings
    return rows


@pytest.mark.parametrize(
    ("file_format", "keyed"),
    few(
        [(name, keyed) for name in ("parquet", "orc", "avro") for keyed in (False, True)],
        lambda name, keyed: name == "parquet" and not keyed,
    ),
)
def test_values_of_each_type_stay_when_we_write_more_and_compact(
    java: Any, tmp_path: Path, file_format: str, keyed: bool
) -> None:
    require_engines()
    path = tmp_path / "db.db" / "t"
    columns = SCALARS + ([] if keyed or file_format == "avro" else NESTED)
    options = {"file.format": file_format, **({"bucket": "2"} if keyed else {})}
    keys = ["dt", "k"] if keyed else []
    table = PaimonTable.create(
        str(path), columns, primary_keys=keys, partition_keys=["dt"], options=options
    )
    names = [name for name, _ in columns]
    given = rows_for(path, [{name: row(i)[name] for name in names} for i in range(10)])
    written_by("pypaimon", "append", path, tmp_path, given)
    assert comparable(same_to_all(java, path, tmp_path, "k"), "k") == comparable(given, "k")
    table.append(given)
    PaimonTable.load(str(path)).compact(full=True)
    twice = given if keyed else pa.concat_tables([given, given])
    assert comparable(same_to_all(java, path, tmp_path, "k"), "k") == comparable(twice, "k")


@pytest.mark.parametrize("legacy", ["true", "false"])
@pytest.mark.parametrize("type_", few(PARTITIONS, ("DECIMAL(10, 2)", "STRING").__contains__))
def test_we_write_into_the_partitions_of_pypaimon(
    java: Any, tmp_path: Path, type_: str, legacy: str
) -> None:
    require_engines()
    path = tmp_path / "db.db" / "t"
    options = {"partition.legacy-name": legacy}
    columns = [("id", "INT"), ("p", type_)]
    table = PaimonTable.create(str(path), columns, partition_keys=["p"], options=options)
    given = rows_for(path, [{"id": 1, "p": PARTITIONS[type_]}, {"id": 2, "p": None}])
    written_by("pypaimon", "append", path, tmp_path, given)
    folders = {folder.name for folder in path.glob("p=*")}
    assert comparable(same_to_all(java, path, tmp_path, "id"), "id") == comparable(given, "id")
    table.append(given)
    assert {folder.name for folder in path.glob("p=*")} == folders
    assert same_to_all(java, path, tmp_path, "id").num_rows == 4


@pytest.mark.parametrize("keyed", few([False, True], lambda keyed: keyed))
def test_columns_that_pypaimon_changes_are_changed_for_all(
    java: Any, tmp_path: Path, keyed: bool
) -> None:
    require_engines()
    path, unused = tmp_path / "db.db" / "t", tmp_path / "unused"
    columns = [("id", "INT NOT NULL"), ("p", "STRING NOT NULL"), ("v", "INT"), ("s", "STRING")]
    options = {"bucket": "2"} if keyed else {}
    keys = ["p", "id"] if keyed else []
    table = PaimonTable.create(
        str(path), columns, primary_keys=keys, partition_keys=["p"], options=options
    )
    old = [{"id": i, "p": "xy"[i % 2], "v": i, "s": f"s{i}"} for i in range(6)]
    table.append(rows_for(path, old))
    changes = (("add", "n", "INT"), ("type", "v", "BIGINT"), ("rename", "s", "t"))
    asked("pypaimon", "alter", path, unused, *changes)
    new = [{"id": i, "p": "xy"[i % 2], "v": 2**40 + i, "t": f"t{i}", "n": i} for i in range(4, 9)]
    written_by("pypaimon", "append", path, tmp_path, rows_for(path, new))
    same_to_all(java, path, tmp_path, "id")
    asked("pypaimon", "alter", path, unused, ("drop", "n"), ("add", "n", "STRING"))
    ours = [{"id": i, "p": "xy"[i % 2], "v": i, "t": f"u{i}", "n": "n"} for i in range(7, 12)]
    PaimonTable.load(str(path)).append(rows_for(path, ours))
    before = same_to_all(java, path, tmp_path, "id")
    PaimonTable.load(str(path)).compact(full=True)
    after = same_to_all(java, path, tmp_path, "id")
    assert comparable(after, "id") == comparable(before, "id")
    named = {row["id"]: (row["v"], row["t"], row["n"]) for row in after.to_pylist()}
    assert named[1] == (1, "s1", None)
    assert named[6] == (2**40 + 6, "t6", None)
    assert named[11] == (11, "u11", "n")


@pytest.mark.full
@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_rows_deleted_from_files_with_columns_of_the_same_rows_stay_deleted(
    tmp_path: Path, file_format: str
) -> None:
    """The files have row groups of different rows, so that their columns come in other batches."""
    path, unused, dice, count = tmp_path / "db.db" / "t", tmp_path / "unused", Random(5), 30_000
    options = {
        "row-tracking.enabled": "true",
        "data-evolution.enabled": "true",
        "deletion-vectors.enabled": "true",
        "file.format": file_format,
        "file.block-size": "20 kb",
    }
    columns = [("id", "BIGINT"), ("v", "BIGINT"), ("s", "STRING")]
    table = PaimonTable.create(str(path), columns, options=options)
    ids = range(count)
    table.append(pa.table({"id": ids, "v": ids, "s": [f"s{i}" for i in ids]}))
    changed = dice.sample(ids, 500)
    asked("pypaimon", "update", path, unused, "id", changed, {"v": -1})
    deleted = dice.sample(ids, 3000)
    asked("pypaimon", "delete", path, unused, "id", deleted)
    kept = sorted(set(ids) - set(deleted))
    renewed = set(changed)
    wanted = [(i, -1 if i in renewed else i, f"s{i}") for i in kept]
    table = PaimonTable.load(str(path))
    for batch_rows in (7, 1000, 65_536):
        rows = pa.Table.from_batches(table.to_batches(batch_rows=batch_rows))
        assert list(zip(*rows.to_pydict().values(), strict=True)) == wanted
    assert table.to_arrow(columns=["s"])["s"].to_pylist() == [s for _, _, s in wanted]
    found = table.to_arrow(columns=["id"], filter=pc.field("v") == -1)
    assert found["id"].to_pylist() == [i for i, v, _ in wanted if v == -1]
    assert not table.verify(sample=1000).findings
