"""The envelopes of Canal and of Maxwell, which read the log of MySQL. Both have the columns that an
update has changed in `old`. So an update of a primary key is one record here, and two rows: the old
key is deleted. A topic has records of many tables. Those of one table count.
"""

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from pyspark.sql import DataFrame

from paimon_stream.format.types import DataField, TypeRoot
from paimon_stream.spark.envelopes import (
    ROW,
    Cures,
    Encoding,
    Envelope,
    Problems,
    is_ambiguous,
    literal,
    problem_of_key,
    problems_of_text,
    strict_json,
)

_TEXT: Final = "cast(value as string)"
_TYPES: Final = "map<string, struct<kind: string, scale: string>>"
_NAMES: Final = "array<array<string>>"
_HAS_FRACTION: Final = "rlike '^-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?$' and {0} rlike '[.eE]'"
_NUMBER: Final = "(-?[0-9]+(?:[.][0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+))"
"""A number of JSON with a fraction or an exponent. Spark reads whole numbers with all digits, and
Canal has the numbers of types by the names of columns.
"""
_TEXTS: Final = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_MISFIT: Final = "Give the column the type that docs/cdc.md names for it."


@dataclass(frozen=True, kw_only=True)
class _MySqlEnvelope(Envelope):
    """What Canal and Maxwell have in common.

    Attributes:
        database: the database of the source table.
        table: its name.
        ddl_is_ignored: whether records of statements that change the table itself are left out.
        types: the type of each member that is read.
        for_columns: the members that may fill columns.
        operations: the letter for each `type` of a record.
        unreadable: what to do about a record that is no JSON.
        rowless: what to do about a record without a row.
        old_has_more: whether `old` may have values that were not changed.
        without_ddl: how the connector leaves out statements that change the table itself.
    """

    database: str
    table: str
    ddl_is_ignored: bool = False
    has_schemas = False
    types: ClassVar[Mapping[str, str]]
    for_columns: ClassVar[tuple[str, ...]]
    operations: ClassVar[Mapping[str, str]]
    unreadable: ClassVar[str]
    rowless: ClassVar[str]
    without_ddl: ClassVar[str]
    old_has_more: ClassVar[bool]

    def rows(self, frame: DataFrame, keys: Sequence[str]) -> DataFrame:
        """The rows of the records of the source table."""
        members = ", ".join(f"`{name}`: {type_}" for name, type_ in self.types.items())
        table = literal(self.table)
        is_of_table = f"_cdc_e.database = {literal(self.database)} and coalesce(nullif(_cdc_e.`table`, ''), {table}) = {table}"
        is_judged = f"(_cdc_e.database is null or {is_of_table}) and not coalesce({self._is_left_out()}, false)"
        letters = " ".join(
            f"when {literal(name)} then '{op}'" for name, op in self.operations.items()
        )
        parsed = frame.selectExpr(
            "*",
            f"{strict_json('value', f'struct<{members}>')} as _cdc_e",
            *self._keys(),
        ).where(f"{is_judged} or {is_ambiguous(f'array(json_object_keys({_TEXT}))')}")
        return (
            parsed.selectExpr(
                "*",
                f"{self._data('data')} as _cdc_data",
                f"{self._data('old')} as _cdc_olds",
                f"case _cdc_e.type {letters} end as _cdc_event",
            )
            .selectExpr(
                "*",
                f"inline({_changes(keys, self.old_has_more)}) as (_cdc_op, _cdc_row, _cdc_is_old)",
            )
            .selectExpr("*", f"cast(null as {_TYPES}) as _cdc_types")
        )

    def problems(self, keys: Sequence[str]) -> Problems:
        """Why a record has no row."""
        named = "_cdc_e.database is null or _cdc_e.type is null"
        known = ", ".join(self.operations)
        return [
            *problems_of_text(self.columns, self._objects()),
            ("_cdc_e is null", literal(f"its value is no JSON of an envelope. {self.unreadable}")),
            (
                f"{named} or _cdc_e.`table` is null and not coalesce({self._is_ddl()}, false)",
                literal(
                    "its value has no 'database', 'table' and 'type', so it is no envelope. Read topics of such "
                    "envelopes only, or keep such records beside (bad_events)."
                ),
            ),
            (
                self._is_ddl(),
                "concat('it is the statement \\'', left(coalesce(_cdc_e.sql, _cdc_e.type), 60), '\\', which changes "
                "the table itself and has no rows. Do the same to the Paimon table if that is wanted, then go on "
                f"with ddl=\\'ignore\\'. {self.without_ddl}')",
            ),
            (
                "_cdc_event is null",
                f"concat('its type is \\'', left(_cdc_e.type, 20), '\\', which is none of {known}. Keep such records "
                "beside (bad_events).')",
            ),
            *self._problems_of_key(keys),
            ("_cdc_row is null", literal(f"it has no row in 'data'. {self.rowless}")),
        ]

    def member(self, path: str) -> str:
        """The expression of a member of the envelope."""
        return f"_cdc_e.`{path}`"

    def has_member(self, path: str) -> bool:
        """Whether columns may be filled by this member."""
        return path in self.for_columns

    @property
    def members(self) -> str:
        """The names of these members."""
        return f"one of {', '.join(self.for_columns)}"

    def _is_left_out(self) -> str:
        return self._is_ddl() if self.ddl_is_ignored else "false"

    def _keys(self) -> Sequence[str]:
        """Further expressions beside the envelope."""
        return ()

    @abstractmethod
    def _is_ddl(self) -> str:
        """A condition: a statement changed the table itself."""

    @abstractmethod
    def _data(self, member: str) -> str:
        """The expression of the rows that `data` or `old` has."""

    @abstractmethod
    def _objects(self) -> str:
        """For each object of a record, the names of its members."""

    @abstractmethod
    def _problems_of_key(self, keys: Sequence[str]) -> Problems:
        """What is wrong with the names of the source's primary key."""


