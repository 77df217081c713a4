"""Every storage operation of a commit fails in turn, before and after its effect, until a commit
has no failure. Then a new committer starts, as after a restart, and the table is audited.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import pytest

from paimon_stream.commit.committer import Nothing, Published, Superseded
from paimon_stream.commit.report import Phase
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import (
    CommitUnknown,
    NoSpace,
    PaimonStreamError,
    PermissionDenied,
    Unavailable,
)
from paimon_stream.format.commit_message import CommitMessage
from tests.kits.attempts import attempts
from tests.kits.commits import Bench
from tests.kits.faults import FAULTS, Fault, FaultyStorage, Killed, Moment
from tests.kits.params import few

pytestmark = [pytest.mark.store, pytest.mark.s3, pytest.mark.azure_and_gcs]

BATCH = 7


@dataclass
class OneForeignCommit:
    """An observer that lets another writer publish while ours is staged, once."""

    bench: Bench

    def reached(self, phase: Phase, identifier: int) -> None:
        if phase is Phase.STAGED and "foreign" not in self.bench.live_names():
            message = self.bench.message("foreign", dt="b")
            self.bench.committer().commit(self.bench.request(0, [message], user="other"))


@dataclass
class Case:
    """One table before the commit, and what is in it."""

    bench: Bench
    present: list[str]
    observer: OneForeignCommit | None = None

    @property
    def messages(self) -> list[CommitMessage]:
        return [self.bench.message("mine-1", dt="a"), self.bench.message("mine-2", dt="b")]

    def expected(self, *, mine: bool) -> list[str]:
        foreign = ["foreign"] if "foreign" in self.bench.live_names() else []
        return [*self.present, *foreign, *(["mine-1", "mine-2"] if mine else [])]


def empty_table() -> Case:
    return Case(Bench(), [])


def second_commit() -> Case:
    return grown(Bench(), 1)


def fixed_buckets() -> Case:
    return grown(Bench(options={"bucket": "2", "bucket-key": "id"}, partitioned=True), 2)


def merging() -> Case:
    return grown(Bench(options={"manifest.merge-min-count": "2"}, partitioned=True), 4)


def full_merging() -> Case:
    options = {"manifest.merge-min-count": "100", "manifest.full-compaction-threshold-size": "1 kb"}
    return grown(Bench(options=options), 3)


def lost_race() -> Case:
    case = grown(Bench(options={"manifest.merge-min-count": "2"}, partitioned=True), 3)
    return Case(case.bench, case.present, OneForeignCommit(case.bench))


def grown(bench: Bench, commits: int) -> Case:
    names = []
    for number in range(commits):
        names.append(f"old-{number}")
        bench.committer().commit(
            bench.request(number, [bench.message(names[-1], dt="a")], user="old")
        )
    return Case(bench, names)


CASES = [empty_table, second_commit, fixed_buckets, merging, full_merging, lost_race]


def commit(case: Case, storage: FaultyStorage) -> Published | BaseException | None:
    """One commit. None if the process died before it began."""
    bench = case.bench
    request = bench.request(BATCH, case.messages, renumber=True)
    try:
        committer = bench.committer(
            storage, **({"observer": case.observer} if case.observer else {})
        )
    except (PaimonStreamError, Killed):
        return None
    try:
        outcome = committer.commit(request)
    except (PaimonStreamError, Killed) as failed:
        return failed
    assert not isinstance(outcome, Superseded | Nothing)
    return outcome


@pytest.mark.parametrize(
    ("make", "fault"),
    few(
        product(CASES, FAULTS),
        lambda make, fault: fault == "killed after" or make in (second_commit, lost_race),
    ),
)
def test_a_commit_that_failed_anywhere_is_whole_or_absent_and_can_be_repeated(
    make: Callable[[], Case], fault: str
) -> None:
    for case, storage in attempts(make, FAULTS[fault]):
        outcome = commit(case, storage)
        published = "mine-1" in case.bench.live_names()
        case.bench.audit(case.expected(mine=published))
        if isinstance(outcome, Published):
            assert published
        elif isinstance(outcome, PaimonStreamError) and not isinstance(outcome, CommitUnknown):
            assert not published, f"{outcome!r} says that nothing was published"

        fresh = TableCommit(case.bench.table, "me", runtime=case.bench.runtime)
        assert fresh.filter_and_commit({BATCH: case.messages}) == (0 if published else 1)
        case.bench.audit(case.expected(mine=True))
        assert fresh.filter_and_commit({BATCH: case.messages}) == 0


@pytest.mark.parametrize("make", [fixed_buckets, lost_race])
@pytest.mark.parametrize("moment", list(Moment))
def test_a_replay_with_new_files_after_a_failure_anywhere_puts_the_rows_in_once(
    make: Callable[[], Case], moment: Moment
) -> None:
    for case, storage in attempts(make, {"moment": moment, "stop": True}):
        commit(case, storage)
        bench = case.bench
        rewritten = [bench.message("again-1", dt="a"), bench.message("again-2", dt="b")]
        TableCommit(bench.table, "me", runtime=bench.runtime).filter_and_commit({BATCH: rewritten})
        names = bench.live_names()
        assert ("mine-1" in names) != ("again-1" in names)
        mine = ["mine-1", "mine-2"] if "mine-1" in names else ["again-1", "again-2"]
        bench.audit([*case.expected(mine=False), *mine])


@pytest.mark.parametrize("make", [empty_table, merging, lost_race])
@pytest.mark.parametrize(
    "moment", [Moment.BEFORE, pytest.param(Moment.AFTER, marks=pytest.mark.hdfs_too)]
)
def test_a_lost_answer_to_the_put_is_cleared_up_without_a_restart(
    make: Callable[[], Case], moment: Moment
) -> None:
    case = make()
    storage = FaultyStorage(case.bench.storage, [Fault(at=1, moment=moment, verb="put_if_absent")])
    outcome = commit(case, storage)
    assert isinstance(outcome, Published)
    case.bench.audit(case.expected(mine=True))


@pytest.mark.parametrize("make", CASES)
def test_a_definite_failure_leaves_no_staged_metadata(make: Callable[[], Case]) -> None:
    for case, storage in attempts(
        make, {"moment": Moment.BEFORE, "error": NoSpace, "verb": "write"}
    ):
        before = case.bench.orphans()
        outcome = commit(case, storage)
        if isinstance(outcome, NoSpace):
            assert case.bench.orphans() == before
        case.bench.audit(case.expected(mine=isinstance(outcome, Published)))
        if len(storage.operations) > 10 and not storage.fired:
            return


def test_a_storage_that_never_answers_the_put_gives_commit_unknown_and_keeps_everything() -> None:
    case = second_commit()
    plan = [
        Fault(at=n, verb="put_if_absent", moment=Moment.BEFORE, error=Unavailable)
        for n in range(1, 40)
    ]
    storage = FaultyStorage(case.bench.storage, plan)
    outcome = commit(case, storage)
    assert isinstance(outcome, CommitUnknown)
    assert outcome.context["batch"] == BATCH
    assert not [one for one in storage.operations if one.verb == "delete"]
    assert len(case.bench.orphans()) == 3
    case.bench.audit(case.expected(mine=False))


def test_a_refusal_after_a_lost_answer_is_unknown_too() -> None:
    case = second_commit()
    plan = [
        Fault(at=1, verb="put_if_absent", moment=Moment.BEFORE),
        Fault(at=2, verb="put_if_absent", moment=Moment.BEFORE, error=PermissionDenied),
    ]
    outcome = commit(case, FaultyStorage(case.bench.storage, plan))
    assert isinstance(outcome, CommitUnknown)
    assert len(case.bench.orphans()) == 3
