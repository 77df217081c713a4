"""Tables with primary keys in real queries: what a batch replaces, and what Java reads then."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.spark.kit import Job

COLUMNS = (("id", "BIGINT NOT NULL"), ("day", "STRING"))


def keyed(job: Job, **options: str) -> Any:
    return job.create(COLUMNS, primary_keys=["id"], options={"bucket": "2", **options})


def merged(job: Job) -> list[tuple[Any, ...]]:
    """The rows as we read them."""
    rows = job.load().to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in rows)


def test_the_newest_row_of_a_key_stays(job: Job, java: Any) -> None:
    keyed(job)
    job.write_source(0, pa.table({"id": [1, 2, 1, 3], "day": ["a", "b", "c", "d"]}))
    job.write_source(1, pa.table({"id": [2, 4, 2], "day": ["e", "f", "g"]}))
    job.run()
    assert merged(job) == [(1, "c"), (2, "g"), (3, "d"), (4, "f")]
    assert sorted(tuple(row.values()) for row in java.read(job.table)) == merged(job)
