"""Checks what users give, before anything is done. Options: values that do not parse are refused,
unknown keys are reported. Arguments of public calls: one error names the table, the argument and
what it may be. Ages and times, as all calls and commands accept them: `"7 d"`, `timedelta(days=7)`,
`2026-11-01T12:00Z`.
"""

import datetime as dt
import difflib
import math
import operator
import re
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any, Final, SupportsIndex, TypeAlias, TypeVar, cast

import numpy as np

from paimon_stream.errors import InvalidOption
from paimon_stream.options import of_sinks, of_tables
from paimon_stream.options.option import SINK_PREFIX, Option, Options, duration, lowered
from paimon_stream.options.store_names import is_secret

_CALLER: Final = 5
"""Frames from a warning to the user's own line, in `PaimonTable.create`, `append` and `PaimonSink`
alike.
"""

# Prefixes of Paimon's keys that this package passes through, because they concern readers or other
# writers. A key that is neither among these nor declared is unknown and gets a warning.
_FOREIGN_PREFIXES: Final = (
    "fields.",
    "file-index.",
    "parquet.",
    "orc.",
    "avro.",
    "changelog",
    "compaction.",
    "consumer",
    "deletion-vector",
    "full-compaction.",
    "local-merge",
    "lookup",
    "metastore.",
    "num-",
    "partition.",
    "postpone.",
    "read.",
    "record-level.",
    "row-tracking.",
    "scan.",
    "sequence.",
    "sink.",
    "snapshot.",
    "sort-",
    "source.",
    "spill-",
    "streaming",
    "tag.",
    "write",
    "aggregation.",
    "partial-update.",
    "first-row.",
    "deduplicate.",
    "cross-partition-upsert.",
    "data-evolution.",
    "data-file.",
    "file.",
    "manifest",
    "commit.",
    "metadata.",
    "clustering.",
)
_PAIMON_ALIASES: Final = {
    "snapshot.expire.clean-empty-directories",
    "delete-file.thread-num",
    "first-row.ignore-delete",
    "deduplicate.ignore-delete",
    "partial-update.ignore-delete",
    "write.compaction-skip",
}
_FOREIGN_KEYS: Final = {
    "path",
    "primary-key",
    "partition",
    "owner",
    "async-file-write",
    "upsert-key",
    "incremental-between",
    "alter-column-null-to-not-null.disabled",
    "disable-explicit-type-casting",
    "add-column-before-partition",
    "delete-file.thread-num",
    "auto-create",
    "provider",
    "target-file-row-num",
    "comment",
    "created-at",
}


def table_options() -> tuple[Option[Any], ...]:
    """All declared table options."""
    return _declared(of_tables)


def compaction_options() -> tuple[Option[Any], ...]:
    """All declared options of compactions, which are table options, too."""
    return tuple(one for name, one in vars(of_tables).items() if name.startswith("COMPACTION_"))


def sink_options() -> tuple[Option[Any], ...]:
    """All declared sink options."""
    return _declared(of_sinks)


def store_options() -> tuple[Option[Any], ...]:
    """All declared options for object stores, which are sink options, too."""
    return tuple(one for one in sink_options() if one.key.startswith(f"{SINK_PREFIX}store."))


def of_table(stored: Mapping[str, str]) -> dict[str, str]:
    """The options in a table's schema without those that begin as sink options do: these count only
    if a writer is given them.
    """
    return {key: value for key, value in stored.items() if not _is_of_sinks(key)}


def sink_options_among(stored: Mapping[str, str]) -> list[str]:
    """The keys in a table's schema that begin as sink options do, sorted."""
    return sorted(filter(_is_of_sinks, stored))


def _is_of_sinks(key: str) -> bool:
    return key.lower().startswith(SINK_PREFIX)


def _declared(module: ModuleType) -> tuple[Option[Any], ...]:
    return tuple(one for one in vars(module).values() if isinstance(one, Option))


def check_sink_options(given: Mapping[str, str], beside: Iterable[str] | None = None) -> None:
    """Raises `InvalidOption` for sink options that do not exist (and suggests the nearest one that
    does) or do not parse. Checks the other options as `check_table_options` does.
    """
    keys, known = [option.key for option in sink_options()], _by_name(sink_options())
    for key, value in lowered(given).items():
        if key in known:
            Options({key: value}).value(known[key])
        elif key.startswith(SINK_PREFIX):
            raise InvalidOption(_unknown(key, keys), option=key)
        elif SINK_PREFIX + key in known:
            text = f"Option {key!r} lacks its prefix. Write {SINK_PREFIX + key!r}."
            raise InvalidOption(text, option=key, value=value)
    check_table_options(
        {k: v for k, v in given.items() if not k.lower().startswith(SINK_PREFIX)}, beside
    )


