"""Checks options and arguments of users, before anything is done.

- Options: a value that does not parse is refused, and an unknown key is reported.
- Arguments of public calls: the error names the table, the argument, and the values that it may
  have.
- Ages and times: all calls and commands accept forms such as `"7 d"`, `timedelta(days=7)`,
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
from functools import cache
from types import ModuleType
from typing import Any, Final, SupportsIndex, TypeAlias, TypeVar, cast

import numpy as np

import paimon_stream.options.of_sinks as of_sinks
import paimon_stream.options.of_tables as of_tables
from paimon_stream.errors import InvalidOption
from paimon_stream.options.of_newer import NEWER_OPTIONS
from paimon_stream.options.of_others import CHOOSING_ROWS, OF_OTHERS, PREFIXES
from paimon_stream.options.option import SINK_PREFIX, Option, Options, duration, lowered
from paimon_stream.options.store_names import is_secret

_CALLER: Final = 5
"""Frames from a warning to the user's own line, in `PaimonTable.create`, `append` and `PaimonSink`
alike.
"""

_PAIMON_ALIASES: Final = {
    "snapshot.expire.clean-empty-directories",
    "delete-file.thread-num",
    "first-row.ignore-delete",
    "deduplicate.ignore-delete",
    "partial-update.ignore-delete",
    "write.compaction-skip",
    "blob.stored-descriptor-fields",
}
_FOREIGN_KEYS: Final = {
    *CHOOSING_ROWS,
    *OF_OTHERS,
    *(key.lower() for newer in NEWER_OPTIONS for key in newer.keys),
}
"""Paimon's options that this package does not declare."""


FOLLOWED_BY_READS: Final = (
    of_tables.AGGREGATION_REMOVE_ON_DELETE,
    of_tables.BRANCH,
    of_tables.BUCKET,
    of_tables.BUCKET_KEY,
    of_tables.CHAIN_TABLE,
    of_tables.CHANGELOG_PRODUCER,
    of_tables.DATA_EVOLUTION,
    of_tables.DATA_FILE_DIRECTORY,
    of_tables.DEFAULT_AGGREGATE_FUNCTION,
    of_tables.DELETION_VECTORS,
    of_tables.DELETION_VECTORS_MERGE_ON_READ,
    of_tables.EXTERNAL_FS,
    of_tables.EXTERNAL_PATHS,
    of_tables.EXTERNAL_STRATEGY,
    of_tables.EXTERNAL_WEIGHTS,
    of_tables.FALLBACK_BRANCH,
    of_tables.FORCE_LOOKUP,
    of_tables.IGNORE_DELETE,
    of_tables.IGNORE_UPDATE_BEFORE,
    of_tables.INDEX_IN_DATA_DIR,
    of_tables.MERGE_ENGINE,
    of_tables.ORC_LTZ_LEGACY,
    of_tables.PARTIAL_UPDATE_REMOVE_ON_DELETE,
    of_tables.PARTIAL_UPDATE_REMOVE_ON_SEQUENCE_GROUP,
    of_tables.PARTITION_DEFAULT_NAME,
    of_tables.PARTITION_LEGACY_NAME,
    of_tables.PK_CLUSTERING_OVERRIDE,
    of_tables.POSTPONE_MERGE_ON_READ,
    of_tables.PRIMARY_BRANCH,
    of_tables.PRIMARY_KEY_NULLABLE,
    of_tables.QUERY_AUTH,
    of_tables.ROWKIND_FIELD,
    of_tables.ROW_TRACKING,
    of_tables.SEQUENCE_FIELD,
    of_tables.SEQUENCE_SORT_ORDER,
    of_tables.SNAPSHOT_ORDERING,
    of_tables.TABLE_TYPE,
)
"""The declared options of tables that reads follow, or because of which they refuse a table."""


def table_options() -> tuple[Option[Any], ...]:
    """All declared table options."""
    return _declared(of_tables)


def compaction_options() -> tuple[Option[Any], ...]:
    """All declared options of compactions. They are also table options."""
    return tuple(
        option for name, option in vars(of_tables).items() if name.startswith("COMPACTION_")
    )


def sink_options() -> tuple[Option[Any], ...]:
    """All declared sink options."""
    return _declared(of_sinks)


def store_options() -> tuple[Option[Any], ...]:
    """All declared options for object stores. They are also sink options."""
    return tuple(
        option for option in sink_options() if option.key.startswith(f"{SINK_PREFIX}store.")
    )


