"""Rows of manifest entries are what a generic reader has, for all fields, schemas and bytes."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paimon_stream.errors import CorruptMetadata, PaimonStreamError, UnknownVersion
from paimon_stream.format.avro_file import AvroBlock, encode_file
from paimon_stream.format.avro_records import read_records
from paimon_stream.format.entries import FileKind, ManifestEntry
from paimon_stream.format.manifest_avro import MANIFEST_SCHEMA, decode_manifest, read_manifest
from paimon_stream.format.manifest_rows import PATHS, read_entries
from tests.kits.avro_files import read_file
from tests.kits.commits import data_file
from tests.kits.manifests import encode_manifest
from tests.kits.seeds import examples
from tests.property.test_manifest_codec import ENTRIES

pytestmark = pytest.mark.lowest

_TEXT = json.dumps(MANIFEST_SCHEMA).encode()

GOLDEN = Path(__file__).parent.parent / "golden"
QUICK = settings(
    deadline=None, max_examples=examples(15, 400), suppress_health_check=[HealthCheck.too_slow]
)
RECORD = dict[str, Any]


def at(record: Any, path: str) -> Any:
    for name in path.split("."):
        record = record.get(name)
    return record


def judged(work: Callable[[], Any]) -> Any:
    """What the work returns, or its error. Where bytes break several rules, readers may name
    another one.
    """
    try:
        return work()
    except PaimonStreamError as wrong:
        return type(wrong), wrong.context


@QUICK
@given(
    st.lists(ENTRIES, max_size=6),
    st.lists(st.sampled_from(PATHS), unique=True, min_size=2),
    st.integers(0, 2**30),
)
def test_any_fields_of_any_entries_are_as_a_generic_reader_has_them(
    entries: Sequence[Any], chosen: list[str], seed: int
) -> None:
    dice = random.Random(seed)
    entries = (
        dice.choices(entries, k=2 * len(entries)) if entries else []
    )  # some come again, as runs do
    data = encode_manifest(entries, compression="null", level=1)
    records = list(read_records(data, "x", _TEXT, 2))
    whole = [tuple(at(one, path) for path in chosen) for one in records]
    assert list(read_manifest(data, "x", tuple(chosen))) == whole
    assert decode_manifest(data, "x") == list(entries)
    kept = {one.partition for one in entries if dice.random() < 0.5}
    of = decode_manifest(data, "x", kept.__contains__, bool)
    assert of == [one for one in entries if one.partition in kept]


@settings(QUICK, max_examples=examples(30, 1000))
@given(st.lists(ENTRIES, min_size=1, max_size=3), st.data())
def test_damaged_records_give_the_same_rows_or_the_same_error(
    entries: Sequence[Any], data: Any
) -> None:
    written = read_file(encode_manifest([*entries, entries[-1]], compression="null", level=1), "x")
    (block,) = written.blocks
    damaged = bytearray(block.data)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(damaged)))
        damaged[place : place + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    count = data.draw(st.sampled_from([block.records, block.records - 1, block.records + 1]))
    file = encode_file(written.schema.encode(), "null", [AvroBlock(count, bytes(damaged))])

    def generic() -> list[tuple[Any, ...]]:
        records = read_records(file, "x", _TEXT, 2)
        return [tuple(at(one, path) for path in PATHS) for one in records]

    assert judged(lambda: list(read_manifest(file, "x", PATHS))) == judged(generic)


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_the_writers_fields_does_not_matter_nor_what_it_adds_or_leaves_out(
    seed: int,
) -> None:
    dice = random.Random(seed)

    def shuffled(schema: Mapping[str, Any]) -> RECORD:
        fields = []
        for one in schema["fields"]:
            nullable = isinstance(one["type"], list)
            if nullable and dice.random() < 0.2:
                continue
            is_record = isinstance(one["type"], dict) and one["type"]["type"] == "record"
            fields.append({**one, "type": shuffled(one["type"])} if is_record else one)
        for n, added in enumerate(dice.sample(ADDED, 2)):
            fields.append({"name": f"added{n}", "type": added})
        dice.shuffle(fields)
        return {**schema, "fields": fields}

    schema = shuffled(json.loads(json.dumps(MANIFEST_SCHEMA).replace(', "default": null', "")))
    records = [filled(schema, dice) for _ in range(5)]
    made = io.BytesIO()
    fastavro.writer(made, schema, records, codec="null", validator=False)
    found = list(read_manifest(made.getvalue(), "x", PATHS))
    expected = [
        tuple(at(one, path) for path in PATHS)
        for one in read_records(made.getvalue(), "x", _TEXT, 2)
    ]
    assert found == expected
    wanted = records[0]["_PARTITION"]
    entries = decode_manifest(made.getvalue(), "x", wanted.__eq__, bool)
    assert [e.file.file_name for e in entries] == [
        one["_FILE"]["_FILE_NAME"] for one in records if one["_PARTITION"] == wanted
    ]


ADDED: list[Any] = [
    "double",
    "boolean",
    ["string", "null"],
    {"type": "array", "items": {"type": "array", "items": "int"}},
    {"type": "map", "values": "int"},
]


def filled(type_: Any, dice: random.Random) -> Any:
    match type_:
        case list():
            return filled(dice.choice(type_), dice)
        case {"type": "record", "fields": fields}:
            made = {one["name"]: filled(one["type"], dice) for one in fields}
            made.update(
                {name: value for name, value in (("_VERSION", 2), ("_KIND", 1)) if name in made}
            )
            return made
        case {"type": "array", "items": items}:
            return [filled(items, dice) for _ in range(dice.randrange(3))]
        case {"type": "map"}:
            return {"a": 1}
        case {"type": inner}:
            return filled(inner, dice)
        case "string":
            return dice.choice(["", "a", "b" * 70])
        case "bytes":
            return dice.choice([b"", b"a"])
        case "null":
            return None
        case "boolean":
            return True
    return dice.choice([0, 1, -1, 63, 64, 2**31 - 1, -(2**31)])


def test_all_manifests_of_the_golden_tables_are_as_a_generic_reader_has_them() -> None:
    seen = 0
    for path in sorted(GOLDEN.rglob("manifest/manifest-*")):
        if path.name.startswith("manifest-list"):
            continue
        data, name = path.read_bytes(), path.name
        records = list(read_records(data, name, _TEXT, 2))
        expected = [tuple(at(one, path) for path in PATHS) for one in records]
        blocks = read_file(data, name).blocks
        rows = [
            row
            for block in blocks
            for row in read_entries(block.data, block.records, 2, None, [].append)
        ]
        assert rows == expected
        seen += len(expected)
    assert seen > 50


def test_another_version_is_refused() -> None:
    one = ManifestEntry(
        kind=FileKind.ADD,
        partition=b"",
        bucket=0,
        total_buckets=1,
        file=data_file("data-a.parquet"),
    )
    (block,) = read_file(encode_manifest([one], compression="null", level=1), "x").blocks
    file = encode_file(
        json.dumps(MANIFEST_SCHEMA).encode(), "null", [AvroBlock(1, b"\x02" + block.data[1:])]
    )
    with pytest.raises(UnknownVersion, match="version 1"):
        list(read_manifest(file, "x", PATHS))


@pytest.mark.parametrize("tail", [b"", b"\x00", b"\x80" * 30, b"\xff" * 200])
def test_a_block_that_ends_elsewhere_is_corrupt(tail: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        read_entries(b"\x04\x00" + tail, 1, 2, None, [].append)
    file = encode_file(
        json.dumps(MANIFEST_SCHEMA).encode(), "null", [AvroBlock(1, b"\x04\x00" + tail)]
    )
    with pytest.raises(CorruptMetadata):
        list(read_manifest(file, "x", PATHS))


@pytest.mark.parametrize("damaged", ["the partition", "the last fields"])
def test_fields_of_bytes_that_no_number_has_are_corrupt(damaged: str) -> None:
    """Also in the first entry, whose fields cannot be compared with those of another entry."""
    entry = ManifestEntry(
        kind=FileKind.ADD,
        partition=b"",
        bucket=0,
        total_buckets=1,
        file=data_file("data-a.parquet"),
    )
    (block,) = read_file(encode_manifest([entry], compression="null", level=1), "x").blocks
    name = block.data.index(b"\x1cdata-a.parquet")
    before_last_fields = block.data.removesuffix(b"\x02\0\0\x02\0\x02\0\0\0\0")
    assert before_last_fields != block.data
    if damaged == "the partition":
        content = b"\xff" * 20 + block.data[name:]
    else:
        content = before_last_fields + b"\xff" * 20
    with pytest.raises((ValueError, IndexError)):
        read_entries(content, 1, 2, None, [].append)
    file = encode_file(_TEXT, "null", [AvroBlock(1, content)])
    with pytest.raises(CorruptMetadata):
        list(read_manifest(file, "x", ("_PARTITION", "_BUCKET", "_KIND")))
