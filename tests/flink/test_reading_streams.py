"""A Flink stream follows what this package writes, and hands a table over to it."""

from __future__ import annotations

import pytest

from paimon_stream.format.snapshot_json import CommitKind
from paimon_stream.table.consumers import consumers
from tests.kits.beside_flink import LIVE, Shared, wait_until
from tests.kits.flink import Flink
from tests.kits.params import few

FOLLOWED: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "append": ((), {}),
    "keyed": (("id",), {"bucket": "2"}),
    "input": (("id",), {"bucket": "2", "changelog-producer": "input"}),
    "lookup": (("id",), {"bucket": "2", "changelog-producer": "lookup", "write-only": "true"}),
}


def change(shared: Shared, start: int, rounds: int) -> None:
    """We insert, update, delete and compact."""
    is_keyed = bool(shared.table.primary_keys)
    for n in range(start, start + rounds):
        if is_keyed:
            shared.append(range(n * 20, n * 20 + 50), n * 1000)
            shared.append(range(n, n + 5), kind="-D")
        else:
            shared.append(range(n * 50, n * 50 + 50), n)
    shared.table.compact(full=True)


@pytest.mark.parametrize("name", few(FOLLOWED, lambda name: name == "lookup"))
def test_a_flink_stream_copies_ours_and_its_consumer_holds_our_expiry(
    flink: Flink, name: str
) -> None:
    keys, options = FOLLOWED[name]
    shared = Shared(flink, f"followed_{name}", keys, options=options)
    copy = Shared(flink, f"copy_{name}", keys, options={"bucket": "1"} if keys else {})
    change(shared, 0, 1)
    consumer = f"{LIVE}, 'consumer-id' = 'copy', 'consumer.expiration-time' = '1 d'"
    statement = (
        f"INSERT INTO {copy.name} /*+ OPTIONS('write-only' = 'true') */ "
        f"SELECT * FROM {shared.name} /*+ OPTIONS({consumer}) */"
    )
    job = flink.start(statement)
    change(shared, 1, 2)
    wait_until(lambda: copy.ours() == shared.ours(), job)
    savepoint = job.stop()

    change(shared, 3, 3)
    next_id = consumers(shared.table._storage)["copy"]
    report = shared.table.expire_snapshots(
        retain_max=1, retain_min=1, older_than="2099-01-01 00:00:00"
    )
    assert report.snapshots
    assert shared.table.snapshots()[0].id == next_id
    job = flink.start(statement, restored_from=savepoint)
    change(shared, 6, 1)
    wait_until(lambda: copy.ours() == shared.ours(), job)
    job.cancel()
    assert shared.flinks() == copy.flinks() == shared.ours()
    assert shared.codes() == set()
    kinds = {snapshot.commit_kind for snapshot in copy.table.snapshots()}
    assert kinds == {CommitKind.APPEND}, "with this option, the job does not compact"


def test_a_flink_job_of_changes_hands_its_table_over_to_us(flink: Flink) -> None:
    """The source stands for a database whose changes Flink reads. Stopped behind a savepoint, the
    job has committed all that it has read.
    """
    options = {"bucket": "2", "changelog-producer": "input"}
    source = Shared(flink, "database", ("id",), options=options)
    shared = Shared(flink, "handed_over", ("id",), options=options)
    source.append(range(50))
    job = flink.start(
        f"INSERT INTO {shared.name} SELECT * FROM {source.name} /*+ OPTIONS({LIVE}) */"
    )
    source.append(range(40, 60), 1000)
    source.append(range(5), kind="-D")
    wait_until(lambda: shared.ours() == source.ours(), job)
    job.stop()
    user = shared.table.latest_snapshot().commit_user

    for database in (source, shared):
        database.append(range(55, 70), 2000)
        database.append(range(10, 12), kind="-D")
    shared.table.compact(full=True)
    assert shared.ours() == shared.flinks() == source.ours()
    assert shared.codes() == set()
    assert shared.table.latest_snapshot().commit_user != user


def test_insert_and_call_return_before_their_end_unless_dml_sync_is_set(flink: Flink) -> None:
    shared = Shared(flink, "early", ("id",), options={"bucket": "1"})
    job = shared.fill("slow_rows", 0, 1_000_000, a_second=5)
    assert job.status() in ("CREATED", "RUNNING")
    job.cancel()
    call = f"CALL sys.compact(`table` => '{shared.name}', compact_strategy => 'full')"
    ((_, early),) = flink.sql(call, **{"table.dml-sync": "false"})
    assert early.startswith("JobID=")
    shared.append(range(3))
    shared.append(range(3))
    before = shared.table.latest_snapshot().id
    assert flink.sql(call) == [["+I", "Success"]]
    assert shared.table.latest_snapshot().id > before
