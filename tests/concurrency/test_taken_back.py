"""A slow commit takes its snapshot back because a file is gone, while another writer builds on
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import pytest

from paimon_stream.commit.report import Phase
from paimon_stream.errors import CommitUnknown, PaimonStreamError
from paimon_stream.storage.base import Storage
from tests.kits.commits import Bench
from tests.kits.places import STORE, some
from tests.kits.races import Meanwhile, Stopped

pytestmark = pytest.mark.store


@dataclass
class Slow:
    """Stands still before and after the staging of a commit. Then an orphan cleaner has taken its
    file.
    """

    bench: Bench

    def reached(self, phase: Phase, identifier: int) -> None:
        if phase is Phase.CHECKED:
            self.bench.clock.advance(10 * 60_000)
        if phase is Phase.STAGED:
            self.bench.clock.advance(25 * 60_000)
            self.bench.storage.delete("bucket-0/slow")


def grown(snapshots: int) -> Bench:
    bench = Bench()
    for number in range(snapshots):
        bench.committer().commit(
            bench.request(number, [bench.message(f"old-{number}")], user="you")
        )
    return bench


def slowly(bench: Bench, storage: Storage) -> str:
    request = bench.request(7, [bench.message("slow")])
    try:
        return type(bench.committer(storage, Slow(bench)).commit(request)).__name__
    except PaimonStreamError as failed:
        return type(failed).__name__


def builds(bench: Bench, storage: Storage | None = None) -> None:
    bench.committer(storage).commit(bench.request(9, [bench.message("quick")], user="you"))


def check(bench: Bench, snapshots: int, outcome: str) -> None:
    ids = bench.snapshots.ids()
    assert ids == list(range(1, ids[-1] + 1))
    expected = ["quick", *(f"old-{number}" for number in range(snapshots))]
    assert bench.live_names() == sorted([*expected, "slow"] if outcome == "Published" else expected)


@pytest.mark.parametrize("snapshots", [0, 1, 3])
def test_a_snapshot_on_which_another_writer_has_built_at_any_operation_stays(
    snapshots: int,
) -> None:
    outcomes = set()
    for at in some(range(1, 80)):
        bench = grown(snapshots)
        beside = Meanwhile(bench.storage, at, lambda bench=bench: builds(bench))
        outcome = slowly(bench, cast(Storage, beside))
        if not beside.happened:
            assert outcome == CommitUnknown.__name__
            break
        check(bench, snapshots, outcome)
        outcomes.add(outcome)
    assert STORE or {"Published", "CommitUnknown"} <= outcomes


@dataclass
class BeforeRemoval:
    """Passes all calls on to `inner`, and calls `what` just before a snapshot is removed."""

    inner: Storage
    what: Callable[[], None]

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def delete(self, path: str) -> None:
        if path.startswith("snapshot/snapshot-"):
            self.what()
        self.inner.delete(path)


@pytest.mark.parametrize("snapshots", [0, 1, 3])
def test_what_a_paused_writer_builds_on_a_snapshot_that_was_taken_back_leaves_a_readable_table(
    snapshots: int,
) -> None:
    """It has read the snapshot, and publishes after the slow commit has given up."""
    landed = 0
    for at in some(range(1, 80)):
        bench = grown(snapshots)
        paused: list[Stopped] = []

        def begin(bench: Bench = bench, paused: list[Stopped] = paused, at: int = at) -> None:
            paused.append(Stopped(bench.storage, at, lambda storage: builds(bench, storage)))

        slowly(bench, cast(Storage, BeforeRemoval(bench.storage, begin)))
        for writer in paused:
            writer.finish()
        assert bench.live_names().count("quick") <= 1
        landed += "quick" in bench.live_names()
        if not paused[0].happened:
            break
    assert STORE or landed
