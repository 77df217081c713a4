"""Java Paimon works on tables, manifests and snapshots that we wrote as if they were its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import PaimonStreamError
from paimon_stream.format.entries import DataFileMeta, FileKind, ManifestEntry, ManifestFileMeta
from paimon_stream.format.snapshot_json import CommitKind, Snapshot, SnapshotId
from paimon_stream.options import Options
from paimon_stream.storage.base import PutResult
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.layout import NameSource, schema_path
from paimon_stream.table.live import live_files
from paimon_stream.table.manifests import ManifestStore, ManifestWriter
from paimon_stream.table.snapshots import SnapshotStore
from tests.kits.params import each_once

TYPES = [
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL(10, 2)",
    "DECIMAL(38, 18)",
    "CHAR(5)",
    "VARCHAR(20)",
    "STRING",
    "BINARY(4)",
    "VARBINARY(9)",
    "BYTES",
    "DATE",
    "TIME(3)",
    "TIMESTAMP(0)",
    "TIMESTAMP(6)",
    "TIMESTAMP(9)",
    "TIMESTAMP_LTZ(3)",
    "TIMESTAMP_LTZ(6)",
    "ARRAY<INT NOT NULL>",
    "MAP<STRING NOT NULL, ROW<a INT, b ARRAY<ROW<c INT>>>>",
    "ROW<a ROW<b INT, c INT NOT NULL>, d INT>",
    "MULTISET<STRING>",
    "INT NOT NULL",
    "STRING NOT NULL",
]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"partition_keys": ["c11", "c15"]},
        {"options": {"bucket": "3", "bucket-key": "c4,c11"}},
        {"primary_keys": ["c3", "c11"], "partition_keys": ["c11"], "options": {"bucket": "2"}},
        {
            "comment": 'with "quotes" and ü',
            "options": {"write-only": True, "fields.c3.stats-mode": "none"},
        },
    ],
)
def test_a_schema_of_ours_is_the_one_java_would_have_made(
    java: Any, tmp_path: Path, given: Any
) -> None:
    columns = [(f"c{i}", text) for i, text in enumerate(TYPES)]
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    PaimonTable.create(str(ours), schema=columns, **given)
    options = {key: str(value).lower() for key, value in given.get("options", {}).items()}
    java.create_table(
        theirs, columns, given.get("partition_keys", ()), given.get("primary_keys", ()), options
    )
    made, expected = java.schema(ours), java.schema(theirs)
    assert made.pop("timeMillis") > 0 and expected.pop("timeMillis") > 0
    assert made.pop("comment", "") == given.get("comment", "")
    expected.pop("comment", None)
    assert made == expected


def test_java_writes_into_a_table_of_ours(java: Any, tmp_path: Path) -> None:
    path = tmp_path / "db.db" / "t"
    made = PaimonTable.create(
        str(path),
        schema=[("id", "INT"), ("dt", "DATE"), ("note", "STRING")],
        partition_keys=["dt"],
        options={"bucket": 2, "bucket-key": "id"},
    )
    rows = [{"id": n, "dt": "2024-02-29", "note": f"n{n}"} for n in range(10)]
    java.write(path, rows, commit_user="java", commit_identifier=4)
    snapshot = made.latest_snapshot()
    assert snapshot is not None and (snapshot.commit_user, snapshot.total_record_count) == (
        "java",
        10,
    )
    files = made.files()
    assert sum(file.row_count for file in files) == 10
    assert {str(file.partition["dt"]) for file in files} == {"2024-02-29"}
    assert all(Path(file.path).is_file() for file in files)


@pytest.mark.parametrize(
    "given",
    [
        {"schema": [("a", "INT"), ("_VALUE_KIND", "INT")]},
        {"schema": [("_KEY_a", "INT")]},
        {"schema": [("a", "INT")], "partition_keys": ["b"]},
        {"schema": [("a", "INT")], "primary_keys": ["a"], "partition_keys": ["a"]},
        {"schema": [("a", "ARRAY<INT>")], "primary_keys": ["a"]},
        {"schema": [("a", "INT")], "options": {"bucket": "2"}},
        {"schema": [("a", "INT")], "options": {"bucket": "0"}},
        {"schema": [("a", "INT")], "options": {"bucket": "-2"}},
        {"schema": [("a", "INT")], "options": {"bucket-key": "a"}},
        {"schema": [("a", "INT"), ("b", "INT")], "options": {"bucket": "2", "bucket-key": "a, b"}},
        {
            "schema": [("a", "INT"), ("b", "ARRAY<INT>")],
            "options": {"bucket": "2", "bucket-key": "b"},
        },
        {
            "schema": [("a", "INT"), ("b", "INT")],
            "partition_keys": ["b"],
            "options": {"bucket": "2", "bucket-key": "b"},
        },
        {
            "schema": [("a", "INT"), ("b", "INT")],
            "primary_keys": ["a"],
            "options": {"bucket": "2", "bucket-key": "b"},
        },
    ],
)
def test_what_java_refuses_to_create_we_refuse_too(java: Any, tmp_path: Path, given: Any) -> None:
    from py4j.protocol import Py4JJavaError

    with pytest.raises(PaimonStreamError):
        PaimonTable.create(str(tmp_path / "ours"), **given)
    with pytest.raises(Py4JJavaError):
        java.create_table(
            tmp_path / "theirs",
            given["schema"],
            given.get("partition_keys", ()),
            given.get("primary_keys", ()),
            given.get("options"),
        )
    assert not (tmp_path / "ours" / schema_path(0)).exists()


# -- manifests ------------------------------------------------------------------------------------


class Rewriter:
    """Publishes snapshots of our own writing over the files that Java wrote."""

    def __init__(self, path: Path, **options: str) -> None:
        self.storage = LocalStorage(str(path))
        self.snapshots = SnapshotStore(self.storage)
        self.store = ManifestStore(self.storage)
        self.names = NameSource("11111111-2222-3333-4444-555555555555")
        table = PaimonTable.load(str(path))
        self.types = [one.type for one in table.schema.partition_fields]
        self.writer = ManifestWriter(self.storage, Options(options), self.types, table.schema.id)

    def publish(
        self, base: Iterable[ManifestEntry], delta: Iterable[ManifestEntry], with_sizes: bool = True
    ) -> Snapshot:
        latest = self.snapshots.latest()
        assert latest is not None
        lists = [self.write_list(self.writer.write(part, self.names)) for part in (base, delta)]
        snapshot = Snapshot(
            id=SnapshotId(latest.id + 1),
            schema_id=latest.schema_id,
            base_manifest_list=lists[0][0],
            base_manifest_list_size=lists[0][1] if with_sizes else None,
            delta_manifest_list=lists[1][0],
            delta_manifest_list_size=lists[1][1] if with_sizes else None,
            commit_user="ours",
            commit_identifier=1,
            commit_kind=CommitKind.APPEND,
            time_millis=latest.time_millis + 1,
            total_record_count=latest.total_record_count,
            delta_record_count=0,
            next_row_id=latest.next_row_id,
        )
        assert self.snapshots.create_snapshot(snapshot) is PutResult.CREATED
        assert self.snapshots.write_latest_hint(snapshot.id)
        return snapshot

    def write_list(self, metas: tuple[ManifestFileMeta, ...]) -> tuple[str, int]:
        name = self.names.next("manifest-list")
        return name, self.writer.write_list(name, metas)


@pytest.fixture(scope="module")
def made_by_java(java: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "db.db" / "t"
    java.create_table(
        path,
        [("id", "INT"), ("region", "STRING"), ("v", "DOUBLE")],
        ["region"],
        (),
        {"bucket": "2", "bucket-key": "id"},
    )
    for n in range(3):
        rows = [
            {"id": 100 * n + i, "region": ("a", "b", None, "x y")[i % 4], "v": i / 2}
            for i in range(20)
        ]
        java.write(path, rows, commit_identifier=n)
    return path


@pytest.fixture
def table_of_java(made_by_java: Path, tmp_path: Path) -> Path:
    """A copy of a table with three snapshots."""
    return Path(shutil.copytree(made_by_java, tmp_path / "db.db" / "t"))


@pytest.mark.parametrize(
    ("with_sizes", "compression"),
    each_once([True, False], ["zstd", "snappy", "deflate", "null"]),
)
def test_java_reads_the_same_rows_from_manifests_of_ours(
    java: Any, table_of_java: Path, compression: str, with_sizes: bool
) -> None:
    before = java.read(table_of_java)
    files = java.files(table_of_java)
    ours = Rewriter(table_of_java, **{"manifest.compression": compression})
    latest = ours.snapshots.latest()
    assert latest is not None
    entries = live_files(ours.store, ours.store.base_and_delta(latest), ours.types)
    ours.publish(entries[:5], entries[5:], with_sizes)
    assert sorted(map(str, java.read(table_of_java))) == sorted(map(str, before))
    assert java.files(table_of_java) == files
    read_back = java.manifests(table_of_java)
    assert [one["numAddedFiles"] for one in read_back] == [5, len(entries) - 5]
    assert read_back[1]["partitionStats"]["region"]["nullCount"] >= 1


def test_java_commits_and_merges_manifests_of_ours(java: Any, table_of_java: Path) -> None:
    ours = Rewriter(table_of_java)
    latest = ours.snapshots.latest()
    assert latest is not None
    entries = live_files(ours.store, ours.store.base_and_delta(latest), ours.types)
    ours.publish(entries, ())
    before = java.read(table_of_java)
    java.alter_table(table_of_java, ("set", "manifest.merge-min-count", "2"))
    java.write(table_of_java, [{"id": 1, "region": "a", "v": None}], commit_identifier=50)
    java.write(table_of_java, [{"id": 2, "region": "new", "v": None}], commit_identifier=51)
    assert len(java.read(table_of_java)) == len(before) + 2
    merged = PaimonTable.load(str(table_of_java))
    assert {file.meta.file_name for file in merged.files()} >= {
        entry.file.file_name for entry in entries
    }
    assert sum(file.row_count for file in merged.files()) == len(before) + 2


def test_java_honours_a_delete_of_ours(java: Any, table_of_java: Path) -> None:
    ours = Rewriter(table_of_java)
    latest = ours.snapshots.latest()
    assert latest is not None
    entries = live_files(ours.store, ours.store.base_and_delta(latest), ours.types)
    gone = entries[0]
    ours.publish(entries, [replace(gone, kind=FileKind.DELETE)])
    assert len(java.files(table_of_java)) == len(entries) - 1
    assert len(PaimonTable.load(str(table_of_java)).files()) == len(entries) - 1
    assert len(java.read(table_of_java)) == 60 - gone.file.row_count


def test_java_reads_all_of_several_thousand_entries(java: Any, table_of_java: Path) -> None:
    """Many blocks and several manifests. The files themselves are not read."""
    ours = Rewriter(table_of_java, **{"manifest.target-file-size": "30 kb"})
    latest = ours.snapshots.latest()
    assert latest is not None
    (model, *_) = live_files(ours.store, ours.store.base_and_delta(latest), ours.types)

    def file(n: int) -> DataFileMeta:
        return replace(
            model.file, file_name=f"data-{n * 2654435761 % 2**64:032x}-{n}.parquet", row_count=n
        )

    entries = [replace(model, file=file(n)) for n in range(5200)]
    ours.publish(entries, ())
    assert len(java.manifests(table_of_java)) > 1
    (partition,) = java._table(table_of_java).store().newScan().readPartitionEntries()
    assert (partition.fileCount(), partition.recordCount()) == (5200, sum(range(5200)))


def test_tags_of_java_are_listed(java: Any, table_of_java: Path) -> None:
    table = PaimonTable.load(str(table_of_java))
    java._table(table_of_java).createTag("v1", 2)
    java._table(table_of_java).createTag("v2.0", 3)
    tags = table.tags()
    assert {name: snapshot.id for name, snapshot in tags.items()} == {"v1": 2, "v2.0": 3}


def test_expiry_by_java_leaves_what_we_can_read(java: Any, table_of_java: Path) -> None:
    table = PaimonTable.load(str(table_of_java))
    java.expire_snapshots(table_of_java, retain_max=1)
    assert [snapshot.id for snapshot in table.snapshots()] == [3]
    store = SnapshotStore(LocalStorage(str(table_of_java)))
    assert (store.earliest_id(), store.latest_id()) == (3, 3)
    assert not store.window(0, 3).complete
    assert sum(file.row_count for file in table.files()) == 60
