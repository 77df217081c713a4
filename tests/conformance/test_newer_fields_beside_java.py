"""Java 1.4.2 reads metadata in which we have kept what a newer writer put there, and goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.format.commit_message import CommitMessage
from tests.kits.newer_fields import add_names, live_entries, read, with_sizes
from tests.kits.reading import assert_rows, java_rows
from tests.kits.seeds import seeds
from tests.property.test_unknown_fields import NewerTable


@pytest.mark.parametrize("seed", seeds(2, 20))
def test_java_reads_it_and_commits_to_it(kinds: Any, tmp_path: Path, seed: int) -> None:
    newer = NewerTable(tmp_path / "db.db/t", Random(seed), of_paimon=True)
    newer.table.compact_manifests()
    newer.table.create_branch("b", "old")
    table = PaimonTable.load(newer.table.location)
    rows = table.to_arrow()
    assert rows.num_rows == 8
    assert_rows(rows, table.schema.fields, java_rows(kinds, table))
    kinds.write(newer.location, [{"p": 1, "k": 99, "r": None}], "w", 1)
    newer.append(5)
    newer.table.compact_manifests()
    rows = table.to_arrow()
    assert rows.num_rows == 12
    assert_rows(rows, table.schema.fields, java_rows(kinds, table))


def append_with_sidecar(table: PaimonTable, number: int) -> Path:
    """Appends a row. Returns the sidecar of the new manifest, which its list names."""
    table.append(pa.table({"k": pa.array([number], pa.int32())}))
    folder = Path(table.location) / "manifest"
    snapshot = Path(table.location) / f"snapshot/snapshot-{table.latest_snapshot().id}"
    manifest_list = folder / json.loads(snapshot.read_bytes())["deltaManifestList"]
    data = manifest_list.read_bytes()
    (record,) = read(data)[1]
    sidecar = folder / f"{record['_FILE_NAME']}.avro.sidecar"
    sidecar.write_bytes(b"PMSC")
    manifest_list.write_bytes(add_names(data, (), "_EXTRA_FILES", [sidecar.name]))
    snapshot.write_bytes(with_sizes(snapshot.read_bytes(), folder))
    return sidecar


@pytest.mark.parametrize("engine", ["ours", "java"])
def test_sidecars_of_manifests_stay_when_their_snapshots_expire(
    java: Any, tmp_path: Path, engine: str
) -> None:
    table = PaimonTable.create(str(tmp_path / "db.db/t"), [("k", "INT")])
    gone = [append_with_sidecar(table, number) for number in range(3)]
    table.compact_manifests()
    used = append_with_sidecar(table, 3)
    if engine == "ours":
        table.expire_snapshots(retain_max=1, retain_min=1, older_than=2**40 * 1000)
    else:
        java.expire_snapshots(table.location, 1)
    assert len(table.snapshots()) == 1
    assert not any(path.with_name(path.name.split(".")[0]).exists() for path in gone)
    assert all(path.exists() for path in (*gone, used))
    if engine == "java":  # its orphan removal takes what is in use, too
        java.remove_orphans(table.location)
        assert not any(path.exists() for path in (*gone, used))
    assert sorted(row["k"] for row in java.read(table.location)) == [0, 1, 2, 3]
    assert table.to_arrow().num_rows == 4


@pytest.mark.parametrize("engine", ["ours", "java"])
def test_the_files_beside_a_data_file_expire_with_it(
    java: Any, tmp_path: Path, engine: str
) -> None:
    location = tmp_path / "db.db/t"
    table = PaimonTable.create(str(location), [("k", "INT")])
    table.append(pa.table({"k": pa.array([1], pa.int32())}))
    (entry,) = live_entries(location)
    data_file = location / "bucket-0" / entry.file.file_name
    copy = data_file.with_name(f"copy-of-{data_file.name}")
    copy.write_bytes(data_file.read_bytes())
    beside = data_file.with_name(f"{copy.name}.row")
    beside.write_bytes(b"rows")
    file = replace(entry.file, file_name=copy.name, extra_files=(beside.name,))
    message = CommitMessage(
        partition=entry.partition,
        bucket=entry.bucket,
        total_buckets=entry.total_buckets,
        new_files=(file,),
    )
    table.new_commit("u").commit(1, [message])
    table.truncate()
    assert beside.exists()
    if engine == "ours":
        table.expire_snapshots(retain_max=1, retain_min=1, older_than=2**40 * 1000)
    else:
        java.expire_snapshots(table.location, 1)
    assert not copy.exists() and not beside.exists()
