"""What a committer does for its table after it has published: it creates automatic tags, and
expires tags, partitions and snapshots.

Invariants: it never fails a commit, and it never delays the next one, or the end of the process,
without a bound. It works in a thread of its own, at most one at a time, and a batch waits at most
ten seconds for it. Unfinished work then continues beside the next batch, as expiry by any other
process would. In an object store, where each request takes long, a batch does not wait, unless
`snapshot.expire.execution-mode` is set.

A process that ends waits at most ten seconds for the work that it has begun. Otherwise a job that
commits once and ends would never expire anything. A later run continues what was not done by then.
"""

import atexit
import logging
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from paimon_stream import options as opt
from paimon_stream.errors import PaimonStreamError
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.maintenance.automatic_tags import TagNames, create_automatic_tags
from paimon_stream.maintenance.expire import ExpireReport, expire_snapshots, expiry_is_due
from paimon_stream.maintenance.expire_partitions import expire_partitions, is_time
from paimon_stream.maintenance.pins import read_pins, under_way
from paimon_stream.maintenance.tags import expire_tags
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import is_served
from paimon_stream.storage.together import tally_of
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)

WAIT_SECONDS: Final = 10.0
"""How long a batch waits for its expiry, in seconds."""

_OF_COMMITS: Final = (
    16  # In an object store, an expiry begins after one of 16 commits after which one may be due.
)
_WORKERS: Final[weakref.WeakSet[threading.Thread]] = weakref.WeakSet()


