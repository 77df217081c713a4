"""Describes in words what is wrong with content that could not be read."""

from __future__ import annotations

import json

__all__ = ["in_words"]


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
        case TypeError() | AttributeError():
            return "its parts are of other types than expected"
    return str(error).rstrip(".") or type(error).__name__
