"""Bytes made to hurt: reading costs time and memory in proportion to their number, and ends in
`FormatError` or a value, never otherwise."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import thread_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_stream.errors import FormatError
from paimon_stream.format.binary_row import decode_row, encode_row
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import DataFileMeta, DeletionRange, IndexFileMeta
from paimon_stream.format.file_rows import decode_data_file, encode_data_file
from paimon_stream.format.types import parse_type
from tests.kits.seeds import examples

VECTORS = Path(__file__).parent.parent / "vectors"
MESSAGES = [path.read_bytes() for path in sorted(VECTORS.glob("commit_message_*.bin"))]
PEAK_PER_BYTE = 40
SECONDS_PER_MEGABYTE = 20.0

FILE = DataFileMeta(
    file_name="data-1.parquet",
    file_size=10,
    row_count=1,
    min_sequence_number=0,
    max_sequence_number=0,
    schema_id=0,
    creation_time=0,
)


def refused(read: Callable[[bytes], object], data: bytes) -> bool:
    """Whether `FormatError` came, at a cost in proportion to the bytes.

    The time is the CPU time of this thread, because other processes may hold the cores. What other
    threads of this process allocate meanwhile is counted, too. So only a peak that is there each
    time counts.
    """
    for _ in range(5):
        answer, peak, spent = measured(read, data)
        assert spent < 1 + SECONDS_PER_MEGABYTE * len(data) / 2**20
        if peak < 100_000 + PEAK_PER_BYTE * len(data):
            return answer
    raise AssertionError(f"{len(data)} bytes took {peak} bytes of memory each time")


def measured(read: Callable[[bytes], object], data: bytes) -> tuple[bool, int, float]:
    """Whether `FormatError` came, the peak of memory in bytes, and the seconds of this thread."""
    tracemalloc.start()
    began = thread_time()
    try:
        read(data)
        answer = False
    except FormatError:
        answer = True
    finally:
        spent, (_, peak) = thread_time() - began, tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return answer, peak, spent


def array_of_one_piece(count: int, size: int) -> bytes:
    """An array whose elements all are the same bytes inside it."""
    head = 4 + (count + 31) // 32 * 4
    start = head + 8 * count
    slots = struct.pack("<ii", size, start) * count
    return struct.pack("<i", count) + bytes(head - 4) + slots + b"x" * size


def with_names(array: bytes) -> bytes:
    """The row of a data file whose `value_stats_cols` are this array."""
    row = bytearray(encode_data_file(replace(FILE, value_stats_cols=("a name long enough",))))
    slot = 8 + 8 * 16
    at = len(row)
    struct.pack_into("<ii", row, slot, len(array), at)
    return bytes(row) + array


def in_message(row: bytes) -> bytes:
    """A message with one new file of that row."""
    head = CommitMessage(partition=bytes(12), bucket=0, total_buckets=1).serialize()[:25]
    return head + struct.pack(">ii", 1, len(row)) + row + bytes(9 * 4)


def test_the_frame_used_here_is_that_of_a_real_message() -> None:
    message = CommitMessage(partition=bytes(12), bucket=0, total_buckets=1, new_files=(FILE,))
    assert in_message(encode_data_file(FILE)) == message.serialize()


def test_many_names_that_are_one_piece_are_refused() -> None:
    data = in_message(with_names(array_of_one_piece(count=20_000, size=200_000)))
    assert refused(CommitMessage.deserialize, data)


@pytest.mark.parametrize(
    "element", ["STRING", "BYTES", "ARRAY<INT>", "ROW<a STRING>", "MAP<INT, STRING>"]
)
def test_an_array_of_elements_that_are_one_piece_is_refused(element: str) -> None:
    array = array_of_one_piece(count=10_000, size=100_000)
    row = bytes(8) + struct.pack("<ii", len(array), 16) + array
    assert refused(lambda data: decode_row([parse_type(f"ARRAY<{element}>")], data), row)


@pytest.mark.parametrize("claimed", [2**31 - 1, 10**6, -1, -(2**31)])
@pytest.mark.parametrize("at", range(10))
def test_a_list_that_claims_too_many_entries_is_refused_at_once(claimed: int, at: int) -> None:
    data = bytearray(CommitMessage(partition=bytes(12), bucket=0, total_buckets=1).serialize())
    struct.pack_into(">i", data, 25 + 4 * at, claimed)
    assert refused(CommitMessage.deserialize, bytes(data))


@pytest.mark.parametrize("claimed", [2**31 - 1, 10**6, -1])
def test_bytes_that_claim_too_many_messages_are_refused(claimed: int) -> None:
    assert refused(CommitMessage.deserialize_all, struct.pack(">i", claimed) + bytes(1000))


def test_a_large_message_of_real_entries_stays_in_bounds() -> None:
    index = IndexFileMeta(
        index_type="DELETION_VECTORS",
        file_name="index-1",
        file_size=1,
        row_count=2000,
        deletions=tuple(
            DeletionRange(data_file=f"data-{n:040}", offset=n, length=1, cardinality=1)
            for n in range(2000)
        ),
    )
    files = tuple(replace(FILE, file_name=f"data-{n:040}.parquet") for n in range(2000))
    message = CommitMessage(
        partition=bytes(12), bucket=0, total_buckets=1, new_files=files, new_index_files=(index,)
    )
    data = message.serialize()
    assert not refused(CommitMessage.deserialize, data)
    assert CommitMessage.deserialize(data) == message


@given(st.sampled_from(MESSAGES), st.data())
@settings(deadline=None, max_examples=examples(50, 1500))
def test_a_damaged_message_is_refused_or_read_in_bounds(whole: bytes, data: st.DataObject) -> None:
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    cut = data.draw(st.just(len(damaged)) | st.integers(0, len(damaged)))
    refused(CommitMessage.deserialize, bytes(damaged[:cut]))


@given(st.binary(max_size=600))
@settings(deadline=None)
def test_any_bytes_are_refused_or_read_in_bounds(data: bytes) -> None:
    for read in (CommitMessage.deserialize, CommitMessage.deserialize_all, decode_data_file):
        refused(read, data)


ROW_TYPES = [
    parse_type(t)
    for t in ("ARRAY<ROW<a STRING, b ARRAY<BYTES>>>", "MAP<STRING, ROW<d DECIMAL(30, 2)>>")
]
ROW = encode_row(
    ROW_TYPES, [[("a name", [b"0123456789", None])] * 3, [("key", (None,)), ("k2", None)]]
)


@given(st.data())
@settings(deadline=None, max_examples=examples(60, 2000))
def test_a_damaged_nested_row_is_refused_or_read_in_bounds(data: st.DataObject) -> None:
    damaged = bytearray(ROW)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    refused(lambda row: decode_row(ROW_TYPES, row), bytes(damaged))
