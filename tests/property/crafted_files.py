"""Crafted files: small ones that would need much memory or time, or raise an error that is not
ours.

Each case reads one such file as the package does. `tests/kits/limited.py` runs them.
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
import os
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from paimon_stream.format.avro_file import MOST_PLAIN, AvroBlock, compressor, encode_file, zigzag
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import EMPTY_ROW, FileKind, ManifestEntry, SimpleStats
from paimon_stream.format.index_manifest import decode_index_manifest
from paimon_stream.format.json_text import encode_checksummed
from paimon_stream.format.manifest_avro import (
    INDEX_MANIFEST_SCHEMA,
    MANIFEST_SCHEMA,
    decode_manifest,
    decode_manifest_list,
    entries_bytes,
)
from paimon_stream.format.parquet_footer import declare_twelve_bytes
from paimon_stream.format.schema_json import decode_schema
from paimon_stream.format.snapshot_json import decode_snapshot
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.maintenance.tags import tagged_until
from paimon_stream.read.avro_rows import read_avro
from paimon_stream.read.orc_footer import OrcFooter, plain_bytes
from paimon_stream.spark.checkpoint import open_checkpoint
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.consumers import consumers
from paimon_stream.table.journal import Journal, decode_journal_entry
from paimon_stream.table.snapshots import SnapshotStore
from tests.kits.commits import data_file

TABLE: Final = Path(__file__).parent.parent / "golden" / "all_types" / "db.db" / "t"
SCHEMA: Final = (TABLE / "schema" / "schema-0").read_bytes()
SNAPSHOT: Final = (TABLE / "snapshot" / "snapshot-1").read_bytes()
DEEP: Final = 100_000
BOMB: Final = 1 << 31
"""The plain size of what is compressed below, in bytes."""

Case = Callable[[str], Any]


def _with_value(content: bytes, key: str, text: str) -> bytes:
    return json.dumps({**json.loads(content), key: "?"}).replace('"?"', text).encode()


def _texts(content: bytes, key: str, decode: Callable[[bytes], Any]) -> dict[str, Case]:
    """The cases of a file that is JSON."""
    made = {
        "deeply nested": b"[" * DEEP + b"]" * DEEP,
        "deeply nested in a field": _with_value(content, key, "[" * 900 + "]" * 900),
        "infinite": _with_value(content, key, "Infinity"),
        "too large a number": _with_value(content, key, "1e999"),
        "a number of 5,000 digits": _with_value(content, key, "9" * 5000),
        "a number of 40 digits": _with_value(content, key, "9" * 40),
        "a lone surrogate": _with_value(content, key, r'"\ud800"'),
        "ten million lists": b'{"a":[' + b"[]," * 10_000_000 + b"[]]}",
        "not UTF-8": b"\xff\xfe\xfd",
    }
    return {name: partial(_decoded, decode, data) for name, data in made.items()}


def _decoded(decode: Callable[[bytes], Any], data: bytes, _: str) -> None:
    decode(data)


def _bombed(codec: str) -> bytes:
    """A few bytes that are `BOMB` zeros when they are decompressed."""
    some = bytes(1 << 20)
    many = BOMB >> 20
    match codec:
        case "zstandard":
            out = _Kept()
            with pa.CompressedOutputStream(out, "zstd") as target:
                for _ in range(many):
                    target.write(some)
            return out.getvalue()
        case "deflate":
            stream: Any = zlib.compressobj(wbits=-15)
            once = stream.compress(some) + stream.flush(zlib.Z_FULL_FLUSH)
            again = stream.compress(some) + stream.flush(zlib.Z_FULL_FLUSH)
            return once + again * (many - 1) + stream.flush()
        case "bzip2":
            return bz2.compress(some * 16) * (many // 16)
        case _:
            return lzma.compress(some * 16, preset=0) * (many // 16)


class _Kept(io.BytesIO):
    def close(self) -> None: ...


def _manifest(schema: Any, records: int, plain: bytes, codec: str = "null") -> bytes:
    return encode_file(json.dumps(schema).encode(), codec, [AvroBlock(records, plain)])


def _bomb(codec: str) -> bytes:
    return _manifest(MANIFEST_SCHEMA, 1000, _bombed(codec), codec)


def _with_unknown(type_: Any, value: bytes) -> bytes:
    """A manifest of one record that begins with an unknown field of this type."""
    fields = [{"name": "_OTHER", "type": type_}, *MANIFEST_SCHEMA["fields"]]
    return _manifest({**MANIFEST_SCHEMA, "fields": fields}, 1, value)


def _nested_arrays(depth: int) -> Any:
    type_: Any = "int"
    for _ in range(depth):
        type_ = {"type": "array", "items": type_}
    return type_


def _entries(blocks: int, **changed: Any) -> bytes:
    """A manifest of equal blocks, each with one entry. They compress a thousand times and more."""
    codec = compressor("zstd", 1)
    entry = ManifestEntry(
        kind=FileKind.ADD,
        partition=EMPTY_ROW,
        bucket=0,
        total_buckets=-1,
        file=replace(data_file("data-a.parquet", 1), **changed),
    )
    block = AvroBlock(1, codec.compress(entries_bytes([entry])))
    return encode_file(json.dumps(MANIFEST_SCHEMA).encode(), codec.codec, [block] * blocks)


def _counts(*some: int | None) -> SimpleStats:
    """A million null counts."""
    return SimpleStats(min_values=b"", max_values=b"", null_counts=some * (1_000_000 // len(some)))


def _dense(type_: Any) -> bytes:
    """256 MiB of values of an unknown field, each of one byte."""
    codec = compressor("zstd", 1)
    fields = [
        {"name": "_OTHER", "type": {"type": "array", "items": type_}},
        *MANIFEST_SCHEMA["fields"],
    ]
    many = MOST_PLAIN - 1000
    entry = ManifestEntry(
        kind=FileKind.ADD,
        partition=b"",
        bucket=0,
        total_buckets=1,
        file=data_file("data-a.parquet", 1),
    )
    block = AvroBlock(1, codec.compress(zigzag(many) + bytes(many + 1) + entries_bytes([entry])))
    return encode_file(
        json.dumps({**MANIFEST_SCHEMA, "fields": fields}).encode(), codec.codec, [block] * 16
    )


def _ranges() -> bytes:
    """An index manifest of 30 blocks, each of one entry with half a million ranges of deleted
    rows.
    """
    codec, many = compressor("zstd", 1), 500_000
    head = b"\2\0\0\0" + b"\2D" + b"\2i" + b"\2\2" + b"\2"
    plain = head + zigzag(many) + b"\2\0\0\0\0" * many + b"\0" + b"\0\0"
    block = AvroBlock(1, codec.compress(plain))
    return encode_file(json.dumps(INDEX_MANIFEST_SCHEMA).encode(), codec.codec, [block] * 30)


def _endless_number() -> bytes:
    codec = compressor("zstd", 1)
    return _manifest(MANIFEST_SCHEMA, 1, codec.compress(b"\xff" * (MOST_PLAIN - 1)), codec.codec)


_CHAIN: Final = {
    "type": "record",
    "name": "Chain",
    "fields": [{"name": "next", "type": ["null", "Chain"]}],
}


def _manifests() -> dict[str, Callable[[], bytes]]:
    many = zigzag(1 << 31) + b"\0"
    nothing = {"type": "record", "name": "Nothing", "fields": []}
    return {
        "an array of two billion nulls": lambda: _with_unknown(
            {"type": "array", "items": "null"}, many
        ),
        "an array of two billion empty records": lambda: _with_unknown(
            {"type": "array", "items": nothing}, many
        ),
        "an array of two billion values of no bytes": lambda: _with_unknown(
            {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, many
        ),
        "records that nest without end": lambda: _with_unknown(
            _CHAIN, zigzag(1) * 3_000_000 + b"\0"
        ),
        "twelve arrays": lambda: _with_unknown(_nested_arrays(12), b"\0"),
        "a thousand arrays": lambda: _with_unknown(_nested_arrays(900), b"\0"),
        "a billion records": lambda: _manifest(MANIFEST_SCHEMA, 1 << 30, bytes(100)),
        "three million empty arrays": lambda: _with_unknown(
            _nested_arrays(2), zigzag(3_000_000) + bytes(3_000_001)
        ),
        "a number of sixteen million bytes": _endless_number,
        "256 MiB of flags": lambda: _dense("boolean"),
        "256 MiB of arrays": lambda: _dense({"type": "array", "items": "long"}),
        "256 MiB of records": lambda: _dense(
            {"type": "record", "name": "R", "fields": _columns("null", "boolean")}
        ),
        "256 MiB of records without values": lambda: _dense(
            {"type": "record", "name": "R", "fields": _columns(*["null"] * 15, "boolean")}
        ),
        "null counts that differ": lambda: _entries(250, value_stats=_counts(None, 0)),
        "null counts that are equal": lambda: _entries(250, value_stats=_counts(None)),
        "names of no bytes": lambda: _entries(250, extra_files=("",) * 1_000_000),
        "two gigabytes of zstd": lambda: _bomb("zstandard"),
        "two gigabytes of xz": lambda: _bomb("xz"),
        "two gigabytes of deflate": lambda: _bomb("deflate"),
        "two gigabytes of bzip2": lambda: _bomb("bzip2"),
        "a gigabyte of snappy": lambda: _manifest(
            MANIFEST_SCHEMA,
            1000,
            b"\x80\x80\x80\x80\x04" + b"\xfe\x01\x00" * (1 << 24) + b"1234",
            "snappy",
        ),
        "a header of four billion bytes": lambda: b"Obj\x01" + zigzag(1) + zigzag(1 << 32) + b"a",
        "a schema nested deeply": lambda: encode_file(b"[" * DEEP, "null", []),
    }


def _of_manifest(make: Callable[[], bytes], decode: Callable[[bytes, str], Any], _: str) -> None:
    decode(make(), "/t/manifest/m")


def _type(text: str, _: str) -> None:
    parse_type(text)


def _types() -> dict[str, Case]:
    texts = {
        "a timestamp and 1,500 blanks": "TIMESTAMP" + " " * 1500 + "!",
        "a timestamp and a million blanks": "TIMESTAMP" + " " * 1_000_000 + "!",
        "a precision of 5,000 digits": f"CHAR({'9' * 5000})",
        "a hundred thousand arrays": "ARRAY<" * DEEP + "INT" + ">" * DEEP,
        "an array without its end": "ARRAY<" * DEEP,
        "a megabyte of commas": "ROW<" + "," * 1_000_000 + ">",
        "a megabyte of backticks": "ROW<" + "`" * 1_000_001 + ">",
    }
    return {name: partial(_type, text) for name, text in texts.items()}


def _sparse(path: str, gigabytes: int = 100) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.truncate(gigabytes << 30)


def _a_table(folder: str) -> LocalStorage:
    storage = LocalStorage(folder)
    storage.write("snapshot/snapshot-1", SNAPSHOT)
    return storage


def _latest(make: Callable[[str], object], folder: str) -> None:
    storage = _a_table(folder)
    make(f"{folder}/snapshot/LATEST")
    found = SnapshotStore(storage).latest()
    assert found is not None and found.id == 1


def _read(
    make: Callable[[str], object], ask: Callable[[str], object], folder: str, path: str
) -> None:
    os.makedirs(os.path.dirname(f"{folder}/{path}"), exist_ok=True)
    make(f"{folder}/{path}")
    ask(folder)


def _a_file(path: str, make: Callable[[str], object], ask: Callable[[str], object]) -> Case:
    return lambda folder: _read(make, ask, folder, path)


def _content(data: bytes) -> Callable[[str], object]:
    return lambda path: Path(path).write_bytes(data)


def _at_zero(path: str) -> None:
    os.symlink("/dev/zero", path)


def _consumers(folder: str) -> None:
    assert consumers(LocalStorage(folder)) == {"a": 0}


def _no_journal(folder: str) -> None:
    assert Journal(LocalStorage(folder), "u").batches() == []


def _journal(body: dict[str, Any]) -> Case:
    return lambda _: decode_journal_entry(encode_checksummed("journal", body), "/t/j")


def _checkpoint(folder: str) -> None:
    checkpoint = open_checkpoint(folder)
    checkpoint.kind()
    assert checkpoint.watermark(0) is None and checkpoint.query_id() is None


def _no_date(text: str, _: str) -> None:
    assert tagged_until(text.encode()) is None


_MADE: Final = '"tagCreateTime": [2026, 1, 1, 0, 0]'


def _columns(*types: Any) -> list[dict[str, Any]]:
    return [{"name": f"c{i}", "type": one} for i, one in enumerate(types)]


def _rows(records: int, plain: bytes, *types: Any) -> Case:
    """Reads an Avro data file."""
    schema = {"type": "record", "name": "r", "fields": _columns(*types)}

    def case(_: str) -> None:
        source = pa.BufferReader(_manifest(schema, records, plain))
        for _chunk in read_avro(
            source, "/t/f.avro", [DataField(id=0, name="c0", type=parse_type("INT"))], 9
        ):
            pass

    return case


def _orc(data: bytes) -> Case:
    return lambda _: OrcFooter.read(pa.BufferReader(data))


def _thrift(data: bytes) -> Case:
    return lambda _: declare_twelve_bytes(data)


def _nested_orc() -> bytes:
    """An ORC file of one million types, each a child of the one before."""
    out = b""
    for i in range(20_000):
        child = bytes([0x10]) + _varint(i + 1) if i < 19_999 else b""
        one = b"\x08\x0c" + child
        out += b"\x22" + _varint(len(one)) + one
    post = b"\x08" + _varint(len(out)) + b"\x10\x00" + b"\x82\xf4\x03\x03ORC"
    return out + post + bytes([len(post)])


def _varint(number: int) -> bytes:
    made = b""
    while number > 0x7F:
        made += bytes([number & 0x7F | 0x80])
        number >>= 7
    return made + bytes([number])


def _below(_: str) -> None:
    footer = OrcFooter.read(pa.BufferReader(_nested_orc()))
    for _column in footer.below(0):
        pass


def _zlib_chunk(_: str) -> None:
    packed = _bombed("deflate")[: (1 << 23) - 1]
    plain_bytes((len(packed) << 1).to_bytes(3, "little") + packed, "deflate", 1 << 30)


CASES: Final[dict[str, Case]] = {
    **{
        f"snapshot: {k}": v
        for k, v in _texts(SNAPSHOT, "id", lambda d: decode_snapshot(d, "/t/f")).items()
    },
    **{
        f"schema: {k}": v
        for k, v in _texts(SCHEMA, "fields", lambda d: decode_schema(d, "/t/f")).items()
    },
    **{
        f"manifest: {k}": partial(_of_manifest, v, decode_manifest) for k, v in _manifests().items()
    },
    "manifest list: an array of two billion nulls": partial(
        _of_manifest, _manifests()["an array of two billion nulls"], decode_manifest_list
    ),
    "index manifest: a billion records": partial(
        _of_manifest, _manifests()["a billion records"], decode_index_manifest
    ),
    "index manifest: millions of ranges": partial(_of_manifest, _ranges, decode_index_manifest),
    **{f"type: {k}": v for k, v in _types().items()},
    "LATEST: sparse, 100 GB": partial(_latest, _sparse),
    "LATEST: a FIFO": partial(_latest, os.mkfifo),
    "LATEST: a folder": partial(_latest, os.mkdir),
    "LATEST: /dev/zero": partial(_latest, _at_zero),
    "LATEST: 4,000 digits": partial(_latest, _content(b"9" * 4000)),
    "snapshot: sparse, 100 GB": _a_file(
        "snapshot/snapshot-1", _sparse, lambda folder: SnapshotStore(LocalStorage(folder)).latest()
    ),
    "snapshot: a FIFO": _a_file(
        "snapshot/snapshot-1", os.mkfifo, lambda folder: SnapshotStore(LocalStorage(folder)).get(1)
    ),
    "data file: a FIFO": _a_file(
        "f.parquet", os.mkfifo, lambda folder: LocalStorage(folder).open_input("f.parquet")
    ),
    "consumer: deeply nested": _a_file("consumer/consumer-a", _content(b"[" * DEEP), _consumers),
    "consumer: infinite": _a_file(
        "consumer/consumer-a", _content(b'{"nextSnapshot": Infinity}'), _consumers
    ),
    "consumer: sparse, 100 GB": _a_file("consumer/consumer-a", _sparse, _consumers),
    "journal: named ²": _a_file("_paimon_stream/u/²", _content(b""), _no_journal),
    "journal: infinite": _journal({"messageVersion": float("inf")}),
    "journal: deeply nested": partial(
        _decoded,
        lambda data: decode_journal_entry(data, "/t/f"),
        encode_checksummed("journal", {"a": "?"}),
    ),
    "tag: kept for a huge time": partial(_no_date, f'{{{_MADE}, "tagTimeRetained": 1e999999999}}'),
    "tag: deeply nested": partial(_no_date, "[" * DEEP),
    "tag: kept for a number of 5,000 digits": partial(
        _no_date, f'{{{_MADE}, "tagTimeRetained": {"9" * 5000}}}'
    ),
    "checkpoint: metadata deeply nested": _a_file("metadata", _content(b"[" * DEEP), _checkpoint),
    "checkpoint: metadata a FIFO": _a_file("metadata", os.mkfifo, _checkpoint),
    "checkpoint: metadata sparse, 100 GB": _a_file("metadata", _sparse, _checkpoint),
    "checkpoint: offsets sparse, 100 GB": _a_file("offsets/0", _sparse, _checkpoint),
    "checkpoint: offsets deeply nested": _a_file(
        "offsets/0", _content(b"v1\n" + b"[" * DEEP), _checkpoint
    ),
    "Avro rows: a billion records of no bytes": _rows(1 << 30, b"", "null"),
    "Avro rows: two billion nulls": _rows(
        1, zigzag(1 << 31) + b"\0", {"type": "array", "items": "null"}
    ),
    "Avro rows: records that nest without end": _rows(1, zigzag(1) * 3_000_000 + b"\0", _CHAIN),
    "Avro rows: a fixed value of a terabyte": _rows(
        1, b"", {"type": "fixed", "name": "f", "size": 1 << 40}
    ),
    "ORC: children that nest deeply": _below,
    "ORC: a chunk of two gigabytes": _zlib_chunk,
    "ORC: a footer of nothing": _orc(b"ORC" + bytes(300)),
    "Parquet footer: a list of a billion": _thrift(
        b"\x19\xf1" + b"\xff\xff\xff\xff\x0f" + bytes(1000)
    ),
    "Parquet footer: a list of a billion flags": _thrift(
        b"\x29\xfc" + _varint(1 << 40) + bytes(100)
    ),
    "Parquet footer: structs nested deeply": _thrift(b"\x1c" * DEEP),
    "commit message: two billion files": lambda _: CommitMessage.deserialize_all(
        b"\x7f\xff\xff\xff" + bytes(99)
    ),
}
"""By name; each gets an empty folder."""

_LASTING: Final = {
    "index manifest: millions of ranges",
    "manifest: 256 MiB of arrays",
    "manifest: 256 MiB of flags",
    "manifest: 256 MiB of records",
    "manifest: null counts that are equal",
    "manifest: null counts that differ",
}
LASTING: Final = {name: case for name, case in CASES.items() if name in _LASTING}
"""Those that take the processor for seconds before their bound ends them."""
QUICK: Final = {name: case for name, case in CASES.items() if name not in _LASTING}
"""The others, which `make test` reads."""
