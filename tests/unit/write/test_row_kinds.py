"""The kind of each row: by a column that is stored, by one that is not, and the kinds that a table
leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import (
    BadRowKind,
    IncompatibleSchema,
    InvalidOption,
    NullInNotNull,
    PaimonStreamError,
)

NUMBERS = count()
AGGREGATED = {"merge-engine": "aggregation", "fields.v.aggregate-function": "max"}


def made(*keys: str, **options: str) -> PaimonTable:
    columns = [("id", "BIGINT NOT NULL"), ("v", "STRING"), ("kind", "STRING")]
    location = f"memory://row-kinds-{next(NUMBERS)}/shop.db/orders"
    return PaimonTable.create(
        location, columns, primary_keys=keys or ("id",), options={"bucket": "2", **options}
    )


def rows(*given: tuple[int | None, str, str | None], name: str = "op") -> pa.Table:
    ids, values, operations = zip(*given, strict=True)
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "v": values, name: pa.array(operations, pa.string())}
    )


def found(table: PaimonTable) -> dict[int, str]:
    merged = table.to_arrow(columns=["id", "v"]).to_pylist()
    assert len({row["id"] for row in merged}) == len(merged)
    return {row["id"]: row["v"] for row in merged}


@pytest.mark.parametrize(
    ("insert", "update", "delete"),
    [
        ("c", "u", "d"),
        ("r", "u", "d"),
        ("I", "U", "D"),
        ("+I", "+U", "-D"),
        ("insert", "UPDATE", "delete"),
    ],
)
def test_appended_rows_insert_update_and_delete_by_a_column_of_their_own(
    insert: str, update: str, delete: str
) -> None:
    table = made()
    first = rows((1, "a", insert), (2, "b", insert), (3, "c", insert), (3, "c", delete))
    table.append(first, operation_column="op", missing_columns="null")
    then = rows((1, "a2", update), (2, "b", delete), (4, "d", delete), (5, "e", update))
    table.append(then.to_reader(), operation_column="op", missing_columns="null")
    assert found(table) == {1: "a2", 5: "e"}
    assert "op" not in table.schema.field_names


def test_a_mapping_says_what_other_values_mean_and_then_only_these_are_known() -> None:
    table = made()
    given = rows((1, "a", "new"), (2, "b", "new"), (1, "a", "gone"))
    table.append(
        given, operation_column="op", operation_mapping="new=+I, gone=-D", missing_columns="null"
    )
    assert found(table) == {2: "b"}
    with pytest.raises(
        BadRowKind, match=r"in 1 row its value is not one of new, gone; it is 'c'\. Set "
    ):
        table.append(
            rows((3, "c", "c")),
            operation_column="op",
            operation_mapping="new=+I,gone=-D",
            missing_columns="null",
        )


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"operation_column": "nope"}, IncompatibleSchema, "the rows have no such column"),
        ({"operation_column": "v"}, InvalidOption, "rowkind.field"),
        ({"operation_mapping": "c=+I"}, InvalidOption, "nothing to map"),
        (
            {"operation_column": "op", "operation_mapping": "c=insert"},
            InvalidOption,
            "c=.I,u=.U,d=-D",
        ),
        ({}, IncompatibleSchema, "'op'"),
    ],
)
def test_an_operation_column_that_makes_no_sense_changes_nothing(
    asked: dict[str, str], error: type[PaimonStreamError], message: str
) -> None:
    table = made()
    with pytest.raises(error, match=message):
        table.append(rows((1, "a", "c")), missing_columns="null", **asked)
    assert not _everything(table)


def test_only_tables_whose_rows_are_replaced_have_a_use_for_it() -> None:
    location = f"memory://row-kinds-{next(NUMBERS)}/shop.db/orders"
    table = PaimonTable.create(location, [("id", "BIGINT"), ("v", "STRING")])
    with pytest.raises(InvalidOption, match="needs a primary key"):
        table.append(rows((1, "a", "c")), operation_column="op", missing_columns="null")
    with pytest.raises(InvalidOption, match="contradicts 'rowkind"):
        made(**{"rowkind.field": "kind"}).append(
            rows((1, "a", "c")), operation_column="op", missing_columns="null"
        )


def test_a_stored_column_says_it_and_is_stored() -> None:
    table = made(**{"rowkind.field": "kind"})
    table.append(rows((1, "a", "+I"), (2, "b", "+I"), (3, "c", "+I"), name="kind"))
    table.append(rows((1, "a", "-U"), (1, "A", "+U"), (2, "b", "-D"), (3, "c", "-U"), name="kind"))
    assert table.to_arrow().to_pylist() == [{"id": 1, "v": "A", "kind": "+U"}]


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "beside"])
def test_unknown_operations_and_none_are_named_and_counted(stored: bool) -> None:
    options = {"rowkind.field": "kind"} if stored else {}
    name = "kind" if stored else "op"
    table = made(**options)
    given = rows((1, "a", "+I"), (2, "b", "x"), (3, "c", None), (4, "d", "x"), name=name)
    with pytest.raises(BadRowKind) as raised:
        table.append(given, operation_column=None if stored else "op", missing_columns="null")
    assert str(raised.value).startswith(
        f"Column {name!r} says what each row for {table.location} does, but in 3 rows"
    )
    assert "; it is 'x', NULL. " in str(raised.value)
    assert "paimon-stream.operation-mapping" in str(raised.value)
    assert ("rowkind.field" in str(raised.value)) is stored
    assert raised.value.context["count"] == 3
    assert not _everything(table)


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, {}),
        ({"ignore-delete": "true"}, {1: "a", 2: "b", 3: "c"}),
        ({"ignore-update-before": "true"}, {3: "c"}),
        ({"ignore-delete": "true", "ignore-update-before": "true"}, {1: "a", 2: "b", 3: "c"}),
    ],
    ids=repr,
)
@pytest.mark.parametrize("together", [True, False])
def test_deletes_and_old_values_are_left_out_where_the_table_says_so(
    options: Mapping[str, str], left: Mapping[int, str], together: bool
) -> None:
    table = made(**options)
    first = [(1, "a", "+I"), (2, "b", "+I"), (3, "c", "+I")]
    then = [(1, "a", "-D"), (2, "b", "-D"), (3, "c", "-U")]
    for part in [first + then] if together else [first, then]:
        table.append(rows(*part), operation_column="op", missing_columns="null")
    assert found(table) == left


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"merge-engine": "partial-update"}, "-D", "partial-update cannot take back"),
        ({"merge-engine": "partial-update"}, "-U", "partial-update cannot take back"),
        ({"merge-engine": "first-row", "write-only": "true"}, "-D", "first row"),
        (AGGREGATED, "-D", r"max of column 'v' takes no value back \(fields.v.ignore-retract"),
        (AGGREGATED, "-U", "max of column 'v'"),
        ({**AGGREGATED, "aggregation.remove-record-on-delete": "true"}, "-U", r"take back \(-U\)"),
    ],
    ids=repr,
)
def test_deletes_that_no_reader_could_merge_are_refused_when_they_are_written(
    options: Mapping[str, str], kind: str, message: str
) -> None:
    table = made(**options)
    with pytest.raises(BadRowKind, match=message) as raised:
        table.append(
            rows((1, "a", "+I"), (2, "a", kind)), operation_column="op", missing_columns="null"
        )
    assert raised.value.context["count"] == 1
    assert not _everything(table)


@pytest.mark.parametrize(
    "options",
    [
        {**AGGREGATED, "aggregation.remove-record-on-delete": "true"},
        {**AGGREGATED, "fields.v.ignore-retract": "true"},
        {**AGGREGATED, "ignore-delete": "true"},
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        {"merge-engine": "partial-update", "fields.v.sequence-group": "kind"},
    ],
    ids=repr,
)
def test_deletes_that_readers_can_merge_are_taken(options: Mapping[str, str]) -> None:
    table = made(**options)
    for _ in range(2):
        table.append(
            rows((1, "a", "+I"), (2, "b", "+I")), operation_column="op", missing_columns="null"
        )
        table.append(rows((1, "a", "-D")), operation_column="op", missing_columns="null")
    assert found(table)[2] == "b"


GROUPED = {"bucket": "1", "merge-engine": "partial-update", "fields.m.aggregate-function": "max"}
BY_G = {**GROUPED, "fields.g.sequence-group": "m"}
REMOVING = {**BY_G, "partial-update.remove-record-on-sequence-group": "g"}


def grouped(order: str, options: Mapping[str, str]) -> PaimonTable:
    """A table with these columns, each of one letter."""
    location = f"memory://row-kinds-{next(NUMBERS)}/shop.db/orders"
    columns = [("k", "INT NOT NULL"), *((name, "INT") for name in order)]
    return PaimonTable.create(location, columns, primary_keys=["k"], options=options)


def change(order: str, kind: str, *values: int | None) -> pa.Table:
    columns = {
        name: pa.array([value], pa.int32()) for name, value in zip(order, values, strict=True)
    }
    return pa.table({"k": pa.array([1], pa.int32()), **columns, "op": [kind]})


@pytest.mark.parametrize(
    ("order", "options", "kind", "values"),
    [
        ("gm", BY_G, "-D", (2, 5)),
        ("gm", BY_G, "-U", (2, 5)),
        ("gm", REMOVING, "-U", (2, 5)),
        ("mg", REMOVING, "-D", (5, 2)),
        ("ghm", {**GROUPED, "fields.g,h.sequence-group": "m"}, "-U", (None, 2, 5)),
        (
            "hgm",
            {
                **GROUPED,
                "fields.g.sequence-group": "m",
                "fields.h.sequence-group": "h",
                "partial-update.remove-record-on-sequence-group": "h",
            },
            "-D",
            (None, 2, 5),
        ),
    ],
    ids=repr,
)
def test_deletes_that_a_function_of_a_sequence_group_cannot_merge_are_refused(
    order: str, options: Mapping[str, str], kind: str, values: tuple[int | None, ...]
) -> None:
    table = grouped(order, options)
    with pytest.raises(BadRowKind, match=rf"back \({kind}\), .* max of column 'm'") as raised:
        table.append(change(order, kind, *values), operation_column="op")
    assert raised.value.context["count"] == 1
    assert not _everything(table)


@pytest.mark.parametrize(
    ("order", "options", "kind", "values", "left"),
    [
        ("gm", BY_G, "-D", (None, 5), 7),
        ("gm", {**BY_G, "fields.m.ignore-retract": "true"}, "-U", (2, 5), 7),
        ("gm", {**BY_G, "ignore-delete": "true"}, "-D", (2, 5), 7),
        ("gm", {**BY_G, "ignore-update-before": "true"}, "-U", (2, 5), 7),
        ("gm", REMOVING, "-D", (2, 5), None),
        ("mg", {**REMOVING, "fields.m.ignore-retract": "true"}, "-D", (5, 2), None),
    ],
    ids=repr,
)
def test_deletes_that_the_rules_of_a_sequence_group_allow_are_merged(
    order: str,
    options: Mapping[str, str],
    kind: str,
    values: tuple[int | None, ...],
    left: int | None,
) -> None:
    table = grouped(order, options)
    table.append(
        change(order, "+I", *[1 if name == "g" else 7 for name in order]), operation_column="op"
    )
    table.append(change(order, kind, *values), operation_column="op")
    assert [row["m"] for row in table.to_arrow().to_pylist()] == ([] if left is None else [left])


def test_a_function_by_which_a_late_delete_could_not_be_merged_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    grouped("gm", REMOVING).append(change("gm", "+I", 1, 7), operation_column="op")
    assert "comes late" in caplog.text and "functions of m take" in caplog.text
    caplog.clear()
    for options in (BY_G, {**REMOVING, "fields.m.ignore-retract": "true"}):
        grouped("gm", options).append(change("gm", "+I", 1, 7), operation_column="op")
    assert not caplog.text


@pytest.mark.parametrize("type_", ["TINYINT", "BIGINT", "DECIMAL(18, 3)", "DECIMAL(38, 20)"])
@pytest.mark.parametrize("options", [{}, {"fields.m.ignore-retract": "true"}], ids=repr)
def test_a_factor_of_0_is_not_taken_back(type_: str, options: dict[str, str]) -> None:
    engine = {
        "bucket": "1",
        "merge-engine": "aggregation",
        "fields.m.aggregate-function": "product",
    }
    location = f"memory://row-kinds-{next(NUMBERS)}/shop.db/orders"
    columns = [("k", "INT NOT NULL"), ("m", type_)]
    table = PaimonTable.create(location, columns, primary_keys=["k"], options=engine | options)
    for value in (5, None):
        table.append(change("m", "+I", value), operation_column="op")
        table.append(change("m", "-U", value), operation_column="op")
    if options:
        table.append(change("m", "-U", 0), operation_column="op")
        assert [row["m"] for row in table.to_arrow().to_pylist()] == [5]
        return
    with pytest.raises(BadRowKind, match="product of column 'm' cannot be divided by 0"):
        table.append(change("m", "-U", 0), operation_column="op")
    assert [row["m"] for row in table.to_arrow().to_pylist()] == [1]


def test_a_sequence_field_that_ignores_retracts_keeps_its_value() -> None:
    options = {
        "bucket": "1",
        "merge-engine": "aggregation",
        "sequence.field": "g",
        "fields.g.ignore-retract": "true",
    }
    table = grouped("gm", options)
    both = pa.concat_tables([change("gm", "+I", 3, 7), change("gm", "-U", 3, 7)])
    table.append(both, operation_column="op")
    assert table.to_arrow().to_pylist() == [{"k": 1, "g": 3, "m": None}]


@pytest.mark.parametrize("key", ["id", "kind"])
def test_nulls_in_a_key_are_counted_and_nothing_is_written(key: str) -> None:
    table = made("kind", "id")
    given: Sequence[Any] = [(1, "a", "x"), (2, "b", "x"), (3, "c", "x")]
    broken = [(None, *row[1:]) if key == "id" else (*row[:2], None) for row in given[:2]]
    with pytest.raises(NullInNotNull) as raised:
        table.append(rows(*broken, *given, name="kind"))
    assert f"Column {key!r}" in str(raised.value) and "is NULL in 2 rows." in str(raised.value)
    assert not _everything(table)


def _everything(table: PaimonTable) -> list[str]:
    """Snapshots and data files, live or not."""
    names = [name for name in table._storage.list_folders("") if name.startswith("bucket-")]
    files = [stat.path for name in names for stat in table._storage.list_files(name)]
    return files + [f"snapshot {one.id}" for one in table.snapshots()]
