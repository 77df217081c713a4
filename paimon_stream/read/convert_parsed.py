"""Parses the text of a file into values of another type, as Java does (tried on 1.4.2). Java fails
on text that does not parse, and so does this module. Java also takes a few spellings that are
refused here, such as 0x1p3 for a DOUBLE and a zone in a TIME. NULL stays NULL.

Text that is a whole number becomes the value that Java makes from this number: a DATE of that many
days since 1970, a TIME of that many milliseconds, and a TIMESTAMP of that many seconds,
milliseconds, microseconds or nanoseconds, by its precision.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.format.arrow_types import DIGITS_OF_SECOND
from paimon_stream.format.types import DataType, TypeRoot, arrow_type
from paimon_stream.read.convert_decimals import to_decimal

_TRUE: Final = ("t", "true", "y", "yes", "1")
_FALSE: Final = ("f", "false", "n", "no", "0")
_DIGITS: Final = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_BLANKS: Final = r"[\x00-\x20]*"
"""What Java's `trim` takes away."""
_WHOLE: Final = r"\A-?[0-9]+\z"
_INTEGER: Final = r"\A[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]*)\z"
_DECIMAL: Final = rf"\A[+-]?{_DIGITS}(?:[eE][+-]?[0-9]{{1,2}})?\z"
_FLOAT: Final = (
    rf"\A{_BLANKS}(?:(?P<finite>[+-]?{_DIGITS}(?:[eE][+-]?[0-9]{{1,3}})?)[dDfF]?"
    rf"|(?P<other>NaN|[+-]?Infinity)){_BLANKS}\z"
)
_DAY: Final = r"(?P<year>[0-9]{4})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{0,2})"
_CLOCK: Final = r"(?P<hour>[0-9]{0,2}):(?P<minute>[0-9]{0,2}):(?P<second>[0-9]{0,2})"
_MOMENT: Final = rf"\A{_DAY}(?: {_CLOCK}(?:\.(?P<fraction>[0-9]{{0,9}}))?)?\z"
"""A TIMESTAMP has no blanks but the one between day and clock."""
_END_OF_DAY: Final = r" 24:00?:00?(?:\.0*)?\z"
"""The clock of a TIMESTAMP that is the beginning of the next day."""


def _within_blanks(name: str, most: int) -> str:
    """The pattern of a number with blanks around it. After leading zeros, it has at most `most`
    digits.
    """
    return rf"{_BLANKS}0*(?P<{name}>[0-9]{{1,{most}}}){_BLANKS}"


_BEHIND_A_BLANK: Final = r"(?s)\A([^ ]+) .*\z"
"""A DATE with something behind a blank. It ends before the blank, unless it begins with it."""
_DATE: Final = (
    rf"\A{_within_blanks('year', 4)}"
    rf"(?:-{_within_blanks('month', 2)}(?:-{_within_blanks('day', 2)})?)?\z"
)
_TIME: Final = (
    rf"\A{_within_blanks('hour', 9)}(?::{_within_blanks('minute', 9)}"
    rf"(?::{_within_blanks('second', 9)}"
    rf"(?:\.{_BLANKS}(?P<fraction>[0-9]*){_BLANKS})?)?)?\z"
)
_DAY_SECONDS: Final = 86_400
_DAY_MILLIS: Final = 86_400_000
_EPOCH_UNITS: Final = MappingProxyType({0: "s", 3: "ms", 6: "us", 9: "ns"})
"""What a whole number that becomes a TIMESTAMP counts, by the precision. Java fails on other
precisions.
"""
_WIDE: Final = pa.decimal256(76, 38)


class NotParsed(Exception):
    """Text does not parse, or a number cannot be converted to the new type.

    Attributes:
        count: the least number of values that do not parse.
    """

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


def parsed(array: pa.Array, target: DataType) -> pa.Array:
    """Parses text into values of `target`'s Arrow type. Raises `NotParsed`, and `OverflowError` for
    moments that this type cannot hold.
    """
    parse = PARSERS[target.root]
    wanted = arrow_type(target)
    try:
        return parse(array, target).cast(wanted)
    except pa.ArrowInvalid:
        # A text has the right form, but is a number that is too large, or a day such as the 30th of
        # February.
        raise NotParsed(count=1) from None


def _checked(array: pa.Array, pattern: str) -> pa.Array:
    """Returns the array if each of its values matches. Raises `NotParsed` otherwise."""
    _refuse_any(pc.invert(pc.match_substring_regex(array, pattern)))
    return array


