"""The bytes, hashes, buckets, folders, bounds and messages that Java recorded are ours, too."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.avro_unknown import longs_of
from paimon_stream.format.binary_columns import column_values, encode_columns
from paimon_stream.format.binary_row import decode_row, deserialize, encode_row, serialize
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import DataFileMeta, IndexFileMeta
from paimon_stream.format.murmur import hash_bytes, hash_rows
from paimon_stream.format.partition_path import partition_path, unescape
from paimon_stream.format.stats import ColumnStats, parse_mode
from paimon_stream.format.types import DataType, parse_type
from paimon_stream.write.routing import assign_buckets
from tests.kits.vector_values import KINDS, arrow_column, internal

pytestmark = pytest.mark.lowest

Vectors = Callable[[str], Any]
VECTORS = Path(__file__).parent.parent / "vectors"


def typed(vector: dict[str, Any]) -> tuple[list[DataType], list[Any]]:
    types = [parse_type(text) for text in vector["types"]]
    return types, [
        internal(type_, text) for type_, text in zip(types, vector["values"], strict=True)
    ]


def test_rows_and_hashes_are_those_of_java(vectors: Vectors) -> None:
    found = vectors("binary_row")["vectors"]
    assert len(found) == 80
    for vector in found:
        types, values = typed(vector)
        row = encode_row(types, values, KINDS[vector.get("row_kind", "+I")])
        assert row.hex() == vector["binary_row_hex"], vector["name"]
        assert hash_bytes(row) == vector["hash"], vector["name"]
        if row[0] == 0:
            assert serialize(types, values).hex() == vector["serialized_hex"], vector["name"]


def test_rows_of_java_are_read(vectors: Vectors) -> None:
    for vector in vectors("binary_row")["vectors"]:
        types, values = typed(vector)
        got = decode_row(types, bytes.fromhex(vector["binary_row_hex"]))
        assert repr(got) == repr(deserialize(types, bytes.fromhex(vector["serialized_hex"])))
        assert (
            encode_row(types, got, KINDS[vector.get("row_kind", "+I")]).hex()
            == vector["binary_row_hex"]
        )
        assert vector["values"] == ["NaN"] or got == tuple(values), vector["name"]


def test_columns_make_the_rows_of_java(vectors: Vectors) -> None:
    for vector in vectors("binary_row")["vectors"]:
        types, values = typed(vector)
        if not types or ("row_kind" in vector and vector["row_kind"] != "+I"):
            continue
        columns = [
            arrow_column(t, [None, v, None, v]).slice(1) for t, v in zip(types, values, strict=True)
        ]
        rows = encode_columns(columns, types)
        assert [rows.row(0).hex(), rows.row(2).hex()] == [vector["binary_row_hex"]] * 2, vector[
            "name"
        ]
        assert hash_rows(rows).tolist()[::2] == [vector["hash"]] * 2, vector["name"]
        read = [
            column_values(column, type_)[0] for column, type_ in zip(columns, types, strict=True)
        ]
        assert encode_row(types, read).hex() == vector["binary_row_hex"], vector["name"]


@pytest.mark.parametrize("copies", [1, 50], ids=["one row", "many rows"])
def test_buckets_are_those_of_java(vectors: Vectors, copies: int) -> None:
    checked = dict.fromkeys(("default", "mod", "hive"), 0)
    for vector in vectors("bucket")["vectors"]:
        types, values = typed(vector)
        columns = [
            arrow_column(t, [None] + [v] * copies).slice(1)
            for t, v in zip(types, values, strict=True)
        ]
        batch = pa.record_batch(columns, names=[f"f{i}" for i in range(len(columns))])
        for function in checked:
            if function == "hive" and any(type_.is_timestamp for type_ in types):
                continue
            for count, bucket in vector.get(f"buckets_{function}", {}).items():
                got = assign_buckets(batch, types, int(count), function)
                assert got.tolist() == [bucket] * copies, (vector["name"], function, count)
                checked[function] += 1
    assert checked["default"] == 76 * 11 and checked["mod"] > 50 and checked["hive"] > 200


def test_partition_folders_are_those_of_java(vectors: Vectors) -> None:
    data = vectors("partition_path")
    default, refused = data["_meta"]["default_partition_name"], []
    for vector in data["vectors"]:
        type_ = parse_type(vector["type"])
        value = internal(type_, vector["value"])
        assert encode_row([type_], [value]).hex() == vector["partition_row_hex"]
        for legacy, form in ((True, "legacy_true"), (False, "legacy_false")):
            try:
                path = partition_path(["p"], [type_], [value], default, legacy=legacy)
            except UnsupportedFeature:
                refused.append((str(type_), legacy))
                continue
            assert path + "/" == vector[f"{form}_path"], vector
            assert unescape(path.removeprefix("p=")) == vector[f"{form}_spec"], vector
    assert refused == [
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", False),
        ("BYTES", True),
        ("BYTES", False),
    ]


def test_bounds_are_cut_as_java_cuts_them(vectors: Vectors) -> None:
    quirks = 0
    for vector in vectors("stats_truncate")["vectors"]:
        value = vector["value"]
        mode = parse_mode(f"truncate({vector['length']})")
        got = mode.apply(ColumnStats(min=value, max=value, null_count=3))
        bounds = [None if one is None else one.encode().hex() for one in (got.min, got.max)]
        if vector["java_quirk"]:
            assert got.max > value, "where Java's bound is too small, ours is a bound"
            quirks += 1
            continue
        assert bounds == [vector["min_hex"], vector["max_hex"]], vector
        assert got.null_count == 3
    assert quirks == 1


def test_messages_of_java_are_written_byte_for_byte(vectors: Vectors) -> None:
    found = vectors("commit_message")["vectors"]
    assert len(found) == 20
    for vector in found:
        data = bytes.fromhex(vector["hex"])
        assert hashlib.sha256(data).hexdigest() == vector["sha256"]
        message = CommitMessage.deserialize(data, vector["version"])
        assert describe(message) == vector["expected"], vector["label"]
        assert replace(message).serialize() == message.serialize() == data, vector["label"]
        assert CommitMessage.deserialize(data, 12) == message, vector["label"]


def test_messages_of_pypaimon_are_written_byte_for_byte(vectors: Vectors) -> None:
    found = vectors("commit_message_v14")["vectors"]
    assert len(found) == 8
    for vector in found:
        data = bytes.fromhex(vector["hex"])
        label, expected = vector["label"], vector["expected"]
        message = CommitMessage.deserialize(data, vector["version"])
        assert message.check_from_snapshot == expected.pop("check_from_snapshot"), label
        assert json.loads(json.dumps(describe(message), default=bytes.hex)) == expected, label
        assert replace(message).serialize(14) == message.serialize(14) == data, label
        unknown = [longs_of(field) for file in message.new_files for field in file.unknown]
        assert unknown == ([(7, 8)] if label == "column sequences" else []), label


def test_raw_messages_are_written_byte_for_byte() -> None:
    files = sorted(VECTORS.glob("commit_message_v11_*.bin"))
    assert len(files) == 4
    # `replace` makes a message that does not know which bytes it was read from.
    messages = [replace(CommitMessage.deserialize(path.read_bytes())) for path in files]
    assert [message.serialize() for message in messages] == [path.read_bytes() for path in files]
    together = b"\0\0\0\4" + b"".join(path.read_bytes() for path in files)
    assert CommitMessage.serialize_all(messages) == together
    assert CommitMessage.deserialize_all(together) == tuple(messages)


def test_messages_inside_a_committable_are_found_back_to_back(vectors: Vectors) -> None:
    for vector in vectors("manifest_committable")["vectors"]:
        data = bytes.fromhex(vector["hex"])
        at = data.index((11).to_bytes(4, "big") + len(messages_of(vector)).to_bytes(4, "big"))
        framed = data[at + 4 :]
        messages = CommitMessage.deserialize_all(framed, 11)
        assert [describe(message) for message in messages] == messages_of(vector)
        assert CommitMessage.serialize_all(map(replace, messages)) == framed
        assert CommitMessage.serialize_all(messages) == framed


def messages_of(vector: dict[str, Any]) -> list[Any]:
    found = vector["expected"]["messages"]
    assert isinstance(found, list)
    return found


def describe(message: CommitMessage) -> dict[str, Any]:
    """A message in the words of the vector files."""
    return {
        "partition": message.partition.hex(),
        "bucket": message.bucket,
        "total_buckets": message.total_buckets,
        "data_increment": {
            "new_files": [describe_file(file) for file in message.new_files],
            "deleted_files": [describe_file(file) for file in message.deleted_files],
            "changelog_files": [describe_file(file) for file in message.changelog_files],
            "new_index_files": [describe_index(file) for file in message.new_index_files],
            "deleted_index_files": [describe_index(file) for file in message.deleted_index_files],
        },
        "compact_increment": {
            "compact_before": [describe_file(file) for file in message.compact_before],
            "compact_after": [describe_file(file) for file in message.compact_after],
            "changelog_files": [describe_file(file) for file in message.compact_changelog_files],
            "new_index_files": [describe_index(file) for file in message.compact_new_index_files],
            "deleted_index_files": [
                describe_index(file) for file in message.compact_deleted_index_files
            ],
        },
    }


def describe_file(file: DataFileMeta) -> dict[str, Any]:
    def names(values: tuple[str, ...] | None) -> list[str] | None:
        return None if values is None else list(values)

    return {
        "file_name": file.file_name,
        "file_size": file.file_size,
        "row_count": file.row_count,
        "min_key": file.min_key.hex(),
        "max_key": file.max_key.hex(),
        "key_stats": describe_stats(file.key_stats),
        "value_stats": describe_stats(file.value_stats),
        "min_seq": file.min_sequence_number,
        "max_seq": file.max_sequence_number,
        "schema_id": file.schema_id,
        "level": file.level,
        "extra_files": list(file.extra_files),
        "creation_time_ms": file.creation_time,
        "delete_row_count": file.delete_row_count,
        "embedded_index": None
        if file.embedded_file_index is None
        else file.embedded_file_index.hex(),
        "file_source": file.file_source,
        "value_stats_cols": names(file.value_stats_cols),
        "external_path": file.external_path,
        "first_row_id": file.first_row_id,
        "write_cols": names(file.write_cols),
    }


def describe_stats(stats: Any) -> dict[str, Any]:
    return {
        "min": stats.min_values.hex(),
        "max": stats.max_values.hex(),
        "null_counts": list(stats.null_counts),
    }


def describe_index(file: IndexFileMeta) -> dict[str, Any]:
    return {
        "index_type": file.index_type,
        "file_name": file.file_name,
        "file_size": file.file_size,
        "row_count": file.row_count,
        "dv_ranges": file.deletions,
        "external_path": file.external_path,
        "global_index": file.global_index,
    }
