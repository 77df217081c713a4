"""Streams to S3 on clusters whose executors share no folder: executors die, tasks run twice, a
driver dies.

After each of these the table has each row once, and what is left over is found by the search for
orphans. The package comes to the executors in each of the ways that there are.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.kits.clusters import Job, Shipping, Standalone, Visit, Visits, kill_executor, wait_until
from tests.kits.stores import StoreServer
from tests.servers.fault_proxy import Entry, FaultProxy, Rule

pytestmark = pytest.mark.cluster

DATA_FILE = r"/bucket-\d+/data-"


def data_puts(proxy: FaultProxy) -> list[Entry]:
    return [
        entry for entry in proxy.log if entry.method == "PUT" and re.search(DATA_FILE, entry.path)
    ]


def executor_of(visit: Visit) -> int:
    return int(visit.facts["executor"])


def test_executors_that_are_killed_in_a_batch_lose_and_double_nothing(
    cluster: Any, s3_server: StoreServer, java_on_s3: Any, installed: Shipping, tmp_path: Path
) -> None:
    """In batch 1 an executor dies with its rows passed on. In batch 3 both die: the store has files
    of theirs, and no answer has reached them."""

    def held(visit: Visit) -> bool:
        facts = visit.facts
        return facts.get("attempt") == "0" and (facts["batch"] == "3" or facts["partition"] == "1")

    with s3_server.proxied() as proxy, Visits(held) as visits:
        job = Job(
            cluster,
            s3_server,
            tmp_path / "driver",
            shipping=installed,
            batches=5,
            endpoint=proxy.url,
            visits=visits.url,
            visited=[1, 3],
        )
        with job.running():
            (victim,) = visits.until("task", batch=1, partition=1, attempt=0)
            kill_executor(executor_of(victim))
            both = visits.until("task", 2, batch=3, attempt=0)
            proxy.add(Rule("hang", "PUT", DATA_FILE, times=2, seconds=5))
            for visit in both:
                visit.let_go()
            wait_until(
                lambda: sum(one.action == "hang" and one.status == 200 for one in proxy.log) == 2,
                "each task has stored a file",
            )
            for visit in both:
                kill_executor(executor_of(visit))
        assert len(job.tasks("ExecutorLostFailure")) >= 3
        left = job.check(java_on_s3)
    assert len(left) == 2


def test_a_slow_task_and_its_copy_write_one_file_that_counts(
    standalone: Standalone,
    s3_server: StoreServer,
    java_on_s3: Any,
    archives: Shipping,
    tmp_path: Path,
) -> None:
    """Both attempts store their file before either has an answer."""

    def held(visit: Visit) -> bool:
        return visit.place == "task" and visit.facts["partition"] == "1"

    with s3_server.proxied() as proxy, Visits(held) as visits:
        job = Job(
            standalone,
            s3_server,
            tmp_path / "driver",
            shipping=archives,
            batches=3,
            endpoint=proxy.url,
            visits=visits.url,
            visited=[1],
            conf={
                "spark.speculation": "true",
                "spark.speculation.quantile": "0.5",
                "spark.speculation.multiplier": "1.1",
                "spark.speculation.interval": "100ms",
            },
        )
        with job.running():
            slow, copy = visits.until("task", 2, batch=1, partition=1)
            assert {slow.facts["attempt"], copy.facts["attempt"]} == {"0", "1"}
            before = len(data_puts(proxy))
            proxy.add(Rule("hold", "PUT", DATA_FILE, times=4))
            slow.let_go()
            copy.let_go()
            wait_until(lambda: len(data_puts(proxy)) >= before + 2, "both attempts put a file")
            proxy.release()
        copies = [event for event in job.events("TaskStart") if event["Task Info"]["Speculative"]]
        assert copies
        left = job.check(java_on_s3)
    assert len(left) <= 2 * len(copies), "of a task and its copy, one leaves a file for each day"


def test_a_keyed_table_survives_the_loss_of_its_shuffle(
    cluster: Any, s3_server: StoreServer, java_on_s3: Any, py_files: Shipping, tmp_path: Path
) -> None:
    """An executor dies that holds rows which other tasks have still to fetch. The table adds up, so
    a row that is written twice shows.
    """
    with s3_server.proxied() as proxy, Visits() as visits:
        job = Job(
            cluster,
            s3_server,
            tmp_path / "driver",
            shipping=py_files,
            batches=3,
            keyed=True,
            endpoint=proxy.url,
            visits=visits.url,
            visited=[1],
        )
        with job.running():
            visits.until("driver", batch=1, phase="judged")
            before = len(data_puts(proxy))
            proxy.add(Rule("hold", "PUT", DATA_FILE, times=2))
            (mapper,) = visits.until("task", batch=1, partition=1)
            wait_until(
                lambda: len(data_puts(proxy)) >= before + 2, "tasks after the shuffle put files"
            )
            kill_executor(executor_of(mapper))
            proxy.release()
        again = [
            stage
            for stage in job.events("StageSubmitted")
            if stage["Stage Info"]["Stage Attempt ID"] > 0
        ]
        assert again, "Spark ran a stage again because its output was lost"
        job.check(java_on_s3)


def test_an_executor_that_is_killed_while_it_compacts_changes_no_row(
    cluster: Any, s3_server: StoreServer, java_on_s3: Any, installed: Shipping, tmp_path: Path
) -> None:
    """It dies while its new file is on the way to the store. Spark has another one rewrite the
    unit.
    """

    def held(visit: Visit) -> bool:
        return visit.facts.get("phase") == "compacts"

    with s3_server.proxied() as proxy, Visits(held) as visits:
        job = Job(
            cluster,
            s3_server,
            tmp_path / "driver",
            shipping=installed,
            batches=6,
            keyed=True,
            endpoint=proxy.url,
            visits=visits.url,
            visited=[5],
            compacts=True,
        )
        with job.running():
            (waits,) = visits.until("driver", phase="compacts")
            executors = {executor_of(one) for one in visits.until("task", 2, batch=5)}
            before = len(data_puts(proxy))
            proxy.add(Rule("hold", "PUT", DATA_FILE, times=2))
            waits.let_go()
            wait_until(lambda: len(data_puts(proxy)) >= before + 2, "both executors put a file")
            kill_executor(executors.pop())
            wait_until(lambda: job.tasks("ExecutorLostFailure"), "Spark knows of it")
            proxy.release()
        newest = job.table.latest_snapshot()
        assert (newest.id, newest.commit_kind.value) == (7, "COMPACT")
        assert [one.meta.level for one in job.table.files()] == [5] * 4
        job.check_rows(java_on_s3)
        assert job.table.verify().healthy
        left = {name for name in job.stored() if "/data-" in name}
        assert len(left) <= 6 * 4 + 4 + 1, "at most one file is an orphan"


def test_a_driver_that_is_killed_in_a_batch_is_started_again(
    standalone: Standalone,
    s3_server: StoreServer,
    java_on_s3: Any,
    installed: Shipping,
    tmp_path: Path,
) -> None:
    """Its executors are at work, and go on when it is dead."""

    def held(visit: Visit) -> bool:
        return visit.place == "task"

    with Visits(held) as visits:
        job = Job(
            standalone,
            s3_server,
            tmp_path / "driver",
            shipping=installed,
            batches=4,
            visits=visits.url,
            visited=[1],
        )
        with job.running() as child:
            visits.until("task", 2, batch=1)
            job.kill(child)
    job.task["visited"] = []
    job.run()
    job.check(java_on_s3)


def test_executors_without_the_package_end_the_query(
    standalone: Standalone, s3_server: StoreServer, not_shipped: Shipping, tmp_path: Path
) -> None:
    """The error says what to do, and nothing is in the table."""
    job = Job(standalone, s3_server, tmp_path / "driver", shipping=not_shipped, batches=1)
    job.run(fails=True)
    (cure,) = set(
        re.findall(r"ConfigError: Batch 0: (Spark's executors do not have .*)", job.said())
    )
    assert job.location in cure
    assert "--py-files" in cure
    assert not job.table.snapshots()
    assert not [name for name in job.stored() if "/data-" in name]
