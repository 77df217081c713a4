"""How many round trips maintenance and reading take where requests are in flight together."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import PaimonStreamError, Unavailable
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.orphans import remove_orphan_files
from paimon_stream.read.rows import read_batches
from paimon_stream.read.scan import plan_scan
from paimon_stream.runtime import SimulatedClock, simulated
from paimon_stream.storage.base import Storage
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.storage.together import Request, at_once
from paimon_stream.table.table import load_table
from paimon_stream.verify.verifying import verify
from tests.kits.commits import Bench
from tests.kits.faults import Fault, Operation
from tests.kits.keyed import write_changes
from tests.kits.tables import write_rows
from tests.kits.trips import Trips, TripStorage

SNAPSHOTS = 96


class Bulk(TripStorage):
    """Deletes many files with one request, as S3 does."""

    def delete_all(self, paths: Sequence[str]) -> dict[str, PaimonStreamError]:
        if paths:
            self._due(Operation("delete", f"{len(paths)} files"))
        return self.inner.delete_all(paths)


class Held(Bulk):
    """Requests run at once. The first deletion of a snapshot is answered when 40 lists have been
    read.
    """

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.lists: list[str] = []
        self.enough = threading.Event()
        self.deleting = threading.Lock()
        self.deleted: list[str] = []
        self.overlapped = self.waited = False

    def together(self, requests: Sequence[Request]) -> list[Any]:
        return at_once(requests)

    def read(self, path: str, *limit: int) -> bytes:
        data = super().read(path, *limit)
        if "manifest-list-" in path:
            self.lists.append(path)
            if len(self.lists) == 40:
                self.enough.set()
        return data

    def delete(self, path: str) -> None:
        alone = self.deleting.acquire(blocking=False)
        self.overlapped |= not alone
        if not self.deleted:
            self.waited = self.enough.wait(900)
        self.deleted.append(path)
        super().delete(path)
        if alone:
            self.deleting.release()


class FoldersFarAway(TripStorage):
    """Has folders, as a disk has, and answers over a network, as HDFS does."""

    answers_late = True


def grown() -> tuple[Bench, Bulk]:
    """A table of many snapshots; every eighth is a compaction."""
    clock = SimulatedClock()
    bench = Bench(storage=MemoryStorage(clock=clock))
    bench.clock, bench.runtime = clock, simulated(3, clock)
    for number in range(SNAPSHOTS):
        if number % 8 == 7:
            before = [f"f{one}" for one in range(number - 7, number)]
            message = bench.compaction(*before, into=f"big{number}")
        else:
            message = bench.message(f"f{number}")
        bench.committer().commit(bench.request(number, [message]))
    return bench, Bulk(bench.storage)


def trips(storage: Bulk, work: Callable[[Storage], object]) -> Trips:
    with storage.counted() as found:
        work(storage)
    return found


def test_expiry_takes_little_more_than_a_trip_for_each_snapshot() -> None:
    """One of them is unavoidable: the snapshots' own files are deleted one after the other."""
    bench, storage = grown()
    now = dt.timedelta(0)

    def expire(used: Storage) -> None:
        report = expire_snapshots(bench.on(used), 1, 1, now, 10**6, runtime=bench.runtime)
        assert len(report.snapshots) == SNAPSHOTS - 1
        assert report.files["data"] == 84

    assert trips(storage, expire).trips < 1.5 * SNAPSHOTS
    bench.audit([f"big{number}" for number in range(7, SNAPSHOTS, 8)])


def test_a_snapshot_that_expires_takes_less_than_nine_requests() -> None:
    """It is read, noted and looked at: its file, the newest one's and the pins. Its file is
    deleted. Its two lists are read.
    """
    bench, storage = grown()
    found = trips(
        storage,
        lambda used: expire_snapshots(
            bench.on(used), 1, 1, dt.timedelta(0), 10**6, runtime=bench.runtime
        ),
    )
    each = {kind: count / SNAPSHOTS for kind, count in found.kinds.items()}
    assert found.requests < 9 * SNAPSHOTS, each
    assert each["GET"] < 5.5, each
    assert max(each["LIST"], each["DELETE"], each["PUT"]) < 1.3, each


