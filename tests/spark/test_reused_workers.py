"""What a task costs in a Python worker of each Spark version, counted where the worker runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.kits.spark_jobs import Job

_ACTIONS = 5


def _count_lists_read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Prepares the worker as our tasks do. Returns how many lists of archives this process has read
    since its first task.
    """
    import importlib
    import os

    from paimon_stream.spark.reused_worker import prepare_worker

    prepare_worker()
    for _ in batches:
        pass
    zipimport: Any = importlib.import_module("zipimport")
    if not hasattr(zipimport, "_lists_read"):
        read_list = zipimport._read_directory
        zipimport._lists_read = []

        def read_and_note(archive: str) -> Any:
            zipimport._lists_read.append(archive)
            return read_list(archive)

        zipimport._read_directory = read_and_note
    count = len(zipimport._lists_read)
    yield pa.RecordBatch.from_pydict({"pid": [os.getpid()], "lists": [count]})


@pytest.mark.spark35
@pytest.mark.spark4
def test_a_reused_worker_reads_no_list_of_an_archive_before_a_task(job: Job) -> None:
    seen: dict[int, list[int]] = {}
    for _ in range(_ACTIONS):
        frame = job.spark.range(0, 10, 1, 1).mapInArrow(_count_lists_read, "pid long, lists long")
        for row in frame.collect():
            seen.setdefault(row.pid, []).append(row.lists)
    counts = max(seen.values(), key=len)
    assert len(counts) > 2  # the worker is reused
    assert counts[-1] == counts[1]
