"""Reads the metadata of a table without a line of this package: Avro by fastavro, snapshots by
json, and rows of one column by hand. So a mistake that our encoders and decoders share is seen.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import fastavro
import pyarrow as pa

from tests.simulation import rules
from tests.simulation.state import Violation

Record = Mapping[str, Any]

_HEADER: Final = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "Sync", "size": 16}},
        ],
    }
)
_BLOCK: Final = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Block",
        "fields": [
            {"name": "count", "type": "long"},
            {"name": "data", "type": "bytes"},
            {"name": "sync", "type": {"type": "fixed", "name": "SyncAgain", "size": 16}},
        ],
    }
)
_REMEMBERED: Final = 8192
_MARK: Final = 16
"""The bytes of the mark at the end of the header and of each block, so also of the file."""


@lru_cache(8)
def _schema(text: bytes) -> Any:
    """The schema of a record whose only field is an array of records. It has the bytes of that
    array. fastavro would parse the schema of an array again each time, and that of a record not.
    """
    items = {"type": "array", "items": json.loads(text)}
    whole = {"type": "record", "name": "Whole", "fields": [{"name": "records", "type": items}]}
    return fastavro.parse_schema(whole)


@lru_cache(8)
def _header(before_mark: bytes) -> tuple[Any, bytes]:
    """The schema, as `_schema` gives it, and the codec in a header, of which only the mark at its
    end differs from file to file.
    """
    file = io.BytesIO(before_mark + bytes(_MARK))
    header: Any = fastavro.schemaless_reader(file, _HEADER, None)
    assert header["magic"] == b"Obj\1" and not file.read()
    return _schema(header["meta"]["avro.schema"]), header["meta"]["avro.codec"]


@lru_cache(_REMEMBERED)
def records_of(data: bytes) -> tuple[Record, ...]:
    """The records of an Avro file. Raises `Violation` for a file that ends in the middle."""
    try:
        return _records_of(data)
    except EOFError as torn:
        raise Violation(rules.WHOLE, f"a metadata file ends in the middle: {torn}") from torn


def _records_of(data: bytes) -> tuple[Record, ...]:
    """fastavro's own reader of files needs a library for zstd, and parses the schema each time. A
    block is read as an array: its count is there, and the mark of the end is not. The mark of the
    file is found at its end.
    """
    file = io.BytesIO(data)
    mark = data[-_MARK:]
    begin = data.index(mark)
    schema, codec = _header(data[:begin])
    file.seek(begin + _MARK)
    records: list[Record] = []
    while file.tell() < len(data):
        start = file.tell()
        block: Any = fastavro.schemaless_reader(file, _BLOCK, None)
        assert block["sync"] == mark
        plain = io.BytesIO(_number_at(data, start) + _plain(block["data"], codec) + b"\0")
        whole: Any = fastavro.schemaless_reader(plain, schema, None)
        some = whole["records"]
        assert len(some) == block["count"] and not plain.read()
        records += some
    return tuple(records)


def _number_at(data: bytes, start: int) -> bytes:
    """The bytes of a number: the last one is the first without its highest bit."""
    end = start
    while data[end] & 0x80:
        end += 1
    return data[start : end + 1]


def _plain(data: bytes, codec: bytes) -> bytes:
    if codec == b"null":
        return data
    assert codec == b"zstandard", codec
    plain: bytes = pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
    return plain


def text_in(row: bytes) -> str | None:
    """The only column of a serialized row, a text of at most seven bytes: four bytes of arity, one
    of the row's kind and seven of null bits, then the text, and its length in the last byte.
    """
    assert len(row) == 20 and row[:4] == b"\0\0\0\1", row
    return None if row[5] & 1 else row[12 : 12 + (row[19] & 0x7F)].decode()


def number_in(row: bytes) -> int:
    """The only column of a serialized row, a number of 64 bits."""
    assert len(row) == 20 and row[:4] == b"\0\0\0\1", row
    (number,) = struct.unpack("<q", row[12:20])
    return int(number)
