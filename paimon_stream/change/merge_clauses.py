"""What a merge does, in its own words and as expressions of Arrow: the condition of a match, and the
clauses.

The rows of a match have the columns of the target and of the source, each with a prefix
(`TARGET`, `SOURCE`), under which expressions of Arrow name them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from operator import and_, or_
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import InvalidOption, UnsupportedFeature
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, DataType, TypeRoot, arrow_type
from paimon_stream.read.condition import Condition
from paimon_stream.read.condition_text import condition_on, naming_option, value_in_text
from paimon_stream.read.sql_text import Columns, SqlColumn, parsed
from paimon_stream.read.sql_values import SqlValue, assigned, boolean, comparable, terms_of

SOURCE: Final = "source."
TARGET: Final = "target."


class When(Enum):
    """The rows that a clause is about."""

    MATCHED = "matched"
    NOT_MATCHED = "not_matched"
    NOT_MATCHED_BY_SOURCE = "not_matched_by_source"


class Action(Enum):
    """What a clause does with its rows."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """A clause as the caller gave it.

    Attributes:
        when: the rows that it is about.
        action: what it does.
        updates: the values of columns, as SQL text or as expressions of Arrow; None for the values
            of the source's columns of the same names.
        predicate: the condition under which it holds; None if it always does.
        except_cols: the columns that do not get the source's values.
    """

    when: When
    action: Action
    updates: Mapping[str, Any] | None = None
    predicate: Any = None
    except_cols: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the method that states it."""
        suffix = "_all" if self.action is not Action.DELETE and self.updates is None else ""
        return f"when_{self.when.value}_{self.action.value}{suffix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeWords:
    """A merge as the caller described it.

    Attributes:
        on: the columns whose values match, or a condition as SQL text.
        source_alias: the name of the source in texts.
        target_alias: the name of the target in texts.
        clauses: the clauses, in the order in which they are tried.
    """

    on: Any
    source_alias: str = "source"
    target_alias: str = "target"
    clauses: tuple[Clause, ...] = ()


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Two values that are equal in a match.

    Attributes:
        target: computes the value of the target's rows.
        column: the column of the target whose value that is, perhaps in another type; None if it is
            computed.
        source: computes the value of the source's rows, in the same type.
        null_equals_null: whether NULL matches NULL.
    """

    target: pc.Expression
    column: str | None
    source: pc.Expression
    null_equals_null: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedClause:
    """A clause whose texts are expressions.

    Attributes:
        clause: the clause.
        predicate: the condition under which it holds.
        values: the value of each of the table's columns; empty for a deletion.
    """

    clause: Clause
    predicate: pc.Expression | None
    values: Mapping[str, pc.Expression]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan:
    """A merge that fits the columns of target and source.

    Attributes:
        schema: the schema of the target.
        keys: the values that are equal in a match, at least one pair.
        rest: what else must hold in a match.
        clauses: the clauses.
        source_columns: the columns of the source, with their prefix.
    """

    schema: TableSchema
    keys: tuple[KeyPair, ...]
    rest: pc.Expression | None
    clauses: tuple[PlannedClause, ...]
    source_columns: frozenset[str]

    def of(self, when: When) -> tuple[PlannedClause, ...]:
        """The clauses about these rows."""
        return tuple(planned for planned in self.clauses if planned.clause.when is when)

    def concerned(self, keys: pc.Expression | None) -> pc.Expression | None:
        """A condition that all rows of the target fulfil that may matter, for the choice of files;
        None if all may matter. `keys` is one that rows with a key of the source fulfil.
        """
        conditions = [keys]
        for planned in self.of(When.NOT_MATCHED_BY_SOURCE):
            parts = None if planned.predicate is None else Condition.of(planned.predicate)
            conditions.append(None if parts is None else parts.necessary(TARGET))
        limiting = [condition for condition in conditions if condition is not None]
        return reduce(or_, limiting) if len(limiting) == len(conditions) else None

    @property
    def columns_of_pairs(self) -> frozenset[str]:
        """The columns that are read to decide which clause holds for two rows with the same keys."""
        expressions = [each.predicate for each in self.of(When.MATCHED)]
        return frozenset(self._read([self.rest, *expressions]))

    def _read(self, expressions: Iterable[pc.Expression | None]) -> set[str]:
        """The columns that expressions read, with their prefixes."""
        read: set[str] = set()
        for expression in expressions:
            if expression is None:
                continue
            parts = Condition.of(expression)
            if parts is None:
                return {TARGET + name for name in self.schema.field_names} | set(
                    self.source_columns
                )
            read |= parts.columns
        return read

    @property
    def target_columns(self) -> tuple[DataField, ...]:
        """The columns of the target that the merge reads."""
        if any(planned.clause.action is Action.UPDATE for planned in self.clauses):
            return self.schema.fields
        return self.deciding_columns

    @property
    def deciding_columns(self) -> tuple[DataField, ...]:
        """The columns of the target that decide what becomes of a row, at least one."""
        predicates = [planned.predicate for planned in self.clauses]
        read = self._read([*(pair.target for pair in self.keys), self.rest, *predicates])
        return tuple(field for field in self.schema.fields if TARGET + field.name in read)


def plan_merge(words: MergeWords, schema: TableSchema, source: Mapping[str, DataType]) -> MergePlan:
    """The merge as expressions.

    Args:
        words: the merge as the caller described it.
        schema: the schema of the target.
        source: the columns of the source, with their types.

    Raises:
        InvalidOption: it does not fit the columns, or a clause can never hold.
        UnsupportedFeature: a text has something that is not computed here, or `on` has no equality
            between the source and the target.
    """
    planner = _Planner(words, schema, source)
    keys, rest = planner.match()
    _check_clauses(words.clauses)
    clauses = tuple(map(planner.planned, words.clauses))
    return MergePlan(
        schema=schema,
        keys=keys,
        rest=rest,
        clauses=clauses,
        source_columns=frozenset(SOURCE + name for name in source),
    )


def check_words(words: MergeWords) -> None:
    """Checks what needs no columns. Raises `InvalidOption` for aliases that are no names, if there
    is no clause, and for a clause that can never hold.
    """
    _check_aliases(words)
    _check_clauses(words.clauses)


def check_partitions_are_named(words: MergeWords, schema: TableSchema) -> None:
    """Raises `UnsupportedFeature` if a clause about rows of the table without a match may hold in
    every partition. A batch of a stream is a part of the rows, so nearly all rows of the table have
    no match in it. Raises `InvalidOption` for a predicate that does not fit the columns.
    """
    planner = _Planner(words, schema, {})
    for clause in words.clauses:
        if clause.when is not When.NOT_MATCHED_BY_SOURCE:
            continue
        predicate = planner.planned(clause).predicate
        parts = None if predicate is None else Condition.of(predicate)
        if parts is not None and parts.limits({TARGET + key for key in schema.partition_keys}):
            continue
        if schema.partition_keys:
            key = schema.partition_keys[0]
            cure = f"Give a predicate that names them, such as \"{words.target_alias}.{key} = 'value' AND …\""
        else:
            cure = "This table has no partitions"
        raise UnsupportedFeature(
            f"{clause.name} is not limited to partitions. A batch has a part of the stream's rows, so nearly all rows of "
            "the table have no match in it, and each batch would change them, and read the whole table. "
            f"{cure}; or merge the whole source with PaimonTable.merge.",
            option=clause.name,
        )


def _check_clauses(clauses: Sequence[Clause]) -> None:
    """Raises `InvalidOption` if there is no clause, or one that can never hold."""
    if not clauses:
        raise InvalidOption(
            "the merge has no clause, so it would change nothing. Call when_matched_update or another method that "
            "begins with when_ before execute.",
            option="merge",
        )
    closed: dict[When, Clause] = {}
    for clause in clauses:
        earlier = closed.get(clause.when)
        if earlier is not None:
            raise InvalidOption(
                f"{clause.name} never holds, because {earlier.name} comes before it without a predicate. Put it first, "
                "or give that one a predicate.",
                option=clause.name,
            )
        if clause.predicate is None:
            closed[clause.when] = clause


class _Planner:
    """Turns the texts of one merge into expressions."""

    def __init__(
        self, words: MergeWords, schema: TableSchema, source: Mapping[str, DataType]
    ) -> None:
        self._words = words
        self._schema = schema
        self._source = {
            name: SqlColumn(name=SOURCE + name, type=type_) for name, type_ in source.items()
        }
        self._target = {
            field.name: SqlColumn(name=TARGET + field.name, type=field.type)
            for field in schema.fields
        }
        _check_aliases(words)

    def _columns(self, when: When | None = None) -> Columns:
        """The columns that a text about these rows may name."""
        words = self._words
        sides = {words.source_alias: self._source, words.target_alias: self._target}
        if when is When.NOT_MATCHED:
            del sides[words.target_alias]
        elif when is When.NOT_MATCHED_BY_SOURCE:
            del sides[words.source_alias]
        alone: dict[str, SqlColumn] = {}
        for alias, columns in sides.items():
            others = [names for other, names in sides.items() if other != alias]
            alone |= {
                name: column
                for name, column in columns.items()
                if not any(name in names for names in others)
            }
        return {**sides, "": alone}

    def match(self) -> tuple[tuple[KeyPair, ...], pc.Expression | None]:
        """The values that are equal in a match, and what else must hold."""
        on = self._words.on
        if isinstance(on, str):
            return self._match_of_text(on)
        if not isinstance(on, Sequence) or not on or not all(isinstance(each, str) for each in on):
            raise InvalidOption(
                f"on is {on!r}. Give the names of the columns whose values match, such as ['id'], or a condition as a "
                "text, such as 'source.id = target.id'.",
                option="on",
            )
        return tuple(map(self._pair_of_column, on)), None

    def _pair_of_column(self, name: str) -> KeyPair:
        for side, columns in (("source", self._source), ("target", self._target)):
            if name not in columns:
                raise InvalidOption(
                    f"on names a column {name!r}, which the {side} does not have. Its columns: {', '.join(columns)}.",
                    option="on",
                )
        with naming_option("on"):
            return _key_pair("=", _value(self._target[name]), _value(self._source[name]))

    def _match_of_text(self, on: str) -> tuple[tuple[KeyPair, ...], pc.Expression | None]:
        pairs: list[KeyPair] = []
        rest: list[pc.Expression] = []
        with naming_option("on"):
            for term in terms_of(parsed(on, self._columns())):
                pair = _pair_of_term(term)
                if pair is None:
                    rest.append(boolean(term, "as a condition"))
                else:
                    pairs.append(pair)
        if not pairs:
            raise UnsupportedFeature(
                f"on is {on!r}, and none of the conditions that AND joins says that a value of the source equals one of "
                "the target. Add one, such as source.id = target.id.",
                option="on",
            )
        return tuple(pairs), reduce(and_, rest) if rest else None

    def planned(self, clause: Clause) -> PlannedClause:
        """The clause with its texts as expressions."""
        columns = self._columns(clause.when)
        predicate = clause.predicate
        if isinstance(predicate, str):
            predicate = condition_on(predicate, columns, f"{clause.name}: predicate")
        elif predicate is not None:
            predicate = self._given(predicate, clause, "predicate")
        values: dict[str, pc.Expression] = {}
        if clause.action is not Action.DELETE:
            values = self._values(clause, columns)
        return PlannedClause(clause=clause, predicate=predicate, values=values)

    def _values(self, clause: Clause, columns: Columns) -> dict[str, pc.Expression]:
        """The value of each column of the target."""
        updates = self._source_values(clause) if clause.updates is None else clause.updates
        unknown = [name for name in updates if name not in self._target]
        if unknown:
            raise InvalidOption(
                f"{clause.name} gives a value to {unknown[0]!r}, which is no column of the table. Its columns: "
                f"{', '.join(self._target)}.",
                option=clause.name,
            )
        values = {}
        for field in self._schema.fields:
            update = updates.get(field.name)
            if isinstance(update, str):
                option = f"{clause.name}: {field.name}"
                values[field.name] = value_in_text(update, field, columns, option)
            elif update is not None:
                values[field.name] = self._given(update, clause, field.name)
            elif clause.action is Action.INSERT:
                values[field.name] = pc.scalar(pa.scalar(None, arrow_type(field.type)))
            else:
                values[field.name] = pc.field(TARGET + field.name)
        return values

    def _source_values(self, clause: Clause) -> dict[str, Any]:
        """For each column that is not left out, the value of the source's column of that name."""
        left_out = set(clause.except_cols)
        unknown = [name for name in clause.except_cols if name not in self._target | self._source]
        if unknown:
            raise InvalidOption(
                f"{clause.name}: except_cols has {unknown[0]!r}, which is no column of the table or of the source. The "
                f"table's columns: {', '.join(self._target)}.",
                option=clause.name,
            )
        names = [name for name in self._target if name not in left_out]
        missing = [name for name in names if name not in self._source]
        extra = [name for name in self._source if name not in self._target.keys() | left_out]
        for wrong, problem in ((missing, "the source lacks"), (extra, "the table lacks")):
            if wrong:
                raise InvalidOption(
                    f"{clause.name}: {problem} the column {wrong[0]!r}. Name it in except_cols, or state the values with "
                    f"{clause.name.removesuffix('_all')}.",
                    option=clause.name,
                )
        values = {}
        for name in names:
            field = self._schema.field(name)
            with naming_option(clause.name):
                values[name] = assigned(_value(self._source[name]), field.type, name)
        return values

    def _given(self, expression: Any, clause: Clause, what: str) -> pc.Expression:
        """An expression of Arrow that the caller gave."""
        if not isinstance(expression, pc.Expression):
            raise InvalidOption(
                f"{clause.name} has {expression!r} as {what}. Give SQL text, such as 'source.n + 1', or an expression of "
                "Arrow, such as pc.field('source.n').",
                option=clause.name,
            )
        parts = Condition.of(expression)
        sides = {When.NOT_MATCHED: (self._source,), When.NOT_MATCHED_BY_SOURCE: (self._target,)}
        known = {
            column.name
            for columns in sides.get(clause.when, (self._source, self._target))
            for column in columns.values()
        }
        unknown = set() if parts is None else parts.columns - known
        if unknown:
            raise InvalidOption(
                f"{clause.name} names a column {min(unknown)!r} for {what}. An expression of Arrow names columns with "
                f"{SOURCE} or {TARGET} before them: {', '.join(sorted(known))}.",
                option=clause.name,
            )
        return expression


