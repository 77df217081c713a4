"""What an option is, how its text becomes a value, and the options that are used (`Options`)."""

import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar
from zoneinfo import ZoneInfo

from paimon_stream.errors import InvalidOption

T = TypeVar("T")

SINK_PREFIX: Final = "paimon-stream."
"""The beginning of the keys of all sink options, and of no table option."""


@dataclass(frozen=True, slots=True)
class Option(Generic[T]):
    """One option.

    Attributes:
        key: the name of the option.
        parse: a function that turns a text into a value. It raises `ValueError`, whose text says
            what is wrong.
        default: the default value as users write it; None if there is no default.
        doc: what the option does.
        aliases: other names of the option.
    """

    key: str
    parse: Callable[[str], T]
    default: str | None
    doc: str
    aliases: tuple[str, ...] = ()


_SIZE = re.compile(r"([0-9]{1,19})\s*([a-z]*)", re.IGNORECASE)
_SIZE_UNITS: Final = {
    "": 1,
    "b": 1,
    "bytes": 1,
    "k": 2**10,
    "kb": 2**10,
    "kibibytes": 2**10,
    "m": 2**20,
    "mb": 2**20,
    "mebibytes": 2**20,
    "g": 2**30,
    "gb": 2**30,
    "gibibytes": 2**30,
    "t": 2**40,
    "tb": 2**40,
    "tebibytes": 2**40,
}
_OFFSET = re.compile(
    "(?:UTC|GMT|UT)?(?P<sign>[+-])(?P<hours>[0-9]{1,2})(?::?(?P<minutes>[0-5][0-9])(?::?(?P<seconds>[0-5][0-9]))?)?"
)
_NOT_OF_JAVA: Final = re.compile("EST|MST|HST|ROC|Factory|localtime|posix.*|right/.*")
_TIME_UNITS: Final = {
    "": 1,
    "ms": 1,
    "milli": 1,
    "millis": 1,
    "millisecond": 1,
    "milliseconds": 1,
    "s": 1000,
    "sec": 1000,
    "secs": 1000,
    "second": 1000,
    "seconds": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "minutes": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "hours": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "days": 86_400_000,
}


def _with_unit(text: str, units: Mapping[str, int], what: str, example: str) -> int:
    """The number that a text with a unit denotes. `what` and `example` are parts of the error."""
    parts = _SIZE.fullmatch(text.strip())
    unit = None if parts is None else units.get(parts[2].lower())
    if parts is None or unit is None:
        raise ValueError(f"not a {what} such as {example!r}")
    return int(parts[1]) * unit


def size(text: str) -> int:
    """The number of bytes for a size such as `128 mb`."""
    return _with_unit(text, _SIZE_UNITS, "size", "128 mb")


def duration(text: str) -> int:
    """The number of milliseconds for a duration such as `1 h`."""
    return _with_unit(text, _TIME_UNITS, "duration", "10 min")


def boolean(text: str) -> bool:
    """Parses `true` or `false`."""
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("not true or false")
    return text.strip().lower() == "true"


def switch(key: str, doc: str, *, aliases: tuple[str, ...] = ()) -> Option[bool]:
    """An option that is `true` or `false`. It is `false` unless it is set."""
    return Option(key, boolean, "false", doc, aliases)


def integer(text: str) -> int:
    """Parses a whole number."""
    if "_" in text:  # Python allows `_` between digits, and Java does not
        raise ValueError("not a whole number such as '4'")
    try:
        number = int(text.strip())
    except ValueError:
        raise ValueError("not a whole number such as '4'") from None
    if not -(2**63) <= number < 2**63:
        raise ValueError("beyond 64 bits")
    return number


def between(least: int, most: int, refusal: str) -> Callable[[str], int]:
    """A function that parses whole numbers within these bounds. `refusal` is the error for other
    numbers.
    """

    def parse(text: str) -> int:
        number = integer(text)
        if not least <= number <= most:
            raise ValueError(refusal)
        return number

    return parse


small: Final = between(1 - 2**31, 2**31 - 1, "beyond 32 bits")
positive: Final = between(1, 2**63 - 1, "must be at least 1")


