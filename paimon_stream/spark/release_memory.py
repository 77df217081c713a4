"""Memory that the rows of a batch have left in the driver, handed back to the operating system.

Each query calls its sink in a thread of its own, and both allocators at work there, Arrow's and the C
library's, keep what a thread has freed for that thread: some 40 MB after a batch of 100,000 rows. With many
streams in one driver that adds up to gigabytes that nobody uses. To hand it back takes one to five
milliseconds.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

__all__ = ["release_memory"]

_WORTH_IT: Final = 2**20


def release_memory(size: int) -> None:
    """Hands back what rows of so many bytes have left, where they were many. To be called by the thread that
    had them, when they are gone."""
    if size >= _WORTH_IT:
        pa.default_memory_pool().release_unused()
        if _TRIM is not None:
            _TRIM(0)


def _trim_of_libc() -> Callable[[int], Any] | None:
    try:
        found: Callable[[int], Any] = ctypes.CDLL(None).malloc_trim  # glibc has it, others do not
    except (OSError, AttributeError, TypeError):
        return None
    return found


_TRIM: Final = _trim_of_libc()
"""Not held up by Python's lock while it works."""
