"""How long-running work reports its progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

__all__ = ["Progress", "silent"]

Progress: TypeAlias = Callable[[str, int, int | None], None]
"""Called with what is being done, how much of it is done, and how much there is in all (None: unknown)."""


def silent(what: str, done: int, total: int | None) -> None:
    """Reports nothing."""
