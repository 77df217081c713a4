"""What pypaimon 2.1.0 puts into metadata, and this release does not know, is there for pypaimon
after we have written the metadata again (format.md §1.5).
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from paimon_stream import PaimonTable
from paimon_stream.format.commit_message import CommitMessage
from tests.kits.newer_fields import live_entries
from tests.kits.other_engines import PYTHON, require_engines

WRITE = """
import sys
import pyarrow as pa
from pypaimon import CatalogFactory, Schema
catalog = CatalogFactory.create({"warehouse": sys.argv[1]})
catalog.create_database("db", True)
columns = pa.schema([("k", pa.int64()), ("s", pa.string())])
options = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
catalog.create_table("db.t", Schema.from_pyarrow_schema(columns, options=options), False)
table = catalog.get_table("db.t")
for start in (0, 10, 20):
    builder = table.new_batch_write_builder()
    write, commit = builder.new_write(), builder.new_commit()
    rows = [{"k": k, "s": f"s{k}"} for k in range(start, start + 10)]
    write.write_arrow(pa.Table.from_pylist(rows, schema=columns))
    commit.commit(write.prepare_commit())
    write.close()
    commit.close()
"""
SEQUENCES = """
import glob, sys
import fastavro
for number, path in enumerate(sorted(glob.glob(sys.argv[1] + "/db.db/t/manifest/manifest-*"))):
    if "manifest-list" not in path:
        with open(path, "rb") as file:
            reader = fastavro.reader(file)
            schema, entries = reader.writer_schema, list(reader)
        for entry in entries:  # as a compaction of a table with data evolution has it
            entry["_FILE"]["_WRITE_COLS_SEQUENCES"] = [1, number]
        with open(path, "wb") as file:
            fastavro.writer(file, schema, entries, codec="null")  # no smaller than its list says
"""
READ = """
import json, sys
from pypaimon import CatalogFactory
from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager
table = CatalogFactory.create({"warehouse": sys.argv[1]}).get_table("db.t")
snapshots = table.snapshot_manager()
latest = snapshots.get_latest_snapshot()
manifests = ManifestListManager(table).read_all(latest)
files = [entry.file for one in manifests for entry in ManifestFileManager(table).read(one.file_name)]
builder = table.new_read_builder()
rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
tags = [table.tag_manager().get("kept").writer_version] if len(sys.argv) > 2 else []
print(json.dumps({
    "manifests": len(manifests),
    "sequences": sorted(file.write_cols_sequences or [] for file in files),
    "keys": sorted(rows["k"].to_pylist()),
    "first": snapshots.get_snapshot_by_id(1).writer_version,
    "tags": tags,
}))
"""
MESSAGE = """
import sys
import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from pypaimon.write.commit_message_serializer import serialize_commit_message
catalog = CatalogFactory.create({"warehouse": sys.argv[1]})
catalog.create_database("db", True)
columns = pa.schema([("k", pa.int64()), ("s", pa.string())])
catalog.create_table("db.t", Schema.from_pyarrow_schema(columns), False)
write = catalog.get_table("db.t").new_batch_write_builder().new_write()
write.write_arrow(pa.Table.from_pylist([{"k": 1, "s": "a"}, {"k": 2, "s": "b"}], schema=columns))
(message,) = write.prepare_commit()
message.new_files[0].write_cols_sequences = [5, -6, 2 ** 40]
print(serialize_commit_message(message, []).hex())
"""
SEQUENCES_THERE = """
import json, sys
from pypaimon import CatalogFactory
from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.write.commit_message_serializer import deserialize_commit_message
table = CatalogFactory.create({"warehouse": sys.argv[1]}).get_table("db.t")
latest = table.snapshot_manager().get_latest_snapshot()
(manifest,) = ManifestListManager(table).read_all(latest)
(entry,) = ManifestFileManager(table).read(manifest.file_name)
(file,) = deserialize_commit_message(bytes.fromhex(sys.argv[2]), []).new_files
builder = table.new_read_builder()
rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
files = [entry.file.write_cols_sequences, file.write_cols_sequences]
print(json.dumps({"files": files, "keys": sorted(rows["k"].to_pylist())}))
"""
SIDECARS = """
import sys
from pypaimon.manifest.manifest_list_manager import ManifestListManager
write_list = ManifestListManager.write
def with_sidecars(self, file_name, metas):  # as Java's writers of Paimon 2 leave them
    for meta in metas:
        if not meta.extra_files:
            meta.extra_files = [meta.file_name + ".avro.sidecar"]
            with open(f"{sys.argv[1]}/db.db/t/manifest/{meta.extra_files[0]}", "wb") as file:
                file.write(b"PMSC")
    return write_list(self, file_name, metas)
