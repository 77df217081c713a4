"""Shows the examples in docstrings as code.

A docstring of this package has examples as plain lines that begin with `>>>`, which Markdown takes
for quotations. mkdocs.yml names this module as an extension of Griffe, which reads docstrings for
the site.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"(?:^|(?<=\n))(>>> (?:.+\n?)+)")
FLAG = re.compile(r" *# doctest:.*")


def fenced(text: str) -> str:
    """The text with a fence around each example, which ends at an empty line. Flags for doctest are
    left out.
    """
    return EXAMPLE.sub(lambda found: f"\n```pycon\n{FLAG.sub('', found[1]).rstrip()}\n```\n", text)


class Doctests(Extension):
    """Changes each docstring as it is loaded."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Fences the examples of one class, function or module."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
