"""The options in force. Everything else reads options from here."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from paimon_stream.errors import InvalidOption, PaimonStreamError
from paimon_stream.options.option import Option

T = TypeVar("T")


class Options(Mapping[str, str]):
    """The options in force: a table's options, overridden by those of one writer.

    Keys are looked up regardless of case, except for the columns in them. `options[TARGET_FILE_SIZE.key]` is
    the text of an option, and `options.value(TARGET_FILE_SIZE)` its typed value, here in bytes. `location` is
    the table's location, for messages.
    """

    __slots__ = ("_location", "_raw")

    def __init__(
        self, table: Mapping[str, str], overrides: Mapping[str, str] | None = None, location: str = ""
    ) -> None:
        self._location = location
        self._raw = {**lowered(table), **lowered(overrides or {})}

    def value(self, option: Option[T]) -> T:
        """The typed value, or the default. Raises `InvalidOption` if the text does not parse, or if the
        option is not set and has no default (call `is_set` first)."""
        raw = self._text(option)
        if raw is None:
            raise self._invalid(f"Option {option.key!r} is needed, but it is not set.", option=option.key)
        try:
            return option.parse(raw)
        except ValueError as why:
            text = f"Option {option.key!r} is {raw!r}: {why}."
            raise self._invalid(text, option=option.key, value=raw) from None

    def _invalid(self, message: str, **context: str) -> PaimonStreamError:
        error = InvalidOption(message, **context)
        return error.at(self._location) if self._location else error

    def is_set(self, option: Option[Any]) -> bool:
        """Whether the option has a value of its own."""
        return any(key in self._raw for key in (option.key, *option.aliases))

    def differs(self, option: Option[Any]) -> bool:
        """Whether the option is set to another value than its default. Raises `InvalidOption`."""
        default = None if option.default is None else option.parse(option.default)
        return self.is_set(option) and self.value(option) != default

    def _text(self, option: Option[Any]) -> str | None:
        found = (self._raw[key] for key in (option.key, *option.aliases) if key in self._raw)
        return next(found, option.default)

    def __getitem__(self, key: str) -> str:
        return self._raw[folded(key)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def __repr__(self) -> str:
        return f"Options({', '.join(sorted(self._raw))})"


def lowered(options: Mapping[str, str]) -> dict[str, str]:
    """Keys in lower case, except for the columns in them; values as text."""
    return {
        folded(str(key)): str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in options.items()
    }


def folded(key: str) -> str:
    """The key in lower case. Columns that it names, as in `fields.<column>.stats-mode`, stay as they are."""
    if not key.lower().startswith("fields."):
        return key.lower()
    _, *names, last = key.split(".")
    return ".".join(("fields", *names, last.lower()))
