"""The new values of an update: one for each column that changes, as an expression of Arrow, as SQL
text, or as a plain value. All expressions are computed with the old row.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import (
    IncompatibleSchema,
    InvalidData,
    InvalidOption,
    PaimonStreamError,
    naming,
)
from paimon_stream.format.arrow_types import arrow_schema
from paimon_stream.format.types import DataField, arrow_type
from paimon_stream.options import Arguments
from paimon_stream.read.condition_text import columns_of, value_in_text
from paimon_stream.read.sql_values import column_of
from paimon_stream.table.table import Table
from paimon_stream.write.conform import ColumnPlan

_EXAMPLE: Final = "{'amount': 'amount * 2'}"
_MISFITS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""What Arrow raises for a value that is not one of the column's type."""


@dataclass(frozen=True, slots=True)
class NewValues:
    """The new values of some columns. Called with rows that have all columns of the table, it
    returns the same rows with the new values.
    """

    table: Table
    expressions: Mapping[str, pc.Expression]
    scalars: Mapping[str, pa.Scalar]

    @classmethod
    def of(cls, table: Table, updates: object, new_values: object) -> "NewValues":
        """Checks the arguments of an update.

        Args:
            table: the table.
            updates: expressions of Arrow, or SQL texts, by column; None for none.
            new_values: plain values by column; None for none.

        Raises:
            InvalidOption: the arguments are not such mappings, name no column or one twice, or have
                a text that cannot be computed.
            IncompatibleSchema: a column is unknown, or an expression does not fit the columns.
            InvalidData: a value is not one of its column.
            UnsupportedFeature: a text has a subquery, or a function that is not computed here.
        """
        arguments = Arguments(table.location)
        computed = arguments.mapping("updates", updates, _EXAMPLE)
        plain = arguments.mapping("new_values", new_values, "{'region': 'north'}")
        twice = sorted(computed.keys() & plain.keys())
        if twice:
            raise InvalidOption(
                f"updates and new_values both name {', '.join(twice)}. Name each column once.",
                option="new_values",
            ).of_table(table.location)
        if not computed and not plain:
            raise InvalidOption(
                f"neither updates nor new_values names a column. Give one, such as updates={_EXAMPLE}.",
                option="updates",
            ).of_table(table.location)
        for name in (*computed, *plain):
            _check_column(table, name)
        expressions = {name: _expression(table, name, value) for name, value in computed.items()}
        scalars = {name: _scalar(table, name, value) for name, value in plain.items()}
        values = cls(table, expressions, scalars)
        values.check()
        return values

    def check(self) -> None:
        """Computes the values of no row. Raises `IncompatibleSchema` if an expression does not fit
        the columns.
        """
        schema = self.table.schema
        empty = arrow_schema(schema.fields).empty_table()
        for name, expression in self.expressions.items():
            try:
                column_of(empty, expression)
            except _MISFITS as misfit:
                raise IncompatibleSchema(
                    f"the new value {expression} of column {name!r} does not fit the columns: {_reason(misfit)}. "
                    f"The columns are: {', '.join(schema.field_names)}. Nothing was changed.",
                    column=name,
                ).of_table(self.table.location) from None
        (batch,) = empty.to_batches() or [_empty_batch(empty)]
        ColumnPlan.of(schema, self.table.location).conform(self(batch))

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with the new values. Raises `InvalidData` for a value that cannot be computed,
        or that its column cannot have.
        """
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        read = pa.Table.from_batches([rows])
        for name, expression in self.expressions.items():
            field = self.table.schema.field(name)
            try:
                columns[name] = _fitted(column_of(read, expression), field)
            except _MISFITS as error:
                raise InvalidData(
                    f"the new value {expression} of column {name!r} cannot be computed for a row: {_reason(error)}. "
                    "Nothing was changed.",
                    column=name,
                ).of_table(self.table.location) from None
        for name, scalar in self.scalars.items():
            columns[name] = _repeated(scalar, rows.num_rows)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _repeated(scalar: pa.Scalar, rows: int) -> pa.Array:
    """The same value for each row. Arrow repeats a nested value at least once."""
    return pa.repeat(scalar, rows) if rows else pa.nulls(0, scalar.type)


def _empty_batch(empty: pa.Table) -> pa.RecordBatch:
    arrays = [pa.nulls(0, column.type) for column in empty.schema]
    return pa.RecordBatch.from_arrays(arrays, schema=empty.schema)


def _check_column(table: Table, name: object) -> None:
    """Raises `IncompatibleSchema` if the table has no column of this name."""
    if name not in table.schema.by_name:
        raise IncompatibleSchema(
            f"there is no column {name!r} to update. The columns are: {', '.join(table.schema.field_names)}. "
            "Nothing was changed.",
            column=name,
        ).of_table(table.location)


def _expression(table: Table, name: str, value: object) -> pc.Expression:
    """The new value of a column as an expression."""
    if isinstance(value, pc.Expression):
        return value
    if isinstance(value, str):
        schema = table.schema
        with naming(table.location):
            return value_in_text(value, schema.field(name), columns_of(schema), "updates")
    raise InvalidOption(
        f"updates gives column {name!r} the value {value!r}. Give SQL text or a pyarrow.compute.Expression; plain "
        "values go to new_values.",
        option="updates",
    ).of_table(table.location)


def _scalar(table: Table, name: str, value: Any) -> pa.Scalar:
    """The new value of a column in the column's type."""
    type_ = table.schema.field(name).type
    target = arrow_type(type_)
    try:
        if isinstance(value, pa.Scalar):
            return value.cast(target)
        if _may_lose_a_fraction(value, target):
            return pa.scalar(value).cast(target)  # refuses what pa.scalar(value, target) cuts off
        return pa.scalar(value, target)
    except _MISFITS as misfit:
        raise InvalidData(
            f"new_values gives column {name!r} the value {value!r}, which is not one of its type {type_}: "
            f"{_reason(misfit)}. Nothing was changed.",
            column=name,
        ).of_table(table.location) from None


def _may_lose_a_fraction(value: object, target: pa.DataType) -> bool:
    """Whether Arrow would cut off a fraction of a number or of a second. Raises `ValueError` if it
    would cut off a time of day.
    """
    if isinstance(value, float):
        return bool(pa.types.is_integer(target))
    if isinstance(value, dt.datetime) and pa.types.is_date(target) and value.time() != dt.time.min:
        raise ValueError("a date has no time of day")
    if isinstance(value, dt.datetime):
        return bool(pa.types.is_timestamp(target))
    return isinstance(value, dt.time) and bool(pa.types.is_time(target))


def _fitted(values: pa.ChunkedArray, field: DataField) -> pa.Array:
    """Computed values in the type of their column, where numbers become numbers and no value
    changes but for the digits of floats. Other types are checked when the rows are written. Raises
    `pyarrow.ArrowException`.
    """
    array = values.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # pyarrow 18 returns one of these for no rows
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.nulls(0, array.type)
    target = arrow_type(field.type)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if _is_number(array.type) and _is_number(target):
        return array.cast(target)
    return array


def _is_number(type_: pa.DataType) -> bool:
    is_one = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(is_kind(type_) for is_kind in is_one)


def _reason(error: Exception) -> str:
    if isinstance(error, PaimonStreamError):
        return error.message.rstrip(".")
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
