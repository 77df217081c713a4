"""Java's HiveCatalog and ours commit to one table on S3, each under the lock of a real Hive Metastore,
because Java publishes there in two steps. Locks expire here after 20 seconds.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonCatalog, catalog
from paimon_stream.catalogs.hive_client import STRUCT, HiveClient, Struct
from tests.kits.forks import FORKS
from tests.kits.hive import FOLDERS_FOR_S3, S3_OF_JAVA, HiveMetastore, java_of_hive
from tests.kits.java_catalogs import Beside, JavaJdbcCatalog
from tests.kits.store_writers import FAR, Crowd, Written, append
from tests.kits.stores import StoreServer, started
from tests.servers.fault_proxy import Rule

pytestmark = [pytest.mark.hive, pytest.mark.full]

COLUMNS = [("id", "BIGINT"), ("name", "STRING")]
EXPIRY = (
    *("hive.txn.timeout=20s", "hive.compactor.initiator.on=true"),
    "hive.support.concurrency=true",
    "hive.txn.manager=org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
    *("hive.timedout.txn.reaper.start=1s", "hive.timedout.txn.reaper.interval=2s"),
)
OPTIONS = {"bucket": "-1", "commit.max-retries": "200"}
COMMITS = 25
OURS = 3
"""How many of four processes are ours. The fourth is Java."""
NUMBERS = count(1)


@pytest.fixture(scope="module")
def metastore() -> Iterator[HiveMetastore]:
    with (
        started(lambda _: HiveMetastore(FOLDERS_FOR_S3, *EXPIRY), "thrift") as server,
        server,
    ):
        yield server


@pytest.fixture(scope="module")
def java_with_s3(java: Any) -> Iterator[Any]:
    with java_of_hive(S3_OF_JAVA) as java_paimon:
        yield java_paimon


class Shop:
    """A table on S3 in a database of its own."""

    def __init__(self, metastore: HiveMetastore, s3: StoreServer, java: Any) -> None:
        self.metastore, self.java, self.s3 = metastore, java, s3
        self.database = f"db{next(NUMBERS)}"
        self.name = f"{self.database}.t"
        self.options = {
            **metastore.options,
            **s3.options(),
            "warehouse": f"s3://bucket{metastore.warehouse}",
            "lock-check-max-sleep": "200 ms",
        }
        self.ours: PaimonCatalog = catalog(self.options)
        self.ours.create_database(self.database)
        self.ours.create_table(self.name, COLUMNS, options=OPTIONS).append(rows(0))
        self.theirs = JavaJdbcCatalog(java, self.options)

    def java_writes(self, *ids: int) -> None:
        for number in ids:
            self.java.written(self.theirs.table(self.name), number, f"n{number}")

    def ids(self) -> list[int]:
        return sorted(self.ours.get_table(self.name).to_arrow()["id"].to_pylist())

    def locks(self) -> list[Struct]:
        asked = HiveClient(self.metastore.uri).ask("show_locks", Struct({1: (STRUCT, Struct())}))
        return [lock for lock in asked.items(1) if lock.text(2) == self.database]


@pytest.fixture
def shop(metastore: HiveMetastore, s3_server: StoreServer, java_with_s3: Any) -> Shop:
    return Shop(metastore, s3_server, java_with_s3)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{number}" for number in ids]})


def test_no_commit_of_four_processes_is_lost_or_doubled(shop: Shop) -> None:
    java = Beside(lambda: shop.java_writes(*range(1, COMMITS + 1)))
    with Crowd(OURS) as crowd:
        tasks = [(shop.name, shop.options, number, 1, COMMITS) for number in range(1, OURS + 1)]
        done: list[Written] = crowd.run(append, tasks)
    java.join(300)
    java.end()
    own = [FAR * number + turn for number in range(1, OURS + 1) for turn in range(COMMITS)]
    assert [written.errors for written in done] == [[]] * OURS
    assert shop.ids() == sorted([*range(COMMITS + 1), *own])
    assert shop.ours.get_table(shop.name).latest_snapshot().id == 1 + (OURS + 1) * COMMITS
    assert shop.ours.get_table(shop.name).verify().healthy
    assert shop.locks() == []


def hold(name: str, options: dict[str, str], is_held: Any) -> None:
    """Takes the lock of a table, and keeps it until the process is killed."""
    database, _, table = name.partition(".")
    catalog(options).get_table(name)._table.storage._acquire(database, table)  # type: ignore[attr-defined]
    is_held.set()
    signal.pause()


def test_the_lock_of_a_killed_process_expires_and_java_and_we_go_on(shop: Shop) -> None:
    is_held = FORKS.Event()
    holder = FORKS.Process(target=hold, args=(shop.name, shop.options, is_held))
    holder.start()
    assert is_held.wait(60)
    os.kill(holder.pid or 0, signal.SIGKILL)
    holder.join()
    assert len(shop.locks()) == 1
    java = Beside(lambda: shop.java_writes(1))
    ours = Beside(lambda: shop.ours.get_table(shop.name).append(rows(2)))
    java.join(2)
    assert java.is_alive() and ours.is_alive()
    java.end()
    ours.end()
    assert shop.ids() == [0, 1, 2]
    assert shop.locks() == []


def test_a_put_that_is_late_after_its_lock_has_expired_replaces_nothing(shop: Shop) -> None:
    """The put comes when Java has published the snapshot of the same number."""
    with shop.s3.proxied() as own:
        own.add(Rule("hold", method="PUT", path="snapshot/snapshot-2"))
        slow = catalog(
            {**shop.options, **shop.s3.options(own), "paimon-stream.store.timeout": "2 min"}
        )
        ours = Beside(lambda: slow.get_table(shop.name).append(rows(1)))
        assert own.struck.wait(60)
        shop.java_writes(2)
        own.release()
        ours.end()
    assert shop.ids() == [0, 1, 2]
    assert shop.ours.get_table(shop.name).latest_snapshot().id == 3
    assert shop.locks() == []
