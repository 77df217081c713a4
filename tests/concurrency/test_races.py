"""Two committers that remove and add files, stepped through many orders of their phases. The table
is always what it would be if one had come after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from paimon_stream.commit.committer import CommitRequest, Nothing, Published
from paimon_stream.errors import BucketCountChanged, CommitConflict, DeletedFiles, KeyRangeOverlap
from tests.concurrency.test_committers import Actor, orders_of_two
from tests.kits.commits import Bench
from tests.kits.places import STORE, some
from tests.kits.seeds import examples
from tests.unit.commit.test_checks import append, keys

pytestmark = [pytest.mark.store, pytest.mark.s3]

MakeRequest = Callable[[Bench], CommitRequest]
Kinds = dict[str, MakeRequest]


def grown(**table: Any) -> Bench:
    """A table of two partitions, two files in each."""
    bench = Bench(partitioned=True, **table)
    writer = bench.committer()
    for name in ("x1", "x2", "y1", "y2"):
        append(bench, name, dt=name[0], committer=writer)
    return bench


def appends(bench: Bench, user: str) -> CommitRequest:
    return bench.request(0, [bench.message(f"{user}-new", dt="x")], user=user)


def replays(bench: Bench, user: str) -> CommitRequest:
    return bench.request(0, [bench.message(f"{user}-new", dt="x")], user=user, checked=True)


def overwrites(bench: Bench, user: str) -> CommitRequest:
    return bench.overwriting(0, [bench.message(f"{user}-new", dt="x")], user=user, dt="x")


def truncates(bench: Bench, user: str) -> CommitRequest:
    return bench.overwriting(0, user=user)


def compacts(bench: Bench, user: str) -> CommitRequest:
    return bench.request(0, [bench.compaction("x1", "x2", into=f"{user}-new")], user=user)


def writes_and_compacts(bench: Bench, user: str) -> CommitRequest:
    both = bench.compaction("x1", "x2", into=f"{user}-new")
    both = replace(both, new_files=bench.message(f"{user}-more", dt="x").new_files)
    return bench.request(0, [both], user=user)


def deletes(bench: Bench, user: str) -> CommitRequest:
    """Rows of x1 are deleted: the file is written again without them."""
    old = next(entry.file for entry in bench.live() if entry.file.file_name == "x1")
    return bench.request(
        0, [replace(bench.message(f"{user}-new", rows=4, dt="x"), deleted_files=(old,))], user=user
    )


def after(live: set[str], what: Any, user: str) -> set[str] | None:
    """What is live once this is published, None if it conflicts. The plain model of all of them."""
    new = {f"{user}-new"}
    match what.__name__:
        case "appends" | "replays":
            return live | new
        case "overwrites":
            return {name for name in live if name.startswith("y")} | new
        case "truncates":
            return set()
        case "compacts" | "compaction of writes_and_compacts":
            return live - {"x1", "x2"} | new if {"x1", "x2"} <= live else None
        case "writes_and_compacts":
            return live | {f"{user}-more"}
        case "deletes":
            return live - {"x1"} | new if "x1" in live else None
    raise AssertionError(what)


def step_through(
    bench: Bench, requests: Sequence[CommitRequest], order: Sequence[int]
) -> list[Actor]:
    actors = [Actor(bench, request) for request in requests]
    try:
        for turn in order:
            actors[turn].step()
    finally:
        for actor in actors:
            actor.finish()
    for actor in actors:
        assert actor.error is None or isinstance(actor.error, CommitConflict), (
            f"{order}: {actor.error!r}"
        )
    return actors


class _Compaction:
    __name__ = "compaction of writes_and_compacts"


PAIRS = [
    (overwrites, appends),
    (overwrites, replays),
    (overwrites, overwrites),
    (truncates, overwrites),
    (compacts, overwrites),
    (compacts, truncates),
    (compacts, compacts),
    (compacts, deletes),
    (deletes, deletes),
    (deletes, overwrites),
    (compacts, replays),
    (writes_and_compacts, overwrites),
    (writes_and_compacts, deletes),
]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: " and ".join(one.__name__ for one in pair))
def test_in_many_orders_the_table_is_what_one_after_the_other_leaves(pair: Sequence[Any]) -> None:
    seen: set[tuple[str, ...]] = set()
    for order in some(list(orders_of_two())[:: examples(12, 4 if pair in PAIRS[:2] else 9)]):
        bench = grown()
        users = ("a", "b")
        requests = [what(bench, user) for what, user in zip(pair, users, strict=True)]
        actors = step_through(bench, requests, order)
        live: set[str] | None = {"x1", "x2", "y1", "y2"}
        published = [bench.snapshots.get(number) for number in bench.snapshots.ids() if number > 4]
        for snapshot in published:
            what = pair[users.index(snapshot.commit_user)]
            if what is writes_and_compacts and snapshot.commit_kind.value == "COMPACT":
                what = _Compaction()
            assert live is not None
            live = after(live, what, snapshot.commit_user)
        assert live is not None, f"{order}: published in spite of a conflict"
        bench.audit(sorted(live), orphans=True)
        seen.add(tuple(one.commit_user for one in published))
        for what, user, actor in zip(pair, users, actors, strict=True):
            settle(what, user, actor, live, published)
    assert len(seen) > 1 or STORE, f"only {seen} was met"


def settle(what: Any, user: str, actor: Actor, live: set[str], published: Sequence[Any]) -> None:
    """A commit that conflicts gets an error, and no other commit does."""
    own = [one.commit_kind.value for one in published if one.commit_user == user]
    if actor.error is not None:
        assert isinstance(actor.error, DeletedFiles) and what is deletes and own == []
    elif isinstance(actor.outcome, Nothing):
        assert (
            isinstance(actor.outcome.compact_failed, DeletedFiles)
            and what is compacts
            and own == []
        )
    else:
        assert isinstance(actor.outcome, Published) and own
        failed = actor.outcome.compact_failed
        assert (failed is None) == (what is not writes_and_compacts or own == ["APPEND", "COMPACT"])
        assert failed is None or isinstance(failed, DeletedFiles)


def test_two_compactions_of_other_files_with_overlapping_keys_never_both_come_in() -> None:
    for order in some(list(orders_of_two())[:: examples(18, 9)]):
        bench = Bench(options={"bucket": "1"}, keys=("id",))
        for name in "ab":
            append(bench, name)
        messages = [
            bench.compaction(name, into=f"{name}-new", **keys(low, low + 9))
            for name, low in (("a", 0), ("b", 5))
        ]
        requests = [
            bench.request(0, [one], user=user) for one, user in zip(messages, "ab", strict=True)
        ]
        actors = step_through(bench, requests, order)
        left_out = [one.outcome for one in actors if isinstance(one.outcome, Nothing)]
        assert [type(one.compact_failed) for one in left_out] == [KeyRangeOverlap]
        assert len(bench.live_names()) == 2
        assert bench.orphans() == set()


def test_an_append_for_the_old_bucket_count_never_follows_the_overwrite_that_changed_it() -> None:
    for order in some(list(orders_of_two())[:: examples(18, 9)]):
        bench = Bench(options={"bucket": "4", "bucket-key": "id"})
        append(bench, "old")
        requests = [
            bench.overwriting(0, [bench.message("rescaled", total=8)], user="a"),
            bench.request(0, [bench.message("late")], user="b", renumber=True),
        ]
        actors = step_through(bench, requests, order)
        assert isinstance(actors[0].outcome, Published)
        assert actors[1].error is None or isinstance(actors[1].error, BucketCountChanged)
        bench.audit(["rescaled"], orphans=True)
