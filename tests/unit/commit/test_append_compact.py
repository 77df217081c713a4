"""One commit, two snapshots: their kinds and order, what the second takes over, and a compaction
that no longer fits. Also commits whose changes depend on the snapshot on which they are made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from paimon_stream.commit.committer import Nothing, Outcome, Published, Superseded
from paimon_stream.commit.plan import NO_CHANGES, Base, Changes
from paimon_stream.commit.report import Phase
from paimon_stream.commit.request import Fixed
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import CommitUnknown, DeletedFiles, SharedCheckpoint, TableRolledBack
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import FileKind
from paimon_stream.format.snapshot_json import CommitKind, Snapshot
from paimon_stream.table.manifest_merge import MergeLimits
from tests.kits.commits import Bench, data_file
from tests.kits.faults import FaultyStorage
from tests.unit.commit.test_publish import At, others, rollback


def compaction(bench: Bench, *before: str, after: str = "packed", **more: object) -> CommitMessage:
    """A message that packs files of ten rows each into one."""
    packed = bench.put(after, rows=10 * len(before))
    return replace(
        bench.message("unused"),
        new_files=(),
        compact_before=tuple(data_file(name) for name in before),
        compact_after=(packed,),
        **more,  # type: ignore[arg-type]
    )


def published(outcome: Outcome) -> Published:
    assert isinstance(outcome, Published), outcome
    return outcome


def kinds(bench: Bench, user: str = "me") -> list[str]:
    snapshots = map(bench.snapshots.get, bench.snapshots.ids())
    return [one.commit_kind.value for one in snapshots if one.commit_user == user]


# -- what becomes of the two snapshots
# -----------------------------------------------------------------


def test_what_was_written_comes_before_what_was_compacted_under_one_identifier() -> None:
    bench = Bench()
    others(bench, 2)
    mine = replace(
        compaction(bench, "other-0", "other-1"), new_files=bench.message("mine").new_files
    )
    request = bench.request(5, [mine], watermark=9, properties={"k": "v"})
    outcome = published(bench.committer().commit(request))
    assert outcome.compact == bench.latest() == outcome.newest
    first, second = outcome.snapshot, bench.latest()
    assert (first.id, second.id) == (3, 4)
    assert [one.commit_kind for one in (first, second)] == [CommitKind.APPEND, CommitKind.COMPACT]
    assert [one.delta_record_count for one in (first, second)] == [10, 0]
    for one in (first, second):
        assert (one.commit_user, one.commit_identifier, one.watermark) == ("me", 5, 9)
        assert one.properties == {"k": "v"}
    (delta,) = bench.manifests.delta(second)
    assert [entry.kind.name for entry in bench.manifests.read(delta)] == ["DELETE", "DELETE", "ADD"]
    bench.audit(["mine", "packed"], orphans=True)


def test_a_compaction_alone_makes_one_snapshot() -> None:
    bench = Bench()
    others(bench, 2)
    outcome = published(bench.committer().commit(bench.request(0, [compaction(bench, "other-0")])))
    assert outcome.snapshot == outcome.compact
    assert kinds(bench) == ["COMPACT"]


def test_a_compaction_alone_comes_behind_an_empty_append_where_empty_commits_are_kept() -> None:
    bench = Bench(options={"snapshot.ignore-empty-commit": "false"})
    others(bench, 2)
    bench.committer().commit(bench.request(0, [compaction(bench, "other-0")]))
    assert kinds(bench) == ["APPEND", "COMPACT"]
    request = bench.request(1, [compaction(bench, "other-1", after="p")], kind=CommitKind.COMPACT)
    bench.committer().commit(request)
    assert kinds(bench) == ["APPEND", "COMPACT", "COMPACT"], "a compaction job makes no append"


def test_the_compaction_reads_no_manifest_list_and_no_list_of_its_own_append() -> None:
    bench = Bench()
    others(bench, 1)
    storage = FaultyStorage(bench.storage)
    mine = replace(compaction(bench, "other-0"), new_files=bench.message("mine").new_files)
    bench.committer(storage).commit(bench.request(5, [mine]))
    lists = [
        path for verb, path in storage.operations if verb == "read" and "manifest-list" in path
    ]
    assert len(lists) == 2, "those of the snapshot before"


def test_numbers_stay_as_written_where_a_compaction_builds_upon_them() -> None:
    bench = Bench(options={"bucket": "2", "bucket-key": "id"})
    others(bench, 1)
    mine = replace(compaction(bench, "mine"), new_files=bench.message("mine").new_files)
    bench.committer().commit(bench.request(5, [mine], renumber=True))
    spans = {e.file.file_name: e.file.min_sequence_number for e in bench.live()}
    assert spans == {"other-0": 0, "packed": 0}


def test_numbers_of_a_table_with_a_key_are_the_writers() -> None:
    bench = Bench(options={"bucket": "2"}, keys=("id",))
    others(bench, 1)
    bench.committer().commit(bench.request(5, [bench.message("mine")], renumber=True))
    assert {e.file.file_name: e.file.min_sequence_number for e in bench.live()} == {
        "other-0": 0,
        "mine": 0,
    }


# -- compactions that do not fit any more
# --------------------------------------------------------------


def test_a_compaction_of_files_that_are_gone_is_left_out_and_reported() -> None:
    bench = Bench()
    others(bench, 1)
    mine = replace(compaction(bench, "other-0", "gone"), new_files=bench.message("mine").new_files)
    report = TableCommit(bench.table, "me", runtime=bench.runtime).commit(5, [mine])
    assert report.snapshot_id == 2
    assert "gone" in (report.compact_failed or "")
    assert kinds(bench) == ["APPEND"]
    bench.audit(["mine", "other-0"], orphans=True)
    assert bench.storage.stat("bucket-0/packed")


def test_a_compaction_alone_in_conflict_fails_nothing() -> None:
    bench = Bench()
    others(bench, 1)
    outcome = bench.committer().commit(bench.request(5, [compaction(bench, "gone")]))
    assert isinstance(outcome, Nothing)
    assert isinstance(outcome.compact_failed, DeletedFiles)
    bench.audit(["other-0"], orphans=True)


def test_the_loser_of_two_compactions_of_the_same_files_changes_nothing() -> None:
    bench = Bench()
    others(bench, 2)
    rival = compaction(bench, "other-0", "other-1", after="theirs")

    def compact() -> None:
        bench.committer().commit(bench.request(0, [rival], user="rival"))

    mine = compaction(bench, "other-0", "other-1", after="ours")
    outcome = bench.committer(observer=At(Phase.STAGED, compact)).commit(bench.request(5, [mine]))
    assert isinstance(outcome, Nothing)
    bench.audit(["theirs"], orphans=True)


def test_a_replay_of_a_batch_without_its_compaction_is_filtered_as_java_filters_it() -> None:
    bench = Bench()
    others(bench, 1)
    mine = replace(compaction(bench, "other-0"), new_files=bench.message("mine").new_files)
    bench.committer().commit(bench.request(5, [replace(mine, compact_before=(), compact_after=())]))
    assert TableCommit(bench.table, "me", runtime=bench.runtime).filter_and_commit({5: [mine]}) == 0
    assert kinds(bench) == ["APPEND"]


def test_the_compaction_of_a_batch_is_still_to_do_after_its_append_but_not_twice() -> None:
    bench = Bench()
    others(bench, 2)
    seen = bench.latest()
    bench.committer().commit(bench.request(5, [bench.message("mine")]))
    first = compaction(bench, "other-0", after="p")
    published(
        bench.committer().commit(bench.request(5, [first], kind=CommitKind.COMPACT, seen=seen))
    )
    second = compaction(bench, "other-1", after="q")
    outcome = bench.committer().commit(
        bench.request(5, [second], kind=CommitKind.COMPACT, seen=seen)
    )
    assert isinstance(outcome, Superseded)
    assert kinds(bench) == ["APPEND", "COMPACT"]


def test_another_run_that_went_on_with_the_next_batch_ends_the_compaction() -> None:
    bench = Bench()
    others(bench, 1)
    observer = At(
        Phase.HINTED, lambda: bench.committer().commit(bench.request(6, [bench.message("next")]))
    )
    mine = replace(compaction(bench, "other-0"), new_files=bench.message("mine").new_files)
    outcome = published(bench.committer(observer=observer).commit(bench.request(5, [mine])))
    assert isinstance(outcome.compact_failed, SharedCheckpoint)
    bench.audit(["mine", "next", "other-0"], orphans=True)


# -- sources of changes
# --------------------------------------------------------------------------------


@dataclass
class ClearAll:
    """Removes all live files, and notes the snapshots on which it was asked."""

    bench: Bench
    asked: list[int] = field(default_factory=list)

    def at(self, base: Base) -> Changes:
        self.asked.append(base.id)
        live = self.bench.live()
        return Changes(entries=tuple(replace(entry, kind=FileKind.DELETE) for entry in live))


def cleared(bench: Bench, phase: Phase, action: Callable[[], object]) -> tuple[Outcome, ClearAll]:
    source = ClearAll(bench)
    request = bench.request(0, source=source, kind=CommitKind.OVERWRITE)
    return bench.committer(observer=At(phase, action)).commit(request), source


def test_a_source_is_asked_again_on_the_snapshot_of_each_attempt() -> None:
    bench = Bench()
    others(bench, 1)
    outcome, source = cleared(bench, Phase.STAGED, lambda: others(bench, 2, start=1))
    assert published(outcome).snapshot.commit_kind is CommitKind.OVERWRITE
    assert source.asked == [1, 3]
    bench.audit([], orphans=True)


def test_a_source_without_changes_makes_no_snapshot_unless_it_is_forced() -> None:
    bench = Bench()
    outcome, _ = cleared(bench, Phase.STAGED, lambda: None)
    assert outcome == Nothing()
    forced = bench.request(
        0, source=ClearAll(bench), kind=CommitKind.OVERWRITE, force_snapshot=True
    )
    assert published(bench.committer().commit(forced)).snapshot.delta_record_count == 0
    bench.audit([], orphans=True)


def test_a_snapshot_that_only_takes_away_is_known_by_what_is_gone_after_it() -> None:
    bench = Bench(options={"manifest.merge-min-count": "2"})
    others(bench, 2)
    outcome, _ = cleared(bench, Phase.PUBLISHED, lambda: others(bench, 2, start=2))
    assert published(outcome).attempts == 1
    bench.audit(["other-2", "other-3"])


def test_a_snapshot_that_only_takes_away_is_void_where_the_files_are_live_after_it() -> None:
    bench = Bench()
    others(bench, 2)

    def go_on() -> None:
        ours = bench.storage.read("snapshot/snapshot-3")
        bench.storage.delete("snapshot/snapshot-3")
        others(bench, 2, start=2)
        bench.storage.write("snapshot/snapshot-3", ours)

    source = ClearAll(bench)
    request = bench.request(0, source=source, kind=CommitKind.OVERWRITE, fence=lambda: True)
    outcome = published(bench.committer(observer=At(Phase.PUBLISHED, go_on)).commit(request))
    assert (outcome.snapshot.id, outcome.attempts, source.asked) == (5, 2, [2, 4])
    assert bench.live_names() == []


def test_a_rollback_under_a_compaction_leaves_it_open_and_the_append_reported() -> None:
    bench = Bench()
    others(bench, 2)

    class RollBack:
        staged = 0

        def reached(self, phase: Phase, identifier: int) -> None:
            self.staged += phase is Phase.STAGED
            if phase is Phase.STAGED and self.staged == 2:
                rollback(bench, 1)

    mine = replace(compaction(bench, "other-0"), new_files=bench.message("mine").new_files)
    outcome = published(bench.committer(observer=RollBack()).commit(bench.request(5, [mine])))
    assert isinstance(outcome.compact_failed, CommitUnknown)
    assert isinstance(outcome.compact_failed.__cause__, TableRolledBack)
    assert bench.live_names() == ["other-0"]


# -- index files, changelogs, statistics, manifests alone
# ----------------------------------------------


def index_commit(bench: Bench, number: int, **parts: tuple[str, ...]) -> Snapshot:
    files = {key: tuple(bench.put_index(name) for name in names) for key, names in parts.items()}
    message = replace(bench.message(f"f{number}"), **files)
    return published(bench.committer().commit(bench.request(number, [message]))).snapshot


def test_index_files_come_and_go_and_their_manifest_is_inherited_meanwhile() -> None:
    bench = Bench()
    first = index_commit(bench, 0, new_index_files=("a", "b"))
    assert index_commit(bench, 1).index_manifest == first.index_manifest
    index_commit(bench, 2, new_index_files=("c",), deleted_index_files=("a",))
    assert [one.file.file_name for one in bench.indexes()] == ["b", "c"]
    bench.audit(["f0", "f1", "f2"], orphans=True)


def test_a_changelog_belongs_to_its_snapshot_alone() -> None:
    bench = Bench()
    message = replace(bench.message("a"), changelog_files=(bench.put("log", rows=7),))
    first = published(bench.committer().commit(bench.request(0, [message]))).snapshot
    second = published(bench.committer().commit(bench.request(1, [bench.message("b")]))).snapshot
    assert (first.changelog_record_count, second.changelog_record_count) == (7, None)
    assert second.changelog_manifest_list is None
    assert [entry.file.file_name for entry in bench.changelogs()] == ["log"]
    bench.audit(["a", "b"], orphans=True)


def test_an_index_change_alone_is_known_by_the_index_files_after_it() -> None:
    bench = Bench()
    index_commit(bench, 0, new_index_files=("a",))
    message = replace(bench.message("x"), new_files=(), new_index_files=(bench.put_index("b"),))

    def after() -> None:
        index_commit(bench, 1, new_index_files=("c",))

    observer = At(Phase.PUBLISHED, after)
    outcome = bench.committer(observer=observer).commit(bench.request(0, [message], user="you"))
    assert published(outcome).attempts == 1
    assert [one.file.file_name for one in bench.indexes()] == ["a", "b", "c"]


def test_statistics_need_no_other_change() -> None:
    bench = Bench()
    others(bench, 1)
    bench.storage.write("statistics/stat-1", b'{"schemaId": 0}')
    request = bench.request(0, kind=CommitKind.ANALYZE, statistics="stat-1")
    made = published(bench.committer().commit(request)).snapshot
    assert (made.commit_kind, made.statistics, made.delta_record_count) == (
        CommitKind.ANALYZE,
        "stat-1",
        0,
    )
    others(bench, 1, start=1)
    assert bench.latest().statistics == "stat-1"


def test_manifests_are_merged_by_a_commit_of_nothing_else_once() -> None:
    bench = Bench()
    others(bench, 4)
    limits = MergeLimits(target_size=1 << 23, full_size=1, min_count=1)

    def merge() -> Outcome:
        request = bench.request(0, source=Fixed(NO_CHANGES), kind=CommitKind.COMPACT, merge=limits)
        return bench.committer().commit(request)

    made = published(merge()).snapshot
    assert len(bench.metas_of(made)) == 1
    assert merge() == Nothing()
    bench.audit([f"other-{n}" for n in range(4)], orphans=True)


@pytest.mark.parametrize("kind", [CommitKind.APPEND, CommitKind.OVERWRITE])
def test_a_commit_of_nothing_is_kept_where_empty_commits_are(kind: CommitKind) -> None:
    bench = Bench(options={"snapshot.ignore-empty-commit": "false"})
    assert (
        published(bench.committer().commit(bench.request(0, kind=kind))).snapshot.commit_kind
        is kind
    )