def _refuse_any(is_wrong: pa.Array) -> None:
    """Raises `NotParsed` if a value is wrong."""
    count = pc.sum(is_wrong).as_py()
    if count:
        raise NotParsed(count)


def _integer(array: pa.Array, target: DataType) -> pa.Array:
    """Parses integers. Digits after the point are cut off. Text without digits before the point
    becomes 0.
    """
    digits = pc.replace_substring_regex(_checked(array, _INTEGER), r"\A\+|\..*\z", "")
    is_zero = pc.is_in(digits, pa.array(["", "-"]))
    return pc.if_else(is_zero, "0", digits).cast(pa.int64())


def _float(array: pa.Array, target: DataType) -> pa.Array:
    parts = pc.extract_regex(_checked(array, _FLOAT), _FLOAT)
    finite, other = (pc.struct_field(parts, name) for name in ("finite", "other"))
    texts = pc.binary_join_element_wise(finite, other, "")
    return _without_plus(texts).cast(arrow_type(target))


def _decimal(array: pa.Array, target: DataType) -> pa.Array:
    wide = _without_plus(_checked(array, _DECIMAL)).cast(_WIDE)
    return to_decimal(wide, arrow_type(target))


def _without_plus(array: pa.Array) -> pa.Array:
    """The text without a plus at the beginning, which Arrow does not accept."""
    return pc.replace_substring_regex(array, r"\A\+", "")


def _boolean(array: pa.Array, target: DataType) -> pa.Array:
    lowered = pc.utf8_lower(array)
    is_true = pc.is_in(lowered, pa.array(_TRUE))
    is_known = pc.or_(is_true, pc.is_in(lowered, pa.array(_FALSE)))
    _refuse_any(pc.and_(pc.invert(is_known), array.is_valid()))
    return pc.if_else(array.is_valid(), is_true, pa.scalar(None, pa.bool_()))


def _date(array: pa.Array, target: DataType) -> pa.Array:
    """Parses days. If the month is missing, it is January. If the day is missing, it is the first
    day of the month.
    """
    numbers, texts = _apart(array)
    texts = pc.replace_substring_regex(texts, _BEHIND_A_BLANK, r"\1")
    days = pc.extract_regex(_checked(texts, _DATE), _DATE)
    return pc.coalesce(numbers.cast(pa.int32()).view(pa.date32()), _day(days).cast(pa.date32()))


def _moment(array: pa.Array, target: DataType) -> pa.Array:
    """Parses timestamps. Digits beyond the precision are cut off. Raises `OverflowError` for
    moments that Arrow's nanoseconds cannot hold.
    """
    numbers, texts = _apart(array)
    unit = _EPOCH_UNITS.get(target.precision)
    if unit is None:
        _refuse_any(numbers.is_valid())
        return _moment_of_text(texts, target)
    epochs = numbers.view(pa.timestamp(unit)).cast(arrow_type(target))
    return pc.coalesce(epochs, _moment_of_text(texts, target).cast(arrow_type(target)))


