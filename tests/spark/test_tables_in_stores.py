"""Spark writes to a store: the driver writes small batches, Python workers the others."""

from __future__ import annotations

import pytest

from paimon_stream import PaimonSink, PaimonTable
from tests.kits.spark_jobs import COLUMNS, ROWS_PER_FILE, Job
from tests.kits.stores import KINDS, SECRETS, StoreServer
from tests.spark.test_keyed_sink import changes


@pytest.mark.parametrize(
    "store_server",
    [
        *(pytest.param(kind, marks=pytest.mark.full) for kind in KINDS),
        pytest.param("hdfs", marks=[pytest.mark.hdfs, pytest.mark.full]),
    ],
    indirect=True,
)
def test_a_stream_to_a_store_continues_after_a_restart(job: Job, store_server: StoreServer) -> None:
    location, options = store_server.place()
    table = PaimonTable.create(location, COLUMNS, storage_options=options)
    job.add_files(2)
    job.run(PaimonSink(location, storage_options=options, on_commit=job.reports.append))
    job.add_files(1)
    job.run(PaimonSink(location, storage_options=options, on_commit=job.reports.append))
    assert [report.identifier for report in job.reports] == [0, 1, 2]
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(3 * ROWS_PER_FILE))
    assert table.verify().healthy
    left = [file.read_bytes() for file in job.checkpoint.rglob("*") if file.is_file()]
    assert not any(
        secret.encode() in one for one in [*left, repr(job.reports).encode()] for secret in SECRETS
    )


def test_python_workers_write_straight_to_the_store(job: Job, s3_server: StoreServer) -> None:
    """They are forked by a process that has not used the store, so nothing hangs."""
    with s3_server.proxied() as proxy:
        location, options = s3_server.place(proxy)
        table = PaimonTable.create(
            location, [("id", "BIGINT"), ("day", "STRING")], storage_options=options
        )
        for _ in range(2):  # the second time in workers that are used again
            frame = job.spark.range(0, 400_000, numPartitions=4).selectExpr(
                "id", "cast(id % 3 as string) day"
            )
            table.append(frame)
        assert table.to_arrow().num_rows == 800_000
        agents = {
            entry.headers.get("user-agent") for entry in proxy.log if "/bucket-0/" in entry.path
        }
        assert agents
        assert sum(entry.method == "PUT" and "/bucket-0/" in entry.path for entry in proxy.log) == 8


@pytest.mark.full
def test_keys_keep_their_dynamic_buckets_in_a_store(job: Job, s3_server: StoreServer) -> None:
    location, options = s3_server.place()
    small = {"dynamic-bucket.target-row-num": "3"}
    columns = [("id", "BIGINT NOT NULL"), ("day", "STRING")]
    table = PaimonTable.create(
        location, columns, primary_keys=["id"], options=small, storage_options=options
    )
    for start in (0, 5, 10):  # the first batch of a run is written by tasks
        changes(job, *((one, f"{start}") for one in range(start, start + 10)))
        job.run(PaimonSink(location, storage_options=options))
    rows = sorted((row["id"], row["day"]) for row in table.to_arrow().to_pylist())
    assert rows == [(one, f"{min(one // 5 * 5, 10)}") for one in range(20)]
    assert len({file.bucket for file in table.files()}) >= 20 // 3
    assert table.verify().healthy
