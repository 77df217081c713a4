"""Dropping data files that are lost: what is known of their rows, and what must not be dropped."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import NotFound, UnsupportedFeature

VECTORS = {"deletion-vectors.enabled": "true"}


def rows(ids: Iterable[int], p: str, v: str = "first") -> pa.Table:
    numbers = list(ids)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int32()),
            "p": [p] * len(numbers),
            "v": [v] * len(numbers),
        }
    )


def table_of(folder: Path, options: dict[str, str] | None = None, **more: Any) -> PaimonTable:
    return PaimonTable.create(
        str(folder / "db.db" / "t"),
        [("id", "INT"), ("p", "STRING"), ("v", "STRING")],
        options=options or {},
        **more,
    )


def remove_file(table: PaimonTable, **partition: str) -> str:
    """Removes the first data file of a partition, as a user with `rm` does. Returns its path."""
    (file, *_) = table.files(partition=partition or None)
    Path(file.path.removeprefix("file:")).unlink()
    return file.path


def newest(table: PaimonTable) -> int:
    return max(snapshot.id for snapshot in table.snapshots())


def ids(table: PaimonTable) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


def test_a_table_without_the_rows_of_a_lost_file_can_be_read(tmp_path: Path) -> None:
    table = table_of(tmp_path, VECTORS, partition_keys=["p"])
    for first, p in ((0, "a"), (10, "b"), (20, "a")):
        table.append(rows(range(first, first + 10), p))
    table.delete(pc.field("id").isin([3, 23]))
    path = remove_file(table, p="a")
    with pytest.raises(NotFound, match="drop_lost_files"):
        table.to_arrow()

    planned = table.drop_lost_files()
    assert planned.snapshot_id is None
    assert (planned.checked, planned.rows) == (3, 10)
    (lost,) = planned.files
    assert path.endswith(lost.path)
    assert (dict(lost.partition), lost.bucket, lost.rows) == ({"p": "a"}, 0, 10)
    assert dict(lost.bounds) == {"id": (0, 9), "v": ("first", "first")}
    assert newest(table) == 4  # nothing was written

    dropped = table.drop_lost_files(dry_run=False)
    assert (dropped.snapshot_id, dropped.files) == (5, planned.files)
    assert ids(table) == [*range(10, 20), 20, 21, 22, *range(24, 30)]
    with pytest.raises(NotFound):
        table.to_arrow(snapshot_id=4)
    assert table.drop_lost_files(dry_run=False).snapshot_id is None
    newest_findings = [
        finding for finding in table.verify().findings if "5" in str(finding.snapshots)
    ]
    assert not newest_findings


def test_a_key_has_its_older_row_again(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"bucket": "1"}, primary_keys=["id"])
    table.append(rows(range(4), "a", "older"))
    table.append(rows([2, 3, 7], "a", "newer"))
    newest = max(table.files(), key=lambda file: file.meta.min_sequence_number)
    Path(newest.path.removeprefix("file:")).unlink()
    (lost,) = table.drop_lost_files(dry_run=False).files
    assert dict(lost.bounds) == {"id": (2, 7)}
    assert set(table.to_arrow()["v"].to_pylist()) == {"older"}
    assert ids(table) == [0, 1, 2, 3]
    table.append(rows([2], "a", "again"))
    assert table.to_arrow(filter=pc.field("id") == 2)["v"].to_pylist() == ["again"]


def test_a_table_of_which_nothing_exists_may_not_be_mounted(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    table.append(rows(range(3), "a"))
    remove_file(table)
    with pytest.raises(NotFound, match="none of them exists"):
        table.drop_lost_files(dry_run=False)
    assert newest(table) == 1


def test_an_external_path_of_which_nothing_exists_may_not_be_mounted(tmp_path: Path) -> None:
    disks = [tmp_path / "disk1", tmp_path / "disk2"]
    paths = ",".join(disk.as_uri() for disk in disks)
    table = table_of(
        tmp_path,
        {"data-file.external-paths": paths, "data-file.external-paths.strategy": "round-robin"},
    )
    number = 0
    # Each write begins at a random external path. Two files a disk: one stays when one is lost.
    while any(len(list(disk.rglob("data-*"))) < 2 for disk in disks):
        table.append(rows([number], "a"))
        number += 1
    disks[1].rename(tmp_path / "not mounted")
    with pytest.raises(NotFound, match="disk2"):
        table.drop_lost_files(dry_run=False)
    (tmp_path / "not mounted").rename(disks[1])
    remove_file(table)
    assert len(table.drop_lost_files(dry_run=False).files) == 1
    assert len(ids(table)) == number - 1


@pytest.mark.parametrize("linked", ["partition", "file"])
def test_a_symbolic_link_that_leads_nowhere_may_lead_to_a_disk_that_is_not_mounted(
    tmp_path: Path, linked: str
) -> None:
    table = table_of(tmp_path, partition_keys=["p"])
    for number, p in enumerate("aaab"):
        table.append(rows([number], p))
    file = Path(table.files(partition={"p": "a"})[0].path.removeprefix("file:"))
    moved = file.parent.parent if linked == "partition" else file
    disk = tmp_path / "disk"
    moved.rename(disk)
    moved.symlink_to(disk)
    assert not table.drop_lost_files(dry_run=False).files
    disk.rename(tmp_path / "not mounted")
    with pytest.raises(NotFound, match="symbolic link"):
        table.drop_lost_files(dry_run=False)
    assert newest(table) == 4
    moved.unlink()
    lost_files = table.drop_lost_files(dry_run=False).files
    assert len(lost_files) == (3 if linked == "partition" else 1)


def test_a_file_that_is_lost_behind_a_link_to_a_folder_with_others_is_dropped(
    tmp_path: Path,
) -> None:
    table = table_of(tmp_path, partition_keys=["p"])
    for number, p in enumerate("aab"):
        table.append(rows([number], p))
    partition = Path(table.files()[0].path.removeprefix("file:")).parent.parent
    partition.rename(tmp_path / "disk")
    partition.symlink_to(tmp_path / "disk")
    remove_file(table, p="a")
    assert len(table.drop_lost_files(dry_run=False).files) == 1
    assert len(ids(table)) == 2


def test_a_lost_file_whose_partition_was_overwritten_meanwhile_is_no_concern(
    tmp_path: Path,
) -> None:
    table = table_of(tmp_path, partition_keys=["p"])
    table.append(rows([1], "a"))
    table.append(rows([2], "b"))
    remove_file(table, p="a")

    def overwrite(what: str, done: int, total: int | None) -> None:
        PaimonTable.load(table.location).overwrite(rows([5], "a"), partition={"p": "a"})

    report = table.drop_lost_files(dry_run=False, progress=overwrite)
    assert report.snapshot_id is None
    assert ids(table) == [2, 5]
    assert newest(table) == 3


def test_a_file_of_some_columns_is_not_dropped_alone(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"row-tracking.enabled": "true", "data-evolution.enabled": "true"})
    table.append(rows([1], "a"))
    table.append(rows([2], "a"))
    assert not table.drop_lost_files(dry_run=False).files
    remove_file(table)
    with pytest.raises(UnsupportedFeature, match="Overwrite the partitions"):
        table.drop_lost_files(dry_run=False)
