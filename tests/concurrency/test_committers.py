"""Two and three committers stepped through every order of their phases, one thread at a time."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import pytest

from paimon_stream.commit.committer import CommitRequest, Outcome, Published, Superseded
from paimon_stream.commit.report import Phase
from paimon_stream.runtime import system
from paimon_stream.storage.local import LocalStorage
from tests.kits.commits import Bench
from tests.kits.places import some
from tests.kits.seeds import examples

pytestmark = [pytest.mark.store, pytest.mark.s3]

STEPS = 5
"""Phases of one undisturbed commit after the first: BASE_READ … CONFIRMED, then it runs out."""


class Actor:
    """One commit in its own thread. It stops at each phase until the test lets it go on."""

    def __init__(self, bench: Bench, request: CommitRequest) -> None:
        self.phases: list[Phase] = []
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self._go = threading.Semaphore(0)
        self._arrived = threading.Semaphore(0)
        self._committer = bench.committer(observer=self)
        self._thread = threading.Thread(target=self._run, args=(request,))
        self._thread.start()

    @property
    def done(self) -> bool:
        return self.outcome is not None or self.error is not None

    def reached(self, phase: Phase, identifier: int) -> None:
        self.phases.append(phase)
        self._arrived.release()
        self._go.acquire()

    def step(self) -> None:
        """Lets it run to its next phase, or to its end."""
        if not self.done:
            self._go.release()
            self._arrived.acquire()

    def finish(self) -> None:
        while not self.done:
            self.step()
        self._thread.join()

    def _run(self, request: CommitRequest) -> None:
        self._go.acquire()
        try:
            self.outcome = self._committer.commit(request)
        except BaseException as failed:  # noqa: BLE001 - shown by the test
            self.error = failed
        self._arrived.release()


def play(actors: Sequence[Actor], schedule: Sequence[int]) -> None:
    """Steps the actors in that order, then lets each run to its end in turn."""
    try:
        for turn in schedule:
            actors[turn].step()
    finally:
        for actor in actors:
            actor.finish()
    for actor in actors:
        assert actor.error is None, f"{schedule}: {actor.error!r}"


def orders_of_two() -> Iterator[list[int]]:
    for first in combinations(range(2 * STEPS), STEPS):
        yield [0 if place in first else 1 for place in range(2 * STEPS)]


def orders_of_three(count: int) -> Iterator[list[int]]:
    source = random.Random(3)
    for _ in range(count):
        order = [0] * STEPS + [1] * STEPS + [2] * STEPS
        source.shuffle(order)
        yield order


def published(actors: Sequence[Actor]) -> list[int]:
    return sorted(a.outcome.snapshot.id for a in actors if isinstance(a.outcome, Published))


def test_two_users_are_both_published_in_every_order_and_leave_nothing_behind() -> None:
    for order in some(orders_of_two()):
        bench = Bench()
        actors = [
            Actor(bench, bench.request(0, [bench.message(user)], user=user)) for user in ("a", "b")
        ]
        play(actors, order)
        assert published(actors) == [1, 2], order
        bench.audit(["a", "b"], orphans=True)


def test_one_user_with_one_identifier_is_published_once_in_every_order() -> None:
    for order in some(orders_of_two()):
        bench = Bench()
        actors = [Actor(bench, bench.request(0, [bench.message(name)])) for name in ("a", "b")]
        play(actors, order)
        assert published(actors) == [1], order
        winner, loser = sorted(actors, key=lambda actor: isinstance(actor.outcome, Superseded))
        assert isinstance(loser.outcome, Superseded), order
        assert isinstance(winner.outcome, Published)
        assert loser.outcome.snapshot == winner.outcome.snapshot
        assert bench.orphans() == set(), order
        assert len(bench.live_names()) == 1


@pytest.mark.parametrize("min_count", ["1", "2"])
def test_two_committers_that_both_merge_manifests_agree_in_every_order(min_count: str) -> None:
    for order in some(list(orders_of_two())[:: examples(7, 3)]):
        bench = Bench(options={"manifest.merge-min-count": min_count})
        for number in range(3):
            message = bench.message(f"old-{number}")
            bench.committer().commit(bench.request(number, [message], user="old"))
        actors = [
            Actor(bench, bench.request(0, [bench.message(user)], user=user)) for user in ("a", "b")
        ]
        play(actors, order)
        assert published(actors) == [4, 5], order
        bench.audit(["a", "b", "old-0", "old-1", "old-2"], orphans=True)


def test_sequence_numbers_of_one_bucket_never_repeat_in_any_order() -> None:
    for order in some(list(orders_of_two())[:: examples(7, 3)]):
        bench = Bench(options={"bucket": "2", "bucket-key": "id"})
        actors = [
            Actor(bench, bench.request(0, [bench.message(user)], user=user, renumber=True))
            for user in ("a", "b")
        ]
        play(actors, order)
        ranges = sorted(
            (e.file.min_sequence_number, e.file.max_sequence_number) for e in bench.live()
        )
        assert ranges == [(0, 9), (10, 19)], order


def test_three_committers_two_of_one_user_in_many_orders() -> None:
    for order in some(orders_of_three(examples(40, 120))):
        bench = Bench(options={"bucket": "2", "bucket-key": "id"})
        names = (("me", "a"), ("me", "b"), ("you", "c"))
        actors = [
            Actor(bench, bench.request(0, [bench.message(name)], user=user, renumber=True))
            for user, name in names
        ]
        play(actors, order)
        assert published(actors) == [1, 2], order
        live = bench.live_names()
        assert "c" in live and len(live) == 2, order
        assert bench.orphans() == set(), order
        ranges = sorted(
            (e.file.min_sequence_number, e.file.max_sequence_number) for e in bench.live()
        )
        assert ranges == [(0, 9), (10, 19)], order


def test_eight_threads_on_one_local_table_lose_and_double_nothing(tmp_path: Path) -> None:
    options = {"commit.max-retries": "200", "manifest.merge-min-count": "5"}
    bench = Bench(storage=LocalStorage(str(tmp_path)), options=options)
    ready = threading.Barrier(8)
    failures: list[BaseException] = []

    def write(user: str) -> None:
        try:
            committer = bench.committer(runtime=system())
            ready.wait()
            for number in range(5):
                request = CommitRequest(
                    user=user,
                    identifier=number,
                    messages=(messages[user, number],),
                    seen=None,
                    stage_uuid=f"{user}-{number}",
                )
                assert isinstance(committer.commit(request), Published)
        except BaseException as failed:  # noqa: BLE001 - shown by the test
            failures.append(failed)

    users = [f"u{n}" for n in range(8)]
    messages = {(user, n): bench.message(f"{user}-{n}") for user in users for n in range(5)}
    threads = [threading.Thread(target=write, args=(user,)) for user in users]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    bench.audit([f"{user}-{n}" for user in users for n in range(5)], orphans=True)
    assert bench.snapshots.ids() == list(range(1, 41))
    assert bench.latest().id == 40
