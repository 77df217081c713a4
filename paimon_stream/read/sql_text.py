"""Parses SQL text of one value: literals, columns, operators, CASE, CAST and some functions. The
operations and their types are those of `sql_values.py`.

An operation that can fail is computed only for the rows for which SQL computes it: the parser knows
the condition under which the branch that it parses is chosen (`_guard`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import CorruptMetadata, UnsupportedFeature
from paimon_stream.format.types import DataType, TypeRoot, parse_type
from paimon_stream.read.sql_values import (
    BIGINT,
    BOOLEAN,
    COMPARISONS,
    DATE,
    DOUBLE,
    FUNCTIONS,
    INT,
    STRING,
    TIMESTAMP,
    SqlMisfit,
    SqlUnsupported,
    SqlValue,
    arithmetic,
    boolean,
    cast,
    chosen,
    compare,
    is_in,
    is_true,
    joined,
    literal,
    negated,
    null_of,
    read_literal,
)
from paimon_stream.table.partition_value import partition_value

SYNTAX: Final = (
    "Write COLUMN OP VALUE, joined by AND, OR and NOT. OP is =, <=>, !=, <, <=, >, >=, IN, BETWEEN, LIKE, IS NULL or "
    "IS NOT NULL. A text is in single quotes, a column with other characters than letters, digits and _ in backticks."
)
_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<moment>[0-9]{4}-[0-9]{2}-[0-9]{2}
          (?:T[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?:Z|[+-][0-9]{2}:[0-9]{2})?)?(?![\w.])
        |[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?![\w.:]))
      |(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?:BD|[LDldSYsyFf])?(?!\w))
      |(?P<bytes>[xX]'(?:[0-9a-fA-F]{2})*')
      |(?P<text>'(?:[^']|'')*')
      |(?P<quoted>`[^`]+`)
      |(?P<word>[^\W\d]\w*)
      |(?P<sign><=>|<=|>=|<>|!=|==|\|\||[-+*/%=<>(),.])
    )""",
    re.VERBOSE,
)
_NOT_UNICODE: Final = re.compile("[\ud800-\udfff]")
"""What Python puts in the place of bytes that are not UTF-8."""
_DEEPEST: Final = 60
"""How deep parentheses, calls and NOTs may be inside one another."""
_MOST_INT: Final = 2**31
_MOST_BIGINT: Final = 2**63
_NOT_HERE: Final = {"SELECT", "EXISTS", "WITH"}
_FLOATS: Final = {"NAN", "INF", "INFINITY"}
_MADE_ANEW: Final = {
    "CURRENT_DATE",
    "CURRENT_TIMESTAMP",
    "CURRENT_TIME",
    "NOW",
    "RAND",
    "RANDN",
    "RANDOM",
    "UUID",
}
_LAZY: Final = ("COALESCE", "IF", "IFNULL", "NULLIF", "NVL")
_SUBSTRINGS: Final = ("SUBSTR", "SUBSTRING")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlColumn:
    """A column that a text may name.

    Attributes:
        name: the name of the column among the rows for which the value is computed.
        type: its type.
    """

    name: str
    type: DataType


Columns = Mapping[str, Mapping[str, SqlColumn]]
"""The columns that a text may name, by alias and name. The alias `""` has those without an alias."""


@dataclass(frozen=True, slots=True)
class _SqlToken:
    kind: str
    text: str
    start: int


def parsed(text: str, columns: Columns) -> SqlValue:
    """The value that the text describes. Raises `SqlMisfit`."""
    if _NOT_UNICODE.search(text):
        raise SqlMisfit("has bytes that are not UTF-8.")
    parser = _Parser(text, columns)
    value = parser.value()
    parser.expect_end()
    return value


