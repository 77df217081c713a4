"""A batch write: one snapshot or nothing, whoever has written its rows."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from paimon_stream.commit.report import CommitReport
from paimon_stream.errors import CommitUnknown, SequenceConflict, TableReplaced
from paimon_stream.maintenance.branches import create_branch
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import branch_storage
from paimon_stream.stream.batch_summary import BatchSummary
from paimon_stream.stream.batch_write import BatchWrite, Replaced, WrittenRows
from paimon_stream.stream.sequence_conflicts import fresh_numbering
from paimon_stream.table.message_files import data_files, remove_files
from paimon_stream.table.references import read_tag
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table
from tests.kits.commits import Bench
from tests.kits.faults import LOST_SNAPSHOT, FaultyStorage
from tests.kits.races import OncePublished
from tests.kits.rivals import Replacing

KEYED = {"bucket": "1", "write-only": "true"}


class Write:
    """A batch write of one file into the table of a bench."""

    def __init__(
        self,
        bench: Bench,
        name: str,
        *,
        replaced: Replaced | None = None,
        identifier: int | None = None,
    ) -> None:
        self.bench = bench
        self.message = bench.message(name)
        numbering = fresh_numbering(bench.table, bench.committer(), replaces=replaced is not None)
        self.rows = WrittenRows(
            table=bench.table, messages=(self.message,), numbering=numbering, millis=7.0
        )
        self.write = BatchWrite(
            user="job",
            digest=SchemaStore(bench.storage).first_digest(),
            after_commit=lambda table, snapshot: None,
            replaced=replaced,
            identifier=identifier,
        )

    def publish(self, table: Table | None = None) -> CommitReport:
        """Publishes in this table, by default that of the bench."""
        rows = self.rows if table is None else replace(self.rows, table=table)
        return self.write.publish_rows(rows, self._remove)

    def has_file(self) -> bool:
        paths = data_files(self.bench.table.layout, [self.message])
        return all(self.bench.storage.exists(path) for path in paths)

    def _remove(self) -> None:
        remove_files(self.bench.storage, data_files(self.bench.table.layout, [self.message]))


def test_rows_become_one_snapshot_that_has_their_summary() -> None:
    bench = Bench()
    Write(bench, "older").publish()
    report = Write(bench, "newer").publish()
    assert report.snapshot_id == 2
    assert bench.live_names() == ["newer", "older"]
    summary = BatchSummary.of(bench.latest().properties)
    assert (summary.files, summary.rows, summary.write_millis) == (1, 10, 7)


def test_an_overwrite_replaces_what_is_in_the_table() -> None:
    bench = Bench()
    Write(bench, "older").publish()
    Write(bench, "newer", replaced=Replaced(partition={}, dynamic=None)).publish()
    assert bench.live_names() == ["newer"]


def test_a_write_with_an_identifier_is_done_once_and_a_repetition_leaves_no_file() -> None:
    bench = Bench()
    first, again = Write(bench, "first", identifier=4), Write(bench, "again", identifier=4)
    assert first.publish().outcome == "committed"
    assert again.publish().outcome == "already committed"
    assert bench.live_names() == ["first"]
    assert not again.has_file()


def test_a_write_that_loses_its_numbers_leaves_no_file() -> None:
    bench = Bench(options=KEYED, keys=("id",))
    ours, theirs = Write(bench, "ours"), Write(bench, "theirs")
    theirs.publish()
    with pytest.raises(SequenceConflict):
        ours.publish()
    assert bench.live_names() == ["theirs"]
    assert not ours.has_file()


def test_a_write_into_a_table_that_was_made_anew_leaves_no_file() -> None:
    write = Write(Bench(), "ours")
    write.write = replace(write.write, digest="that of the older table")
    with pytest.raises(TableReplaced):
        write.publish()
    assert not write.has_file()


def test_files_of_a_write_whose_outcome_is_unknown_stay() -> None:
    bench = Bench(options={"commit.max-retries": "0", "commit.max-retry-wait": "1 ms"})
    write = Write(bench, "ours")
    with pytest.raises(CommitUnknown):
        write.publish(bench.on(FaultyStorage(bench.storage, [LOST_SNAPSHOT])))
    assert write.has_file()
    assert bench.live_names() == ["ours"]


@pytest.mark.parametrize("identifier", [None, 4], ids=["without an identity", "with one"])
def test_a_write_whose_outcome_is_unknown_says_whether_it_can_be_repeated(
    identifier: int | None,
) -> None:
    """It is in the table, and only a repetition with an identity finds it."""
    bench = Bench(options={"commit.max-retries": "0", "commit.max-retry-wait": "1 ms"})
    advice = "Look for a snapshot of this user before" if identifier is None else "Start the query"
    with pytest.raises(CommitUnknown, match=advice):
        Write(bench, "ours", identifier=identifier).publish(
            bench.on(FaultyStorage(bench.storage, [LOST_SNAPSHOT]))
        )
    Write(bench, "again", identifier=identifier).publish()
    assert bench.live_names() == (["again", "ours"] if identifier is None else ["ours"])


def test_files_of_a_lost_write_stay_for_its_tag_although_another_run_has_published_it() -> None:
    bench = Bench()
    Write(bench, "older").publish()
    ours = Write(bench, "ours", identifier=4)

    def tag_and_replace() -> None:
        create_tag(bench.table, "lost", runtime=bench.runtime)
        Replacing(bench).copy_over(2, "java")
        assert Write(bench, "again", identifier=4).publish().outcome == "committed"

    storage = OncePublished(bench.storage, tag_and_replace)
    with pytest.raises(
        CommitUnknown, match=r"another run has published commit 4 .* \(snapshot 3\)"
    ):
        ours.publish(bench.on(cast(Storage, storage)))
    assert ours.has_file()
    tagged = read_tag(bench.storage, "tag/tag-lost")
    assert tagged is not None
    assert bench.names_of(tagged) == ["older", "ours"]
    assert bench.live_names() == ["again", "java", "older"]


def test_files_of_a_write_that_was_rolled_back_stay_for_a_branch_of_what_was_built_on_it() -> None:
    """The branch has the snapshot above that of the write, and never names the latter."""
    bench = Bench(options={"commit.max-retries": "0"})
    Write(bench, "older").publish()
    ours = Write(bench, "ours")

    def branch_and_roll_back() -> None:
        Write(bench, "above").publish()
        create_tag(bench.table, "above", runtime=bench.runtime)
        create_branch(bench.table, "b", "above", runtime=bench.runtime)
        rollback_to(bench.table, 1, runtime=bench.runtime)
        for name in ("next", "last"):
            Write(bench, name).publish()

    storage = OncePublished(bench.storage, branch_and_roll_back)
    with pytest.raises(CommitUnknown, match="rolled back or replaced"):
        ours.publish(bench.on(cast(Storage, storage)))
    branched = SnapshotStore(branch_storage(bench.storage, "b")).latest()
    assert branched is not None
    assert bench.names_of(branched) == ["above", "older", "ours"]
    assert ours.has_file()