def of_table(stored: Mapping[str, str]) -> dict[str, str]:
    """The options in a table's schema, without those that have the prefix of sink options. Sink
    options have an effect only if they are given to a writer.
    """
    return {key: value for key, value in stored.items() if not _is_of_sinks(key)}


def sink_options_among(stored: Mapping[str, str]) -> list[str]:
    """The keys in a table's schema that have the prefix of sink options, sorted."""
    return sorted(filter(_is_of_sinks, stored))


def _is_of_sinks(key: str) -> bool:
    return key.lower().startswith(SINK_PREFIX)


@cache
def _declared(module: ModuleType) -> tuple[Option[Any], ...]:
    return tuple(value for value in vars(module).values() if isinstance(value, Option))


def check_sink_options(options: Mapping[str, str], additional: Iterable[str] | None = None) -> None:
    """Raises `InvalidOption` for a sink option that does not exist or does not parse. The error
    suggests the nearest option that exists. Other options are passed to `check_table_options`, with
    `additional`.
    """
    keys = [option.key for option in sink_options()]
    known = _by_name(of_sinks)
    for key, value in lowered(options).items():
        if key in known:
            Options({key: value}).value(known[key])  # raises if it does not parse
        elif key.startswith(SINK_PREFIX):
            raise InvalidOption(_unknown(key, keys), option=key)
        elif SINK_PREFIX + key in known:
            raise InvalidOption(
                f"Option {key!r} lacks its prefix. Write {SINK_PREFIX + key!r}.",
                option=key,
                value=value,
            )
    others = {key: value for key, value in options.items() if not _is_of_sinks(key)}
    check_table_options(others, additional)


def warn_of_unfollowed_writes(options: Mapping[str, str]) -> None:
    """Warns of Paimon's options that a writer was given but does not follow. Options in the table's
    schema may be for other engines, so they are not among `options`.
    """
    unfollowed = sorted(key for key in lowered(options) if key in _FOREIGN_KEYS)
    if unfollowed:
        warnings.warn(
            f"Options of Paimon's without effect on writers here: {', '.join(unfollowed)}.",
            stacklevel=_CALLER,
        )


def check_unfollowed_reads(options: Mapping[str, str], followed: Iterable[str]) -> None:
    """Raises `InvalidOption` for one of Paimon's options that a read was given but does not follow,
    if the read would return other rows with it. Paimon's default value is accepted, because it
    changes nothing. Warns of other options that such a read does not follow.

    Args:
        options: the options of the read.
        followed: the keys that this kind of read follows, besides the keys in `FOLLOWED_BY_READS`.
    """
    keys = {option.key for option in FOLLOWED_BY_READS}.union(followed)
    known = _by_name(of_tables)
    unfollowed = []
    for key, value in lowered(options).items():
        name = known[key].key if key in known else key
        if name in keys or _is_of_sinks(key):
            continue
        if key in CHOOSING_ROWS:
            if value.strip().lower() == CHOOSING_ROWS[key]:
                continue
            raise InvalidOption(
                f"Option {key!r} chooses which rows are read, and this read does not follow it. "
                "Nothing was read. Leave it out, and see docs/reading.md for what chooses a "
                "snapshot.",
                option=key,
            )
        if key in known or key in _FOREIGN_KEYS or key in _by_name(of_sinks):
            unfollowed.append(key)
    if unfollowed:
        warnings.warn(
            f"Options of Paimon's without effect on reads here: {', '.join(sorted(unfollowed))}.",
            stacklevel=_CALLER,
        )


def check_table_options(
    options: Mapping[str, str], additional: Iterable[str] | None = None
) -> None:
    """Raises `InvalidOption` for sink options, for credentials of stores, and for declared table
    options that do not parse. Warns of unknown options, and of aliases that Paimon itself does not
    know.

    Args:
        options: the options, by key.
        additional: further keys that the error about an unknown option may suggest. None if an
            unknown option is not an error. In this call, these keys are also unknown options.
    """
    keys = [option.key for option in table_options()]
    known = _by_name(of_tables)
    sink_keys = {option.key for option in sink_options()}
    for key, value in lowered(options).items():
        name = key if key.startswith(SINK_PREFIX) else SINK_PREFIX + key
        if name == key or name in sink_keys:
            raise InvalidOption(
                f"Option {key!r} belongs to a sink, not to a table. "
                f"Give it to PaimonSink: options={{{name!r}: {value!r}}}.",
                option=key,
                value=value,
            )
        if is_secret(key):
            raise InvalidOption(
                f"Option {key!r} is a credential of a store. "
                "A table's options are kept in its folder, where every reader sees them. "
                "Nothing was written. Give it as one of the storage_options.",
                option=key,
            )
        if key in known:
            Options({key: value}).value(known[key])  # raises if it does not parse
            if key != known[key].key and key not in _PAIMON_ALIASES:
                warnings.warn(
                    f"Option {key!r} is read as {known[key].key!r}. "
                    "Paimon itself knows only the latter.",
                    stacklevel=_CALLER,
                )
        elif not _is_foreign(key):
            if additional is not None:
                raise InvalidOption(
                    f"{_unknown(key, (*keys, *additional))} Nothing was written or read.",
                    option=key,
                )
            warnings.warn(
                f"{_unknown(key, (*keys, *_FOREIGN_KEYS))} It is kept, and has no effect here.",
                stacklevel=_CALLER,
            )


