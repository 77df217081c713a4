"""Readers, and a user who drops the table and creates it again."""

from __future__ import annotations

from collections import Counter

from paimon_stream.format.snapshot_json import CommitKind, Snapshot
from paimon_stream.read.rows import read_batches
from paimon_stream.read.scan import Scan, plan_scan, scan_of
from paimon_stream.table.consumers import write_consumer
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table
from tests.simulation import rules
from tests.simulation.actors.base import Actor, Work
from tests.simulation.state import Violation


class Reader(Actor):
    """Plans a read, and reads the files perhaps much later."""

    kind = "reader"

    def begin(self) -> Work:
        self.doing = "a read"
        self.ready()
        return self.work

    def work(self) -> None:
        scan = plan_scan(self.table())
        if scan.snapshot is None:
            return
        state = self.world.truth.states.get(scan.snapshot.nonce)
        names = {entry.file.file_name for entry in scan.files}
        if state is None or names != set(state.live):
            raise Violation(rules.READERS, f"{self.name} sees {sorted(names)}")
        for entry in scan.files:
            path = self.world.table.layout.data_file(
                entry.partition, entry.bucket, entry.file.file_name
            )
            if not self.ready().storage.exists(path):
                truth = self.world.truth
                stands = truth.there.get(state.id) is state and state.id not in truth.beside
                if stands:
                    raise Violation(rules.READERS, f"{path} of snapshot {state.id} is gone")
                return


class Dropper(Actor):
    """Drops the table, and creates it again at the same place, once in a schedule."""

    kind = "dropper"
    whole = True
    drops = True
    dropped = False

    def begin(self) -> Work | None:
        if self.dropped or not self.world.choices.once_in(4):
            return None
        self.dropped = True
        self.doing = "dropping and creating the table"
        self.ready()
        return self.world.recreate


class StreamingReader(Actor):
    """Reads the rows of a table once and then what each snapshot appends, under a consumer that
    keeps what it has not read. Nothing fails
    for it.
    """

    kind = "streaming reader"
    without_faults = True
    whole = True

    def __post_init__(self) -> None:
        self.next = 0
        self.seen: Counter[int] = Counter()
        self.began = (-1, -1)
        self.registered_beside = False

    def begin(self) -> Work | None:
        truth = self.world.truth
        if truth.beside or truth.there_again is not None or truth.head is None:
            return None  # the table is not at rest for a reader
        if truth.is_torn():
            return None  # a rollback has taken what lies below, and not yet what is built on it
        if self.began != (truth.upsets, truth.drops):
            self.next, self.began = 0, (truth.upsets, truth.drops)
            self.seen.clear()
        self.doing = f"reading from snapshot {self.next or 'newest'} on"
        self.ready()
        return self.work

    def work(self) -> None:
        table = self.table()
        snapshots = SnapshotStore(self.ready().storage, self.ready().runtime)
        latest = snapshots.latest()
        if latest is None:
            return
        if self.next == 0:
            self.registered_beside = any(
                one.may_expire and one.at_work for one in self.world.actors
            )
            self.take(plan_scan(table))
            self.next = latest.id + 1
        for number in range(self.next, latest.id + 1):
            snapshot = snapshots.find(number)
            if snapshot is None:
                if self.registered_beside:
                    self.began = (-1, -1)  # that expiry had not seen the consumer
                    return
                raise Violation(
                    rules.READERS,
                    f"snapshot {number} has expired, and {self.name} has not read it",
                )
            self.take_appended(table, snapshot)
            self.next = number + 1
        write_consumer(self.ready().storage, "reader", self.next)

    def take_appended(self, table: Table, snapshot: Snapshot) -> None:
        """Reads the rows that a snapshot appends. What overwrites is not for readers of streams."""
        if snapshot.commit_kind is not CommitKind.APPEND:
            return
        manifests = ManifestStore(self.ready().storage)
        added = [entry for meta in manifests.delta(snapshot) for entry in manifests.read(meta)]
        self.take(scan_of(table, snapshot, added))

    def take(self, scan: Scan) -> None:
        """Reads these files. No row may come twice."""
        for batch in read_batches(scan):
            self.seen.update(batch.column("id").to_pylist())
        twice = sorted(one for one, times in self.seen.items() if times > 1)
        if twice:
            raise Violation(rules.READERS, f"{self.name} sees the rows {twice} twice")

    def check_has_seen(self) -> None:
        """It has seen every row of the table that it had to see."""
        truth = self.world.truth
        if truth.head is None or self.began != (truth.upsets, truth.drops) or not self.next:
            return
        overwritten = {
            name
            for state in truth.history.values()
            if state.snapshot.commit_kind is CommitKind.OVERWRITE
            for name in state.live.keys() - state.base
        }
        if self.next != truth.head.id + 1:
            return
        wanted = {
            id_
            for name in set(truth.head.written) - overwritten
            for id_, _ in self.world.rows[name]
        }
        if wanted - self.seen.keys():
            raise Violation(
                rules.READERS,
                f"{self.name} has not seen the rows {sorted(wanted - self.seen.keys())}",
            )
