"""Index manifests: which index files a snapshot has (format.md §4.6). One file lists them all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from paimon_stream.format.avro_records import corrupt, read_records
from paimon_stream.format.entries import (
    DeletionRange,
    FileKind,
    GlobalIndexMeta,
    IndexFileMeta,
    IndexManifestEntry,
)
from paimon_stream.format.manifest_schema import INDEX_MANIFEST_SCHEMA

__all__ = ["DELETION_VECTORS", "HASH", "decode_index_manifest"]

HASH: Final = "HASH"
"""The type of index files that hold the hashes of a dynamic bucket's keys."""

DELETION_VECTORS: Final = "DELETION_VECTORS"
"""The type of index files that say which rows of data files are deleted."""

VERSION: Final = 1


def decode_index_manifest(data: bytes, path: str) -> tuple[IndexManifestEntry, ...]:
    """The live index files, in order. `path` is for messages.

    Raises `CorruptMetadata`, `UnknownVersion`, and `UnsupportedFeature` for an unknown codec.
    """
    try:
        return tuple([_entry(one) for one in read_records(data, path, INDEX_MANIFEST_SCHEMA, VERSION)])
    except (ValueError, TypeError, KeyError) as wrong:
        raise corrupt(path, len(data), f"it holds an entry that is none ({wrong!r})") from None


def _entry(record: Mapping[str, Any]) -> IndexManifestEntry:
    if record["_KIND"] != FileKind.ADD:
        raise ValueError(f"kind {record['_KIND']}")
    deletions, covered = record.get("_DELETIONS_VECTORS_RANGES"), record.get("_GLOBAL_INDEX")
    return IndexManifestEntry(
        partition=record["_PARTITION"],
        bucket=record["_BUCKET"],
        file=IndexFileMeta(
            index_type=record["_INDEX_TYPE"],
            file_name=record["_FILE_NAME"],
            file_size=record["_FILE_SIZE"],
            row_count=record["_ROW_COUNT"],
            deletions=None if deletions is None else tuple(map(_deletion_range, deletions)),
            external_path=record.get("_EXTERNAL_PATH"),
            global_index=None if covered is None else _global_index(covered),
        ),
    )


def _deletion_range(record: Mapping[str, Any]) -> DeletionRange:
    return DeletionRange(
        data_file=record["f0"],
        offset=record["f1"],
        length=record["f2"],
        cardinality=record.get("_CARDINALITY"),
    )


def _global_index(record: Mapping[str, Any]) -> GlobalIndexMeta:
    extra = record.get("_EXTRA_FIELD_IDS")
    return GlobalIndexMeta(
        row_range_start=record["_ROW_RANGE_START"],
        row_range_end=record["_ROW_RANGE_END"],
        index_field_id=record["_INDEX_FIELD_ID"],
        extra_field_ids=None if extra is None else tuple(extra),
        index_meta=record.get("_INDEX_META"),
        source_meta=record.get("_SOURCE_META"),
    )
