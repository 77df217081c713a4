"""What a committer does for its table after it has published: expiry of snapshots and tags.

It never fails a commit, and never holds up the next one without a bound: it looks first whether anything
is due, which costs a few small reads, works in a thread of its own, of which there is one at most, and is
waited for ten seconds at most. What is not done then goes on beside the next batch, as expiry by any other
process would.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.maintenance.consumers import consumer_of, write_consumer
from paimon_stream.maintenance.expire import (
    ExpireReport,
    changelog_outlives,
    expire_snapshots,
    expiry_is_due,
)
from paimon_stream.maintenance.tags import expire_tags
from paimon_stream.options import PROTECT_LAST_SNAPSHOT, SNAPSHOT_EXPIRE_MODE, WRITE_ONLY
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import Storage
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

__all__ = ["AfterCommit"]

_LOG = logging.getLogger(__name__)

WAIT_SECONDS: Final = 10.0
"""How long a batch waits for its expiry."""


@dataclass(slots=True, kw_only=True)
class AfterCommit:
    """The maintenance of one committer of one table; called after each commit with its snapshot.

    `last_report` is that of the newest expiry that ended, `failures` how many failed, `expired` how many
    snapshots went. `wait_seconds` bounds the waiting. `on_expiry` is called with the report of each expiry,
    None for one that failed, from the thread that worked.
    """

    runtime: Runtime = field(default_factory=system)
    wait_seconds: float = WAIT_SECONDS
    on_expiry: Callable[[ExpireReport | None], object] | None = None
    last_report: ExpireReport | None = None
    failures: int = 0
    expired: int = 0
    _worker: threading.Thread | None = None
    _store: tuple[Storage, SnapshotStore] | None = None
    _last: Snapshot | None = None
    _oldest: int | None = None
    _told: bool = False

    def __call__(self, table: Table, snapshot: Snapshot) -> None:
        """Does what is due. Never raises an `Exception`."""
        self._run(table, lambda: snapshot)

    def after(self, table: Table, snapshot_id: int) -> None:
        """The same, for who knows only the id; nothing, if that snapshot is gone already."""
        self._run(table, lambda: self._snapshots(table).find(snapshot_id))

    def after_nothing(self, table: Table) -> None:
        """The same after a batch that made no snapshot: others may have made some, and time goes by."""
        try:
            if not table.options.value(WRITE_ONLY):
                self._maintain(table, self._last, latest=None)
        except Exception as why:  # noqa: BLE001  a batch without rows is no less done
            self._failed(table, why)

    def _run(self, table: Table, find: Callable[[], Snapshot | None]) -> None:
        try:
            snapshot = find()
            if snapshot is None:
                return
            self._last = snapshot
            if table.options.value(PROTECT_LAST_SNAPSHOT) == "consumer":
                write_consumer(table.storage, consumer_of(snapshot.commit_user), snapshot.id)
            if not table.options.value(WRITE_ONLY):
                self._maintain(table, snapshot, latest=snapshot.id)
        except Exception as why:  # noqa: BLE001  whatever fails here, the commit stands
            self._failed(table, why)

    def _maintain(self, table: Table, last: Snapshot | None, *, latest: int | None) -> None:
        if changelog_outlives(table.options):
            self._tell_once(
                "%s keeps its changelog longer than its snapshots, so they are left to Paimon to expire.",
                table.location,
            )
            return
        if self._worker is not None and self._worker.is_alive():
            return  # the expiry of an earlier batch goes on
        earliest = self._earliest(table)
        if not expiry_is_due(table, self._snapshots(table), self.runtime, earliest=earliest, latest=latest):
            return
        worker = threading.Thread(target=self._work, args=(table, last), daemon=True)
        self._worker = worker
        worker.start()
        if table.options.value(SNAPSHOT_EXPIRE_MODE) == "sync":
            worker.join(self.wait_seconds)

    def _snapshots(self, table: Table) -> SnapshotStore:
        """One store for all batches: what it knows of the newest snapshot saves it from listing them."""
        if self._store is None or self._store[0] is not table.storage:
            self._store = (table.storage, SnapshotStore(table.storage, self.runtime))
        return self._store[1]

    def _earliest(self, table: Table) -> int | None:
        """The oldest snapshot. What was the oldest stays it while it exists; asking for that keeps a table in
        which nothing has expired yet, so that there is no hint, from being listed after each commit."""
        snapshots = self._snapshots(table)
        if self._oldest is None or not snapshots.exists(self._oldest):
            self._oldest = snapshots.earliest_id()
        return self._oldest

    def _work(self, table: Table, last: Snapshot | None) -> None:
        try:
            expire_tags(table, runtime=self.runtime)
            report = expire_snapshots(
                table,
                user=None if last is None else last.commit_user,
                last_of_user=None if last is None else last.id,
                runtime=self.runtime,
            )
        except Exception as why:  # noqa: BLE001  as above
            self._failed(table, why)
            return
        self.last_report = report
        self.expired += len(report.snapshots)
        self._tell(report)
        if report.snapshots:
            _LOG.info(
                "%s: expired snapshots %d to %d, %d files, in %.0f ms.",
                table.location,
                report.snapshots[0],
                report.snapshots[-1],
                sum(report.files.values()),
                report.millis,
            )

    def _tell_once(self, text: str, *values: object) -> None:
        if not self._told:
            self._told = True
            _LOG.warning(text, *values)

    def _tell(self, report: ExpireReport | None) -> None:
        if self.on_expiry is not None:
            self.on_expiry(report)

    def _failed(self, table: Table, why: Exception) -> None:
        self.failures += 1
        self._tell(None)
        _LOG.warning(
            "%s: expiry after a commit failed (%s: %s). The commit stands; the next one tries again.",
            table.location,
            type(why).__name__,
            why,
        )
