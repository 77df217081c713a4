"""Manifests and manifest lists: encoding entries as Avro and decoding them (format.md §4.1–§4.4).

Files carry exactly the schemas that Java writes. When a file is read, fields are found by name in the schema
of the file: unknown fields are skipped, missing nullable fields read as None.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, Final, TypeVar

from paimon_stream.errors import InvalidData
from paimon_stream.format.avro_file import MOST_PLAIN, AvroBlock, Compressor, compressor, corrupt, encode_file
from paimon_stream.format.avro_records import read_records, read_rows
from paimon_stream.format.entries import (
    EMPTY_ROW,
    EMPTY_STATS,
    DataFileMeta,
    FileKind,
    ManifestEntry,
    ManifestFileMeta,
    SimpleStats,
)
from paimon_stream.format.json_text import in_words
from paimon_stream.format.manifest_records import RECORD_VERSION, entries_bytes, meta_bytes
from paimon_stream.format.manifest_rows import PATHS, read_entries
from paimon_stream.format.manifest_schema import MANIFEST_LIST_SCHEMA, MANIFEST_SCHEMA
from paimon_stream.format.names import checked_name

T = TypeVar("T")

ENTRIES_PER_BLOCK: Final = 1000
"""Entries in one Avro block. Java checks the size of a manifest after every 1000 entries, so a manifest can
end only where a block ends."""

FULL_BLOCK: Final = 8 << 20
"""The plain size in bytes from which entries are divided among several blocks."""

_MANIFEST_TEXT: Final = json.dumps(MANIFEST_SCHEMA, separators=(",", ":")).encode()
_MANIFEST_LIST_TEXT: Final = json.dumps(MANIFEST_LIST_SCHEMA, separators=(",", ":")).encode()

# -- writing --------------------------------------------------------------------------------------


def encode_entries(entries: Sequence[ManifestEntry], codec: Compressor) -> list[AvroBlock]:
    """Compressed blocks of these entries, as `manifest_of_blocks` takes them: one, or several if it would be
    larger than `FULL_BLOCK`. Raises `InvalidData` for an entry that no reader would accept."""
    plain = entries_bytes(entries)
    if len(plain) > FULL_BLOCK and len(entries) > 1:
        half = len(entries) // 2
        return encode_entries(entries[:half], codec) + encode_entries(entries[half:], codec)
    if len(plain) > MOST_PLAIN:
        raise InvalidData(
            f"The statistics of file {entries[0].file.file_name!r} have {len(plain):,} bytes; a manifest "
            f"holds at most {MOST_PLAIN:,} for one file. Set metadata.stats-mode to truncate(16)."
        )
    return [AvroBlock(len(entries), codec.compress(plain))]


def manifest_of_blocks(blocks: Sequence[AvroBlock], codec: Compressor) -> bytes:
    """A whole manifest from blocks that `encode_entries` made with the same compressor."""
    return encode_file(_MANIFEST_TEXT, codec.codec, blocks)


def encode_manifest_list(metas: Sequence[ManifestFileMeta], *, compression: str, level: int) -> bytes:
    """A whole manifest list. Without manifests it is an Avro file without blocks. Raises `InvalidOption`."""
    codec = compressor(compression, level)
    blocks = [AvroBlock(len(some), codec.compress(b"".join(map(meta_bytes, some)))) for some in chunks(metas)]
    return encode_file(_MANIFEST_LIST_TEXT, codec.codec, blocks)


def chunks(items: Iterable[T]) -> Iterator[list[T]]:
    """The items in lists of as many as a block of a manifest holds."""
    left = iter(items)
    while some := list(islice(left, ENTRIES_PER_BLOCK)):
        yield some


# -- reading --------------------------------------------------------------------------------------


_MOST_DIFFERENT: Final = 256 << 20
_DIFFERENT_PER_BYTE: Final = 512
_LONG: Final = 128
_WORD: Final = 8
_KINDS: Final = {int(kind): kind for kind in FileKind}


def decode_manifest(data: bytes, path: str) -> list[ManifestEntry]:
    """The entries of a manifest, in order. `path` is for messages. Raises `CorruptMetadata`, `UnknownVersion`, and
    `UnsupportedFeature` for an unknown codec."""
    return _entries(data, path, _rows(data, path))


def decode_entries_of(
    data: bytes, path: str, holds: Callable[[bytes], bool], of_interest: Callable[[bytes], bool]
) -> list[ManifestEntry]:
    """The entries of a manifest whose partition `holds`, in order. A block is decoded only if its
    uncompressed bytes are `of_interest`. Other entries are read only as far as is needed to find the next
    one. Raises what `decode_manifest` raises."""
    return _entries(data, path, _rows(data, path, holds, lambda block: of_interest(block.data)))


def _entries(data: bytes, path: str, rows: Iterator[tuple[Any, ...]]) -> list[ManifestEntry]:
    shared = _Shared(len(data))
    try:
        return [_entry(row, shared) for row in rows]
    except (ValueError, TypeError) as wrong:
        raise corrupt(path, len(data), f"one of its entries cannot be read: {in_words(wrong)}") from None


def read_manifest(
    data: bytes, path: str, paths: tuple[str, ...], of_interest: Callable[[AvroBlock], bool] | None = None
) -> Iterator[tuple[Any, ...]]:
    """The values at these paths (two or more, such as `_FILE._LEVEL`) of each entry, in order, one block at a time.
    Blocks that are not `of_interest` are skipped. Raises what `decode_manifest` raises, while the rows are iterated."""
    return map(itemgetter(*map(PATHS.index, paths)), _rows(data, path, None, of_interest))


def _rows(
    data: bytes,
    path: str,
    wants: Callable[[bytes], bool] | None = None,
    of_interest: Callable[[AvroBlock], bool] | None = None,
) -> Iterator[tuple[Any, ...]]:
    return read_rows(
        data, path, _MANIFEST_TEXT, RECORD_VERSION, PATHS, read_entries, wants=wants, of_interest=of_interest
    )


def decode_manifest_list(data: bytes, path: str) -> list[ManifestFileMeta]:
    """The manifests that a manifest list names, in order. `path` is for messages. Raises `CorruptMetadata`, also for a
    name that no file can have, `UnknownVersion`, and `UnsupportedFeature` for an unknown codec."""
    try:
        metas = [_meta(record) for record in read_records(data, path, _MANIFEST_LIST_TEXT, RECORD_VERSION)]
    except (ValueError, TypeError) as wrong:
        raise corrupt(path, len(data), f"one of its entries cannot be read: {in_words(wrong)}") from None
    for meta in metas:
        checked_name(meta.file_name, path)
    if len({meta.file_name for meta in metas}) < len(metas):
        raise corrupt(path, len(data), "it names a manifest twice, so the manifest's files would count twice")
    return metas


class _Shared(dict[Any, Any]):
    """Values that several entries have, each kept once. The bytes of different long values in a manifest of
    `size` bytes are limited, because values that compress well take many times more memory than bytes."""

    def __init__(self, size: int) -> None:
        self.left = _MOST_DIFFERENT + _DIFFERENT_PER_BYTE * size

    def once(self, value: Any, size: int) -> Any:
        """The value, or an equal one that is there already."""
        found = self.get(value)
        if found is None:
            self.left -= size
            if self.left < 0:
                raise ValueError("it has more different values than a file of its size can hold")
            found = self[value] = value
        return found


def _tuple(items: Sequence[Any] | None, shared: _Shared) -> tuple[Any, ...] | None:
    return None if items is None else shared.once(tuple(items), _WORD * len(items))


def _text(value: Any, shared: _Shared) -> Any:
    """A text or bytes."""
    return shared.once(value, len(value)) if len(value) > _LONG else value


def _stats(low: bytes, high: bytes, counts: Sequence[int | None] | None, shared: _Shared) -> SimpleStats:
    if not counts and low == high == EMPTY_ROW:
        return EMPTY_STATS
    return SimpleStats(
        min_values=_text(low, shared), max_values=_text(high, shared), null_counts=_tuple(counts, shared) or ()
    )


def _entry(row: tuple[Any, ...], shared: _Shared) -> ManifestEntry:
    """The entry made from the values at `PATHS`."""
    (
        partition, kind, bucket, total_buckets, name, size, rows, min_key, max_key, key_low, key_high,
        key_nulls, low, high, nulls, first, last, schema_id, level, extra, created, deletes, embedded,
        source, columns, external, row_id, written,
    ) = row  # fmt: skip
    return ManifestEntry(
        kind=_KINDS[kind] if kind in _KINDS else FileKind(kind),
        partition=shared.once(partition, len(partition)),
        bucket=bucket,
        total_buckets=total_buckets,
        file=DataFileMeta(
            file_name=_text(name, shared),
            file_size=size,
            row_count=rows,
            min_key=_text(min_key, shared),
            max_key=_text(max_key, shared),
            key_stats=_stats(key_low, key_high, key_nulls, shared),
            value_stats=_stats(low, high, nulls, shared),
            min_sequence_number=first,
            max_sequence_number=last,
            schema_id=schema_id,
            level=level,
            extra_files=_tuple(extra, shared) or (),
            creation_time=created,
            delete_row_count=deletes,
            embedded_file_index=embedded and _text(embedded, shared),
            file_source=source,
            value_stats_cols=_tuple(columns, shared),
            external_path=external and _text(external, shared),
            first_row_id=row_id,
            write_cols=_tuple(written, shared),
        ),
    )


def _meta(record: Mapping[str, Any]) -> ManifestFileMeta:
    get, stats = record.get, record["_PARTITION_STATS"]
    return ManifestFileMeta(
        file_name=record["_FILE_NAME"],
        file_size=record["_FILE_SIZE"],
        num_added_files=record["_NUM_ADDED_FILES"],
        num_deleted_files=record["_NUM_DELETED_FILES"],
        partition_stats=SimpleStats(
            min_values=stats["_MIN_VALUES"],
            max_values=stats["_MAX_VALUES"],
            null_counts=tuple(stats.get("_NULL_COUNTS") or ()),
        ),
        schema_id=record["_SCHEMA_ID"],
        min_bucket=get("_MIN_BUCKET"),
        max_bucket=get("_MAX_BUCKET"),
        min_level=get("_MIN_LEVEL"),
        max_level=get("_MAX_LEVEL"),
        min_row_id=get("_MIN_ROW_ID"),
        max_row_id=get("_MAX_ROW_ID"),
    )
