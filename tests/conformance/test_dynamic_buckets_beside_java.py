"""Tables with dynamic buckets: ours and Java's writers go on with each other's index, and no key is
there twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.api.table_writing import batch_commit
from paimon_stream.errors import CorruptMetadata
from tests.kits.kinds import faults
from tests.kits.params import one_in
from tests.kits.reading import assert_rows, java_rows
from tests.kits.seeds import seeds

Golden = Callable[[str], tuple[Path, dict[str, Any]]]
GOLDEN = ("plain", "partitioned", "assigners", "capped", "expired")


def same_as_java(kinds: Any, path: Path) -> PaimonTable:
    assert faults(kinds, path) == []
    table = PaimonTable.load(str(path))
    assert_rows(table.to_arrow(), table.schema.fields, java_rows(kinds, table))
    assert not [one for one in table.verify().findings if one.severity != "info"]
    return table


@pytest.mark.parametrize("name", one_in(3, GOLDEN))
def test_java_tables_are_read_and_checked(golden: Golden, kinds: Any, name: str) -> None:
    path, expected = golden(f"kinds/dynamic_{name}")
    assert same_as_java(kinds, path).to_arrow().num_rows == len(expected["rows"])


@pytest.mark.full
@pytest.mark.parametrize("start", seeds(6, 60))
def test_writers_of_both_go_on_with_each_other(kinds: Any, tmp_path: Path, start: int) -> None:
    random = Random(start)
    path = tmp_path / "db.db" / "t"
    partitioned = random.random() < 0.6
    options = {
        "dynamic-bucket.target-row-num": str(random.choice([2, 3, 7, 1000])),
        "dynamic-bucket.max-buckets": str(random.choice([-1, -1, 2, 4])),
        "index-file-in-data-file-dir": str(random.random() < 0.3).lower(),
    }
    columns = [("p", "INT NOT NULL"), ("k", "STRING NOT NULL"), ("v", "BIGINT")]
    parts = ["p"] if partitioned else []
    kinds.create_table(
        path,
        columns,
        primary_keys=["p", "k"],
        partition_keys=parts,
        options={"bucket": "-1"} | options,
    )
    model: dict[tuple[int, str], int] = {}
    for step in range(12):
        some = [
            (random.randint(0, 2), f"k{random.randint(0, 30)}" * random.choice([1, 9]))
            for _ in range(9)
        ]
        rows = [(p, k, step * 100 + n) for n, (p, k) in enumerate(some)]
        what = random.choice(
            ["ours", "ours", "java", "java", "compact", "ours compact", "overwrite"]
        )
        if what == "java":
            tasks = (
                1 if options["dynamic-bucket.max-buckets"] != "-1" else random.randint(1, 3)
            )  # Java's own bound fails
            kinds.write_dynamic(path, rows, channels=tasks, assigners=tasks)
        elif what == "compact":
            kinds.compact(path)
        elif what == "ours compact":
            PaimonTable.load(str(path)).compact(full=random.random() < 0.5)
        else:
            given = pa.table(
                {
                    "p": pa.array([row[0] for row in rows], pa.int32()),
                    "k": [row[1] for row in rows],
                    "v": pa.array([row[2] for row in rows], pa.int64()),
                }
            )
            table = PaimonTable.load(str(path))
            if what == "overwrite":
                table.overwrite(given)
                gone = {row[0] for row in rows}
                model = {key: v for key, v in model.items() if partitioned and key[0] not in gone}
            else:
                table.append(given)
        if what in ("ours", "java", "overwrite"):
            model.update({(p, k): v for p, k, v in rows})
        table = same_as_java(kinds, path)
        assert {(row["p"], row["k"]): row["v"] for row in table.to_arrow().to_pylist()} == model
        assert table.to_arrow().num_rows == len(model)


@pytest.fixture
def two_days(kinds: Any, tmp_path: Path) -> Path:
    """A table with partitions, to which Java has written keys of the day 1."""
    path = tmp_path / "db.db" / "t"
    kinds.create_table(
        path,
        [("day", "INT NOT NULL"), ("k", "BIGINT NOT NULL"), ("v", "BIGINT")],
        primary_keys=["day", "k"],
        partition_keys=["day"],
        options={"bucket": "-1", "dynamic-bucket.target-row-num": "5"},
    )
    write(kinds, path, *range(5))
    return path


def write(kinds: Any, path: Path, *keys: int, **how: Any) -> None:
    """Java writes keys of the day 1."""
    kinds.write_dynamic(path, [(1, key, key) for key in keys], **how)


def append(path: Path, *keys: int, day: int = 1) -> None:
    columns = {"day": [day] * len(keys), "k": list(keys), "v": list(keys)}
    schema = pa.schema([("day", pa.int32()), ("k", pa.int64()), ("v", pa.int64())])
    PaimonTable.load(str(path)).append(pa.table(columns, schema=schema))


def delete_again(path: Path, key: int) -> None:
    """We append a key and delete it, and compact its rows away."""
    append(path, key)
    columns = {"day": [1], "k": [key], "v": [None], "kind": ["-D"]}
    schema = [("day", pa.int32()), ("k", pa.int64()), ("v", pa.int64()), ("kind", pa.string())]
    table = PaimonTable.load(str(path))
    table.append(pa.table(columns, schema=pa.schema(schema)), operation_column="kind")
    table.compact(full=True)


def test_keys_that_java_takes_out_of_the_index_stop_our_next_batch(
    kinds: Any, two_days: Path
) -> None:
    """Java has read the index before we add keys to the same bucket, and publishes afterwards."""
    append(two_days, 10, 11)
    write(kinds, two_days, 20, before_commit=lambda: append(two_days, 12))
    table = PaimonTable.load(str(two_days))
    assert "row-not-indexed" in {one.code for one in table.verify(sample=1000).findings}
    for day in (1, 2):
        with pytest.raises(CorruptMetadata, match="lacks 1 keys that it had before snapshot 4"):
            append(two_days, 12, day=day)
    table.rebuild_index(dry_run=False)
    append(two_days, 12)
    write(kinds, two_days, 12, 20, 21)
    append(two_days, 21)
    table.compact(full=True)  # Two engines at once have used the same sequence numbers.
    assert same_as_java(kinds, two_days).to_arrow().num_rows == 10


def test_a_run_that_goes_on_finds_lost_keys_and_writes_again_after_the_rebuild(
    kinds: Any, two_days: Path
) -> None:
    commit = batch_commit(PaimonTable.load(str(two_days))._table)
    assert commit.numbers() is not None
    append(two_days, 10)
    write(kinds, two_days, 20, before_commit=lambda: append(two_days, 12))
    with pytest.raises(CorruptMetadata, match="lacks 1 keys"):
        commit.numbers()
    table = PaimonTable.load(str(two_days))
    table.rebuild_index(dry_run=False)
    assert commit.numbers() is not None


def test_a_key_that_java_puts_into_another_bucket_stops_our_next_batch(
    kinds: Any, two_days: Path
) -> None:
    """Java does not know our key, fills its bucket with others, and opens the next one for it."""
    append(two_days, 10, 11)
    write(kinds, two_days, 21, 22, 23, 12, before_commit=lambda: append(two_days, 12))
    table = PaimonTable.load(str(two_days))
    assert table.to_arrow().column("k").to_pylist().count(12) == 2
    for day in (1, 2):
        with pytest.raises(
            CorruptMetadata, match=r"bucket 1 of .* lacks 1 keys that it had before"
        ):
            append(two_days, 12, day=day)
    with pytest.raises(CorruptMetadata, match=r"1 keys .* have rows in several of the buckets"):
        table.rebuild_index(dry_run=False)


def test_a_batch_that_is_written_while_java_takes_keys_out_is_not_published(
    kinds: Any, two_days: Path
) -> None:
    """Its own partition keeps its index. The run after it would not look below it."""
    schema = pa.schema([("day", pa.int32()), ("k", pa.int64()), ("v", pa.int64())])

    def rows() -> Iterator[pa.RecordBatch]:
        write(kinds, two_days, 20, before_commit=lambda: append(two_days, 12))
        yield pa.record_batch({"day": [2], "k": [1], "v": [1]}, schema=schema)

    append(two_days, 10, 11)
    table = PaimonTable.load(str(two_days))
    with pytest.raises(CorruptMetadata, match="lacks 1 keys that it had before"):
        table.append(pa.RecordBatchReader.from_batches(schema, rows()))
    table.rebuild_index(dry_run=False)
    append(two_days, 12)
    table.compact(full=True)  # Two engines at once have used the same sequence numbers.
    assert same_as_java(kinds, two_days).to_arrow().num_rows == 9


def replace_day_2(path: Path) -> None:
    schema = pa.schema([("day", pa.int32()), ("k", pa.int64()), ("v", pa.int64())])
    rows = pa.table({"day": [2], "k": [1], "v": [1]}, schema=schema)
    PaimonTable.load(str(path)).overwrite(rows, partition={"day": 2})


def compact_all(path: Path) -> None:
    PaimonTable.load(str(path)).compact(full=True)


@pytest.mark.parametrize("later", [compact_all, replace_day_2])
def test_what_we_publish_without_a_look_at_the_index_hides_no_lost_keys(
    kinds: Any, two_days: Path, later: Callable[[Path], None]
) -> None:
    append(two_days, 10, 11)
    write(kinds, two_days, 20, 21, 22, before_commit=lambda: append(two_days, 12))
    later(two_days)
    with pytest.raises(CorruptMetadata, match="lacks 1 keys that it had before"):
        append(two_days, 12)


def test_lost_keys_without_rows_stop_our_batches_only_until_a_rebuild(
    kinds: Any, two_days: Path
) -> None:
    """The index is right without keys whose rows were deleted and compacted away."""
    write(kinds, two_days, 20, before_commit=lambda: delete_again(two_days, 12))
    kinds.compact(two_days)
    table = PaimonTable.load(str(two_days))
    with pytest.raises(CorruptMetadata, match="lacks 1 keys"):
        append(two_days, 12)
    replace_day_2(two_days)
    newest = table.latest_snapshot().id
    assert table.rebuild_index().is_behind_others
    report = table.rebuild_index(dry_run=False)
    assert (report.buckets, report.snapshot_id) == ((), newest + 1)
    assert not table.rebuild_index().is_behind_others
    assert table.rebuild_index(dry_run=False).snapshot_id is None
    append(two_days, 12)
    write(kinds, two_days, 12)
    append(two_days, 12)
    table.compact(full=True)
    assert same_as_java(kinds, two_days).to_arrow().num_rows == 8


def test_keys_that_java_overwrites_or_a_rollback_takes_away_are_not_lost(
    kinds: Any, two_days: Path
) -> None:
    commit = batch_commit(PaimonTable.load(str(two_days))._table)
    append(two_days, 10, 11)
    assert commit.numbers() is not None
    kept = PaimonTable.load(str(two_days)).latest_snapshot()
    write(kinds, two_days, 30, 31, overwrite={})
    write(kinds, two_days, 32)
    assert commit.numbers() is not None
    append(two_days, 10, 33)
    assert commit.numbers() is not None
    PaimonTable.load(str(two_days)).rollback_to(kept.id)
    for key in range(40, 45):
        write(kinds, two_days, key)
        assert commit.numbers() is not None
    append(two_days, 30, 45)
    assert same_as_java(kinds, two_days).to_arrow().num_rows == 14
