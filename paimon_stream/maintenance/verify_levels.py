"""Verification of the levels of tables whose compactions look up older values."""

from paimon_stream.errors import FormatError, InvalidOption, NotFound, UnsupportedFeature
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.maintenance.findings import Findings
from paimon_stream.merge.spec import AGGREGATION, PARTIAL_UPDATE, looks_up
from paimon_stream.options import MERGE_ENGINE, Options
from paimon_stream.read.keyed import buckets, sections
from paimon_stream.table.live import live_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_spec import PartitionFilter
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table


def check_levels(table: Table, found: Findings) -> None:
    """Warns of buckets whose readers overlook values: their newer level was written before the table's
    compactions looked up older values, and an older level has values of the same keys (semantics.md §6.6).

    Reads the manifests of the newest snapshot again if the table's engine adds up values and its options have
    changed. What cannot be read is reported by other checks. Raises `StorageError`.
    """
    try:
        adds_up = table.options.value(MERGE_ENGINE) in (AGGREGATION, PARTIAL_UPDATE)
        if not (adds_up and looks_up(table.options)):
            return
        schemas, snapshot = SchemaStore(table.storage), SnapshotStore(table.storage).latest()
        plain = {id_ for id_ in schemas.ids() if not looks_up(Options(schemas.get(id_).options))}
        if snapshot is None or not plain:
            return
        manifests, types = ManifestStore(table.storage), table.partition_types
        files = live_files(manifests, manifests.base_and_delta(snapshot), types, PartitionFilter(types))
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
