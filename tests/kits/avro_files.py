"""Whole Avro files, decompressed."""

from __future__ import annotations

from typing import NamedTuple

from paimon_stream.format.avro_file import AvroBlock, blocks_of


class AvroFile(NamedTuple):
    """The content of a file: the text of its writer schema, and its decompressed blocks."""

    schema: str
    blocks: tuple[AvroBlock, ...]


def read_file(data: bytes, path: str) -> AvroFile:
    """The whole file. Raises what `blocks_of` raises."""
    schema, blocks = blocks_of(data, path)
    return AvroFile(schema, tuple(blocks))
