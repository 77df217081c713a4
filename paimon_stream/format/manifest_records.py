"""One record of a manifest or a manifest list as Avro bytes (format.md §4.2, §4.4).

The schemas never change, so a record is joined from ready-made pieces, which is several times faster than a
generic writer that looks for the branch of every union. `format/entry_columns.py` makes the same bytes for
many entries at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from paimon_stream.format.avro_file import zigzag
from paimon_stream.format.entries import DataFileMeta, ManifestEntry, ManifestFileMeta, SimpleStats

__all__ = ["RECORD_VERSION", "entry_bytes", "meta_bytes", "stats_bytes", "tail_bytes"]

RECORD_VERSION: Final = 2
"""The `_VERSION` of every record."""

_SMALL: Final = tuple(zigzag(number) for number in range(4096))
_NULL: Final = zigzag(0)
_VALUE: Final = zigzag(1)
_END: Final = zigzag(0)


def _long(number: int) -> bytes:
    return _SMALL[number] if 0 <= number < 4096 else zigzag(number)


def _bytes(data: bytes) -> bytes:
    return _long(len(data)) + data


def _text(text: str) -> bytes:
    return _bytes(text.encode())


def _texts(texts: Sequence[str]) -> bytes:
    if not texts:
        return _END
    return b"".join((_long(len(texts)), *map(_text, texts), _END))


def _optional_long(number: int | None) -> bytes:
    return _NULL if number is None else _VALUE + _long(number)


def _optional_bytes(data: bytes | None) -> bytes:
    return _NULL if data is None else _VALUE + _bytes(data)


def _optional_text(text: str | None) -> bytes:
    return _NULL if text is None else _VALUE + _text(text)


def _optional_texts(texts: Sequence[str] | None) -> bytes:
    return _NULL if texts is None else _VALUE + _texts(texts)


def stats_bytes(stats: SimpleStats) -> bytes:
    """The record of statistics inside another one."""
    counts = stats.null_counts
    if counts:
        nulls = b"".join((_VALUE, _long(len(counts)), *map(_optional_long, counts), _END))
    else:
        nulls = _VALUE + _END
    return _bytes(stats.min_values) + _bytes(stats.max_values) + nulls


def entry_bytes(entry: ManifestEntry) -> bytes:
    """The record of an entry."""
    file = entry.file
    return b"".join(
        (
            _SMALL[RECORD_VERSION],
            _SMALL[entry.kind],
            _bytes(entry.partition),
            _long(entry.bucket),
            _long(entry.total_buckets),
            _text(file.file_name),
            _long(file.file_size),
            _long(file.row_count),
            _bytes(file.min_key),
            _bytes(file.max_key),
            stats_bytes(file.key_stats),
            stats_bytes(file.value_stats),
            _long(file.min_sequence_number),
            _long(file.max_sequence_number),
            _long(file.schema_id),
            _long(file.level),
            _texts(file.extra_files),
            _optional_long(file.creation_time),
            tail_bytes(file),
        )
    )


def tail_bytes(file: DataFileMeta) -> bytes:
    """What stands behind the creation time of a file in its entry."""
    return b"".join(
        (
            _optional_long(file.delete_row_count),
            _optional_bytes(file.embedded_file_index),
            _optional_long(file.file_source),
            _optional_texts(file.value_stats_cols),
            _optional_text(file.external_path),
            _optional_long(file.first_row_id),
            _optional_texts(file.write_cols),
        )
    )


@lru_cache(maxsize=1024)  # a commit writes down again what the one before it did
def meta_bytes(meta: ManifestFileMeta) -> bytes:
    """The record of a manifest in a manifest list."""
    return b"".join(
        (
            _SMALL[RECORD_VERSION],
            _text(meta.file_name),
            _long(meta.file_size),
            _long(meta.num_added_files),
            _long(meta.num_deleted_files),
            stats_bytes(meta.partition_stats),
            _long(meta.schema_id),
            _optional_long(meta.min_bucket),
            _optional_long(meta.max_bucket),
            _optional_long(meta.min_level),
            _optional_long(meta.max_level),
            _optional_long(meta.min_row_id),
            _optional_long(meta.max_row_id),
        )
    )
