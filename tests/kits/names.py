"""Names that no file of a table can have, for everything that takes names from others."""

from __future__ import annotations

from typing import Final

EVIL_NAMES: Final = (
    "",
    ".",
    "..",
    "/",
    "../../x",
    "../canary",
    "/etc/passwd",
    "sub/x",
    "sub/../../canary",
    "x/",
    "a\0b",
    "x" * 300,
    "ü" * 128,
    "\ud800",
)
