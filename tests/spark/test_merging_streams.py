"""Streams that merge their batches by `PaimonSink(merge=…)`: what the table has then, beside Java, what
a replay does, and what is refused.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions

from paimon_stream import Merge, PaimonSink, PaimonTable, errors
from paimon_stream.commit.report import Phase
from tests.kits.params import few
from tests.kits.spark_jobs import Job
from tests.spark.test_replay import FailAt

COLUMNS = [("id", "BIGINT"), ("n", "INT"), ("day", "STRING")]
ADD = (
    Merge(on=["id"])
    .when_matched_delete("source.n IS NULL")
    .when_matched_update({"n": "target.n + source.n"})
    .when_not_matched_insert_all()
)
TABLES: dict[str, dict[str, Any]] = {
    "rewritten": {},
    "vectors": {"options": {"deletion-vectors.enabled": "true"}},
    "keyed": {"primary_keys": ["id"], "options": {"bucket": "1"}},
}
each_table = pytest.mark.parametrize(
    "table", few(TABLES, lambda table: table != "rewritten"), ids=TABLES
)


def feed(job: Job, *rows: tuple[int, int | None]) -> None:
    """A source file with these ids and their `n`."""
    job.schema = "id bigint, n int, day string"
    columns = {
        "id": pa.array([one for one, _ in rows], pa.int64()),
        "n": pa.array([n for _, n in rows], pa.int32()),
        "day": ["d"] * len(rows),
    }
    job.write_source(len(list((job.root / "source").glob("*"))), pa.table(columns))


def create(job: Job, table: str) -> PaimonTable:
    columns = [("id", "BIGINT NOT NULL"), *COLUMNS[1:]] if table == "keyed" else COLUMNS
    return job.create(columns, **TABLES[table])


def read(job: Job, java: Any) -> dict[int, int]:
    """`n` by `id`, as Java and we read it."""
    found = {row["id"]: row["n"] for row in job.load().to_arrow().to_pylist()}
    rows = java.read(job.table)
    assert len(rows) == len(found)
    assert {row["id"]: row["n"] for row in rows} == found
    return found


@pytest.mark.spark35
@pytest.mark.spark4
@each_table
def test_batches_are_merged_once_also_after_a_replay(table: str, job: Job, java: Any) -> None:
    create(job, table)
    feed(job, (1, 10), (2, 20), (3, 30))
    feed(job, (2, 1), (3, None), (4, 40))
    job.run(job.sink(merge=ADD))
    assert read(job, java) == {1: 10, 2: 21, 4: 40}
    first, second = job.reports
    assert (first.rows_updated, first.rows_deleted, first.rows_inserted) == (0, 0, 3)
    assert (second.rows_updated, second.rows_deleted, second.rows_inserted) == (1, 1, 1)
    assert job.forget_last_batch() == 1
    feed(job, (1, 1))
    job.run(job.sink(merge=ADD))
    assert job.reports[2].outcome == "already committed"
    assert read(job, java) == {1: 11, 2: 21, 4: 40}
    assert [one for one in job.identifiers() if one in (0, 1, 2)][-1] == 2
    assert job.load().verify().healthy


@each_table
def test_a_merge_that_died_before_its_snapshot_is_computed_on_the_newest_rows(
    table: str, job: Job, java: Any
) -> None:
    create(job, table)
    feed(job, (1, 10), (2, 20))
    job.run(job.sink(merge=ADD))
    feed(job, (2, 1), (4, 40))
    error = job.run_failing(job.sink(merge=ADD, observer=FailAt(Phase.STAGED, 1)))
    assert "staged" in error
    job.load().update("id = 2", {"n": "1000"})
    job.run(job.sink(merge=ADD))
    assert read(job, java) == {1: 10, 2: 1001, 4: 40}
    assert job.reports[-1].removed_files and not job.reports[-1].reused


@pytest.mark.spark35
def test_running_totals_are_updated_in_an_append_table(job: Job, java: Any) -> None:
    """In the output mode `update`, a query with state gives each group that has changed."""
    job.create([("day", "STRING"), ("n", "BIGINT")])
    latest = Merge(on=["day"]).when_matched_update_all().when_not_matched_insert_all()
    for _ in range(2):
        job.add_files(1)
        totals = job.stream().groupBy("day").agg(functions.count("id").alias("n"))
        sink = job.sink(mode="update", merge=latest)
        query = sink.start(totals, checkpoint=str(job.checkpoint), trigger={"availableNow": True})
        query.awaitTermination()
    assert sorted(row["n"] for row in java.read(job.table)) == [6, 6]
    with pytest.raises(errors.UnsupportedFeature, match=r"mode='update' .* merge=Merge"):
        job.sink(mode="update").start(totals, checkpoint=str(job.checkpoint))
    error = job.run_failing(
        job.sink(merge=latest),
        frame=totals,
        output_mode="complete",
        checkpoint=job.root / "another checkpoint",
    )
    assert "merges: rows that the result no longer has would stay" in error


def test_two_tables_are_merged_in_one_batch_function(job: Job) -> None:
    create(job, "vectors")
    other = PaimonTable.create(str(job.root / "shop.db" / "other"), COLUMNS)
    sinks = [job.sink(merge=ADD), PaimonSink(other.location, merge=ADD)]

    def both(df: Any, batch_id: int) -> None:
        for sink in sinks:
            sink(df, batch_id)

    feed(job, (1, 10), (2, 20))
    feed(job, (2, 1))
    job.run(both)
    job.forget_last_batch()
    job.run(both)
    for table in (job.load(), other):
        found = {row["id"]: row["n"] for row in table.to_arrow().to_pylist()}
        assert found == {1: 10, 2: 21}


def test_a_batch_without_rows_makes_no_snapshot(job: Job) -> None:
    create(job, "vectors")
    feed(job, (1, 10))
    feed(job)
    job.run(job.sink(merge=ADD))
    assert [one.outcome for one in job.reports] == ["committed", "empty"]


def test_a_batch_that_matches_a_row_twice_fails_with_its_number_and_the_key(job: Job) -> None:
    create(job, "vectors")
    feed(job, (1, 10), (7, 20))
    feed(job, (7, 1), (7, 2))
    error = job.run_failing(job.sink(merge=ADD))
    assert "AmbiguousMerge: Batch 1: " in error and "keys of such rows: 7" in error
    assert len(job.identifiers()) == 1


def test_a_merge_that_does_not_fit_is_refused_before_the_query_starts(job: Job) -> None:
    create(job, "vectors")
    feed(job, (1, 10))

    def starting(merge: Merge) -> pytest.ExceptionInfo[errors.PaimonStreamError]:
        with pytest.raises(errors.PaimonStreamError) as caught:
            job.sink(merge=merge).start(job.stream(), checkpoint=str(job.checkpoint))
        return caught

    unknown = Merge(on=["id"]).when_matched_update({"m": "source.n"})
    assert "'m', which is no column of the table" in str(starting(unknown).value)
    keyless = Merge(on=["nr"]).when_matched_delete()
    assert "on names a column 'nr'" in str(starting(keyless).value)
    rest = Merge(on=["id"]).when_not_matched_by_source_delete("target.n > 5")
    assert "not limited to partitions" in str(starting(rest).value)
    assert not job.spark.streams.active
