"""Pairs of maintenance commands on one table, and what must hold in every order of their steps."""

from __future__ import annotations

import datetime as dt
import logging
import multiprocessing
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import (
    AlreadyExists,
    CommitConflict,
    CommitContended,
    CommitUnknown,
    DeletedFiles,
    NotFound,
    PaimonStreamError,
    TableRolledBack,
)
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.orphans import remove_orphan_files
from paimon_stream.maintenance.pins import read_pins
from paimon_stream.maintenance.rollback import RollbackReport, rollback_to
from paimon_stream.maintenance.tags import create_tag, delete_tag, read_tags
from paimon_stream.runtime import SimulatedClock, system
from paimon_stream.storage.base import Storage
from paimon_stream.storage.local import LocalStorage
from tests.kits.commits import java_latest
from tests.kits.maintained import Case, built

WRITERS = ("append", "drop")
NEVER_COMMITTED = "never-committed"
REFUSED = (AlreadyExists, CommitContended, DeletedFiles, NotFound)
OF_WRITERS = (CommitConflict, CommitUnknown, TableRolledBack)


@dataclass
class Done:
    """What a command reported: its result, or the error that it raised."""

    name: str
    result: Any = None
    error: PaimonStreamError | None = None


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
        """Runs a command of `COMMANDS` and keeps what it reports."""
        made = Done(name)
        try:
            made.result = COMMANDS[name](self.case, storage or self.case.bench.storage)
        except PaimonStreamError as error:
            made.error = error
        self.done.append(made)

    def audit(self) -> None:
        """Everything that exists is whole, the newest snapshot is found, and each report is true."""
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
        """What a report says holds at the end, as far as the other command did not change it again."""
        if one.error is not None:
            assert isinstance(one.error, (*REFUSED, *(OF_WRITERS if one.name in WRITERS else ()))), one
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

    def lives_on(self) -> None:
        """Commits and expires, which shows damage that is not visible yet."""
        for number in (900, 901):
            self.case.append(number)
        self.case.expire()
        ids = self.case.bench.snapshots.ids()
        assert [one for one in ids if self.case.broken(self.case.bench.snapshots.get(one))] == []
        assert [n for n, one in read_tags(self.case.bench.storage).items() if self.case.broken(one)] == []


def _rollback(target: int | str) -> Callable[[Case, Storage], object]:
    return lambda case, storage: rollback_to(
        case.bench.table, target, storage=storage, runtime=case.bench.runtime
    )


def _expire(case: Case, storage: Storage) -> object:
    return expire_snapshots(
        case.bench.table, 2, 2, dt.timedelta(0), 100, storage=storage, runtime=case.bench.runtime
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
        case.bench.table, dt.timedelta(days=1), False, storage=storage, runtime=case.bench.runtime
    )


def _abort(case: Case, storage: Storage) -> object:
    bench = case.bench
    message = bench.message(NEVER_COMMITTED, dt="a")
    return TableCommit(bench.table, "me", storage=storage, runtime=bench.runtime).abort([message])


COMMANDS: dict[str, Callable[[Case, Storage], object]] = {
    "rollback to 6": _rollback(6),
    "rollback to 5": _rollback(5),
    "rollback to the tag": _rollback("kept"),
    "expire": _expire,
    "untag": lambda case, storage: delete_tag(
        case.bench.table, "kept", storage=storage, runtime=case.bench.runtime
    ),
    "tag": lambda case, storage: create_tag(
        case.bench.table, "new", 6, storage=storage, runtime=case.bench.runtime
    ),
    "orphans": _orphans,
    "abort": _abort,
    "drop": _drop,
    "append": _append,
}


class Arena:
    """Two processes that run commands on one table at the same time."""

    def __init__(self, folder: Path) -> None:
        """Makes the tables that `meet` copies, in a folder."""
        spawn = multiprocessing.get_context("spawn")
        self._pool = spawn.Pool(2, _enter, (spawn.Barrier(2),))
        self._folder = folder
        for expired in (False, True):
            storage = LocalStorage(str(self._template(expired)))
            for path, data in built().items():
                storage.write(path, data)
            Rivals(Case.on(storage, SimulatedClock(1_700_000_100_000))).prepare(expired=expired)
            for path in self._template(expired).rglob("*"):
                os.utime(path, (1_600_000_000, 1_600_000_000))

    def meet(self, names: Sequence[str], *, expired: bool, ahead: Sequence[int]) -> Rivals:
        """Runs two commands at once on a new copy. Each waits for as many reads as `ahead` says."""
        table = self._folder / "t"
        shutil.rmtree(table, ignore_errors=True)
        shutil.copytree(self._template(expired), table)
        tasks = [(str(table), name, reads) for name, reads in zip(names, ahead, strict=True)]
        done = self._pool.starmap(_fight, tasks, chunksize=1)
        return Rivals(Case.on(LocalStorage(str(table)), SimulatedClock(1_800_000_000_000)), done)

    def close(self) -> None:
        """Ends both processes."""
        self._pool.terminate()
        self._pool.join()

    def _template(self, expired: bool) -> Path:
        return self._folder / f"template-{expired}"


def _enter(barrier: Any) -> None:
    global _BARRIER
    _BARRIER = barrier
    logging.disable(logging.CRITICAL)


_BARRIER: Any = None


def _fight(folder: str, name: str, reads: int) -> Done:
    storage = LocalStorage(folder)
    rivals = Rivals(Case.on(storage, SimulatedClock(1_800_000_000_000)))
    rivals.case.bench.runtime = system()
    _BARRIER.wait(60)
    for _ in range(reads):
        storage.read("schema/schema-0")
    rivals.run(name)
    return rivals.done[0]
