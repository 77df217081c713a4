"""What is done once for a Python worker of Spark's that is used for one task after another.

After each task such a worker looks through all objects it has for garbage: some 30 ms of a processor, nearly
all of it for modules, which never become garbage. What a worker holds when its second task begins is
therefore set aside, once; what tasks make after that is looked through as before.
"""

from __future__ import annotations

import gc
import os
from typing import Final

__all__ = ["Worker", "settle"]

_FREEZES_AT: Final = 2


class Worker:
    """Counts the tasks of one process; a fork of it counts anew."""

    def __init__(self) -> None:
        self._process = 0
        self._tasks = 0

    def begins_a_task(self) -> None:
        """To be called where a task begins. In the second one, which proves that the worker is used again,
        garbage is collected and the rest set aside."""
        if self._process != os.getpid():
            self._process, self._tasks = os.getpid(), 0
        self._tasks += 1
        if self._tasks == _FREEZES_AT:
            gc.collect()
            gc.freeze()


_WORKER: Final = Worker()


def settle() -> None:
    """Tells the worker of this process that a task begins."""
    _WORKER.begins_a_task()
