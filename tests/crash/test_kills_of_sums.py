"""A streaming job that adds up is killed with SIGKILL and restarted: rows written twice show in its
sums.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from paimon_stream import PaimonTable
from tests.crash.test_kills import ROWS_PER_FILE, Job, files_on_disk, live_files

pytestmark = [pytest.mark.full, pytest.mark.spark]


def add_numbers(job: Job, number: int) -> None:
    """A file of rows of seven ids, all with the same `n`."""
    path = job.root / "source" / f"{number:04d}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        "".join(f'{{"id": {i % 7}, "n": {10**number}}}\n' for i in range(ROWS_PER_FILE))
    )
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def test_sums_of_a_killed_stream_are_not_added_twice(tmp_path: Path, java: Any) -> None:
    """A table that adds up shows every row that is written twice. After one kill another writer is
    faster.
    """
    job = Job(tmp_path, "id bigint, n bigint")
    PaimonTable.create(
        str(job.table),
        schema=[("id", "BIGINT NOT NULL"), ("n", "BIGINT")],
        primary_keys=["id"],
        options={
            "bucket": "2",
            "merge-engine": "aggregation",
            "fields.n.aggregate-function": "sum",
            "write-only": "true",
        },
    )
    sums: Counter[int] = Counter()

    def check(*batches: int) -> None:
        """The table has the sums of these batches more."""
        for batch in batches:
            sums.update({i: 10**batch * len(range(i, ROWS_PER_FILE, 7)) for i in range(7)})
        table = PaimonTable.load(str(job.table))
        for found in (java.read(job.table), table.to_arrow().to_pylist()):
            assert {row["id"]: row["n"] for row in found} == sums

    for number in range(4):
        add_numbers(job, number)

    job.run("journaled", 0)
    prepared = files_on_disk(job)
    job.run("journaled", 1)
    check(0)
    assert prepared and prepared <= live_files(java, job), (
        "nobody came between: the files are committed"
    )
    lost = files_on_disk(job) - live_files(java, job)
    rows = [
        {"id": i, "n": 10**9} for _ in range(20) for i in range(7)
    ]  # beyond the numbers of that batch
    java.write(job.table, rows, commit_identifier=1)
    sums.update(dict.fromkeys(range(7), 20 * 10**9))
    job.run("published", 2)
    check(1, 2)
    assert lost and not lost & live_files(java, job), "another writer has used their numbers"
    job.run("never")
    check(3)
    identifiers = [one.commit_identifier for one in PaimonTable.load(str(job.table)).snapshots()]
    assert identifiers == [0, 1, 1, 2, 3]


@pytest.mark.parametrize(("mode", "before"), [("update", "staged"), ("complete", "journaled")])
def test_results_of_an_aggregation_are_those_of_all_batches_whenever_it_was_killed(
    tmp_path: Path, java: Any, mode: str, before: str
) -> None:
    """The job is killed before and after it publishes. Rows that another writer adds meanwhile are
    replaced in complete mode, and stay in update mode."""
    job = Job(tmp_path, "id bigint, n bigint", mode)
    columns = [("id", "BIGINT NOT NULL"), ("rows", "BIGINT"), ("n", "BIGINT")]
    PaimonTable.create(str(job.table), columns, primary_keys=["id"], options={"bucket": "2"})
    for number in range(4):
        add_numbers(job, number)

    def check(batches: int, *others: int) -> None:
        """The table has the results of this number of batches, and these rows of other writers."""
        rows = [len(range(i, ROWS_PER_FILE, 7)) for i in range(7)]
        total = sum(10**number for number in range(batches))
        wanted = {i: (batches * count, total * count) for i, count in enumerate(rows)}
        wanted |= dict.fromkeys(others, (0, 0))
        table = PaimonTable.load(str(job.table))
        for found in (java.read(job.table), table.to_arrow().to_pylist()):
            assert {row["id"]: (row["rows"], row["n"]) for row in found} == wanted

    job.run(before, 1)
    check(1)
    java.write(job.table, [{"id": 99, "rows": 0, "n": 0}], commit_identifier=1)
    check(1, 99)
    others = [99] if mode == "update" else []
    job.run("published", 2)
    check(3, *others)
    job.run("never")
    check(4, *others)
    snapshots = PaimonTable.load(str(job.table)).snapshots()
    ours = {one.commit_identifier for one in snapshots if one.commit_user != "java-oracle"}
    assert ours == {0, 1, 2, 3}
