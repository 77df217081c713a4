"""Small changes to the real code that some order must show. Most are those that the simulation must
catch, too, in a schedule; here the order with the fewest switches is searched.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.storage.base import PutResult
from paimon_stream.table.layout import snapshot_path
from paimon_stream.table.snapshots import SnapshotStore
from tests.orders.faults import DIES, LATE_AND_DEAD, LOST, Plan
from tests.simulation import rules
from tests.simulation.bug import Patch
from tests.simulation.planted import BUGS as OF_SIMULATION


@dataclass(frozen=True)
class Bug:
    """A change to the code, the world in which an order shows it, and the rule that breaks there.
    With a `plan`, it takes these faults. `switches` are the fewest with which an order shows it.
    Those that show it `often` are caught with every change.
    """

    name: str
    world: str
    rule: str
    switches: int = 2
    plan: Plan = field(default_factory=dict)
    often: bool = False

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The code with this change."""
        with pytest.MonkeyPatch.context() as patch:
            PLANTS[self.name](patch)
            yield


def a_put_looks_and_then_writes(patch: Patch) -> None:
    """As on a storage without an atomic operation."""

    def publish(self: SnapshotStore, snapshot: Any, content: bytes) -> PutResult:
        if self.exists(snapshot.id):
            return PutResult.EXISTS
        self.storage.write(snapshot_path(snapshot.id), content)
        return PutResult.CREATED

    patch.setattr(SnapshotStore, "create_snapshot", publish)


def the_newest_is_read_again(patch: Patch) -> None:
    """Whoever looks at the snapshots below the one that he builds on reads that one again first."""
    walk_down = SnapshotStore.walk_down

    def from_its_file(self: SnapshotStore, newest: int | Snapshot) -> Iterator[Snapshot]:
        return walk_down(self, newest.id if isinstance(newest, Snapshot) else newest)

    patch.setattr(SnapshotStore, "walk_down", from_its_file)


def the_listing_is_not_repeated(patch: Patch) -> None:
    """Whoever sees a hint and no snapshot believes a listing that may be older than the hint."""
    ids, listed = SnapshotStore.ids, SnapshotStore._listed
    first: dict[SnapshotStore, list[int]] = {}

    def once(self: SnapshotStore) -> list[int]:
        if self not in first:
            first[self] = ids(self)
        return first[self]

    def from_one_listing(self: SnapshotStore) -> Snapshot | None:
        first.pop(self, None)
        return listed(self)

    patch.setattr(SnapshotStore, "ids", once)
    patch.setattr(SnapshotStore, "_listed", from_one_listing)


PLANTS = {one.name: one.plant for one in OF_SIMULATION}
PLANTS["a put looks and then writes"] = a_put_looks_and_then_writes
PLANTS["the newest is read again"] = the_newest_is_read_again
PLANTS["the listing is not repeated"] = the_listing_is_not_repeated

BATCHES = "batch writer × batch writer"

BUGS = [
    Bug("a put looks and then writes", BATCHES, rules.NOT_REPLACED, often=True),
    Bug("a snapshot is replaced", BATCHES, rules.NOT_REPLACED),
    Bug("a lost attempt takes its rows along", BATCHES, rules.WHOLE),
    Bug(
        "no answer means lost", BATCHES, rules.WHOLE, switches=0, plan={"batch writer 1": {5: LOST}}
    ),
    Bug(
        "the manifests are still on their way",
        "batch writers with requests in flight",
        rules.WHOLE,
        switches=15,
    ),
    Bug(
        "the listing is not repeated",
        "batch writers of an empty table, requests in flight",
        rules.NO_REASON,
        switches=38,
    ),
    Bug("a tag without a second look", "expiry × tag", rules.WHOLE, often=True),
    Bug("expiry keeps nothing", "expiry × reader", rules.WHOLE, switches=0),
    Bug("new files are added in any case", "compaction × compaction", rules.ONCE, often=True),
    Bug("units are not looked at again", "compaction × compaction", rules.NO_FALSE_ALARM),
    Bug("old files go at once", "stream × compaction", rules.WHOLE, switches=0),
    Bug(
        "the newest is read again",
        "stream × Java's writer without a lock",
        rules.ONCE,
        switches=5,
        plan={"stream": {9: LATE_AND_DEAD}},
        often=True,
    ),
    Bug("deletions of others are lost", "deleter × deleter", rules.DELETES),
    Bug("own snapshots are overlooked", "stream × expiry", rules.NO_FALSE_ALARM, switches=0),
    Bug("others are overlooked", "twins", rules.ONCE),
    Bug("no judge", "twins", rules.ONCE, switches=1, often=True),
    Bug("dead files are not compared", "twins", rules.WHOLE, switches=1),
    Bug("orphans overlook journals", "stream × orphan removal", rules.WHOLE, switches=1),
    Bug(
        "numbers are not compared",
        "stream of a table with a key × batch writer",
        rules.SUMS,
    ),
    Bug(
        "a held lock has expired",
        "stream × Java's writer under the lock",
        rules.HOLDERS_LOCK,
        switches=1,
        often=True,
    ),
    Bug(
        "the lock is released too early",
        "stream × Java's writer under the lock",
        rules.UNDER_LOCK,
        switches=0,
    ),
    Bug("a stale update is published", "updater × batch writer", rules.CHANGED, often=True),
    Bug(
        "updates under a sequence field are lost",
        "updater × updater, with a sequence field",
        rules.CHANGED,
    ),
    Bug("a stale merge is published", "merging stream × updater", rules.CHANGED),
    Bug(
        "a batch is merged again",
        "merging stream × updater",
        rules.CHANGED,
        switches=0,
        plan={"merging stream": {10: DIES}},
    ),
]
