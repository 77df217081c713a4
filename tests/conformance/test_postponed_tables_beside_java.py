"""Postponed tables: rows that ours and Java's writers leave in bucket -2 are the same for the
compactions of both.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream.api.table import PaimonTable
from tests.kits import waiting as kit
from tests.kits.reading import assert_rows, java_rows
from tests.kits.seeds import seeds

Golden = Callable[[str], tuple[Path, dict[str, Any]]]
Row = tuple[str, int, str]
COMPARED = (
    "partition",
    "bucket",
    "totalBuckets",
    "level",
    "rowCount",
    "minKey",
    "maxKey",
    "keyStats",
    "valueStats",
    "minSequenceNumber",
    "maxSequenceNumber",
    "deleteRowCount",
    "schemaId",
    "fileSource",
    "valueStatsCols",
)


def same_as_java(kinds: Any, path: Path) -> PaimonTable:
    table = PaimonTable.load(str(path))
    assert_rows(table.to_arrow(), table.schema.fields, java_rows(kinds, table))
    assert not [one for one in table.verify().findings if one.severity != "info"]
    return table


def facts(kinds: Any, path: Path, snapshot: int) -> list[str]:
    """What the manifests say of the live files. Java numbers the rows of a bucket, we those of a
    partition.
    """
    found = kinds.files(path, snapshot)
    for one in found:
        if one["bucket"] >= 0:
            one["minSequenceNumber"] = one["maxSequenceNumber"] = None
    return sorted(str({name: one[name] for name in COMPARED}) for one in found)


def test_the_steps_of_java_make_the_same_tables(golden: Golden, kinds: Any, tmp_path: Path) -> None:
    """Each step of the golden table is taken by us. Files, rows and what waits are those of
    Java.
    """
    theirs, expected = golden("kinds/postpone")
    path, created = tmp_path / "db.db" / "t", expected["created"]
    options = created["options"] | {"postpone.default-bucket-num": "2"}
    kinds.create_table(
        path, created["schema"], created["partition_keys"], created["primary_keys"], options
    )
    for snapshot, step in enumerate(expected["steps"], 1):
        if step["op"] == "write":
            kit.write(
                path, step["rows"], step.get("kinds"), user="golden", identifier=step["identifier"]
            )
        else:
            PaimonTable.load(str(path)).compact()
        same_as_java(kinds, path)
        newest, meant = (
            PaimonTable.load(str(path)).latest_snapshot(),
            expected["snapshots"][snapshot - 1],
        )
        assert newest is not None and newest.id == snapshot
        assert newest.commit_kind.value == meant["commitKind"]
        assert (newest.total_record_count, newest.delta_record_count) == (
            meant["totalRecordCount"],
            meant["deltaRecordCount"],
        )
        assert facts(kinds, path, snapshot) == facts(kinds, theirs, snapshot)
    assert kinds.postponed(path) == kinds.postponed(theirs)
    assert_rows(
        PaimonTable.load(str(path)).to_arrow(),
        PaimonTable.load(str(path)).schema.fields,
        expected["rows"],
    )


def test_a_compaction_of_ours_goes_on_with_a_table_of_java(golden: Golden, kinds: Any) -> None:
    path, _ = golden("kinds/postpone")
    table = same_as_java(kinds, path)
    report = table.compact(full=True)
    assert report.buckets[0].bucket == -2
    assert not kit.waiting(path)
    assert {one.total_buckets for one in kit.files(path)} == {2}
    assert [row for row in kit.found(path) if row[0] == "a"][:2] == [
        ("a", 0, "waits"),
        ("a", 2, "one"),
    ]
    same_as_java(kinds, path)
    assert {one.file.level for one in kit.files(path)} == {5}


@pytest.mark.parametrize("start", seeds(2, 50))
def test_writers_and_compactions_of_both_alternate(kinds: Any, tmp_path: Path, start: int) -> None:
    random = Random(start)
    path = tmp_path / "db.db" / "t"
    buckets = random.choice([1, 2, 5])
    options = {
        "postpone.default-bucket-num": str(buckets),
        "write-only": random.choice(["true", "false"]),
        "file.format": random.choice(["parquet", "orc", "avro"]),
    }
    kinds.create_table(path, kit.COLUMNS, ["dt"], ["dt", "id"], {"bucket": "-2"} | options)
    waits: list[tuple[Row, str]] = []
    seen: dict[tuple[str, int], str] = {}
    for step in range(14):
        some = [
            (random.choice("ab"), random.randint(0, 9), f"{step}.{n}")
            for n in range(random.randint(1, 9))
        ]
        changes = [random.choice(["+I", "+U", "-D"]) for _ in some]
        what = random.choice(
            ["ours", "ours", "java", "java", "our batch", "compact", "java compact", "overwrite"]
        )
        table = PaimonTable.load(str(path))
        given = pa.table(
            dict(zip(("dt", "id", "v"), map(pa.array, zip(*some, strict=True)), strict=True))
        )
        given = given.set_column(1, "id", given.column("id").cast(pa.int32()))
        if what == "ours":
            kit.write(path, some, changes, identifier=step + 1)
        elif what == "java":
            kinds.write(path, some, "java", commit_identifier=step + 1, kinds=changes)
        elif what == "our batch":
            table.append(given)
            changes = ["+I"] * len(some)
        elif what == "overwrite":
            table.overwrite(given)
            gone = {row[0] for row in some}
            waits = [one for one in waits if one[0][0] not in gone]
            seen = {key: v for key, v in seen.items() if key[0] not in gone}
            changes = ["+I"] * len(some)
        else:
            if what == "compact":
                table.compact(full=random.random() < 0.3)
            else:
                kinds.compact_postpone(path, buckets)
            for (dt, id_, v), kind in waits:
                seen[dt, id_] = v
                if kind == "-D":
                    del seen[dt, id_]
            waits, some, changes = [], [], []
        waits += zip(some, changes, strict=True)
        assert sorted((*key, v) for key, v in seen.items()) == kit.found(path), (step, what)
        same_as_java(kinds, path)
        shown = [
            (tuple(row.values()), kind) for _, rows in kinds.postponed(path) for kind, row in rows
        ]
        for part in "ab":
            assert [one for one in shown if one[0][0] == part] == [
                one for one in waits if one[0][0] == part
            ]
