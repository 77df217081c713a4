"""A partition as people read and type it: `dt=2026-11-21, hour=7`. What is shown can be typed again, and no two
partitions look the same. A text with other characters than letters, digits and some signs is in double quotes, as in
JSON. NULL is the missing value; the text NULL is in quotes."""

import json
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from paimon_stream.cli.text import jsonable

_NULL: Final = "NULL"
_SIGNS: Final = frozenset("-_.:+@ ")
_SYNTAX: Final = (
    "A partition is COLUMN=VALUE[,COLUMN=VALUE…], such as dt=2026-11-21,hour=7. NULL is the missing value. "
    'A text with a comma or a quote needs double quotes, as in JSON: region="a, b".'
)


def partition_text(values: Mapping[str, Any]) -> str:
    """The values of a partition, by column; `-` in a table without partitions."""
    return ", ".join(f"{name}={_shown(value)}" for name, value in values.items()) or "-"


def partition_of(text: str) -> dict[str, str | None]:
    """The typed values by column; None for NULL. Raises a usage error for other texts and for a repeated column."""
    values: dict[str, str | None] = {}
    for name, value in _typed(text):
        if name in values:
            raise click.UsageError(f"{text!r} gives the column {name!r} twice. Name each partition alone. {_SYNTAX}")
        values[name] = value
    return values


def _shown(value: Any) -> str:
    if value is None:
        return _NULL
    if not isinstance(value, str):
        return str(jsonable(value))
    return value if _is_simple(value) else f'"{"".join(_quoted(char) for char in value)}"'


def _is_simple(text: str) -> bool:
    """Whether the text cannot be confused with another text, with NULL, with a separator, or with nothing."""
    if text in ("", _NULL) or text != text.strip() or unicodedata.normalize("NFC", text) != text:
        return False
    return all(char.isalnum() or char in _SIGNS for char in text)


def _quoted(char: str) -> str:
    """One character inside quotes. A combining accent is written as a number: it looks like a part of its letter."""
    if char.isprintable() and not unicodedata.combining(char) and char not in '"\\':
        return char
    return json.dumps(char)[1:-1]


def _typed(text: str) -> Iterator[tuple[str, str | None]]:
    position = 0
    while position <= len(text):
        name, sign, _ = text[position:].partition("=")
        if not sign or not name.strip() or "," in name:
            raise click.UsageError(f"{text!r} names no partition. {_SYNTAX}")
        position += len(name) + 1
        value, position = _value(text, position)
        yield name.strip(), value
        if position < len(text) and text[position] != ",":
            raise click.UsageError(f"{text!r} names no partition: text follows a closing quote. {_SYNTAX}")
        position += 1


def _value(text: str, start: int) -> tuple[str | None, int]:
    """The value that begins at `start`, and the position of its end."""
    if not text.startswith('"', start):
        value = text[start:].partition(",")[0]
        return (None if value == _NULL else value), start + len(value)
    try:
        value, end = json.JSONDecoder().raw_decode(text, start)
    except ValueError:
        raise click.UsageError(f"{text!r} names no partition: a quote is not closed. {_SYNTAX}") from None
    return str(value), end
