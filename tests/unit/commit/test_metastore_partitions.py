"""What a commit tells a metastore of its partitions, and what is left if the metastore is away, the
commit fails, or the process dies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from paimon_stream import errors
from paimon_stream.catalogs.hive import tell_partitions
from paimon_stream.commit.committer import CommitRequest
from paimon_stream.commit.report import BatchObserver, Phase
from paimon_stream.maintenance.expire_partitions import expire_partitions
from paimon_stream.storage.branch import PathPlace, StorageView
from paimon_stream.table.partition_notes import read_notes
from tests.kits.commits import Bench

OPTIONS = {"metastore.partitioned-table": "true"}
HALF_AN_HOUR = 1800.0


class InMetastore(StorageView):
    """A table whose partitions a metastore is told of; the double of that metastore.

    Attributes:
        told: the folders of each request.
        dropped: the folders of all requests that drop.
        silent: the seconds after which a request fails; None while the metastore is there.
    """

    __slots__ = ("bench", "dropped", "silent", "told")

    def __init__(self, bench: Bench) -> None:
        self.wrapped = bench.storage
        self.bench = bench
        self.told: list[list[str]] = []
        self.dropped: list[str] = []
        self.silent: float | None = None

    def _place(self, path: str) -> PathPlace:
        return PathPlace(self.wrapped)

    def add_partitions(self, folders: Sequence[str]) -> None:
        self.told.append(list(folders))
        if self.silent is not None:
            self.bench.clock.sleep(self.silent)
            raise errors.Unavailable("The metastore is away.")

    def drop_partitions(self, folders: Sequence[str]) -> None:
        self.dropped += folders


@pytest.fixture
def bench() -> Bench:
    return Bench(options=OPTIONS, partitioned=True)


def request(bench: Bench, number: int, *days: str) -> CommitRequest:
    messages = [bench.message(f"data-{number}-{day}.parquet", dt=day) for day in days]
    return bench.request(number, messages)


def noted(bench: Bench) -> list[str]:
    notes = read_notes(bench.storage).values()
    return sorted(folder for note in notes for folder in (*note.folders, *note.tags.values()))


def test_a_commit_tells_only_of_partitions_that_its_process_has_not_told(bench: Bench) -> None:
    view = InMetastore(bench)
    committer = bench.committer(view)  # type: ignore[arg-type]
    committer.commit(request(bench, 1, "mon", "tue"))
    committer.commit(request(bench, 2, "tue", "wed"))
    committer.commit(request(bench, 3, "mon", "tue", "wed"))
    assert view.told == [["dt=mon", "dt=tue"], ["dt=wed"]]
    bench.clock.sleep(HALF_AN_HOUR + 1)  # somebody may have dropped it meanwhile
    committer.commit(request(bench, 4, "mon"))
    assert view.told[2:] == [["dt=mon"]]
    assert noted(bench) == []


def test_partitions_that_another_committer_may_have_dropped_are_told_again(bench: Bench) -> None:
    view = InMetastore(bench)
    committer = bench.committer(view)  # type: ignore[arg-type]
    committer.commit(request(bench, 1, "mon"))
    committer.commit(request(bench, 2, "mon"))
    bench.committer().commit(bench.request(1, [bench.message("of-another", dt="x")], user="it"))
    committer.commit(request(bench, 3, "mon"))
    assert view.told == [["dt=mon"]] * 2


def test_what_a_metastore_that_was_away_lacks_is_told_by_the_next_commit(
    bench: Bench, caplog: Any
) -> None:
    view = InMetastore(bench)
    committer = bench.committer(view)  # type: ignore[arg-type]
    view.silent = 0.0
    committer.commit(request(bench, 1, "mon"))
    assert "the metastore lacks 1 partitions that were written, such as dt=mon" in caplog.text
    assert noted(bench) == ["dt=mon"]
    view.silent = None
    committer.commit(request(bench, 2, "tue"))
    assert view.told[1:] == [["dt=mon", "dt=tue"]]
    assert noted(bench) == []
    bench.audit(["data-1-mon.parquet", "data-2-tue.parquet"])


def test_a_silent_metastore_delays_the_commits_by_a_tenth_at_most(bench: Bench) -> None:
    view = InMetastore(bench)
    committer = bench.committer(view)  # type: ignore[arg-type]
    view.silent = 20.0
    began = bench.clock.monotonic()
    for number in range(1, 41):
        committer.commit(request(bench, number, f"day{number}"))
        bench.clock.sleep(10)
    assert len(view.told) * 20 <= 0.11 * (bench.clock.monotonic() - began) + 20
    view.silent = None
    bench.clock.sleep(200)
    committer.commit(request(bench, 41, "last"))
    assert len(view.told[-1]) == 41
    assert noted(bench) == []


class _DiesAt(BatchObserver):
    """The process ends at a point of the commit."""

    def __init__(self, phase: Phase) -> None:
        self.phase = phase

    def reached(self, phase: Phase, identifier: int) -> None:
        if phase is self.phase:
            raise SystemExit


def test_what_a_killed_commit_has_published_is_told_by_the_next_who_opens_the_table(
    bench: Bench,
) -> None:
    view = InMetastore(bench)
    committer = bench.committer(view, _DiesAt(Phase.PUBLISHED))  # type: ignore[arg-type]
    with pytest.raises(SystemExit):
        committer.commit(request(bench, 1, "mon"))
    assert (view.told, noted(bench)) == ([], ["dt=mon"])
    tell_partitions(view)  # type: ignore[arg-type]
    assert (view.told, noted(bench)) == ([["dt=mon"]], [])
    bench.audit(["data-1-mon.parquet"])


def test_a_commit_that_publishes_nothing_leaves_no_note(bench: Bench) -> None:
    view = InMetastore(bench)
    committer = bench.committer(view, _DiesAt(Phase.STAGED))  # type: ignore[arg-type]
    with pytest.raises(SystemExit):
        committer.commit(request(bench, 1, "mon"))
    assert (view.told, noted(bench)) == ([], [])


def test_a_note_that_cannot_be_read_does_not_keep_the_table_from_being_opened(
    bench: Bench, caplog: Any
) -> None:
    view = InMetastore(bench)
    bench.storage.write("_paimon_stream/partitions.x.json", b"paimon-stream")
    tell_partitions(view)  # type: ignore[arg-type]
    assert "partitions.x.json" in caplog.text
    assert "repair the table's partitions" in caplog.text


@pytest.mark.parametrize("bench", [Bench(partitioned=True), Bench(options=OPTIONS)])
def test_other_tables_tell_nothing(bench: Bench) -> None:
    view = InMetastore(bench)
    message = bench.message("data-1.parquet", dt="mon" if bench.partitioned else None)
    bench.committer(view).commit(bench.request(1, [message]))  # type: ignore[arg-type]
    assert (view.told, noted(bench)) == ([], [])


@pytest.mark.parametrize("branch", [False, True])
def test_partitions_that_expire_are_dropped_there_unless_a_branch_may_have_them(
    branch: bool,
) -> None:
    bench = Bench(options={**OPTIONS, "partition.expiration-time": "7 d"}, partitioned=True)
    bench.committer().commit(request(bench, 1, "2020-01-01", "9000-01-01"))
    if branch:
        bench.storage.write("branch/branch-b/schema/schema-0", b"{}")
    view = InMetastore(bench)
    table = bench.on(view)  # type: ignore[arg-type]
    report = expire_partitions(table, runtime=bench.runtime)
    assert [one["dt"] for one in report.partitions] == ["2020-01-01"]
    assert view.dropped == ([] if branch else ["dt=2020-01-01"])
