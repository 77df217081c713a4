"""Turns values into text for people and into JSON for programs. Also replaces Python methods in
messages by commands.

A partition is written as `dt=2026-11-21, hour=7`. The text can be typed again, and no two
partitions look the same. A value with characters other than letters, digits and some signs is in
double quotes, as in JSON. NULL without quotes is the missing value. The text "NULL" is in quotes.
"""

import base64
import datetime as dt
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import click

from paimon_stream.errors import first_few
from paimon_stream.reports import count as count
from paimon_stream.reports import iso as iso
from paimon_stream.reports import size as size
from paimon_stream.reports import span as span


def moment(millis: int | None) -> str | None:
    """Epoch milliseconds as text for people, with whole seconds: `2026-11-21T19:18:29Z`."""
    time = iso(millis)
    return None if time is None else f"{time.partition('.')[0]}Z"


def minute(millis: int | None) -> str | None:
    """Epoch milliseconds as short text for people, without seconds: `2026-11-21 19:18Z`."""
    time = iso(millis)
    return None if time is None else f"{time[:16].replace('T', ' ')}Z"


def ranges(pairs: Sequence[tuple[int, int]], most_shown: int = 5) -> str:
    """The first `most_shown` ranges, such as `3, 5-8`, and the number of the remaining ranges."""
    texts = [str(low) if low == high else f"{low}-{high}" for low, high in pairs]
    return first_few(texts, most_shown)


def listed(names: Iterable[str], most_shown: int = 10) -> str:
    """The names as `a, b and c`. If there are more than `most_shown` names, the first of them and
    the number of the others.
    """
    all_names = list(names)
    if len(all_names) > most_shown or len(all_names) < 2:
        return first_few(all_names, most_shown)
    return f"{', '.join(all_names[:-1])} and {all_names[-1]}"


