"""Merging the columns of rows into a table's: which are added, widened and refused."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from paimon_stream.errors import (
    CommitContended,
    IncompatibleSchema,
    InvalidOption,
    Unavailable,
    UnsupportedFeature,
)
from paimon_stream.format.schema_json import TableSchema, reassign_ids
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.storage.base import PutResult, Storage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.schema_change import Mode, merge_columns
from paimon_stream.table.table import Table, create_table, evolve, load_table


def fields(**columns: str) -> tuple[DataField, ...]:
    return tuple(
        DataField(id=position, name=name, type=parse_type(text))
        for position, (name, text) in enumerate(columns.items())
    )


def schema_of(
    partition_keys: tuple[str, ...] = (),
    primary_keys: tuple[str, ...] = (),
    options: dict[str, str] | None = None,
    **columns: str,
) -> TableSchema:
    numbered, highest = reassign_ids(fields(**columns))
    return TableSchema(
        id=3,
        fields=numbered,
        highest_field_id=highest,
        partition_keys=partition_keys,
        primary_keys=primary_keys,
        options=MappingProxyType(options or {}),
    )


def merged(schema: TableSchema, mode: Mode = "widen", **columns: str) -> TableSchema:
    return merge_columns(schema, fields(**columns), mode, location="/w/db.db/t", time_millis=7)


def refused(schema: TableSchema, mode: Mode = "widen", **columns: str) -> IncompatibleSchema:
    with pytest.raises(IncompatibleSchema) as caught:
        merged(schema, mode, **columns)
    assert "/w/db.db/t" in caught.value.message
    return caught.value


def test_rows_that_bring_nothing_new_leave_the_very_same_schema() -> None:
    schema = schema_of(a="INT NOT NULL", r="ROW<x INT, y STRING>")
    assert merged(schema, r="ROW<y STRING NOT NULL> NOT NULL") is schema
    assert merged(schema, a="INT") is schema
    assert merged(schema) is schema


def test_new_columns_come_last_nullable_and_with_ids_never_used() -> None:
    schema = schema_of(a="INT", b="STRING")
    made = merged(schema, "add", c="DATE NOT NULL", a="INT", d="ROW<x INT, y ARRAY<ROW<z INT>>>")
    assert (made.id, made.highest_field_id, made.time_millis) == (4, 6, 7)
    assert made.field_names == ("a", "b", "c", "d")
    assert [one.id for one in made.fields] == [0, 1, 2, 6]
    assert made.field("c").type.nullable
    members = made.field("d").type.fields
    assert [one.id for one in members] == [3, 5]
    assert (made.options, made.partition_keys) == (schema.options, schema.partition_keys)


def test_new_members_of_rows_are_added_inside_of_arrays_and_maps() -> None:
    schema = schema_of(
        a="ARRAY<ROW<x INT>>", m="MAP<STRING NOT NULL, ROW<x INT>>", r="ROW<r ROW<x INT>>"
    )
    made = merged(
        schema,
        "add",
        r="ROW<r ROW<y INT>>",
        m="MAP<STRING, ROW<y INT>>",
        a="ARRAY<ROW<y INT NOT NULL>>",
    )
    assert [str(one.type) for one in made.fields] == [
        "ARRAY<ROW<x INT, y INT>>",
        "MAP<STRING NOT NULL, ROW<x INT, y INT>>",
        "ROW<r ROW<x INT, y INT>>",
    ]
    assert made.highest_field_id == schema.highest_field_id + 3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("INT", "BIGINT"),
        ("BIGINT NOT NULL", "DECIMAL(19, 0)"),
        ("SMALLINT", "FLOAT"),
        ("INT", "DOUBLE"),
        ("DECIMAL(10, 2)", "DECIMAL(12, 2)"),
        ("CHAR(3)", "STRING"),
        ("VARCHAR(3)", "VARCHAR(4)"),
        ("BINARY(3)", "BYTES"),
        ("TIMESTAMP(3)", "TIMESTAMP(6)"),
    ],
)
def test_a_column_widens_where_asked_to_and_keeps_its_id_and_nullability(
    old: str, new: str
) -> None:
    schema = schema_of(a=old)
    made = merged(schema, a=new)
    assert made.field("a").type == parse_type(new).with_nullable(schema.field("a").type.nullable)
    assert made.field("a").id == 0 and made.highest_field_id == 0
    error = refused(schema, "add", a=new)
    for part in ("'a'", old, new, "paimon-stream.merge-schema = widen"):
        assert part in error.message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("BIGINT", "INT"),
        ("INT", "STRING"),
        ("STRING", "INT"),
        ("INT", "FLOAT"),
        ("BIGINT", "DOUBLE"),
        ("INT", "DECIMAL(9, 0)"),
        ("DECIMAL(5, 2)", "DOUBLE"),
        ("DECIMAL(5, 2)", "DECIMAL(9, 3)"),
        ("STRING", "VARCHAR(9)"),
        ("TIMESTAMP(6)", "TIMESTAMP(3)"),
        ("TIMESTAMP(3)", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        ("TIMESTAMP(3)", "DATE"),
        ("DATE", "TIMESTAMP(3)"),
        ("INT", "ARRAY<INT>"),
        ("ARRAY<INT>", "MAP<INT, INT>"),
        ("ROW<x INT>", "INT"),
        ("ARRAY<BIGINT>", "ARRAY<INT>"),
        ("CHAR(3)", "CHAR(5)"),
    ],
)
def test_what_is_no_wider_type_is_refused_with_both_types_and_a_cure(old: str, new: str) -> None:
    error = refused(schema_of(a=old), a=new)
    assert "not a wider type" in error.message and "Cast, rename or drop" in error.message
    for text in (old, new):
        assert text.removeprefix("ARRAY<").removesuffix(">") in error.message
    assert error.context["column"].startswith("a")


def test_a_narrower_decimal_of_the_same_scale_fits_as_it_is() -> None:
    schema = schema_of(a="DECIMAL(12, 2)")
    assert merged(schema, a="DECIMAL(5, 2)") is schema


@pytest.mark.parametrize(
    ("what", "table"),
    [
        ("a partition key", {"partition_keys": ("k",)}),
        ("a primary key", {"primary_keys": ("k",)}),
        ("a bucket key", {"options": {"bucket": "2", "bucket-key": "k"}}),
        ("a sequence field", {"options": {"sequence.field": "k"}}),
    ],
)
def test_a_column_that_rows_are_found_or_ordered_by_never_changes_its_type(
    what: str, table: dict[str, Any]
) -> None:
    schema = schema_of(k="INT", v="INT", **table)
    error = refused(schema, k="BIGINT", v="BIGINT", new="INT")
    assert f"it is {what}, whose type never changes" in error.message
    assert error.context["columns"] == ("k",)
    assert merged(schema, k="INT", new="INT").field_names == ("k", "v", "new")


def test_names_that_no_column_may_have_are_refused_for_new_columns() -> None:
    schema = schema_of(a="INT")
    assert refused(schema, _SEQUENCE_NUMBER="BIGINT", _KEY_a="INT").context["columns"] == (
        "_SEQUENCE_NUMBER",
        "_KEY_a",
    )
    with pytest.raises(IncompatibleSchema, match="more than once"):
        merge_columns(schema, (*fields(b="INT"), *fields(b="INT")), "add", location="t")


def test_all_reasons_are_in_one_message() -> None:
    error = refused(schema_of(a="INT", r="ROW<x INT>"), a="STRING", r="ROW<x DATE>", b="INT")
    assert error.context["columns"] == ("a", "r.x")


# -- publishing -----------------------------------------------------------------------------------


def table_on(storage: Storage, **columns: str) -> Table:
    table = create_table(storage, fields(**columns))
    assert table is not None
    return table


def adding(**columns: str):  # type: ignore[no-untyped-def]
    return lambda schema: merge_columns(
        schema, fields(**columns), "widen", location="t", time_millis=1
    )


def test_a_new_schema_is_the_next_file_and_costs_nothing_the_second_time() -> None:
    storage = MemoryStorage()
    table = evolve(table_on(storage, a="INT"), adding(b="INT"), {"file.format": "orc"})
    assert table.schema == load_table(storage).schema
    assert table.schema.id == 1 and table.options["file.format"] == "orc"
    assert evolve(table, adding(b="INT", a="INT")) is table
    assert SchemaStore(storage).ids() == [0, 1]


def test_after_a_lost_race_the_columns_are_merged_into_what_won() -> None:
    storage = MemoryStorage()
    mine = table_on(storage, a="INT")
    evolve(mine, adding(b="INT"))
    evolve(load_table(storage), adding(c="INT"))
    made = evolve(mine, adding(a="BIGINT", d="DATE", b="INT")).schema
    assert [(one.id, one.name, str(one.type)) for one in made.fields] == [
        (0, "a", "BIGINT"),
        (1, "b", "INT"),
        (2, "c", "INT"),
        (3, "d", "DATE"),
    ]
    assert (made.id, made.highest_field_id) == (3, 3)
    assert evolve(mine, adding(d="DATE")).schema == made


def test_a_race_that_was_won_with_another_type_is_refused_and_nothing_is_published() -> None:
    storage = MemoryStorage()
    mine = table_on(storage, a="INT")
    evolve(mine, adding(b="STRING"))
    with pytest.raises(
        IncompatibleSchema, match=r"'b' is STRING in the table and DATE in the rows"
    ):
        evolve(mine, adding(b="DATE"))
    assert SchemaStore(storage).ids() == [0, 1]


def test_columns_that_could_not_be_written_are_not_published() -> None:
    storage = MemoryStorage()
    table = create_table(storage, fields(a="INT"), options={"file.format": "avro"})
    assert table is not None
    with pytest.raises(UnsupportedFeature):
        evolve(table, adding(t="TIMESTAMP(9)"))
    assert SchemaStore(storage).ids() == [0]


def summing(storage: Storage, options: dict[str, str]) -> Table:
    table = create_table(
        storage,
        fields(k="INT", v="INT"),
        primary_keys=["k"],
        options={"bucket": "1", "merge-engine": "aggregation", **options},
    )
    assert table is not None
    return table


def test_columns_that_the_merge_engine_could_not_merge_are_not_published() -> None:
    storage = MemoryStorage()
    table = summing(storage, {"fields.default-aggregate-function": "sum"})
    with pytest.raises(InvalidOption, match=r"'late' .* is STRING, .* 'sum' does not take"):
        evolve(table, adding(late="STRING"))
    assert SchemaStore(storage).ids() == [0]
    assert evolve(table, adding(late="DOUBLE")).schema.id == 1


@pytest.mark.parametrize(
    "type_",
    ["ROW<x INT, x INT>", "ARRAY<CHAR(0)>", "ROW<x " * 90 + "INT" + ">" * 90],
    ids=lambda one: one[:20],
)
def test_columns_that_nobody_could_read_are_not_published(type_: str) -> None:
    storage = MemoryStorage()
    table = table_on(storage, a="INT")
    with pytest.raises(IncompatibleSchema):
        evolve(table, adding(late=type_))
    assert SchemaStore(storage).ids() == [0]


def test_options_of_this_writer_alone_do_not_let_it_publish_what_others_cannot_merge() -> None:
    storage = MemoryStorage()
    table = summing(storage, {"fields.default-aggregate-function": "sum"})
    mine = load_table(storage, {"fields.late.aggregate-function": "last_value"})
    with pytest.raises(InvalidOption, match="'late'"):
        evolve(mine, adding(late="STRING"), {"fields.late.aggregate-function": "last_value"})
    assert SchemaStore(storage).latest() == table.schema


def test_a_table_that_only_this_writers_options_make_writable_still_gets_columns() -> None:
    storage = MemoryStorage()
    table = summing(storage, {"fields.v.aggregate-function": "hll_sketch"})
    own = {"fields.v.aggregate-function": "sum"}
    assert evolve(load_table(storage, own), adding(late="STRING"), own).schema.id == 1
    with pytest.raises(UnsupportedFeature, match="hll_sketch"):
        evolve(table, adding(later="STRING"))


class LostAnswer(MemoryStorage):
    """A storage that does not answer whether a schema was created. `happens` says whether it
    was.
    """

    happens = True

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        if path == "schema/schema-1":
            if self.happens:
                super().put_if_absent(path, data)
            raise Unavailable("timed out", path=path)
        return super().put_if_absent(path, data)


class LostCall(LostAnswer):
    happens = False


def test_a_lost_answer_is_found_out_by_looking() -> None:
    storage = LostAnswer()
    table = table_on(storage, a="INT")
    assert evolve(table, adding(b="INT")).schema.field_names == ("a", "b")
    assert SchemaStore(storage).ids() == [0, 1]
    with pytest.raises(Unavailable):
        evolve(table_on(LostCall(), a="INT"), adding(b="INT"))


class Rival(MemoryStorage):
    """Somebody else is always first."""

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        if path.startswith("schema/") and path != "schema/schema-0":
            newest = load_table(self).schema
            other = adding(**{f"x{newest.id}": "INT"})(newest)
            SchemaStore(_Quiet(self)).create(other)
        return super().put_if_absent(path, data)


class _Quiet:
    """The storage below a rival: its puts are not preceded by those of others."""

    def __init__(self, rival: Rival) -> None:
        self._rival = rival
        self.location = rival.location

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        return MemoryStorage.put_if_absent(self._rival, path, data)


def test_who_loses_every_race_gives_up_with_an_error_that_says_so() -> None:
    storage = Rival()
    with pytest.raises(CommitContended, match="others changed the schema"):
        evolve(table_on(storage, a="INT"), adding(b="INT"))
    assert "b" not in load_table(storage).schema.field_names


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("MAP<INT NOT NULL, INT>", "MAP<BIGINT NOT NULL, INT>"),
        ("MAP<ROW<x INT> NOT NULL, INT>", "MAP<ROW<x INT, y INT> NOT NULL, INT>"),
        ("MULTISET<INT>", "MULTISET<BIGINT>"),
    ],
)
def test_keys_of_maps_never_change_because_no_reader_converts_them(old: str, new: str) -> None:
    assert "keys of maps never change" in refused(schema_of(m=old), m=new).message
