"""Verification of the ids that row tracking gives to rows (table-kinds.md §5.1)."""

from paimon_stream.errors import FormatError, NotFound, UnsupportedFeature
from paimon_stream.maintenance.findings import RESTORE, Findings
from paimon_stream.options import DATA_EVOLUTION, ROW_TRACKING
from paimon_stream.table.live import live_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.row_ids import ROW_ID
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table


def check_row_ids(table: Table, found: Findings) -> None:
    """Checks the files of the newest snapshot: each has ids for its rows, no two files have the same, and the next
    commit gives ids above them. Ids that a compaction has written into files are not read. With data evolution, files
    for other columns of the same rows have the same ids, so nothing is checked. What cannot be read is told by other
    checks. Raises `StorageError`."""
    if table.options.value(DATA_EVOLUTION) or not table.options.value(ROW_TRACKING):
        return
    try:
        snapshot = SnapshotStore(table.storage).latest()
        if snapshot is None:
            return
        manifests = ManifestStore(table.storage)
        files = [one.file for one in live_files(manifests, manifests.base_and_delta(snapshot), table.partition_types)]
    except (FormatError, NotFound, UnsupportedFeature):
        return
    end, before = 0, ""
    for one in sorted(files, key=lambda one: one.first_row_id or 0):
        first = one.first_row_id
        if first is not None:
            if first < end:
                text = f"Rows of {one.file_name} have the ids of rows of {before}, from {first} on."
                found.error("row-ids-twice", text, one.file_name, RESTORE)
            end, before = max(end, first + one.row_count), one.file_name
        elif ROW_ID not in (one.write_cols or ()):
            text = f"The rows of {one.file_name} have no ids, although row-tracking.enabled is true."
            cure = "Overwrite its partition with the rows that it has now."
            found.error("row-ids-missing", text, one.file_name, cure)
    if end > (snapshot.next_row_id or 0):
        text = f"Snapshot {snapshot.id} gives new rows ids from {snapshot.next_row_id} on; {end - 1} is in use."
        found.error("row-ids-used", text, f"snapshot/snapshot-{snapshot.id}", RESTORE)
