"""Deletion vectors: every form of bitmap is read, and nothing that is damaged passes for one."""

from __future__ import annotations

import struct
from binascii import crc32
from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from paimon_stream.errors import CorruptMetadata
from paimon_stream.format.deletion_vectors import (
    VERSION,
    Positions,
    deleted_positions,
    encode_vector_32,
    encode_vector_64,
)
from paimon_stream.format.entries import DeletionRange
from tests.kits.params import one_in

OF_JAVA = {
    "32 bits": "01 0000001a 5e43f2d0 3a30000001000000000002001000000001000300 0900 5f27dee7",
    "64 bits": "01 00000026 d1d33964 0100000000000000 00000000 3a300000010000000000020010000000010003000900 f62b1235",
}
"""The positions 1, 3 and 9, as Java writes them."""


def file_of(bitmap: bytes) -> tuple[bytes, int]:
    """An index file with one vector of 32 bits, and the length in its entry."""
    record = struct.pack(">i", 1581511376) + bitmap
    return b"\x01" + struct.pack(">i", len(record)) + record + struct.pack(
        ">I", crc32(record)
    ), len(record)


def read(data: bytes, length: int, rows: int, cardinality: int | None = None) -> list[int]:
    place = DeletionRange(data_file="f", offset=1, length=length, cardinality=cardinality)
    return list(deleted_positions(data, place, rows, "index/i").tolist())


@pytest.mark.parametrize("name", OF_JAVA)
def test_javas_bytes_are_read(name: str) -> None:
    data = bytes.fromhex(OF_JAVA[name].replace(" ", ""))
    length = 26 if name == "32 bits" else 46
    assert read(data, length, 10, 3) == [1, 3, 9]
    for rows, cardinality in ((9, 3), (10, 2)):
        with pytest.raises(CorruptMetadata, match="would come back"):
            read(data, length, rows, cardinality)


@pytest.mark.parametrize("name", OF_JAVA)
def test_no_damaged_byte_passes(name: str) -> None:
    data = bytes.fromhex(OF_JAVA[name].replace(" ", ""))
    length = 26 if name == "32 bits" else 46
    for place in range(len(data)):
        for changed in (data[:place], data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]):
            with pytest.raises(CorruptMetadata):
                read(changed, length, 10, 3)


def container(kind: str, values: list[int]) -> bytes:
    if kind == "array":
        return np.array(values, "<u2").tobytes()
    if kind == "bitmap":
        bits = np.zeros(1 << 16, np.uint8)
        bits[values] = 1
        return np.packbits(bits, bitorder="little").tobytes()
    starts = [one for one in values if one - 1 not in values]
    ends = [one for one in values if one + 1 not in values]
    runs = [(start, end - start) for start, end in zip(starts, ends, strict=True)]
    return struct.pack("<H", len(runs)) + np.array(runs, "<u2").tobytes()


@pytest.mark.parametrize("seed", one_in(4, range(40)))
def test_all_containers_are_read(seed: int) -> None:
    dice = Random(seed)
    count, with_runs = dice.randint(1, 6), dice.random() < 0.6
    keys = sorted(dice.sample(range(20), count))
    header, body, flags, expected = b"", b"", [], []
    for key in keys:
        kind = dice.choice(["array", "bitmap", *["runs"] * (2 * with_runs)])
        few = dice.randint(1, 4096) if kind != "bitmap" else dice.randint(4097, 65536)
        values = (
            sorted(dice.sample(range(1 << 16), few))
            if kind != "runs"
            else sorted({*range(7, 7 + few), 9_999})
        )
        flags.append(kind == "runs")
        header += struct.pack("<HH", key, len(values) - 1)
        body += container(kind, values)
        expected += [(key << 16) + one for one in values]
    if with_runs:
        start = (
            struct.pack("<I", 12347 | (count - 1) << 16)
            + np.packbits(flags, bitorder="little").tobytes()
        )
        offsets = bytes(4 * count) if count >= 4 else b""
    else:
        start, offsets = struct.pack("<II", 12346, count), bytes(4 * count)
    data, length = file_of(start + header + offsets + body)
    assert read(data, length, 20 << 16, len(expected)) == expected


@pytest.mark.parametrize("encode", [encode_vector_32, encode_vector_64])
@pytest.mark.parametrize("marked", [1, 4095, 4096, 4097, 65_536, 65_537])
def test_what_is_written_is_read_where_a_container_takes_another_form(
    marked: int, encode: Callable[[Positions], tuple[bytes, int]]
) -> None:
    positions = np.arange(marked, dtype=np.int64) + 65_536
    record, length = encode(positions)
    assert read(VERSION + record, length, 200_000, marked) == positions.tolist()


def test_a_few_bytes_cannot_mark_more_rows_than_the_file_has() -> None:
    """A run of 65,536 rows takes four bytes, so such vectors could fill the memory."""
    keys = 4000
    start = struct.pack("<I", 12347 | (keys - 1) << 16) + b"\xff" * (keys // 8)
    header = b"".join(struct.pack("<HH", key, 65535) for key in range(keys))
    data, length = file_of(
        start + header + bytes(4 * keys) + struct.pack("<HHH", 1, 0, 65535) * keys
    )
    with pytest.raises(CorruptMetadata, match="262144000 rows of 1000"):
        read(data, length, 1000)


def test_a_run_does_not_leave_its_container() -> None:
    header = struct.pack("<I", 12347) + b"\x01" + struct.pack("<HH", 0, 5)
    data, length = file_of(header + struct.pack("<HHH", 1, 65535, 5))
    with pytest.raises(CorruptMetadata, match="other values"):
        read(data, length, 70_000)


@pytest.mark.parametrize("highs", [[0xFFFFFFFF], [1], [0, 0], list(range(20_000))])
def test_parts_lie_within_the_rows_of_the_file(highs: list[int]) -> None:
    """Without a bound, the time for many empty parts would grow with their square."""
    parts = b"".join(struct.pack("<III", high, 12346, 0) for high in highs)
    record = struct.pack("<iq", 1681511377, len(highs)) + parts
    data = b"\x01" + struct.pack(">i", len(record)) + record + struct.pack(">I", crc32(record))
    with pytest.raises(CorruptMetadata, match="not in order, or beyond"):
        read(data, len(record) + 8, 10)