ManifestListManager.write = with_sidecars
"""
NAMED = """
import json, sys
from pypaimon import CatalogFactory
from pypaimon.manifest.manifest_list_manager import ManifestListManager
table = CatalogFactory.create({"warehouse": sys.argv[1]}).get_table("db.t")
latest = table.snapshot_manager().get_latest_snapshot()
manifests = ManifestListManager(table).read_all(latest)
print(json.dumps([name for one in manifests for name in one.extra_files or []]))
"""


def pypaimon(script: str, *arguments: str) -> str:
    """What the script prints."""
    require_engines()
    done = subprocess.run(
        [PYTHON, "-c", script, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip().rpartition("\n")[2]


def test_fields_of_its_manifests_and_snapshots_stay(tmp_path: Path) -> None:
    pypaimon(WRITE, str(tmp_path))
    pypaimon(SEQUENCES, str(tmp_path))
    before: dict[str, Any] = json.loads(pypaimon(READ, str(tmp_path)))
    assert len(before["sequences"]) == 3 and all(before["sequences"])
    table = PaimonTable.load(str(tmp_path / "db.db/t"))
    assert table.compact_manifests().manifests_after == 1
    table.create_tag("kept", 1)
    after = json.loads(pypaimon(READ, str(tmp_path), "with the tag"))
    assert before["first"] is not None
    assert after == {**before, "manifests": 1, "tags": [before["first"]]}


def test_sequences_of_its_message_go_into_the_manifest_and_back(tmp_path: Path) -> None:
    written = bytes.fromhex(pypaimon(MESSAGE, str(tmp_path)))
    message = CommitMessage.deserialize(written, 14)
    table = PaimonTable.load(str(tmp_path / "db.db/t"))
    table.new_commit("u").commit(1, [message])
    (entry,) = live_entries(tmp_path / "db.db/t")
    again = replace(message, new_files=(entry.file,)).serialize(14)
    found = json.loads(pypaimon(SEQUENCES_THERE, str(tmp_path), again.hex()))
    assert found == {"files": [[5, -6, 2**40]] * 2, "keys": [1, 2]}


def test_orphan_removal_and_expiry_keep_the_sidecars_that_its_lists_name(tmp_path: Path) -> None:
    pypaimon(SIDECARS + WRITE, str(tmp_path))
    location = tmp_path / "db.db/t"
    table = PaimonTable.load(str(location))
    named = set(json.loads(pypaimon(NAMED, str(tmp_path))))
    assert len(named) == 3
    table.expire_snapshots(1, 1)
    stray = location / "manifest/manifest-stray-0.avro.sidecar"
    stray.touch()
    for path in location.rglob("*"):
        os.utime(path, (1, 1))
    removed = set(table.remove_orphan_files(dry_run=False).paths)
    assert f"manifest/{stray.name}" in removed and not stray.exists()
    assert {path.name for path in location.glob("manifest/*.sidecar")} == named
    assert set(json.loads(pypaimon(NAMED, str(tmp_path)))) == named
    assert table.verify().healthy
