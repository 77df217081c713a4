"""Tables with data evolution: we read what Java reads, where files hold some columns of the same
rows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import FormatError, UnsupportedFeature
from tests.kits.reading import assert_rows, java_rows
from tests.kits.seeds import seeds

Golden = Callable[[str], tuple[Path, dict[str, Any]]]
COLUMNS = [("p", "STRING"), ("id", "INT"), ("a", "STRING"), ("b", "BIGINT"), ("c", "DOUBLE")]
OPTIONS = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}


def test_each_snapshot_of_java_is_read_and_each_choice_of_columns(golden: Golden) -> None:
    path, expected = golden("kinds/data_evolution")
    table = PaimonTable.load(str(path))
    for snapshot, rows in expected["snapshot_rows"].items():
        assert_rows(table.to_arrow(int(snapshot)), table.schema.fields, rows)
    whole = table.to_arrow()
    for names in (["c", "id"], ["b"], ["a"], ["b", "c"]):
        assert table.to_arrow(columns=names).equals(whole.select(names))
    assert pa.Table.from_batches(table.to_batches(batch_rows=2)).equals(whole)
    assert [one for one in table.verify(sample=100).findings if one.severity == "error"] == []


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("seed", seeds(1, 20))
def test_whatever_columns_java_writes_for_whatever_rows(
    kinds: Any, tmp_path: Path, file_format: str, seed: int
) -> None:
    random, path, ids = Random(f"{seed} {file_format}"), tmp_path / "db.db/t", 0
    options = {**OPTIONS, "file.format": file_format, "parquet.page.size": "64"}
    kinds.create_table(path, COLUMNS, ["p"], options=options)
    ranges: list[tuple[str, int, int]] = []
    columns = [name for name, _ in COLUMNS]
    for number in range(1, 9):
        count = random.choice([1, 3, 4000])
        if not ranges or random.random() < 0.4:
            p = random.choice("xy")
            values = {"id": number, "p": p, "a": f"a{number}", "b": None, "c": number / 4}
            kinds.write(
                path,
                [{name: values.get(name) for name in columns} for _ in range(count)],
                "w",
                number,
            )
            ranges.append((p, ids, count))
            ids += count
        else:
            p, first, count = random.choice(ranges)
            chosen = [one for one in columns if one == "p" or random.random() < 0.5]
            values = {
                "id": -number,
                "p": p,
                "a": f"n{number}",
                "b": number,
                "c": None,
                "d": number,
                "e": f"e{number}",
            }
            kinds.write_columns(
                path, chosen, [[values[one] for one in chosen]] * count, [first], number
            )
        if number == 4:
            kinds.alter_table(path, ("add", "d", "INT"), ("rename", "a", "e"))
            columns = [{"a": "e"}.get(one, one) for one in columns] + ["d"]
    table = PaimonTable.load(str(path))
    assert_rows(table.to_arrow(), table.schema.fields, java_rows(kinds, table))
    assert table.to_arrow(columns=["p"]).num_rows == ids
    assert table.to_arrow(partition={"p": "x"}).num_rows == sum(
        count for p, _, count in ranges if p == "x"
    )


def grown(kinds: Any, path: Path, columns: list[tuple[str, str]]) -> PaimonTable:
    kinds.create_table(path, columns, options=OPTIONS)
    kinds.write(path, [dict.fromkeys((name for name, _ in columns), 7)] * 6, "w", 1)
    return PaimonTable.load(str(path))


def test_rows_that_no_engine_can_join_are_refused_by_the_names_of_their_files(
    kinds: Any, tmp_path: Path
) -> None:
    table = grown(kinds, tmp_path / "db.db/t", [("id", "INT"), ("b", "INT")])
    kinds.write_columns(table.location, ["b"], [[8]] * 4, [0], 2)
    with pytest.raises(FormatError, match="have some rows in common, but not all") as caught:
        table.to_arrow()
    assert {one.path.rpartition("/")[2] for one in table.files()} == set(
        caught.value.context["files"]
    )
    assert table.to_arrow(1).num_rows == 6


def test_a_column_that_no_file_has_is_null_unless_it_must_not_be(
    kinds: Any, tmp_path: Path
) -> None:
    table = grown(kinds, tmp_path / "db.db/t", [("id", "INT"), ("b", "INT")])
    kinds.write_columns(table.location, ["b"], [[8]] * 6, [0], 2)
    kinds.alter_table(table.location, ("add", "d", "INT"))
    table = PaimonTable.load(table.location)
    assert table.to_arrow().column("d").null_count == 6
    assert table.to_arrow(columns=["d"]).num_rows == 6
    path = tmp_path / "db.db/u"
    table = grown(kinds, path, [("id", "INT NOT NULL"), ("b", "INT"), ("c", "INT")])
    kinds.write_columns(path, ["b"], [[8]] * 3, [6], 2)
    for why in ("Required column is missing", "is not null but can't find any file contains it"):
        with pytest.raises(FormatError, match="'id' is NOT NULL, but none of the files"):
            table.to_arrow()
        with pytest.raises(Exception, match=why):
            kinds.read(path)
        kinds.write_columns(path, ["c"], [[8]] * 3, [6], 3)
    assert table.to_arrow(columns=["c", "b"]).num_rows == 9


def test_such_tables_are_not_compacted_and_no_rows_are_deleted(golden: Golden) -> None:
    path, _ = golden("kinds/data_evolution")
    table = PaimonTable.load(str(path))
    for work in (lambda: table.compact(), lambda: table.delete(pc.field("id") == 1)):
        with pytest.raises(UnsupportedFeature, match=r"data-evolution\.enabled = true"):
            work()
    assert len(table.snapshots()) == 5


def rows_of(p: str, first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table(
        {
            "p": [p] * count,
            "id": pa.array(ids, pa.int32()),
            "a": [f"a{one}" for one in ids],
            "b": pa.array(ids, pa.int64()),
            "c": [one / 4 for one in ids],
        }
    )


def test_java_changes_columns_of_the_rows_that_we_append_and_we_overwrite_them(
    kinds: Any, tmp_path: Path
) -> None:
    path = tmp_path / "db.db/t"
    table = PaimonTable.create(str(path), COLUMNS, partition_keys=["p"], options=OPTIONS)

    def same_rows() -> pa.Table:
        now = PaimonTable.load(str(path))
        assert_rows(now.to_arrow(), now.schema.fields, java_rows(kinds, now))
        assert not now.verify(sample=100).findings
        return now.to_arrow()

    table.append(rows_of("x", 0, 5))
    kinds.write(path, rows_of("y", 5, 5).to_pylist(), "w", 1)
    table.append(pa.concat_tables([rows_of("x", 10, 3), rows_of("y", 13, 4)]))
    assert same_rows()["id"].to_pylist() == [*range(5), 10, 11, 12, *range(5, 10), *range(13, 17)]
    ranges = sorted((file["firstRowId"], file["rowCount"]) for file in kinds.files(path))
    assert ranges == [(0, 5), (5, 5), (10, 3), (13, 4)]
    assert kinds.snapshots(path)[-1]["nextRowId"] == 17
    kinds.write_columns(path, ["p", "b"], [["x", -1]] * 3, [10], 2)
    kinds.write_columns(path, ["p", "b"], [["y", -2]] * 4, [13], 3)
    changed = same_rows()
    assert changed.filter(pc.field("id") >= 10)["b"].to_pylist() == [-1] * 3 + [-2] * 4
    table.overwrite(rows_of("x", 20, 2), {"p": "x"})
    assert sorted(same_rows()["id"].to_pylist()) == [*range(5, 10), *range(13, 17), 20, 21]
    table.drop_partitions([{"p": "y"}])
    assert same_rows()["id"].to_pylist() == [20, 21]
    kinds.write_columns(path, ["p", "b"], [["x", 9]] * 2, [17], 4)
    assert same_rows()["b"].to_pylist() == [9, 9]