def check_table_options(given: Mapping[str, str], beside: Iterable[str] | None = None) -> None:
    """Raises `InvalidOption` for sink options, for credentials of stores, and for declared table
    options that do not parse. Warns of unknown options, and of aliases that Paimon itself does not
    know. With `beside`, the keys that may be given in addition, an unknown option is an error.
    """
    keys, known = [option.key for option in table_options()], _by_name(table_options())
    ours = {option.key for option in sink_options()}
    for key, value in lowered(given).items():
        if key.startswith(SINK_PREFIX) or SINK_PREFIX + key in ours:
            name = key if key.startswith(SINK_PREFIX) else SINK_PREFIX + key
            text = f"Option {key!r} belongs to a sink, not to a table. Give it to PaimonSink:"
            raise InvalidOption(f"{text} options={{{name!r}: {value!r}}}.", option=key, value=value)
        if is_secret(key):
            why = "where every reader sees them. Nothing was written. Give it as one of the storage_options."
            text = f"Option {key!r} is a credential of a store. A table's options are kept in its folder, {why}"
            raise InvalidOption(text, option=key)
        if key in known:
            Options({key: value}).value(known[key])
            if key != known[key].key and key not in _PAIMON_ALIASES:
                text = f"Option {key!r} is read as {known[key].key!r}. Paimon itself knows only the latter."
                warnings.warn(text, stacklevel=_CALLER)
        elif key not in _FOREIGN_KEYS and not key.startswith(_FOREIGN_PREFIXES):
            if beside is not None:
                raise InvalidOption(
                    f"{_unknown(key, (*keys, *beside))} Nothing was written or read.", option=key
                )
            text = f"{_unknown(key, (*keys, *_FOREIGN_KEYS))} It is kept, and has no effect here."
            warnings.warn(text, stacklevel=_CALLER)


def _by_name(options: Iterable[Option[Any]]) -> dict[str, Option[Any]]:
    return {name: option for option in options for name in (option.key, *option.aliases)}


def _unknown(key: str, known: Iterable[str]) -> str:
    return f"Unknown option {key!r}. {did_you_mean(key, known)}".rstrip()


def did_you_mean(key: str, known: Iterable[str]) -> str:
    """A question about the known name that is nearest to the key; empty if none is near."""
    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(key.lower(), names, n=1, cutoff=0.6)
    return f"Did you mean {names[near[0]]!r}?" if near else ""


LONG: Final = (-(2**63), 2**63 - 1)
"""The bounds of a number that Paimon stores as a Java `long`."""

Flag = TypeVar("Flag", bound=bool | None)
Number = TypeVar("Number", bound=int | None)

_SHOWN: Final = 60
_LEFT_OUT: Final = ("", ", or leave it out")


