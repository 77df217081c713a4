"""Streams that compact their table with a primary key, in real queries."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from tests.kits.params import few
from tests.kits.spark_jobs import Job

COLUMNS = (("id", "BIGINT NOT NULL"), ("day", "STRING"))


def add_batches(job: Job, count: int) -> None:
    """Each batch has keys that all batches have, and some of its own."""
    for number in range(len(list((job.root / "source").glob("*"))), count):
        ids = [*range(10), *range(100 * number + 100, 100 * number + 110)]
        job.write_source(number, pa.table({"id": ids, "day": [f"d{number}"] * len(ids)}))


def expected(batches: int) -> list[tuple[int, str]]:
    shared = [(key, f"d{batches - 1}") for key in range(10)]
    return sorted(
        [*shared, *((100 * n + 100 + i, f"d{n}") for n in range(batches) for i in range(10))]
    )


def runs(table: PaimonTable) -> int:
    """The sorted runs of the deepest bucket."""
    found: dict[int, set[object]] = {}
    for file in table.files():
        found.setdefault(file.bucket, set()).add(file.meta.level or file.meta.file_name)
    return max(map(len, found.values()))


@pytest.mark.full
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
    assert [one.commit_identifier for one in found if one.commit_kind.value == "APPEND"] == list(
        range(12)
    )
    rows = sorted((row["id"], row["day"]) for row in java.read(job.table))
    assert rows == expected(12) == sorted(zip(*table.to_arrow().to_pydict().values(), strict=True))
    java.compact(job.table)
    assert {file["level"] for file in java.files(job.table)} == {5}
    add_batches(job, 18)
    job.run(job.sink())
    assert sorted((row["id"], row["day"]) for row in java.read(job.table)) == expected(18)
    assert not [one for one in table.verify().findings if one.severity != "info"]


KINDS: list[tuple[dict[str, str], list[tuple[str, int, str]]]] = [
    (
        {"deletion-vectors.enabled": "true", "changelog-producer": "lookup"},
        [("-D", 3, "a"), ("-U", 1, "a"), ("+U", 1, "b"), ("+I", 4, "b")],
    ),
    (
        {"changelog-producer": "full-compaction"},
        [("-D", 3, "a"), ("-U", 1, "a"), ("+U", 1, "b"), ("+I", 4, "b")],
    ),
    ({"merge-engine": "first-row", "changelog-producer": "lookup"}, [("+I", 4, "b")]),
    ({"force-lookup": "true"}, []),
]


@pytest.mark.parametrize(
    ("options", "second"),
    few(KINDS, lambda options, second: "deletion-vectors.enabled" in options),
    ids=[next(iter(reversed(one.values()))) for one, _ in KINDS],
)
def test_rows_and_changelog_are_there_when_the_batch_ends_and_java_reads_both(
    job: Job, java: Any, options: dict[str, str], second: list[tuple[str, int, str]]
) -> None:
    table = job.create(COLUMNS, primary_keys=["id"], options={"bucket": "2", **options})
    job.schema = "id bigint, day string, op string"
    first_row = "merge-engine" in options
    sink = job.sink(options={"paimon-stream.operation-column": "op"})
    for number, (ids, day, kinds) in enumerate([([1, 2, 3], "a", "III"), ([1, 3, 4], "b", "UDU")]):
        operations = ["I"] * 3 if first_row else list(kinds)
        job.write_source(
            number,
            pa.table(
                {"id": ids, "day": ["a" if id_ == 3 else day for id_ in ids], "op": operations}
            ),
        )
    job.run(sink)
    rows = sorted((row["id"], row["day"]) for row in java.read(job.table))
    assert rows == sorted(zip(*table.to_arrow().to_pydict().values(), strict=True))
    assert rows == (
        [(1, "a"), (2, "a"), (3, "a"), (4, "b")] if first_row else [(1, "b"), (2, "a"), (4, "b")]
    )
    if options.get("force-lookup"):
        assert {file["level"] for file in java.files(job.table)} == {5}
    else:
        log = [(kind, row["id"], row["day"]) for kind, row in java.read_changes(job.table, 1)]
        assert sorted(log) == sorted([*(("+I", id_, "a") for id_ in (1, 2, 3)), *second])
    assert not [one for one in table.verify().findings if one.severity != "info"]
