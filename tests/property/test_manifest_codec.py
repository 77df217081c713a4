"""Manifests: what goes in comes out, and no bytes of any kind raise anything but our errors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paimon_stream.errors import FormatError, UnsupportedFeature
from paimon_stream.format.entries import (
    DataFileMeta,
    FileKind,
    ManifestEntry,
    ManifestFileMeta,
    SimpleStats,
)
from paimon_stream.format.manifest_avro import (
    decode_manifest,
    decode_manifest_list,
    encode_manifest_list,
    entries_bytes,
)
from paimon_stream.format.names import wrong_with
from tests.kits.manifests import encode_manifest
from tests.kits.seeds import examples

pytestmark = pytest.mark.lowest

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
BYTES = st.binary(max_size=40)
TEXT = st.text(max_size=20)
NAMES = TEXT.filter(lambda text: wrong_with(text) is None)
TEXTS = st.lists(TEXT, max_size=4).map(tuple)
STATS = st.builds(
    SimpleStats,
    min_values=BYTES,
    max_values=BYTES,
    null_counts=st.lists(st.none() | LONG, max_size=5).map(tuple),
)
FILES = st.builds(
    DataFileMeta,
    file_name=NAMES,
    file_size=LONG,
    row_count=LONG,
    min_key=BYTES,
    max_key=BYTES,
    key_stats=STATS,
    value_stats=STATS,
    min_sequence_number=LONG,
    max_sequence_number=LONG,
    schema_id=LONG,
    level=INT,
    extra_files=st.lists(NAMES, max_size=4).map(tuple),
    creation_time=st.none() | LONG,
    delete_row_count=st.none() | LONG,
    embedded_file_index=st.none() | BYTES,
    file_source=st.none() | INT,
    value_stats_cols=st.none() | TEXTS,
    external_path=st.none() | TEXT,
    first_row_id=st.none() | LONG,
    write_cols=st.none() | TEXTS,
)
ENTRIES = st.builds(
    ManifestEntry,
    kind=st.sampled_from(FileKind),
    partition=BYTES,
    bucket=INT,
    total_buckets=INT,
    file=FILES,
)
METAS = st.builds(
    ManifestFileMeta,
    file_name=NAMES,
    file_size=LONG,
    num_added_files=LONG,
    num_deleted_files=LONG,
    partition_stats=STATS,
    schema_id=LONG,
    min_bucket=st.none() | INT,
    max_bucket=st.none() | INT,
    min_level=st.none() | INT,
    max_level=st.none() | INT,
    min_row_id=st.none() | LONG,
    max_row_id=st.none() | LONG,
)
COMPRESSIONS = st.sampled_from(["zstd", "snappy", "deflate", "bzip2", "xz", "null"])
QUIET = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@QUIET
@given(st.lists(ENTRIES, max_size=5), COMPRESSIONS)
def test_a_manifest_comes_back_as_it_was(entries: list[ManifestEntry], compression: str) -> None:
    assert (
        decode_manifest(encode_manifest(entries, compression=compression, level=1), "x") == entries
    )


@QUIET
@given(st.lists(ENTRIES, min_size=1, max_size=3), st.integers(2, 6))
def test_entries_of_any_shapes_are_encoded_together_as_one_by_one(
    entries: list[ManifestEntry], count: int
) -> None:
    many = [entries[number % len(entries)] for number in range(count)]
    assert entries_bytes(many) == b"".join(entries_bytes([one]) for one in many)


@QUIET
@given(
    ENTRIES,
    st.lists(st.tuples(LONG, LONG, INT, LONG, st.binary(max_size=9), TEXT), min_size=2, max_size=8),
    st.integers(0, 3),
)
def test_entries_of_one_shape_are_encoded_together_as_one_by_one(
    like: ManifestEntry, varied: list[tuple[int, int, int, int, bytes, str]], width: int
) -> None:
    many = []
    for size, created, bucket, nulls, low, name in varied:
        stats = SimpleStats(
            min_values=low, max_values=low[::-1], null_counts=(0, nulls, nulls)[:width]
        )
        file = replace(
            like.file,
            file_size=size,
            creation_time=created,
            value_stats=stats,
            file_name=name,
            extra_files=(),
        )
        many.append(replace(like, bucket=bucket, file=file))
    assert entries_bytes(many) == b"".join(entries_bytes([one]) for one in many)


@QUIET
@given(st.lists(METAS, max_size=5, unique_by=lambda one: one.file_name), COMPRESSIONS)
def test_a_manifest_list_comes_back_as_it_was(
    metas: list[ManifestFileMeta], compression: str
) -> None:
    assert (
        decode_manifest_list(encode_manifest_list(metas, compression=compression, level=1), "x")
        == metas
    )


@settings(
    deadline=None, max_examples=examples(60, 4000), suppress_health_check=[HealthCheck.too_slow]
)
@given(
    st.lists(ENTRIES, min_size=1, max_size=3),
    st.sampled_from(["null", "zstd", "snappy"]),
    st.data(),
)
def test_damaged_manifests_raise_our_errors_only(
    entries: list[ManifestEntry], compression: str, data: Any
) -> None:
    broken = bytearray(encode_manifest(entries, compression=compression, level=1))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(broken) - 1))
        match data.draw(st.sampled_from(["set", "cut", "insert"])):
            case "set":
                broken[at] = data.draw(st.integers(0, 255))
            case "cut":
                del broken[at : at + data.draw(st.integers(1, 30))]
            case _:
                broken[at:at] = data.draw(st.binary(min_size=1, max_size=20))
        if not broken:
            break
    for decode in (decode_manifest, decode_manifest_list):
        try:
            decode(bytes(broken), "x")
        except (FormatError, UnsupportedFeature) as error:
            assert str(error).startswith("x ")  # noqa: PT017
