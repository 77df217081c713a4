"""Encodes and decodes manifests and manifest lists as Avro (format.md §4.1–§4.4). They are written
with exactly Java's schemas. When read, fields are found by name in the file's schema, and missing
nullable fields are None. Unknown fields are kept, and are written again after Java's fields
(`format/avro_unknown.py`).
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any, Final, TypeVar

from paimon_stream.errors import InvalidData
from paimon_stream.format import entries as of_entries
from paimon_stream.format.avro_file import (
    MOST_PLAIN,
    AvroBlock,
    Compressor,
    compressor,
    corrupt,
    encode_file,
    zigzag,
)
from paimon_stream.format.avro_records import Blocks, Holds, read_rows, read_whole_records
from paimon_stream.format.avro_unknown import (
    Types,
    extended,
    joined,
    types_in_file,
    types_of,
    with_unknown,
)
from paimon_stream.format.entries import (
    DataFileMeta,
    FileKind,
    ManifestEntry,
    ManifestFileMeta,
    SimpleStats,
)
from paimon_stream.format.json_text import in_words
from paimon_stream.format.manifest_rows import PATHS
from paimon_stream.format.names import checked_name
from paimon_stream.format.unknown_fields import UnknownFields


def _array_of(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


_TYPES: Final[dict[str, Any]] = {
    "ints": _array_of("int"),
    "strings": _array_of("string"),
    "counts": _array_of(["null", "long"]),
    "millis": {"type": "long", "logicalType": "timestamp-millis"},
}


def _record(name: str, fields: str, **records: dict[str, Any]) -> dict[str, Any]:
    """The schema of a record.

    Args:
        name: the name of the record. The record of a whole file is named `record`.
        fields: names and types, such as `_BUCKET int, _LEVEL int?`. A type with `?` is nullable.
            Types are those of Avro, of `_TYPES` and of `records`.
        records: the types of fields that are records.
    """
    types = {**_TYPES, **records}
    schema: dict[str, Any] = {"type": "record", "name": name}
    if name == "record":
        schema["namespace"] = "org.apache.paimon.avro.generated"
    schema["fields"] = []
    for field, word in map(str.split, fields.split(",")):
        keyword = word.removesuffix("?")
        type_ = types.get(keyword, keyword)
        if word == keyword:
            schema["fields"].append({"name": field, "type": type_})
        else:
            schema["fields"].append({"name": field, "type": ["null", type_], "default": None})
    return schema


def _stats_record(name: str) -> dict[str, Any]:
    return _record(name, "_MIN_VALUES bytes, _MAX_VALUES bytes, _NULL_COUNTS counts?")


_FILE: Final = _record(
    "record__FILE",
    "_FILE_NAME string, _FILE_SIZE long, _ROW_COUNT long, "
    "_MIN_KEY bytes, _MAX_KEY bytes, _KEY_STATS keys, _VALUE_STATS values, "
    "_MIN_SEQUENCE_NUMBER long, _MAX_SEQUENCE_NUMBER long, _SCHEMA_ID long, _LEVEL int, "
    "_EXTRA_FILES strings, _CREATION_TIME millis?, "
    "_DELETE_ROW_COUNT long?, _EMBEDDED_FILE_INDEX bytes?, _FILE_SOURCE int?, "
    "_VALUE_STATS_COLS strings?, _EXTERNAL_PATH string?, _FIRST_ROW_ID long?, _WRITE_COLS strings?",
    keys=_stats_record("record__FILE__KEY_STATS"),
    values=_stats_record("record__FILE__VALUE_STATS"),
)

MANIFEST_SCHEMA: Final = _record(
    "record",
    "_VERSION int, _KIND int, _PARTITION bytes, _BUCKET int, _TOTAL_BUCKETS int, _FILE file",
    file=_FILE,
)
"""The schema of a manifest, as Java writes it."""

MANIFEST_LIST_SCHEMA: Final = _record(
    "record",
    "_VERSION int, _FILE_NAME string, _FILE_SIZE long, "
    "_NUM_ADDED_FILES long, _NUM_DELETED_FILES long, _PARTITION_STATS stats, _SCHEMA_ID long, "
    "_MIN_BUCKET int?, _MAX_BUCKET int?, _MIN_LEVEL int?, _MAX_LEVEL int?, "
    "_MIN_ROW_ID long?, _MAX_ROW_ID long?",
    stats=_stats_record("record__PARTITION_STATS"),
)
"""The schema of a manifest list, as Java writes it."""

_DELETIONS: Final = _record(
    "record__DELETIONS_VECTORS_RANGES", "f0 string, f1 int, f2 int, _CARDINALITY long?"
)
_GLOBAL_INDEX: Final = _record(
    "record__GLOBAL_INDEX",
    "_ROW_RANGE_START long, _ROW_RANGE_END long, _INDEX_FIELD_ID int, "
    "_EXTRA_FIELD_IDS ints?, _INDEX_META bytes?",
)

INDEX_MANIFEST_SCHEMA: Final = _record(
    "record",
    "_VERSION int, _KIND int, _PARTITION bytes, _BUCKET int, "
    "_INDEX_TYPE string, _FILE_NAME string, _FILE_SIZE long, _ROW_COUNT long, "
    "_DELETIONS_VECTORS_RANGES ranges?, _EXTERNAL_PATH string?, _GLOBAL_INDEX global_index?",
    ranges=_array_of(["null", _DELETIONS]),
    global_index=_GLOBAL_INDEX,
)
"""The schema of an index manifest, as Java writes it."""


ENTRIES_PER_BLOCK: Final = 1000
"""Entries in one Avro block. A manifest can end only with a block, and Java checks its size every
1000 entries.
"""

FULL_BLOCK: Final = 8 << 20
"""The plain size in bytes from which entries are divided among several blocks."""

_MANIFEST_JSON: Final = json.dumps(MANIFEST_SCHEMA, separators=(",", ":")).encode()
_MANIFEST_LIST_JSON: Final = json.dumps(MANIFEST_LIST_SCHEMA, separators=(",", ":")).encode()


# -- writing --------------------------------------------------------------------------------------
def divided(entries: Sequence[ManifestEntry]) -> Iterator[tuple[Sequence[ManifestEntry], Types]]:
    """Divides entries into parts, one for each manifest. There are as few parts as the unknown
    fields of the entries allow, because a manifest has one schema. Each part comes with the places
    and types of its unknown fields. Nearly always there are none.
    """
    if not any(entry.file.unknown for entry in entries):
        yield entries, ()
        return
    begin = 0
    types: Types = ()
    for position, entry in enumerate(entries):
        of_entry = types_of(entry.file.unknown)
        wider = joined((types, of_entry))
        if wider is None:
            yield entries[begin:position], types
            begin = position
        types = of_entry if wider is None else wider
    yield entries[begin:], types


def encode_entries(
    entries: Sequence[ManifestEntry], codec: Compressor, types: Types = ()
) -> list[AvroBlock]:
    """Encodes entries as compressed blocks for `manifest_of_blocks`. There is one block, or several
    if one would be larger than `FULL_BLOCK`. `types` has all unknown fields of the entries. Raises
    `InvalidData` for an entry that no reader would accept.
    """
    plain = entries_bytes(entries)
    if types:
        unknown = [entry.file.unknown for entry in entries]
        plain = with_unknown(plain, unknown, _MANIFEST_JSON, types)
    if len(plain) > FULL_BLOCK and len(entries) > 1:
        half = len(entries) // 2
        return encode_entries(entries[:half], codec, types) + encode_entries(
            entries[half:], codec, types
        )
    if len(plain) > MOST_PLAIN:
        raise InvalidData(
            f"The statistics of file {entries[0].file.file_name!r} have {len(plain):,} bytes; "
            f"a manifest holds at most {MOST_PLAIN:,} for one file. "
            "Set metadata.stats-mode to truncate(16)."
        )
    return [AvroBlock(len(entries), codec.compress(plain))]


def manifest_of_blocks(blocks: Sequence[AvroBlock], codec: Compressor, types: Types = ()) -> bytes:
    """The bytes of a manifest. `encode_entries` made its blocks, with the same compressor and the
    same unknown fields.
    """
    return encode_file(extended(_MANIFEST_JSON, types), codec.codec, blocks)


def encode_manifest_list(
    metas: Sequence[ManifestFileMeta], *, compression: str, level: int
) -> bytes:
    """The bytes of a manifest list. If there are no manifests, the list is an Avro file without
    blocks.

    Args:
        metas: the manifests.
        compression: a value of `manifest.compression`.
        level: the level of zstd.

    Raises:
        InvalidOption: Java cannot read this compression.
        UnsupportedFeature: a manifest list has no room for the unknown fields of the manifests.
    """
    codec = compressor(compression, level)
    types = types_in_file((meta.unknown for meta in metas), "its manifest lists")
    groups = [
        metas[start : start + ENTRIES_PER_BLOCK]
        for start in range(0, len(metas), ENTRIES_PER_BLOCK)
    ]
    blocks = []
    for group in groups:
        plain = b"".join(map(meta_bytes, group))
        if types:
            unknown = [meta.unknown for meta in group]
            plain = with_unknown(plain, unknown, _MANIFEST_LIST_JSON, types)
        blocks.append(AvroBlock(len(group), codec.compress(plain)))
    return encode_file(extended(_MANIFEST_LIST_JSON, types), codec.codec, blocks)


# The schemas never change, so a record is joined from ready-made pieces. A generic writer is
# several times slower, because it searches for the branch of every union. Parts that many entries
# share are encoded once.

RECORD_VERSION: Final = 2
"""The `_VERSION` of every record."""

_VERSION: Final = zigzag(RECORD_VERSION)
_NULL: Final = zigzag(0)
_VALUE: Final = zigzag(1)
_END: Final = zigzag(0)


_Value = TypeVar("_Value")


class _Encoded(dict[_Value, bytes]):
    """The encoded forms of values. A value is encoded when it is first asked for."""

    def __init__(self, encode: Callable[[_Value], bytes]) -> None:
        super().__init__()
        self._encode = encode

    def __missing__(self, value: _Value) -> bytes:
        encoded = self[value] = self._encode(value)
        return encoded


def entries_bytes(entries: Iterable[ManifestEntry]) -> bytes:
    """The bytes of some entries' records, in order, without unknown fields."""
    heads = _Encoded(_head_bytes)
    keys = _Encoded(_key_bytes)
    nulls = _Encoded(_null_counts)
    tails = _Encoded(_tail_bytes)
    numbers = _Encoded(zigzag)
    pieces: list[bytes] = []
    for entry in entries:
        file = entry.file
        low, high, null_counts = file.value_stats
        name = file.file_name.encode()
        created = file.creation_time
        pieces += (
            heads[entry.kind, entry.partition, entry.bucket, entry.total_buckets],
            numbers[len(name)],
            name,
            zigzag(file.file_size),
            zigzag(file.row_count),
            keys[file.min_key, file.max_key, file.key_stats],
            numbers[len(low)],
            low,
            numbers[len(high)],
            high,
            nulls[null_counts],
            zigzag(file.min_sequence_number),
            zigzag(file.max_sequence_number),
            numbers[file.schema_id],
            numbers[file.level],
            _texts(file.extra_files) if file.extra_files else _END,
            _NULL if created is None else _VALUE + numbers[created],
            tails[
                file.delete_row_count,
                file.embedded_file_index,
                file.file_source,
                file.value_stats_cols,
                file.external_path,
                file.first_row_id,
                file.write_cols,
            ],
        )
    return b"".join(pieces)


