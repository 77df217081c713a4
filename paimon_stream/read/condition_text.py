"""Conditions and values as people type them, for the command line, for options of Spark and for the
calls that change rows: `amount >= 10 AND region = 'north' AND note IS NULL`, `amount * 2`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow.compute as pc

from paimon_stream.errors import InvalidOption, UnsupportedFeature
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField
from paimon_stream.read.sql_text import Columns, SqlColumn, parsed
from paimon_stream.read.sql_values import SqlMisfit, SqlUnsupported, assigned, boolean


@dataclass(frozen=True, slots=True)
class TypedCondition:
    """A condition that is given to `plan_scan` as text, because only the plan knows the columns of
    the rows that are read: an older snapshot may have other columns than the table has today.

    Attributes:
        text: the condition as people type it.
        option: the name of the option that has the text, for messages.
    """

    text: str
    option: str


def columns_of(schema: TableSchema) -> Columns:
    """The columns of a table, which a text names without an alias."""
    return {
        "": {field.name: SqlColumn(name=field.name, type=field.type) for field in schema.fields}
    }


def condition_in_text(typed: str, schema: TableSchema, option: str) -> pc.Expression:
    """The condition as an expression.

    Args:
        typed: the text.
        schema: has the columns.
        option: the name of the option that has the text, for messages.

    Raises:
        InvalidOption: the text is not a condition on these columns.
        UnsupportedFeature: the text has a subquery, or calls a function that is not computed here.
    """
    return condition_on(typed, columns_of(schema), option)


def condition_on(typed: str, columns: Columns, option: str) -> pc.Expression:
    """The condition on some columns as an expression. `typed`, `option` and the errors are those of
    `condition_in_text`.
    """
    with naming_option(option):
        return boolean(parsed(typed, columns), "as a condition")


def value_in_text(typed: str, field: DataField, columns: Columns, option: str) -> pc.Expression:
    """The value that a text gives to a column, as an expression of the column's type. `column_of` of
    `sql_values.py` computes it.

    Args:
        typed: the text, such as `amount * 2` or `CASE WHEN n > 9 THEN 'many' ELSE note END`.
        field: the column that gets the value.
        columns: the columns that the text may name, such as those of `columns_of`.
        option: the name of the argument that has the text, for messages.

    Raises:
        InvalidOption: the text is not a value, or not one for this column.
        UnsupportedFeature: the text has a subquery, or calls a function that is not computed here.
    """
    with naming_option(option):
        return assigned(parsed(typed, columns), field.type, field.name)


@contextmanager
def naming_option(option: str) -> Iterator[None]:
    """A context that names the option in the errors for its text."""
    try:
        yield
    except SqlUnsupported as unsupported:
        raise UnsupportedFeature(f"{option} {unsupported}", option=option) from None
    except SqlMisfit as misfit:
        raise InvalidOption(f"{option} {misfit}", option=option) from None