def _check_aliases(words: MergeWords) -> None:
    aliases = (words.source_alias, words.target_alias)
    is_word = all(isinstance(alias, str) and alias.isidentifier() for alias in aliases)
    if not is_word or words.source_alias == words.target_alias:
        raise InvalidOption(
            f"source_alias is {words.source_alias!r} and target_alias is {words.target_alias!r}. Give two different "
            "words.",
            option="source_alias",
        )


def _value(column: SqlColumn) -> SqlValue:
    return SqlValue(expression=pc.field(column.name), type=column.type, shown=column.name)


def _pair_of_term(term: SqlValue) -> KeyPair | None:
    """The equal values, if a condition says that a value of the target equals one of the source."""
    if term.equality is None:
        return None
    op, left, right = term.equality
    sides = _sides(left), _sides(right)
    if sides == ({TARGET}, {SOURCE}):
        return _key_pair(op, left, right)
    if sides == ({SOURCE}, {TARGET}):
        return _key_pair(op, right, left)
    return None


def _sides(value: SqlValue) -> set[str]:
    """From which sides the columns come that a value reads."""
    return {TARGET if name.startswith(TARGET) else SOURCE for name in _columns_read(value)}


def _columns_read(value: SqlValue) -> set[str]:
    parts = Condition.of(value.expression)
    return set() if parts is None else parts.columns


def _key_pair(op: str, target: SqlValue, source: SqlValue) -> KeyPair:
    padded = any(
        value.type is not None and value.type.root is TypeRoot.CHAR for value in (target, source)
    )
    column = None
    names = [] if padded else sorted(_columns_read(target))
    if len(names) == 1 and target.expression.equals(pc.field(names[0])):
        column = names[0].removeprefix(TARGET)
    target, source = comparable(target, source)
    expressions = [target.expression, source.expression]
    if padded:
        # A CHAR may be stored with blanks up to its length.
        expressions = [pc.utf8_rtrim(each, characters=" ") for each in expressions]
    return KeyPair(
        target=expressions[0],
        column=column,
        source=expressions[1],
        null_equals_null=op == "<=>",
    )