def _apart(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Two arrays: the whole numbers among the texts, as BIGINT, and the other texts. Where one of
    the arrays has a value, the other has NULL.
    """
    is_whole = pc.match_substring_regex(array, _WHOLE)
    nothing = pa.scalar(None, array.type)
    numbers = pc.if_else(is_whole, array, nothing).cast(pa.int64())
    return numbers, pc.if_else(is_whole, nothing, array)


def _moment_of_text(array: pa.Array, target: DataType) -> pa.Array:
    """Parses texts that are not whole numbers into timestamps. If the month has no such day, its
    last day is taken. If the day is missing, the first day is taken.
    """
    parts = pc.extract_regex(_checked(array, _MOMENT), _MOMENT)
    # In Java, a DATE can be in the year 0, but a TIMESTAMP cannot.
    _refuse_any(pc.equal(pc.struct_field(parts, "year"), "0000"))
    ends_day = pc.match_substring_regex(array, _END_OF_DAY)
    hour = pc.if_else(ends_day, "00", _two_digits(parts, "hour"))
    clock = pc.binary_join_element_wise(
        hour, _two_digits(parts, "minute"), _two_digits(parts, "second"), ":"
    )
    month = pc.binary_join_element_wise(
        pc.struct_field(parts, "year"), _of_day(parts, "month"), "01", "-"
    )
    in_first_day = pc.binary_join_element_wise(month, clock, " ").cast(pa.timestamp("s"))
    seconds = _in_month(in_first_day, _of_day(parts, "day").cast(pa.int64()))
    seconds = _plus_days(seconds, pc.if_else(ends_day, 1, 0))
    if not target.precision:
        return seconds
    digits = pc.utf8_slice_codeunits(pc.struct_field(parts, "fraction"), 0, target.precision)
    wanted = arrow_type(target)
    width = DIGITS_OF_SECOND[wanted.unit]
    fraction = pc.utf8_rpad(digits, width=width, padding="0").cast(pa.int64())
    # Arrow is not asked to parse nanoseconds: its version 19 lets them wrap around.
    try:
        return pc.add_checked(seconds.cast(wanted).view(pa.int64()), fraction).view(wanted)
    except pa.ArrowInvalid:
        raise OverflowError("nanoseconds end in 2262") from None


def _in_month(in_first_day: pa.Array, days: pa.Array) -> pa.Array:
    """The moments, moved from the first day of their month to these days, at the same time. If a
    month has fewer days, its last day is taken.
    """
    _refuse_any(pc.or_(pc.less(days, 1), pc.greater(days, 31)))
    moments = _plus_days(in_first_day, pc.subtract(days, 1))
    is_beyond = pc.not_equal(pc.month(moments), pc.month(in_first_day))
    return _plus_days(moments, pc.if_else(is_beyond, pc.negate(pc.day(moments)), 0))


def _plus_days(moments: pa.Array, days: pa.Array) -> pa.Array:
    return pc.add(moments, pc.multiply(days, _DAY_SECONDS).cast(pa.duration("s")))


def _time(array: pa.Array, target: DataType) -> pa.Array:
    """Parses times into milliseconds of the day. Whatever the precision is, the milliseconds are
    rounded half up by the fourth digit after the point. Minutes and seconds may be more than 59. If
    they are missing, they are 0.
    """
    millis, texts = _apart(array)
    parts = pc.extract_regex(_checked(texts, _TIME), _TIME)
    hours, minutes, seconds = (_number(parts, name) for name in ("hour", "minute", "second"))
    digits = pc.utf8_rpad(pc.struct_field(parts, "fraction"), width=4, padding="0")
    ten_thousandths = pc.utf8_slice_codeunits(digits, 0, 4).cast(pa.int64())
    whole_minutes = pc.add(pc.multiply(hours, 60), minutes)
    whole_seconds = pc.add(pc.multiply(whole_minutes, 60), seconds)
    of_clock = pc.add(pc.multiply(whole_seconds, 1000), pc.divide(pc.add(ten_thousandths, 5), 10))
    of_day = pc.coalesce(millis, of_clock)
    _refuse_any(pc.or_(pc.less(of_day, 0), pc.greater_equal(of_day, _DAY_MILLIS)))
    return of_day.cast(pa.int32()).view(arrow_type(target))


def _number(parts: pa.Array, name: str) -> pa.Array:
    """A part of a clock time as a number. A missing part counts as 0."""
    return _two_digits(parts, name).cast(pa.int64())


def _day(parts: pa.Array) -> pa.Array:
    """The text of a DATE in Arrow's form, made from a match of `_DATE`."""
    year = pc.utf8_lpad(pc.struct_field(parts, "year"), width=4, padding="0")
    return pc.binary_join_element_wise(year, _of_day(parts, "month"), _of_day(parts, "day"), "-")


def _of_day(parts: pa.Array, name: str) -> pa.Array:
    """The two digits of a month or a day. If the month or the day is missing, they are "01"."""
    is_missing = pc.equal(pc.struct_field(parts, name), "")
    return pc.if_else(is_missing, "01", _two_digits(parts, name))


def _two_digits(parts: pa.Array, name: str) -> pa.Array:
    """A part of a date or of a time of day, padded to two digits: "07" for "7"."""
    return pc.utf8_lpad(pc.struct_field(parts, name), width=2, padding="0")


PARSERS: Final[Mapping[TypeRoot, Callable[[pa.Array, DataType], pa.Array]]] = MappingProxyType(
    {
        **dict.fromkeys(
            (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT), _integer
        ),
        TypeRoot.FLOAT: _float,
        TypeRoot.DOUBLE: _float,
        TypeRoot.DECIMAL: _decimal,
        TypeRoot.BOOLEAN: _boolean,
        TypeRoot.DATE: _date,
        TypeRoot.TIME: _time,
        TypeRoot.TIMESTAMP: _moment,
    }
)
"""The functions that parse text, by the kind of the values."""
