"""Schemas: what Java Paimon refuses is refused, what it makes is made the same, and every schema
file of Java is read and written again without loss.
"""

from __future__ import annotations

import base64
import json
import random
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import InvalidOption, PaimonStreamError
from paimon_stream.format.schema_json import decode_schema, encode_schema
from paimon_stream.format.types import DataField, DataType, TypeRoot, parse_type
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.option_rules import IMMUTABLE
from paimon_stream.table.table import check_table_kind, create_table, load_table
from tests.kits.seeds import seeds

GOLDEN = Path(__file__).parent.parent / "golden"
SCHEMA = [("id", "INT"), ("s", "STRING")]


@pytest.mark.parametrize(
    "path", sorted(GOLDEN.glob("*/db.db/t/schema/schema-*")), ids=lambda p: p.parts[-5]
)
def test_every_golden_schema_is_read_and_written_again(path: Path) -> None:
    data = path.read_bytes()
    schema = decode_schema(data, str(path))
    assert json.loads(encode_schema(schema)) == json.loads(data)
    assert list(json.loads(encode_schema(schema))) == list(json.loads(data))
    assert decode_schema(encode_schema(schema), "again") == schema


def test_sample_schemas_are_read_and_written_again(vectors: Any) -> None:
    files = vectors("sample_files")["files"]
    names = [name for name in files if "/schema/schema-" in name]
    assert names
    for name in names:
        data = base64.b64decode(files[name]["base64"])
        assert json.loads(encode_schema(decode_schema(data, name))) == json.loads(data)


# -- nested types ---------------------------------------------------------------------------------

ATOMS = [
    "INT",
    "STRING",
    "DECIMAL(20, 3)",
    "TIMESTAMP(3)",
    "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "BYTES",
    "CHAR(4)",
]


def some_type(rng: random.Random, depth: int) -> str:
    """The text of a random type."""
    null = rng.choice(["", "", " NOT NULL"])
    if depth == 0 or rng.random() < 0.3:
        return rng.choice(ATOMS) + null
    inner = lambda: some_type(rng, depth - 1)  # noqa: E731
    match rng.randrange(4):
        case 0:
            return f"ARRAY<{inner()}>{null}"
        case 1:
            return f"MAP<{rng.choice(ATOMS)} NOT NULL, {inner()}>{null}"
        case 2:
            return f"MULTISET<{rng.choice(ATOMS)}>{null}"
        case _:
            members = ", ".join(f"f{n} {inner()}" for n in range(rng.randint(1, 3)))
            return f"ROW<{members}>{null}"


