"""Tables with row tracking: each row keeps its id, whoever writes and compacts them, as Java keeps
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.catalogs.opening import open_storage
from paimon_stream.errors import InvalidOption
from paimon_stream.read.rows import read_batches
from paimon_stream.read.scan import plan_scan
from paimon_stream.table.row_ids import tracked
from paimon_stream.table.table import load_table
from tests.kits.reading import assert_rows, java_rows
from tests.kits.seeds import examples, seeds

Golden = Callable[[str], tuple[Path, dict[str, Any]]]
COLUMNS = [("id", "INT"), ("p", "STRING"), ("v", "STRING")]
OPTIONS = {"row-tracking.enabled": "true"}


def numbered(path: Path) -> dict[int, tuple[int, int]]:
    """For each value of `id`: the row's id and its sequence number, as we read them."""
    scan = plan_scan(load_table(open_storage(str(path))))
    columns = tracked(scan.schema).fields
    rows = [
        row for rows in read_batches(replace(scan, columns=columns)) for row in rows.to_pylist()
    ]
    found = {row["id"]: (row["_ROW_ID"], row["_SEQUENCE_NUMBER"]) for row in rows}
    assert len(found) == len({row["_ROW_ID"] for row in rows}) == len(rows)
    return found


def batch(first: int, count: int, p: str | None = None) -> pa.Table:
    ids = range(first, first + count)
    columns = {
        "id": pa.array(ids, pa.int32()),
        "p": [p or "ab"[one % 2] for one in ids],
        "v": [f"v{one}" for one in ids],
    }
    return pa.table(columns)


def checked(kinds: Any, path: Path) -> PaimonTable:
    table = PaimonTable.load(str(path))
    if (
        table.options.get("file.format") != "avro"
    ):  # Java fails to read ids beside Avro files, also those of its own
        theirs = {
            row["id"]: (row["_ROW_ID"], row["_SEQUENCE_NUMBER"]) for row in kinds.read_tracked(path)
        }
        assert numbered(path) == theirs
    assert_rows(table.to_arrow(), table.schema.fields, java_rows(kinds, table))
    assert not table.verify(sample=1000).findings
    return table


def test_the_files_of_java_keep_their_ids_when_we_write_and_compact(
    golden: Golden, kinds: Any
) -> None:
    path, expected = golden("kinds/row_tracking")
    before = numbered(path)
    assert before[99][1] == 5
    table = PaimonTable.load(str(path))
    table.append(batch(200, 4))
    added = numbered(path)
    assert {key: added[key] for key in before} == before
    end = expected["snapshots"][-1]["nextRowId"]
    assert sorted(added[key] for key in range(200, 204)) == [
        (end + number, 6) for number in range(4)
    ]
    assert kinds.snapshots(path)[-1]["nextRowId"] == end + 4
    table.compact(full=True)
    assert numbered(path) == added
    checked(kinds, path)


