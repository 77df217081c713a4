"""The paths of a table's files and folders."""

from __future__ import annotations

import os
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_stream.errors import CorruptMetadata, InvalidOption
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.entries import EMPTY_ROW, IndexFileMeta
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.options import Options
from paimon_stream.table.layout import (
    Layout,
    NameSource,
    escape_user,
    id_in_name,
    manifest_path,
    schema_path,
    snapshot_path,
    statistics_path,
    tag_path,
    user_folder,
)
from tests.kits.names import EVIL_NAMES

KEYS = {"dt": "DATE", "region": "STRING"}


def layout(*keys: str, **options: str) -> Layout:
    fields = tuple(
        DataField(id=i, name=name, type=parse_type(text))
        for i, (name, text) in enumerate(KEYS.items())
    )
    schema = TableSchema(
        id=0,
        fields=fields,
        highest_field_id=1,
        partition_keys=keys,
        options=MappingProxyType(options),
    )
    return Layout.of(schema, Options(schema.options))


def row(*values: Any) -> bytes:
    return serialize([parse_type(text) for text in KEYS.values()], values)


def test_metadata_has_its_folders() -> None:
    assert snapshot_path(7) == "snapshot/snapshot-7"
    assert schema_path(0) == "schema/schema-0"
    assert manifest_path("manifest-x-0") == "manifest/manifest-x-0"
    assert tag_path("v1") == "tag/tag-v1"
    assert user_folder("me") == "_paimon_stream/me"


def test_names_of_a_staging_count_for_each_kind() -> None:
    names = NameSource("u")
    made = [names.next(), names.next("manifest-list"), names.next(), names.next("manifest-list")]
    assert made == ["manifest-u-0", "manifest-list-u-0", "manifest-u-1", "manifest-list-u-1"]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("snapshot-12", 12),
        ("snapshot-", None),
        ("snapshot-12.tmp", None),
        ("snapshot--1", None),
        ("snapshot-1_0", None),
        ("snapshot-１", None),
        ("LATEST", None),
    ],
)
def test_only_plain_numbers_are_ids(name: str, found: int | None) -> None:
    assert id_in_name(name, "snapshot-") == found


def test_files_of_an_unpartitioned_table_lie_in_buckets() -> None:
    assert layout().data_file(EMPTY_ROW, 0, "data-x-0.parquet") == "bucket-0/data-x-0.parquet"
    assert layout().bucket_folder(EMPTY_ROW, -2) == "bucket-postpone"


def test_partitions_come_in_the_order_of_the_keys() -> None:
    assert (
        layout("dt", "region").bucket_folder(row(19782, "a b"), 3) == "dt=19782/region=a b/bucket-3"
    )


def test_options_change_the_folders() -> None:
    changed = layout(
        "dt",
        "region",
        **{
            "partition.legacy-name": "false",
            "partition.default-name": "NONE",
            "data-file.path-directory": "data/files/",
        },
    )
    assert (
        changed.bucket_folder(row(19782, None), 0)
        == "data/files/dt=2024-02-29/region=NONE/bucket-0"
    )


@pytest.mark.parametrize("directory", ["..", "a/../../b", "a//b", "/data"])
def test_a_data_folder_outside_of_the_table_is_refused(directory: str) -> None:
    with pytest.raises(InvalidOption, match="path-directory"):
        layout(**{"data-file.path-directory": directory})


@given(st.text(max_size=300))
def test_every_user_becomes_one_safe_name(user: str) -> None:
    name = escape_user(user)
    assert name and "/" not in name and "\0" not in name and not name.startswith(".")
    assert len(name) <= 200
    assert name.isascii()


@given(st.text(max_size=300), st.text(max_size=300))
def test_different_users_get_different_names(one: str, other: str) -> None:
    assert (escape_user(one) == escape_user(other)) == (one == other)


def test_generated_users_stay_readable() -> None:
    assert escape_user("paimon-stream_0b1c_orders") == "paimon-stream_0b1c_orders"
    assert escape_user("a.b/c") == "a%2Eb%2Fc"


def test_long_users_differ_in_their_hash_only() -> None:
    names = {escape_user("x" * 300 + end) for end in "ab"}
    assert len(names) == 2
    assert len({name[:100] for name in names}) == 1


def test_every_name_can_be_a_folder(tmp_path: Path) -> None:
    for user in ("", ".", "..", "ä" * 400, "a\nb", "CON"):
        os.makedirs(tmp_path / escape_user(user))


@pytest.mark.parametrize("name", EVIL_NAMES)
def test_no_name_leads_out_of_its_folder(name: str) -> None:
    plain = layout()
    index = IndexFileMeta(index_type="HASH", file_name=name, file_size=1, row_count=1)
    for make in (
        lambda: plain.data_file(EMPTY_ROW, 0, name),
        lambda: plain.index_file(EMPTY_ROW, 0, index),
        lambda: manifest_path(name),
        lambda: statistics_path(name),
    ):
        with pytest.raises(CorruptMetadata, match="cannot be the name of a file"):
            make()


def test_a_bucket_that_no_table_has_and_a_partition_too_long_for_a_folder_are_corrupt() -> None:
    with pytest.raises(CorruptMetadata, match="bucket -5, which no table has"):
        layout().bucket_folder(EMPTY_ROW, -5)
    with pytest.raises(CorruptMetadata, match="it has 307 bytes"):
        layout("dt", "region").bucket_folder(row(1, "x" * 300), 0)


@pytest.mark.parametrize(
    ("path", "held"),
    [
        ("d/dt=1/region=x/bucket-0/data-1.orc", True),
        ("index/index-1", True),
        ("d/dt=1/region=x/bucket-postpone/data-1.orc", True),
        ("dt=1/region=x/bucket-0/data-1.orc", False),
        ("d/dt=1/bucket-0/data-1.orc", False),
        ("d/region=x/dt=1/bucket-0/data-1.orc", False),
        ("d/dt=1/region=x/bucket-list/data-1.orc", False),
        ("d/dt=1/region=x/bucket-0/sub/data-1.orc", False),
        ("d/dt=1/region=../bucket-0/..", False),
        ("d/dt=1/../bucket-0/data-1.orc", False),
        ("schema/schema-0", False),
        ("snapshot/snapshot-1", False),
        ("manifest/manifest-1", False),
        ("data-1.orc", False),
        ("", False),
    ],
)
def test_a_data_file_lies_in_a_bucket_of_a_partition(path: str, held: bool) -> None:
    assert layout("dt", "region", **{"data-file.path-directory": "d"}).holds(path) is held