@dataclass(frozen=True, kw_only=True)
class CanalEnvelope(_MySqlEnvelope):
    """The flat messages of Canal. One has several rows if a statement has changed several. All values
    are texts.
    """

    columns = ("value",)
    encoding = Encoding(
        decimal_handling_mode="string",
        time_precision_mode="isostring",
        binary_handling_mode="latin1",
    )
    cures = Cures(
        order="Fill the table's sequence.field from a member that each record has, such as es.",
        null="set binlog_row_image = FULL.",
        misfit=_MISFIT,
    )
    types: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("database", "table", "type", "isDdl", "sql"), "string"),
        **dict.fromkeys(("data", "old"), f"array<{ROW}>"),
        "pkNames": "array<string>",
        **dict.fromkeys(("es", "ts", "id", "gtid"), "string"),
    }
    for_columns = ("type", "es", "ts", "id", "gtid")
    operations: ClassVar[Mapping[str, str]] = {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}
    unreadable = (
        "Let Canal write flat messages (canal.mq.flatMessage = true), or keep such records beside "
        "(bad_events)."
    )
    rowless = "Set binlog_format = ROW and binlog_row_image = FULL in MySQL."
    old_has_more = True
    without_ddl = "Canal leaves such records out with canal.instance.filter.query.ddl = true."

    def doubts(self, column: DataField, text: str) -> Problems:
        """Canal writes numbers as texts. Spark would cut the digits of a number of JSON."""
        if column.type.root is not TypeRoot.DECIMAL and column.type.root not in _TEXTS:
            return []
        return [
            _problem_of_number(column, text, "Canal itself writes texts; let the producer do so.")
        ]

    def _is_ddl(self) -> str:
        return "_cdc_e.isDdl = 'true'"

    def _data(self, member: str) -> str:
        return f"_cdc_e.{member}"

    def _objects(self) -> str:
        of_rows = (
            f"coalesce(transform({rows}, r -> map_keys(r)), cast(array() as {_NAMES}))"
            for rows in ("_cdc_data", "_cdc_olds")
        )
        return f"concat(array(json_object_keys({_TEXT})), {', '.join(of_rows)})"

    def _problems_of_key(self, keys: Sequence[str]) -> Problems:
        cure = "Give the source table a primary key, and set binlog_row_image = FULL in MySQL."
        return [
            (
                "_cdc_e.pkNames is null or size(_cdc_e.pkNames) = 0",
                literal(f"it has no pkNames, so it is not known which row it changes. {cure}"),
            ),
            problem_of_key(
                "_cdc_e.pkNames", keys, "Make the table with the primary key of the source."
            ),
        ]


