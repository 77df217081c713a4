"""Index manifests: the index files of a snapshot, all listed in one file (format.md §4.6)."""

import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Final

import fastavro

from paimon_stream.format.avro_file import AvroBlock, compressor, corrupt, encode_file
from paimon_stream.format.avro_records import read_records
from paimon_stream.format.entries import FileKind, IndexManifestEntry
from paimon_stream.format.file_rows import index_file_of, index_values
from paimon_stream.format.json_text import in_words
from paimon_stream.format.manifest_avro import INDEX_MANIFEST_SCHEMA

DELETION_VECTORS: Final = "DELETION_VECTORS"
"""The type of index files that record which rows of data files are deleted."""

VERSION: Final = 1
_FULL_BLOCK: Final = 1 << 20
"""The plain size in bytes at which a block ends."""

_TEXT: Final = json.dumps(INDEX_MANIFEST_SCHEMA, separators=(",", ":")).encode()
_PARSED: Final = fastavro.parse_schema(INDEX_MANIFEST_SCHEMA)

# The fields of an index file, of a `DeletionRange` and of a `GlobalIndexMeta`, in the order of
# their values.
_FILE: Final = (
    "_INDEX_TYPE",
    "_FILE_NAME",
    "_FILE_SIZE",
    "_ROW_COUNT",
    "_DELETIONS_VECTORS_RANGES",
    "_EXTERNAL_PATH",
    "_GLOBAL_INDEX",
)
_RANGE: Final = ("f0", "f1", "f2", "_CARDINALITY")
_COVERED: Final = (
    "_ROW_RANGE_START",
    "_ROW_RANGE_END",
    "_INDEX_FIELD_ID",
    "_EXTRA_FIELD_IDS",
    "_INDEX_META",
)


def encode_index_manifest(
    entries: Sequence[IndexManifestEntry], *, compression: str, level: int
) -> bytes:
    """A whole index manifest. Without entries it is an Avro file without blocks. Raises
    `InvalidOption`.
    """
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
    *values, deletions, path, covered = index_values(entry.file)
    ranges = (
        None if deletions is None else [dict(zip(_RANGE, one, strict=True)) for one in deletions]
    )
    # fastavro takes only lists as arrays.
    lists = covered and [list(one) if isinstance(one, tuple) else one for one in covered]
    index = covered and dict(zip(_COVERED, lists, strict=True))
    where = {
        "_VERSION": VERSION,
        "_KIND": int(FileKind.ADD),
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
    }
    return where | dict(zip(_FILE, (*values, ranges, path, index), strict=True))


def decode_index_manifest(data: bytes, path: str) -> tuple[IndexManifestEntry, ...]:
    """The live index files, in the order of the file. `path` is for messages. Raises
    `CorruptMetadata`, `UnknownVersion`, and `UnsupportedFeature` for an unknown codec.
    """
    try:
        return tuple([_entry(one) for one in read_records(data, path, _TEXT, VERSION)])
    except (ValueError, TypeError, KeyError) as wrong:
        raise corrupt(
            path, len(data), f"one of its entries is not an index file: {in_words(wrong)}"
        ) from None


def _entry(record: Mapping[str, Any]) -> IndexManifestEntry:
    if record["_KIND"] != FileKind.ADD:
        raise ValueError(f"kind {record['_KIND']}")
    kind, name, size, rows, deletions, path, covered = map(record.get, _FILE)
    ranges = None if deletions is None else [one and [*map(one.get, _RANGE)] for one in deletions]
    index = None if covered is None else [*map(covered.get, _COVERED)]
    file = index_file_of(kind, name, size, rows, ranges, path, index)
    return IndexManifestEntry(partition=record["_PARTITION"], bucket=record["_BUCKET"], file=file)