@dataclass(slots=True, kw_only=True)
class AfterCommit:
    """One committer's maintenance of one table, called after each commit with the new snapshot.
    `on_expiry` gets each expiry's report, or None if it failed, in the thread that did the work.
    `batch`: the committer is no stream's. `protect` is called with each new snapshot before anything
    else is done, so that the committer can keep it from expiring.
    """

    protect: Callable[[Table, Snapshot], object]
    runtime: Runtime = field(default_factory=system)
    batch: bool = False
    on_expiry: Callable[[ExpireReport | None], object] | None = None
    _worker: threading.Thread | None = None
    _store: tuple[Storage, SnapshotStore] | None = None
    _last: Snapshot | None = None
    _oldest: Snapshot | None = None
    _due: int = 0
    _waiting_for: str | None = None
    _tag_names: TagNames | None = None
    _tags_due_at: str | None = None
    _dropped: int | None = None

    def __call__(self, table: Table, snapshot: Snapshot) -> None:
        """Does what is due. Never raises an `Exception`."""
        self._last = snapshot
        self._tried(table, lambda: self._maintain(table, new_snapshot=snapshot))

    def after_nothing(self, table: Table) -> None:
        """Like a call, after a batch that made no snapshot: others may have made some, and time has
        passed.
        """
        self._tried(table, lambda: self._maintain(table, new_snapshot=None))

    def _maintain(self, table: Table, new_snapshot: Snapshot | None) -> None:
        if new_snapshot is not None:
            self.protect(table, new_snapshot)
        if is_served(table.storage):
            if self._waiting_for is None:
                self._waiting_for = table.location
                _LOG.info(
                    "%s is of a REST catalog: its server or another engine "
                    "expires snapshots and partitions, and tags.",
                    table.location,
                )
            return
        if table.options.value(opt.WRITE_ONLY) or (
            self._worker is not None and self._worker.is_alive()
        ):
            return  # other jobs do it, or the work after an earlier batch goes on
        last = self._last
        latest = None if new_snapshot is None else new_snapshot.id
        tags = self._tags_are_due(table, last)
        partitions = False
        try:
            partitions, self._dropped = is_time(
                table.options, self.runtime, self._dropped, batch=self.batch
            )
        except PaimonStreamError as error:  # the rest is done all the same
            self._failed(table, error)
        oldest = self._oldest  # as far as is known without a look
        snapshots = (
            oldest is None or latest is None or oldest.id > latest or self._is_due(table, latest)
        )
        waits = tally_of(table.storage) is None or table.options.is_set(opt.SNAPSHOT_EXPIRE_MODE)
        if waits:
            snapshots = snapshots and self._may_begin(table, latest)
        else:
            self._due += snapshots
            snapshots = snapshots and self._due % _OF_COMMITS == 1
        if not (tags or partitions or snapshots):
            return
        look = () if waits else (latest,)
        work = (table, last, tags, partitions, snapshots, *look)
        self._worker = threading.Thread(target=self._work, args=work, daemon=True)
        _WORKERS.add(self._worker)
        self._worker.start()
        if waits and table.options.value(opt.SNAPSHOT_EXPIRE_MODE) == "sync":
            self._worker.join(WAIT_SECONDS)

    def _tags_are_due(self, table: Table, last: Snapshot | None) -> bool:
        """Whether automatic tags are due after this snapshot. The first time it is not known, so
        they are.
        """
        mode = table.options.value(opt.TAG_AUTOMATIC_CREATION)
        if mode in ("none", "batch"):
            return mode == "batch" and self.batch
        names = TagNames.of(table.options)
        if self._tag_names != names:  # the first time, or somebody has changed the options
            self._tag_names = names
            self._tags_due_at = None
        moment = None if last is None else names.moment(last)
        if self._tags_due_at is None:
            return last is None or moment is not None
        return moment is not None and moment.replace(tzinfo=None).isoformat() >= self._tags_due_at

    def _may_begin(self, table: Table, latest: int | None) -> bool:
        """Whether an expiry is due, after a look. Raises `StorageError`, `FormatError`."""
        snapshots = self._snapshots(table)
        if self._oldest is None or not snapshots.exists(self._oldest.id):
            earliest = snapshots.earliest_id()
            self._oldest = None if earliest is None else snapshots.find(earliest)
        return self._is_due(table, latest)

    def _is_due(self, table: Table, latest: int | None) -> bool:
        snapshots = self._snapshots(table)
        oldest = self._oldest
        return oldest is not None and expiry_is_due(table, snapshots, self.runtime, oldest, latest)

    def _waits_for_rollback(self, table: Table) -> bool:
        """Whether a rollback is under way. Each is reported once; the next batch tries again."""
        pins = read_pins(table.storage)
        for pin in pins:
            if pin.path != self._waiting_for:
                self._waiting_for = pin.path
                _LOG.warning(
                    "%s",
                    under_way(table.storage, [pin], "nothing expires after commits until it ends"),
                )
        return bool(pins)

    def _snapshots(self, table: Table) -> SnapshotStore:
        """One store for all batches. What it knows of the newest snapshot saves listing the
        snapshots.
        """
        if self._store is None or self._store[0] is not table.storage:
            self._store = (table.storage, SnapshotStore(table.storage, self.runtime))
        return self._store[1]

    def _work(
        self,
        table: Table,
        last: Snapshot | None,
        tags: bool,
        partitions: bool,
        snapshots: bool,
        *latest: int | None,
    ) -> None:
        """Creates tags, and expires tags, partitions and snapshots. With `latest`, tags and
        snapshots expire only after a look whether that may begin.
        """
        try:
            if self._waits_for_rollback(table):
                return
            if tags:
                self._tags_due_at = create_automatic_tags(table, runtime=self.runtime).next_time
            snapshots = snapshots and (not latest or self._may_begin(table, *latest))
        except Exception as error:  # noqa: BLE001  snapshots that were to be tagged must not expire
            self._failed(table, error)
            return
        if snapshots and table.options.value(opt.TAG_TIME_EXPIRE):
            self._tried(table, lambda: expire_tags(table, runtime=self.runtime))
        if partitions:
            self._dropped = self.runtime.clock.now_millis()
            self._tried(table, lambda: expire_partitions(table, runtime=self.runtime))
        if snapshots:
            self._tried(table, lambda: self._expire_snapshots(table, last))

    def _tried(self, table: Table, act: Callable[[], object]) -> None:
        """Does it. If it fails, the rest is done all the same."""
        try:
            act()
        except Exception as error:  # noqa: BLE001  whatever fails here, the commit stands
            self._failed(table, error)

    def _expire_snapshots(self, table: Table, last: Snapshot | None) -> None:
        user, newest = (None, None) if last is None else (last.commit_user, last.id)
        report = expire_snapshots(table, user=user, last_of_user=newest, runtime=self.runtime)
        self._notify(report)
        if report.snapshots:
            text = "%s: expired snapshots %d to %d, %d files, in %.0f ms."
            files = sum(report.files.values())
            _LOG.info(
                text,
                table.location,
                report.snapshots[0],
                report.snapshots[-1],
                files,
                report.millis,
            )

    def _notify(self, report: ExpireReport | None) -> None:
        if self.on_expiry is not None:
            self.on_expiry(report)

    def _failed(self, table: Table, why: Exception) -> None:
        self._notify(None)
        _LOG.warning(
            "%s: maintenance after a commit failed. The commit stands; the "
            "next one tries again. %s: %s",
            table.location,
            type(why).__name__,
            why,
        )


@atexit.register
def _wait() -> None:
    """A child of a fork has none of its parent's threads, and they are not alive there."""
    clock = system().clock
    until = clock.monotonic() + WAIT_SECONDS
    for worker in list(_WORKERS):
        worker.join(max(0, until - clock.monotonic()))
