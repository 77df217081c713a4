"""Merging rows of a source into rows of a target."""

from __future__ import annotations

import math
import random
from decimal import Decimal as D
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_stream.change import merge_rows
from paimon_stream.change.merge_clauses import Action, Clause, MergeWords, When, plan_merge
from paimon_stream.change.merge_rows import MergeRows, source_rows
from paimon_stream.errors import (
    AmbiguousMerge,
    IncompatibleSchema,
    InvalidData,
    InvalidOption,
    UnsupportedFeature,
)
from paimon_stream.format.arrow_types import arrow_schema
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, parse_type
from tests.kits.merging_into import ModelClause, SeveralRows, merged
from tests.kits.seeds import seeds

NAN = float("nan")


def schema_of(**types: str) -> TableSchema:
    fields = tuple(
        DataField(id=i, name=name, type=parse_type(type_))
        for i, (name, type_) in enumerate(types.items())
    )
    return TableSchema(id=0, fields=fields, highest_field_id=len(fields) - 1)


def update(updates: dict[str, Any] | None = None, predicate: Any = None, **more: Any) -> Clause:
    return Clause(
        when=When.MATCHED, action=Action.UPDATE, updates=updates, predicate=predicate, **more
    )


def delete(predicate: Any = None) -> Clause:
    return Clause(when=When.MATCHED, action=Action.DELETE, predicate=predicate)


def insert(updates: dict[str, Any] | None = None, predicate: Any = None, **more: Any) -> Clause:
    return Clause(
        when=When.NOT_MATCHED, action=Action.INSERT, updates=updates, predicate=predicate, **more
    )


def update_alone(updates: dict[str, Any], predicate: Any = None) -> Clause:
    when = When.NOT_MATCHED_BY_SOURCE
    return Clause(when=when, action=Action.UPDATE, updates=updates, predicate=predicate)


def delete_alone(predicate: Any = None) -> Clause:
    return Clause(when=When.NOT_MATCHED_BY_SOURCE, action=Action.DELETE, predicate=predicate)


class Merged:
    """What a merge of these rows does. The target is given in parts."""

    def __init__(
        self,
        schema: TableSchema,
        target: list[dict[str, Any]],
        source: pa.Table,
        on: Any,
        *clauses: Clause,
        parts: int = 2,
    ) -> None:
        rows, types = source_rows(source, schema, "t")
        plan = plan_merge(MergeWords(on=on, clauses=clauses), schema, types)
        merge = MergeRows(plan, rows, "t")
        arrow = arrow_schema(schema.fields)
        self.updated: dict[int, dict[str, Any]] = {}
        self.deleted: list[int] = []
        read = [field.name for field in plan.target_columns]
        size = max(1, -(-len(target) // parts))
        for start in range(0, len(target), size):
            part = pa.Table.from_pylist(target[start : start + size], schema=arrow).select(read)
            done = merge.of_target(part)
            assert done.updated.num_rows == len(done.updated_at)
            places = [start + int(place) for place in done.updated_at]
            self.updated |= dict(zip(places, done.updated.to_pylist(), strict=True))
            self.deleted += [start + int(place) for place in done.deleted_at]
        self.inserted: list[dict[str, Any]] = merge.inserted().to_pylist()
        assert merge.updated == len(self.updated) and merge.deleted == len(self.deleted)


ID = schema_of(id="INT", v="STRING")
TARGET = [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "c"}, {"id": None, "v": "n"}]


def rows(ids: list[Any], **columns: list[Any]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int32()), **columns})


def test_rows_are_updated_deleted_and_inserted() -> None:
    source = rows([1, 2, 4, None], v=["A", None, "D", "N"])
    done = Merged(ID, TARGET, source, ["id"], delete("source.v IS NULL"), update(), insert())
    assert done.updated == {0: {"id": 1, "v": "A"}}
    assert done.deleted == [1]
    assert done.inserted == [{"id": 4, "v": "D"}, {"id": None, "v": "N"}]


def test_null_matches_null_only_where_on_says_so() -> None:
    source = rows([None], v=["N"])
    assert Merged(ID, TARGET, source, "source.id = target.id", update()).updated == {}
    done = Merged(ID, TARGET, source, "source.id <=> target.id", update(), insert())
    assert done.updated == {3: {"id": None, "v": "N"}} and done.inserted == []


