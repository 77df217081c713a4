"""Changes of a schema that a user asks for: what they make, and what is refused."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from paimon_stream.errors import (
    CommitContended,
    IncompatibleSchema,
    InvalidOption,
    Unavailable,
    UnsupportedFeature,
)
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.storage.base import PutResult
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.schema_change import SchemaChange as To
from paimon_stream.table.schema_change import altered
from paimon_stream.table.table import Table, alter_table, create_table, load_table
from tests.kits.calls import calls_of, grown_too_much

COLUMNS = {
    "k": "INT NOT NULL",
    "dt": "STRING NOT NULL",
    "seq": "INT",
    "n": "SMALLINT NOT NULL",
    "s": "ROW<a INT>",
}
KEYED: dict[str, Any] = {
    "primary_keys": ["k", "dt"],
    "partition_keys": ["dt"],
    "options": {"bucket": "2", "sequence.field": "seq", "fields.n.aggregate-function": "sum"},
}


def table_on(storage: MemoryStorage) -> Table:
    fields = [DataField(id=0, name=name, type=parse_type(text)) for name, text in COLUMNS.items()]
    made = create_table(storage, fields, **KEYED)
    assert made is not None
    return made


SCHEMA = table_on(MemoryStorage()).schema


def changed(*changes: To, used: bool = True, schema: TableSchema = SCHEMA) -> TableSchema:
    return altered(schema, changes, used=used, time_millis=5)


def test_columns_are_added_with_ids_never_used_and_the_columns_own_id_first() -> None:
    made = changed(
        To.drop_column("s"),
        To.add_column("x", "ROW<a INT, b STRING>", "what it is"),
        To.add_column("y", "INT"),
    )
    assert (made.id, made.highest_field_id, made.time_millis) == (1, 9, 5)
    *_, x, y = made.fields
    assert (x.id, [one.id for one in x.type.fields], y.id, x.description) == (
        6,
        [7, 8],
        9,
        "what it is",
    )
    assert "s" not in made.field_names


def test_a_column_keeps_its_id_whatever_else_changes() -> None:
    made = changed(
        To.rename_column("s", "t"),
        To.update_column_type("n", "BIGINT"),
        To.update_column_comment("n", "a number"),
        To.update_column_nullability("n", True),
    )
    assert [one.id for one in made.fields] == [one.id for one in SCHEMA.fields]
    assert made.field_names == ("k", "dt", "seq", "n", "t")
    assert (str(made.field("n").type), made.field("n").description) == ("BIGINT", "a number")
    assert str(changed(To.update_column_type("n", "BIGINT")).field("n").type) == "BIGINT NOT NULL"


def test_changes_that_change_nothing_make_no_schema() -> None:
    same = [
        To.set_option("bucket", "2"),
        To.remove_option("nothing"),
        To.update_column_type("n", "SMALLINT"),
    ]
    assert (
        changed(*same, To.update_comment(None), To.update_column_nullability("k", False)) is SCHEMA
    )
    assert changed() is SCHEMA


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (To.drop_column("none"), "is not one of k, dt"),
        (To.drop_column("k"), "a primary key"),
        (To.drop_column("dt"), "a primary key"),
        (To.drop_column("seq"), "a sequence field"),
        (To.add_column("n", "INT"), "exists already"),
        (To.add_column("_KEY_x", "INT"), "Paimon's own"),
        (To.add_column("x", "INT NOT NULL"), "older rows have no value"),
        (To.add_column("x", "NUMBER(3)"), "has no type 'NUMBER"),
        (To.add_column("x", 7), "has no type '7'"),  # type: ignore[arg-type]
        (To.rename_column("n", "s"), "'s' exists already"),
        (To.rename_column("n", "_ROW_ID"), "Paimon's own"),
        (To.rename_column("dt", "x"), "a primary key"),
        (To.update_column_type("n", "TINYINT"), "SMALLINT NOT NULL is not narrower than TINYINT"),
        (To.update_column_type("n", "STRING"), "is not narrower"),
        (To.update_column_type("s", "ROW<a BIGINT>"), "is not narrower"),
        (To.update_column_type("seq", "BIGINT"), "a sequence field"),
        (To.update_column_nullability("k", True), "a primary key"),
        (To("updateColumn", "n", 7), "no such change"),
        (To.update_column_nullability("seq", False), "may hold NULL"),
    ],
)
def test_a_change_that_rows_would_not_survive_is_refused(change: To, why: str) -> None:
    with pytest.raises(IncompatibleSchema, match=why) as caught:
        changed(change)
    assert "Nothing was changed" in str(caught.value)
    assert change.action in str(caught.value)


def test_the_last_column_stays() -> None:
    storage = MemoryStorage()
    create_table(storage, [DataField(id=0, name="a", type=parse_type("INT"))])
    with pytest.raises(IncompatibleSchema, match="the only column"):
        alter_table(storage, [To.drop_column("a")])


def test_a_column_becomes_not_null_where_the_table_allows_it() -> None:
    allowed = To.set_option("alter-column-null-to-not-null.disabled", "false")
    assert (
        str(changed(allowed, To.update_column_nullability("seq", False)).field("seq").type)
        == "INT NOT NULL"
    )


# -- options
# ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "unused_too"),
    [
        (To.set_option("merge-engine", "first-row"), False),
        (To.set_option("Bucket", "-1"), False),
        (To.remove_option("bucket"), False),
        (To.set_option("deletion-vectors.enabled", True), False),  # type: ignore[arg-type]
        (To.set_option("sequence.field", "n"), False),
        (To.set_option("primary-key", "k"), True),
        (To.set_option("path", "/x"), True),
    ],
)
def test_an_option_that_rows_depend_on_is_changed_only_before_there_are_rows(
    change: To, unused_too: bool
) -> None:
    if change.target != "sequence.field":
        with pytest.raises(
            InvalidOption, match=f"'{change.target.lower()}' is .*(rows would be lost|see no row)"
        ):
            changed(change)
    if unused_too:
        with pytest.raises(InvalidOption, match="was not changed"):
            changed(change, used=False)
    else:
        assert changed(change, used=False) is not SCHEMA


def test_options_are_set_in_paimons_spelling_and_removed() -> None:
    made = changed(To.set_option("Snapshot.Num-Retained.Max", "7"), To.set_option("bucket", "5"))
    assert made.options == {**SCHEMA.options, "snapshot.num-retained.max": "7", "bucket": "5"}
    assert changed(To.remove_option("SNAPSHOT.num-retained.max"), schema=made).options == {
        **SCHEMA.options,
        "bucket": "5",
    }
    with pytest.raises(InvalidOption, match="target-file-size"):
        changed(To.set_option("target-file-size", "big"))
    modifiable = To.set_option("deletion-vectors.modifiable", "true")
    assert changed(modifiable, To.set_option("deletion-vectors.enabled", "true")).options[
        "deletion-vectors.enabled"
    ]


# -- publishing
# -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        To.drop_column("n"),  # fields.n.aggregate-function names it
        To.rename_column("s", "t"),  # Java keeps the name in fields.s.stats-mode
        To.set_option("changelog-producer", "nothing"),
        To.set_option("snapshot.num-retained.min", "5000000000"),
        To.add_column("x", "ROW<a INT, a INT>"),
    ],
)
def test_what_nobody_could_open_is_not_published(change: To) -> None:
    storage = MemoryStorage()
    table_on(storage)
    alter_table(storage, [To.set_option("fields.s.stats-mode", "none")])
    with pytest.raises((InvalidOption, IncompatibleSchema)) as caught:
        alter_table(storage, [change])
    assert storage.location in str(caught.value)
    assert SchemaStore(storage).ids() == [0, 1]


def test_options_follow_a_column_through_several_names() -> None:
    made = changed(
        To.rename_column("seq", "old"),
        To.rename_column("n", "seq"),
        To.rename_column("old", "newer"),
    )
    expected = {"sequence.field": "newer", "fields.seq.aggregate-function": "sum", "bucket": "2"}
    assert dict(made.options) == expected


@pytest.mark.parametrize("seed", range(8))
def test_renames_of_one_change_do_what_they_do_one_after_the_other(seed: int) -> None:
    random = Random(seed)
    names = ["seq", "n", "s", "x", "y"]
    schema = changed(
        To.add_column("x", "INT"),
        To.add_column("y", "INT"),
        To.set_option("fields.x.aggregate-function", "max"),
        To.set_option("fields.seq.aggregate-function", "min"),
    )
    renames = []
    for number in range(12):
        place = random.randrange(len(names))
        # Names that are free again are used again.
        free = [name for name in ("seq", "n", "s", "x", "y", f"z{number}") if name not in names]
        new_name = random.choice(free)
        renames.append(To.rename_column(names[place], new_name))
        names[place] = new_name
    step_by_step = schema
    for rename in renames:
        step_by_step = changed(rename, schema=step_by_step)
    together = changed(*renames, schema=schema)
    assert together.fields == step_by_step.fields
    assert dict(together.options) == dict(step_by_step.options)
    assert [field.name for field in together.fields[2:]] == names


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (To.rename_column("n", "q"), "is not one of k, dt, seq, m, s"),
        (To.rename_column("m", "s"), "'s' exists already"),
        (To.rename_column("m", "m"), "'m' exists already"),
    ],
)
def test_a_later_rename_sees_the_names_of_those_before_it(change: To, reason: str) -> None:
    with pytest.raises(IncompatibleSchema) as caught:
        changed(To.rename_column("n", "m"), change)
    assert reason in caught.value.message


def test_the_cost_of_renames_grows_with_their_number_not_with_its_square() -> None:
    def calls(columns: int) -> Counter[str]:
        fields = tuple(
            DataField(id=number, name=f"c{number}", type=parse_type("INT"))
            for number in range(columns)
        )
        options = {f"fields.c{number}.aggregate-function": "sum" for number in range(columns)}
        schema = replace(SCHEMA, fields=fields, primary_keys=(), partition_keys=(), options=options)
        renames = [To.rename_column(f"c{number}", f"d{number}") for number in range(columns)]
        return calls_of(lambda: changed(*renames, schema=schema))

    assert not grown_too_much(calls(50), calls(200), times=4)


def test_a_refused_name_is_not_repeated_in_full() -> None:
    long = "x" * 70_000
    for change in (
        To.rename_column("s", f"_KEY_{long}"),
        To.add_column(f"_KEY_{long}", "INT"),
        To.rename_column(long, "y"),
        To.drop_column(long),
        To.update_column_type("s", long),
        To.add_column("y", long),
    ):
        with pytest.raises(IncompatibleSchema) as caught:
            changed(change)
        assert len(str(caught.value)) < 1_000


def test_a_reserved_name_is_blamed_on_the_new_name() -> None:
    with pytest.raises(IncompatibleSchema, match=r"the new name '_LEVEL' is one of Paimon's own"):
        changed(To.rename_column("s", "_LEVEL"))


@pytest.mark.parametrize(
    "changes",
    [
        [To.set_option("fields.n.aggregate-function", "summ")],
        [To.set_option("file.format", "avro"), To.add_column("t", "TIMESTAMP(9)")],
        [To.set_option("manifest.compression", "lzo")],
    ],
)
def test_what_could_be_written_can_be_written_after_a_change(changes: list[To]) -> None:
    storage = MemoryStorage()
    options = {"bucket": "2", "merge-engine": "aggregation"}
    assert create_table(storage, SCHEMA.fields, primary_keys=["k"], options=options)
    with pytest.raises((UnsupportedFeature, InvalidOption)):
        alter_table(storage, changes)
    assert SchemaStore(storage).ids() == [0]


def test_a_table_that_others_write_can_be_altered() -> None:
    storage = MemoryStorage()
    options = {"video-frame-field": "v", "file.format": "avro"}
    assert create_table(storage, SCHEMA.fields, options=options)
    alter_table(storage, [To.add_column("t", "TIMESTAMP(9)")])
    assert SchemaStore(storage).ids() == [0, 1]


@pytest.mark.parametrize(
    ("old", "new"), [("TIMESTAMP(3)", "TIMESTAMP(9)"), ("TIMESTAMP(6)", "TIMESTAMP(7)")]
)
def test_a_timestamp_that_gets_nanoseconds_is_warned_of(old: str, new: str) -> None:
    storage = MemoryStorage()
    assert create_table(storage, [DataField(id=0, name="t", type=parse_type(old))])
    with pytest.warns(UserWarning, match=r"'t' is TIMESTAMP\(\d\) now.*2262-04-11"):
        alter_table(storage, [To.update_column_type("t", new)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alter_table(storage, [To.update_column_comment("t", "a moment")])


class Rival(MemoryStorage):
    """Somebody else publishes a schema before us, as often as this says."""

    times = 1

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        if path.startswith("schema/") and path != "schema/schema-0" and self.times:
            type(self).times -= 1
            newest = load_table(self).schema
            other = altered(
                newest, [To.add_column(f"x{newest.id}", "INT")], used=True, time_millis=1
            )
            SchemaStore(MemoryStorage(self.name)).create(other)
        return super().put_if_absent(path, data)


def test_after_a_lost_race_the_changes_apply_to_what_won() -> None:
    Rival.times = 2
    storage = Rival()
    table_on(storage)
    made = alter_table(storage, [To.add_column("mine", "INT"), To.rename_column("s", "t")])
    assert made.schema == SchemaStore(storage).latest()
    assert made.schema.field_names == ("k", "dt", "seq", "n", "t", "x0", "x1", "mine")
    Rival.times = 1
    with pytest.raises(IncompatibleSchema, match="exists already"):
        alter_table(storage, [To.add_column("x3", "INT")])
    Rival.times = 10_000
    with pytest.raises(CommitContended, match="others changed the schema"):
        alter_table(storage, [To.add_column("late", "INT")])


class LostAnswer(MemoryStorage):
    """A schema is created, perhaps another one follows, and the answer is lost."""

    follows: Sequence[To] = ()

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        made = super().put_if_absent(path, data)
        if path == "schema/schema-1":
            if self.follows:
                alter_table(MemoryStorage(self.name), self.follows)
            raise Unavailable("no answer", path=path)
        return made


@pytest.mark.parametrize("follows", [(), (To.update_comment("by another"),)])
def test_a_lost_answer_is_found_out_by_looking(follows: Sequence[To]) -> None:
    LostAnswer.follows = follows
    storage = LostAnswer()
    table_on(storage)
    alter_table(storage, [To.drop_column("s")])
    assert SchemaStore(storage).ids() == list(range(2 + len(follows)))
    assert "s" not in load_table(storage).schema.field_names
