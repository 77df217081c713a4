"""Our snapshots take over what Java Paimon's take over: statistics, index manifests, row ids,
counts.
"""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from paimon_stream._version import __version__
from paimon_stream.errors import CorruptMetadata, UnknownVersion
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import IndexFileMeta
from paimon_stream.format.index_manifest import decode_index_manifest
from paimon_stream.format.manifest_avro import INDEX_MANIFEST_SCHEMA
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.manifests import ManifestStore
from tests.kits.tables import append

SCHEMA = [("id", "INT"), ("s", "STRING")]
ROWS = [{"id": n, "s": f"s{n}"} for n in range(20)]


@pytest.fixture
def twins(java: Any, tmp_path: Path) -> tuple[Path, Path]:
    """Two tables with the same first snapshot, of Java's."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    java.create_table(
        ours, SCHEMA, options={"bucket": "2", "bucket-key": "id", "write-only": "true"}
    )
    java.write(ours, ROWS, commit_identifier=1, watermark=1000)
    return ours, theirs


def raw(path: Path) -> dict[str, Any]:
    """The newest snapshot as its file says it, keys in their order."""
    newest = max(
        path.glob("snapshot/snapshot-*"), key=lambda file: int(file.name.rpartition("-")[2])
    )
    return dict(json.loads(newest.read_text()))


def go_on(
    java: Any, twins: tuple[Path, Path], identifier: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The next snapshot of each, from the same rows. Ours has three properties more."""
    ours, theirs = twins
    if not theirs.exists():
        shutil.copytree(ours, theirs)
    base = raw(ours)
    append(ours, ROWS, identifier, user="java-oracle")
    java.write(theirs, ROWS, commit_identifier=identifier)
    made = raw(ours)
    assert made.pop("properties") == {
        "paimon-stream.version": __version__,
        "paimon-stream.nonce": made["deltaManifestList"],
        "paimon-stream.base": base["deltaManifestList"],
    }
    return made, raw(theirs)


def said(snapshot: dict[str, Any]) -> dict[str, Any]:
    """A snapshot without the names and sizes of one run."""
    unlike = ("timeMillis",)
    return {
        key: value
        for key, value in snapshot.items()
        if "ManifestList" not in key and key not in unlike
    }


def test_a_snapshot_of_ours_says_what_one_of_java_says_in_the_same_order(
    java: Any, twins: tuple[Path, Path]
) -> None:
    ours, theirs = go_on(java, twins, 2)
    assert list(ours) == list(theirs)
    assert said(ours) == said(theirs)


def test_statistics_are_carried_on_until_the_schema_changes(
    java: Any, twins: tuple[Path, Path]
) -> None:
    java.analyze(twins[0], rows=20, size=2000)
    name = raw(twins[0])["statistics"]
    ours, theirs = go_on(java, twins, 2)
    assert ours["statistics"] == theirs["statistics"] == name
    assert said(ours) == said(theirs)
    for path in twins:
        java.alter_table(path, ("add", "extra", "INT"))
    ours, theirs = go_on(java, twins, 3)
    assert "statistics" not in ours
    assert list(ours) == list(theirs)
    assert said(ours) == said(theirs)


def test_statistics_made_by_java_after_our_commit_are_carried_on_again(
    java: Any, twins: tuple[Path, Path]
) -> None:
    go_on(java, twins, 2)
    java.analyze(twins[0], rows=40, size=1)
    analyzed = raw(twins[0])
    assert analyzed["commitKind"] == "ANALYZE"
    append(twins[0], ROWS, 3)
    assert raw(twins[0])["statistics"] == analyzed["statistics"]
    assert len(java.read(twins[0])) == 60


def with_index_files(java: Any, path: Path) -> list[dict[str, Any]]:
    """Lets Java commit index files of a message of ours. Returns what Java then reports of them."""
    (path / "index").mkdir()
    for bucket in (0, 1):
        name = f"index-00000000-0000-0000-0000-00000000000{bucket}-0"
        (path / "index" / name).write_bytes(b"\0\0\0\1")
        message = CommitMessage(
            partition=bytes(12),
            bucket=bucket,
            total_buckets=2,
            new_index_files=(
                IndexFileMeta(index_type="HASH", file_name=name, file_size=4, row_count=1),
            ),
        )
        java.commit_messages(path, [message.serialize()], commit_identifier=10 + bucket)
    return list(java.index_files(path))