@dataclass(frozen=True, kw_only=True)
class MaxwellEnvelope(_MySqlEnvelope):
    """The messages of Maxwell, whose key has the names of the primary key in lower case. Numbers are
    numbers of JSON, of which Spark keeps 17 digits. So those of DECIMAL are taken from the message.
    """

    columns = ("key", "value")
    encoding = Encoding(
        decimal_handling_mode="string",
        time_precision_mode="isostring",
        binary_handling_mode="base64",
    )
    cures = Cures(
        order="Fill the table's sequence.field from a member that each record has, such as ts.",
        null="set output_nulls = true.",
        misfit=_MISFIT,
    )
    types: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("database", "table", "type", "sql"), "string"),
        **dict.fromkeys(("data", "old"), ROW),
        "primary_key_columns": "array<string>",
        **dict.fromkeys(("ts", "xid", "xoffset", "position", "gtid", "server_id"), "string"),
    }
    for_columns = ("type", "ts", "xid", "xoffset", "position", "gtid", "server_id")
    operations: ClassVar[Mapping[str, str]] = {
        "insert": "c",
        "bootstrap-insert": "r",
        "update": "u",
        "delete": "d",
    }
    unreadable = "Let Maxwell write JSON without encryption (encrypt = none), or keep such records beside (bad_events)."
    rowless = "Let Maxwell write without encryption (encrypt = none)."
    old_has_more = False
    without_ddl = "Maxwell leaves such records out with output_ddl = false."

    def text_of(self, column: DataField) -> str:
        """The expression of a column's text in the row. The digits of a DECIMAL are those of the
        message. There, `data` comes before `old`.
        """
        text = super().text_of(column)
        if column.type.root is not TypeRoot.DECIMAL:
            return text
        numbers = f"regexp_extract_all({_TEXT}, {literal(_number_of(column))}, 1)"
        equal = f"filter({numbers}, n -> try_cast(n as double) = try_cast({text} as double))"
        return (
            f"if({text} {_HAS_FRACTION.format(text)} and size({numbers}) > 0, "
            f"coalesce(try_element_at({equal}, if(_cdc_is_old, -1, 1)), concat({text}, ', cut')), {text})"
        )

    def doubts(self, column: DataField, text: str) -> Problems:
        """A text that was a number of JSON."""
        if column.type.root not in _TEXTS:
            return []
        return [
            _problem_of_number(
                column, text, "Make the column DECIMAL or DOUBLE, as the source has it."
            )
        ]

    def _is_left_out(self) -> str:
        """Marks of a bootstrap have no row."""
        marks = "_cdc_e.type in ('bootstrap-start', 'bootstrap-complete')"
        return f"({marks} or {super()._is_left_out()})"

    def _keys(self) -> Sequence[str]:
        return (f"{strict_json('key', ROW)} as _cdc_key",)

    def _is_ddl(self) -> str:
        return "_cdc_e.type rlike '^(table|database)-'"

    def _data(self, member: str) -> str:
        return f"if(_cdc_e.{member} is null, null, array(_cdc_e.{member}))"

    def _objects(self) -> str:
        maps = ("_cdc_e.data", "_cdc_e.old", "_cdc_key")
        return (
            f"array(json_object_keys({_TEXT}), {', '.join(f'map_keys({name})' for name in maps)})"
        )

    def _problems_of_key(self, keys: Sequence[str]) -> Problems:
        of_key = "filter(map_keys(_cdc_key), k -> k not in ('database', 'table'))"
        names = f"coalesce(_cdc_e.primary_key_columns, transform({of_key}, k -> if(startswith(k, 'pk.'), substring(k, 4), k)))"
        without = "_cdc_e.primary_key_columns is null"
        return [
            (
                f"key is null and {without}",
                literal(
                    "it has no key, so the order of the changes of a row is not known. Read what Maxwell has sent to "
                    "Kafka, with its keys."
                ),
            ),
            (
                f"_cdc_key is null and {without}",
                literal(
                    "its key is no JSON object. Set kafka_key_format = hash, or output_primary_key_columns = true."
                ),
            ),
            problem_of_key(
                f"transform({names}, k -> lower(k))",
                [key.lower() for key in keys],
                "Make the table with the primary key of the source, and give the source one.",
            ),
        ]


def _changes(keys: Sequence[str], old_has_more: bool) -> str:
    """An expression: the letter, the row, and whether it is the old one, for each change of a
    record. An update of the primary key deletes the row of the old key first. Two numbers may look
    equal here that differ in later digits, so they are compared only if `old` has more than what
    was changed.
    """
    old = "try_element_at(_cdc_olds, i + 1)"
    differs = f"not (try_element_at({old}, k) <=> try_element_at(d, k))" if old_has_more else "true"
    is_other_key = f"exists(array({', '.join(map(literal, keys))}), k -> map_contains_key({old}, k) and {differs})"
    before = f"map_zip_with(d, {old}, (k, a, b) -> if(map_contains_key({old}, k), b, a))"
    change = "struct({} as op, {} as row, {} as is_old)"
    change_of_row = change.format("_cdc_event", "d", "false")
    both = f"array({change.format(repr('d'), before, 'true')}, {change_of_row})"
    changes = (
        f"flatten(transform(_cdc_data, (d, i) -> if(_cdc_event = 'u' and {is_other_key}, {both}, "
        f"array({change_of_row}))))"
    )
    none = f"array({change.format('_cdc_event', f'cast(null as {ROW})', 'false')})"
    return f"if(size(_cdc_data) > 0, {changes}, {none})"


def _number_of(column: DataField) -> str:
    """A regular expression of a column's number in a message."""
    return f"\\Q{json.dumps(column.name, ensure_ascii=False)}\\E\\s*:\\s*{_NUMBER}"


def _problem_of_number(column: DataField, text: str, cure: str) -> tuple[str, str]:
    """The problem of a text that was a number of JSON with a fraction. `text` is its expression."""
    is_number = f"{_TEXT} rlike {literal(_number_of(column))}"
    return (
        f"{text} {_HAS_FRACTION.format(text)} and {is_number}",
        literal(
            f"column {column.name!r} comes as a number of JSON, of which Spark keeps 17 digits only. {cure}"
        ),
    )
