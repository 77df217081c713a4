"""What the tests of manifests share: a whole manifest as bytes."""

from __future__ import annotations

from collections.abc import Sequence

from paimon_stream.format.avro_file import compressor
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.manifest_avro import ENTRIES_PER_BLOCK, encode_entries, manifest_of_blocks
from paimon_stream.storage.read_ahead import in_groups


def encode_manifest(entries: Sequence[ManifestEntry], *, compression: str, level: int) -> bytes:
    """A whole manifest. `compression` is the value of `manifest.compression`, `level` the level of
    zstd.
    """
    codec = compressor(compression, level)
    groups = in_groups(entries, ENTRIES_PER_BLOCK)
    return manifest_of_blocks(
        [one for some in groups for one in encode_entries(some, codec)], codec
    )