def share(text: str) -> float:
    """Parses a number that is above 0 and at most 1."""
    number = share_or_none(text)
    if not number:
        raise ValueError("not a number above 0 and up to 1 such as '0.7'")
    return number


def share_or_none(text: str) -> float:
    """Parses a number from 0 to 1."""
    try:
        number = float(text.strip())
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise ValueError("not a number from 0 to 1 such as '0.2'")
    return number


def text(value: str) -> str:
    """Returns any text unchanged."""
    return value


def file_prefix(value: str) -> str:
    """Parses the beginning of file names. It must not contain a folder, because readers look for
    files only in a bucket's own folder.
    """
    if "/" in value or "\0" in value:
        raise ValueError("a file's name holds no '/'")
    return value


def word(value: str) -> str:
    """Parses a word in any letter case."""
    return value.strip().lower()


def zone(value: str) -> dt.tzinfo:
    """Parses a time zone in the form that Java uses: `Europe/Berlin`, `UTC`, `+08:00`, `GMT+8`."""
    name = value.strip()
    if name in ("Z", "UTC", "GMT", "UT"):
        return dt.timezone.utc
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        away = _away(offset)
        if away <= dt.timedelta(hours=18):
            if offset["sign"] == "-":
                away = -away
            return dt.timezone(away)
    elif not _NOT_OF_JAVA.fullmatch(name):
        # For an unknown zone, the exception is a KeyError.
        with suppress(ValueError, OSError, KeyError, TypeError, RecursionError):
            return ZoneInfo(name)
    raise ValueError("not a time zone of Java's such as 'Europe/Berlin' or '+02:00'")


def _away(offset: re.Match[str]) -> dt.timedelta:
    """The distance of a zone's offset from UTC, without its sign."""
    return dt.timedelta(
        hours=int(offset["hours"]),
        minutes=int(offset["minutes"] or 0),
        seconds=int(offset["seconds"] or 0),
    )


def levels(value: str) -> Mapping[int, str]:
    """Parses words by level, such as `0:avro,5:parquet`."""
    pairs = [pair.split(":") for pair in value.split(",") if pair.strip()]
    if not all(len(pair) == 2 and pair[0].strip().isdigit() for pair in pairs):
        raise ValueError("not a list such as '0:avro,5:parquet'")
    return {int(level): word.strip() for level, word in pairs}


def names(value: str) -> frozenset[str]:
    """Parses names that are separated by commas."""
    return frozenset(name.strip() for name in value.split(",") if name.strip())


def pair(value: str) -> tuple[str, str]:
    """Parses two words that are separated by a comma."""
    words = [word.strip() for word in value.split(",")]
    if len(words) != 2 or not all(words):
        raise ValueError("not a start and an end such as '3,7'")
    return words[0], words[1]


def one_of(*choices: str) -> Callable[[str], str]:
    """A function that parses one of these words, in any letter case."""

    def parse(value: str) -> str:
        lowered_value = value.strip().lower()
        if lowered_value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return lowered_value

    return parse


_FORM_TOKEN: Final = re.compile(
    r"(?P<letters>([A-Za-z])\2*)|'(?P<quoted>(?:[^']|'')*)'|(?P<sign>.)", re.DOTALL
)
_MOST_SECTIONS: Final = 10
"""The most sections in a form. With each section, it takes twice as long to find that a text does
not have the form.
"""
_MOST_LETTERS: Final = {"y": 19, "u": 19, "S": 9}
"""How often a letter may come in a row. Letters that are not listed may come twice."""
_FIXED_WIDTH: Final = re.compile(r"([MdHms])\1(?!\1)|S")
"""A number of fixed width."""


def time_form(value: str) -> re.Pattern[str]:
    """Turns a pattern of Java's `DateTimeFormatter`, such as `yyyyMMdd[ HH:mm]`, into a regular
    expression. Each letter becomes a group of this expression. Y is a year of 2 digits.
    """
    if value.count("[") > _MOST_SECTIONS:
        raise ValueError(f"it has more than {_MOST_SECTIONS} sections in [ ]")
    try:
        return re.compile(_FORM_TOKEN.sub(_part_of_form, value))
    except re.error:
        raise ValueError(
            "a section in [ ] is not closed or opened, or a letter comes twice"
        ) from None


