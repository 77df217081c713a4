"""A tag that somebody deletes while an expiry or the deletion of another tag reads what tags need."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest

from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.orphans import remove_orphan_files
from paimon_stream.maintenance.tags import create_tag, delete_tag, read_tags
from paimon_stream.runtime import SimulatedClock, simulated
from paimon_stream.storage.base import Storage
from paimon_stream.storage.memory import MemoryStorage
from tests.kits.commits import Bench
from tests.kits.places import following
from tests.kits.races import Meanwhile

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
