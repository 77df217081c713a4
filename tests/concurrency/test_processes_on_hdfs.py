"""Processes on one HDFS, and Java Paimon among them, without a lock: every row that was acknowledged is
there once.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from paimon_stream import PaimonTable
from paimon_stream.storage.base import PutResult
from paimon_stream.storage.uri import open_folder
from tests.kits import store_writers
from tests.kits.hdfs import MiniHdfs
from tests.kits.seeds import examples
from tests.kits.store_writers import COLUMNS, FAR, Crowd, Written, append

pytestmark = pytest.mark.hdfs

PATIENT = {"commit.max-retries": "1000", "commit.max-retry-wait": "1 s"}
PROCESSES, TURNS = 4, examples(8, 25)
OF_JAVA = examples(4, 10)


def put(location: str, options: dict[str, str], writer: int) -> list[PutResult]:
    """Creates the same files as the other processes, with a content of its own."""
    storage = open_folder(location, options)
    storage.exists("begin")
    store_writers._BARRIER.wait(900)
    return [storage.put_if_absent(f"race/{n}", f"{writer}".encode()) for n in range(TURNS)]


def test_of_four_processes_exactly_one_creates_each_file(hdfs_server: MiniHdfs) -> None:
    location, options = hdfs_server.place()
    with Crowd(PROCESSES) as crowd:
        results = crowd.run(put, [(location, options, n) for n in range(PROCESSES)])
    storage = open_folder(location, options)
    for n in range(TURNS):
        winners = [writer for writer in range(PROCESSES) if results[writer][n] is PutResult.CREATED]
        assert [storage.read(f"race/{n}").decode()] == [str(winner) for winner in winners]
    assert storage.list_files("race", ".") == []


def test_every_row_of_four_processes_is_there_once(hdfs_server: MiniHdfs) -> None:
    location, options = hdfs_server.place()
    table = PaimonTable.create(location, COLUMNS, options=PATIENT, storage_options=options)
    with Crowd(PROCESSES) as crowd:
        written = crowd.run(
            append, [(location, options, 1 + n, 1, TURNS) for n in range(PROCESSES)]
        )
    check(table, written, [])


def test_java_commits_by_rename_beside_us_and_none_is_lost(
    hdfs_server: MiniHdfs, java_on_hdfs: Any
) -> None:
    location, options = hdfs_server.place()
    table = PaimonTable.create(location, COLUMNS, options=PATIENT, storage_options=options)
    javas: list[int] = []

    def commit_by_java() -> None:
        for n in range(OF_JAVA):
            java_on_hdfs.write(location, [{"id": -n, "name": "java"}], commit_identifier=n + 1)
            javas.append(-n)

    beside = threading.Thread(target=commit_by_java, daemon=True)
    beside.start()
    with Crowd(2) as crowd:
        written = crowd.run(append, [(location, options, 1 + n, 1, OF_JAVA) for n in range(2)])
    beside.join(600)
    assert len(javas) == OF_JAVA
    check(table, written, javas)
    assert len(java_on_hdfs.read(location)) == 3 * OF_JAVA


def check(table: PaimonTable, written: list[Written], others: list[int]) -> None:
    """All rows are there once, and each snapshot is that of one commit."""
    assert not any(one.errors for one in written)
    acknowledged = [row for one in written for row in one.acknowledged]
    assert all(row >= FAR for row in acknowledged)
    assert sorted(table.to_arrow()["id"].to_pylist()) == sorted([*acknowledged, *others])
    count = len(acknowledged) + len(others)
    assert [one.id for one in table.snapshots()] == list(range(1, count + 1))
    assert table.verify().healthy
    print(f"{count} commits, {sum(one.attempts for one in written)} attempts of ours")
