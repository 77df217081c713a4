"""Makes incoming Arrow batches fit the table exactly: columns by name, types by the table's, NULLs checked.

Spark has selected and cast the columns before; here it is verified once more, because a wrong name or
unit in a data file reads back as silent NULLs or wrong values (format.md §7.1, §7.4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import IncompatibleSchema, NullInNotNull, NumericOverflow, UnsupportedFeature
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import MAX_LENGTH, DataField, DataType, TypeRoot, arrow_type

__all__ = ["ColumnPlan", "check_types", "conform", "file_schema"]

_PLAIN: Final = {
    TypeRoot.BOOLEAN, TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT,
    TypeRoot.FLOAT, TypeRoot.DOUBLE, TypeRoot.DECIMAL, TypeRoot.DATE,
}  # fmt: skip
_MICROS: Final = 6
_WIDE: Final = Context(prec=100)


def check_types(schema: TableSchema, table: str = "") -> None:
    """Raises `UnsupportedFeature` for the first column whose type cannot be written yet.

    Written are BOOLEAN, the integers, FLOAT, DOUBLE, DECIMAL, STRING, BYTES, DATE, TIMESTAMP(6) and
    TIMESTAMP(6) WITH LOCAL TIME ZONE. `table` is for the message.
    """
    for one in schema.fields:
        if not _is_writable(one.type):
            raise UnsupportedFeature(
                f"Column {one.name!r} of {table or 'the table'} is {one.type}; this type cannot be written "
                "yet. Use STRING, BYTES, DECIMAL, a number, BOOLEAN, DATE, TIMESTAMP(6) or "
                "TIMESTAMP_LTZ(6).",
                table=table,
                column=one.name,
                type=str(one.type),
            )


def _is_writable(type_: DataType) -> bool:
    if type_.root in (TypeRoot.VARCHAR, TypeRoot.VARBINARY):
        return type_.precision == MAX_LENGTH
    if type_.is_timestamp:
        return type_.precision == _MICROS
    return type_.root in _PLAIN


def file_schema(schema: TableSchema) -> pa.Schema:
    """The Arrow schema of the table's data files: columns in table order, NOT NULL ones not nullable,
    each with its field id as Parquet field id (format.md §7.1)."""
    return pa.schema([_file_field(one) for one in schema.fields])


def _file_field(one: DataField) -> pa.Field:
    ids = {b"PARQUET:field_id": str(one.id).encode()}
    return pa.field(one.name, arrow_type(one.type), nullable=one.type.nullable, metadata=ids)


def conform(batch: pa.RecordBatch, schema: TableSchema, table: str = "") -> pa.RecordBatch:
    """One batch in the table's columns; see `ColumnPlan.conform`, which is for many."""
    return ColumnPlan.of(schema, table).conform(batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPlan:
    """What every batch for one table has to look like. `table` is its location, for messages."""

    table: str
    fields: tuple[DataField, ...]
    arrow: pa.Schema

    @classmethod
    def of(cls, schema: TableSchema, table: str = "") -> ColumnPlan:
        """The plan of that schema."""
        return cls(table=table, fields=schema.fields, arrow=file_schema(schema))

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the table's columns in table order and exactly of `file_schema`'s types. Columns
        that fit already are not copied.

        Other types are converted where no value can change: wider integers and decimals, any time zone
        to UTC, other units that hold the same instant, large and dictionary-encoded strings. Raises
        `IncompatibleSchema` for missing, unknown and ambiguous columns and for other types,
        `NumericOverflow` for numbers out of range, `NullInNotNull`; each with table, column and count.
        """
        columns = [
            self._fitted(batch.column(position), one, target)
            for position, one, target in zip(
                self._positions(batch.schema.names), self.fields, self.arrow.types, strict=True
            )
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow)

    def _positions(self, names: Sequence[str]) -> Sequence[int]:
        wanted = self.arrow.names
        if names == wanted:
            return range(len(names))
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            raise self._misfit(f"have {_listed(twice)} more than once. Name every column once", twice[0])
        missing = [name for name in wanted if name not in names]
        if missing:
            raise self._misfit(f"lack {_listed(missing)}. Select every column of the table", missing[0])
        extra = [name for name in names if name not in wanted]
        if extra:
            raise self._misfit(f"have {_listed(extra)}, which the table has not. Drop it", extra[0])
        return [names.index(name) for name in wanted]

    def _misfit(self, what: str, column: str) -> IncompatibleSchema:
        return IncompatibleSchema(
            f"The rows for {self.table or 'the table'} {what}.", table=self.table, column=column
        )

    def _fitted(self, column: pa.Array, one: DataField, target: pa.DataType) -> pa.Array:
        if not column.type.equals(target):
            column = self._converted(column, one, target)
        if not one.type.nullable and column.null_count:
            count = column.null_count
            raise NullInNotNull(
                f"Column {one.name!r} of {self.table or 'the table'} is NOT NULL, but {count:,} of "
                f"{len(column):,} rows are NULL there. Filter them out, or fill them with coalesce().",
                table=self.table,
                column=one.name,
                count=count,
            )
        return column

    def _converted(self, column: pa.Array, one: DataField, target: pa.DataType) -> pa.Array:
        source = column.type
        if pa.types.is_null(source):
            return pa.nulls(len(column), target)
        if pa.types.is_dictionary(source):
            return self._fitted(column.dictionary_decode(), one, target)
        if _same_family(source, target):
            return self._cast(column, one, target)
        if _is_exact_number(source) and _is_exact_number(target):
            outside = _count_outside(column, target)
            if outside:
                raise NumericOverflow(
                    f"Column {one.name!r} of {self.table or 'the table'} is {one.type}; {outside:,} of "
                    f"{len(column):,} values are out of its range. Widen the column, or fix the values.",
                    table=self.table,
                    column=one.name,
                    count=outside,
                )
            if _scale(source) <= _scale(target):
                return self._cast(_as_decimal(column, target), one, target)
        raise self._other_type(column, one, len(column) - column.null_count)

    def _cast(self, column: pa.Array, one: DataField, target: pa.DataType) -> pa.Array:
        try:
            return column.cast(target)
        except pa.ArrowInvalid:
            raise self._other_type(column, one, _count_changed(column, target)) from None

    def _other_type(self, column: pa.Array, one: DataField, count: int) -> IncompatibleSchema:
        return IncompatibleSchema(
            f"Column {one.name!r} of {self.table or 'the table'} is {one.type}; rows bring {column.type}, "
            f"{count:,} of {len(column):,} values cannot be stored without loss. Cast the column first.",
            table=self.table,
            column=one.name,
            count=count,
            type=str(column.type),
        )


def _listed(names: Sequence[str]) -> str:
    return "column " + ", ".join(repr(name) for name in names)


def _same_family(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a checked cast between the two keeps every value or fails."""
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        return (source.tz is None) == (target.tz is None)
    if pa.types.is_string(target):
        return pa.types.is_large_string(source) or _is_view(source, "string_view")
    if pa.types.is_binary(target):
        return (
            pa.types.is_large_binary(source)
            or pa.types.is_fixed_size_binary(source)
            or _is_view(source, "binary_view")
        )
    if pa.types.is_float64(target):
        return bool(
            pa.types.is_float32(source) or (pa.types.is_signed_integer(source) and source.bit_width <= 32)
        )
    if pa.types.is_float32(target):
        return bool(pa.types.is_signed_integer(source) and source.bit_width <= 16)
    return False


def _is_view(type_: pa.DataType, name: str) -> bool:
    return str(type_) == name


def _is_exact_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_decimal(type_))