def plain(value: object) -> str:
    """A value on one line. Characters that could move the cursor of a terminal, such as line ends,
    are escaped.
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    text = str(value)
    return text if text.isprintable() else "".join(map(_visible, text))


def jsonable(value: Any) -> Any:
    """The value in a form that JSON has. Dates and times become ISO text. Decimals, NaN and
    Infinity become text. Bytes become Base64.
    """
    match value:
        case float() if not math.isfinite(value):
            return json.dumps(value)  # as Spark writes them: JSON has no such numbers
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return base64.b64encode(value).decode()
        case Mapping():
            return {str(key): jsonable(item) for key, item in value.items()}
        case Decimal():
            return str(value)
        case dt.date() | dt.time():
            return value.isoformat()
        case list() | tuple() | set() | frozenset():
            return [jsonable(item) for item in value]
    return str(value)


def _visible(char: str) -> str:
    return char if char.isprintable() else f"\\x{ord(char):02x}"


_SAME: Final = (
    "compact_manifests",
    "delete",
    "drop_lost_files",
    "expire_partitions",
    "files",
    "rebuild_index",
    "recommit",
    "repair_hints",
    "snapshots",
    "truncate",
    "verify",
)
COMMAND_OF: Final = {name: name.replace("_", "-") for name in _SAME} | {
    "create_tag": "tag create",
    "delete_tag": "tag delete",
    "drop_partitions": "drop-partition",
    "expire_snapshots": "expire",
    "remove_orphan_files": "orphans",
    "rollback_to": "rollback",
    "tags": "tag list",
}
"""Methods of `PaimonTable`, each with the command that does the same."""

_OPTION_OF: Final = {
    name: f"--{name.replace('_', '-')}"
    for name in (
        "max_deletes",
        "max_paths",
        "older_than",
        "retain_max",
        "retain_min",
        "time_retained",
    )
} | {"snapshot_id": "--snapshot", "if_not_exists=True": "--if-not-exists"}

_METHODS: Final = "|".join(COMMAND_OF)
_LONG_METHODS: Final = "|".join(name for name in COMMAND_OF if "_" in name)
_CALL: Final = re.compile(
    rf"\bPaimonTable\.({_METHODS})\b(?:\([^()]*\))?|(?<![\w.])({_METHODS})\(\)|(?<![\w./])({_LONG_METHODS})\b(?:\([^()]*\))?"
)
_ARGUMENT: Final = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, _OPTION_OF))})(?!\w)")
_CREATE: Final = re.compile(
    r"Create the table with PaimonTable\.create\(.*?\), or correct the location"
)


def in_commands(text: str) -> str:
    """The text with commands and their options in place of methods and their arguments.

    >>> in_commands("PaimonTable.snapshots() and tags() list what there is.")
    '`paimon-stream snapshots` and `paimon-stream tag list` list what there is.'"""
    text = _CREATE.sub(
        "Create the table with `paimon-stream create`, or correct the location", text
    )
    text = _CALL.sub(_command_of_call, text)
    return _ARGUMENT.sub(lambda argument: _OPTION_OF[argument[1]], text)


def _command_of_call(call: re.Match[str]) -> str:
    """The command that replaces a call. The form of the call shows which group has the method."""
    method = call[1] or call[2] or call[3]
    return f"`paimon-stream {COMMAND_OF[method]}`"


_NULL: Final = "NULL"
_SIGNS: Final = frozenset("-_.:+@ ")
_SYNTAX: Final = (
    "A partition is COLUMN=VALUE[,COLUMN=VALUE…], such as dt=2026-11-21,hour=7. NULL is the missing value. "
    'A text with a comma or a quote needs double quotes, as in JSON: region="a, b".'
)


def partition_text(values: Mapping[str, Any]) -> str:
    """The values of a partition, by column; `-` in a table without partitions."""
    return ", ".join(f"{name}={_value_text(value)}" for name, value in values.items()) or "-"


def partition_of(typed: str) -> dict[str, str | None]:
    """The typed values by column; None for NULL. Raises a usage error if the text has another form,
    or if a column is named twice.
    """
    values: dict[str, str | None] = {}
    for name, value in _columns_and_values(typed):
        if name in values:
            raise click.UsageError(
                f"{typed!r} gives the column {name!r} twice. Name each partition alone. {_SYNTAX}"
            )
        values[name] = value
    return values


def _value_text(value: Any) -> str:
    if value is None:
        return _NULL
    if not isinstance(value, str):
        return str(jsonable(value))
    if _is_simple(value):
        return value
    return f'"{"".join(map(_quoted, value))}"'


def _is_simple(text: str) -> bool:
    """Whether the text needs no quotes, because it cannot be confused with another text, with NULL,
    with a separator, or with an empty value.
    """
    if text in ("", _NULL) or text != text.strip() or unicodedata.normalize("NFC", text) != text:
        return False
    return all(char.isalnum() or char in _SIGNS for char in text)


def _quoted(char: str) -> str:
    """One character inside quotes. A combining accent is written as a number, because it would
    merge with the character before it.
    """
    if char.isprintable() and not unicodedata.combining(char) and char not in '"\\':
        return char
    return json.dumps(char)[1:-1]  # without the quotes


def _columns_and_values(typed: str) -> Iterator[tuple[str, str | None]]:
    position = 0
    while position <= len(typed):
        name, sign, _ = typed[position:].partition("=")
        if not sign or not name.strip() or "," in name:
            raise click.UsageError(f"{typed!r} names no partition. {_SYNTAX}")
        position += len(name) + 1
        value, position = _value_at(typed, position)
        yield name.strip(), value
        if position < len(typed) and typed[position] != ",":
            raise click.UsageError(
                f"{typed!r} names no partition: text follows a closing quote. {_SYNTAX}"
            )
        position += 1


def _value_at(typed: str, start: int) -> tuple[str | None, int]:
    """The value that begins at `start`, and the position of its end."""
    if not typed.startswith('"', start):
        value = typed[start:].partition(",")[0]
        return (None if value == _NULL else value), start + len(value)
    try:
        value, end = json.JSONDecoder().raw_decode(typed, start)
    except ValueError:
        raise click.UsageError(
            f"{typed!r} names no partition: a quote is not closed. {_SYNTAX}"
        ) from None
    return str(value), end
