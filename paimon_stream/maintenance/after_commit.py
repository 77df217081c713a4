"""What a committer does for its table after a commit: it creates automatic tags, and expires tags,
partitions and snapshots.

Invariants: this work never fails a commit. It never delays the next commit, or the end of the
process, without a bound, apart from `protect` and the look at what is due. The work runs in a
thread of its own, one at a time, and a batch waits at most ten seconds for that thread. Unfinished
work then goes on while the next batch runs, just as another process might expire snapshots at that
time. In an object store or HDFS, where each request takes long, a batch does not wait, unless
`snapshot.expire.execution-mode` is set to `sync`.

When a process ends, it waits at most ten seconds for work that has begun. Without this wait, a job
that commits once and ends would never expire anything. A later run continues unfinished work.
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
from paimon_stream.maintenance.files_of_tags import FilesOfTags
from paimon_stream.maintenance.pins import read_pins, under_way
from paimon_stream.maintenance.tags import expire_tags
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.branch import is_served
from paimon_stream.storage.together import tally_of
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)

WAIT_SECONDS: Final = 10.0
"""How long a batch waits for its expiry, in seconds."""

_OF_COMMITS: Final = 16
"""In an object store or HDFS, one of 16 commits that may make an expiry due begins the expiry."""
_WORKERS: Final[weakref.WeakSet[threading.Thread]] = weakref.WeakSet()


@dataclass(slots=True)
class _AutomaticTags:
    """When the automatic tags of a table are due, as far as is known without asking the storage."""

    names: TagNames | None = None
    """How the options named the tags at the last check; None before the first check."""
    due_at: str | None = None
    """When the next one is due, a local time, as the last creation of tags has reported it. None if
    that is not known: before the first creation, and after the options have changed.
    """

    def are_due(self, table: Table, last: Snapshot | None, *, batch: bool) -> bool:
        """Whether automatic tags may be due after the snapshot `last`. True at the first call, when
        nothing is known. `batch` says whether the snapshot was committed by a batch write.
        """
        mode = table.options.value(opt.TAG_AUTOMATIC_CREATION)
        if mode in ("none", "batch"):
            return mode == "batch" and batch
        names = TagNames.of(table.options)
        if self.names != names:  # the first time, or somebody has changed the options
            self.names = names
            self.due_at = None
        moment = None if last is None else names.moment(last)
        if self.due_at is None:
            return last is None or moment is not None
        return moment is not None and moment.replace(tzinfo=None).isoformat() >= self.due_at


@dataclass(slots=True)
class _OldestSnapshot:
    """The oldest snapshot of the table, which decides whether snapshots expire."""

    _snapshot: Snapshot | None = None
    """The oldest one at the last look; None before the first look, and in an empty table."""
    _store: SnapshotStore | None = None
    """The store of the last look. What it knows of the newest snapshot saves listing the snapshots.
    """

    def may_expire(self, table: Table, latest: int | None, runtime: Runtime) -> bool:
        """Whether snapshots may expire now, as far as is known without asking the storage. `latest`
        is the id of the newest snapshot; None if that is not known.
        """
        oldest = self._snapshot
        if oldest is None or latest is None or oldest.id > latest:
            return True
        return self._is_due(table, latest, runtime)

    def expires(self, table: Table, latest: int | None, runtime: Runtime) -> bool:
        """Asks the storage whether an expiry is due. Raises `StorageError`, `FormatError`."""
        snapshots = self._snapshots(table, runtime)
        if self._snapshot is None or not snapshots.exists(self._snapshot.id):
            earliest = snapshots.earliest_id()
            self._snapshot = None if earliest is None else snapshots.find(earliest)
        return self._is_due(table, latest, runtime)

    def _is_due(self, table: Table, latest: int | None, runtime: Runtime) -> bool:
        snapshots = self._snapshots(table, runtime)
        oldest = self._snapshot
        return oldest is not None and expiry_is_due(table, snapshots, runtime, oldest, latest)

    def _snapshots(self, table: Table, runtime: Runtime) -> SnapshotStore:
        """The snapshots of the table. One store is used for all commits to one storage."""
        if self._store is None or self._store.storage is not table.storage:
            self._store = SnapshotStore(table.storage, runtime)
        return self._store


@dataclass(slots=True, kw_only=True)
class AfterCommit:
    """One committer's maintenance of one table, called after each commit with the new snapshot."""

    protect: Callable[[Table, Snapshot], object]
    """Is called with each new snapshot before anything else is done, so that the committer can keep
    it from expiring.
    """
    runtime: Runtime = field(default_factory=system)
    batch: bool = False
    """Whether the committer is a batch writer's."""
    on_expiry: Callable[[ExpireReport | None], object] | None = None
    """Gets each expiry's report, or None if it failed, in the thread that did the work."""
    _worker: threading.Thread | None = None
    """The thread of the newest work, which may have ended; None before the first work."""
    _last: Snapshot | None = None
    """The committer's newest snapshot. After a batch without a snapshot, the work uses this one."""
    _tags: _AutomaticTags = field(default_factory=_AutomaticTags)
    _oldest: _OldestSnapshot = field(default_factory=_OldestSnapshot)
    _of_tags: FilesOfTags = field(default_factory=FilesOfTags)
    """What the tags need. It is kept, so that each expiry reads only tags that are new, and each
    deletion of a tag only lists of tags that are new.
    """
    _due: int = 0
    """How many commits to an object store or HDFS may have made an expiry due so far."""
    _reported: str | None = None
    """The last logged reason for doing nothing: the path of a rollback's pin, or the location of a
    table that a REST catalog maintains.
    """
    _dropped: int | None = None
    """When partitions last expired, in epoch milliseconds (`is_time`); None before the first look.
    """

    def __call__(self, table: Table, snapshot: Snapshot) -> None:
        """Does the work that is due after a commit. Never raises an `Exception`."""
        self._last = snapshot
        self._tried(table, lambda: self._maintain(table, new_snapshot=snapshot))

    def after_nothing(self, table: Table) -> None:
        """Does the work that is due after a batch that made no snapshot. Other writers may have
        made snapshots, and time has passed.
        """
        self._tried(table, lambda: self._maintain(table, new_snapshot=None))

    def _maintain(self, table: Table, new_snapshot: Snapshot | None) -> None:
        if new_snapshot is not None:
            self.protect(table, new_snapshot)
        if is_served(table.storage):
            if self._reported is None:
                self._reported = table.location
                _LOG.info(
                    "%s is a table of a REST catalog: its server or another engine expires "
                    "snapshots and partitions, and creates tags.",
                    table.location,
                )
            return
        if table.options.value(opt.WRITE_ONLY):
            return  # other jobs do it
        if self._worker is not None and self._worker.is_alive():
            return  # the work after an earlier batch still goes on
        latest = None if new_snapshot is None else new_snapshot.id
        tags = self._tags.are_due(table, self._last, batch=self.batch)
        partitions = self._partitions_are_due(table)
        snapshots = self._oldest.may_expire(table, latest, self.runtime)
        waits = tally_of(table.storage) is None or table.options.is_set(opt.SNAPSHOT_EXPIRE_MODE)
        if waits:
            snapshots = snapshots and self._oldest.expires(table, latest, self.runtime)
        elif snapshots:
            self._due += 1
            snapshots = self._due % _OF_COMMITS == 1
        due = _DueWork(
            last=self._last,
            latest=latest,
            tags=tags,
            partitions=partitions,
            snapshots=snapshots,
            is_looked_at=waits,
        )
        if not (due.tags or due.partitions or due.snapshots):
            return
        self._worker = threading.Thread(target=self._work, args=(table, due), daemon=True)
        _WORKERS.add(self._worker)
        self._worker.start()
        if waits and table.options.value(opt.SNAPSHOT_EXPIRE_MODE) == "sync":
            self._worker.join(WAIT_SECONDS)

    def _partitions_are_due(self, table: Table) -> bool:
        """Whether partitions expire now. If the options are wrong, the error is logged, and the
        other work is done.
        """
        try:
            is_due, self._dropped = is_time(
                table.options, self.runtime, self._dropped, batch=self.batch
            )
        except PaimonStreamError as error:
            self._failed(table, error)
            return False
        return is_due

    def _waits_for_rollback(self, table: Table) -> bool:
        """Whether a rollback is under way. Each rollback is reported only once. The work is tried
        again after the next batch.
        """
        pins = read_pins(table.storage)
        for pin in pins:
            if pin.path != self._reported:
                self._reported = pin.path
                _LOG.warning(
                    "%s",
                    under_way(table.storage, [pin], "nothing expires after commits until it ends"),
                )
        return bool(pins)

    def _work(self, table: Table, due: "_DueWork") -> None:
        """Creates the tags that are due, and expires tags, partitions and snapshots."""
        snapshots = due.snapshots
        try:
            if self._waits_for_rollback(table):
                return
            if due.tags:
                report = create_automatic_tags(table, of_tags=self._of_tags, runtime=self.runtime)
                self._tags.due_at = report.next_time
            if snapshots and not due.is_looked_at:
                snapshots = self._oldest.expires(table, due.latest, self.runtime)
        except Exception as error:  # noqa: BLE001  snapshots that were to be tagged must not expire
            self._failed(table, error)
            return
        if snapshots and table.options.value(opt.TAG_TIME_EXPIRE):
            self._tried(
                table, lambda: expire_tags(table, of_tags=self._of_tags, runtime=self.runtime)
            )
        if due.partitions:
            self._dropped = self.runtime.clock.now_millis()
            self._tried(table, lambda: expire_partitions(table, runtime=self.runtime))
        if snapshots:
            self._tried(table, lambda: self._expire_snapshots(table, due.last))

    def _tried(self, table: Table, act: Callable[[], object]) -> None:
        """Calls `act`. A failure is logged, and the other work is done."""
        try:
            act()
        except Exception as error:  # noqa: BLE001  whatever fails here, the commit stands
            self._failed(table, error)

    def _expire_snapshots(self, table: Table, last: Snapshot | None) -> None:
        report = expire_snapshots(
            table, last_of_stream=last, of_tags=self._of_tags, runtime=self.runtime
        )
        self._notify(report)
        if report.snapshots:
            _LOG.info(
                "%s: expired snapshots %d to %d, %d files, in %.0f ms.",
                table.location,
                report.snapshots[0],
                report.snapshots[-1],
                sum(report.files.values()),
                report.millis,
            )

    def _notify(self, report: ExpireReport | None) -> None:
        if self.on_expiry is not None:
            self.on_expiry(report)

    def _failed(self, table: Table, error: Exception) -> None:
        self._notify(None)
        _LOG.warning(
            "%s: maintenance after a commit failed. The commit stands; the next one tries again. "
            "%s: %s",
            table.location,
            type(error).__name__,
            error,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _DueWork:
    """The maintenance that is done after one commit.

    Attributes:
        last: the committer's newest snapshot.
        latest: the id of the snapshot of this commit; None if the commit made no snapshot.
        tags: whether automatic tags may be due.
        partitions: whether partitions expire.
        snapshots: whether tags and snapshots expire.
        is_looked_at: whether the storage has shown that snapshots may expire. If not, the thread
            first asks the storage.
    """

    last: Snapshot | None
    latest: int | None
    tags: bool
    partitions: bool
    snapshots: bool
    is_looked_at: bool


@atexit.register
def _wait() -> None:
    """Waits at most ten seconds for unfinished work. There is no wait in the child of a fork,
    because the parent's threads do not exist in the child.
    """
    clock = system().clock
    until = clock.monotonic() + WAIT_SECONDS
    for worker in list(_WORKERS):
        worker.join(max(0, until - clock.monotonic()))
