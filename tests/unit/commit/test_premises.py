"""The rule of conflicts: which commits of others end a change that was computed before them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from paimon_stream.commit.plan import Base
from paimon_stream.commit.premises import Premises
from paimon_stream.commit.request import Published
from paimon_stream.errors import ChangedMeanwhile
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind
from tests.kits.commits import Bench

EXPIRES = {"record-level.expire-time": "1 d", "record-level.time-field": "id"}


def bench_with(names: str = "abc", **options: Any) -> Bench:
    bench = Bench(partitioned=True, **options)
    for name in names:
        append(bench, name)
    return bench


def append(bench: Bench, name: str, dt: str = "x") -> None:
    commit(bench, [bench.message(name, dt=dt)])


def commit(bench: Bench, messages: Sequence[Any], **more: Any) -> None:
    outcome = bench.committer().commit(bench.request(0, messages, user="you", **more))
    assert isinstance(outcome, Published)
    assert outcome.compact_failed is None


def compact(bench: Bench, *names: str, into: str, **changed: Any) -> None:
    commit(bench, [bench.compaction(*names, into=into, **changed)], kind=CommitKind.COMPACT)


def holds_none(entries: Sequence[ManifestEntry]) -> bool:
    return False


def holds_x(entries: Sequence[ManifestEntry]) -> bool:
    """Whether a file begins with x."""
    return any(entry.file.file_name.startswith("x") for entry in entries)


def premises_of(bench: Bench, read: str = "ab", changed: str = "a", **more: Any) -> Premises:
    live = {entry.file.file_name: entry for entry in bench.live()}
    more.setdefault("may_hold", holds_x)
    return Premises(
        bench.table,
        bench.latest(),
        read=[live[name] for name in read],
        changed=[live[name] for name in changed],
        **more,
    )


def publish(bench: Bench, premises: Premises) -> None:
    """Publishes a file under the premises."""
    number = bench.latest().id
    message = bench.message(f"mine-{number}", dt="x")
    request = bench.request(BATCH_IDENTIFIER, [message], premises=premises)
    request = replace(request, seen=premises.seen)
    assert isinstance(bench.committer().commit(request), Published)


NO_CONFLICT: dict[str, Callable[[Bench], None]] = {
    "nothing": lambda bench: None,
    "a file without such rows": lambda bench: append(bench, "d"),
    "a file was removed that was not read": lambda bench: commit(
        bench, [bench.compaction("c", into="d")]
    ),
    "another partition was overwritten": lambda bench: commit_overwrite(bench, "y"),
    "a compaction of a file that was read and one that was not": lambda bench: compact(
        bench, "b", "c", into="d"
    ),
}
CONFLICTS: dict[str, Callable[[Bench], None]] = {
    "a file that may have such rows": lambda bench: append(bench, "x"),
    "such a file that was compacted": lambda bench: append_and_compact(bench),
    "a file that was read is overwritten": lambda bench: commit_overwrite(bench, "x"),
    "a compaction of a file whose rows are changed": lambda bench: compact(
        bench, "a", "c", into="d"
    ),
    "a compaction that has lost rows": lambda bench: lossy(bench),
    "a compacted file is overwritten": lambda bench: compact_and_overwrite(bench),
}


def commit_overwrite(bench: Bench, dt: str) -> None:
    outcome = bench.committer().commit(bench.overwriting(1, user="you", dt=dt))
    assert isinstance(outcome, Published)


def append_and_compact(bench: Bench) -> None:
    append(bench, "x")
    compact(bench, "x", into="d")


def compact_and_overwrite(bench: Bench) -> None:
    compact(bench, "b", "c", into="d")
    commit_overwrite(bench, "x")


def lossy(bench: Bench) -> None:
    message = bench.compaction("b", "c", into="d")
    (after,) = message.compact_after
    commit(
        bench,
        [replace(message, compact_after=(replace(after, row_count=after.row_count - 1),))],
        kind=CommitKind.COMPACT,
    )


@pytest.mark.parametrize("what", NO_CONFLICT)
def test_what_others_do_to_other_rows_is_no_conflict(what: str) -> None:
    bench = bench_with()
    append(bench, "other", dt="y")
    premises = premises_of(bench)
    NO_CONFLICT[what](bench)
    publish(bench, premises)


@pytest.mark.parametrize("what", CONFLICTS)
def test_what_others_do_to_what_was_read_is_a_conflict(what: str) -> None:
    bench = bench_with()
    premises = premises_of(bench)
    CONFLICTS[what](bench)
    before = bench.latest()
    with pytest.raises(ChangedMeanwhile, match="Nothing was changed"):
        publish(bench, premises)
    assert bench.latest() == before


def test_rows_of_a_primary_key_may_be_compacted_unless_they_expire() -> None:
    for options, conflicts in (({}, False), (EXPIRES, True)):
        bench = Bench(keys=("id",), options={"bucket": "1", **options})
        for name in "ab":
            commit(bench, [bench.message(name)])
        premises = Premises(bench.table, bench.latest(), read=bench.live(), may_hold=holds_none)
        message = bench.compaction("a", "b", into="c")
        (after,) = message.compact_after
        merged = replace(message, compact_after=(replace(after, row_count=11),))
        commit(bench, [merged], kind=CommitKind.COMPACT)
        base = Base(snapshot=bench.latest(), metas=())
        if conflicts:
            with pytest.raises(ChangedMeanwhile):
                premises.check(bench.snapshots, bench.manifests, base)
        else:
            premises.check(bench.snapshots, bench.manifests, base)


def test_snapshots_that_expired_before_they_were_looked_at_are_a_conflict() -> None:
    bench = bench_with()
    premises = premises_of(bench)
    for name in "def":
        append(bench, name)
    bench.expire(bench.latest().id - 1)
    with pytest.raises(ChangedMeanwhile, match="expired"):
        publish(bench, premises)


def test_each_snapshot_of_others_is_looked_at_once_however_often_the_commit_is_tried() -> None:
    bench = bench_with()
    looked_at: list[list[str]] = []

    def may_hold(entries: Sequence[ManifestEntry]) -> bool:
        looked_at.append([entry.file.file_name for entry in entries])
        return False

    premises = premises_of(bench, may_hold=may_hold)
    for name in ("d", "e"):
        append(bench, name)
        premises.check(bench.snapshots, bench.manifests, Base(snapshot=bench.latest(), metas=()))
    assert looked_at == [["d"], ["e"]]


def test_a_change_of_an_empty_table_sees_what_was_added_first() -> None:
    bench = Bench(partitioned=True)
    empty = Premises(bench.table, None, read=(), may_hold=holds_x)
    append(bench, "x")
    with pytest.raises(ChangedMeanwhile, match="read at snapshot 0"):
        publish(bench, empty)
