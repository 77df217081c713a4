"""`merge_rows` against a model of Java's engines on plain values, with random tables and rows."""

from __future__ import annotations

import json
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_stream.errors import InvalidData
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, arrow_type, parse_type
from paimon_stream.merge.rows import merge_rows, sort_rows
from paimon_stream.merge.spec import MergeSpec
from paimon_stream.options import Options
from tests.kits.merging import COLUMNS, ENGINES, Refused, Stored, changes, model
from tests.kits.seeds import examples

pytestmark = pytest.mark.lowest

KIND_OF = {"+I": 0, "-U": 1, "+U": 2, "-D": 3}
TYPES = {name: text for name, text in COLUMNS if name not in "df"}  # doubles are for Java to judge
FITTING = {
    "i": ["sum", "product", "max", "min"],
    "l": ["sum", "product"],
    "t": ["sum", "product", "min"],
    "c": ["sum", "max"],
    "s": ["listagg", "max", "min"],
    "b": ["bool_and", "bool_or"],
    "a": ["collect"],
    "m": ["merge_map"],
}
ANY = ["last_value", "last_non_null_value", "first_value", "first_non_null_value"]


def schema_of(options: dict[str, str]) -> TableSchema:
    fields = tuple(
        DataField(id=i, name=name, type=parse_type(text))
        for i, (name, text) in enumerate(TYPES.items())
    )
    return TableSchema(
        id=0, fields=fields, highest_field_id=99, primary_keys=("k",), options=options
    )


def table_of(rows: list[Stored]) -> pa.Table:
    columns = {
        name: pa.array([_plain(row[2][name]) for row in rows], arrow_type(parse_type(text)))
        for name, text in TYPES.items()
    }
    numbers = pa.array([row[0] for row in rows], pa.int64())
    kinds = pa.array([row[1] for row in rows], pa.int8())
    return pa.table(columns | {"_SEQUENCE_NUMBER": numbers, "_VALUE_KIND": kinds})


def _plain(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) else value


def rows_of(table: pa.Table) -> list[str]:
    names = table.column_names[:-2]
    maps = {name for name in names if pa.types.is_map(table.schema.field(name).type)}

    def value(name: str, one: Any) -> Any:
        return dict(one) if name in maps and one is not None else one

    made = [
        (
            row["_SEQUENCE_NUMBER"],
            row["_VALUE_KIND"],
            {name: value(name, row[name]) for name in names},
        )
        for row in table.to_pylist()
    ]
    return [_text(row) for row in made]


def _text(row: Stored) -> str:
    values = {name: row[2][name] for name in sorted(TYPES)}
    return json.dumps([row[0], row[1], values], default=str, sort_keys=True)


def random_rows(random: Random, kinds: str, rows: int) -> list[Stored]:
    made = [
        (number, KIND_OF[kind], row)
        for number, (kind, row) in enumerate(changes(random, kinds, rows, keys=max(1, rows // 4)))
    ]
    for _, _, row in made:
        if row["c"] is not None:
            row["c"] = min(row["c"], Decimal("999999999999999999.99"))
    random.shuffle(made)
    return made


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, str], str]:
    """Options, and the kinds of rows."""
    known = draw(st.sampled_from(sorted(ENGINES)))
    if draw(st.booleans()):
        return ENGINES[known]
    options = {"merge-engine": "aggregation"}
    if draw(st.booleans()):
        options |= {"merge-engine": "partial-update", "fields.g.sequence-group": "i,l,a,s,b"}
        options |= {"fields.h.sequence-group": "t,c,m"}
        if draw(st.booleans()):
            removing = draw(st.sampled_from(["g", "h", "g,h"]))
            options["partial-update.remove-record-on-sequence-group"] = removing
    elif draw(st.booleans()):
        options["sequence.field"] = draw(st.sampled_from(["g", "g,h"]))
    for name, fitting in FITTING.items():
        function = draw(st.sampled_from([*fitting, *fitting, *ANY]))
        options[f"fields.{name}.aggregate-function"] = function
        if draw(st.integers(0, 3)) == 0:
            options[f"fields.{name}.ignore-retract"] = "true"
        if draw(st.booleans()) and function in ("collect", "listagg"):
            options[f"fields.{name}.distinct"] = "true"
    return options, draw(st.sampled_from(["I", "IUD", "ID"]))


def without_doubles(options: dict[str, str]) -> dict[str, str]:
    """The options without the columns that `TYPES` leaves out."""
    return {
        key: ",".join(name for name in value.split(",") if name not in ("d", "f")) or value
        for key, value in options.items()
        if key.split(".")[1:2] not in (["d"], ["f"])
    }


@settings(max_examples=examples(30, 1000), deadline=None)
@given(tables(), st.integers(0, 2**32), st.integers(1, 60))
def test_many_rows_of_a_key_become_the_row_that_java_would_make_of_them(
    table: tuple[dict[str, str], str], seed: int, rows: int
) -> None:
    options, kinds = table
    given_rows = random_rows(Random(seed), kinds, rows)
    options = without_doubles(options)
    spec = MergeSpec.of(schema_of(options), Options(options))
    try:
        expected = model(options, given_rows, TYPES)
    except Refused:
        with pytest.raises(InvalidData):
            merge_rows(spec, table_of(given_rows), keep_deletes=True)
        return
    merged = merge_rows(spec, table_of(given_rows), keep_deletes=True)
    merged.validate(full=True)
    assert rows_of(merged) == [_text(row) for row in expected]
    seen = merge_rows(spec, table_of(given_rows), keep_deletes=False)
    assert rows_of(seen) == [_text(row) for row in expected if row[1] in (0, 2)]
    assert sort_rows(spec, table_of(given_rows)).num_rows == rows
