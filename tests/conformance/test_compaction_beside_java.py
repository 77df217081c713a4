"""Our compaction of append tables beside Java's: on tables that Java wrote, and in turns."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.api.inspection import TableFile
from paimon_stream.format.entries import FileSource
from paimon_stream.read.rows import file_chunks
from tests.kits.params import each_once
from tests.kits.reading import assert_rows, java_rows, wire

GOLDEN = Path(__file__).parent.parent / "golden" / "compaction"
CALLS = [
    (folder.name, name.removeprefix("call "))
    for folder in sorted(GOLDEN.glob("append_*"))
    for name in json.loads((folder / "expected.json").read_text())
    if name.startswith("call ")
]


def content(table: PaimonTable, file: TableFile) -> list[list[Any]]:
    fields = table.schema.fields
    with open(file.path, "rb") as source:
        rows = [
            [wire(one.type, chunk.columns[one.name][row].as_py()) for one in fields]
            for chunk in file_chunks(source, file.path, fields, table.schema)
            for row in range(chunk.rows)
        ]
    return rows


def described(table: PaimonTable, known: set[str], *, numbers: bool) -> list[str]:
    """The files, without names, sizes and times."""
    found = []
    for file in table.files():
        meta = file.meta
        sequence = [meta.min_sequence_number, meta.max_sequence_number]
        name = meta.file_name if meta.file_name in known else None
        facts = [
            name,
            dict(file.partition),
            file.bucket,
            meta.level,
            meta.row_count,
            meta.delete_row_count,
        ]
        found.append(
            repr([*facts, sequence if numbers else [], FileSource(meta.file_source or 0).name])
        )
    return sorted(found)


def expected_files(files: Sequence[dict[str, Any]], *, numbers: bool) -> list[str]:
    found = []
    for one in files:
        sequence = [one["minSequenceNumber"], one["maxSequenceNumber"]]
        facts = [
            one[key]
            for key in ("name", "partition", "bucket", "level", "rowCount", "deleteRowCount")
        ]
        found.append(repr([*facts, sequence if numbers else [], one["fileSource"]]))
    return sorted(found)


@pytest.mark.parametrize(("case", "name"), CALLS)
def test_the_files_are_those_that_java_made_of_the_same_table(
    case: str, name: str, tmp_path: Path, java: Any
) -> None:
    expected = json.loads((GOLDEN / case / "expected.json").read_text())
    call, loose = expected[f"call {name}"], expected["loose"]
    path = tmp_path / "db.db" / "t"
    shutil.copytree(GOLDEN / case / "db.db" / "t", path)
    table = PaimonTable.load(str(path))
    known = {file.meta.file_name for file in table.files()}
    before, since = table.to_arrow(), table.latest_snapshot().id
    report = table.compact(
        **{key: value for key, value in call["call"].items() if value is not None}
    )

    bucketed = table.options.get("bucket", "-1") != "-1"
    if "rolling" not in loose:
        files = described(table, known, numbers=bucketed)
        assert files == expected_files(call["files"], numbers=bucketed)
    assert [
        [one.commit_kind.value, one.delta_record_count, one.total_record_count]
        for one in table.snapshots()
        if one.id > since
    ] == [
        [one["commitKind"], one["deltaRecordCount"], one["totalRecordCount"]]
        for one in call["snapshots"]
    ]
    assert report.rows_before == report.rows_after
    assert report.snapshot_id == (since + 1 if call["snapshots"] else None)
    if bucketed and "order" not in loose:
        kept = {file["digest"]: file["content"] for file in call["files"]}
        assert sorted(map(repr, (content(table, file) for file in table.files()))) == sorted(
            map(repr, kept.values())
        )
    if bucketed:
        assert table.to_arrow() == before  # the order of rows counts
    rows = java_rows(java, table)
    assert_rows(before, table.schema.fields, rows)
    assert not table.verify(sample=100).findings


BUCKETS = {"no buckets": {}, "buckets": {"bucket": "2", "bucket-key": "id"}}


@pytest.mark.parametrize(("fmt", "buckets"), each_once(["parquet", "orc", "avro"], BUCKETS))
def test_java_compacts_what_we_compacted_and_we_go_on(
    tmp_path: Path, java: Any, buckets: str, fmt: str
) -> None:
    path = str(tmp_path / "db.db" / "t")
    more = {"file.format": fmt, "compaction.min.file-num": "3", **BUCKETS[buckets]}
    table = PaimonTable.create(path, schema=[("id", "INT"), ("v", "ARRAY<INT>")], options=more)
    written = 0
    for turn in range(4):
        for _ in range(4):
            ids = range(written, written + 50)
            lists = pa.array([[one] for one in ids], pa.list_(pa.int32()))
            table.append(pa.table({"id": pa.array(ids, pa.int32()), "v": lists}))
            written += 50
        if turn % 2:
            java.compact(path)
        else:
            assert table.compact(full=True).snapshot_id is not None
        assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(written))
        assert sorted(row[0] for row in java_rows(java, table)) == list(range(written))
    assert not table.verify(sample=100).findings


def random_rows(first: int, count: int) -> pa.Table:
    texts = [
        hashlib.sha256(str(one).encode()).hexdigest() * 2 for one in range(first, first + count)
    ]
    return pa.table({"id": pa.array(range(first, first + count), pa.int32()), "s": texts})


@pytest.mark.parametrize("full", [False, True])
def test_the_order_in_a_bucket_stays_where_javas_files_share_numbers(
    tmp_path: Path, java: Any, full: bool
) -> None:
    """Java numbers each file of a compaction from the first input's number on."""
    options = {"bucket": "1", "bucket-key": "id", "target-file-size": "60 kb"}
    columns = [("id", "INT"), ("s", "STRING")]
    table = PaimonTable.create(str(tmp_path / "db.db" / "t"), schema=columns, options=options)
    for turn in range(5):
        table.append(random_rows(turn * 1000, 1000))
    java.compact(table.location)
    firsts = [file.meta.min_sequence_number for file in table.files()]
    assert len(set(firsts)) < len(firsts)
    table.append(random_rows(5000, 100))
    came = iter([100])

    def meanwhile(*_: object) -> None:
        for count in came:
            table.append(random_rows(5100, count))

    report = table.compact(full, options={"target-file-size": "170 kb"}, progress=meanwhile)
    assert report.snapshot_id is not None
    assert table.to_arrow()["id"].to_pylist() == list(range(5200))
    assert [row["id"] for row in java.read(table.location)] == list(range(5200))
