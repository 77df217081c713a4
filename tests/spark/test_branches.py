"""A query whose function writes main and a branch of the same table."""

from __future__ import annotations

from pyspark.sql import DataFrame

from paimon_stream import PaimonTable
from tests.kits.spark_jobs import Job


def test_one_query_writes_main_and_a_branch_also_when_a_batch_is_run_again(job: Job) -> None:
    job.create().create_branch("x")
    main, branch = job.sink(), job.sink(branch="x")

    def both(df: DataFrame, batch_id: int) -> None:
        main(df, batch_id)
        branch(df, batch_id)

    job.add_files(2)
    job.run(both)
    job.forget_last_batch()
    job.add_files(1)
    job.run(both)
    there = PaimonTable.load(f"{job.table}$branch_x")
    assert job.ids() == sorted(there.to_arrow().column("id").to_pylist()) == list(range(18))
    assert [one.commit_identifier for one in there.snapshots()] == job.identifiers() == [0, 1, 2]
    assert not {one.path for one in there.files()} & {one.path for one in job.load().files()}
    assert there.verify().findings == ()
