"""An overwrite beside other writers: the later commit wins, and no writer's files are lost without
an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from paimon_stream.commit.report import Phase
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import BucketCountChanged
from paimon_stream.format.snapshot_json import CommitKind
from tests.kits.commits import Bench

pytestmark = [pytest.mark.store, pytest.mark.s3, pytest.mark.azure_and_gcs]


@dataclass
class Between:
    """Lets another act once, after a writer has staged its commit and before it publishes it."""

    act: Callable[[], object]
    done: bool = False

    def reached(self, phase: Phase, identifier: int) -> None:
        if phase is Phase.STAGED and not self.done:
            self.done = True
            self.act()


def bench_with(*partitions: str, **options: str) -> Bench:
    bench = Bench(partitioned=True, options=options)
    messages = [bench.message(f"old-{dt}", dt=dt) for dt in partitions]
    bench.committer().commit(bench.request(0, messages, user="old"))
    return bench


def writer(bench: Bench, user: str, between: Callable[[], object] | None = None) -> TableCommit:
    observer = {} if between is None else {"observer": Between(between)}
    return TableCommit(bench.table, user, runtime=bench.runtime, **observer)  # type: ignore[arg-type]


def kinds(bench: Bench) -> list[tuple[str, CommitKind]]:
    found = map(bench.snapshots.get, bench.snapshots.ids())
    return [(one.commit_user, one.commit_kind) for one in found][1:]


def test_an_append_that_is_published_before_an_overwrite_is_replaced_too() -> None:
    bench = bench_with("a", "b")
    late = bench.message("late", dt="a")
    new = bench.message("new", dt="a")
    writer(bench, "o", lambda: writer(bench, "w").commit(0, [late])).overwrite(
        {"dt": "a"}, [new], 0
    )
    assert kinds(bench) == [("w", CommitKind.APPEND), ("o", CommitKind.OVERWRITE)]
    bench.audit(["new", "old-b"])


def test_an_append_to_another_partition_survives() -> None:
    bench = bench_with("a", "b")
    other = bench.message("other", dt="b")
    new = bench.message("new", dt="a")
    writer(bench, "o", lambda: writer(bench, "w").commit(0, [other])).overwrite(None, [new], 0)
    bench.audit(["new", "old-b", "other"])


def test_an_append_that_is_published_after_an_overwrite_survives() -> None:
    bench = bench_with("a", "b")
    mine = bench.message("mine", dt="a")
    writer(bench, "w", lambda: writer(bench, "o").truncate()).commit(0, [mine])
    assert [kind for _, kind in kinds(bench)] == [CommitKind.OVERWRITE, CommitKind.APPEND]
    bench.audit(["mine"])


def test_of_two_overwrites_the_later_one_stands() -> None:
    bench = bench_with("a")
    first, second = bench.message("first", dt="a"), bench.message("second", dt="a")
    between = writer(bench, "x")
    writer(bench, "y", lambda: between.overwrite(None, [first], 0)).overwrite(None, [second], 0)
    assert kinds(bench) == [("x", CommitKind.OVERWRITE), ("y", CommitKind.OVERWRITE)]
    bench.audit(["second"])


def test_an_append_that_an_overwrite_rescaled_under_is_refused() -> None:
    bench = bench_with("a", **{"bucket": "2", "bucket-key": "id"})
    wide, narrow = bench.message("wide", dt="a", total=3), bench.message("narrow", dt="a")
    rescale = writer(bench, "o")
    with pytest.raises(BucketCountChanged, match="3 buckets"):
        writer(bench, "w", lambda: rescale.overwrite(None, [wide], 0)).commit(0, [narrow])
    bench.audit(["wide"])


def test_rows_of_an_overwritten_bucket_are_numbered_anew_and_appends_follow_on_them() -> None:
    bench = bench_with("a", **{"bucket": "2", "bucket-key": "id"})
    commit = writer(bench, "me")
    commit.overwrite(None, [bench.message("n1", dt="a"), bench.message("n2", dt="a")], 0)
    commit.commit(1, [bench.message("n3", dt="a")])
    spans = [(e.file.file_name, e.file.min_sequence_number) for e in bench.live()]
    assert sorted(spans) == [("n1", 0), ("n2", 10), ("n3", 20)]
    commit.overwrite(None, [bench.message("n4", dt="a")], 2)
    assert [e.file.min_sequence_number for e in bench.live()] == [0]
