"""What the tests of manifests share: a whole manifest as bytes."""

from __future__ import annotations

from collections.abc import Sequence

from paimon_stream.format.avro_file import compressor
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.manifest_avro import ENTRIES_PER_BLOCK, encode_entries, manifest_of_blocks


def encode_manifest(entries: Sequence[ManifestEntry], *, compression: str, level: int) -> bytes:
    """A whole manifest. `compression` is the value of `manifest.compression`, `level` the level of zstd."""
    codec = compressor(compression, level)
    starts = range(0, len(entries), ENTRIES_PER_BLOCK)
    blocks = [encode_entries(entries[one : one + ENTRIES_PER_BLOCK], codec) for one in starts]
    return manifest_of_blocks(blocks, codec)
