"""Tables with deletion vectors: read as Java reads them, and written to so that Java goes on with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.types import arrow_type
from tests.kits.reading import assert_rows, java_rows, wire_rows

APPENDED = ("vectors_append32", "vectors_append64", "vectors_append_bucketed")
Golden = Callable[[str], tuple[Path, dict[str, Any]]]


def same_as_java(java: Any, path: Path) -> PaimonTable:
    table = PaimonTable.load(str(path))
    assert_rows(table.to_arrow(), table.schema.fields, java_rows(java, table))
    assert not [one for one in table.verify().findings if one.severity != "info"]
    return table


@pytest.mark.parametrize("name", [*APPENDED, "vectors_pk"])
def test_the_rows_of_each_snapshot_are_those_that_java_found(golden: Golden, name: str) -> None:
    path, expected = golden(f"kinds/{name}")
    table = PaimonTable.load(str(path))
    for number, rows in {**expected["snapshot_rows"], None: expected["rows"]}.items():
        found = table.to_arrow(snapshot_id=None if number is None else int(number))
        assert Counter(map(str, wire_rows(found, table.schema.fields))) == Counter(map(str, rows))


@pytest.mark.parametrize("name", APPENDED)
def test_appended_rows_bring_no_deleted_row_back(golden: Golden, java: Any, name: str) -> None:
    path, expected = golden(f"kinds/{name}")
    table = PaimonTable.load(str(path))
    values = {"INT": [900, 901], "BIGINT": [1, 2], "STRING": ["x", "new"]}
    table.append(
        pa.table(
            {one.name: pa.array(values[str(one.type).split()[0]], arrow_type(one.type)) for one in table.schema.fields}
        )
    )
    table = same_as_java(java, path)
    assert table.to_arrow().num_rows == len(expected["rows"]) + 2
    assert len(java.index_files(path)) == len(expected["index"])
    schema = path / "schema" / "schema-0"
    made = schema.read_text()
    for text in (made, made.replace('"deletion-vectors.enabled" : "true"', '"deletion-vectors.enabled" : "false"')):
        schema.write_text(text)
        with pytest.raises(UnsupportedFeature, match="deletion vectors"):
            PaimonTable.load(str(path)).compact(full=True)
    schema.write_text(made)
    java.compact(path)
    assert same_as_java(java, path).to_arrow().num_rows == len(expected["rows"]) + 2


def test_an_overwritten_partition_loses_its_vectors_and_no_others(golden: Golden, java: Any) -> None:
    path, _ = golden("kinds/vectors_append32")
    table = PaimonTable.load(str(path))
    others = table.to_arrow().filter(pa.compute.field("p") != "x").num_rows
    row = {"id": pa.array([1], pa.int32()), "p": ["x"], "v": pa.array([5], pa.int64())}
    table.overwrite(pa.table(row), partition={"p": "x"})
    assert same_as_java(java, path).to_arrow().num_rows == others + 1
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    assert same_as_java(java, path).to_arrow().num_rows == others + 1


def test_external_paths_that_no_strategy_uses_are_no_external_paths(java: Any, tmp_path: Path) -> None:
    path = tmp_path / "db.db" / "t"
    outside = f"file://{tmp_path}/outside"
    java.create_table(path, [("id", "INT")], options={"data-file.external-paths": outside})
    java.write(path, [(1,)])
    PaimonTable.load(str(path)).append(pa.table({"id": pa.array([2], pa.int32())}))
    java.write(path, [(3,)])
    assert sorted(same_as_java(java, path).to_arrow()["id"].to_pylist()) == [1, 2, 3]
    assert not (tmp_path / "outside").exists()
