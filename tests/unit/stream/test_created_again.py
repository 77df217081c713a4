"""Traces of a stream that lie beside the table: a snapshot that a late put created again after its
id had expired, and journal entries that are newer than the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import (
    CheckpointRewound,
    CommitLost,
    HistoryUnknown,
    PaimonStreamError,
    TableRolledBack,
)
from paimon_stream.format.snapshot_json import encode_snapshot
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.options import JOURNAL, JOURNAL_REUSE, ON_TABLE_CHANGE, ON_UNKNOWN_HISTORY
from paimon_stream.storage.base import PutResult, Storage
from paimon_stream.table.layout import manifest_path, snapshot_path
from paimon_stream.table.snapshots import SnapshotStore
from tests.kits.commits import Bench, forget_removals
from tests.kits.faults import Killed
from tests.kits.streams import Stream


@dataclass
class LatePuts:
    """The storage of a process that dies while the put of a snapshot is on its way."""

    inner: Storage
    sent: list[tuple[str, bytes]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        if path.startswith("snapshot/snapshot-"):
            self.sent.append((path, data))
            raise Killed
        return self.inner.put_if_absent(path, data)

    def arrive(self) -> None:
        [(path, data)] = self.sent
        assert path == snapshot_path(3)
        assert self.inner.put_if_absent(path, data) is PutResult.CREATED


def sent(bench: Bench, stream: Stream) -> LatePuts:
    """The storage of a run of the stream that dies while its put of snapshot 3 is on its way."""
    late = LatePuts(bench.storage)
    stream.start(storage=late)  # type: ignore[arg-type]
    with pytest.raises(Killed):
        stream.batch()
    return late


def others(bench: Bench, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        bench.committer().commit(
            bench.request(number, [bench.message(f"other-{number}")], user="another")
        )


@pytest.mark.parametrize("options", [{}, {JOURNAL_REUSE.key: "false"}, {JOURNAL.key: "false"}])
@pytest.mark.parametrize("above", [1, 2, 3])
def test_a_snapshot_that_was_created_again_below_the_oldest_is_no_commit(
    above: int, options: dict[str, str]
) -> None:
    bench = Bench()
    Stream(bench, options=options).batches(2)
    late = sent(bench, Stream(bench, next_batch=2, runs=10, options=options))
    others(bench, 1 + above)
    bench.expire(3)
    late.arrive()
    new = Stream(
        bench, next_batch=2, runs=20, options=options, done_millis=bench.clock.now_millis()
    )
    with pytest.raises(HistoryUnknown):  # who published the first snapshot 3 is not known
        new.batch()
    new.options = {**options, ON_UNKNOWN_HISTORY.key: "continue"}
    new.start()
    assert new.batch().outcome == "committed"
    assert len([name for name in bench.live_names() if name.startswith("me-2-")]) == 1


def test_a_batch_beside_the_lineage_is_not_reported_as_published_after_a_rollback() -> None:
    bench = Bench()
    Stream(bench).batch()
    others(bench, 1)
    late = sent(bench, Stream(bench, next_batch=2, runs=10))  # another run on this checkpoint
    others(bench, 4)
    stream = Stream(bench, next_batch=1, runs=20, written=1)
    stream.batch(rows=0)  # the run has now seen snapshot 6
    bench.expire(3)
    late.arrive()
    rollback_to(bench.table, 5, runtime=bench.runtime)
    with pytest.raises(HistoryUnknown, match="snapshot 3 has batch 2 of this stream"):
        stream.batch()
    stream.options = {ON_UNKNOWN_HISTORY.key: "continue"}
    stream.start()
    assert stream.batch().snapshot_id == 6
    assert [name for name in bench.live_names() if name.startswith("me-")] == ["me-0-1", "me-2-3"]


def test_our_last_snapshot_is_not_lost_when_another_writer_creates_its_id_again() -> None:
    bench = Bench()
    others(bench, 2)
    late = sent(bench, Stream(bench, user="late", query_id="q9", checkpoint="/ck/late"))
    stream = Stream(bench)
    stream.batch()
    others(bench, 2)
    bench.expire(3)
    late.arrive()
    assert bench.snapshots.ids() == [3, 4, 5]
    stream.batch()
    assert [name for name in bench.live_names() if name.startswith("me-")] == ["me-0-1", "me-1-2"]


def test_an_own_snapshot_that_is_the_oldest_one_still_counts() -> None:
    bench = Bench()
    Stream(bench).batches(2)
    bench.committer().commit(bench.request(0, [bench.message("other")], user="another"))
    bench.expire(1)
    again = Stream(bench, next_batch=1, runs=10, done_millis=bench.clock.now_millis())
    assert again.batch().outcome == "already committed"


def test_a_journal_that_is_ahead_of_the_checkpoint_refuses_it_after_the_snapshots_expired() -> None:
    bench = Bench()
    Stream(bench).batches(2)
    bench.committer().commit(bench.request(0, [bench.message("other")], user="another"))
    bench.expire(2)
    restored = Stream(bench, next_batch=0, runs=10, done_millis=bench.clock.now_millis())
    with pytest.raises(CheckpointRewound, match="already prepared batch 1"):
        restored.batch()
    assert bench.live_names() == ["me-0-1", "me-1-2", "other"]


def without_lists(bench: Bench, lost: str, upto: int = 3) -> None:
    """Removes what an expiry of Java that was killed, or damage, takes from snapshots that still
    exist.
    """
    snapshots = [bench.snapshots.get(one) for one in bench.snapshots.ids() if one <= upto + 1]
    third, fourth = snapshots[-2:]
    for name in {
        "no list": [],
        "delta list": [third.delta_manifest_list],
        "base list of the next": [fourth.base_manifest_list],
        "all lists": [
            n for one in snapshots for n in (one.base_manifest_list, one.delta_manifest_list)
        ],
    }[lost]:
        bench.storage.delete(manifest_path(name))


@pytest.mark.parametrize("options", [{}, {JOURNAL_REUSE.key: "false"}, {JOURNAL.key: "false"}])
@pytest.mark.parametrize("lost", ["delta list", "base list of the next", "all lists"])
def test_a_batch_whose_lists_are_gone_is_still_known_as_committed(
    lost: str, options: dict[str, str]
) -> None:
    bench = Bench()
    Stream(bench, options=options).batches(3)
    others(bench, 3)
    without_lists(bench, lost)
    bench.clock.advance(13 * 3_600_000)
    again = Stream(
        bench, next_batch=2, runs=10, options=options, done_millis=bench.clock.now_millis()
    )
    assert again.batch().outcome == "already committed"
    assert [name for name in bench.live_names() if name.startswith("me-2-")] == ["me-2-3"]


@pytest.mark.parametrize("restarted", [True, False])
@pytest.mark.parametrize("expired", [0, 1])
@pytest.mark.parametrize("batches", [2, 3])
@pytest.mark.parametrize("lost", ["no list", "delta list", "base list of the next", "all lists"])
def test_a_rollback_is_noticed_even_if_lists_of_the_oldest_snapshot_are_gone(
    lost: str, batches: int, expired: int, restarted: bool
) -> None:
    bench = Bench()
    stream = Stream(bench)
    stream.batches(batches)
    rollback_to(bench.table, 1, runtime=bench.runtime)
    others(bench, 4)
    bench.expire(expired)
    without_lists(bench, lost, 1 + expired)
    if restarted:
        stream.start()
    with pytest.raises((TableRolledBack, HistoryUnknown, CommitLost)) as caught:
        stream.batch()
    assert caught.value.context["option"] in str(caught.value)
    stream.options = {ON_UNKNOWN_HISTORY.key: "continue", ON_TABLE_CHANGE.key: "continue"}
    stream.start()
    assert stream.batch().snapshot_id == 6


@pytest.mark.parametrize(
    ("noted", "error", "said"),
    [
        (False, HistoryUnknown, "whether snapshot 2, on which user 'me' has built, has expired or"),
        (True, TableRolledBack, "snapshot 2, the last one that user 'me' has published, is gone"),
    ],
    ids=["by another engine", "noted"],
)
def test_a_writer_without_stream_stops_where_lists_are_gone_that_would_show_a_rollback(
    noted: bool, error: type[PaimonStreamError], said: str
) -> None:
    bench = Bench()
    others(bench, 1)
    writer = TableCommit(bench.table, "me", runtime=bench.runtime)
    writer.commit(0, [bench.message("a")])
    rollback_to(bench.table, 1, runtime=bench.runtime)
    if not noted:
        forget_removals(bench.storage)
    others(bench, 2)
    bench.expire(1)
    without_lists(bench, "delta list", 2)
    with pytest.raises(error, match=said):
        writer.commit(1, [bench.message("b")])


def test_where_the_oldest_snapshot_has_no_lists_a_live_file_shows_that_its_batch_is_committed() -> (
    None
):
    bench = Bench()
    Stream(bench).batches(3)
    others(bench, 3)
    bench.expire(2)
    bench.storage.delete(manifest_path(bench.snapshots.get(3).delta_manifest_list))
    again = Stream(bench, next_batch=2, runs=10, done_millis=bench.clock.now_millis())
    assert again.batch().outcome == "already committed"
    unknown = Stream(bench, next_batch=2, runs=20, options={JOURNAL.key: "false"})
    bench.storage.delete("_paimon_stream/me/2")
    with pytest.raises(HistoryUnknown, match="snapshot 3 has batch 2 of this stream"):
        unknown.batch()


@pytest.mark.parametrize(("hours", "compacted"), [(1, False), (13, False), (13, True)])
def test_a_batch_whose_snapshot_was_replaced_below_newer_ones_is_not_written_again(
    hours: int, compacted: bool
) -> None:
    """A writer that does not publish atomically comes late. Files that were prepared long ago are
    not used again.
    """
    bench = Bench()
    Stream(bench).batches(2)
    others(bench, 1)
    mine = bench.snapshots.get(2)
    bench.storage.delete(snapshot_path(2))
    bench.storage.write(
        snapshot_path(2), encode_snapshot(replace(mine, commit_user="java", properties={}))
    )
    if compacted:
        message = bench.compaction(bench.live_names()[1], into="compacted")
        TableCommit(bench.table, "compactor", runtime=bench.runtime).commit(1, [message])
    bench.clock.advance(hours * 3_600_000)
    again = Stream(bench, next_batch=1, runs=10, done_millis=bench.clock.now_millis())
    before = len(bench.live())
    try:
        assert again.batch().outcome == "already committed"
    except PaimonStreamError:
        assert hours < 12  # the prepared files are found in the table when they are committed
    assert len(bench.live()) == before


def taken_away(bench: Bench, *snapshot_ids: int) -> dict[str, bytes]:
    """Removes snapshots, and returns their files by their paths."""
    paths = [snapshot_path(snapshot_id) for snapshot_id in snapshot_ids]
    files = {path: bench.storage.read(path) for path in paths}
    for path in paths:
        bench.storage.delete(path)
    bench.storage.delete("snapshot/LATEST")
    bench.snapshots = SnapshotStore(bench.storage, bench.runtime)
    return files


def put_back(bench: Bench, files: dict[str, bytes]) -> None:
    for path, content in files.items():
        bench.storage.write(path, content)
    bench.snapshots = SnapshotStore(bench.storage, bench.runtime)


def test_what_a_sleeper_with_a_slow_clock_published_is_not_the_whole_history() -> None:
    """The sleeper began on the empty table, and each commit has as many rows. So neither times nor
    counts show that the table was not built on its snapshots.
    """
    bench = Bench()
    others(bench, 4, start=10)
    made_by_sleeper = taken_away(bench, 1, 2, 3, 4)
    bench.clock.advance(60_000)
    stream = Stream(bench, options={JOURNAL.key: "false"})
    others(bench, 1)
    stream.batches(2)
    others(bench, 2)
    taken_away(bench, 1, 2, 3, 4)
    put_back(bench, made_by_sleeper)
    again = replace(stream, next_batch=1, runs=10, writer=None)
    with pytest.raises(HistoryUnknown):
        again.batch()


@pytest.mark.parametrize("above", [1, 2])
def test_a_batch_is_missed_where_main_is_forwarded_to_a_branch_whose_first_snapshots_have_expired(
    above: int,
) -> None:
    """Java leaves main's snapshots below the branch's oldest one. The branch has as many rows."""
    bench = Bench()
    stream = Stream(bench)
    stream.batches(2)
    bench.clock.advance(60_000)
    others(bench, 4, start=10)
    branch = taken_away(bench, 3, 4, 5, 6)
    bench.clock.advance(-60_000)
    stream.batch()
    others(bench, above)
    put_back(bench, {snapshot_path(i): branch[snapshot_path(i)] for i in range(4 + above, 7)})
    stream.writer = None
    with pytest.raises(CommitLost, match="batch 2 of this stream was committed"):
        stream.batch()
