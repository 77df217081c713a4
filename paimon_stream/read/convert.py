"""Converts the columns of a file to columns of the table. Columns are matched by field id, also
inside nested types, and get the types that they have today.

A file has the names and types of the schema that it was written with. Each of today's columns, and
each member of a ROW, is looked up in the file by its id, because its name, position or type may
have changed. A column that the file does not have is NULL. Java does the same: a column's default
value applies to rows written without the column, not to rows that are older than the column (tried
on 1.4.2).

Values are converted as Java converts them when it reads (tried on 1.4.2), with the same loss of
precision. Integers wrap around. DECIMALs that do not fit become NULL. Strings are cut and padded.
`convert_decimals` rounds DECIMALs in 256 bits, `convert_texts` makes text and bytes, and
`convert_parsed` parses text. Conversions to or from the time zone of a JVM, and those to the text
of a FLOAT or DOUBLE, which depends on the version of Java, are refused. No file or row group is
skipped because of the statistics of a column whose type has changed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import (
    PLACES,
    FormatError,
    IncompatibleSchema,
    InvalidData,
    UnsupportedFeature,
)
from paimon_stream.format.arrow_types import PER_SECOND, count_not_utf8, with_elements, with_entries
from paimon_stream.format.types import MAX_LENGTH, DataField, DataType, TypeRoot, arrow_type
from paimon_stream.merge.merge_order import nulls
from paimon_stream.read.convert_decimals import (
    float_to_decimal,
    to_decimal,
    to_float,
    to_integer,
)
from paimon_stream.read.convert_parsed import PARSERS, NotParsed, parsed
from paimon_stream.read.convert_texts import nested_to_string, to_binary, to_string

Leaf = Callable[[pa.Array, DataType], pa.Array]
"""Turns an array that a file format gives for a type that is not nested into the type's Arrow
type.
"""
_INTEGERS: Final = {TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT}
_SECONDS: Final = {TypeRoot.INT, TypeRoot.BIGINT}
_FLOATS: Final = {TypeRoot.FLOAT, TypeRoot.DOUBLE}
_STRINGS: Final = {TypeRoot.CHAR, TypeRoot.VARCHAR}
_BINARIES: Final = {TypeRoot.BINARY, TypeRoot.VARBINARY}
_CASTS: Final = (
    (_INTEGERS | {TypeRoot.DECIMAL}, _INTEGERS | _FLOATS | {TypeRoot.DECIMAL}),
    (_FLOATS, _INTEGERS | _FLOATS | {TypeRoot.DECIMAL}),
    (_STRINGS | _BINARIES | _INTEGERS | {TypeRoot.BOOLEAN, TypeRoot.DECIMAL}, _STRINGS),
    ({TypeRoot.DATE, TypeRoot.TIME, TypeRoot.TIMESTAMP}, _STRINGS),
    (_STRINGS | _BINARIES, _BINARIES),
    (_STRINGS, set(PARSERS)),
    ({TypeRoot.BOOLEAN}, _INTEGERS | _FLOATS | {TypeRoot.DECIMAL}),
    (_INTEGERS, {TypeRoot.BOOLEAN}),
    ({TypeRoot.DATE, TypeRoot.TIME}, {TypeRoot.TIMESTAMP}),
    ({TypeRoot.TIMESTAMP}, {TypeRoot.DATE, TypeRoot.TIME}),
    (_SECONDS, {TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ}),
    ({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ}, _SECONDS),
    ({TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW}, _STRINGS),
)
"""From which types to which types values are converted. A nested type becomes text only if the
types inside it do (`_text_inside`)."""
_OF_ANOTHER_ZONE: Final = "it depends on the time zone of each JVM"
REFUSED: Final = (
    (_FLOATS, _STRINGS, "the text of the number depends on the version of Java"),
    (
        {TypeRoot.TIMESTAMP_LTZ},
        _STRINGS | {TypeRoot.DATE, TypeRoot.TIME, TypeRoot.TIMESTAMP},
        _OF_ANOTHER_ZONE,
    ),
    (
        _STRINGS | {TypeRoot.DATE, TypeRoot.TIME, TypeRoot.TIMESTAMP},
        {TypeRoot.TIMESTAMP_LTZ},
        _OF_ANOTHER_ZONE,
    ),
)
"""Conversions that Java does and this package does not: from which types, to which types, and why
not.
"""

_MILLIS_PER_DAY: Final = 86_400_000
_FIRST_SECOND: Final = -(2**63) // PER_SECOND["ns"] + 1
_LAST_SECOND: Final = 2**63 // PER_SECOND["ns"] - 1
"""Between these epoch seconds, nanoseconds have 64 bits."""
Longs = npt.NDArray[np.int64]


class Chunk(NamedTuple):
    """Some rows of a file.

    Attributes:
        rows: how many rows there are.
        columns: the columns that the file has, by their names in it.
        leaf: a function that turns the arrays of `columns` into values of the columns' types.
        skipped: whether no column was read, because no row can fulfil the condition.
    """

    rows: int
    columns: Mapping[str, pa.Array]
    leaf: Leaf
    skipped: bool = False


def nothing_but_rows(rows: int, batch_rows: int) -> Iterator[Chunk]:
    """Chunks of at most `batch_rows` rows without any column."""
    for start in range(0, rows, batch_rows):
        yield Chunk(min(batch_rows, rows - start), MappingProxyType({}), normalize)


def check_evolution(column: str, source: DataType, target: DataType, later: bool = False) -> None:
    """Checks that values of one type can be read as another.

    Args:
        column: the column's name, for messages.
        source: the type in a file.
        target: the type that is wanted.
        later: whether `source` is the newer of the two types. Values of a newer type may not fit an
            older one.

    Raises:
        UnsupportedFeature: there is no such conversion.
        IncompatibleSchema: `source` is newer than `target` and is another type.
    """
    are_both_nested = source.is_nested and target.is_nested
    are_equal = source.with_nullable(target.nullable) == target
    if later and not are_both_nested and not are_equal:
        raise IncompatibleSchema(
            f"Column {column!r} is {source} in files of the table, and was {target} when the table "
            "was loaded. Load the table again, and restart a query that reads it.",
            column=column,
        )
    if not _is_castable(source.root, target.root):
        raise UnsupportedFeature(
            f"Column {column!r} was {source} in files of the table and is {target} now; this "
            f"release does not convert between them{_why_refused(source.root, target.root)}. Select "
            "other columns, or read with an engine on the JVM.",
            column=column,
            type=str(target),
        )
    if source.is_nested and target.is_string:
        check_evolution(column, source, _text_inside(source))
        return
    for before, now in zip(_parameters(source), _parameters(target), strict=True):
        check_evolution(column, before, now, later)
    for member in target.fields:
        old_member = _member(source, member.id)
        if old_member is not None:
            check_evolution(f"{column}.{member.name}", old_member.type, member.type, later)


def _is_castable(old: TypeRoot, new: TypeRoot) -> bool:
    return old is new or any(old in sources and new in targets for sources, targets in _CASTS)


def _why_refused(old: TypeRoot, new: TypeRoot) -> str:
    """Why the conversion is refused, as the end of a sentence. The text is empty if Java does not
    convert these types either.
    """
    for sources, targets, reason in REFUSED:
        if old in sources and new in targets:
            return f", because {reason}"
    return ""


_STRING: Final = DataType(root=TypeRoot.VARCHAR, precision=MAX_LENGTH)


def _text_inside(type_: DataType) -> DataType:
    """The same ARRAY, MAP or ROW with STRING as its innermost types. A nested value gets this type
    before it becomes text. A MULTISET has no text in Java. Here it counts as an innermost type, and
    its conversion to STRING is then refused.
    """
    if not type_.is_nested or type_.root is TypeRoot.MULTISET:
        return _STRING
    return replace(
        type_,
        key=None if type_.key is None else _text_inside(type_.key),
        element=None if type_.element is None else _text_inside(type_.element),
        fields=tuple(replace(member, type=_text_inside(member.type)) for member in type_.fields),
    )


def _parameters(type_: DataType) -> list[DataType]:
    """The types of the keys and items of a nested type."""
    return [parameter for parameter in (type_.key, type_.element) if parameter is not None]


def _member(type_: DataType, id_: int) -> DataField | None:
    """The member of a ROW with this field id; None if there is none."""
    return next((member for member in type_.fields if member.id == id_), None)


def convert(
    array: pa.Array, source: DataType, target: DataType, leaf: Leaf, column: str
) -> pa.Array:
    """Converts a column of a file, or values nested in it.

    Args:
        array: the values, in any Arrow type that the file format gives for `source`.
        source: the type in the file.
        target: the type that is wanted. `check_evolution` allows it.
        leaf: turns arrays that are not nested into the Arrow type of `source`.
        column: the column's name, for messages.

    Returns:
        An array of `target`'s Arrow type.

    Raises:
        FormatError: the array does not hold `source`.
        InvalidData: text is not UTF-8 (Java may write such text), text does not parse, or a number
            that becomes a DECIMAL is NaN or infinite.
        UnsupportedFeature: Arrow cannot hold a moment in the finer unit of `target`.
    """
    if target.root is TypeRoot.ROW:
        return _row(array, source, target, leaf, column)
    if target.root is TypeRoot.ARRAY:
        return _array(array, source, target, leaf, column)
    if target.is_nested:
        return _map(array, source, target, leaf, column)
    if source.is_nested:
        # Java ignores the length of a CHAR or VARCHAR when it turns a nested value into text.
        return nested_to_string(convert(array, source, _text_inside(source), leaf, column))
    return _atomic(array, source, target, leaf, column)


def _atomic(
    array: pa.Array, source: DataType, target: DataType, leaf: Leaf, column: str
) -> pa.Array:
    values = leaf(array, source)
    if _must_be_utf8(source, target):
        _check_utf8(values, column)
    wanted = arrow_type(target)
    try:
        converted = _cast(values, source, target)
    except OverflowError:
        raise _beyond(column, source, target) from None
    except NotParsed as error:
        raise _not_parsed(column, source, target, error.count) from None
    return converted if converted.type.equals(wanted) else converted.cast(wanted)


def _must_be_utf8(source: DataType, target: DataType) -> bool:
    """Whether bytes become text, or text becomes anything but bytes."""
    if source.is_binary:
        return target.is_string
    return source.is_string and not target.is_binary


def _beyond(column: str, source: DataType, target: DataType) -> UnsupportedFeature:
    wanted = arrow_type(target)
    moments_beyond = "moments"
    if wanted.unit == "ns":
        moments_beyond = "moments before 1677-09-21 or after 2262-04-11"
    return UnsupportedFeature(
        f"Column {column!r} was {source} in files of the table and is {target} now. It holds "
        f"{moments_beyond} that Arrow cannot hold as {wanted}. Select other columns, or have Java "
        "Paimon change the column's type to a TIMESTAMP of at most 6 digits.",
        column=column,
        type=str(target),
    )


def _not_parsed(column: str, source: DataType, target: DataType, count: int) -> InvalidData:
    values = "texts that are no such value" if source.is_string else "NaN or infinities"
    return InvalidData(
        f"column {column!r} was {source} in files of the table and is {target} now, but holds "
        f"{values}, in at least {PLACES}. Java Paimon fails on them, too, unless newer rows of "
        "their keys replace them. Select other columns, or have Java Paimon change the column's "
        "type back",
        column=column,
        count=count,
    )


def _check_utf8(values: pa.Array, column: str) -> None:
    """Raises `InvalidData` if a value is not UTF-8. The message names `column`."""
    broken = count_not_utf8(values)
    if broken:
        raise InvalidData(
            f"column {column!r} holds text that is not UTF-8, in at least {PLACES}. Another engine "
            "wrote it; Java Paimon keeps such bytes as they are. Select other columns, or repair "
            "the rows with an engine on the JVM",
            column=column,
            count=broken,
        )


def _row(array: pa.Array, source: DataType, target: DataType, leaf: Leaf, column: str) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise _misfit(array, source)
    wanted = arrow_type(target)
    members = [
        _member_array(array, source, member, leaf, f"{column}.{member.name}")
        for member in target.fields
    ]
    is_null = array.is_null() if array.null_count else None
    if members:
        return pa.StructArray.from_arrays(members, fields=list(wanted), mask=is_null)
    # If the list of members is empty, Arrow cannot know how many structs there are.
    validity = None if is_null is None else pc.invert(is_null).buffers()[1]
    return pa.Array.from_buffers(wanted, len(array), [validity])


def _member_array(
    array: pa.Array, source: DataType, member: DataField, leaf: Leaf, column: str
) -> pa.Array:
    """The values of one of today's members in an array of structs; NULL if the structs lack it."""
    before = _member(source, member.id)
    if before is None:
        return pa.nulls(len(array), arrow_type(member.type))
    position = array.type.get_field_index(before.name)
    if position < 0:
        raise _misfit(array, source)
    return convert(array.field(position), before.type, member.type, leaf, column)