def test_the_index_manifest_is_carried_on(java: Any, twins: tuple[Path, Path]) -> None:
    before = with_index_files(java, twins[0])
    assert len(before) == 2
    name = raw(twins[0])["indexManifest"]
    ours, theirs = go_on(java, twins, 20)
    assert ours["indexManifest"] == theirs["indexManifest"] == name
    assert said(ours) == said(theirs)
    assert java.index_files(twins[0]) == before
    java.write(twins[0], ROWS, commit_identifier=21)
    assert java.index_files(twins[0]) == before
    assert len(java.read(twins[0])) == 60


def test_an_index_manifest_of_java_is_read(java: Any, twins: tuple[Path, Path]) -> None:
    expected = with_index_files(java, twins[0])
    store = ManifestStore(LocalStorage(str(twins[0])))
    found = store.index_entries(raw(twins[0])["indexManifest"])
    assert [described(one) for one in found] == expected


def test_deletion_vectors_in_an_index_manifest_of_java_are_read(java: Any, tmp_path: Path) -> None:
    table = tmp_path / "t"
    options = {"bucket": "2", "deletion-vectors.enabled": "true", "file.compression": "zstd"}
    java.create_table(
        table,
        [("id", "INT NOT NULL"), ("p", "STRING NOT NULL"), ("v", "INT")],
        ["p"],
        ["id", "p"],
        options,
    )
    rows = [{"id": n, "p": "ab"[n % 2], "v": n} for n in range(200)]
    java.write(table, rows, commit_identifier=1)
    java.compact(table, commit_identifier=2)
    java.write(table, [{**row, "v": -1} for row in rows[::7]], commit_identifier=3)
    java.compact(table, full=False, commit_identifier=4)
    expected = java.index_files(table)
    assert any(one["dvRanges"] for one in expected)
    store = ManifestStore(LocalStorage(str(table)))
    found = store.index_entries(raw(table)["indexManifest"])
    assert [described(one) for one in found] == expected


def described(entry: Any) -> dict[str, Any]:
    """An index file as the oracle describes it."""
    file = entry.file
    ranges = None
    if file.deletions is not None:
        ranges = {
            one.data_file: {
                "offset": one.offset,
                "length": one.length,
                "cardinality": one.cardinality,
            }
            for one in file.deletions
        }
    return {
        "partition": entry.partition.hex(),
        "bucket": entry.bucket,
        "indexType": file.index_type,
        "fileName": file.file_name,
        "fileSize": file.file_size,
        "rowCount": file.row_count,
        "dvRanges": ranges,
        "externalPath": file.external_path,
        "globalIndexMeta": file.global_index,
    }


def sample_index_manifest(vectors: Any) -> bytes:
    files = vectors("sample_files")["files"]
    (name,) = (name for name in files if "/index-manifest-" in name)
    return base64.b64decode(files[name]["base64"])


def test_the_sample_of_a_dynamic_bucket_is_read(vectors: Any) -> None:
    (entry,) = decode_index_manifest(sample_index_manifest(vectors), "x")
    assert (entry.file.index_type, entry.file.row_count, entry.file.file_size) == ("HASH", 2, 8)
    assert entry.file.file_name == "index-7047ab64-3630-4677-86ed-dbe4d0dda938-0"
    assert (entry.file.deletions, entry.file.external_path, entry.file.global_index) == (
        None,
        None,
        None,
    )


def test_the_schema_of_index_manifests_is_that_of_java_to_the_letter(vectors: Any) -> None:
    assert vectors("avro_schemas")["index_manifest"] == INDEX_MANIFEST_SCHEMA


def test_a_broken_index_manifest_is_named(vectors: Any) -> None:
    data = sample_index_manifest(vectors)
    for broken in (b"", data[:-1], b"Obj\x01", data[:400]):
        with pytest.raises(CorruptMetadata, match="some/index-manifest"):
            decode_index_manifest(broken, "some/index-manifest")


def test_a_manifest_is_no_index_manifest(vectors: Any) -> None:
    files = vectors("sample_files")["files"]
    name = next(name for name in files if "pk_dyn/manifest/manifest-abd" in name)
    with pytest.raises((CorruptMetadata, UnknownVersion)):
        decode_index_manifest(base64.b64decode(files[name]["base64"]), "x")
