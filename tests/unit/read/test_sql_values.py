"""Values of SQL text, computed by Arrow."""

from __future__ import annotations

from decimal import Decimal as D
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream.errors import InvalidOption, UnsupportedFeature
from paimon_stream.format.arrow_types import from_arrow
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.read.condition_text import condition_on, value_in_text
from paimon_stream.read.sql_text import Columns, SqlColumn, parsed
from paimon_stream.read.sql_values import column_of
from tests.kits.sql_cases import CASES, ERROR, ROWS

COLUMNS: Columns = {
    "": {
        field.name: SqlColumn(name=field.name, type=from_arrow(field.type)) for field in ROWS.schema
    }
}
PAIR: Columns = {
    "source": {"id": SqlColumn(name="s_id", type=parse_type("INT"))},
    "target": {
        "id": SqlColumn(name="t_id", type=parse_type("INT")),
        "n": SqlColumn(name="t_n", type=parse_type("INT")),
    },
}


def result(text: str) -> Any:
    try:
        return column_of(ROWS, parsed(text, COLUMNS).expression).to_pylist()
    except pa.ArrowException:
        return ERROR


def given(text: str, type_: str) -> list[Any]:
    field = DataField(id=0, name="c", type=parse_type(type_))
    return list(column_of(ROWS, value_in_text(text, field, COLUMNS, "updates")).to_pylist())


@pytest.mark.parametrize("text", CASES)
def test_a_value_is_that_of_spark(text: str) -> None:
    """A test of the same list beside Spark is in tests/spark."""
    assert repr(result(text)) == repr(CASES[text])


def test_a_column_gets_the_value_in_its_type() -> None:
    assert given("i", "BIGINT") == [7, -7, None, 0]
    assert given("n", "DECIMAL(5, 1)") == [D("3.0"), D("7.0"), D("0.1"), D("0.0")]
    assert given("'2024-02-29'", "DATE")[0].isoformat() == "2024-02-29"
    assert given("NULL", "INT") == [None] * 4
    assert given("i", "STRING") == ["7", "-7", None, "0"]
    assert given("day", "TIMESTAMP(3)")[0].isoformat() == "2024-02-29T00:00:00"
    assert given("r", "ROW<x BIGINT, z STRING>")[0] == {"x": 1, "z": "p"}


@pytest.mark.parametrize(
    ("text", "type_", "message"),
    [
        ("s", "INT", r"updates gives c the value s, whose type is STRING; the column's is INT"),
        ("'5'", "INT", r"CAST it"),
        ("i", "DATE", r"the column's is DATE"),
        ("o", "INT", r"whose type is BOOLEAN"),
        ("'2024-02-30'", "DATE", r"which is not a value of c, whose type is DATE"),
        ("nope", "INT", r"names a column 'nope'\. The columns: i, j, "),
        ("i +", "INT", r"updates ends too early, as 'i \+'"),
        ("i i", "INT", r"not understood from 'i' on"),
        ("i AND o", "BOOLEAN", r"has i before AND, and its type is INT"),
        ("r.nope", "INT", r"a member 'nope' of r"),
        ("CASE WHEN i = 1 THEN s ELSE i END", "INT", r"in CASE\. CAST one"),
        ("CAST(i AS NOPE)", "INT", r"casts i to 'NOPE', which is not a type"),
        ("ABS(s)", "INT", r"calls ABS of s"),
        ("ABS(i, i)", "INT", r"calls ABS with 2 values"),
        ("s = i", "BOOLEAN", r"has i of type INT and s of type STRING|has s of type STRING"),
        ("(" * 100, "INT", r"nested more than 60 deep"),
        ("i LIKE 'a'", "BOOLEAN", r"has i before LIKE"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, type_: str, message: str) -> None:
    with pytest.raises((InvalidOption, UnsupportedFeature), match=message):
        given(text, type_)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(SELECT 1)", r"has a subquery \(SELECT\)"),
        ("i IN (SELECT 1)", r"has a subquery \(SELECT\)"),
        ("EXISTS (SELECT 1)", r"has a subquery \(EXISTS\)"),
        ("FOO(i)", r"calls FOO, which is not computed here\. The functions: ABS, "),
        ("CURRENT_TIMESTAMP()", r"calls CURRENT_TIMESTAMP, which has another value each time"),
        ("RAND()", r"another value each time"),
        ("CAST(d AS STRING)", r"casts d from DOUBLE to STRING"),
        ("d % 2", r"computes % of DOUBLE"),
        ("day + INTERVAL '1' DAY", r"has an INTERVAL"),
        ("s RLIKE 'a'", r"has RLIKE"),
    ],
)
def test_what_cannot_be_computed_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(UnsupportedFeature, match=message) as refused:
        given(text, "INT")
    assert refused.value.context["option"] == "updates"


def test_an_alias_tells_source_from_target() -> None:
    rows = pa.table({"s_id": [1, 2], "t_id": [1, 3], "t_n": [5, None]})
    same = condition_on("source.id = target.id OR target.n IS NULL", PAIR, "on")
    assert column_of(rows, same).to_pylist() == [True, True]
    with pytest.raises(
        InvalidOption, match=r"'id' without an alias\. Write source.id or target.id"
    ):
        condition_on("id = 1", PAIR, "on")
    with pytest.raises(InvalidOption, match=r"'source\.n'\. The columns: id\."):
        condition_on("source.n = 1", PAIR, "on")
