"""What a Python worker of Spark does when a call begins, because Spark reuses it: for tasks that
read and write, and on the driver for the plans and commits of the data source.

A worker collects garbage among all its objects after each call. That takes about 30 ms of CPU,
nearly all of it for modules, which never become garbage. So when the second call of a worker
begins, the objects that exist are excluded from later collections.

Before each task, a worker of Spark 3.5 and 4.0 makes Python invalidate its import caches; one of
Spark 4.3 does so only if its import path has changed. Up to Python 3.12, Python then immediately
reads the lists of its archives again, once for each package that was imported from them. That
takes 60 to 180 ms of CPU for Spark's own archives. These do not change while a process lives. So
they are excluded (`keep_archives`). Python's caches of other archives and of folders are not
changed. This code stays as long as Spark 4.0 is supported, because without it each task there
would take that much longer.
"""

import gc
import os
import re
import sys
from collections import Counter
from collections.abc import MutableMapping
from typing import Any, Final
from zipimport import zipimporter

_FREEZES_AT: Final = 2
_ARCHIVE_OF_SPARK: Final = re.compile(r"pyspark\.zip|py4j-[\w.]+-src\.zip|spark-core_[\w.-]+\.jar")

CALLS: Final[Counter[int]] = Counter()
"""How many calls each process has begun."""


def count_call(calls: Counter[int] = CALLS) -> None:
    """Counts the calls of each process as they begin. The second call proves that the worker is
    reused. Then garbage is collected, and all remaining objects are excluded from later
    collections.
    """
    calls[os.getpid()] += 1
    if calls[os.getpid()] == _FREEZES_AT:
        gc.collect()
        gc.freeze()


def keep_archives(importers: MutableMapping[str, Any]) -> None:
    """Removes the importers of Spark's own archives from Python's cache
    (`sys.path_importer_cache`). The next import from there makes a new importer, which knows the
    archive's list without reading it.
    """
    for path, importer in list(importers.items()):
        if isinstance(importer, zipimporter) and _ARCHIVE_OF_SPARK.fullmatch(
            os.path.basename(importer.archive)
        ):
            importers.pop(path, None)


def prepare_worker() -> None:
    """Prepares the worker of this process for a call that begins."""
    count_call()
    if sys.version_info < (3, 13):
        keep_archives(sys.path_importer_cache)
