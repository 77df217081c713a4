"""Commit messages: what is written is read, Java reads and writes the same, and no bytes
surprise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paimon_stream.errors import FormatError, InvalidData, UnknownVersion
from paimon_stream.format.avro_unknown import field_of_longs, longs_of
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import (
    EMPTY_STATS,
    DataFileMeta,
    DeletionRange,
    GlobalIndexMeta,
    IndexFileMeta,
    SimpleStats,
)
from paimon_stream.format.file_rows import decode_data_file
from paimon_stream.format.types import parse_type
from tests.kits.seeds import examples

VECTORS = Path(__file__).parent.parent / "vectors"
SLOW = settings(deadline=None, suppress_health_check=list(HealthCheck))
LONG = st.integers(-(2**63), 2**63 - 1)
INT = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAMES = st.lists(TEXT, max_size=40).map(tuple)
ROW = st.builds(
    lambda n, s: serialize([parse_type("INT"), parse_type("STRING")], [n, s]), st.none() | INT, TEXT
) | st.just(bytes(12))
STATS = st.just(EMPTY_STATS) | st.builds(
    SimpleStats,
    min_values=ROW,
    max_values=ROW,
    null_counts=st.lists(st.none() | st.integers(0, 2**62), max_size=70).map(tuple),
)
FILES = st.builds(
    DataFileMeta,
    file_name=TEXT,
    file_size=LONG,
    row_count=LONG,
    min_key=ROW,
    max_key=ROW,
    key_stats=STATS,
    value_stats=STATS,
    min_sequence_number=LONG,
    max_sequence_number=LONG,
    schema_id=LONG,
    level=INT,
    extra_files=NAMES,
    creation_time=st.integers(-(2**50), 2**50),
    delete_row_count=st.none() | LONG,
    embedded_file_index=st.none() | st.binary(max_size=30),
    file_source=st.sampled_from([None, 0, 1]),
    value_stats_cols=st.none() | NAMES,
    external_path=st.none() | TEXT.filter(bool),
    first_row_id=st.none() | LONG,
    write_cols=st.none() | NAMES,
)
DELETIONS = st.builds(
    DeletionRange,
    data_file=TEXT,
    offset=INT,
    length=INT,
    cardinality=st.none() | st.integers(0, 2**40),
)
GLOBAL = st.builds(
    GlobalIndexMeta,
    row_range_start=LONG,
    row_range_end=LONG,
    index_field_id=INT,
    extra_field_ids=st.none() | st.lists(INT, max_size=40).map(tuple),
    index_meta=st.none() | st.binary(max_size=20),
    source_meta=st.none(),
)
INDEXES = st.builds(
    IndexFileMeta,
    index_type=st.sampled_from(["HASH", "DELETION_VECTORS"]),
    file_name=TEXT,
    file_size=LONG,
    row_count=LONG,
    # Java keeps them by data file name.
    deletions=st.none()
    | st.lists(DELETIONS, max_size=3, unique_by=lambda one: one.data_file).map(tuple),
    external_path=st.none() | TEXT,
    global_index=st.none() | GLOBAL,
)
SOURCED = st.builds(
    lambda index, meta: replace(index, global_index=meta._replace(source_meta=b"source")),
    INDEXES,
    GLOBAL,
)
SOME_FILES = st.lists(FILES, max_size=2).map(tuple)
SOME_INDEXES = st.lists(INDEXES, max_size=2).map(tuple)
MESSAGES = st.builds(
    CommitMessage,
    partition=ROW,
    bucket=INT,
    total_buckets=st.none() | INT,
    new_files=SOME_FILES,
    deleted_files=SOME_FILES,
    changelog_files=SOME_FILES,
    new_index_files=SOME_INDEXES,
    deleted_index_files=SOME_INDEXES,
    compact_before=SOME_FILES,
    compact_after=SOME_FILES,
    compact_changelog_files=SOME_FILES,
    compact_new_index_files=SOME_INDEXES,
    compact_deleted_index_files=SOME_INDEXES,
)


@given(MESSAGES)
@settings(SLOW, max_examples=examples(20, 600))
def test_what_is_written_is_read_back(message: CommitMessage) -> None:
    assert CommitMessage.deserialize(message.serialize(), 11) == message


@given(MESSAGES, SOURCED, st.none() | LONG, FILES, st.lists(LONG, max_size=70))
@settings(SLOW, max_examples=examples(20, 600))
def test_version_14_holds_what_version_11_lacks(
    message: CommitMessage,
    index: IndexFileMeta,
    check: int | None,
    file: DataFileMeta,
    numbers: list[int],
) -> None:
    sequences = field_of_longs(("_FILE", "_WRITE_COLS_SEQUENCES"), numbers)
    assert longs_of(sequences) == tuple(numbers)
    newer = replace(file, unknown=(sequences,))
    message = replace(
        message, new_index_files=(index,), check_from_snapshot=check, deleted_files=(newer,)
    )
    data = message.serialize(14)
    assert replace(CommitMessage.deserialize(data, 14)) == message
    assert CommitMessage.deserialize(data, 14).serialize(14) == data
    for version in (11, 12):
        with pytest.raises(InvalidData, match=f"_WRITE_COLS_SEQUENCES.* version {version} "):
            replace(message, new_index_files=(), check_from_snapshot=None).serialize(version)


@given(MESSAGES, SOURCED)
@settings(SLOW, max_examples=examples(10, 300))
def test_every_version_is_read_back_and_version_13_is_14_without_its_end(
    message: CommitMessage, index: IndexFileMeta
) -> None:
    assert message.serialize(13) + b"\0" == message.serialize(14)
    sourced = replace(message, new_index_files=(index,))
    for version, written in ((11, message), (12, sourced), (13, sourced)):
        assert CommitMessage.deserialize(written.serialize(version), version) == written
        read = CommitMessage.deserialize_all(
            CommitMessage.serialize_all([written, written], version), version
        )
        assert read == (written, written)
        # Not the bytes that were read, but those of the other version.
        assert read[0].serialize(14) == written.serialize(14)


@given(st.lists(MESSAGES, max_size=4))
@settings(SLOW, max_examples=examples(10, 300))
def test_many_messages_are_read_back_in_order(messages: list[CommitMessage]) -> None:
    assert CommitMessage.deserialize_all(CommitMessage.serialize_all(messages), 11) == tuple(
        messages
    )


@given(MESSAGES)
@settings(SLOW, max_examples=examples(20, 600))
def test_java_reads_the_message_and_writes_the_same_bytes(
    java: Any, message: CommitMessage
) -> None:
    data = message.serialize()
    assert bytes(java.reserialize(data, 11)).hex() == data.hex()


@given(FILES)
@settings(SLOW, max_examples=examples(15, 400))
def test_java_sees_the_same_fields(java: Any, file: DataFileMeta) -> None:
    message = CommitMessage(partition=bytes(12), bucket=3, total_buckets=7, new_files=(file,))
    found = java.describe_commit_message(message.serialize(), 11)
    assert (found["bucket"], found["totalBuckets"]) == (3, 7)
    (seen,) = found["dataIncrement"]["newFiles"]
    assert seen["fileName"] == file.file_name
    assert (seen["fileSize"], seen["rowCount"], seen["level"]) == (
        file.file_size,
        file.row_count,
        file.level,
    )
    assert seen["minKey"] == file.min_key.hex()
    assert tuple(seen["valueStats"]["nullCounts"]) == file.value_stats.null_counts
    assert seen["deleteRowCount"] == file.delete_row_count
    assert seen["firstRowId"] == file.first_row_id
    assert seen["externalPath"] == file.external_path
    for theirs, ours in (("valueStatsCols", file.value_stats_cols), ("writeCols", file.write_cols)):
        assert seen[theirs] == (None if ours is None else list(ours))


@pytest.mark.parametrize(
    "path", sorted(VECTORS.glob("commit_message_v11_*.bin")), ids=lambda p: p.stem[15:]
)
def test_a_message_cut_off_anywhere_is_refused(path: Path) -> None:
    data = path.read_bytes()
    for end in range(len(data)):
        with pytest.raises(FormatError):
            CommitMessage.deserialize(data[:end], 11)
    with pytest.raises(FormatError, match="follow the end"):
        CommitMessage.deserialize(data + b"\0", 11)


@pytest.mark.parametrize(
    "path", sorted(VECTORS.glob("commit_message_v11_*.bin")), ids=lambda p: p.stem[15:]
)
def test_a_message_with_one_wrong_byte_is_refused_or_read(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for at in range(len(data)):
        for wrong in (0x00, 0x7F, 0x80, 0xFF, data[at] ^ 1):
            right, data[at] = data[at], wrong
            refused_or_read(bytes(data))
            data[at] = right


@given(MESSAGES, st.data())
@settings(SLOW, max_examples=examples(25, 800))
def test_damaged_messages_are_refused_or_read_but_never_crash(
    message: CommitMessage, data: st.DataObject
) -> None:
    damaged = bytearray(message.serialize())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    refused_or_read(bytes(damaged))


@given(st.binary(max_size=400))
@SLOW
def test_any_bytes_are_refused_or_read_but_never_crash(data: bytes) -> None:
    refused_or_read(data)
    for read in (decode_data_file, CommitMessage.deserialize_all):
        refused_or_read(data, read)


def refused_or_read(
    data: bytes, read: Callable[[bytes], object] = CommitMessage.deserialize
) -> None:
    try:
        read(data)
    except FormatError:
        return


@pytest.mark.parametrize("version", [-1, 0, 5, 10, 15])
def test_other_versions_are_refused_by_name(version: int) -> None:
    message = CommitMessage(partition=bytes(12), bucket=0, total_buckets=None)
    for call in (
        partial(CommitMessage.deserialize, bytes(61)),
        message.serialize,
        partial(CommitMessage.serialize_all, ()),
    ):
        with pytest.raises(UnknownVersion, match=f"version {version} "):
            call(version)
