"""The times that values of partitions name, by the patterns of Java's `DateTimeFormatter` (table-kinds.md §9.2)."""

import logging
import re
from collections.abc import Iterable
from typing import Final

import numpy as np

from paimon_stream.errors import InvalidOption
from paimon_stream.format.names import value_text
from paimon_stream.options import PARTITION_FORMATTER, PARTITION_PATTERN
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)
_TOKEN: Final = re.compile(r"(?P<letters>([A-Za-z])\2*)|'(?P<quoted>(?:[^']|'')*)'|(?P<sign>.)", re.DOTALL)
_SHOWN: Final = 5
_FIXED: Final = re.compile(r"([MdHms])\1(?!\1)|S")
_DEFAULT: Final = (
    "(?P<u>[0-9]{1,10})-(?P<M>[0-9]{1,2})-(?P<d>[0-9]{1,2})"
    r"(?: (?P<H>[0-9]{1,2}):(?P<m>[0-9]{1,2}):(?P<s>[0-9]{1,2})(?:\.(?P<S>[0-9]{1,9}))?)?"
)
_MOST_YEARS: Final = 999_999_999
_BOUNDS: Final = {"y": (1, _MOST_YEARS), "M": (1, 12), "d": (1, 31), "H": (0, 24), "m": (0, 59), "s": (0, 59)}


class TimeFormat:
    """A format of times: a pattern of Java's, or None for the default `u-M-d[ H:m:s[.fraction]]`. In the default, what
    is too large goes over: February 31 is March 2. In a pattern it is the last of February, and 24:00 is midnight."""

    def __init__(self, pattern: str | None) -> None:
        """Raises `ValueError` for what is no pattern, and for one of which this package does not read a part."""
        self._lenient = pattern is None
        try:
            self._regex = re.compile(_DEFAULT if pattern is None else _TOKEN.sub(_as_regex, pattern))
        except re.error:
            raise ValueError("a section in [ ] is not closed or opened, or a letter comes twice") from None

    def nanos(self, text: str) -> int | None:
        """The nanoseconds from 1970-01-01T00:00 to the time that the text names, both without a zone. A date alone is
        its midnight. None for a text that names no time; years with a sign are not read."""
        match = self._regex.fullmatch(text)
        digits = {name: given for name, given in (match.groupdict() if match else {}).items() if given is not None}
        found = {name: int(given.ljust(9, "0") if name == "S" else given) for name, given in digits.items()}
        year = 2000 + found["Y"] if "Y" in found else found.get("u", found.get("y", -1))
        if not (0 <= year <= _MOST_YEARS and {"M", "d"} <= found.keys()):
            return None
        given = [name in found for name in "HmsS"]
        has_time = given[0] and given == sorted(given, reverse=True)
        hour, minute, second, fraction = (found.get(name, 0) if has_time else 0 for name in "HmsS")
        outside = any(not low <= found.get(name, low) <= high for name, (low, high) in _BOUNDS.items())
        if not self._lenient and (outside or (hour == 24 and (minute or second or fraction))):
            return None
        months = (year - 1970) * 12 + found["M"] - 1
        first, following = map(int, np.array([months, months + 1]).astype("M8[M]").astype("M8[D]").astype(np.int64))
        days = first - 1 + (found["d"] if self._lenient else min(found["d"], following - first))
        return ((days * 24 + hour) * 3600 + minute * 60 + second) * 1_000_000_000 + fraction


def _as_regex(token: re.Match[str]) -> str:
    """A part of a pattern as a regular expression. Like Java, a number takes all digits but those of numbers of fixed
    width behind it. Raises `ValueError`."""
    letters, sign = token["letters"], token["sign"]
    if letters is None:
        literal = sign or token["quoted"].replace("''", "'") or "'"
        if sign is not None and sign in "{}#'":
            raise ValueError(f"{sign!r} has no meaning there")
        return {"[": "(?:", "]": ")?"}.get(sign or "", re.escape(literal))
    letter, width = letters[0], len(letters)
    if width > {"y": 19, "u": 19, "S": 9}.get(letter, 2) or letter not in "yuMdHmsS":
        raise ValueError(f"{letters!r} is not read here. Use yyyy, yy, MM, M, dd, d, HH, H, mm, m, ss, s and S")
    if width == 2 or letter == "S" or width > 3:
        return f"(?P<{'Y' if letter in 'yu' and width == 2 else letter}>[0-9]{{{width}}})"
    end = "" if _FIXED.match(token.string, token.end()) else "(?![0-9])"
    return f"(?P<{letter}>[0-9]{{{width},19}}){end}"


def partitions_before(table: Table, rows: Iterable[bytes], millis: int) -> list[bytes]:
    """The partitions, given by their rows, whose values name a time before this one, in milliseconds from
    1970-01-01T00:00 without a zone. Warns of values that name none. Raises `InvalidOption`."""
    options, before, unread = table.options, [], []
    pattern = options.value(PARTITION_PATTERN) if options.is_set(PARTITION_PATTERN) else None
    form = options.value(PARTITION_FORMATTER) if options.is_set(PARTITION_FORMATTER) else None
    try:
        times = TimeFormat(form)
    except ValueError as why:
        text = f"{table.location}: Option {PARTITION_FORMATTER.key!r} is {form!r}: {why}. No partition expired."
        raise InvalidOption(text, option=PARTITION_FORMATTER.key, table=table.location) from None
    for row in rows:
        texts = java_texts(table, row)[: 1 if pattern is None else None]
        known = [one for one in texts if one is not None]
        if len(known) < len(texts):
            continue  # NULL names no time
        text = known[0] if pattern is None else pattern
        for key, value in zip(table.schema.partition_keys, known, strict=False):
            text = text.replace(f"${key}", value)
        nanos = times.nanos(text)
        if nanos is None:
            unread.append(repr(text))
        elif nanos < millis * 1_000_000:
            before.append(row)
    if unread:
        _LOG.warning(
            "%s: %d partitions do not expire, because %s is no time of the form %s (a DATE is a number of days here). "
            "Set partition.timestamp-formatter, or partition.expiration-strategy = update-time.",
            table.location,
            len(unread),
            ", ".join(unread[:_SHOWN]),
            form or "yyyy-M-d[ H:m:s[.S]]",
        )
    return before


def java_texts(table: Table, row: bytes) -> list[str | None]:
    """The values of a partition, given by its row, as Java's `toString` writes them; None for NULL."""
    values = zip(table.partition_types, table.layout.partition_values(row), strict=True)
    return [None if value is None else value_text(type_, value) for type_, value in values]
