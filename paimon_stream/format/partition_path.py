"""Computes the folder of a partition, such as `dt=19782/region=x` (format.md §1.4). Other engines
find the files of a partition by this text alone. So the text must equal that of other engines,
including Java's text for a float.
"""

import math
import re
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any, Final

import numpy as np

from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.types import DataType, TypeRoot

_ESCAPED: Final = {
    code: f"%{code:02X}" for code in (*range(0x20), 0x7F, *map(ord, "\"#%'*/:=?\\{}[]^"))
}

_ESCAPE: Final = re.compile("%([0-9a-fA-F]{2})")

_JAVA_WHITESPACE: Final = frozenset(
    map(
        chr,
        (
            *range(0x09, 0x0E),
            *range(0x1C, 0x21),
            0x1680,
            *range(0x2000, 0x2007),
            *range(0x2008, 0x200B),
        ),
    )
) | frozenset("\u2028\u2029\u205f\u3000")

_WIDE: Final = Context(prec=100)

_NULL: Final = "__DEFAULT_PARTITION__"


def escape(text: str) -> str:
    """The text as a part of a path: characters that have a meaning in file systems or URIs become
    `%XX`.
    """
    return text.translate(_ESCAPED)


def unescape(text: str) -> str:
    """The reverse of `escape`."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def partition_path(
    keys: Sequence[str],
    types: Sequence[DataType],
    values: Sequence[Any],
    default: str = _NULL,
    *,
    legacy: bool = True,
) -> str:
    """The folder of a partition, relative to the table, without a slash at the end. It is empty if
    there are no partition columns.

    Args:
        keys: the names of the partition columns.
        types: the type of each column.
        values: the value of each column, in the internal form of `format/binary_row.py`.
        default: the text for values that are NULL, empty or blank (`partition.default-name`).
        legacy: the value of `partition.legacy-name`.

    Raises:
        UnsupportedFeature: a type is nested or BINARY. Without `legacy`, a type is TIMESTAMP WITH
            LOCAL TIME ZONE, which Java writes in the zone of its machine.
    """
    parts = []
    for key, type_, value in zip(keys, types, values, strict=True):
        check_partition_key(key, type_, legacy=legacy)
        named = ""
        if value is not None:
            named = value_text(type_, value, legacy=legacy)
        if is_blank(named):
            named = default
        parts.append(f"{escape(key)}={escape(named)}")
    return "/".join(parts)


def is_blank(text: str) -> bool:
    """Whether the text is empty or only white space by Java's rules. Such a text has the same
    folder as NULL.
    """
    return all(char in _JAVA_WHITESPACE for char in text)


def check_partition_key(key: str, type_: DataType, *, legacy: bool, table: str = "") -> None:
    """Raises `UnsupportedFeature` for a partition column of a type whose folders other engines
    would not find.

    Args:
        key: the name of the partition column.
        type_: the type of the column.
        legacy: the value of `partition.legacy-name`.
        table: the location of the table; empty if it is not known.

    Raises:
        UnsupportedFeature: the type is one of those that `partition_path` refuses.
    """
    table_name = table or "the table"
    if type_.is_nested or type_.is_binary:
        raise UnsupportedFeature(
            f"Partition key {key!r} of {table_name} is {type_}: Paimon has no folder name for it. "
            "Partition by a column of another type.",
            table=table,
            column=key,
            type=str(type_),
        )
    if type_.root is TypeRoot.TIMESTAMP_LTZ and not legacy:
        raise UnsupportedFeature(
            f"Partition key {key!r} of {table_name} is {type_}: with partition.legacy-name = false "
            "its folder name depends on the time zone of each machine. "
            "Partition by a column of another type.",
            table=table,
            column=key,
            type=str(type_),
        )


def value_text(type_: DataType, value: Any, *, legacy: bool = True) -> str:
    """The text of a partition value.

    Args:
        type_: the type of the column.
        value: the value, in the internal form of `format/binary_row.py`; not NULL.
        legacy: the value of `partition.legacy-name`. If True, the text is that of Java's
            `toString`.
    """
    match type_.root:
        case TypeRoot.BOOLEAN:
            return "true" if value else "false"
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return _java_float(value, single=type_.root is TypeRoot.FLOAT)
        case TypeRoot.DECIMAL:
            unscaled = int(value.scaleb(type_.scale, _WIDE))
            return f"{Decimal(unscaled).scaleb(-type_.scale, _WIDE):f}"
        case TypeRoot.DATE if not legacy:
            return _date(value)
        case TypeRoot.TIME if not legacy:
            seconds, millis = divmod(value, 1000)
            if type_.precision == 0:
                return _clock(seconds)
            # Trailing zeros are cut, but at least one digit is kept.
            fraction = f"{millis:03d}".rstrip("0")[: type_.precision] or "0"
            return f"{_clock(seconds)}.{fraction}"
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return _local_date_time(value) if legacy else _sql_timestamp(value, type_.precision)
        case _:
            return str(value)


def _java_float(value: float, *, single: bool) -> str:
    """The text of `Float.toString` and `Double.toString`: the shortest digits that read back as the
    same number, with at least one digit after the point. Below 0.001 and from ten million on, the
    text has an exponent. `single` says whether the number is a FLOAT.
    """
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if math.isinf(value):
        return f"{sign}Infinity"
    if value == 0:
        return f"{sign}0.0"
    number = np.float32(value) if single else np.float64(value)
    digits, _, exponent_text = np.format_float_scientific(
        abs(number), unique=True, trim="-"
    ).partition("e")
    if len(digits) == 1:
        # Java takes the closest number with two digits. Among the smallest numbers, that number
        # differs.
        digits, _, exponent_text = f"{abs(float(number)):.1e}".partition("e")
    digits = digits.replace(".", "").rstrip("0") or "0"
    exponent = int(exponent_text)
    if not -3 <= exponent < 7:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    before_point = digits[: exponent + 1].ljust(exponent + 1, "0")
    after_point = digits[exponent + 1 :] or "0"
    return f"{sign}{before_point}.{after_point}"


def _date(days: int) -> str:
    """The text of `LocalDate.toString`: the year has at least four digits, and has a sign from
    10000 on.
    """
    year_text, month, day = str(np.datetime64(days, "D")).rsplit("-", 2)
    year = int(year_text)
    sign = ""
    if year < 0:
        sign = "-"
    elif year > 9999:
        sign = "+"
    return f"{sign}{abs(year):04d}-{month}-{day}"


def _clock(seconds: int) -> str:
    """The time of day of a moment, which is given in seconds since 1970."""
    return str(np.datetime64(seconds, "s"))[-8:]


def _split_timestamp(nanos: int) -> tuple[str, str, str]:
    """The date, the time of day, and the nine digits of the fraction of a timestamp."""
    seconds, fraction = divmod(nanos, 10**9)
    return _date(seconds // 86_400), _clock(seconds), f"{fraction:09d}"


def _local_date_time(nanos: int) -> str:
    """The text of `LocalDateTime.toString`. The fraction has 0, 3, 6 or 9 digits. Without a
    fraction, seconds that are zero are left out.
    """
    date, clock, fraction = _split_timestamp(nanos)
    while fraction.endswith("000"):
        fraction = fraction[:-3]
    if fraction:
        return f"{date}T{clock}.{fraction}"
    return f"{date}T{clock.removesuffix(':00')}"


def _sql_timestamp(nanos: int, precision: int) -> str:
    """A timestamp as SQL writes it: the date and the time, with at least `precision` digits of
    fraction.
    """
    date, clock, fraction = _split_timestamp(nanos)
    digits = fraction.rstrip("0").ljust(precision, "0")
    if digits:
        return f"{date} {clock}.{digits}"
    return f"{date} {clock}"
