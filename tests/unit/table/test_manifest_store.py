"""Manifests in storage: rolling, the values in their lists, and files that are gone or cut off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paimon_stream.errors import CorruptMetadata, InvalidOption
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.entries import (
    EMPTY_ROW,
    DataFileMeta,
    FileKind,
    ManifestEntry,
    SimpleStats,
)
from paimon_stream.format.manifest_avro import decode_manifest
from paimon_stream.format.snapshot_json import CommitKind, Snapshot, SnapshotId
from paimon_stream.format.types import DataType, parse_type
from paimon_stream.options import Options
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.layout import NameSource
from paimon_stream.table.manifests import ManifestStore, ManifestWriter

TYPES = (parse_type("STRING"), parse_type("INT"))


def entry(
    n: int, *partition: Any, kind: FileKind = FileKind.ADD, bucket: int = 0, **file: Any
) -> ManifestEntry:
    values = {
        "file_name": f"data-{n}.parquet",
        "file_size": 1,
        "row_count": 10,
        "min_sequence_number": 0,
        "max_sequence_number": 9,
        "schema_id": 0,
        "creation_time": 0,
    }
    return ManifestEntry(
        kind=kind,
        partition=serialize(TYPES, partition) if partition else EMPTY_ROW,
        bucket=bucket,
        total_buckets=4,
        file=DataFileMeta(**{**values, **file}),
    )


def writer(
    storage: MemoryStorage, types: tuple[DataType, ...] = (), **options: str
) -> ManifestWriter:
    return ManifestWriter(storage, Options(options), types, schema_id=7)


def store(storage: MemoryStorage) -> ManifestStore:
    return ManifestStore(storage)


def test_a_manifest_comes_back_with_what_its_list_says_of_it() -> None:
    storage = MemoryStorage()
    entries = [
        entry(1, "b", 5, bucket=3, schema_id=2, level=1),
        entry(2, None, 5, bucket=0, kind=FileKind.DELETE, schema_id=4),
        entry(3, "a", 5, bucket=1, level=5),
        entry(4, None, -5, bucket=1),
    ]
    (meta,) = writer(storage, TYPES).write(entries, NameSource("u"))
    assert (meta.file_name, meta.num_added_files, meta.num_deleted_files) == ("manifest-u-0", 3, 1)
    assert meta.file_size == len(storage.read("manifest/manifest-u-0"))
    assert (meta.min_bucket, meta.max_bucket, meta.min_level, meta.max_level) == (0, 3, 0, 5)
    assert (meta.schema_id, meta.min_row_id, meta.max_row_id) == (4, None, None)
    assert meta.partition_stats == SimpleStats(
        min_values=serialize(TYPES, ("a", -5)),
        max_values=serialize(TYPES, ("b", 5)),
        null_counts=(2, 0),
    )
    assert store(storage).read(meta) == entries


def test_row_ids_are_a_range_only_if_every_file_has_some() -> None:
    storage = MemoryStorage()
    some = [entry(1, first_row_id=100), entry(2, first_row_id=20)]
    (meta,) = writer(storage).write(some, NameSource("u"))
    assert (meta.min_row_id, meta.max_row_id) == (20, 109)
    (meta,) = writer(storage).write([*some, entry(3)], NameSource("v"))
    assert (meta.min_row_id, meta.max_row_id) == (None, None)


def test_no_entries_make_no_manifest_and_no_manifests_a_list() -> None:
    storage = MemoryStorage()
    assert writer(storage).write([], NameSource("u")) == ()
    size = writer(storage).write_list("manifest-list-u-0", ())
    assert size == len(storage.read("manifest/manifest-list-u-0"))
    assert store(storage).read_list("manifest-list-u-0", size) == ()


def test_manifests_roll_at_the_target_size_after_a_thousand_entries() -> None:
    storage = MemoryStorage()
    entries = [entry(n) for n in range(3500)]
    one = writer(storage).write(iter(entries), NameSource("one"))
    assert [meta.num_added_files for meta in one] == [3500]
    (some,) = writer(storage).write(entries[:1500], NameSource("some"))
    limit = str(some.file_size)
    metas = writer(storage, **{"manifest.target-file-size": limit}).write(entries, NameSource("u"))
    assert [meta.num_added_files for meta in metas] == [2000, 1500]
    assert [meta.file_name for meta in metas] == ["manifest-u-0", "manifest-u-1"]
    assert [e for meta in metas for e in store(storage).read(meta)] == entries
    tiny = writer(storage, **{"manifest.target-file-size": "1 b"}).write(entries, NameSource("t"))
    assert [meta.num_added_files for meta in tiny] == [1000, 1000, 1000, 500]


def test_base_comes_before_delta() -> None:
    storage = MemoryStorage()
    write, names = writer(storage), NameSource("u")
    metas = [write.write([entry(n)], names)[0] for n in range(3)]
    sizes = [write.write_list("base", metas[:2]), write.write_list("delta", metas[2:])]
    snapshot = Snapshot(
        id=SnapshotId(1),
        schema_id=0,
        base_manifest_list="base",
        base_manifest_list_size=sizes[0],
        delta_manifest_list="delta",
        delta_manifest_list_size=sizes[1],
        commit_user="u",
        commit_identifier=1,
        commit_kind=CommitKind.APPEND,
        time_millis=0,
        total_record_count=0,
        delta_record_count=0,
    )
    assert store(storage).base_and_delta(snapshot) == tuple(metas)
    assert store(storage).delta(snapshot) == (metas[2],)
    without_sizes = replace(snapshot, base_manifest_list_size=None, delta_manifest_list_size=None)
    assert store(storage).base_and_delta(without_sizes) == tuple(metas)


def test_a_missing_manifest_says_what_may_have_happened() -> None:
    storage = MemoryStorage()
    (meta,) = writer(storage).write([entry(1)], NameSource("u"))
    storage.delete("manifest/manifest-u-0")
    path = f"{storage.location}/manifest/manifest-u-0"
    with pytest.raises(CorruptMetadata, match="expired while it was read") as caught:
        store(storage).read(meta)
    assert caught.value.context["path"] == path
    with pytest.raises(CorruptMetadata, match="roll the table back"):
        store(storage).read_list("manifest-list-u-0")


def test_a_manifest_cut_off_between_two_blocks_is_noticed() -> None:
    storage = MemoryStorage()
    (meta,) = writer(storage).write([entry(n) for n in range(1001)], NameSource("u"))
    data = storage.read("manifest/manifest-u-0")
    cut = data[: data.rindex(data[-16:], 0, -16) + 16]
    assert len(decode_manifest(cut, "x")) == 1000  # it reads as a whole file
    storage.write("manifest/manifest-u-0", cut)
    with pytest.raises(
        CorruptMetadata,
        match=rf"cut off, and should have {meta.file_size} bytes \({len(cut)} bytes\)",
    ):
        store(storage).read(meta)


def test_other_counts_than_the_list_says_are_noticed() -> None:
    storage = MemoryStorage()
    (meta,) = writer(storage).write([entry(1), entry(2)], NameSource("u"))
    with pytest.raises(CorruptMetadata, match=r"adds 2 and deletes 0 files.*says 3 and 0"):
        store(storage).read(replace(meta, num_added_files=3))


def test_a_broken_manifest_names_its_whole_path() -> None:
    storage = MemoryStorage()
    (meta,) = writer(storage).write([entry(1)], NameSource("u"))
    storage.write("manifest/manifest-u-0", b"?" * meta.file_size)
    with pytest.raises(
        CorruptMetadata, match=f"{storage.location}/manifest/manifest-u-0 cannot be read"
    ):
        store(storage).read(meta)


def test_a_compression_without_readers_is_refused_before_anything_is_written() -> None:
    storage = MemoryStorage()
    with pytest.raises(InvalidOption, match=r"manifest\.compression"):
        writer(storage, **{"manifest.compression": "lz4"})
    assert storage.list_files("manifest") == []
