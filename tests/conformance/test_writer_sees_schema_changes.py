"""A stream of ours continues while Java Paimon changes the table. Each batch is written under the
schema and the options at the time of its judgement, and Java reads old and new files together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from paimon_stream.errors import UnsupportedFeature
from paimon_stream.storage.local import LocalStorage
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.steps import JudgedBatch
from paimon_stream.stream.verdicts import Batch
from paimon_stream.stream.writer import StreamWriter
from tests.golden.casekit import load, model, require_same
from tests.kits.steps import Messages, run_batch
from tests.kits.tables import write_rows

Rows = list[dict[str, Any]]
HERE = Path(__file__).parent
IDENTITY = WriterIdentity(
    user="stream", query_id="q", run_id="r", checkpoint="/ck", query_name=None, token="one"
)


class Stream:
    """One run of a stream, which lives through all changes of its table."""

    def __init__(self, path: Path, **options: str) -> None:
        self.writer = StreamWriter(
            storage=LocalStorage(str(path)), identity=IDENTITY, options=options
        )
        self._batch = 0

    def write(self, rows: Rows, between: Callable[[], object] = lambda: None) -> None:
        """Writes the next batch. `between` is called when its files are written and not yet
        committed.
        """
        batch = Batch(batch_id=self._batch)

        def written(judged: JudgedBatch) -> Messages:
            messages = write_rows(judged.table, rows)
            between()
            return messages

        assert run_batch(self.writer, batch, written).outcome == "committed"
        self._batch += 1


def schema_ids(java: Any, path: Path) -> list[int]:
    return sorted(file["schemaId"] for file in java.files(path))


@pytest.mark.parametrize("name", ["evolved"])
def test_the_steps_of_a_golden_table_with_changes_are_taken_by_one_stream(
    java: Any, tmp_path: Path, name: str
) -> None:
    case, expected = load(HERE.parent / "golden" / name)
    path = tmp_path / "db.db" / "t"
    java.create_table(path, case.schema, case.partition_keys, case.primary_keys, case.options)
    stream = Stream(path)
    before: Sequence[tuple[str, str]] = case.schema
    for step, schema, rows in model(case):
        if step["op"] == "alter":
            java.alter_table(path, *map(tuple, step["changes"]))
        else:
            names = [column for column, _ in before]
            stream.write([dict(zip(names, row, strict=True)) for row in step["rows"]])
            require_same(str(step["identifier"]), schema, java.read(path), rows)
        before = schema
    require_same("in the end", expected["schema"], java.read(path), list(model(case))[-1][2])
    theirs = expected["files"]
    assert schema_ids(java, path) == sorted(file["schemaId"] for file in theirs)
    assert [one["schemaId"] for one in java.snapshots(path)] == [
        one["schemaId"] for one in expected["snapshots"]
    ]
    stats = sorted(
        str((file["schemaId"], file["valueStats"], file["rowCount"])) for file in java.files(path)
    )
    golden = HERE.parent / "golden" / name / "db.db" / "t"
    assert stats == sorted(
        str((file["schemaId"], file["valueStats"], file["rowCount"])) for file in java.files(golden)
    )


def test_added_dropped_renamed_widened_and_nested_columns_are_picked_up(
    java: Any, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    java.create_table(
        path,
        [("id", "INT"), ("a", "STRING"), ("n", "ROW<x INT, y STRING>")],
        options={"bucket": "2", "bucket-key": "id"},
    )
    stream = Stream(path)
    stream.write([{"id": 1, "a": "one", "n": {"x": 1, "y": "u"}}])
    java.alter_table(path, ("add", "b", "DECIMAL(10, 2)"), ("type", "id", "BIGINT"))
    stream.write([{"id": 2**40, "a": "two", "n": None, "b": Decimal("1.50")}])
    java.alter_table(path, ("rename", "a", "label"), ("drop", "b"))
    stream.write([{"id": 3, "label": "three", "n": {"x": None, "y": None}}])
    java.alter_table(path, ("add", "b", "STRING"))
    stream.write([{"id": 4, "label": None, "n": {"x": 4, "y": "v"}, "b": "new b"}])
    rows = sorted(java.read(path), key=lambda row: row["id"])
    assert rows == [
        {"id": 1, "label": "one", "n": {"x": 1, "y": "u"}, "b": None},
        {"id": 3, "label": "three", "n": {"x": None, "y": None}, "b": None},
        {"id": 4, "label": None, "n": {"x": 4, "y": "v"}, "b": "new b"},
        {"id": 2**40, "label": "two", "n": None, "b": None},
    ]
    assert schema_ids(java, path) == [0, 1, 2, 3]
    java.compact(path)
    assert sorted(java.read(path), key=lambda row: row["id"]) == rows


def test_a_change_between_writing_and_committing_leaves_files_of_the_old_schema(
    java: Any, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    java.create_table(path, [("id", "INT"), ("a", "STRING")])
    stream = Stream(path)
    stream.write([{"id": 1, "a": "x"}])
    stream.write(
        [{"id": 2, "a": "y"}],
        between=lambda: java.alter_table(path, ("add", "b", "INT"), ("drop", "a")),
    )
    stream.write([{"id": 3, "b": 7}])
    # A commit within a second of its judgement is based on what was seen then.
    assert [one["schemaId"] for one in java.snapshots(path)] in ([0, 0, 1], [0, 1, 1])
    assert schema_ids(java, path) == [0, 0, 1]
    assert sorted(java.read(path), key=lambda row: row["id"]) == [
        {"id": 1, "b": None},
        {"id": 2, "b": None},
        {"id": 3, "b": 7},
    ]
    assert java.manifests(path)[-1]["schemaId"] == 1


def test_changed_options_hold_from_the_next_batch_on(java: Any, tmp_path: Path) -> None:
    path = tmp_path / "t"
    java.create_table(
        path, [("id", "INT"), ("s", "STRING")], options={"file.compression": "snappy"}
    )
    stream = Stream(path)
    rows = [{"id": n, "s": f"{n * 7919 % 10007}"} for n in range(5000)]
    stream.write(rows)
    java.alter_table(
        path, ("set", "target-file-size", "8 kb"), ("set", "metadata.stats-mode", "none")
    )
    stream.write(rows)
    java.alter_table(
        path,
        ("unset", "target-file-size"),
        ("set", "file.format", "orc"),
        ("unset", "metadata.stats-mode"),
    )
    stream.write(rows)
    java.alter_table(
        path, ("set", "manifest.merge-min-count", "2"), ("set", "data-file.prefix", "late-")
    )
    stream.write(rows)
    by_schema: dict[int, list[dict[str, Any]]] = {}
    for file in java.files(path):
        by_schema.setdefault(file["schemaId"], []).append(file)
    assert [len(by_schema[n]) for n in (0, 2, 3)] == [1, 1, 1] and len(by_schema[1]) > 1
    assert {file["valueStatsCols"] == [] for file in by_schema[1]} == {True}
    (orc,), (late,) = by_schema[2], by_schema[3]
    assert orc["fileName"].endswith(".orc") and orc["valueStats"]["id"]["max"] == 4999
    assert late["fileName"].startswith("late-")
    assert len(java.manifests(path)) == 2
    assert java.count(path) == 20_000


def test_a_table_that_becomes_something_else_stops_the_stream_before_it_writes(
    java: Any, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    java.create_table(path, [("id", "INT")])
    stream = Stream(path)
    stream.write([{"id": 1}])
    java.alter_table(path, ("set", "type", "object-table"))
    before = sorted(path.rglob("*"))
    with pytest.raises(UnsupportedFeature):
        stream.write([{"id": 2}])
    assert sorted(path.rglob("*")) == before
