"""What pypaimon 2.1.0 puts into metadata, and this release does not know, is there for pypaimon
after we have written the metadata again (format.md §1.5).
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from paimon_stream import PaimonTable
from tests.conformance.test_other_readers import READERS

WRITE = """
import glob, sys
import fastavro, pyarrow as pa
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
for number, path in enumerate(sorted(glob.glob(sys.argv[1] + "/db.db/t/manifest/manifest-*"))):
    if "manifest-list" not in path:
        with open(path, "rb") as file:
            reader = fastavro.reader(file)
            schema, codec, entries = reader.writer_schema, reader.codec, list(reader)
        for entry in entries:  # as a compaction of a table with data evolution has it
            entry["_FILE"]["_WRITE_COLS_SEQUENCES"] = [1, number]
        with open(path, "wb") as file:
            fastavro.writer(file, schema, entries, codec=codec)
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


def pypaimon(script: str, *arguments: str) -> str:
    """What the script prints."""
    if not READERS.exists():
        pytest.skip("other readers have a venv of their own: make .venv-readers/.ready")
    done = subprocess.run(
        [READERS, "-c", script, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip().rpartition("\n")[2]


def test_fields_of_its_manifests_and_snapshots_stay(tmp_path: Path) -> None:
    pypaimon(WRITE, str(tmp_path))
    before: dict[str, Any] = json.loads(pypaimon(READ, str(tmp_path)))
    assert len(before["sequences"]) == 3 and all(before["sequences"])
    table = PaimonTable.load(str(tmp_path / "db.db/t"))
    assert table.compact_manifests().manifests_after == 1
    table.create_tag("kept", 1)
    after = json.loads(pypaimon(READ, str(tmp_path), "with the tag"))
    assert before["first"] is not None
    assert after == {**before, "manifests": 1, "tags": [before["first"]]}