def test_the_first_clause_that_holds_decides() -> None:
    source = rows([1, 2, 3], v=["x", "y", "z"])
    clauses = [
        update({"v": "'first'"}, "target.id = 1"),
        delete("source.v <> 'z'"),
        update({"v": "target.v || source.v"}),
    ]
    done = Merged(ID, TARGET, source, ["id"], *clauses)
    assert {place: row["v"] for place, row in done.updated.items()} == {0: "first", 2: "cz"}
    assert done.deleted == [1]


def test_rows_without_a_match_in_the_source_are_changed() -> None:
    clauses = [update_alone({"v": "'old'"}, "id = 2"), delete_alone("id IS NOT NULL")]
    done = Merged(ID, TARGET, rows([1], v=["A"]), ["id"], *clauses)
    assert done.updated == {1: {"id": 2, "v": "old"}}
    assert done.deleted == [2]


def test_a_match_for_which_no_clause_holds_is_neither_changed_nor_inserted() -> None:
    source = rows([1, 9], v=["A", "Z"])
    done = Merged(ID, TARGET, source, ["id"], update(predicate="false"), insert(), delete_alone())
    assert done.updated == {} and done.deleted == [1, 2, 3]
    assert done.inserted == [{"id": 9, "v": "Z"}]


def test_what_on_says_beside_the_equality_is_part_of_the_match() -> None:
    source = rows([1, 2], v=["A", "B"])
    on = "source.id = target.id AND target.v = 'a'"
    done = Merged(ID, TARGET, source, on, delete(), insert(), update_alone({"v": "'alone'"}))
    assert done.deleted == [0]
    assert done.inserted == [{"id": 2, "v": "B"}]
    assert sorted(done.updated) == [1, 2, 3]


def test_several_rows_that_would_change_one_row_are_an_error_that_shows_the_keys() -> None:
    source = rows([1, 1, 2], v=["A", "B", "C"])
    for clause in (update(), delete()):
        with pytest.raises(AmbiguousMerge, match=r"The keys of such rows: 1\. Nothing"):
            Merged(ID, TARGET, source, ["id"], clause)
    done = Merged(ID, TARGET, source, ["id"], update(predicate="source.v <> 'A'"))
    assert done.updated == {0: {"id": 1, "v": "B"}, 1: {"id": 2, "v": "C"}}
    assert Merged(ID, TARGET, source, ["id"], insert()).inserted == []


@pytest.mark.parametrize(
    ("type_", "target", "source", "matches"),
    [
        ("DOUBLE", [NAN, -0.0, 1.5, None], pa.array([NAN, 0.0, 2.5, None]), 2),
        ("FLOAT", [0.5, NAN], pa.array([0.5, NAN], pa.float64()), 2),
        ("FLOAT", [float(pa.scalar(0.1, pa.float32()).as_py())], pa.array([0.1]), 0),
        ("DECIMAL(10, 2)", [D("1.50"), D("2.00")], pa.array([D("1.5"), D("2.001")]), 1),
        ("DECIMAL(10, 2)", [D("7.00")], pa.array([7], pa.int64()), 1),
        ("BIGINT", [2**53, 7], pa.array([7, 2**53]), 2),
        ("INT", [7], pa.array([7], pa.uint8()), 1),
        ("STRING", ["a", "A", ""], pa.array(["A", "", "b"]), 2),
        ("STRING", ["a"], pa.array(["a"]).dictionary_encode(), 1),
        ("STRING", ["a"], pa.array(["a"], pa.large_string()), 1),
        ("CHAR(3)", ["a  ", "b"], pa.array(["a", "b  "]), 2),
        ("STRING", ["a  "], pa.array(["a"]), 0),
        ("BOOLEAN", [True, False], pa.array([True, None]), 1),
        ("BYTES", [b"\0", b"a"], pa.array([b"a", b""]), 1),
        ("DATE", [pa.scalar(7, pa.date32()).as_py()], pa.array([7], pa.date32()), 1),
        ("TIMESTAMP(6)", [None], pa.array([1], pa.timestamp("us")), 0),
        (
            "TIMESTAMP(3) WITH LOCAL TIME ZONE",
            [pa.scalar(7, pa.timestamp("ms", "UTC")).as_py()],
            pa.array([7000], pa.timestamp("us", "Europe/Berlin")),
            1,
        ),
    ],
)
def test_keys_of_every_type_match(
    type_: str, target: list[Any], source: pa.Array, matches: int
) -> None:
    schema = schema_of(k=type_, place="INT")
    before = [{"k": value, "place": i} for i, value in enumerate(target)]
    done = Merged(schema, before, pa.table({"k": source}), ["k"], update({"place": "-1"}))
    assert len(done.updated) == matches


