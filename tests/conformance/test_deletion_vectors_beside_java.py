"""Tables with deletion vectors: read as Java reads them, and written to so that Java goes on with
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.format.types import arrow_type
from tests.kits.kinds import faults
from tests.kits.reading import assert_rows, java_rows, wire_rows
from tests.kits.seeds import examples, seeds

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
            {
                one.name: pa.array(values[str(one.type).split()[0]], arrow_type(one.type))
                for one in table.schema.fields
            }
        )
    )
    table = same_as_java(java, path)
    assert table.to_arrow().num_rows == len(expected["rows"]) + 2
    assert len(java.index_files(path)) == len(expected["index"])
    java.compact(path)
    assert same_as_java(java, path).to_arrow().num_rows == len(expected["rows"]) + 2


def test_an_overwritten_partition_loses_its_vectors_and_no_others(
    golden: Golden, java: Any
) -> None:
    path, _ = golden("kinds/vectors_append32")
    table = PaimonTable.load(str(path))
    others = table.to_arrow().filter(pc.field("p") != "x").num_rows
    row = {"id": pa.array([1], pa.int32()), "p": ["x"], "v": pa.array([5], pa.int64())}
    table.overwrite(pa.table(row), partition={"p": "x"})
    assert same_as_java(java, path).to_arrow().num_rows == others + 1
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    assert same_as_java(java, path).to_arrow().num_rows == others + 1


@pytest.mark.parametrize("name", [*APPENDED, "vectors_pk"])
def test_java_goes_on_where_a_lost_file_was_dropped(golden: Golden, java: Any, name: str) -> None:
    path, _ = golden(f"kinds/{name}")
    table = PaimonTable.load(str(path))
    vectors = {name for index in java.index_files(path) for name in index["dvRanges"]}
    lost = next(file for file in table.files() if file.meta.file_name in vectors)
    Path(lost.path).unlink()
    report = table.drop_lost_files(dry_run=False)
    assert [Path(file.path).name for file in report.files] == [lost.meta.file_name]
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")  # they name the file
    same_as_java(java, path)
    java.compact(path)
    same_as_java(java, path)


def test_external_paths_that_no_strategy_uses_are_no_external_paths(
    java: Any, tmp_path: Path
) -> None:
    path = tmp_path / "db.db" / "t"
    outside = f"file://{tmp_path}/outside"
    java.create_table(path, [("id", "INT")], options={"data-file.external-paths": outside})
    java.write(path, [(1,)])
    PaimonTable.load(str(path)).append(pa.table({"id": pa.array([2], pa.int32())}))
    java.write(path, [(3,)])
    assert sorted(same_as_java(java, path).to_arrow()["id"].to_pylist()) == [1, 2, 3]
    assert not (tmp_path / "outside").exists()


COLUMNS = [("id", "INT"), ("p", "STRING"), ("v", "BIGINT")]
TABLES = [
    {},
    {"deletion-vectors.bitmap64": "true", "deletion-vector.index-file.target-size": "100 b"},
    {"bucket": "2", "bucket-key": "id"},
]
STEPS = (
    "append",
    "append",
    "java append",
    "delete",
    "delete",
    "java delete",
    "compact",
    "java compact",
    "drop",
)


def rows(ids: range, dice: Random) -> list[tuple[int, str, int]]:
    return [(one, dice.choice("xyz"), one * 3) for one in ids]


def arrow(some: list[tuple[int, str, int]]) -> pa.Table:
    ids, parts, values = zip(*some, strict=True)
    return pa.table(
        {"id": pa.array(ids, pa.int32()), "p": pa.array(parts), "v": pa.array(values, pa.int64())}
    )


@pytest.mark.parametrize("options", TABLES, ids=["32 bits", "64 bits", "buckets"])
@pytest.mark.parametrize("seed", seeds(1, 40))
def test_in_turns_with_java_no_row_comes_back_and_none_is_lost(
    options: dict[str, str], seed: int, tmp_path: Path, java: Any, kinds: Any
) -> None:
    dice, path = Random(seed), tmp_path / "db.db" / "t"
    made = {"deletion-vectors.enabled": "true", "compaction.min.file-num": "2", **options}
    table = PaimonTable.create(str(path), COLUMNS, partition_keys=["p"], options=made)
    wanted: list[tuple[int, str, int]] = []
    ids = 0
    for number in range(examples(9, 14)):
        step = "append" if number < 2 else dice.choice(STEPS)
        some = rows(range(ids, ids + dice.choice((7, 40))), dice)
        table = PaimonTable.load(str(path))
        if "append" in step:
            (java.write(path, some) if "java" in step else table.append(arrow(some)))
            wanted += some
            ids += len(some)
        elif "delete" in step:
            most, part = dice.randrange(ids), dice.choice("xyz")
            at = dice.choice((2, 3, 1))
            gone = {one for one in wanted if one[0] < most and one[0] % at == 0 and one[1] == part}
            if "java" in step:
                if gone:
                    chosen = {one[0] for one in gone}
                    kinds.delete_rows(path, lambda row, chosen=chosen: row["id"] in chosen)
            else:
                report = table.delete(
                    pc.field("id").isin([one[0] for one in gone]) & (pc.field("p") == part)
                )
                assert report.rows == len(gone)
            wanted = [one for one in wanted if one not in gone]
        elif "compact" in step:
            java.compact(path) if "java" in step else table.compact(full=True)
        else:
            table.drop_partitions([{"p": "x"}])
            wanted = [one for one in wanted if one[1] != "x"]
        found = same_as_java(java, path).to_arrow()
        assert sorted(map(tuple, wire_rows(found, table.schema.fields))) == sorted(wanted), (
            number,
            step,
        )
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    assert same_as_java(java, path).to_arrow().num_rows == len(wanted)
    left = {one.name for one in (path / "index").glob("index-*")}
    assert left == {one["fileName"] for one in kinds.index(path)}


@pytest.mark.parametrize("options", TABLES, ids=["32 bits", "64 bits", "buckets"])
def test_java_finds_the_positions_that_we_wrote(
    options: dict[str, str], tmp_path: Path, java: Any, kinds: Any
) -> None:
    path = tmp_path / "db.db" / "t"
    table = PaimonTable.create(
        str(path), COLUMNS, options={"deletion-vectors.enabled": "true", **options}
    )
    # Two containers of a bitmap, of 65,536 positions each.
    count = 70_000
    some = {
        "id": pa.array(range(count), pa.int32()),
        "p": ["x"] * count,
        "v": pa.array(range(count), pa.int64()),
    }
    table.append(pa.table(some))
    table.delete((pc.field("id") < 68_000) | (pc.field("id") == 69_999))
    kept = Counter(row[0] for row in java_rows(java, table))
    assert kept == Counter(range(68_000, 69_999))
    table.compact(full=True)
    assert Counter(row[0] for row in java_rows(java, table)) == kept
    assert not [one for one in kinds.index(path) if one["deleted"]]


KEYED = [
    {"bucket": "1"},
    {"bucket": "2", "deletion-vectors.bitmap64": "true"},
    {"bucket": "-1", "dynamic-bucket.target-row-num": "15"},
    {"bucket": "1", "sequence.field": "s"},
    {"bucket": "1", "changelog-producer": "lookup"},
]
KEYED_STEPS = (
    "write",
    "write",
    "java write",
    "java write",
    "compact",
    "compact",
    "java compact",
    "full",
    "java full",
)
ALONE = {"compaction.size-ratio": "-100", "num-sorted-run.compaction-trigger": "9"}
Keyed = dict[int, tuple[int, int]]


def changed(some: list[tuple[str, int, int, int]]) -> pa.Table:
    ops, *columns = zip(*some, strict=True)
    types = (pa.int32(), pa.int64(), pa.int64())
    return pa.table(
        {"op": ops, **{n: pa.array(c, t) for n, c, t in zip("ksv", columns, types, strict=True)}}
    )


@pytest.mark.parametrize(
    "options", KEYED, ids=["plain", "64 bits", "dynamic", "by sequence", "changelog"]
)
@pytest.mark.parametrize("seed", seeds(1, 40))
def test_in_turns_with_java_each_key_has_one_row_on_the_higher_levels(
    options: dict[str, str], seed: int, tmp_path: Path, java: Any, kinds: Any
) -> None:
    """Readers see what the last compaction has taken in, and no row that a newer one has
    replaced.
    """
    dice, path = Random(seed), tmp_path / "db.db" / "t"
    made = {
        "deletion-vectors.enabled": "true",
        "write-only": "true",
        **dice.choice([ALONE, {}]),
        **options,
    }
    columns = [("k", "INT NOT NULL"), ("s", "BIGINT"), ("v", "BIGINT")]
    PaimonTable.create(str(path), columns, primary_keys=["k"], options=made)
    model: Keyed = {}
    seen: Keyed = {}
    deleted: Keyed = {}
    for number in range(examples(7, 16)):
        step = "write" if number == 0 else dice.choice(KEYED_STEPS)
        table = PaimonTable.load(str(path))
        if "write" in step:
            some = []
            for key in dice.sample(range(60), dice.choice((3, 12, 40))):
                sequence = dice.randrange(100) if "sequence.field" in options else number
                some.append((dice.choice(("+U", "+U", "-D")), key, sequence, 1000 * number + key))
            ops, *_ = zip(*some, strict=True)
            if "java" not in step:
                table.append(changed(some), operation_column="op")
            elif options["bucket"] == "-1":
                kinds.write_dynamic(path, [one[1:] for one in some], kinds=ops)
            else:
                java.write(path, [one[1:] for one in some], kinds=ops)
            for op, key, *values in some:
                held = model.get(key) or deleted.get(key)
                if held is None or "sequence.field" not in options or values[0] >= held[0]:
                    model.pop(key, None)
                    deleted.pop(key, None)
                    (model if op == "+U" else deleted)[key] = (values[0], values[1])
        else:
            full = "full" in step
            java.compact(path, full) if "java" in step else table.compact(full=full)
            seen, deleted = dict(model), {}
        found = same_as_java(java, path).to_arrow()
        expected = sorted([key, *values] for key, values in seen.items())
        assert sorted(wire_rows(found, table.schema.fields)) == expected, (number, step)
    assert options["bucket"] != "-1" or faults(kinds, path) == []
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    assert same_as_java(java, path).to_arrow().num_rows == len(seen)
    left = {one.name for one in (path / "index").glob("index-*")}
    assert left == {one["fileName"] for one in kinds.index(path)}
