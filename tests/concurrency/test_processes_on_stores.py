"""Processes on one table in a store: every row that was acknowledged is there once."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from paimon_stream import PaimonTable
from tests.kits.seeds import MANY, examples
from tests.kits.store_streams import OtherReader, RowStream
from tests.kits.store_writers import COLUMNS, Crowd, Written, append, drive
from tests.kits.stores import StoreServer
from tests.servers.fault_proxy import FaultProxy, Rule

PATIENT = {"commit.max-retries": "1000", "commit.max-retry-wait": "60 s"}
SNAPSHOT = r"snapshot/snapshot-\d+$"
FAULTS = [
    Rule("drop_answer", probability=0.02, times=None),
    Rule("answer", status=503, probability=0.03, times=None),
    Rule("late", "PUT", SNAPSHOT, probability=0.03, seconds=0.2, times=None),
    Rule("answer", "PUT", SNAPSHOT, status=409, probability=0.05, times=None),
]


@pytest.fixture(scope="module")
def reader(s3_server: StoreServer) -> Iterator[OtherReader]:
    reader = OtherReader(s3_server)
    yield reader
    reader.close()


@pytest.fixture
def proxy(s3_server: StoreServer) -> Iterator[FaultProxy]:
    with s3_server.proxied() as proxy:
        yield proxy


CROWDS = [(3, 1, 5, True)]
if MANY:
    CROWDS = [(8, 1, 100, False), (4, 16, 50, False), (4, 1, 100, True)]


@pytest.mark.parametrize(
    ("processes", "writers", "commits", "faults"),
    CROWDS,
    ids=lambda one: ("", "faults")[one] if isinstance(one, bool) else str(one),
)
def test_every_row_that_was_acknowledged_is_there_once(
    s3_server: StoreServer,
    proxy: FaultProxy,
    reader: OtherReader,
    processes: int,
    writers: int,
    commits: int,
    faults: bool,
) -> None:
    location, options = s3_server.place(proxy)
    PaimonTable.create(location, COLUMNS, options=PATIENT, storage_options=options)
    proxy.clear()
    proxy.add(*FAULTS[: 4 * faults])
    began = time.monotonic()
    tasks = [(location, options, 1 + n * writers, writers, commits) for n in range(processes)]
    with Crowd(processes) as crowd:
        written: list[Written] = crowd.run(append, tasks)
    took, asked, failed = time.monotonic() - began, len(proxy.log), proxy.fired
    proxy.clear()
    acknowledged = [row for one in written for row in one.acknowledged]
    attempts = sum(one.attempts for one in written)
    print(
        f"{len(acknowledged)} commits, {attempts} attempts, {asked} requests, {failed} faults, {took:.0f} s"
    )
    unknown = sum(len(one.errors) for one in written)
    assert len(acknowledged) + unknown == processes * writers * commits
    assert faults or not unknown
    table = PaimonTable.load(location, storage_options=s3_server.options())
    found = sorted(table.to_arrow()["id"].to_pylist())
    assert len(found) == len(set(found)) <= len(acknowledged) + unknown
    assert set(found) >= set(acknowledged)
    assert [one.id for one in table.snapshots()] == list(range(1, len(found) + 1))
    assert reader.ids(location) == found
    assert table.verify().healthy


def test_two_drivers_on_one_checkpoint(
    s3_server: StoreServer, proxy: FaultProxy, reader: OtherReader
) -> None:
    stream = RowStream(s3_server, proxy, store={})
    stream.batch()
    options = s3_server.options(proxy)
    noticed = []
    with Crowd(2) as crowd:
        for _ in range(examples(3, 20)):
            tasks = [(stream.location, options, driver, stream.next_batch, 4) for driver in (1, 2)]
            ends = crowd.run(drive, tasks)
            noticed += [error for _, error in ends if error]
            assert all(error is None or end >= stream.next_batch for end, error in ends)
            stream.next_batch = max(end for end, _ in ends)
            stream.writer = None
            stream.batch()  # a new run repeats the last one, or begins the next
            stream.audit()
            assert reader.ids(stream.location) == stream.expected
    print(f"{stream.next_batch} batches; the drivers that were stopped: {noticed}")
    assert noticed
