"""Java's fast forward, on any storage (table-kinds.md §6). tests/conformance compares it with Java."""

from __future__ import annotations

from paimon_stream.maintenance.tags import read_tags
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import branch_storage
from paimon_stream.table.layout import (
    EARLIEST_HINT,
    LATEST_HINT,
    schema_path,
    snapshot_path,
    tag_path,
)
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore


def forward_as_java(main: Storage, name: str) -> None:
    """Main's snapshots from the branch's oldest id on go, with their tags, and the schemas from that
    snapshot's on. Then the branch's files are copied. Java writes no note, and copies no journal.
    """
    branch = branch_storage(main, name)
    oldest = SnapshotStore(branch).get(SnapshotStore(branch).ids()[0])
    for snapshot_id in SnapshotStore(main).ids():
        if snapshot_id >= oldest.id:
            main.delete(snapshot_path(snapshot_id))
    for tag, tagged in read_tags(main).items():
        if tagged.id >= oldest.id:
            main.delete(tag_path(tag))
    for schema_id in SchemaStore(main).ids():
        if schema_id >= oldest.schema_id:
            main.delete(schema_path(schema_id))
    for hint in (LATEST_HINT, EARLIEST_HINT):
        main.delete(hint)
    for folder in ("snapshot", "schema", "tag"):
        for stat in branch.list_files(folder):
            main.write(stat.path, branch.read(stat.path))
