"""Manifests and manifest lists: Java's schemas, reading by name, and errors that say what is
wrong.
"""

from __future__ import annotations

import base64
import io
import json
from dataclasses import replace
from typing import Any

import fastavro
import pytest

from paimon_stream.errors import CorruptMetadata, UnknownVersion
from paimon_stream.format.avro_file import AvroBlock, compressor, encode_file
from paimon_stream.format.entries import (
    EMPTY_ROW,
    DataFileMeta,
    FileKind,
    ManifestEntry,
    ManifestFileMeta,
    SimpleStats,
)
from paimon_stream.format.manifest_avro import (
    MANIFEST_LIST_SCHEMA,
    MANIFEST_SCHEMA,
    decode_manifest,
    decode_manifest_list,
    encode_manifest_list,
    entries_bytes,
)
from paimon_stream.format.unknown_fields import UnknownField
from tests.kits.avro_files import read_file
from tests.kits.manifests import encode_manifest

STATS = SimpleStats(min_values=b"low", max_values=b"high", null_counts=(0, None, 7_000_000_000))
FULL = ManifestEntry(
    kind=FileKind.DELETE,
    partition=b"\0\0\0\1" + bytes(16),
    bucket=-2,
    total_buckets=-2,
    file=DataFileMeta(
        file_name="data-ü-0.parquet",
        file_size=2**40,
        row_count=2**33,
        min_key=b"a",
        max_key=b"z" * 5000,
        key_stats=STATS,
        value_stats=STATS,
        min_sequence_number=-1,
        max_sequence_number=2**62,
        schema_id=3,
        level=5,
        extra_files=("one.index", "two"),
        creation_time=1_700_000_000_123,
        delete_row_count=4,
        embedded_file_index=b"\0\1",
        file_source=1,
        value_stats_cols=("a", "b"),
        external_path="s3://elsewhere/x",
        first_row_id=9,
        write_cols=("a",),
    ),
)
BARE = ManifestEntry(
    kind=FileKind.ADD,
    partition=EMPTY_ROW,
    bucket=0,
    total_buckets=-1,
    file=DataFileMeta(
        file_name="f",
        file_size=0,
        row_count=0,
        min_sequence_number=0,
        max_sequence_number=0,
        schema_id=0,
        creation_time=None,
        delete_row_count=None,
        file_source=None,
        value_stats_cols=(),
    ),
)
META = ManifestFileMeta(
    file_name="manifest-x-0",
    file_size=4711,
    num_added_files=2,
    num_deleted_files=1,
    partition_stats=STATS,
    schema_id=0,
    min_bucket=-2,
    max_bucket=300,
    min_level=0,
    max_level=5,
    min_row_id=0,
    max_row_id=2**40,
)


def encoded(*entries: ManifestEntry, compression: str = "zstd") -> bytes:
    return encode_manifest(entries, compression=compression, level=1)


def foreign(schema: Any, records: list[dict[str, Any]]) -> bytes:
    """A file as another writer may make it."""
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec="deflate")
    return out.getvalue()


def raw_records(data: bytes) -> list[dict[str, Any]]:
    return [dict(record) for record in fastavro.reader(io.BytesIO(data))]


def copied(schema: Any) -> Any:
    return json.loads(json.dumps(schema))


def test_the_schemas_are_those_of_java_to_the_letter(vectors: Any) -> None:
    expected = vectors("avro_schemas")
    assert json.dumps(MANIFEST_SCHEMA) == json.dumps(expected["manifest"])
    assert json.dumps(MANIFEST_LIST_SCHEMA) == json.dumps(expected["manifest_list"])


def test_the_header_holds_the_schema_and_the_codec_of_java(vectors: Any) -> None:
    for name, sample in vectors("sample_files")["files"].items():
        data = base64.b64decode(sample["base64"])
        if "/manifest/manifest-list" in name:
            ours = encode_manifest_list(
                decode_manifest_list(data, name), compression="zstd", level=1
            )
        elif "/manifest/manifest-" in name:
            ours = encoded(*decode_manifest(data, name))
        else:
            continue
        assert read_file(ours, name).schema == read_file(data, name).schema
        assert b"avro.codec\x12zstandard" in ours


