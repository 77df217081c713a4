"""Bytes that were changed at random, read by every decoder. `tests/kits/limited.py` runs the cases.

Each case changes one good file many times: bytes flipped, cut off, taken twice, taken from another file, or
replaced by numbers that claim a length. What follows may be a value or an error of ours, but no other error.
"""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import CorruptMetadata, FormatError, PaimonStreamError, UnsupportedFeature
from paimon_stream.format.binary_row import decode_row, encode_row
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import (
    EMPTY_ROW,
    DeletionRange,
    GlobalIndexMeta,
    IndexFileMeta,
    IndexManifestEntry,
    SimpleStats,
)
from paimon_stream.format.index_manifest import DELETION_VECTORS, decode_index_manifest, encode_index_manifest
from paimon_stream.format.journal_entry import decode_journal_entry
from paimon_stream.format.json_text import encode_checksummed
from paimon_stream.format.manifest_avro import decode_manifest, decode_manifest_list
from paimon_stream.format.schema_json import decode_schema
from paimon_stream.format.snapshot_json import decode_snapshot
from paimon_stream.format.stats import decode_stats, schema_of_statistics
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.maintenance.consumers import consumers
from paimon_stream.maintenance.expiring import ExpiringNotes
from paimon_stream.maintenance.tags import tagged_until
from paimon_stream.options import Options
from paimon_stream.options.of_tables import MANIFEST_TARGET_SIZE, SNAPSHOT_TIME_RETAINED
from paimon_stream.spark.checkpoint import open_checkpoint
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.stream.claims import registered_writers
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.write.result import TaskFailure, decode_result, encode_result
from tests.kits.seeds import examples

TESTS: Final = Path(__file__).parent.parent
GOLDEN: Final = TESTS / "golden"
PATH: Final = "/t/file"
CHANGES: Final = examples(150, 5000)
FILES: Final = examples(25, 500)

_LENGTHS: Final = (
    b"\xff", b"\x00", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x07",
    b"\xfe\xff\xff\xff\x0f", b"[[[[", b"{",
    b"\xff" * 9 + b"\x01", b"\xff" * 10, b"99999999999999999999", b"-1", b"1e999", b"NaN", b"\x22",
    b"\\ud800", b"null", b"\xc3", b"../", b"\x00" * 8, b"\x80" * 8,
)  # fmt: skip


def changed(good: bytes, other: bytes, chance: random.Random) -> bytes:
    """The good bytes with one to three changes."""
    made = bytearray(good)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(made) + 1)
        until = min(len(made), at + chance.randint(0, 12))
        match chance.randrange(6):
            case 0:
                del made[at:]
            case 1:
                made[at:until] = bytes(byte ^ 1 << chance.randrange(8) for byte in made[at:until])
            case 2:
                made[at:at] = made[chance.randrange(len(made) + 1) :][:200]
            case 3:
                start = chance.randrange(len(other) + 1)
                made[at:until] = other[start : start + 40]
            case 4:
                made[at:until] = chance.choice(_LENGTHS)
            case _:
                del made[at:until]
    return bytes(made)


def _hostile(
    good: Sequence[bytes], decode: Callable[[bytes], Any], allowed: tuple[type[Exception], ...], path: str, _: str
) -> None:
    chance = random.Random(b"".join(good))
    for number in range(CHANGES):
        data = changed(chance.choice(good), chance.choice(good), chance)
        try:
            decode(data)
        except allowed as raised:
            assert path in str(raised), (number, data, raised)  # noqa: PT017
        except Exception as raised:
            raise AssertionError(repr(raised), number, data) from raised


_FILE_ERRORS: Final = (FormatError, UnsupportedFeature)


def _files(*patterns: str) -> list[bytes]:
    return [path.read_bytes() for one in patterns for path in sorted(GOLDEN.glob(f"*/db.db/t/{one}"))[:12]]


def _of_file(decode: Callable[[bytes, str], Any], good: Sequence[bytes]) -> Callable[[str], None]:
    """A case of a file's decoder. Its errors name the file."""
    return partial(_hostile, good, lambda data: decode(data, PATH), _FILE_ERRORS, PATH)


def _of_bytes(decode: Callable[[bytes], Any], good: Sequence[bytes]) -> Callable[[str], None]:
    """A case of bytes that are not a file."""
    return partial(_hostile, good, decode, _FILE_ERRORS, "")


def _never(decode: Callable[[bytes], Any], good: Sequence[bytes]) -> Callable[[str], None]:
    """A case that raises nothing."""
    return partial(_hostile, good, decode, (), "")


