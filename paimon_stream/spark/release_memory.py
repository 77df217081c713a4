"""Returns the memory of a batch's rows in the driver to the operating system.

Each query calls its sink in a thread of its own. Both allocators, Arrow's and the C library's, keep the
memory that a thread has freed for that thread: about 40 MB after a batch of 100,000 rows. With many streams
in one driver, that adds up to gigabytes of unused memory. To return it takes one to five milliseconds.
"""

import ctypes
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

_WORTH_IT: Final = 2**20


def release_memory(size: int) -> None:
    """Returns the memory left by rows of `size` bytes, if that is at least 1 MiB. The thread that held the
    rows must call this, after it has dropped them."""
    if size >= _WORTH_IT:
        pa.default_memory_pool().release_unused()
        if _TRIM is not None:
            _TRIM(0)


def _trim_of_libc() -> Callable[[int], Any] | None:
    try:
        found: Callable[[int], Any] = ctypes.CDLL(None).malloc_trim  # only glibc has it
    except (OSError, AttributeError, TypeError):
        return None
    return found


_TRIM: Final = _trim_of_libc()
"""Runs without Python's global lock."""