class Arguments:
    """Checks the arguments of one call that concerns the table at this location. Each method takes
    the argument's name and value. None is accepted if `optional` is true. Raises `InvalidOption`.
    """

    def __init__(self, table: str) -> None:
        self._table = table

    def flag(self, name: str, value: Flag, *, optional: bool = False) -> Flag:
        """The flag, True or False; other values that count as true or false are refused."""
        if isinstance(value, np.bool_):
            return cast(Flag, bool(value))
        if not isinstance(value, bool) and not (optional and value is None):
            raise self.wrong(name, value, "True or False" + _LEFT_OUT[optional])
        return value

    def whole(
        self,
        name: str,
        value: Number,
        *,
        least: int | None = None,
        most: int | None = None,
        optional: bool = False,
    ) -> Number:
        """The number, a whole number within these bounds."""
        if optional and value is None:
            return value
        number = integer_of(value)
        low, high = -math.inf if least is None else least, math.inf if most is None else most
        if number is None or not low <= number <= high:
            bounds = "" if least is None else f" of at least {least}"
            bounds += "" if most is None else f"{' and' if bounds else ' of'} at most {most}"
            shown = value if number is None else number
            raise self.wrong(name, shown, f"a whole number{bounds}" + _LEFT_OUT[optional])
        return cast(Number, number)

    def text(
        self, name: str, value: object, *, blank: bool = False, optional: bool = False
    ) -> None:
        """Text, which may be blank only if `blank` is true."""
        if optional and value is None:
            return
        if not isinstance(value, str) or not (blank or value.strip()):
            allowed = "text" if blank else "text that is not blank"
            raise self.wrong(name, value, allowed + _LEFT_OUT[optional])

    def function(self, name: str, value: object, *, optional: bool = False) -> None:
        """Something that can be called."""
        if not callable(value) and not (optional and value is None):
            raise self.wrong(name, value, "a function" + _LEFT_OUT[optional])

    def mapping(
        self, name: str, value: Any, example: str, *, texts: bool = False
    ) -> dict[str, Any]:
        """A mapping of text, with `texts` to text, as a dict; {} for None. Messages hide the values
        (secrets).
        """
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.wrong(name, value, f"a dict such as {example}", secret=True)
        for key, one in value.items():
            if not isinstance(key, str):
                raise self.wrong(f"a key of {name}", key, "text")
            if texts and not isinstance(one, str):
                raise self.wrong(f"{name}[{key!r}]", one, "text", secret=True)
        return dict(value)

    def items(self, name: str, value: Any, kind: type[Any], what: str) -> tuple[Any, ...]:
        """The items of an iterable other than text and mappings. `what` says what to give, such as
        "names".
        """
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise self.wrong(name, value, what)
        found = tuple(value)
        for number, one in enumerate(found):
            if not isinstance(one, kind):
                raise self.wrong(f"{name}[{number}]", one, f"{what} as {name}")
        return found

    def wrong(
        self, name: str, value: object, allowed: str, *, secret: bool = False
    ) -> InvalidOption:
        """The error for a value that is not what is `allowed`. It shows only the type of a value
        that is secret or may be long. `name` may be a part of an argument, such as `messages[2]`.
        """
        shown = f"of type {type(value).__name__}"
        long = isinstance(value, str | bytes) and len(value) > _SHOWN
        huge = isinstance(value, int) and not LONG[0] <= value <= LONG[1]
        if value is None or (
            isinstance(value, str | bytes | int | float) and not (secret or long or huge)
        ):
            shown = repr(value)
        text = f"{name} is {shown}. Nothing was changed. Give {allowed}."
        return InvalidOption(text, option=name.partition("[")[0].rpartition(" ")[2]).of_table(
            self._table
        )


def integer_of(value: object) -> int | None:
    """The value as an `int`, None if it is no whole number; True and False are none. Takes those of
    numpy.
    """
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return operator.index(cast(SupportsIndex, value))
    except TypeError:
        return None


Age: TypeAlias = dt.timedelta | str
"""A `timedelta`, or a text such as `"7 d"` with the units of the options (`ms`, `s`, `min`, `h`,
`d`).
"""

Moment: TypeAlias = dt.datetime | dt.timedelta | str | int
"""An age or a time. A time is a `datetime` (local time if it has no zone), a text such as
`"2026-11-01T12:00Z"` (UTC if it names no zone), or epoch milliseconds."""


def age_or_time(text: str) -> dt.timedelta | dt.datetime:
    """The age or the time that a text denotes. Raises `ValueError` for any other text, and for a
    long number without a unit: `20261125` may be a day, and `1795653282788` a time, and neither is
    meant as an age.
    """
    if re.fullmatch(r"\s*\d{8,}\s*", text):
        raise ValueError(
            "neither an age, because it has no unit, nor a time, because it has no dashes"
        )
    try:
        return dt.timedelta(milliseconds=duration(text))
    except ValueError:
        moment = dt.datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.timezone.utc)


def age_of(given: Age, name: str, table: str) -> dt.timedelta:
    """The age. Raises `InvalidOption`, which names the argument (`name`) and the table's location
    (`table`).
    """
    with suppress(ValueError, OverflowError):
        if isinstance(given, str):
            return dt.timedelta(milliseconds=duration(given))
    if isinstance(given, dt.timedelta) and given >= dt.timedelta(0):
        return given
    raise _refused(
        given, name, table, "an age", "Give an age such as '7 d' or '36 h', or a timedelta."
    )


def moment_millis(given: Moment, name: str, table: str, now_millis: int) -> int:
    """The moment in epoch milliseconds. Raises `InvalidOption`; the arguments are those of
    `age_of`.
    """
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
    cure = (
        "Give an age such as '7 d', a time such as '2026-11-01T12:00Z', a timedelta or a datetime."
    )
    raise _refused(given, name, table, "an age or a time", cure)


def _refused(given: object, name: str, table: str, what: str, cure: str) -> InvalidOption:
    text = f"{name} is {given!r}, which is not {what}. Nothing was changed. {cure}"
    return InvalidOption(text, option=name, value=given).of_table(table)
