"""Streams whose batches are merged: each batch takes effect once, on the rows that are there when it
is published.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_stream import Merge, PaimonTable
from paimon_stream.commit.report import Phase
from paimon_stream.errors import (
    AmbiguousMerge,
    CommitLost,
    CommitUnknown,
    SharedCheckpoint,
    UnsupportedFeature,
)
from paimon_stream.runtime import system
from paimon_stream.stream.reuse import obstacle_to_reuse
from paimon_stream.table.journal import Journal, JournalEntry
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.snapshots import SnapshotStore
from tests.kits.merging_streams import MergingStream
from tests.kits.params import each_once, few
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
_SELDOM = {TABLES["vectors in buckets"], TABLES["rewritten in buckets"]}
each_table = pytest.mark.parametrize(
    "table_of", few(TABLES.values(), lambda table_of: table_of not in _SELDOM), ids=TABLES
)


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


@pytest.mark.parametrize(
    ("table_of", "what", "phase"),
    each_once(TABLES.values(), OTHERS, [Phase.WRITTEN, Phase.JOURNALED, Phase.STAGED]),
)
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


@pytest.mark.parametrize(("table_of", "what"), each_once(TABLES.values(), OTHERS))
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


@each_table
def test_a_batch_for_which_others_leave_nothing_to_do_leaves_no_trace(
    table_of: Callable[[], PaimonTable],
) -> None:
    table = table_of()
    stream = MergingStream(table, Merge(on=["id"]).when_matched_delete())
    stream.start(At(Phase.STAGED, lambda: table.delete("id = 3")))
    assert stream.batch(added(_3=1)).outcome == "empty"
    assert not Journal(table._table.storage, "me").batches()
    assert 3 not in values(table)
    assert_no_orphans(table)


def test_rows_that_only_deletion_vectors_delete_are_deleted_once_after_a_kill() -> None:
    """Such a batch has no data file that its journal could name."""
    table = made(KINDS["vectors"])
    stream = MergingStream(table, Merge(on=["id"]).when_matched_delete())
    stream.start(At(Phase.STAGED, Stream.cut))
    with pytest.raises(PowerCut):
        stream.batch(added(_3=1))
    table.append(rows([3]).slice(0, 0))
    stream.start()
    report = stream.batch(added(_3=1))
    assert report.rows_deleted == 1 and report.removed_files
    assert 3 not in values(table)
    assert_no_stray_index_files(table)


@each_table
def test_a_sink_that_gets_a_merge_does_not_use_the_files_of_the_one_before(
    table_of: Callable[[], PaimonTable],
) -> None:
    """Nor does a sink that merges no more."""
    table = table_of()
    stream = MergingStream(table, ADD)
    stream.start(At(Phase.STAGED, Stream.cut))
    with pytest.raises(PowerCut):
        stream.batch(added(_3=1))
    entry = Journal(table._table.storage, "me").read(0)
    assert entry is not None and entry.merges
    assert entry.offsets_hash is None, "earlier releases do not use them, either"
    unlike = {"overwrites": False, "merges": False}
    for asked in (unlike, {**unlike, "merges": True}, {**unlike, "overwrites": True}):
        assert _obstacle(table, entry, **asked) == "a merge is always computed on the newest rows"
    plain = replace(entry, merges=False)
    assert _obstacle(table, plain, overwrites=False, merges=True) is not None


def _obstacle(table: PaimonTable, entry: JournalEntry, **asked: bool) -> str | None:
    no_evidence: Any = None
    return obstacle_to_reuse(table._table, no_evidence, entry, system().clock, **asked)


def test_a_merge_that_was_lost_is_not_committed_again() -> None:
    table = made(KINDS["rewritten"])
    stream = MergingStream(table, ADD)
    stream.batch(added(_3=1))
    for dry_run in (True, False):
        with pytest.raises(UnsupportedFeature, match=r"batch 0 .* merged into rows"):
            table.recommit("me", 0, dry_run=dry_run)


@pytest.mark.parametrize(
    "options", [KINDS["vectors"], KINDS["rewritten"]], ids=["vectors", "rewritten"]
)
@pytest.mark.parametrize("what", ["updates a matched row", "updates another row"])
def test_a_merge_whose_snapshot_is_replaced_is_computed_on_what_replaced_it(
    options: dict[str, str], what: str, tmp_path: Path
) -> None:
    """Another engine copies its snapshot over ours just after ours was put."""
    location = tmp_path / "db.db" / "t"
    table = PaimonTable.create(str(location), COLUMNS, options=options)
    table.append(rows(range(10)))
    shutil.copytree(tmp_path / "db.db", tmp_path / "copy.db")
    elsewhere = PaimonTable.load(str(tmp_path / "copy.db" / "t"))
    act, changed = OTHERS[what]
    act(elsewhere)
    newest = elsewhere.latest_snapshot().id

    def replace_ours() -> None:
        copied = tmp_path / "copy.db" / "t"
        for path in copied.rglob("*"):
            target = location / path.relative_to(copied)
            if (
                path.is_file()
                and "LATEST" not in path.name
                and (not target.exists() or path.name == f"snapshot-{newest}")
            ):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)

    stream = MergingStream(table, ADD)
    stream.start(At(Phase.PUBLISHED, replace_ours))
    source = added(_3=1, _40=1)
    with pytest.raises(CommitUnknown):
        stream.batch(source)
    assert values(PaimonTable.load(str(location)))[3] != 31
    stream.start()
    assert stream.batch(source).outcome == "committed"
    expected = {one: 10 * one for one in range(10)} | {3: 31, 40: 1} | changed
    assert values(PaimonTable.load(str(location))) == expected


def test_a_merge_that_another_engine_has_replaced_is_not_said_to_be_committed_again(
    tmp_path: Path,
) -> None:
    """`recommit` would refuse it: its files fit only the rows into which it was merged."""
    location = tmp_path / "db.db" / "t"
    table = PaimonTable.create(str(location), COLUMNS, options=KINDS["vectors"])
    table.append(rows(range(10)))
    shutil.copytree(tmp_path / "db.db", tmp_path / "copy.db")
    PaimonTable.load(str(tmp_path / "copy.db" / "t")).update("id = 5", {"n": "n + 1"})
    stream = MergingStream(table, ADD)
    stream.batch(added(_3=1))
    shutil.copytree(tmp_path / "copy.db" / "t", location, dirs_exist_ok=True)
    with pytest.raises(CommitLost, match=r"Merge its rows again, with PaimonTable\.merge") as lost:
        stream.batch(added(_3=1))
    assert "recommit" not in str(lost.value) and lost.value.context["command"] is None
    assert values(PaimonTable.load(str(location)))[3] == 30


@each_table
def test_two_rows_of_a_batch_for_one_row_are_an_error(table_of: Callable[[], PaimonTable]) -> None:
    table = table_of()
    before = table.latest_snapshot()
    stream = MergingStream(table, ADD)
    twice = pa.concat_tables([added(_3=1, _40=1), added(_3=2)])
    with pytest.raises(AmbiguousMerge, match="keys of such rows: 3"):
        stream.batch(twice)
    assert table.latest_snapshot() == before
    assert_no_orphans(table)


REST = Merge(on=["id"]).when_matched_update({"n": "source.n"})


@pytest.mark.parametrize(
    ("predicate", "is_limited"),
    [
        ("p = 'a'", True),
        ("target.p = 'a' AND n > 5", True),
        ("p IN ('a', 'b')", True),
        ("n > 5 AND (p = 'a' OR p = 'b' AND n < 100)", True),
        (pc.field("target.p") == "a", True),
        (pc.field("target.p").isin(["a", "b"]), True),
        ("n > 5", False),
        ("p <> 'a'", False),
        ("p = 'a' OR n > 5", False),
        ("NOT (p = 'a')", False),
        ("p IS NULL", False),
        ("p = note", False),
        ("p > 'a'", False),
    ],
)
def test_rows_without_a_match_are_changed_only_in_partitions_that_are_named(
    predicate: Any, is_limited: bool
) -> None:
    table = made({}, files=1, partition_keys=["p"])
    merge = REST.when_not_matched_by_source_delete(predicate)
    stream = MergingStream(table, merge)
    if is_limited:
        assert stream.batch(added(_1=1)).rows_updated == 1
        assert values(table)[1] == 1
        return
    with pytest.raises(
        UnsupportedFeature,
        match=r"when_not_matched_by_source_delete is not limited to partitions\. .* \"target\.p = 'value' AND",
    ):
        stream.batch(added(_1=1))
    assert values(table)[1] == 10


def test_the_named_partition_has_only_the_rows_of_the_batch() -> None:
    table = made({}, files=1, partition_keys=["p"])
    merge = REST.when_not_matched_by_source_delete("target.p = 'a'")
    report = MergingStream(table, merge).batch(added(_2=7, _3=7))
    assert (report.rows_updated, report.rows_deleted) == (2, 4)
    assert values(table) == {1: 10, 2: 7, 3: 7, 5: 50, 7: 70, 9: 90}


def test_tables_that_cannot_be_merged_into_are_refused_before_a_row_is_read() -> None:
    options = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
    table = PaimonTable.create(
        f"memory://merging-{next(_NUMBER)}/db.db/t", COLUMNS, options=options
    )
    stream = MergingStream(table, ADD)
    with pytest.raises(UnsupportedFeature, match="data-evolution"):
        stream.batch(added(_1=1))
    assert stream.reads == 0
