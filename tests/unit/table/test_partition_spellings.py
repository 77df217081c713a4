"""Folders of FLOAT and DOUBLE partitions whose names another version of Java has spelled."""

from __future__ import annotations

import os
import pickle
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.partition_spellings import SpelledStorage
from paimon_stream.table.table import load_table

OURS, OLDER = "p=2.0E23", "p=1.9999999999999998E23"
VALUE = 2e23
NUMBERS = count()


@pytest.fixture(params=["disk", "without folders"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "disk":
        return str(tmp_path / "db.db" / "t")
    return f"memory://spellings-{next(NUMBERS)}/db.db/t"


def bare(table: PaimonTable) -> Any:
    """The storage that shows each folder under its own name."""
    storage: Any = table._table.storage
    return storage.wrapped


def append(table: PaimonTable, *numbers: int, value: float = VALUE) -> None:
    rows = {"p": pa.array([value] * len(numbers)), "q": ["x"] * len(numbers)}
    table.append(pa.table({**rows, "v": pa.array(numbers, pa.int32())}))


def created(location: str, **options: str) -> PaimonTable:
    columns = [("p", "DOUBLE"), ("q", "STRING"), ("v", "INT")]
    return PaimonTable.create(location, columns, partition_keys=["q", "p"], options=options)


def moved(table: PaimonTable, there: str = OLDER, most: int = 100) -> None:
    """Moves files out of the folder with our name into the other."""
    storage = bare(table)
    for one in storage.list_files(f"q=x/{OURS}/bucket-0")[:most]:
        storage.write(f"q=x/{there}/bucket-0/{one.name}", storage.read(one.path))
        storage.delete(one.path)
    storage.delete(f"q=x/{OURS}/bucket-0")
    if storage.has_folders and not storage.list_folders(f"q=x/{OURS}"):
        storage.delete(f"q=x/{OURS}")


def files_in(table: PaimonTable, folder: str) -> int:
    return len(bare(table).list_files(f"q=x/{folder}/bucket-0"))


def values(table: PaimonTable, **how: Any) -> list[int]:
    return sorted(PaimonTable.load(table.location).to_arrow(**how)["v"].to_pylist())


def is_sound(table: PaimonTable) -> bool:
    """Whether all files are there, and none is taken for an orphan."""
    found = PaimonTable.load(table.location)
    report = found.remove_orphan_files(older_than=timedelta(hours=1))
    return not found.verify(sample=100).findings and report.count == 0


def test_rows_in_a_folder_of_another_spelling_are_read_and_more_join_them(location: str) -> None:
    table = created(location)
    append(table, 1)
    moved(table)
    assert values(table) == values(table, filter=pc.field("p") == VALUE) == [1]
    append(table, 2)
    append(table, 3, value=0.5)
    assert (files_in(table, OLDER), files_in(table, OURS), files_in(table, "p=0.5")) == (2, 0, 1)
    assert values(table) == [1, 2, 3]
    assert values(table, partition={"p": VALUE}) == [1, 2]
    assert is_sound(table)


def test_of_two_folders_both_are_used(location: str) -> None:
    table = created(location, **{"compaction.min.file-num": "2"})
    append(table, 1)
    moved(table)
    bare(table).write(f"q=x/{OURS}/bucket-0/hint", b"")  # so the next file is put here
    append(table, 2)
    bare(table).delete(f"q=x/{OURS}/bucket-0/hint")
    assert (files_in(table, OLDER), files_in(table, OURS)) == (1, 1)
    assert values(table) == [1, 2]
    assert is_sound(table)
    table.compact(full=True)
    assert values(table) == [1, 2]
    table.expire_snapshots(retain_max=1, retain_min=1, older_than=timedelta(0))
    assert (files_in(table, OLDER), files_in(table, OURS)) == (0, 1)
    assert is_sound(table)


def test_orphans_are_removed_from_both_and_nothing_else(tmp_path: Path) -> None:
    table = created(str(tmp_path / "t"))
    append(table, 1)
    append(table, 2)
    moved(table, most=1)
    append(table, 3)
    for folder in (OURS, OLDER):
        orphan = tmp_path / "t" / "q=x" / folder / "bucket-0" / f"data-{folder[2:5]}-0.parquet"
        orphan.parent.mkdir(parents=True, exist_ok=True)
        orphan.write_bytes(b"")
        os.utime(orphan, (1, 1))
    table = PaimonTable.load(table.location)
    assert table.remove_orphan_files(older_than=timedelta(days=2), dry_run=False).count == 2
    assert values(table) == [1, 2, 3]


def test_a_dropped_partition_leaves_no_file_in_any_folder(location: str) -> None:
    table = created(location)
    append(table, 1)
    moved(table)
    append(table, 2, value=0.5)
    table.drop_partitions([{"q": "x", "p": VALUE}])
    assert values(table) == [2]
    table.expire_snapshots(retain_max=1, retain_min=1, older_than=timedelta(0))
    assert (files_in(table, OLDER), files_in(table, OURS)) == (0, 0)
    assert is_sound(table)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("p=1.9999999999999998E23", True),
        ("p=2.0000000000000000E23", True),
        ("p=2.0E22", False),
        ("p=2e23", False),
        ("p=NaN", False),
        ("p=", False),
        ("pp=2.0E23", False),
    ],
)
def test_only_javas_texts_of_the_same_value_count(text: str, same: bool) -> None:
    table = created(f"memory://spellings-{next(NUMBERS)}/db.db/t")
    bare(table).write(f"q=x/{text}/bucket-0/file", b"")
    assert table._table.storage.exists(f"q=x/{OURS}/bucket-0/file") is same