def test_snapshots_are_deleted_one_by_one_while_the_lists_are_read() -> None:
    """No deletion waits for a list."""
    bench, _ = grown()
    storage = Held(bench.storage)
    report = expire_snapshots(
        bench.on(storage), 1, 1, dt.timedelta(0), 10**6, runtime=bench.runtime
    )
    assert storage.waited
    assert storage.deleted == [f"snapshot/snapshot-{one}" for one in range(1, SNAPSHOTS)]
    assert not storage.overlapped
    assert len(storage.lists) == len(set(storage.lists))  # none was read twice
    assert report.files["manifest list"] == 2 * (SNAPSHOTS - 1)
    bench.audit([f"big{number}" for number in range(7, SNAPSHOTS, 8)])


def test_an_expiry_that_stops_reads_no_further_lists() -> None:
    bench, _ = grown()
    fault = Fault(at=2, verb="delete", path="snapshot/", error=Unavailable)
    failing = Bulk(bench.storage, [fault])
    with failing.counted() as found, pytest.raises(Unavailable):
        expire_snapshots(bench.on(failing), 1, 1, dt.timedelta(0), 10**6, runtime=bench.runtime)
    assert not [one for one in found.sent if "manifest-list-" in one.path]


def test_verification_takes_few_trips() -> None:
    bench, storage = grown()
    found = trips(storage, lambda used: verify(bench.on(used), sample=0, runtime=bench.runtime))
    assert found.requests > 4 * SNAPSHOTS
    assert found.trips < found.requests / 8, str(found)


def test_orphans_are_found_and_deleted_in_few_trips() -> None:
    bench, storage = grown()
    bench.storage.write_all([(f"bucket-0/litter-{number}", b"") for number in range(500)])
    bench.clock.advance(2 * 86_400_000)

    def clean(used: Storage) -> None:
        report = remove_orphan_files(bench.on(used), dry_run=False, runtime=bench.runtime)
        assert report.count == 500

    found = trips(storage, clean)
    assert found.requests > 500 + 3 * SNAPSHOTS
    assert found.trips < found.requests / 8, str(found)


def test_folders_behind_a_network_are_listed_and_read_several_at_once(tmp_path: Path) -> None:
    days = 12
    append_batches(tmp_path / "t", partitions=days, batches=4)
    storage = FoldersFarAway(LocalStorage(str(tmp_path / "t")))
    table = load_table(storage)
    cleaned = trips(storage, lambda used: remove_orphan_files(table))
    assert cleaned.kinds["LIST"] > 3 * days
    assert cleaned.trips < 40, str(cleaned)
    read = trips(storage, lambda used: [*read_batches(plan_scan(table))])
    assert read.kinds["GET"] > 4 * days
    assert read.trips < 20, str(read)
    verified = trips(storage, lambda used: verify(table, sample=0))
    assert verified.trips < verified.requests / 2, str(verified)


def append_batches(path: Path, *, partitions: int, batches: int) -> None:
    """Makes a table in which each batch has a row for each partition."""
    schema = [("id", "BIGINT"), ("dt", "INT")]
    table = PaimonTable.create(str(path), schema=schema, partition_keys=["dt"])
    ids = range(partitions)
    for _ in range(batches):
        table.append(pa.table({"id": pa.array(ids, pa.int64()), "dt": pa.array(ids, pa.int32())}))


@pytest.mark.parametrize("keys", [(), ("id",)])
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_small_files_are_read_with_one_request_each_several_at_once(
    keys: tuple[str, ...], file_format: str
) -> None:
    files = 32
    options = {"file.format": file_format, **({"bucket": "4"} if keys else {})}
    bench = Bench(options=options, keys=keys)
    for number in range(files // 4 if keys else files):
        rows = [{"id": 4 * number + one, "dt": "x"} for one in range(4)]
        keyed = [("+I", row) for row in rows]
        table = bench.table
        messages = write_changes(table, keyed).messages if keys else write_rows(table, rows)
        bench.committer().commit(bench.request(number, messages))
    storage = Bulk(bench.storage)
    table = bench.on(storage)
    with storage.counted() as found:
        scan = plan_scan(table)
        batches = list(read_batches(scan))
    assert sum(batch.num_rows for batch in batches) == (files if keys else 4 * files)
    opened = [one for one in storage.operations if one.verb == "open_input"]
    assert len(opened) == len(scan.files) > 8
    assert found.trips < 16, str(found)
