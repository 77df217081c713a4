"""Verification of what a snapshot names beside its manifests: statistics and index files."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import numpy as np

from paimon_stream.errors import CorruptMetadata, FormatError, NotFound, UnsupportedFeature
from paimon_stream.format.deletion_vectors import deleted_positions
from paimon_stream.format.entries import HASH, IndexFileMeta, IndexManifestEntry
from paimon_stream.format.index_manifest import DELETION_VECTORS as VECTORS_INDEX
from paimon_stream.format.index_manifest import decode_index_manifest
from paimon_stream.format.json_text import MOST_JSON
from paimon_stream.format.stats import schema_of_statistics
from paimon_stream.maintenance.findings import REBUILD, REBUILD_LATER, RESTORE
from paimon_stream.maintenance.verify_history import Root
from paimon_stream.maintenance.verify_manifests import Shelf
from paimon_stream.options import DELETION_VECTORS
from paimon_stream.table.hash_index import Hashes, hashes_of, in_several, read_index_file
from paimon_stream.table.layout import manifest_path, statistics_path
from paimon_stream.table.manifests import ManifestStore

_ANY_ROWS: Final = 1 << 48
"""More rows than any file has. Reading a file checks positions against its own rows."""


def check_statistics(root: Root, shelf: Shelf) -> None:
    """Checks that the statistics of a snapshot or tag can be read. Raises `StorageError`."""
    name, found = root.snapshot.statistics, shelf.found
    if name is None:
        return
    path = statistics_path(name)
    cure = "Run ANALYZE again with an engine that has it; until then plans are made without statistics."
    try:
        of_schema = schema_of_statistics(shelf.storage.read(path, MOST_JSON), path)
    except NotFound:
        root.broken(found, "statistics-missing", f"The statistics {path} are missing.", path, cure)
        return
    except CorruptMetadata as wrong:
        root.broken(found, "statistics-broken", wrong.message, path, cure)
        return
    found.checked["statistics"] += 1
    if of_schema not in shelf.schema_ids:
        text = f"The statistics {path} are of schema {of_schema}, which is missing."
        found.warning("statistics-schema", text, path, cure)
        found.needed(path, root.snapshot.id, root.tag)


def check_index(root: Root, shelf: Shelf, current: str | None) -> None:
    """Checks that a snapshot's or tag's index files exist with their sizes, and that a bucket has one hash index
    (table-kinds.md D3, D4) in `current`, the newest index manifest: only writers need it. Raises `StorageError`."""
    name, found = root.snapshot.index_manifest, shelf.found
    if name is None:
        return
    path = manifest_path(name)
    can_be_made = shelf.table.has_dynamic_buckets and not shelf.table.options.value(DELETION_VECTORS)
    cure = REBUILD if can_be_made and name == current else RESTORE
    try:
        entries = decode_index_manifest(shelf.storage.read(path), path)
    except NotFound:
        root.broken(found, "index-manifest-missing", f"{path} does not exist.", path, cure)
        return
    except (FormatError, UnsupportedFeature) as wrong:
        root.broken(found, "index-manifest-broken", f"{path} cannot be read: {wrong}", path, cure)
        return
    indexes = Counter((one.partition, one.bucket) for one in entries if one.file.index_type == HASH)
    for entry in entries:
        found.checked["index files"] += 1
        try:
            index = shelf.table.layout.index_file(entry.partition, entry.bucket, entry.file)
        except FormatError as wrong:
            text = f"{path} has an entry of a file that the table cannot have: {wrong}"
            root.broken(found, "entry-unusable", text, path, RESTORE)
            continue
        is_hash, size = entry.file.index_type == HASH, shelf.inventory.size_now(index)
        several = indexes[entry.partition, entry.bucket] if is_hash else 1
        if size is None:
            code, text = "index-file-missing", f"Index file {index} does not exist."
        elif size != entry.file.file_size:
            code, text = "index-file-size", f"Index file {index} has {size} bytes; {path} says {entry.file.file_size}."
        elif is_hash and size != 4 * entry.file.row_count:
            text = f"Hash index {index} has {size} bytes, four a hash; {path} says {entry.file.row_count} hashes."
            code = "index-file-count"
        elif several > 1:
            code, text = "index-file-twice", f"{index} is one of {several} hash indexes of its bucket in {path}."
        elif (wrong_vector := _wrong_vector(entry, index, shelf)) is not None:
            code, text = "deletion-vector-broken", wrong_vector
        else:
            continue
        if not is_hash:
            root.broken(found, code, text, index, RESTORE)
            continue
        tell, cure = (found.error, REBUILD) if name == current else (found.warning, REBUILD_LATER)
        tell(code, text, index, cure)
        found.needed(index, root.snapshot.id, root.tag)


def _wrong_vector(entry: IndexManifestEntry, path: str, shelf: Shelf) -> str | None:
    """What is wrong with the deletion vectors of an index file, each of which is read once (table-kinds.md §1.1)."""
    if entry.file.index_type != VECTORS_INDEX or path in shelf.vectors:
        return None
    shelf.vectors.add(path)
    try:
        data = shelf.storage.read(path)
        for one in entry.file.deletions or ():
            deleted_positions(data, one, _ANY_ROWS, path)
    except (CorruptMetadata, NotFound) as wrong:
        return wrong.message
    return None if entry.file.deletions is not None else f"The entry of {path} does not say where its vectors are."


def check_hash_index(newest: Root, shelf: Shelf) -> None:
    """Checks that the hash index of the newest snapshot has each bucket with files and each sampled row, and each hash
    once in its partition (table-kinds.md D1 to D3). What cannot be read, others report. Raises `StorageError`."""
    table, found, name = shelf.table, shelf.found, newest.snapshot.index_manifest
    if not table.has_dynamic_buckets:
        return
    manifests = ManifestStore(shelf.storage)
    try:
        lacking = manifests.unindexed(newest.snapshot)
        entries = () if name is None else manifests.index_entries(name)
    except (FormatError, UnsupportedFeature):
        return
    for folder in (shelf.folder(*one) for one in lacking):
        text = f"{folder} has files, and no hash index in {newest.name}: its keys would be written a second time."
        found.error("hash-index-missing", text, folder, REBUILD)
    indexes: dict[bytes, dict[int, IndexFileMeta]] = {}
    for one in entries:
        if one.file.index_type == HASH:
            indexes.setdefault(one.partition, {})[one.bucket] = one.file
    for partition, files in indexes.items():
        hashes = {}
        for bucket, file in files.items():
            with suppress(FormatError):
                hashes[bucket] = hashes_of(read_index_file(shelf.storage, table.layout, partition, bucket, file))
        _check_hashes(shelf, partition, hashes)


def _check_hashes(shelf: Shelf, partition: bytes, hashes: Mapping[int, Hashes]) -> None:
    found = shelf.found
    for bucket, one in hashes.items():
        folder = shelf.folder(partition, bucket)
        found.checked["index hashes"] += len(one)
        if len(np.unique(one)) < len(one):
            text = f"The hash index of {folder} has a hash twice, so the bucket seems to have more keys than it has."
            found.error("hash-index-repeats", text, folder, REBUILD)
        for path, keys in shelf.sampled.get((partition, bucket), ()):
            unknown = len(np.setdiff1d(keys, one))
            if unknown:
                text = f"{unknown:,} keys in {path} are not in the hash index: they would be written a second time."
                found.error("row-not-indexed", text, path, REBUILD)
    shared = in_several(hashes.values())
    if len(shared):
        buckets = sorted(bucket for bucket, one in hashes.items() if np.isin(shared, one).any())
        where = shelf.table.layout.partition(partition) or "the table"
        text = f"Buckets {buckets} of {where} have {len(shared):,} hashes in common: a key may have two rows."
        found.error("hash-index-shared", text, where, REBUILD)