def test_a_compacted_file_is_as_java_writes_it(golden: Golden, kinds: Any) -> None:
    """Java has compacted the rows 10 to 34 of partition a. We compact the same rows."""
    path, _ = golden("kinds/row_tracking")
    theirs = next(one for one in kinds.files(path) if one["fileSource"] == "COMPACT")
    table = PaimonTable.load(str(path))
    table.rollback_to(3)
    table.compact(full=True, partitions=[{"p": "a"}], options={"compaction.min.file-num": "2"})
    ours = next(one for one in kinds.files(path) if one["fileSource"] == "COMPACT")
    same = (
        "rowCount",
        "valueStats",
        "valueStatsCols",
        "firstRowId",
        "writeCols",
        "schemaId",
        "level",
    )
    assert {key: ours[key] for key in same} == {key: theirs[key] for key in same}
    assert ours["maxSequenceNumber"] - ours["minSequenceNumber"] == 8
    written = pq.read_schema(path / ours["path"] / ours["fileName"])
    assert [str(one) for one in written][-2:] == [
        "pyarrow.Field<_ROW_ID: int64 not null>",
        "pyarrow.Field<_SEQUENCE_NUMBER: int64 not null>",
    ]


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("seed", seeds(1, 40))
def test_we_and_java_take_turns(kinds: Any, tmp_path: Path, file_format: str, seed: int) -> None:
    rng, path = Random(f"{seed} {file_format}"), tmp_path / "db.db" / "t"
    more = {
        "deletion-vectors.enabled": "true",
        "file.format": file_format,
        "compaction.min.file-num": "2",
    }
    kinds.create_table(path, COLUMNS, ["p"], options={**OPTIONS, **more})
    known: dict[int, tuple[int, int]] = {}
    following, next_id = 0, 0
    for _ in range(examples(8, 12)):
        count, table = rng.randrange(1, 6), PaimonTable.load(str(path))
        fresh = range(following, following + count)
        match rng.choice(["ours", "theirs", "compact", "java compact", "delete", "overwrite"]):
            case "ours":
                table.append(batch(following, count))
            case "theirs":
                kinds.write(path, [(one, "ab"[one % 2], f"v{one}") for one in fresh])
            case "overwrite":
                table.overwrite(batch(following, count, "a"), partition={"p": "a"})
                gone = set(known) - {row["id"] for row in kinds.read(path)}
                known = {key: value for key, value in known.items() if key not in gone}
            case "delete" if known:
                victim = rng.choice(sorted(known))
                table.delete(pc.field("id") == victim)
                del known[victim]
                fresh = range(0)
            case "java compact" if known and file_format != "avro":  # which fails in Java
                kinds.compact(path)
                fresh = range(0)
            case _:
                table.compact(full=rng.random() < 0.5)
                fresh = range(0)
        now = numbered(path) if kinds.snapshots(path) else {}
        assert {key: value for key, value in now.items() if key in known} == known
        assert set(now) == set(known) | set(fresh)
        if fresh:
            latest = kinds.snapshots(path)[-1]
            assert sorted(now[one] for one in fresh) == [
                (next_id + at, latest["id"]) for at in range(count)
            ]
            following, next_id = following + count, next_id + count
            assert latest["nextRowId"] == next_id
        known = now
        if known:
            checked(kinds, path)


def test_a_table_of_ours_goes_on_in_java(kinds: Any, tmp_path: Path) -> None:
    path = tmp_path / "db.db" / "t"
    schema = pa.schema([("id", pa.int32()), ("p", pa.string()), ("v", pa.string())])
    table = PaimonTable.create(str(path), schema, partition_keys=["p"], options=OPTIONS)
    table.append(batch(0, 10_000))
    kinds.write(path, [(-1, "a", "x")])
    found = numbered(path)
    assert (found[-1], len(found)) == ((10_000, 2), 10_001)
    assert {one for _, one in found.values()} == {1, 2}
    checked(kinds, path)


@pytest.mark.parametrize("bucket", ["1", "4"])
def test_buckets_are_refused_as_in_java(kinds: Any, tmp_path: Path, bucket: str) -> None:
    options = {**OPTIONS, "bucket": bucket, "bucket-key": "id"}
    with pytest.raises(InvalidOption, match=r"row-tracking.enabled.*needs bucket = -1"):
        PaimonTable.create(str(tmp_path / "t"), pa.schema([("id", pa.int32())]), options=options)
    with pytest.raises(Exception, match="only support bucket = -1"):
        kinds.create_table(tmp_path / "u", [("id", "INT")], options=options)


def test_rolled_files_have_the_snapshot_as_sequence_number(kinds: Any, tmp_path: Path) -> None:
    """Java numbers only the first of several files of one writer."""
    path = tmp_path / "db.db" / "t"
    schema = pa.schema([("id", pa.int32()), ("v", pa.string())])
    table = PaimonTable.create(str(path), schema, options={**OPTIONS, "target-file-size": "10 kb"})
    table.append(
        pa.table(
            {
                "id": pa.array(range(20_000), pa.int32()),
                "v": [f"{one * 7919:x}" * 8 for one in range(20_000)],
            }
        )
    )
    files = sorted(kinds.files(path), key=lambda one: one["firstRowId"])
    assert len(files) > 3
    assert {(one["minSequenceNumber"], one["maxSequenceNumber"]) for one in files} == {(1, 1)}
    ends = [one["firstRowId"] + one["rowCount"] for one in files]
    assert [one["firstRowId"] for one in files] == [0, *ends[:-1]]
    assert kinds.snapshots(path)[-1]["nextRowId"] == 20_000
