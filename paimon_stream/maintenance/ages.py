"""Ages and times, as all calls and commands accept them: `"7 d"`, `timedelta(days=7)`, `2026-11-01T12:00Z`."""

import datetime as dt
import re
from contextlib import suppress
from typing import TypeAlias

from paimon_stream.errors import InvalidOption
from paimon_stream.options import LONG, integer_of
from paimon_stream.options.option import duration

Age: TypeAlias = dt.timedelta | str
"""A `timedelta`, or a text such as `"7 d"` with the units of the options (`ms`, `s`, `min`, `h`, `d`)."""

Moment: TypeAlias = dt.datetime | dt.timedelta | str | int
"""An age or a time. A time is a `datetime` (local time if it has no zone), a text such as
`"2026-11-01T12:00Z"` (UTC if it names no zone), or epoch milliseconds."""


def age_or_time(text: str) -> dt.timedelta | dt.datetime:
    """The age or the time that a text denotes. Raises `ValueError` for any other text, and for a long number without a
    unit: `20261125` may be a day, and `1795653282788` a time, and neither is meant as an age."""
    if re.fullmatch(r"\s*\d{8,}\s*", text):
        raise ValueError("neither an age, because it has no unit, nor a time, because it has no dashes")
    try:
        return dt.timedelta(milliseconds=duration(text))
    except ValueError:
        moment = dt.datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.timezone.utc)


def age_of(given: Age, name: str, table: str) -> dt.timedelta:
    """The age. Raises `InvalidOption`, which names the argument (`name`) and the table's location (`table`)."""
    with suppress(ValueError, OverflowError):
        if isinstance(given, str):
            return dt.timedelta(milliseconds=duration(given))
    if isinstance(given, dt.timedelta) and given >= dt.timedelta(0):
        return given
    raise _refused(given, name, table, "an age", "Give an age such as '7 d' or '36 h', or a timedelta.")


def moment_millis(given: Moment, name: str, table: str, now_millis: int) -> int:
    """The moment in epoch milliseconds. Raises `InvalidOption`; the arguments are those of `age_of`."""
    when: object = given
    millis: int | None = None
    with suppress(ValueError, OverflowError):
        if isinstance(given, str):
            when = age_or_time(given)
        if isinstance(when, dt.timedelta):
            millis = now_millis - round(when.total_seconds() * 1000)
        elif isinstance(when, dt.datetime):
            millis = round(when.timestamp() * 1000)
        else:
            millis = integer_of(when)
    if millis is not None and LONG[0] <= millis <= LONG[1]:
        return millis
    cure = "Give an age such as '7 d', a time such as '2026-11-01T12:00Z', a timedelta or a datetime."
    raise _refused(given, name, table, "an age or a time", cure)


def _refused(given: object, name: str, table: str, what: str, cure: str) -> InvalidOption:
    text = f"{name} is {given!r}, which is not {what}. Nothing was changed. {cure}"
    return InvalidOption(text, option=name, value=given).of_table(table)