def _head_bytes(head: tuple[int, bytes, int, int]) -> bytes:
    """The bytes of the fields before the file: the kind, the partition, the bucket, and the bucket
    count.
    """
    kind, partition, bucket, total_buckets = head
    return b"".join(
        (_VERSION, zigzag(kind), _bytes(partition), zigzag(bucket), zigzag(total_buckets))
    )


def _key_bytes(keys: tuple[bytes, bytes, SimpleStats]) -> bytes:
    """The bytes of the smallest and the largest key, and of the statistics of the key columns."""
    low, high, stats = keys
    return _bytes(low) + _bytes(high) + _stats_bytes(stats)


def _tail_bytes(tail: tuple[Any, ...]) -> bytes:
    """The bytes of the fields after the creation time."""
    return b"".join(map(_optional, _TAIL_ENCODERS, tail))


@lru_cache(maxsize=1024)  # a commit repeats most of what the previous commit wrote
def meta_bytes(meta: ManifestFileMeta) -> bytes:
    """The bytes of a manifest's record in a manifest list, without unknown fields."""
    counts = map(zigzag, (meta.file_size, meta.num_added_files, meta.num_deleted_files))
    head = (
        _VERSION,
        _text_bytes(meta.file_name),
        *counts,
        _stats_bytes(meta.partition_stats),
        zigzag(meta.schema_id),
    )
    bounds = (
        meta.min_bucket,
        meta.max_bucket,
        meta.min_level,
        meta.max_level,
        meta.min_row_id,
        meta.max_row_id,
    )
    return b"".join((*head, *(_optional(zigzag, bound) for bound in bounds)))