def _array(
    array: pa.Array, source: DataType, target: DataType, leaf: Leaf, column: str
) -> pa.Array:
    if pa.types.is_large_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    if not pa.types.is_list(array.type) or source.element is None or target.element is None:
        raise _misfit(array, source)
    elements = convert(array.values, source.element, target.element, leaf, f"{column}.element")
    return with_elements(array, arrow_type(target), elements)


def _map(array: pa.Array, source: DataType, target: DataType, leaf: Leaf, column: str) -> pa.Array:
    if not pa.types.is_map(array.type):
        raise _misfit(array, source)
    old_key, old_value = source.entry
    new_key, new_value = target.entry
    keys = convert(array.keys, old_key, new_key, leaf, f"{column}.key")
    values = convert(array.items, old_value, new_value, leaf, f"{column}.value")
    return with_entries(array, arrow_type(target), keys, values)


def _misfit(array: pa.Array, type_: DataType) -> FormatError:
    return FormatError(f"its schema says {type_}, but it holds {array.type}")


def normalize(array: pa.Array, type_: DataType) -> pa.Array:
    """The `Leaf` for arrays that hold `type_` in any width, unit and encoding. Raises `FormatError`
    for other arrays.
    """
    wanted = arrow_type(type_)
    if array.type.equals(wanted):
        return array
    try:
        if type_.is_timestamp:
            return _floor_to(array, wanted)
        if type_.root in (TypeRoot.TIME, TypeRoot.DATE) and pa.types.is_int32(array.type):
            return array.view(wanted)
        return array.cast(wanted)
    except (pa.ArrowException, KeyError, AttributeError, TypeError, ValueError):
        raise _misfit(array, type_) from None


