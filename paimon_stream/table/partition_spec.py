"""Partitions as people name them, `{"dt": "2024-02-29"}` or the path of a folder, as values of a partition
row."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Context, Decimal, Inexact, InvalidOperation
from enum import Enum
from typing import Any, Final

import numpy as np
import pyarrow as pa

from paimon_stream.errors import IncompatibleSchema, InvalidData
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.partition_path import is_blank, unescape
from paimon_stream.format.stats import ColumnStats, may_hold
from paimon_stream.format.types import DataField, DataType, TypeRoot, arrow_type

__all__ = ["PartitionSpec", "parse_partition"]

_EPOCH_DATE: Final = date(1970, 1, 1)
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - TIMESTAMP has no zone
_EXACT: Final = Context(prec=76, traps=[Inexact, InvalidOperation])
_NANOS: Final = 1_000_000_000
_MICRO: Final = timedelta(microseconds=1)
_NUMBER: Final = re.compile(r"[+-]?\d+")
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?")
_BITS: Final = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INT: 32, TypeRoot.BIGINT: 64}


class _Anything(Enum):
    """Stands for all values that share the folder of NULL."""

    IN_DEFAULT_FOLDER = "the folder of NULL"


class PartitionSpec:
    """Values for some of the partition columns, in internal form. A partition row matches if it has them."""

    __slots__ = ("_default_name", "_names", "_positions", "_types")

    def __init__(self, fields: Sequence[DataField], values: Mapping[str, Any], default_name: str) -> None:
        self._default_name = default_name
        self._names = tuple(one.name for one in fields)
        self._types = tuple(one.type for one in fields)
        self._positions = {i: values[one.name] for i, one in enumerate(fields) if one.name in values}

    @property
    def row(self) -> bytes | None:
        """The serialized partition row if exactly one row matches, else None."""
        values = self._positions.values()
        if len(values) < len(self._types) or _Anything.IN_DEFAULT_FOLDER in values:
            return None
        return serialize(self._types, [self._positions[i] for i in range(len(self._types))])

    @property
    def scalars(self) -> dict[str, pa.Scalar]:
        """The columns with exactly one value, each with its value as an Arrow scalar."""
        return {
            self._names[i]: _scalar(self._types[i], value)
            for i, value in self._positions.items()
            if value is not _Anything.IN_DEFAULT_FOLDER
        }

    def matches(self, values: Sequence[Any]) -> bool:
        """Whether a partition with these values (in partition key order) matches."""
        return all(self._same(i, values[i], wanted) for i, wanted in self._positions.items())

    def may_be_within(self, bounds: Sequence[ColumnStats]) -> bool:
        """Whether partitions whose columns have these statistics can include one that matches."""
        return all(
            wanted is _Anything.IN_DEFAULT_FOLDER or may_hold(self._types[i], bounds[i], wanted)
            for i, wanted in self._positions.items()
        )

    def _same(self, position: int, value: Any, wanted: Any) -> bool:
        if wanted is _Anything.IN_DEFAULT_FOLDER:
            return value is None or is_blank(value) or value == self._default_name
        types = [self._types[position]]
        return serialize(types, [value]) == serialize(types, [wanted])


def _scalar(type_: DataType, value: Any) -> pa.Scalar:
    wanted = arrow_type(type_)
    if value is None:
        return pa.scalar(None, wanted)
    match type_.root:
        case TypeRoot.DATE | TypeRoot.TIME:
            return pa.array([value], pa.int32()).view(wanted)[0]
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            nanos = pa.array([value], pa.timestamp("ns", wanted.tz))
            return nanos.cast(wanted)[0]
    return pa.scalar(value, wanted)


def parse_partition(
    fields: Sequence[DataField], given: Mapping[str, Any] | str, default_name: str, *, table: str
) -> PartitionSpec:
    """The partitions that `{"dt": value, …}` or a path such as `dt=19782/region=x` names.

    A value is Python's for the column's type, or text as in a folder's name: a DATE is `date(2024, 2, 29)`,
    `"2024-02-29"` or `"19782"`; times are milliseconds or ISO text (format.md §1.4). None is NULL. In a path,
    `default_name` (`partition.default-name`) means its folder, which NULL shares with empty and blank
    strings. As a value, `default_name` is NULL, except in string columns, where it means itself. Columns that
    are left out may have any value. `table` is the location, for messages.

    Raises `IncompatibleSchema` for a name that is not a partition column, `InvalidData` for a value that does
    not fit its column.
    """
    if not isinstance(given, str | Mapping):
        raise IncompatibleSchema(
            f"{table}: A partition is {given!r}. Give it as {{'dt': value}}, or as text like "
            "'dt=2024-02-29/region=x'.",
            table=table,
        )
    spec = _of_path(given, default_name, table) if isinstance(given, str) else dict(given)
    columns = {one.name: one for one in fields}
    unknown = [name for name in spec if name not in columns]
    if unknown:
        known = ", ".join(columns) or "none: it is not partitioned"
        raise IncompatibleSchema(
            f"{table}: {unknown[0]!r} is not a partition column. The partition columns are: {known}.",
            column=unknown[0],
            table=table,
        )
    values = {name: _value(columns[name], spec[name], default_name, table) for name in spec}
    return PartitionSpec(fields, values, default_name)


def _of_path(path: str, default_name: str, table: str) -> dict[str, Any]:
    parts = [part.partition("=") for part in path.strip("/").split("/")]
    if any(not name or not sign for name, sign, _ in parts):
        raise IncompatibleSchema(
            f"{table}: {path!r} does not name a partition. Write it like 'dt=2024-02-29/region=x'.",
            table=table,
        )
    values = {unescape(name): unescape(value) for name, _, value in parts}
    return {
        name: _Anything.IN_DEFAULT_FOLDER if value == default_name else value
        for name, value in values.items()
    }


def _value(one: DataField, given: Any, default_name: str, table: str) -> Any:
    if given is None or (given == default_name and not one.type.is_string):
        return None
    if given is _Anything.IN_DEFAULT_FOLDER:
        return given if one.type.is_string else None
    try:
        made = _text_value(one.type, given) if isinstance(given, str) else _typed_value(one.type, given)
    except (ValueError, OverflowError, ArithmeticError):
        made = None
    if made is None or not _in_range(one.type, made):
        raise InvalidData(
            f"{table}: partition column {one.name!r} is {one.type}, and {given!r} is not a value of it. "
            "Give a value of that type, or the text from the partition's folder name.",
            column=one.name,
            value=given,
            table=table,
        )
    return made


def _in_range(type_: DataType, made: Any) -> bool:
    bits = _BITS.get(type_.root)
    return bits is None or -(2 ** (bits - 1)) <= made < 2 ** (bits - 1)


def _typed_value(type_: DataType, given: Any) -> Any:
    """The value in internal form; None for a value of another type."""
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
            return ((given.hour * 60 + given.minute) * 60 + given.second) * 1000 + given.microsecond // 1000
        case TypeRoot.TIMESTAMP, datetime() if given.tzinfo is None:
            return (given - _EPOCH) // _MICRO * 1000
        case TypeRoot.TIMESTAMP_LTZ, datetime() if given.tzinfo is not None:
            return (given.astimezone(timezone.utc).replace(tzinfo=None) - _EPOCH) // _MICRO * 1000
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ, np.datetime64():
            return int(given.astype("datetime64[ns]").astype(np.int64))
    return None


def _text_value(type_: DataType, text: str) -> Any:
    """The value in internal form; None or `ValueError` for text of another type."""
    parse = _PARSERS.get(type_.root)
    return None if parse is None else parse(type_, text)


def _boolean(_: DataType, text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())


def _integer(_: DataType, text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def _float(type_: DataType, value: float) -> float:
    return float(np.float32(value)) if type_.root is TypeRoot.FLOAT else value


def _decimal(type_: DataType, value: Decimal) -> Decimal | None:
    made = value.quantize(Decimal(1).scaleb(-type_.scale), context=_EXACT)
    return made if len(made.as_tuple().digits) <= max(type_.precision, type_.scale) else None


def _date(_: DataType, text: str) -> int | None:
    if _NUMBER.fullmatch(text):
        return int(text)
    return _days(text)


def _days(text: str) -> int:
    return int(np.datetime64(text, "D").astype(np.int64))


def _time(_: DataType, text: str) -> int | None:
    if _NUMBER.fullmatch(text):
        return int(text)
    return _nanos_of_day(text) // 1_000_000


def _nanos_of_day(text: str) -> int:
    found = _CLOCK.fullmatch(text)
    if not found:
        raise ValueError(text)
    hours, minutes, seconds, fraction = found.groups()
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds or 0)
    return whole * _NANOS + int((fraction or "0").ljust(9, "0"))


def _timestamp(_: DataType, text: str) -> int:
    day, clock = (*text.replace(" ", "T", 1).split("T", 1), "")[:2]
    return _days(day) * 86_400 * _NANOS + (_nanos_of_day(clock) if clock else 0)


_PARSERS: Final[dict[TypeRoot, Callable[[DataType, str], Any]]] = {
    TypeRoot.BOOLEAN: _boolean,
    TypeRoot.TINYINT: _integer,
    TypeRoot.SMALLINT: _integer,
    TypeRoot.INT: _integer,
    TypeRoot.BIGINT: _integer,
    TypeRoot.FLOAT: lambda type_, text: _float(type_, float(text)),
    TypeRoot.DOUBLE: lambda type_, text: float(text),
    TypeRoot.DECIMAL: lambda type_, text: _decimal(type_, Decimal(text)),
    TypeRoot.CHAR: lambda type_, text: text,
    TypeRoot.VARCHAR: lambda type_, text: text,
    TypeRoot.DATE: _date,
    TypeRoot.TIME: _time,
    TypeRoot.TIMESTAMP: _timestamp,
    TypeRoot.TIMESTAMP_LTZ: _timestamp,
}
