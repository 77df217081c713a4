"""The checks of each kind of commit, their cost, and the options that change them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from paimon_stream.commit.committer import CommitRequest, Committer, Nothing, Outcome, Published
from paimon_stream.commit.plan import Changes, collect
from paimon_stream.commit.report import Phase
from paimon_stream.commit.request import Fixed
from paimon_stream.errors import (
    BucketCountChanged,
    CommitConflict,
    DeletedFiles,
    KeyRangeOverlap,
    SchemaChanged,
    StrictModeViolated,
)
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import FileKind, IndexFileMeta
from paimon_stream.format.schema_json import encode_schema
from paimon_stream.format.snapshot_json import CommitKind
from tests.kits.commits import FIELDS, Bench, data_file
from tests.kits.faults import FaultyStorage

UNMERGED = {"manifest.merge-min-count": "10000"}


def append(
    bench: Bench, name: str, *, user: str = "old", committer: Committer | None = None, **more: Any
) -> None:
    made = bench.message(name, **more)
    assert isinstance(
        (committer or bench.committer()).commit(bench.request(0, [made], user=user)), Published
    )


def refused(outcome: Outcome) -> CommitConflict:
    """The conflict of a compaction that was left out."""
    assert isinstance(outcome, Published | Nothing)
    assert isinstance(outcome.compact_failed, CommitConflict)
    return outcome.compact_failed


def checked(bench: Bench, message: CommitMessage, identifier: int = 7) -> CommitRequest:
    return bench.request(identifier, [message], checked=True)


# -- replays ---------------------------------------------------------------------------------------


def test_messages_that_were_committed_under_another_name_are_refused() -> None:
    bench = Bench()
    message = bench.message("a")
    bench.committer().commit(bench.request(0, [message], user="you"))
    with pytest.raises(DeletedFiles, match="in the table already: a"):
        bench.committer().commit(checked(bench, message))
    bench.audit(["a"], orphans=True)


def test_messages_whose_files_were_compacted_since_are_refused() -> None:
    bench = Bench()
    messages = [bench.message(name) for name in "ab"]
    bench.committer().commit(bench.request(0, messages, user="you"))
    bench.committer().commit(bench.request(1, [bench.compaction("a", "b", into="c")], user="you"))
    with pytest.raises(DeletedFiles, match="compacted or overwritten since: a"):
        bench.committer().commit(checked(bench, messages[0]))
    bench.audit(["c"], orphans=True)


def test_a_table_that_lists_a_file_twice_takes_no_checked_commit_and_goes_on_with_others() -> None:
    bench = Bench(partitioned=True)
    message = bench.message("a", dt="x")
    for number in range(2):
        bench.committer().commit(bench.request(number, [message]))
    with pytest.raises(DeletedFiles, match="listed twice by earlier commits"):
        bench.committer().commit(checked(bench, bench.message("b", dt="x")))
    with pytest.raises(DeletedFiles, match="listed twice by earlier commits"):
        bench.committer().commit(bench.overwriting(8, dt="x"))
    bench.committer().commit(checked(bench, bench.message("c", dt="y")))
    append(bench, "d", dt="x")
    assert bench.live_names() == ["a", "a", "c", "d"]


@pytest.mark.parametrize("part", ["changelog_files", "new_index_files"])
def test_changelogs_and_indexes_of_a_replay_must_exist_as_well(part: str) -> None:
    bench = Bench()
    index = IndexFileMeta(index_type="HASH", file_name="gone", file_size=1, row_count=1)
    files: dict[str, Any] = {"changelog_files": data_file("gone"), "new_index_files": index}
    message = replace(bench.message("a"), **{part: (files[part],)})
    with pytest.raises(DeletedFiles, match=r"have been deleted: .*gone"):
        bench.committer().commit(checked(bench, message))


def test_files_of_a_schema_that_is_not_there_are_refused_and_of_one_that_came_later_are_not() -> (
    None
):
    bench = Bench()
    committer = bench.committer()
    message = bench.message("a")
    newer = replace(message, new_files=(replace(message.new_files[0], schema_id=1),))
    with pytest.raises(SchemaChanged, match="schema 1"):
        committer.commit(bench.request(0, [newer]))
    bench.storage.write("schema/schema-1", encode_schema(replace(bench.table.schema, id=1)))
    assert isinstance(committer.commit(bench.request(0, [newer])), Published)


# -- compactions -----------------------------------------------------------------------------------


def test_the_second_of_two_compactions_of_the_same_files_is_left_out() -> None:
    bench = Bench()
    for name in "ab":
        append(bench, name)
    first, second = (bench.compaction("a", "b", into=into) for into in "cd")
    assert isinstance(bench.committer().commit(bench.request(1, [first], user="you")), Published)
    conflict = refused(bench.committer().commit(bench.request(1, [second])))
    assert isinstance(conflict, DeletedFiles)
    assert conflict.context["commit_kind"] == "COMPACT"
    bench.audit(["c"], orphans=True)


def test_a_compaction_that_conflicts_leaves_the_rows_of_its_batch_published() -> None:
    bench = Bench()
    append(bench, "a")
    late = bench.compaction("a", into="b")
    append_and_compact = replace(late, new_files=bench.message("new").new_files)
    bench.committer().commit(bench.request(1, [bench.compaction("a", into="c")], user="you"))
    assert isinstance(
        refused(bench.committer().commit(bench.request(1, [append_and_compact]))), DeletedFiles
    )
    bench.audit(["c", "new"], orphans=True)


KEYED: dict[str, Any] = {"options": {"bucket": "1"}, "keys": ("id",)}


def keys(low: int, high: int, level: int = 5) -> dict[str, Any]:
    types = (FIELDS[0].type,)
    return {
        "level": level,
        "min_key": serialize(types, (low,)),
        "max_key": serialize(types, (high,)),
    }


def test_two_compactions_whose_keys_overlap_in_one_level_do_not_both_come_in() -> None:
    bench = Bench(**KEYED)
    for name in "abc":
        append(bench, name)
    messages = [
        bench.compaction("a", into="x", **keys(0, 10)),
        bench.compaction("b", into="y", **keys(11, 20)),
        bench.compaction("c", into="z", **keys(20, 30)),
    ]
    committer = bench.committer()
    for number, message in enumerate(messages[:2]):
        assert isinstance(committer.commit(bench.request(number, [message])), Published)
    conflict = refused(committer.commit(bench.request(2, [messages[2]], user="you")))
    assert isinstance(conflict, KeyRangeOverlap)
    assert conflict.context["files"] == ("y", "z")
    bench.audit(["c", "x", "y"], orphans=True)


def test_files_appended_to_an_upper_level_are_held_against_it_though_appends_are_not_checked() -> (
    None
):
    bench = Bench(**KEYED)
    low, high = (replace(data_file(name), **keys(0, 9)) for name in ("low", "high"))
    message = replace(bench.message("low"), new_files=(low,))
    bench.committer().commit(bench.request(0, [message]))
    with pytest.raises(KeyRangeOverlap):
        bench.committer().commit(
            bench.request(1, [replace(bench.message("high"), new_files=(high,))])
        )


def test_another_bucket_count_is_named_before_the_files_that_went_with_it() -> None:
    bench = Bench(options={"bucket": "4", "bucket-key": "id"})
    append(bench, "a")
    late = bench.compaction("a", into="b")
    bench.committer().commit(bench.overwriting(0, [bench.message("c", total=8)]))
    assert isinstance(
        refused(bench.committer().commit(bench.request(1, [late]))), BucketCountChanged
    )


# -- overwrites ------------------------------------------------------------------------------------


def test_an_overwrite_of_messages_with_deletes_is_held_against_the_table() -> None:
    bench = Bench()
    for name in "ab":
        append(bench, name)
    files = {entry.file.file_name: entry.file for entry in bench.live()}
    message = replace(bench.message("c"), deleted_files=(files["a"],))
    outcome = bench.committer().commit(bench.request(0, [message]))
    assert isinstance(outcome, Published)
    assert outcome.snapshot.commit_kind is CommitKind.OVERWRITE
    with pytest.raises(DeletedFiles, match="no longer in the table: a"):
        bench.committer().commit(
            bench.request(1, [replace(bench.message("d"), deleted_files=(files["a"],))])
        )
    bench.audit(["b", "c"], orphans=True)


def test_changes_that_are_the_same_on_every_base_are_not_taken_for_those_of_this_one() -> None:
    bench = Bench()
    append(bench, "a")
    gone = replace(bench.live()[0], kind=FileKind.DELETE)
    for number in range(2):
        source = Fixed(Changes(entries=(gone,)))
        request = bench.request(number, source=source, kind=CommitKind.OVERWRITE)
        if number == 0:
            bench.committer().commit(request)
        else:
            with pytest.raises(DeletedFiles, match="no longer in the table"):
                bench.committer().commit(request)


def test_an_overwrite_reads_the_files_it_replaces_once() -> None:
    bench = Bench(partitioned=True, options=UNMERGED)
    for name in "abc":
        append(bench, name, dt="x")
        append(bench, name, dt="y")
    storage = FaultyStorage(bench.storage)
    bench.manifests._storage = storage  # the source of the overwrite reads there, too
    bench.committer(storage).commit(bench.overwriting(1, [bench.message("d", dt="x")], dt="x"))
    read = manifests_read(storage)
    assert len(read) == len(set(read)) == 3
    assert bench.live_names() == ["a", "b", "c", "d"]


def test_an_overwrite_that_brings_back_a_file_that_is_live_is_refused() -> None:
    bench = Bench()
    message = bench.message("a")
    bench.committer().commit(bench.request(0, [message]))
    with pytest.raises(DeletedFiles, match="a"):
        bench.committer().commit(bench.overwriting(1, [message]))


def test_an_overwrite_numbers_its_rows_behind_those_that_it_leaves() -> None:
    bench = Bench(options={"bucket": "2", "bucket-key": "id"})
    for name in "ab":
        bench.committer().commit(bench.request(0, [bench.message(name)], renumber=True))
    files = {entry.file.file_name: entry.file for entry in bench.live()}
    message = replace(bench.message("c"), deleted_files=(files["a"],))
    source = Fixed(collect([message], table_buckets=2).append)
    bench.committer().commit(
        bench.request(1, source=source, kind=CommitKind.OVERWRITE, renumber=True)
    )
    numbers = {e.file.file_name: e.file.min_sequence_number for e in bench.live()}
    assert numbers == {"b": 10, "c": 20}


# -- cost ------------------------------------------------------------------------------------------


def manifests_read(storage: FaultyStorage) -> list[str]:
    read = [path for verb, path in storage.operations if verb == "read" and "/manifest-" in path]
    return [path for path in read if "-list-" not in path]


@pytest.mark.parametrize("mode", ["value", "row_incremental"])
def test_checking_costs_the_same_however_large_the_rest_of_the_table_is(mode: str) -> None:
    costs = []
    for partitions in (16, 64):
        bench = Bench(partitioned=True, options={**UNMERGED, "conflict-detection-mode": mode})
        writer = bench.committer()
        for number in range(partitions):
            append(bench, f"old-{number}", dt=f"d{number:03}", committer=writer)
        storage = FaultyStorage(bench.storage)
        committer = bench.committer(storage)
        committer.commit(checked(bench, bench.message("a", dt="d001")))
        assert len(manifests_read(storage)) == 1
        bench.committer().commit(
            bench.request(8, [bench.compaction("old-2", into="c")], user="you")
        )
        committer.commit(bench.request(9, [bench.compaction("old-1", into="b")]))
        committer.commit(bench.overwriting(10, [bench.message("d", dt="d002")], dt="d002"))
        costs.append(len(storage.operations))
    assert costs[0] == costs[1]


@dataclass
class Between:
    """What others do between the attempts of a commit: one thing after each staging, while there is
    one.
    """

    todo: list[Callable[[], object]]

    def reached(self, phase: Phase, identifier: int) -> None:
        if phase is Phase.STAGED and self.todo:
            self.todo.pop(0)()


def reads_of_attempts(
    bench: Bench, request: CommitRequest, *between: Callable[[], object]
) -> list[str]:
    """The manifests that a commit reads which loses a race to each of these."""
    storage = FaultyStorage(bench.storage)
    outcome = bench.committer(storage, observer=Between(list(between))).commit(request)
    assert isinstance(outcome, Published)
    assert outcome.attempts == len(between) + 1
    return manifests_read(storage)


def grown(mode: str = "value", size: int = 5) -> Bench:
    """A partitioned table with some manifests in each of two partitions."""
    bench = Bench(partitioned=True, options={**UNMERGED, "conflict-detection-mode": mode})
    writer = bench.committer()
    for number in range(size):
        append(bench, f"x{number}", dt="x", committer=writer)
        append(bench, f"y{number}", dt="y", committer=writer)
    return bench


def test_a_second_attempt_reads_only_what_was_committed_between() -> None:
    bench = grown()
    read = reads_of_attempts(
        bench,
        checked(bench, bench.message("mine", dt="x")),
        lambda: append(bench, "o1", dt="x"),
        lambda: (append(bench, "o2", dt="y"), append(bench, "o3", dt="x")),
    )
    assert len(read) == len(set(read)) == 5 + 1 + 1
    bench.audit(
        [*(f"{dt}{n}" for dt in "xy" for n in range(5)), "mine", "o1", "o2", "o3"], orphans=True
    )


def test_after_an_overwrite_between_the_touched_partitions_are_read_anew() -> None:
    bench = grown()
    read = reads_of_attempts(
        bench,
        checked(bench, bench.message("mine", dt="x")),
        lambda: bench.committer().commit(
            bench.overwriting(0, [bench.message("new", dt="y")], user="o", dt="y")
        ),
    )
    assert len(read) == 5 + 5
    bench.audit([*(f"x{n}" for n in range(5)), "mine", "new"], orphans=True)


def test_after_a_gap_in_the_window_the_touched_partitions_are_read_anew() -> None:
    bench = grown()

    def race() -> None:
        for name in ("o1", "o2"):
            append(bench, name, dt="x")
        bench.expire(bench.latest().id - 1)

    request = replace(checked(bench, bench.message("mine", dt="x")), fence=lambda: True)
    read = reads_of_attempts(bench, request, race)
    assert [read.count(path) for path in read[:5]] == [2] * 5


def test_row_incremental_reads_from_commit_to_commit_only_what_others_did() -> None:
    counts = {}
    for mode in ("value", "row_incremental"):
        bench = grown(mode)
        storage = FaultyStorage(bench.storage)
        committer = bench.committer(storage)
        read = []
        for number in range(4):
            if number == 2:
                append(bench, "theirs", dt="x", user="you")
            before = len(manifests_read(storage))
            committer.commit(checked(bench, bench.message(f"mine{number}", dt="x"), number))
            read.append(len(manifests_read(storage)) - before)
        counts[mode] = read
        with pytest.raises(DeletedFiles, match="in the table already"):
            committer.commit(checked(bench, bench.message("theirs", dt="x"), 9))
    assert counts == {"value": [5, 6, 8, 9], "row_incremental": [5, 0, 1, 0]}


def test_row_incremental_follows_over_commits_that_need_no_check() -> None:
    bench = grown("row_incremental")
    storage = FaultyStorage(bench.storage)
    committer = bench.committer(storage)
    committer.commit(checked(bench, bench.message("mine0", dt="x"), 0))
    append(bench, "theirs", dt="x", user="you")
    message = bench.message("mine1", dt="x")
    committer.commit(bench.request(1, [message]))
    before = len(manifests_read(storage))
    with pytest.raises(DeletedFiles, match="in the table already: mine1"):
        committer.commit(checked(bench, message, 2))
    assert len(manifests_read(storage)) - before == 2


def test_row_incremental_starts_anew_after_a_rollback() -> None:
    bench = grown("row_incremental")
    committer = bench.committer()
    for number in range(2):
        committer.commit(checked(bench, bench.message(f"mine{number}", dt="x"), number))
    last = bench.latest()
    bench.storage.delete(f"snapshot/snapshot-{last.id}")
    bench.storage.write("snapshot/LATEST", str(last.id - 1).encode())
    append(bench, "other", dt="x", user="you")
    append(bench, "another", dt="x", user="you")
    assert isinstance(
        committer.commit(checked(bench, bench.message("mine1", dt="x"), 2)), Published
    )
    with pytest.raises(DeletedFiles, match="another"):
        committer.commit(checked(bench, bench.message("another", dt="x"), 3))


def test_row_incremental_keeps_no_more_files_than_its_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = grown("row_incremental")
    storage = FaultyStorage(bench.storage)
    committer = bench.committer(storage)
    monkeypatch.setattr("paimon_stream.commit.watched_files.CheckedFiles.MOST", 3)
    for number, reads in ((0, 5), (1, 5 + 6)):
        committer.commit(checked(bench, bench.message(f"mine{number}", dt="x"), number))
        assert len(manifests_read(storage)) == reads


# -- conflict-detection-mode -----------------------------------------------------------------------


def test_none_says_once_at_the_first_append_that_appends_are_not_checked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(options={"conflict-detection-mode": "none"})
    committer = bench.committer()
    message = bench.message("a")
    for number in range(3):
        committer.commit(checked(bench, message, number))
    committer.commit(bench.request(3, [message, message]))
    assert bench.live_names() == ["a"] * 5
    assert [
        r.levelname for r in caplog.records if "conflict-detection-mode = none" in r.message
    ] == ["WARNING"]


def test_none_is_not_warned_of_by_a_committer_that_only_numbers_rows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(options={"conflict-detection-mode": "none", "bucket": "1"}, keys=("id",))
    assert bench.committer().numbers() is not None
    assert "conflict-detection-mode" not in caplog.text


def test_none_still_holds_bucket_counts_together() -> None:
    bench = Bench(options={"conflict-detection-mode": "none", "bucket": "4", "bucket-key": "id"})
    append(bench, "a")
    with pytest.raises(BucketCountChanged):
        append(bench, "b", total=8)


def test_none_is_ignored_with_a_warning_by_what_takes_files_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(options={"conflict-detection-mode": "none"})
    append(bench, "a")
    first, second = (bench.compaction("a", into=into) for into in "bc")
    committer = bench.committer()
    committer.commit(bench.request(1, [first]))
    for number in (2, 3):
        assert isinstance(refused(committer.commit(bench.request(number, [second]))), DeletedFiles)
    assert caplog.text.count("this commit of kind COMPACT is checked anyway") == 1
    bench.audit(["b"], orphans=True)


# -- commit.discard-duplicate-files ----------------------------------------------------------------


def test_discarding_duplicates_publishes_the_rest() -> None:
    bench = Bench(options={"commit.discard-duplicate-files": "true"})
    messages = [bench.message(name) for name in "ab"]
    bench.committer().commit(bench.request(0, messages[:1]))
    outcome = bench.committer().commit(bench.request(1, messages, user="you"))
    assert isinstance(outcome, Published)
    assert outcome.snapshot.delta_record_count == 10
    bench.audit(["a", "b"], orphans=True)


def test_discarding_everything_still_makes_the_snapshot() -> None:
    bench = Bench(
        options={"commit.discard-duplicate-files": "true", "bucket": "2", "bucket-key": "id"}
    )
    message = bench.message("a")
    for number in range(2):
        outcome = bench.committer().commit(bench.request(number, [message], renumber=True))
        assert isinstance(outcome, Published)
    assert (outcome.snapshot.id, outcome.snapshot.delta_record_count) == (2, 0)
    bench.audit(["a"], orphans=True)


def test_discarding_duplicates_finds_those_published_between_two_attempts() -> None:
    bench = Bench(options={"commit.discard-duplicate-files": "true"})
    message = bench.message("a")
    race = Between([lambda: bench.committer().commit(bench.request(0, [message], user="you"))])
    bench.committer(observer=race).commit(bench.request(0, [message, bench.message("b")]))
    bench.audit(["a", "b"], orphans=True)


def test_discarding_duplicates_is_for_appends_only() -> None:
    bench = Bench(options={"commit.discard-duplicate-files": "true"})
    append(bench, "a")
    message = replace(bench.compaction("a", into="b"), compact_before=())
    bench.committer().commit(bench.request(0, [message]))
    assert isinstance(refused(bench.committer().commit(bench.request(1, [message]))), DeletedFiles)


# -- strict mode of overwrites ---------------------------------------------------------------------


def test_strict_mode_refuses_to_overwrite_what_others_appended() -> None:
    bench = Bench(options={"commit.strict-mode.last-safe-snapshot": "1"})
    append(bench, "a", user="me")
    append(bench, "b", user="you")
    with pytest.raises(StrictModeViolated, match="appended files, which this overwrite may delete"):
        bench.committer().commit(bench.overwriting(1))
    bench.audit(["a", "b"], orphans=True)


def test_strict_mode_lets_an_overwrite_pass_after_snapshots_of_nothing() -> None:
    bench = Bench(options={"commit.strict-mode.last-safe-snapshot": "1"})
    append(bench, "a", user="me")
    bench.committer().commit(bench.request(0, user="you", force_snapshot=True))
    assert isinstance(bench.committer().commit(bench.overwriting(0)), Published)
    bench.audit([], orphans=True)