def _stats_bytes(stats: SimpleStats) -> bytes:
    return _bytes(stats.min_values) + _bytes(stats.max_values) + _null_counts(stats.null_counts)


def _null_counts(counts: Sequence[int | None]) -> bytes:
    return _VALUE + _array([_optional(zigzag, count) for count in counts])


def _optional(encode: Callable[[Any], bytes], value: Any) -> bytes:
    return _NULL if value is None else _VALUE + encode(value)


def _array(items: Sequence[bytes]) -> bytes:
    return b"".join((zigzag(len(items)), *items, _END)) if items else _END


def _texts(texts: Sequence[str]) -> bytes:
    return _array(list(map(_text_bytes, texts)))


def _text_bytes(value: str) -> bytes:
    return _bytes(value.encode())


def _bytes(data: bytes) -> bytes:
    return zigzag(len(data)) + data


# The encoders of the fields after the creation time.
_TAIL_ENCODERS: Final[tuple[Callable[[Any], bytes], ...]] = (
    zigzag,
    _bytes,
    zigzag,
    _texts,
    _text_bytes,
    zigzag,
    _texts,
)


# -- reading --------------------------------------------------------------------------------------
_MOST_DIFFERENT: Final = 256 << 20
_DIFFERENT_PER_BYTE: Final = 512
"""The different long values of a manifest have at most `_MOST_DIFFERENT` bytes, and
`_DIFFERENT_PER_BYTE` more for each byte of the manifest.
"""