class _Parser:
    """Parses one text from left to right."""

    def __init__(self, text: str, columns: Columns) -> None:
        self._text = text
        self._columns = columns
        self._position = 0
        self._depth = 0
        self._guard: pc.Expression | None = None

    # -- tokens ----------------------------------------------------------------------------------
    def _peek(self) -> _SqlToken:
        match = _TOKEN.match(self._text, self._position)
        if match is None or match.lastgroup is None:
            return _SqlToken("end", "", len(self._text))
        return _SqlToken(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup))

    def _take(self) -> _SqlToken:
        token = self._peek()
        self._position = token.start + len(token.text)
        return token

    def _takes(self, *words: str) -> bool:
        """Whether these words or signs come next. Takes them then."""
        before = self._position
        for word in words:
            token = self._take()
            if token.kind not in ("word", "sign") or token.text.upper() != word:
                self._position = before
                return False
        return True

    def _expect(self, *words: str) -> None:
        if not self._takes(*words):
            raise self._not_understood()

    def expect_end(self) -> None:
        """Refuses a text that goes on."""
        if self._text[self._position :].strip():
            raise self._not_understood()

    def _not_understood(self, position: int | None = None) -> SqlMisfit:
        rest = self._text[self._position if position is None else position :].strip()
        if not rest:
            return SqlMisfit(f"ends too early, as {self._text!r}. {SYNTAX}")
        return SqlMisfit(f"is not understood from {rest!r} on. {SYNTAX}")

    # -- guards ----------------------------------------------------------------------------------
    @contextmanager
    def _only_where(self, condition: pc.Expression) -> Iterator[None]:
        """What is parsed meanwhile is computed only for rows for which the condition is true."""
        outer = self._guard
        self._guard = condition if outer is None else outer & condition
        try:
            yield
        finally:
            self._guard = outer

    def _guarded(self, value: SqlValue) -> SqlValue:
        """The operand of an operation that can fail. A literal needs no guard beside another
        operand that has it.
        """
        return value.where(self._guard)

    # -- operators, from the weakest -------------------------------------------------------------
    def value(self) -> SqlValue:
        """The next value."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise SqlUnsupported(f"is nested more than {_DEEPEST} deep.")
        value = self._disjunction()
        self._depth -= 1
        return value

    def _disjunction(self) -> SqlValue:
        value = self._conjunction()
        while self._takes("OR"):
            left = boolean(value, "before OR")
            with self._only_where(pc.coalesce(~left, pc.scalar(True))):
                right = boolean(self._conjunction(), "after OR")
            value = self._condition(left | right, "OR")
        return value

    def _conjunction(self) -> SqlValue:
        value = self._negation()
        terms = [value]
        while self._takes("AND"):
            left = boolean(value, "before AND")
            with self._only_where(pc.coalesce(left, pc.scalar(True))):
                terms.append(self._negation())
            right = boolean(terms[-1], "after AND")
            value = self._condition(left & right, "AND")
        return value if len(terms) == 1 else replace(value, terms=tuple(terms))

    def _negation(self) -> SqlValue:
        count = 0
        while self._takes("NOT"):
            count += 1
        value = self._predicate()
        if not count:
            return value
        condition = boolean(value, "after NOT")
        return self._condition(~condition if count % 2 else condition, "NOT")

    def _condition(self, expression: pc.Expression, shown: str) -> SqlValue:
        return SqlValue(expression=expression, type=BOOLEAN, shown=shown)

    def _predicate(self) -> SqlValue:
        value = self._sum()
        while True:
            token = self._peek()
            if token.kind == "sign" and token.text in COMPARISONS:
                self._take()
                other = self._guarded_text(self._sum(), value)
                value = self._compared(token.text, self._guarded_text(value, other), other)
            elif self._takes("IS"):
                value = self._is(value)
            else:
                is_negated = self._takes("NOT")
                test = self._test(value)
                if test is None:
                    if is_negated:
                        raise self._not_understood()
                    return value
                value = self._condition(~test if is_negated else test, "a condition")

    def _compared(self, op: str, left: SqlValue, right: SqlValue) -> SqlValue:
        compared = self._condition(compare(op, left, right), op)
        is_equality = op in ("=", "==", "<=>")
        return replace(compared, equality=(op, left, right)) if is_equality else compared

    def _guarded_text(self, value: SqlValue, other: SqlValue) -> SqlValue:
        """The operand of a comparison, guarded if the comparison has to convert a text."""
        types = (value.type, other.type)
        is_converted = (
            value.text is None
            and None not in types
            and any(type_ is not None and type_.is_string for type_ in types)
            and not all(type_ is not None and type_.is_string for type_ in types)
        )
        return self._guarded(value) if is_converted else value

    def _test(self, value: SqlValue) -> pc.Expression | None:
        """IN, BETWEEN or LIKE; None if something else follows."""
        if self._takes("IN"):
            self._expect("(")
            self._refuse_query()
            return is_in(value, self._arguments())
        if self._takes("BETWEEN"):
            low = self._sum()
            self._expect("AND")
            high = self._sum()
            return compare(">=", value, low) & compare("<=", value, high)
        if self._takes("LIKE"):
            token = self._take()
            if token.kind != "text":
                raise self._not_understood(token.start)
            if value.type is None or not value.type.is_string:
                raise SqlMisfit(f"has {value.shown} before LIKE, whose type is {value.type}.")
            return pc.match_substring_regex(value.expression, pattern=_like(_unquoted(token.text)))
        if self._peek().text.upper() in ("RLIKE", "ILIKE", "REGEXP", "SIMILAR"):
            raise SqlUnsupported(f"has {self._peek().text.upper()}, which is not computed here.")
        return None

    def _is(self, value: SqlValue) -> SqlValue:
        is_negated = self._takes("NOT")
        if self._takes("NULL"):
            test = value.expression.is_null() if value.type is not None else pc.scalar(True)
            if is_negated:
                test = value.expression.is_valid() if value.type is not None else pc.scalar(False)
            return self._condition(test, "IS NULL")
        if self._takes("DISTINCT", "FROM"):
            test = ~compare("<=>", value, self._sum())
        elif self._takes("TRUE"):
            test = is_true(boolean(value, "before IS TRUE"))
        elif self._takes("FALSE"):
            test = is_true(~boolean(value, "before IS FALSE"))
        else:
            raise self._not_understood()
        return self._condition(~test if is_negated else test, "IS")

    def _sum(self) -> SqlValue:
        value = self._product()
        while True:
            if self._takes("||"):
                value = joined(self._guarded(value), self._product())
                continue
            op = next((op for op in ("+", "-") if self._takes(op)), None)
            if op is None:
                return value
            value = self._computed(op, value, self._product())

    def _product(self) -> SqlValue:
        value = self._sign()
        while True:
            op = next((op for op in ("*", "/", "%", "DIV") if self._takes(op)), None)
            if op is None:
                return value
            value = self._computed(op, value, self._sign())

    def _computed(self, op: str, left: SqlValue, right: SqlValue) -> SqlValue:
        if left.text is None or right.text is not None:
            return arithmetic(op, self._unless_literal(left), self._unless_literal(right))
        return arithmetic(op, left, self._guarded(right))

    def _unless_literal(self, value: SqlValue) -> SqlValue:
        """The operand with its guard. A literal keeps its digits, from which the result's type
        follows, unless both operands are literals.
        """
        return value if value.text is not None else self._guarded(value)

    def _sign(self) -> SqlValue:
        is_negative = False
        while True:
            if self._takes("-"):
                is_negative = not is_negative
                token = self._peek()
                if is_negative and token.kind == "number":
                    self._take()
                    return _number(f"-{token.text}")
            elif not self._takes("+"):
                break
        value = self._primary()
        if not is_negative:
            return value
        if value.text is not None and value.text.upper() in _FLOATS:
            return literal(-float(value.text), DOUBLE, f"-{value.text}")
        return negated(self._guarded(value))

    # -- single values ---------------------------------------------------------------------------
    def _primary(self) -> SqlValue:
        token = self._take()
        match token.kind:
            case "number":
                return _number(token.text)
            case "text":
                text = _unquoted(token.text)
                return literal(text, STRING, text, is_quoted=True)
            case "moment":
                return _moment(token.text)
            case "bytes":
                return SqlValue(
                    expression=pc.scalar(bytes.fromhex(token.text[2:-1])),
                    type=DataType(root=TypeRoot.VARBINARY, precision=2**31 - 1),
                    shown=token.text,
                )
            case "quoted":
                return self._column(token.text.strip("`"))
            case "word":
                return self._word(token)
        if token.text == "(":
            self._refuse_query()
            value = self.value()
            self._expect(")")
            return value
        raise self._not_understood(token.start)

    def _refuse_query(self) -> None:
        if self._peek().text.upper() in _NOT_HERE and self._peek().kind == "word":
            raise SqlUnsupported(
                f"has a subquery ({self._peek().text.upper()}), which is not computed here. Compute it first, and give "
                "its values."
            )

    def _word(self, token: _SqlToken) -> SqlValue:
        word = token.text.upper()
        next_token = self._peek()
        if word == "CASE" and next_token.text not in COMPARISONS:
            return self._case()
        if word in ("TRUE", "FALSE"):
            return literal(word == "TRUE", BOOLEAN, token.text)
        if word == "NULL":
            return SqlValue(expression=pc.scalar(pa.scalar(None)), type=None, shown="NULL")
        if next_token.kind == "text" and word in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
            return self._typed_literal(DATE if word == "DATE" else TIMESTAMP)
        if word == "INTERVAL" and next_token.kind in ("text", "number"):
            raise SqlUnsupported("has an INTERVAL, which is not computed here.")
        if next_token.text == "(" and next_token.kind == "sign":
            self._take()
            return self._call(word)
        is_known = token.text in self._columns.get("", {}) or next_token.text == "."
        if not is_known and word in _FLOATS:
            return literal(float(token.text), DOUBLE, token.text)
        if not is_known and word in _MADE_ANEW:
            raise _made_anew(word)
        return self._column(token.text)

    def _typed_literal(self, type_: DataType) -> SqlValue:
        text = _unquoted(self._take().text)
        value = literal(text, STRING, text, is_quoted=True)
        typed = read_literal(value, type_, type_.root.name)
        return SqlValue(expression=typed.expression, type=type_, shown=typed.shown)

    def _column(self, name: str) -> SqlValue:
        """A column, which may have an alias before it, and a member of a ROW after it."""
        scope = self._columns.get("", {})
        alias = ""
        if name in self._columns and name not in scope and self._takes("."):
            alias = name
            scope = self._columns[name]
            name = self._name()
        column = scope.get(name)
        if column is None:
            raise self._unknown(alias, name)
        shown = f"{alias}.{name}" if alias else name
        value = SqlValue(
            expression=pc.field(column.name), type=column.type.with_nullable(True), shown=shown
        )
        while value.type is not None and value.type.root is TypeRoot.ROW and self._takes("."):
            member = self._name()
            names = [field.name for field in value.type.fields]
            if member not in names:
                raise SqlMisfit(
                    f"names a member {member!r} of {value.shown}. It has {', '.join(names)}."
                )
            place = names.index(member)
            value = SqlValue(
                expression=pc.struct_field(value.expression, indices=[place]),
                type=value.type.fields[place].type.with_nullable(True),
                shown=f"{value.shown}.{member}",
            )
        return value

    def _name(self) -> str:
        token = self._take()
        if token.kind not in ("word", "quoted"):
            raise self._not_understood(token.start)
        return token.text.strip("`")

    def _unknown(self, alias: str, name: str) -> SqlMisfit:
        owners = [other for other, columns in self._columns.items() if other and name in columns]
        if not alias and owners:
            choices = " or ".join(f"{owner}.{name}" for owner in owners)
            return SqlMisfit(f"names a column {name!r} without an alias. Write {choices}.")
        scope = self._columns.get(alias, {}) if alias or not owners else {}
        names = list(scope) or [
            f"{other}.{each}" for other, columns in self._columns.items() for each in columns
        ]
        shown = f"{alias}.{name}" if alias else name
        return SqlMisfit(
            f"names a column {shown!r}. The columns: {', '.join(names)}. A text is in single quotes."
        )

    # -- CASE and calls --------------------------------------------------------------------------
    def _case(self) -> SqlValue:
        subject = None if self._takes("WHEN") else self.value()
        if subject is not None:
            self._expect("WHEN")
        branches: list[tuple[pc.Expression, SqlValue]] = []
        outer = self._guard
        while True:
            if subject is None:
                condition = boolean(self.value(), "after WHEN")
            else:
                condition = compare("=", subject, self.value())
            self._expect("THEN")
            with self._only_where(is_true(condition)):
                branches.append((condition, self._guarded(self.value())))
            not_yet = ~is_true(condition)
            self._guard = not_yet if self._guard is None else self._guard & not_yet
            if not self._takes("WHEN"):
                break
        otherwise = SqlValue(expression=pc.scalar(pa.scalar(None)), type=None, shown="NULL")
        if self._takes("ELSE"):
            otherwise = self._kept_literal(self.value())
        self._guard = outer
        self._expect("END")
        return chosen([(condition, value) for condition, value in branches], otherwise, "in CASE")

    def _kept_literal(self, value: SqlValue) -> SqlValue:
        return value if value.text is not None else self._guarded(value)

    def _arguments(self) -> list[SqlValue]:
        """The values up to the closing parenthesis."""
        values: list[SqlValue] = []
        if self._takes(")"):
            return values
        values.append(self.value())
        while self._takes(","):
            values.append(self.value())
        self._expect(")")
        return values

    def _call(self, name: str) -> SqlValue:
        if name in _NOT_HERE:
            raise SqlUnsupported(f"has a subquery ({name}), which is not computed here.")
        if name in _MADE_ANEW:
            raise _made_anew(name)
        if name == "CAST":
            return self._cast()
        if name in ("COALESCE", "NVL", "IFNULL"):
            return self._first_valid()
        if name == "IF":
            return self._if()
        if name == "NULLIF":
            first, second = self._exactly(name, 2)
            return chosen([(compare("=", first, second), _nothing())], first, "in NULLIF")
        if name in _SUBSTRINGS:
            return self._substring()
        if name not in FUNCTIONS:
            names = sorted((*FUNCTIONS, *_LAZY, *_SUBSTRINGS, "CAST"))
            raise SqlUnsupported(
                f"calls {name}, which is not computed here. The functions: {', '.join(names)}."
            )
        fewest, most, function = FUNCTIONS[name]
        arguments = self._arguments()
        if not fewest <= len(arguments) <= most:
            raise SqlMisfit(f"calls {name} with {len(arguments)} values.")
        return function(*map(self._kept_literal, arguments))

    def _exactly(self, name: str, count: int) -> Sequence[SqlValue]:
        arguments = self._arguments()
        if len(arguments) != count:
            raise SqlMisfit(f"calls {name} with {len(arguments)} values. It takes {count}.")
        return arguments

    def _cast(self) -> SqlValue:
        value = self.value()
        self._expect("AS")
        start = self._position
        depth = 0
        while True:
            token = self._take()
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            if depth < 0 or token.kind == "end":
                break
        if token.kind == "end":
            raise self._not_understood(start)
        text = self._text[start : token.start].strip()
        try:
            type_ = parse_type(
                {"TIMESTAMP_NTZ": "TIMESTAMP(6)", "LONG": "BIGINT"}.get(text.upper(), text)
            )
        except (CorruptMetadata, UnsupportedFeature):
            raise SqlMisfit(f"casts {value.shown} to {text!r}, which is not a type.") from None
        return cast(self._guarded(value), type_)

    def _first_valid(self) -> SqlValue:
        values: list[SqlValue] = []
        outer = self._guard
        while True:
            value = self._kept_literal(self.value())
            values.append(value)
            if value.type is not None:
                is_null = value.expression.is_null()
                self._guard = is_null if self._guard is None else self._guard & is_null
            if not self._takes(","):
                break
        self._guard = outer
        self._expect(")")
        branches = [
            (value.expression.is_valid(), value) for value in values[:-1] if value.type is not None
        ]
        return chosen(branches, values[-1], "in COALESCE")

    def _if(self) -> SqlValue:
        condition = boolean(self.value(), "in IF")
        self._expect(",")
        with self._only_where(is_true(condition)):
            first = self._kept_literal(self.value())
        self._expect(",")
        with self._only_where(~is_true(condition)):
            second = self._kept_literal(self.value())
        self._expect(")")
        return chosen([(condition, first)], second, "in IF")

    def _substring(self) -> SqlValue:
        arguments = self._arguments()
        numbers = [
            int(each.text)
            for each in arguments[1:]
            if each.text is not None and not each.is_quoted and each.text.isdigit()
        ]
        if len(arguments) not in (2, 3) or len(numbers) != len(arguments) - 1 or numbers[0] < 1:
            raise SqlUnsupported(
                "calls SUBSTRING with other values than a text, a first place from 1 on, and a length."
            )
        text = cast(self._guarded(arguments[0]), STRING).expression
        start = numbers[0] - 1
        stop = start + numbers[1] if len(numbers) == 2 else None
        part = pc.utf8_slice_codeunits(text, start=start, stop=stop)
        return SqlValue(expression=part, type=STRING, shown="SUBSTRING")


def _nothing() -> SqlValue:
    return SqlValue(expression=null_of(BOOLEAN), type=None, shown="NULL")


def _made_anew(name: str) -> SqlUnsupported:
    return SqlUnsupported(
        f"calls {name}, which has another value each time, so a repeated operation would do something else. Give the "
        "value as a literal."
    )


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _number(text: str) -> SqlValue:
    """A number as Spark types it: an INT, BIGINT or DECIMAL that holds it, or a DOUBLE if it has an
    exponent.
    """
    suffix = text.lstrip("-+0123456789.eE").upper()
    digits = text[: len(text) - len(suffix)]
    if suffix in ("S", "Y", "F"):
        raise SqlUnsupported(f"has the number {text} with a suffix. Write CAST({digits} AS …).")
    if suffix == "D" or (not suffix and "e" in digits.lower()):
        return literal(float(digits), DOUBLE, digits)
    number = Decimal(digits)
    if suffix == "BD" or "." in digits or not -_MOST_BIGINT <= number < _MOST_BIGINT:
        _, places, exponent = number.as_tuple()
        scale = max(0, -int(exponent))
        precision = max(len(places), scale)
        if precision > 38:
            raise SqlMisfit(f"has the number {text}, which has more than 38 digits.")
        type_ = DataType(root=TypeRoot.DECIMAL, precision=precision, scale=scale)
        return literal(number, type_, digits)
    is_int = suffix != "L" and -_MOST_INT <= number < _MOST_INT
    return literal(int(number), INT if is_int else BIGINT, digits)


def _moment(text: str) -> SqlValue:
    """A date or a moment without quotes, as conditions may have it."""
    candidates = (
        DATE,
        TIMESTAMP,
        DataType(root=TypeRoot.TIMESTAMP_LTZ, precision=6),
        DataType(root=TypeRoot.TIME, precision=3),
    )
    for type_ in candidates:
        value = partition_value(type_, text)
        if value is not None:
            bare = literal(value, type_, text)
            return bare
    raise SqlMisfit(f"has {text}, which is not a date of the calendar or a time.")


def _like(pattern: str) -> str:
    """The regular expression of a pattern of LIKE, in which a backslash stands before a `%` or `_`
    that means itself.
    """
    parts = []
    characters = iter(pattern)
    for character in characters:
        if character == "%":
            parts.append(".*")
        elif character == "_":
            parts.append(".")
        elif character == "\\":
            parts.append(re.escape(next(characters, "\\")))
        else:
            parts.append(re.escape(character))
    return f"(?s)^{''.join(parts)}$"
