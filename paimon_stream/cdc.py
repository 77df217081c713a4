"""Change events of Debezium, Canal and Maxwell as rows for a table with a primary key."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import InvalidOption
from paimon_stream.extras import require
from paimon_stream.options import SEQUENCE_FIELD, Arguments, Options

if TYPE_CHECKING:
    from paimon_stream.spark.envelopes import Envelope
    from paimon_stream.spark.types import SparkFrame

__all__ = ["canal", "debezium", "maxwell"]

_CHOICES = {
    "bad_events": ("fail", "leave-out", "only"),
    "new_columns": ("error", "ignore"),
    "missing_columns": ("error", "null"),
    "truncates": ("error", "ignore"),
    "ddl": ("error", "ignore"),
    "decimal_handling_mode": ("precise", "string", "double"),
    "time_precision_mode": (
        "adaptive",
        "adaptive_time_microseconds",
        "connect",
        "isostring",
        "microseconds",
        "nanoseconds",
    ),
    "binary_handling_mode": ("bytes", "base64", "base64-url-safe", "hex"),
}


def debezium(
    df: "SparkFrame",
    table: PaimonTable,
    *,
    operation_column: str = "op",
    metadata: Mapping[str, str] | None = None,
    bad_events: str = "fail",
    new_columns: str = "error",
    missing_columns: str = "error",
    truncates: str = "error",
    decimal_handling_mode: str = "precise",
    time_precision_mode: str = "adaptive",
    binary_handling_mode: str = "bytes",
    unavailable_value_placeholder: str = "__debezium_unavailable_value",
) -> "SparkFrame":
    """The change events of one source table as rows for a table with the same primary key.

    Give the result to a `PaimonSink` with `paimon-stream.operation-column` = `op`. The rows keep
    the order of the records. The events c, u and r write their row, d deletes it. A tombstone is
    left out, because the event before it has deleted the row.

    Args:
        df: the records of a topic: the columns `key` and `value`, which hold JSON as text or
            bytes, and perhaps `topic`, `partition` and `offset`, which messages then name. It may
            be a stream or not. Envelopes may have schemas or not.
        table: the table for which the rows are made. Its columns and keys are those that it has
            now.
        operation_column: the name of the column that gets the operation.
        metadata: for columns of the table that the source does not have, the member of the
            envelope that fills them: `op`, `ts_ms`, `ts_us`, `ts_ns`, or one of `source`, such as
            `{"lsn": "source.lsn"}`.
        bad_events: what to do with a record that cannot be made a row. `fail`: the sink raises
            `BadChangeEvent`, and nothing of the batch is written. `leave-out`: the result lacks
            it. `only`: the result is these records as they came, with the reason in the column
            `problem`; write them to a table of their own.
        new_columns: what to do with a column that the table lacks. `error`: the event is bad.
            `ignore`: the column is left out.
        missing_columns: what to do if an event lacks a column of the table. `error`: the event is
            bad. `null`: the column is NULL.
        truncates: what to do with the event of a TRUNCATE. `error`: the event is bad. `ignore`: it
            is left out.
        decimal_handling_mode: the connector's option `decimal.handling.mode`. This option and the
            next two count only for envelopes without schemas.
        time_precision_mode: the connector's option `time.precision.mode`.
        binary_handling_mode: the connector's option `binary.handling.mode`. It counts for
            envelopes with schemas, too, if it is not `bytes`.
        unavailable_value_placeholder: the connector's option `unavailable.value.placeholder`. An
            event whose row has it is bad, unless the row before the change has the value.

    Raises:
        MissingExtra: if pyspark is not installed.
        InvalidOption: for an argument with a wrong value, a frame without `key` or `value`, and a
            table without a primary key.
        UnsupportedFeature: for a column whose type no event can fill.
    """
    envelopes = require("paimon_stream.spark.debezium", "spark", "paimon_stream.cdc.debezium")
    encoding = {
        "decimal_handling_mode": decimal_handling_mode,
        "time_precision_mode": time_precision_mode,
        "binary_handling_mode": binary_handling_mode,
    }
    choices = {
        "bad_events": bad_events,
        "new_columns": new_columns,
        "missing_columns": missing_columns,
        "truncates": truncates,
    }
    arguments = _arguments(table, {**choices, **encoding})
    arguments.text("unavailable_value_placeholder", unavailable_value_placeholder)
    envelope = envelopes.DebeziumEnvelope(
        encoding=envelopes.Encoding(**encoding),
        unavailable_value_placeholder=unavailable_value_placeholder,
        truncates_are_ignored=truncates == "ignore",
    )
    return _rows(df, table, envelope, operation_column, metadata, choices)


def canal(
    df: "SparkFrame",
    table: PaimonTable,
    source: str,
    *,
    operation_column: str = "op",
    metadata: Mapping[str, str] | None = None,
    bad_events: str = "fail",
    new_columns: str = "error",
    missing_columns: str = "error",
    ddl: str = "error",
) -> "SparkFrame":
    """The flat messages of Canal about one table of MySQL as rows, as `debezium` makes them.

    A message with several rows makes several rows, in order. An update of the primary key deletes
    the row of the old key. Messages about other tables are left out.

    Args:
        df: the records of a topic: the column `value`, which holds JSON as text or bytes, and
            perhaps `topic`, `partition` and `offset`, which messages then name. It may be a stream
            or not.
        table: the table for which the rows are made. Its columns and keys are those that it has
            now.
        source: the table of MySQL, `database.table`, as the messages name it.
        operation_column: the name of the column that gets the operation.
        metadata: for columns of the table that the source does not have, the member of the message
            that fills them: `type`, `es`, `ts`, `id` or `gtid`.
        bad_events: what to do with a record that cannot be made a row, as in `debezium`. A message
            of several rows is there once for each row that is bad.
        new_columns: what to do with a column that the table lacks, as in `debezium`.
        missing_columns: what to do if a row lacks a column of the table, as in `debezium`.
        ddl: what to do with the message of a statement that changes the source table itself, such
            as ALTER TABLE or TRUNCATE. `error`: it is bad. `ignore`: it is left out.

    Raises:
        MissingExtra: if pyspark is not installed.
        InvalidOption: for an argument with a wrong value, a frame without `value`, and a table
            without a primary key.
        UnsupportedFeature: for a column whose type no event can fill.
    """
    choices = {
        "bad_events": bad_events,
        "new_columns": new_columns,
        "missing_columns": missing_columns,
        "ddl": ddl,
    }
    envelope = _of_mysql("canal", table, source, choices)
    return _rows(df, table, envelope, operation_column, metadata, choices)


def maxwell(
    df: "SparkFrame",
    table: PaimonTable,
    source: str,
    *,
    operation_column: str = "op",
    metadata: Mapping[str, str] | None = None,
    bad_events: str = "fail",
    new_columns: str = "error",
    missing_columns: str = "error",
    ddl: str = "error",
) -> "SparkFrame":
    """The messages of Maxwell about one table of MySQL as rows, as `debezium` makes them.

    The rows of a bootstrap are written, too. An update of the primary key deletes the row of the
    old key. Messages about other tables are left out.

    Args:
        df: the records of a topic: the columns `key` and `value`, which hold JSON as text or
            bytes, and perhaps `topic`, `partition` and `offset`, which messages then name. It may
            be a stream or not.
        table: the table for which the rows are made. Its columns and keys are those that it has
            now.
        source: the table of MySQL, `database.table`, as the messages name it.
        operation_column: the name of the column that gets the operation.
        metadata: for columns of the table that the source does not have, the member of the message
            that fills them: `type`, `ts`, `xid`, `xoffset`, `position`, `gtid` or `server_id`.
        bad_events: what to do with a record that cannot be made a row, as in `debezium`.
        new_columns: what to do with a column that the table lacks, as in `debezium`.
        missing_columns: what to do if a row lacks a column of the table, as in `debezium`. With
            Maxwell's `output_nulls` = false a row lacks the columns that are NULL.
        ddl: what to do with the message of a statement that changes the source table itself, such
            as ALTER TABLE. `error`: it is bad. `ignore`: it is left out.

    Raises:
        MissingExtra: if pyspark is not installed.
        InvalidOption: for an argument with a wrong value, a frame without `key` or `value`, and a
            table without a primary key.
        UnsupportedFeature: for a column whose type no event can fill.
    """
    choices = {
        "bad_events": bad_events,
        "new_columns": new_columns,
        "missing_columns": missing_columns,
        "ddl": ddl,
    }
    envelope = _of_mysql("maxwell", table, source, choices)
    return _rows(df, table, envelope, operation_column, metadata, choices)


def _of_mysql(
    function: str, table: PaimonTable, source: str, choices: Mapping[str, str]
) -> "Envelope":
    """The envelope of the connector with that function."""
    envelopes = require(
        "paimon_stream.spark.mysql_envelopes", "spark", f"paimon_stream.cdc.{function}"
    )
    arguments = _arguments(table, choices)
    arguments.text("source", source)
    database, _, name = source.partition(".")
    if not database or not name:
        raise arguments.wrong("source", source, "a table of MySQL, such as shop.orders")
    of_function = {"canal": envelopes.CanalEnvelope, "maxwell": envelopes.MaxwellEnvelope}
    envelope: Envelope = of_function[function](
        database=database, table=name, ddl_is_ignored=choices["ddl"] == "ignore"
    )
    return envelope


def _arguments(table: PaimonTable, choices: Mapping[str, str]) -> Arguments:
    """Checks the table, and the arguments that take one of a few words."""
    if not isinstance(table, PaimonTable):
        raise Arguments("the table").wrong("table", table, "a PaimonTable")
    arguments = Arguments(table.location)
    for name, value in choices.items():
        if value not in _CHOICES[name]:
            raise arguments.wrong(name, value, f"one of {', '.join(_CHOICES[name])}")
    return arguments


def _rows(
    df: "SparkFrame",
    table: PaimonTable,
    envelope: "Envelope",
    operation_column: str,
    metadata: Mapping[str, str] | None,
    choices: Mapping[str, str],
) -> "SparkFrame":
    """The rows of the records, or the records that are bad."""
    events = require("paimon_stream.spark.change_events", "spark", "paimon_stream.cdc")
    target = events.EventTarget(
        fields=table.schema.fields,
        primary_keys=_keys(table),
        sequence_fields=_sequence_fields(table),
        metadata=_metadata(table, metadata, envelope),
        operation_column=_operation_column(table, operation_column),
        missing_are_null=choices["missing_columns"] == "null",
        new_are_ignored=choices["new_columns"] == "ignore",
    )
    _check_frame(df, table, envelope.columns)
    events.check_types(target)
    results = {"fail": events.changes, "leave-out": events.accepted, "only": events.refused}
    rows: SparkFrame = results[choices["bad_events"]](df, target, envelope)
    return rows


def _keys(table: PaimonTable) -> tuple[str, ...]:
    if not table.primary_keys:
        raise InvalidOption(
            f"{table.location} has no primary key, so changes of rows cannot be written to it. Create it with the "
            "primary key of the source table.",
            option="table",
        ).of_table(table.location)
    return table.primary_keys


def _sequence_fields(table: PaimonTable) -> tuple[str, ...]:
    names = Options(table.options).value(SEQUENCE_FIELD)
    return tuple(name.strip() for name in names.split(",") if name.strip())


def _metadata(
    table: PaimonTable, metadata: Mapping[str, str] | None, envelope: "Envelope"
) -> dict[str, str]:
    arguments = Arguments(table.location)
    members = arguments.mapping("metadata", metadata, '{"changed": "ts"}', texts=True)
    for column, member in members.items():
        if column not in table.schema.field_names:
            raise arguments.wrong("a key of metadata", column, "names of columns of the table")
        if column in table.primary_keys:
            raise arguments.wrong("a key of metadata", column, "columns outside the primary key")
        if not envelope.has_member(member):
            raise arguments.wrong(f"metadata[{column!r}]", member, envelope.members)
    return members


def _operation_column(table: PaimonTable, name: str) -> str:
    arguments = Arguments(table.location)
    arguments.text("operation_column", name)
    if name.lower() in (column.lower() for column in table.schema.field_names):
        raise arguments.wrong("operation_column", name, "a name that no column of the table has")
    return name


def _check_frame(df: Any, table: PaimonTable, needed: Sequence[str]) -> None:
    if not hasattr(df, "selectExpr"):
        raise Arguments(table.location).wrong("df", df, "a DataFrame of Spark")
    lacking = [name for name in needed if name not in df.columns]
    if lacking:
        raise InvalidOption(
            f"The DataFrame for {table.location} lacks the column {lacking[0]!r}. Give the columns of Spark's source "
            "'kafka' as they are.",
            option="df",
        ).of_table(table.location)
