"""Checks the arguments of public calls: a wrong type ends in one error that names the table, the argument and what it
may be, before anything is done. Numbers and flags of numpy, such as pandas gives, are returned as `int` and `bool`, for
JSON. Sequences and mappings are copied: an iterator is taken once, and a later change of a dict has no effect."""

import math
import operator
from collections.abc import Iterable, Mapping
from typing import Any, Final, SupportsIndex, TypeVar, cast

import numpy as np

from paimon_stream.errors import InvalidOption

LONG: Final = (-(2**63), 2**63 - 1)
"""The bounds of a number that Paimon stores as a Java `long`."""

Flag = TypeVar("Flag", bound=bool | None)
Number = TypeVar("Number", bound=int | None)

_SHOWN: Final = 60
_LEFT_OUT: Final = ("", ", or leave it out")


class Arguments:
    """Checks the arguments of one call that concerns the table at this location. Each method takes the argument's name
    and value. None is accepted if `optional` is true. Raises `InvalidOption`."""

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
        self, name: str, value: Number, *, least: int | None = None, most: int | None = None, optional: bool = False
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

    def text(self, name: str, value: object, *, blank: bool = False, optional: bool = False) -> None:
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

    def mapping(self, name: str, value: Any, example: str, *, texts: bool = False) -> dict[str, Any]:
        """A mapping of text, with `texts` to text, as a dict; {} for None. Messages hide the values (secrets)."""
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
        """The items of an iterable other than text and mappings. `what` says what to give, such as "names"."""
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise self.wrong(name, value, what)
        found = tuple(value)
        for number, one in enumerate(found):
            if not isinstance(one, kind):
                raise self.wrong(f"{name}[{number}]", one, f"{what} as {name}")
        return found

    def wrong(self, name: str, value: object, allowed: str, *, secret: bool = False) -> InvalidOption:
        """The error for a value that is not what is `allowed`. It shows only the type of a value that is
        secret or may be long. `name` may be a part of an argument, such as `messages[2]`."""
        shown = f"of type {type(value).__name__}"
        long = isinstance(value, str | bytes) and len(value) > _SHOWN
        huge = isinstance(value, int) and not LONG[0] <= value <= LONG[1]
        if value is None or (isinstance(value, str | bytes | int | float) and not (secret or long or huge)):
            shown = repr(value)
        return InvalidOption(
            f"{name} is {shown}. Nothing was changed. Give {allowed}.", option=name.partition("[")[0].rpartition(" ")[2]
        ).of_table(self._table)


def integer_of(value: object) -> int | None:
    """The value as an `int`, None if it is no whole number; True and False are none. Takes those of numpy."""
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return operator.index(cast(SupportsIndex, value))
    except TypeError:
        return None
