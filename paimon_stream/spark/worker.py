"""What is done once for a Python worker of Spark's that is used for one task after another.

After each task such a worker looks through all objects it has for garbage: some 30 ms of a processor, nearly
all of it for modules, which never become garbage. What a worker holds when its second task begins is
therefore set aside, once; what tasks make after that is looked through as before.

Before each task such a worker of Spark 3.5 has Python forget what it knows of the places that modules come
from, and Python up to 3.12 then reads the lists of its archives at once, for each package imported from
there: 60 to 180 ms of a processor for those of Spark itself. They stay as they are while a process lives, so
they are left out of that, on those versions only. What Python keeps of other archives and of folders is left
alone.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import MutableMapping
from typing import Any, Final
from zipimport import zipimporter

import pyspark

__all__ = ["Worker", "keep_archives", "settle"]

_FREEZES_AT: Final = 2
_READS_ARCHIVES: Final = pyspark.__version__.startswith("3.") and sys.version_info < (3, 13)
"""Elsewhere nothing is gained: a task takes 40 ms of a processor either way (Spark 4.3)."""

_ARCHIVE_OF_SPARK: Final = re.compile(r"pyspark\.zip|py4j-[\w.]+-src\.zip|spark-core_[\w.-]+\.jar")


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


def keep_archives(importers: MutableMapping[str, Any]) -> None:
    """Takes the importers of Spark's own archives out of those that Python keeps (`sys.path_importer_cache`).
    Whatever is imported from there makes a new one, which knows the archive's list without reading it."""
    for path, importer in list(importers.items()):
        if isinstance(importer, zipimporter) and _ARCHIVE_OF_SPARK.fullmatch(
            os.path.basename(importer.archive)
        ):
            importers.pop(path, None)


_WORKER: Final = Worker()


def settle() -> None:
    """Tells the worker of this process that a task begins."""
    _WORKER.begins_a_task()
    if _READS_ARCHIVES:
        keep_archives(sys.path_importer_cache)
