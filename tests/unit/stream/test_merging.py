"""Streams whose batches are merged: each batch takes effect once, on the rows that are there when it
is published.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import Merge, PaimonTable
from paimon_stream.commit.report import Phase
from paimon_stream.errors import (
    SharedCheckpoint,
)
from paimon_stream.table.journal import Journal
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.snapshots import SnapshotStore
from tests.kits.merging_streams import MergingStream
from tests.kits.streams import At, PowerCut, Stream
from tests.unit.change.test_update_rows import (
    COLUMNS,
    KINDS,
    assert_no_orphans,
    made,
    rows,
    values,
)

_NUMBER = count()
KEYED = {"bucket": "2"}
ADD = (
    Merge(on=["id"])
    .when_matched_delete("source.n IS NULL")
    .when_matched_update({"n": "target.n + source.n"})
    .when_not_matched_insert({"id": "source.id", "n": "source.n", "p": "'a'"})
)
"""Adds to `n`. A batch that is applied twice, or on rows that are not the newest, is seen in `n`."""

TABLES: dict[str, Callable[[], PaimonTable]] = {
    **{name: (lambda options=options: made(options)) for name, options in KINDS.items()},
    "with a primary key": lambda: keyed(KEYED),
    "with input changelog": lambda: keyed({**KEYED, "changelog-producer": "input"}),
}
each_table = pytest.mark.parametrize("table_of", TABLES.values(), ids=TABLES)


def keyed(options: dict[str, str]) -> PaimonTable:
    columns = [("id", "INT NOT NULL"), *COLUMNS[1:]]
    table = PaimonTable.create(
        f"memory://merging-{next(_NUMBER)}/db.db/t", columns, primary_keys=["id"], options=options
    )
    for number in range(3):
        table.append(rows(range(10 * number, 10 * number + 10)))
    return table


def added(**n: Any) -> pa.Table:
    """A source that adds to `n` of the ids that follow an underscore."""
    ids = [int(name.removeprefix("_")) for name in n]
    return pa.table({"id": pa.array(ids, pa.int32()), "n": pa.array([*n.values()], pa.int32())})


def at_first() -> dict[int, int]:
    return {one: 10 * one for one in range(30)}


@each_table
def test_each_batch_is_merged_once_into_the_newest_rows(
    table_of: Callable[[], PaimonTable],
) -> None:
    table = table_of()
    stream = MergingStream(table, ADD)
    first = stream.batch(added(_3=1, _15=1, _4=None, _40=7))
    assert (first.rows_updated, first.rows_deleted, first.rows_inserted) == (2, 1, 1)
    assert first.outcome == "committed" and first.files and first.rows
    snapshot = table.latest_snapshot()
    assert (snapshot.commit_user, snapshot.commit_identifier) == ("me", 0)
    stream.batch(added(_3=1, _40=1))
    expected = at_first() | {3: 32, 15: 151, 40: 8}
    del expected[4]
    assert values(table) == expected
    stream.start()
    stream.next_batch = 1
    again = stream.batch(added(_3=1, _40=1))
    assert again.outcome == "already committed" and again.rows_updated == 0
    assert (stream.reads, stream.drained) == (2, 1)
    assert values(table) == expected
    assert_no_orphans(table)


OTHERS: dict[str, tuple[Callable[[PaimonTable], object], dict[int, int | None]]] = {
    "updates a matched row": (lambda table: table.update("id = 3", {"n": "n + 500"}), {3: 531}),
    "deletes a matched row": (lambda table: table.delete("id = 3"), {3: 1}),
    "inserts the row that was to be inserted": (lambda table: table.append(rows([40])), {40: 401}),
    "updates another row": (lambda table: table.update("id = 5", {"n": "n + 1"}), {5: 51}),
    "compacts": (lambda table: table.compact(full=True), {}),
}


@each_table
@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("phase", [Phase.WRITTEN, Phase.JOURNALED, Phase.STAGED])
def test_files_of_a_killed_merge_are_never_published(
    table_of: Callable[[], PaimonTable], what: str, phase: Phase
) -> None:
    """The run dies between its journal and its put. Others change what it has matched. The next run
    computes everything anew, and removes what the dead run left.
    """
    table = table_of()
    act, changed = OTHERS[what]
    stream = MergingStream(table, ADD)
    stream.start(At(phase, Stream.cut))
    source = added(_3=1, _15=1, _40=1)
    with pytest.raises(PowerCut):
        stream.batch(source)
    act(table)
    stream.start()
    report = stream.batch(source)
    assert report.outcome == "committed" and not report.reused
    assert values(table) == at_first() | {3: 31, 15: 151, 40: 1} | changed
    if phase is not Phase.WRITTEN:  # the journal did not know them yet
        assert report.removed_files
        assert_no_orphans(table)
        assert_no_stray_index_files(table)
    stream.batch(added(_3=1))
    assert values(table)[3] == {**at_first(), 3: 31, **changed}[3] + 1


def assert_no_stray_index_files(table: PaimonTable) -> None:
    """Each index file belongs to a snapshot."""
    storage = table._table.storage
    snapshots = SnapshotStore(storage)
    manifests = ManifestStore(storage)
    named = {
        entry.file.file_name
        for number in snapshots.ids()
        if (index := snapshots.get(number).index_manifest) is not None
        for entry in manifests.index_entries(index)
    }
    assert {stat.name for stat in storage.list_files("index")} == named


@each_table
@pytest.mark.parametrize("what", OTHERS)
def test_what_others_do_meanwhile_is_taken_into_account(
    table_of: Callable[[], PaimonTable], what: str
) -> None:
    table = table_of()
    act, changed = OTHERS[what]
    stream = MergingStream(table, ADD)
    stream.start(At(Phase.WRITTEN, lambda: act(table)))
    report = stream.batch(added(_3=1, _15=1, _40=1))
    assert stream.reads == 1, "the source is evaluated once"
    assert report.rows_updated + report.rows_inserted == 3
    assert values(table) == at_first() | {3: 31, 15: 151, 40: 1} | changed
    assert_no_orphans(table)


@each_table
def test_a_batch_that_two_runs_work_on_is_published_once(
    table_of: Callable[[], PaimonTable],
) -> None:
    """A paused run wakes up after the run that has replaced it."""
    table = table_of()
    old = MergingStream(table, ADD)
    new = MergingStream(table, ADD, runs=1)
    source = added(_3=1, _40=1)
    old.start(At(Phase.STAGED, lambda: new.batch(source)))
    with pytest.raises(SharedCheckpoint):
        old.batch(source)
    assert values(table) == at_first() | {3: 31, 40: 1}
    new.batch(source)
    assert values(table) == at_first() | {3: 32, 40: 2}


@each_table
def test_a_batch_that_changes_nothing_leaves_no_snapshot(
    table_of: Callable[[], PaimonTable],
) -> None:
    table = table_of()
    before = table.latest_snapshot()
    merge = Merge(on=["id"]).when_matched_update({"n": "source.n"})
    stream = MergingStream(table, merge)
    for source in (added(_99=1), added().slice(0, 0)):
        report = stream.batch(source)
        assert report.outcome == "empty"
        assert (report.rows_updated, report.rows_deleted, report.rows_inserted) == (0, 0, 0)
    assert table.latest_snapshot() == before
    assert not Journal(table._table.storage, "me").batches()
    assert_no_orphans(table)
