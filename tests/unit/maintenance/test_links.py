"""Symbolic links in a table's folders, and folders of others: nothing that deletes looks behind
them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import StorageError
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.orphans import OrphanReport, remove_orphan_files
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.storage.base import FileStat
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import load_table
from paimon_stream.verify.verifying import verify
from tests.kits.names import Disk


def grown(folder: Path, partitioned: bool = False) -> Disk:
    """A table of three snapshots. The last one replaced the files of the others."""
    disk = Disk(folder, partitioned=partitioned)
    bench = disk.bench
    for number in range(2):
        dt = "a" if partitioned else None
        bench.committer().commit(bench.request(number, [bench.message(f"f{number}", dt=dt)]))
    bench.committer().commit(bench.request(2, [bench.compaction("f0", "f1", into="f2")]))
    return disk


def clean(disk: Disk, *, dry_run: bool = False, root: Path | None = None) -> OrphanReport:
    """Removes orphans after two days."""
    disk.age()
    table = load_table(LocalStorage(str(root or disk.root)))
    return remove_orphan_files(table, dry_run=dry_run)


@pytest.mark.parametrize("dry_run", [True, False])
def test_orphan_removal_leaves_links_and_what_is_behind_them_and_names_them(
    tmp_path: Path, dry_run: bool
) -> None:
    disk = grown(tmp_path)
    disk.bench.storage.write("bucket-0/litter", b"")
    disk.link("bucket-1", "outside/bucket-0")
    disk.link("bucket-2")
    disk.link("bucket-0/linked", "outside/canary")
    disk.link("bucket-0/dangling", "nowhere")
    disk.link("index")
    disk.link("_paimon_stream/me/.linked.tmp", "outside/canary")
    outside, inside = disk.outside(), disk.inside()
    report = clean(disk, dry_run=dry_run)
    assert report.paths == ("bucket-0/litter",)
    assert set(report.skipped) == {
        "bucket-0/linked",
        "bucket-1",
        "bucket-2",
        "index",
        "_paimon_stream/me/.linked.tmp",
    }
    assert report.to_json()["skipped"] == list(report.skipped)
    assert disk.outside() == outside
    assert disk.inside() == inside - (set() if dry_run else {"bucket-0/litter"})


def test_orphan_removal_leaves_the_folders_of_a_partition_that_are_links(tmp_path: Path) -> None:
    disk = grown(tmp_path, partitioned=True)
    disk.link("dt=b")
    disk.link("dt=a/bucket-1")
    outside = disk.outside()
    report = clean(disk)
    assert (report.count, set(report.skipped)) == (0, {"dt=b", "dt=a/bucket-1"})
    assert disk.outside() == outside


@pytest.mark.parametrize(
    "path",
    ["bucket-list/notes", "bucket-/notes", "bucket-01/notes", "bucket-1x/notes", "bucket-²/notes"],
)
def test_a_folder_that_is_only_named_almost_like_a_bucket_is_its_owners(
    tmp_path: Path, path: str
) -> None:
    disk = grown(tmp_path)
    disk.write(disk.root / path)
    report = clean(disk)
    assert (report.count, report.skipped) == (0, (path.partition("/")[0],))
    assert (disk.root / path).read_bytes() == b"alive"


def test_a_folder_that_is_named_like_a_partition_of_another_key_is_its_owners(
    tmp_path: Path,
) -> None:
    disk = grown(tmp_path, partitioned=True)
    disk.write(disk.root / "a=b" / "bucket-0" / "notes")
    report = clean(disk)
    assert (report.count, report.skipped) == (0, ("a=b",))


@pytest.mark.parametrize("folder", ["manifest", "snapshot", "bucket-0"])
def test_nothing_is_deleted_in_a_folder_that_was_moved_and_linked(
    tmp_path: Path, folder: str
) -> None:
    """An administrator may have moved a folder to another disk. Its files are read as before."""
    disk = grown(tmp_path)
    for name in ("manifest", "snapshot", "bucket-0"):
        disk.bench.storage.write(f"{name}/.litter.tmp", b"")
    moved = disk.folder / "outside" / "moved"
    os.rename(disk.root / folder, moved)
    disk.link(folder, "outside/moved")
    outside = disk.outside()
    report = clean(disk)
    assert report.count == 2
    assert any(one.startswith(folder) for one in report.skipped)
    if folder == "snapshot":
        with pytest.raises(StorageError, match="its folder snapshot is a symbolic link"):
            expire_snapshots(disk.bench.table, 1, older_than="0 s")
    else:
        expired = expire_snapshots(disk.bench.table, 1, older_than="0 s")
        assert (expired.snapshots, expired.left > 0) == ((1, 2), True)
        kept = {"data"} if folder == "bucket-0" else {"manifest", "manifest list"}
        assert not kept & expired.files.keys()
    assert outside.items() <= disk.outside().items()
    assert verify(disk.bench.table, sample=0).healthy


def test_a_folder_that_stays_because_something_hidden_is_in_it_is_not_counted(
    tmp_path: Path,
) -> None:
    disk = grown(tmp_path)
    for bucket in (7, 8):
        disk.bench.storage.write(f"bucket-{bucket}/litter", b"")
    (disk.root / "bucket-7" / ".theirs").mkdir()
    assert (clean(disk).folders, (disk.root / "bucket-7").exists()) == (1, True)


@pytest.mark.parametrize("root", ["link", "behind/t"])
def test_a_table_whose_root_is_a_link_or_behind_one_is_cleaned_like_any_other(
    tmp_path: Path, root: str
) -> None:
    disk = grown(tmp_path)
    disk.bench.storage.write("bucket-0/litter", b"")
    (tmp_path / "link").symlink_to(disk.root)
    (tmp_path / "behind").symlink_to(disk.root.parent)
    report = clean(disk, root=tmp_path / root)
    assert (report.paths, report.skipped) == (("bucket-0/litter",), ())
    table = load_table(LocalStorage(str(tmp_path / root)))
    expired = expire_snapshots(table, 1, older_than="0 s")
    assert (expired.snapshots, expired.files["data"], expired.left) == ((1, 2), 2, 0)
    disk.bench.audit(["f2"], orphans=True)


class Swapping(LocalStorage):
    """Replaces a bucket by a link to a folder outside, at the last look before a file in it is
    deleted.
    """

    def stat(self, path: str) -> FileStat:
        found = super().stat(path)
        bucket = Path(self.root, "bucket-0")
        if path.endswith("/canary") and not bucket.is_symlink():
            bucket.rename(f"{self.root}/moved")
            bucket.symlink_to(Path(self.root).parent.parent / "outside")
        return found


def test_a_bucket_that_becomes_a_link_at_the_last_moment_costs_nothing_outside(
    tmp_path: Path,
) -> None:
    disk = grown(tmp_path)
    disk.write(disk.root / "bucket-0" / "canary")
    disk.age()
    outside = disk.outside()
    report = remove_orphan_files(disk.bench.on(Swapping(str(disk.root))), dry_run=False)
    assert (report.count, report.failed) == (0, 1)
    assert disk.outside() == outside
    assert (disk.root / "moved" / "canary").exists()


def test_abort_deletes_nothing_in_a_bucket_that_is_a_link(tmp_path: Path) -> None:
    disk = grown(tmp_path)
    message = disk.bench.message("canary", bucket=1)
    os.rename(disk.root / "bucket-1", tmp_path / "outside" / "moved")
    disk.link("bucket-1", "outside/moved")
    outside = disk.outside()
    assert TableCommit(disk.bench.table, "me").abort([message]) == 0
    assert disk.outside() == outside


@pytest.mark.parametrize("folder", ["snapshot", "tag", "changelog"])
def test_a_rollback_through_a_linked_folder_is_refused_before_anything_is_changed(
    tmp_path: Path, folder: str
) -> None:
    disk = grown(tmp_path)
    disk.bench.storage.write(f"{folder}/other", b"")
    (disk.root / folder).rename(disk.folder / "moved")
    disk.link(folder, "moved")
    outside, inside = disk.outside(), disk.inside()
    for dry_run in (True, False):
        with pytest.raises(
            StorageError, match=f"folder {folder} is a symbolic link.* Nothing was changed"
        ):
            rollback_to(load_table(disk.bench.storage), 1, dry_run=dry_run)
    assert (disk.outside(), disk.inside()) == (outside, inside)
