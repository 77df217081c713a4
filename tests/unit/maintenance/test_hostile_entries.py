"""What others committed: entries with names, buckets and partitions that no table can have.
Commands that delete pass over them, and `verify` reports them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_stream.api.table import PaimonTable
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import CorruptMetadata, FormatError
from paimon_stream.format.entries import FileKind, IndexFileMeta, IndexManifestEntry, ManifestEntry
from paimon_stream.format.names import wrong_with
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.orphans import remove_orphan_files
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag, delete_tag
from paimon_stream.verify.verifying import verify
from tests.kits.names import IN_UTF8, Disk, entry, publish_as_others

NO_PARTITION = struct.pack(">i", 1) + struct.pack("<qii", 0, 5, 1000)
WRONG_BUCKETS = (-5, -1, -(2**31))


def evil(kind: FileKind, like: ManifestEntry) -> list[ManifestEntry]:
    """An entry of every kind that no table can have."""
    extra = entry(kind, like, "with-extra")
    return [
        *(entry(kind, like, name) for name in IN_UTF8),
        *(replace(extra, file=replace(extra.file, extra_files=(name,))) for name in IN_UTF8),
        *(entry(kind, like, "x", bucket=bucket) for bucket in WRONG_BUCKETS),
        entry(kind, like, "x", partition=NO_PARTITION),
    ]


def attacked(folder: Path, partitioned: bool = True) -> Disk:
    """A table to which somebody added evil entries, and then deleted them, between good commits of
    ours.
    """
    disk = Disk(folder, partitioned=partitioned)
    bench, dt = disk.bench, "a" if partitioned else None
    bench.committer().commit(bench.request(0, [bench.message("f0", dt=dt)]))
    like = bench.live()[0]
    indexes = [
        IndexManifestEntry(
            partition=like.partition,
            bucket=0,
            file=IndexFileMeta(index_type="HASH", file_name=name, file_size=1, row_count=1),
        )
        for name in IN_UTF8
    ]
    added = evil(FileKind.ADD, like)
    publish_as_others(bench, added, changelog=added, index=indexes)
    publish_as_others(bench, evil(FileKind.DELETE, like), index_manifest=None)
    bench.committer().commit(bench.request(3, [bench.message("f1", dt=dt)]))
    bench.committer().commit(bench.request(4, [bench.compaction("f0", "f1", into="f2")]))
    for name in ("dt=a/bucket-0/sub", "bucket-0/sub", "index/sub"):
        disk.link(name)
    return disk


@pytest.mark.parametrize("partitioned", [True, False])
def test_an_expiry_passes_over_what_cannot_exist_and_says_so(
    tmp_path: Path, partitioned: bool
) -> None:
    disk = attacked(tmp_path, partitioned)
    outside = disk.outside()
    report = expire_snapshots(disk.bench.table, 1, older_than="0 s")
    assert (report.snapshots, report.left) == ((1, 2, 3, 4), 0)
    entries = 2 * len(IN_UTF8) + len(WRONG_BUCKETS) + 1
    assert report.impossible == 2 * entries + len(IN_UTF8)  # deleted, as changelog, indexes
    assert report.to_json()["impossible"] == report.impossible
    assert disk.outside() == outside
    assert [entry.file.file_name for entry in disk.bench.live()] == ["f2"]
    assert not [name for name in disk.inside() if name.endswith(("/f0", "/f1"))]
    again = expire_snapshots(disk.bench.table, 1, older_than="0 s")
    assert (again.snapshots, again.impossible) == ((), 0)


PARTS = st.sampled_from(
    ["..", "/", ".", "x", "canary", "sub", "%2F", "\\", "\n", "\0", "~", " ", "bucket-0"]
)
NAMES = st.lists(PARTS, max_size=5).map("".join)


@settings(max_examples=20, deadline=None)
@given(
    names=st.lists(NAMES, min_size=1, max_size=6, unique=True), extras=st.lists(NAMES, max_size=3)
)
def test_an_expiry_deletes_nothing_outside_whatever_the_names_of_its_files(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], extras: list[str]
) -> None:
    disk = Disk(tmp_path_factory.mktemp("names"))
    bench = disk.bench
    bench.committer().commit(bench.request(0, [bench.message("f0")]))
    like, outside = bench.live()[0], disk.outside()
    like = replace(like, file=replace(like.file, extra_files=tuple(extras)))
    for kind in FileKind:
        publish_as_others(bench, [entry(kind, like, name) for name in names])
    disk.link("bucket-0/sub")
    report = expire_snapshots(bench.table, 1, older_than="0 s")
    possible = [name for name in (*names, *extras * len(names)) if wrong_with(name) is None]
    assert (report.snapshots, report.files.get("data", 0)) == ((1, 2), len(possible))
    assert disk.outside() == outside
    bench.audit(["f0"])


COMMANDS: dict[str, Callable[[Disk], object]] = {
    "expire": lambda disk: expire_snapshots(disk.bench.table, 1, older_than="0 s"),
    "expire half": lambda disk: expire_snapshots(disk.bench.table, 3, older_than="0 s"),
    "orphans": lambda disk: remove_orphan_files(disk.bench.table, dry_run=False),
    "rollback": lambda disk: rollback_to(disk.bench.table, 2),
    "delete a tag": lambda disk: _tag_and_delete(disk),
    "truncate": lambda disk: TableCommit(disk.bench.table, "me").truncate(),
    "verify": lambda disk: verify(disk.bench.table),
}


def _tag_and_delete(disk: Disk) -> None:
    create_tag(disk.bench.table, "evil", 2)
    expire_snapshots(disk.bench.table, 1, older_than="0 s")
    delete_tag(disk.bench.table, "evil")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("partitioned", [True, False])
def test_no_command_touches_anything_outside_the_table(
    tmp_path: Path, command: str, partitioned: bool
) -> None:
    disk = attacked(tmp_path, partitioned)
    disk.age()
    outside = disk.outside()
    COMMANDS[command](disk)
    assert disk.outside() == outside
    if command not in ("truncate", "rollback"):
        assert disk.bench.live_names() == ["f2"]
        assert any(name.endswith("bucket-0/f2") for name in disk.inside())


@pytest.mark.parametrize("partitioned", [True, False])
def test_verify_reports_every_entry_that_the_table_cannot_have(
    tmp_path: Path, partitioned: bool
) -> None:
    disk = attacked(tmp_path, partitioned)
    found = [one for one in verify(disk.bench.table).findings if one.code == "entry-unusable"]
    texts = "\n".join(one.message for one in found)
    for wrong in (
        "'../../x'",
        "'sub/x'",
        r"'a\x00b'",
        "300 bytes",
        "256 bytes",
        "bucket -5",
        "bucket -1,",
    ):
        assert wrong in texts
    assert any("row" in one.message for one in found)
    assert "\0" not in texts
    assert all(one.path is not None and one.path.startswith("manifest/") for one in found)
    assert {one.severity for one in found} == {"error"}


@pytest.mark.parametrize("partitioned", [True, False])
def test_what_reads_such_an_entry_says_what_is_wrong_and_publishes_nothing(
    tmp_path: Path, partitioned: bool
) -> None:
    disk = attacked(tmp_path, partitioned)
    like = disk.bench.live()[0]
    published = publish_as_others(
        disk.bench, [entry(FileKind.ADD, like, "y", partition=NO_PARTITION)]
    )
    table = PaimonTable.load(str(disk.root))
    for call in (lambda: list(table.files()), table.compact_manifests, table.truncate):
        with pytest.raises(
            FormatError, match=r"partition 00000001\w* of an entry is not .* Run verify"
        ):
            call()
    assert disk.bench.snapshots.latest_id() == published.id


@pytest.mark.parametrize("key", ["baseManifestList", "indexManifest", "statistics"])
@pytest.mark.parametrize("name", ["../../x", "sub/x"])
def test_a_snapshot_that_names_metadata_outside_is_a_finding_and_deletes_nothing(
    tmp_path: Path, key: str, name: str
) -> None:
    disk = attacked(tmp_path)
    path = disk.root / "snapshot" / "snapshot-2"
    attribute = {"baseManifestList": "base_manifest_list", "indexManifest": "index_manifest"}.get(
        key, key
    )
    publish_as_others(disk.bench, **{attribute: name})
    for folder in ("manifest", "statistics"):
        disk.link(f"{folder}/sub")
    disk.age()
    outside, inside = disk.outside(), disk.inside()
    report = verify(disk.bench.table)
    assert any(name in one.message and one.path == "snapshot/snapshot-6" for one in report.findings)
    for command in (
        lambda: expire_snapshots(disk.bench.table, 1, older_than="0 s", runtime=disk.bench.runtime),
        lambda: remove_orphan_files(disk.bench.table, dry_run=False, runtime=disk.bench.runtime),
    ):
        with pytest.raises(CorruptMetadata, match="snapshot-6, in "):
            command()
    assert disk.outside() == outside
    assert {one for one in inside if one.startswith(("manifest", "dt=a"))} <= disk.inside()
    assert path.exists()