_LONG: Final = 128
"""The most bytes of a text, or of bytes, that is not shared between entries."""

_WORD: Final = 8
_KNOWN: Final = len(PATHS)
_KINDS: Final = {int(kind): kind for kind in FileKind}

_META: Final = {
    attribute.name: f"_{attribute.name.upper()}"
    for attribute in fields(ManifestFileMeta)
    if attribute.name not in ("partition_stats", "unknown")
}
"""The fields of a manifest list, by the attribute that takes their value."""


def decode_manifest(
    data: bytes, path: str, holds: Holds = None, of_interest: Blocks = None
) -> list[ManifestEntry]:
    """The wanted entries of a manifest, in order. Other entries are read only as far as necessary
    to find the next one.

    Args:
        data: the bytes of the manifest.
        path: the manifest, for messages.
        holds: says of a partition whether its entries are wanted. None: all are wanted.
        of_interest: says of a block whether it is decoded. None: all blocks are decoded.

    Raises:
        CorruptMetadata: the manifest cannot be read.
        UnknownVersion: an entry has a version that is not supported.
        UnsupportedFeature: the codec is unknown.
    """
    shared = _Shared(len(data))
    try:
        rows = _rows(data, path, wants=holds, of_interest=of_interest)
        return [_entry(row, shared) for row in rows]
    except (ValueError, TypeError) as error:
        raise corrupt(
            path, len(data), f"one of its entries cannot be read: {in_words(error)}"
        ) from None


def read_manifest(
    data: bytes, path: str, paths: tuple[str, ...], of_interest: Blocks = None
) -> Iterator[tuple[Any, ...]]:
    """Values of each entry of a manifest, in order. Only one block is in memory at a time.

    Args:
        data: the bytes of the manifest.
        path: the manifest, for messages.
        paths: the paths of the values: two or more of `PATHS`, such as `_FILE._LEVEL`.
        of_interest: says of a block whether it is decoded. None: all blocks are decoded.

    Raises what `decode_manifest` raises, while the rows are iterated.
    """
    values_at = itemgetter(*map(PATHS.index, paths))
    return map(values_at, _rows(data, path, of_interest=of_interest))


_rows: Final = partial(read_rows, wanted=_MANIFEST_JSON, version=RECORD_VERSION)


def decode_manifest_list(data: bytes, path: str) -> list[ManifestFileMeta]:
    """The manifests that a manifest list names, in order. `path` is for messages. Raises
    `UnknownVersion`, `UnsupportedFeature` for an unknown codec, and `CorruptMetadata`, also for a
    name that no file can have.
    """
    try:
        records = read_whole_records(data, path, _MANIFEST_LIST_JSON, RECORD_VERSION)
        metas = [_meta(record, unknown) for record, unknown in records]
    except (ValueError, TypeError) as error:
        raise corrupt(
            path, len(data), f"one of its entries cannot be read: {in_words(error)}"
        ) from None
    for meta in metas:
        checked_name(meta.file_name, path)  # raises for a wrong name
    if len({meta.file_name for meta in metas}) < len(metas):
        raise corrupt(
            path, len(data), "it names a manifest twice, so the manifest's files would count twice"
        )
    return metas


