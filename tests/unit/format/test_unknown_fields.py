"""Fields of newer writers stay in what is written again (format.md §1.5)."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import pytest

from paimon_stream.errors import CorruptMetadata, FormatError, InvalidData, UnsupportedFeature
from paimon_stream.format.avro_file import AvroBlock, compressor, encode_file
from paimon_stream.format.avro_unknown import field_of_longs
from paimon_stream.format.entries import (
    EMPTY_ROW,
    EMPTY_STATS,
    FileKind,
    ManifestEntry,
    ManifestFileMeta,
)
from paimon_stream.format.file_rows import decode_data_file, encode_data_file
from paimon_stream.format.manifest_avro import (
    MANIFEST_LIST_SCHEMA,
    decode_manifest,
    decode_manifest_list,
    divided,
    encode_entries,
    encode_manifest_list,
    manifest_of_blocks,
    meta_bytes,
)
from paimon_stream.format.schema_json import decode_schema, encode_schema
from paimon_stream.format.snapshot_json import decode_snapshot, encode_snapshot
from paimon_stream.format.unknown_fields import UnknownField
from tests.kits.avro_files import read_file
from tests.kits.commits import data_file
from tests.kits.newer_fields import add_sequences, read

pytestmark = pytest.mark.lowest

SNAPSHOT = {
    "version": 3,
    "id": 7,
    "schemaId": 0,
    "baseManifestList": "manifest-list-a-0",
    "deltaManifestList": "manifest-list-a-1",
    "commitUser": "u",
    "commitIdentifier": 1,
    "commitKind": "APPEND",
    "timeMillis": 1,
    "totalRecordCount": 0,
    "deltaRecordCount": 0,
}
NEWER = {"writerVersion": "2.1", "numbers": [1, 2.5, None, {"ä": True}], "zero": 0, "empty": ""}
ROW = {
    "type": "ROW",
    "hint": 1,
    "fields": [{"id": 1, "name": "x", "type": "INT", "mask": {"by": ["hash"]}}],
}
SCHEMA = {
    "version": 3,
    "id": 0,
    "fields": [{"id": 0, "name": "row", "type": ROW, "mask": "all"}],
    "highestFieldId": 1,
    "partitionKeys": [],
    "primaryKeys": [],
    "options": {},
    "owner": "somebody",
}


def test_a_snapshot_keeps_them_with_their_values() -> None:
    data = json.dumps(SNAPSHOT | NEWER | {"nothing": None}).encode()
    snapshot = replace(decode_snapshot(data, "x"), watermark=5)
    assert json.loads(encode_snapshot(snapshot)) == SNAPSHOT | {"watermark": 5} | NEWER


def test_a_snapshot_does_not_have_the_fields_of_its_tag() -> None:
    node = SNAPSHOT | {"tagCreateTime": [2026, 1, 1, 0, 0], "tagTimeRetained": 3.0}
    assert decode_snapshot(json.dumps(node).encode(), "x").unknown == ()


def test_a_number_that_no_writer_could_write_again_is_refused() -> None:
    data = json.dumps(SNAPSHOT)[:-1].encode() + b', "far": 1e999}'
    with pytest.raises(CorruptMetadata, match="not a snapshot"):
        decode_snapshot(data, "x")


def test_a_schema_keeps_them_in_its_columns_and_types() -> None:
    schema = decode_schema(json.dumps(SCHEMA).encode(), "x")
    following = replace(pickle.loads(pickle.dumps(schema)), id=1)
    assert json.loads(encode_schema(following)) == SCHEMA | {"id": 1, "timeMillis": 0}


def test_they_make_no_other_type() -> None:
    schema = decode_schema(json.dumps(SCHEMA).encode(), "x")
    plain = json.dumps(SCHEMA).replace('"hint": 1, ', "").replace(', "mask": "all"', "")
    assert decode_schema(plain.encode(), "x").fields == schema.fields


def test_a_commit_message_has_no_room_for_them() -> None:
    new = UnknownField(("_FILE", "_NEW"), '["null", "int"]', b"\2\2")
    sequences = field_of_longs(("_FILE", "_WRITE_COLS_SEQUENCES"), [7])
    for unknown in ((new,), (sequences, new), (new, sequences)):
        file = replace(data_file("data-a.parquet"), unknown=unknown)
        for version in (11, 14):
            with pytest.raises(InvalidData, match=r"_FILE\._NEW"):
                encode_data_file(file, version)
        assert decode_data_file(encode_data_file(file.known)) == file.known


def test_the_sequences_of_columns_go_from_a_manifest_into_a_message_and_back() -> None:
    entry = ManifestEntry(
        kind=FileKind.ADD,
        partition=EMPTY_ROW,
        bucket=0,
        total_buckets=1,
        file=data_file("data-a.parquet"),
    )
    codec = compressor("null", 1)
    plain = manifest_of_blocks(encode_entries([entry], codec), codec)
    (newer,) = decode_manifest(add_sequences(plain), "x")
    message = encode_data_file(newer.file, 13)
    assert decode_data_file(message, 13) == newer.file != entry.file
    [(_, types)] = divided([newer])
    again = manifest_of_blocks(encode_entries([newer], codec, types), codec, types)
    assert read(again) == read(add_sequences(plain))


def test_sequences_of_columns_are_no_nulls_and_of_no_other_type() -> None:
    sequences = field_of_longs(("_FILE", "_WRITE_COLS_SEQUENCES"), [7])
    file = replace(data_file("data-a.parquet"), unknown=(sequences,))
    row = encode_data_file(file, 14)
    array = b"\1\0\0\0\0\0\0\0\7"
    assert row.count(array) == 1
    with pytest.raises(FormatError, match="sequence numbers has NULL"):
        decode_data_file(row.replace(array, b"\1\0\0\0\1\0\0\0\7"), 14)
    nullable = json.dumps(["null", {"type": "array", "items": ["null", "long"]}], sort_keys=True)
    with pytest.raises(InvalidData, match=r"_FILE\._WRITE_COLS_SEQUENCES.* version 14 "):
        encode_data_file(replace(file, unknown=(sequences._replace(type=nullable),)), 14)


def test_the_logical_type_of_a_field_stays() -> None:
    schema = json.loads(json.dumps(MANIFEST_LIST_SCHEMA))
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    schema["fields"].append({"name": "_NEW", "type": moment})
    meta = ManifestFileMeta(
        file_name="manifest-0",
        file_size=1,
        num_added_files=1,
        num_deleted_files=0,
        partition_stats=EMPTY_STATS,
        schema_id=0,
    )
    block = AvroBlock(1, meta_bytes(meta) + b"\4")
    (newer,) = decode_manifest_list(encode_file(json.dumps(schema).encode(), "null", [block]), "x")
    assert newer == replace(meta, unknown=newer.unknown)
    again = encode_manifest_list([newer], compression="null", level=1)
    added = json.loads(read_file(again, "x").schema)["fields"][-1]
    assert added == {"name": "_NEW", "type": ["null", moment], "default": None}


def test_a_list_cannot_hold_a_field_of_two_types() -> None:
    metas = [
        ManifestFileMeta(
            file_name=f"manifest-{kind}",
            file_size=1,
            num_added_files=1,
            num_deleted_files=0,
            partition_stats=EMPTY_STATS,
            schema_id=0,
            unknown=(UnknownField(("_NEW",), f'["null", "{kind}"]', b"\2\2"),),
        )
        for kind in ("int", "boolean")
    ]
    with pytest.raises(UnsupportedFeature, match="_NEW"):
        encode_manifest_list(metas, compression="null", level=1)


def test_a_type_that_stands_for_too_much_is_refused() -> None:
    type_: Any = {"type": "record", "name": "R0", "fields": [{"name": "f", "type": "int"}]}
    for depth in range(1, 20):
        fields = [{"name": "a", "type": type_}, {"name": "b", "type": f"R{depth - 1}"}]
        type_ = {"type": "record", "name": f"R{depth}", "fields": fields}
    schema = json.loads(json.dumps(MANIFEST_LIST_SCHEMA))
    schema["fields"].append({"name": "_NEW", "type": type_})
    with pytest.raises(CorruptMetadata, match="parts"):
        decode_manifest_list(encode_file(json.dumps(schema).encode(), "null", []), "x")