def test_several_key_columns_match_together() -> None:
    schema = schema_of(a="INT", b="STRING", c="DOUBLE", v="INT")
    target = [
        {"a": 1, "b": "x", "c": 0.0, "v": 1},
        {"a": 1, "b": "y", "c": 0.0, "v": 2},
        {"a": 2, "b": "x", "c": NAN, "v": 3},
        {"a": 1, "b": None, "c": 0.0, "v": 4},
    ]
    source = pa.table({"a": [1, 2, 1, 2], "b": ["x", "x", None, "y"], "c": [-0.0, NAN, 0.0, 0.0]})
    done = Merged(schema, target, source, ["a", "b", "c"], update({"v": "-v"}), insert({"a": "a"}))
    assert {place: row["v"] for place, row in done.updated.items()} == {0: -1, 2: -3}
    assert [row["a"] for row in done.inserted] == [1, 2]


def test_nested_columns_beside_the_keys_are_carried() -> None:
    schema = schema_of(id="INT", tags="ARRAY<STRING>", at="ROW<x INT, y MAP<STRING, INT>>")
    target = [
        {"id": 1, "tags": ["a"], "at": {"x": 1, "y": [("k", 1)]}},
        {"id": 2, "tags": None, "at": None},
    ]
    source = pa.table(
        {
            "id": [2, 3],
            "tags": [["b", None], None],
            "at": [{"y": None, "x": 5}, None],
        }
    )
    source = source.set_column(
        2, "at", pa.array([{"x": 5, "y": []}, None], arrow_schema(schema.fields).field("at").type)
    )
    done = Merged(schema, target, source, ["id"], update(), insert(), update_alone({"id": "9"}))
    assert done.updated[1] == {"id": 2, "tags": ["b", None], "at": {"x": 5, "y": []}}
    assert done.updated[0] == {**target[0], "id": 9}
    assert done.inserted == [{"id": 3, "tags": None, "at": None}]


def test_an_empty_source_and_an_empty_target_are_merged() -> None:
    empty = rows([], v=pa.array([], pa.string()))
    assert Merged(ID, TARGET, empty, ["id"], update(), delete_alone()).deleted == [0, 1, 2, 3]
    done = Merged(ID, [], rows([1], v=["A"]), ["id"], update(), insert())
    assert done.inserted == [{"id": 1, "v": "A"}]
    assert Merged(ID, [], empty, ["id"], insert()).inserted == []


@pytest.mark.parametrize("ids", [[], [1], [None], [1, None]])
def test_null_matches_null_only_if_the_source_has_one(ids: list[int | None]) -> None:
    target = [{"id": 1, "v": "a"}, {"id": None, "v": "b"}]
    source = rows(ids, v=["b"] * len(ids))
    both = "source.id <=> target.id AND source.v = target.v"
    assert Merged(ID, target, source, both, delete()).deleted == [1] * (None in ids)
    for on in ("source.id <=> target.id", "target.id <=> source.id AND 1 = 1"):
        merged = Merged(ID, target, source, on, delete())
        assert merged.deleted == [at for at, row in enumerate(target) if row["id"] in ids]


def test_values_are_computed_only_for_rows_that_get_them() -> None:
    schema = schema_of(id="INT", v="INT")
    target = [{"id": 1, "v": 0}, {"id": 2, "v": 5}]
    source = rows([1, 2], n=[10, 10])
    clauses = [delete("target.v = 0"), update({"v": "CAST(source.n / target.v AS INT)"})]
    assert Merged(schema, target, source, ["id"], *clauses).updated == {1: {"id": 2, "v": 2}}
    with pytest.raises(InvalidData, match=r"when_matched_update: v cannot be computed .*divide"):
        Merged(schema, target, source, ["id"], clauses[1])


def test_an_expression_of_arrow_is_a_value_and_a_predicate() -> None:
    source = rows([1, 2], v=["A", "B"])
    clause = update({"v": pc.field("source.v")}, pc.field("target.id") > 1)
    assert Merged(ID, TARGET, source, ["id"], clause).updated == {1: {"id": 2, "v": "B"}}
    with pytest.raises(InvalidOption, match=r"names a column 'v' for v\. .* source\. or target\."):
        Merged(ID, TARGET, source, ["id"], update({"v": pc.field("v")}))


