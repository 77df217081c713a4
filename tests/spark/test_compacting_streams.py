"""Streams that compact their table with a primary key, in real queries."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from paimon_stream import PaimonTable
from tests.kits.spark_jobs import Job

COLUMNS = (("id", "BIGINT NOT NULL"), ("day", "STRING"))


def add_batches(job: Job, count: int) -> None:
    """Each batch has keys that all batches have, and some of its own."""
    for number in range(len(list((job.root / "source").glob("*"))), count):
        ids = [*range(10), *range(100 * number + 100, 100 * number + 110)]
        job.write_source(number, pa.table({"id": ids, "day": [f"d{number}"] * len(ids)}))


def expected(batches: int) -> list[tuple[int, str]]:
    shared = [(key, f"d{batches - 1}") for key in range(10)]
    return sorted([*shared, *((100 * n + 100 + i, f"d{n}") for n in range(batches) for i in range(10))])


def runs(table: PaimonTable) -> int:
    """The sorted runs of the deepest bucket."""
    found: dict[int, set[object]] = {}
    for file in table.files():
        found.setdefault(file.bucket, set()).add(file.meta.level or file.meta.file_name)
    return max(map(len, found.values()))


def test_a_stream_keeps_its_table_at_few_runs_and_java_goes_on_with_it(job: Job, java: Any) -> None:
    table = job.create(COLUMNS, primary_keys=["id"], options={"bucket": "2"})
    (job.root / "source").mkdir()
    add_batches(job, 12)
    sink = job.sink()
    job.run(sink)
    assert runs(table) <= 5
    found = table.snapshots()
    compacted = [one for one in found if one.commit_kind.value == "COMPACT"]
    assert 2 <= len(compacted) <= 4
    assert len({one.commit_user for one in found}) == 1
    assert [one.commit_identifier for one in found if one.commit_kind.value == "APPEND"] == list(range(12))
    rows = sorted((row["id"], row["day"]) for row in java.read(job.table))
    assert rows == expected(12) == sorted(zip(*table.to_arrow().to_pydict().values(), strict=True))
    java.compact(job.table)
    assert {file["level"] for file in java.files(job.table)} == {5}
    add_batches(job, 18)
    job.run(job.sink())
    assert sorted((row["id"], row["day"]) for row in java.read(job.table)) == expected(18)
    assert not [one for one in table.verify().findings if one.severity != "info"]
