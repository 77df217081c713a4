"""Joining manifests as bytes gives what decoding and encoding them again would give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_stream.errors import CorruptMetadata, InvalidData
from paimon_stream.format.avro_file import MOST_PLAIN, packed_blocks_of
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.entries import (
    EMPTY_ROW,
    EMPTY_STATS,
    FileKind,
    ManifestEntry,
    ManifestFileMeta,
    SimpleStats,
)
from paimon_stream.format.manifest_avro import FULL_BLOCK
from paimon_stream.format.types import parse_type
from paimon_stream.options import Options
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.layout import NameSource, manifest_path
from paimon_stream.table.manifest_merge import ManifestJoiner
from paimon_stream.table.manifests import ManifestStore, ManifestWriter
from paimon_stream.table.snapshots import SnapshotStore
from tests.kits.avro_files import read_file
from tests.kits.commits import data_file
from tests.kits.faults import FaultyStorage

TYPES = (parse_type("STRING"), parse_type("INT"))


class Desk:
    """A storage with a writer, a reader and a joiner of manifests."""

    def __init__(self, types: Sequence[Any] = TYPES, **options: str) -> None:
        self.storage = MemoryStorage()
        self.options = Options(options)
        self.manifests = ManifestStore(self.storage)
        self.types = types
        self.writer = ManifestWriter(self.storage, self.options, types, 0)
        self.joiner = ManifestJoiner(self.storage, self.options, types, self.manifests)
        self.names = NameSource("u")

    def write(self, *entries: ManifestEntry) -> ManifestFileMeta:
        (meta,) = self.writer.write(entries, self.names)
        return meta

    def decoded(self, metas: Sequence[ManifestFileMeta]) -> list[ManifestEntry]:
        return [entry for meta in metas for entry in self.manifests.read(meta)]


def entry(
    number: int, dt: str | None = "a", hour: int | None = 0, bucket: int = 0, **file: object
) -> ManifestEntry:
    return ManifestEntry(
        kind=FileKind.ADD,
        partition=serialize(TYPES, (dt, hour)),
        bucket=bucket,
        total_buckets=8,
        file=replace(data_file(f"f{number}"), **file),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("compression", ["zstd", "null", "snappy", "deflate"])
def test_a_join_says_of_itself_what_a_writer_would_have_said(compression: str) -> None:
    desk = Desk(**{"manifest.compression": compression})
    metas = [
        desk.write(entry(1, "b", 3, bucket=2), entry(2, "a", None, schema_id=4)),
        desk.write(entry(3, None, 7, bucket=5, level=3)),
        desk.write(entry(4, "c", -9)),
    ]
    (joined,) = desk.joiner.join(metas, desk.names)
    entries = desk.decoded(metas)
    assert desk.decoded([joined]) == entries
    (expected,) = desk.writer.write(entries, desk.names)
    assert replace(joined, file_name="", file_size=0) == replace(
        expected, file_name="", file_size=0
    )
    assert joined.file_size == desk.storage.stat(manifest_path(joined.file_name)).size


def test_row_id_ranges_are_joined_where_every_part_has_one() -> None:
    desk = Desk()
    metas = [desk.write(entry(1, first_row_id=50)), desk.write(entry(2, first_row_id=7))]
    (joined,) = desk.joiner.join(metas, desk.names)
    assert (joined.min_row_id, joined.max_row_id) == (7, 59)
    (mixed,) = desk.joiner.join([*metas, desk.write(entry(3))], desk.names)
    assert (mixed.min_row_id, mixed.max_row_id) == (None, None)


def test_small_blocks_are_put_together() -> None:
    desk = Desk()
    single = [desk.write(entry(number)) for number in range(300)]
    (joined,) = desk.joiner.join(single, desk.names)
    (expected,) = desk.writer.write(desk.decoded(single), desk.names)
    assert joined.file_size == expected.file_size


def test_full_blocks_are_copied_as_they_are_where_the_compression_is_the_same() -> None:
    desk = Desk()
    (large,) = desk.writer.write((entry(number) for number in range(2300)), desk.names)
    foreign = ManifestWriter(desk.storage, Options({"manifest.compression": "snappy"}), TYPES, 0)
    (other,) = foreign.write((entry(5000 + number) for number in range(1000)), desk.names)
    metas = [large, desk.write(entry(9001)), other, desk.write(entry(9002))]
    (joined,) = desk.joiner.join(metas, desk.names)
    assert desk.decoded([joined]) == desk.decoded(metas)
    (_, _, before), (_, _, after) = (
        packed_blocks_of(desk.storage.read(manifest_path(meta.file_name)), "x")
        for meta in (large, joined)
    )
    assert [block.records for block in before] == [1000, 1000, 300]
    assert after[:2] == before[:2]
    assert [block.records for block in after] == [1000, 1000, 1301, 1]


def test_a_join_rolls_at_the_target_size() -> None:
    desk = Desk(**{"manifest.target-file-size": "3 kb", "manifest.compression": "null"})
    metas = [
        meta
        for batch in range(6)
        for meta in desk.writer.write((entry(1000 * batch + n) for n in range(1000)), desk.names)
    ]
    joined = desk.joiner.join(metas, desk.names)
    assert len(joined) == 6
    assert desk.decoded(joined) == desk.decoded(metas)


def test_without_partition_columns_there_is_nothing_to_say_of_them() -> None:
    desk = Desk(types=())
    plain = [replace(entry(number), partition=EMPTY_ROW) for number in (1, 2)]
    (joined,) = desk.joiner.join([desk.write(one) for one in plain], desk.names)
    assert joined.partition_stats == EMPTY_STATS
    assert desk.decoded([joined]) == plain


def test_no_entry_is_decoded_and_each_manifest_is_read_once() -> None:
    desk = Desk()
    metas = [desk.write(entry(number)) for number in range(3)]
    watched = FaultyStorage(desk.storage)
    unread = ManifestStore(MemoryStorage())  # would not find any manifest
    ManifestJoiner(watched, desk.options, TYPES, unread).join(metas, desk.names)
    assert [verb for verb, _ in watched.operations] == ["read"] * 3 + ["write"]


@pytest.mark.parametrize(
    "unsaid", [{"min_bucket": None}, {"max_level": None}, {"partition_stats": EMPTY_STATS}]
)
def test_what_a_list_left_out_is_found_in_the_entries(unsaid: dict[str, object]) -> None:
    desk = Desk()
    metas = [desk.write(entry(1, "x", bucket=3)), desk.write(entry(2, "b", bucket=6, level=2))]
    (expected,) = desk.writer.write(desk.decoded(metas), desk.names)
    left_out = [replace(metas[0], **unsaid), metas[1]]  # type: ignore[arg-type]
    (joined,) = desk.joiner.join(left_out, desk.names)
    assert replace(joined, file_name="", file_size=0) == replace(
        expected, file_name="", file_size=0
    )


def test_a_manifest_that_is_missing_cut_off_or_miscounted_is_corruption() -> None:
    desk = Desk()
    good, bad = desk.write(entry(1)), desk.write(entry(2))
    with pytest.raises(CorruptMetadata):
        desk.joiner.join([good, replace(bad, num_added_files=7)], desk.names)
    path = manifest_path(bad.file_name)
    desk.storage.write(path, desk.storage.read(path)[:-20])
    with pytest.raises(CorruptMetadata):
        desk.joiner.join([good, bad], desk.names)
    desk.storage.delete(path)
    with pytest.raises(CorruptMetadata):
        desk.joiner.join([good, bad], desk.names)


def test_manifests_that_java_wrote_are_joined_with_ours(golden: Any) -> None:
    path, _ = golden("append_bucketed")
    storage = LocalStorage(str(path))
    manifests = ManifestStore(storage)
    latest = SnapshotStore(storage).latest()
    assert latest is not None
    metas = [meta for meta in manifests.base_and_delta(latest) if not meta.num_deleted_files]
    assert len(metas) > 1
    unread = ManifestStore(MemoryStorage())
    joiner = ManifestJoiner(LocalStorage(str(Path(path))), Options({}), (), unread)
    joined = joiner.join(metas, NameSource("ours"))
    before = [one for meta in metas for one in manifests.read(meta)]
    assert [one for meta in joined for one in manifests.read(meta)] == before


def wide(number: int) -> ManifestEntry:
    """An entry with 20 KB of statistics, so that a thousand of them exceed a block."""
    low = bytes([number % 251]) * 10_000
    return entry(number, value_stats=SimpleStats(min_values=low, max_values=low, null_counts=()))


def plain_sizes(desk: Desk, metas: Sequence[ManifestFileMeta]) -> list[int]:
    files = (desk.storage.read(manifest_path(meta.file_name)) for meta in metas)
    return [len(block.data) for data in files for block in read_file(data, "x").blocks]


def test_wide_statistics_are_divided_among_blocks_that_can_be_read_back() -> None:
    desk = Desk()
    entries = [wide(number) for number in range(1000)]
    meta = desk.write(*entries)
    assert max(plain_sizes(desk, [meta])) <= FULL_BLOCK < sum(plain_sizes(desk, [meta]))
    assert desk.manifests.read(meta) == entries


@pytest.mark.parametrize("described", [True, False])
def test_joined_blocks_stay_below_the_size_that_a_reader_accepts(described: bool) -> None:
    desk = Desk()
    parts = [desk.write(*(wide(i) for i in range(n, n + 300))) for n in range(0, 900, 300)]
    parts = parts if described else [replace(one, min_bucket=None) for one in parts]
    joined = desk.joiner.join(parts, desk.names)
    assert max(plain_sizes(desk, joined)) <= FULL_BLOCK < sum(plain_sizes(desk, joined))
    assert desk.decoded(joined) == desk.decoded(parts)


def test_statistics_that_no_reader_accepts_are_refused_before_they_are_written() -> None:
    desk = Desk()
    low = bytes(MOST_PLAIN)
    with pytest.raises(InvalidData, match=r"'f1' .*metadata\.stats-mode"):
        desk.write(
            entry(1, value_stats=SimpleStats(min_values=low, max_values=b"", null_counts=()))
        )
    assert desk.storage.list_files("manifest") == []
