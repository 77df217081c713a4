"""Metadata, messages, rows and index files: good ones, which `tests/kits/fuzzing.py` changes at
random. Checksums are made right again where they would hide what is behind them, and compressed
parts are stored as they are.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np

from paimon_stream import errors
from paimon_stream.commit.table_cache import recorded_number
from paimon_stream.errors import (
    CorruptMetadata,
    FormatError,
    PaimonStreamError,
)
from paimon_stream.format import avro_file, file_rows, raw_bytes
from paimon_stream.format.avro_unknown import field_of_longs
from paimon_stream.format.binary_row import (
    decode_row,
    deserialize,
    deserialize_partition,
    encode_row,
    serialize,
)
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.deletion_vectors import (
    VERSION,
    deleted_positions,
    encode_vector_32,
    encode_vector_64,
    record_of,
)
from paimon_stream.format.entries import (
    EMPTY_ROW,
    HASH,
    DeletionRange,
    GlobalIndexMeta,
    IndexFileMeta,
    IndexManifestEntry,
    SimpleStats,
)
from paimon_stream.format.index_manifest import (
    DELETION_VECTORS,
    decode_index_manifest,
    encode_index_manifest,
)
from paimon_stream.format.json_text import encode_checksummed, parse_json
from paimon_stream.format.manifest_avro import (
    decode_manifest,
    decode_manifest_list,
    divided,
    encode_entries,
    manifest_of_blocks,
    read_manifest,
)
from paimon_stream.format.mentions import Mentions
from paimon_stream.format.partition_path import partition_path
from paimon_stream.format.snapshot_json import SnapshotRef, decode_snapshot, encode_snapshot
from paimon_stream.format.snapshot_marks import Marks
from paimon_stream.format.stats import (
    decode_stats,
    partition_bounds,
    row_order,
    schema_of_statistics,
)
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.maintenance.branches import read_branches
from paimon_stream.maintenance.expiring import ExpiringNotes
from paimon_stream.maintenance.forwarded import copy_stream
from paimon_stream.maintenance.pins import read_pins
from paimon_stream.maintenance.tags import read_tags, tagged_until
from paimon_stream.spark.checkpoint import open_checkpoint
from paimon_stream.storage.branch import branch_storage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.stream.batch_summary import BatchSummary, previous_of
from paimon_stream.table.branch_identity import read_identity
from paimon_stream.table.consumers import consumers
from paimon_stream.table.hash_index import hashes_of, index_file, read_index_file
from paimon_stream.table.journal import Journal, decode_journal_entry
from paimon_stream.table.layout import Layout, schema_path
from paimon_stream.table.partition_notes import note_path, read_notes
from paimon_stream.table.partition_value import partition_by_column
from paimon_stream.table.receipts import read_receipt, receipt_path
from paimon_stream.table.register import registered_writers
from paimon_stream.table.removals import copy_removals, note_restored, read_removals
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.write.task import (
    TaskFailure,
    TaskResult,
    TaskTooWide,
    decode_result,
    encode_result,
)
from tests.kits import newer_fields
from tests.kits.fuzzing import PATH, TESTS, Decoder, golden_files, never, of_bytes, of_file

# -- JSON
# -----------------------------------------------------------------------------------------------


def _checksummed(kind: str, body: bytes) -> bytes:
    """A file with a body that may be damaged, and the right checksum."""
    return f"paimon-stream {kind} 1 sha256:{hashlib.sha256(body).hexdigest()}\n".encode() + body


def _body(kind: str, content: dict[str, Any]) -> bytes:
    return encode_checksummed(kind, content).partition(b"\n")[2].removesuffix(b"\n")


_SNAPSHOTS: Final = golden_files("snapshot/snapshot-*")
_MESSAGES: Final = [
    path.read_bytes() for path in sorted((TESTS / "vectors").glob("commit_message_*.bin"))
]
_NUMBER: Final = (4).to_bytes(4, "big")
_MARKED: Final = encode_snapshot(
    replace(
        decode_snapshot(_SNAPSHOTS[0], PATH),
        properties={
            "paimon-stream.max-sequence": "12",
            "paimon-stream.files": "1",
            "paimon-stream.rows": "20",
            "paimon-stream.write-millis": "7",
            "paimon-stream.query-id": "q",
            "paimon-stream.previous": "1 batch=3 attempts=1 write=7",
        },
    )
)
_TAG: Final = (
    _SNAPSHOTS[0][:-2] + b',"tagCreateTime":[2026,1,2,3,4,5,6],"tagTimeRetained":86400.000000000}'
)
_JOURNAL: Final = {
    "batchId": 3,
    "messageVersion": 11,
    "messages": [],
    "stageUuids": ["a-b"],
    "abandoned": ["bucket-0/x"],
    "queryId": "q",
    "runId": "r",
    "checkpoint": "/c",
    "queryName": None,
    "offsetsHash": "h",
    "schemaDigest": "d",
    "schemaId": 0,
    "totalBuckets": 1,
    "base": {"id": 1, "nonce": "n"},
    "previous": {"batchId": 2, "snapshot": {"id": 1, "nonce": "n"}},
    "preparedMillis": 5,
    "overwrites": False,
}
_REGISTER: Final = {
    "user": "u",
    "queryId": "q",
    "checkpoint": "/c",
    "queryName": None,
    "schemaDigest": "d",
    "journalSince": 3,
    "givenUp": [[0, 1]],
    "asksNotes": True,
    "askedNotes": ["removed.1-a.json"],
    "passedOver": [3, 6, "manifest-list-a-1"],
    "earlierRuns": ["r"],
    "forwardedRuns": ["r"],
}
_RECEIPT: Final = {
    "identity": "load",
    "schemaDigest": "d",
    "kind": "overwrite",
    "replaced": "dt=a",
    "dynamic": False,
    "columns": ["dt", "id"],
    "givenRows": 3,
    "writtenRows": 3,
    "stoodMillis": 5,
    "snapshot": {"id": 1, "nonce": "n"},
}
_IDENTITY: Final = {"token": "t", "madeMillis": 5, "snapshot": {"id": 1, "nonce": "n"}}
_REMOVAL: Final = {
    "by": "rollback",
    "target": {"id": 1, "nonce": "n"},
    "millis": 5,
    "ended": True,
    "tookExpired": True,
    "removed": [
        {
            "snapshot": {"id": 2, "nonce": "m"},
            "uuids": [],
            "user": "u",
            "identifier": 3,
            "query": "q",
            "certain": True,
            "stood": True,
            "published": False,
        },
        {
            "snapshot": None,
            "uuids": ["a-b"],
            "user": "u",
            "identifier": 4,
            "query": None,
            "certain": False,
            "stood": False,
            "published": True,
        },
    ],
    "restored": [
        {
            "snapshot": {"id": 5, "nonce": "o"},
            "uuids": [],
            "user": "u",
            "identifier": 5,
            "query": "q",
            "certain": True,
        },
    ],
}


def _snapshot(data: bytes, path: str) -> None:
    snapshot = decode_snapshot(data, path)
    recorded_number(snapshot)
    BatchSummary.of(snapshot.properties)
    previous_of(snapshot.properties)
    Marks.of(snapshot.properties)


def _held(path: str, ask: Callable[[MemoryStorage], Any], data: bytes) -> None:
    """Writes a file and asks for what is in it."""
    storage = MemoryStorage()
    storage.write(path, data)
    ask(storage)


def _noted(body: bytes, path: str) -> None:
    storage = MemoryStorage()
    storage.write("_paimon_stream/expiring.1", _checksummed("expiry", body))
    try:
        assert all(
            one.id >= 0
            for pair in ExpiringNotes(storage).unfinished(SnapshotStore(storage))
            for one in pair
        )
        ExpiringNotes(storage).any_begun(SnapshotStore(storage), 0)
    except CorruptMetadata as raised:
        raise CorruptMetadata(f"{path} {raised}", path=path) from None


def _register(body: bytes, path: str) -> None:
    storage = MemoryStorage()
    storage.write("_paimon_stream/u/writer", _checksummed("writer", body))
    copy_stream(storage, storage, "_paimon_stream/u", [(None, "removed.1-a.json")])
    try:
        registered_writers(storage)
    except FormatError as raised:
        assert "_paimon_stream/u/writer" in str(raised)  # noqa: PT017
        raise type(raised)(f"{path} {raised}", path=path) from None


def _receipt(body: bytes) -> None:
    storage = MemoryStorage()
    storage.write(schema_path(0), b"any schema")
    storage.write(receipt_path("load"), _checksummed("receipt", body))
    read_receipt(storage, "load", SchemaStore(storage))


def _partitions(body: bytes) -> None:
    storage = MemoryStorage()
    storage.write(note_path("uuid"), _checksummed("partitions", body))
    read_notes(storage)


def _identity(body: bytes) -> None:
    storage = branch_storage(MemoryStorage(), "b")
    storage.write("_paimon_stream/identity.json", _checksummed("branch", body))
    read_identity(storage)


def _removals(body: bytes) -> None:
    """A note that cannot be read is a doubt, which names it."""
    for name, kind in (("removed.5-abcdefgh.json", "removal"), ("rolled-back.json", "rollbacks")):
        storage = MemoryStorage()
        storage.write(f"_paimon_stream/{name}", _checksummed(kind, body))
        notes = read_removals(storage)
        assert all(name in doubt for doubt in notes.doubts)
        notes.of_nonce("m"), notes.of_uuid("a-b"), notes.unfinished(SnapshotRef(id=1, nonce="n"))
        copy_removals(storage, MemoryStorage())
        note_restored(storage, [SnapshotRef(id=2, nonce="m")])


def _tags(storage: MemoryStorage) -> None:
    read_pins(storage)
    for read in (read_branches, read_tags):
        read(storage)


def _hint(data: bytes) -> None:
    storage = MemoryStorage()
    storage.write("snapshot/snapshot-1", _SNAPSHOTS[0])
    storage.write("snapshot/LATEST", data)
    found = SnapshotStore(storage).latest()
    assert found is not None and found.id == 1


def _checkpoint(name: str, good: bytes) -> Decoder:
    def prepare(folder: str) -> Callable[[bytes], object]:
        (Path(folder) / name).parent.mkdir(exist_ok=True)
        checkpoint = open_checkpoint(folder)

        def ask(data: bytes) -> None:
            (Path(folder) / name).write_bytes(data)
            checkpoint.kind()
            checkpoint.query_id()
            checkpoint.watermark(0)
            checkpoint.offsets_hash(0)

        return ask

    return Decoder(good=[good], prepare=prepare, raises=())


_JSON: Final[dict[str, Decoder]] = {
    "JSON": Decoder(good=[*_SNAPSHOTS, b"[1.5, {}]"], decode=parse_json, raises=(ValueError,)),
    "snapshot": of_file(_snapshot, [*_SNAPSHOTS, _MARKED]),
    "schema": Decoder(
        good=golden_files("schema/schema-0"),
        decode=partial(_held, "schema/schema-0", lambda storage: SchemaStore(storage).get(0)),
        naming="schema/schema-0",
    ),
    "tag": never(tagged_until, [_TAG]),
    "tags": Decoder(good=[_TAG], decode=partial(_held, "tag/tag-a", _tags), naming="tag/tag-a"),
    "pin": never(partial(_held, "tag/tag-paimon-stream-rollback-1-abcdefgh", _tags), [_TAG]),
    "table statistics": of_file(
        schema_of_statistics, [b'{"schemaId": 0, "colStats": {"a": {"x": 1}}}']
    ),
    "journal": Decoder(
        good=[_body("journal", _JOURNAL)],
        decode=lambda body: _held(
            "_paimon_stream/u/3",
            lambda storage: Journal(storage, "u").read(3),
            _checksummed("journal", body),
        ),
        raises=(FormatError,),
        naming="_paimon_stream/u/3",
    ),
    "journal without its checksum": of_file(
        decode_journal_entry, [encode_checksummed("journal", _JOURNAL)]
    ),
    "register": of_file(_register, [_body("writer", _REGISTER)]),
    "receipt": Decoder(
        good=[
            _body("receipt", _RECEIPT),
            _body("receipt", {**_RECEIPT, "snapshot": None, "givenRows": None, "dynamic": None}),
        ],
        decode=_receipt,
        naming=receipt_path("load"),
    ),
    "note of partitions": Decoder(
        good=[_body("partitions", {"folders": ["dt=mon", "dt=a%2Fb/x=1"]})],
        decode=_partitions,
        naming=note_path("uuid"),
    ),
    "identity of a branch": Decoder(
        good=[_body("branch", _IDENTITY), _body("branch", {**_IDENTITY, "snapshot": None})],
        decode=_identity,
        naming="_paimon_stream/identity.json",
    ),
    "notes of removals": never(
        _removals, [_body("removal", _REMOVAL), _body("rollbacks", {"nonces": ["m", "n"]})]
    ),
    "expiring note": of_file(
        _noted,
        [
            _body(
                "expiry", {"snapshot": _SNAPSHOTS[0].decode(), "following": {"id": 2, "nonce": "n"}}
            )
        ],
    ),
    "consumer": never(
        partial(_held, "consumer/consumer-a", consumers), [b'{\n  "nextSnapshot" : 5\n}']
    ),
    "hint": never(_hint, [b"1", b"12345"]),
    "checkpoint: metadata": _checkpoint("metadata", b'{"id":"3f6a"}'),
    "checkpoint: offsets": _checkpoint(
        "offsets/0", b'v1\n{"batchWatermarkMs":7,"batchTimestampMs":1,"conf":{}}\n{"a":1}'
    ),
    "checkpoint: commits": _checkpoint("commits/0", b'v1\n{"nextBatchWatermarkMs":0}'),
}


# -- Avro
# -----------------------------------------------------------------------------------------------

_CODECS: Final = ("deflate", "zstd", "snappy", "bzip2", "xz")


def plain(data: bytes) -> bytes:
    """The Avro file without compression, so that changes reach its records."""
    schema, blocks = avro_file.blocks_of(data, PATH)
    return avro_file.encode_file(schema.encode(), "null", blocks)


def _wider(data: bytes) -> bytes:
    """The Avro file with a schema that is not ours to the letter, so that the generic reader reads
    it.
    """
    schema, blocks = avro_file.blocks_of(data, PATH)
    return avro_file.encode_file(
        json.dumps({**json.loads(schema), "doc": "x"}).encode(), "null", blocks
    )


_MANIFESTS: Final = golden_files("manifest/manifest-[0-9a-f]*")
_LISTS: Final = golden_files("manifest/manifest-list-*")
_ENTRY: Final = IndexManifestEntry(
    partition=EMPTY_ROW,
    bucket=0,
    file=IndexFileMeta(
        index_type=DELETION_VECTORS,
        file_name="index-0",
        file_size=10,
        row_count=2,
        deletions=(DeletionRange(data_file="data-1", offset=1, length=2, cardinality=3),),
        external_path=None,
        global_index=GlobalIndexMeta(
            row_range_start=0,
            row_range_end=1,
            index_field_id=1,
            extra_field_ids=(1, 2),
            index_meta=b"",
            source_meta=None,
        ),
    ),
)
_INDEXES: Final = [
    encode_index_manifest(
        [replace(_ENTRY, bucket=i) for i in range(3)], compression="null", level=1
    ),
    *map(plain, golden_files("manifest/index-manifest-*")),
]


def _newer(files: Sequence[bytes]) -> list[bytes]:
    """The files as newer writers may have written them."""
    return [newer_fields.add_fields(data, Random(seed), "_NEW") for seed, data in enumerate(files)]


_NEWER: Final = _newer(_MANIFESTS[:5])


def _manifest_again(data: bytes, path: str) -> None:
    """Reads a manifest and writes it again."""
    codec = avro_file.compressor("null", 1)
    for part, types in divided(decode_manifest(data, path)):
        manifest_of_blocks(encode_entries(part, codec, types), codec, types)


def _manifest(data: bytes, path: str) -> None:
    entries = decode_manifest(data, path)
    decode_manifest(data, path, holds=lambda partition: len(partition) > 12)
    assert len(list(read_manifest(data, path, ("_PARTITION", "_FILE._LEVEL")))) == len(entries)
    _, codec, blocks = avro_file.packed_blocks_of(data, path)
    for block in blocks:
        Mentions([b"data-1"]).hashes(avro_file.decompress(codec, block.data, path))
    types = (parse_type("INT"),)
    for entry in entries:
        for row in (entry.file.min_key, entry.file.key_stats.min_values, entry.partition):
            try:
                row_order(types)(row)
                partition_bounds(types, entry.file.key_stats)
            except FormatError:
                continue


def _records(data: bytes) -> list[bytes]:
    """The plain records of each block, after a byte with their number."""
    return [
        bytes([block.records]) + block.data
        for block in avro_file.blocks_of(data, PATH)[1]
        if block.records < 256
    ]


def of_records(decode: Callable[[bytes, str], Any], files: Sequence[bytes]) -> Decoder:
    """Of files of which only the records are changed, and one whose schema is not ours to the
    letter.
    """
    schemas = [
        avro_file.blocks_of(files[0], PATH)[0].encode()
        for files in (files, list(map(_wider, files[:1])))
    ]

    def read(data: bytes) -> None:
        blocks = [avro_file.AvroBlock(data[0], data[1:])] if data else []
        decode(avro_file.encode_file(schemas[len(data) % 2], "null", blocks), PATH)

    return Decoder(good=[one for data in files for one in _records(data)], decode=read, naming=PATH)


def _decompressed(codec: str, data: bytes) -> None:
    raw_bytes.decompressed(codec, data, 1 << 20)


def _packed(codec: str) -> Decoder:
    packer = avro_file.compressor(codec, 1)
    good = [packer.compress(one) for one in (_MANIFESTS[0], bytes(70_000))]
    if codec == "snappy":
        good = [one[:-4] for one in good]  # without the checksum of Avro
    return Decoder(
        good=good, decode=partial(_decompressed, packer.codec), raises=(ValueError, LookupError)
    )


_AVRO: Final[dict[str, Decoder]] = {
    "manifest": of_file(_manifest, list(map(plain, _MANIFESTS))),
    "manifest, compressed": of_file(_manifest, _MANIFESTS),
    "records of a manifest": of_records(_manifest, _MANIFESTS),
    "manifest list": of_file(decode_manifest_list, list(map(plain, _LISTS))),
    "records of a manifest list": of_records(decode_manifest_list, _LISTS),
    "index manifest": of_file(decode_index_manifest, _INDEXES),
    "manifest of a newer writer": of_file(_manifest_again, _NEWER),
    "records of a newer manifest": of_records(_manifest_again, _NEWER[:1]),
    "manifest list of a newer writer": of_file(decode_manifest_list, _newer(_LISTS[:5])),
    "index manifest of a newer writer": of_file(decode_index_manifest, _newer(_INDEXES)),
    "records of an index manifest": of_records(decode_index_manifest, _INDEXES),
    **{f"{codec} block": _packed(codec) for codec in _CODECS},
}


# -- rows and messages
# ------------------------------------------------------------------------------------

_ROW_TYPES: Final = [
    parse_type(text)
    for text in (
        "BIGINT",
        "STRING",
        "DECIMAL(30, 2)",
        "TIMESTAMP(9)",
        "ARRAY<STRING>",
        "MAP<INT, STRING>",
        "ROW<a INT, b ARRAY<INT>>",
        "DOUBLE",
        "BYTES",
    )
]
_ROW: Final = encode_row(
    _ROW_TYPES,
    [
        7,
        "a longer text",
        Decimal(12),
        10**18 + 5,
        ["a", None, "a longer text"],
        [(1, "x")],
        (1, [1, 2]),
        1.5,
        b"12345678",
    ],
)
_STATS_FIELDS: Final = [
    DataField(id=i, name=f"c{i}", type=one) for i, one in enumerate(_ROW_TYPES[:4])
]
KEYS: Final[Mapping[str, tuple[str, Any]]] = {
    "b": ("BOOLEAN", True),
    "t": ("TINYINT", 3),
    "i": ("INT", -7),
    "l": ("BIGINT", 12),
    "f": ("FLOAT", 1.5),
    "d": ("DOUBLE", -0.25),
    "e": ("DECIMAL(5, 2)", Decimal("1.25")),
    "w": ("DECIMAL(30, 2)", Decimal("1.25")),
    "s": ("STRING", "a/b"),
    "c": ("CHAR(3)", "abc"),
    "a": ("DATE", 19782),
    "h": ("TIME(3)", 5_000),
    "m": ("TIMESTAMP(9)", 10**18 + 1),
    "z": ("TIMESTAMP(3) WITH LOCAL TIME ZONE", 10**18),
}
KEY_FIELDS: Final = [
    DataField(id=i, name=k, type=parse_type(t)) for i, (k, (t, _)) in enumerate(KEYS.items())
]
KEY_TYPES: Final = tuple(one.type for one in KEY_FIELDS)
PARTITION: Final = serialize(KEY_TYPES, [value for _, value in KEYS.values()])
_LAYOUT: Final = Layout(
    partition_keys=tuple(KEYS),
    partition_types=KEY_TYPES,
    directory="",
    default_name="__DEFAULT_PARTITION__",
    legacy_name=True,
    index_beside_data=False,
    external=None,
)
_FILES: Final = [one.file for data in _MANIFESTS for one in decode_manifest(data, PATH)][:40:4]
_SEQUENCES: Final = field_of_longs(("_FILE", "_WRITE_COLS_SEQUENCES"), [7, -8, 2**40])
_MESSAGE: Final = CommitMessage(
    partition=PARTITION,
    bucket=3,
    total_buckets=None,
    new_files=_FILES,
    new_index_files=(_ENTRY.file,),
    compact_after=_FILES[:1],
    compact_deleted_index_files=(_ENTRY.file,),
)
_LARGE: Final = np.unique(
    np.concatenate([np.arange(0, 40_000, 3), np.arange(65_000, 72_000), np.arange(99_000, 10**5)])
)


def _partition(data: bytes) -> None:
    deserialize_partition(KEY_TYPES, data)
    row_order(KEY_TYPES)(data)
    partition_by_column(_LAYOUT, data)
    for legacy in (True, False):
        replace(_LAYOUT, legacy_name=legacy).partition_values(data)
    partition_path(tuple(KEYS), KEY_TYPES, deserialize(KEY_TYPES, data))
    later = [one for one in KEY_TYPES if one.root.name != "TIMESTAMP_LTZ"]
    values = deserialize(KEY_TYPES, data)[: len(later)]
    partition_path(list(KEYS)[: len(later)], later, values, legacy=False)


def _result(*messages: CommitMessage) -> bytes:
    return encode_result(TaskResult(messages=messages, row_bytes=11, widest_row=13, partition_id=3))


def _failure(error: PaimonStreamError) -> bytes:
    return encode_result(TaskFailure(error=error, partition_id=3))


def _row_file(data: bytes) -> None:
    file = file_rows.decode_data_file(data)
    for stats in (file.key_stats, file.value_stats):
        decode_stats(_STATS_FIELDS, stats, file.value_stats_cols)


_ROWS: Final[dict[str, Decoder]] = {
    "row": of_bytes(partial(decode_row, _ROW_TYPES), [_ROW]),
    "partition": of_bytes(_partition, [PARTITION, serialize(KEY_TYPES, [None] * len(KEYS))]),
    "key of one number": of_bytes(
        lambda data: row_order(_ROW_TYPES[:1])(data),
        [serialize(_ROW_TYPES[:1], [one]) for one in (7, None)],
    ),
    "statistics": of_bytes(
        lambda data: decode_stats(
            _STATS_FIELDS, SimpleStats(min_values=data, max_values=data, null_counts=(None,) * 4)
        ),
        [_NUMBER + encode_row(_ROW_TYPES[:4], [7, "a longer text", Decimal(12), 10**18])],
    ),
    "data file": of_bytes(_row_file, [file_rows.encode_data_file(one) for one in _FILES]),
    "index file, version 11": of_bytes(
        partial(file_rows.decode_index_file, version=11), [file_rows.encode_index_file(_ENTRY.file)]
    ),
    "index file, version 12": of_bytes(
        partial(file_rows.decode_index_file, version=12),
        [
            encode_row(
                file_rows._INDEX_TYPES[12],
                (*file_rows.index_values(_ENTRY.file)[:-1], (0, 1, 2, [1], b"x", b"y")),
            )
        ],
    ),
    "commit message": of_bytes(CommitMessage.deserialize, [*_MESSAGES, _MESSAGE.serialize()]),
    "commit message, version 12": of_bytes(
        partial(CommitMessage.deserialize, version=12),
        [replace(_MESSAGE, new_index_files=(), compact_deleted_index_files=()).serialize()],
    ),
    "commit message, version 14": Decoder(
        good=[
            replace(_MESSAGE, check_from_snapshot=7).serialize(14),
            replace(_MESSAGE, new_files=(replace(_FILES[0], unknown=(_SEQUENCES,)),)).serialize(14),
            *(CommitMessage.deserialize(one).serialize(14) for one in _MESSAGES[:4]),
        ],
        decode=partial(CommitMessage.deserialize, version=14),
        raises=(FormatError,),
    ),
    "commit messages": of_bytes(CommitMessage.deserialize_all, [_NUMBER + b"".join(_MESSAGES[:4])]),
    "task result": of_bytes(
        decode_result,
        [
            _result(_MESSAGE),
            _result(),
            b"PSTR\x01" + _result()[5:42] + _result()[-4:],
            encode_result(TaskTooWide(partition_id=3)),
        ],
    ),
    "task failure": of_bytes(
        decode_result,
        [
            _failure(FormatError("broken", path="/t", count=3)),
            _failure(
                errors.NullInNotNull(f"Column is NULL in {errors.ROWS}.", column="a", count=1)
            ),
            _failure(errors.CommitContended("busy", since_millis=1)),
            b"PSTR\x02\x01" + bytes(12) + b"[" * 100_000,
        ],
    ),
}


# -- index files
# ------------------------------------------------------------------------------------------


def _with_runs(*containers: tuple[int, Sequence[tuple[int, int]]]) -> bytes:
    """A roaring bitmap of runs, as Java writes it after `runOptimize`."""
    keys = b"".join(
        struct.pack("<HH", key, sum(more + 1 for _, more in runs) - 1) for key, runs in containers
    )
    head = struct.pack("<I", 12347 | (len(containers) - 1) << 16) + b"\xff" * (
        (len(containers) + 7) // 8
    )
    data = [
        struct.pack("<H", len(runs)) + b"".join(struct.pack("<HH", *run) for run in runs)
        for _, runs in containers
    ]
    offsets = bytes(4 * len(containers)) if len(containers) >= 4 else b""
    return head + keys + offsets + b"".join(data)


_BITMAPS: Final = [
    _with_runs((0, [(3, 4), (100, 4999)]), (1, [(0, 9)])),
    _with_runs(*((key, [(0, 65535)]) for key in range(5))),
]
_RECORDS: Final = [
    *(
        encode(some)[0][4:-4]
        for encode in (encode_vector_32, encode_vector_64)
        for some in (_LARGE, _LARGE[:40], _LARGE[:0])
    ),
    *(struct.pack(">i", 1581511376) + one for one in _BITMAPS),
    *(struct.pack("<iqI", 1681511377, 1, 0) + one for one in _BITMAPS),
]


def _vector(record: bytes) -> None:
    """Reads a vector whose length and checksum are right."""
    data = VERSION + struct.pack(">i", len(record)) + record + struct.pack(">I", zlib.crc32(record))
    one = DeletionRange(data_file="data-1", offset=1, length=len(record), cardinality=None)
    found = deleted_positions(data, one, 400_000, PATH)
    assert not len(found) or (found[0] >= 0 and found[-1] < 400_000 and (np.diff(found) > 0).all())
    record_of(data, one, PATH)


def _vector_file(data: bytes) -> None:
    for one in (
        DeletionRange(data_file="d", offset=at, length=size, cardinality=2) for at, size in _PLACES
    ):
        try:
            record_of(data, one, PATH)
        finally:
            deleted_positions(data, one, 1000, PATH)


_PLACES: Final = ((1, 24), (-5, 3), (2**31 - 1, 2**31 - 1), (0, -1))


def _hash_index(data: bytes) -> None:
    storage, layout = MemoryStorage(), replace(_LAYOUT, partition_keys=(), partition_types=())
    file = IndexFileMeta(index_type=HASH, file_name="index-0", file_size=40, row_count=10)
    storage.write(layout.index_file(EMPTY_ROW, 0, file), data)
    hashes_of(read_index_file(storage, layout, EMPTY_ROW, 0, file))
    assert index_file("index-0", data).file_size == len(data)


_INDEX_FILES: Final[dict[str, Decoder]] = {
    "deletion vector": Decoder(
        good=_RECORDS, decode=_vector, raises=(CorruptMetadata,), naming=PATH
    ),
    "file of deletion vectors": Decoder(
        good=[VERSION + encode_vector_32(_LARGE[:2])[0], *golden_files("index/index-*")],
        decode=_vector_file,
        raises=(CorruptMetadata,),
        naming=PATH,
    ),
    "hash index": Decoder(
        good=[bytes(range(40))], decode=_hash_index, raises=(CorruptMetadata,), naming="index-0"
    ),
}


CASES: Final[dict[str, Decoder]] = {**_JSON, **_AVRO, **_ROWS, **_INDEX_FILES}
