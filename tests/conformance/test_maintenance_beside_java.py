"""Orphan removal, manifest compaction and expiry beside Java: they remove the same files and make the
same snapshot, Java continues on the result, and it reads every tag."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import load_table
from tests.kits.faults import Fault, FaultyStorage, Killed, Moment

Golden = Callable[[str], tuple[Path, dict[str, Any]]]
LONG_AGO = 1_600_000_000
LITTER = (
    "manifest/manifest-litter-0",
    "manifest/.manifest-list-litter-0.1234.tmp",
    "index/index-litter-0",
    "statistics/stat-litter-0",
    "snapshot/.snapshot-9.1234.tmp",
    "snapshot/notes",
    "changelog/.changelog-9.1234.tmp",
    "tag/notes",
    "schema/.schema-9.1234.tmp",
    "consumer/notes",
    "_paimon_stream/me/7.old",
    "mine/data.parquet",
    "README",
)


def litter(table: Path) -> None:
    """Files that nothing refers to, in every folder, and old times for all files. Each has a name
    of its own, because Java takes only one of several files with one name (tried on 1.4.2).
    """
    buckets = sorted({one.parent for one in table.rglob("data-*")})
    strays = [one / f"litter-{n}.parquet" for n, one in enumerate(buckets)]
    for path in (*(table / one for one in LITTER), *strays):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"litter")
    (table / "bucket-0x").mkdir(exist_ok=True)
    for path in table.rglob("*"):
        if path.is_file():
            os.utime(path, (LONG_AGO, LONG_AGO))


def files(table: Path) -> set[str]:
    return {one.relative_to(table).as_posix() for one in table.rglob("*") if one.is_file()}


@pytest.mark.parametrize("name", ["append_partitioned", "pk_updates", "expired", "many_commits"])
def test_the_same_orphans_go_as_with_java(java: Any, golden: Golden, name: str) -> None:
    ours, expected = golden(name)
    litter(ours)
    theirs = ours.parent / "u"
    shutil.copytree(ours, theirs)
    report = PaimonTable.load(str(ours)).remove_orphan_files(dry_run=False)
    java.remove_orphans(theirs, older_than_ms=LONG_AGO * 1000 + 86_400_000)
    assert files(ours) == files(theirs)
    assert report.count > 6
    assert len(java.read(ours)) == len(
        expected["rows"] if "rows" in expected else java.read(theirs)
    )
    assert PaimonTable.load(str(ours)).verify().findings == ()


COMPARED = (
    "commitKind",
    "commitIdentifier",
    "totalRecordCount",
    "deltaRecordCount",
    "schemaId",
    "watermark",
)


@pytest.mark.parametrize("name", ["append_partitioned", "overwritten", "pk_updates"])
def test_compacted_manifests_are_as_java_makes_them(java: Any, golden: Golden, name: str) -> None:
    ours, _ = golden(name)
    theirs = ours.parent / "u"
    shutil.copytree(ours, theirs)
    before = sorted(map(str, java.read(ours)))
    report = PaimonTable.load(str(ours)).compact_manifests()
    _java_compacts(java, theirs)
    mine, its = java.snapshots(ours)[-1], java.snapshots(theirs)[-1]
    assert report.snapshot_id == mine["id"] == its["id"]
    assert {key: mine.get(key) for key in COMPARED} == {key: its.get(key) for key in COMPARED}
    assert _manifests(java, ours) == _manifests(java, theirs)
    assert [one["fileName"] for one in java.files(ours)] == [
        one["fileName"] for one in java.files(theirs)
    ]
    assert sorted(map(str, java.read(ours))) == before
    assert PaimonTable.load(str(ours)).verify().findings == ()
    assert PaimonTable.load(str(theirs)).verify().findings == ()
    assert PaimonTable.load(str(ours)).compact_manifests().snapshot_id is None


def test_java_goes_on_after_compaction_and_cleaning(java: Any, golden: Golden) -> None:
    path, _ = golden("pk_updates")
    litter(path)
    table = PaimonTable.load(str(path))
    table.compact_manifests()
    table.remove_orphan_files(dry_run=False)
    rows = java.read(path)
    java.write(path, rows[:1], "java", 77)
    java.compact(path, commit_identifier=78)
    assert java.expire_snapshots(path, retain_max=1) > 0
    assert sorted(map(str, java.read(path))) == sorted(map(str, rows))
    assert [one for one in table.verify().findings if one.severity == "error"] == []


def test_java_tags_no_snapshot_whose_files_an_expiry_deletes_and_reads_every_tag(
    java: Any, golden: Golden
) -> None:
    """Our expiry is killed after its first delete, Java tags snapshots, our next run finishes the
    work.
    """
    path, _ = golden("pk_updates")
    table = PaimonTable.load(str(path))
    first, *_, last = [one.id for one in table.snapshots()]
    rows = sorted(map(str, java.read(path)))
    java.create_tag(path, "early", first + 1)
    inner = load_table(LocalStorage(str(path)))
    storage = FaultyStorage(
        inner.storage, [Fault(at=1, verb="delete", moment=Moment.AFTER, stop=True)]
    )
    with pytest.raises(Killed):
        expire_snapshots(replace(inner, storage=storage), 1, 1, timedelta(0))
    assert list(path.glob("_paimon_stream/expiring.*"))
    with pytest.raises(Exception, match=f"snapshot.*{first}.*exist"):
        java.create_tag(path, "late", first)
    java.create_tag(path, "now", last)
    assert table.expire_snapshots(1, 1, timedelta(0)).earliest == last
    assert not list(path.glob("_paimon_stream/expiring.*"))
    assert sorted(map(str, java.read(path))) == rows
    assert set(java.tags(path)) == {"early", "now"}
    assert [one for one in table.verify().findings if one.severity == "error"] == []


def _replace_from(path: Path, first: int) -> None:
    """Makes room for snapshots that replace all from the id `first` on, as the renames of a writer
    without a lock do.
    """
    for snapshot in path.glob("snapshot/snapshot-*"):
        if int(snapshot.name.removeprefix("snapshot-")) >= first:
            snapshot.unlink()
    (path / "snapshot" / "LATEST").write_text(str(first - 1))


def _replaced_tags(java: Any, path: Path) -> list[dict[str, Any]]:
    """A table with a tag "below", and two tags above it whose snapshots have none of its files and
    were replaced. Returns the rows of the lowest tag.
    """
    java.create_table(path, [("id", "BIGINT")], options={"bucket": "-1"})
    rows = [{"id": one} for one in range(3)]
    java.write(path, rows)
    java.create_tag(path, "below", 1)
    java.write(path, [{"id": 10}], overwrite={})
    java.create_tag(path, "lost-2", 2)
    java.write(path, [{"id": 11}])
    java.create_tag(path, "lost-3", 3)
    _replace_from(path, 2)
    for one in range(20, 23):
        java.write(path, [{"id": one}])
    java.create_tag(path, "above", 4)
    java.write(path, [{"id": 30}], overwrite={})
    java.write(path, [{"id": 31}])
    return rows


def _of_tag(java: Any, path: Path, tag: str) -> list[int]:
    return sorted(row["id"] for row in java.read(path, options={"scan.tag-name": tag}))


def test_java_reads_the_tag_below_two_replaced_ones_after_an_expiry_and_a_deletion(
    java: Any, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    rows = _replaced_tags(java, path)
    table = PaimonTable.load(str(path))
    assert table.expire_snapshots(1, 1, timedelta(0)).earliest == 6
    assert _of_tag(java, path, "below") == [row["id"] for row in rows]
    assert _of_tag(java, path, "lost-2") == [10]
    assert _of_tag(java, path, "lost-3") == [10, 11]
    table.delete_tag("above")
    assert _of_tag(java, path, "below") == [row["id"] for row in rows]
    assert sorted(row["id"] for row in java.read(path)) == [30, 31]


def test_java_reads_the_tag_of_a_snapshot_that_an_overwrite_replaced(
    java: Any, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    java.create_table(path, [("id", "BIGINT")], options={"bucket": "-1"})
    java.write(path, [{"id": 1}])
    java.write(path, [{"id": 2}])
    java.create_tag(path, "replaced", 2)
    _replace_from(path, 2)
    java.write(path, [{"id": 3}], overwrite={})
    java.write(path, [{"id": 4}])
    PaimonTable.load(str(path)).expire_snapshots(1, 1, timedelta(0))
    assert _of_tag(java, path, "replaced") == [1, 2]
    assert sorted(row["id"] for row in java.read(path)) == [3, 4]


def _java_compacts(java: Any, path: Path) -> None:
    commit = java._table(path).store().newCommit("throw-away", None)
    commit.compactManifest()
    commit.close()


def _manifests(java: Any, path: Path) -> list[dict[str, Any]]:
    left_out = ("fileName", "fileSize")
    return [{k: v for k, v in one.items() if k not in left_out} for one in java.manifests(path)]
