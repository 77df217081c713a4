"""What a task reports arrives unchanged at the driver, and never as a pickle."""

from __future__ import annotations

import pickle
import struct
from dataclasses import replace

import pytest

from paimon_stream.errors import (
    ROWS,
    FormatError,
    NoSpace,
    NullInNotNull,
    PaimonStreamError,
    UnknownVersion,
)
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import EMPTY_ROW, DataFileMeta
from paimon_stream.write.task import (
    Answer,
    TaskFailure,
    TaskResult,
    TaskTooWide,
    decode_result,
    encode_result,
)

FILE = DataFileMeta(
    file_name="data-x-0.parquet",
    file_size=100,
    row_count=3,
    min_sequence_number=0,
    max_sequence_number=2,
    schema_id=0,
    creation_time=1_700_000_000_000,
)
RESULT = TaskResult(
    messages=tuple(
        CommitMessage(partition=EMPTY_ROW, bucket=bucket, total_buckets=2, new_files=(FILE,))
        for bucket in (0, 1)
    ),
    row_bytes=0x0123456789ABCDEF,
    widest_row=0x0FEDCBA987654321,
    partition_id=2**31 - 1,
)


@pytest.mark.parametrize(
    "result", [RESULT, TaskResult(messages=()), TaskTooWide(partition_id=2**31 - 1)]
)
def test_a_result_comes_back_equal(result: Answer) -> None:
    assert decode_result(encode_result(result)) == result


def test_a_failure_comes_back_with_class_message_and_context() -> None:
    error = NullInNotNull("no", table="/w/t", column="c", count=3)
    back = decode_result(encode_result(TaskFailure(error=error, partition_id=7)))
    assert isinstance(back, TaskFailure)
    assert type(back.error) is NullInNotNull
    assert (back.error.message, back.error.context) == (
        "no",
        {"table": "/w/t", "column": "c", "count": 3},
    )
    assert back.partition_id == 7


def test_a_count_that_came_from_a_task_can_still_grow() -> None:
    error = NullInNotNull(f"NULL in {ROWS}.", column="c", count=1)
    back = decode_result(encode_result(TaskFailure(error=error)))
    assert isinstance(back, TaskFailure) and isinstance(back.error, NullInNotNull)
    assert str(back.error) == "NULL in 1 row."
    assert str(back.error.recounted(1200)) == "NULL in 1,200 rows."


@pytest.mark.parametrize("name", ["{rows}", "{places}", "{", "{0}", "a{b}"])
def test_a_name_in_a_message_stays_whatever_braces_it_has(name: str) -> None:
    error = NullInNotNull(
        f"Column {name!r} is NULL in {ROWS} of /w/{name}.", column=name, count=1
    ).at(f"/x/{name}")
    assert str(error) == f"/x/{name}: Column {name!r} is NULL in 1 row of /w/{name}."


def test_context_that_json_has_not_travels_as_text() -> None:
    back = decode_result(encode_result(TaskFailure(error=NoSpace("full", path=b"\xff", count=1))))
    assert isinstance(back, TaskFailure)
    assert back.error.context == {"path": "b'\\xff'", "count": 1}


def test_an_error_class_of_a_newer_release_becomes_the_base_class() -> None:
    data = encode_result(TaskFailure(error=NoSpace("full")))
    back = decode_result(data.replace(b"NoSpace", b"NewKind"))
    assert isinstance(back, TaskFailure)
    assert type(back.error) is PaimonStreamError


def test_a_result_of_version_1_says_nothing_of_the_size_of_rows() -> None:
    data = bytearray(encode_result(RESULT))
    size_of_rows = struct.pack(">q", RESULT.row_bytes)
    assert data.count(size_of_rows) == 1
    data[4] = 1
    assert decode_result(bytes(data).replace(size_of_rows, b"")) == replace(
        RESULT, row_bytes=0, widest_row=0
    )


def test_a_newer_version_is_refused() -> None:
    data = bytearray(encode_result(RESULT))
    data[4] = 9
    with pytest.raises(UnknownVersion):
        decode_result(bytes(data))


@pytest.mark.parametrize("data", [b"", b"PSTR", pickle.dumps(1), b"x" * 100])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        decode_result(data)


@pytest.mark.parametrize(
    "result", [RESULT, TaskFailure(error=NoSpace("full", path="x")), TaskTooWide()]
)
def test_every_cut_is_refused(result: Answer) -> None:
    data = encode_result(result)
    for end in range(len(data)):
        with pytest.raises(FormatError):
            decode_result(data[:end])
