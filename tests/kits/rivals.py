"""Pairs of maintenance commands on one table, and what must hold in every order of their steps."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from paimon_stream.commit.committer import Committer, Published
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import (
    AlreadyExists,
    CommitConflict,
    CommitContended,
    CommitLost,
    CommitUnknown,
    DeletedFiles,
    NotFound,
    PaimonStreamError,
    TableRolledBack,
)
from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef, encode_snapshot
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.orphans import remove_orphan_files
from paimon_stream.maintenance.pins import read_pins
from paimon_stream.maintenance.rollback import RollbackReport, rollback_to
from paimon_stream.maintenance.tags import create_tag, delete_tag, read_tags
from paimon_stream.storage.base import Storage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.snapshots import SnapshotStore
from tests.kits.commits import Bench, java_latest
from tests.kits.maintained import Case
from tests.kits.streams import Stream

WRITERS = ("append", "drop", "stream")
NEVER_COMMITTED = "never-committed"
STREAM = "flow"
REFUSED = (AlreadyExists, CommitContended, DeletedFiles, NotFound)
OF_WRITERS = (CommitConflict, CommitUnknown, TableRolledBack)
LOSSES = (CommitLost, TableRolledBack)
BATCHES = 4
MOST_RUNS = 12


@dataclass
class Done:
    """What a command reported: its result, or the error that it raised."""

    name: str
    result: Any = None
    error: PaimonStreamError | None = None


@dataclass
class Streamed:
    """What a stream did: the errors that its runs ended with, in order, and whether it came to its
    end.
    """

    errors: list[PaimonStreamError] = field(default_factory=list)
    finished: bool = False


@dataclass
class Rivals:
    """A table on which commands meet, and what each reported."""

    case: Case
    done: list[Done] = field(default_factory=list)

    @classmethod
    def make(cls, *, expired: bool) -> Rivals:
        """With `expired`, only the tag `kept` keeps snapshot 4."""
        rivals = cls(Case.make())
        rivals.prepare(expired=expired)
        rivals.case.bench.clock.advance(2 * 86_400_000)
        return rivals

    def prepare(self, *, expired: bool) -> None:
        """Adds orphans; with `expired`, expires the snapshots below 6."""
        case, bench = self.case, self.case.bench
        bench.message(NEVER_COMMITTED, dt="a")
        bench.storage.write("manifest/manifest-litter-0", b"litter")
        if expired:
            case.append(50)
            case.expire_to(6)

    def run(self, name: str, storage: Storage | None = None) -> None:
        """Runs one of `CONTENDERS` and keeps what it reports."""
        made = Done(name)
        try:
            made.result = CONTENDERS[name](self.case, storage or self.case.bench.storage)
        except PaimonStreamError as error:
            made.error = error
        self.done.append(made)

    def audit(self) -> None:
        """Everything that exists is whole, the newest snapshot is found, and each report is
        true.
        """
        case, bench = self.case, self.case.bench
        storage = bench.storage
        ids = bench.snapshots.ids()
        assert ids, "no snapshot is left"
        assert [one for one in ids if case.broken(bench.snapshots.get(one))] == []
        tags = read_tags(storage)
        assert [name for name, one in tags.items() if case.broken(one)] == []
        assert read_pins(storage) == []
        assert java_latest(storage) == bench.snapshots.latest_id() == ids[-1]
        if storage.exists("snapshot/EARLIEST"):  # a hint to a missing snapshot misleads nobody
            assert int(storage.read("snapshot/EARLIEST")) not in ids[1:]
        for one in self.done:
            self._check(one, tags, ids)

    def _check(self, one: Done, tags: dict[str, Snapshot], ids: list[int]) -> None:
        """What a report says holds at the end, as far as the other command did not change it
        again.
        """
        if one.error is not None:
            assert isinstance(
                one.error, (*REFUSED, *(OF_WRITERS if one.name in WRITERS else ()))
            ), one
            return
        rolled = [d.result.snapshot for d in self.done if isinstance(d.result, RollbackReport)]
        if isinstance(one.result, RollbackReport):
            written = any(d.name in WRITERS for d in self.done)
            last = one.result.snapshot
            assert ids[-1] == last or written or last not in (rolled[-1:] or [last]), (one, ids)
            assert last in ids or written or len(rolled) > 1, (one, ids)
        elif one.name == "tag":
            assert "new" in tags or min(rolled, default=99) < 6, one
        elif one.name == "untag":
            assert "kept" not in tags
        elif isinstance(one.result, Streamed):
            self._check_stream(one.result)

    def _check_stream(self, streamed: Streamed) -> None:
        """Each batch is in the table once. A rollback may take batches, but a stream that goes on
        says so.
        """
        rolls = any(one.name.startswith("rollback") for one in self.done)
        unexpected = [
            e for e in streamed.errors if not isinstance(e, (CommitContended, CommitUnknown))
        ]
        assert rolls or not unexpected, streamed
        assert all(isinstance(one, (*LOSSES, DeletedFiles)) for one in unexpected), streamed
        assert streamed.finished, streamed
        names = [one for one in self.case.bench.live_names() if one.startswith(f"{STREAM}-")]
        there = Counter(int(one.removeprefix(f"{STREAM}-").split("-")[0]) for one in names)
        assert set(there.values()) <= {1}, names
        gaps = [batch for batch in range(max(there, default=0)) if batch not in there]
        assert not gaps or any(isinstance(one, LOSSES) for one in streamed.errors), (
            names,
            streamed,
        )
        assert rolls or sorted(there) == list(range(BATCHES)), (names, streamed)

    def lives_on(self) -> None:
        """Commits and expires, which shows damage that is not visible yet."""
        for number in (900, 901):
            self.case.append(number)
        self.case.expire()
        ids = self.case.bench.snapshots.ids()
        assert [one for one in ids if self.case.broken(self.case.bench.snapshots.get(one))] == []
        assert [
            n for n, one in read_tags(self.case.bench.storage).items() if self.case.broken(one)
        ] == []


def _rollback(target: int | str) -> Callable[[Case, Storage], object]:
    return lambda case, storage: rollback_to(
        case.bench.on(storage), target, runtime=case.bench.runtime
    )


def _expire(case: Case, storage: Storage) -> object:
    return expire_snapshots(
        case.bench.on(storage), 2, 2, dt.timedelta(0), 100, runtime=case.bench.runtime
    )


def _drop(case: Case, storage: Storage) -> object:
    bench = case.bench
    bench.committer(storage).commit(bench.overwriting(77, user="dropper", dt="a"))
    return _expire(case, storage)


def _append(case: Case, storage: Storage) -> object:
    bench = case.bench
    request = bench.request(500, [bench.message("f500", dt="a")], user="stream")
    return bench.committer(storage).commit(request)


def _orphans(case: Case, storage: Storage) -> object:
    return remove_orphan_files(
        case.bench.on(storage), dt.timedelta(days=1), dry_run=False, runtime=case.bench.runtime
    )


def _abort(case: Case, storage: Storage) -> object:
    bench = case.bench
    message = bench.message(NEVER_COMMITTED, dt="a")
    return TableCommit(bench.on(storage), "me", runtime=bench.runtime).abort([message])


def _stream(case: Case, storage: Storage) -> Streamed:
    """A few batches, each in the run of the one before unless that failed. After an error, the
    operator does what it advises and starts the stream again.
    """
    bench, streamed = case.bench, Streamed()
    stream = Stream(bench, user=STREAM)
    while stream.runs < MOST_RUNS and not streamed.finished:
        try:
            stream.start(storage=storage)
            while stream.next_batch < BATCHES:
                stream.batch(dt="b")
                stream.done_millis = bench.runtime.clock.now_millis()
                stream.options = {}
            streamed.finished = True
        except PaimonStreamError as error:
            streamed.errors.append(error)
            stream.options = (
                {"paimon-stream.on-table-change": "continue"} if isinstance(error, LOSSES) else {}
            )
    return streamed


COMMANDS: dict[str, Callable[[Case, Storage], object]] = {
    "rollback to 6": _rollback(6),
    "rollback to 5": _rollback(5),
    "rollback to the tag": _rollback("kept"),
    "expire": _expire,
    "untag": lambda case, storage: delete_tag(
        case.bench.on(storage), "kept", runtime=case.bench.runtime
    ),
    "tag": lambda case, storage: create_tag(
        case.bench.on(storage), "new", 6, runtime=case.bench.runtime
    ),
    "orphans": _orphans,
    "abort": _abort,
    "drop": _drop,
    "append": _append,
}

CONTENDERS = {**COMMANDS, "stream": _stream}


@dataclass
class Replacing:
    """A writer of another engine that looks whether a snapshot is there and copies its own to that
    id later, as Java does on a store without a lock.
    """

    bench: Bench
    user: str = "java"

    def copy_over(self, snapshot_id: int, name: str, identifier: int = 7) -> Snapshot:
        """Copies a commit of one new file over the snapshot, on which it was not built."""
        table, storage = self.bench.table, MemoryStorage()
        for path in self._below(snapshot_id):
            storage.write(path, self.bench.storage.read(path))
        committer = Committer(replace(table, storage=storage), self.bench.runtime)
        before = SnapshotStore(storage, self.bench.runtime).latest()
        storage.write(f"bucket-0/{name}", b"data")
        request = replace(
            self.bench.request(identifier, [self.bench.message(name)], user=self.user),
            seen=None if before is None else SnapshotRef.of(before),
        )
        made = committer.commit(request)
        assert isinstance(made, Published) and made.snapshot.id == snapshot_id
        for stat in storage.list_files("manifest"):
            self.bench.storage.put_if_absent(stat.path, storage.read(stat.path))
        theirs = replace(made.snapshot, properties={})
        self.bench.storage.write(f"snapshot/snapshot-{snapshot_id}", encode_snapshot(theirs))
        return theirs

    def _below(self, snapshot_id: int) -> list[str]:
        """The metadata of the table as it was before the snapshot."""
        storage = self.bench.storage
        paths = [
            stat.path for folder in ("schema", "manifest") for stat in storage.list_files(folder)
        ]
        return paths + [
            f"snapshot/snapshot-{one}" for one in self.bench.snapshots.ids() if one < snapshot_id
        ]
