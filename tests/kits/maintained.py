"""A table with appends, compactions and a tag, for tests of maintenance. The files that a snapshot
needs are known.
"""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import count

from paimon_stream.errors import PaimonStreamError
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.maintenance.expire import ExpireReport, expire_snapshots
from paimon_stream.maintenance.tags import create_tag, read_tags
from paimon_stream.options import Options
from paimon_stream.runtime import SimulatedClock, simulated
from paimon_stream.storage.base import Storage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.layout import manifest_path
from paimon_stream.table.live import live_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.snapshots import SnapshotStore
from tests.kits.commits import Bench
from tests.kits.faults import Killed
from tests.kits.places import new_storage


@dataclass
class Case:
    """A table with appends, two compactions and a tag. Its live files are known."""

    bench: Bench

    @classmethod
    def make(cls) -> Case:
        """A copy of the one that `built` made, with everything of its own."""
        built_once = built()
        clock = SimulatedClock(TEMPLATE.bench.clock.millis)
        storage = new_storage(clock=clock)
        storage.write_all(list(built_once.items()))
        return cls.on(storage, clock)

    @classmethod
    def long(cls) -> Case:
        """The same. Of its changelogs two outlive the two snapshots that are kept."""
        made = cls.make()
        table = made.bench.table
        schema = replace(table.schema, options={**table.schema.options, **LONG})
        made.bench.table = replace(table, schema=schema, options=Options({**table.options, **LONG}))
        return made

    @classmethod
    def on(cls, storage: Storage, clock: SimulatedClock) -> Case:
        """The one on a storage that has the files of `built`."""
        bench = copy.copy(TEMPLATE.bench)
        bench.clock = clock
        bench.runtime = simulated(next(SEEDS), bench.clock)
        bench._metas = {}
        bench.storage = storage
        bench.table = bench.on(storage)
        bench.snapshots = SnapshotStore(storage, bench.runtime)
        bench.manifests = ManifestStore(storage)
        return cls(bench)

    def build(self) -> None:
        bench = self.bench
        for number in range(5):
            self.append(number)
            if number in (1, 3):
                self.compact(
                    [name for name in bench.live_names() if name.startswith("f")], f"big-{number}"
                )
            if number == 2:
                create_tag(bench.table, "kept", runtime=bench.runtime)
        bench.clock.advance(10_000)

    def append(self, number: int) -> None:
        bench = self.bench
        bench.committer().commit(
            bench.request(number, [bench.message(f"f{number}", dt="a")], user="stream")
        )
        bench.clock.advance(1000)

    def compact(self, names: list[str], into: str) -> None:
        bench = self.bench
        bench.committer().commit(bench.request(0, [bench.compaction(*names, into=into)], user="c"))

    def expire(self, storage: Storage | None = None) -> ExpireReport:
        bench = self.bench
        return expire_snapshots(
            bench.on(storage), 2, 2, dt.timedelta(0), 100, runtime=bench.runtime
        )

    def expire_to(self, earliest: int, storage: Storage | None = None) -> ExpireReport:
        """Expires all snapshots below `earliest`."""
        bench = self.bench
        keep = bench.snapshots.ids()[-1] - earliest + 1
        now = dt.timedelta(0)
        return expire_snapshots(bench.on(storage), keep, keep, now, 100, runtime=bench.runtime)

    def files(self) -> set[str]:
        return set(paths(self.bench.storage))

    def broken(self, snapshot: Snapshot) -> bool:
        """Whether anything that a snapshot or tag needs is missing."""
        bench = self.bench
        if snapshot.nonce not in NEEDED:  # what a snapshot needs never changes
            metas = bench.manifests.base_and_delta(snapshot)
            names = (
                snapshot.base_manifest_list,
                snapshot.delta_manifest_list,
                *(m.file_name for m in metas),
            )
            data = (
                bench.table.layout.data_file(one.partition, one.bucket, one.file.file_name)
                for one in live_files(bench.manifests, metas, bench.table.partition_types)
            )
            NEEDED[snapshot.nonce] = {*map(manifest_path, names), *data}
        return not self.files() >= NEEDED[snapshot.nonce]

    def audit(self, live: list[str]) -> None:
        """Tags and snapshots are whole."""
        bench = self.bench
        ids = bench.snapshots.ids()
        assert ids == list(range(ids[0], ids[-1] + 1))
        for tag in read_tags(bench.storage).values():
            assert not self.broken(tag)
        assert [one for one in ids if self.broken(bench.snapshots.get(one))] == []
        assert bench.live_names() == live


LONG = {
    "snapshot.num-retained.min": "2",
    "snapshot.num-retained.max": "2",
    "changelog.num-retained.min": "4",
    "changelog.num-retained.max": "4",
}
NEEDED: dict[str, set[str]] = {}
SEEDS = count(1)
TEMPLATE = Case(
    Bench(options={"manifest.merge-min-count": "3"}, partitioned=True, storage=MemoryStorage())
)


@cache
def built() -> dict[str, bytes]:
    """The files of the table. They are made once and then copied."""
    TEMPLATE.build()
    for one in TEMPLATE.bench.snapshots.ids():
        assert not TEMPLATE.broken(TEMPLATE.bench.snapshots.get(one))
    return {path: TEMPLATE.bench.storage.read(path) for path in paths(TEMPLATE.bench.storage)}


def paths(storage: Storage, folder: str = "") -> Iterator[str]:
    yield from (stat.path for stat in storage.list_files(folder))
    for name in storage.list_folders(folder):
        yield from paths(storage, f"{folder}/{name}" if folder else name)


def tried(work: Callable[[], object]) -> BaseException | None:
    try:
        work()
    except (PaimonStreamError, Killed) as failed:
        return failed
    return None