@pytest.mark.parametrize(
    ("on", "clauses", "message"),
    [
        (["nope"], [update()], r"on names a column 'nope', which the source does not have"),
        ([], [update()], r"on is \[\]\. Give the names"),
        (7, [update()], r"on is 7\. Give the names"),
        ("source.id > target.id", [update()], r"none of the conditions that AND joins"),
        ("source.id = target.id OR source.v = target.v", [update()], r"none of the conditions"),
        ("source.id = 1", [update()], r"none of the conditions"),
        ("source.v = target.id", [update()], r"on has source\.v of type STRING and target\.id"),
        ("id = target.id", [update()], r"names a column 'id' without an alias"),
        (["id"], [], r"the merge has no clause"),
        (
            ["id"],
            [delete(), update()],
            r"when_matched_update_all never holds, because when_matched_d",
        ),
        (["id"], [update({"nope": "1"})], r"gives a value to 'nope', which is no column"),
        (["id"], [update({"v": "nope"})], r"when_matched_update: v names a column 'nope'"),
        (
            ["id"],
            [update({"id": "source.v"})],
            r"gives id the value source\.v, whose type is STRING",
        ),
        (["id"], [insert({"v": "target.v"})], r"names a column 'target'"),
        (["id"], [update_alone({"v": "source.v"})], r"names a column 'source'"),
        (["id"], [update({"v": 5})], r"when_matched_update has 5 as v\. Give SQL text"),
        (["id"], [update(predicate="source.id")], r"predicate has source\.id as a condition"),
        (["id"], [update({"v": "(SELECT 1)"})], r"has a subquery"),
        (
            ["id"],
            [update(except_cols=("id", "v", "w"))],
            r"except_cols has 'w', which is no column",
        ),
        (["id"], [update(except_cols=("id", "v"))], None),
    ],
)
def test_a_merge_with_a_slip_is_refused(on: Any, clauses: list[Clause], message: Any) -> None:
    source = rows([1], v=["A"])
    if message is None:
        assert Merged(ID, TARGET, source, on, *clauses).updated == {0: {"id": 1, "v": "a"}}
        return
    with pytest.raises((InvalidOption, UnsupportedFeature), match=message):
        Merged(ID, TARGET, source, on, *clauses)


def test_all_columns_means_the_same_columns_on_both_sides() -> None:
    for source, message in (
        (rows([1]), r"when_matched_update_all: the source lacks the column 'v'"),
        (rows([1], v=["A"], w=["B"]), r"the table lacks the column 'w'\. Name it in except_cols"),
    ):
        with pytest.raises(InvalidOption, match=message):
            Merged(ID, TARGET, source, ["id"], update())
    done = Merged(
        ID, TARGET, rows([1, 9]), ["id"], update(except_cols=("v",)), insert(except_cols=("v",))
    )
    assert done.updated == {0: {"id": 1, "v": "a"}}
    assert done.inserted == [{"id": 9, "v": None}]


def test_a_source_that_cannot_be_computed_with_is_refused() -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([1])], names=["id", "id"])
    with pytest.raises(IncompatibleSchema, match="'id' more than once"):
        Merged(ID, TARGET, twice, ["id"], delete())
    odd = rows([1], w=pa.array([1], pa.duration("s")))
    with pytest.raises(UnsupportedFeature, match="column 'w' is of Arrow's type duration"):
        Merged(ID, TARGET, odd, ["id"], delete())


# -- random cases beside a model ------------------------------------------------------------------
RANDOM = schema_of(k="INT", g="STRING", n="BIGINT", f="DOUBLE")
ONS: dict[Any, Any] = {
    ("k",): lambda t, s: equal(t["k"], s["k"]),
    ("k", "g"): lambda t, s: both(equal(t["k"], s["k"]), equal(t["g"], s["g"])),
    ("f",): lambda t, s: equal(t["f"], s["f"]),
    "target.k <=> source.k AND source.g = target.g": lambda t, s: both(
        t["k"] == s["k"], equal(t["g"], s["g"])
    ),
    "source.k + 1 = target.k AND target.n > source.n": lambda t, s: both(
        None if s["k"] is None else equal(t["k"], s["k"] + 1), above(t["n"], s["n"])
    ),
}
PREDICATES: dict[Any, Any] = {
    None: lambda t, s: True,
    "source.n > target.n": lambda t, s: above(s["n"], t["n"]),
    "source.g IS NULL": lambda t, s: s["g"] is None,
    "target.f > 0": lambda t, s: above(t["f"], 0.0),
}
SOURCE_PREDICATES: dict[Any, Any] = {
    None: lambda t, s: True,
    "source.n > 2": lambda t, s: above(s["n"], 2),
    "source.g = 'a'": lambda t, s: equal(s["g"], "a"),
}
TARGET_PREDICATES: dict[Any, Any] = {
    None: lambda t, s: True,
    "n > 2": lambda t, s: above(t["n"], 2),
    "target.g <> 'a'": lambda t, s: None if t["g"] is None else t["g"] != "a",
}