def test_tables_without_such_a_partition_have_the_storage_that_they_had(tmp_path: Path) -> None:
    columns = [("p", "INT"), ("v", "DOUBLE")]
    table = PaimonTable.create(str(tmp_path / "t"), columns, partition_keys=["p"])
    assert isinstance(table._table.storage, LocalStorage)


def test_it_travels_and_branches_have_it(tmp_path: Path) -> None:
    table = created(str(tmp_path / "t"))
    append(table, 1)
    moved(table)
    storage = pickle.loads(pickle.dumps(table._table.storage))
    assert isinstance(storage, SpelledStorage)
    assert len(storage.list_files(f"q=x/{OURS}/bucket-0")) == 1
    again = load_table(load_table(storage).storage).storage
    assert isinstance(again, SpelledStorage)
    assert isinstance(again.wrapped, LocalStorage)
    table.create_tag("first")
    table.create_branch("dev", tag="first")
    assert PaimonTable.load(table.location, branch="dev").to_arrow()["v"].to_pylist() == [1]


def test_writing_and_deleting_many_files_at_once_uses_the_folders_that_are_there() -> None:
    table = created(f"memory://spellings-{next(NUMBERS)}/db.db/t")
    storage, under = table._table.storage, bare(table)
    assert isinstance(under, MemoryStorage)
    under.write(f"q=x/{OLDER}/bucket-0/a", b"1")
    storage.write_all([(f"q=x/{OURS}/bucket-0/{name}", b"2") for name in "bc"])
    assert under.list_names(f"q=x/{OLDER}/bucket-0") == ["a", "b", "c"]
    assert storage.list_folders("q=x") == [OURS]
    assert [one.path for page in storage.list_below("q=x") for one in page] == [
        f"q=x/{OURS}/bucket-0/{name}" for name in "abc"
    ]
    assert [one.path for page in storage.list_pages(f"q=x/{OURS}/bucket-0") for one in page] == [
        f"q=x/{OURS}/bucket-0/{name}" for name in "abc"
    ]
    assert storage.delete_all([f"q=x/{OURS}/bucket-0/{name}" for name in "abz"]) == {}
    assert under.list_names(f"q=x/{OLDER}/bucket-0") == ["c"]
