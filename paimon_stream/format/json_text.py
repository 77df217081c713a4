"""JSON of any origin, parsed in memory and time that its size bounds.

Snapshots, schemas, tags, consumers, journals, Avro schemas and the files of a Spark checkpoint are all read
by `parse_json`. Whatever is wrong with them is a `ValueError`, which `format/unreadable.py` puts into words.
"""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

MOST_JSON: Final = 16 << 20
"""The most bytes of a metadata file that is JSON. A schema of 50,000 columns has 5 MB."""

_MOST_VALUES: Final = 1_000_000
"""The most values in one file. An empty list takes three bytes of text and 64 bytes of memory."""

_DEEPEST: Final = 250
"""How deep values may be nested. A type that is nested 100 deep (`format/types.py`) needs 200 and a few."""

_MOST_DIGITS: Final = 100
_LARGEST: Final = 2**63 - 1


def parse_json(data: bytes | str, *, parse_float: Callable[[str], float | Decimal] = float) -> Any:
    """The value of a JSON text. Raises `ValueError` for whatever is not one, or is beyond the limits above:
    also for `Infinity` and `NaN`, and for text with half of a surrogate pair, which no file could hold."""
    text = data if isinstance(data, str) else data.decode()
    brackets = text.count("[") + text.count("{")
    if brackets + text.count(",") > _MOST_VALUES:
        raise ValueError(f"it holds more than {_MOST_VALUES:,} values")
    decoder = _DECODER if parse_float is float else _decoder(parse_float)
    try:
        node = decoder.decode(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if brackets > _DEEPEST:
        _check_depth(node)
    if "\\u" in text:
        try:
            json.dumps(node, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("it holds half of a surrogate pair") from None
    return node


def integer(value: Any) -> int:
    """A value as an integer of 64 bits. Raises `ValueError`, `TypeError` or `OverflowError`."""
    made = int(value)
    if not -_LARGEST - 1 <= made <= _LARGEST:
        raise ValueError(f"{made} is not a number of 64 bits")
    return made


def optional_text(value: Any) -> str | None:
    """A value that is text or NULL. Raises `TypeError`."""
    if value is not None and not isinstance(value, str):
        raise TypeError(value)
    return value


_TOO_DEEP: Final = f"its values are nested more than {_DEEPEST} deep"


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number in it has {len(digits):,} digits")
    return int(digits)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _decoder(parse_float: Callable[[str], Any]) -> json.JSONDecoder:
    return json.JSONDecoder(parse_float=parse_float, parse_int=_integer, parse_constant=_no_constant)


_DECODER: Final = _decoder(float)


def _check_depth(node: Any) -> None:
    level = [node]
    for _ in range(_DEEPEST + 1):
        values = [one.values() if isinstance(one, dict) else one for one in level]
        level = [one for some in values for one in some if isinstance(one, dict | list)]
        if not level:
            return
    raise ValueError(_TOO_DEEP)
