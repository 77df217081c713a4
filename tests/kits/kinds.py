"""What tests of tables with dynamic buckets share."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def faults(kinds: Any, path: Path) -> list[str]:
    """What is wrong with the hash index of the newest snapshot, as Java reads it (table-kinds.md D1
    to D5).
    """
    import java_kinds

    found: list[str] = java_kinds.index_faults(kinds, path)
    return found
