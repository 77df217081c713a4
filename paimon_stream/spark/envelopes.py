"""What the envelopes of all connectors have in common: how a record's JSON is read strictly, and what
`change_events.py` needs to know of an envelope.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from pyspark.sql import DataFrame

from paimon_stream.format.types import DataField

Problems: TypeAlias = list[tuple[str, str]]
"""Conditions of SQL on an event, each with an expression of the text that says what is wrong, and
what to do. The first condition that holds counts.
"""

ROW: Final = "map<string, string>"
"""A map, because it tells a column that is absent from a column that is NULL."""

ITEMS: Final = "array of "
"""Begins the kind of an array. The kind of its elements follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """How a connector writes values that have no schema: Debezium's options of the same names. The
    binary mode `latin1` is Canal's: each character is a byte.
    """

    decimal_handling_mode: str = "precise"
    time_precision_mode: str = "adaptive"
    binary_handling_mode: str = "bytes"


class Cures(NamedTuple):
    """What to do about an event whose row is not as the table needs it.

    Attributes:
        order: if it has no value that orders the rows.
        null: if it has NULL in a column of the key.
        misfit: if a value does not fit its column.
    """

    order: str
    null: str
    misfit: str


class Envelope(ABC):
    """How a connector wraps the changes of rows in records of Kafka.

    Attributes:
        encoding: how it writes values that have no schema.
        cures: what to do about a row that is not as the table needs it.
        columns: the columns of a record that it needs.
        has_schemas: whether an envelope may say of which kind its values are.
    """

    encoding: Encoding
    cures: Cures
    columns: tuple[str, ...]
    has_schemas: bool = True

    @abstractmethod
    def rows(self, frame: DataFrame, keys: Sequence[str]) -> DataFrame:
        """The records, each once for each row that it changes, and those that are none. It adds
        `_cdc_op` (c, u, d or r), the row as the map `_cdc_row`, and `_cdc_types`, what is known of
        the kind and the scale of its values. `keys` are the table's primary key.
        """

    @abstractmethod
    def problems(self, keys: Sequence[str]) -> Problems:
        """Why a record of `rows` has no row."""

    @abstractmethod
    def member(self, path: str) -> str:
        """The expression of a member of the envelope, for columns that the row does not have."""

    @abstractmethod
    def has_member(self, path: str) -> bool:
        """Whether envelopes may have this member."""

    @property
    @abstractmethod
    def members(self) -> str:
        """The names that `has_member` takes, for messages."""

    def text_of(self, column: DataField) -> str:
        """The expression of a column's text in the row."""
        return f"try_element_at(_cdc_row, {literal(column.name)})"

    def doubts(self, column: DataField, text: str) -> Problems:
        """Why the text of a column may not be what the database has. `text` is its expression."""
        return []


def strict_json(column: str, type_: str) -> str:
    """An expression of a column that has JSON. It is NULL if the text is no JSON, or if more follows
    it. The text is parsed as an item of an array, with NULL behind it, because `from_json` passes
    over what follows an object.
    """
    options = "map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', 'unreadable')"
    text = f"concat('{{\"items\":[', cast({column} as string), ',null]}}')"
    return with_values(
        {
            "parsed": f"from_json({text}, 'struct<items: array<{type_}>, unreadable: string>', {options})"
        },
        "if(size(parsed.items) = 2 and try_element_at(parsed.items, 2) is null and parsed.unreadable is null, "
        "try_element_at(parsed.items, 1), null)",
    )


def computed_once(values: Mapping[str, str]) -> str:
    """An expression that adds these columns, of which Spark makes no copies. It copies a column of a
    plain projection to each place that uses it, and pushes copies into filters. Where columns use
    each other, Spark 4.0 and 3.5 then need minutes and gigabytes for a plan.
    """
    named = ", ".join(f"{value} as {name}" for name, value in values.items())
    return f"inline(array(struct({named}))) as ({', '.join(values)})"


def with_values(bound: Mapping[str, str], result: str) -> str:
    """The result, an expression that uses these names for values. Each value is computed once. It
    may use the names before it. Without this, a plan would have a copy of a value for each use.
    """
    for name, value in reversed(list(bound.items())):
        result = f"transform(array({value}), {name} -> {result})[0]"
    return result


def problems_of_text(columns: Sequence[str], objects: str) -> Problems:
    """What makes it unclear which text, or which member, the producer meant.

    Args:
        columns: the columns that have texts.
        objects: an expression: for each object of JSON, the names of its members.
    """
    cure = "or keep such records beside (bad_events)."
    broken = [
        (
            _has_broken_text(column),
            literal(
                f"its {column} has bytes that are no UTF-8, so its text is not known. Let the producer write UTF-8, {cure}"
            ),
        )
        for column in columns
    ]
    doubled = f"filter(flatten(transform({objects}, o -> {_repeated('o')})), n -> n is not null)"
    return [
        *broken,
        (
            is_ambiguous(objects),
            f"concat('its JSON has the member ', try_element_at({doubled}, 1), ' more than once, so its value is "
            f"not known. Let the producer write it once, {cure}')",
        ),
    ]


def is_ambiguous(objects: str) -> str:
    """A condition: one of the objects has two members of one name, of which any may be meant. Such
    a record is judged, whatever the last of them says. `objects` is as in `problems_of_text`.
    """
    return f"exists({objects}, o -> coalesce(size(array_distinct(o)) < size(o), false))"


def problem_of_key(names: str, keys: Sequence[str], cure: str) -> tuple[str, str]:
    """The problem of a record whose key has other columns than the table's. `names` is the
    expression of the columns that it has.
    """
    wanted = sorted(keys)
    return (
        f"sort_array({names}) <> array({', '.join(map(literal, wanted))})",
        f"concat('its key has the columns ', array_join(sort_array({names}), ', '), "
        f"', the table\\'s primary key is ', {literal(', '.join(wanted))}, {literal(f'. {cure}')})",
    )


def _has_broken_text(column: str) -> str:
    """A condition on a column: it has bytes that are no UTF-8. Decoding makes U+FFFD of them, so
    they are there if the decoded text has that character where the bytes do not encode it.
    """
    text = f"cast({column} as string)"
    return f"{text} rlike '\ufffd' and replace({text}, '\ufffd', '?') rlike '\ufffd'"


def _repeated(names: str) -> str:
    repeated = f"filter({names}, n -> size(filter({names}, m -> m = n)) > 1)"
    return f"coalesce({repeated}, array())"


def literal(value: str) -> str:
    """The text as a literal of SQL."""
    return f"'{escaped(value)}'"


def escaped(value: str) -> str:
    """The text as a part of a literal of SQL."""
    return value.replace("\\", "\\\\").replace("'", "\\'")
