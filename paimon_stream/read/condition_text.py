"""Conditions on rows as people type them, for the command line and for options of Spark:
`amount >= 10 AND region = 'north' AND note IS NULL`.
"""

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import pyarrow.compute as pc

from paimon_stream.errors import InvalidOption
from paimon_stream.format.binary_columns import value_scalar
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataType
from paimon_stream.table.partition_value import expected_form, partition_value

_SYNTAX: Final = (
    "Write COLUMN OP VALUE, joined by AND. OP is =, !=, <, <=, >, >=, IS NULL or IS NOT NULL. A text is in single "
    "quotes, a column with other characters than letters, digits and _ in backticks."
)
_PIECE: Final = re.compile(
    r"""\s*(?:`(?P<quoted>[^`]+)`|(?P<column>[^\W\d]\w*))\s*
        (?:(?P<null>IS\s+(?:NOT\s+)?NULL)
          |(?P<op><=|>=|<>|!=|==|=|<|>)\s*(?:'(?P<text>(?:[^']|'')*)'|(?P<bare>[^\s'`<>=!()]+)))
        \s*(?P<end>AND\b|$)""",
    re.VERBOSE | re.IGNORECASE,
)
_OPERATORS: Final[dict[str, Callable[[Any, Any], pc.Expression]]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


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


def condition_in_text(typed: str, schema: TableSchema, option: str) -> pc.Expression:
    """The condition as an expression.

    Args:
        typed: the text.
        schema: has the columns.
        option: the name of the option that has the text, for messages.

    Raises:
        InvalidOption: the text is not a condition on these columns.
    """
    comparisons: list[pc.Expression] = []
    position = 0
    is_end = False
    while not is_end:
        piece = _PIECE.match(typed, position)
        if piece is None:
            raise InvalidOption(
                f"{option} is not understood from {typed[position:].strip()!r} on. {_SYNTAX}",
                option=option,
            )
        comparisons.append(_comparison(piece, schema, option))
        position = piece.end()
        is_end = not piece["end"]  # no AND follows
    return reduce(operator.and_, comparisons)


def _comparison(piece: re.Match[str], schema: TableSchema, option: str) -> pc.Expression:
    """One comparison of the text. Raises `InvalidOption`."""
    name = piece["quoted"] or piece["column"]
    if name not in schema.by_name:
        raise InvalidOption(
            f"{option} names a column {name!r}. The columns: {', '.join(schema.field_names)}.",
            option=option,
        )
    type_ = schema.field(name).type
    column = pc.field(name)
    if piece["null"]:
        return column.is_valid() if "NOT" in piece["null"].upper() else column.is_null()
    if type_.is_nested or type_.is_binary:
        raise InvalidOption(
            f"{option} compares {name} with a value, but its type is {type_}. Ask only IS NULL.",
            option=option,
        )
    if type_.is_string and piece["text"] is None:
        raise InvalidOption(
            f"{option} compares {name} with {piece['bare']}. A text is in single quotes.",
            option=option,
        )
    text = piece["bare"] if piece["text"] is None else piece["text"].replace("''", "'")
    value = partition_value(type_, text)
    if value is None:
        raise InvalidOption(
            f"{option}: {text!r} is not a value of {name}, whose type is {type_}. {expected_form(type_)}",
            option=option,
        )
    if type_.is_float:
        return _compared_floats(piece["op"], column, value, type_)
    try:
        scalar = value_scalar(value, type_)
    except OverflowError:
        raise InvalidOption(
            f"{option} compares {name} with {text!r}, which is beyond the moments that are read. Give one nearer to "
            "today: a TIMESTAMP of more than 6 digits is read from 1677-09-21 to 2262-04-11.",
            option=option,
        ) from None
    return _OPERATORS[piece["op"]](column, scalar)


def _compared_floats(
    op: str, column: pc.Expression, value: float, type_: DataType
) -> pc.Expression:
    """A comparison with a FLOAT or DOUBLE. As in Spark, NaN equals NaN and is above all numbers.
    Arrow does not order NaN.
    """
    is_nan = pc.is_nan(column)
    if math.isnan(value):
        if op in ("<", "!=", "<>"):
            return ~is_nan
        if op == "<=":
            return column.is_valid()
        return is_nan & pc.scalar(op != ">")
    compared = _OPERATORS[op](column, value_scalar(value, type_))
    return compared | is_nan if op in (">", ">=") else compared
