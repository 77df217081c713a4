"""A tag that somebody deletes while an expiry or the deletion of another tag reads what tags need, and
what a deletion costs in a table with many snapshots.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable

import pytest

from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.expire_run import Cleaner
from paimon_stream.maintenance.orphans import remove_orphan_files
from paimon_stream.maintenance.tags import create_tag, delete_tag, expire_tags, read_tags
from paimon_stream.runtime import SimulatedClock, simulated
from paimon_stream.storage.base import Storage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.snapshots import SnapshotStore
from tests.kits.commits import Bench
from tests.kits.places import following
from tests.kits.races import Meanwhile
from tests.kits.streams import Stream
from tests.kits.trips import TripStorage

pytestmark = pytest.mark.bare

_USER_OF_BATCHES = 2**63 - 1


def expire(bench: Bench, storage: Storage | None = None) -> None:
    expire_snapshots(
        bench.on(storage), 1, 1, dt.timedelta(0), protect_streams=False, runtime=bench.runtime
    )


def untag(bench: Bench, name: str, storage: Storage | None = None) -> None:
    delete_tag(bench.on(storage), name, runtime=bench.runtime)


def with_tags() -> Bench:
    """A table with three tags of expired snapshots, and snapshots that may expire. Each tag has
    files that nothing else needs.
    """
    clock = SimulatedClock()
    bench = Bench(storage=MemoryStorage(clock=clock))
    bench.clock, bench.runtime = clock, simulated(0, clock)
    for number in range(3):
        bench.committer().commit(bench.overwriting(_USER_OF_BATCHES, [bench.message(f"f{number}")]))
        create_tag(bench.table, f"tag-{number}", runtime=bench.runtime)
    bench.committer().commit(bench.overwriting(_USER_OF_BATCHES, [bench.message("later")]))
    expire(bench)
    bench.committer().commit(bench.overwriting(_USER_OF_BATCHES, [bench.message("last")]))
    return bench


WORKS: dict[str, Callable[[Bench, Storage], None]] = {
    "expiry": expire,
    "deletion of another tag": lambda bench, storage: untag(bench, "tag-2", storage),
}


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS.keys())
def test_a_tag_that_is_deleted_meanwhile_leaves_no_orphans(
    work: Callable[[Bench, Storage], None],
) -> None:
    at, met = 0, True
    while met:
        at = following(at)
        bench = with_tags()
        storage = Meanwhile(bench.storage, at, lambda bench=bench: untag(bench, "tag-1"))
        work(bench, storage)  # type: ignore[arg-type]
        met = storage.happened
        bench.clock.advance(2 * 86_400_000)
        report = remove_orphan_files(bench.table, runtime=bench.runtime)
        assert report.count == 0, (at, report.paths)
        for tag in read_tags(bench.storage).values():
            for name in bench.names_of(tag):
                assert bench.storage.exists(f"bucket-0/{name}"), (at, name)
    assert at > 50


def appended(bench: Bench, count: int) -> None:
    first = len(bench.live_names())
    for number in range(first, first + count):
        bench.committer().commit(bench.request(number, [bench.message(f"f{number}")]))


def with_a_tag_below(snapshots: int) -> Bench:
    """A table with a tag of an expired snapshot, whose rows are in the snapshots, too."""
    clock = SimulatedClock()
    bench = Bench(storage=MemoryStorage(clock=clock))
    bench.clock, bench.runtime = clock, simulated(0, clock)
    appended(bench, 1)
    create_tag(bench.table, "below", runtime=bench.runtime)
    appended(bench, 1)
    expire(bench)
    appended(bench, snapshots - 1)
    return bench


def test_the_deletion_of_a_tag_takes_less_than_five_requests_for_each_snapshot() -> None:
    """They read the snapshot, its two lists, and the manifest of its changes."""
    requests = []
    for snapshots in (20, 60):
        bench = with_a_tag_below(snapshots)
        storage = TripStorage(bench.storage)
        with storage.counted() as counted:
            untag(bench, "below", storage)
        requests.append(counted.requests)
    assert requests[1] - requests[0] < 5 * (60 - 20), requests


def test_of_several_deletions_only_the_first_reads_what_the_lists_of_other_tags_name() -> None:
    """Each of them reads these lists once more, for the data files that are live in the tags."""
    bench = with_a_tag_below(2)
    for number in range(20):
        retained = "1 h" if number < 5 else None
        create_tag(bench.table, f"tag-{number}", None, retained, runtime=bench.runtime)
        appended(bench, 1)
    expire(bench)
    bench.clock.advance(7_200_000)
    storage = TripStorage(bench.storage)
    with storage.counted() as counted:
        assert len(expire_tags(bench.on(storage), runtime=bench.runtime)) == 5
    lists = {f"manifest/{tag.delta_manifest_list}" for tag in read_tags(bench.storage).values()}
    times = Counter(one.path for one in counted.sent if one.path in lists)
    assert len(times) == 16
    assert set(times.values()) == {5 + 1}


def test_tags_are_read_together() -> None:
    bench = with_a_tag_below(2)
    for number in range(31):
        create_tag(bench.table, f"tag-{number}", runtime=bench.runtime)
    for work in (read_tags, lambda storage: expire_tags(bench.on(storage), runtime=bench.runtime)):
        storage = TripStorage(bench.storage)
        with storage.counted() as counted:
            work(storage)
        assert counted.kinds["GET"] == 32
        assert counted.trips < 5, str(counted)


def test_snapshots_that_expire_meanwhile_hide_no_file_of_the_others() -> None:
    """Each snapshot names its base and has merged its manifests. So the manifests of those that
    expire go with them, and the newest one alone has to show what it shares with them.
    """
    at, met = 0, True
    while met:
        at = following(at)
        bench = Bench(options={"manifest.merge-min-count": "2", "write-only": "true"})
        Stream(bench).batches(5)
        history = [bench.snapshots.get(snapshot_id) for snapshot_id in bench.snapshots.ids()]
        storage = Meanwhile(bench.storage, at, lambda bench=bench: expire(bench))
        table = bench.on(storage)  # type: ignore[arg-type]
        snapshots = SnapshotStore(table.storage, bench.runtime)
        cleaner = Cleaner(table, snapshots)
        _, live = cleaner.kept.files_of_history(snapshots, history)
        met = storage.happened
        assert [name for name in bench.live_names() if name not in live] == [], at
    assert at > 10
