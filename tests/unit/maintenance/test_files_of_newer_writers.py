"""Files that only fields of newer writers name, such as the sidecars of manifests."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from paimon_stream.format.entries import IndexFileMeta, IndexManifestEntry
from paimon_stream.format.index_manifest import encode_index_manifest
from paimon_stream.maintenance.branches import create_branch, delete_branch
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.manifest_compaction import compact_manifests
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag, delete_tag
from paimon_stream.table.layout import manifest_path, snapshot_path
from tests.kits.newer_fields import add_names
from tests.unit.maintenance.test_orphans import Scene, grown

NAMED = (
    "manifest/manifest-7.avro.sidecar",
    "index/index-7.meta",
    "statistics/stat-7.more",
    "bucket-0/data-7.parquet.more",
)
NAMES = [path.rpartition("/")[2] for path in NAMED]
UNNAMED = ("manifest/manifest-8.avro.sidecar", "bucket-0/data-8.parquet.more")


def rewrite(scene: Scene, name: str, place: tuple[str, ...], field: str) -> None:
    path = manifest_path(name)
    scene.storage.write(path, add_names(scene.storage.read(path), place, field, NAMES))


def in_base_list(scene: Scene) -> None:
    rewrite(scene, scene.bench.latest().base_manifest_list, (), "_EXTRA_FILES")


def in_delta_list(scene: Scene) -> None:
    rewrite(scene, scene.bench.latest().delta_manifest_list, (), "_EXTRA_FILES")


def in_manifest(scene: Scene) -> None:
    delta = scene.bench.latest().delta_manifest_list
    (meta,) = scene.bench.manifests.read_list(delta)
    rewrite(scene, meta.file_name, ("_FILE",), "_MORE_FILES")


def in_index_manifest(scene: Scene) -> None:
    file = IndexFileMeta(index_type="HASH", file_name="index-0", file_size=4, row_count=1)
    entry = IndexManifestEntry(partition=b"", bucket=0, file=file)
    data = encode_index_manifest([entry], compression="zstd", level=1)
    scene.storage.write(manifest_path("index-manifest-7"), add_names(data, (), "_MORE", NAMES))
    change_newest(scene, indexManifest="index-manifest-7")


def in_snapshot(scene: Scene) -> None:
    change_newest(scene, newerFiles={NAMES[0]: [NAMES[1], {"of": NAMED[2:]}]})


def change_newest(scene: Scene, **members: object) -> None:
    path = snapshot_path(scene.bench.latest().id)
    node = json.loads(scene.storage.read(path)) | members
    scene.storage.write(path, json.dumps(node).encode())


PLACES = (in_base_list, in_delta_list, in_manifest, in_index_manifest, in_snapshot)


@pytest.mark.parametrize("place", PLACES)
def test_orphan_removal_keeps_what_only_an_unknown_field_names(
    place: Callable[[Scene], None],
) -> None:
    scene = grown()
    place(scene)
    scene.litter(*NAMED, *UNNAMED)
    scene.wait()
    report = scene.clean()
    assert set(report.paths) == set(UNNAMED)
    assert set(NAMED) <= scene.all_files()


def expire(scene: Scene) -> None:
    scene.wait()
    expire_snapshots(scene.bench.table, 1, 1, runtime=scene.runtime)
    assert len(scene.bench.snapshots.ids()) == 1


def test_the_sidecar_of_a_manifest_is_an_orphan_once_its_last_snapshot_has_expired() -> None:
    scene = grown()
    in_delta_list(scene)
    newer = scene.bench.latest()
    create_tag(scene.bench.table, "t", newer.id, runtime=scene.runtime)
    scene.litter(*NAMED)
    for number in range(2):
        scene.commit(f"later-{number}")
    expire(scene)
    scene.wait()
    assert scene.clean().paths == ()
    delete_tag(scene.bench.table, "t", runtime=scene.runtime)
    compact_manifests(scene.bench.table, runtime=scene.runtime)
    expire(scene)
    scene.wait()
    assert set(NAMED) <= scene.all_files()
    assert set(scene.clean().paths) == set(NAMED)


def test_a_rollback_and_a_branch_keep_what_only_an_unknown_field_names() -> None:
    scene = grown()
    in_delta_list(scene)
    table = scene.bench.table
    newer = scene.bench.latest()
    create_tag(table, "t", newer.id, runtime=scene.runtime)
    create_branch(table, "b", "t", runtime=scene.runtime)
    scene.litter(*NAMED)
    scene.commit("later")
    rollback_to(table, newer.id, runtime=scene.runtime)
    scene.wait()
    scene.clean()
    assert set(NAMED) <= scene.all_files()
    rollback_to(table, newer.id - 1, runtime=scene.runtime)
    delete_tag(table, "t", runtime=scene.runtime)
    scene.clean()
    assert set(NAMED) <= scene.all_files()
    delete_branch(table, "b")
    assert set(NAMED) <= set(scene.clean().paths)
