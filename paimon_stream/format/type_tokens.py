"""The text of a data type as tokens (format.md §2.4)."""

import re
from typing import Final

from paimon_stream.errors import CorruptMetadata

END: Final = ""
"""What follows the last token."""

_TOKEN: Final = re.compile(r"\s*(`[^`]*`|[<>(),]|[^\s<>(),`]+|`)")
"""One part of a type's text. The alternatives begin with different characters, so no text is read twice."""


class TypeTokens:
    """The tokens of a type's text, and a position among them."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [found[1] for found in _TOKEN.finditer(text.strip())]
        self._at = 0

    def _takes(self, *words: str) -> bool:
        """Whether these words come next, in any letter case. If so, they are skipped."""
        end = self._at + len(words)
        if tuple(one.upper() for one in self._tokens[self._at : end]) != words:
            return False
        self._at = end
        return True

    def _expect(self, token: str) -> None:
        if not self._takes(token):
            raise self._wrong()

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else END

    def _next(self) -> str:
        token = self._peek()
        if token == END:
            raise self._wrong()
        self._at += 1
        return token

    def _wrong(self) -> CorruptMetadata:
        return CorruptMetadata(f"Not a data type: {self._text!r:.200}.")
