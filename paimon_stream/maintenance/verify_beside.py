"""Verification of what a snapshot names beside its manifests: statistics and index files."""

from __future__ import annotations

from paimon_stream.errors import CorruptMetadata, FormatError, NotFound, UnsupportedFeature
from paimon_stream.format.index_manifest import decode_index_manifest
from paimon_stream.format.json_text import MOST_JSON
from paimon_stream.format.stats import schema_of_statistics
from paimon_stream.maintenance.findings import RESTORE
from paimon_stream.maintenance.verify_history import Root
from paimon_stream.maintenance.verify_manifests import Shelf
from paimon_stream.table.layout import manifest_path, statistics_path


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


def check_index(root: Root, shelf: Shelf) -> None:
    """Checks that the index files of a snapshot or tag exist with their sizes. Raises `StorageError`."""
    name, found = root.snapshot.index_manifest, shelf.found
    if name is None:
        return
    path = manifest_path(name)
    try:
        entries = decode_index_manifest(shelf.storage.read(path), path)
    except NotFound:
        root.broken(found, "index-manifest-missing", f"{path} does not exist.", path, RESTORE)
        return
    except (FormatError, UnsupportedFeature) as wrong:
        root.broken(found, "index-manifest-broken", f"{path} cannot be read: {wrong}", path, RESTORE)
        return
    for entry in entries:
        found.checked["index files"] += 1
        if entry.file.external_path is not None:
            continue
        try:
            index = shelf.table.layout.index_file(entry.partition, entry.bucket, entry.file)
        except FormatError as wrong:
            text = f"{path} has an entry of a file that the table cannot have: {wrong}"
            root.broken(found, "entry-unusable", text, path, RESTORE)
            continue
        size = shelf.inventory.size_now(index)
        if size is None:
            text = f"Index file {index} does not exist."
            root.broken(found, "index-file-missing", text, index, RESTORE)
        elif size != entry.file.file_size:
            text = f"Index file {index} has {size} bytes; {path} says {entry.file.file_size}."
            root.broken(found, "index-file-size", text, index, RESTORE)
