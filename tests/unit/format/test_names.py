"""The rule for names: which ones a file of a table can have, and which ones Paimon gives."""

from __future__ import annotations

import json

import pytest

from paimon_stream.errors import CorruptMetadata
from paimon_stream.format.entries import EMPTY_STATS, ManifestFileMeta
from paimon_stream.format.manifest_avro import decode_manifest_list, encode_manifest_list
from paimon_stream.format.names import (
    LONGEST_NAME,
    checked_name,
    is_bucket,
    is_bucket_folder,
    is_partition_folder,
    shown_name,
    wrong_with,
)
from paimon_stream.format.snapshot_json import decode_snapshot
from tests.kits.names import EVIL_NAMES

SNAPSHOT = {
    "version": 3,
    "id": 1,
    "schemaId": 0,
    "baseManifestList": "manifest-list-u-0",
    "deltaManifestList": "manifest-list-u-1",
    "commitUser": "u",
    "commitIdentifier": 1,
    "commitKind": "APPEND",
    "timeMillis": 1,
    "totalRecordCount": 1,
    "deltaRecordCount": 1,
}
GOOD = [
    "data-4d6d7d8c-0.parquet",
    "part-00000",
    "000000_0",
    "..data",
    ".hidden",
    "a b",
    "ü" * 127,
    "a" * LONGEST_NAME,
    "a\nb",
]


@pytest.mark.parametrize("name", GOOD)
def test_a_name_that_a_file_can_have_is_right(name: str) -> None:
    assert wrong_with(name) is None
    assert checked_name(name, "x") == name


@pytest.mark.parametrize("name", EVIL_NAMES)
def test_a_name_that_no_file_of_a_table_can_have_is_wrong(name: str) -> None:
    with pytest.raises(
        CorruptMetadata, match=r"^manifest-1 names .*, which cannot be the name of a file"
    ):
        checked_name(name, "manifest-1")


def test_a_message_shows_special_characters_escaped_and_cuts_a_long_name() -> None:
    assert shown_name("a\nb") == r"'a\nb'"
    assert len(shown_name("x" * 1000)) < 100


@pytest.mark.parametrize(
    ("bucket", "total", "possible"),
    [
        (0, None, True),
        (0, -1, True),
        (7, 8, True),
        (8, 8, False),
        (-1, -1, False),
        (-5, None, False),
        (-2, -2, True),
        (2**31, None, False),
    ],
)
def test_a_bucket_is_below_the_number_of_buckets(
    bucket: int, total: int | None, possible: bool
) -> None:
    assert is_bucket(bucket, total) is possible


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("bucket-0", True),
        ("bucket-4711", True),
        ("bucket-postpone", True),
        ("bucket-", False),
        ("bucket-list", False),
        ("bucket--1", False),
        ("bucket-00", False),
        ("bucket-²", False),
        ("bucket-0\n", False),
        ("bucket-12345678901", False),
    ],
)
def test_paimon_gives_buckets_these_names(name: str, given: bool) -> None:
    assert is_bucket_folder(name) is given


def test_a_partition_folder_begins_with_its_escaped_key() -> None:
    assert is_partition_folder("dt=2024", "dt")
    assert is_partition_folder("a%2Fb=1", "a/b")
    assert not is_partition_folder("hh=1", "dt")
    assert not is_partition_folder("dt", "dt")


@pytest.mark.parametrize("name", EVIL_NAMES)
@pytest.mark.parametrize(
    "key",
    [
        "baseManifestList",
        "deltaManifestList",
        "changelogManifestList",
        "indexManifest",
        "statistics",
    ],
)
def test_a_snapshot_that_names_a_file_outside_is_corrupt(key: str, name: str) -> None:
    data = json.dumps({**SNAPSHOT, key: name}).encode()
    with pytest.raises(
        CorruptMetadata, match=rf"^snapshot-1(, in '{key}', names |.* surrogate pair)"
    ):
        decode_snapshot(data, "snapshot-1")


@pytest.mark.parametrize("name", EVIL_NAMES[:-1])  # Avro holds only UTF-8
def test_a_manifest_list_that_names_a_manifest_outside_is_corrupt(name: str) -> None:
    meta = ManifestFileMeta(
        file_name=name,
        file_size=1,
        num_added_files=1,
        num_deleted_files=0,
        partition_stats=EMPTY_STATS,
        schema_id=0,
    )
    data = encode_manifest_list([meta], compression="null", level=1)
    with pytest.raises(CorruptMetadata, match=r"^list-1 names "):
        decode_manifest_list(data, "list-1")
