"""Index manifests: which kinds of index files a snapshot has (format.md §4.6)."""

from __future__ import annotations

from io import BytesIO
from typing import Final

import fastavro

from paimon_stream.errors import CorruptMetadata
from paimon_stream.format.avro_file import encode_file, read_file

__all__ = ["DELETION_VECTORS", "decode_index_types"]

DELETION_VECTORS: Final = "DELETION_VECTORS"
"""The type of index files that say which rows of data files are deleted."""

_BROKEN: Final = (
    EOFError, ValueError, LookupError, TypeError, OverflowError, MemoryError, AttributeError, RecursionError,
)  # fmt: skip


def decode_index_types(data: bytes, path: str) -> frozenset[str]:
    """The types of the index files listed: `HASH`, `DELETION_VECTORS`, others. `path` is for messages.

    Raises `CorruptMetadata`, `UnsupportedFeature` for an unknown codec.
    """
    file = read_file(data, path)
    plain = encode_file(file.schema.encode(), "null", file.blocks)
    try:
        return frozenset(str(record["_INDEX_TYPE"]) for record in fastavro.reader(BytesIO(plain)))
    except (*_BROKEN, fastavro.schema.SchemaParseException):
        raise CorruptMetadata(
            f"{path} is no index manifest ({len(data)} bytes). Restore the file from a backup, or roll the "
            "table back to a snapshot that does not use it.",
            path=path,
        ) from None
