"""Takes a `pyarrow.compute.Expression` apart, and makes a shorter expression that keeps the same
rows.

An expression shows its parts only in the form in which Arrow pickles it. This form is a record
batch. Its columns are the literals. The metadata of its schema lists the functions, columns and
literals in the order in which they are visited. The form is internal to Arrow, so each result is
proved: an expression is built from the parts that were read. The parts are used only if Arrow says
that this expression equals the given one. They are not used either if Arrow cannot pickle the
expression.

Why the shorter expression keeps the same rows:

- Only ORs of `column == literal`, and ANDs of `column != literal`, become one `isin`. They are the
  whole condition, or only ANDs, ORs and NOTs are above them. A NOT is moved inwards over AND and OR
  until it is part of a comparison. This rule also holds for NULL. A row is kept if the whole
  condition is true. Only ANDs and ORs are then above the comparisons, so it makes no difference
  whether a comparison is NULL or false.
- Columns and literals have types that `_are_compared_exactly` accepts. With floats, `==` and `isin`
  disagree about NaN and -0.0.
- A literal must be convertible to the column's type without loss. NULL is not such a literal.
"""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from operator import and_, or_
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

_METADATA: Final = "-- schema metadata --\n"
_KINDS: Final = "(?:call|end|field_ref|nested_field_ref|literal|options): '"
_PART: Final = re.compile(rf"^(\w+): '(.*?)'(?=\n{_KINDS}|\Z)", re.MULTILINE | re.DOTALL)
_COMPARED: Final = {"or_kleene": "equal", "and_kleene": "not_equal"}
"""Which comparisons become an `isin`, by the function that joins them."""
_FEWEST: Final = 3
"""Of how many comparisons at least an `isin` is made."""
_COMPARING: Final = frozenset(
    {
        "and_kleene",
        "equal",
        "greater",
        "greater_equal",
        "invert",
        "is_in",
        "is_null",
        "is_valid",
        "less",
        "less_equal",
        "not_equal",
        "or_kleene",
    }
)
"""The functions that compare values and join comparisons. They fail for no value."""
_DEEPEST: Final = 50
"""How many times ANDs and ORs may take turns before the rest stays as it is."""


