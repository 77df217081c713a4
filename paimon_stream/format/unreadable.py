"""Describes in words what is wrong with content that could not be read."""

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from paimon_stream.errors import CorruptMetadata, FormatError, UnknownVersion

BROKEN: Final = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, EOFError,
    struct.error,
)  # fmt: skip
"""What Python and its libraries raise while they make values of bytes that are not what they should be."""


@contextmanager
def understanding(path: str, size: int, what: str, cure: str) -> Iterator[None]:
    """Makes whatever goes wrong inside, while a file of `size` bytes is decoded, a `CorruptMetadata` that
    names the file. `what` is what the file should be, `cure` a sentence. An `UnknownVersion` stays one."""
    try:
        yield
    except FormatError as wrong:
        if "path" in wrong.context:
            raise
        kind = UnknownVersion if isinstance(wrong, UnknownVersion) else CorruptMetadata
        raise kind(f"{path}: {wrong.message} {cure}", **{**wrong.context, "path": path}) from None
    except BROKEN as wrong:
        raise CorruptMetadata(f"{path} is not {what} ({size:,} bytes): {in_words(wrong)}. {cure}", path=path) from None


def in_words(error: Exception) -> str:
    """The reason given by one of Python's own errors, as the end of a sentence.

    >>> in_words(KeyError("nextSnapshot"))
    "it has no 'nextSnapshot'"
    """
    match error:
        case json.JSONDecodeError():
            return f"it is not JSON ({error.msg}, line {error.lineno}, column {error.colno})"
        case UnicodeDecodeError():
            return "it is not UTF-8"
        case KeyError():
            return f"it has no {error.args[0]!r}"
        case EOFError():
            return "it is cut off"
        case RecursionError():
            return "its parts are nested too deeply"
        case TypeError() | AttributeError():
            return "its parts are of other types than expected"
    return str(error).rstrip(".") or type(error).__name__
