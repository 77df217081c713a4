"""Verification of the newest snapshot's files. It checks the levels in which compactions look up
older values. It checks the keys of tables whose files readers do not merge. It checks the ids of
row tracking. This module also verifies the statistics and index files that a snapshot names besides
its manifests. Files that cannot be read are reported by other checks.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, zip_longest
from typing import Final

import numpy as np

from paimon_stream.errors import (
    CorruptMetadata,
    FormatError,
    InvalidData,
    InvalidOption,
    NotFound,
    UnsupportedFeature,
)
from paimon_stream.format.deletion_vectors import deleted_positions
from paimon_stream.format.entries import HASH, IndexFileMeta, IndexManifestEntry, ManifestEntry
from paimon_stream.format.index_manifest import DELETION_VECTORS as VECTORS_INDEX
from paimon_stream.format.index_manifest import decode_index_manifest
from paimon_stream.format.json_text import MOST_JSON
from paimon_stream.format.stats import schema_of_statistics
from paimon_stream.merge.spec import AGGREGATION, PARTIAL_UPDATE, MergeSpec, needs_lookup
from paimon_stream.options import (
    DATA_EVOLUTION,
    DELETION_VECTORS,
    MERGE_ENGINE,
    ROW_TRACKING,
    Options,
)
from paimon_stream.read.merged import buckets, sections
from paimon_stream.read.rows import deleted_rows, section_batches
from paimon_stream.read.scan import plan_scan
from paimon_stream.table.hash_index import Hashes, hashes_of, in_several, read_index_file
from paimon_stream.table.layout import manifest_path, statistics_path
from paimon_stream.table.live import snapshot_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.row_ids import ROW_ID
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table
from paimon_stream.verify.findings import REBUILD, REBUILD_LATER, RESTORE, Findings
from paimon_stream.verify.history import CheckedRoot
from paimon_stream.verify.manifests import CheckedTable
from paimon_stream.verify.sample import Sampled


def check_newest(table: Table, sample: int, findings: Findings) -> None:
    """Checks levels, the keys of up to `sample` files, and the ids of rows. Raises `InvalidOption`,
    `StorageError`.
    """
    for option in (DELETION_VECTORS, DATA_EVOLUTION, ROW_TRACKING):
        table.options.value(option)  # raises for a wrong value, which the checks would pass over
    checks: tuple[Callable[..., None], ...] = (
        _check_levels,
        partial(_check_live_keys, sample=sample),
        _check_row_ids,
    )
    for check in checks:
        # Files that cannot be read are reported by other checks.
        with suppress(FormatError, InvalidData, InvalidOption, NotFound, UnsupportedFeature):
            check(table, findings)


def _check_levels(table: Table, findings: Findings) -> None:
    """Warns of buckets whose readers overlook values. In such a bucket, a newer level was written
    before the table's compactions looked up older values, and an older level has values of the same
    keys (semantics.md §6.6). Reads the newest manifests again if the table's engine adds up values
    and its options have changed. Raises `StorageError`.
    """
    adds_up = table.options.value(MERGE_ENGINE) in (AGGREGATION, PARTIAL_UPDATE)
    if not (adds_up and needs_lookup(table.options)):
        return
    schemas = SchemaStore(table.storage)
    snapshot = SnapshotStore(table.storage).latest()
    without_lookup = {
        schema_id
        for schema_id in schemas.ids()
        if not needs_lookup(Options(schemas.get(schema_id).options))
    }
    if snapshot is None or not without_lookup:
        return
    files = snapshot_files(table, snapshot)
    keys = [table.schema.field(name).type for name in table.schema.trimmed_primary_keys]
    for bucket in buckets(entry for entry in files if entry.bucket >= 0 and entry.file.level > 0):
        for section in sections(bucket, keys):
            members = section.files
            oldest_level = max(entry.file.level for entry in members)
            wrong = [
                entry
                for entry in members
                if entry.file.level < oldest_level and entry.file.schema_id in without_lookup
            ]
            if wrong:
                _report_level(table, wrong[0], oldest_level, findings)
                break


def _check_live_keys(table: Table, findings: Findings, sample: int) -> None:
    """Checks that no key has live rows in two files of a table with a primary key and deletion
    vectors, because readers do not merge its files (table-kinds.md §1.2). Reads the keys of up to
    `sample` files that may have common keys. Raises `StorageError`.
    """
    if not table.options.value(DELETION_VECTORS) or not table.schema.primary_keys:
        return
    keys = table.schema.trimmed_primary_keys
    scan = plan_scan(table, columns=keys)
    scan = replace(
        scan, merge=MergeSpec(table=table.location, engine="deduplicate", keys=keys, rules={})
    )
    types = [column.type for column in scan.columns]
    for bucket in buckets(entry for entry in scan.files if entry.file.level > 0):
        for section in sections(bucket, types):
            # Each run gives one file in turn, because files of one run have no key in common.
            compared = [
                entry
                for entry in chain.from_iterable(zip_longest(*section.runs))
                if entry is not None
            ][:sample]
            if len(compared) < 2:
                continue
            sample -= len(compared)
            rows = sum(entry.file.row_count for entry in compared)
            rows -= sum(map(len, deleted_rows(scan, compared)))
            merged = section_batches(scan, sections(compared, types), keep_deletes=True)
            repeated = rows - sum(batch.num_rows for batch in merged)
            if repeated:
                folder = table.layout.bucket_folder(compared[0].partition, compared[0].bucket)
                findings.error(
                    "key-twice",
                    f"{repeated:,} keys of {folder} have a row in several files, and readers "
                    "see each of them.",
                    folder,
                    "Compact the table in full, and let only one job compact it.",
                )


def _report_level(
    table: Table, entry: ManifestEntry, oldest_level: int, findings: Findings
) -> None:
    """Warns of a file of a newer level that was compacted without looking up values on
    `oldest_level`.
    """
    folder = table.layout.bucket_folder(entry.partition, entry.bucket)
    file = entry.file
    findings.warning(
        "levels-without-lookup",
        f"File {file.file_name} of level {file.level} in {folder} was compacted under "
        f"schema {file.schema_id}. Compactions did not look up older values then, and level "
        f"{oldest_level} has some in the same range of keys. Readers no longer count them.",
        f"{folder}/{file.file_name}",
        "Set changelog-producer, force-lookup and deletion-vectors.enabled back, compact "
        "the table in full, then set them again. A compaction before that loses the values.",
    )


def _check_row_ids(table: Table, findings: Findings) -> None:
    """Checks the ids of rows: each file has ids for its rows, no two files share an id, and the
    next commit gives higher ids (table-kinds.md §5.1). Ids that a compaction has written into files
    are not read. With data evolution, several files may have the same ids, because they hold
    different columns of the same rows. Raises `StorageError`.
    """
    if table.options.value(DATA_EVOLUTION) or not table.options.value(ROW_TRACKING):
        return
    snapshot = SnapshotStore(table.storage).latest()
    if snapshot is None:
        return
    files = [entry.file for entry in snapshot_files(table, snapshot)]
    end = 0
    before = ""
    for file in sorted(files, key=lambda file: file.first_row_id or 0):
        first = file.first_row_id
        if first is not None:
            if first < end:
                findings.error(
                    "row-ids-twice",
                    f"Rows of {file.file_name} have the ids of rows of {before}, from {first} on.",
                    file.file_name,
                    RESTORE,
                )
            end = max(end, first + file.row_count)
            before = file.file_name
        elif ROW_ID not in (file.write_cols or ()):
            findings.error(
                "row-ids-missing",
                f"The rows of {file.file_name} have no ids, although row-tracking.enabled is true.",
                file.file_name,
                "Overwrite its partition with the rows that it has now.",
            )
    if end > (snapshot.next_row_id or 0):
        findings.error(
            "row-ids-used",
            f"Snapshot {snapshot.id} gives new rows ids from {snapshot.next_row_id} on; "
            f"{end - 1} is in use.",
            f"snapshot/snapshot-{snapshot.id}",
            RESTORE,
        )


_ANALYZE: Final = (
    "Run ANALYZE again with an engine that has it; until then plans are made without statistics."
)
_ANY_ROWS: Final = 1 << 48
"""More rows than any file has. Reading a file checks positions against its own rows."""


def check_statistics(root: CheckedRoot, checked: CheckedTable) -> None:
    """Checks that the statistics of a snapshot or tag can be read. Raises `StorageError`."""
    name = root.snapshot.statistics
    findings = checked.findings
    if name is None:
        return
    path = statistics_path(name)
    try:
        of_schema = schema_of_statistics(checked.storage.read(path, MOST_JSON), path)
    except NotFound:
        root.broken(
            findings, "statistics-missing", f"The statistics {path} are missing.", path, _ANALYZE
        )
        return
    except CorruptMetadata as error:
        root.broken(findings, "statistics-broken", error.message, path, _ANALYZE)
        return
    findings.checked["statistics"] += 1
    if of_schema not in checked.schema_ids:
        findings.warning(
            "statistics-schema",
            f"The statistics {path} are of schema {of_schema}, which is missing.",
            path,
            _ANALYZE,
        )
        findings.needed(path, root.snapshot.id, root.tag)


def check_index(root: CheckedRoot, checked: CheckedTable, current: str | None) -> None:
    """Checks that the index files of a snapshot or tag exist with the right sizes. Also checks that
    a bucket has only one hash index (table-kinds.md D3, D4) in `current`. `current` is the newest
    index manifest; only writers need its hash indexes. Raises `StorageError`.
    """
    name = root.snapshot.index_manifest
    findings = checked.findings
    if name is None:
        return
    path = manifest_path(name)
    entries = _index_entries(root, checked, path, is_current=name == current)
    indexes = Counter(
        (entry.partition, entry.bucket) for entry in entries if entry.file.index_type == HASH
    )
    for entry in entries:
        findings.checked["index files"] += 1
        try:
            index = checked.table.layout.index_file(entry.partition, entry.bucket, entry.file)
        except FormatError as error:
            root.broken(
                findings,
                "entry-unusable",
                f"{path} has an entry of a file that the table cannot have: {error}",
                path,
                RESTORE,
            )
            continue
        problem = _wrong_index_file(
            entry, index, path, indexes[entry.partition, entry.bucket], checked
        )
        if problem is None:
            continue
        code, message = problem
        if entry.file.index_type != HASH:
            root.broken(findings, code, message, index, RESTORE)
            continue
        if name == current:
            findings.error(code, message, index, REBUILD)
        else:
            findings.warning(code, message, index, REBUILD_LATER)
        findings.needed(index, root.snapshot.id, root.tag)


def _index_entries(
    root: CheckedRoot, checked: CheckedTable, path: str, *, is_current: bool
) -> tuple[IndexManifestEntry, ...]:
    """The entries of the index manifest in a file. If the index manifest cannot be read, adds a
    finding and returns no entries. Only the index of the newest snapshot can be rebuilt.
    `is_current` says whether this is the index of the newest snapshot.
    """
    table = checked.table
    repair = RESTORE
    if is_current and table.has_dynamic_buckets and not table.options.value(DELETION_VECTORS):
        repair = REBUILD
    try:
        return tuple(decode_index_manifest(checked.storage.read(path), path))
    except NotFound:
        root.broken(
            checked.findings, "index-manifest-missing", f"{path} does not exist.", path, repair
        )
    except (FormatError, UnsupportedFeature) as error:
        root.broken(
            checked.findings,
            "index-manifest-broken",
            f"{path} cannot be read: {error}",
            path,
            repair,
        )
    return ()


def _wrong_index_file(
    entry: IndexManifestEntry, index: str, manifest: str, hash_indexes: int, checked: CheckedTable
) -> tuple[str, str] | None:
    """The code and the message of what is wrong with an index file; None if nothing is.

    Args:
        entry: of the index file.
        index: the path of the index file.
        manifest: the path of the index manifest that has the entry.
        hash_indexes: how many hash indexes that manifest has for the bucket.
        checked: has the files of the table.
    """
    is_hash = entry.file.index_type == HASH
    size = checked.inventory.size_now(index)
    if size is None:
        return "index-file-missing", f"Index file {index} does not exist."
    if size != entry.file.file_size:
        return (
            "index-file-size",
            f"Index file {index} has {size} bytes; {manifest} says {entry.file.file_size}.",
        )
    if is_hash and size != 4 * entry.file.row_count:
        return (
            "index-file-count",
            f"Hash index {index} has {size} bytes, four a hash; {manifest} says "
            f"{entry.file.row_count} hashes.",
        )
    if is_hash and hash_indexes > 1:
        return (
            "index-file-twice",
            f"{index} is one of {hash_indexes} hash indexes of its bucket in {manifest}.",
        )
    wrong_vector = _wrong_vector(entry, index, checked)
    if wrong_vector is None:
        return None
    return "deletion-vector-broken", wrong_vector


def _wrong_vector(entry: IndexManifestEntry, path: str, checked: CheckedTable) -> str | None:
    """The problem of an index file's deletion vectors. Each vector is read once (table-kinds.md
    §1.1).
    """
    if entry.file.index_type != VECTORS_INDEX or path in checked.vectors:
        return None
    checked.vectors.add(path)
    try:
        data = checked.storage.read(path)
        for vector in entry.file.deletions or ():
            deleted_positions(data, vector, _ANY_ROWS, path)  # raises if it is broken
    except (CorruptMetadata, NotFound) as error:
        return error.message
    if entry.file.deletions is None:
        return f"The entry of {path} does not say where its vectors are."
    return None


def check_hash_index(newest: CheckedRoot, checked: CheckedTable, sampled: Sampled) -> None:
    """Checks that the hash index of the newest snapshot has each bucket that has files, and each
    sampled row. Also checks that each hash occurs only once in its partition (table-kinds.md D1 to
    D3). Files that cannot be read are reported by other checks. Raises `StorageError`.

    Args:
        newest: the newest snapshot.
        checked: the checked table, which has the folders and collects the findings.
        sampled: the files that were read in full.
    """
    table = checked.table
    findings = checked.findings
    name = newest.snapshot.index_manifest
    if not table.has_dynamic_buckets:
        return
    manifests = ManifestStore(checked.storage)
    try:
        lacking = manifests.unindexed(newest.snapshot)
        entries = () if name is None else manifests.index_entries(name)
    except (FormatError, UnsupportedFeature):
        return
    for folder in (checked.folders.of(*bucket) for bucket in lacking):
        findings.error(
            "hash-index-missing",
            f"{folder} has files, and no hash index in {newest.name}: its keys would be "
            "written a second time.",
            folder,
            REBUILD,
        )
    indexes: dict[bytes, dict[int, IndexFileMeta]] = {}
    for entry in entries:
        if entry.file.index_type == HASH:
            indexes.setdefault(entry.partition, {})[entry.bucket] = entry.file
    for partition, files in indexes.items():
        hashes = {}
        for bucket, file in files.items():
            with suppress(FormatError):
                hashes[bucket] = hashes_of(
                    read_index_file(checked.storage, table.layout, partition, bucket, file)
                )
        _check_hashes(checked, partition, hashes, sampled)


def _check_hashes(
    checked: CheckedTable, partition: bytes, hashes: Mapping[int, Hashes], sampled: Sampled
) -> None:
    """Checks the hash indexes of a partition. `hashes` has the hashes of each bucket's index."""
    findings = checked.findings
    for bucket, hashes_of_bucket in hashes.items():
        folder = checked.folders.of(partition, bucket)
        findings.checked["index hashes"] += len(hashes_of_bucket)
        if len(np.unique(hashes_of_bucket)) < len(hashes_of_bucket):
            findings.error(
                "hash-index-repeats",
                f"The hash index of {folder} has a hash twice, so the bucket seems to have "
                "more keys than it has.",
                folder,
                REBUILD,
            )
        for file in sampled.get((partition, bucket), ()):
            unknown = len(np.setdiff1d(file.hashes, hashes_of_bucket))
            if unknown:
                findings.error(
                    "row-not-indexed",
                    f"{unknown:,} keys in {file.path} are not in the hash index: they would be "
                    "written a second time.",
                    file.path,
                    REBUILD,
                )
    shared = in_several(hashes.values())
    if len(shared):
        buckets = sorted(
            bucket
            for bucket, hashes_of_bucket in hashes.items()
            if np.isin(shared, hashes_of_bucket).any()
        )
        where = checked.table.layout.partition(partition) or "the table"
        findings.error(
            "hash-index-shared",
            f"Buckets {buckets} of {where} have {len(shared):,} hashes in common: a key may "
            "have two rows.",
            where,
            REBUILD,
        )
