"""Verification of the newest snapshot's files: levels where compactions look up older values, keys of files that
readers do not merge, and ids of row tracking. What cannot be read is reported by other checks."""

from dataclasses import replace
from itertools import chain, zip_longest

from paimon_stream.errors import FormatError, InvalidData, InvalidOption, NotFound, UnsupportedFeature
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.maintenance.findings import RESTORE, Findings
from paimon_stream.merge.spec import AGGREGATION, PARTIAL_UPDATE, MergeSpec, looks_up
from paimon_stream.options import DATA_EVOLUTION, DELETION_VECTORS, MERGE_ENGINE, ROW_TRACKING, Options
from paimon_stream.read.keyed import buckets, sections
from paimon_stream.read.rows import deleted_rows, section_batches
from paimon_stream.read.scan import plan_scan
from paimon_stream.table.live import snapshot_files
from paimon_stream.table.row_ids import ROW_ID
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table


def check_levels(table: Table, found: Findings) -> None:
    """Warns of buckets whose readers overlook values: their newer level was written before the table's compactions
    looked up older values, and an older level has values of the same keys (semantics.md §6.6). Reads the newest
    manifests again if the table's engine adds up values and its options have changed. Raises `StorageError`."""
    try:
        adds_up = table.options.value(MERGE_ENGINE) in (AGGREGATION, PARTIAL_UPDATE)
        if not (adds_up and looks_up(table.options)):
            return
        schemas, snapshot = SchemaStore(table.storage), SnapshotStore(table.storage).latest()
        plain = {id_ for id_ in schemas.ids() if not looks_up(Options(schemas.get(id_).options))}
        if snapshot is None or not plain:
            return
        files = snapshot_files(table, snapshot)
        keys = [table.schema.field(name).type for name in table.schema.trimmed_primary_keys]
        for bucket in buckets(one for one in files if one.bucket >= 0 and one.file.level > 0):
            for section in sections(bucket, keys):
                members = section.files
                lowest = max(one.file.level for one in members)
                wrong = [one for one in members if one.file.level < lowest and one.file.schema_id in plain]
                if wrong:
                    _report(table, wrong[0], lowest, found)
                    break
    except (FormatError, InvalidOption, NotFound, UnsupportedFeature):
        return


def check_live_keys(table: Table, sample: int, found: Findings) -> None:
    """Checks that no key has live rows in two files of a table with a primary key and deletion vectors, because readers
    do not merge its files (table-kinds.md §1.2). Reads the keys of up to `sample` files that may have common ones.
    Raises `StorageError`."""
    if not table.options.value(DELETION_VECTORS) or not table.schema.primary_keys:
        return
    try:
        keys = table.schema.trimmed_primary_keys
        scan = plan_scan(table, columns=keys)
        scan = replace(scan, merge=MergeSpec(table=table.location, engine="deduplicate", keys=keys, rules={}))
        types = [one.type for one in scan.columns]
        for bucket in buckets(one for one in scan.files if one.file.level > 0):
            for section in sections(bucket, types):
                some = [one for one in chain.from_iterable(zip_longest(*section.runs)) if one is not None][:sample]
                if len(some) < 2:
                    continue
                sample -= len(some)
                rows = sum(one.file.row_count for one in some) - sum(map(len, deleted_rows(scan, some)))
                merged = section_batches(scan, sections(some, types), keep_deletes=True)
                more = rows - sum(batch.num_rows for batch in merged)
                if more:
                    folder = table.layout.bucket_folder(some[0].partition, some[0].bucket)
                    text = f"{more:,} keys of {folder} have a row in several files, and readers see each of them."
                    cure = "Compact the table in full, and let only one job compact it."
                    found.error("key-twice", text, folder, cure)
    except (FormatError, InvalidData, InvalidOption, NotFound, UnsupportedFeature):
        return


def _report(table: Table, entry: ManifestEntry, lowest: int, found: Findings) -> None:
    folder, one = table.layout.bucket_folder(entry.partition, entry.bucket), entry.file
    text = (
        f"File {one.file_name} of level {one.level} in {folder} was compacted under schema {one.schema_id}. "
        f"Compactions did not look up older values then, and level {lowest} has some in the same range "
        "of keys. Readers no longer count them."
    )
    cure = (
        "Set changelog-producer, force-lookup and deletion-vectors.enabled back, compact the table in full, "
        "then set them again. A compaction before that loses the values."
    )
    found.warning("levels-without-lookup", text, f"{folder}/{one.file_name}", cure)


def check_row_ids(table: Table, found: Findings) -> None:
    """Checks that each file has ids for its rows, no two files have the same, and the next commit gives ids above them
    (table-kinds.md §5.1). Ids that a compaction has written into files are not read. With data evolution, files may
    have the same: they hold other columns of these rows. Raises `StorageError`."""
    if table.options.value(DATA_EVOLUTION) or not table.options.value(ROW_TRACKING):
        return
    try:
        snapshot = SnapshotStore(table.storage).latest()
        if snapshot is None:
            return
        files = [one.file for one in snapshot_files(table, snapshot)]
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
