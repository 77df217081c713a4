"""Commit messages: index files of version 12, and what cannot be written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paimon_stream.errors import FormatError, InvalidData
from paimon_stream.format.binary_row import encode_row
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import (
    DataFileMeta,
    DeletionRange,
    GlobalIndexMeta,
    IndexFileMeta,
    SimpleStats,
)
from paimon_stream.format.file_rows import decode_data_file, decode_index_file, encode_data_file
from paimon_stream.format.types import parse_type

FILE = DataFileMeta(
    file_name="data-1.parquet",
    file_size=10,
    row_count=1,
    min_sequence_number=0,
    max_sequence_number=0,
    schema_id=0,
    creation_time=1_700_000_000_000,
)
INDEX = IndexFileMeta(index_type="HASH", file_name="index-1", file_size=8, row_count=2)
MESSAGE = CommitMessage(partition=bytes(12), bucket=0, total_buckets=None, new_files=(FILE,))
INDEX_12 = [
    "STRING",
    "STRING",
    "BIGINT",
    "BIGINT",
    "ARRAY<ROW<a STRING, b INT, c INT, d BIGINT>>",
    "STRING",
    "ROW<a BIGINT, b BIGINT, c INT, d ARRAY<INT>, e BYTES, f BYTES>",
]


def test_files_in_lists_and_iterators_become_tuples() -> None:
    files: Any = iter([FILE])
    indexes: Any = [INDEX]
    made = CommitMessage(
        partition=bytes(12), bucket=0, total_buckets=None, new_files=files, new_index_files=indexes
    )
    assert made == replace(MESSAGE, new_index_files=(INDEX,))


@pytest.mark.parametrize(
    "wrong", ["data-1", [INDEX], ["data-1"], FILE.file_name.encode(), 7, {"data-1": 1}]
)
def test_files_of_another_type_are_refused_by_name(wrong: Any) -> None:
    with pytest.raises(
        InvalidData, match=r"new_files of a CommitMessage is wrong. Give a list of DataFileMeta"
    ):
        CommitMessage(partition=bytes(12), bucket=0, total_buckets=None, new_files=wrong)


def test_the_general_row_codec_writes_the_same_data_file_row() -> None:
    stats = "ROW<a BYTES, b BYTES, c ARRAY<BIGINT>>"
    texts = [
        "STRING",
        "BIGINT",
        "BIGINT",
        "BYTES",
        "BYTES",
        stats,
        stats,
        "BIGINT",
        "BIGINT",
        "BIGINT",
        "INT",
        "ARRAY<STRING>",
        "TIMESTAMP(3)",
        "BIGINT",
        "BYTES",
        "TINYINT",
        "ARRAY<STRING>",
        "STRING",
        "BIGINT",
        "ARRAY<STRING>",
    ]
    counts = (*range(69), None)
    file = replace(
        FILE,
        level=-3,
        value_stats=SimpleStats(
            min_values=b"short", max_values=b"longer than seven", null_counts=counts
        ),
        extra_files=("x", "a longer name of a file"),
        embedded_file_index=b"index",
        file_source=-1,
        value_stats_cols=tuple(f"column {i}" for i in range(70)),
        external_path="s3://elsewhere",
        first_row_id=5,
        write_cols=(),
    )
    values = [
        file.file_name,
        10,
        1,
        file.min_key,
        file.max_key,
        (bytes(12), bytes(12), []),
        (b"short", b"longer than seven", list(counts)),
        0,
        0,
        0,
        -3,
        list(file.extra_files),
        1_700_000_000_000 * 1_000_000,
        0,
        b"index",
        -1,
        list(file.value_stats_cols or ()),
        "s3://elsewhere",
        5,
        [],
    ]
    data = encode_data_file(file)
    assert data.hex() == encode_row([parse_type(text) for text in texts], values).hex()
    assert decode_data_file(data) == file


def test_a_global_index_of_version_12_keeps_its_source() -> None:
    types = [parse_type(text) for text in INDEX_12]
    row = encode_row(
        types, ["G", "i", 1, 2, [("d", 1, 2, None)], None, (0, 9, 4, [1], b"meta", b"source")]
    )
    got = decode_index_file(row, 12)
    assert got.deletions == (DeletionRange(data_file="d", offset=1, length=2, cardinality=None),)
    assert got.global_index == GlobalIndexMeta(
        row_range_start=0,
        row_range_end=9,
        index_field_id=4,
        extra_field_ids=(1,),
        index_meta=b"meta",
        source_meta=b"source",
    )
    message = replace(MESSAGE, new_index_files=(got,))
    with pytest.raises(InvalidData, match="source metadata"):
        message.serialize()
    assert CommitMessage.deserialize(message.serialize(12), 12) == message


@pytest.mark.parametrize("version", [11, 12, 13])
def test_a_search_for_conflicts_needs_version_14(version: int) -> None:
    with pytest.raises(InvalidData, match=f"version {version} cannot say .* says 5"):
        replace(MESSAGE, check_from_snapshot=5).serialize(version)


def test_what_was_read_in_one_version_is_written_in_another() -> None:
    read = CommitMessage.deserialize(MESSAGE.serialize(14), 14)
    assert read.serialize() == MESSAGE.serialize()


@pytest.mark.parametrize("missing", [0, 1, 2, 3])
def test_an_index_file_without_what_it_needs_is_refused(missing: int) -> None:
    values: list[object] = ["HASH", "i", 1, 2, None, None, None]
    values[missing] = None
    with pytest.raises(FormatError, match="index file has NULL"):
        decode_index_file(encode_row([parse_type(text) for text in INDEX_12], values), 12)


@pytest.mark.parametrize(
    "message",
    [
        replace(MESSAGE, bucket=2**31),
        replace(MESSAGE, new_files=(replace(FILE, file_size=2**63),)),
        replace(MESSAGE, new_files=(replace(FILE, level=2**31),)),
        replace(MESSAGE, new_files=(replace(FILE, file_source=128),)),
        replace(MESSAGE, new_files=(replace(FILE, file_name="\ud800"),)),
        replace(
            MESSAGE,
            new_files=(
                replace(
                    FILE,
                    key_stats=SimpleStats(min_values=b"", max_values=b"", null_counts=(2**63,)),
                ),
            ),
        ),
        replace(MESSAGE, new_index_files=(replace(INDEX, file_size=2**63),)),
    ],
    ids=["bucket", "size", "level", "source", "name", "null count", "index size"],
)
def test_what_the_format_cannot_hold_is_refused(message: CommitMessage) -> None:
    with pytest.raises(InvalidData):
        message.serialize()


def test_a_data_file_row_with_null_for_a_name_is_refused() -> None:
    data = bytearray(encode_data_file(FILE))
    data[1] |= 1
    with pytest.raises(FormatError, match="NULL in a NOT NULL field"):
        decode_data_file(bytes(data))


def test_no_messages_are_four_bytes() -> None:
    assert CommitMessage.serialize_all(()) == bytes(4)
    assert CommitMessage.deserialize_all(bytes(4)) == ()


def test_a_count_that_cannot_be_true_is_refused_at_once() -> None:
    with pytest.raises(FormatError, match="cannot hold 2147483647"):
        CommitMessage.deserialize_all(b"\x7f\xff\xff\xff" + bytes(100))