def test_every_sample_of_java_encodes_to_the_same_records(vectors: Any) -> None:
    seen = 0
    for name, sample in vectors("sample_files")["files"].items():
        data = base64.b64decode(sample["base64"])
        if "/manifest/manifest-list" in name:
            ours = encode_manifest_list(
                decode_manifest_list(data, name), compression="zstd", level=1
            )
        elif "/manifest/manifest-" in name:
            ours = encoded(*decode_manifest(data, name))
        else:
            continue
        plain = [
            b"".join(block.data for block in read_file(one, name).blocks) for one in (data, ours)
        ]
        assert plain[0] == plain[1], name
        seen += 1
    assert seen >= 8


def test_every_field_survives() -> None:
    assert decode_manifest(encoded(FULL, BARE), "x") == [FULL, BARE]
    metas = [META, replace(META, file_name="manifest-2", min_bucket=None)]
    assert (
        decode_manifest_list(encode_manifest_list(metas, compression="zstd", level=1), "x") == metas
    )


def test_a_generic_reader_reads_every_field() -> None:
    record = raw_records(encoded(FULL, compression="deflate"))[0]
    file = record["_FILE"]
    assert (record["_VERSION"], record["_KIND"], record["_BUCKET"], record["_TOTAL_BUCKETS"]) == (
        2,
        1,
        -2,
        -2,
    )
    assert file["_FILE_NAME"] == "data-ü-0.parquet"
    assert file["_VALUE_STATS"]["_NULL_COUNTS"] == [0, None, 7_000_000_000]
    assert file["_EXTRA_FILES"] == ["one.index", "two"]
    assert file["_CREATION_TIME"].timestamp() == 1_700_000_000.123
    assert (file["_MAX_SEQUENCE_NUMBER"], file["_MIN_SEQUENCE_NUMBER"]) == (2**62, -1)


def test_nothing_and_many_thousands_of_entries_survive() -> None:
    assert decode_manifest(encoded(), "x") == []
    many = [replace(BARE, bucket=bucket) for bucket in range(2500)]
    data = encoded(*many)
    assert [block.records for block in read_file(data, "x").blocks] == [1000, 1000, 500]
    assert decode_manifest(data, "x") == many


def test_fields_are_found_by_name_in_any_order() -> None:
    schema = copied(MANIFEST_SCHEMA)
    schema["name"], schema["namespace"] = "Entry", "elsewhere"
    schema["fields"].reverse()
    schema["fields"][0]["type"]["fields"].reverse()
    records = raw_records(encoded(FULL, BARE, compression="null"))
    assert decode_manifest(foreign(schema, records), "x") == [FULL, BARE]


def test_unknown_fields_are_kept() -> None:
    schema = copied(MANIFEST_SCHEMA)
    schema["fields"].insert(2, {"name": "_NEW", "type": {"type": "map", "values": "string"}})
    records = [
        {**one, "_NEW": {"a": "b"}} for one in raw_records(encoded(FULL, compression="null"))
    ]
    type_ = '["null", {"type": "map", "values": "string"}]'
    new = UnknownField(("_NEW",), type_, b"\2\2\2a\2b\0")
    entry = replace(FULL, file=replace(FULL.file, unknown=(new,)))
    assert decode_manifest(foreign(schema, records), "x") == [entry]


@pytest.mark.parametrize("name", ["_FILE._FILE_NAME", "_FILE_NAME"])
@pytest.mark.parametrize("last", [True, False])
def test_a_field_beside_the_file_cannot_stand_for_one_inside_it(name: str, last: bool) -> None:
    block, schema = (
        read_file(encoded(BARE, compression="null"), "x").blocks[0],
        copied(MANIFEST_SCHEMA),
    )
    schema["fields"].insert(len(schema["fields"]) if last else 0, {"name": name, "type": "string"})
    content = block.data + b"\x08evil" if last else b"\x08evil" + block.data
    data = encode_file(json.dumps(schema).encode(), "null", [AvroBlock(1, content)])
    assert [entry.file.file_name for entry in decode_manifest(data, "x")] == ["f"]


