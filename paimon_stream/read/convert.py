"""Converts the columns of a file to columns of the table: by field id, through nested types, in
today's types.

A file has the names and types of the schema that it was written with. Each of today's columns, and
each member of a ROW, is found in the file by its id, because its name, position or type may have
changed. A column that the file does not have is NULL. Java does the same: a column's default value
applies to rows written without the column, not to rows that are older than the column (tried on
1.4.2).

Values are converted as Java converts them when it reads (tried on 1.4.2), with the same losses:
integers wrap around, decimals that do not fit become NULL, strings are cut and padded. Decimals are
rounded in 256 bits (`convert_decimals`); `convert_texts` has what becomes text, and `convert_parsed`
what text becomes. Conversions that depend on a time zone, or on how Java prints a FLOAT or DOUBLE,
are refused. Statistics of columns of another type never leave a file or a row group out.
"""

from collections.abc import Callable, Iterator, Mapping
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
from paimon_stream.format.types import DataField, DataType, TypeRoot, arrow_type
from paimon_stream.merge.key_runs import nulls
from paimon_stream.read.convert_decimals import to_decimal, to_float, to_integer
from paimon_stream.read.convert_parsed import PARSERS, NotParsed, parsed
from paimon_stream.read.convert_texts import to_binary, to_string

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
    (_FLOATS, _INTEGERS | _FLOATS),
    (_STRINGS | _BINARIES | _INTEGERS | {TypeRoot.BOOLEAN, TypeRoot.DECIMAL}, _STRINGS),
    ({TypeRoot.DATE, TypeRoot.TIMESTAMP}, _STRINGS),
    (_STRINGS | _BINARIES, _BINARIES),
    (_STRINGS, set(PARSERS)),
    ({TypeRoot.BOOLEAN}, _INTEGERS | _FLOATS | {TypeRoot.DECIMAL}),
    (_INTEGERS, {TypeRoot.BOOLEAN}),
    ({TypeRoot.DATE}, {TypeRoot.TIMESTAMP}),
    ({TypeRoot.TIMESTAMP}, {TypeRoot.DATE}),
    (_SECONDS, {TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ}),
    ({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ}, _SECONDS),
)
"""From which types to which others `_cast` converts."""

_FIRST_SECOND: Final = -(2**63) // PER_SECOND["ns"] + 1
_LAST_SECOND: Final = 2**63 // PER_SECOND["ns"] - 1
Longs = npt.NDArray[np.int64]


