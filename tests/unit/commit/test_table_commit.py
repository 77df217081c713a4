"""Committing without Spark: replays are found, no message is dropped without an error, and abort
keeps files in use.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from paimon_stream._version import __version__
from paimon_stream.commit.report import CommitReport, Phase
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import (
    CommitLost,
    DeletedFiles,
    HistoryUnknown,
    InvalidOption,
    PaimonStreamError,
    SharedCheckpoint,
    TableRolledBack,
    UnsupportedFeature,
)
from paimon_stream.format.entries import IndexFileMeta
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, encode_snapshot
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.options import Options
from paimon_stream.storage.base import MOST_BYTES
from paimon_stream.stream.writable import check_writable
from paimon_stream.table.journal import Journal, JournalEntry
from paimon_stream.table.layout import snapshot_path
from paimon_stream.table.row_ids import ROW_ID
from paimon_stream.table.table import load_table
from tests.kits.commits import Bench, data_file
from tests.kits.faults import FaultyStorage


def table_commit(bench: Bench, user: str = "me", **more: object) -> TableCommit:
    return TableCommit(bench.table, user, runtime=bench.runtime, **more)  # type: ignore[arg-type]


# -- commit
# ----------------------------------------------------------------------------------------------


def test_a_commit_reports_what_it_published() -> None:
    bench = Bench()
    report = table_commit(bench).commit(
        3, [bench.message("a"), bench.message("b", rows=5)], watermark=9
    )
    assert (report.outcome, report.snapshot_id, report.identifier) == ("committed", 1, 3)
    assert (report.rows, report.files, report.bytes, report.attempts) == (15, 2, 8, 1)
    assert (report.location, report.user, report.reused) == (bench.storage.location, "me", False)
    assert list(report.phases) == ["base", "check", "stage", "publish", "confirm", "hint"]
    assert bench.latest().watermark == 9


def test_a_commit_of_nothing_reports_empty() -> None:
    bench = Bench()
    report = table_commit(bench).commit(3, [])
    assert (report.outcome, report.snapshot_id, report.rows, report.millis) == ("empty", None, 0, 0)
    assert bench.snapshots.ids() == []


def test_properties_are_stored_on_the_snapshot() -> None:
    bench = Bench()
    table_commit(bench).commit(0, [bench.message("a")], properties={"k": "v"})
    assert dict(bench.latest().properties) == {
        "paimon-stream.version": __version__,
        "paimon-stream.nonce": bench.latest().nonce,
        "k": "v",
    }


def test_a_blind_commit_does_not_look_back() -> None:
    bench = Bench()
    mine = table_commit(bench)
    for name in ("a", "b"):
        mine.commit(0, [bench.message(name)])
    bench.audit(["a", "b"])


@dataclass
class Twin:
    """The same user publishes an identifier while ours is staged."""

    bench: Bench
    identifier: int

    def reached(self, phase: Phase, identifier: int) -> None:
        if phase is Phase.STAGED and "twin" not in self.bench.live_names():
            table_commit(self.bench).commit(self.identifier, [self.bench.message("twin")])


@pytest.mark.parametrize("identifier", [4, 5])
def test_a_second_writer_under_the_same_user_is_an_error_of_a_blind_commit(identifier: int) -> None:
    bench = Bench()
    with pytest.raises(SharedCheckpoint) as caught:
        table_commit(bench, observer=Twin(bench, identifier)).commit(4, [bench.message("mine")])
    assert caught.value.context["batch"] == 4
    bench.audit(["twin"], orphans=True)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"type": "format-table"}, UnsupportedFeature),
        ({"data-evolution.enabled": "true"}, UnsupportedFeature),
        ({"branch": "dev"}, UnsupportedFeature),
        ({"manifest.format": "orc"}, UnsupportedFeature),
    ],
)
def test_tables_whose_commits_are_more_than_messages_are_refused(
    options: dict[str, str], error: type[PaimonStreamError]
) -> None:
    table = Bench().table
    with pytest.raises(error):
        TableCommit(replace(table, options=Options(options)), "me")


def test_what_another_engine_prepared_for_a_table_with_a_key_is_committed_as_it_is() -> None:
    bench = Bench(options={"bucket": "2", "deletion-vectors.enabled": "true"}, keys=("id",))
    with pytest.raises(UnsupportedFeature):
        check_writable(bench.table)
    for number in range(2):
        table_commit(bench).commit(number, [bench.message(f"f{number}")])
    assert {e.file.min_sequence_number for e in bench.live()} == {0}


# -- filter_and_commit
# -----------------------------------------------------------------------------------


def test_a_replay_publishes_only_what_is_newer_than_the_last_commit() -> None:
    bench = Bench()
    messages = {n: [bench.message(f"f{n}")] for n in range(4)}
    mine = table_commit(bench)
    assert mine.filter_and_commit({1: messages[1], 0: messages[0]}) == 2
    assert table_commit(bench).filter_and_commit(messages) == 2
    assert table_commit(bench).filter_and_commit(messages) == 0
    bench.audit([f"f{n}" for n in range(4)])
    assert [bench.snapshots.get(n).commit_identifier for n in range(1, 5)] == [0, 1, 2, 3]


def test_other_users_do_not_filter() -> None:
    bench = Bench()
    table_commit(bench, "you").filter_and_commit({5: [bench.message("a")]})
    assert table_commit(bench).filter_and_commit({5: [bench.message("b")]}) == 1


def test_a_batch_commit_of_the_same_user_does_not_swallow_later_commits() -> None:
    bench = Bench()
    table_commit(bench).commit(0, [bench.message("a")])
    table_commit(bench).commit(BATCH_IDENTIFIER, [bench.message("b")])
    assert (
        table_commit(bench).filter_and_commit({0: [bench.message("c")], 1: [bench.message("d")]})
        == 1
    )
    bench.audit(["a", "b", "d"])


def test_nothing_to_replay_is_nothing() -> None:
    bench = Bench()
    assert table_commit(bench).filter_and_commit({}) == 0
    assert table_commit(bench).filter_and_commit({0: []}) == 0
    assert bench.snapshots.ids() == []


def test_files_that_are_gone_are_refused() -> None:
    bench = Bench()
    message = bench.message("a")
    bench.storage.delete("bucket-0/a")
    with pytest.raises(DeletedFiles, match="bucket-0/a"):
        table_commit(bench).filter_and_commit({0: [message]})


@pytest.mark.parametrize(
    "part",
    [
        *("new_files", "changelog_files", "new_index_files"),
        *("compact_after", "compact_changelog_files", "compact_new_index_files"),
    ],
)
def test_a_file_that_is_gone_from_any_of_them_leaves_all_unpublished(part: str) -> None:
    bench = Bench()
    index = IndexFileMeta(index_type="HASH", file_name="gone", file_size=1, row_count=1)
    lost = (index if "index" in part else data_file("gone"),)
    later = replace(bench.message("b"), **{part: lost})  # type: ignore[arg-type]
    with pytest.raises(DeletedFiles, match=r"commit 1 of .* have been deleted: .*gone. Nothing"):
        table_commit(bench).filter_and_commit({0: [bench.message("a")], 1: [later]})
    assert bench.snapshots.ids() == []


def test_what_a_compaction_took_away_may_be_gone() -> None:
    bench = Bench()
    table_commit(bench).commit(0, [bench.message("a")])
    packed = bench.compaction("a", into="b")
    bench.storage.delete("bucket-0/a")
    assert table_commit(bench).filter_and_commit({1: [packed]}) == 1
    bench.audit(["b"])


def test_the_same_messages_under_another_user_are_refused() -> None:
    bench = Bench()
    message = bench.message("a")
    table_commit(bench, "you").commit(0, [message])
    with pytest.raises(DeletedFiles, match="in the table already"):
        table_commit(bench).filter_and_commit({0: [message]})


def test_a_message_that_asks_for_a_search_for_conflicts_is_aborted_but_not_committed() -> None:
    bench = Bench()
    message = replace(bench.message("a"), check_from_snapshot=1)
    commits = table_commit(bench)
    for call in (
        lambda: commits.commit(0, [message]),
        lambda: commits.filter_and_commit({0: [bench.message("b")], 1: [message]}),
        lambda: commits.overwrite({}, [message]),
    ):
        with pytest.raises(UnsupportedFeature, match=r"since snapshot 1, .* nothing was"):
            call()
    assert bench.snapshots.ids() == []
    assert commits.abort([message]) == 1


EVOLVING = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}


@pytest.mark.parametrize(
    "part",
    [
        {"new_files": (replace(data_file("a"), first_row_id=3, write_cols=("id",)),)},
        {"new_files": (replace(data_file("a"), write_cols=("id",)),)},
        {"new_files": (replace(data_file("a"), write_cols=("id", "dt", ROW_ID)),)},
        {"deleted_files": (data_file("a"),)},
        {"compact_before": (data_file("a"),), "compact_after": (data_file("b"),)},
        {
            "new_index_files": (
                IndexFileMeta(
                    index_type="DELETION_VECTORS", file_name="i", file_size=1, row_count=1
                ),
            )
        },
    ],
    ids=["columns", "some columns", "ids in the file", "removed", "compacted", "index"],
)
def test_of_a_table_with_data_evolution_only_whole_new_rows_are_committed(
    part: dict[str, Any],
) -> None:
    bench = Bench(options=EVOLVING)
    message = replace(bench.message("f"), **part)
    for call in (
        lambda: table_commit(bench).commit(0, [message]),
        lambda: table_commit(bench).filter_and_commit({0: [message]}),
    ):
        with pytest.raises(UnsupportedFeature, match=r"more than add whole rows.* Nothing was"):
            call()
    assert bench.snapshots.ids() == []
    whole = replace(
        bench.message("f"),
        new_files=(replace(data_file("f"), write_cols=bench.table.schema.field_names),),
    )
    assert table_commit(bench).commit(0, [whole]).snapshot_id == 1
    (entry,) = bench.live()
    assert entry.file.first_row_id == 0


def expired(options: dict[str, str] | None = None) -> tuple[Bench, list[object]]:
    bench = Bench(options=options or {})
    message = bench.message("a")
    table_commit(bench).commit(3, [message])
    for number in range(3):
        table_commit(bench, "you").commit(number, [bench.message(f"o{number}")])
    bench.expire(2)
    return bench, [message]


def test_a_replay_is_refused_if_no_snapshot_of_the_user_is_left() -> None:
    bench, messages = expired()
    with pytest.raises(HistoryUnknown, match="before 3 have expired") as caught:
        table_commit(bench).filter_and_commit({3: messages})  # type: ignore[dict-item]
    assert caught.value.context["option"] == "paimon-stream.on-unknown-history"


def test_an_operator_may_let_it_continue_and_is_still_kept_from_doubling_live_files() -> None:
    bench, messages = expired()
    table = load_table(bench.storage, {"paimon-stream.on-unknown-history": "continue"})
    mine = TableCommit(table, "me", runtime=bench.runtime)
    with pytest.raises(DeletedFiles, match="in the table already"):
        mine.filter_and_commit({3: messages})  # type: ignore[dict-item]
    assert mine.filter_and_commit({4: [bench.message("b")]}) == 1


@pytest.mark.parametrize("identifier", [-1, 0, 5])
def test_any_identifier_is_unknown_where_the_snapshots_of_the_user_may_have_expired(
    identifier: int,
) -> None:
    """An overwrite that is repeated would replace the rows that others have written since."""
    bench = Bench()
    overwriting = table_commit(bench)
    overwriting.overwrite({}, [bench.message("a")], identifier)
    for number in range(3):
        table_commit(bench, "you").commit(number, [bench.message(f"o{number}")])
    bench.expire(2)
    with pytest.raises(HistoryUnknown, match="before 3 have expired"):
        table_commit(bench).overwrite({}, [bench.message("a2")], identifier)
    with pytest.raises(HistoryUnknown, match="before 3 have expired"):
        table_commit(bench).filter_and_commit({identifier: [bench.message("a3")]})
    assert table_commit(bench).filter_and_commit({}) == 0
    bench.audit(["a", "o0", "o1", "o2"])


def test_an_overwrite_that_can_be_repeated_needs_an_identifier_of_its_own() -> None:
    bench = Bench()
    with pytest.raises(InvalidOption, match="at most 9223372036854775806, or leave it out"):
        table_commit(bench).overwrite({}, [bench.message("a")], BATCH_IDENTIFIER)
    assert bench.snapshots.ids() == []


@pytest.mark.parametrize("identifier", [0, 5])
def test_a_first_snapshot_that_was_created_again_proves_no_whole_history(identifier: int) -> None:
    bench, late = Bench(), Bench(seed=1)
    table_commit(late, "late").commit(0, [late.message("late")])
    table_commit(bench).overwrite({}, [bench.message("a")], identifier)
    table_commit(bench, "you").commit(0, [bench.message("o")])
    bench.expire(1)
    for stat in late.storage.list_files("manifest"):
        bench.storage.write(stat.path, late.storage.read(stat.path))
    bench.storage.write(snapshot_path(1), late.storage.read(snapshot_path(1)))
    with pytest.raises(HistoryUnknown, match="before 2 have expired"):
        table_commit(bench).overwrite({}, [bench.message("a2")], identifier)


def test_a_twin_that_replays_the_same_identifier_first_wins_without_an_error() -> None:
    bench = Bench()
    mine = table_commit(bench, observer=Twin(bench, 4))
    assert mine.filter_and_commit({4: [bench.message("mine")], 5: [bench.message("next")]}) == 1
    bench.audit(["next", "twin"], orphans=True)


def test_a_twin_that_is_ahead_is_an_error() -> None:
    bench = Bench()
    mine = table_commit(bench, observer=Twin(bench, 9))
    with pytest.raises(SharedCheckpoint):
        mine.filter_and_commit({4: [bench.message("mine")]})


# -- abort
# -----------------------------------------------------------------------------------------------


def test_abort_deletes_the_files_of_messages_that_were_not_committed() -> None:
    bench = Bench(partitioned=True)
    messages = [bench.message("a", dt="x"), bench.message("b", dt="y")]
    assert table_commit(bench).abort(messages) == 2
    assert bench.storage.list_files("dt=x/bucket-0") == []
    assert bench.storage.list_files("dt=y/bucket-0") == []


def test_abort_refuses_files_that_are_in_the_table() -> None:
    bench = Bench()
    messages = [bench.message("a"), bench.message("b")]
    table_commit(bench).commit(0, messages[:1])
    with pytest.raises(DeletedFiles, match="must not be deleted"):
        table_commit(bench).abort(messages)
    assert bench.storage.stat("bucket-0/b").size == 4
    bench.audit(["a"])


def test_abort_refuses_files_that_only_a_tag_remembers() -> None:
    bench = Bench()
    message = bench.message("a")
    table_commit(bench).commit(0, [message])
    bench.storage.write("tag/tag-keep", bench.storage.read("snapshot/snapshot-1"))
    bench.storage.delete("snapshot/snapshot-1")
    with pytest.raises(DeletedFiles):
        table_commit(bench).abort([message])


def test_abort_refuses_files_that_only_a_branch_or_a_long_lived_changelog_refers_to() -> None:
    for root, beside in (
        ("branch/branch-b/snapshot/snapshot-1", "branch/branch-b/schema/schema-0"),
        ("branch/branch-b/tag/tag-t", "branch/branch-b/schema/schema-0"),
        ("changelog/changelog-1", "changelog/LATEST"),
    ):
        bench = Bench()
        message = bench.message("a")
        table_commit(bench).commit(0, [message])
        bench.storage.write(root, bench.storage.read("snapshot/snapshot-1"))
        bench.storage.write(beside, bench.storage.read("schema/schema-0"))
        bench.storage.delete("snapshot/snapshot-1")
        with pytest.raises(DeletedFiles, match="branch"):
            table_commit(bench).abort([message])
        assert bench.storage.stat("bucket-0/a").size == 4


def test_abort_refuses_files_that_a_journal_notes() -> None:
    bench = Bench()
    message = bench.message("a")
    noted = JournalEntry(
        batch_id=0,
        messages=(message,),
        stage_uuids=("u",),
        query_id=None,
        run_id=None,
        checkpoint=None,
        query_name=None,
        offsets_hash=None,
        schema_digest="",
        schema_id=0,
        total_buckets=-1,
        base=None,
        previous=None,
        prepared_millis=0,
    )
    for entry in (noted, replace(noted, messages=(), abandoned=("bucket-0/a",))):
        Journal(bench.storage, "a stream").write(entry)
        with pytest.raises(DeletedFiles):
            table_commit(bench).abort([message])
    Journal(bench.storage, "a stream").remove(0)
    assert table_commit(bench).abort([message]) == 1


# -- reports
# ---------------------------------------------------------------------------------------------


def report(**more: object) -> CommitReport:
    given = {"location": "/w/t", "user": "me", "identifier": 3, "outcome": "committed", **more}
    return CommitReport(**given)  # type: ignore[arg-type]


def test_a_report_is_a_value() -> None:
    one = report(phases={"stage": 1.5, "wait": 2.5})
    assert one == report(phases={"stage": 1.5, "wait": 2.5})
    assert one != report()
    assert hash(one) == hash(report(phases={"stage": 1.5, "wait": 2.5}))
    assert pickle.loads(pickle.dumps(one)) == one
    assert one.millis == 4.0
    with pytest.raises(AttributeError):
        one.rows = 3  # type: ignore[misc]


def test_a_report_shows_itself_in_one_line_and_as_a_table() -> None:
    one = report(snapshot_id=8, rows=1000, files=2, bytes=5000, phases={"stage": 1.5})
    assert repr(one) == (
        "<CommitReport 3 committed as snapshot 8, 1000 rows in 2 files, 5000 bytes, 2 ms>"
    )
    assert repr(replace(one, identifier=BATCH_IDENTIFIER)).startswith(
        "<CommitReport batch write committed"
    )
    shown = report(user="<b>", rows=1000, phases={"stage": 1.5})._repr_html_()
    assert "&lt;b&gt;" in shown and "<b>" not in shown
    assert "1,000" in shown and "stage, ms" in shown


def test_a_report_of_an_earlier_commit_says_so() -> None:
    one = CommitReport(
        location="/w/t", user="me", identifier=3, snapshot_id=None, outcome="already committed"
    )
    assert (one.outcome, one.snapshot_id, repr(one)) == (
        "already committed",
        None,
        "<CommitReport 3 already committed, 0 ms>",
    )


# -- a last commit that is lost
# ------------------------------------------------------------------------


def replaced(bench: Bench, snapshot_id: int) -> None:
    """A writer of another engine copies its snapshot over ours, as Java does where nothing is
    atomic.
    """
    ours = bench.snapshots.get(snapshot_id)
    nothing = bench.snapshots.get(1).base_manifest_list
    theirs = replace(
        ours, commit_user="java", delta_manifest_list=nothing, delta_manifest_list_size=None
    )
    bench.storage.write(f"snapshot/snapshot-{snapshot_id}", encode_snapshot(theirs))


def lost_by_copy(bench: Bench) -> None:
    replaced(bench, bench.latest().id)


def lost_by_copy_and_followed(bench: Bench) -> None:
    replaced(bench, bench.latest().id)
    table_commit(bench, "java").commit(9, [bench.message("java-9")])


def lost_by_rollback_and_rewriting(bench: Bench) -> None:
    rollback_to(bench.table, 1, runtime=bench.runtime)
    table_commit(bench, "java").commit(9, [bench.message("java-9")])


CALLS: dict[str, Callable[[TableCommit, Bench], object]] = {
    "commit": lambda commit, bench: commit.commit(3, [bench.message("late")]),
    "filter_and_commit": lambda commit, bench: commit.filter_and_commit(
        {3: [bench.message("late")]}
    ),
    "overwrite": lambda commit, bench: commit.overwrite({}, [bench.message("late")]),
    "append": lambda commit, bench: commit.append((bench.message("late"),), None),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize(
    "how", [lost_by_copy, lost_by_copy_and_followed, lost_by_rollback_and_rewriting]
)
def test_a_commit_never_follows_one_that_was_lost_without_a_word(
    how: Callable[[Bench], None], call: Callable[[TableCommit, Bench], object]
) -> None:
    bench = Bench()
    commit = table_commit(bench)
    for number in (1, 2):
        commit.commit(number, [bench.message(f"f{number}")])
    how(bench)
    ids = bench.snapshots.ids()
    for _ in range(2):  # each time, until a new writer is made
        with pytest.raises(CommitLost, match="snapshot 2, the last one that user 'me'") as caught:
            call(commit, bench)
        for part in ("'java'", "replaced it", "rolled back and written again", "new_commit()"):
            assert part in str(caught.value)
        bench.storage.delete("bucket-0/late")
    assert bench.snapshots.ids() == ids
    call(table_commit(bench), bench)
    assert len(bench.snapshots.ids()) == len(ids) + 1


def test_a_commit_after_a_rollback_of_the_last_one_is_refused() -> None:
    bench = Bench()
    commit = table_commit(bench)
    for number in (1, 2, 3):
        commit.commit(number, [bench.message(f"f{number}")])
    rollback_to(bench.table, 1, runtime=bench.runtime)
    with pytest.raises(
        TableRolledBack,
        match=r"snapshot 3, .* is gone, and snapshot 1 is the newest.* Start the query again, or call",
    ):
        commit.commit(4, [bench.message("f4")])
    assert bench.snapshots.ids() == [1]


def test_a_last_commit_that_has_expired_is_no_loss() -> None:
    bench = Bench()
    commit = table_commit(bench)
    commit.commit(1, [bench.message("f1")])
    for number in range(3):
        table_commit(bench, "you").commit(number, [bench.message(f"y{number}")])
    bench.expire(2)
    assert commit.commit(2, [bench.message("f2")]).snapshot_id == 5


def test_a_last_commit_that_is_replaced_while_the_next_one_is_under_way_is_lost() -> None:
    bench = Bench()
    storage = Copying(bench)
    commit = TableCommit(bench.on(storage), "me", runtime=bench.runtime)
    commit.commit(1, [bench.message("f1")])
    storage.armed = True
    with pytest.raises(CommitLost):
        commit.commit(2, [bench.message("f2")])


class Copying(FaultyStorage):
    """Another engine replaces snapshot 1 right after the next commit has looked at it once."""

    __slots__ = ("armed", "bench")

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.storage)
        self.armed = False
        self.bench = bench

    def read(self, path: str, limit: int = MOST_BYTES) -> bytes:
        data = super().read(path, limit)
        if self.armed and path == "snapshot/snapshot-1":
            self.armed = False
            replaced(self.bench, 1)
        return data