def is_known(key: str) -> bool:
    """Whether this package or Paimon has a table option with this name."""
    lower_key = key.lower()
    return lower_key in _by_name(of_tables) or _is_foreign(lower_key)


def _is_foreign(key: str) -> bool:
    """Whether the key, in lower case, belongs to one of Paimon's options that are passed through.
    Sinks follow some of these options, because their keys are Paimon's names for sink options.
    """
    return key in _FOREIGN_KEYS or key in _by_name(of_sinks) or key.startswith(PREFIXES)


@cache
def _by_name(module: ModuleType) -> Mapping[str, Option[Any]]:
    """The options that a module declares, by their keys and aliases."""
    options = _declared(module)
    return {name: option for option in options for name in (option.key, *option.aliases)}


def _unknown(key: str, known: Iterable[str]) -> str:
    return f"Unknown option {key!r}. {did_you_mean(key, known)}".rstrip()


def did_you_mean(key: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """A question about the known name that is nearest to the key; empty if no known name is near.
    `likeness` is the smallest similarity that counts as near, from 0 to 1.
    """
    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(key.lower(), names, n=1, cutoff=likeness)
    return f"Did you mean {names[near[0]]!r}?" if near else ""


LONG: Final = (-(2**63), 2**63 - 1)
"""The bounds of a number that Paimon stores as a Java `long`."""

Flag = TypeVar("Flag", bound=bool | None)
Number = TypeVar("Number", bound=int | None)

_MOST_SHOWN: Final = 60
"""The most characters of a value that a message shows."""


class Arguments:
    """Checks the arguments of one call that concerns the table at this location. Each check takes
    the argument's name and value, and raises `InvalidOption`. None is accepted if `optional` is
    set. Instead of a mapping, None is always accepted.
    """

    def __init__(self, table: str) -> None:
        self._table = table

    def flag(self, name: str, value: Flag, *, optional: bool = False) -> Flag:
        """Returns the flag, which must be True or False. Other values that Python treats as true or
        false are refused.
        """
        if isinstance(value, np.bool_):
            return cast(Flag, bool(value))
        is_left_out = optional and value is None
        if not isinstance(value, bool) and not is_left_out:
            raise self.wrong(name, value, _allowed("True or False", optional=optional))
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
        """Returns the number, which must be a whole number within these bounds."""
        if optional and value is None:
            return value
        number = integer_of(value)
        low = -math.inf if least is None else least
        high = math.inf if most is None else most
        if number is None or not low <= number <= high:
            bounds = []
            if least is not None:
                bounds.append(f"at least {least}")
            if most is not None:
                bounds.append(f"at most {most}")
            allowed = f"a whole number of {' and '.join(bounds)}" if bounds else "a whole number"
            shown = value if number is None else number
            raise self.wrong(name, shown, _allowed(allowed, optional=optional))
        return cast(Number, number)

    def text(
        self, name: str, value: object, *, may_be_blank: bool = False, optional: bool = False
    ) -> None:
        """Checks that the value is text. The text may be empty or white space only if
        `may_be_blank` is set.
        """
        if optional and value is None:
            return
        is_text = isinstance(value, str) and (may_be_blank or value.strip() != "")
        if not is_text:
            allowed = "text" if may_be_blank else "text that is not blank"
            raise self.wrong(name, value, _allowed(allowed, optional=optional))

    def function(self, name: str, value: object, *, optional: bool = False) -> None:
        """Checks that the value can be called."""
        is_left_out = optional and value is None
        if not callable(value) and not is_left_out:
            raise self.wrong(name, value, _allowed("a function", optional=optional))

    def mapping(
        self, name: str, value: Any, example: str, *, texts: bool = False
    ) -> dict[str, Any]:
        """Returns a mapping as a dict; {} for None. The keys must be text. With `texts`, the values
        must also be text. Messages hide the values, because values may be secrets.
        """
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.wrong(name, value, f"a dict such as {example}", secret=True)
        for key, element in value.items():
            if not isinstance(key, str):
                raise self.wrong(f"a key of {name}", key, "text")
            if texts and not isinstance(element, str):
                raise self.wrong(f"{name}[{key!r}]", element, "text", secret=True)
        return dict(value)

    def items(self, name: str, value: Any, kind: type[Any], what: str) -> tuple[Any, ...]:
        """The items of an iterable other than text and mappings. `what` says what the caller should
        give, such as "names".
        """
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise self.wrong(name, value, what)
        items = tuple(value)
        for number, item in enumerate(items):
            if not isinstance(item, kind):
                raise self.wrong(f"{name}[{number}]", item, f"{what} as {name}")
        return items

    def wrong(
        self, name: str, value: object, allowed: str, *, secret: bool = False
    ) -> InvalidOption:
        """The error for a value that is not allowed. `allowed` says which values are. If the value
        is secret or may be long, the error shows only its type. `name` may be a part of an
        argument, such as `messages[2]`.
        """
        is_long = isinstance(value, str | bytes) and len(value) > _MOST_SHOWN
        is_huge = isinstance(value, int) and not LONG[0] <= value <= LONG[1]
        is_plain = isinstance(value, str | bytes | int | float)
        is_hidden = secret or is_long or is_huge
        if value is None or (is_plain and not is_hidden):
            shown = repr(value)
        else:
            shown = f"of type {type(value).__name__}"
        # The name of the argument itself: `messages` for `messages[2]`, `options` for `a key of
        # options`.
        argument = name.partition("[")[0].rpartition(" ")[2]
        return InvalidOption(
            f"{name} is {shown}. Nothing was changed. Give {allowed}.", option=argument
        ).of_table(self._table)


def _allowed(kind: str, *, optional: bool) -> str:
    """What a caller may give: a value of this kind, or nothing if the argument is `optional`."""
    return f"{kind}, or leave it out" if optional else kind


def integer_of(value: object) -> int | None:
    """The value as an `int`; None if it is not a whole number. True and False do not count as
    numbers. Whole numbers of numpy do.
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
    """The age or the time that a text denotes. Raises `ValueError` for any other text. It also
    raises `ValueError` for a long number without a unit, because such a number is probably not an
    age: `20261125` may be a day, and `1795653282788` a time.
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


def age_of(value: Age, name: str, table: str) -> dt.timedelta:
    """The age that a caller gives.

    Args:
        value: the age.
        name: the name of the argument, for messages.
        table: the table's location, for messages.

    Raises:
        InvalidOption: the value is not an age.
    """
    age: object = value
    with suppress(ValueError, OverflowError):
        if isinstance(value, str):
            age = dt.timedelta(milliseconds=duration(value))
    if isinstance(age, dt.timedelta) and age >= dt.timedelta(0):
        return age
    raise InvalidOption(
        f"{name} is {value!r}, which is not an age. Nothing was changed. "
        "Give an age such as '7 d' or '36 h', or a timedelta.",
        option=name,
        value=value,
    ).of_table(table)


def moment_millis(value: Moment, name: str, table: str, now_millis: int) -> int:
    """The moment that a caller gives, in epoch milliseconds.

    Args:
        value: the moment.
        name: the name of the argument, for messages.
        table: the table's location, for messages.
        now_millis: the time from which an age is counted back, in epoch milliseconds.

    Raises:
        InvalidOption: the value is not a moment.
    """
    when: object = value
    millis: int | None = None
    with suppress(ValueError, OverflowError):
        if isinstance(value, str):
            when = age_or_time(value)
        if isinstance(when, dt.timedelta):
            millis = now_millis - round(when.total_seconds() * 1000)
        elif isinstance(when, dt.datetime):
            millis = round(when.timestamp() * 1000)
        else:
            millis = integer_of(when)
    if millis is not None and LONG[0] <= millis <= LONG[1]:
        return millis
    raise InvalidOption(
        f"{name} is {value!r}, which is not an age or a time. Nothing was changed. "
        "Give an age such as '7 d', a time such as '2026-11-01T12:00Z', a timedelta or a datetime.",
        option=name,
        value=value,
    ).of_table(table)