def equal(a: Any, b: Any) -> bool | None:
    if a is None or b is None:
        return None
    if isinstance(a, float) and math.isnan(a):
        return bool(math.isnan(b))
    return bool(a == b)


def above(a: Any, b: Any) -> bool | None:
    if a is None or b is None:
        return None
    if isinstance(a, float) and math.isnan(a):
        return not math.isnan(b)
    return bool(a > b)


def both(a: bool | None, b: bool | None) -> bool:
    return a is True and b is True


def random_rows(dice: random.Random, most: int) -> list[dict[str, Any]]:
    return [
        {
            "k": dice.choice([None, 1, 2, 3, 4, 5, 6]),
            "g": dice.choice([None, "a", "b", "ab"]),
            "n": dice.choice([None, 1, 2, 3, 4]),
            "f": dice.choice([None, NAN, 0.0, -0.0, 1.5, -2.5]),
        }
        for _ in range(dice.randrange(most))
    ]


def random_clauses(dice: random.Random) -> tuple[list[Clause], list[ModelClause]]:
    clauses: list[Clause] = []
    models: list[ModelClause] = []
    closed = set()
    for _ in range(dice.randrange(1, 5)):
        kind = dice.choice(
            ["update", "update_all", "delete", "insert", "update_alone", "delete_alone"]
        )
        pool = {"insert": SOURCE_PREDICATES, "update_alone": TARGET_PREDICATES}
        pool["delete_alone"] = TARGET_PREDICATES
        text, holds = dice.choice(list(pool.get(kind, PREDICATES).items()))
        clause, values = {
            "update": (update({"n": "COALESCE(target.n, 0) + 1", "g": "source.g"}, text), plus_one),
            "update_all": (update(predicate=text), lambda t, s: s),
            "delete": (delete(text), None),
            "insert": (insert(predicate=text), lambda t, s: s),
            "update_alone": (update_alone({"g": "'gone'"}, text), lambda t, s: {**t, "g": "gone"}),
            "delete_alone": (delete_alone(text), None),
        }[kind]
        if clause.when in closed:
            continue
        if text is None:
            closed.add(clause.when)
        clauses.append(clause)
        models.append(ModelClause(clause.when.value, holds, values))  # type: ignore[arg-type]
    return clauses, models


def plus_one(target: dict[str, Any], source: dict[str, Any]) -> dict[str, Any]:
    return {**target, "n": (target["n"] or 0) + 1, "g": source["g"]}


@pytest.mark.parametrize("seed", seeds(60, 600))
def test_random_merges_do_what_the_model_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)
    monkeypatch.setattr(merge_rows, "_MOST_PAIRS", dice.choice([1, 3, 1000]))
    target, source = random_rows(dice, 20), random_rows(dice, dice.choice([3, 12]))
    on, holds = dice.choice(list(ONS.items()))
    clauses, models = random_clauses(dice)
    rows_of_source = pa.Table.from_pylist(source, schema=arrow_schema(RANDOM.fields))
    given_on = list(on) if isinstance(on, tuple) else on
    try:
        expected = merged(target, source, holds, models)
    except SeveralRows:
        with pytest.raises(AmbiguousMerge):
            Merged(RANDOM, target, rows_of_source, given_on, *clauses)
        return
    done = Merged(RANDOM, target, rows_of_source, given_on, *clauses, parts=dice.choice([1, 3]))
    updated, deleted, inserted = expected
    assert repr(dict(sorted(done.updated.items()))) == repr(updated)
    assert done.deleted == deleted
    assert sorted(map(repr, done.inserted)) == sorted(map(repr, inserted))


def test_very_many_equal_keys_on_both_sides_are_refused_before_they_are_paired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [{"id": 1, "n": number} for number in range(2000)]
    source = pa.table({"id": [1] * 2000 + [2], "n": [7] * 2001})

    def pairs(*_: Any) -> Any:
        raise AssertionError("4,000,000 pairs")

    monkeypatch.setattr(merge_rows.SourceKeys, "pairs", pairs)
    for clause in (update({"n": "source.n"}), delete()):
        with pytest.raises(AmbiguousMerge, match=r"The keys of such rows: 1, 1, 1\."):
            Merged(schema_of(id="BIGINT", n="BIGINT"), rows, source, ["id"], clause)
