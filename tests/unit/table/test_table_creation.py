"""Creating tables: Paimon's rules, and errors that say how to keep them. And which tables are
writable.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import (
    ConfigError,
    IncompatibleSchema,
    InvalidOption,
    NotFound,
    PaimonStreamError,
    UnsupportedFeature,
)
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, DataType, TypeRoot, parse_type
from paimon_stream.runtime import SimulatedClock, simulated
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.creation import first_schema
from paimon_stream.table.table import check_table_kind, create_table, load_table

COLUMNS = {
    "id": "BIGINT",
    "name": "STRING",
    "dt": "STRING",
    "tags": "ARRAY<STRING>",
    "at": "TIMESTAMP(6)",
}


def fields(**columns: str) -> tuple[DataField, ...]:
    return tuple(
        DataField(id=7 * i, name=name, type=parse_type(text))
        for i, (name, text) in enumerate(columns.items())
    )


def made(columns: dict[str, str] | None = None, **given: Any) -> TableSchema:
    return first_schema(fields(**(columns or COLUMNS)), **given)


# -- what a new schema looks like -----------------------------------------------------------------


def test_columns_get_fresh_ids_and_options_become_text() -> None:
    schema = made(
        {"k": "INT", "r": "ROW<a ROW<b INT, c INT>, d INT>", "z": "INT"},
        options={
            "bucket": 2,
            "bucket-key": "k",
            "write-only": True,
            "Bucket-Append-Ordered": False,
        },
        comment="what it is",
        time_millis=5,
    )
    assert [one.id for one in schema.fields] == [0, 1, 6]
    assert schema.highest_field_id == 6
    assert schema.options == {
        "bucket": "2",
        "bucket-key": "k",
        "write-only": "true",
        "bucket-append-ordered": "false",
    }
    assert (schema.id, schema.comment, schema.time_millis) == (0, "what it is", 5)


def test_columns_in_option_names_keep_their_case() -> None:
    made_ = made({"Name": "STRING"}, options={"FIELDS.Name.Stats-Mode": "none"})
    assert dict(made_.options) == {"fields.Name.stats-mode": "none"}


def test_primary_key_columns_become_not_null_and_partition_columns_stay() -> None:
    schema = made(primary_keys=["id", "dt"], partition_keys=["dt"], options={"bucket": "1"})
    assert [str(schema.field(name).type) for name in ("id", "dt", "name")] == [
        "BIGINT NOT NULL",
        "STRING NOT NULL",
        "STRING",
    ]
    assert made(partition_keys=["dt"]).field("dt").type.nullable


def test_keys_may_be_given_as_options_which_move() -> None:
    schema = made(options={"primary-key": "dt, id", "partition": "dt", "bucket": "1"})
    assert (schema.primary_keys, schema.partition_keys) == (("dt", "id"), ("dt",))
    assert dict(schema.options) == {"bucket": "1"}
    assert made(partition_keys=["dt"], options={"partition": "dt"}).partition_keys == ("dt",)


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        (
            {"partition_keys": ["day"]},
            IncompatibleSchema,
            "'day', which is not a column. Columns are id",
        ),
        ({"primary_keys": ["day"]}, IncompatibleSchema, "primary key names 'day'"),
        ({"primary_keys": ["id", "id"]}, IncompatibleSchema, "twice"),
        ({"partition_keys": ["tags"]}, IncompatibleSchema, "cannot be nested"),
        ({"primary_keys": ["tags"]}, IncompatibleSchema, "cannot be nested"),
        (
            {"primary_keys": ["dt"], "partition_keys": ["dt"]},
            IncompatibleSchema,
            "only partition keys",
        ),
        ({"partition_keys": "dt"}, IncompatibleSchema, r"Give a list of names: \['dt'\]"),
        (
            {"partition_keys": ["dt"], "options": {"partition": "name"}},
            InvalidOption,
            "Give one of them",
        ),
        ({"options": {"bucket": "0"}}, InvalidOption, "'bucket' is 0"),
        ({"options": {"bucket": "-3"}}, InvalidOption, "'bucket' is -3"),
        ({"options": {"bucket": "-2"}}, InvalidOption, "needs a primary key"),
        ({"options": {"bucket": "4"}}, InvalidOption, "needs 'bucket-key'"),
        ({"options": {"bucket": "many"}}, InvalidOption, "'many'"),
        ({"options": {"bucket-key": "id"}}, InvalidOption, "'bucket' is -1"),
        (
            {"options": {"bucket": "4", "bucket-key": "nope"}},
            InvalidOption,
            "'nope', which is not a column",
        ),
        ({"options": {"bucket": "4", "bucket-key": "id, name"}}, InvalidOption, "without blanks"),
        ({"options": {"bucket": "4", "bucket-key": "tags"}}, InvalidOption, "ARRAY<STRING>"),
        (
            {"options": {"bucket": "4", "bucket-key": "dt"}, "partition_keys": ["dt"]},
            InvalidOption,
            "is a partition key",
        ),
        (
            {"options": {"bucket": "4", "bucket-key": "name"}, "primary_keys": ["id"]},
            InvalidOption,
            "not part of the primary key",
        ),
        (
            {"options": {"bucket": "4", "bucket-key": "name", "bucket-function.type": "mod"}},
            InvalidOption,
            r"one bucket key of type INT or BIGINT, not \(name STRING\)",
        ),
        (
            {"options": {"bucket": "4", "bucket-key": "at", "bucket-function.type": "hive"}},
            InvalidOption,
            "not timestamps",
        ),
        ({"options": {"paimon-stream.journal": "false"}}, InvalidOption, "belongs to a sink"),
        ({"options": {"target-file-size": "much"}}, InvalidOption, "'much'"),
    ],
)
def test_what_paimon_would_refuse_is_refused_with_the_reason(
    given: dict[str, Any], kind: type[PaimonStreamError], text: str
) -> None:
    with pytest.raises(kind, match=text):
        made(**given)


@pytest.mark.parametrize(
    "name", ["_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "rowkind", "_ROW_ID", "_KEY_a"]
)
def test_names_of_paimon_are_no_column_names(name: str) -> None:
    with pytest.raises(
        IncompatibleSchema, match=f"'{name}' has a name that is Paimon's own"
    ) as caught:
        made({name: "INT"})
    assert caught.value.context["column"] == name


@pytest.mark.parametrize(
    "keys", [{"primary_keys": ["x" * 70_000]}, {"partition_keys": ["x" * 70_000]}]
)
def test_a_key_that_is_no_column_is_not_repeated_in_full(keys: dict[str, list[str]]) -> None:
    with pytest.raises(IncompatibleSchema, match="which is not a column") as refused:
        first_schema(fields(id="INT"), **keys)
    assert len(str(refused.value)) < 1_000


def test_columns_are_needed_and_appear_once() -> None:
    with pytest.raises(IncompatibleSchema, match="no columns"):
        first_schema(())
    with pytest.raises(IncompatibleSchema, match="'id' appear more than once"):
        first_schema(fields(id="INT") + fields(id="INT"))
    with pytest.raises(IncompatibleSchema, match="no name"):
        made({" ": "INT"})


def test_an_unknown_option_is_kept_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"'target-file-sise'.*'target-file-size'"):
        schema = made(options={"target-file-sise": "1 mb"})
    assert schema.options["target-file-sise"] == "1 mb"


# -- creating -------------------------------------------------------------------------------------


def test_creating_makes_schema_0_and_nothing_else() -> None:
    storage = MemoryStorage()
    table = create_table(storage, fields(id="INT"), runtime=simulated(1, SimulatedClock(42)))
    assert table is not None and table.schema.time_millis == 42
    assert load_table(storage).schema == table.schema
    assert [stat.name for stat in storage.list_files("schema")] == ["schema-0"]


def test_a_table_that_is_there_is_left_alone() -> None:
    storage = MemoryStorage()
    create_table(storage, fields(id="INT"))
    before = storage.read("schema/schema-0")
    assert create_table(storage, fields(other="STRING")) is None
    assert storage.read("schema/schema-0") == before
    storage.write(
        "schema/schema-1", before.replace(b'"id" : 0,\n  "fields"', b'"id" : 1,\n  "fields"')
    )
    storage.delete("schema/schema-0")
    assert create_table(storage, fields(other="STRING")) is None


def test_nothing_is_written_for_a_schema_that_is_refused() -> None:
    storage = MemoryStorage()
    with pytest.raises(InvalidOption):
        create_table(
            storage, fields(id="INT"), options={"data-file.path-directory": "../elsewhere"}
        )
    assert storage.list_files("schema") == []


def test_a_table_that_no_engine_could_merge_is_not_created() -> None:
    storage = MemoryStorage()
    engine = {"bucket": "1", "merge-engine": "aggregation"}
    for options in (
        {"fields.default-aggregate-function": "sum"},
        {"fields.s.aggregate-function": "collect"},
        {"sequence.field": "s", "fields.s.aggregate-function": "max"},
    ):
        with pytest.raises(InvalidOption, match="'s'"):
            create_table(
                storage, fields(k="INT", s="STRING"), primary_keys=["k"], options=engine | options
            )
    assert storage.list_files("schema") == []
    foreign = engine | {"fields.s.aggregate-function": "hll_sketch"}
    assert create_table(storage, fields(k="INT", s="BYTES"), primary_keys=["k"], options=foreign)


MERGED = {"bucket": "1", "merge-engine": "aggregation"}
GROUPED = {"bucket": "1", "merge-engine": "partial-update"}


@pytest.mark.parametrize(
    "options",
    [
        {"data-file.prefix": "a/b"},
        {"changelog-file.prefix": "../x", "changelog-producer": "input"},
        {"bucket": str(2**31)},
        {"rowkind.field": "v"},
        {"record-level.expire-time": "1 d"},
        {"record-level.expire-time": "1 d", "record-level.time-field": "s"},
        {"scan.mode": "foo"},
        {"file.format.per.level": "0:csv"},
        {"metadata.stats-mode.per.level": "0:foo"},
        {"changelog-producer": "input", "changelog-file.format": "csv"},
        {"fields.V.stats-mode": "none"},
        MERGED | {"fields.v.aggregate-function": ""},
        MERGED | {"fields.v.aggregate-function": " sum"},
        MERGED | {"fields.default-aggregate-function": "sum "},
        MERGED | {"fields.V.aggregate-function": "sum"},
        MERGED | {"fields.v.ignore-retract": "maybe"},
        MERGED | {"fields.s.aggregate-function": "listagg", "fields.s.distinct": "maybe"},
        GROUPED | {"fields.v.sequence-group": " s"},
        GROUPED | {"fields.v.sequence-group": "S"},
        GROUPED | {"fields.v.sequence-group": ""},
        GROUPED | {"fields.v.sequence-group": "s,s"},
        GROUPED
        | {"fields.v.sequence-group": "s", "partial-update.remove-record-on-sequence-group": "V"},
    ],
    ids=repr,
)
def test_options_with_which_java_could_not_go_on_are_refused(options: dict[str, str]) -> None:
    storage = MemoryStorage()
    columns = fields(k="INT", v="INT", s="STRING")
    with pytest.raises(InvalidOption):
        create_table(storage, columns, primary_keys=["k"], options={"bucket": "1"} | options)
    assert storage.list_files("schema") == []


def nested(type_: str, times: int, around: str = "ROW<x {}>") -> str:
    for _ in range(times):
        type_ = around.format(type_)
    return type_


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (("v", "ROW<x INT, y INT, x INT>"), "member 'x' appears more than once"),
        (("v", "ARRAY<MAP<INT NOT NULL, ROW<x INT, x INT>>>"), "member 'x' appears more than once"),
        (("v", "ROW<`` INT>"), "has no name"),
        (("v", "CHAR(0)"), "a length is at least 1"),
        (("v", "MAP<VARCHAR(0) NOT NULL, INT>"), "a length is at least 1"),
        (("v", "ROW<x BINARY(0)>"), "a length is at least 1"),
        (("v", nested("INT", 90)), "nested more than"),
        (("\ud800", "INT"), "not UTF-8"),
    ],
    ids=lambda one: one[1][:30] if isinstance(one, tuple) else "",
)
def test_a_schema_that_nobody_could_open_is_not_created(
    column: tuple[str, str], message: str
) -> None:
    storage = MemoryStorage()
    with pytest.raises(IncompatibleSchema, match=message):
        create_table(storage, fields(**dict([column])))
    assert storage.list_files("schema") == []
    empty = DataField(id=0, name="v", type=DataType(root=TypeRoot.ROW))
    with pytest.raises(IncompatibleSchema, match="at least one member"):
        create_table(storage, (empty,))


def test_overrides_are_in_force_but_not_in_the_schema() -> None:
    storage = MemoryStorage()
    create_table(storage, fields(id="INT"), options={"commit.timeout": "1 s"})
    table = load_table(storage, {"Commit.Timeout": "2 s", "paimon-stream.journal": "false"})
    assert (table.options["commit.timeout"], table.schema.options["commit.timeout"]) == (
        "2 s",
        "1 s",
    )
    with pytest.raises(NotFound, match=r"PaimonTable\.create"):
        load_table(MemoryStorage())


# -- writable -------------------------------------------------------------------------------------


def checked(
    columns: dict[str, str] | None = None, options: dict[str, str] | None = None, **keys: Any
) -> None:
    """Checks a table as it may lie there, made by another engine that allows more."""
    storage = MemoryStorage("writable")
    storage.clear()
    create_table(storage, fields(**(columns or {"id": "BIGINT", "dt": "STRING"})), **keys)
    table = load_table(storage)
    schema = replace(table.schema, options=MappingProxyType(options or {}))
    check_table_kind(replace(table, schema=schema, options=type(table.options)(schema.options)))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bucket": "4", "bucket-key": "id"},
        {"bucket": "4", "bucket-key": "id", "bucket-function.type": "mod"},
        {"bucket": "4", "bucket-key": "id", "bucket-function.type": "hive"},
        {"bucket-function.type": "mod"},  # without buckets it does not matter
        {"file.compression": "SNAPPY"},
        {"manifest.compression": "null"},
        {"type": "table", "branch": "main", "data-file.external-paths": ""},
        {"data-file.external-paths": "s3://b"},
        {"data-file.external-paths.strategy": "round-robin"},
        {"deletion-vectors.enabled": "true"},
        {"deletion-vectors.enabled": "FALSE", "row-tracking.enabled": "TRUE"},
        {"write-only": "true", "data-file.path-directory": "data"},
    ],
)
def test_ordinary_append_tables_are_writable(options: dict[str, str]) -> None:
    checked(options=options)
    checked(options=options, partition_keys=["dt"])


@pytest.mark.parametrize(
    ("options", "kind", "shown"),
    [
        ({"type": "format-table"}, UnsupportedFeature, "format-table"),
        ({"data-evolution.enabled": "true"}, UnsupportedFeature, "data evolution"),
        ({"branch": "dev"}, UnsupportedFeature, "branch = 'dev'"),
        ({"file.format": "csv"}, UnsupportedFeature, "file.format = 'csv'"),
        ({"manifest.format": "parquet"}, UnsupportedFeature, "manifest.format = 'parquet'"),
        ({"file.compression": "brotli"}, UnsupportedFeature, "zstd, snappy"),
        ({"manifest.compression": "none"}, InvalidOption, "manifest.compression"),
        ({"bucket": "-2"}, InvalidOption, "'bucket' is -2"),
        ({"bucket": "4"}, InvalidOption, "bucket-key"),
    ],
)
def test_what_cannot_be_written_is_refused_with_option_and_cure(
    options: dict[str, str], kind: type[ConfigError], shown: str
) -> None:
    with pytest.raises(kind) as caught:
        checked(options=options)
    assert shown in str(caught.value)
    assert any(
        word in str(caught.value) for word in ("Set ", "Write ", "set it", "Set it", "Remove ")
    )
    assert caught.value.context.get("option")


@pytest.mark.parametrize("options", [{}, {"bucket": "-2"}])
def test_keys_that_may_move_to_another_partition_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(
        UnsupportedFeature,
        match=r"has a primary key \(id\).*cross-partition.*or without partitions",
    ):
        checked(primary_keys=["id"], options=options, partition_keys=["dt"])
    checked(primary_keys=["id"], options={"bucket": "1"})
    checked(primary_keys=["id"], options={"bucket": "-2"})
    checked(primary_keys=["id"], options={"bucket": "-1"})
    checked(primary_keys=["id", "dt"], partition_keys=["dt"])


def test_a_primary_key_that_lacks_a_partition_key_is_refused_with_fixed_buckets_too() -> None:
    with pytest.raises(
        InvalidOption, match=r"lacks the partition key 'dt'.*a row in each partition"
    ):
        checked(primary_keys=["id"], partition_keys=["dt"], options={"bucket": "2"})
    checked(primary_keys=["id", "dt"], partition_keys=["dt"], options={"bucket": "2"})


@pytest.mark.parametrize(
    "text",
    [
        "BOOLEAN",
        "TINYINT",
        "SMALLINT",
        "INT",
        "BIGINT",
        "FLOAT",
        "DOUBLE",
        "DECIMAL(38, 10)",
        "STRING",
        "BYTES",
        "DATE",
        "TIMESTAMP(6)",
        "TIMESTAMP_LTZ(6)",
        "INT NOT NULL",
        "TIME",
        "CHAR(3)",
        "VARCHAR(3)",
        "BINARY(3)",
        "VARBINARY(3)",
        "TIMESTAMP(3)",
        "TIMESTAMP(9)",
        "TIMESTAMP_LTZ(3)",
        "ARRAY<INT>",
        "MAP<STRING, INT>",
        "ROW<a INT>",
        "MULTISET<INT>",
    ],
)
def test_columns_of_every_type_can_be_written(text: str) -> None:
    checked({"id": "INT", "it": text})


def test_partition_columns_without_a_stable_folder_are_refused() -> None:
    with pytest.raises(UnsupportedFeature, match=r"Partition key 'p' of .* is BYTES"):
        checked({"id": "INT", "p": "BYTES"}, partition_keys=["p"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checked({"id": "INT", "p": "TIMESTAMP_LTZ(6)"}, partition_keys=["p"])
    with pytest.raises(UnsupportedFeature, match="time zone"):
        checked(
            {"id": "INT", "p": "TIMESTAMP_LTZ(6)"},
            {"partition.legacy-name": "false"},
            partition_keys=["p"],
        )


def test_blanks_around_values_that_java_cannot_read_are_not_stored(tmp_path: Path) -> None:
    given = {
        "bucket": " 4 ",
        "write-only": "true ",
        "file.format": " orc",
        "fields.id.stats-mode": " none ",
    }
    columns = [("id", "INT NOT NULL")]
    kept = {"fields.id.default-value": " 5 ", "partition.default-name": " null "}
    table = PaimonTable.create(
        str(tmp_path / "t"), columns, primary_keys=["id"], options={**given, **kept}
    )
    assert table.options == {name: value.strip() for name, value in given.items()} | kept
    for key, wrong in (("bucket", "1_0"), ("metadata.stats-mode", "truncate( 16 )")):
        with pytest.raises(InvalidOption, match=wrong.split("(")[0]):
            PaimonTable.create(
                str(tmp_path / "other"), columns, primary_keys=["id"], options={key: wrong}
            )