class Chunk(NamedTuple):
    """Some rows of a file: how many, the columns found, and what turns those into values.
    `skipped`: none was read.
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
    """Raises `UnsupportedFeature` if values of `source` cannot be read as `target`, and
    `IncompatibleSchema` if `later` says that `source` came after it: values may not fit. `column`
    is for the message.
    """
    old, new = source.root, target.root
    if later and not source.is_nested and source.with_nullable(target.nullable) != target:
        raise IncompatibleSchema(
            f"Column {column!r} is {source} in files of the table, and was {target} when the table was loaded. Load "
            "the table again, and restart a query that reads it.",
            column=column,
        )
    if old is not new and not any(old in some and new in others for some, others in _CASTS):
        text = (
            f"Column {column!r} was {source} in files of the table and is {target} now; this release does not "
            "convert between them. Select other columns, or read with an engine on the JVM."
        )
        raise UnsupportedFeature(text, column=column, type=str(target))
    for before, now in zip(_parameters(source), _parameters(target), strict=True):
        check_evolution(column, before, now, later)
    for member in target.fields:
        known = _member(source, member.id)
        if known is not None:
            check_evolution(f"{column}.{member.name}", known.type, member.type, later)


def _parameters(type_: DataType) -> list[DataType]:
    return [one for one in (type_.key, type_.element) if one is not None]


def _member(type_: DataType, id_: int) -> DataField | None:
    return next((one for one in type_.fields if one.id == id_), None)


def convert(
    array: pa.Array, source: DataType, target: DataType, leaf: Leaf, column: str
) -> pa.Array:
    """The array in `target`'s Arrow type, from any type that the file format gives for `source`.
    `column` is its name. Raises `FormatError` if it does not hold `source`, `InvalidData` for text
    that is not UTF-8, which Java writes, or that does not parse, and `UnsupportedFeature` for moments that Arrow cannot
    hold in the finer unit of `target`.
    """
    if not target.is_nested:
        values = leaf(array, source)
        if (target.is_string and source.is_binary) or (source.is_string and not target.is_binary):
            _check_text(values, column)
        wanted = arrow_type(target)
        try:
            made = _cast(values, source, target)
        except OverflowError:
            raise _beyond(column, source, target) from None
        except NotParsed as wrong:
            raise _not_parsed(column, source, target, wrong.count) from None
        return made if made.type.equals(wanted) else made.cast(wanted)
    if target.root is TypeRoot.ROW:
        return _row(array, source, target, leaf, column)
    if target.root is TypeRoot.ARRAY:
        return _array(array, source, target, leaf, column)
    return _map(array, source, target, leaf, column)


def _beyond(column: str, source: DataType, target: DataType) -> UnsupportedFeature:
    wanted = arrow_type(target)
    span = " before 1677-09-21 or after 2262-04-11" if wanted.unit == "ns" else ""
    text = (
        f"Column {column!r} was {source} in files of the table and is {target} now. It holds moments{span} that Arrow "
        f"cannot hold as {wanted}. Select other columns, or have Java Paimon change the column's type to a TIMESTAMP "
        "of at most 6 digits."
    )
    return UnsupportedFeature(text, column=column, type=str(target))


def _not_parsed(column: str, source: DataType, target: DataType, count: int) -> InvalidData:
    text = (
        f"column {column!r} was {source} in files of the table and is {target} now, but holds text that is no such "
        f"value, in at least {PLACES}. Java Paimon fails on such text, too. Select other columns, or have Java Paimon "
        "change the column's type back"
    )
    return InvalidData(text, column=column, count=count)


def _check_text(values: pa.Array, column: str) -> None:
    broken = count_not_utf8(values)
    if broken:
        text = (
            f"column {column!r} holds text that is not UTF-8, in at least {PLACES}. Another engine wrote it; Java "
            "Paimon keeps such bytes as they are. Select other columns, or repair the rows with an engine on the JVM"
        )
        raise InvalidData(text, column=column, count=broken)


def _row(array: pa.Array, source: DataType, target: DataType, leaf: Leaf, column: str) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise _misfit(array, source)
    wanted = arrow_type(target)
    members = []
    for member in target.fields:
        before = _member(source, member.id)
        if before is None:
            members.append(pa.nulls(len(array), arrow_type(member.type)))
            continue
        position = array.type.get_field_index(before.name)
        if position < 0:
            raise _misfit(array, source)
        members.append(
            convert(
                array.field(position), before.type, member.type, leaf, f"{column}.{member.name}"
            )
        )
    mask = array.is_null() if array.null_count else None
    if not members:
        return pa.Array.from_buffers(
            wanted, len(array), [None if mask is None else pc.invert(mask).buffers()[1]]
        )
    return pa.StructArray.from_arrays(members, fields=list(wanted), mask=mask)


def _array(
    array: pa.Array, source: DataType, target: DataType, leaf: Leaf, column: str
) -> pa.Array:
    if pa.types.is_large_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    if not pa.types.is_list(array.type) or source.element is None or target.element is None:
        raise _misfit(array, source)
    values = convert(array.values, source.element, target.element, leaf, f"{column}.element")
    return with_elements(array, arrow_type(target), values)


def _map(array: pa.Array, source: DataType, target: DataType, leaf: Leaf, column: str) -> pa.Array:
    if not pa.types.is_map(array.type):
        raise _misfit(array, source)
    (old_key, old_value), (new_key, new_value) = source.entry, target.entry
    keys = convert(array.keys, old_key, new_key, leaf, f"{column}.key")
    items = convert(array.items, old_value, new_value, leaf, f"{column}.value")
    return with_entries(array, arrow_type(target), keys, items)


def _misfit(array: pa.Array, type_: DataType) -> FormatError:
    return FormatError(f"its schema says {type_}, but it holds {array.type}")


def normalize(array: pa.Array, type_: DataType) -> pa.Array:
    """The `Leaf` for arrays that hold `type_` in any width, unit and encoding. Raises `FormatError`
    for others.
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
    `check_evolution` allows.
    """
    wanted = arrow_type(target)
    if source.with_nullable(True) == target.with_nullable(True):
        return array
    old, new = source.root, target.root
    if new in _STRINGS:
        return to_string(array, source, target)
    if new in _BINARIES:
        return to_binary(array, target)
    if old in _STRINGS:
        return parsed(array, target)
    if source.is_timestamp or target.is_timestamp:
        return _time(array, source, target, wanted)
    if new is TypeRoot.DECIMAL:
        return to_decimal(array, wanted)
    if old is TypeRoot.DECIMAL:
        return (to_float if new in _FLOATS else to_integer)(array, wanted)
    return (
        _truncated(array, wanted)
        if old in _FLOATS and new in _INTEGERS
        else array.cast(wanted, safe=False)
    )


def _time(array: pa.Array, source: DataType, target: DataType, wanted: pa.DataType) -> pa.Array:
    """Like Java, drops digits beyond milliseconds by rounding down, and digits up to them by
    rounding towards zero. Integers are seconds.
    """
    if source.root in _SECONDS:
        seconds = array.cast(pa.int64()).view(pa.timestamp("s", wanted.tz))
        return _finer(seconds, wanted)
    if target.root in _SECONDS:
        millis = _floor_to(array, pa.timestamp("ms"))
        seconds = _numbers(millis, lambda values: _toward_zero(values, 1000), np.int64)
        return seconds.cast(wanted, safe=False)
    if source.root is TypeRoot.DATE:
        return _finer(array.cast(pa.timestamp("s")), wanted)
    if target.root is TypeRoot.DATE:
        millis = _floor_to(array, pa.timestamp("ms"))
        return _numbers(millis, lambda values: _toward_zero(values, 86_400_000), np.int32).view(
            pa.date32()
        )
    if target.precision >= source.precision:
        return _finer(array, wanted)
    made = _floor_to(array, wanted)
    step = PER_SECOND[made.type.unit] // 10**target.precision
    if step == 1:
        return made
    divide = _toward_zero if target.precision < 3 else np.floor_divide
    return _numbers(made, lambda values: divide(values, step) * step, np.int64).view(wanted)


def _finer(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Timestamps in a unit that is not coarser. Raises `OverflowError` beyond what it can hold."""
    try:
        return array.cast(wanted)
    except pa.ArrowInvalid:
        raise OverflowError(f"{wanted} ends before some value") from None


