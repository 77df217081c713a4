"""Compactions on Spark's executors. In local mode threads are quicker, so the tests choose the
executors.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.catalogs.opening import open_storage
from paimon_stream.compact.job import compact
from paimon_stream.compact.publish import CompactReport
from paimon_stream.errors import NotFound
from paimon_stream.spark.active_session import executors_of_session
from paimon_stream.spark.compaction import SparkExecutors, pays
from paimon_stream.table.table import load_table
from tests.kits.compaction import data_files, live, problems
from tests.kits.keyed import commit_changes
from tests.kits.spark_jobs import Job
from tests.kits.stores import StoreServer


class Chosen(SparkExecutors):
    """The executors, whatever pays."""

    def at_once(self, units: Any) -> int:
        return self.cores()


def on_spark(
    job: Job, table: PaimonTable, storage_options: Any = None, **how: Any
) -> CompactReport:
    storage = open_storage(table.location, storage_options)
    how.setdefault("elsewhere", Chosen(job.spark, load_table(storage)))
    return compact(lambda: load_table(storage), **how)


def made(location: str, files: int = 6, days: int = 3, options: Any = None) -> PaimonTable:
    columns = [("id", "INT"), ("dt", "STRING")]
    table = PaimonTable.create(location, columns, partition_keys=["dt"], storage_options=options)
    for number in range(files):
        ids = pa.array(range(number * days, number * days + days), pa.int32())
        table.append(pa.table({"id": ids, "dt": [f"d{day}" for day in range(days)]}))
    return table


def ids(table: PaimonTable) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


def test_units_become_files_on_the_executors(job: Job, tmp_path: Path) -> None:
    table = made(str(tmp_path / "t"))
    seen: list[tuple[str, int, int | None]] = []
    report = on_spark(job, table, progress=lambda *said: seen.append(said))
    assert (report.files_before, report.files_after, report.rows_after) == (18, 3, 18)
    assert report.snapshot_id == table.latest_snapshot().id == 7
    assert ids(table) == list(range(18))
    assert len(seen) == 3
    assert seen[-1] == ("bytes", report.bytes_before, report.bytes_before)
    assert not problems(table)
    assert len(data_files(table)) == 18 + 3


def test_a_table_with_a_primary_key_is_merged_on_the_executors(job: Job, tmp_path: Path) -> None:
    columns = [("k", "INT NOT NULL"), ("v", "INT")]
    options = {"bucket": "2", "write-only": "true"}
    table = PaimonTable.create(str(tmp_path / "t"), columns, primary_keys=["k"], options=options)
    for number in range(6):
        rows = [("-D" if key == number else "+I", {"k": key, "v": number}) for key in range(10)]
        commit_changes(
            table, rows, table.latest_snapshot().id if table.snapshots() else 0, user="writer"
        )
    before = sorted(table.to_arrow()["k"].to_pylist())
    report = on_spark(job, table, full=True)
    assert (report.files_before, report.files_after) == (12, 2)
    assert {one.meta.level for one in table.files()} == {5}
    assert sorted(table.to_arrow()["k"].to_pylist()) == before
    assert not problems(table)


def test_an_error_on_an_executor_is_that_error(job: Job, tmp_path: Path) -> None:
    table = made(str(tmp_path / "t"))
    gone = table.files()[0]
    (Path(table.location) / gone.path).unlink()
    with pytest.raises(NotFound, match="is missing"):
        on_spark(job, table)
    assert len(table.files()) == 6 + 2


@pytest.mark.full
def test_ctrl_c_cancels_the_jobs_and_leaves_nothing_visible(job: Job, tmp_path: Path) -> None:
    table = made(str(tmp_path / "t"), days=8)
    before = live(table)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    elsewhere = Chosen(job.spark, load_table(open_storage(table.location)))
    with pytest.raises(KeyboardInterrupt):
        on_spark(job, table, progress=interrupted, elsewhere=elsewhere)
    assert live(table) == before
    assert not job.spark.sparkContext.statusTracker().getActiveJobsIds()
    assert not [
        one.name for one in threading.enumerate() if one.name.startswith("paimon-stream-compact")
    ]
    assert on_spark(job, table, elsewhere=elsewhere).files_before == 48, (
        "as a second plan of one run does"
    )


@pytest.mark.full
def test_executors_get_the_options_of_the_storage(job: Job, s3_server: StoreServer) -> None:
    location, options = s3_server.place()
    table = made(location, options=options)
    report = on_spark(job, table, options)
    assert (report.files_before, report.files_after) == (18, 3)
    assert ids(table) == list(range(18))
    assert table.verify().healthy


def test_only_units_that_are_worth_a_job_go_to_the_executors(job: Job) -> None:
    mib = 2**20
    assert not pays([])
    assert not pays([900 * mib] * 2)
    assert not pays([60 * mib] * 3)
    assert pays([100 * mib] * 3)
    assert not pays([900 * mib, *[mib] * 100])
    location = made("memory://compaction/db.db/t").location
    assert executors_of_session(load_table(open_storage(location))) is None


def test_in_local_mode_threads_of_the_driver_rewrite(job: Job, tmp_path: Path) -> None:
    table = made(str(tmp_path / "t"))
    found = executors_of_session(load_table(open_storage(table.location)))
    assert isinstance(found, SparkExecutors)
    large: Any = SimpleNamespace(size=2**30)
    assert found.at_once([large] * 3) == 0
    assert table.compact().files_after == 3