class _ConditionPart(NamedTuple):
    """A piece of a pickled expression.

    Attributes:
        kind: call, end, field_ref, nested_field_ref, literal or options.
        text: the name of the function or column, the number of the literal, or how many names of a
            nested column follow.
    """

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class _Node:
    """An expression within the condition.

    Attributes:
        function: the function that is called; None for a column and a literal.
        arguments: the arguments of this function.
        start: the place of its first part.
        end: the place after its last part.
    """

    function: str | None
    arguments: tuple["_Node", ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition and its parts."""

    where: pc.Expression
    _build: Callable[[pa.Buffer], pc.Expression]
    _parts: tuple[_ConditionPart, ...]
    _literals: pa.RecordBatch
    _root: _Node

    @classmethod
    def of(cls, where: pc.Expression) -> "Condition | None":
        """Takes a condition apart; None if its parts cannot be read."""
        try:
            build, (buffer,) = where.__reduce__()
            pickled = pa.ipc.open_file(buffer)
            literals = pickled.get_batch(0)
            text = pickled.schema.to_string(truncate_metadata=False).partition(_METADATA)[2]
            parts = tuple(_ConditionPart(part[1], part[2]) for part in _PART.finditer(text))
            if not build(_pickled(parts, literals)).equals(where):
                return None
        except pa.ArrowException:
            return None
        root = _tree(parts)
        return None if root is None else cls(where, build, parts, literals, root)

    @property
    def columns(self) -> set[str]:
        """The names of the columns that the condition reads."""
        names = set()
        parts = iter(self._parts)
        for part in parts:
            if part.kind == "nested_field_ref":
                column, *_ = islice(parts, int(part.text))
                names.add(column.text)
            elif part.kind == "field_ref":
                names.add(part.text)
        return names

    def limits(self, columns: Collection[str]) -> bool:
        """Whether the condition holds only for rows in which one of these columns has one of the
        values that it lists.
        """
        return self._limits(self._root, columns, _DEEPEST)

    def _limits(self, node: _Node, columns: Collection[str], depth: int) -> bool:
        if depth == 0:
            return False
        if node.function == "and_kleene":
            return any(self._limits(term, columns, depth - 1) for term in _terms(node))
        if node.function == "or_kleene":
            return all(self._limits(term, columns, depth - 1) for term in _terms(node))
        if node.function not in ("equal", "is_in"):
            return False
        compared = [self._parts[each.start] for each in node.arguments if each.function is None]
        names = [part.text for part in compared if part.kind == "field_ref"]
        is_literal = node.function == "is_in" or any(part.kind == "literal" for part in compared)
        return is_literal and len(names) == 1 and names[0] in columns

    def necessary(self, prefix: str) -> pc.Expression | None:
        """A condition that each row fulfils that fulfils this one. It only compares columns and
        literals, so no row makes it fail. None if the condition has no such term. `prefix` is
        taken off the names of columns.
        """
        root = self._root
        terms = _terms(root) if root.function == "and_kleene" else iter([root])
        kept = [
            self._expression(term, negated=False, prefix=prefix)
            for term in terms
            if self._compares(term, _DEEPEST)
        ]
        return reduce(and_, kept) if kept else None

    def _compares(self, node: _Node, depth: int) -> bool:
        """Whether a part of the condition only compares columns and literals."""
        if node.function is None:
            return self._parts[node.start].kind in ("field_ref", "literal")
        if node.function not in _COMPARING or depth == 0:
            return False
        return all(self._compares(each, depth - 1) for each in node.arguments)

    def folded(self, schema: pa.Schema) -> pc.Expression:
        """A condition that keeps the same rows of tables with this schema. In it, each long OR of
        equalities of one column is replaced by one `isin`.
        """
        folded = self._folded(self._root, schema, _DEEPEST, negated=False)
        return self.where if folded is None else folded

    def _folded(
        self, node: _Node, schema: pa.Schema, depth: int, *, negated: bool
    ) -> pc.Expression | None:
        """A shorter form, with an `isin`, of this part of the condition, or of its negation if
        `negated` is set. None if the part cannot be shortened.
        """
        function = node.function
        if function == "invert" and depth:
            return self._folded(node.arguments[0], schema, depth - 1, negated=not negated)
        if function is None or function not in _COMPARED or depth == 0:
            return None
        is_or = (function == "or_kleene") != negated
        others: list[_Node] = []
        compared: dict[str, list[_Node]] = {}
        values: dict[str, list[pa.Array]] = {}
        for term in _terms(node):
            comparison = self._comparison(term, _COMPARED[function], schema)
            if comparison is None:
                others.append(term)
                continue
            name, value = comparison
            compared.setdefault(name, []).append(term)
            values.setdefault(name, []).append(value)
        folded = []
        for name, terms in compared.items():
            if len(terms) < _FEWEST:
                others += terms
                continue
            is_in = pc.field(name).isin(pa.concat_arrays(values[name]))
            folded.append(is_in if is_or else pc.field(name).is_valid() & ~is_in)
        inside = [self._folded(term, schema, depth - 1, negated=negated) for term in others]
        if not folded and not any(expression is not None for expression in inside):
            return None
        folded += [
            self._expression(term, negated=negated) if expression is None else expression
            for term, expression in zip(others, inside, strict=True)
        ]
        return reduce(or_ if is_or else and_, folded)

    def _comparison(
        self, node: _Node, function: str, schema: pa.Schema
    ) -> tuple[str, pa.Array] | None:
        """The column that is compared with a literal, and this literal as an array of one value of
        the column's type. None if the node is not such a comparison, or if the literal is not a
        value of that type.
        """
        if node.function != function or node.end - node.start != 4:
            return None
        operands = {part.kind: part.text for part in self._parts[node.start + 1 : node.end - 1]}
        if set(operands) != {"field_ref", "literal"}:
            return None
        name = operands["field_ref"]
        position = schema.get_field_index(name)
        value = self._literals.column(int(operands["literal"]))
        if position < 0 or value.null_count:
            return None
        type_ = schema.field(position).type
        if not _are_compared_exactly(type_, value.type):
            return None
        try:
            return name, value.cast(type_)
        except pa.ArrowException:
            return None

    def _expression(self, node: _Node, *, negated: bool, prefix: str = "") -> pc.Expression:
        """This part of the condition, or its negation, as a separate expression. `prefix` is taken
        off the names of columns.
        """
        parts = []
        numbers = []
        for part in self._parts[node.start : node.end]:
            if part.kind in ("literal", "options"):
                numbers.append(int(part.text))
                part = part._replace(text=str(len(numbers) - 1))
            elif part.kind == "field_ref":
                part = part._replace(text=part.text.removeprefix(prefix))
            parts.append(part)
        expression = self._build(_pickled(parts, self._literals.select(numbers)))
        return ~expression if negated else expression


def _pickled(
    parts: list[_ConditionPart] | tuple[_ConditionPart, ...], literals: pa.RecordBatch
) -> pa.Buffer:
    """An expression that consists of these parts, in the form in which Arrow pickles it."""
    batch = literals.replace_schema_metadata(pa.KeyValueMetadata(parts))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _tree(parts: tuple[_ConditionPart, ...]) -> _Node | None:
    """The tree of calls with their arguments; None if the parts do not form one expression. The
    function does not use recursion, because an OR of a thousand terms is a thousand calls deep.
    """
    arguments: list[list[_Node]] = [[]]
    starts = []
    place = 0
    while place < len(parts):
        part = parts[place]
        start = place
        place += 1
        if part.kind == "call":
            starts.append(start)
            arguments.append([])
        elif part.kind == "end":
            node = _Node(part.text, tuple(arguments.pop()), starts.pop(), place)
            arguments[-1].append(node)
        elif part.kind != "options":
            place += int(part.text) if part.kind == "nested_field_ref" else 0
            arguments[-1].append(_Node(None, (), start, place))
    return arguments[0][0] if len(arguments) == len(arguments[0]) == 1 else None


def _terms(node: _Node) -> Iterator[_Node]:
    """The terms that nested calls of the same function join, from left to right."""
    waiting = [node]
    while waiting:
        term = waiting.pop()
        if term.function == node.function:
            waiting += reversed(term.arguments)
        else:
            yield term


def _are_compared_exactly(column: pa.DataType, literal: pa.DataType) -> bool:
    """Whether a column and a literal of these types are equal exactly when the literal, converted
    to the column's type, is the same value. DECIMALs must have the same precision and scale,
    because pyarrow 18 compares other DECIMALs differently.
    """
    if pa.types.is_decimal(column):
        return bool(column == literal)
    if pa.types.is_timestamp(column):
        return bool(pa.types.is_timestamp(literal) and literal.tz == column.tz)
    same_kind = (
        pa.types.is_integer,
        pa.types.is_date32,
        pa.types.is_string,
        pa.types.is_binary,
    )
    return any(is_kind(column) and is_kind(literal) for is_kind in same_kind)
