"""Formats values: as text for people, as JSON for programs. Names commands instead of Python methods in messages."""

import base64
import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from paimon_stream.reports import count as count
from paimon_stream.reports import iso as iso
from paimon_stream.reports import size as size


def moment(millis: int | None) -> str | None:
    """Epoch milliseconds for people, to the second: `2026-11-21T19:18:29Z`."""
    text = iso(millis)
    return None if text is None else f"{text.partition('.')[0]}Z"


def ranges(pairs: Sequence[tuple[int, int]], most: int = 5) -> str:
    """The first `most` ranges, such as `3, 5-8`, and the number of the others."""
    text = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in pairs[:most])
    return text + (f" and {len(pairs) - most} more" if len(pairs) > most else "")


def listed(names: Iterable[str], most: int = 10) -> str:
    """`a, b and c`. If there are more than `most` names: the first ones and the number of the others."""
    all_names = list(names)
    shown = all_names[:most]
    if len(all_names) > most:
        return f"{', '.join(shown)} and {len(all_names) - most:,} more"
    return ", ".join(shown[:-1]) + f" and {shown[-1]}" if len(shown) > 1 else "".join(shown)


def plain(value: object) -> str:
    """A value on one line. Characters that could move the cursor of a terminal, such as line ends, are escaped."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    text = str(value)
    return text if text.isprintable() else "".join(map(_visible, text))


def jsonable(value: Any) -> Any:
    """The value as JSON has it: dates and times as ISO text, decimals as text, bytes as Base64."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return base64.b64encode(value).decode()
        case Mapping():
            return {str(key): jsonable(one) for key, one in value.items()}
        case Decimal():
            return str(value)
        case dt.date() | dt.time():
            return value.isoformat()
        case list() | tuple() | set() | frozenset():
            return [jsonable(one) for one in value]
    return str(value)


def _visible(char: str) -> str:
    return char if char.isprintable() else f"\\x{ord(char):02x}"


_SAME: Final = (
    "compact_manifests", "delete", "expire_partitions", "files", "rebuild_index", "recommit", "repair_hints",
    "snapshots", "truncate", "verify",
)  # fmt: skip
COMMAND_OF: Final = {name: name.replace("_", "-") for name in _SAME} | {
    "create_tag": "tag create",
    "delete_tag": "tag delete",
    "drop_partitions": "drop-partition",
    "expire_snapshots": "expire",
    "remove_orphan_files": "orphans",
    "rollback_to": "rollback",
    "tags": "tag list",
}
"""The methods of `PaimonTable`, each with the command that does the same."""

_OPTION_OF: Final = {
    name: f"--{name.replace('_', '-')}"
    for name in ("max_deletes", "max_paths", "older_than", "retain_max", "retain_min", "time_retained")
} | {"snapshot_id": "--snapshot", "if_not_exists=True": "--if-not-exists"}

_METHODS: Final = "|".join(COMMAND_OF)
_LONG_METHODS: Final = "|".join(name for name in COMMAND_OF if "_" in name)
_CALL: Final = re.compile(
    rf"\bPaimonTable\.({_METHODS})\b(?:\([^()]*\))?|(?<![\w.])({_METHODS})\(\)|(?<![\w./])({_LONG_METHODS})\b(?:\([^()]*\))?"
)
_ARGUMENT: Final = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, _OPTION_OF))})(?!\w)")
_CREATE: Final = re.compile(r"Create the table with PaimonTable\.create\(.*?\), or correct the location")


def in_commands(text: str) -> str:
    """The text with commands and their options in place of methods and their arguments.

    >>> in_commands("PaimonTable.snapshots() and tags() list what there is.")
    '`paimon-stream snapshots` and `paimon-stream tag list` list what there is.'"""
    text = _CREATE.sub("Create the table with `paimon-stream create`, or correct the location", text)
    text = _CALL.sub(lambda found: f"`paimon-stream {COMMAND_OF[found[1] or found[2] or found[3]]}`", text)
    return _ARGUMENT.sub(lambda found: _OPTION_OF[found[1]], text)
