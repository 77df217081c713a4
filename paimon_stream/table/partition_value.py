"""One partition value, a Python object or text, in internal form (the one of `binary_row`), and the
reverse. Text must be a value to the letter: a lenient parser would take a slip for another value,
and so select another partition.
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
_REAL: Final = re.compile(
    r"[!-^`-~]+"
)  # ASCII without blanks and without the underscores of Python's numbers
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


def partition_value(type_: DataType, given: Any, *, in_path: bool = False) -> Any:
    """The value in internal form; None for what is not a value of the type. In the path of a folder
    (`in_path`), a DATE may be its number of days since 1970-01-01, as `partition.legacy-name`
    writes it (format.md §1.4). Elsewhere a number is a DATE only if no date from year 1 to year
    9999 has it: `2024` is more likely a year than a day of 1975, and dates out of Python's range
    are shown as such numbers.
    """
    try:
        if in_path and type_.root is TypeRoot.DATE and _NUMBER.fullmatch(given):
            made: Any = int(given)
        else:
            parse = _PARSERS.get(type_.root, _of_object) if isinstance(given, str) else _of_object
            made = parse(type_, given)
    except (ValueError, OverflowError, ArithmeticError):
        return None
    return made if made is not None and _can_be_stored(type_, made) else None


def _can_be_stored(type_: DataType, made: Any) -> bool:
    if type_.root is TypeRoot.TIME:
        return bool(0 <= made < _DAY_MILLIS)
    if type_.is_timestamp:
        millis, finer = divmod(made, _NANOS_OF_MILLI)
        return -(2**63) <= millis < 2**63 and (type_.precision > _COMPACT_TIMESTAMP or not finer)
    bits = _BITS.get(type_.root)
    return bits is None or -(2 ** (bits - 1)) <= made < 2 ** (bits - 1)


# -- objects
# --------------------------------------------------------------------------------------------
def _of_object(type_: DataType, given: Any) -> Any:
    if isinstance(given, np.generic) and not isinstance(given, np.datetime64):
        given = given.item()
    match type_.root, given:
        case TypeRoot.BOOLEAN, bool():
            return given
        case _, bool():
            return None
        case TypeRoot.TINYINT | TypeRoot.SMALLINT | TypeRoot.INT | TypeRoot.BIGINT, int():
            return given
        case TypeRoot.FLOAT | TypeRoot.DOUBLE, int() | float():
            return _float(type_, float(given))
        case TypeRoot.DECIMAL, int() | Decimal():
            return _decimal(type_, Decimal(given))
        case TypeRoot.DATE, datetime():
            return None
        case TypeRoot.DATE, date():
            return (given - _EPOCH_DATE).days
        case TypeRoot.TIME, time():
            seconds = (given.hour * 60 + given.minute) * 60 + given.second
            return _millis(seconds * _NANOS + given.microsecond * 1000)
        case TypeRoot.TIMESTAMP, datetime() if given.tzinfo is None:
            return (given - _EPOCH) // _MICRO * 1000
        case TypeRoot.TIMESTAMP_LTZ, datetime() if given.tzinfo is not None:
            return (given.astimezone(timezone.utc).replace(tzinfo=None) - _EPOCH) // _MICRO * 1000
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ, np.datetime64():
            nanos = given.astype("datetime64[ns]")
            # NaT equals nothing. A time that 64 bits of nanoseconds cannot hold would become
            # another one.
            return int(nanos.astype(np.int64)) if nanos.astype(given.dtype) == given else None
    return None


# -- texts
# ----------------------------------------------------------------------------------------------
def _integer(_: DataType, text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def _real(type_: DataType, text: str) -> float | None:
    return _float(type_, float(text)) if _REAL.fullmatch(text) else None


def _float(type_: DataType, value: float) -> float:
    return float(np.float32(value)) if type_.root is TypeRoot.FLOAT else value


def _decimal(type_: DataType, value: Decimal) -> Decimal | None:
    made = value.quantize(Decimal(1).scaleb(-type_.scale), context=_EXACT)
    fits = made.is_finite() and len(made.as_tuple().digits) <= max(type_.precision, type_.scale)
    return made if fits else None


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
    found = _CLOCK.fullmatch(text)
    if not found:
        raise ValueError(text)
    hours, minutes, seconds = (int(found[part] or 0) for part in (1, 2, 3))
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError(text)
    return ((hours * 60 + minutes) * 60 + seconds) * _NANOS + int((found[4] or "0").ljust(9, "0"))


def _timestamp(_: DataType, text: str) -> int:
    day, sign, clock = text.replace(" ", "T", 1).partition("T")
    return _days(day) * 86_400 * _NANOS + (_nanos_of_day(clock) if sign else 0)


def _instant(type_: DataType, text: str) -> int:
    """Nanoseconds since 1970-01-01T00:00Z. A text without a zone, as in a folder's name, is in
    UTC.
    """
    found = _ZONE.fullmatch(text)
    if not found:
        return _timestamp(type_, text)
    local, sign, hours, minutes = found.groups()
    if ":" not in local:  # a zone belongs to a time of day
        raise ValueError(text)
    offset = _nanos_of_day(f"{hours}:{minutes}") if sign else 0
    return _timestamp(type_, local) - (-offset if sign == "-" else offset)


# The value in internal form; None or `ValueError` for text of another type.
_PARSERS: Final[dict[TypeRoot, Callable[[DataType, str], Any]]] = {
    TypeRoot.BOOLEAN: lambda _, text: {"true": True, "false": False}.get(text.lower()),
    **dict.fromkeys((TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT), _integer),
    **dict.fromkeys((TypeRoot.FLOAT, TypeRoot.DOUBLE), _real),
    TypeRoot.DECIMAL: lambda type_, text: (
        _decimal(type_, Decimal(text)) if _REAL.fullmatch(text) else None
    ),
    **dict.fromkeys((TypeRoot.CHAR, TypeRoot.VARCHAR), lambda _, text: text),
    TypeRoot.DATE: _date,
    TypeRoot.TIME: _time,
    TypeRoot.TIMESTAMP: _timestamp,
    TypeRoot.TIMESTAMP_LTZ: _instant,
}


# -- values as people use them in Python
# ------------------------------------------------------------------
def partition_by_column(layout: Layout, partition: bytes) -> Mapping[str, Any]:
    """The values of a serialized partition row by column, as Python objects. Raises
    `FormatError`.
    """
    values = layout.partition_values(partition)
    columns = zip(layout.partition_keys, layout.partition_types, values, strict=True)
    return MappingProxyType({name: _python_value(type_, value) for name, type_, value in columns})


def _python_value(type_: DataType, value: Any) -> Any:
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
            return (
                np.datetime64(value, "ns") if value % 1000 else _EPOCH.replace(tzinfo=zone) + micros
            )
    return value
