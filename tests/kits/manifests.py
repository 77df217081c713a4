"""What the tests of manifests share: a whole manifest as bytes."""

from __future__ import annotations

from collections.abc import Sequence

from paimon_stream.format.avro_file import compressor
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.manifest_avro import chunks, encode_entries, manifest_of_blocks


def encode_manifest(entries: Sequence[ManifestEntry], *, compression: str, level: int) -> bytes:
    """A whole manifest. `compression` is the value of `manifest.compression`, `level` the level of zstd."""
    codec = compressor(compression, level)
    return manifest_of_blocks([one for some in chunks(entries) for one in encode_entries(some, codec)], codec)
