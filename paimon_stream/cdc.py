"""Change events of Debezium as rows for a table with a primary key."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import InvalidOption
from paimon_stream.extras import require
from paimon_stream.options import SEQUENCE_FIELD, Arguments, Options

if TYPE_CHECKING:
    from paimon_stream.spark.types import SparkFrame

__all__ = ["debezium"]

_MEMBERS = ("op", "ts_ms", "ts_us", "ts_ns")
_CHOICES = {
    "bad_events": ("fail", "leave-out", "only"),
    "new_columns": ("error", "ignore"),
    "missing_columns": ("error", "null"),
    "truncates": ("error", "ignore"),
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
    events = require("paimon_stream.spark.debezium", "spark", "paimon_stream.cdc.debezium")
    if not isinstance(table, PaimonTable):
        raise Arguments("the table").wrong("table", table, "a PaimonTable")
    arguments = Arguments(table.location)
    choices = {
        "bad_events": bad_events,
        "new_columns": new_columns,
        "missing_columns": missing_columns,
        "truncates": truncates,
        "decimal_handling_mode": decimal_handling_mode,
        "time_precision_mode": time_precision_mode,
        "binary_handling_mode": binary_handling_mode,
    }
    for name, value in choices.items():
        if value not in _CHOICES[name]:
            raise arguments.wrong(name, value, f"one of {', '.join(_CHOICES[name])}")
    arguments.text("unavailable_value_placeholder", unavailable_value_placeholder)
    target = events.EventTarget(
        fields=table.schema.fields,
        primary_keys=_keys(table),
        sequence_fields=_sequence_fields(table),
        metadata=_metadata(table, metadata),
        operation_column=_operation_column(table, operation_column),
        missing_are_null=missing_columns == "null",
        new_are_ignored=new_columns == "ignore",
        truncates_are_ignored=truncates == "ignore",
    )
    _check_frame(df, table)
    events.check_types(target)
    encoding = events.Encoding(
        decimal_handling_mode=decimal_handling_mode,
        time_precision_mode=time_precision_mode,
        binary_handling_mode=binary_handling_mode,
        unavailable_value_placeholder=unavailable_value_placeholder,
    )
    results = {"fail": events.changes, "leave-out": events.accepted, "only": events.refused}
    return results[bad_events](df, target, encoding)


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


def _metadata(table: PaimonTable, metadata: Mapping[str, str] | None) -> dict[str, str]:
    arguments = Arguments(table.location)
    members = arguments.mapping("metadata", metadata, '{"lsn": "source.lsn"}', texts=True)
    for column, member in members.items():
        if column not in table.schema.field_names:
            raise arguments.wrong("a key of metadata", column, "names of columns of the table")
        if column in table.primary_keys:
            raise arguments.wrong("a key of metadata", column, "columns outside the primary key")
        prefix, _, name = member.rpartition(".")
        if member not in _MEMBERS and not (prefix == "source" and name.isidentifier()):
            raise arguments.wrong(
                f"metadata[{column!r}]",
                member,
                f"{', '.join(_MEMBERS)} or a member such as source.lsn",
            )
    return members


def _operation_column(table: PaimonTable, name: str) -> str:
    arguments = Arguments(table.location)
    arguments.text("operation_column", name)
    if name.lower() in (column.lower() for column in table.schema.field_names):
        raise arguments.wrong("operation_column", name, "a name that no column of the table has")
    return name


def _check_frame(df: Any, table: PaimonTable) -> None:
    if not hasattr(df, "selectExpr"):
        raise Arguments(table.location).wrong("df", df, "a DataFrame of Spark")
    lacking = [name for name in ("key", "value") if name not in df.columns]
    if lacking:
        raise InvalidOption(
            f"The DataFrame for {table.location} lacks the column {lacking[0]!r}. Give the columns of Spark's source "
            "'kafka' as they are.",
            option="df",
        ).of_table(table.location)
