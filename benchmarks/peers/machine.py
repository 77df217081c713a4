"""The facts of a machine on which figures depend, and nothing that identifies its owner."""

from __future__ import annotations

import datetime
import os
import platform
from typing import Any

__all__ = ["machine", "today"]


def machine() -> dict[str, Any]:
    """The cores that this process may use, the memory in GiB, the kind of system, and the version of
    Python.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def today() -> str:
    """The date, as 2026-01-31."""
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()