@pytest.mark.parametrize("seed", seeds(2, 4))
def test_ids_of_nested_types_are_those_of_java(java: Any, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    columns = [(f"c{n}", some_type(rng, 4)) for n in range(25)]
    PaimonTable.create(str(tmp_path / "ours"), schema=columns)
    java.create_table(tmp_path / "theirs", columns)
    ours, theirs = java.schema(tmp_path / "ours"), java.schema(tmp_path / "theirs")
    assert (ours["fields"], ours["highestFieldId"]) == (theirs["fields"], theirs["highestFieldId"])


def test_descriptions_defaults_and_comments_are_read_by_java_as_we_wrote_them(
    java: Any, tmp_path: Path
) -> None:
    row = parse_type("ROW<a INT, b ARRAY<ROW<c STRING NOT NULL>>>")
    described = replace(
        row, fields=tuple(replace(one, description=f"ü {one.name}") for one in row.fields)
    )
    fields = [
        DataField(
            id=0,
            name="id",
            type=parse_type("BIGINT NOT NULL"),
            description='the "key"\n',
            default_value="7",
        ),
        DataField(id=0, name="r", type=described, description=""),
        DataField(id=0, name="s", type=parse_type("STRING"), default_value=""),
        DataField(
            id=0, name="ts", type=parse_type("TIMESTAMP(6)"), default_value="2024-02-29 12:00:00"
        ),
        DataField(id=0, name="字段", type=DataType(root=TypeRoot.BOOLEAN), default_value="true"),
    ]
    storage = LocalStorage(str(tmp_path / "t"))
    made = create_table(
        storage,
        fields,
        comment="a 'comment' of\ttwo lines\n漢字",
        options={"fields.id.stats-mode": "full"},
    )
    assert made is not None
    ours = json.loads(encode_schema(made.schema))
    assert java.schema(tmp_path / "t") == ours
    java.alter_table(tmp_path / "t", ("add", "late", "ROW<x INT, y ROW<z INT>>"), ("drop", "s"))
    again = load_table(storage).schema
    assert json.loads(encode_schema(again)) == java.schema(tmp_path / "t")
    assert (again.id, again.comment) == (1, made.schema.comment)
    assert [one.description for one in again.fields[:2]] == ['the "key"\n', ""]
    assert again.highest_field_id == made.schema.highest_field_id + 4


# -- options --------------------------------------------------------------------------------------

IMPOSSIBLE: list[dict[str, str]] = [
    {"bucket": "abc"},
    {"file.format": "foo"},
    {"manifest.format": "foo"},
    {"manifest.compression": "none"},
    {"merge-engine": "foo"},
    {"bucket-function.type": "foo"},
    {"metadata.stats-mode": "foo"},
    {"metadata.stats-mode": "truncate(0)"},
    {"fields.nope.stats-mode": "none"},
    {"fields.id.stats-mode": "foo"},
    {"fields.nope.aggregate-function": "sum"},
    {"file.compression": "foo"},
    {"target-file-size": "abc"},
    {"snapshot.num-retained.min": "0"},
    {"snapshot.num-retained.min": "5", "snapshot.num-retained.max": "3"},
    {"snapshot.num-retained.max": "0"},
    {"changelog.num-retained.max": "5"},
    {"snapshot.num-retained.max": "5"},
    {"changelog-producer": "input"},
    {"changelog-producer": "foo"},
    {"sequence.field": "nope"},
    {"rowkind.field": "nope"},
    {"data-evolution.enabled": "true"},
    {"partition.expiration-time": "1 d"},
    {"full-compaction.delta-commits": "x"},
    {"tag.automatic-creation": "foo"},
    {"file-index.bloom-filter.columns": "nope"},
    {"file.block-size": "x"},
    {"metadata.stats-dense-store": "x"},
    {"partition.legacy-name": "maybe"},
    {"write-only": "maybe"},
    {"branch": "b"},
    {
        "primary-key": "id",
        "merge-engine": "first-row",
        "changelog-producer": "input",
        "bucket": "1",
    },
    {"primary-key": "id", "merge-engine": "first-row", "sequence.field": "s", "bucket": "1"},
    {"primary-key": "id", "row-tracking.enabled": "true", "bucket": "1"},
    {"primary-key": "id", "bucket": "1", "rowkind.field": "id"},
    {"primary-key": "id", "bucket": "1", "record-level.expire-time": "1 d"},
    {"primary-key": "id", "bucket": "1", "fields.S.stats-mode": "none"},
    {
        "primary-key": "id",
        "bucket": "1",
        "fields.s.aggregate-function": " max",
        "merge-engine": "aggregation",
    },
    {
        "primary-key": "id",
        "bucket": "1",
        "fields.s.ignore-retract": "maybe",
        "merge-engine": "aggregation",
    },
    {
        "primary-key": "id",
        "bucket": "1",
        "fields.s.sequence-group": "",
        "merge-engine": "partial-update",
    },
    {
        "primary-key": "id",
        "bucket": "1",
        "fields.s.sequence-group": "s,s",
        "merge-engine": "partial-update",
    },
    {"bucket": "99999999999", "bucket-key": "id"},
]


@pytest.mark.parametrize(
    "options", IMPOSSIBLE, ids=lambda o: ",".join(f"{k}={v}" for k, v in o.items())
)
def test_options_that_java_cannot_work_with_are_refused_before_anything_is_written(
    java: Any, tmp_path: Path, options: dict[str, str]
) -> None:
    from py4j.protocol import Py4JJavaError

    def by_java() -> None:
        java.create_table(tmp_path / "theirs", SCHEMA, options=options)
        java.write(tmp_path / "theirs", [{"id": 1, "s": "x"}], commit_identifier=1)

    with pytest.raises(Py4JJavaError):
        by_java()

    def by_us() -> None:
        PaimonTable.create(str(tmp_path / "ours"), schema=SCHEMA, options=options)
        check_table_kind(load_table(LocalStorage(str(tmp_path / "ours"))))

    with pytest.raises(PaimonStreamError) as caught:
        by_us()
    assert any(key in str(caught.value) for key in options)
    assert not list((tmp_path / "ours").glob("snapshot/*"))


POSSIBLE: list[dict[str, str]] = [
    {"sequence.field": "id"},
    {"merge-engine": "First-Row"},
    {"fields.id.aggregate-function": "sum"},
    {"fields.default-aggregate-function": "last_value"},
    {"fields.id,s.sequence-group": "s"},
    {"snapshot.num-retained.min": "3", "snapshot.num-retained.max": "3"},
    {"changelog.num-retained.min": "30", "changelog.time-retained": "1 d"},
    {"tag.automatic-creation": "process-time"},
    {"record-level.expire-time": "1 h"},
    {"consumer-id": "x"},
    {"file.compression.zstd-level": "19"},
    {"file-index.bloom-filter.columns": "id,s"},
    {
        "partition": "s",
        "partition.expiration-time": "7 d",
        "partition.timestamp-formatter": "yyyyMMdd",
    },
    {"metadata.stats-mode": "Truncate(5)", "fields.s.stats-mode": "NONE"},
]


@pytest.mark.parametrize(
    "options", POSSIBLE, ids=lambda o: ",".join(f"{k}={v}" for k, v in o.items())
)
def test_options_that_java_takes_are_taken(
    java: Any, tmp_path: Path, options: dict[str, str]
) -> None:
    for path, create in ((tmp_path / "theirs", java.create_table), (tmp_path / "ours", ours)):
        create(path, SCHEMA, options=options)
    assert java.schema(tmp_path / "ours")["options"] == java.schema(tmp_path / "theirs")["options"]


def ours(path: Path, schema: list[tuple[str, str]], options: dict[str, str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PaimonTable.create(str(path), schema=schema, options=options)


def test_what_java_never_changes_no_writer_of_ours_overrides(java: Any) -> None:
    options = java._bridge.field(java._paimon.CoreOptions({}), "IMMUTABLE_OPTIONS")
    assert set(options) <= IMMUTABLE


@pytest.mark.parametrize(
    "override",
    [
        {"bucket": "4"},
        {"bucket-key": "s"},
        {"bucket-function.type": "hive"},
        {"partition.default-name": "none"},
        {"partition.legacy-name": "false"},
        {"data-file.path-directory": "data"},
        {"type": "format-table"},
        {"branch": "b"},
        {"primary-key": "id"},
        {"row-tracking.enabled": "true"},
    ],
    ids=str,
)
def test_a_writer_cannot_override_what_holds_for_all(
    tmp_path: Path, override: dict[str, str]
) -> None:
    storage = LocalStorage(str(tmp_path / "t"))
    PaimonTable.create(
        str(tmp_path / "t"), schema=SCHEMA, options={"bucket": 2, "bucket-key": "id"}
    )
    with pytest.raises(InvalidOption, match="one writer cannot change that"):
        load_table(storage, override)
    same = {
        "bucket": "2",
        "bucket-key": "id",
        "partition.legacy-name": "true",
        "branch": "main",
        "type": "table",
    }
    assert (
        load_table(storage, {**same, "target-file-size": "1 mb"}).options["target-file-size"]
        == "1 mb"
    )