def _checksummed(kind: str, body: bytes) -> bytes:
    """A file with a body that may be damaged, and the right checksum."""
    return f"paimon-stream {kind} 1 sha256:{hashlib.sha256(body).hexdigest()}\n".encode() + body


def _body(kind: str, content: dict[str, Any]) -> bytes:
    return encode_checksummed(kind, content).partition(b"\n")[2].removesuffix(b"\n")


_SNAPSHOTS: Final = _files("snapshot/snapshot-*")
_MESSAGES: Final = [path.read_bytes() for path in sorted((TESTS / "vectors").glob("commit_message_*.bin"))]
_ROW_TYPES: Final = [
    parse_type(text)
    for text in ("BIGINT", "STRING", "DECIMAL(30, 2)", "TIMESTAMP(9)", "ARRAY<STRING>", "MAP<INT, STRING>",
                 "ROW<a INT, b ARRAY<INT>>", "DOUBLE", "BYTES")
]  # fmt: skip
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
_STATS_FIELDS: Final = [DataField(id=i, name=f"c{i}", type=one) for i, one in enumerate(_ROW_TYPES[:4])]
_NUMBER: Final = (4).to_bytes(4, "big")
_JOURNAL: Final = {
    "batchId": 3, "messageVersion": 11, "messages": [], "stageUuids": ["a-b"], "abandoned": ["bucket-0/x"],
    "queryId": "q", "runId": "r", "checkpoint": "/c", "queryName": None, "offsetsHash": "h",
    "schemaDigest": "d", "schemaId": 0, "totalBuckets": 1, "base": {"id": 1, "nonce": "n"},
    "previous": {"batchId": 2, "snapshot": {"id": 1, "nonce": "n"}}, "preparedMillis": 5, "overwrites": False,
}  # fmt: skip
_REGISTER: Final = {
    "user": "u", "queryId": "q", "checkpoint": "/c", "queryName": None, "schemaDigest": "d",
    "journalSince": 3,
}  # fmt: skip
_INDEX: Final = encode_index_manifest(
    [
        IndexManifestEntry(
            partition=EMPTY_ROW,
            bucket=number,
            file=IndexFileMeta(
                index_type=DELETION_VECTORS,
                file_name=f"index-{number}",
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
        for number in range(3)
    ],
    compression="null",
    level=1,
)


def _stored(path: str, ask: Callable[[MemoryStorage], Any], data: bytes) -> None:
    """Writes a file and asks for what is in it."""
    storage = MemoryStorage()
    storage.write(path, data)
    ask(storage)


def _noted(body: bytes, path: str) -> None:
    storage = MemoryStorage()
    storage.write("_paimon_stream/expiring-1", _checksummed("expiry", body))
    try:
        assert all(one.id >= 0 for pair in ExpiringNotes(storage).unfinished(SnapshotStore(storage)) for one in pair)
    except CorruptMetadata as raised:
        raise CorruptMetadata(f"{path} {raised}", path=path) from None


def _noted_expiry() -> list[bytes]:
    text = _SNAPSHOTS[0].decode()
    return [_body("expiry", {"snapshot": text, "following": {"id": 2, "nonce": "n"}})]


def _register(body: bytes, path: str) -> None:
    storage = MemoryStorage()
    storage.write("_paimon_stream/u/writer", _checksummed("writer", body))
    try:
        registered_writers(storage)
    except FormatError as raised:
        assert "_paimon_stream/u/writer" in str(raised)  # noqa: PT017
        raise type(raised)(f"{path} {raised}", path=path) from None


def _hint(data: bytes) -> None:
    storage = MemoryStorage()
    storage.write("snapshot/snapshot-1", _SNAPSHOTS[0])
    storage.write("snapshot/LATEST", data)
    found = SnapshotStore(storage).latest()
    assert found is not None and found.id == 1


def _checkpoint_file(name: str, good: bytes, folder: str) -> None:
    (Path(folder) / name).parent.mkdir(exist_ok=True)
    checkpoint = open_checkpoint(folder)

    def ask(data: bytes) -> None:
        (Path(folder) / name).write_bytes(data)
        checkpoint.kind()
        checkpoint.query_id()
        checkpoint.watermark(0)
        checkpoint.offsets_hash(0)

    _hostile([good], ask, (), "", folder)


def _table(name: str, suffix: str, folder: str) -> None:
    """Reads a table of which one data file is damaged. Arrow reads Parquet and ORC, and may allocate by
    itself."""
    root = f"{folder}/t"
    shutil.copytree(GOLDEN / name / "db.db" / "t", root)
    file = sorted(Path(root).glob(f"**/*.{suffix}"))[0]
    good = file.read_bytes()
    chance = random.Random(name)
    for number in range(FILES):
        data = changed(good, good[-400:], chance)
        file.write_bytes(data)
        try:
            for _batch in PaimonTable.load(root).to_batches():
                pass
        except PaimonStreamError as raised:
            assert root in str(raised), (number, raised)  # noqa: PT017


def _options(data: bytes) -> None:
    text = data.decode("latin-1")
    for option in (MANIFEST_TARGET_SIZE, SNAPSHOT_TIME_RETAINED):
        try:
            Options({option.key: text}).value(option)
        except PaimonStreamError:
            continue


CASES: Final[dict[str, Callable[[str], None]]] = {
    "snapshot": _of_file(lambda data, path: decode_snapshot(data, path), _SNAPSHOTS),
    "schema": _of_file(decode_schema, _files("schema/schema-*")),
    "tag": _never(
        tagged_until, [_SNAPSHOTS[0][:-2] + b',"tagCreateTime":[2026,1,2,3,4,5,6],"tagTimeRetained":86400.000000000}']
    ),
    "table statistics": _of_file(schema_of_statistics, [b'{"schemaId": 0, "colStats": {"a": {"x": 1}}}']),
    "manifest": _of_file(decode_manifest, _files("manifest/manifest-[0-9a-f]*")),
    "manifest list": _of_file(decode_manifest_list, _files("manifest/manifest-list-*")),
    "index manifest": _of_file(decode_index_manifest, [_INDEX]),
    "journal": _of_file(
        lambda body, path: decode_journal_entry(_checksummed("journal", body), path), [_body("journal", _JOURNAL)]
    ),
    "journal without its checksum": _of_file(decode_journal_entry, [encode_checksummed("journal", _JOURNAL)]),
    "register": _of_file(_register, [_body("writer", _REGISTER)]),
    "expiring note": _of_file(_noted, _noted_expiry()),
    "consumer": _never(
        partial(_stored, "consumer/consumer-a", lambda storage: consumers(storage)), [b'{\n  "nextSnapshot" : 5\n}']
    ),
    "hint": _never(_hint, [b"1", b"12345"]),
    "commit message": _of_bytes(CommitMessage.deserialize, _MESSAGES),
    "commit messages": _of_bytes(CommitMessage.deserialize_all, [_NUMBER + b"".join(_MESSAGES[:4])]),
    "task result": _of_bytes(decode_result, [b"PSTR\x02\x00" + bytes(12 + 20) + b"\0\0\0\x0b" + bytes(12)]),
    "task failure": _of_bytes(
        decode_result,
        [
            encode_result(TaskFailure(error=FormatError("broken", path="/t", count=3))),
            b"PSTR\x02\x01" + bytes(12) + b"[" * 100_000,
        ],
    ),
    "row": _of_bytes(partial(decode_row, _ROW_TYPES), [_ROW]),
    "statistics": _of_bytes(
        lambda data: decode_stats(
            _STATS_FIELDS, SimpleStats(min_values=data, max_values=data, null_counts=(None,) * 4)
        ),
        [_NUMBER + encode_row(_ROW_TYPES[:4], [7, "a longer text", Decimal(12), 10**18])],
    ),
    "options": _never(_options, [b"128 mb", b"10 min", b"5" + b" " * 30_000 + b"x"]),
    "checkpoint: metadata": partial(_checkpoint_file, "metadata", b'{"id":"3f6a"}'),
    "checkpoint: offsets": partial(
        _checkpoint_file, "offsets/0", b'v1\n{"batchWatermarkMs":7,"batchTimestampMs":1,"conf":{}}\n{"a":1}'
    ),
    "checkpoint: commits": partial(_checkpoint_file, "commits/0", b'v1\n{"nextBatchWatermarkMs":0}'),
    "Parquet data file": partial(_table, "all_types", "parquet"),
    "ORC data file": partial(_table, "all_types_orc", "orc"),
    "Avro data file": partial(_table, "all_types_avro", "avro"),
}
"""By name; each gets an empty folder."""

if int(pyarrow.__version__.split(".")[0]) < 20:
    del CASES["ORC data file"]  # a damaged stripe ends the whole process inside Arrow 18
