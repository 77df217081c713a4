"""Casts one column of scalars to exactly the type that the table has for it, or refuses the column.
The error names the column and the number of rows. No conversion may change a value. If a conversion
would change one, an error says what to do instead (semantics.md §6.2).
"""

from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream import errors
from paimon_stream.format.arrow_types import PER_SECOND, count_not_utf8
from paimon_stream.format.types import MAX_LENGTH, DataType, TypeRoot

_WIDE: Final = Context(prec=100)
_MILLIS_PER_DAY: Final = 86_400_000
_REPLACE_NULLS: Final = "Filter NULLs out, or replace them with coalesce()."


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where values belong, for messages.

    Attributes:
        table: the table.
        column: the column.
        path: the path inside the column, which begins with a dot; empty for the column itself.
    """

    table: str
    column: str
    path: str = ""

    def inside(self, part: str) -> "Place":
        """The place of a member, an element, a key or a value inside this place."""
        return Place(table=self.table, column=self.column, path=f"{self.path}.{part}")

    def __str__(self) -> str:
        return f"Column {self.column + self.path!r} of {self.table or 'the table'}"

    @property
    def amount(self) -> str:
        """The placeholder of the count in the pattern of an error. The count is a number of rows.
        For nested values, it is a number of places, because their rows are not known.
        """
        return errors.PLACES if self.path else errors.ROWS

    def context(self, count: int) -> dict[str, Any]:
        """The context that an error carries for programs."""
        return {"table": self.table, "column": self.column + self.path, "count": count}


@dataclass(frozen=True, slots=True, kw_only=True)
class CastTarget:
    """The type that values are cast to.

    Attributes:
        type: the type in the table.
        arrow: the Arrow type that belongs to it.
        place: where the values belong.
    """

    type: DataType
    arrow: pa.DataType
    place: Place

    def inside(self, part: str, type_: DataType, arrow: pa.DataType) -> "CastTarget":
        """The target of a member, an element, a key or a value inside this target."""
        return CastTarget(type=type_, arrow=arrow, place=self.place.inside(part))


def check_nulls(
    column: pa.Array, type_: DataType, place: Place, advice: str = _REPLACE_NULLS
) -> None:
    """Checks that there are NULLs only where the type allows them.

    Args:
        column: the values.
        type_: the type of the values.
        place: where the values belong.
        advice: the sentence that says what to do about NULLs.

    Raises:
        NullInNotNull: if the column has NULLs and the type does not allow them.
    """
    if not type_.nullable and column.null_count:
        raise errors.NullInNotNull(
            f"{place} is NOT NULL, but the value is NULL in {place.amount}. {advice}",
            **place.context(column.null_count),
        )


def cast_scalar(column: pa.Array, target: CastTarget) -> pa.Array:
    """The column in the Arrow type of a scalar type. A column that already has this type is not
    copied.

    Args:
        column: the values.
        target: the scalar type, and where the values belong.

    Raises:
        IncompatibleSchema: for a type that cannot be cast, and for more digits than the target type
            has.
        NumericOverflow: for numbers out of range.
        ValueTooLong: for text and bytes that are too long.
        InvalidData: for text that is not UTF-8.
    """
    type_ = target.type
    if not column.type.equals(target.arrow):
        column = _converted(column, target)
    if type_.is_string:
        _check_text(column, target)
    if type_.is_timestamp:
        _check_digits(column, target)
    elif type_.precision < MAX_LENGTH and (type_.is_string or type_.is_binary):
        _check_length(column, target)
    return column


def _check_digits(column: pa.Array, target: CastTarget) -> None:
    """TIMESTAMP(p) is held in units of 3, 6 or 9 digits. The digits beyond p must be zero."""
    step = PER_SECOND[column.type.unit] // 10**target.type.precision
    if step <= 1:
        return
    values = column.view(pa.int64())
    cut = pc.multiply(pc.divide(values, step), step)
    changed = _count(pc.not_equal(cut, values))
    if changed:
        raise _loss(column, target, changed)


def _check_text(column: pa.Array, target: CastTarget) -> None:
    broken = count_not_utf8(column)
    if broken:
        place = target.place
        raise errors.InvalidData(
            f"{place} is {target.type}, but the value is not UTF-8 in {place.amount}. Read the source in its real "
            "encoding, repair the text (with make_valid_utf8() in Spark 4), or store it in a BYTES column.",
            **place.context(broken),
        )


def _check_length(column: pa.Array, target: CastTarget) -> None:
    """Checks the length of values. It is counted in code points for text and in bytes for
    BINARY.
    """
    type_ = target.type
    allowed_length = type_.precision
    # Bytes are counted first. That takes less time, and a text never has fewer bytes than code
    # points.
    most_bytes = pc.max(pc.binary_length(column)).as_py() or 0
    if most_bytes <= allowed_length:
        return
    lengths = pc.utf8_length(column) if type_.is_string else pc.binary_length(column)
    longer = _count(pc.greater(lengths, allowed_length))
    if longer:
        place = target.place
        unit = "characters" if type_.is_string else "bytes"
        raise errors.ValueTooLong(
            f"{place} is {type_}, but the value is longer in {place.amount}; one has {pc.max(lengths).as_py():,} "
            f"{unit}. Cut it with substring(), or widen the column.",
            **place.context(longer),
        )


def _converted(column: pa.Array, target: CastTarget) -> pa.Array:
    """The column in another Arrow type. Raises an error if the conversion would change a value."""
    source = column.type
    arrow = target.arrow
    if _same_family(source, arrow):
        return _cast(column, target)
    if target.type.root is TypeRoot.TIME and pa.types.is_integer(source):
        return _time_of_millis(column, target)
    if _is_exact_number(source) and _is_exact_number(arrow):
        outside = _count_outside(column, arrow)
        if outside:
            raise _overflow(target, outside)
        if _scale(source) <= _scale(arrow):
            if pa.types.is_decimal(arrow) and pa.types.is_integer(source):
                # DECIMAL(20, 0) holds any integer. Arrow casts no integer to a narrower DECIMAL.
                column = column.cast(pa.decimal128(20, 0))
            return _cast(column, target)
    raise errors.IncompatibleSchema(
        f"{target.place} is {target.type}, but the rows have {source} there. Cast the column first.",
        **target.place.context(len(column) - column.null_count),
        type=str(source),
    )


def _time_of_millis(column: pa.Array, target: CastTarget) -> pa.Array:
    """TIME values, made from milliseconds of the day. Rows have such milliseconds if Spark has no
    type TIME.
    """
    is_outside = pc.or_(pc.less(column, 0), pc.greater_equal(column, _MILLIS_PER_DAY))
    outside = _count(is_outside)
    if outside:
        raise _overflow(target, outside)
    return column.cast(pa.int32()).cast(target.arrow)


def _overflow(target: CastTarget, count: int) -> errors.NumericOverflow:
    place = target.place
    return errors.NumericOverflow(
        f"{place} is {target.type}, but the value is out of its range in {place.amount}. "
        "Widen the column, or fix the values.",
        **place.context(count),
    )


def _cast(column: pa.Array, target: CastTarget) -> pa.Array:
    try:
        return column.cast(target.arrow)
    except pa.ArrowInvalid:
        raise _loss(column, target, _count_changed(column, target.arrow)) from None


def _loss(column: pa.Array, target: CastTarget, count: int) -> errors.IncompatibleSchema:
    return errors.IncompatibleSchema(
        f"{target.place} is {target.type}, but the rows have {column.type} there, and not every value can be stored "
        "without loss. Cast the column first.",
        **target.place.context(count),
        type=str(column.type),
    )


def _same_family(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a checked cast between the two types either keeps every value or fails."""
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        return (source.tz is None) == (target.tz is None)
    if pa.types.is_string(target):
        return pa.types.is_large_string(source) or str(source) == "string_view"
    if pa.types.is_binary(target):
        return (
            pa.types.is_large_binary(source)
            or pa.types.is_fixed_size_binary(source)
            or str(source) == "binary_view"
        )
    if pa.types.is_float64(target):
        return bool(
            pa.types.is_float32(source)
            or (pa.types.is_signed_integer(source) and source.bit_width <= 32)
        )
    if pa.types.is_float32(target):
        return bool(pa.types.is_signed_integer(source) and source.bit_width <= 16)
    return bool(pa.types.is_time(source) and pa.types.is_time(target))


