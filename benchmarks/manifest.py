"""Manifests of 10,000 entries: CPU time of our encoder and our reader, compared with fastavro's.

python benchmarks/manifest.py [entries]
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from typing import Any

import fastavro

from paimon_stream.format.avro_file import blocks_of, compressor
from paimon_stream.format.avro_records import read_records
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.entries import DataFileMeta, FileKind, ManifestEntry, SimpleStats
from paimon_stream.format.manifest_avro import (
    ENTRIES_PER_BLOCK,
    MANIFEST_SCHEMA,
    decode_manifest,
    encode_entries,
    manifest_of_blocks,
)
from paimon_stream.format.types import parse_type
from paimon_stream.storage.read_ahead import in_groups

TYPES = [parse_type(text) for text in ("BIGINT", "STRING", "DOUBLE", "TIMESTAMP(6)", "STRING")]
PARTITION = [parse_type("STRING")]


def encode_manifest(some: list[ManifestEntry], compression: str) -> bytes:
    """A whole manifest, as a commit writes it."""
    codec = compressor(compression, 1)
    groups = in_groups(some, ENTRIES_PER_BLOCK)
    return manifest_of_blocks([one for few in groups for one in encode_entries(few, codec)], codec)


def entries(count: int) -> list[ManifestEntry]:
    """Entries for the files of a partitioned table with statistics of five columns."""
    return [
        ManifestEntry(
            kind=FileKind.ADD,
            partition=serialize(PARTITION, [f"2024-01-{n % 28 + 1:02d}"]),
            bucket=n % 16,
            total_buckets=16,
            file=DataFileMeta(
                file_name=f"data-{n * 2654435761 % 2**64:016x}-aaaa-bbbb-cccc-{n:012d}-0.parquet",
                file_size=100_000 + n,
                row_count=5_000 + n,
                value_stats=SimpleStats(
                    min_values=serialize(TYPES, [n, f"name-{n}", 0.5 * n, n * 10**12, "a"]),
                    max_values=serialize(TYPES, [n + 7, f"name-{n + 7}", 0.7 * n, n * 10**13, "z"]),
                    null_counts=(0, n, 0, None, 3),
                ),
                min_sequence_number=n * 100,
                max_sequence_number=n * 100 + 99,
                schema_id=0,
                creation_time=1_700_000_000_000 + n,
            ),
        )
        for n in range(count)
    ]


def best(what: str, work: Callable[[], Any], count: int) -> Any:
    """Runs `work` three times, and prints the fastest time."""
    fastest = float("inf")
    for _ in range(3):
        start = time.process_time()
        made = work()
        fastest = min(fastest, time.process_time() - start)
    print(f"{what:<28} {fastest * 1000:8.1f} ms {count / fastest:12,.0f} entries/s")
    return made


def main(count: int) -> None:
    """Prints the rates."""
    some = entries(count)
    data = best("encode_manifest", lambda: encode_manifest(some, "zstd"), count)
    read = best("decode_manifest", lambda: decode_manifest(data, "x"), count)
    assert read == some
    one = some[5].partition
    of_one = best(
        "the entries of 1 of 28 parts", lambda: decode_manifest(data, "x", one.__eq__, bool), count
    )
    assert of_one == [entry for entry in some if entry.partition == one]
    best("fastavro, dicts only", lambda: list(read_records(data, "x", MANIFEST_SCHEMA, 2)), count)
    plain = encode_manifest(some, "null")
    records = list(fastavro.reader(io.BytesIO(plain)))

    def generic() -> bytes:
        out = io.BytesIO()
        fastavro.writer(out, MANIFEST_SCHEMA, records, codec="null")
        return out.getvalue()

    theirs = best("fastavro.writer, no zstd", generic, count)
    ours, other = (
        b"".join(block.data for block in blocks_of(one, "x")[1]) for one in (plain, theirs)
    )
    assert ours == other
    print(f"{len(data):,} bytes, {len(data) / count:.0f} per entry")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