class _Shared(dict[Any, Any]):
    """Holds each value once that several entries have. The bytes of different values are limited,
    because values that compress well take many times more memory than the file has bytes. `size` is
    the number of bytes of the file.
    """

    def __init__(self, size: int) -> None:
        self._remaining = _MOST_DIFFERENT + _DIFFERENT_PER_BYTE * size

    def once(self, value: Any, size: int) -> Any:
        """The value, or an equal value that was met before. `size` is the number of its bytes.
        Raises `ValueError` if there are too many different values.
        """
        earlier = self.get(value)
        if earlier is not None:
            return earlier
        self._remaining -= size
        if self._remaining < 0:
            raise ValueError("it has more different values than a file of its size can hold")
        self[value] = value
        return value


def _tuple(items: Sequence[Any], shared: _Shared) -> tuple[Any, ...]:
    """The items as a tuple. Equal tuples are one object."""
    values: tuple[Any, ...] = shared.once(tuple(items), _WORD * len(items))
    return values


def _text(value: Any, shared: _Shared) -> Any:
    """A text or bytes. If an equal long value was met before, that one is returned."""
    return shared.once(value, len(value)) if len(value) > _LONG else value


def _stats(
    low: bytes, high: bytes, counts: Sequence[int | None] | None, shared: _Shared
) -> SimpleStats:
    if not counts and low == high == of_entries.EMPTY_ROW:
        return of_entries.EMPTY_STATS
    null_counts = _tuple(counts, shared) if counts else ()
    return SimpleStats(_text(low, shared), _text(high, shared), null_counts)


def _entry(row: tuple[Any, ...], shared: _Shared) -> ManifestEntry:
    """The entry made from the values at `PATHS`. The row may have unknown fields after these
    values.
    """
    unknown: UnknownFields = ()
    if len(row) > _KNOWN:
        unknown = row[-1]
        row = row[:-1]
        unknown = shared.once(unknown, sum([len(field.data) for field in unknown]))
    partition, kind, bucket, total_buckets, *of_file = row
    return ManifestEntry(
        kind=_KINDS[kind] if kind in _KINDS else FileKind(kind),
        partition=shared.once(partition, len(partition)),
        bucket=bucket,
        total_buckets=total_buckets,
        file=_file(of_file, unknown, shared),
    )


def _file(values: Sequence[Any], unknown: UnknownFields, shared: _Shared) -> DataFileMeta:
    """The file made from the values at `PATHS`, without the values that belong to its entry."""
    (
        name,
        size,
        row_count,
        min_key,
        max_key,
        key_low,
        key_high,
        key_null_counts,
        low,
        high,
        null_counts,
        min_sequence_number,
        max_sequence_number,
        schema_id,
        level,
        extra_files,
        creation_time,
        delete_row_count,
        embedded_index,
        source,
        stats_columns,
        external_path,
        first_row_id,
        write_columns,
    ) = values
    return DataFileMeta(
        file_name=_text(name, shared),
        file_size=size,
        row_count=row_count,
        min_key=_text(min_key, shared),
        max_key=_text(max_key, shared),
        key_stats=_stats(key_low, key_high, key_null_counts, shared),
        value_stats=_stats(low, high, null_counts, shared),
        min_sequence_number=min_sequence_number,
        max_sequence_number=max_sequence_number,
        schema_id=schema_id,
        level=level,
        extra_files=_tuple(extra_files, shared) if extra_files else (),
        creation_time=creation_time,
        delete_row_count=delete_row_count,
        embedded_file_index=embedded_index and _text(embedded_index, shared),
        file_source=source,
        value_stats_cols=None if stats_columns is None else _tuple(stats_columns, shared),
        external_path=external_path and _text(external_path, shared),
        first_row_id=first_row_id,
        write_cols=None if write_columns is None else _tuple(write_columns, shared),
        unknown=unknown,
    )


def _meta(record: Mapping[str, Any], unknown: UnknownFields) -> ManifestFileMeta:
    stats = record["_PARTITION_STATS"]
    partition_stats = SimpleStats(
        min_values=stats["_MIN_VALUES"],
        max_values=stats["_MAX_VALUES"],
        null_counts=tuple(stats.get("_NULL_COUNTS") or ()),
    )
    values: dict[str, Any] = {attribute: record.get(field) for attribute, field in _META.items()}
    return ManifestFileMeta(**values, partition_stats=partition_stats, unknown=unknown)
