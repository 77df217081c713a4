"""As `test_commit_faults.py`, for commits that are not plain appends: compactions, alone or with an
append, changelogs, index files, deletes, a source of changes. Every storage operation fails in
turn. The table is whole afterwards, and a restart finds at least what was written, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

import pytest

from paimon_stream.commit.committer import Nothing, Published, Superseded
from paimon_stream.commit.plan import Base, Changes
from paimon_stream.commit.report import NO_OBSERVER, BatchObserver, Phase
from paimon_stream.commit.request import ChangeSource
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import CommitUnknown, NoSpace, PaimonStreamError
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import FileKind
from paimon_stream.format.snapshot_json import CommitKind
from paimon_stream.storage.base import Storage
from tests.kits.commits import Bench
from tests.kits.faults import FAULTS as ALL_FAULTS
from tests.kits.faults import Fault, FaultyStorage, Killed
from tests.kits.params import few
from tests.kits.places import emptied, following

pytestmark = [pytest.mark.store, pytest.mark.s3]

FAULTS = {kind: ALL_FAULTS[kind] for kind in ("after", "refused", "killed after")}
BATCH = 7
FOREIGN = "foreign"


@dataclass
class ForeignCommits:
    """Another writer publishes while the snapshot of this number is staged."""

    bench: Bench
    at: int
    seen: int = 0

    def reached(self, phase: Phase, identifier: int) -> None:
        if phase is Phase.STAGED:
            self.seen += 1
            if self.seen == self.at:
                message = self.bench.message(FOREIGN, dt="b")
                self.bench.committer().commit(self.bench.request(0, [message], user="other"))


@dataclass
class Case:
    """A table, the messages to commit, what is live before, after the first snapshot, after
    both.
    """

    bench: Bench
    messages: list[CommitMessage]
    before: set[str]
    written: set[str]
    done: set[str]
    source: ChangeSource | None = None
    kind: CommitKind = CommitKind.APPEND
    observer: BatchObserver = NO_OBSERVER
    changelogs: set[str] = field(default_factory=set)
    indexes: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.files = dict(contents(self.bench.storage))

    def again(self) -> None:
        """The table as it was before the commit."""
        emptied(self.bench.storage)
        self.bench.storage.write_all(list(self.files.items()))
        if isinstance(self.observer, ForeignCommits):
            self.observer.seen = 0


def contents(storage: Storage, folder: str = "") -> Iterator[tuple[str, bytes]]:
    for stat in storage.list_files(folder):
        yield stat.path, storage.read(stat.path)
    for name in storage.list_folders(folder):
        yield from contents(storage, f"{folder}/{name}" if folder else name)


def table(commits: int = 3, **options: str) -> Bench:
    bench = Bench(options={"manifest.merge-min-count": "3", **options})
    for number in range(commits):
        index = bench.put_index(f"index-{number}")
        message = replace(bench.message(f"old-{number}"), new_index_files=(index,))
        bench.committer().commit(bench.request(number, [message], user="old"))
    return bench


OLD = {"old-0", "old-1", "old-2"}


def writes_and_compacts() -> Case:
    bench = table()
    mine = replace(
        bench.message("mine"),
        compact_before=(bench.put("old-0"), bench.put("old-1")),
        compact_after=(bench.put("packed", rows=20),),
        compact_changelog_files=(bench.put("log"),),
    )
    written = OLD | {"mine"}
    done = written - {"old-0", "old-1"} | {"packed"}
    return Case(bench, [mine], OLD, written, done, changelogs={"log"})


def races_for_the_compaction() -> Case:
    case = writes_and_compacts()
    return replace(case, observer=ForeignCommits(case.bench, 2))


def compacts_alone() -> Case:
    case = writes_and_compacts()
    message = replace(case.messages[0], new_files=())
    return replace(case, messages=[message], written=OLD, done=case.done - {"mine"})


def changelog() -> Case:
    bench = table()
    mine = replace(bench.message("mine"), changelog_files=(bench.put("log"),))
    after = OLD | {"mine"}
    return Case(bench, [mine], OLD, after, after, changelogs={"log"})


def index() -> Case:
    bench = table()
    mine = replace(
        bench.message("mine"),
        new_index_files=(bench.put_index("index-mine"),),
        deleted_index_files=(bench.put_index("index-1"),),
    )
    after = OLD | {"mine"}
    return Case(bench, [mine], OLD, after, after, indexes={"index-0", "index-2", "index-mine"})


def deletes() -> Case:
    bench = table()
    mine = replace(bench.message("mine"), deleted_files=(bench.put("old-1"),))
    after = OLD - {"old-1"} | {"mine"}
    return Case(bench, [mine], OLD, after, after)


@dataclass
class ClearTheTable:
    """A source of changes that removes all live files."""

    bench: Bench

    def at(self, base: Base) -> Changes:
        present = () if base.snapshot is None else self.bench.live()
        return Changes(entries=tuple(replace(entry, kind=FileKind.DELETE) for entry in present))


def clears() -> Case:
    bench = table()
    source = ClearTheTable(bench)
    return Case(bench, [], OLD, set(), set(), source=source, kind=CommitKind.OVERWRITE)


CASES = [
    writes_and_compacts,
    races_for_the_compaction,
    compacts_alone,
    changelog,
    index,
    deletes,
    clears,
]


def commit(case: Case, storage: FaultyStorage) -> Published | Nothing | BaseException | None:
    bench = case.bench
    request = bench.request(BATCH, case.messages, source=case.source, kind=case.kind)
    try:
        committer = bench.committer(storage, case.observer)
    except (PaimonStreamError, Killed):
        return None
    try:
        outcome = committer.commit(request)
    except (PaimonStreamError, Killed) as failed:
        return failed
    assert not isinstance(outcome, Superseded)
    return outcome


def kinds_of_mine(bench: Bench) -> list[CommitKind]:
    snapshots = map(bench.snapshots.get, bench.snapshots.ids())
    return [one.commit_kind for one in snapshots if one.commit_user == "me"]


def state(case: Case) -> str:
    """How far the commit is published. Asserts that the table has exactly those files and is
    whole.
    """
    kinds = kinds_of_mine(case.bench)
    compacted = CommitKind.COMPACT in kinds
    expected = case.done if compacted else case.written if kinds else case.before
    foreign = {FOREIGN} & set(case.bench.live_names())
    case.bench.audit(sorted(expected | foreign))
    assert len(kinds) == len(set(kinds)) <= 2
    return "done" if case.done == expected else "written" if kinds else "before"


@pytest.mark.parametrize(
    ("make", "fault"),
    few(
        product(CASES, FAULTS),
        lambda make, fault: fault == "killed after" or make is races_for_the_compaction,
    ),
)
def test_a_commit_that_failed_anywhere_leaves_whole_halves_and_can_be_repeated(
    make: Callable[[], Case], fault: str
) -> None:
    case = make()
    at, fired = 0, True
    while fired:
        at = following(at)
        case.again()
        storage = FaultyStorage(case.bench.storage, [Fault(at=at, **FAULTS[fault])])
        outcome = commit(case, storage)
        fired = storage.fired
        found = state(case)
        if isinstance(outcome, Published):
            assert found == ("done" if outcome.compact_failed is None else "written") or (
                case.written == case.done or isinstance(outcome.compact_failed, CommitUnknown)
            )
        elif isinstance(outcome, PaimonStreamError) and not isinstance(outcome, CommitUnknown):
            assert found == "before", f"{outcome!r} says that nothing was published"
        if not fired:
            assert found == "done"
            assert {e.file.file_name for e in case.bench.changelogs()} == case.changelogs
            assert {e.file.file_name for e in case.bench.indexes()} == (
                case.indexes or {"index-0", "index-1", "index-2"}
            )
        if case.source is None and not isinstance(outcome, Published):
            comes_back(case, found)
    assert at > 10


def comes_back(case: Case, found: str) -> None:
    """A fresh committer replays the batch: what is missing of the first snapshot comes, nothing
    twice.
    """
    fresh = partial(TableCommit, case.bench.table, "me", runtime=case.bench.runtime)
    published = fresh().filter_and_commit({BATCH: case.messages})
    assert published == (1 if found == "before" else 0)
    assert state(case) == ("written" if found == "written" else "done")
    assert fresh().filter_and_commit({BATCH: case.messages}) == 0


@pytest.mark.parametrize("make", CASES)
def test_a_definite_failure_leaves_no_staged_metadata_of_any_kind(make: Callable[[], Case]) -> None:
    case = make()
    at, fired = 0, True
    while fired:
        at = following(at)
        case.again()
        storage = FaultyStorage(case.bench.storage, [Fault(at=at, error=NoSpace, verb="write")])
        outcome = commit(case, storage)
        fired = storage.fired
        assert isinstance(outcome, Published | NoSpace)
        assert case.bench.orphans() == set()
        state(case)
    assert at > 3


@pytest.mark.parametrize("make", [writes_and_compacts, races_for_the_compaction])
def test_whatever_fails_in_the_compaction_the_rows_are_committed(make: Callable[[], Case]) -> None:
    case = make()
    storage = FaultyStorage(case.bench.storage, [Fault(at=2, error=NoSpace, verb="put_if_absent")])
    outcome = commit(case, storage)
    assert isinstance(outcome, Published)
    assert isinstance(outcome.compact_failed, NoSpace)
    assert outcome.compact is None
    assert state(case) == "written"
    assert case.bench.storage.stat("bucket-0/packed"), "what the compaction made stays"
