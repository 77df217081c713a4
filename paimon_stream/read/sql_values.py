"""Values of SQL as expressions of Arrow, with the types and results of Spark in ANSI mode.

Invariants:

- The type of a value follows Spark's rules, for decimals, too. An operation whose result Arrow
  computes in another way is composed of others, or it is refused by name.
- A value that does not fit its type is an error when the expression is computed. NULL never is. So
  an operation is switched off for a row by making its operand NULL (`SqlValue.where`): Arrow
  computes all branches of a CASE for all rows.
- NaN equals NaN and is above all numbers. Texts are compared by their bytes.

An expression is computed by `column_of`.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.format.binary_columns import value_scalar
from paimon_stream.format.types import MAX_LENGTH, DataType, TypeRoot, arrow_type
from paimon_stream.table.partition_value import expected_form, partition_value

BOOLEAN: Final = DataType(root=TypeRoot.BOOLEAN)
INT: Final = DataType(root=TypeRoot.INT)
BIGINT: Final = DataType(root=TypeRoot.BIGINT)
DOUBLE: Final = DataType(root=TypeRoot.DOUBLE)
STRING: Final = DataType(root=TypeRoot.VARCHAR, precision=MAX_LENGTH)
DATE: Final = DataType(root=TypeRoot.DATE)
TIMESTAMP: Final = DataType(root=TypeRoot.TIMESTAMP, precision=6)

_INTEGERS: Final = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT)
_DIGITS: Final = dict(zip(_INTEGERS, (3, 5, 10, 20), strict=True))
"""The digits of the DECIMAL that an integer becomes beside a DECIMAL, as in Spark."""
_MOST_DIGITS: Final = 38
_WIDEST: Final = 76
"""The digits of Arrow's widest decimals, in which results are computed before they are rounded."""
_KEPT_SCALE: Final = 6
"""The digits after the point that Spark keeps if a result has more than 38 digits."""
_MOST_PLAIN: Final = 6
"""With more digits after the point, Arrow may write a DECIMAL with an exponent."""
_FRACTION: Final = 40
"""Digits after the point of a float that is about to be rounded."""
_WHOLE_FLOATS: Final = 2.0**53
"""From here on, each float is a whole number."""
_INTEGER: Final = r"^[+-]?[0-9]+$"
_DECIMAL: Final = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_REAL: Final = r"^[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|(?i:inf|infinity|nan))$"
_DAY: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_MOMENT: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?$"
_TRUE: Final = ("t", "true", "y", "yes", "1")
_FALSE: Final = ("f", "false", "n", "no", "0")
_ORDERS: Final[dict[str, Callable[[Any, Any], pc.Expression]]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
COMPARISONS: Final = (*_ORDERS, "<=>")
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


class SqlMisfit(ValueError):
    """A text of SQL does not fit the columns or the types. The message follows the option's
    name.
    """


class SqlUnsupported(SqlMisfit):
    """A text of SQL asks for something that is not computed here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlValue:
    """A value of each row.

    Attributes:
        expression: computes it.
        type: its type; None for NULL without a type.
        shown: how messages name it.
        text: of a literal whose type may follow from what stands beside it: its text.
        is_quoted: whether this literal is in quotes.
        equality: of a comparison by `=` or `<=>`: its sign and both sides.
        terms: of an AND: what it joins.
    """

    expression: pc.Expression
    type: DataType | None
    shown: str
    text: str | None = None
    is_quoted: bool = False
    equality: "tuple[str, SqlValue, SqlValue] | None" = None
    terms: "tuple[SqlValue, ...]" = ()

    def where(self, guard: pc.Expression | None) -> "SqlValue":
        """This value in the rows in which the guard is true, and NULL in the others."""
        if guard is None or self.type is None:
            return self
        nothing = pa.scalar(None, arrow_type(self.type))
        return replace(self, expression=pc.if_else(guard, self.expression, nothing), text=None)

    def with_expression(self, expression: pc.Expression, type_: DataType) -> "SqlValue":
        """Another value that messages name as this one."""
        return SqlValue(expression=expression, type=type_.with_nullable(True), shown=self.shown)


def null_of(type_: DataType) -> pc.Expression:
    """NULL of a type."""
    return pc.scalar(pa.scalar(None, arrow_type(type_)))


def literal(value: Any, type_: DataType, text: str, *, is_quoted: bool = False) -> SqlValue:
    """A literal. `value` is in internal form."""
    return SqlValue(
        expression=pc.scalar(value_scalar(value, type_)),
        type=type_,
        shown=repr(text) if is_quoted else text,
        text=text,
        is_quoted=is_quoted,
    )


def _is_number(type_: DataType) -> bool:
    return type_.root in _INTEGERS or type_.is_float or type_.root is TypeRoot.DECIMAL


def is_true(condition: pc.Expression) -> pc.Expression:
    """Whether the condition holds; false for NULL."""
    return pc.coalesce(condition, pc.scalar(False))


def boolean(value: SqlValue, place: str) -> pc.Expression:
    """The value as a condition. `place` is where it stands, for the message."""
    if value.type is None:
        return null_of(BOOLEAN)
    if value.type.root is not TypeRoot.BOOLEAN:
        raise SqlMisfit(
            f"has {value.shown} {place}, and its type is {value.type}. Give a condition there."
        )
    return value.expression


# -- types ----------------------------------------------------------------------------------------
def _as_decimal(value: SqlValue) -> DataType:
    """The DECIMAL that a whole number becomes beside a DECIMAL."""
    type_ = _typed(value)
    if type_.root is TypeRoot.DECIMAL:
        return type_
    digits = _DIGITS[type_.root]
    if value.text is not None:
        digits = len(value.text.lstrip("-").lstrip("0")) or 1
    return DataType(root=TypeRoot.DECIMAL, precision=digits, scale=0)


def _typed(value: SqlValue) -> DataType:
    assert value.type is not None
    return value.type


def common_number(left: SqlValue, right: SqlValue) -> tuple[DataType, DataType]:
    """The types in which two numbers meet. They are equal, except for two DECIMALs."""
    types = (_typed(left), _typed(right))
    roots = {type_.root for type_ in types}
    if TypeRoot.DECIMAL in roots:
        if any(type_.is_float for type_ in types):
            return DOUBLE, DOUBLE
        return _as_decimal(left), _as_decimal(right)
    if len(roots) == 1:
        return types
    if any(type_.is_float for type_ in types):
        return DOUBLE, DOUBLE  # also an integer and a FLOAT: no digit is lost
    wider = max(types, key=lambda type_: _INTEGERS.index(type_.root))
    return wider, wider


def _common_type(values: Sequence[SqlValue], place: str) -> DataType | None:
    """The type that all values get, as branches of a CASE do. None if all are NULL."""
    typed = [value for value in values if value.type is not None]
    firm = [value for value in typed if not value.is_quoted]
    common: SqlValue | None = None
    for value in firm or typed:
        common = value if common is None else _wider(common, value, place)
    return None if common is None else common.type


def _wider(left: SqlValue, right: SqlValue, place: str) -> SqlValue:
    """One of two values, or a value with their common type."""
    first = _typed(left)
    second = _typed(right)
    if _is_number(first) and _is_number(second):
        # Beside a branch, a literal has all digits of its type.
        first, second = common_number(replace(left, text=None), replace(right, text=None))
        if first.root is TypeRoot.DECIMAL:
            first = _union_of_decimals(first, second)
        return replace(left, type=first, text=None)
    if first.is_string and second.is_string:
        return replace(left, type=STRING)
    if first.root is second.root and not first.is_nested:
        return left if first.precision >= second.precision else right
    if {first.root, second.root} == {TypeRoot.DATE, TypeRoot.TIMESTAMP}:
        return left if first.is_timestamp else right
    if arrow_type(first) == arrow_type(second):
        return left
    raise SqlMisfit(
        f"has {left.shown} of type {first} and {right.shown} of type {second} {place}. CAST one of them."
    )


def _union_of_decimals(first: DataType, second: DataType) -> DataType:
    scale = max(first.scale, second.scale)
    whole = max(first.precision - first.scale, second.precision - second.scale)
    if whole + scale > _MOST_DIGITS:
        raise SqlMisfit(
            f"needs a DECIMAL of {whole + scale} digits, and 38 are possible. CAST one."
        )
    return DataType(root=TypeRoot.DECIMAL, precision=whole + scale, scale=scale)


def adapted(value: SqlValue, type_: DataType, beside: str) -> SqlValue:
    """The value in a wider type. The text of a literal in quotes is read as a value of the type.
    `beside` names what has the type, for messages.
    """
    if value.type is None:
        return value.with_expression(null_of(type_), type_)
    if value.is_quoted and value.text is not None and not type_.is_string:
        return read_literal(value, type_, beside)
    if value.type.root is type_.root and arrow_type(value.type) == arrow_type(type_):
        return value
    return cast(value, type_)


def read_literal(value: SqlValue, type_: DataType, beside: str) -> SqlValue:
    """The text of a literal, read as a value of a type. `beside` names what has the type."""
    assert value.text is not None
    if type_.is_nested or type_.is_binary:
        raise SqlMisfit(
            f"compares {beside} with a value, but its type is {type_}. Ask only IS NULL."
        )
    if type_.is_string and not value.is_quoted:
        raise SqlMisfit(f"compares {beside} with {value.text}. A text is in single quotes.")
    internal = partition_value(type_, value.text)
    if internal is None:
        raise SqlMisfit(
            f"has {value.text!r}, which is not a value of {beside}, whose type is {type_}. {expected_form(type_)}"
        )
    try:
        scalar = value_scalar(internal, type_)
    except OverflowError:
        raise SqlMisfit(
            f"compares {beside} with {value.text!r}, which is beyond the moments that are read. Give one nearer to "
            "today: a TIMESTAMP of more than 6 digits is read from 1677-09-21 to 2262-04-11."
        ) from None
    return replace(value, expression=pc.scalar(scalar), type=type_.with_nullable(True))


# -- comparisons ----------------------------------------------------------------------------------
def compare(op: str, left: SqlValue, right: SqlValue) -> pc.Expression:
    """A comparison of two values."""
    if left.text is not None and right.text is None:
        return compare(_MIRRORED.get(op, op), right, left)
    if left.type is None or right.type is None:
        if op != "<=>":
            return null_of(BOOLEAN)
        other = left if right.type is None else right
        return pc.scalar(True) if other.type is None else other.expression.is_null()
    left, right = comparable(left, right)
    bounds = _bounds_of_char(op, left, right)
    if _is_char(left) or _is_char(right):
        left = _without_blanks(left)
        right = _without_blanks(right)
    is_float = _typed(left).is_float
    if op == "<=>":
        equal = (
            _compared_floats("=", left, right) if is_float else left.expression == right.expression
        )
        both_null = left.expression.is_null() & right.expression.is_null()
        return is_true(equal) | both_null
    if is_float:
        return _compared_floats(op, left, right)
    compared = _ORDERS[op](left.expression, right.expression)
    return compared if bounds is None else bounds & compared


def _is_char(value: SqlValue) -> bool:
    return _typed(value).root is TypeRoot.CHAR


def _without_blanks(value: SqlValue) -> SqlValue:
    """A text without blanks at its end. They do not count where a CHAR is compared, because engines
    such as Spark store it with blanks up to its length.
    """
    return replace(value, expression=pc.utf8_rtrim(value.expression, characters=" "))


def _bounds_of_char(op: str, left: SqlValue, right: SqlValue) -> pc.Expression | None:
    """For a CHAR that equals a literal: what the statistics of files can be compared with."""
    if op not in ("=", "==") or right.text is None or not _is_char(left):
        return None
    lowest = right.text.rstrip(" ")
    highest = lowest.ljust(_typed(left).precision)
    return (left.expression >= lowest) & (left.expression <= highest)


def comparable(left: SqlValue, right: SqlValue) -> tuple[SqlValue, SqlValue]:
    """Two values in a type in which they can be compared. A literal takes the type of the value
    beside it, so that the statistics of files help.
    """
    first = _typed(left)
    second = _typed(right)
    if right.text is not None and left.text is None:
        if right.is_quoted or not (_is_number(first) and _is_number(second)):
            return left, read_literal(right, first, left.shown)
        if partition_value(first, right.text) is not None:
            return left, read_literal(right, first, left.shown)
    if first.is_nested or second.is_nested:
        raise SqlMisfit(f"compares {left.shown}, but its type is {first}. Ask only IS NULL.")
    if _is_number(first) and _is_number(second):
        left_type, right_type = common_number(left, right)
        if left_type.root is TypeRoot.DECIMAL:
            return _decimals_of_one_scale(cast(left, left_type), cast(right, right_type))
        return cast(left, left_type), cast(right, right_type)
    is_same_unit = not first.is_timestamp or arrow_type(first) == arrow_type(second)
    is_known = (first.root is second.root and is_same_unit) or (
        first.is_string and second.is_string
    )
    if not (is_known or (first.is_binary and second.is_binary)):
        common = _wider(left, right, "in a comparison")
        return adapted(left, _typed(common), right.shown), adapted(
            right, _typed(common), left.shown
        )
    return left, right


def _decimals_of_one_scale(left: SqlValue, right: SqlValue) -> tuple[SqlValue, SqlValue]:
    first = _typed(left)
    second = _typed(right)
    if (first.precision, first.scale) == (second.precision, second.scale):
        return left, right
    wide = pa.decimal256(_WIDEST, max(first.scale, second.scale))
    return (
        replace(left, expression=left.expression.cast(wide)),
        replace(right, expression=right.expression.cast(wide)),
    )


def _compared_floats(op: str, left: SqlValue, right: SqlValue) -> pc.Expression:
    """A comparison of two FLOATs or DOUBLEs. As in Spark, NaN equals NaN and is above all numbers.
    Arrow does not order NaN.
    """
    first = left.expression
    second = right.expression
    is_nan = pc.is_nan(first)
    if right.text is not None and right.text.lower().lstrip("+-") == "nan":
        if op in ("<", "!=", "<>"):
            return ~is_nan
        if op == "<=":
            return first.is_valid()
        return is_nan & pc.scalar(op != ">")
    compared = _ORDERS[op](first, second)
    if right.text is not None:
        return compared | is_nan if op in (">", ">=") else compared
    is_nan_too = pc.is_nan(second)
    match op:
        case "=" | "==":
            return compared | (is_nan & is_nan_too)
        case "!=" | "<>":
            return compared & ~(is_nan & is_nan_too)
        case ">":
            return compared | (is_nan & ~is_nan_too)
        case ">=":
            return compared | is_nan
        case "<":
            return compared | (~is_nan & is_nan_too)
        case _:
            return compared | is_nan_too


def is_in(value: SqlValue, choices: Sequence[SqlValue]) -> pc.Expression:
    """Whether a value is among others. NULL if it is NULL, or if it could be the NULL among
    them.
    """
    return reduce(operator.or_, (compare("=", value, choice) for choice in choices))


# -- arithmetic -----------------------------------------------------------------------------------
def arithmetic(op: str, left: SqlValue, right: SqlValue) -> SqlValue:
    """The result of `+`, `-`, `*`, `/`, `%` or DIV."""
    shown = f"{left.shown} {op} {right.shown}"
    right_as_left = _with_type_of(right, left)
    left = _with_type_of(left, right)
    right = right_as_left
    for value in (left, right):
        if value.type is None or not _is_number(value.type) or value.is_quoted:
            raise SqlMisfit(
                f"computes {shown}, and the type of {value.shown} is {value.type or 'unknown'}. CAST it to a number."
            )
    left_type, right_type = common_number(left, right)
    if op == "/" and left_type.root is not TypeRoot.DECIMAL:
        left_type = DOUBLE
        right_type = DOUBLE
    left = cast(left, left_type)
    right = cast(right, right_type)
    if left_type.root is TypeRoot.DECIMAL:
        result = _DECIMAL_RESULTS[op](left, right)
    elif op in ("%", "DIV"):
        result = _whole_division(op, left, right)
    else:
        result = left.with_expression(_CHECKED[op](left.expression, right.expression), left_type)
    return replace(result, shown=shown)


def _with_type_of(value: SqlValue, other: SqlValue) -> SqlValue:
    """NULL without a type gets the type of the value beside it."""
    if value.type is None and other.type is not None:
        return value.with_expression(null_of(other.type), other.type)
    return value


_CHECKED: Final[dict[str, Callable[..., pc.Expression]]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "/": pc.divide_checked,
}


def _whole_division(op: str, left: SqlValue, right: SqlValue) -> SqlValue:
    type_ = _typed(left)
    if type_.is_float:
        raise SqlUnsupported(
            f"computes {op} of {type_}, which is not done here. CAST to a DECIMAL."
        )
    if op == "DIV":
        wide = BIGINT
        quotient = pc.divide_checked(cast(left, wide).expression, cast(right, wide).expression)
        return left.with_expression(quotient, wide)
    minus_one = pa.scalar(-1, arrow_type(type_))
    one = pa.scalar(1, arrow_type(type_))
    # The rest of a division by -1 is that by 1. Only the quotient of the lowest number has no room.
    divisor = pc.if_else(right.expression == minus_one, one, right.expression)
    whole = pc.multiply(pc.divide_checked(left.expression, divisor), divisor)
    return left.with_expression(pc.subtract(left.expression, whole), type_)


def _adjusted(precision: int, scale: int) -> DataType:
    """A DECIMAL of that many digits, or of 38 with fewer digits after the point, as in Spark."""
    if precision > _MOST_DIGITS:
        whole = precision - scale
        scale = max(_MOST_DIGITS - whole, min(scale, _KEPT_SCALE))
        precision = _MOST_DIGITS
    return DataType(root=TypeRoot.DECIMAL, precision=precision, scale=scale)


def _wide(value: SqlValue, scale: int, digits: int = _WIDEST) -> pc.Expression:
    """The DECIMAL in Arrow's widest decimals, with `scale` digits after the point."""
    type_ = _typed(value)
    needed = min(digits, type_.precision - type_.scale + scale)
    return value.expression.cast(pa.decimal256(needed, scale))


def _widest(value: SqlValue) -> pc.Expression:
    """The DECIMAL with room for a carry of its rounding."""
    return value.expression.cast(pa.decimal256(_WIDEST, _typed(value).scale))


def _fitted(expression: pc.Expression, type_: DataType) -> pc.Expression:
    """A wide decimal, rounded to the digits of a DECIMAL. It is an error if it does not fit."""
    rounded = pc.round(expression, ndigits=type_.scale, round_mode="half_towards_infinity")
    return rounded.cast(arrow_type(type_))


def _sum_of_decimals(
    left: SqlValue, right: SqlValue, add: Callable[..., pc.Expression]
) -> SqlValue:
    first = _typed(left)
    second = _typed(right)
    scale = max(first.scale, second.scale)
    whole = max(first.precision - first.scale, second.precision - second.scale)
    type_ = _adjusted(whole + scale + 1, scale)
    digits = _WIDEST - 1
    total = add(_wide(left, scale, digits), _wide(right, scale, digits))
    return left.with_expression(_fitted(total, type_), type_)


def _product_of_decimals(left: SqlValue, right: SqlValue) -> SqlValue:
    first = _typed(left)
    second = _typed(right)
    type_ = _adjusted(first.precision + second.precision + 1, first.scale + second.scale)
    product = pc.multiply(
        _wide(left, first.scale, _WIDEST - 1 - second.precision), _wide(right, second.scale)
    )
    return left.with_expression(_fitted(product, type_), type_)


def _quotient_of_decimals(left: SqlValue, right: SqlValue) -> SqlValue:
    first = _typed(left)
    second = _typed(right)
    scale = max(_KEPT_SCALE, first.scale + second.precision + 1)
    type_ = _adjusted(first.precision - first.scale + second.scale + scale, scale)
    # Arrow cuts a quotient off. One digit more than the type has is enough for its rounding.
    cut = _cut_quotient(left, right, type_.scale + 1)
    return left.with_expression(_fitted(cut, type_), type_)


def _cut_quotient(left: SqlValue, right: SqlValue, scale: int) -> pc.Expression:
    """The quotient, with at least `scale` digits after the point; the rest is cut off."""
    first = _typed(left)
    second = _typed(right)
    upper = max(first.scale, second.scale + scale)
    if first.precision - first.scale + upper + second.precision + 1 > _WIDEST:
        raise SqlUnsupported(
            f"divides {first} by {second}, which needs more than 76 digits. CAST one to fewer digits."
        )
    return pc.divide(_wide(left, upper), _wide(right, second.scale))


def _rest_of_decimals(left: SqlValue, right: SqlValue) -> SqlValue:
    first = _typed(left)
    second = _typed(right)
    scale = max(first.scale, second.scale)
    whole = min(first.precision - first.scale, second.precision - second.scale)
    type_ = _adjusted(whole + scale, scale)
    quotient = pc.trunc(_cut_quotient(left, right, 1)).cast(pa.decimal256(_MOST_DIGITS - 1, 0))
    product = pc.multiply(quotient, _wide(right, second.scale))
    wide = pa.decimal256(_WIDEST - 1, scale)
    rest = pc.subtract(left.expression.cast(wide), product.cast(wide))
    return left.with_expression(_fitted(rest, type_), type_)


def _whole_quotient(left: SqlValue, right: SqlValue) -> SqlValue:
    quotient = pc.trunc(_cut_quotient(left, right, 1)).cast(pa.int64())
    return left.with_expression(quotient, BIGINT)


_DECIMAL_RESULTS: Final[dict[str, Callable[[SqlValue, SqlValue], SqlValue]]] = {
    "+": lambda left, right: _sum_of_decimals(left, right, pc.add),
    "-": lambda left, right: _sum_of_decimals(left, right, pc.subtract),
    "*": _product_of_decimals,
    "/": _quotient_of_decimals,
    "%": _rest_of_decimals,
    "DIV": _whole_quotient,
}


def negated(value: SqlValue) -> SqlValue:
    """The number with the other sign."""
    type_ = value.type
    if type_ is None or not _is_number(type_):
        raise SqlMisfit(f"computes - of {value.shown}, whose type is {type_ or 'unknown'}.")
    negate = pc.negate if type_.root is TypeRoot.DECIMAL else pc.negate_checked
    return replace(value.with_expression(negate(value.expression), type_), shown=f"-{value.shown}")


# -- casts ----------------------------------------------------------------------------------------
def cast(value: SqlValue, type_: DataType) -> SqlValue:
    """The value in another type, as CAST of Spark converts it in ANSI mode."""
    if value.type is None:
        return value.with_expression(null_of(type_), type_)
    if arrow_type(value.type) == arrow_type(type_):
        return replace(value, type=type_.with_nullable(True))
    convert = _conversion(value.type, type_)
    if convert is None:
        raise SqlUnsupported(
            f"casts {value.shown} from {value.type} to {type_}, which is not done here."
        )
    return value.with_expression(convert(value.expression, value.type, type_), type_)


_Conversion = Callable[[pc.Expression, DataType, DataType], pc.Expression]


def _conversion(old: DataType, new: DataType) -> _Conversion | None:
    """What converts values of one type to another; None if that is not done here."""
    if old.is_string:
        return _OF_TEXT.get(new.root)
    if new.is_string:
        return _text_conversion(old)
    if old.root is TypeRoot.BOOLEAN and _is_number(new):
        return lambda value, _, wanted: value.cast(pa.int32()).cast(arrow_type(wanted))
    if new.root is TypeRoot.BOOLEAN and _is_number(old):
        return lambda value, was, _: value != pc.scalar(pa.scalar(0, arrow_type(was)))
    if _is_number(old) and _is_number(new):
        return _number_conversion(old, new)
    is_moment = {old.root, new.root} <= {TypeRoot.DATE, TypeRoot.TIMESTAMP}
    if is_moment and old.precision <= 6 and new.precision <= 6:
        return _moment
    if old.root is new.root and old.is_timestamp and new.precision >= old.precision:
        return lambda value, _, wanted: value.cast(arrow_type(wanted))
    if old.root is new.root is TypeRoot.TIMESTAMP_LTZ and old.precision <= 6:
        return _moment
    return None


def _moment(value: pc.Expression, old: DataType, new: DataType) -> pc.Expression:
    """A DATE or TIMESTAMP as another one. Digits that the new type does not have are cut off."""
    wanted = arrow_type(new)
    if old.is_timestamp and new.is_timestamp and old.precision > new.precision:
        value = pc.floor_temporal(value, unit="millisecond")
    return value.cast(wanted)


def _number_conversion(old: DataType, new: DataType) -> _Conversion:
    if new.root is TypeRoot.DECIMAL:
        return _float_to_decimal if old.is_float else _to_decimal
    if old.root is TypeRoot.DECIMAL:
        return _of_decimal
    if old.is_float and new.root in _INTEGERS:
        return lambda value, _, wanted: pc.trunc(value).cast(arrow_type(wanted))
    if new.is_float:
        return lambda value, _, wanted: value.cast(arrow_type(wanted), safe=False)
    return lambda value, _, wanted: value.cast(arrow_type(wanted))


def _to_decimal(value: pc.Expression, old: DataType, new: DataType) -> pc.Expression:
    scale = old.scale if old.root is TypeRoot.DECIMAL else 0
    whole = old.precision - scale if old.root is TypeRoot.DECIMAL else _DIGITS[old.root]
    if scale <= new.scale and whole <= new.precision - new.scale:
        return value.cast(pa.decimal256(_WIDEST, new.scale)).cast(arrow_type(new))
    return _fitted(value.cast(pa.decimal256(_WIDEST, max(scale, new.scale))), new)


def _float_to_decimal(value: pc.Expression, old: DataType, new: DataType) -> pc.Expression:
    # NaN and infinities become NULL, as in Spark.
    nothing = pa.scalar(None, arrow_type(old))
    return _fitted(_digits_of_float(pc.if_else(pc.is_finite(value), value, nothing)), new)


def _digits_of_float(value: pc.Expression) -> pc.Expression:
    """A FLOAT or DOUBLE as a wide decimal of the shortest digits that mean it, as in Java."""
    is_tiny = pc.abs(value) < pc.scalar(10.0 ** -(_FRACTION // 2))
    text = pc.if_else(is_tiny, pa.scalar("0"), value.cast(pa.string()))
    return text.cast(pa.decimal256(_WIDEST, _FRACTION))


def _of_decimal(value: pc.Expression, old: DataType, new: DataType) -> pc.Expression:
    if new.is_float:
        # By its text, because Arrow's own conversion is not exact to the last bit.
        return value.cast(pa.string()).cast(arrow_type(new))
    return pc.trunc(value).cast(arrow_type(new))


def _text_conversion(old: DataType) -> _Conversion | None:
    """What writes values of a type as texts; None if Arrow writes them in another way than
    Spark.
    """
    if old.root is TypeRoot.DECIMAL and old.scale > _MOST_PLAIN:
        return None
    if old.root is TypeRoot.TIMESTAMP and old.precision <= 6:
        return _text_of_moment
    plain = (*_INTEGERS, TypeRoot.BOOLEAN, TypeRoot.DATE, TypeRoot.DECIMAL)
    return (lambda value, _, __: value.cast(pa.string())) if old.root in plain else None


def _text_of_moment(value: pc.Expression, _: DataType, __: DataType) -> pc.Expression:
    text = value.cast(pa.string())
    text = pc.replace_substring_regex(text, pattern=r"(\.[0-9]*?)0+$", replacement=r"\1")
    return pc.replace_substring_regex(text, pattern=r"\.$", replacement="")


def _checked_text(value: pc.Expression, pattern: str) -> pc.Expression:
    """The text without blanks around it. A text that does not have the form becomes one that Arrow
    refuses to read.
    """
    text = pc.utf8_trim_whitespace(value)
    refused = pc.binary_join_element_wise(pc.scalar("cannot be read: "), text, pc.scalar(""))
    return pc.if_else(pc.match_substring_regex(text, pattern=pattern), text, refused)


def _without_plus(text: pc.Expression) -> pc.Expression:
    return pc.replace_substring_regex(text, pattern=r"^\+", replacement="")


def _integer_of_text(value: pc.Expression, _: DataType, new: DataType) -> pc.Expression:
    return _without_plus(_checked_text(value, _INTEGER)).cast(arrow_type(new))


def _float_of_text(value: pc.Expression, _: DataType, new: DataType) -> pc.Expression:
    text = pc.utf8_lower(_without_plus(_checked_text(value, _REAL)))
    return text.cast(arrow_type(new))


def _decimal_of_text(value: pc.Expression, _: DataType, new: DataType) -> pc.Expression:
    text = _without_plus(_checked_text(value, _DECIMAL))
    return _fitted(text.cast(pa.decimal256(_WIDEST, _MOST_DIGITS)), new)


def _boolean_of_text(value: pc.Expression, _: DataType, __: DataType) -> pc.Expression:
    text = pc.utf8_lower(pc.utf8_trim_whitespace(value))
    word = pc.if_else(text.isin(pa.array(_FALSE)), pa.scalar("false"), text)
    return pc.if_else(text.isin(pa.array(_TRUE)), pa.scalar("true"), word).cast(pa.bool_())


def _day_of_text(value: pc.Expression, _: DataType, __: DataType) -> pc.Expression:
    return _checked_text(value, _DAY).cast(pa.date32())


def _moment_of_text(value: pc.Expression, _: DataType, new: DataType) -> pc.Expression:
    return _checked_text(value, _MOMENT).cast(pa.timestamp("us")).cast(arrow_type(new))


_OF_TEXT: Final[dict[TypeRoot, _Conversion]] = {
    **dict.fromkeys(_INTEGERS, _integer_of_text),
    TypeRoot.FLOAT: _float_of_text,
    TypeRoot.DOUBLE: _float_of_text,
    TypeRoot.DECIMAL: _decimal_of_text,
    TypeRoot.BOOLEAN: _boolean_of_text,
    TypeRoot.DATE: _day_of_text,
    TypeRoot.TIMESTAMP: _moment_of_text,
}


def assigned(value: SqlValue, type_: DataType, column: str) -> pc.Expression:
    """The value as it is stored in a column. As in Spark, numbers become numbers, and moments
    become moments. A text is not read as a number, except by a CAST.
    """
    old = value.type
    if old is None:
        return null_of(type_)
    is_moment = type_.is_timestamp or type_.root in (TypeRoot.DATE, TypeRoot.TIME)
    if value.is_quoted and value.text is not None and is_moment:
        return read_literal(value, type_, column).expression
    roots = {old.root, type_.root}
    fits = (
        (_is_number(old) and _is_number(type_))
        or (old.is_binary and type_.is_binary)
        or (type_.is_string and not old.is_nested)
        or arrow_type(old) == arrow_type(type_)
        or (not old.is_nested and (len(roots) == 1 or roots == {TypeRoot.DATE, TypeRoot.TIMESTAMP}))
    )
    if not fits:
        raise SqlMisfit(
            f"gives {column} the value {value.shown}, whose type is {old}; the column's is {type_}. CAST it."
        )
    if old.is_binary:
        return value.expression
    return cast(value, type_).expression


# -- branches -------------------------------------------------------------------------------------
def chosen(
    branches: Sequence[tuple[pc.Expression, SqlValue]], otherwise: SqlValue, place: str
) -> SqlValue:
    """The value of the first branch whose condition is true, else the last one."""
    values = [*(value for _, value in branches), otherwise]
    type_ = _common_type(values, place)
    if type_ is None:
        return otherwise
    beside = next(value.shown for value in values if value.type is not None)
    result = adapted(otherwise, type_, beside).expression
    for condition, value in reversed(branches):
        result = pc.if_else(is_true(condition), adapted(value, type_, beside).expression, result)
    return SqlValue(
        expression=result, type=type_.with_nullable(True), shown=place.removeprefix("in ")
    )


# -- functions ------------------------------------------------------------------------------------
def _text_argument(value: SqlValue, name: str) -> pc.Expression:
    if value.type is None:
        return null_of(STRING)
    if not value.type.is_string:
        raise SqlMisfit(f"calls {name} of {value.shown}, whose type is {value.type}. Give a text.")
    return value.expression


def _of_text(
    name: str, compute: Callable[[pc.Expression], pc.Expression]
) -> Callable[..., SqlValue]:
    def call(value: SqlValue) -> SqlValue:
        return SqlValue(
            expression=compute(_text_argument(value, name)),
            type=STRING,
            shown=f"{name}({value.shown})",
        )

    return call


def joined(*values: SqlValue) -> SqlValue:
    """The texts, one after the other; NULL if one is NULL. Other values are written as texts."""
    texts = [cast(value, STRING).expression for value in values]
    joined_texts = pc.binary_join_element_wise(*texts, pa.scalar(""))
    shown = " || ".join(value.shown for value in values)
    return SqlValue(expression=joined_texts, type=STRING, shown=shown)


def _length(value: SqlValue) -> SqlValue:
    if value.type is not None and value.type.is_binary:
        length = pc.binary_length(value.expression)
    else:
        length = pc.utf8_length(_text_argument(value, "LENGTH"))
    return SqlValue(expression=length.cast(pa.int32()), type=INT, shown=f"LENGTH({value.shown})")


def _number_argument(value: SqlValue, name: str) -> DataType:
    if value.type is None or not _is_number(value.type):
        raise SqlMisfit(
            f"calls {name} of {value.shown}, whose type is {value.type or 'unknown'}. Give a number."
        )
    return value.type


def _absolute(value: SqlValue) -> SqlValue:
    type_ = _number_argument(value, "ABS")
    absolute = pc.abs if type_.root is TypeRoot.DECIMAL else pc.abs_checked
    return value.with_expression(absolute(value.expression), type_)


def _whole_part(name: str, compute: Callable[..., pc.Expression]) -> Callable[..., SqlValue]:
    def call(value: SqlValue) -> SqlValue:
        type_ = _number_argument(value, name)
        if type_.root in _INTEGERS:
            return cast(value, BIGINT)
        if type_.is_float:
            floats = compute(value.expression.cast(pa.float64()))
            return value.with_expression(floats.cast(pa.int64()), BIGINT)
        whole = DataType(
            root=TypeRoot.DECIMAL,
            precision=min(type_.precision - type_.scale + 1, _MOST_DIGITS),
        )
        return value.with_expression(compute(_widest(value)).cast(arrow_type(whole)), whole)

    return call


def _rounded(value: SqlValue, digits: SqlValue | None = None) -> SqlValue:
    type_ = _number_argument(value, "ROUND")
    places = 0
    if digits is not None:
        if digits.text is None or digits.is_quoted or not digits.text.lstrip("-").isdigit():
            raise SqlUnsupported(f"calls ROUND with {digits.shown} digits. Give a whole number.")
        places = int(digits.text)
    if type_.root is TypeRoot.DECIMAL:
        return _rounded_decimal(value, type_, places)
    if places < 0:
        raise SqlUnsupported(f"calls ROUND with {places} digits of {type_}. CAST it to a DECIMAL.")
    if type_.root in _INTEGERS:
        return value
    places = min(places, _FRACTION // 2)
    is_whole = (pc.abs(value.expression) >= pc.scalar(_WHOLE_FLOATS)) | pc.is_nan(value.expression)
    narrow = pc.if_else(is_whole, pa.scalar(0.0, arrow_type(type_)), value.expression)
    digits_of = pc.round(
        _digits_of_float(narrow), ndigits=places, round_mode="half_towards_infinity"
    )
    rounded = digits_of.cast(pa.string()).cast(arrow_type(type_))
    return value.with_expression(pc.if_else(is_whole, value.expression, rounded), type_)


def _rounded_decimal(value: SqlValue, type_: DataType, places: int) -> SqlValue:
    if places < 0:
        raise SqlUnsupported(f"calls ROUND with {places} digits, which is not done here.")
    scale = min(places, type_.scale)
    result = DataType(
        root=TypeRoot.DECIMAL,
        precision=min(type_.precision - type_.scale + scale + 1, _MOST_DIGITS),
        scale=scale,
    )
    return value.with_expression(_fitted(_widest(value), result), result)


def _part_of_day(name: str, compute: Callable[..., pc.Expression]) -> Callable[..., SqlValue]:
    def call(value: SqlValue) -> SqlValue:
        if value.type is None or value.type.root not in (TypeRoot.DATE, TypeRoot.TIMESTAMP):
            raise SqlMisfit(
                f"calls {name} of {value.shown}, whose type is {value.type or 'unknown'}. Give a DATE or TIMESTAMP."
            )
        return value.with_expression(compute(value.expression).cast(pa.int32()), INT)

    return call


def _upper(text: pc.Expression) -> pc.Expression:
    # Java has two letters for the capital of this one.
    return pc.utf8_upper(pc.replace_substring(text, pattern="ß", replacement="SS"))


_UPPER: Final = _of_text("UPPER", _upper)
_LOWER: Final = _of_text("LOWER", pc.utf8_lower)
_CEIL: Final = _whole_part("CEIL", pc.ceil)
FUNCTIONS: Final[dict[str, tuple[int, int, Callable[..., SqlValue]]]] = {
    "ABS": (1, 1, _absolute),
    "CEIL": (1, 1, _CEIL),
    "CEILING": (1, 1, _CEIL),
    "CHAR_LENGTH": (1, 1, _length),
    "CONCAT": (1, 255, joined),
    "DAY": (1, 1, _part_of_day("DAY", pc.day)),
    "FLOOR": (1, 1, _whole_part("FLOOR", pc.floor)),
    "LCASE": (1, 1, _LOWER),
    "LENGTH": (1, 1, _length),
    "LOWER": (1, 1, _LOWER),
    "LTRIM": (1, 1, _of_text("LTRIM", lambda text: pc.utf8_ltrim(text, characters=" "))),
    "MONTH": (1, 1, _part_of_day("MONTH", pc.month)),
    "ROUND": (1, 2, _rounded),
    "RTRIM": (1, 1, _of_text("RTRIM", lambda text: pc.utf8_rtrim(text, characters=" "))),
    "TRIM": (1, 1, _of_text("TRIM", lambda text: pc.utf8_trim(text, characters=" "))),
    "UCASE": (1, 1, _UPPER),
    "UPPER": (1, 1, _UPPER),
    "YEAR": (1, 1, _part_of_day("YEAR", pc.year)),
}
"""The functions whose arguments are all computed, with the fewest and most arguments."""


def terms_of(condition: SqlValue) -> list[SqlValue]:
    """What a condition joins by AND; the condition itself if it is no AND."""
    if not condition.terms:
        return [condition]
    return [inner for term in condition.terms for inner in terms_of(term)]


def column_of(rows: pa.Table, expression: pc.Expression) -> pa.ChunkedArray:
    """The value of each row. Raises `pyarrow.ArrowException` for a value that cannot be
    computed.
    """
    from pyarrow import acero  # imports pandas

    if not rows.num_columns:  # a literal needs rows, too
        rows = rows.append_column("", pa.nulls(rows.num_rows))
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(rows))
    project = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["value"]))
    computed = acero.Declaration.from_sequence([source, project])
    column: pa.ChunkedArray = computed.to_table(use_threads=False).column(0)
    return column
