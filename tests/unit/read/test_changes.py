"""Reads of what has changed: in batches, in splits, with filters, and options in the schema. What the
rows are is compared with Java in tests/conformance/test_changes_beside_java.py.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import IncompatibleSchema, InvalidOption, UnsupportedFeature
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.read.changes import plan_read
from paimon_stream.table.schema_change import SchemaChange
from paimon_stream.table.table import alter_table, load_table
from tests.kits.keyed import commit_changes

BETWEEN = "incremental-between"
MODE = "incremental-between-scan-mode"
COLUMNS = [("p", "INT NOT NULL"), ("k", "INT NOT NULL"), ("v", "INT")]


def rows_of(numbers: Any, value: int) -> pa.Table:
    ids = pa.array(list(numbers), pa.int32())
    return pa.table(
        {"p": pc.bit_wise_and(ids, 1), "k": ids, "v": pa.array([value] * len(ids), pa.int32())}
    )


def keyed(root: Path, **options: str) -> PaimonTable:
    """A table in two partitions: 3,000 rows, of which every tenth is changed and some are deleted,
    in a compaction, two snapshots, and another compaction. It ends with snapshot 5.
    """
    table = PaimonTable.create(
        str(root / "db.db" / "t"),
        COLUMNS,
        partition_keys=["p"],
        primary_keys=["p", "k"],
        options={"bucket": "2", "write-only": "true", **options},
    )
    table.append(rows_of(range(3000), 0))
    table.compact(full=True)
    table.append(rows_of(range(0, 3000, 10), 1))
    commit_changes(
        table, [("-D", {"p": number & 1, "k": number, "v": 1}) for number in range(0, 3000, 100)], 9
    )
    table.compact(full=True)
    return table


CHANGED = {number for number in range(0, 3000, 10) if number % 100}


@pytest.mark.parametrize("batch_rows", [7, 65_536])
def test_a_difference_is_read_in_batches(batch_rows: int, tmp_path: Path) -> None:
    wanted = {BETWEEN: "2,5", MODE: "diff"}
    batches = list(keyed(tmp_path).to_batches(options=wanted, batch_rows=batch_rows))
    assert all(0 < batch.num_rows <= batch_rows for batch in batches)
    rows = pa.Table.from_batches(batches).to_pylist()
    assert sorted(row["k"] for row in rows) == sorted(CHANGED)
    assert {row["v"] for row in rows} == {1}


def test_columns_filters_and_partitions_choose_among_the_changes(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for mode, range_, expected in (
        ("diff", "2,5", {number for number in CHANGED if number > 2900}),
        ("delta", "2,5", {number for number in range(0, 3000, 10) if number > 2900}),
    ):
        wanted = {BETWEEN: range_, MODE: mode}
        rows = table.to_arrow(options=wanted, filter=pc.field("k") > 2900, columns=["v", "k"])
        assert rows.column_names == ["v", "k"]
        assert set(rows["k"].to_pylist()) == expected
        assert table.to_arrow(options=wanted, partition={"p": 1}).num_rows == 0
        assert table.to_arrow(options=wanted, partition={"p": 0}).num_rows >= len(CHANGED)
    with pytest.raises(IncompatibleSchema, match="has no column"):
        table.to_arrow(options={BETWEEN: "2,5"}, columns=["rowkind"])
    with pytest.raises(InvalidOption, match="cannot be set for one call"):
        table.to_arrow(options={"scan.mode": "latest"})
    with pytest.raises(InvalidOption, match="snapshot_id, incremental-between are given together"):
        table.to_arrow(snapshot_id=1, options={BETWEEN: "2,5"})


@pytest.mark.parametrize("mode", ["diff", "delta", "changelog"])
def test_splits_of_the_changes_have_the_rows_of_a_full_read(mode: str, tmp_path: Path) -> None:
    splits = pytest.importorskip("paimon_stream.spark.splits")
    table = keyed(tmp_path, **{"changelog-producer": "lookup"})
    asked = {BETWEEN: "2,5", MODE: mode, "read.changelog": "true"}
    scan = plan_read(load_table(table._table.storage, asked), asked=asked)
    encoded = splits.splits_of(scan, 1)
    assert len(encoded) == 2  # only one partition has changed
    arrow = table.to_arrow(options=asked).schema
    rows = Counter(
        map(
            repr,
            (
                row
                for split in encoded
                for batch in splits.rows_of_split(
                    splits.without_files(scan), arrow, split, CommitMessage.VERSION
                )
                for row in batch.to_pylist()
            ),
        )
    )
    assert rows == Counter(map(repr, table.to_arrow(options=asked).to_pylist()))


def test_options_in_the_schema_that_a_read_does_not_follow_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = PaimonTable.create(
        str(tmp_path / "t"),
        [("id", "INT")],
        options={
            "scan.mode": "compacted-full",
            "consumer-id": "x",
            "scan.ignore-lost-files": "false",
        },
    )
    table.append(pa.table({"id": pa.array([1], pa.int32())}))
    assert table.to_arrow().num_rows == 1
    assert "scan.mode = compacted-full. They are not followed" in caplog.text
    assert "consumer-id" not in caplog.text and "lost-files" not in caplog.text


def three_snapshots(path: Path, options: dict[str, str]) -> PaimonTable:
    """A table with these options in its schema. Each snapshot adds a row with its number."""
    table = PaimonTable.create(str(path), [("id", "INT")], options=options)
    for number in (1, 2, 3):
        table.append(pa.table({"id": pa.array([number], pa.int32())}))
    return table


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scan.snapshot-id": "abc"}, "scan.snapshot-id is 'abc'"),
        ({"scan.timestamp": "abc"}, "scan.timestamp is 'abc'"),
        (
            {"scan.timestamp": "2024-01-01", "scan.timestamp-millis": "5"},
            "contradict each other: scan.timestamp, scan.timestamp-millis",
        ),
        (
            {"scan.snapshot-id": "1", BETWEEN: "1,2"},
            "contradict each other: scan.snapshot-id, incremental-between",
        ),
    ],
)
def test_wrong_options_in_the_schema_are_named_by_their_keys(
    options: dict[str, str], message: str, tmp_path: Path
) -> None:
    table = three_snapshots(tmp_path / "t", options)
    with pytest.raises(InvalidOption, match=message):
        table.to_arrow()
    assert table.to_arrow(snapshot_id=2).num_rows == 2


@pytest.mark.parametrize("options", [{"scan.snapshot-id": "1"}, {BETWEEN: "1,2"}])
def test_a_scan_mode_of_the_call_outweighs_the_schema(
    options: dict[str, str], tmp_path: Path
) -> None:
    table = three_snapshots(tmp_path / "t", options)._table
    for mode, rows in (("latest", 3), ("Latest-Full", 3), ("default", 1)):
        scan = plan_read(table, asked={"scan.mode": mode})
        assert sum(entry.file.row_count for entry in scan.files) == rows


def test_kinds_in_the_schema_are_a_column_of_snapshots_that_is_read_when_named(
    tmp_path: Path,
) -> None:
    table = three_snapshots(tmp_path / "t", {"read.changelog": "true"})
    assert table.to_arrow().column_names == ["id"]
    rows = table.to_arrow(snapshot_id=2, columns=["id", "rowkind"])
    assert rows.to_pylist() == [{"id": 1, "rowkind": "+I"}, {"id": 2, "rowkind": "+I"}]
    assert table.to_arrow(columns=["rowkind"]).to_pylist() == [{"rowkind": "+I"}] * 3


def test_rows_that_wait_for_a_compaction_are_no_silent_part_of_the_changes(tmp_path: Path) -> None:
    table = PaimonTable.create(
        str(tmp_path / "t"),
        COLUMNS,
        partition_keys=["p"],
        primary_keys=["p", "k"],
        options={"bucket": "-2"},
    )
    table.append(rows_of([2], 0))
    table.append(rows_of([3], 0))
    table.compact()
    for options in ({BETWEEN: "0,1"}, {BETWEEN: "1,3", MODE: "delta"}):
        with pytest.raises(InvalidOption, match="wait for a compaction in bucket -2"):
            table.to_arrow(options=options)
    assert table.to_arrow(options={BETWEEN: "1,2"}, partition={"p": 0}).num_rows == 0
    assert table.to_arrow(options={BETWEEN: "2,3", MODE: "diff"}).num_rows == 2


def test_rows_from_before_the_changelog_are_no_silent_part_of_it(tmp_path: Path) -> None:
    options = {"bucket": "1", "write-only": "true"}
    path = str(tmp_path / "t")
    table = PaimonTable.create(path, COLUMNS, primary_keys=["k"], options=options)
    table.append(rows_of([1], 0))
    alter_table(table._table.storage, [SchemaChange.set_option("changelog-producer", "input")])
    table.append(rows_of([2], 0))
    for options in ({BETWEEN: "0,2"}, {BETWEEN: "0,1", MODE: "changelog"}):
        with pytest.raises(InvalidOption, match="snapshot 1 has rows and no changelog"):
            table.to_arrow(options=options)
    assert table.to_arrow(options={BETWEEN: "1,2"})["k"].to_pylist() == [2]
    assert table.to_arrow(options={BETWEEN: "0,2", MODE: "delta"}).num_rows == 2


def test_the_column_of_kinds_is_named_once(tmp_path: Path) -> None:
    table = PaimonTable.create(str(tmp_path / "t"), [("id", "INT")])
    table.append(pa.table({"id": pa.array([1], pa.int32())}))
    asked = {BETWEEN: "0,1", "read.changelog": "true"}
    for columns in (["rowkind", "rowkind"], ["rowkind", "id", "rowkind"]):
        with pytest.raises(IncompatibleSchema, match="named twice"):
            table.to_arrow(options=asked, columns=columns)


def test_changes_of_rows_whose_files_lack_columns_are_refused(tmp_path: Path) -> None:
    table = PaimonTable.create(
        str(tmp_path / "t"),
        [("id", "INT")],
        options={"row-tracking.enabled": "true", "data-evolution.enabled": "true"},
    )
    with pytest.raises(UnsupportedFeature, match="cannot be read by what has changed"):
        table.to_arrow(options={BETWEEN: "0,1"})
