"""What a metastore is told of tags, and what is left if it is away or the process dies."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from paimon_stream import errors
from paimon_stream.catalogs.hive import tell_partitions
from paimon_stream.commit.metastore_tags import telling_of_tags
from paimon_stream.maintenance.automatic_tags import create_automatic_tags
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag, delete_tag
from paimon_stream.storage.branch import PathPlace, StorageView
from paimon_stream.table.layout import tag_path
from paimon_stream.table.partition_notes import read_notes
from paimon_stream.table.table import Table
from tests.kits.commits import Bench

KEY = "metastore.tag-to-partition"


class InMetastore(StorageView):
    """A table whose tags a metastore is told of; the double of that metastore.

    Attributes:
        kept: the folders of the partitions that it has.
        requests: how many requests it got.
        is_away: whether each request fails.
        meanwhile: is called once, during the next request.
    """

    __slots__ = ("is_away", "kept", "meanwhile", "requests")

    def __init__(self, bench: Bench) -> None:
        self.wrapped = bench.storage
        self.kept: set[str] = set()
        self.requests = 0
        self.is_away = False
        self.meanwhile: Callable[[], object] | None = None

    def _place(self, path: str) -> PathPlace:
        return PathPlace(self.wrapped)

    def _asked(self) -> None:
        self.requests += 1
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        if self.is_away:
            raise errors.Unavailable("The metastore is away.")

    def add_partitions(self, folders: Sequence[str]) -> None:
        self._asked()
        self.kept.update(folders)

    def drop_partitions(self, folders: Sequence[str]) -> None:
        self._asked()
        self.kept.difference_update(folders)


def bench_with(**options: str) -> Bench:
    bench = Bench(options={KEY: "day", **options})
    bench.committer().commit(bench.request(1, [bench.message("data-1.parquet")]))
    return bench


@pytest.fixture
def bench() -> Bench:
    return bench_with()


@pytest.fixture
def metastore(bench: Bench) -> InMetastore:
    return InMetastore(bench)


def table_of(bench: Bench, metastore: InMetastore) -> Table:
    return bench.on(metastore)  # type: ignore[arg-type]


def notes(bench: Bench) -> list[str]:
    return sorted(name for note in read_notes(bench.storage).values() for name in note.tags)


def test_tags_are_told_when_they_are_created_and_deleted(
    bench: Bench, metastore: InMetastore
) -> None:
    table = table_of(bench, metastore)
    create_tag(table, "a", runtime=bench.runtime)
    create_tag(table, "b=c", runtime=bench.runtime)
    assert metastore.kept == {"day=a", "day=b%3Dc"}
    delete_tag(table, "a", runtime=bench.runtime)
    assert metastore.kept == {"day=b%3Dc"}
    with pytest.raises(errors.AlreadyExists):
        create_tag(table, "b=c", runtime=bench.runtime)
    assert (metastore.kept, notes(bench)) == ({"day=b%3Dc"}, [])


def test_what_a_metastore_that_was_away_was_not_told_is_told_with_the_next_change(
    bench: Bench, metastore: InMetastore, caplog: Any
) -> None:
    table = table_of(bench, metastore)
    create_tag(table, "old", runtime=bench.runtime)
    metastore.is_away = True
    delete_tag(table, "old", runtime=bench.runtime)
    create_tag(table, "new", runtime=bench.runtime)
    assert "was not told of tags that were created or deleted, such as new" in caplog.text
    assert (metastore.kept, notes(bench)) == ({"day=old"}, ["new", "old"])
    metastore.is_away = False
    create_tag(table, "last", runtime=bench.runtime)
    assert (metastore.kept, notes(bench)) == ({"day=new", "day=last"}, [])


@pytest.mark.parametrize("is_created", [False, True])
def test_what_a_process_that_died_has_changed_is_told_by_the_next_who_opens_the_table(
    bench: Bench, metastore: InMetastore, is_created: bool
) -> None:
    table = table_of(bench, metastore)

    def killed_change() -> None:
        with telling_of_tags(table, ["a"], bench.runtime):
            if is_created:
                bench.storage.write(tag_path("a"), b"{}")
            raise SystemExit

    with pytest.raises(SystemExit):
        killed_change()
    assert (metastore.requests, notes(bench)) == (0, ["a"])
    tell_partitions(table.storage)
    assert (metastore.kept, notes(bench)) == ({"day=a"} if is_created else set(), [])


def test_a_tag_that_vanishes_while_it_is_told_leaves_no_partition(
    bench: Bench, metastore: InMetastore
) -> None:
    metastore.meanwhile = lambda: bench.storage.delete(tag_path("a"))
    create_tag(table_of(bench, metastore), "a", runtime=bench.runtime)
    assert (metastore.kept, notes(bench), metastore.requests) == (set(), [], 2)


def test_a_tag_is_told_although_another_process_has_told_and_removed_its_note_before(
    bench: Bench, metastore: InMetastore
) -> None:
    with telling_of_tags(table_of(bench, metastore), ["a"], bench.runtime):
        tell_partitions(metastore)  # type: ignore[arg-type]
        bench.storage.write(tag_path("a"), b"{}")
    assert metastore.kept == {"day=a"}


def test_tags_that_a_rollback_deletes_leave_the_metastore(
    bench: Bench, metastore: InMetastore
) -> None:
    table = table_of(bench, metastore)
    create_tag(table, "first", runtime=bench.runtime)
    bench.committer().commit(bench.request(2, [bench.message("data-2.parquet")]))
    create_tag(table, "second", runtime=bench.runtime)
    rollback_to(table, 1, runtime=bench.runtime)
    assert (metastore.kept, notes(bench)) == ({"day=first"}, [])


def test_automatic_tags_are_told() -> None:
    bench = bench_with(**{"tag.automatic-creation": "process-time"})
    metastore = InMetastore(bench)
    report = create_automatic_tags(table_of(bench, metastore), runtime=bench.runtime)
    assert metastore.kept == {f"day={name}" for name in report.created}
    assert metastore.kept


@pytest.mark.parametrize("mode", ["process-time", "watermark", "none", "batch"])
def test_a_commit_tells_of_the_tag_of_the_present_period_if_it_is_asked_to(mode: str) -> None:
    bench = bench_with(
        **{f"{KEY}.preview": mode, "tag.period-formatter": "without_dashes"},
        **{"sink.process-time-zone": "UTC"},
    )
    metastore = InMetastore(bench)
    committer = bench.committer(metastore)  # type: ignore[arg-type]
    for number in (2, 3):
        message = bench.message(f"data-{number}.parquet")
        committer.commit(bench.request(number, [message]))
    present = bench.latest()
    day = f"day={dt.datetime.fromtimestamp(present.time_millis / 1000, dt.timezone.utc):%Y%m%d}"
    assert metastore.kept == ({day} if mode == "process-time" else set())
    assert metastore.requests == (mode == "process-time")


@pytest.mark.parametrize(
    "bench", [Bench(), Bench(options={KEY: "day"}, partitioned=True)], ids=["no option", "parts"]
)
def test_of_other_tables_no_tag_is_told(bench: Bench) -> None:
    message = bench.message("data-1.parquet", dt="mon" if bench.partitioned else None)
    bench.committer().commit(bench.request(1, [message]))
    metastore = InMetastore(bench)
    create_tag(table_of(bench, metastore), "a", runtime=bench.runtime)
    assert (metastore.requests, notes(bench)) == (0, [])
