"""Index manifests: the index files of a snapshot, all listed in one file (format.md §4.6)."""

import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Final

import fastavro

from paimon_stream.format.avro_file import AvroBlock, compressor, corrupt, encode_file
from paimon_stream.format.avro_records import read_records
from paimon_stream.format.entries import DeletionRange, FileKind, GlobalIndexMeta, IndexFileMeta, IndexManifestEntry
from paimon_stream.format.manifest_schema import INDEX_MANIFEST_SCHEMA
from paimon_stream.format.unreadable import in_words

DELETION_VECTORS: Final = "DELETION_VECTORS"
"""The type of index files that record which rows of data files are deleted."""

VERSION: Final = 1
_FULL_BLOCK: Final = 1 << 20
"""The plain size in bytes at which a block ends."""

_TEXT: Final = json.dumps(INDEX_MANIFEST_SCHEMA, separators=(",", ":")).encode()
_PARSED: Final = fastavro.parse_schema(INDEX_MANIFEST_SCHEMA)


def encode_index_manifest(entries: Sequence[IndexManifestEntry], *, compression: str, level: int) -> bytes:
    """A whole index manifest. Without entries it is an Avro file without blocks. Raises `InvalidOption`."""
    codec = compressor(compression, level)
    blocks, packed, records = [], BytesIO(), 0
    for entry in entries:
        fastavro.schemaless_writer(packed, _PARSED, _record(entry))
        records += 1
        if packed.tell() >= _FULL_BLOCK:
            blocks.append(AvroBlock(records, codec.compress(packed.getvalue())))
            packed, records = BytesIO(), 0
    blocks.append(AvroBlock(records, codec.compress(packed.getvalue())))
    return encode_file(_TEXT, codec.codec, blocks)


def _record(entry: IndexManifestEntry) -> dict[str, Any]:
    file, covered = entry.file, entry.file.global_index
    return {
        "_VERSION": VERSION,
        "_KIND": int(FileKind.ADD),
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        "_INDEX_TYPE": file.index_type,
        "_FILE_NAME": file.file_name,
        "_FILE_SIZE": file.file_size,
        "_ROW_COUNT": file.row_count,
        "_DELETIONS_VECTORS_RANGES": None
        if file.deletions is None
        else [
            {"f0": one.data_file, "f1": one.offset, "f2": one.length, "_CARDINALITY": one.cardinality}
            for one in file.deletions
        ],
        "_EXTERNAL_PATH": file.external_path,
        "_GLOBAL_INDEX": None
        if covered is None
        else {
            "_ROW_RANGE_START": covered.row_range_start,
            "_ROW_RANGE_END": covered.row_range_end,
            "_INDEX_FIELD_ID": covered.index_field_id,
            "_EXTRA_FIELD_IDS": None if covered.extra_field_ids is None else list(covered.extra_field_ids),
            "_INDEX_META": covered.index_meta,
        },
    }


def decode_index_manifest(data: bytes, path: str) -> tuple[IndexManifestEntry, ...]:
    """The live index files, in the order of the file. `path` is for messages. Raises `CorruptMetadata`,
    `UnknownVersion`, and `UnsupportedFeature` for an unknown codec."""
    try:
        return tuple([_entry(one) for one in read_records(data, path, _TEXT, VERSION)])
    except (ValueError, TypeError, KeyError) as wrong:
        raise corrupt(path, len(data), f"one of its entries is not an index file: {in_words(wrong)}") from None


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
        data_file=record["f0"], offset=record["f1"], length=record["f2"], cardinality=record.get("_CARDINALITY")
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
