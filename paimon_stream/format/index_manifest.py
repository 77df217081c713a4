"""Encodes and decodes index manifests. An index manifest lists all index files of a snapshot
(format.md §4.6).
"""

import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Final

import fastavro

from paimon_stream.format.avro_file import AvroBlock, compressor, corrupt, encode_file, zigzag
from paimon_stream.format.avro_records import read_whole_records
from paimon_stream.format.avro_unknown import extended, types_in_file, with_unknown
from paimon_stream.format.entries import FileKind, IndexManifestEntry
from paimon_stream.format.file_rows import index_file_of, index_values
from paimon_stream.format.json_text import in_words
from paimon_stream.format.manifest_avro import INDEX_MANIFEST_SCHEMA
from paimon_stream.format.unknown_fields import UnknownField, UnknownFields

DELETION_VECTORS: Final = "DELETION_VECTORS"
"""The type of index files that record which rows of data files are deleted."""

VERSION: Final = 1
_FULL_BLOCK: Final = 1 << 20
"""The plain size in bytes at which a block ends."""

_SCHEMA_JSON: Final = json.dumps(INDEX_MANIFEST_SCHEMA, separators=(",", ":")).encode()
_PARSED_SCHEMA: Final = fastavro.parse_schema(INDEX_MANIFEST_SCHEMA)

_SOURCE_META: Final = ("_GLOBAL_INDEX", "_SOURCE_META")
_TYPE_OF_SOURCE_META: Final = '["null", "bytes"]'
_READ_AS: Final = extended(_SCHEMA_JSON, ((_SOURCE_META, _TYPE_OF_SOURCE_META),))
"""The known fields. Java has `_SOURCE_META` since 2.0. It is written only if an index has a value
for it.
"""

# The fields of an index file, of a `DeletionRange` and of a `GlobalIndexMeta`, in the order of
# their values.
_FILE_FIELDS: Final = (
    "_INDEX_TYPE",
    "_FILE_NAME",
    "_FILE_SIZE",
    "_ROW_COUNT",
    "_DELETIONS_VECTORS_RANGES",
    "_EXTERNAL_PATH",
    "_GLOBAL_INDEX",
)
_RANGE_FIELDS: Final = ("f0", "f1", "f2", "_CARDINALITY")
_GLOBAL_INDEX_FIELDS: Final = (
    "_ROW_RANGE_START",
    "_ROW_RANGE_END",
    "_INDEX_FIELD_ID",
    "_EXTRA_FIELD_IDS",
    "_INDEX_META",
    "_SOURCE_META",
)


def encode_index_manifest(
    entries: Sequence[IndexManifestEntry], *, compression: str, level: int
) -> bytes:
    """The bytes of an index manifest. If there are no entries, the manifest is an Avro file without
    blocks.

    Args:
        entries: the live index files.
        compression: a value of `manifest.compression`.
        level: the level of zstd.

    Raises:
        InvalidOption: Java cannot read this compression.
        UnsupportedFeature: an index manifest has no room for the unknown fields of the entries.
    """
    codec = compressor(compression, level)
    types = types_in_file(map(_newer, entries), "its index manifests")
    blocks: list[AvroBlock] = []
    plain = BytesIO()
    newer: list[UnknownFields] = []

    def end_block() -> None:
        records = plain.getvalue()
        if types:
            records = with_unknown(records, newer, _SCHEMA_JSON, types)
        blocks.append(AvroBlock(len(newer), codec.compress(records)))

    for entry in entries:
        fastavro.schemaless_writer(plain, _PARSED_SCHEMA, _record(entry))
        newer.append(_newer(entry))
        if plain.tell() >= _FULL_BLOCK:
            end_block()
            plain = BytesIO()
            newer = []
    end_block()
    return encode_file(extended(_SCHEMA_JSON, types), codec.codec, blocks)


def _newer(entry: IndexManifestEntry) -> UnknownFields:
    """The fields of an entry that Paimon 1.4.2 does not have: its unknown fields, and the source
    metadata of a global index.
    """
    index = entry.file.global_index
    if index is None or index.source_meta is None:
        return entry.unknown
    data = zigzag(1) + zigzag(len(index.source_meta)) + index.source_meta
    return (UnknownField(_SOURCE_META, _TYPE_OF_SOURCE_META, data), *entry.unknown)


def _record(entry: IndexManifestEntry) -> dict[str, Any]:
    """The entry in the form that fastavro expects."""
    *values, deletions, path, global_index = index_values(entry.file)
    ranges: list[dict[str, Any]] | None = None
    if deletions is not None:
        ranges = [dict(zip(_RANGE_FIELDS, place, strict=True)) for place in deletions]
    index: dict[str, Any] | None = None
    if global_index is not None:
        # The last field, the source metadata, is not among these values (`_newer`).
        index = dict(zip(_GLOBAL_INDEX_FIELDS[:-1], map(_as_avro, global_index), strict=True))
    return {
        "_VERSION": VERSION,
        "_KIND": int(FileKind.ADD),
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        **dict(zip(_FILE_FIELDS, (*values, ranges, path, index), strict=True)),
    }


def _as_avro(value: Any) -> Any:
    """The value in the form that fastavro expects, in which arrays are lists."""
    return list(value) if isinstance(value, tuple) else value


def decode_index_manifest(data: bytes, path: str) -> tuple[IndexManifestEntry, ...]:
    """The live index files, in the order of the file. `path` is for messages. Raises
    `CorruptMetadata`, `UnknownVersion`, and `UnsupportedFeature` for an unknown codec.
    """
    try:
        records = read_whole_records(data, path, _READ_AS, VERSION)
        return tuple([_entry(record, unknown) for record, unknown in records])
    except (ValueError, TypeError, KeyError) as error:
        raise corrupt(
            path, len(data), f"one of its entries is not an index file: {in_words(error)}"
        ) from None


def _entry(record: Mapping[str, Any], unknown: UnknownFields) -> IndexManifestEntry:
    if record["_KIND"] != FileKind.ADD:
        raise ValueError(f"kind {record['_KIND']}")
    index_type, name, size, rows, deletions, path, global_index = map(record.get, _FILE_FIELDS)
    ranges: list[list[Any] | None] | None = None
    if deletions is not None:
        ranges = [_values_of_range(place) for place in deletions]
    index: list[Any] | None = None
    if global_index is not None:
        index = [*map(global_index.get, _GLOBAL_INDEX_FIELDS)]
    file = index_file_of(index_type, name, size, rows, ranges, path, index)
    return IndexManifestEntry(
        partition=record["_PARTITION"], bucket=record["_BUCKET"], file=file, unknown=unknown
    )


def _values_of_range(record: Mapping[str, Any] | None) -> list[Any] | None:
    """The values of a `DeletionRange`. None for NULL, which the caller accepts or refuses."""
    return None if record is None else [*map(record.get, _RANGE_FIELDS)]
