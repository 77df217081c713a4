"""Whole tables in object stores, through the public API and without Spark."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import AlreadyExists, NotFound
from tests.kits.stores import KINDS, SECRETS, StoreServer
from tests.servers.fault_proxy import Rule

pytestmark = pytest.mark.lowest

COLUMNS = [("id", "BIGINT NOT NULL"), ("name", "STRING"), ("dt", "STRING NOT NULL")]


def rows(*ids: int, day: str = "2024-01-01", name: str = "n") -> pa.Table:
    names = [f"{name}{n}" for n in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "name": names, "dt": [day] * len(ids)})


def ids(table: PaimonTable, **how: object) -> list[int]:
    return sorted(table.to_arrow(columns=["id"], **how)["id"].to_pylist())


ON_HDFS = pytest.param("hdfs", marks=pytest.mark.hdfs)


@pytest.mark.parametrize("store_server", [*KINDS, ON_HDFS], indirect=True)
@pytest.mark.parametrize("keyed", [False, True], ids=["append", "keyed"])
def test_the_life_of_a_table(store_server: StoreServer, keyed: bool) -> None:
    location, options = store_server.place()
    keys = {"primary_keys": ["dt", "id"], "options": {"bucket": "2"}} if keyed else {}
    with pytest.raises(NotFound):
        PaimonTable.load(location, storage_options=options)
    table = PaimonTable.create(
        location, COLUMNS, partition_keys=["dt"], storage_options=options, **keys
    )
    with pytest.raises(AlreadyExists):
        PaimonTable.create(location, COLUMNS, storage_options=options)
    for n in range(5):
        table.append(rows(2 * n, 2 * n + 1, day=f"2024-01-0{1 + n % 2}"))
    table.create_tag("second", snapshot_id=2)
    if keyed:
        table.append(rows(0, name="again"))
        names = table.to_arrow(partition={"dt": "2024-01-01"})["name"].to_pylist()
        assert "again0" in names and "n0" not in names
    again = PaimonTable.load(location, storage_options=options)
    assert again.location == location
    assert ids(again) == list(range(10))
    assert ids(again, tag="second") == [0, 1, 2, 3]
    again.overwrite(rows(77, day="2024-01-02"), partition={"dt": "2024-01-02"})
    assert 77 in ids(again) and 2 not in ids(again)
    report = again.expire_snapshots(retain_max=1, retain_min=1, older_than=dt.timedelta(0))
    assert report.snapshots
    assert [one.id for one in again.snapshots()] == [again.latest_snapshot().id]
    assert ids(again, tag="second") == [0, 1, 2, 3]
    again.delete_tag("second")
    found = again.verify(sample=10)
    assert found.healthy, found
    assert again.remove_orphan_files().count == 0
    assert not any(secret in repr(again) + repr(found) for secret in SECRETS)


def test_a_table_is_rolled_back(s3_server: StoreServer) -> None:
    location, options = s3_server.place()
    table = PaimonTable.create(location, COLUMNS, storage_options=options)
    for n in range(4):
        table.append(rows(n))
    table.rollback_to(2)
    assert ids(table) == [0, 1]
    table.append(rows(9))
    assert ids(table) == [0, 1, 9]
    assert table.verify().healthy


def test_a_storm_of_failures_costs_time_only(s3_server: StoreServer) -> None:
    """Requests are refused, answers are lost, and conflicts are reported where there are none."""
    with s3_server.proxied() as proxy:
        location, options = s3_server.place(proxy)
        table = PaimonTable.create(location, COLUMNS, storage_options=options)
        how = {"times": None}
        proxy.add(
            Rule("answer", status=503, probability=0.15, **how),
            Rule("drop_answer", probability=0.05, **how),
            Rule(
                "answer_after", "PUT", r"snapshot/snapshot-\d+$", status=500, probability=0.3, **how
            ),
            Rule("answer", "PUT", r"snapshot/snapshot-\d+$", status=409, probability=0.3, **how),
        )
        for n in range(5):
            table.append(rows(n))
        assert proxy.fired > 10
        proxy.clear()
        assert ids(table) == [0, 1, 2, 3, 4]
        assert [one.id for one in table.snapshots()] == [1, 2, 3, 4, 5]
        assert table.verify().healthy
