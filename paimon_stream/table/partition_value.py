"""Converts partition values from a Python object or text to the internal form (that of
`binary_row`), and back. A text must have exactly the form of a value. A lenient parser would read a
typing error as another value, and so select another partition.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from decimal import Context, Decimal, Inexact, InvalidOperation
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from paimon_stream.format.types import DataType, TypeRoot
from paimon_stream.table.layout import Layout

_EPOCH_DATE: Final = date(1970, 1, 1)
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - TIMESTAMP has no zone
_FIRST_DAY: Final = (date.min - _EPOCH_DATE).days
_LAST_DAY: Final = (date.max - _EPOCH_DATE).days
_EXACT: Final = Context(prec=76, traps=[Inexact, InvalidOperation])
_NANOS: Final = 1_000_000_000
_NANOS_OF_MILLI: Final = 1_000_000
_DAY_MILLIS: Final = 86_400_000
_MICRO: Final = timedelta(microseconds=1)
_COMPACT_TIMESTAMP: Final = 3
_NUMBER: Final = re.compile(r"[+-]?[0-9]+")
# The pattern allows ASCII only, without blanks and without the underscores of Python's numbers.
_REAL: Final = re.compile(r"[!-^`-~]+")
_DATE: Final = re.compile(r"(?:[0-9]{4}|\+[0-9]{5,9}|-[0-9]{4,9})-[0-9]{2}-[0-9]{2}")
_CLOCK: Final = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?")
_ZONE: Final = re.compile(r"(.*)(?:Z|([+-])([0-9]{2}):([0-9]{2}))")
_BITS: Final = {
    TypeRoot.TINYINT: 8,
    TypeRoot.SMALLINT: 16,
    TypeRoot.INT: 32,
    TypeRoot.DATE: 32,
    TypeRoot.BIGINT: 64,
}
_CLOCK_FORM: Final = "HH:MM[:SS[.fraction]]"
_FORMS: Final = {
    TypeRoot.DATE: "Write it as YYYY-MM-DD, such as 2024-02-29.",
    TypeRoot.TIME: f"Write it as {_CLOCK_FORM}, such as 10:30:00, with at most milliseconds.",
    TypeRoot.TIMESTAMP: (
        f"Write it as YYYY-MM-DDT{_CLOCK_FORM}, such as 2024-02-29T10:30:00, without a time zone and not "
        "finer than the type."
    ),
    TypeRoot.TIMESTAMP_LTZ: (
        f"Write it as YYYY-MM-DDT{_CLOCK_FORM} with Z or an offset, such as 2024-02-29T10:30:00Z or "
        "2024-02-29T19:30:00+09:00, not finer than the type. Without a zone it is UTC."
    ),
}


def expected_form(type_: DataType) -> str:
    """The sentence that says how a value of the type is written."""
    other = "Give a value of that type, or the text from the partition's folder name."
    return _FORMS.get(type_.root, other)


def partition_value(type_: DataType, value: Any) -> Any:
    """The value in internal form; None if it is not a value of the type. A number counts as a DATE
    only beyond the days of the years 1 to 9999. A smaller number such as `2024` is more likely a
    year than a day of 1975. Only dates out of Python's range are shown as numbers.
    """
    if not isinstance(value, str):
        return _storable(type_, value, _of_object)
    return _storable(type_, value, _PARSERS.get(type_.root, _of_object))


def value_in_path(type_: DataType, text: str) -> Any:
    """The value in internal form, for a text from the path of a folder; None if the text is no
    value of the type. In a path, a DATE may be the number of days since 1970-01-01, as
    `partition.legacy-name` writes it (format.md §1.4).
    """
    if type_.root is TypeRoot.DATE and _NUMBER.fullmatch(text):
        return _storable(type_, text, _integer)
    return partition_value(type_, text)


def _storable(type_: DataType, value: Any, parse: Callable[[DataType, Any], Any]) -> Any:
    """The value that `parse` returns for `value`; None if the type cannot store that value."""
    try:
        internal = parse(type_, value)
    except (ValueError, OverflowError, ArithmeticError):
        return None
    if internal is None or not _can_be_stored(type_, internal):
        return None
    return internal


def _can_be_stored(type_: DataType, internal: Any) -> bool:
    if type_.root is TypeRoot.TIME:
        return bool(0 <= internal < _DAY_MILLIS)
    if type_.is_timestamp:
        millis, finer = divmod(internal, _NANOS_OF_MILLI)
        return -(2**63) <= millis < 2**63 and (type_.precision > _COMPACT_TIMESTAMP or not finer)
    bits = _BITS.get(type_.root)
    return bits is None or -(2 ** (bits - 1)) <= internal < 2 ** (bits - 1)


# -- objects --------------------------------------------------------------------------------------
def _of_object(type_: DataType, value: Any) -> Any:
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64):
        value = value.item()
    match type_.root, value:
        case TypeRoot.BOOLEAN, bool():
            return value
        case _, bool():
            return None
        case TypeRoot.TINYINT | TypeRoot.SMALLINT | TypeRoot.INT | TypeRoot.BIGINT, int():
            return value
        case TypeRoot.FLOAT | TypeRoot.DOUBLE, int() | float():
            return _float(type_, float(value))
        case TypeRoot.DECIMAL, int() | Decimal():
            return _decimal(type_, Decimal(value))
        case TypeRoot.DATE, datetime():
            return None
        case TypeRoot.DATE, date():
            return (value - _EPOCH_DATE).days
        case TypeRoot.TIME, time():
            seconds = (value.hour * 60 + value.minute) * 60 + value.second
            return _millis(seconds * _NANOS + value.microsecond * 1000)
        case TypeRoot.TIMESTAMP, datetime() if value.tzinfo is None:
            return (value - _EPOCH) // _MICRO * 1000
        case TypeRoot.TIMESTAMP_LTZ, datetime() if value.tzinfo is not None:
            return (value.astimezone(timezone.utc).replace(tzinfo=None) - _EPOCH) // _MICRO * 1000
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ, np.datetime64():
            nanos = value.astype("datetime64[ns]")
            # NaT equals nothing. If 64 bits of nanoseconds cannot hold a time, the conversion would
            # change the time.
            is_same_time = nanos.astype(value.dtype) == value
            return int(nanos.astype(np.int64)) if is_same_time else None
    return None


# -- texts ----------------------------------------------------------------------------------------
def _integer(_: DataType, text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def _real(type_: DataType, text: str) -> float | None:
    return _float(type_, float(text)) if _REAL.fullmatch(text) else None


def _float(type_: DataType, value: float) -> float:
    return float(np.float32(value)) if type_.root is TypeRoot.FLOAT else value


def _decimal_number(type_: DataType, text: str) -> Decimal | None:
    if not _REAL.fullmatch(text):
        return None
    return _decimal(type_, Decimal(text))


def _decimal(type_: DataType, value: Decimal) -> Decimal | None:
    quantized = value.quantize(Decimal(1).scaleb(-type_.scale), context=_EXACT)
    if not quantized.is_finite():
        return None
    digits = len(quantized.as_tuple().digits)
    if digits > max(type_.precision, type_.scale):
        return None
    return quantized


def _date(_: DataType, text: str) -> int | None:
    if not _NUMBER.fullmatch(text):
        return _days(text)
    days = int(text)
    return None if _FIRST_DAY <= days <= _LAST_DAY else days


def _days(text: str) -> int:
    """The days since 1970-01-01. Raises `ValueError` for a text that is not a date of the
    calendar.
    """
    if not _DATE.fullmatch(text):  # numpy also reads "2024-02", "2024-02-29T10", "today" and "NaT"
        raise ValueError(text)
    return int(np.datetime64(text, "D").astype(np.int64))


def _time(_: DataType, text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else _millis(_nanos_of_day(text))


def _millis(nanos: int) -> int | None:
    millis, finer = divmod(nanos, _NANOS_OF_MILLI)
    return None if finer else millis


def _nanos_of_day(text: str) -> int:
    clock = _CLOCK.fullmatch(text)
    if not clock:
        raise ValueError(text)
    hours, minutes, seconds = (int(clock[part] or 0) for part in (1, 2, 3))
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError(text)
    return ((hours * 60 + minutes) * 60 + seconds) * _NANOS + int((clock[4] or "0").ljust(9, "0"))


def _timestamp(_: DataType, text: str) -> int:
    day, sign, clock = text.replace(" ", "T", 1).partition("T")
    nanos = _days(day) * 86_400 * _NANOS
    return nanos + _nanos_of_day(clock) if sign else nanos


def _instant(type_: DataType, text: str) -> int:
    """The nanoseconds from 1970-01-01T00:00Z to the time in the text. A text without a zone, as in
    a folder's name, is in UTC.
    """
    instant = _ZONE.fullmatch(text)
    if not instant:
        return _timestamp(type_, text)
    local, sign, hours, minutes = instant.groups()
    if ":" not in local:  # a zone belongs to a time of day
        raise ValueError(text)
    local_nanos = _timestamp(type_, local)
    if not sign:
        return local_nanos
    offset = _nanos_of_day(f"{hours}:{minutes}")
    if sign == "-":
        return local_nanos + offset
    return local_nanos - offset


# Each function returns the value in internal form. For text of another type, it returns None or
# raises `ValueError`.
_PARSERS: Final[dict[TypeRoot, Callable[[DataType, str], Any]]] = {
    TypeRoot.BOOLEAN: lambda _, text: {"true": True, "false": False}.get(text.lower()),
    **dict.fromkeys((TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT), _integer),
    **dict.fromkeys((TypeRoot.FLOAT, TypeRoot.DOUBLE), _real),
    TypeRoot.DECIMAL: _decimal_number,
    **dict.fromkeys((TypeRoot.CHAR, TypeRoot.VARCHAR), lambda _, text: text),
    TypeRoot.DATE: _date,
    TypeRoot.TIME: _time,
    TypeRoot.TIMESTAMP: _timestamp,
    TypeRoot.TIMESTAMP_LTZ: _instant,
}


# -- values as people use them in Python ----------------------------------------------------------
def partition_by_column(layout: Layout, partition: bytes) -> Mapping[str, Any]:
    """The values of a serialized partition row by column, as Python objects. Raises
    `FormatError`.
    """
    values = layout.partition_values(partition)
    columns = zip(layout.partition_keys, layout.partition_types, values, strict=True)
    return MappingProxyType({name: python_value(type_, value) for name, type_, value in columns})


def python_value(type_: DataType, value: Any) -> Any:
    """The value as a Python object. A date or time out of Python's range stays a number (of days or
    milliseconds). A timestamp with nanoseconds becomes a `numpy.datetime64`."""
    if value is None:
        return None
    with suppress(OverflowError):
        if type_.root is TypeRoot.DATE:
            return _EPOCH_DATE + timedelta(days=value)
        if type_.root is TypeRoot.TIME:
            return (_EPOCH + timedelta(milliseconds=value)).time()
        if type_.is_timestamp:
            zone = timezone.utc if type_.root is TypeRoot.TIMESTAMP_LTZ else None
            micros = timedelta(microseconds=value // 1000)
            if value % 1000:
                return np.datetime64(value, "ns")
            return _EPOCH.replace(tzinfo=zone) + micros
    return value
