"""The records of manifests and manifest lists as Avro bytes (format.md §4.2, §4.4).

The schemas never change, so a record is joined from ready-made pieces. That is several times faster than a
generic writer, which searches for the branch of every union. Parts that many entries share (the partition and
bucket, the keys, the fields at the end) are encoded once.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

from paimon_stream.format.avro_file import zigzag
from paimon_stream.format.entries import ManifestEntry, ManifestFileMeta, SimpleStats

RECORD_VERSION: Final = 2
"""The `_VERSION` of every record."""

_VERSION: Final = zigzag(RECORD_VERSION)
_NULL: Final = zigzag(0)
_VALUE: Final = zigzag(1)
_END: Final = zigzag(0)

_KEYS: Final = attrgetter("min_key", "max_key", "key_stats")
_TAIL: Final = attrgetter(
    "delete_row_count", "embedded_file_index", "file_source", "value_stats_cols", "external_path",
    "first_row_id", "write_cols",
)  # fmt: skip


def entries_bytes(entries: Iterable[ManifestEntry]) -> bytes:
    """The records of these entries, in order."""
    heads: dict[Any, bytes] = {}
    keys: dict[Any, bytes] = {}
    nulls: dict[Any, bytes] = {}
    tails: dict[Any, bytes] = {}
    made: list[bytes] = []
    for entry in entries:
        file, stats = entry.file, entry.file.value_stats
        head = entry.kind, entry.partition, entry.bucket, entry.total_buckets
        if head not in heads:
            kind, partition, bucket, total = head
            heads[head] = b"".join((_VERSION, zigzag(kind), _bytes(partition), zigzag(bucket), zigzag(total)))
        key = _KEYS(file)
        if key not in keys:
            keys[key] = _bytes(file.min_key) + _bytes(file.max_key) + _stats(file.key_stats)
        if stats.null_counts not in nulls:
            nulls[stats.null_counts] = _null_counts(stats.null_counts)
        tail = _TAIL(file)
        if tail not in tails:
            forms = zigzag, _bytes, zigzag, _texts, _text, zigzag, _texts  # of the fields of _TAIL
            tails[tail] = b"".join(map(_optional, forms, tail))
        name = file.file_name.encode()
        made += (
            heads[head], zigzag(len(name)), name, zigzag(file.file_size), zigzag(file.row_count), keys[key],
            zigzag(len(stats.min_values)), stats.min_values, zigzag(len(stats.max_values)), stats.max_values,
            nulls[stats.null_counts], zigzag(file.min_sequence_number), zigzag(file.max_sequence_number),
            zigzag(file.schema_id), zigzag(file.level), _texts(file.extra_files),
            _optional(zigzag, file.creation_time), tails[tail],
        )  # fmt: skip
    return b"".join(made)


@lru_cache(maxsize=1024)  # a commit writes again most of what the commit before it wrote
def meta_bytes(meta: ManifestFileMeta) -> bytes:
    """The record of a manifest in a manifest list."""
    counts = map(zigzag, (meta.file_size, meta.num_added_files, meta.num_deleted_files))
    head = (_VERSION, _text(meta.file_name), *counts, _stats(meta.partition_stats), zigzag(meta.schema_id))
    bounds = meta.min_bucket, meta.max_bucket, meta.min_level, meta.max_level, meta.min_row_id, meta.max_row_id
    return b"".join((*head, *(_optional(zigzag, one) for one in bounds)))


def _stats(stats: SimpleStats) -> bytes:
    return _bytes(stats.min_values) + _bytes(stats.max_values) + _null_counts(stats.null_counts)


def _null_counts(counts: Sequence[int | None]) -> bytes:
    return _VALUE + _array([_optional(zigzag, count) for count in counts])


def _optional(encode: Any, value: Any) -> bytes:
    return _NULL if value is None else _VALUE + encode(value)


def _array(items: Sequence[bytes]) -> bytes:
    return b"".join((zigzag(len(items)), *items, _END)) if items else _END


def _texts(texts: Sequence[str]) -> bytes:
    return _array([_text(text) for text in texts])


def _text(text: str) -> bytes:
    return _bytes(text.encode())


def _bytes(data: bytes) -> bytes:
    return zigzag(len(data)) + data