def test_a_field_that_comes_twice_is_corrupt() -> None:
    """Java refuses it, too. Here the last one would win."""
    block, schema = (
        read_file(encoded(BARE, compression="null"), "x").blocks[0],
        copied(MANIFEST_SCHEMA),
    )
    schema["fields"].append({"name": "_KIND", "type": "int"})
    data = encode_file(json.dumps(schema).encode(), "null", [AvroBlock(1, block.data + b"\x02")])
    with pytest.raises(CorruptMetadata, match="one of its fields comes twice"):
        decode_manifest(data, "x")


def test_a_nullable_field_that_is_not_there_reads_as_none() -> None:
    schema = copied(MANIFEST_SCHEMA)
    file = schema["fields"][5]["type"]
    nullable = {one["name"] for one in file["fields"] if isinstance(one["type"], list)}
    file["fields"] = [one for one in file["fields"] if one["name"] not in nullable]
    (read,) = decode_manifest(foreign(schema, raw_records(encoded(BARE, compression="null"))), "x")
    assert read.file == replace(BARE.file, value_stats_cols=None)
    assert len(nullable) == 8


@pytest.mark.parametrize("name", ["_VERSION", "_PARTITION", "_FILE"])
def test_a_needed_field_that_is_not_there_is_named(name: str) -> None:
    schema = copied(MANIFEST_SCHEMA)
    schema["fields"] = [one for one in schema["fields"] if one["name"] != name]
    records = raw_records(encoded(BARE, compression="null"))
    with pytest.raises(CorruptMetadata, match=f"no {name}"):
        decode_manifest(foreign(schema, records), "/t/manifest/m")


def test_a_field_of_another_type_is_named() -> None:
    schema = copied(MANIFEST_SCHEMA)
    schema["fields"][3] = {"name": "_BUCKET", "type": "string"}
    record = {**raw_records(encoded(BARE, compression="null"))[0], "_BUCKET": "0"}
    with pytest.raises(CorruptMetadata, match="_BUCKET is of another type"):
        decode_manifest(foreign(schema, [record]), "x")


def test_a_manifest_list_is_no_manifest() -> None:
    data = encode_manifest_list([META], compression="zstd", level=1)
    with pytest.raises(CorruptMetadata, match="no _KIND"):
        decode_manifest(data, "x")


def test_another_version_is_unknown() -> None:
    record = {**raw_records(encoded(BARE, compression="null"))[0], "_VERSION": 3}
    with pytest.raises(UnknownVersion, match="/t/m is of version 3"):
        decode_manifest(foreign(MANIFEST_SCHEMA, [record]), "/t/m")


def test_an_unknown_kind_of_entry_is_corrupt() -> None:
    record = {**raw_records(encoded(BARE, compression="null"))[0], "_KIND": 7}
    with pytest.raises(CorruptMetadata, match="x cannot be read"):
        decode_manifest(foreign(MANIFEST_SCHEMA, [record]), "x")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '"string"', '{"type":"record"}', '{"type":"nosuch"}', "7"]
)
def test_a_broken_schema_in_the_header_is_corrupt(text: str) -> None:
    data = encode_file(text.encode(), "null", [AvroBlock(1, b"\0")])
    with pytest.raises(CorruptMetadata, match="x cannot be read"):
        decode_manifest(data, "x")


def test_a_manifest_of_many_files_with_thousands_of_columns_without_values_is_read() -> None:
    columns = 5000
    low = columns.to_bytes(4, "big") + bytes(9 * columns)
    stats = SimpleStats(min_values=low, max_values=low, null_counts=(10**6,) * columns)
    entry = replace(FULL, file=replace(FULL.file, value_stats=stats))
    codec = compressor("zstd", 1)
    block = AvroBlock(50, codec.compress(entries_bytes([entry]) * 50))
    data = encode_file(json.dumps(MANIFEST_SCHEMA).encode(), codec.codec, [block] * 40)
    assert decode_manifest(data, "x") == [entry] * 2000
    assert len(data) < 100_000


def test_a_manifest_of_a_hundred_thousand_files_is_read() -> None:
    entries = [
        replace(BARE, file=replace(BARE.file, file_name=f"data-{n}.parquet")) for n in range(1000)
    ]
    codec = compressor("zstd", 1)
    block = AvroBlock(1000, codec.compress(entries_bytes(entries)))
    data = encode_file(json.dumps(MANIFEST_SCHEMA).encode(), codec.codec, [block] * 120)
    assert decode_manifest(data, "x") == entries * 120