def _part_of_form(token: re.Match[str]) -> str:
    """The regular expression of one token of a form. As in Java, a number takes all digits, unless
    a number of fixed width follows it directly.
    """
    sign = token["sign"] or ""
    if token["letters"] is None and sign not in ("{", "}", "#", "'"):
        if sign in ("[", "]"):
            return "(?:" if sign == "[" else ")?"
        return re.escape(sign or token["quoted"].replace("''", "'") or "'")
    letter = token[0][0]
    width = len(token[0])
    if letter not in "yuMdHmsS" or width > _MOST_LETTERS.get(letter, 2):
        raise ValueError(
            f"{token[0]!r} is not read here; use yyyy, yy, MM, M, dd, d, HH, H, mm, m, ss, s and S"
        )
    has_fixed_width = width == 2 or width > 3 or letter == "S"
    if has_fixed_width:
        group = "Y" if letter in "yu" and width == 2 else letter
        return f"(?P<{group}>[0-9]{{{width}}})"
    text_behind = token.string[token.end() :]
    end = "" if _FIXED_WIDTH.match(text_behind) else "(?![0-9])"
    return f"(?P<{letter}>[0-9]{{{width},19}}){end}"


class Options(Mapping[str, str]):
    """The options that are used: a table's options, overridden by the options of one writer. Keys
    are looked up in any letter case, except for names of columns in them.
    `options[TARGET_FILE_SIZE.key]` is the text of an option, and `options.value(TARGET_FILE_SIZE)`
    is its typed value, in this case in bytes.

    Args:
        table: the table's options.
        overrides: the options of the writer.
        location: where the table is, for messages.
    """

    __slots__ = ("_location", "_raw", "_values")

    def __init__(
        self,
        table: Mapping[str, str],
        overrides: Mapping[str, str] | None = None,
        location: str = "",
    ) -> None:
        self._location = location
        self._raw = {**lowered(table), **lowered(overrides or {})}
        # Values are looked up many times, so they are kept. No caller may change them.
        self._values: dict[str, Any] = {}

    def value(self, option: Option[T]) -> T:
        """The typed value, or the default. Raises `InvalidOption` for a wrong text, or if there is
        neither a value nor a default.
        """
        value: T
        if option.key in self._values:
            value = self._values[option.key]
            return value
        raw = self._raw.get(option.key)
        if raw is None:
            raw = self._text(option)
        if raw is None:
            raise InvalidOption(
                f"Option {option.key!r} is needed, but it is not set.", option=option.key
            ).at(self._location)
        try:
            value = _parsed(option.parse, raw)
        except ValueError as wrong:
            raise InvalidOption(
                f"Option {option.key!r} is {raw!r}: {wrong}.", option=option.key, value=raw
            ).at(self._location) from None
        self._values[option.key] = value
        return value

    def is_set(self, option: Option[Any]) -> bool:
        """Whether the option is set, so that its default is not used."""
        return any(key in self._raw for key in (option.key, *option.aliases))

    def differs(self, option: Option[Any]) -> bool:
        """Whether the option is set to another value than its default. Raises `InvalidOption`."""
        default = None if option.default is None else option.parse(option.default)
        return self.is_set(option) and self.value(option) != default

    def _text(self, option: Option[Any]) -> str | None:
        for key in (option.key, *option.aliases):
            if key in self._raw:
                return self._raw[key]
        return option.default

    def __getitem__(self, key: str) -> str:
        return self._raw[folded(key)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def __repr__(self) -> str:
        return f"Options({', '.join(sorted(self._raw))})"


@lru_cache(1024)
def _parsed(parse: Callable[[str], Any], raw: str) -> Any:
    """The value that a text means. Values are cached, because options are looked up many times in a
    commit. No caller may change them.
    """
    return parse(raw)


def lowered(options: Mapping[str, str]) -> dict[str, str]:
    """The options with their keys in lower case, except for names of columns in the keys. Values
    become text.
    """
    return {
        folded(str(key)): str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in options.items()
    }


def folded(key: str) -> str:
    """The key in lower case. Names of columns in it, as in `fields.<column>.stats-mode`, are not
    changed.
    """
    if not key.lower().startswith("fields."):
        return key.lower()
    _, *names, last = key.split(".")
    return ".".join(("fields", *names, last.lower()))