def _cast(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """Converts an array from `source`'s Arrow type to `target`'s. Only for types that
    `check_evolution` allows. Raises `OverflowError` for moments that `target`'s Arrow type cannot
    hold. Raises `NotParsed` for text that does not parse, and for numbers that are not finite and
    should become DECIMALs.
    """
    wanted = arrow_type(target)
    if source.with_nullable(True) == target.with_nullable(True):
        return array
    old = source.root
    new = target.root
    if new in _STRINGS:
        return to_string(array, source, target)
    if new in _BINARIES:
        return to_binary(array, target)
    if old in _STRINGS:
        return parsed(array, target)
    if source.is_timestamp and target.is_timestamp:
        return _to_precision(array, source, target)
    if target.is_timestamp:
        return _to_timestamp(array, source, target)
    if source.is_timestamp:
        return _from_timestamp(array, target)
    if old in _FLOATS and new is TypeRoot.DECIMAL:
        _refuse_not_finite(array)
        return float_to_decimal(array, wanted)
    if new is TypeRoot.DECIMAL:
        return to_decimal(array, wanted)
    if old is TypeRoot.DECIMAL and new in _FLOATS:
        return to_float(array, wanted)
    if old is TypeRoot.DECIMAL:
        return to_integer(array, wanted)
    if old in _FLOATS and new in _INTEGERS:
        return _truncated(array, wanted)
    return array.cast(wanted, safe=False)


def _refuse_not_finite(array: pa.Array) -> None:
    """Raises `NotParsed` if a FLOAT or DOUBLE is NaN or infinite."""
    count = pc.sum(pc.invert(pc.is_finite(array))).as_py()
    if count:
        raise NotParsed(count)


def _to_timestamp(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """Timestamps, made from days, from the milliseconds of a TIME, or from integers, which are
    epoch seconds. Raises `OverflowError`.
    """
    wanted = arrow_type(target)
    if source.root is TypeRoot.TIME:
        # Java keeps all milliseconds, whatever the precision is.
        return array.cast(pa.int32()).cast(pa.int64()).view(pa.timestamp("ms")).cast(wanted)
    if source.root is TypeRoot.DATE:
        return _finer(array.cast(pa.timestamp("s")), wanted)
    seconds = array.cast(pa.int64()).view(pa.timestamp("s", wanted.tz))
    return _finer(seconds, wanted)


def _from_timestamp(array: pa.Array, target: DataType) -> pa.Array:
    """Timestamps as days, as times of the day, or as integers, which are epoch seconds. As in Java,
    digits beyond milliseconds are dropped by rounding down, and days and seconds are then rounded
    towards zero. The TIME of a moment before 1970 is counted from the beginning of that moment's
    day. Java 1.4 returns a negative TIME instead.
    """
    millis = _floor_to(array, pa.timestamp("ms"))
    if target.root is TypeRoot.TIME:
        of_day = _numbers(millis, lambda values: values % _MILLIS_PER_DAY, np.int32)
        return of_day.view(arrow_type(target))
    if target.root is TypeRoot.DATE:
        days = _numbers(millis, lambda values: _toward_zero(values, _MILLIS_PER_DAY), np.int32)
        return days.view(pa.date32())
    seconds = _numbers(millis, lambda values: _toward_zero(values, PER_SECOND["ms"]), np.int64)
    return seconds.cast(arrow_type(target), safe=False)


def _to_precision(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """Timestamps of another precision. As in Java, a precision of 3 or more is reached by rounding
    down, and a lower precision by rounding towards zero. Raises `OverflowError`.
    """
    wanted = arrow_type(target)
    if target.precision >= source.precision:
        return _finer(array, wanted)
    floored = _floor_to(array, wanted)
    step = PER_SECOND[floored.type.unit] // 10**target.precision
    if step == 1:
        return floored
    if target.precision < 3:
        cut = _numbers(floored, lambda values: _toward_zero(values, step) * step, np.int64)
    else:
        cut = _numbers(floored, lambda values: np.floor_divide(values, step) * step, np.int64)
    return cut.view(wanted)


def _finer(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Timestamps in the same unit or a finer one. Raises `OverflowError` for moments that the unit
    cannot hold.
    """
    try:
        return array.cast(wanted)
    except pa.ArrowInvalid:
        raise OverflowError(f"{wanted} ends before some value") from None


def _floor_to(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Timestamps in another unit. Digits that the unit cannot hold are dropped by rounding down."""
    step = PER_SECOND[array.type.unit] // PER_SECOND[wanted.unit]
    if step <= 1:
        return array.cast(pa.timestamp(wanted.unit, array.type.tz)).view(wanted)
    return _numbers(array, lambda values: np.floor_divide(values, step), np.int64).view(wanted)


def moments(seconds: Longs, nanos: Longs, unit: str) -> Longs:
    """Moments as numbers of a unit; finer digits are cut off.

    Args:
        seconds: the epoch seconds of each moment.
        nanos: its nanoseconds since that second.
        unit: one of Arrow's: "s", "ms", "us", "ns".

    Raises:
        OverflowError: a moment is beyond Arrow's nanoseconds.
    """
    if unit == "ns" and bool(((seconds < _FIRST_SECOND) | (seconds > _LAST_SECOND)).any()):
        raise OverflowError("nanoseconds end in 2262")
    nanos_per_unit = PER_SECOND["ns"] // PER_SECOND[unit]
    numbers: Longs = seconds * PER_SECOND[unit] + nanos // nanos_per_unit
    return numbers


def out_of_range(what: str, path: str, **context: str) -> UnsupportedFeature:
    """The error for timestamps in a file that `moments` refuses.

    Args:
        what: says where the timestamps are, as the beginning of a sentence.
        path: the path of the file.
        context: further attributes of the error.
    """
    return UnsupportedFeature(
        f"{what} holds timestamps before 1677-09-21 or after 2262-04-11, which Arrow cannot hold "
        "in nanoseconds. Select other columns.",
        path=path,
        **context,
    )


def _numbers(array: pa.Array, change: Callable[[Longs], Longs], dtype: npt.DTypeLike) -> pa.Array:
    """The 64-bit values of an array as numbers of type `dtype`, after `change` was applied to them.
    NULL stays NULL.
    """
    values = array.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(change(values).astype(dtype), mask=nulls(array))


def _toward_zero(values: Longs, step: int) -> Longs:
    """The values divided by `step`, rounded towards zero."""
    quotients: Longs = np.sign(values) * (np.abs(values) // step)
    return quotients


def _truncated(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Converts floats to integers like Java's casts: towards zero, and NaN becomes 0. Values
    outside the range of INT or BIGINT become the nearest limit. Smaller integers get the low bits
    of an INT.
    """
    if wanted == pa.int64():
        wide = pa.int64()
        limits: np.iinfo[Any] = np.iinfo(np.int64)
    else:
        wide = pa.int32()
        limits = np.iinfo(np.int32)
    values = array.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
    # Only NaN is replaced; infinities become limits like other large numbers.
    values = np.trunc(np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf))
    # As a DOUBLE, the largest BIGINT becomes larger by one. So numbers that equal the limit are
    # also replaced.
    over = values >= float(limits.max)
    under = values <= float(limits.min)
    integers = np.where(over | under, 0, values).astype(limits.dtype)
    integers[over] = limits.max
    integers[under] = limits.min
    return pa.array(integers, wide, mask=nulls(array)).cast(wanted, safe=False)
