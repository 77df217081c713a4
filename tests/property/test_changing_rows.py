"""The rows that change keys give, merged with any history by a model of Java's engines, exactly the
rows that were asked for; or they are refused.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_stream.errors import InvalidData
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.merge.changing import Operation, changed_rows, refusal
from paimon_stream.merge.rows import merge_rows
from paimon_stream.merge.spec import KIND, SEQUENCE, MergeSpec
from paimon_stream.options import Options
from tests.kits.merging import Stored, model
from tests.kits.seeds import examples
from tests.property.test_merge_rows import (
    TYPES,
    random_rows,
    rows_of,
    schema_of,
    table_of,
    tables,
    without_doubles,
)

pytestmark = pytest.mark.lowest

Row = dict[str, Any]


def stored(rows: pa.Table, first: int) -> list[Stored]:
    """The rows with sequence numbers from `first` on, as the model takes them."""
    maps = {name for name in TYPES if pa.types.is_map(rows.schema.field(name).type)}
    made = []
    for number, row in enumerate(rows.to_pylist()):
        kind = row.pop(KIND)
        row.pop(SEQUENCE, None)
        for name in maps:
            row[name] = None if row[name] is None else dict(row[name])
        made.append((first + number, kind, row))
    return made


def visible(rows: list[Stored]) -> dict[int, Row]:
    return {row["k"]: row for _, kind, row in rows if kind in (0, 2)}


def text(rows: dict[int, Row]) -> list[str]:
    return rows_of(table_of([(0, 0, rows[key]) for key in sorted(rows)]))


def works(
    schema: TableSchema, options: Options, spec: MergeSpec, operation: Operation, **more: str
) -> bool:
    return refusal(schema, options, spec, operation, **more) is None


def drawn_changes(
    random: Random, there: dict[int, Row], settable: list[str], *, deletes: bool
) -> tuple[dict[int, Row], dict[int, Row]]:
    """The rows that go, and those that come."""
    before, after = {}, {}
    for key, row in there.items():
        draw = random.random()
        if draw < 0.3 and deletes:
            before[key] = row
        elif draw < 0.8 and settable:
            chosen = random.sample(settable, random.randint(1, len(settable)))
            other = random_rows(random, "I", 1)[0][2]
            before[key], after[key] = row, row | {name: other[name] for name in chosen}
    new = max(there, default=0) + 1
    after[new] = random_rows(random, "I", 1)[0][2] | {"k": new}
    return before, after


@settings(max_examples=examples(40, 1500), deadline=None)
@given(table=tables(), seed=st.integers(0, 2**32))
def test_each_history_and_the_rows_that_change_it_give_the_rows_asked_for(
    table: tuple[dict[str, str], str], seed: int
) -> None:
    chosen, kinds = without_doubles(table[0]), table[1]
    random = Random(seed)
    history = random_rows(random, kinds, random.choice([1, 4, 12, 40]))
    schema, options = schema_of(chosen), Options(chosen)
    spec = MergeSpec.of(schema, options)
    try:
        merged = merge_rows(spec, table_of(history), keep_deletes=True)
    except InvalidData:
        return  # no reader can merge such a history
    there = visible(stored(merged, 0))
    settable = [
        name
        for name in TYPES
        if name != "k" and works(schema, options, spec, Operation.SET, column=name)
    ]
    deletes = works(schema, options, spec, Operation.DELETE)
    before, after = drawn_changes(random, there, settable, deletes=deletes)
    held = merged.drop_columns([SEQUENCE])
    try:
        changed = changed_rows(
            spec,
            schema,
            table_of([(0, 0, row) for row in before.values()]),
            table_of([(0, 0, row) for row in after.values()]),
            held,
        )
    except InvalidData:
        return
    data = stored(changed.data, 1000)
    wanted = {key: row for key, row in there.items() if key not in before} | after
    assert text(visible(model(chosen, [*history, *data], TYPES))) == text(wanted)
    assert changed.data.num_rows == len(before.keys() | after.keys())
    assert changed.log.num_rows == len(before) + len(after)
    assert changed.updated + changed.deleted == len(before)


def changes_of(
    options: dict[str, str], before: list[Row], after: list[Row], held: list[Stored] | None = None
) -> list[Stored]:
    schema = schema_of(options)
    spec = MergeSpec.of(schema, Options(options))
    changed = changed_rows(
        spec,
        schema,
        table_of([(0, 0, row) for row in before]),
        table_of([(0, 0, row) for row in after]),
        None if held is None else table_of(held).drop_columns([SEQUENCE]),
    )
    return stored(changed.data, 100)


def row(k: int, **values: Any) -> Row:
    return dict.fromkeys(TYPES) | {"k": k} | values


SUMS = {
    "merge-engine": "aggregation",
    "fields.i.aggregate-function": "sum",
    "aggregation.remove-record-on-delete": "true",
}
PARTIAL = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}


@pytest.mark.parametrize("options", [SUMS, PARTIAL])
def test_a_row_that_comes_after_a_delete_does_not_build_on_the_deleted_row(
    options: dict[str, str],
) -> None:
    old = row(1, i=5, s="old", l=7)
    deletes = changes_of(options, [old], [])
    assert [kind for _, kind, _ in deletes] == [3]
    new = row(1, i=3)
    after = model(options, [(0, 0, old), *deletes, (200, 0, new)], TYPES)
    assert visible(after) == {1: new}


def test_a_sum_stays_if_another_column_of_its_row_is_set() -> None:
    old = row(1, i=5, s="old")
    updates = changes_of(SUMS, [old], [old | {"s": "new"}])
    assert visible(model(SUMS, [(0, 0, old), *updates], TYPES)) == {1: row(1, i=5, s="new")}


@pytest.mark.parametrize(
    ("options", "old", "new", "message"),
    [
        ({"sequence.field": "g"}, {"g": 3}, {"g": 2}, "sequence.field = g.*highest.*k = 1"),
        ({"sequence.field": "g"}, {"g": 3}, {"g": None}, "Set g so that the new row wins"),
        (
            {"sequence.field": "g", "sequence.field.sort-order": "descending"},
            {"g": 3},
            {"g": 4},
            "lowest",
        ),
        ({"merge-engine": "partial-update"}, {"s": "x"}, {"s": None}, "replace a value by NULL"),
        (SUMS, {"s": "x"}, {"s": None}, "column 's' of 1 rows.*replace a value by NULL"),
        (SUMS, {"i": 1}, {"i": 2}, "column 'i' of 1 rows.*merges it"),
        (
            {"merge-engine": "partial-update", "fields.g.sequence-group": "s"},
            {"g": None},
            {"s": "y"},
            "only with a value of g",
        ),
        (
            {"merge-engine": "partial-update", "fields.g.sequence-group": "s"},
            {"g": 3},
            {"g": 2, "s": "y"},
            "only with a value of g",
        ),
    ],
)
def test_a_row_that_would_not_win_is_refused_with_its_key(
    options: dict[str, str], old: Row, new: Row, message: str
) -> None:
    with pytest.raises(InvalidData, match=message):
        changes_of(options, [row(1, **old)], [row(1, **(old | new))])


def test_a_key_that_is_there_or_comes_twice_is_refused() -> None:
    with pytest.raises(InvalidData, match=r"a row of the table has, such as \(k = 2\)"):
        changes_of({}, [row(1)], [row(2)], [(0, 0, row(2)), (1, 0, row(1))])
    with pytest.raises(InvalidData, match=r"another of them gets, such as \(k = 3\)"):
        changes_of({}, [row(1), row(2)], [row(3), row(3)])
    moved = changes_of({}, [row(1, i=1), row(2, i=2)], [row(2, i=1), row(3, i=2)])
    assert [(kind, one["k"], one["i"]) for _, kind, one in moved] == [
        (2, 2, 1),
        (3, 1, 1),
        (0, 3, 2),
    ]


def test_a_delete_that_is_newer_than_the_row_that_comes_is_said() -> None:
    options = {"sequence.field": "g"}
    with pytest.raises(InvalidData, match=r"would lose against what the table has.*k = 2"):
        changes_of(options, [row(1, g=1)], [row(2, g=1)], [(0, 3, row(2, g=5))])


@pytest.mark.parametrize(
    ("options", "operation", "column", "reason"),
    [
        ({}, Operation.DELETE, None, None),
        ({}, Operation.SET, "s", None),
        ({"ignore-delete": "true"}, Operation.DELETE, None, "ignore-delete"),
        ({"ignore-delete": "true"}, Operation.MOVE, None, "ignore-delete"),
        ({"ignore-delete": "true"}, Operation.SET, "s", None),
        ({"merge-engine": "first-row"}, Operation.SET, "s", "first-row"),
        ({"merge-engine": "first-row"}, Operation.DELETE, None, "first-row"),
        ({"merge-engine": "first-row"}, Operation.INSERT, None, None),
        ({"merge-engine": "partial-update"}, Operation.DELETE, None, "removes no row"),
        (PARTIAL, Operation.DELETE, None, None),
        ({"merge-engine": "aggregation"}, Operation.DELETE, None, "takes values back"),
        (SUMS, Operation.DELETE, None, None),
        (SUMS, Operation.SET, "i", "by the function sum"),
        (SUMS, Operation.SET, "s", None),
        ({"bucket": "-2"}, Operation.INSERT, None, "bucket = -2"),
        ({"rowkind.field": "s"}, Operation.SET, "s", "rowkind.field"),
    ],
)
def test_what_a_table_cannot_do_is_known_before_rows_are_read(
    options: dict[str, str], operation: Operation, column: str | None, reason: str | None
) -> None:
    schema = schema_of(options)
    spec = MergeSpec.of(schema, Options(options))
    refused = refusal(schema, Options(options), spec, operation, column)
    assert (refused is None) if reason is None else (reason in (refused or ""))