def _floor_to(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Timestamps in another unit. Digits that the unit cannot hold are rounded down."""
    step = PER_SECOND[array.type.unit] // PER_SECOND[wanted.unit]
    if step <= 1:
        return array.cast(pa.timestamp(wanted.unit, array.type.tz)).view(wanted)
    return _numbers(array, lambda values: np.floor_divide(values, step), np.int64).view(wanted)


def moments(seconds: Longs, nanos: Longs, unit: str) -> Longs:
    """Epoch seconds and nanoseconds, cut to numbers of this unit. Raises `OverflowError` beyond
    Arrow's nanoseconds.
    """
    if unit == "ns" and bool(((seconds < _FIRST_SECOND) | (seconds > _LAST_SECOND)).any()):
        raise OverflowError("nanoseconds end in 2262")
    made: Longs = seconds * PER_SECOND[unit] + nanos // (PER_SECOND["ns"] // PER_SECOND[unit])
    return made


def out_of_range(what: str, path: str, **context: str) -> UnsupportedFeature:
    """The error for timestamps in a file that `moments` refuses."""
    text = f"{what} holds timestamps before 1677-09-21 or after 2262-04-11, which Arrow cannot hold in nanoseconds."
    return UnsupportedFeature(f"{text} Select other columns.", path=path, **context)


def _numbers(array: pa.Array, change: Any, dtype: Any) -> pa.Array:
    """Applies `change` (a numpy function) to the 64-bit values of the array; NULLs stay NULL."""
    values = array.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(change(values).astype(dtype), mask=nulls(array))


def _toward_zero(values: Any, step: int) -> Any:
    return np.sign(values) * (np.abs(values) // step)


def _truncated(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Converts like Java's casts: towards zero, NaN becomes 0, values outside the range of INT or
    BIGINT become the nearest limit; smaller integers take the low bits of an INT.
    """
    wide = pa.int64() if wanted == pa.int64() else pa.int32()
    limits = np.iinfo(np.int64 if wanted == pa.int64() else np.int32)
    values = array.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
    values = np.trunc(np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf))
    over, under = values >= float(limits.max), values <= float(limits.min)
    whole = np.where(over | under, 0, values).astype(limits.dtype)
    whole[over], whole[under] = limits.max, limits.min
    return pa.array(whole, wide, mask=nulls(array)).cast(wanted, safe=False)
