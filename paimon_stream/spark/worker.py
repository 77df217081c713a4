"""Makes a Python worker of Spark that runs many tasks cheaper.

After each task, such a worker collects garbage among all its objects. That takes about 30 ms of CPU, nearly
all of it for modules, which never become garbage. So they are excluded once, when its second task begins.

Before each task, such a worker of Spark 3.5 makes Python invalidate its import caches. Up to Python 3.12,
Python then reads the lists of its archives again at once, for each package imported from there. That takes 60
to 180 ms of CPU for Spark's own archives. These do not change while a process lives, so, on those versions
only, they are excluded. Python's caches of other archives and of folders are not changed.
"""

import gc
import os
import re
import sys
from collections.abc import MutableMapping
from typing import Any, Final
from zipimport import zipimporter

import pyspark

_FREEZES_AT: Final = 2
_READS_ARCHIVES: Final = pyspark.__version__.startswith("3.") and sys.version_info < (3, 13)
"""Other versions gain nothing: a task takes 40 ms of CPU either way (Spark 4.3)."""

_ARCHIVE_OF_SPARK: Final = re.compile(r"pyspark\.zip|py4j-[\w.]+-src\.zip|spark-core_[\w.-]+\.jar")


class Worker:
    """Counts the tasks of one process. A fork of the process starts its own count."""

    def __init__(self) -> None:
        self._process = 0
        self._tasks = 0

    def begins_a_task(self) -> None:
        """Must be called when a task begins. The second task proves that the worker is reused: then garbage
        is collected, and all remaining objects are excluded from later collections."""
        if self._process != os.getpid():
            self._process, self._tasks = os.getpid(), 0
        self._tasks += 1
        if self._tasks == _FREEZES_AT:
            gc.collect()
            gc.freeze()


def keep_archives(importers: MutableMapping[str, Any]) -> None:
    """Removes the importers of Spark's own archives from Python's cache (`sys.path_importer_cache`).

    The next import from there makes a new importer, which knows the archive's list without reading it.
    """
    for path, importer in list(importers.items()):
        if isinstance(importer, zipimporter) and _ARCHIVE_OF_SPARK.fullmatch(os.path.basename(importer.archive)):
            importers.pop(path, None)


_WORKER: Final = Worker()


def settle() -> None:
    """Prepares the worker of this process for a task that begins."""
    _WORKER.begins_a_task()
    if _READS_ARCHIVES:
        keep_archives(sys.path_importer_cache)