def _is_exact_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_decimal(type_))


def _scale(type_: pa.DataType) -> int:
    return int(type_.scale) if pa.types.is_decimal(type_) else 0


def _limits(type_: pa.DataType) -> tuple[Decimal, Decimal]:
    """The smallest and the largest number of an integer or decimal type."""
    if pa.types.is_decimal(type_):
        most = Decimal("9" * type_.precision).scaleb(-type_.scale, _WIDE)
        return most.copy_negate(), most
    if pa.types.is_signed_integer(type_):
        return Decimal(-(2 ** (type_.bit_width - 1))), Decimal(2 ** (type_.bit_width - 1) - 1)
    return Decimal(0), Decimal(2**type_.bit_width - 1)


def _count_outside(column: pa.Array, target: pa.DataType) -> int:
    """How many numbers are outside the target's range, regardless of fraction digits."""
    source_least, source_most = _limits(column.type)
    target_least, target_most = _limits(target)
    step = Decimal(1).scaleb(-_scale(column.type))
    low = _floored(target_least, step)
    high = _floored(target_most, step)
    outside = 0
    if source_least < low:
        outside += _count(pc.less(column, _scalar(low, column.type)))
    if source_most > high:
        outside += _count(pc.greater(column, _scalar(high, column.type)))
    return outside


def _floored(limit: Decimal, step: Decimal) -> Decimal:
    """The limit, rounded towards zero to the digits that the source can have."""
    return limit.quantize(step, rounding="ROUND_DOWN", context=_WIDE)


def _scalar(value: Decimal, type_: pa.DataType) -> pa.Scalar:
    if pa.types.is_decimal(type_):
        return pa.scalar(value, type_)
    return pa.scalar(int(value), type_)


def _count_changed(column: pa.Array, target: pa.DataType) -> int:
    """How many values an unchecked cast would change. The result is at least one, because the
    checked cast failed.
    """
    try:
        back = column.cast(target, safe=False).cast(column.type, safe=False)
        return max(1, _count(pc.not_equal(back, column)))
    except pa.ArrowException:
        return max(1, int(len(column) - column.null_count))


def _count(mask: pa.Array) -> int:
    """How many values of the mask are true."""
    return int(pc.sum(mask).as_py() or 0)