def _as_decimal(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Integers for a decimal column, in a decimal that holds any integer: Arrow refuses the direct way."""
    widened = pa.types.is_decimal(target) and pa.types.is_integer(column.type)
    return column.cast(pa.decimal128(20, 0)) if widened else column


def _scale(type_: pa.DataType) -> int:
    return int(type_.scale) if pa.types.is_decimal(type_) else 0


def _limits(type_: pa.DataType) -> tuple[Decimal, Decimal]:
    """The least and the greatest value of an integer or decimal type."""
    if pa.types.is_decimal(type_):
        most = Decimal("9" * type_.precision).scaleb(-type_.scale, _WIDE)
        return most.copy_negate(), most
    if pa.types.is_signed_integer(type_):
        return Decimal(-(2 ** (type_.bit_width - 1))), Decimal(2 ** (type_.bit_width - 1) - 1)
    return Decimal(0), Decimal(2**type_.bit_width - 1)


def _count_outside(column: pa.Array, target: pa.DataType) -> int:
    """How many numbers are beyond the target's range, its fraction digits aside."""
    least, most = _limits(column.type)
    low, high = _limits(target)
    step = Decimal(1).scaleb(-_scale(column.type))
    low, high = _floored(low, step), _floored(high, step)
    beyond = 0
    if least < low:
        beyond += _count(pc.less(column, _scalar(low, column.type)))
    if most > high:
        beyond += _count(pc.greater(column, _scalar(high, column.type)))
    return beyond


def _floored(limit: Decimal, step: Decimal) -> Decimal:
    """The limit without the digits that the source cannot have, towards zero."""
    return limit.quantize(step, rounding="ROUND_DOWN", context=_WIDE)


def _scalar(value: Decimal, type_: pa.DataType) -> pa.Scalar:
    return pa.scalar(value if pa.types.is_decimal(type_) else int(value), type_)


def _count_changed(column: pa.Array, target: pa.DataType) -> int:
    """How many values an unchecked cast would change; at least one, as the checked cast failed."""
    try:
        back = column.cast(target, safe=False).cast(column.type, safe=False)
        return max(1, _count(pc.not_equal(back, column)))
    except pa.ArrowException:
        return max(1, int(len(column) - column.null_count))


def _count(mask: Any) -> int:
    return int(pc.sum(mask).as_py() or 0)
