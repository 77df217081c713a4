"""Fields of newer writers stay in what is written again (format.md §1.5)."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import pytest

from paimon_stream.errors import CorruptMetadata
from paimon_stream.format.schema_json import decode_schema, encode_schema
from paimon_stream.format.snapshot_json import decode_snapshot, encode_snapshot

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
