"""A streaming job that compacts its table is killed with SIGKILL in the compaction behind a batch,
and restarted.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from paimon_stream import PaimonTable
from tests.crash.test_kills import ROWS_PER_FILE, Job, files_on_disk, live_files
from tests.crash.test_kills_of_sums import add_numbers

pytestmark = [pytest.mark.full, pytest.mark.spark]

WINDOWS = [
    ("while the units are rewritten", "rewriting", False),
    ("after its manifests, before its snapshot", "compact:staged", False),
    ("after its snapshot", "compact:published", True),
]
"""Where the job dies, and whether the compaction is public then."""


def test_killed_in_the_compaction_each_batch_is_there_once(tmp_path: Path, java: Any) -> None:
    """A table that adds up shows every row that is there twice. Two runs of a bucket are enough to
    compact.
    """
    job = Job(tmp_path, "id bigint, n bigint")
    options = {"bucket": "1", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    PaimonTable.create(
        str(job.table),
        schema=[("id", "BIGINT NOT NULL"), ("n", "BIGINT")],
        primary_keys=["id"],
        options={**options, "num-sorted-run.compaction-trigger": "2"},
    )
    sums: Counter[int] = Counter()
    batches = 2 * len(WINDOWS) + 1
    for number in range(batches):
        add_numbers(job, number)
    compactions = 0
    for number, (window, where, public) in enumerate(WINDOWS):
        batch = 2 * number + 1
        job.run(where, batch)
        for one in (batch - 1, batch):
            sums.update({i: 10**one * len(range(i, ROWS_PER_FILE, 7)) for i in range(7)})
        table = PaimonTable.load(str(job.table))
        for found in (java.read(job.table), table.to_arrow().to_pylist()):
            assert {row["id"]: row["n"] for row in found} == sums, window
        kinds = [(one.commit_kind.value, one.commit_identifier) for one in table.snapshots()]
        assert ("APPEND", batch) in kinds, window
        assert (("COMPACT", batch) in kinds) is public, window
        compactions = max(compactions, sum(kind == "COMPACT" for kind, _ in kinds))
    job.run("never")
    sums.update({i: 10 ** (batches - 1) * len(range(i, ROWS_PER_FILE, 7)) for i in range(7)})
    assert {row["id"]: row["n"] for row in java.read(job.table)} == sums
    table = PaimonTable.load(str(job.table))
    kinds = [(one.commit_kind.value, one.commit_identifier) for one in table.snapshots()]
    assert [number for kind, number in kinds if kind == "APPEND"] == list(range(batches))
    assert len(set(kinds)) == len(kinds), "a replayed batch is not compacted again"
    assert len(table.files()) <= 2
    assert len(files_on_disk(job) - live_files(java, job)) <= batches + 2 * len(WINDOWS)
    assert not [one for one in table.verify().findings if one.severity == "error"]
